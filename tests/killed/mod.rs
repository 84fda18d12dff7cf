//! The real tools, killed by strace at the n-th call of a kind, before it is carried out.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The calls that start I/O, of either engine.
pub(crate) const IO: &str = "io_submit,io_uring_enter";
/// More I/O calls than any of the tools makes.
const CALLS_MAX: u32 = 60;
const SIGKILL: i32 = 9;
/// The names of the disks.
const DISKS: [&str; 3] = ["a", "b", "c"];

/// A directory with the disks `a`, `b` and `c`.
pub(crate) struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The disks with these contents; as many as there are contents.
    pub(crate) fn put(&self, contents: &[Vec<u8>]) {
        for (name, bytes) in DISKS.iter().zip(contents) {
            std::fs::write(self.path(name), bytes).unwrap();
        }
    }

    /// What is on the disks that there are.
    pub(crate) fn get(&self) -> Vec<Vec<u8>> {
        DISKS.iter().map_while(|name| std::fs::read(self.path(name)).ok()).collect()
    }

    /// With `@a` replaced by the path of disk `a`, and so on.
    pub(crate) fn args(&self, args: &str) -> Vec<String> {
        let replaced = DISKS.iter().fold(args.to_owned(), |args, name| {
            args.replace(&format!("@{name}"), self.path(name).to_str().unwrap())
        });
        replaced.split(' ').map(str::to_owned).collect()
    }

    /// A command of `sanlock direct`, and what it prints to stdout and stderr.
    pub(crate) fn run(&self, args: &str) -> (String, String) {
        let output = self.output(&format!("direct {args}"));
        (text(&output.stdout), text(&output.stderr))
    }

    /// Any command, in this directory, where it finds no daemon.
    pub(crate) fn output(&self, args: &str) -> Output {
        self.here(Command::new(env!("CARGO_BIN_EXE_sanlock"))).args(self.args(args)).output().unwrap()
    }

    fn here(&self, mut command: Command) -> Command {
        command.current_dir(self.dir.path()).env("SANLOCK_RUN_DIR", self.path("no-daemon"));
        command
    }

    #[track_caller]
    pub(crate) fn ok(&self, args: &str) {
        let (stdout, stderr) = self.run(args);
        assert!(stdout.contains(" done 0\n"), "{args}: {stdout}{stderr}");
    }

    /// Whether a command is killed at its n-th of these calls, counted for each of its threads. It ends with this status if it makes fewer.
    pub(crate) fn is_killed(&self, calls: &str, n: u32, args: &str, status: i32) -> bool {
        let output = self
            .here(Command::new("strace"))
            .args(["-f", "-qq", "-e", &format!("trace={calls}")])
            .args(["-e", &format!("inject={calls}:signal=KILL:when={n}"), "-o"])
            .arg(self.path("trace"))
            .arg(env!("CARGO_BIN_EXE_sanlock"))
            .args(self.args(args))
            .output()
            .unwrap();
        let killed = was_killed(&output);
        assert!(killed || output.status.code() == Some(status), "{args}: {output:?}");
        killed
    }
}

/// strace ends as its tracee does.
fn was_killed(output: &Output) -> bool {
    output.status.signal() == Some(SIGKILL) || output.status.code() == Some(128 + SIGKILL)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether there is a strace to kill with.
pub(crate) fn strace() -> bool {
    let there = Path::new("/usr/bin/strace").exists();
    assert!(there || std::env::var_os("CI").is_none(), "strace is missing, and CI must not skip");
    if !there {
        eprintln!("skipped: strace is missing");
    }
    there
}

/// Kills this command of `sanlock direct` at every call on `contents`, and looks at each result. Returns how often it was killed.
pub(crate) fn everywhere(scratch: &Scratch, contents: &[Vec<u8>], args: &str, look: impl Fn(u32)) -> u32 {
    for call in 1..CALLS_MAX {
        scratch.put(contents);
        if !scratch.is_killed(IO, call, &format!("direct {args}"), 0) {
            println!("{args}: killed at {} calls", call - 1);
            return call - 1;
        }
        look(call);
    }
    panic!("{args}: still at it after {CALLS_MAX} calls");
}
