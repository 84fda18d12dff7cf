//! Not writing pages out when the kernel is short of memory.
//!
//! Whoever allocates then, in any system call, may have to free some first, by writing pages out: to swap on the very disk that no longer
//! answers. A thread marked as an I/O flusher (Linux 5.6) frees only what needs no writing. Where there is none of that it still waits until
//! others have freed some. It moves no pages either to make larger ones (compaction).

use std::io;

/// Linux's numbers, which the C library's binding lacks.
const PR_SET_IO_FLUSHER: libc::c_int = 57;
const PR_GET_IO_FLUSHER: libc::c_int = 58;

/// Marks the calling thread, or takes the mark away. Threads it starts later, processes it forks and programs these become inherit it.
///
/// # Errors
///
/// EPERM: without `CAP_SYS_RESOURCE`, which also taking it away needs. EINVAL: the kernel is older than 5.6.
pub fn set_io_flusher(marked: bool) -> io::Result<()> {
    prctl(PR_SET_IO_FLUSHER, marked.into()).map(drop)
}

/// Calls `body`, which starts a program, without the mark: a program that is started is none to be spared, and what it starts may be large and
/// live long. Where it cannot be taken away there is none.
pub fn without_io_flusher<T>(body: impl FnOnce() -> T) -> T {
    let marked = prctl(PR_GET_IO_FLUSHER, 0).is_ok_and(|marked| marked == 1);
    let taken = marked && set_io_flusher(false).is_ok();
    let result = body();
    if taken {
        // As a moment ago: a right that is there does not go.
        let _ = set_io_flusher(true);
    }
    result
}

fn prctl(what: libc::c_int, value: libc::c_ulong) -> io::Result<libc::c_int> {
    const UNUSED: libc::c_ulong = 0;
    // SAFETY: both calls take and return numbers; what is unused has to be 0.
    let result = unsafe { libc::prctl(what, value, UNUSED, UNUSED, UNUSED) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;
    use std::thread;

    /// `PF_MEMALLOC_NOIO` among the flags that `/proc` shows, field 9 of `stat`.
    const NO_IO: u64 = 0x0008_0000;

    fn is_marked(stat: &str) -> bool {
        let flags = stat.rsplit(") ").next().unwrap().split(' ').nth(6).unwrap();
        flags.parse::<u64>().unwrap() & NO_IO != 0
    }

    fn own_mark() -> bool {
        is_marked(&fs::read_to_string("/proc/thread-self/stat").unwrap())
    }

    fn child_has_it() -> bool {
        is_marked(
            &String::from_utf8(Command::new("cat").arg("/proc/self/stat").output().unwrap().stdout).unwrap(),
        )
    }

    #[test]
    fn a_marked_thread_and_what_it_starts_do_no_io_for_memory_but_programs_it_spares() {
        // On a thread of its own: others here start programs, too.
        thread::spawn(|| match set_io_flusher(true) {
            Ok(()) => {
                assert!(own_mark() && thread::spawn(own_mark).join().unwrap() && child_has_it());
                assert!(!without_io_flusher(child_has_it));
                assert!(own_mark());
                set_io_flusher(false).unwrap();
                assert!(!own_mark());
            }
            Err(error) => {
                // Linux 5.6 and later; older ones do not know the call.
                assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
                assert!(!own_mark() && !without_io_flusher(child_has_it));
            }
        })
        .join()
        .unwrap();
    }
}
