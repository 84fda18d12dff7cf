//! A machine that sleeps, as a daemon sees it (`shim/sleep.c`).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::TempDir;

use crate::program::compiled;
use crate::storage::scratch_dir;

const SHIM_SOURCE: &str = include_str!("../shim/sleep.c");

/// How long a machine has slept.
#[derive(Debug)]
pub struct Sleep {
    dir: TempDir,
    file: File,
}

impl Sleep {
    /// It has not.
    ///
    /// # Panics
    /// When the file cannot be made.
    #[must_use]
    pub fn none() -> Self {
        let dir = scratch_dir("sleep");
        let made = File::options().create_new(true).read(true).write(true).open(dir.path().join("slept"));
        let sleep = Self { dir, file: made.unwrap_or_else(|error| panic!("no file for the sleep: {error}")) };
        sleep.set(0);
        sleep
    }

    /// It has slept this long by now, in all.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn set(&self, seconds: u64) {
        let written = self.file.write_all_at(&seconds.to_ne_bytes(), 0);
        written.unwrap_or_else(|error| panic!("the sleep cannot be set: {error}"));
    }

    /// What the daemon on this machine has in its environment.
    pub(crate) fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", shim().to_owned()), ("SLEEP_SHIM_FILE", self.dir.path().join("slept"))]
    }
}

fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| compiled("sleep", SHIM_SOURCE))
}

/// Seconds since boot, on a machine that has slept this long.
#[must_use]
pub fn since_boot(slept: u64) -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
    now.map_or(0, |now| Duration::from(now).as_secs()) + slept
}
