//! `--json`: the objects have the members that `docs/json.md` lists, and say what the text says. Our command, beside our daemon and
//! the original's.

use std::process::Command;

use sanlock_conformance::bounded::{self, CLIENT_LIMIT, Output};
use sanlock_conformance::storage::LOCKSPACE;
use sanlock_conformance::{Holder, Host, Program, Scene, Storage};
use sanlock_manual::json::{is_documented, members_of};
use serde_json::{Value, json};

fn parsed(output: &Output) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output}"))
}

/// The object that a successful command prints.
fn ask(host: &Host, args: &[&str]) -> Value {
    let value = parsed(&host.client(&[args, &["--json"]].concat()).success());
    assert_eq!(value["schema"], 1, "{args:?}");
    value
}

fn scene(program: Program) -> (Scene, Vec<Holder>) {
    let scene = Scene::asked_by(Storage::file(), program, Program::Ours, 2, 3);
    scene.wait_until_all_see_all();
    let storage = scene.storage();
    let shared = format!("{}:SH", storage.resource_arg(2));
    let holders = vec![Holder::start(scene.host(0), &[&storage.resource_arg(1), &shared])];
    (scene, holders)
}

fn programs() -> impl Iterator<Item = Program> {
    [Program::Ours, Program::Reference].into_iter().filter(|program| program.available())
}

#[test]
fn what_the_daemon_shows_is_what_the_text_says() {
    for program in programs() {
        let (scene, holders) = scene(program);
        let (host, storage) = (scene.host(0), scene.storage());
        let (path, pid) = (storage.path(), i64::from(holders[0].pid()));
        let place = |n: u64| json!([{"path": path, "offset": storage.offset(n)}]);

        let status = ask(host, &["client", "status"]);
        is_documented("status", &[&status]);
        assert_eq!(status["command"], "status");
        assert_eq!(status["daemon"]["host_name"], "host1");
        let held: Vec<Value> = status["resources"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|held| {
                json!([
                    held["lockspace"],
                    held["name"],
                    held["disks"],
                    held["mode"],
                    held["pid"],
                    held["list"]
                ])
            })
            .collect();
        for expected in [
            json!([LOCKSPACE, "R1", place(1), "exclusive", pid, "held"]),
            json!([LOCKSPACE, "R2", place(2), "shared", pid, "held"]),
        ] {
            assert!(held.contains(&expected), "{}: {expected} {status}", program.word());
        }
        let lockspace = &status["lockspaces"][0];
        assert_eq!((&lockspace["name"], &lockspace["host_id"]), (&json!(LOCKSPACE), &json!(1)));
        assert_eq!((&lockspace["path"], &lockspace["details"]["io_timeout"]), (&json!(path), &json!(1)));
        assert!(
            status["clients"]
                .as_array()
                .is_some_and(|clients| clients.iter().any(|client| client["pid"] == pid))
        );

        let all = ask(host, &["host_status"]);
        let one = ask(host, &["host_status", "-s", LOCKSPACE]);
        is_documented("host_status", &[&all, &one]);
        assert_eq!(members_of(&[&all]), members_of(&[&one]));
        let second = &one["lockspaces"][0]["hosts"][1];
        assert_eq!(
            (&second["host_id"], &second["name"], &second["generation"]),
            (&json!(2), &json!("host2"), &json!(1))
        );

        let plain = ask(host, &["gets"]);
        let hosts = ask(host, &["gets", "-h", "1"]);
        is_documented("gets", &[&plain, &hosts]);
        assert_eq!(
            (&plain["lockspaces"][0]["state"], &plain["lockspaces"][0]["hosts"]),
            (&json!("joined"), &Value::Null)
        );
        let states: Vec<&Value> = hosts["lockspaces"][0]["hosts"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|host| &host["state"])
            .collect();
        assert_eq!(states, ["LIVE", "LIVE"], "{hosts}");

        let renewal = ask(host, &["renewal", "-s", LOCKSPACE]);
        is_documented("renewal", &[&renewal]);
        assert_eq!(renewal["io_timeout_s"], 1);
        assert!(renewal["renewals"][0]["read_ms"].is_u64(), "{renewal}");

        let inquired = ask(host, &["inquire", "-p", &pid.to_string()]);
        is_documented("inquire", &[&inquired]);
        let held: Vec<Value> = inquired["resources"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|held| json!([held["name"], held["disks"], held["mode"], held["lease_version"].is_null()]))
            .collect();
        for expected in [json!(["R1", place(1), "exclusive", false]), json!(["R2", place(2), "shared", true])]
        {
            assert!(held.contains(&expected), "{}: {expected} {inquired}", program.word());
        }

        let lockspace = ask(host, &["read", "-s", &storage.lockspace_arg(1)]);
        let resource = ask(host, &["read", "-r", &storage.resource_arg(1), "-h", "1"]);
        let unasked = ask(host, &["read", "-r", &storage.resource_arg(1)]);
        is_documented("read (client)", &[&lockspace, &resource]);
        assert_eq!(
            (&lockspace["lockspace"]["io_timeout_s"], &lockspace["resource"]),
            (&json!(1), &Value::Null)
        );
        assert_eq!(
            (&resource["owners"][0]["host_id"], &resource["owners"][0]["mode"]),
            (&json!(1), &json!("exclusive"))
        );
        assert_eq!((&unasked["owners"], &unasked["resource"]["lease_version"]), (&Value::Null, &json!(1)));
    }
}

