//! What the decisions have to say: texts of the original (specification 15) where it has one.

use super::source::SourceId;
use crate::protocol::Name;
use std::fmt;

/// Who should see a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// Only with `-D`.
    Debug,
    /// System log.
    Info,
    /// System log.
    Error,
}

/// Times in a test line, whole seconds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TestLine {
    /// Now.
    pub now: u64,
    /// Last successful ping.
    pub ping: u64,
    /// The client's last renewal.
    pub renewal: u64,
    /// The client's expiry.
    pub expire: u64,
    /// The client's process.
    pub pid: i32,
    /// The client's name.
    pub name: Name,
}

impl fmt::Display for TestLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { now, ping, renewal, expire, pid, name } = self;
        // The device is never closed uncleanly, so `close` is always 0.
        write!(f, "now {now} ping {ping} close 0 renewal {renewal} expire {expire} client {pid} {name}")
    }
}

/// Why the device is not armed for somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The fire timeout is out of range.
    FireTimeout,
    /// This source gets no more pings: the host is about to be reset.
    Expired(SourceId),
    /// This client has an expiry that is past, or too near to be kept, and nobody relies on a device: armed, it would reset the host at once.
    Past(SourceId),
    /// This client has ended and left an expiry behind, not further ahead than a day: the host is certain to be reset.
    Dead(SourceId),
    /// This script gets no more pings.
    Script(u8),
    /// The device has not fired when it should have. The daemon has to be started anew, which takes a reboot if it cannot be stopped.
    Broken {
        /// A client that has ended with an expiry, which keeps the daemon from stopping for good.
        dead: Option<SourceId>,
        /// The device cannot be disarmed, which does so too.
        no_way_out: bool,
    },
}

/// One thing to log.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Notice {
    /// A client gave its name.
    Registered {
        /// Its slot.
        source: SourceId,
        /// The daemon's descriptor.
        fd: i32,
        /// Its process.
        pid: i32,
        /// Its name.
        name: Name,
    },
    /// A client gave its times.
    Live {
        /// Its slot.
        source: SourceId,
        /// Renewal, as given.
        renewal: u64,
        /// Expiry, as given.
        expire: u64,
    },
    /// The answer to OPEN_WATCHDOG.
    Opened {
        /// Asked for.
        asked: u32,
        /// In use, 0 if refused.
        result: u32,
    },
    /// OPEN_WATCHDOG (or what counts as such) is refused without trying the device.
    OpenRefused {
        /// Asked for.
        asked: u32,
        /// Why.
        reason: Refusal,
    },
    /// A client that did not ask for the device relies on it, and it could not be armed.
    Unprotected {
        /// Its slot.
        source: SourceId,
        /// Its process.
        pid: i32,
        /// Its name.
        name: Name,
    },
    /// A connection without expiry has ended.
    ClientGone {
        /// Its slot.
        source: SourceId,
    },
    /// A connection with an expiry has ended: the host will be reset.
    ClientDead {
        /// Its slot.
        source: SourceId,
        /// The daemon's descriptor.
        fd: i32,
        /// Its process.
        pid: i32,
        /// Its last renewal.
        renewal: u64,
        /// Its expiry.
        expire: u64,
        /// Its name.
        name: Name,
    },
    /// A client is close to its expiry.
    TestWarning(TestLine),
    /// A client is past its expiry.
    TestFailed {
        /// Seconds until the device fires, if nothing changes.
        remaining: i64,
        /// The times.
        line: TestLine,
    },
    /// More test lines would have been written in this second.
    MoreTestLines {
        /// How many.
        count: usize,
    },
    /// The device gets no more pings, until the source is good again.
    PingsEnd {
        /// Seconds until the device fires.
        remaining: i64,
    },
    /// All sources are good again before the device fired.
    PingsResume,
    /// The device has not reset the host although it should have.
    DidNotFire {
        /// Seconds since the last ping.
        seconds: i64,
    },
    /// Nobody needs the device.
    Unused,
    /// The daemon was told to stop and waits for this.
    StopDeferred {
        /// Sources with a reference or an expiry.
        sources: usize,
        /// Scripts that are bad.
        scripts: usize,
        /// The device cannot be disarmed.
        no_way_out: bool,
    },
    /// It still has to wait, and goes on as if it had not been told.
    StopForgotten,
}

