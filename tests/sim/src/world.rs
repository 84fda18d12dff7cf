//! The kernel: true time, events, operations in flight, and the hosts.
//!
//! Events at the same microsecond happen in the order they were scheduled, so a run depends on its seed and settings alone.

use crate::bounds::DEVICE_SHORT_PPM;
use crate::checks::{Checks, Writer};
use crate::clock::{Clock, Micros, SECOND};
use crate::daemon::{Thread, thread_of};
use crate::damage::Copy;
use crate::dice::Streams;
use crate::disk::{Area, SimDisk, SimView};
use crate::fault::{Fault, Struck};
use crate::host::{Host, Job, JobKey};
use crate::layout;
use crate::queue::Queue;
use crate::sabotage::Sabotage;
use crate::settings::Settings;
use crate::table::Table;
use crate::work::{Next, Outcome, Work};
use sanlock_lease::machine::{Content, Input, IoFailure, LockspaceNow, Op, OpId};
use sanlock_lease::paxos::PaxosConfig;
use sanlock_lease::timing::{IoTimeout, MonoTime};
use std::collections::VecDeque;
use std::rc::Rc;

/// Lines kept for the report of a failure.
const LOG_LINES: usize = 200_000;
/// Events after which a run is taken for endless.
const EVENTS_MAX: u64 = 20_000_000;

/// An operation in flight.
#[derive(Clone, Debug)]
pub struct Io {
    pub(crate) host: usize,
    pub(crate) epoch: u32,
    pub(crate) job: JobKey,
    pub(crate) serial: u32,
    pub(crate) op: OpId,
    /// What it writes, and into which sector; reads have nothing.
    pub(crate) write: Option<(u64, Rc<Content>)>,
    pub(crate) area: Area,
    /// A write that will land, but has not yet.
    pub(crate) to_land: bool,
    /// When it was submitted.
    pub(crate) since: Micros,
    pub(crate) timed_out: bool,
    pub(crate) deadline: Micros,
    pub(crate) completes: bool,
    pub(crate) very_late: bool,
    pub(crate) result: Result<SimView, IoFailure>,
}

impl Io {
    pub(crate) fn is_write(&self) -> bool {
        self.write.is_some()
    }

    /// Whether it is about a request for a lease, rather than about the lease.
    pub(crate) fn is_request(&self) -> bool {
        matches!(self.job, JobKey::Errand(_))
    }
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Sample {
        io: u64,
        first: u64,
        count: u64,
    },
    Land {
        io: u64,
    },
    Complete {
        io: u64,
    },
    Deadline {
        io: u64,
    },
    Wake {
        host: usize,
        epoch: u32,
        job: JobKey,
        serial: u32,
    },
    FrontTick {
        host: usize,
        life: u32,
    },
    Letter {
        host: usize,
        life: u32,
        id: u64,
    },
    Worker {
        host: usize,
        life: u32,
        ls: u64,
    },
    OpenFailed {
        host: usize,
        life: u32,
        task: u64,
    },
    Resume {
        host: usize,
        life: u32,
        thread: Option<Thread>,
    },
    Restart {
        host: usize,
        epoch: u32,
    },
    Turn {
        host: usize,
        epoch: u32,
        pid: i32,
        serial: u32,
    },
    Exit {
        host: usize,
        epoch: u32,
        pid: i32,
    },
    DescendantEnds {
        host: usize,
        epoch: u32,
        pid: i32,
    },
    Spawn {
        host: usize,
        epoch: u32,
    },
    Admin {
        host: usize,
        epoch: u32,
    },
    LooksAway {
        host: usize,
        epoch: u32,
        from: usize,
    },
    WdStart {
        host: usize,
        epoch: u32,
    },
    WdThaw {
        host: usize,
        life: u32,
    },
    WdInput {
        host: usize,
        life: u32,
        input: u64,
    },
    WdWake {
        host: usize,
        life: u32,
    },
    WdDevice {
        host: usize,
        life: u32,
    },
    WdTimeout {
        host: usize,
        life: u32,
        conn: u32,
        question: u32,
    },
    WdLinger {
        host: usize,
        life: u32,
        ls: u64,
        conn: u32,
    },
    DeviceFires {
        host: usize,
        epoch: u32,
    },
    PeerWatchdog {
        host: usize,
        epoch: u32,
    },
    PeerTick {
        host: usize,
        epoch: u32,
    },
    PeerTurn {
        host: usize,
        epoch: u32,
        resource: u8,
        serial: u32,
    },
    PowerOn {
        host: usize,
    },
    Look,
    /// A moment that a script waits for.
    Script,
    Chaos {
        fault: Fault,
    },
    Calm,
    /// Somebody asks for a lease.
    Asks,
    /// Somebody sets a host event, or listens.
    Notes,
}

