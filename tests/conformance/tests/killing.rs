//! How the users of a lockspace are stopped, and what they and administrators may wish
//! (lease-algorithms.md 9.4, 10.2; socket-protocol.md 7.10, 7.16, 7.31, 10).
//!
//! The lockspace fails by damage to its host id lease, which is found at the next renewal: users are stopped gently until 8 s
//! and the grace have passed since the last good renewal, by force from then on.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sanlock_conformance::frozen::FreezableDir;
use sanlock_conformance::raw::{Header, SELF, cmd, flag, killpath};
use sanlock_conformance::storage::{LOCKSPACE, damage_host_id_until};
use sanlock_conformance::{Host, Lockspace, Program, Storage, User, bounded};

/// Seconds of grace: with the 8 until a failure they end 15 s after the damage or later.
const GRACE: [&str; 2] = ["-g", "10"];
/// Longer than any wait here; grace, slow starts and a loaded machine included.
const LIMIT: Duration = Duration::from_secs(90);

const SIGTERM: i32 = 128 + 15;
const SIGKILL: i32 = 128 + 9;

/// A host in a lockspace whose lease can be damaged.
struct Scene {
    host: Host,
    storage: Storage,
}

impl Scene {
    fn new(program: Program, resources: u64) -> Self {
        let storage = Storage::file();
        let host = Host::start_with(program, program, "host1", &GRACE);
        host.init(&storage, resources);
        host.join(&storage, 1);
        Self { host, storage }
    }

    fn user(&self, n: u64, wishes: &[&str]) -> User {
        User::start(&self.host, &self.storage, n, wishes)
    }

    /// An executable script in the case's directory, which runs `body` with `$out` naming a file that [`Scene::wrote`] reads.
    fn script(&self, name: &str, body: &str) -> String {
        let path = self.storage.dir().join(name);
        let out = self.storage.dir().join(format!("{name}.out"));
        let text = format!("#!/bin/sh\nout={}\n{body}\n", out.display());
        sanlock_executable::script(&path, &text, 0o755);
        path.to_str().map(str::to_owned).unwrap_or_else(|| panic!("a path in UTF-8"))
    }

    /// What a script has written so far.
    fn wrote(&self, name: &str) -> String {
        fs::read_to_string(self.storage.dir().join(format!("{name}.out"))).unwrap_or_default()
    }

    fn wait_until_wrote(&self, name: &str) -> String {
        bounded::poll_for(&format!("script {name} to run"), LIMIT, || {
            Some(self.wrote(name)).filter(|text| text.ends_with('\n'))
        })
    }

    /// The own sector is no host id lease any more, until what comes of that is seen.
    fn damage_until(&self, what: &str, seen: impl FnMut() -> bool) {
        damage_host_id_until(Path::new(self.storage.path()), 1, what, LIMIT, seen);
    }

    fn inq(&self) -> i32 {
        self.host.connect().inq_lockspace(&self.storage.lockspace(1), 0)
    }

    fn set_config(&self, name: &str, config: u32) -> i32 {
        let payload = Lockspace::new(name, 0, "", 0).encode();
        let mut connection = self.host.connect();
        let reply = connection.request(cmd::SET_CONFIG, 0, config, 7, &payload);
        assert_eq!((reply.length, reply.data2), (32, 7), "{reply:?}");
        assert!(connection.receive_to_end().is_empty(), "the connection is closed");
        reply.result()
    }

    fn wait_until_gone(&self) {
        bounded::wait_until("the lockspace to be gone", LIMIT, || self.inq() == -2);
    }

    /// A number of `status -D`.
    fn status_number(&self, key: &str) -> i32 {
        status_number(&self.host, key)
    }
}

fn status_number(host: &Host, key: &str) -> i32 {
    let text = host.client(&["client", "status", "-D"]).success().stdout;
    let value = text.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='));
    value.and_then(|v| v.parse().ok()).unwrap_or_else(|| panic!("no {key} in {text}"))
}

