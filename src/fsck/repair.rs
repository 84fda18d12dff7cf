//! Carrying out repairs: only with nobody alive whom they could harm, and with a copy of what is overwritten.
//!
//! Why the repairs are safe under their conditions stands in [`sanlock_lease::fsck`]. What is left to be done here is that the conditions
//! hold at the moment of each write: the lockspace is read right before it, and the write has to end within [`LOOK_TO_WRITE`]. A host that
//! begins to join after that look writes its record first. It waits two io timeouts, of at least one second each, before it may
//! use anything; one of 5.1.1 that comes back to a host id that it gave up waits for one second (lease-algorithms.md 14.3). So the lockspace is read once more after the write:
//! what was written while somebody came is not called repaired.

use super::save::Saved;
use super::scan::{self, Area, Body, Place, Scan};
use super::{ACTION, show};
use crate::cli::doctor::FsckArgs;
use crate::configured::fire_timeout;
use crate::direct::storage::Storage;
use crate::output::{note, print};
use sanlock_blockio::Access;
use sanlock_client::Client;
use sanlock_client::wire::{Name as WireName, code};
use sanlock_lease::fsck::{Finding, Fix, Gone, Kind, LockspaceReport, Mended, Silence, Verdict, mend};
use sanlock_lease::geometry::HostId;
use sanlock_lease::name::Name;
use sanlock_lease::timing::{IoTimeout, MonoTime, WatchdogFire};
use sanlock_sys::clock;
use std::cell::Cell;
use std::time::Duration;

/// From the beginning of a look at the lockspace to the end of the write that relies on it.
const LOOK_TO_WRITE: Duration = Duration::from_secs(1);
/// What has to be left of that for the write.
const WRITE_ROOM: Duration = Duration::from_millis(500);
/// How often the lockspace is looked at again because a look took longer than there was.
const LOOKS_MAX: u32 = 5;
/// Between two looks while silent hosts are waited for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// For the answer of this host's daemon, which it has in memory.
const DAEMON_PATIENCE: Duration = Duration::from_secs(10);
/// How often the wait is told of, in looks.
const TELL_EVERY: u32 = 10;

/// How repairing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// At least one thing was repaired, and nothing went wrong.
    Done,
    /// There is nothing that could be repaired.
    Nothing,
    /// Somebody may be alive.
    Refused,
    /// Storage, or the file for what is overwritten, failed.
    Failed,
}

/// Why a repair was not made, or not all of it, in words.
enum Stop {
    Refused(String),
    Failed(String),
}

/// What was written of a lockspace's repair before it stopped.
fn written_before(writes: usize) -> String {
    match writes {
        0 => String::new(),
        1 => "; one sector had been rewritten before that".to_owned(),
        _ => format!("; {writes} sectors had been rewritten before that"),
    }
}

/// Repairs what can be repaired.
pub(super) fn repair(places: &[Place], scan: &Scan, args: &FsckArgs) -> Outcome {
    let mut saved = None;
    let (mut done, mut refused) = (0, false);
    for (number, report) in lockspaces(scan) {
        // The lockspace's own records last: they are what tells whether somebody is alive.
        let belongs = |area: &&Area| {
            area.lockspace() == Some(report.name) && area.findings.iter().any(|f| f.fix.is_some())
        };
        let mut areas: Vec<&Area> = scan.areas.iter().filter(belongs).collect();
        areas.sort_by_key(|area| area.kind() == Kind::Lockspace);
        if areas.is_empty() {
            continue;
        }
        let repair = scan.areas.get(number).and_then(|lockspace| {
            let (place, writes) = (places.get(lockspace.place)?, Cell::new(0));
            Some(Repair { places, scan, args, lockspace, place, report, writes })
        });
        let Some(repair) = repair else { continue };
        let outcome = repair.run(&areas, &mut saved);
        let before = written_before(repair.writes.get());
        match outcome {
            Ok(count) => done += count,
            Err(Stop::Refused(reason)) => {
                let how = if before.is_empty() { "are not" } else { "are only partly" };
                let name = report.name;
                note(ACTION, &format!("lockspace {name:?} and its leases {how} repaired: {reason}{before}"));
                refused = true;
            }
            Err(Stop::Failed(reason)) => {
                note(ACTION, &format!("{reason}{before}"));
                tell_saved(saved.as_ref());
                return Outcome::Failed;
            }
        }
    }
    refused |= homeless(places, scan);
    tell_saved(saved.as_ref());
    match (refused, done) {
        (true, _) => Outcome::Refused,
        (false, 0) => Outcome::Nothing,
        (false, _) => Outcome::Done,
    }
}

