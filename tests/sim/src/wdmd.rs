//! The watchdog of a host: the device, and wdmd as a process around its production decisions ([`Machine`]).
//!
//! # Fault model
//!
//! * The device resets the host that many true seconds after its last ping, whatever else the host does; up to 4 % earlier, or up to
//!   0.7 % later ([`crate::bounds`]). It may round its timeout down, may refuse to be armed, and may be one that cannot be disarmed.
//! * wdmd stands still at any moment, also between deciding on a ping and the ping; or it is killed. Its end pings an armed
//!   device once more; then nobody may open it again before the host was reset. An end with the device closed is followed by
//!   another wdmd. One such fault for each boot: two in one window are beyond the promise (decision 6).
//! * On some hosts it serves a new daemon although the one before has ended with an expiry, and this host is going to be reset: as the
//!   original's does ([`crate::settings::Settings::old_wdmds_per_mille`]). Ours refuses, and so keeps that daemon from joining; nothing may depend on
//!   that.
//! * Messages take their time, and arrive in order on each connection.

use crate::clock::{Micros, SECOND};
use crate::daemon::{Message as Letter, Source, Thread};
use crate::fault::Fault;
use crate::layout;
use crate::sabotage::Sabotage;
use crate::table::Table;
use crate::world::{Event, World};
use sanlock_lease::timing::MonoTime;
use sanlock_wdmd::decide::{
    Action, Armed, DeviceTimeout, Event as Told, Machine, Notice, Peer, Refusal, SourceId, Time,
};
use sanlock_wdmd::protocol::{Command, Message};
use std::collections::VecDeque;

/// A wdmd process.
#[derive(Debug)]
pub struct Process {
    life: u32,
    machine: Machine,
    frozen: bool,
    /// Input that waits for its turn.
    queue: VecDeque<Told>,
    /// What is still to be carried out.
    pending: VecDeque<Action>,
    /// Whether this turn has had its tick.
    ticked: bool,
    /// What it is doing to the device, and whether that was due while it stood still.
    busy: Option<(Action, bool)>,
    wake: Option<Micros>,
    /// It has refused somebody whom an old one would have let in.
    too_strict: bool,
}

/// A connection to wdmd.
#[derive(Clone, Copy, Debug)]
struct Conn {
    /// The daemon of ours that made it.
    life: u32,
    disk: u8,
    /// How long after a renewal the lockspace fails that it is for.
    fail_secs: u64,
    /// The wdmd it leads to.
    wdmd: u32,
    /// When the last message of either direction arrives.
    last: Micros,
    /// Our end is closed.
    closed: bool,
}

/// The device.
#[derive(Clone, Copy, Debug, Default)]
struct Device {
    running: bool,
    timeout_secs: u32,
    pinged: Micros,
}

impl Device {
    /// When it fires, of a device that runs so much longer than it says.
    fn due(&self, ppm: i64) -> Micros {
        let exact = u64::from(self.timeout_secs) * SECOND;
        let wrong = exact * ppm.unsigned_abs() / 1_000_000;
        self.pinged + if ppm < 0 { exact - wrong } else { exact + wrong }
    }
}

/// Device, wdmd, and the connections between wdmd and our daemon.
#[derive(Debug, Default)]
pub struct Watchdog {
    process: Option<Process>,
    device: Device,
    conns: Table<SourceId, Conn>,
    inputs: Table<u64, Told>,
    next_input: u64,
    next_conn: SourceId,
    /// wdmd was killed or stood still in this boot.
    pub(crate) faulted: bool,
    /// A reference peer's expiry, kept to the last moment.
    peer_expiry: u64,
}

impl World {
    fn wd_now(&self, host: usize) -> Time {
        Time::from_millis(self.hosts[host].clock.at(self.now).millis())
    }

    fn wd(&mut self, host: usize) -> Option<&mut Process> {
        self.hosts[host].watchdog.process.as_mut()
    }

