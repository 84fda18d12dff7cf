//! The part that the engines share: a bounded table of operations between the caller and threads that submit.
//!
//! ```text
//! submit ──> slot + queue ──> submitter thread ──> kernel ──> eventfd ──> reap ──> completion
//! ```
//!
//! The caller never enters the kernel with an operation, unless it has asked for an errand. Submitter threads do, because
//! - `io_submit` may sleep in the file system (frozen, NFS, allocation), with or without `O_DIRECT`;
//! - io_uring's workers belong to the *thread* that submits: a thread with a stuck operation could not exit, writes to
//!   unrelated files could wait for each other, and completions would interrupt the caller's system calls with `EINTR`.
//!
//! # Invariants
//! - A slot is filled from `submit` until its completion is reaped. It owns buffer and disk; while the kernel has the
//!   operation nobody creates a reference to the buffer's bytes.
//! - `issued` counts slots popped from the queue whose end has not been seen. A popped operation ends in exactly one of:
//!   a kernel completion, or `issue` returning an error.
//! - Once `stopping`, nothing is popped: a queued write of a dropped engine never happens. Nor is what was withdrawn, or whose time has passed.
//!   A write that was popped asks for its permit right before the kernel gets it: it may have waited for another one.
//! - `Shared` is freed by its last owner: engine, thread or errand. The last thread of a stopping engine stays until `issued` is 0,
//!   so memory that the kernel may touch is never freed, and no stuck thread is ever waited for. An engine whose operations
//!   were all errands has no thread, and the kernel touches nothing after an errand has ended.
//! - Of a deferring engine an errand is all that is in flight, or `start` follows. What `start` finds no thread for waits until somebody
//!   comes for it, or is refused.

mod backend;
mod table;

use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use self::backend::Call;
pub(crate) use self::backend::{Backend, Permit, RawOp, Together};
pub(crate) use self::table::NEVER_STARTED;
use self::table::{Slot, State};
use crate::buffer::MAX_IO_LEN;
use crate::drive::monotonic_now;
use crate::engine::{Completion, Engine, EngineKind, IoRequest, Ticket};
use crate::errand::Errand;
use crate::error::EngineError;

/// Operations that one engine hands to the kernel at a time; further ones queue.
pub const MAX_IN_KERNEL: usize = 32;

/// Operations that one engine holds, in the kernel or queued; further ones complete at once with -11 (`-EAGAIN`).
pub const MAX_IN_FLIGHT: usize = 96;

/// Stack of a submitter thread: it only makes system calls, and locked memory makes every page of it resident.
const SUBMITTER_STACK: usize = 64 * 1024;

/// How long a submitter beyond the first waits for work before it ends.
const IDLE_LINGER: Duration = Duration::from_secs(2);

/// Largest file offset the kernel accepts.
const MAX_OFFSET: u64 = i64::MAX as u64;

struct Shared<B> {
    backend: B,
    ready: EventFd,
    state: Mutex<State>,
    work: Condvar,
}

impl<B: Backend> Shared<B> {
    /// No code path panics while holding the lock, and every update leaves the table consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_caller(&self) {
        // Fails only when the counter is full, and then the descriptor is readable already.
        let _ = self.ready.write(1);
    }

    fn clear_readiness(&self) {
        // EAGAIN: was not readable.
        let _ = self.ready.read();
    }

    /// The next call, if there is one whose time has not passed.
    fn next_call(&self, state: &mut State, may_be_two: bool) -> Option<Call> {
        self.expire(state);
        state.pop_call(may_be_two)
    }

    /// Gives up what nobody has come for in time.
    fn expire(&self, state: &mut State) {
        if state.expire(monotonic_now()) {
            self.wake_caller();
        }
    }

    /// Hands an operation that was popped to the kernel.
    fn issue(&self, raw: &RawOp) -> MutexGuard<'_, State> {
        // SAFETY: the slot keeps descriptor and buffer; it is released only after `drain` reported it or after the
        // error below, and `Shared` outlives the operation (module invariants).
        let issued = unsafe { self.backend.issue(raw) };
        let mut state = self.lock();
        if let Err(result) = issued {
            state.fail(raw, result);
            self.wake_caller();
        }
        state
    }

    /// Likewise with what was popped for one call.
    fn call(&self, call: &Call) -> MutexGuard<'_, State> {
        let Some((how, second)) = &call.second else { return self.issue(&call.first) };
        // SAFETY: as in `issue`.
        if unsafe { self.backend.issue_both(&call.first, *how, second) } {
            return self.lock();
        }
        // What was tried, and then the first one, may have taken any time, and nobody could take either back meanwhile.
        drop(self.issue_in_time(&call.first));
        self.issue_in_time(second)
    }

    /// Likewise, unless its time is over.
    fn issue_in_time(&self, raw: &RawOp) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        if state.is_over(raw, monotonic_now()) {
            state.fail(raw, NEVER_STARTED);
            self.wake_caller();
            return state;
        }
        drop(state);
        self.issue(raw)
    }

    /// Body of a submitter thread.
    fn submitter(&self) {
        let mut state = self.lock();
        state.starting -= 1;
        loop {
            while let Some(call) = self.next_call(&mut state, B::CALLER_MAY_ISSUE) {
                drop(state);
                state = self.call(&call);
            }
            if state.stopping {
                break;
            }
            state.idle += 1;
            // The last submitter stays: it is the undertaker, and io_uring's workers hang on it. Where the kernel keeps nothing there is
            // neither.
            let may_leave = |state: &State| state.submitters > 1 || B::CALLER_MAY_ISSUE;
            let timed_out;
            (state, timed_out) = if may_leave(&state) {
                let waited = self.work.wait_timeout(state, IDLE_LINGER);
                let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
                (state, waited.timed_out())
            } else {
                (self.work.wait(state).unwrap_or_else(PoisonError::into_inner), false)
            };
            state.idle -= 1;
            if timed_out && may_leave(&state) && state.queue.is_empty() && !state.stopping {
                state.submitters -= 1;
                return;
            }
        }
        if !state.undertaker {
            state.undertaker = true;
            self.bury(state);
        }
    }

    /// Waits, with the engine gone, until the kernel has let go of everything. Ends the thread's last duty.
    fn bury<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        loop {
            let mut dead = Vec::new();
            self.clear_readiness();
            state.collect(&self.backend, &mut |slot, _| dead.push(slot));
            let left = state.issued;
            drop(state);
            drop(dead);
            if left == 0 {
                return;
            }
            let mut fds = [PollFd::new(self.ready.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, PollTimeout::NONE).is_err_and(|errno| errno != Errno::EINTR) {
                thread::sleep(IDLE_LINGER);
            }
            state = self.lock();
        }
    }
}

