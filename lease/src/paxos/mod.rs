//! Resource leases: Disk Paxos on the sectors of one to four areas (lease-algorithms.md 4, 6, 15.3).
//!
//! Every ownership change is one ballot for one lease version (`lver`). The rules that keep it safe where a write may land
//! late, and where each is kept:
//!
//! * R1, keep values: [`own::OwnBlock::phase1`] changes only `mbal` while our block already carries a value for the version.
//! * R2, release by flag: [`release`] rewrites the block as it is, plus RELEASED; nothing ever erases a block.
//! * R3, a timed-out write is outstanding: a machine never writes to a disk on which a write of its own is still outstanding
//!   ([`ops::Ops`]), and reports the number in [`crate::machine::Step::Done`]; who drives it starts nothing new for the resource before
//!   they have settled.
//! * R4: success needs the very value this attempt proposed; see [`acquire`].
//! * R9, rolled-back leader: a block ahead of the leader makes its version the one the ballot is for; see `acquire/repair.rs`.
//! * R10: [`crate::machine::Env`] is looked at before every write.

pub mod acquire;
mod blocks;
pub mod convert;
mod error;
pub mod inspect;
mod ops;
mod own;
pub mod release;
pub mod share;
pub mod take;
#[cfg(test)]
mod tests;

pub use acquire::PaxosAcquire;
pub use convert::PaxosConvert;
pub use error::{AcquireError, OwnerInfo, ReleaseError};
pub use release::PaxosRelease;
pub use share::PaxosShare;
pub use take::PaxosTake;

use crate::geometry::{Geometry, HostId};
use crate::machine::{Env, IoFailure, LockspaceNow, View};
use crate::name::Name;
use crate::record::{HostBlock, RawLeader};
use crate::timing::{IoTimeout, WatchdogFire};
use crate::verify::{self, Expect, LeaderError, Purpose};

/// Who works on which resource. The same for every machine of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PaxosConfig {
    /// The lockspace the resource belongs to.
    pub lockspace: Name,
    /// The resource.
    pub resource: Name,
    /// Our host id in that lockspace.
    pub host: HostId,
    /// The generation we hold it with.
    pub generation: u64,
    /// Limit of each of our operations.
    pub io_timeout: IoTimeout,
    /// The watchdog fire timeout of every host.
    pub fire: WatchdogFire,
    /// Sizes of the lockspace: where delta leases lie, and the first guess for the resource.
    pub geometry: Geometry,
    /// Disks of the resource, 1 to 4.
    pub disks: u8,
}

impl PaxosConfig {
    /// Disks that make a majority: more than half (lease-algorithms.md 4.8).
    fn majority(&self) -> u32 {
        u32::from(self.disks) / 2 + 1
    }

    /// Whether an operation is still wanted and allowed (rule R10).
    fn check_env(&self, env: &Env<'_>) -> Result<(), AcquireError> {
        match env.lockspace {
            LockspaceNow::Alive { generation } if generation == self.generation => {}
            _ => return Err(AcquireError::LockspaceGone),
        }
        if env.shutting_down {
            return Err(AcquireError::ShuttingDown);
        }
        if env.client_alive { Ok(()) } else { Err(AcquireError::ClientGone) }
    }

    /// The leader in what was read, verified for use.
    fn decode_leader(&self, result: Result<View<'_>, IoFailure>) -> Result<RawLeader, LeaderFail> {
        let view = result.map_err(LeaderFail::Io)?;
        let sector = view.sector(0).ok_or(LeaderFail::Io(IoFailure::Short))?;
        let leader = RawLeader::from_sector(sector);
        let expect = Expect {
            lockspace: Some(self.lockspace),
            resource: Some(self.resource),
            host_id: Some(self.host),
        };
        verify::paxos(&leader, &expect, Purpose::Use).map_err(LeaderFail::Leader)?;
        Ok(leader)
    }
}

/// A lease we hold, as it lies on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// The leader record.
    pub leader: RawLeader,
    /// Our block, with the value that was chosen.
    pub block: HostBlock,
    /// The resource's sizes.
    pub geometry: Geometry,
}

impl Held {
    /// Whether it is held shared: then the leader is somebody else's business, and our mode block is the hold.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.block.mode.is_shared()
    }

    /// The ballot number of our block.
    #[must_use]
    pub fn ballot(&self) -> u64 {
        self.block.dblock.mbal.get()
    }

    /// The lease version.
    #[must_use]
    pub fn lver(&self) -> u64 {
        self.leader.lver.get()
    }
}

/// A read of a leader that failed: by I/O, or by what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LeaderFail {
    /// It could not be read.
    #[error(transparent)]
    Io(IoFailure),
    /// It is none of this lease.
    #[error(transparent)]
    Leader(LeaderError),
}

/// A proposed owner: what a ballot chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Value {
    pub(crate) host: u64,
    pub(crate) generation: u64,
    pub(crate) timestamp: u64,
}

/// SplitMix64: good enough to keep contenders apart. The state is part of a machine's value.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
