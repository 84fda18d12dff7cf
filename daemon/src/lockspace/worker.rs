//! The life of one lockspace: open, join, renew and scan, leave.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sanlock_blockio::drive::{Area, Areas, Driver, EnvSource, Report as Driven, RunId, monotonic_now};
use sanlock_blockio::{Access, Disk, OpenError};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::delta::{
    DeltaAcquire, DeltaConfig, DeltaRelease, Event as HostEvent, HostScan, JoinError, Joined, LeaveError,
    RenewOutcome, Renewal, ScanOutcome,
};
use sanlock_lease::hosts::{HostNews, HostTable};
use sanlock_lease::machine::{Env, Input, IoFailure, LockspaceNow, Machine, NoHosts, Step};
use sanlock_lease::record::Bitmap;
use sanlock_lease::timing::MonoTime;
use sanlock_manager::rejoin::{fast_rejoin, remembered_generation};
use sanlock_manager::{Event, LockspaceId};
use sanlock_sys::priority::{max_round_robin_priority, set_round_robin};

use super::next::{Next, next};
use super::{Control, Report, Shared};
use crate::global::Global;
use crate::log::Log;
use crate::mailbox::Mailbox;

/// How long a lockspace that was left waits for writes that may still land, in seconds (lease-algorithms.md 1.2).
const DRAIN_SECONDS_MAX: u64 = 120;

/// Pause before an open that found too many others under way is tried again.
const OPEN_RETRY: Duration = Duration::from_millis(50);

/// Longest sleep: bounds what a lost wake-up could cost.
const NAP_MS: u64 = 1_000;

/// The machines of a lockspace thread.
enum LsMachine {
    Join(Box<DeltaAcquire>),
    Renew(Box<Renewal>),
    Scan(Box<HostScan>),
    Leave(Box<DeltaRelease>),
}

/// What they come to.
enum LsOutcome {
    Join(Result<Joined, JoinError>),
    Renew(RenewOutcome),
    Scan(ScanOutcome),
    Leave(Result<(), LeaveError>),
}

impl Machine for LsMachine {
    type Outcome = LsOutcome;

    fn step(&mut self, now: MonoTime, env: &Env<'_>, input: Input<'_>) -> Step<LsOutcome> {
        match self {
            Self::Join(machine) => machine.step(now, env, input).map(LsOutcome::Join),
            Self::Renew(machine) => machine.step(now, env, input).map(LsOutcome::Renew),
            Self::Scan(machine) => machine.step(now, env, input).map(LsOutcome::Scan),
            Self::Leave(machine) => machine.step(now, env, input).map(LsOutcome::Leave),
        }
    }
}

/// A join is wanted until the lockspace is marked gone; renewals ask nothing.
struct Wanted<'a> {
    shared: &'a Shared,
    global: &'a Global,
}

impl EnvSource<()> for Wanted<'_> {
    fn with_env<R>(&self, _: &(), _: MonoTime, step: impl FnOnce(&Env<'_>) -> R) -> R {
        let wanted = LockspaceNow::Alive { generation: 0 };
        step(&Env {
            lockspace: if self.shared.is_gone() { LockspaceNow::Gone } else { wanted },
            client_alive: true,
            shutting_down: self.global.shutting_down(),
            hosts: &NoHosts,
        })
    }
}

struct Worker<'a> {
    ls: LockspaceId,
    shared: &'a Shared,
    global: &'a Global,
    log: &'a Log,
    control: &'a Mailbox<Control>,
    report: &'a dyn Fn(Report),
    config: DeltaConfig,
    driver: Driver<LsMachine, ()>,
    done: Vec<Driven<(), LsOutcome>>,
    leave: Option<bool>,
    /// The generation it is joined with.
    generation: Option<u64>,
    /// By when its last writes must have ended for its record to be the proof that no other instance followed.
    sole_if_ended_before: Option<MonoTime>,
    /// What the next renewals are to carry, until the machine knows.
    outgoing: Option<(HostEvent, Box<Bitmap>)>,
}

