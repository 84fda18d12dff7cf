//! Renewal: keeping a host id (lease-algorithms.md 2.4, 2.5).
//!
//! One value lives as long as the lockspace is joined; every attempt is a [`Input::Start`]. An attempt reads our sector, checks
//! that it holds what we wrote, and writes it with a new timestamp. What other hosts do is looked at elsewhere
//! ([`super::scan`]), so that a slow scan delays no renewal.
//!
//! * A read that timed out is still worth having: the next attempt waits a little for it before it reads anew.
//! * A write gets the limit 8T + F, because nothing else can be written until it ends. Even after that it is outstanding: the
//!   attempts that follow only read, until it completes. Then it counts as a renewal of the time it carries, no later (W30).
//! * A write that ends in doubt keeps nobody from writing: one error must not end a lockspace. Until it has settled, and one more write
//!   that began after that has succeeded, any record of this instance is taken for ours.
//! * No two writes carry the same timestamp, even within one second: the one in doubt would look like the other when it lands over newer
//!   ones, and whoever has missed those would reckon our silence from before them.
//! * Contents that are not ours end everything: see [`Corrupt`].

use super::{DeltaConfig, DeltaRelease, Joined};
use crate::code::ReturnCode;
use crate::geometry::Geometry;
use crate::machine::{Env, Input, IoFailure, Machine, Op, OpId, Step, View};
use crate::name::Name;
use crate::record::{Bitmap, RawLeader};
use crate::timing::MonoTime;
use crate::verify::LeaderError;
use arrayvec::ArrayVec;

/// Pause between a failed attempt and the next (lease-algorithms.md 2.4).
pub const RETRY_PAUSE_MS: u64 = 500;

/// A host event to carry in our record (disk-format.md 6.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Event {
    /// Generation of the addressed host, 0 for any.
    pub generation: u64,
    /// Event number, 0 for none.
    pub event: u64,
    /// Event data.
    pub data: u64,
}

/// Our sector holds something that we did not write: the lockspace is lost, at once and for good. Nothing is renewed or
/// released any more, since that would destroy another host's claim (W12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Corrupt {
    /// It is no valid record of this lockspace.
    #[error(transparent)]
    Leader(LeaderError),
    /// It names another owner.
    #[error(
        "the host_id lease now belongs to {owner:?}, host id {owner_id} generation {generation}; ours was generation {ours}"
    )]
    Owner {
        /// The host name found.
        owner: Name,
        /// The owner found.
        owner_id: u64,
        /// The generation found.
        generation: u64,
        /// Our generation.
        ours: u64,
    },
    /// It names us, but is not what we wrote last.
    #[error("the host_id lease was changed by somebody: timestamp {found}, we wrote {expected}")]
    Changed {
        /// The timestamp found; it may be the right one if another field differs.
        found: u64,
        /// The timestamp we wrote.
        expected: u64,
    },
}

impl From<&Corrupt> for ReturnCode {
    fn from(e: &Corrupt) -> Self {
        match e {
            Corrupt::Leader(e) => Self::from(e),
            Corrupt::Owner { .. } => Self::RENEW_OWNER,
            Corrupt::Changed { .. } => Self::RENEW_DIFF,
        }
    }
}

/// A good renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Renewed {
    /// The time whose seconds the record now carries, or later ones if an earlier record had carried those.
    pub last_good: MonoTime,
    /// Milliseconds the read took, which for a late read is more than the io timeout.
    pub read_ms: u64,
    /// Milliseconds the write took.
    pub write_ms: u64,
    /// Whether the data came from a read that an earlier attempt had given up.
    pub late_read: bool,
    /// Whether the write is one that an earlier attempt had given up.
    pub late_write: bool,
    /// An io timeout found in the record that was not ours, and was replaced.
    pub foreign_io_timeout: Option<u16>,
}

/// Why an attempt came to nothing. The next one may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RenewFailure {
    /// Reading our sector failed.
    #[error("reading the host_id lease failed: {0}")]
    Read(IoFailure),
    /// Writing our sector failed. After a timeout, or in doubt, the write is outstanding.
    #[error("writing the host_id lease failed: {0}")]
    Write(IoFailure),
    /// An earlier write is still outstanding. Reading worked.
    #[error("an earlier write of the host_id lease has not completed yet")]
    WriteOutstanding,
}

