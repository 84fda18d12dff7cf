//! Whether a call raises SIGPIPE, which a program in Rust ignores and would not notice.

use nix::sys::signal::{SigSet, Signal};
use std::os::unix::net::UnixStream;

/// Whether this raises SIGPIPE in this thread. It is blocked meanwhile: even a signal that is ignored is kept pending as long as it is blocked.
pub(crate) fn raises_sigpipe(act: impl FnOnce()) -> bool {
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGPIPE);
    blocked.thread_block().unwrap();
    act();
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:")).unwrap();
    let pending = u64::from_str_radix(pending.trim(), 16).unwrap();
    blocked.thread_unblock().unwrap();
    pending & (1 << (Signal::SIGPIPE as u32 - 1)) != 0
}

/// A plain write to a socket whose other end is gone. Without this the answer "none was raised" would say nothing.
pub(crate) fn a_plain_write_raises_sigpipe() -> bool {
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(theirs);
    raises_sigpipe(|| assert!(nix::unistd::write(&ours, b"x").is_err()))
}
