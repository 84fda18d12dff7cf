//! Runs tests against mutants.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// What the tests say to a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It doesn't compile.
    Unviable,
    /// A test fails.
    Caught,
    /// A test runs on without end.
    Timeout,
    /// Nobody noticed.
    Survived,
}

/// A test and what it does when nothing is mutated.
#[derive(Debug)]
struct Test {
    program: usize,
    name: String,
    took: Duration,
    /// Numbers of the functions that it enters.
    reaches: HashSet<usize>,
}

/// All tests of a package.
#[derive(Debug)]
pub struct Tests {
    programs: Vec<PathBuf>,
    directory: PathBuf,
    tests: Vec<Test>,
    left_out: Vec<String>,
}

/// Tests that use as much processor time, built without optimization, take no part: they try thousands of cases of what others try too.
const LONGEST: Duration = Duration::from_secs(4);

/// Tests below this run together in one process, longer ones alone.
const QUICK: Duration = Duration::from_millis(200);

/// Processor time that a test may take beyond a multiple of what it takes unmutated. Waiting for a processor doesn't count.
const SLACK_SECONDS: u64 = 4;

/// Address space of a test: no correct one comes near. In KiB, as `ulimit` has it.
const MEMORY_KIB: u32 = 4 << 20;

impl Tests {
    /// Runs every test of the woven programs alone, to see how long it takes and what it enters.
    ///
    /// # Errors
    /// A test that fails without any mutant, and the file system's.
    pub fn survey(programs: Vec<PathBuf>, directory: PathBuf, scratch: &Path) -> Result<Self, String> {
        let mut all = Self { programs, directory, tests: Vec::new(), left_out: Vec::new() };
        for (program, path) in all.programs.iter().enumerate() {
            let list = Command::new(path)
                .args(["--list", "--format=terse"])
                .current_dir(&all.directory)
                .output()
                .map_err(|e| format!("{}: {e}", path.display()))?;
            let list = String::from_utf8_lossy(&list.stdout).into_owned();
            for name in list.lines().filter_map(|line| line.strip_suffix(": test")) {
                let _ = fs::remove_file(scratch);
                let mut command =
                    limited(path, &all.directory, LONGEST.as_secs() + 2, "\"$@\"; s=$?; times; exit $s");
                command.args(["--exact", name]).env("MUTANT_REACHED", scratch);
                let out = command.output().map_err(|e| e.to_string())?;
                let took = children_seconds(&String::from_utf8_lossy(&out.stdout)).unwrap_or(LONGEST);
                if took >= LONGEST {
                    all.left_out.push(name.to_owned());
                    continue;
                }
                if !out.status.success() {
                    return Err(format!("{name} fails without a mutant"));
                }
                let reached = fs::read_to_string(scratch).unwrap_or_default();
                let reaches = reached.lines().filter_map(|line| line.parse().ok()).collect();
                all.tests.push(Test { program, name: name.to_owned(), took, reaches });
            }
        }
        all.tests.sort_by_key(|test| test.took);
        Ok(all)
    }

    /// How many there are, how long they take together, and the longest ones.
    #[must_use]
    pub fn describe(&self) -> String {
        let total: Duration = self.tests.iter().map(|test| test.took).sum();
        let longest =
            self.tests.iter().rev().take(5).map(|t| format!("{} {:.1} s", t.name, t.took.as_secs_f32()));
        let longest: Vec<String> = longest.collect();
        format!(
            "{} tests, {:.0} s; the longest: {}",
            self.tests.len(),
            total.as_secs_f32(),
            longest.join(", ")
        )
    }

    /// Judges a woven mutant, by the tests that enter its function.
    #[must_use]
    pub fn judge(&self, mutant: usize, function: usize) -> Verdict {
        let reaching: Vec<&Test> =
            self.tests.iter().filter(|test| test.reaches.contains(&function)).collect();
        let (quick, long): (Vec<&Test>, Vec<&Test>) =
            reaching.into_iter().partition(|test| test.took < QUICK);
        let mut groups: Vec<Vec<&Test>> = Vec::new();
        for program in 0..self.programs.len() {
            groups.push(quick.iter().copied().filter(|test| test.program == program).collect());
        }
        groups.extend(long.into_iter().map(|test| vec![test]));
        for group in groups.iter().filter(|group| !group.is_empty()) {
            let took: u64 =
                group.iter().map(|test| test.took.as_millis()).sum::<u128>().try_into().unwrap_or(u64::MAX);
            let seconds = SLACK_SECONDS + 5 * took / 1000;
            let names: Vec<&str> = group.iter().map(|test| test.name.as_str()).collect();
            let mut command = self.command(group[0].program, &names, seconds);
            let Ok(child) = command.env("MUTANT", mutant.to_string()).spawn() else {
                return Verdict::Survived;
            };
            match watch(child, Duration::from_secs(60 + 20 * seconds)) {
                Verdict::Survived => {}
                verdict => return verdict,
            }
        }
        Verdict::Survived
    }

