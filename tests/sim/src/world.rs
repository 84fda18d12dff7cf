//! The kernel: true time, events, operations in flight, and the hosts.
//!
//! Events at the same microsecond happen in the order they were scheduled, so a run depends on its seed and settings alone.

use crate::checks::{Checks, Writer};
use crate::clock::{Clock, Micros, SECOND};
use crate::dice::Dice;
use crate::disk::{Area, SimDisk, SimView};
use crate::faults::Fate;
use crate::host::{Host, Job, JobKey};
use crate::layout;
use crate::settings::Settings;
use crate::work::{Outcome, Work};
use sanlock_lease::machine::{Action, Env, HostView, Input, IoFailure, NoHosts, NoSectors, Op, Place, Step};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

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
    pub(crate) op: Op,
    pub(crate) area: Area,
    /// A write that will land, but has not yet.
    pub(crate) to_land: bool,
    pub(crate) timed_out: bool,
    pub(crate) completes: bool,
    result: Result<SimView, IoFailure>,
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    Sample { io: u64, first: u64, count: u64 },
    Land { io: u64 },
    Complete { io: u64 },
    Deadline { io: u64 },
    Wake { host: usize, epoch: u32, job: JobKey, serial: u32 },
    Tick { host: usize, epoch: u32 },
    Watchdog { host: usize, epoch: u32 },
    ProcessExit { host: usize, epoch: u32, resource: u8, serial: u32 },
    Resume { host: usize, epoch: u32 },
    Turn { host: usize, epoch: u32, resource: u8, serial: u32 },
    PowerOn { host: usize },
    Chaos,
    Calm,
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
    pub(crate) dice: Dice,
    pub(crate) calm: bool,
    pub(crate) ios: BTreeMap<u64, Io>,
    queue: BinaryHeap<Reverse<(Micros, u64, Event)>>,
    sequence: u64,
    next_io: u64,
    log: Option<VecDeque<String>>,
}

impl World {
    /// A world before its first event.
    #[must_use]
    pub fn new(settings: Settings, seed: u64, logging: bool) -> Self {
        let mut dice = Dice::new(seed);
        let count = settings.ours + settings.references;
        let disk = layout::formatted(count, settings.resources, settings.num_hosts.max(count));
        let mut hosts = Vec::new();
        for id in 1..=count {
            let drift = i64::try_from(dice.between(0, 2 * settings.drift_ppm)).unwrap_or(0);
            let drift = drift - i64::try_from(settings.drift_ppm).unwrap_or(0);
            let clock = Clock::new(dice.between(1, 10_000_000_000), drift);
            hosts.push(Host::new(layout::host_id(id), id > settings.ours, clock, &settings));
        }
        let checks = Checks::new(&settings);
        let log = logging.then(VecDeque::new);
        let mut world = Self {
            settings,
            now: 0,
            disk,
            checks,
            hosts,
            dice,
            calm: false,
            ios: BTreeMap::new(),
            queue: BinaryHeap::new(),
            sequence: 0,
            next_io: 0,
            log,
        };
        for host in 0..world.hosts.len() {
            let first = world.dice.between(0, 3 * SECOND);
            world.at(first, Event::Tick { host, epoch: 0 });
        }
        world.at(world.settings.stormy_secs * SECOND, Event::Calm);
        world.at(SECOND, Event::Chaos);
        world
    }

