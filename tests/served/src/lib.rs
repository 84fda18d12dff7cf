//! A file of which every read and write takes longer, or fails, or whose opens and closes hang, or that carries out what it has said to
//! have failed: a file system in user space with one file in it.
//!
//! Operations wait side by side, as they do on a storage array: a second one that begins meanwhile ends right after the first.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use fuser::consts::{FOPEN_DIRECT_IO, FUSE_ASYNC_DIO};
use fuser::{
    BackgroundSession, FileAttr, FileType, Filesystem, KernelConfig, MountOption, ReplyAttr, ReplyData,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
};
use nix::errno::Errno;
use tempfile::TempDir;

/// Operations that wait at a time; further ones wait for a free worker.
const WORKERS: u16 = 128;
/// Operations that wait for a worker; further ones fail with EAGAIN. The kernel has at most [`WORKERS`] on its way, so none does.
const QUEUE_MAX: usize = 4096;
/// Bytes of one request of the kernel at most.
const REQUEST_MAX: u32 = 1 << 20;
/// How long the kernel believes what it was told about the file.
const TTL: Duration = Duration::from_secs(3600);
/// Writes to one file may go side by side (a bit of the reply to an open that has no name in the library).
const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

const ROOT: u64 = 1;
const FILE: u64 = 2;
const NAME: &str = "leases";

/// What is wrong with the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Every operation takes so much longer.
    pub delay: Duration,
    /// Every operation fails like this then.
    pub error: Option<Errno>,
}

impl Trouble {
    /// Every operation takes so much longer.
    #[must_use]
    pub fn slow(delay: Duration) -> Self {
        Self { delay, error: None }
    }

    /// Every operation fails.
    #[must_use]
    pub fn broken(error: Errno) -> Self {
        Self { delay: Duration::ZERO, error: Some(error) }
    }
}

/// What is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hang {
    /// Opens of the file.
    Opens,
    /// Closes of it.
    Closes,
}

/// Writes that fail, and are carried out all the same.
#[derive(Default)]
struct Denied {
    /// The next one at this offset, and how much later.
    next: Option<(u64, Duration)>,
    /// How many have been carried out.
    done: usize,
}

/// Opens and closes that nobody answers for now.
#[derive(Default)]
struct Unanswered {
    hang: Option<Hang>,
    opens: Vec<ReplyOpen>,
    closes: Vec<ReplyEmpty>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The mounted file.
pub struct ServedFile {
    path: PathBuf,
    unanswered: Arc<Mutex<Unanswered>>,
    denied: Arc<Mutex<Denied>>,
    // Unmounts; before the directory goes.
    session: Option<BackgroundSession>,
    _dir: TempDir,
}

impl ServedFile {
    /// The file `behind`, with this trouble, in a directory of its own below `dir`.
    ///
    /// # Errors
    /// `behind` cannot be opened, or file systems in user space are not to be had.
    pub fn over(behind: &Path, dir: &Path, trouble: Trouble) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(behind)?;
        let length = file.metadata()?.len();
        let dir = tempfile::Builder::new().prefix("served-").tempdir_in(dir)?;
        let (unanswered, denied, file) = (Arc::default(), Arc::default(), Arc::new(file));
        let queue = workers(&file, trouble);
        let served =
            Served { length, queue, file, unanswered: Arc::clone(&unanswered), denied: Arc::clone(&denied) };
        let options = [MountOption::FSName("served".to_owned()), MountOption::RW];
        let session = fuser::spawn_mount2(served, dir.path(), &options)?;
        Ok(Self { path: dir.path().join(NAME), unanswered, denied, session: Some(session), _dir: dir })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// From now on these are not answered.
    pub fn hang(&self, what: Hang) {
        lock(&self.unanswered).hang = Some(what);
    }

    /// The next write at this offset fails with `EIO`, and is carried out so much later.
    pub fn deny(&self, offset: u64, later: Duration) {
        lock(&self.denied).next = Some((offset, later));
    }

    /// How many writes have been carried out that had failed.
    #[must_use]
    pub fn carried_out(&self) -> usize {
        lock(&self.denied).done
    }

    /// How many opens and closes hang.
    #[must_use]
    pub fn hanging(&self) -> usize {
        let unanswered = lock(&self.unanswered);
        unanswered.opens.len() + unanswered.closes.len()
    }

    /// Answers all that hang, and everything from now on.
    pub fn answer(&self) {
        let unanswered = std::mem::take(&mut *lock(&self.unanswered));
        unanswered.opens.into_iter().for_each(opened);
        unanswered.closes.into_iter().for_each(ReplyEmpty::ok);
    }
}

impl fmt::Debug for ServedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServedFile({})", self.path.display())
    }
}

fn opened(reply: ReplyOpen) {
    reply.opened(0, FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES);
}

