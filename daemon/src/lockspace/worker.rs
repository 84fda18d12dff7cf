//! The life of one lockspace: open, join, leave. What lies between is in [`super::renewing`].

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, poll};
use sanlock_blockio::drive::{Area, Areas, Driver, EnvSource, Report as Driven, RunId, Spare, monotonic_now};
use sanlock_blockio::{Access, Asker, Disk, OpenError};
use sanlock_lease::delta::{
    DeltaAcquire, DeltaConfig, DeltaRelease, Event as HostEvent, HostScan, JoinError, Joined, LeaveError,
    RenewOutcome, Renewal, ScanOutcome,
};
use sanlock_lease::hosts::HostTable;
use sanlock_lease::machine::{Env, Input, IoFailure, LockspaceNow, Machine, NoHosts, Step};
use sanlock_lease::record::Bitmap;
use sanlock_lease::timing::MonoTime;
use sanlock_manager::rejoin::{fast_rejoin, remembered};
use sanlock_manager::{Event, LeaseWrites, LockspaceId};

use super::renewing::Renewing;
use super::{Control, Report, STACK, Shared, thread_name};
use crate::crew::{Station, Style};
use crate::global::Global;
use crate::log::Log;
use crate::mailbox::Mailbox;
use crate::nap;
use crate::records::asking::{self, Unread};

/// How long a lockspace that was left waits for its disk to be closed. On NFS a close takes a round trip.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// How long a lockspace that was left waits for writes that may still land, in seconds (lease-algorithms.md 1.2).
const DRAIN_SECONDS_MAX: u64 = 120;

/// How long a call may keep the thread that renews away: nobody else waits for it, and a renewal that is due meanwhile begins this much
/// later, once. So storage that is a little slow does not cost each renewal changes of threads. After a call of that length the next one
/// is left to another thread.
const AWAY: Duration = Duration::from_millis(100);

/// Where reports go.
pub(super) type Reporter = Box<dyn Fn(Report) + Send>;

/// The machines of a joined lockspace, and where they work.
pub(super) struct Residents {
    pub(super) renewal: RunId,
    pub(super) scan: RunId,
    areas: Areas,
}

/// The machines of a lockspace thread.
pub(super) enum LsMachine {
    Join(Box<DeltaAcquire>),
    Renew(Box<Renewal>),
    Scan(Box<HostScan>),
    Leave(Box<DeltaRelease>),
}

/// What they come to.
pub(super) enum LsOutcome {
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

/// What a join has put on record as claimed.
struct Claim {
    /// What was there before, 0 if nothing was.
    earlier: u64,
    joined: bool,
    given_back: bool,
}

/// What a lockspace thread has, wherever its lockspace stands.
pub(super) struct Worker {
    pub(super) ls: LockspaceId,
    pub(super) shared: Arc<Shared>,
    pub(super) global: Arc<Global>,
    pub(super) log: Log,
    control: Mailbox<Control>,
    report: Reporter,
    config: DeltaConfig,
    pub(super) driver: Driver<LsMachine, ()>,
    pub(super) done: Vec<Driven<(), LsOutcome>>,
    /// Of the lockspace, from its open on.
    disk: Option<Arc<Disk>>,
    pub(super) leave: Option<bool>,
    /// By when its last writes must have ended for its record to be the proof that no other instance followed.
    sole_if_ended_before: Option<MonoTime>,
    /// What a join has put on record as claimed.
    claim: Option<Claim>,
    /// What the next renewals are to carry, until the machine knows.
    pub(super) outgoing: Option<(HostEvent, Box<Bitmap>)>,
}

/// Body of the thread.
pub(super) fn run(
    ls: LockspaceId,
    shared: Arc<Shared>,
    table: Option<HostTable>,
    global: Arc<Global>,
    log: Log,
    control: Mailbox<Control>,
    report: Reporter,
) {
    global.raise_priority(&log);
    let driver = Driver::new(global.engine).map_err(std::io::Error::other);
    let (mut driver, station) = match driver.and_then(|driver| Ok((driver, Station::new()?))) {
        Ok(needs) => needs,
        Err(error) => {
            log.error(format_args!("{error}"));
            let failed = JoinError::Read(IoFailure::Os(libc::EMFILE));
            return report(Report::JoinFailed { ls, error: failed });
        }
    };
    driver.defer(AWAY);
    driver.keep_engines();
    driver.count_as(Some(Asker::Lockspace));
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
        disk: None,
        leave: None,
        sole_if_ended_before: None,
        claim: None,
        outgoing: None,
    };
    match worker.begin(table) {
        Ok((joined, residents)) => {
            let (global, log) = (Arc::clone(&worker.global), worker.log.clone());
            let prepare = Box::new(move || global.raise_priority(&log));
            let style = Style { prepare, ..Style::plain(&thread_name(ls), STACK, AWAY) };
            station.serve(Renewing::new(worker, &joined, residents), style);
        }
        Err(error) if worker.driver.unsettled() == 0 => {
            worker.close();
            (worker.report)(Report::JoinFailed { ls, error });
        }
        Err(error) => {
            worker.tell(Event::JoinDone { ls, result: Err(error) });
            worker.end();
        }
    }
}

