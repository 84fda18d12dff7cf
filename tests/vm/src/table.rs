//! The command line: which scenarios are played, and the table of what came out.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::image::{Boot, work_dir};
use crate::judge::{Moments, Verdict, judge};
use crate::scenario::{Kind, LVMS, LvmScenario, Outfit, PAIRS, SOLOS, Scenario, SoloScenario};
use crate::timeline::Timeline;
use crate::{lvm, play, solo};

const USAGE: &str = "\
usage: sanlock-vm list                  names of all scenarios
       sanlock-vm [--jobs N] all        all of them, N at a time (default 1)
       sanlock-vm rotate [N]            N of those that take about a minute (default 3), others after each commit;
                                        SANLOCK_VM_ROTATION=NUMBER chooses instead of the number of commits
       sanlock-vm [--jobs N] PATTERN... those whose name begins with a pattern";

/// Above this fire timeout a scenario takes too long for every run.
const ROTATION_FIRE_MAX: u64 = 30;
/// Patterns and jobs beyond this are a mistake.
const JOBS_MAX: usize = 64;

#[derive(Clone, Copy)]
enum Any {
    Pair(&'static Scenario),
    Solo(&'static SoloScenario),
    Lvm(&'static LvmScenario),
}

impl Any {
    fn name(self) -> &'static str {
        match self {
            Self::Pair(scenario) => scenario.name,
            Self::Solo(scenario) => scenario.name,
            Self::Lvm(scenario) => scenario.name,
        }
    }

    fn guests(self) -> Vec<(Kind, Outfit)> {
        match self {
            Self::Pair(scenario) => scenario.hosts.map(|kind| (kind, Outfit::Holder)).to_vec(),
            Self::Solo(scenario) => vec![(scenario.kind, Outfit::Holder)],
            Self::Lvm(scenario) => scenario.hosts.map(|kind| (kind, Outfit::Lvm)).to_vec(),
        }
    }

    fn is_fast(self) -> bool {
        match self {
            Self::Pair(scenario) => scenario.timing.fire <= ROTATION_FIRE_MAX,
            // Their clock runs ahead of a slow disk: not for a machine that does something else.
            Self::Solo(_) => false,
            // Have a phase of their own.
            Self::Lvm(_) => false,
        }
    }

    fn settings(self) -> String {
        let (hosts, timing) = match self {
            Self::Pair(scenario) => {
                (format!("{}, {}", scenario.hosts[0], scenario.hosts[1]), scenario.timing)
            }
            Self::Solo(scenario) => (scenario.kind.to_string(), scenario.timing),
            Self::Lvm(scenario) => (format!("{}, {}", scenario.hosts[0], scenario.hosts[1]), scenario.timing),
        };
        format!("{hosts:13} {:>3}/{}", timing.fire, timing.io)
    }
}

fn everything() -> Vec<Any> {
    PAIRS.iter().map(Any::Pair).chain(SOLOS.iter().map(Any::Solo)).chain(LVMS.iter().map(Any::Lvm)).collect()
}

/// Runs the command of these arguments. Exit status 0 when everything played is right, 1 when not, 2 for bad arguments.
pub(crate) fn main(args: &[String]) -> ExitCode {
    match choose(args) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some((chosen, jobs))) => run(&chosen, jobs),
        Err(problem) => {
            eprintln!("sanlock-vm: {problem}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn choose(args: &[String]) -> Result<Option<(Vec<Any>, usize)>, String> {
    let mut words: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut jobs = 1;
    if words.first() == Some(&"--jobs") {
        let number = words.get(1).and_then(|word| word.parse().ok()).filter(|n| (1..=JOBS_MAX).contains(n));
        jobs = number.ok_or(format!("--jobs needs a number from 1 to {JOBS_MAX}"))?;
        words.drain(..2);
    }
    let all = everything();
    let chosen = match words.as_slice() {
        [] => return Err("nothing to do".into()),
        ["list"] => {
            all.iter().for_each(|any| println!("{:26} {}", any.name(), any.settings()));
            return Ok(None);
        }
        ["all"] => all,
        ["rotate"] => rotation(&all, 3)?,
        ["rotate", count] => {
            let count = count.parse().map_err(|_| format!("rotate {count:?}: not a number"))?;
            rotation(&all, count)?
        }
        patterns => {
            for pattern in patterns {
                if !all.iter().any(|any| any.name().starts_with(pattern)) {
                    return Err(format!("no scenario's name begins with {pattern:?}; see sanlock-vm list"));
                }
            }
            all.into_iter()
                .filter(|any| patterns.iter().any(|pattern| any.name().starts_with(pattern)))
                .collect()
        }
    };
    Ok(Some((chosen, jobs)))
}

/// `count` of the fast ones, beginning at a place that moves on with every commit, or every day where the number of commits
/// is not known.
fn rotation(all: &[Any], count: usize) -> Result<Vec<Any>, String> {
    let turn = match std::env::var("SANLOCK_VM_ROTATION") {
        Ok(text) => text.parse().map_err(|_| format!("SANLOCK_VM_ROTATION={text:?}: not a number"))?,
        Err(_) => commits().unwrap_or_else(days),
    };
    println!("rotation {turn} (SANLOCK_VM_ROTATION={turn} repeats it)");
    Ok(turn_of(all, count, turn))
}

fn turn_of(all: &[Any], count: usize, turn: usize) -> Vec<Any> {
    let fast: Vec<Any> = all.iter().copied().filter(|any| any.is_fast()).collect();
    let count = count.min(fast.len());
    // Spread over the list, so that neighbours, which are alike, come in different runs.
    let stride = fast.len() / count.max(1);
    (0..count).filter_map(|n| fast.get((turn + n * stride) % fast.len()).copied()).collect()
}

fn commits() -> Option<usize> {
    let here = env!("CARGO_MANIFEST_DIR");
    let git = Command::new("git").args(["-C", here, "rev-list", "--count", "HEAD"]).output().ok()?;
    let count = String::from_utf8(git.stdout).ok()?.trim().parse().ok()?;
    // A shallow clone always has the same number.
    (git.status.success() && count > 1).then_some(count)
}

fn days() -> usize {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    usize::try_from(seconds / 86400).unwrap_or(0)
}

fn run(chosen: &[Any], jobs: usize) -> ExitCode {
    let start = Instant::now();
    let guests: Vec<(Kind, Outfit)> = chosen.iter().flat_map(|any| any.guests()).collect();
    let (boot, work) = match Boot::prepare(&guests).and_then(|boot| Ok((boot, work_dir()?))) {
        Ok(ready) => ready,
        Err(problem) => {
            eprintln!("sanlock-vm: {problem}");
            return ExitCode::FAILURE;
        }
    };
    println!("{} scenarios; seconds since the last renewal of the host that fails\n", chosen.len());
    println!(
        "{:26} {:13} {:>5} | {:>10} {:>8} {:>7} {:>6} {:>9} {:>6} | verdict",
        "scenario", "hosts", "F/T", "last write", "recovery", "SIGKILL", "reset", "take-over", "margin"
    );
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..jobs.min(chosen.len()) {
            scope.spawn(|| {
                while let Some(any) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let verdict = play_one(*any, &boot, &work.join("runs").join(any.name()));
                    println!("{}", line(*any, &verdict));
                    if !verdict.problems.is_empty() {
                        failures.lock().unwrap_or_else(PoisonError::into_inner).push(any.name());
                    }
                }
            });
        }
    });
    let failed = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    for name in &failed {
        println!(
            "\n{name}: what was seen is in {}",
            work.join("runs").join(name).join("timeline.log").display()
        );
    }
    let word = if failed.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {} passed; {} failed; 0 ignored; 0 measured; 0 filtered out; finished in {:.2}s",
        chosen.len() - failed.len(),
        failed.len(),
        start.elapsed().as_secs_f64()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn play_one(any: Any, boot: &Boot, dir: &Path) -> Verdict {
    let played = || -> Result<Verdict, String> {
        if dir.exists() {
            fs::remove_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        }
        fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let timeline = Arc::new(Timeline::new(&dir.join("timeline.log"))?);
        let images = match any {
            Any::Lvm(_) => lvm::make_images(dir)?,
            Any::Pair(_) | Any::Solo(_) => play::make_images(dir)?,
        };
        // Short paths: the address of a socket has room for 107 bytes.
        let sockets =
            tempfile::Builder::new().prefix("sanlock-vm-").tempdir().map_err(|error| error.to_string())?;
        let verdict = match any {
            Any::Pair(scenario) => {
                let played = play::play(scenario, boot, &images, sockets.path(), &timeline);
                // Even if it broke off: what was seen until then says more.
                let mut verdict = judge(scenario, &timeline.events());
                verdict.problems.extend(played.err());
                verdict
            }
            Any::Solo(scenario) => solo::play(scenario, boot, &images, sockets.path(), &timeline)?,
            Any::Lvm(scenario) => {
                lvm::play(scenario, boot, &images, sockets.path(), &timeline)?;
                Verdict::default()
            }
        };
        for image in images.leases.iter().chain([&images.stamps]) {
            fs::remove_file(image).map_err(|error| format!("{}: {error}", image.display()))?;
        }
        Ok(verdict)
    };
    played().unwrap_or_else(Verdict::failed)
}

fn line(any: Any, verdict: &Verdict) -> String {
    let number = |at: Option<f64>| at.map_or("-".to_owned(), |seconds| format!("{seconds:.1}"));
    let Moments { last_write, recovery, sigkill, reset, take_over, margin } = verdict.moments.clone();
    let result = if verdict.problems.is_empty() {
        "ok".to_owned()
    } else {
        format!("FAILED: {}", verdict.problems.join("; "))
    };
    format!(
        "{:26} {} | {:>10} {:>8} {:>7} {:>6} {:>9} {:>6} | {result}",
        any.name(),
        any.settings(),
        number(last_write),
        number(recovery),
        number(sigkill),
        number(reset),
        number(take_over),
        number(margin)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = everything().iter().map(|any| any.name()).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }

    #[test]
    fn every_fast_scenario_gets_its_turn_and_none_twice_in_a_run() {
        let all = everything();
        let fast = all.iter().filter(|any| any.is_fast()).count();
        let mut seen = std::collections::BTreeSet::new();
        for turn in 0..fast {
            let names: std::collections::BTreeSet<_> =
                turn_of(&all, 3, turn).iter().map(|any| any.name()).collect();
            assert_eq!(names.len(), 3);
            seen.extend(names);
        }
        assert_eq!(seen.len(), fast);
    }

    #[test]
    fn unknown_patterns_are_refused() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(choose(&words("a-cut nonsense")).is_err());
        assert!(choose(&words("--jobs 0 all")).is_err());
        assert!(matches!(choose(&words("--jobs 2 a-cut")), Ok(Some((chosen, 2))) if chosen.len() == 2));
    }
}
