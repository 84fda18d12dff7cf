//! The commands of the socket: flags, results, replies.

use super::*;
use sanlock_conformance::raw::{self, cmd, flag};

/// One request, and what both daemons answer: the result and the bytes behind the header.
struct Exchange {
    command: u32,
    flags: u32,
    data2: u32,
    lockspace: &'static str,
    name: &'static str,
    /// Which area, if any.
    slot: Option<u64>,
}

impl Exchange {
    fn on(&self, side: &Side) -> (i32, Vec<u8>) {
        let mut payload = raw::rindex(self.lockspace, side.storage.path(), side.base(), 0, 0);
        let entry = !matches!(self.command, cmd::FORMAT_RINDEX | cmd::REBUILD_RINDEX);
        if entry {
            payload.extend(raw::rentry(self.name, self.slot.map_or(0, |slot| side.area(slot))));
        }
        let mut connection = side.host.connect();
        let reply = connection.request(self.command, self.flags, 0, self.data2, &payload);
        let behind = connection.receive_payload(if entry { 64 } else { 0 });
        assert!(connection.version().is_ok(), "the connection is still usable");
        (reply.result(), behind)
    }
}

fn exchange(command: u32, flags: u32, name: &'static str, slot: Option<u64>) -> Exchange {
    Exchange { command, flags, data2: 0, lockspace: LOCKSPACE, name, slot }
}

#[test]
fn flags_results_and_entries() {
    const NO_LOCKSPACE: u32 = flag::RX_NO_LOCKSPACE;
    const ADD: u32 = flag::RX_UPDATE_ADD;
    const REM: u32 = flag::RX_UPDATE_REM;
    use cmd::{
        CREATE_RESOURCE, DELETE_RESOURCE, FORMAT_RINDEX, LOOKUP_RINDEX, REBUILD_RINDEX, UPDATE_RINDEX,
    };
    let Some(sides) = Side::both(StorageKind::File) else { return };
    let steps = [
        exchange(LOOKUP_RINDEX, 0, "a", None),
        exchange(CREATE_RESOURCE, 0, "a", None),
        exchange(FORMAT_RINDEX, 0, "", None),
        exchange(FORMAT_RINDEX, NO_LOCKSPACE, "", None),
        exchange(CREATE_RESOURCE, 0, "a", None),
        Exchange { data2: 8, ..exchange(CREATE_RESOURCE, 0, "b", None) },
        exchange(LOOKUP_RINDEX, 0, "a", None),
        exchange(LOOKUP_RINDEX, NO_LOCKSPACE, "b", None),
        exchange(LOOKUP_RINDEX, 0, "a", Some(1)),
        exchange(LOOKUP_RINDEX, NO_LOCKSPACE, "a", Some(1)),
        exchange(LOOKUP_RINDEX, 0, "a", Some(4)),
        exchange(LOOKUP_RINDEX, 0, "", Some(4)),
        exchange(LOOKUP_RINDEX, 0, "", None),
        exchange(UPDATE_RINDEX, 0, "x", Some(3)),
        exchange(UPDATE_RINDEX, ADD, "x", Some(3)),
        exchange(UPDATE_RINDEX, ADD | REM, "x", Some(3)),
        exchange(LOOKUP_RINDEX, 0, "x", None),
        exchange(UPDATE_RINDEX, ADD | NO_LOCKSPACE, "y", Some(3)),
        exchange(LOOKUP_RINDEX, 0, "y", None),
        exchange(UPDATE_RINDEX, REM | NO_LOCKSPACE, "", Some(3)),
        exchange(UPDATE_RINDEX, REM, "", None),
        exchange(UPDATE_RINDEX, ADD, "", Some(3)),
        exchange(UPDATE_RINDEX, ADD, "x", None),
        exchange(DELETE_RESOURCE, 0, "none", None),
        exchange(DELETE_RESOURCE, 0, "a", None),
        exchange(REBUILD_RINDEX, 0, "", None),
        exchange(REBUILD_RINDEX, NO_LOCKSPACE, "", None),
        exchange(LOOKUP_RINDEX, 0, "b", None),
        // Of a lockspace that is not joined.
        Exchange { lockspace: "OTHER", ..exchange(LOOKUP_RINDEX, 0, "a", None) },
        Exchange { lockspace: "OTHER", ..exchange(UPDATE_RINDEX, ADD, "a", Some(0)) },
        Exchange { lockspace: "OTHER", ..exchange(CREATE_RESOURCE, 0, "a", None) },
        Exchange { lockspace: "OTHER", ..exchange(DELETE_RESOURCE, 0, "a", None) },
        Exchange { lockspace: "OTHER", ..exchange(REBUILD_RINDEX, 0, "", None) },
        Exchange { lockspace: "OTHER", ..exchange(LOOKUP_RINDEX, NO_LOCKSPACE, "a", None) },
        Exchange { lockspace: "OTHER", ..exchange(FORMAT_RINDEX, 0, "", None) },
        Exchange { lockspace: "OTHER", ..exchange(LOOKUP_RINDEX, NO_LOCKSPACE, "", None) },
        Exchange { lockspace: "OTHER", ..exchange(UPDATE_RINDEX, ADD | NO_LOCKSPACE, "a", Some(2)) },
        Exchange { lockspace: "OTHER", ..exchange(LOOKUP_RINDEX, NO_LOCKSPACE, "a", None) },
        Exchange { lockspace: "OTHER", ..exchange(REBUILD_RINDEX, NO_LOCKSPACE, "", None) },
        Exchange { lockspace: "OTHER", ..exchange(LOOKUP_RINDEX, NO_LOCKSPACE, "b", None) },
    ];
    for (number, step) in steps.iter().enumerate() {
        let case = format!("step {number}: command {} flags {:#x}", step.command, step.flags);
        same(&case, &sides, |side| step.on(side));
        same_bytes(&format!("{case}, the index"), &sides, Side::index_area);
        for slot in 0..3 {
            same_bytes(&format!("{case}, area {slot}"), &sides, |side| side.masked(side.area(slot)));
        }
    }
}

