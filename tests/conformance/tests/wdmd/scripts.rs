//! Test scripts (wdmd.md 8). The original runs them every 10 s and waits 9 s for them; ours, armed with
//! 29 s, runs them every 2 s and waits 1 s.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;

use sanlock_conformance::storage::text;
use sanlock_conformance::watchdog::now;
use sanlock_conformance::wdmd::{SOON, field};
use sanlock_conformance::wdmd_client::{Client, Message, cmd};
use sanlock_conformance::{Machine, Program, Table, Wdmd, bounded};

/// A script that runs until the file is removed (at the latest with the directory of the case).
const WHILE_HELD: &str = "while [ -e \"$0.hold\" ]; do touch \"$0.held\"; sleep 0.1; done";

/// What scripts leave: `NAME.something` beside the directory of scripts.
fn note(machine: &Machine, name: &str) -> PathBuf {
    machine.scripts().join("d").join(name)
}

fn script(machine: &Machine, name: &str, mode: u32, body: &str) {
    let dir = machine.scripts().join("d");
    fs::create_dir_all(&dir).expect("a directory");
    sanlock_executable::script(&dir.join(name), &format!("#!/bin/sh\n{body}\n"), mode);
}

/// The daemon with scripts allowed, and a client that has the device armed.
fn start<'machine>(machine: &'machine Machine, options: &[&str]) -> (Wdmd<'machine>, Client) {
    let dir = machine.scripts().join("d");
    let mut all = vec!["-S", "1", "-s", text(&dir)];
    all.extend(options);
    let wdmd = machine.start(&all);
    let (client, _) = wdmd.armed_with(29, 10);
    (wdmd, client)
}

fn names(wdmd: &Wdmd<'_>) -> Vec<String> {
    let dump = wdmd.dump();
    let scripts = dump.lines().filter(|line| line.starts_with("script "));
    scripts.map(|line| field(line, "name").to_owned()).collect()
}

/// Number `word` of script `name` in the dump; 0 when it is not there.
fn count(wdmd: &Wdmd<'_>, name: &str, word: &str) -> u32 {
    let dump = wdmd.dump();
    let wanted = format!(" name {name} ");
    let line = dump.lines().find(|line| line.starts_with("script ") && line.contains(&wanted));
    line.map_or(0, |line| field(line, word).parse().expect("a number"))
}

fn closes(machine: &Machine) -> usize {
    machine.devices().reckoning("watchdog0", None).unclean_closes
}

#[test]
fn executable_files_are_scripts_in_the_order_of_their_names() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    script(&machine, "b_good", 0o755, "exit 0");
    script(&machine, "a_good", 0o700, "exit 0");
    script(&machine, ".hidden", 0o755, "exit 0");
    script(&machine, "group_only", 0o070, "exit 0");
    script(&machine, "no_bit", 0o644, "exit 0");
    fs::create_dir(note(&machine, "sub")).unwrap();
    symlink("a_good", note(&machine, "z_link")).unwrap();
    symlink("nowhere", note(&machine, "z_dangling")).unwrap();
    let (wdmd, _client) = start(&machine, &[]);
    assert_eq!(names(&wdmd), ["a_good", "b_good", "z_link"]);
    wdmd.wait_for_log("script no_bit ignore -1");
}

#[test]
fn a_script_that_is_well_is_good_also_where_sigchld_was_ignored() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    script(&machine, "well", 0o755, "exit 0");
    let dir = machine.scripts().join("d");
    let wdmd = machine.start_ignoring_children(&["-S", "1", "-s", text(&dir)]);
    let (_client, _) = wdmd.armed_with(29, 10);
    if program == Program::Reference {
        // It waits for a child that nobody can wait for, and finds that it takes too long: this host is reset.
        wdmd.wait_for_log(" waitpid error -1 10");
        return;
    }
    bounded::wait_until("a run that has ended", SOON, || {
        ["good", "fail"].iter().any(|word| count(&wdmd, "well", word) >= 1)
    });
    assert_eq!(count(&wdmd, "well", "fail"), 0, "{}", wdmd.dump());
}

