//! Joining: taking a host id (lease-algorithms.md 2.2, 2.3).
//!
//! # The I/O, and why each is there
//!
//! 1. Read the first 4096 bytes of the area: record 1 states the sizes.
//! 2. Read our sector. Free, or our own name where the caller vouches that the old instance is gone (rule R7): go on at 4.
//! 3. Otherwise wait until whoever holds it must have been reset, reading it every second: any change but to "free" means that
//!    its owner lives, and the join fails there and then (W24). A read at the end shows that nothing changed up to it.
//! 4. Write it as ours.
//! 5. Wait until every competitor that saw the same free record has written too, then read: the last writer wins. A competitor whose
//!    write ended later than that, counted from its read of the record, does not rely on it.
//!
//! This program may stand still at any moment, and does not have a watchdog yet that would end it. So what was read is relied upon only
//! within the limit of the read, and what was written only if its end was heard of before anybody else could have done without it.
//!
//! Both waits are those of the io timeout *found on disk*: that is the one the hosts of the lockspace went by. Where it is so
//! much longer than ours that our lease would age beyond 4T in the second wait, the lease is checked and renewed on the way.

mod stopping;

use super::{DeltaConfig, Instance, JoinError, JoinOutcome, Joined};
use crate::geometry::{AlignSize, Geometry, SectorSize};
use crate::limits::SECTOR_BYTES_MAX;
use crate::machine::{Action, Env, Input, IoFailure, Machine, Op, OpId, Place, Step, View};
use crate::name::Name;
use crate::record::{Bitmap, RawLeader};
use crate::timing::{IoTimeout, MonoTime};
use crate::verify::{self, LeaderError, Purpose};
use arrayvec::ArrayVec;

/// Spacing of the looks at a lease that is not ours (W24).
const LOOK_MS: u64 = 1000;
/// Waited beyond 8·O + F, so that clocks may differ by more than the shortest slack of lease-algorithms.md 13.4 needs.
const SLACK_SECS: u64 = 1;
/// Of the settling time this part is left for clocks that run at different rates (lease-algorithms.md 13.4: 0.7 %).
const SETTLE_MARGIN: u64 = 20;
/// Reads in a row that were heard of too late.
const STALE_MAX: u32 = 8;
/// The sizes are found in this many sectors of 512 bytes.
const SIZES_SECTORS: u64 = (SECTOR_BYTES_MAX / 512) as u64;

/// A record of somebody else under observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Watch {
    /// As first read.
    seen: RawLeader,
    /// When it may be taken.
    until: MonoTime,
    /// When to look next.
    next_look: MonoTime,
    /// Whether a look that timed out is still outstanding: no further one is started meanwhile.
    look_stuck: Option<OpId>,
}

/// Our record on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Ours {
    leader: RawLeader,
    written: MonoTime,
    /// From then on the end of this write proves nothing: a competitor that saw the same free record may have waited for it in vain, or
    /// may have waited for our death.
    in_vain: MonoTime,
    /// End of the second wait; known once the first write has completed.
    settled: Option<MonoTime>,
    /// Its length, 2·O.
    settle_secs: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Before second 1 of the clock nothing can be written: a timestamp of 0 means free.
    ClockZero,
    Sizes,
    First,
    Watching(Watch),
    Looking(Watch),
    /// The read that decides after the whole wait.
    LastLook(Watch),
    Writing(Ours),
    Settling(Ours),
    Checking(Ours),
    /// Stopped: is the record still ours, to be freed?
    CheckBeforeFreeing(Ours),
    Freeing,
    Done,
}

