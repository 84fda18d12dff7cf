//! What `/sys/class/watchdog` says about a device before it is opened, and which process has one open.

use sanlock_wdmd::protocol::Escaped;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

const CLASS: &str = "/sys/class/watchdog";
/// `/dev/watchdog` is this device of the misc class. The first driver of the watchdog core has it, as another name of `watchdog0`, unless one
/// outside the core has it for its own device.
const MISC_DEVICE: (u64, u64) = (10, 130);
const MISC_STANDS_FOR: &str = "watchdog0";
const MISC_CLASS: &str = "/sys/class/misc/watchdog";
const IPMI_NO_WAY_OUT: &str = "/sys/module/ipmi_watchdog/parameters/nowayout";
const IPMI_ACTION: &str = "/sys/module/ipmi_watchdog/parameters/action";
/// Longest identity, as the original reads it.
const IDENTITY_BYTES: usize = 63;

/// A device as sysfs describes it. Everything is unknown for drivers outside the watchdog core (but whether that of IPMI can be stopped), and
/// without sysfs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Described {
    /// The driver's name for it.
    pub(crate) identity: Option<String>,
    /// Once opened it can never be stopped.
    pub(crate) no_way_out: Option<bool>,
}

impl Described {
    /// The device behind this path.
    pub(crate) fn of(path: &Path) -> Self {
        let described = name_of(path).map_or_else(Self::default, |name| Self::named(&name));
        if described == Self::default() && number_of(path) == Some(MISC_DEVICE) {
            return Self { no_way_out: ipmi_no_way_out(), ..described };
        }
        described
    }

    fn named(name: &str) -> Self {
        let read = |file: &str| fs::read_to_string(Path::new(CLASS).join(name).join(file)).ok();
        let identity = read("identity").map(|text| {
            let line = text.lines().next().unwrap_or("").as_bytes();
            String::from_utf8_lossy(line.get(..IDENTITY_BYTES).unwrap_or(line)).into_owned()
        });
        let no_way_out = read("nowayout").map(|text| text.trim() != "0");
        Self { identity, no_way_out }
    }
}

/// What the one driver outside the watchdog core that shows it says of this; `None` where it is not loaded. If it is, the misc device is as a
/// rule its own: only one driver can have that.
fn ipmi_no_way_out() -> Option<bool> {
    fs::read_to_string(IPMI_NO_WAY_OUT).ok().map(|text| text.trim() != "N")
}

/// Whether that driver was told to do nothing when its time is over.
pub(crate) fn ipmi_does_nothing() -> bool {
    fs::read_to_string(IPMI_ACTION).is_ok_and(|text| text.trim() == "none")
}

/// Whether the device behind this path runs because somebody has opened it; `None` where sysfs does not tell. One that runs from the start of the
/// hardware, and that the kernel pings until it is opened, does not count.
pub(crate) fn runs(path: &Path) -> Option<bool> {
    let state = fs::read_to_string(Path::new(CLASS).join(name_of(path)?).join("state")).ok()?;
    Some(state.trim() == "active")
}

/// Major and minor number of the device behind this path, if there is one.
fn number_of(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok().filter(|metadata| metadata.file_type().is_char_device())?;
    let device = metadata.rdev();
    Some((nix::sys::stat::major(device), nix::sys::stat::minor(device)))
}

/// Whether the misc device is `watchdog0`: both stand for the same hardware, or for none, as softdog's. Where sysfs does not show the misc
/// device it is taken for that.
///
/// Two drivers without hardware in sysfs, as softdog and that of IPMI, are not mistaken for each other: the core gives number 0 only together with
/// the misc device. If IPMI's has that, softdog is `watchdog1`; if softdog was first, IPMI's has no device at all.
fn misc_is_of_the_core() -> bool {
    let hardware = |device: &Path| fs::canonicalize(device.join("device")).ok();
    let misc = Path::new(MISC_CLASS);
    !misc.exists() || hardware(misc) == hardware(&Path::new(CLASS).join(MISC_STANDS_FOR))
}

/// The name in sysfs of the device behind this path: by device number, else by the path's last part. `None`: it is outside the watchdog core.
fn name_of(path: &Path) -> Option<String> {
    if let Some(number) = number_of(path) {
        if number == MISC_DEVICE {
            return misc_is_of_the_core().then(|| MISC_STANDS_FOR.to_owned());
        }
        let wanted = format!("{}:{}", number.0, number.1);
        for name in names() {
            let dev = fs::read_to_string(Path::new(CLASS).join(&name).join("dev"));
            if dev.is_ok_and(|dev| dev.trim() == wanted) {
                return Some(name);
            }
        }
    }
    let name = path.file_name()?.to_str()?;
    Some(if name == "watchdog" { MISC_STANDS_FOR.to_owned() } else { name.to_owned() })
}

