//! Writes that have ended with an error and may have an effect all the same ([`IoFailure::leaves_doubt`]).

use sanlock_lease::machine::{IoFailure, OpId};
use sanlock_lease::timing::MonoTime;

use super::lane::Flight;
use super::report::RunId;
use crate::engine::Completion;

/// Such a write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    until: MonoTime,
    pub(super) run: RunId,
    pub(super) op: OpId,
    pub(super) failure: IoFailure,
}

/// Those of one driver.
#[derive(Debug, Default)]
pub(super) struct Doubts(Vec<Doubt>);

impl Doubts {
    /// An operation has ended. If it is in doubt from now on, why.
    pub(super) fn begin(&mut self, now: MonoTime, flight: &Flight, done: &Completion) -> Option<IoFailure> {
        let failure = done.result.as_ref().err()?.kind.failure();
        if !flight.write || flight.doubt_ms == 0 || !failure.leaves_doubt() {
            return None;
        }
        let until = now.plus_millis(flight.doubt_ms);
        self.0.push(Doubt { until, run: flight.run, op: flight.op, failure });
        Some(failure)
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