#[test]
fn every_user_is_ended_as_it_asked() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::new(program, 9);
    let ends_it = scene.script("ends_it", r#"echo "$#:$1:$2:$3:$4" >$out; kill -KILL "$4""#);
    let only_looks = scene.script("only_looks", "echo \"$#:$1\" >$out");
    let hangs = scene.script("hangs", "echo $$ >$out; exec sleep 1000");
    let forks = scene.script("forks", "sleep 1000 & echo $! >$out; exit 3");
    let restrict = |flags: u32| flags.to_string();
    let (no_kill, no_term, neither) = (
        restrict(flag::RESTRICT_SIGKILL),
        restrict(flag::RESTRICT_SIGTERM),
        restrict(flag::RESTRICT_SIGKILL | flag::RESTRICT_SIGTERM),
    );
    let mut plain = scene.user(1, &[]);
    let mut by_program = scene.user(2, &["killpath", &ends_it, r#"one "two th\ ree"#, "1"]);
    let mut looked_at = scene.user(3, &["killpath", &only_looks, "x", "0"]);
    let mut no_program = scene.user(4, &["killpath", "/nonexistent/program", "", "1"]);
    let mut hanging = scene.user(5, &["killpath", &hangs, "", "1", "unshare"]);
    let mut forked = scene.user(6, &["killpath", &forks, "", "1"]);
    let mut not_term = scene.user(7, &["restrict", &no_term, "stubborn"]);
    let mut not_either = scene.user(8, &["restrict", &neither, "stubborn"]);
    let mut not_kill = scene.user(9, &["restrict", &no_kill, "stubborn"]);

    scene.damage_until("a user to be ended", || plain.ended());
    // At once: signals, and the killpath programs.
    assert_eq!(plain.finish(LIMIT).code, SIGTERM);
    assert_eq!(not_term.finish(LIMIT).code, SIGKILL, "instead of SIGTERM");
    assert_eq!(not_either.finish(LIMIT).code, SIGKILL, "somebody has to end it");
    assert_eq!(by_program.finish(LIMIT).code, SIGKILL);
    let expected = format!("4:one:\"two:th ree:{}\n", by_program.pid());
    assert_eq!(scene.wait_until_wrote("ends_it"), expected);
    assert_eq!(scene.wait_until_wrote("only_looks"), "1:x\n", "no pid was asked for");
    // Those with a program have until the end of the grace, and get no SIGTERM.
    for user in [&mut looked_at, &mut no_program, &mut hanging, &mut forked, &mut not_kill] {
        assert!(!user.ended());
    }
    for user in [&mut looked_at, &mut no_program, &mut hanging, &mut forked] {
        assert_eq!(user.finish(LIMIT).code, SIGKILL);
    }
    assert!(scene.wrote("only_looks").lines().count() == 1, "it was run once");
    // SIGTERM goes on where SIGKILL is not wanted.
    let before = not_kill.terms();
    bounded::wait_until("more signals", LIMIT, || not_kill.terms() > before + 1);
    assert!(!not_kill.ended());
    not_kill.kill();
    scene.wait_until_gone();
    for name in ["hangs", "forks"] {
        let pid =
            scene.wait_until_wrote(name).trim().parse().unwrap_or_else(|_| panic!("{name} wrote no pid"));
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }

    // The lockspace can be made and joined anew.
    scene.host.init(&scene.storage, 1);
    scene.host.join(&scene.storage, 1);
    let _again = scene.user(1, &[]);
}

/// No signal could reach it: its pid is nobody's, or a stranger's. Its program knows what else it has started.
#[test]
fn the_program_of_a_process_that_has_ended_stops_who_has_its_connection() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::new(program, 1);
    let heir = scene.storage.dir().join("heir").display().to_string();
    let stops = scene.script("stops", &format!("echo ran >>$out; kill -KILL $(cat {heir})"));
    let wishes = ["killpath", &stops, "", "0", "heir", &heir];
    let parent = User::start_waiting(&scene.host, &scene.storage, 1, &wishes).finish(LIMIT);
    assert_eq!((parent.code, parent.stdout.as_str()), (0, "held\n"), "{parent}");
    scene.damage_until("the program to run", || !scene.wrote("stops").is_empty());
    scene.wait_until_gone();
    assert_eq!(scene.wrote("stops"), "ran\n", "once");
}

/// What a recovery needs is there from the start: the daemon gets no more memory from the system from the moment on that its
/// lockspace fails, and still warns, runs programs, sends signals, says why, and lets the lockspace end.
#[test]
fn a_daemon_that_gets_no_more_memory_stops_its_users_all_the_same() {
    let Some(program) = Program::ours_under_test("has no such promise") else { return };
    let scene = Scene::new(program, 9);
    let looks = scene.script("looks", "echo ran >>$out");
    let mut with_program = scene.user(1, &["killpath", &looks, "", "1"]);
    let mut stubborn = scene.user(2, &["stubborn"]);
    let mut others: Vec<User> = (3..=9).map(|n| scene.user(n, &[])).collect();
    let pid = scene.host.pid().to_string();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB"));
    let bytes = kib.and_then(|kib| kib.parse::<u64>().ok()).map(|kib| kib * 1024);
    let limit = bytes.unwrap_or_else(|| panic!("no size in {status}"));
    let set = std::process::Command::new("prlimit").args(["--pid", &pid, &format!("--as={limit}")]).status();
    assert!(set.is_ok_and(|status| status.success()), "the limit is set");

    scene.damage_until("a user to be ended", || others[0].ended());
    for user in &mut others {
        assert_eq!(user.finish(LIMIT).code, SIGTERM);
    }
    assert_eq!(scene.wait_until_wrote("looks"), "ran\n");
    for user in [&mut with_program, &mut stubborn] {
        assert_eq!(user.finish(LIMIT).code, SIGKILL, "when the grace is over");
    }
    scene.wait_until_gone();
    let said =
        ["check_our_lease corrupt", "sig 15 count 1", "sig 100 count 1", "sig 9 count", "all pids clear"];
    // The log has a thread of its own.
    bounded::wait_until("the log to say so", LIMIT, || {
        let log = scene.host.log();
        said.iter().all(|line| log.contains(line))
    });
}

#[test]
fn a_process_that_gives_everything_up_in_time_is_left_alone() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::new(program, 2);
    let looks = scene.script("looks", "echo ran >>$out");
    // Its killpath has us release what it holds.
    let mut user = scene.user(1, &["killpath", &looks, "", "0"]);
    scene.damage_until("the program to run", || !scene.wrote("looks").is_empty());
    scene.wait_until_wrote("looks");
    let release = scene.host.client(&[
        "client",
        "release",
        "-r",
        &scene.storage.resource_arg(1),
        "-p",
        &user.pid().to_string(),
    ]);
    assert_eq!(release.result(), Some(0), "{release}");
    scene.wait_until_gone();
    assert!(!user.ended());
    assert_eq!(scene.wrote("looks"), "ran\n");
}

