//! Larger faults: lost paths, threads and daemons that stand still, crashes, cut power, leaving, shutting down. And their end.

use crate::clock::{Micros, SECOND};
use crate::daemon::Thread;
use crate::fault::{Fault, SHARES};
use crate::host::Path;
use crate::layout;
use crate::peer::{Membership, Stage};
use crate::sabotage::Sabotage;
use crate::vm::Standing;
use crate::world::{Event, Io, World};
use sanlock_lease::geometry::HostId;
use sanlock_lease::machine::Content;
use sanlock_manager::{Command, Event as Told};

impl World {
    /// The time of the next fault of this kind. The first one may come at once.
    pub(crate) fn chaos_later(&mut self, fault: Fault, first: bool) {
        let shares = self.settings.faults.of(fault);
        if shares == 0 || self.settings.chaos_mean_secs == 0 {
            return;
        }
        let mean = self.settings.chaos_mean_secs * SECOND * SHARES / shares;
        let next = self.dice.spread(mean / 8 + 1, mean * 4);
        let next = if first { self.dice.between(SECOND, SECOND + next) } else { next };
        self.at(self.now + next, Event::Chaos { fault });
    }

    /// One larger fault.
    pub(crate) fn chaos(&mut self, fault: Fault) {
        if self.calm {
            return;
        }
        self.chaos_later(fault, false);
        let host = self.victim();
        if !self.hosts[host].up {
            return;
        }
        if self.dice.per_mille(800) {
            self.cling(host);
        }
        let io_timeout = self.hosts[host].longest_io_timeout();
        let dead_secs = io_timeout.host_dead_secs(self.hosts[host].fire);
        let fail_secs = io_timeout.renewal_fail_secs();
        let long = if self.dice.per_mille(500) {
            self.dice.spread(SECOND / 10, dead_secs * 3 / 2 * SECOND)
        } else {
            self.dice.between(fail_secs * SECOND, dead_secs * 3 / 2 * SECOND)
        };
        if self.hosts[host].is_reference() {
            // It survives little (see its module), but it may lose power for good.
            if self.dice.per_mille(30) {
                self.say(|w| format!("{:?} (reference) loses power", w.hosts[host].id));
                self.reset(host);
            }
            return;
        }
        if self.hosts[host].stopped_until > self.now {
            return;
        }
        self.suspend_for_a_moment(host);
        if self.hosts[host].stopped_until > self.now {
            return;
        }
        self.break_things(host);
        // To a lease on one disk most of them mean nothing.
        let often = if self.settings.legs > 1 { 1 } else { 10 };
        if self.dice.per_mille(self.settings.disk_faults_per_mille / often) {
            return self.damage(long);
        }
        // One fault of the watchdog in each boot, and a machine that stands still counts as one.
        if fault == Fault::Suspend && self.hosts[host].watchdog.faulted {
            return;
        }
        self.struck.count(fault);
        match fault {
            Fault::Unseen => self.rejoin_unseen(host),
            Fault::LosePath => self.lose_path(host, long),
            Fault::Freeze => self.stall(host, None, long),
            Fault::Stall => {
                let thread = self.some_thread(host);
                self.stall(host, Some(thread), long);
            }
            Fault::Crash => self.end_daemon(host, "crashes"),
            Fault::PowerCut => {
                self.say(|w| format!("{:?} loses power", w.hosts[host].id));
                self.reset(host);
            }
            Fault::Leave => self.leave(host),
            Fault::Shutdown => self.shut_down(host),
            Fault::EndProcess => self.end_a_process(host),
            Fault::VeryLate => self.hosts[host].very_late = true,
            Fault::WdFreeze => self.wd_fault(host, long, false),
            Fault::WdKill => self.wd_fault(host, long, true),
            Fault::FreezeAll => {
                // The whole machine stands still, but not its watchdog.
                self.stall(host, None, long);
                if !self.hosts[host].watchdog.faulted {
                    self.wd_freeze(host, long);
                }
            }
            Fault::Suspend => self.stop_machine(host, long, Standing::Neither),
            Fault::Starve => self.starve_a_holder(),
            _ => {} // small
        }
    }

