//! Keeping a daemon running on a busy host: locked memory, resource limits, real-time scheduling (command-line.md 9.1).

use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use std::{io, ptr};

/// Which pages to lock; the daemon's option `-l`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryLock {
    /// Those mapped now, and those mapped later from when they are first used, if there is no limit of locked memory: with one, mapping
    /// more than that would fail.
    Current,
    /// Also those mapped later.
    CurrentAndFuture,
}

/// Lock a page when it is first used. The binding lacks it.
const ON_FAULT: MlockAllFlags = MlockAllFlags::from_bits_retain(libc::MCL_ONFAULT);

/// Locks the process's memory, so that no page fault waits for storage. Whether that goes for memory that is mapped later, too.
///
/// # Errors
///
/// ENOMEM: over the limit of locked memory. EPERM: not allowed to lock any.
pub fn lock_memory(which: MemoryLock) -> io::Result<bool> {
    match which {
        MemoryLock::CurrentAndFuture => {
            mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE)?;
            Ok(true)
        }
        MemoryLock::Current => {
            mlockall(MlockAllFlags::MCL_CURRENT)?;
            // Linux 4.4. Without it what is there now is locked, as was asked for.
            Ok(is_unlimited() && mlockall(MlockAllFlags::MCL_FUTURE | ON_FAULT).is_ok())
        }
    }
}

/// Whether no limit of locked memory applies. A right to exceed it does not count if it is one of a user name space, so this is tried.
fn is_unlimited() -> bool {
    let Ok((limit, _)) = getrlimit(Resource::RLIMIT_MEMLOCK) else { return false };
    if limit == RLIM_INFINITY {
        return true;
    }
    let Ok(len) = usize::try_from(limit.saturating_add(1)) else { return false };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_LOCKED;
    // SAFETY: a new mapping at an address of the kernel's choice touches no other; without access there is no memory behind it.
    let start = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: mapped above, and nobody refers to it.
    unsafe { libc::munmap(start, len) };
    true
}

/// A limit a daemon raises at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Locked memory.
    LockedMemory,
    /// Real-time priority.
    RealTimePriority,
    /// Size of core dumps.
    CoreSize,
}

impl Limit {
    /// In the order the daemon raises them.
    pub const ALL: [Self; 3] = [Self::LockedMemory, Self::RealTimePriority, Self::CoreSize];

    /// The name in the message `cannot set the limits for NAME ERRNO` (command-line.md 9.1).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LockedMemory => "memlock",
            Self::RealTimePriority => "rtprio",
            Self::CoreSize => "core dumps",
        }
    }

    /// Sets the soft and the hard limit of this process to unlimited.
    ///
    /// # Errors
    ///
    /// EPERM: the hard limit is lower and the process may not raise it.
    pub fn raise(self) -> io::Result<()> {
        let resource = match self {
            Self::LockedMemory => Resource::RLIMIT_MEMLOCK,
            Self::RealTimePriority => Resource::RLIMIT_RTPRIO,
            Self::CoreSize => Resource::RLIMIT_CORE,
        };
        Ok(setrlimit(resource, RLIM_INFINITY, RLIM_INFINITY)?)
    }
}

/// The highest priority of round-robin scheduling, 99 on Linux.
///
/// # Errors
///
/// EINVAL, if the kernel does not know the policy.
pub fn max_round_robin_priority() -> io::Result<i32> {
    // SAFETY: takes an integer.
    match unsafe { libc::sched_get_priority_max(libc::SCHED_RR) } {
        priority if priority < 0 => Err(io::Error::last_os_error()),
        priority => Ok(priority),
    }
}

/// Real-time round-robin scheduling for the calling thread; processes it forks start with the normal policy, threads too.
///
/// # Errors
///
/// EPERM: no privilege and the limit is lower. EINVAL: not a priority.
pub fn set_round_robin(priority: i32) -> io::Result<()> {
    let param = libc::sched_param { sched_priority: priority };
    // SAFETY: `param` is a valid structure for the call, which does not keep it; 0 is the calling thread.
    let result =
        unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const param) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    #[test]
    fn raised_limits_are_unlimited_or_the_process_may_not() {
        for limit in Limit::ALL {
            match limit.raise() {
                Ok(()) if limit == Limit::CoreSize => {
                    assert_eq!(getrlimit(Resource::RLIMIT_CORE).unwrap(), (RLIM_INFINITY, RLIM_INFINITY));
                }
                Ok(()) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{}", limit.name()),
            }
        }
    }

    #[test]
    fn round_robin_applies_to_this_thread_and_not_to_its_threads() {
        let priority = max_round_robin_priority().unwrap();
        assert!(priority >= 32, "POSIX asks for 32 priorities, not {priority}");
        let policy = || {
            // SAFETY: takes an integer.
            unsafe { libc::sched_getscheduler(0) }
        };
        match set_round_robin(priority) {
            Ok(()) => {
                assert_eq!(policy(), libc::SCHED_RR | libc::SCHED_RESET_ON_FORK);
                assert_eq!(std::thread::spawn(policy).join().unwrap(), libc::SCHED_OTHER);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::PermissionDenied),
        }
        assert!(set_round_robin(priority + 1).is_err());
    }
}