    /// A wdmd is started, unless the device was left running by an earlier one.
    pub(crate) fn wd_start(&mut self, host: usize) {
        let h = &self.hosts[host];
        if !h.up || h.watchdog.process.is_some() || h.watchdog.device.running {
            return;
        }
        self.lives += 1;
        let process = Process {
            life: self.lives,
            machine: Machine::new(),
            frozen: false,
            queue: VecDeque::new(),
            pending: VecDeque::new(),
            ticked: true,
            busy: None,
            wake: None,
            too_strict: false,
        };
        self.hosts[host].watchdog.process = Some(process);
    }

    /// It is killed.
    pub(crate) fn wd_kill(&mut self, host: usize) {
        let now = self.now;
        let watchdog = &mut self.hosts[host].watchdog;
        let Some(process) = watchdog.process.take() else { return };
        watchdog.faulted = true;
        watchdog.inputs.clear();
        let armed = watchdog.device.running;
        if armed {
            watchdog.device.pinged = now;
        }
        let conns: Vec<(SourceId, Conn)> =
            watchdog.conns.iter().filter(|(_, c)| c.wdmd == process.life).map(|(id, c)| (*id, *c)).collect();
        self.say(|w| format!("{:?} wdmd is killed, device armed {armed}", w.hosts[host].id));
        self.checks.marks.wdmd_faults += 1;
        for (id, conn) in conns {
            self.hosts[host].watchdog.conns.remove(&id);
            if self.daemon(host).is_some_and(|d| d.life == conn.life) && !conn.closed {
                self.send(host, Source::Wdmd(id), Thread::Watchdog, Letter::WdClosed { conn: id });
            }
        }
        self.device_watch(host);
        let after = self.dice.spread(SECOND / 10, 10 * SECOND);
        let epoch = self.hosts[host].epoch;
        self.at(self.now + after, Event::WdStart { host, epoch });
    }

    /// It stands still.
    pub(crate) fn wd_freeze(&mut self, host: usize, long: Micros) {
        let Some(process) = self.wd(host) else { return };
        process.frozen = true;
        let life = process.life;
        self.hosts[host].watchdog.faulted = true;
        self.say(|w| format!("{:?} wdmd stands still for {long} us", w.hosts[host].id));
        self.checks.marks.wdmd_faults += 1;
        self.at(self.now + long, Event::WdThaw { host, life });
    }

    pub(crate) fn wd_thaw(&mut self, host: usize, life: u32) {
        let Some(process) = self.wd(host).filter(|p| p.life == life) else { return };
        process.frozen = false;
        if matches!(process.busy, Some((_, true))) {
            self.wd_device(host, life);
        }
        self.wd_run(host);
    }

    /// Whatever it does, it does it now.
    pub(crate) fn wd_calm(&mut self, host: usize) {
        if let Some(life) = self.wd(host).map(|p| p.life) {
            self.wd_thaw(host, life);
        }
    }

    /// A new connection of our daemon for a lockspace, if there is a wdmd.
    pub(crate) fn wd_connect(&mut self, host: usize, ls: u64) -> Option<SourceId> {
        let daemon = self.hosts[host].daemon.as_ref()?;
        let (life, now) = (daemon.life, self.now);
        // The thread may be late, and the lockspace gone.
        let (disk, fail_secs) = daemon.watched.get(&ls).copied().unwrap_or_default();
        let watchdog = &mut self.hosts[host].watchdog;
        let wdmd = watchdog.process.as_ref()?.life;
        watchdog.next_conn += 1;
        let id = watchdog.next_conn;
        watchdog.conns.insert(id, Conn { life, disk, fail_secs, wdmd, last: now, closed: false });
        self.wd_input(host, id, Told::Connected(id, Peer { fd: 0, pid: 1 }));
        Some(id)
    }

    /// Sends wdmd a message. False: it is gone.
    pub(crate) fn wd_send(&mut self, host: usize, conn: SourceId, message: Message) -> bool {
        self.wd_input(host, conn, Told::Message(conn, message))
    }

    /// Our end of the connection is closed.
    pub(crate) fn wd_close(&mut self, host: usize, conn: SourceId) {
        if let Some(c) = self.hosts[host].watchdog.conns.get_mut(&conn) {
            c.closed = true;
            self.wd_input(host, conn, Told::Ended(conn));
        }
    }

