//! One connection to the daemon: connect, send a request, read its reply.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, socket};
use sanlock_wire::{Command, Reply, ReplyDecoder, Request};

use crate::error::ClientError;

/// Bytes read in one `recv` at most.
const READ_CHUNK: usize = 16 * 1024;

fn io(op: &'static str) -> impl Fn(Errno) -> ClientError {
    move |errno| ClientError::Io { op, errno: errno as i32 }
}

/// Connects to `path`. `inheritable`: the descriptor survives `execve` (socket-protocol.md 2.5).
pub(crate) fn open(path: &Path, inheritable: bool) -> Result<OwnedFd, ClientError> {
    let address = UnixAddr::new(path).map_err(io("connect"))?;
    let flags = if inheritable { SockFlag::empty() } else { SockFlag::SOCK_CLOEXEC };
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None).map_err(io("socket"))?;
    retry(|| connect(fd.as_raw_fd(), &address)).map_err(io("connect"))?;
    Ok(fd)
}

/// Sends a whole request. A closed peer is an error, never a SIGPIPE.
pub(crate) fn send_request(fd: BorrowedFd<'_>, request: &Request) -> Result<(), ClientError> {
    let bytes = request.encode();
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let sent = retry(|| send(fd.as_raw_fd(), rest, MsgFlags::MSG_NOSIGNAL)).map_err(io("send"))?;
        rest = rest.get(sent..).unwrap_or(&[]);
    }
    Ok(())
}

/// Reads the reply to `command` and not a byte more.
pub(crate) fn read_reply(fd: BorrowedFd<'_>, command: Command) -> Result<Reply, ClientError> {
    let mut decoder = ReplyDecoder::new(command);
    let mut chunk = [0; READ_CHUNK];
    loop {
        let wanted = decoder.wants().clamp(1, READ_CHUNK);
        let buffer = chunk.get_mut(..wanted).unwrap_or(&mut []);
        let got = retry(|| recv(fd.as_raw_fd(), buffer, MsgFlags::empty())).map_err(io("recv"))?;
        if got == 0 {
            return decoder.end().map_err(|_| ClientError::Closed);
        }
        if let Some(reply) = decoder.feed(&mut chunk.get(..got).unwrap_or(&[]))? {
            return Ok(reply);
        }
    }
}

/// Sends a request on a fresh connection and reads its reply, whatever the result.
pub(crate) fn call(path: &Path, command: Command, request: &Request) -> Result<Reply, ClientError> {
    let fd = open(path, false)?;
    send_request(fd.as_fd(), request)?;
    read_reply(fd.as_fd(), command)
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

fn retry<T>(mut operation: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match operation() {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}
