//! Taking a resource in either mode, and with it the value block if that is wanted (lease-algorithms.md 7.4, disk-format.md 7.8).
//!
//! The value block is one sector that only an exclusive owner writes, before it gives the lease up. So it is read once the lease is
//! ours: from then on nobody changes it. That it could not be read costs nobody the lease.

use super::acquire::{AcquireOptions, AcquireOutcome, Mode, PaxosAcquire};
use super::share::PaxosShare;
use super::{Held, PaxosConfig};
use crate::limits::LVB_SECTOR;
use crate::machine::{Action, Env, Input, IoFailure, Machine, Op, OpId, Place, Step};
use crate::timing::MonoTime;
use arrayvec::ArrayVec;
use std::sync::Arc;

/// The read of the value block: a number that the machine before it does not reach.
const VALUE_READ: OpId = OpId(u32::MAX);

/// What was found in a value block: a sector, or why it could not be read.
pub type ValueRead = Result<Arc<[u8]>, IoFailure>;

/// What taking a resource comes to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Taken {
    /// The lease.
    pub outcome: AcquireOutcome,
    /// The value block, if the lease is ours, a value was wanted, and its sizes have room for one (rule R8).
    pub value: Option<ValueRead>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Lease {
    Exclusive(PaxosAcquire),
    Shared(PaxosShare),
}

/// One attempt to take a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PaxosTake {
    config: PaxosConfig,
    lease: Lease,
    /// Whether the value block is wanted.
    value: bool,
    /// Whose value block is being read.
    reading: Option<Held>,
}

impl PaxosTake {
    /// An attempt that has done nothing yet, in the mode of `options`. `retries`: how often an owner that passes through to
    /// shared mode is tried again (`sh_retries`); `value`: whether to read the value block.
    #[must_use]
    pub fn new(config: PaxosConfig, options: AcquireOptions, retries: u32, value: bool) -> Self {
        let lease = if options.mode == Mode::ShortHold {
            Lease::Shared(PaxosShare::new(config, options, retries))
        } else {
            Lease::Exclusive(PaxosAcquire::new(config, options))
        };
        Self { config, lease, value, reading: None }
    }

    fn outstanding(&self) -> u32 {
        match &self.lease {
            Lease::Exclusive(machine) => machine.outstanding(),
            Lease::Shared(machine) => machine.outstanding(),
        }
    }

    /// Why the first disk, the only one with a value block, is not to be read.
    fn first_is_unseen(&self) -> Option<IoFailure> {
        match &self.lease {
            Lease::Exclusive(machine) => machine.unseen(0),
            Lease::Shared(machine) => machine.unseen(0),
        }
    }

    fn after_lease(&mut self, now: MonoTime, outcome: AcquireOutcome, outstanding: u32) -> Step<Taken> {
        let held = match outcome {
            AcquireOutcome::Acquired(held) if self.value && held.geometry.lvb_fits() => held,
            outcome => return Step::Done { outcome: Taken { outcome, value: None }, outstanding },
        };
        if let Some(failure) = self.first_is_unseen() {
            let value = Some(Err(failure));
            let outcome = Taken { outcome: AcquireOutcome::Acquired(held), value };
            return Step::Done { outcome, outstanding };
        }
        self.reading = Some(held);
        let mut ops = ArrayVec::new();
        ops.push(Op {
            id: VALUE_READ,
            place: Place::Resource(0),
            sector_size: held.geometry.sector(),
            action: Action::Read { first: LVB_SECTOR, count: 1 },
            deadline: now.plus_millis(self.config.io_timeout.millis()),
            doubt_ms: 0,
        });
        Step::Io(ops)
    }

    fn value_read(&mut self, value: ValueRead) -> Step<Taken> {
        let Some(held) = self.reading.take() else { return Step::Pending };
        let outcome = Taken { outcome: AcquireOutcome::Acquired(held), value: Some(value) };
        Step::Done { outcome, outstanding: self.outstanding() }
    }
}

impl Machine for PaxosTake {
    type Outcome = Taken;

    fn step(&mut self, now: MonoTime, env: &Env<'_>, input: Input<'_>) -> Step<Taken> {
        match input {
            Input::Completed { op: VALUE_READ, result } => {
                let bytes = result.and_then(|view| {
                    let sector = view.sector(LVB_SECTOR).ok_or(IoFailure::Short)?;
                    Ok(Arc::from(sector))
                });
                self.value_read(bytes)
            }
            Input::TimedOut { op: VALUE_READ } => self.value_read(Err(IoFailure::TimedOut)),
            Input::CompletedLate { op: VALUE_READ, .. } => Step::Pending,
            // Whoever waits for the value block waits for no time and no change.
            Input::Tick if self.reading.is_some() => Step::Pending,
            input => {
                let step = match &mut self.lease {
                    Lease::Exclusive(machine) => machine.step(now, env, input),
                    Lease::Shared(machine) => machine.step(now, env, input),
                };
                step.and_then(|outcome, outstanding| self.after_lease(now, outcome, outstanding))
            }
        }
    }
}
