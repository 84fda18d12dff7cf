//! What the manager is told.

use crate::config::Setting;
use crate::events::SetEventFlags;
use crate::ids::{ConnId, LockspaceId, ResourceId, TaskId};
use crate::killpath::KillpathProgram;
use crate::requests::Request;
use sanlock_lease::delta::{Event as HostEvent, JoinError, Joined};
use sanlock_lease::geometry::HostId;
use sanlock_lease::name::Name;
use sanlock_lease::paxos::acquire::AcquireOutcome;
use sanlock_lease::paxos::convert::ConvertOutcome;
use sanlock_lease::paxos::release::ReleaseOutcome;
use sanlock_lease::paxos::take::ValueRead;
use sanlock_lease::text::{LockspaceSpec, ResourceSpec};
use sanlock_lease::timing::MonoTime;

/// Whom a lease command is for (socket-protocol.md 2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The connection it came on.
    Own,
    /// The registered connection of this pid, lowest slot first.
    Pid(i32),
}

/// Whether an acquire may take over an orphan: a lease whose process is gone, and which was kept for its next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OrphanUse {
    /// An orphan is in the way.
    #[default]
    Refuse,
    /// `SANLK_ACQUIRE_ORPHAN`: if there is one.
    Adopt,
    /// `SANLK_ACQUIRE_ORPHAN_ONLY`: nothing but an orphan will do.
    Only,
}

/// Flags of an acquire, for all of its resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AcquireFlags {
    /// `SANLK_ACQUIRE_LVB`: the value block is used.
    pub lvb: bool,
    /// What to do about orphans.
    pub orphan: OrphanUse,
    /// `SANLK_ACQUIRE_OWNER_NOWAIT`.
    pub owner_nowait: bool,
}

/// One resource of an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRequest {
    /// Names and disks; `lver` is the version demanded (`SANLK_RES_LVER`), `shared` the mode.
    pub spec: ResourceSpec,
    /// `SANLK_RES_PERSISTENT`: when the process ends without releasing it, the lease becomes an orphan.
    pub persistent: bool,
    /// The new `num_hosts` (`SANLK_RES_NUM_HOSTS`).
    pub num_hosts: Option<u64>,
}

/// What a release is to give up (socket-protocol.md 7.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseWhat {
    /// Everything the target holds.
    All,
    /// These, as (lockspace, resource).
    Named(Vec<(Name, Name)>),
    /// One, which gets another name in the same write.
    Renamed {
        /// Its lockspace and name.
        from: (Name, Name),
        /// The new name.
        to: Name,
    },
    /// Orphans, which nobody holds: the reply is their number, and their releases go on without the command.
    Orphans {
        /// Their lockspace.
        lockspace: Name,
        /// The name of one, or all.
        name: Option<Name>,
    },
}