/// Streams of chance for each host.
const HOST_STREAMS: usize = 4;

/// The stream of everything that is not one host's, those of the hosts, one for each kind of fault, that of requests, and that of host events.
fn streams_of(hosts: u64) -> usize {
    3 + Fault::ALL.len() + HOST_STREAMS * usize::try_from(hosts).unwrap_or(0)
}

/// A run.
#[derive(Debug)]
pub struct World {
    /// What is being run.
    pub settings: Settings,
    /// True time.
    pub now: Micros,
    /// The disk.
    pub disk: SimDisk,
    /// The properties.
    pub checks: Checks,
    pub(crate) hosts: Vec<Host>,
    pub(crate) dice: Streams,
    pub(crate) calm: bool,
    /// How often each kind of fault struck.
    pub struck: Struck,
    /// Microseconds in which a host was up, of all hosts.
    pub powered: Micros,
    pub(crate) ios: Table<u64, Box<Io>>,
    /// Host events set so far.
    pub(crate) last_note: u64,
    /// Values set so far.
    pub(crate) last_value: u64,
    /// What disks once held, by disk.
    pub(crate) copies: Table<u8, Copy>,
    /// A disk that has failed for ever.
    pub(crate) dead_disk: Option<u8>,
    /// Daemons started so far.
    pub(crate) lives: u32,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) queue: Queue<Event>,
    /// An empty vector with room.
    spare_ops: Vec<Op>,
    /// Places of operations that are over, for those to come.
    #[expect(clippy::vec_box, reason = "what is used again is the box")]
    pub(crate) spare_ios: Vec<Box<Io>>,
    pub(crate) next_io: u64,
    log: Option<VecDeque<String>>,
}

impl World {
    /// A world before its first event.
    #[must_use]
    pub fn new(settings: Settings, seed: u64, logging: bool) -> Self {
        let count = settings.ours + settings.references;
        let mut dice = Streams::new(seed, streams_of(count));
        let mut disk = layout::formatted(
            settings.host_ids(),
            settings.disks,
            settings.resources,
            settings.legs,
            settings.num_hosts.max(settings.host_ids()),
        );
        if settings.request_mean_secs > 0 {
            layout::format_requests(&mut disk, settings.all_resources());
        }
        let mut hosts = Vec::new();
        for id in 1..=count {
            let most = i64::try_from(settings.drift_ppm).unwrap_or(0);
            // As wrong as it may be, half of the time.
            let drift = match dice.between(0, 3) {
                0 => most,
                1 => -most,
                _ => dice.around(settings.drift_ppm, settings.drift_ppm),
            };
            let clock = Clock::new(dice.between(1, 10_000_000_000), drift);
            let mut host = Host::new(layout::host_id(id), id > settings.ours, clock, &settings);
            host.device_ppm = dice.around(DEVICE_SHORT_PPM, settings.device_long_ppm);
            if dice.per_mille(settings.other_timeouts_per_mille) {
                let secs = dice.between(settings.shortest_io_timeout(), settings.io_timeout.secs());
                host.io_timeout =
                    u32::try_from(secs).ok().and_then(|s| IoTimeout::new(s).ok()).unwrap_or(host.io_timeout);
            }
            hosts.push(host);
        }
        let mut checks = Checks::new(&settings);
        for host in &hosts {
            checks.goes_by(host.id, host.io_timeout);
            checks.claims_to_be(host.id, host.claims);
            checks.marks.other_timeouts += u64::from(host.io_timeout != settings.io_timeout);
        }
        checks.marks.many_hosts += u64::from(count > 8);
        let log = logging.then(VecDeque::new);
        let mut world = Self {
            settings,
            now: 0,
            disk,
            checks,
            hosts,
            dice,
            calm: false,
            struck: Struck::default(),
            powered: 0,
            ios: Table::new(),
            last_note: 0,
            last_value: 0,
            copies: Table::new(),
            dead_disk: None,
            lives: 0,
            sabotage: None,
            queue: Queue::new(),
            spare_ops: Vec::new(),
            spare_ios: Vec::new(),
            next_io: 0,
            log,
        };
        // One after the other, or all at once, as when the power of the whole site comes back.
        let spread = if world.dice.per_mille(300) { SECOND / 50 } else { 3 * SECOND };
        for host in 0..world.hosts.len() {
            let first = world.dice.between(0, spread);
            if world.hosts[host].is_reference() {
                world.at(first, Event::PeerTick { host, epoch: 0 });
            } else {
                world.hosts[host].can_disarm = !world.strikes(Fault::WdStays);
                world.at(0, Event::WdStart { host, epoch: 0 });
                world.at(first, Event::Restart { host, epoch: 0 });
                world.at(first + 1000, Event::Admin { host, epoch: 0 });
            }
        }
        world.at(world.settings.stormy_secs * SECOND, Event::Calm);
        for fault in Fault::ALL.iter().filter(|fault| fault.is_large()) {
            world.dice.turn_to(world.stream_of(&Event::Chaos { fault: *fault }));
            world.chaos_later(*fault, true);
        }
        if settings.request_mean_secs > 0 {
            world.at(SECOND, Event::Asks);
        }
        if settings.event_mean_secs > 0 {
            world.at(SECOND, Event::Notes);
        }
        world.at(SECOND, Event::Look);
        world
    }