/// Body of the thread.
pub(super) fn run(
    ls: LockspaceId,
    shared: &Shared,
    table: Option<HostTable>,
    global: &Global,
    log: &Log,
    control: &Mailbox<Control>,
    report: &dyn Fn(Report),
) {
    if global.config.high_priority != 0 {
        // Not inherited from the front, which asked for it not to be.
        let set = max_round_robin_priority().and_then(set_round_robin);
        if let Err(error) = set {
            log.debug(format_args!("real-time scheduling failed: {error}"));
        }
    }
    let driver = match Driver::new(global.engine) {
        Ok(driver) => driver,
        Err(error) => {
            log.error(format_args!("{error}"));
            let failed = JoinError::Read(IoFailure::Os(libc::EMFILE));
            return report(Report::JoinFailed { ls, error: failed });
        }
    };
    let config = DeltaConfig {
        lockspace: shared.spec.name,
        host: shared.host,
        host_name: global.host_name,
        io_timeout: shared.io_timeout,
        fire: global.config.fire,
    };
    let mut worker = Worker {
        ls,
        shared,
        global,
        log,
        control,
        report,
        config,
        driver,
        done: Vec::new(),
        leave: None,
        generation: None,
        sole_if_ended_before: None,
        outgoing: None,
    };
    match worker.live(table) {
        Ok(Some(table)) => report(Report::Hosts { ls, table }),
        Ok(None) => {}
        Err(error) if worker.driver.unsettled() == 0 => return report(Report::JoinFailed { ls, error }),
        Err(error) => report(Report::Event(Event::JoinDone { ls, result: Err(error) })),
    }
    worker.drain();
    report(Report::Event(Event::Left { ls }));
}

