//! Any number of machines on one thread: a waiting machine costs memory and a time, nothing else.
//!
//! ```text
//! start ──> machine.step ──> operations ──> lane of the path ──> engine ──┐
//!              ^   └──────> wake-up time                                   │
//!              └──── completed, timed out, late, tick <──── poll <─────────┘
//! ```
//!
//! # Invariants
//! - Every operation a machine asked for is in exactly one of: a lane's queue, a lane's engine, `failed`, reported.
//! - `Run::in_flight_writes` counts the run's writes in engines, and those in doubt. A run whose machine is gone is forgotten when that
//!   is 0.
//! - A machine started with [`Driver::start`] is gone when it is done; a resident one when it is retired.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use sanlock_lease::machine::{Action, Input, IoFailure, Machine, NoSectors, Op, OpId, SliceView, Step};
use sanlock_lease::timing::MonoTime;

use super::Areas;
use super::buffers::Buffers;
use super::doubt::{Doubt, Doubts};
use super::lane::{Ended, Flight, Transfer};
use super::lanes::Lanes;
use super::report::{EnvSource, Report, RunId, Spare};
use super::room::SharedRoom;
use crate::buffer::MAX_IO_LEN;
use crate::engine::{Engine, EngineKind};
use crate::errand::Errand;
use crate::error::EngineError;
use crate::huge::HugePages;
use crate::offload;
use crate::opens::Asker;

/// Machines that one driver holds, finished ones with outstanding writes included.
pub const MACHINES_MAX: usize = 8192;

/// A machine that neither runs an operation nor asked to be woken is asked again after this many milliseconds.
const STALLED_TICK_MS: u64 = 1_000;

struct Run<M, T> {
    id: RunId,
    /// `None` once done or retired.
    machine: Option<(M, T)>,
    resident: bool,
    /// Between `Start` and `Done`.
    busy: bool,
    /// Among whose calls its operations count.
    asker: Option<Asker>,
    areas: Areas,
    wake: Option<MonoTime>,
    in_flight_ops: u32,
    in_flight_writes: u32,
}

/// Makes the engine of a path.
pub type EngineFactory = Box<dyn FnMut() -> Result<Box<dyn Engine>, EngineError> + Send>;

/// Drives machines; see the module. Owned by one thread, which polls [`Driver::completion_fd`] and calls [`Driver::poll`]
/// whenever it is readable and at [`Driver::next_wake`].
pub struct Driver<M: Machine, T> {
    lanes: Lanes,
    /// Of machines that are added.
    asker: Option<Asker>,
    runs: Vec<Run<M, T>>,
    next_run: u64,
    pub(super) buffers: Buffers,
    /// Areas of runs that are over, where the owner closes their disks.
    finished: Vec<Areas>,
    /// Operations that ended without an engine.
    failed: VecDeque<(RunId, OpId, IoFailure)>,
    ended: Vec<Ended>,
    overdue: Vec<Flight>,
    /// Writes that have ended, and may have an effect all the same.
    doubts: Doubts,
}

impl<M: Machine, T: Clone> Driver<M, T> {
    /// A driver without machines, whose engines will be of this kind.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] when no descriptor is to be had.
    pub fn new(kind: EngineKind) -> Result<Self, EngineError> {
        Self::with_engines(Box::new(move || kind.create()))
    }

    /// A driver that gets its engines from `engines`; tests put faults there.
    ///
    /// # Errors
    /// As [`Driver::new`].
    pub fn with_engines(engines: EngineFactory) -> Result<Self, EngineError> {
        Ok(Self {
            lanes: Lanes::new(engines)?,
            asker: None,
            runs: Vec::new(),
            next_run: 0,
            buffers: Buffers::default(),
            finished: Vec::new(),
            failed: VecDeque::new(),
            ended: Vec::new(),
            overdue: Vec::new(),
            doubts: Doubts::default(),
        })
    }

    /// From now on large buffers come from this stock as long as it has any.
    pub fn use_huge_pages(&mut self, huge: Arc<HugePages>) {
        self.buffers.set_huge(huge);
    }

    /// This is one of several drivers that work on the same paths: what a path may have in flight they have together. Before anything is
    /// started.
    pub fn share(&mut self, room: Arc<SharedRoom>) {
        self.lanes.share(room);
    }

    /// Operations of machines that are started, or added, from now on count among those of this kind of asker: without a place among them
    /// ([`crate::CallPlace`]) they wait, and if there is none by their deadline they have timed out and will not happen. `None`, as at first: they are not
    /// counted, and wait for none that are.
    pub fn count_as(&mut self, asker: Option<Asker>) {
        self.asker = asker;
    }

