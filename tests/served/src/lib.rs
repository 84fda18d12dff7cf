//! A file of which every read and write takes longer, or fails, or whose opens, closes and reads of some bytes hang, or that carries out what it has said to
//! have failed, or at one of whose writes its user is stopped: a file system in user space with one file in it.
//!
//! Operations wait side by side, as they do on a storage array: a second one that begins meanwhile ends right after the first.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
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
    /// Every close does. Nothing else is answered meanwhile.
    pub closes: Duration,
    /// Every operation fails like this then.
    pub error: Option<Errno>,
}

impl Trouble {
    /// Every operation takes so much longer.
    #[must_use]
    pub fn slow(delay: Duration) -> Self {
        Self { delay, ..Self::default() }
    }

    /// Every operation fails.
    #[must_use]
    pub fn broken(error: Errno) -> Self {
        Self { error: Some(error), ..Self::default() }
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

/// A write at which something else happens.
struct Stop {
    range: Range<u64>,
    /// Writes until then, this one included.
    left: u32,
    /// Whether it is carried out before that.
    carried_out: bool,
    happens: Box<dyn FnOnce() + Send>,
}

/// What nobody answers for now.
#[derive(Default)]
struct Unanswered {
    hang: Option<Hang>,
    opens: Vec<ReplyOpen>,
    closes: Vec<ReplyEmpty>,
    /// Reads of any of these bytes.
    held: Range<u64>,
    reads: Vec<Read>,
}

/// A read that waits for its answer.
struct Read {
    offset: u64,
    size: u32,
    reply: ReplyData,
}

impl Read {
    fn carry_out(self, file: &File) {
        let mut bytes = vec![0; self.size as usize];
        match file.read_at(&mut bytes, self.offset) {
            Ok(length) => self.reply.data(&bytes[..length]),
            Err(error) => self.reply.error(error.raw_os_error().unwrap_or(Errno::EIO as i32)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The mounted file.
pub struct ServedFile {
    path: PathBuf,
    file: Arc<File>,
    open: Arc<AtomicI64>,
    unanswered: Arc<Mutex<Unanswered>>,
    denied: Arc<Mutex<Denied>>,
    stop: Arc<Mutex<Option<Stop>>>,
    unreadable: Arc<Mutex<Range<u64>>>,
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
        let (unanswered, denied, stop) = (Arc::default(), Arc::default(), Arc::default());
        let unreadable = Arc::default();
        let open = Arc::default();
        let file = Arc::new(file);
        let served = Served {
            length,
            closes: trouble.closes,
            open: Arc::clone(&open),
            queue: workers(&file, trouble),
            file: Arc::clone(&file),
            unanswered: Arc::clone(&unanswered),
            denied: Arc::clone(&denied),
            stop: Arc::clone(&stop),
            unreadable: Arc::clone(&unreadable),
        };
        let options = [MountOption::FSName("served".to_owned()), MountOption::RW];
        let session = fuser::spawn_mount2(served, dir.path(), &options)?;
        let path = dir.path().join(NAME);
        Ok(Self { path, file, open, unanswered, denied, stop, unreadable, session: Some(session), _dir: dir })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How often it is open, as long as none hangs: a close that is being answered counts.
    #[must_use]
    pub fn is_open(&self) -> i64 {
        self.open.load(Ordering::SeqCst)
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

    /// The n-th write from now on that begins in this range, counted from 1, is not carried out. Instead this is done, to whoever writes,
    /// and then the write fails with `EIO`, should anybody be left to see it.
    pub fn stop(&self, range: Range<u64>, n: u32, instead: impl FnOnce() + Send + 'static) {
        *lock(&self.stop) = Some(Stop { range, left: n, carried_out: false, happens: Box::new(instead) });
    }

    /// The n-th write from now on that begins in this range, counted from 1, is carried out at once, and then this is done, before whoever writes
    /// hears of it.
    pub fn follow(&self, range: Range<u64>, n: u32, then: impl FnOnce() + Send + 'static) {
        *lock(&self.stop) = Some(Stop { range, left: n, carried_out: true, happens: Box::new(then) });
    }

    /// Carries out everything again; whether the write that was to be stopped at has not come.
    pub fn go_on(&self) -> bool {
        lock(&self.stop).take().is_some()
    }

    /// From now on reads of any of these bytes fail with `EIO`, and no others.
    pub fn spoil(&self, range: Range<u64>) {
        *lock(&self.unreadable) = range;
    }

    /// From now on reads of any of these bytes are not answered, and no others.
    pub fn hold(&self, range: Range<u64>) {
        lock(&self.unanswered).held = range;
    }

    /// How many operations hang.
    #[must_use]
    pub fn hanging(&self) -> usize {
        let unanswered = lock(&self.unanswered);
        unanswered.opens.len() + unanswered.closes.len() + unanswered.reads.len()
    }

    /// Answers all that hang, and everything from now on.
    pub fn answer(&self) {
        let unanswered = std::mem::take(&mut *lock(&self.unanswered));
        unanswered.opens.into_iter().for_each(opened);
        unanswered.closes.into_iter().for_each(ReplyEmpty::ok);
        unanswered.reads.into_iter().for_each(|read| read.carry_out(&self.file));
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
    Read(Read),
    Write { offset: u64, data: Vec<u8>, reply: ReplyWrite },
}

impl Operation {
    fn fail(self, error: Errno) {
        match self {
            Self::Read(read) => read.reply.error(error as i32),
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
            Operation::Read(read) => read.carry_out(file),
            Operation::Write { offset, data, reply } => match file.write_at(&data, offset) {
                Ok(length) => reply.written(u32::try_from(length).unwrap_or(u32::MAX)),
                Err(error) => reply.error(error.raw_os_error().unwrap_or(Errno::EIO as i32)),
            },
        }
    }
}

struct Served {
    closes: Duration,
    open: Arc<AtomicI64>,
    length: u64,
    queue: SyncSender<Waiting>,
    file: Arc<File>,
    unanswered: Arc<Mutex<Unanswered>>,
    denied: Arc<Mutex<Denied>>,
    stop: Arc<Mutex<Option<Stop>>>,
    unreadable: Arc<Mutex<Range<u64>>>,
}

impl Served {
    /// What is to be done at a write at this offset, if it is the one.
    fn stop_at(&self, offset: u64) -> Option<Stop> {
        let mut stop = lock(&self.stop);
        let counted = stop.as_mut().filter(|stop| stop.range.contains(&offset))?;
        counted.left = counted.left.saturating_sub(1);
        stop.take_if(|stop| stop.left == 0)
    }

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
            FILE => {
                self.open.fetch_add(1, Ordering::SeqCst);
                opened(reply);
            }
            _ => reply.error(Errno::EISDIR as i32),
        }
    }

    fn flush(&mut self, _: &Request<'_>, _: u64, _: u64, _: u64, reply: ReplyEmpty) {
        let mut unanswered = lock(&self.unanswered);
        match unanswered.hang {
            Some(Hang::Closes) => unanswered.closes.push(reply),
            _ => {
                thread::sleep(self.closes);
                self.open.fetch_sub(1, Ordering::SeqCst);
                reply.ok();
            }
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
        let touches = |range: &Range<u64>| range.start.max(offset) < range.end.min(offset + u64::from(size));
        if touches(&lock(&self.unreadable)) {
            return reply.error(Errno::EIO as i32);
        }
        let read = Read { offset, size, reply };
        let mut unanswered = lock(&self.unanswered);
        if touches(&unanswered.held) {
            return unanswered.reads.push(read);
        }
        drop(unanswered);
        self.enqueue(Operation::Read(read));
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
        if let Some(stop) = self.stop_at(offset) {
            let written = stop.carried_out.then(|| self.file.write_all_at(data, offset));
            (stop.happens)();
            return match (written, u32::try_from(data.len())) {
                (Some(Ok(())), Ok(length)) => reply.written(length),
                _ => reply.error(Errno::EIO as i32),
            };
        }
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
mod tests;
