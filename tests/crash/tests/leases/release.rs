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

/// With an odd number of disks one of the names works whatever is left. With an even number they may be left without a majority under
/// either: then nobody gets the lease before its leaders have one name again, whichever that is.
#[test]
fn a_lease_that_gets_another_name() {
    let four = (Geometry::new(SectorSize::B4096, AlignSize::M1).unwrap(), 4);
    for (geometry, disks) in layouts().into_iter().chain([four]) {
        let mut world = used(geometry, disks);
        let held = world.must_take(US, Hold::Exclusive);
        let renamed =
            |world: &World| PaxosRelease::new(world.config(US), held).renamed(Some(name("renamed")));
        let report = explore("release and rename", &world, Hold::Nothing, 2, gives_up(renamed));
        let halves = [0, 0, 2, 0, 6][disks];
        assert_eq!(report.nameless, halves, "{disks} disks");
        let (world, held) = taken_through_another(used(geometry, disks));
        let renamed =
            |world: &World| PaxosRelease::new(world.config(US), held).renamed(Some(name("renamed")));
        let report =
            explore("release and rename, leader by another", &world, Hold::Nothing, 2, gives_up(renamed));
        assert_eq!(report.nameless, halves, "{disks} disks");
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
