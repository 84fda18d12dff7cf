//! What wdmd decides: when the device is armed, pinged, disarmed, and when the daemon may stop.
//!
//! *Why.* The promise to other hosts: after a source's expiry E the device fires at E + F at the latest (F: the agreed fire
//! timeout), whatever single thing crashes, stops or is killed. Decision 6 has the reasoning, `tests/bound.rs` the proof.
//!
//! *How to drive it.* [`Machine`] holds no handle and reads no clock. The driver tells it what happened with
//! [`Machine::handle`] and carries out the [`Action`]s in order. Actions on the device have a result; the driver hands it in
//! as an event, carrying out what that returns, before it goes on. At the end of each turn it hands in [`Event::Tick`], which
//! is when pings, disarming and stopping are decided, and sleeps until [`Machine::wake_at`] or the next input.
//!
//! *Invariants.* The device is pinged only while `now <= E + F − 2D − margin` for every source that relies on it; its file is
//! never closed while anything relies on it; it is disarmed only if nothing does.

mod event;
mod notice;
mod source;
mod timing;

pub use event::{Action, Armed, Event};
pub use notice::{Level, Notice, Refusal, TestLine};
pub use source::{Peer, Source, SourceId};
pub use timing::{
    DeviceTimeout, FIRE_TIMEOUT_MAX, FIRE_TIMEOUT_MIN, ROUNDED_DEVICE_TIMEOUT_MIN, Time, Timing,
    ping_every_ms, test_interval, wanted_device_timeout,
};

use crate::protocol::{Command, DEFAULT_FIRE_TIMEOUT, Message, Name};
use std::collections::BTreeMap;

/// A failed ping or disarming is tried again after this.
const RETRY_MS: i64 = 500;
/// Pause between pings once a source is bad or close to its expiry: the later the last one, the more time its client has left
/// to be stopped by its own daemon. With F = 60 that one sends SIGKILL 40 s after the expiry, and the reset is to come after.
const HURRIED_PING_MS: i64 = 1000;
/// A device that has not fired this long after it should have does not protect this host.
const OVERDUE_MS: i64 = 5000;
/// Of the time between two looks at a device that gets nothing so much counts at most: ticks come every second, and where one is later the machine may have
/// stood still, and its device with it.
const WATCHED_MS: i64 = 2000;
/// How far ahead an expiry that a client left behind may be for this host to be called doomed by it. Those of lock managers are some minutes ahead, of
/// the longest io timeout (255 s) 34; one beyond a day is no promise to anybody who takes over, and nobody new is kept out for it until its time comes. Nothing else
/// depends on it: pings end for that expiry as for any other.
const DOOMED_WITHIN_MS: i64 = FIRE_TIMEOUT_MAX as i64 * 1000;
/// Test lines are repeated after this.
const REPORT_EVERY_MS: i64 = 1000;
/// How long a stop that has to wait is remembered: as long as a service manager waits for it with our unit, before it asks once more and then gives up.
const STOP_REMEMBERED_MS: i64 = 30_000;
/// Clients named in the log per report; a host with thousands of expired clients is not to drown in its log.
pub const MAX_TEST_LINES: usize = 16;

/// After how long without a ping a device has failed to fire.
fn overdue_ms(device: DeviceTimeout) -> i64 {
    i64::from(device.latest()) * 1000 + OVERDUE_MS
}

/// A device whose file is open.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Running {
    /// When it truly resets the host.
    device: DeviceTimeout,
    can_disarm: bool,
    /// Last ping that succeeded.
    pinged: Time,
    /// When the next ping is due.
    next_ping: Time,
    /// When a failed disarming is tried again.
    next_disarm: Time,
    /// The last ping failed.
    failing: bool,
    /// Since when it is being pinged: the call can hang in the driver.
    pinging: Option<Time>,
}

