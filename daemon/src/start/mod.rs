//! Start and end of the daemon (command-line.md 9.1, 12.2, lease-algorithms.md 12.1, socket-protocol.md 1.2).

mod error;
mod identity;
mod socket;

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use sanlock_blockio::{EngineKind, HugePages};
use sanlock_lease::timing::{IoTimeout, WatchdogFire};
use sanlock_sys::background::{Background, go_into_background};
use sanlock_sys::capability::set_user_but_keep_kill;
use sanlock_sys::child::ignore;
use sanlock_sys::credentials::{UmaskGuard, set_group, set_supplementary_groups};
use sanlock_sys::heap::keep_heap;
use sanlock_sys::kernel::faults_hold_no_lock;
use sanlock_sys::notify;
use sanlock_sys::pidfile::{PidFile, PidFileError};
use sanlock_sys::priority::{Limit, MemoryLock, lock_memory, max_round_robin_priority, set_round_robin};
use sanlock_sys::process::{boot_id, close_on_exec_from, set_dumpable};
use sanlock_sys::reclaim::{set_io_flusher, without_io_flusher};

use crate::config::{Config, DEFAULT_RUN_DIR};
use crate::fault::end_with_a_panic;
use crate::front::{Account, CONNECTIONS_MAX, Front};
use crate::global::{Global, start_hirer};
use crate::helper::Helper;
use crate::log::{LOG_FILE, Log};
use crate::records::reboot::{Reboots, STATE_DIR, machine};
use crate::records::{AFTER_REBOOT, RUN_DIR_MODE, Records};

pub use error::StartError;
use identity::Identity;
use socket::{SocketFile, listen};

/// Name of the socket in the run directory.
pub const SOCKET_NAME: &str = "sanlock.sock";
/// Name of the lock and pid file in the run directory.
pub const PID_FILE_NAME: &str = "sanlock.pid";

/// Free heap that is kept ready: lists, messages and log lines of a recovery with a thousand clients need less. While it happens
/// the system's own disk may be dead, and a request for memory may wait for it.
const HEAP_RESERVE: usize = 4 << 20;
/// Exit status of a start, or a run, that failed.
const FAILURE: u8 = 1;
/// How long the end of the daemon waits for the last log lines.
const LOG_FLUSH: Duration = Duration::from_secs(2);

/// Runs the daemon to its end and returns the exit status: in the foreground if so configured, or if a service manager waits for this
/// process to be ready, else in the background. Then the calling process gets the status of the start, and the one in the background that of the end.
///
/// Call it before any thread exists.
#[must_use]
pub fn run(config: Config) -> u8 {
    let next = |error: &StartError| say(format_args!("next: {}", error.next()));
    let report = |error: &StartError| {
        say(format_args!("{error}"));
        next(error);
    };
    // Others count on it, and it says when theirs may be taken: no default stands in for it.
    if let Some(why) = config.fire_doubt {
        report(&StartError::FireTimeout(why));
        return FAILURE;
    }
    let config = match absolute_run_dir(config) {
        Ok(config) => config,
        Err(error) => {
            report(&error);
            return FAILURE;
        }
    };
    // Only for programs that are started; a kernel too old for it lets them inherit what the caller left open, as the original does.
    let _ = close_on_exec_from(3);
    if config.foreground || notify::manager_waits() {
        return match prepare(config) {
            Err(Failed { error, shown }) => {
                if shown {
                    next(&error)
                } else {
                    report(&error)
                }
                FAILURE
            }
            Ok(prepared) => {
                if let Err(error) = notify::ready() {
                    prepared
                        .log
                        .warn(format_args!("the service manager cannot be told of the start: {error}"));
                }
                finish(prepared.serve())
            }
        };
    }
    match go_into_background() {
        Err(error) => {
            report(&StartError::Background(error));
            FAILURE
        }
        Ok(Background::Parent(result)) => {
            if !result.error.is_empty() {
                say(format_args!("{}", result.error));
            }
            result.status
        }
        Ok(Background::Child(starting)) => match prepare(config) {
            Err(Failed { error, .. }) => {
                starting.failed(FAILURE, &format!("{error}\nsanlock: daemon: next: {}", error.next()));
                FAILURE
            }
            Ok(prepared) => {
                starting.started();
                finish(prepared.serve())
            }
        },
    }
}

