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
    let what = "2 hosts, 3 disks, 1 acquire each, a path to the first disk lost";
    let marks = keeps_everything(what, settings, Limits::complete());
    assert!(marks.granted > 0 && marks.retracted > 0 && marks.rolled_back > 0);
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
