//! A command on a resource index whose storage stops answering: what it wrote is seen to before anything else is done.

use crate::support::served::{disk, served_over};
use crate::support::{Daemon, Place, within};
use sanlock_client::{Client, ClientError};
use sanlock_conformance::frozen::FreezableDir;
use sanlock_served::Trouble;
use sanlock_wire::flags::{AddFlags, RemFlags, RindexCmdFlags, WriteFlags};
use sanlock_wire::types::{Disk, Lockspace, Rentry, Resource, ResourceSpec, Rindex};
use sanlock_wire::{Name, code};
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// For what happens at once, or within a few io timeouts, on a machine that does other things too.
const SHORT: Duration = Duration::from_secs(60);

/// An index at the start of a file on storage that can be frozen; the lockspace lies elsewhere.
struct Index(Rindex);

impl Index {
    fn new(path: &Path, client: &Client) -> Self {
        File::create(path).unwrap().set_len(8 << 20).unwrap();
        let disk = Disk::new(path.as_os_str().as_encoded_bytes(), 0).unwrap();
        let index = Rindex::new(Name::truncated("LS"), disk);
        client.format_rindex(&index, RindexCmdFlags::empty()).unwrap();
        Self(index)
    }

    fn create(&self, client: &Client, name: &str) -> i32 {
        let entry = Rentry::new(Name::truncated(name), 0);
        result(client.create_resource(&self.0, &entry, RindexCmdFlags::empty(), 0, 0))
    }

    fn lookup(&self, client: &Client, name: &str, flags: RindexCmdFlags) -> i32 {
        result(client.lookup_rindex(&self.0, &Rentry::new(Name::truncated(name), 0), flags))
    }
}

fn result<T>(outcome: Result<T, ClientError>) -> i32 {
    outcome.map_or_else(|error| error.result_code(), |_| 0)
}

#[test]
fn a_change_that_hangs_is_seen_to_before_the_next() {
    let Some(mut storage) = FreezableDir::new() else { return };
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    let client = daemon.client();
    place.format(&daemon);
    place.join(&daemon, 1);
    let path = storage.path().join("index");
    let index = Index::new(&path, &client);
    assert_eq!(index.create(&client, "a"), 0);

    storage.freeze();
    let hung = index.create(&client, "b");
    assert!(matches!(hung, code::SANLK_AIO_TIMEOUT | code::SANLK_DBLOCK_WRITE), "{hung}");
    // The client is answered, its writes are not over.
    assert_eq!(index.create(&client, "c"), code::EBUSY);
    assert_eq!(index.lookup(&client, "a", RindexCmdFlags::empty()), code::EBUSY);
    assert_eq!(index.lookup(&client, "a", RindexCmdFlags::NO_LOCKSPACE), 0);
    let disk = Disk::new(path.as_os_str().as_encoded_bytes(), 6 << 20).unwrap();
    let resource = Resource::new(Name::truncated("LS"), Name::truncated("R"));
    let resource = ResourceSpec::new(resource, vec![disk]).unwrap();
    let format = result(client.write_resource(&resource, 0, 0, WriteFlags::empty()));
    assert_eq!(format, code::EAGAIN, "nothing is formatted in the way of these writes");
    storage.thaw();

    assert!(within(SHORT, || match index.create(&client, "c") {
        0 => true,
        refused => {
            assert_eq!(refused, code::EBUSY);
            false
        }
    }));
    assert_eq!(index.lookup(&client, "c", RindexCmdFlags::empty()), 0);
    assert_eq!(index.lookup(&client, "b", RindexCmdFlags::empty()), code::ENOENT);
    assert_eq!(result(client.write_resource(&resource, 0, 0, WriteFlags::empty())), 0);
}