/// One attempt to join a lockspace.
///
/// `env.lockspace` is `Alive` (of any generation) while the join is wanted, `Gone` when its removal was requested.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeltaAcquire {
    config: DeltaConfig,
    fast_rejoin: Option<u64>,
    /// The latest instance that is known to have had the host id, of this machine or seen by this join.
    remembered: Option<Instance>,
    /// The largest generation with which an earlier join of this machine may still make the host id its own; 0 if there is none.
    claimed: u64,
    /// The largest generation that may be written.
    limit: u64,
    geometry: Geometry,
    phase: Phase,
    next_op: u32,
    current: Option<OpId>,
    /// When the current operation, or the last one, was asked for.
    asked: MonoTime,
    /// Reads in a row that were heard of too late.
    stale: u32,
    /// A write that timed out. There is no second one: it ends the join.
    late_write: Option<OpId>,
}

impl DeltaAcquire {
    /// A join. `fast_rejoin`: an equal host name on disk may be taken over without the long wait if it has this generation,
    /// because the caller knows that no process of that earlier instance is left (rule R7). Another generation is another
    /// instance, of which the caller knows nothing.
    #[must_use]
    pub fn new(config: DeltaConfig, fast_rejoin: Option<u64>) -> Self {
        Self {
            config,
            fast_rejoin,
            remembered: None,
            claimed: 0,
            limit: u64::MAX,
            geometry: Geometry::B512_M1,
            phase: Phase::ClockZero,
            next_op: 0,
            current: None,
            asked: MonoTime::from_millis(0),
            stale: 0,
            late_write: None,
        }
    }

    /// The same, with a generation above that of this instance of the same machine, whatever the disk says (weakness W14): a renewal of an
    /// earlier instance that landed late may have brought an older generation back. Leases name the generation of their owner; with a
    /// smaller or a used one this host would seem to be an owner that it is not, and whose leases nobody could take.
    #[must_use]
    pub fn remembering(self, instance: Option<Instance>) -> Self {
        Self { remembered: instance, ..self }
    }

    /// The same, with a generation above those with which earlier joins of this machine have claimed the host id (0 if none has) without coming
    /// to know what became of it: such a write may land at any time, and nobody could tell this instance, and the io timeout that it is
    /// to be judged by, from that one.
    #[must_use]
    pub fn above(self, claimed: u64) -> Self {
        Self { claimed, ..self }
    }

