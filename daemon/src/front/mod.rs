//! The front: one thread that accepts, reads requests, answers what needs no disk, watches processes, and ticks.
//!
//! It never blocks on a client, a disk, a log or another thread; the ages of lockspaces are looked at here, so nothing a client
//! does or leaves undone may delay a tick. It is the only owner of the [`Manager`]: every event goes through it, in the order
//! the front takes them, and the actions that come back are carried out before the next event.

mod asking;
mod awake;
mod conn;
mod connections;
pub(crate) mod convert;
mod counters;
mod formats;
mod looking;
mod pace;
mod perform;
mod poller;
mod programs;
mod requests;
mod signals;
mod slots;
mod status;
mod streams;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, poll};
use sanlock_blockio::closes_wait;
use sanlock_blockio::drive::monotonic_now;
use sanlock_lease::hosts::HostTable;
use sanlock_lease::text::LockspaceSpec;
use sanlock_lease::timing::{IoTimeout, MonoTime};
use sanlock_manager::{Action, ConnId, Event, LeaseWrites, LockspaceId, Manager, Settings};
use sanlock_sys::credentials::{GroupId, UserId};
use sanlock_wdmd::client::SOCKET_PATH;
use sanlock_wire::Reply;
use sanlock_wire::counters::Counters;

use crate::global::Global;
use crate::helper::{Helper, Purpose};
use crate::lockspace::{self, Lockspace};
use crate::mailbox::{self, Mailbox, Sender};
use crate::records;
use crate::resources::Resources;
use crate::tools::{IndexJob, Tools};
use crate::watchdog::{self, Watchdog};
use awake::Awake;
use connections::{Refusals, TurnedAway};
use poller::{EVENTS, Interest, Order, Poller, Ready, Token};
use signals::Signals;
pub(crate) use slots::CONNECTIONS_MAX;
use slots::Slots;

/// How long the end of the daemon waits for records that are to be removed.
const RECORDS_FINISH: Duration = Duration::from_secs(2);
/// How long the end of the daemon waits until wdmd knows that nothing is expected of it any more.
const WATCHDOG_FINISH: Duration = Duration::from_secs(20);

/// How long the end of the daemon waits for the helper to begin with on_fail programs, in milliseconds.
const PROGRAMS_FINISH_MS: u64 = 3000;

/// By when who is stuck is looked for, however many say something all the time.
const LOOK_LATEST_MS: u64 = 5_000;

/// Host tables kept of lockspaces that were left.
const TABLES_MAX: usize = 64;
/// For how many seconds a program is wanted that tells of a failed lockspace which is gone by now: it ends soon if all its processes do, and
/// whoever is told of it wants to know all the same. Later, it may have been joined again.
const ON_FAIL_WANTED: u64 = 60;

/// What other threads tell the front.
pub(crate) enum Message {
    /// For the manager.
    Event(Event),
    /// From a lockspace thread.
    Lockspace(lockspace::Report),
    /// A tool has the reply to a connection's command.
    Answer(ConnId, Box<Reply>),
    /// The same, of one that the manager knows only as a job.
    JobDone(ConnId, Box<Reply>),
}

/// Whom the daemon is to run as. An unprivileged one does not change to that, but shows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Account {
    pub(crate) user: UserId,
    pub(crate) group: GroupId,
}

/// See the module.
pub(crate) struct Front {
    global: Arc<Global>,
    account: Account,
    manager: Manager,
    poller: Poller,
    listener: UnixListener,
    /// Accepting failed for want of descriptors; tried again at the next tick.
    deaf: bool,
    inbox: Mailbox<Message>,
    outbox: Sender<Message>,
    signals: Signals,
    awake: Awake,
    helper: Helper,
    slots: Slots,
    refusals: Refusals,
    turned_away: TurnedAway,
    /// Connections that hung up while a request of theirs was worked on and have more to be read.
    runnable: VecDeque<ConnId>,
    lockspaces: HashMap<LockspaceId, Lockspace>,
    tables: HashMap<(LockspaceSpec, IoTimeout), HostTable>,
    resources: Resources,
    tools: Tools,
    records: records::Writer,
    watchdog: Watchdog,
    /// Commands on indexes that the manager has not let begin yet.
    indexes: HashMap<ConnId, IndexJob>,
    /// Connections that were closed while a command of theirs worked on disks, until it has ended.
    abandoned: HashSet<ConnId>,
    counters: Counters,
    next_conn: u64,
    next_age_check: MonoTime,
    events: VecDeque<Event>,
    /// Whether actions are being carried out.
    acting: bool,
    exit: bool,
    /// Who is answered last of all ([`Front::has_ended`]).
    wait_for_end: Vec<ConnId>,
}

