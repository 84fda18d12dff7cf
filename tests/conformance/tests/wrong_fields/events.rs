//! Hosts, renewals, settings and events of a lockspace (socket-protocol.md 7.14, 7.22, 7.30 to 7.32, 9).

use std::io::{ErrorKind, Read};
use std::time::Duration;

use sanlock_conformance::raw::{Connection, Lockspace, SELF, cmd, flag};

use crate::arena::{Arena, SECOND};
use crate::message::{Message, endless_path, full_name, ours_only};

/// Streams that one lockspace serves.
const STREAMS: usize = 32;

/// Names of lockspaces that are not joined.
fn unknown(arena: &Arena) -> Vec<(&'static str, Lockspace)> {
    let right = arena.lockspace();
    let named = |name: &[u8]| Lockspace { name: name.to_vec(), ..right.clone() };
    vec![
        ("an unknown name", named(b"LS9")),
        ("a shorter name", named(b"L")),
        ("a lockspace that is not joined", named(SECOND.as_bytes())),
        ("a name without NUL", named(&full_name())),
    ]
}

fn nameless(arena: &Arena) -> Lockspace {
    Lockspace { name: Vec::new(), ..arena.lockspace() }
}

fn event(host_id: u64, generation: u64, event: u64, data: u64) -> Vec<u8> {
    [host_id, generation, event, data].iter().flat_map(|field| field.to_le_bytes()).collect()
}

fn with_event(command: u32, lockspace: &Lockspace, event: &[u8]) -> Message {
    Message::new(command, [&lockspace.encode()[..], event].concat())
}

#[test]
fn host_status_get_hosts_renewal_and_set_config() {
    let Some(arena) = Arena::new() else { return };
    let mut lockspaces = unknown(&arena);
    lockspaces.push(("no name", nameless(&arena)));
    let command = |command: u32, lockspace: &Lockspace| Message::new(command, lockspace.encode());
    for (what, lockspace) in lockspaces {
        for (number, code) in [(cmd::HOST_STATUS, -28), (cmd::RENEWAL, -28), (cmd::GET_HOSTS, -2)] {
            let message = command(number, &lockspace);
            arena.refused(&format!("command {number}: {what}"), &message, code);
            // What these two say of their length, and what else is in the lockspace, does not matter.
            let odd = Lockspace { path: endless_path(), host_id: u64::MAX, ..lockspace.clone() };
            let message = command(number, &odd).length(32).flags(SELF).data(SELF);
            arena.refused(&format!("command {number}: {what}, the rest nonsense"), &message, code);
        }
        for number in [0, 1, 2, 4, 8, 3, SELF] {
            let message = command(cmd::SET_CONFIG, &lockspace).data(number);
            arena.refused(&format!("set config {number}: {what}"), &message, -2);
        }
    }
    let right = arena.lockspace();
    for number in [0, 3, 5, 6, 7, 9, 12, 15, 16, 0x100, 0x8000_0001, SELF] {
        let message = command(cmd::SET_CONFIG, &right).data(number);
        arena.refused(&format!("set config {number}"), &message, -22);
    }
    // On the connection of a process they answer the same, and it is not closed.
    let lost = Lockspace { name: b"LS9".to_vec(), ..right.clone() };
    for (number, code) in [
        (cmd::HOST_STATUS, -28),
        (cmd::RENEWAL, -28),
        (cmd::GET_HOSTS, -2),
        (cmd::SET_CONFIG, -2),
        (cmd::END_EVENT, -2),
    ] {
        let what = format!("command {number} on the connection of a process");
        arena.refused_to_holder(&what, &command(number, &lost).data(1), code);
    }
    // Its leases would hang on its being quick to read.
    let register = with_event(cmd::REG_EVENT, &right, &[0; 32]);
    arena.refused_to_holder("REG_EVENT on the connection of a process", &register, ours_only(-22));
    // A host id that cannot be has no entry.
    for host_id in [2001, 1 << 32 | 1, u64::MAX] {
        let lockspace = Lockspace { host_id, ..right.clone() };
        arena.refused(&format!("host id {host_id}"), &command(cmd::GET_HOSTS, &lockspace), 0);
        let count = arena.scene.host(0).connect().get_hosts("LS", host_id).1.len();
        arena.expect(&format!("entries of host id {host_id}"), count, 0);
    }
    arena.still_unchanged();
    arena.granted("HOST_STATUS", &command(cmd::HOST_STATUS, &right), 0);
    arena.granted("RENEWAL", &command(cmd::RENEWAL, &right), 0);
    arena.granted("GET_HOSTS", &command(cmd::GET_HOSTS, &right), 0);
    for setting in [flag::CONFIG_USED, flag::CONFIG_UNUSED, flag::CONFIG_UNUSED_BY_ORPHANS] {
        arena.granted("SET_CONFIG", &command(cmd::SET_CONFIG, &right).data(setting).flags(SELF), 0);
    }
}

