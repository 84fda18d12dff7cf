//! Opening and closing files where a hang harms nobody.
//!
//! `open` on a dead NFS server, `close` on a FUSE file or a device with dirty pages may sleep for as long as the storage is
//! silent, uninterruptibly. Both run on detached threads whose number is bounded; nobody ever joins them. Which opens there may be is
//! the business of [`crate::opens`].
//!
//! Of one path a few descriptors are closed at a time, and further ones queue behind them. So a path whose closes hang holds a few threads,
//! and others go on. What is bounded is threads: of descriptors there wait as many as the process has open on that path. None is given up;
//! all are closed when the storage answers.

mod closes;

use sanlock_sys::thread;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use closes::{Closes, Closing};
pub(crate) use closes::{Place, Told};

use crate::errand::Errand;
use crate::opens::{MAX_BACKGROUND_OPENS, SECOND_OPENS_MAX};

/// Stack of a background thread: it only makes system calls.
const STACK: usize = 64 * 1024;

/// Threads that close files, all of them possibly stuck.
pub const MAX_CLOSERS: usize = 64;

/// Closes of one path under way at a time. On NFS each takes a round trip, and one after the other would not keep up with
/// leases that are taken and given back; four were enough for all paths together.
pub const CLOSERS_OF_A_PATH: usize = 4;

/// Closes under way with which each path still gets the threads it wants. Beyond that only one gets one whose device has no
/// close under way, and the rest waits: a file system that is dead with any number of paths on it leaves half of the threads to
/// others. A disk that works waits only if its device has one that hangs, beyond this number, or with dozens of devices that hang.
pub const CLOSERS_FOR_PATHS: usize = MAX_CLOSERS / 2;

/// How long an idle thread waits for work before it ends.
const IDLE_LINGER: Duration = Duration::from_secs(2);

static CLOSERS: Pool<Closes> = Pool::new("sanlock-close", MAX_CLOSERS, Closes::new());
// As many as there may be opens: none waits for another one that hangs.
static OPENERS: Pool<VecDeque<Errand>> =
    Pool::new("sanlock-open", MAX_BACKGROUND_OPENS + SECOND_OPENS_MAX, VecDeque::new());

/// Closes `fd` soon, on another thread. Never blocks.
pub(crate) fn close(place: Place, fd: OwnedFd, told: Option<Told>) {
    let mut closers = CLOSERS.lock();
    closers.work.add(place, fd, told);
    staff_closers(closers);
}

/// Whether descriptors wait to be closed for which no thread was to be had.
static CLOSERS_WANTED: AtomicBool = AtomicBool::new(false);

/// Without a thread what is ready is closed with the next close, or when whoever works on a disk comes by ([`look_after_closes`]).
fn staff_closers(closers: MutexGuard<'static, State<Closes>>) {
    if CLOSERS.staff(closers).is_err() {
        CLOSERS_WANTED.store(true, Ordering::Relaxed);
    }
}

/// Closes what waits for want of a thread, if there is one by now. Costs nothing otherwise; never blocks.
pub(crate) fn look_after_closes() {
    if CLOSERS_WANTED.load(Ordering::Relaxed) && CLOSERS_WANTED.swap(false, Ordering::Relaxed) {
        staff_closers(CLOSERS.lock());
    }
}

/// For a close that is under way, by whoever has this.
pub(crate) struct ClosePermit(Option<Place>);

/// `None`: others of that path wait, or many are under way.
pub(crate) fn close_here(place: Place) -> Option<ClosePermit> {
    CLOSERS.lock().work.begin_elsewhere(&place).then(|| ClosePermit(Some(place)))
}

impl Drop for ClosePermit {
    fn drop(&mut self) {
        if let Some(place) = self.0.take() {
            let mut closers = CLOSERS.lock();
            closers.work.end(&place);
            // What has queued behind it meanwhile.
            staff_closers(closers);
        }
    }
}

/// Carries out an open, one of the [`MAX_BACKGROUND_OPENS`] or [`SECOND_OPENS_MAX`], on another thread. Never blocks. `false`: there is no thread to be had, and it
/// will not happen.
pub(crate) fn open(errand: Errand) -> bool {
    let mut openers = OPENERS.lock();
    openers.work.push_back(errand);
    match OPENERS.staff(openers) {
        Ok(()) => true,
        Err(mut openers) => {
            let last = openers.work.pop_back();
            drop(openers);
            drop(last);
            false
        }
    }
}

/// What a pool has to do.
trait Work: Send {
    type Piece: Send;
    /// What is left of a piece that was carried out.
    type Done;

    /// Pieces that somebody could begin with.
    fn ready(&self) -> usize;
    fn next(&mut self) -> Option<Self::Piece>;
    /// May block.
    fn carry_out(piece: Self::Piece) -> Self::Done;
    fn end(&mut self, done: Self::Done);
}

impl Work for VecDeque<Errand> {
    type Piece = Errand;
    type Done = ();

    fn ready(&self) -> usize {
        self.len()
    }

    fn next(&mut self) -> Option<Errand> {
        self.pop_front()
    }

    fn carry_out(piece: Errand) {
        piece.run();
    }

    fn end(&mut self, (): ()) {}
}

impl Work for Closes {
    type Piece = Closing;
    type Done = Place;

    fn ready(&self) -> usize {
        self.ready()
    }

    fn next(&mut self) -> Option<Closing> {
        self.next()
    }

    fn carry_out(closing: Closing) -> Place {
        drop(closing.fd);
        drop(closing.told);
        closing.place
    }

    fn end(&mut self, place: Place) {
        self.end(&place);
    }
}

struct State<W> {
    work: W,
    threads: usize,
    /// Those of them that wait for work, or were started and have not looked for it yet.
    idle: usize,
}

/// Threads for one kind of work, which come when there is more of it than of them, and go when there is none.
struct Pool<W: 'static> {
    name: &'static str,
    max: usize,
    state: Mutex<State<W>>,
    wake: Condvar,
}

impl<W: Work> Pool<W> {
    const fn new(name: &'static str, max: usize, work: W) -> Self {
        let state = Mutex::new(State { work, threads: 0, idle: 0 });
        Self { name, max, state, wake: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that somebody takes what became ready last.
    ///
    /// # Errors
    /// No thread is to be had, and those that there are may all be stuck.
    fn staff<'a>(&'static self, mut state: MutexGuard<'a, State<W>>) -> Result<(), MutexGuard<'a, State<W>>> {
        let ready = state.work.ready();
        if ready == 0 {
            return Ok(());
        }
        if state.idle >= ready || state.threads >= self.max {
            drop(state);
            self.wake.notify_one();
            return Ok(());
        }
        if !spawn(self.name, || self.serve()) {
            self.wake.notify_one();
            return Err(state);
        }
        state.threads += 1;
        state.idle += 1;
        Ok(())
    }

    /// Body of a thread.
    fn serve(&'static self) {
        let mut state = self.lock();
        loop {
            state.idle -= 1;
            while let Some(piece) = state.work.next() {
                // More than one may have become ready at once, and this one may hang.
                let _ = self.staff(state);
                let done = W::carry_out(piece);
                state = self.lock();
                state.work.end(done);
            }
            state.idle += 1;
            let waited;
            (state, waited) =
                self.wake.wait_timeout(state, IDLE_LINGER).unwrap_or_else(PoisonError::into_inner);
            if waited.timed_out() && state.work.ready() == 0 {
                state.idle -= 1;
                state.threads -= 1;
                return;
            }
        }
    }
}

/// Starts a detached thread; false if the system has none to give.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> bool {
    thread::spawn(name, STACK, body).is_ok()
}
