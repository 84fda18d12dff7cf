//! What reaches the socket may be cut short, slow, oversized or nonsense; the daemon lives, other
//! clients are served, leases are kept and expiry goes on (socket-protocol.md 3.2 to 3.6, 15).
//! The original hangs or loses its place in most of these; such cases run on ours only.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource as Limited, getrlimit, setrlimit};
use sanlock_conformance::raw::{self, HEADER_LEN, Header, MAGIC, cmd, flag};
use sanlock_conformance::{Connection, Holder, Host, Program, Resource, Scene, bounded};

/// Who waits for a client waits for 10 s, after which an unfinished message is given up. What has come sooner has not waited for one.
const PROMPT: Duration = Duration::from_secs(8);
/// For what the daemon does at once, on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// The daemon serves 1022 connections at a time.
const MORE_THAN_ARE_SERVED: usize = 1100;

/// The original's main loop stops in these cases.
const HANGS: &str = "stops its main loop";

/// The daemon answers main-loop and worker commands, keeps the leases of others, and can still
/// grant and release.
fn assert_serves(scene: &Scene, what: &str) {
    let host = scene.host(0);
    assert!(host.connect().version().is_ok(), "{what}: VERSION");
    assert_eq!(host.connect().get_lockspaces().1.len(), 1, "{what}: GET_LOCKSPACES");
    assert_eq!(host.connect().read_lockspace(&scene.storage().lockspace(1)).0, 0, "{what}: READ_LOCKSPACE");
    let mut client = registered(host);
    let resource = scene.storage().resource(2);
    assert_eq!(client.acquire_one(&resource), 0, "{what}: ACQUIRE");
    assert_eq!(client.release_one(&resource), 0, "{what}: RELEASE");
}

/// It does so while there are clients that stop in the middle, and does not wait until they are given up: that would take longer every
/// time. Returns those clients.
fn assert_serves_beside(scene: &Scene, what: &str, stuck: impl Fn() -> Vec<Connection>) -> Vec<Connection> {
    for _ in 0..5 {
        let begin = Instant::now();
        let stuck = stuck();
        assert_serves(scene, what);
        if begin.elapsed() < PROMPT {
            return stuck;
        }
    }
    panic!("{what}: other clients waited, five times");
}

fn registered(host: &Host) -> Connection {
    let mut connection = host.connect();
    connection.register();
    connection
}

/// A host with resource 1 held throughout; the lease must be there at the end.
struct Victim {
    scene: Scene,
    holder: Connection,
}

impl Victim {
    fn new(program: Program) -> Self {
        let scene = Scene::one_host(program, 2);
        let mut holder = registered(scene.host(0));
        assert_eq!(holder.acquire_one(&scene.storage().resource(1)), 0);
        Self { scene, holder }
    }

    fn host(&self) -> &Host {
        self.scene.host(0)
    }

    /// Connects, sends `bytes`, and leaves the connection open.
    fn stuck(&self, bytes: &[u8]) -> Connection {
        let mut connection = self.host().connect();
        connection.send(bytes);
        connection
    }

    fn assert_unharmed(mut self, what: &str) {
        assert!(self.scene.host_mut(0).alive(), "{what}: the daemon lives");
        assert_serves(&self.scene, what);
        assert_eq!(self.holder.inquire(None).count, 1, "{what}: the lease is still held");
        assert_eq!(self.scene.owner(1), Some((1, 1)), "{what}: also on disk");
    }
}

fn header(cmd: u32, payload_len: usize) -> Header {
    Header::request(cmd, payload_len)
}

/// Whether the daemon closes the connection within `limit`, reading away anything it says.
fn closed_within(connection: &mut Connection, limit: Duration) -> bool {
    connection.set_limit(Duration::from_millis(200));
    let begin = Instant::now();
    let mut bytes = [0; 4096];
    while begin.elapsed() < limit {
        match connection.stream().read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return true,
        }
    }
    false
}

#[test]
fn a_header_cut_short_by_the_end_of_the_stream_harms_nobody() {
    let Some(program) = Program::under_test() else { return };
    let victim = Victim::new(program);
    for length in [1, 4, 31] {
        let connection = victim.stuck(&header(cmd::VERSION, 0).encode()[..length]);
        connection.stream().shutdown(Shutdown::Both).unwrap();
    }
    for _ in 0..20 {
        drop(victim.host().connect());
    }
    victim.assert_unharmed("headers cut short");
}

