//! For tests: a directory on a file system that answers nothing, as one of a dead NFS server or SAN.

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// What takes longer than this hangs.
const LONG: Duration = Duration::from_secs(60);

/// A FUSE file system whose server never even says what it can do: every request waits in the kernel.
pub(crate) struct Hung {
    dir: tempfile::TempDir,
    server: Mutex<Option<File>>,
}

impl Hung {
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// From now on the directory hangs, for this thread and those that it starts: they get mounts of their own, which end
    /// with them.
    pub(crate) fn hang(&self) {
        const NONE: Option<&str> = None;
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).unwrap();
        let server = self.server.lock().unwrap();
        let fd = server.as_ref().unwrap().as_raw_fd();
        let options = format!("fd={fd},rootmode=40000,user_id=0,group_id=0");
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("hung"), self.dir(), Some("fuse"), flags, Some(options.as_str())).unwrap();
    }

    /// What is below the file system shows again, and whoever waits for it gets an error.
    pub(crate) fn end(&self) {
        umount2(self.dir(), MntFlags::MNT_DETACH).unwrap();
        self.fail();
    }

    fn fail(&self) {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Runs `body` on a thread; fails if it does not come back. Needs root and FUSE, which CI has.
#[expect(clippy::print_stderr, reason = "a word of the test, which its harness collects")]
pub(crate) fn with_hung_directory(body: impl FnOnce(&Hung) + Send + 'static) {
    let server = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let server = match server {
        Ok(server) if nix::unistd::geteuid().is_root() => server,
        other => {
            assert!(std::env::var_os("CI").is_none(), "required in CI: root and /dev/fuse: {other:?}");
            eprintln!("SKIPPED: needs root and /dev/fuse");
            return;
        }
    };
    let here = std::env::current_exe().unwrap();
    let dir = tempfile::tempdir_in(here.parent().unwrap()).unwrap();
    let hung = Arc::new(Hung { dir, server: Mutex::new(Some(server)) });
    let (done, ended) = sync_channel(1);
    let theirs = Arc::clone(&hung);
    let thread = thread::spawn(move || {
        body(&theirs);
        let _ = done.send(());
    });
    let waited = ended.recv_timeout(LONG);
    hung.fail();
    let result = thread.join();
    assert_ne!(waited, Err(RecvTimeoutError::Timeout), "held up by a file system that hangs");
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}
