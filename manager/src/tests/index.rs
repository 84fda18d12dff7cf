use super::lab::*;
use crate::*;

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