    /// What some sabotage does now and then.
    fn break_things(&mut self, host: usize) {
        self.suspend(host);
        let own = self.hosts[host].claims;
        if self.sabotaged(Sabotage::FiresAtWill) {
            self.fire(host);
        }
        if self.sabotaged(Sabotage::CorruptUnseen) {
            let mut delta = layout::delta_on(&self.disk, 0, own);
            delta.owner_generation = (delta.owner_generation.get() + 1).into();
            delta.resource_name = layout::name("stranger").to_field();
            delta.seal();
            let content = Content::Leader(delta);
            let area = crate::disk::Area::Lockspace(0);
            self.disk.land(area, own.delta_sector(), &content);
            self.checks.time_is(self.now);
            self.checks.taken_by_stranger(0, own.delta_sector());
        }
    }

    /// A host that holds something, if there is one, most of the time.
    fn victim(&mut self) -> usize {
        let last = self.hosts.len() - 1;
        let any = usize::try_from(self.dice.between(0, last as u64)).unwrap_or(0);
        let holder = self.settings.all_resources().find_map(|r| self.checks.somebody_with(r));
        let holder = holder.map(|(host, _)| host);
        let holding = self.hosts.iter().position(|h| Some(h.id) == holder);
        holding.filter(|_| self.dice.per_mille(750)).unwrap_or(any)
    }

    /// Its processes keep what they hold, until they are killed or for a long time.
    fn cling(&mut self, host: usize) {
        let h = &self.hosts[host];
        let pids: Vec<i32> = h.processes.keys().copied().collect();
        let io_timeout = h.longest_io_timeout();
        let (fail_secs, dead_secs) = (io_timeout.renewal_fail_secs(), io_timeout.host_dead_secs(h.fire));
        for pid in pids {
            if !self.checks.held_by(self.hosts[host].id, pid).is_empty() {
                let hold = self.dice.between(fail_secs * SECOND, 3 * dead_secs * SECOND);
                self.turn_after(host, pid, hold);
            }
        }
        if self.hosts[host].is_reference() {
            for resource in 0..self.settings.resources {
                let hold = self.dice.spread(10 * SECOND, 600 * SECOND);
                self.peer_clings(host, resource, hold);
            }
        }
    }

    /// Somebody clings to a lease, and its host loses that disk until it is too late.
    fn starve_a_holder(&mut self) {
        let held = self.settings.all_resources().find_map(|r| Some((r, self.checks.somebody_with(r)?)));
        let Some((resource, (id, pid))) = held.filter(|(_, (_, pid))| *pid != 0) else { return };
        let Some(host) = self.hosts.iter().position(|h| h.id == id) else { return };
        self.cling(host);
        let (h, disk) = (&self.hosts[host], layout::disk_of(resource));
        let io_timeout = h.io_timeout_in(disk);
        let (fail_secs, dead_secs) = (io_timeout.renewal_fail_secs(), io_timeout.host_dead_secs(h.fire));
        let until = self.now + self.dice.between(fail_secs * SECOND, dead_secs * 2 * SECOND);
        let hangs = self.dice.per_mille(700);
        self.say(|_| format!("{id:?} loses disk {disk} under {pid}, hangs {hangs}"));
        let path = if hangs { Path::Hangs { until } } else { Path::Fails { until } };
        self.set_path(host, disk, path);
    }

    fn lose_path(&mut self, host: usize, long: Micros) {
        let until = self.now + long;
        let hangs = self.dice.per_mille(700);
        let all = self.dice.per_mille(300);
        let only = u8::try_from(self.dice.between(0, u64::from(self.settings.all_disks()) - 1)).unwrap_or(0);
        for disk in 0..self.settings.all_disks() {
            if all || disk == only {
                self.say(|w| {
                    format!("{:?} loses disk {disk} for {long} us, hangs {hangs}", w.hosts[host].id)
                });
                let path = if hangs { Path::Hangs { until } } else { Path::Fails { until } };
                self.set_path(host, disk, path);
            }
        }
    }

    /// Once for each boot.
    fn wd_fault(&mut self, host: usize, long: Micros, kill: bool) {
        if self.hosts[host].watchdog.faulted {
        } else if kill {
            self.wd_kill(host);
        } else {
            self.wd_freeze(host, long);
        }
    }

    fn some_thread(&mut self, host: usize) -> Thread {
        let workers: Vec<u64> =
            self.daemon(host).map(|d| d.workers.keys().copied().collect()).unwrap_or_default();
        let last = if self.settings.request_mean_secs > 0 { 5 } else { 4 };
        match self.dice.between(0, last) {
            5 => Thread::Asking,
            4 => Thread::Watchdog,
            0 => Thread::Front,
            1 => Thread::Resources,
            2 => Thread::Records,
            _ => {
                let at = usize::try_from(self.dice.any() % (workers.len().max(1) as u64)).unwrap_or(0);
                workers.get(at).map_or(Thread::Front, |ls| Thread::Lockspace(*ls))
            }
        }
    }

