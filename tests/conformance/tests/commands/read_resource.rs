//! READ_RESOURCE and READ_RESOURCE_OWNERS, socket-protocol.md 7.20 and 7.23.

use sanlock_conformance::raw::flag;
use sanlock_conformance::{Program, Resource, Scene, Storage, StorageKind};

use crate::Table;

#[test]
fn names_version_and_sizes_come_from_disk() {
    let Some(program) = Program::under_test() else { return };
    for kind in StorageKind::ALL {
        let Some(storage) = Storage::new(kind) else { continue };
        let host = sanlock_conformance::Host::start(program, "host1");
        host.init(&storage, 1);
        let sizes = match kind {
            StorageKind::File | StorageKind::Loop512 => flag::ALIGN1M | flag::SECTOR512,
            StorageKind::Loop4096 => flag::ALIGN8M | flag::SECTOR4K,
        };
        let mut table = Table::default();
        let mut connection = host.connect();
        for (case, lockspace, name) in [
            ("both names", "LS", "R1"),
            ("no lockspace", "", "R1"),
            ("no name", "LS", ""),
            ("no names", "", ""),
        ] {
            let case = format!("{kind:?}, {case}");
            let (result, read) = connection.read_resource(&storage.resource(1).named(lockspace, name));
            table.expect(&case, (result, read.lver, read.flags), (0, 0, sizes));
            table.expect(&case, (read.lockspace, read.name), (b"LS".to_vec(), b"R1".to_vec()));
        }
    }
}

#[test]
fn failures_are_told_apart() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::not_joined(program, 1);
    let storage = scene.storage();
    let resource = storage.resource(1);
    let at = |path: &str, offset: u64| Resource::new("LS", "R1", path, offset);
    let no_disk = Resource { num_disks: 0, disks: vec![], ..resource.clone() };
    let mut table = Table::default();
    for (case, request, expected) in [
        ("another lockspace", resource.clone().named("OTHER", "R1"), -226),
        ("another name", resource.clone().named("LS", "OTHER"), -227),
        ("no disk", no_disk, -34),
        ("five disks", Resource { num_disks: 5, ..resource.clone() }, -34),
        ("missing file", at(&format!("{}-missing", storage.path()), 0), -2),
        ("nothing there", at(storage.path(), storage.offset(9)), -223),
        ("a lockspace there", at(storage.path(), 0), -223),
        ("beyond the end", at(storage.path(), 1 << 30), -90),
    ] {
        // A connection each: a refused payload may be left unread (socket-protocol.md 3.5).
        let (result, _) = scene.host(0).connect().read_resource(&request);
        table.expect(case, result, expected);
    }
}

#[test]
fn the_owner_is_shown_while_there_is_one() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let host = scene.host(0);
    let resource = scene.storage().resource(1);
    assert_eq!(host.connect().read_resource_owners(&resource).2, [], "a free lease has no owner");
    let mut client = host.connect();
    client.register();
    assert_eq!(client.acquire_one(&resource), 0);
    let (result, read, owners) = host.connect().read_resource_owners(&resource);
    assert_eq!((result, read.lver, owners.len()), (0, 1, 1));
    assert_eq!((owners[0].host_id, owners[0].generation, owners[0].flags), (1, 1, 0));
    assert_ne!(owners[0].timestamp, 0);
    assert_eq!(client.release_one(&resource), 0);
    let (result, read, owners) = host.connect().read_resource_owners(&resource);
    assert_eq!((result, read.lver, owners.len()), (0, 1, 0), "a release keeps the version");
}

#[test]
fn a_flag_shared_that_is_asked_with_stays_whoever_holds_the_lease() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let host = scene.host(0);
    let (resource, sizes) = (scene.storage().resource(1), flag::ALIGN1M | flag::SECTOR512);
    let asked = |flags: u32| Resource { flags, ..resource.clone() };
    let mut table = Table::default();
    let mut look = |case: &str, holders: usize, shared: u32| {
        for (flags, expected) in [
            (0, shared),
            (sizes, sizes | shared),
            (flag::RES_SHARED, flag::RES_SHARED),
            (flag::RES_SHARED | sizes, flag::RES_SHARED | sizes),
        ] {
            let (result, read, owners) = host.connect().read_resource_owners(&asked(flags));
            table.expect(
                &format!("{case}, {flags:#x}"),
                (result, owners.len(), read.flags),
                (0, holders, expected),
            );
        }
    };
    look("free", 0, 0);
    let mut client = host.connect();
    client.register();
    assert_eq!(client.acquire_one(&resource), 0);
    look("exclusive", 1, 0);
    assert_eq!(client.release_one(&resource), 0);
    assert_eq!(client.acquire_one(&resource.clone().shared()), 0);
    look("shared", 1, flag::RES_SHARED);
}

#[test]
fn owners_are_read_only_under_the_right_names() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::not_joined(program, 1);
    let resource = scene.storage().resource(1);
    let mut table = Table::default();
    for (case, lockspace, name, expected) in [
        ("both names", "LS", "R1", 0),
        ("no names", "", "", -226),
        ("another lockspace", "OTHER", "R1", -226),
        ("another name", "LS", "OTHER", -227),
        ("no name", "LS", "", -227),
    ] {
        let (result, _, _) =
            scene.host(0).connect().read_resource_owners(&resource.clone().named(lockspace, name));
        table.expect(case, result, expected);
    }
}
