//! Threads for what may wait for a disk, started by a thread of their own: where memory is short a start may take long, and the loop, which has
//! a device to ping, does not wait for it.

use super::MAX_SCRIPTS;
use sanlock_sys::thread;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// Jobs that may wait for a thread: each script has at most one, and so has the search for scripts.
const MOST_JOBS: usize = MAX_SCRIPTS + 1;
/// Stack of a thread that does a job.
const STACK: usize = 256 * 1024;
/// Stack of the one that starts them.
const HIRING_STACK: usize = 64 * 1024;

/// What is to be done, and what becomes of it if there is no thread for it.
struct Job {
    name: &'static str,
    work: Box<dyn FnOnce() + Send>,
    failed: Box<dyn FnOnce(io::Error) + Send>,
}

/// The way to that thread, which ends with this. What waits for it then is still done.
pub(super) struct Hirer(SyncSender<Job>);

impl Hirer {
    /// # Errors
    ///
    /// The thread is not to be had.
    pub(super) fn start() -> io::Result<Self> {
        Self::start_with(|name, work| thread::spawn(name, STACK, work))
    }

    /// The same, with the way threads are had.
    pub(super) fn start_with(
        hire: impl Fn(&str, Box<dyn FnOnce() + Send>) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let (jobs, queue) = sync_channel::<Job>(MOST_JOBS);
        thread::spawn("wdmd-hire", HIRING_STACK, move || {
            for Job { name, work, failed } in queue {
                if let Err(error) = hire(name, work) {
                    failed(error);
                }
            }
        })?;
        Ok(Self(jobs))
    }

    /// Has `work` done on a thread of this name. What that comes back with, or `failed` if there is none. Waits for nothing.
    pub(super) fn hire<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce() -> T + Send + 'static,
        failed: impl FnOnce(io::Error) -> T + Send + 'static,
    ) -> Receiver<T> {
        // Room for the one that comes; nobody waits for it any more when the daemon ends.
        let (done, result) = sync_channel(1);
        let instead = done.clone();
        let job = Job {
            name,
            work: Box::new(move || drop(done.send(work()))),
            failed: Box::new(move |error| drop(instead.send(failed(error)))),
        };
        match self.0.try_send(job) {
            Ok(()) => {}
            Err(TrySendError::Full(job)) => (job.failed)(io::ErrorKind::WouldBlock.into()),
            Err(TrySendError::Disconnected(job)) => (job.failed)(io::ErrorKind::BrokenPipe.into()),
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::TryRecvError;
    use std::time::Duration;

    /// For what happens at once, on a machine that does other things too.
    const SHORT: Duration = Duration::from_secs(30);

    /// One who has a thread for each `()` that is sent, waits for it before, and has no more once the sender is gone.
    fn slow() -> (Hirer, SyncSender<()>) {
        let (come, comes) = sync_channel::<()>(0);
        let hirer = Hirer::start_with(move |name, work| {
            comes.recv().map_err(|_| io::ErrorKind::OutOfMemory)?;
            thread::spawn(name, STACK, work)
        });
        (hirer.unwrap(), come)
    }

    #[test]
    fn nobody_waits_for_a_thread_that_is_long_in_coming() {
        let (hirer, come) = slow();
        let hire =
            |number| hirer.hire("wdmd-test", move || Ok((number, thread::name())), |error| Err(error.kind()));
        let results: Vec<_> = (0..3).map(hire).collect();
        assert!(
            matches!(results[0].try_recv(), Err(TryRecvError::Empty)),
            "this is here, and no thread has come"
        );
        come.send(()).unwrap();
        let (number, name) = results[0].recv_timeout(SHORT).unwrap().unwrap();
        assert_eq!((number, name.as_deref()), (0, Some(c"wdmd-test")));
        // No more are to be had.
        drop(come);
        for result in &results[1..] {
            assert_eq!(result.recv_timeout(SHORT).unwrap(), Err(io::ErrorKind::OutOfMemory));
        }
    }

    #[test]
    fn what_waits_for_a_thread_when_the_daemon_stops_is_done() {
        let (hirer, come) = slow();
        let results = [1, 2].map(|number| hirer.hire("wdmd-test", move || number, |_| 0));
        drop(hirer);
        for (result, number) in results.iter().zip(1..) {
            come.send(()).unwrap();
            assert_eq!(result.recv_timeout(SHORT), Ok(number));
        }
        // The thread has ended, and has what it took threads from no more.
        assert!(come.send(()).is_err());
    }

    #[test]
    fn more_than_scripts_can_ask_for_is_refused_at_once() {
        let (hirer, come) = slow();
        // One may have been taken, and waits for its thread.
        let results: Vec<_> =
            (0..MOST_JOBS + 2).map(|_| hirer.hire("wdmd-test", || None, |e| Some(e.kind()))).collect();
        assert!(results.iter().any(|result| result.try_recv() == Ok(Some(io::ErrorKind::WouldBlock))));
        drop(come);
        assert_eq!(results[0].recv_timeout(SHORT), Ok(Some(io::ErrorKind::OutOfMemory)));
    }

    #[test]
    fn a_job_that_fails_in_its_thread_is_seen_to() {
        let hirer = Hirer::start().unwrap();
        let result = hirer.hire("wdmd-test", || std::panic::resume_unwind(Box::new("on purpose")), |_| ());
        assert_eq!(result.recv_timeout(SHORT), Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
    }
}
