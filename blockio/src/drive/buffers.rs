//! Spare memory for transfers.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use crate::buffer::AlignedBuf;
use crate::huge::HugePages;

/// Buffers of one sector kept for reuse, of each size.
const SECTOR_BUFFERS: usize = 8;

/// Buffers of more than a sector and up to [`SMALL_BYTES_MAX`] kept for reuse: what a lockspace reads with every look at other hosts.
const SMALL_BUFFERS: usize = 1;

/// Up to here each driver keeps what it needs again and again.
const SMALL_BYTES_MAX: usize = 64 << 10;

/// Up to here, and above [`SMALL_BYTES_MAX`], buffers are kept for all drivers of the process: hundreds of lockspaces need one now and
/// then, for some milliseconds.
const SHARED_BYTES_MAX: usize = 256 << 10;

/// How many of them.
const SHARED_BUFFERS: usize = 8;

/// Bytes that are there if one of them is.
const PAGE: usize = 4096;

/// Larger buffers kept for reuse by each driver.
const LARGE_BUFFERS: usize = 1;

/// Those that nobody uses.
static SHARED: Mutex<Vec<AlignedBuf>> = Mutex::new(Vec::new());

/// Does something with what is kept for all; `None` if somebody else is at it: a renewal waits for nobody.
fn shared<R>(then: impl FnOnce(&mut Vec<AlignedBuf>) -> R) -> Option<R> {
    match SHARED.try_lock() {
        Ok(mut spare) => Some(then(&mut spare)),
        Err(TryLockError::Poisoned(spare)) => Some(then(&mut spare.into_inner())),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Sees to it that so many pieces of an area, or as many as are kept at most, are ready for all drivers of the process, on memory that is there. What one
/// disk that hangs keeps others then need not ask the system for, which may take long where memory is short. May take long itself.
pub fn keep_ready(pieces: usize) {
    let lock = || SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let missing = pieces.min(SHARED_BUFFERS).saturating_sub(lock().len());
    let made: Vec<AlignedBuf> =
        (0..missing).map_while(|_| AlignedBuf::try_zeroed(SHARED_BYTES_MAX)).collect();
    for mut buf in made {
        buf.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
        let mut spare = lock();
        // Others may have come back meanwhile.
        if spare.len() < SHARED_BUFFERS {
            spare.push(buf);
        }
    }
}

/// The first that is large enough, but not more than twice as large.
fn fitting(spare: &mut Vec<AlignedBuf>, len: usize) -> Option<AlignedBuf> {
    let at = spare.iter().position(|buf| (len..=2 * len).contains(&buf.len()))?;
    Some(spare.swap_remove(at))
}

/// Spare memory for transfers of one driver, kept from one to the next: after the first few, a renewal and a scan allocate nothing. (Besides,
/// a heap that gets and gives back aligned blocks again and again grows for a long time.)
#[derive(Debug)]
pub(super) struct Buffers {
    /// Makes new ones: [`AlignedBuf::try_zeroed`], but where a test has no memory.
    pub(super) allocate: fn(usize) -> Option<AlignedBuf>,
    /// Of one sector of 512 bytes.
    b512: Vec<AlignedBuf>,
    /// Of one sector of 4096 bytes.
    b4096: Vec<AlignedBuf>,
    /// Of up to [`SMALL_BYTES_MAX`].
    small: Vec<AlignedBuf>,
    /// Of more than [`SHARED_BYTES_MAX`].
    large: Vec<AlignedBuf>,
    /// Where large ones come from as long as there are any.
    huge: Option<Arc<HugePages>>,
}

impl Default for Buffers {
    fn default() -> Self {
        Self {
            allocate: AlignedBuf::try_zeroed,
            b512: Vec::new(),
            b4096: Vec::new(),
            small: Vec::new(),
            large: Vec::new(),
            huge: None,
        }
    }
}

impl Buffers {
    /// From now on large buffers come from this stock.
    pub(super) fn set_huge(&mut self, huge: Arc<HugePages>) {
        self.huge = Some(huge);
    }

    /// A buffer of at least `len` bytes with any content; `None` if there is none, and no memory for one.
    pub(super) fn take(&mut self, len: usize) -> Option<AlignedBuf> {
        let spare = match len {
            512 => self.b512.pop(),
            4096 => self.b4096.pop(),
            _ if len <= SMALL_BYTES_MAX => {
                let at = self.small.iter().position(|buf| buf.len() >= len);
                at.map(|at| self.small.swap_remove(at))
            }
            _ => {
                if let Some(buf) = self.huge.as_ref().and_then(|huge| huge.take(len)) {
                    return Some(buf);
                }
                match len {
                    // All of one size, whatever is read: they serve for everything.
                    ..=SHARED_BYTES_MAX => {
                        let spare = shared(Vec::pop).flatten();
                        return spare.or_else(|| (self.allocate)(SHARED_BYTES_MAX));
                    }
                    _ => fitting(&mut self.large, len),
                }
            }
        };
        spare.or_else(|| (self.allocate)(len))
    }

    /// Takes a buffer back; it is freed when enough are there.
    pub(super) fn give(&mut self, buf: AlignedBuf) {
        if buf.is_huge() {
            // Dropped: back to the stock, where everybody finds it.
            return;
        }
        let (spare, keep) = match buf.len() {
            512 => (&mut self.b512, SECTOR_BUFFERS),
            4096 => (&mut self.b4096, SECTOR_BUFFERS),
            len if len <= SMALL_BYTES_MAX => (&mut self.small, SMALL_BUFFERS),
            len if len <= SHARED_BYTES_MAX => {
                // Not kept if somebody else is at it: it is memory like any other. And freed without the lock.
                let mut buf = Some(buf);
                let _kept = shared(|spare| {
                    if spare.len() < SHARED_BUFFERS {
                        spare.extend(buf.take());
                    }
                });
                return;
            }
            _ => (&mut self.large, LARGE_BUFFERS),
        };
        if spare.len() < keep {
            spare.push(buf);
        } else if let Some(kept) = spare.first_mut().filter(|kept| kept.len() < buf.len()) {
            // The larger one serves for both.
            *kept = buf;
        }
    }

    /// Bytes kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.b512.iter().chain(&self.b4096).chain(&self.small).chain(&self.large).map(|buf| buf.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_look_at_the_hosts_in_use_needs_is_kept_and_grows_with_them() {
        let mut buffers = Buffers::default();
        let first = buffers.take(8 << 10).unwrap();
        buffers.give(first);
        let more = buffers.take(24 << 10).unwrap();
        assert!(more.len() >= 24 << 10);
        let place = more.as_ptr();
        buffers.give(more);
        assert_eq!(buffers.kept(), 24 << 10, "one of them");
        assert_eq!(buffers.take(8 << 10).unwrap().as_ptr(), place, "the larger one serves for both");
    }

    /// The only test of this process that looks at what is kept for all.
    #[test]
    fn pieces_of_an_area_are_kept_for_all_drivers_and_not_without_limit() {
        let (mut one, mut two) = (Buffers::default(), Buffers::default());
        let out: Vec<_> = (0..3 * SHARED_BUFFERS).map(|_| one.take(256 << 10).unwrap()).collect();
        let places: Vec<_> = out.iter().map(|buf| buf.as_ptr() as usize).collect();
        for buf in out {
            one.give(buf);
        }
        assert_eq!(one.kept(), 0, "it has none of its own");
        let again = two.take(200 << 10).unwrap();
        assert_eq!(again.len(), SHARED_BYTES_MAX);
        assert!(places.contains(&(again.as_ptr() as usize)), "another driver gets what one gave back");
        two.give(again);
        assert!(shared(|spare| spare.len()).unwrap() <= SHARED_BUFFERS);
        // What is to be ready is made, once.
        let ready = || shared(|spare| spare.len()).unwrap();
        let taken: Vec<_> = (0..ready()).map(|_| one.take(256 << 10).unwrap()).collect();
        for (wanted, expected) in [(3, 3), (2, 3), (SHARED_BUFFERS + 5, SHARED_BUFFERS)] {
            keep_ready(wanted);
            assert_eq!(ready(), expected);
        }
        one.allocate = |_| None;
        assert_eq!(
            (0..20).map_while(|_| one.take(256 << 10)).count(),
            SHARED_BUFFERS,
            "nothing else is asked for"
        );
        drop(taken);
    }
}
