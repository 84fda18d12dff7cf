//! From exclusive to shared while a process goes on using the lease, and on several disks (lease-algorithms.md 5.2 steps 2 and 3, 6.6).
//!
//! The mode block is announced first, beside the ownership and without the flag; everything else follows once it is known to be on disk. On a single
//! disk two steps do it (docs/decisions/0025): the leader is read beside the announcement, and if it is ours to free it is freed
//! beside the mark. Neither has to wait for the other: a leader that is freed before our block is marked leaves what a mark that failed leaves, and
//! the hold that the mode block stands for.

use super::*;

impl PaxosRelease {
    pub(super) fn announce(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        block: HostBlock,
    ) -> Step<ReleaseOutcome> {
        let block = HostBlock { mode: self.mode, ..block };
        match self.write_all(now, env, self.config.host.block_sector(), &Content::Block(block)) {
            Ok(tally) => {
                if self.config.disks == 1 {
                    self.ask_for_leaders(now);
                }
                self.submit(now, env, Phase::Announce(tally, Votes::default()))
            }
            Err(e) => self.done(Err(e)),
        }
    }

    /// What was read beside an announcement that had to be waited for is not used: it may be any number of io timeouts old.
    pub(super) fn after_announce(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        tally: Tally,
        leaders: &Votes<LeaderFail>,
    ) -> Step<ReleaseOutcome> {
        let What::Exclusivity(held) = self.what else { return self.done(Err(ReleaseError::Driver)) };
        if tally.ok >= self.config.majority() {
            self.announced = true;
            return match self.to_free_at_once(leaders) {
                Some(leader) => self.mark_and_free(now, env, held.block, leader),
                None => self.write_block(now, env, held.block),
            };
        }
        if self.patient && self.ops.outstanding() > 0 && self.may_write(env) && env.client_alive {
            self.phase = Phase::AwaitBlock(tally);
            return Step::Pending;
        }
        self.done(Err(ReleaseError::DblockWrite(tally.failure())))
    }

    /// A write of the mode block that had timed out has ended.
    pub(super) fn block_ended_late(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        landed: bool,
    ) -> Step<ReleaseOutcome> {
        let Phase::AwaitBlock(mut tally) = self.phase else { return Step::Pending };
        tally.ok += u32::from(landed);
        self.after_announce(now, env, tally, &Votes::default())
    }

    /// The leader that was read beside the announcement, if it is ours to free. In every other case it is read again, beside the mark; of several disks
    /// always.
    fn to_free_at_once(&self, leaders: &Votes<LeaderFail>) -> Option<RawLeader> {
        match leaders.verdict(self.config.disks, self.config.majority(), |_| true) {
            Verdict::Leader(leader) => matches!(self.judge(&leader), Ok(true)).then_some(leader),
            _ => None,
        }
    }

    fn mark_and_free(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        block: HostBlock,
        leader: RawLeader,
    ) -> Step<ReleaseOutcome> {
        let block = self.marked(block);
        let marking = match self.write_all(now, env, self.config.host.block_sector(), &Content::Block(block))
        {
            Ok(tally) => tally,
            Err(e) => return self.done(Err(e)),
        };
        let free = self.freed(now, leader);
        // Nothing of ours is outstanding here, and the disk answers. If it is not started after all, that is a write that has failed.
        let _started = self.ops.write_leader_beside(self.geometry.sector(), free, self.deadline(now));
        self.submit(now, env, Phase::MarkAndFree { marking, freeing: Tally::default() })
    }

    pub(super) fn after_mark_and_free(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        marking: Tally,
        freeing: Tally,
    ) -> Step<ReleaseOutcome> {
        if marking.ok < self.config.majority() {
            self.block_failure = Some(marking.failure());
        }
        self.after_write_leader(now, env, freeing)
    }
}
