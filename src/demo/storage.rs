//! Where the demo keeps its leases.

use super::cleanup::{self, Dir};
use super::taken;
use crate::cli::command::DemoArgs;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// What a file has for blocks.
const FILE_BLOCK: u32 = 512;

/// The scratch lease file (removed with its directory at the end) or the device named by the user.
pub(super) struct Storage {
    /// Holds the run directories, and the lease file unless a device is used.
    pub(super) dir: Dir,
    /// Where the leases are.
    pub(super) leases: PathBuf,
    /// Offset of the resource there.
    pub(super) resource_at: u64,
}

impl Storage {
    /// Prepares the storage, and says in plain words why a place cannot be used.
    pub(super) fn prepare(args: &DemoArgs) -> Result<Self, String> {
        if let Some(device) = &args.device {
            return Self::on_device(args, device);
        }
        match &args.dir {
            Some(dir) => Self::in_dir(dir),
            None => {
                let candidates = [std::env::temp_dir(), PathBuf::from("/var/tmp"), PathBuf::from(".")];
                let mut reasons = Vec::new();
                for dir in candidates {
                    match Self::in_dir(&dir) {
                        Ok(storage) => return Ok(storage),
                        Err(reason) => reasons.push(reason),
                    }
                }
                Err(format!("{}; name a directory with --dir", reasons.join("; ")))
            }
        }
    }

    fn in_dir(dir: &Path) -> Result<Self, String> {
        let scratch = cleanup::make_dir(dir)
            .map_err(|e| format!("cannot make a directory in {}: {e}", dir.display()))?;
        let leases = scratch.path().join("leases");
        cleanup::make_file(&leases).map_err(|e| format!("cannot create {}: {e}", leases.display()))?;
        check_direct(&leases, OFlag::empty())?;
        Ok(Self { dir: scratch, leases, resource_at: taken::resource_offset(FILE_BLOCK) })
    }

    fn on_device(args: &DemoArgs, device: &Path) -> Result<Self, String> {
        if !args.yes_overwrite {
            return Err(format!(
                "--device {} would overwrite the first 2 areas of that device; add --yes-overwrite if that is meant",
                device.display()
            ));
        }
        let kind = std::fs::metadata(device).map_err(|e| format!("{}: {e}", device.display()))?.file_type();
        if !kind.is_block_device() {
            return Err(format!("{} is not a block device; use --dir for files", device.display()));
        }
        // A mounted file system, and another device that lies on this one, have it to themselves.
        check_direct(device, OFlag::O_EXCL)?;
        let resource_at = taken::check(device)?;
        let dir = cleanup::make_dir(&std::env::temp_dir())
            .map_err(|e| format!("cannot make a temporary directory: {e}"))?;
        Ok(Self { dir, leases: device.to_path_buf(), resource_at })
    }
}

/// Leases need direct I/O: through a cache one host would not see what another has written. `how` may add to it.
fn check_direct(path: &Path, how: OFlag) -> Result<(), String> {
    let direct = OFlag::O_RDWR | OFlag::O_DIRECT | OFlag::O_SYNC | OFlag::O_CLOEXEC;
    match open(path, direct | how, Mode::empty()) {
        Ok(_fd) => Ok(()),
        Err(Errno::EBUSY) => Err(format!(
            "{} is in use: it is mounted, or part of another device ('lsblk' shows which); name a device that nobody uses",
            path.display()
        )),
        Err(e) => Err(format!("{} cannot be opened for direct I/O (O_DIRECT): {}", path.display(), e.desc())),
    }
}
