//! Loop devices, mounts and helpers for the tests of the engines.
#![allow(dead_code, reason = "every test program uses another part")]
#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]

use std::cell::Cell;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use sanlock_blockio::{Access, Completion, Disk, Engine, EngineKind};
use tempfile::TempDir;

pub(crate) mod fuse;

/// What is bound to come has come by then, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(60);
/// What "at once" means on such a machine. Whoever waits for storage that hangs waits for longer: until the test lets it go on.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(30);
/// After this time a guard ends a hang that its test has not ended; longer than a test waits for anything meanwhile.
const GUARD: Duration = Duration::from_secs(300);

pub(crate) const ALL: [EngineKind; 3] = [EngineKind::IoUring, EngineKind::Aio, EngineKind::Threads];

/// What `RLIMIT_DATA` is compared with, in bytes. (Address space is no measure: the allocator has some in reserve.)
pub(crate) fn data() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmData:")).unwrap();
    kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Runs `body` with each engine. All have to work wherever `CI` is set.
pub(crate) fn on_each(body: impl Fn(EngineKind)) {
    for kind in ALL {
        match kind.check() {
            Ok(()) => body(kind),
            Err(error) => missing(&error.to_string()),
        }
    }
}

/// A test cannot run here: an error in CI, a message elsewhere.
pub(crate) fn missing(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "required in CI: {why}");
    eprintln!("SKIPPED: {why}");
}

pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Runs a program; its standard output, trimmed, or what went wrong.
pub(crate) fn run(program: &str, args: &[&str]) -> Result<String, String> {
    let out = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if out.status.success() {
        Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
    } else {
        Err(format!("{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr).trim()))
    }
}

/// A file of `size` zero bytes on a real file system.
pub(crate) fn file_in(dir: &Path, name: &str, size: u64) -> PathBuf {
    let path = dir.join(name);
    File::create(&path).unwrap().set_len(size).unwrap();
    path
}

pub(crate) fn open(path: &Path) -> Arc<Disk> {
    Disk::open(path, Access::ReadWrite).unwrap()
}

/// A loop device over a file, detached on drop.
pub(crate) struct LoopDevice {
    pub(crate) path: PathBuf,
}

impl LoopDevice {
    pub(crate) fn over(file: &Path, sector: u32) -> Option<Self> {
        if !is_root() {
            missing("loop devices need root");
            return None;
        }
        let args = ["-f", "--show", "-b", &sector.to_string(), file.to_str().unwrap()];
        match run("losetup", &args) {
            Ok(path) => Some(Self { path: path.into() }),
            Err(error) => {
                missing(&error);
                None
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = run("losetup", &["-d", self.path.to_str().unwrap()]) {
            eprintln!("{error}");
        }
    }
}

/// A shell command that runs after [`GUARD`] unless the test ended well before: it undoes a hang even when the test is
/// killed, since nobody could kill the hanging threads.
pub(crate) struct Guard(std::process::Child);

impl Guard {
    pub(crate) fn arm(command: &str) -> Self {
        let script = format!("sleep {}; {command}", GUARD.as_secs());
        let child = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A group of its own: an interrupt at the terminal ends the test but not the guard, and the guard ends with its
            // `sleep`.
            .process_group(0)
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // When the test fails the guard stays and does its work.
        if !thread::panicking() {
            let group = Pid::from_raw(i32::try_from(self.0.id()).unwrap());
            let _ = killpg(group, Signal::SIGKILL);
            let _ = self.0.wait();
        }
    }
}

/// An ext4 image, loop-mounted, that can be frozen.
pub(crate) struct FrozenMount {
    pub(crate) mount: PathBuf,
    frozen: Cell<bool>,
    _guard: Guard,
    _device: LoopDevice,
    _dir: TempDir,
}

impl FrozenMount {
    pub(crate) fn new() -> Option<Self> {
        if !is_root() {
            missing("mounting needs root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let image = file_in(dir.path(), "image", 32 << 20);
        let mount = dir.path().join("mnt");
        fs::create_dir(&mount).unwrap();
        let device = LoopDevice::over(&image, 512)?;
        let (dev, at) = (device.path.to_str().unwrap(), mount.to_str().unwrap());
        let made = run("mkfs.ext4", &["-q", "-F", dev]).and_then(|_| run("mount", &["-t", "ext4", dev, at]));
        if let Err(error) = made {
            missing(&error);
            return None;
        }
        let guard = Guard::arm(&format!("fsfreeze -u {at}"));
        Some(Self { mount, frozen: Cell::new(false), _guard: guard, _device: device, _dir: dir })
    }

    pub(crate) fn freeze(&self) {
        run("fsfreeze", &["-f", self.mount.to_str().unwrap()]).unwrap();
        self.frozen.set(true);
    }

    pub(crate) fn thaw(&self) {
        self.try_thaw().unwrap();
        self.frozen.set(false);
    }

    fn try_thaw(&self) -> Result<String, String> {
        run("fsfreeze", &["-u", self.mount.to_str().unwrap()])
    }
}

impl Drop for FrozenMount {
    fn drop(&mut self) {
        // A test that fails is to say why: a second panic would end all of them.
        if self.frozen.get() {
            let _ = self.try_thaw().inspect_err(|error| eprintln!("{error}"));
        }
        let at = self.mount.to_str().unwrap().to_owned();
        // Descriptors are closed in the background, a moment after the last reference is dropped.
        let end = Instant::now() + PATIENCE;
        while let Err(error) = run("umount", &[&at]) {
            if Instant::now() > end {
                eprintln!("{error}");
                let _ = run("umount", &["-l", &at]);
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Waits until `count` completions were reaped or `timeout` has passed.
pub(crate) fn reap_within(engine: &mut dyn Engine, count: usize, timeout: Duration) -> Vec<Completion> {
    let end = Instant::now() + timeout;
    let mut out = Vec::new();
    loop {
        engine.reap(&mut out);
        let left = end.saturating_duration_since(Instant::now());
        if out.len() >= count || left.is_zero() {
            return out;
        }
        let mut fds = [PollFd::new(engine.completion_fd(), PollFlags::POLLIN)];
        let millis = u16::try_from(left.as_millis() + 1).unwrap_or(u16::MAX);
        let _ = poll(&mut fds, PollTimeout::from(millis));
    }
}

/// Whether the completion descriptor is readable now.
pub(crate) fn is_ready(engine: &dyn Engine) -> bool {
    let mut fds = [PollFd::new(engine.completion_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
}

/// The only completion of an engine, which is bound to come.
pub(crate) fn one(engine: &mut dyn Engine) -> Completion {
    let mut done = reap_within(engine, 1, PATIENCE);
    assert_eq!(done.len(), 1);
    done.remove(0)
}

/// Fails if `body` takes longer than `limit`.
pub(crate) fn promptly<T>(limit: Duration, what: &str, body: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let value = body();
    let took = start.elapsed();
    assert!(took < limit, "{what} took {took:?}");
    value
}

/// `/proc/self/task/TID/stat` of the threads whose name starts like this.
fn thread_stats(prefix: &str) -> Vec<String> {
    let prefix = &prefix[..prefix.len().min(15)];
    fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok())
        .filter(|stat| stat.split_once('(').is_some_and(|(_, rest)| rest.starts_with(prefix)))
        .collect()
}

/// Threads of this process whose name starts like this.
pub(crate) fn threads_named(prefix: &str) -> usize {
    thread_stats(prefix).len()
}

/// Those of them that sleep uninterruptibly in the kernel.
pub(crate) fn blocked_threads(prefix: &str) -> usize {
    thread_stats(prefix).iter().filter(|stat| stat.contains(") D ")).count()
}

/// Waits until `condition` holds; fails after a minute.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
