//! `kill -9` of the real daemon at every write of whatever it writes for, and at I/O calls of any kind: what is on disk then can be read,
//! another host gets the lease once this one must be dead, this one comes back and gets it too, and what was cut short can be done again.
//!
//! Needs root (a mount name space in which the daemons find a short `watchdog_fire_timeout`), FUSE or strace, and no watchdog: nothing
//! is left to protect once the client, a program that ends with the daemon, is gone. `SANLOCK_CRASH_CALLS=n` kills at every write, and
//! at the first n calls of each operation, instead of a choice of them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod host;
mod operations;

use host::{Holder, both, direct, kill_at, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use operations::{OPERATIONS, Operation, Scene};
use sanlock_blockio::drive::monotonic_now;
use sanlock_served::{ServedFile, Trouble};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Leases are read and written by ordinary calls, lockspaces through an engine of the kernel.
const CALLS: &str = "pread64,pwrite64,io_submit,io_uring_enter";
/// Cases at a time; they mostly wait.
const AT_A_TIME: usize = 16;
/// Everything answers within this time, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// Seconds. With a second, an I/O that a busy machine delays is one that has failed.
const IO_TIMEOUT: &str = "2";
/// From the signal to the end of all threads of the daemon, so that none sees how its write ended.
const DYING: Duration = Duration::from_millis(100);

/// Seconds after its last renewal for which a host cannot be known to be dead: 8 io timeouts and the watchdog's 4 s.
const ALIVE: u64 = 20;
/// What somebody hears who does not wait for an owner: it is alive, or nothing is known of it.
const REFUSED_AT_ONCE: [i32; 2] = [-243, -247];
/// What somebody may hear who waits: the owner is alive; it decided a version of its own, or one of a host that was before; it holds the lease
/// shared. Or an I/O was delayed by a busy machine.
const REFUSED: [i32; 5] = [-243, -244, -245, -11, -202];

/// Where the daemon is killed.
#[derive(Clone, Copy, Debug)]
enum At {
    /// Instead of this write of the operation; after the last one if there are fewer.
    Write(u32),
    /// Before this I/O call of any of its threads, of the operation or of what its lockspace does meanwhile.
    Call(u32),
}

fn pid_of(scene: &Scene) -> Pid {
    Pid::from_raw(scene.first.daemon.id().try_into().unwrap())
}

/// The daemon of the first host is killed in the operation.
fn kill_in(scene: &mut Scene, at: At, operation: &Operation, holder: Option<&Holder>, what: &str) {
    let (daemon, process) = (pid_of(scene), holder.map_or(0, Holder::pid));
    match at {
        At::Write(n) => {
            let disk = scene.served.as_ref().unwrap();
            disk.stop(operation.writes_to.clone(), n, move || {
                kill(daemon, Signal::SIGKILL).unwrap();
                std::thread::sleep(DYING);
            });
            (operation.act)(scene, process);
            let fewer = operation.writes.filter(|writes| n > *writes);
            if fewer.is_some() {
                assert!(scene.served.as_ref().unwrap().go_on(), "{what}: more than {fewer:?} writes");
                kill(daemon, Signal::SIGKILL).unwrap();
            }
        }
        At::Call(n) => {
            let mut strace = kill_at(&scene.first, n);
            (operation.act)(scene, process);
            until(&format!("{what}: the daemon to be killed"), || strace.try_wait().unwrap().is_some());
        }
    }
    let mut ended = None;
    until(&format!("{what}: the daemon to be killed"), || {
        ended = scene.first.daemon.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.and_then(|status| status.signal()), Some(9), "{what}: {ended:?}");
}

/// One case. Whether the lease was owned when the daemon had been killed.
fn killed(at: At, operation: &Operation) -> bool {
    let what = format!("{}, killed at {at:?}", operation.name);
    let dir = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(dir.path(), matches!(at, At::Write(_)));
    (operation.format)(&scene);
    scene.join(2);
    if operation.joined {
        scene.join(1);
    }
    let holder = (operation.prepare)(&scene);
    let generation = scene.generation(1);

    kill_in(&mut scene, at, operation, holder.as_ref(), &what);
    drop(holder);
    // What is on disk can be read, and is nobody's but ours.
    let resource = scene.resource_on_disk();
    for target in [["-r", &resource], ["-s", &scene.lockspace(1)]] {
        let output = both(&direct(&[&["read_leader"][..], &target].concat()));
        let owner = output.lines().find(|line| line.starts_with("owner_id ")).unwrap_or_default();
        assert!(output.contains("read_leader done 0\n"), "{what}: {output}");
        assert!(["owner_id 0", "owner_id 1"].contains(&owner), "{what}: {output}");
    }
    let left = scene.generation(1);
    assert!(left >= generation, "DOUBLE OWNER: {what}: generation {left} after {generation}");
    (operation.look)(&scene, &what);

    // Until the dead one must be dead, it is refused.
    let owned = scene.is_owned_by_the_first();
    if owned {
        let renewed = scene.last_renewal(1);
        let code = scene.takes_without_waiting();
        // A machine that stood still may have let the owner die meanwhile.
        let after = monotonic_now().secs() - renewed;
        assert!(
            code != 0 || after >= ALIVE,
            "DOUBLE OWNER: {what}: granted {after} s after the last renewal of its owner"
        );
        assert!(code == 0 || REFUSED_AT_ONCE.contains(&code), "{what}: {code}");
    }

    // The other host waits for the dead one as long as it has to, and gets the lease.
    let mut other = scene.second.client(&scene.takes(2));
    let other = other.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    scene.first.restart();
    scene.join(1);
    let joined = scene.generation(1);
    assert!(joined > left, "DOUBLE OWNER: {what}: generation {joined} after {left}");
    let taken = other.wait_with_output().unwrap();
    if !taken.status.success() {
        let said = both(&taken);
        let documented = REFUSED.iter().any(|code| said.contains(&format!("acquire done {code}\n")));
        assert!(documented, "{what}: {said}");
        // A shared holder may have been alive, and then the version being decided was the dead host's: after that nothing is in the way.
        let again = scene.second.client(&scene.takes(2)).output().unwrap();
        if !again.status.success() {
            scene.second.ok(&what, &scene.takes(2));
        }
    }
    // So does the one that came back.
    until(&format!("{what}: the host that came back gets the lease"), || {
        scene.first.client(&scene.takes(1)).output().unwrap().status.success()
    });
    (operation.again)(&scene, &what);
    println!("{what}: well");
    owned
}

fn all_of_them(cases: Vec<(At, &Operation)>) {
    let (cases, owned) = (Mutex::new(cases.into_iter()), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some((at, operation)) = next(&cases) {
                    owned.fetch_add(killed(at, operation).into(), Ordering::Relaxed);
                }
            });
        }
    });
    assert!(owned.into_inner() > 0, "nobody was refused a lease of the dead host");
}

