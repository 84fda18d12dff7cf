//! Leases that outlive their processes: asked for, adopted, and released without one.
//!
//! Now and then an administrator has them count (USED_BY_ORPHANS): then something that no process stands for may be using them. The
//! checks take an orphan for a hold of its host ([`crate::checks`]): nobody else may get it while that host lives.

use crate::clients::Asked;
use crate::layout;
use crate::sabotage::Sabotage;
use crate::world::World;
use sanlock_lease::text::ResourceSpec;
use sanlock_manager::{Command, ConnId, Event as Told, OrphanUse, ReleaseWhat, Setting, Target, Work};

impl World {
    /// What an acquire is to do about an orphan.
    pub(crate) fn orphan_use(&mut self) -> OrphanUse {
        if self.settings.persistent_per_mille == 0 {
            return OrphanUse::Refuse;
        }
        match self.dice.between(0, 9) {
            0..=4 => OrphanUse::Adopt,
            5 => OrphanUse::Only,
            _ => OrphanUse::Refuse,
        }
    }

    /// Whether a process without a lease gives up orphans now, rather than acquire.
    pub(crate) fn releases_orphans(&mut self) -> bool {
        let often = if self.calm { 300 } else { 50 };
        self.settings.persistent_per_mille > 0 && self.dice.per_mille(often)
    }

    /// It gives up those of one lockspace.
    pub(crate) fn release_orphans(&mut self, host: usize, pid: i32, conn: ConnId) {
        let disk = u8::try_from(self.dice.any() % u64::from(self.settings.disks)).unwrap_or(0);
        let all = self.dice.per_mille(700);
        let mut here = self.settings.all_resources().filter(|r| layout::disk_of(*r) == disk);
        let name = here.next().filter(|_| !all).map(|r| self.spec_of(host, r).name);
        let what = ReleaseWhat::Orphans { lockspace: layout::lockspace(disk), name };
        let command = Command::Release { target: Target::Own, what };
        self.ask(host, conn, Asked::Orphans { pid }, command);
        self.wait_for_reply(host, pid);
    }

    /// How many there were.
    pub(crate) fn orphans_replied(&mut self, host: usize, pid: i32, found: i32) {
        self.checks.marks.orphans_released += u64::try_from(found).unwrap_or(0);
        let after = self.pause_before_acquire();
        self.answered(host, pid, after);
    }

    /// The manager has taken an order to release orphans: what it does not keep any more is an orphan no more.
    pub(crate) fn orphans_accepted(&mut self, host: usize) {
        let id = self.hosts[host].id;
        for resource in self.checks.orphans_of(id) {
            if !self.keeps_orphan(host, resource) {
                self.checks.orphan_over(resource, id);
            }
        }
    }

    fn keeps_orphan(&self, host: usize, resource: u8) -> bool {
        let daemon = self.hosts[host].daemon.as_ref();
        let mut orphans =
            daemon.into_iter().flat_map(|d| d.manager.resources()).filter(|(_, r)| r.is_orphan());
        orphans.any(|(_, r)| self.resource_of(&r.spec.disks) == Some(resource))
    }

    /// What the daemon says of orphans: from then on it keeps what a process has left behind.
    pub(crate) fn heard(&mut self, host: usize, text: &str) {
        let Some(names) = text.strip_suffix(" is an orphan now") else { return };
        let Some(daemon) = self.hosts[host].daemon.as_ref() else { return };
        let called = |spec: &ResourceSpec| format!("{}:{}", spec.lockspace, spec.name) == names;
        let found = daemon.manager.resources().find(|(_, r)| called(&r.spec));
        let held = found.and_then(|(_, r)| match &r.work {
            Work::Held { held, .. } => Some((self.resource_of(&r.spec.disks)?, *held)),
            _ => None,
        });
        let Some((resource, held)) = held else { return };
        self.say(|w| format!("{:?} keeps {resource} as an orphan", w.hosts[host].id));
        let (writer, life) = (self.writer(host), self.life_of(host));
        let covered = self.hosts[host].watchdog.covers(layout::disk_of(resource));
        self.checks.orphaned(resource, writer, life, &held, covered, &self.disk);
        if self.sabotaged(Sabotage::OrphansGivenUp) {
            let lockspace = layout::lockspace(layout::disk_of(resource));
            let what = ReleaseWhat::Orphans { lockspace, name: None };
            // On the connection of some process, which is asked whether it is registered and nothing else.
            let conn = self.hosts[host].processes.values().find_map(|p| p.conn);
            if let Some(conn) = conn {
                self.tell_front(
                    host,
                    conn,
                    Told::Command { conn, command: Command::Release { target: Target::Own, what } },
                );
            }
        }
    }

    /// Now and then orphans are to count in a lockspace, or not to count any more.
    pub(crate) fn flag_orphans(&mut self, host: usize, disk: u8) {
        let often = if self.calm { 0 } else { self.settings.orphans_count_per_mille };
        if self.settings.orphans_count_per_mille == 0 {
            return;
        }
        let id = self.hosts[host].id;
        let (on, set) = (self.dice.per_mille(often), self.checks.orphans_count(id, disk));
        if on == set || (set && !self.calm && self.dice.per_mille(900)) {
            return;
        }
        let Some(conn) = self.connect(host, None) else { return };
        if !on {
            self.checks.orphans_flag(id, disk, false, true);
        }
        let told = on && !self.sabotaged(Sabotage::OrphansUncounted);
        let setting = Some(Setting::UsedByOrphans(told));
        let command = Command::SetConfig { lockspace: layout::lockspace(disk), setting };
        self.ask(host, conn, Asked::UsedByOrphans { disk, on }, command);
    }

    /// It is as the administrator wants it.
    pub(crate) fn orphans_flagged(&mut self, host: usize, disk: u8, on: bool) {
        let covered = self.hosts[host].watchdog.covers(disk);
        let id = self.hosts[host].id;
        self.checks.orphans_flag(id, disk, on, covered);
    }
}
