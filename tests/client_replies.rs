//! What the client's commands print of a daemon's replies, against a stub that sends what was recorded, or only some of it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};

use sanlock_wire::{Lockspace, Name, Reply, Request};

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

/// The exit status is 0, as the original's: a script that looks for a lockspace sees those that came.
#[test]
fn a_status_that_breaks_off_is_printed_as_far_as_it_came() {
    let reply = recorded_reply("cross/01");
    let expected = recorded_output("cross/01-385-status-511.txt");
    let output = run(&["status", "-D"], REQUEST, &reply[..reply.len() - 1]);
    let (before_lockspace, _) = expected.split_once("s LS5").unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), before_lockspace.to_owned()));
    assert!(text(&output.stderr).contains("so this is not all: the daemon closed"), "{output:?}");
    // Nothing but the header came, and a daemon that is gone before it has read the request.
    let output = run(&["status"], REQUEST - 1, &reply[..32]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), String::new()));
    assert!(text(&output.stderr).contains("so this is not all: "), "{output:?}");
    let output = run(&["status"], REQUEST, &reply[..31]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
    assert!(text(&output.stderr).contains("without a complete answer (-1)"), "{output:?}");
}

#[test]
fn a_log_that_breaks_off_is_printed_as_far_as_it_came() {
    let header = Request::log_dump().header.reply(11).encode();
    for (came, printed) in [
        ("one\ntwo\nend", "one\ntwo\nend\n"),
        ("one\ntwo", "one\ntwo\npartial dump 7 of 11\n"),
        ("", "\npartial dump 0 of 11\n"),
    ] {
        let output = run(&["log_dump"], REQUEST, &[header.as_slice(), came.as_bytes()].concat());
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), printed.to_owned()));
        assert_eq!(output.stderr.is_empty(), came.len() == 11, "{output:?}");
    }
}

#[test]
fn of_more_lockspaces_than_an_answer_holds_those_that_came_are_printed() {
    let request = Request::get_lockspaces().header;
    let named = |n: usize| Lockspace::named(Name::new(format!("LS{n}")).unwrap());
    let reply = Reply::get_lockspaces(&request, (0..950).map(named).collect()).encode();
    let printed = |count: usize| -> String { (0..count).map(|n| format!("s LS{n}:0::0 \n")).collect() };
    let output = run(&["gets"], REQUEST, &reply);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), printed(949)));
    assert!(text(&output.stderr).contains("more than its answer holds"), "{output:?}");
    let output = run(&["gets"], REQUEST, &reply[..32 + 2 * Lockspace::SIZE + 7]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), printed(2)));
    // An answer that says that it holds all, and does not.
    let reply = Reply::get_lockspaces(&request, (0..3).map(named).collect()).encode();
    let output = run(&["gets"], REQUEST, &reply[..reply.len() - 1]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), "gets error -1\n".to_owned()));
}