    fn leave(&mut self, host: usize) {
        let id = self.hosts[host].id;
        let disk = u8::try_from(self.dice.between(0, u64::from(self.settings.disks) - 1)).unwrap_or(0);
        let spec = layout::lockspace_spec(disk, self.hosts[host].claims);
        let (asynchronous, unused) = (self.dice.per_mille(500), self.dice.per_mille(200));
        self.say(|_| format!("{id:?} is asked to leave lockspace {disk}"));
        self.administer(host, Command::RemLockspace { spec, asynchronous, unused });
    }

    /// A host leaves, and while another one does not look it is back already.
    fn rejoin_unseen(&mut self, host: usize) {
        let other = usize::try_from(self.dice.any() % self.hosts.len() as u64).unwrap_or(0);
        if other == host || self.hosts[other].is_reference() {
            return;
        }
        self.leave(host);
        let renewal = self.hosts[host].longest_io_timeout().renewal_secs() * SECOND;
        let after = self.dice.between(renewal / 10, 2 * renewal);
        let epoch = self.hosts[other].epoch;
        self.at(self.now + after, Event::LooksAway { host: other, epoch, from: host });
    }

    /// The threads of its lockspaces stand still, and the host it does not see comes back.
    pub(crate) fn looks_away(&mut self, host: usize, from: usize) {
        if self.calm {
            return;
        }
        let lockspaces: Vec<u64> =
            self.daemon(host).map(|d| d.workers.keys().copied().collect()).unwrap_or_default();
        let renewal = self.hosts[host].longest_io_timeout().renewal_secs() * SECOND;
        for ls in lockspaces {
            let long = self.dice.between(renewal, 4 * renewal);
            self.stall(host, Some(Thread::Lockspace(ls)), long);
        }
        for disk in 0..self.settings.disks {
            let spec = layout::lockspace_spec(disk, self.hosts[from].claims);
            let io_timeout = self.timeout_to_join_with();
            self.administer(from, Command::AddLockspace { spec, io_timeout, asynchronous: true });
        }
    }

    fn shut_down(&mut self, host: usize) {
        if self.dice.per_mille(300) {
            let from = crate::daemon::Source::Thread(Thread::Front);
            return self.send(host, from, Thread::Front, crate::daemon::Message::told(Told::Signal));
        }
        let force = self.dice.per_mille(600);
        self.say(|w| format!("{:?} is asked to shut down, force {force}", w.hosts[host].id));
        self.administer(host, Command::ShutdownWait { force });
    }

    fn end_a_process(&mut self, host: usize) {
        let living: Vec<i32> =
            self.hosts[host].processes.iter().filter(|(_, p)| p.alive).map(|(pid, _)| *pid).collect();
        if let Some(pid) = living.first() {
            self.exit(host, *pid);
        }
    }

    /// Power is cut: processes end, what is in flight lands now or never.
    pub(crate) fn reset(&mut self, host: usize) {
        self.checks.marks.resets += 1;
        let in_flight: Vec<u64> =
            self.ios.iter().filter(|(_, io)| io.host == host).map(|(id, _)| *id).collect();
        for io in in_flight {
            if self.dice.per_mille(500) {
                self.land(io);
            }
            self.ios.remove(&io);
        }
        self.format_cut(host);
        let id = self.hosts[host].id;
        self.checks.reset(id);
        let loses_records = self.strikes(Fault::RecordsLost);
        let h = &mut self.hosts[host];
        h.epoch += 1;
        h.up = false;
        h.daemon = None;
        h.jobs.clear();
        h.processes.clear();
        h.watchdog = crate::wdmd::Watchdog::default();
        h.excused = 0;
        if loses_records {
            h.records.clear();
        }
        if !h.is_reference() {
            let after = self.dice.spread(SECOND, 120 * SECOND);
            self.at(self.now + after, Event::PowerOn { host });
        }
    }

    pub(crate) fn power_on(&mut self, host: usize) {
        let after = self.dice.spread(1, 10 * SECOND);
        let h = &mut self.hosts[host];
        h.up = true;
        let epoch = h.epoch;
        self.say(|w| format!("{:?} is up again", w.hosts[host].id));
        self.wd_start(host);
        self.at(self.now + after, Event::Restart { host, epoch });
        self.at(self.now + after + 1000, Event::Admin { host, epoch });
    }

