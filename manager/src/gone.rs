//! Leases that cannot be given back because there is nothing at their path any more.
//!
//! That is no storage that may answer again later: the file was deleted, or the volume removed, with the lease, as libvirt's `virt-sanlock-cleanup` does
//! it while it holds the lease. So such a release is tried for as long as any storage may be away, and then dropped; and it is in nobody's way meanwhile. Should
//! the disk come back later, the lease is this host's on it until it is acquired and given back here, or the lockspace left: as after any release that is lost.

use crate::action::Action;
use crate::ids::ResourceId;
use crate::state::{Resource, Work};
use crate::{Level, Manager, log};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::text::ResourceSpec;
use sanlock_lease::timing::MonoTime;

/// What an open says of a path that leads nowhere: ENOENT, ENXIO, ENODEV, ENOTDIR.
const NOWHERE: [i32; 4] = [ReturnCode::ENOENT.0, -6, -19, -20];

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
        let gone = NOWHERE.contains(&code) && resource.spec.disks.len() == 1;
        let since = resource.gone_since.take().unwrap_or(now);
        if gone {
            resource.gone_since = Some(since);
        }
        let patience = self.lockspaces.get(&resource.ls).map_or(0, |ls| ls.io_timeout.renewal_fail_secs());
        let waited = now.secs_since(since);
        let lost = gone && waited >= patience;
        if lost {
            let text = format!(
                "release {}:{}: its disk has not been there for {waited} s ({code}), given up: should it come back, this host has the lease \
                 until it is acquired and released here, or the lockspace left",
                resource.spec.lockspace, resource.spec.name
            );
            log(out, Level::Error, Some(resource.ls), text);
        }
        self.release_ended(now, id, Err((code, !lost)), out);
    }

    /// What could not be given up because its disk is not there is in nobody's way who asks for a lease of that name, or at that place: nothing of it
    /// is under way, and an acquire knows what an earlier hold of this host may have left.
    pub(crate) fn forget_gone(&mut self, spec: &ResourceSpec, out: &mut Vec<Action>) {
        let in_the_way = |r: &Resource| r.spec.names() == spec.names() || r.stands_for(spec);
        let gone = |r: &Resource| r.gone_since.is_some() && matches!(r.work, Work::Retry { .. });
        let found: Vec<ResourceId> =
            self.resources.iter().filter(|(_, r)| gone(r) && in_the_way(r)).map(|(id, _)| *id).collect();
        for id in found {
            if let Some(resource) = self.resources.get(&id) {
                let text = format!(
                    "release {}:{}: given up, its disk was not there, and it is asked for anew",
                    resource.spec.lockspace, resource.spec.name
                );
                log(out, Level::Error, Some(resource.ls), text);
            }
            self.drop_resource(id);
        }
    }
}
