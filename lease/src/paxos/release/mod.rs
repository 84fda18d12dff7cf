//! Giving a resource up: release and retract (lease-algorithms.md 6.2, 6.6, rules R2, R3 of 15.3).
//!
//! # The I/O, and why each is there
//!
//! 0. A value block that was set is written first ([`PaxosRelease::with_value`]). Nothing else is done before it is known to be on
//!    disk: the next owner reads it, and a write of ours that lands later would overwrite what that one sets.
//! 1. Write our block again, plus RELEASED (R2). Where another host wrote the leader in our name, this flag *is* the release.
//!    A retract reads the block first, because it does not know what the failed acquire left.
//! 2. Read the leader, on a single disk beside that write (decision 24). Only a leader that we wrote ourselves, and that still says what we
//!    wrote, may be changed by us. What was read beside a mark that failed, or of which nothing is known, is not used: it may be a whole io
//!    timeout old.
//! 3. Write the leader with timestamp 0, once the flag is on disk. Of a lease that this host goes on holding shared the two may be written at once
//!    ([`to_shared`]).
//!
//! Of a lease that is to be renamed the leader comes first, whoever wrote it: as long as our block is not marked and the leader
//! names us nobody else may write it, so it is ours to free and to name. The mark follows, for commits in our name that are still
//! on their way. One that was slow may have taken the leader back to a name of before: then only the mark is written. A lease on several disks gets its new name only where all of them have it under the old one: a disk with another
//! name is foreign from then on (see [`super::ops`]).
//!
//! Of several disks the leaders are read before anything else: which disks answer, and on which of them this lease lies. And again when
//! our block is marked, for a disk may be another lease's by then.

mod leader;
mod own_block;
mod probe;
mod to_shared;

use self::own_block::OwnRead;
use self::probe::{Identify, Probe};
use super::acquire::host_block;
use super::ops::{Event, For, Ops, Tally, Verdict, Votes};
use super::{Held, LeaderFail, PaxosConfig, ReleaseError};
use crate::geometry::Geometry;
use crate::limits::LVB_SECTOR;
use crate::machine::{Content, Env, Input, IoFailure, LockspaceNow, Machine, Step, View};
use crate::name::Name;
use crate::record::{DBLOCK_RELEASED, FLAG_SHORT_HOLD, HostBlock, ModeBlock, RawLeader};
use crate::timing::MonoTime;
use crate::verify::{self, DblockError, LeaderError};
use std::sync::Arc;

/// What a release comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReleaseOutcome {
    /// Whether the lease is given up as far as this machine could see.
    pub result: Result<Released, ReleaseError>,
    /// Why our block could not be marked.
    pub block_failure: Option<IoFailure>,
    /// Whether the value block is on disk, so that it must not be written again: from then on the lease may be another host's.
    pub value_written: bool,
}

impl ReleaseOutcome {
    /// Whether the lease is to be given up again, by [`PaxosRelease::retract`] and once nothing is outstanding: the disk did
    /// not answer, or our block could not be marked. In the second case whoever asked may have what they wanted, but
    /// another host that found our value in a ballot may still be about to write a leader in our name, and only the flag would
    /// then say that we have let go.
    #[must_use]
    pub fn needs_retract(&self) -> bool {
        match &self.result {
            Ok(_) => self.block_failure.is_some(),
            Err(e) => e.is_retryable() || self.block_failure.is_some(),
        }
    }
}

/// How a lease was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// The leader on disk says free now.
    LeaderFreed,
    /// The leader was written by another host, or does not name us: our RELEASED flag is the release.
    ByFlag,
    /// Nothing on disk made us the owner.
    NothingToDo,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Start,
    /// Of several disks it is seen which ones answer, and how many of them have this lease.
    Probe(Probe),
    /// What lies there under another name may be the lease that is held.
    Identify(Identify),
    /// The value block is written.
    WriteValue(Tally),
    /// Our block is read from every disk.
    ReadBlock(OwnRead),
    /// Our mode block is written beside the ownership, and of a single disk the leader is read.
    Announce(Tally, Votes<LeaderFail>),
    /// Some writes of the mode block timed out, and without them it is open which mode we are in.
    AwaitBlock(Tally),
    /// Our block is marked, and of a single disk the leader is read.
    WriteBlock(Tally, Votes<LeaderFail>),
    ReadLeader(Votes<LeaderFail>),
    WriteLeader(Tally),
    /// Once the mode block is on disk: our block is marked and the leader is freed (docs/decisions/0025).
    MarkAndFree {
        marking: Tally,
        freeing: Tally,
    },
    Done,
}