#[test]
fn set_event() {
    let Some(arena) = Arena::new() else { return };
    let right = arena.lockspace();
    let set =
        |lockspace: &Lockspace, host_id| with_event(cmd::SET_EVENT, lockspace, &event(host_id, 1, 1, 1));
    let every = [0, 1, flag::SETEV_CLEAR_EVENT, 2, flag::SETEV_REPLACE, 0x10, SELF];
    for flags in every {
        let ask = |lockspace: &Lockspace, host_id| set(lockspace, host_id).flags(flags);
        arena.refused(&format!("no name, flags {flags:#x}"), &ask(&nameless(&arena), 2), -22);
        for (what, lockspace) in unknown(&arena) {
            arena.refused(&format!("{what}, flags {flags:#x}"), &ask(&lockspace, 2), -2);
        }
        for host_id in [0, 2001, 1 << 32 | 2, u64::MAX] {
            let what = format!("host id {host_id}, flags {flags:#x}");
            arena.refused(&what, &ask(&right, host_id), -22);
            // Before the lockspace is looked for.
            let unknown = unknown(&arena).remove(0).1;
            arena.refused(&format!("{what}, unknown lockspace"), &ask(&unknown, host_id), -22);
        }
    }
    arena.still_unchanged();
    // What has been set is not replaced by another event unless that is asked for.
    arena.granted("SET_EVENT", &set(&right, 2), 0);
    let other = |host_id| with_event(cmd::SET_EVENT, &right, &event(host_id, 1, 2, 1));
    arena.answered("another event", &other(2), -16);
    arena.answered("another event for another host", &other(3), -16);
    arena.answered("another event for all hosts", &other(2).flags(0x10), -16);
    arena.granted("SET_EVENT in its place", &other(2).flags(flag::SETEV_REPLACE), 0);
}

fn stream(arena: &Arena, lockspace: &Lockspace) -> Connection {
    let mut connection = arena.scene.host(0).connect();
    let reply = connection.request(cmd::REG_EVENT, 0, 0, 0, &[&lockspace.encode()[..], &[0; 32]].concat());
    assert_eq!(reply.result(), 0, "REG_EVENT");
    connection
}

/// Whether the daemon has closed a stream, looked at for a short while.
fn closed(stream: &mut Connection, wait: Duration) -> bool {
    stream.set_limit(wait);
    match Read::read(&mut stream.stream(), &mut [0]) {
        Ok(0) => true,
        Ok(_) => panic!("an event that nobody sent"),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => false,
        Err(_) => true,
    }
}

/// Long enough for the daemon to have acted on what it has answered.
const MOMENT: Duration = Duration::from_millis(300);

#[test]
fn streams() {
    let Some(arena) = Arena::new() else { return };
    let right = arena.lockspace();
    let second = arena.second();
    assert_eq!(arena.scene.host(0).connect().add_lockspace(&second, 0, 1), 0);
    arena.look_anew();
    let end = |lockspace: &Lockspace| Message::new(cmd::END_EVENT, lockspace.encode());
    let register = |lockspace: &Lockspace| with_event(cmd::REG_EVENT, lockspace, &[0xff; 32]);
    let unknown: Vec<_> =
        unknown(&arena).into_iter().filter(|(what, _)| !what.contains("not joined")).collect();
    let mut kept = stream(&arena, &right);
    for (what, lockspace) in &unknown {
        arena.refused(&format!("register: {what}"), &register(lockspace), -2);
        arena.refused(&format!("end: {what}"), &end(lockspace), -2);
    }
    arena.refused("register: no name", &register(&nameless(&arena)), -22);
    arena.refused("end: no name", &end(&nameless(&arena)), -22);

    // Somebody else's stream is none of the business of who ends one.
    arena.refused("end what another connection registered", &end(&right), 0);
    arena.refused("end in another lockspace", &end(&second), 0);
    arena.expect("the stream of another connection is closed", closed(&mut kept, MOMENT), false);
    let mut leaving = stream(&arena, &right);
    leaving.send(&1_u32.to_le_bytes());
    arena.refused("end in the lockspace of another stream", &end(&second), 0);
    arena.expect("a stream of the other lockspace is closed", closed(&mut leaving, MOMENT), false);
    arena.refused("end of the right one", &end(&right), 0);
    arena.expect("its stream stays open", !closed(&mut leaving, Duration::from_secs(5)), false);
    // What is said on a stream to end it: the number 1 in four bytes, or fewer; four other bytes are passed over.
    let mut talking = stream(&arena, &right);
    talking.send(&2_u32.to_le_bytes());
    arena.refused("end after another number", &end(&right), 0);
    arena.expect("a stream with another number is closed", closed(&mut talking, MOMENT), false);
    for bytes in [&[1][..], &[1, 0, 0], &[1, 0, 0, 0, 0, 0, 0, 0]] {
        let mut odd = stream(&arena, &right);
        odd.send(bytes);
        arena.refused(&format!("end after {} bytes", bytes.len()), &end(&right), 0);
        let open = !closed(&mut odd, Duration::from_secs(5));
        arena.expect(&format!("a stream stays open after {} bytes", bytes.len()), open, false);
    }
    arena.expect("all the while the first stream was closed", closed(&mut kept, MOMENT), false);

    let full: Vec<Connection> = (2..STREAMS).map(|_| stream(&arena, &right)).collect();
    arena.refused("one stream too many", &register(&right), -50);
    arena.granted("a stream of the other lockspace", &register(&second), 0);
    drop(full);
    arena.still_unchanged();
    arena.granted("REG_EVENT", &register(&right), 0);
    arena.granted("END_EVENT", &end(&right), 0);
    arena.expect("in the end the first stream was closed", closed(&mut kept, MOMENT), false);
}
