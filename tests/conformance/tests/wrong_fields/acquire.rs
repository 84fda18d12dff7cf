//! ACQUIRE (socket-protocol.md 7.7).

use sanlock_conformance::Resource;
use sanlock_conformance::raw::{SELF, flag};

use crate::arena::{Arena, SECOND, area, nobody};
use crate::message::{Message, endless_path, full_name, ours_only};

fn one(resource: Resource) -> Message {
    Message::acquire(&[resource])
}

fn on(resource: &Resource, path: &[u8], offset: u64) -> Resource {
    Resource { disks: vec![(path.to_vec(), offset)], ..resource.clone() }
}

#[test]
fn names_and_modes() {
    let Some(arena) = Arena::new() else { return };
    let right = arena.resource(area::FREE);
    let place = |area| arena.resource(area);
    let named = |lockspace: &str, name: &str| right.clone().named(lockspace, name);
    let at = |area: u64| Resource { disks: place(area).disks, ..right.clone() };
    let bare = |name: &[u8], lockspace: &[u8]| Resource {
        name: name.to_vec(),
        lockspace: lockspace.to_vec(),
        ..right.clone()
    };
    let (own, shared) = (place(area::OWN), place(area::SHARED));
    let (foreign, orphan) = (place(area::FOREIGN), place(area::ORPHAN));
    let cases = [
        ("no lockspace", named("", "R3"), 0, -28),
        ("an unknown lockspace", named("LS9", "R3"), 0, -28),
        ("a lockspace that is not joined", named(SECOND, "R3"), 0, -28),
        ("a lockspace name without NUL", bare(b"R3", &full_name()), 0, -28),
        ("no name", named("LS", ""), 0, -227),
        ("another name", named("LS", "R9"), 0, -227),
        ("a name without NUL", bare(&full_name(), b"LS"), 0, -227),
        ("another name on disk", at(area::OTHER_NAME), 0, -227),
        ("another lockspace on disk", at(area::OTHER_LOCKSPACE), 0, -226),
        ("nothing on disk", at(area::BLANK), 0, -223),
        ("the lockspace's own area", on(&right, &right.disks[0].0, 0), 0, -223),
        ("held", own.clone(), 0, -17),
        ("held, and the orphan only", own.clone(), flag::ACQUIRE_ORPHAN_ONLY, -17),
        ("held exclusively, to be shared", own.shared(), 0, -17),
        ("held shared, to be exclusive", shared, 0, -17),
        ("held by another process", foreign.clone(), 0, -17),
        ("held by another process, to be shared", foreign.shared(), 0, -17),
        ("an orphan", orphan.clone(), 0, -117),
        ("an orphan with a value", orphan.clone(), flag::ACQUIRE_LVB, -117),
        ("an orphan in the other mode", orphan.clone().shared(), flag::ACQUIRE_ORPHAN, -117),
        ("only an orphan in the other mode", orphan.clone().shared(), flag::ACQUIRE_ORPHAN_ONLY, -117),
        ("no orphan", right.clone(), flag::ACQUIRE_ORPHAN_ONLY | flag::ACQUIRE_LVB, -2),
        ("no orphan, both flags", right.clone(), 0x7, -2),
        ("a later version", right.clone().with_lver(99), 0, -240),
        ("the largest version", right.clone().with_lver(u64::MAX), 0, -240),
        ("a later version, shared", right.clone().with_lver(99).shared(), 0, -240),
    ];
    for (what, resource, flags, code) in cases {
        arena.refused_to_holder(what, &one(resource).flags(flags), code);
    }
    let ours = [("no orphan, without a value", right.clone(), flag::ACQUIRE_ORPHAN_ONLY, -2)];
    for (what, resource, flags, code) in ours {
        arena.refused_to_holder(what, &one(resource).flags(flags), ours_only(code));
    }
    for hosts in [2001, 5000, u32::MAX] {
        let resource = Resource { data32: hosts, flags: flag::RES_NUM_HOSTS, ..right.clone() };
        arena.refused_to_holder(&format!("{hosts} hosts"), &one(resource), ours_only(-22));
    }
    let few = Resource { data32: 1, flags: flag::RES_NUM_HOSTS | flag::RES_LVER, lver: 9, ..right.clone() };
    arena.refused_to_holder("fewer hosts of a later version", &one(few), -240);
    arena.still_unchanged();
    arena.granted_to_holder("ACQUIRE", &one(right), 0);
    arena.granted_to_holder("ACQUIRE of the orphan", &one(orphan).flags(flag::ACQUIRE_ORPHAN), 0);
}

