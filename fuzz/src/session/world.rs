//! Everything around the manager: what it may be told next follows from what it has asked for.

use sanlock_lease::name::Name;
use sanlock_lease::paxos::acquire::Mode;
use sanlock_lease::paxos::{Held, PaxosConfig};
use sanlock_lease::text::LockspaceSpec;
use sanlock_lease::timing::{IoTimeout, MonoTime, WatchdogFire};
use sanlock_manager::{
    Action, Command as Order, ConnId, DRAIN_SECS, Event, LOCKSPACES_MAX, LockspaceId, Manager, ResourceId,
    Settings, TOKENS_MAX, TaskId, Work,
};
use sanlock_wire::flags::RestrictFlags;
use sanlock_wire::{Command, Reply, Request, RequestBody, RequestDecoder};
use std::collections::{BTreeMap, BTreeSet};

use super::front::{self, Way};
use super::requests::request;
use crate::convert;
use crate::data::Data;

/// Clients at a time.
const CLIENTS_MAX: usize = 12;
/// Renewals remembered.
const HISTORY: usize = 3;
/// Requests of one piece of bytes.
const REQUESTS_PER_PIECE: usize = 64;

type Key = (Name, Name);

/// One connection.
#[derive(Default)]
pub(super) struct Client {
    decoder: RequestDecoder,
    /// The request being worked on.
    pending: Option<Request>,
    pub(super) pid: Option<i32>,
    pub(super) pid_gone: bool,
    /// Nothing is read any more.
    deaf: bool,
    muted: bool,
    ci: u32,
}

#[derive(Clone, Copy)]
pub(super) struct Index {
    pub(super) ls: LockspaceId,
    pub(super) conn: ConnId,
    pub(super) lease: bool,
    pub(super) answered: bool,
}

pub(super) enum Machine {
    Acquire {
        ls: LockspaceId,
        generation: u64,
        shared: bool,
    },
    Convert(Box<Held>),
    /// Takes back what a conversion left; the shared hold stays.
    Erase(Box<Held>),
    Release {
        value: bool,
    },
}

/// See the module.
pub(super) struct World {
    pub(super) m: Manager,
    pub(super) now: MonoTime,
    pub(super) watchdog: bool,
    pub(super) next_conn: u64,
    pub(super) open: BTreeMap<ConnId, Client>,
    pub(super) closed: BTreeMap<ConnId, Client>,
    pub(super) joining: BTreeSet<LockspaceId>,
    pub(super) joined: BTreeMap<LockspaceId, u64>,
    /// Since when.
    pub(super) gone: BTreeMap<LockspaceId, MonoTime>,
    pub(super) leaving: BTreeSet<LockspaceId>,
    /// Left with a write to the host_id lease outstanding.
    pub(super) late: BTreeMap<LockspaceId, LockspaceSpec>,
    pub(super) machines: BTreeMap<TaskId, Machine>,
    pub(super) unsettled: BTreeSet<TaskId>,
    pub(super) names: BTreeMap<TaskId, Key>,
    /// In which life of its lockspace each machine was started.
    pub(super) homes: BTreeMap<TaskId, LockspaceId>,
    /// Lockspaces given up while something could still be written in their name.
    pub(super) outlived: BTreeSet<LockspaceId>,
    /// Lockspaces whose newest rejoin record says so.
    pub(super) noted: BTreeSet<LockspaceId>,
    /// Leases that a machine acquired and that nothing gave up since, with the lockspace they were acquired in.
    pub(super) owned: BTreeMap<Key, LockspaceId>,
    pub(super) saves: Vec<(LockspaceId, u64)>,
    /// What was joined, and those of them that were left with their host id unreleased.
    specs: BTreeMap<LockspaceId, LockspaceSpec>,
    unreleased: BTreeSet<LockspaceId>,
    pub(super) indexes: BTreeMap<TaskId, Index>,
    pub(super) storage: BTreeSet<ConnId>,
    pub(super) checks: BTreeSet<LockspaceId>,
    pub(super) arms: BTreeSet<LockspaceId>,
    pub(super) armed: BTreeSet<LockspaceId>,
    pub(super) lost: BTreeSet<LockspaceId>,
    pub(super) looking: BTreeMap<LockspaceId, Vec<ResourceId>>,
    pub(super) generation: u64,
    pub(super) exited: bool,
    pub(super) calm: bool,
}

