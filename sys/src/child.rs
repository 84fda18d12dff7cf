//! A child process that runs a function of this program, for work that has to stay apart from the daemon's threads and
//! memory (the helper that kills processes and runs killpath programs); and children that end with their parent.

use crate::pidfd::PidFd;
use crate::process::thread_count;
use nix::sys::prctl;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

/// Exit status of a child whose function panicked.
pub const PANICKED: u8 = 101;

/// A forked child. Dropping this neither ends nor reaps it.
#[derive(Debug)]
pub struct ForkedChild {
    pid: Pid,
    pidfd: PidFd,
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildEnd {
    /// The function returned this.
    Exited(i32),
    /// Killed by this signal.
    Signalled(i32),
}

/// Has the kernel keep each child that ends until this process has waited for it, as programs expect. Whoever has started this one may
/// ignore SIGCHLD, which a program that is executed inherits: the kernel then forgets children at their end, how they ended included, and
/// waiting for them fails (ECHILD). Call it first of all; what is started from then on inherits this in turn.
///
/// # Errors
///
/// Only if the kernel refuses the call (seccomp).
pub fn keep_until_waited_for() -> io::Result<()> {
    take_default(Signal::SIGCHLD)
}

/// From now on this signal does what it does by itself, whatever whoever started this process has set; in programs that are executed, too.
///
/// # Errors
///
/// Only if the kernel refuses the call (seccomp).
pub fn take_default(signal: Signal) -> io::Result<()> {
    dispose(signal, SigHandler::SigDfl)
}

/// From now on this signal does nothing, in programs that are executed neither.
///
/// # Errors
///
/// Only if the kernel refuses the call (seccomp).
pub fn ignore(signal: Signal) -> io::Result<()> {
    dispose(signal, SigHandler::SigIgn)
}

fn dispose(signal: Signal, how: SigHandler) -> io::Result<()> {
    debug_assert!(matches!(how, SigHandler::SigDfl | SigHandler::SigIgn));
    let action = SigAction::new(how, SaFlags::empty(), SigSet::empty());
    // SAFETY: no function of this program becomes a handler, so none can run in the wrong place. One that was set before would be lost,
    // which harms no memory.
    unsafe { sigaction(signal, &action) }?;
    Ok(())
}

/// Has what this command starts killed when the thread that starts it ends, as it does when its process is killed.
///
/// The kernel forgets it when the child changes its user or group, and it does not go for what the child starts.
pub fn dies_with_parent(command: &mut Command) -> &mut Command {
    let parent = getpid();
    let ask = move || {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        // It may have ended before that.
        if getppid() == parent { Ok(()) } else { Err(io::Error::from(io::ErrorKind::NotFound)) }
    };
    // SAFETY: between fork and exec the closure makes two system calls, and allocates nothing: its error has no payload.
    unsafe { command.pre_exec(ask) }
}

/// Forks a child that runs `body` and exits with its result; buffers and exit handlers of this process are left alone there.
///
/// The child has copies of all open descriptors: a pipe between the two reports end of file only after each side has
/// dropped the other's end. POSIX record locks are not inherited. Call it before any thread exists: a fork copies only the
/// calling thread, and locks the others hold stay locked.
///
/// # Errors
///
/// `ResourceBusy`: this process has several threads. Those of `fork` and `pidfd_open`; after the latter the child has been
/// killed.
pub fn fork_child(body: impl FnOnce() -> u8) -> io::Result<ForkedChild> {
    let threads = thread_count()?;
    if threads != 1 {
        return Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!("forking a child needs a process of one thread, this one has {threads}"),
        ));
    }
    // SAFETY: checked above that this is the only thread, so the child's memory is as consistent as ours; only this thread
    // could have made another one since.
    match unsafe { fork()? } {
        ForkResult::Parent { child } => match PidFd::open(child.as_raw()) {
            // Not reaped yet, so the pid is still the child's.
            Ok(pidfd) => Ok(ForkedChild { pid: child, pidfd }),
            Err(error) => {
                let _ = nix::sys::signal::kill(child, Signal::SIGKILL);
                let _ = waitpid(child, None);
                Err(error)
            }
        },
        ForkResult::Child => {
            // A panic must not unwind into the parent's code.
            let status = catch_unwind(AssertUnwindSafe(body)).unwrap_or(PANICKED);
            // SAFETY: ends this process at once; takes an integer.
            unsafe { libc::_exit(i32::from(status)) }
        }
    }
}

impl ForkedChild {
    /// The child's process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// For signalling, and to ask whether it lives.
    #[must_use]
    pub fn pidfd(&self) -> &PidFd {
        &self.pidfd
    }

    /// Waits for the child's end and reaps it.
    ///
    /// # Errors
    ///
    /// ECHILD: somebody else has reaped it.
    pub fn wait(self) -> io::Result<ChildEnd> {
        loop {
            match waitpid(self.pid, None) {
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
                Ok(WaitStatus::Exited(_, status)) => return Ok(ChildEnd::Exited(status)),
                Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(ChildEnd::Signalled(signal as i32)),
                Ok(_) => {}
            }
        }
    }
}

impl AsFd for ForkedChild {
    /// Readable once the child has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}
