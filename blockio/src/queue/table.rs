//! The operations that an engine holds, and what has become of them.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Instant;

use sanlock_lease::timing::MonoTime;

use super::backend::{Backend, Call, Permit, RawOp, Together};
use super::{MAX_IN_FLIGHT, MAX_IN_KERNEL};
use crate::buffer::AlignedBuf;
use crate::calls::CallPlace;
use crate::disk::Disk;
use crate::engine::{Completion, Ticket};
use crate::error::{IoError, IoErrorKind, Op};

/// The result of an operation that nobody has come for in time. No errno is that large.
pub(crate) const NEVER_STARTED: i64 = i64::MIN;

/// An operation that the engine holds.
pub(super) struct Slot {
    pub(super) ticket: Ticket,
    pub(super) op: Op,
    pub(super) disk: Arc<Disk>,
    pub(super) offset: u64,
    pub(super) len: usize,
    pub(super) buf: AlignedBuf,
    /// Given back with the slot.
    pub(super) place: Option<CallPlace>,
    pub(super) of: u64,
    pub(super) until: Option<MonoTime>,
    pub(super) permit: Permit,
    pub(super) submitted_at: Instant,
}

impl Slot {
    pub(super) fn complete(self, result: i64) -> Completion {
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

/// What happens to slots, all under one lock that is held while nothing is waited for.
pub(super) struct State {
    pub(super) slots: Vec<Option<Slot>>,
    pub(super) free: Vec<usize>,
    pub(super) queue: VecDeque<usize>,
    /// Ended without the kernel: (slot, negative errno, or [`NEVER_STARTED`]).
    pub(super) failed: Vec<(usize, i64)>,
    /// Never had a slot.
    pub(super) refused: Vec<(Slot, i64)>,
    pub(super) issued: usize,
    pub(super) submitters: usize,
    pub(super) idle: usize,
    /// Submitters that have not run yet.
    pub(super) starting: usize,
    pub(super) stopping: bool,
    pub(super) undertaker: bool,
}

impl State {
    pub(super) fn new() -> Self {
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

    pub(super) fn release(&mut self, index: usize) -> Option<Slot> {
        let slot = self.slots.get_mut(index)?.take()?;
        self.free.push(index);
        Some(slot)
    }

    /// Gives up what nobody has come for in time. Whether there is any.
    pub(super) fn expire(&mut self, now: MonoTime) -> bool {
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

    /// What was popped and has not begun is not to begin any more.
    pub(super) fn revoke(&self, ticket: Ticket) {
        let is_it = |slot: &&Slot| slot.ticket == ticket;
        if let Some(slot) = self.slots.iter().flatten().find(is_it) {
            slot.permit.revoke();
        }
    }

    /// Whether an operation that was popped is not to be issued any more: its time has passed, or its engine is gone.
    pub(super) fn is_over(&self, popped: &RawOp, now: MonoTime) -> bool {
        self.stopping || popped.until.is_some_and(|until| until <= now)
    }

    /// An operation that was popped has ended without the kernel, with a negative errno or [`NEVER_STARTED`].
    pub(super) fn fail(&mut self, popped: &RawOp, result: i64) {
        self.issued -= 1;
        if let Ok(index) = usize::try_from(popped.slot) {
            self.failed.push((index, result));
        }
    }

    /// The next operation to issue, as raw values; its slot stays filled.
    pub(super) fn pop(&mut self) -> Option<RawOp> {
        if self.stopping || self.issued >= MAX_IN_KERNEL {
            return None;
        }
        let index = self.queue.pop_front()?;
        let raw = self.raw(index)?;
        self.issued += 1;
        Some(raw)
    }

    pub(super) fn raw(&self, index: usize) -> Option<RawOp> {
        let slot = self.slots.get(index)?.as_ref()?;
        Some(RawOp {
            op: slot.op,
            fd: slot.disk.as_fd().as_raw_fd(),
            kind: slot.disk.kind(),
            ptr: slot.buf.as_raw(),
            len: u32::try_from(slot.len).ok()?, // at most MAX_IO_LEN, checked by submit
            offset: slot.offset,
            slot: index as u64,
            until: slot.until,
            permit: slot.permit.clone(),
        })
    }

    /// If exactly two operations are queued, both of one machine, which one call can carry out: how.
    pub(super) fn pair(&self) -> Option<Together> {
        let (&first, &second) = (self.queue.front()?, self.queue.get(1)?);
        let of = |index: usize| self.slots.get(index).and_then(Option::as_ref).map(|slot| slot.of);
        let alone = self.queue.len() == 2 && of(first) == of(second);
        if alone { self.raw(first)?.together_with(&self.raw(second)?) } else { None }
    }

    /// The next call: an operation, or two that one call can carry out.
    pub(super) fn pop_call(&mut self, may_be_two: bool) -> Option<Call> {
        let how = if may_be_two { self.pair() } else { None };
        let first = self.pop()?;
        let second = how.and_then(|how| Some((how, self.pop()?)));
        Some(Call { first, second })
    }

    /// How many calls carry out what is queued.
    pub(super) fn calls(&self) -> usize {
        if self.pair().is_some() { 1 } else { self.queue.len() }
    }

    /// Collects what the kernel finished and what could not be issued.
    pub(super) fn collect<B: Backend>(&mut self, backend: &B, sink: &mut dyn FnMut(Slot, i64)) {
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
