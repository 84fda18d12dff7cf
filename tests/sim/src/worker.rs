//! The thread of a lockspace, as in `daemon/src/lockspace/worker.rs`: joins, renews, looks at the other hosts, leaves.

use crate::daemon::{Message, Source, Thread};
use crate::fault::Fault;
use crate::host::JobKey;
use crate::sabotage::Sabotage;
use crate::work::{Outcome, Work};
use crate::world::{Event, World};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::delta::{DeltaAcquire, HostScan, Instance, JoinError, JoinOutcome, RenewOutcome, Renewal};
use sanlock_lease::hosts::{HostNews, HostTable};
use sanlock_lease::machine::{Input, IoFailure, LockspaceNow};
use sanlock_lease::timing::{IoTimeout, MonoTime};
use sanlock_manager::{Event as Told, LeaseWrites, LockspaceId};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const EIO: i32 = 5;
/// How long a lockspace that was left waits for writes that may still land.
const DRAIN_SECS: u64 = 120;

/// Whether a lockspace is joined, or wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Wanted,
    /// It has failed, and its thread has seen that before the front.
    FailedUnseen,
    GivenUp,
}

/// What the thread publishes.
#[derive(Debug)]
pub struct Shared {
    pub(crate) io_timeout: IoTimeout,
    standing: Cell<Standing>,
    /// Others may have taken over before it was renewed.
    overdue: Cell<bool>,
    pub(crate) generation: Cell<u64>,
    pub(crate) last_good: Cell<MonoTime>,
    pub(crate) hosts: RefCell<Option<Rc<HostTable>>>,
}

impl Shared {
    pub(crate) fn new(io_timeout: IoTimeout) -> Self {
        Self {
            io_timeout,
            standing: Cell::new(Standing::Wanted),
            overdue: Cell::new(false),
            generation: Cell::new(0),
            last_good: Cell::new(MonoTime::default()),
            hosts: RefCell::new(None),
        }
    }

    /// The front gives it up.
    pub(crate) fn set_gone(&self) {
        self.standing.set(Standing::GivenUp);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.standing.get() != Standing::Wanted
    }

    /// What a task's machine is told.
    pub(crate) fn state(&self, now: MonoTime) -> LockspaceNow {
        let generation = self.generation.get();
        let age = now.secs_since(self.last_good.get());
        if generation == 0 || self.is_gone() || age >= self.io_timeout.renewal_fail_secs() {
            LockspaceNow::Gone
        } else {
            LockspaceNow::Alive { generation }
        }
    }

    /// Takes in a good renewal. Whether the front is to hear of it.
    fn renewed(&self, time: MonoTime, now: MonoTime, dead_secs: u64) -> bool {
        let dead = now.secs_since(self.last_good.get()) >= dead_secs;
        self.overdue.set(self.overdue.get() || dead);
        if !self.is_gone() && self.state(now) == LockspaceNow::Gone {
            self.standing.set(Standing::FailedUnseen);
        }
        self.last_good.set(self.last_good.get().max(time));
        !self.overdue.get() && self.standing.get() != Standing::FailedUnseen
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Joining,
    Renewing,
    Departing {
        until: MonoTime,
    },
    Leaving,
    Draining {
        until: MonoTime,
        failed: bool,
    },
    /// Left, but for a write that may still land.
    Late,
    Over,
}

/// What is known of earlier instances when a join begins.
#[derive(Clone, Copy, Debug)]
pub struct Knowledge {
    /// The generation that needs no long wait.
    pub(crate) fast: Option<u64>,
    pub(crate) remembered: Option<Instance>,
    /// The generation that the records of this machine told, 0 if none.
    pub(crate) recorded: u64,
    /// The largest generation of a claim that may still land, 0 if none.
    pub(crate) claimed: u64,
}

/// The thread.
#[derive(Debug)]
pub struct Worker {
    pub(crate) disk: u8,
    pub(crate) shared: Rc<Shared>,
    knowledge: Knowledge,
    joined: bool,
    given_back: bool,
    table: Option<HostTable>,
    stage: Stage,
    lost: bool,
    published: MonoTime,
    leave: Option<bool>,
    /// Looks that were due with a renewal.
    looks: u32,
}

impl Worker {
    pub(crate) fn new(disk: u8, shared: Rc<Shared>, knowledge: Knowledge, table: Option<HostTable>) -> Self {
        let stage = Stage::Joining;
        Self {
            disk,
            shared,
            knowledge,
            joined: false,
            given_back: false,
            table,
            stage,
            lost: false,
            published: MonoTime::default(),
            leave: None,
            looks: 0,
        }
    }
}

impl World {
    fn worker(&mut self, host: usize, ls: u64) -> Option<&mut Worker> {
        self.daemon(host)?.workers.get_mut(&ls)
    }