/// What is to be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    /// A lease we hold. Of one that is held shared our block is all there is to give up.
    Held(Held),
    /// The exclusive part of a lease we own: what is left is a shared hold.
    Exclusivity(Held),
    /// Whatever an acquire of unknown outcome left.
    Whatever,
}

/// One attempt to give a resource up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PaxosRelease {
    config: PaxosConfig,
    geometry: Geometry,
    what: What,
    phase: Phase,
    ops: Ops,
    block_failure: Option<IoFailure>,
    /// Our block as this attempt had to mark it.
    mark: Option<HostBlock>,
    /// What our block says of a shared hold from now on.
    mode: ModeBlock,
    /// Whether a process goes on using the lease: then nothing is given up before the shared hold is known to be on disk, and a
    /// write of it that timed out is waited for.
    patient: bool,
    /// Whether it is known which disks answer.
    probed: bool,
    /// Our block was read before the value is written.
    looked: bool,
    /// A majority has the lease under this name instead. Then leaders are neither asked nor written: our block gives it up.
    other_name: Option<Name>,
    /// A leader under another name is of this host's writing.
    newer_hold: bool,
    /// The shared hold is on disk.
    announced: bool,
    /// What is to be in the value block before anything is given up.
    value: Option<Arc<[u8]>>,
    value_written: bool,
    /// The resource's name from now on.
    rename: Option<Name>,
    /// Why it did not get that name.
    not_renamed: Option<ReleaseError>,
    /// Our block as it was when we held what is to be given up.
    hold: Option<HostBlock>,
    /// Our block as the attempt to be taken back left it.
    attempt: Option<HostBlock>,
    /// What is left to be told once our block is marked: the leader came first.
    told: Option<Result<Released, ReleaseError>>,
}

impl PaxosRelease {
    /// The release of a lease we hold: the *first* attempt. A further attempt, after the writes of the first have settled, is
    /// a [`Self::retract`]: a leader write that landed late has already freed the lease, and must not be taken for a foreign
    /// change.
    #[must_use]
    pub fn new(config: PaxosConfig, held: Held) -> Self {
        Self::with(config, held.geometry, What::Held(held)).of_hold(Some(held.block))
    }

    /// Takes back what a failed acquire of ours may have left: a value that can still be chosen, or a leader that names us.
    /// Precondition: no write of that acquire is outstanding, and no process of ours holds the lease.
    #[must_use]
    pub fn retract(config: PaxosConfig, geometry: Geometry) -> Self {
        Self::with(config, geometry, What::Whatever)
    }

    /// Leaves the exclusive ownership of `held` for a shared hold (lease-algorithms.md 5.2 steps 2 and 3, 6.6): the mode block
    /// first, in one write with the flag that may be what frees the lease, then the leader.
    pub(super) fn to_shared(config: PaxosConfig, held: Held) -> Self {
        let mode = ModeBlock::shared(config.generation);
        Self { mode, ..Self::with(config, held.geometry, What::Exclusivity(held)) }
    }

    /// Like [`Self::retract`], but our shared hold stays.
    pub(super) fn retract_exclusivity(config: PaxosConfig, geometry: Geometry) -> Self {
        Self { mode: ModeBlock::shared(config.generation), ..Self::retract(config, geometry) }
    }

    fn with(config: PaxosConfig, geometry: Geometry, what: What) -> Self {
        Self {
            config,
            geometry,
            what,
            phase: Phase::Start,
            ops: Ops::of(&config),
            block_failure: None,
            mark: None,
            mode: ModeBlock::zeroed(),
            patient: false,
            probed: false,
            looked: false,
            other_name: None,
            newer_hold: false,
            not_renamed: None,
            announced: false,
            value: None,
            value_written: false,
            rename: None,
            hold: None,
            attempt: None,
            told: None,
        }
    }

    /// Writes the value block of disk 0 first (lease-algorithms.md 7.4): one sector of the resource's sector size. If that fails,
    /// nothing else is done ([`ReleaseError::Value`]).
    #[must_use]
    pub fn with_value(mut self, value: Option<Arc<[u8]>>) -> Self {
        self.value = value;
        self
    }

