//! Larger faults: lost paths, threads and daemons that stand still, crashes, cut power, leaving, shutting down. And their end.

use crate::clock::{Micros, SECOND};
use crate::daemon::Thread;
use crate::fault::{Fault, SHARES};
use crate::host::Path;
use crate::layout;
use crate::peer::Stage;
use crate::sabotage::Sabotage;
use crate::vm::Standing;
use crate::world::{Event, World, YOUNG_MS};
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
            Fault::BadSpot => self.bad_spot(host, 3 * long),
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

    /// Over before the calm: reads that hang in it would be its own fault.
    fn bad_spot(&mut self, host: usize, long: Micros) {
        let last = u64::from(self.settings.disks) - 1;
        let disk = usize::try_from(self.dice.between(0, last)).unwrap_or(0);
        let until = (self.now + long).min(self.settings.stormy_secs * SECOND);
        self.say(|w| format!("{:?} has a bad spot in lockspace {disk} for {long} us", w.hosts[host].id));
        self.hosts[host].spots[disk] = until;
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
            h.claims_recorded.clear();
        }
        if !h.is_reference() {
            let after = self.dice.spread(SECOND, 120 * SECOND);
            self.at(self.now + after, Event::PowerOn { host });
        }
    }

    pub(crate) fn power_on(&mut self, host: usize) {
        let after = self.dice.spread(1, 10 * SECOND);
        let shows_ms = self.dice.between(0, YOUNG_MS);
        let h = &mut self.hosts[host];
        h.up = true;
        h.clock = h.clock.begun_anew(shows_ms, self.now);
        self.checks.has_clock(h.id, h.clock);
        let epoch = h.epoch;
        self.say(|w| format!("{:?} is up again, its clock shows {shows_ms} ms", w.hosts[host].id));
        self.wd_start(host);
        self.at(self.now + after, Event::Restart { host, epoch });
        self.at(self.now + after + 1000, Event::Admin { host, epoch });
    }

    /// A peer keeps what it holds for that long.
    pub(crate) fn peer_clings(&mut self, host: usize, resource: u8, hold: Micros) {
        let Some(peer) = self.hosts[host].peer.as_mut() else { return };
        let Some(r) = peer.resources.get_mut(usize::from(resource)) else { return };
        if matches!(r.stage, Stage::Held(_)) {
            r.serial += 1;
            self.peer_turn_after(host, resource, hold);
        }
    }
}
