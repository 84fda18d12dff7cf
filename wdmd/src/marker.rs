//! The marker that a wdmd runs, or has ended without stopping its device (specification 3.4).
//!
//! After a crash the device is running and will reset this host. A restarted wdmd would open it, which pings it, and so
//! rescue a host whose clients nobody supervises any more. The marker therefore survives a crash, but not a reboot, and
//! whoever finds it does not start. Its name is the original's: the two never run at the same time.
//!
//! Every user may make files where it lies, and only those of root, or of whom this process runs as, can be a wdmd's. Anything
//! else of that name is put aside, or any user could keep this host without a watchdog.

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::libc;
use nix::unistd::geteuid;
use std::fs::{self, Metadata, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How often it is tried to make one where others make and remove files of that name meanwhile.
const TRIES: usize = 10;

/// The marker of this process. It stays until [`Marker::remove`]: a process that ends in any other way leaves it behind.
#[derive(Debug)]
pub(crate) struct Marker(PathBuf);

impl Marker {
    /// As `shm_open("/wdmd")` makes it.
    pub(crate) const PATH: &str = "/dev/shm/wdmd";

    /// Makes the marker. `tell` gets a line about what another user had in its place.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`: another wdmd runs or has crashed. Others: `/dev/shm` is not usable, or what another user has there cannot be
    /// put aside.
    pub(crate) fn create(tell: impl FnOnce(String)) -> io::Result<Self> {
        Self::create_at(Path::new(Self::PATH), tell)
    }

    fn create_at(path: &Path, tell: impl FnOnce(String)) -> io::Result<Self> {
        for _ in 0..TRIES {
            let exists = match make(path) {
                Ok(()) => return Ok(Self(path.to_owned())),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => error,
                Err(error) => return Err(error),
            };
            match fs::symlink_metadata(path) {
                Ok(found) if may_be_a_wdmds(&found) => return Err(exists),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            }
            if let Some(replaced) = replace(path)? {
                tell(replaced);
                return Ok(Self(path.to_owned()));
            }
        }
        Err(io::Error::from_raw_os_error(libc::EBUSY))
    }

    /// Removes it: no device runs.
    pub(crate) fn remove(self) {
        // One that cannot be removed keeps the next wdmd from starting, which says how to go on.
        let _ = fs::remove_file(self.0);
    }
}

/// Makes a file that was not there.
fn make(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o644).custom_flags(libc::O_NOFOLLOW);
    options.open(path).map(drop)
}

/// Whether the owner is one that wdmd runs as. Root is, also for a user who only asks for a probe.
fn may_be_a_wdmds(found: &Metadata) -> bool {
    found.uid() == 0 || found.uid() == geteuid().as_raw()
}

/// Has a new marker and what another user has in its place change places, and removes the latter: what was done. `None`: it was
/// gone by then, or had made room for one that may be a wdmd's, which is there again.
///
/// The name is never free in between: whoever makes files there in a loop does not get his turn, and a directory that is not empty
/// is moved like any other file.
fn replace(path: &Path) -> io::Result<Option<String>> {
    // A name that nobody can have made something under before.
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{:016x}", RandomState::new().build_hasher().finish()));
    let aside = Path::new(&aside);
    make(aside)?;
    if let Err(error) = exchange(aside, path) {
        let _ = fs::remove_file(aside);
        return if error.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(error) };
    }
    match fs::symlink_metadata(aside) {
        Ok(found) if !may_be_a_wdmds(&found) => {
            let removed = remove_any(aside, &found);
            let left = removed
                .err()
                .map(|error| format!("; it lies in {} now, and cannot be removed: {error}", aside.display()));
            Ok(Some(format!(
                "{} belonged to user {}, so it was no wdmd's, and was replaced{}",
                path.display(),
                found.uid(),
                left.unwrap_or_default()
            )))
        }
        // Its owner has it elsewhere.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(Some(format!("{} was no wdmd's, and was replaced", path.display())))
        }
        other => {
            // If whoever made it has ended meanwhile, and removed what was in its place, nobody needs it any more.
            let _ = exchange(aside, path);
            let _ = fs::remove_file(aside);
            other.map(|_| None)
        }
    }
}

fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    Ok(renameat2(AT_FDCWD, one, AT_FDCWD, other, RenameFlags::RENAME_EXCHANGE)?)
}

/// Removes a file, or a directory that is empty: how large another is, its owner decides.
fn remove_any(path: &Path, found: &Metadata) -> io::Result<()> {
    if found.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    /// Who never runs wdmd.
    const SOMEBODY: u32 = 65_534;

    /// Gives it to somebody else. `false`: that takes root, which CI has.
    #[expect(clippy::print_stderr, reason = "a word of the test, which its harness collects")]
    fn given_away(path: &Path) -> bool {
        match lchown(path, Some(SOMEBODY), Some(SOMEBODY)) {
            Ok(()) => true,
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "required in CI: root: {error}");
                eprintln!("SKIPPED: needs root");
                false
            }
        }
    }

    fn inode(path: &Path) -> u64 {
        fs::symlink_metadata(path).unwrap().ino()
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }

    /// What a marker is asked for in place of, and what is said about it.
    fn created(path: &Path) -> (io::Result<Marker>, String) {
        let mut said = String::new();
        let made = Marker::create_at(path, |text| said = text);
        (made, said)
    }

    #[test]
    fn what_another_user_has_there_is_replaced_and_told() {
        let make: [fn(&Path); 4] = [
            |path| fs::write(path, "mine").unwrap(),
            |path| symlink("/etc/passwd", path).unwrap(),
            |path| fs::create_dir(path).unwrap(),
            |path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
        ];
        for make in make {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("wdmd");
            make(&path);
            if !given_away(&path) {
                return;
            }
            let (made, said) = created(&path);
            let made = made.unwrap();
            assert!(
                said.ends_with("wdmd belonged to user 65534, so it was no wdmd's, and was replaced"),
                "{said}"
            );
            let marker = fs::symlink_metadata(&path).unwrap();
            let ours = (geteuid().as_raw(), 0, 0o100_644);
            assert_eq!((marker.uid(), marker.len(), marker.permissions().mode()), ours);
            assert_eq!(names(dir.path()), ["wdmd"]);
            made.remove();
            assert!(names(dir.path()).is_empty());
        }
    }

    #[test]
    fn a_full_directory_of_another_user_is_put_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("wdmd");
        fs::create_dir_all(path.join("full")).unwrap();
        if !given_away(&path) {
            return;
        }
        let (made, said) = created(&path);
        made.unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        let aside = names(dir.path()).into_iter().find(|name| name != "wdmd").unwrap();
        assert!(said.contains(&format!("; it lies in {} now", dir.path().join(aside).display())), "{said}");
    }

    #[test]
    fn one_that_may_be_a_wdmds_is_left_alone() {
        let make: [fn(&Path); 2] =
            [|path| fs::write(path, "").unwrap(), |path| symlink("/no/such/file", path).unwrap()];
        for make in make {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("wdmd");
            make(&path);
            let before = inode(&path);
            let (made, said) = created(&path);
            assert_eq!(made.unwrap_err().raw_os_error(), Some(libc::EEXIST));
            assert_eq!((inode(&path), said.as_str()), (before, ""));
        }
    }

    /// The other user has taken his away, and a wdmd has made its own, between the look at it and the exchange.
    #[test]
    fn one_that_has_come_in_between_is_there_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("wdmd");
        assert!(replace(&path).unwrap().is_none());
        assert!(names(dir.path()).is_empty());
        make(&path).unwrap();
        let before = inode(&path);
        assert!(replace(&path).unwrap().is_none());
        assert_eq!((inode(&path), names(dir.path())), (before, vec!["wdmd".to_owned()]));
    }

    #[test]
    fn a_directory_that_cannot_be_used_is_an_error_of_its_own() {
        let (made, said) = created(Path::new("/no/such/directory/wdmd"));
        assert_eq!((made.unwrap_err().kind(), said.as_str()), (io::ErrorKind::NotFound, ""));
    }
}
