//! Real sanlock daemons as clients of both wdmds, on a pretended watchdog device, with the fire
//! timeout of 60 s that 3.8.5 insists on (wdmd.md 2.2, 11).

use std::time::Duration;

use nix::sys::signal::Signal;

use sanlock_conformance::storage::LOCKSPACE;
use sanlock_conformance::watchdog::{now, now_seconds};
use sanlock_conformance::wdmd::{field, mount_namespaces};
use sanlock_conformance::{Holder, Host, Machine, Program, Storage, Wdmd, bounded};

/// Joins and releases with io timeout 3 take some seconds.
const SOON: Duration = Duration::from_secs(60);
/// Fire timeout.
const FIRE: u64 = 60;
/// Io timeout; 6 of them are more than the interval of wdmd (wdmd.md 11.7).
const IO: &str = "3";

/// All four pairs of sanlock and wdmd, side by side.
fn for_each_pair(case: fn(Program, Program)) {
    let both = Program::both_available()
        && Program::Ours.wdmd_available()
        && Program::Reference.wdmd_available()
        && mount_namespaces();
    if !both {
        return;
    }
    let mut parts: Vec<(String, Box<dyn FnOnce() + Send>)> = Vec::new();
    for sanlock in [Program::Reference, Program::Ours] {
        for wdmd in [Program::Reference, Program::Ours] {
            let name = format!("{} sanlock, {} wdmd", sanlock.word(), wdmd.word());
            parts.push((name, Box::new(move || case(sanlock, wdmd))));
        }
    }
    bounded::side_by_side(parts);
}

fn init(host: &Host, storage: &Storage) {
    let _ = host.client(&["client", "init", "-s", &storage.lockspace_arg(0), "-o", IO]).success();
    let _ = host.client(&["client", "init", "-r", &storage.resource_arg(1)]).success();
}

/// Result of joining as host 1.
fn join(host: &Host, storage: &Storage) -> bounded::Output {
    host.client_within(SOON, &["client", "add_lockspace", "-s", &storage.lockspace_arg(1), "-o", IO])
}

/// The line of the lockspace in wdmd's dump.
fn slot(wdmd: &Wdmd<'_>) -> Option<String> {
    wdmd.slots(&format!("sanlock_{LOCKSPACE}:1")).into_iter().next()
}

fn expiry(wdmd: &Wdmd<'_>) -> u64 {
    slot(wdmd).map_or(0, |slot| field(&slot, "expire").parse().expect("a number"))
}

fn device_runs(machine: &Machine) -> bool {
    machine.devices().reckoning("watchdog0", None).fires.is_some_and(|fires| fires > now())
}

#[test]
fn a_held_lease_is_supervised_and_a_finished_one_is_not() {
    for_each_pair(|sanlock, wdmd_program| {
        let machine = Machine::new(wdmd_program);
        let mut wdmd = machine.start(&[]);
        let storage = Storage::file();
        let host = Host::start_watched(sanlock, "host1", &machine);
        init(&host, &storage);
        let _ = join(&host, &storage).success();
        let mut holder = Holder::start(&host, &[&storage.resource_arg(1)]);

        let line = slot(&wdmd).expect("the lockspace is a client of wdmd");
        assert_eq!((field(&line, "dead"), field(&line, "ref")), ("0", "1"), "{line}");
        let first = expiry(&wdmd);
        assert!(first > now_seconds(), "{line}");
        assert!(device_runs(&machine));
        let interval = machine.connect().status().test_interval;
        assert_eq!(interval, 10, "no test has failed");
        wdmd.signal(Signal::SIGTERM);
        bounded::wait_until("a renewal to move the expiry", SOON, || expiry(&wdmd) > first);

        holder.kill();
        // The stop that was asked for above is remembered by our wdmd, so it may be gone any moment now.
        let leave = host.client_within(SOON, &["client", "rem_lockspace", "-s", &storage.lockspace_arg(1)]);
        let _ = leave.success();
        if wdmd_program == Program::Reference {
            bounded::wait_until("the expiry to be taken back", SOON, || expiry(&wdmd) == 0);
            wdmd.signal(Signal::SIGTERM);
        }
        assert_eq!(wdmd.finish().code, 0);
        assert!(!machine.marker().exists());
        assert_eq!(machine.devices().reckoning("watchdog0", None).fires, None, "disarmed");
    });
}

