//! The owner named by the leader: is it alive, dead, or has it given the lease up (lease-algorithms.md 4.3, 4.4)?

use super::{AcquireOutcome, PaxosAcquire, Phase, Then};
use crate::geometry::HostId;
use crate::hosts::{HostSeen, Written, judged_by};
use crate::machine::{Env, IoFailure, Step};
use crate::paxos::ops::{For, Votes};
use crate::paxos::{AcquireError, Value};
use crate::record::{HostBlock, RawLeader};
use crate::timing::MonoTime;
use crate::verify::{self, DblockError, LeaderError, Purpose};

/// Milliseconds between the first two looks at an owner that is not known to be alive. A short one, for as a rule it lives: our
/// own last look at its host_id lease fell just before its renewal, and by the next one it has given the lease up. Each pause is
/// twice the one before. An attempt that starts over goes on where it was, so that the rounds it may have last.
pub(super) const FIRST_PAUSE: u64 = 10;
/// Milliseconds between two looks at an owner that stays silent (lease-algorithms.md 4.3 step 8).
const LAST_PAUSE: u64 = 1000;

/// How long an owner has been silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Watch {
    /// The table's entry, taken once (lease-algorithms.md 4.3), if it is of the leader's owner.
    pub(super) entry: Option<HostSeen>,
    /// Whether that is so old that it says nothing.
    pub(super) stale: bool,
    /// Since when `seen` has not changed.
    pub(super) start: MonoTime,
    /// What its record says, once known.
    pub(super) seen: Option<Written>,
    /// When the look under way began. What it brings may be as old as that.
    pub(super) asked: MonoTime,
    /// When we began to look at it.
    pub(super) began: MonoTime,
}

/// The owner's block as read from several disks: the one written last counts, for a disk may have missed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct OwnerBlocks {
    pub(super) readable: u32,
    pub(super) best: Option<HostBlock>,
    pub(super) io: Option<IoFailure>,
    pub(super) bad: Option<DblockError>,
}

impl OwnerBlocks {
    pub(super) fn put(&mut self, result: Result<HostBlock, IoFailure>, owner: HostId) {
        match result {
            Ok(block) => match verify::dblock(&block.dblock, owner) {
                Ok(()) => {
                    self.readable += 1;
                    if self.best.is_none_or(|best| block.dblock.written_after(&best.dblock)) {
                        self.best = Some(block);
                    }
                }
                Err(e) => self.bad = self.bad.or(Some(e)),
            },
            Err(e) => self.io = self.io.or(Some(e)),
        }
    }
}

impl PaxosAcquire {
    pub(super) fn owner(&self) -> Result<HostId, AcquireError> {
        let found = self.leader.owner_id.get();
        let max = u64::from(self.config.geometry.max_hosts());
        HostId::new(found)
            .filter(|_| found <= max)
            .ok_or(AcquireError::Leader(LeaderError::Owner { found, max }))
    }

    pub(super) fn examine_owner(&mut self, now: MonoTime, env: &Env<'_>) -> Step<AcquireOutcome> {
        let owner = match self.owner() {
            Ok(owner) => owner,
            Err(e) => return self.fail(e),
        };
        self.last_error = AcquireError::NotYetDead(self.owner_info(&self.leader));
        let entry = env.hosts.seen(owner).filter(|e| {
            e.last_live.is_some()
                && e.owner_id == owner.get()
                && e.owner_generation == self.leader.owner_generation.get()
        });
        self.watch = Some(Watch {
            entry,
            stale: false,
            start: entry.and_then(|e| e.last_live).unwrap_or(now),
            seen: entry.map(|e| e.written()),
            asked: now,
            began: now,
        });
        self.read_owner_delta(now, owner)
    }

    pub(super) fn read_owner_delta(&mut self, now: MonoTime, owner: HostId) -> Step<AcquireOutcome> {
        if let Some(watch) = &mut self.watch {
            watch.asked = now;
        }
        self.ops.read_delta(self.config.geometry.sector(), owner.delta_sector(), self.deadline(now));
        self.submit(Phase::OwnerDelta(None))
    }

