//! Carries out a script with one program and compares.

use crate::disk::{changes, masked};
use crate::script::{Outcome, Step, parse, print};
use sanlock_conformance::bounded::{self, CLIENT_LIMIT, Output};
use sanlock_conformance::golden::{normalise, shell_words};
use sanlock_conformance::program::build_dir;
use sanlock_conformance::storage::{scratch_dir, sparse_file, text};
use sanlock_conformance::{Host, Program, Running};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Size of the file `disk`, MiB.
const DISK_MIB: u64 = 16;
/// A text that is waited for comes within this time.
const UNTIL_LIMIT: Duration = Duration::from_secs(30);
/// The text that stands for a reason before somebody has written one.
const NO_REASON: &str = "TO BE EXPLAINED";

struct Stage {
    program: Program,
    dir: TempDir,
    run_dir: TempDir,
    output_only: bool,
    // Holders end before the daemon does.
    holders: BTreeMap<String, Running>,
    host: Option<Host>,
}

/// Plays the script at `path`; records instead of comparing if that is asked for.
///
/// # Panics
/// At the first difference.
pub(crate) fn play(path: &Path, program: Program) {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut steps = parse(&text);
    let recording = std::env::var_os("SANLOCK_RECORD").is_some();
    let mut stage = Stage::new(program);
    for step in &mut steps {
        let Step::Command { line, expected, ours } = step else {
            stage.prepare(step);
            continue;
        };
        let (outcome, output) = stage.command(line);
        match (program, recording) {
            (Program::Reference, true) => *expected = outcome,
            (Program::Ours, true) => {
                let reason = ours.take().map_or_else(|| NO_REASON.to_owned(), |(reason, _)| reason);
                *ours = (outcome != *expected).then_some((reason, outcome));
            }
            (_, false) => {
                let wanted = match ours {
                    Some((reason, wanted)) if program == Program::Ours => {
                        assert!(!reason.is_empty() && reason != NO_REASON, "{line}: no reason is given");
                        wanted
                    }
                    _ => expected,
                };
                assert!(
                    outcome == *wanted,
                    "{}: $ {line}\n--- expected\n{}\n--- but got\n{}\n--- from {output}",
                    path.display(),
                    wanted.lines.join("\n"),
                    outcome.lines.join("\n")
                );
            }
        }
    }
    if recording {
        std::fs::write(path, print(&steps)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

impl Stage {
    fn new(program: Program) -> Self {
        let dir = scratch_dir("cli");
        sparse_file(&dir.path().join("disk"), DISK_MIB << 20);
        Self {
            program,
            dir,
            run_dir: scratch_dir("run"),
            output_only: false,
            holders: BTreeMap::new(),
            host: None,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn host(&self) -> &Host {
        self.host.as_ref().unwrap_or_else(|| panic!("the script starts no daemon"))
    }

    fn prepare(&mut self, step: &Step) {
        match step {
            Step::Daemon => self.host = Some(Host::start(self.program, "host1")),
            Step::OutputOnly => self.output_only = true,
            Step::File(name, size) => sparse_file(&self.path(name), size << 20),
            Step::Write(name, text) => {
                let path = self.path(name);
                std::fs::write(&path, text.replace("\\n", "\n"))
                    .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            }
            Step::Poke(name, at, bytes) => {
                let path = self.path(name);
                let done = std::fs::OpenOptions::new()
                    .write(true)
                    .open(&path)
                    .and_then(|file| file.write_all_at(bytes, *at));
                done.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            }
            Step::Hold(who, resource) => {
                let mut command = bounded::dying_with_us(&build_dir().join("user"));
                command.arg(self.host().run_dir());
                command.args(resource.iter().map(|word| self.cast(word)));
                let mut holder = Running::start(command);
                bounded::wait_until("the process to hold its lease", UNTIL_LIMIT, || {
                    assert!(!holder.ended(), "the process ended: {}", holder.text().1);
                    holder.text().0.starts_with("held")
                });
                self.holders.insert(who.clone(), holder);
            }
            Step::End(who) => {
                let holder = self.holders.remove(who).unwrap_or_else(|| panic!("nobody is called {who}"));
                let pid = format!("p {} ", holder.pid());
                drop(holder);
                bounded::wait_until("the daemon to notice", UNTIL_LIMIT, || {
                    !self.host().client(&["client", "status"]).stdout.contains(&pid)
                });
            }
            Step::Until(text, command) => {
                bounded::wait_until(&format!("{text:?} of {command}"), UNTIL_LIMIT, || {
                    self.run(command).stdout.contains(text)
                });
            }
            Step::Comment(_) | Step::Command { .. } => {}
        }
    }

    /// Text of the script with the paths and process ids of this stage.
    fn cast(&self, text: &str) -> String {
        let disk = self.path("disk");
        let cast = text
            .replace("DISK", sanlock_conformance::storage::text(&disk))
            .replace("DIR", sanlock_conformance::storage::text(self.dir.path()));
        self.holders
            .iter()
            .fold(cast, |cast, (who, holder)| cast.replace(&format!("<{who}>"), &holder.pid().to_string()))
    }

    /// The other way round.
    fn uncast(&self, output: &str) -> String {
        let cast = output.replace(text(&self.path("disk")), "DISK").replace(text(self.dir.path()), "DIR");
        self.holders.iter().fold(cast, |cast, (who, holder)| {
            let pid = holder.pid();
            cast.replace(&format!("pid {pid}"), &format!("pid <{who}>"))
                .replace(&format!("p {pid} {pid}"), &format!("p <{who}> <{who}>"))
                .replace(&format!("p {pid}"), &format!("p <{who}>"))
                .replace(&format!("pid={pid}"), &format!("pid=<{who}>"))
        })
    }

    fn run(&self, line: &str) -> Output {
        let words: Vec<String> = if line.is_empty() {
            Vec::new()
        } else {
            shell_words(line).iter().map(|word| self.cast(word)).collect()
        };
        let mut command = Command::new(self.program.path());
        command.args(words).current_dir(self.dir.path());
        let run_dir = self.host.as_ref().map_or(self.run_dir.path(), Host::run_dir);
        command.env("SANLOCK_RUN_DIR", run_dir);
        bounded::run(command, CLIENT_LIMIT)
    }

    /// The leases of a process that has ended are released some time later.
    fn wait_for_release(&self) {
        let Some(host) = &self.host else { return };
        let held =
            |line: &str| self.holders.values().any(|holder| line.contains(&format!("p {}", holder.pid())));
        bounded::wait_until("the leases to be released", UNTIL_LIMIT, || {
            let status = host.client(&["client", "status"]).stdout;
            !status.lines().any(|line| line.starts_with("r ") && !held(line))
        });
    }

    fn command(&self, line: &str) -> (Outcome, Output) {
        let (varies, line) = match line.strip_prefix("~ ") {
            Some(line) => (true, line),
            None => (false, line),
        };
        let (output_only, line) = match line.strip_prefix("- ") {
            Some(line) => (true, line),
            None => (self.output_only, line),
        };
        let before = masked(&self.path("disk"));
        let output = self.run(line);
        if line.starts_with("client command") {
            self.wait_for_release();
        }
        let after = masked(&self.path("disk"));
        let mut lines = Vec::new();
        if varies {
            if !output.stdout.is_empty() {
                lines.push("> ~".to_owned());
            }
        } else {
            let stdout = normalise(&self.uncast(&output.stdout));
            for line in stdout.split_inclusive('\n') {
                let line = &without_times(line);
                lines.push(match line.strip_suffix('\n') {
                    Some(line) => format!("> {line}"),
                    None => format!(">! {line}"),
                });
            }
        }
        if output.code != 0 {
            lines.push(format!("= {}", output.code));
        }
        if !output_only {
            lines.extend(changes(&before, &after).into_iter().map(|change| format!("@ {change}")));
        }
        (Outcome { lines }, output)
    }
}

/// What has a time in it and is not known to [`normalise`]: the words of a host, and the ballot records of a dump, whose sum
/// covers the time of the value.
fn without_times(line: &str) -> String {
    for key in ["last_check", "last_live", "timestamp"] {
        if line.starts_with(&format!("    {key}=")) {
            return format!("    {key}=T\n");
        }
    }
    if !line.starts_with("dblock[") {
        return line.to_owned();
    }
    let mut words: Vec<&str> = line.trim_end().split(' ').collect();
    for n in 1..words.len() {
        match words[n - 1] {
            "inp3" if words[n] != "0" => words[n] = "T",
            "sum" => words[n] = "C",
            _ => {}
        }
    }
    words.join(" ") + "\n"
}
