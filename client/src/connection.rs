//! One connection to the daemon: connect, send a request, read its reply.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{ReceiveTimeout, SendTimeout};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, socket};
use nix::sys::time::{TimeVal, TimeValLike};
use sanlock_wire::{Command, Reply, ReplyDecoder, Request};

use crate::error::{CONNECT, ClientError};

/// Longest path of a socket. It is one byte less than an address has room for: the original's clients cut longer ones to this, and would
/// reach another socket, or none (socket-protocol.md 1.1).
pub const SOCKET_PATH_MAX: usize = 106;
/// Bytes read in one `recv` at most.
const READ_CHUNK: usize = 16 * 1024;

fn io(op: &'static str) -> impl Fn(Errno) -> ClientError {
    move |errno| ClientError::Io { op, errno: errno as i32 }
}

/// How long a call may take, all of it together; without an end it waits as long as the daemon does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Until(Option<Instant>);

impl Until {
    pub(crate) const NEVER: Self = Self(None);

    /// From now on.
    pub(crate) fn within(limit: Option<Duration>) -> Self {
        Self(limit.and_then(|limit| Instant::now().checked_add(limit)))
    }

    /// Gives the next operation on the socket what is left of the time.
    fn apply(self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let Some(end) = self.0 else { return Ok(()) };
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Errno::ETIMEDOUT);
        }
        // Zero would mean: no limit.
        let micros = i64::try_from(left.as_micros()).unwrap_or(i64::MAX).max(1);
        setsockopt(&fd, SendTimeout, &TimeVal::microseconds(micros))?;
        setsockopt(&fd, ReceiveTimeout, &TimeVal::microseconds(micros))
    }

    /// Takes back what [`Until::apply`] has left on a socket that is used without an end from now on. It would go on in whoever inherits the descriptor.
    pub(crate) fn lift(self, fd: BorrowedFd<'_>) -> Result<(), ClientError> {
        if self.0.is_none() {
            return Ok(());
        }
        let never = TimeVal::microseconds(0);
        let both =
            setsockopt(&fd, SendTimeout, &never).and_then(|()| setsockopt(&fd, ReceiveTimeout, &never));
        both.map_err(io("setsockopt"))
    }

    /// What the kernel says when the time given to an operation has passed.
    fn name(self, errno: Errno) -> Errno {
        if self.0.is_some() && errno == Errno::EAGAIN { Errno::ETIMEDOUT } else { errno }
    }
}

/// Connects to `path`. `inheritable`: the descriptor survives `execve` (socket-protocol.md 2.5).
pub(crate) fn open(path: &Path, inheritable: bool, until: Until) -> Result<OwnedFd, ClientError> {
    let fits = path.as_os_str().len() <= SOCKET_PATH_MAX;
    let address = if fits { UnixAddr::new(path) } else { Err(Errno::ENAMETOOLONG) };
    let address = address.map_err(io(CONNECT))?;
    let flags = if inheritable { SockFlag::empty() } else { SockFlag::SOCK_CLOEXEC };
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None).map_err(io("socket"))?;
    timed(until, fd.as_fd(), || connect(fd.as_raw_fd(), &address)).map_err(io(CONNECT))?;
    Ok(fd)
}

/// Sends a whole request. A closed peer is an error, never a SIGPIPE.
pub(crate) fn send_request(fd: BorrowedFd<'_>, request: &Request, until: Until) -> Result<(), ClientError> {
    let bytes = request.encode();
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let sent =
            timed(until, fd, || send(fd.as_raw_fd(), rest, MsgFlags::MSG_NOSIGNAL)).map_err(io("send"))?;
        rest = rest.get(sent..).unwrap_or(&[]);
    }
    Ok(())
}

/// Reads the reply to `command` and not a byte more.
pub(crate) fn read_reply(fd: BorrowedFd<'_>, command: Command, until: Until) -> Result<Reply, ClientError> {
    let mut decoder = ReplyDecoder::new(command);
    let mut chunk = [0; READ_CHUNK];
    loop {
        let wanted = decoder.wants().clamp(1, READ_CHUNK);
        let buffer = chunk.get_mut(..wanted).unwrap_or(&mut []);
        let got = receive(fd, buffer, until)?;
        if got == 0 {
            return decoder.end().map_err(|_| ClientError::Closed);
        }
        if let Some(reply) = decoder.feed(&mut chunk.get(..got).unwrap_or(&[]))? {
            return Ok(reply);
        }
    }
}

/// Reads what is there, as far as `buffer` has room, or waits for it; 0 at the end of the stream.
pub(crate) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8], until: Until) -> Result<usize, ClientError> {
    timed(until, fd, || recv(fd.as_raw_fd(), buffer, MsgFlags::empty())).map_err(io("recv"))
}

/// Sends a request on a fresh connection and reads its reply, whatever the result.
pub(crate) fn call(
    path: &Path,
    command: Command,
    request: &Request,
    until: Until,
) -> Result<Reply, ClientError> {
    let fd = open(path, false, until)?;
    send_request(fd.as_fd(), request, until)?;
    read_reply(fd.as_fd(), command, until)
}

/// A result that must be 0.
pub(crate) fn success(command: Command, reply: Reply) -> Result<Reply, ClientError> {
    match reply.header.result() {
        0 => Ok(reply),
        code => Err(ClientError::Daemon { code, command }),
    }
}

/// A result where positive numbers are success too.
pub(crate) fn count(command: Command, reply: &Reply) -> Result<u32, ClientError> {
    let code = reply.header.result();
    u32::try_from(code).map_err(|_| ClientError::Daemon { code, command })
}

/// Repeats an operation that a signal interrupted, within the time there is.
fn timed<T>(
    until: Until,
    fd: BorrowedFd<'_>,
    mut operation: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    loop {
        until.apply(fd)?;
        match operation() {
            Err(Errno::EINTR) => {}
            other => return other.map_err(|errno| until.name(errno)),
        }
    }
}
