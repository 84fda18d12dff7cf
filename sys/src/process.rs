//! What `/proc` says about a process and this boot; attributes of the calling thread and process.

use nix::sys::prctl;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};

/// Enough of `/proc/PID/stat` to hold field 22: 22 fields of at most 21 bytes, the name of at most 64.
const STAT_BYTES: u64 = 1024;
/// Field 22 is the 20th after the name, which is field 2 (proc(5)).
const START_TIME_AFTER_NAME: usize = 19;
/// Length of a boot id, a UUID as text.
const BOOT_ID_BYTES: usize = 36;

/// When a process was started, in clock ticks since boot. With the pid and the boot id it names one process for ever.
///
/// # Errors
///
/// `NotFound` (ENOENT) or ESRCH: no such process. `InvalidData`: the line was not understood.
pub fn start_time(pid: i32) -> io::Result<u64> {
    let mut stat = Vec::new();
    File::open(format!("/proc/{pid}/stat"))?.take(STAT_BYTES).read_to_end(&mut stat)?;
    parse_start_time(&stat)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat: no start time")))
}

/// The process's name stands in brackets and may itself contain brackets, blanks and any other byte: the last `)` ends it.
fn parse_start_time(stat: &[u8]) -> Option<u64> {
    let end_of_name = stat.iter().rposition(|&byte| byte == b')')?;
    let fields = std::str::from_utf8(stat.get(end_of_name + 1..)?).ok()?;
    fields.split_ascii_whitespace().nth(START_TIME_AFTER_NAME)?.parse().ok()
}

/// The random id of this boot, 36 characters.
///
/// # Errors
///
/// `/proc` is not mounted, or the text has another length (`InvalidData`).
pub fn boot_id() -> io::Result<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let id = text.trim_end();
    if id.len() == BOOT_ID_BYTES {
        Ok(id.to_owned())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidData, format!("boot id {id:?}, expected 36 characters")))
    }
}

/// The thread id of the calling thread.
#[must_use]
pub fn thread_id() -> i32 {
    nix::unistd::gettid().as_raw()
}

/// Number of threads this process has.
///
/// # Errors
///
/// `/proc` is not mounted.
pub fn thread_count() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

/// Names the calling thread as `ps` shows it; the kernel keeps the first 15 bytes. The main thread's name is the process's.
///
/// # Errors
///
/// EINVAL: a NUL byte in the name.
pub fn set_thread_name(name: &str) -> io::Result<()> {
    let name = CString::new(name).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    Ok(prctl::set_name(&name)?)
}

/// Marks all descriptors from `first` on close-on-exec, so that programs started by this process do not inherit what its own
/// caller left open.
///
/// # Errors
///
/// ENOSYS or EINVAL: a kernel before 5.11. EINVAL: a negative number.
pub fn close_on_exec_from(first: i32) -> io::Result<()> {
    close_range(first, libc::CLOSE_RANGE_CLOEXEC)
}

/// Gives the calling thread a table of descriptors of its own, in which nothing is open from `first` on. What it starts from then on
/// holds none of this process's files open, not even until it has executed something else, which may take as long as a disk does not
/// answer. The other threads keep their descriptors.
///
/// For a thread beside others that from then on uses only what it opens itself: the descriptors that it knows of mean nothing to it,
/// and in a process with one thread they would be closed.
///
/// # Errors
///
/// ENOSYS: a kernel before 5.9. EPERM: a sandbox. ENOMEM. EINVAL: a negative number. Nothing is changed then.
pub fn forget_descriptors_from(first: i32) -> io::Result<()> {
    close_range(first, libc::CLOSE_RANGE_UNSHARE)
}

fn close_range(first: i32, flags: libc::c_uint) -> io::Result<()> {
    let first = u32::try_from(first).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the system call takes three integers. With the flags used here it closes nothing that a thread uses: CLOEXEC closes
    // nothing before an `exec`, and UNSHARE only in the table of a thread whose caller has promised to use nothing of it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            libc::c_ulong::from(first),
            libc::c_ulong::from(u32::MAX),
            libc::c_ulong::from(flags),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Allows core dumps of this process, or not. A change of user or group ids switches them off; call this after it.
///
/// # Errors
///
/// Only if the kernel refuses the call (seccomp).
pub fn set_dumpable(dumpable: bool) -> io::Result<()> {
    Ok(prctl::set_dumpable(dumpable)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_start_time_is_stable_and_not_before_the_parents() {
        let (own, parent) = (nix::unistd::getpid(), nix::unistd::getppid());
        let time = start_time(own.as_raw()).unwrap();
        assert!(time > 0);
        assert_eq!(start_time(own.as_raw()).unwrap(), time);
        assert!(start_time(parent.as_raw()).unwrap() <= time);
    }

    #[test]
    fn names_with_brackets_blanks_and_newlines() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21\n";
        for name in ["sanlock", "a) R 9 (b", ")))", "x\n y"] {
            assert_eq!(parse_start_time(format!("12 ({name}) {rest}").as_bytes()), Some(4711), "{name}");
        }
        let mut not_utf8 = b"12 (\xff\xfe) ".to_vec();
        not_utf8.extend_from_slice(rest.as_bytes());
        assert_eq!(parse_start_time(&not_utf8), Some(4711));
    }

    #[test]
    fn lines_without_a_start_time() {
        for line in [
            "",
            "12 (x",
            "12 (x)",
            "12 (x) S 1 2 3",
            "12 (x) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x",
        ] {
            assert_eq!(parse_start_time(line.as_bytes()), None, "{line}");
        }
        assert!(start_time(-1).is_err());
    }

    #[test]
    fn boot_id_is_a_uuid() {
        let id = boot_id().unwrap();
        assert_eq!(id.bytes().filter(|&byte| byte == b'-').count(), 4);
        assert_eq!(boot_id().unwrap(), id);
    }

    #[test]
    fn threads_have_ids_and_names() {
        let other = std::thread::spawn(|| {
            set_thread_name("a-name-longer-than-the-kernel-keeps").unwrap();
            let id = thread_id();
            assert!(thread_count().unwrap() > 1);
            (id, std::fs::read_to_string(format!("/proc/self/task/{id}/comm")).unwrap())
        });
        let (id, name) = other.join().unwrap();
        assert_ne!(id, thread_id());
        assert_eq!(name, "a-name-longer-t\n");
        assert_eq!(set_thread_name("a\0b").unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn a_thread_forgets_descriptors_that_the_others_keep() {
        use std::os::fd::AsRawFd;
        let file = File::open("/dev/null").unwrap();
        let link = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
        let theirs = link.clone();
        let seen = std::thread::spawn(move || {
            let before = std::fs::read_link(&theirs).is_ok();
            forget_descriptors_from(3).unwrap();
            (
                before,
                std::fs::read_link(&theirs).is_ok(),
                std::fs::read_link("/proc/thread-self/fd/2").is_ok(),
            )
        });
        assert_eq!(seen.join().unwrap(), (true, false, true));
        assert_eq!(std::fs::read_link(&link).unwrap(), std::path::Path::new("/dev/null"));
        assert_eq!(forget_descriptors_from(-1).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn dumpable_can_be_set() {
        set_dumpable(true).unwrap();
        assert!(prctl::get_dumpable().unwrap());
    }
}
