//! WRITE_LOCKSPACE and WRITE_RESOURCE (7.17, 7.18): nothing is formatted that this daemon uses when the command comes.
//!
//! A write of a lease that has not ended would land in what is formatted, when somebody may own it; a lease that is held would be free for others beside
//! its holder.

use sanlock_lease::code::ReturnCode;
use sanlock_lease::name::Name;
use sanlock_lease::text::LockspaceSpec;
use sanlock_manager::{ConnId, Work};
use sanlock_wire::Reply;
use sanlock_wire::header::Header;
use sanlock_wire::types::Disk;

use super::Front;
use crate::tools::Job;

/// Bytes of the smallest area (disk-format.md 2).
const AREA_BYTES_MIN: u64 = 1 << 20;

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

    /// What this daemon uses there: a lease that it holds, takes or gives up, with all its writes, or a lockspace, of which writes may still land
    /// after it was left. What waits to be given up once more has none; it is looked at before it is written.
    fn use_of(&self, disk: &Disk) -> Option<InUse> {
        let (path, offset) = (disk.path.path().ok()?, disk.offset.get());
        if offset % SECTOR_BYTES_MIN != 0 {
            // Nothing can be formatted there: that is what is to be said.
            return None;
        }
        // How much is going to be formatted only its disk tells; the least is a start.
        let overlaps = |other: &[u8], at: u64, bytes: u64| {
            other == path && at < offset.saturating_add(AREA_BYTES_MIN) && offset < at.saturating_add(bytes)
        };
        let lease = self.manager.resources().find_map(|(_, resource)| {
            let spec = &resource.spec;
            let bytes = resource.area_bytes();
            let place = spec.disks.iter().find(|place| overlaps(&place.path, place.offset, bytes))?;
            let waits = matches!(resource.work, Work::Retry { .. });
            let what =
                InUse { what: "resource", name: spec.name, path: place.path.clone(), offset: place.offset };
            (!waits).then_some(what)
        });
        lease.or_else(|| {
            let joined = self.manager.lockspaces().map(|(_, lockspace)| {
                let bytes = lockspace.joined.as_ref().map(|joined| joined.geometry.align().bytes());
                (&lockspace.spec, bytes.unwrap_or(AREA_BYTES_MIN))
            });
            let left = self.manager.left_with_writes().map(|spec| (spec, AREA_BYTES_MIN));
            let found = |(spec, bytes): &(&LockspaceSpec, u64)| overlaps(&spec.path, spec.offset, *bytes);
            let (spec, _) = joined.into_iter().chain(left).find(found)?;
            Some(InUse { what: "lockspace", name: spec.name, path: spec.path.clone(), offset: spec.offset })
        })
    }
}
