//! Where things lie on the disks that the guests share, and the stamp by which a holder shows that it writes.
//!
//! Three disks: two with a lockspace each (they can be cut), and one that is never cut. A holder stamps its own sector
//! of the third disk as long as it lives, whatever happened to the lease storage: two hosts stamping at the same time
//! is what must never be seen.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Size of each shared image.
pub(crate) const IMAGE_BYTES: u64 = 16 << 20;
/// Lockspace area at the start of each lease disk.
pub(crate) const LOCKSPACE_OFFSET: u64 = 0;
/// The resource of each lease disk.
pub(crate) const RESOURCE_OFFSET: u64 = 1 << 20;
/// Stamps of host N lie at this offset + N × [`STAMP_BYTES`], on the stamp disk and on lease disks.
pub(crate) const STAMP_OFFSET: u64 = 8 << 20;
/// One stamp's place: the largest sector.
pub(crate) const STAMP_BYTES: usize = 4096;
/// Sector size of the leases.
pub(crate) const LEASE_SECTOR: usize = 512;
/// Highest host id in use.
pub(crate) const HOSTS: usize = 2;

/// Guest name of the first lease disk.
pub(crate) const LEASE_DISK: &str = "/dev/vda";
/// Guest name of the stamp disk.
pub(crate) const STAMP_DISK: &str = "/dev/vdb";
/// Guest name of the second lease disk.
pub(crate) const SECOND_LEASE_DISK: &str = "/dev/vdc";

const STAMP_MAGIC: u64 = 0x5641_4c4b_5354_4d50;

/// What a holder writes over and over.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Stamp {
    magic: U64,
    host: U64,
    counter: U64,
}

impl Stamp {
    /// The `counter`-th stamp of `host`.
    pub(crate) fn new(host: u64, counter: u64) -> Self {
        Self { magic: STAMP_MAGIC.into(), host: host.into(), counter: counter.into() }
    }

    /// The counter found in `host`'s place, `None` if it never stamped.
    pub(crate) fn counter_of(host: usize, place: &[u8]) -> Option<u64> {
        let (stamp, _) = Self::read_from_prefix(place).ok()?;
        (stamp.magic.get() == STAMP_MAGIC && stamp.host.get() == host as u64).then(|| stamp.counter.get())
    }

    /// Offset of `host`'s place.
    pub(crate) fn offset(host: usize) -> u64 {
        STAMP_OFFSET + (host * STAMP_BYTES) as u64
    }
}
