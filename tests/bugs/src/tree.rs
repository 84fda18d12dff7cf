//! The copy of the source tree that patches are applied to. It stays from run to run, so that only what changed is built again.

use crate::patch::Patch;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A copy of the committed tree.
#[derive(Debug)]
pub struct Tree {
    /// Its root.
    pub root: PathBuf,
}

fn told(what: &Path) -> impl Fn(std::io::Error) -> String + '_ {
    move |e| format!("{}: {e}", what.display())
}

/// The files below a directory, relative to it; directories that only builds make are left out.
fn files(root: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let mut found = BTreeSet::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).map_err(told(&directory))? {
            let path = entry.map_err(told(&directory))?.path();
            if path.is_dir() && !path.is_symlink() {
                open.push(path);
            } else if let Ok(path) = path.strip_prefix(root) {
                found.insert(path.to_path_buf());
            }
        }
    }
    Ok(found)
}

impl Tree {
    /// Brings the copy in `work` to the commit that is checked out in `source`. Files that are right already are left alone: their age
    /// is what decides what is built again.
    ///
    /// # Errors
    /// `git archive` or `tar` fails, or a file cannot be written.
    pub fn at_head(source: &Path, work: &Path) -> Result<Self, String> {
        let (fresh, root) = (work.join("fresh"), work.join("tree"));
        let _absent = fs::remove_dir_all(&fresh);
        for directory in [&fresh, &root] {
            fs::create_dir_all(directory).map_err(told(directory))?;
        }
        let mut archive = Command::new("git")
            .args(["archive", "HEAD"])
            .current_dir(source)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("git archive: {e}"))?;
        let stream = archive.stdout.take().ok_or("git archive has no output")?;
        let unpacked = Command::new("tar").arg("-x").current_dir(&fresh).stdin(stream).status();
        let packed = archive.wait().map_err(|e| format!("git archive: {e}"))?;
        if !packed.success() || !unpacked.map_err(|e| format!("tar: {e}"))?.success() {
            return Err("the committed tree cannot be copied".to_owned());
        }
        let wanted = files(&fresh)?;
        for path in files(&root)?.difference(&wanted) {
            let path = root.join(path);
            fs::remove_file(&path).map_err(told(&path))?;
        }
        for path in &wanted {
            let (from, to) = (fresh.join(path), root.join(path));
            if from.is_symlink() {
                continue;
            }
            let text = fs::read(&from).map_err(told(&from))?;
            if fs::read(&to).ok().as_ref() != Some(&text) {
                if let Some(directory) = to.parent() {
                    fs::create_dir_all(directory).map_err(told(directory))?;
                }
                fs::write(&to, text).map_err(told(&to))?;
            }
        }
        fs::remove_dir_all(&fresh).map_err(told(&fresh))?;
        Ok(Self { root })
    }

    /// Does something with the patch applied, and takes it away again.
    ///
    /// # Errors
    /// It does not apply, or a file cannot be written.
    pub fn with<T>(&self, patch: &Patch, what: impl FnOnce() -> T) -> Result<T, String> {
        let changed = patch.apply(&self.root)?;
        let mut before = Vec::new();
        for (path, text) in &changed {
            before.push((path, fs::read_to_string(path).map_err(told(path))?));
            fs::write(path, text).map_err(told(path))?;
        }
        let result = what();
        for (path, text) in before {
            fs::write(path, text).map_err(told(path))?;
        }
        Ok(result)
    }
}
