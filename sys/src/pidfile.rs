//! The pid file: it says which process serves a run directory, and its lock keeps a second one out.

use nix::fcntl::{FcntlArg, fcntl};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Permissions of a new pid file, less the umask (socket-protocol.md 1.2).
const PID_FILE_MODE: u32 = 0o644;

/// Why there is no locked pid file; the step decides the message (command-line.md 9.1).
#[derive(Debug, thiserror::Error)]
pub enum PidFileError {
    /// The file could not be opened or made.
    #[error("open: {0}")]
    Open(#[source] io::Error),
    /// Another process has the lock (EAGAIN or EACCES), or the file system has no locks.
    #[error("lock: {0}")]
    Lock(#[source] io::Error),
    /// The pid could not be written.
    #[error("write: {0}")]
    Write(#[source] io::Error),
}

/// A pid file with a write lock on the whole of it, held until this value is dropped.
///
/// Either kind of lock keeps the other one out, in this process and in others (docs/decisions/0027).
#[derive(Debug)]
pub struct PidFile(#[expect(dead_code, reason = "the open file is the lock")] File);

impl PidFile {
    /// Opens or makes the file, locks it, then writes this process's pid. A file locked by others is left as it is.
    ///
    /// The lock is the process's: a fork does not inherit it (lock after going into the background), and closing **any** descriptor of
    /// the file in this process gives it up, so nothing else here may open it.
    ///
    /// # Errors
    ///
    /// See [`PidFileError`].
    pub fn lock(path: &Path) -> Result<Self, PidFileError> {
        Self::locked_by(path, lock_whole)
    }

    /// The same with a lock of the open file: for a process that opens files that others name, this one among them. It lasts
    /// as long as any copy of the descriptor, so no process may be forked while this value lives that could outlive this one. Programs that
    /// are executed lose it.
    ///
    /// # Errors
    ///
    /// See [`PidFileError`].
    pub fn lock_open_file(path: &Path) -> Result<Self, PidFileError> {
        Self::locked_by(path, |file| {
            fcntl(file, FcntlArg::F_OFD_SETLK(&whole_for_writing()))?;
            Ok(())
        })
    }

    fn locked_by(path: &Path, lock: fn(&File) -> io::Result<()>) -> Result<Self, PidFileError> {
        // The directory may be another user's than ours: what that one puts there is not to lead elsewhere, nor to make us wait.
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(PID_FILE_MODE)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .map_err(PidFileError::Open)?;
        if !file.metadata().map_err(PidFileError::Open)?.is_file() {
            return Err(PidFileError::Open(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is no regular file",
            )));
        }
        lock(&file).map_err(PidFileError::Lock)?;
        file.set_len(0).map_err(PidFileError::Write)?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes()).map_err(PidFileError::Write)?;
        Ok(Self(file))
    }
}

/// Takes a POSIX write lock on all of a file, without waiting.
///
/// # Errors
///
/// EAGAIN or EACCES: another process has one. ENOLCK: the file system or the kernel has none to give.
pub fn lock_whole(file: &File) -> io::Result<()> {
    fcntl(file, FcntlArg::F_SETLK(&whole_for_writing()))?;
    Ok(())
}

/// A write lock on all of a file. The pid is 0, as locks of open files want it.
fn whole_for_writing() -> libc::flock {
    // SAFETY: an all-zero `flock` is valid: integers only.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    // Both constants are small; their types differ between C libraries. Start 0 and length 0: to the end, wherever it is.
    #[expect(clippy::cast_possible_truncation, reason = "lock types and whence are below 4")]
    {
        lock.l_type = libc::F_WRLCK as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
    }
    lock
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Locks from another process, which is what the lock is about; exit status 0 if it got the lock.
    fn another_process_gets_it(path: &Path) -> bool {
        let script = "import fcntl,sys\nf=open(sys.argv[1],'r+')\ntry: fcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB)\n\
                      except OSError: sys.exit(9)\n";
        let status = Command::new("python3").arg("-c").arg(script).arg(path).status().unwrap();
        assert!(matches!(status.code(), Some(0 | 9)), "{status}");
        status.success()
    }

    #[test]
    fn writes_the_pid_over_an_old_one_and_keeps_others_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sanlock.pid");
        std::fs::write(&path, "123456789012\n").unwrap();
        let held = PidFile::lock(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        // The read above closed a descriptor of the file and with it the lock; take it anew.
        drop(held);
        let held = PidFile::lock(&path).unwrap();
        assert!(!another_process_gets_it(&path));
        drop(held);
        assert!(another_process_gets_it(&path));
    }

    #[test]
    fn the_lock_of_an_open_file_stays_when_another_descriptor_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sanlock.pid");
        let held = PidFile::lock_open_file(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        drop(File::options().write(true).open(&path).unwrap());
        assert!(!another_process_gets_it(&path));
        // Not even this process gets it, by a lock of either kind.
        for again in [PidFile::lock, PidFile::lock_open_file] {
            let Err(PidFileError::Lock(error)) = again(&path) else { panic!("locked twice") };
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
        // Nor does a program that was started have it.
        let mut program = Command::new("sleep").arg("60").spawn().unwrap();
        drop(held);
        assert!(another_process_gets_it(&path));
        program.kill().unwrap();
        program.wait().unwrap();
    }

    #[test]
    fn what_is_no_file_of_its_own_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let [path, target] = ["sanlock.pid", "target"].map(|name| dir.path().join(name));
        std::fs::write(&target, "kept").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(matches!(PidFile::lock(&path), Err(PidFileError::Open(_))));
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "kept");
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _reader = File::options().read(true).write(true).open(&path).unwrap();
        for refused in [PidFile::lock(&path), PidFile::lock(dir.path())] {
            assert!(matches!(refused, Err(PidFileError::Open(_))), "{refused:?}");
        }
    }

    #[test]
    fn a_file_locked_elsewhere_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sanlock.pid");
        std::fs::write(&path, "1\n").unwrap();
        let script = "import fcntl,sys\nf=open(sys.argv[1],'r+')\nfcntl.lockf(f,fcntl.LOCK_EX)\nprint(flush=True)\n\
                      sys.stdin.read()\n";
        let mut holder = Command::new("python3")
            .args(["-c", script])
            .arg(&path)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        for lock in [PidFile::lock, PidFile::lock_open_file] {
            let Err(PidFileError::Lock(error)) = lock(&path) else { panic!("locked twice") };
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n");
        }
        drop(holder.stdin.take());
        holder.wait().unwrap();
        PidFile::lock(&path).unwrap();
    }

    #[test]
    fn a_missing_directory_is_an_open_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(PidFile::lock(&dir.path().join("no/file")), Err(PidFileError::Open(_))));
    }
}
