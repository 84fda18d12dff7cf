//! What records say, in which state of the run directory and of the machine.

use super::asking::{READERS_MAX, Unread};
use super::*;
use crate::config::Config;
use crate::global::start_hirer;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use sanlock_blockio::EngineKind;
use sanlock_lease::machine::IoFailure;
use std::time::Duration;

const HOST: u64 = 7;

fn record(pids: Vec<i32>) -> RejoinRecord {
    RejoinRecord { spec: spec(), instance: third(), pids, outlived: false }
}

fn this_boot(own: bool, alive: bool) -> RejoinEvidence {
    RejoinEvidence::ThisBoot { instance: third(), own, alive }
}

fn third() -> Instance {
    Instance { generation: 3, io_timeout: IoTimeout::new(20).unwrap() }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn save(records: &Records, record: &RejoinRecord) -> io::Result<()> {
    records.save(&mut records.newest(), record, &Log::in_memory())
}

/// What both places say, whoever reads.
fn evidence_in(records: &Records, spec: &LockspaceSpec) -> RejoinEvidence {
    evidence_of(records.this_boot(spec), records.before_boot(spec))
}

fn spec() -> LockspaceSpec {
    LockspaceSpec { name: name("LS/1"), host_id: HOST, path: b"/dev/disk:1".to_vec(), offset: 1 << 20 }
}

/// The same lockspace, as another host.
fn other_host() -> LockspaceSpec {
    LockspaceSpec { host_id: 8, ..spec() }
}

fn own_pid() -> i32 {
    i32::try_from(std::process::id()).unwrap()
}

#[test]
fn a_record_tells_whether_its_processes_live() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::new(dir.path(), None);
    let evidence = |records: &Records| evidence_in(records, &spec());
    assert_eq!(evidence(&records), RejoinEvidence::None);
    save(&records, &record(vec![])).unwrap();
    assert_eq!(evidence(&records), this_boot(true, false));
    save(&records, &RejoinRecord { outlived: true, ..record(vec![]) }).unwrap();
    assert_eq!(evidence(&records), this_boot(true, true));
    save(&records, &record(vec![own_pid()])).unwrap();
    assert_eq!(evidence(&records), this_boot(true, true));
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    save(&records, &record(vec![i32::try_from(child.id()).unwrap()])).unwrap();
    assert_eq!(evidence(&records), this_boot(true, true));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(evidence(&records), this_boot(true, false));
    assert_eq!(evidence_in(&records, &other_host()), RejoinEvidence::None);
    let other = Records::new(dir.path(), None);
    assert_eq!(evidence(&other), this_boot(false, false), "another life of the daemon");
    let rebooted = Records { boot: Some("another".to_owned()), ..Records::new(dir.path(), None) };
    assert_eq!(evidence(&rebooted), RejoinEvidence::OtherBoot { instance: third() });
    let unsure = Records { boot: None, ..Records::new(dir.path(), None) };
    assert_eq!(evidence(&unsure), RejoinEvidence::Unusable);
    save(&records, &RejoinRecord { outlived: true, ..record(vec![]) }).unwrap();
    assert_eq!(evidence(&records), this_boot(true, true));
    records.remove(&mut records.newest(), &name("LS/1"), HOST).unwrap();
    records.remove(&mut records.newest(), &name("LS/1"), HOST).unwrap();
    assert_eq!(evidence(&records), RejoinEvidence::None);
}

#[test]
fn a_damaged_record_proves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::new(dir.path(), None);
    save(&records, &record(vec![own_pid(), 1])).unwrap();
    let path = records.path(&name("LS/1"), HOST);
    let whole = fs::read(&path).unwrap();
    // To this daemon, which knows what it wrote, to the next one, and after a reboot.
    let next = Records::new(dir.path(), None);
    let rebooted = Records { boot: Some("another".to_owned()), ..Records::new(dir.path(), None) };
    assert_eq!(evidence_in(&next, &spec()), this_boot(false, true));
    assert_eq!(evidence_in(&rebooted, &spec()), RejoinEvidence::OtherBoot { instance: third() });
    let proves_nothing = |bytes: &[u8], how: &dyn std::fmt::Display| {
        fs::write(&path, bytes).unwrap();
        for reader in [&records, &next, &rebooted] {
            assert_eq!(evidence_in(reader, &spec()), RejoinEvidence::Unusable, "{how}");
        }
    };
    for cut in 0..whole.len() {
        proves_nothing(&whole[..cut], &format_args!("cut at {cut}"));
    }
    for (at, bit) in (0..whole.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << bit;
        proves_nothing(&damaged, &format_args!("bit {bit} of byte {at}"));
    }
    fs::write(&path, [0xff; 100]).unwrap();
    assert_eq!(evidence_in(&records, &spec()), RejoinEvidence::Unusable);
    // Another lockspace's record under our name.
    let other = LockspaceSpec { name: name("other"), ..spec() };
    let other = RejoinRecord { spec: other, ..record(vec![]) };
    save(&records, &other).unwrap();
    fs::rename(records.path(&name("other"), HOST), &path).unwrap();
    assert_eq!(evidence_in(&records, &spec()), RejoinEvidence::Unusable);
}

