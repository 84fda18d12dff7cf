//! A host's resources: who wants one, who holds one, and what is still to be cleaned up.

use crate::clock::{Micros, SECOND};
use crate::host::{JobKey, Stage, Then};
use crate::layout;
use crate::reference::{ReferenceAcquire, ReferenceRelease};
use crate::work::Work;
use crate::world::{Event, World};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::machine::Input;
use sanlock_lease::paxos::acquire::{AcquireOptions, AcquireOutcome};
use sanlock_lease::paxos::release::{ReleaseOutcome, Released};
use sanlock_lease::paxos::{AcquireError, Held, PaxosAcquire, PaxosConfig, PaxosRelease, ReleaseError};

/// Hosts of a herd start within this time of each other.
const HERD: Micros = 3_000;

impl World {
    fn config(&self, host: usize, generation: u64, resource: u8) -> PaxosConfig {
        let h = &self.hosts[host];
        layout::paxos_config(h.id, generation, resource, h.io_timeout)
    }

    fn stage(&self, host: usize, resource: u8) -> Stage {
        self.hosts[host].resources[usize::from(resource)].stage
    }

    fn set_stage(&mut self, host: usize, resource: u8, stage: Stage) {
        let r = &mut self.hosts[host].resources[usize::from(resource)];
        r.stage = stage;
        r.serial += 1;
    }

    /// Plans the next turn of the present stage.
    pub(crate) fn turn_after(&mut self, host: usize, resource: u8, after: Micros) {
        let h = &self.hosts[host];
        let (epoch, serial) = (h.epoch, h.resources[usize::from(resource)].serial);
        self.at(self.now + after, Event::Turn { host, epoch, resource, serial });
    }

    /// Nothing is going on; the next acquire comes later, now and then together with everybody else's.
    fn idle(&mut self, host: usize, resource: u8) {
        self.set_stage(host, resource, Stage::Idle);
        let after = if self.calm {
            self.dice.between(SECOND / 2, 6 * SECOND)
        } else if self.dice.per_mille(600) {
            let grid = SECOND / 2;
            grid - self.now % grid + self.dice.between(0, HERD)
        } else {
            self.dice.spread(1_000, 4 * SECOND)
        };
        self.turn_after(host, resource, after);
    }

    /// What a daemon notices by itself.
    pub(crate) fn look_at_resources(&mut self, host: usize) {
        for resource in 0..self.settings.resources {
            let r = &self.hosts[host].resources[usize::from(resource)];
            match r.stage {
                // A planned turn may have come while there was no lockspace.
                Stage::Idle if self.dice.per_mille(100) => {
                    let serial = r.serial;
                    self.turn(host, resource, serial);
                }
                // The connection of a process that ended is closed.
                Stage::Held(held) if r.process.is_none() => self.release(host, resource, held),
                _ => {}
            }
        }
    }

    pub(crate) fn turn(&mut self, host: usize, resource: u8, serial: u32) {
        let h = &self.hosts[host];
        if !h.runs() || h.resources[usize::from(resource)].serial != serial {
            if h.is_paused() && h.resources[usize::from(resource)].serial == serial {
                self.turn_after(host, resource, SECOND);
            }
            return;
        }
        let alive = h.generation(self.now).is_some();
        match self.stage(host, resource) {
            Stage::Idle if alive => self.acquire(host, resource),
            Stage::Held(held) if alive || self.hosts[host].reference => self.release(host, resource, held),
            Stage::Later(then) if alive => self.act(host, resource, then),
            Stage::Later(_) => self.idle(host, resource), // the resource thread gives up with its lockspace
            Stage::Acquiring => {
                self.hosts[host].resources[usize::from(resource)].client_alive = false;
                self.deliver(host, JobKey::Resource(resource), Input::Tick);
            }
            _ => {}
        }
    }

