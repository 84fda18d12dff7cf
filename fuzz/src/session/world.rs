//! Everything around the manager: what it may be told next follows from what it has asked for.

use sanlock_lease::delta::{Event as HostEvent, JoinError, Joined};
use sanlock_lease::geometry::{Geometry, HostId};
use sanlock_lease::machine::IoFailure;
use sanlock_lease::name::Name;
use sanlock_lease::paxos::acquire::{AcquireOutcome, Mode};
use sanlock_lease::paxos::convert::ConvertOutcome;
use sanlock_lease::paxos::release::{ReleaseOutcome, Released};
use sanlock_lease::paxos::{AcquireError, Held, OwnerInfo, PaxosConfig, ReleaseError};
use sanlock_lease::record::{HostBlock, ModeBlock, RawLeader};
use sanlock_lease::timing::{IoTimeout, MonoTime, WatchdogFire};
use sanlock_manager::{
    Action, Command as Order, ConnId, Event, LOCKSPACES_MAX, LockspaceId, Manager, Request as Wish,
    ResourceId, ResourceList, Settings, TOKENS_MAX, TaskId, Work,
};
use sanlock_wire::flags::RestrictFlags;
use sanlock_wire::{Command, Reply, Request, RequestBody, RequestDecoder};
use std::collections::{BTreeMap, BTreeSet};

use super::front::{self, Way};
use crate::convert;
use crate::data::Data;

/// Clients at a time.
const CLIENTS_MAX: usize = 12;
/// Renewals remembered.
const HISTORY: usize = 3;
/// Seconds after which everything must have come to its end: killing, draining and retries included.
const END_SECS: u64 = 3000;
/// Requests of one piece of bytes.
const REQUESTS_PER_PIECE: usize = 64;

type Key = (Name, Name);

/// One connection.
#[derive(Default)]
struct Client {
    decoder: RequestDecoder,
    /// The request being worked on.
    pending: Option<Request>,
    pid: Option<i32>,
    pid_gone: bool,
    /// Nothing is read any more.
    deaf: bool,
    muted: bool,
    ci: u32,
}

#[derive(Clone, Copy)]
struct Index {
    ls: LockspaceId,
    conn: ConnId,
    lease: bool,
    answered: bool,
}

enum Machine {
    Acquire { ls: LockspaceId, generation: u64, shared: bool },
    Convert(Box<Held>),
    Release { value: bool },
}

/// See the module.
pub(super) struct World {
    m: Manager,
    now: MonoTime,
    watchdog: bool,
    next_conn: u64,
    open: BTreeMap<ConnId, Client>,
    closed: BTreeMap<ConnId, Client>,
    joining: BTreeSet<LockspaceId>,
    joined: BTreeMap<LockspaceId, u64>,
    gone: BTreeSet<LockspaceId>,
    leaving: BTreeSet<LockspaceId>,
    machines: BTreeMap<TaskId, Machine>,
    unsettled: BTreeSet<TaskId>,
    names: BTreeMap<TaskId, Key>,
    /// Leases that a machine acquired and that nothing gave up since, with the lockspace they were acquired in.
    owned: BTreeMap<Key, LockspaceId>,
    saves: Vec<(LockspaceId, u64)>,
    indexes: BTreeMap<TaskId, Index>,
    storage: BTreeSet<ConnId>,
    checks: BTreeSet<LockspaceId>,
    arms: BTreeSet<LockspaceId>,
    armed: BTreeSet<LockspaceId>,
    lost: BTreeSet<LockspaceId>,
    looking: BTreeMap<LockspaceId, Vec<ResourceId>>,
    generation: u64,
    exited: bool,
    calm: bool,
}

fn nth<T: Copy>(mut items: impl ExactSizeIterator<Item = T>, pick: usize) -> Option<T> {
    let count = items.len();
    if count == 0 { None } else { items.nth(pick % count) }
}

fn held(generation: u64, lver: u64, shared: bool) -> Held {
    let mut leader = RawLeader::zeroed();
    leader.owner_id = 1.into();
    leader.owner_generation = generation.into();
    leader.lver = lver.into();
    let mode = if shared { ModeBlock::shared(generation) } else { ModeBlock::zeroed() };
    Held { leader, block: HostBlock { mode, ..HostBlock::zeroed() }, geometry: Geometry::B512_M1 }
}

