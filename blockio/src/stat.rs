//! What kind of file there is, and how large, without asking when it was changed.
//!
//! Since Linux 6.13 a file whose times somebody has asked for gets a finer time with its next write, and on ext4 and others a synchronous write
//! then writes the inode as well. Whoever asks with `fstat`, as the standard library does, makes each write of an acquire or a
//! release half as long again.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::disk::DiskKind;

/// The two things asked for.
const WANTED: u32 = libc::STATX_TYPE | libc::STATX_SIZE;

/// A file that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// `None`: neither a regular file nor a block device.
    pub(crate) kind: Option<DiskKind>,
    /// A directory.
    pub(crate) directory: bool,
    /// Bytes of a regular file.
    pub(crate) size: u64,
}

impl Stat {
    /// What a path leads to, links followed.
    ///
    /// # Errors
    /// As stat(2).
    pub(crate) fn of_path(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        statx(libc::AT_FDCWD, &path, 0)
    }

    /// What was opened.
    ///
    /// # Errors
    /// As fstat(2).
    pub(crate) fn of_fd(fd: BorrowedFd<'_>) -> io::Result<Self> {
        statx(fd.as_raw_fd(), c"", libc::AT_EMPTY_PATH)
    }
}

fn statx(dir: i32, path: &CStr, flags: i32) -> io::Result<Stat> {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: `path` ends with a zero byte, and `found` has room for what is written to it.
    let rc = unsafe { libc::statx(dir, path.as_ptr(), flags, WANTED, found.as_mut_ptr()) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all zeroes are a value of this type, and so is what the call has written.
    let found = unsafe { found.assume_init() };
    let file_type = u32::from(found.stx_mode) & libc::S_IFMT;
    let kind = match file_type {
        libc::S_IFREG => Some(DiskKind::File),
        libc::S_IFBLK => Some(DiskKind::Block),
        _ => None,
    };
    Ok(Stat { kind, directory: file_type == libc::S_IFDIR, size: found.stx_size })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn kind_and_size_are_those_of_the_standard_library() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("leases");
        std::fs::write(&path, [7; 12345]).unwrap();
        let file = Stat { kind: Some(DiskKind::File), directory: false, size: 12345 };
        assert_eq!(Stat::of_path(&path).unwrap(), file);
        assert_eq!(Stat::of_fd(std::fs::File::open(&path).unwrap().as_fd()).unwrap(), file);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(Stat::of_path(&link).unwrap(), file);
        let (dir, null) =
            (Stat::of_path(dir.path()).unwrap(), Stat::of_path(Path::new("/dev/null")).unwrap());
        assert_eq!((dir.kind, dir.directory), (None, true));
        assert_eq!((null.kind, null.directory), (None, false));
    }

    #[test]
    fn failures_are_those_of_stat() {
        let errno = |path: &str| Stat::of_path(Path::new(path)).unwrap_err().raw_os_error();
        assert_eq!(errno("/nowhere/at/all"), Some(libc::ENOENT));
        assert_eq!(errno("/dev/null/x"), Some(libc::ENOTDIR));
        assert_eq!(errno("a\0b"), None, "no such path can be");
    }
}
