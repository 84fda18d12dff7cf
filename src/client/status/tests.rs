//! Listings as 3.8.5 printed them, made from the records it sent.

use super::*;
use sanlock_client::wire::{Disk, Lockspace, Name, Resource, ResourceSpec, StateText};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn words(text: &str) -> StateText {
    text.split(' ')
        .filter_map(|item| item.split_once('='))
        .fold(StateText::default(), |t, (k, v)| t.item(k, v))
}

fn lockspace(text: &str) -> StateRecord {
    let disk = Disk::new("/srv/lease/ls", 0).unwrap();
    StateRecord::lockspace(Lockspace::new(name("LS"), 1, disk), words(text))
}

fn resource(resource: &str, offset: u64, lver: u64, shared: bool, pid: i32, text: &str) -> StateRecord {
    let mut fixed = Resource::new(name("LS"), name(resource));
    fixed.flags = if shared { ResourceFlags::SHARED.bits().into() } else { 0.into() };
    let disks = vec![Disk::new("/srv/lease/res", offset).unwrap()];
    StateRecord::resource(ResourceSpec::new(fixed, disks).unwrap(), pid, lver, words(text))
}

/// What hostA sent in the recorded scene.
fn scene() -> Vec<StateRecord> {
    vec![
        StateRecord::daemon(name("hostA"), words("our_host_name=hostA use_watchdog=0")),
        StateRecord::client(name("helper"), -1, words("ci=0")),
        StateRecord::client(name("listener"), -1, words("ci=1")),
        StateRecord::client(Name::EMPTY, 8076, words("ci=2")),
        StateRecord::client(name("status"), -1, words("ci=3")),
        lockspace("list=spaces space_id=4"),
        resource("R1", 1_048_576, 1, true, 8076, "list=held flags=1"),
        resource("R0", 0, 1, false, 8076, "list=held flags=0"),
    ]
}

fn recorded(file: &str) -> &str {
    file.split_once("--- stdout\n").unwrap().1.split_once("--- stderr").unwrap().0
}

fn text(records: &[StateRecord], order: StatusOrder, debug: bool) -> String {
    String::from_utf8(listing(records, order, debug)).unwrap()
}

#[test]
fn listings_as_recorded() {
    for (order, file) in [
        (StatusOrder::Unsorted, include_str!("../../../tests/golden/cli/092-status-locks.txt")),
        (StatusOrder::ByProcess, include_str!("../../../tests/golden/cli/093-status-locks-p.txt")),
        (StatusOrder::ByLockspace, include_str!("../../../tests/golden/cli/094-status-locks-s.txt")),
    ] {
        assert_eq!(text(&scene(), order, false), recorded(file), "{order:?}");
    }
}

#[test]
fn what_is_left_over_follows_a_rule() {
    let mut records = scene();
    records.retain(|record| record.name.is_empty() || !matches!(record.attachment, Attachment::Resource(_)));
    records.retain(|record| record.data32 != 8076);
    records.push(resource("R2", 2_097_152, 9, false, 11020, "list=orphan"));
    let file = include_str!("../../../tests/golden/cli/150-status-orphan-p.txt");
    assert_eq!(text(&records, StatusOrder::ByProcess, false), recorded(file));
    let file = include_str!("../../../tests/golden/cli/149-status-orphan.txt");
    assert_eq!(text(&records, StatusOrder::Unsorted, false), recorded(file));
    // Under its lockspace nothing is left over.
    assert!(!text(&records, StatusOrder::ByLockspace, false).contains("-\nr "));
}

#[test]
fn list_words() {
    for (word, shown) in [("spaces", ""), ("add", " ADD"), ("rem", " REM")] {
        let line = text(&[lockspace(&format!("list={word}"))], StatusOrder::Unsorted, false);
        assert_eq!(line, format!("s LS:1:/srv/lease/ls:0{shown}\n"));
    }
}

#[test]
fn debug_adds_the_words() {
    let records = [lockspace("list=spaces space_id=4")];
    assert_eq!(
        text(&records, StatusOrder::Unsorted, true),
        "s LS:1:/srv/lease/ls:0\n    list=spaces\n    space_id=4\n"
    );
}

#[test]
fn records_of_later_versions_are_skipped_with_their_words_and_are_not_left_over() {
    let later = |kind| StateRecord { kind, ..StateRecord::client(name("worker0"), -1, words("busy=0")) };
    for order in [StatusOrder::Unsorted, StatusOrder::ByProcess, StatusOrder::ByLockspace] {
        for debug in [false, true] {
            let mut records = scene();
            let expected = text(&records, order, debug);
            // Where 5.1.1 has its workers, and elsewhere.
            records.splice(1..1, [later(7), later(7), later(8)]);
            records.push(later(99));
            assert_eq!(text(&records, order, debug), expected, "{order:?}, debug {debug}");
        }
    }
}

#[test]
fn host_lines() {
    let host = StateRecord::host(2, 5883, words("last_check=5884 owner_name=hostB"));
    assert_eq!(hosts(std::slice::from_ref(&host), false), b"2 timestamp 5883\n");
    assert_eq!(hosts(&[host], true), b"2 timestamp 5883\n    last_check=5884\n    owner_name=hostB\n");
}

#[test]
fn more_records_than_can_be_sorted_are_refused() {
    for order in [StatusOrder::ByProcess, StatusOrder::ByLockspace] {
        assert!(can_be_listed(1024, order) && !can_be_listed(1025, order), "{order:?}");
    }
    assert!(can_be_listed(100_000, StatusOrder::Unsorted));
}
