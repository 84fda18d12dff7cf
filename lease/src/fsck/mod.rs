//! What is wrong with lockspaces, leases and indexes as they lie on a disk, and what of it can be mended.
//!
//! All of this is about bytes that somebody else has read: an area goes in, a list of [`Finding`]s comes out. The rules themselves
//! are those of [`crate::verify`] and [`crate::rindex`]; here they are asked about *every* record, and go on after the first failure.
//!
//! # What is mended, and why that is safe
//!
//! A mend ([`Fix`]) is made only of things that stay true whatever the damaged bytes said, under a condition ([`Gone`]) that
//! [`Silence`] establishes by watching the lockspace: nobody who may own or be acquiring what is rewritten is alive.
//!
//! * *A host's record* that cannot be read is written as free, with a generation that no lease names a later one of. It is
//!   written by its own host only; that host cannot have renewed while the sector stood still for the dead time, so it is dead
//!   (lease-algorithms.md 3), and free is what it is. A host that joins in between, as some damage allows, finds its record overwritten,
//!   at the latest with its next renewal, and gives up. Should the generation be too small, a lease somewhere else names a later generation of this host id: it counts as owned for as long as the host id is in
//!   use, which keeps others out and lets nobody in.
//! * *In a resource* anything is written only while no host is in the lockspace. Then nobody owns the lease, nobody is acquiring
//!   it, and no write of anybody is under way. A ballot record may be forgotten then: the value it may have held names a host that is gone,
//!   and another value for the same version is chosen by a ballot that no living host has a part in. A leader keeps its version or gets a later
//!   one, never an earlier one.
//! * *An index entry* is made from the lease in its area, or taken away when that lease was cleared; a lease that exists always gets
//!   an entry, so that its place is not given to another resource.
//!
//! What would need more than that is not mended: a damaged leader says neither its version nor its names for sure, and an index without
//! a header not how many entries it has.

mod finding;
mod index;
mod lockspace;
mod mend;
mod problem;
mod resource;
mod silence;
#[cfg(test)]
mod tests;

pub use finding::{Finding, Fix, Gone, Spot};
pub use index::{IndexReport, check_index};
pub use lockspace::{Host, LockspaceReport, check_lockspace};
pub use mend::{Mended, mend};
pub use problem::{Level, Problem};
pub use resource::{Known, ResourceReport, check_against, check_disks, check_resource, is_behind};
pub use silence::{Silence, Verdict};

use crate::geometry::{AlignSize, Geometry, SectorSize};
use crate::record::{
    DELTA_MAGIC, PAXOS_CLEARED_MAGIC, PAXOS_MAGIC, REQUEST_MAGIC, RINDEX_MAGIC, RawLeader, RequestRecord,
    RindexHeader,
};
use crate::verify;

/// Bytes of an area's start that [`identify`] wants to see: two sectors of the larger size.
pub const HEAD_BYTES: usize = 8192;

/// What begins at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Host id records.
    Lockspace,
    /// A resource's lease, a cleared one too.
    Resource,
    /// A resource index: its first area.
    Index,
}

/// An area, as its first two sectors show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Found {
    /// What it is.
    pub kind: Kind,
    /// Its sizes: stated by the first record that states possible ones.
    pub geometry: Geometry,
    /// Whether the first sector is what made it known. If not, the second one did, or one further on.
    pub by_first: bool,
}

/// What begins here; `None` for anything that is not sanlock's, or not any more.
#[must_use]
pub fn identify(head: &[u8]) -> Option<Found> {
    let first = RawLeader::from_sector(head);
    let found = |kind, geometry| Some(Found { kind, geometry, by_first: true });
    match first.magic.get() {
        DELTA_MAGIC => found(Kind::Lockspace, lockspace_sizes(head).unwrap_or(Geometry::B512_M1)),
        PAXOS_MAGIC | PAXOS_CLEARED_MAGIC => {
            let guess = second_resource(head).unwrap_or(Geometry::B512_M1);
            found(Kind::Resource, verify::sizes(&first).unwrap_or(guess))
        }
        RINDEX_MAGIC => found(Kind::Index, index_sizes(head).unwrap_or(Geometry::B512_M1)),
        _ => {
            let second = lockspace_sizes(head).map(|g| (Kind::Lockspace, g));
            let (kind, geometry) = second.or_else(|| second_resource(head).map(|g| (Kind::Resource, g)))?;
            Some(Found { kind, geometry, by_first: false })
        }
    }
}

/// The sizes of a lockspace whose first records say nothing, by others, from a byte of its area on that is a multiple of the larger sector size: those
/// of the first one that is right. That the area begins where it is thought to does not follow.
#[must_use]
pub fn identify_within(records: &[u8]) -> Option<Geometry> {
    records.chunks(SectorSize::B512.slice_len()).find_map(|sector| {
        let record = RawLeader::from_sector(sector);
        let right = record.magic.get() == DELTA_MAGIC && record.computed_checksum() == record.checksum.get();
        right.then(|| verify::sizes(&record).ok()).flatten()
    })
}

/// The sizes on which the first two records of a lockspace agree, or those of the one that states possible ones. A first record
/// that states other sizes than the second, at the second's place, is the odd one.
fn lockspace_sizes(head: &[u8]) -> Option<Geometry> {
    let at = |offset: usize| {
        let record = RawLeader::from_sector(head.get(offset..)?);
        let geometry = (record.magic.get() == DELTA_MAGIC).then(|| verify::sizes(&record).ok()).flatten()?;
        Some((geometry, record.computed_checksum() == record.checksum.get()))
    };
    let second = |sector: SectorSize| at(sector.slice_len()).filter(|(g, _)| g.sector() == sector);
    // At byte 4096 of 512-byte sectors lies the record of host id 9, which says 512.
    let (small, large) = (second(SectorSize::B512), second(SectorSize::B4096));
    let sure = |found: Option<(Geometry, bool)>| found.filter(|(_, valid)| *valid);
    sure(small).or(sure(large)).or_else(|| sure(at(0))).or(at(0)).or(small).or(large).map(|(g, _)| g)
}

/// The sizes of a resource whose leader says nothing, from the place of its request record. Its align size is not known.
fn second_resource(head: &[u8]) -> Option<Geometry> {
    [SectorSize::B512, SectorSize::B4096].into_iter().find_map(|sector| {
        let request = RequestRecord::from_sector(head.get(sector.slice_len()..)?);
        (request.magic.get() == REQUEST_MAGIC).then(|| Geometry::default_for(sector))
    })
}

/// The sizes that an index header states (disk-format.md 2.5).
fn index_sizes(head: &[u8]) -> Option<Geometry> {
    let header = RindexHeader::from_sector(head);
    let sector = SectorSize::from_bytes(header.sector_size.get())?;
    let align = AlignSize::from_flags((header.flags.get() & 0xf) << 4)?;
    Geometry::new(sector, align).ok()
}

/// A sector of an area; what lies beyond the bytes at hand is empty.
fn sector_of(area: &[u8], geometry: Geometry, sector: u64) -> &[u8] {
    let size = geometry.sector().slice_len();
    let from = usize::try_from(geometry.offset_of(sector)).unwrap_or(usize::MAX);
    area.get(from..from.saturating_add(size)).unwrap_or_default()
}
