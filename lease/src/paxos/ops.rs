//! The operations of one paxos machine: at most one per disk at a time, in the beginning two reads, in a release a write and a read or two
//! writes, and those that timed out.
//! A write that ended in doubt is one that timed out, except for what is said of it.
//!
//! A disk of several that has let one time out is *silent* until that one ends. While there is a majority without it, nobody waits for
//! it again, and nothing is written to it: what would be written might land at any later time (rule R3), and until then the lease could
//! not be given back. That is as safe as a disk that fails at once: whatever is decided is decided by a majority of those that answer.
//! A disk of several whose last read *failed* is left alone in the same way: a write to it would most likely fail, too, and in doubt.
//!
//! A disk of several on which something else lies than this lease is *foreign*, for whatever reason: it was named by mistake, replaced by
//! an empty one, or has missed that the lease was renamed. Nothing is written there, for it may be another lease with an owner of its
//! own, and its blocks say nothing of this one. Its leader is read again with every look at the leaders. A disk whose leader could not be
//! read may be one of those: before it has been seen to have this lease nothing is written there either.

use super::{LeaderFail, PaxosConfig};
use crate::geometry::SectorSize;
use crate::limits::{DISKS_MAX, OPS_PER_STEP_MAX};
use crate::machine::{Action, Content, Input, IoFailure, Op, OpId, Place, View};
use crate::record::{FLAG_SHORT_HOLD, RawLeader};
use crate::timing::MonoTime;
use crate::verify::LeaderError;
use arrayvec::ArrayVec;

/// ENODEV: the disk that is there is another one.
const NO_DEVICE: i32 = 19;

/// What an operation was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum For {
    Leader,
    OwnBlock,
    OwnerBlock,
    Blocks,
    Delta,
    Write,
    /// A write of the leader beside one of our block.
    WriteLeader,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Running {
    id: OpId,
    disk: u8,
    purpose: For,
}

/// What lies on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Seen {
    /// Its leader was not read yet, because of this.
    Nothing(IoFailure),
    Lease,
    /// It is foreign.
    Another,
}

impl Default for Seen {
    fn default() -> Self {
        Self::Nothing(IoFailure::Short)
    }
}

/// Running and late operations.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Ops {
    /// How many disks the lease has.
    disks: u8,
    /// [`Op::doubt_ms`] of our writes.
    doubt_ms: u64,
    next: u32,
    running: ArrayVec<Running, OPS_PER_STEP_MAX>,
    /// Writes that timed out, or ended in doubt, and are still outstanding: at most one per disk, because a disk with one gets no further write; or
    /// two on a single disk, of the only two that are made at once.
    late_writes: ArrayVec<(OpId, u8), DISKS_MAX>,
    /// Reads of several disks that timed out and are still outstanding, the newest ones.
    late_reads: ArrayVec<(OpId, u8), OPS_PER_STEP_MAX>,
    /// Disks of several whose last read failed, a bit each.
    failing: u8,
    /// What was seen of each disk of several.
    seen: [Seen; DISKS_MAX],
    /// What the next step submits.
    batch: ArrayVec<Op, OPS_PER_STEP_MAX>,
}

/// What an input meant.
pub(super) enum Event<'a> {
    /// An operation for the current phase ended.
    Ended { disk: u8, purpose: For, result: Result<View<'a>, IoFailure> },
    /// Nothing the current phase waits for.
    Nothing,
}

impl Ops {
    /// Of a lease on so many disks. A write in doubt is outstanding for as long as that of a host that is silent: 8T + F.
    pub(super) fn of(config: &PaxosConfig) -> Self {
        let doubt_ms = config.io_timeout.doubt_ms(config.fire);
        Self { disks: config.disks, doubt_ms, ..Self::default() }
    }