impl RenewFailure {
    /// Whether the history counts it as a timeout rather than as an error.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(
            self,
            Self::Read(IoFailure::TimedOut) | Self::Write(IoFailure::TimedOut) | Self::WriteOutstanding
        )
    }
}

impl From<&RenewFailure> for ReturnCode {
    fn from(e: &RenewFailure) -> Self {
        match e {
            RenewFailure::Read(io) | RenewFailure::Write(io) => Self::from(io),
            RenewFailure::WriteOutstanding => Self::AIO_TIMEOUT,
        }
    }
}

/// What one attempt came to. A late write that completes between attempts makes the machine report a further `Renewed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RenewOutcome {
    /// Renewed.
    Renewed(Renewed),
    /// Not renewed; try again.
    Failed(RenewFailure),
    /// Lost. Every further attempt answers the same without any I/O.
    Corrupt(Corrupt),
}

/// What the attempt is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    /// For the read that timed out, until this time.
    WaitingLate(MonoTime),
    Reading(OpId),
    Writing(OpId),
}

/// The read that the last attempt gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct LateRead {
    id: OpId,
    submitted: MonoTime,
    /// When it completed, and what it brought, if that was before the next attempt began.
    completed: Option<(MonoTime, Result<RawLeader, IoFailure>)>,
}

/// The one write that may be running or outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OwnWrite {
    id: OpId,
    leader: RawLeader,
    submitted: MonoTime,
    /// The read it relied on.
    info: ReadInfo,
    /// Whether another write was in doubt when it began: that one may reach the disk after it, however long this one takes to end.
    beside_doubt: bool,
}

/// A read's data and where they came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct ReadInfo {
    submitted: MonoTime,
    ms: u64,
    late: bool,
    foreign_io_timeout: Option<u16>,
}

/// The renewals of one joined lockspace.
///
/// It looks at nothing in [`Env`]: renewals go on in a failed lockspace until its processes are gone, and it is for the driver
/// to start no further attempt after that.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Renewal {
    config: DeltaConfig,
    geometry: Geometry,
    read_extend_ms: u64,
    /// The last record known to be on disk, ours.
    known: RawLeader,
    /// Whether `known` is exactly what is on disk: no write failed since it was written, and none that may still land is from before.
    exact: bool,
    /// The timestamp of the last write, whatever became of it. Later ones carry larger ones.
    written: u64,
    /// Whether the last attempt, or the join, succeeded.
    good: bool,
    last_good: MonoTime,
    ended: MonoTime,
    corrupt: Option<Corrupt>,
    event: Event,
    bitmap: Bitmap,
    phase: Phase,
    info: ReadInfo,
    late_read: Option<LateRead>,
    write: Option<OwnWrite>,
    /// The last write that ended in doubt, until it settles; those before settle before.
    doubtful: Option<OpId>,
    /// Whether a write ended when somebody else might have had the lease already.
    overtaken: bool,
    next_op: u32,
}

impl Renewal {
    /// The renewals of a lockspace just joined.
    #[must_use]
    pub fn new(config: DeltaConfig, joined: &Joined) -> Self {
        Self {
            config,
            geometry: joined.geometry,
            read_extend_ms: config.io_timeout.millis(),
            known: joined.leader,
            exact: true,
            written: joined.leader.timestamp.get(),
            good: true,
            last_good: joined.last_good,
            ended: joined.last_good,
            corrupt: None,
            event: Event::default(),
            bitmap: Bitmap::default(),
            phase: Phase::Idle,
            info: ReadInfo::default(),
            late_read: None,
            write: None,
            doubtful: None,
            overtaken: false,
            next_op: 0,
        }
    }

    /// How long an attempt waits for the read that timed out in the one before (`renewal_read_extend_sec`). Unless configured
    /// it is the io timeout; a configured 0 means 0.5 s, and more than [`IoTimeout::read_extend_secs_max`] means that.
    ///
    /// [`IoTimeout::read_extend_secs_max`]: crate::timing::IoTimeout::read_extend_secs_max
    pub fn set_read_extend_secs(&mut self, secs: u32) {
        let secs = u64::from(secs).min(self.config.io_timeout.read_extend_secs_max());
        self.read_extend_ms = if secs == 0 { RETRY_PAUSE_MS } else { secs * 1000 };
    }

