//! The thread of acquires, conversions, releases and retracts, as in `daemon/src/resources/`.

use crate::daemon::{Message, Source, Thread};
use crate::host::{JobKey, Path};
use crate::layout;
use crate::sabotage::Sabotage;
use crate::work::{Outcome, Work};
use crate::worker::Shared;
use crate::world::{Event, World};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::geometry::Geometry;
use sanlock_lease::machine::{Input, LockspaceNow};
use sanlock_lease::name::Name;
use sanlock_lease::paxos::acquire::{AcquireOptions, AcquireOutcome, Mode};
use sanlock_lease::paxos::convert::ConvertOutcome;
use sanlock_lease::paxos::release::{ReleaseOutcome, Released};
use sanlock_lease::paxos::take::Taken;
use sanlock_lease::paxos::{
    AcquireError, Held, PaxosConfig, PaxosConvert, PaxosRelease, PaxosTake, ReleaseError,
};
use sanlock_lease::record::HostBlock;
use sanlock_lease::text::DiskSpec;
use sanlock_lease::timing::MonoTime;
use sanlock_lease::verify::LeaderError;
use sanlock_manager::{Event as Told, LockspaceId, TaskId};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// Retries of a shared acquire, as configured by default.
const SH_RETRIES: u32 = 8;
/// How often a machine may want something more when its lockspace is gone (L5). It finds out before it writes or waits; the reads that
/// come before that, of leader, ballots, owner and leader again, may still follow one another.
const GONE_ON_MAX: u32 = 8;

/// What is to be run, as in `daemon/src/resources/`.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Take a resource, and read its value block if the flag says so.
    Acquire(AcquireOptions, bool),
    /// Change the mode of one that is held; to shared, what is to be in its value block is written first.
    Convert(AcquireOptions, Held, Option<Arc<[u8]>>),
    /// Take back what an earlier conversion may have left.
    Erase(Held),
    /// Give it back, after writing its value block and with a new name if there are any.
    Release(Held, Option<Arc<[u8]>>, Option<Name>),
    /// Take back what an acquire or an earlier release may have left: with the block of the hold, or the one that the acquire left, after writing
    /// the value block, and of a lease that was to get this name.
    Retract(Geometry, Option<HostBlock>, Option<HostBlock>, Option<Arc<[u8]>>, Option<Name>),
}

/// A task.
#[derive(Debug)]
pub struct Task {
    pub(crate) id: TaskId,
    pub(crate) ls: LockspaceId,
    pub(crate) config: PaxosConfig,
    pub(crate) kind: Kind,
    /// The resource its disk is.
    resource: Option<u8>,
    client_gone: Cell<bool>,
    /// The legs whose disks could be opened, a bit each.
    open: Cell<u8>,
    settling: Cell<bool>,
    /// How often its machine wanted something more after its lockspace was gone.
    gone_on: Cell<u32>,
    shared: RefCell<Option<Rc<Shared>>>,
}

impl Task {
    /// As in the manager's action.
    pub(crate) fn new(
        id: TaskId,
        ls: LockspaceId,
        config: PaxosConfig,
        kind: Kind,
        disks: &[DiskSpec],
    ) -> Self {
        let resource = disks.first().and_then(|place| layout::resource_at(place, config.geometry));
        Self {
            id,
            ls,
            config,
            kind,
            resource,
            client_gone: Cell::new(false),
            open: Cell::new(0),
            settling: Cell::new(false),
            gone_on: Cell::new(0),
            shared: RefCell::new(None),
        }
    }

    /// The very machine that the daemon runs for this.
    fn work(&self) -> Work {
        match &self.kind {
            Kind::Acquire(options, value) => {
                Work::Take(Box::new(PaxosTake::new(self.config, *options, SH_RETRIES, *value)))
            }
            Kind::Erase(held) => Work::Convert(Box::new(PaxosConvert::erase(self.config, *held))),
            Kind::Convert(_, held, value) if !held.is_shared() => {
                Work::Convert(Box::new(PaxosConvert::to_shared(self.config, *held).with_value(value.clone())))
            }
            Kind::Convert(options, held, _) => {
                Work::Convert(Box::new(PaxosConvert::to_exclusive(self.config, *options, *held)))
            }
            Kind::Release(held, value, name) => Work::Release(Box::new(
                PaxosRelease::new(self.config, *held).with_value(value.clone()).renamed(*name),
            )),
            Kind::Retract(geometry, hold, attempt, value, name) => Work::Release(Box::new(
                PaxosRelease::retract(self.config, *geometry)
                    .of_hold(*hold)
                    .of_attempt(*attempt)
                    .with_value(value.clone())
                    .renamed(*name),
            )),
        }
    }

