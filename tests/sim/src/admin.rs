//! The administrator: sees to it that every lockspace is joined, and says what counts there.

use crate::clients::Asked;
use crate::clock::SECOND;
use crate::layout;
use crate::world::{Event, World};
use sanlock_manager::{Command, Setting};

impl World {
    /// Now and then something uses a lockspace that the daemon does not know.
    fn flag(&mut self, host: usize, disk: u8) {
        let on = !self.calm && self.dice.per_mille(30);
        let id = self.hosts[host].id;
        let set = self.checks.has_used_flag(id, disk);
        if on == set || (set && !self.calm && self.dice.per_mille(700)) {
            return;
        }
        if !on {
            self.checks.used_flag(id, disk, false);
        }
        let setting = Some(Setting::Used(on));
        if let Some(conn) = self.connect(host, None) {
            let command = Command::SetConfig { lockspace: layout::lockspace(disk), setting };
            self.ask(host, conn, Asked::Used { disk, on }, command);
        }
    }

    /// The io timeout that a lockspace is to be joined with: 0, the daemon's own, or some other one that goes with the fire timeout.
    pub(crate) fn timeout_to_join_with(&mut self) -> u32 {
        if !self.dice.per_mille(self.settings.join_timeouts_per_mille) {
            return 0;
        }
        let secs = self.dice.between(self.settings.shortest_io_timeout(), self.settings.io_timeout.secs());
        u32::try_from(secs).unwrap_or(0)
    }

    /// The administrator sees to it that every lockspace is joined.
    pub(crate) fn admin(&mut self, host: usize) {
        let epoch = self.hosts[host].epoch;
        let next = if self.calm { 3 * SECOND } else { self.dice.spread(SECOND / 2, 30 * SECOND) };
        self.at(self.now + next, Event::Admin { host, epoch });
        for disk in 0..self.settings.disks {
            self.flag(host, disk);
            self.flag_orphans(host, disk);
            let known = self.hosts[host].daemon.as_ref().is_none_or(|d| d.lockspace_on(disk).is_some());
            if known && !self.dice.per_mille(20) {
                continue;
            }
            let spec = layout::lockspace_spec(disk, self.hosts[host].claims);
            let asynchronous = self.dice.per_mille(500);
            let io_timeout = self.timeout_to_join_with();
            self.administer(host, Command::AddLockspace { spec, io_timeout, asynchronous });
        }
        self.spawn(host);
    }
}
