//! The metrics in a file, for the textfile collector of node_exporter.

use std::ffi::OsString;
use std::fs::{File, remove_file, rename};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Replaces the file as a whole: whoever reads it sees the old text or the new one.
///
/// # Errors
/// Its directory does not exist, cannot be written to or is full. The file is as it was.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = beside(path);
    let written = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644)
        .open(&new)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| rename(&new, path));
    if written.is_err() {
        // What cannot be removed either is overwritten the next time.
        let _ = remove_file(&new);
    }
    written
}

/// The name ends otherwise, so that node_exporter does not read it.
fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".new");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.prom");
        for text in ["one\n", "two\n"] {
            replace(&path, text).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(replace(&dir.path().join("none/a.prom"), "x").is_err());
    }
}
