//! A real daemon, without a watchdog, that whoever runs the test may start.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A daemon of ours, ended when it goes.
pub(crate) struct Daemon {
    pub(crate) child: Child,
    pub(crate) run_dir: PathBuf,
}

impl Daemon {
    /// With its run directory and its log, `run` and `log`, in this one. Returns when it answers.
    pub(crate) fn start(dir: &Path) -> Self {
        let run_dir = dir.join("run");
        std::fs::create_dir_all(&run_dir).unwrap();
        let log = std::fs::File::create(dir.join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_sanlock"))
            .args(["daemon", "-D", "-w", "0", "-h", "0", "-l", "0", "-U", "root", "-G", "root", "-e", "here"])
            .env("SANLOCK_RUN_DIR", &run_dir)
            .env("SANLOCK_PRIVILEGED", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let daemon = Self { child, run_dir };
        let began = Instant::now();
        while !daemon.client(&["status"]).status.success() {
            assert!(began.elapsed() < Duration::from_secs(60), "the daemon does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        daemon
    }

    /// `sanlock client` with these arguments, for this daemon.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanlock"));
        command.arg("client").args(args).env("SANLOCK_RUN_DIR", &self.run_dir);
        command
    }

    pub(crate) fn client(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}
