//! Opens and closes that hang on one path, or on many of one file system, leave others what they need. A FUSE file whose server is
//! silent, under as many names as a test wants.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};
use sanlock_blockio::{
    Access, Asker, CLOSERS_FOR_PATHS, CLOSERS_OF_A_PATH, Disk, MAX_BACKGROUND_OPENS, OpenError, PendingOpen,
};
use support::fuse::{SilentFile, Waiting};
use support::{AT_ONCE, eventually, file_in, open, promptly, run, threads_named};

/// A disk that works answers within this, on a busy machine too.
const HEALTHY: Duration = Duration::from_secs(60);
/// How long a hang is observed.
const WATCHED: Duration = Duration::from_millis(300);
/// Longer than anything takes that waits for nothing.
const LONG: Duration = Duration::from_secs(5);

/// One test at a time: they count threads and descriptors, and what they look at is there once in a process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Other names of a file.
fn names(dir: &Path, file: &Path, count: usize) -> Vec<PathBuf> {
    let name = |n| {
        let name = dir.join(format!("name{n}"));
        symlink(file, &name).unwrap();
        name
    };
    (0..count).map(name).collect()
}

fn begin(path: &Path, asker: Asker) -> Result<PendingOpen, OpenError> {
    promptly(AT_ONCE, "beginning to open", || Disk::open_in_background(path, Access::ReadWrite, asker))
}

/// The result of an open that ends.
fn end(mut pending: PendingOpen) -> Result<Arc<Disk>, OpenError> {
    poll(&mut [PollFd::new(pending.completion_fd(), PollFlags::POLLIN)], 60_000_u16).unwrap();
    pending.take().unwrap()
}

/// A file that is silent, and whose attributes are known, so that `open` itself hangs.
fn silent() -> Option<SilentFile> {
    let file = SilentFile::new()?;
    let before = descriptors();
    drop(open(&file.path));
    eventually("it is closed", || descriptors() <= before);
    file.fall_silent();
    Some(file)
}

#[test]
fn an_open_that_hangs_is_waited_for_and_not_begun_again() {
    let _alone = alone();
    let Some(file) = silent() else { return };
    let before = descriptors();
    // Those of opens before stay for a while, and do the next ones.
    let threads = threads_named("sanlock-open").max(1);
    let start = Instant::now();
    let error = Disk::open_timeout(&file.path, Access::ReadWrite, Asker::Command, WATCHED).unwrap_err();
    assert_eq!(error, OpenError::TimedOut { path: file.path.clone() });
    assert!((WATCHED..WATCHED + HEALTHY).contains(&start.elapsed()), "each waits for as long as it wants");
    // Whoever asks, and however many: more than there may be opens.
    let askers = [Asker::Command, Asker::Lockspace, Asker::Lease];
    let mut pending: Vec<_> = askers
        .iter()
        .flat_map(|&asker| (0..=MAX_BACKGROUND_OPENS).map(move |_| asker))
        .map(|asker| begin(&file.path, asker).unwrap())
        .collect();
    let (joined, nothing) = Disk::open_on_errand(&file.path, Access::ReadWrite, Asker::Lease).unwrap();
    assert!(nothing.is_none(), "there is one under way");
    pending.push(joined);
    let error = Disk::open_timeout(&file.path, Access::ReadWrite, Asker::Lease, WATCHED).unwrap_err();
    assert_eq!(error.code(), sanlock_blockio::TIMED_OUT_CODE);
    assert_eq!(file.waiting(Waiting::Open), 1);
    assert!(threads_named("sanlock-open") <= threads, "nobody else opens it");
    // A descriptor for reading only is another one.
    let reading = Disk::open_in_background(&file.path, Access::ReadOnly, Asker::Command).unwrap();
    eventually("it is opened in another way", || file.waiting(Waiting::Open) == 2);
    assert!(pending.iter_mut().all(|open| open.take().is_none()));
    file.resume();
    let disks: Vec<_> = pending.into_iter().map(|open| end(open).unwrap()).collect();
    assert!(disks.iter().all(|disk| Arc::ptr_eq(disk, &disks[0])), "one descriptor for all who waited");
    assert_eq!(end(reading).unwrap().access(), Access::ReadOnly);
    let again = Disk::open_timeout(&file.path, Access::ReadWrite, Asker::Lease, HEALTHY).unwrap();
    assert!(!Arc::ptr_eq(&again, &disks[0]), "who comes later opens it anew");
    let last = Arc::clone(&disks[0]);
    drop(disks);
    assert_eq!(Arc::strong_count(&last), 1, "nobody else keeps it");
    drop((again, last));
    eventually("all is closed", || descriptors() <= before);
}

