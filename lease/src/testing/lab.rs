//! The driver: virtual clock, faults, scheduled events.

use super::disk::{SparseView, TestDisk};
use super::noisy::Noisy;
use crate::geometry::HostId;
use crate::hosts::HostSeen;
use crate::limits::SECTOR_BYTES_MAX;
use crate::machine::{
    Action, Content, Env, HostView, Input, IoFailure, LockspaceNow, Machine, NoHosts, NoSectors, Op, OpId,
    Step,
};
use crate::timing::MonoTime;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::rc::Rc;

/// Inputs after which a run is taken for endless.
const INPUTS_MAX: u32 = 2_000_000;
/// ENODEV: the area does not exist.
const ENODEV: i32 = 19;

/// What becomes of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Milliseconds from submission to completion; `None`: no completion is ever seen. Beyond the operation's deadline the
    /// machine is told of the timeout first, and of the completion as a late one.
    pub after_ms: Option<u64>,
    /// The completion reports this failure.
    pub failure: Option<IoFailure>,
    /// Milliseconds from submission to a write's effect on the disk; `None`: it never lands.
    pub lands_ms: Option<u64>,
    /// A read returns what was on the disk when it was submitted, not when it completed.
    pub stale: bool,
    /// A write that fails is then outstanding for as long as it says itself ([`Op::doubt_ms`]).
    pub doubt: bool,
}

impl Fate {
    /// A write's failure after one millisecond, in doubt: it has its effect after so many milliseconds, if ever.
    #[must_use]
    pub fn in_doubt(failure: IoFailure, lands_ms: Option<u64>) -> Self {
        Self { doubt: true, lands_ms, ..Self::fail(failure) }
    }

    /// Success after one millisecond.
    #[must_use]
    pub fn prompt() -> Self {
        Self::after(1)
    }

    /// Success after this many milliseconds.
    #[must_use]
    pub fn after(ms: u64) -> Self {
        Self { after_ms: Some(ms), failure: None, lands_ms: Some(ms), stale: false, doubt: false }
    }

    /// Failure after one millisecond, without effect.
    #[must_use]
    pub fn fail(failure: IoFailure) -> Self {
        Self { after_ms: Some(1), failure: Some(failure), lands_ms: None, stale: false, doubt: false }
    }

    /// No completion, no effect.
    #[must_use]
    pub fn never() -> Self {
        Self { after_ms: None, failure: None, lands_ms: None, stale: false, doubt: false }
    }

    /// No completion is seen, but the write lands.
    #[must_use]
    pub fn lands_unseen(ms: u64) -> Self {
        Self { after_ms: None, failure: None, lands_ms: Some(ms), stale: false, doubt: false }
    }

    /// The same, reading what was there at submission.
    #[must_use]
    pub fn stale(self) -> Self {
        Self { stale: true, ..self }
    }
}

/// One operation as it was submitted, for assertions about I/O order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traced {
    /// When it was submitted.
    pub at: MonoTime,
    /// What it was.
    pub op: Op,
}

impl Traced {
    /// First sector read or written, and the number of sectors, negative for a write.
    #[must_use]
    pub fn brief(&self) -> (u64, i64) {
        match self.op.action {
            Action::Read { first, count } => (first, i64::try_from(count).unwrap_or(i64::MAX)),
            Action::Write { sector, .. } => (sector, -1),
        }
    }

