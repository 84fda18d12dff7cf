//! A peer that follows lease-algorithms.md 4 and 6 to the letter, weaknesses included: it forgets its ballot values (W1),
//! compares only the host id of the chosen value (W2), retries without end (W9), and never looks whether its lockspace is still
//! alive (W10). One disk; no conversions. Shared mode: `holders`.
//!
//! It exists to share a disk with our machines. What it relies on (assumption A7) the simulator grants to it alone.

mod holders;

pub use holders::ReferenceShare;

use sanlock_lease::geometry::HostId;
use sanlock_lease::hosts::HostSeen;
use sanlock_lease::machine::{Action, Content, Env, Input, IoFailure, Machine, Op, OpId, Place, Step, View};
use sanlock_lease::paxos::acquire::{AcquireOptions, AcquireOutcome, Mode};
use sanlock_lease::paxos::release::{ReleaseOutcome, Released};
use sanlock_lease::paxos::{AcquireError, Held, OwnerInfo, PaxosConfig, ReleaseError};
use sanlock_lease::record::{DBLOCK_RELEASED, Dblock, FLAG_SHORT_HOLD, HostBlock, ModeBlock, RawLeader};
use sanlock_lease::timing::{IoTimeout, MonoTime};
use sanlock_lease::verify::{self, Expect, Purpose};

/// Longest random delay between ballots.
const DELAY_MS: u64 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Watch {
    entry: Option<HostSeen>,
    start: MonoTime,
    seen: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    First,
    Delta(Watch),
    Poll(Watch, MonoTime),
    LeaderAgain(Watch),
    OwnerBlock,
    BeforeBallot,
    Write1,
    Read1,
    Write2,
    Read2,
    Commit,
    SharerBlock(HostId),
    SharerDelta(HostId, u64),
    ClearSharer,
    GiveBack,
    Delay(MonoTime),
    Done,
}

/// One exclusive acquire, as the original does it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReferenceAcquire {
    config: PaxosConfig,
    options: AcquireOptions,
    random: u64,
    phase: Phase,
    next_op: u32,
    leader: RawLeader,
    next_lver: u64,
    mbal: u64,
    dblock: Dblock,
    /// Phase 2 was entered: an error from there on leads to [`ReferenceRelease::erase_all`].
    retract: bool,
    /// Who shares, as phase 1 of all ballots has read it, until it is looked at.
    sharers: Vec<HostId>,
    /// The first of them that lives, with the generation of its mode block.
    living: Option<(HostId, u64)>,
    careful: bool,
    giving_back: Option<(ReferenceRelease, AcquireError)>,
    /// The io timeout by which it took the owner for dead, if that is one of another instance, or its own.
    misjudged: Option<IoTimeout>,
}

impl ReferenceAcquire {
    /// An acquire that has done nothing yet.
    #[must_use]
    pub fn new(config: PaxosConfig, options: AcquireOptions) -> Self {
        Self {
            config,
            options,
            random: options.seed | 1,
            phase: Phase::First,
            next_op: 0,
            leader: RawLeader::zeroed(),
            next_lver: 0,
            mbal: 0,
            dblock: Dblock::zeroed(),
            retract: false,
            sharers: Vec::new(),
            living: None,
            careful: false,
            giving_back: None,
            misjudged: None,
        }
    }

    /// The io timeout by which the owner was taken for dead, where it is not the one that the host table had of this very instance.
    #[must_use]
    pub fn misjudged(&self) -> Option<IoTimeout> {
        self.misjudged
    }

    fn io(&mut self, now: MonoTime, phase: Phase, place: Place, action: Action) -> Step<AcquireOutcome> {
        self.phase = phase;
        one_op(&mut self.next_op, &self.config, now, place, action)
    }

    fn read(&mut self, now: MonoTime, phase: Phase, first: u64, count: u64) -> Step<AcquireOutcome> {
        self.io(now, phase, Place::Resource(0), Action::Read { first, count })
    }

