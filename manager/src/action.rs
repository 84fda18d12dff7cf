//! What to do: everything the manager asks for.

use crate::id::{ConnId, LockspaceId, RecordSeq, ResourceId, TaskId};
use crate::limits::ACTIONS_KEPT;
use crate::rejoin::RejoinRecord;
use sanlock_lease::code::ReturnCode;
use sanlock_lease::geometry::Geometry;
use sanlock_lease::name::Name;
use sanlock_lease::paxos::acquire::AcquireOptions;
use sanlock_lease::paxos::{Held, PaxosConfig};
use sanlock_lease::text::{DiskSpec, LockspaceSpec};
use sanlock_lease::timing::IoTimeout;

/// One thing to do. They are to be carried out in order; none of them may wait for a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "short-lived, and the large ones are the common ones")]
pub enum Action {
    /// Answer the connection's command; afterwards its next command may come. A connection that is gone is not an error.
    Reply {
        /// To whom.
        conn: ConnId,
        /// What.
        reply: Reply,
        /// Close the connection when the reply has been sent.
        close: bool,
    },
    /// The connection's command is over and has no reply; its next command may come.
    Done {
        /// Whose.
        conn: ConnId,
    },
    /// Close the connection once everything written to it has been sent. [`crate::Event::ConnClosed`] follows.
    CloseConn {
        /// Which.
        conn: ConnId,
    },
    /// Nothing is known of the connection any more: close its pidfd and drop what is kept of it. Comes exactly once for every
    /// connection, after its [`crate::Event::ConnClosed`].
    ForgetConn {
        /// Which.
        conn: ConnId,
    },
    /// Signal the process registered on this connection, through its pidfd. `pid` is above 1.
    Kill {
        /// Whose process.
        conn: ConnId,
        /// Its pid, for the log and for systems without pidfd.
        pid: i32,
        /// Which signal.
        signal: Signal,
    },
    /// Begin to join a lockspace and, once joined, to renew it. Answered by [`crate::Event::JoinDone`].
    StartJoin {
        /// Its number from now on.
        lockspace: LockspaceId,
        /// Name, host id (not 0, perhaps too large for the sizes on disk), path and offset.
        spec: LockspaceSpec,
        /// Our io timeout in it.
        io_timeout: IoTimeout,
        /// What an earlier instance allows.
        rejoin: Rejoin,
    },
    /// End a lockspace: abort the join, or stop renewing. Comes at most once for each. No task of the lockspace runs any more.
    StopLockspace {
        /// Which.
        lockspace: LockspaceId,
        /// Whether to mark the delta lease free on disk. `false`: leave it as it is, other hosts must wait.
        release: bool,
    },
    /// Bring this record to stable storage, after all earlier ones. Answered by [`crate::Event::RejoinRecordSaved`].
    PersistRejoinRecord {
        /// Whose.
        lockspace: LockspaceId,
        /// Which state of it.
        seq: RecordSeq,
        /// The record.
        record: RejoinRecord,
    },
    /// The lockspace was left cleanly: remove its record, in order with the saves. No answer.
    RemoveRejoinRecord {
        /// The lockspace's name.
        name: Name,
    },
    /// Open the disks and take the resource. Answered by [`crate::Event::AcquireDone`].
    ///
    /// The environment its machine sees: the lockspace is alive with `config.generation`, the client lives, nothing shuts down
    /// — until [`Action::CancelTask`] says otherwise. A daemon that knows earlier that the last good renewal is too old shows
    /// the machine a lockspace that is gone.
    StartAcquire {
        /// Its number.
        task: TaskId,
        /// In which lockspace.
        lockspace: LockspaceId,
        /// For the log.
        resource: ResourceId,
        /// Who and what.
        config: PaxosConfig,
        /// Where, `config.disks` of them.
        disks: Vec<DiskSpec>,
        /// How.
        options: AcquireOptions,
    },
    /// Open the disks and give a lease up. Answered by [`crate::Event::ReleaseDone`].
    StartRelease {
        /// Its number.
        task: TaskId,
        /// In which lockspace.
        lockspace: LockspaceId,
        /// For the log.
        resource: ResourceId,
        /// Who and what.
        config: PaxosConfig,
        /// Where.
        disks: Vec<DiskSpec>,
        /// The lease.
        held: Held,
    },
    /// Open the disks and take back what a failed acquire or release may have left. Answered by
    /// [`crate::Event::ReleaseDone`]. No earlier write of ours to the resource is outstanding.
    StartRetract {
        /// Its number.
        task: TaskId,
        /// In which lockspace.
        lockspace: LockspaceId,
        /// For the log.
        resource: ResourceId,
        /// Who and what.
        config: PaxosConfig,
        /// Where.
        disks: Vec<DiskSpec>,
        /// The resource's sizes as last known.
        geometry: Geometry,
    },
    /// The environment of a running task has changed for good; tick its machine so that it notices. The task still ends with
    /// its event. At most once per task and reason.
    CancelTask {
        /// Which.
        task: TaskId,
        /// What changed.
        reason: CancelReason,
    },
    /// Write to the log.
    Log(LogLine),
    /// Leave the main loop. Replies before this action are to be sent first.
    Exit,
}

/// What changed for a running task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CancelReason {
    /// The process that wanted the lease is gone: `client_alive` is false.
    ClientGone,
    /// Nothing may be written with our host id any more: `lockspace` is `Gone`.
    LockspaceGone,
}

/// A signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// SIGTERM.
    Term,
    /// SIGKILL.
    Kill,
}

/// What is known of earlier instances of a lockspace when joining.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rejoin {
    /// The largest generation this machine is known to have had: the next one is above it and above the one on disk (W14).
    pub generation: Option<u64>,
    /// Whether a delta lease that carries our host name and `generation` may be taken without the long wait (R7).
    pub fast: bool,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A header with this result; everything else as in the request.
    Code(ReturnCode),
    /// INQUIRE's.
    Leases {
        /// The result.
        code: ReturnCode,
        /// Number of leases (`data2`).
        count: u32,
        /// The state string without its NUL; empty without leases.
        text: Vec<u8>,
    },
    /// SHUTDOWN_WAIT's success: a header of zeros (socket-protocol.md 7.28).
    ShutdownDone,
}

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// How loud.
    pub level: LogLevel,
    /// The `s<number>` of the prefix.
    pub lockspace: Option<LockspaceId>,
    /// The `r<number>` of the prefix.
    pub resource: Option<ResourceId>,
    /// The text.
    pub text: String,
}

/// Log levels, numbered as in syslog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LogLevel {
    /// 3.
    Error,
    /// 4.
    Warning,
    /// 7.
    Debug,
}

impl LogLevel {
    /// The syslog number.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warning => 4,
            Self::Debug => 7,
        }
    }
}

/// What the manager asks for, in order. Kept and drained by the caller, so that its room is reused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actions {
    list: Vec<Action>,
}

impl Actions {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends one.
    pub fn push(&mut self, action: Action) {
        self.list.push(action);
    }

    /// Takes all out, in order.
    pub fn drain(&mut self) -> impl Iterator<Item = Action> {
        let list = std::mem::replace(&mut self.list, Vec::with_capacity(ACTIONS_KEPT.min(self.list.len())));
        list.into_iter()
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Action> {
        self.list.iter()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}
