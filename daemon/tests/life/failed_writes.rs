//! Storage that carries out a write after it has said that it failed, as behind a soft NFS mount.

use super::support::{Daemon, Place};
use sanlock_served::{ServedFile, Trouble};
use sanlock_wire::flags::{AcquireFlags, ReleaseFlags};
use sanlock_wire::types::{Disk, ResourceSpec};
use std::thread;
use std::time::Duration;

/// Longer than a client would take to try again, and shorter than the doubt.
const LATER: Duration = Duration::from_secs(3);

/// The leader of an acquire lands when its daemon has long been told that it failed. It has touched nothing of that lease in the meantime,
/// takes back what it finds, and the lease can be had again.
#[test]
fn a_lease_whose_write_failed_is_left_alone_until_it_can_no_longer_land() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "a");
    place.format(&daemon);
    place.join(&daemon, 1);
    let behind = place.dir.path().join("behind");
    std::fs::copy(place.leases(), &behind).unwrap();
    let served = match ServedFile::over(&behind, place.dir.path(), Trouble::default()) {
        Ok(file) => file,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "required in CI: {error}");
            return eprintln!("SKIPPED: no file systems in user space ({error})");
        }
    };
    let lease = place.resource();
    let offset = lease.disks()[0].offset.get();
    let disk = Disk::new(served.path().as_os_str().as_encoded_bytes(), offset).unwrap();
    let lease = [ResourceSpec::new(*lease.resource(), vec![disk]).unwrap()];
    let mut process = daemon.client().register().unwrap();
    let mut acquire = || process.acquire(AcquireFlags::empty(), &lease, None);

    served.deny(offset, LATER);
    assert_eq!(acquire().unwrap_err().result_code(), -5);
    let mut refused = 0;
    while let Err(error) = acquire() {
        assert_eq!(error.result_code(), -11);
        refused += 1;
        thread::sleep(Duration::from_millis(100));
    }
    assert!(refused > 0);
    assert_eq!(served.carried_out(), 1, "the lease was given while a write of an earlier attempt could land");
    process.release(ReleaseFlags::ALL, &[]).unwrap();
}
