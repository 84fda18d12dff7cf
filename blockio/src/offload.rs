//! Opening and closing files where a hang harms nobody.
//!
//! `open` on a dead NFS server, `close` on a FUSE file or a device with dirty pages may sleep for as long as the storage is
//! silent, uninterruptibly. Both run on detached threads whose number is bounded; nobody ever joins them.

use std::collections::VecDeque;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::errand::Errand;
use crate::opens::MAX_BACKGROUND_OPENS;

/// Stack of a background thread: it only makes system calls.
const STACK: usize = 64 * 1024;

/// Threads that close files, all of them possibly stuck.
const MAX_CLOSERS: usize = 4;

/// Descriptors waiting to be closed while all closers are stuck; beyond that a descriptor stays open for good.
const MAX_UNCLOSED: usize = 256;

/// How long an idle thread waits for work before it ends.
const IDLE_LINGER: Duration = Duration::from_secs(2);

static CLOSERS: Pool<OwnedFd> = Pool::new("sanlock-close", MAX_CLOSERS, drop);
// As many as there may be opens: none waits for another one that hangs.
static OPENERS: Pool<Errand> = Pool::new("sanlock-open", MAX_BACKGROUND_OPENS, Errand::run);

/// Closes `fd` soon, on another thread. Never blocks.
pub(crate) fn close(fd: OwnedFd) {
    let mut closers = CLOSERS.lock();
    if closers.queue.len() >= MAX_UNCLOSED {
        // Leaked on purpose: closing here could hang, and the process has 256 descriptors on dead storage already.
        mem::forget(fd);
        return;
    }
    closers.queue.push_back(fd);
    // Without a thread it is closed with the next one.
    let _ = CLOSERS.staff(closers);
}

/// Carries out an open, one of the [`MAX_BACKGROUND_OPENS`], on another thread. Never blocks. `false`: there is no thread to be had, and it
/// will not happen.
pub(crate) fn open(errand: Errand) -> bool {
    let mut openers = OPENERS.lock();
    openers.queue.push_back(errand);
    match OPENERS.staff(openers) {
        Ok(()) => true,
        Err(mut openers) => {
            let last = openers.queue.pop_back();
            drop(openers);
            drop(last);
            false
        }
    }
}

struct State<T> {
    queue: VecDeque<T>,
    threads: usize,
    idle: usize,
}

/// Threads for one kind of work, which come when there is more of it than of them, and go when there is none.
struct Pool<T: 'static> {
    name: &'static str,
    max: usize,
    work: fn(T),
    state: Mutex<State<T>>,
    wake: Condvar,
}

impl<T: Send> Pool<T> {
    const fn new(name: &'static str, max: usize, work: fn(T)) -> Self {
        let state = Mutex::new(State { queue: VecDeque::new(), threads: 0, idle: 0 });
        Self { name, max, work, state, wake: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that somebody takes what was put into the queue last.
    ///
    /// # Errors
    /// No thread is to be had, and those that there are may all be stuck.
    fn staff<'a>(&'static self, mut state: MutexGuard<'a, State<T>>) -> Result<(), MutexGuard<'a, State<T>>> {
        if state.idle >= state.queue.len() || state.threads >= self.max {
            drop(state);
            self.wake.notify_one();
            return Ok(());
        }
        if !spawn(self.name, || self.serve()) {
            self.wake.notify_one();
            return Err(state);
        }
        state.threads += 1;
        Ok(())
    }

    /// Body of a thread.
    fn serve(&self) {
        let mut state = self.lock();
        loop {
            while let Some(piece) = state.queue.pop_front() {
                drop(state);
                (self.work)(piece);
                state = self.lock();
            }
            state.idle += 1;
            let waited;
            (state, waited) =
                self.wake.wait_timeout(state, IDLE_LINGER).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            if waited.timed_out() && state.queue.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

/// Starts a detached thread; false if the system has none to give.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> bool {
    thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(body).is_ok()
}
