//! Hosts that hold the lease shared, as an exclusive acquire finds them (lease-algorithms.md 5.4, rules R2 and R5 of 15.3).
//!
//! # When, and why then
//!
//! A host enters shared mode by owning a version for a moment, and its mode block is on disk before it gives that version up.
//! So every holder that an exclusive owner of version L must know shows in *any* read that follows the decision to try for L,
//! and phase 1's is one.
//!
//! * *Before the value is written* every holder found so far is judged. One that is alive refuses the acquire while nothing but
//!   our ballot number has been written (the original wins the lease first, and gives it back).
//! * *After the commit* each is read and judged once more, and the mode block of a dead one is cleared. Not before: the block
//!   belongs to a host that may have come back and takes part in the same ballot, and rewriting it would take its ballot values
//!   away. Once the version is decided, and ours, those say nothing more, and no later version can be begun.

use super::silence::{Pass, Verdict};
use super::{AcquireOutcome, Mode, PaxosAcquire, Phase};
use crate::geometry::HostId;
use crate::limits::DISKS_MAX;
use crate::machine::{Content, Env, IoFailure, Step, View};
use crate::paxos::AcquireError;
use crate::paxos::ops::{For, Tally};
use crate::record::{HostBlock, ModeBlock, RawLeader};
use crate::timing::MonoTime;
use crate::verify::{self, DblockError, Purpose};
use arrayvec::ArrayVec;

/// The block of a holder, from every disk that could be read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HolderBlocks {
    pub(super) host: HostId,
    blocks: ArrayVec<(u8, HostBlock), DISKS_MAX>,
    io: Option<IoFailure>,
    bad: Option<DblockError>,
}

impl HolderBlocks {
    fn new(host: HostId) -> Self {
        Self { host, blocks: ArrayVec::new(), io: None, bad: None }
    }

    pub(super) fn put(&mut self, disk: u8, result: Result<HostBlock, IoFailure>) {
        match result {
            Ok(block) => {
                // To be written back as it is, so it has to be worth that.
                if let Err(e) = verify::dblock(&block.dblock, self.host) {
                    self.bad = self.bad.or(Some(e));
                }
                let _full = self.blocks.try_push((disk, block));
            }
            Err(e) => self.io = self.io.or(Some(e)),
        }
    }

    /// The generation it holds the lease shared with. Of several disks the newest counts.
    ///
    /// A hold is one from when its mode block is on a majority of the disks, until it is gone from a majority: fewer copies are what a
    /// disk has kept that was away at the end. A disk that could not be read may have one.
    fn generation(&self, disks: u8, majority: u32) -> Option<u64> {
        let without = self.blocks.iter().filter(|(_, b)| !b.mode.is_shared()).count();
        let with = usize::from(disks).saturating_sub(without);
        let shared = self.blocks.iter().filter(|(_, b)| b.mode.is_shared());
        shared
            .map(|(_, b)| b.mode.generation.get())
            .max()
            .filter(|_| u32::try_from(with).unwrap_or(u32::MAX) >= majority)
    }
}

/// A look at a holder's delta lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HolderDelta {
    blocks: HolderBlocks,
    generation: u64,
    /// When the look began: what it shows may be as old.
    asked: MonoTime,
    delta: Option<Result<RawLeader, IoFailure>>,
}

impl HolderDelta {
    pub(super) fn put(&mut self, result: Result<View<'_>, IoFailure>) {
        let sector = self.blocks.host.delta_sector();
        self.delta = Some(
            result.and_then(|view| view.sector(sector).map(RawLeader::from_sector).ok_or(IoFailure::Short)),
        );
    }
}

impl PaxosAcquire {
    /// Phase 1 is done: whether the holders leave room for our value.
    pub(super) fn before_value(&mut self, now: MonoTime, env: &Env<'_>) -> Step<AcquireOutcome> {
        if self.options.mode == Mode::ShortHold {
            return self.write_value(now, env);
        }
        if self.foreseen == self.holders.len() {
            return self.write_value(now, env);
        }
        self.judged = None;
        self.next_holder(now, env)
    }

    /// The version is ours. What is left are the mode blocks of dead holders.
    pub(super) fn won(&mut self, now: MonoTime, env: &Env<'_>, leader: RawLeader) -> Step<AcquireOutcome> {
        if self.options.mode == Mode::ShortHold || self.holders.is_empty() {
            return self.acquired(leader);
        }
        self.won = Some(leader);
        self.judged = None;
        self.next_holder(now, env)
    }

