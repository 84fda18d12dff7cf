//! The socket protocol, spoken directly (socket-protocol.md 3, 4, 6).
//!
//! Written independently of the `wire` crate on purpose: the suite must not inherit its mistakes.

mod connection;
mod state;

pub use connection::Connection;
pub use state::Record;

/// First four bytes of every message.
pub const MAGIC: u32 = 0x0428_2010;
/// Protocol 0.1.
pub const VERSION: u32 = 1;
/// Bytes of a message header.
pub const HEADER_LEN: usize = 32;
/// `data2` of a targeted command that means the connection itself.
pub const SELF: u32 = u32::MAX;

/// Command numbers (socket-protocol.md 6).
#[expect(missing_docs, reason = "the names are the documentation")]
pub mod cmd {
    pub const REGISTER: u32 = 1;
    pub const ADD_LOCKSPACE: u32 = 2;
    pub const REM_LOCKSPACE: u32 = 3;
    pub const SHUTDOWN: u32 = 4;
    pub const STATUS: u32 = 5;
    pub const LOG_DUMP: u32 = 6;
    pub const ACQUIRE: u32 = 7;
    pub const RELEASE: u32 = 8;
    pub const INQUIRE: u32 = 9;
    pub const RESTRICT: u32 = 10;
    pub const REQUEST: u32 = 11;
    pub const ALIGN: u32 = 12;
    pub const EXAMINE_LOCKSPACE: u32 = 13;
    pub const EXAMINE_RESOURCE: u32 = 14;
    pub const HOST_STATUS: u32 = 15;
    pub const INQ_LOCKSPACE: u32 = 16;
    pub const KILLPATH: u32 = 17;
    pub const WRITE_LOCKSPACE: u32 = 18;
    pub const WRITE_RESOURCE: u32 = 19;
    pub const READ_LOCKSPACE: u32 = 20;
    pub const READ_RESOURCE: u32 = 21;
    pub const GET_LOCKSPACES: u32 = 22;
    pub const GET_HOSTS: u32 = 23;
    pub const READ_RESOURCE_OWNERS: u32 = 24;
    pub const SET_LVB: u32 = 25;
    pub const GET_LVB: u32 = 26;
    pub const CONVERT: u32 = 27;
    pub const VERSION: u32 = 28;
    pub const SHUTDOWN_WAIT: u32 = 29;
    pub const REG_EVENT: u32 = 30;
    pub const END_EVENT: u32 = 31;
    pub const SET_EVENT: u32 = 32;
    pub const SET_CONFIG: u32 = 33;
    pub const RENEWAL: u32 = 34;
    pub const FORMAT_RINDEX: u32 = 35;
    pub const UPDATE_RINDEX: u32 = 36;
    pub const LOOKUP_RINDEX: u32 = 37;
    pub const CREATE_RESOURCE: u32 = 38;
    pub const DELETE_RESOURCE: u32 = 39;
    pub const REBUILD_RINDEX: u32 = 40;
}

/// Flag values (socket-protocol.md 4.1).
#[expect(missing_docs, reason = "the names are the documentation")]
pub mod flag {
    pub const RES_LVER: u32 = 0x1;
    pub const RES_NUM_HOSTS: u32 = 0x2;
    pub const RES_SHARED: u32 = 0x4;
    pub const RES_PERSISTENT: u32 = 0x8;
    pub const ALIGN2M: u32 = 0x20;
    pub const ALIGN1M: u32 = 0x10;
    pub const ALIGN8M: u32 = 0x80;
    pub const SECTOR512: u32 = 0x100;
    pub const SECTOR4K: u32 = 0x200;
    pub const ADD_ASYNC: u32 = 0x1;
    pub const REM_ASYNC: u32 = 0x1;
    pub const REM_UNUSED: u32 = 0x2;
    pub const INQ_WAIT: u32 = 0x1;
    pub const NEXT_LVER: u32 = 0x1;
    pub const SETEV_CUR_GENERATION: u32 = 0x1;
    pub const SETEV_CLEAR_EVENT: u32 = 0x4;
    pub const SETEV_REPLACE: u32 = 0x8;
    pub const RESTRICT_ALL: u32 = 0x1;
    pub const RESTRICT_SIGKILL: u32 = 0x2;
    pub const RESTRICT_SIGTERM: u32 = 0x4;
    pub const KILLPATH_PID: u32 = 0x1;
    pub const CONFIG_USED: u32 = 1;
    pub const CONFIG_UNUSED: u32 = 2;
    pub const CONFIG_USED_BY_ORPHANS: u32 = 4;
    pub const CONFIG_UNUSED_BY_ORPHANS: u32 = 8;
    pub const ACQUIRE_LVB: u32 = 0x1;
    pub const ACQUIRE_ORPHAN: u32 = 0x2;
    pub const ACQUIRE_ORPHAN_ONLY: u32 = 0x4;
    pub const ACQUIRE_OWNER_NOWAIT: u32 = 0x8;
    pub const RELEASE_ALL: u32 = 0x1;
    pub const WRITE_CLEAR: u32 = 0x1;
    pub const RX_NO_LOCKSPACE: u32 = 0x1;
    pub const RX_UPDATE_ADD: u32 = 0x10000;
    pub const RX_UPDATE_REM: u32 = 0x20000;
    pub const RELEASE_RENAME: u32 = 0x2;
    pub const RELEASE_ORPHAN: u32 = 0x4;
    /// Ours alone.
    pub const STATUS_COUNTERS: u32 = 0x4000_0000;
    pub const LSF_ADD: u32 = 0x1;
    pub const LSF_REM: u32 = 0x2;
}

