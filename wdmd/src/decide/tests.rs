//! The decisions, one rule at a time. The bound itself is proved in `tests/bound`.

mod overdue;
mod stop;

use super::*;

const PEER: Peer = Peer { fd: 8, pid: 4711 };

/// A machine with a device that does what it is told, and everything it did.
struct Host {
    machine: Machine,
    result: Armed,
    ping_works: bool,
    disarm_works: bool,
    log: Vec<Notice>,
    device: Vec<&'static str>,
    replies: Vec<(SourceId, Message)>,
    quit: bool,
}

impl Host {
    fn new() -> Self {
        Self {
            machine: Machine::new(),
            result: Armed::Running { device_timeout: DeviceTimeout::exactly(15), can_disarm: true },
            ping_works: true,
            disarm_works: true,
            log: Vec::new(),
            device: Vec::new(),
            replies: Vec::new(),
            quit: false,
        }
    }

    fn event(&mut self, seconds: u64, event: Event) {
        let now = Time::from_seconds(seconds);
        for action in self.machine.handle(now, event) {
            match action {
                Action::Arm { .. } => {
                    self.device.push("arm");
                    self.event(seconds, Event::Armed(self.result));
                }
                Action::Ping => {
                    self.device.push("ping");
                    self.event(seconds, Event::Pinged(self.ping_works));
                }
                Action::Disarm => {
                    self.device.push("disarm");
                    self.event(seconds, Event::Disarmed(self.disarm_works));
                }
                Action::Reply(id, message) => self.replies.push((id, message)),
                Action::Log(notice) => self.log.push(notice),
                Action::Quit => self.quit = true,
                Action::Dump(_) => {}
            }
        }
    }

    fn send(&mut self, seconds: u64, id: SourceId, message: Message) {
        self.event(seconds, Event::Message(id, message));
        self.event(seconds, Event::Tick);
    }

    fn connect(&mut self, seconds: u64, id: SourceId) {
        self.event(seconds, Event::Connected(id, PEER));
    }

    fn end(&mut self, seconds: u64, id: SourceId) {
        self.event(seconds, Event::Ended(id));
        self.event(seconds, Event::Tick);
    }

    fn tick(&mut self, seconds: u64) {
        self.event(seconds, Event::Tick);
    }

    fn status(&mut self, seconds: u64, id: SourceId) -> Message {
        self.send(seconds, id, Message::new(Command::Status));
        self.replies.last().unwrap().1
    }

    /// The reply's fire timeout.
    fn open(&mut self, seconds: u64, id: SourceId, fire_timeout: u32) -> u32 {
        self.send(seconds, id, Message { fire_timeout, ..Message::new(Command::OpenWatchdog) });
        self.replies.last().unwrap().1.fire_timeout
    }

    fn lines(&self) -> Vec<String> {
        self.log.iter().map(ToString::to_string).collect()
    }

    fn took(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.device)
    }
}

fn live(renewal_time: u64, expire_time: u64) -> Message {
    Message { renewal_time, expire_time, ..Message::new(Command::TestLive) }
}

fn refcount(set: bool) -> Message {
    Message::new(if set { Command::RefcountSet } else { Command::RefcountClear })
}

#[test]
fn the_device_is_armed_on_request_and_disarmed_with_the_last_connection() {
    let mut host = Host::new();
    host.connect(1, 2);
    assert_eq!(host.status(1, 2).fire_timeout, 60);
    assert!(host.took().is_empty());
    assert_eq!(host.open(1, 2, 60), 60);
    host.connect(2, 3);
    assert_eq!(host.open(2, 3, 30), 60, "the client compares");
    assert_eq!(host.took(), ["arm"]);
    host.end(3, 2);
    assert!(host.took().is_empty());
    host.end(4, 3);
    assert_eq!(host.took(), ["disarm"]);
    host.tick(100);
    assert!(host.took().is_empty());
}

