//! A write and a read of something else, by one thread that waits for both.
//!
//! A release writes its block and reads the leader meanwhile. Two threads would do, but waking the other one takes about as long as the read. So the
//! read is submitted by AIO, which takes no worker of the kernel; then the write is made as it would be alone
//! (docs/decisions/0017), and the event of the read is waited for. Both have ended when this ends: of a write that hangs the read is not
//! told either.

use crate::contexts::Lent;
use crate::disk::DiskKind;
use crate::queue::RawOp;

const EIO: i64 = -(libc::EIO as i64);

/// Makes both; `alone` makes the write where it is not submitted too. The results, bytes or a negative errno, in their order. `None`: nothing of the two
/// has been made, nor will be.
///
/// # Safety
/// Descriptors and memory are valid, and not referenced, until this returns.
pub(crate) unsafe fn write_and_read(
    write: &RawOp,
    read: &RawOp,
    alone: impl FnOnce() -> i64,
) -> Option<[i64; 2]> {
    let mut lent = Lent::take()?;
    // SAFETY: as the caller promises, and both are waited for.
    if !unsafe { lent.submit(read) } {
        return None;
    }
    let (mut written, mut seen) = (EIO, EIO);
    // SAFETY: likewise.
    let submitted = write.kind == DiskKind::Block && unsafe { lent.submit(write) };
    if !submitted {
        written = alone();
    }
    lent.wait(|slot, ended| if slot == read.slot { seen = ended } else { written = ended });
    Some([written, seen])
}
