//! Exclusive-holder contention: many processes on several hosts fight for one lease, and every
//! holder proves that it is alone.
//!
//! The proof does not rely on the lock manager: while it holds the lease, a contender takes a
//! non-blocking `flock` on a common file and creates another file exclusively; both must succeed.
//! It then appends the lease version to a common log, which must grow strictly.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::bounded::{self, Running};
use crate::fair;
use crate::host::Host;
use crate::program::{Program, build_dir};
use crate::scene::Scene;
use crate::storage::{Storage, text};

/// Processes per host.
pub const CONTENDERS_PER_HOST: usize = 3;

/// From this length on nobody may have starved.
const FAIR_SECONDS: u64 = 10;

/// A contender ends within this time after the fight: its last acquire may take a while.
const END_LIMIT: Duration = Duration::from_secs(60);

/// What one contender did.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    /// Times the lease was granted.
    pub granted: u64,
    /// Times it was refused.
    pub refused: u64,
}

/// Runs the fight among one host of each given program, for `seconds` or what
/// `SANLOCK_CONTENTION_SECS` says, and returns the grants per host. Each host must get `least` percent of its fair share.
///
/// # Panics
/// When two contenders held the lease at the same time, when a version did not grow, when any
/// command failed in another way than by a refusal, or when a host starved.
pub fn fight(programs: &[Program], seconds: u64, least: u64) -> Vec<Tally> {
    let seconds = seconds_wanted(seconds);
    let scene = Scene::joined(Storage::file(), programs, 1);
    scene.wait_until_all_see_all();
    let proof_dir = scene.storage().dir().join("proof");
    std::fs::create_dir(&proof_dir)
        .unwrap_or_else(|error| panic!("cannot make the proof directory: {error}"));

    let mut contenders: Vec<(usize, Running)> = Vec::new();
    for (index, host) in scene.hosts().iter().enumerate() {
        for number in 0..CONTENDERS_PER_HOST {
            let label = format!("{}-{number}", host.name());
            contenders.push((index, start_contender(host, scene.storage(), &proof_dir, &label, seconds)));
        }
    }
    let tallies = collect(&mut contenders, programs.len(), Duration::from_secs(seconds) + END_LIMIT);
    let granted: u64 = tallies.iter().map(|tally| tally.granted).sum();
    let report: Vec<String> = programs
        .iter()
        .zip(&tallies)
        .map(|(program, tally)| format!("{} {}+{}", program.word(), tally.granted, tally.refused))
        .collect();
    eprintln!("{seconds} s of contention, granted+refused: {}", report.join(", "));
    assert_eq!(versions_logged(&proof_dir), granted, "DOUBLE OWNER: every grant is in the log");
    assert_eq!(
        scene.lver(1),
        last_version(&proof_dir),
        "DOUBLE OWNER: the last grant logged is the last on disk"
    );
    let grants: Vec<u64> = tallies.iter().map(|tally| tally.granted).collect();
    eprintln!("in percent of a fair share: {:?}", fair::shares(&grants));
    if seconds >= FAIR_SECONDS {
        fair::assert_nobody_starved(&grants, least);
    }
    tallies
}

/// Waits for all contenders; stops at the first that fails, while the daemons' logs still show why.
fn collect(contenders: &mut Vec<(usize, Running)>, hosts: usize, limit: Duration) -> Vec<Tally> {
    let mut tallies = vec![Tally::default(); hosts];
    bounded::wait_until("all contenders to end", limit, || {
        contenders.retain_mut(|(index, contender)| {
            if !contender.ended() {
                return true;
            }
            let tally = parse_tally(&contender.finish(limit).success().stdout);
            tallies[*index].granted += tally.granted;
            tallies[*index].refused += tally.refused;
            false
        });
        contenders.is_empty()
    });
    tallies
}

fn seconds_wanted(default: u64) -> u64 {
    match std::env::var("SANLOCK_CONTENTION_SECS") {
        Ok(text) => {
            text.parse().unwrap_or_else(|_| panic!("SANLOCK_CONTENTION_SECS is not a number: {text:?}"))
        }
        Err(_) => default,
    }
}

/// Starts one contender for resource 1 of `storage` through `host`.
#[must_use]
pub fn start_contender(
    host: &Host,
    storage: &Storage,
    proof_dir: &Path,
    label: &str,
    seconds: u64,
) -> Running {
    let mut command = bounded::dying_with_us(&contender_path());
    command.args([text(host.run_dir()), storage.path()]);
    command.args([&storage.offset(1).to_string(), text(proof_dir), label, &seconds.to_string()]);
    Running::start(command)
}

/// The contender is a program of this package; cargo builds it next to the tests.
fn contender_path() -> PathBuf {
    let path = build_dir().join("contender");
    assert!(path.exists(), "{} has not been built", path.display());
    path
}

fn parse_tally(stdout: &str) -> Tally {
    let number = |key: &str| {
        stdout
            .split_whitespace()
            .find_map(|word| word.strip_prefix(key))
            .and_then(|value| value.parse().ok())
            .unwrap_or_else(|| panic!("the contender reported no {key}: {stdout:?}"))
    };
    Tally { granted: number("granted="), refused: number("refused=") }
}

/// The log of versions, one line `VERSION LABEL` per grant.
#[must_use]
pub fn version_log(proof_dir: &Path) -> PathBuf {
    proof_dir.join("versions")
}

fn versions_logged(proof_dir: &Path) -> u64 {
    read_log(proof_dir).lines().count() as u64
}

fn last_version(proof_dir: &Path) -> u64 {
    let log = read_log(proof_dir);
    let word = log.lines().last().and_then(|line| line.split(' ').next());
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn read_log(proof_dir: &Path) -> String {
    std::fs::read_to_string(version_log(proof_dir)).unwrap_or_default()
}
