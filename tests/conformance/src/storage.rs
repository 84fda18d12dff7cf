//! Scratch storage: a regular file or a loop device with 512- or 4096-byte sectors.
//!
//! Area 0 is the lockspace, area n (from 1) the lease of resource n. The area size is the one both
//! programs choose without flags: 1 MiB, or 8 MiB for 4096-byte sectors (socket-protocol.md 7.17).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::bounded;
use crate::program::missing;

/// Areas of storage that is not asked for a number: a lockspace and the resources of most cases.
const AREAS: u64 = 16;

/// How long damage is looked at before it is done again.
const DAMAGE_AGAIN: Duration = Duration::from_millis(100);

/// Limit for losetup.
const LOSETUP_LIMIT: Duration = Duration::from_secs(60);

/// The lockspace name all cases use.
pub const LOCKSPACE: &str = "LS";

/// What the leases lie on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageKind {
    /// A regular file.
    File,
    /// A loop device with 512-byte sectors.
    Loop512,
    /// A loop device with 4096-byte sectors.
    Loop4096,
}

impl StorageKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::File, Self::Loop512, Self::Loop4096];

    /// Bytes from one lease area to the next.
    #[must_use]
    pub fn align_size(self) -> u64 {
        match self {
            Self::File | Self::Loop512 => 1 << 20,
            Self::Loop4096 => 8 << 20,
        }
    }

    /// Bytes per sector.
    #[must_use]
    pub fn sector_size(self) -> u32 {
        match self {
            Self::File | Self::Loop512 => 512,
            Self::Loop4096 => 4096,
        }
    }
}

/// One piece of scratch storage; removed when dropped. Must outlive the hosts that use it.
#[derive(Debug)]
pub struct Storage {
    kind: StorageKind,
    areas: u64,
    path: PathBuf,
    device: Option<LoopDevice>,
    dir: TempDir,
}

impl Storage {
    /// Makes storage of the given kind, or `None` with a message when loop devices are missing.
    ///
    /// # Panics
    /// When files cannot be made, and when loop devices are missing under `CI`.
    #[must_use]
    pub fn new(kind: StorageKind) -> Option<Self> {
        Self::with_areas(kind, AREAS)
    }

    /// The same with room for `areas` lockspaces and leases.
    ///
    /// # Panics
    /// When files cannot be made, and when loop devices are missing under `CI`.
    #[must_use]
    pub fn with_areas(kind: StorageKind, areas: u64) -> Option<Self> {
        let dir = scratch_dir("disk");
        let file = dir.path().join("leases");
        sparse_file(&file, kind.align_size() * areas);
        let device = match kind {
            StorageKind::File => None,
            StorageKind::Loop512 | StorageKind::Loop4096 => {
                Some(LoopDevice::attach(&file, kind.sector_size())?)
            }
        };
        let path = device.as_ref().map_or(file, |device| device.path.clone());
        Some(Self { kind, areas, path, device, dir })
    }

    /// A regular file, which is always to be had.
    ///
    /// # Panics
    /// When files cannot be made.
    #[must_use]
    pub fn file() -> Self {
        Self::new(StorageKind::File).unwrap_or_else(|| unreachable!("files are always to be had"))
    }

    /// A regular file in a directory of its own in `parent`.
    ///
    /// # Panics
    /// When files cannot be made.
    #[must_use]
    pub fn file_in(parent: &Path) -> Self {
        let dir = TempDir::new_in(parent).unwrap_or_else(|error| panic!("{}: {error}", parent.display()));
        let path = dir.path().join("leases");
        sparse_file(&path, StorageKind::File.align_size() * AREAS);
        Self { kind: StorageKind::File, areas: AREAS, path, device: None, dir }
    }

    /// What this is.
    #[must_use]
    pub fn kind(&self) -> StorageKind {
        self.kind
    }

    /// Path to give to the daemon.
    ///
    /// # Panics
    /// When the path is not UTF-8.
    #[must_use]
    pub fn path(&self) -> &str {
        text(&self.path)
    }

