//! A model of one host: the kernel's watchdog, a daemon that carries out [`Machine`]'s actions one system call at a time, and
//! clients that follow a script. Faults strike between any two system calls.

use sanlock_wdmd::decide::{Action, Armed, DeviceTimeout, Event, Machine, Peer, SourceId, Time};
use sanlock_wdmd::protocol::{Command, Message};
use std::collections::BTreeMap;

/// A driver's timeout before anybody sets another.
const DRIVER_DEFAULT_MS: i64 = 60_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The daemon ends without a word; the kernel closes its files.
    Death,
    /// The daemon does nothing for that many milliseconds; everybody else goes on.
    Stall(i64),
}

/// What a client does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Act {
    Connect,
    Send(Message),
    Close,
    /// No act of a client: a script has become good or bad.
    Script {
        slot: u8,
        good: bool,
    },
}

/// Who was promised that the device fires in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promised {
    Client(SourceId),
    Script(u8),
}

pub(crate) fn open(fire_timeout: u32) -> Act {
    Act::Send(Message { fire_timeout, ..Message::new(Command::OpenWatchdog) })
}

pub(crate) fn live(renewal_time: u64, expire_time: u64) -> Act {
    Act::Send(Message { renewal_time, expire_time, ..Message::new(Command::TestLive) })
}

/// The kernel's side. A file closed without `V`, by whomever, pings and leaves the timer running.
#[derive(Debug, Clone)]
struct Watchdog {
    timeout_ms: i64,
    /// What the driver reports, and is told, is half of that; it fires somewhere from then on: so many quarters later.
    second_expiry: Option<i64>,
    /// What the driver makes of a wish.
    rounds_down_to_ms: i64,
    fires_at: Option<i64>,
    open: bool,
    /// The next close stops it. Keepalives change nothing about that, only another write does.
    magic: bool,
    /// It notes a `V` and fails then, as the kernel does when the ping that belongs to it fails.
    stop_fails: bool,
}

impl Watchdog {
    fn ping(&mut self, now: i64) {
        let quarters = self.second_expiry.unwrap_or(4);
        self.fires_at = Some(now + self.timeout_ms / 2 + self.timeout_ms / 2 * quarters / 4);
    }

    fn close(&mut self, now: i64) {
        if std::mem::replace(&mut self.open, false) {
            if std::mem::replace(&mut self.magic, false) {
                self.fires_at = None;
            } else {
                self.ping(now);
            }
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) now: i64,
    machine: Machine,
    watchdog: Watchdog,
    /// The daemon takes a `V` back before anybody relies on a device that would not stop.
    takes_back: bool,
    acts: Vec<(i64, SourceId, Act)>,
    /// Scheduling delay of every turn.
    late: i64,
    /// Which fault strikes at which point; points are counted from 0.
    faults: Vec<(usize, Fault)>,
    pub(crate) points: usize,
    dead: bool,
    pub(crate) fired_at: Option<i64>,
    /// Fire timeout of the last arming that the daemon reported as a success.
    pub(crate) fire_timeout: i64,
    /// Expiries that the daemon has accepted and that nobody has taken back, milliseconds. That of a bad script is the moment at which the daemon
    /// was told so.
    pub(crate) promised: BTreeMap<Promised, i64>,
    pub(crate) pings: usize,
}

/// The host was reset, or the daemon has ended: nothing of it runs any more.
struct Over;

impl World {
    pub(crate) fn new(acts: Vec<(i64, SourceId, Act)>, late: i64, faults: Vec<(usize, Fault)>) -> Self {
        let watchdog = Watchdog {
            timeout_ms: DRIVER_DEFAULT_MS,
            second_expiry: None,
            rounds_down_to_ms: 1000,
            fires_at: None,
            open: false,
            magic: false,
            stop_fails: false,
        };
        Self {
            now: 0,
            machine: Machine::new(),
            watchdog,
            takes_back: true,
            acts,
            late,
            faults,
            points: 0,
            dead: false,
            fired_at: None,
            fire_timeout: 0,
            promised: BTreeMap::new(),
            pings: 0,
        }
    }

    pub(crate) fn rounding_down_to(mut self, seconds: i64) -> Self {
        self.watchdog.rounds_down_to_ms = seconds * 1000;
        self
    }

    /// The device fires at its second expiry at the latest, `quarters` quarters from the first to the second.
    pub(crate) fn firing_between_expiries(mut self, quarters: i64) -> Self {
        self.watchdog.second_expiry = Some(quarters);
        self.watchdog.rounds_down_to_ms = 2000;
        self
    }

    /// The device cannot be stopped.
    pub(crate) fn that_will_not_stop(mut self) -> Self {
        self.watchdog.stop_fails = true;
        self
    }

    /// The daemon forgets to take a `V` back.
    pub(crate) fn without_taking_back(mut self) -> Self {
        self.takes_back = false;
        self
    }

    /// Runs until `end` or the reset of the host.
    pub(crate) fn run(mut self, end: i64) -> Self {
        while !self.dead && self.fired_at.is_none() && self.now < end {
            let clock = Time::from_millis(self.now.unsigned_abs());
            let wake = self.machine.wake_at(clock).map_or(end, |at| at.millis_since(Time::from_millis(0)));
            let act = self.acts.first().map_or(end, |&(at, ..)| at);
            self.now = wake.min(act).min(end).max(self.now) + self.late;
            let _ = self.turn();
            // Time passes even if a turn has nothing to do.
            self.now += 1;
        }
        self.now = self.now.max(end);
        let _ = self.reached();
        self
    }