    fn asks_to_share(&self) -> bool {
        matches!(self.kind, Kind::Acquire(options, _) if options.mode == Mode::ShortHold)
    }

    /// Whether it takes a lease, rather than changing or giving up one.
    pub(crate) fn takes(&self) -> bool {
        matches!(self.kind, Kind::Acquire(..))
    }

    /// Whether the disk of a leg could be opened.
    pub(crate) fn has_open(&self, leg: u8) -> bool {
        self.open.get() & (1 << leg) != 0
    }

    /// Its resource.
    pub(crate) fn resource(&self) -> Option<u8> {
        self.resource
    }

    /// What its machine is told: of the lockspace, and whether its client lives.
    pub(crate) fn env(&self, now: MonoTime) -> (LockspaceNow, bool) {
        let shared = self.shared.borrow();
        let state = shared.as_ref().map_or(LockspaceNow::Gone, |s| s.state(now));
        (state, !self.client_gone.get())
    }

    /// The snapshot of the host table.
    pub(crate) fn hosts(&self) -> Option<Rc<sanlock_lease::hosts::HostTable>> {
        self.shared.borrow().as_ref().and_then(|s| s.hosts.borrow().clone())
    }
}

impl World {
    /// A message from the front.
    pub(crate) fn resource_order(&mut self, host: usize, message: Message) {
        match message {
            Message::Start(task) => self.open_task(host, *task),
            Message::ClientGone(task) => {
                let Some(task) = self.daemon(host).and_then(|d| d.tasks.get(&task.0).cloned()) else {
                    return;
                };
                task.client_gone.set(true);
                self.task_ticks(host);
            }
            Message::Changed => self.task_ticks(host),
            _ => {}
        }
    }

