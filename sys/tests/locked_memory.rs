//! Locked memory, in a process of its own: whatever a thread maps or unmaps counts for all.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use sanlock_sys::credentials::{UserId, set_user};
use sanlock_sys::priority::{MemoryLock, lock_memory};
use std::fs;
use std::hint::black_box;

/// Of memory that comes later.
const LATER: u64 = 64 << 20;
/// A user without rights.
const NOBODY: UserId = UserId(65534);

fn field(name: &str) -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
}

/// Bytes.
fn locked() -> u64 {
    field("VmLck:").split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// Memory that is there and used.
fn memory(bytes: u64) -> Vec<u8> {
    black_box(vec![1; usize::try_from(bytes).unwrap()])
}

/// Whether `CAP_IPC_LOCK` of the machine's own user name space is there.
fn has_the_right() -> bool {
    let rights = u64::from_str_radix(&field("CapEff:"), 16).unwrap();
    let map = fs::read_to_string("/proc/self/uid_map").unwrap();
    rights & 1 << 14 != 0 && map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[test]
fn later_memory_is_locked_where_that_is_allowed_and_to_be_had_where_it_is_not() {
    let limit = getrlimit(Resource::RLIMIT_MEMLOCK).unwrap().0;
    if has_the_right() || limit == RLIM_INFINITY {
        assert!(lock_memory(MemoryLock::Current).unwrap());
        let at_first = locked();
        assert!(at_first > 0);
        let later = memory(LATER);
        assert!(locked() >= at_first + LATER, "{} of {at_first}", locked());
        drop(later);
        // SAFETY: no arguments.
        unsafe { libc::munlockall() };
        assert_eq!(locked(), 0);
    }
    if limit == RLIM_INFINITY || (has_the_right() && set_user(NOBODY).is_err()) {
        return;
    }
    // Without the right there is a limit. Over it at once nothing can be locked; otherwise only what is there.
    assert_ne!(lock_memory(MemoryLock::Current).ok(), Some(true));
    drop(memory(limit + (1 << 20)));
}
