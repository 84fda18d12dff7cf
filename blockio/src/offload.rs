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

static CLOSERS: Pool<Closes> = Pool::new("sanlock-close", MAX_CLOSERS, Closes::new(), hire);
// As many as there may be opens: none waits for another one that hangs.
static OPENERS: Pool<Opens> =
    Pool::new("sanlock-open", MAX_BACKGROUND_OPENS + SECOND_OPENS_MAX, Opens::new(), hire);

/// Closes `fd` soon, on another thread. Never blocks.
pub(crate) fn close(place: Place, fd: OwnedFd, told: Vec<Told>) {
    let mut closers = CLOSERS.lock();
    closers.work.add(place, fd, told);
    staff_closers(closers);
}

/// Without a thread what is ready is closed with the next close, or when whoever works on a disk comes by ([`look_after_closes`]).
fn staff_closers(closers: MutexGuard<'static, State<Closes>>) {
    let _ = CLOSERS.staff(closers);
}

/// Whether descriptors wait for [`look_after_closes`], which whoever may wait for a thread comes by for.
#[must_use]
pub fn closes_wait() -> bool {
    CLOSERS.short.load(Ordering::Relaxed)
}

/// Closes what waits for want of a thread, if there is one by now. Costs nothing otherwise; never blocks.
pub(crate) fn look_after_closes() {
    if CLOSERS.short.load(Ordering::Relaxed) && CLOSERS.short.swap(false, Ordering::Relaxed) {
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
    let number = openers.work.add(errand);
    let Err(mut openers) = OPENERS.staff(openers) else { return true };
    // Whoever came meanwhile counted on that thread, too.
    let idle = openers.idle;
    let dropped = openers.work.drop_beyond(idle);
    drop(openers);
    dropped.iter().all(|(other, _)| *other != number)
}

/// Opens that wait, numbered.
struct Opens {
    waiting: VecDeque<(u64, Errand)>,
    added: u64,
}

impl Opens {
    const fn new() -> Self {
        Self { waiting: VecDeque::new(), added: 0 }
    }

    fn add(&mut self, errand: Errand) -> u64 {
        self.added += 1;
        self.waiting.push_back((self.added, errand));
        self.added
    }

    /// Takes away all but the first ones: as many as there are threads to come for them. Dropped, each tells those who wait for it.
    fn drop_beyond(&mut self, threads: usize) -> VecDeque<(u64, Errand)> {
        self.waiting.split_off(threads.min(self.waiting.len()))
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

impl Work for Opens {
    type Piece = Errand;
    type Done = ();

    fn ready(&self) -> usize {
        self.waiting.len()
    }

    fn next(&mut self) -> Option<Errand> {
        self.waiting.pop_front().map(|(_, errand)| errand)
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
    /// Whether something may wait for which no thread was to be had, whoever noticed.
    short: AtomicBool,
    /// Starts a thread; `false` if there is none.
    hire: fn(&'static str, Body) -> bool,
}

/// What a thread of a pool does.
type Body = Box<dyn FnOnce() + Send>;

impl<W: Work> Pool<W> {
    const fn new(name: &'static str, max: usize, work: W, hire: fn(&'static str, Body) -> bool) -> Self {
        let state = Mutex::new(State { work, threads: 0, idle: 0 });
        Self { name, max, state, wake: Condvar::new(), short: AtomicBool::new(false), hire }
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
        // Without the lock, for which threads wait that may not: where memory is short one more is long in coming.
        state.threads += 1;
        state.idle += 1;
        drop(state);
        if (self.hire)(self.name, Box::new(|| self.serve())) {
            return Ok(());
        }
        self.short.store(true, Ordering::Relaxed);
        let mut state = self.lock();
        state.threads -= 1;
        state.idle -= 1;
        self.wake.notify_one();
        Err(state)
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

fn hire(name: &'static str, body: Body) -> bool {
    spawn(name, body)
}

/// Starts a detached thread; false if the system has none to give.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> bool {
    thread::spawn(name, STACK, body).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{self, Receiver, Sender};

    /// For what happens at once, on a machine that does other things too.
    const SHORT: Duration = Duration::from_secs(30);

    type Gate = (Sender<()>, Receiver<bool>);
    /// Tells that a thread is wanted, and whether there is one.
    static GATE: Mutex<Option<Gate>> = Mutex::new(None);
    static POOL: Pool<Opens> = Pool::new("test", 8, Opens::new(), hire_by_gate);

    fn hire_by_gate(name: &'static str, body: Body) -> bool {
        let gate = GATE.lock().unwrap().take();
        let Some((wanted, is_there)) = gate else { return spawn(name, body) };
        wanted.send(()).unwrap();
        is_there.recv_timeout(SHORT).unwrap() && spawn(name, body)
    }

    #[test]
    fn nobody_waits_for_a_thread_that_is_long_in_coming() {
        let (told, tells) = mpsc::channel();
        let add = |number: u32| {
            let told = told.clone();
            let mut state = POOL.lock();
            state.work.add(Errand::new(move || told.send(number).unwrap()));
            state
        };
        let gate = || {
            let ((wanted, wants), (there, is_there)) = (mpsc::channel(), mpsc::channel());
            *GATE.lock().unwrap() = Some((wanted, is_there));
            (wants, there)
        };
        std::thread::scope(|scope| {
            // It comes at last; meanwhile another one asks, and counts on it.
            let (wants, there) = gate();
            let first = scope.spawn(|| POOL.staff(add(1)).is_ok());
            wants.recv_timeout(SHORT).unwrap();
            assert!(POOL.staff(add(2)).is_ok(), "a thread of its own");
            assert_eq!(tells.recv_timeout(SHORT).map(|n| n == 1 || n == 2), Ok(true));
            assert_eq!(tells.recv_timeout(SHORT).map(|n| n == 1 || n == 2), Ok(true));
            there.send(true).unwrap();
            assert!(first.join().unwrap());
        });
        // It does not come: of those who counted on it there is one too many.
        let idle = || POOL.lock().idle;
        while idle() > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        let (wants, there) = gate();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                let mut left = POOL.staff(add(3)).err().unwrap();
                let idle = left.idle;
                left.work.drop_beyond(idle).len()
            });
            wants.recv_timeout(SHORT).unwrap();
            there.send(false).unwrap();
            assert_eq!(first.join().unwrap(), 1);
        });
        let state = POOL.lock();
        assert_eq!((state.threads, state.idle, state.work.ready()), (0, 0, 0));
        drop(state);
        assert!(tells.try_recv().is_err());

        // Whoever has a thread looks for one for what became ready with it. Where there is none, that is known as well.
        POOL.short.store(false, Ordering::Relaxed);
        let (wants, there) = gate();
        let (begun, begins) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let mut state = POOL.lock();
        state.work.add(Errand::new(move || {
            begun.send(()).unwrap();
            ends.recv().unwrap();
        }));
        drop(state);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| POOL.staff(add(4)).is_ok());
            wants.recv_timeout(SHORT).unwrap();
            let (wants, none) = gate();
            there.send(true).unwrap();
            wants.recv_timeout(SHORT).unwrap();
            none.send(false).unwrap();
            assert!(first.join().unwrap());
        });
        begins.recv_timeout(SHORT).unwrap();
        assert!(POOL.short.load(Ordering::Relaxed) && tells.try_recv().is_err());
        end.send(()).unwrap();
        assert_eq!(tells.recv_timeout(SHORT), Ok(4));
    }
}
