//! A host: one daemon with a run directory of its own.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::bounded::{self, CLIENT_LIMIT, Output, Running};
use crate::program::Program;
use crate::raw::Connection;
use crate::sleep::Sleep;
use crate::storage::{Storage, scratch_dir};
use crate::wdmd::Machine;

/// A daemon must answer on its socket within this time.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A join, also one that waits for a silent owner.
const JOIN_LIMIT: Duration = Duration::from_secs(120);

/// A busy machine does an I/O within its timeout once in this time.
const SLOW_LIMIT: Duration = Duration::from_secs(60);

/// An I/O took longer than its timeout.
const TIMED_OUT: i64 = -202;
/// It has not ended yet.
const UNDER_WAY: i64 = -11;

/// Lines of the daemon's debug log shown when a case fails.
const LOG_TAIL_LINES: usize = 60;

/// One daemon, and the command line that talks to it. Dropping it kills the daemon.
///
/// The daemon also dies with the thread that started the host, so a host must be used and dropped
/// by the thread that made it (or one that this thread waits for).
#[derive(Debug)]
pub struct Host {
    name: String,
    daemon_program: Program,
    cli_program: Program,
    run_dir: TempDir,
    daemon: Child,
    exit: Option<ExitStatus>,
}

impl Host {
    /// Starts a daemon without watchdog, realtime priority and memory locking, running as root in
    /// unprivileged mode (command-line.md 9, 12.1), and waits until it answers.
    ///
    /// # Panics
    /// When it does not answer in time.
    #[must_use]
    pub fn start(program: Program, name: &str) -> Self {
        Self::start_with(program, program, name, &[])
    }

    /// Like [`Self::start`], with another program as command line and further daemon options.
    ///
    /// # Panics
    /// When the daemon does not answer in time.
    #[must_use]
    pub fn start_with(daemon: Program, cli: Program, name: &str, options: &[&str]) -> Self {
        Self::start_somewhere(scratch_dir("run"), (daemon, cli), name, options, &Place::default())
    }

    /// Like [`Self::start`], with the watchdog: the wdmd that runs on `machine`.
    ///
    /// # Panics
    /// When the daemon does not answer in time.
    #[must_use]
    pub fn start_watched(program: Program, name: &str, machine: &Machine) -> Self {
        Self::start_somewhere(
            scratch_dir("run"),
            (program, program),
            name,
            &[],
            &Place { machine: Some(machine), ..Place::default() },
        )
    }

    /// Like [`Self::start`], by somebody who ignores SIGCHLD.
    ///
    /// # Panics
    /// When the daemon does not answer in time.
    #[must_use]
    pub fn start_ignoring_children(program: Program, name: &str) -> Self {
        let place = Place { signals: Some("--ignore-signal=CHLD"), ..Place::default() };
        Self::start_somewhere(scratch_dir("run"), (program, program), name, &[], &place)
    }

    /// Like [`Self::start`], by somebody who has the signals blocked that end a daemon.
    ///
    /// # Panics
    /// When the daemon does not answer in time.
    #[must_use]
    pub fn start_with_blocked_signals(program: Program, name: &str) -> Self {
        let place = Place { signals: Some("--block-signal=TERM,INT,HUP"), ..Place::default() };
        Self::start_somewhere(scratch_dir("run"), (program, program), name, &[], &place)
    }

    /// Like [`Self::start`], on a machine that sleeps; with the watchdog, if a `machine` is given.
    ///
    /// # Panics
    /// When the daemon does not answer in time.
    #[must_use]
    pub fn start_sleepy(program: Program, name: &str, sleep: &Sleep, machine: Option<&Machine>) -> Self {
        let place = Place { machine, sleep: Some(sleep), ..Place::default() };
        Self::start_somewhere(scratch_dir("run"), (program, program), name, &[], &place)
    }

    /// Like [`Self::start_with`], with run directory and log in `run_dir`.
    ///
    /// # Panics
    /// When the daemon does not answer in time.
    #[must_use]
    pub fn start_in(run_dir: TempDir, program: Program, name: &str, options: &[&str]) -> Self {
        Self::start_somewhere(run_dir, (program, program), name, options, &Place::default())
    }

    fn start_somewhere(
        run_dir: TempDir,
        (daemon, cli): (Program, Program),
        name: &str,
        options: &[&str],
        place: &Place<'_>,
    ) -> Self {
        let child = spawn_daemon(daemon, name, run_dir.path(), options, place);
        let mut host = Self {
            name: name.to_owned(),
            daemon_program: daemon,
            cli_program: cli,
            run_dir,
            daemon: child,
            exit: None,
        };
        host.wait_until_it_answers();
        host
    }