#[test]
fn there_are_at_most_eight_scripts() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    for n in 0..10 {
        script(&machine, &format!("s{n}"), 0o755, "exit 0");
    }
    let (wdmd, _client) = start(&machine, &[]);
    assert_eq!(names(&wdmd), ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"]);
    wdmd.wait_for_log("script s9 no space");
}

#[test]
fn scripts_run_only_when_they_are_allowed() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    script(&machine, "bad", 0o755, "touch \"$0.ran\"; exit 1");
    let dir = machine.scripts().join("d");
    let wdmd = machine.start(&["-s", dir.to_str().unwrap()]);
    let (_client, _) = wdmd.armed();
    wdmd.signal(Signal::SIGHUP);
    let pings = machine.devices().reckoning("watchdog0", None).pings.len();
    bounded::wait_until("the next ping", SOON, || {
        machine.devices().reckoning("watchdog0", None).pings.len() > pings
    });
    assert_eq!(names(&wdmd), Vec::<String>::new());
    assert!(!note(&machine, "bad.ran").exists());
}

#[test]
fn a_missing_directory_means_no_scripts() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let (wdmd, _client) = start(&machine, &[]);
    assert_eq!(names(&wdmd), Vec::<String>::new());
}

#[test]
fn good_scripts_run_again_and_again_and_pings_go_on() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    script(&machine, "fine", 0o755, "exit 0");
    let (wdmd, _client) = start(&machine, &[]);
    bounded::wait_until("two good runs", SOON, || count(&wdmd, "fine", "good") >= 2);
    assert_eq!(count(&wdmd, "fine", "fail"), 0);
    assert_eq!(closes(&machine), 0);
    assert!(machine.devices().reckoning("watchdog0", None).fires.is_some_and(|fires| fires > now()));
}

/// A script that is bad once: logged, counted, and over before the device fires.
fn bad_once(body: &str, counter: &str, log: &[&str]) {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    script(&machine, "once", 0o755, &format!("[ -e \"$0.ran\" ] && exit 0; touch \"$0.ran\"; {body}"));
    let (wdmd, mut client) = start(&machine, &[]);
    bounded::wait_until("a bad run and a good one", SOON, || {
        count(&wdmd, "once", counter) == 1 && count(&wdmd, "once", "good") >= 1
    });
    for words in log {
        wdmd.wait_for_log(words);
    }
    bounded::wait_until("the outage to be over", SOON, || client.status().test_interval != 1);
    let why = "an outage that ends in time leaves no trace on the device";
    assert_eq!(closes(&machine), program.differs(1, 0, why), "{:?}", machine.devices().calls());
    assert!(machine.devices().reckoning("watchdog0", None).fires.is_some_and(|fires| fires > now()));
}

#[test]
fn a_script_that_fails_once_is_counted_and_forgiven() {
    bad_once("exit 7", "fail", &[" exit status 7", "script once last_result 7 start "]);
}

#[test]
fn a_script_that_is_killed_once_is_counted_and_forgiven() {
    bad_once("kill -9 $$", "kill", &[" term signal 9", "script once last_result 4 start "]);
}

#[test]
fn a_script_that_cannot_be_executed_has_failed() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    script(&machine, "broken", 0o755, "");
    fs::write(note(&machine, "broken"), "#!/no/such/interpreter\n").unwrap();
    let (wdmd, _client) = start(&machine, &[]);
    bounded::wait_until("a failed run", SOON, || count(&wdmd, "broken", "fail") >= 1);
    wdmd.wait_for_log("script broken last_result 1 start ");
}

#[test]
fn a_script_that_goes_on_failing_has_the_host_reset() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    script(&machine, "bad", 0o755, "exit 3");
    let (wdmd, _client) = start(&machine, &[]);
    wdmd.wait_for_log("exit status 3");
    bounded::wait_until("the pings to end", SOON, || match program {
        Program::Reference => closes(&machine) > 0,
        Program::Ours => {
            machine.devices().reckoning("watchdog0", None).fires.is_some_and(|fires| fires < now())
        }
    });
    bounded::wait_until("several runs", SOON, || count(&wdmd, "bad", "fail") >= 3);
}

