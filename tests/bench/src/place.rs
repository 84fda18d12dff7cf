//! What the leases lie on.

use std::path::Path;
use std::time::Duration;

use sanlock_conformance::program::missing;
use sanlock_conformance::storage::text;
use sanlock_conformance::{Storage, StorageKind};
use sanlock_served::{ServedFile, Trouble};

/// Kinds of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PlaceKind {
    /// A regular file.
    File,
    /// A loop device with 512-byte sectors.
    Loop512,
    /// A loop device with 4096-byte sectors.
    Loop4096,
    /// A file each of whose reads and writes takes a millisecond longer.
    Delay1,
    /// A file each of whose reads and writes takes ten milliseconds longer.
    Delay10,
}

impl PlaceKind {
    /// Word for tables and the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Loop512 => "loop512",
            Self::Loop4096 => "loop4096",
            Self::Delay1 => "delay1",
            Self::Delay10 => "delay10",
        }
    }

    /// Milliseconds that each read and write takes longer.
    #[must_use]
    pub fn delay_ms(self) -> u64 {
        match self {
            Self::Delay1 => 1,
            Self::Delay10 => 10,
            _ => 0,
        }
    }

    fn plain(self) -> StorageKind {
        match self {
            Self::Loop512 => StorageKind::Loop512,
            Self::Loop4096 => StorageKind::Loop4096,
            Self::File | Self::Delay1 | Self::Delay10 => StorageKind::File,
        }
    }
}

/// A piece of storage, divided into areas of [`Place::align`] bytes. It must outlive the hosts that use it.
#[derive(Debug)]
pub struct Place {
    kind: PlaceKind,
    // Unmounted before the file behind it goes.
    slow: Option<ServedFile>,
    storage: Storage,
}

impl Place {
    /// Storage for `areas` lockspaces and leases, or `None` with a message where it cannot be had.
    #[must_use]
    pub fn new(kind: PlaceKind, areas: u64) -> Option<Self> {
        let storage = Storage::with_areas(kind.plain(), areas)?;
        let slow = match kind.delay_ms() {
            0 => None,
            delay => Some(slow(Path::new(storage.path()), Duration::from_millis(delay))?),
        };
        Some(Self { kind, slow, storage })
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> PlaceKind {
        self.kind
    }

    /// Path for the daemons.
    #[must_use]
    pub fn path(&self) -> &str {
        self.slow.as_ref().map_or(self.storage.path(), |slow| text(slow.path()))
    }

    /// Bytes from one area to the next.
    #[must_use]
    pub fn align(&self) -> u64 {
        self.storage.kind().align_size()
    }

    /// Bytes per sector.
    #[must_use]
    pub fn sector(&self) -> u32 {
        self.storage.kind().sector_size()
    }
}

/// The file `behind`, each of whose operations takes this much longer; `None` with a message when file systems in user space are
/// not to be had.
fn slow(behind: &Path, delay: Duration) -> Option<ServedFile> {
    let dir = behind.parent().unwrap_or(Path::new("/"));
    ServedFile::over(behind, dir, Trouble::slow(delay))
        .inspect_err(|error| {
            let _ = missing(&format!("a file system in user space on {} ({error})", dir.display()));
        })
        .ok()
}
