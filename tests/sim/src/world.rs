//! The kernel: true time, events, operations in flight, and the hosts.
//!
//! Events at the same microsecond happen in the order they were scheduled, so a run depends on its seed and settings alone.

use crate::bounds::DEVICE_SHORT_PPM;
use crate::checks::Checks;
use crate::clock::{Clock, Micros, SECOND};
use crate::damage::Copy;
use crate::dice::Streams;
use crate::disk::SimDisk;
pub(crate) use crate::event::Event;
pub use crate::event::Io;
use crate::fault::{Fault, Struck};
use crate::formats::Formatting;
use crate::host::Host;
use crate::layout;
use crate::queue::Queue;
use crate::sabotage::Sabotage;
use crate::settings::Settings;
use crate::table::Table;
use sanlock_lease::geometry::HostId;
use sanlock_lease::machine::Op;
use sanlock_lease::timing::IoTimeout;
use sanlock_manager::Action;
use std::collections::{BTreeSet, VecDeque};

/// Lines kept for the report of a failure.
const LOG_LINES: usize = 200_000;
/// Events after which a run is taken for endless.
const EVENTS_MAX: u64 = 20_000_000;

/// What the clock of a machine shows at most that was switched on just now, in milliseconds: its firmware and kernel take time.
pub(crate) const YOUNG_MS: u64 = 200_000;

/// Streams of chance for each host.
const HOST_STREAMS: usize = 4;

/// The stream of everything that is not one host's, those of the hosts, one for each kind of fault, that of requests, that of host events, and that of formats.
fn streams_of(hosts: u64) -> usize {
    4 + Fault::ALL.len() + HOST_STREAMS * usize::try_from(hosts).unwrap_or(0)
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
    /// When the run ends.
    pub(crate) end: Micros,
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
    /// Host ids that more than one machine has been configured with.
    pub(crate) disputed: BTreeSet<HostId>,
    /// Daemons started so far.
    pub(crate) lives: u32,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) queue: Queue<Event>,
    /// Empty vectors with room.
    pub(crate) spare_ops: Vec<Op>,
    pub(crate) spare_actions: Vec<Action>,
    /// Places of operations that are over, for those to come.
    #[expect(clippy::vec_box, reason = "what is used again is the box")]
    pub(crate) spare_ios: Vec<Box<Io>>,
    pub(crate) next_io: u64,
    /// A format that is under way.
    pub(crate) formatting: Option<Formatting>,
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
            settings.geometry,
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
            // A third of them were switched on just now.
            let most_ms = if dice.per_mille(333) { YOUNG_MS } else { 10_000_000_000 };
            let clock = Clock::new(dice.between(1, most_ms), drift);
            let mut host = Host::new(layout::host_id(id), id > settings.ours, clock, &settings);
            host.device_ppm = dice.around(DEVICE_SHORT_PPM, settings.device_long_ppm);
            if dice.per_mille(settings.other_timeouts_per_mille) {
                let secs = dice.between(settings.shortest_io_timeout(), settings.io_timeout.secs());
                let other = u32::try_from(secs).ok().and_then(|s| IoTimeout::new(s).ok());
                host.goes_by(other.unwrap_or(host.io_timeout));
            }
            if settings.wrong_legs_per_mille > 0 && dice.per_mille(settings.wrong_legs_per_mille) {
                host.wrong_leg = Some(if dice.per_mille(500) { 1 } else { 2 });
            }
            host.old_wdmd = settings.old_wdmds_per_mille > 0 && dice.per_mille(settings.old_wdmds_per_mille);
            hosts.push(host);
        }
        let mut checks = Checks::new(&settings);
        for host in &hosts {
            checks.goes_by(host.id, host.io_timeout);
            checks.has_clock(host.id, host.clock);
            checks.claims_to_be(host.id, host.claims);
            checks.marks.other_timeouts += u64::from(host.io_timeout != settings.io_timeout);
            checks.marks.wrong_legs += u64::from(host.wrong_leg.is_some());
            checks.marks.old_wdmds += u64::from(host.old_wdmd);
        }
        checks.marks.many_hosts += u64::from(count > 8);
        checks.marks.sizes(settings.geometry);
        let log = logging.then(VecDeque::new);
        let mut world = Self {
            settings,
            now: 0,
            disk,
            checks,
            hosts,
            dice,
            calm: false,
            end: (settings.stormy_secs + settings.calm_secs()) * SECOND,
            struck: Struck::default(),
            powered: 0,
            ios: Table::new(),
            last_note: 0,
            last_value: 0,
            copies: Table::new(),
            dead_disk: None,
            disputed: BTreeSet::new(),
            lives: 0,
            sabotage: None,
            queue: Queue::new(),
            spare_ops: Vec::new(),
            spare_actions: Vec::new(),
            spare_ios: Vec::new(),
            next_io: 0,
            formatting: None,
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
        if settings.format_mean_secs > 0 {
            world.at(SECOND, Event::Formats);
        }
        world.at(SECOND, Event::Look);
        world
    }

    /// Runs to the end or to the first violation. Returns whether all is well.
    ///
    /// # Panics
    /// The run does not end.
    pub fn run(&mut self) -> bool {
        for _ in 0..EVENTS_MAX {
            // The deadlines of operations that are over.
            let void = |event: &Event| matches!(event, Event::Deadline { io } if !self.ios.contains_key(io));
            match self.queue.next(void) {
                Some((at, event)) if at <= self.end => {
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
            Event::Formats => self.formats(),
            Event::FormatPiece { at, piece, serial } => self.format_piece(at, piece, serial),
            Event::FormatCut { at, serial } => self.format_cut_off(at, serial),
            Event::FormatEnd { at, serial } => self.format_end(at, serial),
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
            Event::Formats
            | Event::FormatPiece { .. }
            | Event::FormatCut { .. }
            | Event::FormatEnd { .. } => {
                return self.asking_stream() + 2;
            }
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

    /// Events waiting to happen, for tests of the kernel itself.
    #[must_use]
    pub fn pending_events(&self) -> usize {
        self.queue.len()
    }
}
