//! Children that run a function. Without the standard runner, whose threads forbid forking; every case runs in a process of
//! its own.

#![expect(clippy::unwrap_used, reason = "a case that fails fails the test")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal, signal};
use sanlock_sys::background::{Background, go_into_background};
use sanlock_sys::capability::set_user_but_keep_kill;
use sanlock_sys::child::{ChildEnd, PANICKED, fork_child, keep_until_waited_for};
use sanlock_sys::credentials::{UserId, set_user};
use sanlock_sys::pidfd::PidFd;

type Case = fn(&Path);

/// What another process has to do is done by then, on a busy machine too.
const SOON: Duration = Duration::from_secs(60);

const CASES: [(&str, Case); 7] = [
    ("background_does_not_wait_for_helpers", background_does_not_wait_for_helpers),
    ("child_runs_a_function", child_runs_a_function),
    ("child_that_panics_or_dies", child_that_panics_or_dies),
    ("child_sees_the_end_of_its_parent", child_sees_the_end_of_its_parent),
    ("child_needs_a_single_thread", child_needs_a_single_thread),
    ("a_right_to_kill_outlives_root", a_right_to_kill_outlives_root),
    ("children_are_kept_where_sigchld_was_ignored", children_are_kept_where_sigchld_was_ignored),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name, dir] = args.as_slice() {
        if flag == "--case" {
            let case = CASES.iter().find(|(known, _)| known == name).unwrap().1;
            case(Path::new(dir));
            return ExitCode::SUCCESS;
        }
    }
    if args.iter().any(|arg| arg == "--list") {
        for (name, _) in CASES {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let filter = args.iter().find(|arg| !arg.starts_with('-'));
    let mut failed = 0;
    for (name, _) in
        CASES.iter().filter(|(name, _)| filter.is_none_or(|filter| name.contains(filter.as_str())))
    {
        let dir = tempfile::tempdir().unwrap();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--case", name])
            .arg(dir.path())
            .status()
            .unwrap();
        println!("test {name} ... {}", if status.success() { "ok" } else { "FAILED" });
        failed += usize::from(!status.success());
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What another process wrote, once it is complete.
fn content(path: &PathBuf) -> String {
    let end = Instant::now() + SOON;
    loop {
        match fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text,
            _ => assert!(Instant::now() < end, "{} was not written", path.display()),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn background_does_not_wait_for_helpers(dir: &Path) {
    let start = Instant::now();
    let result = match go_into_background().unwrap() {
        Background::Parent(result) => result,
        Background::Child(starting) => {
            // A helper forked before the report has a copy of the pipe. It ends with the directory of the case.
            let _helper = fork_child(|| {
                let end = Instant::now() + SOON;
                while dir.exists() && Instant::now() < end {
                    thread::sleep(Duration::from_millis(20));
                }
                0
            });
            starting.started();
            return;
        }
    };
    assert_eq!(result.status, 0);
    assert!(start.elapsed() < SOON - Duration::from_secs(10), "{:?}", start.elapsed());
}

fn child_runs_a_function(_: &Path) {
    let (mut read, mut write) = UnixStream::pair().unwrap();
    let child = fork_child(|| {
        write.write_all(&std::process::id().to_ne_bytes()).unwrap();
        42
    })
    .unwrap();
    let mut pid = [0; 4];
    read.read_exact(&mut pid).unwrap();
    assert_eq!(i32::try_from(u32::from_ne_bytes(pid)).unwrap(), child.pid());
    assert_eq!(child.wait().unwrap(), ChildEnd::Exited(42));
}

fn child_that_panics_or_dies(_: &Path) {
    let child = fork_child(|| {
        std::panic::set_hook(Box::new(|_| {}));
        panic!("on purpose");
    })
    .unwrap();
    assert_eq!(child.wait().unwrap(), ChildEnd::Exited(i32::from(PANICKED)));
    let child = fork_child(|| {
        thread::sleep(Duration::from_secs(60));
        0
    })
    .unwrap();
    assert!(!child.pidfd().is_gone().unwrap());
    child.pidfd().send_signal(Signal::SIGKILL).unwrap();
    assert_eq!(child.wait().unwrap(), ChildEnd::Signalled(libc::SIGKILL));
}

fn child_sees_the_end_of_its_parent(dir: &Path) {
    // The helper's way to end: its pipe closes when the daemon is gone, however it ended.
    let outer = fork_child(|| {
        let (mut read, write) = UnixStream::pair().unwrap();
        let mut write = Some(write);
        let file = dir.join("end");
        let inner = fork_child(|| {
            drop(write.take());
            let mut all = Vec::new();
            read.read_to_end(&mut all).unwrap();
            fs::write(&file, "end\n").unwrap();
            0
        });
        inner.unwrap();
        thread::sleep(Duration::from_secs(60));
        0
    })
    .unwrap();
    thread::sleep(Duration::from_millis(200));
    assert!(!dir.join("end").exists());
    outer.pidfd().send_signal(Signal::SIGKILL).unwrap();
    outer.wait().unwrap();
    assert_eq!(content(&dir.join("end")), "end\n");
}

/// Needs root; elsewhere nobody's processes can be signalled but one's own, and there is nothing to keep.
fn a_right_to_kill_outlives_root(_: &Path) {
    if !nix::unistd::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "the tests run as root under CI");
        return;
    }
    let nobody = UserId(65534);
    for keep in [true, false] {
        let mut victim = Command::new("sleep").arg("60").spawn().unwrap();
        let process = PidFd::open(i32::try_from(victim.id()).unwrap()).unwrap();
        let child = fork_child(|| {
            if keep {
                assert!(set_user_but_keep_kill(nobody).unwrap());
            } else {
                set_user(nobody).unwrap();
            }
            assert!(fs::read("/proc/1/environ").is_err(), "nothing else of root is left");
            u8::from(process.send_signal(Signal::SIGKILL).is_err())
        })
        .unwrap();
        assert_eq!(child.wait().unwrap(), ChildEnd::Exited(i32::from(!keep)));
        let _ = victim.kill();
        victim.wait().unwrap();
    }
}

fn child_needs_a_single_thread(_: &Path) {
    let refused = thread::spawn(|| fork_child(|| 0).map(|_| ())).join().unwrap().unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ResourceBusy);
    // The joined thread may be visible for a moment longer.
    let end = Instant::now() + SOON;
    while sanlock_sys::process::thread_count().unwrap() > 1 {
        assert!(Instant::now() < end);
    }
    fork_child(|| 0).unwrap().wait().unwrap();
}

/// As a program is that was started by one who ignores SIGCHLD.
fn children_are_kept_where_sigchld_was_ignored(_: &Path) {
    // SAFETY: no function becomes a handler.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }.unwrap();
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    let child = fork_child(|| {
        theirs.read_exact(&mut [0]).unwrap();
        3
    });
    ours.write_all(b".").unwrap();
    let lost = child.unwrap().wait().unwrap_err();
    assert_eq!(lost.raw_os_error(), Some(libc::ECHILD));
    keep_until_waited_for().unwrap();
    assert_eq!(fork_child(|| 3).unwrap().wait().unwrap(), ChildEnd::Exited(3));
}
