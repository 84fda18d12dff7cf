//! What the table of operations wants of the kernel.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sanlock_lease::timing::MonoTime;

use crate::disk::DiskKind;
use crate::drive::monotonic_now;
use crate::engine::EngineKind;
use crate::error::Op;

/// Bytes that are read for nothing, and of each of two operations, where one call makes both.
const GAP_MAX: usize = 64 << 10;

/// Whether an operation that was popped may begin, until it is taken back: it may wait for another one, or for what it takes to be handed over, more
/// than once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Permit(Arc<AtomicBool>);

impl Permit {
    /// It does not begin from now on. What the kernel has goes on.
    pub(crate) fn revoke(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_revoked(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// One transfer as the kernel wants it. `slot` comes back in the completion.
#[derive(Clone)]
pub(crate) struct RawOp {
    pub(crate) op: Op,
    pub(crate) fd: RawFd,
    pub(crate) kind: DiskKind,
    pub(crate) ptr: *mut u8,
    pub(crate) len: u32,
    pub(crate) offset: u64,
    pub(crate) slot: u64,
    /// When it must not be begun any more.
    pub(crate) until: Option<MonoTime>,
    /// Likewise, as soon as it is taken back.
    pub(crate) permit: Permit,
}

impl RawOp {
    /// Right before it is handed to the kernel, each time: whether that may be done, as it always may with a read. Whoever may not ends it with
    /// [`NEVER_STARTED`](super::NEVER_STARTED).
    pub(crate) fn may_begin(&self) -> bool {
        let is_late = || self.until.is_some_and(|until| until <= monotonic_now());
        self.op == Op::Read || !(self.permit.is_revoked() || is_late())
    }

    /// Whether this one and `next` may be one call, and how.
    pub(super) fn together_with(&self, next: &RawOp) -> Option<Together> {
        if self.fd != next.fd || self.len.max(next.len) as usize > GAP_MAX {
            return None;
        }
        let end = |op: &RawOp| op.offset.checked_add(u64::from(op.len));
        match (self.op, next.op) {
            (Op::Read, Op::Read) => {
                let gap = usize::try_from(next.offset.checked_sub(end(self)?)?).ok()?;
                (gap <= GAP_MAX).then_some(Together::InOneRead { gap })
            }
            (Op::Write, Op::Read | Op::Write) => {
                let apart = end(self)? <= next.offset || end(next)? <= self.offset;
                apart.then_some(Together::SideBySide)
            }
            (Op::Read, Op::Write) => None,
        }
    }
}

/// How one call carries out two operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Together {
    /// Two reads, of which the second begins `gap` bytes behind the end of the first: what lies between them is read too.
    InOneRead {
        /// Bytes.
        gap: usize,
    },
    /// A write, and a read or a write of something else, both under way at once.
    SideBySide,
}

// SAFETY: an address for the kernel, not used to reach the memory from here: nobody does while the operation is issued (module
// invariants), whichever thread issues it.
unsafe impl Send for RawOp {}

/// What one call carries out.
pub(super) struct Call {
    pub(super) first: RawOp,
    /// The other one, if there is one, and how both are made.
    pub(super) second: Option<(Together, RawOp)>,
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

    /// Hands one operation to the kernel, if [it may begin](RawOp::may_begin); may block. After an error, a negative errno or
    /// [`NEVER_STARTED`](super::NEVER_STARTED), the kernel has not got it and never will. At most [`MAX_IN_KERNEL`](super::MAX_IN_KERNEL) operations are issued and not drained.
    ///
    /// # Safety
    /// `fd` and the memory stay valid, and are not referenced, until `drain` reported the slot or an error is returned.
    unsafe fn issue(&self, op: &RawOp) -> Result<(), i64>;

    /// The same with two in one call, which ends when both have. `false`: nothing of the two has happened, and each is to be issued.
    ///
    /// # Safety
    /// As [`Backend::issue`], for both.
    unsafe fn issue_both(&self, _first: &RawOp, _how: Together, _second: &RawOp) -> bool {
        false
    }

    /// Reports (slot, result) for every completion present, without blocking. Called under one lock. `result` is the bytes
    /// transferred or a negative errno.
    fn drain(&self, sink: &mut dyn FnMut(u64, i64));
}
