//! Watching the other hosts (lease-algorithms.md 3.1): reading the area, piece by piece through one small buffer.
//!
//! Separate from renewal on purpose: however slow or broken the rest of the area is, our own sector is renewed in time.
//!
//! Host ids that were ever used are read with every look. All others are read when the last look at them is 4T - 1 s old, which is
//! in time for any bit by which a host that has just appeared asks for attention (docs/decisions/0015-unused-host-ids.md).
//!
//! What fails is read again in parts, within limits (docs/decisions/0022-unreadable-sectors.md).

use crate::geometry::{Geometry, HostId};
use crate::hosts::{HOSTS_PER_GROUP, HostNews, HostTable};
use crate::limits::{HOSTS_MAX, SECTOR_BYTES_MAX};
use crate::machine::{Action, Env, Input, IoFailure, Machine, Op, OpId, Place, Step, View};
use crate::timing::{IoTimeout, MonoTime};
use arrayvec::ArrayVec;
use std::ops::Range;

use super::DeltaConfig;
use super::split::Split;

/// Bytes read at a time.
pub const PIECE_BYTES: usize = 256 * 1024;
/// Reads that timed out and may be outstanding before no further one is started: each of them holds a buffer, and a place among the
/// operations of the path that the renewals need too.
pub const STUCK_READS_MAX: usize = 20;

/// Of these, how many of one piece, so that a bad spot leaves room for the others.
pub const STUCK_READS_OF_PIECE_MAX: usize = 6;

/// How many may be outstanding before host ids that were never used are left out.
pub const STUCK_WHOLE_READS_MAX: usize = 4;

/// What is to be read whole within this time is read whole now, in milliseconds: otherwise the pieces of an area, each read a little after
/// the one before, would come to be due in looks of their own.
pub const WHOLE_EARLY_MS: u64 = 1_000;

/// Pause after a look that failed, in milliseconds.
pub const RETRY_PAUSE_MS: u64 = 1_000;

/// Reads that may fail in one look before nothing more is read in parts. With sectors of 512 bytes in blocks of 4096, one bad block makes ten
/// fail: what spans it, its group, and eight hosts. What was given up last comes first in the next look.
pub const FAILED_READS_MAX: u32 = 24;

/// Pieces of the largest area.
const PIECES_MAX: usize = (HOSTS_MAX as usize * SECTOR_BYTES_MAX).div_ceil(PIECE_BYTES);

/// What one look at all hosts came to. What could be read is in the table even if something could not.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct ScanOutcome {
    /// What was found.
    pub news: Vec<HostNews>,
    /// The first read that failed: its first host, and why.
    pub failed: Option<(HostId, IoFailure)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    /// Reads `count` hosts from `first` on, of this piece, since `asked`.
    Reading {
        op: OpId,
        piece: usize,
        first: usize,
        count: usize,
        asked: MonoTime,
    },
}

/// Looks at the hosts of a lockspace, once for every [`Input::Start`]: with every renewal, and when [`HostScan::due`] says so.
///
/// What fails is read in parts; a timeout ends the scan, and the next one begins behind the piece that hung, so that one bad
/// spot hides no other host. Of a piece whose last whole read failed the hosts in use are read first, for themselves: a bad spot among host ids
/// that nobody uses hides none of them. If that read fails too, all of the piece comes first in the next look instead. While
/// [`STUCK_WHOLE_READS_MAX`] reads hang, hosts in use alone are read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostScan {
    geometry: Geometry,
    io_timeout: IoTimeout,
    table: HostTable,
    phase: Phase,
    /// Milliseconds after which a piece is to be read whole again; 0 for every time.
    whole_every_ms: u64,
    /// When each piece is to be read whole; its last such read began `whole_every_ms` before.
    whole_at: ArrayVec<MonoTime, PIECES_MAX>,
    started: MonoTime,
    /// Pieces whose last whole read failed or was left out, a bit each.
    bad: u32,
    /// The bad piece of which the hosts in use were read in this look.
    spanned: Option<usize>,
    /// Pieces of which the hosts in use had to be read in parts when they were last read, a bit each: all of it comes first in the next one, which the
    /// parts would leave no time for.
    whole_first: u32,
    /// At which host the parts of each piece go on: of its hosts in use, and of all of it. Where they were given up, until it can be read.
    parts_from: ArrayVec<[Option<usize>; 2], PIECES_MAX>,
    /// The piece that was given up last in this look: the next one begins with it, unless a read hangs meanwhile.
    given_up: Option<usize>,
    /// What is being read in parts, since when in this look anything was, and how many of its reads have failed.
    split: Option<Split>,
    parts_since: Option<MonoTime>,
    fails: u32,
    /// When to try again what failed.
    retry: Option<MonoTime>,
    next_piece: usize,
    left: usize,
    outcome: ScanOutcome,
    /// Reads that timed out and are outstanding, each with its piece.
    stuck: ArrayVec<(OpId, usize), STUCK_READS_MAX>,
    next_op: u32,
}

