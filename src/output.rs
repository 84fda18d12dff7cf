//! Where text goes: results to stdout, as the original prints them, explanations to stderr.
//!
//! A reader that has gone away (`sanlock status | head -1`) is no reason to fail: what cannot be written is dropped, as the
//! original drops it.

use sanlock_sys::clock;
use sanlock_wire::{Command, code};
use std::io::Write;

/// Exit status of a command that did what it was asked to.
pub(crate) const SUCCESS: u8 = 0;
/// Exit status of everything else.
pub(crate) const FAILURE: u8 = 1;

/// Writes to stdout at once.
pub(crate) fn print(bytes: impl AsRef<[u8]>) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(bytes.as_ref()).and_then(|()| stdout.flush());
}

/// Writes to stderr.
pub(crate) fn print_error(bytes: impl AsRef<[u8]>) {
    let _ = std::io::stderr().lock().write_all(bytes.as_ref());
}

/// Says something about what is happening, for people: `sanlock: ACTION: TEXT` on stderr.
pub(crate) fn note(action: &str, text: &str) {
    print_error(format!("sanlock: {action}: {text}\n"));
}

/// The exit status for a result number: only 0 is success, a positive number is not (command-line.md 5.1).
pub(crate) fn status_of(result: i32) -> u8 {
    if result == 0 { SUCCESS } else { FAILURE }
}

/// A result number in plain words: cause, symbol, number.
pub(crate) fn describe(result: i32, command: Option<Command>) -> String {
    named(code::explain(result, command).unwrap_or("the reason is not known"), result)
}

/// A cause with the symbol and the number of its result.
pub(crate) fn named(cause: &str, result: i32) -> String {
    match code::name(result) {
        Some(name) => format!("{cause}: {name} ({result})"),
        None => format!("{cause} ({result})"),
    }
}

/// Writes debug lines to stderr in the form of log lines (command-line.md 3.4, `-D`; 11.2).
pub(crate) fn debug(lines: &[String]) {
    let (date, mono, tid) = (clock::civil_now(false), clock::monotonic_seconds(), nix::unistd::gettid());
    for line in lines {
        print_error(format!("{date} {mono} [{tid}]: {line}\n"));
    }
}
