//! Paths that are not absolute. The daemon opens what it is told, in its own working directory, which is / unless it runs in the
//! foreground: whoever meant a file in the directory of the shell is told so when an action fails.

use super::command::{NOT_EXECUTABLE, NOT_FOUND};
use crate::cli::command::{ClientAction, InitTarget, ReadTarget};
use crate::output::{SUCCESS, note};
use crate::subject;
use sanlock_lease::text::ResourceSpec;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The paths of an action that the daemon may look for elsewhere.
pub(super) struct Relative {
    action: &'static str,
    paths: Vec<PathBuf>,
}

impl Relative {
    pub(super) fn of(action: &ClientAction) -> Self {
        let resources = |specs: &[ResourceSpec]| -> Vec<Vec<u8>> {
            specs.iter().flat_map(|spec| &spec.disks).map(|disk| disk.path.clone()).collect()
        };
        let (action, paths) = match action {
            ClientAction::AddLockspace { spec, io_timeout } => {
                (super::lockspace::join_word(*io_timeout), vec![spec.path.clone()])
            }
            ClientAction::InqLockspace { spec } => ("inq_lockspace", vec![spec.path.clone()]),
            ClientAction::RemLockspace { spec } => ("rem_lockspace", vec![spec.path.clone()]),
            ClientAction::Init { target, .. } => (
                "init",
                match target {
                    InitTarget::Nothing => Vec::new(),
                    InitTarget::Lockspace { spec, .. } => vec![spec.path.clone()],
                    InitTarget::Resource { spec, .. } => resources(std::slice::from_ref(spec)),
                },
            ),
            ClientAction::Read { target, .. } => (
                "read",
                match target {
                    ReadTarget::Nothing => Vec::new(),
                    ReadTarget::Lockspace(spec) => vec![spec.path.clone()],
                    ReadTarget::Resource(spec) => resources(std::slice::from_ref(spec)),
                },
            ),
            ClientAction::Acquire { acquire, .. } => ("acquire", resources(&acquire.resources)),
            ClientAction::Command { acquire, .. } => ("command", resources(&acquire.resources)),
            ClientAction::Request { resource, .. } => ("request", resources(resource.as_slice())),
            ClientAction::Index { args, .. } => ("index", vec![args.index.disk.path.clone()]),
            // Those that take no path, and `align`, whose success has the exit status of a failure: it tells by itself.
            _ => ("", Vec::new()),
        };
        let paths = paths.into_iter().map(|path| PathBuf::from(OsStr::from_bytes(&path)));
        Self {
            action,
            paths: paths.filter(|path| !path.as_os_str().is_empty() && path.is_relative()).collect(),
        }
    }

    /// After an action that ended with this status.
    pub(super) fn tell(&self, status: u8) {
        // A program that could not be run had its leases before.
        if status != SUCCESS && !matches!(status, NOT_EXECUTABLE | NOT_FOUND) {
            for path in &self.paths {
                note(self.action, &text(path));
            }
        }
    }
}

/// After `action` has failed on this path.
pub(super) fn tell(action: &str, path: &[u8]) {
    let path = Path::new(OsStr::from_bytes(path));
    if path.as_os_str().is_empty() {
        note(action, "next: no path was given: -s NAME:0:PATH:0");
    } else if path.is_relative() {
        note(action, &text(path));
    }
}

fn text(path: &Path) -> String {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    format!(
        "next: the path {:?} is not absolute, and the daemon looks for it in its own working directory: give {}",
        path.display().to_string(),
        subject::path_argument(whole.as_os_str().as_bytes())
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanlock_lease::text::{LockspaceSpec, strict};

    fn join(text: &[u8]) -> Relative {
        let mut spec = LockspaceSpec::default();
        spec.merge(strict::lockspace(text).unwrap());
        Relative::of(&ClientAction::AddLockspace { spec, io_timeout: None })
    }

    #[test]
    fn only_paths_that_are_not_absolute_are_told_of() {
        assert_eq!(join(b"LS:1:leases:0").paths, [Path::new("leases")]);
        assert_eq!(join(b"LS:1:./leases:0").paths, [Path::new("./leases")]);
        assert!(join(b"LS:1:/dev/x:0").paths.is_empty() && join(b"LS").paths.is_empty());
        let spec = strict::resource(b"LS:R:/a:0:b:0").unwrap();
        let request = Relative::of(&ClientAction::Request { resource: Some(spec), force_mode: 0 });
        assert_eq!((request.action, request.paths.as_slice()), ("request", &[PathBuf::from("b")][..]));
    }

    #[test]
    fn the_whole_path_is_given() {
        let here = std::env::current_dir().unwrap();
        let whole = |name: &str| here.join(name).display().to_string();
        assert!(text(Path::new("leases")).ends_with(&format!("give {}", whole("leases"))));
        assert!(text(Path::new("a:b")).ends_with(&format!("give \"{}\"", whole("a\\:b"))));
    }
}
