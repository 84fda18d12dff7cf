//! What the leases that are there already show of the hosts.

use super::finding::Findings;
use crate::direct::storage::{Storage, StorageError};
use crate::fsck::scan::{self, Body, Place, Scan};
use crate::subject;
use sanlock_lease::fsck::{Level, LockspaceReport, Problem, check_lockspace};
use sanlock_lease::geometry::{Geometry, HostId};
use sanlock_lease::name::Name;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Between two looks at the hosts.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A lockspace under observation: what each host id's record said, in order, without repetitions.
pub(super) struct Watched {
    name: Name,
    offset: u64,
    geometry: Geometry,
    last: Option<Instant>,
    seen: BTreeMap<HostId, Vec<(Name, u64)>>,
}

impl Watched {
    fn new(offset: u64, report: &LockspaceReport) -> Self {
        let mut watched =
            Self { name: report.name, offset, geometry: report.geometry, last: None, seen: BTreeMap::new() };
        watched.take(report);
        watched
    }

    fn take(&mut self, report: &LockspaceReport) {
        for host in report.hosts.iter().filter(|h| h.intact && h.timestamp != 0) {
            let seen = self.seen.entry(host.host).or_default();
            if seen.last() != Some(&(host.name, host.generation)) {
                seen.push((host.name, host.generation));
            }
        }
    }

    /// Looks again, now and then.
    ///
    /// # Errors
    /// The lockspace cannot be read.
    pub(super) fn look(&mut self, storage: &mut Storage) -> Result<(), StorageError> {
        if self.last.is_none_or(|last| last.elapsed() >= LOOK_EVERY) {
            let area = scan::read(storage, self.offset, self.geometry)?;
            self.take(&check_lockspace(&area, self.geometry, &BTreeMap::new()));
            self.last = Some(Instant::now());
        }
        Ok(())
    }

    /// Whether two machines write one record: its host and generation came back after another one's.
    pub(super) fn judge(&self, found: &mut Findings) {
        for (host, seen) in &self.seen {
            let came_back =
                seen.iter().enumerate().find(|(n, value)| seen.iter().take(*n).any(|other| other == *value));
            if let Some((n, (name, generation))) = came_back {
                let other =
                    n.checked_sub(1).and_then(|n| seen.get(n)).map(|(name, _)| *name).unwrap_or_default();
                found.problem(
                    "host-id-twice",
                    format!(
                        "host id {host} of lockspace {:?} is written by {name:?} (generation {generation}) and by {other:?} in turn",
                        self.name
                    ),
                    "two machines use one host id: each takes the other's leases for its own",
                    "stop both, and give every machine a host id of its own",
                );
            }
        }
    }
}

/// Looks at what is at this place; returns the first lockspace there, to be watched.
pub(super) fn judge(place: &Place, found: &mut Findings) -> Option<Watched> {
    let scan = match Scan::of(std::slice::from_ref(place)) {
        Ok(scan) => scan,
        Err(error) => {
            found.problem(
                "cannot-read",
                format!("{}: {error}", error.object),
                "hosts cannot read it either",
                "look at the kernel's messages (dmesg)",
            );
            return None;
        }
    };
    let damage = scan.findings().filter(|(_, f)| f.problem.level() == Level::Damage).count();
    if damage > 0 {
        found.problem(
            "damage",
            format!("{damage} place(s) in the leases are damaged"),
            "some leases cannot be used, or protect nothing",
            &format!("sanlock fsck {} says which, and what to do", subject::path_argument(&place.path)),
        );
    }
    let mut first = None;
    for area in &scan.areas {
        let Body::Lockspace(report) = &area.body else { continue };
        timeouts(report, found);
        for finding in area.findings.iter().filter(|f| f.problem == Problem::HostNameTwice) {
            found.warning(
                "host-name-twice",
                format!("lockspace {:?}: {}, {}", report.name, finding.what, finding.found),
                finding.problem.means(),
                finding.problem.advice(),
            );
        }
        first = first.or_else(|| Some(Watched::new(area.offset, report)));
    }
    first
}

/// Hosts with different io timeouts in one lockspace.
fn timeouts(report: &LockspaceReport, found: &mut Findings) {
    let held = report.hosts.iter().filter(|h| h.intact && h.timestamp != 0);
    let mut by_timeout: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    for host in held {
        by_timeout.entry(host.io_timeout).or_default().push(format!("{} ({})", host.host, host.name));
    }
    if by_timeout.len() > 1 {
        let told: Vec<String> = by_timeout
            .iter()
            .map(|(timeout, hosts)| match hosts.as_slice() {
                [one] => format!("{timeout} s: host id {one}"),
                [first, ..] => format!("{timeout} s: {} host ids, as {first}", hosts.len()),
                [] => String::new(),
            })
            .collect();
        found.warning(
            "io-timeouts-differ",
            format!("lockspace {:?}: {}", report.name, told.join("; ")),
            "each host gives up after its own time: the one with the shorter io timeout stops its programs while the others go on",
            "use one io timeout in a lockspace, unless these hosts reach the storage by different ways",
        );
    }
}
