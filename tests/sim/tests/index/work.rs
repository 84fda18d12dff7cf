//! An operation of a host: the production operation, the machine of the lease that it may be running, and what it waits for.

use crate::checks::Names;
use crate::disk::{Disk, SECTOR, View};
use crate::sabotage::Sabotage;
use crate::transfers::{EIO, Transfer};
use crate::world::{AREA, BASE, Event, GEOMETRY, Met, SLOTS, World, config, io_timeout};
use sanlock_lease::machine::{
    Action, Env, Input, IoFailure, LockspaceNow, Machine, NoSectors, Op, OpId, Place, Sectors, Step,
};
use sanlock_lease::name::Name;
use sanlock_lease::paxos::Held;
use sanlock_lease::paxos::acquire::AcquireOutcome;
use sanlock_lease::paxos::release::{ReleaseOutcome, Released};
use sanlock_lease::record::{HostBlock, RawLeader, RindexEntry};
use sanlock_lease::rindex::{
    Answer, LeaseMachine, LeaseOutcome, Limit, RindexCommand, RindexConfig, RindexError, RindexOperation,
    Want,
};
use sanlock_lease::timing::MonoTime;
use sanlock_sim::layout;

/// Milliseconds that formatting an area may take.
const INIT_LIMIT: u64 = 60_000;
/// Names in use: more than the index has entries.
const NAMES: u64 = 6;

/// Whose transfer it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum For {
    /// The operation's own.
    Operation,
    /// That of the machine with this number; `base`: the first sector of the area it counts from.
    Machine { run: u32, op: OpId, base: u64 },
}

enum Doing {
    Transfer,
    Machine(LeaseMachine),
    Settling,
    Pausing(MonoTime),
}

pub(crate) struct Work {
    pub(crate) command: RindexCommand,
    pub(crate) operation: RindexOperation,
    doing: Doing,
    /// Machines so far.
    run: u32,
    /// Writes that timed out, or failed in doubt, and may still land.
    late: u32,
    /// What the index was since it began.
    pub(crate) since: Vec<Names>,
    judged: bool,
    /// The area of a new resource, kept back by a sabotage.
    kept: Vec<(u64, Vec<u8>)>,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.command)
    }
}

fn lease_base() -> u64 {
    (BASE + AREA) / SECTOR as u64
}

