//! What this host is configured with, where a command goes by it as its daemon does.

use crate::output::note;
use sanlock_daemon::config::{Config, Environment, Overrides};
use sanlock_lease::timing::WatchdogFire;
use std::sync::Once;

/// The fire timeout of this host's configuration, which is that of every host.
///
/// # Errors
/// There is one that whoever asks may not read, or that is not understood: what it is.
pub(crate) fn fire_timeout() -> Result<WatchdogFire, String> {
    Config::load_readable(&Overrides::default(), &Environment::of_process()).map(|config| config.fire)
}

/// The same for what is only told: without one that can be read, that of a host without configuration, which is said once.
pub(crate) fn likely_fire_timeout() -> WatchdogFire {
    static SAID: Once = Once::new();
    fire_timeout().unwrap_or_else(|why| {
        let fire = Config::default().fire;
        let secs = fire.secs();
        SAID.call_once(|| {
            note("configuration", &format!("{why}; a watchdog fire timeout of {secs} s is assumed"))
        });
        fire
    })
}
