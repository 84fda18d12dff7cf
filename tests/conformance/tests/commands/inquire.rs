//! INQUIRE, socket-protocol.md 7.9.

use sanlock_conformance::{Program, Resource, Scene};

use crate::Table;

#[test]
fn leases_are_listed_in_the_order_they_were_acquired() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 3);
    let storage = scene.storage();
    let mut client = scene.host(0).connect();
    client.register();
    let none = client.inquire(None);
    assert_eq!((none.result, none.count, none.length, none.state.as_str()), (0, 0, 32, ""));
    for n in [2, 1, 3] {
        assert_eq!(client.acquire_one(&storage.resource(n)), 0);
    }
    let held = client.inquire(None);
    let expected = [2, 1, 3].map(|n| format!("{}:1", storage.resource_arg(n))).join(" ");
    assert_eq!((held.result, held.count, held.state.as_str()), (0, 3, expected.as_str()));
    assert_eq!(held.length as usize, 32 + expected.len() + 1, "the text ends in a NUL");

    assert_eq!(client.release_one(&storage.resource(1)), 0);
    let expected: Vec<String> = [2, 3].map(|n| format!("{}:1", storage.resource_arg(n))).into();
    assert_eq!(client.inquire(None).items(), expected);
}

#[test]
fn only_registered_processes_can_be_inquired() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 0);
    let mut plain = scene.host(0).connect();
    let mut table = Table::default();
    table.expect(
        "an unknown process",
        (plain.inquire(Some(1)).result, plain.inquire(Some(1)).length),
        (-3, 32),
    );
    table.expect("the own connection, not registered", plain.inquire(None).result, -16);
    let mut registered = scene.host(0).connect();
    registered.register();
    table.expect("a registered connection", registered.inquire(None).result, 0);
    table.expect("the process by its number", plain.inquire(Some(std::process::id())).result, 0);
}

/// A lease on a path with the given name; returns the INQUIRE answer while it is held.
fn held_on(scene: &Scene, file: &str) -> sanlock_conformance::raw::Inquired {
    let path = scene.storage().extra_file(file, 2);
    let resource = Resource::new("LS", "RX", &path, 0);
    let arg = format!("LS:RX:{}:0", path.replace(':', "\\:").replace(' ', "\\ "));
    let _ = scene.host(0).client(&["client", "init", "-r", &arg]).success();
    let mut client = scene.host(0).connect();
    client.register();
    assert_eq!(client.acquire_one(&resource), 0);
    client.inquire(None)
}

#[test]
fn colons_in_paths_are_escaped() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 0);
    let answer = held_on(&scene, "with:colon");
    assert_eq!((answer.result, answer.count), (0, 1));
    assert!(answer.state.ends_with("/with\\:colon:0:1"), "{answer:?}");
}

#[test]
fn spaces_in_paths_are_escaped() {
    let Some(program) = Program::ours_under_test("fails with -81 on any space") else { return };
    let scene = Scene::one_host(program, 0);
    let answer = held_on(&scene, "with space");
    assert_eq!((answer.result, answer.count), (0, 1));
    assert!(answer.state.ends_with("/with\\ space:0:1"), "{answer:?}");
}