impl Worker {
    /// Opens, joins, and makes the machines for what follows.
    ///
    /// # Errors
    /// The join failed.
    fn begin(&mut self, table: Option<HostTable>) -> Result<(Joined, Residents), JoinError> {
        let disk = self.open()?;
        self.disk = Some(Arc::clone(&disk));
        let joined = self.join(&disk)?;
        let residents = self.residents(&joined, &disk, table)?;
        self.shared.set_joined(&joined, disk);
        self.tell(Event::JoinDone { ls: self.ls, result: Ok(joined) });
        Ok((joined, residents))
    }

    /// The machines for what follows a join.
    ///
    /// # Errors
    /// The driver has no room for two machines, which a new one has.
    fn residents(
        &mut self,
        joined: &Joined,
        disk: &Arc<Disk>,
        table: Option<HostTable>,
    ) -> Result<Residents, JoinError> {
        let mut renewal = Renewal::new(self.config, joined);
        if let Some(seconds) = self.global.config.renewal_read_extend_sec {
            renewal.set_read_extend_secs(seconds);
        }
        // For the io timeout that lockspaces have unless told otherwise it was said at the start.
        if self.config.io_timeout != self.global.config.io_timeout {
            if let Some(text) = self.global.config.read_extend_excess(self.config.io_timeout) {
                self.log.warn(format_args!("{text}"));
            }
        }
        let scan = match table {
            Some(table) => HostScan::with_table(&self.config, joined.geometry, table),
            None => HostScan::new(&self.config, joined.geometry),
        };
        let areas =
            Areas::new().with_lockspace(Area { disk: Ok(Arc::clone(disk)), offset: self.shared.spec.offset });
        // A renewal, and what frees the lease in the end, waits for no place. Looks at the others are many, and may.
        self.driver.count_as(None);
        let renewal = self.driver.add_resident(LsMachine::Renew(Box::new(renewal)), (), areas.clone());
        self.driver.count_as(Some(Asker::Lockspace));
        let scan = self.driver.add_resident(LsMachine::Scan(Box::new(scan)), (), areas.clone());
        self.driver.count_as(None);
        match (renewal, scan) {
            (Ok(renewal), Ok(scan)) => Ok(Residents { renewal, scan, areas }),
            _ => Err(JoinError::Driver),
        }
    }

    /// Opens the disk, no longer than an io timeout.
    fn open(&self) -> Result<Arc<Disk>, JoinError> {
        let path = Path::new(OsStr::from_bytes(&self.shared.spec.path));
        let timeout = Duration::from_millis(self.shared.io_timeout.millis());
        Disk::open_timeout(path, Access::ReadWrite, Asker::Lockspace, timeout).map_err(|error| {
            self.log.error(format_args!("{error}"));
            if let OpenError::Os { errno: libc::EACCES, .. } = error {
                let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
                self.log.error(format_args!("the daemon runs as uid {uid} gid {gid}, which needs access"));
            }
            JoinError::Read(IoFailure::NotOpen(error.errno()))
        })
    }

    /// Asks the run directory, for an io timeout at most and while the join is wanted.
    fn records<R>(
        &self,
        what: &str,
        ask: impl FnOnce(Duration, &dyn Fn() -> bool) -> Result<R, Unread>,
    ) -> Result<R, JoinError> {
        let limit = Duration::from_millis(self.shared.io_timeout.millis());
        let answer = ask(limit, &|| !self.shared.is_gone() && !self.global.shutting_down());
        answer.map_err(|unread| match unread {
            Unread::Unwanted => JoinError::Stopped { freed: true },
            Unread::Failed(failure) => {
                let directory = self.global.config.run_dir.display();
                self.log.error(format_args!(
                    "{what} {directory}: {failure}; the lockspace is not joined: see whether that file system answers and can be written to, \
                     then add the lockspace again"
                ));
                JoinError::Records(failure)
            }
        })
    }

