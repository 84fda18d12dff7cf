//! Page-aligned memory for direct I/O.
//!
//! Direct I/O needs memory aligned to the device's logical block; a page satisfies every device (disk-format.md 3, rule 1).
//! An [`AlignedBuf`] moves into the operation that uses it and comes back with the completion, so safe code cannot touch
//! memory that the kernel is still reading or writing. It is of its own, or a piece of a huge page ([`HugePages`](crate::HugePages)).

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::huge::Piece;

/// Alignment of every buffer in bytes.
pub const BUFFER_ALIGN: usize = 4096;

/// Largest transfer in bytes: the largest lease area (disk-format.md 2.1).
pub const MAX_IO_LEN: usize = 8 << 20;

/// An owned, page-aligned byte buffer of fixed length; zero-filled when allocated by [`AlignedBuf::zeroed`].
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    len: usize,
    /// Whose memory it is, if not allocated for this buffer. Returned when the buffer is dropped.
    piece: Option<Piece>,
}

impl AlignedBuf {
    /// Allocates `len` zero bytes; `None` if there is no memory to be had. A daemon must not end for want of a megabyte: the operation waits, or fails.
    ///
    /// # Panics
    /// If `len` is 0 or above [`MAX_IO_LEN`]: lengths come from a verified geometry, never straight from outside.
    #[must_use]
    pub fn try_zeroed(len: usize) -> Option<Self> {
        // SAFETY: the layout has a size above zero (checked in `layout`).
        let raw = unsafe { alloc_zeroed(Self::layout(len)) };
        NonNull::new(raw).map(|ptr| Self { ptr, len, piece: None })
    }

    /// Allocates `len` zero bytes, and ends the process if there is no memory: for programs that nobody depends on.
    ///
    /// # Panics
    /// As [`AlignedBuf::try_zeroed`].
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self::try_zeroed(len).unwrap_or_else(|| handle_alloc_error(Self::layout(len)))
    }

    /// A buffer in memory that is there: `len` bytes from `ptr`, all initialised, page-aligned and nobody else's for as long as `piece` exists.
    pub(crate) fn of_piece(ptr: NonNull<u8>, len: usize, piece: Piece) -> Self {
        Self { ptr, len, piece: Some(piece) }
    }

    /// Whether it is a piece of a huge page.
    #[must_use]
    pub fn is_huge(&self) -> bool {
        self.piece.is_some()
    }

    fn layout(len: usize) -> Layout {
        assert!(len > 0 && len <= MAX_IO_LEN, "buffer length {len} is outside 1..={MAX_IO_LEN}");
        match Layout::from_size_align(len, BUFFER_ALIGN) {
            Ok(layout) => layout,
            Err(_) => unreachable!("length and alignment are both within bounds"),
        }
    }

    /// Overwrites the whole buffer with zeros.
    pub fn clear(&mut self) {
        self.fill(0);
    }

    /// The start of the memory, for the kernel. Valid until the buffer is dropped, wherever the owner moves.
    pub(crate) fn as_raw(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `ptr` addresses `len` initialised bytes owned by `self` (or by its piece). The kernel writes to them only while the buffer
        // sits inside an engine, which creates no reference to it (see `queue`).
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.piece.is_none() {
            // SAFETY: allocated in `try_zeroed` with the same layout and freed once.
            unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.len)) }
        }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

// SAFETY: the buffer owns its memory, has no thread affinity and no interior mutability.
unsafe impl Send for AlignedBuf {}
// SAFETY: a shared reference permits reading only.
unsafe impl Sync for AlignedBuf {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_page_aligned_and_zero() {
        for len in [1, 512, 4096, 1 << 20, MAX_IO_LEN] {
            let buf = AlignedBuf::zeroed(len);
            assert_eq!(buf.as_raw() as usize % BUFFER_ALIGN, 0);
            assert_eq!(buf.len(), len);
            assert!(buf.iter().all(|&b| b == 0));
        }
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn an_empty_buffer_is_refused() {
        let _ = AlignedBuf::zeroed(0);
    }
}
