//! Signals as something to read. No signal is blocked: `main` has taken back what this program was started with, so scripts inherit
//! nothing.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// The handlers, for the rest of the process's life.
pub(crate) struct Signals {
    stop: UnixStream,
    rescan: UnixStream,
}

impl Signals {
    /// # Errors
    ///
    /// No descriptor is to be had.
    pub(crate) fn install() -> io::Result<Self> {
        let (stop, stopper) = UnixStream::pair()?;
        let (rescan, rescanner) = UnixStream::pair()?;
        stop.set_nonblocking(true)?;
        rescan.set_nonblocking(true)?;
        pipe::register(SIGTERM, stopper.try_clone()?)?;
        pipe::register(SIGINT, stopper)?;
        pipe::register(SIGHUP, rescanner)?;
        Ok(Self { stop, rescan })
    }

    /// Without handlers: a byte written to the stream counts as SIGTERM.
    #[cfg(test)]
    pub(crate) fn pretended() -> io::Result<(Self, UnixStream)> {
        let (stop, stopper) = UnixStream::pair()?;
        let (rescan, rescanner) = UnixStream::pair()?;
        stop.set_nonblocking(true)?;
        rescan.set_nonblocking(true)?;
        // Its end would count as a signal for ever.
        std::mem::forget(rescanner);
        Ok((Self { stop, rescan }, stopper))
    }

    /// Readable when SIGTERM or SIGINT came.
    pub(crate) fn stop(&self) -> BorrowedFd<'_> {
        self.stop.as_fd()
    }

    /// Readable when SIGHUP came.
    pub(crate) fn rescan(&self) -> BorrowedFd<'_> {
        self.rescan.as_fd()
    }

    pub(crate) fn take_stop(&mut self) {
        drain(&mut self.stop);
    }

    pub(crate) fn take_rescan(&mut self) {
        drain(&mut self.rescan);
    }
}

fn drain(stream: &mut UnixStream) {
    let mut bytes = [0; 64];
    while let Ok(1..) = stream.read(&mut bytes) {}
}
