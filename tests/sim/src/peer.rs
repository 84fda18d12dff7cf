//! The bookkeeping of a reference peer, as little as it needs: it joins the first lockspace, renews, acquires and releases.
//!
//! Its daemon never stands still and never crashes; if its lockspace fails, its host is reset for good. Everything else is in
//! [`crate::reference`].

use crate::clock::{Micros, SECOND};
use crate::host::JobKey;
use crate::reference::{ReferenceAcquire, ReferenceRelease};
use crate::work::{Outcome, Work};
use crate::world::{Event, World};
use sanlock_lease::delta::{DeltaAcquire, HostScan, RenewOutcome, Renewal};
use sanlock_lease::machine::{Input, LockspaceNow};
use sanlock_lease::paxos::acquire::{AcquireOptions, AcquireOutcome};
use sanlock_lease::paxos::release::ReleaseOutcome;
use sanlock_lease::paxos::{Held, PaxosConfig};
use sanlock_lease::timing::MonoTime;

/// How often it looks at what is due.
const TICK: Micros = SECOND / 4;
/// Its only lockspace, in place of the number that a manager would give.
const LS: u64 = 0;
/// The disk of that lockspace.
const DISK: u8 = 0;

/// Its place in the lockspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// Not joined; to be joined at this time.
    Out {
        /// When to join.
        join_at: Micros,
    },
    /// Being joined.
    Joining,
    /// Joined.
    Joined {
        /// The generation.
        generation: u64,
    },
}

/// What to do about a resource it failed to get rid of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a handful per host")]
pub enum Then {
    /// Erase what a failed acquire left.
    EraseAll,
    /// Repeat the release.
    ReleaseAgain(Held),
}

/// Its view of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Not wanted.
    Idle,
    /// An acquire is running.
    Acquiring,
    /// Held.
    Held(Held),
    /// A release is running, of this lease unless it only erases.
    Releasing(Option<Held>),
    /// The next attempt comes later.
    Later(Then),
}

/// One resource.
#[derive(Clone, Debug)]
pub struct PeerResource {
    pub(crate) stage: Stage,
    /// Tells turns of this stage from turns planned earlier.
    pub(crate) serial: u32,
}

/// A peer.
#[derive(Clone, Debug)]
pub struct Peer {
    pub(crate) membership: Membership,
    pub(crate) resources: Vec<PeerResource>,
    next_scan: Micros,
}

impl Peer {
    /// A peer that has done nothing yet, on a disk with so many resources.
    #[must_use]
    pub fn new(resources: u8) -> Self {
        let resource = PeerResource { stage: Stage::Idle, serial: 0 };
        Self {
            membership: Membership::Out { join_at: 0 },
            resources: vec![resource; usize::from(resources)],
            next_scan: 0,
        }
    }

    /// What its machines are told of the lockspace: it never looks (W10).
    pub(crate) fn lockspace_now(&self) -> LockspaceNow {
        match self.membership {
            Membership::Joined { generation } => LockspaceNow::Alive { generation },
            Membership::Joining => LockspaceNow::Alive { generation: 0 },
            Membership::Out { .. } => LockspaceNow::Gone,
        }
    }
}

impl World {
    fn peer(&mut self, host: usize) -> Option<&mut Peer> {
        self.hosts[host].peer.as_mut()
    }

    pub(crate) fn peer_tick(&mut self, host: usize) {
        if !self.hosts[host].up {
            return;
        }
        let epoch = self.hosts[host].epoch;
        self.at(self.now + TICK, Event::PeerTick { host, epoch });
        let now = self.now;
        let Some(peer) = self.peer(host) else { return };
        match peer.membership {
            Membership::Out { join_at } if join_at <= now => {
                peer.membership = Membership::Joining;
                let config = self.hosts[host].delta_config(DISK);
                self.start(host, JobKey::Join(LS), Work::Join(Box::new(DeltaAcquire::new(config, None))));
            }
            Membership::Out { .. } | Membership::Joining => {}
            Membership::Joined { .. } => self.peer_look(host),
        }
    }

