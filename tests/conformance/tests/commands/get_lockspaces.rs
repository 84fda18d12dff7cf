//! GET_LOCKSPACES, socket-protocol.md 7.21.

use sanlock_conformance::raw::flag;
use sanlock_conformance::{Lockspace, Program, Scene, bounded};

use crate::SOON;

#[test]
fn joined_lockspaces_come_newest_first_then_those_removed_and_added() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 0);
    let host = scene.host(0);
    let mut lockspaces = vec![scene.storage().lockspace(1)];
    for (name, io_timeout) in [("LS2", "1"), ("LS3", "10")] {
        let path = scene.storage().extra_file(name, 2);
        let arg = format!("{name}:0:{path}:0");
        let _ = host.client(&["client", "init", "-s", &arg, "-o", io_timeout]).success();
        lockspaces.push(Lockspace::new(name, 1, &path, 0));
    }
    assert_eq!(host.connect().add_lockspace(&lockspaces[1], 0, 1), 0);
    assert_eq!(host.connect().add_lockspace(&lockspaces[2], flag::ADD_ASYNC, 10), 0);
    lockspaces[2].flags = flag::LSF_ADD;

    let (result, listed) = host.connect().get_lockspaces();
    assert_eq!(result, 0);
    assert_eq!(listed, [lockspaces[1].clone(), lockspaces[0].clone(), lockspaces[2].clone()]);

    assert_eq!(host.connect().rem_lockspace(&lockspaces[1], flag::REM_ASYNC), 0);
    let mut flags_seen = Vec::new();
    bounded::wait_until("LS2 to be gone", SOON, || {
        let (_, listed) = host.connect().get_lockspaces();
        let entry = listed.into_iter().find(|entry| entry.name == b"LS2");
        flags_seen.extend(entry.as_ref().map(|entry| entry.flags));
        entry.is_none()
    });
    assert!(flags_seen.iter().all(|flags| matches!(*flags, 0 | flag::LSF_REM)), "{flags_seen:?}");
    if program == Program::Reference {
        assert!(flags_seen.contains(&flag::LSF_REM), "the original shows the removal for a second");
    }
}

#[test]
fn no_lockspace_is_an_empty_list() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::not_joined(program, 0);
    assert_eq!(scene.host(0).connect().get_lockspaces(), (0, vec![]));
}
