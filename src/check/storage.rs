//! The file, device or directory: can it be opened as the daemon will open it, and by the daemon's user?

use super::finding::Findings;
use super::root::Root;
use crate::direct::storage::{Storage, StorageError};
use sanlock_blockio::{Access, OpenError};
use sanlock_daemon::config::Config;
use sanlock_sys::credentials::{UserId, find_group, find_user, user_name};
use std::fs::{Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The smallest area.
const AREA_MIN: u64 = 1 << 20;
/// Who the daemon runs as unless configured.
const DEFAULT_USER: &str = "sanlock";

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Directory,
    File,
    Device,
}

/// What this path is, and whether it may be what leases lie on.
pub(super) fn target(path: &Path, found: &mut Findings) -> Option<(Target, Metadata)> {
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(error) => {
            found.problem(
                "not-there",
                format!("{}: {error}", path.display()),
                "the daemon cannot open it (-19)",
                "activate the volume, mount the file system, or mend the path",
            );
            return None;
        }
    };
    let kind = metadata.file_type();
    if kind.is_dir() {
        return Some((Target::Directory, metadata));
    }
    if kind.is_block_device() {
        return Some((Target::Device, metadata));
    }
    if kind.is_file() {
        return Some((Target::File, metadata));
    }
    found.problem(
        "not-a-disk",
        format!("{} is neither a file, a block device nor a directory", path.display()),
        "leases lie on files or block devices",
        "give the path of one",
    );
    None
}

/// Opens it read-only as the daemon does, for what begins at this offset.
pub(super) fn open(path: &Path, offset: u64, found: &mut Findings) -> Option<Storage> {
    match Storage::open(path.as_os_str().as_bytes(), Access::ReadOnly) {
        Ok(storage) => {
            sizes(path, offset, &storage, found);
            Some(storage)
        }
        Err(error) => {
            cannot_open(path, &error, found);
            None
        }
    }
}

fn cannot_open(path: &Path, error: &StorageError, found: &mut Findings) {
    match error {
        StorageError::Open(OpenError::NoDirectIo { .. }) => found.problem(
            "no-direct-io",
            format!("the file system of {} cannot do direct I/O (O_DIRECT)", path.display()),
            "renewals would only reach this host's memory, which no other host reads",
            "use a block device, an LV, NFS, or another file system",
        ),
        _ => found.problem(
            "cannot-open",
            format!("{error}"),
            "the daemon cannot open it either, unless it has more rights",
            "look at the reason in the message; kernel messages (dmesg) say more about devices",
        ),
    }
}

fn sizes(path: &Path, offset: u64, storage: &Storage, found: &mut Findings) {
    let disk = storage.disk();
    if disk.size() < offset.saturating_add(AREA_MIN) {
        let seen = match offset {
            0 => format!("{} has {} bytes", path.display(), disk.size()),
            offset => {
                format!("{} has {} bytes, and the place is at offset {offset}", path.display(), disk.size())
            }
        };
        found.problem(
            "too-small",
            seen,
            "a lockspace needs 1 MiB with 512-byte sectors, 1 to 8 MiB with 4096-byte sectors, and each resource as much again",
            "make it larger; a file grows when it is formatted",
        );
    }
}

/// A file of our own in a directory, removed when it goes.
pub(super) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes one of 1 MiB.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn create(dir: &Path) -> io::Result<Self> {
        let path = dir.join(format!(".sanlock-check-{}", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let scratch = Self { path };
        file.set_len(AREA_MIN)?;
        Ok(scratch)
    }

    /// Opens it for direct I/O.
    pub(super) fn open(&self, found: &mut Findings) -> Option<Storage> {
        Storage::open(self.path.as_os_str().as_bytes(), Access::ReadWrite)
            .map_err(|error| cannot_open(&self.path, &error, found))
            .ok()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.path);
    }
}

/// Who the daemon will be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct User {
    name: String,
    uid: u32,
    gids: Vec<u32>,
}

impl User {
    /// As configured, else `sanlock` where user and group of that name exist, else root. `None`: there are no such user and group. Of this
    /// system itself those count, too, that another database than the files has.
    fn of(root: &Root, config: &Config) -> Option<Self> {
        let (passwd, group) = (root.text("/etc/passwd")?, root.text("/etc/group")?);
        let field = |line: &str, n: usize| line.split(':').nth(n).map(str::to_owned);
        let by_name = |text: &str, name: &str| {
            text.lines().find(|line| field(line, 0).as_deref() == Some(name)).map(str::to_owned)
        };
        let id_of = |text: &str, name: &str| {
            let named = by_name(text, name).and_then(|line| field(&line, 2)?.parse().ok());
            named.or_else(|| name.parse::<u32>().ok())
        };
        let elsewhere = |found: io::Result<Option<u32>>| found.ok().flatten().filter(|_| root.is_own());
        let default = by_name(&passwd, DEFAULT_USER).is_some() && by_name(&group, DEFAULT_USER).is_some();
        let default = if default { DEFAULT_USER } else { "root" };
        let name = config.uname.clone().unwrap_or_else(|| default.to_owned());
        let uid = id_of(&passwd, &name)
            .or_else(|| elsewhere(find_user(&name).map(|found| found.map(|user| user.0))))?;
        let group_name = config.gname.as_deref().unwrap_or(default);
        let gid = id_of(&group, group_name)
            .or_else(|| elsewhere(find_group(group_name).map(|found| found.map(|group| group.0))))?;
        // Groups have names as members.
        let member = if name.bytes().all(|byte| byte.is_ascii_digit()) {
            let line = passwd.lines().find(|line| field(line, 2).is_some_and(|id| id.parse() == Ok(uid)));
            let elsewhere = || root.is_own().then(|| user_name(UserId(uid)).ok().flatten()).flatten();
            line.and_then(|line| field(line, 0)).or_else(elsewhere)
        } else {
            Some(name.clone())
        };
        let is_member = |line: &&str| {
            let members = field(line, 3).unwrap_or_default();
            member.as_ref().is_some_and(|member| members.split(',').any(|m| m == member))
        };
        let more = group.lines().filter(is_member).filter_map(|line| field(line, 2)?.parse().ok());
        Some(Self { gids: std::iter::once(gid).chain(more).collect(), name, uid })
    }

