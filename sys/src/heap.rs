//! Heap that is there before it is needed.

/// Makes the C library keep this many bytes of free heap, for all threads, and give nothing back to the system. Whoever allocates
/// within them asks the system for nothing; with memory locked, they are never paged out either. Returns whether it was done:
/// only the GNU C library can be told so.
///
/// Call it before threads exist: those that already have a heap of their own keep it.
pub fn keep_heap(bytes: usize) -> bool {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: `mallopt` takes two integers and changes settings of the allocator only.
        let told = unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1) == 1
                && libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX) == 1
                && libc::c_int::try_from(MAPPED_FROM)
                    .is_ok_and(|from| libc::mallopt(libc::M_MMAP_THRESHOLD, from) == 1)
        };
        // In pieces that come from the heap, written to so that the pages exist; the last one keeps them together.
        let pieces: Vec<Vec<u8>> = (0..bytes.div_ceil(PIECE)).map(|_| vec![1; PIECE]).collect();
        drop(std::hint::black_box(pieces));
        told
    }
    #[cfg(not(target_env = "gnu"))]
    {
        let _ = bytes;
        false
    }
}

/// Allocations from this size on are mapped by themselves, and given back: I/O buffers of whole areas, and of the pieces in which many
/// lockspaces at a time look at theirs. In the heap they would stay for good.
pub const MAPPED_FROM: usize = 256 << 10;
/// Size of a piece.
#[cfg(target_env = "gnu")]
const PIECE: usize = 64 << 10;

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_free_and_stays() {
        const KEPT: usize = 4 << 20;
        assert!(keep_heap(KEPT));
        drop(std::hint::black_box(vec![0_u8; 300_000]));
        // SAFETY: `mallinfo2` takes nothing and returns numbers.
        let free = unsafe { libc::mallinfo2() }.fordblks;
        assert!(free >= KEPT - PIECE, "{free} bytes are free");
    }
}