#[test]
fn a_record_of_another_place_tells_of_an_instance_and_proves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::new(dir.path(), None);
    save(&records, &record(vec![])).unwrap();
    let rebooted = Records { boot: Some("another".to_owned()), ..Records::new(dir.path(), None) };
    let told = RejoinEvidence::NoProof { instance: third() };
    for (path, offset) in
        [("/dev/disk:2", 1 << 20), ("/dev/./disk:1", 1 << 20), ("", 1 << 20), ("/dev/disk:1", 0)]
    {
        let elsewhere = LockspaceSpec { path: path.as_bytes().to_vec(), offset, ..spec() };
        for reader in [&records, &rebooted] {
            assert_eq!(evidence_in(reader, &elsewhere), told, "{path} {offset}");
        }
    }
    assert_eq!(evidence_in(&records, &spec()), this_boot(true, false));
    assert_eq!(evidence_in(&rebooted, &spec()), RejoinEvidence::OtherBoot { instance: third() });
}

#[test]
fn a_record_of_the_form_without_checksum_tells_of_an_instance_and_proves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::new(dir.path(), None);
    let boot = records.boot.clone().unwrap();
    for (boot, end, found) in [
        ("another", "end\n", RejoinEvidence::NoProof { instance: third() }),
        (&boot, "end\n", RejoinEvidence::NoProof { instance: third() }),
        ("another", "end", RejoinEvidence::Unusable),
        ("another", "", RejoinEvidence::Unusable),
        ("another", "e\nend\n", RejoinEvidence::Unusable),
    ] {
        let old = format!(
            "sanlock rejoin record 3\nboot {boot}\ndaemon d\nlockspace 4c532f31\nhost_id {HOST}\ngeneration 3\nio_timeout 20\n\
             outlived 0\npid 1 1\n{end}"
        );
        fs::write(records.path(&name("LS/1"), HOST), old).unwrap();
        assert_eq!(evidence_in(&records, &spec()), found, "{boot} {end:?}");
    }
}

#[test]
fn a_reused_pid_is_another_process_and_an_unknown_start_proves_only_absence() {
    let start = process::start_time(own_pid()).unwrap();
    assert!(may_live(own_pid(), start) && !may_live(own_pid(), start + 1));
    assert!(may_live(own_pid(), 0));
    assert!(!may_live(i32::MAX, 0));
}

#[test]
fn a_record_that_cannot_be_written_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::new(dir.path(), None);
    save(&records, &record(vec![])).unwrap();
    // A directory in the way of the new file.
    let path = records.path(&name("LS/1"), HOST);
    fs::create_dir(path.with_extension("new")).unwrap();
    carry_out(&records, &Order::Save { record: record(vec![own_pid()]) }, &Log::in_memory());
    assert_eq!(evidence_in(&records, &spec()), RejoinEvidence::None);
}

/// Whoever may write a record may vouch for a host that is not gone.
#[test]
fn a_record_is_nobody_elses_to_write_whatever_the_mask() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("record");
    let _mask = sanlock_sys::credentials::UmaskGuard::set(0);
    replace(dir.path(), &path, "text").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
}

#[test]
fn a_run_directory_that_was_removed_is_made_anew_or_done_without() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("parent").join("run");
    fs::create_dir_all(&run_dir).unwrap();
    let records = Records::new(&run_dir, None);
    let evidence = || evidence_in(&records, &spec());
    let order = |order| carry_out(&records, &order, &Log::in_memory());
    let write = |pids| order(Order::Save { record: record(pids) });
    let this_boot = |alive| this_boot(true, alive);
    write(vec![]);
    assert_eq!(evidence(), this_boot(false));
    fs::remove_dir_all(&run_dir).unwrap();
    write(vec![own_pid()]);
    assert_eq!(evidence(), this_boot(true));
    assert_eq!(fs::metadata(&run_dir).unwrap().permissions().mode() & 0o7777, RUN_DIR_MODE);
    let stale = fs::read(records.path(&name("LS/1"), HOST)).unwrap();
    // Not even its parent is there.
    fs::remove_dir_all(run_dir.parent().unwrap()).unwrap();
    write(vec![]);
    assert_eq!(evidence(), RejoinEvidence::None);
    order(Order::Drop { lockspace: name("LS/1"), host_id: HOST });
    assert_eq!(evidence(), RejoinEvidence::None);
    // What was away may come back.
    fs::create_dir_all(&run_dir).unwrap();
    fs::write(records.path(&name("LS/1"), HOST), stale).unwrap();
    assert_eq!(evidence(), RejoinEvidence::Unusable);
}