#[test]
fn refused_timeouts_and_devices_are_answered_with_0() {
    let mut host = Host::new();
    host.connect(1, 2);
    for asked in [0, 2, u32::MAX] {
        assert_eq!(host.open(1, 2, asked), 0);
    }
    assert!(host.took().is_empty());
    host.result = Armed::Failed;
    assert_eq!(host.open(1, 2, 60), 0);
    assert_eq!(host.took(), ["arm"]);
    // The device took a longer timeout than the bound allows: stopped again.
    host.result = Armed::Running { device_timeout: DeviceTimeout::exactly(16), can_disarm: true };
    assert_eq!(host.open(1, 2, 60), 0);
    assert_eq!(host.took(), ["arm", "disarm"]);
    assert!(!host.machine.enabled());
}

#[test]
fn a_first_generation_client_arms_the_device_with_60_or_is_told_0() {
    for request in [refcount(true), live(1, 80)] {
        let mut host = Host::new();
        host.connect(1, 2);
        host.result = Armed::Failed;
        host.send(1, 2, request);
        assert_eq!(host.status(1, 2).fire_timeout, 0);
        assert!(host.lines().iter().any(|line| line.contains("not protected")), "{:?}", host.lines());
        // Somebody who does not rely on it sees the default.
        host.connect(1, 3);
        assert_eq!(host.status(1, 3).fire_timeout, 60);
        // Tried again with the next request.
        host.result = Armed::Running { device_timeout: DeviceTimeout::exactly(15), can_disarm: true };
        host.send(2, 2, request);
        assert_eq!(host.status(2, 2).fire_timeout, 60);
    }
}

#[test]
fn pings_go_on_at_a_third_of_the_device_timeout_and_end_before_the_bound() {
    let mut host = Host::new();
    host.connect(1, 2);
    host.open(1, 2, 60);
    host.send(1, 2, live(1, 81));
    host.took();
    let mut pings = Vec::new();
    for second in 2..200 {
        host.tick(second);
        if !host.took().is_empty() {
            pings.push(second);
        }
    }
    assert_eq!(pings.first(), Some(&6));
    // 81 + 60 - 30 - 1
    assert!(pings.iter().all(|&second| second <= 110) && pings.last() >= Some(&106), "{pings:?}");
    assert!(host.lines().iter().any(|line| line.starts_with("no more keepalives")));
    assert!(host.log.iter().any(|notice| matches!(notice, Notice::DidNotFire { .. })));
}

#[test]
fn nobody_is_let_onto_a_host_that_is_certain_to_be_reset() {
    let mut host = Host::new();
    host.connect(1, 2);
    host.open(1, 2, 60);
    host.send(1, 2, live(1, 81));
    host.end(2, 2);
    host.connect(3, 3);
    assert_eq!(host.open(3, 3, 60), 0);
    assert!(host.lines().iter().any(|line| line.contains("client ci 2 has ended with an expiry")));
}

/// Lock managers have no expiry that is further ahead than some minutes. What another client leaves behind for the end of all days is to keep nobody out
/// until then; when its time comes, it does.
#[test]
fn an_expiry_that_is_left_for_a_far_day_keeps_nobody_out_before() {
    let day = u64::from(FIRE_TIMEOUT_MAX);
    for expire in [3 + day + 1, 1 << 40, u64::MAX] {
        let mut host = Host::new();
        host.connect(1, 2);
        host.open(1, 2, 60);
        host.send(1, 2, live(1, expire));
        host.end(2, 2);
        host.connect(3, 3);
        assert_eq!(host.open(3, 3, 60), 60, "{expire}");
        host.send(3, 3, live(3, 83));
        host.took();
        host.tick(8);
        assert_eq!(host.took(), ["ping"], "{expire}");
        // The new client's own expiry counts as ever.
        (9..200).for_each(|second| host.tick(second));
        assert_eq!(host.machine.last_keepalive(), 112, "E + F - 2D - 1");
    }
    let mut host = Host::new();
    host.connect(1, 2);
    host.open(1, 2, 60);
    let expire = 3 * day;
    host.send(1, 2, live(1, expire));
    host.end(2, 2);
    host.connect(3, 3);
    assert_eq!(host.open(expire - day - 1, 3, 60), 60);
    for second in [expire - day, expire - 80, expire + 10, expire + 1000] {
        assert_eq!(host.open(second, 3, 60), 0, "{second}");
    }
}

