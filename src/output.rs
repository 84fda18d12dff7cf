//! Where text goes: results to stdout, as the original prints them, explanations to stderr.
//!
//! A reader that has gone away (`sanlock status | head -1`) is no reason to fail: what cannot be written is dropped, as the
//! original drops it. Where results are lost for another reason, as on a full disk, the command fails in the end ([`lost`]).

use sanlock_sys::clock;
use sanlock_sys::output::is_unwanted;
use sanlock_wire::code;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit status of a command that did what it was asked to.
pub(crate) const SUCCESS: u8 = 0;
/// Exit status of everything else.
pub(crate) const FAILURE: u8 = 1;

/// Whether something could not be written to stdout.
static LOST: AtomicBool = AtomicBool::new(false);

/// Writes to stdout at once.
pub(crate) fn print(bytes: impl AsRef<[u8]>) {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(bytes.as_ref()).and_then(|()| stdout.flush());
    if let Err(error) = written {
        if !is_unwanted(&error) && !LOST.swap(true, Ordering::Relaxed) {
            print_error(format!("sanlock: the output cannot be written: {error}\n"));
        }
    }
}

/// Whether results were lost that somebody may have waited for.
pub(crate) fn lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

/// Writes to stderr.
pub(crate) fn print_error(bytes: impl AsRef<[u8]>) {
    let _ = std::io::stderr().lock().write_all(bytes.as_ref());
}

/// Says something about what is happening, for people: `sanlock: ACTION: TEXT` on stderr.
pub(crate) fn note(action: &str, text: &str) {
    print_error(format!("sanlock: {action}: {text}\n"));
}

/// Why something failed, for people (docs/decisions/0013-explanations.md), on stderr in two lines:
/// `sanlock: ACTION: OBJECT: REASON: SYMBOL (RESULT)` and `sanlock: ACTION: next: STEP; more: sanlock explain RESULT`.
///
/// `object`: what the action was to work on, may be empty; `next`: what to do, as a phrase.
pub(crate) fn failure(action: &str, object: &str, reason: &str, result: i32, next: Option<&str>) {
    print_error(failure_text(action, object, reason, result, next));
}

/// The two lines of [`failure`].
pub(crate) fn failure_text(
    action: &str,
    object: &str,
    reason: &str,
    result: i32,
    next: Option<&str>,
) -> String {
    let object = if object.is_empty() { String::new() } else { format!("{object}: ") };
    let more = if code::advice(result).is_some() {
        format!("'sanlock explain {result}' says more")
    } else {
        LOG.to_owned()
    };
    let next = next.map_or_else(String::new, |next| format!("{next}; "));
    format!("sanlock: {action}: {object}{}\nsanlock: {action}: next: {next}{more}\n", named(reason, result))
}

/// The last resort where a result is unknown.
const LOG: &str = "read the daemon's log (/var/log/sanlock.log, 'sanlock client log_dump')";

/// What the C library calls an errno, as other programs print it: without the number that the standard library appends.
pub(crate) fn system_text(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    let number = format!(" (os error {errno})");
    text.strip_suffix(&number).map_or_else(|| text.clone(), str::to_owned)
}

/// The exit status for a result number: only 0 is success, a positive number is not (command-line.md 5.1).
pub(crate) fn status_of(result: i32) -> u8 {
    if result == 0 { SUCCESS } else { FAILURE }
}

/// A cause with the symbol and the number of its result.
fn named(cause: &str, result: i32) -> String {
    match code::name(result) {
        Some(name) => format!("{cause}: {name} ({result})"),
        None => format!("{cause} ({result})"),
    }
}

/// Writes debug lines to stderr in the form of log lines (command-line.md 3.4, `-D`; 11.2).
pub(crate) fn debug(lines: &[String]) {
    let (date, mono, tid) = (clock::civil_now(false), clock::boottime_seconds(), nix::unistd::gettid());
    for line in lines {
        print_error(format!("{date} {mono} [{tid}]: {line}\n"));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What failed, on what, why, with the symbol where there is one, and what to do: a number never stands alone.
    #[track_caller]
    pub(crate) fn explains(text: &str, action: &str, object: &str, result: i32) {
        let (reason, step) = text.trim_end().split_once('\n').unwrap_or_else(|| panic!("one line: {text}"));
        let prefix = format!("sanlock: {action}: ");
        let after = |line: &str| line.strip_prefix(&prefix).unwrap_or_else(|| panic!("{text}")).to_owned();
        let reason = after(reason);
        let (_, reason) = reason.split_once(object).unwrap_or_else(|| panic!("no {object}: {text}"));
        let reason =
            reason.strip_suffix(&format!("({result})")).unwrap_or_else(|| panic!("no {result}: {text}"));
        let name = code::name(result);
        assert!(name.is_none_or(|name| reason.ends_with(&format!(": {name} "))), "no symbol: {text}");
        let words = reason.replace(name.unwrap_or_default(), "");
        let words = words.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic)).count();
        assert!(words >= 2, "no reason: {text}");
        let step = after(step);
        let step = step.strip_prefix("next: ").unwrap_or_else(|| panic!("no next step: {text}"));
        assert!(step.split_whitespace().count() >= 4 && !step.contains('\n'), "no next step: {text}");
    }

    #[test]
    fn failures_name_action_object_reason_and_next_step() {
        assert_eq!(
            failure_text(
                "acquire",
                "resource LS:R",
                "somebody has it",
                code::SANLK_ACQUIRE_IDLIVE,
                Some("wait")
            ),
            "sanlock: acquire: resource LS:R: somebody has it: SANLK_ACQUIRE_IDLIVE (-243)\n\
             sanlock: acquire: next: wait; 'sanlock explain -243' says more\n"
        );
        assert_eq!(
            failure_text("x", "", "nobody knows why", -200, None),
            "sanlock: x: nobody knows why (-200)\n\
             sanlock: x: next: read the daemon's log (/var/log/sanlock.log, 'sanlock client log_dump')\n"
        );
    }
}
