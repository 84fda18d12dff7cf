//! One mapping of huge pages: how it is made, and when it counts as made.

use std::ptr::{self, NonNull};

use nix::sys::resource::{UsageWho, getrusage};

/// Size of a huge page. Where the kernel's has another size the stock stays empty (see [`super`]).
pub(super) const PAGE: usize = 2 << 20;

/// The distance at which memory is touched to make it exist: no kernel's pages are smaller.
const TOUCH: usize = 4096;

/// Page faults that making one huge page may take. A huge page takes one; 512 ordinary ones take 512, and a kernel that hands out pieces
/// of 256 KiB 8.
const FAULTS_PER_PAGE_MAX: i64 = 8;

/// Memory of its own, a multiple of [`PAGE`] long and aligned to it; unmapped when dropped.
#[derive(Debug)]
pub(super) struct Area {
    start: NonNull<u8>,
    len: usize,
}

/// Why there is no area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The kernel refused: call and errno.
    Os(&'static str, i32),
    /// It gave ordinary pages: it has no huge ones, or may not give them to this process.
    Ordinary,
}

impl Area {
    /// Maps `len` bytes, all of which exist when this returns. May take long: the kernel clears the pages, and looks for them or makes them by
    /// moving others. Never call it from a thread that somebody waits for.
    ///
    /// With `locked` the pages are locked like those of a process that has locked all its memory, those to come included.
    ///
    /// # Errors
    /// See [`Failure`]. Nothing is left behind.
    ///
    /// # Panics
    /// If `len` is not a multiple of [`PAGE`] above zero.
    pub(super) fn make(len: usize, locked: bool) -> Result<Self, Failure> {
        assert!(len > 0 && len % PAGE == 0, "area length {len} is not a multiple of {PAGE}");
        let area = Self::reserve(len)?;
        // Where the process locks what it maps the kernel would fill the area at once, with ordinary pages. So it was mapped without
        // access; the lock is taken away for as long as it takes to say what is wanted.
        // SAFETY: `area` is a mapping of our own that nobody refers to.
        let unlocked = unsafe { libc::munlock(area.start.as_ptr().cast(), len) };
        check("munlock", unlocked)?;
        // SAFETY: as above; the mapping becomes readable and writable.
        let opened =
            unsafe { libc::mprotect(area.start.as_ptr().cast(), len, libc::PROT_READ | libc::PROT_WRITE) };
        check("mprotect", opened)?;
        // SAFETY: as above; advice changes no content.
        check("madvise", unsafe { libc::madvise(area.start.as_ptr().cast(), len, libc::MADV_HUGEPAGE) })?;
        let before = faults();
        for at in (0..len).step_by(TOUCH) {
            // By a fault for each huge page, not by one call for all: newer kernels serve a fault without the lock on all of the
            // process's memory, which another thread's mapping would wait for (docs/decisions/0014).
            // SAFETY: inside the mapping, which is writable and which nobody else refers to. Volatile: the write is its purpose.
            unsafe { ptr::write_volatile(area.start.as_ptr().add(at), 0) };
        }
        let pages = i64::try_from(len / PAGE).unwrap_or(i64::MAX);
        if faults().saturating_sub(before) > pages.saturating_mul(FAULTS_PER_PAGE_MAX) {
            return Err(Failure::Ordinary);
        }
        if locked {
            // SAFETY: as above. The pages exist, so this is quick.
            check("mlock", unsafe { libc::mlock(area.start.as_ptr().cast(), len) })?;
        }
        Ok(area)
    }

    /// Address space without access, aligned.
    fn reserve(len: usize) -> Result<Self, Failure> {
        // With room for the alignment; what is too much is given back.
        let room = len.checked_add(PAGE).ok_or(Failure::Os("mmap", libc::ENOMEM))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other.
        let start = unsafe { libc::mmap(ptr::null_mut(), room, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Failure::Os("mmap", errno()));
        }
        let start = start.cast::<u8>();
        let before = start.align_offset(PAGE);
        let after = room.saturating_sub(before).saturating_sub(len);
        let unmap = |from: *mut u8, bytes: usize| {
            if bytes > 0 {
                // SAFETY: a part of the mapping made above that nobody refers to. A failure leaves address space unused.
                unsafe { libc::munmap(from.cast(), bytes) };
            }
        };
        unmap(start, before);
        // `align_offset` of a byte pointer gives less than PAGE, so `before + len` is inside the mapping.
        let aligned = start.wrapping_add(before);
        unmap(aligned.wrapping_add(len), after);
        NonNull::new(aligned).map(|start| Self { start, len }).ok_or(Failure::Os("mmap", libc::ENOMEM))
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The byte at `at`.
    ///
    /// # Panics
    /// If it is outside.
    pub(super) fn at(&self, at: usize) -> NonNull<u8> {
        assert!(at < self.len, "byte {at} of an area of {}", self.len);
        // SAFETY: inside the mapping.
        unsafe { self.start.add(at) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: mapped in `reserve`, unmapped once. Whoever holds an area drops it only when no piece of it is out (`super`).
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

// SAFETY: an area owns its mapping and gives out addresses only.
unsafe impl Send for Area {}

/// Page faults of this thread that needed no storage.
fn faults() -> i64 {
    // A thread may always ask about itself.
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.minor_page_faults())
}

fn check(call: &'static str, result: i32) -> Result<(), Failure> {
    if result == 0 { Ok(()) } else { Err(Failure::Os(call, errno())) }
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}
