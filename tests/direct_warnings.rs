//! What `sanlock direct` says beside its results, which are those of the original: areas that overlap, tables that end early, places that only look
//! free; and what becomes of results that cannot be written.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const MIB: u64 = 1 << 20;

/// A file of 32 MiB with a lockspace, and a lease at each of the two MiB behind it.
struct Storage {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl Storage {
    fn formatted() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = dir.path().join("leases");
        File::create(&path).unwrap().set_len(32 * MIB).unwrap();
        let storage = Self { _dir: dir, path };
        for target in [["-s", "LS:0:DISK:0"], ["-r", "LS:R1:DISK:1M"], ["-r", "LS:R2:DISK:2M"]] {
            assert_eq!(
                storage.direct(&["init", target[0], target[1]]),
                ("init done 0\n".to_owned(), String::new())
            );
        }
        storage
    }

    fn command(&self, args: &[&str]) -> Command {
        let path = self.path.to_str().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanlock"));
        command.args(args.iter().map(|arg| arg.replace("DISK", path)));
        command
    }

    /// Stdout and stderr of an action that succeeds, with the path as DISK.
    #[track_caller]
    fn direct(&self, args: &[&str]) -> (String, String) {
        let output = self.command(&[&["direct"], args].concat()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(self.path.to_str().unwrap(), "DISK");
        assert!(output.status.success(), "{args:?}: {output:?}");
        (text(&output.stdout), text(&output.stderr))
    }

    fn poke(&self, offset: u64, bytes: &[u8]) {
        File::options().write(true).open(&self.path).unwrap().write_all_at(bytes, offset).unwrap();
    }
}

#[test]
fn an_area_that_overlaps_others_is_formatted_and_told_of() {
    let storage = Storage::formatted();
    // Once more, in its place.
    assert_eq!(storage.direct(&["init", "-r", "LS:R2:DISK:2M"]).1, "");
    for (target, said) in [
        // As on a disk with sectors of 4096 bytes; and once more, where each record looks like the beginning of a lockspace.
        (["-s", "BIG:0:DISK:8M", "-Z", "4096", "-A", "8M"], vec![]),
        (["-s", "BIG:0:DISK:8M", "-Z", "4096", "-A", "8M"], vec![]),
        (
            ["-r", "BIG:R:DISK:9M", "-Z", "4096", "-A", "8M"],
            vec![
                "WARNING: DISK: offset 9437184 is no multiple of the align size, 8388608",
                "the 8388608 bytes at offset 9437184 overlap the lockspace of 8388608 bytes at offset 8388608",
            ],
        ),
        (
            ["-r", "LS:R9:DISK:512", "-Z", "512", "-A", "1M"],
            vec![
                "offset 512 is no multiple of the align size, 1048576",
                "overlap the lockspace of 1048576 bytes at offset 0",
                "overlap the lease of 1048576 bytes at offset 1048576",
            ],
        ),
    ] {
        let (stdout, stderr) = storage.direct(&[&["init"], &target[..]].concat());
        assert_eq!((stdout.as_str(), stderr.lines().count()), ("init done 0\n", said.len()), "{stderr}");
        for text in said {
            assert!(stderr.contains(text), "{text}: {stderr}");
        }
    }
}

#[test]
fn a_table_that_ends_before_the_last_lease_says_so() {
    let storage = Storage::formatted();
    let (table, said) = storage.direct(&["dump", "DISK"]);
    assert_eq!((table.lines().count(), said.as_str()), (3, ""));
    storage.poke(MIB, &[0x55]);
    let note = "sanlock: dump: DISK: the table ends at offset 1048576, where no lease begins, and others follow: 'sanlock direct dump DISK:2097152'";
    for args in [&["dump", "DISK"][..], &["dump", "DISK", "--json"]] {
        let (table, said) = storage.direct(args);
        assert!(!table.contains("R2") && said.starts_with(note), "{args:?}: {table}{said}");
    }
    // Whoever gives a size sees it all.
    let (table, said) = storage.direct(&["dump", "DISK:0:3M"]);
    assert!(table.contains("R2") && said.is_empty(), "{table}{said}");
    let (place, said) = storage.direct(&["next_free", "DISK"]);
    assert!(place == "1048576\n" && said.contains("is no lease, and not empty"), "{place}{said}");
}

#[test]
fn results_that_cannot_be_written_are_a_failure_unless_nobody_wants_them() {
    let storage = Storage::formatted();
    let run = |args: &[&str], stdout: Stdio| -> Output {
        storage
            .command(args)
            .stdout(stdout)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
            .wait_with_output()
            .unwrap()
    };
    let full = || File::options().write(true).open("/dev/full").unwrap();
    for (args, status) in [
        (&["direct", "dump", "DISK"][..], 1),
        (&["explain", "-243"], 1),
        (&["help"], 1),
        // There 1 says something else.
        (&["fsck", "--json", "DISK"], 3),
    ] {
        let output = run(args, full().into());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{args:?}: {said}");
        assert!(said.contains("sanlock: the output cannot be written: No space left"), "{args:?}: {said}");
        let (reader, writer) = nix::unistd::pipe().unwrap();
        drop(reader);
        let output = run(args, writer.into());
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{args:?}: nobody reads");
    }
    // Nor does an error of its own end in a panic.
    let mut daemon = storage.command(&["daemon", "-U", "no-such-user"]);
    let run_dir = storage.path.with_file_name("run");
    let status = daemon.env("SANLOCK_RUN_DIR", run_dir).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(1));
    let demo = storage.command(&["demo", "--dir", "/nonexistent"]).stdout(full()).stderr(full()).status();
    assert_eq!(demo.unwrap().code(), Some(1));
}
