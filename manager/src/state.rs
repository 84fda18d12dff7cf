//! What the manager remembers: connections, lockspaces, resources, and commands in progress.

use crate::config::Setting;
use crate::event::AcquireFlags;
use crate::events::Events;
use crate::ids::{ConnId, LockspaceId, ResourceId, TaskId};
use crate::killing::look;
use crate::killpath::KillpathProgram;
use crate::requests::{Looking, Manner};
use crate::side::{Givings, Takings};
use crate::value::Value;
use crate::watchdog::Watch;
use sanlock_lease::delta::Joined;
use sanlock_lease::geometry::{Geometry, HostId};
use sanlock_lease::name::Name;
use sanlock_lease::paxos::Held;
use sanlock_lease::record::HostBlock;
use sanlock_lease::recovery::Progress;
use sanlock_lease::text::{LockspaceSpec, ResourceSpec};
use sanlock_lease::timing::{IoTimeout, MonoTime};
use std::collections::{BTreeMap, VecDeque};

/// A command in progress that concerns the leases of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct OpNumber(pub(crate) u64);

/// A connection, and the process behind it once registered.
#[derive(Clone, Debug)]
pub struct Conn {
    /// Slot number.
    pub ci: u32,
    /// The registered pid.
    pub pid: Option<i32>,
    /// What STATUS shows.
    pub owner_name: Option<Name>,
    /// Bits given to RESTRICT.
    pub restricted: u32,
    /// Attempts to stop it since the last time it held nothing.
    pub kill_count: u32,
    /// When the last one was made.
    pub kill_last: Option<MonoTime>,
    /// Whether the last one was a hard one.
    pub(crate) kill_hard: bool,
    /// Its killpath program.
    pub killpath: Option<KillpathProgram>,
    /// Whether that gets the pid as its last argument.
    pub killpath_pid: bool,
    /// Whether it was started since the last time the process held nothing.
    pub killpath_run: bool,
    /// The last copy was closed, but something still depends on the connection.
    pub closed: bool,
    /// The registered process is gone.
    pub pid_gone: bool,
    /// Tokens, in slot order: `None` is a freed place.
    pub tokens: Vec<Option<ResourceId>>,
    /// The command that works on its leases.
    pub(crate) busy: Option<OpNumber>,
}

impl Conn {
    pub(crate) fn new(ci: u32) -> Self {
        Self {
            ci,
            pid: None,
            owner_name: None,
            restricted: 0,
            kill_count: 0,
            kill_last: None,
            kill_hard: false,
            killpath: None,
            killpath_pid: false,
            killpath_run: false,
            closed: false,
            pid_gone: false,
            tokens: Vec::new(),
            busy: None,
        }
    }

    /// The resources it holds tokens of, in slot order.
    pub fn held(&self) -> impl Iterator<Item = ResourceId> + '_ {
        self.tokens.iter().flatten().copied()
    }

    pub(crate) fn add_token(&mut self, resource: ResourceId) {
        match self.tokens.iter_mut().find(|t| t.is_none()) {
            Some(place) => *place = Some(resource),
            None => self.tokens.push(Some(resource)),
        }
    }

    /// How many tokens it holds of each resource: of a shared one it may have several.
    pub(crate) fn held_of_each(&self) -> BTreeMap<ResourceId, usize> {
        number_of_each(self.held())
    }

    /// Frees so many tokens of each resource, those in the first places.
    pub(crate) fn drop_tokens(&mut self, mut of_each: BTreeMap<ResourceId, usize>) {
        for token in &mut self.tokens {
            look();
            if let Some(left) = token.and_then(|id| of_each.get_mut(&id)).filter(|left| **left > 0) {
                *left -= 1;
                *token = None;
            }
        }
        while self.tokens.last() == Some(&None) {
            self.tokens.pop();
        }
    }

    /// Whether a command runs on its leases.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.busy.is_some()
    }
}

/// How often each resource is named.
pub(crate) fn number_of_each(all: impl IntoIterator<Item = ResourceId>) -> BTreeMap<ResourceId, usize> {
    let mut numbers = BTreeMap::new();
    for id in all {
        look();
        *numbers.entry(id).or_default() += 1;
    }
    numbers
}