    /// Directory of its own for further files of the case.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Path of a further sparse file, `megabytes` MiB long.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn extra_file(&self, name: &str, megabytes: u64) -> String {
        let path = self.dir.path().join(name);
        sparse_file(&path, megabytes << 20);
        text(&path).to_owned()
    }

    /// Byte offset of area `n`.
    #[must_use]
    pub fn offset(&self, n: u64) -> u64 {
        assert!(n < self.areas, "area {n} of {}", self.areas);
        n * self.kind.align_size()
    }

    /// LOCKSPACE argument for `host_id` (command-line.md 4.1).
    #[must_use]
    pub fn lockspace_arg(&self, host_id: u64) -> String {
        format!("{LOCKSPACE}:{host_id}:{}:0", self.path())
    }

    /// RESOURCE argument of resource `n`, named `Rn` (command-line.md 4.2).
    #[must_use]
    pub fn resource_arg(&self, n: u64) -> String {
        format!("{LOCKSPACE}:R{n}:{}:{}", self.path(), self.offset(n))
    }

    /// Description of the lockspace for the wire.
    #[must_use]
    pub fn lockspace(&self, host_id: u64) -> crate::Lockspace {
        crate::Lockspace::new(LOCKSPACE, host_id, self.path(), 0)
    }

    /// Description of resource `n` for the wire.
    #[must_use]
    pub fn resource(&self, n: u64) -> crate::Resource {
        crate::Resource::new(LOCKSPACE, &format!("R{n}"), self.path(), self.offset(n))
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // The device goes before the directory with its backing file.
        self.device.take();
    }
}

#[derive(Debug)]
struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    fn attach(file: &Path, sector_size: u32) -> Option<Self> {
        let mut command = Command::new("losetup");
        command.args(["-f", "--show", "-b", &sector_size.to_string()]).arg(file);
        let output = bounded::run(command, LOSETUP_LIMIT);
        if output.code != 0 {
            let what = format!("a loop device with {sector_size}-byte sectors (needs root; {output})");
            let _ = missing(&what);
            return None;
        }
        Some(Self { path: PathBuf::from(output.stdout.trim()) })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let mut command = Command::new("losetup");
        command.arg("-d").arg(&self.path);
        let status = command.status();
        if !status.as_ref().is_ok_and(std::process::ExitStatus::success) {
            eprintln!("could not detach {}: {status:?}", self.path.display());
        }
    }
}

/// A scratch directory under `SANLOCK_TEST_DIR` or the system's temporary directory. It must lie
/// on a file system with direct I/O.
///
/// # Panics
/// When it cannot be made.
#[must_use]
pub fn scratch_dir(word: &str) -> TempDir {
    let base = std::env::var_os("SANLOCK_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    tempfile::Builder::new()
        .prefix(&format!("sanlock-{word}-"))
        .tempdir_in(&base)
        .unwrap_or_else(|error| panic!("cannot make a directory in {}: {error}", base.display()))
}

/// Destroys the host_id lease of a host, until `seen`: a renewal that has read its sector before the damage writes it back.
///
/// # Panics
/// When the file cannot be written, and after `limit`, naming `what` was to be seen.
pub fn damage_host_id_until(
    lockspace: &Path,
    host_id: u64,
    what: &str,
    limit: Duration,
    mut seen: impl FnMut() -> bool,
) {
    let file = File::options().write(true).open(lockspace);
    let file = file.unwrap_or_else(|error| panic!("{}: {error}", lockspace.display()));
    let mut done = None::<Instant>;
    bounded::wait_until(what, limit, || {
        if done.is_none_or(|at| at.elapsed() >= DAMAGE_AGAIN) {
            let written = file.write_all_at(&[0xff; 512], (host_id - 1) * 512).and_then(|()| file.sync_all());
            written.unwrap_or_else(|error| panic!("{}: {error}", lockspace.display()));
            done = Some(Instant::now());
        }
        seen()
    });
}

/// Makes a sparse file.
///
/// # Panics
/// When it cannot be made.
pub fn sparse_file(path: &Path, length: u64) {
    File::create(path)
        .and_then(|file| file.set_len(length))
        .unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
}

/// A path as text; scratch paths are plain ASCII.
///
/// # Panics
/// When the path is not UTF-8.
#[must_use]
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_else(|| panic!("{} is not UTF-8", path.display()))
}