    fn join(&mut self, disk: &Arc<Disk>) -> Result<Joined, JoinError> {
        let spec = &self.shared.spec;
        let earlier =
            "what may be known of an earlier instance of this host, to be waited for, cannot be read in";
        let evidence =
            self.records(earlier, |limit, wanted| asking::evidence(&self.global, spec, limit, wanted))?;
        let claimed =
            self.records(earlier, |limit, wanted| asking::claimed(&self.global, spec, limit, wanted))?;
        let (fast, mut latest) = (fast_rejoin(evidence), remembered(evidence));
        self.log.debug(format_args!("joining, earlier instance: {evidence:?}, claimed: {claimed}"));
        let mut recorded = 0;
        let result = loop {
            let machine = DeltaAcquire::new(self.config, fast)
                .remembering(latest)
                .above(claimed)
                .recorded_up_to(recorded);
            let place = Area { disk: Ok(Arc::clone(disk)), offset: self.shared.spec.offset };
            let areas = Areas::new().with_lockspace(place);
            match self.run_once(LsMachine::Join(Box::new(machine)), areas) {
                Some(LsOutcome::Join(Err(JoinError::Unrecorded { generation, latest: seen }))) => {
                    // As soon as it is asked for: it may be carried out when nobody waits any more.
                    self.claim = Some(Claim { earlier: claimed, joined: false, given_back: false });
                    let what = "the generation that is about to be claimed cannot be recorded in";
                    let (records, spec) = (&self.global.records, &self.shared.spec);
                    if let Err(error) =
                        self.records(what, |limit, wanted| records.claim(spec, generation, limit, wanted))
                    {
                        break Err(error);
                    }
                    (recorded, latest) = (generation, Some(seen));
                }
                Some(LsOutcome::Join(result)) => break result,
                _ => break Err(JoinError::Driver),
            }
        };
        if let Some(claim) = &mut self.claim {
            claim.joined = result.is_ok();
        }
        self.take_claim_back();
        result
    }

    /// Once nothing that a join has written may land any more, and it has failed or the host id was given back, what is on record is what was before.
    /// Whoever adds the lockspace again is to find it so, therefore it is waited for. What is on record over an earlier claim stays when the host id is
    /// given back: that one may still land, here or in another place of that name.
    fn take_claim_back(&mut self) {
        let over = |claim: &mut Claim| !claim.joined || (claim.given_back && claim.earlier == 0);
        if self.driver.unsettled() > 0 {
            return;
        }
        if let Some(Claim { earlier, .. }) = self.claim.take_if(over) {
            let limit = Duration::from_millis(self.shared.io_timeout.millis());
            let wanted = || !self.global.shutting_down();
            // Later otherwise: a claim that stays costs a number.
            let _ = self.global.records.claim(&self.shared.spec, earlier, limit, &wanted);
        }
    }