    /// What the next writes carry besides the timestamp. Our own bit in the bitmap must not be set.
    pub fn set_outgoing(&mut self, event: Event, bitmap: Bitmap) {
        self.event = event;
        self.bitmap = bitmap;
    }

    /// The last good renewal: what the age of the lockspace and the watchdog count from. Look at it after every step; a late
    /// write can move it in any of them.
    #[must_use]
    pub fn last_good(&self) -> MonoTime {
        self.last_good
    }

    /// Why the lockspace is lost, if it is.
    #[must_use]
    pub fn corrupt(&self) -> Option<Corrupt> {
        self.corrupt
    }

    /// The generation we hold the host id with.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.known.owner_generation.get()
    }

    /// Whether a write is running or outstanding.
    #[must_use]
    pub fn write_outstanding(&self) -> bool {
        self.write.is_some()
    }

    /// By when the outstanding writes, if there are any, must have ended for the record on disk to be a proof that nobody else took
    /// the host id; `None`: there is none, and it is.
    ///
    /// A write that ended 8·T + F or more after the last good renewal may have landed over the record of another machine that was
    /// given the same host id. Our record on disk does not then say that it is the last instance (rule R7).
    #[must_use]
    pub fn sole_if_ended_before(&self) -> Option<MonoTime> {
        let outstanding = self.write.is_some() || self.doubtful.is_some();
        if self.overtaken { Some(MonoTime::default()) } else { outstanding.then(|| self.others_may_take()) }
    }

    /// When another machine may have the lease at the earliest.
    fn others_may_take(&self) -> MonoTime {
        self.last_good.plus_secs(self.config.io_timeout.host_dead_secs(self.config.fire))
    }

    /// When the next attempt is due: 2T after the last good renewal, and not before the pause after the last attempt.
    #[must_use]
    pub fn due(&self) -> MonoTime {
        let age = MonoTime::from_secs(self.last_good.secs()).plus_secs(self.config.io_timeout.renewal_secs());
        if self.good { age } else { age.max(self.ended.plus_millis(RETRY_PAUSE_MS)) }
    }

    /// The machine that frees the lease, when that is allowed: between attempts, after a good one, with no write outstanding.
    #[must_use]
    pub fn release(&self) -> Option<DeltaRelease> {
        let settled = self.phase == Phase::Idle && self.write.is_none() && self.doubtful.is_none();
        (settled && self.good && self.corrupt.is_none())
            .then(|| DeltaRelease::new(self.config, self.geometry, self.known, self.last_good))
    }

    fn op_id(&mut self) -> OpId {
        let id = OpId(self.next_op);
        self.next_op = self.next_op.wrapping_add(1);
        id
    }

    fn done(&mut self, now: MonoTime, outcome: RenewOutcome) -> Step<RenewOutcome> {
        self.phase = Phase::Idle;
        self.ended = now;
        let outstanding = u32::from(self.write.is_some()) + u32::from(self.doubtful.is_some());
        Step::Done { outcome, outstanding }
    }

    fn failed(&mut self, now: MonoTime, failure: RenewFailure) -> Step<RenewOutcome> {
        self.good = false;
        if matches!(failure, RenewFailure::Write(_)) {
            self.exact = false;
        }
        self.done(now, RenewOutcome::Failed(failure))
    }

    fn lost(&mut self, now: MonoTime, corrupt: Corrupt) -> Step<RenewOutcome> {
        self.corrupt = Some(corrupt);
        self.done(now, RenewOutcome::Corrupt(corrupt))
    }

    fn submit(op: Op) -> Step<RenewOutcome> {
        let mut ops = ArrayVec::new();
        ops.push(op);
        Step::Io(ops)
    }

    fn start(&mut self, now: MonoTime) -> Step<RenewOutcome> {
        if let Some(corrupt) = self.corrupt {
            return self.done(now, RenewOutcome::Corrupt(corrupt));
        }
        if self.phase != Phase::Idle {
            return Step::Pending; // an attempt is running already
        }
        match self.late_read {
            Some(LateRead { submitted, completed: Some((at, Ok(record))), .. }) => {
                self.use_late(now, submitted, at, record)
            }
            Some(LateRead { completed: None, .. }) => {
                let until = now.plus_millis(self.read_extend_ms);
                self.phase = Phase::WaitingLate(until);
                Step::Wait(until)
            }
            Some(LateRead { completed: Some((_, Err(_))), .. }) | None => self.read(now),
        }
    }

    fn read(&mut self, now: MonoTime) -> Step<RenewOutcome> {
        self.late_read = None;
        let id = self.op_id();
        self.phase = Phase::Reading(id);
        self.info = ReadInfo { submitted: now, ..ReadInfo::default() };
        Self::submit(self.config.read_own(id, self.geometry.sector(), now))
    }

    fn use_late(
        &mut self,
        now: MonoTime,
        submitted: MonoTime,
        completed: MonoTime,
        record: RawLeader,
    ) -> Step<RenewOutcome> {
        self.late_read = None;
        let ms = completed.millis_since(submitted);
        self.info = ReadInfo { submitted, ms, late: true, foreign_io_timeout: None };
        self.judge(now, &record)
    }

    /// How old data may be when a write relies on them: the longest an undisturbed attempt can take, and 2T more. Older ones mean
    /// that this program stood still; then somebody else may have taken the lease meanwhile.
    fn data_age_max_ms(&self) -> u64 {
        3 * self.config.io_timeout.millis() + self.read_extend_ms + RETRY_PAUSE_MS
    }

    /// Steps 3 to 8 of lease-algorithms.md 2.5.
    fn judge(&mut self, now: MonoTime, record: &RawLeader) -> Step<RenewOutcome> {
        if now.millis_since(self.info.submitted) > self.data_age_max_ms() {
            return self.read(now);
        }
        if let Err(corrupt) = self.still_ours(record) {
            return self.lost(now, corrupt);
        }
        if self.write.is_some() {
            return self.failed(now, RenewFailure::WriteOutstanding);
        }
        let own = self.config.io_timeout.to_disk();
        let found = record.io_timeout.get();
        self.info.foreign_io_timeout = (found != own).then_some(found);

        let mut leader = *record;
        // To others it only matters that it changes, so it may be ahead of the clock.
        self.written = now.secs().max(self.written.saturating_add(1));
        leader.timestamp = self.written.into();
        leader.io_timeout = own.into();
        leader.write_id = self.event.generation.into();
        leader.write_generation = self.event.event.into();
        leader.write_timestamp = self.event.data.into();
        leader.seal();
        let id = self.op_id();
        self.phase = Phase::Writing(id);
        let beside_doubt = self.doubtful.is_some();
        self.write = Some(OwnWrite { id, leader, submitted: now, info: self.info, beside_doubt });
        let limit = now.plus_secs(self.config.io_timeout.host_dead_secs(self.config.fire));
        Self::submit(self.config.write_own(id, self.geometry.sector(), leader, self.bitmap, limit))
    }

    fn still_ours(&self, record: &RawLeader) -> Result<(), Corrupt> {
        let changed =
            Corrupt::Changed { found: record.timestamp.get(), expected: self.known.timestamp.get() };
        match self.config.check(record, self.geometry) {
            Ok(()) => {}
            // Not among the checks of a renewal: a flag that appeared is a change like any other.
            Err(LeaderError::CompareAndWrite) => return Err(changed),
            Err(e) => return Err(Corrupt::Leader(e)),
        }
        let same_owner = record.owner_id == self.known.owner_id
            && record.owner_generation == self.known.owner_generation
            && record.resource_name == self.known.resource_name;
        if !same_owner {
            return Err(Corrupt::Owner {
                owner: Name::from_field(&record.resource_name),
                owner_id: record.owner_id.get(),
                generation: record.owner_generation.get(),
                ours: self.known.owner_generation.get(),
            });
        }
        // After a failed write the contents are unknown: it may have landed or not.
        if self.exact && *record != self.known { Err(changed) } else { Ok(()) }
    }

    fn ended_read(&mut self, now: MonoTime, result: Result<RawLeader, IoFailure>) -> Step<RenewOutcome> {
        match result {
            Ok(record) => {
                self.info.ms = now.millis_since(self.info.submitted);
                self.judge(now, &record)
            }
            Err(e) => self.failed(now, RenewFailure::Read(e)),
        }
    }

    /// A write completed, in time or late.
    fn ended_write(
        &mut self,
        now: MonoTime,
        write: OwnWrite,
        result: Result<(), IoFailure>,
    ) -> Option<RenewOutcome> {
        self.write = None;
        self.overtaken |= now >= self.others_may_take();
        if self.corrupt.is_some() {
            return None;
        }
        if let Err(e) = result {
            (self.exact, self.good) = (false, false);
            return Some(RenewOutcome::Failed(RenewFailure::Write(e)));
        }
        self.known = write.leader;
        (self.exact, self.good) = (!write.beside_doubt, true);
        self.last_good = self.last_good.max(write.submitted);
        Some(RenewOutcome::Renewed(Renewed {
            last_good: write.submitted,
            read_ms: write.info.ms,
            write_ms: now.millis_since(write.submitted),
            late_read: write.info.late,
            late_write: self.phase != Phase::Writing(write.id),
            foreign_io_timeout: write.info.foreign_io_timeout,
        }))
    }

    fn ended_in_time(&mut self, now: MonoTime, result: Result<(), IoFailure>) -> Step<RenewOutcome> {
        let Some(write) = self.write else { return Step::Pending };
        match self.ended_write(now, write, result) {
            Some(outcome) => self.done(now, outcome),
            None => Step::Pending,
        }
    }

    fn late(&mut self, now: MonoTime, op: OpId, result: Result<View<'_>, IoFailure>) -> Step<RenewOutcome> {
        if let Some(write) = self.write.filter(|w| w.id == op) {
            return self.late_write(now, write, result.map(|_| ()));
        }
        if self.doubtful == Some(op) {
            self.doubtful = None;
            self.overtaken |= now >= self.others_may_take();
            return Step::Pending;
        }
        let Some(late) = self.late_read.filter(|l| l.id == op) else { return Step::Pending };
        let record = self.config.own_record(result);
        match (self.phase, record) {
            (Phase::WaitingLate(_), Ok(record)) => self.use_late(now, late.submitted, now, record),
            (Phase::WaitingLate(_), Err(_)) => self.read(now),
            (_, record) => {
                self.late_read = Some(LateRead { completed: Some((now, record)), ..late });
                Step::Pending
            }
        }
    }

    /// A write ends after its attempt did. Reads that began before it may show either record, so they are not to be used.
    fn late_write(
        &mut self,
        now: MonoTime,
        write: OwnWrite,
        result: Result<(), IoFailure>,
    ) -> Step<RenewOutcome> {
        let outcome = self.ended_write(now, write, result);
        match (self.phase, outcome) {
            (Phase::Idle, Some(outcome @ RenewOutcome::Renewed(_))) => {
                self.late_read = None;
                self.done(now, outcome)
            }
            (Phase::Idle, _) => Step::Pending,
            _ => self.read(now),
        }
    }
}

