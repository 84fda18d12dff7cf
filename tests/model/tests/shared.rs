//! Shared holds and conversions: the production machines keep every property through every schedule within the limits, and the
//! checker finds CE4 on reference peers by itself.

use sanlock_model::Plan::{Exclusive, ExclusiveThenDown, Shared, SharedThenUp};
use sanlock_model::expect::{found_only_with, keeps_everything};
use sanlock_model::world::Event;
use sanlock_model::{Budget, Kind, Limits, Plan, Property, Settings, Twist, World, explore};

fn planned(plans: &[&[Plan]], budget: Budget) -> Settings {
    Settings { budget, ..Settings::planned(Kind::Ours, plans) }
}

#[test]
fn two_hosts_share_and_exclude_each_other_without_faults() {
    let budget = Budget { waits: 2, ..Budget::default() };
    let settings = planned(&[&[Shared, Exclusive], &[Shared, Exclusive]], budget);
    let limits = Limits { calm_every: 1, ..Limits::complete() };
    let marks = keeps_everything("2 hosts, SH and EX each, no faults", settings, limits);
    assert!(marks.shared > 0 && marks.shared_by_two > 0 && marks.refused_shared > 0 && marks.granted > 0);
}

#[test]
fn two_hosts_convert_both_ways_without_faults() {
    let budget = Budget { waits: 2, ..Budget::default() };
    let settings = planned(&[&[SharedThenUp, ExclusiveThenDown], &[ExclusiveThenDown, SharedThenUp]], budget);
    let limits = Limits { calm_every: 11, ..Limits::complete() };
    let marks = keeps_everything("2 hosts, conversions both ways, no faults", settings, limits);
    assert!(marks.converted_up > 0 && marks.converted_down > 0 && marks.converts_failed > 0);
    assert!(marks.shared_by_two > 0 && marks.refused_shared > 0);
}

#[test]
fn conversions_beside_a_late_write() {
    let budget = Budget { late: 1, waits: 1, ..Budget::default() };
    let settings = planned(&[&[SharedThenUp, ExclusiveThenDown], &[Shared, Exclusive]], budget);
    let what = "2 hosts, conversions both ways beside SH and EX, 1 late write";
    let marks = keeps_everything(what, settings, Limits::complete());
    assert!(marks.late_leaders > 0 && marks.retracted > 0 && marks.converts_failed > 0);
}

#[test]
fn a_late_write_an_error_and_a_crash_on_the_way_to_exclusive() {
    let budget = Budget { late: 1, errors: 1, crashes: 1, waits: 1, ..Budget::default() };
    let what = "2 hosts, SH to EX beside EX and SH, 1 late write, 1 error, 1 crash";
    let settings = planned(&[&[SharedThenUp], &[Exclusive, Shared]], budget);
    let marks = keeps_everything(what, settings, Limits::complete());
    assert!(marks.converts_failed > 0 && marks.modes_cleared > 0 && marks.taken_from_dead > 0);
}

#[test]
fn a_late_write_an_error_and_a_crash_on_the_way_to_shared() {
    let budget = Budget { late: 1, errors: 1, crashes: 1, waits: 1, ..Budget::default() };
    let what = "2 hosts, EX to SH beside EX and SH, 1 late write, 1 error, 1 crash";
    let settings = planned(&[&[ExclusiveThenDown], &[Exclusive, Shared]], budget);
    let marks = keeps_everything(what, settings, Limits::complete());
    assert!(marks.converts_failed > 0 && marks.modes_cleared > 0 && marks.converted_down > 0);
}

#[test]
fn conversions_whose_lockspaces_come_and_go() {
    let budget = Budget { late: 1, crashes: 1, lapses: 1, waits: 1, ..Budget::default() };
    let settings = planned(&[&[SharedThenUp], &[ExclusiveThenDown]], budget);
    let what = "2 hosts, SH to EX and EX to SH, 1 late write, 1 crash, 1 lapse";
    let marks = keeps_everything(what, settings, Limits::complete());
    assert!(marks.gone > 0 && marks.modes_cleared > 0);
}

#[test]
fn a_sharer_that_crashes_and_comes_back_beside_two_late_writes() {
    let budget = Budget { late: 2, crashes: 1, waits: 1, ..Budget::default() };
    let settings = planned(&[&[Shared], &[Exclusive, Exclusive]], budget);
    let what = "2 hosts, SH beside two EX, 2 late writes, 1 crash";
    let marks = keeps_everything(what, settings, Limits::complete());
    assert!(marks.modes_cleared > 0 && marks.refused_shared > 0);
}

