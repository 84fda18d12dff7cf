use super::*;
use sanlock_wdmd::protocol::{Command, MESSAGE_LEN, Message};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::mpsc::{Receiver, Sender as Out, channel};
use std::time::Instant;

/// Long enough for a machine that does other things too.
const SOON: Duration = Duration::from_secs(30);
const LS: LockspaceId = LockspaceId(3);

/// A watchdog daemon that answers with this fire timeout and tells what it is told.
struct Stub {
    dir: tempfile::TempDir,
    heard: Receiver<Heard>,
    connections: Receiver<UnixStream>,
    /// What it answers.
    fire: Arc<AtomicU32>,
    /// While this is locked it reads nothing, but for what it waits for already.
    pause: Arc<Mutex<()>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Message(Command, u64, u64),
    End,
}

impl Stub {
    fn start(fire: u32) -> Self {
        Self::slow(fire, Duration::ZERO, usize::MAX)
    }

    /// One that answers after a while, and closes each connection after so many answers to STATUS.
    fn slow(fire: u32, delay: Duration, answers: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("wdmd.sock")).unwrap();
        let (hear, heard) = channel();
        let (accept, connections) = channel();
        let fire = Arc::new(AtomicU32::new(fire));
        let answer = Arc::clone(&fire);
        let pause = Arc::<Mutex<()>>::default();
        let pausing = Arc::clone(&pause);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                accept.send(stream.try_clone().unwrap()).unwrap();
                let (hear, answer, pause) = (hear.clone(), Arc::clone(&answer), Arc::clone(&pausing));
                std::thread::spawn(move || serve(stream, &answer, (delay, answers), &pause, &hear));
            }
        });
        Self { dir, heard, connections, fire, pause }
    }

    fn watchdog(&self) -> (Watchdog, Receiver<Event>) {
        self.watchdog_asleep(|| 0)
    }

    /// On a machine that has slept that long.
    fn watchdog_asleep(&self, asleep_ms: fn() -> u64) -> (Watchdog, Receiver<Event>) {
        self.watchdog_by(asleep_ms, Asker::start(|| {}).unwrap())
    }

    fn watchdog_by(&self, asleep_ms: fn() -> u64, asker: Asker) -> (Watchdog, Receiver<Event>) {
        let (tell, events) = channel();
        let report = move |event| tell.send(event).unwrap();
        let (socket, log) = (self.dir.path().join("wdmd.sock"), Log::in_memory());
        (Watchdog::start_with(socket, log, asleep_ms, asker, || {}, report).unwrap(), events)
    }

    /// Arms one, and has nothing read any more until what is returned is dropped. More is sent than the socket takes.
    fn full(
        &self,
        watchdog: &Watchdog,
        events: &Receiver<Event>,
        times: impl Fn(u64) -> Times,
    ) -> MutexGuard<'_, ()> {
        watchdog.order(Order::Arm { ls: LS, name: "sanlock_ls:1".to_owned(), fire: fire(), times: times(0) });
        assert_eq!(events.recv_timeout(SOON).unwrap(), Event::WatchdogArmed { ls: LS, result: Ok(()) });
        self.heard.try_iter().for_each(drop);
        let paused = self.pause.lock().unwrap();
        // It may be about to read a message, and make room for another one, at any later time: it is to have done so.
        watchdog.order(Order::Live { ls: LS, times: times(0) });
        let _ = self.heard.recv_timeout(Duration::from_secs(2));
        for renewal in 1..=FLOOD {
            watchdog.order(Order::Live { ls: LS, times: times(renewal) });
        }
        paused
    }

    /// The next message that changes something.
    fn next(&self) -> Heard {
        loop {
            match self.heard.recv_timeout(SOON).unwrap() {
                Heard::Message(Command::Status | Command::OpenWatchdog, ..) => {}
                heard => return heard,
            }
        }
    }
}