    /// The storm is over: paths are back, daemons go on, what would hang for ever is ended by a reset.
    pub(crate) fn calm_down(&mut self) {
        self.calm = true;
        self.say(|_| "calm".to_owned());
        if self.settings.format_mean_secs > 0 {
            // What is in pieces does not wait for the next one of the storm.
            self.at(self.now + SECOND, Event::Formats);
        }
        for host in 0..self.hosts.len() {
            self.good_paths(host);
            self.hosts[host].very_late = false;
            let stalled: Vec<Thread> =
                self.daemon(host).map(|d| d.stalled.iter().copied().collect()).unwrap_or_default();
            self.wd_calm(host);
            self.resume(host, None);
            for thread in stalled {
                self.resume(host, Some(thread));
            }
            let stuck = self.ios.values().any(|io| io.host == host && (io.very_late || io.ends.is_none()));
            let lost = self.hosts[host].claims != self.hosts[host].id;
            if (stuck || lost) && self.hosts[host].up {
                self.reset(host);
            }
            self.let_go(host);
        }
        // Nobody has a host id or a lease again before its late write has ended (rule R3). To join and to have a turn takes as long as
        // ever after that.
        let rest = self.settings.calm_secs() - self.settings.io_timeout.host_dead_secs(self.settings.fire);
        self.end = self.end.max(self.last_write_ends() + rest * SECOND);
    }

    /// When the last write in flight has ended for good: after its completion it may be in doubt.
    fn last_write_ends(&self) -> Micros {
        let end = |io: &Io| {
            let clock = &self.hosts[io.host].clock;
            let seen = io.ends?;
            let doubt_ms = io.will_be_in_doubt().map_or(0, |_| io.doubt_ms);
            Some(clock.when(clock.at(seen).plus_millis(doubt_ms)).max(seen))
        };
        self.flying().filter(|io| io.is_write()).filter_map(end).max().unwrap_or(self.now)
    }

    /// Whoever clings to a lease lets go, and what nobody could kill ends.
    fn let_go(&mut self, host: usize) {
        if !self.hosts[host].up {
            return;
        }
        let (epoch, id) = (self.hosts[host].epoch, self.hosts[host].id);
        let all: Vec<(i32, bool, bool)> =
            self.hosts[host].processes.iter().map(|(pid, p)| (*pid, p.alive, p.conn.is_some())).collect();
        for (pid, alive, connected) in all {
            if !alive {
                self.at(self.now + SECOND, Event::DescendantEnds { host, epoch, pid });
            } else if !connected && !self.checks.held_by(id, pid).is_empty() {
                self.at(self.now + SECOND, Event::Exit { host, epoch, pid });
            } else if self.dice.per_mille(500) || self.has_killpath(host, pid) {
                self.at(self.now + 2 * SECOND, Event::Exit { host, epoch, pid });
            } else if self.is_idle(host, pid) {
                self.turn_after(host, pid, SECOND);
            }
        }
        for resource in 0..self.settings.resources {
            self.peer_clings(host, resource, SECOND);
        }
    }

    /// L1, L3, L4: after the storm every host had its turn on every resource.
    pub(crate) fn progress_made(&mut self) {
        if !self.checks.violations.is_empty() {
            return;
        }
        for resource in self.settings.all_resources() {
            if self.is_stuck(resource, None) {
                self.checks.marks.generations_fell += 1;
                continue;
            }
            let shared = self.settings.shared_per_mille > 0;
            let mut late: Vec<(HostId, &str)> = Vec::new();
            for h in self.hosts.iter().filter(|h| h.up) {
                if h.wrong_leg.is_some() && self.is_stuck(resource, h.wrong_leg) {
                    continue;
                }
                let got = |shared| h.granted_in_calm.get(&(resource, shared)).is_some_and(|n| *n > 0);
                if !got(false) && (!h.is_reference() || layout::disk_of(resource) == 0) {
                    late.push((h.id, "never got"));
                }
                if shared && !h.is_reference() && !got(true) {
                    late.push((h.id, "never shared"));
                }
            }
            for (id, never) in late {
                self.checks.violated(format!("L1/L3/L4: {id:?} {never} resource {resource} in the calm"));
            }
        }
        for host in 0..self.hosts.len() {
            let h = &self.hosts[host];
            let joined = match &h.peer {
                Some(peer) => !h.up || matches!(peer.membership, Membership::Joined { .. }),
                None => h.daemon.as_ref().is_some_and(|d| {
                    d.manager.lockspaces().filter(|(_, ls)| ls.usable()).count()
                        == usize::from(self.settings.disks)
                }),
            };
            if !joined {
                let what = format!("L: {:?} is not joined everywhere at the end", h.id);
                self.checks.violated(what);
            }
        }
    }

