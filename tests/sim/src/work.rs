//! Any machine a host may run, behind one face.

use crate::asking::{Answer, Asking};
use crate::reference::{ReferenceAcquire, ReferenceRelease};
use sanlock_lease::delta::JoinOutcome;
use sanlock_lease::delta::{
    DeltaAcquire, DeltaRelease, HostScan, LeaveError, RenewOutcome, Renewal, ScanOutcome,
};
use sanlock_lease::hosts::HostTable;
use sanlock_lease::machine::{Env, Input, Machine, Op, Step};
use sanlock_lease::paxos::acquire::AcquireOutcome;
use sanlock_lease::paxos::convert::ConvertOutcome;
use sanlock_lease::paxos::release::ReleaseOutcome;
use sanlock_lease::paxos::take::Taken;
use sanlock_lease::paxos::{PaxosConvert, PaxosRelease, PaxosTake};
use sanlock_lease::timing::{IoTimeout, MonoTime};

/// A machine. Some have room for thousands of bytes: each stays in the place where it was made, and what is moved is small.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each variant is the machine it holds")]
pub enum Work {
    Join(Box<DeltaAcquire>),
    Renewal(Box<Renewal>),
    Scan(Box<HostScan>),
    Leave(Box<DeltaRelease>),
    Take(Box<PaxosTake>),
    Convert(Box<PaxosConvert>),
    Release(Box<PaxosRelease>),
    Asking(Box<Asking>),
    ReferenceAcquire(Box<ReferenceAcquire>),
    ReferenceRelease(Box<ReferenceRelease>),
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
    Asking(Answer),
}

/// What a machine wants next, besides operations.
#[derive(Debug)]
pub enum Next {
    /// Its operations carried out.
    Io,
    /// Nothing until this time.
    Wait(MonoTime),
    /// Nothing new.
    Pending,
    /// It is done; so many of its writes are outstanding.
    Done(Box<Outcome>, u32),
}

fn taken<O>(mut step: Step<O>, ops: &mut Vec<Op>, wrap: impl FnOnce(O) -> Outcome) -> Next {
    // Room for eight operations is not moved for the one that most steps have.
    if let Step::Io(wanted) = &mut step {
        ops.extend(wanted.drain(..));
        return Next::Io;
    }
    match step {
        Step::Io(_) => Next::Io,
        Step::Wait(until) => Next::Wait(until),
        Step::Pending => Next::Pending,
        Step::Done { outcome, outstanding } => Next::Done(Box::new(wrap(outcome)), outstanding),
    }
}

impl Work {
    /// One step of the machine. The operations it asks for are appended to `ops`: a [`Step`] is large, and is not passed on.
    pub fn step(&mut self, now: MonoTime, env: &Env<'_>, input: Input<'_>, ops: &mut Vec<Op>) -> Next {
        match self {
            Self::Join(m) => taken(m.step(now, env, input), ops, Outcome::Join),
            Self::Renewal(m) => taken(m.step(now, env, input), ops, Outcome::Renewal),
            Self::Scan(m) => taken(m.step(now, env, input), ops, Outcome::Scan),
            Self::Leave(m) => taken(m.step(now, env, input), ops, Outcome::Leave),
            Self::Take(m) => taken(m.step(now, env, input), ops, Outcome::Take),
            Self::Convert(m) => taken(m.step(now, env, input), ops, |o| Outcome::Convert(Box::new(o))),
            Self::Release(m) => taken(m.step(now, env, input), ops, Outcome::Release),
            Self::Asking(m) => taken(m.step(now, env, input), ops, Outcome::Asking),
            Self::ReferenceAcquire(m) => taken(m.step(now, env, input), ops, Outcome::Acquire),
            Self::ReferenceRelease(m) => taken(m.step(now, env, input), ops, Outcome::Release),
        }
    }

    /// The renewals, if that is what it is.
    #[must_use]
    pub fn renewal(&self) -> Option<&Renewal> {
        if let Self::Renewal(renewal) = self { Some(renewal) } else { None }
    }

    /// The same, to change what they carry.
    pub fn renewal_mut(&mut self) -> Option<&mut Renewal> {
        if let Self::Renewal(renewal) = self { Some(renewal) } else { None }
    }

    /// The io timeout by which a reference peer's acquire took an owner for dead, if that was not the owner's.
    #[must_use]
    pub fn misjudged(&self) -> Option<IoTimeout> {
        if let Self::ReferenceAcquire(acquire) = self { acquire.misjudged() } else { None }
    }

    /// The looks at the other hosts, if that is what it is.
    #[must_use]
    pub fn scan(&self) -> Option<&HostScan> {
        if let Self::Scan(scan) = self { Some(scan) } else { None }
    }

    /// The host table, if it is a scan.
    #[must_use]
    pub fn table(&self) -> Option<&HostTable> {
        self.scan().map(HostScan::table)
    }
}