/// Why a lockspace is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dead {
    /// Its lease was not renewed in time, or is not ours any more.
    Failed,
    /// Its removal was asked for, or the daemon is being shut down by force.
    Removed,
}

/// One entry of the renewal history (lease-algorithms.md 2.4 step 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewalEntry {
    /// Seconds written to disk.
    pub timestamp: u64,
    /// Duration of the read.
    pub read_ms: u64,
    /// Duration of the write.
    pub write_ms: u64,
    /// Timeouts since.
    pub next_timeouts: u32,
    /// Other failures since.
    pub next_errors: u32,
}

/// Which list of STATUS a lockspace is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockspaceList {
    /// Being joined.
    Add,
    /// Joined, also while failing or waiting for its users.
    Spaces,
    /// Its thread is ending.
    Rem,
}

/// A lockspace.
#[derive(Clone, Debug)]
pub struct Lockspace {
    /// As given.
    pub spec: LockspaceSpec,
    /// `spec.host_id`.
    pub host: HostId,
    /// Our io timeout.
    pub io_timeout: IoTimeout,
    /// Its list.
    pub list: LockspaceList,
    /// What the join brought.
    pub joined: Option<Joined>,
    /// Why nothing is granted in it any more.
    pub dead: Option<Dead>,
    /// Its removal was asked for.
    pub remove: bool,
    /// When it was joined.
    pub joined_at: Option<MonoTime>,
    /// Time carried by the last good renewal.
    pub last_good: Option<MonoTime>,
    /// Seconds of the last attempt.
    pub last_attempt: u64,
    /// Code of the last attempt: 0 none yet, 1 success.
    pub last_result: i32,
    /// What the last failed renewal came to, in words.
    pub(crate) last_error: Option<String>,
    /// The first corrupt code seen.
    pub corrupt: i32,
    /// SET_CONFIG USED: something uses it that cannot be killed.
    pub used: bool,
    /// SET_CONFIG USED_BY_ORPHANS: orphans count as users.
    pub used_by_orphans: bool,
    /// 0 nothing, 1 killing users, 2 every user has had 100 signals.
    pub killing: u32,
    /// The renewal history, oldest first.
    pub history: VecDeque<RenewalEntry>,
    /// What is between it and the watchdog.
    pub watch: Watch,
    /// wdmd has an expiry, and a device that would reset this host for it: not one that has failed to. Looked at while armed.
    pub(crate) protected: bool,
    /// When wdmd was lost.
    pub(crate) watch_lost: Option<MonoTime>,
    pub(crate) add_waiter: Option<ConnId>,
    /// What it shows to other hosts, and whom it tells of theirs.
    pub(crate) events: Events,
    /// The looking for requests.
    pub(crate) looking: Looking,
    /// Who waits for the watchdog to set USED or USED_BY_ORPHANS; `None` once nobody hears the answer any more.
    pub(crate) used_waiters: Vec<(Option<ConnId>, Setting)>,
    pub(crate) rem_waiters: Vec<ConnId>,
    pub(crate) inq_waiters: Vec<ConnId>,
    /// How far its end has come.
    pub(crate) progress: Progress,
    /// Its thread has ended: there is nobody to be told to leave.
    pub(crate) ended: bool,
    /// When the last user was gone and only unsettled writes were left.
    pub(crate) drained_since: Option<MonoTime>,
    /// Connections whose processes are in the rejoin record, each with the serial of the record that first says of it what is
    /// true; the serial of the newest record asked for, and of the newest one saved.
    pub(crate) rejoin: BTreeMap<ConnId, u64>,
    pub(crate) rejoin_asked: u64,
    pub(crate) rejoin_saved: u64,
    /// Its thread was told to free the host id: its record counts until that has come about.
    pub(crate) releasing: bool,
    /// Since when it is there only until the newest record is saved, and its thread has ended.
    pub(crate) record_first: Option<MonoTime>,
    /// Whether the log says so.
    pub(crate) record_told: bool,
}

impl Lockspace {
    /// The generation it is held with; 0 while joining.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.joined.as_ref().map_or(0, Joined::generation)
    }

    /// Whether leases may be taken in it.
    #[must_use]
    pub fn usable(&self) -> bool {
        self.list == LockspaceList::Spaces && self.dead.is_none()
    }
}

