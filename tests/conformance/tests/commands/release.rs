//! RELEASE, socket-protocol.md 7.8.

use sanlock_conformance::raw::{self, cmd, flag};
use sanlock_conformance::{Program, Resource, Scene};

use crate::Table;

#[test]
fn a_lease_not_held_is_an_error_but_the_others_are_released() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 3);
    let mut client = scene.host(0).connect();
    client.register();
    let all: Vec<Resource> = (1..=3).map(|n| scene.storage().resource(n)).collect();
    let mut table = Table::default();
    table.expect("nothing held", client.release(&all[..1], 0, None), -1);
    assert_eq!(client.acquire(&[all[0].clone(), all[2].clone()], 0, None), 0);
    table.expect("the second of three not held", client.release(&all, 0, None), -1);
    table.expect("all are gone", client.inquire(None).count, 0);
    table.expect("the first on disk", scene.owner(1), None);
    table.expect("the third on disk", scene.owner(3), None);
    table.expect("no resource named", client.release(&[], 0, None), 0);
}

#[test]
fn the_target_must_be_a_registered_process() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let resource = [scene.storage().resource(1)];
    let mut plain = scene.host(0).connect();
    assert_eq!(plain.release(&resource, 0, None), -16);
    assert_eq!(plain.release(&resource, 0, Some(1)), -3);
}

#[test]
fn only_the_holder_can_release() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let resource = [scene.storage().resource(1)];
    let mut holder = scene.host(0).connect();
    holder.register();
    assert_eq!(holder.acquire(&resource, 0, None), 0);
    let mut other = scene.host(0).connect();
    other.register();
    assert_eq!(other.release(&resource, 0, None), -1);
    assert_eq!(scene.owner(1), Some((1, 1)));
    assert_eq!(holder.release(&resource, 0, None), 0);
}

#[test]
fn everything_can_be_released_at_once() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 8);
    let all: Vec<Resource> = (1..=8).map(|n| scene.storage().resource(n)).collect();
    let mut client = scene.host(0).connect();
    client.register();
    assert_eq!(client.acquire(&all, 0, None), 0);
    let reply = client.request(cmd::RELEASE, flag::RELEASE_ALL, 0, raw::SELF, &[]);
    assert_eq!(reply.result(), 0);
    assert_eq!(client.inquire(None).count, 0);
    for n in 1..=8 {
        assert_eq!((scene.owner(n), scene.lver(n)), (None, 1), "resource {n}");
    }
    let reply = client.request(cmd::RELEASE, flag::RELEASE_ALL, 0, raw::SELF, &[]);
    assert_eq!(reply.result(), 0, "nothing held is no error");
}

#[test]
fn more_than_eight_leases_can_be_released_at_once() {
    let Some(program) = Program::ours_under_test("writes past an array of eight") else { return };
    let scene = Scene::one_host(program, 14);
    let all: Vec<Resource> = (1..=14).map(|n| scene.storage().resource(n)).collect();
    let mut client = scene.host(0).connect();
    client.register();
    assert_eq!(client.acquire(&all[..7], 0, None), 0);
    assert_eq!(client.acquire(&all[7..], 0, None), 0);
    let reply = client.request(cmd::RELEASE, flag::RELEASE_ALL, 0, raw::SELF, &[]);
    assert_eq!(reply.result(), 0);
    for n in 1..=14 {
        assert_eq!(scene.owner(n), None, "resource {n}");
    }
}

#[test]
fn a_release_can_rename_the_lease() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let old = scene.storage().resource(1);
    let new = old.clone().named("LS", "RENAMED");
    let mut client = scene.host(0).connect();
    client.register();
    let not_held = client.release(&[old.clone(), new.clone()], flag::RELEASE_RENAME, None);
    assert_eq!(not_held, -1, "not held");
    assert_eq!(client.acquire_one(&old), 0);
    assert_eq!(client.release(&[old.clone(), new.clone()], flag::RELEASE_RENAME, None), 0);
    assert_eq!(client.inquire(None).count, 0);
    let (result, read) = scene.host(0).connect().read_resource(&old.clone().named("", ""));
    assert_eq!((result, read.name, read.lver), (0, b"RENAMED".to_vec(), 1));
    assert_eq!(client.acquire_one(&old), -227, "the old name is gone");
    assert_eq!(client.acquire_one(&new), 0, "the new name works");
    let longest = "N".repeat(48);
    let long = new.clone().named("ELSEWHERE", &longest);
    assert_eq!(client.release(&[new, long.clone()], flag::RELEASE_RENAME, None), 0, "only its name counts");
    assert_eq!(client.acquire_one(&long.named("LS", &longest)), 0);
}

/// The original releases a shared lease and leaves its name; it writes an empty name, and nobody can use the lease any more.
#[test]
fn what_cannot_be_renamed_is_a_difference() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 2);
    let (shared, exclusive) = (scene.storage().resource(1).shared(), scene.storage().resource(2));
    let mut client = scene.host(0).connect();
    client.register();
    assert_eq!(client.acquire(&[shared.clone(), exclusive.clone()], 0, None), 0);
    let expected = if program == Program::Ours { (-22, -22, 2) } else { (0, 0, 0) };
    let named = |resource: &Resource, name: &str| [resource.clone(), resource.clone().named("LS", name)];
    let got = (
        client.release(&named(&shared, "NEW"), flag::RELEASE_RENAME, None),
        client.release(&named(&exclusive, ""), flag::RELEASE_RENAME, None),
        client.inquire(None).count,
    );
    assert_eq!(got, expected);
}
