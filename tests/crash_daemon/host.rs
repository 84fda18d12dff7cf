//! Hosts with a daemon each on one disk, and strace, which kills a daemon.

use super::{CALLS, IO_TIMEOUT, LIMIT};
use sanlock_client::Client;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A host: its daemon, killed when it goes, and its run directory.
pub(crate) struct Host {
    pub(crate) daemon: Child,
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
    pub(crate) fn start(dir: &Path, name: &'static str) -> Self {
        let run = dir.join(name);
        std::fs::create_dir_all(&run).unwrap();
        let mut host = Self { daemon: spawn(dir, &run, name), name, dir: dir.to_owned() };
        host.wait_until_it_answers();
        host
    }

    pub(crate) fn restart(&mut self) {
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

    pub(crate) fn client(&self, args: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new("timeout");
        command.arg(LIMIT.as_secs().to_string()).arg(env!("CARGO_BIN_EXE_sanlock")).args(args);
        command.env("SANLOCK_RUN_DIR", self.dir.join(self.name));
        command
    }

    /// Its daemon, asked by the library.
    pub(crate) fn library(&self) -> Client {
        Client::with_run_dir(self.dir.join(self.name)).within(LIMIT)
    }

    /// A process that holds this lease until it is killed. One that does not get it, as on a busy machine an I/O may take longer than the
    /// io timeout, is followed by another.
    pub(crate) fn holder(&self, resource: &str) -> Holder {
        let begin = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_sanlock"));
            command.args(["client", "command", "-r", resource, "-c", "/bin/sleep", "600"]);
            command.env("SANLOCK_RUN_DIR", self.dir.join(self.name));
            Holder { process: quiet(command).spawn().unwrap() }
        };
        let mut holder = begin();
        until(&format!("{resource} to be held"), || {
            if holder.process.try_wait().unwrap().is_some() {
                holder = begin();
            }
            self.library()
                .inquire(holder.pid())
                .is_ok_and(|held| held.resources().is_ok_and(|r| !r.is_empty()))
        });
        holder
    }

    /// A process that asks for leases when told to, until it is killed.
    pub(crate) fn process(&self) -> Holder {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanlock"));
        command.args(["client", "command", "-c", "/bin/sleep", "600"]);
        command.env("SANLOCK_RUN_DIR", self.dir.join(self.name));
        let process = Holder { process: quiet(command).spawn().unwrap() };
        until("a process to be registered", || self.library().inquire(process.pid()).is_ok());
        process
    }

    pub(crate) fn ok(&self, what: &str, args: &[String]) {
        let output = self.client(args).output().unwrap();
        assert!(output.status.success(), "{what}: {} {args:?}: {}", self.name, both(&output));
    }
}

/// A process that holds a lease, or may, killed when it goes.
pub(crate) struct Holder {
    process: Child,
}

impl Holder {
    pub(crate) fn pid(&self) -> i32 {
        self.process.id().try_into().unwrap()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

fn quiet(mut command: Command) -> Command {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

pub(crate) fn both(output: &Output) -> String {
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

/// A lockspace and two resources, and an /etc for the daemons.
pub(crate) fn scene(dir: &Path) {
    std::fs::create_dir_all(dir.join("etc/sanlock")).unwrap();
    for file in ["passwd", "group"] {
        std::fs::copy(Path::new("/etc").join(file), dir.join("etc").join(file)).unwrap();
    }
    std::fs::write(dir.join("etc/sanlock/sanlock.conf"), "watchdog_fire_timeout = 4\n").unwrap();
    std::fs::File::create(dir.join("disk")).unwrap().set_len(12 << 20).unwrap();
    let disk = dir.join("disk").to_str().unwrap().to_owned();
    for init in [
        ["-s", &format!("LS:0:{disk}:0"), "-o", IO_TIMEOUT],
        ["-r", &format!("LS:R:{disk}:1M"), "-n", "8"],
        ["-r", &format!("LS:D:{disk}:2M"), "-n", "8"],
    ] {
        let output = direct(&[&["init"][..], &init].concat());
        assert!(output.status.success(), "{}", both(&output));
    }
}

pub(crate) fn direct(args: &[&str]) -> Output {
    sanlock(&[&["direct"], args].concat())
}

/// A command that asks no daemon.
pub(crate) fn sanlock(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sanlock")).args(args).output().unwrap()
}

/// Kills the daemon at its n-th I/O call from now on; returns once that is arranged.
pub(crate) fn kill_at(host: &Host, call: u32) -> Child {
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
pub(crate) fn until(what: &str, mut has_come: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !has_come() {
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