/// The decisions as a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Machine {
    sources: BTreeMap<SourceId, Source>,
    /// Scripts that are bad, and since when.
    bad_scripts: BTreeMap<u8, Time>,
    device: Option<Running>,
    /// Somebody relies on the device: it runs with this timing.
    enabled: Option<Timing>,
    /// The fire timeout shown: that of the last arming.
    fire_timeout: u32,
    last_keepalive: u64,
    /// Who gets an answer when the arming has succeeded or failed: the request, if it was one.
    arming: Option<(SourceId, u32, Option<Message>)>,
    /// When test lines are due, while there are any.
    next_report: Option<Time>,
    /// Pings have ended.
    starving: bool,
    /// For how long the device has got nothing, as far as that was watched, and when it was looked at last.
    unfed: Option<(i64, Time)>,
    /// The device should have fired and has not. This machine trusts it no more, whatever it does from now on.
    broken: bool,
    /// When the daemon was told to stop, as long as that is remembered.
    told_to_stop: Option<Time>,
    stop_deferred: bool,
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine {
    /// Nobody connected, the device closed.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            sources: BTreeMap::new(),
            bad_scripts: BTreeMap::new(),
            device: None,
            enabled: None,
            fire_timeout: DEFAULT_FIRE_TIMEOUT,
            last_keepalive: 0,
            arming: None,
            next_report: None,
            starving: false,
            unfed: None,
            broken: false,
            told_to_stop: None,
            stop_deferred: false,
        }
    }

    /// Nobody connected, but the device runs with this timeout: it could not be stopped after a look at it. It is pinged,
    /// and stopped as soon as that can be done.
    #[must_use]
    pub fn with_device_left_running(now: Time, device_timeout: DeviceTimeout) -> Self {
        let device = Running {
            device: device_timeout,
            can_disarm: true,
            pinged: now,
            next_ping: now,
            next_disarm: now,
            failing: false,
            pinging: None,
        };
        Self { device: Some(device), ..Self::new() }
    }

    /// The slot with this number, if it is used.
    #[must_use]
    pub fn source(&self, id: SourceId) -> Option<&Source> {
        self.sources.get(&id)
    }

    /// All used slots in the order of their numbers.
    pub fn sources(&self) -> impl Iterator<Item = (SourceId, &Source)> {
        self.sources.iter().map(|(&id, source)| (id, source))
    }

    /// The fire timeout as STATUS and the dump show it.
    #[must_use]
    pub const fn fire_timeout(&self) -> u32 {
        self.fire_timeout
    }

    /// Second of the last successful ping, 0 if there was none.
    #[must_use]
    pub const fn last_keepalive(&self) -> u64 {
        self.last_keepalive
    }

    /// Whether somebody relies on the device; scripts are run only then.
    #[must_use]
    pub const fn enabled(&self) -> bool {
        self.enabled.is_some()
    }

    /// The current test interval: 1 while a source is bad or close to its expiry (5.3).
    #[must_use]
    pub fn current_interval(&self, now: Time) -> u32 {
        let standard = test_interval(self.fire_timeout);
        match self.enabled {
            Some(timing) if !self.bad_scripts.is_empty() || self.due(timing, now).next().is_some() => 1,
            _ => standard,
        }
    }

    /// When the next [`Event::Tick`] is due if nothing else happens.
    #[must_use]
    pub fn wake_at(&self, now: Time) -> Option<Time> {
        let device = self.device.as_ref()?;
        let mut at = self.next_report;
        let mut sooner = |time: Time| at = Some(at.map_or(time, |at| at.min(time)));
        if !self.starved(now) {
            sooner(device.next_ping);
        }
        if self.enabled.is_none() && device.can_disarm {
            sooner(device.next_disarm);
        }
        if let Some(timing) = self.enabled.filter(|_| self.next_report.is_none()) {
            self.expiries().map(|(_, expire)| timing.warn_from(expire)).for_each(sooner);
        }
        at
    }

    /// Tells what happened at `now`, which never goes back; returns what to do about it, in this order.
    pub fn handle(&mut self, now: Time, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        self.forget_stop(now, &mut actions);
        match event {
            Event::Connected(id, peer) => {
                self.sources.insert(id, Source::new(peer));
            }
            Event::Message(id, message) => self.message(now, id, &message, &mut actions),
            Event::Ended(id) => self.ended(id, &mut actions),
            Event::Armed(result) => self.armed(now, result, &mut actions),
            Event::Pinged(ok) => self.pinged(now, ok, &mut actions),
            Event::Disarmed(ok) => self.disarmed(now, ok, &mut actions),
            Event::Script { slot, good: true } => {
                self.bad_scripts.remove(&slot);
            }
            // What a script says while nobody relies on the device is not asked again before somebody does.
            Event::Script { slot, good: false } if self.enabled.is_some() => {
                self.bad_scripts.entry(slot).or_insert(now);
            }
            Event::Script { .. } => {}
            Event::Terminate => {
                self.told_to_stop = Some(now);
                self.stop_deferred = false;
            }
            Event::Tick => self.tick(now, &mut actions),
        }
        actions
    }

    fn message(&mut self, now: Time, id: SourceId, message: &Message, actions: &mut Vec<Action>) {
        let Some(source) = self.sources.get_mut(&id).filter(|source| !source.dead) else { return };
        match Command::from_number(message.cmd) {
            Some(Command::Register) => {
                source.name = message.name;
                source.pid = source.peer.pid;
                let (fd, pid, name) = (source.peer.fd, source.pid, source.name);
                actions.push(Action::Log(Notice::Registered { source: id, fd, pid, name }));
            }
            Some(Command::RefcountSet) => {
                source.refcount = true;
                self.arm_unasked(now, id, actions);
            }
            Some(Command::RefcountClear) => source.refcount = false,
            Some(Command::TestLive) => {
                let (renewal, expire) = (message.renewal_time, message.expire_time);
                source.renewal = renewal;
                source.expire = expire;
                actions.push(Action::Log(Notice::Live { source: id, renewal, expire }));
                if expire != 0 {
                    self.arm_unasked(now, id, actions);
                }
            }
            Some(Command::Status) => {
                let unprotected = self.broken || (self.enabled.is_none() && source.needs_device());
                let reply = Message {
                    test_interval: self.current_interval(now),
                    fire_timeout: if unprotected { 0 } else { self.fire_timeout },
                    last_keepalive: self.last_keepalive,
                    ..*message
                };
                actions.push(Action::Reply(id, reply));
            }
            Some(Command::DumpDebug) => {
                if source.name == Name::EMPTY {
                    source.name = Name::new(b"dump").unwrap_or(Name::EMPTY);
                }
                actions.push(Action::Dump(id));
            }
            Some(Command::OpenWatchdog) => self.open(now, id, message, actions),
            None => {}
        }
    }

    fn open(&mut self, now: Time, id: SourceId, message: &Message, actions: &mut Vec<Action>) {
        let asked = message.fire_timeout;
        // Of a device in use the timeout asked for is not looked at; the client compares.
        let fire = self.enabled.map_or(asked, Timing::fire_timeout);
        if let Err(reason) = self.may_arm(now, None, fire) {
            actions.push(Action::Log(Notice::OpenRefused { asked, reason }));
            self.answer_open(id, message, 0, actions);
        } else if self.enabled.is_some() {
            self.answer_open(id, message, fire, actions);
        } else {
            self.arming = Some((id, fire, Some(*message)));
            actions.extend(arm(fire));
        }
    }

    /// A client that relies on the device without having asked for it is one of the first generation: it expects 60 s.
    fn arm_unasked(&mut self, now: Time, id: SourceId, actions: &mut Vec<Action>) {
        if self.enabled.is_some() {
            return;
        }
        let fire = DEFAULT_FIRE_TIMEOUT;
        // Its own expiry does not count: one in the past asks for a reset.
        if let Err(reason) = self.may_arm(now, Some(id), fire) {
            actions.push(Action::Log(Notice::OpenRefused { asked: fire, reason }));
            self.unprotected(id, actions);
        } else {
            self.arming = Some((id, fire, None));
            actions.extend(arm(fire));
        }
    }

    /// Nobody is promised protection by a device that is about to reset the host, or would not.
    fn may_arm(&self, now: Time, except: Option<SourceId>, fire: u32) -> Result<(), Refusal> {
        if self.broken {
            let dead = self.sources.iter().find(|(_, source)| source.dead).map(|(&id, _)| id);
            let no_way_out = self.device.as_ref().is_some_and(|device| !device.can_disarm);
            return Err(Refusal::Broken { dead, no_way_out });
        }
        // Its expiry cannot be moved any more.
        let dooms = |source: &Source| {
            source.dead && source.expires_at().is_some_and(|at| at.millis_since(now) <= DOOMED_WITHIN_MS)
        };
        if let Some((&id, _)) = self.sources.iter().find(|(_, source)| dooms(source)) {
            return Err(Refusal::Dead(id));
        }
        let wanted =
            wanted_device_timeout(fire).and_then(|device| Timing::new(fire, DeviceTimeout::exactly(device)));
        let timing = self.enabled.or(wanted).ok_or(Refusal::FireTimeout)?;
        if let Some((other, _)) =
            self.expiries().find(|&(other, expire)| Some(other) != except && now > timing.last_ping(expire))
        {
            let relied_on = self.enabled.is_some();
            return Err(if relied_on { Refusal::Expired(other) } else { Refusal::Past(other) });
        }
        match self.bad_scripts.iter().find(|&(_, &since)| now > timing.last_ping(since)) {
            Some((&script, _)) => Err(Refusal::Script(script)),
            None => Ok(()),
        }
    }

    fn answer_open(&self, id: SourceId, request: &Message, result: u32, actions: &mut Vec<Action>) {
        actions.push(Action::Log(Notice::Opened { asked: request.fire_timeout, result }));
        actions.push(Action::Reply(id, Message { fire_timeout: result, ..*request }));
    }

    fn unprotected(&self, id: SourceId, actions: &mut Vec<Action>) {
        if let Some(source) = self.sources.get(&id) {
            let (pid, name) = (source.peer.pid, source.name);
            actions.push(Action::Log(Notice::Unprotected { source: id, pid, name }));
        }
    }

    fn armed(&mut self, now: Time, result: Armed, actions: &mut Vec<Action>) {
        let Some((id, fire, request)) = self.arming.take() else { return };
        let (timing, device, can_disarm) = match result {
            Armed::Failed => (None, None, false),
            Armed::Stuck { device_timeout, can_disarm } => (None, Some(device_timeout), can_disarm),
            // A driver that reports success with a timeout that cannot be used is one that must be stopped again.
            Armed::Running { device_timeout, can_disarm } => {
                (Timing::new(fire, device_timeout), Some(device_timeout), can_disarm)
            }
        };
        // One that runs as before has not been pinged: asking for it must not hide for how long it takes no pings.
        let as_before = self.device.as_ref().filter(|_| matches!(result, Armed::Stuck { .. }));
        let (pinged, failing) = as_before.map_or((now, false), |before| (before.pinged, before.failing));
        self.device = device.map(|device| Running {
            device,
            can_disarm,
            pinged,
            next_ping: now.plus_millis(timing.map_or(ping_every_ms(device), Timing::ping_every_ms)),
            next_disarm: now,
            failing,
            pinging: None,
        });
        self.enabled = timing;
        if matches!(result, Armed::Running { .. }) {
            self.last_keepalive = now.seconds();
        }
        if let Some(timing) = timing {
            self.fire_timeout = timing.fire_timeout();
        }
        match request {
            Some(request) => {
                let result = timing.map_or(0, Timing::fire_timeout);
                self.answer_open(id, &request, result, actions);
            }
            None if timing.is_none() => self.unprotected(id, actions),
            None => {}
        }
    }

    fn ended(&mut self, id: SourceId, actions: &mut Vec<Action>) {
        let enabled = self.enabled.is_some();
        let Some(source) = self.sources.get_mut(&id).filter(|source| !source.dead) else { return };
        if source.expire == 0 {
            self.sources.remove(&id);
            actions.push(Action::Log(Notice::ClientGone { source: id }));
            return;
        }
        let Source { peer: Peer { fd, .. }, pid, renewal, expire, name, .. } = *source;
        actions.push(Action::Log(Notice::ClientDead { source: id, fd, pid, renewal, expire, name }));
        if enabled {
            source.dead = true;
        } else {
            // Was told that nothing protects it; kept, it would doom whoever arms the device next.
            self.sources.remove(&id);
        }
    }

    fn pinged(&mut self, now: Time, ok: bool, actions: &mut Vec<Action>) {
        let hurried = self.next_report.is_some() || !self.bad_scripts.is_empty();
        let every = self.enabled.map(|timing| match timing.ping_every_ms() {
            every if hurried => every.min(HURRIED_PING_MS),
            every => every,
        });
        if let Some(device) = &mut self.device {
            let every = every.unwrap_or_else(|| ping_every_ms(device.device));
            // A call that took longer than the device waits: whatever came of it, the device should have fired meanwhile.
            let hung = device
                .pinging
                .take()
                .is_some_and(|since| now.millis_since(since) >= overdue_ms(device.device));
            let seconds = now.millis_since(device.pinged) / 1000;
            device.failing = !ok;
            if ok {
                device.pinged = now;
                device.next_ping = now.plus_millis(every);
                self.last_keepalive = now.seconds();
            } else {
                device.next_ping = now.plus_millis(every.min(RETRY_MS));
            }
            if hung {
                self.did_not_fire(seconds, actions);
            }
        }
    }

    /// It was time for the device to reset this host.
    fn did_not_fire(&mut self, seconds: i64, actions: &mut Vec<Action>) {
        if !std::mem::replace(&mut self.broken, true) {
            actions.push(Action::Log(Notice::DidNotFire { seconds }));
        }
    }

    fn disarmed(&mut self, now: Time, ok: bool, actions: &mut Vec<Action>) {
        if ok {
            self.device = None;
            self.stop_if_told(actions);
        } else if let Some(device) = &mut self.device {
            device.next_disarm = now.plus_millis(RETRY_MS);
        }
    }

    fn tick(&mut self, now: Time, actions: &mut Vec<Action>) {
        if self.unused() && self.enabled.take().is_some() {
            actions.push(Action::Log(Notice::Unused));
            self.next_report = None;
        }
        self.report(now, actions);
        self.feed_or_starve(now, actions);
        self.stop_if_told(actions);
    }

    /// Disarms a device that nobody needs, pings one that may be pinged.
    fn feed_or_starve(&mut self, now: Time, actions: &mut Vec<Action>) {
        let Some(device) = &self.device else {
            self.starving = false;
            self.unfed = None;
            return;
        };
        let (due, failing, pinged) = (now >= device.next_ping, device.failing, device.pinged);
        let overdue = overdue_ms(device.device);
        if self.enabled.is_none() && device.can_disarm && now >= device.next_disarm {
            actions.push(Action::Disarm);
            return;
        }
        let starved = self.starved(now);
        if starved != self.starving {
            self.starving = starved;
            actions.push(Action::Log(if starved {
                Notice::PingsEnd { remaining: self.remaining(now) }
            } else {
                Notice::PingsResume
            }));
        }
        if !starved && due {
            actions.push(Action::Ping);
            if let Some(device) = &mut self.device {
                device.pinging.get_or_insert(now);
            }
        }
        self.unfed = (starved || failing).then(|| {
            let (unfed, seen) = self.unfed.unwrap_or((0, now));
            (unfed + now.millis_since(seen).clamp(0, WATCHED_MS), now)
        });
        if self.unfed.is_some_and(|(unfed, _)| unfed >= overdue) {
            self.did_not_fire(now.millis_since(pinged) / 1000, actions);
        }
    }

    /// What a stop has to wait for: sources that need the device, failing scripts, a device that cannot be disarmed.
    fn stop_waits_for(&self) -> Option<(usize, usize, bool)> {
        let sources = self.sources.values().filter(|source| source.needs_device()).count();
        let scripts = if self.enabled.is_some() { self.bad_scripts.len() } else { 0 };
        let no_way_out = self.device.as_ref().is_some_and(|device| !device.can_disarm);
        (sources > 0 || scripts > 0 || no_way_out).then_some((sources, scripts, no_way_out))
    }

    /// Who told the daemon to stop waits for half a minute, as systemd does (`TimeoutStopSec`), and tells it once more then. Later, when a lock manager holds nothing for a moment, nobody wants that stop
    /// any more, and nobody would start the daemon again. Looked at before anything that happens now counts.
    fn forget_stop(&mut self, now: Time, actions: &mut Vec<Action>) {
        let over = self.told_to_stop.is_some_and(|told| now.millis_since(told) >= STOP_REMEMBERED_MS);
        if over && self.stop_waits_for().is_some() {
            self.told_to_stop = None;
            actions.push(Action::Log(Notice::StopForgotten));
        }
    }

    /// Ends the daemon if it was told to stop and nobody relies on it.
    fn stop_if_told(&mut self, actions: &mut Vec<Action>) {
        if self.told_to_stop.is_none() {
            return;
        }
        if let Some((sources, scripts, no_way_out)) = self.stop_waits_for() {
            if !std::mem::replace(&mut self.stop_deferred, true) {
                actions.push(Action::Log(Notice::StopDeferred { sources, scripts, no_way_out }));
            }
        } else if self.device.is_none() {
            actions.push(Action::Quit);
        } else if !actions.contains(&Action::Disarm) {
            // Connections that rely on nothing do not keep the daemon.
            self.enabled = None;
            actions.push(Action::Disarm);
        }
    }

    /// Writes the test lines, at once when a source becomes bad, then every second.
    fn report(&mut self, now: Time, actions: &mut Vec<Action>) {
        let Some(timing) = self.enabled else { return };
        let mut due = self.due(timing, now).peekable();
        if due.peek().is_none() {
            drop(due);
            self.next_report = None;
            return;
        }
        if self.next_report.is_some_and(|at| now < at) {
            return;
        }
        let remaining = self.remaining(now);
        for (source, expire) in due.by_ref().take(MAX_TEST_LINES) {
            let line = TestLine {
                now: now.seconds(),
                ping: self.last_keepalive,
                renewal: source.renewal,
                expire: source.expire,
                pid: source.pid,
                name: source.name,
            };
            actions.push(Action::Log(if now >= expire {
                Notice::TestFailed { remaining, line }
            } else {
                Notice::TestWarning(line)
            }));
        }
        let count = due.count();
        if count > 0 {
            actions.push(Action::Log(Notice::MoreTestLines { count }));
        }
        self.next_report = Some(now.plus_millis(REPORT_EVERY_MS));
    }

    /// Seconds until the device fires, at the latest, if no source says anything more; 0 if it should have fired.
    fn remaining(&self, now: Time) -> i64 {
        let Some(device) = &self.device else { return 0 };
        let last = self.last_ping().filter(|&last| now <= last).unwrap_or(device.pinged);
        let fires = last.plus_millis(i64::from(device.device.latest()) * 1000);
        (fires.millis_since(now) / 1000).max(0)
    }

    /// The last moment at which the device may be pinged; `None`: no source limits it.
    fn last_ping(&self) -> Option<Time> {
        let timing = self.enabled?;
        let clients = self.expiries().map(|(_, expire)| expire);
        clients.chain(self.bad_scripts.values().copied()).map(|expire| timing.last_ping(expire)).min()
    }

    fn starved(&self, now: Time) -> bool {
        self.last_ping().is_some_and(|last| now > last)
    }

    fn expiries(&self) -> impl Iterator<Item = (SourceId, Time)> {
        self.sources.iter().filter_map(|(&id, source)| Some((id, source.expires_at()?)))
    }

    /// Clients close to their expiry or past it.
    fn due(&self, timing: Timing, now: Time) -> impl Iterator<Item = (&Source, Time)> {
        let expiring = self.sources.values().filter_map(|source| Some((source, source.expires_at()?)));
        expiring.filter(move |&(_, expire)| now >= timing.warn_from(expire))
    }

    /// Nobody needs the device: no connection, nothing left behind, and no script that wants this host reset.
    fn unused(&self) -> bool {
        self.sources.is_empty() && self.bad_scripts.is_empty()
    }
}

fn arm(fire_timeout: u32) -> Option<Action> {
    let device_timeout = wanted_device_timeout(fire_timeout)?;
    Some(Action::Arm { fire_timeout, device_timeout })
}

#[cfg(test)]
mod tests;
