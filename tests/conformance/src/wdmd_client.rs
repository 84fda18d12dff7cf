//! A client of wdmd, message by message (wdmd.md 5), written down once more from the specification.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Length of every message but the text of a dump.
pub const MESSAGE_LENGTH: usize = 176;

/// A reply that has not come by now will not come.
const REPLY_LIMIT: Duration = Duration::from_secs(30);

/// Numbers of the commands.
pub mod cmd {
    #![allow(missing_docs)]
    pub const REGISTER: u32 = 1;
    pub const REFCOUNT_SET: u32 = 2;
    pub const REFCOUNT_CLEAR: u32 = 3;
    pub const TEST_LIVE: u32 = 4;
    pub const STATUS: u32 = 5;
    pub const DUMP_DEBUG: u32 = 6;
    pub const OPEN_WATCHDOG: u32 = 7;
}

/// A message; every field as it stands on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Message {
    pub magic: u32,
    pub cmd: u32,
    pub len: u32,
    pub flags: u32,
    pub test_interval: u32,
    pub fire_timeout: u32,
    pub last_keepalive: u64,
    pub renewal_time: u64,
    pub expire_time: u64,
    pub name: [u8; 128],
}

impl Message {
    /// A request with nothing but the command.
    #[must_use]
    pub fn new(cmd: u32) -> Self {
        Self {
            magic: 0,
            cmd,
            len: 0,
            flags: 0,
            test_interval: 0,
            fire_timeout: 0,
            last_keepalive: 0,
            renewal_time: 0,
            expire_time: 0,
            name: [0; 128],
        }
    }

    /// TEST_LIVE.
    #[must_use]
    pub fn test_live(renewal_time: u64, expire_time: u64) -> Self {
        Self { renewal_time, expire_time, ..Self::new(cmd::TEST_LIVE) }
    }

    /// REGISTER with at most 128 bytes of `name`.
    #[must_use]
    pub fn register(name: &[u8]) -> Self {
        let mut message = Self::new(cmd::REGISTER);
        for (to, from) in message.name.iter_mut().zip(name) {
            *to = *from;
        }
        message
    }

    /// OPEN_WATCHDOG.
    #[must_use]
    pub fn open_watchdog(fire_timeout: u32) -> Self {
        Self { fire_timeout, ..Self::new(cmd::OPEN_WATCHDOG) }
    }

    /// The bytes on the wire.
    #[must_use]
    pub fn bytes(&self) -> [u8; MESSAGE_LENGTH] {
        let mut bytes = [0; MESSAGE_LENGTH];
        let words = [self.magic, self.cmd, self.len, self.flags, self.test_interval, self.fire_timeout];
        for (to, from) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&from.to_ne_bytes());
        }
        let longs = [self.last_keepalive, self.renewal_time, self.expire_time];
        for (to, from) in bytes[24..48].chunks_exact_mut(8).zip(longs) {
            to.copy_from_slice(&from.to_ne_bytes());
        }
        bytes[48..].copy_from_slice(&self.name);
        bytes
    }

    /// Reads a message.
    ///
    /// # Panics
    /// Never: the array has the length it must have.
    #[must_use]
    pub fn parse(bytes: &[u8; MESSAGE_LENGTH]) -> Self {
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| {
            let mut long = [0; 8];
            long.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(long)
        };
        let mut name = [0; 128];
        name.copy_from_slice(&bytes[48..]);
        Self {
            magic: word(0),
            cmd: word(4),
            len: word(8),
            flags: word(12),
            test_interval: word(16),
            fire_timeout: word(20),
            last_keepalive: long(24),
            renewal_time: long(32),
            expire_time: long(40),
            name,
        }
    }
}

/// What STATUS answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Status {
    pub test_interval: u32,
    pub fire_timeout: u32,
    pub last_keepalive: u64,
}

/// A connection to wdmd, shut down when it goes out of scope.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
}

impl Drop for Client {
    fn drop(&mut self) {
        // Not only closed: a child that another test's thread is just starting has a copy, with which the end would be seen late.
        // That fails where the daemon is gone already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Client {
    /// Takes over a connected socket.
    ///
    /// # Panics
    /// When limits cannot be set on it.
    #[must_use]
    pub fn new(stream: UnixStream) -> Self {
        for set in [stream.set_read_timeout(Some(REPLY_LIMIT)), stream.set_write_timeout(Some(REPLY_LIMIT))] {
            set.unwrap_or_else(|error| panic!("setting a limit: {error}"));
        }
        Self { stream }
    }

    /// The socket, for what no well-behaved client does.
    #[must_use]
    pub fn stream(&mut self) -> &mut UnixStream {
        &mut self.stream
    }

    /// Sends any bytes.
    ///
    /// # Panics
    /// When the daemon does not take them.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap_or_else(|error| panic!("sending {} bytes: {error}", bytes.len()));
    }

