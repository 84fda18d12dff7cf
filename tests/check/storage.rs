//! Real files, directories and devices that do not serve: what cannot be opened, read or written, or not in time.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use sanlock_served::{ServedFile, Trouble};

use crate::system::{FINE, PROBLEMS, System, WARNINGS, skipped, told};

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The file of this system, served with this trouble; `None` where file systems in user space are not to be had.
fn served(system: &System, trouble: Trouble) -> Option<ServedFile> {
    fs::File::create(system.file()).unwrap().set_len(1 << 20).unwrap();
    ServedFile::over(&system.file(), system.dir.path(), trouble)
        .inspect_err(|error| skipped(&format!("no file systems in user space ({error})")))
        .ok()
}

/// A loop device.
struct Loop(PathBuf);

impl Loop {
    /// On this file; `None` where there are none.
    fn on(file: &Path) -> Option<Self> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output().unwrap();
        if !output.status.success() {
            skipped(&format!("no loop device ({})", String::from_utf8_lossy(&output.stderr).trim()));
            return None;
        }
        Some(Self(PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())))
    }

    /// `MAJOR:MINOR`.
    fn numbers(&self) -> String {
        let device = fs::metadata(&self.0).unwrap().rdev();
        format!("{}:{}", nix::sys::stat::major(device), nix::sys::stat::minor(device))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // A failure leaves a device that the next reboot takes away.
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn what_cannot_be_opened_or_made() {
    let system = System::good();
    told(&system.check_unprivileged(&system.file(), &[]), FINE, "");
    set_mode(&system.file(), 0);
    let text = told(&system.check_unprivileged(&system.file(), &[]), PROBLEMS, "cannot-open");
    assert!(text.contains("Permission denied"), "{text}");
    let data = system.dir.path().join("data");
    set_mode(&data, 0o555);
    let text = told(&system.check_unprivileged(&data, &[]), PROBLEMS, "cannot-create");
    assert!(text.contains("Permission denied"), "{text}");
    set_mode(&data, 0o755);
    told(&system.check_unprivileged(&data, &[]), FINE, "");
}

/// A file or device of somebody else, in directories that everybody may enter.
#[test]
fn the_daemon_s_user_has_to_read_and_write_it() {
    let system = System::good();
    system.write("etc/passwd", "root:x:0:0::/:\nsanlock:x:4294:4294::/:\n");
    system.write("etc/group", "root:x:0:\nsanlock:x:4294:\n");
    // Where leases lie must be entered by everybody, which the directory of the build need not be.
    let open = tempfile::tempdir().unwrap();
    set_mode(open.path(), 0o755);
    let file = open.path().join("leases");
    fs::File::create(&file).unwrap().set_len(4 << 20).unwrap();
    set_mode(&file, 0o640);
    let output = system.check(Some(&file), &[]);
    let text = told(&output, PROBLEMS, "no-permission");
    assert!(text.contains("user sanlock may not read and write") && text.contains("mode 640"), "{text}");
    assert!(text.contains("chown sanlock:sanlock"), "{text}");
    set_mode(&file, 0o666);
    let text = crate::system::text(&system.check(Some(&file), &[]));
    assert!(!text.contains("no-permission"), "{text}");
    if !nix::unistd::geteuid().is_root() {
        return skipped("loop devices need root");
    }
    let Some(device) = Loop::on(&system.file()) else { return };
    let text = told(&system.check(Some(&device.0), &[]), PROBLEMS, "no-permission");
    assert!(text.contains("udev rule"), "{text}");
}

#[test]
fn storage_whose_transfers_fail() {
    let system = System::good();
    let Some(file) = served(&system, Trouble::broken(Errno::EIO)) else { return };
    let output = system.check(Some(file.path()), &["--seconds", "1"]);
    for text in [told(&output, PROBLEMS, "cannot-read"), told(&output, PROBLEMS, "io-fails")] {
        assert!(text.contains("EIO") && text.contains("dmesg"), "{text}");
    }
}

#[test]
fn storage_that_is_slow() {
    for (delay_ms, io_timeout, status, code) in
        [(50, "4", FINE, ""), (1100, "4", WARNINGS, "slow"), (1100, "1", PROBLEMS, "too-slow")]
    {
        let system = System::good();
        let Some(file) = served(&system, Trouble::slow(Duration::from_millis(delay_ms))) else { return };
        let options = ["--seconds", "1", "--io-timeout", io_timeout];
        let text = told(&system.check(Some(file.path()), &options), status, code);
        assert!(text.contains(" reads of a sector: half within "), "{text}");
    }
}

/// What the kernel says of a disk of 4096-byte blocks that shows sectors of 512: no loop device does that, so a loop device stands for one
/// in the copy of the system.
#[test]
fn a_disk_of_512_byte_sectors_on_larger_blocks() {
    if !nix::unistd::geteuid().is_root() {
        return skipped("loop devices need root");
    }
    let system = System::good();
    let Some(device) = Loop::on(&system.file()) else { return };
    system.block("devices/virtual/block/loop0", "loop0");
    system.link("sys/class/block/loop0", &format!("sys/dev/block/{}", device.numbers()));
    let text = system.expect(Some(&device.0), &[], FINE, "512e");
    assert!(text.contains("loop0 has 512-byte sectors on 4096-byte blocks"), "{text}");
    for (file, bytes) in [("logical", "4096"), ("physical", "512")] {
        let system = System::good();
        system.block("devices/virtual/block/loop0", "loop0");
        system.link("sys/class/block/loop0", &format!("sys/dev/block/{}", device.numbers()));
        system.write(&format!("sys/class/block/loop0/queue/{file}_block_size"), bytes);
        let text = system.expect(Some(&device.0), &[], FINE, "");
        assert!(!text.contains("512e"), "{text}");
    }
}