    /// Gives the resource another name, in the write that frees the leader (lease-algorithms.md 6.2 step 5). A retract gives none, but
    /// finds the lease under either: a leader with the new name is one that the first attempt, or its next owner, wrote, and is left
    /// alone.
    #[must_use]
    pub fn renamed(mut self, name: Option<Name>) -> Self {
        self.rename = name;
        self
    }

    /// Of a lease that we held, our block as it was then: one that has gone further belongs to something newer of this host, and nothing is
    /// taken back. Where the lease is under another name on several disks, those are known by it (see [`Identify`]).
    #[must_use]
    pub fn of_hold(mut self, block: Option<HostBlock>) -> Self {
        self.hold = block;
        self
    }

    /// Of an acquire that failed, our block as it last wrote it. Of several disks perhaps none that can be read now has it, but one that comes
    /// back: the value in it, which another host may commit then, is given up by the flag beside that value, on a majority.
    #[must_use]
    pub fn of_attempt(mut self, block: Option<HostBlock>) -> Self {
        self.attempt = block;
        self
    }

    /// Why what lies on a disk is not to be taken for this lease's.
    pub(super) fn unseen(&self, disk: u8) -> Option<IoFailure> {
        self.ops.unseen(disk)
    }

    /// Writes that timed out and have not ended.
    pub(super) fn outstanding(&self) -> u32 {
        self.ops.outstanding()
    }

    /// Our block as it is on disk now, or may be: `None` if it was not written.
    pub(super) fn written(&self) -> Option<HostBlock> {
        self.mark
    }

    /// Whether the shared hold is known to be on a majority of the disks, so that others may come to share the lease.
    pub(super) fn announced(&self) -> bool {
        self.announced
    }

    /// Whether the value block is on disk.
    pub(super) fn value_written(&self) -> bool {
        self.value_written
    }

    /// What was known of the disks a moment ago stays known, unless too few of them have this lease: then it is looked again, for it may
    /// have been renamed.
    pub(super) fn with_ops(mut self, ops: Ops) -> Self {
        self.probed = ops.known() >= self.config.majority();
        self.ops = ops;
        self
    }

    /// For a lease that a process goes on using. The mode block is written without the flag first (as on several disks it always is), and
    /// nothing else before that is known to be on disk: where another host wrote the leader in our name the flag alone frees the lease, and
    /// a write that failed, or is given up, may be on disk all the same.
    pub(super) fn patiently(mut self) -> Self {
        self.patient = true;
        self
    }

    fn deadline(&self, now: MonoTime) -> MonoTime {
        now.plus_millis(self.config.io_timeout.millis())
    }

    fn done(&mut self, result: Result<Released, ReleaseError>) -> Step<ReleaseOutcome> {
        self.phase = Phase::Done;
        let outcome =
            ReleaseOutcome { result, block_failure: self.block_failure, value_written: self.value_written };
        Step::Done { outcome, outstanding: self.ops.outstanding() }
    }

    /// Goes on once the phase's operations have ended: at once if all disks are left alone.
    fn submit(&mut self, now: MonoTime, env: &Env<'_>, phase: Phase) -> Step<ReleaseOutcome> {
        self.phase = phase;
        if self.ops.idle() { self.advance(now, env) } else { Step::Io(self.ops.take_batch()) }
    }

    /// Nothing is written with a host id that we may no longer hold (rule R10). A dead client or a shutdown stops no release.
    fn may_write(&self, env: &Env<'_>) -> bool {
        env.lockspace == LockspaceNow::Alive { generation: self.config.generation }
    }

    fn write_all(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        sector: u64,
        content: &Content,
    ) -> Result<Tally, ReleaseError> {
        if !self.may_write(env) {
            return Err(ReleaseError::LockspaceGone);
        }
        let mut tally = Tally::default();
        for disk in 0..self.config.disks {
            if !self.ops.write(disk, self.geometry.sector(), sector, content.clone(), self.deadline(now)) {
                tally.not_started(self.ops.unseen(disk));
            }
        }
        Ok(tally)
    }

    /// Writes our block as it is, with RELEASED and the shared hold that is left.
    fn write_block(&mut self, now: MonoTime, env: &Env<'_>, block: HostBlock) -> Step<ReleaseOutcome> {
        let block = self.marked(block);
        match self.write_all(now, env, self.config.host.block_sector(), &Content::Block(block)) {
            Ok(tally) => {
                if self.reads_beside_the_mark() {
                    self.ask_for_leaders(now);
                }
                self.submit(now, env, Phase::WriteBlock(tally, Votes::default()))
            }
            Err(e) => self.done(Err(e)),
        }
    }

