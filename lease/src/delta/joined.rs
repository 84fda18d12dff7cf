//! How a join ends ([`super::DeltaAcquire`]): with a host id, or with a reason why not.

use super::Instance;
use crate::code::ReturnCode;
use crate::geometry::{Geometry, HostId};
use crate::machine::IoFailure;
use crate::name::Name;
use crate::record::RawLeader;
use crate::timing::MonoTime;
use crate::verify::LeaderError;

/// A host id that is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Joined {
    /// The lockspace's sizes.
    pub geometry: Geometry,
    /// Our record as written and found again.
    pub leader: RawLeader,
    /// The time whose seconds the record carries: the last good renewal.
    pub last_good: MonoTime,
}

impl Joined {
    /// The generation we hold the host id with.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.leader.owner_generation.get()
    }
}

/// Why a join failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum JoinError {
    /// A read failed.
    #[error("reading the host_id lease failed: {0}")]
    Read(IoFailure),
    /// What this machine knows of an earlier instance of this host could not be read, or the generation to join with not be recorded. Nothing was
    /// written.
    #[error("the records of this host in the run directory cannot be read or written: {0}")]
    Records(IoFailure),
    /// The write that makes the lease ours failed. After a timeout it may still land.
    #[error("writing the host_id lease failed: {0}")]
    Write(IoFailure),
    /// The record is not what it should be.
    #[error(transparent)]
    Leader(LeaderError),
    /// The sizes of the lockspace have no room for this host id.
    #[error("{host} does not exist in this lockspace, its sizes allow 1 to {max}")]
    HostId {
        /// Our host id.
        host: HostId,
        /// The largest there is.
        max: u16,
    },
    /// The holder renewed the lease, or somebody else took it, while we waited.
    #[error("the host_id lease is in use by {owner:?}, generation {generation}")]
    Busy {
        /// The host name in the record.
        owner: Name,
        /// The generation in the record.
        generation: u64,
    },
    /// Another host wrote the lease after us.
    #[error("the host_id lease was taken at the same time by {owner:?}, generation {generation}")]
    Lost {
        /// The host name in the record.
        owner: Name,
        /// The generation in the record.
        generation: u64,
    },
    /// Removal or shutdown while joining. `freed` is false if the lease is left on disk as owned by us.
    #[error("joining was stopped")]
    Stopped {
        /// Whether nothing of us is left on disk.
        freed: bool,
    },
    /// The record's generation is the largest number there is, which no host reaches by counting.
    #[error("the host_id lease has generation {found}, which cannot be real")]
    Generation {
        /// The number on disk, or the one remembered of an earlier join if that is larger.
        found: u64,
    },
    /// A larger generation is needed than was recorded for the time after this join ([`super::DeltaAcquire::recorded_up_to`]). Nothing was written.
    #[error("generation {generation} is needed, and is not recorded")]
    Unrecorded {
        /// The generation to join with.
        generation: u64,
        /// The latest instance that is known to have had the host id, for the next attempt to remember.
        latest: Instance,
    },
    /// What was read, or written, was heard of so late that another host may have taken the host id meanwhile: this program stood
    /// still, or a write took longer than others wait for it. What was written stays on disk, for others to wait out.
    #[error(
        "the join came to know of a read or write of the host_id lease {ms} ms after it began, too late to rely on it: \
         this program stood still, or storage is too slow for the io timeout"
    )]
    StoodStill {
        /// Since the beginning of the read that it relies on, or of the last write.
        ms: u64,
    },
    /// The machine was driven against its rules.
    #[error("internal: input does not fit the state")]
    Driver,
}

impl From<&JoinError> for ReturnCode {
    fn from(e: &JoinError) -> Self {
        match e {
            JoinError::Read(IoFailure::NotOpen(_)) | JoinError::Write(IoFailure::NotOpen(_)) => Self::ENODEV,
            JoinError::Read(io) | JoinError::Write(io) | JoinError::Records(io) => Self::from(io),
            JoinError::Leader(e) => Self::from(e),
            JoinError::HostId { .. } => Self::ADDLS_INVALID_HOSTID,
            JoinError::Busy { .. } | JoinError::Lost { .. } => Self::HOSTID_BUSY,
            JoinError::Stopped { .. } => Self::ERROR,
            JoinError::StoodStill { .. } => Self::from(&IoFailure::TimedOut),
            JoinError::Generation { .. } => Self::LEADER_CHECKSUM,
            JoinError::Unrecorded { .. } | JoinError::Driver => Self::GENERIC,
        }
    }
}

/// The outcome of [`super::DeltaAcquire`].
pub type JoinOutcome = Result<Joined, JoinError>;