    fn read_delta(&mut self, now: MonoTime, watch: Watch) -> Step<AcquireOutcome> {
        let first = self.leader.owner_id.get().saturating_sub(1);
        self.io(now, Phase::Delta(watch), Place::Lockspace, Action::Read { first, count: 1 })
    }

    fn write_block(&mut self, now: MonoTime, phase: Phase) -> Step<AcquireOutcome> {
        self.dblock.seal();
        let content = Content::Block(self.block());
        let sector = self.config.host.block_sector();
        self.io(now, phase, Place::Resource(0), Action::Write { sector, content })
    }

    fn block(&self) -> HostBlock {
        HostBlock { dblock: self.dblock, mode: ModeBlock::zeroed() }
    }

    fn read_blocks(&mut self, now: MonoTime, phase: Phase) -> Step<AcquireOutcome> {
        let count = (self.leader.num_hosts.get() + 2).next_power_of_two();
        self.read(now, phase, 0, count)
    }

    fn fail(&mut self, error: AcquireError) -> Step<AcquireOutcome> {
        self.phase = Phase::Done;
        let geometry = self.config.geometry;
        let outcome = AcquireOutcome::Failed { error, retract: self.retract.then(|| self.block()), geometry };
        Step::Done { outcome, outstanding: 0 }
    }

    fn acquired(&mut self, leader: RawLeader) -> Step<AcquireOutcome> {
        self.phase = Phase::Done;
        let block = HostBlock { dblock: self.dblock, mode: ModeBlock::zeroed() };
        let held = Held { leader, block, geometry: self.config.geometry };
        Step::Done { outcome: AcquireOutcome::Acquired(held), outstanding: 0 }
    }

    fn info(leader: &RawLeader) -> OwnerInfo {
        OwnerInfo {
            host_id: leader.owner_id.get(),
            generation: leader.owner_generation.get(),
            timestamp: leader.timestamp.get(),
            lver: leader.lver.get(),
            short_hold: leader.flags.get() & FLAG_SHORT_HOLD != 0,
        }
    }

    /// 4.2
    fn decide(&mut self, now: MonoTime, env: &Env<'_>, view: View<'_>) -> Step<AcquireOutcome> {
        let leader = match leader_in(view, &self.config) {
            Ok(leader) => leader,
            Err(e) => return self.fail(e),
        };
        self.leader = leader;
        self.misjudged = None;
        self.next_lver = leader.lver.get() + 1;
        let mut max_mbal = 0;
        for (host, block) in blocks(view, leader.num_hosts.get()) {
            if let Err(e) = verify::dblock(&block.dblock, host) {
                return self.fail(AcquireError::Dblock(e));
            }
            max_mbal = max_mbal.max(block.dblock.mbal.get());
        }
        let (host, max_hosts) = (self.config.host.get(), leader.max_hosts.get());
        self.mbal = if max_mbal == 0 { host } else { max_mbal - max_mbal % max_hosts + max_hosts + host };
        let expected = self.options.lver.unwrap_or(0);
        if expected != 0 && expected != leader.lver.get() {
            return self.fail(AcquireError::Lver { expected, found: leader.lver.get() });
        }
        let ours = leader.owner_id.get() == host && leader.owner_generation.get() <= self.config.generation;
        if leader.timestamp.get() == 0 || ours {
            return self.ballot(now);
        }
        let Some(owner) = HostId::new(leader.owner_id.get()) else { return self.fail(AcquireError::Driver) };
        let entry = env.hosts.seen(owner);
        let same = entry.filter(|e| {
            e.last_live.is_some()
                && e.owner_id == leader.owner_id.get()
                && e.owner_generation == leader.owner_generation.get()
        });
        let start = same.and_then(|e| e.last_live).unwrap_or(now);
        self.read_delta(now, Watch { entry, start, seen: same.map(|e| e.timestamp) })
    }