    fn marked(&mut self, mut block: HostBlock) -> HostBlock {
        block.dblock.flags = (block.dblock.flags.get() | DBLOCK_RELEASED).into();
        block.mode = self.mode;
        self.mark = Some(block);
        block
    }

    /// Whether the leader comes next, and may be read meanwhile: of a single disk, which has the lease and answers, or nothing comes of it.
    fn reads_beside_the_mark(&self) -> bool {
        let shared = matches!(self.what, What::Held(held) if held.is_shared());
        self.config.disks == 1 && !shared && self.told.is_none()
    }

    fn after_write_block(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        tally: Tally,
        leaders: &Votes<LeaderFail>,
    ) -> Step<ReleaseOutcome> {
        let marked = tally.ok >= self.config.majority();
        if !marked {
            self.block_failure = Some(tally.failure());
            if matches!(self.what, What::Exclusivity(_)) && !self.announced {
                // Without its mode block the shared hold is nothing: the leader has to stay ours.
                return self.done(Err(ReleaseError::DblockWrite(tally.failure())));
            }
            // Not fatal yet: if the leader can be freed, whoever asked has what they wanted, and the mark can follow
            // (`ReleaseOutcome::needs_retract`).
        }
        if let Some(told) = self.told {
            return self.done(told);
        }
        match self.what {
            What::Held(held) if held.is_shared() => {
                // A mode block on a single disk keeps others out: the disks that missed this are tried again.
                self.block_failure = tally.failure;
                self.done(if marked {
                    Ok(Released::ByFlag)
                } else {
                    Err(ReleaseError::DblockWrite(tally.failure()))
                })
            }
            _ if self.other_name.is_some() => self.done(match self.block_failure {
                Some(failure) => Err(ReleaseError::DblockWrite(failure)),
                None => Ok(Released::ByFlag),
            }),
            _ if marked && self.reads_beside_the_mark() => self.after_read_leader(now, env, leaders),
            What::Held(_) | What::Exclusivity(_) | What::Whatever => self.read_leader(now, env),
        }
    }

    fn start(&mut self, now: MonoTime, env: &Env<'_>) -> Step<ReleaseOutcome> {
        if self.config.disks > 1 && !self.probed {
            for disk in 0..self.config.disks {
                self.ops.read(disk, self.geometry.sector(), 0, 1, self.deadline(now), For::Leader);
            }
            return self.submit(now, env, Phase::Probe(Probe::default()));
        }
        if self.value_waits() {
            self.read_block(now);
            return self.submit(now, env, Phase::ReadBlock(OwnRead::default()));
        }
        let Some(value) = self.value.take() else { return self.begin(now, env) };
        if !self.may_write(env) {
            return self.done(Err(ReleaseError::LockspaceGone));
        }
        let size = self.geometry.sector();
        if value.len() != size.slice_len() || !self.geometry.lvb_fits() {
            return self.done(Err(ReleaseError::Driver));
        }
        if self.ops.write_to_the_only(0, size, LVB_SECTOR, Content::Value(value), self.deadline(now)) {
            return self.submit(now, env, Phase::WriteValue(Tally::default()));
        }
        self.done(Err(match self.ops.unseen(0) {
            // Nor would a write of the value have failed with this. A disk that cannot be opened, or has another lease, is as one that
            // refuses the value.
            Some(failure) if failure.may_still_land() => ReleaseError::Io(failure),
            other => ReleaseError::Value(other.unwrap_or(IoFailure::TimedOut)),
        }))
    }

    /// Whether there is a value that is not written before our block was read: of a hold that is given up once more, which may be over.
    fn value_waits(&self) -> bool {
        self.what == What::Whatever && self.value.is_some() && self.hold.is_some() && !self.looked
    }

    fn after_value(&mut self, now: MonoTime, env: &Env<'_>, tally: Tally) -> Step<ReleaseOutcome> {
        if tally.ok == 0 {
            return self.done(Err(ReleaseError::Value(tally.failure())));
        }
        self.value_written = true;
        self.begin(now, env)
    }

