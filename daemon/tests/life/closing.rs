//! What a command has opened is closed when it is answered: whoever asked may deactivate the volume then, or unmount the file system.

use super::support::served::{disk, served_over};
use super::support::{Daemon, Place, in_time};
use sanlock_served::Trouble;
use sanlock_wire::Name;
use sanlock_wire::flags::{AcquireFlags, ReleaseFlags, RindexCmdFlags, WriteFlags};
use sanlock_wire::types::{Lockspace, Rentry, Resource, ResourceSpec, Rindex};
use std::fs::File;
use std::path::Path;
use std::time::Duration;

fn is_open(daemon: &Daemon, path: &Path) -> bool {
    let fds = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
    fds.flatten().any(|fd| std::fs::read_link(fd.path()).is_ok_and(|target| target == path))
}

#[test]
fn what_a_command_has_opened_is_closed_when_it_is_answered() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    let client = daemon.client();
    place.format(&daemon);
    place.join(&daemon, 1);
    assert!(is_open(&daemon, &place.leases()), "what is open is seen to be");
    // On storage of its own: that of the lockspace stays open.
    let path = place.leases().with_file_name("others");
    File::create(&path).unwrap().set_len(16 << 20).unwrap();
    let disk = |offset| disk(&path, offset);
    let (name, other) = (Name::truncated("LS"), Name::truncated("OTHER"));
    let resource = ResourceSpec::new(Resource::new(name, Name::truncated("R")), vec![disk(1 << 20)]).unwrap();
    let missing = ResourceSpec::new(Resource::new(name, other), vec![disk(1 << 20)]).unwrap();
    let lockspace = Lockspace::new(other, 1, disk(0));
    let index = Rindex::new(name, disk(2 << 20));
    let (flags, entry) = (RindexCmdFlags::empty(), |name: &str| Rentry::new(Name::truncated(name), 0));
    client.format_rindex(&index, flags).unwrap();
    for round in 0..20 {
        let closed = |what: &str| assert!(!is_open(&daemon, &path), "{what}, round {round}");
        client.write_lockspace(&lockspace, 0, 1).unwrap();
        closed("write_lockspace");
        client.read_lockspace(&lockspace).unwrap();
        closed("read_lockspace");
        client.write_resource(&resource, 0, 0, WriteFlags::empty()).unwrap();
        closed("write_resource");
        client.read_resource(&resource).unwrap();
        closed("read_resource");
        assert!(client.read_resource(&missing).is_err());
        closed("read_resource that fails");
        client.read_resource_owners(&resource).unwrap();
        closed("read_resource_owners");
        client.align(&disk(0)).unwrap();
        closed("align");
        client.create_resource(&index, &entry("A"), flags, 0, 0).unwrap();
        closed("create_resource");
        client.lookup_rindex(&index, &entry("A"), flags).unwrap();
        closed("lookup_rindex");
        assert!(client.create_resource(&index, &entry("A"), flags, 0, 0).is_err());
        closed("create_resource that fails");
        client.delete_resource(&index, &entry("A"), flags).unwrap();
        closed("delete_resource");
    }
}

/// What hangs elsewhere keeps the thread that gives a lease back from nothing: its disk is closed before the client hears of it.
#[test]
fn a_lease_that_is_given_back_is_closed_while_a_read_of_another_disk_hangs() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    let client = daemon.client();
    place.format(&daemon);
    place.join(&daemon, 1);
    let file = |name: &str, trouble| {
        let behind = place.dir.path().join(name);
        File::create(&behind).unwrap().set_len(1 << 20).unwrap();
        served_over(&place, &behind, trouble)
    };
    // So long that it would be seen, and not so long that the thread is relieved of it.
    let healthy = file("healthy", Trouble { closes: Duration::from_millis(4), ..Trouble::default() });
    // Longer than the test takes.
    let Some((healthy, dead)) = healthy.zip(file("dead", Trouble::slow(Duration::from_secs(30)))) else {
        return;
    };
    let path = healthy.path();
    let on = |path: &Path, offset| {
        let resource = Resource::new(Name::truncated("LS"), Name::truncated("R"));
        ResourceSpec::new(resource, vec![disk(path, offset)]).unwrap()
    };
    let lease = [on(path, 0)];
    in_time(|| client.write_resource(&lease[0], 0, 0, WriteFlags::empty())).unwrap();
    let mut held = client.register().unwrap();
    let refused = held.acquire(AcquireFlags::empty(), &[on(dead.path(), 0)], None);
    assert_eq!(refused.unwrap_err().result_code(), -202);
    let rounds = 50;
    let mut open = 0;
    for _ in 0..rounds {
        in_time(|| held.acquire(AcquireFlags::empty(), &lease, None)).unwrap();
        held.release(ReleaseFlags::ALL, &[]).unwrap();
        // The daemon has no descriptor any more, but the close of it may not be over.
        open += usize::from(healthy.is_open() != 0);
    }
    // A thread that has no processor for long is relieved, and the answer does not wait for it.
    assert!(open < rounds / 2, "{open} of {rounds}");
}
