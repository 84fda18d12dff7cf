//! Every bound of the protocol, with its source. Sizes are bytes unless the name says otherwise.

/// Size of the header of every message (3.1).
pub const HEADER_LEN: usize = 32;
/// First four bytes of every message, as a little-endian number (3.1).
pub const MAGIC: u32 = 0x0428_2010;
/// Protocol version 0.1: major in the upper, minor in the lower 16 bits (3.1).
pub const PROTOCOL_VERSION: u32 = 0x0000_0001;
/// Size of a lockspace, resource or owner name; all of it may be used, without a NUL (4).
pub const NAME_LEN: usize = 48;
/// Size of a path including its NUL (4).
pub const PATH_LEN: usize = 1024;
/// Size of each half of the KILLPATH payload including its NUL (4).
pub const KILLPATH_LEN: usize = 128;
/// Resources in one ACQUIRE (3.7).
pub const MAX_ACQUIRE_RESOURCES: usize = 8;
/// Disks of one resource (3.7).
pub const MAX_DISKS: usize = 4;
/// Bytes of a lock value block (3.7).
pub const MAX_LVB: usize = 4096;
/// Resources named in one RELEASE. The original has no limit here (and overflows an array above 8); this one bounds
/// what one connection can make the daemon buffer to 128 KiB.
pub const MAX_RELEASE_RESOURCES: usize = 1024;
/// Largest payload that a request decoder ever holds.
pub const MAX_REQUEST_PAYLOAD: usize = MAX_RELEASE_RESOURCES * 128;
/// Largest announced payload that is skipped without being kept (unknown or refused messages, 3.5). It is the 1 MiB of
/// the original's unused message constant (3.7).
pub const MAX_SKIP: usize = 1024 * 1024;
/// Payload of GET_LOCKSPACES, GET_HOSTS and LOG_DUMP replies (3.7).
pub const MAX_LIST_REPLY: usize = 1024 * 1024;
/// Text of one state record as the daemon writes it, without its NUL (8).
pub const MAX_STATE_TEXT: usize = 4094;
/// Text of one state record that a client accepts; later versions may write more than [`MAX_STATE_TEXT`].
pub const MAX_STATE_TEXT_ACCEPTED: usize = 64 * 1024;
/// State records that a client accepts in one reply. 1022 clients, 2000 hosts and thousands of leases fit.
pub const MAX_STATE_RECORDS: usize = 65_536;
/// One item of an INQUIRE string (7.9).
pub const MAX_STATE_ITEM: usize = 4399;
/// INQUIRE string that a client accepts: a thousand leases of the largest item size.
pub const MAX_INQUIRE: usize = 8 * 1024 * 1024;
