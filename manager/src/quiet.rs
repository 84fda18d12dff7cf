//! When nothing ages: ticks may then be left out.

use crate::Manager;
use crate::killing::late_from;
use crate::state::{Lockspace, LockspaceList, Resource, Work};
use crate::watchdog::Watch;
use sanlock_lease::recovery::Progress;
use sanlock_lease::timing::MonoTime;

impl Manager {
    /// Until when ticks change nothing, unless another event comes: all lockspaces are healthy, nothing waits for its time, and this is when
    /// the first of them is late ([`Manager::is_late`]), far in the future without any. `None` if something ages now.
    ///
    /// Tests of random histories hold that against what ticks really do.
    #[must_use]
    pub fn quiet_until(&self) -> Option<MonoTime> {
        let waits = |r: &Resource| matches!(r.work, Work::Retry { .. }) || r.waits_to_erase();
        let never = MonoTime::from_millis(u64::MAX);
        let first = self.lockspaces.values().try_fold(never, |first, ls| Some(first.min(late_at(ls)?)))?;
        (!self.shutting_down && !self.resources.values().any(waits)).then_some(first)
    }
}

/// When this one is late; `None` if something in it ages anyhow, or may.
fn late_at(ls: &Lockspace) -> Option<MonoTime> {
    let healthy = ls.list == LockspaceList::Spaces
        && ls.dead.is_none()
        && ls.corrupt == 0
        && !ls.remove
        && ls.watch != Watch::Lost
        // What was said of it while it was late is forgotten.
        && ls.progress == Progress::default()
        && ls.events.is_quiet();
    late_from(ls).filter(|_| healthy).map(MonoTime::from_secs)
}