#[test]
fn a_payload_cut_short_by_the_end_of_the_stream_is_answered_with_enotconn() {
    let Some(program) = Program::under_test() else { return };
    let victim = Victim::new(program);
    let lockspace = victim.scene.storage().lockspace(1).encode();
    for command in [cmd::INQ_LOCKSPACE, cmd::READ_RESOURCE, cmd::GET_HOSTS, cmd::ALIGN] {
        let mut connection = victim.stuck(&header(command, lockspace.len()).encode());
        connection.send(&lockspace[..100]);
        connection.stream().shutdown(Shutdown::Write).unwrap();
        assert_eq!(connection.receive().result(), -107, "command {command}");
    }
    let mut client = registered(victim.host());
    let (count, payload) = raw::acquire_payload(&[victim.scene.storage().resource(2)]);
    let acquire = Header { data: count, data2: raw::SELF, ..header(cmd::ACQUIRE, payload.len()) };
    client.send_message(acquire, &payload[..payload.len() - 1]);
    client.stream().shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.receive().result(), -107, "an acquire without its last byte");
    assert_eq!(victim.scene.owner(2), None, "it took nothing");
    victim.assert_unharmed("payloads cut short");
}

#[test]
fn a_client_that_stops_in_mid_header_delays_nobody_and_is_dropped_in_the_end() {
    let Some(program) = Program::ours_under_test(HANGS) else { return };
    let victim = Victim::new(program);
    let mut stuck = assert_serves_beside(&victim.scene, "partial headers", || {
        [1, 8, 31].map(|length| victim.stuck(&header(cmd::STATUS, 0).encode()[..length])).into()
    });
    for connection in &mut stuck {
        assert!(closed_within(connection, Duration::from_secs(60)), "a silent client is kept for ever");
    }
    victim.assert_unharmed("partial headers");
}

#[test]
fn clients_that_stop_in_mid_payload_delay_nobody_and_are_dropped_in_the_end() {
    let Some(program) = Program::ours_under_test("stops its main loop or all its workers") else { return };
    let victim = Victim::new(program);
    let commands = [
        cmd::GET_HOSTS,
        cmd::HOST_STATUS,
        cmd::RENEWAL,
        cmd::ADD_LOCKSPACE,
        cmd::REM_LOCKSPACE,
        cmd::INQ_LOCKSPACE,
        cmd::READ_LOCKSPACE,
        cmd::WRITE_LOCKSPACE,
        cmd::READ_RESOURCE,
        cmd::WRITE_RESOURCE,
        cmd::READ_RESOURCE_OWNERS,
        cmd::ALIGN,
    ];
    let mut stuck = assert_serves_beside(&victim.scene, "partial payloads", || {
        let mut stuck: Vec<Connection> = commands
            .map(|command| {
                let mut bytes = header(command, 1104).encode().to_vec();
                bytes.extend([0; 100]);
                victim.stuck(&bytes)
            })
            .into();
        let mut acquiring = registered(victim.host());
        let (count, payload) = raw::acquire_payload(&[victim.scene.storage().resource(2)]);
        let acquire = Header { data: count, data2: raw::SELF, ..header(cmd::ACQUIRE, payload.len()) };
        acquiring.send_message(acquire, &payload[..200]);
        stuck.push(acquiring);
        stuck
    });
    // The last one is registered.
    for connection in stuck.iter_mut().take(commands.len()) {
        assert!(closed_within(connection, Duration::from_secs(60)), "a silent client is kept for ever");
    }
    victim.assert_unharmed("partial payloads");
}

#[test]
fn an_idle_connection_may_stay_silent_between_messages() {
    let Some(program) = Program::under_test() else { return };
    let mut victim = Victim::new(program);
    let mut plain = victim.host().connect();
    assert!(plain.version().is_ok());
    std::thread::sleep(Duration::from_secs(15));
    assert!(plain.version().is_ok(), "a plain connection is not closed for being idle");
    assert_eq!(victim.holder.inquire(None).count, 1, "nor is a registered one");
    victim.assert_unharmed("idle connections");
}