    /// Takes note of what a disk has for a leader.
    pub(super) fn found(&mut self, disk: u8, leader: &Result<RawLeader, LeaderFail>) {
        if self.disks < 2 {
            return;
        }
        match leader {
            Err(LeaderFail::Io(failure)) => {
                // What was seen before stays known.
                if let Seen::Nothing(_) = self.seen(disk) {
                    self.see(disk, Seen::Nothing(*failure));
                }
            }
            Err(LeaderFail::Leader(e)) if e.is_of_another() => self.see(disk, Seen::Another),
            // A damaged one has the right names.
            Ok(_) | Err(LeaderFail::Leader(_)) => self.see(disk, Seen::Lease),
        }
    }

    fn see(&mut self, disk: u8, what: Seen) {
        if let Some(seen) = self.seen.get_mut(usize::from(disk)) {
            *seen = what;
        }
    }

    fn seen(&self, disk: u8) -> Seen {
        self.seen.get(usize::from(disk)).copied().unwrap_or_default()
    }

    /// Whether this lease was seen there. Of a single disk that is not asked.
    pub(super) fn is_known(&self, disk: u8) -> bool {
        self.unseen(disk).is_none()
    }

    /// Why what lies on a disk is not to be taken for this lease's; `None`: it was seen there.
    pub(super) fn unseen(&self, disk: u8) -> Option<IoFailure> {
        match self.seen(disk) {
            _ if self.disks < 2 => None,
            Seen::Lease => None,
            Seen::Nothing(failure) => Some(failure),
            Seen::Another => Some(IoFailure::NotOpen(NO_DEVICE)),
        }
    }

    /// The same of the first disk that is so, for what was not read of it.
    pub(super) fn unread(&self) -> IoFailure {
        (0..self.disks).find_map(|disk| self.unseen(disk)).unwrap_or(IoFailure::Short)
    }

    /// How many disks of several this lease was seen on.
    pub(super) fn known(&self) -> u32 {
        self.count(Seen::Lease)
    }

    fn count(&self, what: Seen) -> u32 {
        (0..self.disks).fold(0, |count, disk| count + u32::from(self.seen(disk) == what))
    }

    /// Whether something else than this lease lies on a disk.
    fn is_foreign(&self, disk: u8) -> bool {
        self.seen(disk) == Seen::Another
    }

    /// How many disks that is so on.
    pub(super) fn foreign(&self) -> u32 {
        self.count(Seen::Another)
    }

    /// What lies on a disk is the lease, under whatever name.
    pub(super) fn is_of_the_lease(&mut self, disk: u8) {
        self.see(disk, Seen::Lease);
    }

    /// It is not, after all; or that cannot be told, because of this.
    pub(super) fn is_of_another(&mut self, disk: u8, unread: Option<IoFailure>) {
        self.see(disk, unread.map_or(Seen::Another, Seen::Nothing));
    }

    /// Whether it is silent, or its last read failed.
    fn is_out(&self, disk: u8) -> bool {
        self.failing & (1 << disk) != 0
            || self.late_reads.iter().chain(&self.late_writes).any(|(_, d)| *d == disk)
    }

    /// Whether a disk is left alone: it is foreign, or out, and then a majority is left without it and the others that are.
    pub(super) fn skips(&self, disk: u8) -> bool {
        let answering = (0..self.disks).filter(|d| !self.is_out(*d) && !self.is_foreign(*d)).count();
        self.is_foreign(disk) || (self.is_out(disk) && answering * 2 > usize::from(self.disks))
    }

    /// Takes note of how a read of a disk ended.
    fn answered(&mut self, disk: u8, ok: bool) {
        self.late_reads.retain(|(_, d)| *d != disk);
        self.failing &= !(1 << disk);
        self.failing |= u8::from(!ok) << disk;
    }

    fn push(
        &mut self,
        disk: u8,
        place: Place,
        size: SectorSize,
        action: Action,
        deadline: MonoTime,
        purpose: For,
    ) {
        let id = OpId(self.next);
        self.next += 1;
        self.running.push(Running { id, disk, purpose });
        let doubt_ms = if matches!(action, Action::Write { .. }) { self.doubt_ms } else { 0 };
        self.batch.push(Op { id, place, sector_size: size, action, deadline, doubt_ms });
    }