    /// From now on engines stay when they have no work: for an owner that uses the same few paths as long as it lives.
    pub fn keep_engines(&mut self) {
        self.lanes.keep();
    }

    /// From now on operations may be carried out by the owner: after every call that may have started some comes
    /// [`Driver::errand`], or they wait; and [`Driver::close`], or disks stay open. After a call that took `slow` or longer the next one on
    /// that path is not for the owner.
    pub fn defer(&mut self, slow: Duration) {
        self.lanes.defer(slow);
    }

    /// Starts what was submitted since the last call, or gives a call back for the owner to make, if it can ([`Spare`]): with one
    /// operation in all, or two of one machine that are made together, on a path that has answered quickly, or for want of a thread.
    /// [`Driver::poll`] comes after it.
    pub fn errand(&mut self, spare: Spare) -> Option<Errand> {
        self.lanes.errand(spare)
    }

    /// Closes the disks of machines that are over, or gives that back: a single one the owner may as well close (`alone`), before it
    /// tells of the end. So whoever hears of it finds the disk closed, unless closing takes long. After each [`Driver::poll`] of an
    /// owner that carries operations out.
    pub fn close(&mut self, alone: bool) -> Option<Errand> {
        let mut disks = std::mem::take(&mut self.finished).into_iter().flat_map(Areas::into_disks);
        // Those that others use too stay open.
        let mut last = disks.by_ref().filter_map(Arc::into_inner);
        let disk = last.next()?;
        match last.next() {
            None if alone => disk.close_on_errand(),
            // Dropped, they are closed on another thread.
            _ => None,
        }
    }

