//! How often the front looks at the ages of lockspaces.

use sanlock_blockio::closes_wait;
use sanlock_lease::timing::MonoTime;

use super::Front;

/// Longest time between two looks at the ages of lockspaces, in milliseconds.
const TICK_MS: u64 = 1_000;
/// The same while nothing ages: bounds what a wrong idea of that could cost.
const QUIET_TICK_MS: u64 = 30_000;
/// The same while a renewal is late.
const LATE_TICK_MS: u64 = 500;
/// The same while users of a lockspace are being stopped.
const KILLING_TICK_MS: u64 = 200;

impl Front {
    /// How long nobody needs to look at the ages of lockspaces, in milliseconds.
    pub(super) fn tick_pause(&self, now: MonoTime) -> u64 {
        match self.quiet_until() {
            Some(until) if now < until => until.millis_since(now).clamp(TICK_MS, QUIET_TICK_MS),
            _ if self.manager.is_killing() => KILLING_TICK_MS,
            _ if self.manager.is_late(now) => LATE_TICK_MS,
            _ => TICK_MS,
        }
    }

    /// How long events may be acted upon without a look at the ages before, in milliseconds: never longer than [`TICK_MS`], for this
    /// process may stand still at any moment, and what is quiet now may have changed by then.
    pub(super) fn age_pause(&self, now: MonoTime) -> u64 {
        self.tick_pause(now).min(TICK_MS)
    }

    /// Until when a tick would find nothing to do, if nothing happens meanwhile.
    fn quiet_until(&self) -> Option<MonoTime> {
        let waits = self.deaf
            || self.slots.has_unfinished()
            || self.helper.waiting() > 0
            || !self.turned_away.is_empty()
            || closes_wait();
        if waits { None } else { self.manager.quiet_until() }
    }
}