/// A client's command that concerns the bookkeeping. One at a time per connection: the next one may be sent only after the
/// reply to this one. [`Command::Register`] and [`Command::Shutdown`] have no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// This connection represents a process.
    Register {
        /// Its pid, from the socket's peer credentials.
        pid: i32,
    },
    /// Replaces the restriction bits.
    Restrict {
        /// ALL 1, SIGKILL 2, SIGTERM 4.
        flags: u32,
    },
    /// Replaces the killpath program.
    Killpath {
        /// The new one; an empty path means none.
        program: KillpathProgram,
        /// Its pid is to be the last argument.
        pid: bool,
    },
    /// Changes a setting of a lockspace.
    SetConfig {
        /// Which.
        lockspace: Name,
        /// What; `None` is no setting, or one this version does not know.
        setting: Option<Setting>,
    },
    /// Join a lockspace.
    AddLockspace {
        /// Which, as which host.
        spec: LockspaceSpec,
        /// Seconds, 0 = default.
        io_timeout: u32,
        /// Reply as soon as the join has begun.
        asynchronous: bool,
    },
    /// Is it joined?
    InqLockspace {
        /// Which; host id 0 matches any.
        spec: LockspaceSpec,
        /// Wait while the answer is "in progress".
        wait: bool,
    },
    /// Leave a lockspace.
    RemLockspace {
        /// Which; host id 0 matches any.
        spec: LockspaceSpec,
        /// Reply as soon as the removal has begun.
        asynchronous: bool,
        /// Only if nothing uses it.
        unused: bool,
    },
    /// Acquire resources.
    Acquire {
        /// For whom.
        target: Target,
        /// The name STATUS shows from now on.
        owner_name: Name,
        /// Which, in this order; at most 8.
        resources: Vec<ResourceRequest>,
        /// How.
        flags: AcquireFlags,
    },
    /// Release resources.
    Release {
        /// Whose.
        target: Target,
        /// Which.
        what: ReleaseWhat,
    },
    /// Change the mode of a resource the target holds.
    Convert {
        /// Whose.
        target: Target,
        /// Its lockspace.
        lockspace: Name,
        /// Its name.
        name: Name,
        /// The mode wanted.
        shared: bool,
        /// `SANLK_ACQUIRE_OWNER_NOWAIT`.
        owner_nowait: bool,
    },
    /// Set the value block of a resource that this host holds exclusively, with its value block.
    SetLvb {
        /// Its lockspace.
        lockspace: Name,
        /// Its name.
        name: Name,
        /// They replace the beginning; at most a sector of the resource.
        bytes: Vec<u8>,
    },
    /// The value block of a resource that this host holds with its value block; [`crate::Reply::Value`].
    GetLvb {
        /// Its lockspace.
        lockspace: Name,
        /// Its name.
        name: Name,
        /// Bytes wanted, 0 for all; more than there are is cut.
        length: u32,
    },
    /// What does the target hold?
    Inquire {
        /// Whose.
        target: Target,
    },
    /// Work on the resource index of a lockspace. [`crate::Action::StartIndex`] follows, or a reply that refuses it.
    Index {
        /// Name of the lockspace.
        lockspace: Name,
        /// Whether it takes the lease of the index.
        lease: bool,
    },
    /// A command on a target that is refused with this code after the target checks (socket-protocol.md 2.6, 7.7).
    Refused {
        /// Whose.
        target: Target,
        /// Whether it is an acquire, which a target being killed is refused.
        acquire: bool,
        /// The code.
        code: i32,
    },
    /// Show an event to another host.
    SetEvent {
        /// In which lockspace.
        lockspace: Name,
        /// The receiver.
        host_id: u64,
        /// What; its generation is the receiver's.
        event: HostEvent,
        /// How.
        flags: SetEventFlags,
    },
    /// Make this connection a stream of other hosts' events. After success it sends no more commands.
    RegEvent {
        /// Of which lockspace.
        lockspace: Name,
    },
    /// Look which streams have ended.
    EndEvent {
        /// Of which lockspace.
        lockspace: Name,
    },
    /// Look for requests for held leases.
    Examine {
        /// Of which lockspace.
        lockspace: Name,
        /// For one, or for all.
        resource: Option<Name>,
    },
    /// End the daemon.
    Shutdown {
        /// Even if lockspaces are joined.
        force: bool,
    },
    /// End the daemon, and reply when it is about to end.
    ShutdownWait {
        /// Even if lockspaces are joined.
        force: bool,
    },
}

