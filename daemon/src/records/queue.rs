//! Orders that wait for the thread that writes records.
//!
//! A record is asked for whenever a client is to be noted, or has died. While the run directory hangs, of these only the newest of a lockspace
//! counts: it tells everything that still matters of what the earlier ones tell, and whoever waits for one of them is answered when it is
//! written. So what waits is bounded by the lockspaces, some orders for each time that one is joined, and not by what clients do meanwhile.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sanlock_manager::LockspaceId;

use super::Order;

/// An order, and who is told when it is carried out.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) order: Order,
    /// The lockspace and the serial of a save.
    pub(super) tell: Option<(LockspaceId, u64)>,
}

impl Queued {
    /// Whether nobody misses this order once `newer`, for the same file, is carried out. What a save notes for the time after a reboot is
    /// noted by the newer one, unless that one notes nothing there.
    fn is_replaced_by(&self, newer: &Self) -> bool {
        let told = |queued: &Self| queued.tell.map(|(ls, _)| ls);
        match (&self.order, &newer.order) {
            (Order::Save { record: older }, Order::Save { record }) => {
                told(self) == told(newer) && (older.outlived || !record.outlived)
            }
            _ => false,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Queued>,
    /// One is carried out whose end somebody waits for.
    saving: bool,
    /// One is carried out.
    busy: bool,
    closed: bool,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// Nothing is under way any more.
    idle: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an order behind all others of the same file; it takes the place of those that it replaces.
    pub(super) fn push(&self, newer: Queued) {
        let mut state = self.lock();
        let mut place = state.waiting.len();
        for at in (0..state.waiting.len()).rev() {
            if state.waiting[at].order.file() != newer.order.file() {
                continue;
            }
            if !state.waiting[at].is_replaced_by(&newer) {
                break;
            }
            state.waiting.remove(at);
            place = at;
        }
        state.waiting.insert(place, newer);
        drop(state);
        self.changed.notify_one();
    }

    /// Waits for the next order; `None` when all are carried out and no more can come. The one before has ended.
    pub(super) fn next(&self) -> Option<Queued> {
        let mut state = self.lock();
        (state.saving, state.busy) = (false, false);
        loop {
            if let Some(next) = state.waiting.pop_front() {
                (state.saving, state.busy) = (next.tell.is_some(), true);
                return Some(next);
            }
            if state.closed {
                return None;
            }
            self.idle.notify_all();
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until all that was ordered is carried out, but not for longer.
    pub(super) fn settle(&self, limit: Duration) {
        let is_under_way = |state: &mut State| state.busy || !state.waiting.is_empty();
        let waited = self.idle.wait_timeout_while(self.lock(), limit, is_under_way);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Saves that wait, or are carried out.
    pub(super) fn saves(&self) -> usize {
        let state = self.lock();
        state.waiting.iter().filter(|queued| queued.tell.is_some()).count() + usize::from(state.saving)
    }

    /// No more orders come.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanlock_lease::delta::Instance;
    use sanlock_lease::name::Name;
    use sanlock_lease::text::LockspaceSpec;
    use sanlock_lease::timing::IoTimeout;
    use sanlock_manager::RejoinRecord;

    /// Saves of one lockspace that wait at most: one that is noted for the time after a reboot, too, and one that is not, since something has outlived
    /// what it tells of.
    const SAVES_MAX: usize = 2;

    fn spec(name: &str) -> LockspaceSpec {
        LockspaceSpec { name: Name::new(name.as_bytes()).unwrap(), host_id: 1, ..LockspaceSpec::default() }
    }

    fn save(name: &str, ls: u64, serial: u64, outlived: bool) -> Queued {
        let instance = Instance { generation: 1, io_timeout: IoTimeout::DEFAULT };
        let record = RejoinRecord { spec: spec(name), instance, pids: vec![], outlived };
        Queued { order: Order::Save { record }, tell: Some((LockspaceId(ls), serial)) }
    }

    fn drop_of(name: &str) -> Queued {
        let LockspaceSpec { name, host_id, .. } = spec(name);
        Queued { order: Order::Drop { lockspace: name, host_id }, tell: None }
    }

    /// What is told, in the order in which it is carried out; 0 for a drop.
    fn carried_out(queue: &Queue) -> Vec<u64> {
        queue.close();
        std::iter::from_fn(|| queue.next())
            .map(|queued| queued.tell.map_or(0, |(_, serial)| serial))
            .collect()
    }

    #[test]
    fn of_the_saves_of_a_lockspace_the_newest_waits_in_the_place_of_the_oldest() {
        let queue = Queue::default();
        for serial in 1..1000 {
            queue.push(save("a", 1, serial, false));
            queue.push(save("b", 2, 2000 + serial, false));
            assert_eq!(queue.saves(), 2);
        }
        assert_eq!(carried_out(&queue), [999, 2999]);
        assert_eq!(queue.saves(), 0);
    }

    #[test]
    fn what_is_noted_for_the_time_after_a_reboot_is_not_replaced_by_what_is_not() {
        let queue = Queue::default();
        for serial in 1..1000 {
            queue.push(save("a", 1, serial, serial % 3 == 0));
            assert!(queue.saves() <= SAVES_MAX);
        }
        assert_eq!(carried_out(&queue), [998, 999]);
    }

    #[test]
    fn nothing_is_moved_past_the_end_of_a_lockspace_or_its_next_life() {
        let queue = Queue::default();
        queue.push(save("a", 1, 1, false));
        queue.push(drop_of("a"));
        queue.push(save("a", 2, 2, false));
        queue.push(save("a", 2, 3, false));
        queue.push(save("a", 3, 4, false));
        assert_eq!(carried_out(&queue), [1, 0, 3, 4]);
    }

    #[test]
    fn what_is_carried_out_is_replaced_by_nothing() {
        let queue = Queue::default();
        queue.push(save("a", 1, 1, false));
        let under_way = queue.next().unwrap();
        queue.push(save("a", 1, 2, false));
        assert_eq!((under_way.tell, queue.saves()), (Some((LockspaceId(1), 1)), 2));
        assert_eq!(carried_out(&queue), [2]);
    }
}
