//! Why a daemon did not start, and what to do about it.

use std::io;
use std::path::PathBuf;

use sanlock_blockio::EngineError;

/// Why the daemon did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It could not be put into the background.
    #[error("cannot go into the background: {0}")]
    Background(io::Error),
    /// The configuration says something about the fire timeout that is not understood, or cannot be read.
    #[error("the watchdog fire timeout of this host is not known: {0}")]
    FireTimeout(String),
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
            Self::FireTimeout(_) => {
                "make sanlock.conf a file that the daemon can read, with 'watchdog_fire_timeout = SECONDS' as on all other hosts, or without that line if they have none"
            }
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
                "check what lies there and who may write the directory; a path of more than 106 bytes is too long for its clients"
            }
            Self::Running(_) => {
                "add the lockspaces again once a new daemon runs; its log tells what came before"
            }
        }
    }
}
