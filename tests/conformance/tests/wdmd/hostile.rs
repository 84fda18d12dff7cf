//! Clients that break the rules: none of them may keep the daemon from the others, or from the device
//! (wdmd.md 5.4). The original blocks or spins; each case lets it go again.

use std::io::Write;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use sanlock_conformance::wdmd::{SOON, field};
use sanlock_conformance::wdmd_client::{Client, Message, cmd};
use sanlock_conformance::{Machine, Program, Table, Wdmd, bounded};

/// Whether another client is served; the original's blocked daemon is not waited for long.
fn others_are_served(program: Program, wdmd: &Wdmd<'_>) -> bool {
    let mut other = wdmd.connect();
    other.send(&Message::new(cmd::STATUS));
    other.hears_within(program.differs(Duration::from_secs(2), SOON, "the original is known to block"))
}

#[test]
fn a_partial_message_delays_nobody() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let mut table = Table::default();
    for length in [1, 4, 175] {
        let machine = Machine::new(program);
        let wdmd = machine.start(&[]);
        let mut client = wdmd.connect();
        client.send_bytes(&Message::new(cmd::STATUS).bytes()[..length]);
        let why = "defect 2: the daemon waits for the rest and pings no more";
        let served = others_are_served(program, &wdmd);
        table.expect(&format!("{length} bytes"), served, program.differs(false, true, why));
        drop(client);
        let _ = wdmd.connect().status();
    }
}

#[test]
fn a_message_in_pieces_is_one_message() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let mut client = wdmd.connect();
    let bytes = [Message::register(b"in pieces").bytes(), Message::new(cmd::STATUS).bytes()].concat();
    for piece in bytes.chunks(50) {
        client.send_bytes(piece);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(client.receive().cmd, cmd::STATUS);
    assert_eq!(wdmd.slots("in").len(), 1);
}

#[test]
fn a_partial_message_before_a_close_ends_the_connection_only() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let mut client = wdmd.connect();
    client.apply(&[Message::register(b"torn"), Message::new(cmd::REFCOUNT_SET)]);
    client.send_bytes(&[0; 100]);
    drop(client);
    bounded::wait_until("the end of the connection", SOON, || wdmd.slots("torn").is_empty());
    wdmd.wait_for_log(" recv size 100");
}

#[test]
fn a_half_closed_connection_is_at_its_end() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let mut client = wdmd.connect();
    client.apply(&[Message::register(b"half")]);
    client.stream().shutdown(Shutdown::Write).unwrap();
    let ended = client.hears_within(program.differs(Duration::from_secs(1), SOON, "it never ends"));
    let why = "defect 3: it spins until the other half is closed too";
    assert_eq!(ended, program.differs(false, true, why));
    assert_eq!(wdmd.slots("half").len(), program.differs(1, 0, why));
    drop(client);
    bounded::wait_until("the end of the connection", SOON, || wdmd.slots("half").is_empty());
}

#[test]
fn a_half_closed_connection_gets_its_replies() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let mut client = wdmd.connect();
    client.send_all(&[Message::new(cmd::STATUS); 2]);
    client.stream().shutdown(Shutdown::Write).unwrap();
    for _ in 0..2 {
        assert_eq!(client.receive().fire_timeout, 60);
    }
}

/// Sends STATUS and reads nothing until the daemon takes no more. How many went out.
fn flood(client: &mut Client) -> usize {
    let message = Message::new(cmd::STATUS).bytes();
    client.stream().set_nonblocking(true).expect("a socket");
    let mut sent = 0;
    loop {
        match client.stream().write(&message) {
            Ok(_) => sent += 1,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                let stream = client.stream();
                let writable = PollFd::new(stream.as_fd(), PollFlags::POLLOUT);
                if poll(&mut [writable], PollTimeout::from(500_u16)).expect("poll") == 0 {
                    return sent;
                }
            }
            // Ours has dropped the connection.
            Err(_) => return sent,
        }
        assert!(sent < 1_000_000, "the daemon buffers without limit");
    }
}

