//! Start and end of the daemon (command-line.md 9.1, 12.2, lease-algorithms.md 12.1, socket-protocol.md 1.2).

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sanlock_blockio::{EngineError, EngineKind, HugePages};
use sanlock_lease::timing::{IoTimeout, WatchdogFire};
use sanlock_sys::background::{Background, go_into_background};
use sanlock_sys::capability::set_user_but_keep_kill;
use sanlock_sys::credentials::{
    GroupId, UmaskGuard, UserId, find_group, find_user, set_group, set_supplementary_groups,
};
use sanlock_sys::heap::keep_heap;
use sanlock_sys::notify;
use sanlock_sys::pidfile::{PidFile, PidFileError};
use sanlock_sys::priority::{Limit, MemoryLock, lock_memory, max_round_robin_priority, set_round_robin};
use sanlock_sys::process::{boot_id, set_dumpable};
use sanlock_sys::reclaim::{set_io_flusher, without_io_flusher};

use crate::config::{Config, DEFAULT_RUN_DIR};
use crate::fault::end_with_a_panic;
use crate::front::{Account, Front};
use crate::global::Global;
use crate::helper::Helper;
use crate::log::{LOG_FILE, Log};
use crate::records::reboot::{Reboots, STATE_DIR, machine};
use crate::records::{AFTER_REBOOT, RUN_DIR_MODE, Records};

/// Name of the socket in the run directory.
pub const SOCKET_NAME: &str = "sanlock.sock";
/// Name of the lock and pid file in the run directory.
pub const PID_FILE_NAME: &str = "sanlock.pid";

/// User and group of the daemon unless configured, if both exist.
const DEFAULT_USER: &str = "sanlock";
/// Free heap that is kept ready: lists, messages and log lines of a recovery with a thousand clients need less. While it happens
/// the system's own disk may be dead, and a request for memory may wait for it.
const HEAP_RESERVE: usize = 4 << 20;
/// Exit status of a start, or a run, that failed.
const FAILURE: u8 = 1;
/// How long the end of the daemon waits for the last log lines.
const LOG_FLUSH: Duration = Duration::from_secs(2);

