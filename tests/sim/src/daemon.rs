//! Our daemon around the production [`Manager`]: its threads, the messages between them, and the carrying out of actions, as in
//! `daemon/`.
//!
//! Threads are front, resources, records, and one for each lockspace. A message takes its time; those from one thread to another
//! arrive in order. A thread that stands still takes nothing in; neither does anything of a daemon that stands still.

use crate::clients::Client;
use crate::clock::{Micros, SECOND};
use crate::fault::Fault;
use crate::host::{Filed, JobKey};
use crate::layout;
use crate::link::{Call, Link, Order};
use crate::notes::Setting;
use crate::requests::Errand;
use crate::sabotage::Sabotage;
use crate::table::Table;
use crate::tasks::Task;
use crate::worker::Worker;
use crate::world::{Event, World};
use sanlock_lease::delta::{Event as HostEvent, JoinError};
use sanlock_lease::hosts::HostTable;
use sanlock_lease::name::Name;
use sanlock_lease::record::{Bitmap, Wish};
use sanlock_lease::timing::{IoTimeout, MonoTime, WatchdogFire};
use sanlock_manager::{
    ConnId, Event as Told, LeaseWrites, LockspaceId, Manager, RejoinRecord, Request, Settings, TaskId,
};
use sanlock_wdmd::decide::SourceId;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

/// Renewals remembered.
const HISTORY: usize = 4;

/// How long a daemon that has ended may have a write in flight before somebody resets its host.
const HUNG_SECS: u64 = 900;
/// Last messages remembered before those that have arrived are forgotten.
const SENDERS: usize = 32;

/// A thread of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Thread {
    Front,
    Resources,
    Records,
    Watchdog,
    /// All that ask for leases of others, or look whether others ask.
    Asking,
    Lockspace(u64),
}

/// Where a message comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Source {
    Thread(Thread),
    Conn(ConnId),
    /// The kernel, about a process.
    Pid(i32),
    /// wdmd, on a connection.
    Wdmd(SourceId),
}

/// From whom to whom, as one number: compared with every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Way(u128);

impl Way {
    fn new(from: Source, to: Thread) -> Self {
        let thread = |thread: Thread| match thread {
            Thread::Front => (0, 0),
            Thread::Resources => (1, 0),
            Thread::Records => (2, 0),
            Thread::Watchdog => (3, 0),
            Thread::Lockspace(ls) => (4, ls),
            Thread::Asking => (8, 0),
        };
        let (kind, number) = match from {
            Source::Thread(from) => thread(from),
            Source::Conn(conn) => (5, conn.0),
            Source::Pid(pid) => (6, u64::from(pid.unsigned_abs())),
            Source::Wdmd(conn) => (7, u64::from(conn)),
        };
        // Ids count from 1: none comes near to 56 bits.
        let end = |(kind, number): (u64, u64)| u128::from(kind << 56 | number);
        Self(end((kind, number)) << 64 | end(thread(to)))
    }
}

/// What one thread tells another.
#[derive(Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Message {
    Told(Box<Told>),
    JoinFailed { ls: LockspaceId, error: Box<JoinError> },
    Hosts { ls: LockspaceId, table: Box<HostTable> },
    Changed,
    Leave { release: bool },
    Start(Box<Task>),
    ClientGone(TaskId),
    Outgoing { event: HostEvent, bitmap: Box<Bitmap> },
    Ask { conn: ConnId, resource: u8, name: Name, wish: Wish },
    SetEvent { conn: ConnId, setting: Setting },
    Save { ls: LockspaceId, serial: u64, disk: u8, record: Box<RejoinRecord> },
    Drop { disk: u8, host_id: u64 },
    Wd(Order),
    WdReply { conn: SourceId, message: Box<sanlock_wdmd::protocol::Message> },
    WdClosed { conn: SourceId },
}

impl Message {
    pub(crate) fn told(told: Told) -> Self {
        Self::Told(Box::new(told))
    }
}

/// A message on its way.
#[derive(Debug)]
pub struct Letter {
    from: Source,
    to: Thread,
    message: Message,
}

