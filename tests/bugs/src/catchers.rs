//! The programs that are to catch a bug, each with its budget, and what they say.

use crate::table::{Catch, Kind};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Host-hours that the dense runs of a campaign have, a third of them with a peer that behaves like the original. Which run finds a bug
/// does not depend on the machine.
pub const HOST_HOURS: u32 = 400;
/// The first seed.
pub const FIRST_SEED: u64 = 1;
/// Wall time that a program may take at most; whatever takes longer is broken.
pub const LIMIT: Duration = Duration::from_secs(3600);

/// Test targets of the model checker that explore production machines to the end of every schedule. Those that bend the surroundings
/// on purpose, or look at the reference, are none.
const MODEL_OMITTED: [&str; 2] = ["sabotage", "reference"];
/// Test targets of the simulator with one schedule each.
const SCENARIOS: [&str; 2] = ["counterexamples", "timelines"];

/// How it ended, and what was printed.
struct Ran {
    success: bool,
    output: String,
}

/// Runs a program to its end.
fn ended(command: &mut Command) -> Result<Ran, String> {
    run(command, LIMIT)
}

fn run(command: &mut Command, limit: Duration) -> Result<Ran, String> {
    let begun = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
    let (out, err) = (drained(child.stdout.take()), drained(child.stderr.take()));
    let success = wait(&mut child, begun, limit)?;
    let [out, err] = [out, err].map(|text| text.join().unwrap_or_default());
    match success {
        Some(success) => Ok(Ran { success, output: err + &out }),
        None => Err(format!("{command:?} has not ended after {} s", limit.as_secs())),
    }
}

