//! A file system that can be frozen: writes to its files hang, reads and opens go on.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::bounded::{self, Running};
use crate::program::missing;
use crate::storage::{scratch_dir, text};

/// Limit for mkfs, mount and the like.
const TOOL_LIMIT: Duration = Duration::from_secs(30);

/// A guard process thaws the file system when the test process ends, however it ends, and after this
/// time at the latest: a frozen file system with a hung writer cannot be cleaned up by anything else.
const GUARD_SECONDS: u64 = 300;

/// A small ext4 file system on a loop device, mounted in a scratch directory.
#[derive(Debug)]
pub struct FreezableDir {
    mount_point: PathBuf,
    frozen: Option<Guard>,
    _dir: TempDir,
}

#[derive(Debug)]
struct Guard(Running);

impl FreezableDir {
    /// Makes and mounts it, or `None` with a message when mounting is not possible.
    ///
    /// # Panics
    /// When files cannot be made, and when mounting is impossible under `CI`.
    #[must_use]
    pub fn new() -> Option<Self> {
        let dir = scratch_dir("freeze");
        let image = dir.path().join("image");
        let mount_point = dir.path().join("mnt");
        let made = File::create(&image)
            .and_then(|file| file.set_len(96 << 20))
            .and_then(|()| std::fs::create_dir(&mount_point));
        made.unwrap_or_else(|error| panic!("{}: {error}", dir.path().display()));
        tool(&["mkfs.ext4", "-q", text(&image)])?;
        tool(&["mount", "-o", "loop", text(&image), text(&mount_point)])?;
        Some(Self { mount_point, frozen: None, _dir: dir })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.mount_point
    }

    /// From now on writes hang.
    ///
    /// # Panics
    /// When it cannot be frozen.
    pub fn freeze(&mut self) {
        self.freeze_for(GUARD_SECONDS);
    }

    /// The same, with another limit for the guard: the whole run has to fit.
    ///
    /// # Panics
    /// When it cannot be frozen.
    pub fn freeze_for(&mut self, guard_seconds: u64) {
        let mut guard = Command::new("/bin/sh");
        let script = format!(
            "timeout {guard_seconds} tail --pid={} -f /dev/null; fsfreeze -u {}",
            std::process::id(),
            text(&self.mount_point)
        );
        guard.args(["-c", &script]);
        self.frozen = Some(Guard(Running::start(guard)));
        let frozen = tool(&["fsfreeze", "-f", text(&self.mount_point)]);
        assert!(frozen.is_some(), "{} cannot be frozen", self.mount_point.display());
    }

    /// Lets the writes go on.
    ///
    /// # Panics
    /// When they go on already: it was frozen for longer than the guard allows.
    pub fn thaw(&mut self) {
        if let Some(mut guard) = self.frozen.take() {
            let thawed = bounded::run(command(&["fsfreeze", "-u", text(&self.mount_point)]), TOOL_LIMIT);
            guard.0.kill();
            // A case that fails is to say why, not this.
            assert!(
                thawed.code == 0 || thread::panicking(),
                "not frozen any more, the case has taken too long: {thawed}"
            );
        }
    }
}

impl Drop for FreezableDir {
    fn drop(&mut self) {
        self.thaw();
        // Lazily: a daemon that is being killed may still hold a file for a moment.
        let _ = Command::new("umount").arg("-l").arg(&self.mount_point).status();
    }
}

/// Runs a system tool; `None` when it fails, which is noted as something missing.
fn tool(words: &[&str]) -> Option<()> {
    let output = bounded::run(command(words), TOOL_LIMIT);
    if output.code != 0 {
        let _ = missing(&format!("a file system to freeze (needs root; {output})"));
        return None;
    }
    Some(())
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}
