//! True time, and what each host's clock makes of it.

use sanlock_lease::timing::MonoTime;

/// True time in microseconds since the beginning of the run.
pub type Micros = u64;

/// Microseconds of a second.
pub const SECOND: Micros = 1_000_000;

/// A host's monotonic clock: its own zero, its own rate.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    offset_ms: u64,
    /// Microseconds of this clock per true second.
    rate: u64,
}

impl Clock {
    /// A clock that shows `offset_ms` at true time 0 and gains `drift_ppm` microseconds a second.
    ///
    /// # Panics
    /// It would stand still or run backwards.
    #[must_use]
    pub fn new(offset_ms: u64, drift_ppm: i64) -> Self {
        let rate = u64::try_from(1_000_000 + drift_ppm).unwrap_or(0);
        assert!(rate > 0, "a clock that stands still");
        Self { offset_ms, rate }
    }

    /// What it shows.
    #[must_use]
    pub fn at(&self, now: Micros) -> MonoTime {
        MonoTime::from_millis(self.offset_ms + now * self.rate / 1_000_000_000)
    }

    /// The first microsecond at which it shows at least `time`.
    #[must_use]
    pub fn when(&self, time: MonoTime) -> Micros {
        let ms = time.millis().saturating_sub(self.offset_ms);
        (ms * 1_000_000_000).div_ceil(self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_is_the_first_moment_of_a_time() {
        for (offset, drift) in [(0, 0), (77, 5000), (5_000_000, -5000)] {
            let clock = Clock::new(offset, drift);
            for ms in [0, 1, 999, 1000, 123_456] {
                let time = MonoTime::from_millis(offset + ms);
                let when = clock.when(time);
                assert!(clock.at(when) >= time);
                assert!(when == 0 || clock.at(when - 1) < time);
            }
        }
    }
}
