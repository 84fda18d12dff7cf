//! SIGTERM, SIGINT and SIGHUP as something to read (command-line.md 9.2).

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::{pipe, unregister};

/// The handlers, until dropped.
#[derive(Debug)]
pub(super) struct Signals {
    end: UnixStream,
    handlers: Vec<SigId>,
}

impl Signals {
    /// # Errors
    /// No descriptor is to be had.
    pub(super) fn install() -> io::Result<Self> {
        let (end, sender) = UnixStream::pair()?;
        end.set_nonblocking(true)?;
        let mut signals = Self { end, handlers: Vec::new() };
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signals.handlers.push(pipe::register(signal, sender.try_clone()?)?);
        }
        Ok(signals)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    /// Whether any signal came.
    pub(super) fn take(&mut self) -> bool {
        let mut any = false;
        let mut bytes = [0; 64];
        while let Ok(1..) = self.end.read(&mut bytes) {
            any = true;
        }
        any
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for handler in self.handlers.drain(..) {
            unregister(handler);
        }
    }
}
