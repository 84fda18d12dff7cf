//! WRITE_LOCKSPACE, WRITE_RESOURCE and FORMAT_RINDEX (7.17, 7.18, 7.33): nothing is formatted that this daemon uses when the command comes, and nothing is
//! begun with what it formats from then on until no write of that can land any more.
//!
//! A write of a lease that has not ended would land in what is formatted, when somebody may own it; a lease that is held would be free for others beside
//! its holder.

use sanlock_lease::code::ReturnCode;
use sanlock_lease::geometry::Geometry;
use sanlock_lease::name::Name;
use sanlock_lease::text::{DiskSpec, LockspaceSpec};
use sanlock_manager::{ConnId, Lockspace, Work};
use sanlock_wire::header::Header;
use sanlock_wire::types::Disk;

use super::Front;
use crate::tools::{self, Format, Job, Spot, in_common};

/// Areas begin at multiples of this.
const SECTOR_BYTES_MIN: u64 = 512;

/// Something of this daemon where a format would write.
struct InUse {
    what: &'static str,
    name: Name,
    path: Vec<u8>,
    offset: u64,
}

impl Front {
    /// Has this formatted, unless it is in use here.
    pub(super) fn format(&mut self, id: ConnId, header: Header, job: Job) {
        let used =
            job.format().and_then(|format| format.disks().iter().find_map(|disk| self.use_of(&format, disk)));
        let Some(InUse { what, name, path, offset }) = used else {
            return self.tool(id, header, job);
        };
        let code = ReturnCode::EBUSY.0;
        self.global.log.error(format_args!(
            "cmd {}: {what} {name} at {}:{offset} is in use by this daemon and not formatted: release or remove it first, and wait for its writes ({code})",
            header.cmd,
            String::from_utf8_lossy(&path)
        ));
        self.finish(id, &tools::refused(&header, &job, code));
    }

    /// What this daemon uses there: a lease that it holds, takes or gives up, with all its writes, or a lockspace, of which writes may still land
    /// after it was left. What waits to be given up once more has none; it is looked at before it is written.
    fn use_of(&self, format: &Format<'_>, disk: &Disk) -> Option<InUse> {
        let (path, offset) = (disk.path.path().ok()?, disk.offset.get());
        if offset % SECTOR_BYTES_MIN != 0 {
            // Nothing can be formatted there: that is what is to be said.
            return None;
        }
        // How large it becomes without being told only its disk knows: where leases in use have sectors of 4096 bytes, it is taken for one of these.
        let overlaps = |other: &[u8], at: u64, of: Geometry| {
            other == path && in_common(offset, format.bytes(of.sector()), at, of.align().bytes())
        };
        let lease = self.manager.resources().find_map(|(_, resource)| {
            let spec = &resource.spec;
            let geometry = resource.geometry();
            let place = spec.disks.iter().find(|place| overlaps(&place.path, place.offset, geometry))?;
            let waits = matches!(resource.work, Work::Retry { .. });
            let what =
                InUse { what: "resource", name: spec.name, path: place.path.clone(), offset: place.offset };
            (!waits).then_some(what)
        });
        lease.or_else(|| {
            let known = self.manager.lockspaces().map(|(_, lockspace)| &lockspace.spec);
            let found = |spec: &&LockspaceSpec| {
                let named = self.manager.lockspace_named(&spec.name).map(|(_, lockspace)| lockspace);
                overlaps(&spec.path, spec.offset, geometry(named))
            };
            let spec = known.chain(self.manager.left_with_writes()).find(found)?;
            Some(InUse { what: "lockspace", name: spec.name, path: spec.path.clone(), offset: spec.offset })
        })
    }

    /// The code with which nothing is begun with a lease in these areas, or this lockspace not joined: something that this daemon has formatted there
    /// may still land.
    pub(super) fn kept_by_formats(
        &self,
        what: &str,
        name: &Name,
        disks: &[DiskSpec],
        bytes: u64,
    ) -> Option<i32> {
        let spots = || disks.iter().map(|disk| Spot::new(disk.path.clone(), disk.offset, bytes)).collect();
        let blocked = self.tools.late().keeps_from_taking(spots)?;
        let code = blocked.code().0;
        self.global.log.error(format_args!("{what} {name}: {blocked} ({code})"));
        Some(code)
    }
}

/// The sizes of a lockspace, the smallest ones if they are not known.
pub(super) fn geometry(lockspace: Option<&Lockspace>) -> Geometry {
    let joined = lockspace.and_then(|lockspace| lockspace.joined.as_ref());
    joined.map_or(Geometry::B512_M1, |joined| joined.geometry)
}