/// One client's hold on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Whose.
    pub conn: ConnId,
    /// Whether the client knows.
    pub granted: bool,
    /// Whether the resource becomes an orphan if the client ends and this is the last token.
    pub persistent: bool,
    /// It took over an orphan, which it is again if the request fails, and no other one was granted meanwhile.
    pub(crate) adopts: bool,
}

impl Token {
    pub(crate) fn new(conn: ConnId, persistent: bool) -> Self {
        Self { conn, granted: false, persistent, adopts: false }
    }
}

/// What is being done about a resource nobody holds any more, or not yet.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "kept in the table, moved seldom")]
pub enum Work {
    /// An acquire runs (list `add`).
    Acquiring {
        /// The task.
        task: TaskId,
        /// Whether a persistent lease was asked for.
        persistent: bool,
    },
    /// Acquired; granted once the whole request has succeeded.
    Held {
        /// What lies on disk.
        held: Held,
        /// Who holds it, or will: one token, or any number of a shared one. An orphan has none.
        tokens: Vec<Token>,
    },
    /// A release runs (list `rem`).
    Releasing {
        /// The task.
        task: TaskId,
    },
    /// Something of a finished task may still land (rule R3).
    Settling {
        /// The task.
        task: TaskId,
    },
    /// The next attempt to take everything back is due at this time.
    Retry {
        /// When.
        at: MonoTime,
    },
}

/// A resource this host holds or works on. It is on exactly one list, which follows from `work`.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Names and disks.
    pub spec: ResourceSpec,
    /// In this lockspace.
    pub ls: LockspaceId,
    /// What is going on.
    pub work: Work,
    /// The name it gets by the release that runs, or that has not ended completely.
    pub(crate) renamed: Option<Name>,
    /// Our block when it was given up: what is tried again must not touch a newer one, nor another lease's.
    pub(crate) hold: Option<HostBlock>,
    /// Our block as an acquire that failed left it.
    pub(crate) attempt: Option<HostBlock>,
    /// Pid of the last exclusive owner.
    pub pid: i32,
    /// Lease version held; 0 if none.
    pub lver: u64,
    pub(crate) geometry: Geometry,
    /// Its value block, if it was acquired with one.
    pub(crate) value: Option<Value>,
    /// How the process that acquired it, exclusive, is told of requests; of one that was converted since, what it has in force then.
    pub(crate) manner: Option<Manner>,
    /// The conversion that runs.
    pub(crate) converting: Option<TaskId>,
    /// The leader may still name us although the hold is shared: the release has to look.
    pub(crate) erase: bool,
    /// When that is looked after while the hold goes on, and how often it was.
    pub(crate) erase_due: (MonoTime, u32),
    /// The acquire or conversion that left writes which may still land (rule R3).
    pub(crate) unsettled: Option<TaskId>,
    /// Attempts to release it so far.
    pub(crate) attempts: u32,
    /// Since when attempts to release it have not found its disk; `None` if the last one did, or failed otherwise.
    pub(crate) gone_since: Option<MonoTime>,
    /// The release whose place this acquire has taken ([`gone`](crate::gone)).
    pub(crate) instead_of: Option<Box<Resource>>,
    /// The command that waits for the release that runs.
    pub(crate) for_op: Option<OpNumber>,
    /// Somebody asked to look for requests while nobody was there to be told of one.
    pub(crate) to_examine: bool,
}

/// Which list of STATUS a resource is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceList {
    /// Being acquired.
    Add,
    /// Held.
    Held,
    /// Being released.
    Rem,
    /// Held for nobody.
    Orphan,
}

impl Resource {
    /// Its sizes, as far as they are known: before its leader was read, its lockspace's.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Who holds it, or will.
    #[must_use]
    pub fn tokens(&self) -> &[Token] {
        match &self.work {
            Work::Held { tokens, .. } => tokens,
            _ => &[],
        }
    }

    /// Whether a client knows that it holds it.
    #[must_use]
    pub fn is_granted(&self) -> bool {
        self.tokens().iter().any(|t| t.granted)
    }

