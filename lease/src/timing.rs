//! Clocks, units and every timeout (lease-algorithms.md 1.1, 1.2).

use crate::limits::IO_TIMEOUT_SECONDS_MAX;

/// A point of this host's monotonic clock, in milliseconds. Never compared with another host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct MonoTime(u64);

impl MonoTime {
    /// From milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// From whole seconds.
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Self(s * 1000)
    }

    /// In milliseconds.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// Whole seconds, truncated: the unit of everything on disk and of every age rule.
    #[must_use]
    pub const fn secs(self) -> u64 {
        self.0 / 1000
    }

    /// This many milliseconds later (saturating).
    #[must_use]
    pub const fn plus_millis(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// This many seconds later (saturating).
    #[must_use]
    pub const fn plus_secs(self, s: u64) -> Self {
        Self(self.0.saturating_add(s.saturating_mul(1000)))
    }

    /// Milliseconds since `earlier`; 0 if that is in the future.
    #[must_use]
    pub const fn millis_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Difference of the truncated seconds, as the age rules of the specification use it; 0 if `earlier` is in the future.
    ///
    /// "More than N" in this unit means that at least N whole seconds have really passed.
    #[must_use]
    pub const fn secs_since(self, earlier: Self) -> u64 {
        self.secs().saturating_sub(earlier.secs())
    }
}

/// A host's `io_timeout` in seconds, 1 to 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IoTimeout(u8);

/// An io timeout outside 1..=255, which the disk format cannot hold (disk-format.md 6.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("io timeout {found} is not between 1 and {IO_TIMEOUT_SECONDS_MAX} seconds")]
pub struct IoTimeoutError {
    /// The seconds given.
    pub found: u32,
}

impl IoTimeout {
    /// The default, 10 seconds.
    pub const DEFAULT: Self = Self(10);
    /// The longest there is.
    pub const LONGEST: Self = Self(u8::MAX);

    /// An io timeout of this many seconds.
    ///
    /// # Errors
    /// Not between 1 and 255: other hosts would misjudge when this host is dead.
    pub fn new(seconds: u32) -> Result<Self, IoTimeoutError> {
        match u8::try_from(seconds) {
            Ok(s) if s > 0 => Ok(Self(s)),
            _ => Err(IoTimeoutError { found: seconds }),
        }
    }

    /// The io timeout in a record's 16-bit field; 0 means "unknown, use mine". Values above 255 are never written by a correct
    /// host and are taken as 255, the longest wait there is.
    #[must_use]
    pub fn from_disk(field: u16, own: Self) -> Self {
        match u8::try_from(field) {
            Ok(0) => own,
            Ok(s) => Self(s),
            Err(_) => Self::LONGEST,
        }
    }

    /// In seconds.
    #[must_use]
    pub fn secs(self) -> u64 {
        u64::from(self.0)
    }

    /// In milliseconds.
    #[must_use]
    pub fn millis(self) -> u64 {
        self.secs() * 1000
    }

    /// As the record's field.
    #[must_use]
    pub fn to_disk(self) -> u16 {
        u16::from(self.0)
    }

    /// Age of the last good renewal at which the next one starts: 2T.
    #[must_use]
    pub fn renewal_secs(self) -> u64 {
        2 * self.secs()
    }

    /// The longest wait for a renewal's read that has timed out: 3T, if more is configured.
    ///
    /// The attempt begins at an age of 2T and its read is given up at 3T, so the wait is over little more than half a second after 6T: a read
    /// anew has its whole T before the lockspace fails at 8T. And data that a write relies on are at most 6T + 0.5 s old
    /// ([`crate::delta::Renewal`]), while the host id may be taken by others 8T + F after a renewal (lease-algorithms.md 13.4).
    #[must_use]
    pub fn read_extend_secs_max(self) -> u64 {
        3 * self.secs()
    }

    /// Age at which a warning is due every second: 6T.
    #[must_use]
    pub fn renewal_warn_secs(self) -> u64 {
        6 * self.secs()
    }

    /// Age at which the lockspace has failed: 8T.
    #[must_use]
    pub fn renewal_fail_secs(self) -> u64 {
        8 * self.secs()
    }

    /// Unchanged for *longer* than this many seconds: the host is dead. 8T + F.
    ///
    /// `self` is the *owner's* io timeout, read from its lease. Precondition: every host uses the same fire timeout.
    #[must_use]
    pub fn host_dead_secs(self, fire: WatchdogFire) -> u64 {
        8 * self.secs() + fire.secs()
    }

    /// For how long a write that ended in doubt is outstanding ([`crate::machine::Input::Doubtful`]), in milliseconds: 8T + F, for which
    /// others wait anyway before they take over from a host of which nothing more is to land.
    #[must_use]
    pub fn doubt_ms(self, fire: WatchdogFire) -> u64 {
        1000 * self.host_dead_secs(fire)
    }

    /// Wait between writing a delta lease and checking it: 2T.
    #[must_use]
    pub fn delta_short_delay_secs(self) -> u64 {
        2 * self.secs()
    }

