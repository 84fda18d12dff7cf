//! Linux AIO over plain system calls, for kernels or policies without io_uring.
//!
//! `io_submit` runs the file system's code up to the block layer and sleeps wherever that sleeps: a write to a frozen file
//! system sleeps in it until the thaw. Each such call occupies a submitter thread; see `queue`.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::engine::EngineKind;
use crate::error::EngineError;
use crate::kaio::{Context, Event, Wait};
use crate::queue::{Backend, MAX_IN_KERNEL, NEVER_STARTED, RawOp};

/// Submissions that may be stuck at a time before further operations of the engine wait in its queue.
const MAX_SUBMITTERS: usize = 8;

/// Completions fetched by one `io_getevents`.
const EVENT_BATCH: usize = MAX_IN_KERNEL;

pub(crate) struct Aio {
    /// The table frees the backend only when nothing is in flight, see the invariants of `queue`.
    context: Context,
    /// The engine's eventfd; lives in the same structure as this backend.
    ready: i32,
}

impl Aio {
    pub(crate) fn new(ready: BorrowedFd<'_>) -> Result<Self, EngineError> {
        let context = setup()?;
        Ok(Self { context, ready: ready.as_raw_fd() })
    }

    /// Whether AIO works here (`aio-max-nr`, kernel configuration).
    pub(crate) fn check() -> Result<(), EngineError> {
        setup().map(drop)
    }
}

fn setup() -> Result<Context, EngineError> {
    Context::new(MAX_IN_KERNEL).map_err(|errno| EngineError::Unavailable {
        engine: EngineKind::Aio.name(),
        call: "io_setup",
        errno: errno as i32,
    })
}

impl Backend for Aio {
    const KIND: EngineKind = EngineKind::Aio;
    const MAX_SUBMITTERS: usize = MAX_SUBMITTERS;

    unsafe fn issue(&self, op: &RawOp) -> Result<(), i64> {
        if !op.may_begin() {
            return Err(NEVER_STARTED);
        }
        // SAFETY: as the caller promises.
        unsafe { self.context.submit(op, Some(self.ready)) }.map_err(|errno| -i64::from(errno))
    }

    fn drain(&self, sink: &mut dyn FnMut(u64, i64)) {
        let mut events = [Event::default(); EVENT_BATCH];
        loop {
            let Ok(got) = self.context.events(Wait::No, &mut events) else { return };
            for event in events.iter().take(got) {
                sink(event.data, event.res);
            }
            if got < EVENT_BATCH {
                return;
            }
        }
    }
}
