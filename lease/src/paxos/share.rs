//! Taking a resource shared (lease-algorithms.md 5.2, 5.3).
//!
//! A host enters shared mode by owning the lease for a moment: a ballot as for an exclusive hold, whose leader says SHORT_HOLD;
//! then its mode block, in one write with the flag that gives the ownership up; then the leader is freed. Who finds the owner in
//! that moment knows from SHORT_HOLD that it will pass, and tries again.

use super::acquire::{AcquireOptions, AcquireOutcome, Mode, PaxosAcquire};
use super::release::{PaxosRelease, ReleaseOutcome};
use super::{AcquireError, Held, PaxosConfig, ReleaseError};
use crate::machine::{Env, Input, IoFailure, Machine, Step};
use crate::record::{DBLOCK_RELEASED, ModeBlock};
use crate::timing::MonoTime;

/// Longest wait before a retry.
const BACKOFF_MS: u64 = 1000;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "one per machine, part of its value")]
enum Stage {
    Acquire(PaxosAcquire),
    Backoff(MonoTime, super::ops::Ops),
    Share(Held, PaxosRelease),
    Done,
}

/// One attempt to take a resource shared, with its retries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PaxosShare {
    config: PaxosConfig,
    options: AcquireOptions,
    retries: u32,
    stage: Stage,
}

impl PaxosShare {
    /// An attempt that has done nothing yet. `retries`: how often an owner that passes through to shared mode is tried again
    /// (`sh_retries`). The mode of `options` is not looked at.
    #[must_use]
    pub fn new(config: PaxosConfig, options: AcquireOptions, retries: u32) -> Self {
        let options = AcquireOptions { mode: Mode::ShortHold, ..options };
        Self { config, options, retries, stage: Stage::Acquire(PaxosAcquire::new(config, options)) }
    }

    /// Why what lies on a disk is not to be taken for this lease's.
    pub(super) fn unseen(&self, disk: u8) -> Option<IoFailure> {
        match &self.stage {
            Stage::Acquire(machine) => machine.unseen(disk),
            Stage::Backoff(_, ops) => ops.unseen(disk),
            Stage::Share(_, machine) => machine.unseen(disk),
            Stage::Done => None,
        }
    }

    /// Writes that timed out and have not ended.
    pub(super) fn outstanding(&self) -> u32 {
        match &self.stage {
            Stage::Acquire(machine) => machine.outstanding(),
            Stage::Backoff(_, ops) => ops.outstanding(),
            Stage::Share(_, machine) => machine.outstanding(),
            Stage::Done => 0,
        }
    }

    fn done(&mut self, outcome: AcquireOutcome, outstanding: u32) -> Step<AcquireOutcome> {
        self.stage = Stage::Done;
        Step::Done { outcome, outstanding }
    }

    fn after_acquire(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        outcome: AcquireOutcome,
        outstanding: u32,
        ops: super::ops::Ops,
    ) -> Step<AcquireOutcome> {
        match outcome {
            AcquireOutcome::Acquired(held) => {
                let mut share = PaxosRelease::to_shared(self.config, held).with_ops(ops);
                let step = share.step(now, env, Input::Start);
                self.stage = Stage::Share(held, share);
                step.and_then(|outcome, outstanding| self.after_share(outcome, outstanding))
            }
            AcquireOutcome::Failed { error, retract: None, geometry } if outstanding == 0 => {
                let error = match error {
                    AcquireError::Live(owner) if owner.short_hold => AcquireError::Crowded(owner),
                    // Who won may itself be entering shared mode; if it is not, the next try says that it is alive.
                    AcquireError::Owned(_) | AcquireError::Other(_) => error,
                    _ => return self.done(outcome, outstanding),
                };
                if self.retries == 0 {
                    return self.done(AcquireOutcome::Failed { error, retract: None, geometry }, outstanding);
                }
                self.retries -= 1;
                let until = now.plus_millis(1 + super::random(&mut self.options.seed) % BACKOFF_MS);
                self.stage = Stage::Backoff(until, ops);
                Step::Wait(until)
            }
            AcquireOutcome::Failed { .. } => self.done(outcome, outstanding),
        }
    }

    fn after_share(&self, outcome: ReleaseOutcome, outstanding: u32) -> Step<AcquireOutcome> {
        let Stage::Share(held, _) = &self.stage else { return Step::Pending };
        let result = match (outcome.result, outcome.block_failure) {
            // The leader is free, but a majority lacks the flag, which others look for where somebody commits our value once more.
            (Ok(_), Some(failure)) => Err(ReleaseError::DblockWrite(failure)),
            (result, _) => result,
        };
        let outcome = match result {
            Ok(_) => AcquireOutcome::Acquired(shared(*held, self.config.generation)),
            Err(e) => AcquireOutcome::Failed {
                error: AcquireError::Share(e),
                retract: Some(held.block),
                geometry: held.geometry,
            },
        };
        // The machine stays, to be told of writes that end late.
        Step::Done { outcome, outstanding }
    }

    fn again(&mut self, now: MonoTime, env: &Env<'_>, until: MonoTime) -> Step<AcquireOutcome> {
        if let Err(error) = self.config.check_env(env) {
            let geometry = self.config.geometry;
            return self.done(AcquireOutcome::Failed { error, retract: None, geometry }, 0);
        }
        if now < until {
            return Step::Wait(until);
        }
        let options = AcquireOptions { seed: super::random(&mut self.options.seed), ..self.options };
        let Stage::Backoff(_, ops) = &mut self.stage else { return Step::Pending };
        // Numbers of operations go on: what the last attempt began may end at any time.
        let mut acquire = PaxosAcquire::new(self.config, options).with_ops(std::mem::take(ops));
        let step = acquire.step(now, env, Input::Start);
        self.stage = Stage::Acquire(acquire);
        self.pass_acquire(now, env, step)
    }

    fn pass_acquire(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        step: Step<AcquireOutcome>,
    ) -> Step<AcquireOutcome> {
        match (step, &mut self.stage) {
            (Step::Done { outcome, outstanding }, Stage::Acquire(machine)) => {
                let ops = machine.take_ops();
                self.after_acquire(now, env, outcome, outstanding, ops)
            }
            (step, _) => step,
        }
    }
}

/// What `held` is once our mode block is written and the ownership given up.
pub(super) fn shared(mut held: Held, generation: u64) -> Held {
    held.block.dblock.flags = (held.block.dblock.flags.get() | DBLOCK_RELEASED).into();
    held.block.mode = ModeBlock::shared(generation);
    held
}

impl Machine for PaxosShare {
    type Outcome = AcquireOutcome;

    fn step(&mut self, now: MonoTime, env: &Env<'_>, input: Input<'_>) -> Step<AcquireOutcome> {
        match &mut self.stage {
            Stage::Acquire(machine) => {
                let step = machine.step(now, env, input);
                self.pass_acquire(now, env, step)
            }
            Stage::Backoff(until, ops) => {
                let until = *until;
                match input {
                    Input::Tick => self.again(now, env, until),
                    // Nothing is in flight but reads of the attempt before.
                    input => {
                        let _late = ops.absorb(input);
                        Step::Pending
                    }
                }
            }
            Stage::Share(_, machine) => {
                let step = machine.step(now, env, input);
                step.and_then(|outcome, outstanding| self.after_share(outcome, outstanding))
            }
            Stage::Done => Step::Pending,
        }
    }
}
