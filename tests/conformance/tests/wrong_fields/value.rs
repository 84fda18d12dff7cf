//! SET_LVB and GET_LVB (socket-protocol.md 7.24, 7.25).

use sanlock_conformance::Resource;
use sanlock_conformance::raw::{SELF, cmd};

use crate::arena::{Arena, SECOND, area};
use crate::message::{Answer, Expected, Message, full_name, ours_only};

fn set(resource: &Resource, bytes: &[u8]) -> Message {
    Message::new(cmd::SET_LVB, [&resource.encode_bare()[..], bytes].concat())
}

fn get(resource: &Resource) -> Message {
    Message::new(cmd::GET_LVB, resource.encode_bare())
}

#[test]
fn value_blocks() {
    let Some(arena) = Arena::new() else { return };
    let right = arena.resource(area::OWN);
    let bare = |lockspace: &[u8], name: &[u8]| Resource {
        lockspace: lockspace.to_vec(),
        name: name.to_vec(),
        ..right.clone()
    };
    let cases = [
        ("no lockspace", bare(b"", b"R1"), -2),
        ("an unknown lockspace", bare(b"LS9", b"R1"), -2),
        ("a lockspace that is not joined", bare(SECOND.as_bytes(), b"R1"), -2),
        ("a lockspace name without NUL", bare(&full_name(), b"R1"), -2),
        ("no name", bare(b"LS", b""), -2),
        ("an unknown name", bare(b"LS", b"R"), -2),
        ("a name without NUL", bare(b"LS", &full_name()), -2),
        ("a free lease", arena.resource(area::FREE), -2),
        ("an orphan", arena.resource(area::ORPHAN), -2),
        ("shared without a value", arena.resource(area::SHARED), -22),
        ("another process's without a value", arena.resource(area::FOREIGN), -22),
    ];
    for (what, resource, code) in cases {
        arena.refused(&format!("set: {what}"), &set(&resource, b"x"), code);
        arena.refused(&format!("set: {what}, a sector"), &set(&resource, &[b'x'; 512]), code);
        arena.refused(&format!("get: {what}"), &get(&resource), code);
        for length in [1, 4096] {
            // The original announces bytes that do not follow.
            let message = get(&resource).data2(length);
            arena.refused(&format!("get: {what}, {length} bytes"), &message, ours_only(code));
        }
    }
    for length in [513, 4096] {
        arena.refused(&format!("{length} bytes"), &set(&right, &vec![b'x'; length]), -7);
    }
    for length in [4097, 5000, 8192] {
        arena.refused(&format!("{length} bytes"), &set(&right, &vec![b'x'; length]).strays(), -7);
    }
    arena.refused("no bytes", &set(&right, b""), ours_only(-22));
    for length in [0, 31, 32, 100, 159] {
        arena.refused(&format!("length {length}"), &set(&right, b"").length(length), ours_only(-22));
    }
    // So many bytes are not waited for.
    for length in [0x8000_0000, u32::MAX] {
        let expected = Expected { reference: None, ours: Answer::End };
        arena.refused(&format!("length {length:#x}"), &set(&right, b"").length(length), expected);
    }
    arena.still_unchanged();
    // More than there is: cut. The original reads beyond its buffer.
    for length in [513, SELF] {
        arena.refused(&format!("get {length:#x} bytes"), &get(&right).data2(length), ours_only(0));
    }
    arena.granted("GET_LVB", &get(&right).flags(SELF), 0);
    arena.granted("SET_LVB", &set(&right, b"x").data(SELF).data2(SELF).flags(SELF), 0);
}
