//! ACQUIRE of several resources is all or nothing (socket-protocol.md 7.7 step 8).

use sanlock_conformance::{Program, Resource, Scene};

use crate::SOON;

#[test]
fn when_the_third_of_eight_fails_the_first_two_are_released_on_disk() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 10);
    let host = scene.host(0);
    let mut client = host.connect();
    client.register();
    let earlier = scene.storage().resource(10);
    assert_eq!(client.acquire_one(&earlier), 0);

    let mut other = scene.owning(0, 3);

    let eight: Vec<Resource> = (1..=8).map(|n| scene.storage().resource(n)).collect();
    assert_eq!(client.acquire(&eight, 0, None), -17);

    let versions: Vec<u64> = (1..=8).map(|n| scene.lver(n)).collect();
    assert_eq!(versions, [1, 1, 1, 0, 0, 0, 0, 0], "the first two were taken and given back");
    for n in [1, 2, 4, 5, 6, 7, 8] {
        assert_eq!(scene.owner(n), None, "resource {n}");
    }
    assert_eq!(scene.owner(3), Some((1, 1)), "the other client keeps its lease");
    let kept = client.inquire(None);
    assert_eq!(kept.items(), [format!("{}:1", scene.storage().resource_arg(10))], "earlier leases stay");

    assert_eq!(other.release_one(&scene.storage().resource(3)), 0);
    assert_eq!(client.acquire(&eight, 0, None), 0, "all eight can be taken afterwards");
    assert_eq!(client.inquire(None).count, 9);
    let versions: Vec<u64> = (1..=8).map(|n| scene.lver(n)).collect();
    assert_eq!(versions, [2, 2, 2, 1, 1, 1, 1, 1]);
}

#[test]
fn a_lockspace_not_joined_stops_the_command_before_any_lease_is_touched() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 2);
    let mut client = scene.host(0).connect();
    client.register();
    let foreign = scene.storage().resource(2).named("OTHER", "R2");
    assert_eq!(client.acquire(&[scene.storage().resource(1), foreign], 0, None), -28);
    assert_eq!(scene.lver(1), 0, "the first resource was not taken");
}

#[test]
fn a_lease_refused_by_another_host_undoes_the_whole_command() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::two_hosts(program, 3);
    scene.wait_until_all_see_all();
    let _owner = scene.owning(1, 2);
    let mut client = scene.host(0).connect();
    client.register();
    let three: Vec<Resource> = (1..=3).map(|n| scene.storage().resource(n)).collect();
    assert_eq!(client.acquire(&three, 0, None), -243);
    scene.wait_until_free(1, SOON);
    scene.wait_until_free(3, SOON);
    assert_eq!((scene.owner(2), scene.owner(3)), (Some((2, 1)), None));
    assert_eq!([scene.lver(1), scene.lver(2)], [1, 1]);
    // Ours asks for the third beside the second, and may have taken it and given it back.
    let others = if program == Program::Ours { 0..=1 } else { 0..=0 };
    assert!(others.contains(&scene.lver(3)), "{}", scene.lver(3));
}
