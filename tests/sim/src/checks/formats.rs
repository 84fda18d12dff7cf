//! Leases that are formatted anew: nobody is granted one that is not there to the end on a majority of its disks (F1), and what was known
//! of the former one counts no more.

use super::{Checks, Resource};
use crate::disk::Area;

impl Checks {
    /// Somebody begins to format a resource on all its disks.
    pub fn format_begins(&mut self, resource: u8, legs: u8) {
        self.unformatted.insert(resource, (1 << legs) - 1);
        self.old_lease.insert(resource);
    }

    /// Whether it was not formatted to the end.
    #[must_use]
    pub fn is_unformatted(&self, resource: u8) -> bool {
        self.unformatted.contains_key(&resource)
    }

    /// The first sector is gone from every disk: from now on there is no lease, and no version of it that comes back.
    pub fn lease_gone(&mut self, resource: u8) {
        if !self.old_lease.remove(&resource) {
            return;
        }
        self.resources.insert(resource, Resource::default());
        self.values_forgotten(resource);
        self.requests_forgotten(resource);
    }

    /// A disk of it is formatted to the end.
    pub fn formatted(&mut self, area: Area) {
        let Area::Resource(resource, leg) = area else { return };
        let Some(left) = self.unformatted.get_mut(&resource) else { return };
        *left &= !(1 << leg);
        if *left == 0 {
            self.unformatted.remove(&resource);
        }
    }

    /// F1: somebody is granted a lease. While the old one is there on enough disks, that is the one.
    pub(super) fn granted_whole(&mut self, resource: u8, legs: u8) {
        let Some(left) = self.unformatted.get(&resource).copied() else { return };
        let old = self.old_lease.contains(&resource);
        self.marks.granted_unformatted += 1;
        let whole = u32::from(legs) - left.count_ones();
        if !old && whole <= u32::from(legs) / 2 {
            self.violated(format!(
                "F1: resource {resource} is granted, of its {legs} disks {whole} are formatted"
            ));
        }
    }
}