impl HostScan {
    /// A scan that has seen nothing yet.
    #[must_use]
    pub fn new(config: &DeltaConfig, geometry: Geometry) -> Self {
        let table = HostTable::new(config.lockspace, config.host, config.io_timeout, config.fire, geometry);
        Self::with_table(config, geometry, table)
    }

    /// Goes on from what was seen when the lockspace was joined earlier: a host that was silent all the while need not be
    /// waited for again (W23). The table must be of the same lockspace; one of other sizes is dropped.
    #[must_use]
    pub fn with_table(config: &DeltaConfig, geometry: Geometry, table: HostTable) -> Self {
        if table.max_hosts() != usize::from(geometry.max_hosts()) {
            return Self::new(config, geometry);
        }
        let mut scan = Self {
            geometry,
            io_timeout: config.io_timeout,
            table,
            phase: Phase::Idle,
            whole_every_ms: config.io_timeout.unused_look_secs().unwrap_or(0) * 1000,
            whole_at: ArrayVec::new(),
            started: MonoTime::default(),
            bad: 0,
            spanned: None,
            whole_first: 0,
            parts_from: ArrayVec::new(),
            given_up: None,
            split: None,
            parts_since: None,
            fails: 0,
            retry: None,
            next_piece: 0,
            left: 0,
            outcome: ScanOutcome::default(),
            stuck: ArrayVec::new(),
            next_op: 0,
        };
        scan.whole_at.extend((0..scan.pieces()).map(|_| MonoTime::default()));
        scan.parts_from.extend((0..scan.pieces()).map(|_| [None; 2]));
        scan
    }

    /// When it is to be started without a renewal: to look at host ids that were never used, or to try once more what failed.
    /// `None` while it looks, and if the next renewal is early enough.
    #[must_use]
    pub fn due(&self) -> Option<MonoTime> {
        if self.phase != Phase::Idle || self.whole_every_ms == 0 {
            return None;
        }
        // What the last look left overdue has failed, or was not reached for that.
        let next = self.whole_at.iter().filter(|at| !self.is_due(**at)).min().copied();
        next.into_iter().chain(self.retry).min()
    }

    /// Looks at host ids that were never used this often instead.
    #[cfg(test)]
    pub(crate) fn look_every(&mut self, secs: u64) {
        self.whole_every_ms = secs * 1000;
    }

    /// What was seen so far.
    #[must_use]
    pub fn table(&self) -> &HostTable {
        &self.table
    }

    fn piece_hosts(&self) -> usize {
        PIECE_BYTES / self.geometry.sector().slice_len()
    }

    fn pieces(&self) -> usize {
        self.table.max_hosts().div_ceil(self.piece_hosts())
    }

    fn start(&mut self, now: MonoTime) -> Step<ScanOutcome> {
        if self.phase != Phase::Idle {
            return Step::Pending;
        }
        self.left = self.pieces();
        self.outcome = ScanOutcome::default();
        self.started = now;
        self.spanned = None;
        (self.parts_since, self.fails) = (None, 0);
        self.next(now)
    }

    fn done(&mut self, now: MonoTime) -> Step<ScanOutcome> {
        self.phase = Phase::Idle;
        self.next_piece = self.given_up.take().unwrap_or(self.next_piece);
        // Once, soon; what fails again can wait for the next renewal.
        let again = self.outcome.failed.is_some() && self.retry.is_none();
        self.retry = again.then(|| now.plus_millis(RETRY_PAUSE_MS));
        Step::Done { outcome: std::mem::take(&mut self.outcome), outstanding: 0 }
    }