#[test]
fn removal_kills_at_once_and_runs_no_program() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::new(program, 3);
    let looks = scene.script("looks", "echo ran >>$out");
    let mut plain = scene.user(1, &["stubborn"]);
    let mut with_program = scene.user(2, &["killpath", &looks, "", "1"]);
    let mut not_kill = scene.user(3, &["restrict", &flag::RESTRICT_SIGKILL.to_string()]);
    scene.host.leave(&scene.storage, 1);
    assert_eq!(plain.finish(LIMIT).code, SIGKILL);
    assert_eq!(with_program.finish(LIMIT).code, SIGKILL);
    assert_eq!(not_kill.finish(LIMIT).code, SIGTERM, "instead of SIGKILL");
    assert_eq!(scene.wrote("looks"), "");
    scene.host.join(&scene.storage, 1);
}

#[test]
fn what_set_config_answers_and_how_it_holds_a_lockspace_back() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::new(program, 1);
    let (used, unused) = (flag::CONFIG_USED, flag::CONFIG_UNUSED);
    for (name, config, expected) in [
        ("NOPE", used, -2),
        ("NOPE", 3, -2),
        (LOCKSPACE, 0, -22),
        (LOCKSPACE, 3, -22),
        (LOCKSPACE, used | flag::CONFIG_USED_BY_ORPHANS, -22),
        (LOCKSPACE, 64, -22),
        (LOCKSPACE, unused, 0),
        (LOCKSPACE, flag::CONFIG_USED_BY_ORPHANS, 0),
    ] {
        assert_eq!(scene.set_config(name, config), expected, "{name} {config}");
    }
    assert_eq!(scene.status_number("used_by_orphans"), 1);
    let cli = scene.host.client(&["client", "set_config", "-s", LOCKSPACE, "-u", "1"]).success();
    assert_eq!(cli.stdout, format!("set_config {LOCKSPACE} 1\nset_config done 0\n"));
    assert_eq!((scene.status_number("external_used"), scene.status_number("space_dead")), (1, 0));
    let none = scene.host.client(&["client", "set_config", "-s", LOCKSPACE]);
    assert_eq!((none.stdout.as_str(), none.code), ("set_config LS 0\nset_config done -22\n", 1));

    // Orphans that do not exist hold nothing back, USED does.
    let mut remover = scene.host.connect();
    assert_eq!(remover.rem_lockspace(&scene.storage.lockspace(1), flag::REM_ASYNC), 0);
    bounded::wait_until("the lockspace to be dead", LIMIT, || scene.status_number("space_dead") == 1);
    assert_eq!(scene.set_config(LOCKSPACE, used), -28);
    assert_eq!(scene.set_config(LOCKSPACE, flag::CONFIG_USED_BY_ORPHANS), -28);
    assert_eq!(scene.set_config(LOCKSPACE, flag::CONFIG_UNUSED_BY_ORPHANS), 0);
    std::thread::sleep(Duration::from_secs(2));
    assert_ne!(scene.inq(), -2, "still there");
    assert_eq!(scene.set_config(LOCKSPACE, unused), 0);
    scene.wait_until_gone();
}