    fn task_ticks(&mut self, host: usize) {
        let keys: Vec<JobKey> = self.hosts[host]
            .jobs
            .iter()
            .filter(|(key, job)| matches!(key, JobKey::Task(_)) && !job.done)
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            self.deliver(host, key, Input::Tick);
        }
    }

    /// L5: a task that takes something wants an operation or a later time.
    pub(crate) fn goes_on(&mut self, host: usize, key: JobKey, now: MonoTime) {
        let JobKey::Task(id) = key else { return };
        let Some(daemon) = self.hosts[host].daemon.as_ref() else { return };
        let Some(task) = daemon.tasks.get(&id) else { return };
        let takes = matches!(task.kind, Kind::Acquire(..) | Kind::Convert(..));
        if !takes || !(daemon.shutting_down || task.env(now).0 == LockspaceNow::Gone) {
            return;
        }
        task.gone_on.set(task.gone_on.get() + 1);
        let times = task.gone_on.get();
        if times > GONE_ON_MAX {
            let (name, resource) = (self.hosts[host].id, task.resource);
            self.checks
                .violated(format!("L5: {name:?} goes on taking {resource:?} in a lockspace that is gone"));
        }
    }

    /// Opening fails, or hangs, like every other operation on dead storage.
    fn open_task(&mut self, host: usize, task: Task) {
        let Some(daemon) = self.daemon(host) else { return };
        let Some(worker) = daemon.workers.get(&task.ls.0) else {
            let told = Told::StartFailed { task: task.id, code: ReturnCode::ENOSPC.0 };
            return self.report(host, Thread::Resources, told);
        };
        task.shared.replace(Some(Rc::clone(&worker.shared)));
        if let Some(resource) = task.resource.filter(|_| task.takes()) {
            let id = self.hosts[host].id;
            self.checks.value_forgotten(resource, id);
        }
        let Some(daemon) = self.daemon(host) else { return };
        let id = task.id;
        let (millis, life) = (task.config.io_timeout.millis(), daemon.life);
        let (mut open, mut hangs, mut code) = (0, false, -5);
        for leg in 0..self.settings.legs {
            let disk = task.resource.map_or(0, |resource| layout::leg_disk(resource, leg));
            let path = self.hosts[host].path(disk, self.now);
            if task.resource.is_some_and(|resource| self.is_withheld(resource, task.takes())) {
                code = ReturnCode::ENOENT.0;
                continue; // somebody is about to make it anew
            }
            if path == Path::Good || self.dice.per_mille(500) {
                open |= 1 << leg;
            } else {
                hangs |= matches!(path, Path::Hangs { .. });
            }
        }
        task.open.set(open);
        let Some(daemon) = self.daemon(host) else { return };
        daemon.tasks.insert(id.0, Rc::new(task));
        if hangs {
            self.at(self.now + millis * 1000, Event::OpenFailed { host, life, task: id.0 });
        } else {
            self.opened(host, id.0, code);
        }
    }

    /// An open has taken too long.
    pub(crate) fn open_failed(&mut self, host: usize, task: u64) {
        self.opened(host, task, ReturnCode::AIO_TIMEOUT.0);
    }

    /// Every disk is open, or will not be: a majority is enough.
    fn opened(&mut self, host: usize, task: u64, code: i32) {
        let Some(found) = self.daemon(host).and_then(|d| d.tasks.get(&task).cloned()) else { return };
        let open = found.open.get().count_ones();
        if open < self.disk.majority() {
            return self.start_failed(host, task, code);
        }
        self.checks.marks.opened_in_part += u64::from(open < u32::from(self.settings.legs));
        self.start_task(host, task);
    }

    fn start_failed(&mut self, host: usize, task: u64, code: i32) {
        let from = Source::Thread(Thread::Resources);
        self.task_over(host, task);
        if self.daemon(host).is_some() {
            self.checks.marks.opens_failed += 1;
            let told = Told::StartFailed { task: TaskId(task), code };
            self.send(host, from, Thread::Front, Message::told(told));
        }
    }

    fn start_task(&mut self, host: usize, task: u64) {
        if let Some(work) = self.daemon(host).and_then(|d| d.tasks.get(&task)).map(|t| t.work()) {
            self.start(host, JobKey::Task(task), work);
        }
    }

    /// A task's machine is done.
    pub(crate) fn task_done(&mut self, host: usize, task: u64, outcome: Outcome) {
        let id = TaskId(task);
        let late = self.late_writes(host, JobKey::Task(task));
        let outstanding = u32::try_from(late).unwrap_or(u32::MAX);
        let outstanding = if self.sabotaged(Sabotage::WritesForgotten) { 0 } else { outstanding };
        let told = match outcome {
            Outcome::Take(Taken { mut outcome, value }) => {
                if let AcquireOutcome::Failed { error, .. } = &outcome {
                    self.mark(&error.clone());
                    let task = self.daemon(host).and_then(|d| d.tasks.get(&task).cloned());
                    let shared = task.filter(|t| t.asks_to_share() && error.is_contention());
                    if let Some(resource) = shared.and_then(|t| t.resource()) {
                        if self.sabotaged(Sabotage::RefusalsErase) {
                            self.erase_block(host, resource);
                        }
                    }
                }
                if self.sabotaged(Sabotage::OldGeneration) {
                    if let AcquireOutcome::Acquired(held) = &mut outcome {
                        held.leader.lver = (held.leader.lver.get() + 1).into();
                    }
                }
                Told::AcquireDone { task: id, outcome, value, outstanding }
            }
            Outcome::Convert(outcome) => {
                self.convert_marks(&outcome);
                Told::ConvertDone { task: id, outcome, outstanding }
            }
            Outcome::Release(outcome) => {
                let task = self.daemon(host).and_then(|d| d.tasks.get(&task));
                let renames = task.is_some_and(|t| matches!(t.kind, Kind::Release(_, _, Some(_))));
                let given_up = task.and_then(|t| match &t.kind {
                    Kind::Release(held, ..) => Some((t.resource()?, held.block)),
                    Kind::Retract(_, Some(hold), ..) => Some((t.resource()?, *hold)),
                    _ => None,
                });
                self.release_ended(host, &outcome, renames);
                let ended = outstanding == 0 && !outcome.needs_retract();
                let lost = outcome.result == Err(ReleaseError::LockspaceGone);
                if let (Some((resource, hold)), true) = (given_up, ended && !lost) {
                    self.checks.let_go(resource, self.hosts[host].id, &hold.dblock, &self.disk);
                }
                Told::ReleaseDone { task: id, outcome, outstanding }
            }
            _ => return,
        };
        if outstanding > 0 {
            if let Some(t) = self.daemon(host).and_then(|d| d.tasks.get(&task)) {
                t.settling.set(true);
            }
        } else {
            self.forget_task(host, task);
        }
        self.report(host, Thread::Resources, told);
    }

    fn forget_task(&mut self, host: usize, task: u64) {
        self.hosts[host].jobs.remove(&JobKey::Task(task));
        self.task_over(host, task);
    }

    /// The front does not know yet.
    fn task_over(&mut self, host: usize, task: u64) {
        let id = self.hosts[host].id;
        let ended = self.daemon(host).and_then(|daemon| daemon.tasks.remove(&task));
        if let Some(resource) = ended.and_then(|task| task.resource()) {
            self.checks.user_ended(id, layout::disk_of(resource));
        }
    }

    /// A late completion was delivered.
    pub(crate) fn task_settled(&mut self, host: usize, task: u64) {
        let settling = self.daemon(host).and_then(|d| d.tasks.get(&task)).is_some_and(|t| t.settling.get());
        if settling && self.late_writes(host, JobKey::Task(task)) == 0 {
            self.forget_task(host, task);
            self.report(host, Thread::Resources, Told::Settled { task: TaskId(task) });
        }
    }

    fn release_ended(&mut self, host: usize, outcome: &ReleaseOutcome, renames: bool) {
        match outcome.result {
            Ok(Released::LeaderFreed) => self.checks.marks.released += 1,
            Ok(_) => self.checks.marks.retracted += 1,
            // An older leader that was slow on one of several disks, where a newer one is missing on another, is the majority's again. The
            // lease is released by its flag, but nobody can give it a name then.
            Err(ReleaseError::Owner { .. }) if renames => self.checks.marks.renames_refused += 1,
            // Likewise by a slow commit in this host's name, and to a name of before.
            Err(ReleaseError::Leader(LeaderError::Resource { .. })) if renames => {
                self.checks.marks.names_taken_back += 1;
            }
            // A disk does not answer, or has missed an earlier name: the lease keeps the one that it has on a majority.
            Err(ReleaseError::NotRenamed { .. }) => self.checks.marks.renames_refused += 1,
            Err(e @ (ReleaseError::Driver | ReleaseError::Owner { .. })) => {
                // A leader that we wrote last says what we wrote: nobody else writes one in our name and leaves our id in it.
                let id = self.hosts[host].id;
                self.checks.violated(format!("a release of {id:?} is refused: {e}"));
            }
            Err(_) => {}
        }
    }

    fn convert_marks(&mut self, outcome: &ConvertOutcome) {
        let marks = &mut self.checks.marks;
        marks.convert_leftovers += u64::from(outcome.erase);
        if let Err(error) = &outcome.result {
            marks.converts_refused += u64::from(error.is_contention());
            marks.converts_failed += u64::from(!error.is_contention());
            self.mark(&error.clone());
        }
    }

    pub(crate) fn mark(&mut self, error: &AcquireError) {
        let marks = &mut self.checks.marks;
        match error {
            AcquireError::Live(_) => marks.refused_live += 1,
            AcquireError::Shared { .. } => marks.refused_shared += 1,
            AcquireError::Crowded(_) => marks.crowded += 1,
            AcquireError::Other(_) => marks.adopted += 1,
            AcquireError::Owned(_) => marks.lost += 1,
            AcquireError::Newer { .. } => marks.passed_over += 1,
            AcquireError::LockspaceGone => marks.stopped_by_lockspace += 1,
            AcquireError::ClientGone => marks.stopped_by_client += 1,
            AcquireError::Leader(LeaderError::Resource { .. }) => marks.misnamed += 1,
            AcquireError::Lver { .. } => marks.demands_refused += 1,
            AcquireError::Driver => {
                let code = ReturnCode::from(error);
                self.checks.violated(format!("a machine was driven against its rules: {code:?}"));
            }
            _ => {}
        }
    }
}