/// How the writes of a host_id lease stand when its lockspace is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseWrites {
    /// They have ended, the last one of them freed the host id, and while they ran nobody else could have taken it.
    Freed,
    /// They have ended, and while they ran nobody else could have taken the host id. It was not freed.
    Ended,
    /// They have ended, one of them when another host might have taken the host id: what is on disk does not prove that none has.
    Overtaken,
    /// One may still land. [`Event::LeaseSettled`] follows when it has ended.
    Outstanding,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection was accepted.
    ConnOpened {
        /// Its id, never used before.
        conn: ConnId,
        /// Its slot number, the lowest free one.
        ci: u32,
    },
    /// The last copy of the connection was closed. The slot is free once [`crate::Action::Forget`] says so.
    ConnClosed {
        /// Which.
        conn: ConnId,
    },
    /// The registered process is gone.
    PidGone {
        /// Of which connection.
        conn: ConnId,
    },
    /// A command.
    Command {
        /// From whom.
        conn: ConnId,
        /// What.
        command: Command,
    },
    /// SIGTERM, SIGINT or SIGHUP.
    Signal,
    /// At least once a second.
    Tick,
    /// A join ended.
    JoinDone {
        /// Which.
        ls: LockspaceId,
        /// How.
        result: Result<Joined, JoinError>,
    },
    /// A renewal succeeded.
    Renewed {
        /// Where.
        ls: LockspaceId,
        /// The time whose seconds it wrote.
        timestamp: MonoTime,
        /// Duration of the read in milliseconds.
        read_ms: u64,
        /// Duration of the write in milliseconds.
        write_ms: u64,
    },
    /// A renewal failed.
    RenewalFailed {
        /// Where.
        ls: LockspaceId,
        /// The result code.
        code: i32,
        /// Plain words.
        text: String,
    },
    /// The own lease is not what we wrote: the lockspace is lost.
    Corrupt {
        /// Where.
        ls: LockspaceId,
        /// The result code.
        code: i32,
        /// Plain words.
        text: String,
    },
    /// The lockspace thread has ended, or does nothing more than wait for a write.
    Left {
        /// Which.
        ls: LockspaceId,
        /// How the writes of its host_id lease stand.
        writes: LeaseWrites,
    },
    /// The write of the host_id lease has ended that [`LeaseWrites::Outstanding`] told of.
    LeaseSettled {
        /// Of which lockspace, which may have been forgotten since.
        ls: LockspaceId,
    },
    /// A conversion ended.
    ConvertDone {
        /// Which.
        task: TaskId,
        /// How.
        outcome: Box<ConvertOutcome>,
        /// Writes of it that may still land; [`Event::Settled`] follows when they have.
        outstanding: u32,
    },
    /// An acquire task ended.
    AcquireDone {
        /// Which.
        task: TaskId,
        /// How.
        outcome: AcquireOutcome,
        /// Its value block, if that was wanted and the resource's sizes have room for one.
        value: Option<ValueRead>,
        /// Its writes that may still land; [`Event::Settled`] follows if there are any.
        outstanding: u32,
    },
    /// A task could not start: no disk of the resource could be opened, or a limit was reached. Nothing was written.
    StartFailed {
        /// Which.
        task: TaskId,
        /// The result code.
        code: i32,
    },
    /// A release or retract task ended.
    ReleaseDone {
        /// Which.
        task: TaskId,
        /// How.
        outcome: ReleaseOutcome,
        /// Its writes that may still land; [`Event::Settled`] follows if there are any.
        outstanding: u32,
    },
    /// The last outstanding write of a finished task has ended.
    Settled {
        /// Which.
        task: TaskId,
    },
    /// The client of an operation on an index has its result, but what it wrote, or its lease, is still to be seen to.
    IndexSettling {
        /// Which.
        task: TaskId,
    },
    /// Nothing of an operation on an index runs or may land any more.
    IndexDone {
        /// Which.
        task: TaskId,
    },
    /// A host's record, which has changed, has our bit.
    Noticed {
        /// Where.
        ls: LockspaceId,
        /// The host.
        from: HostId,
        /// Its generation.
        generation: u64,
        /// Its event; number 0 if there is none.
        event: HostEvent,
    },
    /// A request was written: the owner of the lease is to look for it.
    Requested {
        /// In which lockspace.
        lockspace: Name,
        /// The owner's host id.
        owner: u64,
    },
    /// The request for one of the leases of [`crate::Action::LookForRequests`] was read. What cannot be read is not told.
    RequestFound {
        /// It.
        request: Request,
    },
    /// The end of [`crate::Action::LookForRequests`].
    RequestsLooked {
        /// In which lockspace.
        ls: LockspaceId,
    },
    /// What [`crate::Action::WatchdogCheck`] found: the test interval in seconds, or why there is no watchdog.
    WatchdogChecked {
        /// Of which lockspace.
        ls: LockspaceId,
        /// The answer.
        result: Result<u32, String>,
    },
    /// What [`crate::Action::WatchdogArm`] came to.
    WatchdogArmed {
        /// Of which lockspace.
        ls: LockspaceId,
        /// wdmd confirmed the expiry, or why it has none.
        result: Result<(), String>,
    },
    /// What wdmd says of the device behind an expiry that it has confirmed, when that changes.
    WatchdogStatus {
        /// Of which lockspace.
        ls: LockspaceId,
        /// Whether the device would reset this host in time. It would not if it did not fire when it should have.
        protects: bool,
    },
    /// The connection to wdmd broke after it had confirmed an expiry.
    WatchdogLost {
        /// Of which lockspace.
        ls: LockspaceId,
        /// Plain words.
        text: String,
    },
    /// The rejoin record is as asked, or, if that failed, there is none any more that counts.
    RejoinSaved {
        /// Of which lockspace.
        ls: LockspaceId,
        /// As in the action.
        serial: u64,
    },
    /// A command that the manager has no part in was begun: it works on disks, and its client waits for an answer.
    JobBegun,
    /// Such a command has its answer.
    JobDone,
    /// A killpath program could not be started in time, for want of a helper that answers.
    KillpathLost {
        /// Of which connection.
        conn: ConnId,
        /// As in the action.
        request: Option<ResourceId>,
    },
}
