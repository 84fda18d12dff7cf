//! What the demo would overwrite on a device that the user names.

use super::{LOCKSPACE, RESOURCE};
use crate::direct::Storage;
use sanlock_blockio::Access;
use sanlock_lease::fsck::{self, HEAD_BYTES, Kind};
use sanlock_lease::name::Name;
use sanlock_lease::record::{RawLeader, RindexHeader};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Distance of the places where something may begin: the smallest align size.
const STEP: u64 = 1 << 20;
/// The same, for a read.
const STEP_BYTES: usize = 1 << 20;

/// Offset of the demo's resource on a device with blocks of this size: the area after the lockspace's. It has the same size, so that the demo
/// writes up to twice this.
pub(super) fn resource_offset(block: u32) -> u64 {
    if block == 4096 { 8 << 20 } else { 1 << 20 }
}

/// Looks through what the demo would overwrite, and gives the offset of its resource.
///
/// # Errors
/// What is there that is not the demo's own, in plain words, or why that cannot be told.
pub(super) fn check(device: &Path) -> Result<u64, String> {
    let mut storage =
        Storage::open(device.as_os_str().as_bytes(), Access::ReadOnly).map_err(|e| e.to_string())?;
    let resource_at = resource_offset(storage.disk().logical_block_size());
    let end = 2 * resource_at;
    let mut read = |offset, len| match storage.read(offset, len) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.is_beyond_end() => Ok(None),
        Err(error) => Err(format!("whether anything is there cannot be told: {error}")),
    };
    let mut offset = 0;
    // Until where what an earlier demo left reaches.
    let mut own = 0;
    while offset < end {
        let Some(head) = read(offset, HEAD_BYTES)? else { break };
        let mut found = foreign(&head, offset, resource_at);
        if found.is_none() && fsck::identify(&head).is_some() {
            own = offset + resource_at;
        }
        if found.is_none() && offset >= own {
            let area = read(offset, STEP_BYTES)?.unwrap_or(head);
            found =
                area.iter().any(|byte| *byte != 0).then(|| "something else, as a file system,".to_owned());
        }
        if let Some(what) = found {
            let device = device.display();
            return Err(format!(
                "{device} has {what} at offset {offset}, which the demo would overwrite; name another device, or, if no host uses what is \
                 there, clear its first {} MiB: 'dd if=/dev/zero of={device} bs=1M count={} oflag=direct'",
                end >> 20,
                end >> 20
            ));
        }
        offset += STEP;
    }
    Ok(resource_at)
}

/// What begins there, unless it is what an earlier demo has left.
fn foreign(head: &[u8], offset: u64, resource_at: u64) -> Option<String> {
    let found = fsck::identify(head)?;
    let leader = RawLeader::from_sector(head);
    let (space, name) = (Name::from_field(&leader.space_name), Name::from_field(&leader.resource_name));
    let is_demo = space.as_bytes() == LOCKSPACE.as_bytes();
    let what = match found.kind {
        Kind::Lockspace if !found.by_first => "a damaged lockspace".to_owned(),
        Kind::Resource if !found.by_first => "a damaged resource".to_owned(),
        Kind::Lockspace if is_demo && offset == 0 => return None,
        Kind::Resource if is_demo && name.as_bytes() == RESOURCE.as_bytes() && offset == resource_at => {
            return None;
        }
        Kind::Lockspace => format!("lockspace {:?}", space.to_string()),
        Kind::Resource => format!("resource {:?} of lockspace {:?}", name.to_string(), space.to_string()),
        Kind::Index => {
            let space = Name::from_field(&RindexHeader::from_sector(head).lockspace_name);
            format!("a resource index of lockspace {:?}", space.to_string())
        }
    };
    Some(what)
}
