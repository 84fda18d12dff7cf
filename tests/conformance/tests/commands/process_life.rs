//! A lease lives as long as the last copy of the registered connection (socket-protocol.md 2.5).

use sanlock_conformance::bounded;
use sanlock_conformance::holder::leases_of;
use sanlock_conformance::host::pid_of;
use sanlock_conformance::{Holder, Program, Scene};

use nix::sys::signal::{Signal, kill};

use crate::SOON;

#[test]
fn the_lease_of_a_killed_process_is_released() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 2);
    let args = [scene.storage().resource_arg(1), scene.storage().resource_arg(2)];
    let mut holder = Holder::start(scene.host(0), &[&args[0], &args[1]]);
    assert_eq!((scene.owner(1), scene.owner(2)), (Some((1, 1)), Some((1, 1))));
    holder.kill();
    scene.wait_until_free(1, SOON);
    scene.wait_until_free(2, SOON);
    assert_eq!(holder.leases(scene.host(0)), None, "the process is no longer registered");
}

#[test]
fn the_lease_of_a_process_that_exits_is_released() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let run = scene.host(0).client(&[
        "client",
        "command",
        "-r",
        &scene.storage().resource_arg(1),
        "-c",
        "/bin/sh",
        "-c",
        "exit 5",
    ]);
    assert_eq!(run.code, 5, "the exit status is the command's: {run}");
    scene.wait_until_free(1, SOON);
    assert_eq!(scene.lver(1), 1, "it was held once");
}

#[test]
fn a_connection_that_is_closed_loses_its_lease() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 2);
    let mut first = scene.host(0).connect();
    let mut second = scene.host(0).connect();
    first.register();
    second.register();
    assert_eq!(first.acquire_one(&scene.storage().resource(1)), 0);
    assert_eq!(second.acquire_one(&scene.storage().resource(2)), 0);
    drop(first);
    scene.wait_until_free(1, SOON);
    assert_eq!(scene.owner(2), Some((1, 1)), "another connection of the same process keeps its own");
}

/// A background child that outlives its parent, ended by its own number.
struct Orphan(u32);

impl Drop for Orphan {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = kill(pid_of(self.0), Signal::SIGKILL);
    }
}

#[test]
fn a_background_child_with_the_descriptor_keeps_the_lease_after_its_parent_is_gone() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let host = scene.host(0);
    let note = scene.storage().dir().join("child");
    let script = format!("sleep 1000 & echo $! > {0}.new; mv {0}.new {0}; exit 0", note.display());
    let arg = scene.storage().resource_arg(1);
    let mut parent = Holder::start_waiting(host, &[&arg], &["/bin/sh", "-c", &script]);
    let pid = parent.pid();
    assert_eq!(parent.finish(SOON).code, 0);
    let child = std::fs::read_to_string(&note).unwrap().trim().parse().unwrap();
    let orphan = Orphan(child);

    // Long enough for a daemon that watches the process instead of the connection to act.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let leases = leases_of(host, pid).unwrap_or_default();
    assert_eq!(leases, [format!("{arg}:1")], "still held under the parent's number");
    assert_eq!(scene.owner(1), Some((1, 1)));
    let mut other = host.connect();
    other.register();
    assert_eq!(other.acquire_one(&scene.storage().resource(1)), -17);

    drop(orphan);
    scene.wait_until_free(1, SOON);
    bounded::wait_until("the parent to be forgotten", SOON, || leases_of(host, pid).is_none());
    // Free on disk a moment before the release has ended (-11).
    bounded::wait_until("the lease to be had", SOON, || {
        match other.acquire_one(&scene.storage().resource(1)) {
            0 => true,
            -11 => false,
            other => panic!("{other}"),
        }
    });
}

#[test]
fn a_stopped_process_keeps_its_lease() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let holder = Holder::start(scene.host(0), &[&scene.storage().resource_arg(1)]);
    kill(pid_of(holder.pid()), Signal::SIGSTOP).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(holder.leases(scene.host(0)).map(|leases| leases.len()), Some(1));
    assert_eq!(scene.owner(1), Some((1, 1)));
}

#[test]
fn registering_twice_changes_nothing() {
    let Some(program) = Program::ours_under_test("forgets the leases of a process that registers twice")
    else {
        return;
    };
    let scene = Scene::one_host(program, 1);
    let mut client = scene.owning(0, 1);
    client.register();
    assert_eq!(client.inquire(None).count, 1);
    drop(client);
    scene.wait_until_free(1, SOON);
}