/// All devices of the watchdog core, in the order of their names.
fn names() -> Vec<String> {
    let entries = fs::read_dir(CLASS).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The path meant by `-w`: a path, a name in sysfs, or a driver's name.
///
/// # Errors
///
/// Nothing here has that name; the text lists what there is.
pub(crate) fn resolve(wanted: &OsStr) -> Result<PathBuf, String> {
    if wanted.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(wanted));
    }
    let names = names();
    let identity = |name: &String| Described::named(name).identity.unwrap_or_default();
    let found = names
        .iter()
        .find(|name| name.as_str() == wanted)
        .or_else(|| names.iter().find(|name| identity(name).as_str() == wanted));
    if let Some(name) = found {
        return Ok(Path::new("/dev").join(name));
    }
    let known: Vec<String> = names.iter().map(|name| format!("{name} \"{}\"", identity(name))).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(format!("no watchdog device named \"{}\" in {CLASS}; there are: {known}", Escaped(wanted.as_bytes())))
}

/// Processes that have the device open, e.g. `4711 (systemd)`; empty if none can be seen.
///
/// Open files are told by their paths alone: asking one what it is waits for its file system, which may be dead.
pub(crate) fn holders(path: &Path) -> Vec<String> {
    let aliases = aliases(path);
    let is_it = |fd: &Path| fs::read_link(fd).is_ok_and(|link| aliases.contains(&link));
    let mut holders = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name();
        if pid.to_str().is_none_or(|pid| !pid.bytes().all(|byte| byte.is_ascii_digit())) {
            continue;
        }
        let fds = fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        if fds.map(|fd| fd.path()).any(|fd| is_it(&fd)) {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            holders.push(format!("{} ({})", pid.to_string_lossy(), name.trim_end()));
        }
    }
    holders
}

/// The paths under which the device at this path may have been opened.
fn aliases(path: &Path) -> Vec<PathBuf> {
    let mut aliases = vec![path.to_owned()];
    aliases.extend(fs::canonicalize(path));
    if let Some(name) = name_of(path).filter(|name| name.starts_with("watchdog")) {
        aliases.push(Path::new("/dev").join(&name));
        if name == MISC_STANDS_FOR {
            aliases.push(PathBuf::from("/dev/watchdog"));
        }
    }
    aliases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hung::with_hung_directory;
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn names_and_paths() {
        assert_eq!(resolve(OsStr::new("/dev/watchdog7")), Ok(PathBuf::from("/dev/watchdog7")));
        assert_eq!(resolve(OsStr::new("./x")), Ok(PathBuf::from("./x")));
        let error = resolve(OsStr::new("no such driver")).unwrap_err();
        assert!(error.contains("\"no such driver\""), "{error}");
        // Not a device: by its last part.
        assert_eq!(name_of(Path::new("/nowhere/watchdog")), Some("watchdog0".into()));
        assert_eq!(name_of(Path::new("/nowhere/watchdog1")), Some("watchdog1".into()));
        assert_eq!(runs(Path::new("/nowhere/watchdog4711")), None);
    }

    #[test]
    fn who_has_a_device_open() {
        // The reader's own descriptor of a device that nobody else opens: a new pseudo terminal would do, /dev/full does too.
        let _open = fs::File::open("/dev/full").unwrap();
        let own = format!("{} (", std::process::id());
        assert!(holders(Path::new("/dev/full")).iter().any(|holder| holder.starts_with(&own)));
        assert!(holders(Path::new("/no/such/device")).is_empty());
    }

    #[test]
    fn a_device_under_its_other_names() {
        let aliases_of = |path: &str| aliases(Path::new(path));
        assert!(aliases_of("/dev/watchdog").contains(&PathBuf::from("/dev/watchdog0")));
        assert!(aliases_of("/dev/watchdog0").contains(&PathBuf::from("/dev/watchdog")));
        assert!(!aliases_of("/dev/watchdog1").contains(&PathBuf::from("/dev/watchdog")));
        let here = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir_in(here.parent().unwrap()).unwrap();
        let link = dir.path().join("dog");
        std::os::unix::fs::symlink("/dev/full", &link).unwrap();
        assert!(aliases(&link).contains(&PathBuf::from("/dev/full")));
    }

    #[test]
    fn files_that_hang_do_not_hold_up_the_search() {
        with_hung_directory(|hung| {
            hung.hang();
            let flags = nix::libc::O_PATH | nix::libc::O_DIRECTORY;
            let _hangs = fs::OpenOptions::new().read(true).custom_flags(flags).open(hung.dir()).unwrap();
            let _open = fs::File::open("/dev/full").unwrap();
            let own = format!("{} (", std::process::id());
            assert!(holders(Path::new("/dev/full")).iter().any(|holder| holder.starts_with(&own)));
        });
    }
}
