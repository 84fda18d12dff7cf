//! A manager, its clock, and both ends of the conversation.

use crate::side::SIDE_BY_SIDE_MAX;
use crate::state::OpKind;
use crate::*;
use sanlock_lease::delta::Joined;
use sanlock_lease::geometry::Geometry;
use sanlock_lease::machine::IoFailure;
use sanlock_lease::name::Name;
use sanlock_lease::paxos::acquire::AcquireOutcome;
use sanlock_lease::paxos::release::{ReleaseOutcome, Released};
use sanlock_lease::paxos::{AcquireError, Held, OwnerInfo, ReleaseError};
use sanlock_lease::record::{HostBlock, RawLeader};
use sanlock_lease::text::{DiskSpec, LockspaceSpec, ResourceSpec};

pub(super) const HOST: u64 = 1;
pub(super) const GENERATION: u64 = 5;

pub(super) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub(super) fn ls_spec(text: &str) -> LockspaceSpec {
    LockspaceSpec { name: name(text), host_id: HOST, path: format!("/{text}").into_bytes(), offset: 0 }
}

/// A place for each name.
fn place(resource: &str) -> DiskSpec {
    let number = resource.bytes().fold(0, |sum: u64, byte| sum.wrapping_mul(257).wrapping_add(byte.into()));
    DiskSpec { path: b"/disk".to_vec(), offset: number << 20 }
}

/// "LS:R" or "R", which is in "ls".
pub(super) fn request(text: &str) -> ResourceRequest {
    let (lockspace, resource) = text.split_once(':').unwrap_or(("ls", text));
    let spec = ResourceSpec {
        lockspace: name(lockspace),
        name: name(resource),
        disks: vec![place(resource)],
        ..ResourceSpec::default()
    };
    ResourceRequest { spec, persistent: false, num_hosts: None }
}

pub(super) fn joined(generation: u64, at: MonoTime) -> Joined {
    let mut leader = RawLeader::zeroed();
    leader.owner_generation = generation.into();
    Joined { geometry: Geometry::B512_M1, leader, last_good: at }
}

pub(super) fn held(generation: u64, lver: u64) -> Held {
    let mut leader = RawLeader::zeroed();
    leader.owner_id = HOST.into();
    leader.owner_generation = generation.into();
    leader.lver = lver.into();
    Held { leader, block: HostBlock::zeroed(), geometry: Geometry::B512_M1 }
}

pub(super) fn live_owner() -> AcquireError {
    AcquireError::Live(OwnerInfo { host_id: 2, generation: 1, timestamp: 9, lver: 3, short_hold: false })
}

pub(super) fn timed_out() -> Result<Released, ReleaseError> {
    Err(ReleaseError::LeaderWrite(IoFailure::TimedOut))
}

#[derive(Debug)]
pub(super) struct Lab {
    pub(super) m: Manager,
    pub(super) now: MonoTime,
    /// Whether records are saved at once.
    pub(super) saves: bool,
    /// Whether lockspaces renew with every tick.
    pub(super) renews: bool,
}

impl Lab {
    pub(super) fn new() -> Self {
        Self::with_watchdog(false)
    }

    pub(super) fn with_watchdog(watchdog: bool) -> Self {
        let settings = Settings {
            io_timeout: IoTimeout::new(1).unwrap(),
            fire: WatchdogFire::DEFAULT,
            watchdog,
            kill_grace_secs: 40,
            history_size: 3,
            set_bitmap_secs: None,
            quiet_fail: true,
        };
        Self { m: Manager::new(settings), now: MonoTime::from_secs(1000), saves: true, renews: true }
    }

    /// With lockspace "ls" joined, and connections 0 to 2 registered as pids 100 to 102.
    pub(super) fn ready() -> (Self, LockspaceId) {
        let mut lab = Self::new();
        for (conn, pid) in [(0, 100), (1, 101), (2, 102)] {
            lab.register(conn, pid);
        }
        lab.open(9);
        let ls = lab.join("ls");
        (lab, ls)
    }

    /// Takes one event; what it calls for, without the log.
    pub(super) fn event(&mut self, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        self.m.handle(self.now, event, &mut out);
        check_invariants(&self.m);
        if self.saves {
            for action in out.clone() {
                if let Action::SaveRejoin { ls, serial, .. } = action {
                    out.extend(self.event(Event::RejoinSaved { ls, serial }));
                }
            }
        }
        out.retain(|a| !matches!(a, Action::Log { .. }));
        out
    }

    /// The same without the records.
    pub(super) fn quiet(&mut self, event: Event) -> Vec<Action> {
        let mut out = self.event(event);
        out.retain(|a| {
            !matches!(a, Action::SaveRejoin { .. } | Action::DropRejoin { .. } | Action::RunOnFail { .. })
        });
        out
    }

