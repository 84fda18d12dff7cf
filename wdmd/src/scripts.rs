//! Script tests (specification 8), run beside everything else: they never delay a client's test or a ping. Looking for scripts,
//! looking at one and executing it may wait for a disk, so threads of their own do that, and another one starts these ([`hire`]); only
//! the start of the daemon, when there is nothing to ping, looks for scripts itself.
//!
//! Each script runs in a process group of its own, with a clean signal mask and no descriptors of ours. Not even between its fork and
//! the end of its exec, which hangs with the disk that the program or its interpreter lies on: the device stops with the last copy of
//! its descriptor that is closed, so a child that had one would keep it running after it was disarmed.

mod hire;

use crate::log::Log;
use hire::Hirer;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use sanlock_sys::notify::SOCKET_VARIABLE;
use sanlock_sys::process::forget_descriptors_from;
use sanlock_sys::reclaim::without_io_flusher;
use sanlock_wdmd::decide::{Time, test_interval};
use sanlock_wdmd::protocol::Escaped;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError};

/// Scripts at most; further ones are ignored.
const MAX_SCRIPTS: usize = 8;
/// How often running scripts are looked at.
const LOOK_EVERY_MS: i64 = 200;
/// While a script is bad, cycles and complaints come this often.
const BAD_EVERY_MS: i64 = 1000;
/// What `last_result` says of a script that was killed (EINTR), as the original.
const KILLED: i32 = 4;
/// What it says of one that could not be executed.
const NOT_EXECUTABLE: i32 = 1;
/// Name of a thread that executes a script. It has none of the descriptors of the others, that of the system log included.
pub(crate) const EXECUTING_THREAD: &str = "wdmd-script";
/// Longest name in the dump.
const SHOWN_NAME: usize = 64;

/// What a turn found out about the script in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) slot: u8,
    pub(crate) good: bool,
}

/// What a script is doing.
enum Doing {
    Nothing,
    /// Its thread tries to execute it.
    Starting(Receiver<Spawned>),
    Running(Child),
}

impl Doing {
    fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }

    fn pid(&self) -> u32 {
        if let Self::Running(child) = self { child.id() } else { 0 }
    }
}

/// What became of an execution.
enum Spawned {
    Child(Child),
    /// It is no script any more: the number for the log.
    Gone(i32),
    Failed(io::Error),
}

struct Script {
    name: OsString,
    doing: Doing,
    started: Option<Time>,
    /// When it is complained about for running too long.
    long_at: Time,
    /// This run counts as too long.
    is_long: bool,
    bad: bool,
    last_result: i32,
    run: u32,
    fail: u32,
    good: u32,
    kill: u32,
    long: u32,
}

/// What a directory holds that may be a script, in the order of the names, and whether it is one.
type Found = io::Result<Vec<(OsString, Result<(), Unfit>)>>;

/// The scripts of a directory.
pub(crate) struct Scripts {
    dir: PathBuf,
    kill_after_seconds: u32,
    hirer: Hirer,
    slots: [Option<Script>; MAX_SCRIPTS],
    next_cycle: Option<Time>,
    /// A thread looks for scripts. At most one does: the directory may hang, and so would all of them.
    scanning: Option<Receiver<Found>>,
    /// That thread may have missed what was added since it started.
    scan_again: bool,
}

impl Scripts {
    /// None yet. Starts the thread that starts others for them.
    ///
    /// # Errors
    ///
    /// It is not to be had.
    pub(crate) fn new(dir: PathBuf, kill_after_seconds: u32) -> io::Result<Self> {
        Ok(Self::with(dir, kill_after_seconds, Hirer::start()?))
    }

    fn with(dir: PathBuf, kill_after_seconds: u32, hirer: Hirer) -> Self {
        Self {
            dir,
            kill_after_seconds,
            hirer,
            slots: [const { None }; MAX_SCRIPTS],
            next_cycle: None,
            scanning: None,
            scan_again: false,
        }
    }

    /// Adds the scripts that are new in the directory. One that is gone is dropped when it is to be run.
    ///
    /// **Waits for the directory**: not for the loop, see [`Self::rescan`].
    pub(crate) fn scan(&mut self, log: &Log) {
        self.add(find(&self.dir), log);
    }