impl World {
    pub(super) fn new(watchdog: bool) -> Self {
        let settings = Settings {
            io_timeout: IoTimeout::new(1).unwrap_or(IoTimeout::DEFAULT),
            fire: WatchdogFire::DEFAULT,
            watchdog,
            kill_grace_secs: 40,
            history_size: HISTORY,
            set_bitmap_secs: None,
            quiet_fail: true,
        };
        Self {
            m: Manager::new(settings),
            now: MonoTime::from_secs(100),
            watchdog,
            next_conn: 0,
            open: BTreeMap::new(),
            closed: BTreeMap::new(),
            joining: BTreeSet::new(),
            joined: BTreeMap::new(),
            gone: BTreeSet::new(),
            leaving: BTreeSet::new(),
            machines: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            names: BTreeMap::new(),
            owned: BTreeMap::new(),
            saves: Vec::new(),
            indexes: BTreeMap::new(),
            storage: BTreeSet::new(),
            checks: BTreeSet::new(),
            arms: BTreeSet::new(),
            armed: BTreeSet::new(),
            lost: BTreeSet::new(),
            looking: BTreeMap::new(),
            generation: 0,
            exited: false,
            calm: false,
        }
    }

    pub(super) const fn exited(&self) -> bool {
        self.exited
    }

    /// Two processes and a joined lockspace.
    pub(super) fn settle_in(&mut self) {
        for _ in 0..3 {
            self.connect();
        }
        for conn in [ConnId(0), ConnId(1)] {
            self.receive(conn, &Request::register().encode());
        }
        let disk = sanlock_wire::Disk::new(b"/ls", 0).unwrap_or(sanlock_wire::Disk::EMPTY);
        let lockspace = sanlock_wire::Lockspace::new(sanlock_wire::Name::truncated("ls"), 1, disk);
        self.receive(
            ConnId(2),
            &Request::add_lockspace(lockspace, sanlock_wire::flags::AddFlags::empty(), 0).encode(),
        );
        let mut sound = Data::new(&[]);
        self.watch(&mut sound);
        self.lockspace(&mut sound);
        assert_eq!(self.joined.len(), 1, "a lockspace to begin with");
    }

    /// One thing out of everything that may happen now.
    pub(super) fn step(&mut self, data: &mut Data<'_>) {
        match data.byte() % 16 {
            0 => self.connect(),
            1 => {
                if let Some(conn) = nth(self.open.keys().copied(), data.below(16)) {
                    self.close(conn);
                }
            }
            2 => {
                let living = |(conn, client): (&ConnId, &Client)| {
                    (client.pid.is_some_and(|pid| pid > 0) && !client.pid_gone).then_some(*conn)
                };
                let all: Vec<ConnId> = self.open.iter().chain(&self.closed).filter_map(living).collect();
                if let Some(conn) = nth(all.into_iter(), data.below(16)) {
                    if let Some(client) = self.open.get_mut(&conn).or_else(|| self.closed.get_mut(&conn)) {
                        client.pid_gone = true;
                    }
                    self.event(Event::PidGone { conn });
                }
            }
            3 => {
                self.now = self.now.plus_millis(u64::from(data.byte()) * 40);
                self.event(Event::Tick);
            }
            4 | 5 => self.lockspace(data),
            6 | 7 => self.machine(data),
            8 => self.settle(data),
            9 => self.watch(data),
            10 => self.others(data),
            11 => self.storage(data),
            12 if data.byte() == 255 => self.event(Event::Signal),
            _ => self.send(data),
        }
    }

    fn connect(&mut self) {
        if self.open.len() >= CLIENTS_MAX {
            return;
        }
        let used: BTreeSet<u32> =
            self.open.values().chain(self.closed.values()).map(|client| client.ci).collect();
        let ci = (0..).find(|ci| !used.contains(ci)).unwrap_or(u32::MAX);
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        self.open.insert(conn, Client { ci, ..Client::default() });
        self.event(Event::ConnOpened { conn, ci });
    }

    fn close(&mut self, conn: ConnId) {
        let Some(client) = self.open.remove(&conn) else { return };
        self.closed.insert(conn, client);
        self.event(Event::ConnClosed { conn });
    }

    /// Bytes from a client: requests put together from few names, or anything.
    fn send(&mut self, data: &mut Data<'_>) {
        let Some(conn) = nth(self.open.keys().copied(), data.below(16)) else { return };
        let bytes = if data.one_in(8) { data.piece().to_vec() } else { request(data) };
        self.receive(conn, &bytes);
    }