    fn begin(&mut self, now: MonoTime, env: &Env<'_>) -> Step<ReleaseOutcome> {
        match self.what {
            // Of several disks one may have the flag, which others believe, long before a majority has the mode block.
            What::Exclusivity(held) if self.patient || self.config.disks > 1 => {
                self.announce(now, env, held.block)
            }
            What::Held(_) if self.leader_first() => match self.other_name {
                Some(found) => self.mark(now, env, Err(ReleaseError::Leader(self.called(found)))),
                None => self.read_leader(now, env),
            },
            What::Held(held) | What::Exclusivity(held) => self.write_block(now, env, held.block),
            What::Whatever => {
                self.read_block(now);
                self.submit(now, env, Phase::ReadBlock(OwnRead::default()))
            }
        }
    }

    fn record(&mut self, disk: u8, purpose: For, result: Result<View<'_>, IoFailure>) {
        let mode = self.mode;
        let mut phase = std::mem::replace(&mut self.phase, Phase::Done);
        match &mut phase {
            Phase::ReadBlock(read) if purpose == For::Leader => read.leader(&self.decode_leader(result)),
            Phase::ReadBlock(read) if !self.ops.is_known(disk) => {
                read.unread(result.err().or(self.ops.unseen(disk)))
            }
            Phase::ReadBlock(read) => read.put(host_block(result, self.config.host), self.config.host, mode),
            Phase::WriteValue(tally) | Phase::AwaitBlock(tally) | Phase::WriteLeader(tally) => {
                tally.count(&result);
            }
            Phase::MarkAndFree { freeing: tally, .. } if purpose == For::WriteLeader => tally.count(&result),
            Phase::MarkAndFree { marking: tally, .. } => tally.count(&result),
            Phase::Announce(tally, _) | Phase::WriteBlock(tally, _) if purpose == For::Write => {
                tally.count(&result);
            }
            Phase::Announce(_, votes) | Phase::WriteBlock(_, votes) | Phase::ReadLeader(votes) => {
                let leader = self.decode_leader(result);
                self.ops.found(disk, &leader);
                self.newer_hold |=
                    self.renamed_leader(&leader, result).is_some_and(|leader| self.wrote(&leader));
                votes.put(leader);
            }
            Phase::Probe(probe) => {
                let leader = self.decode_leader(result);
                self.ops.found(disk, &leader);
                let renamed = self.renamed_leader(&leader, result);
                let renamed = renamed.map(|leader| (leader, self.is_not_the_holds(&leader)));
                probe.put(disk, &leader, renamed);
            }
            Phase::Identify(identify) => identify.put(disk, host_block(result, self.config.host)),
            Phase::Start | Phase::Done => {}
        }
        self.phase = phase;
    }

    fn advance(&mut self, now: MonoTime, env: &Env<'_>) -> Step<ReleaseOutcome> {
        match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::Probe(probe) => self.after_probe(now, env, &probe),
            Phase::Identify(identify) => self.after_identify(now, env, &identify),
            Phase::ReadBlock(read) => self.after_read_block(now, env, &read),
            Phase::WriteValue(tally) => self.after_value(now, env, tally),
            Phase::Announce(tally, leaders) => self.after_announce(now, env, tally, &leaders),
            Phase::AwaitBlock(tally) => self.after_announce(now, env, tally, &Votes::default()),
            Phase::WriteBlock(tally, leaders) => self.after_write_block(now, env, tally, &leaders),
            Phase::ReadLeader(votes) => self.after_read_leader(now, env, &votes),
            Phase::WriteLeader(tally) => self.after_write_leader(now, env, tally),
            Phase::MarkAndFree { marking, freeing } => self.after_mark_and_free(now, env, marking, freeing),
            Phase::Start | Phase::Done => self.done(Err(ReleaseError::Driver)),
        }
    }
}

impl Machine for PaxosRelease {
    type Outcome = ReleaseOutcome;

    fn step(&mut self, now: MonoTime, env: &Env<'_>, input: Input<'_>) -> Step<ReleaseOutcome> {
        match input {
            Input::Start => self.start(now, env),
            // The lockspace or the client may be gone.
            Input::Tick => match self.phase {
                Phase::AwaitBlock(tally) => self.after_announce(now, env, tally, &Votes::default()),
                _ => Step::Pending,
            },
            Input::CompletedLate { op, result } if self.ops.late_disk(op).is_some() => {
                let landed = result.is_ok();
                let _nothing = self.ops.absorb(input);
                self.block_ended_late(now, env, landed)
            }
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