    /// 4.3
    fn examine(&mut self, now: MonoTime, mut watch: Watch, view: View<'_>) -> Step<AcquireOutcome> {
        let sector = self.leader.owner_id.get().saturating_sub(1);
        let Some(delta) = view.sector(sector).map(RawLeader::from_sector) else {
            return self.fail(AcquireError::Io(IoFailure::Short));
        };
        if let Err(e) = verify::delta(&delta, Some(&self.config.lockspace), Purpose::Use) {
            return self.fail(AcquireError::OwnerDelta(e));
        }
        let gone = delta.timestamp.get() == 0
            || delta.owner_id != self.leader.owner_id
            || delta.owner_generation.get() > self.leader.owner_generation.get();
        if gone {
            return self.read(now, Phase::BeforeBallot, 0, 1);
        }
        let timestamp = delta.timestamp.get();
        let Some(seen) = watch.seen else {
            watch.seen = Some(timestamp);
            return self.poll(now, watch);
        };
        let seen_alive = watch.entry.is_some_and(|e| e.last_live == Some(e.last_check));
        if timestamp != seen || seen_alive {
            if self.leader.write_id == self.leader.owner_id {
                return self.fail(AcquireError::Live(Self::info(&self.leader)));
            }
            return self.read(now, Phase::OwnerBlock, self.leader.owner_id.get() + 1, 1);
        }
        let io_timeout = watch.entry.map_or(self.config.io_timeout, |e| e.io_timeout);
        if now.secs_since(watch.start) > io_timeout.host_dead_secs(self.config.fire) {
            let same = watch.entry.is_some_and(|e| e.owner_generation == self.leader.owner_generation.get());
            self.misjudged = (!same).then_some(io_timeout);
            return self.read(now, Phase::BeforeBallot, 0, 1);
        }
        if self.options.owner_nowait {
            return self.fail(AcquireError::NotYetDead(Self::info(&self.leader)));
        }
        self.poll(now, watch)
    }

    fn poll(&mut self, now: MonoTime, watch: Watch) -> Step<AcquireOutcome> {
        let until = now.plus_secs(1);
        self.phase = Phase::Poll(watch, until);
        Step::Wait(until)
    }

    /// 4.6, "before each ballot".
    fn before_ballot(&mut self, now: MonoTime, leader: RawLeader) -> Step<AcquireOutcome> {
        let owner = (leader.owner_id.get(), leader.owner_generation.get());
        if leader.lver.get() == self.next_lver {
            if owner == (self.config.host.get(), self.config.generation) {
                self.leader = leader;
                return self.won(now);
            }
            return self.fail(AcquireError::Owned(Self::info(&leader)));
        }
        if leader != self.leader {
            return self.restart(now);
        }
        self.ballot(now)
    }

    fn restart(&mut self, now: MonoTime) -> Step<AcquireOutcome> {
        self.dblock = Dblock::zeroed();
        self.read(now, Phase::First, 0, self.config.geometry.sectors())
    }

    fn ballot(&mut self, now: MonoTime) -> Step<AcquireOutcome> {
        self.dblock = Dblock::zeroed();
        self.dblock.mbal = self.mbal.into();
        self.dblock.lver = self.next_lver.into();
        self.write_block(now, Phase::Write1)
    }

    fn aborted(&mut self, now: MonoTime) -> Step<AcquireOutcome> {
        self.mbal += self.leader.max_hosts.get();
        // xorshift: any spread of delays will do.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let until = now.plus_millis(self.random % DELAY_MS);
        self.phase = Phase::Delay(until);
        Step::Wait(until)
    }

    /// Whether a block read in either phase ends the ballot.
    fn beaten(&self, block: &HostBlock, host: HostId) -> bool {
        let d = &block.dblock;
        verify::dblock(d, host).is_ok()
            && (d.lver.get() > self.next_lver || (d.lver.get() == self.next_lver && d.mbal.get() > self.mbal))
    }