#[test]
fn a_client_that_asks_for_much_and_reads_nothing_delays_nobody() {
    let Some(program) = Program::ours_under_test(HANGS) else { return };
    let victim = Victim::new(program);
    // Fill the log: every request leaves a line.
    let mut chatter = victim.host().connect();
    for _ in 0..6000 {
        assert_eq!(chatter.inq_lockspace(&victim.scene.storage().lockspace(1), 0), 0);
    }
    let mut readers: Vec<Connection> = Vec::new();
    for command in [cmd::LOG_DUMP, cmd::STATUS, cmd::LOG_DUMP] {
        readers.push(victim.stuck(&header(command, 0).encode()));
    }
    // A plain connection that never reads the answers to thousands of requests.
    let mut flood = victim.host().connect();
    flood.stream().set_nonblocking(true).unwrap();
    let many = header(cmd::VERSION, 0).encode().repeat(1000);
    for _ in 0..50 {
        if flood.stream().write(&many).is_err() {
            break;
        }
    }
    assert_serves(&victim.scene, "unread replies");
    drop(readers);
    flood.stream().set_nonblocking(false).unwrap();
    assert!(closed_within(&mut flood, Duration::from_secs(60)) || flood.version().is_ok());
    victim.assert_unharmed("unread replies");
}

#[test]
fn a_wrong_magic_gets_no_answer_and_harms_nobody() {
    let Some(program) = Program::under_test() else { return };
    let victim = Victim::new(program);
    for magic in [MAGIC + 1, MAGIC.swap_bytes()] {
        let mut connection = victim.stuck(&Header { magic, ..header(cmd::GET_LOCKSPACES, 0) }.encode());
        connection.set_limit(Duration::from_secs(1));
        assert!(connection.try_receive().is_err(), "magic {magic:#x} was answered");
    }
    victim.assert_unharmed("wrong magic");
}

#[test]
fn another_major_version_is_not_served() {
    let Some(program) = Program::under_test() else { return };
    let victim = Victim::new(program);
    let bad = Header { version: 0x0001_0000, ..header(cmd::GET_LOCKSPACES, 0) };
    let mut connection = victim.stuck(&bad.encode());
    connection.set_limit(Duration::from_secs(1));
    assert!(connection.try_receive().is_err(), "a reply would be in a version the client does not know");
    connection.set_limit(SOON);
    assert!(connection.version().is_ok(), "the connection is still usable");
    victim.assert_unharmed("another major version");
}

#[test]
fn minor_versions_are_accepted() {
    let Some(program) = Program::under_test() else { return };
    let victim = Victim::new(program);
    for version in [0, 1, 2, 0xffff] {
        let mut connection = victim.stuck(&Header { version, ..header(cmd::GET_LOCKSPACES, 0) }.encode());
        assert_eq!(connection.receive().data2, 1, "version {version:#x}");
    }
    // VERSION is for finding out, so it is answered to any version.
    let mut connection = victim.stuck(&Header { version: 0x0009_0000, ..header(cmd::VERSION, 0) }.encode());
    assert_eq!(connection.receive().result(), 0);
    victim.assert_unharmed("minor versions");
}

#[test]
fn unknown_commands_are_answered_eopnotsupp_and_their_payload_is_skipped() {
    let Some(program) = Program::ours_under_test("gives no answer and reads the payload as headers") else {
        return;
    };
    let victim = Victim::new(program);
    for command in [0, 45, 99, 0xffff_ffff] {
        for payload_len in [0, 7, 32, 1301] {
            let mut connection = victim.host().connect();
            connection.send_message(header(command, payload_len), &vec![0x5a; payload_len]);
            assert_eq!(connection.receive().result(), -95, "command {command}, {payload_len} bytes");
            assert!(connection.version().is_ok(), "the connection is still usable");
        }
    }
    victim.assert_unharmed("unknown commands");
}