/// One life of a daemon.
#[derive(Debug)]
pub struct Daemon {
    /// Which.
    pub(crate) life: u32,
    pub(crate) manager: Manager,
    pub(crate) workers: Table<u64, Worker>,
    pub(crate) tasks: Table<u64, Rc<Task>>,
    /// Connections, by number, until the manager forgets them.
    pub(crate) clients: Table<u64, Client>,
    /// Connections to wdmd, by lockspace, and conversations on them.
    pub(crate) links: Table<u64, Link>,
    pub(crate) calls: Table<SourceId, Call>,
    /// The disk of each lockspace there was ever an order about.
    pub(crate) watched: Table<u64, (u8, u64)>,
    /// What was seen of the hosts in earlier memberships.
    pub(crate) tables: Table<u8, HostTable>,
    /// What threads that ask, or look, are about.
    pub(crate) errands: Table<u64, Errand>,
    /// What the look that has ended in a lockspace has found: the front hears of each by itself, before it hears of the end.
    pub(crate) requests_found: Table<u64, Vec<Request>>,
    pub(crate) last_errand: u64,
    /// Connections on which somebody listens to host events, or has asked to, and of which disk's lockspace.
    pub(crate) listeners: Table<u64, u8>,
    pub(crate) shutting_down: bool,
    pub(crate) next_age_check: MonoTime,
    next_conn: u64,
    /// What the front has still to take in; nothing: a tick.
    pub(crate) events: VecDeque<Option<Box<Told>>>,
    /// Threads that stand still.
    pub(crate) stalled: BTreeSet<Thread>,
    /// All of them do.
    pub(crate) frozen: bool,
    /// Since when, the last time.
    pub(crate) frozen_since: Micros,
    /// On their way, or waiting for a thread that stands still.
    letters: Table<u64, Letter>,
    waiting: Vec<u64>,
    next_letter: u64,
    last_arrival: Table<Way, Micros>,
    /// The last letter that arrived.
    arrived: Table<Way, u64>,
    /// Completions and timeouts that wait for a thread that stands still.
    backlog: Vec<(u64, bool)>,
}

impl Daemon {
    fn new(life: u32, io_timeout: IoTimeout, fire: WatchdogFire, grace_secs: u64) -> Self {
        let settings = Settings {
            io_timeout,
            fire,
            watchdog: true,
            kill_grace_secs: grace_secs,
            history_size: HISTORY,
            quiet_fail: true,
            set_bitmap_secs: None,
        };
        Self {
            life,
            manager: Manager::new(settings),
            workers: Table::new(),
            tasks: Table::new(),
            clients: Table::new(),
            links: Table::new(),
            calls: Table::new(),
            watched: Table::new(),
            tables: Table::new(),
            errands: Table::new(),
            requests_found: Table::new(),
            last_errand: 0,
            listeners: Table::new(),
            shutting_down: false,
            next_age_check: MonoTime::default(),
            next_conn: 0,
            events: VecDeque::new(),
            stalled: BTreeSet::new(),
            frozen: false,
            frozen_since: 0,
            letters: Table::new(),
            waiting: Vec::new(),
            next_letter: 0,
            last_arrival: Table::new(),
            arrived: Table::new(),
            backlog: Vec::new(),
        }
    }

    /// What is on its way between its threads arrives later.
    pub(crate) fn arrivals_later(&mut self, now: Micros, later: impl Fn(Micros) -> Micros) {
        for last in self.last_arrival.values_mut().filter(|last| **last > now) {
            *last = later(*last);
        }
    }

    /// Whether this thread reacts.
    pub(crate) fn runs(&self, thread: Thread) -> bool {
        !self.frozen && !self.stalled.contains(&thread)
    }

    /// The number the next connection gets.
    pub(crate) fn new_conn(&mut self) -> (ConnId, u32) {
        self.next_conn += 1;
        (ConnId(self.next_conn), u32::try_from(self.next_conn).unwrap_or(0))
    }

    /// Whether this is the next letter on its way, or letters overtake each other.
    fn arrives_in_order(&mut self, id: u64) -> bool {
        let Some(way) = self.letters.get(&id).map(|letter| Way::new(letter.from, letter.to)) else {
            return true;
        };
        if self.arrived.len() >= SENDERS {
            self.arrived.clear();
        }
        self.arrived.insert(way, id).is_none_or(|before| before < id)
    }