/// Tells whoever starts the daemon. That nobody reads it, or its disk is full, changes nothing.
fn say(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "sanlock: daemon: {text}");
}

fn finish(result: Result<(), StartError>) -> u8 {
    if result.is_ok() { 0 } else { FAILURE }
}

/// The daemon's directory becomes `/`, so a relative run directory is fixed before.
fn absolute_run_dir(mut config: Config) -> Result<Config, StartError> {
    config.run_dir = std::path::absolute(&config.run_dir)
        .map_err(|error| StartError::RunDir { path: config.run_dir.clone(), error })?;
    Ok(config)
}

/// A daemon that is ready to serve.
struct Prepared {
    front: Front,
    log: Log,
    socket: SocketFile,
    /// The lock ends with it.
    pid_file: PidFile,
}

impl Prepared {
    fn serve(mut self) -> Result<(), StartError> {
        let result = self.front.run().map_err(StartError::Running);
        match &result {
            Ok(()) => self.log.debug(format_args!("daemon ends")),
            Err(error) => self.log.error(format_args!("{error}")),
        }
        // A client then sees that there is no daemon. The pid file stays: its lock is what counts.
        self.socket.remove();
        let writes_left = self.front.leaves_writes();
        if writes_left {
            self.log.warn(format_args!(
                "a write has not ended, or ended in doubt, and may still land: no other daemon starts here before this process has ended"
            ));
        }
        for (path, secs) in self.front.writes_in_doubt() {
            self.log.warn(format_args!(
                "a format of {path}, or another command's write there, failed and may be carried out all the same: format nothing there for {secs} s, \
                 for the next daemon knows nothing of it"
            ));
        }
        self.log.flush(LOG_FLUSH);
        if writes_left {
            // Of such a write the next daemon would know nothing. The kernel lets go of the lock with the process, which ends with its I/O.
            std::mem::forget(self.pid_file);
        } else {
            // Only now another daemon can start here.
            drop(self.pid_file);
        }
        self.front.has_ended();
        result
    }
}

/// A start that failed.
struct Failed {
    error: StartError,
    /// Whether the log has shown it on stderr already.
    shown: bool,
}

fn prepare(config: Config) -> Result<Prepared, Failed> {
    let foreground = config.foreground;
    let (identity, helper, log) =
        prepare_unlogged(&config).map_err(|error| Failed { error, shown: false })?;
    end_with_a_panic(log.clone());
    prepare_logged(config, &identity, helper, &log).map_err(|error| {
        log.error(format_args!("{error}"));
        log.flush(LOG_FLUSH);
        Failed { error, shown: foreground }
    })
}

/// Everything before threads exist: the log's writer is the first.
fn prepare_unlogged(config: &Config) -> Result<(Identity, Helper, Log), StartError> {
    // Where the size of files is limited, a write beyond that, of the log or of what a client names, fails (EFBIG); it does not end this process.
    let _ = ignore(Signal::SIGXFSZ);
    let identity = Identity::of(config)?;
    if config.privileged {
        if let Some(user) = &identity.user_name {
            set_supplementary_groups(user, identity.group)
                .map_err(|error| StartError::Groups { user: user.clone(), error })?;
        }
    }
    // In a container a limit may be out of reach although memory can be locked: the original does not start there, we go on.
    let refused: Vec<(Limit, io::Error)> = if config.privileged {
        Limit::ALL.into_iter().filter_map(|limit| limit.raise().err().map(|error| (limit, error))).collect()
    } else {
        Vec::new()
    };
    // Inherited by the helper and by all threads.
    let flusher = set_io_flusher(true);
    let helper = Helper::start(config.mlock_level > 0).map_err(StartError::Helper)?;
    let heap_kept = keep_heap(HEAP_RESERVE);
    let log = Log::open(config, Some(Path::new(LOG_FILE))).map_err(StartError::Threads)?;
    if !heap_kept {
        log.debug(format_args!("this C library keeps no heap in reserve"));
    }
    if let Err(error) = flusher {
        log.debug(format_args!(
            "memory may have to be freed by writing to disks: PR_SET_IO_FLUSHER: {error}"
        ));
    }
    for (limit, error) in refused {
        log.error(format_args!("cannot raise the limit of {}: {error}; going on without", limit.name()));
    }
    Ok((identity, helper, log))
}

