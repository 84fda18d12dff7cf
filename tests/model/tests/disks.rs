//! A resource on three disks: any one of them may fail, lag or be out of reach, and every schedule within the limits keeps every
//! property.

use sanlock_model::expect::keeps_everything;
use sanlock_model::{Budget, Kind, Limits, Settings};

fn three_disks(attempts: &[u8], budget: Budget) -> Settings {
    Settings { disks: 3, budget, ..Settings::new(Kind::Ours, attempts) }
}

#[test]
fn two_hosts_on_three_disks_without_faults() {
    let settings = three_disks(&[1, 1], Budget { waits: 1, ..Budget::default() });
    let limits = Limits { calm_every: 7, ..Limits::complete() };
    let marks = keeps_everything("2 hosts, 3 disks, 1 acquire each, no faults", settings, limits);
    assert!(marks.adopted > 0 && marks.lost > 0 && marks.backed_off > 0 && marks.released_by_flag > 0);
    assert!(marks.rolled_back > 0 && marks.granted > 0);
}

#[test]
fn two_hosts_on_three_disks_of_which_one_crashes() {
    let settings = three_disks(&[1, 1], Budget { waits: 1, crashes: 1, ..Budget::default() });
    let what = "2 hosts, 3 disks, 1 acquire each, 1 crash";
    let marks = keeps_everything(what, settings, Limits::complete());
    assert!(marks.taken_from_dead > 0 && marks.late_leaders > 0 && marks.adopted > 0);
}

/// The disk is lost to a host at any moment and may come back at any later one.
#[test]
fn two_hosts_of_which_one_loses_a_disk() {
    let budget = Budget { waits: 1, paths: 1, ..Budget::default() };
    let settings = Settings { faulty: vec![0], ..three_disks(&[1, 1], budget) };
    let settings = settings.reaching(&["granted_without_a_disk"]);
    let what = "2 hosts, 3 disks, 1 acquire each, a path to the first disk lost";
    let marks = keeps_everything(what, settings, Limits::complete());
    assert!(marks.granted > 0 && marks.retracted > 0 && marks.rolled_back > 0);
}

/// Two hosts that have no disk in common: at most one of them has a majority.
#[test]
fn two_hosts_without_a_common_disk() {
    let cut_off = vec![(0, 1), (0, 2), (1, 0)];
    let settings = Settings { cut_off, faulty: vec![], ..three_disks(&[2, 2], Budget::default()) };
    let settings = settings.reaching(&["granted_without_a_disk"]);
    let limits = Limits { calm_every: 1, ..Limits::complete() };
    keeps_everything("2 hosts, 3 disks, none of which both reach, 2 acquires each", settings, limits);
}

/// Each host lacks one disk, and of the only one that both reach a write times out.
#[test]
fn two_hosts_whose_only_common_disk_lags() {
    let budget = Budget { late: 1, ..Budget::default() };
    let cut_off = vec![(0, 0), (1, 2)];
    let settings = Settings { cut_off, faulty: vec![1], ..three_disks(&[1, 1], budget) };
    let settings = settings.reaching(&["granted_without_a_disk", "retracted"]);
    let what = "2 hosts, 3 disks, one of which both reach, 1 late write to that one";
    keeps_everything(what, settings, Limits { calm_every: 1, ..Limits::complete() });
}

/// A write to one of the disks times out, and lands at any later moment.
#[test]
fn two_hosts_on_three_disks_of_which_one_lags() {
    let budget = Budget { waits: 1, late: 1, ..Budget::default() };
    let settings = Settings { faulty: vec![2], ..three_disks(&[1, 1], budget) };
    let what = "2 hosts, 3 disks, 1 acquire each, 1 late write to the last disk";
    let marks = keeps_everything(what, settings, Limits::complete());
    assert!(marks.late_leaders > 0 && marks.retracted > 0 && marks.rolled_back > 0);
}

/// Among these schedules is one in which three releases are slow on a disk each. The third owner finds an older, free leader on two of
/// them and leaves its own on the third, released by flag; then a slow write makes all three differ, and the newest counts.
#[test]
#[ignore = "long: millions of states"]
fn three_hosts_on_three_disks() {
    let settings = three_disks(&[1, 1, 1], Budget::default());
    let limits = Limits { states: 40_000_000, calm_every: 499, ..Limits::complete() };
    let marks = keeps_everything("3 hosts, 3 disks, 1 acquire each, no faults", settings, limits);
    assert!(marks.adopted > 0 && marks.lost > 0 && marks.backed_off > 0 && marks.released_by_flag > 0);
    assert!(marks.rolled_back > 0 && marks.granted > 0);
}

/// Wherever it happens: the results of operations side by side are told in the other order, too.
#[test]
#[ignore = "long: millions of states"]
fn faults_on_every_disk_whatever_the_order() {
    for told_backwards in [false, true] {
        for (fault, budget) in [
            ("a path lost", Budget { waits: 1, paths: 1, ..Budget::default() }),
            ("1 late write", Budget { waits: 1, late: 1, ..Budget::default() }),
        ] {
            let settings = Settings { told_backwards, ..three_disks(&[1, 1], budget) };
            let order = if told_backwards { "told backwards" } else { "told in order" };
            let what = format!("2 hosts, 3 disks, 1 acquire each, {fault} anywhere, {order}");
            keeps_everything(
                &what,
                settings.reaching(&["granted_without_a_disk", "retracted"]),
                Limits::complete(),
            );
        }
    }
}

#[test]
#[ignore = "long: millions of states"]
fn a_crash_beside_a_disk_that_lags_or_is_lost() {
    for (fault, budget) in [
        ("its path lost", Budget { crashes: 1, paths: 1, ..Budget::default() }),
        ("1 late write to it", Budget { crashes: 1, late: 1, ..Budget::default() }),
    ] {
        let settings = Settings { faulty: vec![0], ..three_disks(&[1, 1], budget) };
        let what = format!("2 hosts, 3 disks, 1 acquire each, 1 crash, the first disk with {fault}");
        let limits = Limits { states: 40_000_000, ..Limits::complete() };
        keeps_everything(&what, settings.reaching(&["taken_from_dead", "granted_without_a_disk"]), limits);
    }
}