/// A message header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of socket-protocol.md 3.1")]
pub struct Header {
    pub magic: u32,
    pub version: u32,
    pub cmd: u32,
    pub cmd_flags: u32,
    pub length: u32,
    pub seq: u32,
    pub data: u32,
    pub data2: u32,
}

impl Header {
    /// A request header whose length covers `payload_len` bytes.
    ///
    /// # Panics
    /// When the payload is longer than 4 GiB.
    #[must_use]
    pub fn request(cmd: u32, payload_len: usize) -> Self {
        let length = u32::try_from(HEADER_LEN + payload_len).unwrap_or_else(|_| panic!("payload too long"));
        Self { magic: MAGIC, version: VERSION, cmd, cmd_flags: 0, length, seq: 0, data: 0, data2: 0 }
    }

    /// The 32 bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let fields = [
            self.magic,
            self.version,
            self.cmd,
            self.cmd_flags,
            self.length,
            self.seq,
            self.data,
            self.data2,
        ];
        let mut bytes = [0; HEADER_LEN];
        for (place, field) in bytes.chunks_exact_mut(4).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8; HEADER_LEN]) -> Self {
        let field = |n: usize| u32_at(bytes, 4 * n);
        Self {
            magic: field(0),
            version: field(1),
            cmd: field(2),
            cmd_flags: field(3),
            length: field(4),
            seq: field(5),
            data: field(6),
            data2: field(7),
        }
    }

    /// The result: `data` as a signed number.
    #[must_use]
    pub fn result(&self) -> i32 {
        i32::from_le_bytes(self.data.to_le_bytes())
    }
}

/// A lockspace on the wire: 1104 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of socket-protocol.md 4")]
pub struct Lockspace {
    pub name: Vec<u8>,
    pub host_id: u64,
    pub flags: u32,
    pub path: Vec<u8>,
    pub offset: u64,
}

impl Lockspace {
    /// Bytes on the wire.
    pub const LEN: usize = 1104;

    /// A lockspace without flags.
    #[must_use]
    pub fn new(name: &str, host_id: u64, path: &str, offset: u64) -> Self {
        Self { name: name.into(), host_id, flags: 0, path: path.into(), offset }
    }

    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = padded(&self.name, 48);
        bytes.extend(self.host_id.to_le_bytes());
        bytes.extend(self.flags.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(disk(&self.path, self.offset));
        bytes
    }

    /// Reads the bytes of a reply.
    ///
    /// # Panics
    /// When they are not 1104.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        assert_eq!(bytes.len(), Self::LEN, "length of a lockspace");
        Self {
            name: unpadded(&bytes[..48]),
            host_id: u64_at(bytes, 48),
            flags: u32_at(bytes, 56),
            path: unpadded(&bytes[64..1088]),
            offset: u64_at(bytes, 1088),
        }
    }
}

/// A resource with its disks on the wire: 128 + 1040 per disk.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of socket-protocol.md 4")]
pub struct Resource {
    pub lockspace: Vec<u8>,
    pub name: Vec<u8>,
    pub lver: u64,
    pub data32: u32,
    pub flags: u32,
    /// Written as `num_disks`; the number of `disks` unless a case lies about it.
    pub num_disks: u32,
    /// Path and byte offset of each disk.
    pub disks: Vec<(Vec<u8>, u64)>,
}

impl Resource {
    /// Bytes on the wire without disks.
    pub const LEN: usize = 128;

    /// A resource on one disk.
    #[must_use]
    pub fn new(lockspace: &str, name: &str, path: &str, offset: u64) -> Self {
        Self {
            lockspace: lockspace.into(),
            name: name.into(),
            lver: 0,
            data32: 0,
            flags: 0,
            num_disks: 1,
            disks: vec![(path.into(), offset)],
        }
    }

    /// The same with other names.
    #[must_use]
    pub fn named(mut self, lockspace: &str, name: &str) -> Self {
        self.lockspace = lockspace.into();
        self.name = name.into();
        self
    }

    /// The same demanding lease version `lver`.
    #[must_use]
    pub fn with_lver(mut self, lver: u64) -> Self {
        self.lver = lver;
        self.flags |= flag::RES_LVER;
        self
    }

