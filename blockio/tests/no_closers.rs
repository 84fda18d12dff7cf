//! A descriptor for whose close no thread is to be had. Alone in its process, whose limit it is.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]

mod support;

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sanlock_blockio::drive::{Driver, EnvSource, monotonic_now};
use sanlock_blockio::{Access, Disk, EngineKind};
use sanlock_lease::machine::{Env, Input, LockspaceNow, Machine, NoHosts, Step};
use sanlock_lease::timing::MonoTime;
use support::data;

struct Nothing;

impl Machine for Nothing {
    type Outcome = ();

    fn step(&mut self, _: MonoTime, _: &Env<'_>, _: Input<'_>) -> Step<()> {
        Step::Done { outcome: (), outstanding: 0 }
    }
}

impl EnvSource<()> for Nothing {
    fn with_env<R>(&self, (): &(), _: MonoTime, step: impl FnOnce(&Env<'_>) -> R) -> R {
        let lockspace = LockspaceNow::Gone;
        step(&Env { lockspace, client_alive: true, shutting_down: false, hosts: &NoHosts })
    }
}

fn is_open(path: &Path) -> bool {
    let all = fs::read_dir("/proc/self/fd").unwrap();
    all.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == path))
}

#[test]
fn it_is_closed_when_somebody_works_on_a_disk_and_there_is_a_thread_again() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().canonicalize().unwrap().join("area");
    File::create(&path).unwrap().set_len(4096).unwrap();
    let disk = Disk::open(&path, Access::ReadOnly).unwrap();
    let mut driver: Driver<Nothing, ()> = Driver::new(EngineKind::Threads).unwrap();

    let (soft, hard) = getrlimit(Resource::RLIMIT_DATA).unwrap();
    setrlimit(Resource::RLIMIT_DATA, data(), hard).unwrap();
    drop(disk);
    driver.poll(monotonic_now, &Nothing, &mut Vec::new());
    std::thread::sleep(Duration::from_millis(200));
    let open = is_open(&path);
    setrlimit(Resource::RLIMIT_DATA, soft, hard).unwrap();
    assert!(open, "there was a thread after all");

    let begin = Instant::now();
    while is_open(&path) {
        driver.poll(monotonic_now, &Nothing, &mut Vec::new());
        assert!(begin.elapsed() < Duration::from_secs(30), "it stays open");
        std::thread::sleep(Duration::from_millis(10));
    }
}