    /// How long a notification bit stays set unless configured: 6T.
    #[must_use]
    pub fn set_bitmap_secs(self) -> u64 {
        6 * self.secs()
    }

    /// How far apart looks at host ids that were never used may begin: 4T - 1. `None` for T = 1, where that would save hardly
    /// anything: then every look is at all host ids.
    ///
    /// A bit that its sender sets for 6T may be on the disk for no longer than 4T: it appears with the sender's next renewal, 2T
    /// later, and goes with the first one after 6T (docs/decisions/0015-unused-host-ids.md).
    #[must_use]
    pub fn unused_look_secs(self) -> Option<u64> {
        (self.secs() > 1).then(|| 4 * self.secs() - 1)
    }
}

/// Seconds within which the watchdog resets a host after its last keepalive; the same on every host (60 unless configured).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WatchdogFire(u16);

/// A watchdog fire timeout outside [`WatchdogFire::RANGE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "watchdog fire timeout {found} is not between {} and {} seconds",
    WatchdogFire::RANGE.start(),
    WatchdogFire::RANGE.end()
)]
pub struct WatchdogFireError {
    /// The seconds given.
    pub found: u32,
}

impl WatchdogFire {
    /// 60 seconds, fixed in 3.8.5.
    pub const DEFAULT: Self = Self(60);

    /// Seconds accepted. Below, no device and no daemon could keep the time; above, a take-over would last more than an hour.
    pub const RANGE: std::ops::RangeInclusive<u32> = 4..=3600;

    /// A fire timeout of this many seconds, which every host of every lockspace must use too.
    ///
    /// # Errors
    /// Not within [`WatchdogFire::RANGE`].
    pub fn new(seconds: u32) -> Result<Self, WatchdogFireError> {
        match u16::try_from(seconds) {
            Ok(s) if Self::RANGE.contains(&seconds) => Ok(Self(s)),
            _ => Err(WatchdogFireError { found: seconds }),
        }
    }

    /// In seconds.
    #[must_use]
    pub fn secs(self) -> u64 {
        u64::from(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_timeouts() {
        // io_timeout, renewal, warn, fail, dead, short delay, bitmap (lease-algorithms.md 1.2)
        let rows = [
            (1, 2, 6, 8, 68, 2, 6),
            (2, 4, 12, 16, 76, 4, 12),
            (5, 10, 30, 40, 100, 10, 30),
            (10, 20, 60, 80, 140, 20, 60),
            (20, 40, 120, 160, 220, 40, 120),
        ];
        for (t, renewal, warn, fail, dead, short, bitmap) in rows {
            let t = IoTimeout::new(t).unwrap();
            assert_eq!(t.renewal_secs(), renewal);
            assert_eq!(t.renewal_warn_secs(), warn);
            assert_eq!(t.renewal_fail_secs(), fail);
            assert_eq!(t.host_dead_secs(WatchdogFire::DEFAULT), dead);
            assert_eq!(t.delta_short_delay_secs(), short);
            assert_eq!(t.set_bitmap_secs(), bitmap);
            // A read and the longest wait for it leave time for another read, and as much again.
            assert_eq!(renewal + u64::from(t.to_disk()) + t.read_extend_secs_max(), fail - renewal);
        }
    }

    /// With two intervals of a sender between a bit's first and last renewal, whatever T: the look comes a second earlier.
    #[test]
    fn unused_host_ids_are_looked_at_within_two_renewals_of_any_sender() {
        assert_eq!(timeout(1).unused_look_secs(), None);
        for secs in 2..=255 {
            let t = timeout(secs);
            assert_eq!(t.unused_look_secs(), Some(2 * t.renewal_secs() - 1));
        }
    }

    fn timeout(secs: u32) -> IoTimeout {
        IoTimeout::new(secs).unwrap()
    }

    #[test]
    fn io_timeouts_that_the_disk_cannot_hold_are_refused() {
        assert_eq!(IoTimeout::new(0), Err(IoTimeoutError { found: 0 }));
        assert_eq!(IoTimeout::new(256), Err(IoTimeoutError { found: 256 }));
        assert_eq!(IoTimeout::from_disk(0, IoTimeout::DEFAULT), IoTimeout::DEFAULT);
        assert_eq!(IoTimeout::from_disk(4464, IoTimeout::DEFAULT).secs(), 255);
    }

    #[test]
    fn fire_timeouts_have_bounds() {
        assert_eq!(WatchdogFire::new(60), Ok(WatchdogFire::DEFAULT));
        assert_eq!(WatchdogFire::new(4).unwrap().secs(), 4);
        for found in [0, 3, 3601, u32::MAX] {
            assert_eq!(WatchdogFire::new(found), Err(WatchdogFireError { found }));
        }
    }

    #[test]
    fn ages_count_truncated_seconds() {
        let early = MonoTime::from_millis(1999);
        assert_eq!(MonoTime::from_millis(2000).secs_since(early), 1);
        assert_eq!(early.secs_since(MonoTime::from_millis(2000)), 0);
    }
}