    /// Has a thread look for new scripts; a later turn adds them. If one still looks, it is done again after that.
    pub(crate) fn rescan(&mut self) {
        if self.scanning.is_some() {
            self.scan_again = true;
            return;
        }
        self.scan_again = false;
        let dir = self.dir.clone();
        self.scanning = Some(self.hirer.hire("wdmd-scan", move || find(&dir), Err));
    }

    /// Adds what the thread has found, if it has come back.
    fn end_scan(&mut self, log: &Log) {
        let Some(result) = &self.scanning else { return };
        let found = match result.try_recv() {
            Ok(found) => found,
            Err(TryRecvError::Empty) => return,
            Err(error @ TryRecvError::Disconnected) => Err(io::Error::other(error)),
        };
        self.scanning = None;
        self.add(found, log);
        if self.scan_again {
            self.rescan();
        }
    }

    fn add(&mut self, found: Found, log: &Log) {
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                log.error(format_args!("cannot read the scripts in {}: {error}", self.dir.display()));
                return;
            }
        };
        for (name, fitness) in found {
            if self.slots.iter().flatten().any(|script| script.name == name) {
                continue;
            }
            let shown = Escaped(name.as_bytes());
            match fitness {
                Ok(()) => {}
                Err(Unfit::No(result)) => {
                    log.debug(format_args!("script {shown} ignore {result}"));
                    continue;
                }
                Err(Unfit::Unknown(error)) => {
                    log.error(format_args!("script {shown} ignored: {error}"));
                    continue;
                }
            }
            let Some((slot, free)) = self.slots.iter_mut().enumerate().find(|(_, slot)| slot.is_none())
            else {
                log.error(format_args!("script {shown} no space: at most {MAX_SCRIPTS} scripts are run"));
                continue;
            };
            log.debug(format_args!("add_script {slot} {shown}"));
            *free = Some(Script {
                name,
                doing: Doing::Nothing,
                started: None,
                long_at: Time::from_millis(0),
                is_long: false,
                bad: false,
                last_result: 0,
                run: 0,
                fail: 0,
                good: 0,
                kill: 0,
                long: 0,
            });
        }
    }

    /// When the next turn is due. `None`: no script, and nobody looks for some.
    pub(crate) fn wake_at(&self, now: Time) -> Option<Time> {
        let running =
            self.scanning.is_some() || self.slots.iter().flatten().any(|script| !script.doing.is_nothing());
        let look = running.then(|| now.plus_millis(LOOK_EVERY_MS));
        look.into_iter().chain(self.next_cycle).min()
    }

    /// Adds new scripts, looks at running ones, and starts those that are due if somebody relies on the device. `fire_timeout` gives the
    /// test interval I, and I − 1 seconds, but at least one, are what a script may take.
    pub(crate) fn turn(&mut self, now: Time, enabled: bool, fire_timeout: u32, log: &Log) -> Vec<Verdict> {
        self.end_scan(log);
        let interval = i64::from(test_interval(fire_timeout)) * 1000;
        let limit = (interval - 1000).max(1000);
        let mut verdicts = Vec::new();
        for (slot, entry) in self.slots.iter_mut().enumerate() {
            let Some(script) = entry else { continue };
            let looked = script.look(now, self.kill_after_seconds, log);
            let good = match looked {
                Looked::Nothing => continue,
                Looked::Good | Looked::Gone => true,
                Looked::Bad => false,
            };
            script.bad = !good;
            verdicts.extend(u8::try_from(slot).map(|slot| Verdict { slot, good }));
            if matches!(looked, Looked::Gone) {
                *entry = None;
            }
        }
        if !enabled {
            self.next_cycle = None;
            self.slots.iter_mut().flatten().for_each(|script| script.bad = false);
            return verdicts;
        }
        if self.next_cycle.is_none_or(|at| now >= at) {
            for script in self.slots.iter_mut().flatten() {
                let fresh = script.last_result == 0
                    && !script.bad
                    && script.started.is_some_and(|at| now.millis_since(at) < interval - 1000);
                if script.doing.is_nothing() && !fresh {
                    script.start(&self.dir, now, limit, &self.hirer);
                }
            }
            self.next_cycle = Some(now.plus_millis(interval));
        }
        if self.slots.iter().all(Option::is_none) {
            self.next_cycle = None;
        } else if self.slots.iter().flatten().any(|script| script.bad) {
            let soon = now.plus_millis(BAD_EVERY_MS);
            self.next_cycle = self.next_cycle.map(|at| at.min(soon));
        }
        verdicts
    }

    /// The dump's lines.
    pub(crate) fn dump(&self, now: Time, text: &mut String) {
        for (slot, script) in self.slots.iter().enumerate() {
            let Some(script) = script else { continue };
            let bytes = script.name.as_bytes();
            let name = Escaped(bytes.get(..SHOWN_NAME).unwrap_or(bytes));
            let pid = script.doing.pid();
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "script {slot} name {name} pid {pid} now {} {}",
                now.seconds(),
                script.numbers()
            );
        }
    }
}

