//! Repairs beside which something happens: what was written is told, and what was written while somebody came is not called repaired.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sanlock_served::{ServedFile, Trouble};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const SECTOR: u64 = 512;
/// The leases' area.
const LEASE: std::ops::Range<u64> = MIB..2 * MIB;
/// Sectors of the lease: a request, and the ballots of two hosts.
const REQUEST: u64 = MIB + SECTOR;
const BALLOT: u64 = MIB + 4 * SECTOR;

/// A lockspace that nobody is in, and a damaged lease, in a file of which something can be made to happen at a write.
struct Scene {
    dir: TempDir,
    behind: PathBuf,
    file: ServedFile,
}

fn sanlock(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sanlock"))
        .args(args)
        .current_dir(dir)
        .env("SANLOCK_RUN_DIR", dir.join("run"))
        .output()
        .unwrap()
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let behind = dir.path().join("behind");
        let disk = File::create(&behind).unwrap();
        disk.set_len(2 * MIB).unwrap();
        let at = behind.to_str().unwrap();
        let (lockspace, lease) = (format!("LS:0:{at}:0"), format!("LS:R:{at}:1M"));
        for target in [&["-s", lockspace.as_str(), "-o", "1"][..], &["-r", &lease]] {
            let made = sanlock(dir.path(), &[&["direct", "init"], target].concat());
            assert!(made.status.success(), "{made:?}");
        }
        for sector in [REQUEST, BALLOT] {
            disk.write_all_at(&[0xa5; 56], sector).unwrap();
        }
        let file = ServedFile::over(&behind, dir.path(), Trouble::default()).unwrap();
        Self { dir, behind, file }
    }

    /// The record of a host that has joined.
    fn joined(&self) -> Vec<u8> {
        let copy = self.dir.path().join("copy");
        std::fs::copy(&self.behind, &copy).unwrap();
        let host = format!("LS:1:{}:0", copy.display());
        let joined =
            sanlock(self.dir.path(), &["direct", "acquire_id", "-s", &host, "-e", "host1", "-o", "1"]);
        assert!(joined.status.success(), "{joined:?}");
        let mut record = vec![0; 512];
        File::open(&copy).unwrap().read_exact_at(&mut record, 0).unwrap();
        record
    }

    /// What happens right after the n-th write to the lease: somebody else writes this.
    fn after_write(&self, n: u32, offset: u64, bytes: Vec<u8>) {
        let disk = File::options().write(true).open(&self.behind).unwrap();
        self.file.follow(LEASE, n, move || disk.write_all_at(&bytes, offset).unwrap());
    }

    /// Exit status, stdout, stderr of a repair.
    fn repair(&self) -> (Option<i32>, String, String) {
        let path = self.file.path().to_str().unwrap();
        let args = ["fsck", "--repair", "--io-timeout", "1", "--fire-timeout", "4", path];
        let output = sanlock(self.dir.path(), &args);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

#[test]
fn a_repair_that_nobody_disturbs() {
    let (status, told, why) = Scene::new().repair();
    assert_eq!(status, Some(2), "{told}{why}");
    assert_eq!(told.lines().filter(|line| line.starts_with("repaired ")).count(), 2, "{told}");
}

/// A host of 5.1.1 can be back within a second of its first write.
#[test]
fn what_was_written_while_somebody_joined_is_not_called_repaired() {
    let scene = Scene::new();
    scene.after_write(1, 0, scene.joined());
    let (status, told, why) = scene.repair();
    assert_eq!(status, Some(3), "{told}{why}");
    assert!(!told.lines().any(|line| line.starts_with("repaired ")), "{told}");
    assert!(why.contains("was written, and afterwards: host id 1 is in use"), "{why}");
    assert!(why.ends_with("check again\n"), "{why}");
}

/// Of two sectors to mend somebody changes the second one while the first is written.
#[test]
fn a_repair_that_stops_half_way_says_what_was_written() {
    let scene = Scene::new();
    scene.after_write(1, BALLOT, vec![0x5a; 56]);
    let (status, told, why) = scene.repair();
    assert_eq!(status, Some(4), "{told}{why}");
    assert!(why.contains("and its leases are only partly repaired: "), "{why}");
    assert!(why.contains("has changed meanwhile; one sector had been rewritten before that"), "{why}");
    assert!(told.contains("what was overwritten is saved in "), "{told}");
}
