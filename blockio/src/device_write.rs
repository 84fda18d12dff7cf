//! A write to a block device by a thread that waits for it.
//!
//! `pwrite` on a descriptor with `O_SYNC` flushes a block device twice: the write itself ends when it is on the medium (FUA, or a flush behind
//! it), and the kernel flushes once more before it returns. Of an asynchronous write it only makes the first, which is all that there is to
//! make. So the thread submits its write by AIO and waits for the event, instead of for the call. Files are not written in this way:
//! there the end of an asynchronous `O_SYNC` write is a worker of the kernel, which is one wait more (docs/decisions/0017).

use std::sync::{Mutex, PoisonError};

use crate::kaio::{Context, Event, Wait};
use crate::queue::RawOp;

/// Contexts at most, each for one write at a time; a write beyond them is an ordinary one. They are kept: making one takes 20 microseconds,
/// and giving it back, which waits for a grace period of the kernel, 30 milliseconds.
const MAX_CONTEXTS: usize = 32;

static CONTEXTS: Mutex<Stock> = Mutex::new(Stock { idle: Vec::new(), made: 0 });

struct Stock {
    idle: Vec<Context>,
    made: usize,
}

/// One of the contexts, put back when it is dropped.
struct Lent(Option<Context>);

impl Lent {
    /// `None` if all are in use, or the kernel gives no further one.
    fn take() -> Option<Self> {
        let mut stock = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = stock.idle.pop() {
            return Some(Self(Some(context)));
        }
        if stock.made >= MAX_CONTEXTS {
            return None;
        }
        stock.made += 1;
        drop(stock);
        let mut lent = Self(None); // not made: dropping it says so
        lent.0 = Some(Context::new(1).ok()?);
        Some(lent)
    }

    /// Makes the write; its result, once the kernel keeps nothing of it.
    ///
    /// # Safety
    /// As for [`write`].
    unsafe fn write(&mut self, op: &RawOp) -> Option<i64> {
        let context = self.0.as_ref()?;
        // SAFETY: as the caller promises; what is submitted is waited for below, whatever happens.
        unsafe { context.submit(op, None) }.ok()?;
        let mut events = [Event::default()];
        match context.events(Wait::ForOne, &mut events) {
            Ok(1) => Some(events[0].res),
            // The kernel has the write and does not tell of its end. Dropping the context waits for that; how it ended nobody knows.
            Ok(_) | Err(_) => {
                self.0 = None;
                Some(-i64::from(libc::EIO))
            }
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut stock = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        match self.0.take() {
            Some(context) => stock.idle.push(context),
            None => stock.made -= 1,
        }
    }
}

/// Makes a write to a block device that was opened `O_SYNC`, and waits for its end: the bytes written, or a negative errno. `None`: it
/// has not been made, nor will be, and is to be made in another way.
///
/// # Safety
/// Descriptor and memory are valid, and not referenced, until this returns.
pub(crate) unsafe fn write(op: &RawOp) -> Option<i64> {
    // SAFETY: as the caller promises.
    unsafe { Lent::take()?.write(op) }
}