    /// A point between two system calls: the device may have fired, a fault may strike.
    fn reached(&mut self) -> Result<(), Over> {
        if let Some(at) = self.watchdog.fires_at.filter(|&at| at <= self.now) {
            self.fired_at.get_or_insert(at);
        }
        if self.dead || self.fired_at.is_some() { Err(Over) } else { Ok(()) }
    }

    fn point(&mut self) -> Result<(), Over> {
        let index = self.points;
        self.points += 1;
        self.reached()?;
        match self.faults.iter().find(|(at, _)| *at == index).map(|&(_, fault)| fault) {
            Some(Fault::Death) => {
                self.watchdog.close(self.now);
                self.dead = true;
                Err(Over)
            }
            Some(Fault::Stall(millis)) => {
                self.now += millis;
                self.reached()
            }
            None => Ok(()),
        }
    }

    fn turn(&mut self) -> Result<(), Over> {
        self.point()?;
        let clock = self.now;
        while let Some(&(at, id, act)) = self.acts.first().filter(|(at, ..)| *at <= clock) {
            assert!(at <= self.now);
            self.acts.remove(0);
            match act {
                Act::Connect => self.tell(clock, Event::Connected(id, Peer { fd: 0, pid: 0 }))?,
                Act::Close => self.tell(clock, Event::Ended(id))?,
                Act::Send(message) => {
                    self.tell(clock, Event::Message(id, message))?;
                    if message.cmd == Command::TestLive.number() {
                        self.promise(id, i64::try_from(message.expire_time).unwrap());
                    }
                }
                Act::Script { slot, good } => {
                    // What one says while nobody relies on the device is not looked at.
                    if good {
                        self.promised.remove(&Promised::Script(slot));
                    } else if self.machine.enabled() {
                        self.promised.entry(Promised::Script(slot)).or_insert(clock);
                    }
                    self.tell(clock, Event::Script { slot, good })?;
                }
            }
            self.point()?;
        }
        let clock = self.now;
        // The worst moment for a stall: between reading the clock and acting on it.
        self.point()?;
        self.tell(clock, Event::Tick)
    }

    /// The daemon has read an expiry. One that is past when it is first read was never confirmed to the client, which so
    /// never relied on it; a renewal that is read late still counts.
    fn promise(&mut self, id: SourceId, expire: i64) {
        let (expire, client) = (expire * 1000, Promised::Client(id));
        let before = self.promised.get(&client).copied();
        if expire == 0 {
            self.promised.remove(&client);
        } else if self.now <= expire || before.is_some_and(|before| before <= expire) {
            self.promised.insert(client, expire);
        }
    }

    fn tell(&mut self, clock: i64, event: Event) -> Result<(), Over> {
        for action in self.machine.handle(Time::from_millis(clock.unsigned_abs()), event) {
            match action {
                Action::Arm { device_timeout, .. } => {
                    if !std::mem::replace(&mut self.watchdog.open, true) {
                        self.watchdog.ping(self.now);
                    } else if self.takes_back {
                        self.watchdog.magic = false;
                        self.watchdog.ping(self.now);
                    }
                    self.point()?;
                    let wanted = i64::from(device_timeout) * 1000;
                    let rounding = self.watchdog.rounds_down_to_ms;
                    self.watchdog.timeout_ms = (wanted / rounding * rounding).max(1000);
                    self.watchdog.ping(self.now);
                    self.point()?;
                    self.watchdog.ping(self.now);
                    self.point()?;
                    let latest = u32::try_from(self.watchdog.timeout_ms / 1000).unwrap();
                    let earliest = if self.watchdog.second_expiry.is_some() { latest / 2 } else { latest };
                    let device_timeout = DeviceTimeout::between(earliest, latest);
                    self.tell(self.now, Event::Armed(Armed::Running { device_timeout, can_disarm: true }))?;
                }
                Action::Ping => {
                    self.point()?;
                    self.watchdog.ping(self.now);
                    self.pings += 1;
                    self.point()?;
                    self.tell(self.now, Event::Pinged(true))?;
                }
                Action::Disarm => {
                    self.point()?;
                    self.watchdog.magic = true;
                    if self.watchdog.stop_fails {
                        self.point()?;
                        self.tell(self.now, Event::Disarmed(false))?;
                        continue;
                    }
                    self.watchdog.ping(self.now);
                    self.point()?;
                    self.watchdog.close(self.now);
                    self.point()?;
                    self.tell(self.now, Event::Disarmed(true))?;
                }
                Action::Reply(_, reply) if reply.cmd == Command::OpenWatchdog.number() => {
                    self.point()?;
                    if reply.fire_timeout != 0 {
                        self.fire_timeout = i64::from(reply.fire_timeout);
                    }
                }
                Action::Quit => {
                    self.watchdog.close(self.now);
                    self.dead = true;
                    return Err(Over);
                }
                Action::Reply(..) | Action::Dump(_) | Action::Log(_) => {}
            }
        }
        Ok(())
    }
}