    /// One look at the owner's delta lease (lease-algorithms.md 4.3).
    pub(super) fn after_owner_delta(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        delta: Result<RawLeader, IoFailure>,
    ) -> Step<AcquireOutcome> {
        let delta = match delta {
            Ok(delta) => delta,
            Err(e) => return self.fail(AcquireError::Io(e)),
        };
        if let Err(e) = verify::delta(&delta, Some(&self.config.lockspace), Purpose::Use) {
            return self.fail(AcquireError::OwnerDelta(e));
        }
        let Some(mut watch) = self.watch else { return self.fail(AcquireError::Driver) };
        let host = match self.owner() {
            Ok(host) => host,
            Err(e) => return self.fail(e),
        };
        let (generation, owner) = (delta.owner_generation.get(), self.leader.owner_generation.get());
        // A free record of an *older* generation is the release of an earlier instance that landed late: it says nothing of the
        // instance that owns. That one is silent then, and waited for like any other. Nor does a record of another host id say anything:
        // the lockspace was formatted meanwhile, or something was written to the wrong place, while the owner may be at work.
        let gone = delta.owner_id == self.leader.owner_id
            && (generation > owner || (generation == owner && delta.timestamp.get() == 0));
        if gone {
            return self.owner_gone(now);
        }
        let written = Written::of(&delta);
        if self.has_stale_entry(&watch) {
            // That the record has changed since is no news. If it has not, the owner is silent for all that time.
            watch.seen = watch.seen.filter(|seen| *seen == written);
            (watch.entry, watch.stale) = (None, true);
            self.watch = Some(watch);
        }
        match watch.seen {
            None => {
                let stale = watch.stale;
                watch.seen = Some(written);
                watch.start = self.silent_since((host, owner), written, stale, now);
                self.watch = Some(watch);
                // Of an earlier round of this attempt it may be known for long.
                if self.is_silent(&watch, env, &delta, host) {
                    return self.owner_gone(now);
                }
            }
            Some(seen) if seen != written || Self::just_seen_alive(&watch) => return self.owner_alive(now),
            Some(_) => {
                if self.is_silent(&watch, env, &delta, host) {
                    return self.owner_gone(now);
                }
                if self.options.owner_nowait {
                    let info = self.owner_info(&self.leader);
                    return self.fail(AcquireError::NotYetDead(info));
                }
            }
        }
        match self.check_env(env) {
            Ok(()) => {
                let until = self.after_pause(now);
                self.phase = Phase::OwnerPoll(until);
                Step::Wait(until)
            }
            Err(e) => self.fail(e),
        }
    }

    /// Whether the owner, with this record, was silent for as long as it takes to be dead. Until the look began: a look may take as long as our
    /// io timeout, and an owner with a much shorter one has renewed many times by its end.
    fn is_silent(&self, watch: &Watch, env: &Env<'_>, delta: &RawLeader, owner: HostId) -> bool {
        let generation = self.leader.owner_generation.get();
        let seen = env.hosts.seen(owner);
        let io_timeout = judged_by(delta, generation, seen.as_ref(), self.config.io_timeout);
        watch.asked.secs_since(watch.start) > io_timeout.host_dead_secs(self.config.fire)
    }

    /// Nobody owns the lease any more.
    fn owner_gone(&mut self, now: MonoTime) -> Step<AcquireOutcome> {
        self.watch_is_over(now);
        self.reread_leader(now, Then::Ballot)
    }

    /// The time for which an owner was waited for is none of contending.
    pub(super) fn watch_is_over(&mut self, now: MonoTime) {
        if let Some(watch) = self.watch.take() {
            self.waited_since(watch.began, now);
        }
    }

    /// From then on hosts were waited for, and nothing was contended for.
    pub(super) fn waited_since(&mut self, began: MonoTime, now: MonoTime) {
        let waited = now.millis_since(began);
        self.contending_since = self.contending_since.map(|since| since.plus_millis(waited));
    }

    /// When to look at hosts that are silent again.
    pub(super) fn after_pause(&mut self, now: MonoTime) -> MonoTime {
        let until = now.plus_millis(self.next_look);
        self.next_look = (2 * self.next_look).min(LAST_PAUSE);
        until
    }

    /// Whether our looks at the hosts do not reach the owner any more, so that what the table knows of it is as old as this: the sectors beside
    /// its own cannot be read, say. It would seem alive for ever, renewed once since the last look, or when that was made.
    fn has_stale_entry(&self, watch: &Watch) -> bool {
        let age = watch.entry.map_or(0, |entry| watch.began.secs_since(entry.last_check));
        age > self.config.io_timeout.renewal_fail_secs()
    }