impl Front {
    /// Starts the threads the front works with. Serving begins with [`Front::run`].
    ///
    /// # Errors
    /// No thread or descriptor is to be had.
    pub(crate) fn new(
        global: Arc<Global>,
        account: Account,
        listener: UnixListener,
        helper: Helper,
        connections: u32,
    ) -> io::Result<Self> {
        let (outbox, inbox) = mailbox::mailbox()?;
        let (poller, signals, awake) = (Poller::new()?, Signals::install()?, Awake::new()?);
        listener.set_nonblocking(true)?;
        poller.add(listener.as_fd(), Token::Listener, Interest::READ)?;
        poller.add(inbox.fd(), Token::Mailbox, Interest::READ)?;
        poller.add(signals.fd(), Token::Signal, Interest::READ)?;
        poller.add(awake.fd(), Token::Awake, Interest::READ)?;
        poller.add(helper.fd(), Token::Helper, Interest::READ)?;
        let settings = Settings {
            io_timeout: global.config.io_timeout,
            fire: global.config.fire,
            set_bitmap_secs: global.config.set_bitmap_seconds.map(u64::from),
            watchdog: global.config.use_watchdog != 0,
            kill_grace_secs: u64::from(global.config.kill_grace_seconds()),
            history_size: usize::try_from(global.config.renewal_history_size).unwrap_or(0),
            quiet_fail: global.config.quiet_fail != 0,
        };
        let (events, recorded) = (outbox.clone(), outbox.clone());
        let resources =
            Resources::start(Arc::clone(&global), move |event| events.send(Message::Event(event)))?;
        let records = records::Writer::start(Arc::clone(&global), move |ls, serial| {
            recorded.send(Message::Event(Event::RejoinSaved { ls, serial }));
        })?;
        let watched = outbox.clone();
        let for_it = Arc::clone(&global);
        // Who tells wdmd of renewals is as much in a hurry as who makes them.
        let prepare = move || for_it.raise_priority(&for_it.log);
        let watchdog = Watchdog::start(SOCKET_PATH.into(), global.log.clone(), prepare, move |event| {
            watched.send(Message::Event(event));
        })?;
        let threads = usize::try_from(global.config.max_worker_threads).unwrap_or(1);
        let tools = Tools::new(Arc::clone(&global), threads);
        programs::look(&global);
        Ok(Self {
            manager: Manager::new(settings),
            poller,
            listener,
            deaf: false,
            inbox,
            outbox,
            signals,
            awake,
            helper,
            slots: Slots::new(connections),
            refusals: Refusals::default(),
            turned_away: TurnedAway::beside(connections),
            runnable: VecDeque::new(),
            lockspaces: HashMap::new(),
            tables: HashMap::new(),
            resources,
            tools,
            records,
            watchdog,
            indexes: HashMap::new(),
            abandoned: HashSet::new(),
            counters: Counters::default(),
            next_conn: 0,
            next_age_check: MonoTime::default(),
            events: VecDeque::new(),
            acting: false,
            exit: false,
            wait_for_end: Vec::new(),
            global,
            account,
        })
    }

