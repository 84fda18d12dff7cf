//! Short-lived threads for whatever waits for an answer of wdmd, started by a thread of their own ([`crate::hirer`]), so that
//! whoever moves the expiries of all lockspaces does not wait for it.

use std::io;

use sanlock_sys::thread;

use super::STACK;
use crate::hirer::Hirer;

/// The way to it.
pub(super) struct Asker(Hirer);

impl Asker {
    /// Starts the thread, which ends with this. It calls `prepare` first, and so does each that it starts: how urgent a thread is, is not inherited.
    ///
    /// # Errors
    /// It is not to be had.
    pub(super) fn start(prepare: impl FnOnce() + Clone + Send + 'static) -> io::Result<Self> {
        let each = prepare.clone();
        Self::start_with(prepare, move |ask| {
            let prepare = each.clone();
            thread::spawn("sanlock-wd-ask", STACK, move || {
                prepare();
                ask();
            })
        })
    }

    /// The same, with the way threads are had.
    pub(super) fn start_with(
        prepare: impl FnOnce() + Send + 'static,
        hire: impl Fn(Box<dyn FnOnce() + Send>) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        Hirer::start_with("sanlock-wd-hire", prepare, move |wanted| hire(wanted.body)).map(Self)
    }

    /// Has `ask` run on a thread of its own, or `failed` if there is none. Waits for nothing.
    pub(super) fn ask(
        &self,
        ask: impl FnOnce() + Send + 'static,
        failed: impl FnOnce(io::Error) + Send + 'static,
    ) {
        self.0.hire("sanlock-wd-ask", STACK, ask, failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{TryRecvError, channel, sync_channel};
    use std::time::Duration;

    #[test]
    fn every_thread_is_prepared() {
        thread_local! {
            static READY: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
        }
        let asker = Asker::start(|| READY.set(true)).unwrap();
        let (told, tells) = channel();
        for _ in 0..3 {
            let told = told.clone();
            asker.ask(move || told.send(READY.get()).unwrap(), |error| panic!("{error}"));
            assert_eq!(tells.recv_timeout(SHORT), Ok(true));
        }
    }

    /// For what happens at once, on a machine that does other things too.
    const SHORT: Duration = Duration::from_secs(30);

    #[test]
    fn nobody_waits_for_a_thread_that_is_long_in_coming() {
        let (come, comes) = sync_channel::<()>(0);
        let asker = Asker::start_with(
            || (),
            move |ask| {
                comes.recv().map_err(|_| io::ErrorKind::OutOfMemory)?;
                ask();
                Ok(())
            },
        )
        .unwrap();
        let (told, tells) = channel();
        for number in 0..3 {
            let (asked, failed) = (told.clone(), told.clone());
            asker.ask(
                move || asked.send((number, None)).unwrap(),
                move |error| failed.send((number, Some(error.kind()))).unwrap(),
            );
        }
        assert_eq!(tells.try_recv(), Err(TryRecvError::Empty), "this is here, and no thread has come");
        come.send(()).unwrap();
        assert_eq!(tells.recv_timeout(SHORT), Ok((0, None)));
        // No more are to be had.
        drop(come);
        for number in 1..3 {
            assert_eq!(tells.recv_timeout(SHORT), Ok((number, Some(io::ErrorKind::OutOfMemory))));
        }
    }
}
