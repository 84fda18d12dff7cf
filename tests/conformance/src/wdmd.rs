//! A pretended machine for one wdmd: a `/run` and `/dev/shm` of its own (a mount name space with
//! directories of the case in their place), pretended watchdog devices, and the daemon under test.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use tempfile::TempDir;

use crate::bounded::{self, Output, Running};
use crate::host::pid_of;
use crate::program::{Program, missing};
use crate::storage::{scratch_dir, text};
use crate::watchdog::{Devices, now, shim};
use crate::wdmd_client::Client;

/// Path of the original as packaged.
const REFERENCE_PATH: &str = "/usr/sbin/wdmd";

/// The daemon must answer, and a short command must end, within this time.
pub const SOON: Duration = Duration::from_secs(30);

/// Inside the new mount name space; `$0` is the machine's directory, the rest the command.
const ENTER: &str = r#"mount --bind "$0/run" /run && mount --bind "$0/shm" /dev/shm && exec "$@""#;

impl Program {
    /// Path of the wdmd executable. Ours: `SANLOCK_OURS_WDMD`, else `wdmd` beside our `sanlock`.
    #[must_use]
    pub fn wdmd_path(self) -> PathBuf {
        match self {
            Self::Reference => PathBuf::from(REFERENCE_PATH),
            Self::Ours => std::env::var_os("SANLOCK_OURS_WDMD")
                .map_or_else(|| self.path().with_file_name("wdmd"), PathBuf::from),
        }
    }

    /// The wdmd chosen by `SANLOCK_UNDER_TEST`, or `None` when it is the reference and that is not
    /// installed, or when mount name spaces are not to be had.
    ///
    /// # Panics
    /// When something is missing that must not be.
    #[must_use]
    pub fn wdmd_under_test() -> Option<Self> {
        let program = match std::env::var("SANLOCK_UNDER_TEST").as_deref() {
            Ok("reference") => Self::Reference,
            Ok("ours") | Err(_) => Self::Ours,
            Ok(other) => panic!("SANLOCK_UNDER_TEST must be reference or ours, not {other:?}"),
        };
        (program.wdmd_available() && mount_namespaces()).then_some(program)
    }

    /// Whether the wdmd can be run.
    ///
    /// # Panics
    /// When ours has not been built, and when the reference is missing under `CI`.
    #[must_use]
    pub fn wdmd_available(self) -> bool {
        let path = self.wdmd_path();
        if path.exists() {
            return true;
        }
        match self {
            Self::Ours => panic!(
                "{} does not exist: build it first (cargo build --package sanlock-wdmd) or set SANLOCK_OURS_WDMD",
                path.display()
            ),
            Self::Reference => missing(&format!("the reference wdmd ({REFERENCE_PATH})")),
        }
    }

    /// What is expected of this program where ours differs on purpose, and why.
    pub fn differs<T>(self, reference: T, ours: T, why: &str) -> T {
        assert!(!why.is_empty(), "a difference needs a reason");
        match self {
            Self::Reference => reference,
            Self::Ours => ours,
        }
    }
}

/// Whether name spaces can be made here.
///
/// # Panics
/// Under `CI` when they cannot.
#[must_use]
pub fn mount_namespaces() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| {
        let dir = scratch_dir("ns");
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private", "mount", "--bind", text(dir.path()), "/run"]);
        let output = bounded::run(command, SOON);
        output.code == 0 || missing(&format!("a mount name space (root is needed): {output}"))
    })
}

/// The pretended machine. It outlives its daemons: the marker, the pid file and the devices stay.
#[derive(Debug)]
pub struct Machine {
    program: Program,
    devices: Devices,
    dir: TempDir,
}

impl Machine {
    /// A machine with one device, `/dev/watchdog0`, also reachable as `/dev/watchdog`.
    ///
    /// # Panics
    /// When files cannot be made.
    #[must_use]
    pub fn new(program: Program) -> Self {
        let machine = Self::without_device(program);
        machine.devices.add("watchdog0");
        machine.devices.alias("watchdog", "watchdog0");
        machine
    }