enum Looked {
    Nothing,
    Good,
    Bad,
    Gone,
}

impl Script {
    fn shown(&self) -> Escaped<'_> {
        Escaped(self.name.as_bytes())
    }

    fn numbers(&self) -> String {
        let Self { last_result, run, fail, good, kill, long, .. } = self;
        let start = self.started.map_or(0, Time::seconds);
        format!(
            "start {start} last_result {last_result} run {run} fail {fail} good {good} kill {kill} long {long}"
        )
    }

    fn summary(&self, log: &Log) {
        let Self { last_result, run, fail, good, kill, long, .. } = self;
        let (name, start) = (self.shown(), self.started.map_or(0, Time::seconds));
        let counts = format!("run {run} fail {fail} good {good} kill {kill} long {long}");
        log.error(format_args!("script {name} last_result {last_result} start {start} {counts}"));
    }

    fn look(&mut self, now: Time, kill_after: u32, log: &Log) -> Looked {
        if let Doing::Starting(result) = &self.doing {
            match result.try_recv() {
                Ok(Spawned::Child(child)) => {
                    log.debug(format_args!("script {} pid {}", self.shown(), child.id()));
                    self.doing = Doing::Running(child);
                }
                Ok(Spawned::Gone(result)) => {
                    log.error(format_args!("script {} removed {result}", self.shown()));
                    return Looked::Gone;
                }
                Ok(Spawned::Failed(error)) => return self.cannot_run(&error, log),
                Err(TryRecvError::Empty) => {}
                Err(error @ TryRecvError::Disconnected) => return self.cannot_run(&error, log),
            }
        }
        let pid = self.doing.pid();
        match &mut self.doing {
            Doing::Nothing => return Looked::Nothing,
            Doing::Starting(_) => {}
            Doing::Running(child) => {
                let ended = match child.try_wait() {
                    Ok(ended) => ended,
                    // Reaped by somebody else: what it said is lost.
                    Err(_) => Some(ExitStatus::from_raw(NOT_EXECUTABLE << 8)),
                };
                if let Some(status) = ended {
                    self.doing = Doing::Nothing;
                    return if self.ended(pid, status, log) { Looked::Good } else { Looked::Bad };
                }
                let ran = self.started.map_or(0, |at| now.millis_since(at));
                if kill_after > 0 && ran >= i64::from(kill_after) * 1000 {
                    kill_group(pid);
                }
            }
        }
        if now < self.long_at {
            return Looked::Nothing;
        }
        self.long += u32::from(!std::mem::replace(&mut self.is_long, true));
        self.long_at = now.plus_millis(BAD_EVERY_MS);
        let (name, start, now) = (self.shown(), self.started.map_or(0, Time::seconds), now.seconds());
        log.error(format_args!("script {name} pid {pid} start {start} now {now} taking too long"));
        self.summary(log);
        Looked::Bad
    }

    /// Counts a failed execution as an exit with 1.
    fn cannot_run(&mut self, error: &dyn std::fmt::Display, log: &Log) -> Looked {
        log.error(format_args!("script {} cannot be run: {error}", self.shown()));
        self.doing = Doing::Nothing;
        self.fail += 1;
        self.last_result = NOT_EXECUTABLE;
        self.summary(log);
        Looked::Bad
    }

    /// Counts an end; whether it was a good one.
    fn ended(&mut self, pid: u32, status: ExitStatus, log: &Log) -> bool {
        if let Some(signal) = status.signal() {
            log.error(format_args!("script {} pid {pid} term signal {signal}", self.shown()));
            self.kill += 1;
            self.last_result = KILLED;
        } else {
            self.last_result = status.code().unwrap_or(NOT_EXECUTABLE);
            if self.last_result == 0 {
                self.good += 1;
                return true;
            }
            let (name, result) = (self.shown(), self.last_result);
            log.error(format_args!("script {name} pid {pid} exit status {result}"));
            self.fail += 1;
        }
        self.summary(log);
        false
    }

    /// Has the script executed.
    fn start(&mut self, dir: &Path, now: Time, limit: i64, hirer: &Hirer) {
        let path = dir.join(&self.name);
        self.started = Some(now);
        self.long_at = now.plus_millis(limit);
        self.is_long = false;
        self.run += 1;
        let result = hirer.hire(EXECUTING_THREAD, move || execute_alone(&path), Spawned::Failed);
        self.doing = Doing::Starting(result);
    }
}

