//! Recorded outputs of the original's command line, and the comparison with a new run.
//!
//! A recording names its command, so a case is: bring about the situation, run the recorded
//! command, compare. Compared are standard output and exit status; standard error is free text
//! for people (command-line.md 5.2).

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bounded::{self, CLIENT_LIMIT, Output};
use crate::program::Program;

/// Directory of the lease files in the recordings.
const RECORDED_DIR: &str = "/srv/lease";

/// Words of `status -D` whose values depend on the process, the time, the order of slots, or name
/// the build.
const VARYING_WORDS: [&str; 13] = [
    "version_str",
    "helper_pid",
    "helper_kill_fd",
    "helper_last_status",
    "monotime",
    "fd",
    "space_id",
    "res_id",
    "token_id",
    "acquire_last_attempt",
    "acquire_last_success",
    "renewal_last_attempt",
    "renewal_last_success",
];

/// One recording.
#[derive(Debug, Clone)]
pub struct Golden {
    name: String,
    /// The command line, its first word `sanlock`.
    pub command: Vec<String>,
    /// Exit status.
    pub exit: i32,
    /// Standard output.
    pub stdout: String,
}

impl Golden {
    /// Loads `golden/NAME.txt`.
    ///
    /// # Panics
    /// When the file is missing or has another form.
    #[must_use]
    pub fn load(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(format!("{name}.txt"));
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let malformed = || -> ! { panic!("{} is not a recording", path.display()) };
        let Some((head, streams)) = text.split_once("--- stdout\n") else { malformed() };
        let field = |key: &str| head.lines().find_map(|line| line.strip_prefix(key));
        let Some(command) = field("command: ") else { malformed() };
        let Some(exit) = field("exit: ").and_then(|exit| exit.parse().ok()) else { malformed() };
        let Some(length) = field("stdout-bytes: ").and_then(|length| length.parse::<usize>().ok()) else {
            malformed()
        };
        let Some(stdout) = streams.get(..length) else { malformed() };
        Self { name: name.to_owned(), command: shell_words(command), exit, stdout: stdout.to_owned() }
    }

    /// Takes the lines out of the recorded output for which `unwanted` holds: recordings were made
    /// in richer situations than a case may need.
    #[must_use]
    pub fn without_lines(mut self, unwanted: impl Fn(&str) -> bool) -> Self {
        self.stdout = self.stdout.split_inclusive('\n').filter(|line| !unwanted(line)).collect();
        self
    }

    /// Replaces `from`, which must occur, in the recorded output.
    ///
    /// # Panics
    /// When `from` does not occur.
    #[must_use]
    pub fn replacing(mut self, from: &str, to: &str) -> Self {
        assert!(self.stdout.contains(from), "recording {} has no {from:?}", self.name);
        self.stdout = self.stdout.replace(from, to);
        self
    }
}

/// How recordings are repeated: which program, against which daemon, with which lease files, and
/// which process stands for which recorded one.
#[derive(Debug, Clone)]
pub struct Session {
    program: Program,
    run_dir: PathBuf,
    lease_dir: String,
    pids: Vec<(String, u32)>,
}

impl Session {
    /// A session of `program` with the daemon that uses `run_dir` and lease files in `lease_dir`.
    #[must_use]
    pub fn new(program: Program, run_dir: &Path, lease_dir: &str) -> Self {
        Self { program, run_dir: run_dir.to_owned(), lease_dir: lease_dir.to_owned(), pids: Vec::new() }
    }

    /// Says that process `pid` plays the part of the process recorded as `recorded`.
    pub fn cast(&mut self, recorded: &str, pid: u32) {
        self.pids.push((recorded.to_owned(), pid));
    }

    /// Repeats a recording and compares output and exit status.
    ///
    /// # Panics
    /// When they differ.
    #[track_caller]
    pub fn check(&self, name: &str) {
        self.check_golden(&Golden::load(name), true);
    }

    /// Like [`Self::check`] for recordings whose exit status is a fault of the original
    /// (command-line.md 5.3): ours may end with another status.
    ///
    /// # Panics
    /// When the outputs differ, or the exit status of the reference does.
    #[track_caller]
    pub fn check_but_status(&self, name: &str) {
        self.check_golden(&Golden::load(name), self.program == Program::Reference);
    }

    /// Like [`Self::check`] for mistakes after which the original goes on without what it could not
    /// understand: ours says the same first and then stops with an error.
    ///
    /// # Panics
    /// When the reference differs, or ours says something else or goes on.
    #[track_caller]
    pub fn check_refused(&self, name: &str) {
        if self.program == Program::Reference {
            return self.check(name);
        }
        let golden = Golden::load(name);
        let output = self.run(&golden);
        let stopped = golden.stdout.starts_with(&output.stdout) && !output.stdout.is_empty();
        assert!(
            stopped && output.code == 1,
            "recording {name}: expected only its beginning, but got {output}"
        );
    }

    /// Repeats a recording that was adapted to the case.
    ///
    /// # Panics
    /// When output or, with `status_too`, exit status differ.
    #[track_caller]
    pub fn check_golden(&self, golden: &Golden, status_too: bool) {
        let output = self.run(golden);
        let expected = normalise(&self.recast(&golden.stdout));
        let actual = normalise(&output.stdout);
        assert!(
            actual == expected && (!status_too || output.code == golden.exit),
            "recording {}: expected exit status {} and\n{expected}--- but got\n{actual}--- from {output}",
            golden.name,
            golden.exit,
        );
    }

