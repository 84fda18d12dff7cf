//! How an action ends: its result line, the reason of a failure, the exit status.

use crate::output::{named, note, print, status_of};
use std::fmt::Display;

/// A failure that has a result number.
pub(super) trait Failure: Display {
    /// The number, never 0.
    fn code(&self) -> i32;
}

/// Prints `ACTION done RESULT`, the reason of a failure on stderr, and gives the exit status.
pub(super) fn report<T, E: Failure>(action: &str, outcome: &Result<T, E>) -> u8 {
    report_as(action, action, outcome)
}

/// Like [`report`], where the result line has another name for the action.
pub(super) fn report_as<T, E: Failure>(action: &str, in_result: &str, outcome: &Result<T, E>) -> u8 {
    let result = outcome.as_ref().map_or_else(E::code, |_| 0);
    print(format!("{in_result} done {result}\n"));
    if let Err(error) = outcome {
        note(action, &named(&error.to_string(), result));
    }
    status_of(result)
}
