//! Taking a resource exclusively (lease-algorithms.md 4, rules R1–R4, R9, R10 of 15.3).
//!
//! # The I/O of an uncontended acquire, and why each is there
//!
//! 1. Read the leader and our own block, on several disks all at the same time. The leader decides whether a ballot may start;
//!    our own block holds the ballot number and perhaps the value that we must not forget (R1). Other blocks are not needed
//!    yet: of older versions they do not matter, of this version phase 1 reads them.
//! 2. Write our block: "I take part in ballot `mbal`".
//! 3. Read all blocks: a larger ballot ends ours, an accepted value binds us. *All* `num_hosts` blocks, because a host may
//!    start to take part at any time. The leader lies before the blocks and is read along: if it has reached our version
//!    meanwhile, that version is decided, whatever the blocks still say. This matters because the original erases blocks.
//! 4. Write our block: "I accept the value in this ballot".
//! 5. Read all blocks: nobody started a larger ballot meanwhile, so the value is chosen. And the leader again: what somebody
//!    else has committed already needs no second write, which could land late and roll back what came after.
//! 6. Write the leader. No read follows: the ballot has decided.
//!
//! # Success
//!
//! An attempt succeeds only if the chosen value is the one *it proposed itself* (R4 and more): host id, generation and
//! timestamp. Our block may carry a value of an earlier attempt for the same version, perhaps given up by flag; other hosts
//! may have seen that flag and moved on. Such a value, when chosen, is committed like another host's and the acquire goes on
//! with the next version. An attempt proposes a value of its own only where no value was found, its own block included, so
//! two attempts can never propose the same value for one version.

mod ballot;
mod begin;
mod holders;
mod owner;
mod repair;
mod results;
mod silence;

use super::blocks::FIRST_BLOCK;
use super::ops::{Event, For, Ops, Tally, Votes};
use super::own::OwnBlock;
use super::{AcquireError, Held, LeaderFail, OwnerInfo, PaxosConfig, Value};
use crate::geometry::{Geometry, HostId};
use crate::limits::BALLOTS_MAX;
use crate::machine::{Content, Env, Input, IoFailure, Machine, Step};
use crate::record::{FLAG_SHORT_HOLD, HostBlock, RawLeader};
use crate::timing::MonoTime;
use holders::{HolderBlocks, HolderDelta};
use owner::{FIRST_PAUSE, OwnerBlocks, Watch};
use repair::{Claim, Claims};
use results::{OwnVotes, Round};
pub(super) use results::{host_block, in_the_owners_name};
use silence::{Pass, Silence};

/// What a lease is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// To be held exclusively.
    #[default]
    Exclusive,
    /// For the moment in which a host enters shared mode ([`super::PaxosShare`]): the leader says SHORT_HOLD, and the shared
    /// holds of other hosts are no obstacle.
    ShortHold,
    /// To be held exclusively by a host that holds it shared, and keeps doing so until it has it ([`super::PaxosConvert`]):
    /// every write of its block carries its mode block.
    Upgrade,
}

/// What the caller asks for beyond the resource itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct AcquireOptions {
    /// Do not wait for a silent owner to be dead (`SANLK_ACQUIRE_OWNER_NOWAIT`).
    pub owner_nowait: bool,
    /// The version that must be on disk before the acquire (`SANLK_RES_LVER`); `None` and 0 demand nothing.
    pub lver: Option<u64>,
    /// The lease's new `num_hosts` (`SANLK_RES_NUM_HOSTS`); `None`, 0 and less than it has leave it.
    pub num_hosts: Option<u64>,
    /// Seed of the delays between ballots.
    pub seed: u64,
    /// What the lease is taken for.
    pub mode: Mode,
}

impl AcquireOptions {
    /// The version that must be on disk, whenever it is looked at.
    fn demand(&self) -> Option<u64> {
        self.lver.filter(|lver| *lver != 0)
    }
}

/// What an acquire comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AcquireOutcome {
    /// We own the lease.
    Acquired(Held),
    /// We do not.
    Failed {
        /// Why.
        error: AcquireError,
        /// If something on disk may still make us the owner, our block as this attempt last wrote it, or found it: a retract
        /// ([`super::PaxosRelease::retract`], [`super::PaxosRelease::of_attempt`]) has to follow once no write is outstanding.
        retract: Option<HostBlock>,
        /// The geometry found, as far as it is known, for the retract.
        geometry: Geometry,
    },
}

type LeaderVotes = Votes<LeaderFail>;