    /// Reads from a disk, unless it is left alone. Leaders are read from all, so that whoever starts over, or has waited for an owner, finds a
    /// disk that answers again.
    pub(super) fn read(
        &mut self,
        disk: u8,
        size: SectorSize,
        first: u64,
        count: u64,
        deadline: MonoTime,
        purpose: For,
    ) {
        if purpose == For::Leader || !self.skips(disk) {
            self.push(disk, Place::Resource(disk), size, Action::Read { first, count }, deadline, purpose);
        }
    }

    pub(super) fn read_delta(&mut self, size: SectorSize, sector: u64, deadline: MonoTime) {
        self.push(0, Place::Lockspace, size, Action::Read { first: sector, count: 1 }, deadline, For::Delta);
    }

    /// Writes to a disk, unless it is left alone, was not seen to have the lease, or a write to it is still outstanding: the order of the
    /// two would be undefined.
    /// Returns whether it was started.
    pub(super) fn write(
        &mut self,
        disk: u8,
        size: SectorSize,
        sector: u64,
        content: Content,
        deadline: MonoTime,
    ) -> bool {
        !self.skips(disk) && self.write_for(disk, size, sector, content, deadline, For::Write)
    }

    /// The same where no other disk would do.
    pub(super) fn write_to_the_only(
        &mut self,
        disk: u8,
        size: SectorSize,
        sector: u64,
        content: Content,
        deadline: MonoTime,
    ) -> bool {
        self.write_for(disk, size, sector, content, deadline, For::Write)
    }

    /// The same of the leader of a single disk, beside a write of our block.
    pub(super) fn write_leader_beside(
        &mut self,
        size: SectorSize,
        leader: RawLeader,
        deadline: MonoTime,
    ) -> bool {
        self.write_for(0, size, 0, Content::Leader(leader), deadline, For::WriteLeader)
    }

    fn write_for(
        &mut self,
        disk: u8,
        size: SectorSize,
        sector: u64,
        content: Content,
        deadline: MonoTime,
        purpose: For,
    ) -> bool {
        if !self.is_known(disk) || self.late_writes.iter().any(|(_, d)| *d == disk) {
            return false;
        }
        self.push(disk, Place::Resource(disk), size, Action::Write { sector, content }, deadline, purpose);
        true
    }

    /// The operations to submit now.
    pub(super) fn take_batch(&mut self) -> ArrayVec<Op, OPS_PER_STEP_MAX> {
        std::mem::take(&mut self.batch)
    }

    /// Whether the current phase waits for nothing any more.
    pub(super) fn idle(&self) -> bool {
        self.running.is_empty()
    }

    /// The disk of a write that had timed out and now ends.
    pub(super) fn late_disk(&self, op: OpId) -> Option<u8> {
        self.late_writes.iter().find(|(id, _)| *id == op).map(|(_, disk)| *disk)
    }

    /// Writes that may still land.
    pub(super) fn outstanding(&self) -> u32 {
        u32::try_from(self.late_writes.len()).unwrap_or(u32::MAX)
    }

    fn is_late(&mut self, read: (OpId, u8)) {
        // With a single disk there is nothing to choose.
        if self.disks > 1 {
            if self.late_reads.is_full() {
                self.late_reads.remove(0);
            }
            self.late_reads.push(read);
        }
    }

    fn end(&mut self, op: OpId) -> Option<Running> {
        let at = self.running.iter().position(|r| r.id == op)?;
        Some(self.running.remove(at))
    }

    /// The current phase waits for it no longer, but it has not ended.
    fn outstanding_from_now<'a>(&mut self, op: OpId, failure: IoFailure) -> Event<'a> {
        let Some(r) = self.end(op) else { return Event::Nothing };
        match r.purpose {
            For::Write | For::WriteLeader => self.late_writes.push((op, r.disk)),
            For::Delta => {}
            For::Leader | For::OwnBlock | For::OwnerBlock | For::Blocks => self.is_late((op, r.disk)),
        }
        Event::Ended { disk: r.disk, purpose: r.purpose, result: Err(failure) }
    }

