//! Storage on which opening or closing hangs: leases and commands elsewhere go on.

use super::SHORT;
use super::support::served::{disk, lease_on, served, served_over};
use super::support::{Daemon, Holder, Place, in_time, within};
use sanlock_blockio::CLOSERS_OF_A_PATH;
use sanlock_daemon::SOCKET_NAME;
use sanlock_served::{Hang, Trouble};
use sanlock_wire::flags::{AcquireFlags, AddFlags, ReleaseFlags, RemFlags, RequestFlags, WriteFlags};
use sanlock_wire::types::{Lockspace, Resource, ResourceSpec};
use sanlock_wire::{Name, Request};
use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

/// More than there were opens for all disks together.
const MANY: u64 = 40;
/// More than there are places.
const MANY_CLIENTS: usize = 1100;
/// With an io timeout of a second each, one after the other takes longer than [`SHORT`].
const MANY_LEASES: u64 = 80;
/// The holder is to be killed (disk-format.md 7.3).
const FORCE: u32 = 1;

#[test]
fn opens_that_hang_on_one_disk_keep_no_lease_and_no_command_on_others_from_going_on() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "a");
    place.format(&daemon);
    place.join(&daemon, 1);
    let Some(dead) = served(&place) else { return };
    let lease = [place.resource()];
    let mut held = daemon.client().register().unwrap();
    held.acquire(AcquireFlags::empty(), &lease, None).unwrap();

    dead.hang(Hang::Opens);
    let on_dead = |n: u64| Lockspace::new(Name::truncated(format!("dead{n}")), 1, disk(dead.path(), n << 20));
    thread::scope(|scope| {
        for n in 0..MANY {
            let daemon = &daemon;
            scope.spawn(move || {
                let joined = daemon.client().add_lockspace_timeout(&on_dead(n), AddFlags::empty(), 1);
                assert_eq!(joined.unwrap_err().result_code(), -19);
            });
        }
    });
    assert_eq!(dead.hanging(), 1, "one open for all who wanted it");

    held.release(ReleaseFlags::ALL, &[]).unwrap();
    held.acquire(AcquireFlags::empty(), &lease, None).unwrap();
    held.release(ReleaseFlags::ALL, &[]).unwrap();
    daemon.client().read_lockspace(&place.lockspace(0)).unwrap();

    dead.answer();
    let found = || daemon.client().read_resource(&lease_on(&place, dead.path())).is_ok();
    assert!(within(SHORT, found), "it is opened again");
    daemon.client().rem_lockspace(&place.lockspace(1), RemFlags::empty()).unwrap();
}

/// The open that hangs goes on hanging. Whoever asks meanwhile has it looked at whether the path leads elsewhere.
#[test]
fn a_lease_can_be_had_once_a_mount_that_is_dead_was_replaced() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "a");
    place.format(&daemon);
    place.join(&daemon, 1);
    let Some(dead) = served(&place) else { return };
    dead.hang(Hang::Opens);
    let lease = [lease_on(&place, dead.path())];
    let mut process = daemon.client().register().unwrap();
    let mut acquire = || process.acquire(AcquireFlags::empty(), &lease, None);
    for _ in 0..3 {
        assert!(acquire().is_err());
    }
    let unmounted =
        std::process::Command::new("umount").arg("-l").arg(dead.path().parent().unwrap()).status();
    assert!(unmounted.unwrap().success());
    std::fs::copy(place.leases(), dead.path()).unwrap();
    assert!(within(SHORT, || acquire().is_ok()), "{}", daemon.log());
    assert_eq!(dead.hanging(), 1);
    process.release(ReleaseFlags::ALL, &[]).unwrap();
    dead.answer();
}

#[test]
fn closes_that_hang_on_one_disk_leave_no_descriptor_of_others_open() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "a");
    place.format(&daemon);
    let Some(dead) = served(&place) else { return };
    let open = || std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    let client = daemon.client();
    let look = |path: &Path| client.read_resource(&lease_on(&place, path)).unwrap();
    look(&place.leases());
    let before = open();
    dead.hang(Hang::Closes);
    // As many at a time as a path gets threads, and more.
    for _ in 0..10 {
        look(dead.path());
    }
    assert!(within(SHORT, || dead.hanging() == CLOSERS_OF_A_PATH));
    let most = before + 10;
    for _ in 0..50 {
        look(&place.leases());
        assert!(within(SHORT, || open() <= most), "those of other disks are closed");
    }
    assert_eq!(dead.hanging(), CLOSERS_OF_A_PATH);
    dead.answer();
    assert!(within(SHORT, || open() <= before), "all are closed when the storage answers");
}

#[test]
fn clients_that_gave_up_on_a_disk_leave_their_places_to_others() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "a");
    place.format(&daemon);
    let Some(dead) = served(&place) else { return };
    let client = daemon.client();
    dead.hang(Hang::Opens);
    let lockspace = Lockspace::new(Name::truncated("LS"), 1, disk(dead.path(), 0));
    let commands =
        [Request::read_lockspace(lockspace), Request::read_resource(lease_on(&place, dead.path()))];
    for n in 0..MANY_CLIENTS {
        let mut stream = UnixStream::connect(daemon.run_dir.join(SOCKET_NAME)).unwrap();
        // Refused when there is no place.
        let _ = stream.write_all(&commands[n % 2].encode());
    }
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    assert!(
        within(SHORT, || client.version().is_ok() && descriptors() < MANY_CLIENTS / 2),
        "{} left",
        descriptors()
    );
    dead.answer();
}

#[test]
fn a_disk_that_does_not_answer_delays_no_request_for_a_lease_on_another() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "a");
    place.format(&daemon);
    place.join(&daemon, 1);
    let behind = place.dir.path().join("many");
    File::create(&behind).unwrap().set_len(MANY_LEASES << 20).unwrap();
    let Some(dead) = served_over(&place, &behind, Trouble::default()) else { return };
    let client = daemon.client();
    let leases: Vec<ResourceSpec> = (0..MANY_LEASES)
        .map(|n| {
            let resource = Resource::new(Name::truncated("LS"), Name::truncated(format!("dead{n}")));
            ResourceSpec::new(resource, vec![disk(dead.path(), n << 20)]).unwrap()
        })
        .collect();
    // Held before the one that is asked for.
    let mut held = client.register().unwrap();
    for lease in &leases {
        in_time(|| client.write_resource(lease, 0, 0, WriteFlags::empty())).unwrap();
        in_time(|| held.acquire(AcquireFlags::empty(), std::slice::from_ref(lease), None)).unwrap();
    }
    let mut holder = Holder::start(&daemon, &place.leases());
    assert_eq!(holder.says(), "held");
    client.request(&place.resource(), RequestFlags::NEXT_LVER, FORCE).unwrap();
    assert!(!holder.is_gone(), "nobody looks before somebody asks");
    dead.hang(Hang::Opens);
    client.examine_lockspace(&place.lockspace(1)).unwrap();
    assert!(within(SHORT, || holder.is_gone()));
    dead.answer();
}
