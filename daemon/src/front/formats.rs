//! WRITE_LOCKSPACE and WRITE_RESOURCE (7.17, 7.18): nothing is formatted that this daemon uses.
//!
//! A write of a lease that has not ended would land in what is formatted, when somebody may own it; a lease that is held would be free for others beside
//! its holder.

use sanlock_lease::code::ReturnCode;
use sanlock_lease::name::Name;
use sanlock_wire::Reply;
use sanlock_wire::header::Header;
use sanlock_wire::types::Disk;

use super::Front;
use crate::tools::Job;
use sanlock_manager::ConnId;

/// Bytes of the smallest area (disk-format.md 2).
const AREA_BYTES_MIN: u64 = 1 << 20;

/// Something of this daemon where a format would write.
struct InUse {
    what: &'static str,
    name: Name,
    path: Vec<u8>,
    offset: u64,
}

impl Front {
    /// Has this formatted, unless it is in use here.
    pub(super) fn format(&mut self, id: ConnId, header: Header, job: Job, disks: &[Disk]) {
        let Some(InUse { what, name, path, offset }) = disks.iter().find_map(|disk| self.use_of(disk)) else {
            return self.tool(id, header, job);
        };
        let code = ReturnCode::EBUSY.0;
        self.global.log.error(format_args!(
            "cmd {}: {what} {name} at {}:{offset} is in use by this daemon and not formatted: release or remove it first, and wait for its writes ({code})",
            header.cmd,
            String::from_utf8_lossy(&path)
        ));
        self.finish(id, &Reply::result(&header, code));
    }

    /// What this daemon uses there: a lease that it holds, takes or gives up, with all its writes, or a lockspace.
    fn use_of(&self, disk: &Disk) -> Option<InUse> {
        let (path, offset) = (disk.path.path().ok()?, disk.offset.get());
        let overlaps = |other: &[u8], at: u64| other == path && at.abs_diff(offset) < AREA_BYTES_MIN;
        let lease = self.manager.resources().find_map(|(_, resource)| {
            let spec = &resource.spec;
            let place = spec.disks.iter().find(|place| overlaps(&place.path, place.offset))?;
            Some(InUse { what: "resource", name: spec.name, path: place.path.clone(), offset: place.offset })
        });
        lease.or_else(|| {
            let specs = self.manager.lockspaces().map(|(_, lockspace)| &lockspace.spec);
            let spec = specs.into_iter().find(|spec| overlaps(&spec.path, spec.offset))?;
            Some(InUse { what: "lockspace", name: spec.name, path: spec.path.clone(), offset: spec.offset })
        })
    }
}
