//! Threads for whoever cannot wait for them: one thread starts them.
//!
//! Where memory is short, a start may take seconds. The front and others on whom all lockspaces depend hand over what is to be started, and go
//! on; what becomes of it if there is no thread they hear as they hear of its end otherwise.
//!
//! Nothing here bounds how much waits: who hands something over has counted it before, as if it were begun (see each place that calls
//! [`Hirer::hire`]). Of the front these are one join, one command on an index and one looking for requests for each lockspace, and one request or tool for
//! each connection, or each that was abandoned, at most.

use std::fmt;
use std::io;
use std::sync::mpsc;

use sanlock_sys::thread;

/// Stack of the thread.
const STACK: usize = 96 * 1024;

/// What a thread does.
pub(crate) type Body = Box<dyn FnOnce() + Send>;

/// A thread that is to be started.
pub(crate) struct Wanted {
    pub(crate) name: String,
    /// Bytes of its stack.
    pub(crate) stack: usize,
    pub(crate) body: Body,
}

impl Wanted {
    /// Starts it.
    ///
    /// # Errors
    /// It is not to be had.
    pub(crate) fn start(self) -> io::Result<()> {
        thread::spawn(&self.name, self.stack, self.body)
    }
}

/// Who is told that it is not to be had.
type Failed = Box<dyn FnOnce(io::Error) + Send>;

/// The way to the thread, which ends with this once all has been begun that was handed over.
pub(crate) struct Hirer(mpsc::Sender<(Wanted, Failed)>);

impl Hirer {
    /// Starts a thread of this name, which calls `prepare` first.
    ///
    /// # Errors
    /// It is not to be had.
    pub(crate) fn start(name: &str, prepare: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        Self::start_with(name, prepare, Wanted::start)
    }

    /// The same, with the way threads are had.
    ///
    /// # Errors
    /// As [`Hirer::start`].
    pub(crate) fn start_with(
        name: &str,
        prepare: impl FnOnce() + Send + 'static,
        start: impl Fn(Wanted) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let (wants, wanted) = mpsc::channel::<(Wanted, Failed)>();
        thread::spawn(name, STACK, move || {
            prepare();
            for (wanted, failed) in wanted {
                if let Err(error) = start(wanted) {
                    failed(error);
                }
            }
        })?;
        Ok(Self(wants))
    }

    /// Has `body` run on a thread of its own, with this name and a stack of so many bytes; or, if there is none, drops it and calls `failed`, on another
    /// thread. Exactly one of them is called. Waits for nothing.
    pub(crate) fn hire(
        &self,
        name: &str,
        stack: usize,
        body: impl FnOnce() + Send + 'static,
        failed: impl FnOnce(io::Error) + Send + 'static,
    ) {
        let wanted = Wanted { name: name.to_owned(), stack, body: Box::new(body) };
        if let Err(mpsc::SendError((_, failed))) = self.0.send((wanted, Box::new(failed))) {
            failed(io::ErrorKind::BrokenPipe.into());
        }
    }
}

impl fmt::Debug for Hirer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hirer")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, TryRecvError, channel};
    use std::time::Duration;

    /// For what happens at once, on a machine that does other things too.
    pub(crate) const SHORT: Duration = Duration::from_secs(30);

    /// A start waits until it is said whether there is a thread. Without the other end there is none.
    pub(crate) fn gated() -> (Hirer, Sender<bool>) {
        let (come, comes) = channel();
        let start = move |wanted: Wanted| {
            if comes.recv() == Ok(true) {
                wanted.start()
            } else {
                Err(io::Error::from_raw_os_error(libc::EAGAIN))
            }
        };
        (Hirer::start_with("gated-hire", || (), start).unwrap(), come)
    }

    #[test]
    fn nobody_waits_for_a_thread_that_is_long_in_coming() {
        let (hirer, come) = gated();
        let (told, tells) = channel();
        for number in 0..3 {
            let (begun, failed) = (told.clone(), told.clone());
            let body = move || begun.send((number, None, thread::name())).unwrap();
            let failed =
                move |error: io::Error| failed.send((number, error.raw_os_error(), thread::name())).unwrap();
            hirer.hire(&format!("hired-{number}"), 64 << 10, body, failed);
        }
        assert_eq!(tells.try_recv(), Err(TryRecvError::Empty), "this is here, and no thread has come");
        come.send(true).unwrap();
        assert_eq!(tells.recv_timeout(SHORT), Ok((0, None, Some(c"hired-0".to_owned()))));
        // No more are to be had.
        drop(come);
        for number in 1..3 {
            let told = (number, Some(libc::EAGAIN), Some(c"gated-hire".to_owned()));
            assert_eq!(tells.recv_timeout(SHORT), Ok(told));
        }
        drop((hirer, told));
        assert!(tells.recv_timeout(SHORT).is_err(), "and nobody is told twice");
    }
}
