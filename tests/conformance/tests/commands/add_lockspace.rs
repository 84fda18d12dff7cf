//! ADD_LOCKSPACE, socket-protocol.md 7.2.

use std::time::{Duration, Instant};

use sanlock_conformance::raw::{cmd, flag};
use sanlock_conformance::{Host, Lockspace, Program, Scene, Storage, bounded};

use crate::{SOON, Table};

#[test]
fn incomplete_and_wrong_descriptions_are_refused() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::not_joined(program, 1);
    let storage = scene.storage();
    let path = storage.path();
    let mut table = Table::default();
    let rows = [
        ("empty name", Lockspace::new("", 1, path, 0), -22),
        ("host id 0", Lockspace::new("LS", 0, path, 0), -22),
        ("empty path", Lockspace::new("LS", 1, "", 0), -22),
        ("missing file", Lockspace::new("LS", 1, &format!("{path}-missing"), 0), -19),
        ("directory", Lockspace::new("LS", 1, "/", 0), -19),
        ("nothing there", Lockspace::new("LS", 1, path, storage.offset(9)), -223),
        ("a resource there", Lockspace::new("LS", 1, path, storage.offset(1)), -223),
        ("another name on disk", Lockspace::new("OTHER", 1, path, 0), -226),
        ("host id above the maximum", Lockspace::new("LS", 2001, path, 0), -231),
    ];
    for (case, lockspace, expected) in rows {
        table.expect(case, scene.host(0).connect().add_lockspace(&lockspace, 0, 1), expected);
    }
    let (result, listed) = scene.host(0).connect().get_lockspaces();
    table.expect("a refused lockspace leaves nothing behind", (result, listed.len()), (0, 0));
}

#[test]
fn a_free_lease_is_joined_within_seconds_and_connections_stay_open() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::not_joined(program, 0);
    let mut connection = scene.host(0).connect();
    let begin = Instant::now();
    assert_eq!(connection.add_lockspace(&scene.storage().lockspace(1), 0, 1), 0);
    let took = begin.elapsed();
    // Twice the io timeout is the safe minimum; the original takes 3 s.
    assert!(took >= Duration::from_secs(2), "joined after only {took:?}");
    assert!(took <= Duration::from_secs(60), "joined after {took:?}");
    assert_eq!(connection.inq_lockspace(&scene.storage().lockspace(1), 0), 0);
}

#[test]
fn a_name_or_place_in_use_is_refused() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 0);
    let path = scene.storage().path();
    let mut table = Table::default();
    let rows = [
        ("the same again", scene.storage().lockspace(1), -17),
        ("another host id", scene.storage().lockspace(2), -22),
        ("another path", Lockspace::new("LS", 1, "/dev/null", 0), -22),
        ("another offset", Lockspace::new("LS", 1, path, 1 << 20), -22),
        ("another name at the same place", Lockspace::new("OTHER", 1, path, 0), -22),
    ];
    for (case, lockspace, expected) in rows {
        table.expect(case, scene.host(0).connect().add_lockspace(&lockspace, 0, 1), expected);
    }
}

#[test]
fn flags_of_the_lockspace_are_ignored_because_sizes_come_from_disk() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::not_joined(program, 0);
    let mut lockspace = scene.storage().lockspace(1);
    lockspace.flags = flag::ALIGN8M | flag::SECTOR4K;
    assert_eq!(scene.host(0).connect().add_lockspace(&lockspace, 0, 1), 0);
    let (_, listed) = scene.host(0).connect().get_lockspaces();
    assert_eq!(listed, [scene.storage().lockspace(1)]);
}

