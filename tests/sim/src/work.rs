//! Any machine a host may run, behind one face.

use crate::reference::{ReferenceAcquire, ReferenceRelease};
use sanlock_lease::delta::acquire::JoinOutcome;
use sanlock_lease::delta::{
    DeltaAcquire, DeltaRelease, HostScan, LeaveError, RenewOutcome, Renewal, ScanOutcome,
};
use sanlock_lease::hosts::HostTable;
use sanlock_lease::machine::{Env, Input, Machine, Step};
use sanlock_lease::paxos::acquire::AcquireOutcome;
use sanlock_lease::paxos::convert::ConvertOutcome;
use sanlock_lease::paxos::release::ReleaseOutcome;
use sanlock_lease::paxos::take::Taken;
use sanlock_lease::paxos::{PaxosConvert, PaxosRelease, PaxosTake};
use sanlock_lease::timing::MonoTime;

/// A machine.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each variant is the machine it holds")]
pub enum Work {
    Join(DeltaAcquire),
    Renewal(Renewal),
    Scan(HostScan),
    Leave(DeltaRelease),
    Take(PaxosTake),
    Convert(PaxosConvert),
    Release(PaxosRelease),
    ReferenceAcquire(ReferenceAcquire),
    ReferenceRelease(ReferenceRelease),
}

/// What a machine came to.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each variant is the outcome it holds")]
pub enum Outcome {
    Join(JoinOutcome),
    Renewal(RenewOutcome),
    Scan(ScanOutcome),
    Leave(Result<(), LeaveError>),
    Take(Taken),
    Acquire(AcquireOutcome),
    Convert(Box<ConvertOutcome>),
    Release(ReleaseOutcome),
}

fn with<O>(step: Step<O>, wrap: impl FnOnce(O) -> Outcome) -> Step<Outcome> {
    match step {
        Step::Io(ops) => Step::Io(ops),
        Step::Wait(until) => Step::Wait(until),
        Step::Pending => Step::Pending,
        Step::Done { outcome, outstanding } => Step::Done { outcome: wrap(outcome), outstanding },
    }
}

impl Work {
    /// See [`Machine::step`].
    pub fn step(&mut self, now: MonoTime, env: &Env<'_>, input: Input<'_>) -> Step<Outcome> {
        match self {
            Self::Join(m) => with(m.step(now, env, input), Outcome::Join),
            Self::Renewal(m) => with(m.step(now, env, input), Outcome::Renewal),
            Self::Scan(m) => with(m.step(now, env, input), Outcome::Scan),
            Self::Leave(m) => with(m.step(now, env, input), Outcome::Leave),
            Self::Take(m) => with(m.step(now, env, input), Outcome::Take),
            Self::Convert(m) => with(m.step(now, env, input), |o| Outcome::Convert(Box::new(o))),
            Self::Release(m) => with(m.step(now, env, input), Outcome::Release),
            Self::ReferenceAcquire(m) => with(m.step(now, env, input), Outcome::Acquire),
            Self::ReferenceRelease(m) => with(m.step(now, env, input), Outcome::Release),
        }
    }

    /// The renewals, if that is what it is.
    #[must_use]
    pub fn renewal(&self) -> Option<&Renewal> {
        if let Self::Renewal(renewal) = self { Some(renewal) } else { None }
    }

    /// The host table, if it is a scan.
    #[must_use]
    pub fn table(&self) -> Option<&HostTable> {
        if let Self::Scan(scan) = self { Some(scan.table()) } else { None }
    }
}
