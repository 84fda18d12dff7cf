//! The run directory and what lies in it (socket-protocol.md 1.1, 1.2).

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

use sanlock_conformance::storage::scratch_dir;
use sanlock_conformance::{Connection, Host, Output, Program, Storage, bounded};

use crate::SOON;

#[test]
fn what_lies_in_the_run_directory() {
    let Some(program) = Program::under_test() else { return };
    let mut host = Host::start(program, "host1");
    let look = |name: &str| {
        let path = host.run_dir().join(name);
        fs::metadata(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let socket = look("sanlock.sock");
    assert!(socket.file_type().is_socket());
    assert_eq!((socket.mode() & 0o7777, socket.uid(), socket.gid()), (0o660, 0, 0));
    let inode = socket.ino();
    let pid_file = look("sanlock.pid");
    assert_eq!(pid_file.mode() & 0o7777, 0o644);
    let text = fs::read_to_string(host.run_dir().join("sanlock.pid")).unwrap();
    assert_eq!(text, format!("{}\n", host.pid()));

    // Whatever a crash leaves is replaced.
    host.kill();
    assert!(host.run_dir().join("sanlock.sock").exists());
    host.restart();
    let socket = fs::metadata(host.run_dir().join("sanlock.sock")).unwrap();
    assert!(socket.file_type().is_socket() && (socket.ino() != inode || socket.mode() & 0o7777 == 0o660));
    let text = fs::read_to_string(host.run_dir().join("sanlock.pid")).unwrap();
    assert_eq!(text, format!("{}\n", host.pid()));
}

/// Runs `sanlock daemon` with a run directory of its own until it ends or goes into the background.
fn daemon(program: Program, run_dir: &std::path::Path, options: &[&str]) -> Output {
    let mut command = bounded::dying_with_us(&program.path());
    command.args(["daemon", "-w", "0", "-l", "0", "-h", "0"]).args(options);
    command.env("SANLOCK_RUN_DIR", run_dir).env("SANLOCK_PRIVILEGED", "0");
    bounded::run(command, SOON)
}

#[test]
fn a_daemon_that_cannot_start_in_the_background_says_so() {
    let Some(program) = Program::under_test() else { return };
    let scratch = scratch_dir("run");
    // The directory is made, but not its parents.
    let output = daemon(program, &scratch.path().join("none/run"), &["-U", "root", "-G", "root"]);
    if program == Program::Reference {
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "neither status nor message");
        return;
    }
    assert_eq!(output.code, 1, "{output}");
    assert!(output.stderr.contains("none/run"), "{output}");
}

#[test]
fn a_missing_run_directory_is_made() {
    let Some(program) = Program::under_test() else { return };
    let scratch = scratch_dir("run");
    let run_dir = scratch.path().join("made");
    let mut command = bounded::dying_with_us(&program.path());
    command.args(["daemon", "-D", "-w", "0", "-l", "0", "-h", "0", "-U", "root", "-G", "root"]);
    command.env("SANLOCK_RUN_DIR", &run_dir).env("SANLOCK_PRIVILEGED", "0");
    let mut daemon = bounded::Running::start(command);
    bounded::wait_until("the daemon to answer", SOON, || {
        Connection::open(&run_dir).is_ok_and(|mut connection| connection.version().is_ok())
    });
    assert_eq!(fs::metadata(&run_dir).unwrap().mode() & 0o7777, 0o775);
    daemon.kill();
}

#[test]
fn an_unknown_user_or_group_is_no_root() {
    let Some(program) = Program::ours_under_test("runs as root instead") else { return };
    for options in [["-U", "no-such-user"], ["-G", "no-such-group"]] {
        let scratch = scratch_dir("run");
        let output = daemon(program, scratch.path(), &[&options[..], &["-D"]].concat());
        assert_eq!(output.code, 1, "{output}");
        assert!(output.stderr.contains(options[1]), "{output}");
    }
}

#[test]
fn who_needs_access_to_the_storage_is_told() {
    let Some(program) = Program::ours_under_test("needs limits that a container may not raise") else {
        return;
    };
    // As another user, whom this directory keeps out.
    let storage = Storage::file();
    let scratch = scratch_dir("run");
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let run_dir = scratch.path().join("run");
    let mut command = bounded::dying_with_us(&program.path());
    command.args(["daemon", "-D", "-w", "0", "-l", "0", "-h", "0", "-U", "nobody", "-G", "nogroup"]);
    command.env("SANLOCK_RUN_DIR", &run_dir).env("SANLOCK_PRIVILEGED", "1");
    let mut daemon = bounded::Running::start(command);
    bounded::wait_until("the daemon to answer", SOON, || {
        Connection::open(&run_dir).is_ok_and(|mut connection| connection.version().is_ok())
    });
    let mut connection = Connection::open(&run_dir).unwrap();
    assert_eq!(connection.add_lockspace(&storage.lockspace(1), 0, 1), -19);
    let told =
        |line: &str| line.contains("uid 65534") || line.contains("uid:65534") || line.contains("nobody");
    bounded::wait_until("the log to say so", SOON, || daemon.text().1.lines().any(told));
    daemon.kill();
}