    fn wd_input(&mut self, host: usize, conn: SourceId, told: Told) -> bool {
        let delay =
            if self.dice.per_mille(50) { self.dice.spread(500, SECOND) } else { self.dice.between(5, 500) };
        let now = self.now;
        let watchdog = &mut self.hosts[host].watchdog;
        let Some(c) = watchdog.conns.get_mut(&conn) else { return false };
        c.last = c.last.max(now + delay);
        let (when, life) = (c.last, c.wdmd);
        let input = watchdog.next_input;
        watchdog.next_input += 1;
        watchdog.inputs.insert(input, told);
        self.at(when, Event::WdInput { host, life, input });
        true
    }

    /// Our daemon is gone: all its connections end.
    pub(crate) fn wd_daemon_gone(&mut self, host: usize, life: u32) {
        let conns: Vec<SourceId> = self.hosts[host]
            .watchdog
            .conns
            .iter()
            .filter(|(_, c)| c.life == life && !c.closed)
            .map(|(id, _)| *id)
            .collect();
        for conn in conns {
            self.wd_close(host, conn);
        }
    }

    /// Input has come.
    pub(crate) fn wd_arrived(&mut self, host: usize, life: u32, input: u64) {
        let Some(told) = self.hosts[host].watchdog.inputs.remove(&input) else { return };
        if let Some(process) = self.wd(host).filter(|p| p.life == life) {
            process.queue.push_back(told);
            self.wd_run(host);
        }
    }

    pub(crate) fn wd_wake(&mut self, host: usize, life: u32) {
        if let Some(process) = self.wd(host).filter(|p| p.life == life) {
            process.wake = None;
            process.ticked = false;
            self.wd_run(host);
        }
    }

    /// What an old wdmd answers: the device is in use.
    fn let_onto_a_doomed_host(&mut self, host: usize, message: Message) -> Message {
        let fire_timeout = u32::try_from(self.hosts[host].fire.secs()).unwrap_or(0);
        self.checks.marks.let_onto_doomed_hosts += 1;
        self.say(|w| format!("{:?} wdmd, an old one, lets somebody in", w.hosts[host].id));
        Message { fire_timeout, ..message }
    }

    /// Goes on until there is nothing to do, or the device is.
    fn wd_run(&mut self, host: usize) {
        loop {
            let (now, old) = (self.wd_now(host), self.hosts[host].old_wdmd);
            let Some(process) = self.wd(host).filter(|p| !p.frozen && p.busy.is_none()) else { return };
            if let Some(action) = process.pending.pop_front() {
                let life = process.life;
                match action {
                    Action::Arm { .. } | Action::Ping | Action::Disarm => {
                        process.busy = Some((action, false));
                        let takes = self.dice.between(1, 1500);
                        return self.at(self.now + takes, Event::WdDevice { host, life });
                    }
                    Action::Reply(conn, message) => {
                        let open = message.cmd == Command::OpenWatchdog.number();
                        let message = if open && std::mem::take(&mut process.too_strict) {
                            self.let_onto_a_doomed_host(host, message)
                        } else {
                            message
                        };
                        self.wd_reply(host, conn, message);
                    }
                    // Told before the reply to whom it is.
                    Action::Log(Notice::OpenRefused { reason: Refusal::Dead(_), .. }) if old => {
                        process.too_strict = true;
                    }
                    Action::Log(notice) => self.say(|w| format!("{:?} wdmd: {notice}", w.hosts[host].id)),
                    Action::Dump(_) | Action::Quit => {}
                }
                continue;
            }
            if !std::mem::replace(&mut process.ticked, true) {
                process.pending.extend(process.machine.handle(now, Told::Tick));
                continue;
            }
            if let Some(told) = process.queue.pop_front() {
                process.ticked = false;
                process.pending.extend(process.machine.handle(now, told.clone()));
                self.wd_told(host, &told);
                continue;
            }
            return self.wd_sleep(host, now);
        }
    }

    fn wd_sleep(&mut self, host: usize, now: Time) {
        let clock = self.hosts[host].clock;
        let true_now = self.now;
        let Some(process) = self.wd(host) else { return };
        let Some(at) = process.machine.wake_at(now) else { return };
        let left = u64::try_from(at.millis_since(now)).unwrap_or(0);
        let when = clock.when(clock.at(true_now).plus_millis(left)).max(true_now + 1);
        if process.wake.is_none_or(|planned| when < planned) {
            process.wake = Some(when);
            let life = process.life;
            self.at(when, Event::WdWake { host, life });
        }
    }

