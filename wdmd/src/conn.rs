//! One connection: bytes in, whole messages out; replies go out as the peer takes them. Nothing here blocks.

use crate::poller::Wanted;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};
use sanlock_wdmd::decide::Time;
use sanlock_wdmd::protocol::{MESSAGE_LEN, Message};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// A message must be complete within this time, milliseconds.
pub(crate) const PARTIAL_WITHIN_MS: i64 = 5_000;
/// A peer must take some of its replies within this time, milliseconds.
pub(crate) const UNREAD_WITHIN_MS: i64 = 10_000;
/// What the kernel had no memory to send is tried again after this, milliseconds.
pub(crate) const SEND_AGAIN_MS: i64 = 100;

/// What reading gave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Message(Box<Message>),
    /// Nothing more at the moment.
    Nothing,
    /// The stream has ended, inside a message after that many bytes.
    End(usize),
    /// The socket is broken.
    Failed(Errno),
}

pub(crate) struct Conn {
    stream: UnixStream,
    buffer: [u8; MESSAGE_LEN],
    have: usize,
    /// Since when part of a message has been waiting for the rest.
    partial_since: Option<Time>,
    out: Vec<u8>,
    sent: usize,
    /// When the peer last took something while more was waiting, or since when memory is lacking.
    unread_since: Option<Time>,
    /// The kernel lacks memory to send more: its error, and when it is tried again.
    send_again: Option<(Errno, Time)>,
    /// The peer takes nothing any more.
    deaf: bool,
    /// What the poller has been told to watch for.
    pub(crate) watched: Wanted,
}

impl Conn {
    /// The stream must not block.
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            buffer: [0; MESSAGE_LEN],
            have: 0,
            partial_since: None,
            out: Vec::new(),
            sent: 0,
            unread_since: None,
            send_again: None,
            deaf: false,
            watched: Wanted::Bytes,
        }
    }

    /// Whether replies wait for the peer. Nothing is read meanwhile, which bounds what can wait.
    pub(crate) fn unsent(&self) -> usize {
        self.out.len().saturating_sub(self.sent)
    }

    /// The next message.
    pub(crate) fn read(&mut self, now: Time) -> Read {
        loop {
            let rest = self.buffer.get_mut(self.have..).unwrap_or(&mut []);
            match recv(self.stream.as_raw_fd(), rest, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return Read::End(self.have),
                Ok(got) => self.have += got,
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => return Read::Nothing,
                Err(errno) => return Read::Failed(errno),
            }
            if self.have == MESSAGE_LEN {
                self.have = 0;
                self.partial_since = None;
                return Read::Message(Box::new(Message::decode(&self.buffer)));
            }
            self.partial_since.get_or_insert(now);
        }
    }

    /// Queues bytes for the peer and sends what it takes.
    pub(crate) fn write(&mut self, now: Time, bytes: &[u8]) {
        if !self.deaf {
            self.out.extend_from_slice(bytes);
            self.flush(now);
        }
    }

    /// Sends what the peer takes. A peer that is gone gets nothing; its messages are still read. One for whom memory is lacking is there, and may have
    /// an expiry that its end would leave behind.
    pub(crate) fn flush(&mut self, now: Time) {
        self.send_again = None;
        while self.unsent() > 0 {
            let rest = self.out.get(self.sent..).unwrap_or(&[]);
            match send_some(&self.stream, rest) {
                Ok(sent) => {
                    self.sent += sent;
                    self.unread_since = Some(now);
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    self.unread_since.get_or_insert(now);
                    return;
                }
                Err(errno @ (Errno::ENOBUFS | Errno::ENOMEM)) => {
                    self.unread_since.get_or_insert(now);
                    self.send_again = Some((errno, now.plus_millis(SEND_AGAIN_MS)));
                    return;
                }
                Err(_) => {
                    self.deaf = true;
                    break;
                }
            }
        }
        self.out = Vec::new();
        self.sent = 0;
        self.unread_since = None;
    }

    /// When [`Conn::flush`] is to be called again, and why: the kernel lacked memory, and does not tell when it has some.
    pub(crate) fn send_again(&self) -> Option<(Errno, Time)> {
        self.send_again
    }

    /// What to watch for. While memory is lacking, only for the end: there may be room and bytes all the time.
    pub(crate) fn wants(&self) -> Wanted {
        if self.unsent() == 0 {
            Wanted::Bytes
        } else if self.send_again.is_some() {
            Wanted::Nothing
        } else {
            Wanted::Room
        }
    }

    /// Why the peer is to be dropped, if it has kept its part of a message, or its replies, waiting for too long.
    pub(crate) fn overdue(&self, now: Time) -> Option<Overdue> {
        let older =
            |since: Option<Time>, limit: i64| since.is_some_and(|since| now.millis_since(since) >= limit);
        if older(self.partial_since, PARTIAL_WITHIN_MS) {
            Some(Overdue::Partial(self.have))
        } else if older(self.unread_since, UNREAD_WITHIN_MS) {
            Some(match self.send_again {
                Some((errno, _)) => Overdue::Unsent(self.unsent(), errno),
                None => Overdue::Unread(self.unsent()),
            })
        } else {
            None
        }
    }

    /// Whether [`Conn::overdue`] may become true without any further event.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.partial_since.is_some() || self.unread_since.is_some()
    }
}

/// Why a peer is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// It sent only that many bytes of a message.
    Partial(usize),
    /// It left that many bytes of its replies unread.
    Unread(usize),
    /// For that many bytes of its replies memory was lacking all the time.
    Unsent(usize, Errno),
}

