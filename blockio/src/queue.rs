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
//! - `Shared` is freed by its last owner: engine, thread or errand. The last thread of a stopping engine stays until `issued` is 0,
//!   so memory that the kernel may touch is never freed, and no stuck thread is ever waited for. An engine whose operations
//!   were all errands has no thread, and the kernel touches nothing after an errand has ended.
//! - Of a deferring engine an errand is all that is in flight, or `start` follows. What `start` finds no thread for waits until somebody
//!   comes for it, or is refused.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use sanlock_lease::timing::MonoTime;

use crate::buffer::{AlignedBuf, MAX_IO_LEN};
use crate::calls::CallPlace;
use crate::disk::{Disk, DiskKind};
use crate::drive::monotonic_now;
use crate::engine::{Completion, Engine, EngineKind, IoRequest, Ticket};
use crate::errand::Errand;
use crate::error::{EngineError, IoError, IoErrorKind, Op};

/// Operations that one engine hands to the kernel at a time; further ones queue.
pub const MAX_IN_KERNEL: usize = 32;

/// Operations that one engine holds, in the kernel or queued; further ones complete at once with -11 (`-EAGAIN`).
pub const MAX_IN_FLIGHT: usize = 96;

/// Stack of a submitter thread: it only makes system calls, and locked memory makes every page of it resident.
const SUBMITTER_STACK: usize = 64 * 1024;

/// Bytes that are read for nothing, and of each of two reads, where one call reads both.
const GAP_MAX: usize = 64 << 10;

/// How long a submitter beyond the first waits for work before it ends.
const IDLE_LINGER: Duration = Duration::from_secs(2);

/// The result of an operation that nobody has come for in time. No errno is that large.
const NEVER_STARTED: i64 = i64::MIN;

/// Largest file offset the kernel accepts.
const MAX_OFFSET: u64 = i64::MAX as u64;

/// One transfer as the kernel wants it. `slot` comes back in the completion.
#[derive(Clone, Copy)]
pub(crate) struct RawOp {
    pub(crate) op: Op,
    pub(crate) fd: RawFd,
    pub(crate) kind: DiskKind,
    pub(crate) ptr: *mut u8,
    pub(crate) len: u32,
    pub(crate) offset: u64,
    pub(crate) slot: u64,
}

impl RawOp {
    /// Bytes between the end of this read and the beginning of `next`, if one call may as well read both, and what lies between them.
    fn gap_before(&self, next: &RawOp) -> Option<usize> {
        if (self.op, next.op) != (Op::Read, Op::Read) || self.fd != next.fd {
            return None;
        }
        let end = self.offset.checked_add(u64::from(self.len))?;
        let gap = usize::try_from(next.offset.checked_sub(end)?).ok()?;
        (gap <= GAP_MAX && self.len.max(next.len) as usize <= GAP_MAX).then_some(gap)
    }
}

// SAFETY: an address for the kernel, not used to reach the memory from here: nobody does while the operation is issued (module
// invariants), whichever thread issues it.
unsafe impl Send for RawOp {}

/// What one call carries out.
struct Call {
    first: RawOp,
    /// The bytes between the two, and the other one.
    second: Option<(usize, RawOp)>,
}

