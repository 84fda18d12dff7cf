//! What fails becomes smaller, and the printed command fails in the same way.

use sanlock_sim::campaign::{Case, Failure};
use sanlock_sim::sabotage::Sabotage;
use sanlock_sim::settings::Kind;
use sanlock_sim::shrink::{self, Shrunk};

/// Seeds tried until something fails.
const SEEDS: u64 = 60;
/// Runs of a shrinking.
const TRIES: u32 = 600;

fn failing(sabotage: Sabotage, wanted: &'static str) -> Failure {
    let run = |seed| Case { broken: Some((sabotage, wanted)), ..Case::drawn(Kind::Dense, seed, 0) }.run();
    *(1..=SEEDS).find_map(|seed| run(seed).err()).expect("not noticed")
}

/// The value of an option in a command.
fn option<'a>(command: &'a str, name: &str) -> &'a str {
    let (_, rest) = command.split_once(name).expect("an option");
    rest.trim_start().trim_start_matches('\'').split([' ', '\'']).next().unwrap_or_default()
}

fn shrinks(sabotage: Sabotage, wanted: &'static str) {
    let large = failing(sabotage, wanted);
    let Shrunk { failure: small, tries } = shrink::shrink(&large, TRIES, |_| {});
    let (before, after) = (shrink::size(&large), shrink::size(&small));
    println!("{sabotage:?}: {before} to {after} in {tries} runs: {}", small.case.settings);
    assert!(after * 3 <= before * 2, "{sabotage:?} shrank from {before} to {after} only: {small}");
    // From the text alone.
    let command = small.case.command();
    let case = Case {
        seed: option(&command, "--seed").parse().expect("a seed"),
        settings: option(&command, "--settings").parse().expect("settings"),
        broken: Some((option(&command, "--sabotage").parse().expect("a name"), wanted)),
    };
    let again = *case.run().expect_err("it fails again");
    assert_eq!(again, small);
}

#[test]
fn two_owners_shrink() {
    shrinks(Sabotage::KeepsUsing, "S1:");
}

#[test]
fn owners_taken_for_dead_shrink() {
    shrinks(Sabotage::OwnersDieYoung, "S11:");
}

#[test]
fn forgotten_values_shrink() {
    shrinks(Sabotage::BlocksForget, "S3:");
}

#[test]
fn a_watchdog_that_never_fires_shrinks() {
    shrinks(Sabotage::NeverFires, "W4:");
}

#[test]
fn time_that_does_not_pass_shrinks() {
    shrinks(Sabotage::AgesUnseen, "S6:");
}

#[test]
fn releases_without_an_end_shrink() {
    shrinks(Sabotage::ReleasesNeverEnd, "L1/L3/L4:");
}
