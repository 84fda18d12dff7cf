//! `sanlock daemon`.

use nix::sys::signal::SigSet;
use sanlock_daemon::config::{Config, Environment, Overrides};
use sanlock_sys::child::keep_until_waited_for;

/// Runs the lock manager and returns the exit status.
pub(crate) fn run(overrides: &Overrides) -> u8 {
    // Before anything is started. Where that is refused, the ends of programs are not seen.
    let _ = keep_until_waited_for();
    // Whoever starts this may have signals blocked, and those that end it would wait for ever. Threads inherit it from here.
    let _ = SigSet::empty().thread_set_mask();
    sanlock_daemon::run(Config::load(overrides, &Environment::of_process()))
}
