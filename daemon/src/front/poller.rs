//! What the front waits for.

use std::io;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// Events taken at a time; the rest is reported by the next wait.
const EVENTS: usize = 64;

/// Who an event is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// Connections wait to be accepted.
    Listener,
    /// Other threads sent messages.
    Mailbox,
    /// A signal came.
    Signal,
    /// The helper reports.
    Helper,
    /// The connection in this slot.
    Conn(u32),
    /// The process registered in this slot has ended.
    Pid(u32),
}

impl Token {
    fn encode(self) -> u64 {
        match self {
            Self::Listener => 0,
            Self::Mailbox => 1,
            Self::Signal => 2,
            Self::Helper => 5,
            Self::Conn(slot) => (3 << 32) | u64::from(slot),
            Self::Pid(slot) => (4 << 32) | u64::from(slot),
        }
    }

    fn decode(data: u64) -> Option<Self> {
        let slot = u32::try_from(data & 0xffff_ffff).unwrap_or(0);
        match (data >> 32, slot) {
            (0, 0) => Some(Self::Listener),
            (0, 1) => Some(Self::Mailbox),
            (0, 2) => Some(Self::Signal),
            (0, 5) => Some(Self::Helper),
            (3, slot) => Some(Self::Conn(slot)),
            (4, slot) => Some(Self::Pid(slot)),
            _ => None,
        }
    }
}

/// What happened to a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) token: Token,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// Both directions are closed, or the descriptor is broken.
    pub(super) hung_up: bool,
    /// The peer closed its sending direction.
    pub(super) half_closed: bool,
}

/// An epoll instance with tokens.
#[derive(Debug)]
pub(super) struct Poller(Epoll);

/// What a connection is watched for besides hang-up, which is always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interest {
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) half_close: bool,
}

impl Interest {
    pub(super) const READ: Self = Self { read: true, write: false, half_close: false };

    fn flags(self) -> EpollFlags {
        let mut flags = EpollFlags::empty();
        flags.set(EpollFlags::EPOLLIN, self.read);
        flags.set(EpollFlags::EPOLLOUT, self.write);
        flags.set(EpollFlags::EPOLLRDHUP, self.half_close);
        flags
    }
}

impl Poller {
    /// # Errors
    /// No descriptor is to be had.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?))
    }

    /// # Errors
    /// No memory, or the limit of watched descriptors.
    pub(super) fn add(&self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        Ok(self.0.add(fd, EpollEvent::new(interest.flags(), token.encode()))?)
    }

    /// # Errors
    /// It was not added.
    pub(super) fn change(&self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        Ok(self.0.modify(fd, &mut EpollEvent::new(interest.flags(), token.encode()))?)
    }

    /// Ends the watch. A descriptor that is not watched is no error here.
    pub(super) fn remove(&self, fd: BorrowedFd<'_>) {
        let _ = self.0.delete(fd);
    }

    /// Waits at most `millis` and appends what happened.
    ///
    /// # Errors
    /// Only for reasons that a correct program does not meet.
    pub(super) fn wait(&self, millis: u16, out: &mut Vec<Ready>) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS];
        let count = match self.0.wait(&mut events, EpollTimeout::from(millis)) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        for event in events.get(..count).unwrap_or_default() {
            let flags = event.events();
            if let Some(token) = Token::decode(event.data()) {
                out.push(Ready {
                    token,
                    readable: flags.contains(EpollFlags::EPOLLIN),
                    writable: flags.contains(EpollFlags::EPOLLOUT),
                    hung_up: flags.intersects(EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR),
                    half_closed: flags.contains(EpollFlags::EPOLLRDHUP),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_kernel() {
        for token in [
            Token::Listener,
            Token::Mailbox,
            Token::Signal,
            Token::Helper,
            Token::Conn(0),
            Token::Conn(1023),
            Token::Pid(u32::MAX),
        ] {
            assert_eq!(Token::decode(token.encode()), Some(token));
        }
        assert_eq!(Token::decode(99), None);
    }
}