    /// The same, shared.
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.flags |= flag::RES_SHARED;
        self
    }

    /// The same, to be kept when its process ends.
    #[must_use]
    pub fn persistent(mut self) -> Self {
        self.flags |= flag::RES_PERSISTENT;
        self
    }

    /// The bytes without disks.
    #[must_use]
    pub fn encode_bare(&self) -> Vec<u8> {
        let mut bytes = padded(&self.lockspace, 48);
        bytes.extend(padded(&self.name, 48));
        bytes.extend(self.lver.to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(self.data32.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.flags.to_le_bytes());
        bytes.extend(self.num_disks.to_le_bytes());
        bytes
    }

    /// The bytes with disks.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.encode_bare();
        for (path, offset) in &self.disks {
            bytes.extend(disk(path, *offset));
        }
        bytes
    }

    /// Reads the first 128 bytes of a reply; the disks are left empty.
    ///
    /// # Panics
    /// When there are fewer.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        assert!(bytes.len() >= Self::LEN, "length of a resource: {}", bytes.len());
        Self {
            lockspace: unpadded(&bytes[..48]),
            name: unpadded(&bytes[48..96]),
            lver: u64_at(bytes, 96),
            data32: u32_at(bytes, 112),
            flags: u32_at(bytes, 120),
            num_disks: u32_at(bytes, 124),
            disks: Vec::new(),
        }
    }
}

/// One entry of a GET_HOSTS or READ_RESOURCE_OWNERS reply: 32 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of socket-protocol.md 4")]
pub struct HostEntry {
    pub host_id: u64,
    pub generation: u64,
    pub timestamp: u64,
    pub io_timeout: u32,
    pub flags: u32,
}

impl HostEntry {
    fn decode_all(bytes: &[u8]) -> Vec<Self> {
        bytes
            .chunks_exact(32)
            .map(|entry| Self {
                host_id: u64_at(entry, 0),
                generation: u64_at(entry, 8),
                timestamp: u64_at(entry, 16),
                io_timeout: u32_at(entry, 24),
                flags: u32_at(entry, 28),
            })
            .collect()
    }
}

/// The answer to INQUIRE.
#[derive(Debug, Clone)]
pub struct Inquired {
    /// Result of the command.
    pub result: i32,
    /// Number of leases.
    pub count: u32,
    /// The state string without its NUL; empty when there is none.
    pub state: String,
    /// Length field of the reply header.
    pub length: u32,
}

impl Inquired {
    /// The single leases. Paths of scratch files contain no space.
    #[must_use]
    pub fn items(&self) -> Vec<String> {
        self.state.split_whitespace().map(str::to_owned).collect()
    }
}

/// Count and payload of an ACQUIRE with empty options.
#[must_use]
pub fn acquire_payload(resources: &[Resource]) -> (u32, Vec<u8>) {
    let mut payload: Vec<u8> = resources.iter().flat_map(Resource::encode).collect();
    payload.extend([0; 56]);
    (count_of(resources), payload)
}

fn count_of(resources: &[Resource]) -> u32 {
    u32::try_from(resources.len()).unwrap_or_else(|_| panic!("too many resources"))
}

/// Bytes of a disk on the wire.
pub const DISK_LEN: usize = 1040;

/// A disk on the wire.
#[must_use]
pub fn disk(path: &[u8], offset: u64) -> Vec<u8> {
    let mut bytes = padded(path, 1024);
    bytes.extend(offset.to_le_bytes());
    bytes.extend([0; 8]);
    bytes
}

/// The payload of the commands on a resource index without their entry.
#[must_use]
pub fn rindex(lockspace: &str, path: &str, offset: u64, flags: u32, max_resources: u32) -> Vec<u8> {
    let mut bytes = flags.to_le_bytes().to_vec();
    bytes.extend(max_resources.to_le_bytes());
    bytes.extend([0; 8]);
    bytes.extend(padded(lockspace.as_bytes(), 48));
    bytes.extend(disk(path.as_bytes(), offset));
    bytes
}

/// An entry of a resource index on the wire: 64 bytes.
#[must_use]
pub fn rentry(name: &str, offset: u64) -> Vec<u8> {
    let mut bytes = padded(name.as_bytes(), 48);
    bytes.extend(offset.to_le_bytes());
    bytes.extend([0; 8]);
    bytes
}

fn padded(text: &[u8], length: usize) -> Vec<u8> {
    assert!(text.len() <= length, "{} bytes do not fit {length}", text.len());
    let mut bytes = text.to_vec();
    bytes.resize(length, 0);
    bytes
}

fn unpadded(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().take_while(|byte| *byte != 0).collect()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

/// The payload of KILLPATH.
///
/// # Panics
/// When a string is longer than 126 bytes.
#[must_use]
pub fn killpath(program: &str, arguments: &str) -> Vec<u8> {
    let mut payload = vec![0; 256];
    for (text, half) in [program, arguments].into_iter().zip(payload.chunks_exact_mut(128)) {
        assert!(text.len() <= 126, "{text:?} is too long");
        half[..text.len()].copy_from_slice(text.as_bytes());
    }
    payload
}
