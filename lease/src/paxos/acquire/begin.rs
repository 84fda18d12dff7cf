//! The beginning: the leader, its sizes, our own block, and whether a ballot may start (lease-algorithms.md 4.2).

use super::results::OwnVotes;
use super::{AcquireOutcome, Mode, PaxosAcquire, Phase};
use crate::machine::{Env, Step};
use crate::paxos::AcquireError;
use crate::paxos::ops::Votes;
use crate::record::RawLeader;
use crate::timing::MonoTime;
use crate::verify;

impl PaxosAcquire {
    pub(super) fn first_read(&mut self, now: MonoTime) -> Step<AcquireOutcome> {
        self.ahead = None;
        // Our own block is read along with the leader; its place is a guess until the sizes are known.
        self.read_leaders(now);
        self.read_own(now);
        self.submit(Phase::First { leaders: Votes::default(), own: OwnVotes::default() })
    }

    /// The leader is known: adopt its sizes, and go on to our own block.
    pub(super) fn after_first(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        leader: RawLeader,
        own: &OwnVotes,
    ) -> Step<AcquireOutcome> {
        let geometry = match verify::sizes(&leader) {
            Ok(geometry) => geometry,
            Err(e) => return self.fail(AcquireError::Leader(e)),
        };
        let guessed_right = geometry == self.geometry;
        self.geometry = geometry;
        self.leader = leader;
        // Committed in another host's name: that host may have asked for more hosts, and this be an older number.
        self.wide |= leader.write_id != leader.owner_id;
        if guessed_right {
            self.after_own(now, env, own)
        } else {
            self.read_own(now);
            self.submit(Phase::Own(OwnVotes::default()))
        }
    }

    /// Leader and own block are known: decide (lease-algorithms.md 4.2).
    pub(super) fn after_own(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        votes: &OwnVotes,
    ) -> Step<AcquireOutcome> {
        let votes = votes.read(self.config.host, &self.ops);
        if votes.block.readable < self.config.majority() {
            return self.fail(match (votes.bad, votes.io) {
                (Some(bad), _) => AcquireError::Dblock(bad),
                (None, Some(io)) if self.config.disks == 1 => AcquireError::Io(io),
                (None, io) => AcquireError::DblockRead(io.unwrap_or(self.ops.unread())),
            });
        }
        self.own = votes.block;
        if self.options.mode == Mode::Upgrade {
            self.own.shared = Some(self.config.generation);
        }
        self.seen_mbal = 0;
        let found = self.leader.lver.get();
        let free = self.leader.timestamp.get() == 0;
        let ours = self.leader.owner_id.get() == self.config.host.get();
        let generation = self.leader.owner_generation.get();
        // On disk we own it, but no process of ours does: a lost release, or a value of ours that somebody committed.
        self.tainted |= !free && ours && generation == self.config.generation;
        if let Some(expected) = self.options.demand().filter(|demand| *demand != found) {
            return self.fail(AcquireError::Lver { expected, found });
        }
        if let Err(e) = self.check_num_hosts() {
            return self.fail(e);
        }
        if found == u64::MAX {
            // Before anybody is waited for: the version after it (lease-algorithms.md 4.5) does not exist, and it itself is decided.
            return self.fail(AcquireError::LastVersion);
        }
        self.leader_fresh = true;
        if free || (ours && generation <= self.config.generation) {
            self.start_ballot(now, env)
        } else {
            self.examine_owner(now, env)
        }
    }

    pub(super) fn check_num_hosts(&self) -> Result<(), AcquireError> {
        let (min, max) = (self.config.host.get(), u64::from(self.geometry.max_hosts()));
        match self.options.num_hosts {
            Some(found) if found != 0 && !(min..=max).contains(&found) => {
                Err(AcquireError::NumHosts { found, min, max })
            }
            _ => Ok(()),
        }
    }
}