#[test]
fn the_end_of_a_supervised_daemon_has_the_host_reset_in_time() {
    for_each_pair(|sanlock, wdmd_program| {
        let machine = Machine::new(wdmd_program);
        let mut wdmd = machine.start(&[]);
        let storage = Storage::file();
        let mut host = Host::start_watched(sanlock, "host1", &machine);
        init(&host, &storage);
        let _ = join(&host, &storage).success();
        let _holder = Holder::start(&host, &[&storage.resource_arg(1)]);
        host.kill();
        bounded::wait_until("the end to be noticed", SOON, || {
            slot(&wdmd).is_some_and(|slot| field(&slot, "dead") == "1")
        });
        wdmd.signal(Signal::SIGTERM);
        let promise = Duration::from_secs(expiry(&wdmd) + FIRE);
        // Pings have ended when the device is sure to fire before that, whatever is done to it.
        let ended = || {
            let last = machine.devices().reckoning("watchdog0", None).last_ping();
            now() > last + Duration::from_secs(15)
        };
        bounded::wait_until("the pings to end", Duration::from_secs(120), ended);
        let fires = machine.devices().reckoning("watchdog0", None).fires.expect("a running device");
        assert!(fires <= promise, "fires at {fires:?}, promised {promise:?}");
        assert!(!wdmd.ended(), "a dead client keeps it");
    });
}

#[test]
fn without_wdmd_no_lockspace_is_joined() {
    for_each_pair(|sanlock, wdmd_program| {
        let machine = Machine::new(wdmd_program);
        let storage = Storage::file();
        let host = Host::start_watched(sanlock, "host1", &machine);
        init(&host, &storage);
        let refused = join(&host, &storage);
        assert_eq!(refused.result(), Some(-203), "{refused}");
        assert_eq!(host.connect().inq_lockspace(&storage.lockspace(1), 0), -2);
    });
}

#[test]
fn a_device_that_cannot_be_opened_means_no_lockspace() {
    for_each_pair(|sanlock, wdmd_program| {
        if wdmd_program == Program::Reference {
            return; // It does not even start then.
        }
        let machine = Machine::new(wdmd_program);
        let _wdmd = machine.start(&[]);
        machine.devices().set_faults("watchdog0", "open 16\n");
        let storage = Storage::file();
        let host = Host::start_watched(sanlock, "host1", &machine);
        init(&host, &storage);
        let refused = join(&host, &storage);
        assert_eq!(refused.result(), Some(-203), "{refused}");
        assert_eq!(host.connect().inq_lockspace(&storage.lockspace(1), 0), -2);
    });
}

#[test]
fn the_end_of_wdmd_ends_the_original_and_fails_the_lockspace_of_ours() {
    for_each_pair(|sanlock, wdmd_program| {
        let machine = Machine::new(wdmd_program);
        let mut wdmd = machine.start(&[]);
        let storage = Storage::file();
        let mut host = Host::start_watched(sanlock, "host1", &machine);
        init(&host, &storage);
        let _ = join(&host, &storage).success();
        let mut holder = Holder::start(&host, &[&storage.resource_arg(1)]);
        wdmd.crash();
        let fires = machine.devices().reckoning("watchdog0", wdmd.died()).fires.expect("a running device");
        if sanlock == Program::Reference {
            let end = host.wait_for_end(SOON);
            assert_eq!(std::os::unix::process::ExitStatusExt::signal(&end), Some(13), "SIGPIPE: {end}");
            return;
        }
        let end = holder.finish(SOON);
        assert_eq!(end.code, 128 + 15, "the user is asked to end: {end}");
        assert!(now() < fires, "before the reset");
        bounded::wait_until("the lockspace to be gone", SOON, || {
            host.connect().inq_lockspace(&storage.lockspace(1), 0) == -2
        });
        assert!(host.alive());
    });
}

/// The original goes on granting leases on a host that nothing would reset; so does ours with the original's wdmd, which does not tell.
#[test]
fn nothing_more_is_acquired_once_the_device_has_failed() {
    for_each_pair(|sanlock, wdmd_program| {
        if (sanlock, wdmd_program) != (Program::Ours, Program::Ours) {
            return;
        }
        let machine = Machine::new(wdmd_program);
        let _wdmd = machine.start(&[]);
        let storage = Storage::file();
        let host = Host::start_watched(sanlock, "host1", &machine);
        init(&host, &storage);
        let _ = host.client(&["client", "init", "-r", &storage.resource_arg(2)]).success();
        let _ = join(&host, &storage).success();
        let mut holder = Holder::start(&host, &[&storage.resource_arg(1)]);
        // ENODEV, and no reset.
        machine.devices().set_faults("watchdog0", "keepalive 19\n");
        bounded::wait_until("the daemon to hear of it", SOON, || {
            host.log().contains("the watchdog device does not work")
        });
        let second = ["client", "command", "-r", &storage.resource_arg(2), "-c", "/bin/true"];
        let refused = host.client_within(SOON, &second);
        assert!(refused.code != 0 && refused.result() == Some(-203), "{refused}");
        assert_eq!(host.connect().inq_lockspace(&storage.lockspace(1), 0), 0);
        assert!(!holder.ended(), "what is held stays");
    });
}