    fn command(&self, program: usize, names: &[&str], seconds: u64) -> Command {
        let mut command = limited(&self.programs[program], &self.directory, seconds, RUN);
        command.arg("--exact").args(names);
        command
    }
}

/// Judges a program that is a mutant as a whole, by all its tests.
#[must_use]
pub fn judge_program(program: &Path, directory: &Path, seconds: u64) -> Verdict {
    match limited(program, directory, seconds, RUN).spawn() {
        Ok(child) => watch(child, Duration::from_secs(60 + 20 * seconds)),
        Err(_) => Verdict::Survived,
    }
}

/// What a shell does to become the program.
const RUN: &str = "exec \"$@\"";

/// Processor time of what a shell ran, from the last line of its `times`: `0m1.250s 0m0.030s`.
fn children_seconds(out: &str) -> Option<Duration> {
    let seconds = |word: &str| {
        let (minutes, seconds) = word.strip_suffix('s')?.split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    let line = out.lines().last()?;
    let sum: Option<f64> = line.split(' ').map(seconds).sum();
    Duration::try_from_secs_f64(sum?).ok()
}

/// A test program with bounded processor time and memory, and property tests that do the same every time.
fn limited(program: &Path, directory: &Path, seconds: u64, run: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            &format!(
                "ulimit -c 0; ulimit -S -t {seconds}; ulimit -H -t {}; ulimit -v {MEMORY_KIB}; {run}",
                seconds + 5
            ),
            "sh",
        ])
        .arg(program)
        .arg("--test-threads=1")
        .current_dir(directory)
        .env("PROPTEST_CASES", "32")
        .env("PROPTEST_RNG_SEED", "1")
        .env("PROPTEST_MAX_SHRINK_ITERS", "0")
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

/// SIGXCPU: its processor time is over. SIGKILL would follow later (`limited`).
const OUT_OF_TIME: i32 = 24;
/// SIGKILL.
const KILLED: i32 = 9;
/// How often one is looked at that takes longer than it should.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Whether a thread of the process runs, or would if it were let.
fn wants_processor(process: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return false };
    threads.flatten().any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // Behind the name, which may have anything in it.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['R', 'D']))
    })
}

/// Waits for a test program, at most until its first failure.
fn watch(mut child: Child, limit: Duration) -> Verdict {
    let (lines, read) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
    }
    let mut deadline = Instant::now() + limit;
    let early = loop {
        match read.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) if line.starts_with("test ") && line.ends_with("FAILED") => break Some(Verdict::Caught),
            Ok(_) => {}
            // One that waits for something that does not come. One that only wants a processor, of which others take the most, is bounded by what it gets.
            Err(RecvTimeoutError::Timeout) if !wants_processor(child.id()) => break Some(Verdict::Timeout),
            Err(RecvTimeoutError::Timeout) => deadline = Instant::now() + LOOK_EVERY,
            Err(RecvTimeoutError::Disconnected) => break None,
        }
    };
    if early.is_some() {
        let _ = child.kill();
    }
    let status = child.wait();
    early.unwrap_or(match status {
        Ok(status) if status.success() => Verdict::Survived,
        Ok(status) if status.signal() == Some(OUT_OF_TIME) => Verdict::Timeout,
        // Somebody else's doing, as of a machine without memory: that says nothing of the tests.
        Ok(status) if status.signal() == Some(KILLED) => Verdict::Survived,
        _ => Verdict::Caught,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(script: &str, seconds: u64, limit: Duration) -> Verdict {
        let shell = limited(Path::new("/bin/sh"), Path::new("/"), seconds, &format!("exec sh -c '{script}'"));
        watch({ shell }.spawn().unwrap(), limit)
    }

    /// The time on the wall is the machine's, not the mutant's.
    #[test]
    fn only_what_waits_for_nothing_or_has_had_its_time_is_too_slow() {
        let short = Duration::from_millis(100);
        assert_eq!(ends("sleep 60", 60, short), Verdict::Timeout);
        assert_eq!(ends("while :; do :; done", 1, short), Verdict::Timeout);
        assert_eq!(ends("kill -9 $$", 60, Duration::from_secs(60)), Verdict::Survived);
        assert_eq!(ends("exit 101", 60, Duration::from_secs(60)), Verdict::Caught);
        // Busy for longer than the limit, and well.
        let busy = "n=0; while [ $n -lt 1000000 ]; do n=$((n + 1)); done";
        assert_eq!(ends(busy, 60, Duration::from_millis(10)), Verdict::Survived);
    }

    #[test]
    fn the_shells_times_are_read() {
        let out = "test a ... ok\n0m0.00s 0m0.00s\n1m2.50s 0m0.25s\n";
        assert_eq!(children_seconds(out), Some(Duration::from_millis(62_750)));
        assert_eq!(children_seconds("test a ... ok\n"), None);
    }
}