    /// The same, without writing a larger generation than this one: where one is needed the join ends with [`JoinError::Unrecorded`] before any
    /// write and any wait, so that it can be recorded for the joins that may come after this one ([`Self::above`]), and made anew, remembering what this one has seen.
    #[must_use]
    pub fn recorded_up_to(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    /// The generation to join with, where this is on disk.
    fn next_generation(&self, record: &RawLeader) -> Result<u64, JoinError> {
        let found = record.owner_generation.get();
        let latest = self.later_than(record).map_or(found, |later| later.generation).max(self.claimed);
        match latest.checked_add(1) {
            Some(generation) if generation <= self.limit => Ok(generation),
            Some(generation) => Err(JoinError::Unrecorded { generation, latest: self.latest_with(record) }),
            None => Err(JoinError::Generation { found: latest }),
        }
    }

    /// The latest instance that is known, with the one of this record. That counts beside one that is later still.
    fn latest_with(&self, record: &RawLeader) -> Instance {
        let seen =
            Instance { generation: record.owner_generation.get(), io_timeout: self.found_timeout(record) };
        match self.remembered.filter(|known| known.generation >= seen.generation) {
            Some(known) => Instance { io_timeout: known.io_timeout.max(seen.io_timeout), ..known },
            None => seen,
        }
    }

    /// The instance known to be a later one than this record is of, if there is one.
    fn later_than(&self, record: &RawLeader) -> Option<Instance> {
        self.remembered.filter(|instance| record.owner_generation.get() < instance.generation)
    }

    /// The time at which a lease that is not free can be taken at the earliest, while that is being waited for.
    #[must_use]
    pub fn waiting_until(&self) -> Option<MonoTime> {
        match &self.phase {
            Phase::Watching(w) | Phase::Looking(w) | Phase::LastLook(w) => Some(w.until),
            Phase::Settling(o) | Phase::Checking(o) => o.settled,
            _ => None,
        }
    }

    fn done(&mut self, outcome: JoinOutcome) -> Step<JoinOutcome> {
        self.phase = Phase::Done;
        self.current = None;
        Step::Done { outcome, outstanding: u32::from(self.late_write.is_some()) }
    }

    fn op_id(&mut self, now: MonoTime) -> OpId {
        let id = OpId(self.next_op);
        self.next_op += 1;
        self.asked = now;
        self.current = Some(id);
        id
    }

    fn submit(&mut self, phase: Phase, op: Op) -> Step<JoinOutcome> {
        self.phase = phase;
        let mut ops = ArrayVec::new();
        ops.push(op);
        Step::Io(ops)
    }

    fn read(&mut self, now: MonoTime, phase: Phase) -> Step<JoinOutcome> {
        let id = self.op_id(now);
        let op = self.config.read_own(id, self.geometry.sector(), now);
        self.submit(phase, op)
    }

    fn write(&mut self, now: MonoTime, leader: RawLeader, phase: Phase) -> Step<JoinOutcome> {
        let deadline = self.config.deadline(now);
        let id = self.op_id(now);
        let op = self.config.write_own(id, self.geometry.sector(), leader, Bitmap::default(), deadline);
        self.submit(phase, op)
    }

    fn stood_still(&mut self, now: MonoTime, since: MonoTime) -> Step<JoinOutcome> {
        self.done(Err(JoinError::StoodStill { ms: now.millis_since(since) }))
    }

    /// A read says what was on disk at some moment since it was asked for. Heard of after its limit, it may be from before a standstill
    /// of this program, in which another host may have joined, and is made once more.
    fn read_again(&mut self, now: MonoTime) -> Step<JoinOutcome> {
        self.stale += 1;
        if self.stale > STALE_MAX {
            return self.stood_still(now, self.asked);
        }
        self.read(now, self.phase)
    }

    fn start(&mut self, now: MonoTime) -> Step<JoinOutcome> {
        if now.secs() == 0 {
            return Step::Wait(MonoTime::from_secs(1));
        }
        let op = Op {
            id: self.op_id(now),
            place: Place::Lockspace,
            sector_size: SectorSize::B512,
            action: Action::Read { first: 0, count: SIZES_SECTORS },
            deadline: self.config.deadline(now),
            doubt_ms: 0,
        };
        self.submit(Phase::Sizes, op)
    }

    fn sizes(&self, result: Result<View<'_>, IoFailure>) -> Result<Geometry, JoinError> {
        let view = result.map_err(JoinError::Read)?;
        let first = view.sector(0).ok_or(JoinError::Read(IoFailure::Short))?;
        let record = RawLeader::from_sector(first);
        verify::delta_magic_version(&record, Purpose::Use).map_err(JoinError::Leader)?;
        let geometry = verify::sizes(&record).map_err(JoinError::Leader)?;
        let (host, max) = (self.config.host, geometry.max_hosts());
        if host.get() > u64::from(max) {
            return Err(JoinError::HostId { host, max });
        }
        Ok(geometry)
    }

    fn own_record(&self, result: Result<View<'_>, IoFailure>) -> Result<RawLeader, JoinError> {
        let record = self.config.own_record(result).map_err(JoinError::Read)?;
        self.config.check(&record, self.geometry).map_err(JoinError::Leader)?;
        // The first record's flags were believed without its checksum. By a wrong one hosts would be overlooked for as long as this one is joined.
        let (found, first) = (AlignSize::from_flags(record.flags.get()), self.geometry.align());
        match found.filter(|found| *found != first) {
            Some(found) => Err(JoinError::Leader(LeaderError::OtherAlign { found, first })),
            None => Ok(record),
        }
    }

    /// Step 2: free, ours, or somebody else's.
    fn decide(&mut self, now: MonoTime, record: RawLeader) -> Step<JoinOutcome> {
        // Before a long wait, not after it.
        if let Err(error @ JoinError::Unrecorded { .. }) = self.next_generation(&record) {
            return self.done(Err(error));
        }
        let same_name = self.config.host_name.matches(&record.resource_name);
        let vouched_for = self.fast_rejoin == Some(record.owner_generation.get());
        if self.is_freed(&record) || (same_name && vouched_for) {
            return self.take(now, record);
        }
        self.wait_out(now, record)
    }

    /// Whether this says that nobody has the host id. A free record of an older generation than this machine is known to have joined
    /// with is an earlier release that landed late: unless the caller knows that nothing is left of the later instance, that one counts
    /// as silent.
    fn is_freed(&self, record: &RawLeader) -> bool {
        let later = self.later_than(record);
        record.timestamp.get() == 0 && later.is_none_or(|later| self.fast_rejoin == Some(later.generation))
    }

    /// Step 3: waits until whoever may have the host id must have been reset: the instance of this record, and the one that it may hide, of
    /// which the record's io timeout says nothing.
    fn wait_out(&mut self, now: MonoTime, record: RawLeader) -> Step<JoinOutcome> {
        let found = self.found_timeout(&record);
        let hidden = self.remembered.filter(|instance| record.owner_generation.get() <= instance.generation);
        let io_timeout = hidden.map_or(found, |hidden| hidden.io_timeout.max(found));
        let until = now.plus_secs(io_timeout.host_dead_secs(self.config.fire) + SLACK_SECS);
        self.watch(now, Watch { seen: record, until, next_look: now, look_stuck: None })
    }

    /// O: the io timeout on disk, or ours if that is 0.
    fn found_timeout(&self, record: &RawLeader) -> IoTimeout {
        IoTimeout::from_disk(record.io_timeout.get(), self.config.io_timeout)
    }

    /// Waits for the next look at a foreign record.
    fn watch(&mut self, now: MonoTime, watch: Watch) -> Step<JoinOutcome> {
        let next_look = now.plus_millis(LOOK_MS).min(watch.until);
        self.phase = Phase::Watching(Watch { next_look, ..watch });
        Step::Wait(next_look)
    }

    fn tick_watching(&mut self, now: MonoTime, watch: Watch) -> Step<JoinOutcome> {
        if now < watch.next_look {
            Step::Wait(watch.next_look)
        } else if now >= watch.until {
            self.read(now, Phase::LastLook(watch))
        } else if watch.look_stuck.is_some() {
            self.watch(now, watch)
        } else {
            self.read(now, Phase::Looking(watch))
        }
    }

    /// A look during the wait. A failed one proves nothing and ends nothing; the last one decides.
    fn after_look(
        &mut self,
        now: MonoTime,
        watch: Watch,
        result: Result<View<'_>, IoFailure>,
    ) -> Step<JoinOutcome> {
        match self.own_record(result) {
            Ok(record) if record == watch.seen => self.watch(now, watch),
            Ok(record) => self.changed(now, &watch, record),
            Err(JoinError::Read(_)) => self.watch(now, watch),
            Err(e) => self.done(Err(e)),
        }
    }

    fn after_last_look(
        &mut self,
        now: MonoTime,
        watch: Watch,
        result: Result<View<'_>, IoFailure>,
    ) -> Step<JoinOutcome> {
        match self.own_record(result) {
            Ok(record) if record == watch.seen => self.take(now, record),
            Ok(record) => self.changed(now, &watch, record),
            Err(e) => self.done(Err(e)),
        }
    }

    fn changed(&mut self, now: MonoTime, watch: &Watch, record: RawLeader) -> Step<JoinOutcome> {
        if record.timestamp.get() != 0 {
            return self.done(Err(JoinError::Busy {
                owner: Name::from_field(&record.resource_name),
                generation: record.owner_generation.get(),
            }));
        }
        // The one that was waited for may be a later one than the one that has released.
        self.remembered = Some(self.latest_with(&watch.seen));
        if self.is_freed(&record) {
            return self.take(now, record);
        }
        self.wait_out(now, record)
    }

    /// Step 5: the record as read, made ours.
    fn take(&mut self, now: MonoTime, record: RawLeader) -> Step<JoinOutcome> {
        let generation = match self.next_generation(&record) {
            Ok(generation) => generation,
            Err(error) => return self.done(Err(error)),
        };
        let settle_secs = self.found_timeout(&record).delta_short_delay_secs();
        // Whoever saw the same record, and wrote, looks after its settling time whether somebody else did too.
        let settle_ms = settle_secs * 1000;
        let in_vain = self.asked.plus_millis(settle_ms - settle_ms / SETTLE_MARGIN);
        if now >= in_vain {
            return self.stood_still(now, self.asked);
        }
        let mut leader = record;
        leader.timestamp = now.secs().into();
        leader.io_timeout = self.config.io_timeout.to_disk().into();
        leader.owner_id = self.config.host.get().into();
        leader.owner_generation = generation.into();
        leader.resource_name = self.config.host_name.to_field();
        leader.seal();
        let ours = Ours { leader, written: now, in_vain, settled: None, settle_secs };
        self.write(now, leader, Phase::Writing(ours))
    }

    /// Step 6, or the part of it until our lease has to be renewed.
    fn settle(&mut self, now: MonoTime, ours: Ours) -> Step<JoinOutcome> {
        let end = Self::settled(now, &ours);
        self.phase = Phase::Settling(Ours { settled: Some(end), ..ours });
        Step::Wait(self.check_at(&ours, end))
    }

    /// When whoever saw the same record has written too: the first write has ended by now.
    fn settled(now: MonoTime, ours: &Ours) -> MonoTime {
        ours.settled.unwrap_or_else(|| now.plus_secs(ours.settle_secs))
    }

    fn check_at(&self, ours: &Ours, end: MonoTime) -> MonoTime {
        let interval = self.config.io_timeout.renewal_secs();
        if end.secs_since(ours.written) > 2 * interval {
            ours.written.plus_secs(interval).min(end)
        } else {
            end
        }
    }

    /// Step 7.
    fn after_check(
        &mut self,
        now: MonoTime,
        ours: Ours,
        result: Result<View<'_>, IoFailure>,
    ) -> Step<JoinOutcome> {
        match self.own_record(result) {
            Ok(record) if record == ours.leader => {}
            Ok(record) => {
                return self.done(Err(JoinError::Lost {
                    owner: Name::from_field(&record.resource_name),
                    generation: record.owner_generation.get(),
                }));
            }
            Err(e) => return self.done(Err(e)),
        }
        let in_vain = ours.written.plus_secs(self.config.io_timeout.renewal_fail_secs());
        if now >= in_vain {
            // Still ours, but whoever waited for our death may be about to write.
            return self.stood_still(now, ours.written);
        }
        if ours.settled.is_some_and(|end| now >= end) {
            let joined = Joined { geometry: self.geometry, leader: ours.leader, last_good: ours.written };
            return self.done(Ok(joined));
        }
        let mut leader = ours.leader;
        leader.timestamp = now.secs().into();
        leader.seal();
        self.write(now, leader, Phase::Writing(Ours { leader, written: now, in_vain, ..ours }))
    }

    /// The operation of the current phase ended.
    fn ended(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        result: Result<View<'_>, IoFailure>,
    ) -> Step<JoinOutcome> {
        let stop = Self::stopped(env);
        let stale = result.is_ok() && now > self.config.deadline(self.asked);
        if !stale {
            self.stale = 0;
        }
        match self.phase {
            Phase::Sizes | Phase::First | Phase::Looking(_) | Phase::LastLook(_) if stop => {
                self.done(Err(JoinError::Stopped { freed: true }))
            }
            Phase::Sizes => match self.sizes(result) {
                Ok(geometry) => {
                    self.geometry = geometry;
                    self.read(now, Phase::First)
                }
                Err(e) => self.done(Err(e)),
            },
            Phase::First | Phase::Looking(_) | Phase::LastLook(_) if stale => self.read_again(now),
            Phase::First => match self.own_record(result) {
                Ok(record) => self.decide(now, record),
                Err(e) => self.done(Err(e)),
            },
            Phase::Looking(watch) => self.after_look(now, watch, result),
            Phase::LastLook(watch) => self.after_last_look(now, watch, result),
            Phase::Writing(ours) => match result {
                Ok(_) if now >= ours.in_vain && stop => self.done(Err(JoinError::Stopped { freed: false })),
                Ok(_) if now >= ours.in_vain => self.stood_still(now, ours.written),
                Ok(_) if stop => self.free_again(now, ours),
                Ok(_) => self.settle(now, ours),
                Err(e) => self.done(Err(JoinError::Write(e))),
            },
            Phase::Checking(ours) if stop => self.free_again(now, ours),
            Phase::Checking(_) if stale => self.read_again(now),
            Phase::Checking(ours) => self.after_check(now, ours, result),
            Phase::CheckBeforeFreeing(ours) => self.after_check_before_freeing(now, ours, result),
            Phase::Freeing => self.done(Err(JoinError::Stopped { freed: result.is_ok() })),
            Phase::ClockZero | Phase::Watching(_) | Phase::Settling(_) | Phase::Done => Step::Pending,
        }
    }

    fn tick(&mut self, now: MonoTime, env: &Env<'_>) -> Step<JoinOutcome> {
        let stop = Self::stopped(env);
        match self.phase {
            // Reads that are running do not matter to anyone.
            Phase::ClockZero | Phase::Sizes | Phase::First if stop => {
                self.done(Err(JoinError::Stopped { freed: true }))
            }
            Phase::Watching(_) | Phase::Looking(_) | Phase::LastLook(_) if stop => {
                self.done(Err(JoinError::Stopped { freed: true }))
            }
            Phase::ClockZero => self.start(now),
            Phase::Watching(watch) => self.tick_watching(now, watch),
            Phase::Settling(ours) | Phase::Checking(ours) if stop => self.free_again(now, ours),
            Phase::Settling(ours) => {
                let end = ours.settled.unwrap_or(now);
                let due = self.check_at(&ours, end);
                if now >= due { self.read(now, Phase::Checking(ours)) } else { Step::Wait(due) }
            }
            _ => Step::Pending,
        }
    }

    /// The operation of the current phase has not ended, and is waited for no longer; what was never started has ended.
    fn outstanding(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        op: OpId,
        failure: IoFailure,
    ) -> Step<JoinOutcome> {
        match &mut self.phase {
            Phase::Looking(watch) => watch.look_stuck = Some(op),
            Phase::Writing(_) | Phase::Freeing => self.late_write = Some(op),
            _ => {}
        }
        self.ended(now, env, Err(failure))
    }

    fn late(&mut self, op: OpId) -> Step<JoinOutcome> {
        if let Phase::Watching(watch) | Phase::Looking(watch) | Phase::LastLook(watch) = &mut self.phase {
            if watch.look_stuck == Some(op) {
                watch.look_stuck = None;
            }
        }
        if self.late_write == Some(op) {
            self.late_write = None;
        }
        Step::Pending
    }
}

impl Machine for DeltaAcquire {
    type Outcome = JoinOutcome;

    fn step(&mut self, now: MonoTime, env: &Env<'_>, input: Input<'_>) -> Step<JoinOutcome> {
        match input {
            Input::Start if self.phase == Phase::ClockZero && self.current.is_none() => self.tick(now, env),
            Input::Start => self.done(Err(JoinError::Driver)),
            Input::Tick => self.tick(now, env),
            Input::Completed { op, result } if self.current == Some(op) => self.ended(now, env, result),
            Input::TimedOut { op } if self.current == Some(op) => {
                self.outstanding(now, env, op, IoFailure::TimedOut)
            }
            Input::Doubtful { op, failure } if self.current == Some(op) => {
                self.outstanding(now, env, op, failure)
            }
            Input::CompletedLate { op, .. } => self.late(op),
            Input::Completed { .. } | Input::TimedOut { .. } | Input::Doubtful { .. } => Step::Pending,
        }
    }
}
