//! Reference peers: the checker finds the schedules CE1, CE2, CE3, CE8 and CE9 of lease-algorithms.md 13.7 by itself, and in the
//! same settings none on the production machines.

use sanlock_model::world::{Action, Event};
use sanlock_model::{Budget, Kind, Limits, Property, Settings, World, explore};

struct Found {
    schedule: Vec<Action>,
    text: String,
    world: World,
}

impl Found {
    fn happens(&self, event: Event) -> bool {
        self.schedule.iter().any(|action| action.event == event)
    }
}

/// Only progress is a matter of the calm.
fn limits(property: Property) -> Limits {
    let calm_every = u32::from(matches!(property, Property::EverythingEnds | Property::Progress));
    Limits { calm_every, ..Limits::complete() }
}

/// What the checker finds on reference peers; and that it finds nothing on ours.
fn only_on_reference_peers(property: Property, attempts: &[u8], change: impl Fn(&mut Settings)) -> Found {
    let settings = |kind| {
        let mut settings = Settings::new(kind, attempts);
        settings.properties = vec![property];
        change(&mut settings);
        settings
    };
    let ours = explore(&mut World::new(settings(Kind::Ours)), limits(property));
    println!("ours: {} states, all of them", ours.states);
    assert_eq!(ours.violation, None);
    assert!(ours.complete);
    let mut world = World::new(settings(Kind::Reference));
    let report = explore(&mut world, limits(property));
    let Some(violation) = report.violation else { panic!("not found in {} states", report.states) };
    assert_eq!(violation.property, property);
    let text = world.narrate(&violation.schedule);
    println!("{property:?} after {} states, {} steps:\n{text}", report.states, violation.schedule.len());
    Found { schedule: violation.schedule, text, world }
}

#[test]
fn ce1_a_late_leader_write_and_an_erased_block_make_two_owners() {
    let found = only_on_reference_peers(Property::OneOwner, &[2, 1], |settings| {
        settings.budget = Budget { late: 1, waits: 1, ..Budget::default() };
        settings.only_leaders_late = true;
    });
    assert!(found.happens(Event::TimeOut) && found.happens(Event::Land(0)));
    assert!(found.text.contains("TIMES OUT: write of leader version 1 owner 1/1"));
    assert!(found.text.contains("write of block version 0 mbal 0 bal 0 value 0/0/0 RELEASED"), "erased");
    assert!(
        found
            .text
            .ends_with("host 1: generation 1, holds the lease\nhost 2: generation 1, holds the lease\n")
    );
}

/// Not in the specification's list: a block of phase 1 that lands late erases the accepted value all the same.
#[test]
fn a_late_block_of_phase_1_makes_two_owners_too() {
    let found = only_on_reference_peers(Property::OneOwner, &[2, 1], |settings| {
        settings.budget = Budget { late: 1, waits: 1, ..Budget::default() };
    });
    assert!(found.text.contains("LANDS LATE: block version 1 mbal 1 bal 0"));
}

#[test]
fn ce2_success_with_the_value_of_an_older_generation() {
    let found = only_on_reference_peers(Property::LeaderNamesOwner, &[2, 2], |settings| {
        settings.budget = Budget { crashes: 1, waits: 1, ..Budget::default() };
    });
    assert!(found.happens(Event::Crash) && found.happens(Event::Rejoin));
    assert!(found.text.contains("generation 2, holds the lease"));
}

#[test]
fn ce2_goes_on_to_two_owners() {
    let found = only_on_reference_peers(Property::OneOwner, &[2, 2], |settings| {
        settings.budget = Budget { crashes: 1, waits: 1, ..Budget::default() };
    });
    assert!(found.text.contains("generation 2, holds the lease"));
    assert_eq!(found.text.matches("holds the lease").count(), 2);
}

#[test]
fn ce3_a_repeated_release_rolls_the_leader_back_and_ballots_go_on_for_ever() {
    let mut found = only_on_reference_peers(Property::EverythingEnds, &[1, 2], |settings| {
        settings.budget = Budget { late: 1, waits: 1, ..Budget::default() };
        settings.only_leaders_late = true;
    });
    assert!(found.text.contains("LANDS LATE: leader version 1"));
    let (leader, blocks) = found.world.versions_after(&found.schedule);
    assert!(blocks.into_iter().max() > Some(leader + 1), "{leader} {blocks:?}");
}

#[test]
fn ce8_a_lease_is_granted_with_the_generation_of_a_former_life() {
    let found = only_on_reference_peers(Property::LeaderNamesOwner, &[1, 1], |settings| {
        settings.budget = Budget { lapses: 1, waits: 1, ..Budget::default() };
    });
    assert!(found.happens(Event::JoinAnew));
}

#[test]
fn ce9_writes_go_on_without_the_host_id() {
    let found = only_on_reference_peers(Property::HostIdBeforeWrite, &[1, 1], |settings| {
        settings.budget = Budget { lapses: 1, waits: 1, ..Budget::default() };
    });
    assert!(found.happens(Event::Lose) || found.happens(Event::JoinAnew));
}

#[test]
fn a_late_commit_after_cleaning_up_keeps_the_lease_from_everybody() {
    let found = only_on_reference_peers(Property::Progress, &[1, 2], |settings| {
        settings.budget = Budget { late: 1, waits: 1, ..Budget::default() };
        settings.only_leaders_late = true;
    });
    assert!(found.happens(Event::Land(0)));
}

/// Not in the specification's list: nothing fails, times out or crashes. Commits of another host's value that are merely slow
/// bring the leader back to an older version while an attempt is under way that forgot what it had accepted.
#[test]
fn slow_commits_alone_make_two_owners_too() {
    let found = only_on_reference_peers(Property::OneOwner, &[3, 3], |settings| {
        settings.budget = Budget { waits: 1, ..Budget::default() };
    });
    assert!(found.schedule.iter().all(|action| matches!(action.event, Event::Complete | Event::Wake)));
    assert_eq!(found.text.matches("holds the lease").count(), 2);
}

/// So a cluster of both kinds is not safe against it either: the peer that forgets is the original. With two acquires each it is.
#[test]
fn slow_commits_alone_make_two_owners_in_a_mixed_cluster() {
    for (attempts, expected) in [([2, 2], None), ([3, 3], Some(Property::OneOwner))] {
        for reference in [0, 1] {
            let mut settings = Settings::new(Kind::Ours, &attempts);
            settings.hosts[reference] = Kind::Reference;
            settings.properties = vec![Property::OneOwner];
            settings.budget = Budget { waits: 1, ..Budget::default() };
            let report = explore(&mut World::new(settings), Limits { calm_every: 0, ..Limits::complete() });
            assert_eq!(report.violation.map(|v| v.property), expected, "{attempts:?}, host {reference}");
            assert!(report.complete || expected.is_some());
        }
    }
}

#[test]
fn phase_1_forgets_what_phase_2_accepted() {
    only_on_reference_peers(Property::BlockRemembers, &[1, 1], |settings| {
        settings.budget = Budget { waits: 1, ..Budget::default() };
    });
}
