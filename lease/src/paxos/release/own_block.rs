//! What a retract reads first: our block, of which it is not known what the attempt before left in it.

use super::probe::same_value;
use super::*;
use crate::paxos::HostId;
use crate::record::Dblock;

/// What was read of our block so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct OwnRead {
    /// The one furthest on.
    best: Option<HostBlock>,
    /// Largest ballot number on any disk.
    newest: u64,
    /// A disk says something else of a shared hold than it should.
    mode_differs: bool,
    /// A disk has a block without the flag.
    unmarked: bool,
    readable: u32,
    damaged: u32,
    io: Option<IoFailure>,
    bad: Option<DblockError>,
    /// What is wrong with the leader of a single disk, if something else than this lease lies there.
    other: Option<LeaderError>,
    /// Why it could not be read, so that anything may lie there.
    leader_unread: Option<IoFailure>,
}

impl OwnRead {
    /// What the leader of a single disk says.
    pub(super) fn leader(&mut self, leader: &Result<RawLeader, LeaderFail>) {
        match leader {
            Ok(_) => {}
            Err(LeaderFail::Leader(error)) => self.other = error.is_of_another().then_some(*error),
            Err(LeaderFail::Io(failure)) => self.leader_unread = Some(*failure),
        }
    }

    /// Whether the block that is furthest on is still the one that was known, but for what a release has done to it.
    fn is(&self, known: Option<HostBlock>) -> bool {
        self.best.zip(known).is_some_and(|(best, known)| is_of_hold(&best.dblock, &known.dblock))
    }

    /// What lies there instead of the lease, if so. Under another name it is this lease all the same where our block is the one that was
    /// known; and it may be where none was, or where our block cannot be read.
    fn instead(&self, known: Option<HostBlock>) -> Option<LeaderError> {
        let renamed = |error: &LeaderError| matches!(error, LeaderError::Resource { .. });
        let newer = self.best.is_some() && known.is_some() && !self.is(known);
        self.other.filter(|error| newer || !renamed(error))
    }

    /// A disk that was not read, or not seen to have this lease.
    pub(super) fn unread(&mut self, why: Option<IoFailure>) {
        self.io = self.io.or(why);
    }

    /// What a disk has, where `mode` is what our block says from now on.
    pub(super) fn put(&mut self, block: Result<HostBlock, IoFailure>, host: HostId, mode: ModeBlock) {
        let block = match block {
            Ok(block) => block,
            Err(e) => return self.unread(Some(e)),
        };
        if let Err(e) = verify::dblock(&block.dblock, host) {
            self.damaged += 1;
            self.bad = self.bad.or(Some(e));
            return;
        }
        self.readable += 1;
        self.newest = self.newest.max(block.dblock.mbal.get());
        self.mode_differs |= block.mode.is_shared() != mode.is_shared()
            || (mode.is_shared() && block.mode.generation != mode.generation);
        self.unmarked |= !block.dblock.is_released();
        if self.best.is_none_or(|best| block.dblock.written_after(&best.dblock)) {
            self.best = Some(block);
        }
    }
}

impl PaxosRelease {
    pub(super) fn read_block(&mut self, now: MonoTime) {
        for disk in 0..self.config.disks {
            let sector = self.config.host.block_sector();
            self.ops.read(disk, self.geometry.sector(), sector, 1, self.deadline(now), For::OwnBlock);
        }
        if self.config.disks == 1 {
            // Of several disks it was seen which have the lease. What has waited to be given up may have been formatted meanwhile.
            self.ask_for_leaders(now);
        }
    }

    pub(super) fn after_read_block(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        read: &OwnRead,
    ) -> Step<ReleaseOutcome> {
        if let Some(failure) = read.leader_unread {
            // As of several disks: before it is seen that this lease lies there nothing is written.
            return self.done(Err(ReleaseError::Io(failure)));
        }
        if let Some(other) = read.instead(self.hold.or(self.attempt)) {
            return self.done(Err(ReleaseError::Leader(other)));
        }
        // Of the copies of the block that is furthest on: a disk may have kept the number of a ballot that got no further, from before.
        // And its value's ballot, where it has one: an attempt before this may have raised the other number, below.
        let ballot = read.best.map_or(0, |HostBlock { dblock, .. }| match dblock.bal.get() {
            0 => dblock.mbal.get(),
            bal => bal,
        });
        if self.hold.is_some_and(|hold| ballot > hold.dblock.mbal.get()) {
            return self.done(Ok(Released::NothingToDo));
        }
        if self.value_waits() && read.readable >= self.config.majority() {
            self.looked = true;
            // It may be the next owner's by now.
            if read.is(self.hold) {
                return self.start(now, env);
            }
            self.value = None;
        }
        // What we wrote ourselves, where no disk that answers has it: not of a single one, from which it cannot have been away; and not of a
        // majority that has nothing at all. A value is written only when the ballot has begun on one, so that has been formatted since.
        let several = self.config.disks > 1;
        let is_behind = |left: &Dblock, best: &Dblock| !best.is_unused() && left.written_after(best);
        let attempt = self
            .attempt
            .filter(|left| several && read.best.is_some_and(|best| is_behind(&left.dblock, &best.dblock)));
        let unmarked = read.unmarked || attempt.is_some();
        let Some(mut block) = attempt.or(read.best).filter(|_| read.readable >= self.config.majority())
        else {
            // A disk that comes back may make the majority: only damage alone is final.
            let all_read = read.readable + read.damaged + self.ops.foreign() == u32::from(self.config.disks);
            return self.done(Err(match read.bad.filter(|_| all_read) {
                Some(bad) => ReleaseError::Dblock(bad),
                None => ReleaseError::Io(read.io.unwrap_or(self.ops.unread())),
            }));
        };
        if block.dblock.mbal.get() < read.newest {
            // No disk goes back to a ballot before its last.
            block.dblock.mbal = read.newest.into();
            block.dblock.seal();
        }
        // Whatever the last ballot got to: with a value of ours the flag gives that value up; with none it still speaks for an
        // older version that others may have committed in our name, whose flag phase 1 of the last ballot took away.
        if read.mode_differs || (!block.dblock.is_unused() && unmarked) {
            self.write_block(now, env, block)
        } else if self.other_name.is_some() {
            self.done(Ok(Released::ByFlag))
        } else {
            self.read_leader(now, env)
        }
    }
}

/// Whether our block is still the one with which the lease was held, but for what a release has done to it.
pub(super) fn is_of_hold(block: &Dblock, hold: &Dblock) -> bool {
    same_value(block, hold) || (hold.bal.get() == 0 && (block.lver, block.mbal) == (hold.lver, hold.mbal))
}
