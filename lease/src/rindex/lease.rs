//! The machine that runs on the internal lease: one at a time, to take it or to give it back.

use crate::machine::{Env, Input, Machine, Step};
use crate::paxos::acquire::AcquireOutcome;
use crate::paxos::release::ReleaseOutcome;
use crate::paxos::{PaxosAcquire, PaxosRelease};
use crate::timing::MonoTime;

/// What [`super::Want::Acquire`] and [`super::Want::Release`] ask for, as one machine, for whoever drives either.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LeaseMachine {
    /// Takes the lease.
    Acquire(Box<PaxosAcquire>),
    /// Gives it back.
    Release(Box<PaxosRelease>),
}

/// How it ended: for [`super::Answer::Acquired`] or [`super::Answer::Released`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseOutcome {
    /// Of taking it.
    Acquire(AcquireOutcome),
    /// Of giving it back.
    Release(ReleaseOutcome),
}

impl Machine for LeaseMachine {
    type Outcome = LeaseOutcome;

    fn step(&mut self, now: MonoTime, env: &Env<'_>, input: Input<'_>) -> Step<LeaseOutcome> {
        match self {
            Self::Acquire(machine) => machine.step(now, env, input).map(LeaseOutcome::Acquire),
            Self::Release(machine) => machine.step(now, env, input).map(LeaseOutcome::Release),
        }
    }
}
