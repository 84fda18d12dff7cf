//! A pretended host for programs with compiled-in paths: process ids, directories and a name of its own.
//!
//! The programs live in mount, process id and host name name spaces. Whatever they leave behind, daemons
//! included, dies with the name space, and that dies with the test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::bounded::{self, Running};
use crate::storage::{scratch_dir, text};
use crate::wdmd::SOON;

/// First process: puts the directories and files of `$0` in their places, then reaps what is left to it.
/// A zombie would count as a living process for whoever ended it, so it does not wait long.
const INIT: &str = r#"
hostname "$HOST"
for place in "$@"; do mount --bind "$0$place" "$place" || exit 1; done
: >"$0/ready"
while :; do sleep 0.1; done"#;

/// Directories that are empty at first.
const OWN_DIRECTORIES: [&str; 4] = ["/run", "/var/lib", "/var/cache", "/var/log"];

/// Files that begin as copies of the machine's own.
const OWN_FILES: [&str; 2] = ["/etc/passwd", "/etc/group"];

/// The name space. Everything in it is killed when this is dropped.
#[derive(Debug)]
pub struct Namespace {
    init: Running,
    dir: TempDir,
}

impl Namespace {
    /// Makes it, with host name `name`, with `/run`, `/var/lib`, `/var/cache`, `/var/log` and `directories` (which must exist)
    /// of its own, and with the user and group `account` besides the machine's.
    ///
    /// # Panics
    /// When it cannot be made; ask [`crate::wdmd::mount_namespaces`] first.
    #[must_use]
    pub fn new(name: &str, directories: &[&str], account: &str) -> Self {
        let dir = scratch_dir("host");
        let own = |place: &str| dir.path().join(place.trim_start_matches('/'));
        let mut places = OWN_DIRECTORIES.to_vec();
        places.extend(directories);
        for place in &places {
            fs::create_dir_all(own(place)).unwrap_or_else(|error| panic!("{place}: {error}"));
        }
        fs::create_dir_all(own("/etc")).unwrap_or_else(|error| panic!("etc: {error}"));
        for (place, entry) in OWN_FILES
            .iter()
            .zip([format!("{account}:x:64055:64055::/:/bin/false\n"), format!("{account}:x:64055:\n")])
        {
            let known = fs::read_to_string(place).unwrap_or_else(|error| panic!("{place}: {error}"));
            fs::write(own(place), known + &entry).unwrap_or_else(|error| panic!("{place}: {error}"));
        }
        let mut command = bounded::dying_with_us(Path::new("unshare"));
        command
            .env("HOST", name)
            .args(["-m", "-p", "-u", "-f", "--kill-child", "--mount-proc", "--propagation", "private"])
            .args(["sh", "-c", INIT, text(dir.path())])
            .args(places)
            .args(OWN_FILES);
        let mut init = Running::start(command);
        bounded::wait_until("the name space", SOON, || {
            if init.ended() {
                panic!("no name space: {}", init.finish(SOON));
            }
            dir.path().join("ready").exists()
        });
        Self { init, dir }
    }

    /// Where what the programs see as `place` lies for everybody else. Only for places of its own.
    #[must_use]
    pub fn file(&self, place: &str) -> PathBuf {
        self.dir.path().join(place.trim_start_matches('/'))
    }

    /// A command that runs `program` inside. Killing it does not kill the program.
    #[must_use]
    pub fn command(&self, program: &Path, args: &[&str]) -> Command {
        let pid = self.init.pid();
        let mut command = bounded::dying_with_us(Path::new("nsenter"));
        command
            .arg(format!("--mount=/proc/{pid}/ns/mnt"))
            .arg(format!("--uts=/proc/{pid}/ns/uts"))
            .arg(format!("--pid=/proc/{pid}/ns/pid_for_children"))
            .arg("--")
            .arg(program)
            .args(args);
        command
    }
}