    pub(crate) fn worker_join(&mut self, host: usize, ls: u64) {
        let Some((disk, known)) = self.worker(host, ls).map(|w| (w.disk, w.knowledge)) else { return };
        self.checks.marks.fast_rejoins += u64::from(known.fast.is_some());
        self.join_recorded_up_to(host, ls, disk, known, 0);
    }

    /// `limit`: the largest generation that is recorded as claimed.
    fn join_recorded_up_to(&mut self, host: usize, ls: u64, disk: u8, known: Knowledge, limit: u64) {
        let config = self.hosts[host].delta_config(disk);
        let unlimited = self.sabotaged(Sabotage::ClaimsUnrecorded);
        let join = DeltaAcquire::new(config, known.fast)
            .remembering(known.remembered)
            .above(known.claimed)
            .recorded_up_to(if unlimited { u64::MAX } else { limit });
        self.start(host, JobKey::Join(ls), Work::Join(Box::new(join)));
    }

    /// A join needs a generation that is not recorded as claimed. Whether it goes on.
    fn records_claim(&mut self, host: usize, ls: u64, generation: u64, latest: Instance) -> bool {
        let Some(worker) = self.worker(host, ls) else { return false };
        worker.knowledge.remembered = Some(latest);
        let (disk, known) = (worker.disk, worker.knowledge);
        if self.strikes(Fault::RecordUnsaved) {
            return false;
        }
        let h = &mut self.hosts[host];
        h.claims_recorded.insert((disk, h.claims), generation);
        self.join_recorded_up_to(host, ls, disk, known, generation);
        true
    }

    /// Nothing that a join has written may still land: if it has failed, or the host id was given back, what is on record is what was before.
    fn claim_over(&mut self, host: usize, ls: u64) {
        let Some(worker) = self.worker(host, ls) else { return };
        let (disk, claimed) = (worker.disk, worker.knowledge.claimed);
        if worker.joined && (claimed > 0 || !worker.given_back) {
            return;
        }
        let h = &mut self.hosts[host];
        match claimed {
            0 => drop(h.claims_recorded.remove(&(disk, h.claims))),
            claimed => drop(h.claims_recorded.insert((disk, h.claims), claimed)),
        }
    }

    /// A message from the front.
    pub(crate) fn worker_order(&mut self, host: usize, ls: u64, message: Message) {
        match message {
            Message::Leave { release } => {
                if let Some(worker) = self.worker(host, ls) {
                    worker.leave = Some(release);
                }
            }
            Message::Outgoing { mut event, bitmap } => {
                event.data += u64::from(self.sabotaged(Sabotage::EventsMixed));
                let job = self.hosts[host].jobs.get_mut(&JobKey::Renewal(ls));
                if let Some(renewal) = job.and_then(|job| job.work.renewal_mut()) {
                    renewal.set_outgoing(event, *bitmap);
                }
            }
            Message::Changed => {
                for key in [JobKey::Join(ls), JobKey::Renewal(ls), JobKey::Scan(ls), JobKey::Leave(ls)] {
                    if self.hosts[host].jobs.get(&key).is_some_and(|j| !j.done) {
                        self.deliver(host, key, Input::Tick);
                    }
                }
            }
            _ => {}
        }
        self.worker_look(host, ls);
    }

