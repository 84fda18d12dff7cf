//! Programs and scripts that a test makes and runs.
//!
//! The kernel refuses to run a file that any process has open for writing (ETXTBSY). A test that writes a script itself has a
//! descriptor of it for a moment, and a child that another test's thread forks in that moment keeps a copy until it execs. To
//! rename the file does not help: the descriptor is of the file, not of its name. So somebody else writes it: `install`, which
//! nobody forks.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Copies the program `from` to `to`, with the permissions `mode`, ready to be run.
///
/// # Panics
/// When that fails.
pub fn copy(from: &Path, to: &Path, mode: u32) {
    let output = Command::new("install")
        .args([OsStr::new("-m"), OsStr::new(&format!("{mode:o}")), OsStr::new("--")])
        .args([from, to])
        .output()
        .unwrap_or_else(|error| panic!("install: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "install {} {}: {said}", from.display(), to.display());
}

/// Makes a file of `text` with the permissions `mode` that appears at `to` as a whole, ready to be run.
///
/// Beside it, in its directory's parent, two files stand for a moment: whoever watches the directory sees only the script.
///
/// # Panics
/// When that fails, or `to` has no such parent.
pub fn script(to: &Path, text: &str, mode: u32) {
    let outside =
        to.parent().and_then(Path::parent).unwrap_or_else(|| panic!("{} has no place beside", to.display()));
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let id = format!("{name}.{}.{:?}", std::process::id(), std::thread::current().id());
    let [text_file, made] = ["text", "made"].map(|kind| outside.join(format!(".{id}.{kind}")));
    fs::write(&text_file, text).unwrap_or_else(|error| panic!("{}: {error}", text_file.display()));
    copy(&text_file, &made, mode);
    fs::rename(&made, to).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
    fs::remove_file(&text_file).unwrap_or_else(|error| panic!("{}: {error}", text_file.display()));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// With `fs::write` in place of [`script`] this fails within some dozens of turns.
    #[test]
    fn a_script_runs_at_once_while_other_threads_start_programs() {
        let dir = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let scripts = dir.path().join("scripts");
        fs::create_dir(&scripts).unwrap_or_else(|error| panic!("{error}"));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        // A hook makes it fork, as starting a program in its own session does.
                        let _ = Command::new("true").current_dir("/").status();
                    }
                });
            }
            let failed = (0..100).find_map(|n| {
                let path = scripts.join(format!("script{n}"));
                script(&path, "#!/bin/sh\nexit 7\n", 0o755);
                match Command::new(&path).status() {
                    Ok(status) if status.code() == Some(7) => None,
                    other => Some(other),
                }
            });
            done.store(true, Ordering::Relaxed);
            assert!(failed.is_none(), "{failed:?}");
        });
        assert_eq!(
            fs::read_dir(dir.path()).map(Iterator::count).ok(),
            Some(1),
            "nothing is left beside the scripts"
        );
    }
}
