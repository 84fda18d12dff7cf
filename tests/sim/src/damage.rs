//! Faults of a disk as such, the same for all hosts: it is lost for a while, comes back with old content, or fails for ever.
//!
//! # Old content
//!
//! A leg of a lease on three disks may come back as it was at some earlier time, as after the restore of a mirror leg. It does so
//! only while the two others hold the same, sector by sector, and no write to the lease is in flight: then everything that was ever
//! acknowledged by a majority still is on one. That is what "a minority of the disks may be old" means; a disk that missed a write
//! while its path was lost is as old as a restored one. Without the condition two owners follow, as two sabotages show
//! ([`Sabotage::OldDisks`], [`Sabotage::OldBesideStale`]): a ballot that reads two disks that both forget finds nothing to adopt.
//!
//! Lockspaces, leases on one disk (assumption A1 of lease-algorithms.md 13.2) and on two (where no minority can be spared) never go
//! back. Nor do value blocks, which lie on the first disk alone and have nothing that makes up for them.
//!
//! # Failed for ever
//!
//! One disk without a lockspace answers every operation with an error from some moment on, also in the calm. (One that hangs for ever
//! instead keeps what may still land on it outstanding, and with it the leases that were worked on: safe, but no progress.)
//!
//! # Named by mistake
//!
//! Of leases on three disks none of which fails for ever some hosts name another lease's place, or an empty one, for the second or the third
//! ([`crate::settings::Settings::wrong_legs_per_mille`], `Host::wrong_leg`): to them that disk is lost. They may read there and never write.

use crate::clock::Micros;
use crate::disk::{Area, Written};
use crate::host::Path;
use crate::layout;
use crate::sabotage::Sabotage;
use crate::world::World;
use sanlock_lease::limits::LVB_SECTOR;
use std::rc::Rc;

/// Disks of a lease one of which may be old.
const LEGS_FOR_OLD: u8 = 3;

/// Longer than any run.
const FOREVER: Micros = 1 << 50;

/// What the leases on a disk once held.
pub(crate) type Copy = Vec<(Area, Written)>;

impl World {
    /// Something happens to a disk.
    pub(crate) fn damage(&mut self, long: Micros) {
        let last = u64::from(self.settings.all_disks()) - 1;
        let disk = u8::try_from(self.dice.between(0, last)).unwrap_or(0);
        let may_die = self.settings.dead_disk && self.settings.legs == LEGS_FOR_OLD;
        let whole = self.formatting.is_none()
            && self.settings.all_resources().all(|r| !self.checks.is_unformatted(r));
        let forever = may_die && whole && self.dead_disk.is_none() && self.dice.per_mille(200);
        let disk = if forever { self.settings.all_disks() - 1 } else { disk };
        match self.dice.between(0, 9) {
            _ if forever => {
                self.say(|_| format!("disk {disk} fails for ever"));
                self.checks.marks.disks_dead += 1;
                self.dead_disk = Some(disk);
                for host in 0..self.hosts.len() {
                    self.set_path(host, disk, Path::Fails { until: FOREVER });
                }
            }
            0..=2 => {
                let until = self.now + long;
                let hangs = self.dice.per_mille(500);
                self.say(|_| format!("disk {disk} is lost for {long} us, hangs {hangs}"));
                self.checks.marks.disks_lost += 1;
                for host in 0..self.hosts.len() {
                    let path = if hangs { Path::Hangs { until } } else { Path::Fails { until } };
                    self.set_path(host, disk, path);
                }
            }
            3 => self.copy_all(),
            _ if self.copies.is_empty() => self.copy_all(),
            _ if self.sabotaged(Sabotage::OldDisks) => {
                for disk in 0..self.settings.all_disks() - 1 {
                    self.back_to_old(disk);
                }
            }
            _ if self.sabotaged(Sabotage::OldBesideStale) => self.back_to_old(disk),
            _ => {
                let all = self.settings.all_disks();
                let fit = (0..all).map(|n| (disk + n) % all).find(|disk| self.may_be_old(*disk));
                fit.into_iter().for_each(|disk| self.back_to_old(disk));
            }
        }
    }

    /// The way of a host to a disk, unless the disk is dead.
    pub(crate) fn set_path(&mut self, host: usize, disk: u8, path: Path) {
        let dead = self.dead_disk == Some(disk);
        let path = if dead { Path::Fails { until: FOREVER } } else { path };
        self.hosts[host].paths[usize::from(disk)] = path;
    }

    /// The storm is over.
    pub(crate) fn good_paths(&mut self, host: usize) {
        for disk in 0..layout::DISKS_MAX {
            self.set_path(host, disk, Path::Good);
        }
    }

    /// The legs on a disk of leases that can spare one.
    fn spare_legs(&self, disk: u8) -> Vec<Area> {
        let legs = self.settings.legs;
        let all =
            self.settings.all_resources().flat_map(|r| (0..legs).map(move |leg| Area::Resource(r, leg)));
        all.filter(|area| legs == LEGS_FOR_OLD && area.disk() == disk).collect()
    }

    fn copy_all(&mut self) {
        for disk in 0..self.settings.all_disks() {
            let areas = self.spare_legs(disk).into_iter();
            let whole = |area: &Area| match area {
                Area::Resource(resource, _) => !self.checks.is_unformatted(*resource),
                Area::Lockspace(_) => true,
            };
            let copy =
                areas.filter(whole).filter_map(|area| Some((area, self.disk.area(area)?.clone()))).collect();
            self.copies.insert(disk, copy);
        }
    }

    /// Whether all that was ever acknowledged would still be on a majority.
    fn may_be_old(&self, disk: u8) -> bool {
        self.spare_legs(disk).iter().all(|area| {
            let Area::Resource(resource, lost) = *area else { return false };
            let others: Vec<u8> = (0..self.settings.legs).filter(|leg| *leg != lost).collect();
            let quiet = (0..self.hosts.len()).all(|host| self.resource_writes(host, resource) == 0);
            quiet && others.windows(2).all(|pair| self.same(resource, pair))
        })
    }

    fn same(&self, resource: u8, legs: &[u8]) -> bool {
        let sectors = |leg: &u8| {
            let area = self.disk.area(Area::Resource(resource, *leg));
            let all = area.map(|a| a.iter().filter(|(sector, _)| **sector != LVB_SECTOR));
            all.map(|all| all.map(|(sector, bytes)| (*sector, Rc::clone(bytes))).collect::<Vec<_>>())
        };
        legs.first().map(sectors) == legs.last().map(sectors)
    }

    /// A disk has the content of an earlier time again.
    fn back_to_old(&mut self, disk: u8) {
        for (area, mut sectors) in self.copies.get(&disk).cloned().unwrap_or_default() {
            let Some(now) = self.disk.area(area) else { continue };
            sectors.remove(&LVB_SECTOR);
            if let Some(value) = now.get(&LVB_SECTOR) {
                sectors.insert(LVB_SECTOR, Rc::clone(value));
            }
            let differs = now.iter().any(|(sector, bytes)| sectors.get(sector) != Some(bytes));
            self.checks.marks.disks_old += u64::from(differs);
            self.say(|_| format!("disk {disk}: {area:?} is as it once was, differs {differs}"));
            self.disk.restore(area, sectors);
        }
        for resource in self.settings.all_resources() {
            self.checks.content_changed(resource, &self.disk);
        }
    }
}
