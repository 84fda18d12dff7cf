//! One host of each program in one lockspace: initialise, join, contend, hand over, leave, come
//! back; on every kind of storage, started by either program.

use std::time::Duration;

use sanlock_conformance::dead_owner::registered;
use sanlock_conformance::scene::acquire_soon;
use sanlock_conformance::{Holder, Program, Scene, Storage, StorageKind, bounded};

/// A release by one host is visible to the other at once; a waiting host asks again soon.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(40);

/// A killed process is noticed at once and its lease freed: far above what that takes on a busy machine, far below the limit.
const AFTER_A_KILL: Duration = Duration::from_secs(10);

const RESOURCES: u64 = 3;

#[test]
fn on_a_file_the_programs_hand_a_lease_to_each_other() {
    both_orders(StorageKind::File);
}

#[test]
fn on_512_byte_sectors_the_programs_hand_a_lease_to_each_other() {
    both_orders(StorageKind::Loop512);
}

#[test]
fn on_4096_byte_sectors_the_programs_hand_a_lease_to_each_other() {
    both_orders(StorageKind::Loop4096);
}

/// The first host of a scene initialises the storage and is host 1.
fn both_orders(kind: StorageKind) {
    if !Program::both_available() {
        return;
    }
    let orders = [[Program::Ours, Program::Reference], [Program::Reference, Program::Ours]];
    let parts = orders.map(|programs| {
        let name = format!("{} initialises {kind:?}", programs[0].word());
        let part: Box<dyn FnOnce() + Send> = Box::new(move || {
            let Some(storage) = Storage::new(kind) else { return };
            let scene = Scene::joined(storage, &programs, RESOURCES);
            scene.wait_until_all_see_all();
            contend_and_hand_over(&scene);
            killed_process_makes_way(&scene);
            all_or_nothing_across_programs(&scene);
            leave_and_come_back(&scene);
        });
        (name, part)
    });
    bounded::side_by_side(parts.into());
}

/// The lease goes to and fro; whoever holds it, the other is refused.
fn contend_and_hand_over(scene: &Scene) {
    let resource = scene.storage().resource(1);
    for round in 1..=6_u64 {
        let holder = usize::from(round % 2 == 0);
        let (mut owner, _) = acquire_soon(scene.host(holder), scene.storage(), 1, HAND_OVER_LIMIT);
        assert_eq!((scene.lver(1), scene.owner(1)), (round, Some((holder as u64 + 1, 1))));
        let mut other = registered(scene.host(1 - holder));
        assert_eq!(other.acquire_one(&resource), -243, "round {round}");
        assert_eq!(owner.release_one(&resource), 0);
        assert_eq!(scene.owner(1), None, "round {round}: free once released");
    }
}

/// A process killed on one host: its lease can be had on the other within seconds.
fn killed_process_makes_way(scene: &Scene) {
    for holder_host in [0, 1] {
        let mut holder = Holder::start(scene.host(holder_host), &[&scene.storage().resource_arg(1)]);
        holder.kill();
        let (mut other, took) =
            acquire_soon(scene.host(1 - holder_host), scene.storage(), 1, HAND_OVER_LIMIT);
        assert!(took < AFTER_A_KILL, "{took:?} after a process was killed on host {}", holder_host + 1);
        assert_eq!(other.release_one(&scene.storage().resource(1)), 0);
    }
}

/// A command for three leases is undone when the other program's host holds one of them.
fn all_or_nothing_across_programs(scene: &Scene) {
    let three: Vec<_> = (1..=RESOURCES).map(|n| scene.storage().resource(n)).collect();
    for holder_host in [0, 1] {
        let mut owner = registered(scene.host(holder_host));
        assert_eq!(owner.acquire_one(&three[1]), 0);
        let mut other = registered(scene.host(1 - holder_host));
        assert_eq!(other.acquire(&three, 0, None), -243);
        scene.wait_until_free(1, HAND_OVER_LIMIT);
        assert_eq!(scene.owner(3), None, "the third was never reached");
        assert_eq!(owner.release_one(&three[1]), 0);
        assert_eq!(other.acquire(&three, 0, None), 0);
        assert_eq!(other.release(&three, 0, None), 0);
    }
}

/// A host leaves; the other sees it free. It joins again with a new generation, and the lease
/// changes hands under it.
fn leave_and_come_back(scene: &Scene) {
    const FREE: u32 = 2;
    const LIVE: u32 = 3;
    for leaver in [0_usize, 1] {
        let host_id = leaver as u64 + 1;
        let stayer = scene.host(1 - leaver);
        let state = || {
            let (result, hosts) = stayer.connect().get_hosts("LS", host_id);
            (result == 0)
                .then(|| hosts.iter().map(|host| (host.generation, host.flags & 0xf)).next())
                .flatten()
        };
        scene.host(leaver).leave(scene.storage(), host_id);
        bounded::wait_until("the host to be seen gone", HAND_OVER_LIMIT, || state() == Some((1, FREE)));
        scene.host(leaver).join(scene.storage(), host_id);
        bounded::wait_until("the host to be seen back", HAND_OVER_LIMIT, || state() == Some((2, LIVE)));
        let (mut owner, _) = acquire_soon(scene.host(leaver), scene.storage(), 2, HAND_OVER_LIMIT);
        assert_eq!(scene.owner(2), Some((host_id, 2)));
        let mut other = registered(stayer);
        assert_eq!(other.acquire_one(&scene.storage().resource(2)), -243);
        assert_eq!(owner.release_one(&scene.storage().resource(2)), 0);
    }
}