    /// Runs to the end or to the first violation. Returns whether all is well.
    ///
    /// # Panics
    /// The run does not end.
    pub fn run(&mut self) -> bool {
        let end = (self.settings.stormy_secs + self.settings.calm_secs()) * SECOND;
        for _ in 0..EVENTS_MAX {
            // The deadlines of operations that are over.
            let void = |event: &Event| matches!(event, Event::Deadline { io } if !self.ios.contains_key(io));
            match self.queue.next(void) {
                Some((at, event)) if at <= end => {
                    self.now = at;
                    self.checks.time_is(at);
                    self.happen(event);
                }
                _ => {
                    self.progress_made();
                    return self.checks.violations.is_empty();
                }
            }
            if !self.checks.violations.is_empty() {
                return false;
            }
        }
        panic!("the run does not end");
    }

    pub(crate) fn at(&mut self, when: Micros, event: Event) {
        // Nothing happens on a machine that stands still.
        let still = event.of_machine().map_or(0, |host| self.hosts[host].stopped_until);
        self.queue.plan(when.max(self.now).max(still), event);
    }

    /// Every second.
    fn look_at_holders(&mut self) {
        for host in 0..self.hosts.len() {
            let h = &self.hosts[host];
            self.checks.nobody_holds_too_long(h.id, h.clock.at(self.now));
            self.powered += u64::from(h.up) * SECOND;
        }
        self.look_at_requests();
        self.look_at_notes();
        self.at(self.now + SECOND, Event::Look);
    }

    pub(crate) fn say(&mut self, what: impl FnOnce(&Self) -> String) {
        if self.log.is_some() {
            let line = format!("{:>12.6} {}", self.now as f64 / 1e6, what(self));
            if let Some(log) = &mut self.log {
                if log.len() == LOG_LINES {
                    log.pop_front();
                }
                log.push_back(line);
            }
        }
    }

