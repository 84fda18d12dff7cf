//! Value blocks and renaming (lease-algorithms.md 7.4, 6.2 step 5; socket-protocol.md 7.8, 7.24, 7.25).

use super::lab::*;
use crate::value::WRITES_MAX;
use crate::*;
use sanlock_lease::code::ReturnCode;
use sanlock_lease::machine::IoFailure;
use sanlock_lease::name::Name;
use sanlock_lease::paxos::acquire::AcquireOutcome;
use sanlock_lease::paxos::convert::ConvertOutcome;
use sanlock_lease::paxos::release::{ReleaseOutcome, Released};
use sanlock_lease::paxos::take::ValueRead;
use sanlock_lease::paxos::{AcquireError, ReleaseError};
use sanlock_lease::record::ModeBlock;
use sanlock_lease::text::DiskSpec;
use std::sync::Arc;

const SECTOR: usize = 512;

fn hold(lab: &mut Lab, value: Option<ValueRead>) {
    let flags = AcquireFlags { lvb: true, ..AcquireFlags::default() };
    let resources = vec![request("r")];
    let command = Command::Acquire { target: Target::Own, owner_name: name("o"), resources, flags };
    let actions = lab.command(0, command);
    assert!(matches!(&actions[..], [Action::StartAcquire { value: true, .. }]), "{actions:?}");
    let outcome = AcquireOutcome::Acquired(held(GENERATION, 7));
    let done = lab.quiet(Event::AcquireDone { task: task(&actions), outcome, value, outstanding: 0 });
    assert_eq!(done, [replied(0, 0)]);
}

fn sector(fill: u8) -> Arc<[u8]> {
    vec![fill; SECTOR].into()
}

fn set(lab: &mut Lab, bytes: &[u8]) -> i32 {
    lab.result(9, Command::SetLvb { lockspace: name("ls"), name: name("r"), bytes: bytes.to_vec() })
}

fn get(lab: &mut Lab, length: u32) -> Result<Vec<u8>, i32> {
    match &lab.command(9, Command::GetLvb { lockspace: name("ls"), name: name("r"), length })[..] {
        [Action::Reply { reply: Reply::Value(bytes), .. }] => Ok(bytes.to_vec()),
        [Action::Reply { reply: Reply::Result(code), .. }] => Err(*code),
        other => panic!("{other:?}"),
    }
}

/// The task, and the value it writes first.
fn release(actions: &[Action]) -> (TaskId, Option<Arc<[u8]>>) {
    match actions {
        [Action::StartRelease { task, value, .. } | Action::StartRetract { task, value, .. }, ..] => {
            (*task, value.clone())
        }
        other => panic!("{other:?}"),
    }
}

fn ended(
    lab: &mut Lab,
    task: TaskId,
    result: Result<Released, ReleaseError>,
    value_written: bool,
    outstanding: u32,
) -> Vec<Action> {
    let outcome = ReleaseOutcome { result, block_failure: None, value_written };
    lab.quiet(Event::ReleaseDone { task, outcome, outstanding })
}

#[test]
fn a_value_is_read_with_the_lease_set_in_memory_and_written_first_at_the_release() {
    let (mut lab, _) = Lab::ready();
    hold(&mut lab, Some(Ok(sector(7))));
    assert_eq!(get(&mut lab, 0), Ok(vec![7; SECTOR]));
    assert_eq!(get(&mut lab, 3), Ok(vec![7; 3]));
    assert_eq!(get(&mut lab, 9999), Ok(vec![7; SECTOR]), "no more than there is");
    assert_eq!(set(&mut lab, b"hello"), 0);
    let mut wanted = vec![7; SECTOR];
    wanted[..5].copy_from_slice(b"hello");
    assert_eq!(get(&mut lab, 0), Ok(wanted.clone()));
    let (task, value) = release(&lab.release(0, &["r"]));
    assert_eq!(value.as_deref(), Some(&wanted[..]));
    assert_eq!(get(&mut lab, 0), Err(-2), "it is not held any more");
    assert_eq!(ended(&mut lab, task, Ok(Released::LeaderFreed), true, 0), [replied(0, 0)]);
}

#[test]
fn what_was_not_set_is_not_written() {
    let (mut lab, _) = Lab::ready();
    hold(&mut lab, Some(Ok(sector(7))));
    assert_eq!(release(&lab.release(0, &["r"])).1, None);
}

#[test]
fn without_the_flag_or_the_room_there_is_no_value() {
    let (mut lab, _) = Lab::ready();
    assert_eq!((set(&mut lab, b"x"), get(&mut lab, 0)), (-2, Err(-2)));
    hold(&mut lab, None);
    assert_eq!((set(&mut lab, b"x"), get(&mut lab, 0)), (-22, Err(-22)));
}