    /// Whether no operation is under way.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.lanes.are_quiet()
    }

    /// Whether a machine waits for an operation. What has not ended in time may hang for as long as its disk is silent, and nobody waits for it.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.lanes.are_waited_for()
    }

    /// Starts a machine over these areas.
    ///
    /// # Errors
    /// Gives the machine's tag back with [`MACHINES_MAX`] machines running or unsettled.
    pub fn start(
        &mut self,
        now: MonoTime,
        machine: M,
        tag: T,
        areas: Areas,
        envs: &impl EnvSource<T>,
        out: &mut Vec<Report<T, M::Outcome>>,
    ) -> Result<RunId, T> {
        let id = self.add(machine, tag, areas, false)?;
        self.again(id, now, envs, out);
        Ok(id)
    }

    /// Adds a machine that may be started any number of times and lives until it is retired. Late completions reach it
    /// between its attempts too. Nothing is started yet; see [`Driver::again`].
    ///
    /// # Errors
    /// As [`Driver::start`].
    pub fn add_resident(&mut self, machine: M, tag: T, areas: Areas) -> Result<RunId, T> {
        self.add(machine, tag, areas, true)
    }

    fn add(&mut self, machine: M, tag: T, areas: Areas, resident: bool) -> Result<RunId, T> {
        if self.runs.len() >= MACHINES_MAX {
            return Err(tag);
        }
        let id = RunId(self.next_run);
        self.next_run += 1;
        self.runs.push(Run {
            id,
            machine: Some((machine, tag)),
            resident,
            busy: false,
            asker: self.asker,
            areas,
            wake: None,
            in_flight_ops: 0,
            in_flight_writes: 0,
        });
        Ok(id)
    }

    /// Gives a machine `Start`: a resident's next attempt. Does nothing while an attempt of it runs.
    pub fn again(
        &mut self,
        id: RunId,
        now: MonoTime,
        envs: &impl EnvSource<T>,
        out: &mut Vec<Report<T, M::Outcome>>,
    ) {
        let Some(run) = self.position(id).and_then(|at| self.runs.get_mut(at)) else { return };
        if run.busy {
            return;
        }
        run.busy = true;
        self.step(id, now, envs, Input::Start, out);
        self.deliver_failed(now, envs, out);
    }

    /// The machine, until it is gone.
    #[must_use]
    pub fn machine(&self, id: RunId) -> Option<&M> {
        self.runs.get(self.position(id)?)?.machine.as_ref().map(|(machine, _)| machine)
    }

    /// The machine, to change what it will do next.
    #[must_use]
    pub fn machine_mut(&mut self, id: RunId) -> Option<&mut M> {
        let at = self.position(id)?;
        self.runs.get_mut(at)?.machine.as_mut().map(|(machine, _)| machine)
    }

    /// Whether an attempt of the machine runs.
    #[must_use]
    pub fn is_busy(&self, id: RunId) -> bool {
        self.position(id).and_then(|at| self.runs.get(at)).is_some_and(|run| run.busy)
    }

    /// Takes a machine out, wherever it stands. Returns how many of its writes may still land; if not 0, [`Report::Settled`]
    /// follows when the last one has.
    pub fn retire(&mut self, id: RunId) -> u32 {
        let Some(at) = self.position(id) else { return 0 };
        let Some(run) = self.runs.get_mut(at) else { return 0 };
        run.machine = None;
        let outstanding = run.in_flight_writes;
        if outstanding == 0 {
            self.remove(at);
        }
        outstanding
    }

    fn remove(&mut self, at: usize) {
        let run = self.runs.remove(at);
        if self.lanes.are_deferring() {
            self.finished.push(run.areas);
        }
    }

    /// Collects what has happened by now, as `clock` tells it, drives the machines on and appends what became of them.
    ///
    /// What a machine is told of has never happened after the time that it is told with. A host that renewed while this process stood still
    /// would look silent for too long otherwise, and be taken for dead too early.
    pub fn poll(
        &mut self,
        clock: impl Fn() -> MonoTime,
        envs: &impl EnvSource<T>,
        out: &mut Vec<Report<T, M::Outcome>>,
    ) {
        // Never by one that renews: where memory is short a thread is long in coming.
        if !self.lanes.are_keeping() {
            offload::look_after_closes();
        }
        let (mut ended, mut overdue) = (std::mem::take(&mut self.ended), std::mem::take(&mut self.overdue));
        self.lanes.collect(clock(), &mut self.buffers, &mut ended, &mut overdue);
        let now = clock();
        for end in ended.drain(..) {
            self.end(end, now, envs, out);
        }
        for flight in overdue.drain(..) {
            self.step(flight.run, now, envs, Input::TimedOut { op: flight.op }, out);
        }
        (self.ended, self.overdue) = (ended, overdue);
        self.settle(now, envs, out);
        // A machine that is woken may finish, which never moves runs before it.
        let mut at = 0;
        while let Some(run) = self.runs.get_mut(at) {
            let id = run.id;
            if run.machine.is_some() && run.wake.is_some_and(|wake| wake <= now) {
                run.wake = None;
                self.step(id, now, envs, Input::Tick, out);
            }
            if self.runs.get(at).is_some_and(|run| run.id == id) {
                at += 1;
            }
        }
        self.deliver_failed(now, envs, out);
        self.lanes.drop_idle(now);
    }

    /// Ticks every machine whose tag is wanted: how a change of its environment reaches a machine that waits.
    pub fn tick(
        &mut self,
        now: MonoTime,
        envs: &impl EnvSource<T>,
        wanted: impl Fn(&T) -> bool,
        out: &mut Vec<Report<T, M::Outcome>>,
    ) {
        let ids: Vec<RunId> = self
            .runs
            .iter()
            .filter(|run| run.machine.as_ref().is_some_and(|(_, tag)| wanted(tag)))
            .map(|run| run.id)
            .collect();
        for id in ids {
            self.step(id, now, envs, Input::Tick, out);
        }
        self.deliver_failed(now, envs, out);
    }

    /// Takes back the writes of machines whose tag is wanted, as far as nobody has begun them: they end as what takes longer than it may, and will
    /// not happen. How a lockspace that is gone reaches what its machines had decided before.
    pub fn withdraw_writes(
        &mut self,
        now: MonoTime,
        envs: &impl EnvSource<T>,
        wanted: impl Fn(&T) -> bool,
        out: &mut Vec<Report<T, M::Outcome>>,
    ) {
        let is_wanted = |run: &Run<M, T>| run.machine.as_ref().is_some_and(|(_, tag)| wanted(tag));
        let ids: Vec<RunId> = self.runs.iter().filter(|run| is_wanted(run)).map(|run| run.id).collect();
        if ids.is_empty() {
            return;
        }
        let mut ended = Vec::new();
        self.lanes.withdraw_writes(&ids, &mut self.buffers, &mut ended);
        for end in ended {
            self.end(end, now, envs, out);
        }
        self.deliver_failed(now, envs, out);
    }

    /// When to call [`Driver::poll`] next if no completion comes before.
    #[must_use]
    pub fn next_wake(&self) -> Option<MonoTime> {
        let wakes = self.runs.iter().filter(|run| run.machine.is_some()).filter_map(|run| run.wake);
        self.lanes.next_wake().into_iter().chain(wakes).chain(self.doubts.next()).min()
    }

    /// Becomes readable (poll, epoll) when operations of any engine have ended.
    #[must_use]
    pub fn completion_fd(&self) -> BorrowedFd<'_> {
        self.lanes.completion_fd()
    }

    /// Machines that are not done.
    #[must_use]
    pub fn running(&self) -> usize {
        self.runs.iter().filter(|run| run.machine.is_some()).count()
    }

    /// Machines that are done and have writes outstanding.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        self.runs.len() - self.running()
    }

    /// Bytes of buffers kept for reuse.
    #[cfg(test)]
    pub(super) fn buffers_kept(&self) -> usize {
        self.buffers.kept()
    }

    /// Engines in existence.
    #[must_use]
    pub fn engines(&self) -> usize {
        self.lanes.len()
    }

    fn position(&self, id: RunId) -> Option<usize> {
        // Ids are given in ascending order and removal keeps the order.
        self.runs.binary_search_by_key(&id, |run| run.id).ok()
    }

    /// Tells a machine something and does what it answers. Nothing happens to a machine that is done.
    fn step(
        &mut self,
        id: RunId,
        now: MonoTime,
        envs: &impl EnvSource<T>,
        input: Input<'_>,
        out: &mut Vec<Report<T, M::Outcome>>,
    ) {
        if let Some(answer) = self.ask(id, now, envs, input) {
            self.act(id, now, answer, out);
        }
    }

    fn ask(
        &mut self,
        id: RunId,
        now: MonoTime,
        envs: &impl EnvSource<T>,
        input: Input<'_>,
    ) -> Option<Step<M::Outcome>> {
        let at = self.position(id)?;
        let (machine, tag) = self.runs.get_mut(at)?.machine.as_mut()?;
        Some(envs.with_env(tag, now, |env| machine.step(now, env, input)))
    }

    fn act(
        &mut self,
        id: RunId,
        now: MonoTime,
        answer: Step<M::Outcome>,
        out: &mut Vec<Report<T, M::Outcome>>,
    ) {
        let Some(at) = self.position(id) else { return };
        let Some(run) = self.runs.get_mut(at) else { return };
        match answer {
            Step::Io(ops) => {
                run.wake = None;
                let areas = run.areas.clone();
                for op in ops {
                    self.submit(id, &op, &areas, now);
                }
            }
            Step::Wait(until) => run.wake = Some(until),
            Step::Pending => {
                if run.busy && run.in_flight_ops == 0 && run.wake.is_none() {
                    run.wake = Some(now.plus_millis(STALLED_TICK_MS));
                }
            }
            Step::Done { outcome, outstanding: _ } => {
                let outstanding = run.in_flight_writes;
                run.busy = false;
                run.wake = None;
                if let Some((_, tag)) = &run.machine {
                    out.push(Report::Done { run: id, tag: tag.clone(), outcome, outstanding });
                }
                if !run.resident {
                    self.retire(id);
                }
            }
        }
    }

    fn submit(&mut self, id: RunId, op: &Op, areas: &Areas, now: MonoTime) {
        let started = self.try_submit(id, op, areas, now);
        if let Some(run) = self.position(id).and_then(|at| self.runs.get_mut(at)) {
            run.in_flight_ops += 1;
            if op.is_write() {
                run.in_flight_writes += 1;
            }
        }
        if let Err(e) = started {
            self.failed.push_back((id, op.id, e));
            self.landed(id, op.is_write());
        }
    }

    fn try_submit(&mut self, id: RunId, op: &Op, areas: &Areas, now: MonoTime) -> Result<(), IoFailure> {
        let area = areas.get(op.place).ok_or(IoFailure::NotOpen(libc::ENODEV))?;
        let disk = area.disk.as_ref().map_err(|errno| IoFailure::NotOpen(*errno))?;
        let out_of_range = IoFailure::Os(libc::EINVAL);
        let (first, count, content) = match &op.action {
            Action::Read { first, count } => (*first, *count, None),
            Action::Write { sector, content } => (*sector, 1, Some(Box::new(content.clone()))),
        };
        let sector_bytes = u64::from(op.sector_size.bytes());
        let offset =
            first.checked_mul(sector_bytes).and_then(|at| at.checked_add(area.offset)).ok_or(out_of_range)?;
        let len = count
            .checked_mul(sector_bytes)
            .and_then(|len| usize::try_from(len).ok())
            .filter(|len| (1..=MAX_IO_LEN).contains(len))
            .ok_or(out_of_range)?;
        let flight = Flight {
            run: id,
            op: op.id,
            deadline: op.deadline,
            asker: self.position(id).and_then(|at| self.runs.get(at)).and_then(|run| run.asker),
            write: op.is_write(),
            timed_out: false,
            doubt_ms: op.doubt_ms,
            first,
            size: op.sector_size,
        };
        let transfer = Transfer { disk: Arc::clone(disk), offset, len, content };
        self.lanes.push(flight, transfer, &mut self.buffers, now)
    }

    /// Counts the end of an operation of a run.
    fn landed(&mut self, id: RunId, write: bool) {
        self.ended_op(id);
        if write {
            self.settled_write(id);
        }
    }

    fn ended_op(&mut self, id: RunId) {
        if let Some(run) = self.position(id).and_then(|at| self.runs.get_mut(at)) {
            run.in_flight_ops = run.in_flight_ops.saturating_sub(1);
        }
    }

    fn settled_write(&mut self, id: RunId) {
        if let Some(run) = self.position(id).and_then(|at| self.runs.get_mut(at)) {
            run.in_flight_writes = run.in_flight_writes.saturating_sub(1);
        }
    }

    /// Writes have been in doubt for long enough.
    fn settle(&mut self, now: MonoTime, envs: &impl EnvSource<T>, out: &mut Vec<Report<T, M::Outcome>>) {
        while let Some(Doubt { run, op, failure, buf, .. }) = self.doubts.over(now) {
            self.buffers.give(buf);
            self.settled_write(run);
            self.step(run, now, envs, Input::CompletedLate { op, result: Err(failure) }, out);
            self.forget_if_settled(run, out);
        }
    }

    fn end(
        &mut self,
        end: Ended,
        now: MonoTime,
        envs: &impl EnvSource<T>,
        out: &mut Vec<Report<T, M::Outcome>>,
    ) {
        match end {
            Ended::Completed(flight, done) => {
                if let Some(failure) = Doubts::cause(&flight, &done) {
                    self.doubts.begin(now, &flight, failure, done.buf);
                    self.ended_op(flight.run);
                    if !flight.timed_out {
                        let input = Input::Doubtful { op: flight.op, failure };
                        self.step(flight.run, now, envs, input, out);
                    }
                    return;
                }
                self.landed(flight.run, flight.write);
                let bytes = done.buf.get(..done.len).unwrap_or_default();
                let view = SliceView { first: flight.first, size: flight.size, bytes };
                let result = match &done.result {
                    Ok(()) if flight.write => Ok(&NoSectors as _),
                    Ok(()) => Ok(&view as _),
                    Err(error) => Err(error.kind.failure()),
                };
                let op = flight.op;
                let input = if flight.timed_out {
                    Input::CompletedLate { op, result }
                } else {
                    Input::Completed { op, result }
                };
                let answer = self.ask(flight.run, now, envs, input);
                // Before the answer is acted upon: what it submits can use the same memory.
                self.buffers.give(done.buf);
                if let Some(answer) = answer {
                    self.act(flight.run, now, answer, out);
                }
                self.forget_if_settled(flight.run, out);
            }
            Ended::NeverStarted(flight) => {
                self.landed(flight.run, flight.write);
                // A completion, not a timeout: nothing of it may land any more. To whoever asked it took too long all the same.
                let result = Err(IoFailure::TimedOut);
                self.step(flight.run, now, envs, Input::Completed { op: flight.op, result }, out);
                self.forget_if_settled(flight.run, out);
            }
        }
    }

    fn forget_if_settled(&mut self, id: RunId, out: &mut Vec<Report<T, M::Outcome>>) {
        let Some(at) = self.position(id) else { return };
        if self.runs.get(at).is_some_and(|run| run.machine.is_none() && run.in_flight_writes == 0) {
            self.remove(at);
            out.push(Report::Settled { run: id });
        }
    }

    /// Reports operations that could not be started. A machine may answer with more of them; each machine's own bound on
    /// retries ends that.
    fn deliver_failed(
        &mut self,
        now: MonoTime,
        envs: &impl EnvSource<T>,
        out: &mut Vec<Report<T, M::Outcome>>,
    ) {
        while let Some((run, op, e)) = self.failed.pop_front() {
            self.step(run, now, envs, Input::Completed { op, result: Err(e) }, out);
        }
    }
}