    /// Whether it is owned on disk though no process holds it: its last one had asked for that, and ended.
    #[must_use]
    pub fn is_orphan(&self) -> bool {
        matches!(&self.work, Work::Held { tokens, .. } if tokens.iter().all(|t| t.adopts && !t.granted))
    }

    /// Whether what a conversion has left in its leader is to be taken back under the hold that goes on: a client's, or an orphan's.
    pub(crate) fn waits_to_erase(&self) -> bool {
        self.erase && matches!(self.list(), ResourceList::Held | ResourceList::Orphan)
    }

    /// Whether a hold of the lease of `spec` would be reached by what this host has left to do, or may still write, under another name (rule R3): the lease has
    /// that name since its release, which has not ended completely, or lies where this one does, as when another host renamed it; and of one that
    /// this host still holds the disk says that it may have it.
    pub(crate) fn stands_for(&self, spec: &ResourceSpec) -> bool {
        let renamed = self.renamed.is_some_and(|name| (self.spec.lockspace, name) == spec.names());
        let other_name = self.spec.lockspace == spec.lockspace
            && self.spec.name != spec.name
            && self.spec.disks.iter().any(|disk| spec.disks.contains(disk));
        renamed || other_name
    }

    /// It is about to be given up: whatever is tried for that goes by our block as it is now.
    pub(crate) fn note_hold(&mut self) {
        let Work::Held { held, .. } = &self.work else { return };
        let block = held.block;
        self.hold = Some(block);
        if self.erase || self.converting.is_some() {
            self.attempt = Some(block);
        }
    }

    /// Takes so many tokens of this connection away, those that were not granted first, and otherwise the oldest: the last one that went, if
    /// there was one. `Err` if none is left: what becomes of the resource depends on that one.
    pub(crate) fn drop_tokens(
        &mut self,
        conn: ConnId,
        number: usize,
    ) -> Result<Option<Token>, Option<Token>> {
        self.drop_some(conn, number, false)
    }

    /// The same for a connection that has ended, which loses what it was granted: what it had asked for besides goes with the command that
    /// asked.
    pub(crate) fn drop_granted(
        &mut self,
        conn: ConnId,
        number: usize,
    ) -> Result<Option<Token>, Option<Token>> {
        self.drop_some(conn, number, true)
    }

    /// All of them in one pass: a lease may have millions of tokens. The others stay in their order, in which STATUS shows them.
    fn drop_some(
        &mut self,
        conn: ConnId,
        number: usize,
        granted_first: bool,
    ) -> Result<Option<Token>, Option<Token>> {
        let Work::Held { tokens, .. } = &mut self.work else { return Err(None) };
        let (mut left, mut last) = (number, None);
        for granted in [granted_first, !granted_first] {
            if left == 0 {
                break;
            }
            tokens.retain(|token| {
                look();
                let goes = left > 0 && token.conn == conn && token.granted == granted;
                if goes {
                    left -= 1;
                    last = Some(*token);
                }
                !goes
            });
        }
        if tokens.is_empty() { Err(last) } else { Ok(last) }
    }

    /// Its list.
    #[must_use]
    pub fn list(&self) -> ResourceList {
        match &self.work {
            Work::Acquiring { .. } => ResourceList::Add,
            Work::Held { tokens, .. } => {
                if tokens.is_empty() {
                    ResourceList::Orphan
                } else if self.is_granted() {
                    ResourceList::Held
                } else {
                    ResourceList::Add
                }
            }
            Work::Releasing { .. } | Work::Settling { .. } | Work::Retry { .. } => ResourceList::Rem,
        }
    }
}

/// A lease command in progress.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    /// Who gets the reply; `None` when nobody does any more.
    pub(crate) requester: Option<ConnId>,
    pub(crate) target: ConnId,
    pub(crate) kind: OpKind,
}

#[derive(Clone, Debug)]
pub(crate) enum OpKind {
    /// Acquiring.
    Acquire { takings: Takings, flags: AcquireFlags },
    /// Changing the mode of one resource.
    Convert { task: TaskId },
    /// All acquired; granted when the process is in the rejoin records on stable storage.
    Granting { acquired: Vec<ResourceId> },
    /// Releasing.
    Release {
        givings: Givings,
        /// The only one gets this name.
        rename: Option<Name>,
    },
}