impl Machine for Renewal {
    type Outcome = RenewOutcome;

    fn step(&mut self, now: MonoTime, _: &Env<'_>, input: Input<'_>) -> Step<RenewOutcome> {
        match (input, self.phase) {
            (Input::Start, _) => self.start(now),
            (Input::Tick, Phase::WaitingLate(until)) if now >= until => self.read(now),
            (Input::Tick, Phase::WaitingLate(until)) => Step::Wait(until),
            (Input::Completed { op, result }, Phase::Reading(id)) if op == id => {
                let record = self.config.own_record(result);
                self.ended_read(now, record)
            }
            (Input::TimedOut { op }, Phase::Reading(id)) if op == id => {
                self.late_read = Some(LateRead { id, submitted: self.info.submitted, completed: None });
                self.failed(now, RenewFailure::Read(IoFailure::TimedOut))
            }
            (Input::Completed { op, result }, Phase::Writing(id)) if op == id => {
                self.ended_in_time(now, result.map(|_| ()))
            }
            (Input::Doubtful { op, failure }, Phase::Writing(id)) if op == id => {
                self.doubtful = Some(op);
                self.ended_in_time(now, Err(failure))
            }
            (Input::TimedOut { op }, Phase::Writing(id)) if op == id => {
                self.failed(now, RenewFailure::Write(IoFailure::TimedOut))
            }
            (Input::CompletedLate { op, result }, _) => self.late(now, op, result),
            _ => Step::Pending,
        }
    }
}