#[test]
fn a_record_that_can_be_neither_replaced_nor_removed_delays_nothing_and_counts_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::new(dir.path(), None);
    save(&records, &record(vec![])).unwrap();
    // Nothing of a directory in use can be replaced or removed, be it by root.
    let path = records.path(&name("LS/1"), HOST);
    let old = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::create_dir_all(path.join("in use")).unwrap();
    carry_out(&records, &Order::Save { record: record(vec![own_pid()]) }, &Log::in_memory());
    assert_eq!(evidence_in(&records, &spec()), RejoinEvidence::Unusable);
    fs::remove_dir_all(&path).unwrap();
    fs::write(&path, old).unwrap();
    assert_eq!(evidence_in(&records, &spec()), RejoinEvidence::Unusable);
    let other = evidence_in(&Records::new(dir.path(), None), &spec());
    assert_eq!(sanlock_manager::rejoin::fast_rejoin(other), None, "nor to another daemon of this boot");
    save(&records, &record(vec![])).unwrap();
    assert_eq!(evidence_in(&records, &spec()), this_boot(true, false));
}

/// A daemon's settings and marks, with records in this run directory.
fn global_with(records: Records) -> Arc<Global> {
    let (config, log) = (Config::default(), Log::in_memory());
    let hirer = start_hirer(&config, &log).unwrap();
    Global::new(config, name("host"), EngineKind::Threads, records, log, None, hirer)
}

/// Opening it does not end before somebody opens it for writing.
fn hang(path: &Path) {
    mkfifo(path, Mode::S_IRWXU).unwrap();
}

/// Whoever hangs there goes on, and finds nothing.
fn unhang(path: &Path) {
    // As a writer and a reader, which waits for nobody; who comes before it is closed goes on too.
    let writer = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    fs::remove_file(path).unwrap();
    drop(writer);
}

const OVERDUE: Unread = Unread::Failed(IoFailure::TimedOut);
const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(30);

#[test]
fn a_run_directory_that_hangs_is_waited_for_no_longer_than_asked_and_proves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let global = global_with(Records::new(dir.path(), None));
    let path = global.records.path(&name("LS/1"), HOST);
    hang(&path);
    let ask = |limit| asking::evidence(&global, &spec(), limit, &|| true);
    for _ in 0..3 {
        assert_eq!(ask(SHORT), Err(OVERDUE));
    }
    let found = asking::evidence(&global, &other_host(), LONG, &|| true);
    assert_eq!(found, Ok(RejoinEvidence::None), "others are answered");
    unhang(&path);
    assert_eq!(ask(LONG), Ok(RejoinEvidence::None), "what nobody waits for any more is no answer to this");
    save(&global.records, &record(vec![])).unwrap();
    assert_eq!(ask(LONG), Ok(this_boot(true, false)));
}

#[test]
fn a_place_for_the_time_after_a_reboot_that_hangs_says_nothing_and_keeps_nobody_from_the_other() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let reboots = |boot: &str| Reboots::new(state.path(), "machine".to_owned(), boot.to_owned());
    reboots("earlier").note(&record(vec![])).unwrap();
    let noted = fs::read_dir(state.path()).unwrap().next().unwrap().unwrap().path();
    let global = global_with(Records::new(dir.path(), Some(reboots("this"))));
    let ask = |limit| asking::evidence(&global, &spec(), limit, &|| true);
    assert_eq!(ask(LONG), Ok(RejoinEvidence::OtherBoot { instance: third() }));
    let kept = noted.with_extension("kept");
    fs::rename(&noted, &kept).unwrap();
    hang(&noted);
    assert_eq!(ask(SHORT), Ok(RejoinEvidence::None));
    let log = String::from_utf8(global.log.dump()).unwrap();
    assert!(log.contains(AFTER_REBOOT), "{log}");
    save(&global.records, &record(vec![])).unwrap();
    assert_eq!(ask(LONG), Ok(this_boot(true, false)), "the run directory answers");
    carry_out(&global.records, &Order::Drop { lockspace: name("LS/1"), host_id: HOST }, &global.log);
    unhang(&noted);
    fs::rename(&kept, &noted).unwrap();
    assert_eq!(ask(LONG), Ok(RejoinEvidence::OtherBoot { instance: third() }));
}

#[test]
fn as_many_as_hang_there_are_no_more_and_who_is_not_wanted_any_more_does_not_wait() {
    let dir = tempfile::tempdir().unwrap();
    let global = global_with(Records::new(dir.path(), None));
    let path = global.records.path(&name("LS/1"), HOST);
    hang(&path);
    let ask = |host, limit, wanted: &dyn Fn() -> bool| {
        asking::evidence(&global, &LockspaceSpec { host_id: host, ..spec() }, limit, wanted)
    };
    let other = || ask(8, SHORT, &|| true);
    for _ in 1..READERS_MAX {
        assert_eq!(ask(HOST, Duration::from_millis(1), &|| true), Err(OVERDUE));
        assert_eq!(other(), Ok(RejoinEvidence::None));
    }
    assert_eq!(ask(HOST, LONG, &|| false), Err(Unread::Unwanted), "which has a thread for it");
    assert_eq!(other(), Err(OVERDUE), "there is no thread left");
    assert_eq!(ask(8, LONG, &|| false), Err(Unread::Unwanted));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| ask(8, LONG, &|| true));
        unhang(&path);
        assert_eq!(waiting.join().unwrap(), Ok(RejoinEvidence::None), "they have ended");
    });
}
