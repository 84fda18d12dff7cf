//! The commands on a resource index (socket-protocol.md 7.33).

use sanlock_conformance::raw::{self, SELF, cmd, flag};

use crate::arena::{Arena, SECOND, area};
use crate::message::{Message, endless_path, full_name, ours_only};

const WITH_ENTRY: [u32; 4] =
    [cmd::UPDATE_RINDEX, cmd::LOOKUP_RINDEX, cmd::CREATE_RESOURCE, cmd::DELETE_RESOURCE];

/// The fields of a command on an index; an entry only where the command has one.
#[derive(Clone)]
struct Index {
    lockspace: Vec<u8>,
    path: Vec<u8>,
    offset: u64,
    flags: u32,
    max_resources: u32,
    name: Vec<u8>,
    at: u64,
}

impl Index {
    fn right(arena: &Arena) -> Self {
        let storage = arena.scene.storage();
        Self {
            lockspace: b"LS".to_vec(),
            path: storage.path().into(),
            offset: storage.offset(area::INDEX),
            flags: 0,
            max_resources: 3,
            name: Vec::new(),
            at: 0,
        }
    }

    fn entry(&self, name: &[u8], at: u64) -> Self {
        Self { name: name.to_vec(), at, ..self.clone() }
    }

    fn message(&self, command: u32, flags: u32) -> Message {
        let mut payload = raw::rindex("", "", self.offset, self.flags, self.max_resources);
        payload[16..16 + self.lockspace.len()].copy_from_slice(&self.lockspace);
        payload[64..64 + self.path.len()].copy_from_slice(&self.path);
        if WITH_ENTRY.contains(&command) {
            let mut entry = raw::rentry("", self.at);
            entry[..self.name.len()].copy_from_slice(&self.name);
            payload.extend(entry);
        }
        Message::new(command, payload).flags(flags)
    }
}

/// What each command needs to be right, besides the index: flags and entry.
fn rights(arena: &Arena) -> Vec<(u32, u32, Index)> {
    let index = Index::right(arena);
    let second = arena.scene.storage().offset(area::ENTRY + 1);
    vec![
        (cmd::UPDATE_RINDEX, flag::RX_UPDATE_ADD, index.entry(b"B", second)),
        (cmd::LOOKUP_RINDEX, 0, index.entry(b"A", 0)),
        (cmd::CREATE_RESOURCE, 0, index.entry(b"B", 0)),
        (cmd::DELETE_RESOURCE, 0, index.entry(b"A", 0)),
        (cmd::REBUILD_RINDEX, 0, index),
    ]
}

#[test]
fn the_index() {
    let Some(arena) = Arena::new() else { return };
    let base = arena.scene.storage().offset(area::INDEX);
    let blank = arena.scene.storage().offset(area::BLANK);
    for (command, flags, right) in rights(&arena) {
        let refused = |what: &str, index: Index, more: u32, expected: crate::message::Expected| {
            arena.refused(
                &format!("command {command}: {what}"),
                &index.message(command, flags | more),
                expected,
            );
        };
        let named = |name: &[u8]| Index { lockspace: name.to_vec(), ..right.clone() };
        let offset = |offset| Index { offset, ..right.clone() };
        let without = flag::RX_NO_LOCKSPACE;
        refused("no lockspace", named(b""), 0, (-2).into());
        refused("an unknown lockspace", named(b"LS9"), 0, (-2).into());
        refused("a lockspace that is not joined", named(SECOND.as_bytes()), 0, (-2).into());
        refused("a lockspace without NUL", named(&full_name()), 0, (-2).into());
        // Create and delete need the lockspace whatever the flag says.
        let needed = matches!(command, cmd::CREATE_RESOURCE | cmd::DELETE_RESOURCE);
        let code = if needed { -2 } else { -276 };
        refused("another lockspace, none needed", named(b"LS9"), without, code.into());
        refused("no lockspace, none needed", named(b""), without, code.into());
        refused("no index there", offset(blank), 0, (-274).into());
        refused("a lockspace there", offset(0), 0, (-274).into());
        refused("an offset within the index", offset(base + 512), 0, (-274).into());
        refused("an offset that is no multiple of a sector", offset(base + 100), 0, (-22).into());
        refused("an offset beyond the end", offset(1 << 30), 0, (-90).into());
        refused("an offset of 63 bits", offset(1 << 63), 0, (-22).into());
        refused("the largest offset", offset(u64::MAX), 0, (-22).into());
        refused("no path", Index { path: Vec::new(), ..right.clone() }, 0, (-2).into());
        refused("a path without NUL", Index { path: endless_path(), ..right.clone() }, 0, ours_only(-22));
        for (what, path, code) in arena.closed_paths() {
            let index = Index { path, ..right.clone() };
            arena.refused(&format!("command {command}: {what}"), &index.message(command, flags), code);
        }
        let directory = arena.scene.storage().dir().to_string_lossy().into_owned();
        let index = Index { path: directory.into(), ..right.clone() };
        let message = index.message(command, flags);
        arena.refused(&format!("command {command}: a directory"), &message, -21);
    }
    arena.still_unchanged();
}

