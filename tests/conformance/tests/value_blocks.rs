//! Value blocks, on either program and between the two (lease-algorithms.md 7.4; socket-protocol.md 7.24, 7.25; disk-format.md 7.8).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use sanlock_conformance::dead_owner::registered;
use sanlock_conformance::raw::{Connection, Header, SELF, cmd, flag};
use sanlock_conformance::scene::every_pair;
use sanlock_conformance::storage::StorageKind;
use sanlock_conformance::{Holder, Program, Resource, Scene, Storage, Table, bounded};

const SOON: Duration = Duration::from_secs(60);
const LVB_SECTOR: u64 = 2002;

fn on_disk(storage: &Storage, n: u64, sector: usize) -> Vec<u8> {
    let mut bytes = vec![0; sector];
    let file = File::open(storage.path()).expect("the leases can be opened");
    file.read_exact_at(&mut bytes, storage.offset(n) + LVB_SECTOR * u64::try_from(sector).expect("small"))
        .expect("the sector can be read");
    bytes
}

fn begins(bytes: &[u8], with: &[u8]) -> bool {
    bytes.starts_with(with) && bytes[with.len()..].iter().all(|byte| *byte == 0)
}

fn acquire(client: &mut Connection, resource: &Resource) -> i32 {
    client.acquire(std::slice::from_ref(resource), flag::ACQUIRE_LVB, None)
}

#[test]
fn a_value_goes_from_owner_to_owner() {
    every_pair(1, |scene| {
        let own = scene.storage().resource(1);
        let mut table = Table::default();
        let mut clients = [registered(scene.host(0)), registered(scene.host(1))];
        let mut written = Vec::new();
        for turn in 0..6_u8 {
            let client = &mut clients[usize::from(turn % 2)];
            table.expect("acquired", acquire(client, &own), 0);
            let seen = client.get_lvb(&own, 0).expect("a value");
            table.expect(&format!("turn {turn} sees what was left"), begins(&seen, &written), true);
            written = vec![turn + 1; 3 + usize::from(turn)];
            table.expect("set", client.set_lvb(&own, &written), 0);
            table.expect("not yet on disk", begins(&on_disk(scene.storage(), 1, 512), &written), false);
            table.expect("released", client.release_one(&own), 0);
            table.expect("on disk", begins(&on_disk(scene.storage(), 1, 512), &written), true);
        }
    });
}

#[test]
fn shared_holders_read_and_a_conversion_writes() {
    every_pair(1, |scene| {
        let (own, shared) = (scene.storage().resource(1), scene.storage().resource(1).shared());
        let mut table = Table::default();
        let mut first = registered(scene.host(0));
        let mut second = registered(scene.host(1));
        table.expect("acquired", acquire(&mut first, &own), 0);
        table.expect("set", first.set_lvb(&own, b"one"), 0);
        table.expect("converted", first.convert(&shared), 0);
        table.expect("on disk", begins(&on_disk(scene.storage(), 1, 512), b"one"), true);
        table.expect("the other shares", acquire(&mut second, &shared), 0);
        table.expect("and sees it", second.get_lvb(&own, 3), Ok(b"one".to_vec()));
        table.expect("the other lets go", second.release_one(&shared), 0);
        table.expect("converted back", first.convert(&own), 0);
        table.expect("set", first.set_lvb(&own, b"two"), 0);
        table.expect("released", first.release_one(&own), 0);
        table.expect("on disk", begins(&on_disk(scene.storage(), 1, 512), b"two"), true);
    });
}

#[test]
fn what_the_commands_answer() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 3);
    let (with, without, absent) =
        (scene.storage().resource(1), scene.storage().resource(2), scene.storage().resource(3));
    let mut table = Table::default();
    let mut client = registered(scene.host(0));
    table.expect("with", acquire(&mut client, &with), 0);
    table.expect("without", client.acquire_one(&without), 0);
    // Nobody has to be registered, or to hold the lease itself.
    let mut other = scene.host(0).connect();
    table.expect("not held", other.set_lvb(&absent, b"x"), -2);
    table.expect("not held", other.get_lvb(&absent, 0), Err(-2));
    table.expect("no value", other.set_lvb(&without, b"x"), -22);
    table.expect("no value", other.get_lvb(&without, 0), Err(-22));
    table.expect("too long for the sector", other.set_lvb(&with, &[1; 513]), -7);
    table.expect("a whole sector", other.set_lvb(&with, &[1; 512]), 0);
    table.expect("its beginning", other.set_lvb(&with, b"abc"), 0);
    let mut expected = vec![1; 512];
    expected[..3].copy_from_slice(b"abc");
    table.expect("all of it", other.get_lvb(&with, 0), Ok(expected.clone()));
    table.expect("a part", other.get_lvb(&with, 4), Ok(expected[..4].to_vec()));
    drop(client);
    scene.wait_until_free(1, SOON);
    table.expect("the end of the process has written it", on_disk(scene.storage(), 1, 512), expected);
    table.expect("it is not held any more", other.get_lvb(&with, 0), Err(-2));
}

