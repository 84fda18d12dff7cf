//! What syslog gets (command-line.md 8, 11.3), in a mount name space whose `/dev/log` is a socket of the case.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use sanlock_conformance::bounded::{self, Running};
use sanlock_conformance::storage::{scratch_dir, text};
use sanlock_conformance::wdmd::mount_namespaces;
use sanlock_conformance::{Program, Storage};
use tempfile::TempDir;

use crate::SOON;

/// Inside the new mount name space: a `/dev` with nothing but `null` and `log`; `$0` is the case's directory.
const ENTER: &str = "mkdir -p $0/dev && mount --rbind /dev $0/dev && mount -t tmpfs none /dev && touch /dev/null && \
    mount --bind $0/dev/null /dev/null && ln -s $0/log /dev/log && exec \"$@\"";

struct Syslog {
    dir: TempDir,
    socket: UnixDatagram,
}

impl Syslog {
    /// `None` without mount name spaces.
    fn new() -> Option<Self> {
        let dir = scratch_dir("syslog");
        let socket = UnixDatagram::bind(dir.path().join("log")).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a time limit");
        mount_namespaces().then_some(Self { dir, socket })
    }

    fn command(&self, program: Program) -> Command {
        let mut command = bounded::dying_with_us(Path::new("unshare"));
        command.args(["-m", "--propagation", "private", "sh", "-c", ENTER, text(self.dir.path())]);
        command.arg(program.path());
        command
    }

    /// The first message that contains this.
    fn message_with(&self, part: &str) -> String {
        let begin = Instant::now();
        let mut bytes = [0; 4096];
        let mut seen = Vec::new();
        while begin.elapsed() < SOON {
            if let Ok(length) = self.socket.recv(&mut bytes) {
                let message = String::from_utf8_lossy(&bytes[..length]).into_owned();
                if message.contains(part) {
                    return message;
                }
                seen.push(message);
            }
        }
        panic!("no message with {part:?}: {seen:?}");
    }
}

#[test]
fn direct_actions_record_changes() {
    let Some(program) = Program::under_test() else { return };
    let Some(syslog) = Syslog::new() else { return };
    let storage = Storage::file();
    for (option, place, recorded) in [
        ("-s", storage.lockspace_arg(0), format!("init lockspace {} 0x", storage.lockspace_arg(0))),
        ("-r", storage.resource_arg(1), format!("init resource {}:0", storage.resource_arg(1))),
    ] {
        let mut command = syslog.command(program);
        command.args(["direct", "init", option, &place]);
        assert_eq!(bounded::run(command, SOON).success().stdout, "init done 0\n");
        let message = syslog.message_with("init ");
        assert!(message.starts_with("<28>"), "daemon, warning: {message:?}");
        assert!(message.contains(" sanlock-direct[") && message.contains(&recorded), "{message:?}");
    }
}

#[test]
fn the_daemon_sends_its_complete_lines() {
    let Some(program) = Program::under_test() else { return };
    let Some(syslog) = Syslog::new() else { return };
    let mut command = syslog.command(program);
    command.args(["daemon", "-D", "-w", "0", "-l", "0", "-h", "0", "-U", "root", "-G", "root", "-S", "7"]);
    command.env("SANLOCK_RUN_DIR", syslog.dir.path().join("run")).env("SANLOCK_PRIVILEGED", "0");
    let mut daemon = Running::start(command);
    let message = syslog.message_with("sanlock daemon started");
    daemon.kill();
    let (head, line) = message.split_once("]: ").unwrap();
    assert!(head.starts_with("<28>") && head.contains(" sanlock["), "daemon, warning: {message:?}");
    // Date, time, seconds, thread.
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!((words[0].len(), words[1].len()), (10, 8), "{message:?}");
    assert!(words[2].parse::<u64>().is_ok() && words[3].starts_with('['), "{message:?}");
    assert!(line.ends_with('\n'), "{message:?}");
}
