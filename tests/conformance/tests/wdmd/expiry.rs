//! A client that does not renew, and when the device then gets its last ping (wdmd.md 7).
//!
//! The promise: the device fires at the latest F after the expiry. When it fires is reckoned from the
//! calls on the device, so nothing here waits for the minute that the original takes.

use std::time::Duration;

use sanlock_conformance::watchdog::{Reckoning, now, now_seconds};
use sanlock_conformance::wdmd::{SOON, Timing};
use sanlock_conformance::wdmd_client::{Client, Message, cmd};
use sanlock_conformance::{Machine, Program, Wdmd, bounded};

use crate::{SLACK, last_ping_allowed};

/// Long enough for several tests of a daemon that tests every second.
const SEVERAL_TESTS: Duration = Duration::from_secs(3);

/// An expiry this far away is the shortest that begins with a good test: I and 2 s more.
fn soon(timing: Timing) -> u64 {
    now_seconds() + timing.interval + 2
}

fn reckoning(machine: &Machine) -> Reckoning {
    machine.devices().reckoning("watchdog0", None)
}

fn closes(machine: &Machine) -> usize {
    reckoning(machine).unclean_closes
}

/// Waits until no source is good any more, as the program shows it: the original has closed the device
/// uncleanly, ours has logged that the test failed.
fn wait_for_the_outage(wdmd: &Wdmd<'_>, machine: &Machine) {
    bounded::wait_until("the outage to show", SOON, || match machine.program() {
        Program::Reference => closes(machine) > 0,
        Program::Ours => wdmd.log().contains("test failed"),
    });
}

/// The pings have ended for good and in time. `disturb` is called meanwhile.
fn assert_the_host_is_reset(machine: &Machine, expiry: u64, timing: Timing, mut disturb: impl FnMut()) {
    let program = machine.program();
    let over = |reckoning: &Reckoning| match program {
        // Its device fires a minute later; long before that it is closed.
        Program::Reference => closes(machine) > 0 && now() > reckoning.last_ping() + SEVERAL_TESTS,
        Program::Ours => reckoning.fires.is_some_and(|fires| fires < now()),
    };
    bounded::wait_until("the pings to end", SOON, || {
        disturb();
        over(&reckoning(machine))
    });
    let Reckoning { pings, fires, .. } = reckoning(machine);
    let last = *pings.last().expect("a ping");
    let allowed = Duration::from_secs(last_ping_allowed(program, expiry, timing)) + SLACK;
    assert!(last <= allowed, "expiry {expiry}: last ping at {last:?}, allowed until {allowed:?}");
    let fires = fires.expect("a running device");
    let promise = Duration::from_secs(expiry + timing.fire);
    let slack = program.differs(SLACK, Duration::ZERO, "defect 5: no margin for a late daemon");
    assert!(fires <= promise + slack, "expiry {expiry}: fires at {fires:?}, promised {promise:?}");
    let calls = machine.devices().calls();
    let ending = program.differs("close", "keepalive", "the device is left open and fires by itself");
    assert_eq!(calls.last().map(String::as_str), Some(ending), "{calls:?}");
}

#[test]
fn a_client_that_renews_in_time_keeps_the_pings_going() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let (mut client, timing) = wdmd.armed();
    let before = reckoning(&machine).pings.len();
    bounded::wait_until("two more pings", SOON, || {
        let status = client.apply(&[Message::test_live(now_seconds(), now_seconds() + timing.interval + 10)]);
        assert_eq!(u64::from(status.test_interval), timing.interval, "nothing is wrong");
        std::thread::sleep(Duration::from_millis(200));
        reckoning(&machine).pings.len() >= before + 2
    });
    assert_eq!(closes(&machine), 0);
    assert!(reckoning(&machine).fires.is_some_and(|fires| fires > now()), "the device never fired");
    assert_eq!(machine.devices().timeout("watchdog0"), timing.device);
}