#[test]
fn test_lines_come_once_a_second_with_the_originals_words() {
    let mut host = Host::new();
    host.connect(1, 2);
    host.open(1, 2, 60);
    host.event(
        1,
        Event::Message(2, Message { name: Name::new(b"cli").unwrap(), ..Message::new(Command::Register) }),
    );
    host.send(1, 2, live(7, 32));
    host.log.clear();
    for second in 2..=33 {
        host.tick(second);
        host.tick(second);
    }
    let lines = host.lines();
    assert_eq!(lines.len(), 12, "{lines:?}");
    assert_eq!(lines[0], "test warning now 22 ping 21 close 0 renewal 7 expire 32 client 4711 cli");
    // Pings until 61, the device fires 15 s later.
    assert_eq!(lines[10], "test failed rem 44 now 32 ping 31 close 0 renewal 7 expire 32 client 4711 cli");
    assert_eq!(host.status(33, 2).test_interval, 1);
    host.send(34, 2, live(34, 100));
    assert_eq!(host.status(34, 2).test_interval, 10);
}

#[test]
fn thousands_of_expired_clients_do_not_flood_the_log() {
    let mut host = Host::new();
    for id in 2..5000 {
        host.connect(1, id);
        host.event(1, Event::Message(id, live(1, 5)));
    }
    host.log.clear();
    host.tick(10);
    assert_eq!(host.log.len(), MAX_TEST_LINES + 1);
    assert_eq!(host.log.last(), Some(&Notice::MoreTestLines { count: 4998 - MAX_TEST_LINES }));
}

#[test]
fn a_renewal_before_the_device_fires_averts_the_reset() {
    for message in [live(115, 200), live(0, 0)] {
        let mut host = Host::new();
        host.connect(1, 2);
        host.open(1, 2, 60);
        host.send(1, 2, live(1, 81));
        (2..115).for_each(|second| host.tick(second));
        host.took();
        host.send(115, 2, message);
        assert_eq!(host.took(), ["ping"]);
        assert_eq!(host.log.last(), Some(&Notice::PingsResume));
    }
}

#[test]
fn a_client_that_dies_supervised_dooms_the_host_and_one_that_is_not_does_not() {
    let mut host = Host::new();
    host.connect(1, 2);
    host.open(1, 2, 60);
    host.send(1, 2, refcount(true));
    host.end(2, 2);
    assert_eq!(host.took(), ["arm", "disarm"], "a reference alone goes with its connection");

    host.connect(3, 2);
    host.open(3, 2, 60);
    host.send(3, 2, live(3, 83));
    host.end(4, 2);
    assert_eq!(host.took(), ["arm"]);
    assert!(host.machine.source(2).unwrap().dead());
    // Nothing reaches a dead slot.
    host.send(5, 2, live(0, 0));
    assert_eq!(host.machine.source(2).unwrap().expire(), 83);
    (5..300).for_each(|second| host.tick(second));
    assert!(host.device.len() > 10 && host.device.iter().all(|&step| step == "ping"));
    assert_eq!(host.machine.last_keepalive(), 112, "E + F - 2D - 1");
}

#[test]
fn a_client_that_was_never_protected_leaves_nothing_behind() {
    let mut host = Host::new();
    host.result = Armed::Failed;
    host.connect(1, 2);
    host.send(1, 2, live(1, 5));
    host.end(2, 2);
    assert!(host.machine.source(2).is_none());
    host.result = Armed::Running { device_timeout: DeviceTimeout::exactly(15), can_disarm: true };
    host.connect(200, 2);
    assert_eq!(host.open(200, 2, 60), 60);
}

#[test]
fn nobody_is_let_in_while_the_host_is_about_to_be_reset() {
    let mut host = Host::new();
    host.connect(1, 2);
    host.open(1, 2, 60);
    host.send(1, 2, live(1, 81));
    host.connect(109, 3);
    assert_eq!(host.open(109, 3, 60), 60, "still pinged");
    assert_eq!(host.open(111, 3, 60), 0);
    assert!(host.lines().iter().any(|line| line.contains("client ci 2 has expired")));
    assert_eq!(host.open(111, 2, 60), 0, "not on the expired connection either");
    host.send(112, 2, live(112, 192));
    assert_eq!(host.open(112, 3, 60), 60);
}

