//! Random runs. A failure prints the command that repeats it.
//!
//! * `SIM_SEEDS=N`: so many dense runs in each test, instead of the host-hours below. `SIM_FIRST=N`: the first seed.
//! * `SIM_SEED=N SIM_SETTINGS=… cargo test -p sanlock-sim replay -- --nocapture`: one run once more, with its log; without
//!   `SIM_SETTINGS` the one that `SIM_KIND` (dense or long) and `SIM_REFERENCES` name.
//!
//! docs/proof/simulator.md has the commands for longer campaigns.

use sanlock_sim::campaign::{self, Case, Plan};
use sanlock_sim::checks::Marks;
use sanlock_sim::dice::Dice;
use sanlock_sim::record::Standing;
use sanlock_sim::report;
use sanlock_sim::settings::{Kind, Settings};
use std::ops::ControlFlow;
use std::time::Instant;

/// Host-hours of each of two tests.
const HOST_HOURS: [(Kind, f64); 2] = [(Kind::Dense, 200.0), (Kind::Long, 4800.0)];
/// So many seeds alone reach everything.
const SEEDS: u64 = 120;
/// Lines of the log that a replay prints.
const TAIL: usize = 300;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|s| s.parse().ok())
}

/// Runs, and returns what was reached.
fn run(first: u64, peer_every: u64) -> Marks {
    let first = number("SIM_FIRST").unwrap_or(first);
    if let Some(seeds) = number("SIM_SEEDS") {
        return run_cases((first..first + seeds).map(|seed| Case::drawn(Kind::Dense, seed, peer_every)));
    }
    let begun = Instant::now();
    let plan = Plan { first, host_hours: HOST_HOURS.to_vec(), threads: 1, peer_every };
    let report = campaign::run(&plan, Standing::new(&plan), |_| ControlFlow::Continue(())).report;
    println!("{}", report::text(&report, begun.elapsed()));
    if let Some(failure) = &report.failure {
        panic!("{failure}");
    }
    report.all().marks
}

fn run_cases(cases: impl Iterator<Item = Case>) -> Marks {
    let mut marks = Marks::default();
    for case in cases {
        match case.run() {
            Ok(world) => marks.add(&world.checks.marks),
            Err(failure) => panic!("{failure}"),
        }
    }
    println!("{marks:?}");
    marks
}

fn replayed(case: &Case) {
    let mut world = case.world(true);
    world.run();
    for line in world.log_tail(TAIL) {
        println!("{line}");
    }
    println!("seed {}, settings {}", case.seed, case.settings);
    assert!(world.checks.violations.is_empty(), "{:#?}", world.checks.violations);
}

fn few_runs() -> bool {
    number("SIM_SEEDS").is_some_and(|seeds| seeds < SEEDS)
}

/// Each of these has come about. In a few runs alone it need not.
fn all_reached(reached: &[(&str, u64)]) {
    for (what, times) in reached {
        assert!(*times > 0 || few_runs(), "never reached: {what}");
    }
}

