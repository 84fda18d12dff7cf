//! How often the front looks at the ages of lockspaces.

use sanlock_lease::timing::MonoTime;

use super::Front;

/// Longest time between two looks at the ages of lockspaces, in milliseconds.
const TICK_MS: u64 = 1_000;
/// The same while a renewal is late.
const LATE_TICK_MS: u64 = 500;
/// The same while users of a lockspace are being stopped.
const KILLING_TICK_MS: u64 = 200;

impl Front {
    /// How long nobody needs to look at the ages of lockspaces, in milliseconds.
    pub(super) fn tick_pause(&self, now: MonoTime) -> u64 {
        if self.manager.is_killing() {
            KILLING_TICK_MS
        } else if self.manager.is_late(now) {
            LATE_TICK_MS
        } else {
            TICK_MS
        }
    }
}
