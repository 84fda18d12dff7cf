//! How long renewals take, counted from the history that the daemon keeps of each lockspace.
//!
//! The daemon shows its last renewals (180 unless configured); each scrape counts those that are new since the last one. This works with
//! daemons of 3.8.5 as well, and costs nothing where leases are renewed. Renewals that fell out of the history between two scrapes are
//! not counted, so scrapes should not be further apart than the history reaches: an hour by default.

use sanlock_client::wire::StateRecord;
use sanlock_client::wire::counters::number;

/// Upper bounds in seconds. The daemon tells milliseconds.
pub(crate) const BOUNDS: [f64; 16] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0];

/// How many took how long.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Durations {
    /// By [`BOUNDS`], the last: longer.
    pub(crate) counts: [u64; BOUNDS.len() + 1],
    /// All together, in milliseconds.
    pub(crate) sum_ms: u64,
}

impl Durations {
    fn add(&mut self, ms: u64) {
        // Exact: no operation takes 2^52 milliseconds.
        #[expect(clippy::cast_precision_loss, reason = "see above")]
        let seconds = ms as f64 / 1000.0;
        let at = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
        }
        self.sum_ms = self.sum_ms.saturating_add(ms);
    }

    /// All together, in seconds.
    #[expect(clippy::cast_precision_loss, reason = "a sum for people")]
    pub(crate) fn sum(&self) -> f64 {
        self.sum_ms as f64 / 1000.0
    }
}

/// What has been counted of one lockspace.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Renewals {
    pub(crate) reads: Durations,
    pub(crate) writes: Durations,
    /// Attempts that timed out.
    pub(crate) timeouts: u64,
    /// Attempts that failed otherwise.
    pub(crate) errors: u64,
    /// The newest renewal counted, with the failures after it that were counted: they still grow.
    newest: Option<(u64, u64, u64)>,
}

impl Renewals {
    /// Takes the history as known: nothing in it will be counted. For what was there before this process began.
    pub(crate) fn skip(&mut self, history: &[StateRecord]) {
        let before = self.clone();
        self.count(history);
        *self = Self { newest: self.newest, ..before };
    }

    /// Counts what is new in the history.
    pub(crate) fn count(&mut self, history: &[StateRecord]) {
        let mut entries: Vec<&StateRecord> = history.iter().collect();
        entries.sort_by_key(|entry| entry.data64);
        for entry in entries {
            let value = |key| number(entry, key).unwrap_or(0);
            let (timeouts, errors) = (value("next_timeouts"), value("next_errors"));
            let (known_timeouts, known_errors) = match self.newest {
                Some((newest, ..)) if entry.data64 < newest => continue,
                Some((newest, timeouts, errors)) if entry.data64 == newest => (timeouts, errors),
                _ => {
                    self.reads.add(value("read_ms"));
                    self.writes.add(value("write_ms"));
                    (0, 0)
                }
            };
            self.timeouts += timeouts.saturating_sub(known_timeouts);
            self.errors += errors.saturating_sub(known_errors);
            self.newest = Some((entry.data64, timeouts, errors));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanlock_client::wire::StateText;

    fn entry(timestamp: u64, ms: u64, timeouts: u64) -> StateRecord {
        let text = StateText::new().item("read_ms", ms).item("write_ms", 1).item("next_timeouts", timeouts);
        StateRecord::renewal(timestamp, text.item("next_errors", 0))
    }

    #[test]
    fn each_renewal_is_counted_once_and_failures_as_they_come() {
        let mut renewals = Renewals::default();
        renewals.count(&[entry(10, 1, 0), entry(12, 2000, 1)]);
        assert_eq!((renewals.reads.counts[0], renewals.reads.counts[10], renewals.timeouts), (1, 1, 1));
        renewals.count(&[entry(10, 1, 0), entry(12, 2000, 3)]);
        assert_eq!((renewals.reads.counts.iter().sum::<u64>(), renewals.timeouts), (2, 3));
        renewals.count(&[entry(12, 2000, 3), entry(30, 100_000, 0)]);
        assert_eq!((renewals.reads.counts[16], renewals.timeouts, renewals.reads.sum_ms), (1, 3, 102_001));
        assert_eq!(renewals.writes.counts[0], 3);
        let before = renewals.clone();
        renewals.count(&[]);
        assert_eq!(renewals, before);
    }

    #[test]
    fn what_was_there_before_is_not_counted() {
        let mut renewals = Renewals::default();
        renewals.skip(&[entry(10, 1, 0), entry(12, 1, 2)]);
        assert_eq!((renewals.reads.sum_ms, renewals.timeouts), (0, 0));
        renewals.count(&[entry(12, 1, 3), entry(14, 7, 0)]);
        assert_eq!((renewals.reads.sum_ms, renewals.timeouts), (7, 1));
    }
}
