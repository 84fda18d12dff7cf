//! One host of the demo: a daemon with its own run directory, and processes that hold leases.

use super::{IO_TIMEOUT, cleanup};
use sanlock_client::Client;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long the demo waits for anything that should happen at once.
const PATIENCE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(20);

/// A child process that ends with the demo, whatever happens: here when nothing does, else by [`cleanup`].
pub(super) struct Process(Child);

impl Process {
    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// SIGKILL, and waits for the end.
    pub(super) fn kill(&mut self) {
        let _already_gone = self.0.kill();
        let _reaped = self.0.wait();
    }

    /// Its exit status, if it has ended.
    pub(super) fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.0.try_wait().ok().flatten()
    }

    pub(super) fn signal(&self, signal: nix::sys::signal::Signal) {
        if let Ok(pid) = i32::try_from(self.pid()) {
            let _already_gone = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal);
        }
    }

    /// What it printed, once it has ended.
    pub(super) fn output(mut self) -> Result<Output, String> {
        use std::io::Read;
        let mut out =
            Output { status: self.0.wait().map_err(|e| e.to_string())?, stdout: vec![], stderr: vec![] };
        if let Some(mut pipe) = self.0.stdout.take() {
            pipe.read_to_end(&mut out.stdout).map_err(|e| e.to_string())?;
        }
        if let Some(mut pipe) = self.0.stderr.take() {
            pipe.read_to_end(&mut out.stderr).map_err(|e| e.to_string())?;
        }
        Ok(out)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A daemon and its run directory.
pub(super) struct Host {
    pub(super) name: &'static str,
    run_dir: PathBuf,
    program: PathBuf,
    daemon: Option<Process>,
}

impl Host {
    /// Starts the daemon and waits until it answers.
    pub(super) fn start(scratch: &Path, name: &'static str) -> Result<Self, String> {
        let run_dir = scratch.join(name);
        let program = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
        let log = cleanup::make_file(&scratch.join(format!("{name}.log"))).map_err(|e| e.to_string())?;
        let uid = nix::unistd::getuid().to_string();
        let gid = nix::unistd::getgid().to_string();
        let mut host = Self { name, run_dir, program, daemon: None };
        let mut daemon = host.command([
            "daemon", "-D", "-w", "0", "-l", "0", "-L", "-1", "-S", "-1", "-U", &uid, "-G", &gid, "-e", name,
        ]);
        let child = cleanup::spawn(daemon.stdout(Stdio::null()).stderr(log))
            .map_err(|e| format!("cannot start {}: {e}", host.program.display()))?;
        let mut daemon = Process(child);
        let deadline = Instant::now() + PATIENCE;
        while host.client().version().is_err() {
            if let Some(status) = daemon.ended() {
                let log = std::fs::read_to_string(scratch.join(format!("{name}.log"))).unwrap_or_default();
                return Err(format!("the daemon of {name} ended with {status}: {}", log.trim()));
            }
            if Instant::now() > deadline {
                return Err(format!("the daemon of {name} does not answer"));
            }
            std::thread::sleep(POLL);
        }
        host.daemon = Some(daemon);
        Ok(host)
    }

    fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .env("SANLOCK_RUN_DIR", &self.run_dir)
            .env("SANLOCK_PRIVILEGED", "0")
            .stdin(Stdio::null());
        command
    }

    pub(super) fn client(&self) -> Client {
        Client::with_run_dir(&self.run_dir)
    }

    /// Runs a `sanlock` command on this host to its end.
    pub(super) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<Output, String> {
        self.spawn(args)?.output()
    }

    /// Like `run`, but a status other than 0 is an error with everything that was printed.
    pub(super) fn expect<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<Output, String> {
        let output = self.run(args)?;
        if output.status.success() { Ok(output) } else { Err(text(&output)) }
    }

    /// Starts a `sanlock` command on this host.
    pub(super) fn spawn<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<Process, String> {
        let mut command = self.command(args);
        let child = cleanup::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
            .map_err(|e| e.to_string())?;
        Ok(Process(child))
    }

    /// Starts joining the lockspace.
    pub(super) fn join(&self, lockspace: &str) -> Result<Process, String> {
        self.spawn(["client", "add_lockspace", "-s", lockspace, "-o", IO_TIMEOUT])
    }

    /// A process that holds `resource` until it is killed.
    pub(super) fn hold(&self, resource: &str) -> Result<Process, String> {
        let mut process = self.spawn(["client", "command", "-r", resource])?;
        let deadline = Instant::now() + PATIENCE;
        while !self.holds(&process) {
            if process.ended().is_some() {
                return Err(process.output().map(|o| text(&o)).unwrap_or_default());
            }
            if Instant::now() > deadline {
                return Err(format!("process {} did not get {resource} in {PATIENCE:?}", process.pid()));
            }
            std::thread::sleep(POLL);
        }
        Ok(process)
    }

    /// Whether a process of this host holds a lease.
    pub(super) fn holds(&self, process: &Process) -> bool {
        let Ok(pid) = i32::try_from(process.pid()) else { return false };
        self.client().inquire(pid).is_ok_and(|i| i.resources().is_ok_and(|r| !r.is_empty()))
    }

    /// Ends the daemon as a crash would.
    pub(super) fn crash(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill();
        }
    }
}

/// Everything a command printed, on one line.
pub(super) fn text(output: &Output) -> String {
    let mut all = String::from_utf8_lossy(&output.stdout).into_owned();
    all.push_str(&String::from_utf8_lossy(&output.stderr));
    all.lines().collect::<Vec<_>>().join("; ")
}