#[test]
fn an_asynchronous_join_answers_at_once_and_is_followed_with_inq_lockspace() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::not_joined(program, 1);
    let host = scene.host(0);
    let lockspace = scene.storage().lockspace(1);
    // The join takes two io timeouts, and all that is asked meanwhile has to be answered by then.
    let _ = host.client(&["client", "init", "-s", &scene.storage().lockspace_arg(0), "-o", "10"]).success();
    assert_eq!(host.connect().add_lockspace(&lockspace, flag::ADD_ASYNC, 10), 0);

    let mut table = Table::default();
    table.expect("inquired while joining", host.connect().inq_lockspace(&lockspace, 0), -115);
    table.expect("the same while joining", host.connect().add_lockspace(&lockspace, 0, 10), -115);
    let other = scene.storage().lockspace(2);
    table.expect("another host id while joining", host.connect().add_lockspace(&other, 0, 10), -22);
    table.expect("hosts while joining", host.connect().get_hosts("LS", 0).0, -2);
    let mut client = host.connect();
    client.register();
    let acquired = client.acquire_one(&scene.storage().resource(1));
    let (_, listed) = host.connect().get_lockspaces();
    let flags: Vec<u32> = listed.iter().map(|entry| entry.flags).collect();
    // Where the machine stood still for so long that the join has ended, the lease was had rightly.
    if flags == [flag::LSF_ADD] {
        table.expect("acquire while joining", acquired, -28);
    }
    table.expect("flags while joining", flags, vec![flag::LSF_ADD]);
    let mut waiting = host.connect();
    waiting.set_limit(Duration::from_secs(90));
    table.expect("waited for", waiting.inq_lockspace(&lockspace, flag::INQ_WAIT), 0);
    table.expect("acquire once joined", client.acquire_one(&scene.storage().resource(1)), 0);
}

#[test]
fn a_removal_ends_a_join_under_way() {
    let Some(program) = Program::under_test() else { return };
    let storage = Storage::file();
    let host = Host::start(program, "host1");
    // Joining a lockspace of io timeout 10 takes 20 s.
    let _ = host.client(&["client", "init", "-s", &storage.lockspace_arg(0), "-o", "10"]).success();
    let mut join = host.client_in_background(&["client", "add_lockspace", "-s", &storage.lockspace_arg(1)]);
    bounded::wait_until("the join to begin", SOON, || {
        host.connect().inq_lockspace(&storage.lockspace(1), 0) == -115
    });
    assert_eq!(host.connect().rem_lockspace(&storage.lockspace(1), 0), 0);
    // What was waited for has come to its end.
    assert_eq!(join.finish(SOON).result(), Some(-201));
    assert_eq!(host.connect().inq_lockspace(&storage.lockspace(1), 0), -2);
}

#[test]
fn the_generation_grows_with_every_join() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 0);
    for generation in 1..=2 {
        let host = scene.host(0);
        let hosts = bounded::poll_for("the host table", SOON, || {
            let (result, hosts) = host.connect().get_hosts("LS", 1);
            (result == 0 && hosts.iter().any(|entry| entry.timestamp != 0)).then_some(hosts)
        });
        assert_eq!(hosts[0].generation, generation);
        if generation == 1 {
            host.leave(scene.storage(), 1);
            host.join(scene.storage(), 1);
        }
    }
}

#[test]
fn a_lockspace_being_added_is_found_by_those_who_only_look() {
    let Some(program) = Program::under_test() else { return };
    let storage = Storage::file();
    let host = Host::start(program, "host1");
    let _ = host.client(&["client", "init", "-s", &storage.lockspace_arg(0), "-o", "10"]).success();
    assert_eq!(host.connect().add_lockspace(&storage.lockspace(1), flag::ADD_ASYNC, 10), 0);
    let lockspace = Lockspace::new("LS", 0, "", 0).encode();
    let event = [lockspace.clone(), [2_u64, 0, 1, 1].map(u64::to_le_bytes).concat()].concat();
    let ask = |command: u32, data: u32, payload: &[u8]| {
        host.connect().request(command, 0, data, 0, payload).result()
    };
    let mut table = Table::default();
    table.expect("HOST_STATUS", ask(cmd::HOST_STATUS, 0, &lockspace), 0);
    table.expect("RENEWAL", ask(cmd::RENEWAL, 0, &lockspace), 0);
    table.expect("GET_HOSTS", ask(cmd::GET_HOSTS, 0, &lockspace), -2);
    table.expect("SET_CONFIG", ask(cmd::SET_CONFIG, flag::CONFIG_USED, &lockspace), -2);
    table.expect("REG_EVENT", ask(cmd::REG_EVENT, 0, &event), -2);
    table.expect("SET_EVENT", ask(cmd::SET_EVENT, 0, &event), -2);
}

#[test]
fn joining_at_strange_offsets() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::not_joined(program, 0);
    let path = scene.storage().path();
    let add =
        |offset: u64| scene.host(0).connect().add_lockspace(&Lockspace::new("LS", 1, path, offset), 0, 1);
    let mut table = Table::default();
    table.expect("no multiple of the sector size", add(100), -22);
    table.expect("beyond the end", add(1 << 30), -90);
    table.expect("the right one", add(0), 0);
}