    fn phase1_read(&mut self, now: MonoTime, view: View<'_>) -> Step<AcquireOutcome> {
        let mut candidate: Option<Dblock> = None;
        for (host, block) in blocks(view, self.leader.num_hosts.get()) {
            if self.beaten(&block, host) {
                return self.aborted(now);
            }
            self.count_sharer(host, &block);
            let d = block.dblock;
            let usable = verify::dblock(&d, host).is_ok()
                && d.lver.get() == self.next_lver
                && d.inp.get() != 0
                && d.bal.get() != 0;
            if usable && candidate.is_none_or(|c| d.bal.get() > c.bal.get()) {
                candidate = Some(d);
            }
        }
        let value = match candidate {
            Some(d) => (d.inp, d.inp2, d.inp3),
            None => (self.config.host.get().into(), self.config.generation.into(), now.secs().max(1).into()),
        };
        self.dblock.bal = self.mbal.into();
        (self.dblock.inp, self.dblock.inp2, self.dblock.inp3) = value;
        self.retract = true;
        self.write_block(now, Phase::Write2)
    }

    fn phase2_read(&mut self, now: MonoTime, view: View<'_>) -> Step<AcquireOutcome> {
        for (host, block) in blocks(view, self.leader.num_hosts.get()) {
            if self.beaten(&block, host) {
                return self.aborted(now);
            }
        }
        let content = Content::Leader(self.new_leader(now));
        self.io(now, Phase::Commit, Place::Resource(0), Action::Write { sector: 0, content })
    }

    fn new_leader(&mut self, now: MonoTime) -> RawLeader {
        let mut leader = self.leader;
        leader.lver = self.next_lver.into();
        leader.owner_id = self.dblock.inp;
        leader.owner_generation = self.dblock.inp2;
        leader.timestamp = self.dblock.inp3;
        leader.write_id = self.config.host.get().into();
        leader.write_generation = self.config.generation.into();
        leader.write_timestamp = now.secs().into();
        let rest = leader.flags.get() & !FLAG_SHORT_HOLD;
        let short = self.options.mode == Mode::ShortHold;
        leader.flags = if short { rest | FLAG_SHORT_HOLD } else { rest }.into();
        leader.seal();
        self.leader = leader;
        leader
    }

    fn ended(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        result: Result<View<'_>, IoFailure>,
    ) -> Step<AcquireOutcome> {
        let view = match (result, self.phase) {
            (Ok(view), _) => view,
            (Err(e), Phase::Write1) => return self.fail(AcquireError::DblockWrite(e)),
            (Err(e), Phase::Write2) => return self.fail(AcquireError::DblockWrite(e)),
            (Err(e), Phase::Read1 | Phase::Read2) => return self.fail(AcquireError::DblockRead(e)),
            (Err(e), Phase::Commit) => return self.fail(AcquireError::LeaderWrite(e)),
            (Err(e), Phase::SharerBlock(_) | Phase::SharerDelta(..) | Phase::ClearSharer) => {
                return self.give_back(now, AcquireError::Io(e));
            }
            (Err(e), _) => {
                self.retract = false;
                return self.fail(AcquireError::Io(e));
            }
        };
        match self.phase {
            Phase::First => self.decide(now, env, view),
            Phase::Delta(watch) => self.examine(now, watch, view),
            Phase::LeaderAgain(watch) => match leader_in(view, &self.config) {
                Ok(leader) if leader == self.leader => self.read_delta(now, watch),
                Ok(_) => self.restart(now),
                Err(e) => self.fail(e),
            },
            Phase::OwnerBlock => {
                let sector = self.leader.owner_id.get() + 1;
                let block = view.sector(sector).map_or(HostBlock::zeroed(), HostBlock::from_sector);
                if block.dblock.is_released() {
                    self.read(now, Phase::BeforeBallot, 0, 1)
                } else {
                    self.fail(AcquireError::Live(Self::info(&self.leader)))
                }
            }
            Phase::BeforeBallot => match leader_in(view, &self.config) {
                Ok(leader) => self.before_ballot(now, leader),
                Err(e) => self.fail(e),
            },
            Phase::Write1 => self.read_blocks(now, Phase::Read1),
            Phase::Read1 => self.phase1_read(now, view),
            Phase::Write2 => self.read_blocks(now, Phase::Read2),
            Phase::Read2 => self.phase2_read(now, view),
            Phase::Commit if self.dblock.inp.get() == self.config.host.get() => self.won(now),
            Phase::SharerBlock(host) => self.sharer_block(now, env, host, view),
            Phase::SharerDelta(host, generation) => self.sharer_delta(now, env, (host, generation), view),
            Phase::ClearSharer => self.sharer_cleared(now),
            Phase::Commit => {
                self.retract = false;
                self.fail(AcquireError::Other(Self::info(&self.leader)))
            }
            Phase::Poll(..) | Phase::Delay(_) | Phase::GiveBack | Phase::Done => {
                self.fail(AcquireError::Driver)
            }
        }
    }
}

