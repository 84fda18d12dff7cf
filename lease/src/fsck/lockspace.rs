//! The host id records of a lockspace (disk-format.md 6, 9.1).

use super::{Finding, Fix, Problem, Spot, sector_of};
use crate::geometry::{Geometry, HostId};
use crate::name::Name;
use crate::record::{
    DELTA_MAGIC, FLAG_CAW, PAXOS_CLEARED_MAGIC, PAXOS_MAGIC, REQUEST_MAGIC, RINDEX_MAGIC, RawLeader,
};
use crate::verify::{self, LeaderError, Purpose};
use core::mem::{offset_of, size_of};
use std::collections::BTreeMap;

/// Largest generation that is believed of a record whose checksum is wrong: no host joins four thousand million times.
const GENERATION_BELIEVED_MAX: u64 = u32::MAX as u64;
/// The first major version that knows compare-and-write in lockspaces.
const CAW_MAJOR: u32 = 5;
/// Major version of 3.x, whose records have a generation whenever they have a timestamp.
const DELTA_MAJOR: u32 = 3;

/// A flag of 5.x: a silent holder is not presumed dead.
const FLAG_NO_TIMEOUT: u32 = 0x02;

/// A host id whose record says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    /// The host id, by the record's place.
    pub host: HostId,
    /// Whether its record can be believed.
    pub intact: bool,
    /// `owner_generation`.
    pub generation: u64,
    /// `timestamp`: 0 is free.
    pub timestamp: u64,
    /// The record's io timeout field, in seconds.
    pub io_timeout: u16,
    /// The host's name.
    pub name: Name,
}

/// What a lockspace's area holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockspaceReport {
    /// Its name, by most of its records.
    pub name: Name,
    /// Its sizes.
    pub geometry: Geometry,
    /// Number of records that are as they should be.
    pub intact: u64,
    /// Whether silence proves death in it. With the records of later versions it need not: a host may have to be declared dead
    /// (disk-format.md 11.2), or records be changed by other means than writes (11.4).
    pub by_silence: bool,
    /// Hosts whose record was ever used, or is damaged, ascending.
    pub hosts: Vec<Host>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

impl LockspaceReport {
    /// A host that was ever there.
    #[must_use]
    pub fn host(&self, host: HostId) -> Option<&Host> {
        self.hosts.binary_search_by_key(&host, |h| h.host).ok().and_then(|at| self.hosts.get(at))
    }
}

/// Whether a record is of this lockspace and believable, its fields not yet looked at.
fn is_intact(record: &RawLeader, name: &Name, geometry: Geometry) -> bool {
    verify::delta(record, Some(name), Purpose::Read).is_ok() && verify::sizes(record) == Ok(geometry)
}

/// The name that most of the good records of these sizes have, one of them, and how many there are.
pub(super) fn template(area: &[u8], geometry: Geometry) -> Option<(Name, RawLeader, u64)> {
    // Few lockspaces overlap in one area, so the list is short.
    let mut names: Vec<(Name, RawLeader, u64)> = Vec::new();
    for host in hosts(geometry) {
        let record = RawLeader::from_sector(sector_of(area, geometry, host.delta_sector()));
        let name = Name::from_field(&record.space_name);
        if !is_intact(&record, &name, geometry) {
            continue;
        }
        match names.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, _, count)) => *count += 1,
            None => names.push((name, record, 1)),
        }
    }
    names.into_iter().max_by_key(|(_, _, count)| *count)
}

/// Whether so many good records leave no doubt about what the others should be.
pub(super) fn is_majority(intact: u64, geometry: Geometry) -> bool {
    intact * 2 > u64::from(geometry.max_hosts())
}

pub(super) fn hosts(geometry: Geometry) -> impl Iterator<Item = HostId> {
    (1..=u64::from(geometry.max_hosts())).filter_map(HostId::new)
}

/// Checks every record of a lockspace's area. `claims`: the largest generation of a host id that leases name, as far as they are known.
#[must_use]
pub fn check_lockspace(area: &[u8], geometry: Geometry, claims: &BTreeMap<HostId, u64>) -> LockspaceReport {
    let (name, intact) = template(area, geometry).map(|(name, _, n)| (name, n)).unwrap_or_default();
    let mut report =
        LockspaceReport { name, geometry, intact, by_silence: true, hosts: Vec::new(), findings: Vec::new() };
    for host in hosts(geometry) {
        let sector = sector_of(area, geometry, host.delta_sector());
        if sector.is_empty() {
            // Beyond the end of the storage, which is reported by whoever read the area.
            break;
        }
        check_record(&mut report, host, &RawLeader::from_sector(sector), claims);
    }
    same_names(&mut report);
    tail(&mut report, area);
    report
}

