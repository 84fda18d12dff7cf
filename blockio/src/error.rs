//! What can go wrong, with everything an administrator needs to find it: path, operation, offset, length, cause.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use sanlock_lease::machine::IoFailure;
use thiserror::Error;

/// Return number of an operation that did not complete within its limit (`SANLK_AIO_TIMEOUT`).
pub const TIMED_OUT_CODE: i32 = -202;

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// From the disk into the buffer.
    Read,
    /// From the buffer to the disk.
    Write,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Op::Read => "read",
            Op::Write => "write",
        })
    }
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoErrorKind {
    /// Not complete within the caller's limit. The operation is still in flight; a write may still reach the disk.
    TimedOut,
    /// Not begun within the caller's limit, because as many operations hang there, or in all, as are allowed
    /// ([`crate::CallPlace`]). It will not happen.
    NeverStarted,
    /// The kernel, or the engine in its place, reported this errno (positive).
    Os(i32),
    /// Fewer bytes than asked for, usually because the range crosses the end of the file or device.
    Short {
        /// Bytes transferred.
        got: usize,
    },
}

impl IoErrorKind {
    /// Whether the storage has not answered in time, this operation or earlier ones.
    #[must_use]
    pub const fn is_timeout(self) -> bool {
        matches!(self, IoErrorKind::TimedOut | IoErrorKind::NeverStarted)
    }

    /// The verdict as machines know it.
    #[must_use]
    pub const fn failure(self) -> IoFailure {
        match self {
            // One that was never started has settled at once.
            IoErrorKind::TimedOut | IoErrorKind::NeverStarted => IoFailure::TimedOut,
            IoErrorKind::Os(errno) => IoFailure::Os(errno),
            IoErrorKind::Short { .. } => IoFailure::Short,
        }
    }

    /// The return number: -202 timed out, or never started for that reason, -90 (`-EMSGSIZE`) short, otherwise the negative errno
    /// (lease-algorithms.md 1.5).
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            IoErrorKind::TimedOut | IoErrorKind::NeverStarted => TIMED_OUT_CODE,
            IoErrorKind::Os(errno) => -errno,
            IoErrorKind::Short { .. } => -libc::EMSGSIZE,
        }
    }
}

impl fmt::Display for IoErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IoErrorKind::TimedOut => f.write_str("no completion in time, still outstanding"),
            IoErrorKind::NeverStarted => f.write_str(
                "not begun in time: too many earlier operations hang, or there was no thread for it",
            ),
            IoErrorKind::Os(errno) => write!(f, "{}", Errno::from_raw(*errno)),
            IoErrorKind::Short { got } => write!(f, "only {got} bytes transferred"),
        }
    }
}

/// A failed or overdue operation.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{op} of {len} bytes at offset {offset} of {}: {kind}", path.display())]
pub struct IoError {
    /// The file or device.
    pub path: Arc<Path>,
    /// Direction.
    pub op: Op,
    /// Byte offset of the transfer.
    pub offset: u64,
    /// Bytes asked for.
    pub len: usize,
    /// Cause.
    pub kind: IoErrorKind,
}

impl IoError {
    /// The return number, see [`IoErrorKind::code`].
    #[must_use]
    pub const fn code(&self) -> i32 {
        self.kind.code()
    }
}

/// A file or device that cannot serve as a lease disk.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OpenError {
    /// A system call failed; usual causes are a missing path, missing permission, a read-only medium.
    #[error("{call} {}: {}", path.display(), Errno::from_raw(*errno))]
    Os {
        /// The file or device.
        path: PathBuf,
        /// What was tried: `stat`, `open`, `BLKSSZGET` …
        call: &'static str,
        /// Positive errno.
        errno: i32,
    },
    /// The path names a directory.
    #[error("{} is a directory, expected a file or a block device", path.display())]
    Directory {
        /// The path.
        path: PathBuf,
    },
    /// The path names a FIFO, socket or character device.
    #[error("{} is neither a regular file nor a block device", path.display())]
    NotADisk {
        /// The path.
        path: PathBuf,
    },
    /// The file system refuses `O_DIRECT`.
    #[error("{} is on a file system without direct I/O (O_DIRECT)", path.display())]
    NoDirectIo {
        /// The path.
        path: PathBuf,
    },
    /// The open did not finish within the caller's limit; it goes on in the background, for whoever else waits for it.
    #[error("open {}: no answer in time", path.display())]
    TimedOut {
        /// The path.
        path: PathBuf,
    },
    /// As many opens of other paths as allowed for this kind of asker, there or in all, already hang in the background.
    #[error("open {}: {limit} earlier opens still hang", path.display())]
    TooManyHanging {
        /// The path.
        path: PathBuf,
        /// How many.
        limit: usize,
    },
}

