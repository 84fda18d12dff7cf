//! Every message and its answer, to the byte (wdmd.md 5).

use std::time::Duration;

use sanlock_conformance::wdmd::{SOON, field};
use sanlock_conformance::wdmd_client::{Message, cmd};
use sanlock_conformance::{Machine, Program, Table, bounded};

/// Long enough for an answer that must not come.
const QUIET: Duration = Duration::from_millis(1500);

/// A message as the recordings show it: `cmd`, then the 16 bytes at 0x10.
fn recorded(cmd: u32, at_16: [u32; 4]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0, cmd, 0, 0].into_iter().chain(at_16) {
        bytes.extend(word.to_le_bytes());
    }
    bytes.resize(176, 0);
    bytes
}

#[test]
fn a_fresh_daemon_reports_ten_and_sixty() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let mut client = wdmd.connect();
    client.send(&Message::new(cmd::STATUS));
    let reply = client.receive_bytes();
    let pinged = machine.devices().events().iter().rfind(|e| e.call == "keepalive").map(|e| e.at.as_secs());
    let last = u32::from_le_bytes(reply[0x18..0x1c].try_into().unwrap());
    assert_eq!(reply.to_vec(), recorded(cmd::STATUS, [10, 60, last, 0]));
    let expected = program.differs(pinged, None, "as in 5.1.1 the device is armed on request only");
    // The daemon and the log read the clock a moment apart.
    assert!(expected.unwrap_or(0).abs_diff(u64::from(last)) <= 1, "last ping {last}, pinged {expected:?}");
}

#[test]
fn a_reply_is_the_request_with_the_answer_filled_in() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let mut client = wdmd.connect();
    let odd = Message {
        magic: 0xdead_beef,
        len: 7,
        flags: 9,
        test_interval: 1234,
        fire_timeout: 5678,
        last_keepalive: u64::MAX,
        renewal_time: 11,
        expire_time: 12,
        ..Message::register(b"echo")
    };
    let status = client.status();
    let reply = client.ask(&Message { cmd: cmd::STATUS, ..odd });
    let expected = Message {
        cmd: cmd::STATUS,
        test_interval: status.test_interval,
        fire_timeout: status.fire_timeout,
        last_keepalive: reply.last_keepalive,
        ..odd
    };
    assert_eq!(reply, expected);
    assert!(reply.last_keepalive < u64::MAX);
    if program == Program::Ours {
        let reply = client.ask(&Message { cmd: cmd::OPEN_WATCHDOG, fire_timeout: 30, ..odd });
        assert_eq!(reply, Message { cmd: cmd::OPEN_WATCHDOG, fire_timeout: 30, ..odd });
    }
}

#[test]
fn commands_without_a_reply_are_silent() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let mut client = wdmd.connect();
    client.send_all(&[
        Message::register(b"quiet"),
        Message::new(cmd::REFCOUNT_SET),
        Message::test_live(1, 0),
        Message::new(cmd::REFCOUNT_CLEAR),
    ]);
    assert!(!client.hears_within(QUIET), "none of these has a reply");
    let _ = client.status();
}

#[test]
fn unknown_commands_are_ignored_and_the_connection_stays_usable() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let mut client = wdmd.connect();
    for unknown in [0, 8, 9, 99, 0x0500_0000, u32::MAX] {
        client.send(&Message::new(unknown));
    }
    assert!(!client.hears_within(QUIET), "an unknown command has no reply");
    assert_eq!(client.status().fire_timeout, 60);
}

#[test]
fn the_original_never_answers_open_watchdog_and_ours_does() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let mut client = wdmd.connect();
    client.send(&Message::open_watchdog(30));
    let answered = client.hears_within(QUIET);
    let why = "the command is of the generation after 3.8.5";
    assert_eq!(answered, program.differs(false, true, why));
    let status = client.status();
    assert_eq!((status.test_interval, status.fire_timeout), program.differs((10, 60), (5, 30), why));
}

