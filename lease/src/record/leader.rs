//! The leader record: one layout for delta leases and for the first sector of a resource (disk-format.md 5).

use crate::checksum::checksum;
use crate::geometry::HostId;
use crate::limits::NAME_BYTES;
use core::mem::{offset_of, size_of};
use std::fmt;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Magic of a delta lease.
pub const DELTA_MAGIC: u32 = 0x1221_2010;
/// Magic of a resource's leader.
pub const PAXOS_MAGIC: u32 = 0x0615_2010;
/// Magic of a cleared resource.
pub const PAXOS_CLEARED_MAGIC: u32 = 0x1128_2016;
/// Version written when a lockspace is formatted: 3.4.
pub const DELTA_VERSION: u32 = 0x0003_0004;
/// Version written when a resource is formatted: 6.4.
pub const PAXOS_VERSION: u32 = 0x0006_0004;
/// The owner is only passing through exclusive ownership to take the lease shared.
pub const FLAG_SHORT_HOLD: u32 = 0x01;
/// The record may be changed only by compare-and-write (5.x).
pub const FLAG_CAW: u32 = 0x08;
/// Offset of the host id bitmap in a delta lease's sector.
pub const BITMAP_OFFSET: usize = 256;
/// Bytes of the bitmap.
const BITMAP_BYTES: usize = 256;

/// A leader record as it lies on disk, unverified.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RawLeader {
    /// [`DELTA_MAGIC`], [`PAXOS_MAGIC`] or [`PAXOS_CLEARED_MAGIC`].
    pub magic: U32,
    /// Major in the high 16 bits, minor in the low. Never changed by use.
    pub version: U32,
    /// Align bits, [`FLAG_SHORT_HOLD`], and bits of later versions that are kept as they are.
    pub flags: U32,
    /// 512 or 4096.
    pub sector_size: U32,
    /// Highest usable host id of a resource; 0 in a delta lease.
    pub num_hosts: U64,
    /// Ballot number stride of a resource; 1 in a delta lease.
    pub max_hosts: U64,
    /// Host id of the last holder, 0 if there never was one.
    pub owner_id: U64,
    /// That holder's generation.
    pub owner_generation: U64,
    /// Lease version: number of ownership changes. 0 in a delta lease.
    pub lver: U64,
    /// Lockspace name.
    pub space_name: [u8; NAME_BYTES],
    /// Resource name; in a delta lease the holder's host name.
    pub resource_name: [u8; NAME_BYTES],
    /// 0 = free, else the writer's monotonic second of the last renewal or of the acquisition.
    pub timestamp: U64,
    /// Kept as it is.
    pub unused1: U64,
    /// Sum of the bytes before it.
    pub checksum: U32,
    /// Kept as it is.
    pub unused2: U16,
    /// The holder's io timeout in seconds; 0 in a resource.
    pub io_timeout: U16,
    /// Resource: host id of the writer. Delta lease: event, generation of the addressed host.
    pub write_id: U64,
    /// Resource: generation of the writer. Delta lease: event number, 0 = none.
    pub write_generation: U64,
    /// Resource: the writer's time. Delta lease: event data.
    pub write_timestamp: U64,
}

const _: () = assert!(size_of::<RawLeader>() == 200);
const _: () = assert!(offset_of!(RawLeader, num_hosts) == 16);
const _: () = assert!(offset_of!(RawLeader, space_name) == 56);
const _: () = assert!(offset_of!(RawLeader, resource_name) == 104);
const _: () = assert!(offset_of!(RawLeader, timestamp) == 152); // the compared prefix ends here
const _: () = assert!(offset_of!(RawLeader, checksum) == 168); // the checksummed prefix ends here
const _: () = assert!(offset_of!(RawLeader, io_timeout) == 174);
const _: () = assert!(offset_of!(RawLeader, write_timestamp) == 192);

impl RawLeader {
    /// A record of zeros.
    #[must_use]
    pub fn zeroed() -> Self {
        FromZeros::new_zeroed()
    }

    /// The first 200 bytes of a sector.
    #[must_use]
    pub fn from_sector(sector: &[u8]) -> Self {
        super::prefix(sector)
    }

    /// The checksum its first 168 bytes should carry.
    #[must_use]
    pub fn computed_checksum(&self) -> u32 {
        checksum(&self.as_bytes()[..offset_of!(Self, checksum)])
    }

