//! Requests for leases and host events between two hosts (lease-algorithms.md 8; socket-protocol.md 7.11, 7.13, 7.29, 7.30, 9).

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sanlock_conformance::dead_owner::registered;
use sanlock_conformance::raw::{cmd, flag};
use sanlock_conformance::user::User;
use sanlock_conformance::{Connection, Host, Lockspace, Program, bounded, scene::Scene};

const SOON: Duration = Duration::from_secs(30);
const EVENT_LEN: usize = 80;

fn event_payload(lockspace: &str, host_id: u64, generation: u64, event: u64, data: u64) -> Vec<u8> {
    let mut payload = Lockspace::new(lockspace, 0, "", 0).encode();
    for field in [host_id, generation, event, data] {
        payload.extend_from_slice(&field.to_le_bytes());
    }
    payload
}

fn set_event(host: &Host, flags: u32, (host_id, event, data): (u64, u64, u64)) -> i32 {
    let payload = event_payload("LS", host_id, 0, event, data);
    host.connect().request(cmd::SET_EVENT, flags, 0, 0, &payload).result()
}

/// Registers a stream; the connection, or the failure.
fn reg_event(host: &Host, lockspace: &str) -> Result<Connection, i32> {
    let mut connection = host.connect();
    let reply = connection.request(cmd::REG_EVENT, 0, 0, 0, &event_payload(lockspace, 0, 0, 0, 0));
    match reply.result() {
        0 => Ok(connection),
        code => Err(code),
    }
}

/// Own host id, event, data, and the sender.
fn next_event(stream: &mut Connection) -> (u64, u64, u64, u64) {
    stream.set_limit(SOON);
    let mut bytes = [0; EVENT_LEN];
    let mut socket = stream.stream();
    socket.read_exact(&mut bytes).unwrap_or_else(|error| panic!("no event: {error}"));
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
    assert_eq!((word(8), word(16)), (1, 80), "command and length");
    let field = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
    (field(32), field(48), field(56), field(64))
}

/// The next event; `again` sets it again for as long as none comes.
///
/// An event's bit stands for 6 s with an io timeout of 1 s, in which a host looks some times, or, on a machine that does much else,
/// once (8.3).
fn next_event_of(stream: &mut Connection, again: impl Fn()) -> (u64, u64, u64, u64) {
    let begin = Instant::now();
    while !readable(stream, Duration::from_secs(4)) {
        assert!(begin.elapsed() < SOON, "no event, though it was set again and again");
        again();
    }
    next_event(stream)
}

fn readable(stream: &mut Connection, limit: Duration) -> bool {
    let mut fds = [PollFd::new(stream.stream().as_fd(), PollFlags::POLLIN)];
    let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
    poll(&mut fds, limit).unwrap_or_else(|error| panic!("poll: {error}")) > 0
}

/// A program that holds a lease and dies of any signal.
fn holder(host: &Host, scene: &Scene, n: u64) -> Child {
    let mut command = bounded::dying_with_us(&host.program().path());
    command.args(["client", "command", "-r", &scene.storage().resource_arg(n), "-c", "/bin/sleep", "1000"]);
    command.env("SANLOCK_RUN_DIR", host.run_dir());
    let child = command.spawn().unwrap_or_else(|error| panic!("holder: {error}"));
    bounded::wait_until("the lease to be held", SOON, || scene.owner(n).is_some());
    child
}

fn signal_of(child: &mut Child) -> Option<i32> {
    bounded::poll_for("the holder's end", SOON, || child.try_wait().ok().flatten()).signal()
}

fn request(host: &Host, scene: &Scene, n: u64, (lver, mode): (u64, u32), flags: u32) -> i32 {
    let payload = scene.storage().resource(n).with_lver(lver).encode();
    host.connect().request(cmd::REQUEST, flags, mode, 0, &payload).result()
}

/// Waits until host 2 no longer asks host 1 to look.
///
/// A host looks once in the seconds that a bit stands (8.3), counted from its last look; the bit that a second request sets
/// meanwhile may be gone again when the host looks next, and then nobody acts on that request. So the next request waits.
fn until_nobody_asks(scene: &Scene) {
    // Host 2's sector; bit 0 of byte 0 of the bitmap is host 1's.
    let at = u64::from(scene.storage().kind().sector_size()) + 256;
    bounded::wait_until("the end of the bit", SOON, || {
        let mut byte = [0; 1];
        let file =
            File::open(scene.storage().path()).unwrap_or_else(|error| panic!("the lease file: {error}"));
        file.read_exact_at(&mut byte, at).unwrap_or_else(|error| panic!("host 2's record: {error}"));
        byte[0] & 1 == 0
    });
}

