//! RELEASE, INQUIRE, CONVERT, RESTRICT, KILLPATH, REGISTER: commands on a process (socket-protocol.md 7.1, 7.8 to 7.10, 7.16, 7.26).

use sanlock_conformance::raw::{self, Resource, SELF, cmd, flag};

use crate::arena::{Arena, SECOND, area, nobody};
use crate::message::{Answer, Message, full_name, ours_only};

fn release(resources: &[Resource]) -> Message {
    let payload: Vec<u8> = resources.iter().flat_map(Resource::encode_bare).collect();
    let count = u32::try_from(resources.len()).unwrap_or_else(|error| panic!("{error}"));
    Message::new(cmd::RELEASE, payload).data(count).data2(SELF)
}

fn convert(resource: &Resource) -> Message {
    Message::new(cmd::CONVERT, resource.encode_bare()).data2(SELF)
}

/// Resources that the holder does not hold.
fn not_held(arena: &Arena) -> Vec<(&'static str, Resource)> {
    let right = arena.resource(area::OWN);
    vec![
        ("no lockspace", right.clone().named("", "R1")),
        ("an unknown lockspace", right.clone().named("LS9", "R1")),
        ("a lockspace that is not joined", right.clone().named(SECOND, "R1")),
        ("no name", right.clone().named("LS", "")),
        ("an unknown name", right.clone().named("LS", "R")),
        ("a lockspace name without NUL", Resource { lockspace: full_name(), ..right.clone() }),
        ("a name without NUL", Resource { name: full_name(), ..right.clone() }),
        ("a free lease", arena.resource(area::FREE)),
        ("a lease of another process", arena.resource(area::FOREIGN)),
        ("an orphan", arena.resource(area::ORPHAN)),
    ]
}

#[test]
fn release_single_leases() {
    let Some(arena) = Arena::new() else { return };
    let right = arena.resource(area::OWN);
    for (what, target, code) in nobody(&arena) {
        arena.refused(what, &release(std::slice::from_ref(&right)).data2(target), code);
        for flags in [flag::RELEASE_ALL, flag::RELEASE_ORPHAN, flag::RELEASE_RENAME, u32::MAX] {
            let message = release(&[right.clone(), right.clone()]).data2(target).flags(flags);
            arena.refused(&format!("{what}, flags {flags:#x}"), &message, code);
        }
    }
    for (what, resource) in not_held(&arena) {
        arena.refused_to_holder(what, &release(std::slice::from_ref(&resource)), -1);
        arena.refused_to_holder(&format!("{what}, twice"), &release(&[resource.clone(), resource]), -1);
    }
    let foreign = arena.foreign_pid();
    arena.refused("not held by another process", &release(std::slice::from_ref(&right)).data2(foreign), -1);
    let absent: Vec<Resource> = (0..9).map(|_| arena.resource(area::FREE)).collect();
    arena.refused_to_holder("nine that are not held", &release(&absent), -1);
    arena.refused_to_holder("none", &release(&[]), 0);
    // The original waits for that many.
    for count in [0x8000_0000, SELF] {
        arena.refused_to_holder(&format!("{count:#x} leases"), &release(&[]).data(count), ours_only(0));
    }
    for count in [1025, 0x7fff_ffff] {
        arena.refused_to_holder(&format!("{count} leases"), &release(&[]).data(count), ours_only(-7));
    }
    arena.still_unchanged();
    arena.granted_to_holder("RELEASE", &release(&[right, arena.resource(area::SHARED)]), 0);
}

#[test]
fn release_by_flags() {
    let Some(arena) = Arena::new() else { return };
    let right = arena.resource(area::OWN);
    let renamed = |what: &Resource| {
        release(&[what.clone(), right.clone().named("LS", "NEW")]).flags(flag::RELEASE_RENAME)
    };
    for (what, resource) in not_held(&arena) {
        arena.refused_to_holder(&format!("rename {what}"), &renamed(&resource), -1);
        // Orphans go by name, and an empty name means all of the lockspace.
        if !matches!(what, "an orphan" | "no name") {
            let orphans = release(std::slice::from_ref(&resource)).flags(flag::RELEASE_ORPHAN);
            arena.refused_to_holder(&format!("orphans: {what}"), &orphans, 0);
            let both = orphans.flags(flag::RELEASE_ORPHAN | flag::RELEASE_RENAME);
            arena.refused_to_holder(&format!("orphans, not a rename: {what}"), &both, 0);
        }
    }
    for count in [0, 1, 2, 9, SELF] {
        let message = renamed(&arena.resource(area::FREE)).data(count);
        arena.refused_to_holder(&format!("rename, count {count}"), &message, -1);
    }
    let foreign = arena.foreign_pid();
    arena.refused("rename what another process does not hold", &renamed(&right).data2(foreign), -1);
    arena.refused_to_holder("rename a shared lease", &renamed(&arena.resource(area::SHARED)), ours_only(-22));
    let nameless = release(&[right.clone(), right.clone().named("LS", "")]).flags(flag::RELEASE_RENAME);
    arena.refused_to_holder("rename to nothing", &nameless, ours_only(-22));
    arena.still_unchanged();
    arena.granted_to_holder("RELEASE, renaming", &renamed(&right), 0);
    let orphan = arena.resource(area::ORPHAN);
    arena.granted_to_holder("RELEASE of orphans", &release(&[orphan]).flags(flag::RELEASE_ORPHAN), 1);
    // The first of the flags decides, and no resource is read then.
    let all = flag::RELEASE_ALL | flag::RELEASE_ORPHAN | flag::RELEASE_RENAME;
    arena.granted_to_holder("RELEASE of everything", &release(&[]).flags(all), 0);
}