/// What to do once the leader has been read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Then {
    /// The owner is still to be waited for.
    Watch,
    /// Run a ballot.
    Ballot,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Start,
    /// Leaders, and our own block along with each.
    First {
        leaders: LeaderVotes,
        own: OwnVotes,
    },
    /// Our own block, with the right sizes.
    Own(OwnVotes),
    /// The owner's delta lease.
    OwnerDelta(Option<Result<RawLeader, IoFailure>>),
    /// Waiting to look at the owner again.
    OwnerPoll(MonoTime),
    /// The owner's block: did it give the lease up by flag?
    OwnerBlock(OwnerBlocks),
    /// The leader again.
    Leader(LeaderVotes, Then),
    /// The block of a host that holds the lease shared.
    HolderBlock(HolderBlocks),
    /// Its delta lease.
    HolderDelta(HolderDelta),
    /// A dead holder's mode block is being cleared.
    ClearHolder(Tally),
    Write1(Tally),
    Read1(Round),
    Write2(Tally),
    Read2(Round),
    /// The leader as it was sent: what a release later compares with.
    Commit(Tally, RawLeader),
    /// Waiting before the next ballot.
    Backoff(MonoTime),
    /// A block is ahead of the leader: everything is read once more (R9).
    AgainLeader(LeaderVotes),
    AgainBlocks(Round, Claims),
    /// The delta lease of a host that may own a version between the two; when the look began.
    ClaimDelta(Claim, MonoTime, Option<Result<RawLeader, IoFailure>>),
    /// Waiting to look again at hosts that looks of renewals do not reach.
    LookAgain(MonoTime, Pass),
    Done,
}

/// One attempt to take a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PaxosAcquire {
    config: PaxosConfig,
    options: AcquireOptions,
    phase: Phase,
    ops: Ops,
    random: u64,
    /// When the first ballot began.
    contending_since: Option<MonoTime>,
    /// The resource's sizes; the lockspace's until the leader is known.
    geometry: Geometry,
    /// The leader that the current round builds on.
    leader: RawLeader,
    /// The version this round is for, if that is not the leader's next one: the leader was rolled back (R9).
    ahead: Option<u64>,
    /// Whether blocks beyond the leader's `num_hosts` are read too: the leader may be one that a newer number was overwritten with.
    wide: bool,
    /// The largest host id whose block was seen to be in use for this version or a later one, or for a shared hold.
    hosts_in_use: u64,
    /// Who may own a version between the leader's and the one this round is to be for.
    claims: Claims,
    /// Our block as it lies on disk.
    own: OwnBlock,
    /// The ballot number of the next ballot must be above this.
    seen_mbal: u64,
    /// The value this attempt proposed of its own, with its version.
    proposed: Option<(u64, Value)>,
    /// The value of the ballot running.
    value: Option<Value>,
    /// Whether something on disk may make us owner although we report failure.
    tainted: bool,
    /// The leader is what a majority of the disks says, not only the newest of several.
    agreed: bool,
    /// Whether the first ballot may use the leader as it was read.
    leader_fresh: bool,
    watch: Option<Watch>,
    /// Milliseconds until the next look at a host that is silent.
    next_look: u64,
    /// What our own looks have shown of other hosts than the owner.
    silences: Vec<Silence>,
    /// Whether this pass over several hosts has met one of which only a further look can tell.
    undecided: bool,
    /// When the first pass began that did.
    look_again_from: Option<MonoTime>,
    /// The hosts that any read of a ballot showed as shared holders. Never shortened: each version's own first read precedes our
    /// proposal for it, and whoever entered shared mode did so at an earlier version.
    holders: Vec<HostId>,
    /// The host that was judged last in this pass, of [`Pass`].
    judged: Option<HostId>,
    /// The leader as committed, while dead holders are cleared.
    won: Option<RawLeader>,
    /// How many holders were found dead before the value was written.
    foreseen: usize,
    /// The value that binds the ballot running.
    accepted: Option<Value>,
    ballots: u32,
    /// How often the acquire started over because the leader had changed.
    rounds: u32,
    ballot_started: MonoTime,
    last_error: AcquireError,
}

impl PaxosAcquire {
    /// An attempt that has done nothing yet.
    #[must_use]
    pub fn new(config: PaxosConfig, options: AcquireOptions) -> Self {
        Self {
            config,
            options,
            phase: Phase::Start,
            ops: Ops::of(&config),
            random: options.seed,
            contending_since: None,
            geometry: config.geometry,
            leader: RawLeader::zeroed(),
            ahead: None,
            wide: false,
            hosts_in_use: 0,
            claims: Claims::default(),
            own: OwnBlock::default(),
            seen_mbal: 0,
            proposed: None,
            value: None,
            tainted: false,
            agreed: false,
            leader_fresh: false,
            watch: None,
            next_look: FIRST_PAUSE,
            silences: Vec::new(),
            undecided: false,
            look_again_from: None,
            holders: Vec::new(),
            judged: None,
            won: None,
            foreseen: 0,
            accepted: None,
            ballots: 0,
            rounds: 0,
            ballot_started: MonoTime::default(),
            last_error: AcquireError::Driver,
        }
    }