    /// Whether the last renewal read saw the owner's record change. The first look at a host is no change (weakness W11).
    pub(super) fn just_seen_alive(watch: &Watch) -> bool {
        watch.entry.is_some_and(|e| e.last_live == Some(e.last_check) && e.last_check != e.first_check)
    }

    /// The owner is alive (lease-algorithms.md 4.4): refused, unless somebody else wrote the leader in its name and its own
    /// block says that it has released. The same where a majority has another leader: releasing, the owner may have seen that one,
    /// and left its flag alone.
    pub(super) fn owner_alive(&mut self, now: MonoTime) -> Step<AcquireOutcome> {
        if self.leader.write_id == self.leader.owner_id && self.agreed {
            let info = self.owner_info(&self.leader);
            return self.fail(AcquireError::Live(info));
        }
        let owner = match self.owner() {
            Ok(owner) => owner,
            Err(e) => return self.fail(e),
        };
        for disk in 0..self.config.disks {
            let sector = owner.block_sector();
            self.ops.read(disk, self.geometry.sector(), sector, 1, self.deadline(now), For::OwnerBlock);
        }
        self.submit(Phase::OwnerBlock(OwnerBlocks::default()))
    }

    pub(super) fn after_owner_block(&mut self, now: MonoTime, blocks: &OwnerBlocks) -> Step<AcquireOutcome> {
        if let Some(bad) = blocks.bad {
            return self.fail(AcquireError::Dblock(bad));
        }
        // A minority may have missed that the mark it shows is gone.
        let Some(block) = blocks.best.filter(|_| blocks.readable >= self.config.majority()) else {
            return self.fail(AcquireError::Io(blocks.io.unwrap_or(self.ops.unread())));
        };
        // The flag speaks for the leader's version. A block of version 0 was erased by the original, which does that only
        // after it gave the lease up. A host takes part in a later version only after it gave this one up, with or without a
        // flag; should it have won that later version, our ballot finds its value and commits it.
        let (lver, ours) = (block.dblock.lver.get(), self.leader.lver.get());
        if lver > ours || (block.dblock.is_released() && (lver == ours || lver == 0)) {
            self.watch_is_over(now);
            return self.reread_leader(now, Then::Ballot);
        }
        let info = self.owner_info(&self.leader);
        self.fail(AcquireError::Live(info))
    }

    pub(super) fn reread_leader(&mut self, now: MonoTime, then: Then) -> Step<AcquireOutcome> {
        self.read_leaders(now);
        self.submit(Phase::Leader(Votes::default(), then))
    }

    /// Whether the owner that we watch has taken the lease anew since we read the leader: it has written a later version itself.
    /// That is a sign of life like a renewal. Of a dead owner one such write may land late, which refuses one attempt; the next
    /// one reads that leader first, and nothing follows it. What others write in its name says nothing of it.
    fn taken_again(&self, leader: &RawLeader) -> bool {
        leader.owner_id == self.leader.owner_id
            && leader.owner_generation == self.leader.owner_generation
            && leader.write_id == leader.owner_id
            && leader.timestamp.get() != 0
            && leader.lver.get() > self.leader.lver.get()
    }

    pub(super) fn after_leader(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        leader: RawLeader,
        then: Then,
    ) -> Step<AcquireOutcome> {
        if then == Then::Watch {
            if leader == self.leader {
                return match self.owner() {
                    Ok(owner) => self.read_owner_delta(now, owner),
                    Err(e) => self.fail(e),
                };
            }
            if self.taken_again(&leader) {
                let info = self.owner_info(&leader);
                return self.fail(AcquireError::Live(info));
            }
            return self.restart(now, env);
        }
        let next = self.next_lver();
        if leader.lver.get() == next {
            let committed = Value {
                host: leader.owner_id.get(),
                generation: leader.owner_generation.get(),
                timestamp: leader.timestamp.get(),
            };
            if self.proposed == Some((next, committed)) {
                // Somebody committed the very value this attempt proposed.
                return self.won(now, env, leader);
            }
            if committed.host != self.config.host.get() {
                // The version is decided, and not for us: what we wrote for it means nothing any more.
                self.tainted = false;
                let info = self.owner_info(&leader);
                return self.fail(AcquireError::Owned(info));
            }
            // An older value of ours; as after a commit of it.
            return self.restart(now, env);
        }
        if leader != self.leader {
            self.last_error = AcquireError::Owned(self.owner_info(&leader));
            return self.restart(now, env);
        }
        self.leader_fresh = true;
        self.start_ballot(now, env)
    }
}