/// What every batch of runs must have gone through; a batch that did not proves nothing. What comes less than
/// ten times in a batch, on an average of long campaigns, has a batch of its own in `sabotage.rs` instead (an orphan that counts and whose
/// daemon died: twice here).
fn assert_reached(marks: &Marks) {
    all_reached(&[
        ("acquired", marks.acquired),
        ("released", marks.released),
        ("refused because the owner lives", marks.refused_live),
        ("another host's value committed", marks.adopted),
        ("version lost to another host", marks.lost),
        ("success by another host's commit", marks.committed_by_other),
        ("a silent owner replaced", marks.taken_over),
        ("a write landed late", marks.late_landed),
        ("a leader landed late", marks.late_leader_landed),
        ("a leader rolled back", marks.rolled_back),
        ("a write landed that had failed in time", marks.doubtful_landed),
        ("a write landed that had failed after its limit", marks.doubtful_landed_late),
        ("a write refused", marks.refused_writes),
        ("a write said to be short", marks.short_writes),
        ("retracted", marks.retracted),
        ("hosts with different io timeouts", marks.other_timeouts),
        ("a lockspace joined with another io timeout than the one beside it", marks.timeouts_by_lockspace),
        ("a lockspace joined with another io timeout than before", marks.timeouts_changed),
        ("sectors of 4096 bytes in areas of 1 MiB", marks.sizes_4096_1),
        ("in areas of 2 MiB", marks.sizes_4096_2),
        ("in areas of 4 MiB", marks.sizes_4096_4),
        ("in areas of 8 MiB", marks.sizes_4096_8),
        ("a value refused because the area has no room for it", marks.values_without_room),
        ("more than eight hosts", marks.many_hosts),
        ("a machine that stands still", marks.machines_stopped),
        ("a machine suspended with its clock and watchdog", marks.machines_suspended),
        ("a daemon with another machine's host id", marks.twins),
        ("a join refused for somebody else", marks.refused_ids),
        ("a daemon with a new host name", marks.new_names),
        ("a host reset", marks.resets),
        ("a host with a smaller timestamp than before it was reset", marks.clocks_anew),
        ("a lockspace failed", marks.failed_lockspaces),
        ("joined again", marks.joins),
        ("joined without the long wait", marks.fast_rejoins),
        ("left in order", marks.left_orderly),
        ("a daemon started again", marks.restarts),
        ("leases of two lockspaces in one process", marks.acquired_in_both),
        ("an acquire stopped by its lockspace", marks.stopped_by_lockspace),
        ("an acquire stopped by its client's end", marks.stopped_by_client),
        ("a disk that could not be opened", marks.opens_failed),
        ("a process signalled", marks.signals),
        ("a killpath program run", marks.killpaths),
        ("a watchdog armed", marks.armed),
        ("a watchdog disarmed", marks.disarmed),
        ("a watchdog fired", marks.fired),
        ("a holder ended by the watchdog", marks.saved_by_watchdog),
        ("wdmd killed or standing still", marks.wdmd_faults),
        ("a daemon let onto a host that is going to be reset", marks.let_onto_doomed_hosts),
        ("a renewal landed when its lockspace was left", marks.late_delta_landed),
        ("an orphan", marks.orphaned),
        ("an orphan adopted", marks.orphans_adopted),
        ("an orphan released", marks.orphans_released),
        ("orphans said to count", marks.orphans_flags),
        ("an orphan that counts", marks.orphans_counting),
        ("a resource formatted", marks.formats_done),
        ("a format that ended with an error", marks.formats_failed),
        ("a format cut off when the old lease was gone", marks.formats_cut),
        ("a write of a format that was torn", marks.formats_torn),
        ("a value set", marks.values_set),
        ("a value written", marks.values_written),
        ("another host's value read", marks.values_of_others),
        ("a value refused", marks.values_refused),
        ("a version demanded and got", marks.demands_met),
        ("a version demanded and refused", marks.demands_refused),
        ("a process told what it holds", marks.inquired),
        ("shared", marks.shared),
        ("shared by two processes of a host", marks.shared_by_processes),
        ("shared by two hosts", marks.shared_by_hosts),
        ("an exclusive acquire refused because somebody shares", marks.refused_shared),
        ("kept out by others on their way to sharing", marks.crowded),
        ("a dead sharer's mode block cleared", marks.mode_blocks_cleared),
        ("converted to exclusive", marks.converted_up),
        ("converted to shared", marks.converted_down),
        ("a conversion refused because of other hosts", marks.converts_refused),
        ("a conversion refused because of another process", marks.converts_beside_others),
        ("a conversion that failed on the way", marks.converts_failed),
        ("a conversion that left something in the leader", marks.convert_leftovers),
        ("a request written", marks.requests),
        ("a request taken back", marks.requests_cleared),
        ("a request refused", marks.requests_refused),
        ("a process told of a request", marks.requests_acted),
        ("a request acted upon in time", marks.requests_in_time),
        ("a request for a version that is over, left alone", marks.requests_old),
        ("a request that a newer one took the place of", marks.requests_superseded),
        ("a host event set", marks.events_set),
        ("a host event taken back", marks.events_cleared),
        ("a host event refused", marks.events_refused),
        ("a host event delivered", marks.events_delivered),
        ("a host event delivered in time", marks.events_in_time),
    ]);
}

#[test]
fn our_hosts_alone() {
    let marks = run(1, 0);
    assert_reached(&marks);
    all_reached(&[
        ("a lease renamed", marks.renamed),
        ("a lease asked for under its old name", marks.misnamed),
        ("a lease of several disks granted", marks.acquired_on_legs),
        ("with the leader on some of them", marks.acquired_on_some),
        ("granted to a host that names another lease on one of them", marks.acquired_beside_wrong),
        ("worked on with a disk not open", marks.opened_in_part),
        ("a lease granted that is not formatted on every disk", marks.granted_unformatted),
        ("a disk lost by all hosts", marks.disks_lost),
        ("a disk back with old content", marks.disks_old),
        ("a disk failed for ever", marks.disks_dead),
    ]);
}

/// Hosts that fight for one lease whose leaders land late or fail. (Repairs come seven times, leases left over late writes once.)
#[test]
fn tight_runs() {
    const TIGHT_SEEDS: u64 = 60;
    let case = |seed| Case { seed, settings: Settings::tight(&mut Dice::new(seed)), broken: None };
    let marks = run_cases((1..=number("SIM_SEEDS").unwrap_or(TIGHT_SEEDS)).map(case));
    all_reached(&[
        ("a leader rolled back", marks.rolled_back),
        ("a leader landed late", marks.late_leader_landed),
        ("a write landed that had failed in time", marks.doubtful_landed),
        ("a write landed that had failed after its limit", marks.doubtful_landed_late),
        ("a host id lease written after others might have had it", marks.overtaken),
        ("a disk back with old content", marks.disks_old),
        ("a lease renamed", marks.renamed),
    ]);
}

#[test]
fn our_hosts_and_reference_peers() {
    assert_reached(&run(1_000_001, 1));
}

#[test]
fn a_seed_determines_the_run() {
    for kind in Kind::ALL {
        let [one, other] = [0; 2].map(|_| {
            let mut world = Case::drawn(kind, 7, 1).world(true);
            world.run();
            world.log_tail(usize::MAX)
        });
        assert!(one.len() > 1000);
        assert!(one == other, "the same seed, another run");
    }
}

/// Repeats one seed with its log; see above.
#[test]
fn replay() {
    if let Some(seed) = number("SIM_SEED") {
        let long = std::env::var("SIM_KIND").is_ok_and(|kind| kind == Kind::Long.name());
        let kind = if long { Kind::Long } else { Kind::Dense };
        let mut case = Case::drawn(kind, seed, number("SIM_REFERENCES").unwrap_or(0));
        if let Ok(text) = std::env::var("SIM_SETTINGS") {
            case.settings = text.parse().unwrap_or_else(|e| panic!("SIM_SETTINGS: {e}"));
        }
        replayed(&case);
    }
}