/// Everything in the directory but hidden files. One that does not exist is empty.
fn find(dir: &Path) -> Found {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    let mut names: Vec<OsString> = names.filter(|name| !name.as_bytes().starts_with(b".")).collect();
    names.sort();
    Ok(names
        .into_iter()
        .map(|name| {
            let fitness = executable(&dir.join(&name));
            (name, fitness)
        })
        .collect())
}

/// Executes on a thread that has none of this process's files open, so that the child never has.
fn execute_alone(path: &Path) -> Spawned {
    match forget_descriptors_from(3) {
        // Not to be had with a kernel before 5.9, or in a sandbox: as the original then.
        Err(error) if !matches!(error.raw_os_error(), Some(nix::libc::ENOSYS | nix::libc::EPERM)) => {
            Spawned::Failed(error)
        }
        _ => execute(path),
    }
}

fn execute(path: &Path) -> Spawned {
    match executable(path) {
        Ok(()) => {}
        Err(Unfit::No(result)) => return Spawned::Gone(result),
        Err(Unfit::Unknown(error)) => return Spawned::Failed(error),
    }
    let spawned = match spawn(path.as_os_str(), &[]) {
        // No `#!` line: a shell's.
        Err(error) if error.raw_os_error() == Some(nix::libc::ENOEXEC) => {
            spawn(OsStr::new("/bin/sh"), &[path.as_os_str()])
        }
        other => other,
    };
    spawned.map_or_else(Spawned::Failed, Spawned::Child)
}

/// The child inherits this thread's signal mask, which is empty, as `main` has set it before there were threads; descriptors that it may have
/// are all close-on-exec.
fn spawn(program: &OsStr, arguments: &[&OsStr]) -> io::Result<Child> {
    without_io_flusher(|| command(program, arguments).spawn())
}

fn command(program: &OsStr, arguments: &[&OsStr]) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_remove(SOCKET_VARIABLE)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    command
}

/// The script and what it has started, unless that has left the group.
fn kill_group(pid: u32) {
    if let Ok(pid) = i32::try_from(pid) {
        // Not reaped yet, so the group is still the script's.
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// Why a file is not run.
enum Unfit {
    /// It is not there (-2), or is no script (-1).
    No(i32),
    /// It cannot be seen what it is: with a disk that is gone, say. That is no reason to forget a script.
    Unknown(io::Error),
}

/// Whether it is a regular file that its owner may execute.
fn executable(path: &Path) -> Result<(), Unfit> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() && metadata.permissions().mode() & 0o100 != 0 => Ok(()),
        Ok(_) => Err(Unfit::No(-1)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Unfit::No(-2)),
        Err(error) => Err(Unfit::Unknown(error)),
    }
}

#[cfg(test)]
mod tests;
