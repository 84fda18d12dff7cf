//! A resource's lease: leader, request, ballot records and shared holds; against its lockspace, and disk against disk
//! (disk-format.md 7, 9.3, 9.4).

use super::lockspace::{magic, version};
use super::{Finding, Fix, LockspaceReport, Problem, Spot, sector_of};
use crate::geometry::{Geometry, HostId};
use crate::name::Name;
use crate::record::{
    Dblock, FLAG_CAW, HostBlock, MODE_SHARED, ModeBlock, REQUEST_MAGIC, REQUEST_VERSION, RawLeader,
    RequestRecord,
};
use crate::verify::{self, Expect, LeaderError, Purpose};
use core::mem::offset_of;

/// Sector of the request record.
pub(super) const REQUEST_SECTOR: u64 = 1;
/// Byte of the mode block in a host's sector.
const MODE_AT: u64 = 128;
/// The largest `force_mode` there is.
const FORCE_MODE_MAX: u32 = 2;
/// How far a leader is brought forward at most: more than that is no version anybody counted up to.
const FORWARD_MAX: u64 = 1 << 32;

/// The parts of a leader that others refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Lockspace it belongs to.
    pub lockspace: Name,
    /// Its name.
    pub name: Name,
    /// Lease version.
    pub lver: u64,
    /// Host id and generation of the owner, while it is owned.
    pub owner: Option<(u64, u64)>,
    /// The record.
    pub leader: RawLeader,
}

/// What a resource's area holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceReport {
    /// Its sizes.
    pub geometry: Geometry,
    /// What the leader says, unless it cannot be believed.
    pub known: Option<Known>,
    /// Whether it was cleared: then only its names mean anything.
    pub cleared: bool,
    /// Hosts that hold it shared, with their generations, ascending.
    pub shared: Vec<(HostId, u64)>,
    /// Every host id and generation that owns it, shares it, or was proposed as its owner.
    pub claims: Vec<(HostId, u64)>,
    /// The largest version of any ballot record whose checksum is right.
    pub furthest: u64,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

impl ResourceReport {
    fn add(
        &mut self,
        problem: Problem,
        spot: Spot,
        what: String,
        found: String,
        expected: String,
        fix: Option<Fix>,
    ) {
        self.findings.push(Finding { problem, spot, what, found, expected, fix });
    }
}

/// Checks every record of a resource's area.
#[must_use]
pub fn check_resource(area: &[u8], geometry: Geometry) -> ResourceReport {
    let mut report = ResourceReport {
        geometry,
        known: None,
        cleared: false,
        shared: Vec::new(),
        claims: Vec::new(),
        furthest: 0,
        findings: Vec::new(),
    };
    check_leader(&mut report, &RawLeader::from_sector(sector_of(area, geometry, 0)));
    if report.cleared {
        return report;
    }
    check_request(&mut report, &RequestRecord::from_sector(sector_of(area, geometry, REQUEST_SECTOR)));
    let mut newest: Option<(HostId, u64)> = None;
    for host in super::lockspace::hosts(geometry) {
        let sector = sector_of(area, geometry, host.block_sector());
        if sector.iter().all(|byte| *byte == 0) {
            continue;
        }
        let block = HostBlock::from_sector(sector);
        check_ballot(&mut report, host, &block.dblock);
        check_mode(&mut report, host, &block.mode);
        check_hidden(&mut report, host, &block);
        let lver = block.dblock.lver.get();
        if block.dblock.is_valid() && newest.is_none_or(|(_, most)| lver > most) {
            newest = Some((host, lver));
        }
    }
    report.furthest = newest.map_or(0, |(_, lver)| lver);
    check_ahead(&mut report, newest);
    report
}