#[test]
fn absurd_lengths_and_counts_are_refused_or_ignored() {
    let Some(program) = Program::ours_under_test("trusts or waits for some of them") else { return };
    let victim = Victim::new(program);
    // Lengths that promise what never comes, or less than a header.
    for command in [45, cmd::STATUS, cmd::ACQUIRE, cmd::REM_LOCKSPACE] {
        for length in [0, 1, 31, 0x7fff_ffff, 0xffff_ffff] {
            let mut bytes = Header { length, data2: raw::SELF, ..header(command, 0) }.encode().to_vec();
            bytes.extend([0; 64]);
            drop(victim.stuck(&bytes));
        }
    }
    // Counts.
    let (_, payload) = raw::acquire_payload(&[victim.scene.storage().resource(2)]);
    for count in [9, 1000, 0x7fff_ffff] {
        let mut client = registered(victim.host());
        client.send_message(
            Header { data: count, data2: raw::SELF, ..header(cmd::ACQUIRE, payload.len()) },
            &payload,
        );
        assert_eq!(client.receive().result(), -7, "{count} resources");
        assert_eq!(client.inquire(None).result, 0, "the payload was skipped");
    }
    for num_disks in [0, 5, 1000, u32::MAX] {
        let mut client = registered(victim.host());
        let resource = Resource { num_disks, ..victim.scene.storage().resource(2) };
        assert_eq!(client.acquire(&[resource], 0, None), -34, "{num_disks} disks");
    }
    victim.assert_unharmed("absurd lengths");
}

#[test]
fn a_path_without_end_is_refused() {
    let Some(program) = Program::ours_under_test("uses such a path unbounded") else { return };
    let victim = Victim::new(program);
    let endless = vec![b'x'; 1024];
    let mut lockspace = victim.scene.storage().lockspace(2);
    lockspace.path.clone_from(&endless);
    for command in [cmd::ADD_LOCKSPACE, cmd::WRITE_LOCKSPACE] {
        let reply = victim.host().connect().request(command, 0, 1, 0, &lockspace.encode());
        assert_eq!(reply.result(), -22, "command {command}");
    }
    let resource = Resource { disks: vec![(endless, 0)], ..victim.scene.storage().resource(2) };
    assert_eq!(registered(victim.host()).acquire(&[resource], 0, None), -22);
    victim.assert_unharmed("paths without end");
}

#[test]
fn requests_in_one_write_are_answered_in_order() {
    let Some(program) = Program::under_test() else { return };
    let victim = Victim::new(program);
    let lockspace = victim.scene.storage().lockspace(1).encode();
    let mut bytes = Vec::new();
    for seq in 0..50 {
        bytes.extend(Header { seq, ..header(cmd::INQ_LOCKSPACE, lockspace.len()) }.encode());
        bytes.extend(&lockspace);
        bytes.extend(header(cmd::VERSION, 0).encode());
    }
    let mut connection = victim.host().connect();
    connection.send(&bytes);
    for seq in 0..50 {
        let first = connection.receive();
        assert_eq!((first.cmd, first.seq, first.result()), (cmd::INQ_LOCKSPACE, seq, 0));
        assert_eq!(connection.receive().cmd, cmd::VERSION);
    }
    victim.assert_unharmed("pipelined requests");
}

#[test]
fn a_message_may_come_byte_by_byte() {
    let Some(program) = Program::under_test() else { return };
    let victim = Victim::new(program);
    let mut bytes = header(cmd::INQ_LOCKSPACE, 1104).encode().to_vec();
    bytes.extend(victim.scene.storage().lockspace(1).encode());
    let mut connection = victim.host().connect();
    for (index, byte) in bytes.iter().enumerate() {
        connection.send(&[*byte]);
        if index % 100 == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert_eq!(connection.receive().result(), 0);
    victim.assert_unharmed("single bytes");
}

#[test]
fn a_restricted_connection_is_ignored_and_the_others_are_not() {
    let Some(program) = Program::under_test() else { return };
    let victim = Victim::new(program);
    let mut restricted = victim.host().connect();
    assert_eq!(restricted.request(cmd::RESTRICT, flag::RESTRICT_ALL, 0, 0, &[]).result(), 0);
    restricted.send(&header(cmd::VERSION, 0).encode());
    restricted.set_limit(Duration::from_secs(1));
    assert!(restricted.try_receive().is_err(), "a restricted connection gets no answer");
    victim.assert_unharmed("a restricted connection");
}

#[test]
fn random_bytes_harm_nobody() {
    let Some(program) = Program::ours_under_test(HANGS) else { return };
    let victim = Victim::new(program);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..200 {
        let mut bytes = if round % 2 == 0 { header(round % 48, 64).encode().to_vec() } else { Vec::new() };
        for _ in 0..(round % 150) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bytes.push(state.to_le_bytes()[7]);
        }
        // No SHUTDOWN, which any client may ask for.
        if bytes.get(8..12).is_some_and(|cmd| matches!(cmd, [4 | 29, 0, 0, 0])) {
            continue;
        }
        let mut connection = victim.host().connect();
        // The daemon may close a hopeless connection while it is being written to.
        let _ = connection.stream().write_all(&bytes);
        if round % 3 == 0 {
            let _ = connection.stream().shutdown(Shutdown::Write);
        }
        connection.set_limit(Duration::from_millis(5));
        let _ = connection.try_receive();
    }
    victim.assert_unharmed("random bytes");
}