#[test]
fn what_killpath_and_restrict_answer() {
    let Some(program) = Program::under_test() else { return };
    let host = Host::start(program, "host1");
    let payload = killpath("/bin/true", "a b");
    assert_eq!(host.connect().request(cmd::KILLPATH, 0, 0, SELF, &payload).result(), -16, "not registered");
    let mut connection = host.connect();
    connection.register();
    for flags in [0, flag::KILLPATH_PID] {
        let reply = connection.request(cmd::KILLPATH, flags, 0, SELF, &payload);
        let expected = Header { cmd_flags: flags, ..Header::request(cmd::KILLPATH, 0) };
        assert_eq!(reply, expected);
    }
    assert_eq!(connection.request(cmd::KILLPATH, 0, 0, SELF, &killpath("", "")).result(), 0);
    for flags in [flag::RESTRICT_SIGKILL, flag::RESTRICT_SIGTERM, 0xfff0, 0] {
        let reply = connection.request(cmd::RESTRICT, flags, 0, SELF, &[]);
        let expected = Header { cmd_flags: flags, ..Header::request(cmd::RESTRICT, 0) };
        assert_eq!(reply, expected);
        assert_eq!(host.connect().request(cmd::RESTRICT, flags, 0, SELF, &[]).result(), 0, "not registered");
    }
}

/// The parent of a process.
fn parent(pid: i32) -> i32 {
    let stat =
        fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_else(|error| panic!("{pid}: {error}"));
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    after_name
        .split_whitespace()
        .nth(1)
        .and_then(|field| field.parse().ok())
        .unwrap_or_else(|| panic!("{stat}"))
}

fn end(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap_or_else(|error| panic!("{signal} to {pid}: {error}"));
}

/// A helper that stands still is replaced after 3 s, and the next one runs what waits. Whatever a case finds or does within this time comes
/// before that.
const STANDS_STILL: Duration = Duration::from_secs(2);

/// Plays a case until it was quick enough to decide something, which on a busy machine it may not be.
fn decided(case: impl FnMut() -> bool) {
    assert!(std::iter::repeat_with(case).take(5).any(|decided| decided), "too slow, five times");
}

/// Damages the lockspace until it has failed. Returns a moment before that: when the daemon was last asked and did not say so.
fn fail(scene: &Scene) -> Instant {
    let mut before = Instant::now();
    scene.damage_until("the lockspace to be dead", || {
        let asked = Instant::now();
        let dead = scene.status_number("space_dead") == 1;
        if !dead {
            before = asked;
        }
        dead
    });
    before
}

#[test]
fn a_helper_or_guard_that_dies_or_stands_still_is_replaced() {
    let Some(program) = Program::ours_under_test("does not restart its helper") else { return };
    decided(|| helper_and_guard_are_replaced(program));
}

fn helper_and_guard_are_replaced(program: Program) -> bool {
    let scene = Scene::new(program, 3);
    let looks = scene.script("looks", "echo ran >>$out");
    let with_program: Vec<User> = (1..=2).map(|n| scene.user(n, &["killpath", &looks, "", "0"])).collect();
    let mut stubborn = scene.user(3, &["stubborn"]);
    let mut helper = 0;
    let replaced = |old: &mut i32| {
        bounded::wait_until("another helper", LIMIT, || {
            let now = scene.status_number("helper_pid");
            let another = now != *old && now != i32::try_from(scene.host.pid()).unwrap_or(0);
            if another {
                *old = now;
            }
            another
        });
    };
    replaced(&mut helper);
    // The helper, then the guard: the helper becomes the guard of another one.
    end(helper, Signal::SIGKILL);
    replaced(&mut helper);
    let guard = parent(helper);
    assert_eq!(
        parent(guard),
        i32::try_from(scene.host.pid()).unwrap_or(0),
        "the guard is the daemon's child"
    );
    end(guard, Signal::SIGKILL);
    let old = helper;
    replaced(&mut helper);
    assert_eq!(parent(helper), old);
    // One that stands still delays programs by a few seconds, and no signal.
    end(helper, Signal::SIGSTOP);
    let before = fail(&scene);
    bounded::wait_until("SIGTERM", LIMIT, || stubborn.terms() > 0);
    let ran = scene.wrote("looks");
    if before.elapsed() > STANDS_STILL {
        return false;
    }
    assert_eq!(ran, "");
    bounded::wait_until("both programs to run", LIMIT, || scene.wrote("looks") == "ran\nran\n");
    assert_eq!(stubborn.finish(LIMIT).code, SIGKILL);
    for mut user in with_program {
        assert_eq!(user.finish(LIMIT).code, SIGKILL);
    }
    scene.wait_until_gone();
    assert_eq!(scene.wrote("looks"), "ran\nran\n", "each once");
    true
}

