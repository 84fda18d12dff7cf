//! An open file or device, read and written with time limits.

use super::report::{ALIGN_OFFSET, Failure, first_step};
use sanlock_blockio::{
    Access, Asker, BlockingIo, Disk, DiskKind, EngineError, EngineKind, IoError, IoErrorKind, OpenError,
    TooSmall,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Limit for opening, for each read, and for the write of a record.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Limit for each write that formats (disk-format.md 3, rule 5).
pub(super) const FORMAT_TIMEOUT: Duration = Duration::from_secs(60);
/// EIO, where no better number is known.
const EIO: i32 = -5;

/// Why storage could not be used.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum StorageError {
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A transfer failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// What is to be formatted does not fit.
    #[error(transparent)]
    TooSmall(#[from] TooSmall),
    /// Nothing to do I/O with.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl Failure for StorageError {
    fn code(&self) -> i32 {
        match self {
            Self::Open(error) => error.code(),
            Self::Io(error) => error.code(),
            Self::TooSmall(error) => error.code(),
            Self::Engine(_) => EIO,
        }
    }

    fn next(&self) -> Option<&'static str> {
        match self {
            Self::Open(error) => open_step(error),
            Self::Io(IoError { kind: IoErrorKind::Os(libc::EINVAL), .. }) => Some(ALIGN_OFFSET),
            Self::TooSmall(_) => Some(
                "give an offset at which the whole area fits, or make the device larger; nothing was written",
            ),
            error => first_step(error.code()),
        }
    }
}

/// What to do about storage that cannot be opened.
pub(super) fn open_step(error: &OpenError) -> Option<&'static str> {
    match error {
        OpenError::NotADisk { .. } => Some("name a file or a block device"),
        OpenError::NoDirectIo { .. } => {
            Some("use a block device, or a file on a file system with direct I/O")
        }
        error => first_step(error.code()),
    }
}

impl StorageError {
    /// Whether the range goes beyond the end of the storage.
    pub(crate) fn is_beyond_end(&self) -> bool {
        matches!(self, Self::Io(IoError { kind: IoErrorKind::Short { .. }, .. }))
    }
}

/// An open file or device.
pub(crate) struct Storage {
    io: BlockingIo,
    disk: Arc<Disk>,
}

impl Storage {
    /// # Errors
    /// The path cannot be opened in time and with direct I/O, or there is no I/O engine.
    pub(crate) fn open(path: &[u8], access: Access) -> Result<Self, StorageError> {
        let disk = Disk::open_timeout(Path::new(OsStr::from_bytes(path)), access, Asker::Command, TIMEOUT)?;
        let io = BlockingIo::new(EngineKind::probe()?)?;
        Ok(Self { io, disk })
    }

    /// The disk.
    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The disk, for a machine that outlives this value.
    pub(crate) fn shared_disk(&self) -> Arc<Disk> {
        Arc::clone(&self.disk)
    }

    /// Bytes available, `None` for a file, which may grow.
    pub(crate) fn fixed_size(&self) -> Option<u64> {
        (self.disk.kind() == DiskKind::Block).then(|| self.disk.size())
    }

    /// # Errors
    /// [`StorageError::Io`].
    pub(crate) fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, StorageError> {
        let mut bytes = vec![0; len];
        self.io.read_exact_at(&self.disk, offset, &mut bytes, TIMEOUT)?;
        Ok(bytes)
    }

    /// One write of a record.
    ///
    /// # Errors
    /// [`StorageError::Io`]; after a timeout the write may still happen.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        self.write_within(offset, bytes, TIMEOUT)
    }

    /// One write of a record, within this time.
    ///
    /// # Errors
    /// [`StorageError::Io`]; after a timeout the write may still happen.
    pub(crate) fn write_within(
        &mut self,
        offset: u64,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<(), StorageError> {
        Ok(self.io.write_all_at(&self.disk, offset, bytes, timeout)?)
    }

    /// Whether writes at this offset fit.
    ///
    /// # Errors
    /// [`StorageError::TooSmall`].
    pub(super) fn has_room(&self, offset: u64, writes: &[Vec<u8>]) -> Result<(), StorageError> {
        let longest = writes.iter().map(Vec::len).max().unwrap_or(0);
        Ok(self.disk.has_room(offset, longest)?)
    }

    /// # Errors
    /// [`StorageError::Io`].
    pub(crate) fn format(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        Ok(self.io.write_all_at(&self.disk, offset, bytes, FORMAT_TIMEOUT)?)
    }
}
