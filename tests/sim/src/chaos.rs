//! Larger faults: lost paths, pauses, crashes, cut power, leaving. And their end.

use crate::clock::SECOND;
use crate::host::{Daemon, Membership, Path, Stage};
use crate::layout;
use crate::world::{Event, World};
use sanlock_lease::geometry::HostId;

impl World {
    /// One larger fault, and the time of the next.
    pub(crate) fn chaos(&mut self) {
        if self.calm {
            return;
        }
        let mean = self.settings.chaos_mean_secs * SECOND;
        let next = self.dice.spread(mean / 8 + 1, mean * 4);
        self.at(self.now + next, Event::Chaos);
        let host = self.victim();
        if !self.hosts[host].up {
            return;
        }
        if self.dice.per_mille(600) {
            self.cling(host);
        }
        let dead_secs =
            self.hosts[host].io_timeout.host_dead_secs(sanlock_lease::timing::WatchdogFire::DEFAULT);
        let long = self.dice.spread(SECOND / 10, dead_secs * 3 / 2 * SECOND);
        if self.hosts[host].reference {
            // It survives little (see its module), but it may lose power for good.
            if self.dice.per_mille(30) {
                self.say(|w| format!("{:?} (reference) loses power", w.hosts[host].id));
                self.reset(host);
            }
            return;
        }
        match self.dice.between(0, 9) {
            0..=2 => {
                let until = self.now + long;
                let hangs = self.dice.per_mille(700);
                self.say(|w| format!("{:?} loses its path for {long} us, hangs {hangs}", w.hosts[host].id));
                self.hosts[host].path = if hangs { Path::Hangs { until } } else { Path::Fails { until } };
            }
            3..=5 => self.pause(host, long),
            6 => self.crash_daemon(host),
            7 => {
                self.say(|w| format!("{:?} loses power", w.hosts[host].id));
                self.reset(host);
            }
            8 => self.leave(host),
            _ => self.kill_a_process(host),
        }
    }

    /// A host that holds something, if there is one, half of the time.
    fn victim(&mut self) -> usize {
        let last = self.hosts.len() - 1;
        let any = usize::try_from(self.dice.between(0, last as u64)).unwrap_or(0);
        let holder = self.checks.holder(0).map(|h| h.host);
        let holding = self.hosts.iter().position(|h| Some(h.id) == holder);
        holding.filter(|_| self.dice.per_mille(500)).unwrap_or(any)
    }

    /// Its processes keep what they hold, until they are killed or for a long time.
    fn cling(&mut self, host: usize) {
        for resource in 0..self.settings.resources {
            if matches!(self.hosts[host].resources[usize::from(resource)].stage, Stage::Held(_)) {
                self.hosts[host].resources[usize::from(resource)].serial += 1;
                let hold = self.dice.spread(10 * SECOND, 600 * SECOND);
                self.turn_after(host, resource, hold);
            }
        }
    }

    fn pause(&mut self, host: usize, long: u64) {
        let h = &mut self.hosts[host];
        if h.daemon == Daemon::Runs {
            h.daemon = Daemon::Paused;
            let epoch = h.epoch;
            self.say(|w| format!("{:?} daemon stands still for {long} us", w.hosts[host].id));
            self.at(self.now + long, Event::Resume { host, epoch });
        }
    }

    fn leave(&mut self, host: usize) {
        let h = &self.hosts[host];
        if h.runs() && matches!(h.membership, Membership::Joined { ending: false, .. }) {
            self.say(|w| format!("{:?} leaves", w.hosts[host].id));
            self.end_membership(host, true);
        }
    }

    fn kill_a_process(&mut self, host: usize) {
        for resource in 0..self.settings.resources {
            if let Some(serial) = self.hosts[host].resources[usize::from(resource)].process {
                self.process_exit(host, resource, serial);
            }
        }
    }

    /// The storm is over: paths are back, daemons go on, what would hang for ever is ended by a reset.
    pub(crate) fn calm_down(&mut self) {
        self.calm = true;
        for host in 0..self.hosts.len() {
            self.hosts[host].path = Path::Good;
            self.resume(host);
            let stuck = self.ios.values().any(|io| io.host == host && !io.completes);
            if stuck && self.hosts[host].up {
                self.reset(host);
            }
            for resource in 0..self.settings.resources {
                // Whoever clings to a lease lets go, and processes that nobody could kill end.
                self.turn_after(host, resource, SECOND);
                let h = &self.hosts[host];
                let ending = matches!(h.membership, Membership::Joined { ending: true, .. });
                if let Some(serial) = h.resources[usize::from(resource)].process.filter(|_| ending) {
                    let epoch = h.epoch;
                    self.at(self.now + SECOND, Event::ProcessExit { host, epoch, resource, serial });
                }
            }
        }
    }

    /// L1, L3, L4: after the storm every host had its turn on every resource.
    pub(crate) fn progress_made(&mut self) {
        if !self.checks.violations.is_empty() {
            return;
        }
        for resource in 0..self.settings.resources {
            if self.is_stuck(resource) {
                self.checks.marks.stuck += 1;
                continue;
            }
            for h in &self.hosts {
                let r = &h.resources[usize::from(resource)];
                let part = h.runs() && matches!(h.membership, Membership::Joined { ending: false, .. });
                if part && r.granted_in_calm == 0 {
                    let what = format!(
                        "L1/L3/L4: {:?} never got resource {resource} in the calm, stage {:?}",
                        h.id,
                        stage_name(&r.stage)
                    );
                    self.checks.violations.push(what);
                }
            }
        }
        for host in 0..self.hosts.len() {
            let h = &self.hosts[host];
            if !h.reference && !matches!(h.membership, Membership::Joined { .. }) {
                let what = format!("L: {:?} is not joined at the end: {:?}", h.id, h.membership);
                self.checks.violations.push(what);
            }
        }
    }

    /// A leader rolled back by more than one version: every acquire ends with -212 (rule R9) until the lease is initialised
    /// again.
    fn is_stuck(&self, resource: u8) -> bool {
        let leader = layout::leader_on(&self.disk, resource);
        let hosts = (1..=leader.num_hosts.get()).filter_map(HostId::new);
        let top = hosts.map(|h| layout::block_on(&self.disk, resource, h).dblock.lver.get()).max();
        top.is_some_and(|top| top > leader.lver.get() + 1)
    }
}

fn stage_name(stage: &Stage) -> &'static str {
    match stage {
        Stage::Idle => "idle",
        Stage::Acquiring => "acquiring",
        Stage::Held(_) => "held",
        Stage::Releasing(_) => "releasing",
        Stage::Settling(_) => "settling",
        Stage::Later(_) => "later",
    }
}
