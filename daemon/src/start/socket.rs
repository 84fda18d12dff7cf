//! The socket's file: made at the start, removed at the end.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use sanlock_sys::credentials::UmaskGuard;

use super::error::StartError;
use super::identity::Identity;
use crate::config::Config;

/// Bytes of a path that libsanlock's clients connect to; what is longer they cut (socket-protocol.md 1.1).
const PATH_BYTES_MAX: usize = 106;

/// Makes the socket, with the mode and owner that clients expect (socket-protocol.md 1.2).
pub(super) fn listen(
    path: &Path,
    config: &Config,
    identity: &Identity,
) -> Result<(UnixListener, SocketFile), StartError> {
    let failed = |error| StartError::Socket { path: path.to_owned(), error };
    if path.as_os_str().len() > PATH_BYTES_MAX {
        return Err(failed(io::Error::from_raw_os_error(libc::ENAMETOOLONG)));
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = {
        // The mode is right from the first moment on.
        let _mask = UmaskGuard::set(0o117);
        UnixListener::bind(path).map_err(failed)?
    };
    let made = SocketFile::made(path).map_err(failed)?;
    // A daemon that dropped root owns the socket already; one that never had it may not be allowed to give it away.
    let given = chown(path, Some(identity.user.0), Some(identity.group.0));
    if config.privileged {
        given.map_err(failed)?
    }
    Ok((listener, made))
}

/// The name of the socket, and which file that is: where the run directory was removed, another daemon may have made one of that name since.
pub(super) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    /// Of a socket just made.
    fn made(path: &Path) -> io::Result<Self> {
        let found = fs::symlink_metadata(path)?;
        Ok(Self { path: path.to_owned(), device: found.dev(), inode: found.ino() })
    }

    /// Removes it, if it is still the same. The number of its inode belongs to no other file as long as somebody listens on it.
    pub(super) fn remove(&self) {
        let same = |found: fs::Metadata| (found.dev(), found.ino()) == (self.device, self.inode);
        if fs::symlink_metadata(&self.path).is_ok_and(same) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
