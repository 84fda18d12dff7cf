//! `kill -9` of the real daemon at every I/O call of taking and giving up a lease: another host gets the lease once this one must be
//! dead, and this one comes back and gets it too.
//!
//! Needs strace, root (a mount name space in which the daemons find a short `watchdog_fire_timeout`), and no watchdog: nothing is left
//! to protect once the client, a program that ends at once, is gone. `SANLOCK_CRASH_CALLS=n` kills at the first n calls in each mode
//! instead of a choice of them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Leases are read and written by ordinary calls, lockspaces through an engine of the kernel.
const CALLS: &str = "pread64,pwrite64,io_submit,io_uring_enter";
/// Cases at a time; they mostly wait.
const AT_A_TIME: usize = 10;
/// Everything answers within this time, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A host: its daemon, killed when it goes, and its run directory.
struct Host {
    daemon: Child,
    name: &'static str,
    dir: PathBuf,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ended = self.daemon.kill();
        let _reaped = self.daemon.wait();
    }
}

impl Host {
    fn start(dir: &Path, name: &'static str) -> Self {
        let run = dir.join(name);
        std::fs::create_dir_all(&run).unwrap();
        let mut host = Self { daemon: spawn(dir, &run, name), name, dir: dir.to_owned() };
        host.wait_until_it_answers();
        host
    }

    fn restart(&mut self) {
        self.daemon.wait().unwrap();
        self.daemon = spawn(&self.dir, &self.dir.join(self.name), self.name);
        self.wait_until_it_answers();
    }

    fn wait_until_it_answers(&mut self) {
        until("the daemon to answer", || {
            assert!(self.daemon.try_wait().unwrap().is_none(), "the daemon of {} ended", self.name);
            self.client(&["client", "status"]).output().unwrap().status.success()
        });
    }

    fn client(&self, args: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.arg(LIMIT.as_secs().to_string()).arg(env!("CARGO_BIN_EXE_sanlock")).args(args);
        command.env("SANLOCK_RUN_DIR", self.dir.join(self.name));
        command
    }

    fn ok(&self, what: &str, args: &[&str]) {
        let output = self.client(args).output().unwrap();
        assert!(output.status.success(), "{what}: {} {args:?}: {}", self.name, both(&output));
    }
}