fn check_leader(report: &mut ResourceReport, record: &RawLeader) {
    let spot = |field: usize| Spot { sector: 0, at: field as u64 };
    let what = || "the leader record".to_owned();
    let expect = Expect { lockspace: None, resource: None, host_id: None };
    // What is mended on this copy lets the checks behind it have their turn.
    let mut copy = *record;
    loop {
        let (problem, field, found, expected, fix) = match verify::paxos(&copy, &expect, Purpose::Read) {
            Ok(_) => break,
            Err(LeaderError::Cleared) => {
                report.cleared = true;
                let found = magic(record.magic.get());
                report.add(Problem::LeaderCleared, spot(0), what(), found, "a lease".to_owned(), None);
                return;
            }
            Err(LeaderError::NumHosts { found, max, .. }) => {
                copy.num_hosts = max.into();
                copy.seal();
                let field = offset_of!(RawLeader, num_hosts);
                report.add(
                    Problem::LeaderNumHosts,
                    spot(field),
                    what(),
                    format!("{found} hosts"),
                    format!("1 to {max}"),
                    Some(Fix::LeaderNumHosts),
                );
                continue;
            }
            Err(LeaderError::Owner { found, max }) => {
                copy.owner_id = 0.into();
                copy.timestamp = 0.into();
                copy.seal();
                let field = offset_of!(RawLeader, owner_id);
                let found = format!("owner host id {found}, timestamp {}", record.timestamp);
                let expected = format!("an owner from 1 to {max}, or none");
                report.add(Problem::LeaderOwner, spot(field), what(), found, expected, Some(Fix::LeaderFree));
                continue;
            }
            Err(LeaderError::Magic { expected, found }) => {
                (Problem::LeaderMagic, 0, magic(found), magic(expected), None::<Fix>)
            }
            Err(LeaderError::Version { found, .. }) => {
                (Problem::LeaderVersion, 4, version(found), "version 6 or 7".to_owned(), None)
            }
            Err(LeaderError::SectorSize { .. } | LeaderError::Sizes(_)) => {
                let found =
                    format!("sectors of {} bytes, flags {:#x}", record.sector_size, record.flags.get());
                let expected = "512/1M, 4096/1M, 4096/2M, 4096/4M or 4096/8M".to_owned();
                (Problem::LeaderSizes, offset_of!(RawLeader, sector_size), found, expected, None)
            }
            Err(_) => {
                let found = format!("checksum {:#010x}", record.checksum.get());
                let expected = format!("{:#010x} for these bytes", record.computed_checksum());
                (Problem::LeaderChecksum, offset_of!(RawLeader, checksum), found, expected, None)
            }
        };
        report.add(problem, spot(field), what(), found, expected, fix);
        return;
    }
    if copy.num_hosts.get() == 0 {
        let (field, max) = (offset_of!(RawLeader, num_hosts), report.geometry.max_hosts());
        let (found, expected) = ("0 hosts".to_owned(), format!("1 to {max}"));
        report.add(Problem::LeaderNumHosts, spot(field), what(), found, expected, Some(Fix::LeaderNumHosts));
    }
    let stride = u64::from(report.geometry.max_hosts());
    if copy.max_hosts.get() != stride {
        let field = offset_of!(RawLeader, max_hosts);
        let (found, expected) = (format!("a stride of {}", copy.max_hosts), stride.to_string());
        report.add(Problem::LeaderMaxHosts, spot(field), what(), found, expected, Some(Fix::LeaderMaxHosts));
    }
    if copy.flags.get() & FLAG_CAW != 0 {
        let found = format!("flags {:#x}", copy.flags.get());
        report.add(Problem::LeaderCaw, spot(8), what(), found, format!("no flag {FLAG_CAW:#x}"), None);
    }
    if copy.lver.get() == u64::MAX {
        let field = offset_of!(RawLeader, lver);
        let (found, expected) = (format!("version {}", copy.lver), "one that has a next one".to_owned());
        report.add(Problem::LeaderLast, spot(field), what(), found, expected, None);
    }
    let owner = (copy.owner_id.get(), copy.owner_generation.get());
    report.claims.extend(HostId::new(owner.0).map(|host| (host, owner.1)));
    report.known = Some(Known {
        lockspace: Name::from_field(&copy.space_name),
        name: Name::from_field(&copy.resource_name),
        lver: copy.lver.get(),
        owner: (copy.timestamp.get() != 0).then_some(owner),
        leader: copy,
    });
}

fn check_request(report: &mut ResourceReport, request: &RequestRecord) {
    let at = report.geometry.offset_of(REQUEST_SECTOR);
    let (problem, field, found, expected) = if request.magic.get() != REQUEST_MAGIC {
        (Problem::RequestMagic, 0, magic(request.magic.get()), magic(REQUEST_MAGIC))
    } else if request.version.get() >> 16 != REQUEST_VERSION >> 16 {
        (Problem::RequestVersion, 4, version(request.version.get()), "version 1".to_owned())
    } else if request.force_mode.get() > FORCE_MODE_MAX {
        let field = offset_of!(RequestRecord, force_mode) as u64;
        (Problem::RequestMode, field, format!("mode {}", request.force_mode), "0, 1 or 2".to_owned())
    } else {
        return;
    };
    let spot = Spot { sector: REQUEST_SECTOR, at: at + field };
    report.add(problem, spot, "the request record".to_owned(), found, expected, Some(Fix::Request));
}

