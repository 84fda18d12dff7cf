//! Where the sources and the record are in the repository.

use crate::record::{self, Entry};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const HEAD: &str = "\
# Mutation testing of this package, written by tests/mutants/run; the reasons are written by hand. See docs/proof/mutants.md.
";

/// The repository: the one that cargo runs this in, which need not be where it was compiled if two share a directory for what they build.
#[must_use]
pub fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let package = Path::new(&package);
    package.ancestors().nth(2).unwrap_or(package).to_owned()
}

/// The text of every file of a package that is judged, by its path from the repository's root.
///
/// # Errors
/// Of the file system.
pub fn texts(directory: &str) -> io::Result<HashMap<String, String>> {
    let root = root();
    let mut found = HashMap::new();
    let mut left = vec![root.join(directory).join("src")];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            for entry in fs::read_dir(&path)? {
                left.push(entry?.path());
            }
        } else if let Some(name) = path.strip_prefix(&root).ok().and_then(Path::to_str) {
            if crate::is_judged(name) {
                found.insert(name.to_owned(), fs::read_to_string(&path)?);
            }
        }
    }
    Ok(found)
}

/// The record of a package; none when there is no file.
///
/// # Errors
/// That it is not a record.
pub fn read_record(directory: &str) -> Result<Vec<Entry>, String> {
    let path = record_file(directory);
    match fs::read_to_string(&path) {
        Ok(text) => record::parse(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Writes the record of a package.
///
/// # Errors
/// Of the file system.
pub fn write_record<'a>(directory: &str, entries: impl Iterator<Item = &'a Entry>) -> io::Result<()> {
    let entries: String = entries.map(|entry| format!("\n{entry}")).collect();
    fs::write(record_file(directory), format!("{HEAD}{entries}"))
}

fn record_file(directory: &str) -> PathBuf {
    root().join("tests/mutants/record").join(format!("{directory}.txt"))
}
