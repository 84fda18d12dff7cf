//! What a lockspace's thread publishes, for machines of other threads and for commands.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sanlock_blockio::Disk;
use sanlock_lease::delta::Joined;
use sanlock_lease::geometry::{Geometry, HostId};
use sanlock_lease::hosts::HostTable;
use sanlock_lease::machine::LockspaceNow;
use sanlock_lease::text::LockspaceSpec;
use sanlock_lease::timing::{IoTimeout, MonoTime};

/// It is joined, or wanted.
const WANTED: u8 = 0;
/// It has failed, and its thread has seen that before the front.
const FAILED_UNSEEN: u8 = 1;
/// The front has given it up.
const GIVEN_UP: u8 = 2;

/// One lockspace as all threads see it. Locks are held for memory operations only.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) spec: LockspaceSpec,
    pub(crate) host: HostId,
    pub(crate) io_timeout: IoTimeout,
    /// [`WANTED`], [`FAILED_UNSEEN`] or [`GIVEN_UP`]. In one word: of the two who see a failure one is first.
    standing: AtomicU8,
    /// Others may have taken over before it was renewed.
    overdue: AtomicBool,
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
            standing: AtomicU8::new(WANTED),
            overdue: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            last_good_ms: AtomicU64::new(0),
            place: Mutex::new(None),
            hosts: Mutex::new(None),
        })
    }

    /// The front gives it up: nothing may be written in the name of this lockspace from now on, except to keep or free the host_id lease.
    pub(crate) fn set_gone(&self) {
        self.standing.store(GIVEN_UP, Ordering::SeqCst);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.standing.load(Ordering::SeqCst) != WANTED
    }

    /// What a machine may be told at `now`.
    ///
    /// The age is looked at here too, not only by the tick that declares a lockspace failed: after this process stood still
    /// (stopped, swapped out, or the machine slept) the threads go on in any order, and others may have taken over.
    pub(crate) fn state(&self, now: MonoTime) -> LockspaceNow {
        let generation = self.generation.load(Ordering::SeqCst);
        if generation == 0 || self.is_gone() || self.age(now) >= self.io_timeout.renewal_fail_secs() {
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

    /// Takes in a good renewal that is heard of now. Whether the front is to hear of it.
    ///
    /// What has failed stays so: a task that has stood still meanwhile is not to go on. The front sees the age at its next tick, and that no
    /// renewal came in time; then it gives the lockspace up, and hears of renewals again, so that the watchdog waits for processes that take
    /// their time. Where others may have taken over before this renewal was written (`dead_secs`, 8T + F), it never hears of one again: the
    /// watchdog is not to wait any longer for processes that cannot be stopped.
    pub(super) fn renewed(&self, time: MonoTime, now: MonoTime, dead_secs: u64) -> bool {
        if self.age(now) >= dead_secs {
            self.overdue.store(true, Ordering::SeqCst);
        }
        if self.state(now) == LockspaceNow::Gone {
            // Nothing changes where the front was first.
            let (standing, order) = (&self.standing, Ordering::SeqCst);
            let _ = standing.compare_exchange(WANTED, FAILED_UNSEEN, order, order);
        }
        self.set_last_good(time);
        !self.overdue.load(Ordering::SeqCst) && self.standing.load(Ordering::SeqCst) != FAILED_UNSEEN
    }

    fn age(&self, now: MonoTime) -> u64 {
        now.secs_since(MonoTime::from_millis(self.last_good_ms.load(Ordering::SeqCst)))
    }

    fn set_last_good(&self, time: MonoTime) {
        self.last_good_ms.fetch_max(time.millis(), Ordering::SeqCst);
    }

    /// From now on nobody gets the disk here.
    pub(super) fn forget_place(&self) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The open disk and the sizes, while it is joined.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// 8T + F.
    const DEAD: u64 = 140;

    fn joined(at: u64) -> Arc<Shared> {
        let host = HostId::new(1).unwrap();
        let shared = Shared::new(LockspaceSpec::default(), host, IoTimeout::new(10).unwrap());
        shared.generation.store(7, Ordering::SeqCst);
        shared.set_last_good(MonoTime::from_secs(at));
        shared
    }

    #[test]
    fn a_renewal_in_time_is_heard_of_and_keeps_a_lockspace_alive() {
        let (shared, at) = (joined(1000), MonoTime::from_secs);
        assert!(shared.renewed(at(1070), at(1079), DEAD));
        assert_eq!(shared.state(at(1149)), LockspaceNow::Alive { generation: 7 });
        assert_eq!(shared.state(at(1150)), LockspaceNow::Gone);
    }

    #[test]
    fn a_lockspace_that_has_failed_is_not_brought_back_by_a_late_renewal() {
        let at = MonoTime::from_secs;
        // The machine slept, and the renewal was the first that went on; or it hung, and was written in time.
        for written in [1079, 1300] {
            let shared = joined(1000);
            assert!(!shared.renewed(at(written), at(1300), DEAD));
            assert_eq!(shared.state(at(1300)), LockspaceNow::Gone);
            assert!(!shared.renewed(at(1320), at(1320), DEAD), "and goes on so");
            assert_eq!(shared.state(at(1320)), LockspaceNow::Gone);
        }
    }

    #[test]
    fn the_front_hears_of_renewals_again_once_it_has_given_up_what_failed() {
        let (shared, at) = (joined(1000), MonoTime::from_secs);
        // Written in time, and the thread sees the age before the front does.
        assert!(!shared.renewed(at(1021), at(1080), DEAD));
        assert_eq!(shared.state(at(1080)), LockspaceNow::Gone);
        assert!(!shared.renewed(at(1081), at(1081), DEAD), "the front has not looked yet");
        shared.set_gone();
        assert!(shared.renewed(at(1082), at(1082), DEAD));
        assert_eq!(shared.state(at(1082)), LockspaceNow::Gone, "it stays given up");
        // Unless others may have taken over before.
        assert!(!shared.renewed(at(1222), at(1222), DEAD));
        shared.set_gone();
        assert!(!shared.renewed(at(1223), at(1223), DEAD));
    }

    #[test]
    fn renewals_of_a_lockspace_that_the_front_has_given_up_are_heard_of() {
        let (shared, at) = (joined(1000), MonoTime::from_secs);
        shared.set_gone();
        assert!(shared.renewed(at(1090), at(1091), DEAD));
        assert_eq!(shared.state(at(1091)), LockspaceNow::Gone);
        // Unless others may have taken over before.
        assert!(shared.renewed(at(1092), at(1229), DEAD));
        assert!(!shared.renewed(at(1232), at(1232), DEAD));
        assert!(!shared.renewed(at(1233), at(1233), DEAD));
    }
}
