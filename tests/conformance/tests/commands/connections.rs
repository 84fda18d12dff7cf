//! What becomes of a connection after a command, and what a header may say (socket-protocol.md 2, 3, 7).

use std::io::Read;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use sanlock_conformance::raw::{self, Header, cmd, killpath};
use sanlock_conformance::{Connection, Lockspace, Program, Resource, Scene, bounded};

use crate::Table;

/// A daemon that closes a connection has closed it by then, on a busy machine too.
const CLOSED: Duration = Duration::from_secs(60);
/// How long a connection is watched that must stay open; a daemon that closes it does so at once.
const WATCHED: Duration = Duration::from_secs(2);

/// Each command that is answered without a disk, with its payload.
fn commands() -> Vec<(u32, Vec<u8>, bool)> {
    let lockspace = Lockspace::new("LS", 0, "", 0).encode();
    let event = [lockspace.clone(), vec![0; 32]].concat();
    vec![
        (cmd::STATUS, vec![], true),
        (cmd::LOG_DUMP, vec![], true),
        (cmd::HOST_STATUS, lockspace.clone(), true),
        (cmd::RENEWAL, lockspace.clone(), true),
        (cmd::GET_LOCKSPACES, vec![], true),
        (cmd::GET_HOSTS, lockspace.clone(), true),
        (cmd::END_EVENT, lockspace.clone(), true),
        (cmd::SET_CONFIG, lockspace.clone(), true),
        (cmd::VERSION, vec![], false),
        (cmd::RESTRICT, vec![], false),
        (cmd::INQ_LOCKSPACE, lockspace.clone(), false),
        (cmd::SET_EVENT, event, false),
        (cmd::EXAMINE_LOCKSPACE, lockspace, false),
        (cmd::INQUIRE, vec![], false),
    ]
}

/// Reads for as long as is said; whether the end came.
fn ends(connection: &mut Connection, limit: Duration) -> bool {
    connection.set_limit(limit);
    let mut bytes = [0; 4096];
    loop {
        match connection.stream().read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

#[test]
fn some_commands_close_a_plain_connection_and_others_do_not() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 0);
    let mut table = Table::default();
    for (command, payload, closes) in commands() {
        let mut connection = scene.host(0).connect();
        let header = Header { data2: raw::SELF, ..Header::request(command, payload.len()) };
        connection.send_message(header, &payload);
        table.expect(&format!("command {command}"), connection.receive().cmd, command);
        let limit = if closes { CLOSED } else { WATCHED };
        table.expect(
            &format!("the connection after command {command}"),
            ends(&mut connection, limit),
            closes,
        );
        if !closes {
            connection.set_limit(CLOSED);
            table.expect(&format!("VERSION after command {command}"), connection.version().is_ok(), true);
        }
    }
}

#[test]
fn no_command_closes_a_registered_connection() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let mut client = scene.owning(0, 1);
    for (command, payload, _) in commands() {
        client.send_message(Header { data2: raw::SELF, ..Header::request(command, payload.len()) }, &payload);
        assert_eq!(client.receive().cmd, command);
        assert!(!ends(&mut client, WATCHED), "command {command}");
    }
    client.set_limit(Duration::from_secs(60));
    assert_eq!(client.inquire(None).count, 1, "the lease is still held");
}

#[test]
fn the_sequence_number_comes_back_except_from_version() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 0);
    let mut table = Table::default();
    for (command, payload, _) in commands() {
        let mut connection = scene.host(0).connect();
        let header = Header { seq: 0xabcd, data2: raw::SELF, ..Header::request(command, payload.len()) };
        connection.send_message(header, &payload);
        let expected = if command == cmd::VERSION { 0 } else { 0xabcd };
        table.expect(&format!("command {command}"), connection.receive().seq, expected);
    }
    let flags = Header { cmd_flags: 0xf0, ..Header::request(cmd::VERSION, 0) };
    let mut connection = scene.host(0).connect();
    connection.send_message(flags, &[]);
    table.expect("flags of VERSION", connection.receive().cmd_flags, 0);
}

#[test]
fn register_and_the_next_command_may_come_in_one_write() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 0);
    let mut connection = scene.host(0).connect();
    let mut bytes = Header::request(cmd::REGISTER, 0).encode().to_vec();
    bytes.extend(Header { data2: raw::SELF, ..Header::request(cmd::INQUIRE, 0) }.encode());
    connection.send(&bytes);
    let first = connection.receive();
    assert_eq!((first.cmd, first.result()), (cmd::INQUIRE, 0), "REGISTER has no reply");
}