#[test]
fn disks() {
    let Some(arena) = Arena::new() else { return };
    let right = arena.resource(area::FREE);
    let base = arena.scene.storage().offset(area::FREE);
    let cases = [
        ("an offset that is no multiple of a sector", base + 100, -22),
        ("an offset within a lease", base + 512, -223),
        ("an offset beyond the end", 1 << 30, -90),
        ("an offset of 63 bits", 1 << 63, -22),
        ("the largest offset", u64::MAX, -22),
    ];
    for (what, offset, code) in cases {
        arena.refused_to_holder(what, &one(on(&right, &right.disks[0].0, offset)), code);
    }
    for (what, path, code) in arena.closed_paths() {
        arena.refused_to_holder(what, &one(on(&right, &path, base)), code);
        // One after a good one: nothing is taken of the good one either, as all are opened first.
        let mut two = on(&right, &path, base);
        two.disks.insert(0, right.disks[0].clone());
        two.num_disks = 2;
        arena.refused_to_holder(&format!("{what} as second disk"), &one(two), code);
    }
    let directory = arena.scene.storage().dir().to_string_lossy().into_owned();
    arena.refused_to_holder("a directory", &one(on(&right, directory.as_bytes(), base)), -21);
    arena.refused_to_holder("no path", &one(on(&right, b"", base)), -2);
    arena.refused_to_holder("a path without NUL", &one(on(&right, &endless_path(), base)), ours_only(-22));
    for num_disks in [0, 5, 1000, 0x8000_0000, u32::MAX] {
        let bad = Resource { num_disks, ..right.clone() };
        arena.refused_to_holder(&format!("{num_disks} disks"), &one(bad.clone()), -34);
        let second = Message::acquire(&[right.clone(), bad]);
        arena.refused_to_holder(&format!("{num_disks} disks of the second resource"), &second, -34);
    }
    arena.still_unchanged();
    // Sizes in the request do not matter.
    let odd = Resource { flags: flag::ALIGN8M | flag::SECTOR4K, ..right };
    arena.granted_to_holder("ACQUIRE", &one(odd), 0);
}

#[test]
fn targets_and_counts() {
    let Some(arena) = Arena::new() else { return };
    let right = arena.resource(area::FREE);
    for (what, target, code) in nobody(&arena) {
        arena.refused(what, &one(right.clone()).data2(target), code);
        let many = one(right.clone()).data(9).data2(target);
        arena.refused(&format!("{what}, nine resources"), &many, code);
    }
    let foreign = arena.foreign_pid();
    let held = arena.resource(area::OWN);
    arena.refused("held, for another process", &one(held.clone()).data2(foreign), -17);
    arena.refused("held by it, for another process", &one(arena.resource(area::FOREIGN)).data2(foreign), -17);
    for count in [9, 10, 1000, 0x7fff_ffff] {
        arena.refused_to_holder(&format!("{count} resources"), &one(right.clone()).data(count), -7);
    }
    let nine: Vec<Resource> = (0..9).map(|_| right.clone()).collect();
    arena.refused_to_holder("nine resources that are there", &Message::acquire(&nine), -7);
    for count in [0x8000_0000, SELF] {
        arena.refused_to_holder(&format!("{count:#x} resources"), &Message::acquire(&[]).data(count), 0);
    }
    // Nothing is taken when a later one cannot be.
    let lost = right.clone().named("LS9", "R3");
    arena.refused_to_holder("one of two lockspaces", &Message::acquire(&[right.clone(), lost]), -28);
    arena.still_unchanged();
    arena.granted("ACQUIRE for another process", &one(right).data2(foreign), 0);
}
