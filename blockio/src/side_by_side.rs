//! A write, and a read or a write of something else, by one thread that waits for both.
//!
//! A release writes its block and reads the leader meanwhile; who goes over to a shared hold writes both at once. Two threads would do, but waking the
//! other one takes about as long as the operation. So the other one is submitted by AIO; then the write is made as it would be alone
//! (docs/decisions/0017), and the event of the other one is waited for. While the write hangs, whoever looks for what has ended finds the end of
//! the other one: a disk that reads must not look like one that does not.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::contexts::Lent;
use crate::disk::DiskKind;
use crate::queue::{NEVER_STARTED, RawOp};

/// What is under way beside writes that are being made.
pub(crate) struct Beside(Mutex<Others>);

struct Others {
    /// How many there have been: each has its number.
    begun: u64,
    /// With those that nobody has taken back.
    lent: Vec<(u64, Lent)>,
}

impl Beside {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Others { begun: 0, lent: Vec::new() }))
    }

    /// Makes both; `alone` makes the write where it is not submitted too. Tells of each end: slot, and bytes or a negative errno; except of the other
    /// one if [`Self::look`] has told of its end. `false`: nothing of the two has been made, nor will be.
    ///
    /// # Safety
    /// Descriptors and memory are valid, and not referenced, until the slot was told of.
    pub(crate) unsafe fn write_and(
        &self,
        write: &RawOp,
        other: &RawOp,
        alone: impl FnOnce() -> i64,
        mut sink: impl FnMut(u64, i64),
    ) -> bool {
        let Some(mut lent) = Lent::take() else { return false };
        // To have a context may have taken any time. Without this one the write is made, or not, by itself.
        if !other.may_begin() {
            return false;
        }
        // SAFETY: as the caller promises.
        if !unsafe { lent.submit(other) } {
            return false;
        }
        // Handing the other one over may have taken any time, as on a file system that is frozen or a device whose queue is full, and nobody could
        // take this one back meanwhile.
        // SAFETY: likewise.
        let submitted = write.kind == DiskKind::Block && write.may_begin() && unsafe { lent.submit(write) };
        if submitted {
            lent.wait(sink);
            return true;
        }
        let put = self.lock().put(lent);
        // So may a submission that was refused.
        sink(write.slot, if write.may_begin() { alone() } else { NEVER_STARTED });
        let mut lent = match put {
            Ok(number) => self.lock().take(number),
            Err(kept) => Some(kept),
        };
        if let Some(lent) = &mut lent {
            lent.wait(sink);
        }
        true
    }

    /// Tells of what has ended beside its write.
    pub(crate) fn look(&self, mut sink: impl FnMut(u64, i64)) {
        self.lock().lent.iter_mut().for_each(|(_, lent)| lent.look(&mut sink));
    }

    fn lock(&self) -> MutexGuard<'_, Others> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Others {
    /// Its number, or what there is no memory for: its end is told of after that of its write.
    fn put(&mut self, lent: Lent) -> Result<u64, Lent> {
        if self.lent.try_reserve(1).is_err() {
            return Err(lent);
        }
        self.begun += 1;
        self.lent.push((self.begun, lent));
        Ok(self.begun)
    }

    fn take(&mut self, number: u64) -> Option<Lent> {
        let at = self.lent.iter().position(|(of, _)| *of == number)?;
        Some(self.lent.swap_remove(at).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Op;
    use crate::queue::Permit;
    use sanlock_lease::timing::MonoTime;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    /// Whatever it is written to: until the other one was handed over it could not be taken back.
    #[test]
    fn a_write_whose_time_is_over_once_the_other_one_is_handed_over_is_not_made() {
        for kind in [DiskKind::File, DiskKind::Block] {
            let mut file = tempfile::NamedTempFile::new_in(".").unwrap();
            file.write_all(&[1; 1024]).unwrap();
            let (mut written, mut read) = ([2; 512], [0; 512]);
            let raw = |op, slot, offset, buffer: &mut [u8; 512]| RawOp {
                op,
                fd: file.as_raw_fd(),
                kind,
                ptr: buffer.as_mut_ptr(),
                len: 512,
                offset,
                slot,
                until: Some(MonoTime::from_secs(0)),
                permit: Permit::default(),
            };
            let (write, other) = (raw(Op::Write, 7, 0, &mut written), raw(Op::Read, 8, 512, &mut read));
            let mut told = Vec::new();
            let alone = || panic!("it is made");
            // SAFETY: file and buffers live until both were told of.
            assert!(unsafe {
                Beside::new().write_and(&write, &other, alone, |slot, end| told.push((slot, end)))
            });
            told.sort_unstable();
            assert_eq!(told, [(7, NEVER_STARTED), (8, 512)], "{kind:?}");
            assert_eq!(std::fs::read(file.path()).unwrap(), [1; 1024]);
        }
    }

    /// The one that is handed over first is a write too where a lease is freed beside its mark.
    #[test]
    fn of_two_writes_whose_time_is_over_none_is_made() {
        let mut file = tempfile::NamedTempFile::new_in(".").unwrap();
        file.write_all(&[1; 1024]).unwrap();
        let mut bytes = [[2; 512], [3; 512]];
        let mut raws = bytes.iter_mut().enumerate().map(|(slot, buffer)| RawOp {
            op: Op::Write,
            fd: file.as_raw_fd(),
            kind: DiskKind::File,
            ptr: buffer.as_mut_ptr(),
            len: 512,
            offset: 512 * slot as u64,
            slot: slot as u64,
            until: Some(MonoTime::from_secs(0)),
            permit: Permit::default(),
        });
        let (write, other) = (raws.next().unwrap(), raws.next().unwrap());
        let alone = || panic!("it is made");
        // SAFETY: file and buffers live longer.
        let made =
            unsafe { Beside::new().write_and(&write, &other, alone, |slot, _| panic!("{slot} is told of")) };
        assert!(!made);
        assert_eq!(std::fs::read(file.path()).unwrap(), [1; 1024]);
    }
}