fn check_record(
    report: &mut LockspaceReport,
    host: HostId,
    record: &RawLeader,
    claims: &BTreeMap<HostId, u64>,
) {
    let before = report.findings.len();
    let claimed = claims.get(&host).copied().unwrap_or(0);
    let own = Some(record.owner_generation.get()).filter(|g| *g <= GENERATION_BELIEVED_MAX);
    let free = Fix::FreeHost {
        host,
        generation: claimed.max(own.filter(|_| record.magic.get() == DELTA_MAGIC).unwrap_or(0)),
    };
    // Only where the other records leave no doubt about what belongs here, and nothing of somebody else's is there.
    let fix =
        (is_majority(report.intact, report.geometry) && !is_of_others(record, &report.name)).then_some(free);
    let mut add = |problem, field: usize, found: String, expected: String, fix| {
        let at = report.geometry.offset_of(host.delta_sector()) + field as u64;
        let spot = Spot { sector: host.delta_sector(), at };
        let what = format!("the record of host id {host}");
        report.findings.push(Finding { problem, spot, what, found, expected, fix });
    };
    let intact = match verify::delta(record, Some(&report.name), Purpose::Read) {
        Err(LeaderError::Magic { expected, found }) => {
            add(Problem::HostMagic, 0, magic(found), magic(expected), fix);
            false
        }
        Err(LeaderError::Version { found, .. }) => {
            let fix = fix.filter(|_| record.computed_checksum() != record.checksum.get());
            add(Problem::HostVersion, 4, version(found), "version 3 to 5".to_owned(), fix);
            false
        }
        Err(LeaderError::Lockspace { expected, found })
            if record.computed_checksum() == record.checksum.get() =>
        {
            let (found, expected) = (format!("lockspace {found:?}"), format!("lockspace {expected:?}"));
            add(Problem::HostLockspace, offset_of!(RawLeader, space_name), found, expected, None);
            false
        }
        Err(_) => {
            let (expected, found) = (record.computed_checksum(), record.checksum.get());
            let (found, expected) =
                (format!("checksum {found:#010x}"), format!("{expected:#010x} for these bytes"));
            add(Problem::HostChecksum, offset_of!(RawLeader, checksum), found, expected, fix);
            false
        }
        Ok(()) => {
            fields(record, host, report.geometry, fix, &mut add);
            report.by_silence &= goes_by_silence(record);
            true
        }
    };
    let intact = intact && report.findings.len() == before;
    if !intact || record.owner_id.get() != 0 {
        report.hosts.push(Host {
            host,
            intact,
            generation: record.owner_generation.get(),
            timestamp: record.timestamp.get(),
            io_timeout: record.io_timeout.get(),
            name: Name::from_field(&record.resource_name),
        });
    }
}

/// Whether a record is of a version, and without the flags, in which a silent host may not be presumed dead.
fn goes_by_silence(record: &RawLeader) -> bool {
    record.version.get() >> 16 == DELTA_MAJOR && record.flags.get() & (FLAG_NO_TIMEOUT | FLAG_CAW) == 0
}

