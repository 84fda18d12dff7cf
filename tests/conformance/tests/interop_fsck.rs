//! `sanlock fsck` beside running daemons of both programs: read-only it disturbs nobody, it repairs nothing while anybody renews,
//! and what it repaired when all had left is used by both.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use sanlock_conformance::bounded::{self, Output, dying_with_us};
use sanlock_conformance::dead_owner::registered;
use sanlock_conformance::{Program, Scene, Storage};

const SECTOR: u64 = 512;
const LIMIT: Duration = Duration::from_secs(60);
/// The hosts of the scene.
const ORIGINAL: usize = 0;
const OURS: usize = 1;

/// Runs it as on a machine whose daemon has its sockets in `run_dir`.
fn fsck(scene: &Scene, run_dir: &Path, options: &[&str]) -> Output {
    let mut command = dying_with_us(&Program::Ours.path());
    command.arg("fsck").args(options).arg(scene.storage().path());
    command.env("SANLOCK_RUN_DIR", run_dir).current_dir(scene.storage().dir());
    bounded::run(command, LIMIT)
}

#[test]
fn what_is_repaired_when_all_have_left_is_used_by_both_programs() {
    if !Program::both_available() {
        return;
    }
    let scene = Scene::joined(Storage::file(), &[Program::Reference, Program::Ours], 1);
    scene.wait_until_all_see_all();
    let elsewhere = Path::new("/nonexistent");
    let resource = scene.storage().resource(1);
    for host in [ORIGINAL, OURS] {
        let mut owner = scene.owning(host, 1);
        let clean = fsck(&scene, elsewhere, &[]);
        assert_eq!(clean.code, 0, "{clean}");
        assert_eq!(owner.release_one(&resource), 0);
    }

    // The ballot record of host id 9 is damaged: nobody gets the lease any more.
    let at = scene.storage().offset(1) + 10 * SECTOR;
    let file = OpenOptions::new().write(true).open(scene.storage().path()).expect("the lease file opens");
    file.write_all_at(&[0xa5; 56], at).expect("the record is written");
    for host in [ORIGINAL, OURS] {
        assert_eq!(registered(scene.host(host)).acquire_one(&resource), -214, "host {host}");
    }
    let damaged = fsck(&scene, elsewhere, &[]);
    assert_eq!(damaged.code, 1, "{damaged}");

    // Nothing is repaired by a host whose daemon is in the lockspace, nor by any other while somebody renews.
    for (run_dir, why) in [
        (scene.host(ORIGINAL).run_dir(), "the daemon on this host has joined it"),
        (scene.host(OURS).run_dir(), "the daemon on this host has joined it"),
        (elsewhere, "its record has just changed"),
    ] {
        let refused = fsck(&scene, run_dir, &["--repair"]);
        assert_eq!(refused.code, 4, "{refused}");
        assert!(refused.stderr.contains(why), "{refused}");
    }

    for (index, host) in scene.hosts().iter().enumerate() {
        host.leave(scene.storage(), index as u64 + 1);
    }
    let repaired = fsck(&scene, scene.host(ORIGINAL).run_dir(), &["--repair"]);
    assert_eq!(repaired.code, 2, "{repaired}");
    for (index, host) in scene.hosts().iter().enumerate() {
        host.join(scene.storage(), index as u64 + 1);
    }
    scene.wait_until_all_see_all();
    for (host, other) in [(ORIGINAL, OURS), (OURS, ORIGINAL)] {
        let mut owner = scene.owning(host, 1);
        assert_eq!(registered(scene.host(other)).acquire_one(&resource), -243, "host {host} owns it");
        assert_eq!(owner.release_one(&resource), 0);
    }
    let clean = fsck(&scene, elsewhere, &[]);
    assert_eq!(clean.code, 0, "{clean}");
}

/// What is half written when it is looked at is no damage.
#[test]
fn while_hosts_are_at_work_nothing_is_found() {
    if !Program::both_available() {
        return;
    }
    let scene = Scene::joined(Storage::file(), &[Program::Reference, Program::Ours], 2);
    scene.wait_until_all_see_all();
    let stop = AtomicBool::new(false);
    let taken = AtomicU32::new(0);
    thread::scope(|scope| {
        for host in [ORIGINAL, OURS] {
            for resource in [1, 2] {
                let mut connection = registered(scene.host(host));
                let resource = scene.storage().resource(resource);
                let (stop, taken) = (&stop, &taken);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        if connection.acquire_one(&resource) == 0 {
                            taken.fetch_add(1, Ordering::Relaxed);
                            assert_eq!(connection.release_one(&resource), 0);
                        }
                    }
                });
            }
        }
        let looks: Vec<Output> = (0..20).map(|_| fsck(&scene, Path::new("/nonexistent"), &[])).collect();
        stop.store(true, Ordering::Relaxed);
        for look in looks {
            assert_eq!(look.code, 0, "{look}");
        }
    });
    assert!(taken.load(Ordering::Relaxed) > 20, "there was something to look at");
}
