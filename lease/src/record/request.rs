//! The request record: sector 1 of a resource area (disk-format.md 7.3).

use core::mem::size_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Magic of a request record.
pub const REQUEST_MAGIC: u32 = 0x0829_2011;
/// Version 1.1.
pub const REQUEST_VERSION: u32 = 0x0001_0001;

/// Another host's wish to get a lease. No checksum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable, Debug)]
#[repr(C)]
pub struct RequestRecord {
    /// [`REQUEST_MAGIC`].
    pub magic: U32,
    /// [`REQUEST_VERSION`]; only the major part matters.
    pub version: U32,
    /// Lease version asked for, 0 = no request.
    pub lver: U64,
    /// 0 none, 1 force, 2 graceful.
    pub force_mode: U32,
    /// Written as zero, ignored when read: the original leaves memory contents here.
    pub padding: U32,
}

const _: () = assert!(size_of::<RequestRecord>() == 24);

impl RequestRecord {
    /// No request.
    #[must_use]
    pub fn none() -> Self {
        Self {
            magic: REQUEST_MAGIC.into(),
            version: REQUEST_VERSION.into(),
            lver: 0.into(),
            force_mode: 0.into(),
            padding: 0.into(),
        }
    }

    /// Decodes a request sector.
    #[must_use]
    pub fn from_sector(sector: &[u8]) -> Self {
        super::prefix(sector)
    }

    /// Writes a whole sector, zeros in all padding.
    pub fn encode(&self, sector: &mut [u8]) {
        sector.fill(0);
        let record = Self { padding: 0.into(), ..*self };
        sector[..size_of::<Self>()].copy_from_slice(record.as_bytes());
    }
}