    /// A look for requests has found these, and is over.
    pub(super) fn looked(&mut self, ls: LockspaceId, found: Vec<Request>) -> Vec<Action> {
        let found = found.into_iter().map(|request| Event::RequestFound { request });
        found.chain([Event::RequestsLooked { ls }]).flat_map(|event| self.quiet(event)).collect()
    }

    pub(super) fn command(&mut self, conn: u64, command: Command) -> Vec<Action> {
        self.quiet(Event::Command { conn: ConnId(conn), command })
    }

    /// The result of a command that is answered at once and calls for nothing else.
    #[track_caller]
    pub(super) fn result(&mut self, conn: u64, command: Command) -> i32 {
        match &self.command(conn, command)[..] {
            [Action::Reply { reply: Reply::Result(code), conn: to }] if to.0 == conn => *code,
            other => panic!("{other:?}"),
        }
    }

    /// One second passes.
    pub(super) fn tick(&mut self) -> Vec<Action> {
        self.now = self.now.plus_secs(1);
        let mut all = Vec::new();
        if self.renews {
            let live: Vec<LockspaceId> = self.m.lockspaces().map(|(id, _)| id).collect();
            for ls in live {
                all.extend(self.quiet(Event::Renewed { ls, timestamp: self.now, read_ms: 1, write_ms: 1 }));
            }
        }
        all.extend(self.quiet(Event::Tick));
        all
    }

    pub(super) fn open(&mut self, conn: u64) {
        let ci = u32::try_from(conn + 2).unwrap();
        assert_eq!(self.event(Event::ConnOpened { conn: ConnId(conn), ci }), []);
    }

    pub(super) fn register(&mut self, conn: u64, pid: i32) {
        self.open(conn);
        assert_eq!(self.command(conn, Command::Register { pid }), []);
    }

    pub(super) fn close(&mut self, conn: u64) -> Vec<Action> {
        self.quiet(Event::ConnClosed { conn: ConnId(conn) })
    }

    pub(super) fn pid_gone(&mut self, conn: u64) -> Vec<Action> {
        self.quiet(Event::PidGone { conn: ConnId(conn) })
    }

