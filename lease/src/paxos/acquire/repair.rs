//! A leader that was rolled back (rule R9 of lease-algorithms.md 15.3, schedule CE3 of 13.7, weaknesses W8 and W9).
//!
//! A commit or a release that lands late, or only slowly, can overwrite a newer leader. By one version the ballots mend that by
//! themselves: the value chosen for the next version is found in the blocks and committed again. By two or more, a block is *ahead*: its
//! version is larger than the leader's next one.
//!
//! # The rule
//!
//! Let L be the leader's version and M the largest version of any block, with M > L + 1, in a second reading of everything.
//! Then the ballot is run for M, on the leader as read: the value accepted for M is committed again if there is one, else our own is
//! proposed. Two conditions come before it:
//!
//! * the owner that the leader names has been examined like any other and is gone, and
//! * no host that may be alive may own a version between L and M: none whose own block is at such a version, names itself, and is
//!   not marked RELEASED. Otherwise the acquire ends with [`AcquireError::Newer`], and says which host that is.
//!
//! # Why that is safe
//!
//! 1. *A block of version V proves that the owner of V − 1 is gone.* Its writer had seen a leader of V − 1 and found its owner released,
//!    dead or restarted; or followed this rule, and by induction another block of V proves it. To be gone is for ever: a value is
//!    not proposed twice. So M − 1 and everything before it are given up, and M may be decided by anybody.
//! 2. *Nothing after M is decided.* The owner of a version keeps its own block at that version while it owns it, on a majority of the
//!    disks; our read covers a majority too. Had M + 1 been decided, and its owner gone, a block of it would be there or
//!    one of M + 2: blocks of ours never go back to an older version, and the second look shows the largest.
//! 3. *For M there is one ballot,* whoever came to it by which way: one instance of Disk Paxos, whose value, if one may be
//!    chosen, every later ballot finds in the blocks. Then that owner is committed, and the next acquire examines it as usual: it holds the
//!    lease (-243), has given it up by flag, or is dead.
//!
//! Step 1 is where hosts of other programs come in. 3.8.5 moves on by one version from a leader it has examined, as we do. 5.1.1 goes
//! on from the largest block, whoever owns that version (CE3): its blocks prove nothing of the version before. The second condition
//! is for them, and for whatever else may put a block where it should not be. What 3.8.5 forgets of its own ballots (W1) takes a value from
//! step 3; that is as dangerous in a ballot for the leader's next version, and neither better nor worse here.
//!
//! # What else is stale in such a leader
//!
//! * `num_hosts`: a host with a larger id may own M. All blocks of the area are read, and the repaired leader covers those in use. (So
//!   they are wherever a value is found, or a leader in another host's name: one version is enough to hide a host.)
//! * A demanded version (`SANLK_RES_LVER`) that the stale leader meets was passed over: -240.
//! * The name: a rename after L is undone by whatever rolled the leader back, not by us; who asks for the other name finds it gone.
//! * SHORT_HOLD: an owner that entered shared mode at M has marked its block, and is found by its mode block.

use super::results::Round;
use super::silence::{Pass, Verdict};
use super::{AcquireOutcome, PaxosAcquire, Phase};
use crate::geometry::HostId;
use crate::machine::{Env, IoFailure, Step, View};
use crate::paxos::AcquireError;
use crate::paxos::blocks::each;
use crate::paxos::ops::Votes;
use crate::record::{HostBlock, RawLeader};
use crate::timing::MonoTime;
use crate::verify::{self, Purpose};

/// The newest block of a host that is ahead of the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    pub(super) host: HostId,
    lver: u64,
    /// Of the ballot in which its value was accepted, 0 without one.
    bal: u64,
    /// The generation with which it names itself, if it does.
    generation: Option<u64>,
    released: bool,
}

/// What the blocks say about the versions after the leader's: at most one entry for each host, ascending.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Claims(Vec<Claim>);

impl Claims {
    /// Takes in the blocks of one disk: those of a later version than the leader's. Of several disks the last value counts, and a mark
    /// wherever it is: it is set only once the lease is let go.
    pub(super) fn merge(&mut self, view: View<'_>, last: u64, leader: u64, own: HostId) {
        each(view, last, |host, block| {
            if block.dblock.lver.get() > leader && host != own {
                self.put(claim(host, block));
            }
        });
    }

    fn put(&mut self, new: Claim) {
        match self.0.binary_search_by_key(&new.host, |c| c.host) {
            Err(at) => self.0.insert(at, new),
            Ok(at) => {
                let old = &mut self.0[at];
                let key = |c: &Claim| (c.lver, c.bal);
                if key(&new) == key(old) {
                    old.released |= new.released;
                } else if key(&new) > key(old) {
                    *old = new;
                }
            }
        }
    }

