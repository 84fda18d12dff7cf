//! io_uring: one ring, one submitter thread, every operation run by a kernel worker.
//!
//! `IOSQE_ASYNC` sends each operation to a worker at once, so that entering the kernel never sleeps in a file system; a stuck
//! operation occupies one worker. Workers, not ring entries, are what runs out, hence their number is set here.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, squeue, types};

use crate::engine::EngineKind;
use crate::error::{EngineError, Op};
use crate::queue::{Backend, MAX_IN_KERNEL, NEVER_STARTED, RawOp};

/// Ring entries: never fewer than operations in the kernel, so neither queue overflows.
const RING_ENTRIES: u32 = 32;
const _: () = assert!(RING_ENTRIES as usize >= MAX_IN_KERNEL);

/// Workers for files and block devices: one per operation, since each may be stuck.
const MAX_WORKERS: u32 = 32;
const _: () = assert!(MAX_WORKERS as usize >= MAX_IN_KERNEL);

/// Pause before entering the kernel again when it was short of memory.
const ENTER_RETRY: Duration = Duration::from_millis(10);

pub(crate) struct Uring {
    ring: IoUring,
    /// Held by whoever writes submission entries.
    submission: Mutex<()>,
    /// Errno after which the ring is never entered again; 0 while it works.
    broken: AtomicI32,
}

impl Uring {
    pub(crate) fn new(ready: BorrowedFd<'_>) -> Result<Self, EngineError> {
        let ring = Self::set_up()?;
        ring.submitter()
            .register_eventfd(ready.as_raw_fd())
            .map_err(|error| unavailable("register eventfd", &error))?;
        Ok(Self { ring, submission: Mutex::new(()), broken: AtomicI32::new(0) })
    }

    /// Whether io_uring works here.
    pub(crate) fn check() -> Result<(), EngineError> {
        let mut ring = Self::set_up()?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).map_err(|error| unavailable("register probe", &error))?;
        if ![opcode::Nop::CODE, opcode::Read::CODE, opcode::Write::CODE]
            .iter()
            .all(|&op| probe.is_supported(op))
        {
            return Err(EngineError::Unavailable {
                engine: "io_uring",
                call: "read and write",
                errno: libc::EOPNOTSUPP,
            });
        }
        let nop = opcode::Nop::new().build().user_data(7);
        // SAFETY: a no-op refers to no memory.
        let pushed = unsafe { ring.submission().push(&nop) };
        pushed.map_err(|_full| EngineError::Unavailable {
            engine: "io_uring",
            call: "push",
            errno: libc::EAGAIN,
        })?;
        ring.submit_and_wait(1).map_err(|error| unavailable("io_uring_enter", &error))?;
        match ring.completion().next() {
            Some(done) if done.user_data() == 7 && done.result() == 0 => Ok(()),
            _ => Err(EngineError::Unavailable { engine: "io_uring", call: "no-op", errno: libc::EIO }),
        }
    }

    fn set_up() -> Result<IoUring, EngineError> {
        let ring = IoUring::new(RING_ENTRIES).map_err(|error| unavailable("io_uring_setup", &error))?;
        // Applies to the thread that will submit, too; 0 leaves the limit of unbounded workers alone.
        ring.submitter()
            .register_iowq_max_workers(&mut [MAX_WORKERS, 0])
            .map_err(|error| unavailable("register workers", &error))?;
        Ok(ring)
    }
}

fn unavailable(call: &'static str, error: &std::io::Error) -> EngineError {
    EngineError::Unavailable { engine: "io_uring", call, errno: error.raw_os_error().unwrap_or(libc::EIO) }
}

impl Backend for Uring {
    const KIND: EngineKind = EngineKind::IoUring;
    /// Entering the ring does not block, and the workers hang on the entering thread.
    const MAX_SUBMITTERS: usize = 1;

    unsafe fn issue(&self, op: &RawOp) -> Result<(), i64> {
        let fd = types::Fd(op.fd);
        let entry = match op.op {
            Op::Read => opcode::Read::new(fd, op.ptr, op.len).offset(op.offset).build(),
            Op::Write => opcode::Write::new(fd, op.ptr, op.len).offset(op.offset).build(),
        };
        let entry = entry.flags(squeue::Flags::ASYNC).user_data(op.slot);

        let _writer = self.submission.lock().unwrap_or_else(PoisonError::into_inner);
        match self.broken.load(Ordering::Relaxed) {
            0 => {}
            errno => return Err(-i64::from(errno)),
        }
        // While somebody had the ring any time may have passed.
        if !op.may_begin() {
            return Err(NEVER_STARTED);
        }
        {
            // SAFETY: `submission` is held, so this is the only submission queue handle.
            let mut queue = unsafe { self.ring.submission_shared() };
            // SAFETY: the caller keeps descriptor and memory valid until the completion.
            unsafe { queue.push(&entry) }.map_err(|_full| -i64::from(libc::EAGAIN))?;
        }
        loop {
            match self.ring.submit() {
                Ok(0) => thread::sleep(ENTER_RETRY),
                Ok(_) => return Ok(()),
                Err(error) => match error.raw_os_error().unwrap_or(libc::EIO) {
                    libc::EINTR => {}
                    // The entry stays in the ring; the operation is in flight, only late, and so it may begin after its time.
                    libc::EAGAIN | libc::EBUSY | libc::ENOMEM => thread::sleep(ENTER_RETRY),
                    errno => {
                        // The kernel reads entries only when entered, which never happens again: this one is withdrawn.
                        self.broken.store(errno, Ordering::Relaxed);
                        return Err(-i64::from(errno));
                    }
                },
            }
        }
    }

    fn drain(&self, sink: &mut dyn FnMut(u64, i64)) {
        // SAFETY: called under the table's lock only, so this is the only completion queue handle.
        let queue = unsafe { self.ring.completion_shared() };
        for done in queue {
            sink(done.user_data(), i64::from(done.result()));
        }
    }
}