#[test]
fn a_client_that_reads_no_replies_delays_nobody() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let mut client = wdmd.connect();
    client.apply(&[Message::register(b"flood")]);
    let sent = flood(&mut client);
    assert!(sent > 100, "only {sent} messages were taken");
    let why = "defect 2: the daemon blocks in send and pings no more";
    assert_eq!(others_are_served(program, &wdmd), program.differs(false, true, why));
    if program == Program::Ours {
        bounded::wait_until("the flooder to be dropped", SOON, || wdmd.slots("flood").is_empty());
    }
    drop(client);
    bounded::wait_until("the end of the connection", SOON, || wdmd.slots("flood").is_empty());
}

#[test]
fn a_dropped_flooder_with_an_expiry_is_a_dead_client() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let mut client = wdmd.connect();
    let far = sanlock_conformance::watchdog::now_seconds() + 10_000;
    client.apply(&[Message::register(b"flood"), Message::test_live(1, far)]);
    let _ = flood(&mut client);
    drop(client);
    bounded::wait_until("the dead client", SOON, || {
        wdmd.slots("flood").first().is_some_and(|slot| field(slot, "dead") == "1")
    });
}

#[test]
fn nonsense_is_survived() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    // A small generator of numbers that are the same in each run. Commands that arm, reset or hold the
    // machine are left out: they do what they say.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..50 {
        let mut client = wdmd.connect();
        for _ in 0..20 {
            let mut bytes = [0_u8; 176];
            for byte in &mut bytes {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                *byte = state.to_le_bytes()[3];
            }
            let mut message = Message::parse(&bytes);
            if (2..=7).contains(&message.cmd) {
                message.cmd = 1;
            }
            client.send(&message);
        }
        client.send_bytes(&[0xff; 33]);
    }
    let mut client = wdmd.connect();
    assert_eq!(client.status().fire_timeout, 60);
    for expiry in [u64::MAX, i64::MAX as u64, u64::MAX / 1000, 0] {
        assert_eq!(client.apply(&[Message::test_live(u64::MAX, expiry)]).fire_timeout, 60);
    }
    assert!(wdmd.dump().contains(&format!(" renewal {} expire 0", u64::MAX)), "{}", wdmd.dump());
}

#[test]
fn more_connections_than_descriptors_harm_nobody() {
    let Some(program) = Program::wdmd_under_test() else { return };
    if program == Program::Reference {
        return; // It spins, and has no descriptor left to open its device again (nor has the shim).
    }
    let machine = Machine::new(program);
    let wdmd = machine.start_with_few_descriptors(100);
    let (mut first, _) = wdmd.armed();
    let pings = || machine.devices().reckoning("watchdog0", None).pings.len();
    let before = pings();
    let mut clients: Vec<Client> = Vec::new();
    while clients.len() < 150 {
        // Refused when the daemon accepts no more and the queue of the socket is full.
        let Some(client) = machine.try_connect_now() else { break };
        clients.push(client);
        let _ = first.status();
    }
    let _ = clients[0].status();
    clients.last_mut().expect("many").send(&Message::new(cmd::STATUS));
    wdmd.wait_for_log("connections, which is the limit");
    bounded::wait_until("a ping", SOON, || pings() > before);
    let mut last = clients.pop().expect("many");
    clients.clear();
    assert_eq!(last.receive().fire_timeout, 60, "its turn comes when others have gone");
    let _ = first.status();
}

#[test]
fn connections_that_come_and_go_at_once_leave_nothing() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    for _ in 0..200 {
        drop(bounded::poll_for("a connection", SOON, || machine.try_connect()));
    }
    bounded::wait_until("the connections to be gone", SOON, || {
        wdmd.dump().lines().filter(|line| line.starts_with("client ")).count() == 3
    });
}