impl Worker<'_> {
    /// From opening to the last write; what was seen of the hosts, if the lockspace was joined.
    ///
    /// # Errors
    /// The join failed.
    fn live(&mut self, table: Option<HostTable>) -> Result<Option<HostTable>, JoinError> {
        let disk = self.open()?;
        let joined = self.join(&disk)?;
        self.generation = Some(joined.generation());
        self.shared.set_joined(&joined, Arc::clone(&disk));
        (self.report)(Report::Event(Event::JoinDone { ls: self.ls, result: Ok(joined) }));

        let mut renewal = Renewal::new(self.config, &joined);
        if let Some(seconds) = self.global.config.renewal_read_extend_sec {
            renewal.set_read_extend_secs(seconds);
        }
        let scan = match table {
            Some(table) => HostScan::with_table(&self.config, joined.geometry, table),
            None => HostScan::new(&self.config, joined.geometry),
        };
        let areas = Areas::new().with_lockspace(Area { disk: Ok(disk), offset: self.shared.spec.offset });
        let renewal = self.driver.add_resident(LsMachine::Renew(Box::new(renewal)), (), areas.clone());
        let scan = self.driver.add_resident(LsMachine::Scan(Box::new(scan)), (), areas.clone());
        // A new driver has room for two machines.
        let (Ok(renewal), Ok(scan)) = (renewal, scan) else { return Ok(None) };
        self.again(scan);
        self.renew(renewal, scan);
        self.depart(renewal, areas);
        let table = self.scan(scan).map(|scan| scan.table().clone());
        self.sole_if_ended_before = self.renewal(renewal).and_then(Renewal::sole_if_ended_before);
        self.driver.retire(renewal);
        self.driver.retire(scan);
        Ok(table)
    }

    /// Opens the disk, no longer than an io timeout.
    fn open(&self) -> Result<Arc<Disk>, JoinError> {
        let path = Path::new(OsStr::from_bytes(&self.shared.spec.path));
        let end = monotonic_now().plus_millis(self.shared.io_timeout.millis());
        let opened = loop {
            let left = Duration::from_millis(end.millis_since(monotonic_now()));
            match Disk::open_timeout(path, Access::ReadWrite, left) {
                // Many lockspaces are joined at once: wait for one of their opens to end.
                Err(OpenError::TooManyHanging { .. }) if !left.is_zero() => thread::sleep(OPEN_RETRY),
                other => break other,
            }
        };
        opened.map_err(|error| {
            self.log.error(format_args!("{error}"));
            if let OpenError::Os { errno: libc::EACCES, .. } = error {
                let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
                self.log.error(format_args!("the daemon runs as uid {uid} gid {gid}, which needs access"));
            }
            JoinError::Read(IoFailure::NotOpen(error.errno()))
        })
    }

    fn join(&mut self, disk: &Arc<Disk>) -> Result<Joined, JoinError> {
        let evidence = self.global.records.evidence(&self.config.lockspace, self.config.host);
        let fast = fast_rejoin(evidence);
        self.log.debug(format_args!("joining, earlier instance: {evidence:?}"));
        let machine = DeltaAcquire::new(self.config, fast).remembering(remembered_generation(evidence));
        let areas =
            Areas::new().with_lockspace(Area { disk: Ok(Arc::clone(disk)), offset: self.shared.spec.offset });
        match self.run_once(LsMachine::Join(Box::new(machine)), areas) {
            Some(LsOutcome::Join(result)) => result,
            _ => Err(JoinError::Driver),
        }
    }

    /// Runs one machine to its end, with whatever else runs.
    fn run_once(&mut self, machine: LsMachine, areas: Areas) -> Option<LsOutcome> {
        let env = Wanted { shared: self.shared, global: self.global };
        let wanted = self.driver.start(monotonic_now(), machine, (), areas, &env, &mut self.done).ok()?;
        loop {
            for report in std::mem::take(&mut self.done) {
                match report {
                    Driven::Done { run, outcome, .. } if run == wanted => return Some(outcome),
                    Driven::Done { .. } | Driven::Settled { .. } => {}
                }
            }
            self.turn(self.driver.next_wake());
        }
    }

    fn again(&mut self, run: RunId) {
        let env = Wanted { shared: self.shared, global: self.global };
        self.driver.again(run, monotonic_now(), &env, &mut self.done);
    }

    /// Sleeps until something happens or `wake`, then drives the machines.
    fn turn(&mut self, wake: Option<MonoTime>) {
        let nap = wake.map_or(NAP_MS, |wake| wake.millis_since(monotonic_now()).min(NAP_MS));
        let mut fds = [
            PollFd::new(self.driver.completion_fd(), PollFlags::POLLIN),
            PollFd::new(self.control.fd(), PollFlags::POLLIN),
        ];
        // An error changes nothing: time and mailbox are looked at in any case.
        let _ = poll(&mut fds, PollTimeout::try_from(nap).unwrap_or(PollTimeout::ZERO));
        let env = Wanted { shared: self.shared, global: self.global };
        let mut changed = false;
        for control in self.control.take() {
            match control {
                Control::Changed => changed = true,
                Control::Outgoing { event, bitmap } => self.outgoing = Some((event, bitmap)),
                Control::Leave { release } => self.leave = Some(release),
            }
        }
        if changed {
            self.driver.tick(monotonic_now(), &env, |()| true, &mut self.done);
        }
        self.driver.poll(monotonic_now(), &env, &mut self.done);
    }

    fn renewal(&self, run: RunId) -> Option<&Renewal> {
        match self.driver.machine(run) {
            Some(LsMachine::Renew(renewal)) => Some(renewal),
            _ => None,
        }
    }

    fn scan(&self, run: RunId) -> Option<&HostScan> {
        match self.driver.machine(run) {
            Some(LsMachine::Scan(scan)) => Some(scan),
            _ => None,
        }
    }

    /// Renews whenever it is due, and looks at the others, until told to leave.
    fn renew(&mut self, renewal: RunId, scan: RunId) {
        let mut lost = false;
        let mut published = self.renewal(renewal).map(Renewal::last_good);
        while self.leave.is_none() {
            for report in std::mem::take(&mut self.done) {
                match report {
                    Driven::Done { outcome: LsOutcome::Renew(outcome), .. } => {
                        lost |= matches!(outcome, RenewOutcome::Corrupt(_));
                        published = self.renewed(outcome).or(published);
                        self.again(scan);
                    }
                    Driven::Done { outcome: LsOutcome::Scan(outcome), .. } => self.scanned(scan, &outcome),
                    Driven::Done { .. } | Driven::Settled { .. } => {}
                }
            }
            if let Some((event, bitmap)) = self.outgoing.take() {
                if let Some(LsMachine::Renew(machine)) = self.driver.machine_mut(renewal) {
                    machine.set_outgoing(event, *bitmap);
                }
            }
            let Some(machine) = self.renewal(renewal) else { return };
            let (due, last_good) = (machine.due(), machine.last_good());
            // A late write moves the time without an attempt of its own.
            if published.is_some_and(|time| time < last_good) {
                self.publish(last_good, 0, 0);
                published = Some(last_good);
            }
            let due = (!lost && !self.driver.is_busy(renewal)).then_some(due);
            let look = self.scan(scan).and_then(HostScan::due);
            match next(monotonic_now(), due, look) {
                Next::Renew => self.again(renewal),
                Next::Look => self.again(scan),
                Next::Wait(until) if self.done.is_empty() => {
                    self.turn(self.driver.next_wake().into_iter().chain(until).min());
                }
                Next::Wait(_) => {}
            }
        }
    }

    /// Makes a good renewal known: first to the machines of this daemon, then to the front.
    fn publish(&self, timestamp: MonoTime, read_ms: u64, write_ms: u64) {
        self.shared.set_last_good(timestamp);
        let event = Event::Renewed { ls: self.ls, timestamp, read_ms, write_ms };
        (self.report)(Report::Event(event));
    }

    /// Publishes the outcome of an attempt; the time of the last good renewal if it was one.
    fn renewed(&self, outcome: RenewOutcome) -> Option<MonoTime> {
        match outcome {
            RenewOutcome::Renewed(renewed) => {
                if let Some(found) = renewed.foreign_io_timeout {
                    self.log.error(format_args!("our lease carried io timeout {found}, replaced by ours"));
                }
                if renewed.write_ms >= self.shared.io_timeout.millis() {
                    self.log.error(format_args!("renewal write took {} ms", renewed.write_ms));
                }
                if self.global.config.debug_renew != 0 {
                    let (read, write) = (renewed.read_ms, renewed.write_ms);
                    let at = renewed.last_good.secs();
                    self.log.debug(format_args!("renewed {at} read {read} ms write {write} ms"));
                }
                self.publish(renewed.last_good, renewed.read_ms, renewed.write_ms);
                return Some(renewed.last_good);
            }
            RenewOutcome::Failed(failure) => {
                let (code, text) = (ReturnCode::from(&failure).0, failure.to_string());
                (self.report)(Report::Event(Event::RenewalFailed { ls: self.ls, code, text }));
            }
            RenewOutcome::Corrupt(corrupt) => {
                let (code, text) = (ReturnCode::from(&corrupt).0, corrupt.to_string());
                (self.report)(Report::Event(Event::Corrupt { ls: self.ls, code, text }));
            }
        }
        None
    }

    /// Publishes the host table and logs who is new (command-line.md 11.2).
    fn scanned(&self, scan: RunId, outcome: &ScanOutcome) {
        let Some(table) = self.scan(scan).map(HostScan::table) else { return };
        for news in &outcome.news {
            match news {
                HostNews::Instance { host, name, generation } => {
                    let timestamp =
                        table.status(*host, monotonic_now()).map_or(0, |status| status.seen.timestamp);
                    let name = String::from_utf8_lossy(name.as_bytes());
                    self.log.warn(format_args!("host {} {generation} {timestamp} {name}", host.get()));
                }
                HostNews::Bad { host, count, error } => {
                    self.log.error(format_args!(
                        "host {} has a bad record, seen {count} times: {error}",
                        host.get()
                    ));
                }
                HostNews::Good { host } => {
                    self.log.error(format_args!("host {} has a good record again", host.get()));
                }
                HostNews::Notice { from, generation, event } => {
                    self.log.debug(format_args!("host {} {generation} notifies: {event:?}", from.get()));
                    let (ls, from, generation, event) = (self.ls, *from, *generation, *event);
                    (self.report)(Report::Event(Event::Noticed { ls, from, generation, event }));
                }
            }
        }
        if let Some((host, failure)) = &outcome.failed {
            self.log.debug(format_args!("hosts from {} on could not be read: {failure}", host.get()));
        }
        self.shared.set_hosts(table.clone());
    }

    /// Frees the host_id lease if that is wanted and allowed. Waits for an attempt that runs, but not for long.
    fn depart(&mut self, renewal: RunId, areas: Areas) {
        let limit = monotonic_now().plus_millis(2 * self.shared.io_timeout.millis());
        while self.driver.is_busy(renewal) && monotonic_now() < limit {
            self.done.clear();
            self.turn(Some(limit));
        }
        self.done.clear();
        if self.leave != Some(true) {
            return;
        }
        let Some(machine) = self.renewal(renewal).and_then(Renewal::release) else {
            self.log
                .warn(format_args!("the host_id lease stays owned: its last renewal failed or is not over"));
            return;
        };
        match self.run_once(LsMachine::Leave(Box::new(machine)), areas) {
            Some(LsOutcome::Leave(Ok(()))) => self.log.debug(format_args!("host_id lease freed")),
            Some(LsOutcome::Leave(Err(error))) => {
                self.log.warn(format_args!("the host_id lease stays owned: {error}"));
            }
            _ => {}
        }
    }

    /// Waits for writes that may still land: a join that follows would meet them.
    fn drain(&mut self) {
        let limit = monotonic_now().plus_secs(DRAIN_SECONDS_MAX);
        if self.driver.unsettled() > 0 {
            self.log.warn(format_args!("waiting for a write of the host_id lease that has not ended"));
        }
        while self.driver.unsettled() > 0 && monotonic_now() < limit {
            self.turn(Some(limit));
            self.done.clear();
        }
        let Some(generation) = self.generation else { return };
        let outlived = self.driver.unsettled() > 0;
        if outlived {
            self.log.error(format_args!("given up with a write of the host_id lease that may still land"));
        }
        let overtaken = self.sole_if_ended_before.is_some_and(|end| monotonic_now() >= end);
        if overtaken {
            self.log.warn(format_args!(
                "a write of the host_id lease ended when another host might have taken it: joining anew waits"
            ));
        }
        if outlived || overtaken {
            self.global.records.outlived(self.config.lockspace, self.config.host, generation, self.log);
        }
    }
}
