//! A write to a block device by a thread that waits for it.
//!
//! `pwrite` on a descriptor with `O_SYNC` flushes a block device twice: the write itself ends when it is on the medium (FUA, or a flush behind
//! it), and the kernel flushes once more before it returns. Of an asynchronous write it only makes the first, which is all that there is to
//! make. So the thread submits its write by AIO and waits for the event, instead of for the call. Files are not written in this way:
//! there the end of an asynchronous `O_SYNC` write is a worker of the kernel, which is one wait more (docs/decisions/0017).

use crate::contexts::Lent;
use crate::queue::RawOp;

/// Makes a write to a block device that was opened `O_SYNC`, and waits for its end: the bytes written, or a negative errno. `None`: it
/// has not been made, nor will be, and is to be made in another way.
///
/// # Safety
/// Descriptor and memory are valid, and not referenced, until this returns.
pub(crate) unsafe fn write(op: &RawOp) -> Option<i64> {
    let mut lent = Lent::take()?;
    // SAFETY: as the caller promises, and it is waited for.
    if !unsafe { lent.submit(op) } {
        return None;
    }
    let mut result = None;
    lent.wait(|_, ended| result = Some(ended));
    result
}
