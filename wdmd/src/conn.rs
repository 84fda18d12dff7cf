//! One connection: bytes in, whole messages out; replies go out as the peer takes them. Nothing here blocks.

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
    /// When the peer last took something while more was waiting.
    unread_since: Option<Time>,
    /// The peer takes nothing any more.
    deaf: bool,
    /// Whether the poller has been told to watch for room.
    pub(crate) watches_room: bool,
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
            deaf: false,
            watches_room: false,
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

    /// Sends what the peer takes. A peer that is gone gets nothing; its messages are still read.
    pub(crate) fn flush(&mut self, now: Time) {
        while self.unsent() > 0 {
            let rest = self.out.get(self.sent..).unwrap_or(&[]);
            match send(self.stream.as_raw_fd(), rest, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT) {
                Ok(sent) => {
                    self.sent += sent;
                    self.unread_since = Some(now);
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    self.unread_since.get_or_insert(now);
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

    /// Why the peer is to be dropped, if it has kept its part of a message, or its replies, waiting for too long.
    pub(crate) fn overdue(&self, now: Time) -> Option<Overdue> {
        let older =
            |since: Option<Time>, limit: i64| since.is_some_and(|since| now.millis_since(since) >= limit);
        if older(self.partial_since, PARTIAL_WITHIN_MS) {
            Some(Overdue::Partial(self.have))
        } else if older(self.unread_since, UNREAD_WITHIN_MS) {
            Some(Overdue::Unread(self.unsent()))
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
}

impl AsFd for Conn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
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
}
