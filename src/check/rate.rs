//! How fast this host's clock runs: leases are safe only while the clocks of all hosts run alike (lease-algorithms.md 13.4, docs/guide/tuning.md).

use super::finding::Findings;
use super::root::Root;
use sanlock_lease::timing::{IoTimeout, WatchdogFire};
use sanlock_sys::clock::rate_ppm;
use sanlock_sys::process::boot_id;
use sanlock_wdmd::decide::{DeviceTimeout, Timing, wanted_device_timeout};

/// Says which boot of which machine this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// What NTP may need to make up for a poor oscillator: then the clock is not wrong, but right.
const CORRECTION_PPM: u64 = 500;
/// A watchdog device may run long by this much (docs/decisions/0006).
const DEVICE_LONG_PPM: u64 = 7_000;
/// The `maxslewrate` to be advised where nothing smaller is needed.
const SLEW_PPM: u64 = 1_000;

/// Says whether the clock of this machine is run too fast or too slow. A saved copy of another one's files says nothing of its clock.
pub(super) fn judge(root: &Root, io_timeout: IoTimeout, fire: WatchdogFire, found: &mut Findings) {
    let is_this = root.text(BOOT_ID).is_some_and(|boot| boot_id().is_ok_and(|ours| ours == boot));
    // Where the kernel does not let us ask there is nothing to be said.
    let Some(rate) = is_this.then(rate_ppm).and_then(Result::ok) else { return };
    let spare = spare_ppm(io_timeout, fire);
    let limit = spare.max(CORRECTION_PPM);
    if rate.unsigned_abs() <= limit {
        return;
    }
    let (percent, way) = (rate.unsigned_abs() / 100, if rate > 0 { "faster" } else { "slower" });
    let seen = format!(
        "the kernel runs the clocks {} ppm ({}.{:02} %) {way} than the hardware (adjtimex); with these timeouts {limit} ppm may be borne",
        rate.unsigned_abs(),
        percent / 100,
        percent % 100
    );
    let advice = format!(
        "limit it: 'maxslewrate {}' in chrony.conf, with 'makestep 1 3', which sets a clock that is far off when chronyd starts (a step moves \
         no clock of leases); until this is over, start nothing that holds leases",
        SLEW_PPM.min(spare * 4 / 5)
    );
    found.warning(
        "clock-rate",
        seen,
        "leases age by this clock, and other hosts count by theirs: if one is slow and another fast, a lease is taken while its owner may still write",
        &advice,
    );
}

/// How far the clock of one host may be off, in parts per million. (Where that is less than NTP needs for a poor oscillator, nothing can be said of a
/// clock that is run by as much: it may be right.)
///
/// Others count N = 8T + F seconds from a renewal on, and this host is to be reset before. What is to spare is the margin of wdmd (docs/decisions/0006),
/// 1 s or 1 % of two timeouts of its device, less what the device may run long in that time. Two hosts may be off in opposite
/// directions, so that each has half of it. This is below the bound that the simulator plays with (docs/proof/simulator-hosts.md).
fn spare_ppm(io_timeout: IoTimeout, fire: WatchdogFire) -> u64 {
    let fire_secs = u32::try_from(fire.secs()).ok();
    let timing =
        fire_secs.and_then(|fire| Timing::new(fire, DeviceTimeout::exactly(wanted_device_timeout(fire)?)));
    let spare_us = timing.map_or(0, |timing| {
        let margin_us = 1000 * timing.margin_ms().unsigned_abs();
        margin_us.saturating_sub(2 * u64::from(timing.device_timeout()) * DEVICE_LONG_PPM)
    });
    spare_us / (2 * io_timeout.host_dead_secs(fire))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_half_of_what_is_to_spare() {
        for (io, fire, expected) in [
            // 0.79 s of 140 s; more where it is shorter, less where it is longer.
            (10, 60, 2821),
            (5, 60, 3950),
            (10, 20, 4300),
            (20, 60, 1795),
            // 1.5 s, of which a device of 75 s may take 1.05.
            (10, 300, 592),
            (120, 60, 387),
        ] {
            let (io_timeout, fire) = (IoTimeout::new(io).unwrap(), WatchdogFire::new(fire).unwrap());
            assert_eq!(spare_ppm(io_timeout, fire), expected, "{io_timeout:?} {fire:?}");
        }
    }

    /// 13.4: 0.7 % between two clocks.
    #[test]
    fn two_hosts_at_the_limit_differ_by_less_than_the_argument_allows() {
        for io in 1..=255 {
            let (io_timeout, fire) = (IoTimeout::new(io).unwrap(), WatchdogFire::DEFAULT);
            let apart_us = 2 * spare_ppm(io_timeout, fire) * io_timeout.host_dead_secs(fire);
            assert!(apart_us < 1_000_000, "{io}: {apart_us}");
        }
        assert!(2 * spare_ppm(IoTimeout::new(10).unwrap(), WatchdogFire::DEFAULT) < 7_000);
    }
}
