//! The engine interface and the choice between the implementations.

use std::os::fd::BorrowedFd;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sanlock_lease::timing::MonoTime;

use crate::aio::Aio;
use crate::buffer::AlignedBuf;
use crate::calls::CallPlace;
use crate::disk::Disk;
use crate::errand::Errand;
use crate::error::{EngineError, IoError, Op};
use crate::queue::QueuedEngine;
use crate::threads::Threads;
use crate::uring::Uring;

/// Environment variable that forces an engine: `io_uring`, `aio` or `threads`.
pub const ENGINE_VARIABLE: &str = "SANLOCK_IO_ENGINE";

/// One transfer. It owns its buffer until the completion hands it back.
#[derive(Debug)]
pub struct IoRequest {
    /// Direction.
    pub op: Op,
    /// The disk; the operation keeps it open.
    pub disk: Arc<Disk>,
    /// Byte offset on the disk, a multiple of its logical block size (disk-format.md 2.6).
    pub offset: u64,
    /// Bytes to transfer, `1..=buf.len()` and a multiple of the logical block size; the transfer uses the start of the buffer.
    pub len: usize,
    /// Source or destination.
    pub buf: AlignedBuf,
    /// Given back when the kernel is done with it; `None` for an operation that is not counted.
    pub place: Option<CallPlace>,
    /// Whose it is: two operations may be one call, which ends with the later one, only if they are for the same machine, which waits for both.
    pub of: u64,
    /// From then on ([`crate::drive::monotonic_now`]) it is not handed to the kernel any more, but ends with [`crate::IoErrorKind::NeverStarted`].
    pub until: Option<MonoTime>,
}

impl IoRequest {
    /// A read that fills the whole of `buf`.
    #[must_use]
    pub fn read(disk: Arc<Disk>, offset: u64, buf: AlignedBuf) -> Self {
        let len = buf.len();
        Self { op: Op::Read, disk, offset, len, buf, place: None, of: 0, until: None }
    }

    /// A write of the whole of `buf`.
    #[must_use]
    pub fn write(disk: Arc<Disk>, offset: u64, buf: AlignedBuf) -> Self {
        let len = buf.len();
        Self { op: Op::Write, disk, offset, len, buf, place: None, of: 0, until: None }
    }
}

/// Names one operation of one engine; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// The end of an operation, on time or late.
#[derive(Debug)]
pub struct Completion {
    /// As returned by `submit`.
    pub ticket: Ticket,
    /// Direction.
    pub op: Op,
    /// The disk.
    pub disk: Arc<Disk>,
    /// Byte offset.
    pub offset: u64,
    /// Bytes asked for; on success all of them were transferred.
    pub len: usize,
    /// The buffer. After a failed read its content is unspecified.
    pub buf: AlignedBuf,
    /// Success, or what failed. Never [`crate::IoErrorKind::TimedOut`]: an engine looks at the time only before it begins.
    pub result: Result<(), IoError>,
    /// When `submit` was called (`CLOCK_MONOTONIC`).
    pub submitted_at: Instant,
    /// When the completion was reaped: not before the transfer ended, later by as long as nobody reaped.
    pub completed_at: Instant,
}

/// Asynchronous direct I/O. All methods return at once, whatever the storage does.
///
/// Operations run side by side and complete in any order: whoever needs one write after another submits the second after
/// reaping the first.
///
/// # Dropping
/// Never waits. An operation not yet handed to the kernel is discarded and will not happen. One that the kernel has keeps
/// its buffer, its disk and the engine's context; a detached thread of the engine collects them when the kernel is done,
/// if ever. Such a *write may still reach the disk after the engine is gone*.
pub trait Engine: Send {
    /// Starts an operation. A failure to start it becomes an ordinary completion: -22 for a length or offset out of range or misaligned,
    /// -11 (`-EAGAIN`) with [`crate::MAX_IN_FLIGHT`] operations in flight.
    fn submit(&mut self, request: IoRequest) -> Ticket;

    /// Takes an operation back that has not been handed to the kernel: it will not happen, and has no completion. `None`: it has been, or has
    /// ended, or is about to be; if that is a write that has not begun it never will, and ends with [`crate::IoErrorKind::NeverStarted`].
    fn withdraw(&mut self, _ticket: Ticket) -> Option<IoRequest> {
        None
    }

    /// Appends every completion that is there now to `out`, returns how many, and clears the readiness of
    /// [`Engine::completion_fd`].
    fn reap(&mut self, out: &mut Vec<Completion>) -> usize;

    /// Becomes readable (poll, epoll) when completions wait. May be readable without one; only `reap` reads from it.
    fn completion_fd(&self) -> BorrowedFd<'_>;

    /// Operations submitted and not yet reaped.
    fn in_flight(&self) -> usize;