fn prepare_logged(
    config: Config,
    identity: &Identity,
    helper: Helper,
    log: &Log,
) -> Result<Prepared, StartError> {
    if config.run_dir != Path::new(DEFAULT_RUN_DIR) {
        log.debug(format_args!("Using non-standard run directory '{}'", config.run_dir.display()));
    }
    if !config.privileged {
        log.debug(format_args!("Running in unprivileged mode"));
    }
    for warning in &config.warnings {
        log.warn(format_args!("{warning}"));
    }
    let pid_file = lock_run_dir(&config, identity)?;
    let reboots = reboots(&config, identity, log);
    let (node, host_name) = config.host_name().map_err(StartError::HostName)?;
    let huge = huge_pages(&config, log);
    if config.privileged {
        drop_privileges(identity, log);
    }
    let timeouts = if (config.io_timeout, config.fire) == (IoTimeout::DEFAULT, WatchdogFire::DEFAULT) {
        String::new()
    } else {
        format!(" io_timeout {} watchdog_fire_timeout {}", config.io_timeout.secs(), config.fire.secs())
    };
    let version = env!("CARGO_PKG_VERSION");
    log.warn(format_args!("sanlock daemon started {version} host {host_name} ({node}){timeouts}"));
    tell_about_watchdog(&config, log);
    let connections = raise_descriptors(log);
    if let (true, Some(huge)) = (settle_in(&config, log), &huge) {
        huge.lock();
    }
    let engine = EngineKind::for_daemon()?;
    log.debug(format_args!("I/O engine {}", engine.name()));
    let socket = config.run_dir.join(SOCKET_NAME);
    let records = Records::new(&config.run_dir, reboots);
    let (listener, socket) = listen(&socket, &config, identity)?;
    let hirer = start_hirer(&config, log).map_err(StartError::Threads)?;
    let global = Global::new(config, host_name, engine, records, log.clone(), huge, hirer);
    let account = Account { user: identity.user, group: identity.group };
    let front = Front::new(global, account, listener, helper, connections).map_err(StartError::Threads)?;
    Ok(Prepared { front, log: log.clone(), socket, pid_file })
}

/// The records that outlive a reboot, made ready while we are root. Without them a join after a reset takes long.
fn reboots(config: &Config, identity: &Identity, log: &Log) -> Option<Reboots> {
    let dir = Path::new(STATE_DIR);
    if !config.privileged || config.run_dir != Path::new(DEFAULT_RUN_DIR) {
        return None;
    }
    let made = match fs::DirBuilder::new().recursive(true).mode(0o755).create(dir) {
        Err(error) => Err(error),
        Ok(()) => chown(dir, Some(identity.user.0), Some(identity.group.0)),
    };
    if let Err(error) = made {
        log.error(format_args!("{STATE_DIR} cannot be used: {error}; {AFTER_REBOOT}"));
        return None;
    }
    let (Some(machine), Ok(boot)) = (machine(), boot_id()) else {
        log.warn(format_args!("neither hardware nor /etc/machine-id names this machine; {AFTER_REBOOT}"));
        return None;
    };
    Some(Reboots::new(dir, machine, boot))
}

/// Makes the run directory if it is missing, locks the pid file, and gives the directory to the daemon's user.
fn lock_run_dir(config: &Config, identity: &Identity) -> Result<PidFile, StartError> {
    let dir = &config.run_dir;
    {
        let _mask = UmaskGuard::set(0o002);
        match fs::DirBuilder::new().mode(RUN_DIR_MODE).create(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(StartError::RunDir { path: dir.clone(), error });
            }
            _ => {}
        }
    }
    let path = dir.join(PID_FILE_NAME);
    // Of the open file: a client may name the pid file as a disk. The helper was forked before, and nothing is forked later.
    let pid_file = PidFile::lock_open_file(&path).map_err(|error| match error {
        PidFileError::Open(error) => StartError::PidOpen { path, error },
        PidFileError::Lock(error) => StartError::PidLock { path, error },
        PidFileError::Write(error) => StartError::PidWrite { path, error },
    })?;
    // Not before: another daemon may be at work here, as another user, and could keep no record in a directory that is not its own any more.
    let group = if config.privileged { 0 } else { identity.group.0 };
    chown(dir, Some(identity.user.0), Some(group))
        .map_err(|error| StartError::Chown { path: dir.clone(), error })?;
    Ok(pid_file)
}

