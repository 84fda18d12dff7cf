//! What the front waits for.

use std::io;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use sanlock_manager::ConnId;

use super::CONNECTIONS_MAX;

/// Events taken at a time; the rest is reported by the next wait.
pub(super) const EVENTS: usize = 64;

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
    /// The machine woke up.
    Awake,
    /// A connection. Its slot may be another's when the event is looked at, its id never is.
    Conn(ConnId),
    /// The process registered on a connection has ended.
    Pid(ConnId),
}

/// Where the kind stands in what the kernel keeps; below it the id.
const KIND_SHIFT: u32 = 60;
const ID_MASK: u64 = (1 << KIND_SHIFT) - 1;

impl Token {
    fn encode(self) -> u64 {
        match self {
            Self::Listener => 0,
            Self::Mailbox => 1,
            Self::Signal => 2,
            Self::Helper => 5,
            Self::Awake => 6,
            Self::Conn(id) => (3 << KIND_SHIFT) | (id.0 & ID_MASK),
            Self::Pid(id) => (4 << KIND_SHIFT) | (id.0 & ID_MASK),
        }
    }

    fn decode(data: u64) -> Option<Self> {
        match (data >> KIND_SHIFT, data & ID_MASK) {
            (0, 0) => Some(Self::Listener),
            (0, 1) => Some(Self::Mailbox),
            (0, 2) => Some(Self::Signal),
            (0, 5) => Some(Self::Helper),
            (0, 6) => Some(Self::Awake),
            (3, id) => Some(Self::Conn(ConnId(id))),
            (4, id) => Some(Self::Pid(ConnId(id))),
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
}

/// Brings what happened into the order in which it is to be looked at: who has hung up or ended first, who wants to connect last.
///
/// What a process did before it connected, or spoke on another connection, comes before that: the users of a lockspace that is removed are killed,
/// and who has closed his connection is none. The kernel's order does not say so: what was reported once stays in its place, ready or not.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// How many batches in a row were full since somebody could connect.
    full: usize,
}

/// So many full batches have everything that was ready before the first one: a connection and its process each.
const FULL_BATCHES_MAX: usize = 2 * CONNECTIONS_MAX as usize / EVENTS + 1;

impl Order {
    /// Orders a batch. Of one that is full the rest may have hung up before somebody connected, so the listener waits, as long as that can be.
    pub(super) fn bring(&mut self, batch: &mut Vec<Ready>) {
        self.full = if batch.len() < EVENTS { 0 } else { self.full + 1 };
        let connects = |ready: &Ready| ready.token == Token::Listener;
        if (1..=FULL_BATCHES_MAX).contains(&self.full) {
            batch.retain(|ready| !connects(ready));
        } else if batch.iter().any(connects) {
            // Of many that are ready all the time it is in few batches.
            self.full = 0;
        }
        batch.sort_by_key(|ready| match ready.token {
            Token::Pid(_) => 0,
            Token::Conn(_) if ready.hung_up => 0,
            Token::Listener => 2,
            _ => 1,
        });
    }
}

/// An epoll instance with tokens.
#[derive(Debug)]
pub(super) struct Poller(Epoll);

/// What a connection is watched for besides hang-up, which is always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interest {
    pub(super) read: bool,
    pub(super) write: bool,
}

impl Interest {
    pub(super) const READ: Self = Self { read: true, write: false };

    fn flags(self) -> EpollFlags {
        let mut flags = EpollFlags::empty();
        flags.set(EpollFlags::EPOLLIN, self.read);
        flags.set(EpollFlags::EPOLLOUT, self.write);
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
        let mut limit = millis;
        let count = loop {
            match self.0.wait(&mut events, EpollTimeout::from(limit)) {
                Ok(count) => break count,
                // After this process was stopped: what there is now is to be seen, and what time it is.
                Err(Errno::EINTR) => limit = 0,
                Err(errno) => return Err(errno.into()),
            }
        };
        for event in events.get(..count).unwrap_or_default() {
            let flags = event.events();
            if let Some(token) = Token::decode(event.data()) {
                out.push(Ready {
                    token,
                    readable: flags.contains(EpollFlags::EPOLLIN),
                    writable: flags.contains(EpollFlags::EPOLLOUT),
                    hung_up: flags.intersects(EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR),
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
            Token::Conn(ConnId(0)),
            Token::Conn(ConnId(1 << 40)),
            Token::Pid(ConnId(ID_MASK)),
        ] {
            assert_eq!(Token::decode(token.encode()), Some(token));
        }
        assert_eq!(Token::decode(99), None);
    }

    fn ready(token: Token, hung_up: bool) -> Ready {
        Ready { token, readable: true, writable: false, hung_up }
    }

    #[test]
    fn who_has_hung_up_is_heard_before_others_and_who_connects_last() {
        let conn = |id| Token::Conn(ConnId(id));
        let mut batch = vec![
            ready(Token::Listener, false),
            ready(conn(1), false),
            ready(Token::Mailbox, false),
            ready(conn(2), true),
            ready(Token::Pid(ConnId(3)), false),
        ];
        Order::default().bring(&mut batch);
        let tokens: Vec<Token> = batch.iter().map(|ready| ready.token).collect();
        assert_eq!(tokens, [conn(2), Token::Pid(ConnId(3)), conn(1), Token::Mailbox, Token::Listener]);
    }

    #[test]
    fn who_connects_waits_for_what_a_full_batch_left_out_but_not_for_ever() {
        let mut order = Order::default();
        // Of 192 that are always ready the kernel tells by turns.
        let taken: Vec<bool> = (0..2 * (FULL_BATCHES_MAX + 4))
            .map(|turn| {
                let token = |n| {
                    if n == 100 { Token::Listener } else { Token::Conn(ConnId(n)) }
                };
                let first = (turn as u64 * EVENTS as u64) % 192;
                let mut batch: Vec<Ready> =
                    (first..first + EVENTS as u64).map(|n| ready(token(n), false)).collect();
                order.bring(&mut batch);
                batch.last().unwrap().token == Token::Listener
            })
            .collect();
        assert_eq!(taken.iter().filter(|taken| **taken).count(), 2, "{taken:?}");

        let mut order = Order::default();
        let mut full = || {
            let others = (1..EVENTS as u64).map(|id| ready(Token::Conn(ConnId(id)), false));
            let mut batch: Vec<Ready> =
                std::iter::once(ready(Token::Listener, false)).chain(others).collect();
            order.bring(&mut batch);
            batch.last().unwrap().token == Token::Listener
        };
        let accepted: Vec<bool> = (0..2 * (FULL_BATCHES_MAX + 1)).map(|_| full()).collect();
        let times: Vec<usize> =
            accepted.iter().enumerate().filter(|(_, taken)| **taken).map(|(n, _)| n).collect();
        assert_eq!(times, [FULL_BATCHES_MAX, 2 * FULL_BATCHES_MAX + 1]);
        let mut batch = vec![ready(Token::Listener, false)];
        order.bring(&mut batch);
        assert_eq!(batch.len(), 1, "all that was ready is here");
    }
}
