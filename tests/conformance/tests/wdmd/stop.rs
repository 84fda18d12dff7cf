//! What SIGTERM and SIGINT do (wdmd.md 3.5, 9).

use std::time::Duration;

use nix::sys::signal::Signal;

use sanlock_conformance::watchdog::now_seconds;
use sanlock_conformance::wdmd::SOON;
use sanlock_conformance::wdmd_client::{Message, cmd};
use sanlock_conformance::{Machine, Program, Table, Wdmd, bounded};

const FAR: u64 = 10_000;

/// Whether the daemon, asked to stop, ends; one that is expected to stay is not watched for long. One that
/// stays answers after it has seen the signal.
fn obeys(wdmd: &mut Wdmd<'_>, signal: Signal, expected: bool) -> bool {
    wdmd.signal(signal);
    ends(wdmd, expected)
}

fn ends(wdmd: &mut Wdmd<'_>, expected: bool) -> bool {
    let asked = std::time::Instant::now();
    let limit = if expected { SOON } else { Duration::from_secs(2) };
    while asked.elapsed() < limit {
        if wdmd.ended() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = wdmd.connect().status();
    false
}

#[test]
fn a_daemon_without_clients_stops_cleanly() {
    let Some(program) = Program::wdmd_under_test() else { return };
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let machine = Machine::new(program);
        let mut wdmd = machine.start(&[]);
        assert!(obeys(&mut wdmd, signal, true), "{signal}");
        let end = wdmd.finish();
        assert_eq!(end.code, 0, "{end}");
        assert!(!machine.marker().exists(), "{signal}: the marker is removed");
        assert!(!machine.run_file("wdmd.pid").exists(), "{signal}: the pid file is removed");
        assert!(machine.run_file("wdmd.sock").exists(), "{signal}: the socket stays");
        assert_eq!(machine.devices().reckoning("watchdog0", None).fires, None, "{signal}: disarmed");
        let again = machine.start(&[]);
        drop(again);
    }
}

#[test]
fn signals_that_were_blocked_when_the_daemon_was_started_are_heard() {
    let Some(program) = Program::wdmd_under_test() else { return };
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let machine = Machine::new(program);
        let mut wdmd = machine.start_with_blocked_signals(&[]);
        assert!(obeys(&mut wdmd, signal, true), "{signal}");
        let end = wdmd.finish();
        assert_eq!(end.code, 0, "{end}");
        assert!(!machine.marker().exists(), "{signal}: the marker is removed");
    }
}

/// What each state of the clients means for SIGTERM.
#[test]
fn a_client_in_need_of_the_device_keeps_the_daemon() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let set = Message::new(cmd::REFCOUNT_SET);
    let far = now_seconds() + FAR;
    let expiry = Message::test_live(1, far);
    let pending = program.differs(true, false, "defect 11: the expiry would never be watched");
    let mut table = Table::default();
    for (case, messages, dies, ends) in [
        ("idle", vec![], false, true),
        ("counted", vec![set], false, false),
        ("counted and cleared", vec![set, Message::new(cmd::REFCOUNT_CLEAR)], false, true),
        ("counted, gone", vec![set], true, true),
        ("supervised and counted", vec![set, expiry], false, false),
        ("supervised and counted, dead", vec![set, expiry], true, false),
        ("supervised, not counted", vec![expiry], false, pending),
        ("supervised, not counted, dead", vec![expiry], true, pending),
        (
            "released",
            vec![set, expiry, Message::test_live(0, 0), Message::new(cmd::REFCOUNT_CLEAR)],
            false,
            true,
        ),
    ] {
        let machine = Machine::new(program);
        let mut wdmd = machine.start(&[]);
        let (mut client, _) = wdmd.armed();
        client.apply(&messages);
        if dies {
            drop(client);
            bounded::wait_until("the end of the client", SOON, || {
                let dump = wdmd.dump();
                dump.lines().filter(|line| line.contains(" dead 0 ")).count() == 3
            });
        }
        table.expect(case, obeys(&mut wdmd, Signal::SIGTERM, ends), ends);
        table.expect(&format!("{case}: marker"), machine.marker().exists(), !ends);
        let running = machine.devices().reckoning("watchdog0", None).fires.is_some();
        table.expect(&format!("{case}: device runs"), running, !ends);
    }
}

#[test]
fn a_refused_stop_is_forgotten_by_the_original_and_remembered_by_ours() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let mut wdmd = machine.start(&[]);
    let (mut client, _) = wdmd.armed();
    client.apply(&[Message::new(cmd::REFCOUNT_SET)]);
    assert!(!obeys(&mut wdmd, Signal::SIGTERM, false));
    client.send(&Message::new(cmd::REFCOUNT_CLEAR));
    let remembered = program.differs(false, true, "defect 11: the signal is forgotten");
    assert_eq!(ends(&mut wdmd, remembered), remembered);
    if !remembered {
        assert!(obeys(&mut wdmd, Signal::SIGTERM, true), "asked again");
    }
    assert_eq!(wdmd.finish().code, 0);
    assert!(!machine.marker().exists());
}

#[test]
fn a_daemon_whose_device_is_about_to_fire_does_not_stop_as_if_nothing_were() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let mut wdmd = machine.start(&[]);
    let (mut client, _) = wdmd.armed_with(20, 10);
    let _ = client.apply(&[Message::test_live(now_seconds(), now_seconds())]);
    wdmd.wait_for_log("test failed");
    let why = "defect 11: it ends and removes the marker, and the device fires later";
    let obeyed = program.differs(true, false, why);
    assert_eq!(obeys(&mut wdmd, Signal::SIGTERM, obeyed), obeyed);
    assert_eq!(machine.marker().exists(), program.differs(false, true, why));
    let fires = machine.devices().reckoning("watchdog0", None).fires;
    assert!(fires.is_some(), "the device still runs");
}

#[test]
fn a_device_that_cannot_be_disarmed_keeps_the_daemon_until_it_can() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let mut wdmd = machine.start(&[]);
    let _armed = wdmd.armed();
    machine.devices().set_faults("watchdog0", "write 5\n");
    let why = "it closes the running device and removes the marker, and the device fires later";
    let obeyed = program.differs(true, false, why);
    assert_eq!(obeys(&mut wdmd, Signal::SIGTERM, obeyed), obeyed);
    assert!(machine.devices().reckoning("watchdog0", None).fires.is_some());
    assert_eq!(machine.marker().exists(), !obeyed, "{why}");
    if !obeyed {
        machine.devices().set_faults("watchdog0", "");
        assert!(ends(&mut wdmd, true), "as soon as it can");
        assert_eq!(machine.devices().reckoning("watchdog0", None).fires, None);
        assert!(!machine.marker().exists());
    }
}

#[test]
fn clients_see_the_end_of_the_stream_when_the_daemon_ends() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let mut wdmd = machine.start(&[]);
    let mut client = wdmd.connect();
    let _ = client.status();
    assert!(obeys(&mut wdmd, Signal::SIGTERM, true));
    assert!(client.hears_within(SOON));
}
