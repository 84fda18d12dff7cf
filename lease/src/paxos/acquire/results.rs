//! What operations bring: how the results of one phase are gathered, and what the leaders of several disks say together.

use super::{LeaderVotes, PaxosAcquire, Phase};
use crate::geometry::HostId;
use crate::limits::DISKS_MAX;
use crate::machine::{IoFailure, View};
use crate::paxos::blocks::Blocks;
use crate::paxos::ops::{For, Ops, Verdict};
use crate::paxos::own::OwnBlock;
use crate::paxos::{AcquireError, LeaderFail};
use crate::record::{HostBlock, RawLeader};
use crate::verify::{self, DblockError};
use arrayvec::ArrayVec;

/// One read of a ballot: the blocks of all hosts, and the leaders that lie before them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Round {
    pub(super) blocks: Blocks,
    pub(super) leaders: LeaderVotes,
    /// The largest number of hosts that any of these leaders names.
    pub(super) num_hosts: u64,
    pub(super) io: Option<IoFailure>,
}

/// Our own block as read from several disks, before it is known which of them are foreign.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct OwnVotes(ArrayVec<(u8, Result<HostBlock, IoFailure>), DISKS_MAX>);

/// What they come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct OwnRead {
    pub(super) block: OwnBlock,
    pub(super) io: Option<IoFailure>,
    pub(super) bad: Option<DblockError>,
}

impl OwnVotes {
    fn put(&mut self, disk: u8, result: Result<HostBlock, IoFailure>) {
        let _full = self.0.try_push((disk, result));
    }

    /// Those of the disks that have this lease.
    pub(super) fn read(&self, host: HostId, ops: &Ops) -> OwnRead {
        let mut read = OwnRead::default();
        for (_, result) in self.0.iter().filter(|(disk, _)| ops.is_known(*disk)) {
            match result {
                Ok(block) => match verify::dblock(&block.dblock, host) {
                    Ok(()) => read.block.merge(&block.dblock),
                    Err(e) => read.bad = read.bad.or(Some(e)),
                },
                Err(e) => read.io = read.io.or(Some(*e)),
            }
        }
        read
    }
}

impl PaxosAcquire {
    /// Takes in the result of one operation of the current phase.
    pub(super) fn record(&mut self, disk: u8, purpose: For, result: Result<View<'_>, IoFailure>) {
        debug_assert!(usize::from(disk) < DISKS_MAX);
        let mut phase = std::mem::replace(&mut self.phase, Phase::Done);
        match (&mut phase, purpose) {
            (
                Phase::First { leaders, .. } | Phase::Leader(leaders, _) | Phase::AgainLeader(leaders),
                For::Leader,
            ) => {
                let leader = self.config.decode_leader(result);
                self.ops.found(disk, &leader);
                leaders.put(leader);
            }
            (Phase::First { own, .. } | Phase::Own(own), For::OwnBlock) => {
                own.put(disk, host_block(result, self.config.host));
            }
            (Phase::OwnerDelta(delta), For::Delta) => {
                let sector = self.owner().map_or(0, HostId::delta_sector);
                *delta = Some(result.and_then(|view| {
                    view.sector(sector).map(RawLeader::from_sector).ok_or(IoFailure::Short)
                }));
            }
            (Phase::OwnerBlock(_) | Phase::HolderBlock(_), For::OwnerBlock) if !self.ops.is_known(disk) => {}
            (Phase::OwnerBlock(blocks), For::OwnerBlock) => {
                if let Ok(owner) = self.owner() {
                    blocks.put(host_block(result, owner), owner);
                }
            }
            (Phase::HolderBlock(blocks), For::OwnerBlock) => {
                let host = blocks.host;
                blocks.put(disk, host_block(result, host));
            }
            (Phase::HolderDelta(look), For::Delta) => look.put(result),
            (
                Phase::Write1(tally)
                | Phase::Write2(tally)
                | Phase::Commit(tally, _)
                | Phase::ClearHolder(tally),
                For::Write,
            ) => tally.count(&result),
            (Phase::AgainBlocks(round, claims), For::Blocks) => {
                self.record_round(disk, round, result);
                if let Some(view) = result.ok().filter(|_| self.ops.is_known(disk)) {
                    claims.merge(view, self.last_host(), self.leader.lver.get(), self.config.host);
                }
            }
            (Phase::Read1(round) | Phase::Read2(round), For::Blocks) => {
                self.record_round(disk, round, result);
            }
            (Phase::ClaimDelta(claim, _, delta), For::Delta) => {
                let sector = claim.host.delta_sector();
                *delta = Some(result.and_then(|view| {
                    view.sector(sector).map(RawLeader::from_sector).ok_or(IoFailure::Short)
                }));
            }
            _ => {}
        }
        self.phase = phase;
    }

    fn record_round(&mut self, disk: u8, round: &mut Round, result: Result<View<'_>, IoFailure>) {
        match result {
            Ok(view) => {
                let leader = self.config.decode_leader(Ok(view));
                self.ops.found(disk, &leader);
                if self.ops.is_known(disk) {
                    round.blocks.merge(view, self.last_host(), self.next_lver(), self.config.host);
                }
                let num_hosts = leader.as_ref().map_or(0, |l| l.num_hosts.get());
                round.num_hosts = round.num_hosts.max(num_hosts);
                round.leaders.put(leader);
            }
            Err(e) => round.io = round.io.or(Some(e)),
        }
    }

    pub(super) fn leader_verdict(&self, votes: &LeaderVotes) -> Result<RawLeader, AcquireError> {
        let disks = self.config.disks;
        match votes.verdict(disks, self.config.majority(), in_the_owners_name) {
            // Taken from whoever it names, it becomes the next version, which is then written to every disk.
            Verdict::Leader(leader) | Verdict::Newest(leader) => Ok(leader),
            Verdict::Failed(LeaderFail::Io(e)) => Err(AcquireError::Io(e)),
            Verdict::Failed(LeaderFail::Leader(e)) => Err(AcquireError::Leader(e)),
            Verdict::TooFew(readable, other) => Err(AcquireError::LeaderRead { readable, disks, other }),
            Verdict::Differ => Err(AcquireError::LeaderDiff),
        }
    }

    pub(super) fn is_agreed(&self, votes: &LeaderVotes) -> bool {
        matches!(
            votes.verdict(self.config.disks, self.config.majority(), in_the_owners_name),
            Verdict::Leader(_)
        )
    }
}

/// Whether somebody else wrote the leader in the owner's name. Then the owner may have released it by flag alone.
pub(in crate::paxos) fn in_the_owners_name(leader: &RawLeader) -> bool {
    leader.write_id != leader.owner_id
}

pub(in crate::paxos) fn host_block(
    result: Result<View<'_>, IoFailure>,
    host: HostId,
) -> Result<HostBlock, IoFailure> {
    result
        .and_then(|view| view.sector(host.block_sector()).map(HostBlock::from_sector).ok_or(IoFailure::Short))
}