    /// Keeps a completion, or a timeout, until its thread goes on.
    pub(crate) fn keep(&mut self, io: u64, deadline: bool) {
        self.backlog.push((io, deadline));
    }

    /// Whether an acquire, release or retract of a resource on this disk runs.
    pub(crate) fn works_on(&self, disk: u8) -> bool {
        self.tasks.values().filter_map(|t| t.resource()).any(|r| layout::disk_of(r) == disk)
    }

    /// What the manager is working on in the lockspace of this disk.
    pub(crate) fn lockspace_on(&self, disk: u8) -> Option<LockspaceId> {
        self.manager.lockspaces().find(|(_, ls)| layout::disk_of_spec(&ls.spec) == disk).map(|(id, _)| id)
    }
}

/// The thread a machine runs on.
pub(crate) fn thread_of(key: JobKey) -> Thread {
    match key {
        JobKey::Join(ls) | JobKey::Renewal(ls) | JobKey::Scan(ls) | JobKey::Leave(ls) => {
            Thread::Lockspace(ls)
        }
        JobKey::Task(_) => Thread::Resources,
        JobKey::Errand(_) => Thread::Asking,
        JobKey::Peer(_) => Thread::Front,
    }
}

impl World {
    /// A daemon is started.
    pub(crate) fn start_daemon(&mut self, host: usize) {
        if !self.hosts[host].up || self.hosts[host].daemon.is_some() {
            return;
        }
        self.new_identity(host);
        self.lives += 1;
        let (life, grace) = (self.lives, self.settings.grace_secs);
        let h = &mut self.hosts[host];
        h.daemon = Some(Daemon::new(life, h.io_timeout, h.fire, grace));
        self.say(|w| format!("{:?} daemon {life} starts", w.hosts[host].id));
        self.at(self.now + 1, Event::FrontTick { host, life });
    }

    /// Which daemon runs, 0 if none does.
    pub(crate) fn life_of(&self, host: usize) -> u32 {
        self.hosts[host].daemon.as_ref().map_or(0, |d| d.life)
    }

    pub(crate) fn daemon(&mut self, host: usize) -> Option<&mut Daemon> {
        self.hosts[host].daemon.as_mut()
    }

    /// Whether this thread of the host's daemon reacts.
    pub(crate) fn runs(&self, host: usize, thread: Thread) -> bool {
        let h = &self.hosts[host];
        h.up && (h.is_reference() || h.daemon.as_ref().is_some_and(|d| d.runs(thread)))
    }

    /// Sends a message to a thread of the daemon.
    pub(crate) fn send(&mut self, host: usize, from: Source, to: Thread, message: Message) {
        let delay = if self.strikes(Fault::SlowMessage) {
            self.dice.spread(20_000, SECOND)
        } else if self.dice.per_mille(100) {
            self.dice.spread(500, 20_000)
        } else {
            self.dice.between(5, 500)
        };
        let now = self.now;
        let Some(daemon) = self.daemon(host) else { return };
        let way = Way::new(from, to);
        let before = daemon.last_arrival.get(&way).copied().unwrap_or(0);
        let arrival = (now + delay).max(before);
        if daemon.last_arrival.len() >= SENDERS {
            daemon.last_arrival.retain(|_, arrival| *arrival > now);
        }
        daemon.last_arrival.insert(way, arrival);
        let (id, life) = (daemon.next_letter, daemon.life);
        daemon.next_letter += 1;
        daemon.letters.insert(id, Letter { from, to, message });
        self.at(arrival, Event::Letter { host, life, id });
    }

    /// From a thread to the front.
    pub(crate) fn report(&mut self, host: usize, from: Thread, told: Told) {
        self.send(host, Source::Thread(from), Thread::Front, Message::told(told));
    }

    pub(crate) fn letter(&mut self, host: usize, id: u64) {
        let Some(daemon) = self.daemon(host) else { return };
        let Some(to) = daemon.letters.get(&id).map(|l| l.to) else { return };
        assert!(
            daemon.stalled.contains(&to) || daemon.frozen || daemon.arrives_in_order(id),
            "letters overtake each other"
        );
        // Behind one that already waits for its thread is where it belongs.
        if !daemon.runs(to) {
            return daemon.waiting.push(id);
        }
        if let Some(letter) = daemon.letters.remove(&id) {
            self.read_letter(host, letter);
        }
    }