impl World {
    fn with_env<R>(&self, host: usize, step: impl FnOnce(MonoTime, &Env<'_>) -> R) -> R {
        let env = Env {
            lockspace: self.lockspace_of(host),
            client_alive: true,
            shutting_down: false,
            hosts: &self.hosts[host].seen,
        };
        step(self.mono(), &env)
    }

    fn command(&mut self) -> RindexCommand {
        let number = self.dice.between(1, NAMES);
        let name = layout::name(&format!("disk-{number}"));
        let seed = self.dice.any();
        match self.dice.between(0, 99) {
            0..=44 => RindexCommand::Create { name, num_hosts: 0, seed },
            45..=79 => RindexCommand::Delete { name, offset: 0, seed },
            80..=89 => RindexCommand::Lookup { name, offset: 0 },
            90..=94 if self.rebuilds => RindexCommand::Rebuild { seed },
            _ => RindexCommand::Lookup { name: Name::default(), offset: 0 },
        }
    }

    /// The next command, unless one is under way or the lockspace is gone.
    pub(crate) fn begin(&mut self, host: usize) {
        let life = self.hosts[host].life;
        if self.hosts[host].work.is_some() || self.lockspace_of(host) == LockspaceNow::Gone {
            return self.plan(1000, Event::Begin { host, life });
        }
        let command = self.command();
        let config = RindexConfig { member: Some(self.hosts[host].member()), ..config() };
        self.note(|| format!("host {host}: {command:?}"));
        let since = vec![self.names()];
        self.hosts[host].work = Some(Work {
            command,
            operation: RindexOperation::new(config, command),
            doing: Doing::Transfer,
            run: 0,
            late: 0,
            since,
            judged: false,
            kept: Vec::new(),
        });
        self.answer(host, Answer::Start);
    }

    /// One step of the operation, and what it wants then.
    fn answer(&mut self, host: usize, answer: Answer<'_>) {
        let Some(mut work) = self.hosts[host].work.take() else { return };
        let mut want = self.with_env(host, |now, env| work.operation.step(now, env, answer));
        while let Some(spared) = self.spare(host, &mut work, &want) {
            want = self.with_env(host, |now, env| work.operation.step(now, env, spared));
        }
        self.judge(host, &mut work);
        let done = want == Want::Done;
        if matches!(want, Want::Done | Want::Release { .. }) && work.late > 0 {
            self.checks.violation(format!("X7: host {host}, {work:?}: {} writes may still land", work.late));
        }
        self.hosts[host].work = Some(work);
        match want {
            Want::Done => self.hosts[host].work = None,
            Want::Read { offset, len } => {
                let range = (offset / SECTOR as u64, (len / SECTOR) as u64);
                self.submit(host, For::Operation, range, None, io_timeout().millis());
            }
            Want::Write { offset, bytes, limit } => {
                self.written(host);
                let limit = if limit == Limit::Init { INIT_LIMIT } else { io_timeout().millis() };
                let range = (offset / SECTOR as u64, (bytes.len() / SECTOR) as u64);
                self.submit(host, For::Operation, range, Some(bytes), limit);
            }
            Want::Acquire { machine, .. } => self.start(host, LeaseMachine::Acquire(machine)),
            Want::Release { machine, .. } => {
                self.checks.gave_back(host);
                self.start(host, LeaseMachine::Release(machine));
            }
            Want::Settle => {
                self.doing(host, Doing::Settling);
                self.settle(host);
            }
            Want::Pause(until) => {
                self.met(Met::Paused);
                self.doing(host, Doing::Pausing(until));
                let life = self.hosts[host].life;
                self.plan(until.millis_since(self.mono()), Event::Tick { host, life });
            }
        }
        if done {
            let (pause, life) = (self.dice.spread(10, 60_000), self.hosts[host].life);
            self.plan(pause, Event::Begin { host, life });
        }
    }

    /// What a sabotage answers instead of doing it.
    fn spare(&mut self, host: usize, work: &mut Work, want: &Want) -> Option<Answer<'static>> {
        let command = work.command;
        let (creates, deletes) = (
            matches!(command, RindexCommand::Create { .. }),
            matches!(command, RindexCommand::Delete { .. }),
        );
        match (self.sabotage?, want) {
            (Sabotage::LeaseUnasked, Want::Acquire { .. }) => {
                let own = lease_base() + self.hosts[host].id.block_sector();
                let held = Held {
                    leader: RawLeader::from_sector(self.disk.sector(lease_base())),
                    block: HostBlock::from_sector(self.disk.sector(own)),
                    geometry: GEOMETRY,
                };
                self.checks.took(host);
                Some(Answer::Acquired(AcquireOutcome::Acquired(held), 0))
            }
            (Sabotage::EntriesFirst, Want::Write { offset, bytes, .. })
                if creates && *offset >= BASE + AREA =>
            {
                work.kept.push((*offset, bytes.clone()));
                Some(Answer::Written(Ok(())))
            }
            (Sabotage::DeletesKeepEntries, Want::Write { offset, .. })
                if deletes && *offset < BASE + AREA =>
            {
                Some(Answer::Written(Ok(())))
            }
            (Sabotage::SettlesAtOnce, Want::Settle) => Some(Answer::Settled),
            (Sabotage::KeptForEver, Want::Release { .. }) => {
                let outcome = ReleaseOutcome {
                    result: Ok(Released::LeaderFreed),
                    block_failure: None,
                    value_written: false,
                };
                Some(Answer::Released(outcome, 0))
            }
            _ => None,
        }
    }

    /// X5, as soon as the result is known.
    fn judge(&mut self, host: usize, work: &mut Work) {
        let Some(result) = work.operation.result().filter(|_| !work.judged) else { return };
        work.judged = true;
        for (offset, bytes) in work.kept.drain(..) {
            self.disk.land(offset / SECTOR as u64, &bytes);
        }
        self.note(|| format!("host {host}: {result:?}"));
        let result = match (self.sabotage, work.command, result) {
            (Some(Sabotage::NothingFound), RindexCommand::Lookup { name, .. }, Ok(_)) => {
                Err(RindexError::NoSuchName(name))
            }
            _ => result,
        };
        let now = self.names();
        self.checks.result(host, work.command, result, (&now, &work.since));
        match result {
            Err(RindexError::Acquire(_)) => self.met(Met::Refused),
            Err(RindexError::Io { .. }) => self.met(Met::Failed),
            Err(RindexError::LockspaceGone) => self.met(Met::GoneAtWork),
            // A lookup needs no lease: X8 is about those that do.
            _ if work.command.takes_lease() => {
                self.hosts[host].done_at = self.now;
                self.met(Met::Done);
                if matches!(work.command, RindexCommand::Rebuild { .. }) {
                    self.met(Met::Rebuilt);
                }
            }
            _ => {}
        }
    }

