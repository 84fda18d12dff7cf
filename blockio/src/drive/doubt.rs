//! Writes that have ended with an error and may have an effect all the same ([`IoFailure::leaves_doubt`]).
//!
//! Their buffers are kept as long. A network stack that sends from our pages, as NFS and NVMe over TCP do, may send once more after the call has failed, and
//! it sends what is in them then.

use sanlock_lease::machine::{IoFailure, OpId};
use sanlock_lease::timing::MonoTime;

use super::lane::Flight;
use super::report::RunId;
use crate::buffer::AlignedBuf;
use crate::engine::Completion;

/// Such a write.
#[derive(Debug)]
pub(super) struct Doubt {
    until: MonoTime,
    pub(super) run: RunId,
    pub(super) op: OpId,
    pub(super) failure: IoFailure,
    /// What it wrote.
    pub(super) buf: AlignedBuf,
}

/// Those of one driver.
#[derive(Debug, Default)]
pub(super) struct Doubts(Vec<Doubt>);

impl Doubts {
    /// If an operation that has ended is in doubt from now on, why.
    pub(super) fn cause(flight: &Flight, done: &Completion) -> Option<IoFailure> {
        let failure = done.result.as_ref().err()?.kind.failure();
        (flight.write && flight.doubt_ms > 0 && failure.leaves_doubt()).then_some(failure)
    }

    /// It is, for that reason; `buf` is what it wrote.
    pub(super) fn begin(&mut self, now: MonoTime, flight: &Flight, failure: IoFailure, buf: AlignedBuf) {
        let until = now.plus_millis(flight.doubt_ms);
        self.0.push(Doubt { until, run: flight.run, op: flight.op, failure, buf });
    }

    /// Takes one out that has been in doubt for long enough.
    pub(super) fn over(&mut self, now: MonoTime) -> Option<Doubt> {
        let at = self.0.iter().position(|doubt| doubt.until <= now)?;
        Some(self.0.remove(at))
    }

    /// When the next one has.
    pub(super) fn next(&self) -> Option<MonoTime> {
        self.0.iter().map(|doubt| doubt.until).min()
    }
}
