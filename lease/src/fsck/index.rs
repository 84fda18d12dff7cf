//! A resource index: header, entries, and the leases they point to (disk-format.md 8).

use super::{Finding, Fix, Problem, Spot};
use crate::name::Name;
use crate::record::{PAXOS_CLEARED_MAGIC, PAXOS_MAGIC, RINDEX_MAGIC, RawLeader, RindexEntry, RindexHeader};
use crate::rindex::{IndexView, LEASE_NAME, RindexError};
use crate::verify::{self, Expect, Purpose};
use core::mem::offset_of;
use std::collections::BTreeMap;

/// What an index's area holds.
#[derive(Clone, Debug)]
pub struct IndexReport {
    /// Its header and entries, unless the header is unusable.
    pub view: Option<IndexView>,
    /// Entries in use.
    pub used: u32,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// Checks an index that was read at byte `base` of its disk. `lease`: the first sector of its internal lease. `leases`: those of its
/// resource areas, by the number of their entry; areas beyond the end of the storage are left out.
#[must_use]
pub fn check_index(
    area: &[u8],
    base: u64,
    lease: &RawLeader,
    leases: &BTreeMap<u32, RawLeader>,
) -> IndexReport {
    let mut findings = Vec::new();
    let view = match IndexView::read(area, base) {
        Ok(view) => view,
        Err(error) => {
            findings.push(header_finding(&error, &RindexHeader::from_sector(area)));
            return IndexReport { view: None, used: 0, findings };
        }
    };
    check_lease(&view, lease, &mut findings);
    // Entries are looked for by the sizes that the header states. Where its lease contradicts it nothing that is found there is to be changed.
    let contradicted = !findings.is_empty();
    let mut names: BTreeMap<Name, u32> = BTreeMap::new();
    for slot in 0..view.count() {
        let entry = view.entry(slot);
        let name = Name::from_field(&entry.name);
        if !entry.is_free() && !name.is_empty() {
            names.entry(name).or_insert(slot);
        }
    }
    let mut used = 0;
    for slot in 0..view.count() {
        used += u32::from(!view.entry(slot).is_free());
        let checked = findings.len();
        check_entry(&view, slot, leases.get(&slot), &names, &mut findings);
        for finding in findings.iter_mut().skip(checked) {
            finding.fix = finding.fix.filter(|_| !contradicted);
            // A name that a repair enters is taken for those after it.
            if let Some(Fix::Enter { name, .. }) = finding.fix {
                names.entry(name).or_insert(slot);
            }
        }
    }
    IndexReport { view: Some(view), used, findings }
}

fn header_finding(error: &RindexError, header: &RindexHeader) -> Finding {
    let (problem, at, found, expected) = match error {
        RindexError::Magic { found } => {
            (Problem::IndexMagic, 0, super::lockspace::magic(*found), super::lockspace::magic(RINDEX_MAGIC))
        }
        RindexError::Version { found } => {
            (Problem::IndexVersion, 4, super::lockspace::version(*found), "version 1".to_owned())
        }
        RindexError::Place { found, expected } => {
            let at = offset_of!(RindexHeader, rx_offset);
            (Problem::IndexPlace, at, format!("offset {found}"), format!("offset {expected}"))
        }
        _ => {
            let found =
                format!("sectors of {} bytes, align flags {:#x}", header.sector_size, header.flags.get());
            let expected = "512/1M, 4096/1M, 4096/2M, 4096/4M or 4096/8M".to_owned();
            (Problem::IndexSizes, offset_of!(RindexHeader, flags), found, expected)
        }
    };
    let spot = Spot { sector: 0, at: at as u64 };
    Finding { problem, spot, what: "the header of the index".to_owned(), found, expected, fix: None }
}

fn check_lease(view: &IndexView, lease: &RawLeader, findings: &mut Vec<Finding>) {
    let spot = |at: usize| Spot { sector: 0, at: at as u64 };
    let expect = Expect { lockspace: None, resource: Name::new(LEASE_NAME).ok(), host_id: None };
    let (problem, at, what, found, expected) = match verify::paxos(lease, &expect, Purpose::Read) {
        Err(error) => {
            let what = format!("the internal lease at offset {}", view.lease_offset());
            (Problem::IndexLease, 0, what, error.to_string(), "a lease named rindex_lease".to_owned())
        }
        Ok(_) if !view.lockspace().matches(&lease.space_name) => {
            let lockspace = Name::from_field(&lease.space_name);
            let at = offset_of!(RindexHeader, lockspace_name);
            let what = "the header of the index".to_owned();
            let found = format!("lockspace {:?}", view.lockspace());
            (Problem::IndexLockspace, at, what, found, format!("{lockspace:?}, as the internal lease says"))
        }
        // Sectors of either size have the lease at one place if areas are of one size.
        Ok(sizes) if sizes != view.geometry() => {
            let at = offset_of!(RindexHeader, sector_size);
            let found = format!("{:?}", view.geometry());
            let expected = format!("{sizes:?}, as the internal lease says");
            (Problem::IndexSizes, at, "the header of the index".to_owned(), found, expected)
        }
        Ok(_) => return,
    };
    findings.push(Finding { problem, spot: spot(at), what, found, expected, fix: None });
}

/// What lies in an entry's area.
enum Area {
    Lease(Name, Name),
    /// A lease that cannot be read; reported where the lease is checked.
    Damaged,
    Cleared,
    Nothing(String),
}

fn area_of(leader: Option<&RawLeader>) -> Area {
    let Some(leader) = leader else { return Area::Nothing("the end of the storage".to_owned()) };
    match leader.magic.get() {
        PAXOS_CLEARED_MAGIC => Area::Cleared,
        PAXOS_MAGIC if leader.computed_checksum() == leader.checksum.get() => {
            Area::Lease(Name::from_field(&leader.space_name), Name::from_field(&leader.resource_name))
        }
        PAXOS_MAGIC => Area::Damaged,
        other => Area::Nothing(super::lockspace::magic(other)),
    }
}

fn check_entry(
    view: &IndexView,
    slot: u32,
    leader: Option<&RawLeader>,
    names: &BTreeMap<Name, u32>,
    findings: &mut Vec<Finding>,
) {
    let entry = view.entry(slot);
    let (name, offset) = (Name::from_field(&entry.name), view.area_offset(slot));
    let at = view.entry_position(slot);
    let sector = at / u64::from(view.geometry().sector().bytes());
    let mut add = |problem, field: usize, found: String, expected: String, fix| {
        let what = format!("entry {slot}, of the lease at offset {offset}");
        let spot = Spot { sector, at: at + field as u64 };
        findings.push(Finding { problem, spot, what, found, expected, fix });
    };
    let name_field = offset_of!(RindexEntry, name);
    let area = area_of(leader);
    // A name is entered only where no other entry has it, else two places would have one name.
    let enter = |lease: Name| {
        let elsewhere = names.get(&lease).is_some_and(|other| *other != slot);
        (!lease.is_empty() && !elsewhere).then_some(Fix::Enter { slot, name: lease })
    };
    if entry.is_free() {
        match area {
            Area::Lease(space, lease) => {
                let fix = enter(lease).filter(|_| space == view.lockspace());
                let found = format!("free, while a lease {lease:?} of lockspace {space:?} is there");
                add(Problem::EntryMissing, 0, found, format!("an entry {lease:?}"), fix);
            }
            Area::Damaged => {
                let found = "free, while a damaged lease is there".to_owned();
                add(Problem::EntryMissing, 0, found, "an entry".to_owned(), None);
            }
            Area::Cleared | Area::Nothing(_) => {}
        }
        return;
    }
    if let Some(first) = names.get(&name).filter(|first| **first != slot) {
        let found = format!("name {name:?}, as entry {first}");
        add(Problem::EntryTwice, name_field, found, "a name of its own".to_owned(), None);
    }
    if name.is_empty() || entry.flags.get() != 0 || entry.unused.get() != 0 {
        let found =
            format!("name {name:?}, flags {:#x}, unused {:#x}", entry.flags.get(), entry.unused.get());
        add(Problem::EntryFields, 8, found, "a name, and zeros".to_owned(), None);
    }
    if entry.res_offset.get() != offset {
        let fix = match &area {
            Area::Lease(space, lease) if *space == view.lockspace() && *lease == name => enter(*lease),
            _ => None,
        };
        add(Problem::EntryOffset, 0, format!("offset {}", entry.res_offset), offset.to_string(), fix);
    }
    match area {
        Area::Lease(space, lease) if space != view.lockspace() => {
            let found = format!("a lease {lease:?} of lockspace {space:?}");
            add(
                Problem::EntryLockspace,
                name_field,
                found,
                format!("lockspace {:?}", view.lockspace()),
                None,
            );
        }
        Area::Lease(_, lease) if lease != name => {
            let found = format!("name {name:?}");
            let fix = enter(lease);
            add(Problem::EntryName, name_field, found, format!("{lease:?}, as the lease says"), fix);
        }
        Area::Lease(..) | Area::Damaged => {}
        Area::Cleared => {
            let found = format!("name {name:?}, while the lease is cleared");
            add(
                Problem::EntryCleared,
                name_field,
                found,
                "a free entry".to_owned(),
                Some(Fix::Remove { slot }),
            );
        }
        Area::Nothing(there) => {
            let found = format!("name {name:?}, while {there} is there");
            add(Problem::EntryDangling, name_field, found, "a lease".to_owned(), None);
        }
    }
}
