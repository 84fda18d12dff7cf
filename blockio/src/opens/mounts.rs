//! Which mounts there are, and on which of them a path lies, without touching the path: whoever asks a silent file system where it is hangs.
//!
//! A path is looked at as it is written. One that goes through a symbolic link is taken to lie where the link does, which is good enough to
//! tell that nothing has changed, or that two paths have something in common.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// Unique among those that exist at a time.
    id: u64,
    /// A file system of device nodes: what hangs there is the matter of each device.
    nodes: bool,
}

/// Those of this process.
#[derive(Debug, Default)]
pub(super) struct Mounts(Vec<(PathBuf, Mount)>);

impl Mounts {
    /// As they are now. **May hang**: some file systems look at their disk to tell of their options.
    ///
    /// # Errors
    /// There is no such file.
    pub(super) fn read() -> std::io::Result<Self> {
        std::fs::read("/proc/self/mountinfo").map(|text| Self::parse(&text))
    }

    /// A line for each, of which the first field is the id, the fifth the place, and the first behind a lone `-` the type (proc_pid_mountinfo(5)).
    /// What is not of that form is passed over.
    fn parse(text: &[u8]) -> Self {
        let mount = |line: &[u8]| {
            let mut fields = line.split(|&byte| byte == b' ');
            let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
            let place = PathBuf::from(OsStr::from_bytes(&unescape(fields.nth(3)?)));
            let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
            Some((place, Mount { id, nodes: kind == b"devtmpfs" }))
        };
        Self(text.split(|&byte| byte == b'\n').filter_map(mount).collect())
    }

    /// Where a path lies: of mounts on one place the last. `None` for a path that is not absolute.
    pub(super) fn of(&self, path: &Path) -> Option<Mount> {
        let holding = self.0.iter().filter(|(place, _)| path.starts_with(place));
        holding.max_by_key(|(place, _)| place.as_os_str().len()).map(|(_, mount)| *mount)
    }

    /// Whether an open that hangs on this path makes those on a mount suspect.
    pub(super) fn make_suspect(&self, path: &Path, mount: Option<Mount>) -> bool {
        mount.is_none_or(|mount| !mount.nodes) && mount == self.of(path)
    }
}

/// A path of `/proc/self/mountinfo`, in which blanks and the like are three octal digits behind a backslash.
#[must_use]
pub fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| byte == b'\\') {
            Some(escaped) => {
                out.push(escaped);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
        22 21 0:5 / /dev rw - devtmpfs udev rw\n\
        23 21 0:40 /x /mnt/a\\040b rw,relatime shared:3 master:1 - nfs4 server:/x rw\n\
        24 21 0:41 / /mnt/a rw - fuse f rw\n\
        25 24 0:42 / /mnt/a rw - fuse g rw\n\
        junk\n26 21 0:43 /\n";

    #[test]
    fn a_path_lies_on_the_longest_and_last_mount() {
        let mounts = Mounts::parse(TEXT);
        let id = |path: &str| mounts.of(Path::new(path)).map(|mount| mount.id);
        assert_eq!(id("/mnt/a b/leases"), Some(23));
        assert_eq!((id("/mnt/a/leases"), id("/mnt/a")), (Some(25), Some(25)));
        assert_eq!((id("/mnt/ab"), id("/mnt")), (Some(21), Some(21)));
        assert_eq!(id("relative"), None);
        assert!(Mounts::parse(b"\\\n\\9 - - \x00").of(Path::new("/")).is_none());
    }

    #[test]
    fn paths_on_one_mount_have_it_in_common_but_devices_have_not() {
        let mounts = Mounts::parse(TEXT);
        let common =
            |one: &str, other: &str| mounts.make_suspect(Path::new(one), mounts.of(Path::new(other)));
        assert!(common("/mnt/a/1", "/mnt/a/2") && !common("/mnt/a/1", "/mnt/a b/1"));
        assert!(!common("/dev/vg/1", "/dev/vg/2") && common("x", "y"));
    }

    #[test]
    fn the_root_of_this_process_is_somewhere() {
        assert!(Mounts::read().unwrap().of(Path::new("/")).is_some());
    }
}