#[test]
fn convert_leases() {
    let Some(arena) = Arena::new() else { return };
    let (own, shared) = (arena.resource(area::OWN), arena.resource(area::SHARED));
    for (what, target, code) in nobody(&arena) {
        arena.refused(what, &convert(&own.clone().shared()).data2(target), code);
    }
    for (what, resource) in not_held(&arena) {
        arena.refused_to_holder(what, &convert(&resource), -2);
        arena.refused_to_holder(&format!("{what}, to shared"), &convert(&resource.shared()), -2);
    }
    arena.refused_to_holder("exclusive already", &convert(&own), -114);
    arena.refused_to_holder("shared already", &convert(&shared.clone().shared()), -114);
    let nowait = convert(&own).flags(flag::ACQUIRE_OWNER_NOWAIT);
    arena.refused_to_holder("exclusive already, without waiting", &nowait, -114);
    let foreign = arena.foreign_pid();
    arena.refused("not held by another process", &convert(&own.clone().shared()).data2(foreign), -2);
    arena.still_unchanged();
    arena.granted_to_holder("CONVERT", &convert(&own.shared()), 0);
    arena.granted_to_holder("CONVERT to exclusive", &convert(&shared), 0);
}

#[test]
fn inquire_restrict_killpath_register() {
    let Some(arena) = Arena::new() else { return };
    let killpath = || Message::new(cmd::KILLPATH, raw::killpath("/bin/true", "a b"));
    for (what, target, code) in nobody(&arena) {
        arena.refused(what, &Message::bare(cmd::INQUIRE).data2(target), code);
        let message = killpath().data2(target);
        if target == SELF {
            arena.refused(&format!("killpath: {what}"), &message, code);
        } else {
            // The original reads the payload from the target's socket, of which there is none.
            arena.refused(&format!("killpath: {what}"), &message.strays(), code);
        }
    }
    let foreign = arena.foreign_pid();
    arena.refused("a killpath for another process", &killpath().data2(foreign), ours_only(-22));
    let own = std::process::id();
    arena.refused("a killpath for a process with leases", &killpath().data2(own), ours_only(-22));
    arena.refused_to_holder("a killpath by its own process id", &killpath().data2(own), ours_only(-22));
    // What a plain connection restricts is itself, whomever it names.
    for flags in [flag::RESTRICT_SIGKILL, flag::RESTRICT_SIGTERM, 0xffff_fff0] {
        let message = Message::bare(cmd::RESTRICT).flags(flags).data2(foreign);
        arena.refused(&format!("restrict another process, flags {flags:#x}"), &message, 0);
    }
    arena.refused_to_holder("restrict by nothing", &Message::bare(cmd::RESTRICT).data2(foreign), 0);
    let lasting = Message::bare(cmd::REGISTER).data(1).data2(foreign).flags(u32::MAX);
    arena.refused("REGISTER for another process", &lasting, Answer::Silence);
    arena.still_unchanged();
    arena.granted("INQUIRE of another process", &Message::bare(cmd::INQUIRE).data2(foreign), 0);
    // The last byte of each half is taken for a NUL.
    let endless = Message::new(cmd::KILLPATH, vec![b'k'; 256]).data2(SELF);
    arena.granted_to_holder("KILLPATH", &endless, 0);
    arena.granted_to_holder("KILLPATH with the pid", &killpath().data2(SELF).flags(u32::MAX), 0);
}

/// The original loses track of the leases (socket-protocol.md 15, 5).
#[test]
fn register_twice() {
    if sanlock_conformance::Program::ours_under_test("loses track of held leases").is_none() {
        return;
    }
    let Some(arena) = Arena::new() else { return };
    let expected = crate::message::Expected { reference: None, ours: Answer::Silence };
    arena.refused_to_holder("REGISTER again", &Message::bare(cmd::REGISTER), expected);
    arena.still_unchanged();
}