    /// A machine without watchdog.
    ///
    /// # Panics
    /// When files cannot be made.
    #[must_use]
    pub fn without_device(program: Program) -> Self {
        let dir = scratch_dir("wdmd");
        for name in ["run", "shm", "dev", "scripts"] {
            let path = dir.path().join(name);
            fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
        Self { program, devices: Devices::new(dir.path().join("dev")), dir }
    }

    /// The program under test.
    #[must_use]
    pub fn program(&self) -> Program {
        self.program
    }

    /// The devices.
    #[must_use]
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// What the machine has as `/run/wdmd/NAME`.
    #[must_use]
    pub fn run_file(&self, name: &str) -> PathBuf {
        self.dir.path().join("run/wdmd").join(name)
    }

    /// The marker that a wdmd runs or was not cleanly stopped (wdmd.md 3.4).
    #[must_use]
    pub fn marker(&self) -> PathBuf {
        self.dir.path().join("shm/wdmd")
    }

    /// The directory for test scripts, and for whatever else a case needs.
    #[must_use]
    pub fn scripts(&self) -> PathBuf {
        self.dir.path().join("scripts")
    }

    /// The pid file's text; empty when there is none.
    #[must_use]
    pub fn pid_file(&self) -> String {
        fs::read_to_string(self.run_file("wdmd.pid")).unwrap_or_default()
    }

    /// A command that runs `program` on this machine, with the pretended devices.
    ///
    /// # Panics
    /// When the shim cannot be compiled.
    #[must_use]
    pub fn command_of(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = bounded::dying_with_us(Path::new("unshare"));
        command
            .args(["-m", "--propagation", "private", "sh", "-c", ENTER, text(self.dir.path())])
            .arg("env")
            .arg(format!("LD_PRELOAD={}", shim().display()))
            .arg(format!("WATCHDOG_SHIM_DIR={}", self.devices.dir().display()))
            .arg(program)
            .args(args);
        command
    }

    /// A command that runs `program` on this machine without the pretended devices.
    #[must_use]
    pub fn plain_command_of(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = bounded::dying_with_us(Path::new("unshare"));
        command
            .args(["-m", "--propagation", "private", "sh", "-c", ENTER, text(self.dir.path())])
            .arg(program)
            .args(args);
        command
    }

    /// The wdmd under test with these arguments.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        self.command_of(&self.program.wdmd_path(), args)
    }

    /// Runs wdmd to its end.
    ///
    /// # Panics
    /// When it does not end.
    #[must_use]
    pub fn run(&self, args: &[&str]) -> Output {
        bounded::run(self.command(args), SOON)
    }

    /// Starts the daemon in the foreground and waits until it answers.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn start(&self, options: &[&str]) -> Wdmd<'_> {
        self.once_ready(self.start_unready(options))
    }

    /// Like [`Self::start`], with this limit of open descriptors.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn start_with_few_descriptors(&self, descriptors: u32) -> Wdmd<'_> {
        let limit = format!("--nofile={descriptors}:{descriptors}");
        let wdmd = self.program.wdmd_path();
        let args = [&limit, text(&wdmd), "-D", "-G", "root"];
        self.once_ready(self.running(self.command_of(Path::new("prlimit"), &args)))
    }

    /// Like [`Self::start`], by somebody who ignores SIGCHLD: what is started does so too, until it says otherwise.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn start_ignoring_children(&self, options: &[&str]) -> Wdmd<'_> {
        self.start_through_env("--ignore-signal=CHLD", options)
    }

    /// Like [`Self::start`], by somebody who has the signals blocked that a daemon listens to.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn start_with_blocked_signals(&self, options: &[&str]) -> Wdmd<'_> {
        self.start_through_env("--block-signal=TERM,INT,HUP", options)
    }

    fn start_through_env(&self, signals: &str, options: &[&str]) -> Wdmd<'_> {
        let wdmd = self.program.wdmd_path();
        let mut args = vec![signals, text(&wdmd), "-D", "-G", "root"];
        args.extend(options);
        self.once_ready(self.running(self.command_of(Path::new("env"), &args)))
    }

    fn once_ready<'machine>(&self, mut wdmd: Wdmd<'machine>) -> Wdmd<'machine> {
        bounded::wait_until("wdmd to answer", SOON, || {
            assert!(!wdmd.ended(), "wdmd ended: {}", wdmd.running.text().1);
            let Some(mut client) = self.try_connect() else { return false };
            let _ = client.status();
            true
        });
        wdmd
    }

    /// Starts the daemon in the foreground, to see how it ends.
    #[must_use]
    pub fn start_unready(&self, options: &[&str]) -> Wdmd<'_> {
        let mut args = vec!["-D", "-G", "root"];
        args.extend(options);
        self.running(self.command(&args))
    }

    fn running(&self, command: Command) -> Wdmd<'_> {
        Wdmd { machine: self, running: Running::start(command), died: None }
    }

    /// A connection, if a daemon listens.
    ///
    /// # Panics
    /// When the directory of the socket cannot be opened for another reason than its absence.
    #[must_use]
    pub fn try_connect(&self) -> Option<Client> {
        self.at_socket(|path| UnixStream::connect(path).ok())
    }

    /// Like [`Self::try_connect`], for a listener that may not accept for ever: it is not waited for.
    #[must_use]
    pub fn try_connect_now(&self) -> Option<Client> {
        self.at_socket(|path| {
            let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None).ok()?;
            connect(fd.as_raw_fd(), &UnixAddr::new(path).ok()?).ok()?;
            let stream = UnixStream::from(fd);
            stream.set_nonblocking(false).ok()?;
            Some(stream)
        })
    }

    fn at_socket(&self, connect: impl FnOnce(&str) -> Option<UnixStream>) -> Option<Client> {
        // The path of the case's directory may be too long for a socket address.
        let dir = File::open(self.run_file("")).ok()?;
        connect(&format!("/proc/self/fd/{}/wdmd.sock", dir.as_raw_fd())).map(Client::new)
    }

    /// A connection.
    ///
    /// # Panics
    /// When no daemon listens.
    #[must_use]
    pub fn connect(&self) -> Client {
        self.try_connect().unwrap_or_else(|| panic!("cannot connect to wdmd"))
    }
}