#[test]
fn an_open_that_ends_when_nobody_waits_any_more_is_closed() {
    let _alone = alone();
    let Some(file) = silent() else { return };
    let before = descriptors();
    for _ in 0..3 {
        Disk::open_timeout(&file.path, Access::ReadWrite, Asker::Command, WATCHED / 3).unwrap_err();
    }
    file.resume();
    eventually("it is closed", || descriptors() <= before);
    Disk::open_timeout(&file.path, Access::ReadWrite, Asker::Command, HEALTHY).unwrap();
    eventually("so is the next one", || descriptors() <= before);
}

#[test]
fn an_open_that_nobody_carries_out_keeps_nobody_waiting() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = file_in(dir.path(), "file", 4096);
    let begin_here = || Disk::open_on_errand(&path, Access::ReadWrite, Asker::Lease).unwrap();
    let (first, errand) = begin_here();
    let joined = begin(&path, Asker::Command).unwrap();
    drop(errand);
    for open in [first, joined] {
        assert_eq!(end(open).unwrap_err().code(), -11, "as without a thread");
    }
    let (again, errand) = begin_here();
    errand.unwrap().run();
    assert_eq!(end(again).unwrap().size(), 4096);
}

#[test]
fn opens_of_others_that_hang_are_no_reason_to_refuse_those_of_leases() {
    let _alone = alone();
    let Some(file) = silent() else { return };
    let dir = tempfile::tempdir().unwrap();
    let healthy = file_in(dir.path(), "healthy", 1 << 20);
    let mut names = names(dir.path(), &file.path, 3 * MAX_BACKGROUND_OPENS).into_iter();
    let mut pending = Vec::new();
    let askers = [Asker::Command, Asker::Lockspace, Asker::Lease];
    for (at, asker) in askers.into_iter().enumerate() {
        // All these names are on the same mount.
        let share = asker.opens_max() / 4;
        for name in names.by_ref().take(share) {
            pending.push(begin(&name, asker).unwrap());
        }
        let refused = begin(&healthy, asker).unwrap_err();
        assert_eq!(refused, OpenError::TooManyHanging { path: healthy.clone(), limit: share });
        for &other in &askers[at + 1..] {
            promptly(HEALTHY, "an open for somebody else", || {
                Disk::open_timeout(&healthy, Access::ReadWrite, other, HEALTHY).unwrap();
            });
        }
    }
    assert_eq!(pending.len(), MAX_BACKGROUND_OPENS / 4);
    eventually("all hang", || file.waiting(Waiting::Open) == pending.len());
    // What is under way can be waited for all the same.
    let joined = begin(pending[0].path(), Asker::Command).unwrap();
    file.resume();
    for open in pending.into_iter().chain([joined]) {
        end(open).unwrap();
    }
    begin(&healthy, Asker::Command).unwrap();
}

#[test]
fn an_open_that_has_time_waits_for_others_to_end() {
    let _alone = alone();
    let Some(file) = silent() else { return };
    let dir = tempfile::tempdir().unwrap();
    let healthy = file_in(dir.path(), "healthy", 1 << 20);
    let share = Asker::Command.opens_max() / 4;
    let names = names(dir.path(), &file.path, share);
    let pending: Vec<_> = names.iter().map(|name| begin(name, Asker::Command).unwrap()).collect();
    let ask = |timeout| Disk::open_timeout(&healthy, Access::ReadWrite, Asker::Command, timeout);
    let refused = OpenError::TooManyHanging { path: healthy.clone(), limit: share };
    let start = Instant::now();
    assert_eq!(ask(WATCHED).unwrap_err(), refused, "they do hang");
    assert!((WATCHED..WATCHED + HEALTHY).contains(&start.elapsed()));
    // When each of them has hung for as long as somebody would wait, nobody does.
    thread::sleep(LONG);
    let start = Instant::now();
    assert_eq!(ask(LONG).unwrap_err(), refused);
    assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
    thread::scope(|scope| {
        let waits = scope.spawn(|| ask(HEALTHY));
        thread::sleep(WATCHED);
        assert!(!waits.is_finished());
        file.resume();
        waits.join().unwrap().unwrap();
    });
    pending.into_iter().for_each(|open| drop(end(open).unwrap()));
}

