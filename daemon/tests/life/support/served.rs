//! Storage with troubles of its own: a file served from user space.

use super::Place;
use sanlock_served::{ServedFile, Trouble};
use sanlock_wire::types::{Disk, ResourceSpec};
use std::path::Path;

/// A copy of the lease file, served; `None` where file systems in user space are not to be had.
pub(crate) fn served(place: &Place) -> Option<ServedFile> {
    let behind = place.dir.path().join("behind");
    std::fs::copy(place.leases(), &behind).unwrap();
    served_over(place, &behind, Trouble::default())
}

/// The same of another file, with this trouble.
pub(crate) fn served_over(place: &Place, behind: &Path, trouble: Trouble) -> Option<ServedFile> {
    match ServedFile::over(behind, place.dir.path(), trouble) {
        Ok(file) => Some(file),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "required in CI: {error}");
            eprintln!("SKIPPED: no file systems in user space ({error})");
            None
        }
    }
}

/// A place on a file.
pub(crate) fn disk(path: &Path, offset: u64) -> Disk {
    Disk::new(path.as_os_str().as_encoded_bytes(), offset).unwrap()
}

/// The resource, on another file at its offset.
pub(crate) fn lease_on(place: &Place, path: &Path) -> ResourceSpec {
    let lease = place.resource();
    let offset = lease.disks()[0].offset.get();
    ResourceSpec::new(*lease.resource(), vec![disk(path, offset)]).unwrap()
}
