//! Why an acquire or a release did not succeed.

use crate::code::ReturnCode;
use crate::geometry::HostId;
use crate::machine::IoFailure;
use crate::paxos::LeaderFail;
use crate::verify::{DblockError, LeaderError};

/// Who owns the lease, as far as the failed acquire found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerInfo {
    /// Host id.
    pub host_id: u64,
    /// Generation.
    pub generation: u64,
    /// When it acquired, in its own clock.
    pub timestamp: u64,
    /// The lease version.
    pub lver: u64,
    /// Whether it is only passing through to shared mode.
    pub short_hold: bool,
}

/// Why a leader that would be needed for a majority is none.
fn elsewhere(other: Option<&LeaderFail>) -> String {
    other.map_or_else(String::new, |fail| format!("; on another one: {fail}"))
}

/// Why an acquire failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AcquireError {
    /// A read of the leader, or of a delta lease, failed.
    #[error("reading the lease failed: {0}")]
    Io(IoFailure),
    /// Too few disks could be read for a majority.
    #[error("the leader could be read on {readable} of {disks} disks only{}", elsewhere(other.as_ref()))]
    LeaderRead {
        /// How many could.
        readable: u32,
        /// Of how many.
        disks: u8,
        /// Why one of the others could not.
        other: Option<LeaderFail>,
    },
    /// The leaders of no majority agree.
    #[error("no majority of the disks agrees on the leader")]
    LeaderDiff,
    /// The blocks could not be read on a majority of the disks.
    #[error("reading the ballot records failed: {0}")]
    DblockRead(IoFailure),
    /// Our block could not be written on a majority of the disks.
    #[error("writing our ballot record failed: {0}")]
    DblockWrite(IoFailure),
    /// The leader could not be written on a majority of the disks. It may still land.
    #[error("writing the leader failed: {0}")]
    LeaderWrite(IoFailure),
    /// The leader record is not what it should be.
    #[error(transparent)]
    Leader(LeaderError),
    /// A ballot record is damaged.
    #[error(transparent)]
    Dblock(DblockError),
    /// The owner's delta lease is not what it should be.
    #[error("the owner's host_id lease: {0}")]
    OwnerDelta(LeaderError),
    /// The lease version is not the one the caller demanded.
    #[error("lease version is {found}, {expected} was demanded")]
    Lver {
        /// The version demanded.
        expected: u64,
        /// The version on disk.
        found: u64,
    },
    /// The leader has the largest version there is, which no lease reaches by counting: there is no next one to win.
    #[error(
        "the lease has version {}, the last there is, so nobody can acquire it again: initialise it anew once no host uses it",
        u64::MAX
    )]
    LastVersion,
    /// The owner is alive.
    #[error("held by host id {} generation {}", .0.host_id, .0.generation)]
    Live(OwnerInfo),
    /// The owner may be dead, but its time has not run out, and the caller does not wait.
    #[error("owned by host id {} generation {}, which is not renewing but not yet dead", .0.host_id, .0.generation)]
    NotYetDead(OwnerInfo),
    /// Another host won this version.
    #[error("host id {} won lease version {}", .0.host_id, .0.lver)]
    Owned(OwnerInfo),
    /// The ballot chose another host, and we committed it.
    #[error("the ballot for lease version {} chose host id {}", .0.lver, .0.host_id)]
    Other(OwnerInfo),
    /// Other hosts' ballots kept ours from winning within the bounded number of tries.
    #[error("lost against ballot {seen} of another host")]
    Ballot {
        /// The larger ballot number seen.
        seen: u64,
    },
    /// The leader was rolled back (rule R9), and a host that may be alive may own a version that the blocks have passed over.
    #[error(
        "the leader was rolled back to lease version {leader} while ballot records are at {ahead}, and host id {host} generation {generation}, \
         which may be alive, may own version {lver}: acquire and release the lease there, or let that host leave the lockspace"
    )]
    Newer {
        /// Who may own it.
        host: HostId,
        /// Its generation, by its ballot record.
        generation: u64,
        /// The version it may own.
        lver: u64,
        /// The largest version of any ballot record.
        ahead: u64,
        /// The leader's version.
        leader: u64,
    },
    /// Another host holds the lease shared.
    #[error("held shared by {host} generation {generation}")]
    Shared {
        /// The holder.
        host: HostId,
        /// Its generation.
        generation: u64,
    },
    /// Other hosts kept entering shared mode before us, in every one of the retries allowed.
    #[error("not within the retries allowed: {} generation {} is entering shared mode", .0.host_id, .0.generation)]
    Crowded(OwnerInfo),
    /// The lease was ours, but the step to a shared hold failed.
    #[error("entering shared mode: {0}")]
    Share(ReleaseError),
    /// The number of hosts asked for is impossible.
    #[error("num_hosts {found} is not between our host id {min} and {max}")]
    NumHosts {
        /// The number given.
        found: u64,
        /// Our own id.
        min: u64,
        /// What the sizes hold.
        max: u64,
    },
    /// The lockspace failed, is being removed, or was joined anew.
    #[error("the lockspace is no longer usable")]
    LockspaceGone,
    /// The process that wanted the lease is gone.
    #[error("the process is gone")]
    ClientGone,
    /// The daemon is shutting down.
    #[error("the daemon is shutting down")]
    ShuttingDown,
    /// The machine was driven against its rules.
    #[error("internal: input does not fit the state")]
    Driver,
}