#[test]
fn opens_that_hang_on_one_mount_are_no_reason_to_refuse_those_on_others() {
    let _alone = alone();
    let Some(file) = silent() else { return };
    let dir = tempfile::tempdir().unwrap();
    let healthy = file_in(dir.path(), "healthy", 1 << 20);
    let mount = dir.path().join("mnt");
    fs::create_dir(&mount).unwrap();
    run("mount", &["-t", "tmpfs", "links", mount.to_str().unwrap()]).unwrap();
    let mut pending = Vec::new();
    for name in names(&mount, &file.path, 2 * Asker::Lease.opens_max()) {
        pending.extend(begin(&name, Asker::Lease).ok());
    }
    let share = Asker::Lease.opens_max() / 4;
    assert_eq!(pending.len(), share, "not all there may be");
    eventually("the mounts are known, and another one has its opens", || {
        Disk::open_timeout(&healthy, Access::ReadWrite, Asker::Lease, HEALTHY).is_ok()
    });
    let refused = begin(&mount.join("name200"), Asker::Lease).unwrap_err();
    assert!(matches!(refused, OpenError::TooManyHanging { limit, .. } if limit == share));
    file.resume();
    pending.into_iter().for_each(|open| drop(end(open).unwrap()));
    run("umount", &["-l", mount.to_str().unwrap()]).unwrap();
}

#[test]
fn an_open_that_hangs_on_what_was_unmounted_is_made_once_more_and_not_for_ever() {
    let _alone = alone();
    let Some(file) = silent() else { return };
    fn ask(path: &Path) -> Result<Arc<Disk>, OpenError> {
        Disk::open_timeout(path, Access::ReadWrite, Asker::Lease, WATCHED)
    }
    assert!(matches!(ask(&file.path), Err(OpenError::TimedOut { .. })));
    eventually("it is known where it hangs, and nothing changes by that", || {
        thread::sleep(Duration::from_secs(2));
        matches!(ask(&file.path), Err(OpenError::TimedOut { .. }))
    });
    assert_eq!(file.waiting(Waiting::Open), 1);
    let target = file.path.to_str().unwrap();
    run("umount", &["-l", target]).unwrap();
    fs::write(&file.path, [0; 8192]).unwrap();
    eventually("the path is opened", || ask(&file.path).is_ok_and(|disk| disk.size() == 8192));
    eventually("who looked has ended", || threads_named("sanlock-mounts") == 0);
    // The first one is where it was, and hinders nobody.
    assert_eq!(file.waiting(Waiting::Open), 1);
    assert_eq!(ask(&file.path).unwrap().size(), 8192);
    file.resume();
}

#[test]
fn who_joins_an_open_gets_what_the_path_leads_to_since() {
    let _alone = alone();
    let Some(file) = silent() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = names(dir.path(), &file.path, 1).remove(0);
    let first = begin(&path, Asker::Command).unwrap();
    eventually("it hangs", || file.waiting(Waiting::Open) == 1);
    // The path leads elsewhere when the second one asks.
    fs::remove_file(&path).unwrap();
    fs::write(&path, [0; 4096]).unwrap();
    let second = begin(&path, Asker::Lease).unwrap();
    file.resume();
    assert_eq!(end(second).unwrap().size(), 4096);
    end(first).unwrap();
}

#[test]
fn closes_that_hang_on_one_path_hold_a_few_threads_and_no_other_path() {
    let _alone = alone();
    let Some(file) = SilentFile::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let healthy = file_in(dir.path(), "healthy", 1 << 20);
    eventually("threads of earlier tests have ended", || threads_named("sanlock-close") == 0);
    let before = descriptors();
    // More than were ever kept for later.
    let disks: Vec<_> = (0..300).map(|_| open(&file.path)).collect();
    file.fall_silent();
    promptly(AT_ONCE, "drop", || drop(disks));
    eventually("closes hang", || file.waiting(Waiting::Close) == CLOSERS_OF_A_PATH);
    let hanging = descriptors();
    for _ in 0..300 {
        drop(open(&healthy));
        eventually("other disks are closed", || descriptors() <= hanging);
    }
    assert_eq!(file.waiting(Waiting::Close), CLOSERS_OF_A_PATH);
    let threads = threads_named("sanlock-close");
    assert!(threads < 16, "not one for each descriptor: {threads}");
    file.resume();
    eventually("all is closed when the storage answers", || descriptors() <= before);
}

#[test]
fn closes_that_hang_on_many_paths_of_a_file_system_leave_threads_to_others() {
    let _alone = alone();
    let Some(file) = SilentFile::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let healthy = file_in(dir.path(), "healthy", 1 << 20);
    let before = descriptors();
    let names = names(dir.path(), &file.path, 2 * CLOSERS_FOR_PATHS);
    let disks: Vec<_> = names.iter().map(|name| open(name)).collect();
    file.fall_silent();
    promptly(AT_ONCE, "drop", || drop(disks));
    eventually("closes hang", || file.waiting(Waiting::Close) == CLOSERS_FOR_PATHS);
    let hanging = descriptors();
    for _ in 0..50 {
        drop(open(&healthy));
        eventually("other disks are closed", || descriptors() <= hanging);
    }
    assert_eq!(file.waiting(Waiting::Close), CLOSERS_FOR_PATHS);
    file.resume();
    eventually("all is closed when the storage answers", || descriptors() <= before);
}
