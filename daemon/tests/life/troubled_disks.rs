//! Leases on several disks of which one fails: it is told, though nobody has to wait for it.

use super::support::served::served_over;
use super::support::{Daemon, Place, RESOURCE_OFFSET};
use nix::errno::Errno;
use sanlock_served::Trouble;
use sanlock_wire::Name;
use sanlock_wire::flags::{AcquireFlags, ReleaseFlags, WriteFlags};
use sanlock_wire::types::{Disk, Resource, ResourceSpec};
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// Their first megabyte.
fn lease_on(disks: &[&Path]) -> ResourceSpec {
    let disks = disks.iter().map(|path| Disk::new(path.as_os_str().as_encoded_bytes(), 0).unwrap()).collect();
    ResourceSpec::new(Resource::new(Name::truncated("LS"), Name::truncated("on-three")), disks).unwrap()
}

/// Acquires and gives back. The result of the latter, and what is in the log then.
fn turn(daemon: &Daemon, lease: &ResourceSpec) -> (i32, String) {
    let mut process = daemon.client().register().unwrap();
    process.acquire(AcquireFlags::empty(), std::slice::from_ref(lease), None).unwrap();
    let released = process.release(ReleaseFlags::ALL, &[]);
    let log = String::from_utf8(daemon.client().log_dump().unwrap()).unwrap();
    (released.map_or_else(|error| error.result_code(), |_| 0), log)
}

#[test]
fn a_disk_that_a_majority_can_do_without_is_in_the_log() {
    let place = Place::new();
    let ours = Daemon::start(&place.run_dir("a"), "a");
    place.format(&ours);
    place.join(&ours, 1);
    let [one, two, three] = ["one", "two", "three"].map(|name| place.dir.path().join(name));
    for path in [&one, &two, &three] {
        File::create(path).unwrap().set_len(RESOURCE_OFFSET).unwrap();
    }
    let lease = lease_on(&[&one, &two, &three]);
    ours.client().write_resource(&lease, 0, 0, WriteFlags::empty()).unwrap();
    let (released, log) = turn(&ours, &lease);
    assert!(released == 0 && !log.contains("LS:on-three: "), "{released} {log}");

    std::fs::remove_file(&three).unwrap();
    let missing = format!("LS:on-three: stat {}: ENOENT: No such file or directory\n", three.display());
    for _ in 0..2 {
        let (released, log) = turn(&ours, &lease);
        assert_eq!((released, log.matches(&missing).count()), (0, 1), "each turn finds it missing: {log}");
    }

    std::fs::copy(&one, &three).unwrap();
    // What answers nothing is waited for once. Neither is ever written to.
    let broken = (Trouble::broken(Errno::EIO), "EIO: I/O error");
    let silent = (Trouble::slow(Duration::from_secs(5)), "not complete within the io timeout");
    for (trouble, why) in [broken, silent] {
        let Some(bad) = served_over(&place, &two, trouble) else { return };
        let (released, log) = turn(&ours, &lease_on(&[&one, bad.path(), &three]));
        let told: Vec<&str> =
            log.lines().filter(|line| line.contains(&*bad.path().to_string_lossy())).collect();
        let begin = format!("LS:on-three: read {} at ", bad.path().display());
        assert!(matches!(told[..], [line] if line.contains(&begin) && line.ends_with(why)), "{told:#?}");
        assert_eq!(released, 0, "{why}");
    }
}
