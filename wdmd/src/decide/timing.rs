//! Times and the numbers that follow from an agreed fire timeout (specification 4.6; decision 6).

use std::fmt;

/// A moment: milliseconds of `CLOCK_MONOTONIC`. Signed, so that nothing wraps in the first seconds after boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

impl Time {
    /// A moment that many milliseconds after boot; saturating.
    #[must_use]
    pub fn from_millis(millis: u64) -> Self {
        Self(i64::try_from(millis).unwrap_or(i64::MAX))
    }

    /// A whole second, as clients give them; saturating.
    #[must_use]
    pub fn from_seconds(seconds: u64) -> Self {
        Self(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000))
    }

    /// Whole seconds, fraction cut off, as clients and log lines use them; 0 before boot.
    #[must_use]
    pub fn seconds(self) -> u64 {
        u64::try_from(self.0 / 1000).unwrap_or(0)
    }

    /// Moved by milliseconds; saturating.
    #[must_use]
    pub const fn plus_millis(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Milliseconds from `earlier` to here; negative if it is later. Saturating.
    #[must_use]
    pub const fn millis_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Smallest agreed fire timeout. Below it the device would have to fire before the expiry.
pub const FIRE_TIMEOUT_MIN: u32 = 3;
/// Largest agreed fire timeout, a day: more protects nobody, and all arithmetic stays far from any limit.
pub const FIRE_TIMEOUT_MAX: u32 = 86_400;
/// The device is to reset the host after this many seconds if the fire timeout allows it: long enough for a host that
/// swaps or pauses for a moment.
const COMFORTABLE_DEVICE_TIMEOUT: u32 = 10;
/// A driver that rounds down may not go below this.
pub const ROUNDED_DEVICE_TIMEOUT_MIN: u32 = 2;
/// Part of the bound kept free for the device's granularity and for scheduling delays, at least.
const MARGIN_MIN_MS: i64 = 1000;
/// The same in relation to the two device timeouts in the bound: 1 %. (The i6300esb runs 0.7 % long.)
const MARGIN_PER_DEVICE_SECOND_MS: i64 = 20;
/// Pings per device timeout: two may be lost.
const PINGS_PER_DEVICE_TIMEOUT: i64 = 3;

/// Seconds between tests (4.6): what STATUS reports, and how long before its expiry a client is warned about.
#[must_use]
pub const fn test_interval(fire_timeout: u32) -> u32 {
    match fire_timeout {
        60.. => 10,
        30..60 => 5,
        10..30 => 2,
        _ => 1,
    }
}

/// What the device is asked for: it must reset the host that many seconds after its last ping. `None`: no device timeout
/// can keep this fire timeout.
///
/// At most half the fire timeout (the bound needs two), a quarter of it if that is comfortable.
#[must_use]
pub const fn wanted_device_timeout(fire_timeout: u32) -> Option<u32> {
    if fire_timeout < FIRE_TIMEOUT_MIN || fire_timeout > FIRE_TIMEOUT_MAX {
        return None;
    }
    let quarter = fire_timeout / 4;
    let comfortable = if quarter > COMFORTABLE_DEVICE_TIMEOUT { quarter } else { COMFORTABLE_DEVICE_TIMEOUT };
    let half = fire_timeout / 2;
    Some(if half < comfortable { half } else { comfortable })
}

/// When a device resets the host after a ping, whole seconds. Most do so at one moment; iTCO at its second expiry, but on some machines at the
/// first. What is promised to others goes by the latest moment, and how often it is pinged by the earliest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceTimeout {
    earliest: u32,
    latest: u32,
}

impl DeviceTimeout {
    /// It does so after that many seconds.
    #[must_use]
    pub const fn exactly(seconds: u32) -> Self {
        Self { earliest: seconds, latest: seconds }
    }

    /// It may do so after `earliest` seconds (at most `latest`), and has done so after `latest`.
    #[must_use]
    pub fn between(earliest: u32, latest: u32) -> Self {
        Self { earliest: earliest.min(latest), latest }
    }

    /// Seconds after which it may have reset the host.
    #[must_use]
    pub const fn earliest(self) -> u32 {
        self.earliest
    }

    /// Seconds after which it has.
    #[must_use]
    pub const fn latest(self) -> u32 {
        self.latest
    }
}

impl fmt::Display for DeviceTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { earliest, latest } = self;
        if earliest == latest { write!(f, "{latest}") } else { write!(f, "{earliest} to {latest}") }
    }
}

/// The agreed fire timeout with the device timeout that keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timing {
    fire: u32,
    device: DeviceTimeout,
}

