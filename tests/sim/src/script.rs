//! Whole worlds with a plan: nothing goes wrong by chance, and what does go wrong is said by the test.

use crate::clients::Manner;
use crate::clock::{Micros, SECOND};
use crate::event::Io;
use crate::host::{JobKey, Path};
use crate::world::{Event, World};

impl World {
    /// Goes on until this is so, or until this time. Returns whether it is so.
    pub fn run_until(&mut self, end: Micros, so: impl Fn(&Self) -> bool) -> bool {
        while !so(self) {
            let void = |event: &Event| matches!(event, Event::Deadline { io } if !self.ios.contains_key(io));
            match self.queue.next(void) {
                Some((at, event)) if at <= end && self.checks.violations.is_empty() => {
                    self.now = at;
                    self.checks.time_is(at);
                    self.happen(event);
                }
                _ => return false,
            }
        }
        true
    }

    /// Lets everything happen up to this moment.
    ///
    /// # Panics
    /// Something is violated before.
    pub fn run_to(&mut self, time: Micros) {
        self.at(time, Event::Script);
        assert!(self.run_until(time, |w| w.now >= time), "{:?}", self.checks.violations);
    }

    /// Who holds a resource exclusively, as a process that lives, waits for nothing, and may be sent any signal: the position of its host, and the process.
    #[must_use]
    pub fn who_holds(&self, resource: u8) -> Option<(usize, i32)> {
        let holder = self.checks.holder(resource)?;
        let host = self.hosts.iter().position(|h| h.id == holder.host)?;
        let process = self.hosts[host].processes.get(&holder.pid)?;
        let plain = process.manner == Manner::default();
        (process.alive && !process.busy && plain).then_some((host, holder.pid))
    }

    /// The process keeps what it holds, and no signal ends it.
    pub fn clings(&mut self, host: usize, pid: i32) {
        if let Some(process) = self.hosts[host].processes.get_mut(&pid) {
            process.unkillable = true;
            process.serial += 1;
        }
    }

    /// The host's way to a disk hangs from now on.
    pub fn cut(&mut self, host: usize, disk: u8) {
        let until = self.now + 1_000_000 * SECOND;
        self.hosts[host].paths[usize::from(disk)] = Path::Hangs { until };
    }

    /// The host's way to a disk is back. What hung on it goes on hanging.
    pub fn mend(&mut self, host: usize, disk: u8) {
        self.hosts[host].paths[usize::from(disk)] = Path::Good;
    }

    /// Its daemon stands still from now on, for that long.
    pub fn freeze(&mut self, host: usize, long: Micros) {
        self.stall(host, None, long);
    }

    /// Its wdmd is killed.
    pub fn kill_wdmd(&mut self, host: usize) {
        self.wd_kill(host);
    }

    /// Whether it has power.
    #[must_use]
    pub fn is_up(&self, host: usize) -> bool {
        self.hosts[host].up
    }

    /// Its wdmd lets clients onto a host that one which has ended is going to have reset.
    pub fn old_wdmd(&mut self, host: usize) {
        self.hosts[host].old_wdmd = true;
    }

    /// Its daemon crashes, and another one starts a second later. Its processes go on.
    pub fn crash(&mut self, host: usize) {
        self.end_daemon(host, "crashes");
        let epoch = self.hosts[host].epoch;
        self.at(self.now + SECOND, Event::Restart { host, epoch });
    }

    /// Whether it is reading the records of hosts.
    #[must_use]
    pub fn looks(&self, host: usize) -> bool {
        self.flying().any(|io| io.host == host && matches!(io.job, JobKey::Scan(_)))
    }

    /// What it is reading of the records of hosts is as it is on the disk now: the read takes so long.
    pub fn sees_now(&mut self, host: usize) {
        let look = |io: &Io| io.host == host && matches!(io.job, JobKey::Scan(_));
        let looks: Vec<u64> = self.ios.iter().filter(|(_, io)| look(io)).map(|(io, _)| *io).collect();
        for io in looks {
            self.sample(io, 0, self.hosts.len() as u64);
        }
    }

    /// The second that the host's last renewal on the disk carries, by its own clock, and what that clock shows now.
    #[must_use]
    pub fn renewal(&self, host: usize, disk: u8) -> (u64, u64) {
        let delta = crate::layout::delta_on(&self.disk, disk, self.hosts[host].claims);
        (delta.timestamp.get(), self.hosts[host].clock.at(self.now).secs())
    }
}