#[test]
fn an_event_reaches_every_stream_of_the_other_host_again_and_again() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::two_hosts(program, 1);
    scene.wait_until_all_see_all();
    let (one, two) = (scene.host(0), scene.host(1));
    let mut streams: Vec<Connection> =
        (0..2).map(|_| reg_event(two, "LS").unwrap_or_else(|code| panic!("{code}"))).collect();
    assert_eq!(set_event(one, 0, (2, 0x11, 0x22)), 0);
    let again = || assert_eq!(set_event(one, 0, (2, 0x11, 0x22)), 0);
    for stream in &mut streams {
        assert_eq!(next_event_of(stream, again), (2, 0x11, 0x22, 1));
        assert_eq!(next_event_of(stream, again), (2, 0x11, 0x22, 1), "again at the next renewal");
    }
    // The same event with other data may follow at once, another one only if it is to replace it.
    assert_eq!(set_event(one, 0, (2, 0x11, 0x23)), 0);
    assert_eq!(set_event(one, 0, (2, 0x12, 0x24)), -16);
    assert_eq!(set_event(one, flag::SETEV_REPLACE, (2, 0x12, 0x24)), 0);
    let stream = &mut streams[0];
    let begin = Instant::now();
    let again = || assert_eq!(set_event(one, flag::SETEV_REPLACE, (2, 0x12, 0x24)), 0);
    while next_event_of(stream, again) != (2, 0x12, 0x24, 1) {
        assert!(begin.elapsed() < SOON, "the new event never came");
    }
    assert_eq!(set_event(one, flag::SETEV_CLEAR_EVENT, (2, 0, 0)), 0);
}

#[test]
fn events_and_streams_that_cannot_be() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let host = scene.host(0);
    for (host_id, code) in [(0, -22), (2001, -22), (1, 0), (2000, 0)] {
        assert_eq!(set_event(host, flag::SETEV_REPLACE, (host_id, 1, 1)), code, "host id {host_id}");
    }
    let mut connection = host.connect();
    let reply = connection.request(cmd::SET_EVENT, 0, 0, 0, &event_payload("NONE", 2, 0, 1, 1));
    assert_eq!(reply.result(), -2);
    assert_eq!(reg_event(host, "NONE").err(), Some(-2));
    assert_eq!(reg_event(host, "").err(), Some(-22));
    let end = |name: &str| {
        let payload = Lockspace::new(name, 0, "", 0).encode();
        host.connect().request(cmd::END_EVENT, 0, 0, 0, &payload).result()
    };
    assert_eq!((end("LS"), end("NONE"), end("")), (0, -2, -22));
    let mut streams: Vec<Connection> =
        (0..32).map(|_| reg_event(host, "LS").unwrap_or_else(|code| panic!("{code}"))).collect();
    assert_eq!(reg_event(host, "LS").err(), Some(-50));
    streams.pop();
    bounded::wait_until("the place of a closed stream", SOON, || reg_event(host, "LS").is_ok());
}

#[test]
fn a_request_ends_the_holder_in_the_way_it_asks_for() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::two_hosts(program, 3);
    scene.wait_until_all_see_all();
    let (one, two) = (scene.host(0), scene.host(1));
    // Nobody to ask.
    assert_eq!(request(two, &scene, 3, (1, 1), 0), 0);
    for (n, mode, signal) in [(1, 1, 9), (2, 2, 15)] {
        let mut held = holder(one, &scene, n);
        let lver = scene.lver(n);
        assert_eq!(request(two, &scene, n, (lver, mode), 0), -272, "that version is held");
        assert_eq!(request(two, &scene, n, (0, mode), 0), -272);
        assert_eq!(request(two, &scene, n, (lver + 5, mode), 0), 0);
        assert_eq!(request(two, &scene, n, (lver + 4, mode), 0), -273, "a later one was asked for");
        assert_eq!(signal_of(&mut held), Some(signal));
        scene.wait_until_free(n, SOON);
        if n == 1 {
            until_nobody_asks(&scene);
        }
    }
    // With the next version, and looked for by hand: the bit of the last request still stands.
    let mut held = holder(one, &scene, 3);
    assert_eq!(request(two, &scene, 3, (0, 1), flag::NEXT_LVER), 0);
    let payload = scene.storage().lockspace(0).encode();
    assert_eq!(one.connect().request(cmd::EXAMINE_LOCKSPACE, 0, 0, 0, &payload).result(), 0);
    assert_eq!(signal_of(&mut held), Some(9));
    // Who wants neither signal is told by the other one, though SIGKILL is what ends it when its lockspace does.
    for (mode, signal) in [(1, 15), (2, 9)] {
        bounded::wait_until("the lease to be free", SOON, || scene.owner(3).is_none());
        let neither = (flag::RESTRICT_SIGKILL | flag::RESTRICT_SIGTERM).to_string();
        let mut held = User::start(one, scene.storage(), 3, &["restrict", &neither]);
        assert_eq!(request(two, &scene, 3, (0, mode), flag::NEXT_LVER), 0);
        assert_eq!(one.connect().request(cmd::EXAMINE_LOCKSPACE, 0, 0, 0, &payload).result(), 0);
        assert_eq!(held.finish(SOON).code, 128 + signal, "{mode}");
    }
    // Taken back: the same lease may be held again.
    assert_eq!(request(two, &scene, 3, (0, 0), 0), 0);
    let mut client = registered(one);
    bounded::wait_until("the lease", SOON, || client.acquire_one(&scene.storage().resource(3)) == 0);
}