/// Starts a detached thread; tests have one that finds none to start.
type Hire = fn(&str, Box<dyn FnOnce() + Send>) -> io::Result<()>;

fn hire(name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    sanlock_sys::thread::spawn(name, SUBMITTER_STACK, body)
}

/// An [`Engine`] over a [`Backend`].
pub(crate) struct QueuedEngine<B: Backend> {
    shared: Arc<Shared<B>>,
    hire: Hire,
    next_ticket: u64,
    in_flight: usize,
    /// `submit` only queues; how long the last call may have taken for the next one to be an errand.
    deferred: Option<Duration>,
}

impl<B: Backend> QueuedEngine<B> {
    /// `backend` gets the descriptor to signal at every completion.
    pub(crate) fn new(
        backend: impl FnOnce(BorrowedFd<'_>) -> Result<B, EngineError>,
    ) -> Result<Self, EngineError> {
        let ready = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(|errno| {
            EngineError::Unavailable { engine: B::KIND.name(), call: "eventfd", errno: errno as i32 }
        })?;
        let backend = backend(ready.as_fd())?;
        let shared = Shared { backend, ready, state: Mutex::new(State::new()), work: Condvar::new() };
        Ok(Self { shared: Arc::new(shared), hire, next_ticket: 0, in_flight: 0, deferred: None })
    }

    /// Starts one more submitter.
    fn hire(&self, state: &mut State) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let name = format!("sanlock-{}", B::KIND.name());
        (self.hire)(&name, Box::new(move || shared.submitter()))?;
        state.submitters += 1;
        state.starting += 1;
        Ok(())
    }

    /// Sees to it that somebody takes the queued operation. On failure nobody ever will.
    fn staff(&self, state: &mut State) -> Result<(), i32> {
        if state.idle + state.starting >= state.queue.len() || state.submitters >= B::MAX_SUBMITTERS {
            self.shared.work.notify_one();
            return Ok(());
        }
        match self.hire(state) {
            Ok(()) => Ok(()),
            Err(_) if state.submitters > 0 => {
                self.shared.work.notify_one();
                Ok(())
            }
            Err(error) => Err(error.raw_os_error().unwrap_or(libc::EAGAIN)),
        }
    }
}

impl<B: Backend> Engine for QueuedEngine<B> {
    fn submit(&mut self, request: IoRequest) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.in_flight += 1;
        let IoRequest { op, disk, offset, len, buf, place, of, until } = request;
        // Some file systems serve a misaligned transfer from the page cache instead of refusing it: a stale read.
        let unit = u64::from(disk.logical_block_size());
        let in_range = (1..=buf.len().min(MAX_IO_LEN)).contains(&len)
            && offset.checked_add(len as u64).is_some_and(|end| end <= MAX_OFFSET)
            && offset.checked_rem(unit) == Some(0)
            && (len as u64).checked_rem(unit) == Some(0);
        let (permit, submitted_at) = (Permit::default(), Instant::now());
        let slot = Slot { ticket, op, disk, offset, len, buf, place, of, until, permit, submitted_at };

