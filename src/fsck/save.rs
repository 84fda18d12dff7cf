//! What a repair overwrites, kept in a file.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const HEADER: &str = "\
# What `sanlock fsck --repair` overwrote, a line for each write: OFFSET LENGTH HEXADECIMAL PATH.
# To put one back: printf HEXADECIMAL | xxd -r -p | dd of=PATH bs=LENGTH seek=OFFSET/LENGTH conv=notrunc oflag=direct
";

/// A new file for what is overwritten.
pub(super) struct Saved {
    file: File,
    path: PathBuf,
}

impl Saved {
    /// Creates it, so that a power failure does not take its name away. Nothing that exists is ever overwritten.
    ///
    /// # Errors
    /// It exists, or cannot be created.
    pub(super) fn create(path: Option<&Path>) -> io::Result<Self> {
        let path = path.map_or_else(
            || {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
                PathBuf::from(format!("sanlock-fsck-{since}-{}.saved", std::process::id()))
            },
            Path::to_path_buf,
        );
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(HEADER.as_bytes())?;
        keep_name(&path)?;
        Ok(Self { file, path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds what stands at byte `offset` of the storage at `disk`, and returns once it is on stable storage.
    ///
    /// # Errors
    /// It could not be written.
    pub(super) fn add(&mut self, disk: &[u8], offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut line = format!("{offset} {} ", bytes.len());
        for byte in bytes {
            let _ = write!(line, "{byte:02x}");
        }
        let line = [line.as_bytes(), b" ", disk, b"\n"].concat();
        self.file.write_all(&line)?;
        self.file.sync_data()
    }
}

/// Brings the directory of a new file to stable storage: what is in the file is lost with its name. A file system that does not do that for
/// directories (EINVAL) keeps names in its own way.
fn keep_name(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match File::open(dir)?.sync_all() {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}
