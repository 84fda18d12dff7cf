//! REM_LOCKSPACE, socket-protocol.md 7.3.

use std::path::Path;
use std::time::{Duration, Instant};

use sanlock_conformance::dead_owner::registered;
use sanlock_conformance::raw::flag;
use sanlock_conformance::{Holder, Host, Lockspace, Program, Scene, bounded};

use crate::{SOON, Table};

#[test]
fn only_an_exact_match_is_removed_and_host_id_0_matches_any() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 0);
    let path = scene.storage().path();
    let mut table = Table::default();
    let rows = [
        ("another name", Lockspace::new("OTHER", 1, path, 0), -2),
        ("another host id", Lockspace::new("LS", 2, path, 0), -2),
        ("another path", Lockspace::new("LS", 1, "/dev/null", 0), -2),
        ("another offset", Lockspace::new("LS", 1, path, 1 << 20), -2),
        ("empty path", Lockspace::new("LS", 1, "", 0), -2),
        ("host id 0", Lockspace::new("LS", 0, path, 0), 0),
        ("the same again", scene.storage().lockspace(1), -2),
    ];
    for (case, lockspace, expected) in rows {
        table.expect(case, scene.host(0).connect().rem_lockspace(&lockspace, 0), expected);
    }
    let (result, read) = {
        let (result, _, read) = scene.host(0).connect().read_lockspace(&scene.storage().lockspace(1));
        (result, read)
    };
    table.expect("the lease is still there", (result, read.name), (0, b"LS".to_vec()));
}

#[test]
fn a_used_lockspace_stays_when_only_an_unused_one_may_go() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let host = scene.host(0);
    let mut client = scene.owning(0, 1);
    let lockspace = scene.storage().lockspace(1);
    assert_eq!(host.connect().rem_lockspace(&lockspace, flag::REM_UNUSED), -16);
    assert_eq!(host.connect().inq_lockspace(&lockspace, 0), 0);
    assert_eq!(client.inquire(None).count, 1, "the lease is still held");
    assert_eq!(client.release_one(&scene.storage().resource(1)), 0);
    assert_eq!(host.connect().rem_lockspace(&lockspace, flag::REM_UNUSED), 0);
    assert_eq!(host.connect().inq_lockspace(&lockspace, 0), -2);
}

/// Whether the host leaves or its daemon is made to end: its leases are free for others because it is gone, not because of a write.
#[test]
fn what_is_held_is_not_released_on_disk_when_its_holder_is_killed() {
    let Some(program) = Program::under_test() else { return };
    let parts = [false, true].map(|ends| {
        let case = move || {
            let mut scene = Scene::two_hosts(program, 2);
            scene.wait_until_all_see_all();
            let resources =
                [scene.storage().resource_arg(1), format!("{}:SH", scene.storage().resource_arg(2))];
            let mut holder = Holder::start(scene.host(1), &[&resources[0], &resources[1]]);
            if ends {
                let _ = scene.host(1).client(&["client", "shutdown", "-f", "1", "-w", "1"]).success();
                assert!(scene.host_mut(1).wait_for_end(SOON).success());
            } else {
                scene.host(1).leave(scene.storage(), 2);
            }
            assert_eq!(holder.finish(SOON).code, 128 + 9, "SIGKILL ends the holder");
            // Exclusive, and shared.
            assert_eq!((scene.owner(1), scene.owner(2)), (Some((2, 1)), Some((2, 1))));
            let mut other = registered(scene.host(0));
            for n in [1, 2] {
                let acquired = || other.acquire_one(&scene.storage().resource(n)) == 0;
                bounded::wait_until("the lease to be had", SOON, acquired);
            }
        };
        let part: Box<dyn FnOnce() + Send> = Box::new(case);
        (if ends { "the daemon ends" } else { "the host leaves" }.to_owned(), part)
    });
    bounded::side_by_side(Vec::from(parts));
}

#[test]
fn holders_are_killed_and_the_host_id_is_given_back() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let host = scene.host(0);
    let mut holder = Holder::start(host, &[&scene.storage().resource_arg(1)]);
    assert_eq!(host.connect().rem_lockspace(&scene.storage().lockspace(1), 0), 0);
    let end = holder.finish(SOON);
    assert_eq!(end.code, 128 + 9, "SIGKILL ends the holder: {end}");
    let text = host.client(&["direct", "read_leader", "-s", &scene.storage().lockspace_arg(1)]).success();
    assert!(text.stdout.contains("\ntimestamp 0\n"), "the host id lease is free: {text}");
}