    fn receive(&mut self, conn: ConnId, bytes: &[u8]) {
        let mut input = bytes;
        for _ in 0..REQUESTS_PER_PIECE {
            let Some(client) = self.open.get_mut(&conn) else { return };
            // What a busy client sends waits in its socket; here it is not sent.
            if client.pending.is_some() || client.deaf || input.is_empty() {
                return;
            }
            match client.decoder.feed(&mut input) {
                Ok(Some(request)) => self.request(conn, request),
                Ok(None) => return,
                Err(_) => {
                    // Message boundaries are lost: a plain connection is closed, a registered one is not read any more.
                    client.deaf = true;
                    if client.pid.is_none() {
                        self.close(conn);
                    }
                    return;
                }
            }
        }
    }

    fn request(&mut self, conn: ConnId, request: Request) {
        let Some(client) = self.open.get_mut(&conn) else { return };
        if client.muted {
            return;
        }
        let header = request.header;
        let plain = client.pid.is_none();
        match front::way(&request) {
            Way::Register => {
                let pid = i32::try_from(conn.0 % 5).unwrap_or(0) + 100;
                client.pid.get_or_insert(pid);
                self.event(Event::Command { conn, command: Order::Register { pid } });
            }
            Way::Silence => {}
            Way::Answer(reply) => {
                front::check_reply(&header, &reply);
                if plain && header.command().is_some_and(Command::closes_plain_connection) {
                    self.close(conn);
                }
            }
            Way::Storage => {
                client.pending = Some(request);
                self.storage.insert(conn);
            }
            Way::Order(Order::RegEvent { .. }) if !plain => {
                front::check_reply(&header, &Reply::result(&header, sanlock_wire::code::EINVAL));
            }
            Way::Order(order) => {
                if let Order::Restrict { flags } = order {
                    client.muted = RestrictFlags::from_bits_truncate(flags).contains(RestrictFlags::ALL);
                }
                let silent = matches!(order, Order::Shutdown { .. });
                if !silent {
                    client.pending = Some(request);
                }
                self.event(Event::Command { conn, command: order });
                if silent && plain {
                    self.close(conn);
                }
            }
        }
    }

    /// The answer to the request in progress; the client may be gone.
    fn answered(&mut self, conn: ConnId) -> Option<Request> {
        let client = match self.open.get_mut(&conn) {
            Some(client) => client,
            None => self.closed.get_mut(&conn)?,
        };
        let request = client.pending.take();
        assert!(request.is_some(), "one answer for each request");
        request
    }

