//! Linux AIO over plain system calls, for kernels or policies without io_uring.
//!
//! `io_submit` runs the file system's code up to the block layer and sleeps wherever that sleeps: a write to a frozen file
//! system sleeps in it until the thaw. Each such call occupies a submitter thread; see `queue`.
//!
//! `io_cancel` succeeds for no file or disk, and `io_destroy` waits for everything in flight. The first is not used, the
//! second only runs when nothing is in flight.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use nix::errno::Errno;

use crate::engine::EngineKind;
use crate::error::{EngineError, Op};
use crate::queue::{Backend, MAX_IN_KERNEL, RawOp};

/// Submissions that may be stuck at a time before further operations of the engine wait in its queue.
const MAX_SUBMITTERS: usize = 8;

/// Completions fetched by one `io_getevents`.
const EVENT_BATCH: usize = MAX_IN_KERNEL;

const IOCB_CMD_PREAD: u16 = 0;
const IOCB_CMD_PWRITE: u16 = 1;
const IOCB_FLAG_RESFD: u32 = 1;

/// `struct iocb` of linux/aio_abi.h.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    rw_flags: i32,
    #[cfg(target_endian = "big")]
    key: u32,
    opcode: u16,
    priority: i16,
    /// Unsigned in the header; the same bits.
    fd: i32,
    buf: u64,
    nbytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    resfd: i32,
}
const _: () = assert!(size_of::<Iocb>() == 64);

/// `struct io_event` of linux/aio_abi.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct IoEvent {
    data: u64,
    obj: u64,
    res: i64,
    res2: i64,
}
const _: () = assert!(size_of::<IoEvent>() == 32);

type Context = libc::c_ulong;

pub(crate) struct Aio {
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
        let context = setup()?;
        destroy(context);
        Ok(())
    }
}

fn setup() -> Result<Context, EngineError> {
    let mut context: Context = 0;
    // SAFETY: the kernel writes one context id into `context`, which it wants zero beforehand.
    let rc = unsafe { libc::syscall(libc::SYS_io_setup, MAX_IN_KERNEL as libc::c_long, &raw mut context) };
    match Errno::result(rc) {
        Ok(_) => Ok(context),
        Err(errno) => Err(EngineError::Unavailable {
            engine: EngineKind::Aio.name(),
            call: "io_setup",
            errno: errno as i32,
        }),
    }
}

fn destroy(context: Context) {
    // SAFETY: no memory is passed. With nothing in flight it neither waits for a disk nor frees what the kernel uses.
    unsafe { libc::syscall(libc::SYS_io_destroy, context) };
}

impl Backend for Aio {
    const KIND: EngineKind = EngineKind::Aio;
    const MAX_SUBMITTERS: usize = MAX_SUBMITTERS;

    unsafe fn issue(&self, op: &RawOp) -> Result<(), i32> {
        let mut iocb = Iocb {
            data: op.slot,
            opcode: match op.op {
                Op::Read => IOCB_CMD_PREAD,
                Op::Write => IOCB_CMD_PWRITE,
            },
            fd: op.fd,
            buf: op.ptr as u64,
            nbytes: u64::from(op.len),
            offset: i64::try_from(op.offset).map_err(|_| libc::EINVAL)?,
            flags: IOCB_FLAG_RESFD,
            resfd: self.ready,
            ..Iocb::default()
        };
        let mut list = [ptr::from_mut(&mut iocb)];
        loop {
            // SAFETY: the kernel copies the iocb during the call; the caller keeps descriptor and data memory valid until
            // the completion.
            let rc = unsafe {
                libc::syscall(libc::SYS_io_submit, self.context, 1 as libc::c_long, list.as_mut_ptr())
            };
            match Errno::result(rc) {
                Ok(1..) => return Ok(()),
                Ok(_) => return Err(libc::EAGAIN),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno as i32),
            }
        }
    }

    fn drain(&self, sink: &mut dyn FnMut(u64, i64)) {
        let mut events = [IoEvent::default(); EVENT_BATCH];
        loop {
            let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: `events` has room for EVENT_BATCH events; with a zero timeout the call returns at once.
            let rc = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.context,
                    0 as libc::c_long,
                    EVENT_BATCH as libc::c_long,
                    events.as_mut_ptr(),
                    &raw mut now,
                )
            };
            let got = match Errno::result(rc) {
                Ok(got) => usize::try_from(got).unwrap_or(0),
                Err(Errno::EINTR) => continue,
                Err(_) => return,
            };
            for event in events.iter().take(got) {
                sink(event.data, event.res);
            }
            if got < EVENT_BATCH {
                return;
            }
        }
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // The table frees the backend only when nothing is in flight, see the invariants of `queue`.
        destroy(self.context);
    }
}
