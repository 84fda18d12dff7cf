//! What a retract reads first: our block, of which it is not known what the attempt before left in it.

use super::*;
use crate::paxos::HostId;

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
}

impl OwnRead {
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
    }

    pub(super) fn after_read_block(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        read: &OwnRead,
    ) -> Step<ReleaseOutcome> {
        // Of the copies of the block that is furthest on: a disk may have kept the number of a ballot that got no further, from before.
        // And its value's ballot, where it has one: an attempt before this may have raised the other number, below.
        let ballot = read.best.map_or(0, |HostBlock { dblock, .. }| match dblock.bal.get() {
            0 => dblock.mbal.get(),
            bal => bal,
        });
        if self.hold.is_some_and(|hold| ballot > hold.dblock.mbal.get()) {
            return self.done(Ok(Released::NothingToDo));
        }
        // What we wrote ourselves, where no disk that answers has it.
        let attempt =
            self.attempt.filter(|left| read.best.is_some_and(|best| left.dblock.written_after(&best.dblock)));
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
