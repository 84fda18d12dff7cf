//! The life of daemons as processes: what their end and their standing still do to leases.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod closing;
mod failed_writes;
mod gone;
mod hang_ups;
mod hanging_disks;
mod index;
mod late_format;
mod lease_threads;
mod on_fail;
mod priority;
mod support;
mod troubled_disks;

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use sanlock_blockio::drive::monotonic_now;
use sanlock_conformance::dead_owner::DEAD_AFTER_SECONDS;
use sanlock_daemon::SOCKET_NAME;
use sanlock_sys::pidfile::lock_whole;
use sanlock_wire::code;
use sanlock_wire::flags::{AddFlags, RemFlags, WriteFlags};
use std::fs::OpenOptions;
use std::thread::sleep;
use std::time::Duration;
use support::{Daemon, Holder, Place, in_time, within};

/// For what happens at once, or within a few io timeouts, on a machine that does other things too.
const SHORT: Duration = Duration::from_secs(30);
/// A join that waits for a silent owner takes 68 seconds; it has not ended by then.
const STILL_WAITING: Duration = Duration::from_secs(10);

/// A daemon that came back after a crash does not get the host id before its earlier instance must be dead, on a machine that stands still for
/// long either.
fn assert_it_waits(place: &Place, daemon: &Daemon) {
    let renewed = place.last_renewal();
    if place.joins_within(daemon, 1, STILL_WAITING) {
        let after = monotonic_now().secs() - renewed;
        assert!(
            after >= DEAD_AFTER_SECONDS,
            "DOUBLE OWNER: granted {after} s after the last renewal of its owner"
        );
    }
}

#[test]
fn after_a_crash_the_same_host_waits_although_no_process_is_left() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    place.format(&daemon);
    place.join(&daemon, 1);
    let mut holder = Holder::start(&daemon, &place.leases());
    assert_eq!(holder.says(), "held");
    daemon.crash();
    assert_eq!(holder.says(), "lost");
    drop(holder);

    // A write of the daemon that died may still be on its way, and nobody is left who would see it end.
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    assert_it_waits(&place, &daemon);
}

#[test]
fn after_a_crash_with_a_survivor_the_host_waits() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    place.format(&daemon);
    place.join(&daemon, 1);
    let mut holder = Holder::start(&daemon, &place.leases());
    assert_eq!(holder.says(), "held");
    kill(Pid::from_raw(holder.pid()), Signal::SIGSTOP).unwrap();
    daemon.crash();

    // The stopped process may go on and write at any time.
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    assert_it_waits(&place, &daemon);
}

#[test]
fn another_run_directory_proves_nothing() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    place.format(&daemon);
    place.join(&daemon, 1);
    daemon.crash();
    let daemon = Daemon::start(&place.run_dir("b"), "host1");
    assert_it_waits(&place, &daemon);
}

#[test]
fn a_lease_given_back_leaves_no_record_behind() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    place.format(&daemon);
    let records = || {
        let names = std::fs::read_dir(&daemon.run_dir).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("rejoin")).count()
    };
    place.join(&daemon, 1);
    assert!(within(SHORT, || records() == 1));
    daemon.client().rem_lockspace(&place.lockspace(1), RemFlags::empty()).unwrap();
    assert!(within(SHORT, || records() == 0));
}

#[test]
fn a_run_directory_that_hangs_keeps_a_lockspace_from_being_joined_and_nobody_waiting() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    place.format(&daemon);
    // Opening it does not end before somebody writes to it. "LS" in hexadecimal.
    let record = daemon.run_dir.join("rejoin-4c53-1");
    mkfifo(&record, Mode::S_IRWXU).unwrap();
    let (client, before) = (daemon.client(), std::fs::read(place.leases()).unwrap());
    let join = || client.add_lockspace_timeout(&place.lockspace(1), AddFlags::empty(), 1);
    assert_eq!(join().unwrap_err().result_code(), code::SANLK_AIO_TIMEOUT);
    let log = String::from_utf8(client.log_dump().unwrap()).unwrap();
    assert!(
        log.contains(
            "what may be known of an earlier instance of this host, to be waited for, cannot be read in"
        ),
        "{log}"
    );
    assert!(std::fs::read(place.leases()).unwrap() == before, "nothing of it was written");

    let writer = OpenOptions::new().read(true).write(true).open(&record).unwrap();
    std::fs::remove_file(&record).unwrap();
    drop(writer);
    place.join(&daemon, 1);
}

#[test]
fn who_waits_for_a_record_that_a_newer_one_replaces_is_answered_with_that_one() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    place.format(&daemon);
    let offsets: Vec<u64> = (1..=6).map(|area| area << 20).collect();
    OpenOptions::new().write(true).open(place.leases()).unwrap().set_len(7 << 20).unwrap();
    let client = daemon.client();
    for offset in &offsets {
        in_time(|| client.write_resource(&place.resource_at(*offset), 0, 0, WriteFlags::empty())).unwrap();
    }
    place.join(&daemon, 1);
    let record = daemon.run_dir.join("rejoin-4c53-1");
    assert!(within(SHORT, || record.exists()));
    // Making the new record does not end before somebody reads there.
    let fresh = record.with_extension("new");
    mkfifo(&fresh, Mode::S_IRWXU).unwrap();
    let mut holders: Vec<Holder> =
        offsets.iter().map(|offset| Holder::of(&daemon, &place.leases(), *offset)).collect();
    sleep(Duration::from_secs(2));
    // Out of the way before anybody reads: otherwise the next record, the newest one, may be made there as well.
    let away = record.with_extension("away");
    std::fs::rename(&fresh, &away).unwrap();
    let reader = OpenOptions::new().read(true).write(true).open(&away).unwrap();
    for holder in &mut holders {
        assert_eq!(holder.says(), "held");
    }
    drop(reader);
    // The newest one has them all.
    let pids = || std::fs::read_to_string(&record).unwrap_or_default().matches("\npid ").count();
    assert!(within(SHORT, || pids() == holders.len()), "{}", pids());
}

