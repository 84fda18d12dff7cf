use super::lab::*;
use crate::*;
use sanlock_lease::paxos::release::Released;

fn index(lab: &mut Lab, conn: u64, lockspace: &str, lease: bool) -> Vec<Action> {
    lab.command(conn, Command::Index { lockspace: name(lockspace), lease })
}

#[track_caller]
fn started(actions: &[Action]) -> TaskId {
    match actions {
        [Action::StartIndex { task, member, .. }] => {
            assert_eq!((member.host.get(), member.generation), (HOST, GENERATION));
            *task
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_operation_for_each_lockspace_at_a_time() {
    let (mut lab, _) = Lab::ready();
    lab.join("two");
    let first = started(&index(&mut lab, 0, "ls", true));
    assert_eq!(index(&mut lab, 1, "ls", false), [replied(1, -16)]);
    let other = started(&index(&mut lab, 1, "two", true));
    // Also while what it wrote may still land.
    assert_eq!(lab.quiet(Event::IndexSettling { task: first }), []);
    assert_eq!(index(&mut lab, 0, "ls", true), [replied(0, -16)]);
    assert_eq!(lab.quiet(Event::IndexDone { task: first }), []);
    assert_eq!(lab.quiet(Event::IndexDone { task: other }), []);
    started(&index(&mut lab, 0, "ls", false));
}

#[test]
fn only_in_a_lockspace_that_is_joined_and_alive() {
    let (mut lab, ls) = Lab::ready();
    assert_eq!(index(&mut lab, 0, "none", true), [replied(0, -2)]);
    lab.add("two");
    assert_eq!(index(&mut lab, 0, "two", true), [replied(0, -2)]);
    lab.quiet(Event::Corrupt { ls, code: -260, text: String::new() });
    let code = index(&mut lab, 0, "ls", true);
    assert!(code == [replied(0, -28)] || code == [replied(0, -2)], "{code:?}");
}

#[test]
fn a_removal_is_refused_until_the_client_has_its_result() {
    let (mut lab, ls) = Lab::ready();
    lab.open(9);
    let task = started(&index(&mut lab, 0, "ls", true));
    assert_eq!(lab.remove(9, "ls"), [replied(9, -16)]);
    lab.quiet(Event::IndexSettling { task });
    let removing = lab.remove(9, "ls");
    assert!(removing.contains(&Action::Gone { ls }), "{removing:?}");
    // The host id is not given up while something may land.
    assert!(!removing.iter().any(|a| matches!(a, Action::Leave { .. })), "{removing:?}");
    assert!(!lab.tick().iter().any(|a| matches!(a, Action::Leave { .. })));
    let left = lab.quiet(Event::IndexDone { task });
    assert_eq!(left, [Action::Leave { ls, release: true }]);
}

#[test]
fn a_write_that_never_ends_leaves_the_host_id_unreleased() {
    let (mut lab, ls) = Lab::ready();
    lab.open(9);
    let task = started(&index(&mut lab, 0, "ls", true));
    lab.quiet(Event::IndexSettling { task });
    lab.remove(9, "ls");
    let left = (0..DRAIN_SECS + 2).flat_map(|_| lab.tick()).find(|a| matches!(a, Action::Leave { .. }));
    assert_eq!(left, Some(Action::Leave { ls, release: false }));
    lab.quiet(Event::Left { ls, writes: LeaseWrites::Ended });
    // In the next life of the lockspace it is in the way as well.
    lab.join("ls");
    assert_eq!(index(&mut lab, 0, "ls", true), [replied(0, -16)]);
    lab.quiet(Event::IndexDone { task });
    started(&index(&mut lab, 0, "ls", true));
}

#[test]
fn a_lookup_keeps_nothing_from_ending() {
    let (mut lab, ls) = Lab::ready();
    lab.open(9);
    let task = started(&index(&mut lab, 0, "ls", false));
    lab.quiet(Event::IndexSettling { task });
    let removing = lab.remove(9, "ls");
    assert!(removing.contains(&Action::Leave { ls, release: true }), "{removing:?}");
}

/// With lockspace "ls" joined behind a watchdog, and connection 0.
fn watched() -> (Lab, LockspaceId) {
    let mut lab = Lab::with_watchdog(true);
    lab.open(0);
    let spec = ls_spec("ls");
    let asked = lab.command(0, Command::AddLockspace { spec, io_timeout: 0, asynchronous: false });
    let [Action::WatchdogCheck { ls, .. }] = asked[..] else { panic!("{asked:?}") };
    lab.quiet(Event::WatchdogChecked { ls, result: Ok(2) });
    lab.quiet(Event::JoinDone { ls, result: Ok(joined(GENERATION, lab.now)) });
    (lab, ls)
}

#[test]
fn the_watchdog_stands_behind_an_operation_with_the_lease_of_the_index() {
    let (mut lab, ls) = watched();
    let arming = index(&mut lab, 0, "ls", true);
    assert!(matches!(arming[..], [Action::WatchdogArm { .. }]), "{arming:?}");
    let task = started(&lab.quiet(Event::WatchdogArmed { ls, result: Ok(()) }));
    lab.quiet(Event::IndexSettling { task });
    assert!(!lab.tick().contains(&Action::WatchdogDisarm { ls }));
    assert_eq!(lab.quiet(Event::IndexDone { task }), [Action::WatchdogDisarm { ls }]);
    // One that only looks needs none.
    started(&index(&mut lab, 0, "ls", false));
}

#[test]
fn without_its_watchdog_it_does_not_begin() {
    let (mut lab, ls) = watched();
    index(&mut lab, 0, "ls", true);
    let refused = lab.quiet(Event::WatchdogArmed { ls, result: Err("busy".to_owned()) });
    assert_eq!(refused, [replied(0, -203)]);
    // Its client has gone meanwhile: nobody is answered.
    index(&mut lab, 0, "ls", true);
    lab.close(0);
    let refused = lab.quiet(Event::WatchdogArmed { ls, result: Err("busy".to_owned()) });
    assert_eq!(refused, []);
}

const LEASE: &str = "rindex_lease";

fn release_orphans(lab: &mut Lab, conn: u64) -> Vec<Action> {
    let what = ReleaseWhat::Orphans { lockspace: name("ls"), name: None };
    lab.command(conn, Command::Release { target: Target::Own, what })
}

fn rename(lab: &mut Lab, from: &str, to: &str) -> Vec<Action> {
    let what = ReleaseWhat::Renamed { from: (name("ls"), name(from)), to: name(to) };
    lab.command(0, Command::Release { target: Target::Own, what })
}

/// What both say who are refused, and nothing else happens.
#[track_caller]
fn refused_with_a_reason(lab: &mut Lab, command: Command, part: &str) {
    let mut out = Vec::new();
    lab.m.handle(lab.now, Event::Command { conn: ConnId(1), command }, &mut out);
    match &out[..] {
        [Action::Log { level: Level::Warning, ls: Some(_), text }, answer] => {
            assert_eq!(*answer, replied(1, -16));
            assert!(text.contains("(-16)") && text.contains(part), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

fn acquire_command(wanted: ResourceRequest) -> Command {
    let (resources, flags) = (vec![wanted], AcquireFlags::default());
    Command::Acquire { target: Target::Own, owner_name: name("owner"), resources, flags }
}

/// The lease of the index is being acquired, to be kept beyond its process.
fn wants_for_good(lab: &mut Lab) -> TaskId {
    let asked = acquire_command(ResourceRequest { persistent: true, ..request(LEASE) });
    task(&lab.command(0, asked))
}

#[test]
fn an_operation_is_refused_while_this_host_has_the_lease_of_the_index_in_any_state() {
    let (mut lab, _) = Lab::ready();
    lab.join("two");
    let with_lease = || Command::Index { lockspace: name("ls"), lease: true };
    let refused = |lab: &mut Lab| assert_eq!(index(lab, 1, "ls", true), [replied(1, -16)]);
    // Being acquired, held, and what an acquire has left.
    let taking = task(&lab.acquire(0, Target::Own, &[LEASE]));
    refused(&mut lab);
    refused_with_a_reason(&mut lab, with_lease(), " is being acquired on this host");
    assert_eq!(lab.acquired(taking, 0), [replied(0, 0)]);
    refused(&mut lab);
    refused_with_a_reason(&mut lab, with_lease(), " is held on this host");
    // Being released, not to be reached, and about to be tried again.
    let (releasing, _) = release_of(&lab.release(0, &[LEASE]));
    refused(&mut lab);
    assert_eq!(lab.released(releasing, timed_out(), 1), [replied(0, -202)]);
    refused(&mut lab);
    refused_with_a_reason(&mut lab, with_lease(), "has been given up, but not all of that is on disk");
    let retracting = retract_of(&lab.settled(releasing));
    refused(&mut lab);
    assert_eq!(lab.released(retracting, timed_out(), 0), []);
    refused(&mut lab);
    let retracting = retract_of(&(0..3).flat_map(|_| lab.tick()).collect::<Vec<_>>());
    // Neither another lockspace is concerned, nor who only looks, nor other leases of this one.
    let other = started(&index(&mut lab, 1, "two", true));
    lab.quiet(Event::IndexDone { task: other });
    let look = started(&index(&mut lab, 1, "ls", false));
    lab.quiet(Event::IndexDone { task: look });
    lab.hold(2, "rindex_leas");
    refused(&mut lab);
    // Not any more.
    assert_eq!(lab.released(retracting, Ok(Released::LeaderFreed), 0), []);
    started(&index(&mut lab, 1, "ls", true));
}

#[test]
fn an_operation_is_refused_beside_an_orphan_a_conversion_and_a_late_write() {
    let (mut lab, _) = Lab::ready();
    let taking = wants_for_good(&mut lab);
    assert_eq!(lab.acquired(taking, 0), [replied(0, 0)]);
    let (lockspace, lease) = (name("ls"), name(LEASE));
    let convert =
        Command::Convert { target: Target::Own, lockspace, name: lease, shared: true, owner_nowait: false };
    let converting = lab.command(0, convert);
    assert!(matches!(converting[..], [Action::StartConvert { .. }]), "{converting:?}");
    assert_eq!(index(&mut lab, 1, "ls", true), [replied(1, -16)]);
    let (mut lab, _) = Lab::ready();
    let taking = wants_for_good(&mut lab);
    // A write of the acquire, to a minority of the disks, may still land.
    assert_eq!(lab.acquired(taking, 1), [replied(0, 0)]);
    lab.close(0);
    assert_eq!(lab.list(LEASE), Some(ResourceList::Orphan));
    let command = Command::Index { lockspace: name("ls"), lease: true };
    refused_with_a_reason(&mut lab, command, "is an orphan on this host; release it");
    assert_eq!(release_orphans(&mut lab, 1), [replied(1, 1)]);
    assert_eq!(index(&mut lab, 1, "ls", true), [replied(1, -16)]);
    let retracting = retract_of(&lab.settled(taking));
    assert_eq!(index(&mut lab, 1, "ls", true), [replied(1, -16)]);
    assert_eq!(lab.released(retracting, Ok(Released::LeaderFreed), 0), []);
    started(&index(&mut lab, 1, "ls", true));
}

#[test]
fn the_lease_of_the_index_is_refused_while_an_operation_has_it() {
    let (mut lab, _) = Lab::ready();
    lab.join("two");
    let running = started(&index(&mut lab, 0, "ls", true));
    assert_eq!(lab.acquire(1, Target::Own, &[LEASE]), [replied(1, -16)]);
    refused_with_a_reason(&mut lab, acquire_command(request(LEASE)), "ls:rindex_lease refused");
    // Others are had as ever, and those of other lockspaces.
    lab.hold(1, "r");
    lab.hold(1, "two:rindex_lease");
    // Of several, nobody is left with the others.
    let taking = task(&lab.acquire(2, Target::Own, &["s", LEASE]));
    let (undoing, which) = release_of(&lab.acquired(taking, 0));
    assert_eq!(which, "s");
    assert_eq!(lab.released(undoing, Ok(Released::LeaderFreed), 0), [replied(2, -16)]);
    lab.quiet(Event::IndexSettling { task: running });
    assert_eq!(lab.acquire(1, Target::Own, &[LEASE]), [replied(1, -16)]);
    refused_with_a_reason(&mut lab, acquire_command(request(LEASE)), "may still land");
    lab.quiet(Event::IndexDone { task: running });
    lab.hold(1, LEASE);
    lab.release(1, &[LEASE]);
}

#[test]
fn beside_a_look_at_the_index_its_lease_is_had() {
    let (mut lab, _) = Lab::ready();
    started(&index(&mut lab, 0, "ls", false));
    lab.hold(1, LEASE);
}

#[test]
fn the_lease_of_the_index_is_refused_after_an_earlier_life_of_its_lockspace_whose_writes_may_land() {
    let (mut lab, ls) = Lab::ready();
    let task = started(&index(&mut lab, 0, "ls", true));
    lab.quiet(Event::IndexSettling { task });
    lab.remove(9, "ls");
    (0..DRAIN_SECS + 2).for_each(|_| drop(lab.tick()));
    lab.quiet(Event::Left { ls, writes: LeaseWrites::Ended });
    lab.join("ls");
    assert_eq!(lab.acquire(1, Target::Own, &[LEASE]), [replied(1, -16)]);
    lab.quiet(Event::IndexDone { task });
    lab.hold(1, LEASE);
}

#[test]
fn of_an_operation_and_an_acquire_that_wait_for_one_watchdog_only_one_begins() {
    // Whichever came first.
    let (mut lab, ls) = watched();
    lab.register(1, 101);
    let arming = lab.acquire(1, Target::Own, &[LEASE]);
    assert!(matches!(arming[..], [Action::WatchdogArm { .. }]), "{arming:?}");
    assert_eq!(index(&mut lab, 0, "ls", true), []);
    let begun = lab.quiet(Event::WatchdogArmed { ls, result: Ok(()) });
    let operations = begun.iter().filter(|a| matches!(a, Action::StartIndex { .. })).count();
    let acquires = begun.iter().filter(|a| matches!(a, Action::StartAcquire { .. })).count();
    assert_eq!((operations, acquires), (1, 0), "{begun:?}");
    assert!(begun.contains(&replied(1, -16)), "{begun:?}");
    let (mut lab, ls) = watched();
    lab.register(1, 101);
    index(&mut lab, 0, "ls", true);
    assert_eq!(lab.acquire(1, Target::Own, &[LEASE]), [replied(1, -16)]);
    started(&lab.quiet(Event::WatchdogArmed { ls, result: Ok(()) }));
}

#[test]
fn no_lease_gets_the_name_of_the_one_an_operation_has_and_while_it_gets_it_no_operation_begins() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "r");
    let task = started(&index(&mut lab, 1, "ls", true));
    assert_eq!(rename(&mut lab, "r", LEASE), [replied(0, -16)]);
    assert_eq!(lab.tokens(0), ["r"], "it is still held");
    lab.quiet(Event::IndexDone { task });
    let (releasing, _) = release_of(&rename(&mut lab, "r", LEASE));
    assert_eq!(index(&mut lab, 1, "ls", true), [replied(1, -16)]);
    let retracting = retract_of(&{
        let mut all = lab.released_without_mark(releasing);
        all.retain(|a| *a != replied(0, 0));
        all.extend(lab.tick());
        all
    });
    assert_eq!(index(&mut lab, 1, "ls", true), [replied(1, -16)]);
    assert_eq!(lab.released(retracting, Ok(Released::LeaderFreed), 0), []);
    started(&index(&mut lab, 1, "ls", true));
}