fn tell_saved(saved: Option<&Saved>) {
    if let Some(saved) = saved {
        print(format!("what was overwritten is saved in {}\n", saved.path().display()));
    }
}

/// The lockspaces among the areas, one of each name.
fn lockspaces(scan: &Scan) -> Vec<(usize, &LockspaceReport)> {
    let all = scan.areas.iter().enumerate().filter_map(|(number, area)| match &area.body {
        Body::Lockspace(report) => Some((number, report)),
        _ => None,
    });
    all.filter(|(number, report)| scan.lockspace(report.name).is_some_and(|(first, _)| first == *number))
        .collect()
}

/// Whether two areas claim to be this lockspace: then nobody can tell where its hosts renew.
fn is_twice(scan: &Scan, name: Name) -> bool {
    let is = |area: &&Area| matches!(&area.body, Body::Lockspace(report) if report.name == name && report.intact > 0);
    scan.areas.iter().filter(is).count() > 1
}

/// Says which areas cannot be repaired because nobody can tell who is alive, and whether there are any.
fn homeless(places: &[Place], scan: &Scan) -> bool {
    let mut any = false;
    for area in scan.areas.iter().filter(|area| area.findings.iter().any(|f| f.fix.is_some())) {
        let lockspace = area.lockspace().and_then(|name| scan.lockspace(name));
        if lockspace.is_none() {
            let path = places.get(area.place).map(Place::shown).unwrap_or_default();
            let what = show::summary(area);
            note(
                ACTION,
                &format!(
                    "{path}:{} ({what}) is not repaired: its lockspace is not known here, so nobody can tell who is alive; name it with --lockspace PATH:OFFSET",
                    area.offset
                ),
            );
            any = true;
        }
    }
    any
}

/// The repairs of one lockspace and what belongs to it.
struct Repair<'a> {
    places: &'a [Place],
    scan: &'a Scan,
    args: &'a FsckArgs,
    lockspace: &'a Area,
    place: &'a Place,
    report: &'a LockspaceReport,
    /// Sectors that have been rewritten.
    writes: Cell<usize>,
}

