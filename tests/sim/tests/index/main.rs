//! The resource index among several hosts: the production operations and the production machines of its lease, on a disk that delays,
//! times out, tears and fails, with hosts that lose it, die, and come back (lease-algorithms.md 11).
//!
//! # Fault model
//!
//! * A sector is written whole or not at all. A transfer of more goes in up to three pieces at moments of their own between its
//!   submission and its end; that holds for reads and writes.
//! * A transfer takes milliseconds, or longer than its limit: then its submitter is told so, and a write lands when it lands.
//! * A transfer may fail. Each part of a failed write has landed, or lands at any moment of the 8T + F that follow, or never.
//! * A host loses its way to the disk for any time: what it asks for hangs until it is back. Its renewals fail with that: after 8T it
//!   may not write any more, after 8T + F its watchdog has reset it.
//! * A host is reset at any moment. Of what was on its way, or in doubt, each piece lands at that moment or never. It comes back with the next
//!   generation of its host id.
//!
//! # Checks
//!
//! | Code | What |
//! |---|---|
//! | X1 | never do two hosts hold the lease of the index |
//! | X2 | an entry points to a lease of its name |
//! | X3 | nothing is written to the area of an entry |
//! | X4 | what lands on the index changes nothing but the entry it is for |
//! | X5 | a result says what is so: made, gone, found, not found |
//! | X6 | nothing is written for a lockspace that is gone |
//! | X7 | the lease is not given back while something written under it may still land |
//! | X8 | when faults have ended, every host gets its operations done |
//! | X9 | no name is there twice |
//!
//! Each of them can fail: `sabotage.rs` breaks the hosts in one way after the other.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod checks;
mod disk;
mod hosts;
mod sabotage;
mod transfers;
mod work;
mod world;

use std::thread::ScopedJoinHandle;

use sabotage::Sabotage;
use world::World;

/// Seeds of a run without sabotage; SIM_INDEX_SEEDS names another number.
fn seeds() -> u64 {
    std::env::var("SIM_INDEX_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(300)
}

#[test]
fn hosts_that_die_and_come_back_keep_the_index_right() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let shares: Vec<world::Counts> = std::thread::scope(|scope| {
        let share =
            |first| scope.spawn(move || (first as u64..seeds()).step_by(threads).map(kept_right).collect());
        let shares: Vec<ScopedJoinHandle<'_, Vec<world::Counts>>> = (0..threads).map(share).collect();
        shares.into_iter().flat_map(|share| share.join().unwrap()).collect()
    });
    let mut met = world::Counts::new();
    for (what, count) in shares.into_iter().flatten() {
        *met.entry(what).or_default() += count;
    }
    eprintln!("{met:?}");
    assert_eq!(met.len(), world::MET_KINDS, "not everything was met: {met:?}");
}

/// What a run without a violation met.
fn kept_right(seed: u64) -> world::Counts {
    let mut world = World::new(seed, None);
    world.run();
    if !world.checks.violations.is_empty() {
        let (log, violations) = logged(seed);
        let tail = &log[log.len().saturating_sub(120)..];
        panic!("SIM_SEED={seed}:\n{}\nthe last of its log:\n{}", violations.join("\n"), tail.join("\n"));
    }
    world.counts
}

#[test]
fn whatever_is_broken_is_noticed() {
    let mut unnoticed = Vec::new();
    for (sabotage, code) in Sabotage::ALL {
        let caught = (0..400).find(|seed| {
            let mut world = World::new(*seed, Some(sabotage));
            world.run();
            world.checks.violations.iter().any(|violation| violation.starts_with(code))
        });
        match caught {
            Some(seed) => eprintln!("{sabotage:?}: {code} with seed {seed}"),
            None => unnoticed.push(sabotage),
        }
    }
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
}

/// The log and the violations of a run.
fn logged(seed: u64) -> (Vec<String>, Vec<String>) {
    let mut world = World::new(seed, None);
    world.log = Some(Vec::new());
    world.run();
    (world.log.take().unwrap_or_default(), world.checks.violations)
}

/// Repeats one run, with its whole log: `SIM_SEED=7 cargo test -p sanlock-sim --test index replay -- --nocapture`.
#[test]
fn a_run_can_be_replayed() {
    let seed = std::env::var("SIM_SEED").ok().and_then(|n| n.parse().ok());
    let first = logged(seed.unwrap_or(1));
    assert_eq!(first, logged(seed.unwrap_or(1)));
    if seed.is_some() {
        eprintln!("{}\n{}", first.0.join("\n"), first.1.join("\n"));
    }
}