    fn acquire(&mut self, host: usize, resource: u8) {
        let Some(generation) = self.hosts[host].generation(self.now) else { return };
        if self.hosts[host].resources[usize::from(resource)].process.is_some() {
            return;
        }
        let config = self.config(host, generation, resource);
        let options = AcquireOptions {
            owner_nowait: self.dice.per_mille(600),
            seed: self.dice.any(),
            ..AcquireOptions::default()
        };
        self.hosts[host].resources[usize::from(resource)].client_alive = true;
        self.set_stage(host, resource, Stage::Acquiring);
        if !self.calm && self.dice.per_mille(50) {
            // The process dies while it waits.
            let after = self.dice.spread(100, 20 * SECOND);
            self.turn_after(host, resource, after);
        }
        let work = if self.hosts[host].reference {
            Work::ReferenceAcquire(ReferenceAcquire::new(config, options))
        } else {
            Work::Acquire(PaxosAcquire::new(config, options))
        };
        self.start(host, JobKey::Resource(resource), work);
    }

    pub(crate) fn acquire_done(&mut self, host: usize, key: JobKey, outcome: AcquireOutcome) {
        let JobKey::Resource(resource) = key else { return };
        match outcome {
            AcquireOutcome::Acquired(held) => self.acquired(host, resource, held),
            AcquireOutcome::Failed { error, retract, .. } => {
                self.mark(&error);
                let then = if retract { Then::Retract } else { Then::Nothing };
                self.settle(host, resource, then);
            }
        }
    }

    fn mark(&mut self, error: &AcquireError) {
        let marks = &mut self.checks.marks;
        match error {
            AcquireError::Live(_) => marks.refused_live += 1,
            AcquireError::Other(_) => marks.adopted += 1,
            AcquireError::Owned(_) => marks.lost += 1,
            AcquireError::Newer { .. } => marks.ahead_of_leader += 1,
            AcquireError::Driver => {
                let code = ReturnCode::from(error);
                self.checks.violations.push(format!("a machine was driven against its rules: {code:?}"));
            }
            _ => {}
        }
    }

    /// The last look before the lease is handed to the process: same life of the lockspace, process still there (CE8).
    fn acquired(&mut self, host: usize, resource: u8, held: Held) {
        let generation = self.hosts[host].generation(self.now);
        let same = generation == Some(held.leader.owner_generation.get()) || self.hosts[host].reference;
        let r = &self.hosts[host].resources[usize::from(resource)];
        match generation {
            Some(generation) if same && r.client_alive => {
                if held.leader.timestamp.get() != 0 {
                    self.grant(host, resource, generation, held);
                }
            }
            Some(_) => self.release(host, resource, held),
            None => self.settle(host, resource, Then::Nothing),
        }
    }

    fn grant(&mut self, host: usize, resource: u8, generation: u64, held: Held) {
        self.say(|w| format!("{:?} GRANTED resource {resource} version {}", w.hosts[host].id, held.lver()));
        let writer = self.writer(host);
        self.checks.grant(resource, writer, generation, &held, &self.disk);
        self.set_stage(host, resource, Stage::Held(held));
        let calm = self.calm;
        let r = &mut self.hosts[host].resources[usize::from(resource)];
        r.process = Some(r.serial);
        r.granted_in_calm += u64::from(calm);
        let longest = if calm { 500_000 } else { self.settings.hold_ms * 1000 };
        let hold = self.dice.spread(10, longest);
        if !calm && self.dice.per_mille(100) {
            let (epoch, serial) =
                (self.hosts[host].epoch, self.hosts[host].resources[usize::from(resource)].serial);
            self.at(self.now + hold, Event::ProcessExit { host, epoch, resource, serial });
        } else {
            self.turn_after(host, resource, hold);
        }
    }

    /// A process ends, by itself or killed. Its daemon notices when it looks.
    pub(crate) fn process_exit(&mut self, host: usize, resource: u8, serial: u32) {
        let r = &mut self.hosts[host].resources[usize::from(resource)];
        if r.process == Some(serial) {
            r.process = None;
            let id = self.hosts[host].id;
            self.checks.dropped(resource, id);
            self.say(|_| format!("{id:?} process of resource {resource} is gone"));
        }
    }