    /// Keeps the hosts that may own a version before `ahead`.
    fn only_owners_before(&mut self, ahead: u64) {
        self.0.retain(|c| c.lver < ahead && c.generation.is_some() && !c.released);
    }
}

fn claim(host: HostId, block: &HostBlock) -> Claim {
    let d = &block.dblock;
    let names_itself = d.bal.get() > 0 && d.inp.get() == host.get();
    Claim {
        host,
        lver: d.lver.get(),
        bal: d.bal.get(),
        generation: names_itself.then(|| d.inp2.get()),
        released: d.is_released(),
    }
}

impl PaxosAcquire {
    /// A block is ahead of the leader as it was read: everything is read once more.
    pub(super) fn look_again(&mut self, now: MonoTime) -> Step<AcquireOutcome> {
        self.wide = true;
        self.read_leaders(now);
        self.submit(Phase::AgainLeader(Votes::default()))
    }

    pub(super) fn after_again_leader(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        leader: RawLeader,
    ) -> Step<AcquireOutcome> {
        if leader != self.leader {
            // Only a slow look: the leader has moved.
            return self.restart(now, env);
        }
        self.read_blocks(now);
        self.submit(Phase::AgainBlocks(Round::default(), Claims::default()))
    }

    pub(super) fn after_again_blocks(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        round: &Round,
        mut claims: Claims,
    ) -> Step<AcquireOutcome> {
        if let Err(e) = self.check_round(round) {
            return self.fail(e);
        }
        let Some((_, newest)) = round.blocks.newer else { return self.restart(now, env) };
        // Several disks: the copy of our block that is furthest on may be on one that did not answer this time.
        let ahead = newest.max(self.own.lver);
        if let Some(expected) = self.options.demand() {
            return self.fail(AcquireError::Lver { expected, found: ahead - 1 });
        }
        self.hosts_in_use = self.hosts_in_use.max(round.blocks.in_use);
        claims.only_owners_before(ahead);
        self.claims = claims;
        self.ahead = Some(ahead);
        self.seen_mbal = round.blocks.newer_mbal;
        self.judged = None;
        self.next_claim(now, env)
    }

    pub(super) fn next_claim(&mut self, now: MonoTime, env: &Env<'_>) -> Step<AcquireOutcome> {
        if let Err(e) = self.check_env(env) {
            return self.fail(e);
        }
        let Some(claim) =
            self.claims.0.iter().copied().find(|c| self.judged.is_none_or(|last| c.host > last))
        else {
            if let Some(step) = self.after_pass(now, env, Pass::Claims) {
                return step;
            }
            // Nobody is in the way.
            self.rounds += 1;
            self.leader_fresh = true;
            return self.start_ballot(now, env);
        };
        self.judged = Some(claim.host);
        if claim.host.get() > u64::from(self.config.geometry.max_hosts()) {
            // It has no host id in this lockspace: nothing can be said of it.
            return self.in_the_way(claim);
        }
        self.ops.read_delta(self.config.geometry.sector(), claim.host.delta_sector(), self.deadline(now));
        self.submit(Phase::ClaimDelta(claim, now, None))
    }

    pub(super) fn after_claim_delta(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        claim: Claim,
        asked: MonoTime,
        delta: Result<RawLeader, IoFailure>,
    ) -> Step<AcquireOutcome> {
        let delta = match delta {
            Ok(delta) => delta,
            Err(e) => return self.fail(AcquireError::Io(e)),
        };
        if let Err(e) = verify::delta(&delta, Some(&self.config.lockspace), Purpose::Use) {
            return self.fail(AcquireError::OwnerDelta(e));
        }
        let instance = (claim.host, claim.generation.unwrap_or_default());
        match self.judge(now, env, asked, instance, &delta) {
            Verdict::Alive => return self.in_the_way(claim),
            Verdict::LookAgain => self.is_to_look_again(now),
            Verdict::Gone => {}
        }
        self.next_claim(now, env)
    }

    /// Ends because of a host that may own a version between the leader's and the blocks'.
    fn in_the_way(&mut self, claim: Claim) -> Step<AcquireOutcome> {
        // What our own block may claim in the eyes of others is taken back, so that two hosts are not in each other's way for ever.
        let us = (self.config.host.get(), self.config.generation);
        self.tainted |= !self.own.released && self.own.value.is_some_and(|v| (v.host, v.generation) == us);
        self.fail(AcquireError::Newer {
            host: claim.host,
            generation: claim.generation.unwrap_or_default(),
            lver: claim.lver,
            ahead: self.next_lver(),
            leader: self.leader.lver.get(),
        })
    }
}
