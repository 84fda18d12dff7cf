//! For machines that are one of several kinds.

use sanlock_lease::machine::Step;

/// The same step of a machine with another kind of outcome.
pub(crate) fn map_outcome<A, B>(step: Step<A>, wrap: impl FnOnce(A) -> B) -> Step<B> {
    match step {
        Step::Io(ops) => Step::Io(ops),
        Step::Wait(until) => Step::Wait(until),
        Step::Pending => Step::Pending,
        Step::Done { outcome, outstanding } => Step::Done { outcome: wrap(outcome), outstanding },
    }
}
