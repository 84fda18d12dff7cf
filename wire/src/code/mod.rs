//! Result codes: numbers, names, the C library's texts, what a code usually means, what causes it and what to do about it.
//!
//! A result is a signed number (socket-protocol.md 5): 0 or positive is success, -1 to -199 a negated errno, -201 to -299
//! a `SANLK_*` code. Codes of 5.1.1 are included because its daemons may answer them; there -250 and -251 became -252 and
//! -253, without any other meaning for the old numbers.

mod advice;
mod explain;
mod names;

pub use advice::{Advice, advice, all as all_advice, meanings_by_command, next_step, parse};
pub use explain::explain;
pub use names::{name, strerror};

/// No such file, lockspace or lease.
pub const ENOENT: i32 = -2;
/// No registered process with this pid.
pub const ESRCH: i32 = -3;
/// Input/output error.
pub const EIO: i32 = -5;
/// A resource string that is too short.
pub const ENXIO: i32 = -6;
/// Too many resources or bytes.
pub const E2BIG: i32 = -7;
/// Try again later.
pub const EAGAIN: i32 = -11;
/// Out of memory.
pub const ENOMEM: i32 = -12;
/// No permission.
pub const EACCES: i32 = -13;
/// Busy.
pub const EBUSY: i32 = -16;
/// Exists already.
pub const EEXIST: i32 = -17;
/// A path that cannot be opened.
pub const ENODEV: i32 = -19;
/// Wrong arguments.
pub const EINVAL: i32 = -22;
/// The target process ended meanwhile.
pub const ENOTTY: i32 = -25;
/// Lockspace not joined, or no space.
pub const ENOSPC: i32 = -28;
/// The daemon closed the connection.
pub const EPIPE: i32 = -32;
/// A number of disks out of range.
pub const ERANGE: i32 = -34;
/// No place for another event stream.
pub const ENOCSI: i32 = -50;
/// A state item does not fit (original only).
pub const ELIBACC: i32 = -79;
/// A state item does not fit (original only).
pub const ELIBBAD: i32 = -80;
/// A state item contains a blank (original only).
pub const ELIBSCN: i32 = -81;
/// Read beyond the end of the storage.
pub const EMSGSIZE: i32 = -90;
/// Command not supported.
pub const EOPNOTSUPP: i32 = -95;
/// The daemon reset the connection.
pub const ECONNRESET: i32 = -104;
/// The request ended early.
pub const ENOTCONN: i32 = -107;
/// Nobody listens on the socket.
pub const ECONNREFUSED: i32 = -111;
/// Already in this mode.
pub const EALREADY: i32 = -114;
/// Being added or removed.
pub const EINPROGRESS: i32 = -115;
/// The target hung up.
pub const ESTALE: i32 = -116;
/// The lease is an orphan.
pub const EUCLEAN: i32 = -117;

