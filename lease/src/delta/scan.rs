//! Watching the other hosts (lease-algorithms.md 3.1): reading the whole area, piece by piece through one small buffer.
//!
//! Separate from renewal on purpose: however slow or broken the rest of the area is, our own sector is renewed in time.

use crate::geometry::{Geometry, HostId};
use crate::hosts::{HOSTS_PER_GROUP, HostNews, HostTable};
use crate::machine::{Action, Env, Input, IoFailure, Machine, Op, OpId, Place, Step, View};
use crate::timing::{IoTimeout, MonoTime};
use arrayvec::ArrayVec;

use super::DeltaConfig;

/// Bytes read at a time.
pub const PIECE_BYTES: usize = 64 * 1024;
/// Reads that timed out and may be outstanding before no further one is started: each of them holds a buffer.
pub const STUCK_READS_MAX: usize = 4;

/// What one look at all hosts came to. Pieces that could be read are in the table even if others could not.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct ScanOutcome {
    /// What was found.
    pub news: Vec<HostNews>,
    /// The first piece that could not be read: its first host, and why.
    pub failed: Option<(HostId, IoFailure)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Reading { op: OpId, piece: usize },
}

/// Looks at all hosts of a lockspace, once for every [`Input::Start`].
///
/// A failed piece is passed over; a timeout ends the scan, and the next one begins behind the piece that hung, so that one bad
/// spot hides no other host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostScan {
    geometry: Geometry,
    io_timeout: IoTimeout,
    table: HostTable,
    phase: Phase,
    next_piece: usize,
    left: usize,
    outcome: ScanOutcome,
    stuck: ArrayVec<OpId, STUCK_READS_MAX>,
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
        Self {
            geometry,
            io_timeout: config.io_timeout,
            table,
            phase: Phase::Idle,
            next_piece: 0,
            left: 0,
            outcome: ScanOutcome::default(),
            stuck: ArrayVec::new(),
            next_op: 0,
        }
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
        self.next(now)
    }

    fn done(&mut self) -> Step<ScanOutcome> {
        self.phase = Phase::Idle;
        Step::Done { outcome: std::mem::take(&mut self.outcome), outstanding: 0 }
    }

    fn next(&mut self, now: MonoTime) -> Step<ScanOutcome> {
        if self.left == 0 {
            return self.done();
        }
        let piece = self.next_piece % self.pieces();
        if self.stuck.is_full() {
            self.note_failure(piece, IoFailure::TimedOut);
            return self.done();
        }
        self.left -= 1;
        self.next_piece = (piece + 1) % self.pieces();
        let id = OpId(self.next_op);
        self.next_op = self.next_op.wrapping_add(1);
        self.phase = Phase::Reading { op: id, piece };
        let (first, count) = self.range(piece);
        let mut ops = ArrayVec::new();
        ops.push(Op {
            id,
            place: Place::Lockspace,
            sector_size: self.geometry.sector(),
            action: Action::Read { first: first as u64, count: count as u64 },
            deadline: now.plus_millis(self.io_timeout.millis()),
        });
        Step::Io(ops)
    }

    fn range(&self, piece: usize) -> (usize, usize) {
        let first = piece * self.piece_hosts();
        (first, self.piece_hosts().min(self.table.max_hosts() - first))
    }

    fn note_failure(&mut self, piece: usize, failure: IoFailure) {
        let host = HostId::from_index(self.range(piece).0);
        self.outcome.failed = self.outcome.failed.or(host.map(|h| (h, failure)));
    }

    fn ended(
        &mut self,
        now: MonoTime,
        piece: usize,
        result: Result<View<'_>, IoFailure>,
    ) -> Step<ScanOutcome> {
        let (first, count) = self.range(piece);
        match result {
            Ok(view) => self.table.update(now, view, first, count, &mut self.outcome.news),
            Err(failure) => self.note_failure(piece, failure),
        }
        self.next(now)
    }
}

impl Machine for HostScan {
    type Outcome = ScanOutcome;

    fn step(&mut self, now: MonoTime, _: &Env<'_>, input: Input<'_>) -> Step<ScanOutcome> {
        match (input, self.phase) {
            (Input::Start, _) => self.start(now),
            (Input::Completed { op, result }, Phase::Reading { op: id, piece }) if op == id => {
                self.ended(now, piece, result)
            }
            (Input::TimedOut { op }, Phase::Reading { op: id, piece }) if op == id => {
                let _full = self.stuck.try_push(op);
                self.note_failure(piece, IoFailure::TimedOut);
                self.done()
            }
            (Input::CompletedLate { op, .. }, _) => {
                // Its data are older than what later reads may have shown: going back to them would look like life.
                self.stuck.retain(|id| *id != op);
                Step::Pending
            }
            _ => Step::Pending,
        }
    }
}

const _: () = assert!(PIECE_BYTES % (HOSTS_PER_GROUP * crate::limits::SECTOR_BYTES_MAX) == 0);
