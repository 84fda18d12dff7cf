//! One connection to wdmd: one supervised source (specification 5, 6, 10, 11).
//!
//! No call blocks longer than its limit, and none raises SIGPIPE. After a call has failed half-way, or was not answered in
//! time, the connection answers every further call with [`ClientError::Unusable`]: the next reply could not be told from a
//! late one. A call of which nothing could be sent has changed nothing, and can be made again ([`ClientError::Unsent`]).
//!
//! **Dropping a connection that has an expiry leads to a reset of this host**; clear it first with [`Connection::test_live`]`(0, 0)`, and let [`Connection::status`] confirm that the daemon has read it.

use crate::protocol::{Command, MESSAGE_LEN, Message, NAME_LEN, Name};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

pub use crate::protocol::SOCKET_PATH;

/// Limit of the calls that only send. The daemon reads at once unless it hangs; the socket's buffer takes hundreds of messages.
pub const SEND_WITHIN: Duration = Duration::from_secs(2);
/// A sensible limit for calls with a reply: a 5.1.1 daemon that waits for its scripts answers after up to 9 s.
pub const REPLY_WITHIN: Duration = Duration::from_secs(15);

/// Pause before a message is sent again that the kernel had no memory for.
const MEMORY_RETRY: Duration = Duration::from_millis(20);

/// What went wrong, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens: `NotFound` or `ConnectionRefused`; `PermissionDenied`: not a member of the socket's group.
    #[error("cannot connect to wdmd at {}: {source}; {}", path.display(), connect_advice(source))]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What `connect` said.
        source: io::Error,
    },
    /// A system call on the connected socket failed.
    #[error("{action} wdmd at {}: {source}; is the daemon still running?", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// `sending to` or `receiving from`.
        action: &'static str,
        /// What the system call said.
        source: io::Error,
    },
    /// Nothing of the message could be sent: the kernel has no memory for it, or the daemon reads nothing and the socket's buffer is full. The daemon
    /// is still there as far as is known, the call has changed nothing, and it can be tried again on this connection.
    #[error("nothing could be sent to wdmd at {}: {source}", path.display())]
    Unsent {
        /// The socket.
        path: PathBuf,
        /// What the system call said.
        source: io::Error,
    },
    /// The daemon has closed the connection: it was stopped or has died. If it had an armed device, this host will be reset.
    #[error("wdmd at {} has closed the connection; if it died, this host is reset within its fire timeout", path.display())]
    Closed {
        /// The socket.
        path: PathBuf,
    },
    /// No answer within the limit.
    #[error("wdmd at {} did not {what} within {within:?}; see `wdmd -d` and the system log", path.display())]
    Timeout {
        /// The socket.
        path: PathBuf,
        /// `answer STATUS`, `read` …
        what: &'static str,
        /// The limit.
        within: Duration,
    },
    /// The daemon did not open the device: none found, it does not take the timeout, or it is about to fire.
    #[error(
        "wdmd at {} refused to open a watchdog device with a fire timeout of {asked} s; its reason is in the system log",
        path.display()
    )]
    Refused {
        /// The socket.
        path: PathBuf,
        /// The fire timeout asked for.
        asked: u32,
    },
    /// The device runs with another timeout.
    #[error(
        "wdmd at {} uses a fire timeout of {in_use} s, {asked} s was asked for ({generation}); all hosts and clients must \
         use one value", path.display()
    )]
    OtherTimeout {
        /// The socket.
        path: PathBuf,
        /// The fire timeout asked for.
        asked: u32,
        /// The fire timeout in use.
        in_use: u32,
        /// A gen 1 daemon knows only 60.
        generation: Generation,
    },
    /// Not a reply that a daemon sends.
    #[error("unexpected reply of wdmd at {}: command {got}, expected {expected}", path.display())]
    UnexpectedReply {
        /// The socket.
        path: PathBuf,
        /// Command number in the reply.
        got: u32,
        /// Command number of the request.
        expected: u32,
    },
    /// Longer than [`NAME_LEN`].
    #[error("name of {len} bytes, wdmd takes at most {NAME_LEN}")]
    NameTooLong {
        /// Its length.
        len: usize,
    },
    /// An earlier call on this connection failed half-way.
    #[error("an earlier call to wdmd at {} failed half-way; make a new connection", path.display())]
    Unusable {
        /// The socket.
        path: PathBuf,
    },
}

fn connect_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            "is wdmd running? (systemctl start wdmd)"
        }
        io::ErrorKind::PermissionDenied => "the socket is for root and its group (wdmd -G) only",
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "the daemon accepts no connections, it hangs",
        _ => "see the system log",
    }
}

/// Which design a daemon follows (specification 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// Up to 3.8.5: the device is armed while the daemon runs, always with 60 s.
    One,
    /// From 3.9: armed on request.
    Two,
}

