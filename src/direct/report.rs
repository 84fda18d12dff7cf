//! How an action ends: its result line, the reason of a failure, the exit status.

use crate::output::{FAILURE, failure_text, print, print_error, status_of};
use sanlock_wire::{Command, code};
use std::fmt::Display;

/// A failure that has a result number.
pub(crate) trait Failure: Display {
    /// The number, never 0.
    fn code(&self) -> i32;

    /// What to do about it, as a phrase.
    fn next(&self) -> Option<&'static str> {
        match self.code() {
            // Here it is no daemon that gave no reason.
            -1 => Some(SHOWN_IN_HELP),
            code => first_step(code),
        }
    }
}

/// What to do about arguments that are missing or make no sense.
pub(crate) const SHOWN_IN_HELP: &str = "'sanlock help' shows what the action takes";

/// What to do about an offset at which the storage cannot be read or written.
pub(crate) const ALIGN_OFFSET: &str =
    "give an offset that is a multiple of the align size: 1M with 512-byte sectors, 8M with 4096";

/// The first thing to do about a result where no daemon is asked: who opens the storage is the caller, and no lockspace is joined.
pub(crate) fn first_step(result: i32) -> Option<&'static str> {
    match result {
        code::ENODEV => Some(
            "check that the path exists on this host and names a file or block device that you may read and write",
        ),
        code::EACCES => Some(
            "run it as root, or as a user who may read and write the file or device, mostly one of group sanlock: 'ls -lL PATH'",
        ),
        code::ENOSPC => code::next_step(result, Some(Command::WriteResource)),
        code::ERANGE | code::ENXIO => Some(SHOWN_IN_HELP),
        _ => code::advice(result).and_then(|advice| advice.steps.first().copied()),
    }
}

/// Like [`first_step`], for whoever has just looked at the record.
pub(crate) fn step_beside_read_leader(result: i32) -> Option<&'static str> {
    let steps = code::advice(result).map_or(&[][..], |advice| advice.steps);
    steps.iter().find(|step| !step.contains("direct read_leader")).copied()
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

    /// Nobody has joined anything, and it is the caller who opens the storage.
    #[test]
    fn no_step_leads_to_a_daemon_or_back_to_the_same_action() {
        for result in [-2, -5, -13, -19, -21, -22, -28, -30, -34, -90] {
            let step = first_step(result).unwrap();
            assert!(!step.contains("add_lockspace") && !step.contains("daemon"), "{result}: {step}");
        }
        for result in -229..=-223 {
            let step = step_beside_read_leader(result).unwrap();
            assert!(!step.contains("read_leader"), "{result}: {step}");
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
