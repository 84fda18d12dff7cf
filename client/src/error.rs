//! What can go wrong with a call, and the number that the C library returns for it.

use sanlock_wire::request::BadArgument;
use sanlock_wire::strings::StringError;
use sanlock_wire::{Command, PathError, ReplyError, code};

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// A system call on the socket failed. `ENOENT` and `ECONNREFUSED` of `connect` mean that no daemon runs.
    /// `ETIMEDOUT`: the daemon did not answer within the limit of the call.
    #[error("{}", socket_failure(op, *errno))]
    Io {
        /// `socket`, `connect`, `send` or `recv`.
        op: &'static str,
        /// Positive errno.
        errno: i32,
    },
    /// The daemon closed the connection before its answer was complete.
    #[error("the daemon closed the connection without a complete answer")]
    Closed,
    /// The answer is not one that a daemon sends.
    #[error("unusable answer of the daemon: {0}")]
    Reply(#[from] ReplyError),
    /// An earlier call on this registered connection failed half-way; what the daemon would answer next cannot be told
    /// apart. The leases are not affected as long as the connection stays open.
    #[error("an earlier call failed half-way on this connection")]
    Desynchronised,
    /// The daemon answered with a failure.
    #[error("{}: {}{}", command.name(), describe(*code), cause(*code, *command))]
    Daemon {
        /// The result: negative (or, where 0 was the only success, positive).
        code: i32,
        /// The command that failed.
        command: Command,
    },
    /// Refused before connecting: counts or sizes out of range.
    #[error(transparent)]
    Argument(#[from] BadArgument),
    /// Refused before connecting: the command needs a path.
    #[error("no path given")]
    NoPath,
    /// Refused before connecting: the command needs the name of a lockspace.
    #[error("no lockspace given")]
    NoLockspace,
    /// Refused before connecting: the command needs a resource with 1 to 4 disks.
    #[error("resource without disks")]
    NoDisks,
    /// Refused before connecting: a path without terminating NUL.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The daemon's INQUIRE string does not parse.
    #[error("unusable answer of the daemon: {0}")]
    State(#[from] StringError),
}

/// The operation that a path is needed for.
pub(crate) const CONNECT: &str = "connect";
/// [`SOCKET_PATH_MAX`](crate::SOCKET_PATH_MAX) in words.
const PATH_TOO_LONG: &str = "the path is too long, that of a socket has at most 106 bytes";

fn socket_failure(op: &str, errno: i32) -> String {
    match errno {
        nix::libc::ETIMEDOUT => "the daemon does not answer".to_owned(),
        nix::libc::ENAMETOOLONG if op == CONNECT => format!("{op} on the daemon socket: {PATH_TOO_LONG}"),
        errno => format!("{op} on the daemon socket: {}", std::io::Error::from_raw_os_error(errno)),
    }
}

impl ClientError {
    /// The number that the C library returns in this case: negated errno, -1 for an incomplete answer, -22 for what it
    /// refuses before connecting, otherwise the daemon's result (11.3).
    #[must_use]
    pub const fn result_code(&self) -> i32 {
        match self {
            Self::Io { errno, .. } => -*errno,
            Self::Closed | Self::Reply(_) | Self::Desynchronised => -1,
            Self::Daemon { code, .. } => *code,
            Self::Argument(_) | Self::NoPath | Self::NoLockspace | Self::NoDisks | Self::Path(_) => {
                code::EINVAL
            }
            Self::State(error) => error.code(),
        }
    }

    /// The symbol of [`ClientError::result_code`], for example `SANLK_ACQUIRE_IDLIVE`.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        code::name(self.result_code())
    }

    /// Plain words for the usual cause, if there are any.
    #[must_use]
    pub fn explain(&self) -> Option<&'static str> {
        match self {
            Self::Daemon { code, command } => code::explain(*code, Some(*command)),
            Self::Io { op: CONNECT, errno: nix::libc::ENAMETOOLONG } => Some(PATH_TOO_LONG),
            Self::Io { errno, .. } => code::explain(-*errno, None),
            _ => None,
        }
    }
}

fn describe(number: i32) -> String {
    code::name(number).map_or_else(|| number.to_string(), |name| format!("{name} ({number})"))
}

fn cause(number: i32, command: Command) -> String {
    code::explain(number, Some(command)).map_or_else(String::new, |text| format!(", {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_name_number_and_cause() {
        let error = ClientError::Daemon { code: -243, command: Command::Acquire };
        assert_eq!(
            error.to_string(),
            "ACQUIRE: SANLK_ACQUIRE_IDLIVE (-243), the lease is held by another host, which is alive"
        );
        assert_eq!(error.result_code(), -243);
        assert_eq!(error.name(), Some("SANLK_ACQUIRE_IDLIVE"));
    }

    #[test]
    fn numbers_of_the_c_library() {
        assert_eq!(ClientError::Io { op: "connect", errno: 111 }.result_code(), -111);
        assert_eq!(ClientError::Closed.result_code(), -1);
        assert_eq!(ClientError::NoPath.result_code(), -22);
    }
}
