//! What is on a sanlock disk, and what may be done to it.
//!
//! This crate holds the records, the geometry, the timing rules and the lease algorithms of sanlock as *values*: it performs
//! no I/O, reads no clock, starts no thread and draws no random number. Time and I/O results come in as arguments, requests go
//! out as values (see [`machine`]). The same step machines are driven by the daemon, by one-shot tools, by the simulator and by
//! the model checker.
//!
//! Calling order of a machine: create it, call `step` with [`machine::Input::Start`], then once for every completion, timeout
//! or due wake-up, until it answers [`machine::Step::Done`]. Completions of operations that timed out may still be delivered
//! afterwards as [`machine::Input::CompletedLate`].
#![forbid(unsafe_code)]

pub mod checksum;
pub mod code;
pub mod delta;
mod doubt;
pub mod format;
pub mod fsck;
pub mod geometry;
pub mod hosts;
pub mod limits;
pub mod machine;
pub mod name;
pub mod paxos;
pub mod record;
pub mod recovery;
pub mod rindex;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
pub mod timing;
pub mod verify;