#[test]
fn entries() {
    let Some(arena) = Arena::new() else { return };
    let right = Index::right(&arena);
    let (first, second) =
        (arena.scene.storage().offset(area::ENTRY), arena.scene.storage().offset(area::ENTRY + 1));
    let (add, rem) = (flag::RX_UPDATE_ADD, flag::RX_UPDATE_REM);
    let within = (second + 512, second + 100);
    let lookup =
        |what, name: &[u8], at, code: i32| (what, cmd::LOOKUP_RINDEX, 0, right.entry(name, at), code.into());
    let update = |what, flags, name: &[u8], at, code: i32| {
        (what, cmd::UPDATE_RINDEX, flags, right.entry(name, at), code.into())
    };
    let outside = [
        ("the index itself", right.offset),
        ("the index's lease", right.offset + (1 << 20)),
        ("before the index", 1 << 20),
        ("behind the last entry", right.offset + (5 << 20)),
        ("an offset of 63 bits", 1 << 63),
        ("a large offset", (1 << 40) + first),
    ];
    let mut cases: Vec<(&str, u32, u32, Index, crate::message::Expected)> = vec![
        lookup("an unknown name", b"X", 0, -2),
        lookup("a name without NUL", &full_name(), 0, -2),
        lookup("another entry's place", b"A", second, -278),
        lookup("an unknown name at a place in use", b"X", first, -278),
        lookup("an offset that is no multiple of an area", b"", within.0, -277),
        lookup("an offset that is no multiple of a sector", b"A", within.1, -277),
        update("no flag", 0, b"B", second, -22),
        update("unknown flags", !(add | rem | flag::RX_NO_LOCKSPACE), b"B", second, -22),
        update("add without name", add, b"", second, -22),
        update("add without place", add, b"B", 0, -22),
        update("add nothing", add, b"", 0, -22),
        update("remove without place", rem, b"A", 0, -22),
        update("both, without place", add | rem, b"A", 0, -22),
        update("add within an area", add, b"B", within.0, -277),
        update("remove within an area", rem, b"", within.0, -277),
        ("an unknown name", cmd::DELETE_RESOURCE, 0, right.entry(b"X", 0), (-2).into()),
        ("no name", cmd::DELETE_RESOURCE, 0, right.entry(b"", 0), (-2).into()),
        ("a name without NUL", cmd::DELETE_RESOURCE, 0, right.entry(&full_name(), 0), (-2).into()),
        ("an offset within an area", cmd::DELETE_RESOURCE, 0, right.entry(b"X", within.0), (-277).into()),
        ("a name that is there", cmd::CREATE_RESOURCE, 0, right.entry(b"A", 0), ours_only(-17)),
    ];
    for (what, at) in outside {
        cases.push((what, cmd::UPDATE_RINDEX, add, right.entry(b"B", at), ours_only(-277)));
        cases.push((what, cmd::UPDATE_RINDEX, rem, right.entry(b"", at), ours_only(-277)));
        cases.push((what, cmd::LOOKUP_RINDEX, 0, right.entry(b"", at), ours_only(-277)));
        cases.push((what, cmd::LOOKUP_RINDEX, 0, right.entry(b"A", at), ours_only(-277)));
    }
    for (what, command, flags, index, expected) in cases {
        for more in [0, flag::RX_NO_LOCKSPACE] {
            let what = format!("command {command}, flags {:#x}: {what}", flags | more);
            arena.refused(&what, &index.message(command, flags | more), expected);
        }
    }
    for hosts in [0x8000_0000, u32::MAX] {
        let message = right.entry(b"B", 0).message(cmd::CREATE_RESOURCE, 0).data2(hosts);
        arena.refused(&format!("{hosts:#x} hosts"), &message, ours_only(-22));
    }
    arena.still_unchanged();
    for (command, flags, index) in rights(&arena) {
        if command != cmd::CREATE_RESOURCE {
            arena.granted(&format!("command {command}"), &index.message(command, flags).data(SELF), 0);
        }
    }
    for name in [b"C", b"D"] {
        arena.granted("CREATE_RESOURCE", &right.entry(name, 0).message(cmd::CREATE_RESOURCE, 0), 0);
    }
}

#[test]
fn format() {
    let Some(arena) = Arena::new() else { return };
    let spare = arena.scene.storage().offset(area::SECOND);
    let right = Index { offset: spare, ..Index::right(&arena) };
    let refused = |what: &str, index: Index, expected: crate::message::Expected| {
        arena.refused(what, &index.message(cmd::FORMAT_RINDEX, 0), expected);
    };
    for (what, flags) in [
        ("a sector flag alone", flag::SECTOR512),
        ("a large sector flag alone", flag::SECTOR4K),
        ("an align flag alone", flag::ALIGN1M),
        ("small sectors in a large area", flag::SECTOR512 | flag::ALIGN8M),
    ] {
        refused(what, Index { flags, ..right.clone() }, (-1).into());
    }
    refused(
        "an offset that is no multiple of a sector",
        Index { offset: 100, ..right.clone() },
        (-22).into(),
    );
    refused("an offset of 63 bits", Index { offset: 1 << 63, ..right.clone() }, (-22).into());
    refused("the largest offset", Index { offset: u64::MAX, ..right.clone() }, (-22).into());
    refused("no path", Index { path: Vec::new(), ..right.clone() }, (-2).into());
    refused("a path without NUL", Index { path: endless_path(), ..right.clone() }, ours_only(-22));
    for (what, path, code) in arena.closed_paths() {
        let index = Index { path, ..right.clone() };
        arena.refused(what, &index.message(cmd::FORMAT_RINDEX, 0), code);
    }
    arena.still_unchanged();
    arena.granted("FORMAT_RINDEX", &right.message(cmd::FORMAT_RINDEX, flag::RX_NO_LOCKSPACE), 0);
}