    fn wd_reply(&mut self, host: usize, conn: SourceId, message: Message) {
        let Some(c) = self.hosts[host].watchdog.conns.get(&conn).copied() else { return };
        if !c.closed && self.daemon(host).is_some_and(|d| d.life == c.life) {
            self.send(
                host,
                Source::Wdmd(conn),
                Thread::Watchdog,
                Letter::WdReply { conn, message: Box::new(message) },
            );
        }
    }

    /// What the checks are interested in of what wdmd has just taken in.
    fn wd_told(&mut self, host: usize, told: &Told) {
        let id = self.hosts[host].id;
        match told {
            Told::Message(conn, message) if message.cmd == Command::TestLive.number() => {
                let Some(c) = self.hosts[host].watchdog.conns.get(conn).copied() else { return };
                if message.expire_time != 0 {
                    return self.checks.expires(id, c.disk, message.expire_time, c.fail_secs);
                }
                if self.hosts[host].watchdog.covers(c.disk) {
                    return; // on another connection
                }
                self.checks.disarmed(id, c.life, c.disk);
                let all = self.settings.all_resources().filter(|r| layout::disk_of(*r) == c.disk);
                let writes: usize = all.map(|r| self.resource_writes_as_now(host, r)).sum();
                if writes > 0 && c.life == self.life_of(host) {
                    let what =
                        format!("R3: {id:?} disarms lockspace {} with {writes} writes in flight", c.disk);
                    self.checks.violated(what);
                }
            }
            Told::Ended(conn) => {
                self.hosts[host].watchdog.conns.remove(conn);
            }
            _ => {}
        }
    }

    /// What it is doing to the device takes effect.
    pub(crate) fn wd_device(&mut self, host: usize, life: u32) {
        let true_now = self.now;
        let now = self.wd_now(host);
        let (refused, rounds) = (self.strikes(Fault::WdRefuses), self.dice.per_mille(100));
        let can_disarm = self.hosts[host].can_disarm;
        let watchdog = &mut self.hosts[host].watchdog;
        let Some(process) = watchdog.process.as_mut().filter(|p| p.life == life) else { return };
        let Some((action, due)) = &mut process.busy else { return };
        if process.frozen {
            *due = true;
            return;
        }
        let device = &mut watchdog.device;
        let result = match *action {
            Action::Arm { .. } if refused && !device.running => Told::Armed(Armed::Failed),
            Action::Arm { device_timeout, .. } => {
                let rounded = if rounds && device_timeout > 3 { device_timeout - 1 } else { device_timeout };
                *device = Device { running: true, timeout_secs: rounded, pinged: true_now };
                Told::Armed(Armed::Running { device_timeout: DeviceTimeout::exactly(rounded), can_disarm })
            }
            Action::Disarm => {
                device.running = false;
                Told::Disarmed(true)
            }
            _ => {
                device.pinged = true_now;
                Told::Pinged(true)
            }
        };
        process.busy = None;
        let more = process.machine.handle(now, result);
        for action in more.into_iter().rev() {
            process.pending.push_front(action);
        }
        self.device_watch(host);
        self.wd_run(host);
    }

    fn device_watch(&mut self, host: usize) {
        let device = self.hosts[host].watchdog.device;
        if device.running {
            let epoch = self.hosts[host].epoch;
            let when = device.due(self.hosts[host].device_ppm) + self.fires_late();
            self.at(when, Event::DeviceFires { host, epoch });
        }
    }

    fn fires_late(&self) -> Micros {
        if self.sabotaged(Sabotage::FiresLate) { 2 * SECOND } else { 0 }
    }

    /// The time of the device may have come.
    pub(crate) fn device_fires(&mut self, host: usize) {
        let device = self.hosts[host].watchdog.device;
        let due = device.running && device.due(self.hosts[host].device_ppm) + self.fires_late() <= self.now;
        if due && self.hosts[host].up && !self.sabotaged(Sabotage::NeverFires) {
            self.fire(host);
        }
    }