impl Repair<'_> {
    fn run(&self, areas: &[&Area], saved: &mut Option<Saved>) -> Result<usize, Stop> {
        if let Some(doubt) = &self.lockspace.doubt {
            return Err(Stop::Refused(format!(
                "nobody can tell by its records who is alive, for {}:{} may not be what it seems: {doubt}",
                self.place.shown(),
                self.lockspace.offset
            )));
        }
        if self.report.intact * 2 <= u64::from(self.report.geometry.max_hosts()) {
            return Err(Stop::Refused("most of its records cannot be believed".to_owned()));
        }
        if !self.report.by_silence {
            return Err(Stop::Refused(
                "it is one of sanlock 5, in which a silent host need not be dead".to_owned(),
            ));
        }
        if is_twice(self.scan, self.report.name) {
            return Err(Stop::Refused(
                "there are two of this name, and nobody can tell which one its hosts use".to_owned(),
            ));
        }
        not_joined_here(self.report.name, (&self.place.path, self.lockspace.offset))?;
        let fixes = areas.iter().flat_map(|area| area.findings.iter().filter_map(|f| f.fix));
        let who: Vec<Gone> = fixes.map(|fix| fix.gone()).collect();
        let mut storage = self.open(self.place, Access::ReadOnly)?;
        let bytes = self.read(&mut storage)?;
        let (io_timeout, fire) = self.timeouts()?;
        let mut silence = Silence::new(
            MonoTime::from_millis(clock::boottime_ms()),
            &bytes,
            (self.report.geometry, self.report.name),
            &who,
            &self.scan.claims(self.report.name),
            io_timeout,
            fire,
        );
        self.wait(&mut storage, &silence, fire)?;
        let mut done = 0;
        for area in areas {
            done += self.area(area, &mut storage, &mut silence, saved)?;
        }
        Ok(done)
    }

    fn timeouts(&self) -> Result<(IoTimeout, WatchdogFire), Stop> {
        let io_timeout = IoTimeout::new(self.args.io_timeout).map_err(|e| Stop::Failed(e.to_string()))?;
        let fire = match self.args.fire_timeout {
            Some(seconds) => WatchdogFire::new(seconds).map_err(|e| Stop::Failed(e.to_string()))?,
            // All hosts have the same.
            None => fire_timeout().map_err(|why| {
                Stop::Refused(format!(
                    "{why}, so how long a silent host may live is not known; give --fire-timeout SECONDS, or do this as a user who may read it"
                ))
            })?,
        };
        Ok((io_timeout, fire))
    }

    fn open(&self, place: &Place, access: Access) -> Result<Storage, Stop> {
        Storage::open(&place.path, access)
            .map_err(|e| Stop::Failed(format!("{}: {e}; nothing was written there", place.shown())))
    }

    /// The lockspace's area.
    fn read(&self, storage: &mut Storage) -> Result<Vec<u8>, Stop> {
        scan::read(storage, self.lockspace.offset, self.report.geometry)
            .map_err(|e| Stop::Failed(format!("{}: {e}", self.place.shown())))
    }

    fn look(&self, storage: &mut Storage, silence: &Silence) -> Result<Verdict, Stop> {
        let asked = MonoTime::from_millis(clock::boottime_ms());
        let bytes = self.read(storage)?;
        Ok(silence.look(asked, &bytes))
    }

    /// Waits until nobody who matters can be alive.
    fn wait(&self, storage: &mut Storage, silence: &Silence, fire: WatchdogFire) -> Result<(), Stop> {
        let fire = fire.secs();
        let mut looks = 0;
        loop {
            match self.look(storage, silence)? {
                Verdict::Gone => return Ok(()),
                Verdict::Alive(host) => return Err(alive(host)),
                Verdict::Wait { until, hosts } => {
                    let left = until.secs().saturating_sub(clock::boottime_seconds());
                    if self.args.no_wait {
                        return Err(Stop::Refused(format!(
                            "{hosts} host id(s) may be in use; if they stay silent for {left} s their hosts are dead, with a watchdog fire timeout of {fire} s (leave out --no-wait)"
                        )));
                    }
                    if looks % TELL_EVERY == 0 {
                        note(
                            ACTION,
                            &format!(
                                "lockspace {:?}: {hosts} host id(s) may be in use; waiting up to {left} s to see whether they renew (watchdog fire timeout {fire} s)",
                                self.report.name
                            ),
                        );
                    }
                    looks += 1;
                    std::thread::sleep(LOOK_EVERY);
                }
            }
        }
    }

    /// Repairs one area; returns the number of repairs.
    fn area(
        &self,
        area: &Area,
        lockspace: &mut Storage,
        silence: &mut Silence,
        saved: &mut Option<Saved>,
    ) -> Result<usize, Stop> {
        let Some(place) = self.places.get(area.place) else { return Ok(0) };
        let mut storage = self.open(place, Access::ReadWrite)?;
        let failed = |e| Stop::Failed(format!("{}: {e}", place.shown()));
        let bytes = scan::read(&mut storage, area.offset, area.geometry).map_err(failed)?;
        // Nobody was alive while it was waited: what was found is still there, or was mended by somebody who is gone.
        let now =
            scan::look(&mut storage, area.place, area.offset, area.kind(), area.geometry).map_err(failed)?;
        if let Some(doubt) = now.doubt {
            return Err(Stop::Refused(format!("{}:{}: {doubt}", place.shown(), area.offset)));
        }
        // A version or a name may be another one by now. What frees a host goes by the leases too, which only the scan knows.
        let same = |found: &Finding, now: &Finding| {
            (found.problem, found.spot) == (now.problem, now.spot)
                && (area.kind() == Kind::Lockspace || found.fix == now.fix)
        };
        let still = |found: &&Finding| now.findings.iter().any(|now| same(found, now));
        let fixes: Vec<Fix> = area.findings.iter().filter(still).filter_map(|f| f.fix).collect();
        let mut written = false;
        for change in mend(&bytes, area.offset, area.kind(), area.geometry, &fixes) {
            self.save(saved, place, area.offset.saturating_add(change.at), &change)?;
            self.write(lockspace, silence, &mut storage, (place, area), &change)?;
            self.writes.set(self.writes.get() + 1);
            written = true;
        }
        if !written {
            return Ok(0);
        }
        for finding in area.findings.iter().filter(still) {
            if let Some(fix) = &finding.fix {
                print(format!(
                    "repaired {}:{}: {}: {}\n",
                    place.shown(),
                    area.offset,
                    finding.what,
                    fix.text()
                ));
            }
        }
        Ok(fixes.len())
    }

    fn save(
        &self,
        saved: &mut Option<Saved>,
        place: &Place,
        offset: u64,
        change: &Mended,
    ) -> Result<(), Stop> {
        let failed = |e: std::io::Error| {
            let file = self
                .args
                .save
                .as_ref()
                .map_or_else(|| "in the current directory".to_owned(), |p| p.display().to_string());
            Stop::Failed(format!("the file for what is overwritten, {file}: {e}; nothing more was written"))
        };
        let file = match saved {
            Some(file) => file,
            None => saved.insert(Saved::create(self.args.save.as_deref()).map_err(failed)?),
        };
        file.add(&place.path, offset, &change.before).map_err(failed)
    }

    /// One write, right after a look at the lockspace, and another look.
    fn write(
        &self,
        lockspace: &mut Storage,
        silence: &mut Silence,
        storage: &mut Storage,
        (place, area): (&Place, &Area),
        change: &Mended,
    ) -> Result<(), Stop> {
        let offset = area.offset.saturating_add(change.at);
        let mut looks = 0;
        // The clock that also runs while the machine sleeps.
        let (began, left) = loop {
            let began = clock::boottime_ms();
            self.nobody(lockspace, silence)?;
            let unread =
                |e| Stop::Failed(format!("{}: {e}; nothing was written at offset {offset}", place.shown()));
            if storage.read(offset, change.before.len()).map_err(unread)? != change.before {
                return Err(Stop::Refused(format!(
                    "{}: offset {offset} has changed meanwhile",
                    place.shown()
                )));
            }
            let spent = spent_since(began);
            match LOOK_TO_WRITE.checked_sub(spent) {
                Some(left) if left >= WRITE_ROOM => break (began, left),
                _ if looks < LOOKS_MAX => looks += 1,
                _ => {
                    return Err(Stop::Failed(format!(
                        "{}: reading the lockspace took {spent:?}, again and again, too long for a safe repair",
                        self.place.shown()
                    )));
                }
            }
        };
        let (io_timeout, fire) = self.timeouts()?;
        storage.write_within(offset, &change.after, left).map_err(|e| {
            Stop::Failed(format!(
                "{}: {e}; the write at offset {offset} may still happen, as long as the storage does not answer and for {} s after that: let no \
                 host use this lockspace until then, and check again",
                place.shown(),
                io_timeout.host_dead_secs(fire)
            ))
        })?;
        let spent = spent_since(began);
        if spent > LOOK_TO_WRITE {
            return Err(Stop::Failed(format!(
                "{}: the write at offset {offset} ended {spent:?} after the look at the lockspace; whoever joined meanwhile may have met it: check again",
                place.shown()
            )));
        }
        if let Some(host) = written_for(area, change) {
            silence.rewritten(host, &change.after);
        }
        self.nobody(lockspace, silence).map_err(|stop| {
            let (Stop::Refused(why) | Stop::Failed(why)) = stop;
            Stop::Failed(format!(
                "{}: offset {offset} was written, and afterwards: {why}; whoever came meanwhile may have met it: check again",
                place.shown()
            ))
        })
    }

    /// Looks whether the lockspace is still as it was when nobody was left.
    fn nobody(&self, lockspace: &mut Storage, silence: &Silence) -> Result<(), Stop> {
        match self.look(lockspace, silence)? {
            Verdict::Gone => Ok(()),
            Verdict::Alive(host) => Err(alive(host)),
            Verdict::Wait { .. } => Err(Stop::Refused("a host may be in use again".to_owned())),
        }
    }
}