    /// Starts the daemon again after it has ended, in the same run directory and without watchdog: the
    /// host is back after a crash or an update.
    ///
    /// # Panics
    /// When the old daemon still runs or the new one does not answer in time.
    pub fn restart(&mut self) {
        assert!(!self.alive(), "host {}: the daemon still runs", self.name);
        self.daemon =
            spawn_daemon(self.daemon_program, &self.name, self.run_dir.path(), &[], &Place::default());
        self.exit = None;
        self.wait_until_it_answers();
    }

    /// Starts the daemon of another program after this one has ended, in the same run directory and with the same name: the host
    /// has changed over. Its command line is the other program's, too.
    ///
    /// # Panics
    /// When the old daemon still runs or the new one does not answer in time.
    pub fn restart_as(&mut self, program: Program) {
        self.daemon_program = program;
        self.cli_program = program;
        self.restart();
    }

    fn wait_until_it_answers(&mut self) {
        let what = format!("the {} daemon of host {} to answer", self.daemon_program.word(), self.name);
        bounded::wait_until(&what, START_LIMIT, || {
            assert!(self.alive(), "host {}: the daemon ended: {:?}", self.name, self.exit);
            Connection::open(self.run_dir.path()).is_ok_and(|mut connection| connection.version().is_ok())
        });
    }

    /// Host name as given with `-e`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which program the daemon is.
    #[must_use]
    pub fn program(&self) -> Program {
        self.daemon_program
    }

    /// Process id of the daemon.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.daemon.id()
    }

    /// The run directory.
    #[must_use]
    pub fn run_dir(&self) -> &Path {
        self.run_dir.path()
    }

    /// Whether the daemon runs.
    pub fn alive(&mut self) -> bool {
        if self.exit.is_none() {
            self.exit = self
                .daemon
                .try_wait()
                .unwrap_or_else(|error| panic!("host {}: waiting for the daemon: {error}", self.name));
        }
        self.exit.is_none()
    }

    /// A connection to the daemon.
    ///
    /// # Panics
    /// When the daemon cannot be reached.
    #[must_use]
    pub fn connect(&self) -> Connection {
        Connection::open(self.run_dir.path())
            .unwrap_or_else(|error| panic!("host {}: cannot connect: {error}", self.name))
    }

    /// The command line with `SANLOCK_RUN_DIR` set, not yet started.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.cli_program.path());
        command.args(args).env("SANLOCK_RUN_DIR", self.run_dir.path());
        command
    }

    /// Runs the command line.
    ///
    /// # Panics
    /// When it does not end within [`CLIENT_LIMIT`].
    #[must_use]
    pub fn client(&self, args: &[&str]) -> Output {
        self.client_within(CLIENT_LIMIT, args)
    }

    /// Runs the command line with another limit.
    ///
    /// # Panics
    /// When it does not end within `limit`.
    #[must_use]
    pub fn client_within(&self, limit: Duration, args: &[&str]) -> Output {
        bounded::run(self.command(args), limit)
    }

    /// Starts the command line and leaves it running.
    #[must_use]
    pub fn client_in_background(&self, args: &[&str]) -> Running {
        Running::start(self.command(args))
    }

    /// Writes the lockspace with io timeout 1 and the leases of resources 1 to `resources`, all
    /// through this host.
    ///
    /// # Panics
    /// When a write is refused.
    pub fn init(&self, storage: &Storage, resources: u64) {
        let init = |args: &[&str]| {
            let _ = self.in_time(self.client(args), args).success();
        };
        init(&["client", "init", "-s", &storage.lockspace_arg(0), "-o", "1"]);
        for n in 1..=resources {
            init(&["client", "init", "-r", &storage.resource_arg(n)]);
        }
    }

    /// Joins the lockspace with io timeout 1.
    ///
    /// # Panics
    /// When the join is refused.
    pub fn join(&self, storage: &Storage, host_id: u64) {
        let lockspace = storage.lockspace_arg(host_id);
        let args = ["client", "add_lockspace", "-s", &lockspace, "-o", "1"];
        let _ = self.in_time(self.client_within(JOIN_LIMIT, &args), &args).success();
    }

    /// What a command has brought, or brings when it is repeated: as long as an I/O of it takes longer than the io timeout, as one may on a
    /// busy machine.
    ///
    /// # Panics
    /// When it does not end.
    #[must_use]
    pub fn in_time(&self, first: Output, args: &[&str]) -> Output {
        let begin = Instant::now();
        let slow = first.result() == Some(TIMED_OUT);
        let mut output = first;
        while slow && matches!(output.result(), Some(TIMED_OUT | UNDER_WAY)) && begin.elapsed() < SLOW_LIMIT {
            std::thread::sleep(Duration::from_millis(100));
            output = self.client_within(JOIN_LIMIT, args);
        }
        output
    }

    /// Leaves the lockspace.
    ///
    /// # Panics
    /// When this is refused.
    pub fn leave(&self, storage: &Storage, host_id: u64) {
        let _ = self.client(&["client", "rem_lockspace", "-s", &storage.lockspace_arg(host_id)]).success();
    }

    /// Ends the daemon with SIGKILL, as a crash.
    pub fn kill(&mut self) {
        if self.alive() {
            // Fails only if the daemon ended in between.
            let _ = self.daemon.kill();
            self.exit = self.daemon.wait().ok();
        }
    }

    /// Sends SIGTERM: the daemon ends when no lockspace is joined.
    ///
    /// # Panics
    /// When the signal cannot be sent.
    pub fn terminate(&mut self) {
        assert!(self.alive(), "host {}: the daemon has ended", self.name);
        kill(pid_of(self.pid()), Signal::SIGTERM)
            .unwrap_or_else(|error| panic!("host {}: SIGTERM: {error}", self.name));
    }

    /// Waits for the daemon's end and returns its exit status.
    ///
    /// # Panics
    /// After `limit`.
    pub fn wait_for_end(&mut self, limit: Duration) -> ExitStatus {
        bounded::wait_until("the daemon to end", limit, || !self.alive());
        self.exit.unwrap_or_else(|| unreachable!("the daemon has ended"))
    }

    /// The daemon's debug log so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read(self.run_dir.path().join(LOG_NAME))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines.iter().skip(lines.len().saturating_sub(LOG_TAIL_LINES));
            let ended = if self.alive() { String::new() } else { format!(", ended: {:?}", self.exit) };
            eprintln!("--- log of {} host {}{ended}", self.daemon_program.word(), self.name);
            tail.for_each(|line| eprintln!("{line}"));
        }
        self.kill();
    }
}