    fn doing(&mut self, host: usize, doing: Doing) {
        if let Some(work) = self.hosts[host].work.as_mut() {
            work.doing = doing;
        }
    }

    /// X6.
    fn written(&mut self, host: usize) {
        if self.failed(host) {
            self.checks.violation(format!("X6: host {host} writes: {:?}", self.hosts[host].work));
        }
    }
}

impl World {
    fn start(&mut self, host: usize, machine: LeaseMachine) {
        if let Some(work) = self.hosts[host].work.as_mut() {
            work.run += 1;
            work.doing = Doing::Machine(machine);
        }
        self.drive(host, Input::Start);
    }

    /// One step of the machine on the lease, and what it wants then.
    fn drive(&mut self, host: usize, input: Input<'_>) {
        let Some(mut work) = self.hosts[host].work.take() else { return };
        let Doing::Machine(machine) = &mut work.doing else {
            self.hosts[host].work = Some(work);
            return;
        };
        let step = self.with_env(host, |now, env| machine.step(now, env, input));
        let run = work.run;
        self.hosts[host].work = Some(work);
        match step {
            Step::Io(ops) => ops.into_iter().for_each(|op| self.submit_op(host, run, op)),
            Step::Wait(until) => {
                let life = self.hosts[host].life;
                self.plan(until.millis_since(self.mono()), Event::Tick { host, life });
            }
            Step::Pending => {}
            Step::Done { outcome, outstanding } => {
                self.doing(host, Doing::Transfer);
                let outstanding =
                    if self.sabotage == Some(Sabotage::LateForgotten) { 0 } else { outstanding };
                match outcome {
                    LeaseOutcome::Acquire(outcome) => {
                        if let AcquireOutcome::Acquired(held) = &outcome {
                            let last = self.checks.last_owner.replace(host);
                            if last.is_some_and(|last| last != host) {
                                self.met(Met::TakenOver);
                            }
                            self.note(|| format!("host {host} has the lease, version {}", held.lver()));
                            self.checks.took(host);
                        }
                        self.answer(host, Answer::Acquired(outcome, outstanding));
                    }
                    LeaseOutcome::Release(outcome) => {
                        self.answer(host, Answer::Released(outcome, outstanding))
                    }
                }
            }
        }
    }

    fn submit_op(&mut self, host: usize, run: u32, op: Op) {
        let base = match op.place {
            Place::Lockspace => 0,
            Place::Resource(_) => lease_base(),
        };
        let whose = For::Machine { run, op: op.id, base };
        let limit = op.deadline.millis_since(self.mono());
        match op.action {
            Action::Read { first, count } => self.submit(host, whose, (base + first, count), None, limit),
            Action::Write { sector, content } => {
                self.written(host);
                let mut bytes = vec![0; SECTOR];
                content.encode(&mut bytes);
                self.submit(host, whose, (base + sector, 1), Some(bytes), limit);
            }
        }
    }

    /// A transfer has ended, in time or late.
    pub(crate) fn heard(&mut self, transfer: &Transfer, result: Result<(), IoFailure>) {
        let host = transfer.host;
        let write = transfer.bytes.is_some();
        if let Some(work) = self.hosts[host].work.as_mut().filter(|_| transfer.late && write) {
            work.late -= 1;
        }
        match transfer.whose {
            For::Operation if !transfer.late => {
                if write {
                    return self.answer(host, Answer::Written(result));
                }
                let bytes = self.read_bytes(host, transfer);
                self.answer(host, Answer::Read(result.map(|()| bytes.as_slice())));
            }
            For::Machine { run, op, base } if self.is_run(host, run) => {
                let mut read = transfer.read.clone();
                if self.sabotage == Some(Sabotage::OwnersDieYoung) && base == 0 {
                    age(&mut read, transfer.first);
                }
                let first = transfer.first - base;
                let view = View { read: &read, base, first, count: transfer.count };
                let view: &dyn Sectors = if write { &NoSectors } else { &view };
                let result = result.map(|()| view);
                let input = if transfer.late {
                    Input::CompletedLate { op, result }
                } else {
                    Input::Completed { op, result }
                };
                self.drive(host, input);
            }
            _ => {}
        }
        self.settle(host);
    }

