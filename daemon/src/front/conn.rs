//! One client connection: bytes in, requests out; replies in, bytes out. Never blocks.
//!
//! A connection reads no further while a request of it is worked on or a reply is not sent yet (socket-protocol.md 2.7), so
//! what one client can make the daemon hold is one request and one reply.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use sanlock_lease::timing::MonoTime;
use sanlock_wire::flags::RestrictFlags;
use sanlock_wire::header::Header;
use sanlock_wire::limits::HEADER_LEN;
use sanlock_wire::{DecodeError, Name, Reply, Request, RequestDecoder};

/// Bytes read at a time.
const CHUNK: usize = 16 * 1024;
/// So often at most where they are thrown away.
const DISCARDS_PER_TURN: usize = 8;

/// How long a message may be under way before a plain connection is closed, in seconds.
pub(super) const PARTIAL_MESSAGE_SECONDS: u64 = 10;

/// How long a reply may wait for its reader before a plain connection is closed, in seconds. The end of the connection is the end of a list, so
/// whoever stands behind a pager would take what has come for all; but what nobody will ever read is not kept without end.
pub(super) const UNREAD_REPLY_SECONDS: u64 = 3600;

/// What a client says on an event stream that it is about to leave.
const FAREWELL: u32 = 1;

/// What reading brought.
#[derive(Debug)]
pub(super) enum Input {
    /// Nothing complete yet.
    Nothing,
    /// A complete request.
    Request(Box<Request>),
    /// The peer will send no more. With the header of a request that was cut short.
    End(Option<Header>),
    /// Message boundaries are lost, or the connection is broken.
    Broken(Broken),
}

