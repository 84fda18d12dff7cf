//! Local time for log lines, and the clocks that never go back.
//!
//! Leases age by [`boottime_ms`], also while the machine sleeps: other hosts do not wait for it. `CLOCK_MONOTONIC`, [`monotonic_ms`],
//! stands still meanwhile, and watchdog devices mostly do; it is the clock that clients of wdmd count in.

use nix::time::{ClockId, clock_gettime};
use std::{fmt, io};

const NANOSECONDS_PER_MS: u64 = 1_000_000;
const NANOSECONDS_PER_SECOND: i64 = 1_000_000_000;
/// `timex.freq` counts parts per million in this many pieces.
const FREQ_PER_PPM: i64 = 1 << 16;
/// `timex.tick` of a clock that is left alone: microseconds of one of the 100 ticks a second that programs see (`USER_HZ`).
const TICK_NOMINAL: i64 = 10_000;
/// What one more or less of them does.
const PPM_PER_TICK: i64 = 1_000_000 / TICK_NOMINAL;

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

/// Milliseconds since boot, sleep included: the clock of all leases, and of [`crate::process::start_time`].
#[must_use]
pub fn boottime_ms() -> u64 {
    nanoseconds_of(ClockId::CLOCK_BOOTTIME) / NANOSECONDS_PER_MS
}

/// The same in whole seconds, as they are written into leases.
#[must_use]
pub fn boottime_seconds() -> u64 {
    boottime_ms() / 1000
}

/// Milliseconds of the clock that stands still while the machine sleeps.
#[must_use]
pub fn monotonic_ms() -> u64 {
    nanoseconds_of(ClockId::CLOCK_MONOTONIC) / NANOSECONDS_PER_MS
}

/// How long this machine has slept since boot, milliseconds: what [`boottime_ms`] is ahead of [`monotonic_ms`], exactly 0 if it never did.
/// Rather too long than too short, by the time that reading the clocks takes.
#[must_use]
pub fn asleep_ms() -> u64 {
    let before = nanoseconds_of(ClockId::CLOCK_MONOTONIC);
    let boottime = nanoseconds_of(ClockId::CLOCK_BOOTTIME);
    asleep(before, boottime, nanoseconds_of(ClockId::CLOCK_MONOTONIC))
}

/// The same, of two looks at the monotonic clock with one at the other in between, nanoseconds.
fn asleep(before: u64, boottime: u64, after: u64) -> u64 {
    // The true difference lies between these. Clocks that were never apart are told by the smaller one.
    let (least, most) = (boottime.saturating_sub(after), boottime.saturating_sub(before));
    if least == 0 { 0 } else { most.div_ceil(NANOSECONDS_PER_MS) }
}

/// How much faster than the hardware counts, in parts per million, the kernel is told to run the clocks: all of them but
/// `CLOCK_MONOTONIC_RAW`, so that of leases too. Negative: slower. What it catches up by itself, by its phase correction or by
/// `adjtime`, is not in it.
///
/// # Errors
/// The kernel, or who confines this process, does not say.
pub fn rate_ppm() -> io::Result<i64> {
    // SAFETY: an all-zero `timex` is valid: integers only. No mode is set in it, so that nothing is changed.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for the call, which keeps nothing of it.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    // Any other number says how well the clock is synchronised.
    if state == -1 { Err(io::Error::last_os_error()) } else { Ok(ppm(timex.freq, timex.tick)) }
}

/// The same, of what the kernel says, rounded towards zero.
fn ppm(freq: i64, tick: i64) -> i64 {
    let ticks = tick.saturating_sub(TICK_NOMINAL).saturating_mul(PPM_PER_TICK * FREQ_PER_PPM);
    ticks.saturating_add(freq) / FREQ_PER_PPM
}

/// Now, as civil time.
#[must_use]
pub fn civil_now(utc: bool) -> CivilTime {
    civil_time(seconds_of(ClockId::CLOCK_REALTIME), utc)
}

fn nanoseconds_of(clock: ClockId) -> u64 {
    let Ok(time) = clock_gettime(clock) else { return 0 };
    u64::try_from(time.tv_sec() * NANOSECONDS_PER_SECOND + time.tv_nsec()).unwrap_or(0)
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
    fn the_clock_of_leases_does_not_go_back_and_counts_what_the_other_does() {
        let (before, now, after) = (boottime_seconds(), boottime_ms(), boottime_seconds());
        assert!((before..=after).contains(&(now / 1000)));
        let (start, monotonic) = (boottime_ms(), monotonic_ms());
        std::thread::sleep(std::time::Duration::from_millis(30));
        let passed = (boottime_ms() - start, monotonic_ms() - monotonic);
        assert!((29..5000).contains(&passed.0) && (29..5000).contains(&passed.1), "{passed:?} ms");
    }

    #[test]
    fn sleep_is_the_difference_of_the_clocks() {
        const SECOND: u64 = 1_000_000_000;
        for (before, boottime, after, asleep_ms) in [
            // Never asleep, also if a second passes between two looks.
            (5 * SECOND, 5 * SECOND, 5 * SECOND, 0),
            (5 * SECOND, 5 * SECOND + 100, 5 * SECOND + 300, 0),
            (5 * SECOND, 6 * SECOND, 6 * SECOND, 0),
            // An hour; rounded up, and never less.
            (5 * SECOND, 3605 * SECOND, 5 * SECOND, 3_600_000),
            (5 * SECOND, 3605 * SECOND + 200, 5 * SECOND + 500, 3_600_001),
            (5 * SECOND, 3606 * SECOND, 6 * SECOND, 3_601_000),
        ] {
            assert_eq!(asleep(before, boottime, after), asleep_ms, "{before} {boottime} {after}");
        }
        let asleep = asleep_ms();
        assert!(asleep <= boottime_ms());
    }

    #[test]
    fn the_rate_is_the_sum_of_what_ticks_and_frequency_say() {
        for (freq, tick, expected) in [
            (0, 10_000, 0),
            // The most that a frequency can say, and what chrony does by default to a clock that is far off, both ways.
            (500 << 16, 10_000, 500),
            (-(500 << 16), 10_000, -500),
            (0, 10_833, 83_300),
            (33 << 16, 10_833, 83_333),
            (0, 9_167, -83_300),
            // They may cancel out.
            (100 << 16, 9_999, 0),
            // Of parts of one part nothing is left.
            ((12 << 16) + 65_535, 10_000, 12),
            (-(12 << 16) - 65_535, 10_000, -12),
            // Not what a kernel says.
            (i64::MAX, i64::MAX, i64::MAX / 65_536),
            (i64::MIN, i64::MIN, i64::MIN / 65_536),
        ] {
            assert_eq!(ppm(freq, tick), expected, "{freq} {tick}");
        }
    }

    #[test]
    fn the_kernel_says_its_rate() {
        // It takes ticks of a tenth more or less at most.
        if let Ok(rate) = rate_ppm() {
            assert!((-101_000..=101_000).contains(&rate), "{rate}");
        }
    }
}
