//! What `sanlock demo --device` refuses to overwrite.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::Command;

const MIB: usize = 1 << 20;

/// Says that a test cannot be done here; with CI set that is a failure.
fn skipped(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{why}, and CI must not skip");
    eprintln!("skipped: {why}");
}

/// A loop device on a file of so many MiB.
struct Loop {
    dir: tempfile::TempDir,
    device: PathBuf,
}

impl Loop {
    /// With sectors of this size; `None` where there are no loop devices.
    fn new(mebibytes: usize, sector: &str) -> Option<Self> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, vec![0; mebibytes * MIB]).unwrap();
        let mut command = Command::new("losetup");
        let output = command.args(["--find", "--show", "--sector-size", sector]).arg(file).output().unwrap();
        if !output.status.success() {
            skipped(&format!("no loop device ({})", String::from_utf8_lossy(&output.stderr).trim()));
            return None;
        }
        let device = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
        Some(Self { dir, device })
    }

    fn init(&self, target: &str) {
        let target = target.replace("DEV", self.device.to_str().unwrap());
        let option = if target.split(':').nth(1) == Some("0") { "-s" } else { "-r" };
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanlock"));
        let output = command.args(["direct", "init", option, &target]).output().unwrap();
        assert!(output.status.success(), "{target}: {output:?}");
    }

    /// What the demo says, and whether all went well.
    fn demo(&self) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanlock"));
        command.args(["demo", "--quick", "--yes-overwrite", "--device"]).arg(&self.device);
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    /// The demo refuses to begin, says this, and writes nothing.
    #[track_caller]
    fn refused(&self, told: &str) {
        let before = self.bytes();
        let (success, text) = self.demo();
        let told = told.replace("DEV", self.device.to_str().unwrap());
        assert!(!success && text.contains("step \"prepare storage\" failed: "), "{text}");
        assert!(text.contains(&told), "{told}: {text}");
        assert!(self.bytes() == before, "it wrote");
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.dir.path().join("file")).unwrap()
    }

    fn clear(&self) {
        let file = OpenOptions::new().write(true).custom_flags(libc::O_SYNC).open(&self.device).unwrap();
        file.write_all_at(&vec![0; self.bytes().len()], 0).unwrap();
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // A failure leaves a device that the next reboot takes away.
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

#[test]
fn leases_of_others_are_not_overwritten() {
    let Some(disk) = Loop::new(20, "512") else { return };
    for (target, told) in [
        ("LS:0:DEV:0", "DEV has lockspace \"LS\" at offset 0, which the demo would overwrite"),
        ("LS:R:DEV:0", "DEV has resource \"R\" of lockspace \"LS\" at offset 0, which"),
        ("LS:R:DEV:1048576", "DEV has resource \"R\" of lockspace \"LS\" at offset 1048576, which"),
        // What only has one of the demo's names, or lies where it has none.
        ("demo:R:DEV:1048576", "DEV has resource \"R\" of lockspace \"demo\" at offset 1048576, which"),
        ("demo:0:DEV:1048576", "DEV has lockspace \"demo\" at offset 1048576, which"),
    ] {
        disk.clear();
        disk.init(target);
        disk.refused(told);
    }
    // A lockspace whose first record is lost may have hosts.
    disk.clear();
    disk.init("LS:0:DEV:0");
    let file = OpenOptions::new().write(true).custom_flags(libc::O_SYNC).open(&disk.device).unwrap();
    file.write_all_at(&[0; 512], 0).unwrap();
    disk.refused("DEV has a damaged lockspace at offset 0, which the demo would overwrite");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sanlock"));
    disk.clear();
    let index = format!("LS:{}:0", disk.device.display());
    let made = command.args(["direct", "format", "-x", &index]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    disk.refused("DEV has a resource index of lockspace \"LS\" at offset 0, which the demo would overwrite");
}

#[test]
fn what_is_no_lease_is_not_overwritten_either() {
    let Some(disk) = Loop::new(4, "512") else { return };
    // The superblock of ext4, the label of LVM, the table of a GPT; the last byte that would be overwritten.
    for offset in [1024, 512, 513, 2 * MIB as u64 - 1] {
        disk.clear();
        let file = OpenOptions::new().write(true).custom_flags(libc::O_SYNC).open(&disk.device).unwrap();
        file.write_all_at(&[1], offset).unwrap();
        let area = offset / MIB as u64 * MIB as u64;
        disk.refused(&format!(
            "DEV has something else, as a file system, at offset {area}, which the demo would"
        ));
    }
    disk.clear();
    let file = OpenOptions::new().write(true).custom_flags(libc::O_SYNC).open(&disk.device).unwrap();
    file.write_all_at(&[1], 2 * MIB as u64).unwrap();
    let (success, text) = disk.demo();
    assert!(success, "what lies behind is not looked at: {text}");
}

#[test]
fn larger_sectors_are_looked_at_as_far_as_the_demo_writes() {
    let Some(disk) = Loop::new(24, "4096") else { return };
    disk.init("LS:R:DEV:8388608");
    disk.refused("DEV has resource \"R\" of lockspace \"LS\" at offset 8388608, which");
}

#[test]
fn what_somebody_uses_is_not_overwritten() {
    let Some(disk) = Loop::new(4, "512") else { return };
    // As a mounted file system does.
    let used = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(&disk.device).unwrap();
    disk.refused("DEV is in use: it is mounted, or part of another device");
    drop(used);
}

#[test]
fn what_an_earlier_demo_left_is_no_obstacle() {
    let Some(disk) = Loop::new(4, "512") else { return };
    for _ in 0..2 {
        let (success, text) = disk.demo();
        assert!(success, "{text}");
        assert!(has(&disk.bytes(), b"demo"), "it wrote nothing");
    }
    // And what lies behind it is none of its business.
    disk.init("LS:R:DEV:2097152");
    let (success, text) = disk.demo();
    assert!(success, "{text}");
}

fn has(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}
