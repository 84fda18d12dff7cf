//! Leases that cannot be given back because there is nothing at their path any more.
//!
//! As a rule that is no storage that may answer again later: the file was deleted, or the volume removed, with the lease, as libvirt's
//! `virt-sanlock-cleanup` does it while it holds the lease. So such a release is tried for as long as any storage may be away, and then dropped. Should the disk
//! come back after that, the lease is this host's on it until it is acquired and given back here, or the lockspace left: as after any release that is lost.
//!
//! Meanwhile it is in nobody's way who asks for that very lease: an acquire takes the place of the release, and gives it back if it comes to nothing, since the
//! volume may just be away for a moment, with a lease on it that is this host's for all others. What an earlier hold has left on disk the acquire knows how to treat.
//!
//! Only of leases on one disk: of several, others than the last one may have failed otherwise.

use crate::action::Action;
use crate::ids::ResourceId;
use crate::state::{Resource, Work};
use crate::{Level, Manager, log};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::text::ResourceSpec;
use sanlock_lease::timing::MonoTime;

/// What an open says of a path that leads nowhere: ENOENT, ENOTDIR. Not ENXIO, which is what a disk says whose paths are down.
const NOWHERE: [i32; 2] = [ReturnCode::ENOENT.0, -20];

impl Resource {
    /// Whether an acquire of the lease of this name takes the place of its release, which waits for another attempt because nothing was at its path at the last one. A
    /// value that was set, and is not on disk yet, is nothing that could be left out.
    pub(crate) fn makes_room_for(&self, spec: &ResourceSpec) -> bool {
        self.gone_since.is_some()
            && matches!(self.work, Work::Retry { .. })
            && self.spec.disks == spec.disks
            && self.renamed.is_none()
            && self.converting.or(self.unsettled).is_none()
            && self.unwritten_value().is_none()
    }
}

impl Manager {
    /// A release could not open its disks.
    pub(crate) fn release_not_begun(
        &mut self,
        now: MonoTime,
        id: ResourceId,
        code: i32,
        out: &mut Vec<Action>,
    ) {
        let Some(resource) = self.resources.get_mut(&id) else { return };
        if code == ReturnCode::EAGAIN.0 {
            // Nothing was tried: its place is being formatted, or this host has no room for the task.
            return self.release_ended(now, id, Err((code, true)), out);
        }
        let gone = NOWHERE.contains(&code) && resource.spec.disks.len() == 1;
        let since = resource.gone_since.take().unwrap_or(now);
        if gone {
            resource.gone_since = Some(since);
        }
        let Some(resource) = self.resources.get(&id) else { return };
        let patience = self.lockspaces.get(&resource.ls).map_or(0, |ls| ls.io_timeout.renewal_fail_secs());
        let waited = now.secs_since(since);
        let lost = gone && waited >= patience && self.in_usable_lockspace(resource);
        if lost {
            let without = if resource.unwritten_value().is_some() {
                "; the value block that was set is LOST"
            } else {
                ""
            };
            let text = format!(
                "release {}:{}: its disk has not been there for {waited} s ({code}), given up{without}: should it come back, this host has the \
                 lease until it is acquired and released here, or the lockspace left",
                resource.spec.lockspace, resource.spec.name
            );
            log(out, Level::Error, Some(resource.ls), text);
        }
        self.release_ended(now, id, Err((code, !lost)), out);
    }

    /// An acquire has come to nothing, and left nothing behind: the release whose place it took is tried again when it was to be, if there was one:
    /// at once, if that was meanwhile. So whoever asks again and again does not put it off. Otherwise, and in a lockspace that has ended, there is
    /// nothing to do for that resource any more.
    /// Returns whether such an attempt has begun.
    pub(crate) fn back_to_release(&mut self, now: MonoTime, id: ResourceId, out: &mut Vec<Action>) -> bool {
        let Some(resource) = self.resources.remove(&id) else { return false };
        let Some(earlier) = resource.instead_of.filter(|earlier| self.in_usable_lockspace(earlier)) else {
            return false;
        };
        self.resources.insert(id, *earlier);
        self.retry_release(now, id, out)
    }
}
