//! Giving up root but for one right: to signal processes of other users.

use crate::credentials::{UserId, set_user};
use nix::sys::prctl;
use std::io;

/// `_LINUX_CAPABILITY_VERSION_3`: two sets of 32 bits.
const VERSION_3: u32 = 0x2008_0522;
/// Bit of `CAP_KILL` in the first set.
const KILL: u32 = 1 << 5;

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

fn capset(sets: [Sets; 2]) -> io::Result<()> {
    let header = Header { version: VERSION_3, pid: 0 };
    // SAFETY: the kernel reads one header and, for this version, two sets, both valid for the call; it keeps neither.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
