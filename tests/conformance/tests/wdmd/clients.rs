//! The life of a connection, and what is left of it (wdmd.md 5.4, 6).

use nix::sys::signal::Signal;

use sanlock_conformance::watchdog::now_seconds;
use sanlock_conformance::wdmd::{SOON, field};
use sanlock_conformance::wdmd_client::{Message, cmd};
use sanlock_conformance::{Machine, Program, Table, Wdmd, bounded};

/// What is left of client `name`, once its connection is gone: `dead ref`, or nothing.
fn remains(wdmd: &Wdmd<'_>, name: &str) -> Option<String> {
    bounded::poll_for(&format!("the end of {name} to be noticed"), SOON, || {
        let slots = wdmd.slots(name);
        match slots.first() {
            None => Some(None),
            Some(slot) if field(slot, "dead") == "1" => {
                Some(Some(format!("dead ref {}", field(slot, "ref"))))
            }
            Some(_) => None,
        }
    })
}

#[test]
fn only_a_dead_client_with_an_expiry_stays() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let far = now_seconds() + 10_000;
    let set = Message::new(cmd::REFCOUNT_SET);
    let clear = Message::new(cmd::REFCOUNT_CLEAR);
    let mut table = Table::default();
    for (name, messages, expected) in [
        ("idle", vec![], None),
        ("counted", vec![set], None),
        ("counted-and-cleared", vec![set, clear], None),
        ("supervised", vec![set, Message::test_live(1, far)], Some("dead ref 1")),
        ("supervised-uncounted", vec![Message::test_live(1, far)], Some("dead ref 0")),
        ("supervised-then-uncounted", vec![set, Message::test_live(1, far), clear], Some("dead ref 0")),
        ("released", vec![set, Message::test_live(1, far), Message::test_live(0, 0)], None),
    ] {
        let mut client = wdmd.connect();
        client.apply(&[&[Message::register(name.as_bytes())], &messages[..]].concat());
        assert_eq!(wdmd.slots(name).len(), 1, "{name} is listed");
        drop(client);
        table.expect(name, remains(&wdmd, name), expected.map(str::to_owned));
    }
    bounded::wait_until("three dead clients in the log", SOON, || {
        wdmd.log().matches("client dead ci ").count() == 3
    });
}

#[test]
fn a_refcount_is_a_flag() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let mut client = wdmd.connect();
    let name = Message::register(b"flag");
    let set = Message::new(cmd::REFCOUNT_SET);
    client.apply(&[name, set, set, set]);
    assert_eq!(field(&wdmd.slots("flag")[0], "ref"), "1");
    client.apply(&[Message::new(cmd::REFCOUNT_CLEAR)]);
    assert_eq!(field(&wdmd.slots("flag")[0], "ref"), "0");
}

#[test]
fn a_new_client_cannot_take_over_a_dead_one() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let far = now_seconds() + 10_000;
    let mut client = wdmd.connect();
    client.apply(&[Message::register(b"twin"), Message::test_live(1, far)]);
    drop(client);
    assert_eq!(remains(&wdmd, "twin"), Some("dead ref 0".to_owned()));
    let mut second = wdmd.connect();
    second.apply(&[Message::register(b"twin"), Message::test_live(0, 0)]);
    let slots = wdmd.slots("twin");
    let mut states: Vec<_> = slots.iter().map(|slot| (field(slot, "dead"), field(slot, "expire"))).collect();
    states.sort_unstable();
    assert_eq!(states, [("0", "0"), ("1", far.to_string().as_str())]);
}

/// The daemon stands still while the messages and the end of the stream queue up.
fn sent_in_one_piece(
    wdmd: &Wdmd<'_>,
    mut client: sanlock_conformance::wdmd_client::Client,
    last: &[Message],
) {
    wdmd.signal(Signal::SIGSTOP);
    client.send_all(last);
    drop(client);
    wdmd.signal(Signal::SIGCONT);
}

