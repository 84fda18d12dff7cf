//! What the daemon shows of itself: STATUS, HOST_STATUS, RENEWAL, LOG_DUMP (socket-protocol.md 2.9, 7.5, 7.6, 7.14, 7.32, 8).

use sanlock_conformance::raw::{self, Record, cmd, flag};
use sanlock_conformance::{Connection, Host, Lockspace, Program, Scene, Storage, bounded};

use crate::{SOON, Table};

const DAEMON: &str = "our_host_name use_watchdog high_priority mlock_level quiet_fail debug_renew debug_clients \
    debug_cmds renewal_history_size gid uid sh_retries max_sectors_kb_ignore max_sectors_kb_align \
    max_sectors_kb_num max_worker_threads write_init_io_timeout use_aio kill_grace_seconds helper_pid \
    helper_kill_fd helper_full_count helper_last_status monotime version_str version_num version_hex smproto_hex";
const CLIENT: &str =
    "ci fd pid flags restricted cmd_active cmd_last pid_dead kill_count kill_last suspend need_free";
const LOCKSPACE: &str = "list space_id io_timeout sector_size align_size host_generation renew_fail space_dead \
    killing_pids used_retries external_used used_by_orphans renewal_read_extend_sec set_max_sectors_kb \
    corrupt_result acquire_last_result renewal_last_result acquire_last_attempt acquire_last_success \
    renewal_last_attempt renewal_last_success";
const RESOURCE: &str = "list flags sector_size align_size lver reused res_id token_id";
const HOST: &str = "last_check last_live last_req owner_id owner_generation timestamp io_timeout owner_name";
const RENEWAL: &str = "timestamp read_ms write_ms next_timeouts next_errors";

fn status(host: &Host, last: u32) -> Vec<Record> {
    let (header, records) = host.connect().records(cmd::STATUS, last, &[]);
    assert_eq!((header.result(), header.data2, header.length), (0, 7, 32));
    records
}

fn of_name(host: &Host, command: u32, name: &str) -> (raw::Header, Vec<Record>) {
    host.connect().records(command, 0, &Lockspace::new(name, 0, "", 0).encode())
}

fn registered(host: &Host) -> Connection {
    let mut connection = host.connect();
    connection.register();
    assert_eq!(connection.inquire(None).result, 0);
    connection
}

fn kinds(records: &[Record]) -> Vec<u32> {
    let mut kinds: Vec<u32> = records.iter().map(|record| record.kind).collect();
    kinds.dedup();
    kinds
}

#[test]
fn status_stops_after_the_type_asked_for() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let mut client = registered(scene.host(0));
    assert_eq!(client.acquire_one(&scene.storage().resource(1)), 0);
    let mut table = Table::default();
    for (last, expected) in [
        (0, vec![1, 2, 3, 4]),
        (1, vec![1]),
        (2, vec![1, 2]),
        (3, vec![1, 2, 3]),
        (4, vec![1, 2, 3, 4]),
        (99, vec![1, 2, 3, 4]),
    ] {
        table.expect(&format!("data {last}"), kinds(&status(scene.host(0), last)), expected);
    }
}

/// The daemon's counters are records of our own that come only when they are asked for, with a flag that the original ignores.
#[test]
fn counters_come_after_the_listing_for_who_asks_and_for_nobody_else() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let mut client = registered(scene.host(0));
    assert_eq!(client.acquire_one(&scene.storage().resource(1)), 0);
    let ask = |flags| scene.host(0).connect().records_with(cmd::STATUS, flags, 0, &[]);
    let (plain, without) = ask(0);
    let (header, with) = ask(flag::STATUS_COUNTERS);
    assert_eq!((header.result(), header.length), (plain.result(), plain.length));
    let keys = |records: &[Record]| -> Vec<(u32, Vec<String>)> {
        let keys = |record: &Record| record.keys().iter().map(|key| (*key).to_owned()).collect();
        records.iter().filter(|r| r.kind < 5).map(|r| (r.kind, keys(r))).collect()
    };
    assert_eq!(keys(&with), keys(&without), "the listing is the same");
    assert_eq!(kinds(&without), [1, 2, 3, 4]);
    match program {
        Program::Reference => assert_eq!(kinds(&with), [1, 2, 3, 4], "unknown flags are ignored"),
        Program::Ours => assert_eq!(kinds(&with), [1, 2, 3, 4, 0x4000_0001, 0x4000_0002]),
    }
    if let [.., counters, lockspace] = with.as_slice() {
        if program == Program::Ours {
            assert_eq!((counters.get("acquire_done"), counters.get("acquire_local")), (Some("1"), Some("0")));
            assert_eq!((lockspace.name.as_str(), lockspace.get("watch")), ("LS", Some("off")));
            assert_eq!(lockspace.get("damaged_hosts"), Some("0"));
        }
    }
}

