//! The production machines: every schedule within the limits named in each test keeps every property.
//!
//! Each test prints how many states it looked at. `MODEL_DEPTH` sets how deep the last one goes.

use sanlock_model::expect::keeps_everything;
use sanlock_model::{Budget, Kind, Limits, Property, Settings};

fn with(attempts: &[u8], budget: Budget) -> Settings {
    Settings { budget, ..Settings::new(Kind::Ours, attempts) }
}

#[test]
fn two_hosts_three_acquires_each_without_faults() {
    let settings = with(&[3, 3], Budget { waits: 1, ..Budget::default() });
    let marks = keeps_everything(
        "2 hosts, 3 acquires each, no faults",
        settings,
        Limits { calm_every: 1, ..Limits::complete() },
    );
    assert!(marks.granted > 0 && marks.refused_live > 0 && marks.adopted > 0 && marks.lost > 0);
    assert!(marks.backed_off > 0 && marks.released_by_flag > 0);
    // A commit of another host's value that is slow without being late: R9's case.
    assert!(marks.rolled_back > 0 && marks.repaired > 0);
}

#[test]
fn two_hosts_two_late_writes_and_a_crash() {
    let budget = Budget { late: 2, crashes: 1, waits: 1, ..Budget::default() };
    let what = "2 hosts, 2 acquires each, 2 late writes, 1 crash";
    let marks = keeps_everything(what, with(&[2, 2], budget), Limits::complete());
    assert!(marks.late_leaders > 0 && marks.retracted > 0 && marks.taken_from_dead > 0);
}

/// A lease that is renamed is freed by the leader first, whoever wrote it, and marked then. A slow commit may have rolled the leader
/// back: then it is not renamed, which the release says (-251), and that is all.
#[test]
fn leases_that_are_renamed_at_their_release() {
    for (what, attempts, budget, torn_reads) in [
        (
            "2 hosts that rename, 2 acquires each, 2 late writes, 1 crash",
            vec![2, 2],
            Budget { late: 2, crashes: 1, waits: 1, ..Budget::default() },
            false,
        ),
        (
            "3 hosts that rename, 1 acquire each, 1 late write, 1 error",
            vec![1, 1, 1],
            Budget { late: 1, errors: 1, waits: 1, ..Budget::default() },
            false,
        ),
        (
            "3 hosts that rename with torn reads, 1 acquire each, no faults",
            vec![1, 1, 1],
            Budget::default(),
            true,
        ),
    ] {
        let mut settings = Settings { renames: true, torn_reads, ..with(&attempts, budget) };
        settings.properties.retain(|property| *property != Property::NothingForeign);
        let marks = keeps_everything(what, settings, Limits::complete());
        assert!(marks.rolled_back > 0, "{what}");
    }
}

/// Every acquire has the timestamp of the host's other acquires: nothing tells their values apart but the rules.
#[test]
fn two_hosts_whose_clocks_stand_still() {
    let budget = Budget { late: 1, crashes: 1, waits: 1, ..Budget::default() };
    let settings = Settings { same_second: true, ..with(&[2, 2], budget) };
    keeps_everything(
        "2 hosts, 2 acquires each in one second, 1 late write, 1 crash",
        settings,
        Limits::complete(),
    );
}

/// CE8 and CE9: the lockspace fails, or is removed and joined again, under a running operation.
#[test]
fn two_hosts_whose_lockspaces_come_and_go() {
    let budget = Budget { late: 1, lapses: 1, crashes: 1, waits: 1, ..Budget::default() };
    let what = "2 hosts, 2 acquires and 1, 1 late write, 1 lapse, 1 crash";
    let marks = keeps_everything(what, with(&[2, 1], budget), Limits::complete());
    assert!(marks.gone > 0);
}

#[test]
fn two_hosts_that_wait_for_the_dead() {
    let budget = Budget { late: 1, crashes: 1, waits: 3, ..Budget::default() };
    let settings = Settings { patient: true, ..with(&[2, 1], budget) };
    let what = "2 hosts that wait for dead owners, 2 acquires and 1, 1 late write, 1 crash";
    let marks = keeps_everything(what, settings, Limits::complete());
    assert!(marks.taken_from_dead > 0);
}

