//! What is asked of a lease file before it is used.

use std::fs::File;
use std::path::Path;
use std::process::Command;

/// Who asks when a file was changed makes the next synchronous writes to it slower (`blockio/src/stat.rs`). Needs strace.
#[test]
fn nobody_asks_when_a_lease_file_was_changed() {
    if !Path::new("/usr/bin/strace").exists() {
        assert!(std::env::var_os("CI").is_none(), "strace is missing, and CI must not skip");
        return eprintln!("skipped: strace is missing");
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (leases, trace) = (dir.path().join("leases"), dir.path().join("trace"));
    File::create(&leases).unwrap().set_len(2 << 20).unwrap();
    let status = Command::new("strace")
        .args(["-f", "-y", "-qq", "-e", "trace=statx,stat,lstat,fstat,newfstatat", "-o"])
        .arg(&trace)
        .arg(env!("CARGO_BIN_EXE_sanlock"))
        .args(["direct", "init", "-s"])
        .arg(format!("LS:0:{}:0", leases.display()))
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    let trace = std::fs::read_to_string(trace).unwrap();
    let asked: Vec<&str> = trace.lines().filter(|line| line.contains(leases.to_str().unwrap())).collect();
    assert_eq!(asked.len(), 2, "of the path, and of what was opened: {asked:#?}");
    for line in asked {
        assert!(line.contains("statx(") && line.contains(", STATX_TYPE|STATX_INO|STATX_SIZE, "), "{line}");
    }
}