/// The fields of a record whose checksum is right.
fn fields(
    record: &RawLeader,
    host: HostId,
    geometry: Geometry,
    fix: Option<Fix>,
    add: &mut impl FnMut(Problem, usize, String, String, Option<Fix>),
) {
    let (owner, generation) = (record.owner_id.get(), record.owner_generation.get());
    let (timestamp, major) = (record.timestamp.get(), record.version.get() >> 16);
    if verify::sizes(record) != Ok(geometry) {
        let found = format!("sectors of {} bytes, flags {:#x}", record.sector_size, record.flags.get());
        add(Problem::HostSizes, offset_of!(RawLeader, sector_size), found, format!("{geometry:?}"), fix);
    }
    if record.flags.get() & FLAG_CAW != 0 && major < CAW_MAJOR {
        let (found, expected) =
            (format!("flags {:#x}", record.flags.get()), format!("no flag {FLAG_CAW:#x}"));
        add(Problem::HostCaw, offset_of!(RawLeader, flags), found, expected, None);
    }
    let field = offset_of!(RawLeader, owner_id);
    if owner != 0 && owner != host.get() {
        add(Problem::HostOwner, field, format!("host id {owner}"), format!("host id {host}, or none"), fix);
    } else if timestamp != 0 && (owner == 0 || (generation == 0 && major == DELTA_MAJOR)) {
        let found = format!("held since {timestamp} by host id {owner}, generation {generation}");
        add(Problem::HostState, field, found, "an owner and a generation, or no timestamp".to_owned(), fix);
    }
    if generation == u64::MAX {
        let field = offset_of!(RawLeader, owner_generation);
        let (found, expected) = (format!("generation {generation}"), "one that has a next one".to_owned());
        add(Problem::HostGeneration, field, found, expected, fix);
    }
    let io_timeout = record.io_timeout.get();
    if timestamp != 0 && io_timeout > 255 {
        let field = offset_of!(RawLeader, io_timeout);
        add(Problem::HostIoTimeout, field, format!("{io_timeout} s"), "1 to 255 s".to_owned(), None);
    }
}

/// Whether a valid record of another kind, or of another lockspace, lies there: that is somebody's, and no garbage.
fn is_of_others(record: &RawLeader, name: &Name) -> bool {
    let sealed = record.computed_checksum() == record.checksum.get();
    match record.magic.get() {
        PAXOS_MAGIC | PAXOS_CLEARED_MAGIC => sealed,
        REQUEST_MAGIC | RINDEX_MAGIC => true,
        DELTA_MAGIC => sealed && !name.matches(&record.space_name),
        _ => false,
    }
}

fn same_names(report: &mut LockspaceReport) {
    let mut seen: BTreeMap<Name, HostId> = BTreeMap::new();
    for held in report.hosts.iter().filter(|h| h.intact && h.timestamp != 0 && !h.name.is_empty()) {
        let Some(first) = seen.get(&held.name) else {
            seen.insert(held.name, held.host);
            continue;
        };
        let sector = held.host.delta_sector();
        let field = offset_of!(RawLeader, resource_name) as u64;
        report.findings.push(Finding {
            problem: Problem::HostNameTwice,
            spot: Spot { sector, at: report.geometry.offset_of(sector) + field },
            what: format!("the record of host id {}", held.host),
            found: format!("host name {:?}, as host id {first}", held.name),
            expected: "a name of its own".to_owned(),
            fix: None,
        });
    }
}

fn tail(report: &mut LockspaceReport, area: &[u8]) {
    let end = report.geometry.offset_of(u64::from(report.geometry.max_hosts()));
    let from = usize::try_from(end).unwrap_or(usize::MAX);
    if let Some(at) = area.get(from..).unwrap_or_default().iter().position(|byte| *byte != 0) {
        let at = end + at as u64;
        report.findings.push(Finding {
            problem: Problem::LockspaceTail,
            spot: Spot { sector: at / u64::from(report.geometry.sector().bytes()), at },
            what: "the rest of the area".to_owned(),
            found: format!("byte {at} is not zero"),
            expected: "zeros".to_owned(),
            fix: None,
        });
    }
}

pub(super) fn magic(number: u32) -> String {
    match number {
        0 => "zeros".to_owned(),
        DELTA_MAGIC => "a host id record".to_owned(),
        PAXOS_MAGIC => "a resource's lease".to_owned(),
        PAXOS_CLEARED_MAGIC => "a cleared lease".to_owned(),
        REQUEST_MAGIC => "a request record".to_owned(),
        RINDEX_MAGIC => "a resource index".to_owned(),
        _ => format!("magic {number:#010x}"),
    }
}

pub(super) fn version(number: u32) -> String {
    format!("version {}.{}", number >> 16, number & 0xffff)
}

/// The record of a host id that nobody holds, written like one of its neighbours.
pub(super) fn free_record(template: &RawLeader, host: HostId, generation: u64) -> RawLeader {
    let mut record = *template;
    record.owner_id = if generation == 0 { 0 } else { host.get() }.into();
    record.owner_generation = generation.into();
    record.resource_name = [0; crate::limits::NAME_BYTES];
    record.timestamp = 0.into();
    record.unused1 = 0.into();
    record.write_id = 0.into();
    record.write_generation = 0.into();
    record.write_timestamp = 0.into();
    record.seal();
    record
}

const _: () = assert!(size_of::<RawLeader>() <= 512);
