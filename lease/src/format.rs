//! What formatting writes: whole areas, ready to be written by whoever does I/O (disk-format.md 2.3, 6.2, 6.3, 7.6, 7.7).
//!
//! A write of a whole area may be cut short anywhere, and what is left of it mixed with what was there before: a leader of the new
//! lease beside ballots of the old one, or the other way round. So the first sector, without which nobody accepts anything, is taken
//! away before the rest is written, and put in place after it ([`Lockspace::writes`], [`Resource::writes`]): what was not formatted to
//! the end reads as not formatted.

use crate::geometry::{AlignSize, Geometry, GeometryError, SectorSize};
use crate::name::Name;
use crate::record::{
    DELTA_MAGIC, DELTA_VERSION, PAXOS_CLEARED_MAGIC, PAXOS_MAGIC, PAXOS_VERSION, RawLeader, RequestRecord,
};
use crate::timing::IoTimeout;

/// `max_hosts` of a delta lease: a constant, the number of host ids follows from the sizes.
const DELTA_MAX_HOSTS: u64 = 1;
/// Sector of the request record in a resource area.
const REQUEST_SECTOR: usize = 1;

/// Why no sizes can be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SizesError {
    /// Sector and align size must be given together or not at all.
    #[error("sector size and align size must be given together")]
    OnlyOne,
    /// They do not go together.
    #[error(transparent)]
    Pair(#[from] GeometryError),
    /// The storage has a block size that no lease has.
    #[error("the storage has blocks of {found} bytes, expected 512 or 4096")]
    BlockSize {
        /// Bytes found.
        found: u32,
    },
}

/// The sizes to format with: both as given, or those that go with the storage's logical block size, which is 512 for a file
/// (disk-format.md 2.3).
///
/// # Errors
/// Only one size given, a pair that does not exist, or nothing given and a block size that no lease has.
pub fn choose_sizes(
    sector: Option<SectorSize>,
    align: Option<AlignSize>,
    logical_block_bytes: u32,
) -> Result<Geometry, SizesError> {
    match (sector, align) {
        (Some(sector), Some(align)) => Ok(Geometry::new(sector, align)?),
        (None, None) => SectorSize::from_bytes(logical_block_bytes)
            .map(Geometry::default_for)
            .ok_or(SizesError::BlockSize { found: logical_block_bytes }),
        _ => Err(SizesError::OnlyOne),
    }
}

/// A zeroed area. An area has at most 8 MiB, so it always fits memory.
fn blank(geometry: Geometry) -> Vec<u8> {
    vec![0; usize::try_from(geometry.align().bytes()).unwrap_or(0)]
}

/// A lockspace to be formatted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lockspace {
    /// Its name.
    pub name: Name,
    /// Its sizes.
    pub geometry: Geometry,
    /// Written into every record.
    pub io_timeout: IoTimeout,
}

impl Lockspace {
    fn record(&self) -> RawLeader {
        let mut record = RawLeader::zeroed();
        record.magic = DELTA_MAGIC.into();
        record.version = DELTA_VERSION.into();
        record.flags = self.geometry.align().flag().into();
        record.sector_size = self.geometry.sector().bytes().into();
        record.max_hosts = DELTA_MAX_HOSTS.into();
        record.space_name = self.name.to_field();
        record.io_timeout = self.io_timeout.to_disk().into();
        record.seal();
        record
    }

    /// The writes, in this order, all at the offset of the lockspace: no first record; every record final, but that of host id 1
    /// without magic; the record of host id 1.
    #[must_use]
    pub fn writes(&self) -> [Vec<u8>; 3] {
        [vec![0; self.geometry.sector().slice_len()], self.area(), self.first_sector()]
    }

    /// Every record final, but that of host id 1 without magic.
    #[must_use]
    pub fn area(&self) -> Vec<u8> {
        let mut area = blank(self.geometry);
        let record = self.record();
        let mut first = record;
        first.magic = 0.into();
        first.seal();
        let sectors = area.chunks_exact_mut(self.geometry.sector().slice_len());
        for (index, sector) in sectors.take(usize::from(self.geometry.max_hosts())).enumerate() {
            if index == 0 { &first } else { &record }.encode(None, sector);
        }
        area
    }

    /// The record of host id 1 as it should be.
    #[must_use]
    pub fn first_sector(&self) -> Vec<u8> {
        let mut sector = vec![0; self.geometry.sector().slice_len()];
        self.record().encode(None, &mut sector);
        sector
    }
}

/// A resource to be formatted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resource {
    /// Lockspace it belongs to.
    pub lockspace: Name,
    /// Its name.
    pub name: Name,
    /// Its sizes.
    pub geometry: Geometry,
    /// Highest host id that may use it, see [`num_hosts`].
    pub num_hosts: u16,
    /// Write a cleared lease instead, which reads as none until it is formatted again: our monotonic second.
    pub cleared_at: Option<u64>,
}

/// The order in which a resource is written on several disks, of which each has so many writes of its own ([`Resource::writes`]): which
/// disk's, and which of them, by number from 0.
///
/// No disk has its lease before every other one has lost what was there. A format that is cut short then leaves either the old lease,
/// missing on some of the disks, or none, or the new one. Disk by disk it would leave both: where the new one has a majority and the old
/// one a higher version, a host that cannot read all disks may go by the old one, and two hosts own the lease.
#[must_use]
pub fn order(writes: &[usize]) -> Vec<(usize, usize)> {
    let most = writes.iter().copied().max().unwrap_or(0);
    // A disk with fewer writes has its lease with the last of them.
    let of =
        |from_end: usize| move |(disk, count): (usize, &usize)| Some((disk, count.checked_sub(from_end)?));
    (1..=most).rev().flat_map(|from_end| writes.iter().enumerate().filter_map(of(from_end))).collect()
}