fn serve(
    mut stream: UnixStream,
    fire: &AtomicU32,
    (delay, mut answers): (Duration, usize),
    pause: &Mutex<()>,
    hear: &Out<Heard>,
) {
    let mut bytes = [0; MESSAGE_LEN];
    let next = |bytes: &mut [u8], stream: &mut UnixStream| {
        drop(pause.lock().unwrap());
        stream.read_exact(bytes)
    };
    while next(&mut bytes, &mut stream).is_ok() {
        let mut message = Message::decode(&bytes);
        let command = Command::from_number(message.cmd).unwrap();
        let _ = hear.send(Heard::Message(command, message.renewal_time, message.expire_time));
        if matches!(command, Command::Status | Command::OpenWatchdog) {
            std::thread::sleep(delay);
            (message.fire_timeout, message.test_interval) = (fire.load(Ordering::SeqCst), 1);
            let _ = stream.write_all(&message.encode());
            answers -= usize::from(command == Command::Status);
            if answers == 0 {
                let _ = stream.shutdown(std::net::Shutdown::Both);
                break;
            }
        }
    }
    let _ = hear.send(Heard::End);
}

fn fire() -> WatchdogFire {
    WatchdogFire::new(30).unwrap()
}

fn arm(watchdog: &Watchdog) {
    let times = Times { renewal: 100, expire: 116 };
    watchdog.order(Order::Arm { ls: LS, name: "sanlock_ls:1".to_owned(), fire: fire(), times });
}

fn told(command: Command) -> Heard {
    Heard::Message(command, 0, 0)
}

/// An original wdmd that is busy may still have to read what it was told by that connection, and of a closed one it reads the first message only.
#[test]
fn a_kept_connection_is_not_closed_where_no_thread_is_to_be_had_to_arm_it_again() {
    let stub = Stub::start(30);
    let left = AtomicU32::new(1);
    let hire = move |ask: Box<dyn FnOnce() + Send>| {
        let count = |left: u32| left.checked_sub(1);
        match left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count) {
            Ok(_) => std::thread::Builder::new().spawn(ask).map(drop),
            Err(_) => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
        }
    };
    let (watchdog, events) = stub.watchdog_by(|| 0, Asker::start_with(|| {}, hire).unwrap());
    arm(&watchdog);
    assert_eq!(events.recv_timeout(SOON).unwrap(), Event::WatchdogArmed { ls: LS, result: Ok(()) });
    watchdog.order(Order::Disarm { ls: LS });
    arm(&watchdog);
    let Event::WatchdogArmed { result: Err(text), .. } = events.recv_timeout(SOON).unwrap() else {
        panic!("armed")
    };
    assert!(text.contains("no thread to arm it with"), "{text}");
    std::thread::sleep(Duration::from_millis(300));
    let heard: Vec<Heard> = stub.heard.try_iter().collect();
    assert!(!heard.contains(&Heard::End) && heard.contains(&told(Command::RefcountClear)), "{heard:?}");
}

#[test]
fn the_answer_has_the_interval_of_calm_times() {
    let stub = Stub::start(30);
    let (watchdog, events) = stub.watchdog();
    watchdog.order(Order::Check { ls: LS, fire: fire() });
    assert_eq!(events.recv_timeout(SOON).unwrap(), Event::WatchdogChecked { ls: LS, result: Ok(5) });
    assert_eq!(stub.next(), Heard::End, "nothing is kept open for an idle lockspace");
}