fn drop_privileges(identity: &Identity, log: &Log) {
    if let Err(error) = set_group(identity.group) {
        log.error(format_args!("cannot set group id to {}: {error}", identity.group.0));
    }
    match set_user_but_keep_kill(identity.user) {
        Ok(true) => {}
        Ok(false) => log
            .warn(format_args!("processes are signalled through the helper: no right to kill was to be had")),
        Err(error) => log.error(format_args!("cannot set user id to {}: {error}", identity.user.0)),
    }
    if let Err(error) = set_dumpable(true) {
        log.error(format_args!("cannot keep core dumps possible: {error}"));
    }
}

fn tell_about_watchdog(config: &Config, log: &Log) {
    if config.use_watchdog == 0 {
        log.warn(format_args!(
            "no watchdog protects this host (use_watchdog 0): a process that cannot be killed in time may still write when \
             another host takes over"
        ));
    }
}

/// Descriptors for connections, for each of their processes, and for disks and engines.
const DESCRIPTORS: u64 = 8192;

/// Raises the limit of open files. How many connections it leaves room for.
fn raise_descriptors(log: &Log) -> u32 {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        let wanted = DESCRIPTORS.min(hard).max(soft);
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).map(|()| wanted)
    });
    let limit = raised.unwrap_or_else(|error| {
        log.warn(format_args!("the limit of open files cannot be raised: {error}"));
        getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft)
    });
    let connections = connections_possible(limit);
    if connections < CONNECTIONS_MAX {
        log.warn(format_args!(
            "{connections} connections of clients at a time, not {CONNECTIONS_MAX}, with {limit} open files at most: \
             leases need some too (LimitNOFILE={DESCRIPTORS} in the unit, or ulimit -n {DESCRIPTORS})"
        ));
    }
    connections
}

/// Connections that so many descriptors leave room for, with one more for the process of each. Clients get half of the descriptors, or, of many, all but 2048.
fn connections_possible(descriptors: u64) -> u32 {
    let for_clients = descriptors.saturating_sub(2048).max(descriptors / 2);
    u32::try_from(for_clients / 2).unwrap_or(u32::MAX).min(CONNECTIONS_MAX)
}

/// The stock of huge pages (`use_hugepages`). Its thread is the only one that moves pages to make room, which a marked one may not and nobody waits
/// for; so it is started while the mark can be taken away. Where the kernel holds the lock on all of the process's memory meanwhile, others
/// would wait for it, and it for a disk that does not answer: there it is marked too, and makes what can be had at once.
fn huge_pages(config: &Config, log: &Log) -> Option<Arc<HugePages>> {
    if !config.hugepages {
        return None;
    }
    let notes = log.clone();
    let start = || HugePages::start(move |text| notes.debug(format_args!("{text}")));
    let stock = if faults_hold_no_lock() { without_io_flusher(start) } else { start() };
    stock.inspect_err(|error| log.debug(format_args!("{error}; ordinary memory is used"))).ok()
}

/// Memory locking and scheduling; failures are no reason not to run. Whether memory that is mapped from now on is locked.
fn settle_in(config: &Config, log: &Log) -> bool {
    let which = match config.mlock_level {
        1 => Some(MemoryLock::Current),
        2 => Some(MemoryLock::CurrentAndFuture),
        _ => None,
    };
    let locked = which.map_or(Ok(false), lock_memory).unwrap_or_else(|error| {
        log.error(format_args!("mlockall {} failed: {error}", config.mlock_level));
        false
    });
    if config.high_priority != 0 {
        let set =
            max_round_robin_priority().and_then(|priority| set_round_robin(priority).map(|()| priority));
        if let Err(error) = set {
            log.error(format_args!("set scheduler RR|RESET_ON_FORK priority failed: {error}"));
        }
    }
    locked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_half_of_few_descriptors_and_all_but_some_of_many() {
        for (descriptors, connections) in
            [(0, 0), (300, 75), (1024, 256), (4096, 1022), (8192, 1022), (u64::MAX, 1022)]
        {
            assert_eq!(connections_possible(descriptors), connections, "{descriptors}");
        }
    }
}