    fn read_letter(&mut self, host: usize, letter: Letter) {
        match (letter.to, letter.message) {
            (Thread::Front, Message::Told(told)) => self.front_event(host, Some(told)),
            (Thread::Front, Message::JoinFailed { ls, error }) => {
                self.front_event(host, Some(Box::new(Told::JoinDone { ls, result: Err(*error) })));
                self.front_event(host, Some(Box::new(Told::Left { ls, writes: LeaseWrites::Ended })));
            }
            (Thread::Front, Message::Hosts { ls, table }) => {
                let Some(daemon) = self.daemon(host) else { return };
                if let Some(worker) = daemon.workers.get(&ls.0) {
                    daemon.tables.insert(worker.disk, *table);
                }
            }
            (Thread::Front, Message::Ask { conn, resource, name, wish }) => {
                self.ask_order(host, conn, resource, name, wish);
            }
            (Thread::Front, Message::SetEvent { conn, setting }) => self.set_event_order(host, conn, setting),
            (Thread::Resources, message) => self.resource_order(host, message),
            (Thread::Lockspace(ls), message) => self.worker_order(host, ls, message),
            (Thread::Records, Message::Save { ls, serial, disk, record }) => {
                // A record that cannot be written is removed.
                let key = (disk, layout::host_id(record.spec.host_id));
                if !self.strikes(Fault::RecordUnsaved) {
                    let (boot, life) = (self.hosts[host].epoch, self.life_of(host));
                    self.hosts[host].records.insert(key, Filed { boot, life, record: *record });
                } else {
                    self.hosts[host].records.remove(&key);
                }
                self.report(host, Thread::Records, Told::RejoinSaved { ls, serial });
            }
            (Thread::Records, Message::Drop { disk, host_id }) => {
                self.hosts[host].records.remove(&(disk, layout::host_id(host_id)));
            }
            (Thread::Watchdog, Message::Wd(order)) => self.link_order(host, order),
            (Thread::Watchdog, Message::WdReply { conn, message }) => self.link_reply(host, conn, *message),
            (Thread::Watchdog, Message::WdClosed { conn }) => self.link_closed(host, conn),
            (Thread::Front | Thread::Records | Thread::Watchdog | Thread::Asking, _) => {}
        }
    }

    /// The daemon ends: by itself, or because it crashes. Its processes go on, and what it armed stays armed.
    pub(crate) fn end_daemon(&mut self, host: usize, how: &str) {
        let Some(daemon) = self.hosts[host].daemon.take() else { return };
        self.say(|w| format!("{:?} daemon {} {how}", w.hosts[host].id, daemon.life));
        self.hosts[host].jobs.clear();
        // Operations whose completion a daemon that stood still has not seen are over all the same.
        for (io, _) in daemon.backlog.iter().filter(|(_, deadline)| !deadline) {
            self.ios.remove(io);
        }
        let id = self.hosts[host].id;
        self.checks.daemon_ended(id);
        self.wd_daemon_gone(host, daemon.life);
        self.hung_up_by_daemon(host);
        self.hosts[host].ended = self.now;
        let after = self.dice.spread(SECOND / 10, 100 * SECOND);
        let epoch = self.hosts[host].epoch;
        self.at(self.now + after, Event::Restart { host, epoch });
    }

    /// Not before the writes of the old one have ended: a process is not gone before its I/O is.
    pub(crate) fn restart(&mut self, host: usize) {
        if self.hosts[host].daemon.is_some() || !self.hosts[host].up {
            return;
        }
        if self.writes_in_flight(host) > 0 {
            let epoch = self.hosts[host].epoch;
            if self.now.saturating_sub(self.hosts[host].ended) > HUNG_SECS * SECOND {
                self.say(|w| {
                    format!("{:?} is reset: its daemon does not get rid of a write", w.hosts[host].id)
                });
                return self.reset(host);
            }
            return self.at(self.now + SECOND, Event::Restart { host, epoch });
        }
        self.checks.marks.restarts += 1;
        self.start_daemon(host);
    }