#[test]
fn sizes_are_checked() {
    let (mut lab, _) = Lab::ready();
    hold(&mut lab, Some(Ok(sector(7))));
    assert_eq!(set(&mut lab, &[1; SECTOR + 1]), -7);
    assert_eq!(set(&mut lab, &[]), -22);
    assert_eq!(set(&mut lab, &[1; SECTOR]), 0);
}

#[test]
fn a_value_that_could_not_be_read_is_not_taken_for_zeros() {
    let (mut lab, _) = Lab::ready();
    hold(&mut lab, Some(Err(IoFailure::Os(5))));
    assert_eq!(get(&mut lab, 0), Err(-5));
    assert_eq!(set(&mut lab, b"x"), -5, "the rest is not known");
    assert_eq!(set(&mut lab, &[3; SECTOR]), 0);
    assert_eq!(get(&mut lab, 0), Ok(vec![3; SECTOR]));
}

#[test]
fn nothing_is_given_up_before_the_value_is_known_to_be_on_disk() {
    let (mut lab, _) = Lab::ready();
    hold(&mut lab, Some(Ok(sector(0))));
    set(&mut lab, b"new");
    let (task, first) = release(&lab.release(0, &["r"]));
    let hung = Err(ReleaseError::Value(IoFailure::TimedOut));
    assert_eq!(ended(&mut lab, task, hung, false, 1), [replied(0, -202)]);
    assert_eq!((lab.list("r"), lab.tick()), (Some(ResourceList::Rem), vec![]), "it may still land");
    let (again, value) = release(&lab.settled(task));
    assert_eq!(value, first, "whatever landed, it is written again");
    // Once it is written it is not written again: the lease may be another host's.
    assert_eq!(ended(&mut lab, again, timed_out(), true, 0), []);
    assert_eq!(release(&lab.tick()).1, None);
}

/// Whether a release still writes the value after this many attempts that all fail so.
fn still_writes_after(attempts: u32, failure: IoFailure) -> bool {
    let (mut lab, _) = Lab::ready();
    hold(&mut lab, Some(Ok(sector(0))));
    set(&mut lab, b"new");
    let mut actions = lab.release(0, &["r"]);
    for attempt in 0..attempts {
        let (task, value) = release(&actions);
        assert!(value.is_some(), "{attempt}");
        let outstanding = u32::from(failure.leaves_doubt());
        let answered = ended(&mut lab, task, Err(ReleaseError::Value(failure)), false, outstanding);
        let code = ReturnCode::from(&failure).0;
        assert_eq!(answered, if attempt == 0 { vec![replied(0, code)] } else { vec![] });
        actions = if outstanding > 0 {
            assert_eq!(lab.tick(), [], "it may still land");
            lab.settled(task)
        } else {
            vec![]
        };
        actions.extend((0..5).flat_map(|_| lab.tick()));
    }
    release(&actions).1.is_some()
}

#[test]
fn a_sector_that_is_not_taken_keeps_nobody_out_for_ever() {
    // EROFS, and a disk that is not there or whose open hangs.
    for failure in [IoFailure::Os(30), IoFailure::Short, IoFailure::NotOpen(2), IoFailure::NotOpen(110)] {
        assert!(still_writes_after(WRITES_MAX - 1, failure), "{failure:?}");
        assert!(!still_writes_after(WRITES_MAX, failure), "{failure:?}");
    }
}

#[test]
fn a_value_is_not_given_up_for_writes_that_were_never_begun_or_a_disk_that_may_come_back() {
    // No room, no thread, no memory, no descriptor; EIO and others of a path that was lost.
    let of_this_host = [11, 12, 23, 24].into_iter().flat_map(|e| [IoFailure::Os(e), IoFailure::NotOpen(e)]);
    let of_paths = [5, 19, 61, 67, 110, 121].map(IoFailure::Os);
    for failure in [IoFailure::TimedOut].into_iter().chain(of_this_host).chain(of_paths) {
        assert!(still_writes_after(3 * WRITES_MAX, failure), "{failure:?}");
    }
}

#[test]
fn the_value_of_a_process_that_ended_is_written() {
    let (mut lab, _) = Lab::ready();
    hold(&mut lab, Some(Ok(sector(0))));
    set(&mut lab, b"new");
    assert!(release(&lab.close(0)).1.is_some());
}

fn convert(lab: &mut Lab, shared: bool) -> (TaskId, Option<Arc<[u8]>>) {
    let (lockspace, resource) = (name("ls"), name("r"));
    let command =
        Command::Convert { target: Target::Own, lockspace, name: resource, shared, owner_nowait: false };
    match &lab.command(0, command)[..] {
        [Action::StartConvert { task, value, .. }] => (*task, value.clone()),
        other => panic!("{other:?}"),
    }
}