    fn event(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut out = Vec::new();
            self.m.handle(self.now, event, &mut out);
            self.check_tables();
            assert!(
                out.len() <= 64 + 40 * (self.open.len() + self.closed.len() + self.m.resources().count()),
                "{} actions",
                out.len()
            );
            for action in out {
                events.extend(self.take(action));
            }
        }
    }

    fn check_tables(&self) {
        assert!(self.m.lockspaces().count() <= LOCKSPACES_MAX);
        assert!(
            self.m.conns().count() <= self.open.len() + self.closed.len(),
            "no connection but those that are there"
        );
        for (_, lockspace) in self.m.lockspaces() {
            assert!(lockspace.history.len() <= HISTORY);
        }
        for (id, conn) in self.m.conns() {
            assert!(conn.tokens.len() <= TOKENS_MAX);
            for resource in conn.held() {
                let found = self.m.resources().find(|(other, _)| *other == resource);
                let tokens = found.map_or(&[][..], |(_, resource)| resource.tokens());
                assert!(
                    tokens.iter().any(|token| token.conn == id && token.granted),
                    "a token of a resource"
                );
            }
        }
        let mut keys = BTreeSet::new();
        for (_, resource) in self.m.resources() {
            let key = (resource.spec.lockspace, resource.spec.name);
            assert!(keys.insert(key), "{key:?} is there once");
            let granted = resource.tokens().iter().filter(|token| token.granted).count();
            assert!(granted <= 1 || resource.spec.shared, "an exclusive lease has one holder: {resource:?}");
            // What is granted was acquired by a machine, and nothing gave it up since.
            assert!(
                granted == 0 || self.owned.get(&key) == Some(&resource.ls),
                "granted without a machine: {resource:?}"
            );
        }
    }

    fn start(&mut self, task: TaskId, ls: LockspaceId, config: &PaxosConfig, machine: Machine) {
        let key = (config.lockspace, config.resource);
        assert!(!self.watchdog || self.armed.contains(&ls), "the watchdog is armed before a write");
        assert!(!self.gone.contains(&ls), "nothing starts in a dead lockspace");
        assert_eq!(self.joined.get(&ls), Some(&config.generation), "in the generation that is held");
        for other in self.machines.keys().chain(&self.unsettled) {
            assert_ne!(
                self.names.get(other),
                Some(&key),
                "nothing starts while something may still be written"
            );
        }
        self.names.insert(task, key);
        self.machines.insert(task, machine);
    }

    /// Carries an action out, or remembers it; what has to be told at once.
    fn take(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Reply { conn, reply } => self.reply(conn, &reply),
            Action::BecomeStream { conn } => {
                let client = self.open.get_mut(&conn);
                let stream = client.map(|client| {
                    client.deaf = true;
                    client.pending.take().is_some()
                });
                assert_eq!(stream, Some(true), "who asked for a stream is there");
            }
            Action::Deliver { conn, .. } => assert!(self.open.contains_key(&conn)),
            Action::EndStream { conn } => {
                self.open.remove(&conn).into_iter().for_each(|client| drop(self.closed.insert(conn, client)));
                return Some(Event::ConnClosed { conn });
            }
            Action::LookForRequests { ls, leases } => {
                let before = self.looking.insert(ls, leases.into_iter().map(|(id, _)| id).collect());
                assert!(before.is_none(), "one looking at a time");
            }
            Action::Forget { conn } => {
                assert!(self.closed.remove(&conn).is_some(), "only a closed one is forgotten")
            }
            Action::Join { ls, .. } => assert!(self.joining.insert(ls), "joined once"),
            Action::Gone { ls } => drop(self.gone.insert(ls)),
            Action::Leave { ls, release } => {
                assert!(self.leaving.insert(ls), "left once");
                assert!(!self.armed.contains(&ls) && !self.arms.contains(&ls), "disarmed before");
                let writes =
                    |task: &TaskId| self.machines.contains_key(task) || self.unsettled.contains(task);
                let space =
                    self.m.lockspaces().find(|(id, _)| *id == ls).map(|(_, lockspace)| lockspace.spec.name);
                let busy =
                    self.names.iter().any(|(task, (lockspace, _))| writes(task) && Some(*lockspace) == space);
                let indexed = self.indexes.values().any(|index| index.ls == ls && index.lease);
                assert!(!release || !(busy || indexed), "nothing of it may be written any more");
            }
            Action::StartAcquire { task, ls, config, options, .. } => {
                let shared = options.mode == Mode::ShortHold;
                self.start(task, ls, &config, Machine::Acquire { ls, generation: config.generation, shared });
            }
            Action::StartConvert { task, ls, config, held, .. }
            | Action::StartErase { task, ls, config, held, .. } => {
                self.start(task, ls, &config, Machine::Convert(Box::new(held)));
            }
            Action::StartRelease { task, ls, config, value, .. }
            | Action::StartRetract { task, ls, config, value, .. } => {
                self.owned.remove(&(config.lockspace, config.resource));
                self.start(task, ls, &config, Machine::Release { value: value.is_some() });
            }
            Action::StartIndex { task, conn, ls, .. } => {
                assert!(!self.gone.contains(&ls), "nothing starts in a dead lockspace");
                let client = self.open.get(&conn).or_else(|| self.closed.get(&conn));
                let Some(request) = client.and_then(|client| client.pending.as_ref()) else {
                    // Its client has gone while the watchdog was being armed.
                    return Some(Event::IndexDone { task });
                };
                let lease =
                    !matches!(request.body, RequestBody::LookupRindex(..) | RequestBody::FormatRindex(_));
                self.indexes.insert(task, Index { ls, conn, lease, answered: false });
            }
            Action::ClientGone { task } => assert!(self.machines.contains_key(&task)),
            Action::Kill { conn, pid, .. } | Action::RunKillpath { conn, pid, .. } => {
                let client = self.open.get(&conn).or_else(|| self.closed.get(&conn));
                assert!(
                    client.is_some_and(|client| client.pid == Some(pid) && !client.pid_gone && pid > 1),
                    "a living process"
                );
            }
            Action::SaveRejoin { ls, serial, .. } => self.saves.push((ls, serial)),
            Action::WatchdogCheck { ls, .. } => drop(self.checks.insert(ls)),
            Action::WatchdogArm { ls, .. } => {
                assert!(!self.armed.contains(&ls) && self.arms.insert(ls), "armed once")
            }
            Action::WatchdogLive { ls, .. } => assert!(self.armed.contains(&ls) || self.arms.contains(&ls)),
            Action::WatchdogDisarm { ls } => {
                assert!(self.armed.remove(&ls) | self.arms.remove(&ls), "there is an expiry")
            }
            Action::Exit => {
                assert!(self.armed.is_empty() && self.arms.is_empty(), "nothing is left with wdmd");
                self.exited = true;
            }
            Action::RunOnFail { ls, .. } => assert!(self.gone.contains(&ls)),
            Action::ShuttingDown
            | Action::DropRejoin { .. }
            | Action::Outgoing { .. }
            | Action::CancelKillpath { .. }
            | Action::Log { .. } => {}
        }
        None
    }

    fn reply(&mut self, conn: ConnId, reply: &sanlock_manager::Reply) {
        let Some(request) = self.answered(conn) else { return };
        front::check_answer(&request.header, reply);
        if let (RequestBody::Acquire { resources, .. }, sanlock_manager::Reply::Result(0)) =
            (&request.body, reply)
        {
            for spec in resources {
                let key = convert::resource_name(spec.resource());
                let ls = self.owned.get(&key);
                assert!(ls.is_some_and(|ls| !self.gone.contains(ls)), "{key:?} is granted without a machine");
            }
        }
    }

    fn lockspace(&mut self, data: &mut Data<'_>) {
        let (pick, detail) = (data.below(8), data.byte());
        if let Some(ls) = nth(self.leaving.iter().copied(), pick).filter(|_| self.calm || detail % 2 == 0) {
            self.leaving.remove(&ls);
            self.joining.remove(&ls);
            self.joined.remove(&ls);
            self.event(Event::Left { ls });
        } else if let Some(ls) = nth(self.joining.iter().copied(), pick) {
            self.joining.remove(&ls);
            let result = match detail {
                0..=199 => {
                    self.generation += 1;
                    self.joined.insert(ls, self.generation);
                    let mut leader = RawLeader::zeroed();
                    leader.owner_generation = self.generation.into();
                    Ok(Joined { geometry: Geometry::B512_M1, leader, last_good: self.now })
                }
                200..=219 => Err(JoinError::Stopped { freed: true }),
                220..=239 => Err(JoinError::Read(IoFailure::TimedOut)),
                _ => Err(JoinError::Busy { owner: Name::default(), generation: 3 }),
            };
            self.event(Event::JoinDone { ls, result });
        } else if let Some(ls) = nth(self.joined.keys().copied(), pick) {
            self.event(match detail {
                240..=255 => Event::Corrupt { ls, code: -260, text: String::new() },
                200..=239 => Event::RenewalFailed { ls, code: -202, text: String::new() },
                _ => Event::Renewed { ls, timestamp: self.now, read_ms: 1, write_ms: 1 },
            });
        }
    }

    /// A machine ends, in one of the ways it can.
    fn machine(&mut self, data: &mut Data<'_>) {
        let Some(task) = nth(self.machines.keys().copied(), data.below(16)) else { return };
        let Some(machine) = self.machines.remove(&task) else { return };
        let (how, detail) = (data.byte(), data.byte());
        let outstanding = u32::from(detail % 4 == 3);
        if how == 255 {
            let code = i32::from(detail) - 300;
            return self.event(Event::StartFailed { task, code });
        }
        if outstanding > 0 {
            self.unsettled.insert(task);
        }
        match machine {
            Machine::Acquire { ls, generation, shared } => {
                let fail =
                    |error, retract| AcquireOutcome::Failed { error, retract, geometry: Geometry::B512_M1 };
                let info = OwnerInfo { host_id: 2, generation: 1, timestamp: 9, lver: 3, short_hold: false };
                let outcome = match how {
                    0..=159 => AcquireOutcome::Acquired(held(generation, u64::from(detail), shared)),
                    160..=199 => fail(AcquireError::Live(info), false),
                    200..=229 => fail(AcquireError::LeaderWrite(IoFailure::TimedOut), true),
                    _ => fail(AcquireError::LockspaceGone, how % 2 == 0),
                };
                let acquired = matches!(outcome, AcquireOutcome::Acquired(_));
                if let Some(key) = self.names.get(&task).filter(|_| acquired) {
                    self.owned.insert(*key, ls);
                }
                let value = match detail / 4 % 4 {
                    0 => None,
                    1 => Some(Err(IoFailure::Os(5))),
                    _ => Some(Ok(vec![0; 512].into())),
                };
                let value = value.filter(|_| acquired);
                self.event(Event::AcquireDone { task, outcome, value, outstanding });
            }
            Machine::Convert(before) => {
                let ok = how < 160;
                let shared = before.is_shared() != ok;
                let result = if ok { Ok(()) } else { Err(AcquireError::LockspaceGone) };
                let generation = before.leader.owner_generation.get();
                let held = held(generation, before.lver(), shared);
                let erase = detail % 3 == 0;
                let outcome = Box::new(ConvertOutcome { result, held, erase, value_written: false });
                self.event(Event::ConvertDone { task, outcome, outstanding });
            }
            Machine::Release { value } => {
                let result = match how {
                    0..=159 => Ok(Released::LeaderFreed),
                    160..=179 => Ok(Released::ByFlag),
                    180..=199 if value => Err(ReleaseError::Value(IoFailure::Os(5))),
                    180..=219 => Err(ReleaseError::LeaderWrite(IoFailure::TimedOut)),
                    220..=239 => Err(ReleaseError::LockspaceGone),
                    _ => Err(ReleaseError::Lver { expected: 1, found: 2 }),
                };
                let before = matches!(result, Err(ReleaseError::Value(_) | ReleaseError::LockspaceGone));
                let outcome = ReleaseOutcome { result, block_failure: None, value_written: value && !before };
                self.event(Event::ReleaseDone { task, outcome, outstanding });
            }
        }
    }

    /// Writes land, records are saved, operations on indexes end.
    fn settle(&mut self, data: &mut Data<'_>) {
        let pick = data.below(8);
        if !self.saves.is_empty() && data.one_in(2) {
            let (ls, serial) = self.saves.remove(0);
            return self.event(Event::RejoinSaved { ls, serial });
        }
        if let Some(task) = nth(self.indexes.keys().copied(), pick) {
            let Some(index) = self.indexes.get(&task).copied() else { return };
            if !index.answered {
                self.answered_storage(index.conn);
            }
            if data.one_in(3) && !index.answered {
                self.indexes.insert(task, Index { answered: true, ..index });
                return self.event(Event::IndexSettling { task });
            }
            self.indexes.remove(&task);
            return self.event(Event::IndexDone { task });
        }
        if let Some(task) = nth(self.unsettled.iter().copied(), pick) {
            // Not before the machine has ended.
            if !self.machines.contains_key(&task) {
                self.unsettled.remove(&task);
                self.event(Event::Settled { task });
            }
        }
    }

    fn watch(&mut self, data: &mut Data<'_>) {
        let (pick, detail) = (data.below(8), data.byte());
        if let Some(ls) = nth(self.checks.iter().copied(), pick) {
            self.checks.remove(&ls);
            let result = match detail {
                250..=255 => Err("no answer".to_owned()),
                // Too long for an io timeout of 1.
                240..=249 => Ok(6),
                _ => Ok(2),
            };
            self.event(Event::WatchdogChecked { ls, result });
        } else if let Some(ls) = nth(self.arms.iter().copied(), pick) {
            self.arms.remove(&ls);
            let result = if detail >= 220 { Err("no answer".to_owned()) } else { Ok(()) };
            if result.is_ok() {
                self.armed.insert(ls);
            }
            self.event(Event::WatchdogArmed { ls, result });
        } else if let Some(ls) = nth(self.armed.iter().copied(), pick).filter(|_| detail >= 250) {
            self.armed.remove(&ls);
            self.lost.insert(ls);
            self.event(Event::WatchdogLost { ls, text: String::new() });
        }
    }

    /// Requests are found, or other hosts show events.
    fn others(&mut self, data: &mut Data<'_>) {
        let pick = data.below(8);
        if let Some(ls) = nth(self.looking.keys().copied(), pick) {
            let leases = self.looking.remove(&ls).unwrap_or_default();
            let found = leases.into_iter().filter(|_| !data.one_in(5));
            let found: Vec<Wish> = found.map(|resource| Wish { resource, lver: 0, force_mode: 0 }).collect();
            let found = found
                .into_iter()
                .map(|wish| Wish { lver: data.number(), force_mode: u32::from(data.byte() % 4), ..wish })
                .collect();
            self.event(Event::RequestsLooked { ls, found });
        } else if let Some(ls) = nth(self.joined.keys().copied(), pick) {
            let event = HostEvent { generation: data.number(), event: data.number(), data: 2 };
            let Some(from) = HostId::new(data.number()) else { return };
            self.event(Event::Noticed { ls, from, generation: data.number(), event });
        }
    }

    /// A thread that worked on storage answers.
    fn storage(&mut self, data: &mut Data<'_>) {
        let Some(conn) = nth(self.storage.iter().copied(), data.below(8)) else { return };
        self.storage.remove(&conn);
        let Some(request) = self.answered(conn) else { return };
        if let (RequestBody::Request(spec), true) = (&request.body, data.one_in(2)) {
            let lockspace = convert::lease_name(&spec.resource().lockspace_name);
            self.event(Event::Requested { lockspace, owner: data.number() });
        }
    }

    fn answered_storage(&mut self, conn: ConnId) {
        // Its client may be gone and forgotten by now.
        if self.open.contains_key(&conn) || self.closed.contains_key(&conn) {
            let _request = self.answered(conn);
        }
    }

    /// Everybody leaves, everything under way comes to a good end, and the daemon is told to stop: then nothing is left.
    pub(super) fn finish(&mut self) {
        self.calm = true;
        let mut sound = Data::new(&[]);
        for second in 0..END_SECS {
            if self.exited {
                return;
            }
            self.now = self.now.plus_secs(1);
            self.event(Event::Tick);
            for conn in self.open.keys().copied().collect::<Vec<_>>() {
                self.close(conn);
            }
            for conn in self
                .closed
                .iter()
                .filter(|(_, c)| c.pid.is_some() && !c.pid_gone)
                .map(|(id, _)| *id)
                .collect::<Vec<_>>()
            {
                if let Some(client) = self.closed.get_mut(&conn) {
                    client.pid_gone = true;
                }
                self.event(Event::PidGone { conn });
            }
            for _ in 0..40 {
                for step in [Self::lockspace, Self::machine, Self::settle, Self::watch, Self::storage] {
                    step(self, &mut sound);
                }
                while !self.saves.is_empty() {
                    let (ls, serial) = self.saves.remove(0);
                    self.event(Event::RejoinSaved { ls, serial });
                }
            }
            if second == 2 {
                self.last_words();
            }
        }
        panic!("nothing ends: {:#?}", self.m);
    }

    /// What SET_CONFIG keeps a lockspace for is taken back, and the daemon is told to end.
    fn last_words(&mut self) {
        let names: Vec<Name> = self.m.lockspaces().map(|(_, lockspace)| lockspace.spec.name).collect();
        for lockspace in names {
            for setting in
                [sanlock_manager::Setting::Used(false), sanlock_manager::Setting::UsedByOrphans(false)]
            {
                let mut out = Vec::new();
                let conn = ConnId(u64::MAX);
                self.m.handle(self.now, Event::ConnOpened { conn, ci: 900 }, &mut out);
                let command = Order::SetConfig { lockspace, setting: Some(setting) };
                self.m.handle(self.now, Event::Command { conn, command }, &mut out);
                self.m.handle(self.now, Event::ConnClosed { conn }, &mut out);
                out.retain(|action| {
                    !matches!(
                        action,
                        Action::Reply { conn: ConnId(u64::MAX), .. }
                            | Action::Forget { conn: ConnId(u64::MAX) }
                    )
                });
                for action in out {
                    if let Some(event) = self.take(action) {
                        self.event(event);
                    }
                }
            }
        }
        let orphans =
            self.m.resources().filter(|(_, resource)| resource.list() == ResourceList::Orphan).count();
        let waiting =
            self.m.resources().filter(|(_, resource)| !matches!(resource.work, Work::Retry { .. })).count();
        // Whatever is left is an orphan, or something that is still being given up.
        assert!(orphans <= waiting || waiting == 0);
        assert!(self.m.conns().next().is_none(), "connections whose clients are gone: {:#?}", self.m);
        let conn = ConnId(u64::MAX - 1);
        self.open.insert(conn, Client::default());
        self.event(Event::ConnOpened { conn, ci: 901 });
        self.event(Event::Command { conn, command: Order::Shutdown { force: true } });
        self.close(conn);
    }
}