    fn next(&mut self, now: MonoTime) -> Step<ScanOutcome> {
        if let Some((piece, part)) = self.next_part(now) {
            return self.read(now, piece, part.start, part.len());
        }
        while self.left > 0 {
            let piece = self.next_piece % self.pieces();
            let (wanted, again) = self.wanted(piece);
            let may_read = wanted.is_none_or(|wanted| self.has_room(piece, wanted));
            if !may_read {
                self.note_failure(self.range(piece).0, IoFailure::TimedOut);
                if self.bad & !self.whole_first & bit(piece) == 0 {
                    // Not all of it, then. What is in use comes by itself.
                    self.bad |= bit(piece);
                    self.whole_first &= !bit(piece);
                    continue;
                }
            }
            self.spanned = again.then_some(piece);
            if !again {
                self.behind(piece);
            }
            if let Some((first, count)) = wanted.filter(|_| may_read) {
                return self.read(now, piece, first, count);
            }
        }
        self.done(now)
    }

    /// What of a read that has failed is to be read next, and of which piece. A look lasts an io timeout longer for that at most, and as long
    /// as the reads take that come then.
    fn next_part(&mut self, now: MonoTime) -> Option<(usize, Range<usize>)> {
        let split = self.split.as_mut()?;
        let (table, piece, whole) = (&self.table, split.piece, split.whole);
        let Some(part) = split.next(|group| table.span_in_use(group.start, group.len()).is_some()) else {
            // Who was left out is looked at again soon: a bit of his may be missed otherwise.
            if whole && !split.missed {
                let asked = split.asked;
                self.was_read_whole(piece, asked);
            }
            self.split = None;
            return None;
        };
        let since = *self.parts_since.get_or_insert(now);
        let slow = now.millis_since(since) > self.io_timeout.millis();
        if self.fails < FAILED_READS_MAX && !slow && self.stuck.len() < STUCK_WHOLE_READS_MAX {
            if part.len() == 1 {
                self.table.read_apart(part.start);
            }
            return Some((piece, part));
        }
        self.parts_go_on(piece, whole, Some(part.start));
        self.given_up = Some(piece);
        self.split = None;
        None
    }

    /// At which host of a piece the next parts begin, of all of it or of what is in use.
    fn parts_go_on(&mut self, piece: usize, whole: bool, from: Option<usize>) {
        if let Some(parts) = self.parts_from.get_mut(piece) {
            parts[usize::from(whole)] = from;
        }
    }

    /// All of a piece was looked at, as it was asked for.
    fn was_read_whole(&mut self, piece: usize, asked: MonoTime) {
        if let Some(at) = self.whole_at.get_mut(piece) {
            // From when it was asked for: what is read may have been on the disk at that moment only.
            *at = asked.plus_millis(self.whole_every_ms);
            self.bad &= !bit(piece);
        }
    }

    /// Whether a read of these hosts of a piece may be started, with those that hang.
    fn has_room(&self, piece: usize, wanted: (usize, usize)) -> bool {
        let (first, count) = self.range(piece);
        self.has_room_for(piece, self.table.span_in_use(first, count) == Some(wanted))
    }

    fn has_room_for(&self, piece: usize, in_use: bool) -> bool {
        let of_piece = self.stuck.iter().filter(|(_, of)| *of == piece).count();
        if in_use {
            self.stuck.len() < STUCK_READS_MAX && of_piece < STUCK_READS_OF_PIECE_MAX
        } else {
            self.stuck.len() < STUCK_WHOLE_READS_MAX
        }
    }

    /// Whether looks reach this host: not, while so many reads hang that hosts like it, ever used or not, are left out.
    #[must_use]
    pub fn reaches(&self, host: HostId) -> bool {
        let in_use = self.table.span_in_use(host.index(), 1).is_some();
        self.has_room_for(host.index() / self.piece_hosts(), in_use)
    }

    /// Goes on with the next piece.
    fn behind(&mut self, piece: usize) {
        self.left = self.left.saturating_sub(1);
        self.next_piece = (piece + 1) % self.pieces();
    }

    /// Whether what is to be read whole at that time is read whole in the look that was started last.
    fn is_due(&self, at: MonoTime) -> bool {
        at <= self.started.plus_millis(WHOLE_EARLY_MS)
    }

    /// What is to be read of a piece next: all of it, or only what was ever in use, which may be nothing. And whether more of it follows in
    /// this look.
    fn wanted(&self, piece: usize) -> (Option<(usize, usize)>, bool) {
        let (first, count) = self.range(piece);
        let span = self.table.span_in_use(first, count);
        if !self.whole_at.get(piece).is_none_or(|at| self.is_due(*at)) {
            return (span, false);
        }
        let first_the_span = self.bad & !self.whole_first & bit(piece) != 0 && self.spanned != Some(piece);
        match span.filter(|span| first_the_span && *span != (first, count)) {
            Some(span) => (Some(span), true),
            None => (Some((first, count)), false),
        }
    }