#[test]
fn all_messages_before_a_close_are_applied() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let far = now_seconds() + 10_000;
    let why = "defect 1: only the first message before the close is handled";

    let mut supervised = wdmd.connect();
    supervised.apply(&[Message::register(b"leaver"), Message::new(cmd::REFCOUNT_SET)]);
    let last = [Message::test_live(1, far), Message::test_live(0, 0), Message::new(cmd::REFCOUNT_CLEAR)];
    sent_in_one_piece(&wdmd, supervised, &last);
    let left = remains(&wdmd, "leaver").is_some();
    assert_eq!(left, program.differs(true, false, why), "the leaver is dead with an expiry");

    let comer = wdmd.connect();
    let last = [Message::register(b"comer"), Message::new(cmd::REFCOUNT_SET), Message::test_live(1, far)];
    sent_in_one_piece(&wdmd, comer, &last);
    let left = bounded::poll_for("the newcomer's end", SOON, || {
        let dead = wdmd.log().matches("client dead ci ").count();
        let slots = wdmd.slots("comer");
        match program {
            Program::Reference if slots.is_empty() => Some(false),
            Program::Ours if dead == 1 => Some(!slots.is_empty()),
            _ => None,
        }
    });
    assert_eq!(left, program.differs(false, true, why), "the newcomer is supervised");
}

#[test]
fn a_daemon_of_no_clients_disarms_on_ours_and_stays_armed_on_the_original() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let (client, _) = wdmd.armed();
    assert!(machine.devices().reckoning("watchdog0", None).fires.is_some());
    drop(client);
    let disarmed = || machine.devices().reckoning("watchdog0", None).fires.is_none();
    if program == Program::Ours {
        bounded::wait_until("the device to be disarmed", SOON, disarmed);
        let calls = machine.devices().calls();
        assert_eq!(calls[calls.len() - 2..], ["write V", "close"]);
        let (_again, _) = wdmd.armed();
        assert!(!disarmed(), "armed for the next one");
    } else {
        // A connection comes and goes: the loop has turned.
        let _ = wdmd.connect().status();
        assert!(!disarmed(), "generation 1 is armed for life");
    }
}

#[test]
fn a_client_of_generation_one_is_protected() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let mut table = Table::default();
    for (case, message) in [
        ("refcount", Message::new(cmd::REFCOUNT_SET)),
        ("expiry", Message::test_live(1, now_seconds() + 10_000)),
    ] {
        let machine = Machine::new(program);
        let wdmd = machine.start(&[]);
        let mut client = wdmd.connect();
        let status = client.apply(&[message]);
        table.expect(case, (status.test_interval, status.fire_timeout), (10, 60));
        let armed = machine.devices().reckoning("watchdog0", None).fires.is_some();
        table.expect(&format!("{case}: armed"), armed, true);
    }
}

#[test]
fn a_client_of_generation_one_learns_that_it_is_not_protected() {
    let Some(program) = Program::wdmd_under_test() else { return };
    if program == Program::Reference {
        return; // It does not even start then.
    }
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    machine.devices().set_faults("watchdog0", "open 16\n");
    let mut client = wdmd.connect();
    let status = client.apply(&[Message::register(b"old"), Message::new(cmd::REFCOUNT_SET)]);
    assert_eq!(status.fire_timeout, 0, "3.8.5 refuses the lockspace when this is not 60");
    machine.devices().set_faults("watchdog0", "");
    let mut second = wdmd.connect();
    assert_eq!(second.apply(&[Message::new(cmd::REFCOUNT_SET)]).fire_timeout, 60);
}

#[test]
fn a_thousand_connections_are_served_and_pings_go_on() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let (_, most) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, most.min(65_536), most)
        .unwrap();
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let (mut first, _) = wdmd.armed();
    let mut clients: Vec<_> = (0..1000)
        .map(|n| {
            // The backlog is short; a full one refuses for a moment.
            let mut client = bounded::poll_for("a connection", SOON, || machine.try_connect());
            client.send(&Message::register(format!("c{n}").as_bytes()));
            client
        })
        .collect();
    for client in &mut clients {
        let _ = client.status();
    }
    let pings = machine.devices().reckoning("watchdog0", None).pings.len();
    bounded::wait_until("another ping", SOON, || {
        machine.devices().reckoning("watchdog0", None).pings.len() > pings
    });
    let dump = first.dump();
    assert_eq!(dump.lines().filter(|line| line.contains(" name c")).count(), 1000);
    drop(clients);
    bounded::wait_until("the connections to be gone", SOON, || {
        first.dump().lines().filter(|line| line.contains(" name c")).count() == 0
    });
    assert!(
        machine
            .devices()
            .reckoning("watchdog0", None)
            .fires
            .is_some_and(|fires| fires > sanlock_conformance::watchdog::now())
    );
}
