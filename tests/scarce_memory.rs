//! A daemon that gets hardly any more memory goes on: what cannot be had refuses a command, or makes it wait, and ends nothing.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const LEASES: usize = 6;

/// A daemon that has joined a lockspace, ended when it goes.
struct Daemon {
    child: Child,
    dir: tempfile::TempDir,
}

impl Daemon {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("disk");
        std::fs::File::create(&disk).unwrap().set_len(8 << 20).unwrap();
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_sanlock"))
            .args(["daemon", "-D", "-w", "0", "-h", "0", "-l", "0", "-U", "root", "-G", "root", "-e", "here"])
            .env("SANLOCK_RUN_DIR", dir.path())
            .env("SANLOCK_PRIVILEGED", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let daemon = Self { child, dir };
        daemon.until("answers", || daemon.client(&["status"]).status.success());
        daemon.must(&["init", "-s", &daemon.named("LS:0:DISK:0"), "-o", "1"]);
        for n in 0..LEASES {
            daemon.must(&["init", "-r", &daemon.lease(n)]);
        }
        daemon.must(&["add_lockspace", "-s", &daemon.named("LS:1:DISK:0"), "-o", "1"]);
        daemon
    }

    fn named(&self, text: &str) -> String {
        text.replace("DISK", self.dir.path().join("disk").to_str().unwrap())
    }

    fn lease(&self, n: usize) -> String {
        self.named(&format!("LS:R{n}:DISK:{}M", n + 1))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanlock"));
        command.arg("client").args(args).env("SANLOCK_RUN_DIR", self.dir.path());
        command
    }

    fn client(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    #[track_caller]
    fn must(&self, args: &[&str]) {
        let output = self.client(args);
        assert!(output.status.success(), "{args:?}: {output:?}\n{}", self.log());
    }

    fn until(&self, what: &str, done: impl Fn() -> bool) {
        let began = Instant::now();
        while !done() {
            assert!(began.elapsed() < Duration::from_secs(60), "{what} in vain\n{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// Six processes at a time take a lease each. How many got it.
    fn take_all(&self) -> usize {
        let take = |n: usize| {
            let mut command = self.command(&["command", "-r", &self.lease(n), "-c", "/bin/true"]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let all: Vec<Child> = (0..LEASES).map(take).collect();
        all.into_iter().map(|mut child| child.wait().unwrap()).filter(|status| status.success()).count()
    }

    fn limit_data(&self, bytes: &str) {
        let limited = Command::new("prlimit")
            .arg(format!("--pid={}", self.child.id()))
            .arg(format!("--data={bytes}:"))
            .output();
        let limited = limited.unwrap();
        assert!(limited.status.success(), "{limited:?}");
    }

    /// Bytes of memory that it can write to.
    fn data(&self) -> u64 {
        let path: PathBuf = Path::new("/proc").join(self.child.id().to_string()).join("statm");
        let pages = std::fs::read_to_string(path).unwrap();
        pages.split(' ').nth(5).unwrap().parse::<u64>().unwrap() * 4096
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Threads come and go with the leases; at each of these limits another step of starting one finds no memory.
#[test]
fn threads_for_which_there_is_no_memory_end_nothing() {
    let mut daemon = Daemon::start();
    let mut refused = 0;
    for more in (20_000..=500_000).step_by(40_000) {
        daemon.limit_data(&(daemon.data() + more).to_string());
        refused += LEASES - daemon.take_all();
        assert_eq!(daemon.child.try_wait().unwrap(), None, "with {more} bytes more:\n{}", daemon.log());
        daemon.limit_data("unlimited");
    }
    assert_eq!(daemon.take_all(), LEASES, "{}", daemon.log());
    assert!(refused < 13 * LEASES, "nothing was taken at all");
    assert!(daemon.log().lines().all(|line| !line.contains("check_our_lease")), "{}", daemon.log());
}