impl AcquireError {
    /// Whether this is an outcome of everyday use, another host or the client itself being in the way, rather than a fault
    /// of the storage, the records or the daemon that somebody has to look after.
    #[must_use]
    pub const fn is_contention(&self) -> bool {
        matches!(
            self,
            Self::Live(_)
                | Self::Owned(_)
                | Self::Other(_)
                | Self::NotYetDead(_)
                | Self::Shared { .. }
                | Self::Crowded(_)
                | Self::Ballot { .. }
                | Self::ClientGone
        )
    }
}

impl From<&AcquireError> for ReturnCode {
    fn from(e: &AcquireError) -> Self {
        match e {
            AcquireError::Io(io) => Self::from(io),
            AcquireError::LeaderRead { .. } => Self::LEADER_READ,
            AcquireError::LeaderDiff => Self::LEADER_DIFF,
            AcquireError::DblockRead(_) => Self::DBLOCK_READ,
            AcquireError::DblockWrite(_) => Self::DBLOCK_WRITE,
            AcquireError::LeaderWrite(io) => Self::from(io),
            AcquireError::Leader(LeaderError::Sizes(_)) => Self::LEADER_SECTORSIZE,
            AcquireError::Leader(e) | AcquireError::OwnerDelta(e) => Self::from(e),
            AcquireError::Dblock(e) => Self::from(e),
            AcquireError::Lver { .. } => Self::ACQUIRE_LVER,
            // Like a generation that cannot be real.
            AcquireError::LastVersion => Self::LEADER_CHECKSUM,
            AcquireError::Live(_) => Self::ACQUIRE_IDLIVE,
            AcquireError::NotYetDead(_) => Self::ACQUIRE_OWNED_RETRY,
            AcquireError::Owned(_) => Self::ACQUIRE_OWNED,
            AcquireError::Other(_) => Self::ACQUIRE_OTHER,
            AcquireError::Ballot { .. } => Self::DBLOCK_MBAL,
            AcquireError::Newer { .. } => Self::DBLOCK_LVER,
            AcquireError::Shared { .. } => Self::EAGAIN,
            AcquireError::Crowded(_) => Self::ACQUIRE_SHRETRY,
            AcquireError::Share(e) => Self::from(e),
            AcquireError::NumHosts { .. } => Self::EINVAL,
            AcquireError::LockspaceGone => Self::ENOSPC,
            AcquireError::ClientGone => Self::ENOTTY,
            AcquireError::ShuttingDown | AcquireError::Driver => Self::GENERIC,
        }
    }
}

