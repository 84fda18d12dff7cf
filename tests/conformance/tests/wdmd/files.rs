//! The files of the daemon, and the rule that there is only one (wdmd.md 3.2 to 3.4).

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Pid;

use sanlock_conformance::bounded::{self, Output, Running};
use sanlock_conformance::wdmd::SOON;
use sanlock_conformance::{Machine, Program, Table, Wdmd};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .permissions()
        .mode()
        & 0o7777
}

/// The last line of a refusal of ours is what to do; the original has none.
#[track_caller]
fn says_what_to_do(program: Program, refused: &Output, words: &str) {
    let last = refused.stderr.lines().last().unwrap_or_default();
    let says = last.starts_with("wdmd: next: ");
    assert_eq!(says, program == Program::Ours, "{refused}");
    assert!(!says || last.contains(words), "{words}: {refused}");
}

#[test]
fn files_are_where_and_as_they_must_be() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&["-G", "disk"]);
    let mut table = Table::default();
    table.expect("pid file", machine.pid_file(), format!("{}\n", wdmd.pid()));
    table.expect("mode of the pid file", mode(&machine.run_file("wdmd.pid")), 0o644);
    table.expect("mode of /run/wdmd", mode(&machine.run_file("")), 0o755);
    let socket = fs::metadata(machine.run_file("wdmd.sock")).unwrap();
    table.expect("socket", socket.file_type().is_socket(), true);
    table.expect("mode of the socket", mode(&machine.run_file("wdmd.sock")), 0o660);
    let disk = nix::unistd::Group::from_name("disk").unwrap().unwrap().gid.as_raw();
    table.expect("owner of the socket", (socket.uid(), socket.gid()), (0, disk));
    let marker = fs::metadata(machine.marker()).unwrap();
    table.expect("marker", (marker.len(), mode(&machine.marker())), (0, 0o644));
}

#[test]
fn a_group_that_does_not_exist_is_logged_and_means_root() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&["-G", "nosuch"]);
    assert_eq!(fs::metadata(machine.run_file("wdmd.sock")).unwrap().gid(), 0);
    wdmd.wait_for_log("group 'nosuch' not found, using socket gid: 0");
}

#[test]
fn leftovers_of_an_earlier_daemon_are_replaced() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    fs::create_dir(machine.run_file("")).unwrap();
    fs::write(machine.run_file("wdmd.pid"), "123456789 something long\n").unwrap();
    fs::write(machine.run_file("wdmd.sock"), "").unwrap();
    let wdmd = machine.start(&[]);
    assert_eq!(machine.pid_file(), format!("{}\n", wdmd.pid()));
}

#[test]
fn a_second_daemon_is_refused_and_the_first_is_not_harmed() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let (mut client, _) = wdmd.armed();
    let calls = machine.devices().events().len();
    let second = machine.start_unready(&[]).finish();
    assert_eq!(second.code, 255, "{second}");
    assert!(second.stderr.contains("/run/wdmd/wdmd.pid"), "{second}");
    says_what_to_do(program, &second, "'wdmd -d' asks the daemon that runs");
    assert_eq!(machine.pid_file(), format!("{}\n", wdmd.pid()));
    assert!(machine.marker().exists());
    assert!(machine.devices().events()[calls..].iter().all(|event| event.call == "keepalive"));
    let _ = client.status();
    let _ = wdmd.connect().status();
}

#[test]
fn of_several_daemons_started_at_once_one_runs() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let mut all: Vec<_> = (0..6).map(|_| machine.start_unready(&[])).collect();
    let mut running = 0;
    bounded::wait_until("all but one to end", SOON, || {
        let ended: Vec<bool> = all.iter_mut().map(Wdmd::ended).collect();
        running = ended.iter().position(|ended| !ended).unwrap_or(0);
        ended.iter().filter(|ended| !**ended).count() <= 1
    });
    let running = &mut all[running];
    assert!(!running.ended(), "one runs");
    bounded::wait_until("it to answer", SOON, || {
        machine.try_connect().is_some_and(|mut c| c.status().fire_timeout > 0)
    });
    assert_eq!(machine.pid_file(), format!("{}\n", running.pid()));
    assert!(machine.marker().exists());
}

#[test]
fn high_priority_is_no_condition() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&["-H", "1"]);
    assert!(wdmd.dump().contains(" high_priority 1 "), "{}", wdmd.dump());
    wdmd.wait_for_log("wdmd started S0 H1 G0");
}

/// Ours pings a device with a shorter timeout, so it does not wait for its pages: without `-H` too it locks what there is when it is ready.
#[test]
fn memory_is_locked_without_high_priority_too() {
    let Some(program) = Program::wdmd_under_test() else { return };
    if program != Program::Ours {
        return;
    }
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let status = fs::read_to_string(format!("/proc/{}/status", wdmd.pid())).unwrap();
    let number = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0)
    };
    assert!(number("VmLck:") >= number("RssFile:") && number("RssFile:") > 0, "{status}");
}

#[test]
fn the_marker_of_an_unclean_stop_forbids_a_start() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    fs::write(machine.marker(), "").unwrap();
    let refused = machine.start_unready(&[]).finish();
    assert_eq!(refused.code, 255, "{refused}");
    assert!(refused.stderr.contains("other wdmd not cleanly stopped, shm_open error 17"), "{refused}");
    says_what_to_do(program, &refused, "reboot; only if the device is certainly not running");
    assert!(machine.marker().exists(), "the next start is refused too");
    assert!(!machine.run_file("wdmd.pid").exists());
    assert_eq!(machine.devices().calls(), Vec::<String>::new(), "no device was touched");
}

