//! What each socket command answers, one module per command (socket-protocol.md 7): results of
//! success and of every refusal that needs no shared mode, persistence, value block or orphan.

mod acquire;
mod acquire_all_or_nothing;
mod add_lockspace;
mod get_hosts;
mod get_lockspaces;
mod inq_lockspace;
mod inquire;
mod process_life;
mod read_lockspace;
mod read_resource;
mod release;
mod rem_lockspace;
mod shutdown;

use std::time::Duration;

/// A local step: an answer, an asynchronous release, a killed process noticed.
const SOON: Duration = Duration::from_secs(15);

/// Collects differences of a table of cases so that one run shows them all.
#[derive(Default)]
struct Table(Vec<String>);

impl Table {
    fn expect<T: PartialEq + std::fmt::Debug>(&mut self, case: &str, actual: T, expected: T) {
        if actual != expected {
            self.0.push(format!("{case}: expected {expected:?}, got {actual:?}"));
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.0.is_empty(), "{}", self.0.join("\n"));
        }
    }
}
