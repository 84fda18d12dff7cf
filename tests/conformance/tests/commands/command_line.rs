//! What the command line says and returns where users of the original stumble (command-line.md 5, 18).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sanlock_conformance::bounded::{self, Running};
use sanlock_conformance::{Host, Program, Scene, Storage};

use crate::{SOON, Table};

fn num_hosts(scene: &Scene, resource: &str) -> Option<u64> {
    let text = scene.host(0).client(&["direct", "read_leader", "-r", resource]).success().stdout;
    text.lines().find_map(|line| line.strip_prefix("num_hosts ")?.parse().ok())
}

/// 18.2 #22: the result is a number of bytes, and everything but 0 exits with 1. Kept, since scripts know it.
#[test]
fn positive_results_exit_with_1() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::not_joined(program, 1);
    let host = scene.host(0);
    let mut table = Table::default();
    let align = host.client(&["client", "align", "-s", &scene.storage().lockspace_arg(1)]);
    table.expect("align says", align.stdout.as_str(), "align\nalign done 1048576\n");
    table.expect("align", align.code, 1);
    let log = host.client(&["client", "log_dump"]);
    table.expect("log_dump", log.code, 1);
    table.expect("log_dump ends its last line", log.stdout.ends_with('\n') && log.stdout.len() > 1, true);
}

/// 18.2 #23, #27: on standard error, where nobody parses it.
#[test]
fn what_was_left_out_or_ignored_is_told_beside_the_usual_output() {
    let Some(program) = Program::under_test() else { return };
    let mut scene = Scene::one_host(program, 1);
    let mut client = scene.host(0).connect();
    client.register();
    assert_eq!(client.inquire(None).result, 0);
    let pid = std::process::id().to_string();
    let mut table = Table::default();
    for (args, stdout, told) in [
        (&["shutdown"][..], "shutdown force 0 wait 0\nshutdown done 0\n".to_owned(), "lockspace"),
        (&["acquire", "-p", &pid], format!("acquire pid {pid}\nacquire done 0\n"), "no resource given"),
        (&["release", "-p", &pid], format!("release pid {pid}\nrelease done 0\n"), "no resource given"),
    ] {
        let output = scene.host(0).client(&[&["client"], args].concat());
        table.expect(&format!("{args:?}"), (output.stdout, output.code), (stdout, 0));
        if program == Program::Ours {
            table.expect(&format!("{args:?} {}", output.stderr), output.stderr.contains(told), true);
        }
    }
    table.expect("the daemon lives", scene.host_mut(0).alive(), true);
}

/// 18.1 #15: the original's daemon takes `-m` for the number of hosts.
#[test]
fn client_init_takes_a_number_of_hosts() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::not_joined(program, 1);
    let resource = scene.storage().resource_arg(1);
    let mut table = Table::default();
    let with_n = if program == Program::Ours { 8 } else { 2000 };
    for (option, value, expected) in [("-n", "8", with_n), ("-m", "9", 9), ("-m", "0", 2000)] {
        let _ = scene.host(0).client(&["client", "init", "-r", &resource, option, value]).success();
        table.expect(&format!("{option} {value}"), num_hosts(&scene, &resource), Some(expected));
    }
}

#[test]
fn names_are_printed_as_they_were_given() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::not_joined(program, 0);
    let name = OsStr::from_bytes(b"L\xe4");
    let mut command = scene.host(0).command(&["client", "set_config", "-u", "1", "-s"]);
    let output = command.arg(name).output().expect("the command runs");
    let first = output.stdout.split(|byte| *byte == b'\n').next().unwrap_or_default();
    assert!(first.starts_with(b"set_config L\xe4 "), "{first:?}");
}

/// 18.1 #5: the original clears the lease whatever the value is.
#[test]
fn z_0_does_not_clear_a_lease() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::not_joined(program, 1);
    let resource = scene.storage().resource_arg(1);
    let read = || scene.host(0).client(&["client", "read", "-r", &resource]).code;
    let mut table = Table::default();
    let kept = i32::from(program == Program::Reference);
    for (value, expected) in [("0", kept), ("1", 1)] {
        let _ = scene.host(0).client(&["client", "init", "-r", &resource, "-z", value]).success();
        table.expect(&format!("-z {value}"), read(), expected);
    }
}