    pub(super) fn absorb<'a>(&mut self, input: Input<'a>) -> Event<'a> {
        match input {
            Input::Completed { op, result } => match self.end(op) {
                Some(r) => {
                    match r.purpose {
                        For::Delta => {}
                        For::Write | For::WriteLeader => self.late_reads.retain(|(_, d)| *d != r.disk),
                        For::Leader | For::OwnBlock | For::OwnerBlock | For::Blocks => {
                            self.answered(r.disk, result.is_ok())
                        }
                    }
                    Event::Ended { disk: r.disk, purpose: r.purpose, result }
                }
                None => Event::Nothing,
            },
            Input::TimedOut { op } => self.outstanding_from_now(op, IoFailure::TimedOut),
            Input::Doubtful { op, failure } => self.outstanding_from_now(op, failure),
            Input::CompletedLate { op, .. } => {
                self.late_writes.retain(|(id, _)| *id != op);
                if let Some((_, disk)) = self.late_reads.iter().find(|(id, _)| *id == op).copied() {
                    self.late_reads.retain(|(_, d)| *d != disk);
                }
                Event::Nothing
            }
            Input::Start | Input::Tick => Event::Nothing,
        }
    }
}

/// How the writes of one phase ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Tally {
    pub(super) ok: u32,
    pub(super) failure: Option<IoFailure>,
}

impl Tally {
    /// Counts one result. A timeout outlives other failures: it is the one that leaves something outstanding.
    pub(super) fn count<T>(&mut self, result: &Result<T, IoFailure>) {
        match result {
            Ok(_) => self.ok += 1,
            Err(e) if self.failure != Some(IoFailure::TimedOut) => self.failure = Some(*e),
            Err(_) => {}
        }
    }

    /// Counts a write that was not started: to a disk that was not seen to have the lease, or beside one that has not ended.
    pub(super) fn not_started(&mut self, unseen: Option<IoFailure>) {
        self.count::<()>(&Err(unseen.unwrap_or(IoFailure::TimedOut)));
    }

    pub(super) fn failure(&self) -> IoFailure {
        self.failure.unwrap_or(IoFailure::TimedOut)
    }
}

/// The leaders read from several disks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Votes<E> {
    leaders: ArrayVec<RawLeader, DISKS_MAX>,
    error: Option<E>,
    /// The first that says more than that a disk cannot be read, which is in the log by then.
    telling: Option<E>,
    /// On how many disks the resource has another name, and what the first of them says.
    renamed: (u32, Option<E>),
    /// How many could not be read.
    unread: u32,
}

/// Why a leader cannot be used.
pub(super) trait Unusable: Copy {
    /// Whether it is because of what was read.
    fn is_record(&self) -> bool;
    /// Whether it is because of the resource's name.
    fn is_name(&self) -> bool;
}

impl Unusable for LeaderFail {
    fn is_record(&self) -> bool {
        matches!(self, Self::Leader(_))
    }

    fn is_name(&self) -> bool {
        matches!(self, Self::Leader(e) if e.is_name())
    }
}

impl Unusable for LeaderError {
    fn is_record(&self) -> bool {
        true
    }

    fn is_name(&self) -> bool {
        matches!(self, Self::Resource { .. })
    }
}

impl<E> Default for Votes<E> {
    fn default() -> Self {
        Self { leaders: ArrayVec::new(), error: None, telling: None, renamed: (0, None), unread: 0 }
    }
}

/// What a majority says.
pub(super) enum Verdict<E> {
    /// The leader in force.
    Leader(RawLeader),
    /// A single disk's own error; what all disks say, if it is none of them; or that a majority has another name.
    Failed(E),
    /// So few are readable, and why one of the others is not.
    TooFew(u32, Option<E>),
    /// A majority is readable and does not agree. This is the leader of the highest version: that version is decided, or nobody
    /// would have written it, but whoever did may not have got to more disks.
    Newest(RawLeader),
    /// The leaders of the highest version contradict each other.
    Differ,
}

