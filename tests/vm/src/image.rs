//! What the guests boot: Debian's kernel with busybox, and on top of it the programs under test.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::holder::KILLPATH;
use crate::scenario::{Kind, Outfit};

/// What a guest that shares volume groups has, here and there.
const LVM: [&str; 3] = ["/sbin/lvm", "/sbin/lvmlockd", "/sbin/lvmlockctl"];

/// Files that every guest boots from.
pub(crate) struct Boot {
    /// The kernel.
    pub(crate) kernel: PathBuf,
    initrds: Vec<((Kind, Outfit), PathBuf)>,
}

/// The build directory: of this very program, `target/debug` or the like.
fn build_dir() -> Result<PathBuf, String> {
    let exe = std::env::current_exe().map_err(|error| format!("where this program is: {error}"))?;
    exe.parent().map(Path::to_path_buf).ok_or_else(|| format!("{} has no directory", exe.display()))
}

/// Where the kernel is kept and the runs leave their records: `vm` in the target directory.
///
/// # Errors
/// It cannot be found or made.
pub(crate) fn work_dir() -> Result<PathBuf, String> {
    let dir = build_dir()?;
    let target = dir.parent().ok_or_else(|| format!("{} has no parent", dir.display()))?;
    let work = target.join("vm");
    fs::create_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))?;
    Ok(work)
}

fn script(args: &[&std::ffi::OsStr]) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("image.sh");
    let status = Command::new("sh").arg(&path).args(args).stdout(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{} {args:?}: {status}", path.display())),
        Err(error) => Err(format!("sh: {error}")),
    }
}

impl Boot {
    /// Prepares what such guests need: downloads the kernel if it is not there yet, packs the programs.
    ///
    /// # Errors
    /// A program is missing (build first), or a Debian package (see `tests/run packages`).
    pub(crate) fn prepare(guests: &[(Kind, Outfit)]) -> Result<Self, String> {
        let work = work_dir()?;
        let base = work.join("kernel");
        script(&["base".as_ref(), base.as_os_str()])?;
        let mut initrds: Vec<((Kind, Outfit), PathBuf)> = Vec::new();
        for guest in guests {
            if !initrds.iter().any(|(known, _)| known == guest) {
                initrds.push((*guest, pack(*guest, &work, &base)?));
            }
        }
        Ok(Self { initrds, kernel: base.join("vmlinuz") })
    }

    /// The initial file system of such a guest.
    ///
    /// # Errors
    /// It was not among those prepared.
    pub(crate) fn initrd(&self, kind: Kind, outfit: Outfit) -> Result<&Path, String> {
        let initrd = self.initrds.iter().find(|(guest, _)| *guest == (kind, outfit));
        initrd
            .map(|(_, path)| path.as_path())
            .ok_or_else(|| format!("nothing prepared for a guest with {kind}"))
    }
}

/// The original's daemon. Where our own package is installed in its place everything would be compared with itself.
fn original() -> Result<PathBuf, String> {
    const PATH: &str = "/usr/sbin/sanlock";
    let output = Command::new(PATH).arg("-V").output().map_err(|error| format!("{PATH}: {error}"))?;
    if String::from_utf8_lossy(&output.stdout).contains("sanlock-rs") {
        return Err(format!("{PATH} is not the original: install its package"));
    }
    Ok(PATH.into())
}

/// Packs the programs of one kind of guest.
fn pack((kind, outfit): (Kind, Outfit), work: &Path, base: &Path) -> Result<PathBuf, String> {
    let graceful = work.join("graceful-stop");
    // It is not to have the helper's mark of an I/O flusher (`PF_MEMALLOC_NOIO`), nor would what it starts.
    let text = format!(
        "#!/bin/sh\n[ $(( $(cut -d' ' -f9 /proc/$$/stat) & 0x80000 )) = 0 ] || exit 1\necho graceful stop >/dev/ttyS0\n>{}\n",
        crate::holder::STOP_FILE
    );
    fs::write(&graceful, text).map_err(|error| format!("{}: {error}", graceful.display()))?;
    let here = build_dir()?;
    let (sanlock, wdmd, mut name) = match kind {
        Kind::Ours => (here.join("sanlock"), here.join("wdmd"), "ours".to_owned()),
        Kind::Original => (original()?, "/usr/sbin/wdmd".into(), "original".to_owned()),
    };
    let init = Path::new(env!("CARGO_MANIFEST_DIR")).join("init.sh");
    let mut programs = vec![
        ("/init", init),
        ("/usr/sbin/sanlock", sanlock),
        ("/usr/sbin/wdmd", wdmd),
        ("/bin/sanlock-vm", here.join("sanlock-vm")),
        (KILLPATH, graceful),
    ];
    if outfit == Outfit::Lvm {
        name += "-lvm";
        programs.extend(LVM.map(|path| (path, path.into())));
    }
    let archive = work.join(format!("{name}.cpio"));
    let mut args = vec!["programs".into(), archive.clone().into_os_string()];
    for (inside, file) in programs {
        if !file.exists() {
            return Err(format!("no {}: build the workspace, install the packages", file.display()));
        }
        let mut pair = std::ffi::OsString::from(format!("{inside}="));
        pair.push(file);
        args.push(pair);
    }
    let args: Vec<&std::ffi::OsStr> = args.iter().map(AsRef::as_ref).collect();
    script(&args)?;
    let initrd = work.join(format!("{name}.initrd"));
    let whole = concatenate(&[&base.join("base.cpio"), &archive], &initrd);
    whole.map_err(|error| format!("{}: {error}", initrd.display()))?;
    Ok(initrd)
}

/// The kernel takes archives one after the other.
fn concatenate(parts: &[&Path], into: &Path) -> std::io::Result<()> {
    let mut whole = fs::File::create(into)?;
    for part in parts {
        whole.write_all(&fs::read(part)?)?;
    }
    Ok(())
}