#[test]
fn the_helper_ends_with_the_daemon_whoever_started_it() {
    let Some(program) = Program::under_test() else { return };
    for mut host in [Host::start(program, "host1"), Host::start_ignoring_children(program, "host1")] {
        let mut helper = 0;
        bounded::wait_until("the helper", LIMIT, || {
            helper = status_number(&host, "helper_pid");
            helper > 0
        });
        // With ours that is the guard, which is no child of the test.
        let guard = parent(helper);
        host.client(&["client", "shutdown"]).success();
        host.wait_for_end(LIMIT);
        let runs = |pid: i32| kill(Pid::from_raw(pid), None).is_ok();
        bounded::wait_until("the helper and its guard to end", LIMIT, || !runs(helper) && !runs(guard));
    }
}

#[test]
fn a_helper_that_goes_on_runs_no_program_that_is_not_wanted_any_more() {
    let Some(program) = Program::ours_under_test("sends what was queued, however old") else { return };
    decided(|| a_program_that_is_not_wanted_is_not_run(program));
}

fn a_program_that_is_not_wanted_is_not_run(program: Program) -> bool {
    let scene = Scene::new(program, 1);
    let looks = scene.script("looks", "echo $1 >>$out");
    let mut user = scene.user(1, &["killpath", &looks, "first", "0"]);
    let mut helper = 0;
    bounded::wait_until("the helper", LIMIT, || {
        helper = scene.status_number("helper_pid");
        fs::read_to_string(format!("/proc/{helper}/comm")).is_ok_and(|name| name == "sanlock-helper\n")
    });
    end(helper, Signal::SIGSTOP);
    let before = fail(&scene);
    let lease = scene.storage.resource_arg(1);
    let release = ["client", "release", "-r", &lease, "-p", &user.pid().to_string()];
    assert_eq!(scene.host.client(&release).result(), Some(0));
    let in_time = before.elapsed() <= STANDS_STILL;
    // It goes on, unless it was replaced already.
    let _ = kill(Pid::from_raw(helper), Signal::SIGCONT);
    scene.wait_until_gone();
    assert!(!user.ended());
    // Another failure, whose program runs, comes after everything that was queued for the first.
    scene.host.init(&scene.storage, 1);
    scene.host.join(&scene.storage, 1);
    let mut other = scene.user(1, &["killpath", &looks, "second", "0"]);
    scene.damage_until("the program to run", || scene.wrote("looks").ends_with("second\n"));
    let ran = scene.wrote("looks");
    other.kill();
    scene.wait_until_gone();
    if ran != "second\n" && !in_time {
        return false;
    }
    assert_eq!(ran, "second\n");
    true
}

/// Leases, run directory and log lie on one file system, on which every write hangs.
#[test]
fn a_dead_disk_under_the_daemon_itself_delays_no_signal() {
    let Some(program) = Program::ours_under_test("may wait for its run directory") else { return };
    let Some(mut place) = FreezableDir::new() else { return };
    let run_dir = tempfile::tempdir_in(place.path()).unwrap_or_else(|error| panic!("run directory: {error}"));
    let storage = Storage::file_in(place.path());
    let host = Host::start_in(run_dir, program, "host1", &GRACE);
    host.init(&storage, 2);
    host.join(&storage, 1);
    let mut gentle = User::start(&host, &storage, 1, &[]);
    let mut stubborn = User::start(&host, &storage, 2, &["stubborn"]);
    place.freeze();
    // 8 and 10 s after the last good renewal, and in any case while it is frozen: thawing tells.
    assert_eq!(gentle.finish(LIMIT).code, SIGTERM);
    assert_eq!(stubborn.finish(LIMIT).code, SIGKILL);
    assert!(host.connect().version().is_ok(), "it answers");
    place.thaw();
    bounded::wait_until("the lockspace to be gone", LIMIT, || {
        host.connect().inq_lockspace(&storage.lockspace(1), 0) == -2
    });
}
