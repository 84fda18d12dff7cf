//! What the manager is told once, at creation.

use crate::rejoin::{BootId, MachineId};
use sanlock_lease::timing::{IoTimeout, WatchdogFire};

/// Settings and identity of this daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The io timeout of a lockspace whose add command gives none.
    pub default_io_timeout: IoTimeout,
    /// The watchdog fire timeout of every host, also where no watchdog is in use: other hosts count with it.
    pub fire: WatchdogFire,
    /// Seconds of gentle killing after a lockspace failed (`-g`, 0 to 60).
    pub kill_grace_secs: u64,
    /// Renewals remembered per lockspace, at most [`crate::limits::RENEWAL_HISTORY_MAX`].
    pub renewal_history: usize,
    /// This boot of this machine.
    pub boot: BootId,
    /// This machine.
    pub machine: MachineId,
    /// Where the seeds of the delays between ballots come from.
    pub seed: u64,
}

impl Config {
    /// The documented defaults.
    #[must_use]
    pub fn new(boot: BootId, machine: MachineId, seed: u64) -> Self {
        Self {
            default_io_timeout: IoTimeout::DEFAULT,
            fire: WatchdogFire::DEFAULT,
            kill_grace_secs: 40,
            renewal_history: crate::limits::RENEWAL_HISTORY_DEFAULT,
            boot,
            machine,
            seed,
        }
    }
}
