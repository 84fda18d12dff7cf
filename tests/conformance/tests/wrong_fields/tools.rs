//! ALIGN, and what formats and reads leases (socket-protocol.md 7.12, 7.17 to 7.20, 7.23).

use sanlock_conformance::raw::{self, SELF, cmd, flag};
use sanlock_conformance::{Lockspace, Resource};

use crate::arena::{Arena, area};
use crate::message::{Message, differs, endless_path, full_name, ours_only};

const SIZES_THAT_DO_NOT_FIT: [(&str, u32); 7] = [
    ("a sector flag alone", flag::SECTOR512),
    ("a large sector flag alone", flag::SECTOR4K),
    ("an align flag alone", flag::ALIGN1M),
    ("a large align flag alone", flag::ALIGN8M),
    ("small sectors in a large area", flag::SECTOR512 | flag::ALIGN8M),
    ("small sectors in an area of 2M", flag::SECTOR512 | 0x20),
    ("small sectors in an area of 4M", flag::SECTOR512 | 0x40),
];

#[test]
fn align() {
    let Some(arena) = Arena::new() else { return };
    let align = |path: &[u8]| Message::new(cmd::ALIGN, raw::disk(path, 0));
    arena.refused("no path", &align(b""), -19);
    for (what, path) in arena.unusable_paths() {
        arena.refused(what, &align(&path), -19);
    }
    arena.refused("a path without NUL", &align(&endless_path()), ours_only(-22));
    arena.still_unchanged();
    let path = arena.lockspace().path;
    let odd = Message::new(cmd::ALIGN, raw::disk(&path, u64::MAX)).flags(SELF).data(SELF).data2(SELF);
    arena.granted("ALIGN", &odd, 1 << 20);
}

#[test]
fn write_lockspace() {
    let Some(arena) = Arena::new() else { return };
    let storage = arena.scene.storage();
    let right = Lockspace::new("LS3", 1, storage.path(), storage.offset(area::SPARE));
    let write = |lockspace: &Lockspace| Message::new(cmd::WRITE_LOCKSPACE, lockspace.encode()).data2(1);
    let path = |path: Vec<u8>| Lockspace { path, ..right.clone() };
    let sized = |flags| Lockspace { flags, ..right.clone() };
    arena.refused("no path", &write(&path(Vec::new())), -19);
    for (what, bad) in arena.unusable_paths() {
        arena.refused(what, &write(&path(bad.clone())), -19);
        let both = Lockspace { flags: flag::SECTOR512, ..path(bad) };
        arena.refused(&format!("{what}, and sizes that do not fit"), &write(&both), -19);
    }
    arena.refused("a path without NUL", &write(&path(endless_path())), ours_only(-22));
    for (what, flags) in SIZES_THAT_DO_NOT_FIT {
        arena.refused(what, &write(&sized(flags)), -1);
    }
    for (what, offset) in
        [("no multiple of a sector", 100), ("of 63 bits", 1 << 63), ("the largest", u64::MAX)]
    {
        arena.refused(&format!("an offset, {what}"), &write(&Lockspace { offset, ..right.clone() }), -22);
    }
    for io_timeout in [256, 0x7fff_ffff, u32::MAX] {
        arena.refused(&format!("io timeout {io_timeout}"), &write(&right).data2(io_timeout), ours_only(-22));
    }
    arena.still_unchanged();
    arena.granted("WRITE_LOCKSPACE", &write(&right).data(SELF).flags(SELF), 0);
}

