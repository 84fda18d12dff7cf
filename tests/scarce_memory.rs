//! A daemon that gets hardly any more memory goes on: what cannot be had refuses a command, or makes it wait, and ends nothing.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod daemon;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use daemon::Daemon;

const LEASES: usize = 6;

/// A daemon that has joined a lockspace.
struct Host {
    daemon: Daemon,
    dir: tempfile::TempDir,
}

impl Host {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::File::create(dir.path().join("disk")).unwrap().set_len(8 << 20).unwrap();
        let host = Self { daemon: Daemon::start(dir.path()), dir };
        host.must(&["init", "-s", &host.named("LS:0:DISK:0"), "-o", "1"]);
        for n in 0..LEASES {
            host.must(&["init", "-r", &host.lease(n)]);
        }
        host.must(&["add_lockspace", "-s", &host.named("LS:1:DISK:0"), "-o", "1"]);
        host
    }

    fn named(&self, text: &str) -> String {
        text.replace("DISK", self.dir.path().join("disk").to_str().unwrap())
    }

    fn lease(&self, n: usize) -> String {
        self.named(&format!("LS:R{n}:DISK:{}M", n + 1))
    }

    #[track_caller]
    fn must(&self, args: &[&str]) {
        let output = self.daemon.client(args);
        assert!(output.status.success(), "{args:?}: {output:?}\n{}", self.log());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// Six processes at a time take a lease each. How many got it.
    fn take_all(&self) -> usize {
        let take = |n: usize| {
            let mut command = self.daemon.command(&["command", "-r", &self.lease(n), "-c", "/bin/true"]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let all: Vec<Child> = (0..LEASES).map(take).collect();
        all.into_iter().map(|mut child| child.wait().unwrap()).filter(|status| status.success()).count()
    }

    fn limit_data(&self, bytes: &str) {
        let limited = Command::new("prlimit")
            .arg(format!("--pid={}", self.daemon.child.id()))
            .arg(format!("--data={bytes}:"))
            .output();
        let limited = limited.unwrap();
        assert!(limited.status.success(), "{limited:?}");
    }

    /// Bytes of memory that it can write to.
    fn data(&self) -> u64 {
        let path: PathBuf = Path::new("/proc").join(self.daemon.child.id().to_string()).join("statm");
        let pages = std::fs::read_to_string(path).unwrap();
        pages.split(' ').nth(5).unwrap().parse::<u64>().unwrap() * 4096
    }
}

/// Threads come and go with the leases; at each of these limits another step of starting one finds no memory.
#[test]
fn threads_for_which_there_is_no_memory_end_nothing() {
    let mut host = Host::start();
    let mut refused = 0;
    for more in (20_000..=500_000).step_by(40_000) {
        host.limit_data(&(host.data() + more).to_string());
        refused += LEASES - host.take_all();
        assert_eq!(host.daemon.child.try_wait().unwrap(), None, "with {more} bytes more:\n{}", host.log());
        host.limit_data("unlimited");
    }
    assert_eq!(host.take_all(), LEASES, "{}", host.log());
    assert!(refused < 13 * LEASES, "nothing was taken at all");
    // Otherwise there was memory for everything.
    assert!(refused > 0, "nothing was refused\n{}", host.log());
    assert!(host.log().contains("no further thread for leases"), "all threads were started\n{}", host.log());
    assert!(host.log().lines().all(|line| !line.contains("check_our_lease")), "{}", host.log());
}

/// An index is read, kept, changed and written back, each time a MiB and more.
#[test]
fn commands_on_an_index_for_which_there_is_no_memory_are_refused() {
    for (command, entry) in
        [("format", None), ("lookup", Some("none")), ("update", Some("none:12M")), ("rebuild", None)]
    {
        // Of its own: memory that was had once is kept.
        let mut host = Host::start();
        let index = host.named("LS:DISK:10M");
        std::fs::File::options()
            .write(true)
            .open(host.dir.path().join("disk"))
            .unwrap()
            .set_len(14 << 20)
            .unwrap();
        let formatted =
            Command::new(env!("CARGO_BIN_EXE_sanlock")).args(["direct", "format", "-x", &index]).status();
        assert!(formatted.unwrap().success());
        let args: Vec<&str> =
            [command, "-x", &index].into_iter().chain(entry.iter().flat_map(|e| ["-e", e])).collect();
        let mut refused = 0;
        for more in (0..=4_000_000).step_by(250_000) {
            host.limit_data(&(host.data() + more).to_string());
            let output = host.daemon.client(&args);
            host.limit_data("unlimited");
            assert_eq!(host.daemon.child.try_wait().unwrap(), None, "{command}, {more}:\n{}", host.log());
            refused += u32::from(String::from_utf8_lossy(&output.stdout).contains(" -12"));
        }
        assert!(refused > 0, "{command} was never refused");
        let output = host.daemon.client(&args);
        let found = String::from_utf8_lossy(&output.stdout).contains(" -2");
        assert!(output.status.success() || (command == "lookup" && found), "{command}: {output:?}");
    }
}