    /// Runs to the end or to the first violation. Returns whether all is well.
    ///
    /// # Panics
    /// The run does not end.
    pub fn run(&mut self) -> bool {
        let end = (self.settings.stormy_secs + self.settings.calm_secs()) * SECOND;
        for _ in 0..EVENTS_MAX {
            match self.queue.pop() {
                Some(Reverse((at, _, event))) if at <= end => {
                    self.now = at;
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
        self.sequence += 1;
        self.queue.push(Reverse((when.max(self.now), self.sequence, event)));
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

    fn happen(&mut self, event: Event) {
        match event {
            Event::Sample { io, first, count } => self.sample(io, first, count),
            Event::Land { io } => self.land(io),
            Event::Complete { io } => self.reported(io, false),
            Event::Deadline { io } => self.reported(io, true),
            Event::Wake { host, epoch, job, serial } => {
                let h = &self.hosts[host];
                if h.epoch == epoch && h.jobs.get(&job).is_some_and(|j| j.serial == serial) {
                    self.wake(host, job);
                }
            }
            Event::Tick { host, epoch } if self.hosts[host].epoch == epoch => self.tick(host),
            Event::Watchdog { host, epoch } if self.hosts[host].epoch == epoch => self.watchdog(host),
            Event::ProcessExit { host, epoch, resource, serial } if self.hosts[host].epoch == epoch => {
                self.process_exit(host, resource, serial);
            }
            Event::Resume { host, epoch } if self.hosts[host].epoch == epoch => self.resume(host),
            Event::Turn { host, epoch, resource, serial } if self.hosts[host].epoch == epoch => {
                self.turn(host, resource, serial);
            }
            Event::PowerOn { host } => self.power_on(host),
            Event::Chaos => self.chaos(),
            Event::Calm => self.calm_down(),
            // Of an earlier life of the host.
            Event::Tick { .. }
            | Event::Watchdog { .. }
            | Event::ProcessExit { .. }
            | Event::Resume { .. }
            | Event::Turn { .. } => {}
        }
    }

    pub(crate) fn writer(&self, host: usize) -> Writer {
        Writer { host: self.hosts[host].id, reference: self.hosts[host].reference }
    }

    /// Starts a machine as this job. The former one under that key, if any, must be done.
    pub(crate) fn start(&mut self, host: usize, key: JobKey, work: Work) {
        let h = &mut self.hosts[host];
        h.serials += 1;
        let serial = h.serials;
        h.jobs.insert(key, Job { work, serial, wait: None, done: false });
        self.deliver(host, key, Input::Start);
    }

    /// Tells a machine something and does what it asks for.
    pub(crate) fn deliver(&mut self, host: usize, key: JobKey, input: Input<'_>) {
        let h = &mut self.hosts[host];
        let Some(mut job) = h.jobs.remove(&key) else { return };
        let now = h.clock.at(self.now);
        let lockspace = h.lockspace_now(now, key);
        let table = h.jobs.get(&JobKey::Scan).and_then(|j| j.work.table());
        let env = Env {
            lockspace,
            client_alive: h.client_alive(key),
            shutting_down: false,
            hosts: table.map_or(&NoHosts as &dyn HostView, |t| t),
        };
        let step = job.work.step(now, &env, input);
        let serial = job.serial;
        match &step {
            Step::Io(_) => job.wait = None,
            Step::Wait(until) => job.wait = Some(*until),
            Step::Pending | Step::Done { .. } => {}
        }
        h.jobs.insert(key, job);
        match step {
            Step::Io(ops) => {
                for op in ops {
                    self.submit(host, key, serial, op);
                }
            }
            Step::Wait(until) => {
                let (when, epoch) = (self.hosts[host].clock.when(until), self.hosts[host].epoch);
                self.at(when, Event::Wake { host, epoch, job: key, serial });
            }
            Step::Pending => {}
            Step::Done { outcome, outstanding } => self.finished(host, key, outcome, outstanding),
        }
    }

    fn wake(&mut self, host: usize, key: JobKey) {
        let h = &self.hosts[host];
        let now = h.clock.at(self.now);
        let due = h.jobs.get(&key).is_some_and(|j| j.wait.is_some_and(|until| until <= now));
        if due && h.runs() {
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
        if usize::try_from(outstanding) != Ok(late) && !self.hosts[host].reference {
            let what = format!("{key:?} says {outstanding} writes are outstanding, {late} are");
            self.checks.violations.push(what);
        }
        self.say(|w| format!("{:?} {key:?} done: {outcome:?}, {outstanding} outstanding", w.hosts[host].id));
        self.done(host, key, outcome);
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
        self.ios.values().filter(late).filter(|io| io.op.is_write()).count()
    }

    /// Writes of a host, of any life, that may still land.
    pub(crate) fn writes_in_flight(&self, host: usize) -> usize {
        self.ios.values().filter(|io| io.host == host && io.op.is_write()).count()
    }

    fn submit(&mut self, host: usize, job: JobKey, serial: u32, op: Op) {
        let area = match (op.place, job) {
            (Place::Lockspace, _) => Area::Lockspace,
            (Place::Resource(_), JobKey::Resource(number)) => Area::Resource(number),
            (Place::Resource(_), _) => {
                self.checks.violations.push(format!("S15: {job:?} works on a resource"));
                return;
            }
        };
        if job != JobKey::Scan {
            self.say(|w| format!("{:?} {job:?} submits {} {area:?}", w.hosts[host].id, brief(&op)));
        }
        if let Action::Write { sector, content } = &op.action {
            let writer = self.writer(host);
            self.checks.submitted(writer, area, *sector, content, &self.disk);
            if !self.hosts[host].believes(self.now, job) {
                let what = format!("S14: {writer:?} writes sector {sector} of {area:?} without its host id");
                self.checks.violations.push(what);
            }
            let to_same = |io: &Io| io.host == host && io.area == area && io.op.is_write();
            if self.ios.values().any(to_same) && !writer.reference {
                let what = format!("R3: {writer:?} writes to {area:?} while a write of it is in flight");
                self.checks.violations.push(what);
            }
        }
        let limit = self.hosts[host].clock.when(op.deadline).saturating_sub(self.now);
        let fate = Fate::of(&mut self.dice, &self.hosts[host], self.now, limit, self.calm);
        let io = self.next_io;
        self.next_io += 1;
        let size = self.disk.sector_size();
        let result = match (fate.failure, op.action) {
            (Some(failure), _) => Err(failure),
            (None, Action::Read { first, count }) => Ok(SimView::new(size, first, count)),
            (None, Action::Write { .. }) => Ok(SimView::new(size, 0, 0)),
        };
        let flying = Io {
            host,
            epoch: self.hosts[host].epoch,
            job,
            serial,
            op,
            area,
            to_land: false,
            timed_out: false,
            completes: fate.completes.is_some(),
            result,
        };
        self.ios.insert(io, flying);
        match op.action {
            Action::Write { .. } => {
                if let Some(after) = fate.lands {
                    self.ios.get_mut(&io).into_iter().for_each(|i| i.to_land = true);
                    self.at(self.now + after, Event::Land { io });
                }
            }
            Action::Read { first, count } => self.plan_samples(io, first, count, fate.completes),
        }
        if let Some(after) = fate.completes {
            self.at(self.now + after, Event::Complete { io });
        }
        self.at(self.now + limit, Event::Deadline { io });
    }

    /// A read looks at its sectors in up to three pieces, each at its own moment.
    fn plan_samples(&mut self, io: u64, first: u64, count: u64, completes: Option<Micros>) {
        let Some(completes) = completes else { return };
        let end = first + count;
        let mut from = first;
        for piece in (0..3).rev() {
            let left = end - from;
            let take = if piece == 0 || left <= 2 { left } else { self.dice.between(1, left) };
            if take == 0 {
                break;
            }
            // Few hosts use few sectors: cut between those in use.
            let take = if piece > 0 && left > 2 && self.dice.per_mille(500) {
                take.min(self.dice.between(1, 6))
            } else {
                take
            };
            let when = self.now + self.dice.between(0, completes);
            self.at(when, Event::Sample { io, first: from, count: take });
            from += take;
        }
    }

    fn sample(&mut self, io: u64, first: u64, count: u64) {
        let Some(flying) = self.ios.get_mut(&io) else { return };
        if let Ok(view) = &mut flying.result {
            self.disk.sample(flying.area, first, count, view);
        }
    }

    pub(crate) fn land(&mut self, io: u64) {
        let Some(flying) = self.ios.get_mut(&io) else { return };
        if !std::mem::take(&mut flying.to_land) {
            return;
        }
        let Action::Write { sector, content } = flying.op.action else { return };
        let (area, late, host) = (flying.area, flying.timed_out, flying.host);
        self.checks.landing(self.now, area, sector, &content, &self.disk);
        self.disk.land(area, sector, &content);
        self.say(|w| {
            let late = if late { " LATE" } else { "" };
            format!("{:?}'s write of {area:?} {sector} lands{late}", w.hosts[host].id)
        });
        self.checks.landed(area, sector, &content, late, &self.disk);
    }

    /// An operation's completion or deadline reaches its host.
    fn reported(&mut self, io: u64, deadline: bool) {
        let Some(flying) = self.ios.get(&io) else { return };
        let host = flying.host;
        let h = &mut self.hosts[host];
        if flying.epoch == h.epoch && h.is_paused() {
            h.backlog.push((io, deadline));
            return;
        }
        self.tell(io, deadline);
    }

    pub(crate) fn tell(&mut self, io: u64, deadline: bool) {
        let Some(flying) = self.ios.get_mut(&io) else { return };
        let (host, key, op) = (flying.host, flying.job, flying.op.id);
        let h = &self.hosts[host];
        let current = flying.epoch == h.epoch && h.jobs.get(&key).is_some_and(|j| j.serial == flying.serial);
        if deadline {
            flying.timed_out = true;
            let forgotten = !flying.completes && !flying.op.is_write();
            if forgotten {
                self.ios.remove(&io);
            }
            if current && h.runs() {
                self.say(|w| format!("{:?} {key:?} {op:?} timed out", w.hosts[host].id));
                self.deliver(host, key, Input::TimedOut { op });
            }
            return;
        }
        let Some(flying) = self.ios.remove(&io) else { return };
        if !current || !self.hosts[host].runs() {
            return;
        }
        let result = match &flying.result {
            Ok(_) if flying.op.is_write() => Ok(&NoSectors as &dyn sanlock_lease::machine::Sectors),
            Ok(view) => Ok(view as &dyn sanlock_lease::machine::Sectors),
            Err(e) => Err(*e),
        };
        if flying.timed_out {
            self.deliver(host, key, Input::CompletedLate { op, result });
            self.settled(host, key);
        } else {
            self.deliver(host, key, Input::Completed { op, result });
        }
    }

    /// Events waiting to happen, for tests of the kernel itself.
    #[must_use]
    pub fn pending_events(&self) -> usize {
        self.queue.len()
    }
}

/// An operation in a few words.
fn brief(op: &Op) -> String {
    use sanlock_lease::machine::Content;
    match &op.action {
        Action::Read { first, count } => format!("{:?} read {first}+{count}", op.id),
        Action::Write { sector, content: Content::Block(b) } => {
            let d = &b.dblock;
            let released = if d.is_released() { " RELEASED" } else { "" };
            format!(
                "{:?} write {sector} block mbal {} bal {} value {}/{}/{} lver {}{released}",
                op.id, d.mbal, d.bal, d.inp, d.inp2, d.inp3, d.lver
            )
        }
        Action::Write { sector, content: Content::Leader(l) } => format!("{:?} write {sector} {l:?}", op.id),
        Action::Write { sector, content: Content::Delta { leader, .. } } => {
            format!("{:?} write {sector} {leader:?}", op.id)
        }
    }
}