impl Timing {
    /// `device`: when the device *truly* resets the host. `None` unless that is at the latest what was wanted, or less and still
    /// workable.
    #[must_use]
    pub fn new(fire: u32, device: DeviceTimeout) -> Option<Self> {
        let wanted = wanted_device_timeout(fire)?;
        (device.latest == wanted || (ROUNDED_DEVICE_TIMEOUT_MIN..wanted).contains(&device.latest))
            .then_some(Self { fire, device })
    }

    /// The agreed fire timeout F, seconds.
    #[must_use]
    pub const fn fire_timeout(self) -> u32 {
        self.fire
    }

    /// The device's true time to reset D, at the latest, seconds.
    #[must_use]
    pub const fn device_timeout(self) -> u32 {
        self.device.latest
    }

    /// Milliseconds between two pings; three fit into the earliest moment at which the device may fire.
    #[must_use]
    pub fn ping_every_ms(self) -> i64 {
        let interval = i64::from(test_interval(self.fire)) * 1000;
        interval.min(ping_every_ms(self.device))
    }

    /// The last moment at which the device may be pinged on purpose for a source that expires at `expire`:
    /// E + F − 2D − margin. Whatever happens after such a ping, alone, lets the device fire before E + F.
    #[must_use]
    pub fn last_ping(self, expire: Time) -> Time {
        let (fire, device) = (i64::from(self.fire), i64::from(self.device.latest));
        expire.plus_millis((fire - 2 * device) * 1000 - self.margin_ms())
    }

    /// The margin of [`Timing::last_ping`], milliseconds: what clocks, the device and scheduling may take together.
    #[must_use]
    pub fn margin_ms(self) -> i64 {
        MARGIN_MIN_MS.max(i64::from(self.device.latest) * MARGIN_PER_DEVICE_SECOND_MS)
    }

    /// From when on a source that expires at `expire` is warned about: E − I.
    #[must_use]
    pub fn warn_from(self, expire: Time) -> Time {
        expire.plus_millis(-i64::from(test_interval(self.fire)) * 1000)
    }
}

/// Milliseconds between two pings of a device.
#[must_use]
pub fn ping_every_ms(device: DeviceTimeout) -> i64 {
    i64::from(device.earliest).max(1) * 1000 / PINGS_PER_DEVICE_TIMEOUT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_timeouts() {
        for (fire, device) in [(60, 15), (30, 10), (20, 10), (10, 5), (4, 2), (3, 1), (120, 30), (600, 150)] {
            assert_eq!(wanted_device_timeout(fire), Some(device), "{fire}");
        }
        for fire in [0, 1, 2, FIRE_TIMEOUT_MAX + 1, u32::MAX] {
            assert_eq!(wanted_device_timeout(fire), None, "{fire}");
        }
    }

    #[test]
    fn devices_may_round_down_but_not_up() {
        for (fire, device, accepted) in [
            (60, 15, true),
            (60, 16, false),
            (60, 2, true),
            (60, 1, false),
            (60, 0, false),
            (3, 1, true),
            (3, 2, false),
        ] {
            let device = DeviceTimeout::exactly(device);
            assert_eq!(Timing::new(fire, device).is_some(), accepted, "{fire} {device}");
        }
    }

    #[test]
    fn intervals() {
        for (fire, interval) in [(600, 10), (60, 10), (59, 5), (30, 5), (29, 2), (10, 2), (9, 1), (0, 1)] {
            assert_eq!(test_interval(fire), interval, "{fire}");
        }
        for fire in FIRE_TIMEOUT_MIN..=700 {
            let device = wanted_device_timeout(fire).unwrap();
            let timing = Timing::new(fire, DeviceTimeout::exactly(device)).unwrap();
            assert!(timing.ping_every_ms() > 0 && timing.ping_every_ms() * 3 <= i64::from(device) * 1000);
            // One that may fire at half its time is pinged often enough for that, and no longer than one that does not.
            let early = Timing::new(fire, DeviceTimeout::between(device.div_ceil(2), device)).unwrap();
            assert!(early.ping_every_ms() > 0);
            assert!(early.ping_every_ms() * 3 <= i64::from(device.div_ceil(2)) * 1000);
            let expire = Time::from_seconds(1000);
            assert_eq!(early.last_ping(expire), timing.last_ping(expire));
        }
    }

    #[test]
    fn nothing_wraps() {
        let timing = Timing::new(60, DeviceTimeout::exactly(15)).unwrap();
        assert!(timing.last_ping(Time::from_seconds(0)) < Time::from_seconds(30));
        assert!(timing.warn_from(Time::from_seconds(3)) < Time::from_seconds(0));
        assert!(timing.last_ping(Time::from_seconds(u64::MAX)) > Time::from_seconds(1 << 50));
        assert_eq!(Time::from_seconds(0).plus_millis(-1).seconds(), 0);
    }
}
