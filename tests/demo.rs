//! What `sanlock demo` leaves behind when it is interrupted: nothing.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Where it is interrupted: daemons without leases, joins under way, a lease held.
const MOMENTS: [&str; 3] = ["both daemons run", "are initialised", "holds disk1"];

/// Runs the demo, in a process group of its own, until it says this.
fn started(dir: &Path, until: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sanlock"));
    command.args(["demo", "--quick", "--dir"]).arg(dir).stdin(Stdio::null()).process_group(0);
    let mut demo = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(until)), "{until:?} was never said");
    // What it says from now on is read, too, or it would end by that.
    std::thread::spawn(move || lines.count());
    demo
}

/// The processes that work in this directory, by their environment.
fn users(dir: &Path) -> Vec<i32> {
    let word = format!("SANLOCK_RUN_DIR={}/", dir.display());
    let all = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap());
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let uses = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(word.as_bytes()))
    };
    pids.filter(uses).collect()
}

/// Ends the demo at one of the moments, and whatever it has left behind, which is returned: processes, and names in its directory.
fn left_behind(moment: &str, end: impl Fn(Pid), signal: Signal) -> (usize, Vec<String>) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut demo = started(dir.path(), moment);
    end(Pid::from_raw(demo.id().try_into().unwrap()));
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = demo.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "{moment}: it goes on");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(status.signal(), Some(signal as i32), "{moment}: {status}");
    // A process that was killed is there for another moment.
    let deadline = Instant::now() + Duration::from_secs(2);
    while !users(dir.path()).is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    let left = users(dir.path());
    for pid in &left {
        let _gone = kill(Pid::from_raw(*pid), Signal::SIGKILL);
    }
    let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    (left.len(), names.map(|name| name.to_string_lossy().into_owned()).collect())
}

/// As Ctrl-C on a terminal does it: everybody gets the signal.
#[test]
fn an_interrupted_demo_leaves_nothing() {
    for moment in MOMENTS {
        let group = |pid: Pid| kill(Pid::from_raw(-pid.as_raw()), Signal::SIGINT).unwrap();
        assert_eq!(left_behind(moment, group, Signal::SIGINT), (0, Vec::new()), "{moment}");
    }
}

#[test]
fn a_terminated_demo_leaves_nothing() {
    for moment in MOMENTS {
        let alone = |pid| kill(pid, Signal::SIGTERM).unwrap();
        assert_eq!(left_behind(moment, alone, Signal::SIGTERM), (0, Vec::new()), "{moment}");
    }
}

/// It has no time to remove its directory, but what it started ends with it.
#[test]
fn a_killed_demo_leaves_no_process() {
    for moment in MOMENTS {
        let (processes, _) = left_behind(moment, |pid| kill(pid, Signal::SIGKILL).unwrap(), Signal::SIGKILL);
        assert_eq!(processes, 0, "{moment}");
    }
}
