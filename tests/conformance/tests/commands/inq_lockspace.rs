//! INQ_LOCKSPACE, socket-protocol.md 7.15.

use sanlock_conformance::{Lockspace, Program, Scene};

use crate::Table;

#[test]
fn name_place_and_host_id_must_match_and_host_id_0_matches_any() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 0);
    let path = scene.storage().path();
    let mut table = Table::default();
    let rows = [
        ("joined", scene.storage().lockspace(1), 0),
        ("host id 0", Lockspace::new("LS", 0, path, 0), 0),
        ("another host id", Lockspace::new("LS", 2, path, 0), -2),
        ("another name", Lockspace::new("OTHER", 1, path, 0), -2),
        ("empty name", Lockspace::new("", 1, path, 0), -2),
        ("another path", Lockspace::new("LS", 1, "/dev/null", 0), -2),
        ("empty path", Lockspace::new("LS", 1, "", 0), -2),
        ("another offset", Lockspace::new("LS", 1, path, 512), -2),
    ];
    let mut connection = scene.host(0).connect();
    for (case, lockspace, expected) in rows {
        table.expect(case, connection.inq_lockspace(&lockspace, 0), expected);
    }
}
