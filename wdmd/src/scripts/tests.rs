//! Real scripts: good, failing, killed, hanging, forking, not executable.

use super::*;
use crate::hung::with_hung_directory;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sanlock_sys::clock::monotonic_ms;
use sanlock_sys::thread;
use std::os::fd::AsFd;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

struct Dir {
    dir: tempfile::TempDir,
    scripts: Scripts,
    log: Log,
}

impl Dir {
    fn new(kill_after: u32) -> Self {
        Self::with(kill_after, Hirer::start().unwrap())
    }

    fn with(kill_after: u32, hirer: Hirer) -> Self {
        // Beside this program: where things may be executed.
        let here = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir_in(here.parent().unwrap()).unwrap();
        let scripts = Scripts::with(dir.path().to_owned(), kill_after, hirer);
        Self { dir, scripts, log: Log::start(false).unwrap() }
    }

    fn add(&mut self, name: &str, text: &str, mode: u32) {
        sanlock_executable::script(&self.dir.path().join(name), text, mode);
        self.scripts.scan(&self.log);
    }

    fn turn(&mut self, fire_timeout: u32) -> Vec<Verdict> {
        self.scripts.turn(Time::from_millis(monotonic_ms()), true, fire_timeout, &self.log)
    }

    /// Turns until the script in slot 0 is judged so.
    fn until(&mut self, fire_timeout: u32, good: bool) {
        let end = Instant::now() + LONG;
        while !self.turn(fire_timeout).contains(&Verdict { slot: 0, good }) {
            assert!(Instant::now() < end, "{}", self.dump());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn dump(&self) -> String {
        let mut text = String::new();
        self.scripts.dump(Time::from_millis(monotonic_ms()), &mut text);
        text
    }

    fn field(&self, name: &str) -> u32 {
        let dump = self.dump();
        let mut words = dump.split_whitespace().skip_while(|word| *word != name);
        words.nth(1).unwrap().parse().unwrap()
    }
}

#[test]
fn good_and_failing_scripts_with_and_without_interpreter_line() {
    for (text, good, field) in [
        ("#!/bin/sh\nexit 0\n", true, "good"),
        ("exit 0\n", true, "good"),
        ("#!/bin/sh\nexit 7\n", false, "fail"),
        ("exit 7\n", false, "fail"),
        ("#!/no/such/interpreter\n", false, "fail"),
        ("#!/bin/sh\nkill -9 $$\n", false, "kill"),
    ] {
        let mut dir = Dir::new(0);
        dir.add("script", text, 0o755);
        dir.until(60, good);
        assert_eq!(dir.field(field), 1, "{text}: {}", dir.dump());
    }
}

#[test]
fn a_failing_script_is_run_again_soon_and_can_recover() {
    let mut dir = Dir::new(0);
    dir.add("script", "#!/bin/sh\ntest -e \"$0.ok\"\n", 0o755);
    dir.until(60, false);
    fs::write(dir.dir.path().join("script.ok"), "").unwrap();
    dir.until(60, true);
    assert!(dir.field("run") >= 2);
}

#[test]
fn a_hanging_script_is_bad_until_it_ends_and_holds_up_nobody() {
    let mut dir = Dir::new(0);
    dir.add("script", "#!/bin/sh\nwhile ! test -e \"$0.end\"; do sleep 0.05; done\n", 0o755);
    let started = Instant::now();
    assert!(dir.turn(10).is_empty());
    assert!(started.elapsed() < LONG / 10, "starting does not wait");
    // One second with a fire timeout of 10; also with one below, where the original leaves none.
    dir.until(9, false);
    dir.until(10, false);
    assert_eq!((dir.field("long"), dir.field("run")), (1, 1));
    fs::write(dir.dir.path().join("script.end"), "").unwrap();
    dir.until(10, true);
}

#[test]
fn a_script_is_killed_with_what_it_started() {
    let mut dir = Dir::new(1);
    dir.add("script", "#!/bin/sh\nsleep 1000 &\necho $! >\"$0.pid\"\nwait\n", 0o755);
    let end = Instant::now() + LONG;
    dir.turn(60);
    // Nothing is killed without a turn, so it gets as far as this on the slowest machine.
    let pid = loop {
        let pid = fs::read_to_string(dir.dir.path().join("script.pid")).unwrap_or_default();
        if pid.ends_with('\n') {
            break pid;
        }
        assert!(Instant::now() < end, "{}", dir.dump());
        std::thread::sleep(Duration::from_millis(10));
    };
    while dir.field("kill") == 0 {
        dir.turn(60);
        assert!(Instant::now() < end, "{}", dir.dump());
        std::thread::sleep(Duration::from_millis(10));
    }
    let stat = PathBuf::from(format!("/proc/{}/stat", pid.trim()));
    // Gone, or dead and not yet reaped by whoever inherited it.
    while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_a_script_leaves_running_does_not_matter() {
    let mut dir = Dir::new(0);
    dir.add("script", "#!/bin/sh\nsleep 2 &\nexit 0\n", 0o755);
    dir.until(60, true);
}

#[test]
fn a_script_inherits_no_signal_mask_and_no_descriptors() {
    let mut dir = Dir::new(0);
    dir.add(
        "script",
        "#!/bin/sh\ngrep SigBlk /proc/self/status >\"$0.out\"\nls /proc/self/fd >>\"$0.out\"\n",
        0o755,
    );
    let _open = fs::File::open("/dev/null").unwrap();
    // As the daemon does at its start with what its caller left open.
    sanlock_sys::process::close_on_exec_from(3).unwrap();
    dir.until(60, true);
    let out = fs::read_to_string(dir.dir.path().join("script.out")).unwrap();
    let mut words = out.split_whitespace();
    assert_eq!((words.next(), words.next()), (Some("SigBlk:"), Some("0000000000000000")));
    // Standard files, and the directory that is listed.
    assert_eq!(words.collect::<Vec<_>>(), ["0", "1", "2", "3"]);
}

#[test]
fn files_that_are_no_scripts_and_those_that_are_too_many() {
    let mut dir = Dir::new(0);
    dir.add("not-executable", "exit 0\n", 0o644);
    dir.add("group-only", "exit 0\n", 0o070);
    dir.add(".hidden", "exit 0\n", 0o755);
    fs::create_dir(dir.dir.path().join("directory")).unwrap();
    dir.scripts.scan(&dir.log);
    assert_eq!(dir.dump(), "");
    assert!(dir.turn(60).is_empty());
    for number in 0..10 {
        dir.add(&format!("s{number}"), "exit 0\n", 0o755);
    }
    assert_eq!(dir.dump().lines().count(), MAX_SCRIPTS);
    // One that goes away is no failure, and makes room.
    fs::remove_file(dir.dir.path().join("s0")).unwrap();
    dir.until(60, true);
    assert!(!dir.dump().contains("name s0 "), "{}", dir.dump());
    dir.scripts.scan(&dir.log);
    assert!(dir.dump().contains("script 0 name s8 "), "{}", dir.dump());
    Scripts::new(PathBuf::from("/no/such/directory"), 0).unwrap().scan(&dir.log);
}

#[test]
fn a_new_script_is_found_beside_the_loop() {
    let mut dir = Dir::new(0);
    fs::create_dir(dir.dir.path().join("directory")).unwrap();
    let path = dir.dir.path().join("new");
    sanlock_executable::script(&path, "exit 0\n", 0o755);
    dir.scripts.rescan();
    dir.until(60, true);
    assert!(dir.dump().starts_with("script 0 name new "), "{}", dir.dump());
    assert_eq!(dir.dump().lines().count(), 1);
}

#[test]
fn a_thread_that_is_long_in_coming_holds_up_nobody_and_one_that_does_not_come_is_a_failure() {
    let (come, comes) = sync_channel::<()>(0);
    let hirer = Hirer::start_with(move |name, work| {
        comes.recv().map_err(|_| io::ErrorKind::OutOfMemory)?;
        thread::spawn(name, 1 << 18, work)
    });
    let mut dir = Dir::with(0, hirer.unwrap());
    dir.add("script", "exit 0\n", 0o755);
    dir.scripts.rescan();
    // Goes on, although there is no thread, and does not take that for a good script.
    dir.until(9, false);
    assert_eq!((dir.field("run"), dir.field("long"), dir.field("fail")), (1, 1, 0));
    // For the search and the script.
    come.send(()).unwrap();
    come.send(()).unwrap();
    dir.until(9, true);
    assert_eq!((dir.field("good"), dir.field("fail")), (1, 0));
    // No more are to be had.
    drop(come);
    dir.until(9, false);
    assert_eq!((dir.field("run"), dir.field("fail"), dir.field("last_result")), (2, 1, 1));
    assert!(dir.scripts.wake_at(Time::from_millis(monotonic_ms())).is_some(), "it is tried again");
}

/// Threads that have this thread's mounts, itself included.
fn threads_here() -> usize {
    let here = fs::read_link("/proc/thread-self/ns/mnt").unwrap();
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks.filter(|task| fs::read_link(task.path().join("ns/mnt")).is_ok_and(|mounts| mounts == here)).count()
}

#[test]
fn a_directory_that_hangs_holds_up_nobody_and_is_read_again_later() {
    with_hung_directory(|hung| {
        let path = hung.dir().join("new");
        fs::write(&path, "exit 0\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let log = Log::start(false).unwrap();
        hung.hang();
        let mut scripts = Scripts::new(hung.dir().to_owned(), 0).unwrap();
        let now = || Time::from_millis(monotonic_ms());
        for _ in 0..5 {
            scripts.rescan();
            assert_eq!(scripts.turn(now(), true, 60, &log), []);
            assert!(scripts.wake_at(now()).is_some(), "the result is waited for");
        }
        // Whoever counts comes after all that was asked for.
        let counted = scripts.hirer.hire("wdmd-test", threads_here, |_| 0);
        let threads = counted.recv_timeout(LONG / 2).unwrap();
        assert_eq!(threads, 4, "this, the one that starts others, one scan at a time, and whoever counts");
        hung.end();
        // The scan that hung fails; the signals that came meanwhile are not forgotten.
        let end = Instant::now() + LONG;
        while !scripts.turn(now(), true, 60, &log).contains(&Verdict { slot: 0, good: true }) {
            assert!(Instant::now() < end);
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(scripts.slots.iter().flatten().count(), 1);
    });
}

/// Whether something has the other end of this pipe open.
fn is_held(reader: &std::io::PipeReader) -> bool {
    let mut fds = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).unwrap();
    !fds[0].revents().unwrap().contains(PollFlags::POLLHUP)
}

/// Whether this thread has a child, told by its mounts, that has not executed anything yet: its command line is still ours.
fn has_unexecuted_child() -> bool {
    let ours = fs::read("/proc/self/cmdline").unwrap();
    let here = fs::read_link("/proc/thread-self/ns/mnt").unwrap();
    fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        pid.is_some_and(|pid| pid != std::process::id())
            && fs::read_link(entry.path().join("ns/mnt")).is_ok_and(|mounts| mounts == here)
            && fs::read(entry.path().join("cmdline")).is_ok_and(|line| line == ours)
    })
}

#[test]
fn a_script_whose_execution_hangs_holds_none_of_our_files_open() {
    with_hung_directory(|hung| {
        hung.hang();
        let mut dir = Dir::new(0);
        // The file itself is at hand, what it is to be run by is not.
        let text = format!("#!{}\n", hung.dir().join("interpreter").display());
        dir.add("script", &text, 0o755);
        // Stands for the device: stopped only when the last copy of its descriptor is closed.
        let (reader, device) = std::io::pipe().unwrap();
        dir.turn(60);
        let end = Instant::now() + LONG / 2;
        while !has_unexecuted_child() {
            assert!(Instant::now() < end, "{}", dir.dump());
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(is_held(&reader));
        drop(device);
        // What other tests start has a copy for a moment.
        while is_held(&reader) {
            assert!(Instant::now() < end, "a child has a copy of our file");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(has_unexecuted_child(), "it still hangs");
        hung.end();
        dir.until(60, false);
    });
}

#[test]
fn scripts_cannot_speak_for_the_daemon_to_the_service_manager() {
    let command = command(OsStr::new("/bin/true"), &[]);
    assert!(command.get_envs().any(|change| change == (OsStr::new("NOTIFY_SOCKET"), None)));
}