fn quiet(mut command: Command) -> Command {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn both(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

fn spawn(dir: &Path, run: &Path, name: &str) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(run.join("log")).unwrap();
    Command::new("unshare")
        .args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc && exec \"$@\""])
        .arg(dir.join("etc"))
        .arg(env!("CARGO_BIN_EXE_sanlock"))
        .args(["daemon", "-D", "-w", "0", "-l", "0", "-h", "0", "-U", "root", "-G", "root", "-e", name])
        .env("SANLOCK_RUN_DIR", run)
        .env("SANLOCK_PRIVILEGED", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// A lockspace and a resource, and an /etc for the daemons.
fn scene(dir: &Path) {
    std::fs::create_dir_all(dir.join("etc/sanlock")).unwrap();
    for file in ["passwd", "group"] {
        std::fs::copy(Path::new("/etc").join(file), dir.join("etc").join(file)).unwrap();
    }
    std::fs::write(dir.join("etc/sanlock/sanlock.conf"), "watchdog_fire_timeout = 4\n").unwrap();
    std::fs::File::create(dir.join("disk")).unwrap().set_len(4 << 20).unwrap();
    let disk = dir.join("disk").to_str().unwrap().to_owned();
    for init in [["-s", &format!("LS:0:{disk}:0"), "-o", "1"], ["-r", &format!("LS:R:{disk}:1M"), "-n", "8"]]
    {
        let output = direct(&[&["init"][..], &init].concat());
        assert!(output.status.success(), "{}", both(&output));
    }
}

fn direct(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sanlock")).arg("direct").args(args).output().unwrap()
}

/// Kills the daemon at its n-th I/O call from now on; returns once that is arranged.
fn kill_at(host: &Host, call: u32) -> Child {
    let said = host.dir.join("strace");
    let mut strace = Command::new("strace")
        .args(["-f", "-e", &format!("trace={CALLS}"), "-e"])
        .arg(format!("inject={CALLS}:signal=KILL:when={call}"))
        .arg("-o")
        .arg(host.dir.join("trace"))
        .args(["-p", &host.daemon.id().to_string()])
        .stderr(std::fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    until("strace to attach", || {
        let ended = strace.try_wait().unwrap().is_some();
        let said = std::fs::read_to_string(&said).unwrap();
        assert!(!ended || said.contains("attached"), "{said}");
        said.contains("attached")
    });
    strace
}

/// Waits for something that is bound to come.
fn until(what: &str, mut has_come: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !has_come() {
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// One case: killed at this call while it takes the lease in this mode and gives it up again.
fn killed_at(call: u32, mode: &str) {
    let what = format!("killed at call {call} {mode}");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = dir.path();
    scene(dir);
    let (mut first, second) = (Host::start(dir, "first"), Host::start(dir, "second"));
    let disk = dir.join("disk").to_str().unwrap().to_owned();
    let resource = format!("LS:R:{disk}:1M");
    let joins = [(&first, 1), (&second, 2)].map(|(host, id)| {
        let lockspace = format!("LS:{id}:{disk}:0");
        quiet(host.client(&["client", "add_lockspace", "-s", &lockspace, "-o", "1"])).spawn().unwrap()
    });
    for mut join in joins {
        assert!(join.wait().unwrap().success(), "{what}: not joined");
    }

    let mut strace = kill_at(&first, call);
    let asked = format!("{resource}{mode}");
    let _cut_short = first.client(&["client", "command", "-r", &asked, "-c", "/bin/true"]).output().unwrap();
    let mut ended = None;
    until("the daemon to be killed", || {
        ended = first.daemon.try_wait().unwrap();
        ended.is_some()
    });
    strace.wait().unwrap();
    assert_eq!(ended.and_then(|status| status.signal()), Some(9), "{what}: {ended:?}");

    // What is on disk can be read, and is nobody's but ours.
    for target in [["-r", &resource], ["-s", &format!("LS:1:{disk}:0")]] {
        let output = both(&direct(&[&["read_leader"][..], &target].concat()));
        let owner = output.lines().find(|line| line.starts_with("owner_id ")).unwrap_or_default();
        assert!(output.contains("read_leader done 0\n"), "{what}: {output}");
        assert!(["owner_id 0", "owner_id 1"].contains(&owner), "{what}: {output}");
    }

    // The other host waits for the dead one as long as it has to, and gets the lease.
    let takes = ["client", "command", "-r", &resource, "-c", "/bin/true"];
    let mut other = quiet(second.client(&takes)).spawn().unwrap();
    first.restart();
    first.ok(&what, &["client", "add_lockspace", "-s", &format!("LS:1:{disk}:0"), "-o", "1"]);
    // The first attempt may only find out that the version being decided was the dead host's.
    if !other.wait().unwrap().success() {
        second.ok(&what, &takes);
    }
    // So does the one that came back.
    until(&format!("{what}: the host that came back gets the lease"), || {
        first.client(&takes).output().unwrap().status.success()
    });
    let generation = both(&direct(&["read_leader", "-s", &format!("LS:1:{disk}:0")]));
    assert!(generation.contains("\nowner_generation 2\n"), "{what}: {generation}");
}

#[test]
fn a_daemon_that_is_killed_at_any_call_leaves_a_lease_that_can_be_taken() {
    let (strace, root) = (Path::new("/usr/bin/strace").exists(), nix::unistd::geteuid().is_root());
    if !strace || !root {
        assert!(std::env::var_os("CI").is_none(), "strace and root are needed, and CI must not skip");
        eprintln!("skipped: strace and root are needed");
        return;
    }
    let all: Option<u32> = std::env::var("SANLOCK_CRASH_CALLS").ok().and_then(|n| n.parse().ok());
    let calls = all.map_or_else(|| vec![2, 3, 4, 5, 6, 7, 9], |n| (1..=n).collect());
    let shared = all.map_or_else(|| vec![5, 7, 8], |n| (1..=n).collect());
    let cases = calls.into_iter().map(|n| (n, "")).chain(shared.into_iter().map(|n| (n, ":SH")));
    let cases = Mutex::new(cases.collect::<Vec<_>>().into_iter());
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some((call, mode)) = next(&cases) {
                    killed_at(call, mode);
                }
            });
        }
    });
}

fn next<T>(cases: &Mutex<std::vec::IntoIter<T>>) -> Option<T> {
    cases.lock().unwrap().next()
}