    /// Runs the command of a recording, without comparing.
    #[must_use]
    pub fn run(&self, golden: &Golden) -> Output {
        let mut command = Command::new(self.program.path());
        command.args(golden.command.iter().skip(1).map(|word| self.recast(word)));
        command.env("SANLOCK_RUN_DIR", &self.run_dir);
        bounded::run(command, CLIENT_LIMIT)
    }

    /// Recorded text with this session's paths and process ids.
    fn recast(&self, text: &str) -> String {
        let text = text.replace(RECORDED_DIR, &self.lease_dir);
        self.pids.iter().fold(text, |text, (recorded, pid)| text.replace(recorded, &pid.to_string()))
    }
}

/// Replaces what varies from run to run; see the list in the recordings' README. Times of 0 mean
/// "never" or "free" and stay; a checksum stays when it covers no time.
#[must_use]
pub fn normalise(text: &str) -> String {
    let timed = text.lines().any(
        |line| matches!(line.split_once(' '), Some(("timestamp" | "write_timestamp", value)) if value != "0"),
    );
    let dump = text.starts_with("  offset ");
    let mut lines: Vec<String> = text.lines().map(|line| normalise_line(line, timed, dump)).collect();
    sort_client_lines(&mut lines);
    // A history has as many lines as time has passed; all look alike.
    lines.dedup_by(|later, earlier| later == earlier && later.starts_with("timestamp=T read_ms="));
    let mut normal = lines.join("\n");
    if text.ends_with('\n') {
        normal.push('\n');
    }
    normal
}

fn normalise_line(line: &str, timed: bool, dump: bool) -> String {
    if let Some((key, _)) = line.strip_prefix("    ").and_then(|word| word.split_once('=')) {
        if VARYING_WORDS.contains(&key) {
            return format!("    {key}=VARIES");
        }
        return line.to_owned();
    }
    if line.starts_with("timestamp=") {
        let words = line.split(' ').map(|word| match word.split_once('=') {
            Some((key @ "timestamp", value)) if value != "0" => format!("{key}=T"),
            Some((key @ ("read_ms" | "write_ms"), value)) if value.parse::<u32>().is_ok() => {
                format!("{key}=N")
            }
            _ => word.to_owned(),
        });
        return words.collect::<Vec<_>>().join(" ");
    }
    if dump {
        // The time column has ten digits and a leading blank.
        let words: Vec<&str> = line.split(' ').collect();
        let words = words.into_iter().map(|word| {
            let is_time =
                word.len() == 10 && word.bytes().all(|byte| byte.is_ascii_digit()) && word != "0000000000";
            if is_time { "TTTTTTTTTT" } else { word }
        });
        return words.collect::<Vec<_>>().join(" ");
    }
    let words: Vec<&str> = line.split(' ').collect();
    let mut normal: Vec<String> = Vec::with_capacity(words.len());
    for (index, word) in words.iter().enumerate() {
        let before = if index == 0 { "" } else { words[index - 1] };
        let is_number = word.parse::<u64>().is_ok();
        normal.push(match before {
            "timestamp" | "write_timestamp" if is_number && *word != "0" => "T".to_owned(),
            "checksum" if timed => "C".to_owned(),
            _ => (*word).to_owned(),
        });
    }
    normal.join(" ")
}

/// Client lines come in slot order, and slots are reused: any order is the same. With `-D` each
/// line is followed by its words and none is moved.
fn sort_client_lines(lines: &mut [String]) {
    for block in lines.chunk_by_mut(|a, b| a.starts_with("p ") && b.starts_with("p ")) {
        block.sort();
    }
}

/// Splits a command line at blanks; single quotes keep blanks.
#[must_use]
pub fn shell_words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for character in line.chars() {
        match character {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            other => {
                if let Some(word) = words.last_mut() {
                    word.push(other);
                }
            }
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_split_like_a_shell_does() {
        assert_eq!(shell_words("a -c 'echo hello; exit 7' b"), ["a", "-c", "echo hello; exit 7", "b"]);
    }

    #[test]
    fn times_vary_but_never_and_free_do_not() {
        assert_eq!(normalise("h 1 gen 1 timestamp 5881 LIVE\n"), "h 1 gen 1 timestamp T LIVE\n");
        assert_eq!(normalise("timestamp 0\nchecksum 0x17\n"), "timestamp 0\nchecksum 0x17\n");
        assert_eq!(normalise("write_timestamp 3\nchecksum 0x17\n"), "write_timestamp T\nchecksum C\n");
    }

    #[test]
    fn a_history_is_compared_by_its_form() {
        let line =
            |time: u32| format!("timestamp={time} read_ms=2 write_ms=0 next_timeouts=0 next_errors=0\n");
        assert_eq!(normalise(&(line(1) + &line(3))), normalise(&line(9)));
        assert_ne!(normalise(&line(1)), normalise(&line(1).replace("errors=0", "errors=1")));
    }

    #[test]
    fn the_order_of_client_lines_does_not_matter_but_their_number_does() {
        assert_eq!(normalise("p -1 b\np -1 a\ns x\n"), normalise("p -1 a\np -1 b\ns x\n"));
        assert_ne!(normalise("p -1 a\n"), normalise("p -1 a\np -1 a\n"));
    }
}