    /// Sends one message.
    ///
    /// # Panics
    /// When the daemon does not take it.
    pub fn send(&mut self, message: &Message) {
        self.send_bytes(&message.bytes());
    }

    /// Sends several messages with one call.
    ///
    /// # Panics
    /// When the daemon does not take them.
    pub fn send_all(&mut self, messages: &[Message]) {
        let bytes: Vec<u8> = messages.iter().flat_map(Message::bytes).collect();
        self.send_bytes(&bytes);
    }

    /// The next reply, bytes as they came.
    ///
    /// # Panics
    /// When none comes.
    pub fn receive_bytes(&mut self) -> [u8; MESSAGE_LENGTH] {
        let mut bytes = [0; MESSAGE_LENGTH];
        self.stream.read_exact(&mut bytes).unwrap_or_else(|error| panic!("waiting for a reply: {error}"));
        bytes
    }

    /// The next reply.
    ///
    /// # Panics
    /// When none comes.
    pub fn receive(&mut self) -> Message {
        Message::parse(&self.receive_bytes())
    }

    /// Sends `message` and returns the reply.
    ///
    /// # Panics
    /// When none comes.
    pub fn ask(&mut self, message: &Message) -> Message {
        self.send(message);
        self.receive()
    }

    /// Whether anything (a reply, an end of stream) comes within `limit`.
    ///
    /// # Panics
    /// When the socket cannot be read.
    pub fn hears_within(&mut self, limit: Duration) -> bool {
        let set = self.stream.set_read_timeout(Some(limit));
        let read = self.stream.read(&mut [0; MESSAGE_LENGTH]);
        let reset = self.stream.set_read_timeout(Some(REPLY_LIMIT));
        assert!(set.is_ok() && reset.is_ok(), "setting a limit: {set:?} {reset:?}");
        match read {
            Ok(_) => true,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => false,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => true,
            Err(error) => panic!("reading: {error}"),
        }
    }

    /// STATUS. Everything sent before has been handled when it returns.
    ///
    /// # Panics
    /// When no reply comes.
    pub fn status(&mut self) -> Status {
        let reply = self.ask(&Message::new(cmd::STATUS));
        assert_eq!(reply.cmd, cmd::STATUS, "the reply to STATUS: {reply:?}");
        Status {
            test_interval: reply.test_interval,
            fire_timeout: reply.fire_timeout,
            last_keepalive: reply.last_keepalive,
        }
    }

    /// OPEN_WATCHDOG: the timeout in the reply. (The original of 3.8.5 never answers.)
    ///
    /// # Panics
    /// When no reply comes.
    pub fn open_watchdog(&mut self, fire_timeout: u32) -> u32 {
        let reply = self.ask(&Message::open_watchdog(fire_timeout));
        assert_eq!(reply.cmd, cmd::OPEN_WATCHDOG, "the reply to OPEN_WATCHDOG: {reply:?}");
        reply.fire_timeout
    }

    /// Sends messages without reply and waits until they have been handled.
    ///
    /// # Panics
    /// When the STATUS behind them is not answered.
    pub fn apply(&mut self, messages: &[Message]) -> Status {
        self.send_all(messages);
        self.status()
    }

    /// DUMP_DEBUG: the text. Its length is unknown, so a STATUS goes behind it, whose reply is its end.
    ///
    /// # Panics
    /// When the text does not come.
    pub fn dump(&mut self) -> String {
        self.send_all(&[Message::new(cmd::DUMP_DEBUG), Message::new(cmd::STATUS)]);
        let mut bytes = Vec::new();
        let mut piece = [0; 8192];
        loop {
            let length = match self.stream.read(&mut piece) {
                Ok(0) => panic!("end of stream after {:?}", String::from_utf8_lossy(&bytes)),
                Ok(length) => length,
                Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&bytes)),
            };
            bytes.extend(&piece[..length]);
            let Some(text_end) = bytes.len().checked_sub(MESSAGE_LENGTH) else { continue };
            let tail: Result<[u8; MESSAGE_LENGTH], _> = bytes[text_end..].try_into();
            if tail.is_ok_and(|tail| Message::parse(&tail).cmd == cmd::STATUS) {
                bytes.truncate(text_end);
                return String::from_utf8_lossy(&bytes).into_owned();
            }
        }
    }
}