/// A ballot record by itself (disk-format.md 7.4).
fn check_ballot(report: &mut ResourceReport, host: HostId, block: &Dblock) {
    let stride = u64::from(report.geometry.max_hosts());
    let sector = host.block_sector();
    let spot = |field: usize| Spot { sector, at: report.geometry.offset_of(sector) + field as u64 };
    let what = format!("the ballot record of host id {host}");
    let fix = Some(Fix::Ballot(host));
    if !block.is_valid() {
        let found = format!("checksum {:#010x}", block.checksum.get());
        let expected = format!("{:#010x} for these bytes", block.computed_checksum());
        let spot = spot(offset_of!(Dblock, checksum));
        report.add(Problem::BallotChecksum, spot, what, found, expected, fix);
        return;
    }
    let (mbal, bal, inp) = (block.mbal.get(), block.bal.get(), block.inp.get());
    // Refusals and clean-ups of the original leave a record of zeros with a checksum.
    if mbal == 0 && bal == 0 && inp == 0 && block.lver.get() == 0 {
        return;
    }
    let is_own = |ballot: u64| ballot % stride == host.get() % stride;
    let (problem, field, found, expected) = if !is_own(mbal) {
        let expected = format!("a number that leaves {} when divided by {stride}", host.get() % stride);
        (Problem::BallotNumber, 0, format!("ballot {mbal}"), expected)
    } else if bal > mbal || (bal != 0 && !is_own(bal)) {
        let expected = format!("a ballot of its own up to {mbal}");
        (Problem::BallotOrder, offset_of!(Dblock, bal), format!("a value accepted in ballot {bal}"), expected)
    } else if (bal == 0) != (inp == 0) || inp > stride {
        let found = format!("host id {inp} proposed in ballot {bal}");
        let expected = format!("a host id from 1 to {stride} and a ballot, or neither");
        (Problem::BallotValue, offset_of!(Dblock, inp), found, expected)
    } else {
        report.claims.extend(HostId::new(inp).map(|host| (host, block.inp2.get())));
        return;
    };
    report.add(problem, spot(field), what, found, expected, fix);
}

/// A shared hold by itself (disk-format.md 7.5).
fn check_mode(report: &mut ResourceReport, host: HostId, mode: &ModeBlock) {
    let sector = host.block_sector();
    let at = report.geometry.offset_of(sector) + MODE_AT;
    let (flags, generation) = (mode.flags.get(), mode.generation.get());
    let mut add = |problem, field, found: String, expected: &str| {
        let (spot, fix) = (Spot { sector, at: at + field }, Some(Fix::Mode(host)));
        let what = format!("the shared hold of host id {host}");
        report.add(problem, spot, what, found, expected.to_owned(), fix);
    };
    if flags & !MODE_SHARED != 0 {
        add(Problem::ModeFlags, 0, format!("flags {flags:#x}"), "0 or 1");
    } else if (flags != 0) != (generation != 0) {
        let found = format!("flags {flags:#x} with generation {generation}");
        add(Problem::ModeHold, 8, found, "flag 1 and a generation, or neither");
    } else if flags != 0 {
        report.shared.push((host, generation));
        report.claims.push((host, generation));
    }
}

/// A host that takes part beyond the leader's number of hosts.
fn check_hidden(report: &mut ResourceReport, host: HostId, block: &HostBlock) {
    let Some(known) = report.known else { return };
    let current = block.dblock.lver.get() >= known.lver.max(1) && !block.dblock.is_released();
    if host.get() <= known.leader.num_hosts.get() || !(current || block.mode.is_shared()) {
        return;
    }
    let sector = host.block_sector();
    let spot = Spot { sector, at: report.geometry.offset_of(sector) };
    let found = format!("version {} of the lease, shared: {}", block.dblock.lver, block.mode.is_shared());
    let expected = format!("nothing current beyond host id {}, the leader's last", known.leader.num_hosts);
    report.add(Problem::BallotHidden, spot, format!("the sector of host id {host}"), found, expected, None);
}

/// A ballot record that is further on than the leader's next version.
fn check_ahead(report: &mut ResourceReport, newest: Option<(HostId, u64)>) {
    let (Some(known), Some((host, lver))) = (report.known, newest) else { return };
    if lver <= known.lver.saturating_add(1) {
        return;
    }
    let sector = host.block_sector();
    let at = report.geometry.offset_of(sector) + offset_of!(Dblock, lver) as u64;
    // To a version that no owner had: on another disk, which is not among these bytes, the largest one may have an owner.
    let forward =
        lver.checked_add(1).filter(|forward| *forward < u64::MAX && forward - known.lver <= FORWARD_MAX);
    let fix = forward.map(|lver| Fix::LeaderForward { lver });
    report.add(
        Problem::BallotAhead,
        Spot { sector, at },
        format!("the ballot record of host id {host}"),
        format!("version {lver}, while the leader has {}", known.lver),
        format!("at most {}", known.lver.saturating_add(1)),
        fix,
    );
}

