//! AIO for threads that wait for what they submit: contexts to be lent, each to one of them at a time.

use std::sync::{Mutex, PoisonError};

use crate::kaio::{Context, Event, Wait};
use crate::queue::RawOp;

/// Contexts at most; who comes beyond them makes ordinary calls. They are kept: making one takes 20 microseconds, and giving it back, which
/// waits for a grace period of the kernel, 30 milliseconds.
const MAX_CONTEXTS: usize = 32;

/// Operations that one of them has at a time: a write, and what is made beside it.
const OPERATIONS: usize = 2;

/// The result where the kernel has told of none.
const UNKNOWN: i64 = -(libc::EIO as i64);

static CONTEXTS: Mutex<Stock> = Mutex::new(Stock { idle: Vec::new(), made: 0 });

struct Stock {
    idle: Vec<Context>,
    made: usize,
}

/// One of the contexts, put back when it is dropped, once all that was submitted has ended.
pub(crate) struct Lent {
    /// `None`: not made, or given back to the kernel. Dropping it says so.
    context: Option<Context>,
    /// The slots of what is under way.
    slots: [Option<u64>; OPERATIONS],
}

impl Lent {
    /// `None` if all are in use, or the kernel gives no further one.
    pub(crate) fn take() -> Option<Self> {
        let mut stock = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        let slots = [None; OPERATIONS];
        if let Some(context) = stock.idle.pop() {
            return Some(Self { context: Some(context), slots });
        }
        if stock.made >= MAX_CONTEXTS {
            return None;
        }
        stock.made += 1;
        drop(stock);
        let mut lent = Self { context: None, slots };
        lent.context = Some(Context::new(OPERATIONS).ok()?);
        Some(lent)
    }

    /// Hands an operation to the kernel. `false`: it has not got it.
    ///
    /// # Safety
    /// Descriptor and memory are valid, and not referenced, until the slot is told of by [`Self::look`] or [`Self::wait`].
    pub(crate) unsafe fn submit(&mut self, op: &RawOp) -> bool {
        let (Some(context), Some(place)) =
            (&self.context, self.slots.iter_mut().find(|place| place.is_none()))
        else {
            return false;
        };
        // SAFETY: as the caller promises.
        let submitted = unsafe { context.submit(op, None) }.is_ok();
        if submitted {
            *place = Some(op.slot);
        }
        submitted
    }

    /// Tells of what has ended: slot, and bytes or a negative errno. Each is told of once, when the kernel keeps nothing of it.
    pub(crate) fn look(&mut self, mut sink: impl FnMut(u64, i64)) {
        let _later = self.fetch(Wait::No, &mut sink);
    }

    /// The same, until all that was submitted has ended.
    pub(crate) fn wait(&mut self, mut sink: impl FnMut(u64, i64)) {
        while self.slots.iter().any(Option::is_some) {
            if !self.fetch(Wait::ForOne, &mut sink) {
                // Dropping the context waits for what is under way; how that ends nobody knows.
                self.context = None;
                self.slots.iter_mut().filter_map(Option::take).for_each(|slot| sink(slot, UNKNOWN));
            }
        }
    }

    /// Whether the kernel tells of any end.
    fn fetch(&mut self, wait: Wait, sink: &mut dyn FnMut(u64, i64)) -> bool {
        let mut events = [Event::default(); OPERATIONS];
        let got = self.context.as_ref().and_then(|context| context.events(wait, &mut events).ok());
        for event in events.iter().take(got.unwrap_or(0)) {
            if let Some(place) = self.slots.iter_mut().find(|place| **place == Some(event.data)) {
                *place = None;
                sink(event.data, event.res);
            }
        }
        got.is_some_and(|got| got > 0)
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