/// The host whose record this is a change of.
fn written_for(area: &Area, change: &Mended) -> Option<HostId> {
    let index = change.at.checked_div(u64::from(area.geometry.sector().bytes()))?;
    let host = usize::try_from(index).ok().and_then(HostId::from_index);
    host.filter(|_| area.kind() == Kind::Lockspace)
}

fn spent_since(began: u64) -> Duration {
    Duration::from_millis(clock::boottime_ms().saturating_sub(began))
}

fn alive(host: HostId) -> Stop {
    Stop::Refused(format!(
        "host id {host} is in use: its record has just changed. Remove the lockspace on all hosts (sanlock client rem_lockspace), then try again"
    ))
}

/// The daemon of this host must not have to do with the lockspace, nor be silent about it.
fn not_joined_here(name: Name, (path, offset): (&[u8], u64)) -> Result<(), Stop> {
    let list = match Client::new().within(DAEMON_PATIENCE).get_lockspaces() {
        Ok(list) => list,
        Err(error) if [code::ENOENT, code::ECONNREFUSED].contains(&error.result_code()) => return Ok(()),
        Err(error) => {
            return Err(Stop::Refused(format!(
                "the daemon on this host cannot be asked whether it uses the lockspace: {error}"
            )));
        }
    };
    let wanted = WireName::truncated(name.as_bytes());
    let joined = list.iter().any(|ls| {
        let disk = &ls.host_id_disk;
        ls.name == wanted || (disk.path.path() == Ok(path) && disk.offset.get() == offset)
    });
    if joined {
        return Err(Stop::Refused(
            "the daemon on this host has joined it, or another one in its place; remove it first (sanlock client rem_lockspace)".to_owned(),
        ));
    }
    Ok(())
}
