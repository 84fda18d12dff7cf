//! Random runs. A failure prints the command that repeats it.

use sanlock_sim::checks::Marks;
use sanlock_sim::dice::Dice;
use sanlock_sim::settings::Settings;
use sanlock_sim::world::World;

/// Seeds per test unless `SIM_SEEDS` says otherwise: about a minute for both.
const SEEDS: u64 = 150;
/// Lines of the log that a failure prints.
const TAIL: usize = 150;

fn world(seed: u64, references: u64, logging: bool) -> World {
    let settings = Settings::draw(&mut Dice::new(seed ^ 0x5e77), references);
    World::new(settings, seed, logging)
}

/// Runs the seeds, prints the first failure, returns what was reached.
fn run(first: u64, references: u64) -> Marks {
    let seeds = std::env::var("SIM_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(SEEDS);
    let mut marks = Marks::default();
    for seed in first..first + seeds {
        let mut world = world(seed, references, false);
        if !world.run() {
            report(seed, references);
        }
        marks.add(&world.checks.marks);
    }
    println!("{seeds} seeds: {marks:?}");
    marks
}

fn report(seed: u64, references: u64) {
    let mut again = world(seed, references, true);
    again.run();
    for line in again.log_tail(TAIL) {
        println!("{line}");
    }
    println!("{:?}", again.settings);
    if again.checks.violations.is_empty() {
        return println!("seed {seed}: no violation");
    }
    panic!(
        "{:#?}\nrepeat with: SIM_SEED={seed} SIM_REFERENCES={references} cargo test -p sanlock-sim replay -- --nocapture",
        again.checks.violations
    );
}

/// What every batch of runs must have gone through; a batch that did not proves nothing.
fn assert_reached(marks: &Marks) {
    let reached = [
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
        ("retracted", marks.retracted),
        ("a host reset", marks.resets),
        ("a lockspace failed", marks.failed_lockspaces),
        ("joined again", marks.joins),
    ];
    for (what, times) in reached {
        assert!(times > 0, "never reached: {what}");
    }
}

#[test]
fn our_hosts_alone() {
    assert_reached(&run(1, 0));
}

#[test]
fn our_hosts_and_reference_peers() {
    assert_reached(&run(1_000_001, 1));
}

/// Repeats one seed with its log: `SIM_SEED=… SIM_REFERENCES=… cargo test -p sanlock-sim replay -- --nocapture`.
#[test]
fn replay() {
    let number = |name: &str| std::env::var(name).ok().and_then(|s| s.parse().ok());
    if let Some(seed) = number("SIM_SEED") {
        report(seed, number("SIM_REFERENCES").unwrap_or(0));
    }
}
