//! The socket protocol (specification 5): one message of 176 bytes in both directions, host byte order, no padding.
//!
//! A reply is the request copied back with the reply's fields overwritten; there is no error field and no sequence number.
//! Fields that a command does not use are kept as they came, so that an echo is exact.

/// Where the daemon listens.
pub const SOCKET_PATH: &str = "/run/wdmd/wdmd.sock";
/// Bytes of a message.
pub const MESSAGE_LEN: usize = 176;
/// Bytes of a name. A name of this length has no terminating NUL.
pub const NAME_LEN: usize = 128;
/// Longest text of a DUMP_DEBUG reply, bytes.
pub const MAX_DUMP_LEN: usize = 1 << 20;
/// The fire timeout of the first generation, of gen 1 clients, and what STATUS shows before the device was ever opened.
pub const DEFAULT_FIRE_TIMEOUT: u32 = 60;

const _: () = assert!(4 * 6 + 8 * 3 + NAME_LEN == MESSAGE_LEN);

/// A command's number (5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Command {
    /// Remember the name and the peer's pid. No reply.
    Register = 1,
    /// The daemon is not to stop while this connection exists. No reply.
    RefcountSet = 2,
    /// Takes [`Command::RefcountSet`] back. No reply.
    RefcountClear = 3,
    /// Sets the renewal and expiry time of this connection; expiry 0: not supervised. No reply.
    TestLive = 4,
    /// Test interval, fire timeout, last keepalive.
    Status = 5,
    /// The daemon's state as text, without a header.
    DumpDebug = 6,
    /// Arms the device with a fire timeout (since 3.9); older daemons ignore it without a word.
    OpenWatchdog = 7,
}

impl Command {
    /// The command with this number.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::Register,
            2 => Self::RefcountSet,
            3 => Self::RefcountClear,
            4 => Self::TestLive,
            5 => Self::Status,
            6 => Self::DumpDebug,
            7 => Self::OpenWatchdog,
            _ => return None,
        })
    }

    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }
}

/// The name of a client as the daemon prints it: cut at the first NUL, zero-padded on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name([u8; NAME_LEN]);

impl Name {
    /// No name.
    pub const EMPTY: Self = Self([0; NAME_LEN]);

    /// A name of at most 128 bytes; `None` if it is longer.
    #[must_use]
    pub fn new(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; NAME_LEN];
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        Some(Self(bytes))
    }

    /// The bytes before the first NUL.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(NAME_LEN);
        self.0.get(..end).unwrap_or(&[])
    }
}

/// Bytes from outside as text for logs: those that are not printable ASCII, and backslashes, are escaped, so that nobody can
/// forge a line.
#[derive(Debug, Clone, Copy)]
pub struct Escaped<'a>(pub &'a [u8]);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for &byte in self.0 {
            if byte == b'\\' || !(b' '..=b'~').contains(&byte) {
                write!(f, "\\x{byte:02x}")?;
            } else {
                write!(f, "{}", char::from(byte))?;
            }
        }
        Ok(())
    }
}

/// Names come from clients unfiltered: they are [`Escaped`].
impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Escaped(self.as_bytes()).fmt(f)
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// One message (5.2). Times are whole seconds of `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Message {
    /// 0 from all known clients; echoed.
    pub magic: u32,
    /// The command's number, see [`Command::from_number`].
    pub cmd: u32,
    /// 0; echoed.
    pub len: u32,
    /// 0; echoed.
    pub flags: u32,
    /// STATUS reply: current test interval, seconds.
    pub test_interval: u32,
    /// STATUS reply, OPEN_WATCHDOG request and reply: fire timeout, seconds. 0 in a reply: refused.
    pub fire_timeout: u32,
    /// STATUS reply: when the device was pinged last, 0 if never.
    pub last_keepalive: u64,
    /// TEST_LIVE: last renewal.
    pub renewal_time: u64,
    /// TEST_LIVE: when the client must have renewed again; 0: not supervised.
    pub expire_time: u64,
    /// REGISTER.
    pub name: Name,
}

impl Message {
    /// A request without arguments.
    #[must_use]
    pub const fn new(command: Command) -> Self {
        Self {
            magic: 0,
            cmd: command.number(),
            len: 0,
            flags: 0,
            test_interval: 0,
            fire_timeout: 0,
            last_keepalive: 0,
            renewal_time: 0,
            expire_time: 0,
            name: Name::EMPTY,
        }
    }