    /// What it wrote.
    #[must_use]
    pub fn written(&self) -> Option<Content> {
        match self.op.action {
            Action::Write { ref content, .. } => Some(content.clone()),
            Action::Read { .. } => None,
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished<O> {
    /// The machine's outcome.
    pub outcome: O,
    /// Its count of writes that may still land.
    pub outstanding: u32,
    /// When.
    pub at: MonoTime,
}

struct Flying {
    owner: u32,
    op: Op,
    completes: Option<MonoTime>,
    lands: Option<MonoTime>,
    failure: Option<IoFailure>,
    stale: Option<Option<SparseView>>,
    doubt: bool,
    timed_out: bool,
    reported: bool,
}

type Hook = Box<dyn FnOnce(&mut Lab)>;

/// A disk, a clock, what the machine may know, and the faults. Writes still in flight at the end of a run land in later runs.
pub struct Lab {
    /// The disk.
    pub disk: TestDisk,
    /// The virtual clock.
    pub now: MonoTime,
    /// Given to the machine as [`Env::lockspace`].
    pub lockspace: LockspaceNow,
    /// Given to the machine as [`Env::client_alive`].
    pub client_alive: bool,
    /// Given to the machine as [`Env::shutting_down`].
    pub shutting_down: bool,
    /// Given to the machine as [`Env::hosts`].
    pub hosts: Rc<dyn HostView>,
    /// Everything submitted, in order.
    pub trace: Vec<Traced>,
    fate: Box<dyn FnMut(&Op) -> Fate>,
    hooks: Vec<(MonoTime, Hook)>,
    flying: Vec<Flying>,
    owner: u32,
    /// Numbers of operations that were used, and by whom.
    numbers: BTreeSet<(u32, OpId)>,
}

impl Default for Lab {
    fn default() -> Self {
        Self::new()
    }
}

struct Shared(Rc<dyn HostView>);

impl HostView for Shared {
    fn seen(&self, host: HostId) -> Option<HostSeen> {
        self.0.seen(host)
    }
}

impl Lab {
    /// No areas, one thousand seconds on the clock, a lockspace alive with generation 1, every operation prompt.
    #[must_use]
    pub fn new() -> Self {
        Self {
            disk: TestDisk::new(),
            now: MonoTime::from_secs(1000),
            lockspace: LockspaceNow::Alive { generation: 1 },
            client_alive: true,
            shutting_down: false,
            hosts: Rc::new(NoHosts),
            trace: Vec::new(),
            fate: Box::new(|_| Fate::prompt()),
            hooks: Vec::new(),
            flying: Vec::new(),
            owner: 0,
            numbers: BTreeSet::new(),
        }
    }

    /// Decides the fate of every operation from now on.
    pub fn fates(&mut self, fate: impl FnMut(&Op) -> Fate + 'static) {
        self.fate = Box::new(fate);
    }

    /// Every operation is prompt again.
    pub fn no_faults(&mut self) {
        self.fates(|_| Fate::prompt());
    }

    /// At this time, do this (to the disk, the environment, …). The machine gets a tick right after it.
    pub fn at(&mut self, when: MonoTime, hook: impl FnOnce(&mut Self) + 'static) {
        self.hooks.push((when, Box::new(hook)));
    }

    /// After this many seconds from now, do this.
    pub fn after_secs(&mut self, secs: u64, hook: impl FnOnce(&mut Self) + 'static) {
        self.at(self.now.plus_secs(secs), hook);
    }

    /// What was to be done later is not done.
    pub fn cancel_hooks(&mut self) {
        self.hooks.clear();
    }

    /// What was submitted, briefly: see [`Traced::brief`].
    #[must_use]
    pub fn brief(&self) -> Vec<(u64, i64)> {
        self.trace.iter().map(Traced::brief).collect()
    }

    /// Writes that have not landed yet but will.
    #[must_use]
    pub fn still_to_land(&self) -> usize {
        self.flying.iter().filter(|f| f.lands.is_some()).count()
    }

    /// Runs a fresh machine to its end.
    ///
    /// # Panics
    /// The machine waits for nothing, never ends, or answers against the rules of driving.
    pub fn run<M: Machine>(&mut self, machine: &mut M) -> Finished<M::Outcome> {
        self.another_machine();
        self.rerun(machine)
    }

    /// What runs next is another machine: what the one before left in flight does not concern it, nor do its numbers.
    pub fn another_machine(&mut self) {
        self.owner += 1;
    }

    /// The same where several machines take turns: this one is the next to [`Self::rerun`].
    pub fn turn_of(&mut self, machine: u32) {
        self.owner = u32::MAX - machine;
    }

    /// The same, driven as untidily as the rules allow: see [`Noisy`].
    ///
    /// # Panics
    /// As [`Self::run`], and when the machine minds.
    pub fn run_noisy<M: Machine + Clone + PartialEq + Debug>(
        &mut self,
        machine: &mut M,
    ) -> Finished<M::Outcome> {
        self.run(&mut Noisy(machine))
    }

    /// Starts the machine of the last run once more: what it left in flight is reported to it, as is a late completion that
    /// comes between the runs (through [`Self::pass`]).
    ///
    /// # Panics
    /// As [`Self::run`].
    pub fn rerun<M: Machine>(&mut self, machine: &mut M) -> Finished<M::Outcome> {
        let mut wait = None;
        let mut step = self.input(machine, Input::Start);
        for _ in 0..INPUTS_MAX {
            match step {
                Step::Done { outcome, outstanding } => {
                    return Finished { outcome, outstanding, at: self.now };
                }
                Step::Wait(until) => wait = Some(until),
                Step::Io(ops) => {
                    assert!(!ops.is_empty(), "an Io step without operations");
                    wait = None;
                    for op in ops {
                        self.submit(op);
                    }
                }
                Step::Pending => {}
            }
            step = self.advance(machine, wait);
        }
        panic!("the machine does not end");
    }

    /// Lets time pass between runs. Late completions are delivered to `machine`, whose answers must be `Pending` or `Done`
    /// again; the last `Done` is returned.
    ///
    /// # Panics
    /// The machine wants I/O although it was done.
    pub fn pass<M: Machine>(&mut self, machine: &mut M, secs: u64) -> Option<Finished<M::Outcome>> {
        let end = self.now.plus_secs(secs);
        let mut last = None;
        while let Some(next) = self.next_event().filter(|t| *t <= end) {
            self.now = self.now.max(next);
            match self.happen(machine) {
                Some(Step::Done { outcome, outstanding }) => {
                    last = Some(Finished { outcome, outstanding, at: self.now });
                }
                Some(Step::Io(_) | Step::Wait(_)) => panic!("a machine that is done wants more"),
                Some(Step::Pending) | None => {}
            }
        }
        self.now = end;
        last
    }

    /// Lets everything in flight land and complete, without telling anyone.
    pub fn land_all(&mut self) {
        let flying = std::mem::take(&mut self.flying);
        for f in &flying {
            if f.lands.is_some() {
                self.apply(&f.op);
            }
        }
    }

    fn input<M: Machine>(&self, machine: &mut M, input: Input<'_>) -> Step<M::Outcome> {
        let hosts = Shared(Rc::clone(&self.hosts));
        let env = Env {
            lockspace: self.lockspace,
            client_alive: self.client_alive,
            shutting_down: self.shutting_down,
            hosts: &hosts,
        };
        machine.step(self.now, &env, input)
    }

    fn submit(&mut self, op: Op) {
        let fresh = self.numbers.insert((self.owner, op.id));
        assert!(fresh, "{:?} twice: the end of the one would be taken for that of the other", op.id);
        let fate = (self.fate)(&op);
        self.trace.push(Traced { at: self.now, op: op.clone() });
        let missing = !self.disk.has(op.place);
        // A device ends where it ends; a read beyond it is judged when it looks.
        let beyond = matches!(op.action, Action::Write { sector, .. }
            if !self.disk.fits(op.place, op.sector_size, sector, 1));
        let stale = fate.stale.then(|| self.look(&op));
        self.flying.push(Flying {
            owner: self.owner,
            completes: if missing {
                Some(self.now)
            } else {
                fate.after_ms.map(|ms| self.now.plus_millis(ms))
            },
            lands: fate.lands_ms.filter(|_| op.is_write() && !beyond).map(|ms| self.now.plus_millis(ms)),
            op,
            failure: match (missing, beyond) {
                (true, _) => Some(IoFailure::NotOpen(ENODEV)),
                (false, true) => fate.failure.or(Some(IoFailure::Short)),
                (false, false) => fate.failure,
            },
            stale,
            doubt: fate.doubt,
            timed_out: false,
            reported: false,
        });
    }

    fn look(&self, op: &Op) -> Option<SparseView> {
        match op.action {
            Action::Read { first, count } => self.disk.view(op.place, op.sector_size, first, count),
            Action::Write { .. } => None,
        }
    }

    fn apply(&mut self, op: &Op) {
        if let Action::Write { sector, content } = &op.action {
            let mut bytes = [0; SECTOR_BYTES_MAX];
            let bytes = &mut bytes[..op.sector_size.slice_len()];
            content.encode(bytes);
            self.disk.write(op.place, op.sector_size, *sector, bytes);
        }
    }

    fn next_event(&self) -> Option<MonoTime> {
        let flying = self.flying.iter().flat_map(|f| {
            let deadline = (!f.timed_out && !f.reported).then_some(f.op.deadline);
            [f.lands, f.completes.filter(|_| !f.reported), deadline]
        });
        flying.flatten().chain(self.hooks.iter().map(|(t, _)| *t)).min()
    }

    /// Goes to the next event and tells the machine.
    fn advance<M: Machine>(&mut self, machine: &mut M, wait: Option<MonoTime>) -> Step<M::Outcome> {
        loop {
            let event = self.next_event();
            let next = match (event, wait) {
                (Some(e), Some(w)) => e.min(w),
                (Some(t), None) | (None, Some(t)) => t,
                (None, None) => panic!("the machine waits for nothing"),
            };
            self.now = self.now.max(next);
            if event.is_none_or(|e| e > next) {
                return self.input(machine, Input::Tick);
            }
            if let Some(step) = self.happen(machine) {
                return step;
            }
        }
    }

    /// Lets one thing happen that is due now: hooks, then landings, then completions, then timeouts.
    fn happen<M: Machine>(&mut self, machine: &mut M) -> Option<Step<M::Outcome>> {
        let now = self.now;
        if let Some(at) = self.hooks.iter().position(|(t, _)| *t <= now) {
            let (_, hook) = self.hooks.remove(at);
            hook(self);
            return Some(self.input(machine, Input::Tick));
        }
        if let Some(at) = self.flying.iter().position(|f| f.lands.is_some_and(|t| t <= now)) {
            self.flying[at].lands = None;
            let op = self.flying[at].op.clone();
            self.apply(&op);
            self.forget(at);
            return None;
        }
        if let Some(at) =
            self.flying.iter().position(|f| !f.reported && f.completes.is_some_and(|t| t <= now))
        {
            return self.complete(machine, at);
        }
        let due = |f: &Flying| !f.timed_out && !f.reported && f.op.deadline <= now;
        if let Some(at) = self.flying.iter().position(due) {
            self.flying[at].timed_out = true;
            let (owner, op) = (self.flying[at].owner, self.flying[at].op.id);
            self.forget(at);
            return (owner == self.owner).then(|| self.input(machine, Input::TimedOut { op }));
        }
        None
    }

    fn complete<M: Machine>(&mut self, machine: &mut M, at: usize) -> Option<Step<M::Outcome>> {
        let f = &mut self.flying[at];
        if let Some(failure) = f.failure.filter(|_| std::mem::take(&mut f.doubt) && f.op.doubt_ms > 0) {
            let (owner, op) = (f.owner, f.op.id);
            f.completes = Some(self.now.plus_millis(f.op.doubt_ms));
            // From its deadline on it would be late, too.
            if !std::mem::replace(&mut f.timed_out, true) {
                return (owner == self.owner).then(|| self.input(machine, Input::Doubtful { op, failure }));
            }
            return None;
        }
        f.reported = true;
        let f = &mut self.flying[at];
        let (op, owner, failure, late) = (f.op.clone(), f.owner, f.failure, f.timed_out);
        let stale = f.stale.take();
        self.forget(at);
        if owner != self.owner {
            return None;
        }
        let view = match (failure, op.is_write()) {
            (Some(failure), _) => Err(failure),
            (None, true) => Ok(None),
            (None, false) => stale.unwrap_or_else(|| self.look(&op)).map(Some).ok_or(IoFailure::Short),
        };
        let result: Result<&dyn crate::machine::Sectors, IoFailure> = match &view {
            Ok(Some(view)) => Ok(view),
            Ok(None) => Ok(&NoSectors),
            Err(e) => Err(*e),
        };
        let op: OpId = op.id;
        let input = if late { Input::CompletedLate { op, result } } else { Input::Completed { op, result } };
        Some(self.input(machine, input))
    }

    /// Drops an operation of which nothing more can come.
    fn forget(&mut self, at: usize) {
        let f = &self.flying[at];
        let silent = f.reported || (f.completes.is_none() && f.timed_out);
        if silent && f.lands.is_none() {
            self.flying.remove(at);
        }
    }
}