/// The number of hosts that a caller's number means: 0, and what the sizes cannot hold, mean as many as fit.
#[must_use]
pub fn num_hosts(asked: u32, geometry: Geometry) -> u16 {
    match u16::try_from(asked) {
        Ok(asked) if asked > 0 => asked.min(geometry.max_hosts()),
        _ => geometry.max_hosts(),
    }
}

impl Resource {
    /// The writes, in this order, all at the offset of the resource. `block`: the smallest write that the storage takes, in bytes; a
    /// lease with smaller sectors cannot be used there, and is written at once.
    #[must_use]
    pub fn writes(&self, block: u32) -> Vec<Vec<u8>> {
        let sector = self.geometry.sector();
        let mut area = self.area();
        if sector.bytes() < block {
            return vec![area];
        }
        let Some(first) = area.get(..sector.slice_len()).map(<[u8]>::to_vec) else { return vec![area] };
        if self.cleared_at.is_some() {
            // Whatever becomes of the rest: nobody reads a lease here from now on.
            return vec![first, area];
        }
        let none = vec![0; sector.slice_len()];
        if let Some(place) = area.get_mut(..sector.slice_len()) {
            place.copy_from_slice(&none);
        }
        vec![none, area, first]
    }

    /// The whole area. Ballots, shared holds, the lock value block and the version of whatever was there are gone afterwards.
    #[must_use]
    pub fn area(&self) -> Vec<u8> {
        let mut leader = RawLeader::zeroed();
        leader.magic = if self.cleared_at.is_some() { PAXOS_CLEARED_MAGIC } else { PAXOS_MAGIC }.into();
        leader.version = PAXOS_VERSION.into();
        leader.flags = self.geometry.align().flag().into();
        leader.sector_size = self.geometry.sector().bytes().into();
        leader.num_hosts = u64::from(self.num_hosts).into();
        leader.max_hosts = u64::from(self.geometry.max_hosts()).into();
        leader.space_name = self.lockspace.to_field();
        leader.resource_name = self.name.to_field();
        leader.write_timestamp = self.cleared_at.unwrap_or(0).into();
        leader.seal();

        let mut area = blank(self.geometry);
        let mut sectors = area.chunks_exact_mut(self.geometry.sector().slice_len());
        if let Some(sector) = sectors.next() {
            leader.encode(None, sector);
        }
        if let Some(sector) = sectors.nth(REQUEST_SECTOR - 1) {
            RequestRecord::none().encode(sector);
        }
        area
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let (b512, b4096) = (Some(SectorSize::B512), Some(SectorSize::B4096));
        let (m1, m8) = (Some(AlignSize::M1), Some(AlignSize::M8));
        assert_eq!(choose_sizes(None, None, 512), Ok(Geometry::B512_M1));
        assert_eq!(choose_sizes(None, None, 4096), Ok(Geometry::B4096_M8));
        assert_eq!(choose_sizes(None, None, 2048), Err(SizesError::BlockSize { found: 2048 }));
        assert_eq!(choose_sizes(b512, m1, 4096), Ok(Geometry::B512_M1));
        assert_eq!(choose_sizes(b4096, m8, 512), Ok(Geometry::B4096_M8));
        assert!(matches!(choose_sizes(b512, m8, 512), Err(SizesError::Pair(_))));
        assert_eq!(choose_sizes(b512, None, 512), Err(SizesError::OnlyOne));
        assert_eq!(choose_sizes(None, m1, 512), Err(SizesError::OnlyOne));
    }

    #[test]
    fn every_disk_loses_its_lease_before_any_gets_the_new_one() {
        assert_eq!(order(&[]), []);
        assert_eq!(order(&[3]), [(0, 0), (0, 1), (0, 2)]);
        assert_eq!(order(&[2, 2]), [(0, 0), (1, 0), (0, 1), (1, 1)]);
        assert_eq!(order(&[3, 1]), [(0, 0), (0, 1), (0, 2), (1, 0)]);
    }

    #[test]
    fn a_lease_is_written_at_once_where_no_write_is_as_small_as_its_first_sector() {
        for geometry in [Geometry::B512_M1, Geometry::B4096_M8] {
            let resource = Resource {
                lockspace: Name::new(b"ls").unwrap(),
                name: Name::new(b"res").unwrap(),
                geometry,
                num_hosts: 8,
                cleared_at: None,
            };
            let sector = geometry.sector().slice_len();
            for block in [512, 4096] {
                let writes = resource.writes(block);
                let sizes: Vec<usize> = writes.iter().map(Vec::len).collect();
                let whole = resource.area().len();
                if geometry.sector().bytes() < block {
                    assert_eq!(sizes, [whole]);
                } else {
                    assert_eq!(sizes, [sector, whole, sector]);
                }
            }
        }
    }

    #[test]
    fn numbers_of_hosts() {
        for (asked, expected) in [(0, 2000), (1, 1), (8, 8), (2000, 2000), (2001, 2000), (70_000, 2000)] {
            assert_eq!(num_hosts(asked, Geometry::B512_M1), expected, "{asked}");
        }
    }
}
