//! Leases on several disks of which one fails: it is told, though nobody has to wait for it. Sectors that cannot be read, and disks that are
//! slow.

use super::SHORT;
use super::support::served::{disk as at, lease_on as lease_at, served, served_over};
use super::support::{Daemon, Place, RESOURCE_OFFSET, within};
use nix::errno::Errno;
use sanlock_blockio::drive::monotonic_now;
use sanlock_lease::record::RawLeader;
use sanlock_served::Trouble;
use sanlock_wire::flags::{
    AcquireFlags, AddFlags, HostState, ReleaseFlags, RemFlags, ResourceFlags, WriteFlags,
};
use sanlock_wire::types::{Disk, Lockspace, Resource, ResourceSpec};
use sanlock_wire::{Name, code};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const IO_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes.
const SECTOR: u64 = 512;

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

#[test]
fn a_sector_that_cannot_be_read_hides_only_its_own_host_and_is_in_the_log() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| Daemon::start(&place.run_dir(name), name));
    place.format(&a);
    let Some(disk) = served(&place) else { return };
    let lockspace = |host_id| Lockspace::new(Name::truncated("LS"), host_id, at(disk.path(), 0));
    for (daemon, host_id) in [(&a, 1), (&b, 2)] {
        daemon.client().add_lockspace_timeout(&lockspace(host_id), AddFlags::empty(), 1).unwrap();
    }
    let told = |what: &str| {
        let log = String::from_utf8(a.client().log_dump().unwrap()).unwrap();
        log.lines().filter(|line| line.contains(what)).count()
    };
    let state = |host_id| {
        let hosts = a.client().get_hosts(Name::truncated("LS"), host_id);
        hosts.map(|hosts| HostState::from_flags(hosts[0].flags.get()))
    };
    assert!(within(SHORT, || state(2).is_ok_and(|state| state == Some(HostState::Live))));

    let failed = "; those that cannot be read one by one look dead";
    // Of host id 3, which nobody has.
    disk.spoil(2 * SECTOR..3 * SECTOR);
    assert!(within(SHORT, || told(failed) > 0));
    // Longer than a host looks alive that is not seen to renew.
    let seen = Instant::now();
    while seen.elapsed() < 8 * IO_TIMEOUT {
        assert_eq!(state(2).unwrap(), Some(HostState::Live));
        sleep(IO_TIMEOUT / 4);
    }
    assert_eq!(told(failed), 1, "not with every look");
    disk.spoil(0..0);
    assert!(within(SHORT, || told("all hosts can be read again") == 1));
}

/// The sector of a host id that nobody has hangs, and with it every look at the others. One of them renews once more, and dies: what was seen of it
/// stays as it is, but it is not alive for ever.
#[test]
fn a_dead_sharer_that_no_look_reaches_gives_the_lease_up_in_its_time() {
    const FIRE: u64 = 10;
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| {
        let settings = place.run_dir(name).with_extension("conf");
        std::fs::write(settings, format!("watchdog_fire_timeout = {FIRE}\n")).unwrap();
        Daemon::start(&place.run_dir(name), name)
    });
    place.format(&a);
    let Some(disk) = served(&place) else { return };
    // The other host sees the file itself: a daemon with a read that hangs does not end.
    let behind = place.dir.path().join("behind");
    for (daemon, host_id, path) in [(&a, 1, disk.path()), (&b, 2, &*behind)] {
        let lockspace = Lockspace::new(Name::truncated("LS"), host_id, at(path, 0));
        daemon.client().add_lockspace_timeout(&lockspace, AddFlags::empty(), 1).unwrap();
    }
    let lease = lease_at(&place, disk.path());
    let shared = Resource { flags: ResourceFlags::SHARED.bits().into(), ..*lease.resource() };
    let shared = ResourceSpec::new(shared, lease_at(&place, &behind).disks().to_vec()).unwrap();
    let mut sharer = b.client().register().unwrap();
    sharer.acquire(AcquireFlags::empty(), &[shared], None).unwrap();

    let seen = || {
        let hosts = a.client().get_hosts(Name::truncated("LS"), 2).unwrap();
        (hosts[0].timestamp.get(), HostState::from_flags(hosts[0].flags.get()))
    };
    assert!(within(SHORT, || seen().1 == Some(HostState::Live)));
    disk.hold(2 * SECTOR..3 * SECTOR);
    assert!(within(SHORT, || disk.hanging() > 0));
    let (before, _) = seen();
    let on_disk = || {
        let mut sector = [0; 512];
        File::open(&behind).unwrap().read_exact_at(&mut sector, SECTOR).unwrap();
        RawLeader::from_sector(&sector).timestamp.get()
    };
    assert!(within(SHORT, || on_disk() != before), "it renews");
    b.crash();
    let (died, renewed) = (Instant::now(), on_disk());
    drop(sharer);

    let mut other = a.client().register().unwrap();
    let mut acquire = |flags| other.acquire(flags, std::slice::from_ref(&lease), None);
    assert_eq!(acquire(AcquireFlags::empty()).unwrap_err().result_code(), code::EAGAIN, "it may be alive");
    // More than 8 seconds after the last look that reached it what was seen is too old to say anything.
    sleep(11 * IO_TIMEOUT);
    assert_ne!(seen().1, Some(HostState::Live));
    let refused = acquire(AcquireFlags::OWNER_NOWAIT).unwrap_err();
    assert_eq!(refused.result_code(), code::EAGAIN, "nobody waits who does not want to");
    acquire(AcquireFlags::empty()).unwrap();
    let after = monotonic_now().secs() - renewed;
    let dead = 8 * IO_TIMEOUT.as_secs() + FIRE;
    assert!(after >= dead, "DOUBLE OWNER: granted {after} s after the last renewal of its owner");
    assert!(died.elapsed() > 8 * IO_TIMEOUT + Duration::from_secs(FIRE), "{:?}", died.elapsed());
    assert_eq!(seen().0, before, "no look has reached it");
    disk.answer();
}

/// Nobody is shown as absent who has not been looked at.
#[test]
fn the_hosts_are_not_told_before_they_were_looked_at() {
    const DELAY: Duration = Duration::from_millis(500);
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "a");
    place.format(&daemon);
    let Some(slow) = served_over(&place, &place.leases(), Trouble::slow(DELAY)) else { return };
    let lockspace = Lockspace::new(Name::truncated("LS"), 1, at(slow.path(), 0));
    let client = daemon.client();
    let hosts = || match client.get_hosts(Name::truncated("LS"), 0) {
        Ok(hosts) => Ok(hosts.iter().map(|host| host.host_id.get()).collect::<Vec<_>>()),
        Err(error) => Err(error.result_code()),
    };
    assert_eq!(hosts(), Err(code::ENOENT));
    // A machine that stands still for longer than a look takes shows it to nobody.
    let early = (0..5).any(|_| {
        client.add_lockspace_timeout(&lockspace, AddFlags::empty(), 5).unwrap();
        let first = hosts();
        let mut last = first.clone();
        assert!(within(SHORT, || {
            last = hosts();
            last != Err(code::EAGAIN)
        }));
        assert_eq!(last, Ok(vec![1]));
        client.rem_lockspace(&lockspace, RemFlags::empty()).unwrap();
        first == Err(code::EAGAIN)
    });
    assert!(early, "the hosts were told at once, five times");
}
