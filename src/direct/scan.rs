//! Looking for leases on storage: what lies at an offset, and with which sizes (command-line.md 8.5, 8.6).

use super::storage::{Storage, StorageError};
use sanlock_lease::geometry::{AlignSize, Geometry, SectorSize};
use sanlock_lease::limits::SECTOR_BYTES_MAX;
use sanlock_lease::record::{DELTA_MAGIC, PAXOS_MAGIC, RINDEX_MAGIC, RawLeader, RindexHeader};
use sanlock_lease::verify;

/// Distance of the places that are looked at for a first lease.
const STEP: u64 = 1 << 20;
/// Places that are looked at.
const STEPS_MAX: u64 = 1024;

/// What begins at an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Area {
    /// Host id leases.
    Lockspace,
    /// A resource's lease.
    Resource,
    /// A resource index.
    Rindex,
}

impl Area {
    /// What a first sector says. A cleared lease is none.
    pub(crate) fn of(sector: &[u8]) -> Option<Self> {
        match RawLeader::from_sector(sector).magic.get() {
            DELTA_MAGIC => Some(Self::Lockspace),
            PAXOS_MAGIC => Some(Self::Resource),
            RINDEX_MAGIC => Some(Self::Rindex),
            _ => None,
        }
    }

    /// The sizes that a first sector states.
    pub(crate) fn geometry(self, sector: &[u8]) -> Option<Geometry> {
        match self {
            Self::Lockspace | Self::Resource => verify::sizes(&RawLeader::from_sector(sector)).ok(),
            Self::Rindex => {
                let header = RindexHeader::from_sector(sector);
                let size = SectorSize::from_bytes(header.sector_size.get())?;
                // An index has the bits 1, 2, 4, 8 where a lease has 0x10, 0x20, 0x40, 0x80.
                let align = AlignSize::from_flags(header.flags.get().checked_shl(4).unwrap_or(0))?;
                Geometry::new(size, align).ok()
            }
        }
    }
}

/// The sizes of the first lease at `start` or some steps after it, `None` if there is none within `size` bytes.
///
/// # Errors
/// A read failed for another reason than the end of the storage.
pub(crate) fn find_geometry(
    storage: &mut Storage,
    start: u64,
    size: Option<u64>,
) -> Result<Option<Geometry>, StorageError> {
    for step in 0..STEPS_MAX {
        let distance = step * STEP;
        if size.is_some_and(|size| distance >= size) {
            break;
        }
        let sector = match storage.read(start.saturating_add(distance), SECTOR_BYTES_MAX) {
            Ok(sector) => sector,
            Err(error) if error.is_beyond_end() => break,
            Err(error) => return Err(error),
        };
        if let Some(geometry) = Area::of(&sector).and_then(|area| area.geometry(&sector)) {
            return Ok(Some(geometry));
        }
    }
    Ok(None)
}