#[test]
fn nobody_listening_and_another_fire_timeout_are_refusals() {
    let stub = Stub::start(60);
    let (watchdog, events) = stub.watchdog();
    let refused = |event: Event, why: &str| match event {
        Event::WatchdogChecked { result: Err(text), .. } | Event::WatchdogArmed { result: Err(text), .. } => {
            assert!(text.contains(why), "{text}");
        }
        other => panic!("{other:?}"),
    };
    watchdog.order(Order::Check { ls: LS, fire: fire() });
    refused(events.recv_timeout(SOON).unwrap(), "60 s, 30 s was asked for");
    arm(&watchdog);
    refused(events.recv_timeout(SOON).unwrap(), "60 s, 30 s was asked for");
    let nobody = tempfile::tempdir().unwrap();
    let (tell, events) = channel();
    let report = move |event| tell.send(event).unwrap();
    let watchdog = Watchdog::start(nobody.path().join("wdmd.sock"), Log::in_memory(), || {}, report).unwrap();
    watchdog.order(Order::Check { ls: LS, fire: fire() });
    refused(events.recv_timeout(SOON).unwrap(), "is wdmd running?");
    arm(&watchdog);
    refused(events.recv_timeout(SOON).unwrap(), "is wdmd running?");
}

#[test]
fn an_expiry_is_given_moved_and_taken_back_on_one_connection() {
    let stub = Stub::start(30);
    let (watchdog, events) = stub.watchdog();
    arm(&watchdog);
    assert_eq!(events.recv_timeout(SOON).unwrap(), Event::WatchdogArmed { ls: LS, result: Ok(()) });
    watchdog.order(Order::Live { ls: LS, times: Times { renewal: 104, expire: 120 } });
    watchdog.order(Order::Disarm { ls: LS });
    // Idle: it has nothing to be moved.
    watchdog.order(Order::Live { ls: LS, times: Times { renewal: 108, expire: 124 } });
    watchdog.finish(SOON);
    let expected = [
        told(Command::Register),
        told(Command::RefcountSet),
        Heard::Message(Command::TestLive, 100, 116),
        Heard::Message(Command::TestLive, 104, 120),
        told(Command::TestLive),
        told(Command::RefcountClear),
    ];
    for message in expected {
        assert_eq!(stub.next(), message);
    }
    // Soon after, the same connection serves again.
    arm(&watchdog);
    assert_eq!(events.recv_timeout(SOON).unwrap(), Event::WatchdogArmed { ls: LS, result: Ok(()) });
    assert_eq!(stub.connections.try_iter().count(), 1);
}

/// No order of the front leads there: it arms nothing that it has taken back before it has heard of the end of the first arming.
#[test]
fn what_was_armed_and_nobody_waits_for_is_taken_back() {
    let stub = Stub::start(30);
    let (watchdog, events) = stub.watchdog();
    arm(&watchdog);
    assert_eq!(events.recv_timeout(SOON).unwrap(), Event::WatchdogArmed { ls: LS, result: Ok(()) });
    let times = Times { renewal: 200, expire: 216 };
    let cancelled = Arc::default();
    let name = "sanlock_ls:1".to_owned();
    let wish = Wish { name, fire: fire(), times, asleep_ms: || 0, cancelled, within: SOON };
    let result = super::arming::arm(&stub.dir.path().join("wdmd.sock"), None, &wish);
    watchdog.order(Order::Armed { ls: LS, result });
    watchdog.order(Order::Live { ls: LS, times: Times { renewal: 104, expire: 120 } });
    watchdog.order(Order::Disarm { ls: LS });
    // Two connections, each heard by a thread of its own.
    let live = std::iter::from_fn(|| match stub.next() {
        Heard::Message(Command::TestLive, renewal, expire) => Some(Some((renewal, expire))),
        _ => Some(None),
    });
    let mut live: Vec<_> = live.flatten().take(5).collect();
    live.sort_unstable();
    assert_eq!(live, [(0, 0), (0, 0), (100, 116), (104, 120), (200, 216)]);
}

