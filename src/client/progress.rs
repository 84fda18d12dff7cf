//! Signs of life while the daemon takes its time (command-line.md 18.2 #24, #25).

use crate::output::note;
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Silence after which the first sign of life is given, and between two of them.
const INTERVAL: Duration = Duration::from_secs(5);

/// Runs `wait`; on a terminal, says every few seconds what is being waited for.
pub(super) fn with_progress<T>(action: &str, what: &str, wait: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return wait();
    }
    std::thread::scope(|scope| {
        let (finished, watch) = channel::<()>();
        scope.spawn(move || {
            let start = Instant::now();
            while let Err(RecvTimeoutError::Timeout) = watch.recv_timeout(INTERVAL) {
                note(action, &format!("{what}, {} s so far", start.elapsed().as_secs()));
            }
        });
        let outcome = wait();
        drop(finished);
        outcome
    })
}