/// 18.2 #51: scripts ask like this whether a process is registered.
#[test]
fn a_process_that_is_not_registered_is_no_error_in_the_log() {
    let Some(program) = Program::ours_under_test("writes an error line each time") else { return };
    let scene = Scene::not_joined(program, 0);
    let output = scene.host(0).client(&["client", "inquire", "-p", "999999"]);
    assert_eq!((output.result(), output.code), (Some(-3), 1));
    assert!(!scene.host(0).log().contains("999999"), "{}", scene.host(0).log());
}

/// As units of systemd have it ignored, and shells do not.
#[test]
fn a_command_is_left_what_was_decided_about_broken_pipes() {
    const SIGPIPE: u64 = 1 << 12;
    let Some(program) = Program::under_test() else { return };
    let host = Host::start(program, "host1");
    for ignored in [false, true] {
        let script = if ignored { "trap '' PIPE; exec \"$@\"" } else { "exec \"$@\"" };
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script, "sh"]).arg(program.path()).env("SANLOCK_RUN_DIR", host.run_dir());
        command.args(["client", "command", "-c", "/bin/grep", "SigIgn", "/proc/self/status"]);
        let output = bounded::run(command, SOON).success();
        let mask = output.stdout.lines().find_map(|line| line.strip_prefix("SigIgn:\t"));
        let mask = u64::from_str_radix(mask.unwrap_or_default(), 16).unwrap();
        assert_eq!(mask & SIGPIPE != 0, ignored, "{output}");
    }
}

/// 5.2: nothing of the action is left in the output of the program that it became.
#[test]
fn command_leaves_the_output_to_the_program() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let lease = scene.storage().resource_arg(1);
    let output = scene.host(0).client(&["client", "command", "-r", &lease, "-c", "/bin/echo", "hi"]);
    assert_eq!((output.stdout.as_str(), output.code), ("hi\n", 0));
}

/// 7.14: a process that only holds leases.
#[test]
fn command_without_a_program_sleeps_with_its_leases() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let lease = scene.storage().resource_arg(1);
    let mut sleeper = scene.host(0).client_in_background(&["client", "command", "-r", &lease]);
    bounded::wait_until("the lease to be held", SOON, || scene.owner(1).is_some());
    std::thread::sleep(Duration::from_secs(1));
    assert!(!sleeper.ended());
    sleeper.kill();
    scene.wait_until_free(1, SOON);
}

/// 18.2 #25: a long wait says what it waits for, on a terminal.
#[test]
fn a_long_wait_shows_signs_of_life_on_a_terminal() {
    let Some(program) = Program::ours_under_test("is silent") else { return };
    let storage = Storage::file();
    let host = Host::start(program, "host1");
    let _ = host.client(&["client", "init", "-s", &storage.lockspace_arg(0), "-o", "10"]).success();
    let lockspace = storage.lockspace_arg(1);
    let join = format!("{} add_lockspace -s {lockspace}", program.path().display());
    let mut command = bounded::dying_with_us(Path::new("script"));
    command.args(["-qfec", &join, "/dev/null"]).env("SANLOCK_RUN_DIR", host.run_dir());
    let mut terminal = Running::start(command);
    bounded::wait_until("a sign of life", SOON, || terminal.text().0.contains(" s left: making sure"));
    let removed = host.client(&["client", "rem_lockspace", "-s", &lockspace]);
    assert_eq!(removed.result(), Some(0));
    assert!(terminal.finish(SOON).stdout.contains("add_lockspace done -201"));
    // Elsewhere there is nobody to be told.
    let mut quiet = host.client_in_background(&["client", "add_lockspace", "-s", &lockspace]);
    std::thread::sleep(Duration::from_secs(7));
    assert_eq!(host.client(&["client", "rem_lockspace", "-s", &lockspace]).result(), Some(0));
    assert!(!quiet.finish(SOON).stderr.contains("making sure"));
}
