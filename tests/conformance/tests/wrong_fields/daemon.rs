//! Commands without payload, and the fields of a header that no command looks at (socket-protocol.md 3.2, 3.4, 7.4 to 7.6, 7.21,
//! 7.27, 7.28).

use sanlock_conformance::raw::{SELF, cmd, flag};
use sanlock_conformance::{Lockspace, Program};

use crate::arena::{Arena, area};
use crate::message::{Answer, Message, ours_only};

#[test]
fn commands_without_payload() {
    let Some(arena) = Arena::new() else { return };
    // Not forced, and a lockspace is joined.
    arena.refused("SHUTDOWN", &Message::bare(cmd::SHUTDOWN).flags(SELF).data2(SELF), Answer::End);
    arena.refused("SHUTDOWN_WAIT", &Message::bare(cmd::SHUTDOWN_WAIT).flags(SELF).data2(SELF), -16);
    for data in [4, 99, 0x8000_0000, SELF] {
        arena.refused(
            &format!("STATUS of type {data}"),
            &Message::bare(cmd::STATUS).data(data).flags(SELF),
            0,
        );
    }
    let odd = |command: u32| Message::bare(command).flags(SELF).data(SELF).data2(SELF);
    arena.refused("GET_LOCKSPACES", &odd(cmd::GET_LOCKSPACES), 0);
    arena.refused("VERSION", &odd(cmd::VERSION), 0);
    arena.refused("VERSION of another version", &odd(cmd::VERSION).version(u32::MAX), 0);
    let other = Message::new(cmd::INQ_LOCKSPACE, Vec::new()).version(0x0001_0000);
    arena.refused("another major version", &other, Answer::Silence);
    for length in [0, 31, 33, 0x7fff_ffff, SELF] {
        arena.refused(
            &format!("VERSION, length {length:#x}"),
            &Message::bare(cmd::VERSION).length(length),
            0,
        );
        arena.refused(&format!("INQUIRE, length {length:#x}"), &Message::bare(cmd::INQUIRE).data2(SELF), -16);
    }
    let lockspace = Lockspace { name: b"LS9".to_vec(), ..arena.lockspace() };
    for length in [0, 31, 32, 0x7fff_ffff, SELF] {
        let message = Message::new(cmd::INQ_LOCKSPACE, lockspace.encode()).length(length);
        arena.refused(&format!("INQ_LOCKSPACE, length {length:#x}"), &message, -2);
    }
    for command in [0, 41, 42, 43, 44, 45, 0x8000_0001, SELF] {
        arena.refused(&format!("command {command}"), &Message::bare(command), ours_only(-95));
        let message = Message::new(command, vec![0x5a; 1301]);
        arena.refused(&format!("command {command} with payload"), &message, ours_only(-95));
    }
    arena.still_unchanged();
}

/// A connection that restricted itself completely is not heard, whatever it asks.
#[test]
fn a_restricted_connection() {
    let Some(arena) = Arena::new() else { return };
    let mut connection = arena.scene.host(0).connect();
    assert_eq!(connection.request(cmd::RESTRICT, flag::RESTRICT_ALL, 0, 0, &[]).result(), 0);
    for command in [cmd::SHUTDOWN, cmd::RESTRICT, cmd::REGISTER, cmd::SHUTDOWN_WAIT, cmd::VERSION] {
        let message = Message::bare(command).data(1);
        connection.send_message(message.header(), message.payload());
    }
    connection.set_limit(std::time::Duration::from_millis(700));
    arena.expect("an answer", connection.try_receive().ok(), None);
    arena.still_unchanged();
}

/// Leases do not end because their process said something that nobody understands.
#[test]
fn nonsense_on_the_connection_of_a_process() {
    let Some(arena) = Arena::new() else { return };
    arena.mutter_as_holder(&[0x5a; 32]);
    arena.still_unchanged();
    let Some(_) = Program::ours_under_test("waits for the rest in its main loop") else { return };
    arena.mutter_as_holder(&[0x5a; 7]);
    arena.still_unchanged();
}

/// What is announced beyond reason is not waited for; the leases are kept all the same.
#[test]
fn more_than_can_be_skipped_on_the_connection_of_a_process() {
    let Some(_) = Program::ours_under_test("waits for what is announced") else { return };
    let Some(arena) = Arena::new() else { return };
    let message = Message::new(cmd::SET_LVB, arena.resource(area::OWN).encode_bare()).length(SELF);
    arena.mutter_as_holder(&[&message.header().encode()[..], message.payload()].concat());
    arena.still_unchanged();
}
