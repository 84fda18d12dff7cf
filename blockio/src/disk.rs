//! An open lease file or block device.

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::blocking::poll_for;
use crate::errand::Errand;
use crate::error::OpenError;
use crate::offload;
use crate::stat::Stat;

/// Sector size assumed for regular files (disk-format.md 2.3).
const FILE_SECTOR: u32 = 512;

/// Opens that may hang in the background at a time, in the whole process.
pub const MAX_BACKGROUND_OPENS: usize = 32;

/// How a disk is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// `O_RDONLY`, for tools that only look; writes complete with -9 (`-EBADF`).
    ReadOnly,
    /// `O_RDWR`.
    ReadWrite,
}

/// What kind of file a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskKind {
    /// A regular file; writes beyond its end extend it.
    File,
    /// A block device.
    Block,
}

/// An open disk, shared by the operations on it. Opened `O_DIRECT|O_SYNC|O_CLOEXEC` (disk-format.md 3, rule 1).
///
/// Dropping the last reference never blocks: the descriptor is closed a moment later on a background thread, since closing
/// may hang like any other operation on dead storage. Who can wait for it takes [`Disk::close_on_errand`].
pub struct Disk {
    fd: ManuallyDrop<OwnedFd>,
    path: Arc<Path>,
    access: Access,
    kind: DiskKind,
    logical_block_size: u32,
    physical_block_size: u32,
    size: u64,
    /// Held where dropping closes at once.
    permit: Option<ClosePermit>,
}

impl Disk {
    /// Opens and probes `path`.
    ///
    /// **May hang** for as long as the storage is silent (NFS, a device in recovery); where that matters use
    /// [`Disk::open_in_background`] or [`Disk::open_timeout`]. Only regular files and block devices are opened: opening a
    /// character device may have effects of its own (a watchdog starts to run).
    ///
    /// # Errors
    /// [`OpenError::Os`] with the failing call, [`OpenError::Directory`], [`OpenError::NotADisk`], [`OpenError::NoDirectIo`].
    pub fn open(path: &Path, access: Access) -> Result<Arc<Self>, OpenError> {
        let failed = |call: &'static str| {
            move |error: io::Error| OpenError::Os {
                path: path.to_owned(),
                call,
                errno: error.raw_os_error().unwrap_or(libc::EIO),
            }
        };
        let kind_of = |stat: &Stat| match stat.kind {
            Some(kind) => Ok(kind),
            None if stat.directory => Err(OpenError::Directory { path: path.to_owned() }),
            None => Err(OpenError::NotADisk { path: path.to_owned() }),
        };
        kind_of(&Stat::of_path(path).map_err(failed("stat"))?)?;
        let file = OpenOptions::new()
            .read(true)
            .write(access == Access::ReadWrite)
            .custom_flags(libc::O_DIRECT | libc::O_SYNC | libc::O_NOCTTY)
            .open(path)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::EINVAL) => OpenError::NoDirectIo { path: path.to_owned() },
                _ => failed("open")(error),
            })?;
        // Again, on the descriptor: the path may have been replaced in between.
        let stat = Stat::of_fd(file.as_fd()).map_err(failed("fstat"))?;
        let kind = kind_of(&stat)?;
        let fd = OwnedFd::from(file);
        let (logical_block_size, physical_block_size, size) = match kind {
            DiskKind::File => (FILE_SECTOR, FILE_SECTOR, stat.size),
            DiskKind::Block => (
                ioctl::logical_block_size(fd.as_fd()).map_err(failed("BLKSSZGET"))?,
                ioctl::physical_block_size(fd.as_fd()).map_err(failed("BLKPBSZGET"))?,
                ioctl::size(fd.as_fd()).map_err(failed("BLKGETSIZE64"))?,
            ),
        };
        Ok(Arc::new(Self {
            fd: ManuallyDrop::new(fd),
            path: path.into(),
            access,
            kind,
            logical_block_size,
            physical_block_size,
            size,
            permit: None,
        }))
    }

    /// Opens `path` on a background thread and returns at once.
    ///
    /// # Errors
    /// [`OpenError::TooManyHanging`] with [`MAX_BACKGROUND_OPENS`] opens outstanding in this process; [`OpenError::Os`] when
    /// no thread or descriptor is to be had.
    pub fn open_in_background(path: &Path, access: Access) -> Result<PendingOpen, OpenError> {
        let (pending, errand) = Self::open_on_errand(path, access)?;
        if offload::open(errand) {
            Ok(pending)
        } else {
            let errno = libc::EAGAIN;
            Err(OpenError::Os { path: path.to_owned(), call: "thread", errno })
        }
    }

    /// An open for the caller to carry out, and where its result will be.
    ///
    /// # Errors
    /// As [`Disk::open_in_background`], whose limit counts these too.
    pub fn open_on_errand(path: &Path, access: Access) -> Result<(PendingOpen, Errand), OpenError> {
        let ready = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|errno| OpenError::Os { path: path.to_owned(), call: "eventfd", errno: errno as i32 })?;
        let permit = OpenPermit::take(path)?;
        let shared = Arc::new(OpenState { ready, result: Mutex::new(None) });
        let (state, target) = (Arc::clone(&shared), path.to_owned());
        let errand = Errand::new(move || {
            let result = Disk::open(&target, access);
            drop(permit);
            *state.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            let _ = state.ready.write(1); // one write cannot fill the counter
        });
        Ok((PendingOpen { shared, path: path.to_owned() }, errand))
    }

    /// A close for the caller to carry out; `None`, and it is closed on another thread, while an earlier one is not over.
    pub(crate) fn close_on_errand(mut self) -> Option<Errand> {
        self.permit = Some(ClosePermit::take()?);
        Some(Errand::new(move || drop(self)))
    }

    /// Opens `path`, waiting no longer than `timeout`.
    ///
    /// # Errors
    /// As [`Disk::open`] and [`Disk::open_in_background`]; [`OpenError::TimedOut`] when there was no answer in time.
    pub fn open_timeout(path: &Path, access: Access, timeout: Duration) -> Result<Arc<Self>, OpenError> {
        let mut pending = Self::open_in_background(path, access)?;
        let _ = poll_for(&mut [PollFd::new(pending.completion_fd(), PollFlags::POLLIN)], timeout);
        pending.take().unwrap_or_else(|| Err(OpenError::TimedOut { path: path.to_owned() }))
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn shared_path(&self) -> Arc<Path> {
        Arc::clone(&self.path)
    }

    /// How it was opened.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// File or block device.
    #[must_use]
    pub fn kind(&self) -> DiskKind {
        self.kind
    }

    /// The unit of direct I/O in bytes: the device's logical block, 512 for a file (disk-format.md 2.3).
    #[must_use]
    pub fn logical_block_size(&self) -> u32 {
        self.logical_block_size
    }

    /// The device's physical block in bytes, 512 for a file. 4096 with a logical block of 512 is a "512e" disk.
    #[must_use]
    pub fn physical_block_size(&self) -> u32 {
        self.physical_block_size
    }

    /// Bytes at the time it was opened. A file may grow since.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }
}

