//! The system calls of Linux AIO.
//!
//! `io_cancel` succeeds for no file or disk, and `io_destroy` waits for everything in flight. The first is not used, the second when
//! nothing is in flight, or when there is no other way to know that the kernel is done.

use std::os::fd::RawFd;
use std::ptr;

use nix::errno::Errno;

use crate::error::Op;
use crate::queue::RawOp;

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

/// `struct io_event` of linux/aio_abi.h: how an operation ended.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Event {
    /// The slot.
    pub(crate) data: u64,
    obj: u64,
    /// Bytes, or a negative errno.
    pub(crate) res: i64,
    res2: i64,
}
const _: () = assert!(size_of::<Event>() == 32);

/// Whether to wait for an event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// For as long as it takes.
    ForOne,
    No,
}

/// A set of operations in flight, and of their events. Dropping it waits for them.
pub(crate) struct Context(libc::c_ulong);

impl Context {
    /// With room for `operations` at a time.
    ///
    /// # Errors
    /// `aio-max-nr` is exhausted, or the kernel has no AIO.
    pub(crate) fn new(operations: usize) -> Result<Self, Errno> {
        let mut context = 0;
        // SAFETY: the kernel writes one context id into `context`, which it wants zero beforehand.
        let rc = unsafe { libc::syscall(libc::SYS_io_setup, operations as libc::c_long, &raw mut context) };
        Errno::result(rc).map(|_| Self(context))
    }

    /// Hands one operation to the kernel, which makes `ready` readable at its end. May block, a write to a frozen file system until the thaw.
    ///
    /// # Errors
    /// A positive errno: the kernel has not got it.
    ///
    /// # Safety
    /// Descriptor and memory stay valid, and are not referenced, until the event of the slot is there, or an error is returned.
    pub(crate) unsafe fn submit(&self, op: &RawOp, ready: Option<RawFd>) -> Result<(), i32> {
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
            flags: if ready.is_some() { IOCB_FLAG_RESFD } else { 0 },
            resfd: ready.unwrap_or(0),
            ..Iocb::default()
        };
        let mut list = [ptr::from_mut(&mut iocb)];
        loop {
            // SAFETY: the kernel copies the iocb during the call; the caller keeps descriptor and data memory valid until
            // the completion.
            let rc =
                unsafe { libc::syscall(libc::SYS_io_submit, self.0, 1 as libc::c_long, list.as_mut_ptr()) };
            match Errno::result(rc) {
                Ok(1..) => return Ok(()),
                Ok(_) => return Err(libc::EAGAIN),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno as i32),
            }
        }
    }

    /// Fetches events, as many as are there and have room, and returns how many. A signal does not end it.
    ///
    /// # Errors
    /// What the kernel says of a context that it does not know, or of memory that is none.
    pub(crate) fn events(&self, wait: Wait, events: &mut [Event]) -> Result<usize, Errno> {
        let least = libc::c_long::from(wait == Wait::ForOne);
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = if wait == Wait::ForOne { ptr::null_mut() } else { &raw mut now };
        loop {
            // SAFETY: `events` has room for as many as are asked for; with a zero timeout the call returns at once, with none it waits.
            let rc = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.0,
                    least,
                    events.len() as libc::c_long,
                    events.as_mut_ptr(),
                    timeout,
                )
            };
            match Errno::result(rc) {
                Ok(got) => return Ok(usize::try_from(got).unwrap_or(0)),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: no memory is passed, and the context is not used afterwards. It returns when the kernel is done with all memory that
        // was submitted.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}