    /// Whether the mode bits give it all of these rights (4 read, 2 write, 1 search).
    fn may(&self, metadata: &Metadata, rights: u32) -> bool {
        let mode = metadata.mode();
        let bits = if self.uid == metadata.uid() {
            mode >> 6
        } else if self.gids.contains(&metadata.gid()) {
            mode >> 3
        } else {
            mode
        };
        self.uid == 0 || bits & rights == rights
    }
}

/// Whether there is such a user and such a group.
pub(super) fn user(root: &Root, config: &Config, found: &mut Findings) {
    // Without these files, as in a part of a saved system, nothing is known of users.
    let known = root.is_there("/etc/passwd") && root.is_there("/etc/group");
    if known && User::of(root, config).is_none() {
        let name = config.uname.as_deref().unwrap_or(DEFAULT_USER);
        found.problem(
            "no-such-user",
            format!(
                "the user {name} or the group {} does not exist",
                config.gname.as_deref().unwrap_or(name)
            ),
            "the daemon does not start",
            "create them, or correct uname and gname in sanlock.conf",
        );
    }
}

/// Whether the daemon's user may open it, by owner, group and mode. `path`: absolute, without links.
pub(super) fn permissions(
    root: &Root,
    config: &Config,
    path: &Path,
    (target, metadata): (Target, &Metadata),
    found: &mut Findings,
) {
    // That there is none is told with the machine.
    let Some(user) = User::of(root, config) else { return };
    let owner = |m: &Metadata| format!("uid {}, gid {}, mode {:o}", m.uid(), m.gid(), m.mode() & 0o7777);
    for dir in path.ancestors().skip(usize::from(target != Target::Directory)) {
        let Ok(metadata) = dir.metadata() else { continue };
        if !user.may(&metadata, 1) {
            found.problem(
                "no-search-permission",
                format!(
                    "the daemon's user {} may not enter {} ({})",
                    user.name,
                    dir.display(),
                    owner(&metadata)
                ),
                "it cannot open what is in there",
                "give the directory search permission for that user or its group",
            );
            return;
        }
    }
    if target != Target::Directory && !user.may(metadata, 6) {
        let advice = if target == Target::Device {
            "give the device to that user or its group, by a udev rule: a chmod is lost at the next activation"
        } else {
            "chown sanlock:sanlock, and mode 660"
        };
        found.problem(
            "no-permission",
            format!(
                "the daemon's user {} may not read and write {} ({})",
                user.name,
                path.display(),
                owner(metadata)
            ),
            "it cannot open it (-13, or -19 when it joins)",
            advice,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn rights_follow_owner_group_and_mode() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let metadata = |mode| {
            std::fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
            file.path().metadata().unwrap()
        };
        let of = metadata(0o600);
        let user = |uid, gids| User { name: "x".to_owned(), uid, gids };
        let (owner, other) = (user(of.uid(), vec![1]), user(of.uid() + 1, vec![of.gid() + 1]));
        let member = user(of.uid() + 1, vec![of.gid() + 1, of.gid()]);
        assert!(owner.may(&of, 6) && !other.may(&of, 6) && !member.may(&of, 6));
        let of = metadata(0o460);
        assert!(member.may(&of, 6) && !member.may(&of, 1) && !other.may(&of, 4));
        // Whoever owns it has the owner's rights, be they fewer.
        assert_eq!(owner.may(&of, 2), of.uid() == 0);
        assert!(user(0, vec![]).may(&metadata(0o000), 7));
        assert!(other.may(&metadata(0o006), 6));
    }

    #[test]
    fn the_user_is_the_one_configured_else_sanlock_else_root() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        let write = |file: &str, text: &str| std::fs::write(dir.path().join("etc").join(file), text).unwrap();
        let (root, mut config) = (Root::new(dir.path()), Config::default());
        write("passwd", "root:x:0:0::/:\n");
        write("group", "root:x:0:\n");
        assert_eq!(User::of(&root, &config).unwrap().uid, 0);
        write("passwd", "root:x:0:0::/:\nsanlock:x:179:180::/:\n");
        assert_eq!(User::of(&root, &config).unwrap().uid, 0, "without a group of that name");
        write("group", "root:x:0:\ndisk:x:6:adm,sanlock\nsanlock:x:180:\n");
        let user = User::of(&root, &config).unwrap();
        assert_eq!((user.uid, user.gids), (179, vec![180, 6]));
        config.apply_file(b"uname = 7\ngname = disk\n");
        let user = User::of(&root, &config).unwrap();
        assert_eq!((user.uid, user.gids), (7, vec![6]));
        // A number is the same user, who is where the groups have his name.
        config.apply_file(b"uname = 179\ngname = sanlock\n");
        let user = User::of(&root, &config).unwrap();
        assert_eq!((user.uid, user.gids), (179, vec![180, 6]));
        config.apply_file(b"uname = nobody-here\n");
        assert_eq!(User::of(&root, &config), None);
    }
}
