//! GET_HOSTS, socket-protocol.md 7.22.

use nix::time::{ClockId, clock_gettime};
use sanlock_conformance::{Host, Program, Scene, Storage, bounded};

use crate::{SOON, Table};

const FREE: u32 = 2;
const LIVE: u32 = 3;

#[test]
fn hosts_are_listed_with_generation_io_timeout_and_state() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::two_hosts(program, 0);
    scene.wait_until_all_see_all();
    let (result, hosts) = scene.host(0).connect().get_hosts("LS", 0);
    assert_eq!(result, 0);
    let known: Vec<_> =
        hosts.iter().map(|host| (host.host_id, host.generation, host.io_timeout, host.flags & 0xf)).collect();
    assert_eq!(known, [(1, 1, 1, LIVE), (2, 1, 1, LIVE)]);
    assert!(hosts.iter().all(|host| host.timestamp != 0));
}

#[test]
fn one_host_can_be_asked_for_even_if_it_was_never_there() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 0);
    scene.wait_until_all_see_all();
    let mut table = Table::default();
    let ask = |host_id| {
        let (result, hosts) = scene.host(0).connect().get_hosts("LS", host_id);
        let states: Vec<_> = hosts.iter().map(|host| (host.host_id, host.flags & 0xf)).collect();
        (result, states)
    };
    table.expect("the own host", ask(1), (0, vec![(1, LIVE)]));
    table.expect("all", ask(0), (0, vec![(1, LIVE)]));
    table.expect(
        "a host id never used",
        {
            let (result, states) = ask(5);
            (result, states.iter().map(|(_, state)| (0, *state)).collect())
        },
        (0, vec![(0, FREE)]),
    );
    table.expect("a host id above the maximum", ask(2001), (0, vec![]));
}

#[test]
fn an_unknown_lockspace_has_no_hosts() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 0);
    assert_eq!(scene.host(0).connect().get_hosts("OTHER", 0).0, -2);
}

#[test]
fn right_after_the_join_the_table_may_not_be_ready() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 0);
    let mut answers = Vec::new();
    bounded::wait_until("the host table", SOON, || {
        let (result, hosts) = scene.host(0).connect().get_hosts("LS", 0);
        answers.push(result);
        result == 0 && !hosts.is_empty()
    });
    assert!(answers.iter().all(|code| matches!(code, 0 | -11)), "{answers:?}");
}

#[test]
fn a_host_that_left_is_free_and_no_longer_listed() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::two_hosts(program, 0);
    scene.wait_until_all_see_all();
    scene.host(1).leave(scene.storage(), 2);
    bounded::wait_until("host 2 to be seen free", SOON, || {
        let (_, hosts) = scene.host(0).connect().get_hosts("LS", 2);
        hosts.iter().any(|host| host.flags & 0xf == FREE && host.timestamp == 0)
    });
    let (_, hosts) = scene.host(0).connect().get_hosts("LS", 0);
    assert_eq!(hosts.iter().map(|host| host.host_id).collect::<Vec<_>>(), [1]);
}

/// With an io timeout of 2 s, a host id that was never used is looked at every 7 s here, and every 4 to 6 s by the original; then come the seconds
/// of a machine that does much else.
#[test]
fn a_host_on_a_host_id_never_used_before_is_listed_soon() {
    let Some(program) = Program::under_test() else { return };
    let storage = Storage::file();
    let hosts = [1, 2].map(|n| Host::start(program, &format!("host{n}")));
    hosts[0].init(&storage, 0);
    let join = |host: &Host, id: u64| {
        let lockspace = storage.lockspace_arg(id);
        let _ = host.client(&["client", "add_lockspace", "-s", &lockspace, "-o", "2"]).success();
    };
    join(&hosts[0], 1);
    let listed =
        |id: u64| hosts[0].connect().get_hosts("LS", 0).1.into_iter().find(|host| host.host_id == id);
    bounded::wait_until("the host table", SOON, || listed(1).is_some());
    join(&hosts[1], 1999);
    let found = bounded::poll_for("host 1999 to be listed", SOON, || listed(1999));
    // All hosts of the test go by one clock: this is the second of its last renewal that was seen, or of its join.
    let clock = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap_or_else(|error| panic!("clock: {error}"));
    let age = u64::try_from(clock.tv_sec()).unwrap_or(0).saturating_sub(found.timestamp);
    assert!(age <= 15, "seen {age} s after it wrote its record");
}
