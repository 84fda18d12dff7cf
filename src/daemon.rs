//! `sanlock daemon`.

use sanlock_daemon::config::{Config, Environment, Overrides};

/// Runs the lock manager and returns the exit status.
pub(crate) fn run(overrides: &Overrides) -> u8 {
    sanlock_daemon::run(Config::load(overrides, &Environment::of_process()))
}