#[test]
fn unknown_flags_are_ignored() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let host = scene.host(0);
    let lockspace = scene.storage().lockspace(1);
    let mut table = Table::default();
    table.expect("INQ_LOCKSPACE", host.connect().inq_lockspace(&lockspace, 0xfff0), 0);
    table.expect("ADD_LOCKSPACE", host.connect().add_lockspace(&lockspace, 0xfff0, 1), -17);
    let unknown = Lockspace::new("NONE", 1, "/dev/null", 0);
    table.expect("REM_LOCKSPACE", host.connect().rem_lockspace(&unknown, 0xfff0), -2);
    let mut client = host.connect();
    client.register();
    let resource = [scene.storage().resource(1)];
    table.expect("ACQUIRE", client.acquire(&resource, 0xff_0000, None), 0);
    let inquired = client.request(cmd::INQUIRE, 0xff_0000, 0, raw::SELF, &[]);
    table.expect("INQUIRE", (inquired.result(), inquired.data2), (0, 1));
    let _ = client.receive_payload(inquired.length as usize - raw::HEADER_LEN);
    table.expect("RELEASE", client.release(&resource, 0xff_0000, None), 0);
    let (version, status) = (
        host.connect().request(cmd::VERSION, 0xfff0, 0, 0, &[]).result(),
        host.connect().request(cmd::STATUS, 0xfff0, 1, 0, &[]).result(),
    );
    table.expect("VERSION and STATUS", (version, status), (0, 0));
}

/// The two fields behind the offset of a place.
#[test]
fn the_pads_of_a_disk_are_ignored() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let host = scene.host(0);
    let padded = |mut payload: Vec<u8>, end: usize| {
        payload[end - 8..end].copy_from_slice(&[0xff, 0xfe, 0xfd, 0x7f, 0x01, 0x02, 0x03, 0x04]);
        payload
    };
    let mut table = Table::default();
    let lockspace = padded(scene.storage().lockspace(1).encode(), Lockspace::LEN);
    let resource = scene.storage().resource(1);
    let disk_end = Resource::LEN + raw::DISK_LEN;
    let ask = |command, data, payload: &[u8]| host.connect().request(command, 0, data, 0, payload).result();
    table.expect("INQ_LOCKSPACE", ask(cmd::INQ_LOCKSPACE, 0, &lockspace), 0);
    table.expect("ADD_LOCKSPACE of the same", ask(cmd::ADD_LOCKSPACE, 1, &lockspace), -17);
    table.expect("READ_LOCKSPACE", ask(cmd::READ_LOCKSPACE, 0, &lockspace), 0);
    table.expect("READ_RESOURCE", ask(cmd::READ_RESOURCE, 0, &padded(resource.encode(), disk_end)), 0);
    let align = raw::disk(scene.storage().path().as_bytes(), 0);
    table.expect("ALIGN", ask(cmd::ALIGN, 0, &padded(align, raw::DISK_LEN)), 1 << 20);

    let mut client = host.connect();
    client.register();
    let (count, payload) = raw::acquire_payload(std::slice::from_ref(&resource));
    let acquired = client.request(cmd::ACQUIRE, 0, count, raw::SELF, &padded(payload, disk_end));
    table.expect("ACQUIRE", acquired.result(), 0);
    table.expect(
        "what is held",
        client.inquire(None).items(),
        vec![format!("{}:1", scene.storage().resource_arg(1))],
    );
    table.expect("RELEASE", client.release_one(&resource), 0);
    table.expect("REM_LOCKSPACE", ask(cmd::REM_LOCKSPACE, 0, &lockspace), 0);
    table.expect("ADD_LOCKSPACE", ask(cmd::ADD_LOCKSPACE, 1, &lockspace), 0);
}