    /// Serves until the daemon is to end.
    ///
    /// # Errors
    /// Waiting for events failed, which a correct program does not meet.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        let mut next_tick = monotonic_now();
        // Since when it is time to look around.
        let mut look_since = None;
        let mut order = Order::default();
        while !self.exit {
            let asked = monotonic_now();
            // Sooner than was said last time, if something since then asks for it.
            next_tick = next_tick.min(asked.plus_millis(self.tick_pause(asked)));
            let idle = next_tick.millis_since(asked);
            let wait = if self.runnable.is_empty() { idle } else { 0 };
            self.poller.wait(u16::try_from(wait).unwrap_or(u16::MAX), &mut ready)?;
            let now = monotonic_now();
            let all_taken = ready.len() < EVENTS;
            let due = now >= next_tick;
            if due || now >= self.next_age_check {
                self.tick();
            }
            if due {
                next_tick = now.plus_millis(self.tick_pause(now));
                look_since = look_since.or(Some(now));
            }
            order.bring(&mut ready);
            for event in ready.drain(..) {
                self.ready(event);
                // What many clients ask for at once may take long, and processes have to be stopped in time.
                if monotonic_now() >= self.next_age_check {
                    self.tick();
                }
            }
            for _ in 0..self.runnable.len() {
                if let Some(id) = self.runnable.pop_front() {
                    self.serve(id);
                }
            }
            // Who has said something while this process stood still, at whatever point, is heard before he is taken for stuck, however many they are:
            // what was said before the poller was asked has been taken by now.
            if look_since.is_some_and(|since| all_taken || now >= since.plus_millis(LOOK_LATEST_MS)) {
                look_since = None;
                self.look_around(asked);
            }
        }
        self.flush_all();
        self.finish_programs();
        self.watchdog.finish(WATCHDOG_FINISH);
        self.records.finish(RECORDS_FINISH);
        Ok(())
    }

    /// Whether something that was begun here may still be written once the daemon has ended: to a host_id lease, a lease, or an area that is formatted.
    pub(crate) fn leaves_writes(&self) -> bool {
        let leases = self.manager.left_with_writes().next().is_some();
        leases || self.manager.resources().next().is_some() || self.tools.late().is_writing()
    }

    /// The disks on which a command's write has failed and may be carried out all the same, and for how many seconds more.
    pub(crate) fn writes_in_doubt(&self) -> Vec<(String, u64)> {
        self.tools.late().in_doubt()
    }

    /// Answers those who wait for the end of the daemon. Nothing is left to do then but to end.
    pub(crate) fn has_ended(&mut self) {
        for conn in std::mem::take(&mut self.wait_for_end) {
            self.answer(conn, &Reply::shutdown_done());
        }
        self.flush_all();
    }

    /// A lockspace that failed just now is told of before this process ends, and the helper with it.
    fn finish_programs(&mut self) {
        let end = monotonic_now().plus_millis(PROGRAMS_FINISH_MS);
        while self.helper.has_to_tell() && !self.helper.is_dead() {
            let left = end.millis_since(monotonic_now());
            if left == 0 {
                self.global.log.error(format_args!("the daemon ends before an on_fail program was started"));
                return;
            }
            let limit = u16::try_from(left).unwrap_or(u16::MAX);
            let _ = poll(&mut [PollFd::new(self.helper.fd(), PollFlags::POLLIN)], limit);
            self.helper_ready();
        }
    }

    /// Looks at the ages, and first whether they have grown in a sleep.
    fn tick(&mut self) {
        self.look_for_sleep();
        self.event(Event::Tick);
    }

    /// Leases have aged while the machine slept. wdmd does not know that.
    fn look_for_sleep(&mut self) {
        if let Some(seconds) = self.awake.slept() {
            self.global.log.error(format_args!(
                "this machine slept for {seconds} s: its leases have aged by as much, and other hosts have not waited"
            ));
            self.watchdog.order(watchdog::Order::Slept);
            self.look_anew();
        }
    }

    /// Has all threads with machines look what time it is, and whether they are to go on: they wait by a clock that stands still while the machine
    /// sleeps, and a renewal that has become due is not to wait for the rest of that.
    pub(crate) fn look_anew(&self) {
        self.resources.changed();
        for joined in self.lockspaces.values() {
            joined.tell(lockspace::Control::Changed);
        }
    }

    /// Who has made no progress for too long. After what they have said was taken: when this process stood still, that was no fault of
    /// theirs.
    fn look_around(&mut self, now: MonoTime) {
        self.helper_tick(now);
        for id in self.slots.starved().collect::<Vec<_>>() {
            self.flush_again(id);
            self.update(id);
        }
        let stuck = self.slots.stuck(now);
        for id in stuck {
            self.give_up(id, "no progress in a message");
        }
        self.turned_away.close(now);
        if closes_wait() {
            // A thread for leases may start others; it may sleep until it has a task.
            self.resources.look_after_closes();
        }
        self.tools.late().settle();
        if std::mem::take(&mut self.deaf) {
            let _ = self.poller.change(self.listener.as_fd(), Token::Listener, Interest::READ);
        }
    }

    fn ready(&mut self, ready: Ready) {
        match ready.token {
            Token::Listener => self.accept(),
            Token::Mailbox => self.messages(),
            Token::Signal => {
                if self.signals.take() {
                    self.event(Event::Signal);
                }
            }
            Token::Awake => {
                self.look_for_sleep();
                self.awake.again();
            }
            Token::Helper => self.helper_ready(),
            Token::Conn(id) => self.conn_ready(id, ready),
            Token::Pid(id) => {
                if self.slots.pid_gone(id, &self.poller) {
                    self.event(Event::PidGone { conn: id });
                }
            }
        }
    }

    fn helper_ready(&mut self) {
        let slots = &self.slots;
        self.helper.ready(monotonic_now(), &self.global.log, |conn| slots.to_stop(conn));
        if self.helper.is_dead() {
            self.poller.remove(self.helper.fd());
        }
    }

    /// Programs that the helper did not begin, or not that anybody knows: killing tries again, as long as it makes sense. What the helper has
    /// said is taken first: when this process stood still, it may have said that it began.
    fn helper_tick(&mut self, now: MonoTime) {
        if !self.helper.is_dead() {
            self.helper_ready();
        }
        for program in self.helper.tick(now, &self.global.log) {
            match program.purpose {
                // Looked for again, the request would be found again, and so on.
                Purpose::Killpath(_, _, Some(_)) if self.helper.is_dead() => {}
                Purpose::Killpath(conn, _, request) => self.event(Event::KillpathLost { conn, request }),
                Purpose::OnFail(ls)
                    if !self.helper.is_dead()
                        && (self.lockspaces.contains_key(&ls)
                            || now < program.since.plus_secs(ON_FAIL_WANTED)) =>
                {
                    // From the present on: it is not to be taken for one that has waited.
                    if self.helper.run(monotonic_now(), program).is_err() {
                        self.global.log.error(format_args!(
                            "s{} on_fail program: too many programs wait, or the helper has ended",
                            ls.0
                        ));
                    }
                }
                Purpose::OnFail(_) => {}
            }
        }
    }

    fn messages(&mut self) {
        for message in self.inbox.take() {
            match message {
                Message::Event(event) => self.event(event),
                Message::Lockspace(lockspace::Report::Event(event)) => self.event(event),
                Message::Lockspace(lockspace::Report::JoinFailed { ls, error }) => {
                    self.event(Event::JoinDone { ls, result: Err(error) });
                    self.event(Event::Left { ls, writes: LeaseWrites::Ended });
                }
                Message::Lockspace(lockspace::Report::Hosts { ls, table }) => self.keep_table(ls, table),
                Message::Answer(id, reply) => {
                    self.abandoned.remove(&id);
                    self.answer(id, &reply);
                }
                Message::JobDone(id, reply) => {
                    self.abandoned.remove(&id);
                    // Before the end that may have waited for it.
                    self.answer(id, &reply);
                    self.event(Event::JobDone);
                }
            }
        }
    }

    /// A host that was silent all the while need not be waited for again after a rejoin.
    fn keep_table(&mut self, ls: LockspaceId, table: HostTable) {
        let Some(lockspace) = self.lockspaces.get(&ls) else { return };
        if self.tables.len() >= TABLES_MAX {
            self.tables.clear();
        }
        self.tables.insert((lockspace.shared.spec.clone(), lockspace.shared.io_timeout), table);
    }

    /// Gives the manager an event, carries out what it asks for, and goes on with what that led to.
    ///
    /// Ages are looked at first if that is due: after this process stood still, what came in meanwhile must not be acted upon
    /// as if the lockspaces were still alive.
    ///
    /// What an action leads to waits until the actions of its event are carried out, all of them.
    fn event(&mut self, event: Event) {
        let now = monotonic_now();
        let age_check = event == Event::Tick;
        if age_check || now >= self.next_age_check {
            self.next_age_check = now.plus_millis(self.age_pause(now));
            self.events.push_back(Event::Tick);
        }
        if !age_check {
            self.events.push_back(event);
        }
        if std::mem::replace(&mut self.acting, true) {
            return;
        }
        let mut actions: Vec<Action> = Vec::new();
        while let Some(event) = self.events.pop_front() {
            let left = if let Event::Left { ls, .. } = event { Some(ls) } else { None };
            self.manager.handle(monotonic_now(), event, &mut actions);
            for action in actions.drain(..) {
                self.perform(action);
            }
            if let Some(ls) = left {
                self.lockspaces.remove(&ls);
            }
        }
        self.acting = false;
    }
}
