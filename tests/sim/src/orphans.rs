//! Leases that outlive their processes: asked for, adopted, and released without one.
//!
//! Nobody holds an orphan as far as the checks are concerned: nothing on its host uses it. What it is for is that others are kept out,
//! and that an adopter gets what the checks demand of every grant.

use crate::clients::Asked;
use crate::layout;
use crate::world::World;
use sanlock_manager::{Command, ConnId, OrphanUse, ReleaseWhat, Target};

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

    /// Counts what the daemon says of orphans.
    pub(crate) fn heard(&mut self, text: &str) {
        self.checks.marks.orphaned += u64::from(text.ends_with("is an orphan now"));
    }
}