/// Reads to the end, in a thread of its own: a full pipe would stop the program.
fn drained(stream: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            let _until_it_broke = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wait(child: &mut Child, begun: Instant, limit: Duration) -> Result<Option<bool>, String> {
    loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) => return Ok(Some(status.success())),
            None if begun.elapsed() > limit => {
                child.kill().map_err(|e| e.to_string())?;
                child.wait().map_err(|e| e.to_string())?;
                return Ok(None);
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The catchers of one tree.
#[derive(Debug)]
pub struct Catchers {
    tree: PathBuf,
    target: PathBuf,
}

/// What came of one kind of catcher.
#[derive(Debug)]
pub struct Outcome {
    /// What was caught.
    pub catch: Option<Catch>,
    /// What was spent if nothing was.
    pub spent: String,
}

impl Catchers {
    /// Those of this tree; they are built in `target`.
    #[must_use]
    pub fn new(tree: &Path, target: &Path) -> Self {
        Self { tree: tree.to_path_buf(), target: target.to_path_buf() }
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(arguments).current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target);
        // Nobody looks at a line number, and of a patched crate most is as it was: half the time of a build. Linked as one, each of the
        // model's programs would be built from the whole again.
        cargo.env("CARGO_PROFILE_RELEASE_DEBUG", "0").env("CARGO_INCREMENTAL", "1");
        cargo.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
        cargo
    }

    fn built(&self, arguments: &[&str]) -> Result<String, String> {
        let ran = ended(&mut self.cargo(arguments))?;
        if ran.success { Ok(ran.output) } else { Err(format!("no build:\n{}", ran.output)) }
    }

    /// Builds test targets of a package; their names and programs.
    fn tests(&self, package: &str, wanted: impl Fn(&str) -> bool) -> Result<Vec<(String, PathBuf)>, String> {
        let directory = self.tree.join("tests").join(package.replacen("sanlock-", "", 1)).join("tests");
        let entries = std::fs::read_dir(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
        let names = entries.filter_map(|e| Some(e.ok()?.path().file_stem()?.to_str()?.to_owned()));
        let mut names: Vec<String> = names.filter(|name| wanted(name)).collect();
        names.sort();
        let mut arguments = vec!["test", "--release", "--no-run", "--locked", "-p", package];
        for name in &names {
            arguments.extend(["--test", name]);
        }
        let output = self.built(&arguments)?;
        let program = |name: &String| {
            let line = output.lines().find(|l| l.contains(&format!("tests/{name}.rs (")))?;
            let path = line.split_once(" (")?.1.trim_end_matches(')');
            Some((name.clone(), PathBuf::from(path)))
        };
        names.iter().map(|name| program(name).ok_or_else(|| format!("no program for {name}"))).collect()
    }

    /// Runs the catchers of one kind until one of them fails. Explorations that `expected` names come first.
    ///
    /// # Errors
    /// They cannot be built or run, or do not end.
    pub fn catch(&self, kind: Kind, expected: &str) -> Result<Outcome, String> {
        match kind {
            Kind::Random => self.campaign(),
            Kind::Exhaustive => self.explorations(expected),
            Kind::Scenario => self.scenarios(),
        }
    }

    fn campaign(&self) -> Result<Outcome, String> {
        self.built(&["build", "--release", "--locked", "-p", "sanlock-sim"])?;
        let program = self.target.join("release/sanlock-sim");
        let begun = Instant::now();
        let mut command = Command::new(&program);
        command.args(["campaign", "--kind", "dense", "--threads", "1"]);
        command.args(["--host-hours", &HOST_HOURS.to_string(), "--seed", &FIRST_SEED.to_string()]);
        let ran = ended(&mut command)?;
        let Some(end) = campaign_end(&ran.output) else {
            return Err(format!("no end of a campaign:\n{}", ran.output));
        };
        let after = format!("{}, {} host-hours", runs(end.runs), end.host_hours);
        let took = begun.elapsed();
        let caught = |by| Catch { kind: Kind::Random, by, after: after.clone(), took };
        Ok(Outcome { catch: end.violation.map(caught), spent: after })
    }

    fn explorations(&self, expected: &str) -> Result<Outcome, String> {
        let programs = self.tests("sanlock-model", |name| !MODEL_OMITTED.contains(&name))?;
        let mut all = Vec::new();
        for (target, program) in programs {
            all.extend(
                listed(&program)?
                    .into_iter()
                    .map(|test| (format!("{target}::{test}"), test, program.clone())),
            );
        }
        all.sort_by_key(|(name, _, _)| !expected.contains(name.as_str()));
        let begun = Instant::now();
        for (name, test, program) in &all {
            let ran =
                ended(Command::new(program).args(["--exact", test, "--nocapture"]).current_dir(&self.tree))?;
            // A run that does not reach what it is to reach proves nothing, but breaks no property either.
            if let Some((property, after)) = exploration_found(&ran.output).filter(|_| !ran.success) {
                let by = format!("{property}: {name}");
                let catch = Catch { kind: Kind::Exhaustive, by, after, took: begun.elapsed() };
                return Ok(Outcome { catch: Some(catch), spent: String::new() });
            }
        }
        Ok(Outcome { catch: None, spent: format!("{} explorations", all.len()) })
    }

    fn scenarios(&self) -> Result<Outcome, String> {
        let begun = Instant::now();
        let mut played = 0;
        for (target, program) in self.tests("sanlock-sim", |name| SCENARIOS.contains(&name))? {
            for test in listed(&program)? {
                played += 1;
                if !ended(Command::new(&program).args(["--exact", &test]).current_dir(&self.tree))?.success {
                    let (by, after) = (format!("{target}::{test}"), "1 schedule".to_owned());
                    let catch = Catch { kind: Kind::Scenario, by, after, took: begun.elapsed() };
                    return Ok(Outcome { catch: Some(catch), spent: String::new() });
                }
            }
        }
        Ok(Outcome { catch: None, spent: format!("{played} schedules") })
    }
}

/// The tests of a program that run without being asked for.
fn listed(program: &Path) -> Result<Vec<String>, String> {
    let names = |arguments: &[&str]| -> Result<Vec<String>, String> {
        let ran = ended(Command::new(program).args(["--list", "--format", "terse"]).args(arguments))?;
        let names = ran.output.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(str::to_owned).collect())
    };
    let ignored = names(&["--ignored"])?;
    Ok(names(&[])?.into_iter().filter(|name| !ignored.contains(name)).collect())
}

fn runs(number: u64) -> String {
    if number == 1 { "1 run".to_owned() } else { format!("{number} runs") }
}

/// What the last lines of a campaign say.
#[derive(Debug, PartialEq, Eq)]
struct CampaignEnd {
    /// Runs, with the one that found something.
    runs: u64,
    /// Host-hours of all but that one.
    host_hours: String,
    /// The code of the violation, or its beginning if it has none.
    violation: Option<String>,
}

fn campaign_end(output: &str) -> Option<CampaignEnd> {
    let (summary, rest) = output.rsplit_once(" with a reference peer), ")?;
    let number = summary.lines().last()?.split(' ').next()?.parse::<u64>().ok()?;
    let host_hours = rest.split(' ').next()?.to_owned();
    let (_, ended) = rest.split_once(" s: ")?;
    if ended.trim_end() == "no violation" {
        return Some(CampaignEnd { runs: number, host_hours, violation: None });
    }
    let text = ended.strip_prefix("VIOLATION: ")?.lines().next()?;
    let code = text.strip_prefix("panic: ").unwrap_or(text).split([':', ',', '|']).next()?.trim();
    Some(CampaignEnd { runs: number + 1, host_hours, violation: Some(code.to_owned()) })
}

/// The property that an exploration found broken, and after how many states.
fn exploration_found(output: &str) -> Option<(&str, String)> {
    let line = output.lines().find(|line| line.contains(" is broken after "))?;
    let (before, after) = line.split_once(" is broken after ")?;
    Some((before.rsplit(": ").next()?, after.trim_end_matches(':').to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_catchers_say_is_understood() {
        let end = |runs, host_hours: &str, violation: Option<&str>| {
            let (host_hours, violation) = (host_hours.to_owned(), violation.map(str::to_owned));
            Some(CampaignEnd { runs, host_hours, violation })
        };
        let text = "kind runs\n\n12 runs (4 with a reference peer), 8.5 host-hours in 3 s: ";
        assert_eq!(campaign_end(&format!("{text}no violation\n")), end(12, "8.5", None));
        let found = format!("{text}VIOLATION: S1: two, owners\nseed 13, after 5 s, settings x\n");
        assert_eq!(campaign_end(&found), end(13, "8.5", Some("S1")));
        let found = format!("{text}VIOLATION: panic: Task(4) says 0 | 1, left\nseed 13, after 0 s\n");
        assert_eq!(campaign_end(&found), end(13, "8.5", Some("Task(4) says 0")));
        assert_eq!(campaign_end("error: no kind of run"), None);
        let text =
            "thread main panicked at x.rs:1:\n2 hosts, late: OneOwner is broken after 5123 states:\nhost 1";
        assert_eq!(exploration_found(text), Some(("OneOwner", "5123 states".to_owned())));
    }

    #[test]
    fn a_program_without_an_end_is_stopped() {
        assert!(run(Command::new("sleep").arg("60"), Duration::from_millis(100)).is_err());
        let said = ended(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 1"])).unwrap();
        assert_eq!((said.success, said.output.as_str()), (false, "err\nout\n"));
    }
}