#[test]
fn a_request_in_no_lockspace_or_for_no_lease_is_refused() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let host = scene.host(0);
    let ask = |payload: &[u8]| host.connect().request(cmd::REQUEST, 0, 1, 0, payload).result();
    let resource = || scene.storage().resource(1).with_lver(3);
    assert_eq!(ask(&resource().named("NONE", "R1").encode()), -28);
    assert_eq!(ask(&resource().named("LS", "OTHER").encode()), -227);
    let missing = sanlock_conformance::Resource::new("LS", "R1", "/nonexistent/disk", 0).with_lver(3);
    assert_eq!(ask(&missing.encode()), -2);
    // Of nothing that is held.
    let examine = |number: u32, payload: &[u8]| host.connect().request(number, 0, 0, 0, payload).result();
    assert_eq!(examine(cmd::EXAMINE_LOCKSPACE, &Lockspace::new("NONE", 0, "", 0).encode()), 0);
    assert_eq!(examine(cmd::EXAMINE_RESOURCE, &resource().encode_bare()), 0);
}

/// One of a lease's disks is the place of another lease, named by mistake: its owner is asked for nothing (decision 20).
#[test]
fn a_request_says_nothing_to_the_owner_of_another_lease() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 3);
    let host = scene.host(0);
    let _owner = scene.owning(0, 1);
    let mut other = holder(host, &scene, 2);
    let request_of_1 = |first: u64, others: &[u64]| {
        let mut resource = scene.storage().resource(first).named("LS", "R1").with_lver(5);
        resource.disks.extend(others.iter().flat_map(|n| scene.storage().resource(*n).disks));
        resource.num_disks = u32::try_from(resource.disks.len()).unwrap_or(0);
        host.connect().request(cmd::REQUEST, 0, 1, 0, &resource.encode()).result()
    };
    for (first, others) in [(1, &[2][..]), (2, &[1]), (1, &[2, 3]), (2, &[3, 1])] {
        assert_eq!(request_of_1(first, others), -220, "{first} {others:?}");
    }
    let examine = scene.storage().resource(2).encode_bare();
    assert_eq!(host.connect().request(cmd::EXAMINE_RESOURCE, 0, 0, 0, &examine).result(), 0);
    std::thread::sleep(Duration::from_secs(2));
    assert!(other.try_wait().is_ok_and(|status| status.is_none()), "the owner of R2 was ended");
    let _ended = other.kill();
    let _reaped = other.wait();
}

#[test]
fn the_command_line_of_requests_and_events() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let host = scene.host(0);
    let stdout = |args: &[&str]| host.client(args).stdout;
    let resource = scene.storage().resource_arg(1);
    let lockspace = scene.storage().lockspace_arg(1);
    assert_eq!(
        stdout(&["client", "request", "-r", &format!("{resource}:5"), "-f", "1"]),
        "request\nrequest done 0\n"
    );
    assert_eq!(stdout(&["client", "examine", "-r", &resource]), "examine\nexamine done 0\n");
    assert_eq!(stdout(&["client", "examine", "-s", &lockspace]), "examine\nexamine done 0\n");
    assert_eq!(stdout(&["client", "examine", "-s", "LS"]), "examine\nexamine done -22\n");
    assert_eq!(
        stdout(&["client", "set_event", "-s", "LS", "-i", "2", "-g", "3", "-e", "17", "-d", "255"]),
        "set_event 2 3 event 0x11 data 0xff\nset_event done 0\n"
    );
    assert_eq!(
        stdout(&["client", "set_event", "-s", "LS", "-i", "0", "-e", "1"]),
        "set_event 0 0 event 0x1 data 0x0\nset_event done -22\n"
    );
}
