//! What REQUEST and the event commands do with unusual arguments (socket-protocol.md 7.11, 7.30, 9).

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

use sanlock_conformance::raw::{cmd, flag};
use sanlock_conformance::{Connection, Host, Lockspace, Program, Resource, Scene, bounded};

use crate::{SOON, Table};

fn event_payload(lockspace: &str, fields: [u64; 4]) -> Vec<u8> {
    let mut payload = Lockspace::new(lockspace, 0, "", 0).encode();
    payload.extend(fields.map(u64::to_le_bytes).concat());
    payload
}

/// Registers an event stream of LS.
fn stream(host: &Host) -> Result<Connection, i32> {
    let mut connection = host.connect();
    match connection.request(cmd::REG_EVENT, 0, 0, 0, &event_payload("LS", [0; 4])).result() {
        0 => Ok(connection),
        code => Err(code),
    }
}

#[test]
fn a_refused_stream_is_closed() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 0);
    let mut connection = scene.host(0).connect();
    let reply = connection.request(cmd::REG_EVENT, 0, 0, 0, &event_payload("NONE", [0; 4]));
    assert_eq!(reply.result(), -2);
    assert_eq!(connection.receive_to_end(), [0; 0]);
}

#[test]
fn a_stream_ends_when_its_client_says_so() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 0);
    let host = scene.host(0);
    let mut streams: Vec<Connection> =
        (0..32).map(|_| stream(host).unwrap_or_else(|code| panic!("{code}"))).collect();
    assert_eq!(stream(host).err(), Some(-50));
    // As the library does: the value 1, the end, then END_EVENT on another connection. Here somebody still has the stream open.
    let mut leaving = streams.remove(7);
    leaving.send(&1_u32.to_le_bytes());
    let end = Lockspace::new("LS", 0, "", 0).encode();
    assert_eq!(host.connect().request(cmd::END_EVENT, 0, 0, 0, &end).result(), 0);
    assert_eq!(leaving.receive_to_end(), b"");
    bounded::wait_until("the place of the stream", SOON, || match stream(host) {
        Ok(new) => {
            streams.push(new);
            true
        }
        Err(code) => {
            assert_eq!(code, -50);
            false
        }
    });
    assert_eq!(streams.len(), 32);
}

#[test]
fn the_generation_of_an_event_may_be_the_current_one() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::two_hosts(program, 0);
    // Host 2 is there for the second time.
    scene.host(1).leave(scene.storage(), 2);
    scene.host(1).join(scene.storage(), 2);
    bounded::wait_until("host 1 to see it", SOON, || {
        let (_, hosts) = scene.host(0).connect().get_hosts("LS", 2);
        hosts.iter().any(|host| host.generation == 2 && host.flags & 0xf == 3)
    });
    let events = stream(scene.host(1)).unwrap();
    for (flags, given, expected) in
        [(flag::SETEV_CUR_GENERATION, 0, 2), (flag::SETEV_CUR_GENERATION, 9, 9), (0, 0, 0)]
    {
        let payload = event_payload("LS", [2, given, 7, 8]);
        let flags = flags | flag::SETEV_REPLACE;
        assert_eq!(scene.host(0).connect().request(cmd::SET_EVENT, flags, 0, 0, &payload).result(), 0);
        bounded::wait_until("the event", SOON, || {
            let mut bytes = [0; 80];
            events.stream().read_exact(&mut bytes).unwrap();
            u64::from_le_bytes(bytes[40..48].try_into().unwrap()) == expected
        });
    }
}

fn ask(scene: &Scene, resource: &Resource, mode: u32) -> i32 {
    scene.host(0).connect().request(cmd::REQUEST, 0, mode, 0, &resource.encode()).result()
}

#[test]
fn a_request_without_disks_is_refused() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let resource = scene.storage().resource(1).with_lver(2);
    let none = Resource { num_disks: 0, disks: vec![], ..resource.clone() };
    assert_eq!(ask(&scene, &none, 1), -34);
    assert_eq!(ask(&scene, &Resource { num_disks: 5, ..resource }, 1), -34);
}

#[test]
fn a_request_record_that_is_none_is_refused() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let mut owner = scene.owning(0, 1);
    let file = File::options().read(true).write(true).open(scene.storage().path()).unwrap();
    let sector = scene.storage().offset(1) + 512;
    let record = || {
        let mut bytes = [0; 24];
        file.read_exact_at(&mut bytes, sector).unwrap();
        (u64::from_le_bytes(bytes[8..16].try_into().unwrap()), bytes[16])
    };
    let mut table = Table::default();
    let wanted = |lver: u64| scene.storage().resource(1).with_lver(lver);
    table.expect("a version that is held", ask(&scene, &wanted(1), 1), -272);
    // Nobody looks: host 1 sees no bit of its own, and asks for no examination.
    table.expect("a later one", (ask(&scene, &wanted(9), 1), record()), (0, (9, 1)));
    table.expect("the same, gracefully", (ask(&scene, &wanted(9), 2), record()), (0, (9, 2)));
    table.expect("an earlier one", (ask(&scene, &wanted(8), 1), record()), (-273, (9, 2)));
    file.write_all_at(&[0xff], sector + 6).unwrap();
    file.sync_all().unwrap();
    table.expect("another version of the record", ask(&scene, &wanted(10), 1), -271);
    file.write_all_at(&[0xff], sector).unwrap();
    file.sync_all().unwrap();
    table.expect("no record", ask(&scene, &wanted(10), 1), -270);
    table.expect("the lease is still held", owner.inquire(None).count, 1);
}

#[test]
fn a_registered_connection_becomes_no_stream() {
    let Some(program) = Program::ours_under_test("makes it a stream, and closes it when it is slow to read")
    else {
        return;
    };
    let scene = Scene::one_host(program, 1);
    let mut client = scene.owning(0, 1);
    assert_eq!(client.request(cmd::REG_EVENT, 0, 0, 0, &event_payload("LS", [0; 4])).result(), -22);
    assert_eq!(client.inquire(None).count, 1);
}
