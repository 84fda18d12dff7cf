//! Storage that carries out a write after it has said that it failed, as behind a soft NFS mount.

use super::support::served::{lease_on, served};
use super::support::{Daemon, Place};
use sanlock_wire::flags::{AcquireFlags, ReleaseFlags};
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
    let Some(served) = served(&place) else { return };
    let lease = [lease_on(&place, served.path())];
    let offset = lease[0].disks()[0].offset.get();
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
