//! Writes of formats and of requests for leases that may still land: nothing is formatted on their disks before they have.
//!
//! A format that was answered with -202 is not over, nor is one that failed in a way that leaves open whether it is carried out
//! ([`IoFailure::leaves_doubt`](sanlock_lease::machine::IoFailure::leaves_doubt)). A later one that succeeded could be overwritten by it,
//! when somebody already holds a lease there. Nor is what is formatted to get a request that was for what was there before: its owner would be asked,
//! or killed, for a version that it has never had.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::oneshot::{Io, ToolError};

/// Disks with a format in doubt. With more of them none is formatted at all until one is over.
const DOUBTS_MAX: usize = 1024;

/// See the module.
#[derive(Default)]
pub(crate) struct Late(Mutex<State>);

#[derive(Default)]
struct State {
    /// What formats left behind. Each has a call under way that has its place among those of commands
    /// ([`sanlock_blockio::Asker::calls_max`]), so there are no more than these, of one device no more than half, and formats elsewhere go on.
    formats: Vec<Format>,
    /// Until when what has ended may land, and on which disk.
    doubts: Vec<(Vec<u8>, Instant)>,
    /// Disks of commands on resource indexes that see to their late writes themselves.
    indexes: Vec<Vec<u8>>,
}

/// A format with a write that has not ended.
struct Format {
    paths: Vec<Vec<u8>>,
    io: Io,
    doubt: Duration,
}

impl State {
    /// Keeps only what may still land.
    fn settle(&mut self, now: Instant) {
        let doubts = &mut self.doubts;
        self.formats.retain_mut(|format| {
            let outstanding = format.io.collect_late() > 0;
            if !outstanding {
                begin_doubt(doubts, format);
            }
            outstanding
        });
        doubts.retain(|(_, until)| *until > now);
    }
}

/// Nothing of it is outstanding any more, but perhaps in doubt.
fn begin_doubt(doubts: &mut Vec<(Vec<u8>, Instant)>, format: &mut Format) {
    let Some(since) = format.io.in_doubt_since() else { return };
    let until = since + format.doubt;
    for path in format.paths.drain(..) {
        match doubts.iter_mut().find(|(of, _)| *of == path) {
            Some((_, known)) => *known = until.max(*known),
            None => doubts.push((path, until)),
        }
    }
}

impl Late {
    /// Why a format of these has to wait, if it has.
    pub(super) fn blocks(&self, paths: &[Vec<u8>]) -> Option<ToolError> {
        let mut late = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        late.settle(now);
        let shown = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let outstanding = |path: &&Vec<u8>| {
            late.indexes.contains(path) || late.formats.iter().any(|format| format.paths.contains(path))
        };
        if let Some(path) = paths.iter().find(outstanding) {
            return Some(ToolError::LateFormat { path: shown(path) });
        }
        let full = !paths.is_empty() && late.doubts.len() > DOUBTS_MAX;
        let (path, until) = late.doubts.iter().find(|(path, _)| full || paths.contains(path))?;
        Some(ToolError::FormatInDoubt { path: shown(path), secs: (*until - now).as_secs() + 1 })
    }

    /// Keeps what a format, or a request, may have left behind: what ended in doubt may land for so long from then on.
    pub(crate) fn keep(&self, paths: Vec<Vec<u8>>, io: Io, doubt: Duration) {
        let mut late = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        late.formats.push(Format { paths, io, doubt });
        late.settle(Instant::now());
    }

    /// Writes of a command on an index may land on this disk until [`Late::end`].
    pub(super) fn begin(&self, path: Vec<u8>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).indexes.push(path);
    }

    /// They no longer may.
    pub(super) fn end(&self, path: &[u8]) {
        let mut late = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = late.indexes.iter().position(|late| late == path) {
            late.indexes.swap_remove(at);
        }
    }
}