impl Votes<LeaderFail> {
    /// If not all disks have this lease: how many do, and why one does not.
    pub(super) fn missing(&self, disks: u8) -> Option<(u32, Option<LeaderFail>)> {
        let readable = u32::try_from(self.leaders.len()).unwrap_or(0);
        (readable < u32::from(disks)).then_some((readable, self.telling.or(self.error)))
    }

    /// Whether disks that could not be read may have this lease, whatever the others say.
    pub(super) fn may_be_elsewhere(&self, majority: u32) -> bool {
        self.unread > 0 && self.renamed.0 < majority
    }

    /// What lies on a disk that does not have this lease, if any does.
    pub(super) fn foreign(&self) -> Option<LeaderError> {
        match self.telling {
            Some(LeaderFail::Leader(e)) => Some(e),
            _ => None,
        }
    }
}

impl<E: Unusable> Votes<E> {
    pub(super) fn put(&mut self, vote: Result<RawLeader, E>) {
        match vote {
            Ok(leader) => {
                let _full = self.leaders.try_push(leader);
            }
            Err(e) => {
                if e.is_name() {
                    self.renamed = (self.renamed.0 + 1, self.renamed.1.or(Some(e)));
                }
                self.unread += u32::from(!e.is_record());
                self.error = self.error.or(Some(e));
                self.telling = self.telling.or(Some(e).filter(E::is_record));
            }
        }
    }

    /// The leader that a majority agrees on up to its timestamp (lease-algorithms.md 4.8). Two hosts may have written it, each to some
    /// of the disks: then one by a writer that is preferred counts, on however few disks it is.
    pub(super) fn verdict(
        &self,
        disks: u8,
        majority: u32,
        prefer: impl Fn(&RawLeader) -> bool,
    ) -> Verdict<E> {
        let readable = u32::try_from(self.leaders.len()).unwrap_or(0);
        if readable < majority {
            if let (renamed, Some(e)) = self.renamed {
                if renamed >= majority {
                    return Verdict::Failed(e);
                }
            }
            return match self.error {
                Some(e) if disks == 1 || readable == 0 => Verdict::Failed(e),
                other => Verdict::TooFew(readable, self.telling.or(other)),
            };
        }
        let agreed = |l: &&RawLeader| {
            let same = self.leaders.iter().filter(|o| o.same_state(l)).count();
            u32::try_from(same).unwrap_or(0) >= majority
        };
        match in_force(self.leaders.iter().filter(agreed), &prefer) {
            Some(leader) => Verdict::Leader(leader),
            None => self.newest(&prefer).map_or(Verdict::Differ, Verdict::Newest),
        }
    }

    /// The leader of the highest version, if all that have it agree on its owner. Whoever enters shared mode takes SHORT_HOLD away in the
    /// write that frees the leader: that is no other state. Nor is another number of hosts, which an owner may have asked for and a host
    /// that committed in its name not: a ballot looks at all hosts where any disk names more than the leader it builds on.
    fn newest(&self, prefer: impl Fn(&RawLeader) -> bool) -> Option<RawLeader> {
        let plain = |l: &RawLeader| RawLeader {
            flags: (l.flags.get() & !FLAG_SHORT_HOLD).into(),
            num_hosts: 0.into(),
            ..*l
        };
        let top = self.leaders.iter().max_by_key(|l| l.lver.get())?;
        let newest = self.leaders.iter().filter(|l| l.lver == top.lver);
        newest.clone().all(|l| plain(l).same_state(&plain(top))).then(|| in_force(newest, prefer)).flatten()
    }
}

/// Of leaders in the same state. A release that reached only some disks leaves leaders that differ in the timestamp alone: free is what
/// was meant. Which disk answers first makes no difference: the next reading, compared with this one, would look like a change.
fn in_force<'a>(
    leaders: impl Iterator<Item = &'a RawLeader>,
    prefer: impl Fn(&RawLeader) -> bool,
) -> Option<RawLeader> {
    let rank =
        |l: &&RawLeader| (l.timestamp.get() != 0, !prefer(l), l.write_id.get(), l.write_timestamp.get());
    leaders.min_by_key(rank).copied()
}