impl Drop for ServedFile {
    fn drop(&mut self) {
        // What hangs in the kernel cannot be killed.
        self.answer();
        drop(self.session.take());
    }
}

/// One operation that waits for its time.
struct Waiting {
    since: Instant,
    operation: Operation,
}

enum Operation {
    Read { offset: u64, size: u32, reply: ReplyData },
    Write { offset: u64, data: Vec<u8>, reply: ReplyWrite },
}

impl Operation {
    fn fail(self, error: Errno) {
        match self {
            Self::Read { reply, .. } => reply.error(error as i32),
            Self::Write { reply, .. } => reply.error(error as i32),
        }
    }
}

/// Threads that each let one operation wait and then do it. They end when the sender is gone.
fn workers(file: &Arc<File>, trouble: Trouble) -> SyncSender<Waiting> {
    let (sender, receiver) = sync_channel(QUEUE_MAX);
    let receiver = Arc::new(Mutex::new(receiver));
    for _ in 0..WORKERS {
        let (file, receiver) = (Arc::clone(file), Arc::clone(&receiver));
        thread::spawn(move || work(&file, trouble, &receiver));
    }
    sender
}

fn work(file: &File, trouble: Trouble, receiver: &Mutex<Receiver<Waiting>>) {
    loop {
        let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Waiting { since, operation }) = next else { return };
        thread::sleep(trouble.delay.saturating_sub(since.elapsed()));
        if let Some(error) = trouble.error {
            operation.fail(error);
            continue;
        }
        match operation {
            Operation::Read { offset, size, reply } => {
                let mut bytes = vec![0; size as usize];
                match file.read_at(&mut bytes, offset) {
                    Ok(length) => reply.data(&bytes[..length]),
                    Err(error) => reply.error(error.raw_os_error().unwrap_or(Errno::EIO as i32)),
                }
            }
            Operation::Write { offset, data, reply } => match file.write_at(&data, offset) {
                Ok(length) => reply.written(u32::try_from(length).unwrap_or(u32::MAX)),
                Err(error) => reply.error(error.raw_os_error().unwrap_or(Errno::EIO as i32)),
            },
        }
    }
}

struct Served {
    length: u64,
    queue: SyncSender<Waiting>,
    file: Arc<File>,
    unanswered: Arc<Mutex<Unanswered>>,
    denied: Arc<Mutex<Denied>>,
}

impl Served {
    fn attributes(&self, inode: u64) -> Option<FileAttr> {
        let (kind, perm, size) = match inode {
            ROOT => (FileType::Directory, 0o755, 0),
            FILE => (FileType::RegularFile, 0o600, self.length),
            _ => return None,
        };
        let then = SystemTime::UNIX_EPOCH;
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: then,
            mtime: then,
            ctime: then,
            crtime: then,
            kind,
            perm,
            nlink: 1,
            uid: nix::unistd::geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn enqueue(&self, operation: Operation) {
        let refused = self.queue.try_send(Waiting { since: Instant::now(), operation });
        let Err(TrySendError::Full(waiting) | TrySendError::Disconnected(waiting)) = refused else { return };
        waiting.operation.fail(Errno::EAGAIN);
    }
}

impl Filesystem for Served {
    fn init(&mut self, _: &Request<'_>, config: &mut KernelConfig) -> Result<(), i32> {
        // Each of these is refused, and the smaller value kept, where the kernel cannot do it.
        let _ = config.add_capabilities(FUSE_ASYNC_DIO);
        let _ = config.set_max_background(WORKERS);
        let _ = config.set_max_write(REQUEST_MAX);
        Ok(())
    }

    fn lookup(&mut self, _: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(FILE) {
            Some(file) if parent == ROOT && name == NAME => reply.entry(&TTL, &file, 0),
            _ => reply.error(Errno::ENOENT as i32),
        }
    }

    fn getattr(&mut self, _: &Request<'_>, inode: u64, _: Option<u64>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(found) => reply.attr(&TTL, &found),
            None => reply.error(Errno::ENOENT as i32),
        }
    }

    fn open(&mut self, _: &Request<'_>, inode: u64, _: i32, reply: ReplyOpen) {
        let mut unanswered = lock(&self.unanswered);
        match inode {
            FILE if unanswered.hang == Some(Hang::Opens) => unanswered.opens.push(reply),
            FILE => opened(reply),
            _ => reply.error(Errno::EISDIR as i32),
        }
    }

    fn flush(&mut self, _: &Request<'_>, _: u64, _: u64, _: u64, reply: ReplyEmpty) {
        let mut unanswered = lock(&self.unanswered);
        match unanswered.hang {
            Some(Hang::Closes) => unanswered.closes.push(reply),
            _ => reply.ok(),
        }
    }