#[test]
fn records_come_in_the_order_of_their_lists() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 2);
    let host = scene.host(0);
    let (mut first, mut second) = (registered(host), registered(host));
    let shared = scene.storage().resource(2).shared();
    assert_eq!(first.acquire_one(&scene.storage().resource(1)), 0);
    assert_eq!((first.acquire_one(&shared), second.acquire_one(&shared)), (0, 0));
    let slow = scene.storage().extra_file("slow", 2);
    let _ = host.client(&["client", "init", "-s", &format!("SLOW:0:{slow}:0"), "-o", "10"]).success();
    assert_eq!(host.connect().add_lockspace(&Lockspace::new("SLOW", 1, &slow, 0), flag::ADD_ASYNC, 10), 0);

    let records = status(host, 0);
    let slots: Vec<u32> =
        records.iter().filter(|r| r.kind == 2).filter_map(|r| r.get("ci")?.parse().ok()).collect();
    assert!(slots.is_sorted() && slots.starts_with(&[0, 1, 2]), "{slots:?}");
    let lists = |kind: u32| -> Vec<(String, String)> {
        let of_kind = records.iter().filter(|r| r.kind == kind);
        of_kind.map(|r| (r.get("list").unwrap_or_default().to_owned(), r.name.clone())).collect()
    };
    let word = |list: &str, name: &str| (list.to_owned(), name.to_owned());
    assert_eq!(lists(3), [word("spaces", "LS"), word("add", "SLOW")]);
    let mut held = lists(4);
    held.sort();
    assert_eq!(held, [word("held", "R1"), word("held", "R2"), word("held", "R2")], "one for each holder");
}

#[test]
fn the_keys_of_records_come_in_order() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::two_hosts(program, 2);
    scene.wait_until_all_see_all();
    let host = scene.host(0);
    let mut client = registered(host);
    let (one, two) = (scene.storage().resource(1), scene.storage().resource(2).shared());
    assert_eq!((client.acquire_one(&one), client.acquire_one(&two)), (0, 0));
    let records = status(host, 0);
    let mut table = Table::default();
    let words = |text: &'static str| text.split_whitespace().collect::<Vec<_>>();
    for record in &records {
        let expected = match record.kind {
            1 => words(DAEMON),
            2 => words(CLIENT),
            3 => words(LOCKSPACE),
            _ => words(RESOURCE),
        };
        table.expect(&format!("keys of type {}", record.kind), record.keys(), expected);
    }
    let daemon = &records[0];
    table.expect("the daemon", (daemon.name.as_str(), daemon.data32, daemon.data64), ("host1", 0, 0));
    let of = |kind: u32| records.iter().filter(move |record| record.kind == kind);
    let us = std::process::id();
    let ours = of(2).find(|record| record.data32 == us).unwrap();
    table.expect("the client", (ours.data64, ours.get("pid")), (0, Some(us.to_string().as_str())));
    table.expect("a plain client", of(2).next().map(|record| record.data32), Some(u32::MAX));
    let space = of(3).next().unwrap();
    let expected = scene.storage().lockspace(1);
    table.expect("the lockspace", (space.name.as_str(), space.data32, space.data64), ("LS", 0, 1));
    table.expect("its structure", space.lockspace.clone(), Some(expected));
    for (name, lver, flags) in [("R1", 1, 0), ("R2", 0, flag::RES_SHARED)] {
        let record = of(4).find(|record| record.name == name).unwrap();
        let resource = record.resource.clone().unwrap();
        table.expect(name, (record.data32, resource.lver, resource.flags), (us, 0, flags));
        table.expect(name, record.data64 >= lver, true);
    }

    let (header, hosts) = of_name(host, cmd::HOST_STATUS, "LS");
    table.expect("HOST_STATUS", (header.result(), header.length), (0, 32));
    table.expect("ids", hosts.iter().map(|record| record.data32).collect::<Vec<_>>(), vec![1, 2]);
    for record in &hosts {
        table.expect("keys of type 5", record.keys(), words(HOST));
        let timestamp = record.get("timestamp").and_then(|text| text.parse().ok());
        table.expect("data64 of a host", Some(record.data64), timestamp);
    }
    let (header, renewals) = of_name(host, cmd::RENEWAL, "LS");
    table.expect("RENEWAL", (header.result(), header.length, header.data2), (0, 32, 1));
    for record in &renewals {
        table.expect("keys of type 6", (record.kind, record.keys()), (6, words(RENEWAL)));
        let timestamp = record.get("timestamp").and_then(|text| text.parse().ok());
        table.expect("data64 of a renewal", (record.data32, Some(record.data64)), (0, timestamp));
    }
}