    /// Stores the right checksum.
    pub fn seal(&mut self) {
        self.checksum = self.computed_checksum().into();
    }

    /// "Same lease state": equal up to the timestamp (disk-format.md 5), used to compare several disks.
    #[must_use]
    pub fn same_state(&self, other: &Self) -> bool {
        let end = offset_of!(Self, timestamp);
        self.as_bytes()[..end] == other.as_bytes()[..end]
    }

    /// Replaces the record at the start of a sector; what follows it stays.
    ///
    /// # Panics
    /// The sector is shorter than a record.
    pub fn overlay(&self, sector: &mut [u8]) {
        sector[..size_of::<Self>()].copy_from_slice(self.as_bytes());
    }

    /// Writes a whole sector: this record, `bitmap` if given, zeros elsewhere.
    pub fn encode(&self, bitmap: Option<&Bitmap>, sector: &mut [u8]) {
        sector.fill(0);
        sector[..size_of::<Self>()].copy_from_slice(self.as_bytes());
        if let Some(bitmap) = bitmap {
            sector[BITMAP_OFFSET..BITMAP_OFFSET + BITMAP_BYTES].copy_from_slice(&bitmap.0);
        }
    }
}

impl fmt::Debug for RawLeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "leader {{ magic {:#x} version {:#x} flags {:#x} owner {}/{} lver {} ts {} writer {}/{}/{} }}",
            self.magic,
            self.version,
            self.flags,
            self.owner_id,
            self.owner_generation,
            self.lver,
            self.timestamp,
            self.write_id,
            self.write_generation,
            self.write_timestamp
        )
    }
}

/// The host id bitmap of a delta lease's sector: "host, look at my event and at your requests" (disk-format.md 6.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bitmap([u8; BITMAP_BYTES]);

impl Default for Bitmap {
    fn default() -> Self {
        Self([0; BITMAP_BYTES])
    }
}

impl Bitmap {
    /// The bitmap of a delta lease's sector.
    #[must_use]
    pub fn from_sector(sector: &[u8]) -> Self {
        let mut map = Self::default();
        if let Some(bytes) = sector.get(BITMAP_OFFSET..BITMAP_OFFSET + BITMAP_BYTES) {
            map.0.copy_from_slice(bytes);
        }
        map
    }

    /// Sets a host's bit.
    pub fn set(&mut self, host: HostId) {
        self.0[host.index() / 8] |= 1 << (host.index() % 8);
    }

    /// Whether a host's bit is set.
    #[must_use]
    pub fn contains(&self, host: HostId) -> bool {
        self.0[host.index() / 8] & (1 << (host.index() % 8)) != 0
    }

    /// The hosts whose bits are set, ascending.
    pub fn hosts(&self) -> impl Iterator<Item = HostId> + '_ {
        (1..=u64::from(crate::limits::HOSTS_MAX)).filter_map(HostId::new).filter(|h| self.contains(*h))
    }
}

impl fmt::Debug for Bitmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.hosts().map(HostId::get)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmap_positions_of_the_specification() {
        for (id, byte, mask) in [(1, 0, 0x01), (2, 0, 0x02), (8, 0, 0x80), (9, 1, 0x01), (2000, 249, 0x80)] {
            let mut map = Bitmap::default();
            let host = HostId::new(id).unwrap();
            map.set(host);
            assert_eq!(map.0[byte], mask, "host id {id}");
            assert_eq!(map.hosts().collect::<Vec<_>>(), [host]);
        }
    }

    #[test]
    fn a_record_is_replaced_and_what_follows_it_stays() {
        let mut leader = RawLeader::zeroed();
        leader.lver = 7.into();
        let mut sector = [0xee; 512];
        leader.overlay(&mut sector);
        assert_eq!(RawLeader::from_sector(&sector), leader);
        assert_eq!(sector[200..], [0xee; 312]);
    }

    #[test]
    fn records_and_bitmaps_are_shown_in_failures() {
        let mut leader = RawLeader::zeroed();
        (leader.owner_id, leader.owner_generation, leader.lver) = (2.into(), 3.into(), 4.into());
        let shown = format!("{leader:?}");
        assert!(shown.contains("owner 2/3 lver 4 ts 0"), "{shown}");
        let mut map = Bitmap::default();
        map.set(HostId::new(1).unwrap());
        map.set(HostId::new(2000).unwrap());
        assert_eq!(format!("{map:?}"), "[1, 2000]");
    }
}