    /// Our block as last written, or as read; `None` before it was read.
    pub(super) fn block(&self) -> Option<HostBlock> {
        (self.own.readable > 0).then(|| self.own.current())
    }

    /// Why what lies on a disk is not to be taken for this lease's.
    pub(super) fn unseen(&self, disk: u8) -> Option<IoFailure> {
        self.ops.unseen(disk)
    }

    /// Writes that timed out and have not ended.
    pub(super) fn outstanding(&self) -> u32 {
        self.ops.outstanding()
    }

    /// The next attempt of one machine: operations of the one before are known, and their numbers not used again.
    pub(super) fn with_ops(mut self, ops: Ops) -> Self {
        self.ops = ops;
        self
    }

    /// The operations, for the machine that goes on after this one: a disk with an outstanding write stays known as such.
    pub(super) fn take_ops(&mut self) -> Ops {
        std::mem::take(&mut self.ops)
    }

    /// The version this round is for.
    fn next_lver(&self) -> u64 {
        self.ahead.unwrap_or_else(|| self.leader.lver.get().saturating_add(1))
    }

    /// The blocks that a ballot looks at: host ids from 1 to this.
    fn last_host(&self) -> u64 {
        let num_hosts = self.leader.num_hosts.get();
        if self.wide { num_hosts.max(u64::from(self.geometry.max_hosts())) } else { num_hosts }
    }

    fn deadline(&self, now: MonoTime) -> MonoTime {
        now.plus_millis(self.config.io_timeout.millis())
    }

    fn fail(&mut self, error: AcquireError) -> Step<AcquireOutcome> {
        self.phase = Phase::Done;
        let retract = self.tainted.then(|| self.own.current());
        let outcome = AcquireOutcome::Failed { error, retract, geometry: self.geometry };
        Step::Done { outcome, outstanding: self.ops.outstanding() }
    }

    fn submit(&mut self, phase: Phase) -> Step<AcquireOutcome> {
        self.phase = phase;
        Step::Io(self.ops.take_batch())
    }

    /// Whether the attempt is still wanted and allowed (rule R10).
    fn check_env(&self, env: &Env<'_>) -> Result<(), AcquireError> {
        self.config.check_env(env)
    }

    /// Whether retries have used up their bound: 64 ballots or rounds, or twice the dead time since the first ballot
    /// (rule R10). Waiting for a silent owner is no retry and has its own end.
    fn exhausted(&self, now: MonoTime) -> bool {
        let limit = 2 * self.config.io_timeout.host_dead_secs(self.config.fire);
        let contending = self.contending_since.is_some_and(|since| now.secs_since(since) > limit);
        self.ballots >= BALLOTS_MAX || self.rounds >= BALLOTS_MAX || contending
    }

    fn read_leaders(&mut self, now: MonoTime) {
        for disk in 0..self.config.disks {
            self.ops.read(disk, self.geometry.sector(), 0, 1, self.deadline(now), For::Leader);
        }
    }

    fn read_own(&mut self, now: MonoTime) {
        for disk in 0..self.config.disks {
            let sector = self.config.host.block_sector();
            self.ops.read(disk, self.geometry.sector(), sector, 1, self.deadline(now), For::OwnBlock);
        }
    }

    /// Leader, request record and the blocks of all hosts, in one read.
    fn read_blocks(&mut self, now: MonoTime) {
        let count = FIRST_BLOCK + self.last_host();
        for disk in 0..self.config.disks {
            self.ops.read(disk, self.geometry.sector(), 0, count, self.deadline(now), For::Blocks);
        }
    }

    /// Starts a write on every disk that may get one; a disk with an outstanding write counts as failed.
    fn write_all(&mut self, now: MonoTime, sector: u64, content: &Content) -> Tally {
        let mut tally = Tally::default();
        for disk in 0..self.config.disks {
            if !self.ops.write(disk, self.geometry.sector(), sector, content.clone(), self.deadline(now)) {
                tally.not_started(self.ops.unseen(disk));
            }
        }
        tally
    }

