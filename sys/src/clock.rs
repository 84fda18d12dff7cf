//! Local time for log lines, and the monotonic clocks.

use nix::time::{ClockId, clock_gettime};
use std::fmt;

/// A point of civil time; `Display` gives `YYYY-MM-DD HH:MM:SS`, as log lines begin (command-line.md 11.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CivilTime {
    /// Year, e.g. 2026.
    pub year: i32,
    /// 1 to 12.
    pub month: i32,
    /// 1 to 31.
    pub day: i32,
    /// 0 to 23.
    pub hour: i32,
    /// 0 to 59.
    pub minute: i32,
    /// 0 to 60; 60 only in a leap second.
    pub second: i32,
}

impl fmt::Display for CivilTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, month, day, hour, minute, second } = self;
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
    }
}

/// Seconds since 1970 as local time, or as UTC. The first local conversion of a process reads the time zone file.
///
/// A time beyond the range of the C library gives the beginning of 1970.
#[must_use]
pub fn civil_time(seconds: libc::time_t, utc: bool) -> CivilTime {
    // SAFETY: an all-zero `tm` is valid: integers and a pointer that may be null.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call, and the functions keep neither. `localtime_r` reads the environment
    // variable TZ; this workspace never changes the environment.
    let converted = unsafe {
        if utc {
            libc::gmtime_r(&raw const seconds, &raw mut tm)
        } else {
            libc::localtime_r(&raw const seconds, &raw mut tm)
        }
    };
    if converted.is_null() {
        return CivilTime { year: 1970, month: 1, day: 1, hour: 0, minute: 0, second: 0 };
    }
    CivilTime {
        year: tm.tm_year.saturating_add(1900),
        month: tm.tm_mon + 1,
        day: tm.tm_mday,
        hour: tm.tm_hour,
        minute: tm.tm_min,
        second: tm.tm_sec,
    }
}

/// Milliseconds since boot, sleep included: the clock of [`crate::process::start_time`].
#[must_use]
pub fn boottime_ms() -> u64 {
    milliseconds_of(ClockId::CLOCK_BOOTTIME)
}

/// Now, as civil time.
#[must_use]
pub fn civil_now(utc: bool) -> CivilTime {
    civil_time(seconds_of(ClockId::CLOCK_REALTIME), utc)
}

/// Whole seconds of the monotonic clock, the time in all leases.
#[must_use]
pub fn monotonic_seconds() -> u64 {
    u64::try_from(seconds_of(ClockId::CLOCK_MONOTONIC)).unwrap_or(0)
}

/// Milliseconds of the monotonic clock: deadlines and intervals finer than a lease's second.
#[must_use]
pub fn monotonic_ms() -> u64 {
    milliseconds_of(ClockId::CLOCK_MONOTONIC)
}

fn milliseconds_of(clock: ClockId) -> u64 {
    let Ok(time) = clock_gettime(clock) else { return 0 };
    let (seconds, nanoseconds) = (time.tv_sec(), time.tv_nsec());
    u64::try_from(seconds * 1000 + nanoseconds / 1_000_000).unwrap_or(0)
}

/// A clock's whole seconds. The clocks used here exist on every Linux, so the call cannot fail.
fn seconds_of(clock: ClockId) -> libc::time_t {
    clock_gettime(clock).map_or(0, |time| time.tv_sec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utc_times() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_827_696, "2000-02-29 12:34:56"),
            (4_102_444_799, "2099-12-31 23:59:59"),
            (libc::time_t::MAX, "1970-01-01 00:00:00"),
        ] {
            assert_eq!(civil_time(seconds, true).to_string(), text);
        }
    }

    #[test]
    fn local_time_differs_from_utc_by_less_than_a_day_and_a_bit() {
        let seconds = 951_827_696;
        let (local, utc) = (civil_time(seconds, false), civil_time(seconds, true));
        assert_eq!(local.year, utc.year);
        assert!((local.month - utc.month).abs() <= 1);
    }

    #[test]
    fn the_monotonic_clock_does_not_go_back() {
        let before = monotonic_seconds();
        assert!(monotonic_seconds() >= before);
    }

    #[test]
    fn milliseconds_belong_to_the_same_clock_as_seconds() {
        let (before, now, after) = (monotonic_seconds(), monotonic_ms(), monotonic_seconds());
        assert!((before..=after).contains(&(now / 1000)));
        let start = monotonic_ms();
        std::thread::sleep(std::time::Duration::from_millis(30));
        let passed = monotonic_ms() - start;
        assert!((29..5000).contains(&passed), "{passed} ms");
    }
}
