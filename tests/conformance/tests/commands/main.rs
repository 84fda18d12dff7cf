//! What each socket command answers, one module per command (socket-protocol.md 7): results of
//! success and of every refusal that needs no shared mode, persistence, value block or orphan.

mod acquire;
mod acquire_all_or_nothing;
mod add_lockspace;
mod command_line;
mod connections;
mod events;
mod explained;
mod get_hosts;
mod get_lockspaces;
mod inq_lockspace;
mod inquire;
mod process_life;
mod read_lockspace;
mod read_resource;
mod release;
mod rem_lockspace;
mod run_dir;
mod show;
mod shutdown;
mod syslog;
mod write;

use std::time::Duration;

use sanlock_conformance::Table;

/// A local step: an answer, an asynchronous release, a killed process noticed.
const SOON: Duration = Duration::from_secs(60);