#[test]
fn write_resource() {
    let Some(arena) = Arena::new() else { return };
    let right = Resource {
        disks: arena.resource(area::SPARE).disks,
        ..arena.resource(area::FREE).named("LS", "R15")
    };
    let write = |resource: &Resource| Message::new(cmd::WRITE_RESOURCE, resource.encode());
    let on = |path: &[u8], offset| Resource { disks: vec![(path.to_vec(), offset)], ..right.clone() };
    let (good, base) = right.disks[0].clone();
    for num_disks in [0, 5, 0x8000_0000, u32::MAX] {
        let message = write(&Resource { num_disks, ..right.clone() }).strays();
        arena.refused(&format!("{num_disks} disks"), &message, -34);
    }
    for (what, path, code) in arena.closed_paths() {
        arena.refused(what, &write(&on(&path, base)), code);
        let sized = Resource { flags: flag::SECTOR512, ..on(&path, base) };
        arena.refused(&format!("{what}, and sizes that do not fit"), &write(&sized), code);
        let mut two = on(&good, base);
        two.disks.push((path, base));
        two.num_disks = 2;
        arena.refused(&format!("{what} as second disk"), &write(&two), code);
    }
    let directory = arena.scene.storage().dir().to_string_lossy().into_owned();
    arena.refused("a directory", &write(&on(directory.as_bytes(), base)), -21);
    arena.refused("no path", &write(&on(b"", base)), -2);
    arena.refused("a path without NUL", &write(&on(&endless_path(), base)), ours_only(-22));
    for (what, flags) in SIZES_THAT_DO_NOT_FIT {
        arena.refused(what, &write(&Resource { flags, ..right.clone() }), -1);
    }
    for (what, offset) in
        [("no multiple of a sector", 100), ("of 63 bits", 1 << 63), ("the largest", u64::MAX)]
    {
        arena.refused(&format!("an offset, {what}"), &write(&on(&good, offset)), -22);
    }
    for hosts in [0x8000_0000, u32::MAX] {
        arena.refused(&format!("{hosts:#x} hosts"), &write(&right).data(hosts), ours_only(-22));
    }
    arena.still_unchanged();
    arena.granted("WRITE_RESOURCE", &write(&right).data(2001).data2(SELF), 0);
}

#[test]
fn read_lockspace() {
    let Some(arena) = Arena::new() else { return };
    let right = arena.lockspace();
    let at = |area| arena.scene.storage().offset(area);
    let (blank, lease) = (at(area::BLANK), at(area::FREE));
    let read = |lockspace: &Lockspace| Message::new(cmd::READ_LOCKSPACE, lockspace.encode());
    let named = |name: &[u8]| Lockspace { name: name.to_vec(), ..right.clone() };
    let host_id = |host_id| Lockspace { host_id, ..right.clone() };
    let offset = |offset| Lockspace { offset, ..right.clone() };
    let path = |path: Vec<u8>| Lockspace { path, ..right.clone() };
    let cases = [
        ("another name", named(b"LS9"), -226),
        ("a name without NUL", named(&full_name()), -226),
        ("a host id above the maximum", host_id(2001), -223),
        ("no path", path(Vec::new()), -19),
        ("nothing there", offset(blank), -223),
        ("a resource there", offset(lease), -223),
        ("an offset that is no multiple of a sector", offset(100), -22),
        ("an offset beyond the end", offset(1 << 30), -90),
        ("an offset of 63 bits", offset(1 << 63), -22),
        ("the largest offset", offset(u64::MAX), -22),
    ];
    for (what, lockspace, code) in cases {
        arena.refused(what, &read(&lockspace), code);
        for flags in [flag::SECTOR512, flag::SECTOR4K, flag::SECTOR4K | flag::ALIGN8M] {
            let hinted = Lockspace { flags, ..lockspace.clone() };
            arena.refused(&format!("{what}, flags {flags:#x}"), &read(&hinted), code);
        }
    }
    // Whose record would lie beyond what an offset can say.
    arena.refused("a host id of 64 bits", &read(&host_id(u64::MAX)), differs(-22, -223));
    for (what, bad) in arena.unusable_paths() {
        arena.refused(what, &read(&path(bad)), -19);
    }
    arena.refused("a path without NUL", &read(&path(endless_path())), ours_only(-22));
    arena.still_unchanged();
    arena.granted("READ_LOCKSPACE", &read(&Lockspace { flags: SELF, ..right }).flags(SELF), 0);
}