/// A daemon in the foreground. Killed when dropped.
#[derive(Debug)]
pub struct Wdmd<'machine> {
    machine: &'machine Machine,
    running: Running,
    died: Option<Duration>,
}

/// What an armed client can count on (F, I of wdmd.md) and what the device is programmed to.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Fire timeout F.
    pub fire: u64,
    /// Test interval I.
    pub interval: u64,
    /// The device's own timeout D.
    pub device: u64,
}

impl Wdmd<'_> {
    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Whether it has ended.
    pub fn ended(&mut self) -> bool {
        self.running.ended()
    }

    /// A connection.
    ///
    /// # Panics
    /// When the daemon does not listen.
    #[must_use]
    pub fn connect(&self) -> Client {
        self.machine.connect()
    }

    /// A connection that has the device armed with 60 s, as the original 3.8.5 always is.
    ///
    /// # Panics
    /// When the device is refused.
    #[must_use]
    pub fn armed(&self) -> (Client, Timing) {
        self.armed_with(60, 15)
    }

    /// Like [`Self::armed`], with other values for ours: F, and the D that follows from it.
    ///
    /// # Panics
    /// When the device is refused.
    #[must_use]
    pub fn armed_with(&self, fire: u32, device: u64) -> (Client, Timing) {
        let mut client = self.connect();
        if self.machine.program == Program::Reference {
            return (client, Timing { fire: 60, interval: 10, device: 60 });
        }
        assert_eq!(client.open_watchdog(fire), fire, "the device is armed");
        let interval = match fire {
            60.. => 10,
            30..60 => 5,
            10..30 => 2,
            _ => 1,
        };
        (client, Timing { fire: u64::from(fire), interval, device })
    }

    /// The text of DUMP_DEBUG, over a connection of its own.
    ///
    /// # Panics
    /// When there is no answer.
    #[must_use]
    pub fn dump(&self) -> String {
        self.connect().dump()
    }

    /// The lines of the dump about client `name`.
    ///
    /// # Panics
    /// When there is no answer.
    #[must_use]
    pub fn slots(&self, name: &str) -> Vec<String> {
        let wanted = format!(" name {name} ");
        let dump = self.dump();
        let slots = dump.lines().filter(|line| line.starts_with("client ") && line.contains(&wanted));
        slots.map(str::to_owned).collect()
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// When the daemon has ended.
    pub fn signal(&self, signal: Signal) {
        kill(pid_of(self.pid()), signal).unwrap_or_else(|error| panic!("{signal}: {error}"));
        if signal == Signal::SIGSTOP {
            // It may be running on another core at this moment.
            let stat = format!("/proc/{}/stat", self.pid());
            bounded::wait_until("the daemon to stand still", SOON, || {
                std::fs::read_to_string(&stat).is_ok_and(|text| text.contains(") T "))
            });
        }
    }

    /// Ends it as a crash would.
    pub fn crash(&mut self) {
        self.running.kill();
        self.died = Some(now());
    }

    /// When it crashed, for the reckoning.
    #[must_use]
    pub fn died(&self) -> Option<Duration> {
        self.died
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not end.
    pub fn finish(&mut self) -> Output {
        bounded::wait_until("wdmd to end", SOON, || self.running.ended());
        self.running.finish(SOON)
    }

    /// What it wrote to standard error so far: log and debug lines.
    #[must_use]
    pub fn log(&self) -> String {
        self.running.text().1
    }

    /// Waits for a line with `words` in the log.
    ///
    /// # Panics
    /// When it does not come.
    pub fn wait_for_log(&self, words: &str) {
        bounded::wait_until(&format!("{words:?} in the log"), SOON, || self.log().contains(words));
    }
}

impl Drop for Wdmd<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of the {} wdmd\n{}", self.machine.program.word(), self.log());
            eprintln!("--- devices");
            for event in self.machine.devices.events() {
                eprintln!("{event:?}");
            }
        }
    }
}

/// The field after `word` in a line of the dump.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn field<'line>(line: &'line str, word: &str) -> &'line str {
    let words: Vec<&str> = line.split_whitespace().collect();
    let found = words.windows(2).find(|pair| pair[0] == word).map(|pair| pair[1]);
    found.unwrap_or_else(|| panic!("no {word} in {line:?}"))
}
