//! One index, changed by hosts of both kinds.

use super::*;
use sanlock_conformance::{Scene, bounded};
use std::time::Duration;

use crate::actions::entries;

/// Names that each host creates.
const NAMES: u64 = 5;
/// Limit for one of them: every attempt may lose against the other hosts.
const LIMIT: Duration = Duration::from_secs(120);

/// Refusals of a change while another host has the index's lease.
const CONTENTION: [i64; 8] = [-16, -243, -244, -245, -247, -210, -211, -213];

fn insist(host: &Host, args: &[&str]) {
    bounded::wait_until(&format!("{args:?} on {}", host.name()), LIMIT, || {
        let output = host.client(args);
        match output.result() {
            Some(0) => true,
            Some(result) if CONTENTION.contains(&result) => false,
            _ => panic!("{output}"),
        }
    });
}

/// Hosts that create and delete at once lose no entry and give no area away twice.
fn at_once(programs: &[Program]) {
    let scene = Scene::joined(Storage::file(), programs, 0);
    let index = format!("{LOCKSPACE}:{}:{}", scene.storage().path(), scene.storage().offset(INDEX_AREA));
    assert_eq!(scene.host(0).client(&["client", "format", "-x", &index]).code, 0);
    // Hosts are used by the threads of this scope only.
    std::thread::scope(|scope| {
        for (number, host) in scene.hosts().iter().enumerate() {
            let index = &index;
            scope.spawn(move || {
                for n in 0..NAMES {
                    let name = format!("h{number}n{n}");
                    insist(host, &["client", "create", "-x", index, "-e", &name]);
                    if n % 2 == 1 {
                        insist(host, &["client", "delete", "-x", index, "-e", &name]);
                    }
                }
            });
        }
    });
    for (host, program) in scene.hosts().iter().zip(programs) {
        let mut offsets = Vec::new();
        for number in 0..scene.hosts().len() {
            for n in 0..NAMES {
                let entry = format!("h{number}n{n}");
                let output = host.client(&["client", "lookup", "-x", &index, "-e", &entry]);
                assert_eq!(output.result(), Some(if n % 2 == 1 { -2 } else { 0 }), "{program:?}: {output}");
                if n % 2 == 0 {
                    let offset = output.stdout.trim().rsplit(' ').next().map(str::parse::<u64>);
                    let Some(Ok(offset)) = offset else { panic!("{output}") };
                    offsets.push(offset);
                    let resource = format!("{LOCKSPACE}:{entry}:{}:{offset}", scene.storage().path());
                    let read = host.client(&["client", "read", "-r", &resource]);
                    assert_eq!(read.code, 0, "the area is a lease of that name: {read}");
                }
            }
        }
        let all = offsets.len();
        offsets.sort_unstable();
        offsets.dedup();
        assert_eq!(offsets.len(), all, "an area belongs to one resource");
    }
}

#[test]
fn hosts_of_both_kinds_create_and_delete_at_once() {
    if Program::both_available() {
        at_once(&[Program::Ours, Program::Reference]);
    }
}

#[test]
fn our_hosts_create_and_delete_at_once() {
    if Program::Ours.available() {
        at_once(&[Program::Ours, Program::Ours]);
    }
}

/// What one program wrote, the other goes on with.
#[test]
fn an_index_is_handed_from_one_program_to_the_other() {
    for kind in StorageKind::ALL {
        let Some(sides) = Side::both(kind) else { continue };
        for [first, second] in [[0, 1], [1, 0]] {
            let (writer, other) = (&sides[first], &sides[second]);
            for line in
                ["client format -x INDEX", "client create -x INDEX -e a", "client create -x INDEX -e b"]
            {
                assert_eq!(writer.seen(line).1, 0, "{line}");
            }
            assert_eq!(writer.seen("client delete -x INDEX -e a").1, 0);
            // The other program, without its daemon, on the writer's storage.
            let index = writer.index();
            let on = |args: &[&str]| other.host.client(args);
            let found = on(&["direct", "lookup", "-x", &index, "-e", "b"]);
            assert_eq!(found.stdout, format!("lookup done 0\nname b offset {}\n", writer.area(1)));
            let free = on(&["direct", "lookup", "-x", &index]);
            assert_eq!(free.stdout, format!("lookup done 0\nname - offset {}\n", writer.area(0)));
            let lost = format!("b:{}", writer.area(1));
            assert_eq!(on(&["direct", "update", "-x", &index, "-e", &lost, "-z", "1"]).code, 0);
            assert!(entries(writer).is_empty());
            assert_eq!(on(&["direct", "rebuild", "-x", &index]).code, 0);
            assert_eq!(entries(writer), [("b".to_owned(), writer.area(1))].into());
            assert_eq!(writer.seen("client create -x INDEX -e c").1, 0);
            assert_eq!(entries(writer).get("c"), Some(&writer.area(0)));
        }
    }
}