    fn read(
        &mut self,
        _: &Request<'_>,
        _: u64,
        _: u64,
        offset: i64,
        size: u32,
        _: i32,
        _: Option<u64>,
        reply: ReplyData,
    ) {
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::EINVAL as i32) };
        self.enqueue(Operation::Read { offset, size, reply });
    }

    fn write(
        &mut self,
        _: &Request<'_>,
        _: u64,
        _: u64,
        offset: i64,
        data: &[u8],
        _: u32,
        _: i32,
        _: Option<u64>,
        reply: ReplyWrite,
    ) {
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::EINVAL as i32) };
        let data = data.to_vec();
        let mut denied = lock(&self.denied);
        let Some((_, later)) = denied.next.take_if(|(next, _)| *next == offset) else {
            return self.enqueue(Operation::Write { offset, data, reply });
        };
        reply.error(Errno::EIO as i32);
        let (file, denied) = (Arc::clone(&self.file), Arc::clone(&self.denied));
        thread::spawn(move || {
            thread::sleep(later);
            let written = file.write_at(&data, offset);
            lock(&denied).done += usize::from(written.is_ok());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of sevens, served with this trouble; `None` where file systems in user space are not to be had.
    fn served(trouble: Trouble) -> Option<(TempDir, PathBuf, ServedFile)> {
        let dir = tempfile::tempdir().unwrap();
        let behind = dir.path().join("file");
        std::fs::write(&behind, vec![7; 1 << 16]).unwrap();
        match ServedFile::over(&behind, dir.path(), trouble) {
            Ok(file) => Some((dir, behind, file)),
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "no FUSE ({error}), and CI must not skip");
                eprintln!("skipped: no FUSE ({error})");
                None
            }
        }
    }

    fn open(served: &ServedFile) -> File {
        File::options().read(true).write(true).open(served.path()).unwrap()
    }

    #[test]
    fn every_operation_takes_longer_and_they_wait_side_by_side() {
        let Some((_dir, behind, slow)) = served(Trouble::slow(Duration::from_millis(30))) else { return };
        let file = open(&slow);
        let begin = Instant::now();
        thread::scope(|scope| {
            for n in 0..8_u64 {
                let file = &file;
                scope.spawn(move || file.write_all_at(&[1; 512], n * 512).unwrap());
            }
        });
        let written = begin.elapsed();
        assert!(written >= Duration::from_millis(30), "{written:?}");
        assert!(written < Duration::from_millis(8 * 30), "one after the other: {written:?}");
        let begin = Instant::now();
        let mut bytes = [0; 1024];
        file.read_exact_at(&mut bytes, 7 * 512).unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(30));
        assert_eq!((bytes[511], bytes[512]), (1, 7));
        drop(file);
        drop(slow);
        assert_eq!(std::fs::read(&behind).unwrap()[..4096], [1; 4096]);
    }

    #[test]
    fn opens_and_closes_hang_until_they_are_answered() {
        let Some((_dir, _behind, file)) = served(Trouble::default()) else { return };
        let hangs = |call: &(dyn Fn() + Sync)| {
            thread::scope(|scope| {
                let call = scope.spawn(call);
                let begin = Instant::now();
                while file.hanging() == 0 {
                    assert!(begin.elapsed() < Duration::from_secs(20), "it does not hang");
                    thread::sleep(Duration::from_millis(1));
                }
                assert!(!call.is_finished());
                file.answer();
                call.join().unwrap();
            });
        };
        file.hang(Hang::Opens);
        hangs(&|| drop(open(&file)));
        drop(open(&file));
        file.hang(Hang::Closes);
        hangs(&|| drop(open(&file)));
        assert_eq!(file.hanging(), 0);
    }

    #[test]
    fn every_operation_fails_as_it_should() {
        let Some((_dir, behind, broken)) = served(Trouble::broken(Errno::EIO)) else { return };
        let file = open(&broken);
        let errno = |error: io::Error| error.raw_os_error();
        assert_eq!(file.read_at(&mut [0; 512], 0).map_err(errno), Err(Some(Errno::EIO as i32)));
        assert_eq!(file.write_at(&[0; 512], 0).map_err(errno), Err(Some(Errno::EIO as i32)));
        drop((file, broken));
        assert_eq!(std::fs::read(&behind).unwrap(), vec![7; 1 << 16]);
    }

    #[test]
    fn what_is_denied_fails_and_is_carried_out() {
        let Some((_dir, behind, served)) = served(Trouble::default()) else { return };
        let file = open(&served);
        served.deny(512, Duration::ZERO);
        assert!(file.write_at(&[1; 512], 0).is_ok());
        let failed = file.write_at(&[2; 512], 512).unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(Errno::EIO as i32));
        while served.carried_out() == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(std::fs::read(&behind).unwrap()[..1024], [[1; 512], [2; 512]].concat());
        assert!(file.write_at(&[3; 512], 512).is_ok(), "one only");
    }
}