    /// Runs one machine to its end, with whatever else runs.
    fn run_once(&mut self, machine: LsMachine, areas: Areas) -> Option<LsOutcome> {
        let env = Wanted { shared: &self.shared, global: &self.global };
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

    pub(super) fn again(&mut self, run: RunId) {
        let env = Wanted { shared: &self.shared, global: &self.global };
        self.driver.again(run, monotonic_now(), &env, &mut self.done);
    }

    /// Has others make the calls that are wanted, sleeps until something happens or `wake`, then drives the machines.
    fn turn(&mut self, wake: Option<MonoTime>) {
        // Not alone: there is nobody to relieve this thread.
        let _none = self.driver.errand(Spare::Nothing);
        self.sleep(wake);
        self.look();
    }

    fn turn_before(&mut self, limit: MonoTime) {
        self.turn(self.driver.next_wake().into_iter().chain([limit]).min());
    }

    /// Until something happens or `wake`.
    pub(super) fn sleep(&self, wake: Option<MonoTime>) {
        let mut fds = [
            PollFd::new(self.driver.completion_fd(), PollFlags::POLLIN),
            PollFd::new(self.control.fd(), PollFlags::POLLIN),
        ];
        // An error changes nothing: time and mailbox are looked at in any case.
        let _ = poll(&mut fds, nap::until(wake));
    }

    /// Takes what has happened, and drives the machines.
    pub(super) fn look(&mut self) {
        let env = Wanted { shared: &self.shared, global: &self.global };
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
        self.driver.poll(monotonic_now, &env, &mut self.done);
    }

    /// Whether nobody has said anything since the last look.
    pub(super) fn is_quiet(&self) -> bool {
        self.control.len() == 0
    }

    pub(super) fn tell(&self, event: Event) {
        (self.report)(Report::Event(event));
    }

    pub(super) fn renewal(&self, run: RunId) -> Option<&Renewal> {
        match self.driver.machine(run) {
            Some(LsMachine::Renew(renewal)) => Some(renewal),
            _ => None,
        }
    }

    pub(super) fn scan(&self, run: RunId) -> Option<&HostScan> {
        match self.driver.machine(run) {
            Some(LsMachine::Scan(scan)) => Some(scan),
            _ => None,
        }
    }

    /// What follows when it was told to leave: from the last attempt that runs to the last write.
    pub(super) fn leave(&mut self, Residents { renewal, scan, areas }: Residents) {
        self.depart(renewal, areas);
        let table = self.scan(scan).map(|scan| scan.table().clone());
        self.sole_if_ended_before = self.renewal(renewal).and_then(Renewal::sole_if_ended_before);
        self.driver.retire(renewal);
        self.driver.retire(scan);
        if let Some(table) = table {
            (self.report)(Report::Hosts { ls: self.ls, table });
        }
        self.end();
    }

    /// The lockspace is left. If a write of its lease may still land the thread stays until it has ended, and says so: until then nothing of
    /// this daemon relies on what is in that sector.
    fn end(&mut self) {
        let writes = self.drain();
        self.take_claim_back();
        if writes != LeaseWrites::Outstanding {
            self.close();
        }
        self.tell(Event::Left { ls: self.ls, writes });
        if writes != LeaseWrites::Outstanding {
            return;
        }
        while self.driver.unsettled() > 0 {
            self.turn(self.driver.next_wake());
            self.done.clear();
        }
        self.take_claim_back();
        self.tell(Event::LeaseSettled { ls: self.ls });
    }

    /// Closes the disk, if nothing of this lockspace is under way any more: who hears that it was left may want to deactivate the volume, or
    /// unmount the file system. Waits for reads that nobody wants any more, and for the close, but not for long.
    fn close(&mut self) {
        self.shared.forget_place();
        // All uses but our own.
        let _none = self.driver.close(false);
        if self.disk.take().is_some_and(|disk| !Disk::close_within(disk, CLOSE_MAX)) {
            self.log.warn(format_args!("the lockspace is left while its disk is still open"));
        }
    }

    /// Frees the host_id lease if that is wanted and allowed. Waits for an attempt that runs, but not for long.
    fn depart(&mut self, renewal: RunId, areas: Areas) {
        let limit = monotonic_now().plus_millis(2 * self.shared.io_timeout.millis());
        while self.driver.is_busy(renewal) && monotonic_now() < limit {
            self.done.clear();
            self.turn_before(limit);
        }
        self.done.clear();
        if self.leave != Some(true) {
            return;
        }
        let Some(machine) = self.renewal(renewal).and_then(Renewal::release) else {
            self.log
                .warn(format_args!("the host_id lease stays owned: its last renewal failed or is not over, or an earlier one that failed may still land"));
            return;
        };
        match self.run_once(LsMachine::Leave(Box::new(machine)), areas) {
            Some(LsOutcome::Leave(Ok(()))) => {
                self.log.debug(format_args!("host_id lease freed"));
                if let Some(claim) = &mut self.claim {
                    claim.given_back = true;
                }
            }
            Some(LsOutcome::Leave(Err(error))) => {
                self.log.warn(format_args!("the host_id lease stays owned: {error}"));
            }
            _ => {}
        }
    }

    /// Waits for writes that may still land, but not for long: somebody waits for the lockspace to be gone.
    fn drain(&mut self) -> LeaseWrites {
        let limit = monotonic_now().plus_secs(DRAIN_SECONDS_MAX);
        if self.driver.unsettled() > 0 {
            self.log.warn(format_args!("waiting for a write of the host_id lease that has not ended"));
        }
        while self.driver.unsettled() > 0 && monotonic_now() < limit {
            self.turn_before(limit);
            self.done.clear();
        }
        if self.driver.unsettled() > 0 {
            return LeaseWrites::Outstanding;
        }
        let overtaken = self.sole_if_ended_before.is_some_and(|end| monotonic_now() >= end);
        if overtaken {
            self.log.warn(format_args!(
                "a write of the host_id lease ended when another host might have taken it: joining anew waits"
            ));
        }
        match &self.claim {
            _ if overtaken => LeaseWrites::Overtaken,
            Some(claim) if claim.given_back => LeaseWrites::Freed,
            _ => LeaseWrites::Ended,
        }
    }
}
