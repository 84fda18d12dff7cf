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

/// What is asked for.
const WANTED: u32 = libc::STATX_TYPE | libc::STATX_SIZE | libc::STATX_INO;

/// A device, major and minor.
pub(crate) type Device = (u32, u32);

/// Which file it is, among those that exist at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Where a regular file is kept.
    holder: Device,
    inode: u64,
    /// What a device node stands for.
    node: Device,
}

impl Identity {
    /// The device on which operations on it hang, if any do.
    pub(crate) fn device(&self, kind: DiskKind) -> Device {
        match kind {
            DiskKind::File => self.holder,
            DiskKind::Block => self.node,
        }
    }
}

#[cfg(test)]
impl Identity {
    /// The same file, kept elsewhere.
    pub(crate) fn kept_on(self, holder: Device) -> Self {
        Self { holder, ..self }
    }
}

/// A file that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// `None`: neither a regular file nor a block device.
    pub(crate) kind: Option<DiskKind>,
    /// A directory.
    pub(crate) directory: bool,
    /// Bytes of a regular file.
    pub(crate) size: u64,
    pub(crate) identity: Identity,
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
    let identity = Identity {
        holder: (found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        node: (found.stx_rdev_major, found.stx_rdev_minor),
    };
    Ok(Stat { kind, directory: file_type == libc::S_IFDIR, size: found.stx_size, identity })
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
        let file = Stat::of_path(&path).unwrap();
        assert_eq!((file.kind, file.directory, file.size), (Some(DiskKind::File), false, 12345));
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
    fn a_file_is_known_again_and_told_from_others() {
        use std::os::unix::fs::MetadataExt;

        let dir = tempfile::tempdir().unwrap();
        let [one, two, moved] = ["one", "two", "moved"].map(|name| dir.path().join(name));
        for path in [&one, &two] {
            std::fs::write(path, [7; 512]).unwrap();
        }
        let identity = |path: &Path| Stat::of_path(path).unwrap().identity;
        let first = identity(&one);
        assert_ne!(first, identity(&two));
        std::fs::rename(&one, &moved).unwrap();
        assert_eq!(identity(&moved), first);
        std::fs::rename(&two, &one).unwrap();
        assert_ne!(identity(&one), first);
        let (major, minor) = first.device(DiskKind::File);
        let expected = std::fs::metadata(&moved).unwrap().dev();
        assert_eq!(
            (u64::from(major), u64::from(minor)),
            (libc::major(expected).into(), libc::minor(expected).into())
        );
        assert_eq!(identity(Path::new("/dev/null")).device(DiskKind::Block), (1, 3));
    }

    #[test]
    fn failures_are_those_of_stat() {
        let errno = |path: &str| Stat::of_path(Path::new(path)).unwrap_err().raw_os_error();
        assert_eq!(errno("/nowhere/at/all"), Some(libc::ENOENT));
        assert_eq!(errno("/dev/null/x"), Some(libc::ENOTDIR));
        assert_eq!(errno("a\0b"), None, "no such path can be");
    }
}
