//! Ordinary reads and writes on threads: for leases and lockspaces, where one operation follows the other.
//!
//! An asynchronous write with `O_SYNC` to a file ends on a worker of the kernel (direct I/O cannot wait for the flush in an interrupt), and
//! beside virtual machines that use all processors that worker waits for milliseconds. A thread that waits for its own write
//! needs no such worker, and no other thread if whoever wants the operation carries it out ([`crate::Errand`]). docs/decisions/0017. Writes to
//! block devices are another matter: `device_write`.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::buffer::AlignedBuf;
use crate::device_write;
use crate::disk::DiskKind;
use crate::engine::EngineKind;
use crate::error::{EngineError, Op};
use crate::queue::{Backend, MAX_IN_KERNEL, NEVER_STARTED, RawOp, Together};
use crate::side_by_side::Beside;

/// Calls that may block at a time: all, so that reads of a disk that hang leave a thread to those who come to renew.
const MAX_CALLS: usize = MAX_IN_KERNEL;

pub(crate) struct Threads {
    /// The engine's eventfd; lives in the same structure as this backend.
    ready: i32,
    /// Slot and result of what has ended and nobody has drained.
    ended: Mutex<Vec<(u64, i64)>>,
    beside: Beside,
    /// Microseconds that the last call took.
    last_us: AtomicU64,
}

impl Threads {
    pub(crate) fn new(ready: BorrowedFd<'_>) -> Result<Self, EngineError> {
        let ended = Mutex::new(Vec::with_capacity(MAX_IN_KERNEL));
        Ok(Self { ready: ready.as_raw_fd(), ended, beside: Beside::new(), last_us: AtomicU64::new(0) })
    }

    /// Notes the results of a call.
    fn note(&self, begin: Instant, results: &[(u64, i64)]) {
        let took = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.last_us.store(took, Ordering::Relaxed);
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(results);
        let one = 1_u64.to_ne_bytes();
        // SAFETY: eight bytes are read from `one`. The eventfd outlives the backend. It fails only with a full counter, and then the
        // descriptor is readable already.
        unsafe { libc::write(self.ready, one.as_ptr().cast(), one.len()) };
    }
}

/// Reads or writes: the bytes, or a negative errno.
///
/// # Safety
/// Descriptor and memory are valid, and not referenced, until this returns.
unsafe fn call(op: &RawOp, offset: i64) -> i64 {
    loop {
        // SAFETY: as the caller promises. A `len` beyond `isize` cannot be, it is 32 bits.
        let rc = unsafe {
            match op.op {
                Op::Read => libc::pread64(op.fd, op.ptr.cast(), op.len as usize, offset),
                Op::Write => libc::pwrite64(op.fd, op.ptr.cast_const().cast(), op.len as usize, offset),
            }
        };
        match Errno::result(rc) {
            Ok(bytes) => return bytes as i64,
            // A write may have been carried out, or may be later (FUSE): again, the first one might come after the second.
            Err(Errno::EINTR) if op.op == Op::Read => {}
            Err(errno) => return -i64::from(errno as i32),
        }
    }
}

impl Backend for Threads {
    const KIND: EngineKind = EngineKind::Threads;
    /// Each operation holds a thread for as long as it takes.
    const MAX_SUBMITTERS: usize = MAX_CALLS;
    const CALLER_MAY_ISSUE: bool = true;

    unsafe fn issue(&self, op: &RawOp) -> Result<(), i64> {
        let offset = i64::try_from(op.offset).map_err(|_| -i64::from(libc::EINVAL))?;
        let begin = Instant::now();
        let result = match (op.op, op.kind) {
            // SAFETY: the caller keeps descriptor and memory valid, and unreferenced, until `drain` reports the slot, which is after
            // this call.
            (Op::Write, DiskKind::Block) => unsafe { device_write::write(op) },
            _ => None,
        };
        let result = match result {
            Some(result) => result,
            // So may a submission that was refused.
            None if !op.may_begin() => NEVER_STARTED,
            // SAFETY: likewise.
            None => unsafe { call(op, offset) },
        };
        self.note(begin, &[(op.slot, result)]);
        Ok(())
    }

    unsafe fn issue_both(&self, first: &RawOp, how: Together, second: &RawOp) -> bool {
        let Ok(offset) = i64::try_from(first.offset) else { return false };
        let begin = Instant::now();
        let gap = match how {
            Together::InOneRead { gap } => gap,
            Together::SideBySide => {
                // SAFETY: as in `issue`; whatever is told of is noted, or drained at once.
                return unsafe {
                    self.beside.write_and(
                        first,
                        second,
                        || call(first, offset),
                        |slot, result| self.note(begin, &[(slot, result)]),
                    )
                };
            }
        };
        // Of its own for each call: a device that checks what it has read must find there what it has put there.
        let between = if gap > 0 {
            // Without memory for the gap each makes its own call.
            let Some(buf) = AlignedBuf::try_zeroed(gap) else { return false };
            Some(buf)
        } else {
            None
        };
        let piece = |ptr: *mut u8, len: usize| libc::iovec { iov_base: ptr.cast(), iov_len: len };
        let mut pieces = vec![piece(first.ptr, first.len as usize)];
        pieces.extend(between.iter().map(|buf| piece(buf.as_raw(), gap)));
        pieces.push(piece(second.ptr, second.len as usize));
        let all: usize = pieces.iter().map(|piece| piece.iov_len).sum();
        let Ok(count) = libc::c_int::try_from(pieces.len()) else { return false };
        // SAFETY: as in `issue`, and `between` lives beyond the call. `count` is how many pieces there are.
        let rc = unsafe { libc::preadv64(first.fd, pieces.as_ptr(), count, offset) };
        // A failure, or the end of the file, may be the matter of one of the two only, or of the gap.
        let whole = usize::try_from(rc).is_ok_and(|bytes| bytes == all);
        if whole {
            self.note(begin, &[first, second].map(|op| (op.slot, i64::from(op.len))));
        }
        whole
    }

    fn drain(&self, sink: &mut dyn FnMut(u64, i64)) {
        // The sink takes no lock.
        for (slot, result) in self.ended.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            sink(slot, result);
        }
        self.beside.look(sink);
    }

    fn last_call(&self) -> Duration {
        Duration::from_micros(self.last_us.load(Ordering::Relaxed))
    }
}
