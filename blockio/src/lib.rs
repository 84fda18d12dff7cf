//! Direct reads and writes whose deadline belongs to the caller.
//!
//! A lock manager must notice *in time* that a disk does not answer, and must not be stopped by it. So nothing here
//! waits for storage on the caller's thread: not submitting, not reaping, not dropping an engine, not closing a file.
//!
//! | Module | Subject |
//! |---|---|
//! | [`AlignedBuf`] | page-aligned memory, owned by the operation while the kernel may touch it |
//! | [`HugePages`] | a stock of huge pages for the large ones of these buffers |
//! | [`CallPlace`] | how many reads and writes may hang, for each kind of asker |
//! | [`Disk`], [`PendingOpen`], [`Asker`] | an open lease file or device, its sizes, opening off the caller's thread |
//! | [`Engine`] | submit, reap, a descriptor to poll; implemented over io_uring, Linux AIO, and threads |
//! | [`EngineKind`] | which of them: [`EngineKind::for_daemon`], [`EngineKind::probe`] |
//! | [`drive`] | the two drivers of step machines |
//! | [`BlockingIo`] | one operation at a time with a time limit, for one-shot tools |
//! | [`IoError`], [`OpenError`] | what failed: path, operation, offset, length, cause, return number |
//!
//! # The one rule
//!
//! A timed-out operation is *not over*. An engine knows no timeouts: the caller looks at its own clock and decides that an
//! operation took too long. The operation stays in flight with its buffer pinned until its completion is reaped, seconds
//! or hours later; a write may reach the disk at any time until then (lease-algorithms.md 1.5).
//!
//! # Process exit
//!
//! What the kernel does not offer cannot be given here: a *process* with an operation stuck in the kernel does not finish
//! exiting before that operation ends, and keeps its open files (locks and sockets included) until then. This holds for both
//! engines.

#![deny(unsafe_op_in_unsafe_fn)]

mod aio;
mod blocking;
mod buffer;
mod calls;
mod contexts;
mod device_write;
mod disk;
pub mod drive;
mod engine;
mod errand;
mod error;
mod huge;
mod kaio;
mod offload;
mod opens;
mod queue;
mod side_by_side;
mod stat;
mod threads;
mod uring;

pub use blocking::BlockingIo;
pub use buffer::{AlignedBuf, BUFFER_ALIGN, MAX_IO_LEN};
pub use calls::CallPlace;
pub use disk::{Access, Disk, DiskKind};
pub use engine::{Completion, ENGINE_VARIABLE, Engine, EngineKind, IoRequest, Ticket};
pub use errand::Errand;
pub use error::{EngineError, IoError, IoErrorKind, Op, OpenError, TIMED_OUT_CODE, TooSmall};
pub use huge::{HUGE_BUFFER_MIN, HUGE_MEMORY_MAX, HugePages, NoHugePages};
pub use offload::{CLOSERS_FOR_PATHS, CLOSERS_OF_A_PATH, MAX_CLOSERS, closes_wait};
pub use opens::unescape as unescape_mount;
pub use opens::{Asker, MAX_BACKGROUND_OPENS, PendingOpen, SECOND_OPENS_MAX};
pub use queue::{MAX_IN_FLIGHT, MAX_IN_KERNEL};
