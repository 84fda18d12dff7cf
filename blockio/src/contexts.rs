//! AIO for threads that wait for what they submit: contexts to be lent, each to one of them at a time.

use std::sync::{Mutex, PoisonError};

use crate::kaio::{Context, Event, Wait};
use crate::queue::RawOp;

/// Contexts at most; who comes beyond them makes ordinary calls. They are kept: making one takes 20 microseconds, and giving it back, which
/// waits for a grace period of the kernel, 30 milliseconds.
const MAX_CONTEXTS: usize = 32;

/// Operations that one of them has at a time: a write, and a read beside it.
const OPERATIONS: usize = 2;

static CONTEXTS: Mutex<Stock> = Mutex::new(Stock { idle: Vec::new(), made: 0 });

struct Stock {
    idle: Vec<Context>,
    made: usize,
}

/// One of the contexts, put back when it is dropped. What was submitted has been waited for by then.
pub(crate) struct Lent {
    /// `None`: not made, or given back to the kernel. Dropping it says so.
    context: Option<Context>,
    under_way: usize,
}

impl Lent {
    /// `None` if all are in use, or the kernel gives no further one.
    pub(crate) fn take() -> Option<Self> {
        let mut stock = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = stock.idle.pop() {
            return Some(Self { context: Some(context), under_way: 0 });
        }
        if stock.made >= MAX_CONTEXTS {
            return None;
        }
        stock.made += 1;
        drop(stock);
        let mut lent = Self { context: None, under_way: 0 };
        lent.context = Some(Context::new(OPERATIONS).ok()?);
        Some(lent)
    }

    /// Hands an operation to the kernel. `false`: it has not got it.
    ///
    /// # Safety
    /// Descriptor and memory are valid, and not referenced, until [`Self::wait`] returns.
    pub(crate) unsafe fn submit(&mut self, op: &RawOp) -> bool {
        let Some(context) = &self.context else { return false };
        // SAFETY: as the caller promises; what is submitted is waited for, in `wait` or when the context is dropped.
        let submitted = unsafe { context.submit(op, None) }.is_ok();
        self.under_way += usize::from(submitted);
        submitted
    }

    /// Waits until all that was submitted has ended, and the kernel keeps nothing of it: slots and results, bytes or a negative errno.
    /// If the kernel does not tell of the ends any more, nobody knows how the rest has ended; that is left out.
    pub(crate) fn wait(&mut self, mut sink: impl FnMut(u64, i64)) {
        let mut events = [Event::default(); OPERATIONS];
        while let (1.., Some(context)) = (self.under_way, &self.context) {
            match context.events(Wait::ForOne, &mut events) {
                Ok(got @ 1..) => {
                    events.iter().take(got).for_each(|event| sink(event.data, event.res));
                    self.under_way = self.under_way.saturating_sub(got);
                }
                // Dropping the context waits for what is under way.
                Ok(0) | Err(_) => self.context = None,
            }
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.wait(|_, _| {});
        let mut stock = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        match self.context.take() {
            Some(context) => stock.idle.push(context),
            None => stock.made -= 1,
        }
    }
}
