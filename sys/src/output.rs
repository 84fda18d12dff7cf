//! What a program prints.

use std::io::{Error, ErrorKind};

/// Whether what could not be written was not wanted: a reader that has gone away (`| head -1`) has seen what it wanted, and whoever started this without an
/// output wants none.
#[must_use]
pub fn is_unwanted(error: &Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe || error.raw_os_error() == Some(libc::EBADF)
}