/// Nothing resets a host whose device nobody could arm.
#[test]
fn whose_expiry_is_in_the_way_of_arming_is_said() {
    let mut host = Host::new();
    host.connect(1, 2);
    host.result = Armed::Failed;
    host.send(1, 2, live(1, 81));
    host.took();
    host.result = Armed::Running { device_timeout: DeviceTimeout::exactly(15), can_disarm: true };
    host.connect(200, 3);
    assert_eq!(host.open(200, 3, 60), 0);
    assert!(host.took().is_empty());
    let expected = "open_watchdog 60 refused: client ci 2 has an expiry that has passed; end it";
    assert!(host.lines().iter().any(|line| line == expected), "{:?}", host.lines());
    host.end(201, 2);
    assert_eq!(host.open(201, 3, 60), 60);
}

#[test]
fn a_bad_script_counts_from_the_moment_it_became_bad() {
    let mut host = Host::new();
    host.connect(1, 2);
    // While nobody relies on the device, scripts say nothing.
    host.event(1, Event::Script { slot: 0, good: false });
    assert_eq!(host.open(1, 2, 60), 60);
    assert_eq!(host.status(1, 2).test_interval, 10);
    for second in [10, 20, 30] {
        host.event(second, Event::Script { slot: 0, good: false });
    }
    assert_eq!(host.status(30, 2).test_interval, 1);
    host.took();
    host.tick(39);
    assert_eq!(host.took(), ["ping"]);
    host.tick(60);
    assert!(host.took().is_empty());
    assert_eq!(host.open(60, 2, 60), 0);
    // The clients going does not rescue the host, the script does.
    host.end(61, 2);
    assert!(host.took().is_empty());
    host.event(62, Event::Script { slot: 0, good: true });
    host.tick(62);
    assert_eq!(host.took(), ["disarm"]);
}

#[test]
fn a_failed_ping_is_no_ping_and_is_tried_again_within_a_second() {
    let mut host = Host::new();
    host.connect(1, 2);
    host.open(1, 2, 60);
    host.ping_works = false;
    (2..20).for_each(|second| host.tick(second));
    assert_eq!(host.machine.last_keepalive(), 1);
    assert_eq!(host.took().len(), 15);
    host.ping_works = true;
    host.tick(20);
    assert_eq!(host.status(20, 2).last_keepalive, 20);
}

#[test]
fn a_failed_disarming_keeps_the_device_fed() {
    let mut host = Host::new();
    host.connect(1, 2);
    host.open(1, 2, 60);
    host.disarm_works = false;
    host.end(2, 2);
    host.tick(3);
    host.event(4, Event::Terminate);
    host.tick(4);
    assert!(!host.quit);
    assert!(host.took().iter().filter(|&&step| step == "disarm").count() >= 3);
    host.disarm_works = true;
    host.tick(5);
    assert!(host.quit);
}

#[test]
fn without_a_way_out_the_device_is_pinged_for_ever_and_the_daemon_stays() {
    let mut host = Host::new();
    host.result = Armed::Running { device_timeout: DeviceTimeout::exactly(15), can_disarm: false };
    host.connect(1, 2);
    host.open(1, 2, 60);
    host.end(2, 2);
    host.event(2, Event::Terminate);
    (2..100).for_each(|second| host.tick(second));
    assert!(host.device.len() > 15 && !host.device.contains(&"disarm") && !host.quit);
    assert!(host.lines().iter().any(|line| line.contains("nowayout")));
    // The next client may choose another timeout.
    host.result = Armed::Running { device_timeout: DeviceTimeout::exactly(10), can_disarm: false };
    host.connect(100, 2);
    assert_eq!(host.open(100, 2, 30), 30);
    host.result = Armed::Stuck { device_timeout: DeviceTimeout::exactly(10), can_disarm: false };
    host.end(101, 2);
    host.connect(102, 2);
    assert_eq!(host.open(102, 2, 60), 0);
    host.took();
    host.tick(110);
    assert_eq!(host.took(), ["ping"]);
}

