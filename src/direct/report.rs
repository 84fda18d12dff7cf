//! How an action ends: its result line, the reason of a failure, the exit status.

use crate::output::{FAILURE, failure_text, print, print_error, status_of};
use sanlock_wire::code;
use std::fmt::Display;

/// A failure that has a result number.
pub(crate) trait Failure: Display {
    /// The number, never 0.
    fn code(&self) -> i32;

    /// What to do about it, as a phrase.
    fn next(&self) -> Option<&'static str> {
        match self.code() {
            // Here it is no daemon that gave no reason.
            -1 => Some("'sanlock help' shows what the action takes"),
            code => first_step(code),
        }
    }
}

/// The first thing to do about a result.
pub(crate) fn first_step(result: i32) -> Option<&'static str> {
    code::advice(result).and_then(|advice| advice.steps.first().copied())
}

/// Prints `ACTION done RESULT`, the reason of a failure on stderr, and gives the exit status. `object`: what was to be worked on.
pub(crate) fn report<T, E: Failure>(action: &str, object: &str, outcome: &Result<T, E>) -> u8 {
    report_as(action, action, object, outcome)
}

/// Like [`report`], where the result line has another name for the action.
pub(crate) fn report_as<T, E: Failure>(
    action: &str,
    in_result: &str,
    object: &str,
    outcome: &Result<T, E>,
) -> u8 {
    let result = outcome.as_ref().map_or_else(E::code, |_| 0);
    print(format!("{in_result} done {result}\n"));
    if let Err(error) = outcome {
        explain(action, object, error);
    }
    status_of(result)
}

/// Says why something failed, and gives the exit status: for actions that have no result line.
pub(crate) fn failed<E: Failure>(action: &str, object: &str, error: &E) -> u8 {
    explain(action, object, error);
    FAILURE
}

fn explain<E: Failure>(action: &str, object: &str, error: &E) {
    print_error(explanation(action, object, error));
}

fn explanation<E: Failure>(action: &str, object: &str, error: &E) -> String {
    failure_text(action, object, &error.to_string(), error.code(), error.next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::tests::explains;

    #[derive(Debug, thiserror::Error)]
    #[error("the storage does not do it")]
    struct Any(i32);

    impl Failure for Any {
        fn code(&self) -> i32 {
            self.0
        }
    }

    /// Whatever number an action on storage fails with.
    #[test]
    fn every_result_is_explained() {
        for result in (-600..0).chain([i32::MIN, -4095]) {
            let text = explanation("dump", "/dev/x:0", &Any(result));
            explains(&text, "dump", "/dev/x:0", result);
        }
    }
}