    /// The last lines of the log, if there is one.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> Vec<String> {
        let log = self.log.iter().flatten();
        let skip = self.log.as_ref().map_or(0, |l| l.len().saturating_sub(lines));
        log.skip(skip).cloned().collect()
    }

    pub(crate) fn happen(&mut self, event: Event) {
        self.dice.turn_to(self.stream_of(&event));
        match event {
            Event::Sample { io, first, count } => self.sample(io, first, count),
            Event::Land { io } => self.land(io),
            Event::Complete { io } => self.reported(io, false),
            Event::Deadline { io } => self.reported(io, true),
            Event::PowerOn { host } => self.power_on(host),
            Event::Look => self.look_at_holders(),
            Event::Script => {}
            Event::Chaos { fault } => self.chaos(fault),
            Event::Calm => self.calm_down(),
            Event::Asks => self.asks(),
            Event::Notes => self.notes(),
            Event::WdThaw { host, life } => self.wd_thaw(host, life),
            Event::WdInput { host, life, input } => self.wd_arrived(host, life, input),
            Event::WdWake { host, life } => self.wd_wake(host, life),
            Event::WdDevice { host, life } => self.wd_device(host, life),
            Event::FrontTick { host, life }
            | Event::Letter { host, life, .. }
            | Event::Worker { host, life, .. }
            | Event::OpenFailed { host, life, .. }
            | Event::WdTimeout { host, life, .. }
            | Event::WdLinger { host, life, .. }
            | Event::Resume { host, life, .. } => {
                // Of an earlier life of the daemon?
                if self.hosts[host].daemon.as_ref().is_some_and(|d| d.life == life) {
                    self.happen_to_daemon(host, event);
                }
            }
            Event::Wake { host, epoch, .. }
            | Event::Restart { host, epoch }
            | Event::Turn { host, epoch, .. }
            | Event::Exit { host, epoch, .. }
            | Event::DescendantEnds { host, epoch, .. }
            | Event::Spawn { host, epoch }
            | Event::Admin { host, epoch }
            | Event::LooksAway { host, epoch, .. }
            | Event::WdStart { host, epoch }
            | Event::DeviceFires { host, epoch }
            | Event::PeerWatchdog { host, epoch }
            | Event::PeerTick { host, epoch }
            | Event::PeerTurn { host, epoch, .. } => {
                // Of an earlier life of the host?
                if self.hosts[host].epoch == epoch {
                    self.happen_to_host(host, event);
                }
            }
        }
    }

    /// Whose chance decides what comes of an event.
    fn stream_of(&self, event: &Event) -> usize {
        let (host, kind) = match *event {
            Event::PowerOn { .. } | Event::Look | Event::Script | Event::Calm => return 0,
            Event::Chaos { fault } => return 1 + fault as usize,
            Event::Asks => return self.asking_stream(),
            Event::Notes => return self.asking_stream() + 1,
            Event::Sample { io, .. }
            | Event::Land { io }
            | Event::Complete { io }
            | Event::Deadline { io } => match self.ios.get(&io) {
                Some(flying) if flying.is_request() => return self.asking_stream(),
                flying => (flying.map_or(0, |flying| flying.host), 0),
            },
            Event::Turn { host, .. }
            | Event::Exit { host, .. }
            | Event::DescendantEnds { host, .. }
            | Event::Spawn { host, .. }
            | Event::Admin { host, .. }
            | Event::PeerTurn { host, .. } => (host, 1),
            Event::WdStart { host, .. }
            | Event::WdThaw { host, .. }
            | Event::WdInput { host, .. }
            | Event::WdWake { host, .. }
            | Event::WdDevice { host, .. }
            | Event::DeviceFires { host, .. }
            | Event::PeerWatchdog { host, .. } => (host, 2),
            Event::Wake { host, .. }
            | Event::FrontTick { host, .. }
            | Event::Letter { host, .. }
            | Event::Worker { host, .. }
            | Event::OpenFailed { host, .. }
            | Event::Resume { host, .. }
            | Event::Restart { host, .. }
            | Event::LooksAway { host, .. }
            | Event::WdTimeout { host, .. }
            | Event::WdLinger { host, .. }
            | Event::PeerTick { host, .. } => (host, 3),
        };
        1 + Fault::ALL.len() + HOST_STREAMS * host + kind
    }

    /// That of requests, whoever makes them.
    pub(crate) fn asking_stream(&self) -> usize {
        1 + Fault::ALL.len() + HOST_STREAMS * self.hosts.len()
    }

    /// Whether a small fault strikes where it may. None does in the calm.
    pub(crate) fn strikes(&mut self, fault: Fault) -> bool {
        let strikes = self.dice.per_mille(self.settings.faults.of(fault)) && !self.calm;
        if strikes {
            self.struck.count(fault);
        }
        strikes
    }

    fn happen_to_daemon(&mut self, host: usize, event: Event) {
        match event {
            Event::FrontTick { .. } => self.front_tick(host),
            Event::Letter { id, .. } => self.letter(host, id),
            Event::Worker { ls, .. } => self.worker_look(host, ls),
            Event::OpenFailed { task, .. } => self.open_failed(host, task),
            Event::WdTimeout { conn, question, .. } => self.wd_timeout(host, conn, question),
            Event::WdLinger { ls, conn, .. } => self.link_linger(host, ls, conn),
            Event::Resume { thread, .. } => self.resume(host, thread),
            _ => {}
        }
    }

    fn happen_to_host(&mut self, host: usize, event: Event) {
        match event {
            Event::Wake { job, serial, .. } => self.wake(host, job, serial),
            Event::Restart { .. } => self.restart(host),
            Event::Turn { pid, serial, .. } => self.turn(host, pid, serial),
            Event::Exit { pid, .. } => self.exit(host, pid),
            Event::DescendantEnds { pid, .. } => self.last_copy_closed(host, pid),
            Event::Spawn { .. } => self.spawn(host),
            Event::Admin { .. } => self.admin(host),
            Event::LooksAway { from, .. } => self.looks_away(host, from),
            Event::WdStart { .. } => self.wd_start(host),
            Event::DeviceFires { .. } => self.device_fires(host),
            Event::PeerWatchdog { .. } => self.peer_watchdog(host),
            Event::PeerTick { .. } => self.peer_tick(host),
            Event::PeerTurn { resource, serial, .. } => self.peer_turn(host, resource, serial),
            _ => {}
        }
    }

    /// Who works on which resource.
    pub(crate) fn paxos_config(&self, host: usize, generation: u64, resource: u8) -> PaxosConfig {
        let h = &self.hosts[host];
        layout::paxos_config(h.claims, generation, resource, h.io_timeout, h.fire)
    }

    pub(crate) fn writer(&self, host: usize) -> Writer {
        Writer { host: self.hosts[host].id, reference: self.hosts[host].is_reference() }
    }

    /// Starts a machine as this job. The former one under that key, if any, must be done.
    pub(crate) fn start(&mut self, host: usize, key: JobKey, work: Work) {
        let h = &mut self.hosts[host];
        h.serials += 1;
        let serial = h.serials;
        h.jobs.insert(key, Box::new(Job { work, serial, wait: None, done: false }));
        self.deliver(host, key, Input::Start);
    }

    /// Puts a machine that is used many times in its place, not started yet.
    pub(crate) fn add_resident(&mut self, host: usize, key: JobKey, work: Work) {
        let h = &mut self.hosts[host];
        h.serials += 1;
        let serial = h.serials;
        h.jobs.insert(key, Box::new(Job { work, serial, wait: None, done: true }));
    }

    /// What a machine is told of its lockspace, and whether its client lives.
    fn circumstances(&self, host: usize, key: JobKey, now: MonoTime) -> (LockspaceNow, bool) {
        let h = &self.hosts[host];
        if let Some(peer) = &h.peer {
            return (peer.lockspace_now(), true);
        }
        match key {
            JobKey::Task(task) => {
                let task = h.daemon.as_ref().and_then(|d| d.tasks.get(&task));
                let (state, client) = task.map_or((LockspaceNow::Gone, true), |t| t.env(now));
                let generation = task.map_or(0, |t| t.config.generation);
                if self.sabotaged(Sabotage::WritesWhenGone) {
                    return (LockspaceNow::Alive { generation }, client);
                }
                (state, client)
            }
            JobKey::Join(ls) | JobKey::Renewal(ls) | JobKey::Scan(ls) | JobKey::Leave(ls) => {
                (self.wanted(host, ls), true)
            }
            JobKey::Peer(_) | JobKey::Errand(_) => (LockspaceNow::Gone, true),
        }
    }

    /// Tells a machine something and does what it asks for.
    pub(crate) fn deliver(&mut self, host: usize, key: JobKey, input: Input<'_>) {
        let now = self.hosts[host].clock.at(self.now);
        let (lockspace, client_alive) = self.circumstances(host, key, now);
        let mut ops = std::mem::take(&mut self.spare_ops);
        let stepped = self.hosts[host].step(key, now, (lockspace, client_alive), input, &mut ops);
        let Some((next, serial)) = stepped else {
            self.spare_ops = ops;
            return;
        };
        if matches!(next, Next::Io | Next::Wait(_)) {
            self.goes_on(host, key, now);
        }
        for op in &mut ops {
            self.submit(host, key, serial, op);
        }
        ops.clear();
        self.spare_ops = ops;
        match next {
            Next::Io | Next::Pending => {}
            Next::Wait(until) => {
                let (when, epoch) = (self.hosts[host].clock.when(until), self.hosts[host].epoch);
                self.at(when, Event::Wake { host, epoch, job: key, serial });
            }
            Next::Done(outcome, outstanding) => self.finished(host, key, *outcome, outstanding),
        }
    }

    fn wake(&mut self, host: usize, key: JobKey, serial: u32) {
        let h = &self.hosts[host];
        let now = h.clock.at(self.now);
        let job = h.jobs.get(&key).filter(|j| j.serial == serial);
        let due = job.is_some_and(|j| j.wait.is_some_and(|until| until <= now));
        if due && self.runs(host, thread_of(key)) {
            self.deliver(host, key, Input::Tick);
        }
        // A paused daemon looks at its timers when it goes on.
    }

    fn finished(&mut self, host: usize, key: JobKey, outcome: Outcome, outstanding: u32) {
        if let Some(job) = self.hosts[host].jobs.get_mut(&key) {
            job.done = true;
            job.wait = None;
        }
        let late = self.late_writes(host, key);
        if usize::try_from(outstanding) != Ok(late) && !self.hosts[host].is_reference() {
            self.checks.violated(format!("{key:?} says {outstanding} writes are outstanding, {late} are"));
        }
        self.say(|w| format!("{:?} {key:?} done: {outcome:?}, {outstanding} outstanding", w.hosts[host].id));
        if self.hosts[host].is_reference() {
            return self.peer_done(host, key, outcome);
        }
        match key {
            JobKey::Join(ls) | JobKey::Renewal(ls) | JobKey::Scan(ls) | JobKey::Leave(ls) => {
                self.worker_done(host, ls, outcome);
            }
            JobKey::Task(task) => self.task_done(host, task, outcome),
            JobKey::Errand(errand) => self.errand_done(host, errand, outcome),
            JobKey::Peer(_) => {}
        }
    }

    /// The operations in flight.
    pub(crate) fn flying(&self) -> impl Iterator<Item = &Io> {
        self.ios.values().map(AsRef::as_ref)
    }

    /// Writes of a job whose timeout was reported and whose completion was not.
    pub(crate) fn late_writes(&self, host: usize, key: JobKey) -> usize {
        let h = &self.hosts[host];
        let serial = h.jobs.get(&key).map(|j| j.serial);
        let late = |io: &&Io| {
            io.host == host
                && io.epoch == h.epoch
                && io.job == key
                && Some(io.serial) == serial
                && io.timed_out
        };
        self.flying().filter(late).filter(|io| io.is_write()).count()
    }

    /// Writes of a job that have not completed, reported as timed out or not.
    pub(crate) fn writes_of(&self, host: usize, key: JobKey) -> usize {
        let Some(job) = self.hosts[host].jobs.get(&key) else { return 0 };
        let its = |io: &&Io| io.host == host && io.job == key && io.serial == job.serial && io.is_write();
        self.flying().filter(its).count()
    }

    /// Writes of a host to a resource, of any life, that have not ended.
    pub(crate) fn resource_writes(&self, host: usize, resource: u8) -> usize {
        let its = |io: &&Io| {
            let its = matches!(io.area, Area::Resource(r, _) if r == resource);
            io.host == host && its && io.is_write() && !io.is_request()
        };
        self.flying().filter(its).count()
    }

    /// Writes of a host, of any life, that may still land.
    pub(crate) fn writes_in_flight(&self, host: usize) -> usize {
        self.flying().filter(|io| io.host == host && io.is_write()).count()
    }

    /// Events waiting to happen, for tests of the kernel itself.
    #[must_use]
    pub fn pending_events(&self) -> usize {
        self.queue.len()
    }
}
