//! Shared and exclusive holds, and conversions, of a resource on three disks.

use sanlock_model::Plan::{Exclusive, ExclusiveThenDown, Shared, SharedThenUp};
use sanlock_model::expect::keeps_everything;
use sanlock_model::{Budget, Kind, Limits, Plan, Settings};

fn three_disks(plans: &[&[Plan]], budget: Budget) -> Settings {
    let budget = Budget { waits: 1, ..budget };
    Settings { disks: 3, budget, ..Settings::planned(Kind::Ours, plans) }
}

#[test]
fn a_sharer_beside_an_exclusive_owner() {
    let settings = three_disks(&[&[Shared], &[Exclusive]], Budget::default());
    let limits = Limits { calm_every: 7, ..Limits::complete() };
    let marks = keeps_everything("2 hosts, 3 disks, SH beside EX, no faults", settings, limits);
    assert!(marks.shared > 0 && marks.refused_shared > 0 && marks.refused_live > 0 && marks.granted > 0);
    assert!(marks.rolled_back > 0 && marks.released_by_flag > 0);
}

#[test]
fn a_conversion_to_shared_beside_an_exclusive_owner() {
    let settings = three_disks(&[&[ExclusiveThenDown], &[Exclusive]], Budget::default());
    let limits = Limits { calm_every: 7, ..Limits::complete() };
    let marks = keeps_everything("2 hosts, 3 disks, EX to SH beside EX, no faults", settings, limits);
    assert!(marks.converted_down > 0 && marks.refused_shared > 0);
}

#[test]
#[ignore = "long: millions of states"]
fn a_conversion_to_exclusive_beside_a_sharer() {
    let settings = three_disks(&[&[SharedThenUp], &[Shared]], Budget::default());
    let marks =
        keeps_everything("2 hosts, 3 disks, SH to EX beside SH, no faults", settings, Limits::complete());
    assert!(marks.converted_up > 0 && marks.converts_failed > 0 && marks.shared_by_two > 0);
}

#[test]
#[ignore = "long: millions of states"]
fn a_sharer_beside_an_exclusive_owner_where_a_disk_lags() {
    let budget = Budget { late: 1, ..Budget::default() };
    let settings = Settings { faulty: vec![2], ..three_disks(&[&[Shared], &[Exclusive]], budget) };
    let what = "2 hosts, 3 disks, SH beside EX, 1 late write to the last disk";
    let marks = keeps_everything(what, settings, Limits::complete());
    assert!(marks.late_leaders > 0 && marks.retracted > 0 && marks.refused_shared > 0);
}

#[test]
#[ignore = "long: millions of states"]
fn a_sharer_beside_an_exclusive_owner_of_which_one_loses_a_disk() {
    let budget = Budget { paths: 1, ..Budget::default() };
    let settings = Settings { faulty: vec![0], ..three_disks(&[&[Shared], &[Exclusive]], budget) };
    let settings = settings.reaching(&["granted_without_a_disk"]);
    let what = "2 hosts, 3 disks, SH beside EX, a path to the first disk lost";
    let marks = keeps_everything(what, settings, Limits::complete());
    assert!(marks.shared > 0 && marks.refused_shared > 0 && marks.rolled_back > 0);
}

#[test]
fn a_sharer_that_crashes_beside_an_exclusive_owner() {
    let budget = Budget { crashes: 1, ..Budget::default() };
    let what = "2 hosts, 3 disks, SH beside EX, 1 crash";
    let marks = keeps_everything(what, three_disks(&[&[Shared], &[Exclusive]], budget), Limits::complete());
    assert!(marks.modes_cleared > 0 && marks.taken_from_dead > 0);
}

#[test]
#[ignore = "long: millions of states"]
fn a_conversion_to_shared_where_a_disk_lags() {
    let budget = Budget { late: 1, ..Budget::default() };
    let settings = Settings { faulty: vec![2], ..three_disks(&[&[ExclusiveThenDown], &[Exclusive]], budget) };
    let what = "2 hosts, 3 disks, EX to SH beside EX, 1 late write to the last disk";
    let marks = keeps_everything(what, settings, Limits::complete());
    assert!(marks.converted_down > 0 && marks.late_leaders > 0);
}

#[test]
#[ignore = "long: millions of states"]
fn a_conversion_to_shared_of_which_one_loses_a_disk() {
    let budget = Budget { paths: 1, ..Budget::default() };
    let settings = Settings { faulty: vec![0], ..three_disks(&[&[ExclusiveThenDown], &[Exclusive]], budget) };
    let settings = settings.reaching(&["granted_without_a_disk"]);
    let what = "2 hosts, 3 disks, EX to SH beside EX, a path to the first disk lost";
    let marks = keeps_everything(what, settings, Limits::complete());
    assert!(marks.converted_down > 0 && marks.refused_shared > 0);
}
