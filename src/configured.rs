//! What this host is configured with, where a command goes by it as its daemon does.

use sanlock_daemon::config::{Config, Environment, Overrides};
use sanlock_lease::timing::WatchdogFire;

/// The fire timeout of this host's configuration, which is that of every host.
pub(crate) fn fire_timeout() -> WatchdogFire {
    Config::load(&Overrides::default(), &Environment::of_process()).fire
}
