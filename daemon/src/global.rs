//! What every thread of the daemon may look at.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sanlock_blockio::EngineKind;
use sanlock_lease::name::Name;

use crate::config::Config;
use crate::log::Log;
use crate::records::Records;

/// Settings and marks of this life of the daemon.
#[derive(Debug)]
pub(crate) struct Global {
    pub(crate) config: Config,
    pub(crate) host_name: Name,
    pub(crate) engine: EngineKind,
    pub(crate) records: Records,
    pub(crate) log: Log,
    shutting_down: AtomicBool,
}

impl Global {
    pub(crate) fn new(
        config: Config,
        host_name: Name,
        engine: EngineKind,
        records: Records,
        log: Log,
    ) -> Arc<Self> {
        let shutting_down = AtomicBool::new(false);
        Arc::new(Self { config, host_name, engine, records, log, shutting_down })
    }

    /// From now on machines are told that the daemon shuts down.
    pub(crate) fn set_shutting_down(&self) {
        self.shutting_down.store(true, Ordering::SeqCst);
    }

    pub(crate) fn shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::SeqCst)
    }
}
