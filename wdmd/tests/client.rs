//! The client against stub daemons: every generation, and every way of not answering.
#![expect(clippy::unwrap_used, reason = "tests")]

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{Backlog, listen};
use sanlock_wdmd::client::{ClientError, Connection, Generation, Opened, SEND_WITHIN, Status};
use sanlock_wdmd::protocol::{Command, MESSAGE_LEN, Message};
use signal::{a_plain_write_raises_sigpipe, raises_sigpipe};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[path = "../../client/tests/signal/mod.rs"]
mod signal;

/// Far above what an answer takes on the slowest machine.
const LONG: Duration = Duration::from_secs(60);
/// For calls that must run into their limit.
const SHORT: Duration = Duration::from_millis(100);

struct Stub {
    dir: tempfile::TempDir,
    thread: JoinHandle<Vec<Message>>,
}

impl Stub {
    /// A daemon for one connection; `answer` gives the bytes to send for each message, until end of stream. The messages
    /// that came are its result.
    fn start(mut answer: impl FnMut(&Message) -> Vec<u8> + Send + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("sock")).unwrap();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut seen = Vec::new();
            let mut bytes = [0; MESSAGE_LEN];
            while stream.read_exact(&mut bytes).is_ok() {
                let message = Message::decode(&bytes);
                seen.push(message);
                stream.write_all(&answer(&message)).unwrap();
            }
            seen
        });
        Self { dir, thread }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("sock")
    }

    fn connect(&self) -> Connection {
        Connection::connect(&self.path(), LONG).unwrap()
    }

    fn messages(self) -> Vec<Message> {
        self.thread.join().unwrap()
    }
}

fn status_reply(request: &Message, fire_timeout: u32) -> Vec<u8> {
    Message { test_interval: 10, fire_timeout, last_keepalive: 77, ..*request }.encode().to_vec()
}

/// Answers OPEN_WATCHDOG with `opened` (`None`: not at all), STATUS with `status`.
fn daemon(opened: Option<u32>, status: u32) -> Stub {
    Stub::start(move |message| match (Command::from_number(message.cmd), opened) {
        (Some(Command::OpenWatchdog), Some(fire_timeout)) => {
            Message { fire_timeout, ..*message }.encode().to_vec()
        }
        (Some(Command::Status), _) => status_reply(message, status),
        _ => Vec::new(),
    })
}

#[test]
fn both_generations_are_recognised() {
    for (opened, generation) in [(None, Generation::One), (Some(60), Generation::Two)] {
        let stub = daemon(opened, 60);
        let mut connection = stub.connect();
        let status = Status { test_interval: 10, fire_timeout: 60, last_keepalive: 77 };
        assert_eq!(connection.open_watchdog(60, LONG).unwrap(), Opened { generation, status });
        assert_eq!(connection.status(LONG).unwrap(), status);
        drop(connection);
        assert_eq!(stub.messages().len(), 3);
    }
}

#[test]
fn refusals_and_other_timeouts_say_so_and_leave_the_connection_usable() {
    let stub = daemon(Some(0), 60);
    let mut connection = stub.connect();
    let error = connection.open_watchdog(30, LONG).unwrap_err();
    assert!(matches!(error, ClientError::Refused { asked: 30, .. }), "{error:?}");
    assert!(error.to_string().contains(&stub.path().display().to_string()), "{error}");
    connection.status(LONG).unwrap();

    for (opened, status, of) in [(Some(60), 60, Generation::Two), (None, 60, Generation::One)] {
        let stub = daemon(opened, status);
        let mut connection = stub.connect();
        let error = connection.open_watchdog(30, LONG).unwrap_err();
        let ClientError::OtherTimeout { asked: 30, in_use: 60, generation, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!(generation, of);
        connection.status(LONG).unwrap();
    }

    // A daemon of our own that could not open the device for a gen 1 client answers 0 to STATUS.
    let stub = daemon(None, 0);
    assert!(matches!(stub.connect().open_watchdog(60, LONG), Err(ClientError::Refused { asked: 60, .. })));
    // 0 is an answer to 0 and still no device.
    let stub = daemon(Some(0), 60);
    assert!(matches!(stub.connect().open_watchdog(0, LONG), Err(ClientError::Refused { asked: 0, .. })));
}

#[test]
fn requests_arrive_as_sent() {
    let stub = daemon(None, 60);
    let mut connection = stub.connect();
    connection.register("sanlock_LS:1").unwrap();
    connection.refcount_set().unwrap();
    connection.test_live(100, 180).unwrap();
    connection.test_live(0, 0).unwrap();
    connection.refcount_clear().unwrap();
    assert!(matches!(connection.register(&"x".repeat(129)), Err(ClientError::NameTooLong { len: 129 })));
    connection.register(&"x".repeat(128)).unwrap();
    drop(connection);
    let seen = stub.messages();
    let commands: Vec<u32> = seen.iter().map(|message| message.cmd).collect();
    assert_eq!(commands, [1, 2, 4, 4, 3, 1]);
    assert_eq!(seen[0].name.as_bytes(), b"sanlock_LS:1");
    assert_eq!((seen[2].renewal_time, seen[2].expire_time), (100, 180));
    assert_eq!((seen[3].renewal_time, seen[3].expire_time), (0, 0));
    assert_eq!(seen[5].name.as_bytes(), [b'x'; 128]);
}

#[test]
fn a_silent_daemon_is_a_timeout_and_the_connection_is_spent() {
    let stub = Stub::start(|_| Vec::new());
    let mut connection = stub.connect();
    let error = connection.status(SHORT).unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }), "{error:?}");
    // A late answer to the first STATUS must not be taken for that to the next.
    assert!(matches!(connection.status(SHORT), Err(ClientError::Unusable { .. })));
    assert!(matches!(connection.test_live(1, 2), Err(ClientError::Unusable { .. })));
}