/// Why nothing more can be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error(transparent)]
    Framing(#[from] DecodeError),
    #[error("reading from the client failed: {0}")]
    Io(#[from] io::Error),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Conn {
    stream: UnixStream,
    decoder: RequestDecoder,
    out: Vec<u8>,
    sent: usize,
    /// When the message under way began, or the unsent reply made its last progress.
    stuck_since: Option<MonoTime>,
    /// A request is being worked on.
    pub(super) suspended: bool,
    /// Nothing but its answer needs the connection.
    pub(super) only_answer: bool,
    /// The peer is gone; noticed while a request was worked on.
    pub(super) hung_up: bool,
    /// No requests are read any more: message boundaries are lost, or it left a reply unread. Kept open because leases hang on it.
    pub(super) deaf: bool,
    /// There may be something to be thrown away.
    discards: bool,
    /// The kernel had no memory for what is to be sent. It does not say when it has some again: it is asked now and then.
    starved: bool,
    /// A reply was cut: nothing that is sent behind it would be understood.
    cut: bool,
    /// Closed once the reply is sent.
    pub(super) closing: bool,
    /// REGISTER came.
    pub(super) registered: Option<i32>,
    pub(super) restrict: RestrictFlags,
    /// When it was accepted, in milliseconds since boot.
    pub(super) accepted_ms: u64,
    pub(super) cmd_last: u32,
    /// As STATUS shows it (socket-protocol.md 2.9).
    pub(super) owner_name: Name,
}

impl Conn {
    /// Takes over an accepted connection, which does not block.
    pub(super) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            decoder: RequestDecoder::new(),
            out: Vec::new(),
            sent: 0,
            stuck_since: None,
            suspended: false,
            only_answer: false,
            hung_up: false,
            deaf: false,
            discards: false,
            starved: false,
            cut: false,
            closing: false,
            registered: None,
            restrict: RestrictFlags::empty(),
            accepted_ms: sanlock_sys::clock::boottime_ms(),
            cmd_last: 0,
            owner_name: Name::EMPTY,
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub(super) fn raw_fd(&self) -> i32 {
        self.stream.as_raw_fd()
    }

    /// Whether requests may be read now.
    pub(super) fn reads(&self) -> bool {
        !self.suspended && !self.deaf && !self.closing && self.out.is_empty()
    }

    /// Whether a reply waits to be sent.
    pub(super) fn writes(&self) -> bool {
        !self.out.is_empty()
    }

    /// Whether the socket is waited for, to send it.
    pub(super) fn waits_to_write(&self) -> bool {
        self.writes() && !self.starved
    }

    /// Whether a reply waits for the kernel to have memory for it: to be flushed now and then.
    pub(super) fn is_starved(&self) -> bool {
        self.starved
    }

    /// Bytes that are kept for the reply that waits.
    pub(super) fn kept(&self) -> usize {
        self.out.len()
    }

    /// Since when a reply waits without any progress.
    pub(super) fn waits_since(&self) -> Option<MonoTime> {
        self.stuck_since.filter(|_| self.writes())
    }

    /// Forgets the reply that waits. What was sent of it is cut, so nothing more is sent, nor read. The connection stays as it is: shut for
    /// writing, one that its peer shuts too looks as if it were closed, and leases may hang on it.
    pub(super) fn drop_reply(&mut self) {
        (self.out, self.sent, self.stuck_since, self.starved) = (Vec::new(), 0, None, false);
        self.cut = true;
        self.listen_no_more();
    }

    /// From now on nothing that is said here is a request.
    pub(super) fn listen_no_more(&mut self) {
        (self.deaf, self.discards) = (true, true);
    }

    /// Whether what is said here is taken, and thrown away. With it go descriptors that were sent along: unread, they would be open for as long as
    /// this connection is, and so might be the other end of a connection on which leases hang, and of this very one.
    pub(super) fn discards(&self) -> bool {
        self.deaf && self.discards
    }

    /// Takes some of that.
    pub(super) fn discard(&mut self) {
        let mut chunk = [0; CHUNK];
        for _ in 0..DISCARDS_PER_TURN {
            match self.stream.read(&mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(count) if count > 0 => {}
                Ok(_) | Err(_) => {
                    self.discards = false;
                    return;
                }
            }
        }
    }

    /// Reads until a request is complete, nothing more is there, or the stream ends.
    pub(super) fn read(&mut self, now: MonoTime) -> Input {
        // Most requests are a header alone; more space is only made ready where there is more.
        let (mut header, mut chunk) = ([0; HEADER_LEN], Vec::new());
        loop {
            let wanted = self.decoder.wants().clamp(1, CHUNK);
            let space = if wanted <= header.len() {
                header.get_mut(..wanted)
            } else {
                chunk.resize(wanted.max(chunk.len()), 0);
                chunk.get_mut(..wanted)
            };
            let Some(space) = space else { return Input::Nothing };
            match self.stream.read(space) {
                Ok(0) => {
                    return Input::End(self.decoder.end().err().and_then(|cut| cut.header));
                }
                Ok(count) => {
                    let mut bytes = space.get(..count).unwrap_or_default();
                    match self.decoder.feed(&mut bytes) {
                        Ok(None) => self.stuck_since = self.stuck_since.or(Some(now)),
                        Ok(Some(request)) => {
                            debug_assert!(bytes.is_empty(), "no more is read than the decoder wants");
                            self.stuck_since = None;
                            return Input::Request(Box::new(request));
                        }
                        Err(error) => return Input::Broken(error.into()),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Input::Nothing,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Input::End(None),
                Err(error) => return Input::Broken(error.into()),
            }
        }
    }

    /// Queues a reply and sends what the socket takes.
    pub(super) fn reply(&mut self, reply: &Reply, now: MonoTime) {
        if self.cut {
            return;
        }
        if self.out.is_empty() {
            self.out = reply.encode();
            self.sent = 0;
        } else {
            self.out.extend_from_slice(&reply.encode());
        }
        self.stuck_since = Some(now);
        self.flush(now);
    }

    /// Sends all of a message, or says that it cannot be: an earlier one waits, the socket is full, or the peer is gone.
    pub(super) fn send_whole(&mut self, message: &[u8]) -> bool {
        !self.writes()
            && !self.cut
            && matches!(self.stream.write(message), Ok(count) if count == message.len())
    }

    /// Looks at what the client of a stream said, four bytes at a time and without waiting: whether it is to be parted with. It is
    /// after the number 1, after less than four bytes, and after the end; not after another number (socket-protocol.md 9).
    pub(super) fn said_farewell(&self) -> bool {
        let mut word = [0; 4];
        match (&self.stream).read(&mut word) {
            Ok(4) => u32::from_le_bytes(word) == FAREWELL,
            Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
            Ok(_) => true,
        }
    }

    /// Whether the peer will send no more and has sent nothing that was not read. Takes nothing.
    pub(super) fn is_read_to_the_end(&self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        matches!(recv(self.stream.as_raw_fd(), &mut [0], flags), Ok(0) | Err(Errno::ECONNRESET))
    }

    /// Sends what the socket takes. A peer that is gone loses the reply; its end is noticed by reading.
    pub(super) fn flush(&mut self, now: MonoTime) {
        self.flush_by(now, |mut stream, bytes| stream.write(bytes));
    }

    fn flush_by(&mut self, now: MonoTime, mut write: impl FnMut(&UnixStream, &[u8]) -> io::Result<usize>) {
        self.starved = false;
        while self.sent < self.out.len() {
            let rest = self.out.get(self.sent..).unwrap_or_default();
            // Rust programs ignore SIGPIPE, so a closed peer is an error here and nothing else.
            match write(&self.stream, rest) {
                Ok(count) if count > 0 => {
                    self.sent += count;
                    self.stuck_since = Some(now);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM)) => {
                    self.starved = true;
                    return;
                }
                Ok(_) | Err(_) => break,
            }
        }
        self.out = Vec::new();
        self.sent = 0;
        self.stuck_since = None;
    }

    /// When a plain connection that makes no progress is to be closed.
    pub(super) fn give_up_at(&self) -> Option<MonoTime> {
        let since = self.stuck_since.filter(|_| self.registered.is_none())?;
        if self.writes() {
            Some(since.plus_secs(UNREAD_REPLY_SECONDS))
        } else if self.reads() && self.decoder.in_message() {
            Some(since.plus_secs(PARTIAL_MESSAGE_SECONDS))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanlock_wire::Command;
    use std::net::Shutdown;

    const T0: MonoTime = MonoTime::from_secs(5);

    fn pair() -> (UnixStream, Conn) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (theirs, Conn::new(ours))
    }

    fn request(input: Input) -> Request {
        match input {
            Input::Request(request) => *request,
            other => panic!("no request: {other:?}"),
        }
    }

    #[test]
    fn pipelined_requests_are_read_one_by_one_and_bytes_one_at_a_time() {
        let (mut peer, mut conn) = pair();
        let mut bytes = Request::version().encode();
        bytes.extend(Request::get_lockspaces().encode());
        peer.write_all(&bytes).unwrap();
        assert_eq!(request(conn.read(T0)).header.cmd, Command::Version.number());
        assert_eq!(request(conn.read(T0)).header.cmd, Command::GetLockspaces.number());
        assert!(matches!(conn.read(T0), Input::Nothing));
        for byte in Request::version().encode() {
            assert!(matches!(conn.read(T0), Input::Nothing));
            peer.write_all(&[byte]).unwrap();
        }
        assert_eq!(request(conn.read(T0)).header.cmd, Command::Version.number());
        assert_eq!(conn.give_up_at(), None);
        drop(peer);
        assert!(matches!(conn.read(T0), Input::End(None)));
    }

    #[test]
    fn a_stuck_message_has_a_limit_and_a_cut_one_names_its_command() {
        let (mut peer, mut conn) = pair();
        let ls = sanlock_wire::Lockspace::named(Name::truncated("LS"));
        let bytes = Request::get_hosts(ls).encode();
        peer.write_all(&bytes[..100]).unwrap();
        assert!(matches!(conn.read(T0), Input::Nothing));
        assert_eq!(conn.give_up_at(), Some(T0.plus_secs(PARTIAL_MESSAGE_SECONDS)));
        peer.shutdown(Shutdown::Write).unwrap();
        match conn.read(T0) {
            Input::End(Some(header)) => assert_eq!(header.cmd, Command::GetHosts.number()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_reader_that_does_not_read_blocks_nobody() {
        let (mut peer, mut conn) = pair();
        let header = Header::request(Command::LogDump, 0, 0, 0, 0);
        let reply = Reply::log_dump(&header, vec![b'x'; 1 << 20]);
        conn.reply(&reply, T0);
        assert!(conn.writes() && !conn.reads() && conn.kept() > 0);
        assert_eq!(conn.give_up_at(), Some(T0.plus_secs(UNREAD_REPLY_SECONDS)));
        let mut got = vec![0; 32 + (1 << 20)];
        let mut at = 0;
        while at < got.len() {
            at += peer.read(&mut got[at..]).unwrap();
            conn.flush(T0.plus_secs(1));
        }
        assert!(!conn.writes() && conn.reads());
        assert_eq!(got, reply.encode());
    }

    #[test]
    fn a_reply_for_which_the_kernel_has_no_memory_is_sent_later() {
        let (theirs, mut conn) = pair();
        conn.out = vec![7; 40];
        let mut limits = [Ok(8), Err(Errno::ENOBUFS)].into_iter();
        conn.flush_by(T0, |mut stream, bytes| match limits.next().unwrap() {
            Ok(count) => stream.write(&bytes[..count]),
            Err(errno) => Err(errno.into()),
        });
        // Its socket is writable: who waited for that would ask again and again.
        assert!(conn.writes() && conn.is_starved() && !conn.waits_to_write() && !conn.reads());
        conn.flush(T0);
        assert!(!conn.writes() && !conn.is_starved() && conn.reads());
        let mut sent = [0; 41];
        assert_eq!((&theirs).read(&mut sent).unwrap(), 40);
        assert!(sent[..40].iter().all(|byte| *byte == 7));
    }

    #[test]
    fn a_reply_that_is_dropped_leaves_the_connection_open_whatever_the_peer_shuts() {
        let (mut peer, mut conn) = pair();
        conn.registered = Some(1);
        let header = Header::request(Command::LogDump, 0, 0, 0, 0);
        conn.reply(&Reply::log_dump(&header, vec![b'x'; 1 << 20]), T0);
        assert_eq!((conn.waits_since(), conn.give_up_at()), (Some(T0), None));
        conn.drop_reply();
        assert!(!conn.writes() && !conn.reads() && conn.kept() == 0);
        assert_eq!(conn.waits_since(), None);
        peer.set_nonblocking(true).unwrap();
        let mut got = Vec::new();
        assert!(peer.read_to_end(&mut got).is_err() && got.len() < 1 << 20);
        peer.write_all(&Request::version().encode()).unwrap();
        assert!(!conn.is_read_to_the_end(), "the peer is still there");
        conn.reply(&Reply::shutdown_done(), T0);
        assert!(!conn.writes() && !conn.send_whole(b"more"));
        assert!(peer.read_to_end(&mut got).is_err() && got.len() < 1 << 20, "nothing behind what was cut");
    }

    #[test]
    fn a_wrong_magic_breaks_the_connection_and_a_peer_that_left_loses_its_reply() {
        let (mut peer, mut conn) = pair();
        peer.write_all(&[7; 32]).unwrap();
        assert!(matches!(conn.read(T0), Input::Broken(Broken::Framing(_))));
        let (peer, mut conn) = pair();
        drop(peer);
        conn.reply(&Reply::shutdown_done(), T0);
        assert!(!conn.writes());
    }

    #[test]
    fn the_end_is_seen_behind_what_was_sent_before_it() {
        let (mut peer, mut conn) = pair();
        assert!(!conn.is_read_to_the_end(), "it may send more");
        peer.write_all(&Request::version().encode()).unwrap();
        drop(peer);
        assert!(!conn.is_read_to_the_end(), "there is something to be read");
        request(conn.read(T0));
        assert!(conn.is_read_to_the_end() && conn.is_read_to_the_end());
        assert!(matches!(conn.read(T0), Input::End(None)));
    }

    #[test]
    fn a_stream_that_takes_no_message_is_closed() {
        // Whoever cannot be told the whole of a message is closed by the caller.
        let (mut peer, mut conn) = pair();
        let message = [7; 80];
        let sent = (0..100_000).take_while(|_| conn.send_whole(&message)).count();
        assert!((1..100_000).contains(&sent), "{sent}");
        let mut got = vec![0; sent * message.len()];
        peer.read_exact(&mut got).unwrap();
        assert!(got.chunks(message.len()).all(|chunk| chunk == message));
        let (peer, mut conn) = pair();
        drop(peer);
        assert!(!conn.send_whole(&message));
    }
}
