//! Changing the mode of a resource we hold (lease-algorithms.md 6.5, 6.6).
//!
//! *Shared to exclusive* is an acquire during which every write of our block keeps our mode block, so the shared hold is never
//! interrupted. Refused, it leaves the shared hold as it was.
//!
//! *Exclusive to shared* is a release that leaves a mode block. It has succeeded when the mode block is known to be on disk: from
//! then on others may come to share the lease, so whatever becomes of the leader the hold is shared, and the answer must not be
//! that nothing has changed. Before that nothing is answered while the write may still land.

use super::acquire::{AcquireOptions, AcquireOutcome, Mode, PaxosAcquire};
use super::ops::{Event, Ops};
use super::release::{PaxosRelease, ReleaseOutcome};
use super::share::shared;
use super::{AcquireError, Held, PaxosConfig};
use crate::machine::{Content, Env, Input, Machine, Step};
use crate::record::{DBLOCK_RELEASED, HostBlock, ModeBlock};
use crate::timing::MonoTime;
use std::sync::Arc;

/// What a conversion comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvertOutcome {
    /// Whether the mode is the one asked for.
    pub result: Result<(), AcquireError>,
    /// What we hold now; [`Held::is_shared`] tells the mode.
    pub held: Held,
    /// Whether the leader may still name us although the hold is shared: its release has to be a
    /// [`PaxosRelease::retract`].
    pub erase: bool,
    /// Whether the value block is on disk, so that it must not be written again.
    pub value_written: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "one per machine, part of its value")]
enum Stage {
    Up(PaxosAcquire),
    /// The lease is ours alone: the mode block goes.
    Clear(Ops),
    /// What this attempt, which has failed, or an earlier conversion may have left is taken back; then this is the result.
    Undo(Result<(), AcquireError>, PaxosRelease),
    Down(PaxosRelease),
    Done(Ops),
}

/// One attempt to convert.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PaxosConvert {
    config: PaxosConfig,
    held: Held,
    stage: Stage,
}

impl PaxosConvert {
    /// From shared to exclusive. Mode and version of `options` are not looked at.
    #[must_use]
    pub fn to_exclusive(config: PaxosConfig, options: AcquireOptions, held: Held) -> Self {
        let options = AcquireOptions { mode: Mode::Upgrade, lver: None, num_hosts: None, ..options };
        Self { config, held, stage: Stage::Up(PaxosAcquire::new(config, options)) }
    }

    /// From exclusive to shared.
    #[must_use]
    pub fn to_shared(config: PaxosConfig, held: Held) -> Self {
        let machine = PaxosRelease::to_shared(config, held).patiently();
        Self { config, held, stage: Stage::Down(machine) }
    }

    /// Writes the value block before anything of an exclusive hold is given up ([`PaxosRelease::with_value`]). A conversion to
    /// exclusive leaves it alone.
    #[must_use]
    pub fn with_value(mut self, value: Option<Arc<[u8]>>) -> Self {
        self.stage = match self.stage {
            Stage::Down(machine) => Stage::Down(machine.with_value(value)),
            stage => stage,
        };
        self
    }

    /// Takes back what an earlier conversion may have left ([`ConvertOutcome::erase`]): a leader that still names us, or a value that
    /// can be chosen. The shared hold stays as it is. Precondition: no write of that conversion is outstanding.
    #[must_use]
    pub fn erase(config: PaxosConfig, held: Held) -> Self {
        let machine = PaxosRelease::retract_exclusivity(config, held.geometry).of_attempt(Some(held.block));
        Self { config, held, stage: Stage::Undo(Ok(()), machine) }
    }

    fn done(&self, result: Result<(), AcquireError>, erase: bool, outstanding: u32) -> Step<ConvertOutcome> {
        let value_written = matches!(&self.stage, Stage::Down(machine) if machine.value_written());
        let outcome = ConvertOutcome { result, held: self.held, erase, value_written };
        Step::Done { outcome, outstanding }
    }

