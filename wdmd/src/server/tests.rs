//! The loop with a pretended device, against clients of every kind.

use super::*;
use crate::conn::failing;
use crate::device::pretended;
use crate::poller::Failures;
use crate::signals::pretended::{Handler, signals};
use sanlock_wdmd::client::{ClientError, Connection};
use sanlock_wdmd::protocol::{Command, MESSAGE_LEN, Message};
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Far above what anything here takes on the slowest machine.
const LONG: Duration = Duration::from_secs(60);

struct Daemon {
    dir: tempfile::TempDir,
    signals: Handler,
    thread: JoinHandle<Vec<String>>,
}

impl Daemon {
    fn start() -> Self {
        Self::start_with(|_| ())
    }

    /// Runs a daemon; `change` may set up its thread's pretended driver, and the server.
    fn start_with(change: impl FnOnce(&mut Server<'_>) + Send + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("sock")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (theirs, signals) = signals().unwrap();
        let thread = std::thread::spawn(move || {
            let (options, log) = (Options::default(), Log::start(false).unwrap());
            let device = pretended::device(None);
            let mut server = Server::new(&options, 0, &log, device, None, listener, theirs).unwrap();
            change(&mut server);
            server.run().unwrap();
            pretended::calls()
        });
        Self { dir, signals, thread }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("sock")
    }

    fn connect(&self) -> Connection {
        Connection::connect(&self.path(), LONG).unwrap()
    }

    fn raw(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    fn dump(&self) -> String {
        let mut stream = self.raw();
        let requests = [Message::new(Command::DumpDebug).encode(), Message::new(Command::Status).encode()];
        stream.write_all(&requests.concat()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut text = Vec::new();
        stream.read_to_end(&mut text).unwrap();
        text.truncate(text.len() - MESSAGE_LEN);
        String::from_utf8(text).unwrap()
    }

    /// Waits until the dump has, or no longer has, a client with this text.
    fn wait_for(&self, text: &str, there: bool) {
        let end = Instant::now() + LONG;
        while self.dump().contains(text) != there {
            assert!(Instant::now() < end, "{text:?} {there}: {}", self.dump());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops it: what was done to the device.
    fn stop(self) -> Vec<String> {
        self.signals.terminate();
        self.thread.join().unwrap()
    }
}

fn receive(stream: &mut UnixStream) -> Message {
    let mut bytes = [0; MESSAGE_LEN];
    stream.read_exact(&mut bytes).unwrap();
    Message::decode(&bytes)
}

#[test]
fn a_client_from_beginning_to_end() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    assert_eq!(client.open_watchdog(60, LONG).unwrap().status.fire_timeout, 60);
    assert!(matches!(client.open_watchdog(30, LONG), Err(ClientError::OtherTimeout { in_use: 60, .. })));
    client.register("sanlock_LS:1").unwrap();
    client.refcount_set().unwrap();
    client.test_live(7, u64::MAX).unwrap();
    client.status(LONG).unwrap();
    daemon.wait_for("name sanlock_LS:1 ", true);
    daemon.wait_for("ref 1", true);
    client.test_live(0, 0).unwrap();
    client.refcount_clear().unwrap();
    drop(client);
    assert_eq!(daemon.stop(), ["open", "set 15", "ping", "V", "close"]);
}

#[test]
fn thousands_of_connections_are_served_and_the_device_is_fed() {
    let daemon = Daemon::start();
    let mut first = daemon.connect();
    first.open_watchdog(4, LONG).unwrap();
    // Each connection takes two descriptors of this process.
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let count = usize::try_from(soft / 2).unwrap().saturating_sub(200).min(3000);
    assert!(count > 200, "a limit of {soft} descriptors");
    let mut clients: Vec<Connection> = (0..count).map(|_| daemon.connect()).collect();
    for client in &mut clients {
        client.register("one of many").unwrap();
    }
    for client in &mut clients {
        assert_eq!(client.status(LONG).unwrap().fire_timeout, 4);
    }
    // Pings go on, with all of them there.
    let before = first.status(LONG).unwrap().last_keepalive;
    let end = Instant::now() + LONG;
    while first.status(LONG).unwrap().last_keepalive == before {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(daemon.dump().matches("name one of many ").count(), count);
    drop((clients, first));
    let calls = daemon.stop();
    assert!(calls.iter().filter(|call| *call == "ping").count() > 1, "{calls:?}");
    assert_eq!(calls.last().unwrap(), "close");
}

#[test]
fn every_message_before_the_end_counts() {
    let daemon = Daemon::start();
    let live = |renewal_time, expire_time| {
        Message { renewal_time, expire_time, ..Message::new(Command::TestLive) }.encode()
    };
    // Leaves in order, at once.
    let mut leaver = daemon.raw();
    let set = Message::new(Command::RefcountSet).encode();
    let clear = Message::new(Command::RefcountClear).encode();
    leaver.write_all(&[set, live(1, u64::MAX), live(0, 0), clear].concat()).unwrap();
    drop(leaver);
    // Is supervised, and dies at once.
    let name = sanlock_wdmd::protocol::Name::new(b"comer").unwrap();
    let register = Message { name, ..Message::new(Command::Register) }.encode();
    let mut comer = daemon.raw();
    comer.write_all(&[register, set, live(1, u64::MAX)].concat()).unwrap();
    drop(comer);
    daemon.wait_for("name comer ", true);
    daemon.wait_for(" dead 1 ref 1 ", true);
    assert_eq!(daemon.dump().matches(" expire 18446744073709551615").count(), 1);
}

#[test]
fn unknown_messages_are_ignored_and_parts_of_messages_delay_nobody() {
    let daemon = Daemon::start();
    let mut odd = daemon.raw();
    odd.write_all(&[0xff; MESSAGE_LEN * 3]).unwrap();
    odd.write_all(&Message::new(Command::Status).encode()).unwrap();
    assert_eq!(receive(&mut odd).fire_timeout, 60);
    let started = Instant::now();
    let mut partial = daemon.raw();
    partial.write_all(&[1; 100]).unwrap();
    assert_eq!(daemon.connect().status(LONG).unwrap().fire_timeout, 60);
    // Dropped after a while, and not sooner than it may be.
    assert_eq!(partial.read(&mut [0; 1]).unwrap(), 0);
    assert!(started.elapsed() > Duration::from_secs(4));
    odd.write_all(&Message::new(Command::Status).encode()).unwrap();
    receive(&mut odd);
}

#[test]
fn who_reads_no_replies_is_dropped_and_delays_nobody() {
    let daemon = Daemon::start();
    let mut flood = daemon.raw();
    let name = sanlock_wdmd::protocol::Name::new(b"flood").unwrap();
    flood.write_all(&Message { name, ..Message::new(Command::Register) }.encode()).unwrap();
    daemon.wait_for("name flood ", true);
    flood.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let status = Message::new(Command::Status).encode();
    while flood.write_all(&status).is_ok() {}
    assert_eq!(daemon.connect().status(LONG).unwrap().fire_timeout, 60);
    daemon.wait_for("name flood ", false);
}

#[test]
fn too_many_connections_wait_until_others_go() {
    let daemon = Daemon::start_with(|server| server.max_connections = 2);
    let (mut one, mut two) = (daemon.connect(), daemon.connect());
    one.status(LONG).unwrap();
    two.status(LONG).unwrap();
    let mut three = daemon.connect();
    assert!(matches!(three.status(Duration::from_millis(300)), Err(ClientError::Timeout { .. })));
    let mut three = daemon.connect();
    drop((one, two));
    three.status(LONG).unwrap();
}

#[test]
fn accepting_that_cannot_be_resumed_is_tried_again() {
    let daemon = Daemon::start_with(|server| {
        server.max_connections = 2;
        server.poller.failures.set(Failures { listener: 2, change: 0 });
    });
    let (mut one, mut two) = (daemon.connect(), daemon.connect());
    one.open_watchdog(60, LONG).unwrap();
    two.status(LONG).unwrap();
    let mut three = daemon.connect();
    assert!(matches!(three.status(Duration::from_millis(300)), Err(ClientError::Timeout { .. })));
    drop((two, three));
    // Whoever has an armed device is served all the time.
    let mut three = daemon.connect();
    three.status(LONG).unwrap();
    one.status(LONG).unwrap();
    drop((one, three));
    assert_eq!(daemon.stop(), ["open", "set 15", "ping", "V", "close"]);
}

#[test]
fn a_connection_that_cannot_be_watched_ends_alone_and_its_expiry_stays() {
    for supervised in [false, true] {
        let daemon = Daemon::start_with(|server| {
            server.poller.failures.set(Failures { listener: 0, change: 1 });
        });
        let mut other = daemon.connect();
        other.open_watchdog(60, LONG).unwrap();
        let mut flood = daemon.raw();
        let name = sanlock_wdmd::protocol::Name::new(b"flood").unwrap();
        flood.write_all(&Message { name, ..Message::new(Command::Register) }.encode()).unwrap();
        if supervised {
            let live = Message { renewal_time: 1, expire_time: u64::MAX, ..Message::new(Command::TestLive) };
            flood.write_all(&live.encode()).unwrap();
        }
        daemon.wait_for("name flood ", true);
        flood.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        let status = Message::new(Command::Status).encode();
        while flood.write_all(&status).is_ok() {}
        if supervised {
            daemon.wait_for(" dead 1 ref 0 ", true);
        } else {
            daemon.wait_for("name flood ", false);
        }
        other.status(LONG).unwrap();
        if !supervised {
            drop(other);
            assert_eq!(daemon.stop(), ["open", "set 15", "ping", "V", "close"]);
        }
    }
}

#[test]
fn a_device_that_cannot_be_armed_is_an_answer() {
    let daemon = Daemon::start_with(|_| {
        pretended::with(|driver| driver.open_error = nix::libc::EBUSY);
    });
    let mut client = daemon.connect();
    assert!(matches!(client.open_watchdog(60, LONG), Err(ClientError::Refused { asked: 60, .. })));
    // A client of the first generation sees it in the status.
    client.refcount_set().unwrap();
    assert_eq!(client.status(LONG).unwrap().fire_timeout, 0);
    drop(client);
    assert_eq!(daemon.stop(), ["open", "open"]);
}

#[test]
fn a_stop_is_remembered_until_the_last_reference_goes() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    client.open_watchdog(60, LONG).unwrap();
    client.refcount_set().unwrap();
    client.status(LONG).unwrap();
    daemon.signals.terminate();
    client.status(LONG).unwrap();
    daemon.wait_for(" ref 1 ", true);
    client.refcount_clear().unwrap();
    assert_eq!(daemon.thread.join().unwrap(), ["open", "set 15", "ping", "V", "close"]);
}

#[test]
fn a_stop_that_has_woken_nobody_is_seen_at_the_next_turn() {
    let daemon = Daemon::start();
    daemon.signals.terminate_unheard();
    // Whatever else happens makes a turn.
    let _client = daemon.raw();
    let end = Instant::now() + LONG;
    while !daemon.thread.is_finished() {
        assert!(Instant::now() < end, "not seen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_reply_that_memory_is_lacking_for_is_sent_later() {
    let daemon = Daemon::start_with(|_| failing::with(&[Errno::ENOBUFS; 5]));
    let mut client = daemon.raw();
    let started = Instant::now();
    // The second request lies there meanwhile, and is no reason to try again at once.
    client.write_all(&[Message::new(Command::Status).encode(); 2].concat()).unwrap();
    receive(&mut client);
    assert!(started.elapsed() > Duration::from_millis(300), "five tries more: {:?}", started.elapsed());
    receive(&mut client);
    drop(client);
    assert_eq!(daemon.stop(), [""; 0]);
}
