//! What a host does: its machine's steps, and what follows an ended machine. Operations are in [`crate::operations`].
//!
//! What a daemon does around the machines is reduced to what matters for the lease: it begins nothing for the resource before
//! every write has settled (rule R3), takes back what a failed acquire may have left, repeats a release as a retract, and
//! hands a lease to a process only if the lockspace is still the one the acquire began with. A reference host does as the
//! original does: it cleans up and repeats at once.

use crate::disk::{self, ContentId, Contents, Disks};
use crate::host::{Holding, Host, Job, Then};
use crate::settings::{Kind, Plan, Settings, Twist};
use crate::surroundings::Lives;
use sanlock_lease::geometry::HostId;
use sanlock_lease::machine::{Content, Env, Input, LockspaceNow, Machine, Op, Step};
use sanlock_lease::paxos::acquire::{AcquireOptions, AcquireOutcome};
use sanlock_lease::paxos::convert::ConvertOutcome;
use sanlock_lease::paxos::release::{ReleaseOutcome, Released};
use sanlock_lease::paxos::{AcquireError, Held, PaxosAcquire, PaxosConfig, PaxosRelease, ReleaseError};
use sanlock_lease::record::RawLeader;
use sanlock_lease::timing::{IoTimeout, MonoTime, WatchdogFire};
use sanlock_sim::layout;
use sanlock_sim::reference::{ReferenceAcquire, ReferenceRelease};

/// What a step of a machine comes to, whichever machine it is.
pub(crate) enum Told {
    Io(Vec<Op>),
    Wait(MonoTime),
    Pending,
    Acquire(AcquireOutcome, u32),
    Convert(Box<ConvertOutcome>, u32),
    Release(ReleaseOutcome, u32),
}

fn told<O>(step: Step<O>, done: impl FnOnce(O, u32) -> Told) -> Told {
    match step {
        Step::Io(ops) => {
            assert!(!ops.is_empty(), "it would never go on");
            Told::Io(ops.into_iter().collect())
        }
        Step::Wait(until) => Told::Wait(until),
        Step::Pending => Told::Pending,
        Step::Done { outcome, outstanding } => done(outcome, outstanding),
    }
}

impl Job {
    fn step(&mut self, now: MonoTime, env: &Env<'_>, input: Input<'_>) -> Told {
        match self {
            Self::Acquire(m) => told(m.step(now, env, input), Told::Acquire),
            Self::ReferenceAcquire(m) => told(m.step(now, env, input), Told::Acquire),
            Self::Share(m) => told(m.step(now, env, input), Told::Acquire),
            Self::ReferenceShare(m) => told(m.step(now, env, input), Told::Acquire),
            Self::Convert(m, _) => told(m.step(now, env, input), |o, n| Told::Convert(Box::new(o), n)),
            Self::Release(m) => told(m.step(now, env, input), Told::Release),
            Self::ReferenceRelease(m, _) => told(m.step(now, env, input), Told::Release),
        }
    }
}

/// Things that happened in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Effects {
    /// A process was given the lease: this leader.
    pub granted: Option<ContentId>,
    /// Bits of `SEEN_*` and `BROKE_*`.
    pub flags: u16,
}

/// An acquire found the owner alive.
pub const SEEN_LIVE: u16 = 1;
/// An acquire committed another host's value.
pub const SEEN_ADOPTED: u16 = 1 << 1;
/// An acquire lost its version to another host.
pub const SEEN_LOST: u16 = 1 << 2;
/// An acquire stopped at a block ahead of the leader.
pub const SEEN_NEWER: u16 = 1 << 3;
/// A lease was given up by flag alone.
pub const SEEN_BY_FLAG: u16 = 1 << 4;
/// A retract was begun.
pub const SEEN_RETRACT: u16 = 1 << 5;
/// An operation ended because the lockspace was no longer its own.
pub const SEEN_GONE: u16 = 1 << 6;
/// A ballot gave way to a larger one.
pub const SEEN_BACKOFF: u16 = 1 << 7;
/// A write was submitted without the host id it is for.
pub const BROKE_HOST_ID: u16 = 1 << 8;
/// A write was submitted to a sector of somebody else.
pub const BROKE_PLACE: u16 = 1 << 9;
/// A release was refused.
pub const BROKE_REFUSED: u16 = 1 << 10;
/// A shared hold was taken.
pub const SEEN_SHARED: u16 = 1 << 11;
/// A shared hold became an exclusive one.
pub const SEEN_UP: u16 = 1 << 12;
/// An exclusive hold became a shared one.
pub const SEEN_DOWN: u16 = 1 << 13;
/// An acquire or conversion found somebody who shares.
pub const SEEN_REFUSED_SHARED: u16 = 1 << 14;
/// A conversion failed.
pub const SEEN_CONVERT_FAILED: u16 = 1 << 15;

/// What a host may look at during a step.
#[derive(Clone, Copy, Debug)]
pub struct Around {
    /// The resource.
    pub disks: Disks,
    /// The hosts.
    pub lives: Lives,
}

