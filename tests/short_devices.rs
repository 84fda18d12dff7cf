//! Formats of areas that do not fit on a device: what is there stays, on all disks.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod daemon;

use daemon::Daemon;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const MIB: usize = 1 << 20;

/// Says that a test cannot be done here; with CI set that is a failure.
fn skipped(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{why}, and CI must not skip");
    eprintln!("skipped: {why}");
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
}

impl Drop for Loop {
    fn drop(&mut self) {
        // A failure leaves a device that the next reboot takes away.
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// A device of three and a half MiB, with a file of that size beside it, both full of something.
fn devices(dir: &Path) -> Option<(Loop, PathBuf)> {
    let [device, other] = ["device", "other"].map(|name| dir.join(name));
    for path in [&device, &other] {
        fs::write(path, vec![0x5a; 7 * MIB / 2]).unwrap();
    }
    Some((Loop::on(&device)?, other))
}

fn result(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn what_does_not_fit_on_a_device_overwrites_nothing() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some((device, other)) = devices(dir.path()) else { return };
    let daemon = Daemon::start(dir.path());
    let place = |offset: usize| format!("{}:{offset}", device.0.display());
    // Those that begin at the end or behind it have another number, as they always had.
    for (offset, code) in [(3 * MIB, -90), (7 * MIB / 2 - 512, -90), (7 * MIB / 2, -28), (9 * MIB, -28)] {
        let lockspace = ["-s".to_owned(), format!("LS:0:{}", place(offset))];
        let resource = ["-r".to_owned(), format!("LS:R:{}", place(offset))];
        let second = ["-r".to_owned(), format!("LS:R:{}:0:{}", other.display(), place(offset))];
        for target in [&lockspace, &resource, &second] {
            let target: Vec<&str> = target.iter().map(String::as_str).collect();
            let program = env!("CARGO_BIN_EXE_sanlock");
            let direct = Command::new(program).args(["direct", "init"]).args(&target).output().unwrap();
            let asked = daemon.client(&[&["init"], &target[..]].concat());
            for output in [direct, asked] {
                let (stdout, stderr) = result(&output);
                assert!(stdout.contains(&format!("init done {code}\n")), "{target:?}: {stdout}{stderr}");
            }
            let output = Command::new(program).args(["direct", "init"]).args(&target).output().unwrap();
            let told = format!(
                "an area of {MIB} bytes at offset {offset} does not fit on {}, which has 3670016 bytes",
                device.0.display()
            );
            assert!(result(&output).1.contains(&told), "{target:?}: {output:?}");
            for file in [&dir.path().join("device"), &other] {
                assert!(fs::read(file).unwrap().iter().all(|byte| *byte == 0x5a), "{target:?}: {file:?}");
            }
        }
    }
    // The log of the daemon says it as well.
    let log = fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(log.contains("does not fit on "), "{log}");
}

#[test]
fn an_index_that_does_not_fit_with_its_lease_overwrites_nothing() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some((device, _)) = devices(dir.path()) else { return };
    let daemon = Daemon::start(dir.path());
    let program = env!("CARGO_BIN_EXE_sanlock");
    // The lease would begin before the end, or at it; the index would end behind it, or begin there.
    for (offset, code) in [(2 * MIB, -90), (5 * MIB / 2, -28), (3 * MIB, -90), (7 * MIB / 2, -28)] {
        let target = format!("LS:{}:{offset}", device.0.display());
        let target = ["format", "-x", &target, "-Z", "512", "-A", "1M"];
        let direct = Command::new(program).arg("direct").args(target).output().unwrap();
        for output in [&direct, &daemon.client(&target)] {
            let (stdout, stderr) = result(output);
            assert!(stdout.contains(&format!("format done {code}\n")), "{offset}: {stdout}{stderr}");
        }
        let told = format!("does not fit on {}, which has 3670016 bytes", device.0.display());
        assert!(result(&direct).1.contains(&told), "{offset}: {direct:?}");
        let there = fs::read(dir.path().join("device")).unwrap();
        assert!(there.iter().all(|byte| *byte == 0x5a), "{offset}");
    }
}

#[test]
fn what_just_fits_is_formatted_and_a_file_grows() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some((device, other)) = devices(dir.path()) else { return };
    for place in [format!("{}:{}", device.0.display(), 5 * MIB / 2), format!("{}:3145728", other.display())] {
        let target = format!("LS:R:{place}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanlock"));
        let (stdout, stderr) = result(&command.args(["direct", "init", "-r", &target]).output().unwrap());
        assert_eq!(stdout, "init done 0\n", "{stderr}");
    }
    assert_eq!(fs::metadata(&other).unwrap().len(), 4 * MIB as u64);
}

/// As the table does, which has printed them by then.
#[test]
fn what_was_read_before_an_area_that_cannot_be_is_in_the_object() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = dir.path().join("leases");
    fs::File::create(&file).unwrap().set_len(4 * MIB as u64).unwrap();
    let Some(device) = Loop::on(&file) else { return };
    let direct = |args: &[&str]| {
        result(&Command::new(env!("CARGO_BIN_EXE_sanlock")).arg("direct").args(args).output().unwrap())
    };
    for n in 0..4 {
        let (stdout, _) = direct(&["init", "-r", &format!("LS:R{n}:{}:{n}M", device.0.display())]);
        assert_eq!(stdout, "init done 0\n");
    }
    // The device stays as long as it was.
    fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(2 * MIB as u64).unwrap();
    let (stdout, stderr) = direct(&["dump", device.0.to_str().unwrap(), "--json"]);
    let object: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(object["error"]["name"], "EIO", "{stdout}{stderr}");
    assert_eq!(object["areas"][0]["name"], "R0", "{stdout}");
    assert_eq!(object["areas"].as_array().unwrap().len(), 2, "{stdout}");
}
