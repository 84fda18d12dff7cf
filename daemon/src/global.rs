//! What every thread of the daemon may look at.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sanlock_blockio::{EngineKind, HugePages};
use sanlock_lease::name::Name;
use sanlock_sys::priority::{max_round_robin_priority, set_round_robin};

use crate::config::Config;
use crate::hirer::Hirer;
use crate::log::Log;
use crate::records::Records;

/// Settings and marks of this life of the daemon.
#[derive(Debug)]
pub(crate) struct Global {
    pub(crate) config: Config,
    pub(crate) host_name: Name,
    /// docs/decisions/0017.
    pub(crate) engine: EngineKind,
    pub(crate) records: Records,
    pub(crate) log: Log,
    /// Memory for the large buffers of whoever works on leases, if there is any of that kind.
    pub(crate) huge: Option<Arc<HugePages>>,
    /// Whoever starts threads for those who must not wait for one.
    pub(crate) hirer: Hirer,
    shutting_down: AtomicBool,
}

impl Global {
    pub(crate) fn new(
        config: Config,
        host_name: Name,
        engine: EngineKind,
        records: Records,
        log: Log,
        huge: Option<Arc<HugePages>>,
        hirer: Hirer,
    ) -> Arc<Self> {
        let shutting_down = AtomicBool::new(false);
        Arc::new(Self { config, host_name, engine, records, log, huge, hirer, shutting_down })
    }

    /// From now on machines are told that the daemon shuts down.
    pub(crate) fn set_shutting_down(&self) {
        self.shutting_down.store(true, Ordering::SeqCst);
    }

    /// Real-time priority for the calling thread, if wanted. It is not inherited from the front, which asked for it not to be. `log`: who is
    /// told of a failure, which is none to stop for.
    pub(crate) fn raise_priority(&self, log: &Log) {
        raise_priority(self.config.high_priority != 0, log);
    }

    pub(crate) fn shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::SeqCst)
    }
}

/// Starts the thread that starts others. Whoever asks the front for something waits for it: it is as much in a hurry as those whom it starts.
///
/// # Errors
/// It is not to be had.
pub(crate) fn start_hirer(config: &Config, log: &Log) -> io::Result<Hirer> {
    let (wanted, log) = (config.high_priority != 0, log.clone());
    Hirer::start("sanlock-hire", move || raise_priority(wanted, &log))
}

fn raise_priority(wanted: bool, log: &Log) {
    if !wanted {
        return;
    }
    if let Err(error) = max_round_robin_priority().and_then(set_round_robin) {
        log.debug(format_args!("real-time scheduling failed: {error}"));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::path::Path;

    /// That of a daemon whose threads are had from here.
    pub(crate) fn global(hirer: Hirer) -> Arc<Global> {
        let records = Records::new(Path::new("/nonexistent"), None);
        let (name, log) = (Name::new(b"host").unwrap(), Log::in_memory());
        Global::new(Config::default(), name, EngineKind::Threads, records, log, None, hirer)
    }
}