impl std::fmt::Display for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::One => "a daemon of the first generation, which knows only 60 s",
            Self::Two => "another client chose it",
        })
    }
}

/// The reply to STATUS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Current test interval, seconds: 1 while a source is bad.
    pub test_interval: u32,
    /// Fire timeout, seconds. 0: this daemon protects nobody.
    pub fire_timeout: u32,
    /// Monotonic second of the last keepalive, 0 if never.
    pub last_keepalive: u64,
}

/// An armed device, with the fire timeout that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// The daemon's design.
    pub generation: Generation,
    /// The state just after.
    pub status: Status,
}

/// A connection to wdmd.
#[derive(Debug)]
pub struct Connection {
    fd: OwnedFd,
    path: PathBuf,
    /// Message boundaries and the order of replies are known.
    usable: bool,
    /// A message was sent in part only: whatever follows would be misread.
    torn: bool,
    /// A reply is due that nobody waits for ([`Connection::ask_status`]).
    asked: bool,
    /// What has been read of the next message, and how much that is.
    read: Box<[u8; MESSAGE_LEN]>,
    have: usize,
}

impl Connection {
    /// Connects. Usual arguments: [`SOCKET_PATH`] and [`REPLY_WITHIN`].
    ///
    /// # Errors
    ///
    /// [`ClientError::Connect`].
    pub fn connect(path: &Path, within: Duration) -> Result<Self, ClientError> {
        let failed = |source: io::Error| ClientError::Connect { path: path.to_owned(), source };
        let address = UnixAddr::new(path).map_err(|errno| failed(errno.into()))?;
        let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
            .map_err(|errno| failed(errno.into()))?;
        let deadline = Instant::now() + within;
        loop {
            // A full backlog makes `connect` wait; the send timeout bounds that. 0 would mean "for ever".
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            let limit = TimeVal::new(
                i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                i64::from(left.subsec_micros()),
            );
            setsockopt(&fd, sockopt::SendTimeout, &limit).map_err(|errno| failed(errno.into()))?;
            match connect(fd.as_raw_fd(), &address) {
                Ok(()) => {
                    let path = path.to_owned();
                    let (usable, torn, asked) = (true, false, false);
                    return Ok(Self {
                        fd,
                        path,
                        usable,
                        torn,
                        asked,
                        read: Box::new([0; MESSAGE_LEN]),
                        have: 0,
                    });
                }
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(failed(errno.into())),
            }
        }
    }

    /// Has the device armed with this fire timeout, or finds it armed so.
    ///
    /// A gen 1 daemon ignores the command in silence. STATUS is therefore sent right behind it: messages are handled in
    /// order, so if the first reply is that to STATUS, the daemon is gen 1, and its device is armed anyway.
    ///
    /// # Errors
    ///
    /// [`ClientError::Refused`] and [`ClientError::OtherTimeout`] leave the connection usable, [`ClientError::Unsent`] perhaps. `fire_timeout` 0 is
    /// `Refused`.
    pub fn open_watchdog(&mut self, fire_timeout: u32, within: Duration) -> Result<Opened, ClientError> {
        let deadline = Instant::now() + within;
        let open = Message { fire_timeout, ..Message::new(Command::OpenWatchdog) };
        self.send(&open, deadline, within)?;
        if let Err(error) = self.send(&Message::new(Command::Status), deadline, within) {
            // A reply to the first message may come, and nobody would know it from another.
            self.usable = false;
            return Err(error);
        }
        let first = self.receive("answer OPEN_WATCHDOG or STATUS", deadline, within)?;
        let (generation, in_use, status) = match Command::from_number(first.cmd) {
            Some(Command::Status) => (Generation::One, first.fire_timeout, status_of(&first)),
            Some(Command::OpenWatchdog) => {
                let second = self.receive("answer STATUS", deadline, within)?;
                self.expect(&second, Command::Status)?;
                (Generation::Two, first.fire_timeout, status_of(&second))
            }
            _ => return Err(self.unexpected(&first, Command::OpenWatchdog)),
        };
        if in_use == 0 || fire_timeout == 0 {
            return Err(ClientError::Refused { path: self.path.clone(), asked: fire_timeout });
        }
        if in_use != fire_timeout {
            let path = self.path.clone();
            return Err(ClientError::OtherTimeout { path, asked: fire_timeout, in_use, generation });
        }
        Ok(Opened { generation, status })
    }

    /// Gives the connection a name for the daemon's log and dump.
    ///
    /// # Errors
    ///
    /// [`ClientError::NameTooLong`]; else as all calls that only send: the daemon is gone or does not read.
    pub fn register(&mut self, name: &str) -> Result<(), ClientError> {
        let name = Name::new(name.as_bytes()).ok_or(ClientError::NameTooLong { len: name.len() })?;
        self.tell(&Message { name, ..Message::new(Command::Register) })
    }

