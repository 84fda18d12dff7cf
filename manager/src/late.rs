//! Host_id leases of lockspaces that were left while a write to them was outstanding (docs/decisions/0008).
//!
//! Such a write may land at any time, also over the record of a later join, whose lease would then be lost with all that is held under it. A
//! write that frees the host id would even invite another host to take it. Other hosts cannot know of the write; this one does, and does not
//! join with that host id there before it has ended.

use crate::ids::LockspaceId;
use crate::{Action, Level, Manager, log};
use sanlock_lease::text::LockspaceSpec;

impl Manager {
    /// Lockspaces that were left, of which a write may still land.
    pub fn left_with_writes(&self) -> impl Iterator<Item = &LockspaceSpec> {
        self.late.values()
    }

    /// The lockspace was left with a write to its host_id lease outstanding.
    pub(crate) fn lease_write_outlives(&mut self, ls: LockspaceId, out: &mut Vec<Action>) {
        let Some(lockspace) = self.lockspaces.get(&ls) else { return };
        let spec = lockspace.spec.clone();
        let text = format!(
            "a write to the host_id lease of {} has not ended and may still land: host id {} cannot be joined with again \
             there until it has",
            spec.name, spec.host_id
        );
        log(out, Level::Error, Some(ls), text);
        self.late.insert(ls, spec);
    }

    /// That write has ended.
    pub(crate) fn lease_settled(&mut self, ls: LockspaceId, out: &mut Vec<Action>) {
        let Some(spec) = self.late.remove(&ls) else { return };
        let text = format!(
            "the late write to the host_id lease of {} has ended: host id {} can be joined with again",
            spec.name, spec.host_id
        );
        log(out, Level::Warning, Some(ls), text);
    }

    /// The lockspace left earlier whose outstanding write may land on the host_id lease that this join is about. The same name may be the
    /// same disk by another path, so either is enough.
    pub(crate) fn late_write(&self, spec: &LockspaceSpec) -> Option<&LockspaceSpec> {
        self.late.values().find(|late| {
            let same_disk = late.path == spec.path && late.offset == spec.offset;
            late.host_id == spec.host_id && (late.name == spec.name || same_disk)
        })
    }
}
