//! wdmd: messages as they come, and whole sessions of its clients with a device that does what it likes.

use sanlock_wdmd::decide::{
    Action, Armed, DeviceTimeout, Event, FIRE_TIMEOUT_MAX, MAX_TEST_LINES, Machine, Peer, SourceId, Time,
    wanted_device_timeout,
};
use sanlock_wdmd::protocol::{Command, MESSAGE_LEN, Message, Name};
use std::collections::BTreeMap;

use crate::data::Data;

/// Steps of one input.
const STEPS_MAX: usize = 400;
/// Connections at a time.
const SOURCES_MAX: u32 = 40;
/// Turns without anything to do before the daemon would spin.
const IDLE_TURNS_MAX: usize = 3;

/// Clients connect, send messages and leave; scripts fail; the device arms, pings and disarms, or does not.
///
/// * Nothing panics; a message decoded and encoded has the same bytes.
/// * One event leads to a bounded number of actions, one request to one answer, and a turn with nothing to do to none later than now.
/// * The device is pinged only if it still fires in time for every client that it was promised to, and disarmed only if nobody
///   relies on it.
pub fn wdmd(data: &[u8]) {
    if let Some((bytes, _)) = data.split_first_chunk::<MESSAGE_LEN>() {
        let message = Message::decode(bytes);
        assert_eq!(message.encode(), *bytes);
        let _shown = format!("{message:?}");
    }
    let mut data = Data::new(data);
    let mut world =
        World { machine: Machine::new(), now: 1000, device: None, asked: BTreeMap::new(), quit: false };
    for _ in 0..STEPS_MAX {
        if !data.more() || world.quit {
            break;
        }
        world.step(&mut data);
    }
    world.idle();
}

/// The device, open: its true timeout in seconds, at the latest.
#[derive(Clone, Copy)]
struct Device {
    timeout: u32,
}

struct World {
    machine: Machine,
    /// Milliseconds.
    now: u64,
    device: Option<Device>,
    /// Answers that are due.
    asked: BTreeMap<SourceId, usize>,
    quit: bool,
}

impl World {
    fn time(&self) -> Time {
        Time::from_millis(self.now)
    }

    fn step(&mut self, data: &mut Data<'_>) {
        let id = u32::from(data.byte()) % SOURCES_MAX;
        match data.byte() % 10 {
            0 if self.machine.source(id).is_none() => {
                let peer = Peer { fd: i32::from(data.byte()), pid: i32::from(data.byte()) };
                self.tell(data, Event::Connected(id, peer));
            }
            0..=4 if self.machine.source(id).is_some_and(|source| !source.dead()) => {
                let message = self.message(data);
                if matches!(
                    Command::from_number(message.cmd),
                    Some(Command::Status | Command::OpenWatchdog | Command::DumpDebug)
                ) {
                    *self.asked.entry(id).or_default() += 1;
                }
                self.tell(data, Event::Message(id, message));
                assert_eq!(self.asked.get(&id).copied().unwrap_or(0), 0, "a question is answered");
            }
            5 if self.machine.source(id).is_some_and(|source| !source.dead()) => {
                self.tell(data, Event::Ended(id))
            }
            6 => {
                let (slot, good) = (data.byte() % 8, data.one_in(2));
                self.tell(data, Event::Script { slot, good });
            }
            7 if data.byte() >= 250 => self.tell(data, Event::Terminate),
            8 => {
                // To the next turn, or later: the daemon may be held up.
                let wake = self.machine.wake_at(self.time());
                let at = wake
                    .map_or(self.now, |at| u64::try_from(at.millis_since(Time::from_millis(0))).unwrap_or(0));
                let late = data.number() % 100_000;
                self.now = self.now.max(at.min(self.now + 3_600_000)) + late;
                self.tell(data, Event::Tick);
            }
            _ => {
                self.now += u64::from(data.byte()) * 50;
                self.tell(data, Event::Tick);
            }
        }
    }

    /// A message as clients send them, or any.
    fn message(&self, data: &mut Data<'_>) -> Message {
        if data.one_in(8) {
            let mut bytes = [0; MESSAGE_LEN];
            for (to, from) in bytes.iter_mut().zip(data.bytes(MESSAGE_LEN)) {
                *to = *from;
            }
            return Message::decode(&bytes);
        }
        let commands = [
            Command::TestLive,
            Command::OpenWatchdog,
            Command::Register,
            Command::RefcountSet,
            Command::RefcountClear,
            Command::Status,
            Command::DumpDebug,
            Command::TestLive,
        ];
        let mut message = Message::new(data.pick(&commands).unwrap_or(Command::Status));
        let seconds = self.now / 1000;
        message.fire_timeout = u32::try_from(data.number()).unwrap_or(u32::MAX);
        message.renewal_time = seconds;
        message.expire_time = match data.byte() {
            0..=31 => 0,
            some @ 32..=191 => seconds + u64::from(some - 31),
            some @ 192..=239 => seconds.saturating_sub(u64::from(some - 191)),
            _ => data.number(),
        };
        message.name = Name::new(data.piece().get(..8).unwrap_or_default()).unwrap_or(Name::EMPTY);
        message
    }