#[test]
fn read_resource_and_owners() {
    let Some(arena) = Arena::new() else { return };
    let right = arena.resource(area::OWN);
    let (good, base) = right.disks[0].clone();
    let place = |area| arena.resource(area).disks;
    let named = |lockspace: &str, name: &str| right.clone().named(lockspace, name);
    let on = |path: &[u8], offset| Resource { disks: vec![(path.to_vec(), offset)], ..right.clone() };
    // Result of READ_RESOURCE and of READ_RESOURCE_OWNERS.
    let cases = [
        ("an unknown lockspace", named("LS9", "R1"), -226, -226),
        ("no lockspace", named("", "R1"), 0, -226),
        ("no name", named("LS", ""), 0, -227),
        ("another name", named("LS", "R9"), -227, -227),
        ("a lockspace without NUL", Resource { lockspace: full_name(), ..right.clone() }, -226, -226),
        ("a name without NUL", Resource { name: full_name(), ..right.clone() }, -227, -227),
        ("nothing there", Resource { disks: place(area::BLANK), ..right.clone() }, -223, -22),
        ("a lockspace there", on(&good, 0), -223, -223),
        ("an offset within a lease", on(&good, base + 512), -223, -22),
        ("an offset that is no multiple of a sector", on(&good, base + 100), -22, -22),
        ("an offset beyond the end", on(&good, 1 << 30), -90, -90),
        ("an offset of 63 bits", on(&good, 1 << 63), -22, -22),
        ("the largest offset", on(&good, u64::MAX), -22, -22),
        ("no path", on(b"", base), -2, -2),
    ];
    let read = |resource: &Resource| Message::new(cmd::READ_RESOURCE, resource.encode());
    let owners = |resource: &Resource| Message::new(cmd::READ_RESOURCE_OWNERS, resource.encode());
    for (what, resource, by_read, by_owners) in cases {
        arena.refused(&format!("read: {what}"), &read(&resource), by_read);
        arena.refused(&format!("owners: {what}"), &owners(&resource), by_owners);
    }
    let directory = arena.scene.storage().dir().to_string_lossy().into_owned().into_bytes();
    for message in [read, owners] {
        let command = message(&right).header().cmd;
        for (what, path, code) in arena.closed_paths() {
            arena.refused(&format!("command {command}: {what}"), &message(&on(&path, base)), code);
            let mut two = on(&good, base);
            two.disks.push((path, base));
            two.num_disks = 2;
            arena.refused(&format!("command {command}: {what} as second disk"), &message(&two), code);
        }
        let message_on = |path: &[u8]| message(&on(path, base));
        arena.refused(&format!("command {command}: a directory"), &message_on(&directory), -21);
        let endless = message_on(&endless_path());
        arena.refused(&format!("command {command}: a path without NUL"), &endless, ours_only(-22));
        for num_disks in [0, 5, 0x8000_0000, u32::MAX] {
            let bad = message(&Resource { num_disks, ..right.clone() }).strays();
            arena.refused(&format!("command {command}: {num_disks} disks"), &bad, -34);
        }
    }
    for (flags, code) in [
        (flag::SECTOR4K, -22),
        (flag::ALIGN8M, -22),
        (flag::SECTOR4K | flag::ALIGN1M, -22),
        (flag::SECTOR512 | flag::ALIGN8M, -22),
        (flag::SECTOR512, 0),
        (flag::ALIGN1M, 0),
    ] {
        let hinted = Resource { flags, ..right.clone() };
        arena.refused(&format!("read: flags {flags:#x}"), &read(&hinted), 0);
        arena.refused(&format!("owners: flags {flags:#x}"), &owners(&hinted), code);
    }
    arena.still_unchanged();
    arena.granted("READ_RESOURCE", &read(&right), 0);
    arena.granted("READ_RESOURCE_OWNERS", &owners(&right).flags(SELF).data(SELF).data2(SELF), 0);
}
