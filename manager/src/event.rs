//! What happened: everything the manager is told.

use crate::command::Command;
use crate::id::{ConnId, LockspaceId, RecordSeq, TaskId};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::geometry::{Geometry, HostId};
use sanlock_lease::paxos::acquire::AcquireOutcome;
use sanlock_lease::paxos::release::ReleaseOutcome;
use sanlock_lease::timing::MonoTime;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client connected. Comes before any other event about the connection.
    ConnOpened {
        /// The connection; its number is never used again.
        conn: ConnId,
        /// Its descriptor, only shown in status.
        fd: i32,
    },
    /// The connection is over in both directions: the last copy of the peer's descriptor was closed, or the daemon closed it
    /// ([`crate::Action::CloseConn`], a framing error). Comes exactly once for every connection that was opened, at once when
    /// it is noticed, also while a command of the connection runs. A peer that only stopped sending (it may still read a
    /// reply) has not closed: report it when what it sent has been answered.
    ConnClosed {
        /// Which.
        conn: ConnId,
    },
    /// The registered process is gone (its pidfd became readable). Comes at most once, and also after `ConnClosed`; never after
    /// [`crate::Action::ForgetConn`].
    PidGone {
        /// Whose process.
        conn: ConnId,
    },
    /// A command arrived completely. The next one of the same connection may follow only after this one's
    /// [`crate::Action::Reply`] or [`crate::Action::Done`]; until then the daemon does not read from the connection.
    Command {
        /// From where.
        conn: ConnId,
        /// What.
        command: Command,
    },
    /// SIGTERM, SIGINT or SIGHUP.
    Terminate,
    /// Time has passed. At least once a second, and not later than [`crate::Manager::next_tick`].
    Tick,
    /// The join asked for by [`crate::Action::StartJoin`] has ended. Exactly one for each.
    JoinDone {
        /// Which lockspace.
        lockspace: LockspaceId,
        /// How. A failure is -201 where [`crate::Action::StopLockspace`] ended it; what had been written is then already given
        /// back (W33).
        result: Result<Joined, ReturnCode>,
        /// With a failure: a write of our delta lease may still land. [`Event::Left`] follows when it has.
        outstanding: bool,
    },
    /// An attempt to renew has ended.
    Renewal {
        /// Which lockspace.
        lockspace: LockspaceId,
        /// When it began.
        attempt: MonoTime,
        /// How it ended.
        end: RenewalEnd,
    },
    /// A lockspace is over: its delta lease is released or left behind, nothing of it is in flight any more. Follows every
    /// [`crate::Action::StopLockspace`] that comes after a successful `JoinDone` (or crosses with it).
    Left {
        /// Which.
        lockspace: LockspaceId,
        /// Whether the disk says now that the delta lease is free.
        released: bool,
    },
    /// A [`crate::Action::PersistRejoinRecord`] is on stable storage, or can't be brought there (positive errno).
    RejoinRecordSaved {
        /// Whose record.
        lockspace: LockspaceId,
        /// Which state of it.
        seq: RecordSeq,
        /// How it went.
        result: Result<(), i32>,
    },
    /// An acquire has ended. Exactly one for each [`crate::Action::StartAcquire`].
    AcquireDone {
        /// Which.
        task: TaskId,
        /// How.
        end: AcquireEnd,
        /// Writes of it that may still land; if not 0, [`Event::TaskSettled`] follows when the last one has.
        outstanding: u32,
    },
    /// A release or a retract has ended. Exactly one for each [`crate::Action::StartRelease`] and
    /// [`crate::Action::StartRetract`].
    ReleaseDone {
        /// Which.
        task: TaskId,
        /// How.
        end: ReleaseEnd,
        /// As in [`Event::AcquireDone`].
        outstanding: u32,
    },
    /// The last write of a task that had ended with writes outstanding has ended.
    TaskSettled {
        /// Which.
        task: TaskId,
    },
}

/// A lockspace was joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Our host id.
    pub host: HostId,
    /// Our generation of it.
    pub generation: u64,
    /// The lockspace's sizes.
    pub geometry: Geometry,
    /// The timestamp in the delta lease: the last good renewal so far.
    pub renewed: MonoTime,
}

/// How an attempt to renew ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewalEnd {
    /// The delta lease is renewed.
    Good {
        /// The timestamp written, taken before the write was submitted (R12).
        timestamp: MonoTime,
        /// Milliseconds the read took.
        read_ms: u32,
        /// Milliseconds the write took.
        write_ms: u32,
    },
    /// It is not. Codes that mean somebody else wrote our lease (lease-algorithms.md 2.4) fail the lockspace.
    Failed(ReturnCode),
}

/// How an acquire ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "moved a few times per acquire, never stored in bulk")]
pub enum AcquireEnd {
    /// The machine ran.
    Ended(AcquireOutcome),
    /// It was not started: no majority of the disks could be opened (positive errno of the last failure), or there was no room
    /// for it. Nothing was written.
    NotStarted(i32),
}

/// How a release or a retract ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseEnd {
    /// The machine ran.
    Ended(ReleaseOutcome),
    /// It was not started, as in [`AcquireEnd::NotStarted`].
    NotStarted(i32),
}