#[test]
fn conversions_whose_reads_are_no_snapshots() {
    let budget = Budget { late: 1, waits: 1, ..Budget::default() };
    let settings =
        Settings { torn_reads: true, ..planned(&[&[SharedThenUp], &[ExclusiveThenDown, Shared]], budget) };
    let what = "2 hosts with torn reads, conversions both ways, 1 late write";
    keeps_everything(what, settings, Limits::complete());
}

#[test]
fn three_hosts_share_convert_and_exclude() {
    let budget = Budget { waits: 1, ..Budget::default() };
    let settings = planned(&[&[SharedThenUp], &[Shared], &[Exclusive]], budget);
    let what = "3 hosts, SH to EX, SH and EX, no faults";
    let marks = keeps_everything(what, settings, Limits::complete());
    assert!(marks.shared_by_two > 0 && marks.converts_failed > 0 && marks.converted_up > 0);
}

#[test]
fn three_hosts_of_which_a_sharer_crashes() {
    let budget = Budget { crashes: 1, waits: 1, ..Budget::default() };
    let settings = planned(&[&[Shared], &[Shared], &[Exclusive]], budget);
    let what = "3 hosts, SH, SH and EX, 1 crash";
    let marks = keeps_everything(what, settings, Limits::complete());
    assert!(marks.shared_by_two > 0 && marks.modes_cleared > 0);
}

/// One host shares, one takes the lease exclusively; a host leaves and comes back, and tables are as old as the last look.
fn ce4(kinds: [Kind; 2], budget: Budget) -> Settings {
    let mut settings = planned(&[&[Shared], &[Exclusive]], Budget { leaves: 1, waits: 1, ..budget });
    settings.hosts = kinds.to_vec();
    settings.stale_tables = true;
    settings
}

#[test]
fn ce4_ours_with_tables_of_any_age() {
    let budget = Budget { late: 1, crashes: 1, ..Budget::default() };
    let settings = ce4([Kind::Ours, Kind::Ours], budget);
    let what = "2 hosts, SH and EX, old tables, 1 leaving, 1 late write, 1 crash";
    let marks = keeps_everything(what, settings, Limits::complete());
    assert!(marks.refused_shared > 0 && marks.modes_cleared > 0);
}

/// Found wherever it is the original that clears mode blocks, whoever shares.
#[test]
fn ce4_a_living_sharer_is_cleared_by_a_table_that_is_old() {
    for (sharer, other) in [(Kind::Reference, Kind::Reference), (Kind::Ours, Kind::Reference)] {
        for property in [Property::SharersStay, Property::OneOwner] {
            let settings = Settings { properties: vec![property], ..ce4([sharer, other], Budget::default()) };
            let mut world = World::new(settings);
            let report = explore(&mut world, Limits { calm_every: 0, ..Limits::complete() });
            let Some(violation) = report.violation else { panic!("not found in {} states", report.states) };
            let text = world.narrate(&violation.schedule);
            println!("{property:?} after {} states:\n{text}", report.states);
            let happens = |event| violation.schedule.iter().any(|action| action.event == event);
            assert!(happens(Event::Leave) && happens(Event::Look) && happens(Event::Rejoin));
            assert!(text.contains("host 1: generation 2, shares the lease"));
        }
    }
    for sharer in [Kind::Reference, Kind::Ours] {
        let properties = vec![Property::SharersStay, Property::OneOwner];
        let settings = Settings { properties, ..ce4([sharer, Kind::Ours], Budget::default()) };
        let report = explore(&mut World::new(settings), Limits { calm_every: 0, ..Limits::complete() });
        assert_eq!(report.violation, None);
        assert!(report.complete);
    }
}

fn breaks(twist: Twist, property: Property) {
    let budget = Budget { waits: 1, ..Budget::default() };
    found_only_with(twist, property, planned(&[&[Shared, Exclusive], &[Exclusive, Shared]], budget));
}

#[test]
fn an_owner_beside_a_sharer_if_mode_blocks_vanish() {
    breaks(Twist::ModesVanish, Property::ModeBlockStays);
    breaks(Twist::ModesVanish, Property::OneOwner);
}

#[test]
fn a_sharer_is_cleared_if_the_living_look_dead() {
    breaks(Twist::LivingLookDead, Property::SharersStay);
    breaks(Twist::LivingLookDead, Property::OneOwner);
}