/// Why the daemon did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It could not be put into the background.
    #[error("cannot go into the background: {0}")]
    Background(io::Error),
    /// The configured user or group does not exist. The original goes on as root.
    #[error("{kind} '{name}' not found")]
    Unknown {
        /// `user` or `group`.
        kind: &'static str,
        /// As configured.
        name: String,
    },
    /// The user database cannot be read.
    #[error("cannot look up {name}: {error}")]
    Lookup {
        /// What was looked up.
        name: String,
        /// Why not.
        error: io::Error,
    },
    /// Supplementary groups cannot be set.
    #[error("cannot set the supplementary groups of {user}: {error}")]
    Groups {
        /// Whose.
        user: String,
        /// Why not.
        error: io::Error,
    },
    /// The helper cannot be forked.
    #[error("cannot start the helper process: {0}")]
    Helper(io::Error),
    /// The run directory cannot be made.
    #[error("cannot make the run directory {}: {error}", path.display())]
    RunDir {
        /// The directory.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The run directory cannot be given to the daemon's user.
    #[error("lockfile chown error {}: {error}", path.display())]
    Chown {
        /// The directory.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The pid file cannot be opened.
    #[error("lockfile open error {}: {error}", path.display())]
    PidOpen {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// Another daemon runs here, or the file system has no locks.
    #[error("lockfile setlk error {}: {error}", path.display())]
    PidLock {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The pid cannot be written.
    #[error("lockfile write error {}: {error}", path.display())]
    PidWrite {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// No host name can be generated.
    #[error("cannot generate a host name: {0}")]
    HostName(io::Error),
    /// The I/O engine that was named does not work here, or is none.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The socket cannot be made.
    #[error("cannot make the socket {}: {error}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// Threads or descriptors are lacking.
    #[error("cannot start: {0}")]
    Threads(io::Error),
    /// Waiting for events failed, while running.
    #[error("the main loop failed: {0}")]
    Running(io::Error),
}

impl StartError {
    /// What to do about it, as a phrase.
    #[must_use]
    pub fn next(&self) -> &'static str {
        match self {
            Self::Background(_) => "start it in the foreground (-D), where it forks less",
            Self::Unknown { .. } => {
                "make the account ('systemd-sysusers'), or name one that exists with -U and -G, or uname and gname in sanlock.conf"
            }
            Self::Lookup { .. } => {
                "check the user database ('getent passwd', nsswitch.conf): it has to answer without network"
            }
            Self::Groups { .. } | Self::Chown { .. } => {
                "start it as root; without root set SANLOCK_PRIVILEGED=0, name your own user and group with -U and -G, and a run directory of your own with SANLOCK_RUN_DIR"
            }
            Self::Helper(_) | Self::Threads(_) => {
                "check the limits of processes, memory and descriptors ('ulimit -a', TasksMax of the unit)"
            }
            Self::RunDir { .. } => {
                "make the directory that it is to be in, or name another one with SANLOCK_RUN_DIR; only root may write /run"
            }
            Self::PidOpen { .. } | Self::PidWrite { .. } => {
                "check what lies there, who may write it, and that the file system has room"
            }
            Self::PidLock { .. } => {
                "another daemon runs with this run directory ('sanlock client status' asks it): end it, or name another directory with SANLOCK_RUN_DIR"
            }
            Self::HostName(_) => "give a name with -e, or our_host_name in sanlock.conf",
            Self::Engine(_) => {
                "unset SANLOCK_IO_ENGINE, or allow what it names (a container's seccomp profile, kernel.io_uring_disabled, fs.aio-max-nr)"
            }
            Self::Socket { .. } => {
                "check what lies there and who may write the directory; a path of more than 107 bytes is too long for a socket"
            }
            Self::Running(_) => {
                "add the lockspaces again once a new daemon runs; its log tells what came before"
            }
        }
    }
}

/// Runs the daemon to its end and returns the exit status: in the foreground if so configured, or if a service manager waits for this
/// process to be ready, else in the background. Then the calling process gets the status of the start, and the one in the background that of the end.
///
/// Call it before any thread exists.
#[must_use]
pub fn run(config: Config) -> u8 {
    let next = |error: &StartError| eprintln!("sanlock: daemon: next: {}", error.next());
    let report = |error: &StartError| {
        eprintln!("sanlock: daemon: {error}");
        next(error);
    };
    let config = match absolute_run_dir(config) {
        Ok(config) => config,
        Err(error) => {
            report(&error);
            return FAILURE;
        }
    };
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
                eprintln!("sanlock: daemon: {}", result.error);
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
    #[expect(dead_code, reason = "held: the lock ends with it")]
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
        self.log.flush(LOG_FLUSH);
        result
    }
}

/// The name of the socket, and which file that is: where the run directory was removed, another daemon may have made one of that name since.
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    /// Of a socket just made.
    fn made(path: &Path) -> io::Result<Self> {
        let found = fs::symlink_metadata(path)?;
        Ok(Self { path: path.to_owned(), device: found.dev(), inode: found.ino() })
    }

    /// Removes it, if it is still the same. The number of its inode belongs to no other file as long as somebody listens on it.
    fn remove(&self) {
        let same = |found: fs::Metadata| (found.dev(), found.ino()) == (self.device, self.inode);
        if fs::symlink_metadata(&self.path).is_ok_and(same) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whom the daemon runs as.
#[derive(Clone, Debug)]
struct Identity {
    user: UserId,
    group: GroupId,
    /// The user's name, for its groups.
    user_name: Option<String>,
}

impl Identity {
    fn of(config: &Config) -> Result<Self, StartError> {
        let user =
            |name: &str| find_user(name).map_err(|error| StartError::Lookup { name: name.to_owned(), error });
        let group = |name: &str| {
            find_group(name).map_err(|error| StartError::Lookup { name: name.to_owned(), error })
        };
        let default = match (user(DEFAULT_USER)?, group(DEFAULT_USER)?) {
            (Some(user), Some(group)) => Some((user, group)),
            _ => None,
        };
        let chosen_user = match &config.uname {
            Some(name) => {
                Some(user(name)?.ok_or_else(|| StartError::Unknown { kind: "user", name: name.clone() })?)
            }
            None => default.map(|(user, _)| user),
        };
        let chosen_group = match &config.gname {
            Some(name) => {
                Some(group(name)?.ok_or_else(|| StartError::Unknown { kind: "group", name: name.clone() })?)
            }
            None => default.map(|(_, group)| group),
        };
        let default_name = default.map(|_| DEFAULT_USER.to_owned());
        Ok(Self {
            user: chosen_user.unwrap_or(UserId(0)),
            group: chosen_group.unwrap_or(GroupId(0)),
            user_name: config.uname.clone().or(default_name),
        })
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
    raise_descriptors(log);
    if let (true, Some(huge)) = (settle_in(&config, log), &huge) {
        huge.lock();
    }
    let engine = EngineKind::for_daemon()?;
    log.debug(format_args!("I/O engine {}", engine.name()));
    let socket = config.run_dir.join(SOCKET_NAME);
    let records = Records::new(&config.run_dir, reboots);
    let (listener, socket) = listen(&socket, &config, identity)?;
    let global = Global::new(config, host_name, engine, records, log.clone(), huge);
    let account = Account { user: identity.user, group: identity.group };
    let front = Front::new(global, account, listener, helper).map_err(StartError::Threads)?;
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

/// Makes the run directory if it is missing, gives it to the daemon's user, and locks the pid file.
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
    let group = if config.privileged { 0 } else { identity.group.0 };
    chown(dir, Some(identity.user.0), Some(group))
        .map_err(|error| StartError::Chown { path: dir.clone(), error })?;
    let path = dir.join(PID_FILE_NAME);
    // Of the open file: a client may name the pid file as a disk. The helper was forked before, and nothing is forked later.
    PidFile::lock_open_file(&path).map_err(|error| match error {
        PidFileError::Open(error) => StartError::PidOpen { path, error },
        PidFileError::Lock(error) => StartError::PidLock { path, error },
        PidFileError::Write(error) => StartError::PidWrite { path, error },
    })
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

/// 1022 connections, a descriptor for each of their processes, and those of disks and engines.
fn raise_descriptors(log: &Log) {
    const DESCRIPTORS: u64 = 8192;
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        let wanted = DESCRIPTORS.min(hard).max(soft);
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)
    });
    if let Err(error) = raised {
        log.warn(format_args!("the limit of open files cannot be raised: {error}"));
    }
}

/// The stock of huge pages (`use_hugepages`). Its thread is the only one that moves pages to make room, which a marked one may not and nobody waits
/// for; so it is started while the mark can be taken away.
fn huge_pages(config: &Config, log: &Log) -> Option<Arc<HugePages>> {
    if !config.hugepages {
        return None;
    }
    let notes = log.clone();
    let stock = without_io_flusher(|| HugePages::start(move |text| notes.debug(format_args!("{text}"))));
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

fn listen(
    path: &Path,
    config: &Config,
    identity: &Identity,
) -> Result<(UnixListener, SocketFile), StartError> {
    let failed = |error| StartError::Socket { path: path.to_owned(), error };
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = {
        // The mode is right from the first moment on.
        let _mask = UmaskGuard::set(0o117);
        UnixListener::bind(path).map_err(failed)?
    };
    let made = SocketFile::made(path).map_err(failed)?;
    // A daemon that dropped root owns the socket already; one that never had it may not be allowed to give it away.
    let given = chown(path, Some(identity.user.0), Some(identity.group.0));
    if config.privileged {
        given.map_err(failed)?
    }
    Ok((listener, made))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_and_group_of_the_package_or_root() {
        let ids = |uname: Option<&str>, gname: Option<&str>| {
            let config = Config {
                uname: uname.map(str::to_owned),
                gname: gname.map(str::to_owned),
                ..Config::default()
            };
            Identity::of(&config).map(|identity| (identity.user.0, identity.group.0))
        };
        let package = find_user("sanlock").unwrap().zip(find_group("sanlock").unwrap());
        let default = package.map_or((0, 0), |(user, group)| (user.0, group.0));
        assert_eq!(ids(None, None).unwrap(), default);
        assert_eq!(ids(Some("root"), Some("root")).unwrap(), (0, 0));
        assert_eq!(ids(Some("4711"), Some("4712")).unwrap(), (4711, 4712));
        for (user, group) in [(Some("no-such-user"), None), (None, Some("no-such-group"))] {
            assert!(matches!(ids(user, group), Err(StartError::Unknown { .. })), "{user:?} {group:?}");
        }
    }
}