    fn peer_look(&mut self, host: usize) {
        let h = &self.hosts[host];
        let now = h.clock.at(self.now);
        let Some(renewal) = h.jobs.get(&JobKey::Renewal(LS)) else { return };
        let Some(machine) = renewal.work.renewal() else { return };
        let age = now.secs_since(machine.last_good());
        let (done, due, corrupt) = (renewal.done, now >= machine.due(), machine.corrupt().is_some());
        if corrupt || age >= h.io_timeout.renewal_fail_secs() {
            self.say(|w| format!("{:?} (reference) lockspace failed", w.hosts[host].id));
            self.checks.marks.failed_lockspaces += 1;
            return self.reset(host);
        }
        if done && due {
            self.start_again(host, JobKey::Renewal(LS));
        }
        let idle = self.hosts[host].jobs.get(&JobKey::Scan(LS)).is_some_and(|j| j.done);
        let pause = self.hosts[host].io_timeout.renewal_secs() * SECOND;
        let now = self.now;
        let Some(peer) = self.peer(host) else { return };
        if idle && peer.next_scan <= now {
            peer.next_scan = now + pause;
            self.start_again(host, JobKey::Scan(LS));
        }
        for resource in 0..self.settings.resources {
            let often = if self.calm { 100 } else { 400_000 / self.settings.pause_ms };
            let begins = self.peer_stage(host, resource) == Some(Stage::Idle) && self.dice.per_mille(often);
            if begins && !self.is_withheld(resource, true) {
                self.peer_acquire(host, resource);
            }
        }
    }

    fn peer_stage(&mut self, host: usize, resource: u8) -> Option<Stage> {
        Some(self.peer(host)?.resources.get(usize::from(resource))?.stage)
    }

    fn set_peer_stage(&mut self, host: usize, resource: u8, stage: Stage) {
        if let Some(r) = self.peer(host).and_then(|p| p.resources.get_mut(usize::from(resource))) {
            r.stage = stage;
            r.serial += 1;
        }
    }

    pub(crate) fn peer_turn_after(&mut self, host: usize, resource: u8, after: Micros) {
        let epoch = self.hosts[host].epoch;
        let Some(serial) = self.peer(host).map(|p| p.resources[usize::from(resource)].serial) else { return };
        self.at(self.now + after, Event::PeerTurn { host, epoch, resource, serial });
    }

    pub(crate) fn peer_turn(&mut self, host: usize, resource: u8, serial: u32) {
        if !self.hosts[host].up {
            return;
        }
        let idle = |peer: &Peer| peer.resources[usize::from(resource)].stage == Stage::Idle;
        let takes = self.hosts[host].peer.as_ref().is_some_and(idle);
        let withheld = self.is_withheld(resource, takes);
        let Some(peer) = self.peer(host) else { return };
        let r = &peer.resources[usize::from(resource)];
        if r.serial != serial {
            return;
        }
        match r.stage {
            Stage::Idle | Stage::Later(_) if withheld => self.peer_turn_after(host, resource, SECOND),
            Stage::Idle => self.peer_acquire(host, resource),
            Stage::Held(held) => self.peer_release(host, resource, held),
            Stage::Later(Then::ReleaseAgain(held)) => self.peer_release(host, resource, held),
            Stage::Later(Then::EraseAll) => {
                let Some(config) = self.peer_config(host, resource) else { return };
                self.set_peer_stage(host, resource, Stage::Releasing(None));
                let work = Work::ReferenceRelease(Box::new(ReferenceRelease::erase_all(config)));
                self.start(host, JobKey::Peer(resource.into()), work);
            }
            Stage::Acquiring | Stage::Releasing(_) => {}
        }
    }

    fn peer_config(&mut self, host: usize, resource: u8) -> Option<PaxosConfig> {
        let Membership::Joined { generation } = self.peer(host)?.membership else { return None };
        Some(self.paxos_config(host, generation, resource))
    }

    fn peer_idle(&mut self, host: usize, resource: u8) {
        self.set_peer_stage(host, resource, Stage::Idle);
        let after = self.pause_before_acquire();
        self.peer_turn_after(host, resource, after);
    }

    fn peer_acquire(&mut self, host: usize, resource: u8) {
        let Some(config) = self.peer_config(host, resource) else { return };
        let options = AcquireOptions {
            owner_nowait: self.dice.per_mille(600),
            seed: self.dice.any(),
            ..AcquireOptions::default()
        };
        self.set_peer_stage(host, resource, Stage::Acquiring);
        let work = Work::ReferenceAcquire(Box::new(ReferenceAcquire::new(config, options).careful()));
        self.start(host, JobKey::Peer(resource.into()), work);
    }

