//! Rule R9: leaders that were rolled back by more than one version are repaired by the ballot for the version that is ahead. Every run
//! has to reach such repairs. The larger ones run with `--ignored`.

use sanlock_model::Plan::{Exclusive, ExclusiveThenDown, Shared, SharedThenUp};
use sanlock_model::checks::Marks;
use sanlock_model::{Budget, Kind, Limits, Plan, Property, Settings, World, explore};

fn repairs(what: &str, settings: Settings, calm_every: u32) -> Marks {
    let mut world = World::new(settings);
    let limits = Limits { calm_every, states: 30_000_000, ..Limits::complete() };
    let report = explore(&mut world, limits);
    if let Some(violation) = &report.violation {
        panic!("{what}: {:?} is broken:\n{}", violation.property, world.narrate(&violation.schedule));
    }
    println!("{what}: {} states, {} steps, complete, depth {}", report.states, report.steps, report.depth);
    println!("    {:?}", world.marks);
    assert!(report.complete);
    assert!(world.marks.rolled_back > 0 && world.marks.repaired > 0, "{what}");
    world.marks
}

fn exclusive(attempts: &[u8], budget: Budget) -> Settings {
    Settings { budget, ..Settings::new(Kind::Ours, attempts) }
}

fn planned(plans: &[&[Plan]], budget: Budget) -> Settings {
    Settings { budget, ..Settings::planned(Kind::Ours, plans) }
}

const QUIET: Budget = Budget { late: 0, errors: 0, crashes: 0, lapses: 0, leaves: 0, paths: 0, waits: 1 };

#[test]
fn two_hosts_beside_a_late_write() {
    let budget = Budget { late: 1, ..QUIET };
    let marks = repairs("2 hosts, 3 acquires and 2, 1 late write", exclusive(&[3, 2], budget), 1);
    assert!(marks.late_leaders > 0);
}

#[test]
fn two_hosts_one_of_which_crashes() {
    let budget = Budget { crashes: 1, ..QUIET };
    let marks = repairs("2 hosts, 3 acquires and 2, 1 crash", exclusive(&[3, 2], budget), 11);
    assert!(marks.taken_from_dead > 0);
}

#[test]
fn two_hosts_that_share() {
    let plans: &[&[Plan]] = &[&[Exclusive, Shared, Exclusive], &[Exclusive, Shared, Exclusive]];
    let marks = repairs("2 hosts, EX, SH and EX each, no faults", planned(plans, QUIET), 11);
    assert!(marks.shared_by_two > 0 && marks.refused_shared > 0);
}

/// Beside a peer that follows the original, as far as that one alone makes no two owners: with three acquires on each it does, whatever
/// ours do (`slow_commits_alone_make_two_owners_in_a_mixed_cluster`).
#[test]
fn beside_a_reference_peer_a_repair_makes_no_second_owner() {
    for attempts in [[3, 2], [2, 3], [4, 1], [1, 3]] {
        for reference in [0, 1] {
            let mut settings = exclusive(&attempts, QUIET);
            settings.hosts[reference] = Kind::Reference;
            settings.properties = vec![Property::OneOwner];
            repairs(&format!("{attempts:?} acquires, host {} a reference peer", reference + 1), settings, 0);
        }
    }
}

#[test]
#[ignore = "larger"]
fn two_hosts_that_convert() {
    let plans: &[&[Plan]] = &[&[ExclusiveThenDown, Shared, Exclusive], &[Exclusive, SharedThenUp]];
    let marks = repairs("2 hosts, conversions, no faults", planned(plans, QUIET), 11);
    assert!(marks.converted_up > 0 && marks.converted_down > 0);
}

#[test]
#[ignore = "larger"]
fn two_hosts_that_share_beside_a_late_write() {
    let plans: &[&[Plan]] = &[&[Exclusive, Shared, Exclusive], &[Shared, Exclusive]];
    repairs("2 hosts, EX, SH, EX and SH, EX, 1 late write", planned(plans, Budget { late: 1, ..QUIET }), 97);
}

#[test]
#[ignore = "larger"]
fn two_hosts_whose_reads_are_no_snapshots() {
    let settings = Settings { torn_reads: true, ..exclusive(&[3, 3], QUIET) };
    repairs("2 hosts with torn reads, 3 acquires each, no faults", settings, 97);
}

#[test]
#[ignore = "larger"]
fn two_hosts_three_acquires_each_beside_a_late_write() {
    let budget = Budget { late: 1, ..QUIET };
    repairs("2 hosts, 3 acquires each, 1 late write", exclusive(&[3, 3], budget), 97);
}

#[test]
#[ignore = "larger"]
fn two_hosts_beside_a_late_write_and_a_crash() {
    let budget = Budget { late: 1, crashes: 1, ..QUIET };
    repairs("2 hosts, 3 acquires and 2, 1 late write, 1 crash", exclusive(&[3, 2], budget), 97);
}

#[test]
#[ignore = "larger"]
fn two_hosts_whose_leases_are_renamed() {
    let budget = Budget { late: 1, ..QUIET };
    let mut settings = Settings { renames: true, ..exclusive(&[3, 2], budget) };
    // A leader that was rolled back is not renamed, which the release says.
    settings.properties.retain(|property| *property != Property::NothingForeign);
    repairs("2 hosts that rename, 3 acquires and 2, 1 late write", settings, 97);
}

#[test]
#[ignore = "larger"]
fn three_hosts() {
    repairs("3 hosts, 2, 2 and 1 acquires, no faults", exclusive(&[2, 2, 1], QUIET), 11);
}

#[test]
#[ignore = "larger"]
fn three_hosts_three_two_and_one() {
    let budget = Budget { waits: 0, ..QUIET };
    repairs("3 hosts, 3, 2 and 1 acquires, no faults, no second ballots", exclusive(&[3, 2, 1], budget), 97);
}
