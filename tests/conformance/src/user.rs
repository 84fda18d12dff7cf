//! Processes that hold a lease and say how they want to be ended (`src/bin/user.rs`).

use std::time::Duration;

use crate::bounded::{self, Output, Running};
use crate::host::Host;
use crate::program::build_dir;
use crate::storage::{LOCKSPACE, Storage};

/// An uncontended acquire ends within this time.
const HELD_LIMIT: Duration = Duration::from_secs(60);

/// A process that holds resource `n` of the storage. Killed when dropped.
#[derive(Debug)]
pub struct User {
    running: Running,
}

impl User {
    /// Starts it and waits until it holds the lease. `wishes`: see `src/bin/user.rs`.
    ///
    /// # Panics
    /// When it does not get the lease.
    #[must_use]
    pub fn start(host: &Host, storage: &Storage, n: u64, wishes: &[&str]) -> Self {
        let mut user = Self::start_waiting(host, storage, n, wishes);
        user.wait_until_held();
        user
    }

    /// The same without waiting.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start_waiting(host: &Host, storage: &Storage, n: u64, wishes: &[&str]) -> Self {
        let mut command = bounded::dying_with_us(&build_dir().join("user"));
        command
            .arg(host.run_dir())
            .args([LOCKSPACE, &format!("R{n}"), storage.path(), &storage.offset(n).to_string()])
            .args(wishes);
        Self { running: Running::start(command) }
    }

    /// Waits until it holds its lease.
    ///
    /// # Panics
    /// When it ends instead.
    pub fn wait_until_held(&mut self) {
        bounded::wait_until("the user to hold its lease", HELD_LIMIT, || {
            if self.running.ended() {
                panic!("the user ended: {}", self.running.finish(HELD_LIMIT));
            }
            self.running.text().0.starts_with("held")
        });
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// How many SIGTERMs a stubborn one has counted.
    #[must_use]
    pub fn terms(&self) -> usize {
        self.running.text().0.lines().filter(|line| *line == "TERM").count()
    }

    /// Whether it has ended.
    pub fn ended(&mut self) -> bool {
        self.running.ended()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// After `limit`.
    pub fn finish(&mut self, limit: Duration) -> Output {
        self.running.finish(limit)
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.running.kill();
    }
}
