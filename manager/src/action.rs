//! What the manager wants done. Actions are carried out in order.

use crate::ids::{ConnId, LockspaceId, ResourceId, TaskId};
use crate::rejoin::RejoinRecord;
use sanlock_lease::delta::Event as HostEvent;
use sanlock_lease::geometry::{Geometry, HostId};
use sanlock_lease::name::Name;
use sanlock_lease::paxos::acquire::AcquireOptions;
use sanlock_lease::paxos::{Held, PaxosConfig};
use sanlock_lease::record::{Bitmap, HostBlock};
pub use sanlock_lease::recovery::Signal;
use sanlock_lease::rindex::Member;
use sanlock_lease::text::{DiskSpec, LockspaceSpec, ResourceSpec};
use sanlock_lease::timing::{IoTimeout, WatchdogFire};
use std::sync::Arc;

/// Log level of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// 3: things to report.
    Error,
    /// 3, and to be on stable storage soon: after a reset it says what led to it.
    Durable,
    /// 4: records worth keeping.
    Warning,
    /// 7: everything else.
    Debug,
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A result code, 0 for success.
    Result(i32),
    /// INQUIRE: what the target holds, in slot order.
    Held(Vec<ResourceSpec>),
    /// GET_LVB: what is in the value block, as many bytes as were wanted.
    Value(Arc<[u8]>),
    /// SHUTDOWN_WAIT: the daemon is about to end.
    ShutdownDone,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Answer the command in progress on this connection, which may then send the next one. The connection may be closed.
    Reply {
        /// To whom.
        conn: ConnId,
        /// What.
        reply: Reply,
    },
    /// Nothing concerns this closed connection any more: its slot is free, its pid need not be watched.
    Forget {
        /// Which.
        conn: ConnId,
    },
    /// Start a lockspace thread that joins.
    Join {
        /// Its id.
        ls: LockspaceId,
        /// Which, as which host.
        spec: LockspaceSpec,
        /// `spec.host_id`, in range.
        host: HostId,
        /// Our io timeout in it.
        io_timeout: IoTimeout,
    },
    /// From now on nothing may be written in the name of this lockspace ([`sanlock_lease::machine::LockspaceNow::Gone`]). To be visible
    /// to all machines before the next action is carried out. A join still running ends by it. Renewals go on.
    Gone {
        /// Which.
        ls: LockspaceId,
    },
    /// End the lockspace thread; [`crate::Event::Left`] follows.
    Leave {
        /// Which.
        ls: LockspaceId,
        /// Whether the host_id lease is to be written free, if its last renewal succeeded.
        release: bool,
    },
    /// Run an acquire.
    StartAcquire {
        /// Its id.
        task: TaskId,
        /// In this lockspace.
        ls: LockspaceId,
        /// Who and which.
        config: PaxosConfig,
        /// How; the seed is to be replaced by a random one.
        options: AcquireOptions,
        /// Whether the value block is wanted.
        value: bool,
        /// Where.
        disks: Vec<DiskSpec>,
    },
    /// Change the mode of a lease that is held; the mode wanted is the other one.
    StartConvert {
        /// Its id.
        task: TaskId,
        /// In this lockspace.
        ls: LockspaceId,
        /// Who and which.
        config: PaxosConfig,
        /// How; the seed is to be replaced by a random one.
        options: AcquireOptions,
        /// What is held.
        held: Held,
        /// To be in the value block before anything else, if it becomes shared.
        value: Option<Arc<[u8]>>,
        /// Where.
        disks: Vec<DiskSpec>,
    },
    /// Take back what an earlier conversion of a lease held shared may have left; [`crate::Event::ConvertDone`] follows.
    StartErase {
        /// Its id.
        task: TaskId,
        /// In this lockspace.
        ls: LockspaceId,
        /// Who and which.
        config: PaxosConfig,
        /// What is held.
        held: Held,
        /// Where.
        disks: Vec<DiskSpec>,
    },
    /// Run a release.
    StartRelease {
        /// Its id.
        task: TaskId,
        /// In this lockspace.
        ls: LockspaceId,
        /// Who and which.
        config: PaxosConfig,
        /// What is held.
        held: Held,
        /// To be in the value block before anything else.
        value: Option<Arc<[u8]>>,
        /// Its name afterwards, if it is another one.
        rename: Option<Name>,
        /// Where.
        disks: Vec<DiskSpec>,
    },
    /// Run a retract.
    StartRetract {
        /// Its id.
        task: TaskId,
        /// In this lockspace.
        ls: LockspaceId,
        /// Who and which.
        config: PaxosConfig,
        /// The resource's sizes.
        geometry: Geometry,
        /// Of a lease that was held, our block as it was then.
        hold: Option<HostBlock>,
        /// Of an acquire that failed, our block as it left it.
        attempt: Option<HostBlock>,
        /// To be in the value block before anything else.
        value: Option<Arc<[u8]>>,
        /// The name that the first attempt was to give it.
        rename: Option<Name>,
        /// Where.
        disks: Vec<DiskSpec>,
    },
    /// The client of this acquire is gone, or needs it no more because another resource of its request was refused
    /// ([`sanlock_lease::machine::Env::client_alive`] is false from now on).
    ClientGone {
        /// Which.
        task: TaskId,
    },
    /// The daemon shuts down ([`sanlock_lease::machine::Env::shutting_down`] is true from now on).
    ShuttingDown,
    /// Signal the process of a registered connection, through its pidfd.
    Kill {
        /// Of which connection.
        conn: ConnId,
        /// Its pid, for the log.
        pid: i32,
        /// With what.
        signal: Signal,
    },
    /// Begin the operation on a resource index that this connection asked for, and answer it. [`crate::Event::IndexDone`] is to
    /// follow.
    StartIndex {
        /// Its id.
        task: TaskId,
        /// Who asked.
        conn: ConnId,
        /// In this lockspace.
        ls: LockspaceId,
        /// As this host.
        member: Member,
        /// The watchdog fire timeout of every host.
        fire: WatchdogFire,
    },
    /// Have the killpath program of a registered connection run by the helper. [`crate::Event::KillpathLost`] follows if that
    /// could not be ordered in time.
    RunKillpath {
        /// Of which connection.
        conn: ConnId,
        /// Its pid, for the log.
        pid: i32,
        /// For the request of another host for this lease; `None`: to end it.
        request: Option<ResourceId>,
        /// The command line.
        words: Vec<Vec<u8>>,
    },
    /// The killpath program of this connection is not to be started any more, if it has not been.
    CancelKillpath {
        /// Of which connection.
        conn: ConnId,
    },
    /// A lockspace has failed: have the configured program run, if there is one.
    RunOnFail {
        /// Which.
        ls: LockspaceId,
        /// Its name.
        lockspace: Name,
        /// Name, host id, generation, path, offset, `expired` or `corrupt`.
        arguments: Vec<Vec<u8>>,
    },
    /// Save the record on stable storage; [`crate::Event::RejoinSaved`] follows, also after a failure.
    SaveRejoin {
        /// Of which lockspace.
        ls: LockspaceId,
        /// To be given back.
        serial: u64,
        /// Its contents.
        record: RejoinRecord,
    },
    /// The lockspace was left in good order: its rejoin record means nothing any more.
    DropRejoin {
        /// Which; the record is filed under name and host id.
        spec: LockspaceSpec,
    },
    /// What the renewals of a lockspace carry from now on.
    Outgoing {
        /// Which.
        ls: LockspaceId,
        /// The event.
        event: HostEvent,
        /// Who is to look.
        bitmap: Box<Bitmap>,
    },
    /// Answer REG_EVENT with success. The connection is a stream from then on: nothing more is read as a command.
    BecomeStream {
        /// Which.
        conn: ConnId,
    },
    /// Send an event on a stream. One that cannot take it at once is closed.
    Deliver {
        /// On which stream.
        conn: ConnId,
        /// Our host id.
        own: HostId,
        /// The event as its sender wrote it.
        event: HostEvent,
        /// The sender.
        from: HostId,
        /// Its generation.
        generation: u64,
    },
    /// Close a stream.
    EndStream {
        /// Which.
        conn: ConnId,
    },
    /// Read the request records of held leases; [`crate::Event::RequestFound`] follows for each that was read, then
    /// [`crate::Event::RequestsLooked`].
    LookForRequests {
        /// In which lockspace.
        ls: LockspaceId,
        /// Which.
        leases: Vec<(ResourceId, ResourceSpec)>,
    },
    /// Ask wdmd whether a device can be had that fires after this time; [`crate::Event::WatchdogChecked`] follows.
    WatchdogCheck {
        /// For which lockspace.
        ls: LockspaceId,
        /// The fire timeout of every host.
        fire: WatchdogFire,
    },
    /// Connect to wdmd, have the device opened, give it the expiry and have it confirmed; [`crate::Event::WatchdogArmed`]
    /// follows. After a failure wdmd is left without this expiry.
    WatchdogArm {
        /// Which.
        ls: LockspaceId,
        /// As it is registered with wdmd.
        name: String,
        /// The fire timeout of every host.
        fire: WatchdogFire,
        /// The last good renewal, in monotonic seconds.
        renewal: u64,
        /// When the lockspace has failed, likewise.
        expire: u64,
    },
    /// Move the expiry, also while an arming is under way.
    WatchdogLive {
        /// Which.
        ls: LockspaceId,
        /// The last good renewal, in monotonic seconds.
        renewal: u64,
        /// When the lockspace has failed, likewise.
        expire: u64,
    },
    /// Take the expiry back, also of an arming under way.
    WatchdogDisarm {
        /// Which.
        ls: LockspaceId,
    },
    /// Log a line.
    Log {
        /// Level.
        level: Level,
        /// Lockspace number of the line's prefix.
        ls: Option<LockspaceId>,
        /// The text.
        text: String,
    },
    /// End the daemon. Without a watchdog something may still be written: for a lockspace that was given up after
    /// [`crate::DRAIN_SECS`], its host_id lease unreleased.
    Exit,
}
