//! What becomes of one operation; see the fault model in [`crate::disk`].

use crate::clock::{Micros, SECOND};
use crate::dice::Dice;
use crate::host::{Host, Path};
use sanlock_lease::machine::IoFailure;

/// Longest time after its limit at which a late write lands.
const LATEST_SECS: u64 = 200;
/// Slowest operation that counts as slow, not as hung.
const SLOWEST_SECS: u64 = 10;
/// A limit longer than this is that of a renewal's write.
const LONG_LIMIT_SECS: u64 = 30;
/// Failures out of a thousand that leave no doubt.
const DEFINITE_PER_MILLE: u64 = 130;
/// EAGAIN, ENOSPC, EROFS: nothing has landed, and nothing will.
const REFUSALS: [i32; 3] = [11, 28, 30];
/// EIO.
pub(crate) const EIO: i32 = 5;

/// What becomes of one operation. Times count from its submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// When its completion is seen; `None`: never.
    pub completes: Option<Micros>,
    /// When its write lands; `None`: never. Reads ignore it.
    pub lands: Option<Micros>,
    /// The completion reports this failure.
    pub failure: Option<IoFailure>,
}

impl Fate {
    /// Draws the fate of an operation with this limit.
    pub fn of(dice: &mut Dice, host: &Host, disk: u8, now: Micros, limit: Micros, calm: bool) -> Self {
        let s = &host.storage;
        match host.path(disk, now) {
            Path::Hangs { until } if until - now > limit && !host.is_reference() && dice.per_mille(200) => {
                return Self::not_begun(limit);
            }
            Path::Hangs { until } => return Self::hanging(dice, until - now, limit),
            Path::Fails { .. } => return Self::failing(dice),
            Path::Good => {}
        }
        let trouble = !calm;
        if trouble && !host.is_reference() && dice.per_mille(s.timeouts_per_mille) {
            return Self::late(dice, limit);
        }
        if trouble && dice.per_mille(s.errors_per_mille) {
            let fate =
                if dice.per_mille(DEFINITE_PER_MILLE) { Self::refused(dice) } else { Self::failing(dice) };
            return if host.is_reference() { Self { lands: None, ..fate } } else { fate };
        }
        let longest = limit.saturating_sub(1).clamp(1, SLOWEST_SECS * SECOND);
        let takes = if trouble && dice.per_mille(s.slow_per_mille) {
            dice.spread(5_000, longest)
        } else {
            dice.spread(10, 5_000)
        };
        let takes = takes.min(longest);
        Self { completes: Some(takes), lands: Some(dice.between(takes / 2, takes)), failure: None }
    }

    /// A leader of ours that is written late, or fails.
    pub fn of_troubled_leader(dice: &mut Dice, limit: Micros) -> Self {
        if dice.per_mille(500) { Self::late(dice, limit) } else { Self::failing(dice) }
    }

    /// Its disk could not be opened.
    #[must_use]
    pub fn not_open() -> Self {
        Self { completes: Some(1), lands: None, failure: Some(IoFailure::NotOpen(EIO)) }
    }

    /// A write that lands after everybody has stopped waiting for it.
    pub fn very_late(dice: &mut Dice, limit: Micros) -> Self {
        let takes = limit + dice.between(100, 400) * SECOND;
        Self { completes: Some(takes), lands: Some(takes), failure: None }
    }

    /// The same, except that one time in three a write that fails in doubt lands later, in the time for which it is in doubt.
    pub fn in_doubt(self, dice: &mut Dice, doubt: Micros) -> Self {
        match (self.completes, self.failure) {
            (Some(completes), Some(failure)) if failure.leaves_doubt() && dice.per_mille(330) => {
                Self { lands: Some(completes + dice.between(1, doubt)), ..self }
            }
            _ => self,
        }
    }

    /// The same, except that what has not landed at its limit never does, and then fails.
    pub fn in_time(self, limit: Micros) -> Self {
        match self.lands {
            Some(after) if after >= limit => Self { lands: None, failure: Some(IoFailure::Os(EIO)), ..self },
            _ => self,
        }
    }

    /// It exceeds its limit. A write lands before it, later, or never; the completion is seen after that, or never.
    fn late(dice: &mut Dice, limit: Micros) -> Self {
        if limit > LONG_LIMIT_SECS * SECOND && dice.per_mille(850) {
            // A renewal's write: to hang for some seconds is trouble enough, most of the time.
            let takes = dice.spread(SECOND, limit + limit / 8);
            return Self { completes: Some(takes), lands: Some(dice.between(1, takes)), failure: None };
        }
        let later = limit + dice.spread(1_000, LATEST_SECS * SECOND);
        match dice.between(0, 40) {
            0 => Self { completes: None, lands: Some(dice.between(1, later)), failure: None },
            1 => Self { completes: None, lands: None, failure: None },
            n => Self::late_and_reported(dice, limit, later, n % 6),
        }
    }

    fn late_and_reported(dice: &mut Dice, limit: Micros, later: Micros, kind: u64) -> Self {
        match kind {
            // Lands in time, but is reported late.
            0 => Self { completes: Some(later), lands: Some(dice.between(1, limit)), failure: None },
            1 => Self { completes: Some(later), lands: None, failure: Some(IoFailure::Os(EIO)) },
            // Lands although it fails in the end.
            2 => Self {
                completes: Some(later),
                lands: Some(dice.between(limit, later)),
                failure: Some(IoFailure::Os(EIO)),
            },
            _ => Self { completes: Some(later), lands: Some(dice.between(limit, later)), failure: None },
        }
    }

    fn failing(dice: &mut Dice) -> Self {
        let takes = dice.spread(50, 50_000);
        let lands = dice.per_mille(300).then(|| dice.between(1, takes));
        Self { completes: Some(takes), lands, failure: Some(IoFailure::Os(EIO)) }
    }

    /// Somebody answers who would have had to carry it out, or a part of it was transferred: what a write did it did before.
    fn refused(dice: &mut Dice) -> Self {
        let takes = dice.spread(50, 50_000);
        let refusal =
            usize::try_from(dice.between(0, REFUSALS.len() as u64)).ok().and_then(|n| REFUSALS.get(n));
        let Some(errno) = refusal else {
            let lands = dice.per_mille(500).then(|| dice.between(1, takes));
            return Self { completes: Some(takes), lands, failure: Some(IoFailure::Short) };
        };
        Self { completes: Some(takes), lands: None, failure: Some(IoFailure::Os(*errno)) }
    }

    /// It waits behind others that hang until its limit, and is never begun.
    fn not_begun(limit: Micros) -> Self {
        Self { completes: Some(limit.saturating_sub(1)), lands: None, failure: Some(IoFailure::TimedOut) }
    }

    /// The path, or what it reads, is gone and comes back after `returns`.
    pub fn hanging(dice: &mut Dice, returns: Micros, limit: Micros) -> Self {
        let lands = returns + dice.spread(100, SECOND);
        let completes = lands + dice.spread(10, 10_000);
        if dice.per_mille(700) {
            return Self { completes: Some(completes), lands: Some(lands), failure: None };
        }
        let gives_up = completes.max(limit + 1);
        Self { completes: Some(gives_up), lands: None, failure: Some(IoFailure::Os(EIO)) }
    }
}
