//! Heap that is there before it is needed.

/// Makes the C library keep this many bytes of free heap, for all threads, and give nothing back to the system. Whoever allocates
/// within them asks the system for nothing; with memory locked, they are never paged out either. Returns whether it was done:
/// only the GNU C library can be told so.
///
/// Call it before threads exist: those that already have a heap of their own keep it.
pub fn keep_heap(bytes: usize) -> bool {
    #[cfg(target_env = "gnu")]
    {
        let set = |what, to: usize| {
            let Ok(to) = libc::c_int::try_from(to) else { return false };
            // SAFETY: `mallopt` takes two integers and changes settings of the allocator only.
            unsafe { libc::mallopt(what, to) == 1 }
        };
        let piece = bytes.min(PIECE_MAX);
        let told = set(libc::M_ARENA_MAX, 1)
            && set(libc::M_TRIM_THRESHOLD, libc::c_int::MAX as usize)
            && set(libc::M_MMAP_THRESHOLD, PIECE_MAX * 2);
        // From the heap, whose pages then exist, and which stays as long as it is.
        let mut pieces: Vec<Vec<u8>> =
            (0..bytes.div_ceil(piece.max(1))).map(|_| Vec::with_capacity(piece)).collect();
        pieces.iter_mut().for_each(|piece| populate(piece.spare_capacity_mut()));
        drop(std::hint::black_box(pieces));
        // Last, when none of them is mapped by itself any more.
        set(libc::M_MMAP_THRESHOLD, MAPPED_FROM) && told
    }
    #[cfg(not(target_env = "gnu"))]
    {
        let _ = bytes;
        false
    }
}

/// Makes the pages of this memory exist: all at once where the kernel can (Linux 5.14), else one by one.
#[cfg(target_env = "gnu")]
fn populate(memory: &mut [std::mem::MaybeUninit<u8>]) {
    let begin = memory.as_mut_ptr().cast::<u8>();
    let skipped = begin.align_offset(PAGE);
    let whole = memory.len().saturating_sub(skipped) / PAGE * PAGE;
    // SAFETY: the range lies inside `memory`, which is ours alone; populating it changes none of its bytes.
    let done = whole > 0
        && unsafe { libc::madvise(begin.add(skipped).cast(), whole, libc::MADV_POPULATE_WRITE) == 0 };
    if !done {
        memory.iter_mut().step_by(PAGE).for_each(|byte| {
            byte.write(1);
        });
    }
    std::hint::black_box(memory);
}

/// Allocations from this size on are mapped by themselves, and given back: I/O buffers of whole areas, and of the pieces in which many
/// lockspaces at a time look at theirs. In the heap they would stay for good.
pub const MAPPED_FROM: usize = 256 << 10;
/// Largest piece in which memory is taken to be kept. The library takes no threshold above 32 MiB, where pointers have four bytes none above 512 KiB.
#[cfg(target_env = "gnu")]
const PIECE_MAX: usize = if usize::BITS < 64 { 256 << 10 } else { 8 << 20 };
/// Smallest page that there is.
#[cfg(target_env = "gnu")]
const PAGE: usize = 4096;

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_free_stays_and_exists() {
        const KEPT: usize = 4 << 20;
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * PAGE
        };
        let before = resident();
        assert!(keep_heap(KEPT));
        drop(std::hint::black_box(vec![0_u8; 300_000]));
        // SAFETY: `mallinfo2` takes nothing and returns numbers.
        let free = unsafe { libc::mallinfo2() }.fordblks;
        assert!(free >= KEPT, "{free} bytes are free");
        assert!(resident() >= before + KEPT - (1 << 20), "{} bytes are resident, {before} were", resident());
    }
}
