//! Giving up root but for one right: to signal processes of other users. Whether memory may be locked without a limit.

use crate::credentials::{UserId, set_user};
use nix::sys::prctl;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use std::io;

/// `_LINUX_CAPABILITY_VERSION_3`: two sets of 32 bits.
const VERSION_3: u32 = 0x2008_0522;
/// Bit of `CAP_KILL` in the first set.
const KILL: u32 = 1 << 5;
/// Bit of `CAP_IPC_LOCK` in the first set.
const IPC_LOCK: u32 = 1 << 14;

#[repr(C)]
struct Header {
    version: u32,
    /// 0: the calling thread.
    pid: libc::c_int,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Changes the user of all threads, for good, as [`set_user`]; the calling thread keeps the right to signal any process, and so do
/// threads it starts later. Programs it might run do not get it. `Ok(false)`: the user is changed, but that right was not to be
/// had.
///
/// # Errors
///
/// Those of [`set_user`].
pub fn set_user_but_keep_kill(user: UserId) -> io::Result<bool> {
    let kept = prctl::set_keepcaps(true).is_ok();
    set_user(user)?;
    if user.0 == 0 {
        return Ok(true);
    }
    let rest = Sets { effective: 0, permitted: 0, inheritable: 0 };
    let kill = Sets { effective: KILL, permitted: KILL, inheritable: 0 };
    let set = kept && capset([kill, rest]).is_ok();
    if !set {
        // Whatever else was kept is not wanted; without keeping, nothing was.
        let _ = capset([rest, rest]);
    }
    Ok(set)
}

/// Whether no limit of locked memory applies to the calling thread, now.
#[must_use]
pub fn may_lock_all_memory() -> bool {
    capget().is_ok_and(|[first, _]| first.effective & IPC_LOCK != 0)
        || getrlimit(Resource::RLIMIT_MEMLOCK).is_ok_and(|(soft, _)| soft == RLIM_INFINITY)
}

fn capget() -> io::Result<[Sets; 2]> {
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut sets = [Sets { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: the kernel reads and may write one header, and writes, for this version, two sets, all valid for the call; it keeps none.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(sets) }
}

fn capset(sets: [Sets; 2]) -> io::Result<()> {
    let header = Header { version: VERSION_3, pid: 0 };
    // SAFETY: the kernel reads one header and, for this version, two sets, both valid for the call; it keeps neither.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