/// Its client has its answer, so the lockspace may be removed; the host id is kept until the writes have landed.
#[test]
fn a_lockspace_is_left_when_the_writes_to_its_index_have_landed() {
    let Some(mut storage) = FreezableDir::new() else { return };
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    let client = daemon.client();
    place.format(&daemon);
    place.join(&daemon, 1);
    let index = Index::new(&storage.path().join("index"), &client);
    storage.freeze();
    assert!(index.create(&client, "a") < 0);
    client.rem_lockspace(&place.lockspace(1), RemFlags::ASYNC).unwrap();
    let free = || client.read_lockspace(&place.lockspace(1)).is_ok() && joined(&client) == 0;
    assert!(!within(Duration::from_secs(5), free), "DOUBLE OWNER: left with a write outstanding");
    storage.thaw();
    assert!(within(SHORT, free));
    place.join(&daemon, 1);
    assert_eq!(index.create(&client, "a"), 0);
}

/// The entry may be written for as long as other hosts wait before they take anything over: until then this host keeps the lease of the index
/// and its host id, although somebody has removed the lockspace.
#[test]
fn a_lockspace_is_not_left_while_an_entry_is_in_doubt() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    let client = daemon.client();
    place.format(&daemon);
    place.join(&daemon, 1);
    let behind = place.dir.path().join("behind");
    Index::new(&behind, &client);
    let Some(served) = served_over(&place, &behind, Trouble::default()) else { return };
    let index = Index(Rindex::new(Name::truncated("LS"), disk(served.path(), 0)));
    assert_eq!(index.create(&client, "a"), 0);

    served.deny(512, Duration::from_secs(8));
    assert_eq!(index.create(&client, "b"), -5);
    assert_eq!(index.create(&client, "c"), code::EBUSY);
    let resource = Resource::new(Name::truncated("LS"), Name::truncated("R"));
    let resource = ResourceSpec::new(resource, vec![disk(served.path(), 6 << 20)]).unwrap();
    let format = || result(client.write_resource(&resource, 0, 0, WriteFlags::empty()));
    client.rem_lockspace(&place.lockspace(1), RemFlags::ASYNC).unwrap();
    assert!(within(SHORT, || {
        let (left, format) = (joined(&client) == 0, format());
        assert!(!left && format != 0, "DOUBLE OWNER: left: {left}, format: {format}; it may still land");
        assert_eq!(format, code::EAGAIN);
        served.carried_out() > 0
    }));
}

fn joined(client: &Client) -> usize {
    client.get_lockspaces().unwrap().len()
}

#[test]
fn an_update_that_asks_for_nothing_tells_first_what_is_the_matter_with_the_index() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    let client = daemon.client();
    place.format(&daemon);
    place.join(&daemon, 1);
    let update = |index: &Rindex, flags| {
        result(client.update_rindex(index, &Rentry::new(Name::truncated("a"), 0), flags))
    };
    let path = place.dir.path().join("index");
    let disk = Disk::new(path.as_os_str().as_encoded_bytes(), 0).unwrap();
    let at = Rindex::new(Name::truncated("LS"), disk);
    for flags in [RindexCmdFlags::empty(), RindexCmdFlags::NO_LOCKSPACE] {
        assert_eq!(update(&at, flags), code::ENOENT, "no such file");
    }
    File::create(&path).unwrap().set_len(8 << 20).unwrap();
    for flags in [RindexCmdFlags::empty(), RindexCmdFlags::NO_LOCKSPACE] {
        assert_eq!(update(&at, flags), -274, "no index");
    }
    let index = Index::new(&path, &client);
    for flags in [RindexCmdFlags::empty(), RindexCmdFlags::NO_LOCKSPACE] {
        assert_eq!(update(&index.0, flags), code::EINVAL);
    }
}

#[test]
fn a_host_id_that_no_lockspace_has_is_refused_after_a_look_at_the_disk() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    place.format(&daemon);
    let add = |path: &[u8], offset| {
        let lockspace = Lockspace::new(Name::truncated("LS"), 2001, Disk::new(path, offset).unwrap());
        result(daemon.client().add_lockspace(&lockspace, AddFlags::empty()))
    };
    let leases = place.leases();
    let leases = leases.as_os_str().as_encoded_bytes();
    assert_eq!(add(b"/no/such/disk", 0), -19);
    assert_eq!(add(leases, 7), code::EINVAL);
    assert_eq!(add(leases, 1 << 20), -223, "a resource");
    assert_eq!(add(leases, 0), code::SANLK_ADDLS_INVALID_HOSTID);
    assert!(daemon.client().get_lockspaces().unwrap().is_empty());
}
