//! The resource index as the `client` and `direct` actions have in common (command-line.md 7.22).

use crate::cli::command::IndexArgs;
use sanlock_lease::geometry::{AlignSize, SectorSize};
use sanlock_wire::{Disk, Name, PathError, Rentry, Rindex};

/// Where the index is and which entry is meant, as the daemon and the disk functions take them.
///
/// # Errors
/// A path that is too long.
pub(crate) fn request(args: &IndexArgs) -> Result<(Rindex, Rentry), PathError> {
    let name = |name: sanlock_lease::name::Name| Name::from_raw(name.to_field());
    let disk = Disk::new(&args.index.disk.path, args.index.disk.offset)?;
    let mut index = Rindex::new(name(args.index.lockspace), disk);
    index.flags = size_flags(args).into();
    Ok((index, Rentry::new(name(args.entry.name), args.entry.offset)))
}

/// The sizes asked for (disk-format.md 2.5).
pub(crate) fn size_flags(args: &IndexArgs) -> u32 {
    let sector = match args.sizes.sector {
        None => 0,
        Some(SectorSize::B512) => 0x100,
        Some(SectorSize::B4096) => 0x200,
    };
    sector | args.sizes.align.map_or(0, AlignSize::flag)
}

/// What a lookup found: an entry without a name is shown as `-`.
pub(crate) fn found(entry: &Rentry) -> Vec<u8> {
    let name = sanlock_lease::name::Name::from_field(entry.name.as_raw());
    let name = if name.is_empty() { b"-" } else { name.as_bytes() };
    [b"name ", name, format!(" offset {}\n", entry.offset).as_bytes()].concat()
}
