//! Commands of clients, without their wire form (socket-protocol.md 7).

use crate::rejoin::{Process, RejoinEvidence};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::name::Name;
use sanlock_lease::text::{DiskSpec, LockspaceSpec};

/// Whom a lease command is about (socket-protocol.md 2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The connection it came on (`data2` is -1).
    Own,
    /// The registered process with this pid.
    Pid(i32),
}

/// A command of a client.
///
/// Where a payload can be bad it is a `Result`: the checks of the target come first, so the daemon hands over even a command
/// whose payload can't be used, with the code that it earns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// REGISTER (1): the connection stands for a process from now on. No reply.
    Register {
        /// The process that called `connect`.
        process: Process,
        /// Whether [`crate::Event::PidGone`] will come. Without a pidfd the closed connection alone has to do.
        watched: bool,
    },
    /// RESTRICT (10).
    Restrict(Restrictions),
    /// ADD_LOCKSPACE (2).
    AddLockspace {
        /// Which.
        spec: LockspaceSpec,
        /// Seconds; 0 means the default.
        io_timeout: u32,
        /// Answer before the join has ended.
        asynchronous: bool,
        /// What an earlier instance left in the run directory.
        evidence: RejoinEvidence,
    },
    /// INQ_LOCKSPACE (16).
    InqLockspace {
        /// Which; host id 0 matches any.
        spec: LockspaceSpec,
        /// Answer only when it is neither being added nor being removed.
        wait: bool,
    },
    /// REM_LOCKSPACE (3).
    RemLockspace {
        /// Which; host id 0 matches any.
        spec: LockspaceSpec,
        /// Answer at once.
        asynchronous: bool,
        /// Only if no resource of it is on any list.
        unused: bool,
    },
    /// ACQUIRE (7).
    Acquire {
        /// For whom.
        target: Target,
        /// What, or why the payload can't be used (-7, -34, -107, -22).
        request: Result<AcquireRequest, ReturnCode>,
    },
    /// RELEASE (8).
    Release {
        /// Whose.
        target: Target,
        /// What, or why the payload can't be used.
        request: Result<ReleaseRequest, ReturnCode>,
    },
    /// INQUIRE (9).
    Inquire {
        /// Whose leases.
        target: Target,
    },
    /// SHUTDOWN (4). No reply.
    Shutdown {
        /// Kill the users instead of refusing.
        force: bool,
    },
    /// SHUTDOWN_WAIT (29).
    ShutdownWait {
        /// As above.
        force: bool,
    },
    /// A command that the daemon answers by itself. It only changes what status shows of the connection; no action follows and
    /// the connection does not count as busy.
    Noted {
        /// Its number.
        number: u32,
    },
}

impl Command {
    /// The command's number in the protocol.
    #[must_use]
    pub fn number(&self) -> u32 {
        match self {
            Self::Register { .. } => 1,
            Self::AddLockspace { .. } => 2,
            Self::RemLockspace { .. } => 3,
            Self::Shutdown { .. } => 4,
            Self::Acquire { .. } => 7,
            Self::Release { .. } => 8,
            Self::Inquire { .. } => 9,
            Self::Restrict(_) => 10,
            Self::InqLockspace { .. } => 16,
            Self::ShutdownWait { .. } => 29,
            Self::Noted { number } => *number,
        }
    }
}

/// RESTRICT's bits (socket-protocol.md 7.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Restrictions {
    /// Ignore every further message of the connection.
    pub all: bool,
    /// Send SIGTERM where SIGKILL would be sent.
    pub sigkill: bool,
    /// Send SIGKILL where SIGTERM would be sent.
    pub sigterm: bool,
}

impl Restrictions {
    /// From the command's flags; unknown bits are ignored.
    #[must_use]
    pub fn from_bits(bits: u32) -> Self {
        Self { all: bits & 1 != 0, sigkill: bits & 2 != 0, sigterm: bits & 4 != 0 }
    }

    /// As the command's flags.
    #[must_use]
    pub fn bits(self) -> u32 {
        u32::from(self.all) | u32::from(self.sigkill) << 1 | u32::from(self.sigterm) << 2
    }
}

/// The payload of ACQUIRE.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct AcquireRequest {
    /// Shown by status from then on, even if empty.
    pub owner_name: Name,
    /// In this order, all or nothing.
    pub resources: Vec<ResourceRequest>,
    /// For all of them.
    pub flags: AcquireFlags,
}

/// ACQUIRE's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct AcquireFlags {
    /// Read the lock value block.
    pub lvb: bool,
    /// Take an orphan too.
    pub orphan: bool,
    /// Take only an orphan.
    pub orphan_only: bool,
    /// Do not wait for a silent owner to be dead.
    pub owner_nowait: bool,
}

impl AcquireFlags {
    /// From the command's flags; unknown bits are ignored.
    #[must_use]
    pub fn from_bits(bits: u32) -> Self {
        Self {
            lvb: bits & 1 != 0,
            orphan: bits & 2 != 0,
            orphan_only: bits & 4 != 0,
            owner_nowait: bits & 8 != 0,
        }
    }
}

/// One resource of an ACQUIRE.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ResourceRequest {
    /// The lockspace it belongs to.
    pub lockspace: Name,
    /// Its name.
    pub name: Name,
    /// Where its lease lies, 1 to 4 places.
    pub disks: Vec<DiskSpec>,
    /// The version demanded (`RES_LVER`).
    pub lver: Option<u64>,
    /// The new number of hosts (`RES_NUM_HOSTS`).
    pub num_hosts: Option<u64>,
    /// `RES_SHARED`.
    pub shared: bool,
    /// `RES_PERSISTENT`.
    pub persistent: bool,
}

/// The payload of RELEASE, by the flag that decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseRequest {
    /// These leases, by lockspace and resource name. Any number, at most [`crate::limits::TOKENS_PER_CLIENT_MAX`].
    Named(Vec<(Name, Name)>),
    /// `REL_ALL`.
    All,
    /// `REL_ORPHAN`: orphans of a lockspace.
    Orphans {
        /// The lockspace.
        lockspace: Name,
        /// The resource; empty for all.
        name: Name,
    },
    /// `REL_RENAME`.
    Rename,
}