#[test]
fn a_run_directory_that_was_removed_blocks_neither_grants_nor_the_end() {
    let place = Place::new();
    let mut daemon = Daemon::start(&place.run_dir("a"), "host1");
    place.format(&daemon);
    place.join(&daemon, 1);
    // The socket is out of the way: whoever knows it still finds it.
    std::fs::rename(daemon.run_dir.join(SOCKET_NAME), place.run_dir("b").with_extension("sock")).unwrap();
    // The record of the join may be on its way there.
    assert!(within(SHORT, || std::fs::remove_dir_all(&daemon.run_dir).is_ok()));
    std::fs::create_dir(place.run_dir("b")).unwrap();
    std::fs::rename(place.run_dir("b").with_extension("sock"), place.run_dir("b").join(SOCKET_NAME)).unwrap();
    daemon.run_dir = place.run_dir("b");
    let mut holder = Holder::start(&daemon, &place.leases());
    assert_eq!(holder.says(), "held");
    assert!(place.run_dir("a").exists(), "made anew");
    assert!(within(SHORT, || std::fs::remove_dir_all(place.run_dir("a")).is_ok()));
    let client = daemon.client();
    client.shutdown(true).unwrap();
    assert_eq!(daemon.ended(SHORT), Some(0));
}

#[test]
fn a_daemon_that_stood_still_for_too_long_stops_its_users_and_grants_nothing() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    place.format(&daemon);
    place.join(&daemon, 1);
    let mut holder = Holder::start(&daemon, &place.leases());
    assert_eq!(holder.says(), "held");
    let daemon_pid = Pid::from_raw(daemon.pid());
    kill(daemon_pid, Signal::SIGSTOP).unwrap();
    // Asked for while it stands still: must not be granted in a lockspace that has failed meanwhile.
    let late = Holder::start(&daemon, &place.leases());
    sleep(Duration::from_secs(10)); // more than 8 io timeouts
    kill(daemon_pid, Signal::SIGCONT).unwrap();
    assert!(within(SHORT, || holder.is_gone()), "the holder is stopped");
    let words = late.last_words();
    assert!(!words.contains("held"), "DOUBLE OWNER: granted in a lockspace that has failed");
}

#[test]
fn a_daemon_without_lockspaces_ends_by_signal_and_takes_its_socket_along() {
    let place = Place::new();
    let mut daemon = Daemon::start(&place.run_dir("a"), "host1");
    kill(Pid::from_raw(daemon.pid()), Signal::SIGTERM).unwrap();
    assert_eq!(daemon.ended(SHORT), Some(0));
    assert!(!daemon.run_dir.join("sanlock.sock").exists());
    assert!(daemon.run_dir.join("sanlock.pid").exists());
    Daemon::start(&place.run_dir("a"), "host1");
}

#[test]
fn a_daemon_whose_run_directory_was_removed_leaves_the_socket_of_the_next_one_alone() {
    let place = Place::new();
    let mut removed = Daemon::start(&place.run_dir("a"), "host1");
    std::fs::remove_dir_all(&removed.run_dir).unwrap();
    let next = Daemon::start(&place.run_dir("a"), "host2");
    kill(Pid::from_raw(removed.pid()), Signal::SIGTERM).unwrap();
    assert_eq!(removed.ended(SHORT), Some(0));
    next.client().version().unwrap();
    assert_eq!(
        std::fs::read_to_string(next.run_dir.join("sanlock.pid")).unwrap(),
        format!("{}\n", next.pid())
    );
}

#[test]
fn a_daemon_that_was_killed_leaves_no_lock_with_its_helper() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    let lock = std::fs::File::options().write(true).open(daemon.run_dir.join("sanlock.pid")).unwrap();
    assert!(lock_whole(&lock).is_err());
    // Helper and guard, and programs that the helper has started, may be alive when the daemon is not any more.
    let helper = daemon.helper_pid();
    let status = std::fs::read_to_string(format!("/proc/{helper}/status")).unwrap();
    let guard = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap();
    for pid in [helper, Pid::from_raw(guard)] {
        kill(pid, Signal::SIGSTOP).unwrap();
    }
    daemon.crash();
    assert!(kill(helper, None).is_ok());
    lock_whole(&lock).unwrap();
    drop(lock);
    Daemon::start(&place.run_dir("a"), "host1");
    for pid in [helper, Pid::from_raw(guard)] {
        kill(pid, Signal::SIGCONT).unwrap();
    }
    assert!(within(SHORT, || kill(helper, None).is_err()));
}

#[test]
fn the_helper_ends_with_the_daemon_and_not_before() {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    let pid = daemon.helper_pid();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        kill(pid, signal).unwrap();
    }
    sleep(Duration::from_millis(200));
    assert!(kill(pid, None).is_ok());
    daemon.crash();
    assert!(within(SHORT, || kill(pid, None).is_err()));
}
