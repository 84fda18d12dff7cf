//! The ballot: two phases, the commit, and what follows a lost one (lease-algorithms.md 4.5, 4.6).

use super::results::Round;
use super::{AcquireOutcome, Mode, PaxosAcquire, Phase, Then};
use crate::limits::BACKOFF_MIN_MS;
use crate::machine::{Content, Env, Step};
use crate::paxos::blocks::insert;
use crate::paxos::ops::{Tally, Verdict};
use crate::paxos::{AcquireError, Held, LeaderFail, Value};
use crate::record::{FLAG_SHORT_HOLD, RawLeader};
use crate::timing::MonoTime;
use crate::verify::LeaderError;

impl PaxosAcquire {
    pub(super) fn start_ballot(&mut self, now: MonoTime, env: &Env<'_>) -> Step<AcquireOutcome> {
        if !self.leader_fresh {
            return self.reread_leader(now, Then::Ballot);
        }
        self.leader_fresh = false;
        if self.exhausted(now) {
            return self.fail(self.last_error);
        }
        if let Err(e) = self.check_env(env) {
            return self.fail(e);
        }
        if self.own.lver > self.next_lver() {
            // Our own block is ahead of the leader, and goes back for nobody.
            self.last_error = AcquireError::Ballot { seen: self.own.mbal };
            return self.look_again(now);
        }
        let Some(mbal) = self.own.next_mbal(self.seen_mbal, self.config.host, self.geometry.max_hosts())
        else {
            return self.fail(AcquireError::Ballot { seen: self.seen_mbal.max(self.own.mbal) });
        };
        self.ballots += 1;
        self.contending_since.get_or_insert(now);
        self.ballot_started = now;
        self.value = None;
        let block = self.own.phase1(self.next_lver(), mbal, self.config.disks == 1);
        let tally = self.write_all(now, self.config.host.block_sector(), &Content::Block(block));
        self.submit_writes(now, env, Phase::Write1(tally))
    }

    /// Like `submit`, for a phase of writes that may have started none.
    pub(super) fn submit_writes(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        phase: Phase,
    ) -> Step<AcquireOutcome> {
        if self.ops.idle() {
            self.phase = phase;
            return self.advance(now, env);
        }
        self.submit(phase)
    }

    pub(super) fn after_write1(&mut self, now: MonoTime, tally: Tally) -> Step<AcquireOutcome> {
        if tally.ok < self.config.majority() {
            return self.fail(AcquireError::DblockWrite(tally.failure()));
        }
        self.read_blocks(now);
        self.submit(Phase::Read1(Round::default()))
    }

    /// Whether a round of reads is complete and undamaged.
    pub(super) fn check_round(&self, round: &Round) -> Result<(), AcquireError> {
        if let Some(bad) = round.blocks.bad {
            return Err(AcquireError::Dblock(bad));
        }
        if round.blocks.readable < self.config.majority() {
            if let Some(e) = round.leaders.foreign().filter(|_| self.ops.foreign() > 0) {
                // It has been renamed since we began.
                return Err(AcquireError::Leader(e));
            }
            return Err(AcquireError::DblockRead(round.io.unwrap_or(self.ops.unread())));
        }
        Ok(())
    }

    /// What a round of reads allows. The way on, if the ballot is lost or needless.
    fn ballot_stands(&mut self, now: MonoTime, env: &Env<'_>, round: &Round) -> Option<Step<AcquireOutcome>> {
        if let Err(e) = self.check_round(round) {
            return Some(self.fail(e));
        }
        for host in &round.blocks.shared {
            insert(&mut self.holders, *host);
        }
        self.hosts_in_use = self.hosts_in_use.max(round.blocks.in_use);
        let majority = self.config.majority();
        match round.leaders.verdict(self.config.disks, majority, super::in_the_owners_name) {
            Verdict::Leader(leader) if leader.lver.get() >= self.next_lver() => {
                // The version is decided.
                return Some(self.after_leader(now, env, leader, Then::Ballot));
            }
            // Several disks that disagree are somebody's commit on its way: for the blocks to decide.
            Verdict::Leader(_) | Verdict::Newest(_) | Verdict::TooFew(..) | Verdict::Differ => {}
            Verdict::Failed(LeaderFail::Io(e)) => return Some(self.fail(AcquireError::Io(e))),
            Verdict::Failed(LeaderFail::Leader(e)) => return Some(self.fail(AcquireError::Leader(e))),
        }
        let blocks = &round.blocks;
        if !self.wide && round.num_hosts > self.last_host() {
            // A leader that was rolled back, or that a disk has kept: on its basis hosts may take part whose blocks we do not look at.
            self.wide = true;
            self.last_error = AcquireError::Ballot { seen: blocks.mbal };
            return Some(self.restart(now, env));
        }
        if blocks.newer.is_some() {
            self.last_error = AcquireError::Ballot { seen: blocks.newer_mbal };
            return Some(self.look_again(now));
        }
        if blocks.mbal > self.own.mbal {
            self.seen_mbal = blocks.mbal;
            self.last_error = AcquireError::Ballot { seen: blocks.mbal };
            return Some(self.backoff(now));
        }
        None
    }

    pub(super) fn after_read1(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        round: &Round,
    ) -> Step<AcquireOutcome> {
        if let Some(step) = self.ballot_stands(now, env, round) {
            return step;
        }
        self.accepted = round.blocks.accepted.map(|(_, value)| value);
        if self.accepted.is_some() && !self.wide {
            // The version may have been decided long ago, and the leader rolled back to an older number of hosts.
            self.wide = true;
            if self.leader.num_hosts.get() < u64::from(self.geometry.max_hosts()) {
                self.read_blocks(now);
                return self.submit(Phase::Read1(Round::default()));
            }
        }
        self.before_value(now, env)
    }