    /// Threads stand still: one, or all.
    pub(crate) fn stall(&mut self, host: usize, thread: Option<Thread>, long: Micros) {
        let now = self.now;
        let Some(daemon) = self.daemon(host) else { return };
        match thread {
            None if daemon.frozen => return,
            None => (daemon.frozen, daemon.frozen_since) = (true, now),
            Some(thread) if !daemon.stalled.insert(thread) => return,
            Some(_) => {}
        }
        let life = daemon.life;
        self.say(|w| format!("{:?} {thread:?} stands still for {long} us", w.hosts[host].id));
        self.excuse(host);
        self.at(self.now + long, Event::Resume { host, life, thread });
    }

    pub(crate) fn resume(&mut self, host: usize, thread: Option<Thread>) {
        let Some(daemon) = self.daemon(host) else { return };
        let moved = match thread {
            None => std::mem::take(&mut daemon.frozen),
            Some(thread) => daemon.stalled.remove(&thread),
        };
        if !moved {
            return;
        }
        self.say(|w| format!("{:?} {thread:?} goes on", w.hosts[host].id));
        self.excuse(host);
        let mut order = [0, 1, 2];
        for i in (1..order.len()).rev() {
            let j = usize::try_from(self.dice.between(0, i as u64)).unwrap_or(0);
            order.swap(i, j);
        }
        for what in order {
            match what {
                0 => self.resume_ios(host, thread.is_none()),
                1 => self.resume_letters(host),
                _ => self.resume_timers(host),
            }
        }
    }

    fn resume_ios(&mut self, host: usize, all: bool) {
        let completions_first = self.dice.per_mille(300);
        let Some(daemon) = self.daemon(host) else { return };
        let (mut backlog, since) = (std::mem::take(&mut daemon.backlog), all.then_some(daemon.frozen_since));
        if completions_first {
            backlog.sort_by_key(|(_, deadline)| *deadline);
        }
        self.hosts[host].going_on = since;
        for (io, deadline) in backlog {
            self.reported(io, deadline);
        }
        self.hosts[host].going_on = None;
    }

    /// What the clock shows whoever takes in what has happened. It is read after what is taken in: what was seen on a disk, and credited to an
    /// earlier time, makes its owner look silent for longer than it is.
    pub(crate) fn own_time(&self, host: usize) -> MonoTime {
        let h = &self.hosts[host];
        let before = h.going_on.filter(|_| self.sabotaged(Sabotage::ClockBeforeReads));
        h.clock.at(before.unwrap_or(self.now))
    }

    /// Sources in any order, what one of them sent in its order.
    fn resume_letters(&mut self, host: usize) {
        let salt = self.dice.any() | 1;
        let Some(daemon) = self.daemon(host) else { return };
        let mut waiting = std::mem::take(&mut daemon.waiting);
        let rank = |id: &u64| {
            let from = daemon.letters.get(id).map(|l| l.from);
            let number = match from {
                Some(Source::Thread(Thread::Lockspace(ls))) => ls,
                Some(Source::Thread(thread)) => 1000 + u64::from(thread == Thread::Resources),
                Some(Source::Conn(conn)) => 2000 + conn.0,
                Some(Source::Wdmd(conn)) => 4000 + u64::from(conn),
                Some(Source::Pid(pid)) => 3000 + u64::try_from(pid).unwrap_or(0),
                None => 0,
            };
            number.wrapping_mul(salt) >> 7
        };
        waiting.sort_by_key(|id| (rank(id), *id));
        for id in waiting {
            self.letter(host, id);
        }
    }

    fn resume_timers(&mut self, host: usize) {
        if self.runs(host, Thread::Front) && self.dice.per_mille(500) {
            self.front_event(host, None);
        }
        let keys: Vec<JobKey> = self.hosts[host].jobs.keys().copied().collect();
        for key in keys {
            let busy = self.hosts[host].jobs.get(&key).is_some_and(|j| !j.done);
            if busy && self.runs(host, thread_of(key)) {
                self.deliver(host, key, sanlock_lease::machine::Input::Tick);
            }
        }
        let workers: Vec<u64> =
            self.daemon(host).map(|d| d.workers.keys().copied().collect()).unwrap_or_default();
        for ls in workers {
            self.worker_look(host, ls);
        }
    }

    /// What follows from the daemon's standing still is not the fault of anybody else.
    fn excuse(&mut self, host: usize) {
        self.hosts[host].excused = self.now;
    }
}