/// Everybody may make files in `/dev/shm`.
#[test]
fn a_marker_that_another_user_has_made_keeps_ours_from_nothing() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let somebody = Some(65_534);
    let replaced = "/dev/shm/wdmd belonged to user 65534, so it was no wdmd's, and was replaced";
    let why = "any user could keep a host without wdmd";

    fs::write(machine.marker(), "").unwrap();
    chown(machine.marker(), somebody, somebody).unwrap();
    let probe = machine.run(&["-p"]);
    assert_eq!(probe.code, program.differs(1, 0, why), "{probe}");
    assert_eq!(probe.stderr.contains(replaced), program == Program::Ours, "{probe}");
    assert_eq!(machine.marker().exists(), program.differs(true, false, why));
    if program == Program::Reference {
        assert_eq!(machine.start_unready(&[]).finish().code, 255);
        return;
    }
    fs::create_dir_all(machine.marker().join("full")).unwrap();
    chown(machine.marker(), somebody, somebody).unwrap();
    let mut wdmd = machine.start(&[]);
    wdmd.wait_for_log(replaced);
    let marker = fs::symlink_metadata(machine.marker()).unwrap();
    assert!(marker.is_file() && marker.uid() == 0, "{marker:?}");
    wdmd.signal(Signal::SIGTERM);
    assert_eq!(wdmd.finish().code, 0);
    assert!(!machine.marker().exists());
}

#[test]
fn without_a_device_the_daemon_ends_and_leaves_no_marker() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::without_device(program);
    let refused = machine.start_unready(&[]).finish();
    assert_eq!(refused.code, 255, "{refused}");
    assert!(refused.stderr.contains("no watchdog device, load a watchdog driver"), "{refused}");
    says_what_to_do(program, &refused, "as root load the driver of this machine's watchdog");
    if program == Program::Ours {
        let refused = machine.run(&["-G", "root"]);
        assert_eq!(refused.code, 255, "in the background as well: {refused}");
        assert!(
            refused.stderr.starts_with("wdmd: no watchdog device, load a watchdog driver\n"),
            "{refused}"
        );
        says_what_to_do(program, &refused, "as root load the driver of this machine's watchdog");
    }
    assert!(!machine.marker().exists());
    assert!(!machine.run_file("wdmd.pid").exists());
}

/// The daemon in the background, in a process name space that ends with the case.
struct Background {
    _space: Running,
    note: PathBuf,
}

impl Background {
    fn start(machine: &Machine, options: &str) -> Self {
        let note = machine.scripts().join("exit-status");
        let wdmd = machine.program().wdmd_path();
        let script = format!(
            "{} -G root {options} <&- ; echo $? > {note}.new; mv {note}.new {note}; exec sleep 1000",
            wdmd.display(),
            note = note.display()
        );
        let mut inside = machine.command_of(Path::new("/bin/sh"), &["-c", &script]);
        let mut space = Command::new("unshare");
        space.args(["-m", "-p", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]);
        space.arg(inside.get_program()).args(inside.get_args());
        inside = bounded::dying_with_us(Path::new("unshare"));
        inside.args(space.get_args());
        Self { _space: Running::start(inside), note }
    }

    /// Exit status of the process that was started.
    fn status(&self) -> i32 {
        let text = bounded::poll_for("the parent to end", SOON, || fs::read_to_string(&self.note).ok());
        text.trim().parse().expect("an exit status")
    }
}

#[test]
fn in_the_background_the_parent_ends_and_the_daemon_lets_go_of_everything() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let background = Background::start(&machine, "");
    assert_eq!(background.status(), 0);
    let mut client = bounded::poll_for("the daemon", SOON, || machine.try_connect());
    let _ = client.status();
    let pid = getsockopt(client.stream(), PeerCredentials).unwrap().pid();
    let of = |name: &str| fs::read_link(format!("/proc/{pid}/{name}")).unwrap();
    let mut table = Table::default();
    table.expect("working directory", of("cwd"), PathBuf::from("/"));
    for fd in ["fd/0", "fd/1", "fd/2"] {
        table.expect(fd, of(fd), PathBuf::from("/dev/null"));
    }
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name: Vec<&str> = status.rsplit(") ").next().unwrap().split(' ').collect();
    table.expect("no terminal", after_name[4], "0");
    drop(client);
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    bounded::wait_until("the marker to go", SOON, || !machine.marker().exists());
    bounded::wait_until("the pid file to go", SOON, || !machine.run_file("wdmd.pid").exists());
}

#[test]
fn the_parent_tells_whether_the_daemon_started() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::without_device(program);
    let background = Background::start(&machine, "");
    let why = "defect 14: the parent ends with 0 before anything is known";
    assert_eq!(background.status() == 0, program.differs(true, false, why));

    let machine = Machine::new(program);
    let background = Background::start(&machine, "");
    assert_eq!(background.status(), 0);
    if program == Program::Ours {
        let _ = machine.connect().status();
        assert!(machine.marker().exists(), "ready when the parent ends");
    }
}