    /// From now on `submit` only queues, if this engine's operations may be carried out by whoever wants them: after the
    /// last of some comes either [`Engine::start`] or [`Engine::errand`], of which there is none after a call that took `slow` or longer.
    /// Another engine goes on as before.
    fn defer(&mut self, _slow: Duration) {}

    /// Starts what is queued. `true`: there is a call for which no thread is to be had. It waits for the next call of this, unless
    /// somebody takes it by [`Engine::last_resort`], or [`Engine::refuse`] ends it.
    fn start(&mut self) -> bool {
        false
    }

    /// A queued operation that is wanted, for the caller to carry out although calls may take long, as [`Engine::errand`].
    fn last_resort(&mut self, _wanted: &dyn Fn(Ticket) -> bool) -> Option<Errand> {
        None
    }

    /// Ends what is queued with -11 (`-EAGAIN`), if this engine has no thread that might take it.
    fn refuse(&mut self) {}

    /// Whether everything in flight waits for one of the two, and is one call: an operation, or two that are made together.
    fn is_one_call(&self) -> bool {
        false
    }

    /// Instead of that, what was queued first, for the caller to carry out; `None` if there is nothing, or not from this
    /// engine. Two reads of one machine that are close together are one call, which reads what lies between them too; so are a write and a read of something
    /// else, both under way at once. It is in flight like any
    /// other operation, and its completions come by [`Engine::reap`].
    fn errand(&mut self) -> Option<Errand> {
        None
    }

    /// Which implementation this is.
    fn kind(&self) -> EngineKind;
}

/// The implementations of [`Engine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EngineKind {
    /// io_uring, every operation run by a kernel worker.
    IoUring,
    /// Linux AIO, submitted by helper threads since `io_submit` may block.
    Aio,
    /// Ordinary reads and writes, each on a thread that waits for it.
    Threads,
}

impl EngineKind {
    /// The name used in [`ENGINE_VARIABLE`] and in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            EngineKind::IoUring => "io_uring",
            EngineKind::Aio => "aio",
            EngineKind::Threads => "threads",
        }
    }

    /// The engine for operations side by side: the one named by [`ENGINE_VARIABLE`] if set, otherwise io_uring where it works,
    /// otherwise AIO, and where neither does (container profiles) threads. Sets up and tears down what it tries, so ask once and keep the
    /// answer.
    ///
    /// # Errors
    /// [`EngineError::Unknown`] for another value of the variable; [`EngineError::Unavailable`] when the forced engine does not work here.
    pub fn probe() -> Result<Self, EngineError> {
        let best = || [Self::IoUring, Self::Aio].into_iter().find(|kind| kind.check().is_ok());
        Ok(Self::forced()?.or_else(best).unwrap_or(Self::Threads))
    }

    /// The engine for those who wait for their own operations: [`EngineKind::Threads`], unless [`ENGINE_VARIABLE`] names another
    /// (docs/decisions/0017).
    ///
    /// # Errors
    /// The variable has another value, or names an engine that does not work here.
    pub fn for_daemon() -> Result<Self, EngineError> {
        Ok(Self::forced()?.unwrap_or(Self::Threads))
    }

    fn forced() -> Result<Option<Self>, EngineError> {
        let Some(value) = std::env::var_os(ENGINE_VARIABLE) else { return Ok(None) };
        let kind: Self = value.to_string_lossy().parse()?;
        kind.check().map(|()| Some(kind))
    }

    /// Whether this engine works here: set up, and for io_uring the needed operations and the round trip of a no-op.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] naming the step that failed.
    pub fn check(self) -> Result<(), EngineError> {
        match self {
            EngineKind::IoUring => Uring::check(),
            EngineKind::Aio => Aio::check(),
            EngineKind::Threads => Ok(()),
        }
    }

    /// Creates an engine. One engine serves any number of disks; give disks that must not delay each other engines of
    /// their own.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`], also when descriptors or `aio-max-nr` are exhausted.
    pub fn create(self) -> Result<Box<dyn Engine>, EngineError> {
        match self {
            EngineKind::IoUring => Ok(Box::new(QueuedEngine::new(Uring::new)?)),
            EngineKind::Aio => Ok(Box::new(QueuedEngine::new(Aio::new)?)),
            EngineKind::Threads => Ok(Box::new(QueuedEngine::new(Threads::new)?)),
        }
    }
}

impl FromStr for EngineKind {
    type Err = EngineError;

    fn from_str(value: &str) -> Result<Self, EngineError> {
        match value {
            "io_uring" => Ok(EngineKind::IoUring),
            "aio" => Ok(EngineKind::Aio),
            "threads" => Ok(EngineKind::Threads),
            other => Err(EngineError::Unknown { value: other.to_owned() }),
        }
    }
}