    fn read(&mut self, now: MonoTime, piece: usize, first: usize, count: usize) -> Step<ScanOutcome> {
        let id = OpId(self.next_op);
        self.next_op = self.next_op.wrapping_add(1);
        self.phase = Phase::Reading { op: id, piece, first, count, asked: now };
        let mut ops = ArrayVec::new();
        ops.push(Op {
            id,
            place: Place::Lockspace,
            sector_size: self.geometry.sector(),
            action: Action::Read { first: first as u64, count: count as u64 },
            deadline: now.plus_millis(self.io_timeout.millis()),
            doubt_ms: 0,
        });
        Step::Io(ops)
    }

    fn range(&self, piece: usize) -> (usize, usize) {
        let first = piece * self.piece_hosts();
        (first, self.piece_hosts().min(self.table.max_hosts() - first))
    }

    fn hosts_of(&self, piece: usize) -> Range<usize> {
        let (first, count) = self.range(piece);
        first..first + count
    }

    fn note_failure(&mut self, first: usize, failure: IoFailure) {
        let host = HostId::from_index(first);
        self.outcome.failed = self.outcome.failed.or(host.map(|h| (h, failure)));
    }

    fn ended(
        &mut self,
        now: MonoTime,
        (piece, first, count): (usize, usize, usize),
        asked: MonoTime,
        result: Result<View<'_>, IoFailure>,
    ) -> Step<ScanOutcome> {
        let hosts = first..first + count;
        let read = match result {
            Ok(view) => {
                self.table.update(now, view, first, count, &mut self.outcome.news);
                true
            }
            // It never began, because others hang.
            Err(IoFailure::TimedOut) => return self.hung(now, piece, hosts),
            Err(failure) => {
                self.fails += 1;
                self.note_failure(first, failure);
                false
            }
        };
        if let Some(split) = &mut self.split {
            if !read {
                split.failed(hosts);
            }
            return self.next(now);
        }
        let whole = hosts == self.hosts_of(piece);
        if whole {
            self.whole_first &= !bit(piece);
        }
        if read {
            self.parts_go_on(piece, whole, None);
            if whole {
                self.was_read_whole(piece, asked);
            }
            return self.next(now);
        }
        if whole {
            self.bad |= bit(piece);
        } else if self.spanned.take_if(|spanned| *spanned == piece).is_some() {
            self.whole_first |= bit(piece);
            self.behind(piece);
        }
        let from = self.parts_from.get(piece).and_then(|parts| parts[usize::from(whole)]);
        self.split = Some(Split::new(piece, whole, hosts, asked, from));
        self.next(now)
    }

    /// The read that was waited for takes too long: the next look begins behind its piece.
    fn hung(&mut self, now: MonoTime, piece: usize, hosts: Range<usize>) -> Step<ScanOutcome> {
        self.note_failure(hosts.start, IoFailure::TimedOut);
        if self.split.take().is_none() && hosts == self.hosts_of(piece) {
            self.bad |= bit(piece);
        }
        // What is in use comes first again: it need not hang.
        self.whole_first &= !bit(piece);
        self.given_up = None;
        self.behind(piece);
        self.done(now)
    }
}

impl Machine for HostScan {
    type Outcome = ScanOutcome;

    fn step(&mut self, now: MonoTime, _: &Env<'_>, input: Input<'_>) -> Step<ScanOutcome> {
        match (input, self.phase) {
            (Input::Start, _) => self.start(now),
            (Input::Completed { op, result }, Phase::Reading { op: id, piece, first, count, asked })
                if op == id =>
            {
                self.ended(now, (piece, first, count), asked, result)
            }
            (Input::TimedOut { op }, Phase::Reading { op: id, piece, first, count, .. }) if op == id => {
                let _full = self.stuck.try_push((op, piece));
                self.hung(now, piece, first..first + count)
            }
            (Input::CompletedLate { op, .. }, _) => {
                // Its data are older than what later reads may have shown: going back to them would look like life.
                self.stuck.retain(|(id, _)| *id != op);
                Step::Pending
            }
            _ => Step::Pending,
        }
    }
}

/// The bit of a piece in [`HostScan::bad`].
fn bit(piece: usize) -> u32 {
    1 << piece
}

const _: () = assert!(PIECES_MAX <= u32::BITS as usize);
const _: () = assert!(PIECE_BYTES % (HOSTS_PER_GROUP * SECTOR_BYTES_MAX) == 0);