    fn peer_release(&mut self, host: usize, resource: u8, held: Held) {
        let id = self.hosts[host].id;
        self.checks.dropped(resource, id, 0);
        let Some(mut config) = self.peer_config(host, resource) else { return };
        config.generation = held.leader.owner_generation.get();
        self.set_peer_stage(host, resource, Stage::Releasing(Some(held)));
        self.start(
            host,
            JobKey::Peer(resource.into()),
            Work::ReferenceRelease(Box::new(ReferenceRelease::new(config, held))),
        );
    }

    /// A machine of a peer is done.
    pub(crate) fn peer_done(&mut self, host: usize, key: JobKey, outcome: Outcome) {
        match (outcome, key) {
            (Outcome::Join(Ok(joined)), _) => {
                self.checks.marks.joins += 1;
                let config = self.hosts[host].delta_config(DISK);
                if let Some(peer) = self.peer(host) {
                    peer.membership = Membership::Joined { generation: joined.generation() };
                    peer.next_scan = 0;
                }
                self.add_resident(
                    host,
                    JobKey::Renewal(LS),
                    Work::Renewal(Box::new(Renewal::new(config, &joined))),
                );
                let scan = HostScan::new(&config, joined.geometry);
                self.add_resident(host, JobKey::Scan(LS), Work::Scan(Box::new(scan)));
                self.peer_arm(host, joined.last_good);
            }
            (Outcome::Join(Err(_)), _) => {
                let join_at = self.now + self.dice.spread(SECOND, 30 * SECOND);
                if let Some(peer) = self.peer(host) {
                    peer.membership = Membership::Out { join_at };
                }
            }
            (Outcome::Renewal(RenewOutcome::Renewed(renewed)), _) => self.peer_arm(host, renewed.last_good),
            (outcome, JobKey::Peer(number)) => {
                let Ok(resource) = u8::try_from(number) else { return };
                match outcome {
                    Outcome::Acquire(outcome) => self.peer_acquired(host, resource, &outcome),
                    Outcome::Release(outcome) => self.peer_released(host, resource, &outcome),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn peer_arm(&mut self, host: usize, good: MonoTime) {
        let h = &self.hosts[host];
        let expiry = good.secs() + h.io_timeout.renewal_fail_secs();
        self.watchdog_peer(host, expiry);
    }

    fn peer_acquired(&mut self, host: usize, resource: u8, outcome: &AcquireOutcome) {
        match *outcome {
            AcquireOutcome::Acquired(held) if held.leader.timestamp.get() != 0 => {
                let Some(config) = self.peer_config(host, resource) else { return };
                self.say(|w| {
                    let id = w.hosts[host].id;
                    format!("{id:?} (reference) GRANTED resource {resource} version {}", held.lver())
                });
                self.grant(host, 0, resource, config.generation, &held);
                self.set_peer_stage(host, resource, Stage::Held(held));
                let hold = self.hold_time();
                self.peer_turn_after(host, resource, hold);
            }
            AcquireOutcome::Acquired(_) => self.peer_idle(host, resource),
            AcquireOutcome::Failed { error, retract, .. } => {
                self.mark(&error);
                if retract.is_some() {
                    self.peer_later(host, resource, Then::EraseAll);
                } else {
                    self.peer_idle(host, resource);
                }
            }
        }
    }

    fn peer_later(&mut self, host: usize, resource: u8, then: Then) {
        self.set_peer_stage(host, resource, Stage::Later(then));
        let after = self.dice.spread(1, SECOND);
        self.peer_turn_after(host, resource, after);
    }

    fn peer_released(&mut self, host: usize, resource: u8, outcome: &ReleaseOutcome) {
        let Some(Stage::Releasing(held)) = self.peer_stage(host, resource) else { return };
        match outcome.result {
            Err(e) if e.is_retryable() => {
                let then = held.map_or(Then::EraseAll, Then::ReleaseAgain);
                self.peer_later(host, resource, then);
            }
            _ => self.peer_idle(host, resource),
        }
    }

    /// Starts a machine that is used many times once more.
    pub(crate) fn start_again(&mut self, host: usize, key: JobKey) {
        if let Some(job) = self.hosts[host].jobs.get_mut(&key) {
            job.done = false;
            self.deliver(host, key, Input::Start);
        }
    }
}
