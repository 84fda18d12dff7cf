//! Processes by descriptor: a pid may be reused, a pidfd stays with its process.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A process, held by a close-on-exec descriptor. It becomes readable when the process ends, so it can be polled.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// Opens the process that has this pid now.
    ///
    /// The pid may have been reused before the call; compare [`crate::process::start_time`] where that matters.
    ///
    /// # Errors
    ///
    /// ESRCH: no such process. EINVAL: not positive. EMFILE, ENFILE. Old kernels: ENOSYS.
    pub fn open(pid: i32) -> io::Result<Self> {
        if pid <= 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: the system call takes two integers and touches no memory of ours.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid), 0_u64) };
        let fd = i32::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us and nobody else knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Takes over a descriptor that [`PidFd::open`] made, perhaps in another process. Of any other kind, signals fail with EBADF.
    #[must_use]
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Sends a signal to exactly this process.
    ///
    /// # Errors
    ///
    /// ESRCH: it is gone (and waited for). EPERM: not allowed to.
    pub fn send_signal(&self, signal: Signal) -> io::Result<()> {
        // SAFETY: integers and a null siginfo, which the kernel takes as "fill it in as kill does".
        let result = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                libc::c_long::from(self.0.as_raw_fd()),
                libc::c_long::from(signal as libc::c_int),
                std::ptr::null::<libc::siginfo_t>(),
                0_u64,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Whether the process has ended; a zombie counts as ended. Does not block.
    ///
    /// # Errors
    ///
    /// Those of `poll`, in practice ENOMEM. The process must then be taken as alive.
    pub fn is_gone(&self) -> io::Result<bool> {
        let mut polled = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut polled, PollTimeout::ZERO) {
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
                Ok(ready) => return Ok(ready > 0),
            }
        }
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    fn a_child_lives_takes_a_signal_and_is_gone() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let fd = PidFd::open(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(!fd.is_gone().unwrap());
        fd.send_signal(Signal::SIGKILL).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert!(fd.is_gone().unwrap());
        assert_eq!(fd.send_signal(Signal::SIGKILL).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn a_zombie_is_gone() {
        let mut child = Command::new("true").spawn().unwrap();
        let fd = PidFd::open(i32::try_from(child.id()).unwrap()).unwrap();
        poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], 10_000_u16).unwrap();
        assert!(fd.is_gone().unwrap());
        child.wait().unwrap();
    }

    #[test]
    fn pids_that_are_none() {
        for pid in [0, -1, i32::MIN] {
            assert_eq!(PidFd::open(pid).unwrap_err().raw_os_error(), Some(libc::EINVAL), "{pid}");
        }
        let mut child = Command::new("true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        child.wait().unwrap();
        assert_eq!(PidFd::open(pid).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