impl AsFd for Disk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Disk({}, {:?}, {:?}, fd {})",
            self.path.display(),
            self.kind,
            self.access,
            self.fd.as_raw_fd()
        )
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // SAFETY: taken once, here; the field is not used afterwards.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        match self.permit.take() {
            Some(_one_close) => drop(fd),
            None => offload::close(fd),
        }
    }
}

static ERRAND_CLOSES: AtomicBool = AtomicBool::new(false);

/// For the one close at a time that is an errand: on storage that is silent each of them holds a thread.
struct ClosePermit;

impl ClosePermit {
    fn take() -> Option<Self> {
        (!ERRAND_CLOSES.swap(true, Ordering::Acquire)).then_some(Self)
    }
}

impl Drop for ClosePermit {
    fn drop(&mut self) {
        ERRAND_CLOSES.store(false, Ordering::Release);
    }
}

static HANGING_OPENS: AtomicUsize = AtomicUsize::new(0);

/// One of the [`MAX_BACKGROUND_OPENS`].
struct OpenPermit;

impl OpenPermit {
    fn take(path: &Path) -> Result<Self, OpenError> {
        HANGING_OPENS
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                (n < MAX_BACKGROUND_OPENS).then_some(n + 1)
            })
            .map(|_| Self)
            .map_err(|_| OpenError::TooManyHanging { path: path.to_owned(), limit: MAX_BACKGROUND_OPENS })
    }
}

impl Drop for OpenPermit {
    fn drop(&mut self) {
        HANGING_OPENS.fetch_sub(1, Ordering::Relaxed);
    }
}

struct OpenState {
    ready: EventFd,
    result: Mutex<Option<Result<Arc<Disk>, OpenError>>>,
}

/// An open running in the background. Dropping it never waits; a disk that opens later is closed again.
pub struct PendingOpen {
    shared: Arc<OpenState>,
    path: PathBuf,
}

impl PendingOpen {
    /// Becomes readable (poll, epoll) when the result is there, and stays so.
    #[must_use]
    pub fn completion_fd(&self) -> BorrowedFd<'_> {
        self.shared.ready.as_fd()
    }

    /// The result, once, when it is there. Never blocks.
    pub fn take(&mut self) -> Option<Result<Arc<Disk>, OpenError>> {
        self.shared.result.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The path being opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Debug for PendingOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PendingOpen({})", self.path.display())
    }
}

/// The three block device questions.
mod ioctl {
    use std::io;
    use std::os::fd::{AsRawFd, BorrowedFd};

    nix::ioctl_read_bad!(blksszget, nix::request_code_none!(0x12, 104), libc::c_int);
    nix::ioctl_read_bad!(blkpbszget, nix::request_code_none!(0x12, 123), libc::c_uint);
    // The kernel header declares it with size_t although 64 bits are written.
    nix::ioctl_read_bad!(blkgetsize64, nix::request_code_read!(0x12, 114, size_of::<usize>()), u64);

    pub(super) fn logical_block_size(fd: BorrowedFd<'_>) -> io::Result<u32> {
        let mut value = 0;
        // SAFETY: BLKSSZGET writes one int.
        unsafe { blksszget(fd.as_raw_fd(), &raw mut value) }?;
        u32::try_from(value).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
    }

    pub(super) fn physical_block_size(fd: BorrowedFd<'_>) -> io::Result<u32> {
        let mut value = 0;
        // SAFETY: BLKPBSZGET writes one unsigned int.
        unsafe { blkpbszget(fd.as_raw_fd(), &raw mut value) }?;
        Ok(value)
    }

    pub(super) fn size(fd: BorrowedFd<'_>) -> io::Result<u64> {
        let mut value = 0;
        // SAFETY: BLKGETSIZE64 writes one 64-bit integer.
        unsafe { blkgetsize64(fd.as_raw_fd(), &raw mut value) }?;
        Ok(value)
    }
}