/// 1 is the number of SANLK_OK: what is done has the result 0, unless something is counted (ALIGN, LOG_DUMP, released orphans).
#[test]
fn what_is_done_has_the_result_0_and_not_1() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 2);
    let host = scene.host(0);
    let resource = scene.storage().resource(1);
    let (count, acquire) = raw::acquire_payload(std::slice::from_ref(&resource));
    let (bare, place) = (resource.encode_bare(), resource.encode());
    let mut table = Table::default();
    let mut client = host.connect();
    client.register();
    for (command, data, data2, payload) in [
        (cmd::ACQUIRE, count, raw::SELF, &acquire),
        (cmd::CONVERT, 0, raw::SELF, &resource.shared().encode_bare()),
        (cmd::RELEASE, 1, raw::SELF, &bare),
        (cmd::RESTRICT, 0, raw::SELF, &vec![]),
        (cmd::KILLPATH, 0, raw::SELF, &killpath("/bin/true", "")),
        (cmd::INQUIRE, 0, raw::SELF, &vec![]),
    ] {
        let result = client.request(command, 0, data, data2, payload).result();
        table.expect(&format!("command {command} of a process"), result, 0);
    }
    let lockspace = scene.storage().lockspace(1).encode();
    let other = scene.storage().resource(2).encode();
    for (command, data, payload) in [
        (cmd::READ_LOCKSPACE, 0, &lockspace),
        (cmd::READ_RESOURCE, 0, &place),
        (cmd::READ_RESOURCE_OWNERS, 0, &place),
        (cmd::REQUEST, 1, &other),
        (cmd::EXAMINE_RESOURCE, 0, &bare),
        (cmd::WRITE_RESOURCE, 0, &other),
        (cmd::REM_LOCKSPACE, 0, &lockspace),
        (cmd::ADD_LOCKSPACE, 1, &lockspace),
        (cmd::INQ_LOCKSPACE, 0, &lockspace),
    ] {
        let result = host.connect().request(command, 0, data, 0, payload).result();
        table.expect(&format!("command {command}"), result, 0);
    }
    for (command, payload, _) in commands().into_iter().filter(|(command, ..)| *command != cmd::LOG_DUMP) {
        let result = host.connect().request(command, 0, 0, raw::SELF, &payload).result();
        table.expect(&format!("command {command}: {result} is positive"), result > 0, false);
    }
}

#[test]
fn what_options_announce_behind_them_is_not_read() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let mut client = scene.host(0).connect();
    client.register();
    let (count, mut payload) = raw::acquire_payload(&[scene.storage().resource(1)]);
    let len_at = payload.len() - 4;
    payload[len_at - 4..].copy_from_slice(&[0xff, 0, 0, 0, 64, 0, 0, 0]);
    let header = Header { data: count, data2: raw::SELF, ..Header::request(cmd::ACQUIRE, payload.len()) };
    client.send_message(header, &payload);
    assert_eq!(client.receive().result(), 0);
    assert_eq!(client.inquire(None).count, 1, "the next command is understood");
}

#[test]
fn killpath_of_another_process_is_refused() {
    let Some(program) = Program::ours_under_test("reads the payload from the other connection") else {
        return;
    };
    let scene = Scene::one_host(program, 0);
    let mut target = scene.host(0).connect();
    target.register();
    assert_eq!(target.inquire(None).result, 0);
    let mut other = scene.host(0).connect();
    let payload = killpath("/bin/true", "");
    assert_eq!(other.request(cmd::KILLPATH, 0, 0, std::process::id(), &payload).result(), -22);
    assert!(other.version().is_ok(), "its payload was read");
    assert_eq!(target.inquire(None).result, 0, "and the target is not busy");
}

#[test]
fn a_conversion_cut_short_leaves_nobody_busy() {
    let Some(program) = Program::ours_under_test("leaves the target busy for ever") else { return };
    let scene = Scene::one_host(program, 1);
    let mut target = scene.owning(0, 1);
    let us = std::process::id();
    let mut other = scene.host(0).connect();
    let header = Header { data2: us, ..Header::request(cmd::CONVERT, 128) };
    other.send_message(header, &[0; 100]);
    other.stream().shutdown(Shutdown::Write).unwrap();
    assert_eq!(other.receive().result(), -107);
    assert_eq!(scene.host(0).connect().inquire(Some(us)).count, 1, "the target can be asked");
    assert_eq!(target.convert(&scene.storage().resource(1).shared()), 0, "and converts");
}

#[test]
fn a_process_that_says_no_more_keeps_its_leases_until_its_connection_is_closed() {
    let Some(program) = Program::ours_under_test("gives its leases up") else { return };
    let scene = Scene::one_host(program, 1);
    let owner = scene.owning(0, 1);
    let mut other = scene.host(0).connect();
    other.register();
    owner.stream().shutdown(Shutdown::Write).unwrap();
    let begin = Instant::now();
    while begin.elapsed() < WATCHED {
        assert_eq!(other.acquire_one(&scene.storage().resource(1)), -17);
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(owner);
    bounded::wait_until("the lease to be free", CLOSED, || {
        other.acquire_one(&scene.storage().resource(1)) == 0
    });
}