/// A step of one host: the host, what it sees, and what comes of it.
pub struct Turn<'a> {
    /// The host.
    pub host: &'a mut Host,
    /// The run.
    pub settings: &'a Settings,
    /// What it sees.
    pub around: Around,
    /// All contents.
    pub contents: &'a mut Contents,
    /// What happened.
    pub effects: Effects,
}

impl Turn<'_> {
    pub(crate) fn id(&self) -> HostId {
        disk::host_id(self.host.index)
    }

    pub(crate) fn generation(&self) -> Option<u64> {
        self.around.lives.generation(self.host.index)
    }

    fn ours(&self) -> bool {
        self.host.kind == Kind::Ours
    }

    /// The table of the other hosts is up to date again.
    pub fn look(&mut self) {
        self.host.seen = Some(self.around.lives);
    }

    /// Nothing is in flight any more: what waited for that.
    pub(crate) fn all_settled(&mut self) {
        match self.host.settling.take() {
            Some(Then::Retract) => self.retract(),
            Some(Then::Next) => self.next(),
            Some(Then::Release) => {
                if let Some(held) = self.host.unsettled.take() {
                    self.release(*held);
                }
            }
            None => {}
        }
    }

    /// One of the paths to the disks is lost, or there again. What is under way may come to anything.
    pub fn path(&mut self, disk: u8, lost: bool) {
        let bit = 1 << disk;
        self.host.lost = if lost { self.host.lost | bit } else { self.host.lost & !bit };
    }

    /// What it waited for has come. If somebody is known to be dead, the wait was long enough for that.
    pub fn wake(&mut self) {
        const LONG: u64 = 200;
        if let Some(until) = self.host.wait.take() {
            self.host.now = self.host.now.max(until);
            if self.around.lives.silent_means_dead() {
                self.host.now = self.host.now.plus_secs(LONG);
            }
            self.tell(Input::Tick);
        }
    }

    /// Begins the next acquire if there is one left, everything has settled, and the lockspace is there.
    pub fn next(&mut self) {
        if self.ours() && !self.host.late.is_empty() {
            self.host.settling = Some(Then::Next);
        } else if self.host.attempts > 0 && self.generation().is_some() {
            self.host.attempts -= 1;
            self.host.plan = self.settings.plan(self.host.index, self.host.attempts);
            self.acquire();
            self.host.fresh = self.settings.budget.leaves > 0;
        }
    }

    /// An acquire beyond the settings' number, if nothing else goes on.
    pub fn once_more(&mut self, plan: Plan) {
        if self.host.job.is_none() && self.host.settling.is_none() {
            self.host.plan = plan;
            self.acquire();
        }
    }

    pub(crate) fn config(&self) -> PaxosConfig {
        let (host, generation) = (self.id(), self.host.job_generation);
        let disks = self.settings.disks;
        let one = layout::paxos_config(host, generation, 0, IoTimeout::DEFAULT, WatchdogFire::DEFAULT);
        PaxosConfig { disks, ..one }
    }

    pub(crate) fn begin(&mut self, job: Job) {
        self.host.job = Some(job);
        self.tell(Input::Start);
    }

    fn acquire(&mut self) {
        let Some(generation) = self.generation() else { return };
        self.host.job_generation = generation;
        if !self.settings.same_second {
            self.host.now = self.host.now.plus_secs(1);
        }
        let options = AcquireOptions {
            owner_nowait: !self.settings.patient,
            seed: self.host.index as u64,
            ..AcquireOptions::default()
        };
        if matches!(self.host.plan, Plan::Shared | Plan::SharedThenUp) {
            return self.share(options);
        }
        let config = self.config();
        self.begin(match self.host.kind {
            Kind::Ours => Job::Acquire(Box::new(PaxosAcquire::new(config, options))),
            Kind::Reference => Job::ReferenceAcquire(Box::new(ReferenceAcquire::new(config, options))),
        });
    }

    pub(crate) fn release(&mut self, held: Held) {
        let config = self.config();
        self.begin(match self.host.kind {
            Kind::Ours => {
                let name = self.settings.renames.then_some(config.resource);
                Job::Release(Box::new(PaxosRelease::new(config, held).renamed(name)))
            }
            Kind::Reference => {
                Job::ReferenceRelease(Box::new(ReferenceRelease::new(config, held)), Some(Box::new(held)))
            }
        });
    }

    pub(crate) fn retract(&mut self) {
        self.effects.flags |= SEEN_RETRACT;
        let config = self.config();
        self.begin(match self.host.kind {
            Kind::Ours => {
                let attempt = self.host.unfinished.as_deref().copied();
                let machine = PaxosRelease::retract(config, layout::GEOMETRY).of_attempt(attempt);
                Job::Release(Box::new(machine))
            }
            Kind::Reference => Job::ReferenceRelease(Box::new(ReferenceRelease::erase_all(config)), None),
        });
    }

    /// The process gives its lease up the moment anything becomes of the first write of the release.
    pub(crate) fn let_go(&mut self) {
        self.host.fresh = false;
        if self.host.converts() {
            self.lowering();
        } else if self.settings.twist != Twist::ReleasedTooEarly {
            self.host.holding = None;
            self.host.sharing = None;
            self.host.between = false;
        }
    }

    pub(crate) fn tell(&mut self, input: Input<'_>) {
        let told = self.step(input);
        self.follow(told);
    }

    pub(crate) fn step(&mut self, input: Input<'_>) -> Told {
        let lockspace = match self.generation() {
            Some(generation) => LockspaceNow::Alive { generation },
            None => LockspaceNow::Gone,
        };
        let seen = self.host.seen.unwrap_or(self.around.lives);
        let hosts = seen.table(self.host.now, self.settings);
        let env = Env { lockspace, client_alive: true, shutting_down: false, hosts: &hosts };
        match &mut self.host.job {
            Some(job) => job.step(self.host.now, &env, input),
            None => Told::Pending,
        }
    }

    pub(crate) fn follow(&mut self, told: Told) {
        match told {
            Told::Io(ops) => {
                self.host.wait = None;
                self.submit_all(&ops);
            }
            Told::Wait(until) => {
                self.host.wait = Some(until);
                self.effects.flags |= SEEN_BACKOFF;
            }
            Told::Pending => {}
            Told::Acquire(outcome, outstanding) => self.acquire_done(outcome, outstanding),
            Told::Convert(outcome, outstanding) => self.convert_done(&outcome, outstanding),
            Told::Release(outcome, outstanding) => self.release_done(outcome, outstanding),
        }
    }

    pub(crate) fn ended(&mut self) {
        self.host.job = None;
        self.host.running.clear();
        self.host.own_read = None;
        self.host.wait = None;
    }

    fn acquire_done(&mut self, outcome: AcquireOutcome, outstanding: u32) {
        self.ended();
        let alive = self.generation();
        match outcome {
            AcquireOutcome::Acquired(held) => {
                // The last look before the lease is handed out: the original's is at the lockspace alone (CE8).
                let same = alive == Some(self.host.job_generation);
                if same || (alive.is_some() && !self.ours()) {
                    self.granted(held);
                } else if alive.is_some() {
                    self.release(held);
                }
            }
            AcquireOutcome::Failed { error, retract, .. } => {
                self.effects.flags |= match error {
                    AcquireError::Live(_) => SEEN_LIVE,
                    AcquireError::Other(_) => SEEN_ADOPTED,
                    AcquireError::Owned(_) => SEEN_LOST,
                    AcquireError::Newer { .. } => SEEN_NEWER,
                    AcquireError::Shared { .. } => SEEN_REFUSED_SHARED,
                    AcquireError::LockspaceGone => SEEN_GONE,
                    AcquireError::Driver => BROKE_REFUSED,
                    _ => 0,
                };
                let settles = self.ours() && outstanding > 0;
                if alive.is_none() {
                    // Whoever takes over settles it.
                } else if settles || retract.is_some() {
                    self.host.unfinished = retract.map(Box::new);
                    if settles {
                        self.host.settling = Some(Then::Retract);
                    } else {
                        self.retract();
                    }
                } else {
                    self.next();
                }
            }
        }
    }

    fn granted(&mut self, held: Held) {
        if held.is_shared() {
            return self.shared(held);
        }
        self.holds(held);
        if self.ours() && !self.host.late.is_empty() {
            return self.settle_first(held);
        }
        if self.host.plan == Plan::ExclusiveThenDown {
            self.lower(held);
        } else {
            self.release(held);
        }
    }

    /// A majority of the disks has it, a write to another one is still on its way: the release waits for that (R3).
    pub(crate) fn settle_first(&mut self, held: Held) {
        self.host.unsettled = Some(Box::new(held));
        self.host.settling = Some(Then::Release);
    }

    /// A process has the lease to itself.
    pub(crate) fn holds(&mut self, held: Held) {
        let leader: RawLeader = held.leader;
        self.effects.granted = Some(self.contents.number(&Content::Leader(leader)));
        let value = (leader.owner_id.get(), leader.owner_generation.get(), leader.timestamp.get());
        self.host.holding = Some(Holding { lver: held.lver(), value });
    }

    fn release_done(&mut self, outcome: ReleaseOutcome, outstanding: u32) {
        let held = match self.host.job.take() {
            Some(Job::ReferenceRelease(_, held)) => held,
            _ => None,
        };
        self.ended();
        self.host.holding = None;
        self.host.sharing = None;
        self.effects.flags |= match outcome.result {
            Ok(Released::ByFlag) => SEEN_BY_FLAG,
            Ok(_) => 0,
            Err(ReleaseError::LockspaceGone) => SEEN_GONE,
            Err(e) if e.is_retryable() => 0,
            Err(_) => BROKE_REFUSED,
        };
        let again = match self.host.kind {
            Kind::Ours => outcome.needs_retract() || outstanding > 0,
            Kind::Reference => outcome.result.is_err_and(|e| e.is_retryable()),
        };
        match (again && self.generation().is_some(), held) {
            (true, Some(held)) => self.release(*held),
            (true, None) if self.ours() && outstanding > 0 => self.host.settling = Some(Then::Retract),
            (true, None) => self.retract(),
            (false, _) => {
                self.host.unfinished = None;
                self.next();
            }
        }
    }
}