#[test]
fn a_daemon_that_never_reads_cannot_block_the_sender() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut connection = Connection::connect(&path, LONG).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut sent = 0;
    let error = loop {
        if let Err(error) = connection.test_live(1, 2) {
            break error;
        }
        sent += 1;
    };
    assert!(matches!(error, ClientError::Unsent { .. }), "{error:?}");
    assert!(error.to_string().contains("it does not read"), "{error}");
    // Nothing of that one has gone, and what tries once does not wait at all.
    let begun = Instant::now();
    assert!(matches!(connection.try_test_live(1, 2), Err(ClientError::Unsent { .. })));
    assert!(matches!(connection.ask_status(), Err(ClientError::Unsent { .. })));
    assert!(matches!(connection.withdraw(Duration::ZERO), Err(ClientError::Unsent { .. })));
    assert!(begun.elapsed() < SEND_WITHIN);
    assert!(!connection.is_asked());
    // It reads again, and finds whole messages.
    let mut bytes = [0; MESSAGE_LEN];
    let mut next = || {
        stream.read_exact(&mut bytes).unwrap();
        let message = Message::decode(&bytes);
        (message.cmd, message.renewal_time, message.expire_time)
    };
    for _ in 0..sent {
        assert_eq!(next(), (4, 1, 2));
    }
    connection.try_test_live(7, 8).unwrap();
    connection.withdraw(Duration::ZERO).unwrap();
    assert_eq!([next(), next(), next()], [(4, 7, 8), (4, 0, 0), (3, 0, 0)]);
}

/// A reply to the first of two messages that belong together must not be taken for that to another.
#[test]
fn a_question_that_was_sent_in_part_spends_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut connection = Connection::connect(&path, LONG).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    while connection.try_test_live(1, 2).is_ok() {}
    let mut bytes = [0; MESSAGE_LEN];
    // There is room for one message again, and STATUS is a second one.
    stream.read_exact(&mut bytes).unwrap();
    let error = connection.open_watchdog(60, SHORT).unwrap_err();
    assert!(matches!(error, ClientError::Unsent { .. }), "{error:?}");
    assert!(matches!(connection.status(SHORT), Err(ClientError::Unusable { .. })));
    // What was given can still be taken back.
    stream.set_read_timeout(Some(SHORT)).unwrap();
    let mut last = 0;
    while stream.read_exact(&mut bytes).is_ok() {
        last = Message::decode(&bytes).cmd;
    }
    assert_eq!(last, Command::OpenWatchdog.number());
    connection.withdraw(SHORT).unwrap();
    assert!(matches!(connection.test_live(1, 2), Err(ClientError::Unusable { .. })));
}

#[test]
fn short_replies_and_strange_ones() {
    let stub = Stub::start(|message| {
        let mut reply = message.encode().to_vec();
        reply.truncate(100);
        reply
    });
    assert!(matches!(stub.connect().status(SHORT), Err(ClientError::Timeout { .. })));

    let stub = Stub::start(|message| Message { cmd: 99, ..*message }.encode().to_vec());
    let mut connection = stub.connect();
    let error = connection.status(LONG).unwrap_err();
    assert!(matches!(error, ClientError::UnexpectedReply { got: 99, expected: 5, .. }), "{error:?}");
}

#[test]
fn the_end_of_the_daemon_is_seen_without_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sock");
    let listener = UnixListener::bind(&path).unwrap();
    let connect = || -> (Connection, UnixStream) {
        let connection = Connection::connect(&path, LONG).unwrap();
        (connection, listener.accept().unwrap().0)
    };
    let (mut connection, stream) = connect();
    drop(stream);
    let mut polled = [PollFd::new(connection.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut polled, 60_000_u16).unwrap(), 1);
    assert!(polled[0].revents().unwrap().contains(PollFlags::POLLHUP));
    assert!(a_plain_write_raises_sigpipe());
    let raised = raises_sigpipe(|| {
        assert!(matches!(connection.test_live(1, 2), Err(ClientError::Closed { .. })));
    });
    assert!(!raised);

    // A reply cut short by the daemon's end is no status.
    let (mut connection, mut stream) = connect();
    stream.write_all(&[0; 20]).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(matches!(connection.status(LONG), Err(ClientError::Closed { .. })));
}

#[test]
fn no_daemon_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sock");
    let error = Connection::connect(&path, LONG).unwrap_err().to_string();
    assert!(error.contains("is wdmd running"), "{error}");
    drop(UnixListener::bind(&path).unwrap());
    let error = Connection::connect(&path, LONG).unwrap_err().to_string();
    assert!(error.contains("is wdmd running"), "{error}");
    let long = dir.path().join("x".repeat(200));
    assert!(matches!(Connection::connect(&long, LONG), Err(ClientError::Connect { .. })));
}

#[test]
fn a_full_backlog_is_a_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sock");
    let listener = UnixListener::bind(&path).unwrap();
    listen(&listener, Backlog::new(3).unwrap()).unwrap();
    let mut connections = Vec::new();
    let error = loop {
        match Connection::connect(&path, SHORT) {
            Ok(connection) => connections.push(connection),
            Err(error) => break error,
        }
        assert!(connections.len() < 100, "nobody accepts, so the backlog must fill");
    };
    assert!(error.to_string().contains("hangs"), "{error}");
}