impl Notice {
    /// Who should see it.
    #[must_use]
    pub const fn level(&self) -> Level {
        match self {
            Self::Registered { .. }
            | Self::Live { .. }
            | Self::Opened { .. }
            | Self::ClientGone { .. }
            | Self::Unused => Level::Debug,
            Self::StopDeferred { .. } | Self::StopForgotten => Level::Info,
            _ => Level::Error,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registered { source, fd, pid, name } => {
                write!(f, "register ci {source} fd {fd} pid {pid} {name}")
            }
            Self::Live { source, renewal, expire } => {
                write!(f, "test_live ci {source} renewal {renewal} expire {expire}")
            }
            Self::Opened { asked, result } => write!(f, "open_watchdog fire_timeout {asked} result {result}"),
            Self::OpenRefused { asked, reason } => {
                write!(f, "open_watchdog {asked} refused: ")?;
                match reason {
                    Refusal::FireTimeout => f.write_str("the fire timeout must be 3 to 86400 seconds"),
                    Refusal::Expired(source) => {
                        write!(f, "client ci {source} has expired and this host is about to be reset")
                    }
                    Refusal::Dead(source) => {
                        write!(f, "client ci {source} has ended with an expiry and this host will be reset")
                    }
                    Refusal::Script(script) => {
                        write!(f, "script {script} fails and this host is about to be reset")
                    }
                    Refusal::Past(source) => {
                        write!(f, "client ci {source} has an expiry that has passed; end it")
                    }
                    Refusal::Broken { dead, no_way_out } => {
                        f.write_str("the watchdog device has not reset this host when it should have; ")?;
                        match (dead, no_way_out) {
                            (Some(source), _) => write!(
                                f,
                                "client ci {source} has ended with an expiry, so wdmd cannot be restarted: reboot this host"
                            ),
                            (None, true) => f.write_str(
                                "it cannot be stopped (nowayout), so wdmd cannot be restarted: reboot this host",
                            ),
                            (None, false) => f.write_str("restart wdmd when it works"),
                        }
                    }
                }
            }
            Self::Unprotected { source, pid, name } => write!(
                f,
                "client ci {source} pid {pid} {name} relies on the watchdog, which could not be armed: it is not protected"
            ),
            Self::ClientGone { source } => write!(f, "client_pid_dead ci {source}"),
            Self::ClientDead { source, fd, pid, renewal, expire, name } => {
                write!(
                    f,
                    "client dead ci {source} fd {fd} pid {pid} renewal {renewal} expire {expire} {name}"
                )
            }
            Self::TestWarning(line) => write!(f, "test warning {line}"),
            Self::TestFailed { remaining, line } => write!(f, "test failed rem {remaining} {line}"),
            Self::MoreTestLines { count } => write!(f, "test lines of {count} more clients left out"),
            Self::PingsEnd { remaining } => {
                write!(
                    f,
                    "no more keepalives: this host is reset in {remaining} s unless all tests pass before"
                )
            }
            Self::PingsResume => f.write_str("all tests pass again: keepalives go on"),
            Self::DidNotFire { seconds } => write!(
                f,
                "the watchdog device has not reset this host {seconds} s after its last keepalive: it does not work, this \
                 host is not protected, and nobody is told that it is any more"
            ),
            Self::Unused => f.write_str("close watchdog unused"),
            Self::StopDeferred { sources, scripts, no_way_out } => {
                f.write_str("told to stop, which has to wait for")?;
                if *sources > 0 {
                    write!(f, " {sources} clients with a reference or an expiry")?;
                }
                if *scripts > 0 {
                    write!(f, " {scripts} failing scripts")?;
                }
                if *no_way_out {
                    f.write_str(" the end of this host: its watchdog device cannot be disarmed (nowayout)")?;
                }
                Ok(())
            }
            Self::StopForgotten => f.write_str("told to stop, which had to wait for too long: it goes on"),
        }
    }
}
