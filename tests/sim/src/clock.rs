//! True time, and what each host's clock makes of it.

use sanlock_lease::timing::MonoTime;

/// True time in microseconds since the beginning of the run.
pub type Micros = u64;

/// Microseconds of a second.
pub const SECOND: Micros = 1_000_000;

/// A host's monotonic clock: its own zero, its own rate; now and then it stands still. It begins anew with each boot.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    offset_ms: u64,
    /// When it showed that.
    begun: Micros,
    /// Microseconds of this clock per true second.
    rate: u64,
    /// How long it had stood still before the last time.
    lost: Micros,
    /// The last time: from when, and until when.
    still: (Micros, Micros),
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
        Self { offset_ms, begun: 0, rate, lost: 0, still: (0, 0) }
    }

    /// The clock of its host's next boot, which shows `offset_ms` now.
    #[must_use]
    pub fn begun_anew(self, offset_ms: u64, now: Micros) -> Self {
        Self { offset_ms, begun: now, rate: self.rate, lost: 0, still: (now, now) }
    }

    /// It stands still from now on for that long. It must not be standing still.
    pub fn stands_still(&mut self, now: Micros, long: Micros) {
        self.lost += self.still.1 - self.still.0;
        self.still = (now, now + long);
    }

    /// What it shows.
    #[must_use]
    pub fn at(&self, now: Micros) -> MonoTime {
        let (from, until) = self.still;
        let lost = self.lost + now.clamp(from, until) - from;
        MonoTime::from_millis(
            self.offset_ms + (now - lost).saturating_sub(self.begun) * self.rate / 1_000_000_000,
        )
    }

    /// The first microsecond at which it shows at least `time`.
    #[must_use]
    pub fn when(&self, time: MonoTime) -> Micros {
        let ms = time.millis().saturating_sub(self.offset_ms);
        let when = self.begun + (ms * 1_000_000_000).div_ceil(self.rate) + self.lost;
        let (from, until) = self.still;
        if when > from { when + (until - from) } else { when }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_stood_still_is_behind() {
        let mut clock = Clock::new(0, 0);
        clock.stands_still(10 * SECOND, 5 * SECOND);
        let shows = |s| clock.at(s * SECOND).secs();
        assert_eq!([9, 10, 12, 15, 16].map(shows), [9, 10, 10, 10, 11]);
        assert_eq!(clock.when(MonoTime::from_secs(11)), 16 * SECOND);
    }

    #[test]
    fn a_clock_begins_anew() {
        let mut clock = Clock::new(5_000_000, 100_000).begun_anew(3_000, 70 * SECOND);
        let shows = |clock: &Clock, s| clock.at(s * SECOND).millis();
        assert_eq!([70, 80].map(|s| shows(&clock, s)), [3_000, 14_000], "at its former rate");
        assert_eq!(clock.when(MonoTime::from_millis(14_000)), 80 * SECOND);
        clock.stands_still(80 * SECOND, SECOND);
        assert_eq!([81, 91].map(|s| shows(&clock, s)), [14_000, 25_000]);
        assert_eq!(clock.when(MonoTime::from_millis(25_000)), 91 * SECOND);
    }

    #[test]
    fn when_is_the_first_moment_of_a_time() {
        for (offset, drift) in [(0, 0), (77, 5000), (5_000_000, -5000)] {
            let clock = Clock::new(offset, drift);
            let mut stopped = clock;
            stopped.stands_still(500_000, 3_000_000);
            stopped.stands_still(90_000_000, 20_000_000);
            // Of a clock that stood still, only times that are still to come.
            let all = [0, 1, 999, 1000, 123_456].map(|ms| (clock, ms)).into_iter();
            for (clock, ms) in all.chain([(stopped, 99_000), (stopped, 123_456)]) {
                let time = MonoTime::from_millis(offset + ms);
                let when = clock.when(time);
                assert!(clock.at(when) >= time);
                assert!(when == 0 || clock.at(when - 1) < time);
            }
        }
    }
}
