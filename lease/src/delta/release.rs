//! Leaving: freeing a host id (lease-algorithms.md 2.6).
//!
//! The record is read before it is freed. The reference writes at once; but where this host stood still for long, that would
//! destroy the claim of a host that rightly took the lease over. For the same reason nothing is written once the lease is so
//! old that others may be about to judge us dead. An unfreed lease costs the next join a wait and nothing else.

use super::DeltaConfig;
use crate::code::ReturnCode;
use crate::geometry::Geometry;
use crate::machine::{Env, Input, IoFailure, Machine, Op, OpId, Step, View};
use crate::record::{Bitmap, RawLeader};
use crate::timing::MonoTime;
use arrayvec::ArrayVec;

/// Why the lease was left on disk as owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LeaveError {
    /// The last good renewal is too long ago.
    #[error("the last renewal is {age} seconds old, others may be taking the lease")]
    TooOld {
        /// Its age in seconds.
        age: u64,
    },
    /// Reading it failed.
    #[error("reading the host_id lease failed: {0}")]
    Read(IoFailure),
    /// It is not what we wrote last.
    #[error("the host_id lease is not what this host wrote last")]
    Changed,
    /// Writing it failed. After a timeout the write may still land, and then the lease is free.
    #[error("writing the host_id lease failed: {0}")]
    Write(IoFailure),
    /// The machine was driven against its rules.
    #[error("internal: input does not fit the state")]
    Driver,
}

impl From<&LeaveError> for ReturnCode {
    fn from(e: &LeaveError) -> Self {
        match e {
            LeaveError::TooOld { .. } => Self::ERROR,
            LeaveError::Read(io) | LeaveError::Write(io) => Self::from(io),
            LeaveError::Changed => Self::RENEW_DIFF,
            LeaveError::Driver => Self::GENERIC,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Start,
    Reading(OpId),
    Writing(OpId),
    Done,
}

/// One attempt to free a host id. Made by [`super::Renewal::release`], which knows when it is allowed, or after a join that was
/// not wanted in the end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeltaRelease {
    config: DeltaConfig,
    geometry: Geometry,
    leader: RawLeader,
    last_good: MonoTime,
    phase: Phase,
}

impl DeltaRelease {
    /// Frees the lease that `leader` is on disk. Precondition: no write to it is outstanding, and no process of ours relies on
    /// it any more.
    #[must_use]
    pub fn new(config: DeltaConfig, geometry: Geometry, leader: RawLeader, last_good: MonoTime) -> Self {
        Self { config, geometry, leader, last_good, phase: Phase::Start }
    }

    fn done(&mut self, outcome: Result<(), LeaveError>, outstanding: u32) -> Step<Result<(), LeaveError>> {
        self.phase = Phase::Done;
        Step::Done { outcome, outstanding }
    }

    fn submit(&mut self, phase: Phase, op: Op) -> Step<Result<(), LeaveError>> {
        self.phase = phase;
        let mut ops = ArrayVec::new();
        ops.push(op);
        Step::Io(ops)
    }

    fn too_old(&self, now: MonoTime) -> Option<LeaveError> {
        let age = now.secs_since(self.last_good);
        (age >= self.config.io_timeout.renewal_fail_secs()).then_some(LeaveError::TooOld { age })
    }

    fn start(&mut self, now: MonoTime) -> Step<Result<(), LeaveError>> {
        if let Some(e) = self.too_old(now) {
            return self.done(Err(e), 0);
        }
        let id = OpId(0);
        self.submit(Phase::Reading(id), self.config.read_own(id, self.geometry.sector(), now))
    }

    fn after_read(
        &mut self,
        now: MonoTime,
        result: Result<View<'_>, IoFailure>,
    ) -> Step<Result<(), LeaveError>> {
        let record = match self.config.own_record(result) {
            Ok(record) => record,
            Err(e) => return self.done(Err(LeaveError::Read(e)), 0),
        };
        if record != self.leader {
            return self.done(Err(LeaveError::Changed), 0);
        }
        if let Some(e) = self.too_old(now) {
            return self.done(Err(e), 0);
        }
        let mut free = self.leader;
        free.timestamp = 0.into();
        free.seal();
        let (id, deadline) = (OpId(1), self.config.deadline(now));
        let op = self.config.write_own(id, self.geometry.sector(), free, Bitmap::default(), deadline);
        self.submit(Phase::Writing(id), op)
    }
}

impl Machine for DeltaRelease {
    type Outcome = Result<(), LeaveError>;

    fn step(&mut self, now: MonoTime, _: &Env<'_>, input: Input<'_>) -> Step<Self::Outcome> {
        match (input, self.phase) {
            (Input::Start, Phase::Start) => self.start(now),
            (Input::Start, _) => self.done(Err(LeaveError::Driver), 0),
            (Input::Completed { op, result }, Phase::Reading(id)) if op == id => self.after_read(now, result),
            (Input::TimedOut { op }, Phase::Reading(id)) if op == id => {
                self.done(Err(LeaveError::Read(IoFailure::TimedOut)), 0)
            }
            (Input::Completed { op, result }, Phase::Writing(id)) if op == id => {
                self.done(result.map(|_| ()).map_err(LeaveError::Write), 0)
            }
            (Input::TimedOut { op }, Phase::Writing(id)) if op == id => {
                self.done(Err(LeaveError::Write(IoFailure::TimedOut)), 1)
            }
            (Input::Doubtful { op, failure }, Phase::Writing(id)) if op == id => {
                self.done(Err(LeaveError::Write(failure)), 1)
            }
            _ => Step::Pending,
        }
    }
}