    /// A machine of the thread is done.
    pub(crate) fn worker_done(&mut self, host: usize, ls: u64, outcome: Outcome) {
        match outcome {
            Outcome::Join(outcome) => self.join_ended(host, ls, outcome),
            Outcome::Renewal(outcome) => self.renewal_ended(host, ls, outcome),
            Outcome::Scan(outcome) => {
                self.notices(host, ls, outcome.news);
                let table = self.hosts[host].jobs.get(&JobKey::Scan(ls)).and_then(|j| j.work.table());
                let table = table.map(|t| Rc::new(t.clone()));
                if let Some(worker) = self.worker(host, ls) {
                    worker.shared.hosts.replace(table);
                }
                if let Some(due) = self.scan_due(host, ls) {
                    self.worker_timer(host, ls, due);
                }
            }
            Outcome::Leave(result) => {
                self.checks.marks.left_orderly += u64::from(result.is_ok());
                if let Some(worker) = self.worker(host, ls) {
                    worker.given_back = result.is_ok();
                }
                if self.worker(host, ls).is_some_and(|w| w.stage == Stage::Leaving) {
                    self.drain(host, ls, false);
                }
            }
            Outcome::Take(_)
            | Outcome::Acquire(_)
            | Outcome::Convert(_)
            | Outcome::Release(_)
            | Outcome::Asking(_) => {}
        }
        self.worker_look(host, ls);
    }

    fn join_ended(&mut self, host: usize, ls: u64, outcome: JoinOutcome) {
        let id = LockspaceId(ls);
        if let Err(error) = &outcome {
            self.refused_id(error);
        }
        let outcome = match outcome {
            Err(JoinError::Unrecorded { generation, latest })
                if self.records_claim(host, ls, generation, latest) =>
            {
                return;
            }
            Err(JoinError::Unrecorded { .. }) => Err(JoinError::Records(IoFailure::Os(EIO))),
            outcome => outcome,
        };
        let joined = match outcome {
            Ok(joined) => joined,
            Err(error) if self.unsettled(host, ls) => {
                let told = Told::JoinDone { ls: id, result: Err(error) };
                self.report(host, Thread::Lockspace(ls), told);
                return self.drain(host, ls, true);
            }
            Err(error) => {
                self.claim_over(host, ls);
                if let Some(worker) = self.worker(host, ls) {
                    worker.stage = Stage::Over;
                }
                let from = Source::Thread(Thread::Lockspace(ls));
                return self.send(
                    host,
                    from,
                    Thread::Front,
                    Message::JoinFailed { ls: id, error: Box::new(error) },
                );
            }
        };
        self.checks.marks.joins += 1;
        let Some(worker) = self.worker(host, ls) else { return };
        worker.joined = true;
        worker.shared.last_good.set(joined.last_good);
        worker.shared.generation.set(joined.generation());
        worker.published = joined.last_good;
        worker.stage = Stage::Renewing;
        let (disk, recorded, table) = (worker.disk, worker.knowledge.recorded, worker.table.take());
        let config = self.hosts[host].delta_config(disk);
        let (name, life) = (self.hosts[host].id, self.life_of(host));
        let mut told = joined;
        if self.sabotaged(Sabotage::GenerationMisheard) && joined.generation() > 1 {
            told.leader.owner_generation = (joined.generation() - 1).into();
            if let Some(worker) = self.worker(host, ls) {
                worker.shared.generation.set(told.generation());
            }
        }
        self.checks.not_joined_before(name, disk, recorded, joined.generation());
        let io_timeout = config.io_timeout;
        self.checks.joined(name, disk, life, joined.generation(), (joined.last_good, io_timeout));
        self.report(host, Thread::Lockspace(ls), Told::JoinDone { ls: id, result: Ok(told) });
        let scan = match table {
            Some(table) => HostScan::with_table(&config, joined.geometry, table),
            None => HostScan::new(&config, joined.geometry),
        };
        self.hosts[host].jobs.remove(&JobKey::Join(ls));
        self.add_resident(host, JobKey::Renewal(ls), Work::Renewal(Box::new(Renewal::new(config, &joined))));
        self.add_resident(host, JobKey::Scan(ls), Work::Scan(Box::new(scan)));
        self.scan_again(host, ls);
    }