    /// The disks of a lease disagree for good, for everybody or for a host to which one of them is lost, or a late renewal brought back
    /// an old generation of the owner, which had no record of the newer one: then its leases of the newer generation stay (W14).
    fn is_stuck(&self, resource: u8, lost: Option<u8>) -> bool {
        let legs = self.settings.legs;
        // No majority agrees, and the disks that are left differ in what the highest version cannot decide: how many hosts count, or
        // the name.
        let dead = self.dead_disk;
        let lives = |leg: &u8| Some(layout::leg_disk(resource, *leg)) != dead && Some(*leg) != lost;
        let living: Vec<u8> = (0..legs).filter(lives).collect();
        let basis = |leg: u8| {
            let leader = layout::leader_on(&self.disk, resource, leg);
            (leader.num_hosts, leader.resource_name)
        };
        let differ = living.windows(2).any(|pair| basis(pair[0]) != basis(pair[1]));
        let in_force = layout::leader_in_force(&self.disk, resource);
        let Some(leader) = in_force.filter(|_| !(differ && living.len() < usize::from(legs))) else {
            return differ;
        };
        let Some(owner) = HostId::new(leader.owner_id.get()).filter(|_| leader.timestamp.get() != 0) else {
            return false;
        };
        let delta = layout::delta_on(&self.disk, layout::disk_of(resource), owner);
        delta.owner_generation.get() < leader.owner_generation.get()
    }

    /// A peer keeps what it holds for that long.
    fn peer_clings(&mut self, host: usize, resource: u8, hold: Micros) {
        let Some(peer) = self.hosts[host].peer.as_mut() else { return };
        let Some(r) = peer.resources.get_mut(usize::from(resource)) else { return };
        if matches!(r.stage, Stage::Held(_)) {
            r.serial += 1;
            self.peer_turn_after(host, resource, hold);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Area, SimView};
    use crate::host::JobKey;
    use crate::settings::Settings;
    use sanlock_lease::geometry::SectorSize;
    use sanlock_lease::machine::{IoFailure, OpId};
    use std::rc::Rc;

    const DOUBT_SECS: u64 = 140;

    /// How much longer the calm is because of a write in flight that ends at this second of the run.
    fn longer(ends_secs: u64, failure: Option<IoFailure>) -> u64 {
        let mut world = World::new(Settings::quiet(), 1, false);
        let usual = world.end;
        let result = match failure {
            Some(failure) => Err(failure),
            None => Ok(SimView::new(SectorSize::B512, 0, 0)),
        };
        let write = Some((0, Rc::new(Content::Value([].into()))));
        let flying = Io {
            host: 0,
            epoch: 0,
            job: JobKey::Renewal(1),
            serial: 1,
            op: OpId(1),
            write,
            area: Area::Lockspace(0),
            to_land: false,
            lands: Micros::MAX,
            since: 0,
            timed_out: true,
            doubt_ms: DOUBT_SECS * 1000,
            doubtful: false,
            deadline: 0,
            ends: Some(ends_secs * SECOND),
            very_late: false,
            result,
        };
        world.ios.insert(1, Box::new(flying));
        world.now = world.settings.stormy_secs * SECOND;
        world.calm_down();
        world.end.saturating_sub(usual) / SECOND
    }

    #[test]
    fn the_calm_goes_on_after_the_last_write_has_ended_for_good() {
        let stormy = Settings::quiet().stormy_secs;
        let eio = Some(IoFailure::Os(5));
        assert_eq!(longer(stormy + 140, None), 0, "as one that died when the calm began");
        assert_eq!(longer(stormy + 150, None), 10);
        assert_eq!(longer(stormy, eio), 0);
        assert_eq!(longer(stormy + 150, eio), 10 + DOUBT_SECS);
        assert_eq!(longer(stormy + 150, Some(IoFailure::Os(28))), 10, "it says that nothing will land");
    }
}
