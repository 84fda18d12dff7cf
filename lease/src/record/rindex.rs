//! The resource index: header and entries (disk-format.md 8).

use crate::limits::NAME_BYTES;
use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Magic of a resource index header.
pub const RINDEX_MAGIC: u32 = 0x0104_2018;
/// Version 1.2.
pub const RINDEX_VERSION: u32 = 0x0001_0002;

/// Sector 0 of an index. No checksum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable, Debug)]
#[repr(C)]
pub struct RindexHeader {
    /// [`RINDEX_MAGIC`].
    pub magic: U32,
    /// [`RINDEX_VERSION`]; only the major part matters.
    pub version: U32,
    /// Align bit 1, 2, 4 or 8 (other numbers than the leader's).
    pub flags: U32,
    /// 512 or 4096.
    pub sector_size: U32,
    /// Entries in use for searching; 0 means the geometry's maximum.
    pub max_resources: U32,
    /// Zero.
    pub unused: U32,
    /// Byte offset of the index on its disk.
    pub rx_offset: U64,
    /// Lockspace of the index and its leases.
    pub lockspace_name: [u8; NAME_BYTES],
}

const _: () = assert!(size_of::<RindexHeader>() == 80);
const _: () = assert!(offset_of!(RindexHeader, rx_offset) == 24);

impl RindexHeader {
    /// Decodes the header sector.
    #[must_use]
    pub fn from_sector(sector: &[u8]) -> Self {
        super::prefix(sector)
    }

    /// Writes a whole sector.
    pub fn encode(&self, sector: &mut [u8]) {
        sector.fill(0);
        sector[..size_of::<Self>()].copy_from_slice(self.as_bytes());
    }
}

/// One entry, 64 bytes, from the second sector on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable, Debug)]
#[repr(C)]
pub struct RindexEntry {
    /// Byte offset of the resource's area, 0 when unused.
    pub res_offset: U64,
    /// Zero.
    pub flags: U32,
    /// Zero.
    pub unused: U32,
    /// Resource name, empty when unused.
    pub name: [u8; NAME_BYTES],
}

const _: () = assert!(size_of::<RindexEntry>() == 64);

impl RindexEntry {
    /// Bytes of one entry.
    pub const BYTES: usize = size_of::<Self>();

    /// Decodes one entry.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        super::prefix(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes.copy_from_slice(self.as_bytes());
        bytes
    }

    /// Whether the entry is free: no offset and no name.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.res_offset.get() == 0 && self.name[0] == 0
    }
}
