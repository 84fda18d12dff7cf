//! Changing the mode of a lease that a process goes on using.

use super::*;
use sanlock_lease::paxos::{AcquireError, PaxosConvert};
use std::sync::Arc;

fn up(held: Held) -> impl Fn(&mut World, &mut Recorder) {
    move |world, recorder| {
        let mut machine = PaxosConvert::to_exclusive(world.config(US), AcquireOptions::default(), held);
        let outcome = world.drive(US, &mut machine, Some(recorder));
        assert_eq!(outcome.result, Ok(()));
        assert!(!outcome.held.is_shared());
    }
}

fn down(held: Held, value: Option<Arc<[u8]>>) -> impl Fn(&mut World, &mut Recorder) {
    move |world, recorder| {
        let mut machine = PaxosConvert::to_shared(world.config(US), held).with_value(value.clone());
        let outcome = world.drive(US, &mut machine, Some(recorder));
        assert_eq!((outcome.result, outcome.erase), (Ok(()), false));
        assert!(outcome.held.is_shared());
    }
}

#[test]
fn from_shared_to_exclusive() {
    for (geometry, disks) in layouts() {
        let mut world = used(geometry, disks);
        let held = world.must_take(US, Hold::Shared);
        explore("convert to exclusive", &world, Hold::Shared, 4, up(held));
        let mut world = dead_holder(used(geometry, disks), 4, Hold::Shared);
        let held = world.must_take(US, Hold::Shared);
        explore("convert to exclusive over a dead sharer", &world, Hold::Shared, 5, up(held));
    }
}

#[test]
fn from_shared_to_exclusive_refused() {
    for (geometry, disks) in layouts() {
        let mut world = used(geometry, disks);
        world.must_take(3, Hold::Shared);
        let held = world.must_take(US, Hold::Shared);
        explore("convert to exclusive, refused", &world, Hold::Shared, 1, |world, recorder| {
            let mut machine = PaxosConvert::to_exclusive(world.config(US), AcquireOptions::default(), held);
            let outcome = world.drive(US, &mut machine, Some(recorder));
            assert!(matches!(outcome.result, Err(AcquireError::Shared { .. })), "{outcome:?}");
            assert!(outcome.held.is_shared());
        });
    }
}

#[test]
fn from_shared_to_exclusive_with_a_leader_that_cannot_be_written() {
    for (geometry, disks) in layouts() {
        for landed in [false, true] {
            let mut world = used(geometry, disks);
            let held = world.must_take(US, Hold::Shared);
            let what = format!("convert to exclusive fails, landed {landed}");
            explore(&what, &world, Hold::Shared, if landed { 5 } else { 4 }, |world, recorder| {
                let on = world.clone();
                let mut failed = 0;
                let mut between = |op: &Op, disks: &mut Disks| {
                    let commit = matches!(op.action, Action::Write { sector: 0, .. });
                    if !commit || failed == on.areas.resource.len() {
                        return None;
                    }
                    failed += 1;
                    if landed {
                        as_write(&on, op).apply(disks);
                    }
                    Some(IoFailure::Os(5))
                };
                let mut machine =
                    PaxosConvert::to_exclusive(world.config(US), AcquireOptions::default(), held);
                let outcome = world.drive_with(US, &mut machine, Some(recorder), Some(&mut between));
                assert!(matches!(outcome.result, Err(AcquireError::LeaderWrite(_))), "{outcome:?}");
                assert!(outcome.held.is_shared());
            });
        }
    }
}

#[test]
fn from_exclusive_to_shared() {
    for (geometry, disks) in layouts() {
        let mut world = used(geometry, disks);
        let held = world.must_take(US, Hold::Exclusive);
        // On a single disk the leader is freed beside the mark.
        let steps = if disks == 1 { 2 } else { 3 };
        explore("convert to shared", &world, Hold::Shared, steps, down(held, None));
        if geometry.lvb_fits() {
            let value: Arc<[u8]> = vec![7; geometry.sector().slice_len()].into();
            explore(
                "convert to shared with a value",
                &world,
                Hold::Shared,
                1 + steps,
                down(held, Some(value)),
            );
        }
        let (world, held) = taken_through_another(used(geometry, disks));
        explore("convert to shared, leader by another", &world, Hold::Shared, 2, down(held, None));
    }
}

/// What an interrupted conversion may have left is taken back later.
#[test]
fn the_rest_of_a_conversion() {
    for (geometry, disks) in layouts() {
        let mut world = used(geometry, disks);
        let held = world.must_take(US, Hold::Exclusive);
        let mut between = |op: &Op, _: &mut Disks| {
            matches!(op.action, Action::Write { sector: 0, .. }).then_some(IoFailure::Os(5))
        };
        let mut machine = PaxosConvert::to_shared(world.config(US), held);
        let outcome = world.drive_with(US, &mut machine, None, Some(&mut between));
        assert_eq!((outcome.result, outcome.erase), (Ok(()), true));
        explore("take back the rest of a conversion", &world, Hold::Shared, 1, |world, recorder| {
            let mut machine = PaxosConvert::erase(world.config(US), outcome.held);
            let outcome = world.drive(US, &mut machine, Some(recorder));
            assert_eq!((outcome.result, outcome.erase), (Ok(()), false));
        });
    }
}
