//! The 32-byte header of every message (socket-protocol.md 3.1).

use core::mem::{offset_of, size_of};

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::command::Command;
use crate::limits::{HEADER_LEN, MAGIC, PROTOCOL_VERSION};

/// `length` of a message without payload.
pub(crate) const BARE_LENGTH: u32 = 32;
const _: () = assert!(BARE_LENGTH as usize == HEADER_LEN);

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    version: U32,
    cmd: U32,
    cmd_flags: U32,
    length: U32,
    seq: U32,
    data: U32,
    data2: U32,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_LEN);
const _: () = assert!(offset_of!(RawHeader, length) == 16);
const _: () = assert!(offset_of!(RawHeader, data) == 24);

/// A message header whose magic is right. All values are what the wire said; nothing else is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// Protocol version: major in the upper, minor in the lower 16 bits.
    pub version: u32,
    /// Command number; see [`Header::command`].
    pub cmd: u32,
    /// Command flags, copied to the reply.
    pub cmd_flags: u32,
    /// 32 plus the payload in bytes, as the sender claims. Cannot be trusted in requests (3.4).
    pub length: u32,
    /// Copied to the reply; real clients send 0.
    pub seq: u32,
    /// Request: per command. Reply: the result, see [`Header::result`].
    pub data: u32,
    /// Per command.
    pub data2: u32,
}

/// The first four bytes are not the protocol's magic: this peer does not speak it, or has lost the message boundaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("message begins with {found:#010x}, expected {MAGIC:#010x}")]
pub struct BadMagic {
    /// The number found.
    pub found: u32,
}

/// Whom a lease command works on (2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// The connection on which the command arrives; -1 on the wire.
    Connection,
    /// The registered client with this pid.
    Pid(i32),
}

impl Target {
    /// The value of `data2`.
    #[must_use]
    pub const fn data2(self) -> u32 {
        match self {
            Self::Connection => u32::MAX,
            Self::Pid(pid) => pid as u32,
        }
    }
}

impl Header {
    /// A request header with protocol version 0.1, `seq` 0 and `length` 32 + `payload`.
    #[must_use]
    pub fn request(command: Command, cmd_flags: u32, payload: usize, data: u32, data2: u32) -> Self {
        Self {
            version: PROTOCOL_VERSION,
            cmd: command.number(),
            cmd_flags,
            length: length_field(payload),
            seq: 0,
            data,
            data2,
        }
    }

    /// The header of the reply to `self`: cmd, cmd_flags and seq copied, `data` the result, `data2` 0, `length` 32.
    #[must_use]
    pub const fn reply(&self, result: i32) -> Self {
        Self {
            version: PROTOCOL_VERSION,
            length: BARE_LENGTH,
            data: result as u32,
            data2: 0,
            cmd: self.cmd,
            cmd_flags: self.cmd_flags,
            seq: self.seq,
        }
    }

    /// Decodes a header.
    ///
    /// # Errors
    /// [`BadMagic`] when the first four bytes are not the magic number.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Self, BadMagic> {
        let raw: RawHeader = zerocopy::transmute!(*bytes);
        if raw.magic.get() != MAGIC {
            return Err(BadMagic { found: raw.magic.get() });
        }
        Ok(Self {
            version: raw.version.get(),
            cmd: raw.cmd.get(),
            cmd_flags: raw.cmd_flags.get(),
            length: raw.length.get(),
            seq: raw.seq.get(),
            data: raw.data.get(),
            data2: raw.data2.get(),
        })
    }

    /// The 32 bytes of this header, magic included.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        zerocopy::transmute!(RawHeader {
            magic: MAGIC.into(),
            version: self.version.into(),
            cmd: self.cmd.into(),
            cmd_flags: self.cmd_flags.into(),
            length: self.length.into(),
            seq: self.seq.into(),
            data: self.data.into(),
            data2: self.data2.into(),
        })
    }

    /// The command, `None` when the number is not one of the protocol.
    #[must_use]
    pub const fn command(&self) -> Option<Command> {
        Command::from_number(self.cmd)
    }

    /// The result in a reply: 0, a positive count, a negated errno or a `SANLK_*` code (5).
    #[must_use]
    pub const fn result(&self) -> i32 {
        self.data as i32
    }

    /// `data` as a signed number (ACQUIRE compares its count signed, 7.7).
    #[must_use]
    pub const fn data_signed(&self) -> i32 {
        self.data as i32
    }

    /// The target of a lease command (2.6).
    #[must_use]
    pub const fn target(&self) -> Target {
        if self.data2 == u32::MAX { Target::Connection } else { Target::Pid(self.data2 as i32) }
    }

    /// Bytes that follow the header according to `length`; 0 when `length` is below 32.
    #[must_use]
    pub const fn announced_payload(&self) -> usize {
        (self.length as usize).saturating_sub(HEADER_LEN)
    }

    /// Whether the request's protocol version is acceptable (3.2): 0, or major 0. VERSION is accepted with any.
    #[must_use]
    pub const fn version_acceptable(&self) -> bool {
        self.version >> 16 == 0 || self.cmd == Command::Version as u32
    }
}

/// The `length` field for a payload of this many bytes. All payloads are bounded far below 4 GiB; should one not be, the
/// field saturates.
#[must_use]
pub(crate) fn length_field(payload: usize) -> u32 {
    u32::try_from(payload.saturating_add(HEADER_LEN)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_example_of_the_specification() {
        let request = Header::request(Command::Version, 0, 0, 0, 0);
        let mut expected = [0u8; 32];
        expected[..4].copy_from_slice(&[0x10, 0x20, 0x28, 0x04]);
        expected[4] = 1;
        expected[8] = 0x1c;
        expected[16] = 0x20;
        assert_eq!(request.encode(), expected);
        assert_eq!(Header::decode(&expected), Ok(request));
        expected[0] = 0;
        assert_eq!(Header::decode(&expected), Err(BadMagic { found: 0x0428_2000 }));
    }

    #[test]
    fn results_are_signed() {
        let request = Header::request(Command::Acquire, 0, 0, 1, Target::Connection.data2());
        assert_eq!(request.target(), Target::Connection);
        let reply = request.reply(-243);
        assert_eq!(&reply.encode()[24..28], &[0x0d, 0xff, 0xff, 0xff]);
        assert_eq!(reply.result(), -243);
        assert_eq!(reply.data2, 0);
    }

    #[test]
    fn accepted_versions() {
        for (version, ok) in [(0, true), (1, true), (2, true), (0xffff, true), (0x10000, false)] {
            let mut header = Header::request(Command::Status, 0, 0, 0, 0);
            header.version = version;
            assert_eq!(header.version_acceptable(), ok, "{version:#x}");
            header.cmd = Command::Version.number();
            assert!(header.version_acceptable());
        }
    }
}
