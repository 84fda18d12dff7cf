//! The one table from typed errors to the numbers clients see (disk-format.md 16, socket-protocol.md 5).
//!
//! `SANLK_*` results share an `int` with negated errno values.

use crate::machine::IoFailure;
use crate::verify::{DblockError, LeaderError};

/// A result number: 0, a negated errno, or a `SANLK_*` number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReturnCode(pub i32);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        impl ReturnCode {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            /// Every result that this crate has a constant for.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

codes! {
    /// Success.
    OK = 0;
    /// Unspecific failure, e.g. the daemon is shutting down.
    GENERIC = -1;
    /// No such thing.
    ENOENT = -2;
    /// No such process.
    ESRCH = -3;
    /// I/O error.
    EIO = -5;
    /// Too many resources.
    E2BIG = -7;
    /// Try again.
    EAGAIN = -11;
    /// Busy.
    EBUSY = -16;
    /// Exists already.
    EEXIST = -17;
    /// No such device.
    ENODEV = -19;
    /// Bad argument.
    EINVAL = -22;
    /// The process ended meanwhile.
    ENOTTY = -25;
    /// The lockspace is not joined, or failing.
    ENOSPC = -28;
    /// Bad number of disks.
    ERANGE = -34;
    /// Short transfer.
    EMSGSIZE = -90;
    /// No more event streams.
    ENOCSI = -50;
    /// Not supported.
    EOPNOTSUPP = -95;
    /// Already so.
    EALREADY = -114;
    /// In progress.
    EINPROGRESS = -115;
    /// It is an orphan on this host.
    EUCLEAN = -117;
    /// SANLK_ERROR: aborted.
    ERROR = -201;
    /// SANLK_AIO_TIMEOUT.
    AIO_TIMEOUT = -202;
    /// SANLK_WD_ERROR.
    WD_ERROR = -203;
    /// SANLK_DBLOCK_READ.
    DBLOCK_READ = -210;
    /// SANLK_DBLOCK_WRITE.
    DBLOCK_WRITE = -211;
    /// SANLK_DBLOCK_LVER.
    DBLOCK_LVER = -212;
    /// SANLK_DBLOCK_MBAL.
    DBLOCK_MBAL = -213;
    /// SANLK_DBLOCK_CHECKSUM.
    DBLOCK_CHECKSUM = -214;
    /// SANLK_LEADER_READ.
    LEADER_READ = -220;
    /// SANLK_LEADER_WRITE.
    LEADER_WRITE = -221;
    /// SANLK_LEADER_DIFF.
    LEADER_DIFF = -222;
    /// SANLK_LEADER_MAGIC.
    LEADER_MAGIC = -223;
    /// SANLK_LEADER_VERSION.
    LEADER_VERSION = -224;
    /// SANLK_LEADER_SECTORSIZE.
    LEADER_SECTORSIZE = -225;
    /// SANLK_LEADER_LOCKSPACE.
    LEADER_LOCKSPACE = -226;
    /// SANLK_LEADER_RESOURCE.
    LEADER_RESOURCE = -227;
    /// SANLK_LEADER_NUMHOSTS.
    LEADER_NUMHOSTS = -228;
    /// SANLK_LEADER_CHECKSUM.
    LEADER_CHECKSUM = -229;
    /// SANLK_ADDLS_SIZES.
    ADDLS_SIZES = -230;
    /// SANLK_ADDLS_INVALID_HOSTID.
    ADDLS_INVALID_HOSTID = -231;
    /// SANLK_ACQUIRE_LVER.
    ACQUIRE_LVER = -240;
    /// SANLK_ACQUIRE_LOCKSPACE.
    ACQUIRE_LOCKSPACE = -241;
    /// SANLK_ACQUIRE_IDLIVE.
    ACQUIRE_IDLIVE = -243;
    /// SANLK_ACQUIRE_OWNED.
    ACQUIRE_OWNED = -244;
    /// SANLK_ACQUIRE_OTHER.
    ACQUIRE_OTHER = -245;
    /// SANLK_ACQUIRE_SHRETRY.
    ACQUIRE_SHRETRY = -246;
    /// SANLK_ACQUIRE_OWNED_RETRY.
    ACQUIRE_OWNED_RETRY = -247;
    /// SANLK_RELEASE_LVER.
    RELEASE_LVER = -250;
    /// SANLK_RELEASE_OWNER.
    RELEASE_OWNER = -251;
    /// SANLK_RENEW_OWNER.
    RENEW_OWNER = -260;
    /// SANLK_RENEW_DIFF.
    RENEW_DIFF = -261;
    /// SANLK_HOSTID_BUSY.
    HOSTID_BUSY = -262;
    /// SANLK_REQUEST_MAGIC.
    REQUEST_MAGIC = -270;
    /// SANLK_REQUEST_VERSION.
    REQUEST_VERSION = -271;
    /// SANLK_REQUEST_OLD.
    REQUEST_OLD = -272;
    /// SANLK_REQUEST_LVER.
    REQUEST_LVER = -273;
    /// SANLK_RINDEX_MAGIC.
    RINDEX_MAGIC = -274;
    /// SANLK_RINDEX_VERSION.
    RINDEX_VERSION = -275;
    /// SANLK_RINDEX_LOCKSPACE.
    RINDEX_LOCKSPACE = -276;
    /// SANLK_RINDEX_OFFSET.
    RINDEX_OFFSET = -277;
    /// SANLK_RINDEX_DIFF.
    RINDEX_DIFF = -278;
    /// SANLK_CAW_OPEN: compare-and-write asked for where there is none.
    CAW_OPEN = -283;
}

impl From<&LeaderError> for ReturnCode {
    fn from(e: &LeaderError) -> Self {
        match e {
            LeaderError::Magic { .. } | LeaderError::Cleared => Self::LEADER_MAGIC,
            LeaderError::Version { .. } => Self::LEADER_VERSION,
            LeaderError::Lockspace { .. } => Self::LEADER_LOCKSPACE,
            LeaderError::Resource { .. } => Self::LEADER_RESOURCE,
            LeaderError::NumHosts { .. } => Self::LEADER_NUMHOSTS,
            LeaderError::Checksum { .. } | LeaderError::Owner { .. } => Self::LEADER_CHECKSUM,
            LeaderError::SectorSize { .. }
            | LeaderError::OtherSectors { .. }
            | LeaderError::OtherAlign { .. } => Self::LEADER_SECTORSIZE,
            LeaderError::Sizes(_) => Self::ADDLS_SIZES,
            LeaderError::CompareAndWrite => Self::CAW_OPEN,
        }
    }
}

impl From<&DblockError> for ReturnCode {
    fn from(_: &DblockError) -> Self {
        Self::DBLOCK_CHECKSUM
    }
}

impl From<&IoFailure> for ReturnCode {
    fn from(e: &IoFailure) -> Self {
        match e {
            IoFailure::Os(errno) | IoFailure::NotOpen(errno) => Self(-errno),
            IoFailure::Short => Self::EMSGSIZE,
            IoFailure::TimedOut => Self::AIO_TIMEOUT,
        }
    }
}