#[test]
fn user_and_group_are_those_that_were_asked_for_also_where_they_are_not_changed_to() {
    let Some(program) = Program::under_test() else { return };
    let mut table = Table::default();
    for (user, group, expected) in [("root", "root", ("0", "0")), ("daemon", "bin", ("1", "2"))] {
        let host = Host::start_with(program, program, "host1", &["-U", user, "-G", group]);
        let records = status(&host, 1);
        let shown = (records[0].get("uid"), records[0].get("gid"));
        table.expect(&format!("{user}, {group}"), shown, (Some(expected.0), Some(expected.1)));
    }
}

#[test]
fn whether_storage_is_used_asynchronously_is_shown_as_asked_for() {
    let Some(program) = Program::under_test() else { return };
    let mut table = Table::default();
    for (option, expected) in [("0", "0"), ("1", "1"), ("2", "1")] {
        let host = Host::start_with(program, program, "host1", &["-a", option]);
        table.expect(&format!("-a {option}"), status(&host, 1)[0].get("use_aio"), Some(expected));
    }
}

#[test]
fn renewals_are_told_oldest_first() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 0);
    let renewals = bounded::poll_for("three renewals", SOON, || {
        let (_, records) = of_name(scene.host(0), cmd::RENEWAL, "LS");
        (records.len() >= 3).then_some(records)
    });
    let times: Vec<u64> = renewals.iter().map(|record| record.data64).collect();
    assert!(times.is_sorted() && times[0] < times[2], "{times:?}");
    assert_eq!((renewals[0].get("read_ms"), renewals[0].get("write_ms")), (Some("0"), Some("0")), "the join");
}

#[test]
fn no_history_is_no_record() {
    let Some(program) = Program::under_test() else { return };
    let storage = Storage::file();
    let host = Host::start(program, "host1");
    let _ = host.client(&["client", "init", "-s", &storage.lockspace_arg(0), "-o", "10"]).success();
    assert_eq!(host.connect().add_lockspace(&storage.lockspace(1), flag::ADD_ASYNC, 10), 0);
    let (header, records) = of_name(&host, cmd::RENEWAL, "LS");
    assert_eq!((header.result(), records.len()), (0, 0), "while it is being joined");
    // The original returns what the request had there.
    let expected = if program == Program::Ours { 10 } else { 7 };
    assert_eq!(header.data2, expected);
}

#[test]
fn unknown_lockspaces_are_refused_and_the_connection_closed() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 0);
    for command in [cmd::HOST_STATUS, cmd::RENEWAL] {
        let (header, records) = of_name(scene.host(0), command, "NONE");
        assert_eq!((header.result(), records.len()), (-28, 0), "command {command}");
    }
}

#[test]
fn the_log_is_sent_with_its_length() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 0);
    let mut connection = scene.host(0).connect();
    let header = connection.request(cmd::LOG_DUMP, 0, 0, 0, &[]);
    let text = connection.receive_to_end();
    assert_eq!((header.length, header.data as usize), (32, text.len()));
    assert!(!text.is_empty() && !text.contains(&0) && text.last() != Some(&b'\n'));
}

/// Name, slot and last command of the connections other than helper and listener; that of the one that asks is the second value.
fn shown(host: &Host) -> (Vec<(String, u32, u32)>, u32) {
    let records = status(host, 2);
    let client = |record: &Record| {
        let value = |key: &str| record.get(key).and_then(|text| text.parse().ok());
        (record.name.clone(), value("ci").unwrap_or(0), value("cmd_last").unwrap_or(0))
    };
    let mut all: Vec<_> = records.iter().filter(|record| record.kind == 2).map(client).collect();
    assert_eq!((all[0].0.as_str(), all[1].0.as_str()), ("helper", "listener"));
    let mut others = all.split_off(2);
    let asking = others.iter().position(|(name, _, last)| (name.as_str(), *last) == ("status", cmd::STATUS));
    let asking = others.remove(asking.unwrap_or_else(|| panic!("no connection asks: {others:?}")));
    (others, asking.1)
}

/// The only other connection's name and last command.
fn only(host: &Host) -> (String, u32) {
    bounded::poll_for("a single connection", SOON, || match shown(host).0.as_slice() {
        [(name, _, last)] => Some((name.clone(), *last)),
        _ => None,
    })
}

