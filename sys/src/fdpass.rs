//! Passing open descriptors between processes over Unix sockets.

use nix::cmsg_space;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg,
    socketpair,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// One end of a pair of sockets that keep message boundaries; close-on-exec.
#[derive(Debug)]
pub struct FdSocket(OwnedFd);

/// A message received.
#[derive(Debug)]
pub struct Received {
    /// Bytes of the message; 0 with no descriptor means that the other end is closed.
    pub len: usize,
    /// The descriptor that came with it.
    pub fd: Option<OwnedFd>,
    /// One was sent with it, for which there was no place here.
    pub lost_fd: bool,
}

/// A new pair.
///
/// # Errors
/// EMFILE, ENFILE, ENOBUFS: no descriptor or memory is to be had.
pub fn fd_socket_pair() -> io::Result<(FdSocket, FdSocket)> {
    let (one, other) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    Ok((FdSocket(one), FdSocket(other)))
}

impl FdSocket {
    /// Sends a message with a descriptor. Never blocks.
    ///
    /// # Errors
    /// EAGAIN: the other end reads too slowly. EPIPE: it is closed.
    pub fn send(&self, message: &[u8], fd: BorrowedFd<'_>) -> io::Result<()> {
        let fds = [fd.as_raw_fd()];
        let control = [ControlMessage::ScmRights(&fds)];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(message)], &control, flags, None)?;
        Ok(())
    }

    /// Sends a message without a descriptor. Never blocks.
    ///
    /// # Errors
    /// As [`FdSocket::send`].
    pub fn send_bytes(&self, message: &[u8]) -> io::Result<()> {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(message)], &[], flags, None)?;
        Ok(())
    }

    /// Waits for a message.
    ///
    /// # Errors
    /// Those of `recvmsg`.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.receive_with(buffer, MsgFlags::empty())
    }

    /// Takes a message if there is one. Never blocks.
    ///
    /// # Errors
    /// EAGAIN: there is none. Those of `recvmsg`.
    pub fn receive_now(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.receive_with(buffer, MsgFlags::MSG_DONTWAIT)
    }

    fn receive_with(&self, buffer: &mut [u8], flags: MsgFlags) -> io::Result<Received> {
        let mut control = cmsg_space!([RawFd; 1]);
        let mut parts = [IoSliceMut::new(buffer)];
        let flags = flags | MsgFlags::MSG_CMSG_CLOEXEC;
        let message = recvmsg::<()>(self.0.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
        let mut fd = None;
        // Where no descriptor is free the message comes without the one that was sent along. What was sent with it counts all the same.
        for part in message.cmsgs().into_iter().flatten() {
            if let ControlMessageOwned::ScmRights(fds) = part {
                for raw in fds {
                    // SAFETY: the kernel has just made this descriptor for us and nobody else knows it.
                    fd = Some(unsafe { OwnedFd::from_raw_fd(raw) });
                }
            }
        }
        let lost_fd = fd.is_none() && message.flags.contains(MsgFlags::MSG_CTRUNC);
        Ok(Received { len: message.bytes, fd, lost_fd })
    }
}

impl AsFd for FdSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;

    #[test]
    fn a_descriptor_arrives_open() {
        let (one, other) = fd_socket_pair().unwrap();
        one.send(b"k", File::open("/proc/self/comm").unwrap().as_fd()).unwrap();
        let mut buffer = [0; 8];
        let received = other.receive(&mut buffer).unwrap();
        assert_eq!((received.len, buffer[0]), (1, b'k'));
        let mut text = String::new();
        File::from(received.fd.unwrap()).read_to_string(&mut text).unwrap();
        assert!(!text.is_empty());
        assert_eq!(other.receive_now(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        one.send_bytes(b"bare").unwrap();
        let bare = other.receive_now(&mut buffer).unwrap();
        assert!(bare.len == 4 && bare.fd.is_none() && !bare.lost_fd);
        drop(one);
        let end = other.receive(&mut buffer).unwrap();
        assert!(end.len == 0 && end.fd.is_none());
    }

    #[test]
    fn a_message_arrives_without_its_descriptor_where_none_is_free() {
        let (one, other) = fd_socket_pair().unwrap();
        one.send(b"k", File::open("/proc/self/comm").unwrap().as_fd()).unwrap();
        // In a process of its own: the limit is the whole process's.
        // SAFETY: the child makes a few system calls and ends; the C library makes its allocator usable there.
        let ended = unsafe {
            match libc::fork() {
                0 => {
                    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                    libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none);
                    let mut buffer = [0; 8];
                    let well = matches!(
                        other.receive_now(&mut buffer),
                        Ok(Received { len: 1, fd: None, lost_fd: true })
                    );
                    libc::_exit(i32::from(!(well && buffer[0] == b'k')))
                }
                child => {
                    let mut status = -1;
                    libc::waitpid(child, &raw mut status, 0);
                    status
                }
            }
        };
        assert_eq!(ended, 0);
    }

    #[test]
    fn sending_blocks_nobody() {
        let (one, other) = fd_socket_pair().unwrap();
        let file = File::open("/dev/null").unwrap();
        let full = (0..100_000).find_map(|_| one.send(b"k", file.as_fd()).err()).unwrap();
        assert!(matches!(full.raw_os_error(), Some(libc::EAGAIN | libc::ETOOMANYREFS)), "{full}");
        drop(other);
        // Data nobody read was lost first.
        assert_eq!(one.send(b"k", file.as_fd()).unwrap_err().raw_os_error(), Some(libc::ECONNRESET));
        assert_eq!(one.send(b"k", file.as_fd()).unwrap_err().raw_os_error(), Some(libc::EPIPE));
    }
}