impl OpenError {
    /// The errno of the failure as a positive number (disk-format.md 2.6 says which operations report it).
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            OpenError::Os { errno, .. } => *errno,
            OpenError::Directory { .. } => libc::EISDIR,
            OpenError::NotADisk { .. } | OpenError::NoDirectIo { .. } => libc::EINVAL,
            OpenError::TimedOut { .. } => libc::ETIMEDOUT,
            OpenError::TooManyHanging { .. } => libc::EAGAIN,
        }
    }

    /// The return number: [`TIMED_OUT_CODE`] for an open that hangs, otherwise the negative errno.
    #[must_use]
    pub const fn code(&self) -> i32 {
        match self {
            OpenError::TimedOut { .. } => TIMED_OUT_CODE,
            other => -other.errno(),
        }
    }

    /// The path that was to be opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            OpenError::Os { path, .. }
            | OpenError::Directory { path }
            | OpenError::NotADisk { path }
            | OpenError::NoDirectIo { path }
            | OpenError::TimedOut { path }
            | OpenError::TooManyHanging { path, .. } => path,
        }
    }
}

/// What is to be written does not fit on a device.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("an area of {len} bytes at offset {offset} does not fit on {}, which has {size} bytes", path.display())]
pub struct TooSmall {
    /// The device.
    pub path: Arc<Path>,
    /// Byte offset of the area.
    pub offset: u64,
    /// Bytes of the area.
    pub len: usize,
    /// Bytes of the device.
    pub size: u64,
}

impl TooSmall {
    /// The number that a write of the area would have: -90 (`-EMSGSIZE`) where its beginning fits, else -28 (`-ENOSPC`).
    #[must_use]
    pub const fn code(&self) -> i32 {
        if self.offset < self.size { -libc::EMSGSIZE } else { -libc::ENOSPC }
    }
}

/// No engine, or not the one that was asked for.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EngineError {
    /// The environment variable names no engine.
    #[error("SANLOCK_IO_ENGINE={value}: expected io_uring, aio or threads")]
    Unknown {
        /// Value found.
        value: String,
    },
    /// The kernel or its policy (sysctl, seccomp) refuses this engine.
    #[error("I/O engine {engine} is unavailable: {call}: {}", Errno::from_raw(*errno))]
    Unavailable {
        /// `io_uring` or `aio`.
        engine: &'static str,
        /// The step that failed.
        call: &'static str,
        /// Positive errno.
        errno: i32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn return_numbers() {
        assert_eq!(IoErrorKind::TimedOut.code(), -202);
        assert_eq!(IoErrorKind::NeverStarted.code(), -202);
        assert_eq!(IoErrorKind::Short { got: 7 }.code(), -90);
        assert_eq!(IoErrorKind::Os(libc::EIO).code(), -5);
        assert_eq!(OpenError::TimedOut { path: "/x".into() }.code(), -202);
        assert_eq!(OpenError::NotADisk { path: "/x".into() }.code(), -22);
        assert_eq!(OpenError::Directory { path: "/x".into() }.code(), -21);
    }

    #[test]
    fn messages_name_path_operation_place_and_cause() {
        let error = IoError {
            path: Path::new("/dev/leases").into(),
            op: Op::Write,
            offset: 1_048_576,
            len: 512,
            kind: IoErrorKind::Os(libc::EIO),
        };
        assert_eq!(error.to_string(), "write of 512 bytes at offset 1048576 of /dev/leases: EIO: I/O error");
    }
}
