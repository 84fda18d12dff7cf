//! Formatting writes that timed out and may still land: nothing else is formatted on their disks before they have.
//!
//! A format that was answered with -202 is not over. A later one that succeeded could be overwritten by it, when somebody
//! already holds a lease there.

use std::sync::{Mutex, PoisonError};

use crate::oneshot::Io;

/// Commands with late writes kept; beyond it every further format is refused.
const LATE_MAX: usize = 64;

/// See the module.
#[derive(Default)]
pub(super) struct Late(Mutex<Vec<(Vec<Vec<u8>>, Io)>>);

impl Late {
    /// The path on which a format has to wait, if there is one.
    pub(super) fn blocks(&self, paths: &[Vec<u8>]) -> Option<Vec<u8>> {
        let mut late = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        late.retain_mut(|(_, io)| io.collect_late() > 0);
        if late.len() >= LATE_MAX {
            return paths.first().cloned();
        }
        let busy = |path: &&Vec<u8>| late.iter().any(|(of, _)| of.contains(path));
        paths.iter().find(busy).cloned()
    }

    /// Keeps what a format may have left behind.
    pub(super) fn keep(&self, paths: Vec<Vec<u8>>, mut io: Io) {
        if io.collect_late() > 0 {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push((paths, io));
        }
    }
}