#[test]
fn wdmd_hears_of_expiries_on_its_own_clock_and_again_after_the_machine_has_slept() {
    static ASLEEP: AtomicU64 = AtomicU64::new(10_500);
    let stub = Stub::start(30);
    let (watchdog, events) = stub.watchdog_asleep(|| ASLEEP.load(Ordering::SeqCst));
    let live = || loop {
        if let Heard::Message(Command::TestLive, renewal, expire) = stub.next() {
            return (renewal, expire);
        }
    };
    arm(&watchdog);
    assert_eq!(events.recv_timeout(SOON).unwrap(), Event::WatchdogArmed { ls: LS, result: Ok(()) });
    // Whole seconds: rather a second too soon.
    assert_eq!(live(), (89, 105));
    watchdog.order(Order::Live { ls: LS, times: Times { renewal: 104, expire: 120 } });
    assert_eq!(live(), (93, 109));
    ASLEEP.store(80_000, Ordering::SeqCst);
    watchdog.order(Order::Slept);
    assert_eq!(live(), (24, 40));
    // Before the clock of wdmd began. 0 would take the expiry back.
    ASLEEP.store(200_000, Ordering::SeqCst);
    watchdog.order(Order::Slept);
    assert_eq!(live(), (0, 1));
    // What has no expiry gets none.
    watchdog.order(Order::Disarm { ls: LS });
    watchdog.order(Order::Slept);
    watchdog.finish(SOON);
    assert_eq!(live(), (0, 0));
    assert_eq!(stub.next(), told(Command::RefcountClear));
}

#[test]
fn sleep_while_wdmd_arms_is_made_up_for() {
    static ASLEEP: AtomicU64 = AtomicU64::new(0);
    let stub = Stub::slow(30, Duration::from_millis(300), usize::MAX);
    let (watchdog, events) = stub.watchdog_asleep(|| ASLEEP.load(Ordering::SeqCst));
    arm(&watchdog);
    // wdmd has been told; it takes its time to answer.
    while stub.next() != Heard::Message(Command::TestLive, 100, 116) {}
    ASLEEP.store(50_000, Ordering::SeqCst);
    watchdog.order(Order::Slept);
    assert_eq!(events.recv_timeout(SOON).unwrap(), Event::WatchdogArmed { ls: LS, result: Ok(()) });
    assert_eq!(stub.next(), Heard::Message(Command::TestLive, 50, 66));
}

#[test]
fn nothing_is_left_with_a_slow_wdmd_when_the_daemon_ends_while_it_arms() {
    for pause in [0, 10, 50, 100, 150, 250] {
        let stub = Stub::slow(30, Duration::from_millis(100), usize::MAX);
        let (watchdog, events) = stub.watchdog();
        arm(&watchdog);
        std::thread::sleep(Duration::from_millis(pause));
        watchdog.order(Order::Disarm { ls: LS });
        watchdog.finish(SOON);
        assert!(matches!(events.try_recv(), Ok(Event::WatchdogArmed { ls: LS, .. })), "answered by now");
        let live: Vec<Heard> = stub
            .heard
            .try_iter()
            .filter(|heard| matches!(heard, Heard::Message(Command::TestLive, ..)))
            .collect();
        assert!(live.last().is_none_or(|last| *last == told(Command::TestLive)), "{pause}: {live:?}");
    }
}

#[test]
fn a_loss_is_news_after_the_arming_it_follows() {
    let stub = Stub::slow(30, Duration::from_millis(50), 2);
    let (watchdog, events) = stub.watchdog();
    arm(&watchdog);
    watchdog.order(Order::Live { ls: LS, times: Times { renewal: 104, expire: 120 } });
    assert_eq!(events.recv_timeout(SOON).unwrap(), Event::WatchdogArmed { ls: LS, result: Ok(()) });
    assert!(matches!(events.recv_timeout(SOON).unwrap(), Event::WatchdogLost { ls: LS, .. }));
    // Nobody goes on believing that a renewal reaches somebody.
    watchdog.order(Order::Live { ls: LS, times: Times { renewal: 108, expire: 124 } });
    assert!(matches!(events.recv_timeout(SOON).unwrap(), Event::WatchdogLost { ls: LS, .. }));
}

/// More messages than a socket takes.
const FLOOD: u64 = 2000;

