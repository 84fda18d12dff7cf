//! `sanlock direct` on a lease on three disks, one of which is behind or cannot be read.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// A lease R on three files, at the beginning of each.
struct Disks {
    _dir: tempfile::TempDir,
    paths: Vec<PathBuf>,
}

impl Disks {
    fn formatted() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let paths: Vec<_> = (1..=3).map(|n| dir.path().join(format!("disk-{n}"))).collect();
        for path in &paths {
            std::fs::File::create(path).unwrap().set_len(1 << 20).unwrap();
        }
        let disks = Self { _dir: dir, paths };
        disks.ends("init", &[], 0);
        disks
    }

    /// Runs an action, which has this result; what it says on stderr.
    #[track_caller]
    fn ends(&self, action: &str, options: &[&str], result: i32) -> String {
        let places: Vec<_> = self.paths.iter().map(|path| format!("{}:0", path.display())).collect();
        let resource = format!("LS:R:{}", places.join(":"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanlock"));
        let output = command.args(["direct", action, "-r", &resource]).args(options).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(stdout, format!("{action} done {result}\n"), "{stderr}");
        stderr
    }

    /// Host id and generation that the leader of each disk names, and whether it is held.
    fn owners(&self) -> Vec<(u64, u64, bool)> {
        let number = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let bytes = self.paths.iter().map(|path| std::fs::read(path).unwrap());
        bytes.map(|bytes| (number(&bytes, 32), number(&bytes, 40), number(&bytes, 152) != 0)).collect()
    }
}

const HOST: [&str; 4] = ["-i", "3", "-g", "5"];
const OTHER: [&str; 4] = ["-i", "4", "-g", "1"];

fn cut(path: &Path, bytes: u64) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

/// Whichever it is: it was away when the lease was taken.
#[test]
fn a_disk_that_is_behind_hides_no_owner() {
    for behind in 0..3 {
        let disks = Disks::formatted();
        let before = std::fs::read(&disks.paths[behind]).unwrap();
        disks.ends("acquire", &HOST, 0);
        std::fs::write(&disks.paths[behind], before).unwrap();
        let told = disks.ends("release", &[], 0);
        assert!(told.contains("host id 3 generation 5 owns the lease"), "{behind}: {told}");
        let told = disks.ends("acquire", &OTHER, -241);
        assert!(told.contains("owned by host id 3 generation 5"), "{behind}: {told}");
        let told = disks.ends("release", &HOST, 0);
        assert!(!told.contains("nothing to release"), "{behind}: {told}");
        let owners = disks.owners();
        let others = (0..3).filter(|disk| *disk != behind);
        assert!(others.clone().all(|disk| owners[disk] == (3, 5, false)), "{behind}: {owners:?}");
        disks.ends("acquire", &OTHER, 0);
    }
}

#[test]
fn a_shared_hold_that_one_disk_has_of_an_earlier_generation_is_found() {
    use std::os::unix::fs::FileExt;
    let disks = Disks::formatted();
    // Host 3's block: shared with generation 4 on the first disk, with 5 on the others.
    for (path, generation) in disks.paths.iter().zip([4, 5, 5]) {
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&[1], 4 * 512 + 128).unwrap();
        file.write_all_at(&[generation], 4 * 512 + 136).unwrap();
    }
    let told = disks.ends("release", &HOST, 0);
    assert!(!told.contains("nothing to release"), "{told}");
    disks.ends("acquire", &OTHER, 0);
}

#[test]
fn a_disk_that_cannot_be_read_is_passed_over() {
    for gone in 0..3 {
        let disks = Disks::formatted();
        cut(&disks.paths[gone], 0);
        disks.ends("acquire", &HOST, 0);
        disks.ends("release", &HOST, 0);
        let owners = |paths: &[PathBuf]| {
            let read = Disks { _dir: tempfile::tempdir().unwrap(), paths: paths.to_vec() };
            read.owners()
        };
        let mut left = disks.paths.clone();
        left.remove(gone);
        assert_eq!(owners(&left), [(3, 5, false); 2], "{gone}");
        assert_eq!(std::fs::metadata(&disks.paths[gone]).unwrap().len(), 0, "{gone}");
    }
}

#[test]
fn without_a_majority_that_can_be_read_nothing_is_done() {
    let disks = Disks::formatted();
    disks.ends("acquire", &HOST, 0);
    for path in &disks.paths[..2] {
        cut(path, 0);
    }
    for action in ["acquire", "release"] {
        let told = disks.ends(action, &HOST, -90);
        assert!(told.contains("disk-1"), "{told}");
    }
    let disks = Disks::formatted();
    for path in &disks.paths[..2] {
        std::fs::write(path, vec![0; 1 << 20]).unwrap();
    }
    for action in ["acquire", "release"] {
        let told = disks.ends(action, &HOST, -220);
        assert!(told.contains("1 of 3 disks"), "{told}");
    }
}
