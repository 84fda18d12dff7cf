//! `on_fail`: the program to be run when a lockspace fails (docs/guide/on-fail.md).

use crate::conf::excerpt;
use sanlock_lease::name::Name;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Lockspaces that may have a program of their own.
pub const ON_FAIL_MAX: usize = 1000;
/// Bytes of a program's path.
pub const ON_FAIL_PATH_MAX: usize = 1023;
/// Mode bits of which one lets somebody execute a file, root too.
const ANY_EXECUTE: u32 = 0o111;
/// The value that means "no program".
const NONE: &[u8] = b"none";
/// The key; with a colon and a lockspace's name it is for that one only.
const KEY: &[u8] = b"on_fail";

/// Programs by lockspace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OnFail {
    default: Option<PathBuf>,
    named: Vec<(Name, Option<PathBuf>)>,
}

impl OnFail {
    /// The program for a lockspace.
    #[must_use]
    pub fn program(&self, lockspace: &Name) -> Option<&Path> {
        let named = self.named.iter().rev().find(|(name, _)| name == lockspace);
        named.map_or(self.default.as_deref(), |(_, program)| program.as_deref())
    }

    /// The programs that count, each with the key of its line.
    pub fn programs(&self) -> impl Iterator<Item = (String, &Path)> {
        let default = self.default.as_deref().map(|program| ("on_fail".to_owned(), program));
        let named = self.named.iter().enumerate().filter_map(|(at, (name, program))| {
            let replaced = self.named.iter().skip(at + 1).any(|(later, _)| later == name);
            Some((format!("on_fail:{name}"), program.as_deref().filter(|_| !replaced)?))
        });
        default.into_iter().chain(named)
    }

    /// Whether this is a key of this setting.
    pub(super) fn is_key(key: &[u8]) -> bool {
        key.strip_prefix(KEY).is_some_and(|rest| rest.is_empty() || rest.starts_with(b":"))
    }

    /// Takes a line `on_fail = PATH` or `on_fail:LOCKSPACE = PATH`.
    ///
    /// # Errors
    /// Why it has no effect.
    pub(super) fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let program = if value == NONE {
            None
        } else if value.starts_with(b"/") && value.len() <= ON_FAIL_PATH_MAX && !value.contains(&0) {
            Some(PathBuf::from(OsStr::from_bytes(value)))
        } else {
            return Err(format!(
                "{:?} {:?} is neither an absolute path of at most {ON_FAIL_PATH_MAX} bytes nor \"none\" and is ignored",
                excerpt(key),
                excerpt(value)
            ));
        };
        match key.strip_prefix(KEY).and_then(|rest| rest.strip_prefix(b":")) {
            None => self.default = program,
            Some(name) => {
                let name = Name::new(name).ok().filter(|name| !name.is_empty()).ok_or_else(|| {
                    format!(
                        "{:?}: a lockspace has a name of 1 to 48 bytes; the line is ignored",
                        excerpt(key)
                    )
                })?;
                if self.named.len() >= ON_FAIL_MAX {
                    return Err(format!("more than {ON_FAIL_MAX} lines on_fail:NAME, this one is ignored"));
                }
                self.named.push((name, program));
            }
        }
        Ok(())
    }
}

/// Why a program could not be run now, as far as its file says. `None` also where the file may not be looked at: it is run by whoever
/// started the daemon, who may have more rights than who asks.
#[must_use]
pub fn trouble(program: &Path) -> Option<String> {
    match program.metadata() {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => None,
        Err(error) => Some(error.to_string()),
        Ok(metadata) if !metadata.is_file() => Some("it is no file".to_owned()),
        Ok(metadata) if metadata.mode() & ANY_EXECUTE == 0 => {
            Some(format!("nobody may execute it (mode {:o})", metadata.mode() & 0o7777))
        }
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn programs_that_count_are_listed_with_their_lines() {
        let mut on_fail = OnFail::default();
        assert_eq!(on_fail.programs().count(), 0);
        for (key, value) in [
            ("on_fail", "/bin/all"),
            ("on_fail:a", "/bin/a"),
            ("on_fail:b", "/bin/b"),
            ("on_fail:c", "none"),
            ("on_fail:a", "/bin/c"),
            ("on_fail:b", "none"),
        ] {
            on_fail.set(key.as_bytes(), value.as_bytes()).unwrap();
        }
        let listed: Vec<(String, &Path)> = on_fail.programs().collect();
        let expected = [("on_fail", "/bin/all"), ("on_fail:a", "/bin/c")];
        assert_eq!(listed, expected.map(|(key, path)| (key.to_owned(), Path::new(path))));
    }

    #[test]
    fn a_program_has_a_file_that_somebody_may_execute() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x");
        let told = |path: &Path| trouble(path).unwrap_or_default();
        assert!(told(&file).starts_with("No such file"));
        assert_eq!(told(dir.path()), "it is no file");
        fs::write(&file, "").unwrap();
        let with = |mode| {
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            trouble(&file)
        };
        assert_eq!(with(0o644).unwrap(), "nobody may execute it (mode 644)");
        assert_eq!((with(0o744), with(0o601)), (None, None));
    }

    #[test]
    fn a_lockspace_has_its_own_program_or_the_general_one() {
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        let mut on_fail = OnFail::default();
        assert_eq!(on_fail.program(&name("a")), None);
        on_fail.set(b"on_fail", b"/bin/all").unwrap();
        on_fail.set(b"on_fail:a", b"/bin/a").unwrap();
        on_fail.set(b"on_fail:b", b"none").unwrap();
        assert_eq!(on_fail.program(&name("a")), Some(Path::new("/bin/a")));
        assert_eq!(on_fail.program(&name("b")), None);
        assert_eq!(on_fail.program(&name("c")), Some(Path::new("/bin/all")));
        on_fail.set(b"on_fail:a", b"/bin/b").unwrap();
        assert_eq!(on_fail.program(&name("a")), Some(Path::new("/bin/b")), "the last line wins");
        for (key, value) in [
            (&b"on_fail"[..], &b"bin/relative"[..]),
            (b"on_fail", b"/bin/a\0b"),
            (b"on_fail:", b"/bin/a"),
            (&[&b"on_fail:"[..], &[b'x'; 49]].concat(), b"/bin/a"),
            (b"on_fail", &[b'/'; ON_FAIL_PATH_MAX + 1]),
        ] {
            assert!(on_fail.set(key, value).unwrap_err().contains("ignored"));
        }
        let long = [&b"on_fail:"[..], &[0x17; 1000]].concat();
        for value in [&b"/bin/a"[..], &[0x17; 1000]] {
            let why = on_fail.set(&long, value).unwrap_err();
            assert!(why.len() < 1000, "what is wrong is quoted in part: {why}");
        }
        assert!(OnFail::is_key(b"on_fail:x") && OnFail::is_key(b"on_fail") && !OnFail::is_key(b"on_failure"));
    }
}