    /// Phase 2: accepts what was found, or proposes ourselves.
    pub(super) fn write_value(&mut self, now: MonoTime, env: &Env<'_>) -> Step<AcquireOutcome> {
        if let Err(e) = self.check_env(env) {
            return self.fail(e);
        }
        let next = self.next_lver();
        let value = match self.accepted {
            Some(value) => {
                // Committed, an impossible owner would make the lease unreadable for everybody.
                let max = u64::from(self.geometry.max_hosts());
                if value.host > max {
                    return self.fail(AcquireError::Leader(LeaderError::Owner { found: value.host, max }));
                }
                value
            }
            None => {
                let value = Value {
                    host: self.config.host.get(),
                    generation: self.config.generation,
                    timestamp: now.secs().max(1), // 0 would mean free
                };
                self.proposed = Some((next, value));
                value
            }
        };
        self.value = Some(value);
        self.tainted |= value.host == self.config.host.get() && value.generation == self.config.generation;
        let block = self.own.phase2(value);
        let tally = self.write_all(now, self.config.host.block_sector(), &Content::Block(block));
        self.submit_writes(now, env, Phase::Write2(tally))
    }

    pub(super) fn after_write2(&mut self, now: MonoTime, tally: Tally) -> Step<AcquireOutcome> {
        if tally.ok < self.config.majority() {
            return self.fail(AcquireError::DblockWrite(tally.failure()));
        }
        self.read_blocks(now);
        self.submit(Phase::Read2(Round::default()))
    }

    pub(super) fn after_read2(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        round: &Round,
    ) -> Step<AcquireOutcome> {
        if let Some(step) = self.ballot_stands(now, env, round) {
            return step;
        }
        if let Err(e) = self.check_env(env) {
            return self.fail(e);
        }
        let Some(value) = self.value else { return self.fail(AcquireError::Driver) };
        let leader = self.new_leader(now, value);
        let tally = self.write_all(now, 0, &Content::Leader(leader));
        self.submit_writes(now, env, Phase::Commit(tally, leader))
    }

    pub(super) fn new_leader(&self, now: MonoTime, value: Value) -> RawLeader {
        let mut leader = self.leader;
        leader.lver = self.next_lver().into();
        // An older leader may say less than is in use by now. Whoever reads no further than it says must not miss those.
        leader.num_hosts = leader.num_hosts.get().max(self.hosts_in_use).into();
        leader.owner_id = value.host.into();
        leader.owner_generation = value.generation.into();
        leader.timestamp = value.timestamp.into();
        leader.write_id = self.config.host.get().into();
        leader.write_generation = self.config.generation.into();
        leader.write_timestamp = now.secs().into();
        let proposed = self.proposed == Some((self.next_lver(), value));
        // Only with a value of this attempt, and never less than before (decision 0019).
        if let Some(num_hosts) = self.options.num_hosts.filter(|_| proposed) {
            leader.num_hosts = leader.num_hosts.get().max(num_hosts).into();
        }
        if value.host == self.config.host.get() {
            let rest = leader.flags.get() & !FLAG_SHORT_HOLD;
            let short = self.options.mode == Mode::ShortHold && proposed;
            leader.flags = if short { rest | FLAG_SHORT_HOLD } else { rest }.into();
        }
        leader.seal();
        leader
    }

    pub(super) fn after_commit(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        tally: Tally,
        leader: RawLeader,
    ) -> Step<AcquireOutcome> {
        if tally.ok < self.config.majority() {
            // The value is chosen; whether the leader says so is open.
            return self.fail(AcquireError::LeaderWrite(tally.failure()));
        }
        let Some(value) = self.value else { return self.fail(AcquireError::Driver) };
        if self.proposed == Some((self.next_lver(), value)) {
            return self.won(now, env, leader);
        }
        if value.host != self.config.host.get() {
            self.tainted = false;
            let info = self.owner_info(&leader);
            return self.fail(AcquireError::Other(info));
        }
        // An older value of ours is committed; on with the next version, unless one was demanded: an earlier process of this host, or an
        // earlier host with this id, may have owned the one that is committed now.
        self.last_error = AcquireError::Other(self.owner_info(&leader));
        self.restart(now, env)
    }

    /// The lease is ours, and nobody else holds it in a way that excludes us.
    pub(super) fn acquired(&mut self, leader: RawLeader) -> Step<AcquireOutcome> {
        self.phase = Phase::Done;
        let held = Held { leader, block: self.own.current(), geometry: self.geometry };
        Step::Done { outcome: AcquireOutcome::Acquired(held), outstanding: self.ops.outstanding() }
    }

    /// A lost ballot: wait a random time suited to how long a ballot takes on this storage, up to 1 s.
    ///
    /// Not less than [`BACKOFF_MIN_MS`]: our next number is above what we have seen, so it is the other's turn to lose. A ballot of the
    /// original takes several times as long as ours, and a lost one costs it up to a second: its hosts would starve beside ours.
    pub(super) fn backoff(&mut self, now: MonoTime) -> Step<AcquireOutcome> {
        const LONGEST_MS: u64 = 1000;
        let ballot_ms = now.millis_since(self.ballot_started).max(2 * BACKOFF_MIN_MS);
        let span = ballot_ms.saturating_mul(1 << self.ballots.min(4)).min(LONGEST_MS);
        let until = now.plus_millis(BACKOFF_MIN_MS + self.next_random() % span);
        self.phase = Phase::Backoff(until);
        Step::Wait(until)
    }

    pub(super) fn next_random(&mut self) -> u64 {
        crate::paxos::random(&mut self.random)
    }
}