impl Machine for ReferenceAcquire {
    type Outcome = AcquireOutcome;

    fn step(&mut self, now: MonoTime, env: &Env<'_>, input: Input<'_>) -> Step<AcquireOutcome> {
        if let Some((release, _)) = &mut self.giving_back {
            let step = release.step(now, env, input);
            return self.pass_release(step);
        }
        match (input, self.phase) {
            (Input::Start, _) => self.restart(now),
            (Input::Tick, Phase::Poll(watch, until)) if now >= until => {
                if env.shutting_down {
                    return self.fail(AcquireError::ShuttingDown);
                }
                self.read(now, Phase::LeaderAgain(watch), 0, 1)
            }
            (Input::Tick, Phase::Delay(until)) if now >= until => self.read(now, Phase::BeforeBallot, 0, 1),
            (Input::Tick, Phase::Poll(_, until) | Phase::Delay(until)) => Step::Wait(until),
            (Input::Tick | Input::CompletedLate { .. }, _) => Step::Pending,
            (Input::Completed { result, .. }, _) => self.ended(now, env, result),
            (Input::TimedOut { .. }, _) => self.ended(now, env, Err(IoFailure::TimedOut)),
            (Input::Doubtful { failure, .. }, _) => self.ended(now, env, Err(failure)),
        }
    }
}

/// The original's release, and its cleaning up after an acquire of unknown outcome.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReferenceRelease {
    config: PaxosConfig,
    held: Option<Held>,
    /// What the own block says of a shared hold from now on.
    mode: ModeBlock,
    next_op: u32,
    step: u8,
}

impl ReferenceRelease {
    /// 6.2
    #[must_use]
    pub fn new(config: PaxosConfig, held: Held) -> Self {
        Self { config, held: Some(held), mode: ModeBlock::zeroed(), next_op: 0, step: 0 }
    }

    /// 6.6: overwrites the own block with zeros and RELEASED, then frees the leader if it says what an acquire of ours writes.
    #[must_use]
    pub fn erase_all(config: PaxosConfig) -> Self {
        Self { config, held: None, mode: ModeBlock::zeroed(), next_op: 0, step: 0 }
    }

    /// 5.2 steps 2 and 3: leaves the exclusive ownership for a shared hold.
    #[must_use]
    pub fn to_shared(config: PaxosConfig, held: Held) -> Self {
        Self { mode: ModeBlock::shared(config.generation), ..Self::new(config, held) }
    }

    fn done(&mut self, result: Result<Released, ReleaseError>) -> Step<ReleaseOutcome> {
        self.step = u8::MAX;
        Step::Done {
            outcome: ReleaseOutcome { result, block_failure: None, value_written: false },
            outstanding: 0,
        }
    }

    fn io(&mut self, now: MonoTime, action: Action) -> Step<ReleaseOutcome> {
        self.step += 1;
        one_op(&mut self.next_op, &self.config, now, Place::Resource(0), action)
    }

    fn begin(&mut self, now: MonoTime) -> Step<ReleaseOutcome> {
        let mut dblock = self.held.map_or(Dblock::zeroed(), |h| h.block.dblock);
        dblock.seal();
        dblock.flags = DBLOCK_RELEASED.into();
        let content = Content::Block(HostBlock { dblock, mode: self.mode });
        self.io(now, Action::Write { sector: self.config.host.block_sector(), content })
    }

    /// 6.3
    fn gives_up_sharing(&self) -> bool {
        self.held.is_some_and(|held| held.is_shared())
    }

