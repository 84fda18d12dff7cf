//! `sanlock daemon` under a service manager that waits until it is ready: `Type=notify` of systemd.
//!
//! (`Type=forking` relies on the exit status of the process that was started and on the pid file; packaging/test-units tries both.)
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getegid, geteuid};
use std::fs::read_to_string;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command};
use std::time::Duration;

/// For a start or an end, on a machine that does other things too.
const LIMIT: Duration = Duration::from_secs(60);
/// As systemd starts a process: its own pid is in the variable.
const AS_MANAGER: &str = "SYSTEMD_EXEC_PID=$$ exec \"$0\" \"$@\"";

/// A manager's socket, and a place for the daemon's files.
struct Manager {
    dir: tempfile::TempDir,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Self { dir, socket }
    }

    fn start(&self, script: &str, options: &[&str]) -> Child {
        Command::new("sh")
            .args(["-c", script, env!("CARGO_BIN_EXE_sanlock")])
            .args(["daemon", "-w", "0", "-L", "-1", "-S", "-1", "-l", "0"])
            .args(["-U", &geteuid().to_string(), "-G", &getegid().to_string()])
            .args(options)
            .env("SANLOCK_RUN_DIR", self.dir.path().join("run"))
            .env("SANLOCK_PRIVILEGED", "0")
            .env("NOTIFY_SOCKET", self.dir.path().join("notify"))
            .spawn()
            .unwrap()
    }

    /// What is said within the limit.
    fn told(&self) -> String {
        let mut bytes = [0; 200];
        let len = self.socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    }

    fn was_told_nothing(&self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        self.socket.recv(&mut [0; 10]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    fn daemon(&self) -> Pid {
        let pid = read_to_string(self.dir.path().join("run/sanlock.pid")).unwrap();
        Pid::from_raw(pid.trim().parse().unwrap())
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap())
}

#[test]
fn a_daemon_that_is_waited_for_stays_and_says_when_it_serves() {
    for options in [&[][..], &["-D"]] {
        let manager = Manager::new();
        let mut started = manager.start(AS_MANAGER, options);
        assert_eq!(manager.told(), "READY=1\n");
        assert_eq!(manager.daemon(), pid_of(&started), "{options:?}");
        kill(pid_of(&started), Signal::SIGTERM).unwrap();
        assert!(started.wait().unwrap().success());
    }
}

/// As a container's manager does, which starts what it starts in the foreground.
#[test]
fn a_daemon_that_is_to_stay_says_so_to_any_manager() {
    let manager = Manager::new();
    let mut started = manager.start("exec \"$0\" \"$@\"", &["-D"]);
    assert_eq!(manager.told(), "READY=1\n");
    kill(pid_of(&started), Signal::SIGTERM).unwrap();
    assert!(started.wait().unwrap().success());
}

/// A program in a unit of its own starts the daemon, as ever.
#[test]
fn variables_that_were_inherited_change_nothing() {
    let manager = Manager::new();
    let mut started = manager.start("SYSTEMD_EXEC_PID=1 exec \"$0\" \"$@\"", &[]);
    assert!(started.wait().unwrap().success());
    let daemon = manager.daemon();
    assert_ne!(daemon, pid_of(&started));
    assert!(manager.was_told_nothing(), "that unit's start is no matter of ours");
    kill(daemon, Signal::SIGTERM).unwrap();
}

#[test]
fn a_start_that_fails_is_not_reported_as_one() {
    let manager = Manager::new();
    // A file where the run directory should be.
    std::fs::write(manager.dir.path().join("run"), "").unwrap();
    assert!(!manager.start(AS_MANAGER, &[]).wait().unwrap().success());
    assert!(manager.was_told_nothing());
}
