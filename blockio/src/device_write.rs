//! A write to a block device by a thread that waits for it.
//!
//! `pwrite` on a descriptor with `O_SYNC` flushes a block device twice: the write itself ends when it is on the medium (FUA, or a flush behind
//! it), and the kernel flushes once more before it returns. Of an asynchronous write it only makes the first, which is all that there is to
//! make. So the thread submits its write by AIO and waits for the event, instead of for the call. Files are not written in this way:
//! there the end of an asynchronous `O_SYNC` write is a worker of the kernel, which is one wait more (docs/decisions/0017).

use crate::contexts::Lent;
use crate::queue::{NEVER_STARTED, RawOp};

/// Makes a write to a block device that was opened `O_SYNC`, and waits for its end: the bytes written, or a negative errno; [`NEVER_STARTED`] if
/// its time was over before. `None`: it has not been made, nor will be, and is to be made in another way.
///
/// # Safety
/// Descriptor and memory are valid, and not referenced, until this returns.
pub(crate) unsafe fn write(op: &RawOp) -> Option<i64> {
    let mut lent = Lent::take()?;
    // To have a context may have taken any time.
    if !op.may_begin() {
        return Some(NEVER_STARTED);
    }
    // SAFETY: as the caller promises, and it is waited for.
    if !unsafe { lent.submit(op) } {
        return None;
    }
    let mut result = None;
    lent.wait(|_, ended| result = Some(ended));
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::DiskKind;
    use crate::error::Op;
    use crate::queue::Permit;
    use sanlock_lease::timing::MonoTime;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_write_whose_time_is_over_once_there_is_a_context_is_not_made() {
        let mut file = tempfile::NamedTempFile::new_in(".").unwrap();
        file.write_all(&[1; 512]).unwrap();
        let mut written = [2; 512];
        let mut raw = RawOp {
            op: Op::Write,
            fd: file.as_raw_fd(),
            kind: DiskKind::Block,
            ptr: written.as_mut_ptr(),
            len: 512,
            offset: 0,
            slot: 7,
            until: Some(MonoTime::from_secs(0)),
            permit: Permit::default(),
        };
        // SAFETY: file and buffer live until it has returned.
        assert_eq!(unsafe { write(&raw) }, Some(NEVER_STARTED));
        assert_eq!(std::fs::read(file.path()).unwrap(), [1; 512]);
        raw.until = None;
        // SAFETY: likewise.
        assert_eq!(unsafe { write(&raw) }, Some(512));
        assert_eq!(std::fs::read(file.path()).unwrap(), [2; 512]);
    }
}