#[test]
fn a_device_that_could_not_be_stopped_is_pinged_and_told_to_stop_again() {
    // After a look at it, at the start.
    let mut host = Host::new();
    host.machine = Machine::with_device_left_running(Time::from_seconds(1), DeviceTimeout::exactly(3));
    host.disarm_works = false;
    assert_eq!(host.machine.wake_at(Time::from_seconds(1)), Some(Time::from_seconds(1)));
    for millis in (1_000..10_000).step_by(100) {
        let now = Time::from_millis(millis);
        for action in host.machine.handle(now, Event::Tick) {
            let (step, result) = match action {
                Action::Ping => ("ping", Event::Pinged(true)),
                Action::Disarm => ("disarm", Event::Disarmed(false)),
                other => panic!("{other:?}"),
            };
            host.device.push(step);
            assert_eq!(host.machine.handle(now, result), []);
        }
    }
    let steps = host.took();
    let count = |wanted: &str| steps.iter().filter(|&&step| step == wanted).count();
    assert!((9..=10).contains(&count("ping")) && count("disarm") == 18, "{steps:?}");
    host.event(10, Event::Terminate);
    host.tick(10);
    assert!(!host.quit);
    host.disarm_works = true;
    host.tick(11);
    assert!(host.quit);

    // After a client asked for it in vain.
    let mut host = Host::new();
    host.result = Armed::Stuck { device_timeout: DeviceTimeout::exactly(15), can_disarm: true };
    host.connect(1, 2);
    assert_eq!(host.open(1, 2, 60), 0);
    assert_eq!(host.took(), ["arm", "disarm"]);
}

#[test]
fn a_dump_does_not_take_the_name_away() {
    let mut host = Host::new();
    host.connect(1, 2);
    host.send(1, 2, Message::new(Command::DumpDebug));
    assert_eq!(host.machine.source(2).unwrap().name().as_bytes(), b"dump");
    host.send(1, 2, Message { name: Name::new(b"me").unwrap(), ..Message::new(Command::Register) });
    host.send(1, 2, Message::new(Command::DumpDebug));
    assert_eq!(host.machine.source(2).unwrap().name().as_bytes(), b"me");
}

#[test]
fn unknown_commands_are_ignored_and_replies_echo_the_request() {
    let mut host = Host::new();
    host.connect(1, 2);
    for cmd in [0, 8, u32::MAX] {
        host.send(1, 2, Message { cmd, ..Message::new(Command::Status) });
    }
    assert!(host.replies.is_empty());
    let odd = Message { magic: 1, len: 2, flags: 3, renewal_time: 4, ..Message::new(Command::Status) };
    host.send(1, 2, odd);
    let reply = host.replies[0].1;
    assert_eq!((reply.magic, reply.len, reply.flags, reply.renewal_time), (1, 2, 3, 4));
    // Nobody is there.
    host.send(1, 77, Message::new(Command::Status));
    assert_eq!(host.replies.len(), 1);
}

#[test]
fn an_expiry_in_the_past_asks_for_a_reset_and_extreme_times_do_not_wrap() {
    let mut host = Host::new();
    host.connect(1000, 2);
    host.send(1000, 2, live(1, 1));
    assert_eq!(host.took(), ["arm"]);
    host.tick(1010);
    assert!(host.took().is_empty());
    let mut host = Host::new();
    host.connect(1, 2);
    host.send(1, 2, live(u64::MAX, u64::MAX));
    host.send(1, 2, live(0, 3));
    host.tick(6);
    assert_eq!(host.took(), ["arm", "ping"]);
}

/// sanlock sends SIGTERM from the expiry on and SIGKILL a grace period later (40, 15 or 0 s, by the fire timeout). Nobody is to be
/// reset before that had its chance: the last ping comes late enough.
#[test]
fn the_reset_of_an_expired_client_comes_after_its_own_daemon_could_kill_everything() {
    for (fire, device, grace) in [(60, 15, 40), (30, 10, 15), (10, 5, 0)] {
        let mut host = Host::new();
        host.result = Armed::Running { device_timeout: DeviceTimeout::exactly(device), can_disarm: true };
        host.connect(100, 0);
        assert_eq!(host.open(100, 0, fire), fire);
        let expire = 200;
        host.send(150, 0, live(150, expire));
        let mut last = 0;
        for second in 151..300 {
            host.took();
            host.tick(second);
            if host.took().contains(&"ping") {
                last = second;
            }
        }
        let (reset, kill) = (last + u64::from(device), expire + grace);
        assert!(reset >= kill + 2, "F {fire}: reset at {reset}, SIGKILL at {kill}");
        assert!(reset < expire + u64::from(fire));
    }
}