    /// The daemon is not to stop while this connection exists.
    ///
    /// # Errors
    ///
    /// The daemon is gone or does not read.
    pub fn refcount_set(&mut self) -> Result<(), ClientError> {
        self.tell(&Message::new(Command::RefcountSet))
    }

    /// Takes [`Connection::refcount_set`] back.
    ///
    /// # Errors
    ///
    /// The daemon is gone or does not read.
    pub fn refcount_clear(&mut self) -> Result<(), ClientError> {
        self.tell(&Message::new(Command::RefcountClear))
    }

    /// Renewed at `renewal`; if nothing else is said by `expire`, the host is reset by `expire` + fire timeout at the
    /// latest. Monotonic seconds. `expire` 0 ends the supervision.
    ///
    /// # Errors
    ///
    /// The daemon is gone or does not read. The old expiry then stays in force.
    pub fn test_live(&mut self, renewal: u64, expire: u64) -> Result<(), ClientError> {
        self.tell(&Message { renewal_time: renewal, expire_time: expire, ..Message::new(Command::TestLive) })
    }

    /// The same, tried once, without waiting.
    ///
    /// # Errors
    ///
    /// As [`Self::test_live`]; [`ClientError::Unsent`] where it would have to wait.
    pub fn try_test_live(&mut self, renewal: u64, expire: u64) -> Result<(), ClientError> {
        let live = Message { renewal_time: renewal, expire_time: expire, ..Message::new(Command::TestLive) };
        self.send(&live, Instant::now(), Duration::ZERO)
    }

    /// The daemon's state. An answer also proves that all earlier calls on this connection have been carried out.
    ///
    /// # Errors
    ///
    /// The daemon is gone or does not answer.
    pub fn status(&mut self, within: Duration) -> Result<Status, ClientError> {
        let deadline = Instant::now() + within;
        self.send(&Message::new(Command::Status), deadline, within)?;
        let reply = self.receive("answer STATUS", deadline, within)?;
        self.expect(&reply, Command::Status)?;
        Ok(status_of(&reply))
    }

    /// Asks for the daemon's state without waiting: the connection gets readable when the answer is there, for [`Self::answered`]. Calls that
    /// wait for answers of their own pass over it.
    ///
    /// # Errors
    ///
    /// The daemon is gone. [`ClientError::Unsent`]: it was not asked, for the question would have to wait.
    pub fn ask_status(&mut self) -> Result<(), ClientError> {
        if !self.asked {
            self.send(&Message::new(Command::Status), Instant::now(), Duration::ZERO)?;
            self.asked = true;
        }
        Ok(())
    }