    /// Starts over with what is on disk now.
    fn restart(&mut self, now: MonoTime, env: &Env<'_>) -> Step<AcquireOutcome> {
        self.watch_is_over(now);
        if self.exhausted(now) {
            return self.fail(self.last_error);
        }
        self.rounds += 1;
        match self.check_env(env) {
            Ok(()) => self.first_read(now),
            Err(e) => self.fail(e),
        }
    }

    fn owner_info(&self, leader: &RawLeader) -> OwnerInfo {
        OwnerInfo {
            host_id: leader.owner_id.get(),
            generation: leader.owner_generation.get(),
            timestamp: leader.timestamp.get(),
            lver: leader.lver.get(),
            short_hold: leader.flags.get() & FLAG_SHORT_HOLD != 0,
        }
    }

    /// Everything the current phase waited for has ended.
    fn advance(&mut self, now: MonoTime, env: &Env<'_>) -> Step<AcquireOutcome> {
        match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::First { leaders, own } => match self.leader_verdict(&leaders) {
                Ok(leader) => {
                    self.agreed = self.is_agreed(&leaders);
                    self.after_first(now, env, leader, &own)
                }
                Err(e) => self.fail(e),
            },
            Phase::Own(own) => self.after_own(now, env, &own),
            Phase::OwnerDelta(Some(delta)) => self.after_owner_delta(now, env, delta),
            Phase::OwnerBlock(blocks) => self.after_owner_block(now, &blocks),
            Phase::Leader(votes, then) => match self.leader_verdict(&votes) {
                // A commit that a majority does not have yet is nobody's success, ours included.
                Ok(leader) if leader.lver != self.leader.lver && !self.is_agreed(&votes) => {
                    self.restart(now, env)
                }
                Ok(leader) => self.after_leader(now, env, leader, then),
                Err(e) => self.fail(e),
            },
            Phase::HolderBlock(blocks) => self.after_holder_block(now, env, blocks),
            Phase::HolderDelta(look) => self.after_holder_delta(now, env, look),
            Phase::ClearHolder(tally) => self.after_clear(now, env, tally),
            Phase::Write1(tally) => self.after_write1(now, tally),
            Phase::Read1(round) => self.after_read1(now, env, &round),
            Phase::Write2(tally) => self.after_write2(now, tally),
            Phase::Read2(round) => self.after_read2(now, env, &round),
            Phase::Commit(tally, leader) => self.after_commit(now, env, tally, leader),
            Phase::AgainLeader(votes) => match self.leader_verdict(&votes) {
                Ok(leader) => self.after_again_leader(now, env, leader),
                Err(e) => self.fail(e),
            },
            Phase::AgainBlocks(round, claims) => self.after_again_blocks(now, env, &round, claims),
            Phase::ClaimDelta(claim, asked, Some(delta)) => {
                self.after_claim_delta(now, env, claim, asked, delta)
            }
            Phase::Start
            | Phase::ClaimDelta(_, _, None)
            | Phase::OwnerDelta(None)
            | Phase::OwnerPoll(_)
            | Phase::Backoff(_)
            | Phase::LookAgain(..)
            | Phase::Done => self.fail(AcquireError::Driver),
        }
    }

    fn tick(&mut self, now: MonoTime, env: &Env<'_>) -> Step<AcquireOutcome> {
        let (Phase::OwnerPoll(until) | Phase::Backoff(until) | Phase::LookAgain(until, _)) = self.phase
        else {
            return Step::Pending;
        };
        if let Err(e) = self.check_env(env) {
            return self.fail(e);
        }
        if now < until {
            return Step::Wait(until);
        }
        match self.phase {
            Phase::OwnerPoll(_) => self.reread_leader(now, Then::Watch),
            Phase::LookAgain(_, pass) => {
                self.judged = None;
                match pass {
                    Pass::Holders => self.next_holder(now, env),
                    Pass::Claims => self.next_claim(now, env),
                }
            }
            _ => self.reread_leader(now, Then::Ballot),
        }
    }
}

impl Machine for PaxosAcquire {
    type Outcome = AcquireOutcome;

    fn step(&mut self, now: MonoTime, env: &Env<'_>, input: Input<'_>) -> Step<AcquireOutcome> {
        match input {
            Input::Start => {
                if let Err(e) = self.check_env(env) {
                    return self.fail(e);
                }
                self.first_read(now)
            }
            Input::Tick => self.tick(now, env),
            input => match self.ops.absorb(input) {
                Event::Ended { disk, purpose, result } => {
                    self.record(disk, purpose, result);
                    if self.ops.idle() { self.advance(now, env) } else { Step::Pending }
                }
                Event::Nothing => Step::Pending,
            },
        }
    }
}
