//! Taking a lease, in either mode.

use super::*;
use sanlock_lease::paxos::AcquireError;

/// Host 1 takes the lease, and relies on nothing before it is told.
fn takes(hold: Hold) -> impl Fn(&mut World, &mut Recorder) {
    move |world, recorder| {
        let table = world.table();
        let taken = world.take_seeing(&table, US, hold, AcquireOptions::default(), Some(recorder));
        taken.unwrap();
    }
}

/// Submissions of writes of a shared take: on several disks the mode block comes before the flag.
fn sharing(disks: usize) -> usize {
    if disks > 1 { 6 } else { 5 }
}

#[test]
fn a_free_lease() {
    for (geometry, disks) in layouts() {
        let (fresh, used) = (joined(geometry, disks), used(geometry, disks));
        explore("take, never used", &fresh, Hold::Nothing, 3, takes(Hold::Exclusive));
        explore("take, used before", &used, Hold::Nothing, 3, takes(Hold::Exclusive));
        explore("take shared, never used", &fresh, Hold::Nothing, sharing(disks), takes(Hold::Shared));
        explore("take shared, used before", &used, Hold::Nothing, sharing(disks), takes(Hold::Shared));
    }
}

#[test]
fn a_dead_owner_s_lease() {
    for (geometry, disks) in layouts() {
        let owned = dead_holder(used(geometry, disks), 4, Hold::Exclusive);
        explore("take from a dead owner", &owned, Hold::Nothing, 3, takes(Hold::Exclusive));
        explore("take shared from a dead owner", &owned, Hold::Nothing, sharing(disks), takes(Hold::Shared));
    }
}

#[test]
fn a_lease_that_an_earlier_life_of_this_host_owned() {
    for (geometry, disks) in layouts() {
        for hold in [Hold::Exclusive, Hold::Shared] {
            let mut world = dead_holder(used(geometry, disks), US, hold);
            world.join(US);
            explore(&format!("take, own earlier {hold:?}"), &world, Hold::Nothing, 3, takes(Hold::Exclusive));
            explore(
                &format!("take shared, own earlier {hold:?}"),
                &world,
                Hold::Nothing,
                sharing(disks),
                takes(Hold::Shared),
            );
        }
    }
}

#[test]
fn dead_shared_holders_are_cleared_away() {
    for (geometry, disks) in layouts() {
        let mut world = dead_holder(used(geometry, disks), 4, Hold::Shared);
        explore("take over one dead sharer", &world, Hold::Nothing, 4, takes(Hold::Exclusive));
        explore(
            "take shared beside a dead sharer",
            &world,
            Hold::Nothing,
            sharing(disks),
            takes(Hold::Shared),
        );
        world.join(5);
        let world = dead_holder(world, 5, Hold::Shared);
        explore("take over two dead sharers", &world, Hold::Nothing, 5, takes(Hold::Exclusive));
    }
}

#[test]
fn a_living_sharer_is_left_alone() {
    for (geometry, disks) in layouts() {
        let mut world = used(geometry, disks);
        world.must_take(3, Hold::Shared);
        explore("take shared beside a sharer", &world, Hold::Nothing, sharing(disks), takes(Hold::Shared));
        explore("refused by a sharer", &world, Hold::Nothing, 1, |world, recorder| {
            let table = world.table();
            let refused =
                world.take_seeing(&table, US, Hold::Exclusive, AcquireOptions::default(), Some(recorder));
            assert!(matches!(refused, Err(AcquireError::Shared { .. })), "{refused:?}");
        });
    }
}

#[test]
fn the_number_of_hosts_changes_along_with_the_owner() {
    for (geometry, disks) in layouts() {
        let world = used(geometry, disks);
        explore("take with num_hosts", &world, Hold::Nothing, 3, |world, recorder| {
            let table = world.table();
            let options = AcquireOptions { num_hosts: Some(12), ..AcquireOptions::default() };
            world.take_seeing(&table, US, Hold::Exclusive, options, Some(recorder)).unwrap();
        });
    }
}

/// The write of the leader reports an error, and landed all the same or did not; what it left is taken back.
#[test]
fn a_failed_take_is_taken_back() {
    for (geometry, disks) in layouts() {
        for landed in [false, true] {
            let world = used(geometry, disks);
            explore(
                &format!("failed take, landed {landed}"),
                &world,
                Hold::Nothing,
                if landed { 5 } else { 4 },
                |world, recorder| {
                    fails_to_commit(world, Hold::Exclusive, landed, recorder);
                },
            );
        }
    }
}

fn fails_to_commit(world: &mut World, hold: Hold, landed: bool, recorder: &mut Recorder) {
    let on = world.clone();
    let mut between = |op: &Op, disks: &mut Disks| {
        let commit = matches!(op.action, Action::Write { sector: 0, .. });
        if commit && landed {
            as_write(&on, op).apply(disks);
        }
        commit.then_some(IoFailure::Os(5))
    };
    let mut machine = world.taking(US, hold, AcquireOptions::default());
    let outcome = world.drive_with(US, &mut machine, Some(recorder), Some(&mut between));
    let sanlock_lease::paxos::acquire::AcquireOutcome::Failed {
        retract: attempt @ Some(_), geometry, ..
    } = outcome
    else {
        panic!("{outcome:?}")
    };
    let mut retract =
        sanlock_lease::paxos::PaxosRelease::retract(world.config(US), geometry).of_attempt(attempt);
    world.drive(US, &mut retract, Some(recorder)).result.unwrap();
}