        let mut state = self.shared.lock();
        let refusal = if !in_range {
            Some((slot, libc::EINVAL))
        } else if let Some(index) = state.free.pop() {
            state.slots[index] = Some(slot);
            state.queue.push_back(index);
            let staffed = if self.deferred.is_some() { Ok(()) } else { self.staff(&mut state) };
            match staffed {
                Ok(()) => None,
                Err(errno) => {
                    state.queue.pop_back();
                    state.release(index).map(|slot| (slot, errno))
                }
            }
        } else {
            Some((slot, libc::EAGAIN))
        };
        if let Some((slot, errno)) = refusal {
            state.refused.push((slot, -i64::from(errno)));
            self.shared.wake_caller();
        }
        ticket
    }

    fn withdraw(&mut self, ticket: Ticket) -> Option<IoRequest> {
        let mut state = self.shared.lock();
        let is_it = |index: &usize| {
            state.slots.get(*index).and_then(Option::as_ref).is_some_and(|slot| slot.ticket == ticket)
        };
        let Some(at) = state.queue.iter().position(is_it) else {
            // It was popped together with another one, say, which hangs; then it ends with that.
            state.revoke(ticket);
            return None;
        };
        let index = state.queue.remove(at)?;
        let Slot { op, disk, offset, len, buf, place, of, until, .. } = state.release(index)?;
        drop(state);
        self.in_flight -= 1;
        Some(IoRequest { op, disk, offset, len, buf, place, of, until })
    }

    fn reap(&mut self, out: &mut Vec<Completion>) -> usize {
        let before = out.len();
        // Before collecting: what completes in between makes the descriptor readable again.
        self.shared.clear_readiness();
        let mut state = self.shared.lock();
        state.collect(&self.shared.backend, &mut |slot, result| out.push(slot.complete(result)));
        if !state.queue.is_empty() && self.deferred.is_none() {
            // There is room in the kernel again. All of them: the first to wake may get stuck at once.
            self.shared.work.notify_all();
            // Somebody exists, else the operation would have been refused.
            let _ = self.staff(&mut state);
        }
        drop(state);
        let reaped = out.len() - before;
        self.in_flight -= reaped;
        reaped
    }

    fn defer(&mut self, slow: Duration) {
        self.deferred = B::CALLER_MAY_ISSUE.then_some(slow);
    }

    fn start(&mut self) -> bool {
        if self.deferred.is_none() {
            return false;
        }
        let mut state = self.shared.lock();
        // A thread for each call, counting those that are idle or on their way.
        let calls = state.calls();
        let mut left = false;
        while !left && state.idle + state.starting < calls && state.submitters < B::MAX_SUBMITTERS {
            left = self.hire(&mut state).is_err();
        }
        for _ in 0..state.idle.min(calls) {
            self.shared.work.notify_one();
        }
        left
    }

    fn last_resort(&mut self, wanted: &dyn Fn(Ticket) -> bool) -> Option<Errand> {
        self.deferred?;
        let mut state = self.shared.lock();
        // First: what is taken instead of what is late may be anything.
        self.shared.expire(&mut state);
        let is_wanted = |&index: &usize| {
            state.slots.get(index).and_then(Option::as_ref).is_some_and(|slot| wanted(slot.ticket))
        };
        let at = state.queue.iter().position(is_wanted)?;
        let first = state.queue.remove(at)?;
        state.queue.push_front(first);
        let call = state.pop_call(false)?;
        drop(state);
        let shared = Arc::clone(&self.shared);
        Some(Errand::new(move || drop(shared.call(&call))))
    }

    fn refuse(&mut self) {
        let mut state = self.shared.lock();
        if self.deferred.is_none() || state.submitters > 0 {
            return;
        }
        while let Some(slot) = state.queue.pop_back().and_then(|index| state.release(index)) {
            state.refused.push((slot, -i64::from(libc::EAGAIN)));
        }
        self.shared.wake_caller();
    }

    fn is_one_call(&self) -> bool {
        if self.deferred.is_none() {
            return false;
        }
        let state = self.shared.lock();
        let queued = state.queue.len();
        queued == self.in_flight && (queued == 1 || state.pair().is_some())
    }

    fn errand(&mut self) -> Option<Errand> {
        if self.shared.backend.last_call() >= self.deferred? {
            return None;
        }
        let mut state = self.shared.lock();
        let call = self.shared.next_call(&mut state, B::CALLER_MAY_ISSUE)?;
        let shared = Arc::clone(&self.shared);
        Some(Errand::new(move || drop(shared.call(&call))))
    }

    fn completion_fd(&self) -> BorrowedFd<'_> {
        self.shared.ready.as_fd()
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn kind(&self) -> EngineKind {
        B::KIND
    }
}

impl<B: Backend> Drop for QueuedEngine<B> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.stopping = true;
        let mut dead = Vec::with_capacity(state.queue.len());
        while let Some(index) = state.queue.pop_front() {
            dead.extend(state.release(index));
        }
        let refused = mem::take(&mut state.refused);
        drop(state);
        self.shared.work.notify_all();
        drop((dead, refused));
    }
}

#[cfg(test)]
pub(crate) mod tests;
