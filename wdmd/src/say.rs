//! Lines on stdout and stderr. A reader that has gone, or a file system that is full, is no reason to end before what has to be done
//! is done, so nothing here fails or panics, as `println!` and `eprintln!` do; the lints forbid those in this program.

use std::fmt::Display;
use std::io::{self, Write};

/// A line on stdout, which is seen at once.
pub(crate) fn out(text: impl Display) {
    let mut stdout = io::stdout().lock();
    // Nobody is there to be told, here and below.
    let _ = stdout.write_all(format!("{text}\n").as_bytes()).and_then(|()| stdout.flush());
}

/// A line on stderr.
pub(crate) fn err(text: impl Display) {
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}