/// The leader and the blocks of one read are looked at at different moments, in any order.
#[test]
fn two_hosts_whose_reads_are_no_snapshots() {
    let budget = Budget { late: 1, crashes: 1, waits: 1, ..Budget::default() };
    let settings = Settings { torn_reads: true, ..with(&[2, 1], budget) };
    let what = "2 hosts with torn reads, 2 acquires and 1, 1 late write, 1 crash";
    keeps_everything(what, settings, Limits::complete());
}

#[test]
fn three_hosts_whose_reads_are_no_snapshots() {
    let budget = Budget { waits: 1, ..Budget::default() };
    let settings = Settings { torn_reads: true, ..with(&[1, 1, 1], budget) };
    keeps_everything("3 hosts with torn reads, 1 acquire each, no faults", settings, Limits::complete());
}

#[test]
fn three_hosts_a_late_write_and_an_error() {
    let budget = Budget { late: 1, errors: 1, waits: 1, ..Budget::default() };
    let what = "3 hosts, 1 acquire each, 1 late write, 1 error";
    keeps_everything(what, with(&[1, 1, 1], budget), Limits::complete());
}

/// The 3-host ballot: whoever it is crashes at whichever step, and comes back, or is known to be dead, at any later one.
#[test]
fn three_hosts_of_which_one_crashes_at_any_step() {
    let budget = Budget { crashes: 1, waits: 1, ..Budget::default() };
    let settings = with(&[1, 1, 1], budget).reaching(&["taken_from_dead", "adopted", "lost", "late_leaders"]);
    keeps_everything("3 hosts, 1 acquire each, 1 crash", settings, Limits::complete());
}

#[test]
#[ignore = "long: millions of states"]
fn three_hosts_a_crash_and_a_late_write() {
    let budget = Budget { crashes: 1, late: 1, waits: 1, ..Budget::default() };
    let settings = with(&[1, 1, 1], budget).reaching(&["taken_from_dead", "adopted", "retracted"]);
    let limits = Limits { states: 40_000_000, ..Limits::complete() };
    keeps_everything("3 hosts, 1 acquire each, 1 crash, 1 late write", settings, limits);
}

#[test]
#[ignore = "long: millions of states"]
fn three_hosts_a_crash_and_an_acquire_after_it() {
    let budget = Budget { crashes: 1, waits: 1, ..Budget::default() };
    let settings = with(&[2, 1, 1], budget).reaching(&["taken_from_dead", "adopted", "late_leaders"]);
    let limits = Limits { states: 40_000_000, ..Limits::complete() };
    keeps_everything("3 hosts, 2, 1 and 1 acquires, 1 crash", settings, limits);
}

/// As many crashes as hosts, beside a late write.
#[test]
#[ignore = "long: millions of states"]
fn three_hosts_each_of_which_may_crash() {
    let budget = Budget { crashes: 3, late: 1, waits: 1, ..Budget::default() };
    let settings = with(&[1, 1, 1], budget).reaching(&["taken_from_dead", "adopted", "retracted"]);
    let limits = Limits { states: 40_000_000, ..Limits::complete() };
    keeps_everything("3 hosts, 1 acquire each, 3 crashes, 1 late write", settings, limits);
}

/// A host that releases while another one that found its value in a ballot is about to commit it in its name, or does so late.
#[test]
fn a_release_beside_a_ballot_that_adopts_the_releaser() {
    let budget = Budget { late: 1, waits: 1, ..Budget::default() };
    let settings = with(&[1, 2], budget).reaching(&[
        "adopted_while_releasing",
        "late_leader_after_release",
        "released_by_flag",
        "committed_by_another",
    ]);
    let what = "2 hosts, 1 and 2 acquires, 1 late write: release beside adoption";
    keeps_everything(what, settings, Limits { calm_every: 5, ..Limits::complete() });
}

#[test]
fn three_hosts_everything_to_a_depth() {
    const DEPTH: u32 = 11;
    let depth = std::env::var("MODEL_DEPTH").ok().map(|text| match text.parse() {
        Ok(depth) => depth,
        Err(e) => panic!("MODEL_DEPTH is {text:?}, expected a number of steps: {e}"),
    });
    let budget = Budget { late: 2, errors: 1, crashes: 1, lapses: 1, waits: 2, ..Budget::default() };
    let limits = Limits { depth: depth.unwrap_or(DEPTH), states: usize::MAX, calm_every: 97 };
    let what = "3 hosts, 2 acquires each, 2 late writes, 1 error, 1 crash, 1 lapse";
    keeps_everything(what, with(&[2, 2, 2], budget), limits);
}