    fn after_up(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        outcome: AcquireOutcome,
        outstanding: u32,
    ) -> Step<ConvertOutcome> {
        let Stage::Up(machine) = &mut self.stage else { return Step::Pending };
        match outcome {
            AcquireOutcome::Acquired(held) => {
                let ops = machine.take_ops();
                self.clear(now, env, held, ops)
            }
            AcquireOutcome::Failed { error, retract, geometry } => {
                if let Some(block) = machine.block() {
                    self.held.block = HostBlock { mode: ModeBlock::shared(self.config.generation), ..block };
                }
                if retract.is_none() || outstanding > 0 {
                    return self.done(Err(error), retract.is_some(), outstanding);
                }
                let ops = machine.take_ops();
                let undo = PaxosRelease::retract_exclusivity(self.config, geometry).of_attempt(retract);
                let mut undo = undo.with_ops(ops);
                let step = undo.step(now, env, Input::Start);
                self.stage = Stage::Undo(Err(error), undo);
                step.and_then(|outcome, outstanding| self.after_release(outcome, outstanding))
            }
        }
    }

    /// Writes our block once more, without the shared hold. Should it stay on disk, it excludes nobody who is not excluded
    /// anyway, and the release takes it away.
    fn clear(&mut self, now: MonoTime, env: &Env<'_>, mut held: Held, mut ops: Ops) -> Step<ConvertOutcome> {
        held.block.mode = ModeBlock::zeroed();
        if self.config.check_env(env).is_ok() {
            let deadline = now.plus_millis(self.config.io_timeout.millis());
            let (sector, size) = (self.config.host.block_sector(), held.geometry.sector());
            for disk in 0..self.config.disks {
                let _started = ops.write(disk, size, sector, Content::Block(held.block), deadline);
            }
        }
        self.held = held;
        let batch = ops.take_batch();
        if ops.idle() {
            return self.cleared(ops);
        }
        self.stage = Stage::Clear(ops);
        Step::Io(batch)
    }

    fn step_clear(&mut self, input: Input<'_>) -> Step<ConvertOutcome> {
        let Stage::Clear(ops) = &mut self.stage else { return Step::Pending };
        match ops.absorb(input) {
            Event::Ended { .. } if ops.idle() => {
                let ops = std::mem::take(ops);
                self.cleared(ops)
            }
            Event::Ended { .. } | Event::Nothing => Step::Pending,
        }
    }

    fn cleared(&mut self, ops: Ops) -> Step<ConvertOutcome> {
        let outstanding = ops.outstanding();
        self.stage = Stage::Done(ops);
        self.done(Ok(()), false, outstanding)
    }

    /// A release has ended: the way down, or what was to be taken back.
    fn after_release(&mut self, outcome: ReleaseOutcome, outstanding: u32) -> Step<ConvertOutcome> {
        let erase = outcome.result.is_err() || outcome.block_failure.is_some();
        match &self.stage {
            Stage::Undo(result, undo) => {
                let result = *result;
                // On several disks it may have got a larger number.
                self.held.block = undo.written().unwrap_or(self.held.block);
                let flags = self.held.block.dblock.flags.get() | DBLOCK_RELEASED;
                self.held.block.dblock.flags = flags.into();
                self.done(result, erase, outstanding)
            }
            Stage::Down(machine) if machine.announced() => {
                self.held = shared(self.held, self.config.generation);
                self.done(Ok(()), erase, outstanding)
            }
            Stage::Down(_) => {
                let error = outcome.result.map_or_else(AcquireError::Share, |_| AcquireError::Driver);
                self.done(Err(error), false, outstanding)
            }
            Stage::Up(_) | Stage::Clear(_) | Stage::Done(_) => Step::Pending,
        }
    }
}

impl Machine for PaxosConvert {
    type Outcome = ConvertOutcome;

    fn step(&mut self, now: MonoTime, env: &Env<'_>, input: Input<'_>) -> Step<ConvertOutcome> {
        match &mut self.stage {
            Stage::Up(machine) => {
                let step = machine.step(now, env, input);
                step.and_then(|outcome, outstanding| self.after_up(now, env, outcome, outstanding))
            }
            Stage::Clear(_) => self.step_clear(input),
            Stage::Undo(_, machine) | Stage::Down(machine) => {
                let step = machine.step(now, env, input);
                step.and_then(|outcome, outstanding| self.after_release(outcome, outstanding))
            }
            Stage::Done(ops) => {
                let _late = ops.absorb(input);
                Step::Pending
            }
        }
    }
}
