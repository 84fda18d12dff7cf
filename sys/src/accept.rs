//! Accepting connections that never block.

use nix::sys::socket::{SockFlag, accept4};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::{UnixListener, UnixStream};

/// Accepts a connection whose descriptor is non-blocking from the beginning, in one call.
///
/// # Errors
///
/// EAGAIN: the listener is non-blocking and nobody waits. EMFILE, ENFILE, ENOBUFS, ENOMEM. ECONNABORTED: who waited has gone.
pub fn accept_nonblocking(listener: &UnixListener) -> io::Result<UnixStream> {
    let fd = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK)?;
    // SAFETY: the kernel has just made this descriptor for us and nobody else knows it. It is a socket of the listener's kind.
    Ok(unsafe { UnixStream::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_is_accepted_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(accept_nonblocking(&listener).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let _peer = UnixStream::connect(&path).unwrap();
        let mut accepted = accept_nonblocking(&listener).unwrap();
        assert_eq!(accepted.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