#[test]
fn owner_names_show_what_a_connection_did_last() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let host = scene.host(0);
    bounded::wait_until("earlier connections to be forgotten", SOON, || shown(host).0.is_empty());
    let mut plain = host.connect();
    let row = |name: &str, last: u32| (name.to_owned(), last);
    let mut table = Table::default();
    // The original shows the last command of whoever had the slot before.
    bounded::wait_until("a fresh connection to have no name", SOON, || {
        let (name, last) = only(host);
        name.is_empty() && (last == 0 || program == Program::Reference)
    });
    assert!(plain.version().is_ok());
    table.expect("VERSION", only(host), row("", cmd::VERSION));
    plain.request(cmd::RESTRICT, 0, 0, 0, &[]);
    table.expect("RESTRICT", only(host), row("", cmd::RESTRICT));
    let lockspace = scene.storage().lockspace(1);
    plain.inq_lockspace(&lockspace, 0);
    table.expect("INQ_LOCKSPACE", only(host), row("inq_lockspace", cmd::INQ_LOCKSPACE));
    plain.add_lockspace(&lockspace, 0, 0);
    table.expect("ADD_LOCKSPACE", only(host), row("add_lockspace", cmd::ADD_LOCKSPACE));
    plain.read_lockspace(&lockspace);
    table.expect("READ_LOCKSPACE", only(host), row("cmd20", cmd::READ_LOCKSPACE));
    drop(plain);

    bounded::wait_until("the slot to be free", SOON, || shown(host).0.is_empty());
    let mut client = registered(host);
    let pid = std::process::id().to_string();
    table.expect("REGISTER", only(host), row(&pid, cmd::INQUIRE));
    let (count, mut payload) = raw::acquire_payload(&[scene.storage().resource(1)]);
    let options = payload.len() - 56;
    payload[options..options + 3].copy_from_slice(b"vm1");
    assert_eq!(client.request(cmd::ACQUIRE, 0, count, raw::SELF, &payload).result(), 0);
    table.expect("ACQUIRE", only(host), row("vm1", cmd::ACQUIRE));
    assert_eq!(client.acquire(&[], 0, None), 0);
    table.expect("ACQUIRE without a name", only(host), row("", cmd::ACQUIRE));
}

#[test]
fn a_new_connection_takes_the_lowest_free_slot() {
    let Some(program) = Program::under_test() else { return };
    let host = Host::start(program, "host1");
    let mut connections: Vec<Connection> = (0..4).map(|_| host.connect()).collect();
    // The connection that asks is itself the newest one.
    let lowest_is_taken = |others: usize| {
        bounded::wait_until("the lowest free slot to be taken", SOON, || {
            let (all, asking) = shown(&host);
            let slots: Vec<u32> = all.iter().map(|(_, slot, _)| *slot).collect();
            all.len() == others && (2..).find(|slot| !slots.contains(slot)) == Some(asking)
        });
    };
    lowest_is_taken(4);
    drop(connections.remove(1));
    lowest_is_taken(3);
    drop(connections.remove(0));
    lowest_is_taken(2);
}

#[test]
fn renewals_are_logged_if_that_is_asked_for() {
    let Some(program) = Program::under_test() else { return };
    for (option, expected) in [("0", false), ("1", true)] {
        let storage = Storage::file();
        let host = Host::start_with(program, program, "host1", &["-R", option]);
        host.init(&storage, 0);
        host.join(&storage, 1);
        bounded::wait_until("three renewals", SOON, || of_name(&host, cmd::RENEWAL, "LS").1.len() >= 3);
        let lines = || host.log().lines().filter(|line| line.contains(" renewed ")).count();
        if expected {
            // The log is written by a thread of its own, and a renewal that ended late has no line.
            bounded::wait_until("their lines", SOON, || lines() >= 2);
        } else {
            assert_eq!(lines(), 0, "lines that nobody asked for");
        }
    }
}

#[test]
fn paths_are_shown_as_the_original_shows_them() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::not_joined(program, 0);
    let host = scene.host(0);
    let path = scene.storage().extra_file("a:b c", 4);
    let escaped = path.replace(':', "\\:").replace(' ', "\\ ");
    let (lockspace, lease) = (format!("LX:1:{escaped}:0"), format!("LX:RX:{escaped}:1048576"));
    let _ = host.client(&["client", "init", "-s", &lockspace, "-o", "1"]).success();
    let _ = host.client(&["client", "init", "-r", &lease]).success();
    let _ = host.client(&["client", "add_lockspace", "-s", &lockspace, "-o", "1"]).success();
    let mut table = Table::default();
    let says = |args: &[&str]| host.client(&[&["client"], args].concat()).stdout;
    table.expect("gets", says(&["gets"]), format!("s LX:1:{path}:0 \n"));
    table.expect("read -s", says(&["read", "-s", &lockspace]), format!("s LX:1:{path}:0\n"));
    table.expect("read -r", says(&["read", "-r", &lease]), format!("r LX:RX:{escaped}:1048576:0\n"));
    let status = says(&["status"]);
    table.expect("status", status.contains(&format!("\ns LX:1:{escaped}:0\n")), true);
}
