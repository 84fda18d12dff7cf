//! Signals as something to read and to look at. No signal is blocked: `main` has taken back what this program was started with, so scripts
//! inherit nothing.
//!
//! A handler runs on any thread. One that executes a script has no descriptor of this process, so what the handler sends there is lost: it wakes the
//! loop, and no more. That the signal came is kept in memory, which is looked at every turn, and turns come often while a script is being executed.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::pipe;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The handlers, for the rest of the process's life.
pub(crate) struct Signals {
    wakes: UnixStream,
    /// SIGTERM or SIGINT came.
    stop: Arc<AtomicBool>,
    /// SIGHUP came.
    rescan: Arc<AtomicBool>,
}

impl Signals {
    /// # Errors
    ///
    /// No descriptor is to be had.
    pub(crate) fn install() -> io::Result<Self> {
        let (signals, waker) = Self::new()?;
        for (signal, came) in [(SIGTERM, &signals.stop), (SIGINT, &signals.stop), (SIGHUP, &signals.rescan)] {
            // In this order: whoever is woken finds it noted.
            flag::register(signal, Arc::clone(came))?;
            pipe::register(signal, waker.try_clone()?)?;
        }
        Ok(signals)
    }

    /// Without handlers, and what wakes.
    fn new() -> io::Result<(Self, UnixStream)> {
        let (wakes, waker) = UnixStream::pair()?;
        wakes.set_nonblocking(true)?;
        Ok((Self { wakes, stop: Arc::default(), rescan: Arc::default() }, waker))
    }

    /// Forgets what has woken the loop. To be called before it is looked at what came.
    pub(crate) fn hear(&mut self) {
        let mut bytes = [0; 64];
        while let Ok(1..) = self.wakes.read(&mut bytes) {}
    }

    /// Whether SIGTERM or SIGINT came since the last time.
    pub(crate) fn take_stop(&self) -> bool {
        self.stop.swap(false, Ordering::SeqCst)
    }

    /// Whether SIGHUP came since the last time.
    pub(crate) fn take_rescan(&self) -> bool {
        self.rescan.swap(false, Ordering::SeqCst)
    }
}

/// Readable when a signal came, unless a thread without this process's descriptors handled it.
impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakes.as_fd()
    }
}

/// Signals of a test.
#[cfg(test)]
pub(crate) mod pretended {
    use super::*;
    use std::io::Write;

    /// What a handler does. SIGTERM comes at the latest when this is dropped.
    pub(crate) struct Handler {
        waker: UnixStream,
        stop: Arc<AtomicBool>,
    }

    impl Handler {
        /// SIGTERM.
        pub(crate) fn terminate(&self) {
            self.terminate_unheard();
            // Nobody hears it any more if the loop has ended.
            let _ = (&self.waker).write_all(b"x");
        }

        /// SIGTERM that a thread handles which has no descriptor of this process.
        pub(crate) fn terminate_unheard(&self) {
            self.stop.store(true, Ordering::SeqCst);
        }
    }

    impl Drop for Handler {
        fn drop(&mut self) {
            self.terminate();
        }
    }

    /// Signals that only the handler that is returned beside them sends.
    pub(crate) fn signals() -> io::Result<(Signals, Handler)> {
        let (signals, waker) = Signals::new()?;
        // Its end would wake for ever.
        std::mem::forget(waker.try_clone()?);
        let handler = Handler { waker, stop: Arc::clone(&signals.stop) };
        Ok((signals, handler))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{Signal, raise};
    use sanlock_sys::child::take_default;
    use sanlock_sys::process::forget_descriptors_from;

    const ALL: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

    #[test]
    fn a_signal_that_is_handled_by_a_thread_without_descriptors_is_seen() {
        let mut signals = Signals::install().unwrap();
        for signal in ALL {
            let stops = signal != Signal::SIGHUP;
            let handled = std::thread::spawn(move || {
                forget_descriptors_from(3).unwrap();
                // To this thread.
                raise(signal).unwrap();
            });
            handled.join().unwrap();
            assert_eq!((signals.take_stop(), signals.take_rescan()), (stops, !stops), "{signal}");
            // Of one that was heard there is a byte, and it counts once.
            raise(signal).unwrap();
            assert_eq!(signals.wakes.read(&mut [0; 2]).unwrap(), 1, "{signal}");
            assert_eq!((signals.take_stop(), signals.take_rescan()), (stops, !stops), "{signal}");
            signals.hear();
            assert_eq!((signals.take_stop(), signals.take_rescan()), (false, false), "{signal}");
        }
        for signal in ALL {
            take_default(signal).unwrap();
        }
    }
}
