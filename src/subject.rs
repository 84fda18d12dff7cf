//! What an action was asked to work on, in words for people: the object that an error message names.

use crate::cli::command::{IndexArgs, InitTarget, ReadTarget};
use crate::json::Text;
use sanlock_lease::name::Name;
use sanlock_lease::text::{DiskSpec, LockspaceSpec, ResourceSpec};

/// `lockspace NAME`; nothing when none was given.
pub(crate) fn lockspace_name(name: Name) -> String {
    if name.is_empty() { String::new() } else { format!("lockspace {name}") }
}

/// `lockspace NAME:HOST_ID:PATH:OFFSET`, or what of it was given.
pub(crate) fn lockspace(spec: &LockspaceSpec) -> String {
    if spec.path.is_empty() && spec.host_id == 0 {
        return lockspace_name(spec.name);
    }
    format!(
        "lockspace {}:{}:{}:{}",
        spec.name,
        spec.host_id,
        Text::from(spec.path.as_slice()).plain(),
        spec.offset
    )
}

/// `resource LOCKSPACE:NAME:PATH:OFFSET…`.
pub(crate) fn resource(spec: &ResourceSpec) -> String {
    let mut text = format!("resource {}:{}", spec.lockspace, spec.name);
    for disk in &spec.disks {
        text.push_str(&format!(":{}", place(disk)));
    }
    text
}

/// All of them; nothing for none.
pub(crate) fn resources(specs: &[ResourceSpec]) -> String {
    specs.iter().map(resource).collect::<Vec<_>>().join(", ")
}

/// `PATH:OFFSET`.
pub(crate) fn place(disk: &DiskSpec) -> String {
    format!("{}:{}", Text::from(disk.path.as_slice()).plain(), disk.offset)
}

/// The same as an argument of a command that is suggested: to be read by it, and by a shell before.
pub(crate) fn place_argument(disk: &DiskSpec) -> String {
    quoted(&format!("{}:{}", escaped(&disk.path), disk.offset))
}

/// A path as such an argument.
pub(crate) fn path_argument(path: &[u8]) -> String {
    quoted(&escaped(path))
}

/// A colon of a path would begin an offset.
fn escaped(path: &[u8]) -> String {
    Text::from(path).plain().replace(':', "\\:")
}

/// In quotes where a shell would take something for its own.
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+@%,=:".contains(c);
    if argument.chars().all(plain) {
        return argument.to_owned();
    }
    let mut out = String::from('"');
    let mut chars = argument.chars().peekable();
    while let Some(c) = chars.next() {
        // A backslash before a colon stays one.
        if matches!(c, '"' | '$' | '`') || (c == '\\' && chars.peek() != Some(&':')) {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}

/// `resource index LOCKSPACE:PATH:OFFSET`, and the entry if one was named.
pub(crate) fn index(args: &IndexArgs) -> String {
    let mut text = format!("resource index {}:{}", args.index.lockspace, place(&args.index.disk));
    if !args.entry.name.is_empty() {
        text.push_str(&format!(", entry {}", args.entry.name));
    } else if args.entry.offset != 0 {
        text.push_str(&format!(", entry at {}", args.entry.offset));
    }
    text
}

impl ReadTarget {
    /// As an object; nothing when nothing was given.
    pub(crate) fn subject(&self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Lockspace(spec) => lockspace(spec),
            Self::Resource(spec) => resource(spec),
        }
    }
}

impl InitTarget {
    /// As an object; nothing when nothing was given.
    pub(crate) fn subject(&self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Lockspace { spec, .. } => lockspace(spec),
            Self::Resource { spec, .. } => resource(spec),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanlock_lease::text::strict;

    #[test]
    fn objects_are_what_was_given() {
        let mut spec = LockspaceSpec::default();
        spec.merge(strict::lockspace(b"LS").unwrap());
        assert_eq!(lockspace(&spec), "lockspace LS");
        spec.merge(strict::lockspace(b"LS:3:/dev/vg/leases:1M").unwrap());
        assert_eq!(lockspace(&spec), "lockspace LS:3:/dev/vg/leases:1048576");
        assert_eq!(ReadTarget::Lockspace(spec).subject(), "lockspace LS:3:/dev/vg/leases:1048576");
        let two = [b"LS:A:/a:0:/b:1M".as_slice(), b"LS:B"].map(|text| strict::resource(text).unwrap());
        assert_eq!(resources(&two), "resource LS:A:/a:0:/b:1048576, resource LS:B");
        assert_eq!(resources(&[]), "");
        let mut args = IndexArgs { index: strict::rindex(b"LS:/a:8M").unwrap(), ..IndexArgs::default() };
        assert_eq!(index(&args), "resource index LS:/a:8388608");
        args.entry = strict::rentry(b"R").unwrap();
        assert_eq!(index(&args), "resource index LS:/a:8388608, entry R");
        args.entry = strict::rentry(b":16M").unwrap();
        assert_eq!(index(&args), "resource index LS:/a:8388608, entry at 16777216");
        assert_eq!(
            (ReadTarget::Nothing.subject(), InitTarget::Nothing.subject()),
            (String::new(), String::new())
        );
    }

    #[test]
    fn a_suggested_argument_reaches_the_command_as_it_is() {
        let argument = |path: &str| place_argument(&DiskSpec { path: path.as_bytes().to_vec(), offset: 5 });
        assert_eq!(argument("/dev/vg/leases"), "/dev/vg/leases:5");
        assert_eq!(path_argument(b"/a b"), "\"/a b\"");
        for path in ["/dev/disk/by-path/ip-10.0.0.1:3260-iscsi", "/a b", "/it's", "/a\"b`c$d", "/x"] {
            let printed = std::process::Command::new("sh")
                .args(["-c", &format!("printf %s {}", argument(path))])
                .output()
                .unwrap();
            let parsed = sanlock_lease::text::strict::dump_range(&printed.stdout).unwrap();
            assert_eq!((parsed.disk.path.as_slice(), parsed.disk.offset), (path.as_bytes(), 5), "{path}");
        }
    }
}
