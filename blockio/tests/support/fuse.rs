//! A file whose server can fall silent: reads, writes, opens and closes on it then hang in the kernel, like those on a dead
//! NFS server or SAN.
//!
//! The FUSE file system consists of its root, a regular file of fixed size mounted over an empty file, so the server needs
//! no directories. While silent it keeps requests and answers none; after `resume` it answers what it kept.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Guard, file_in, is_root, missing};

/// Size of the served file.
pub(crate) const FILE_BYTES: usize = 1 << 20;

const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const FORGET: u32 = 2;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

const IN_HEADER: usize = 40;
const MAX_WRITE: usize = 128 << 10;
const INIT_FLAGS: u32 = 1 | 1 << 5 | 1 << 15; // ASYNC_READ, BIG_WRITES, ASYNC_DIO

struct Server {
    device: File,
    silent: bool,
    kept: Vec<Vec<u8>>,
    content: Vec<u8>,
}

/// A mounted file with its server.
pub(crate) struct SilentFile {
    pub(crate) path: PathBuf,
    server: Arc<Mutex<Server>>,
    thread: Option<JoinHandle<()>>,
    _guard: Guard,
    _dir: tempfile::TempDir,
}

impl SilentFile {
    pub(crate) fn new() -> Option<Self> {
        if !is_root() {
            missing("mounting needs root");
            return None;
        }
        let device = match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
            Ok(device) => device,
            Err(error) => {
                missing(&format!("/dev/fuse: {error}"));
                return None;
            }
        };
        let dir = tempfile::tempdir().unwrap();
        let path = file_in(dir.path(), "lease", 0);
        let target = CString::new(path.as_os_str().as_bytes()).unwrap();
        let options =
            CString::new(format!("fd={},rootmode=100600,user_id=0,group_id=0", device.as_raw_fd())).unwrap();
        // SAFETY: four strings ending in NUL; the data of a fuse mount is a string.
        let mounted = unsafe {
            libc::mount(
                c"silent".as_ptr(),
                target.as_ptr(),
                c"fuse".as_ptr(),
                libc::MS_NOSUID | libc::MS_NODEV,
                options.as_ptr().cast(),
            )
        };
        if mounted != 0 {
            missing(&format!("mount fuse: {}", std::io::Error::last_os_error()));
            return None;
        }
        // Nobody can kill a thread that waits for this server, so a guard cuts the connection if the test cannot.
        let command = format!("umount -f {0}; umount -l {0}", path.display());
        let guard = Guard::arm(&command);
        let requests = device.try_clone().unwrap();
        let server = Server { device, silent: false, kept: Vec::new(), content: vec![0; FILE_BYTES] };
        let server = Arc::new(Mutex::new(server));
        let shared = Arc::clone(&server);
        let thread = thread::spawn(move || serve(requests, &shared));
        // io_uring asks a file whether it can be polled before it reads, and whoever writes first asks for its capabilities. Asked once,
        // the server has no such things, and nobody asks again: what hangs later is what the test is about.
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        poll(&mut [PollFd::new(file.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO).unwrap();
        file.write_all_at(&[0; 512], 0).unwrap();
        Some(Self { path, server, thread: Some(thread), _guard: guard, _dir: dir })
    }

    fn lock(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fall_silent(&self) {
        self.lock().silent = true;
    }

    /// Answers what was kept, in order, and everything from now on.
    pub(crate) fn resume(&self) {
        let mut server = self.lock();
        server.silent = false;
        for request in std::mem::take(&mut server.kept) {
            server.answer(&request);
        }
    }

    /// Requests of one kind that wait for an answer.
    pub(crate) fn waiting(&self, opcode: Waiting) -> usize {
        let wanted = match opcode {
            Waiting::Read => READ,
            Waiting::Write => WRITE,
            Waiting::Open => OPEN,
            Waiting::Close => FLUSH,
        };
        self.lock().kept.iter().filter(|request| u32_at(request, 4) == wanted).count()
    }
}

/// What the kernel waits for.
#[derive(Clone, Copy)]
pub(crate) enum Waiting {
    Read,
    Write,
    Open,
    Close,
}

impl Drop for SilentFile {
    fn drop(&mut self) {
        // A test that fails may have taken the mount away, and then nothing else ends what hangs.
        self.resume();
        let target = CString::new(self.path.as_os_str().as_bytes()).unwrap();
        // SAFETY: a string ending in NUL.
        unsafe {
            libc::umount2(target.as_ptr(), libc::MNT_FORCE); // ends waiting requests, even when busy
            libc::umount2(target.as_ptr(), libc::MNT_DETACH);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(mut requests: File, server: &Mutex<Server>) {
    let mut buf = vec![0; MAX_WRITE + 4096];
    loop {
        match requests.read(&mut buf) {
            Ok(len) => server.lock().unwrap_or_else(PoisonError::into_inner).take(&buf[..len]),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ENOENT | libc::EAGAIN)) => {
            }
            Err(_unmounted) => return,
        }
    }
}

fn u32_at(request: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(request[at..at + 4].try_into().unwrap())
}

fn u64_at(request: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(request[at..at + 8].try_into().unwrap())
}

impl Server {
    fn take(&mut self, request: &[u8]) {
        match u32_at(request, 4) {
            FORGET | BATCH_FORGET | INTERRUPT => {}
            INIT => self.answer(request),
            _ if self.silent => self.kept.push(request.to_vec()),
            _ => self.answer(request),
        }
    }

    fn answer(&mut self, request: &[u8]) {
        let range = |at: usize| {
            let start = usize::try_from(u64_at(request, at)).unwrap_or(usize::MAX).min(FILE_BYTES);
            let len = usize::try_from(u32_at(request, at + 8)).unwrap();
            start..start.saturating_add(len).min(FILE_BYTES)
        };
        let body = match u32_at(request, 4) {
            INIT => Ok(init()),
            GETATTR | SETATTR => Ok(attributes()),
            OPEN => Ok(vec![0; 16]),
            RELEASE | FLUSH => Ok(Vec::new()),
            READ => Ok(self.content[range(IN_HEADER + 8)].to_vec()),
            WRITE => {
                let range = range(IN_HEADER + 8);
                let len = range.len();
                self.content[range].copy_from_slice(&request[IN_HEADER + 40..][..len]);
                Ok([u32::try_from(len).unwrap().to_ne_bytes(), [0; 4]].concat())
            }
            _ => Err(-libc::ENOSYS),
        };
        let error = body.as_ref().err().copied().unwrap_or(0);
        let body = body.unwrap_or_default();
        let mut reply = Vec::with_capacity(16 + body.len());
        reply.extend_from_slice(&u32::try_from(16 + body.len()).unwrap().to_ne_bytes());
        reply.extend_from_slice(&error.to_ne_bytes());
        reply.extend_from_slice(&request[8..16]);
        reply.extend_from_slice(&body);
        let _ = self.device.write_all(&reply); // ENOENT: the request was given up
    }
}

/// `struct fuse_init_out`, protocol 7.31.
fn init() -> Vec<u8> {
    let mut out = Vec::new();
    for word in [7, 31, 128 << 10, INIT_FLAGS] {
        out.extend_from_slice(&u32::to_ne_bytes(word));
    }
    out.extend_from_slice(&1024_u16.to_ne_bytes()); // requests in the background, which direct reads are
    out.extend_from_slice(&1000_u16.to_ne_bytes());
    out.extend_from_slice(&u32::try_from(MAX_WRITE).unwrap().to_ne_bytes());
    out.extend_from_slice(&1_u32.to_ne_bytes());
    out.resize(64, 0);
    out
}

/// `struct fuse_attr_out`: valid for an hour, so that only opening, reading, writing and closing ask the server.
fn attributes() -> Vec<u8> {
    let mut out = Vec::new();
    for word in [3600, 0, 1, FILE_BYTES as u64, FILE_BYTES as u64 / 512, 0, 0, 0] {
        out.extend_from_slice(&u64::to_ne_bytes(word));
    }
    for word in [0, 0, 0, 0o100_600, 1, 0, 0, 0, 4096, 0] {
        out.extend_from_slice(&u32::to_ne_bytes(word));
    }
    out
}