#[test]
fn what_lies_on_the_disk_is_what_the_text_says() {
    let (scene, _holders) = scene(Program::Ours);
    let (host, storage) = (scene.host(0), scene.storage());
    let index = format!("{LOCKSPACE}:{}:{}", storage.path(), storage.offset(4));
    let _ = host.client(&["client", "format", "-x", &index]).success();
    let _ = host.client(&["client", "create", "-x", &index, "-e", "indexed"]).success();

    let record = ask(host, &["direct", "read_leader", "-r", &storage.resource_arg(1)]);
    let host_id = ask(host, &["direct", "read_leader", "-s", &storage.lockspace_arg(2)]);
    let read = ask(host, &["direct", "read", "-r", &storage.resource_arg(1)]);
    is_documented("read_leader, read (direct)", &[&record, &host_id, &read]);
    assert_eq!(record["record"], read["record"]);
    // The members of the record are the lines of the text.
    let text = host.client(&["direct", "read_leader", "-r", &storage.resource_arg(1)]).success().stdout;
    for line in text.lines().filter(|line| !line.starts_with("read_leader done")) {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        let member = match name {
            "lver" => "lease_version",
            "space_name" => "lockspace",
            "resource_name" => "name",
            "io_timeout" => "io_timeout_s",
            other => other,
        };
        let found = &record["record"][member];
        let found = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
        assert_eq!(found, value, "{name}");
    }
    assert_eq!(
        (&host_id["record"]["type"], &host_id["record"]["name"]),
        (&json!("lockspace"), &json!("host2"))
    );

    let dump = ask(host, &["direct", "dump", storage.path()]);
    is_documented("dump", &[&dump]);
    let kinds: Vec<&Value> =
        dump["areas"].as_array().into_iter().flatten().map(|area| &area["type"]).collect();
    assert_eq!(kinds[..6], ["lockspace", "resource", "resource", "resource", "rindex", "resource"], "{dump}");
    let areas = &dump["areas"];
    assert_eq!(areas[0]["hosts"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        (&areas[1]["name"], &areas[1]["owner_id"], &areas[1]["lease_version"]),
        (&json!("R1"), &json!(1), &json!(1))
    );
    assert_eq!(areas[2]["shared"], json!([{"host_id": 1, "generation": 1}]));
    assert_eq!(areas[1]["ballots"][0]["valid"], true);
    assert_eq!(areas[4]["entries"][0]["name"], "indexed");

    let who = ask(host, &["who", &storage.resource_arg(1)]);
    let members = ask(host, &["who", LOCKSPACE]);
    is_documented("who", &[&who, &members]);
    assert_eq!((&who["resource"]["mode"], &who["hosts"][0]["state"]), (&json!("exclusive"), &json!("LIVE")));
    assert_eq!((&who["hosts"][0]["this_host"], &who["processes"][0]["list"]), (&json!(true), &json!("held")));
    assert!(who["hosts"][0]["takeover_s"].as_u64().is_some_and(|wait| wait <= 69), "{who}");
    assert_eq!(members["hosts"].as_array().map(Vec::len), Some(2));
}

/// The exit status and stderr are those of the text.
#[test]
fn failures_are_objects_too() {
    let scene = Scene::not_joined(Program::Ours, 1);
    let host = scene.host(0);
    let other = host.client(&["init", "-r", &scene.storage().resource_arg(2)]).success();
    assert_eq!(other.result(), Some(0));
    let wrong = format!("{LOCKSPACE}:other:{}:{}", scene.storage().path(), scene.storage().offset(1));
    for (args, code, name) in [
        (&["host_status", "-s", "XX"][..], -28, json!("ENOSPC")),
        (&["renewal", "-s", "XX"], -28, json!("ENOSPC")),
        (&["renewal"], -22, json!("EINVAL")),
        (&["inquire", "-p", "999999"], -3, json!("ESRCH")),
        (&["read", "-r", &wrong], -227, json!("SANLK_LEADER_RESOURCE")),
        (&["read", "-r", "LS:R:/no/such:0"], -2, json!("ENOENT")),
        (&["direct", "read_leader", "-r", &wrong], -227, json!("SANLK_LEADER_RESOURCE")),
        (&["direct", "dump", "/no/such"], -2, json!("ENOENT")),
        (&["who", "XX"], -2, json!("ENOENT")),
    ] {
        let plain = host.client(args);
        let output = host.client(&[args, &["--json"]].concat());
        assert_eq!((output.code, plain.code), (1, 1), "{output}");
        let error = &parsed(&output)["error"];
        assert_eq!((&error["code"], &error["name"]), (&json!(code), &name), "{output}");
        assert!(error["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{output}");
        let explained = format!("'sanlock explain {code}' says more");
        assert!(output.stderr.contains(&explained), "{output}");
    }
    // What was read, though it is not what was asked for, stands beside the failure.
    let output = host.client(&["direct", "read_leader", "-r", &wrong, "--json"]);
    assert_eq!(parsed(&output)["record"]["name"], "R1");
    let mut command = Command::new(Program::Ours.path());
    command.args(["status", "--json"]).env("SANLOCK_RUN_DIR", scene.storage().dir().join("no-daemon"));
    let output = bounded::run(command, CLIENT_LIMIT);
    assert_eq!((output.code, &parsed(&output)["error"]["code"]), (1, &json!(-2)), "{output}");
}
