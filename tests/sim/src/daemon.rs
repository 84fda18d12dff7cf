//! A host's daemon: joining, renewing, watching, failing, leaving; and its watchdog.

use crate::clock::{Micros, SECOND};
use crate::host::{Daemon, JobKey, Membership};
use crate::work::{Outcome, Work};
use crate::world::{Event, World};
use sanlock_lease::delta::{DeltaAcquire, HostScan, RenewOutcome, Renewal};
use sanlock_lease::machine::Input;
use sanlock_lease::timing::{MonoTime, WatchdogFire};

/// How often a daemon looks at what is due.
const TICK: Micros = SECOND / 4;

impl World {
    /// The daemon's regular look at everything.
    pub(crate) fn tick(&mut self, host: usize) {
        let h = &self.hosts[host];
        if !h.up {
            return;
        }
        let epoch = h.epoch;
        self.at(self.now + TICK, Event::Tick { host, epoch });
        match self.hosts[host].daemon {
            Daemon::Runs => self.look(host),
            Daemon::Paused => {}
            Daemon::Dead => self.maybe_restart(host),
        }
    }

    fn look(&mut self, host: usize) {
        match self.hosts[host].membership {
            Membership::Out { join_at } if join_at <= self.now => self.join(host),
            Membership::Out { .. } | Membership::Joining => {}
            Membership::Joined { ending, leaving, .. } => {
                self.check_age(host, ending);
                self.renew(host);
                self.scan(host);
                if ending || self.hosts[host].lockspace_ended() {
                    self.maybe_out(host, leaving);
                }
            }
        }
        self.look_at_resources(host);
    }

    fn join(&mut self, host: usize) {
        if self.writes_in_flight(host) > 0 {
            return; // an earlier membership's writes may still land: not before they have (A6, R3)
        }
        // R7: nothing of an earlier instance is left here, or it would not be out. The long wait is taken now and then.
        let fast = self.dice.per_mille(800);
        let h = &mut self.hosts[host];
        let fast = h.last_generation.filter(|_| fast);
        h.membership = Membership::Joining;
        h.jobs.clear();
        let work = Work::Join(DeltaAcquire::new(h.delta_config(), fast));
        self.start(host, JobKey::Join, work);
    }

    fn check_age(&mut self, host: usize, ending: bool) {
        let h = &self.hosts[host];
        let now = h.clock.at(self.now);
        let corrupt = h
            .jobs
            .get(&JobKey::Renewal)
            .and_then(|j| j.work.renewal())
            .is_some_and(|r| r.corrupt().is_some());
        if !ending && (h.too_old(now) || corrupt) {
            self.checks.marks.failed_lockspaces += 1;
            self.say(|w| format!("{:?} lockspace failed", w.hosts[host].id));
            self.end_membership(host, false);
        }
    }

    /// The lockspace failed, or is to be left: no acquire goes on, processes are killed.
    pub(crate) fn end_membership(&mut self, host: usize, orderly: bool) {
        if let Membership::Joined { ending, leaving, .. } = &mut self.hosts[host].membership {
            (*ending, *leaving) = (true, orderly);
        }
        if self.hosts[host].reference {
            // It would go on with what it does (W10, CE9); here it ends for good.
            self.reset(host);
            return;
        }
        for resource in 0..self.settings.resources {
            if let Some(serial) = self.hosts[host].resources[usize::from(resource)].process {
                // Killed processes go soon, late, or not at all: then the watchdog ends them.
                let after = match self.dice.between(0, 9) {
                    0..=6 => self.dice.spread(1_000, 2 * SECOND),
                    7..=8 => self.dice.spread(SECOND, 100 * SECOND),
                    _ => continue,
                };
                let epoch = self.hosts[host].epoch;
                self.at(self.now + after, Event::ProcessExit { host, epoch, resource, serial });
            }
            // What waits looks at its lockspace at once.
            self.deliver(host, JobKey::Resource(resource), Input::Tick);
        }
    }

    fn renew(&mut self, host: usize) {
        let h = &self.hosts[host];
        let now = h.clock.at(self.now);
        let Some(job) = h.jobs.get(&JobKey::Renewal) else { return };
        let due = job.work.renewal().is_some_and(|r| now >= r.due());
        if job.done && due && !h.jobs.contains_key(&JobKey::Leave) {
            self.start_again(host, JobKey::Renewal);
        }
    }

    fn scan(&mut self, host: usize) {
        let h = &mut self.hosts[host];
        let idle = h.jobs.get(&JobKey::Scan).is_some_and(|j| j.done);
        if idle && h.next_scan <= self.now {
            h.next_scan = self.now + h.io_timeout.renewal_secs() * SECOND;
            self.start_again(host, JobKey::Scan);
        }
    }

