//! REQUEST and the EXAMINE commands (socket-protocol.md 7.11, 7.13).

use sanlock_conformance::raw::{SELF, cmd, flag};
use sanlock_conformance::{Lockspace, Resource};

use crate::arena::{Arena, SECOND, area};
use crate::message::{Message, endless_path, full_name, ours_only};

const GRACEFUL: u32 = 2;

#[test]
fn request() {
    let Some(arena) = Arena::new() else { return };
    // A demand for the version after the one that is held.
    let right = Resource { lver: 2, ..arena.resource(area::FOREIGN) };
    let (good, base) = right.disks[0].clone();
    let ask = |resource: &Resource| Message::new(cmd::REQUEST, resource.encode()).data(GRACEFUL);
    let named = |lockspace: &str, name: &str| right.clone().named(lockspace, name);
    let on = |path: &[u8], offset| Resource { disks: vec![(path.to_vec(), offset)], ..right.clone() };
    let place = |area| Resource { disks: arena.resource(area).disks, ..right.clone() };
    let free = Resource { lver: 9, ..arena.resource(area::FREE) };
    let cases = [
        ("no lockspace", named("", "R4"), -28),
        ("an unknown lockspace", named("LS9", "R4"), -28),
        ("a lockspace that is not joined", named(SECOND, "R4"), -28),
        ("a lockspace name without NUL", Resource { lockspace: full_name(), ..right.clone() }, -28),
        ("no name", named("LS", ""), -227),
        ("another name", named("LS", "R9"), -227),
        ("a name without NUL", Resource { name: full_name(), ..right.clone() }, -227),
        ("another lockspace on disk", place(area::OTHER_LOCKSPACE), -226),
        ("another name on disk", place(area::OTHER_NAME), -227),
        ("nothing there", place(area::BLANK), -223),
        ("a lockspace there", on(&good, 0), -223),
        ("a free lease", free.clone(), 0),
        ("a free lease of another name", free.named("LS", "R9"), -227),
        ("the held version", Resource { lver: 1, ..right.clone() }, -272),
        ("no version", Resource { lver: 0, ..right.clone() }, -272),
        ("an offset that is no multiple of a sector", on(&good, base + 100), -22),
        ("an offset within a lease", on(&good, base + 512), -223),
        ("an offset beyond the end", on(&good, 1 << 30), -90),
        ("an offset of 63 bits", on(&good, 1 << 63), -22),
        ("the largest offset", on(&good, u64::MAX), -22),
        ("no path", on(b"", base), -2),
    ];
    for (what, resource, code) in cases {
        arena.refused(what, &ask(&resource), code);
        if !matches!(what, "no version") {
            arena.refused(&format!("{what}, unknown mode"), &ask(&resource).data(77), code);
        }
    }
    for (what, path, code) in arena.closed_paths() {
        arena.refused(what, &ask(&on(&path, base)), code);
    }
    let directory = arena.scene.storage().dir().to_string_lossy().into_owned();
    arena.refused("a directory", &ask(&on(directory.as_bytes(), base)), -21);
    arena.refused("a path without NUL", &ask(&on(&endless_path(), base)), ours_only(-22));
    for num_disks in [0, 5, 0x8000_0000, u32::MAX] {
        let message = ask(&Resource { num_disks, ..right.clone() }).strays();
        arena.refused(&format!("{num_disks} disks"), &message, -34);
    }
    // Taking back what nobody asked.
    let clear = |resource: &Resource| ask(&Resource { lver: 0, ..resource.clone() }).data(0);
    arena.refused("take back, an unknown lockspace", &clear(&named("LS9", "R4")), -28);
    arena.refused("take back, nothing there", &clear(&place(area::BLANK)), -270);
    arena.refused("take back, a lockspace there", &clear(&on(&good, 0)), -270);
    arena.refused("take back, beyond the end", &clear(&on(&good, 1 << 30)), -90);
    arena.still_unchanged();
    arena.granted("REQUEST", &ask(&Resource { lver: 0, ..right.clone() }).flags(flag::NEXT_LVER).data(77), 0);
    arena.granted("REQUEST to take back", &clear(&right), 0);
}

/// They answer 0 whatever they are asked, and nothing is done for what is not held or was not asked for.
#[test]
fn examine() {
    let Some(arena) = Arena::new() else { return };
    let right = arena.resource(area::OWN);
    for name in [&b""[..], b"LS9", SECOND.as_bytes(), b"LS", &full_name()] {
        let lockspace = Lockspace { name: name.to_vec(), ..arena.lockspace() };
        let what = String::from_utf8_lossy(name).into_owned();
        let path = Lockspace { path: endless_path(), host_id: 2001, offset: 5, ..lockspace.clone() };
        arena.refused(&what, &Message::new(cmd::EXAMINE_LOCKSPACE, lockspace.encode()), 0);
        let message = Message::new(cmd::EXAMINE_LOCKSPACE, path.encode()).flags(SELF).data(SELF);
        arena.refused(&format!("{what}, the rest nonsense"), &message, 0);
        for resource in [&b""[..], b"R9", b"R1", &full_name()] {
            let names =
                Resource { lockspace: name.to_vec(), name: resource.to_vec(), num_disks: 9, ..right.clone() };
            let what = format!("{what}:{}", String::from_utf8_lossy(resource));
            arena.refused(&what, &Message::new(cmd::EXAMINE_RESOURCE, names.encode_bare()), 0);
        }
    }
    arena.still_unchanged();
}