#[test]
fn a_script_that_takes_too_long_is_bad_until_it_ends() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    script(&machine, "slow", 0o755, WHILE_HELD);
    fs::write(note(&machine, "slow.hold"), "").unwrap();
    let (wdmd, mut client) = start(&machine, &[]);
    wdmd.wait_for_log("taking too long");
    bounded::wait_until("the outage to show", SOON, || client.status().test_interval == 1);
    assert!(count(&wdmd, "slow", "long") >= 1);
    fs::remove_file(note(&machine, "slow.hold")).unwrap();
    bounded::wait_until("the outage to be over", SOON, || client.status().test_interval != 1);
    assert_eq!(closes(&machine), program.differs(1, 0, "nothing is closed while it lasts"));
    assert!(machine.devices().reckoning("watchdog0", None).fires.is_some_and(|fires| fires > now()));
}

#[test]
fn a_slow_script_keeps_clients_waiting_on_the_original_only() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    script(&machine, "slow", 0o755, WHILE_HELD);
    let (wdmd, mut client) = start(&machine, &[]);
    fs::write(note(&machine, "slow.hold"), "").unwrap();
    bounded::wait_until("the script to run", SOON, || note(&machine, "slow.held").exists());
    client.send(&Message::new(cmd::STATUS));
    let why = "defect 4: no client message is read while scripts run";
    let limit = program.differs(Duration::from_secs(2), SOON, why);
    assert_eq!(client.hears_within(limit), program.differs(false, true, why));
    fs::remove_file(note(&machine, "slow.hold")).unwrap();
    let _ = wdmd.dump();
}

/// Ours starts threads for its scripts, which may take long where memory is short.
#[test]
fn a_thread_that_is_long_in_coming_keeps_no_client_waiting() {
    let Some(program) = Program::wdmd_under_test() else { return };
    if program == Program::Reference {
        return; // It forks.
    }
    let machine = Machine::new(program);
    script(&machine, "fine", 0o755, "exit 0");
    let (wdmd, mut client) = start(&machine, &[]);
    bounded::wait_until("a good run", SOON, || count(&wdmd, "fine", "good") >= 1);
    machine.devices().delay_threads(SOON * 4);
    client.send(&Message::new(cmd::STATUS));
    assert!(client.hears_within(SOON));
    wdmd.wait_for_log("script fine pid 0 ");
}

#[test]
fn an_unfinished_script_is_killed_when_that_is_asked_for_and_ours_kills_its_children_too() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let child = "(while [ -e \"$0.hold\" ]; do touch \"$0.alive\"; sleep 0.1; done) & ";
    script(&machine, "stuck", 0o755, &format!("{child}{WHILE_HELD}"));
    fs::write(note(&machine, "stuck.hold"), "").unwrap();
    let (wdmd, _client) = start(&machine, &["-k", "2"]);
    wdmd.wait_for_log("term signal 9");
    assert!(count(&wdmd, "stuck", "kill") >= 1);
    // No further run makes another child.
    fs::set_permissions(note(&machine, "stuck"), fs::Permissions::from_mode(0o644)).unwrap();
    bounded::wait_until("the script to be dropped", SOON, || names(&wdmd).is_empty());
    std::thread::sleep(Duration::from_millis(500));
    let alive = || {
        let _ = fs::remove_file(note(&machine, "stuck.alive"));
        std::thread::sleep(Duration::from_secs(2));
        note(&machine, "stuck.alive").exists()
    };
    assert_eq!(alive(), program.differs(true, false, "defect 15: -k kills one process only"));
}

#[test]
fn a_script_that_vanishes_is_dropped_and_that_is_no_failure() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    script(&machine, "gone", 0o755, "exit 0");
    script(&machine, "stays", 0o755, "exit 0");
    script(&machine, "unfit", 0o755, "exit 0");
    let (wdmd, _client) = start(&machine, &[]);
    bounded::wait_until("good runs", SOON, || count(&wdmd, "unfit", "good") >= 1);
    fs::remove_file(note(&machine, "gone")).unwrap();
    fs::set_permissions(note(&machine, "unfit"), fs::Permissions::from_mode(0o644)).unwrap();
    bounded::wait_until("both to be dropped", SOON, || names(&wdmd) == ["stays"]);
    wdmd.wait_for_log("script gone removed -2");
    wdmd.wait_for_log("script unfit removed -1");
    assert_eq!(closes(&machine), 0);
}