/// As one that is well is, when the kernel has no memory for messages to it.
#[test]
fn what_cannot_be_sent_for_a_while_is_no_loss_and_the_newest_expiry_arrives() {
    let stub = Stub::start(30);
    let (watchdog, events) = stub.watchdog();
    let now = monotonic_now().secs();
    let times = |renewal| Times { renewal: now + renewal, expire: now + renewal + 300 };
    let paused = stub.full(&watchdog, &events, times);
    assert!(events.recv_timeout(Duration::from_secs(5)).is_err(), "wdmd is well");
    drop(paused);
    while stub.next() != Heard::Message(Command::TestLive, now + FLOOD, now + FLOOD + 300) {}
    assert!(events.try_recv().is_err());
    assert_eq!(stub.connections.try_iter().count(), 1);
}

#[test]
fn a_wdmd_that_takes_no_expiry_any_more_is_lost_in_time() {
    let stub = Stub::start(30);
    let (watchdog, events) = stub.watchdog();
    let now = monotonic_now().secs();
    let times = |renewal| Times { renewal, expire: now + 16 };
    let _paused = stub.full(&watchdog, &events, times);
    // The test interval is 5 s. A renewal that cannot be sent makes the expiry that wdmd has no later.
    watchdog.order(Order::Live { ls: LS, times: Times { renewal: now, expire: now + 600 } });
    let Event::WatchdogLost { ls: LS, text } = events.recv_timeout(SOON).unwrap() else { panic!("not lost") };
    assert!(text.contains("it could not be told of a renewal for"), "{text}");
    let after = monotonic_now().secs() - now;
    assert!((6..16).contains(&after), "{after}");
}

#[test]
fn what_cannot_be_taken_back_at_once_is_taken_back_later() {
    let stub = Stub::start(30);
    let (watchdog, events) = stub.watchdog();
    let now = monotonic_now().secs();
    let times = |renewal| Times { renewal, expire: now + 300 };
    let paused = stub.full(&watchdog, &events, times);
    watchdog.order(Order::Disarm { ls: LS });
    // Nor does the end of the daemon come before, for some time.
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| watchdog.finish(Duration::from_secs(20)));
        std::thread::sleep(Duration::from_secs(3));
        assert!(!ending.is_finished());
        drop(paused);
    });
    let mut last = None;
    loop {
        match stub.next() {
            Heard::Message(Command::RefcountClear, ..) => break,
            heard => last = Some(heard),
        }
    }
    assert_eq!(last, Some(told(Command::TestLive)));
    assert!(events.try_recv().is_err());
}

#[test]
fn the_end_of_the_daemon_waits_longer_for_what_could_not_be_taken_back_but_not_for_ever() {
    let stub = Stub::start(30);
    let (watchdog, events) = stub.watchdog();
    let now = monotonic_now().secs();
    let times = |renewal| Times { renewal, expire: now + 300 };
    let _paused = stub.full(&watchdog, &events, times);
    watchdog.order(Order::Disarm { ls: LS });
    let said = |words: &str| String::from_utf8_lossy(&watchdog.log.dump()).contains(words);
    let end = Instant::now() + SOON;
    while !said("which is tried again") {
        assert!(Instant::now() < end, "it could not be taken back");
        std::thread::sleep(Duration::from_millis(10));
    }
    let (limit, begin) = (Duration::from_millis(500), Instant::now());
    watchdog.finish(limit);
    assert!(begin.elapsed() >= 4 * limit);
    assert!(said("this host is going to be reset"));
}

