//! How long lease I/O takes here, and what io timeout that allows.

use super::finding::Findings;
use crate::direct::storage::{Storage, StorageError};
use sanlock_lease::limits::SECTOR_BYTES_MAX;
use sanlock_lease::timing::IoTimeout;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Pause between two operations: the storage should do what it does otherwise.
const PAUSE: Duration = Duration::from_millis(40);
/// The io timeout should be so many times the longest operation seen in a short while.
const ROOM: u32 = 4;
/// The shortest io timeout suggested: below it a host has too little time for anything unusual.
const SUGGESTED_MIN: u64 = 2;

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Samples {
    reads: Vec<Duration>,
    writes: Vec<Duration>,
}

impl Samples {
    /// Does lease I/O for this long: a sector is read, and written if that is allowed. `each` is called in between.
    ///
    /// # Errors
    /// A transfer failed.
    pub(super) fn take(
        storage: &mut Storage,
        offset: u64,
        write: bool,
        time: Duration,
        mut each: impl FnMut(&mut Storage) -> Result<(), StorageError>,
    ) -> Result<Self, StorageError> {
        let block = usize::try_from(storage.disk().logical_block_size()).unwrap_or(SECTOR_BYTES_MAX);
        let sector = vec![0; block];
        let (began, mut samples) = (Instant::now(), Self::default());
        while began.elapsed() < time {
            let start = Instant::now();
            storage.read(offset, block)?;
            samples.reads.push(start.elapsed());
            if write {
                let start = Instant::now();
                storage.write(offset, &sector)?;
                samples.writes.push(start.elapsed());
            }
            each(storage)?;
            std::thread::sleep(PAUSE);
        }
        Ok(samples)
    }

    fn longest(&self) -> Option<Duration> {
        self.reads.iter().chain(&self.writes).max().copied()
    }

    /// The io timeout that leaves room enough, in seconds.
    fn suggested(&self) -> Option<u64> {
        let wanted = self.longest()?.saturating_mul(ROOM);
        let seconds = wanted.as_secs() + u64::from(wanted.subsec_nanos() > 0);
        Some(seconds.max(SUGGESTED_MIN))
    }

    /// What was measured, in numbers.
    pub(super) fn summary(&self) -> Summary {
        Summary {
            reads: Distribution::of(&self.reads),
            writes: Distribution::of(&self.writes),
            suggested_io_timeout_s: self.suggested(),
        }
    }

    /// What was measured, in lines.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        let summary = self.summary();
        for (what, distribution) in [("reads", summary.reads), ("writes", summary.writes)] {
            let Some(Distribution { count, half_us, most_us, longest_us }) = distribution else { continue };
            let ms = |us: u64| format!("{}.{:02} ms", us / 1000, us % 1000 / 10);
            out.push_str(&format!(
                "{count} {what} of a sector: half within {}, 99 of 100 within {}, the longest {}\n",
                ms(half_us),
                ms(most_us),
                ms(longest_us)
            ));
        }
        if let Some(seconds) = summary.suggested_io_timeout_s {
            out.push_str(&format!("an io timeout of {seconds} s or more would leave room for that\n"));
        }
        out
    }

    /// Whether this io timeout leaves room.
    pub(super) fn judge(&self, io_timeout: IoTimeout, found: &mut Findings) {
        let (Some(longest), Some(suggested)) = (self.longest(), self.suggested()) else { return };
        let seen = format!(
            "an operation took {:.1} s, with an io timeout of {} s",
            longest.as_secs_f64(),
            io_timeout.secs()
        );
        let advice = format!(
            "find out what is slow; an io timeout of {suggested} s would bear it, but every take-over waits longer then (8 times that, and the watchdog's timeout)"
        );
        if longest >= Duration::from_secs(io_timeout.secs()) {
            found.problem(
                "too-slow",
                seen,
                "renewals time out: after four in a row everything that uses leases is stopped",
                &advice,
            );
        } else if suggested > io_timeout.secs() {
            found.warning("slow", seen, "under load, renewals will time out", &advice);
        }
    }
}

/// What was measured, in numbers.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Summary {
    reads: Option<Distribution>,
    writes: Option<Distribution>,
    suggested_io_timeout_s: Option<u64>,
}

/// How long operations of one kind took, in microseconds.
#[derive(Clone, Debug, Serialize)]
struct Distribution {
    count: usize,
    /// Half of them took no longer.
    half_us: u64,
    /// 99 of 100 took no longer.
    #[serde(rename = "percent99_us")]
    most_us: u64,
    longest_us: u64,
}

impl Distribution {
    fn of(list: &[Duration]) -> Option<Self> {
        let mut sorted = list.to_vec();
        sorted.sort();
        let us = |duration: &Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let at =
            |percent: usize| sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1)));
        Some(Self {
            count: sorted.len(),
            half_us: us(at(50)?),
            most_us: us(at(99)?),
            longest_us: us(sorted.last()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn judged(longest_ms: u64, io_timeout: u32) -> (Option<Level>, u64) {
        let reads =
            vec![Duration::from_millis(1), Duration::from_millis(longest_ms), Duration::from_millis(2)];
        let samples = Samples { reads, writes: Vec::new() };
        let mut found = Findings::default();
        samples.judge(IoTimeout::new(io_timeout).unwrap(), &mut found);
        (found.worst(), samples.suggested().unwrap())
    }

    #[test]
    fn slow_storage_is_told_and_an_io_timeout_suggested() {
        assert_eq!(judged(3, 10), (None, 2));
        assert_eq!(judged(2500, 10), (None, 10));
        assert_eq!(judged(2600, 10), (Some(Level::Warning), 11));
        assert_eq!(judged(9999, 10), (Some(Level::Warning), 40));
        assert_eq!(judged(10_000, 10), (Some(Level::Problem), 40));
        assert_eq!(judged(300, 1), (Some(Level::Warning), 2));
    }

    #[test]
    fn without_samples_nothing_is_said() {
        let mut found = Findings::default();
        Samples::default().judge(IoTimeout::DEFAULT, &mut found);
        assert_eq!((found.worst(), Samples::default().text().as_str()), (None, ""));
    }
}
