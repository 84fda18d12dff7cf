//! Why a one-shot command failed, and the number its client sees.

use sanlock_blockio::{EngineError, IoError, OpenError, TooSmall};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::format::SizesError;
use sanlock_lease::record::RequestError;
use sanlock_lease::rindex::RindexError;
use sanlock_lease::timing::IoTimeoutError;
use sanlock_lease::verify::LeaderError;
use sanlock_wire::name::PathError;
use sanlock_wire::types::TooManyDisks;

/// A one-shot command's failure. Its text is for the log, its [`code`](ToolError::code) for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The request names no path.
    #[error("no path given")]
    NoPath,
    /// The path of the request has no end.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The disk of a lockspace, or one whose alignment is asked for, cannot be opened.
    #[error(transparent)]
    NoDevice(OpenError),
    /// A disk of a resource cannot be opened.
    #[error(transparent)]
    Open(OpenError),
    /// A resource without disks.
    #[error("the resource names no disk")]
    NoDisks,
    /// A resource with more disks than a lease can have.
    #[error(transparent)]
    TooManyDisks(#[from] TooManyDisks),
    /// A transfer failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// What is to be formatted does not fit on a device.
    #[error(transparent)]
    TooSmall(#[from] TooSmall),
    /// A place that no disk reaches.
    #[error("offset {offset} is beyond what a disk can have")]
    Offset {
        /// The offset given.
        offset: u64,
    },
    /// A place that no transfer can begin at.
    #[error("offset {offset} is no multiple of the storage's blocks of {block} bytes")]
    Unaligned {
        /// The offset given.
        offset: u64,
        /// Logical block of the storage, bytes.
        block: u32,
    },
    /// The sizes asked for do not go together, or none go with the storage.
    #[error(transparent)]
    Sizes(#[from] SizesError),
    /// Sectors smaller than the storage's blocks cannot be written one by one.
    #[error("sectors of {sector} bytes on storage with blocks of {block} bytes")]
    SectorBelowBlock {
        /// Sector size asked for, bytes.
        sector: u32,
        /// Logical block of the storage, bytes.
        block: u32,
    },
    /// The disks of a resource have different block sizes and the request names no sizes.
    #[error("the disks have blocks of {first} and of {other} bytes; give the sizes")]
    MixedBlocks {
        /// Logical block of the first disk, bytes.
        first: u32,
        /// That of a later one.
        other: u32,
    },
    /// An io timeout that the format cannot hold.
    #[error(transparent)]
    IoTimeout(#[from] IoTimeoutError),
    /// A negative number of hosts.
    #[error("number of hosts is {found}, expected 0 or more")]
    NumHosts {
        /// The number asked for.
        found: i32,
    },
    /// A host id that the lockspace does not have.
    #[error("host id {found} is not between 1 and {max}")]
    HostId {
        /// The host id asked for.
        found: u64,
        /// The largest one there.
        max: u16,
    },
    /// The record is not that of a usable lease, or not of the one asked for.
    #[error(transparent)]
    Leader(#[from] LeaderError),
    /// A lease on several disks, which too few of them have.
    #[error("{ours} of {disks} disks have the lease, and more than half must; of another one: {other}")]
    FewDisks {
        /// How many have it.
        ours: usize,
        /// Of how many.
        disks: usize,
        /// What is wrong with the first of the others.
        other: String,
    },
    /// The sizes cannot be taken from the record.
    #[error("no usable sizes: {0}")]
    UnknownSizes(LeaderError),
    /// The request names sizes that the lease does not have.
    #[error("the lease has {found} bytes ({what}), the request says {asked}")]
    WrongHint {
        /// Which size.
        what: &'static str,
        /// Bytes on disk.
        found: u64,
        /// Bytes the request says.
        asked: u64,
    },
    /// A command on a resource index.
    #[error(transparent)]
    Rindex(#[from] RindexError),
    /// Nothing to do I/O with.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// It is being formatted, or a write of a format or of a request for a lease may still land there.
    #[error(
        "a format of {path}, or a request for a lease there, has not ended, and its writes may still land; try again when it has"
    )]
    LateFormat {
        /// On which disk.
        path: String,
    },
    /// The same, of one that has ended with an error.
    #[error(
        "an earlier format of {path}, or a request for a lease there, failed with an error after which its write may still land; try again in \
         {secs} s"
    )]
    FormatInDoubt {
        /// On which disk.
        path: String,
        /// For how long, at most.
        secs: u64,
    },
    /// A request that cannot be made, or read.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The lease was formatted anew with other sizes between two reads.
    #[error("the lease's sizes changed while it was read")]
    Changed,
}

impl ToolError {
    /// Whether the storage did not answer in time.
    pub(crate) fn is_silence(&self) -> bool {
        match self {
            Self::NoDevice(error) | Self::Open(error) => {
                matches!(error, OpenError::TimedOut { .. } | OpenError::TooManyHanging { .. })
            }
            Self::Io(error) => ReturnCode(error.code()) == ReturnCode::AIO_TIMEOUT,
            _ => false,
        }
    }

    /// The result of the command (socket-protocol.md 7.12, 7.17 to 7.20, 7.23; disk-format.md 2.3, 2.6, 3).
    #[must_use]
    pub fn code(&self) -> ReturnCode {
        match self {
            Self::NoPath | Self::NoDevice(_) => ReturnCode::ENODEV,
            Self::Open(error) => ReturnCode(error.code()),
            Self::NoDisks | Self::TooManyDisks(_) => ReturnCode::ERANGE,
            Self::Io(error) => ReturnCode(error.code()),
            Self::TooSmall(error) => ReturnCode(error.code()),
            Self::Sizes(SizesError::OnlyOne | SizesError::Pair(_)) => ReturnCode::GENERIC,
            Self::HostId { .. } => ReturnCode::LEADER_MAGIC,
            Self::Leader(error) => error.into(),
            Self::FewDisks { .. } => ReturnCode::LEADER_READ,
            Self::Rindex(error) => error.into(),
            Self::Engine(_) | Self::LateFormat { .. } | Self::FormatInDoubt { .. } => ReturnCode::EAGAIN,
            Self::Request(error) => error.into(),
            Self::Path(_)
            | Self::Offset { .. }
            | Self::Unaligned { .. }
            | Self::Sizes(SizesError::BlockSize { .. })
            | Self::SectorBelowBlock { .. }
            | Self::MixedBlocks { .. }
            | Self::IoTimeout(_)
            | Self::NumHosts { .. }
            | Self::UnknownSizes(_)
            | Self::WrongHint { .. }
            | Self::Changed => ReturnCode::EINVAL,
        }
    }
}
