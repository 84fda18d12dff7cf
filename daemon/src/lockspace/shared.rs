//! What a lockspace's thread publishes, for machines of other threads and for commands.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sanlock_blockio::Disk;
use sanlock_lease::delta::Joined;
use sanlock_lease::geometry::{Geometry, HostId};
use sanlock_lease::hosts::HostTable;
use sanlock_lease::machine::LockspaceNow;
use sanlock_lease::text::LockspaceSpec;
use sanlock_lease::timing::{IoTimeout, MonoTime};

/// One lockspace as all threads see it. Locks are held for memory operations only.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) spec: LockspaceSpec,
    pub(crate) host: HostId,
    pub(crate) io_timeout: IoTimeout,
    gone: AtomicBool,
    /// 0 until joined; a lease that is held never has generation 0.
    generation: AtomicU64,
    last_good_ms: AtomicU64,
    place: Mutex<Option<(Arc<Disk>, Geometry)>>,
    hosts: Mutex<Option<Arc<HostTable>>>,
}

impl Shared {
    pub(crate) fn new(spec: LockspaceSpec, host: HostId, io_timeout: IoTimeout) -> Arc<Self> {
        Arc::new(Self {
            spec,
            host,
            io_timeout,
            gone: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            last_good_ms: AtomicU64::new(0),
            place: Mutex::new(None),
            hosts: Mutex::new(None),
        })
    }

    /// Nothing may be written in the name of this lockspace from now on, except to keep or free the host_id lease.
    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// What a machine may be told at `now`.
    ///
    /// The age is looked at here too, not only by the tick that declares a lockspace failed: after this process stood still
    /// (stopped, swapped out, a suspended machine) the threads go on in any order, and others may have taken over.
    pub(crate) fn state(&self, now: MonoTime) -> LockspaceNow {
        let generation = self.generation.load(Ordering::SeqCst);
        let age = now.secs_since(MonoTime::from_millis(self.last_good_ms.load(Ordering::SeqCst)));
        if generation == 0 || self.is_gone() || age >= self.io_timeout.renewal_fail_secs() {
            LockspaceNow::Gone
        } else {
            LockspaceNow::Alive { generation }
        }
    }

    pub(super) fn set_joined(&self, joined: &Joined, disk: Arc<Disk>) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Some((disk, joined.geometry));
        self.set_last_good(joined.last_good);
        self.generation.store(joined.generation(), Ordering::SeqCst);
    }

    pub(super) fn set_last_good(&self, time: MonoTime) {
        self.last_good_ms.fetch_max(time.millis(), Ordering::SeqCst);
    }

    /// The open disk and the sizes, once joined.
    pub(crate) fn place(&self) -> Option<(Arc<Disk>, Geometry)> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_hosts(&self, table: HostTable) {
        *self.hosts.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(table));
    }

    /// The newest host table, `None` before the first scan.
    pub(crate) fn hosts(&self) -> Option<Arc<HostTable>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
