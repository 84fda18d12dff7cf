//! Formatting writes that timed out and may still land: nothing else is formatted on their disks before they have.
//!
//! A format that was answered with -202 is not over. A later one that succeeded could be overwritten by it, when somebody
//! already holds a lease there.

use std::sync::{Mutex, PoisonError};

use crate::oneshot::Io;

/// See the module.
#[derive(Default)]
pub(super) struct Late(Mutex<State>);

#[derive(Default)]
struct State {
    /// What formats left behind, and on which disks. Each has a call under way that has its place among those of commands
    /// ([`sanlock_blockio::Asker::calls_max`]), so there are no more than these, of one device no more than half, and formats elsewhere go on.
    formats: Vec<(Vec<Vec<u8>>, Io)>,
    /// Disks of commands on resource indexes that see to their late writes themselves.
    indexes: Vec<Vec<u8>>,
}

impl Late {
    /// The path on which a format has to wait, if there is one.
    pub(super) fn blocks(&self, paths: &[Vec<u8>]) -> Option<Vec<u8>> {
        let mut late = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        late.formats.retain_mut(|(_, io)| io.collect_late() > 0);
        let busy = |path: &&Vec<u8>| {
            late.indexes.contains(path) || late.formats.iter().any(|(of, _)| of.contains(path))
        };
        paths.iter().find(busy).cloned()
    }

    /// Keeps what a format may have left behind.
    pub(super) fn keep(&self, paths: Vec<Vec<u8>>, mut io: Io) {
        if io.collect_late() > 0 {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).formats.push((paths, io));
        }
    }

    /// Writes of a command on an index may land on this disk until [`Late::end`].
    pub(super) fn begin(&self, path: Vec<u8>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).indexes.push(path);
    }

    /// They have landed.
    pub(super) fn end(&self, path: &[u8]) {
        let mut late = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = late.indexes.iter().position(|late| late == path) {
            late.indexes.swap_remove(at);
        }
    }
}
