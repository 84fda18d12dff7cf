//! Shared holds: what a host does to get one, to convert one, and what must hold of them.
//!
//! What the manager does around the machines is reduced as in [`crate::turn`]: a conversion that left a write in flight is waited
//! for, what it left in the leader is taken back once while the hold goes on, and a hold that may have left something is given up
//! by a retract. Two processes of one host are the manager's affair: the simulator has them.

use crate::checks::Property;
use crate::disk::{Contents, Resource};
use crate::host::{Host, Job, Then};
use crate::settings::{Kind, Plan};
use crate::turn::{self, Turn};
use crate::world::{State, World};
use sanlock_lease::paxos::acquire::{AcquireOptions, Mode};
use sanlock_lease::paxos::convert::ConvertOutcome;
use sanlock_lease::paxos::{AcquireError, Held, PaxosConvert, PaxosShare};
use sanlock_lease::record::Dblock;
use sanlock_sim::reference::ReferenceShare;

/// How often a shared acquire is tried again.
const RETRIES: u32 = 1;

impl Turn<'_> {
    /// Begins a shared acquire.
    pub(crate) fn share(&mut self, options: AcquireOptions) {
        let config = self.config();
        self.begin(match self.host.kind {
            Kind::Ours => {
                let options = AcquireOptions { mode: Mode::ShortHold, ..options };
                Job::Share(Box::new(PaxosShare::new(config, options, RETRIES)))
            }
            Kind::Reference => Job::ReferenceShare(Box::new(ReferenceShare::new(config, options))),
        });
    }

    /// A shared hold was taken: the process has it, and goes on to what it is for.
    pub(crate) fn shared(&mut self, held: Held) {
        self.effects.flags |= turn::SEEN_SHARED;
        self.host.sharing = Some(held.block.mode.generation.get());
        if self.host.kind == Kind::Ours && !self.host.late.is_empty() {
            self.settle_first(held);
        } else if self.host.plan == Plan::SharedThenUp {
            let options = AcquireOptions { owner_nowait: true, ..AcquireOptions::default() };
            let job = PaxosConvert::to_exclusive(self.config(), options, held);
            self.host.between = true;
            self.begin(Job::Convert(Box::new(job), Box::new(held)));
        } else {
            self.release(held);
        }
    }

    /// An exclusive hold was taken that is to become a shared one.
    pub(crate) fn lower(&mut self, held: Held) {
        let job = PaxosConvert::to_shared(self.config(), held);
        self.host.between = true;
        self.begin(Job::Convert(Box::new(job), Box::new(held)));
    }

    /// The moment anything becomes of the first write of a conversion to shared, others may come to share.
    pub(crate) fn lowering(&mut self) {
        let down = matches!(&self.host.job, Some(Job::Convert(_, before)) if !before.is_shared());
        if let Some(holding) = self.host.holding.take_if(|_| down) {
            self.host.lowering = Some(holding);
            self.host.sharing = Some(self.host.job_generation);
        }
    }

    /// A conversion has ended.
    pub(crate) fn convert_done(&mut self, outcome: &ConvertOutcome, outstanding: u32) {
        let up = matches!(&self.host.job, Some(Job::Convert(_, before)) if before.is_shared());
        self.ended();
        self.host.between = false;
        let lowered = self.host.lowering.take();
        let ConvertOutcome { result, held, erase, .. } = *outcome;
        if let Err(error) = &result {
            self.effects.flags |= turn::SEEN_CONVERT_FAILED;
            if matches!(error, AcquireError::Driver) {
                self.effects.flags |= turn::BROKE_REFUSED;
            }
        }
        match (result.is_ok(), up) {
            (true, true) if !self.host.erasing => {
                self.effects.flags |= turn::SEEN_UP;
                if self.host.sharing.take().is_some() {
                    self.holds(held);
                }
            }
            (true, _) if !self.host.erasing => self.effects.flags |= turn::SEEN_DOWN,
            (true, _) => {}
            (false, _) => {
                if lowered.is_some() {
                    self.host.holding = lowered;
                    self.host.sharing = None;
                }
            }
        }
        let first = !std::mem::replace(&mut self.host.erasing, false);
        if self.generation().is_none() {
            // Its processes are being stopped; whoever takes over settles the rest.
        } else if outstanding > 0 {
            self.host.settling = Some(Then::Retract);
        } else if erase && held.is_shared() && first {
            self.host.erasing = true;
            let job = PaxosConvert::erase(self.config(), held);
            self.begin(Job::Convert(Box::new(job), Box::new(held)));
        } else if erase {
            self.retract();
        } else {
            self.release(held);
        }
    }
}

impl World {
    /// S1 and S4 as far as shared holds are concerned.
    pub(crate) fn check_sharers(&self, state: &State, broken: &mut Vec<Property>) {
        let hosts = self.settings.hosts.len();
        let holder = (0..hosts).find(|h| self.host(state, *h).holding.is_some());
        for index in 0..hosts {
            let host = self.host(state, index);
            let Some(generation) = host.sharing else { continue };
            if holder.is_some() {
                broken.push(Property::OneOwner);
            }
            let disks = self.disks(state);
            let disks = &disks[..usize::from(self.settings.disks)];
            let says = |disk: &&Resource| {
                let mode = self.contents.block(disk.blocks[index]).mode;
                mode.is_shared() && mode.generation.get() == generation
            };
            if disks.iter().filter(says).count() <= disks.len() / 2 && !host.between {
                broken.push(Property::ModeBlockStays);
            }
        }
    }

    /// How many hosts share.
    pub(crate) fn sharers(&self, state: &State) -> usize {
        (0..self.settings.hosts.len()).filter(|h| self.host(state, *h).sharing.is_some()).count()
    }

    /// S12, S15: somebody else's block is written, to take a dead sharer's mode block away.
    pub(crate) fn foreign_block_lands(
        &mut self,
        before: &Resource,
        after: &Resource,
        (writer, owner): (usize, usize),
        (newest, sharer): (Option<(u64, u64)>, &Host),
    ) -> Vec<Property> {
        let mut broken = Vec::new();
        let old = self.contents.block(before.blocks[owner]);
        let new = self.contents.block(after.blocks[owner]);
        let (lver, newest_owner) = newest.unwrap_or_default();
        // An older ballot record is harmless where it can only be of the version that is decided.
        let keeps =
            new.dblock == old.dblock || (new.dblock != Dblock::zeroed() && old.dblock.lver.get() <= lver);
        if new.mode.is_shared() || newest_owner != writer as u64 + 1 || !keeps {
            broken.push(Property::NothingForeign);
        }
        if sharer.sharing.is_some() {
            broken.push(Property::SharersStay);
        }
        self.marks.modes_cleared += u64::from(old.mode.is_shared());
        broken
    }

    /// Whether anybody shares in this run.
    #[must_use]
    pub fn has_sharers(&self) -> bool {
        self.settings.plans.iter().flatten().any(|plan| *plan != Plan::Exclusive)
    }
}

/// The same block without its mode, for [`crate::Twist::ModesVanish`].
pub(crate) fn without_mode(contents: &mut Contents, content: u32) -> u32 {
    use sanlock_lease::machine::Content;
    use sanlock_lease::record::ModeBlock;
    match *contents.content(content) {
        Content::Block(mut block) => {
            block.mode = ModeBlock::zeroed();
            contents.number(&Content::Block(block))
        }
        Content::Leader(_) | Content::Value(_) | Content::Delta { .. } => content,
    }
}