#[test]
fn open_watchdog_answers_with_the_timeout_in_use_or_zero() {
    let Some(program) = Program::wdmd_under_test() else { return };
    if program == Program::Reference {
        return; // Above.
    }
    let mut table = Table::default();
    // Asked for; reply, I, and what the device was set to.
    for (fire, reply, interval, device) in [
        (0, 0, 10, None),
        (1, 0, 10, None),
        (4, 4, 1, Some(2)),
        (9, 9, 1, Some(4)),
        (10, 10, 2, Some(5)),
        (20, 20, 2, Some(10)),
        (29, 29, 2, Some(10)),
        (30, 30, 5, Some(10)),
        (59, 59, 5, Some(14)),
        (60, 60, 10, Some(15)),
        (120, 120, 10, Some(30)),
        (u32::MAX, 0, 10, None),
    ] {
        let case = format!("OPEN_WATCHDOG {fire}");
        let machine = Machine::new(program);
        let wdmd = machine.start(&[]);
        let mut client = wdmd.connect();
        client.send(&Message::open_watchdog(fire));
        let bytes = client.receive_bytes();
        table.expect(&case, bytes.to_vec(), recorded(cmd::OPEN_WATCHDOG, [0, reply, 0, 0]));
        let mut second = wdmd.connect();
        if reply != 0 {
            table.expect(&format!("{case}, another asks for 60"), second.open_watchdog(60), reply);
        }
        let status = second.status();
        let in_use = if reply == 0 { 60 } else { reply };
        table.expect(&case, (status.test_interval, status.fire_timeout), (interval, in_use));
        let running = machine.devices().reckoning("watchdog0", None).fires.is_some();
        table.expect(&format!("{case}: the device runs"), running, reply != 0);
        if let Some(device) = device {
            table.expect(
                &format!("{case}: driver's timeout"),
                machine.devices().timeout("watchdog0"),
                device,
            );
        }
    }
}

#[test]
fn the_dump_has_a_line_for_the_daemon_and_one_for_each_connection() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let mut client = wdmd.connect();
    let far = sanlock_conformance::watchdog::now_seconds() + 10_000;
    client.apply(&[
        Message::register(b"first client"),
        Message::new(cmd::REFCOUNT_SET),
        Message::test_live(17, far),
    ]);
    let dump = wdmd.dump();
    let lines: Vec<&str> = dump.lines().collect();
    let mut table = Table::default();
    table.expect("ends with a line end", dump.ends_with('\n'), true);
    let words: Vec<&str> = lines[0].split(' ').collect();
    table.expect("pid", words[..2].join(" "), format!("wdmd {}", wdmd.pid()));
    let names: Vec<&str> = words[2..].iter().step_by(2).copied().collect();
    let reference = [
        "socket_gid",
        "high_priority",
        "now",
        "last_keepalive",
        "last_closeunclean",
        "allow_scripts",
        "kill_script_sec",
    ];
    let ours = [&reference[..], &["fire_timeout", "identity"]].concat();
    let why = "the line of 5.1.1";
    table.expect("first line", names, program.differs(reference.to_vec(), ours, why));
    let mut slots: Vec<&str> = lines[1..].iter().map(|line| field(line, "name")).collect();
    slots[2..].sort_unstable();
    table.expect("connections", slots, vec!["signal", "listen", "dump", "first"]);
    let line = lines.iter().find(|line| line.contains(" name first ")).unwrap();
    let now = field(lines[0], "now");
    let (slot, fd, pid) = (field(line, "client"), field(line, "fd"), std::process::id());
    let expected = format!(
        "client {slot} name first client pid {pid} fd {fd} dead 0 ref 1 now {now} renewal 17 expire {far}"
    );
    table.expect("the client", *line, expected.as_str());
}

#[test]
fn a_dump_leaves_the_registered_name_alone() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let mut client = wdmd.connect();
    client.send(&Message::register(b"keeper"));
    let dump = client.dump();
    let names = (dump.contains(" name keeper "), dump.contains(" name dump "));
    let why = "defect 19: a dump overwrites the name of who asks";
    assert_eq!(names, program.differs((false, true), (true, false), why));
}

#[test]
fn a_name_of_full_length_needs_no_terminator() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let mut client = wdmd.connect();
    client.apply(&[Message::register(&[b'x'; 128])]);
    let dump = wdmd.dump();
    let line = dump.lines().find(|line| line.contains("xxx")).unwrap();
    assert_eq!(field(line, "name"), "x".repeat(64), "cut in the dump");
    assert_eq!(field(line, "dead"), "0");
}

#[test]
fn control_characters_of_a_name_reach_neither_dump_nor_log() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let mut client = wdmd.connect();
    client.apply(&[Message::register(b"evil\nwdmd 1\x1b[2J")]);
    let raw = wdmd.dump().contains('\x1b') || wdmd.log().contains('\x1b');
    assert_eq!(raw, program.differs(true, false, "defect 20: names are not escaped"));
}

#[test]
fn registering_again_changes_the_name_and_nothing_depends_on_it() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let mut client = wdmd.connect();
    client.apply(&[Message::register(b"one"), Message::register(b"two")]);
    assert_eq!((wdmd.slots("one").len(), wdmd.slots("two").len()), (0, 1));
    let mut nameless = wdmd.connect();
    nameless.apply(&[Message::new(cmd::REFCOUNT_SET)]);
    let dump = wdmd.dump();
    let slot = dump.lines().find(|line| line.contains(" ref 1 ")).unwrap();
    assert_eq!(field(slot, "pid"), "0", "recorded at REGISTER only");
    drop(client);
    bounded::wait_until("the slot to be free", SOON, || wdmd.slots("two").is_empty());
}
