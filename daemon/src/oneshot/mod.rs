//! The one-shot commands: read or format a lease, tell a disk's alignment (socket-protocol.md 7.12, 7.17 to 7.20, 7.23).
//!
//! They need no lockspace and change nothing in the daemon. Each is a plain function that blocks for as long as its transfers
//! may take, so it runs on a worker. On an error the caller answers with [`ToolError::code`] and the request's own contents.
//!
//! A disk is opened, used and closed again by each command: for reading and writing, as the original does.

mod error;
mod lockspace;
mod request;
mod resource;
pub(crate) mod rindex;
mod sizes;

pub use error::ToolError;
pub use lockspace::{look_for_lockspace, read_lockspace, write_lockspace};
pub use request::{read_request, write_request};
pub use resource::{read_resource, read_resource_owners, write_resource};
pub use rindex::{entry_of_failure, format_rindex, lookup_rindex, rebuild_rindex, update_rindex};

use sanlock_blockio::{
    Access, AlignedBuf, Asker, BlockingIo, Disk, EngineError, EngineKind, IoError, IoErrorKind, Op, OpenError,
};
use sanlock_lease::geometry::Geometry;
use sanlock_wire::types;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the commands wait for storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Each open and each read.
    pub io_timeout: Duration,
    /// Each write of a format: the setting `write_init_io_timeout`.
    pub write_init: Duration,
}

impl Default for Limits {
    /// 10 and 60 seconds (disk-format.md 3, rule 5).
    fn default() -> Self {
        Self { io_timeout: Duration::from_secs(10), write_init: Duration::from_secs(60) }
    }
}

/// How long an answer waits for disks to be closed.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// What a command needs to reach storage; one per worker.
pub struct Io {
    engine: BlockingIo,
    limits: Limits,
    opened: RefCell<Vec<Arc<Disk>>>,
}

impl Io {
    /// Over an engine of its own.
    ///
    /// # Errors
    /// As [`EngineKind::create`].
    pub fn new(kind: EngineKind, limits: Limits) -> Result<Self, EngineError> {
        Ok(Self { engine: BlockingIo::new(kind)?, limits, opened: RefCell::default() })
    }

    /// For the daemon: what it reads and writes has a place among the calls of commands, or is not begun
    /// ([`sanlock_blockio::CallPlace`]).
    pub(crate) fn counted(mut self) -> Self {
        self.engine.count_as(Asker::Command);
        self
    }

    /// Whether nothing that was written may land any more, where what ended in doubt may for this long ([`BlockingIo::settled`]).
    pub(crate) fn settled(&mut self, doubt: Duration) -> bool {
        self.engine.settled(doubt)
    }

    /// Collects writes that ended after their time limit; how many operations are still outstanding.
    pub(crate) fn collect_late(&mut self) -> usize {
        self.engine.collect_late()
    }

    /// What is not to be used for anything else until the doubt is over.
    pub(crate) fn take_in_doubt(&mut self) -> Vec<AlignedBuf> {
        self.engine.take_in_doubt()
    }

    /// When a write was last seen to end in doubt.
    pub(crate) fn in_doubt_since(&self) -> Option<Instant> {
        self.engine.in_doubt_since()
    }

    fn open(&self, path: &[u8]) -> Result<Arc<Disk>, OpenError> {
        let path = Path::new(OsStr::from_bytes(path));
        let disk = Disk::open_timeout(path, Access::ReadWrite, Asker::Command, self.limits.io_timeout)?;
        self.opened.borrow_mut().push(Arc::clone(&disk));
        Ok(disk)
    }

    /// Closes the disks that were opened, before a client hears that its command is over: it may want to deactivate the volume, or unmount the
    /// file system. Waits for that, but not for long; and not for disks that are still in use, by an operation that has not ended.
    pub(crate) fn close(&self) {
        let until = Instant::now() + CLOSE_MAX;
        for disk in self.opened.take() {
            if Arc::strong_count(&disk) == 1 {
                let _late = Disk::close_within(disk, until.saturating_duration_since(Instant::now()));
            }
        }
    }

    /// Closes the disks that were opened, some time or other.
    fn let_go(&self) {
        self.opened.take();
    }

    /// The only disk of a lockspace; every failure of opening it is the same to the client.
    fn open_device(&self, disk: &types::Disk) -> Result<Arc<Disk>, ToolError> {
        match disk.path.path()? {
            [] => Err(ToolError::NoPath),
            path => self.open(path).map_err(ToolError::NoDevice),
        }
    }

    /// A disk of a resource.
    pub(crate) fn open_resource(&self, disk: &types::Disk) -> Result<Arc<Disk>, ToolError> {
        self.open(disk.path.path()?).map_err(ToolError::Open)
    }

    fn read(&mut self, disk: &Arc<Disk>, offset: u64, len: usize) -> Result<Vec<u8>, ToolError> {
        let mut bytes = room(len).ok_or_else(|| no_memory(disk, Op::Read, offset, len))?;
        bytes.resize(len, 0);
        self.engine.read_exact_at(disk, offset, &mut bytes, self.limits.io_timeout)?;
        Ok(bytes)
    }

    /// One write of a format.
    fn write(&mut self, disk: &Arc<Disk>, offset: u64, bytes: &[u8]) -> Result<(), ToolError> {
        Ok(self.engine.write_all_at(disk, offset, bytes, self.limits.write_init)?)
    }
}

/// Whether there is memory for an area to be formatted and for its transfer. Tried, since what makes the area ends the daemon where there is none.
///
/// # Errors
/// -12.
fn room_for_format(disk: &Arc<Disk>, offset: u64, geometry: Geometry) -> Result<(), ToolError> {
    let len = usize::try_from(geometry.align().bytes()).unwrap_or(usize::MAX);
    room(len.saturating_mul(2)).map(drop).ok_or_else(|| no_memory(disk, Op::Write, offset, len))
}

/// Whether writes at this offset fit on a disk: the first one destroys what is there.
///
/// # Errors
/// -90, -28.
fn fits(disk: &Disk, offset: u64, writes: &[Vec<u8>]) -> Result<(), ToolError> {
    let longest = writes.iter().map(Vec::len).max().unwrap_or(0);
    Ok(disk.has_room(offset, longest)?)
}

/// An empty vector for so many bytes; `None` without memory for them.
fn room(bytes: usize) -> Option<Vec<u8>> {
    let mut room = Vec::new();
    room.try_reserve_exact(bytes).ok()?;
    Some(room)
}

fn no_memory(disk: &Arc<Disk>, op: Op, offset: u64, len: usize) -> ToolError {
    let kind = IoErrorKind::Os(libc::ENOMEM);
    IoError { path: disk.shared_path(), op, offset, len, kind }.into()
}

/// The align size that goes with a disk when a request names none, bytes (socket-protocol.md 7.12).
///
/// # Errors
/// -19: no path, or it cannot be opened. -22: blocks of neither 512 nor 4096 bytes.
pub fn align(io: &Io, disk: &types::Disk) -> Result<u32, ToolError> {
    let disk = io.open_device(disk)?;
    let geometry = sanlock_lease::format::choose_sizes(None, None, disk.logical_block_size())?;
    Ok(align_bytes(geometry))
}

/// At most 8 MiB.
fn align_bytes(geometry: Geometry) -> u32 {
    u32::try_from(geometry.align().bytes()).unwrap_or(u32::MAX)
}