#[test]
fn more_connections_than_the_daemon_serves_are_turned_away_and_later_ones_work() {
    let Some(program) = Program::ours_under_test("never answers the one too many, and leaks it") else {
        return;
    };
    let (_, most) = getrlimit(Limited::RLIMIT_NOFILE).unwrap();
    setrlimit(Limited::RLIMIT_NOFILE, most.min(65_536), most).unwrap();
    let victim = Victim::new(program);
    let open = |_| Connection::open(victim.host().run_dir()).unwrap();
    let mut connections: Vec<_> = (0..MORE_THAN_ARE_SERVED).map(open).collect();
    // Nothing was said on it: without the daemon's close it would wait for its first message.
    let last = connections.last_mut().unwrap();
    last.set_limit(SOON);
    let said = last.stream().read(&mut [0]);
    assert!(matches!(said, Ok(0)), "the one too many is to be closed: {said:?}");
    assert!(connections[0].version().is_ok(), "an early connection is served");
    drop(connections);
    bounded::wait_until("the daemon to serve new connections", SOON, || {
        Connection::open(victim.host().run_dir()).is_ok_and(|mut connection| connection.version().is_ok())
    });
    victim.assert_unharmed("too many connections");
}

/// The most important one: while clients misbehave, the daemon still notices that a process died,
/// still removes a lockspace, and still kills its holders.
#[test]
fn misbehaving_clients_do_not_stop_killing_and_removing() {
    let Some(program) = Program::ours_under_test(HANGS) else { return };
    let victim = Victim::new(program);
    let lockspace = victim.scene.storage().lockspace(1);
    let mut stuck = vec![victim.stuck(&[0x10]), victim.stuck(&header(cmd::STATUS, 0).encode()[..31])];
    for _ in 0..10 {
        stuck.push(victim.stuck(&header(cmd::READ_LOCKSPACE, 1104).encode()));
        stuck.push(victim.stuck(&header(cmd::GET_HOSTS, 1104).encode()));
    }
    let mut holder = Holder::start(victim.host(), &[&victim.scene.storage().resource_arg(2)]);
    // Resource 1 belongs to this very process, which the removal would kill.
    let Victim { scene, holder: ours } = victim;
    drop(ours);
    scene.wait_until_free(1, SOON);
    assert_eq!(scene.host(0).connect().rem_lockspace(&lockspace, 0), 0);
    assert_eq!(holder.finish(SOON).code, 128 + 9);
    assert_eq!(scene.host(0).connect().inq_lockspace(&lockspace, 0), -2);
    drop(stuck);
}

/// Renewals go on while clients misbehave: the other host never sees this one as failing.
#[test]
fn misbehaving_clients_do_not_stop_renewals() {
    let Some(program) = Program::ours_under_test(HANGS) else { return };
    let scene = Scene::two_hosts(program, 1);
    scene.wait_until_all_see_all();
    let mut stuck = Vec::new();
    for _ in 0..20 {
        let mut connection = scene.host(0).connect();
        connection.send(&header(cmd::READ_LOCKSPACE, 1104).encode());
        stuck.push(connection);
        let mut connection = scene.host(0).connect();
        connection.send(&[0; HEADER_LEN - 1]);
        stuck.push(connection);
    }
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(12) {
        let (result, hosts) = scene.host(1).connect().get_hosts("LS", 1);
        assert_eq!(result, 0);
        assert_eq!(hosts[0].flags & 0xf, 3, "host 1 is live");
        std::thread::sleep(Duration::from_millis(500));
    }
    drop(stuck);
}