#[test]
fn a_client_that_does_not_renew_has_the_host_reset_in_time_whatever_others_do() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let (mut client, timing) = wdmd.armed_with(10, 5);
    let mut good = wdmd.connect();
    let expiry = soon(timing);
    client.apply(&[Message::register(b"lost"), Message::test_live(now_seconds(), expiry)]);
    assert_the_host_is_reset(&machine, expiry, timing, || {
        good.apply(&[
            Message::test_live(now_seconds(), now_seconds() + 100),
            Message::new(cmd::REFCOUNT_SET),
        ]);
        let _ = wdmd.connect().status();
        std::thread::sleep(Duration::from_millis(50));
    });
    wdmd.wait_for_log("test failed rem ");
    let line = wdmd.log().lines().find(|line| line.contains("test failed")).unwrap_or_default().to_owned();
    let who = format!("expire {expiry} client {} lost", std::process::id());
    assert!(line.ends_with(&who), "{line:?} does not end with {who:?}");
    assert_eq!(client.status().test_interval, 1, "the current interval during an outage");
}

#[test]
fn a_client_close_to_its_expiry_is_warned_about() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let (mut client, timing) = wdmd.armed();
    let ahead = program.differs(timing.interval + 5, timing.interval - 1, "it looks only every I seconds");
    let expiry = now_seconds() + ahead;
    client.apply(&[Message::register(b"late"), Message::test_live(now_seconds(), expiry)]);
    wdmd.wait_for_log("test warning now ");
    let line = wdmd.log().lines().find(|line| line.contains("test warning")).unwrap().to_owned();
    let who = format!("expire {expiry} client {} late", std::process::id());
    assert!(line.ends_with(&who), "{line:?} does not end with {who:?}");
    bounded::wait_until("the status to tell", SOON, || client.status().test_interval == 1);
}

#[test]
fn a_dead_client_has_the_host_reset_in_time() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let (mut client, timing) = wdmd.armed_with(10, 5);
    let expiry = soon(timing);
    client.apply(&[Message::register(b"dead"), Message::test_live(now_seconds(), expiry)]);
    drop(client);
    assert_the_host_is_reset(&machine, expiry, timing, || ());
}

#[test]
fn an_expiry_of_now_resets_the_host_at_once() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let (mut client, timing) = wdmd.armed_with(10, 5);
    let expiry = now_seconds();
    client.apply(&[Message::test_live(expiry, expiry)]);
    // The last ping may have come before the message: that is no promise of an expiry.
    let why = "the next test is up to I away, counted in seconds begun";
    let late = program.differs(timing.interval + 2, 1 + timing.interval, why);
    assert_the_host_is_reset(&machine, expiry + late, timing, || ());
}

/// One outage that ends before the device fires. `end` ends it.
fn outage(program: Program, end: impl FnOnce(Client) -> Option<Client>) {
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let (mut client, timing) = wdmd.armed_with(120, 30);
    let why =
        "with F 120 the last ping is allowed at E + 59, so there is none after this, and the device has 30 s";
    let expiry = program.differs(soon(timing), now_seconds().saturating_sub(60), why);
    client.apply(&[Message::test_live(now_seconds(), expiry)]);
    wait_for_the_outage(&wdmd, &machine);
    wdmd.wait_for_log("test failed");
    let during = reckoning(&machine);
    let over = now();
    let client = end(client);
    let stays = client.is_some() || program == Program::Reference;
    bounded::wait_until("the outage to be over", SOON, || {
        let reckoning = reckoning(&machine);
        if stays { reckoning.last_ping() > over } else { reckoning.fires.is_none() }
    });
    assert!(over < during.fires.expect("a running device"), "the case was too slow for the device");
    let calls = || machine.devices().calls();
    let tail = match (program, stays) {
        (Program::Reference, _) => {
            wdmd.wait_for_log("/dev/watchdog0 reopen");
            &["close", "open", "keepalive"][..]
        }
        (Program::Ours, true) => {
            assert_eq!(closes(&machine), 0, "an outage that ends in time leaves no trace: {:?}", calls());
            &["keepalive"]
        }
        (Program::Ours, false) => &["write V", "close"],
    };
    let tail: Vec<String> = tail.iter().map(|call| (*call).to_owned()).collect();
    // A device that is opened anew counts as pinged by that alone.
    bounded::wait_until(&format!("calls that end with {tail:?}"), SOON, || calls().ends_with(&tail));
    if let Some(mut client) = client {
        assert_eq!(u64::from(client.status().test_interval), timing.interval, "as before");
    }
}

#[test]
fn a_late_renewal_before_the_device_fires_averts_the_reset() {
    let Some(program) = Program::wdmd_under_test() else { return };
    outage(program, |mut client| {
        client.apply(&[Message::test_live(now_seconds(), now_seconds() + 100)]);
        Some(client)
    });
}