/// Faults of the original that a client would not survive (socket-protocol.md 15, 12).
#[test]
fn lengths_that_cannot_be_are_refused() {
    let Some(program) = Program::ours_under_test("hangs, or reads beyond its buffer") else { return };
    let scene = Scene::one_host(program, 1);
    let own = scene.storage().resource(1);
    let mut client = registered(scene.host(0));
    assert_eq!(acquire(&mut client, &own), 0);
    let mut other = scene.host(0).connect();
    assert_eq!(other.set_lvb(&own, b""), -22);
    let short = Header { length: 100, ..Header::request(cmd::SET_LVB, 128) };
    other.send_message(short, &own.encode_bare());
    assert_eq!(other.receive().result(), -22);
    let long = Header { data2: SELF, ..Header::request(cmd::GET_LVB, 128) };
    other.send_message(long, &own.encode_bare());
    let reply = other.receive();
    assert_eq!((reply.result(), reply.length), (0, 32 + 512), "cut");
    assert_eq!(other.receive_payload(512).len(), 512);
    assert_eq!(other.set_lvb(&own, &[1; 5000]), -7);
    assert_eq!(other.get_lvb(&own, 0).map(|bytes| bytes.len()), Ok(512), "and the connection goes on");
}

/// A shared holder's value is never written: the original takes it and loses it.
#[test]
fn a_value_set_by_a_shared_holder_is_a_difference() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let shared = scene.storage().resource(1).shared();
    let mut client = registered(scene.host(0));
    assert_eq!(acquire(&mut client, &shared), 0);
    let expected = if program == Program::Ours { -22 } else { 0 };
    assert_eq!(client.set_lvb(&shared, b"lost"), expected);
    assert_eq!(client.release_one(&shared), 0);
    assert!(on_disk(scene.storage(), 1, 512).iter().all(|byte| *byte == 0));
}

#[test]
fn the_value_of_a_killed_process_is_written() {
    every_pair(1, |scene| {
        let own = scene.storage().resource(1);
        let mut holder = Holder::start_with(scene.host(0), &[&scene.storage().resource_arg(1)], &["-P", "1"]);
        holder.kill();
        let mut client = registered(scene.host(0));
        bounded::wait_until("the orphan to be taken", SOON, || {
            client.acquire(std::slice::from_ref(&own), flag::ACQUIRE_ORPHAN, None) == 0
        });
        // It was acquired without a value, and an adopter reads none.
        assert_eq!(client.set_lvb(&own, b"x"), -22);
        assert_eq!(client.release_one(&own), 0);
        assert_eq!(acquire(&mut client, &own), 0);
        assert_eq!(client.set_lvb(&own, b"last words"), 0);
        drop(client);
        scene.wait_until_free(1, SOON);
        let mut other = registered(scene.host(1));
        assert_eq!(acquire(&mut other, &own), 0);
        assert!(begins(&other.get_lvb(&own, 0).expect("a value"), b"last words"));
    });
}

/// With 4096-byte sectors the area has room for it only at 8 MiB, which is what such a device gets.
#[test]
fn the_value_of_a_device_with_large_sectors_is_a_large_sector() {
    let Some(program) = Program::under_test() else { return };
    let Some(storage) = Storage::new(StorageKind::Loop4096) else { return };
    let scene = Scene::joined(storage, &[program], 1);
    let own = scene.storage().resource(1);
    let mut client = registered(scene.host(0));
    assert_eq!(acquire(&mut client, &own), 0);
    assert_eq!(client.set_lvb(&own, &[7; 4096]), 0);
    assert_eq!(client.get_lvb(&own, 0), Ok(vec![7; 4096]));
    assert_eq!(client.release_one(&own), 0);
    assert_eq!(on_disk(scene.storage(), 1, 4096), vec![7; 4096]);
}

/// In a smaller area the sector of the value belongs to another lease, which the original overwrites (W7, CE7).
#[test]
fn a_small_area_of_large_sectors_is_a_difference() {
    let Some(program) = Program::under_test() else { return };
    let Some(storage) = Storage::new(StorageKind::Loop4096) else { return };
    let mut scene = Scene::joined(storage, &[program], 0);
    let path = scene.storage().path().to_owned();
    // A lockspace of its own at the end of the device, and leases of 1 MiB behind it.
    let (space, first) = (format!("SMALL:1:{path}:{}", 64 << 20), 65_u64 << 20);
    let host = scene.host_mut(0);
    host.client(&["client", "init", "-s", &space, "-o", "1", "-Z", "4096", "-A", "1M"]).success();
    for n in [0_u64, 7] {
        let resource = format!("SMALL:R{n}:{path}:{}", first + (n << 20));
        host.client(&["client", "init", "-r", &resource, "-Z", "4096", "-A", "1M"]).success();
    }
    host.client(&["client", "add_lockspace", "-s", &space, "-o", "1"]).success();
    let victim = || {
        let mut bytes = vec![0; 1 << 20];
        let file = File::open(&path).expect("the device can be opened");
        file.read_exact_at(&mut bytes, first + (7 << 20)).expect("it can be read");
        bytes
    };
    let before = victim();
    let own = Resource::new("SMALL", "R0", &path, first);
    let mut client = registered(host);
    assert_eq!(acquire(&mut client, &own), 0);
    let expected = if program == Program::Ours { -22 } else { 0 };
    assert_eq!(client.set_lvb(&own, b"stray"), expected);
    assert_eq!(client.release_one(&own), 0);
    assert_eq!(victim() == before, program == Program::Ours, "R8");
}
