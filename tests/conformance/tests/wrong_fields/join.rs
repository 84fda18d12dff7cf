//! ADD_LOCKSPACE, REM_LOCKSPACE, INQ_LOCKSPACE (socket-protocol.md 7.2, 7.3, 7.15).

use sanlock_conformance::Lockspace;
use sanlock_conformance::raw::{cmd, flag};

use crate::arena::{Arena, area};
use crate::message::{Message, endless_path, full_name, ours_only};

fn add(lockspace: &Lockspace) -> Message {
    Message::new(cmd::ADD_LOCKSPACE, lockspace.encode()).data(1)
}

#[test]
fn add_lockspace() {
    let Some(arena) = Arena::new() else { return };
    let right = arena.second();
    let joined = arena.lockspace();
    let at = |area| arena.scene.storage().offset(area);
    let (blank, lease) = (at(area::BLANK), at(area::FREE));
    let host_id = |host_id| Lockspace { host_id, ..right.clone() };
    let named = |name: &[u8]| Lockspace { name: name.to_vec(), ..right.clone() };
    let offset = |offset| Lockspace { offset, ..right.clone() };
    let path = |path: Vec<u8>| Lockspace { path, ..right.clone() };
    let cases = [
        ("no name", named(b""), -22),
        ("the name of a joined one", named(b"LS"), -22),
        ("another name than on disk", named(b"LS9"), -226),
        ("a name without NUL", named(&full_name()), -226),
        ("host id 0", host_id(0), -22),
        ("a host id above the maximum", host_id(2001), -231),
        ("a host id of 64 bits", host_id(u64::MAX), -231),
        ("no path", path(Vec::new()), -22),
        ("the disk of a joined one", Lockspace { offset: 0, ..right.clone() }, -22),
        ("joined", joined.clone(), -17),
        ("joined with another host id", Lockspace { host_id: 2, ..joined.clone() }, -22),
        ("joined on another disk", Lockspace { offset: right.offset, ..joined.clone() }, -22),
        ("nothing there", offset(blank), -223),
        ("a resource there", offset(lease), -223),
        ("an offset that is no multiple of a sector", offset(right.offset + 100), -22),
        ("an offset beyond the end", offset(1 << 30), -90),
        ("an offset of 63 bits", offset(1 << 63), -22),
        ("the largest offset", offset(u64::MAX), -22),
    ];
    for (what, lockspace, code) in cases {
        arena.refused(what, &add(&lockspace), code);
    }
    for (what, bad) in arena.unusable_paths() {
        arena.refused(what, &add(&path(bad.clone())), -19);
        // The answer comes before the join has failed, and is not taken back.
        arena.refused(&format!("{what}, asynchronously"), &add(&path(bad)).flags(flag::ADD_ASYNC), 0);
    }
    arena.refused("no name, asynchronously", &add(&named(b"")).flags(flag::ADD_ASYNC), -22);
    arena.refused("joined, asynchronously", &add(&joined).flags(flag::ADD_ASYNC), -17);
    arena.refused(
        "a host id above the maximum, asynchronously",
        &add(&host_id(2001)).flags(flag::ADD_ASYNC),
        0,
    );
    arena.refused("a path without NUL", &add(&path(endless_path())), ours_only(-22));
    for io_timeout in [256, 0x7fff_ffff, u32::MAX] {
        arena.refused(&format!("io timeout {io_timeout}"), &add(&right).data(io_timeout), ours_only(-22));
    }
    arena.still_unchanged();
    // Flags and unknown bits in the lockspace do not matter: the sizes come from the disk.
    let odd = Lockspace { flags: u32::MAX, ..right };
    arena.granted("ADD_LOCKSPACE", &add(&odd).flags(!flag::ADD_ASYNC), 0);
}

/// Every way not to name the joined lockspace.
fn misnamed(arena: &Arena) -> Vec<(&'static str, Lockspace)> {
    let right = arena.lockspace();
    let named = |name: &[u8]| Lockspace { name: name.to_vec(), ..right.clone() };
    let path = |path: &[u8]| Lockspace { path: path.to_vec(), ..right.clone() };
    vec![
        ("no name", named(b"")),
        ("an unknown name", named(b"LS9")),
        ("a lockspace that is not joined", arena.second()),
        ("a longer name", named(b"LSS")),
        ("a name without NUL", named(&full_name())),
        ("another host id", Lockspace { host_id: 2, ..right.clone() }),
        ("a host id above the maximum", Lockspace { host_id: 2001, ..right.clone() }),
        ("a host id of 64 bits", Lockspace { host_id: 1 << 32 | 1, ..right.clone() }),
        ("no path", path(b"")),
        ("another path", path(b"/nonexistent")),
        ("another offset", Lockspace { offset: 1 << 20, ..right.clone() }),
        ("an offset of 64 bits", Lockspace { offset: 1 << 32, ..right.clone() }),
    ]
}

#[test]
fn rem_lockspace() {
    let Some(arena) = Arena::new() else { return };
    let rem = |lockspace: &Lockspace| Message::new(cmd::REM_LOCKSPACE, lockspace.encode());
    for (what, lockspace) in misnamed(&arena) {
        for flags in [0, flag::REM_ASYNC, flag::REM_ASYNC | !flag::REM_UNUSED] {
            arena.refused(&format!("{what}, flags {flags:#x}"), &rem(&lockspace).flags(flags), -2);
        }
    }
    let right = arena.lockspace();
    let endless = Lockspace { path: endless_path(), ..right.clone() };
    arena.refused("a path without NUL", &rem(&endless), ours_only(-22));
    for flags in [flag::REM_UNUSED, flag::REM_UNUSED | flag::REM_ASYNC, u32::MAX] {
        arena.refused(&format!("while it is used, flags {flags:#x}"), &rem(&right).flags(flags), -16);
    }
    // Only the name is looked at for who uses it.
    let elsewhere = Lockspace { host_id: 7, offset: 5, ..right.clone() };
    arena.refused("used, and another place", &rem(&elsewhere).flags(flag::REM_UNUSED), -16);
    arena.refused("unused and unknown", &rem(&arena.second()).flags(flag::REM_UNUSED), -2);
    arena.still_unchanged();
    // A lockspace without users, so that this very process, which holds leases in the other, lives on.
    let second = arena.second();
    arena.granted("ADD_LOCKSPACE", &add(&second), 0);
    arena.granted("REM_LOCKSPACE", &rem(&Lockspace { host_id: 0, ..second }).flags(flag::REM_UNUSED), 0);
}

#[test]
fn inq_lockspace() {
    let Some(arena) = Arena::new() else { return };
    let inq = |lockspace: &Lockspace| Message::new(cmd::INQ_LOCKSPACE, lockspace.encode());
    for (what, lockspace) in misnamed(&arena) {
        for flags in [0, flag::INQ_WAIT, u32::MAX] {
            arena.refused(&format!("{what}, flags {flags:#x}"), &inq(&lockspace).flags(flags), -2);
        }
    }
    let right = arena.lockspace();
    let endless = Lockspace { path: endless_path(), ..right.clone() };
    arena.refused("a path without NUL", &inq(&endless), ours_only(-22));
    arena.still_unchanged();
    arena.granted("INQ_LOCKSPACE", &inq(&right), 0);
    arena.granted("INQ_LOCKSPACE of any host id", &inq(&Lockspace { host_id: 0, ..right }), 0);
}
