//! What a command waits for, and for how long still, on stderr while it waits (command-line.md 18.2 #24, #25).
//!
//! On a terminal one line that is written anew every second and gone at the end; with `--progress` elsewhere plain lines; nothing for
//! scripts, which expect the original's silence.

pub(crate) mod join;

use crate::output::{note, print_error};
use sanlock_sys::terminal;
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What is over by then needs no sign of life.
const FIRST: Duration = Duration::from_secs(1);
/// Between two of them on a line that is written anew.
const ON_LINE: Duration = Duration::from_secs(1);
/// Between two lines.
const BETWEEN_LINES: Duration = Duration::from_secs(10);
/// Columns of a terminal that does not say how many it has.
const WIDTH: usize = 80;
/// Writes the line anew: to its beginning, and what was longer before is wiped out.
const REWIND: &str = "\r\x1b[K";

/// How signs of life are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signs {
    /// Not at all.
    None,
    /// On one line of a terminal that has so many columns.
    OnLine(usize),
    /// A line each.
    Lines,
}

impl Signs {
    /// As stderr is. `asked`: `--progress` was given.
    pub(crate) fn wanted(asked: bool) -> Self {
        let stderr = std::io::stderr();
        let moves = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
        match (stderr.is_terminal(), moves) {
            (true, true) => Self::OnLine(terminal::width(&stderr).unwrap_or(WIDTH)),
            (true, false) => Self::Lines,
            (false, _) if asked => Self::Lines,
            (false, _) => Self::None,
        }
    }

    /// Whether any are given: what they say need not be found out otherwise.
    pub(crate) fn any(self) -> bool {
        self != Self::None
    }
}

/// What the two threads share.
#[derive(Default)]
struct Shown {
    /// Nothing is said any more.
    over: bool,
    /// The terminal's line has something on it.
    line: bool,
}

fn lock(shown: &Mutex<Shown>) -> MutexGuard<'_, Shown> {
    shown.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `wait`, and says meanwhile what `tell` makes of the time that has passed.
///
/// `tell` runs in a thread of its own and may ask disks and daemons: nobody waits for it, and what it says too late is not shown.
pub(crate) fn show<T>(
    signs: Signs,
    action: &str,
    tell: impl FnMut(Duration) -> String + Send + 'static,
    wait: impl FnOnce() -> T,
) -> T {
    if !signs.any() {
        return wait();
    }
    let shown = Arc::new(Mutex::new(Shown::default()));
    let (finished, watch) = channel::<()>();
    let (action, mut tell) = (action.to_owned(), tell);
    let (start, ours) = (Instant::now(), Arc::clone(&shown));
    let teller = move || {
        let mut pause = FIRST;
        while watch.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            let text = tell(start.elapsed());
            let mut shown = lock(&ours);
            if shown.over {
                return;
            }
            match signs {
                Signs::OnLine(width) => {
                    shown.line = true;
                    print_error(format!("{REWIND}{}", cut(&format!("sanlock: {action}: {text}"), width)));
                    pause = ON_LINE;
                }
                Signs::Lines | Signs::None => {
                    note(&action, &text);
                    pause = BETWEEN_LINES;
                }
            }
        }
    };
    // Without a thread there are no signs; what is waited for comes all the same.
    let _teller = std::thread::Builder::new().name("progress".to_owned()).spawn(teller);
    let outcome = wait();
    let mut shown = lock(&shown);
    shown.over = true;
    if shown.line {
        print_error(REWIND);
    }
    drop(finished);
    outcome
}

/// What fits a line: one character less than it has columns, since the last one would begin the next line on some terminals.
fn cut(text: &str, width: usize) -> String {
    let room = width.saturating_sub(1);
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(room.saturating_sub(3)).collect();
    cut.push_str("...");
    cut
}

/// `N s so far: WHAT`. The seconds come first: a narrow terminal cuts the end off.
pub(crate) fn so_far(what: &str) -> impl FnMut(Duration) -> String + Send + 'static {
    let what = what.to_owned();
    move |passed| passed_since(&what, passed.as_secs())
}

/// The same at one moment.
pub(crate) fn passed_since(what: &str, passed: u64) -> String {
    format!("{passed} s so far: {what}")
}

/// `N s left: WHAT`, and when these are over how long it has been.
pub(crate) fn left(what: &str, seconds: u64, passed: u64) -> String {
    match seconds.checked_sub(passed) {
        Some(left) if left > 0 => format!("{left} s left: {what}"),
        _ => passed_since(&format!("{what}; any moment now"), passed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_the_terminal() {
        for (width, expected) in [(80, "waiting"), (8, "waiting"), (7, "wai..."), (1, "..."), (0, "...")] {
            assert_eq!(cut("waiting", width), expected, "{width}");
        }
    }

    #[test]
    fn seconds_are_counted_down_and_then_up() {
        assert_eq!(left("x", 10, 3), "7 s left: x");
        assert_eq!(left("x", 10, 10), "10 s so far: x; any moment now");
        assert_eq!(so_far("x")(Duration::from_millis(2900)), "2 s so far: x");
    }

    #[test]
    fn nobody_waits_for_what_is_told() {
        let (entered, told) = channel();
        let tell = move |_: Duration| {
            let _ = entered.send(());
            std::thread::sleep(Duration::from_secs(3600));
            String::new()
        };
        // Begins to tell after a second, and would take an hour.
        assert_eq!(show(Signs::Lines, "test", tell, || told.recv_timeout(Duration::from_secs(60))), Ok(()));
        let never = |_: Duration| -> String { panic!("nothing is to be said") };
        assert_eq!(show(Signs::None, "test", never, || 5), 5);
    }
}