fn converted(lab: &mut Lab, task: TaskId, result: Result<(), AcquireError>, shared: bool) -> Vec<Action> {
    let mut held = held(GENERATION, 7);
    if shared {
        held.block.mode = ModeBlock::shared(GENERATION);
    }
    let value_written = result.is_ok() && shared;
    let outcome = Box::new(ConvertOutcome { result, held, erase: false, value_written });
    lab.quiet(Event::ConvertDone { task, outcome, outstanding: 0 })
}

#[test]
fn a_conversion_to_shared_writes_the_value_and_a_shared_holder_sets_none() {
    let (mut lab, _) = Lab::ready();
    hold(&mut lab, Some(Ok(sector(0))));
    set(&mut lab, b"new");
    let (task, value) = convert(&mut lab, true);
    assert!(value.is_some());
    assert_eq!(set(&mut lab, b"late"), -11, "it would reach nobody");
    let failed = Err(AcquireError::Share(ReleaseError::Value(IoFailure::Os(5))));
    assert_eq!(converted(&mut lab, task, failed, false), [replied(0, -5)]);
    let (task, value) = convert(&mut lab, true);
    assert!(value.is_some(), "still to be written");
    assert_eq!(converted(&mut lab, task, Ok(()), true), [replied(0, 0)]);
    assert_eq!(set(&mut lab, b"shared"), -22);
    assert_eq!(get(&mut lab, 3), Ok(b"new".to_vec()));
    let (task, value) = convert(&mut lab, false);
    assert_eq!(value, None);
    assert_eq!(converted(&mut lab, task, Ok(()), false), [replied(0, 0)]);
    assert_eq!(set(&mut lab, b"again"), 0);
    assert!(release(&lab.release(0, &["r"])).1.is_some());
}

fn rename(lab: &mut Lab, from: &str, to: &str) -> Vec<Action> {
    let to = Name::new(to.as_bytes()).unwrap();
    let what = ReleaseWhat::Renamed { from: (name("ls"), name(from)), to };
    lab.command(0, Command::Release { target: Target::Own, what })
}

#[test]
fn a_lease_is_renamed_by_its_release() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "r");
    assert_eq!(rename(&mut lab, "other", "new"), [replied(0, -1)]);
    assert_eq!(rename(&mut lab, "r", ""), [replied(0, -22)], "a lease needs a name");
    let actions = rename(&mut lab, "r", "new");
    assert!(
        matches!(&actions[..], [Action::StartRelease { rename: Some(to), .. }] if *to == name("new")),
        "{actions:?}"
    );
    assert_eq!(lab.tokens(0), Vec::<String>::new());
}

/// A write of its acquire may still land. What frees the lease after that leaves it its name (a retract gives none), of which the client has been told
/// that it is not known (-202); it has to know the new one, too, and nobody here takes the lease under that before it is over.
#[test]
fn a_lease_whose_release_has_to_wait_is_not_taken_under_its_new_name_before() {
    let (mut lab, _) = Lab::ready();
    let acquire = task(&lab.acquire(0, Target::Own, &["r"]));
    assert_eq!(lab.acquired(acquire, 1), [replied(0, 0)]);
    assert_eq!(rename(&mut lab, "r", "new"), [replied(0, -202)]);
    assert_eq!(acquire_as(&mut lab, "r", "new"), [replied(0, -11)]);
    let actions = lab.settled(acquire);
    assert!(
        matches!(&actions[..], [Action::StartRetract { rename: Some(to), .. }] if *to == name("new")),
        "{actions:?}"
    );
}

#[test]
fn a_shared_lease_keeps_its_name_and_its_holder() {
    let (mut lab, _) = Lab::ready();
    hold(&mut lab, None);
    let (task, _) = convert(&mut lab, true);
    converted(&mut lab, task, Ok(()), true);
    assert_eq!(rename(&mut lab, "r", "new"), [replied(0, -22)]);
    assert_eq!(lab.tokens(0), ["r"]);
}

/// The client was answered 0 and the lease is free under its new name; our block is still to be marked. Until that is done nothing
/// new may be started on the same sectors under the new name either (rule R3).
#[test]
fn a_renamed_lease_is_not_taken_under_its_new_name_before_the_rest_of_its_release_is_done() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "r");
    let (first, _) = release(&rename(&mut lab, "r", "new"));
    assert_eq!(lab.released_without_mark(first), [replied(0, 0)]);
    assert_eq!(lab.list("r"), Some(ResourceList::Rem));
    assert_eq!(acquire_as(&mut lab, "r", "new"), [replied(0, -11)]);
}

