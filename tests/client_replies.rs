//! What the client's commands print of a daemon's replies, against a stub that sends what was recorded, or only some of it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use sanlock_wire::{Disk, Host, Lockspace, Name, Reply, Request, RequestDecoder, Resource};

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

/// How a connection's request is answered.
type Answer<'a> = &'a (dyn Fn(&Request, UnixStream) + Sync);

/// Runs a command beside a daemon that has each of the command's connections answered by one of these, in this order.
fn run_beside(args: &[&str], answers: &[Answer<'_>]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("sanlock.sock")).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let (mut decoder, mut byte) = (RequestDecoder::new(), [0]);
                let request = loop {
                    stream.read_exact(&mut byte).unwrap();
                    if let Some(request) = decoder.feed(&mut byte.as_slice()).unwrap() {
                        break request;
                    }
                };
                answer(&request, stream);
            }
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanlock"));
        command.arg("client").args(args).env("SANLOCK_RUN_DIR", dir.path()).output().unwrap()
    })
}

/// A daemon that has other things to do for a minute: whoever asked has gone before.
fn silent(_: &Request, mut stream: UnixStream) {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(stream.read(&mut [0]).map_err(|error| error.kind()), Ok(0), "it is waited for");
}

/// Sends a reply without a payload.
fn result(request: &Request, mut stream: UnixStream, result: i32) {
    stream.write_all(&request.header.reply(result).encode()).unwrap();
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
fn an_object_has_what_came_of_an_answer_and_why_it_is_not_all() {
    let object = |output: &Output| serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap();
    let reply = recorded_reply("cross/01");
    let output = run(&["status", "--json"], REQUEST, &reply[..reply.len() - 1]);
    assert_eq!(output.status.code(), Some(0));
    let shown = object(&output);
    assert!(shown["daemon"]["host_name"].is_string(), "{shown}");
    assert!(shown["cut"].as_str().unwrap().contains("closed the connection"), "{shown}");
    assert!(text(&output.stderr).contains("so this is not all"), "{output:?}");

    let request = Request::get_lockspaces().header;
    let named = |n: usize| Lockspace::named(Name::new(format!("LS{n}")).unwrap());
    let many = Reply::get_lockspaces(&request, (0..950).map(named).collect()).encode();
    let output = run(&["gets", "--json"], REQUEST, &many);
    let shown = object(&output);
    assert_eq!((output.status.code(), shown["lockspaces"].as_array().unwrap().len()), (Some(0), 949));
    assert!(
        shown["cut"].is_string() && text(&output.stderr).contains("more than its answer holds"),
        "{output:?}"
    );

    // The daemon is gone before the hosts have been asked for, has not looked at them, or has left the lockspace.
    let one: Answer<'_> = &|request, mut stream| {
        let reply = Reply::get_lockspaces(&request.header, vec![named(1)]);
        stream.write_all(&reply.encode()).unwrap();
    };
    let gone: Answer<'_> = &|_, _| {};
    let output = run_beside(&["gets", "-h", "1", "--json"], &[one, gone]);
    let shown = &object(&output)["lockspaces"][0];
    assert_eq!((output.status.code(), shown["hosts"].is_null()), (Some(0), true), "{output:?}");
    assert!(
        shown["hosts_error"].is_string() && text(&output.stderr).contains("hosts of lockspace LS1"),
        "{output:?}"
    );
    let output =
        run_beside(&["gets", "-h", "1", "--json"], &[one, &|request, stream| result(request, stream, -11)]);
    let shown = &object(&output)["lockspaces"][0];
    assert!(shown["hosts"].is_null() && shown["hosts_error"].is_null(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");

    let listed: Answer<'_> = &|_, mut stream| stream.write_all(&reply).unwrap();
    let left: Answer<'_> = &|request, stream| result(request, stream, -28);
    let output = run_beside(&["host_status", "--json"], &[listed, left]);
    let shown = &object(&output)["lockspaces"][0];
    assert_eq!((output.status.code(), shown["hosts"].is_null()), (Some(0), true), "{output:?}");
    assert!(
        shown["error"].is_string() && text(&output.stderr).contains("hosts of lockspace LS5"),
        "{output:?}"
    );
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

/// What is to be read to explain a refusal may lie on the disk that is the reason for it.
#[test]
fn a_refused_acquire_ends_although_the_owner_cannot_be_read() {
    let args = ["acquire", "-p", "1234", "-r", "LS:R:/dev/dead:0"];
    let output = run_beside(&args, &[&|request, stream| result(request, stream, -11), &silent]);
    let printed = (output.status.code(), text(&output.stdout));
    assert_eq!(printed, (Some(1), "acquire pid 1234\nacquire done -11\n".to_owned()));
    let told = text(&output.stderr);
    assert!(
        told.contains("LS:R: the daemon has not read its owner within 3 s; 'sanlock who LS:R'"),
        "{told}"
    );
    assert!(!told.contains("no host owns it"), "{told}");
}

/// "Try again now" is for those whose lease was looked at, and is free.
#[test]
fn a_refused_conversion_is_explained_by_what_was_looked_at() {
    let refused: Answer<'_> = &|request, stream| result(request, stream, -11);
    let output = run_beside(&["convert", "-p", "1234", "-r", "LS:R"], &[refused]);
    assert_eq!(text(&output.stdout), "convert pid 1234\nconvert done -11\n");
    assert!(!text(&output.stderr).contains("try again now"), "{output:?}");

    let (lockspace, name) = (Name::new("LS").unwrap(), Name::new("R").unwrap());
    let owned = |hosts: Vec<u64>| {
        let host = |host_id: u64| Host {
            host_id: host_id.into(),
            generation: 3.into(),
            timestamp: 0.into(),
            io_timeout: 0.into(),
            flags: 0.into(),
        };
        let hosts: Vec<Host> = hosts.into_iter().map(host).collect();
        move |request: &Request, mut stream: UnixStream| {
            let reply = Reply::read_resource_owners(
                &request.header,
                0,
                Resource::new(lockspace, name),
                hosts.clone(),
            );
            stream.write_all(&reply.encode()).unwrap();
        }
    };
    let joined = |request: &Request, mut stream: UnixStream| {
        let own = Lockspace::new(lockspace, 2, Disk::EMPTY);
        stream.write_all(&Reply::get_lockspaces(&request.header, vec![own]).encode()).unwrap();
    };
    let args = ["convert", "-p", "1234", "-r", "LS:R:/dev/x:0"];
    let output = run_beside(&args, &[refused, &owned(vec![])]);
    assert!(text(&output.stderr).contains("no host owns it any more: try again now"), "{output:?}");
    let output = run_beside(&args, &[refused, &owned(vec![2]), &joined]);
    let told = text(&output.stderr);
    assert!(told.contains("LS:R has no owner but this host (host 2 generation 3)"), "{told}");
    assert!(!told.contains("try again now"), "{told}");
}

/// A stopped daemon hears of it when it goes on. That it has lockspaces is only a note.
#[test]
fn a_daemon_that_does_not_answer_is_told_to_shut_down_all_the_same() {
    let told = |request: &Request, _: UnixStream| assert_eq!(*request, Request::shutdown(false));
    let output = run_beside(&["shutdown"], &[&silent, &told]);
    let printed = (output.status.code(), text(&output.stdout));
    assert_eq!(printed, (Some(0), "shutdown force 0 wait 0\nshutdown done 0\n".to_owned()));
}

#[test]
fn who_asks_for_the_default_io_timeout_hears_of_another_one() {
    let joined: Answer<'_> = &|request, stream| result(request, stream, 0);
    let has = |seconds: u32| {
        move |request: &Request, mut stream: UnixStream| {
            stream.write_all(&Reply::renewal(&request.header, seconds, Vec::new()).encode()).unwrap();
        }
    };
    let args = ["add_lockspace", "-s", "LS:1:/dev/x:0", "-o", "10"];
    let output = run_beside(&args, &[joined, &has(5)]);
    assert_eq!(text(&output.stdout), "add_lockspace\nadd_lockspace done 0\n");
    assert!(text(&output.stderr).contains("joined with an io timeout of 5 s, not 10: "), "{output:?}");
    for (args, answers) in [(&args[..], &[joined, &has(10)][..]), (&args[..3], &[joined][..])] {
        let output = run_beside(args, answers);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    }
}