    fn tell(&mut self, data: &mut Data<'_>, event: Event) {
        let enabled = self.machine.enabled();
        let before = self.machine.clone();
        let actions = self.machine.handle(self.time(), event);
        assert!(actions.len() <= MAX_TEST_LINES + 8, "{} actions", actions.len());
        for action in actions {
            match action {
                Action::Arm { fire_timeout, device_timeout } => self.arm(data, fire_timeout, device_timeout),
                Action::Ping => self.ping(data),
                Action::Disarm => {
                    let relied =
                        before.sources().any(|(_, source)| source.refcount() || source.expire() != 0);
                    assert!(!enabled || !relied, "disarmed although somebody relies on it");
                    let ok = !data.one_in(8);
                    if ok {
                        self.device = None;
                    }
                    self.tell(data, Event::Disarmed(ok));
                }
                Action::Reply(id, _) | Action::Dump(id) => {
                    let due = self.asked.entry(id).or_default();
                    assert!(*due > 0, "an answer that nobody asked for");
                    *due -= 1;
                }
                Action::Log(notice) => drop(notice.to_string()),
                Action::Quit => {
                    assert!(self.device.is_none(), "the device runs on");
                    self.quit = true;
                }
            }
        }
    }

    fn arm(&mut self, data: &mut Data<'_>, fire_timeout: u32, device_timeout: u32) {
        assert!(
            fire_timeout <= FIRE_TIMEOUT_MAX && wanted_device_timeout(fire_timeout) == Some(device_timeout)
        );
        let exactly = DeviceTimeout::exactly;
        let armed = match data.byte() {
            0..=159 => Armed::Running { device_timeout: exactly(device_timeout), can_disarm: true },
            160..=191 => Armed::Running { device_timeout: exactly(device_timeout), can_disarm: false },
            some @ 192..=223 => {
                let latest = u32::from(some - 191).min(device_timeout);
                Armed::Running {
                    device_timeout: DeviceTimeout::between(latest / 2, latest),
                    can_disarm: true,
                }
            }
            // Whatever a driver reports.
            224..=231 => Armed::Running {
                device_timeout: exactly(u32::try_from(data.number()).unwrap_or(u32::MAX)),
                can_disarm: true,
            },
            some @ 232..=239 => Armed::Stuck {
                device_timeout: exactly(u32::try_from(data.number()).unwrap_or(u32::MAX)),
                can_disarm: some >= 236,
            },
            _ => Armed::Failed,
        };
        self.device = match armed {
            Armed::Running { device_timeout, .. } | Armed::Stuck { device_timeout, .. } => {
                Some(Device { timeout: device_timeout.latest() })
            }
            Armed::Failed => None,
        };
        self.tell(data, Event::Armed(armed));
    }

    fn ping(&mut self, data: &mut Data<'_>) {
        let Some(device) = self.device else { panic!("pinged, but not open") };
        let fires = self.now + u64::from(device.timeout) * 1000;
        if self.machine.enabled() {
            let fire = u64::from(self.machine.fire_timeout());
            for (id, source) in self.machine.sources().filter(|(_, source)| source.expire() != 0) {
                let bound = source.expire().saturating_add(fire).saturating_mul(1000);
                assert!(fires <= bound, "source {id} would be fenced too late");
            }
        }
        let ok = !data.one_in(8);
        self.tell(data, Event::Pinged(ok));
    }

    /// Nothing happens any more, and every action succeeds: the daemon sleeps between its turns.
    fn idle(&mut self) {
        let mut sound = Data::new(&[]);
        let mut spins = 0;
        for _ in 0..200 {
            if self.quit {
                return;
            }
            self.tell(&mut sound, Event::Tick);
            let Some(at) = self.machine.wake_at(self.time()) else { return };
            let at = u64::try_from(at.millis_since(Time::from_millis(0))).unwrap_or(0);
            if at <= self.now {
                spins += 1;
                assert!(spins <= IDLE_TURNS_MAX, "the daemon spins at {}: {:#?}", self.now, self.machine);
            } else {
                spins = 0;
                self.now = at.min(self.now + 3_600_000);
            }
        }
    }
}
