//! A process that holds one lease and says how it wants to be ended.
//!
//! Arguments: RUN_DIR LOCKSPACE RESOURCE PATH OFFSET, then any of `killpath PROGRAM ARGUMENTS FLAGS`, `restrict FLAGS`, `stubborn`
//! (SIGTERM does not end it, but is counted: one line `TERM` each), `unshare` (a pid namespace for its children) and `heir FILE` (it ends, and leaves
//! its connection to a process whose pid is in the file). Prints `held` when it has the lease, and then waits for its end.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use sanlock_conformance::raw::{SELF, cmd, killpath};
use sanlock_conformance::{Connection, Resource};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let ([run_dir, lockspace, name, path, offset], mut wishes) =
        args.split_first_chunk::<5>().unwrap_or_else(|| panic!("usage: user RUN_DIR LS RES PATH OFFSET …"));
    let number = |text: &str| text.parse::<u32>().unwrap_or_else(|_| panic!("{text:?} is not a number"));
    let mut connection =
        Connection::open(Path::new(run_dir)).unwrap_or_else(|error| panic!("{run_dir}: {error}"));
    connection.register();
    let mut term = SigSet::empty();
    let mut heir = None;
    loop {
        wishes = match wishes {
            [] => break,
            [word, rest @ ..] if word == "stubborn" => {
                term.add(Signal::SIGTERM);
                term.thread_block().unwrap_or_else(|error| panic!("blocking SIGTERM: {error}"));
                rest
            }
            [word, rest @ ..] if word == "unshare" => {
                unshare(CloneFlags::CLONE_NEWPID).unwrap_or_else(|error| panic!("unshare: {error}"));
                rest
            }
            [word, file, rest @ ..] if word == "heir" => {
                heir = Some(file);
                rest
            }
            [word, flags, rest @ ..] if word == "restrict" => {
                let reply = connection.request(cmd::RESTRICT, number(flags), 0, SELF, &[]);
                assert_eq!(reply.result(), 0, "restrict");
                rest
            }
            [word, program, arguments, flags, rest @ ..] if word == "killpath" => {
                let payload = killpath(program, arguments);
                let reply = connection.request(cmd::KILLPATH, number(flags), 0, SELF, &payload);
                assert_eq!(reply.result(), 0, "killpath");
                rest
            }
            other => panic!("unknown wish {other:?}"),
        };
    }
    let resource = Resource::new(lockspace, name, path, u64::from(number(offset)));
    assert_eq!(connection.acquire_one(&resource), 0, "acquire");
    say("held");
    if let Some(file) = heir {
        let copy = connection.stream().try_clone().unwrap_or_else(|error| panic!("a copy: {error}"));
        let sleeps = Command::new("sleep")
            .arg("200")
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(copy)))
            .stdout(Stdio::null())
            .spawn();
        let pid = sleeps.unwrap_or_else(|error| panic!("sleep: {error}")).id();
        std::fs::write(file, pid.to_string()).unwrap_or_else(|error| panic!("{file}: {error}"));
        return;
    }
    loop {
        if term.contains(Signal::SIGTERM) {
            if term.wait().is_ok() {
                say("TERM");
            }
        } else {
            nix::unistd::pause();
        }
    }
}

fn say(word: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "{word}").and_then(|()| out.flush()).unwrap_or_else(|error| panic!("stdout: {error}"));
}
