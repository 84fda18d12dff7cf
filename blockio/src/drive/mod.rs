//! The two drivers of step machines over engines: [`Driver`], any number of machines on one thread, and [`run_blocking`] for
//! one-shot tools, which is a `Driver` with one machine and a thread that waits for it.
//!
//! Both keep the rules of driving of [`sanlock_lease::machine`]: operations of one step are submitted at once and run side
//! by side; one that is not complete by its deadline is reported as timed out and stays outstanding with its buffer; its
//! completion is reported as late. What a driver adds is the way from a [`Place`] to a disk and byte offset, memory for
//! the transfers, and the knowledge of which writes of a finished machine may still land.

mod blocking;
mod buffers;
mod doubt;
mod event;
mod lane;
mod lanes;
mod report;
mod room;

#[cfg(test)]
mod tests;

pub use blocking::{Finished, run_blocking};
pub use buffers::keep_ready;
pub use event::{Driver, EngineFactory, MACHINES_MAX};
pub use lane::{IDLE_ENGINE_LINGER_MS, LANES_MAX, OPS_WAITING_MAX};
pub use report::{EnvSource, Report, RunId, Spare};
pub use room::{BYTES_IN_FLIGHT_MAX, OPS_IN_FLIGHT_MAX, SharedRoom};

use std::sync::Arc;

use nix::time::{ClockId, clock_gettime};
use sanlock_lease::limits::DISKS_MAX;
use sanlock_lease::machine::Place;
use sanlock_lease::timing::MonoTime;

use crate::disk::Disk;

/// Now, on the clock of every deadline and age (lease-algorithms.md 1.1): `CLOCK_BOOTTIME`, which counts while the machine sleeps. Other
/// hosts do not wait for one that does (decision 23).
#[must_use]
pub fn monotonic_now() -> MonoTime {
    // The clock exists on every Linux, so the call cannot fail.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(MonoTime::default(), |time| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        let millis = u64::try_from(time.tv_nsec()).unwrap_or(0) / 1_000_000;
        MonoTime::from_secs(seconds).plus_millis(millis)
    })
}

/// Where an area lies.
#[derive(Clone, Debug)]
pub struct Area {
    /// The open disk, or the errno (positive) its open failed with.
    pub disk: Result<Arc<Disk>, i32>,
    /// Bytes from the start of the disk to the start of the area.
    pub offset: u64,
}

/// The areas a machine addresses. A place that is not filled answers `NotOpen`.
#[derive(Clone, Debug, Default)]
pub struct Areas {
    lockspace: Option<Area>,
    resource: [Option<Area>; DISKS_MAX],
}

impl Areas {
    /// None at all.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With the lockspace's area.
    #[must_use]
    pub fn with_lockspace(mut self, area: Area) -> Self {
        self.lockspace = Some(area);
        self
    }

    /// With the resource's areas, in the order of its disks; areas beyond the fourth are dropped.
    #[must_use]
    pub fn with_resource(mut self, areas: impl IntoIterator<Item = Area>) -> Self {
        for (place, area) in self.resource.iter_mut().zip(areas) {
            *place = Some(area);
        }
        self
    }

    /// The disks that are open.
    pub(crate) fn into_disks(self) -> impl Iterator<Item = Arc<Disk>> {
        self.lockspace
            .into_iter()
            .chain(self.resource.into_iter().flatten())
            .filter_map(|area| area.disk.ok())
    }

    /// The area at `place`.
    #[must_use]
    pub fn get(&self, place: Place) -> Option<&Area> {
        match place {
            Place::Lockspace => self.lockspace.as_ref(),
            Place::Resource(disk) => self.resource.get(usize::from(disk))?.as_ref(),
        }
    }
}