/// A resource against the lockspace it belongs to.
#[must_use]
pub fn check_against(report: &ResourceReport, lockspace: &LockspaceReport) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(known) = report.known.filter(|_| !report.cleared) else { return findings };
    if report.geometry != lockspace.geometry {
        findings.push(Finding {
            problem: Problem::SizesDiffer,
            spot: Spot { sector: 0, at: offset_of!(RawLeader, sector_size) as u64 },
            what: "the leader record".to_owned(),
            found: format!("{:?}", report.geometry),
            expected: format!("{:?}, as the lockspace", lockspace.geometry),
            fix: None,
        });
    }
    // What the host id's record cannot have been: a later generation than the last one it was joined with.
    let unknown = |host: u64, generation: u64| match HostId::new(host) {
        Some(id) if host <= u64::from(lockspace.geometry.max_hosts()) => match lockspace.host(id) {
            Some(seen) if !seen.intact => None,
            Some(seen) => (generation > seen.generation)
                .then(|| format!("at most {}, with which the host id was last joined", seen.generation)),
            None => Some("none: the host id was never joined".to_owned()),
        },
        _ => Some(format!("a host id up to {}", lockspace.geometry.max_hosts())),
    };
    if let Some((host, generation)) = known.owner {
        if let Some(expected) = unknown(host, generation) {
            findings.push(Finding {
                problem: Problem::OwnerUnknown,
                spot: Spot { sector: 0, at: offset_of!(RawLeader, owner_generation) as u64 },
                what: "the leader record".to_owned(),
                found: format!("owner host id {host}, generation {generation}"),
                expected,
                fix: None,
            });
        }
    }
    for (host, generation) in &report.shared {
        if let Some(expected) = unknown(host.get(), *generation) {
            let sector = host.block_sector();
            findings.push(Finding {
                problem: Problem::SharedUnknown,
                spot: Spot { sector, at: report.geometry.offset_of(sector) + MODE_AT + 8 },
                what: format!("the shared hold of host id {host}"),
                found: format!("generation {generation}"),
                expected,
                fix: None,
            });
        }
    }
    findings
}

/// Whether what a disk's ballot records say goes with the newest leader on any disk of its resource: [`Problem::BallotAhead`] says of one disk
/// alone that its leader cannot be right, and of several one that is behind is as after a failure ([`Problem::DisksBehind`]).
#[must_use]
pub fn is_behind(report: &ResourceReport, newest: u64) -> bool {
    report.furthest <= newest.saturating_add(1)
}

/// The disks of one resource against each other (disk-format.md 7.11): for each finding, which disk.
#[must_use]
pub fn check_disks(disks: &[&ResourceReport]) -> Vec<(usize, Finding)> {
    let mut findings = Vec::new();
    let mut known: Vec<(usize, Known, Geometry)> = Vec::new();
    for (number, disk) in disks.iter().enumerate() {
        known.extend(disk.known.map(|k| (number, k, disk.geometry)));
    }
    // The first of those with the highest version is what the others are measured by.
    let Some((best, first, geometry)) = known.iter().rev().max_by_key(|(_, k, _)| k.lver).copied() else {
        return findings;
    };
    for (number, other, sizes) in known.into_iter().filter(|(number, ..)| *number != best) {
        let mut add = |problem, field: usize, found: String, expected: String| {
            let spot = Spot { sector: 0, at: field as u64 };
            let what = "the leader record".to_owned();
            findings.push((number, Finding { problem, spot, what, found, expected, fix: None }));
        };
        let owner = |k: &Known| (k.leader.owner_id.get(), k.leader.owner_generation.get());
        let named =
            |k: &Known| format!("host id {}, generation {}, for version {}", owner(k).0, owner(k).1, k.lver);
        if sizes != geometry || other.lockspace != first.lockspace {
            let show = |g: Geometry, k: &Known| format!("{g:?}, lockspace {:?}", k.lockspace);
            add(Problem::DisksDiffer, 0, show(sizes, &other), show(geometry, &first));
        } else if other.lver == first.lver && owner(&other) != owner(&first) {
            add(Problem::DisksContradict, offset_of!(RawLeader, owner_id), named(&other), named(&first));
        } else if other.lver < first.lver || other.owner != first.owner {
            add(Problem::DisksBehind, offset_of!(RawLeader, lver), named(&other), named(&first));
        }
    }
    findings
}
