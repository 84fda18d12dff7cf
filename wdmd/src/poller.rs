//! What the loop waits for.

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use sanlock_wdmd::decide::SourceId;
use std::io;
use std::os::fd::BorrowedFd;

/// Events taken at a time; the rest is reported by the next wait, in turn.
const EVENTS: usize = 256;

/// Who an event is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    /// A signal came.
    Signal,
    /// Connections wait.
    Listener,
    /// This connection has bytes, room, or has ended.
    Conn(SourceId),
}

/// Client slots are 2 and above, so their numbers leave room for the others.
impl Token {
    fn encode(self) -> u64 {
        match self {
            Self::Signal => 1 << 32,
            Self::Listener => 2 << 32,
            Self::Conn(id) => u64::from(id),
        }
    }

    fn decode(data: u64) -> Self {
        match data >> 32 {
            1 => Self::Signal,
            2 => Self::Listener,
            _ => Self::Conn(SourceId::try_from(data).unwrap_or(0)),
        }
    }
}

/// What of a descriptor is waited for, beside its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Something to read.
    Bytes,
    /// Room to write.
    Room,
    /// Nothing else.
    Nothing,
}

/// A set of descriptors to wait for.
pub(crate) struct Poller {
    epoll: Epoll,
    /// The next calls of each kind fail, as without memory: to watch the listener, and to watch for something else.
    #[cfg(test)]
    pub(crate) failures: std::cell::Cell<Failures>,
}

#[cfg(test)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Failures {
    pub(crate) listener: u32,
    pub(crate) change: u32,
}

fn event(token: Token, wanted: Wanted) -> EpollEvent {
    let flags = match wanted {
        Wanted::Bytes => EpollFlags::EPOLLIN,
        Wanted::Room => EpollFlags::EPOLLOUT,
        Wanted::Nothing => EpollFlags::empty(),
    };
    EpollEvent::new(flags, token.encode())
}

impl Poller {
    /// # Errors
    ///
    /// No descriptor is to be had.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            #[cfg(test)]
            failures: std::cell::Cell::default(),
        })
    }

    #[cfg(test)]
    fn fail(&self, which: impl FnOnce(&mut Failures) -> &mut u32) -> io::Result<()> {
        let mut failures = self.failures.get();
        let left = which(&mut failures);
        if *left == 0 {
            return Ok(());
        }
        *left -= 1;
        self.failures.set(failures);
        Err(Errno::ENOSPC.into())
    }

    /// Watches for bytes, and for the end.
    ///
    /// # Errors
    ///
    /// No memory, or the limit of watched descriptors.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        #[cfg(test)]
        if token == Token::Listener {
            self.fail(|failures| &mut failures.listener)?;
        }
        Ok(self.epoll.add(fd, event(token, Wanted::Bytes))?)
    }

    /// Watches for this from now on, and for the end.
    ///
    /// # Errors
    ///
    /// It is not watched.
    pub(crate) fn change(&self, fd: BorrowedFd<'_>, token: Token, wanted: Wanted) -> io::Result<()> {
        #[cfg(test)]
        self.fail(|failures| &mut failures.change)?;
        Ok(self.epoll.modify(fd, &mut event(token, wanted))?)
    }

    /// Ends the watch, if there is one.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) {
        let _ = self.epoll.delete(fd);
    }

    /// Waits at most `millis`; whom something has happened to.
    ///
    /// # Errors
    ///
    /// Only for reasons that a correct program does not meet.
    pub(crate) fn wait(&self, millis: u16, out: &mut Vec<Token>) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS];
        let count = match self.epoll.wait(&mut events, EpollTimeout::from(millis)) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        out.extend(events.iter().take(count).map(|event| Token::decode(event.data())));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back() {
        for token in [Token::Signal, Token::Listener, Token::Conn(2), Token::Conn(u32::MAX)] {
            assert_eq!(Token::decode(token.encode()), token);
        }
    }
}
