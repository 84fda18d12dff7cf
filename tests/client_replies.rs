//! What the client's commands print of a daemon's replies, against a stub that sends what was recorded, or only some of it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};

#[expect(dead_code, reason = "other tests read all transcripts")]
#[path = "../wire/tests/wire/transcript.rs"]
mod transcript;

/// Length of a request without a payload.
const REQUEST: usize = 32;

/// Runs a command beside a daemon that reads `read` bytes of one request, sends `reply`, and closes.
fn run(args: &[&str], read: usize, reply: &[u8]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("sanlock.sock")).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut vec![0; read]).unwrap();
            stream.write_all(reply).unwrap();
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanlock"));
        command.arg("client").args(args).env("SANLOCK_RUN_DIR", dir.path()).output().unwrap()
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The reply of the only connection of a transcript.
fn recorded_reply(name: &str) -> Vec<u8> {
    transcript::load(name).stream(1, transcript::Direction::ToClient)
}

/// What the recorded client printed.
fn recorded_output(file: &str) -> String {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("wire/tests/golden");
    let transcript = std::fs::read_to_string(golden.join(file)).unwrap();
    let lines = transcript.lines().skip_while(|line| *line != "# program output:").skip(1);
    lines.map_while(|line| line.strip_prefix("#   ")).flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn what_a_daemon_of_5_1_1_shows_is_printed_as_3_8_5_printed_it() {
    let output = run(&["status", "-D"], REQUEST, &recorded_reply("cross/01"));
    assert_eq!(text(&output.stdout), recorded_output("cross/01-385-status-511.txt"));
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}