    /// Whether an answer is due that nobody waits for.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.asked
    }

    /// That answer, if it is there by now.
    ///
    /// # Errors
    ///
    /// The daemon is gone, or says something else.
    pub fn answered(&mut self) -> Result<Option<Status>, ClientError> {
        if !self.asked {
            return Ok(None);
        }
        self.begin()?;
        let reply = self.read_on()?;
        self.usable = true;
        let Some(reply) = reply else { return Ok(None) };
        self.asked = false;
        self.expect(&reply, Command::Status)?;
        Ok(Some(status_of(&reply)))
    }

    /// Takes expiry and reference back, also when a reply was lost and other calls are refused. The daemon carries it out when it
    /// reads again: keep the connection until then, since a daemon of the original may drop what is queued on a closed one
    /// (specification 5.4). Each of the two messages may wait for `within` to be sent, which may be [`Duration::ZERO`].
    ///
    /// # Errors
    ///
    /// The daemon is gone. [`ClientError::Unsent`]: it does not read; expiry or reference are still there, and this can be tried again.
    pub fn withdraw(&mut self, within: Duration) -> Result<(), ClientError> {
        let usable = std::mem::replace(&mut self.usable, !self.torn);
        let mut sent = Ok(());
        for command in [Command::TestLive, Command::RefcountClear] {
            sent = sent.and_then(|()| self.send(&Message::new(command), Instant::now() + within, within));
        }
        self.usable &= usable;
        sent
    }

    fn tell(&mut self, message: &Message) -> Result<(), ClientError> {
        self.send(message, Instant::now() + SEND_WITHIN, SEND_WITHIN)
    }

    fn expect(&mut self, reply: &Message, command: Command) -> Result<(), ClientError> {
        if reply.cmd == command.number() { Ok(()) } else { Err(self.unexpected(reply, command)) }
    }

    fn unexpected(&mut self, reply: &Message, command: Command) -> ClientError {
        self.usable = false;
        ClientError::UnexpectedReply { path: self.path.clone(), got: reply.cmd, expected: command.number() }
    }

    fn send(
        &mut self,
        message: &Message,
        mut deadline: Instant,
        within: Duration,
    ) -> Result<(), ClientError> {
        self.begin()?;
        let bytes = message.encode();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            match send(self.fd.as_raw_fd(), rest, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT) {
                Ok(sent) => {
                    rest = rest.get(sent..).unwrap_or(&[]);
                    self.torn = !rest.is_empty();
                    // Without the rest the connection is lost.
                    deadline = deadline.max(Instant::now() + SEND_WITHIN);
                }
                Err(Errno::EINTR) => {}
                Err(errno @ (Errno::EPIPE | Errno::ECONNRESET)) => {
                    return Err(self.lost("sending to", errno));
                }
                Err(errno) => self.wait_to_send(errno, deadline, within)?,
            }
        }
        self.usable = true;
        Ok(())
    }

    /// Waits until sending, which failed, is worth another try. What has failed without a byte sent leaves the connection as it was: to give one that
    /// has an expiry up for that would be the end of this host.
    fn wait_to_send(&mut self, errno: Errno, deadline: Instant, within: Duration) -> Result<(), ClientError> {
        // The kernel has no memory for the message just now.
        let no_memory = matches!(errno, Errno::ENOBUFS | Errno::ENOMEM);
        if (no_memory || errno == Errno::EAGAIN) && Instant::now() < deadline {
            if no_memory || self.wait(PollFlags::POLLOUT, "read", deadline, within).is_err() {
                thread::sleep(MEMORY_RETRY);
            }
            return Ok(());
        }
        let path = self.path.clone();
        if !self.torn {
            self.usable = true;
            let source = match errno {
                Errno::EAGAIN => io::Error::new(io::ErrorKind::WouldBlock, "it does not read"),
                errno => errno.into(),
            };
            return Err(ClientError::Unsent { path, source });
        }
        Err(match errno {
            Errno::EAGAIN => ClientError::Timeout { path, what: "read", within },
            errno => self.lost("sending to", errno),
        })
    }

    fn receive(
        &mut self,
        what: &'static str,
        deadline: Instant,
        within: Duration,
    ) -> Result<Message, ClientError> {
        self.begin()?;
        loop {
            match self.read_on()? {
                // The answer that nobody waits for comes first.
                Some(reply) if std::mem::replace(&mut self.asked, false) => {
                    self.expect(&reply, Command::Status)?;
                }
                Some(reply) => {
                    self.usable = true;
                    return Ok(reply);
                }
                None => self.wait(PollFlags::POLLIN, what, deadline, within)?,
            }
        }
    }

    /// The next message, once all of it is there.
    fn read_on(&mut self) -> Result<Option<Message>, ClientError> {
        while let Some(rest @ [_, ..]) = self.read.get_mut(self.have..) {
            match recv(self.fd.as_raw_fd(), rest, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return Err(ClientError::Closed { path: self.path.clone() }),
                Ok(got) => self.have += got,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(None),
                Err(errno) => return Err(self.lost("receiving from", errno)),
            }
        }
        self.have = 0;
        Ok(Some(Message::decode(&self.read)))
    }

    /// Until the step has succeeded the connection counts as unusable.
    fn begin(&mut self) -> Result<(), ClientError> {
        if std::mem::replace(&mut self.usable, false) {
            Ok(())
        } else {
            Err(ClientError::Unusable { path: self.path.clone() })
        }
    }

    fn lost(&self, action: &'static str, errno: Errno) -> ClientError {
        let path = self.path.clone();
        match errno {
            Errno::EPIPE | Errno::ECONNRESET => ClientError::Closed { path },
            errno => ClientError::Io { path, action, source: errno.into() },
        }
    }

    /// Waits until the socket is ready or broken (the next call then says which).
    fn wait(
        &self,
        flags: PollFlags,
        what: &'static str,
        deadline: Instant,
        within: Duration,
    ) -> Result<(), ClientError> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // Rounded up, so that the last wait does not spin.
            let milliseconds = u16::try_from(left.as_millis().saturating_add(1)).unwrap_or(u16::MAX);
            if left.is_zero() {
                return Err(ClientError::Timeout { path: self.path.clone(), what, within });
            }
            match poll(&mut [PollFd::new(self.fd.as_fd(), flags)], PollTimeout::from(milliseconds)) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => {
                    let path = self.path.clone();
                    return Err(ClientError::Io { path, action: "waiting for", source: errno.into() });
                }
            }
        }
    }
}

fn status_of(reply: &Message) -> Status {
    Status {
        test_interval: reply.test_interval,
        fire_timeout: reply.fire_timeout,
        last_keepalive: reply.last_keepalive,
    }
}

impl AsFd for Connection {
    /// For polling. Between calls no reply is due, unless [`Self::is_asked`]: readable or hung up means that the daemon has closed the connection.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
