//! Threads that nobody waits for, and that begin, or do not, when they are started.
//!
//! A thread of the standard library maps a stack for its signal handlers as the first thing it does, and panics if it gets no memory for it: `spawn` has
//! said by then that there is a thread. A daemon that ends with a panic ended so for want of 12 KiB, with leases held. These threads have no such stack, as
//! nothing here handles an overflow (the guard page ends the process as ever): the stack that they need is there when [`spawn`] returns, or it fails.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::panic::{self, AssertUnwindSafe};
use std::ptr;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::unistd::{SysconfVar, sysconf};

/// Bytes of a name that the kernel keeps.
const NAME_BYTES: usize = 15;

/// What a thread begins with.
struct Beginning {
    name: CString,
    body: Box<dyn FnOnce() + Send>,
}

/// Starts a detached thread of this name, of which the kernel keeps 15 bytes, with a stack of `stack` bytes, or of the least there may be. A panic in it ends this
/// thread, unless a hook does more.
///
/// # Errors
/// As pthread_create(3): `EAGAIN` without memory for its stack, or where no further thread is allowed. `EINVAL`: a name with a zero byte.
pub fn spawn(name: &str, stack: usize, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let name = CString::new(&name.as_bytes()[..name.len().min(NAME_BYTES)])?;
    let attributes = Attributes::new(stack)?;
    let beginning = Box::into_raw(Box::new(Beginning { name, body: Box::new(body) }));
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: `attributes` is initialised, `thread` has room for what is written to it, and `begin` takes what it is given.
    let rc = unsafe {
        libc::pthread_create(thread.as_mut_ptr(), &raw const attributes.0, begin, beginning.cast())
    };
    if rc == 0 {
        return Ok(());
    }
    // SAFETY: no thread has begun, so it is still ours alone.
    drop(unsafe { Box::from_raw(beginning) });
    Err(io::Error::from_raw_os_error(rc))
}

/// The name of the calling thread, as [`spawn`] or the standard library have given it to the kernel.
#[must_use]
pub fn name() -> Option<CString> {
    prctl::get_name().ok()
}

/// Body of a thread.
extern "C" fn begin(beginning: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: `spawn` has made it with `Box::into_raw` for this thread, and leaves it alone once there is a thread.
    let Beginning { name, body } = *unsafe { Box::from_raw(beginning.cast::<Beginning>()) };
    // It works as well under its parent's name.
    let _ = prctl::set_name(&name);
    // The hook has told of it; beyond this function nobody can.
    let _ = panic::catch_unwind(AssertUnwindSafe(body));
    ptr::null_mut()
}

/// How a thread is made.
struct Attributes(libc::pthread_attr_t);

impl Attributes {
    fn new(stack: usize) -> io::Result<Self> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: there is room for what is written to it.
        check(unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) })?;
        // SAFETY: initialised by the call above.
        let mut attributes = Self(unsafe { attributes.assume_init() });
        // SAFETY: initialised, and destroyed only when dropped.
        check(unsafe {
            libc::pthread_attr_setdetachstate(&raw mut attributes.0, libc::PTHREAD_CREATE_DETACHED)
        })?;
        // SAFETY: likewise.
        check(unsafe { libc::pthread_attr_setstacksize(&raw mut attributes.0, whole_pages(stack)) })?;
        Ok(attributes)
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: initialised by `new`.
        unsafe { libc::pthread_attr_destroy(&raw mut self.0) };
    }
}

/// A size that may be given to a stack: at least what the processor's registers need in a signal, and whole pages.
fn whole_pages(stack: usize) -> usize {
    // SAFETY: takes and returns plain numbers. nix has no name for this one.
    let least = usize::try_from(unsafe { libc::sysconf(libc::_SC_THREAD_STACK_MIN) })
        .unwrap_or(libc::PTHREAD_STACK_MIN);
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    let page = page.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(4096);
    stack.max(least).next_multiple_of(page)
}

fn check(rc: libc::c_int) -> io::Result<()> {
    if rc == 0 { Ok(()) } else { Err(Errno::from_raw(rc).into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    const SECONDS: Duration = Duration::from_secs(60);

    #[test]
    fn a_thread_has_its_name_and_does_what_it_is_for() {
        let (told, heard) = mpsc::channel();
        spawn("a-name-that-is-long", 64 << 10, move || told.send(name()).unwrap()).unwrap();
        let name = heard.recv_timeout(SECONDS).unwrap().unwrap();
        assert_eq!(name.to_bytes(), b"a-name-that-is-");
    }

    #[test]
    fn a_stack_of_no_size_is_large_enough_to_begin_with() {
        let (told, heard) = mpsc::channel();
        spawn("small", 0, move || told.send(()).unwrap()).unwrap();
        heard.recv_timeout(SECONDS).unwrap();
        assert_eq!(whole_pages(1 << 20), 1 << 20);
        assert_eq!(whole_pages((1 << 20) + 1), (1 << 20) + 4096);
    }

    #[test]
    fn a_panic_ends_its_thread_alone_and_drops_what_it_had() {
        let (told, heard) = mpsc::channel::<()>();
        spawn("falls", 64 << 10, move || {
            let _held = told;
            panic!("on purpose");
        })
        .unwrap();
        assert_eq!(heard.recv_timeout(SECONDS), Err(mpsc::RecvTimeoutError::Disconnected));
    }

    #[test]
    fn a_thread_that_cannot_be_had_is_an_error_and_what_it_was_given_is_dropped() {
        let (told, heard) = mpsc::channel::<()>();
        let error = spawn("vast", 1 << 46, move || told.send(()).unwrap()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EAGAIN));
        assert_eq!(heard.try_recv(), Err(mpsc::TryRecvError::Disconnected));
        assert_eq!(spawn("a\0b", 0, || ()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_name_is_cut_where_the_kernel_cuts_it() {
        spawn("ääääääääää", 0, || ()).unwrap();
    }
}
