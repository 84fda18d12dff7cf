//! A host changes from one program to the other, and back, while other hosts hold leases: what `docs/guide/migrating.md` tells.

use std::time::{Duration, Instant};

use sanlock_conformance::dead_owner::registered;
use sanlock_conformance::scene::acquire_soon;
use sanlock_conformance::{Holder, Program, Scene, Storage, StorageKind, bounded};

/// Leaving, ending and joining a free host id; the long wait for a dead host is 68 s and more.
const SOON: Duration = Duration::from_secs(30);

#[test]
fn on_a_file_hosts_change_program_while_others_hold_leases() {
    change_over_and_back(StorageKind::File);
}

#[test]
fn on_4096_byte_sectors_hosts_change_program_while_others_hold_leases() {
    change_over_and_back(StorageKind::Loop4096);
}

/// Both hosts begin with the original; one after the other goes over to ours, and back.
fn change_over_and_back(kind: StorageKind) {
    if !Program::both_available() {
        return;
    }
    let Some(storage) = Storage::new(kind) else { return };
    let mut scene = Scene::joined(storage, &[Program::Reference, Program::Reference], 3);
    scene.wait_until_all_see_all();
    let steps = [(1, Program::Ours), (0, Program::Ours), (1, Program::Reference), (0, Program::Reference)];
    for (round, (index, program)) in (2u64..).zip(steps) {
        change(&mut scene, index, program, round.div_euclid(2) + 1);
    }
}

/// Host `index` changes to `program` and joins with `generation`; the other one holds a lease alone and shares one meanwhile.
fn change(scene: &mut Scene, index: usize, program: Program, generation: u64) {
    let other = 1 - index;
    let host_id = index as u64 + 1;
    let (mut owner, _) = acquire_soon(scene.host(other), scene.storage(), 1, SOON);
    let shared = format!("{}:SH", scene.storage().resource_arg(2));
    let mut sharer = Holder::start(scene.host(other), &[&shared]);
    let before = (scene.owner(1), scene.lver(1));
    assert_eq!(before.0.map(|(owner, _)| owner), Some(other as u64 + 1));

    let begin = Instant::now();
    scene.host(index).leave(scene.storage(), host_id);
    scene.host_mut(index).terminate();
    let status = scene.host_mut(index).wait_for_end(SOON);
    assert!(status.success(), "{status:?}");
    scene.host_mut(index).restart_as(program);
    scene.host(index).join(scene.storage(), host_id);
    assert!(begin.elapsed() < SOON, "a host id that was given back needs no wait: {:?}", begin.elapsed());

    // Nothing has changed for what the other host holds.
    assert_eq!((scene.owner(1), scene.lver(1)), before, "to {program:?}");
    let mut here = registered(scene.host(index));
    assert_eq!(here.acquire_one(&scene.storage().resource(1)), -243);
    let sharer_here = Holder::start(scene.host(index), &[&shared]);
    // A lease of one's own, under the new generation.
    let (mut holder, _) = acquire_soon(scene.host(index), scene.storage(), 3, SOON);
    assert_eq!(scene.owner(3), Some((host_id, generation)));
    bounded::wait_until("the other host to see the new generation", SOON, || {
        let (result, hosts) = scene.host(other).connect().get_hosts("LS", host_id);
        result == 0 && hosts.iter().any(|host| (host.generation, host.flags & 0xf) == (generation, 3))
    });
    assert_eq!(holder.release_one(&scene.storage().resource(3)), 0);
    assert_eq!(owner.release_one(&scene.storage().resource(1)), 0);
    assert_eq!(here.acquire_one(&scene.storage().resource(1)), 0, "handed over");
    assert_eq!(here.release_one(&scene.storage().resource(1)), 0);
    sharer.kill();
    drop(sharer_here);
    // The leases of killed processes are given back behind their end.
    let (mut alone, _) = acquire_soon(scene.host(index), scene.storage(), 2, SOON);
    assert_eq!(alone.release_one(&scene.storage().resource(2)), 0);
}

/// A host whose daemon died with a lease is started with the other program, under its old name.
#[test]
fn a_host_that_did_not_leave_is_waited_for_by_ours_and_not_by_the_original() {
    if !Program::both_available() {
        return;
    }
    let directions = [(Program::Reference, Program::Ours), (Program::Ours, Program::Reference)];
    let parts = directions.map(|(from, to)| {
        let part: Box<dyn FnOnce() + Send> = Box::new(move || {
            let Some(storage) = Storage::new(StorageKind::File) else { return };
            let mut scene = Scene::joined(storage, &[from, Program::Reference], 1);
            scene.wait_until_all_see_all();
            let mut holder = Holder::start(scene.host(0), &[&scene.storage().resource_arg(1)]);
            let begin = Instant::now();
            scene.host_mut(0).kill();
            holder.kill();
            scene.host_mut(0).restart_as(to);
            scene.host(0).join(scene.storage(), 1);
            let took = begin.elapsed();
            // 8 × 1 + 60 s after the last renewal, which may be 2 s old; then twice the io timeout.
            let long = took > Duration::from_secs(60);
            assert!(long || to == Program::Reference, "DOUBLE OWNER: ours joined {took:?} after the crash");
            assert_eq!(long, to == Program::Ours, "{from:?} to {to:?}: {took:?}");
            // What the earlier instance held is free: it is over.
            assert_eq!(scene.owner(1), Some((1, 1)));
            let (mut again, _) = acquire_soon(scene.host(0), scene.storage(), 1, SOON);
            assert_eq!(scene.owner(1), Some((1, 2)));
            assert_eq!(again.release_one(&scene.storage().resource(1)), 0);
        });
        (format!("{from:?} to {to:?}"), part)
    });
    bounded::side_by_side(parts.into());
}
