//! What people are told when the daemon refuses (command-line.md 18.2 #21): what failed, on what, why, and what to do next. stdout and
//! exit status are those of the original; `tests/cli_errors.rs` of the workspace has what needs no daemon.

use sanlock_conformance::dead_owner::registered;
use sanlock_conformance::storage::LOCKSPACE;
use sanlock_conformance::{Holder, Program, Scene};

/// A refusal: the arguments, the action, the object, the number, and words of reason and next step.
type Row<'a> = (&'a [&'a str], &'a str, &'a str, i64, &'a [&'a str]);

#[test]
fn refusals_name_what_failed_on_what_why_and_what_to_do() {
    let Some(program) = Program::ours_under_test("says nothing more than a number") else { return };
    let scene = Scene::two_hosts(program, 3);
    let (host, storage) = (scene.host(0), scene.storage());
    let mut process = registered(host);
    let pid = std::process::id().to_string();
    assert_eq!(process.acquire_one(&storage.resource(1)), 0);
    let _other = Holder::start(scene.host(1), &[&storage.resource_arg(2)]);
    scene.wait_until_all_see_all();
    let empty = storage.extra_file("empty", 2);

    let (mine, theirs, free) = (storage.resource_arg(1), storage.resource_arg(2), storage.resource_arg(3));
    let resource = |arg: &str| format!("resource {arg}");
    let for_us = |arg: &str| format!("{} for pid {pid}", resource(arg));
    let (joined, absent) = (storage.lockspace_arg(1), format!("XX:1:{}:0", storage.path()));
    let lockspace = |arg: &str| format!("lockspace {arg}");
    let nowhere = format!("{LOCKSPACE}:R:{empty}:0");
    let unjoined = format!("XX:R3:{}:{}", storage.path(), storage.offset(3));
    let newer = format!("{free}:9");
    let misaligned = format!("{LOCKSPACE}:R:{empty}:100");
    let misnamed = format!("{LOCKSPACE}:X:{}:{}", storage.path(), storage.offset(3));
    let empty_ls = format!("EE:1:{empty}:0");
    let index = format!("{LOCKSPACE}:{empty}:0");
    let rows: &[Row] = &[
        (
            &["acquire", "-r", &theirs, "-p", &pid],
            "acquire",
            &for_us(&theirs),
            -243,
            &["held by another host", "host 2 \"host2\"", "sanlock who"],
        ),
        (
            &["acquire", "-r", &mine, "-p", &pid],
            "acquire",
            &for_us(&mine),
            -17,
            &["held on this host already", "client status"],
        ),
        (
            &["acquire", "-r", &unjoined, "-p", &pid],
            "acquire",
            &for_us(&unjoined),
            -28,
            &["not joined", "add_lockspace"],
        ),
        (
            &["acquire", "-r", &newer, "-p", &pid],
            "acquire",
            &for_us(&free),
            -240,
            &["lease version on disk differs", "may have changed"],
        ),
        (
            &["acquire", "-r", &nowhere, "-p", &pid],
            "acquire",
            &for_us(&nowhere),
            -223,
            &["of its owner's host id record", "next: 'sanlock fsck PATH'"],
        ),
        (
            &["acquire", "-r", &misnamed, "-p", &pid],
            "acquire",
            &for_us(&misnamed),
            -227,
            &["another resource name", "read_leader"],
        ),
        (
            &["acquire", "-r", &free, "-p", "999999"],
            "acquire",
            "for pid 999999",
            -3,
            &["no registered process", "client status"],
        ),
        (&["acquire", "-r", &free], "acquire", &resource(&free), -16, &["use -p PID"]),
        (
            &["release", "-r", &free, "-p", &pid],
            "release",
            &for_us(&free),
            -1,
            &["not held by this process", "inquire -p PID"],
        ),
        (
            &["convert", "-r", &free, "-p", &pid],
            "convert",
            &for_us(&free),
            -2,
            &["does not hold this lease", "inquire -p PID"],
        ),
        (
            &["inquire", "-p", "999999"],
            "inquire",
            "pid 999999",
            -3,
            &["no registered process", "client status"],
        ),
        (
            &["add_lockspace", "-s", &joined],
            "add_lockspace",
            &lockspace(&joined),
            -17,
            &["joined already", "unless acquires give -28"],
        ),
        (
            &["add_lockspace", "-s", &empty_ls],
            "add_lockspace",
            &lockspace(&empty_ls),
            -223,
            &["no lockspace is initialised", "sanlock direct dump"],
        ),
        (
            &["add_lockspace", "-s", "YY:1:/no/such:0"],
            "add_lockspace",
            "lockspace YY:1:/no/such:0",
            -19,
            &["cannot be opened", "exists on this host"],
        ),
        (
            &["add_lockspace", "-s", "YY:1:not/absolute:0"],
            "add_lockspace",
            "lockspace YY:1:not/absolute:0",
            -19,
            &["the path \"not/absolute\" is not absolute", "give /"],
        ),
        (
            &["client", "align", "-s", "YY:0:not-absolute:0"],
            "align",
            "not-absolute:0",
            -19,
            &["the path \"not-absolute\" is not absolute", "give /"],
        ),
        (
            &["inq_lockspace", "-s", &absent],
            "inq_lockspace",
            &lockspace(&absent),
            -2,
            &["is joined", "client gets"],
        ),
        (
            &["rem_lockspace", "-s", &absent],
            "rem_lockspace",
            &lockspace(&absent),
            -2,
            &["is joined", "client gets"],
        ),
        (
            &["set_config", "-s", "XX", "-u", "1"],
            "set_config",
            "lockspace XX",
            -2,
            &["not joined", "add_lockspace"],
        ),
        (&["set_config", "-s", LOCKSPACE], "set_config", "lockspace LS", -22, &["not exactly one", "-u 0|1"]),
        (
            &["set_event", "-s", "XX", "-i", "1", "-e", "1"],
            "set_event",
            "host 1 of lockspace XX",
            -2,
            &["not joined", "add_lockspace"],
        ),
        (
            &["request", "-r", &format!("{theirs}:1"), "-f", "2"],
            "request",
            &resource(&theirs),
            -272,
            &["not greater than the one held", "plus one"],
        ),
        (
            &["read", "-r", &misnamed],
            "read",
            &resource(&misnamed),
            -227,
            &["another resource name", "read_leader"],
        ),
        (
            &["read", "-s", &empty_ls],
            "read",
            &lockspace(&empty_ls),
            -223,
            &["no lockspace is initialised", "sanlock direct dump"],
        ),
        (
            &["client", "init", "-r", &misaligned],
            "init",
            &resource(&misaligned),
            -22,
            &["not aligned", "multiples of the align size"],
        ),
        (
            &["host_status", "-s", "XX"],
            "host_status",
            "lockspace XX",
            -28,
            &["no such lockspace", "client gets"],
        ),
        (&["renewal", "-s", "XX"], "renewal", "lockspace XX", -28, &["no such lockspace", "client gets"]),
        (
            &["client", "lookup", "-x", &index, "-e", "R"],
            "lookup",
            "entry R",
            -274,
            &["no resource index", "sanlock fsck"],
        ),
        (
            &["command", "-r", &theirs, "-c", "/bin/true"],
            "command",
            &resource(&theirs),
            -243,
            &["held by another host", "sanlock who"],
        ),
    ];
    let mut wrong = Vec::new();
    for (args, action, object, result, words) in rows {
        let output = host.client(args);
        let reason =
            output.stderr.lines().find(|line| line.ends_with(&format!("({result})"))).unwrap_or_default();
        let next = format!("sanlock: {action}: next: ");
        let good = output.code == 1
            && reason.starts_with(&format!("sanlock: {action}: "))
            && reason.contains(object)
            && output.stderr.lines().any(|line| line.starts_with(&next) && line.len() > next.len() + 20)
            && output.stderr.contains(&format!("'sanlock explain {result}' says more"))
            && words.iter().all(|word| output.stderr.contains(word));
        if !good {
            wrong.push(format!("{object} {result}: {output}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let missing = host.client(&["command", "-r", &free, "-c", "/no/such/program"]);
    assert_eq!(missing.code, 127, "{missing}");
    let said =
        "execv failed: No such file or directory\nsanlock: command: next: \"/no/such/program\" was not run";
    assert!(missing.stderr.starts_with(said), "{missing}");
}
