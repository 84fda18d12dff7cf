//! Going into the background, with the caller waiting until the start has succeeded or failed.
//!
//! The child tells the parent over a pipe: one byte, 0 for "started" or the exit status, then the error text. The parent
//! can so exit with the truth, where a plain fork exits 0 before anything can fail.

use crate::process::thread_count;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2, setsid};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

/// Longest error text passed to the parent, bytes. Far below what a pipe holds, so writing it cannot block.
const MAX_ERROR_BYTES: usize = 4096;
/// Exit status of a parent whose child ended without a word, by a signal, or gave up.
const FAILED: u8 = 1;

/// Which of the two processes this is.
#[derive(Debug)]
pub enum Background {
    /// The process that was called. The child has started or failed: print [`StartResult::error`] and exit.
    Parent(StartResult),
    /// The process in the background: own session, directory `/`, standard files on `/dev/null`.
    Child(Starting),
}

/// What became of the child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartResult {
    /// Status to exit with: 0 started.
    pub status: u8,
    /// Why it did not start; empty after a start.
    pub error: String,
}

/// The child's duty to say whether it started. Dropping it counts as a failure.
#[derive(Debug)]
pub struct Starting(Option<File>);

impl Starting {
    /// The start succeeded: the parent exits with 0. A parent that is gone does not matter.
    pub fn started(mut self) {
        self.report(0, "");
    }

    /// The start failed: the parent prints the text and exits with this status (0 is taken as 1).
    pub fn failed(mut self, status: u8, error: &str) {
        self.report(status.max(FAILED), error);
    }

    fn report(&mut self, status: u8, error: &str) {
        let Some(mut pipe) = self.0.take() else { return };
        let text = error.as_bytes().get(..MAX_ERROR_BYTES).unwrap_or(error.as_bytes());
        let mut message = Vec::with_capacity(3 + text.len());
        message.push(status);
        // The length saves the parent from waiting for the end of the pipe, which a forked helper may hold open.
        message.extend_from_slice(&u16::try_from(text.len()).unwrap_or(0).to_le_bytes());
        message.extend_from_slice(text);
        // The parent may have been killed; the daemon runs on. Rust programs ignore SIGPIPE.
        drop(pipe.write_all(&message));
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.report(FAILED, "the start was given up");
    }
}

/// Goes into the background. Returns in both processes, in the parent only once the child has reported or ended.
///
/// Call it before any thread exists: a fork copies only the calling thread, and locks the others hold stay locked.
///
/// # Errors
///
/// `ResourceBusy`: this process has several threads. Those of `pipe2`, `fork`, and opening `/dev/null`. In the parent: the
/// child could not be waited for. Errors of the child's own preparation reach the parent as a [`StartResult`].
pub fn go_into_background() -> io::Result<Background> {
    let threads = thread_count()?;
    if threads != 1 {
        return Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!("going into the background needs a process of one thread, this one has {threads}"),
        ));
    }
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let (read, write) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    // SAFETY: checked above that this is the only thread, so the child's memory is as consistent as ours; only this
    // thread could have made another one since.
    match unsafe { fork()? } {
        ForkResult::Parent { child } => {
            drop(write);
            Ok(Background::Parent(wait_for_start(read, child)?))
        }
        ForkResult::Child => {
            drop(read);
            let starting = Starting(Some(File::from(write)));
            match detach(&null) {
                Ok(()) => Ok(Background::Child(starting)),
                Err(error) => {
                    starting.failed(FAILED, &format!("going into the background: {error}"));
                    std::process::exit(i32::from(FAILED));
                }
            }
        }
    }
}

/// Own session, so no terminal's signals; `/`, so no file system is kept busy; no terminal to write to.
fn detach(null: &File) -> io::Result<()> {
    setsid()?;
    std::env::set_current_dir("/")?;
    nix::unistd::dup2_stdin(null.as_fd())?;
    nix::unistd::dup2_stdout(null.as_fd())?;
    nix::unistd::dup2_stderr(null.as_fd())?;
    Ok(())
}

/// Reads the child's report; without one, the child's exit status is all there is to say.
fn wait_for_start(read: OwnedFd, child: Pid) -> io::Result<StartResult> {
    let mut pipe = File::from(read);
    let mut head = [0_u8; 3];
    match pipe.read_exact(&mut head) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return wait_for_end(child),
        Err(error) => return Err(error),
    }
    let [status, low, high] = head;
    let mut text = Vec::new();
    pipe.take(u64::from(u16::from_le_bytes([low, high]))).read_to_end(&mut text)?;
    Ok(StartResult { status, error: String::from_utf8_lossy(&text).into_owned() })
}

fn wait_for_end(child: Pid) -> io::Result<StartResult> {
    loop {
        let (status, error) = match waitpid(child, None) {
            Err(nix::Error::EINTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(WaitStatus::Exited(_, status)) => {
                (u8::try_from(status).unwrap_or(FAILED).max(FAILED), format!("ended with status {status}"))
            }
            Ok(WaitStatus::Signaled(_, signal, _)) => (FAILED, format!("killed by {signal}")),
            Ok(_) => continue,
        };
        return Ok(StartResult { status, error: format!("the background process {error} during its start") });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_is_refused() {
        // The test runner has threads of its own besides the one that runs this.
        let error = std::thread::spawn(go_into_background).join().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    }
}
