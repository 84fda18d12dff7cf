//! A leader that a late write rolls back by two versions, under the host that owns the lease or after it (schedule CE3 of
//! lease-algorithms.md 13.7, rule R9). The original loops for ever; a host of ours brings the leader back, and the
//! original finds its way out.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use sanlock_conformance::dead_owner::registered;
use sanlock_conformance::scene::acquire_soon;
use sanlock_conformance::{Connection, Program, Scene, Storage, bounded};

const SECTOR: usize = 512;
/// How long the original is watched going round: an acquire that gets anywhere takes some milliseconds.
const LOOPS: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(40);

/// Hosts of the scene: two originals, then ours.
const B: usize = 0;
const A: usize = 1;
const OURS: usize = 2;

fn open(scene: &Scene) -> File {
    let file = OpenOptions::new().read(true).write(true).open(scene.storage().path());
    file.unwrap_or_else(|error| panic!("{}: {error}", scene.storage().path()))
}

fn sector(scene: &Scene, number: u64) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    let at = scene.storage().offset(1) + number * SECTOR as u64;
    open(scene).read_exact_at(&mut bytes, at).expect("the sector is read");
    bytes
}

/// `mbal` and `lver` of the block of the host with this index (disk-format.md 7.4).
fn block(scene: &Scene, host: usize) -> (u64, u64) {
    let bytes = sector(scene, host as u64 + 2);
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    (number(0), number(40))
}

/// Version 1 free is on disk again; A has had version 2 and has version 3.
fn rolled_back() -> Option<(Scene, Connection)> {
    if !Program::both_available() {
        return None;
    }
    let programs = [Program::Reference, Program::Reference, Program::Ours];
    let scene = Scene::joined(Storage::file(), &programs, 1);
    scene.wait_until_all_see_all();
    let resource = scene.storage().resource(1);
    assert_eq!(scene.owning(B, 1).release_one(&resource), 0);
    let first = sector(&scene, 0);
    assert_eq!(scene.owning(A, 1).release_one(&resource), 0);
    let a = scene.owning(A, 1);
    assert_eq!((scene.lver(1), scene.owner(1)), (3, Some((A as u64 + 1, 1))));
    let file = open(&scene);
    file.write_all_at(&first, scene.storage().offset(1)).expect("the leader is written");
    file.sync_all().expect("the leader is on disk");
    assert_eq!((scene.lver(1), scene.owner(1)), (1, None));
    Some((scene, a))
}

/// The original's acquire gets nowhere: ballot after ballot for version 2.
fn goes_round(scene: &Scene) -> thread::JoinHandle<(Connection, i32)> {
    let mut b = registered(scene.host(B));
    let resource = scene.storage().resource(1);
    b.set_limit(Duration::from_secs(60));
    let asking = thread::spawn(move || {
        let result = b.acquire_one(&resource);
        (b, result)
    });
    thread::sleep(LOOPS);
    assert!(!asking.is_finished());
    let (mbal, lver) = block(scene, B);
    assert_eq!((lver, scene.lver(1)), (2, 1));
    bounded::wait_until("the next ballot", LIMIT, || block(scene, B).0 > mbal);
    asking
}

#[test]
fn under_its_owner_the_leader_is_brought_back_and_the_owner_keeps_the_lease() {
    let Some((scene, mut a)) = rolled_back() else { return };
    let resource = scene.storage().resource(1);
    let asking = goes_round(&scene);
    let mut ours = registered(scene.host(OURS));
    assert_eq!(ours.acquire_one(&resource), -245, "ours finds the owner of version 3 and commits it again");
    assert_eq!((scene.lver(1), scene.owner(1)), (3, Some((A as u64 + 1, 1))));
    assert_eq!(ours.acquire_one(&resource), -243);
    let (mut b, result) = asking.join().unwrap();
    assert_eq!(result, -243, "the original's acquire has ended too");
    assert_eq!(a.release_one(&resource), 0);
    bounded::wait_until("the original to be granted the lease", LIMIT, || b.acquire_one(&resource) == 0);
    assert_eq!((scene.lver(1), scene.owner(1)), (4, Some((B as u64 + 1, 1))));
    assert_eq!(ours.acquire_one(&resource), -243);
    assert_eq!(b.release_one(&resource), 0);
    let (_ours, _) = acquire_soon(scene.host(OURS), scene.storage(), 1, LIMIT);
    assert_eq!(scene.lver(1), 5);
}

/// The original goes round even when nobody has the lease any more.
#[test]
fn after_its_owner_let_go_the_lease_is_to_be_had_again() {
    let Some((scene, mut a)) = rolled_back() else { return };
    let resource = scene.storage().resource(1);
    assert_eq!(a.release_one(&resource), 0, "by flag: another host wrote the leader");
    let asking = goes_round(&scene);
    let (mut ours, _) = acquire_soon(scene.host(OURS), scene.storage(), 1, LIMIT);
    assert_eq!(scene.lver(1), 4);
    assert_eq!(ours.release_one(&resource), 0);
    // Whoever asked beside ours was refused by it, or has committed it, or has the lease now.
    let (mut b, result) = asking.join().unwrap();
    assert!([0, -243, -245].contains(&result), "{result}");
    bounded::wait_until("the original to have the lease", LIMIT, || {
        result == 0 || b.acquire_one(&resource) == 0
    });
    assert_eq!((scene.lver(1), scene.owner(1)), (5, Some((B as u64 + 1, 1))));
}