#[test]
fn the_number_of_entries_is_as_asked_and_limited() {
    let Some(sides) = Side::both(StorageKind::File) else { return };
    for max_resources in [0, 1, 4096, 16_000, 16_001, 0xffff_ffff] {
        let format = |side: &Side| {
            let payload = raw::rindex(LOCKSPACE, side.storage.path(), side.base(), 0, max_resources);
            side.host.connect().request(cmd::FORMAT_RINDEX, 0, 0, 0, &payload).result()
        };
        same(&format!("{max_resources} entries"), &sides, format);
        same_bytes(&format!("{max_resources} entries"), &sides, Side::index_area);
    }
    let two = |side: &Side| {
        let payload = raw::rindex(LOCKSPACE, side.storage.path(), side.base(), 0, 2);
        side.host.connect().request(cmd::FORMAT_RINDEX, 0, 0, 0, &payload).result()
    };
    same("two entries", &sides, two);
    for name in ["a", "b", "c"] {
        same(name, &sides, |side| side.seen(&format!("client create -x INDEX -e {name}")));
    }
    same("full", &sides, |side| side.seen("client lookup -x INDEX"));
}

#[test]
fn paths_without_an_end_are_refused() {
    let Some(program) = Program::ours_under_test("uses them unbounded") else { return };
    let Some(side) = Side::joined(program, StorageKind::File) else { return };
    let mut payload = raw::rindex(LOCKSPACE, "", 0, 0, 0);
    payload[64..64 + 1024].fill(b'p');
    for command in [cmd::FORMAT_RINDEX, cmd::REBUILD_RINDEX] {
        let reply = side.host.connect().request(command, 0, 0, 0, &payload);
        assert_eq!(reply.result(), -22, "command {command}");
    }
    payload.extend(raw::rentry("a", 0));
    for command in [cmd::CREATE_RESOURCE, cmd::LOOKUP_RINDEX, cmd::DELETE_RESOURCE] {
        let mut connection = side.host.connect();
        assert_eq!(connection.request(command, 0, 0, 0, &payload).result(), -22, "command {command}");
        assert_eq!(connection.receive_payload(64), [0; 64]);
    }
}