#[test]
fn a_process_without_leases_in_it_survives() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let host = scene.host(0);
    let mut idle = Holder::start(host, &[]);
    bounded::wait_until("the process to be registered", SOON, || idle.leases(host).is_some());
    host.leave(scene.storage(), 1);
    assert!(!idle.ended());
    assert_eq!(idle.leases(host), Some(vec![]), "it is still registered");
}

#[test]
fn an_asynchronous_removal_answers_at_once_and_the_lockspace_is_busy_until_it_is_gone() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let host = scene.host(0);
    let lockspace = scene.storage().lockspace(1);
    let begin = Instant::now();
    assert_eq!(host.connect().rem_lockspace(&lockspace, flag::REM_ASYNC), 0);
    assert!(begin.elapsed() < Duration::from_secs(8), "answered after {:?}", begin.elapsed());

    let mut seen = Vec::new();
    let mut refused = false;
    bounded::wait_until("the lockspace to be gone", SOON, || {
        let inquired = host.connect().inq_lockspace(&lockspace, 0);
        if inquired == -2 {
            return true;
        }
        seen.push(inquired);
        // In a process of its own: the removal kills holders.
        let arg = scene.storage().resource_arg(1);
        let asked = host.client(&["client", "command", "-r", &arg, "-c", "/bin/true"]);
        let now_refused = asked.result() == Some(-28);
        // The original takes up to a second to notice the removal and grants until then.
        let too_late = refused || program == Program::Ours;
        let granted = asked.result() == Some(0);
        assert!(!(granted && too_late), "DOUBLE OWNER: granted in a lockspace being removed: {asked}");
        assert!(now_refused || !too_late, "{asked}");
        refused = now_refused;
        false
    });
    assert!(seen.iter().all(|code| matches!(code, 0 | -115)), "answers until it was gone: {seen:?}");
    assert!(seen.is_sorted_by(|earlier, later| earlier >= later), "joined again in between: {seen:?}");
    assert_eq!(host.connect().add_lockspace(&lockspace, 0, 1), 0, "it can be joined again");
}

#[test]
fn a_lockspace_being_removed_is_neither_joined_again_nor_forgotten() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 0);
    let host = scene.host(0);
    let lockspace = scene.storage().lockspace(1);
    assert_eq!(host.connect().rem_lockspace(&lockspace, flag::REM_ASYNC), 0);
    let mut seen = Vec::new();
    bounded::wait_until("a new join to begin", SOON, || {
        let code = host.connect().add_lockspace(&lockspace, flag::ADD_ASYNC, 1);
        seen.push(code);
        code == 0
    });
    // Joined until the users are gone (-17), then being removed (-11), then free (0).
    assert!(seen.iter().all(|code| matches!(code, -17 | -11 | 0)), "answers in order: {seen:?}");
    if program == Program::Reference {
        assert!(seen.contains(&-11), "the original shows the removal for a second: {seen:?}");
    }
    assert_eq!(host.connect().inq_lockspace(&lockspace, flag::INQ_WAIT), 0);
}

/// Whether the daemon has this file open.
fn has_open(host: &Host, path: &str) -> bool {
    let fds = std::fs::read_dir(format!("/proc/{}/fd", host.pid())).expect("the daemon runs");
    fds.flatten().any(|fd| std::fs::read_link(fd.path()).is_ok_and(|link| link == Path::new(path)))
}

#[test]
fn the_disk_of_a_lockspace_is_closed_when_its_removal_is_answered() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let (host, path) = (scene.host(0), scene.storage().path());
    let lockspace = scene.storage().lockspace(1);
    for round in 0..3 {
        let mut client = scene.owning(0, 1);
        assert_eq!(client.release_one(&scene.storage().resource(1)), 0);
        drop(client);
        assert!(has_open(host, path));
        assert_eq!(host.connect().rem_lockspace(&lockspace, 0), 0);
        // Whoever waits for the answer deactivates a volume, or unmounts a file system.
        assert!(!has_open(host, path), "round {round}");
        assert_eq!(host.connect().add_lockspace(&lockspace, 0, 1), 0);
    }
    assert_eq!(host.connect().rem_lockspace(&lockspace, 0), 0);
    // Nor does a join that failed leave anything.
    let _ = host.client(&["direct", "init", "-s", &format!("OTHER:0:{path}:0"), "-o", "1"]).success();
    assert_eq!(host.connect().add_lockspace(&lockspace, 0, 1), -226);
    assert!(!has_open(host, path), "after a join that failed");
}
