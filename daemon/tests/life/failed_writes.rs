//! Storage that carries out a write after it has said that it failed, as behind a soft NFS mount.

use super::support::served::{disk, lease_on, served};
use super::support::{Daemon, Place, in_time};
use sanlock_lease::record::RawLeader;
use sanlock_wire::flags::{AcquireFlags, AddFlags, ReleaseFlags, RemFlags};
use sanlock_wire::name::Name;
use sanlock_wire::types::Lockspace;
use std::thread;
use std::time::{Duration, Instant};

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
    let begin = Instant::now();
    while let Err(error) = acquire() {
        assert_eq!(error.result_code(), -11);
        assert!(begin.elapsed() < Duration::from_secs(300), "the lease is refused for ever");
        refused += 1;
        thread::sleep(Duration::from_millis(100));
    }
    assert!(refused > 0);
    let landed = served.carried_out();
    assert_eq!(landed, 1, "DOUBLE OWNER: the lease was given while a write of an earlier attempt could land");
    process.release(ReleaseFlags::ALL, &[]).unwrap();
}

/// The claim of a host id that is said to have failed, and whose daemon ends before it is known what became of it: the daemon after it takes
/// another generation. Otherwise the old claim could bring another io timeout back, by which this host would be judged.
#[test]
fn a_daemon_claims_no_generation_that_an_earlier_one_has_claimed_in_doubt() {
    const MUCH_LATER: Duration = Duration::from_secs(60);
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "a");
    place.format(&daemon);
    let Some(served) = served(&place) else { return };
    let lockspace = Lockspace::new(Name::truncated("LS"), 1, disk(served.path(), 0));
    let join = |daemon: &Daemon| {
        let client = daemon.client();
        in_time(|| client.add_lockspace_timeout(&lockspace, AddFlags::empty(), 1))
            .map_err(|e| e.result_code())
    };
    let claims = || {
        let names = std::fs::read_dir(place.run_dir("a")).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("claim")).count()
    };
    let generation = || {
        let bytes = std::fs::read(place.dir.path().join("behind")).unwrap();
        RawLeader::from_sector(&bytes[..512]).owner_generation.get()
    };

    served.deny(0, MUCH_LATER);
    assert_eq!(join(&daemon), Err(-5));
    assert_eq!((claims(), generation()), (1, 0));
    daemon.crash();

    let daemon = Daemon::start(&place.run_dir("a"), "a");
    assert_eq!(join(&daemon), Ok(()));
    assert_ne!(generation(), 1, "DOUBLE OWNER: one generation was claimed twice");
    assert_eq!((generation(), served.carried_out()), (2, 0));
    assert_eq!(claims(), 1, "the earlier one may still land");
    daemon.client().rem_lockspace(&lockspace, RemFlags::empty()).unwrap();
    assert_eq!(claims(), 1, "and at any time");

    // Nothing is left of a host id that is given back.
    let lockspace = |host_id| Lockspace::new(Name::truncated("LS"), host_id, disk(served.path(), 0));
    daemon.client().add_lockspace_timeout(&lockspace(2), AddFlags::empty(), 1).unwrap();
    assert_eq!(claims(), 2);
    daemon.client().rem_lockspace(&lockspace(2), RemFlags::empty()).unwrap();
    assert_eq!(claims(), 1);
    served.deny(512, Duration::ZERO);
    assert!(daemon.client().add_lockspace_timeout(&lockspace(2), AddFlags::empty(), 1).is_err());
    assert_eq!(claims(), 2, "in doubt");
}
