//! Objects made of the daemon's records.

use super::*;
use sanlock_client::wire::{Disk, Name, Resource, ResourceSpec, StateText};
use serde_json::{Value, json};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn words(text: &str) -> StateText {
    text.split(' ')
        .filter_map(|item| item.split_once('='))
        .fold(StateText::default(), |t, (k, v)| t.item(k, v))
}

fn value(body: &impl Serialize) -> Value {
    serde_json::to_value(body).unwrap()
}

fn resource(flags: u32, pid: i32, text: &str) -> StateRecord {
    let mut fixed = Resource::new(name("LS"), name("R"));
    fixed.flags = flags.into();
    let disks = vec![Disk::new("/a", 0).unwrap(), Disk::new("/b", 1 << 20).unwrap()];
    StateRecord::resource(ResourceSpec::new(fixed, disks).unwrap(), pid, 7, words(text))
}

#[test]
fn status_has_a_list_for_each_kind_of_record() {
    let lockspace = Lockspace::new(name("LS"), 2, Disk::new("/ls", 0).unwrap());
    let mut later = StateRecord::client(name("worker"), 3, words("busy=1"));
    later.kind = 7;
    let records = [
        StateRecord::daemon(name("hostA"), words("our_host_name=12 debug_cmds=0xff use_watchdog=1")),
        StateRecord::client(name("listener"), -1, words("ci=1 pid=-1")),
        StateRecord::client(name(""), 77, words("ci=2 flags=1")),
        StateRecord::lockspace(lockspace, words("list=spaces io_timeout=10")),
        resource(0, 77, "list=held lver=7"),
        resource(4, 0, "list=rem"),
        resource(0, 78, "list=orphan"),
        later,
    ];
    let shown = value(&listed(&records));
    let disks = json!([{"path": "/a", "offset": 0}, {"path": "/b", "offset": 1_048_576}]);
    let held = |mode: &str, pid: Value, list: &str, details: Value| {
        json!({"lockspace": "LS", "name": "R", "disks": disks, "lease_version": 7, "mode": mode, "pid": pid, "list": list,
               "details": details})
    };
    assert_eq!(
        shown,
        json!({
            // A host name stays text even if it looks like a number.
            "cut": null,
            "daemon": {"host_name": "hostA", "details": {"our_host_name": "12", "debug_cmds": "0xff", "use_watchdog": 1}},
            "clients": [
                {"pid": null, "name": "listener", "details": {"ci": 1, "pid": -1}},
                {"pid": 77, "name": "", "details": {"ci": 2, "flags": "1"}},
            ],
            "lockspaces": [
                {"name": "LS", "host_id": 2, "path": "/ls", "offset": 0, "list": "spaces",
                 "details": {"list": "spaces", "io_timeout": 10}},
            ],
            "resources": [
                held("exclusive", json!(77), "held", json!({"list": "held", "lver": 7})),
                held("shared", json!(null), "rem", json!({"list": "rem"})),
                held("exclusive", json!(null), "orphan", json!({"list": "orphan"})),
            ],
            "others": [{"type": 7, "name": "worker", "details": {"busy": 1}}],
        })
    );
}

#[test]
fn host_records_have_their_times() {
    let mut record = StateRecord::host(2, 500, StateText::default());
    record.text = b"last_check=999 last_live=996 last_req=0 owner_id=2 owner_generation=3 timestamp=500 io_timeout=10 owner_name=a b"
        .to_vec();
    assert_eq!(
        value(&host_record(&record)),
        json!({"host_id": 2, "generation": 3, "name": "a b", "timestamp": 500, "io_timeout_s": 10, "last_check": 999,
               "last_live": 996, "last_request": 0})
    );
    let empty = value(&host_record(&StateRecord::host(2, 500, StateText::default())));
    assert_eq!((&empty["generation"], &empty["timestamp"]), (&Value::Null, &json!(500)));
}

#[test]
fn hosts_have_the_words_of_gets() {
    let host = |flags: u32| Host {
        host_id: 2.into(),
        generation: 3.into(),
        timestamp: 7.into(),
        io_timeout: 1.into(),
        flags: flags.into(),
    };
    assert_eq!(
        value(&host_seen(&host(4))),
        json!({"host_id": 2, "generation": 3, "timestamp": 7, "io_timeout_s": 1, "state": "FAIL"})
    );
    assert_eq!(value(&host_seen(&host(9)))["state"], "ERROR");
}

#[test]
fn what_a_process_holds_is_taken_apart() {
    let shown = value(&inquired(b"LS:A:/a:0:5 LS:B:/b\\:c:1048576:/d:0:SH").unwrap());
    assert_eq!(
        shown,
        json!([
            {"lockspace": "LS", "name": "A", "disks": [{"path": "/a", "offset": 0}], "mode": "exclusive", "lease_version": 5},
            {"lockspace": "LS", "name": "B", "disks": [{"path": "/b:c", "offset": 1_048_576}, {"path": "/d", "offset": 0}],
             "mode": "shared", "lease_version": null},
        ])
    );
    assert!(inquired(b"nonsense").is_err());
}