#[test]
fn sighup_adds_new_scripts_where_there_is_room() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    script(&machine, "b", 0o755, "exit 0");
    let (wdmd, _client) = start(&machine, &[]);
    script(&machine, "a", 0o755, "exit 0");
    script(&machine, "c", 0o755, "exit 0");
    assert_eq!(names(&wdmd), ["b"], "not before the signal");
    wdmd.signal(Signal::SIGHUP);
    bounded::wait_until("the new scripts", SOON, || names(&wdmd).len() == 3);
    let mut all = names(&wdmd);
    all.sort_unstable();
    assert_eq!(all, ["a", "b", "c"]);
    bounded::wait_until("a run of a new one", SOON, || count(&wdmd, "c", "good") >= 1);
}

#[test]
fn what_a_script_inherits() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    // The shell reads its own signal masks: it changes them for what it starts.
    let body = "{ echo \"arguments $#\"; echo \"name $0\"; \
                while read -r word mask; do case $word in Sig*) echo \"$word $mask\";; esac; done < /proc/$$/status; \
                ls -l /proc/$$/fd; } > \"$0.new\"; mv \"$0.new\" \"$0.env\"";
    script(&machine, "env", 0o755, body);
    let (wdmd, _client) = start(&machine, &[]);
    let text =
        bounded::poll_for("the script's note", SOON, || fs::read_to_string(note(&machine, "env.env")).ok());
    let mut table = Table::default();
    table.expect("no arguments", text.contains("arguments 0\n"), true);
    let name = format!("name {}\n", note(&machine, "env").display());
    table.expect("called by its path", text.contains(&name), true);
    let why = "defect 15: scripts inherit blocked signals and sockets";
    // SIGHUP, SIGINT, SIGTERM; 0x4003.
    let mask = |word: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(word)).unwrap();
        u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
    };
    table.expect("blocked signals", mask("SigBlk"), program.differs(0x4003, 0, why));
    let sockets = text.matches("socket:").count() + text.matches("signalfd").count();
    table.expect("daemon's descriptors", sockets > 0, program.differs(true, false, why));
    table.expect("the device is not inherited", text.contains("/opened"), false);
    if program == Program::Ours {
        // A shell that ignores it loops for ever in a broken pipe. (Others are those of whoever ran the tests.)
        table.expect("SIGPIPE is ignored", mask("SigIgn") & (1 << 12) != 0, false);
    }
    drop(wdmd);
}

#[test]
fn a_script_has_no_signals_blocked_that_were_when_the_daemon_was_started() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let body = "while read -r word mask; do case $word in SigBlk:) echo \"$mask\";; esac; done \
                < /proc/$$/status > \"$0.new\"; mv \"$0.new\" \"$0.mask\"";
    script(&machine, "look", 0o755, body);
    let dir = machine.scripts().join("d");
    let wdmd = machine.start_with_blocked_signals(&["-S", "1", "-s", text(&dir)]);
    let (_client, _) = wdmd.armed_with(29, 10);
    let mask =
        bounded::poll_for("the script's note", SOON, || fs::read_to_string(note(&machine, "look.mask")).ok());
    let why = "defect 15: scripts inherit blocked signals";
    assert_eq!(mask, program.differs("0000000000004003\n", "0000000000000000\n", why));
}

#[test]
fn a_short_fire_timeout_leaves_scripts_a_second() {
    let Some(program) = Program::wdmd_under_test() else { return };
    if program == Program::Reference {
        return; // Its fire timeout is 60.
    }
    let machine = Machine::new(program);
    script(&machine, "fine", 0o755, "exit 0");
    let dir = machine.scripts().join("d");
    let wdmd = machine.start(&["-S", "1", "-s", dir.to_str().unwrap()]);
    let mut client = wdmd.connect();
    assert_eq!(client.open_watchdog(8), 8);
    bounded::wait_until("two good runs", SOON, || count(&wdmd, "fine", "good") >= 2);
    assert_eq!(count(&wdmd, "fine", "long"), 0, "defect 4: with F < 10 every script took too long");
}