/// Why a release did not free the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ReleaseError {
    /// The leader could not be read.
    #[error("reading the leader failed: {0}")]
    Io(IoFailure),
    /// Too few disks, or no agreement.
    #[error("the leader could be read on {readable} of {disks} disks only{}", elsewhere(other.as_ref()))]
    LeaderRead {
        /// How many could.
        readable: u32,
        /// Of how many.
        disks: u8,
        /// Why one of the others could not.
        other: Option<LeaderFail>,
    },
    /// The leaders of no majority agree.
    #[error("no majority of the disks agrees on the leader")]
    LeaderDiff,
    /// The leader could not be written. It may still land.
    #[error("writing the leader failed: {0}")]
    LeaderWrite(IoFailure),
    /// The value block could not be written. Nothing else was done; this write may still land.
    #[error("writing the value block failed: {0}")]
    Value(IoFailure),
    /// Our block could not be marked released, so the lease may still be ours.
    #[error("writing our ballot record failed: {0}")]
    DblockWrite(IoFailure),
    /// The leader record is not what it should be.
    #[error(transparent)]
    Leader(LeaderError),
    /// Our ballot record is damaged.
    #[error(transparent)]
    Dblock(DblockError),
    /// The leader is at another version than ours.
    #[error("the leader is at lease version {found}, ours is {expected}")]
    Lver {
        /// Ours.
        expected: u64,
        /// On disk.
        found: u64,
    },
    /// The leader does not name us, or not as we wrote it.
    #[error("the leader names host id {host_id} generation {generation} timestamp {timestamp}")]
    Owner {
        /// `owner_id` on disk.
        host_id: u64,
        /// `owner_generation` on disk.
        generation: u64,
        /// `timestamp` on disk.
        timestamp: u64,
    },
    /// The lease was given up, but has its old name: on a disk that missed the new one it would be lost.
    #[error("the lease keeps its name: it was found on {readable} of {disks} disks only{}", elsewhere(other.as_ref()))]
    NotRenamed {
        /// On how many it was found.
        readable: u32,
        /// Of how many.
        disks: u8,
        /// Why not on one of the others.
        other: Option<LeaderFail>,
    },
    /// The lockspace is gone: nothing may be written any more.
    #[error("the lockspace is no longer usable")]
    LockspaceGone,
    /// The machine was driven against its rules.
    #[error("internal: input does not fit the state")]
    Driver,
}

impl ReleaseError {
    /// Whether the same release should be tried again (lease-algorithms.md 6.4): the disk did not answer. Any other error is
    /// final.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Io(_)
                | Self::LeaderRead { .. }
                | Self::LeaderWrite(_)
                | Self::DblockWrite(_)
                | Self::Value(_)
                // Somebody's commit on its way to several disks.
                | Self::LeaderDiff
        )
    }
}

impl From<&ReleaseError> for ReturnCode {
    fn from(e: &ReleaseError) -> Self {
        match e {
            ReleaseError::Io(io)
            | ReleaseError::LeaderWrite(io)
            | ReleaseError::Value(io)
            | ReleaseError::DblockWrite(io) => Self::from(io),
            ReleaseError::LeaderRead { .. } | ReleaseError::NotRenamed { .. } => Self::LEADER_READ,
            ReleaseError::LeaderDiff => Self::LEADER_DIFF,
            ReleaseError::Leader(e) => Self::from(e),
            ReleaseError::Dblock(e) => Self::from(e),
            ReleaseError::Lver { .. } => Self::RELEASE_LVER,
            ReleaseError::Owner { .. } => Self::RELEASE_OWNER,
            ReleaseError::LockspaceGone => Self::ENOSPC,
            ReleaseError::Driver => Self::GENERIC,
        }
    }
}
