//! ACQUIRE, socket-protocol.md 7.7 and 2.6.

use sanlock_conformance::raw::{self, cmd, flag};
use sanlock_conformance::{Connection, Host, Program, Resource, Scene};

use crate::Table;

fn registered(host: &Host) -> Connection {
    let mut connection = host.connect();
    connection.register();
    connection
}

#[test]
fn a_free_lease_is_granted_and_its_version_grows_by_one_each_time() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let mut client = registered(scene.host(0));
    let resource = scene.storage().resource(1);
    for lver in 1..=5 {
        assert_eq!(client.acquire_one(&resource), 0);
        assert_eq!(client.inquire(None).items(), [format!("{}:{lver}", scene.storage().resource_arg(1))]);
        assert_eq!((scene.lver(1), scene.owner(1)), (lver, Some((1, 1))));
        assert_eq!(client.release_one(&resource), 0);
        assert_eq!((scene.lver(1), scene.owner(1)), (lver, None));
    }
}

#[test]
fn a_lease_of_another_live_host_is_refused() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::two_hosts(program, 1);
    scene.wait_until_all_see_all();
    let resource = scene.storage().resource(1);
    let mut owner = registered(scene.host(0));
    assert_eq!(owner.acquire_one(&resource), 0);
    let mut other = registered(scene.host(1));
    let mut table = Table::default();
    table.expect("waiting allowed", other.acquire_one(&resource), -243);
    let nowait = other.acquire(std::slice::from_ref(&resource), flag::ACQUIRE_OWNER_NOWAIT, None);
    table.expect("waiting not allowed", nowait, -243);
    table.expect("nothing is held after a refusal", other.inquire(None).count, 0);
    assert_eq!(owner.release_one(&resource), 0);
    table.expect("once it is free", other.acquire_one(&resource), 0);
    table.expect("the owner on disk", scene.owner(1), Some((2, 1)));
}

#[test]
fn a_lease_held_on_this_host_is_refused_even_to_its_holder() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let resource = scene.storage().resource(1);
    let mut holder = registered(scene.host(0));
    let mut other = registered(scene.host(0));
    assert_eq!(holder.acquire_one(&resource), 0);
    assert_eq!(holder.acquire_one(&resource), -17);
    assert_eq!(other.acquire_one(&resource), -17);
    // Names decide, not the place on disk.
    let elsewhere = Resource::new("LS", "R1", scene.storage().path(), scene.storage().offset(9));
    assert_eq!(other.acquire_one(&elsewhere), -17);
    assert_eq!(holder.inquire(None).count, 1);
}

#[test]
fn the_target_must_be_a_registered_process() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let resource = scene.storage().resource(1);
    let mut plain = scene.host(0).connect();
    let mut table = Table::default();
    table.expect("the own connection, not registered", plain.acquire_one(&resource), -16);
    table.expect("an unknown process", plain.acquire(std::slice::from_ref(&resource), 0, Some(1)), -3);
    table.expect("the connection is still usable", plain.inquire(Some(1)).result, -3);
    table.expect("nobody got the lease", scene.owner(1), None);
}

#[test]
fn a_lease_can_be_acquired_for_another_process() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let mut target = registered(scene.host(0));
    let resource = scene.storage().resource(1);
    let us = std::process::id();
    // The target must have been accepted before it can be named.
    assert_eq!(target.inquire(None).result, 0);
    assert_eq!(scene.host(0).connect().acquire(std::slice::from_ref(&resource), 0, Some(us)), 0);
    assert_eq!(target.inquire(None).count, 1);
    assert_eq!(scene.host(0).connect().inquire(Some(us)).count, 1);
    assert_eq!(scene.host(0).connect().release(&[resource], 0, Some(us)), 0);
    assert_eq!(target.inquire(None).count, 0);
}

#[test]
fn a_demanded_version_must_be_the_one_on_disk() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let resource = scene.storage().resource(1);
    let mut client = registered(scene.host(0));
    let mut table = Table::default();
    // Version on disk before, version demanded, result.
    for (case, demanded, expected) in [
        ("1 of a new lease", 1, -240),
        ("0 is no demand", 0, 0),
        ("0 again is no demand", 0, 0),
        ("an old one", 1, -240),
        ("a later one", 3, -240),
        ("the one on disk", 2, 0),
    ] {
        let result = client.acquire_one(&resource.clone().with_lver(demanded));
        table.expect(case, result, expected);
        if result == 0 {
            assert_eq!(client.release_one(&resource), 0);
        }
    }
    table.expect("the version at the end", scene.lver(1), 3);
}

