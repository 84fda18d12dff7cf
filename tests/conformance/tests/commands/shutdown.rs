//! SHUTDOWN and SHUTDOWN_WAIT (socket-protocol.md 7.4, 7.28), and signals.

use std::fs::File;
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::signal::{Signal, kill};
use sanlock_conformance::host::pid_of;

use sanlock_conformance::raw::{self, Header, cmd};
use sanlock_conformance::{Holder, Host, Program, Scene};

use crate::SOON;

#[test]
fn without_lockspaces_the_daemon_ends_on_request() {
    let Some(program) = Program::under_test() else { return };
    let mut host = Host::start(program, "host1");
    let mut connection = host.connect();
    connection.send_message(Header::request(cmd::SHUTDOWN, 0), &[]);
    assert_eq!(connection.receive_to_end(), [0; 0], "there is no reply, the connection is closed");
    assert!(host.wait_for_end(SOON).success());
}

#[test]
fn without_lockspaces_the_daemon_ends_on_sigterm() {
    let Some(program) = Program::under_test() else { return };
    let mut host = Host::start(program, "host1");
    host.terminate();
    assert!(host.wait_for_end(SOON).success());
}

#[test]
fn a_joined_lockspace_holds_off_sigterm_and_unforced_requests() {
    let Some(program) = Program::under_test() else { return };
    let mut scene = Scene::one_host(program, 1);
    let holder = Holder::start(scene.host(0), &[&scene.storage().resource_arg(1)]);
    let host = scene.host_mut(0);
    host.terminate();
    host.connect().send_message(Header::request(cmd::SHUTDOWN, 0), &[]);
    let refused = host.connect().request(cmd::SHUTDOWN_WAIT, 0, 0, 0, &[]);
    assert_eq!(refused.result(), -16);
    // Requests are looked at once a second.
    std::thread::sleep(Duration::from_secs(3));
    assert!(host.alive());
    assert_eq!(holder.leases(host).map(|leases| leases.len()), Some(1), "the lease is still held");
}

#[test]
fn a_forced_shutdown_kills_holders_leaves_and_answers_at_the_end() {
    let Some(program) = Program::under_test() else { return };
    let mut scene = Scene::one_host(program, 1);
    let mut holder = Holder::start(scene.host(0), &[&scene.storage().resource_arg(1)]);
    let mut waiter = scene.host(0).connect();
    waiter.send_message(Header { data: 1, ..Header::request(cmd::SHUTDOWN_WAIT, 0) }, &[]);
    let end = waiter.receive();
    assert_eq!((end.cmd, end.length, end.data, end.data2), (0, 32, 0, 0), "the header at the end is bare");
    assert_eq!(holder.finish(SOON).code, 128 + 9, "SIGKILL ends the holder");
    assert!(scene.host_mut(0).wait_for_end(SOON).success());
    let leader = scene.host(0).client(&["direct", "read_leader", "-s", &scene.storage().lockspace_arg(1)]);
    assert!(leader.success().stdout.contains("\ntimestamp 0\n"), "the host id lease is given back");
}

#[test]
fn who_has_waited_for_the_end_of_a_daemon_can_start_the_next_one() {
    let fault = "answers a moment before it has ended, so that the next daemon may find its lock taken";
    let Some(program) = Program::ours_under_test(fault) else { return };
    for _ in 0..10 {
        let mut host = Host::start(program, "host1");
        let pid_file = File::options().write(true).open(host.run_dir().join("sanlock.pid")).unwrap();
        shut_down(&host);
        let whole = libc::flock {
            l_type: i16::try_from(libc::F_WRLCK).unwrap(),
            l_whence: 0, // from the beginning
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        assert_eq!(fcntl(&pid_file, FcntlArg::F_SETLK(&whole)), Ok(0), "its lock is free");
        assert!(!host.run_dir().join("sanlock.sock").exists());
        assert!(host.wait_for_end(SOON).success());
    }
}

#[test]
fn a_second_daemon_in_the_same_run_directory_does_not_disturb_the_first() {
    let Some(program) = Program::under_test() else { return };
    let host = Host::start(program, "host1");
    assert_refused(&host);
}

#[test]
fn a_daemon_of_either_program_keeps_one_of_the_other_out() {
    if !Program::both_available() {
        return;
    }
    for (first, second) in [(Program::Ours, Program::Reference), (Program::Reference, Program::Ours)] {
        let host = Host::start_with(first, second, "host1", &[]);
        assert_refused(&host);
    }
}

#[test]
fn a_daemon_that_has_read_its_own_pid_file_as_a_disk_still_keeps_others_out() {
    let fault = "gives up the lock of its run directory with any descriptor of the file that it closes";
    let Some(program) = Program::ours_under_test(fault) else { return };
    let host = Host::start(program, "host1");
    let place = format!("LS:1:{}:0", host.run_dir().join("sanlock.pid").display());
    assert_ne!(host.client(&["client", "read", "-s", &place]).code, 0, "that is no lockspace");
    assert_refused(&host);
}

/// One more daemon, of the program that the host's commands are of.
/// Ends a daemon, and waits for its word that it has ended.
fn shut_down(host: &Host) {
    let mut waiter = host.connect();
    waiter.send_message(Header::request(cmd::SHUTDOWN_WAIT, 0), &[]);
    assert_eq!(waiter.receive().data, 0);
}

fn assert_refused(host: &Host) {
    let mut second =
        host.command(&["daemon", "-D", "-w", "0", "-l", "0", "-h", "0", "-U", "root", "-G", "root"]);
    second.env("SANLOCK_PRIVILEGED", "0");
    let refused = sanlock_conformance::bounded::run(second, SOON);
    assert_ne!(refused.code, 0);
    assert!(refused.stderr.contains("lockfile setlk error"), "{}", refused.stderr);
    assert_eq!(host.connect().request(cmd::VERSION, 0, 0, 0, &[]).magic, raw::MAGIC);
}

#[test]
fn signals_that_were_blocked_when_the_daemon_was_started_end_it_all_the_same() {
    let Some(program) = Program::ours_under_test("never hears them") else { return };
    for signal in [Signal::SIGINT, Signal::SIGHUP, Signal::SIGTERM] {
        let mut host = Host::start_with_blocked_signals(program, "host1");
        kill(pid_of(host.pid()), signal).unwrap();
        assert!(host.wait_for_end(SOON).success(), "{signal}");
    }
}

#[test]
fn every_signal_of_an_administrator_ends_an_idle_daemon() {
    let Some(program) = Program::under_test() else { return };
    for signal in [Signal::SIGINT, Signal::SIGHUP, Signal::SIGTERM] {
        let mut host = Host::start(program, "host1");
        kill(pid_of(host.pid()), signal).unwrap();
        assert!(host.wait_for_end(SOON).success(), "{signal}");
    }
}
