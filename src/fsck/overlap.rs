//! Whether an area is what it seems: no part of another one, and none in it.
//!
//! Where areas overlap, or an offset is wrong, records of somebody else look like damage, and their repair would destroy leases that are in use:
//! the life check watches the hosts of the lockspace that they seem to belong to, not of their own. So nothing is repaired in such an area.

use sanlock_lease::fsck::Kind;
use sanlock_lease::geometry::{Geometry, HostId};
use sanlock_lease::name::Name;
use sanlock_lease::record::{
    DELTA_MAGIC, PAXOS_CLEARED_MAGIC, PAXOS_MAGIC, REQUEST_MAGIC, RINDEX_MAGIC, RINDEX_VERSION, RawLeader,
    RequestRecord,
};
use sanlock_lease::verify;

/// Records begin at multiples of the smaller sector size, whatever the sizes of their areas.
const STEP: usize = 512;

/// What stands before an area.
#[derive(Debug, Default)]
pub(super) struct Before {
    /// The sector in front of it.
    pub(super) sector: Option<Vec<u8>>,
    /// Where an area begins that reaches into it.
    pub(super) reaches_in: Option<u64>,
}

/// What is wrong with an area at this offset, in words.
pub(super) fn doubt(
    bytes: &[u8],
    before: &Before,
    kind: Kind,
    geometry: Geometry,
    offset: u64,
    lockspace: Option<Name>,
) -> Option<String> {
    if let Some(start) = before.reaches_in {
        return Some(format!(
            "the area at {start} reaches into it, so two areas overlap or this offset is wrong"
        ));
    }
    let before = before.sector.as_deref();
    if kind == Kind::Lockspace && before.is_some_and(|before| is_record_of(before, lockspace)) {
        return Some(
            "the sector before it is a record of the same lockspace, so it does not begin here".to_owned(),
        );
    }
    if kind == Kind::Lockspace && is_shifted(bytes, geometry) {
        return Some(
            "its records name other host ids than their places, so it does not begin here".to_owned(),
        );
    }
    let foreign = |at: &usize| is_foreign(&bytes[*at..], *at, kind, geometry, lockspace);
    let mut found = (STEP..bytes.len().saturating_sub(STEP - 1)).step_by(STEP).filter(foreign);
    let at = found.next()?;
    // One record of another lockspace alone may be a write that went astray; it is left as it is.
    let astray = |at: usize| {
        kind == Kind::Lockspace && RawLeader::from_sector(&bytes[at..]).magic.get() == DELTA_MAGIC
    };
    if astray(at) && found.next().is_none() {
        return None;
    }
    Some(format!(
        "byte {at} of it is the beginning of a record of another area (offset {}), so two areas overlap or this offset is wrong",
        offset.saturating_add(at as u64)
    ))
}

fn is_sealed(record: &RawLeader) -> bool {
    record.computed_checksum() == record.checksum.get()
}

/// Whether this is a good host id record of this lockspace.
pub(super) fn is_record_of(sector: &[u8], lockspace: Option<Name>) -> bool {
    let record = RawLeader::from_sector(sector);
    verify::delta(&record, lockspace.as_ref(), verify::Purpose::Read).is_ok()
}

/// Whether a record that cannot lie at this byte of the area does. Ballot numbers and values may look like a magic number, but not like what
/// stands behind one.
fn is_foreign(sector: &[u8], at: usize, kind: Kind, geometry: Geometry, lockspace: Option<Name>) -> bool {
    let record = RawLeader::from_sector(sector);
    let size = geometry.sector().slice_len();
    match record.magic.get() {
        PAXOS_MAGIC | PAXOS_CLEARED_MAGIC => is_sealed(&record),
        DELTA_MAGIC => {
            let own = kind == Kind::Lockspace && at % size == 0;
            is_sealed(&record) && !(own && lockspace.is_some_and(|name| name.matches(&record.space_name)))
        }
        REQUEST_MAGIC => {
            let own = kind == Kind::Resource && at == size;
            !own && RequestRecord::from_sector(sector).check().is_ok()
        }
        // An index header has version and sector size where a leader has them.
        RINDEX_MAGIC => {
            record.version.get() >> 16 == RINDEX_VERSION >> 16
                && [512, 4096].contains(&record.sector_size.get())
        }
        _ => false,
    }
}

/// Whether more of a lockspace's records in use name another host id than that of their place than name their own. One alone may be a write that
/// went astray.
fn is_shifted(bytes: &[u8], geometry: Geometry) -> bool {
    let size = geometry.sector().slice_len();
    let (mut right, mut wrong) = (0, 0);
    for (index, sector) in bytes.chunks_exact(size).enumerate() {
        let record = RawLeader::from_sector(sector);
        let owner = record.owner_id.get();
        if record.magic.get() != DELTA_MAGIC || !is_sealed(&record) || owner == 0 {
            continue;
        }
        let place = HostId::from_index(index);
        *(if place.is_some_and(|host| host.get() == owner) { &mut right } else { &mut wrong }) += 1;
    }
    wrong >= 2 && wrong > right
}
