//! An open lease file or block device.

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::errand::Errand;
use crate::error::{OpenError, TooSmall};
use crate::offload::{self, ClosePermit, Place, Told};
use crate::opens::{self, Asker, PendingOpen};
use crate::stat::{Device, Identity, Stat};

/// Sector size assumed for regular files (disk-format.md 2.3).
const FILE_SECTOR: u32 = 512;

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
/// may hang like any other operation on dead storage. Who can wait for it takes [`Disk::close_within`].
pub struct Disk {
    fd: ManuallyDrop<OwnedFd>,
    path: Arc<Path>,
    access: Access,
    kind: DiskKind,
    logical_block_size: u32,
    physical_block_size: u32,
    size: u64,
    identity: Identity,
    /// Held where dropping closes at once.
    permit: Option<ClosePermit>,
    /// Who waits for its close.
    told: Mutex<Vec<Told>>,
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
            identity: stat.identity,
            permit: None,
            told: Mutex::default(),
        }))
    }

    /// Opens `path` on a background thread and returns at once. If it is being opened in this way already, for whomever, this waits
    /// for the same open, and for the same disk.
    ///
    /// # Errors
    /// [`OpenError::TooManyHanging`] with [`Asker::opens_max`] opens under way for this kind of asker, or a quarter of them on the mount where
    /// the path is; [`OpenError::Os`] when no
    /// thread or descriptor is to be had.
    pub fn open_in_background(path: &Path, access: Access, asker: Asker) -> Result<PendingOpen, OpenError> {
        opens::begin_in_background(path, access, asker)
    }

    /// As [`Disk::open_in_background`], but an open that is not under way yet is for the caller to carry out.
    ///
    /// # Errors
    /// As [`Disk::open_in_background`], whose limit counts these too.
    pub fn open_on_errand(
        path: &Path,
        access: Access,
        asker: Asker,
    ) -> Result<(PendingOpen, Option<Errand>), OpenError> {
        opens::begin(path, access, asker)
    }

    /// A close for the caller to carry out; `None`, and it is closed on another thread, while earlier ones of that path are not over.
    pub(crate) fn close_on_errand(mut self) -> Option<Errand> {
        self.permit = Some(offload::close_here(self.place())?);
        Some(Errand::new(move || drop(self)))
    }

    /// Gives up this use of it, and waits until it is closed, no longer than `limit`. `false`: others still use it then, or the close has
    /// not ended; in the end it is closed all the same.
    #[must_use]
    pub fn close_within(disk: Arc<Self>, limit: Duration) -> bool {
        let (told, closed) = mpsc::channel();
        disk.told.lock().unwrap_or_else(PoisonError::into_inner).push(told);
        drop(disk);
        closed.recv_timeout(limit) == Err(RecvTimeoutError::Disconnected)
    }

    /// Opens `path`, waiting no longer than `timeout`.
    ///
    /// # Errors
    /// As [`Disk::open`] and [`Disk::open_in_background`], [`OpenError::TooManyHanging`] when that was so until the end, or those under way
    /// have hung for as long as this one would wait; [`OpenError::TimedOut`] when there was no answer in time.
    pub fn open_timeout(
        path: &Path,
        access: Access,
        asker: Asker,
        timeout: Duration,
    ) -> Result<Arc<Self>, OpenError> {
        opens::open_timeout(path, access, asker, timeout)
    }

    /// Whether both are the same file or device, whatever the paths they were opened by.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.kind == other.kind
            && match self.kind {
                DiskKind::File => self.identity == other.identity,
                // A device may have any number of nodes.
                DiskKind::Block => self.identity.device(self.kind) == other.identity.device(other.kind),
            }
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Likewise, shared.
    #[must_use]
    pub fn shared_path(&self) -> Arc<Path> {
        Arc::clone(&self.path)
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// The device on which operations on it hang, if any do.
    pub(crate) fn device(&self) -> Device {
        self.identity.device(self.kind)
    }

    /// As if another file system were mounted at its path.
    #[cfg(test)]
    pub(crate) fn kept_on(mut self, device: Device) -> Self {
        self.identity = self.identity.kept_on(device);
        self
    }

    fn place(&self) -> Place {
        Place { path: self.shared_path(), device: self.device() }
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

    /// Whether so many bytes can be written at an offset, as far as the size of a device tells; a file grows. An offset that is no multiple of the
    /// block is for the write to refuse.
    ///
    /// # Errors
    /// [`TooSmall`]: a device that ends before.
    pub fn has_room(&self, offset: u64, len: usize) -> Result<(), TooSmall> {
        let end = u64::try_from(len).ok().and_then(|len| offset.checked_add(len));
        let fits = end.is_some_and(|end| end <= self.size);
        let aligned = offset % u64::from(self.logical_block_size.max(1)) == 0;
        if fits || !aligned || self.kind == DiskKind::File {
            return Ok(());
        }
        Err(TooSmall { path: self.shared_path(), offset, len, size: self.size })
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
        let told = std::mem::take(self.told.get_mut().unwrap_or_else(PoisonError::into_inner));
        match self.permit.take() {
            Some(_while_it_closes) => drop(fd),
            None => offload::close(self.place(), fd, told),
        }
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