fn next<T>(cases: &Mutex<std::vec::IntoIter<T>>) -> Option<T> {
    cases.lock().unwrap().next()
}

fn all() -> Option<u32> {
    std::env::var("SANLOCK_CRASH_CALLS").ok().and_then(|n| n.parse().ok())
}

fn skips(why: &str) -> bool {
    assert!(std::env::var_os("CI").is_none(), "{why}, and CI must not skip");
    eprintln!("skipped: {why}");
    true
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root() || !skips("root is needed")
}

#[test]
fn a_daemon_that_is_killed_at_any_write_leaves_what_can_be_used_and_done_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, [0; 4096]).unwrap();
    if !is_root()
        || ServedFile::over(&file, dir.path(), Trouble::default()).is_err() && skips("FUSE is needed")
    {
        return;
    }
    let points = |operation: &Operation| match operation.writes {
        Some(writes) if all().is_some() => (1..=writes + 1).collect(),
        _ => operation.points.to_vec(),
    };
    let cases = OPERATIONS.iter().flat_map(|o| points(o).into_iter().map(move |n| (At::Write(n), o)));
    all_of_them(cases.collect());
}

#[test]
fn so_does_one_that_is_killed_at_any_call() {
    let strace = Path::new("/usr/bin/strace").exists();
    if !is_root() || !strace && skips("strace is needed") {
        return;
    }
    let calls = |operation: &Operation| all().map_or_else(|| operation.calls.to_vec(), |n| (1..=n).collect());
    // Nobody calls anything any more after a host has left.
    let cases = OPERATIONS
        .iter()
        .filter(|o| o.stays)
        .flat_map(|o| calls(o).into_iter().map(move |n| (At::Call(n), o)));
    all_of_them(cases.collect());
}