    /// The device fires.
    pub(crate) fn fire(&mut self, host: usize) {
        self.say(|w| format!("{:?} reset by its watchdog", w.hosts[host].id));
        let h = &self.hosts[host];
        let id = h.id;
        let now = h.clock.at(self.now);
        self.checks.marks.fired += 1;
        self.checks.marks.saved_by_watchdog += self.checks.held_on(id) as u64;
        // A source that its daemon left behind, wdmd's own end, and daemons that stood still are reasons enough.
        let doomed = h.watchdog.sources().any(|s| s.dead());
        let recently =
            self.now.saturating_sub(h.excused) < h.longest_io_timeout().host_dead_secs(h.fire) * SECOND;
        let still = h.daemon.as_ref().is_some_and(|d| d.frozen || !d.stalled.is_empty());
        let just_left = self.checks.left_a_failed_one_lately(id);
        let excused = doomed || still || just_left || h.watchdog.faulted || (h.excused > 0 && recently);
        if !excused {
            let expired = self.checks.expired(id, now);
            let needed = expired.iter().any(|disk| {
                let mut all = self.settings.all_resources().filter(|r| layout::disk_of(*r) == *disk);
                // An acquire or release that still runs may be about to write.
                let runs = h.daemon.as_ref().is_some_and(|d| d.works_on(*disk));
                let used = self.checks.used(id, *disk) || self.checks.used_lately(id, *disk);
                runs || used || all.any(|r| self.resource_writes(host, r) > 0)
            });
            if expired.is_empty() {
                self.checks
                    .violated(format!("W1: {id:?} is reset though all its leases were renewed in time"));
            } else if !needed {
                self.checks
                    .violated(format!("W2: {id:?} is reset for lockspaces that nobody uses: {expired:?}"));
            }
        }
        self.reset(host);
    }

    /// A peer's expiry moves; its host is reset at the last moment allowed, a second before expiry + F ([`crate::bounds`]).
    pub(crate) fn watchdog_peer(&mut self, host: usize, expiry: u64) {
        let h = &mut self.hosts[host];
        h.watchdog.peer_expiry = h.watchdog.peer_expiry.max(expiry);
        let when = h.clock.when(MonoTime::from_secs(h.watchdog.peer_expiry + h.fire.secs() - 1));
        let epoch = h.epoch;
        self.at(when, Event::PeerWatchdog { host, epoch });
    }

    pub(crate) fn peer_watchdog(&mut self, host: usize) {
        let h = &self.hosts[host];
        let when = h.clock.when(MonoTime::from_secs(h.watchdog.peer_expiry + h.fire.secs() - 1));
        if h.up && when <= self.now {
            self.say(|w| format!("{:?} (reference) reset by its watchdog", w.hosts[host].id));
            self.reset(host);
        }
    }
}

impl Watchdog {
    /// What is on its way between wdmd and the daemon arrives later.
    pub(crate) fn arrivals_later(&mut self, now: Micros, later: impl Fn(Micros) -> Micros) {
        for conn in self.conns.values_mut().filter(|conn| conn.last > now) {
            conn.last = later(conn.last);
        }
    }

    /// The device stands still for that long.
    pub(crate) fn device_stands_still(&mut self, long: Micros) {
        self.device.pinged += long;
    }

    fn sources(&self) -> impl Iterator<Item = &sanlock_wdmd::decide::Source> {
        self.process.iter().flat_map(|p| p.machine.sources().map(|(_, s)| s))
    }

    /// Whether the device stands behind this lockspace: wdmd has an expiry for it, or is dead with the device running.
    pub(crate) fn covers(&self, disk: u8) -> bool {
        let doomed = self.device.running && self.process.is_none();
        doomed
            || self.peer_expiry > 0
            || self.process.as_ref().is_some_and(|p| {
                let here = |id: &SourceId| self.conns.get(id).is_some_and(|c| c.disk == disk);
                // What a daemon left behind has this host reset whatever it was for.
                p.machine.sources().any(|(id, s)| s.expire() != 0 && (s.dead() || here(&id)))
            })
    }
}
