//! The harness of the conformance and interoperation suites.
//!
//! One set of cases runs against two programs: the original sanlock 3.8.5 (the reference) and
//! ours. `SANLOCK_UNDER_TEST=reference|ours` chooses; the cases are the same. The interoperation
//! suites start both programs in one lockspace.
//!
//! What a case may rely on:
//!
//! - every host is a daemon of its own with a run directory of its own ([`Host`]); nothing of the
//!   machine's own sanlock is touched, no watchdog is used;
//! - every wait is bounded and says what it waited for ([`bounded`]);
//! - everything is cleaned up when the value goes out of scope, and children die with the test
//!   even if the test is killed;
//! - what needs a missing tool (the reference, loop devices, python3-sanlock) is skipped with a
//!   message, except under `CI`, where it fails.
//!
//! The harness speaks the socket protocol with its own small encoder ([`raw`]) and shares no code
//! with the programs it tests.

pub mod bounded;
pub mod contention;
pub mod dead_owner;
pub mod dice;
pub mod fair;
pub mod frozen;
pub mod golden;
pub mod holder;
pub mod host;
pub mod libvirt;
pub mod mixed;
pub mod namespace;
pub mod program;
pub mod raw;
pub mod scene;
pub mod sleep;
pub mod storage;
pub mod table;
pub mod terminal;
pub mod user;
pub mod walkthrough;
pub mod watchdog;
pub mod wdmd;
pub mod wdmd_client;

pub use bounded::{Output, Running};
pub use holder::Holder;
pub use host::Host;
pub use program::Program;
pub use raw::{Connection, Lockspace, Resource};
pub use scene::Scene;
pub use sleep::Sleep;
pub use storage::{Storage, StorageKind};
pub use table::Table;
pub use terminal::Terminal;
pub use user::User;
pub use wdmd::{Machine, Wdmd};