/// The kernel interface under the table.
pub(crate) trait Backend: Send + Sync + 'static {
    const KIND: EngineKind;
    /// Submitter threads at most; each blocked `issue` occupies one.
    const MAX_SUBMITTERS: usize;
    /// Whether any thread may issue, one that is to end soon too, because the kernel keeps nothing when `issue` returns.
    const CALLER_MAY_ISSUE: bool = false;

    /// How long the last call took, if any thread may issue.
    fn last_call(&self) -> Duration {
        Duration::ZERO
    }

    /// Hands one operation to the kernel; may block. After an error (positive errno) the kernel has not got it and never
    /// will. At most [`MAX_IN_KERNEL`] operations are issued and not drained.
    ///
    /// # Safety
    /// `fd` and the memory stay valid, and are not referenced, until `drain` reported the slot or an error is returned.
    unsafe fn issue(&self, op: &RawOp) -> Result<(), i32>;

    /// The same with two reads, of which the second begins `gap` bytes behind the end of the first, in one call that reads the gap
    /// too. `false`: nothing of the two has happened, and each is to be issued.
    ///
    /// # Safety
    /// As [`Backend::issue`], for both.
    unsafe fn issue_both(&self, _first: &RawOp, _gap: usize, _second: &RawOp) -> bool {
        false
    }

    /// Reports (slot, result) for every completion present, without blocking. Called under one lock. `result` is the bytes
    /// transferred or a negative errno.
    fn drain(&self, sink: &mut dyn FnMut(u64, i64));
}

struct Slot {
    ticket: Ticket,
    op: Op,
    disk: Arc<Disk>,
    offset: u64,
    len: usize,
    buf: AlignedBuf,
    /// Given back with the slot.
    place: Option<CallPlace>,
    until: Option<MonoTime>,
    submitted_at: Instant,
}

impl Slot {
    fn complete(self, result: i64) -> Completion {
        let kind = match usize::try_from(result) {
            Ok(got) if got == self.len => None,
            Ok(got) => Some(IoErrorKind::Short { got }),
            Err(_) if result == NEVER_STARTED => Some(IoErrorKind::NeverStarted),
            Err(_) => Some(IoErrorKind::Os(i32::try_from(-result).unwrap_or(libc::EIO))),
        };
        let result = match kind {
            None => Ok(()),
            Some(kind) => Err(IoError {
                path: self.disk.shared_path(),
                op: self.op,
                offset: self.offset,
                len: self.len,
                kind,
            }),
        };
        Completion {
            ticket: self.ticket,
            op: self.op,
            disk: self.disk,
            offset: self.offset,
            len: self.len,
            buf: self.buf,
            result,
            submitted_at: self.submitted_at,
            completed_at: Instant::now(),
        }
    }
}

/// What happens to slots, all under one lock that is held for memory operations only.
struct State {
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    queue: VecDeque<usize>,
    /// Ended without the kernel: (slot, negative errno, or [`NEVER_STARTED`]).
    failed: Vec<(usize, i64)>,
    /// Never had a slot.
    refused: Vec<(Slot, i64)>,
    issued: usize,
    submitters: usize,
    idle: usize,
    /// Submitters that have not run yet.
    starting: usize,
    stopping: bool,
    undertaker: bool,
}

impl State {
    fn new() -> Self {
        let mut slots = Vec::with_capacity(MAX_IN_FLIGHT);
        slots.resize_with(MAX_IN_FLIGHT, || None);
        Self {
            slots,
            free: (0..MAX_IN_FLIGHT).rev().collect(),
            queue: VecDeque::with_capacity(MAX_IN_FLIGHT),
            failed: Vec::with_capacity(MAX_IN_FLIGHT),
            refused: Vec::new(),
            issued: 0,
            submitters: 0,
            idle: 0,
            starting: 0,
            stopping: false,
            undertaker: false,
        }
    }

    fn release(&mut self, index: usize) -> Option<Slot> {
        let slot = self.slots.get_mut(index)?.take()?;
        self.free.push(index);
        Some(slot)
    }

    /// Gives up what nobody has come for in time. Whether there is any.
    fn expire(&mut self, now: MonoTime) -> bool {
        let (slots, failed) = (&self.slots, &mut self.failed);
        let is_late = |index: usize| {
            let until = slots.get(index).and_then(Option::as_ref).and_then(|slot| slot.until);
            until.is_some_and(|until| until <= now)
        };
        let before = failed.len();
        self.queue.retain(|&index| {
            let late = is_late(index);
            if late {
                failed.push((index, NEVER_STARTED));
            }
            !late
        });
        failed.len() > before
    }

