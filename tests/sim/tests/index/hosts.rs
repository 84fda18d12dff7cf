//! A host: its host id, what it has seen of the others, and its end.

use crate::disk::SECTOR;
use crate::sabotage::Sabotage;
use crate::work::Work;
use crate::world::{Event, GEOMETRY, HOSTS, Met, Ms, World, io_timeout};
use sanlock_lease::geometry::HostId;
use sanlock_lease::hosts::HostSeen;
use sanlock_lease::machine::{HostView, LockspaceNow};
use sanlock_lease::record::RawLeader;
use sanlock_lease::rindex::Member;
use sanlock_lease::timing::{MonoTime, WatchdogFire};
use sanlock_sim::layout;

/// What a host has seen of the others, as its host table would have it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen([Option<HostSeen>; HOSTS]);

impl HostView for Seen {
    fn seen(&self, host: HostId) -> Option<HostSeen> {
        self.0.get(host.index()).copied().flatten()
    }
}

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) id: HostId,
    /// Counted up with each reset.
    pub(crate) life: u32,
    pub(crate) up: bool,
    pub(crate) generation: u64,
    /// When the last renewal that succeeded began.
    renewed: Ms,
    /// Until when nothing of it reaches the disk.
    pub(crate) cut_until: Ms,
    /// Whether it has left the lockspace.
    gone: bool,
    pub(crate) seen: Seen,
    pub(crate) work: Option<Work>,
    /// When an operation had a result last that is no failure.
    pub(crate) done_at: Ms,
    /// The index as this host read it first, for a sabotage.
    pub(crate) memory: Option<Vec<u8>>,
}

impl Host {
    pub(crate) fn new(number: usize) -> Self {
        Self {
            id: layout::host_id(number as u64 + 1),
            life: 0,
            up: false,
            generation: 0,
            renewed: 0,
            cut_until: 0,
            gone: true,
            seen: Seen::default(),
            work: None,
            done_at: 0,
            memory: None,
        }
    }

    pub(crate) fn member(&self) -> Member {
        Member { host: self.id, generation: self.generation, geometry: GEOMETRY, io_timeout: io_timeout() }
    }
}

impl World {
    /// Whether nothing may be written in its name any more.
    pub(crate) fn failed(&self, host: usize) -> bool {
        let state = &self.hosts[host];
        let silent = self.mono().secs_since(MonoTime::from_millis(state.renewed));
        state.gone || silent >= io_timeout().renewal_fail_secs()
    }

    /// What the host itself knows of that.
    pub(crate) fn lockspace_of(&self, host: usize) -> LockspaceNow {
        if self.failed(host) && self.sabotage != Some(Sabotage::GoneUnseen) {
            return LockspaceNow::Gone;
        }
        LockspaceNow::Alive { generation: self.hosts[host].generation }
    }

    /// It joins with the next generation, and begins to work.
    pub(crate) fn boot(&mut self, host: usize) {
        let state = &mut self.hosts[host];
        (state.up, state.gone, state.renewed) = (true, false, self.now);
        state.generation += 1;
        state.seen = Seen::default();
        let life = state.life;
        self.note(|| format!("host {host} joins"));
        self.renew(host);
        let (first, power, cut) = (
            self.dice.between(100, 5000),
            self.dice.spread(30_000, 2_000_000),
            self.dice.spread(20_000, 1_000_000),
        );
        self.plan(first, Event::Begin { host, life });
        self.plan(power, Event::Reset { host, life });
        self.plan(cut, Event::Cut { host, life });
    }

    pub(crate) fn renew(&mut self, host: usize) {
        let (now, mono) = (self.now, self.mono());
        let life = self.hosts[host].life;
        if self.hosts[host].cut_until <= now {
            if self.lockspace_of(host) == LockspaceNow::Gone {
                return self.leave(host);
            }
            let state = &mut self.hosts[host];
            state.renewed = now;
            let mut delta = layout::free_delta(0);
            delta.owner_id = state.id.get().into();
            delta.owner_generation = state.generation.into();
            delta.timestamp = (mono.secs() + 1).into();
            delta.io_timeout = io_timeout().to_disk().into();
            delta.seal();
            let mut sector = vec![0; SECTOR];
            delta.encode(None, &mut sector);
            self.disk.land(state.id.index() as u64, &sector);
            self.look(host);
            let fire = 1000 * io_timeout().host_dead_secs(WatchdogFire::DEFAULT) - self.dice.between(0, 2000);
            self.plan(fire, Event::Watchdog { host, life });
        }
        self.plan(1000 * io_timeout().renewal_secs(), Event::Renew { host, life });
    }

    /// Takes in what the others' records say.
    fn look(&mut self, host: usize) {
        let now = self.mono();
        for other in 0..HOSTS {
            let record = RawLeader::from_sector(self.disk.sector(other as u64));
            let (id, generation, timestamp) =
                (record.owner_id.get(), record.owner_generation.get(), record.timestamp.get());
            let entry = &mut self.hosts[host].seen.0[other];
            let before = entry
                .filter(|e| (e.owner_id, e.owner_generation, e.timestamp) == (id, generation, timestamp));
            *entry = Some(HostSeen {
                first_check: entry.map_or(now, |e| e.first_check),
                last_check: now,
                last_live: before.map_or((timestamp > 0).then_some(now), |e| e.last_live),
                owner_id: id,
                owner_generation: generation,
                timestamp,
                io_timeout: io_timeout(),
                newest_generation: generation,
            });
        }
    }

    /// It has failed to renew for too long, and the disk is back: it leaves as soon as nothing of it is under way, and joins again.
    fn leave(&mut self, host: usize) {
        let life = self.hosts[host].life;
        if self.hosts[host].work.is_some() {
            self.tick(host);
        }
        if self.hosts[host].work.is_some() {
            return self.plan(1000, Event::Renew { host, life });
        }
        self.note(|| format!("host {host} leaves"));
        self.checks.gave_back(host);
        self.down(host);
    }

    /// It is down, and comes back.
    fn down(&mut self, host: usize) {
        let state = &mut self.hosts[host];
        (state.up, state.gone, state.life) = (false, true, state.life + 1);
        state.cut_until = 0;
        let back = if self.calm() { 5000 } else { self.dice.spread(2000, 200_000) };
        self.plan(back, Event::Boot { host });
    }

    pub(crate) fn cut(&mut self, host: usize) {
        let long = self.dice.spread(500, 150_000);
        self.note(|| format!("host {host} loses the disk for {long} ms"));
        let state = &mut self.hosts[host];
        state.cut_until = state.cut_until.max(self.now + long);
    }

    pub(crate) fn watchdog(&mut self, host: usize) {
        let age = self.now - self.hosts[host].renewed;
        if age + 2000 >= 1000 * io_timeout().host_dead_secs(WatchdogFire::DEFAULT) {
            self.reset(host, "watchdog");
        }
    }

    /// What was on its way lands at this moment or never.
    pub(crate) fn reset(&mut self, host: usize, why: &str) {
        self.note(|| format!("host {host} is reset: {why}"));
        let own: Vec<u64> =
            self.transfers.iter().filter(|(_, t)| t.host == host).map(|(number, _)| *number).collect();
        for number in own {
            self.abandon(number);
        }
        if self.hosts[host].work.take().is_some() {
            self.met(Met::ResetAtWork);
        }
        self.checks.gave_back(host);
        self.down(host);
    }
}
