//! What a driver counts, and when its device truly fires (specification 4.7).

use sanlock_wdmd::decide::DeviceTimeout;

/// This driver resets the host at the second expiry, which takes twice what it reports (4.7), or on some machines at the first: where the
/// BIOS has taken over what comes at an expiry.
const FIRES_AT_SECOND_EXPIRY: &str = "iTCO_wdt";
/// This driver sets its hardware to the next even number of seconds, reports what was asked for, and names a tolerance of 20 %.
const COARSE: &str = "IB700 WDT";

/// The true timeout of a device in terms of what its driver reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Factor {
    /// The same.
    Plain,
    /// Twice as much, at the latest: [`FIRES_AT_SECOND_EXPIRY`].
    Twice,
    /// About the next even number: [`COARSE`].
    Coarse,
}

impl Factor {
    pub(crate) fn of(identity: &str) -> Self {
        match identity {
            FIRES_AT_SECOND_EXPIRY => Self::Twice,
            COARSE => Self::Coarse,
            _ => Self::Plain,
        }
    }

    /// Of a driver that is asked for a number of its own, whatever its hardware makes of it.
    pub(crate) fn as_counted(self) -> Self {
        if self == Self::Coarse { Self::Plain } else { self }
    }

    /// The driver counts otherwise than the clock.
    pub(crate) const fn is_odd(self) -> bool {
        matches!(self, Self::Twice)
    }

    /// What to ask the driver for, so that the device fires after these seconds at the latest.
    pub(crate) const fn to_driver(self, seconds: u32) -> u32 {
        match self {
            Self::Plain => seconds,
            Self::Twice => seconds / 2,
            // An even number that is no more than this with a fifth added.
            Self::Coarse => seconds.saturating_mul(5) / 6 / 2 * 2,
        }
    }

    /// When the device fires if the driver reports this.
    pub(crate) fn to_true(self, reported: u32) -> DeviceTimeout {
        match self {
            Self::Plain => DeviceTimeout::exactly(reported),
            // On some machines the first expiry of such a driver resets the host all the same.
            Self::Twice => DeviceTimeout::between(reported, reported.saturating_mul(2)),
            Self::Coarse => {
                let even = reported.div_ceil(2).saturating_mul(2);
                DeviceTimeout::between(even.saturating_mul(4) / 5, even.saturating_mul(6).div_ceil(5))
            }
        }
    }
}
