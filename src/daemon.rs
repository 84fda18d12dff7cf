//! `sanlock daemon`.

use crate::output::{FAILURE, print_error};
use sanlock_daemon::config::{Config, Environment, Overrides};

/// Runs the lock manager and returns the exit status.
pub(crate) fn run(overrides: &Overrides) -> u8 {
    let config = Config::load(overrides, &Environment::of_process());
    for warning in &config.warnings {
        print_error(format!("sanlock: daemon: {warning}\n"));
    }
    print_error("daemon is not supported by this version\n");
    FAILURE
}