    /// The bytes on the socket.
    #[must_use]
    pub fn encode(&self) -> [u8; MESSAGE_LEN] {
        let mut bytes = [0; MESSAGE_LEN];
        let words = [self.magic, self.cmd, self.len, self.flags, self.test_interval, self.fire_timeout];
        let longs = [self.last_keepalive, self.renewal_time, self.expire_time];
        let fields = words
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .chain(longs.iter().flat_map(|long| long.to_ne_bytes()))
            .chain(self.name.0);
        for (to, from) in bytes.iter_mut().zip(fields) {
            *to = from;
        }
        bytes
    }

    /// The message in these bytes. Every byte string is one.
    #[must_use]
    pub fn decode(bytes: &[u8; MESSAGE_LEN]) -> Self {
        let word = |at: usize| u32::from_ne_bytes(array(bytes, at));
        let long = |at: usize| u64::from_ne_bytes(array(bytes, at));
        Self {
            magic: word(0),
            cmd: word(4),
            len: word(8),
            flags: word(12),
            test_interval: word(16),
            fire_timeout: word(20),
            last_keepalive: long(24),
            renewal_time: long(32),
            expire_time: long(40),
            name: Name(array(bytes, 48)),
        }
    }
}

/// `N` bytes from `at` on; the callers' offsets lie inside.
fn array<const N: usize>(bytes: &[u8; MESSAGE_LEN], at: usize) -> [u8; N] {
    let mut out = [0; N];
    for (to, from) in out.iter_mut().zip(bytes.iter().skip(at)) {
        *to = *from;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every line of hex bytes, at the offset it names; all other bytes are 0. As captured from the real programs.
    #[cfg(target_endian = "little")]
    fn captured(lines: &[(usize, &str)]) -> [u8; MESSAGE_LEN] {
        let mut bytes = [0; MESSAGE_LEN];
        for (at, hex) in lines {
            for (index, byte) in hex.split(' ').enumerate() {
                bytes[at + index] = u8::from_str_radix(byte, 16).unwrap();
            }
        }
        bytes
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn captured_messages() {
        let register = Message { name: Name::new(b"demo").unwrap(), ..Message::new(Command::Register) };
        assert_eq!(register.encode(), captured(&[(0, "00 00 00 00 01"), (0x30, "64 65 6d 6f")]));
        let live = Message { renewal_time: 5, expire_time: 105, ..Message::new(Command::TestLive) };
        let bytes =
            captured(&[(0, "00 00 00 00 04"), (0x20, "05 00 00 00 00 00 00 00 69 00 00 00 00 00 00 00")]);
        assert_eq!(live.encode(), bytes);
        let status = Message::decode(&captured(&[
            (0, "00 00 00 00 05"),
            (0x10, "0a 00 00 00 3c 00 00 00 03 00 00 00 00 00 00 00"),
        ]));
        assert_eq!((status.test_interval, status.fire_timeout, status.last_keepalive), (10, 60, 3));
        let open = Message { fire_timeout: 30, ..Message::new(Command::OpenWatchdog) };
        assert_eq!(open.encode(), captured(&[(4, "07"), (0x14, "1e 00 00 00")]));
    }

    #[test]
    fn numbers_map_both_ways() {
        for number in 0..20 {
            match Command::from_number(number) {
                Some(command) => assert_eq!(command.number(), number),
                None => assert!(number == 0 || number > 7),
            }
        }
        assert_eq!(Command::from_number(u32::MAX), None);
    }

    #[test]
    fn names() {
        assert_eq!(Name::new(&[b'x'; 128]).unwrap().as_bytes(), [b'x'; 128]);
        assert!(Name::new(&[b'x'; 129]).is_none());
        assert_eq!(Name::new(b"a\0b").unwrap().as_bytes(), b"a");
        assert_eq!(Name::new("a\n\u{1b}[1m\\é".as_bytes()).unwrap().to_string(), r"a\x0a\x1b[1m\x5c\xc3\xa9");
    }

    proptest! {
        #[test]
        fn every_byte_string_is_a_message_and_comes_back(bytes in prop::collection::vec(any::<u8>(), MESSAGE_LEN)) {
            let bytes: [u8; MESSAGE_LEN] = bytes.try_into().unwrap();
            prop_assert_eq!(Message::decode(&bytes).encode(), bytes);
        }
    }
}