    /// What the operation is given to read.
    fn read_bytes(&mut self, host: usize, transfer: &Transfer) -> Vec<u8> {
        let mut bytes = transfer.read.bytes(transfer.first, transfer.count);
        let index = transfer.first == BASE / SECTOR as u64 && transfer.count == AREA / SECTOR as u64;
        match self.sabotage {
            Some(Sabotage::IndexFromMemory) if index => {
                bytes.clone_from(self.hosts[host].memory.get_or_insert(bytes.clone()));
            }
            Some(Sabotage::EntriesElsewhere) if index => {
                // As if the entries were one place further.
                let entries = &mut bytes[SECTOR..SECTOR + SLOTS * RindexEntry::BYTES];
                entries.rotate_right(RindexEntry::BYTES);
            }
            _ => {}
        }
        bytes
    }

    /// The submitter of a transfer waits no more.
    pub(crate) fn timed_out(&mut self, host: usize, whose: For, write: bool) {
        let Some(work) = self.hosts[host].work.as_mut() else { return };
        work.late += u32::from(write);
        let failure = match self.sabotage {
            Some(Sabotage::LateForgotten) => IoFailure::Os(28),
            _ => IoFailure::TimedOut,
        };
        match whose {
            For::Operation if write => self.answer(host, Answer::Written(Err(failure))),
            For::Operation => self.answer(host, Answer::Read(Err(failure))),
            For::Machine { run, op, .. } if self.is_run(host, run) => {
                self.drive(host, Input::TimedOut { op })
            }
            For::Machine { .. } => {}
        }
    }

    /// A write has failed and may still land. `late`: it had timed out before.
    pub(crate) fn doubted(&mut self, host: usize, whose: For, late: bool) {
        let Some(work) = self.hosts[host].work.as_mut().filter(|_| !late) else { return };
        work.late += 1;
        match whose {
            For::Operation => self.answer(host, Answer::Written(Err(EIO))),
            For::Machine { run, op, .. } if self.is_run(host, run) => {
                let input = match self.sabotage {
                    Some(Sabotage::DoubtsForgotten) => Input::Completed { op, result: Err(EIO) },
                    _ => Input::Doubtful { op, failure: EIO },
                };
                self.drive(host, input);
            }
            For::Machine { .. } => {}
        }
    }

    fn is_run(&self, host: usize, run: u32) -> bool {
        let work = self.hosts[host].work.as_ref();
        work.is_some_and(|work| work.run == run && matches!(work.doing, Doing::Machine(_)))
    }

    /// Whoever waits until nothing may land any more goes on when that is so.
    fn settle(&mut self, host: usize) {
        let work = self.hosts[host].work.as_ref();
        let cut_short = self.sabotage == Some(Sabotage::SettlesUntilGone)
            && self.lockspace_of(host) == LockspaceNow::Gone;
        if work.is_some_and(|work| matches!(work.doing, Doing::Settling) && (work.late == 0 || cut_short)) {
            self.doing(host, Doing::Transfer);
            self.answer(host, Answer::Settled);
        }
    }

    /// A wait is over, or something has changed.
    pub(crate) fn tick(&mut self, host: usize) {
        let gone = self.lockspace_of(host) == LockspaceNow::Gone;
        let now = self.mono();
        match self.hosts[host].work.as_ref().map(|work| &work.doing) {
            Some(Doing::Machine(_)) => self.drive(host, Input::Tick),
            Some(Doing::Pausing(until)) if now >= *until || gone => {
                self.doing(host, Doing::Transfer);
                self.answer(host, Answer::Resumed);
            }
            Some(Doing::Settling) => self.settle(host),
            _ => {}
        }
    }
}

/// Makes the owner in a host_id lease look like one of a later life.
fn age(read: &mut Disk, sector: u64) {
    let mut delta = RawLeader::from_sector(read.sector(sector));
    delta.owner_generation = (delta.owner_generation.get() + 1).into();
    delta.seal();
    let mut bytes = vec![0; SECTOR];
    delta.encode(None, &mut bytes);
    read.land(sector, &bytes);
}
