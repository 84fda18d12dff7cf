//! The files of `/proc`, `/sys`, `/etc` and `/run` that are looked at, below a directory that can be another one than `/`: a saved copy
//! of a host, or a test's.

use std::fs;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Bytes of a file that are read; those looked at are far smaller.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Names in a directory that are looked at.
const NAMES_MAX: usize = 65_536;

/// Where the system's files are.
#[derive(Clone, Debug)]
pub(super) struct Root(PathBuf);

impl Root {
    pub(super) fn new(dir: &Path) -> Self {
        Self(dir.to_path_buf())
    }

    /// Whether this is the system that the command runs on.
    pub(super) fn is_own(&self) -> bool {
        self.0 == Path::new("/")
    }

    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// A file's text, without blanks at its end; `None` if there is none that can be read.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        fs::File::open(self.at(path)).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    }

    /// A file that holds one number.
    pub(super) fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// What is in a directory, sorted.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.at(path)) else { return Vec::new() };
        let names = entries.take(NAMES_MAX).filter_map(|e| e.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    pub(super) fn is_there(&self, path: &str) -> bool {
        fs::symlink_metadata(self.at(path)).is_ok()
    }

    /// Whether there is a socket that somebody listens on. In a saved copy of a system no socket is one; there it is enough that the
    /// file exists.
    pub(super) fn listens(&self, path: &str) -> bool {
        let place = self.at(path);
        match fs::metadata(&place) {
            Ok(metadata) if metadata.file_type().is_socket() => UnixStream::connect(&place).is_ok(),
            Ok(_) => true,
            Err(_) => false,
        }
    }

    /// A path with every link followed, seen from the root.
    pub(super) fn resolve(&self, path: &str) -> Option<String> {
        let root = fs::canonicalize(&self.0).ok()?;
        let real = fs::canonicalize(self.at(path)).ok()?;
        let below = real.strip_prefix(root).ok()?;
        Some(format!("/{}", below.to_str()?))
    }
}