    /// Starts a machine that is used many times once more.
    fn start_again(&mut self, host: usize, key: JobKey) {
        if let Some(job) = self.hosts[host].jobs.get_mut(&key) {
            job.done = false;
            self.deliver(host, key, Input::Start);
        }
    }

    /// All users gone and nothing in flight: the watchdog may be disarmed (R3), the host id given up or left.
    fn maybe_out(&mut self, host: usize, leaving: bool) {
        let h = &self.hosts[host];
        if h.reference || h.resources.iter().any(|r| r.process.is_some()) {
            return;
        }
        let resource_io = |io: &crate::world::Io| io.host == host && matches!(io.job, JobKey::Resource(_));
        if self.ios.values().any(|io| resource_io(io) && io.op.is_write()) {
            return;
        }
        let Some(renewal) = h.jobs.get(&JobKey::Renewal).and_then(|j| j.work.renewal()) else { return };
        if h.jobs.contains_key(&JobKey::Leave) {
            return;
        }
        match renewal.release() {
            // After a failed renewal the host id is left as it is.
            Some(release) if leaving || self.dice.per_mille(700) => {
                self.start(host, JobKey::Leave, Work::Leave(release));
            }
            _ if leaving && renewal.corrupt().is_none() && !h.too_old(h.clock.at(self.now)) => {}
            _ if self.writes_in_flight(host) > 0 => {}
            _ => self.out(host),
        }
    }

    fn out(&mut self, host: usize) {
        let join_at = self.now + self.dice.spread(SECOND, 60 * SECOND);
        let keep = self.dice.per_mille(500);
        let h = &mut self.hosts[host];
        h.membership = Membership::Out { join_at };
        h.expiry = 0;
        h.table = h.jobs.get(&JobKey::Scan).and_then(|j| j.work.table()).filter(|_| keep).cloned();
        h.jobs.clear();
        h.forget_resources();
        self.say(|w| format!("{:?} is out", w.hosts[host].id));
    }

    /// A machine is done.
    pub(crate) fn done(&mut self, host: usize, key: JobKey, outcome: Outcome) {
        match outcome {
            Outcome::Join(Ok(joined)) => {
                self.checks.marks.joins += 1;
                let h = &mut self.hosts[host];
                let config = h.delta_config();
                h.membership =
                    Membership::Joined { generation: joined.generation(), ending: false, leaving: false };
                h.last_generation = Some(joined.generation());
                let scan = match h.table.take() {
                    Some(table) => HostScan::with_table(&config, joined.geometry, table),
                    None => HostScan::new(&config, joined.geometry),
                };
                h.serials += 2;
                let serials = h.serials;
                let job = |work, serial| crate::host::Job { work, serial, wait: None, done: true };
                h.jobs.clear();
                h.jobs
                    .insert(JobKey::Renewal, job(Work::Renewal(Renewal::new(config, &joined)), serials - 1));
                h.jobs.insert(JobKey::Scan, job(Work::Scan(scan), serials));
                h.next_scan = 0;
                self.arm(host, joined.last_good);
            }
            Outcome::Join(Err(_)) => {
                let join_at = self.now + self.dice.spread(SECOND, 30 * SECOND);
                self.hosts[host].membership = Membership::Out { join_at };
            }
            Outcome::Renewal(RenewOutcome::Renewed(_)) => {
                if let Some(good) =
                    self.hosts[host].jobs.get(&key).and_then(|j| j.work.renewal()).map(Renewal::last_good)
                {
                    self.arm(host, good);
                }
            }
            Outcome::Renewal(_) | Outcome::Scan(_) => {}
            Outcome::Leave(_) => {
                if self.writes_in_flight(host) == 0 {
                    self.out(host);
                }
                // Otherwise `settled` does it.
            }
            Outcome::Acquire(outcome) => self.acquire_done(host, key, outcome),
            Outcome::Release(outcome) => self.release_done(host, key, outcome),
        }
    }

    /// A late completion was delivered.
    pub(crate) fn settled(&mut self, host: usize, key: JobKey) {
        match key {
            JobKey::Resource(resource) => self.resource_settled(host, resource),
            JobKey::Leave if self.writes_in_flight(host) == 0 => self.out(host),
            _ => {}
        }
    }

    /// Tells the watchdog daemon: renewed at `good`, expires 8T later. The host is reset at the last moment allowed.
    fn arm(&mut self, host: usize, good: MonoTime) {
        let h = &mut self.hosts[host];
        h.expiry = h.expiry.max(good.secs() + h.io_timeout.renewal_fail_secs());
        let (when, epoch) = (self.reset_time(host, self.hosts[host].expiry), self.hosts[host].epoch);
        self.at(when, Event::Watchdog { host, epoch });
    }