/// It is asked behind every expiry, and nobody waits for the answer.
#[test]
fn a_device_that_does_not_work_any_more_is_news() {
    let stub = Stub::slow(30, Duration::from_millis(100), usize::MAX);
    let (watchdog, events) = stub.watchdog();
    arm(&watchdog);
    assert_eq!(events.recv_timeout(SOON).unwrap(), Event::WatchdogArmed { ls: LS, result: Ok(()) });
    let live = |renewal| {
        watchdog.order(Order::Live { ls: LS, times: Times { renewal, expire: renewal + 16 } });
    };
    live(104);
    assert!(events.recv_timeout(Duration::from_millis(500)).is_err(), "all is well");
    for (fire, protects) in [(0, false), (30, true), (60, false)] {
        stub.fire.store(fire, Ordering::SeqCst);
        live(108);
        live(112);
        live(116);
        assert_eq!(events.recv_timeout(SOON).unwrap(), Event::WatchdogStatus { ls: LS, protects });
    }
    // An answer that is still due is in nobody's way.
    live(120);
    watchdog.order(Order::Disarm { ls: LS });
    stub.fire.store(30, Ordering::SeqCst);
    arm(&watchdog);
    assert_eq!(events.recv_timeout(SOON).unwrap(), Event::WatchdogArmed { ls: LS, result: Ok(()) });
    live(124);
    stub.fire.store(0, Ordering::SeqCst);
    live(128);
    live(132);
    std::thread::sleep(Duration::from_millis(500));
    live(136);
    assert_eq!(events.recv_timeout(SOON).unwrap(), Event::WatchdogStatus { ls: LS, protects: false });
    assert!(events.try_recv().is_err());
}

/// The end of a wdmd that owes an answer is an end.
#[test]
fn the_end_of_a_wdmd_that_was_asked_is_noticed() {
    let stub = Stub::slow(30, Duration::ZERO, 2);
    let (watchdog, events) = stub.watchdog();
    arm(&watchdog);
    assert_eq!(events.recv_timeout(SOON).unwrap(), Event::WatchdogArmed { ls: LS, result: Ok(()) });
    assert!(matches!(events.recv_timeout(SOON).unwrap(), Event::WatchdogLost { ls: LS, .. }));
}

#[test]
fn the_end_of_wdmd_is_noticed_at_once() {
    let stub = Stub::start(30);
    let (watchdog, events) = stub.watchdog();
    arm(&watchdog);
    assert_eq!(events.recv_timeout(SOON).unwrap(), Event::WatchdogArmed { ls: LS, result: Ok(()) });
    stub.connections.recv_timeout(SOON).unwrap().shutdown(std::net::Shutdown::Both).unwrap();
    assert!(matches!(events.recv_timeout(SOON).unwrap(), Event::WatchdogLost { ls: LS, .. }));
    // Of an idle connection nobody has to hear.
    arm(&watchdog);
    assert_eq!(events.recv_timeout(SOON).unwrap(), Event::WatchdogArmed { ls: LS, result: Ok(()) });
    watchdog.order(Order::Disarm { ls: LS });
    watchdog.finish(SOON);
    stub.connections.recv_timeout(SOON).unwrap().shutdown(std::net::Shutdown::Both).unwrap();
    arm(&watchdog);
    assert_eq!(events.recv_timeout(SOON).unwrap(), Event::WatchdogArmed { ls: LS, result: Ok(()) });
}

#[test]
fn a_connection_on_which_an_expiry_was_taken_back_outlives_a_wdmd_that_does_not_answer() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("wdmd.sock");
    // Nobody reads what is said.
    let listener = UnixListener::bind(&socket).unwrap();
    let within = Duration::from_millis(50);
    let wish = || Wish {
        name: "sanlock_LS".to_owned(),
        fire: fire(),
        times: Times { renewal: 100, expire: 116 },
        asleep_ms: || 0,
        cancelled: Arc::default(),
        within,
    };
    let kept = Connection::connect(&socket, within).unwrap();
    let Err(Unarmed { withdrawn, .. }) = super::arming::arm(&socket, Some(kept), &wish()) else {
        panic!("armed")
    };
    assert_eq!(withdrawn.len(), 1, "the one that was kept; on the other one nothing was given");
    drop(listener);
    let Err(Unarmed { withdrawn, .. }) = super::arming::arm(&socket, None, &wish()) else { panic!("armed") };
    assert!(withdrawn.is_empty());
}