#[test]
fn wrong_requests_are_told_apart() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 3);
    let storage = scene.storage();
    let resource = storage.resource(1);
    // Leases written under other names.
    let foreign = |name: &str, n: u64| format!("{name}:{}:{}", storage.path(), storage.offset(n));
    for (name, n) in [("OTHER:R4", 4), ("LS:ELSE", 5)] {
        let _ = scene.host(0).client(&["client", "init", "-r", &foreign(name, n)]).success();
    }
    let no_disk = Resource { num_disks: 0, disks: vec![], ..resource.clone() };
    let missing = Resource::new("LS", "R1", &format!("{}-missing", storage.path()), 0);
    let mut table = Table::default();
    for (case, request, expected) in [
        ("no disk", no_disk, -34),
        ("five disks", Resource { num_disks: 5, ..resource.clone() }, -34),
        ("a lockspace not joined", resource.clone().named("OTHER", "R1"), -28),
        ("missing file", missing, -2),
        ("no lease there", storage.resource(9), -223),
        ("a lockspace there", Resource::new("LS", "R9", storage.path(), 0), -223),
        ("another lockspace on disk", storage.resource(4), -226),
        ("another name on disk", storage.resource(5), -227),
        ("beyond the end", Resource::new("LS", "R9", storage.path(), 1 << 30), -90),
        ("not aligned", Resource::new("LS", "R9", storage.path(), 100), -22),
    ] {
        let mut client = registered(scene.host(0));
        table.expect(case, client.acquire_one(&request), expected);
        table.expect(case, client.inquire(None).result, 0);
    }
    let mut client = registered(scene.host(0));
    table.expect("a good one afterwards", client.acquire_one(&resource), 0);
}

#[test]
fn up_to_eight_resources_and_also_none_can_be_asked_for() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 9);
    let all: Vec<Resource> = (1..=9).map(|n| scene.storage().resource(n)).collect();
    let mut client = registered(scene.host(0));
    let mut table = Table::default();
    table.expect("none", client.acquire(&[], 0, None), 0);
    table.expect("nine", client.acquire(&all, 0, None), -7);
    table.expect("nothing was taken", client.inquire(None).count, 0);
    table.expect("eight", client.acquire(&all[..8], 0, None), 0);
    table.expect("the ninth in a command of its own", client.acquire(&all[8..], 0, None), 0);
    let leases = client.inquire(None);
    let expected: Vec<String> = (1..=9).map(|n| format!("{}:1", scene.storage().resource_arg(n))).collect();
    table.expect("order of the leases", leases.items(), expected);
}

#[test]
fn a_negative_count_asks_for_nothing() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let mut client = registered(scene.host(0));
    let (_, options_only) = raw::acquire_payload(&[]);
    let reply = client.request(cmd::ACQUIRE, 0, u32::MAX, raw::SELF, &options_only);
    assert_eq!(reply.result(), 0);
    assert_eq!(client.inquire(None).count, 0);
}

#[test]
fn the_length_field_does_not_decide_how_much_is_read() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let mut client = registered(scene.host(0));
    let (count, payload) = raw::acquire_payload(&[scene.storage().resource(1)]);
    let mut table = Table::default();
    for length in [32, 0, 0x7fff_ffff] {
        let header = raw::Header {
            length,
            data: count,
            data2: raw::SELF,
            ..raw::Header::request(cmd::ACQUIRE, payload.len())
        };
        client.send_message(header, &payload);
        table.expect(&format!("length {length:#x}"), client.receive().result(), 0);
        assert_eq!(client.release_one(&scene.storage().resource(1)), 0);
    }
}

#[test]
fn names_of_48_characters_work_without_a_final_nul() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 0);
    let name = "n".repeat(48);
    let resource = Resource::new("LS", &name, scene.storage().path(), scene.storage().offset(1));
    let arg = format!("LS:{name}:{}:{}", scene.storage().path(), scene.storage().offset(1));
    let _ = scene.host(0).client(&["client", "init", "-r", &arg]).success();
    let mut client = registered(scene.host(0));
    assert_eq!(client.acquire_one(&resource), 0);
    assert_eq!(client.acquire_one(&resource), -17);
    // One character less is another resource.
    let shorter = Resource { name: name.as_bytes()[..47].to_vec(), ..resource.clone() };
    assert_eq!(client.acquire_one(&shorter), -227);
    assert_eq!(client.release_one(&resource), 0);
}

#[test]
fn a_number_of_hosts_that_does_not_fit_is_refused() {
    let Some(program) = Program::ours_under_test("stores any number of hosts and damages the lease") else {
        return;
    };
    let scene = Scene::one_host(program, 1);
    let mut client = registered(scene.host(0));
    let mut resource = scene.storage().resource(1);
    resource.flags = flag::RES_NUM_HOSTS;
    resource.data32 = 5000;
    assert_eq!(client.acquire_one(&resource), -22);
    assert_eq!(scene.owner(1), None);
}

#[test]
fn a_number_of_hosts_is_taken_over_and_0_is_none() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let mut client = registered(scene.host(0));
    let mut resource = scene.storage().resource(1);
    resource.flags = flag::RES_NUM_HOSTS;
    let leader = || {
        let lease = scene.storage().resource_arg(1);
        let text = scene.host(0).client(&["direct", "read_leader", "-r", &lease]).success().stdout;
        text.lines().find_map(|line| line.strip_prefix("num_hosts ")?.parse::<u64>().ok())
    };
    let lease = scene.storage().resource_arg(1);
    scene.host(0).client(&["direct", "init", "-r", &lease, "-n", "4"]).success();
    // A number below the lease's own is taken over by the original only.
    let lowered = if program == Program::Reference { 6 } else { 8 };
    for (asked, expected) in [(8, 8), (0, 8), (6, lowered), (2000, 2000)] {
        resource.data32 = asked;
        assert_eq!(client.acquire_one(&resource), 0, "{asked}");
        assert_eq!(leader(), Some(expected), "{asked}");
        assert_eq!(client.release_one(&resource), 0, "{asked}");
    }
}