/// What a daemon finds around it.
#[derive(Clone, Copy, Debug, Default)]
struct Place<'a> {
    /// The machine whose wdmd it uses, if any.
    machine: Option<&'a Machine>,
    sleep: Option<&'a Sleep>,
    /// What whoever starts the daemon has decided about signals, as an option of `env`: that holds for what is started until it says otherwise.
    signals: Option<&'a str>,
}

const LOG_NAME: &str = "debug-log";

/// The arguments of a daemon that stays in the foreground and needs no account, memory lock or priority. `options` come last, where they win.
#[must_use]
pub fn daemon_args<'a>(watchdog: bool, name: &'a str, options: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["daemon", "-D", "-w", if watchdog { "1" } else { "0" }];
    args.extend(["-l", "0", "-h", "0", "-U", "root", "-G", "root", "-e", name]);
    args.extend(options);
    args
}

/// What the environment of such a daemon says, of either program.
#[must_use]
pub fn daemon_environment(run_dir: &Path) -> [(&'static str, &OsStr); 2] {
    [("SANLOCK_RUN_DIR", run_dir.as_os_str()), ("SANLOCK_PRIVILEGED", OsStr::new("0"))]
}

fn spawn_daemon(program: Program, name: &str, run_dir: &Path, options: &[&str], place: &Place<'_>) -> Child {
    let log = File::options()
        .create(true)
        .append(true)
        .open(run_dir.join(LOG_NAME))
        .unwrap_or_else(|error| panic!("cannot make the log of host {name}: {error}"));
    let args = daemon_args(place.machine.is_some(), name, options);
    let mut command = match place.machine {
        Some(machine) => machine.plain_command_of(&program.path(), &args),
        None => {
            let mut command = match place.signals {
                Some(_) => bounded::dying_with_us(Path::new("env")),
                None => bounded::dying_with_us(&program.path()),
            };
            if let Some(signals) = place.signals {
                command.arg(signals).arg(program.path());
            }
            command.args(args);
            command
        }
    };
    command
        .envs(place.sleep.into_iter().flat_map(Sleep::environment))
        .envs(daemon_environment(run_dir))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start the {} daemon: {error}", program.word()))
}

/// A process id as the signal functions take it.
///
/// # Panics
/// When it does not fit, which no process id does.
#[must_use]
pub fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap_or_else(|_| panic!("pid {pid} out of range")))
}