    /// The next operation to issue, as raw values; its slot stays filled.
    fn pop(&mut self) -> Option<RawOp> {
        if self.stopping || self.issued >= MAX_IN_KERNEL {
            return None;
        }
        let index = self.queue.pop_front()?;
        let raw = self.raw(index)?;
        self.issued += 1;
        Some(raw)
    }

    fn raw(&self, index: usize) -> Option<RawOp> {
        let slot = self.slots.get(index)?.as_ref()?;
        Some(RawOp {
            op: slot.op,
            fd: slot.disk.as_fd().as_raw_fd(),
            kind: slot.disk.kind(),
            ptr: slot.buf.as_raw(),
            len: u32::try_from(slot.len).ok()?, // at most MAX_IO_LEN, checked by submit
            offset: slot.offset,
            slot: index as u64,
        })
    }

    /// If exactly two operations are queued which one call can carry out: the gap between them.
    fn pair(&self) -> Option<usize> {
        let (&first, &second) = (self.queue.front()?, self.queue.get(1)?);
        if self.queue.len() == 2 { self.raw(first)?.gap_before(&self.raw(second)?) } else { None }
    }

    /// The next call: an operation, or two that one call can carry out.
    fn pop_call(&mut self, may_be_two: bool) -> Option<Call> {
        let gap = if may_be_two { self.pair() } else { None };
        let first = self.pop()?;
        let second = gap.and_then(|gap| Some((gap, self.pop()?)));
        Some(Call { first, second })
    }

    /// How many calls carry out what is queued.
    fn calls(&self) -> usize {
        if self.pair().is_some() { 1 } else { self.queue.len() }
    }

    /// Collects what the kernel finished and what could not be issued.
    fn collect<B: Backend>(&mut self, backend: &B, sink: &mut dyn FnMut(Slot, i64)) {
        backend.drain(&mut |slot, result| {
            if let Some(done) = usize::try_from(slot).ok().and_then(|index| self.release(index)) {
                self.issued -= 1;
                sink(done, result);
            }
        });
        while let Some((index, result)) = self.failed.pop() {
            if let Some(done) = self.release(index) {
                sink(done, result);
            }
        }
        for (done, result) in self.refused.drain(..) {
            sink(done, result);
        }
    }
}

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
        if let Err(errno) = issued {
            state.issued -= 1;
            if let Ok(index) = usize::try_from(raw.slot) {
                state.failed.push((index, -i64::from(errno)));
            }
            self.wake_caller();
        }
        state
    }

    /// Likewise with what was popped for one call.
    fn call(&self, call: &Call) -> MutexGuard<'_, State> {
        let Some((gap, second)) = &call.second else { return self.issue(&call.first) };
        // SAFETY: as in `issue`.
        if unsafe { self.backend.issue_both(&call.first, *gap, second) } {
            return self.lock();
        }
        drop(self.issue(&call.first));
        self.issue(second)
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
        let IoRequest { op, disk, offset, len, buf, place, until } = request;
        // Some file systems serve a misaligned transfer from the page cache instead of refusing it: a stale read.
        let unit = u64::from(disk.logical_block_size());
        let in_range = (1..=buf.len().min(MAX_IO_LEN)).contains(&len)
            && offset.checked_add(len as u64).is_some_and(|end| end <= MAX_OFFSET)
            && offset.checked_rem(unit) == Some(0)
            && (len as u64).checked_rem(unit) == Some(0);
        let slot = Slot { ticket, op, disk, offset, len, buf, place, until, submitted_at: Instant::now() };

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
        let at = state.queue.iter().position(is_it)?;
        let index = state.queue.remove(at)?;
        let Slot { op, disk, offset, len, buf, place, until, .. } = state.release(index)?;
        drop(state);
        self.in_flight -= 1;
        Some(IoRequest { op, disk, offset, len, buf, place, until })
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
