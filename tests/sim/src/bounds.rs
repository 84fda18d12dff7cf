//! How far clocks, devices and standing still may go before the argument of lease-algorithms.md 13.4 ends, for each io timeout T and
//! watchdog fire timeout F.
//!
//! Let the last renewal of a host carry s, N = 8T + F, and D be its device's timeout. wdmd pings on purpose up to s + N − 2D − m of
//! *its* clock (decision 6: m is 1 s, or 1 % of 2D where that is more), and whatever one thing goes wrong after that, the device fires
//! 2D later at most, by the *device's* clock. Another host has counted more than N seconds of *its* clock since it saw the renewal,
//! which was not before s. With one clock slow by e and the other one fast by e, a device that runs long by d, and a machine that
//! stood still for l, clock and all, nobody has two owners as long as
//!
//! ```text
//! (N − 2D − m) / (1 − e)  +  2D (1 + d)  +  l   <=   N / (1 + e)
//! ```
//!
//! The moment at which a renewal is seen, and whole seconds, add to that, but nothing that could be relied on. m alone pays for
//! everything.
//!
//! A peer that behaves like the original closes its device at the latest a second before the expiry (wdmd.md 7.4 says so of a test
//! that is not late): there (N − 1) / (1 − e) <= N / (1 + e).

use sanlock_lease::timing::{IoTimeout, WatchdogFire};
use sanlock_wdmd::decide::wanted_device_timeout;

/// A device may run long by this much: the i6300esb does (decision 6).
pub const DEVICE_LONG_PPM: u64 = 7_000;
/// A device may fire early by this much: the iTCO does (wdmd.md 4.7: 9.6 s for 10).
pub const DEVICE_SHORT_PPM: u64 = 40_000;
/// From deciding on a ping to the ping, of a wdmd that does not stand still.
const PING_MICROS: u64 = 3_000;

const MILLION: u64 = 1_000_000;

/// What is left of m when devices run long by `device_ppm`, in milliseconds: what clocks and standing still have between them.
#[must_use]
pub fn spare_ms(fire: WatchdogFire, device_ppm: u64) -> u64 {
    let twice = 2 * device_secs(fire);
    let margin = (10 * twice).max(1000);
    margin.saturating_sub(twice * device_ppm / 1000)
}

/// How long before 8T + F after its last renewal, by its own clock, a host has been reset: the device, which is pinged at (8T + F − 2D − m) for
/// the last time on purpose and fires at most 2D later, runs long by `device_ppm`, and the clock fast by `drift_ppm`. In milliseconds.
#[must_use]
pub fn reset_before_ms(fire: WatchdogFire, device_ppm: u64, drift_ppm: u64) -> u64 {
    let twice = 2 * device_secs(fire) * MILLION;
    let margin = (twice / 100).max(MILLION);
    let longest = (twice + twice / MILLION * device_ppm + PING_MICROS) * (MILLION + drift_ppm) / MILLION;
    (margin + twice).saturating_sub(longest) / 1000
}

/// The largest rate error e of a clock, in parts per million, if devices run long by `device_ppm` and machines stand still for `lag_ms`
/// at most in any stretch of N seconds.
#[must_use]
pub fn drift_ppm(io_timeout: IoTimeout, fire: WatchdogFire, device_ppm: u64, lag_ms: u64) -> u64 {
    let n = io_timeout.host_dead_secs(fire) * MILLION;
    let twice = 2 * device_secs(fire) * MILLION;
    let margin = (twice / 100).max(MILLION);
    let fixed = twice + twice / MILLION * device_ppm + lag_ms * 1000 + PING_MICROS;
    largest(|e| (n - twice - margin) * MILLION / (MILLION - e) + fixed <= n * MILLION / (MILLION + e))
}

/// The same where some hosts behave like the original.
#[must_use]
pub fn drift_ppm_of_originals(io_timeout: IoTimeout, fire: WatchdogFire) -> u64 {
    let n = io_timeout.host_dead_secs(fire) * MILLION;
    largest(|e| (n - MILLION) * MILLION / (MILLION - e) <= n * MILLION / (MILLION + e))
}

/// D, as wdmd asks for it.
fn device_secs(fire: WatchdogFire) -> u64 {
    let secs = u32::try_from(fire.secs()).ok().and_then(wanted_device_timeout);
    u64::from(secs.unwrap_or(1))
}

/// The largest number below half a million for which this holds, which does not for larger ones.
fn largest(holds: impl Fn(u64) -> bool) -> u64 {
    let (mut good, mut bad) = (0, MILLION / 2);
    while bad - good > 1 {
        let middle = good.midpoint(bad);
        if holds(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    good
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(io: u32, fire: u32) -> (IoTimeout, WatchdogFire) {
        (IoTimeout::new(io).unwrap(), WatchdogFire::new(fire).unwrap())
    }

    #[test]
    fn bounds_by_io_and_fire_timeout() {
        // T, F, with exact devices and no standing still: e in ppm
        for (io, fire, expected) in
            [(10, 60, 4004), (5, 60, 5902), (3, 60, 7306), (5, 20, 10093), (2, 10, 24_397), (1, 10, 40_050)]
        {
            let (io, fire) = times(io, fire);
            let found = drift_ppm(io, fire, 0, 0);
            assert!(found.abs_diff(expected) <= expected / 50, "{io:?} {fire:?}: {found}, not {expected}");
        }
    }

    #[test]
    fn the_margin_pays_for_all() {
        let (io, fire) = times(10, 60);
        assert_eq!(spare_ms(fire, DEVICE_LONG_PPM), 790);
        assert!(drift_ppm(io, fire, DEVICE_LONG_PPM, 0) < drift_ppm(io, fire, 0, 0));
        assert!(drift_ppm(io, fire, DEVICE_LONG_PPM, 780) < 100);
        assert_eq!(drift_ppm(io, fire, DEVICE_LONG_PPM, 800), 0);
        assert_eq!(reset_before_ms(fire, 0, 0), 997);
        assert_eq!(reset_before_ms(fire, DEVICE_LONG_PPM, 0), 787);
        assert_eq!(reset_before_ms(fire, DEVICE_LONG_PPM, 4000), 666);
        assert!((3500..3600).contains(&drift_ppm_of_originals(io, fire)));
    }
}