    /// Begins a join; connection 99 asks.
    pub(super) fn add(&mut self, text: &str) -> LockspaceId {
        if self.m.conns().all(|(id, _)| id != ConnId(99)) {
            self.open(99);
        }
        let spec = ls_spec(text);
        let actions = self.command(99, Command::AddLockspace { spec, io_timeout: 0, asynchronous: true });
        match &actions[..] {
            [Action::Join { ls, .. }, Action::Reply { reply: Reply::Result(0), .. }] => *ls,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn join(&mut self, text: &str) -> LockspaceId {
        let ls = self.add(text);
        assert_eq!(self.quiet(Event::JoinDone { ls, result: Ok(joined(GENERATION, self.now)) }), []);
        ls
    }

    pub(super) fn acquire(&mut self, conn: u64, target: Target, names: &[&str]) -> Vec<Action> {
        let resources = names.iter().map(|n| request(n)).collect();
        let flags = AcquireFlags::default();
        self.command(conn, Command::Acquire { target, owner_name: name("owner"), resources, flags })
    }

    /// A whole acquire that succeeds.
    #[track_caller]
    pub(super) fn hold(&mut self, conn: u64, resource: &str) -> ResourceId {
        let actions = self.acquire(conn, Target::Own, &[resource]);
        let actions = self.acquired(task(&actions), 0);
        assert_eq!(actions, [replied(conn, 0)]);
        self.resource(resource).unwrap()
    }

    pub(super) fn acquired(&mut self, task: TaskId, outstanding: u32) -> Vec<Action> {
        let outcome = AcquireOutcome::Acquired(held(GENERATION, 7));
        self.quiet(Event::AcquireDone { task, outcome, value: None, outstanding })
    }

    pub(super) fn failed(
        &mut self,
        task: TaskId,
        error: AcquireError,
        retract: bool,
        outstanding: u32,
    ) -> Vec<Action> {
        let retract = retract.then(|| held(1, 1).block);
        let outcome = AcquireOutcome::Failed { error, retract, geometry: Geometry::B512_M1 };
        self.quiet(Event::AcquireDone { task, outcome, value: None, outstanding })
    }

    pub(super) fn release(&mut self, conn: u64, names: &[&str]) -> Vec<Action> {
        let named = |n: &&str| {
            let spec = request(n).spec;
            spec.names()
        };
        let what = ReleaseWhat::Named(names.iter().map(named).collect());
        self.command(conn, Command::Release { target: Target::Own, what })
    }

    pub(super) fn released(
        &mut self,
        task: TaskId,
        result: Result<Released, ReleaseError>,
        outstanding: u32,
    ) -> Vec<Action> {
        let outcome = ReleaseOutcome { result, block_failure: None, value_written: false };
        self.quiet(Event::ReleaseDone { task, outcome, outstanding })
    }

    /// The leader was freed, but the block not marked.
    pub(super) fn released_without_mark(&mut self, task: TaskId) -> Vec<Action> {
        let outcome = ReleaseOutcome {
            result: Ok(Released::LeaderFreed),
            block_failure: Some(IoFailure::Os(5)),
            value_written: false,
        };
        self.quiet(Event::ReleaseDone { task, outcome, outstanding: 0 })
    }

    pub(super) fn settled(&mut self, task: TaskId) -> Vec<Action> {
        self.quiet(Event::Settled { task })
    }

    pub(super) fn remove(&mut self, conn: u64, text: &str) -> Vec<Action> {
        let spec = ls_spec(text);
        self.command(conn, Command::RemLockspace { spec, asynchronous: false, unused: false })
    }

    pub(super) fn inq(&mut self, text: &str) -> i32 {
        self.result(9, Command::InqLockspace { spec: ls_spec(text), wait: false })
    }

    pub(super) fn resource(&self, text: &str) -> Option<ResourceId> {
        let spec = request(text).spec;
        let mut found = self.m.resources().filter(|(_, r)| r.spec.names() == spec.names());
        found.next().map(|(id, _)| id)
    }

    pub(super) fn list(&self, text: &str) -> Option<ResourceList> {
        self.resource(text).map(|id| self.m.resources[&id].list())
    }

    /// The names a connection holds, in slot order.
    pub(super) fn tokens(&self, conn: u64) -> Vec<String> {
        let Some(client) = self.m.conns.get(&ConnId(conn)) else { return Vec::new() };
        client.held().map(|id| self.m.resources[&id].spec.name.to_string()).collect()
    }
}

pub(super) fn replied(conn: u64, code: i32) -> Action {
    Action::Reply { conn: ConnId(conn), reply: Reply::Result(code) }
}

/// The task that the only action starts.
#[track_caller]
pub(super) fn task(actions: &[Action]) -> TaskId {
    match actions {
        [
            Action::StartAcquire { task, .. }
            | Action::StartRelease { task, .. }
            | Action::StartRetract { task, .. },
        ] => *task,
        other => panic!("{other:?}"),
    }
}

/// The task of the release (not retract) that the only action starts, and of what.
#[track_caller]
pub(super) fn release_of(actions: &[Action]) -> (TaskId, String) {
    match actions {
        [Action::StartRelease { task, config, .. }] => (*task, config.resource.to_string()),
        other => panic!("{other:?}"),
    }
}

/// The tasks that acquire, in the order in which they are started, and of what.
pub(super) fn acquires(actions: &[Action]) -> Vec<(TaskId, String)> {
    actions
        .iter()
        .filter_map(|action| match action {
            Action::StartAcquire { task, config, .. } => Some((*task, config.resource.to_string())),
            _ => None,
        })
        .collect()
}

/// The tasks that release (not retract), likewise.
pub(super) fn releases(actions: &[Action]) -> Vec<(TaskId, String)> {
    actions
        .iter()
        .filter_map(|action| match action {
            Action::StartRelease { task, config, .. } => Some((*task, config.resource.to_string())),
            _ => None,
        })
        .collect()
}

#[track_caller]
pub(super) fn retract_of(actions: &[Action]) -> TaskId {
    match actions {
        [Action::StartRetract { task, .. }] => *task,
        other => panic!("{other:?}"),
    }
}

/// The invariants of the crate's first page.
pub(super) fn check_invariants(m: &Manager) {
    for (id, r) in &m.resources {
        let same = |o: &&Resource| o.spec.names() == r.spec.names();
        assert_eq!(m.resources.values().filter(same).count(), 1, "{r:?} exists twice");
        let tokens = m.conns.values().flat_map(Conn::held).filter(|t| t == id).count();
        assert!(tokens <= 1 || r.spec.shared, "an exclusive resource has one token: {r:?}");
        match r.work {
            Work::Acquiring { task, .. } | Work::Releasing { task } | Work::Settling { task } => {
                assert_eq!(m.tasks.get(&task), Some(id), "its task is known: {r:?}");
            }
            Work::Retry { .. } | Work::Held { .. } => {}
        }
        if let Work::Held { tokens: holders, .. } = &r.work {
            // Somebody is there to give it back: the token's holder, or the command that works on it.
            let in_command = m.ops.values().any(|op| match &op.kind {
                OpKind::Acquire { takings, .. } => takings.acquired().any(|taken| taken == *id),
                OpKind::Granting { acquired } => acquired.contains(id),
                OpKind::Release { givings, .. } => givings.waiting().any(|(_, left)| left == *id),
                OpKind::Convert { .. } => false,
            });
            let granted = holders.iter().filter(|t| t.granted).count();
            assert!(granted >= tokens && (granted == tokens || in_command), "{r:?} belongs to nobody");
            assert!(granted == holders.len() || in_command, "{r:?} belongs to nobody");
            assert!(holders.iter().all(|t| m.conns.contains_key(&t.conn)), "{r:?} is held by nobody");
            for conn in holders.iter().filter(|t| t.granted).map(|t| t.conn) {
                let granted = holders.iter().filter(|t| t.granted && t.conn == conn).count();
                let places = m.conns[&conn].held().filter(|held| held == id).count();
                // A release takes the places of what it has still to give up at once.
                let released = m.ops.values().any(|op| match &op.kind {
                    OpKind::Release { givings, .. } if op.target == conn => {
                        givings.waiting().any(|(_, left)| left == *id)
                    }
                    _ => false,
                });
                assert!(
                    places == granted || (released && places < granted),
                    "{conn:?} does not know of {r:?}"
                );
            }
        } else {
            assert_eq!(tokens, 0, "a token belongs to a held resource: {r:?}");
        }
        let running = m.tasks.values().filter(|t| *t == id).count();
        assert!(running <= 1, "one task at a time: {r:?}");
        assert_eq!(r.unsettled.is_some(), running == 1 && r.unsettled.is_some(), "{r:?}");
    }
    for (ls, name) in m.index_leases() {
        let is_it = |r: &Resource| {
            r.spec.names() == (ls, name) || (r.spec.lockspace == ls && r.renamed == Some(name))
        };
        let beside = m.resources.values().find(|r| is_it(r));
        assert!(beside.is_none(), "an operation on an index has that lease: {beside:?}");
    }
    for (task, id) in &m.tasks {
        assert!(m.resources.contains_key(id), "{task:?} works on nothing");
    }
    for (id, client) in &m.conns {
        let ops: Vec<_> = m.ops.iter().filter(|(_, op)| op.target == *id).map(|(n, _)| *n).collect();
        assert_eq!(client.busy.into_iter().collect::<Vec<_>>(), ops, "busy exactly while a command runs");
        for token in client.held() {
            assert!(m.resources[&token].tokens().iter().any(|t| t.granted && t.conn == *id));
        }
        assert_ne!(client.tokens.last(), Some(&None));
    }
    for op in m.ops.values() {
        assert!(m.conns.contains_key(&op.target));
        if let OpKind::Acquire { takings, .. } = &op.kind {
            let arming: Vec<_> = takings.arming().filter_map(|ls| m.lockspaces.get(&ls)).collect();
            assert!(takings.running().all(|task| m.tasks.contains_key(&task)), "its tasks run");
            assert!(takings.running().count() <= SIDE_BY_SIDE_MAX);
            assert!(arming.iter().all(|ls| ls.watch == Watch::Arming), "what it waits for comes");
            assert!(
                takings.running().next().is_some() || !arming.is_empty(),
                "a command waits for something"
            );
        }
        if let OpKind::Convert { task } = &op.kind {
            assert!(m.tasks.contains_key(task), "a command waits for something");
        }
        if let OpKind::Release { givings, .. } = &op.kind {
            let waits = |id: ResourceId| m.resources.get(&id).is_some_and(|r| r.for_op.is_some());
            assert!(givings.running().all(waits), "what it waits for comes: {op:?}");
            assert!(givings.running().next().is_some(), "a command waits for something: {op:?}");
            assert!(givings.running().count() <= SIDE_BY_SIDE_MAX);
        }
    }
    for (id, ls) in &m.lockspaces {
        let watched = m.index_watched().any(|ls| ls == *id);
        let counts = |r: &Resource| {
            let busy = r.converting.is_some() || r.unsettled.is_some() || r.erase;
            r.list() != ResourceList::Orphan || busy || ls.used_by_orphans
        };
        let needed = ls.used || watched || m.resources.values().any(|r| r.ls == *id && counts(r));
        let by_orphans = ls.used_by_orphans && m.resources.values().any(|r| r.ls == *id && r.is_orphan());
        assert!(
            !by_orphans || ls.watch != Watch::Idle || ls.list == LockspaceList::Rem,
            "what orphans stand for has a watchdog"
        );
        assert!(!ls.used || ls.watch != Watch::Idle, "what USED stands for has a watchdog");
        assert!(ls.watch != Watch::Armed || needed, "an idle lockspace has an expiry");
        assert!(m.settings.watchdog != (ls.watch == Watch::Off));
        assert!(ls.list != LockspaceList::Spaces || ls.joined.is_some());
        assert!(ls.rejoin_saved <= ls.rejoin_asked);
    }
}
