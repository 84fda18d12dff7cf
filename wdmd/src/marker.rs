//! The marker that a wdmd runs, or has ended without stopping its device (specification 3.4).
//!
//! After a crash the device is running and will reset this host. A restarted wdmd would open it, which pings it, and so
//! rescue a host whose clients nobody supervises any more. The marker therefore survives a crash, but not a reboot, and
//! whoever finds it does not start. Its name is the original's: the two never run at the same time.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;

/// The marker of this process. It stays until [`Marker::remove`]: a process that ends in any other way leaves it behind.
#[derive(Debug)]
pub(crate) struct Marker(());

impl Marker {
    /// As `shm_open("/wdmd")` makes it.
    pub(crate) const PATH: &str = "/dev/shm/wdmd";

    /// Makes the marker.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`: another wdmd runs or has crashed. Others: `/dev/shm` is not usable.
    pub(crate) fn create() -> io::Result<Self> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o644)
            .custom_flags(nix::libc::O_NOFOLLOW)
            .open(Self::PATH)?;
        Ok(Self(()))
    }

    /// Removes it: no device runs.
    pub(crate) fn remove(self) {
        // One that cannot be removed keeps the next wdmd from starting, which says how to go on.
        let _ = fs::remove_file(Self::PATH);
    }
}