    pub(super) fn next_holder(&mut self, now: MonoTime, env: &Env<'_>) -> Step<AcquireOutcome> {
        let Some(host) = self.holders.iter().copied().find(|h| self.judged.is_none_or(|last| *h > last))
        else {
            if let Some(step) = self.after_pass(now, env, Pass::Holders) {
                return step;
            }
            return match self.won {
                Some(leader) => self.acquired(leader),
                None => {
                    self.foreseen = self.holders.len();
                    self.write_value(now, env)
                }
            };
        };
        self.judged = Some(host);
        // Early, so that a long list of holders ends when it is pointless.
        if let Err(e) = self.check_env(env) {
            return self.fail(e);
        }
        for disk in 0..self.config.disks {
            let sector = host.block_sector();
            self.ops.read(disk, self.geometry.sector(), sector, 1, self.deadline(now), For::OwnerBlock);
        }
        self.submit(Phase::HolderBlock(HolderBlocks::new(host)))
    }

    pub(super) fn after_holder_block(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        blocks: HolderBlocks,
    ) -> Step<AcquireOutcome> {
        if let Some(bad) = blocks.bad {
            return self.fail(AcquireError::Dblock(bad));
        }
        if u32::try_from(blocks.blocks.len()).unwrap_or(0) < self.config.majority() {
            return self.fail(AcquireError::DblockRead(blocks.io.unwrap_or(self.ops.unread())));
        }
        let Some(generation) = blocks.generation(self.config.disks, self.config.majority()) else {
            return self.next_holder(now, env);
        };
        let host = blocks.host;
        if host.get() > u64::from(self.config.geometry.max_hosts()) {
            // It has no host id in this lockspace: nothing can be said of it.
            return self.fail(AcquireError::Shared { host, generation });
        }
        self.ops.read_delta(self.config.geometry.sector(), host.delta_sector(), self.deadline(now));
        self.submit(Phase::HolderDelta(HolderDelta { blocks, generation, asked: now, delta: None }))
    }

    pub(super) fn after_holder_delta(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        look: HolderDelta,
    ) -> Step<AcquireOutcome> {
        let HolderDelta { blocks, generation, asked, delta } = look;
        let host = blocks.host;
        let delta = match delta {
            Some(Ok(delta)) => delta,
            Some(Err(e)) => return self.fail(AcquireError::Io(e)),
            None => return self.fail(AcquireError::Driver),
        };
        if let Err(e) = verify::delta(&delta, Some(&self.config.lockspace), Purpose::Use) {
            return self.fail(AcquireError::OwnerDelta(e));
        }
        match self.judge(now, env, asked, (host, generation), &delta) {
            Verdict::Alive => self.fail(AcquireError::Shared { host, generation }),
            Verdict::LookAgain => {
                self.is_to_look_again(now);
                self.next_holder(now, env)
            }
            Verdict::Gone if self.won.is_none() => self.next_holder(now, env),
            Verdict::Gone => self.clear_holder(now, env, &blocks),
        }
    }

    /// Takes a dead holder's mode block away and leaves its ballot record as it is (rule R2).
    fn clear_holder(&mut self, now: MonoTime, env: &Env<'_>, blocks: &HolderBlocks) -> Step<AcquireOutcome> {
        if let Err(e) = self.check_env(env) {
            return self.fail(e);
        }
        let mut tally = Tally::default();
        for (disk, block) in &blocks.blocks {
            let cleared = Content::Block(HostBlock { mode: ModeBlock::zeroed(), ..*block });
            let sector = blocks.host.block_sector();
            if !self.ops.write(*disk, self.geometry.sector(), sector, cleared, self.deadline(now)) {
                tally.not_started(self.ops.unseen(*disk));
            }
        }
        self.submit_writes(now, env, Phase::ClearHolder(tally))
    }

    pub(super) fn after_clear(&mut self, now: MonoTime, env: &Env<'_>, tally: Tally) -> Step<AcquireOutcome> {
        if tally.ok < self.config.majority() {
            return self.fail(AcquireError::DblockWrite(tally.failure()));
        }
        self.next_holder(now, env)
    }
}