#[test]
fn clearing_the_expiry_before_the_device_fires_averts_the_reset() {
    let Some(program) = Program::wdmd_under_test() else { return };
    outage(program, |mut client| {
        client.apply(&[Message::test_live(0, 0)]);
        Some(client)
    });
}

#[test]
fn a_client_that_clears_its_expiry_and_leaves_during_an_outage_averts_the_reset() {
    let Some(program) = Program::wdmd_under_test() else { return };
    outage(program, |mut client| {
        client.apply(&[Message::test_live(0, 0)]);
        None
    });
}

#[test]
fn a_new_client_is_refused_while_the_device_is_about_to_fire() {
    let Some(program) = Program::wdmd_under_test() else { return };
    if program == Program::Reference {
        return; // 3.8.5 has no OPEN_WATCHDOG.
    }
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let (mut client, _) = wdmd.armed_with(20, 10);
    client.apply(&[Message::test_live(now_seconds(), now_seconds())]);
    let mut second = wdmd.connect();
    assert_eq!(second.open_watchdog(20), 0, "defect 12: the original of 5.1.1 says yes");
    client.apply(&[Message::test_live(now_seconds(), now_seconds() + 100)]);
    assert_eq!(second.open_watchdog(20), 20);
}

#[test]
fn a_daemon_that_stood_still_over_the_expiry_does_not_ping_afterwards() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let (mut client, timing) = wdmd.armed_with(20, 10);
    let expiry = program.differs(soon(timing), now_seconds() + 3, "F 20: pings end at E - 1");
    client.apply(&[Message::test_live(now_seconds(), expiry)]);
    wdmd.signal(nix::sys::signal::Signal::SIGSTOP);
    bounded::wait_until("the expiry", SOON, || now_seconds() > expiry);
    let resumed = now();
    wdmd.signal(nix::sys::signal::Signal::SIGCONT);
    wdmd.wait_for_log("test failed");
    bounded::wait_until("several tests more", SOON, || now() > resumed + SEVERAL_TESTS);
    let pinged = reckoning(&machine).last_ping() > resumed;
    let why = "defect 5: the unclean close comes after the expiry then";
    assert_eq!(pinged, program.differs(true, false, why));
}

#[test]
fn a_failed_ping_is_no_ping() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let (mut client, _) = wdmd.armed();
    machine.devices().set_faults("watchdog0", "keepalive 5\n");
    let failed = || -> Vec<_> {
        let events = machine.devices().events();
        events.iter().filter(|event| event.call == "keepalive" && !event.ok()).map(|event| event.at).collect()
    };
    let tries = program.differs(1, 2, "tried again within a second");
    bounded::wait_until("a ping to fail", SOON, || failed().len() >= tries);
    let last = client.status().last_keepalive;
    let counted = last + 1 >= failed()[0].as_secs();
    // The last good ping may be of the same second as the first failed one.
    let good = reckoning(&machine).last_ping().as_secs();
    if good + 1 < failed()[0].as_secs() {
        let why = "defect 8: the result of a ping is ignored";
        assert_eq!(counted, program.differs(true, false, why), "last ping {last}, good {good}");
    }
    machine.devices().set_faults("watchdog0", "");
    bounded::wait_until("a good ping", SOON, || reckoning(&machine).last_ping().as_secs() > good);
    bounded::wait_until("the status to tell", SOON, || client.status().last_keepalive > good);
}

#[test]
fn a_killed_daemon_leaves_a_running_device_and_cannot_be_started_again() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let mut wdmd = machine.start(&[]);
    let (_client, timing) = wdmd.armed();
    wdmd.crash();
    let died = wdmd.died().unwrap();
    let fires = machine.devices().reckoning("watchdog0", Some(died)).fires.unwrap();
    assert!(fires <= died + Duration::from_secs(timing.device), "fires at {fires:?}, died at {died:?}");
    assert!(machine.marker().exists(), "the marker tells the next daemon");

    let calls = machine.devices().events().len();
    let refused = machine.start_unready(&[]).finish();
    assert_ne!(refused.code, 0, "{refused}");
    assert!(refused.stderr.contains("other wdmd not cleanly stopped"), "{refused}");
    let probe = machine.run(&["-p"]);
    assert_eq!(probe.code, 1, "{probe}");
    assert!(probe.stderr.contains("cannot probe watchdog devices while wdmd is in use."), "{probe}");
    assert_eq!(machine.devices().events().len(), calls, "nobody touched the device again");
    assert!(machine.marker().exists());
}