    fn reset_time(&self, host: usize, expiry: u64) -> Micros {
        self.hosts[host].clock.when(MonoTime::from_secs(expiry + WatchdogFire::DEFAULT.secs()))
    }

    pub(crate) fn watchdog(&mut self, host: usize) {
        let h = &self.hosts[host];
        let armed = [Some(h.expiry).filter(|e| *e > 0), h.doomed];
        let due = armed.into_iter().flatten().any(|expiry| self.reset_time(host, expiry) <= self.now);
        if h.up && due {
            self.say(|w| format!("{:?} reset by its watchdog", w.hosts[host].id));
            self.reset(host);
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
        let id = self.hosts[host].id;
        for resource in 0..self.settings.resources {
            self.checks.dropped(resource, id);
        }
        let h = &mut self.hosts[host];
        h.epoch += 1;
        h.up = false;
        h.jobs.clear();
        h.backlog.clear();
        (h.expiry, h.doomed, h.table) = (0, None, None);
        h.resources.iter_mut().for_each(|r| r.process = None);
        h.forget_resources();
        if !h.reference {
            let after = self.dice.spread(SECOND, 120 * SECOND);
            self.at(self.now + after, Event::PowerOn { host });
        }
    }

    pub(crate) fn power_on(&mut self, host: usize) {
        let join_at = self.now + self.dice.spread(1, 10 * SECOND);
        let h = &mut self.hosts[host];
        h.up = true;
        h.daemon = Daemon::Runs;
        h.membership = Membership::Out { join_at };
        let epoch = h.epoch;
        self.say(|w| format!("{:?} is up again", w.hosts[host].id));
        self.at(self.now, Event::Tick { host, epoch });
    }

    /// The daemon crashes; its processes go on, and its watchdog connection is left behind.
    pub(crate) fn crash_daemon(&mut self, host: usize) {
        self.say(|w| format!("{:?} daemon crashes", w.hosts[host].id));
        let h = &mut self.hosts[host];
        h.daemon = Daemon::Dead;
        if h.expiry > 0 {
            h.doomed = Some(h.doomed.map_or(h.expiry, |d| d.min(h.expiry)));
            h.expiry = 0;
        }
        h.jobs.clear();
        h.backlog.clear();
        h.forget_resources();
        for resource in 0..self.settings.resources {
            if let Some(serial) = self.hosts[host].resources[usize::from(resource)].process {
                let after = self.dice.spread(SECOND, 300 * SECOND);
                let epoch = self.hosts[host].epoch;
                self.at(self.now + after, Event::ProcessExit { host, epoch, resource, serial });
            }
        }
    }

    /// R7: the daemon comes back only when the processes of the old one are gone, and its writes have settled: a process is not
    /// gone before its I/O is.
    fn maybe_restart(&mut self, host: usize) {
        let gone = self.hosts[host].resources.iter().all(|r| r.process.is_none());
        if gone && self.writes_in_flight(host) == 0 && self.dice.per_mille(30) {
            let h = &mut self.hosts[host];
            h.daemon = Daemon::Runs;
            h.membership = Membership::Out { join_at: self.now };
            self.say(|w| format!("{:?} daemon restarted", w.hosts[host].id));
        }
    }

    pub(crate) fn resume(&mut self, host: usize) {
        let h = &mut self.hosts[host];
        if h.daemon != Daemon::Paused {
            return;
        }
        h.daemon = Daemon::Runs;
        self.say(|w| format!("{:?} daemon goes on", w.hosts[host].id));
        let mut backlog = std::mem::take(&mut self.hosts[host].backlog);
        if self.dice.per_mille(300) {
            backlog.sort_by_key(|(_, deadline)| *deadline); // completions first
        }
        if self.dice.per_mille(300) {
            self.look(host);
        }
        for (io, deadline) in backlog {
            self.tell(io, deadline);
        }
        let keys: Vec<JobKey> = self.hosts[host].jobs.keys().copied().collect();
        for key in keys {
            self.deliver(host, key, Input::Tick);
        }
        self.look(host);
    }
}

impl crate::host::Host {
    fn lockspace_ended(&self) -> bool {
        matches!(self.membership, Membership::Joined { ending: true, .. })
    }

    fn forget_resources(&mut self) {
        for r in &mut self.resources {
            r.stage = crate::host::Stage::Idle;
            r.client_alive = true;
            r.serial += 1;
        }
    }
}
