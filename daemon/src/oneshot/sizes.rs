//! The size flags of requests and replies (disk-format.md 2.5): the same bits in lockspaces and resources.

use super::ToolError;
use sanlock_blockio::Disk;
use sanlock_lease::format::choose_sizes;
use sanlock_lease::geometry::{ALIGN_FLAGS, AlignSize, Geometry, SectorSize};
use sanlock_lease::record::RawLeader;

const SECTOR512: u32 = 0x100;
const SECTOR4K: u32 = 0x200;
/// All bits that carry sizes.
const SIZE_FLAGS: u32 = ALIGN_FLAGS | SECTOR512 | SECTOR4K;

/// The sizes a request names; of several flags of one kind the first in the order of the table counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hints {
    pub(super) sector: Option<SectorSize>,
    pub(super) align: Option<AlignSize>,
}

impl Hints {
    pub(super) fn from_flags(flags: u32) -> Self {
        let sector = if flags & SECTOR512 != 0 {
            Some(SectorSize::B512)
        } else if flags & SECTOR4K != 0 {
            Some(SectorSize::B4096)
        } else {
            None
        };
        Self { sector, align: AlignSize::from_flags(flags) }
    }

    /// The sizes to format a disk with (disk-format.md 2.3).
    pub(super) fn to_format(self, disk: &Disk) -> Result<Geometry, ToolError> {
        Ok(choose_sizes(self.sector, self.align, disk.logical_block_size())?)
    }

    /// Refuses hints that contradict the lease.
    pub(super) fn check(self, found: Geometry) -> Result<(), ToolError> {
        match self.sector {
            Some(asked) if asked != found.sector() => Err(ToolError::WrongHint {
                what: "sector",
                found: found.sector().bytes().into(),
                asked: asked.bytes().into(),
            }),
            _ => match self.align {
                Some(asked) if asked != found.align() => Err(ToolError::WrongHint {
                    what: "align",
                    found: found.align().bytes(),
                    asked: asked.bytes(),
                }),
                _ => Ok(()),
            },
        }
    }
}

/// `flags` with the size bits replaced by those of a leader record, as it says them even if they do not go together; none if
/// its sector size does not exist.
pub(super) fn with_sizes_of(flags: u32, leader: &RawLeader) -> u32 {
    let sizes = match SectorSize::from_bytes(leader.sector_size.get()) {
        None => 0,
        Some(sector) => {
            let align = AlignSize::from_flags(leader.flags.get());
            let align = align.unwrap_or_else(|| Geometry::default_for(sector).align());
            align.flag() | if sector == SectorSize::B512 { SECTOR512 } else { SECTOR4K }
        }
    };
    flags & !SIZE_FLAGS | sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_flag_of_a_kind_counts() {
        let both = Hints { sector: Some(SectorSize::B512), align: Some(AlignSize::M1) };
        assert_eq!(Hints::from_flags(0x3f0), both);
        assert_eq!(Hints::from_flags(0x40f), Hints { sector: None, align: None });
        assert_eq!(Hints::from_flags(0x2c0).align, Some(AlignSize::M4));
    }

    #[test]
    fn flags_of_a_record() {
        let mut leader = RawLeader::zeroed();
        for (sector, align, expected) in
            [(512, 0x10, 0x110), (4096, 0x2f, 0x220), (512, 0, 0x110), (4096, 1, 0x280), (512, 0x80, 0x180)]
        {
            leader.sector_size = sector.into();
            leader.flags = align.into();
            assert_eq!(with_sizes_of(0x407 | 0x3f0, &leader), 0x407 | expected, "{sector} {align:#x}");
        }
        leader.sector_size = 1024.into();
        assert_eq!(with_sizes_of(0x3f7, &leader), 0x7);
    }
}