    /// The release is accepted: from here on nobody on this host holds the resource.
    fn release(&mut self, host: usize, resource: u8, held: Held) {
        let id = self.hosts[host].id;
        self.hosts[host].resources[usize::from(resource)].process = None;
        self.checks.dropped(resource, id);
        let generation = held.leader.owner_generation.get();
        let config = self.config(host, generation, resource);
        if self.hosts[host].reference {
            self.set_stage(host, resource, Stage::Releasing(Some(held)));
            let work = Work::ReferenceRelease(ReferenceRelease::new(config, held));
            self.start(host, JobKey::Resource(resource), work);
        } else {
            self.set_stage(host, resource, Stage::Releasing(None));
            self.start(host, JobKey::Resource(resource), Work::Release(PaxosRelease::new(config, held)));
        }
    }

    pub(crate) fn release_done(&mut self, host: usize, key: JobKey, outcome: ReleaseOutcome) {
        let JobKey::Resource(resource) = key else { return };
        let Stage::Releasing(reference_held) = self.stage(host, resource) else { return };
        match outcome.result {
            Ok(Released::LeaderFreed) => self.checks.marks.released += 1,
            Ok(_) => self.checks.marks.retracted += 1,
            Err(_) => {}
        }
        let then = match outcome.result {
            Ok(_) if outcome.needs_retract() && !self.hosts[host].reference => Then::Retract,
            Err(e) if e.is_retryable() => reference_held.map_or(Then::Retract, Then::ReleaseAgain),
            Err(e @ (ReleaseError::Driver | ReleaseError::Owner { .. })) if !self.hosts[host].reference => {
                // A leader that we wrote last says what we wrote: nobody else writes one in our name and leaves our id in it.
                self.checks
                    .violations
                    .push(format!("a release of {:?} is refused: {e}", self.hosts[host].id));
                Then::Nothing
            }
            Ok(_) | Err(_) => Then::Nothing,
        };
        if then == Then::Nothing {
            self.settle(host, resource, then);
        } else {
            self.set_stage(host, resource, Stage::Settling(then));
            self.resource_settled(host, resource);
        }
    }

    /// R3: what follows waits until every write of the machine that just ended has settled.
    fn settle(&mut self, host: usize, resource: u8, then: Then) {
        self.set_stage(host, resource, Stage::Settling(then));
        self.resource_settled(host, resource);
    }

    pub(crate) fn resource_settled(&mut self, host: usize, resource: u8) {
        let Stage::Settling(then) = self.stage(host, resource) else { return };
        if self.late_writes(host, JobKey::Resource(resource)) > 0 && !self.hosts[host].reference {
            return;
        }
        match then {
            Then::Nothing => self.idle(host, resource),
            then => {
                self.set_stage(host, resource, Stage::Later(then));
                let after = self.dice.spread(1, SECOND);
                self.turn_after(host, resource, after);
            }
        }
    }

    fn act(&mut self, host: usize, resource: u8, then: Then) {
        let Some(generation) = self.hosts[host].generation(self.now) else { return };
        let config = self.config(host, generation, resource);
        let (work, held) = match then {
            Then::Nothing => return,
            Then::Retract if self.hosts[host].reference => {
                (Work::ReferenceRelease(ReferenceRelease::erase_all(config)), None)
            }
            Then::Retract => (Work::Release(PaxosRelease::retract(config, layout::GEOMETRY)), None),
            Then::ReleaseAgain(held) => {
                (Work::ReferenceRelease(ReferenceRelease::new(config, held)), Some(held))
            }
        };
        self.set_stage(host, resource, Stage::Releasing(held));
        self.start(host, JobKey::Resource(resource), work);
    }
}
