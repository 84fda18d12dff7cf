//! READ_LOCKSPACE, socket-protocol.md 7.19.

use sanlock_conformance::raw::flag;
use sanlock_conformance::{Lockspace, Program, Scene, Storage, StorageKind};

use crate::Table;

#[test]
fn name_host_id_sizes_and_io_timeout_come_from_disk() {
    let Some(program) = Program::under_test() else { return };
    for kind in StorageKind::ALL {
        let Some(storage) = Storage::new(kind) else { continue };
        let host = sanlock_conformance::Host::start(program, "host1");
        host.init(&storage, 0);
        let sizes = match kind {
            StorageKind::File | StorageKind::Loop512 => flag::ALIGN1M | flag::SECTOR512,
            StorageKind::Loop4096 => flag::ALIGN8M | flag::SECTOR4K,
        };
        let mut table = Table::default();
        let mut connection = host.connect();
        for (case, name, host_id, hint) in [
            ("complete", "LS", 1, 0),
            ("empty name", "", 1, 0),
            ("host id 0 means 1", "LS", 0, 0),
            ("a later host id", "LS", 7, 0),
            ("the right hint", "LS", 1, sizes),
        ] {
            let mut request = Lockspace::new(name, host_id, storage.path(), 0);
            request.flags = hint;
            let (result, io_timeout, read) = connection.read_lockspace(&request);
            let case = format!("{kind:?}, {case}");
            table.expect(&case, (result, io_timeout), (0, 1));
            table.expect(&case, (read.name, read.host_id), (b"LS".to_vec(), host_id.max(1)));
            table.expect(&case, (read.flags, read.path, read.offset), (sizes, storage.path().into(), 0));
        }
    }
}

#[test]
fn a_wrong_size_hint_is_corrected() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::not_joined(program, 0);
    let mut request = scene.storage().lockspace(1);
    request.flags = flag::ALIGN8M | flag::SECTOR4K;
    let (result, _, read) = scene.host(0).connect().read_lockspace(&request);
    assert_eq!((result, read.flags), (0, flag::ALIGN1M | flag::SECTOR512));
}

#[test]
fn failures_are_told_apart_and_answer_with_the_request() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::not_joined(program, 1);
    let storage = scene.storage();
    let path = storage.path();
    let mut table = Table::default();
    let mut connection = scene.host(0).connect();
    for (case, request, expected) in [
        ("empty path", Lockspace::new("LS", 1, "", 0), -19),
        ("missing file", Lockspace::new("LS", 1, &format!("{path}-missing"), 0), -19),
        ("nothing there", Lockspace::new("LS", 1, path, storage.offset(9)), -223),
        ("a resource there", Lockspace::new("LS", 1, path, storage.offset(1)), -223),
        ("host id out of range", Lockspace::new("LS", 2001, path, 0), -223),
        ("another name", Lockspace::new("OTHER", 1, path, 0), -226),
    ] {
        let (result, _, read) = connection.read_lockspace(&request);
        table.expect(case, result, expected);
        table.expect(case, (read.path, read.offset), (request.path, request.offset));
    }
}
