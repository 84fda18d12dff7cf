//! Delta leases: owning a host id by renewing one sector (lease-algorithms.md 2, 3.1).
//!
//! Host `h` owns sector `h - 1` of the lockspace. Who holds it changes only a timestamp; everybody else only asks whether that
//! timestamp changed. Hence the invariants kept here:
//!
//! * A sector is overwritten only by who read it shortly before and found it free, its own, or unchanged for longer than the
//!   owner's watchdog allows ([`acquire`]).
//! * The time of a renewal is taken before the write is submitted (rule R12): a write that lands late makes the lease look
//!   older to its owner than it is, never younger.
//! * One write at a time. While one that timed out may still land, none is submitted to the same sector (W30).
//! * After contents that we did not write, nothing is written any more: neither renewal nor release (W12).

pub mod acquire;
pub mod joined;
pub mod release;
pub mod renew;
pub mod scan;
mod split;

#[cfg(test)]
mod tests;

pub use acquire::DeltaAcquire;
pub use joined::{JoinError, JoinOutcome, Joined};
pub use release::{DeltaRelease, LeaveError};
pub use renew::{Corrupt, Event, RenewFailure, RenewOutcome, Renewal, Renewed};
pub use scan::{HostScan, ScanOutcome};

use crate::geometry::{Geometry, HostId, SectorSize};
use crate::machine::{Action, Content, IoFailure, Op, OpId, Place, View};
use crate::name::Name;
use crate::record::{Bitmap, RawLeader};
use crate::timing::{IoTimeout, MonoTime, WatchdogFire};
use crate::verify::{self, LeaderError, Purpose};

/// Who joins what. The same for every machine of one lockspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeltaConfig {
    /// The lockspace's name.
    pub lockspace: Name,
    /// Our host id in it.
    pub host: HostId,
    /// Our host name: tells two machines apart that were given the same host id.
    pub host_name: Name,
    /// Limit of each of our operations, and what others judge us by.
    pub io_timeout: IoTimeout,
    /// The watchdog fire timeout of every host.
    pub fire: WatchdogFire,
}

/// One life of a host in a lockspace, from a join on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instance {
    /// The generation it has its host id with.
    pub generation: u64,
    /// What others judge it by.
    pub io_timeout: IoTimeout,
}

impl DeltaConfig {
    /// The limit of everything but a renewal's write: T from now.
    fn deadline(&self, now: MonoTime) -> MonoTime {
        now.plus_millis(self.io_timeout.millis())
    }

    fn read_own(&self, id: OpId, size: SectorSize, now: MonoTime) -> Op {
        Op {
            id,
            place: Place::Lockspace,
            sector_size: size,
            action: Action::Read { first: self.host.delta_sector(), count: 1 },
            deadline: self.deadline(now),
            doubt_ms: 0,
        }
    }

    fn write_own(
        &self,
        id: OpId,
        size: SectorSize,
        leader: RawLeader,
        bitmap: Bitmap,
        deadline: MonoTime,
    ) -> Op {
        Op {
            id,
            place: Place::Lockspace,
            sector_size: size,
            action: Action::Write {
                sector: self.host.delta_sector(),
                content: Content::Delta { leader, bitmap },
            },
            deadline,
            doubt_ms: self.io_timeout.doubt_ms(self.fire),
        }
    }

    /// Our record in what was read, unverified.
    fn own_record(&self, result: Result<View<'_>, IoFailure>) -> Result<RawLeader, IoFailure> {
        let sector = result?.sector(self.host.delta_sector()).ok_or(IoFailure::Short)?;
        Ok(RawLeader::from_sector(sector))
    }

    /// The checks of disk-format.md 9.1, then that the record states the size it was read with: otherwise it is another host's
    /// sector, found with sizes that record 1 wrongly claims (disk-format.md 15, 9).
    fn check(&self, record: &RawLeader, geometry: Geometry) -> Result<(), LeaderError> {
        verify::delta(record, Some(&self.lockspace), Purpose::Use)?;
        let found = record.sector_size.get();
        if found == geometry.sector().bytes() { Ok(()) } else { Err(LeaderError::SectorSize { found }) }
    }
}