/// Sends what there is room for.
fn send_some(stream: &UnixStream, bytes: &[u8]) -> nix::Result<usize> {
    #[cfg(test)]
    if let Some(errno) = failing::next() {
        return Err(errno);
    }
    send(stream.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT)
}

impl AsFd for Conn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Sends that fail.
#[cfg(test)]
pub(crate) mod failing {
    use nix::errno::Errno;
    use std::cell::RefCell;
    use std::collections::VecDeque;

    thread_local! {
        static ERRORS: RefCell<VecDeque<Errno>> = const { RefCell::new(VecDeque::new()) };
    }

    /// The next sends of this thread fail with these errors.
    pub(crate) fn with(errors: &[Errno]) {
        ERRORS.with_borrow_mut(|next| next.extend(errors));
    }

    pub(super) fn next() -> Option<Errno> {
        ERRORS.with_borrow_mut(VecDeque::pop_front)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanlock_wdmd::protocol::Command;
    use std::io::{Read as _, Write as _};

    fn pair() -> (Conn, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Conn::new(ours), theirs)
    }

    #[test]
    fn messages_in_any_pieces_then_the_end() {
        let (mut conn, mut peer) = pair();
        let now = Time::from_seconds(1);
        let bytes = Message::new(Command::Status).encode();
        for piece in bytes.chunks(50) {
            assert_eq!(conn.read(now), Read::Nothing);
            peer.write_all(piece).unwrap();
        }
        assert!(matches!(conn.read(now), Read::Message(_)));
        assert!(!conn.is_waited_for());
        peer.write_all(&[bytes, bytes].concat()).unwrap();
        peer.write_all(&bytes[..20]).unwrap();
        drop(peer);
        assert!(matches!(conn.read(now), Read::Message(_)));
        assert!(matches!(conn.read(now), Read::Message(_)));
        assert_eq!(conn.read(now), Read::End(20));
    }

    #[test]
    fn a_part_of_a_message_may_wait_for_a_while() {
        let (mut conn, mut peer) = pair();
        peer.write_all(&[0; 20]).unwrap();
        let start = Time::from_seconds(100);
        conn.read(start);
        assert_eq!(conn.overdue(start.plus_millis(PARTIAL_WITHIN_MS - 1)), None);
        assert_eq!(conn.overdue(start.plus_millis(PARTIAL_WITHIN_MS)), Some(Overdue::Partial(20)));
        peer.write_all(&[0; 156]).unwrap();
        conn.read(start);
        assert_eq!(conn.overdue(start.plus_millis(PARTIAL_WITHIN_MS)), None);
    }

    #[test]
    fn replies_wait_for_the_peer_and_nobody_waits_for_it() {
        let (mut conn, mut peer) = pair();
        let start = Time::from_seconds(100);
        let reply = vec![7; 1 << 20];
        conn.write(start, &reply);
        assert!(conn.unsent() > 0);
        assert_eq!(conn.overdue(start.plus_millis(UNREAD_WITHIN_MS - 1)), None);
        assert!(matches!(conn.overdue(start.plus_millis(UNREAD_WITHIN_MS)), Some(Overdue::Unread(_))));
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; 1 << 20];
            peer.read_exact(&mut got).unwrap();
            (got, peer)
        });
        while conn.unsent() > 0 {
            conn.flush(start);
            std::thread::yield_now();
        }
        let (got, peer) = reader.join().unwrap();
        assert_eq!(got, reply);
        assert_eq!(conn.overdue(start.plus_millis(UNREAD_WITHIN_MS)), None);
        drop(peer);
        conn.write(start, &reply);
        assert_eq!(conn.unsent(), 0, "nobody is there to read it");
    }

    #[test]
    fn a_reply_that_memory_is_lacking_for_waits_and_its_peer_is_not_given_up() {
        let (mut conn, mut peer) = pair();
        let start = Time::from_seconds(100);
        for errno in [Errno::ENOBUFS, Errno::ENOMEM] {
            failing::with(&[errno, errno]);
            conn.write(start, b"reply");
            let again = start.plus_millis(SEND_AGAIN_MS);
            assert_eq!((conn.wants(), conn.send_again()), (Wanted::Nothing, Some((errno, again))));
            assert!(conn.is_waited_for());
            conn.flush(again);
            assert_eq!(conn.send_again(), Some((errno, again.plus_millis(SEND_AGAIN_MS))));
            // It counts from the first time.
            assert_eq!(conn.overdue(start.plus_millis(UNREAD_WITHIN_MS - 1)), None);
            let over = start.plus_millis(UNREAD_WITHIN_MS);
            assert_eq!(conn.overdue(over), Some(Overdue::Unsent(5, errno)));
            conn.flush(over);
            assert_eq!((conn.wants(), conn.send_again(), conn.overdue(over)), (Wanted::Bytes, None, None));
            assert!(!conn.is_waited_for());
            let mut got = [0; 5];
            peer.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"reply");
        }
        // Whoever takes nothing, once there is memory, is waited for as otherwise.
        failing::with(&[Errno::ENOBUFS, Errno::EAGAIN]);
        conn.write(start, b"reply");
        conn.flush(start);
        assert_eq!((conn.wants(), conn.send_again()), (Wanted::Room, None));
        // A peer that is gone meanwhile is not waited for.
        failing::with(&[Errno::ENOBUFS]);
        conn.flush(start);
        drop(peer);
        conn.flush(start);
        assert_eq!((conn.wants(), conn.send_again(), conn.is_waited_for()), (Wanted::Bytes, None, false));
    }
}
