//! Giving a lease up, in every way.

use super::*;
use sanlock_crash::world::name;
use sanlock_lease::limits::LVB_SECTOR;
use sanlock_lease::paxos::PaxosRelease;
use std::sync::Arc;

fn gives_up(machine: impl Fn(&World) -> PaxosRelease) -> impl Fn(&mut World, &mut Recorder) {
    move |world, recorder| {
        let mut machine = machine(world);
        let outcome = world.drive(US, &mut machine, Some(recorder));
        outcome.result.unwrap();
        assert!(!outcome.needs_retract());
    }
}

#[test]
fn an_exclusive_lease() {
    for (geometry, disks) in layouts() {
        let mut world = used(geometry, disks);
        let held = world.must_take(US, Hold::Exclusive);
        let release = |world: &World| PaxosRelease::new(world.config(US), held);
        explore("release", &world, Hold::Nothing, 2, gives_up(release));
        let retract = |world: &World| PaxosRelease::retract(world.config(US), held.geometry);
        explore("release by retract", &world, Hold::Nothing, 2, gives_up(retract));
        let (world, held) = taken_through_another(used(geometry, disks));
        let release = |world: &World| PaxosRelease::new(world.config(US), held);
        explore("release, leader by another", &world, Hold::Nothing, 1, gives_up(release));
    }
}

#[test]
fn a_shared_lease() {
    for (geometry, disks) in layouts() {
        let mut world = used(geometry, disks);
        let held = world.must_take(US, Hold::Shared);
        let release = |world: &World| PaxosRelease::new(world.config(US), held);
        explore("release shared", &world, Hold::Nothing, 1, gives_up(release));
        world.must_take(3, Hold::Shared);
        explore("release shared beside a sharer", &world, Hold::Nothing, 1, gives_up(release));
    }
}

#[test]
fn a_lease_that_gets_another_name() {
    // Cut short between two disks of an even number, the lease has no majority under either name: docs/proof/crash.md.
    for (geometry, disks) in layouts().into_iter().filter(|(_, disks)| disks % 2 == 1) {
        let mut world = used(geometry, disks);
        let held = world.must_take(US, Hold::Exclusive);
        let renamed =
            |world: &World| PaxosRelease::new(world.config(US), held).renamed(Some(name("renamed")));
        explore("release and rename", &world, Hold::Nothing, 2, gives_up(renamed));
        let (world, held) = taken_through_another(used(geometry, disks));
        let renamed =
            |world: &World| PaxosRelease::new(world.config(US), held).renamed(Some(name("renamed")));
        explore("release and rename, leader by another", &world, Hold::Nothing, 2, gives_up(renamed));
    }
}

/// The next owner finds the old value or the new one. Who finds the lease given up finds the new one.
#[test]
fn a_lease_with_a_value() {
    for (geometry, disks) in layouts() {
        if !geometry.lvb_fits() {
            continue;
        }
        let mut world = used(geometry, disks);
        let held = world.must_take(US, Hold::Exclusive);
        let value: Arc<[u8]> = vec![7; geometry.sector().slice_len()].into();
        let release =
            |world: &World| PaxosRelease::new(world.config(US), held).with_value(Some(Arc::clone(&value)));
        explore_looking(
            "release with a value",
            &world,
            Hold::Nothing,
            3,
            gives_up(release),
            |world, trail| {
                let on_disk = world.disks.sector(world.areas.resource[0], geometry.sector(), LVB_SECTOR);
                let given_up =
                    world.leader(0).timestamp.get() == 0 || world.block(0, US).dblock.is_released();
                assert!(!given_up || on_disk == *value, "{trail}: given up without its value");
                assert!(on_disk.iter().all(|byte| [0, 7].contains(byte)), "{trail}: neither value");
            },
        );
    }
}