pub(super) fn nth<T: Copy>(mut items: impl ExactSizeIterator<Item = T>, pick: usize) -> Option<T> {
    let count = items.len();
    if count == 0 { None } else { items.nth(pick % count) }
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
            gone: BTreeMap::new(),
            leaving: BTreeSet::new(),
            late: BTreeMap::new(),
            machines: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            names: BTreeMap::new(),
            homes: BTreeMap::new(),
            outlived: BTreeSet::new(),
            noted: BTreeSet::new(),
            owned: BTreeMap::new(),
            saves: Vec::new(),
            specs: BTreeMap::new(),
            unreleased: BTreeSet::new(),
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

    pub(super) fn close(&mut self, conn: ConnId) {
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
                front::check_reply(&header, &reply, false);
                if plain && header.command().is_some_and(Command::closes_plain_connection) {
                    self.close(conn);
                }
            }
            Way::Storage => {
                client.pending = Some(request);
                self.storage.insert(conn);
            }
            Way::Order(Order::RegEvent { .. }) if !plain => {
                front::check_reply(&header, &Reply::result(&header, sanlock_wire::code::EINVAL), false);
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
    pub(super) fn answered(&mut self, conn: ConnId) -> Option<Request> {
        let client = match self.open.get_mut(&conn) {
            Some(client) => client,
            None => self.closed.get_mut(&conn)?,
        };
        let request = client.pending.take();
        assert!(request.is_some(), "one answer for each request");
        request
    }

    pub(super) fn event(&mut self, event: Event) {
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
        assert!(!self.gone.contains_key(&ls), "nothing starts in a dead lockspace");
        assert_eq!(self.joined.get(&ls), Some(&config.generation), "in the generation that is held");
        for other in self.machines.keys().chain(&self.unsettled) {
            assert_ne!(
                self.names.get(other),
                Some(&key),
                "nothing starts while something may still be written"
            );
        }
        self.names.insert(task, key);
        self.homes.insert(task, ls);
        self.machines.insert(task, machine);
    }

    /// Whether a machine runs, or what it wrote may still land.
    fn writes(&self, task: TaskId) -> bool {
        self.machines.contains_key(&task) || self.unsettled.contains(&task)
    }

    /// A lockspace is left. What may still be written in its name then is given up only without a watchdog, and after the time that writes
    /// have to end; the host id stays unreleased, and the record tells of it to whoever joins next.
    ///
    /// A write of an earlier life of the lockspace, given up in this way, does not count in the next one: that one has a newer generation,
    /// so its host id speaks no more for what the earlier one held, and freeing it changes nothing.
    fn left_behind(&mut self, ls: LockspaceId, release: bool) {
        if !release {
            self.unreleased.insert(ls);
        }
        let busy = self.homes.iter().any(|(task, home)| *home == ls && self.writes(*task));
        let indexed = self.indexes.values().any(|index| index.ls == ls && index.lease);
        if !busy && !indexed {
            return;
        }
        assert!(!release, "nothing of it may be written any more");
        assert!(!self.watchdog, "the watchdog covers what may still be written, as long as that takes");
        let gone = self.gone.get(&ls).map(|since| self.now.secs_since(*since));
        assert!(gone >= Some(DRAIN_SECS), "writes have their time to end: {gone:?}");
        assert!(self.noted.contains(&ls), "the rejoin record tells of what may still be written");
        self.outlived.insert(ls);
    }

    /// The daemon ends. All lockspaces are left; a resource is there only if something may still reach it that was given up with its
    /// lockspace: for that nobody waits any longer than the lockspace did (decision 8).
    fn check_exit(&self) {
        assert!(self.m.lockspaces().next().is_none(), "a lockspace is there: {:#?}", self.m);
        for (_, resource) in self.m.resources() {
            let task = match resource.work {
                Work::Releasing { task } | Work::Settling { task } => Some(task),
                Work::Acquiring { .. } | Work::Held { .. } | Work::Retry { .. } => None,
            };
            let given_up = self.outlived.contains(&resource.ls) && task.is_some_and(|task| self.writes(task));
            assert!(given_up, "a resource is there: {:#?}", self.m);
        }
    }

    /// Carries an action out, or remembers it; what has to be told at once.
    pub(super) fn take(&mut self, action: Action) -> Option<Event> {
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
            Action::Join { ls, spec, .. } => {
                let same = |late: &LockspaceSpec| late.name == spec.name && late.host_id == spec.host_id;
                assert!(!self.late.values().any(same), "a write of ours may land on its lease");
                let unsaved = |of: &LockspaceId| self.saves.iter().any(|(saved, _)| saved == of);
                let unwritten = |of: &LockspaceId| unsaved(of) && self.specs.get(of).is_some_and(same);
                assert!(
                    !self.unreleased.iter().any(unwritten),
                    "the record of its earlier life is written before"
                );
                self.specs.insert(ls, spec);
                assert!(self.joining.insert(ls), "joined once");
            }
            Action::Gone { ls } => drop(self.gone.entry(ls).or_insert(self.now)),
            Action::Leave { ls, release } => {
                assert!(self.leaving.insert(ls), "left once");
                assert!(!self.armed.contains(&ls) && !self.arms.contains(&ls), "disarmed before");
                self.left_behind(ls, release);
            }
            Action::StartAcquire { task, ls, config, options, .. } => {
                let shared = options.mode == Mode::ShortHold;
                self.start(task, ls, &config, Machine::Acquire { ls, generation: config.generation, shared });
            }
            Action::StartConvert { task, ls, config, held, .. } => {
                self.start(task, ls, &config, Machine::Convert(Box::new(held)));
            }
            Action::StartErase { task, ls, config, held, .. } => {
                assert!(held.is_shared(), "only beside a shared hold");
                self.start(task, ls, &config, Machine::Erase(Box::new(held)));
            }
            Action::StartRelease { task, ls, config, value, .. }
            | Action::StartRetract { task, ls, config, value, .. } => {
                self.owned.remove(&(config.lockspace, config.resource));
                self.start(task, ls, &config, Machine::Release { value: value.is_some() });
            }
            Action::StartIndex { task, conn, ls, .. } => {
                assert!(!self.gone.contains_key(&ls), "nothing starts in a dead lockspace");
                let client = self.open.get(&conn).or_else(|| self.closed.get(&conn));
                let Some(request) = client.and_then(|client| client.pending.as_ref()) else {
                    // Its client has gone while the watchdog was being armed.
                    return Some(Event::IndexDone { task });
                };
                let lease = !matches!(request.body, RequestBody::LookupRindex(..));
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
            Action::SaveRejoin { ls, serial, record } => {
                if record.outlived {
                    self.noted.insert(ls);
                } else {
                    self.noted.remove(&ls);
                }
                self.saves.push((ls, serial));
            }
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
                self.check_exit();
                self.exited = true;
            }
            Action::RunOnFail { ls, .. } => assert!(self.gone.contains_key(&ls)),
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
                assert!(
                    ls.is_some_and(|ls| !self.gone.contains_key(ls)),
                    "{key:?} is granted without a machine"
                );
            }
        }
    }
}