/// General error.
pub const SANLK_ERROR: i32 = -201;
/// IO timeout.
pub const SANLK_AIO_TIMEOUT: i32 = -202;
/// Watchdog device error.
pub const SANLK_WD_ERROR: i32 = -203;
/// Version incompat.
pub const SANLK_VERSION_INCOMPAT: i32 = -204;
/// Lease read error in dblock.
pub const SANLK_DBLOCK_READ: i32 = -210;
/// Lease write error in dblock.
pub const SANLK_DBLOCK_WRITE: i32 = -211;
/// Lease was acquired by another host in new ballot.
pub const SANLK_DBLOCK_LVER: i32 = -212;
/// Lease was acquired by another host in current ballot.
pub const SANLK_DBLOCK_MBAL: i32 = -213;
/// Lease checksum error in dblock.
pub const SANLK_DBLOCK_CHECKSUM: i32 = -214;
/// Lease read error in leader.
pub const SANLK_LEADER_READ: i32 = -220;
/// Lease write error in leader.
pub const SANLK_LEADER_WRITE: i32 = -221;
/// Lease read inconsistent.
pub const SANLK_LEADER_DIFF: i32 = -222;
/// Lease does not exist on storage.
pub const SANLK_LEADER_MAGIC: i32 = -223;
/// Lease format version on storage is not recognized.
pub const SANLK_LEADER_VERSION: i32 = -224;
/// Lease sector size is inconsistent.
pub const SANLK_LEADER_SECTORSIZE: i32 = -225;
/// Lease lockspace name is incorrect.
pub const SANLK_LEADER_LOCKSPACE: i32 = -226;
/// Lease resource name is incorrect.
pub const SANLK_LEADER_RESOURCE: i32 = -227;
/// Lease num_hosts is incorrect.
pub const SANLK_LEADER_NUMHOSTS: i32 = -228;
/// Lease checksum error in leader.
pub const SANLK_LEADER_CHECKSUM: i32 = -229;
/// Addls sizes.
pub const SANLK_ADDLS_SIZES: i32 = -230;
/// Addls invalid hostid.
pub const SANLK_ADDLS_INVALID_HOSTID: i32 = -231;
/// Acquire lver.
pub const SANLK_ACQUIRE_LVER: i32 = -240;
/// Lease lockspace is not found.
pub const SANLK_ACQUIRE_LOCKSPACE: i32 = -241;
/// Lease lockspace disk cannot be opened.
pub const SANLK_ACQUIRE_IDDISK: i32 = -242;
/// Lease is held by another host.
pub const SANLK_ACQUIRE_IDLIVE: i32 = -243;
/// Lease was acquired by another host in other ballot.
pub const SANLK_ACQUIRE_OWNED: i32 = -244;
/// Lease was acquired by another host in local commit.
pub const SANLK_ACQUIRE_OTHER: i32 = -245;
/// Lease is held by another host for shared acquire.
pub const SANLK_ACQUIRE_SHRETRY: i32 = -246;
/// Lease is owned by another host.
pub const SANLK_ACQUIRE_OWNED_RETRY: i32 = -247;
/// Acquire owner gen reverted.
pub const SANLK_ACQUIRE_OWNER_GEN_REVERTED: i32 = -248;
/// Acquire owned no timeout.
pub const SANLK_ACQUIRE_OWNED_NO_TIMEOUT: i32 = -249;
/// Lease release version is incorrect.
pub const SANLK_RELEASE_LVER: i32 = -250;
/// Lease release owner is incorrect.
pub const SANLK_RELEASE_OWNER: i32 = -251;
/// Lease renew owner is incorrect.
pub const SANLK_RENEW_OWNER: i32 = -260;
/// Lease renew data has changed.
pub const SANLK_RENEW_DIFF: i32 = -261;
/// Lease host ID is being used by another host.
pub const SANLK_HOSTID_BUSY: i32 = -262;
/// Renew dead ext.
pub const SANLK_RENEW_DEAD_EXT: i32 = -263;
/// Lease request block has invalid data.
pub const SANLK_REQUEST_MAGIC: i32 = -270;
/// Lease request block has invalid version.
pub const SANLK_REQUEST_VERSION: i32 = -271;
/// Lease request has newer lease version.
pub const SANLK_REQUEST_OLD: i32 = -272;
/// Lease request block has newer version.
pub const SANLK_REQUEST_LVER: i32 = -273;
/// Rindex magic.
pub const SANLK_RINDEX_MAGIC: i32 = -274;
/// Rindex version.
pub const SANLK_RINDEX_VERSION: i32 = -275;
/// Rindex lockspace.
pub const SANLK_RINDEX_LOCKSPACE: i32 = -276;
/// Rindex offset.
pub const SANLK_RINDEX_OFFSET: i32 = -277;
/// Rindex diff.
pub const SANLK_RINDEX_DIFF: i32 = -278;
/// Wrong generation.
pub const SANLK_WRONG_GENERATION: i32 = -280;
/// Wrong caw.
pub const SANLK_WRONG_CAW: i32 = -281;
/// Caw config.
pub const SANLK_CAW_CONFIG: i32 = -282;
/// Caw open.
pub const SANLK_CAW_OPEN: i32 = -283;
/// Caw ioctl.
pub const SANLK_CAW_IOCTL: i32 = -284;
/// Caw miscompare.
pub const SANLK_CAW_MISCOMPARE: i32 = -285;
/// Caw error.
pub const SANLK_CAW_ERROR: i32 = -286;
/// Iotype.
pub const SANLK_IOTYPE: i32 = -287;
/// Caw illegal.
pub const SANLK_CAW_ILLEGAL: i32 = -288;