    fn scan_again(&mut self, host: usize, ls: u64) {
        if self.hosts[host].jobs.get(&JobKey::Scan(ls)).is_some_and(|j| j.done) {
            self.start_again(host, JobKey::Scan(ls));
        }
    }

    /// With a renewal.
    fn scan_with_renewal(&mut self, host: usize, ls: u64) {
        let seldom = self.sabotaged(Sabotage::LooksSeldom);
        if let Some(worker) = self.worker(host, ls) {
            worker.looks += 1;
            if seldom && worker.looks % 3 != 0 {
                return;
            }
        }
        self.scan_again(host, ls);
    }

    /// When it is to look without one: at host ids that were never used, or once more at what failed.
    fn scan_due(&self, host: usize, ls: u64) -> Option<MonoTime> {
        let scan = self.hosts[host].jobs.get(&JobKey::Scan(ls)).and_then(|j| j.work.scan());
        scan.and_then(HostScan::due).filter(|_| !self.sabotaged(Sabotage::LooksSeldom))
    }

    fn notices(&mut self, host: usize, ls: u64, news: Vec<HostNews>) {
        if self.sabotaged(Sabotage::NoticesUnseen) {
            return;
        }
        for news in news {
            if let HostNews::Notice { from, generation, event } = news {
                let told = Told::Noticed { ls: LockspaceId(ls), from, generation, event };
                self.report(host, Thread::Lockspace(ls), told);
            }
        }
    }

    /// Makes a good renewal known: to the machines at once, to the front by message.
    fn publish(&mut self, host: usize, ls: u64, timestamp: MonoTime) {
        let Some(worker) = self.worker(host, ls) else { return };
        worker.published = timestamp;
        let shared = Rc::clone(&worker.shared);
        let disk = worker.disk;
        let (name, life) = (self.hosts[host].id, self.life_of(host));
        let now = self.hosts[host].clock.at(self.now);
        if !shared.renewed(timestamp, now, shared.io_timeout.host_dead_secs(self.hosts[host].fire)) {
            return;
        }
        self.checks.renewed(name, disk, life, timestamp, now);
        let told = Told::Renewed { ls: LockspaceId(ls), timestamp, read_ms: 1, write_ms: 1 };
        self.report(host, Thread::Lockspace(ls), told);
    }

    fn renewal_ended(&mut self, host: usize, ls: u64, outcome: RenewOutcome) {
        let id = LockspaceId(ls);
        if !self.worker(host, ls).is_some_and(|w| w.stage == Stage::Renewing) {
            return; // nobody listens any more
        }
        match outcome {
            RenewOutcome::Renewed(renewed) => self.publish(host, ls, renewed.last_good),
            RenewOutcome::Failed(failure) => {
                let (code, text) = (ReturnCode::from(&failure).0, failure.to_string());
                self.report(host, Thread::Lockspace(ls), Told::RenewalFailed { ls: id, code, text });
            }
            RenewOutcome::Corrupt(corrupt) => {
                let (code, text) = (ReturnCode::from(&corrupt).0, corrupt.to_string());
                if let Some(worker) = self.worker(host, ls) {
                    worker.lost = true;
                    worker.shared.set_gone();
                    let disk = worker.disk;
                    let name = self.hosts[host].id;
                    self.checks.lost(name, disk);
                }
                self.report(host, Thread::Lockspace(ls), Told::Corrupt { ls: id, code, text });
            }
        }
        self.scan_with_renewal(host, ls);
    }