/// A request as a client might send it, mostly well-formed.
fn request(data: &mut Data<'_>) -> Vec<u8> {
    use sanlock_wire::types::{
        HostEvent, Killpath, Lockspace, Options, Rentry, Resource, ResourceSpec, Rindex,
    };
    let command = match data.byte() {
        common @ 0..=127 => [
            Command::Acquire,
            Command::Release,
            Command::Convert,
            Command::Acquire,
            Command::AddLockspace,
            Command::RemLockspace,
            Command::Register,
            Command::Inquire,
        ]
        .get(usize::from(common % 8))
        .copied()
        .unwrap_or(Command::Version),
        _ => data.pick(Command::ALL).unwrap_or(Command::Version),
    };
    let name =
        |data: &mut Data<'_>, names: &[&str]| sanlock_wire::Name::truncated(data.pick(names).unwrap_or("ls"));
    let disk = sanlock_wire::Disk::new(b"/d", 1 << 20).unwrap_or(sanlock_wire::Disk::EMPTY);
    let spaces = ["ls", "two", "ls", ""];
    let resource = |data: &mut Data<'_>| {
        let mut resource = Resource::new(name(data, &spaces), name(data, &["a", "b", "c", "d", "e", ""]));
        resource.flags = u32::from(data.byte()).into();
        resource.lver = u64::from(data.byte()).into();
        resource.data32 = u32::from(data.byte()).into();
        resource
    };
    let spec = |data: &mut Data<'_>| ResourceSpec::new(resource(data), vec![disk]).ok();
    let lockspace = |data: &mut Data<'_>| {
        let id = [1, 1, 2, 0, 2001].get(data.below(5)).copied().unwrap_or(1);
        Box::new(Lockspace::new(name(data, &spaces), id, disk))
    };
    let mut count = 0;
    let body = match command {
        Command::Acquire => {
            let number = 1 + data.below(3);
            let resources: Vec<ResourceSpec> = (0..number).filter_map(|_| spec(data)).collect();
            count = u32::try_from(resources.len()).unwrap_or(0);
            RequestBody::Acquire { resources, options: Options::new(sanlock_wire::Name::truncated("o")) }
        }
        Command::Release => {
            let number = 1 + data.below(2);
            let resources: Vec<Resource> = (0..number).map(|_| resource(data)).collect();
            count = u32::try_from(resources.len()).unwrap_or(0);
            RequestBody::Release(resources)
        }
        Command::AddLockspace => RequestBody::AddLockspace(lockspace(data)),
        Command::RemLockspace => RequestBody::RemLockspace(lockspace(data)),
        Command::InqLockspace => RequestBody::InqLockspace(lockspace(data)),
        Command::ExamineLockspace => RequestBody::ExamineLockspace(lockspace(data)),
        Command::ExamineResource => RequestBody::ExamineResource(resource(data)),
        Command::SetConfig => RequestBody::SetConfig(lockspace(data)),
        Command::EndEvent => RequestBody::EndEvent(lockspace(data)),
        Command::RegEvent | Command::SetEvent => {
            let lockspace = lockspace(data);
            let event = HostEvent {
                host_id: data.number().into(),
                generation: data.number().into(),
                event: data.number().into(),
                data: 7.into(),
            };
            if command == Command::RegEvent {
                RequestBody::RegEvent { lockspace, event }
            } else {
                RequestBody::SetEvent { lockspace, event }
            }
        }
        Command::Convert => RequestBody::Convert(resource(data)),
        Command::SetLvb => {
            let resource = resource(data);
            let len = 1 + usize::from(data.byte()) * 3;
            RequestBody::SetLvb { resource, lvb: vec![7; len] }
        }
        Command::GetLvb => RequestBody::GetLvb(resource(data)),
        Command::Killpath => RequestBody::Killpath(Box::new(Killpath::new(b"/bin/k", data.piece()))),
        Command::Request => match spec(data) {
            Some(spec) => RequestBody::Request(spec),
            None => RequestBody::Version,
        },
        Command::LookupRindex | Command::CreateResource | Command::DeleteResource | Command::UpdateRindex => {
            let index = Box::new(Rindex::new(name(data, &spaces), disk));
            let entry = Rentry::new(name(data, &["a", "b"]), 0);
            match command {
                Command::LookupRindex => RequestBody::LookupRindex(index, entry),
                Command::CreateResource => RequestBody::CreateResource(index, entry),
                Command::DeleteResource => RequestBody::DeleteResource(index, entry),
                _ => RequestBody::UpdateRindex(index, entry),
            }
        }
        Command::Register => RequestBody::Register,
        Command::Inquire => RequestBody::Inquire,
        Command::Restrict => RequestBody::Restrict,
        Command::Shutdown => RequestBody::Shutdown,
        Command::ShutdownWait => RequestBody::ShutdownWait,
        _ => RequestBody::Version,
    };
    let flags = u32::from(data.byte());
    let target = match data.byte() {
        pid @ 0..=63 => 100 + u32::from(pid % 6),
        _ => u32::MAX,
    };
    let number = match command {
        Command::Acquire | Command::Release => count,
        _ => u32::from(data.byte()),
    };
    let mut payload = Vec::new();
    body.encode(&mut payload);
    // What cannot be put together here is sent as VERSION.
    let command = if matches!(body, RequestBody::Version) { Command::Version } else { command };
    let target = if command == Command::GetLvb { u32::from(data.byte()) } else { target };
    let header = sanlock_wire::Header::request(command, flags, payload.len(), number, target);
    [header.encode().as_slice(), &payload].concat()
}