    fn judge(&mut self, now: MonoTime, view: View<'_>) -> Step<ReleaseOutcome> {
        let Ok(leader) = leader_in(view, &self.config) else {
            return self.done(Err(ReleaseError::LeaderDiff));
        };
        if leader.write_id.get() != self.config.host.get() {
            return self.done(Ok(Released::ByFlag));
        }
        if let Some(held) = self.held.filter(|h| h.leader.lver != leader.lver) {
            return self.done(Err(ReleaseError::Lver { expected: held.lver(), found: leader.lver.get() }));
        }
        let ours = leader.timestamp.get() != 0
            && leader.owner_id.get() == self.config.host.get()
            && leader.owner_generation.get() == self.config.generation;
        if !ours || self.held.is_some_and(|h| h.leader != leader) {
            return self.done(Err(ReleaseError::Owner {
                host_id: leader.owner_id.get(),
                generation: leader.owner_generation.get(),
                timestamp: leader.timestamp.get(),
            }));
        }
        let mut free = leader;
        free.timestamp = 0.into();
        free.write_timestamp = now.secs().into();
        free.flags = (free.flags.get() & !FLAG_SHORT_HOLD).into();
        free.seal();
        self.io(now, Action::Write { sector: 0, content: Content::Leader(free) })
    }
}

impl Machine for ReferenceRelease {
    type Outcome = ReleaseOutcome;

    fn step(&mut self, now: MonoTime, _: &Env<'_>, input: Input<'_>) -> Step<ReleaseOutcome> {
        let result = match input {
            Input::Start => return self.begin(now),
            Input::Tick | Input::CompletedLate { .. } => return Step::Pending,
            Input::Completed { result, .. } => result,
            Input::TimedOut { .. } => Err(IoFailure::TimedOut),
            Input::Doubtful { failure, .. } => Err(failure),
        };
        match (self.step, result) {
            // A shared hold is given up by the block alone, and taken only with it.
            (1, Ok(_)) if self.gives_up_sharing() => self.done(Ok(Released::ByFlag)),
            (1, Err(e)) if self.mode.is_shared() || self.gives_up_sharing() => {
                self.done(Err(ReleaseError::DblockWrite(e)))
            }
            // A failed block write is logged and ignored.
            (1, _) => self.io(now, Action::Read { first: 0, count: 1 }),
            (2, Ok(view)) => self.judge(now, view),
            (2, Err(e)) => self.done(Err(ReleaseError::Io(e))),
            (3, Ok(_)) => self.done(Ok(Released::LeaderFreed)),
            (3, Err(e)) => self.done(Err(ReleaseError::LeaderWrite(e))),
            _ => self.done(Err(ReleaseError::Driver)),
        }
    }
}

fn one_op<O>(next: &mut u32, config: &PaxosConfig, now: MonoTime, place: Place, action: Action) -> Step<O> {
    let id = OpId(*next);
    *next += 1;
    let sector_size = config.geometry.sector();
    let deadline = now.plus_millis(IoTimeout::millis(config.io_timeout));
    Step::Io([Op { id, place, sector_size, action, deadline, doubt_ms: 0 }].into_iter().collect())
}

fn leader_in(view: View<'_>, config: &PaxosConfig) -> Result<RawLeader, AcquireError> {
    let sector = view.sector(0).ok_or(AcquireError::Io(IoFailure::Short))?;
    let leader = RawLeader::from_sector(sector);
    let expect = Expect {
        lockspace: Some(config.lockspace),
        resource: Some(config.resource),
        host_id: Some(config.host),
    };
    verify::paxos(&leader, &expect, Purpose::Use).map_err(AcquireError::Leader)?;
    Ok(leader)
}

fn blocks(view: View<'_>, num_hosts: u64) -> Vec<(HostId, HostBlock)> {
    let hosts = (1..=num_hosts).filter_map(HostId::new);
    hosts.filter_map(|h| Some((h, HostBlock::from_sector(view.sector(h.block_sector())?)))).collect()
}