/// The same without any error: of several disks one is slow, and its write may land on what is taken under the new name.
#[test]
fn a_renamed_lease_is_not_taken_under_its_new_name_while_a_write_of_its_release_may_land() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "r");
    let (first, _) = release(&rename(&mut lab, "r", "new"));
    assert_eq!(lab.released(first, Ok(Released::LeaderFreed), 1), [replied(0, 0)]);
    assert_eq!(lab.list("r"), Some(ResourceList::Rem));
    assert_eq!(acquire_as(&mut lab, "r", "new"), [replied(0, -11)]);
}

/// Another host has renamed the lease meanwhile: what is left of ours under its old name would land on the new hold (rule R3).
#[test]
fn a_lease_renamed_by_others_is_not_taken_while_a_write_for_its_old_name_may_land() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "r");
    let (first, _) = release(&lab.release(0, &["r"]));
    assert_eq!(lab.released(first, Ok(Released::ByFlag), 1), [replied(0, 0)]);
    assert_eq!(acquire_as(&mut lab, "r", "new"), [replied(0, -11)]);
    // Also of an acquire that has failed, and while one runs.
    let failing = task(&lab.acquire(1, Target::Own, &["s"]));
    assert_eq!(acquire_as(&mut lab, "s", "new"), [replied(0, -11)]);
    lab.failed(failing, live_owner(), false, 1);
    assert_eq!(acquire_as(&mut lab, "s", "new"), [replied(0, -11)]);
}

/// A leader that lands late can bring another name of a held lease back. On disk this host owns it, so that a second process would
/// get it beside the first.
#[test]
fn a_lease_that_is_held_is_not_taken_under_another_name() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "r");
    assert_eq!(acquire_as(&mut lab, "r", "old"), [replied(0, -227)]);
    let second = DiskSpec { path: b"/second".to_vec(), offset: 7 };
    let mut both = request("old");
    both.spec.disks = vec![second.clone(), request("r").spec.disks.remove(0)];
    assert_eq!(acquire_with(&mut lab, both), [replied(0, -227)], "one common disk is enough");
    let mut elsewhere = request("old");
    elsewhere.spec.disks = vec![second];
    task(&acquire_with(&mut lab, elsewhere));
}

fn acquire_with(lab: &mut Lab, request: ResourceRequest) -> Vec<Action> {
    let (resources, flags) = (vec![request], AcquireFlags::default());
    lab.command(0, Command::Acquire { target: Target::Own, owner_name: name("vm"), resources, flags })
}

/// Takes what lies at the place of `there` under another name.
fn acquire_as(lab: &mut Lab, there: &str, text: &str) -> Vec<Action> {
    let mut other = request(text);
    other.spec.disks = request(there).spec.disks;
    acquire_with(lab, other)
}

/// A conversion that fails gives nothing up, so there is no reason to give the value up either.
#[test]
fn conversions_that_fail_do_not_lose_the_value_of_a_lease_that_stays_exclusive() {
    let (mut lab, _) = Lab::ready();
    hold(&mut lab, Some(Ok(sector(0))));
    set(&mut lab, b"new");
    for _ in 0..WRITES_MAX {
        let (task, value) = convert(&mut lab, true);
        assert!(value.is_some());
        let failed = Err(AcquireError::Share(ReleaseError::Value(IoFailure::Os(5))));
        assert_eq!(converted(&mut lab, task, failed, false), [replied(0, -5)]);
    }
    assert_eq!(get(&mut lab, 3), Ok(b"new".to_vec()));
    assert!(release(&lab.release(0, &["r"])).1.is_some(), "what can be read is written");
}

/// What was counted against an older value says nothing of one that is set later.
#[test]
fn a_value_set_anew_has_all_its_attempts() {
    let (mut lab, _) = Lab::ready();
    hold(&mut lab, Some(Ok(sector(0))));
    set(&mut lab, b"old");
    for _ in 0..WRITES_MAX - 1 {
        let (task, _) = convert(&mut lab, true);
        let failed = Err(AcquireError::Share(ReleaseError::Value(IoFailure::Os(5))));
        converted(&mut lab, task, failed, false);
    }
    let (task, _) = convert(&mut lab, true);
    assert_eq!(converted(&mut lab, task, Ok(()), true), [replied(0, 0)]);
    let (task, _) = convert(&mut lab, false);
    assert_eq!(converted(&mut lab, task, Ok(()), false), [replied(0, 0)]);
    set(&mut lab, b"anew");
    let (task, value) = release(&lab.release(0, &["r"]));
    assert!(value.is_some());
    ended(&mut lab, task, Err(ReleaseError::Value(IoFailure::Os(5))), false, 0);
    assert!(release(&lab.tick()).1.is_some(), "its first failure is not its last");
}
