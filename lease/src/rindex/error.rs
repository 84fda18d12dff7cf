//! Why an operation on an index did not succeed.

use crate::code::ReturnCode;
use crate::geometry::Geometry;
use crate::machine::IoFailure;
use crate::name::Name;
use crate::paxos::AcquireError;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RindexError {
    /// A transfer failed.
    #[error("{what}: {failure}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// How it failed.
        failure: IoFailure,
    },
    /// There is no index at this place.
    #[error("no resource index there: magic {found:#x}, expected {:#x}", crate::record::RINDEX_MAGIC)]
    Magic {
        /// What stands there.
        found: u32,
    },
    /// An index of another version.
    #[error("the resource index has version {found:#x}, expected 0x1xxxx")]
    Version {
        /// What stands there.
        found: u32,
    },
    /// An index of another lockspace.
    #[error("the resource index belongs to lockspace {found}, expected {expected}")]
    Lockspace {
        /// Its lockspace.
        found: Name,
        /// Ours.
        expected: Name,
    },
    /// An index that was written for another place.
    #[error("the resource index says it is at offset {found}, it was read at {expected}")]
    Place {
        /// What it says.
        found: u64,
        /// Where it was read.
        expected: u64,
    },
    /// An index whose sizes do not exist.
    #[error(
        "the resource index states sectors of {sector} bytes and align flags {flags:#x}, which do not go together"
    )]
    Sizes {
        /// Its sector size.
        sector: u32,
        /// Its flags.
        flags: u32,
    },
    /// The header has no checksum, and its internal lease says otherwise.
    #[error(
        "the resource index states {stated:?} (sector and align size), but its internal lease, at offset {at}, was written for {lease:?}: \
         one of the two is damaged, and nothing is changed; `sanlock fsck` shows what lies there"
    )]
    Contradiction {
        /// Sizes in the header.
        stated: Geometry,
        /// Offset of the internal lease on the disk.
        at: u64,
        /// Sizes in the internal lease.
        lease: Geometry,
    },
    /// The index was formatted anew with other sizes between two reads.
    #[error("the resource index was formatted with other sizes meanwhile, try again")]
    Changed,
    /// An index so far up that its areas have no offsets.
    #[error("no resource index can be at offset {offset}")]
    Beyond {
        /// The offset given.
        offset: u64,
    },
    /// The offset given is not that of a resource area of this index.
    #[error(
        "offset {offset} is none of the index's areas: they begin at {first} and follow every {align} bytes, {count} of them"
    )]
    EntryOffset {
        /// The offset given.
        offset: u64,
        /// Offset of the first area.
        first: u64,
        /// Bytes from one area to the next.
        align: u64,
        /// Number of areas.
        count: u32,
    },
    /// An entry cannot be entered, or removed, without this.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// No such name.
    #[error("the index has no resource {0}")]
    NoSuchName(Name),
    /// Every entry is used.
    #[error("the index is full: all {0} entries are used")]
    Full(u32),
    /// The name is there already.
    #[error("the index has a resource {name} already, at offset {offset}")]
    Exists {
        /// The name.
        name: Name,
        /// Offset of its area.
        offset: u64,
    },
    /// Name and offset given do not belong together.
    #[error("the area at offset {offset} is entered as \"{found}\"")]
    Differs {
        /// The name that stands there.
        found: Name,
        /// The offset given.
        offset: u64,
    },
    /// The command makes no sense without a joined lockspace.
    #[error("this needs the lockspace to be joined")]
    NoMember,
    /// The internal lease could not be had.
    #[error("the lease of the index: {0}")]
    Acquire(AcquireError),
    /// The lockspace failed, is being removed, or was joined anew.
    #[error("the lockspace is no longer usable")]
    LockspaceGone,
    /// The machine was driven against its rules.
    #[error("internal: answer does not fit the state")]
    Driver,
}

impl From<&RindexError> for ReturnCode {
    fn from(e: &RindexError) -> Self {
        match e {
            RindexError::Io { failure, .. } => Self::from(failure),
            RindexError::Magic { .. } => Self::RINDEX_MAGIC,
            RindexError::Version { .. } => Self::RINDEX_VERSION,
            RindexError::Lockspace { .. } => Self::RINDEX_LOCKSPACE,
            RindexError::Place { .. } | RindexError::EntryOffset { .. } => Self::RINDEX_OFFSET,
            RindexError::Differs { .. } => Self::RINDEX_DIFF,
            RindexError::Sizes { .. }
            | RindexError::Contradiction { .. }
            | RindexError::Beyond { .. }
            | RindexError::Missing(_) => Self::EINVAL,
            RindexError::Changed => Self::EAGAIN,
            RindexError::NoSuchName(_) | RindexError::Full(_) | RindexError::NoMember => Self::ENOENT,
            RindexError::Exists { .. } => Self::EEXIST,
            RindexError::Acquire(e) => Self::from(e),
            RindexError::LockspaceGone => Self::ENOSPC,
            RindexError::Driver => Self::GENERIC,
        }
    }
}