    /// What is due.
    pub(crate) fn worker_look(&mut self, host: usize, ls: u64) {
        let now = self.hosts[host].clock.at(self.now);
        if !self.runs(host, Thread::Lockspace(ls)) {
            return;
        }
        let Some(worker) = self.worker(host, ls) else { return };
        match worker.stage {
            Stage::Renewing if worker.leave.is_some() => {
                let until = now.plus_secs(2 * worker.shared.io_timeout.secs());
                worker.stage = Stage::Departing { until };
                self.worker_timer(host, ls, until);
                self.worker_look(host, ls);
            }
            Stage::Renewing => {
                self.renew(host, ls, now);
                if self.scan_due(host, ls).is_some_and(|due| due <= now) {
                    self.scan_again(host, ls);
                }
            }
            Stage::Departing { until } => {
                if !self.is_busy(host, JobKey::Renewal(ls)) || now >= until {
                    self.depart(host, ls);
                }
            }
            Stage::Draining { until, failed } => {
                if !self.unsettled(host, ls) || now >= until {
                    self.thread_ends(host, ls, failed);
                }
            }
            Stage::Late => {
                if !self.unsettled(host, ls) {
                    self.late_write_ended(host, ls);
                }
            }
            Stage::Joining | Stage::Leaving | Stage::Over => {}
        }
    }

    fn is_busy(&self, host: usize, key: JobKey) -> bool {
        self.hosts[host].jobs.get(&key).is_some_and(|j| !j.done)
    }

    fn worker_timer(&mut self, host: usize, ls: u64, when: MonoTime) {
        let when = self.hosts[host].clock.when(when).max(self.now + 1);
        let life = self.life_of(host);
        self.at(when, Event::Worker { host, life, ls });
    }

    fn renew(&mut self, host: usize, ls: u64, now: MonoTime) {
        let Some(job) = self.hosts[host].jobs.get(&JobKey::Renewal(ls)) else { return };
        let Some(renewal) = job.work.renewal() else { return };
        let (due, last_good, busy) = (renewal.due(), renewal.last_good(), !job.done);
        let Some(worker) = self.worker(host, ls) else { return };
        let lost = worker.lost;
        if worker.published < last_good {
            self.publish(host, ls, last_good);
        }
        if lost || busy {
            return;
        }
        if due <= now {
            self.start_again(host, JobKey::Renewal(ls));
        } else {
            self.worker_timer(host, ls, due);
        }
    }

    fn depart(&mut self, host: usize, ls: u64) {
        let renewal = self.hosts[host].jobs.get(&JobKey::Renewal(ls)).and_then(|j| j.work.renewal());
        let machine = renewal.and_then(Renewal::release);
        let Some(worker) = self.worker(host, ls) else { return };
        match machine.filter(|_| worker.leave == Some(true)) {
            Some(machine) => {
                worker.stage = Stage::Leaving;
                self.start(host, JobKey::Leave(ls), Work::Leave(Box::new(machine)));
            }
            None => self.drain(host, ls, false),
        }
    }

    /// Whether a write of the thread may still land.
    fn unsettled(&self, host: usize, ls: u64) -> bool {
        let keys = [JobKey::Join(ls), JobKey::Renewal(ls), JobKey::Leave(ls)];
        keys.iter().any(|key| self.writes_of(host, *key) > 0)
    }

    fn drain(&mut self, host: usize, ls: u64, failed: bool) {
        let until = self.hosts[host].clock.at(self.now).plus_secs(DRAIN_SECS);
        if let Some(worker) = self.worker(host, ls) {
            worker.stage = Stage::Draining { until, failed };
        }
        self.worker_timer(host, ls, until);
        self.worker_look(host, ls);
    }

