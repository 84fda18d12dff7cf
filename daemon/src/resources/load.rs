//! How much a thread for leases has to do.

use std::sync::atomic::{AtomicUsize, Ordering};

/// In place of a number: no task is taken any more.
const CLOSED: usize = usize::MAX;

/// How many tasks a thread has. The front adds, the thread takes away, and closes when it is to end: never with a task.
#[derive(Debug, Default)]
pub(super) struct Load(AtomicUsize);

impl Load {
    /// `None` when it is closed.
    pub(super) fn tasks(&self) -> Option<usize> {
        Some(self.0.load(Ordering::SeqCst)).filter(|&tasks| tasks != CLOSED)
    }

    /// One more; `false` when it is closed.
    pub(super) fn add(&self) -> bool {
        let more = |tasks| if tasks == CLOSED { None } else { Some(tasks + 1) };
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// One less.
    pub(super) fn done(&self) {
        let less = |tasks| if tasks == CLOSED { None } else { usize::checked_sub(tasks, 1) };
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }

    /// Takes no more; `false`, and nothing has changed, with a task.
    pub(super) fn close(&self) -> bool {
        self.0.compare_exchange(0, CLOSED, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closes_without_tasks_only_and_takes_none_afterwards() {
        let load = Load::default();
        assert!(load.add() && load.add());
        assert_eq!(load.tasks(), Some(2));
        load.done();
        assert!(!load.close());
        load.done();
        assert_eq!(load.tasks(), Some(0));
        assert!(load.close());
        assert!(!load.add() && !load.close());
        load.done();
        assert_eq!(load.tasks(), None);
    }
}