    fn thread_ends(&mut self, host: usize, ls: u64, failed: bool) {
        let unsettled = self.unsettled(host, ls);
        if !unsettled {
            self.claim_over(host, ls);
        }
        self.checks.marks.drained_in_vain += u64::from(unsettled);
        let now = self.hosts[host].clock.at(self.now);
        let renewal = self.hosts[host].jobs.get(&JobKey::Renewal(ls)).and_then(|j| j.work.renewal());
        let overtaken = renewal.and_then(Renewal::sole_if_ended_before).is_some_and(|end| now >= end);
        self.checks.marks.overtaken += u64::from(overtaken);
        let from = Source::Thread(Thread::Lockspace(ls));
        let scan = self.hosts[host].jobs.get(&JobKey::Scan(ls)).and_then(|j| j.work.table());
        if let Some(table) = scan.filter(|_| !failed).cloned() {
            let table = Box::new(table);
            self.send(host, from, Thread::Front, Message::Hosts { ls: LockspaceId(ls), table });
        }
        for key in [JobKey::Join(ls), JobKey::Renewal(ls), JobKey::Scan(ls), JobKey::Leave(ls)] {
            if self.writes_of(host, key) == 0 {
                self.hosts[host].jobs.remove(&key);
            }
        }
        if let Some(worker) = self.worker(host, ls) {
            worker.stage = if unsettled { Stage::Late } else { Stage::Over };
            let disk = worker.disk;
            let name = self.hosts[host].id;
            self.checks.left(name, disk, now);
        }
        let freed = self.worker(host, ls).is_some_and(|worker| worker.given_back);
        let writes = match (unsettled, overtaken) {
            (true, _) => LeaseWrites::Outstanding,
            (false, true) => LeaseWrites::Overtaken,
            (false, false) if freed => LeaseWrites::Freed,
            (false, false) => LeaseWrites::Ended,
        };
        self.report(host, Thread::Lockspace(ls), Told::Left { ls: LockspaceId(ls), writes });
    }

    /// The last thing that a thread waited for which had left its lockspace.
    fn late_write_ended(&mut self, host: usize, ls: u64) {
        self.claim_over(host, ls);
        for key in [JobKey::Join(ls), JobKey::Renewal(ls), JobKey::Leave(ls)] {
            self.hosts[host].jobs.remove(&key);
        }
        if let Some(worker) = self.worker(host, ls) {
            worker.stage = Stage::Over;
        }
        self.checks.marks.settled_late += 1;
        self.report(host, Thread::Lockspace(ls), Told::LeaseSettled { ls: LockspaceId(ls) });
    }

    /// Whether the lockspace of this job has been left by a thread that only waits for a write.
    pub(crate) fn is_left_behind(&self, host: usize, job: JobKey) -> bool {
        let (JobKey::Join(ls) | JobKey::Renewal(ls) | JobKey::Leave(ls)) = job else { return false };
        let worker = self.hosts[host].daemon.as_ref().and_then(|daemon| daemon.workers.get(&ls));
        worker.is_some_and(|worker| worker.stage == Stage::Late)
    }

    /// Whether nothing of the thread is left.
    pub(crate) fn is_over(&self, host: usize, ls: LockspaceId) -> bool {
        let worker = self.hosts[host].daemon.as_ref().and_then(|daemon| daemon.workers.get(&ls.0));
        worker.is_none_or(|worker| worker.stage == Stage::Over)
    }

    /// What a machine of the thread is told: a join is wanted until the lockspace is marked gone.
    pub(crate) fn wanted(&self, host: usize, ls: u64) -> LockspaceNow {
        let worker = self.hosts[host].daemon.as_ref().and_then(|d| d.workers.get(&ls));
        if worker.is_none_or(|w| w.shared.is_gone()) && !self.sabotaged(Sabotage::WritesWhenGone) {
            LockspaceNow::Gone
        } else {
            LockspaceNow::Alive { generation: 0 }
        }
    }
}
