//! Several resources of one command: side by side, with the outcome that one after the other would have.

use super::lab::*;
use crate::side::{SIDE_BY_SIDE_MAX, TASKS_MANY};
use crate::*;
use proptest::prelude::*;
use sanlock_lease::machine::IoFailure;
use sanlock_lease::paxos::AcquireError;
use sanlock_lease::paxos::ReleaseError;
use sanlock_lease::paxos::release::Released;

const FREED: Result<Released, ReleaseError> = Ok(Released::LeaderFreed);
const EIGHT: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

fn names(tasks: &[(TaskId, String)]) -> Vec<&str> {
    tasks.iter().map(|(_, name)| name.as_str()).collect()
}

fn stopped(actions: &[Action]) -> Vec<TaskId> {
    actions
        .iter()
        .filter_map(|action| match action {
            Action::ClientGone { task } => Some(*task),
            _ => None,
        })
        .collect()
}

fn broken() -> AcquireError {
    AcquireError::DblockRead(IoFailure::Os(5))
}

/// The tasks of the others, once the first of them is acquired.
fn others(lab: &mut Lab, conn: u64, resources: &[&str]) -> Vec<TaskId> {
    let first = task(&lab.acquire(conn, Target::Own, resources));
    acquires(&lab.acquired(first, 0)).into_iter().map(|(task, _)| task).collect()
}

#[test]
fn the_first_is_acquired_alone_and_then_all_others_at_once() {
    let (mut lab, _) = Lab::ready();
    let first = task(&lab.acquire(0, Target::Own, &EIGHT));
    let mut others = acquires(&lab.acquired(first, 0));
    assert_eq!(names(&others), EIGHT[1..]);
    others.reverse();
    let (last, rest) = others.split_last().unwrap();
    for (task, _) in rest {
        assert_eq!(lab.acquired(*task, 0), []);
    }
    assert_eq!(lab.tokens(0), [""; 0]);
    assert_eq!(lab.acquired(last.0, 0), [replied(0, 0)]);
    // In the order of the request, whatever came first.
    assert_eq!(lab.tokens(0), EIGHT);
}

#[test]
fn a_first_one_that_is_refused_leaves_the_others_untouched() {
    let (mut lab, _) = Lab::ready();
    let first = task(&lab.acquire(0, Target::Own, &EIGHT));
    assert_eq!(lab.failed(first, live_owner(), false, 0), [replied(0, -243)]);
    assert_eq!(lab.m.resources().count(), 0);
}

#[test]
fn the_first_failure_in_the_order_of_the_request_is_the_result_and_ends_what_is_behind_it() {
    let (mut lab, _) = Lab::ready();
    let [b, c, d] = others(&mut lab, 0, &["a", "b", "c", "d"])[..] else { panic!() };
    // What is before it goes on: it may fail too.
    assert_eq!(stopped(&lab.failed(c, broken(), false, 0)), [d]);
    // It was too late to stop.
    assert_eq!(lab.acquired(d, 0), []);
    let undo = releases(&lab.failed(b, live_owner(), false, 0));
    assert_eq!(names(&undo), ["a", "d"]);
    assert_eq!(lab.released(undo[0].0, FREED, 0), []);
    assert_eq!(lab.released(undo[1].0, FREED, 0), [replied(0, -243)]);
    assert_eq!(lab.m.resources().count(), 0);
}

#[test]
fn what_is_behind_a_failure_is_not_begun() {
    let (mut lab, _) = Lab::ready();
    lab.join("two");
    lab.m.settings.watchdog = false;
    let [b, _] = others(&mut lab, 0, &["a", "b", "c"])[..] else { panic!() };
    let actions = lab.failed(b, broken(), false, 0);
    assert_eq!((acquires(&actions), stopped(&actions).len()), (vec![], 1));
}

/// It could have been free by then: another host's ballot, a conversion, a release that has not ended.
#[test]
fn a_refusal_before_its_turn_is_asked_for_again() {
    for later in [Ok(()), Err(live_owner())] {
        let (mut lab, _) = Lab::ready();
        let [b, c] = others(&mut lab, 0, &["a", "b", "c"])[..] else { panic!() };
        assert_eq!(lab.failed(c, live_owner(), false, 0), []);
        assert_eq!(lab.resource("c"), None);
        let again = acquires(&lab.acquired(b, 0));
        assert_eq!(names(&again), ["c"]);
        match later {
            Ok(()) => assert_eq!(lab.acquired(again[0].0, 0), [replied(0, 0)]),
            Err(error) => assert_eq!(names(&releases(&lab.failed(again[0].0, error, false, 0))), ["a", "b"]),
        }
    }
}

/// What it has left has to be taken back first, and would be all that another attempt finds.
#[test]
fn a_refusal_that_left_something_is_the_result() {
    for outstanding in [0, 1] {
        let (mut lab, _) = Lab::ready();
        let [b, c] = others(&mut lab, 0, &["a", "b", "c"])[..] else { panic!() };
        lab.failed(c, live_owner(), true, outstanding);
        let undo = releases(&lab.acquired(b, 0));
        assert_eq!(names(&undo), ["a", "b"]);
        lab.released(undo[0].0, FREED, 0);
        assert_eq!(lab.released(undo[1].0, FREED, 0), [replied(0, -243)]);
    }
}

#[test]
fn a_resource_named_twice_is_found_held_wherever_it_stands() {
    let (mut lab, _) = Lab::ready();
    let both = others(&mut lab, 0, &["a", "b", "b"]);
    assert_eq!(both.len(), 1);
    let undo = releases(&lab.acquired(both[0], 0));
    lab.released(undo[0].0, FREED, 0);
    assert_eq!(lab.released(undo[1].0, FREED, 0), [replied(0, -17)]);
}

#[test]
fn what_is_behind_one_that_was_refused_before_its_turn_is_left_alone() {
    let (mut lab, _) = Lab::ready();
    lab.hold(1, "c");
    let begun = others(&mut lab, 0, &EIGHT);
    assert_eq!(begun.len(), 1);
    let undo = releases(&lab.acquired(begun[0], 0));
    assert_eq!(names(&undo), ["a", "b"]);
    lab.released(undo[0].0, FREED, 0);
    assert_eq!(lab.released(undo[1].0, FREED, 0), [replied(0, -17)]);
}

#[test]
fn requests_for_the_same_resources_in_other_orders_do_not_wait_for_one_another() {
    let (mut lab, _) = Lab::ready();
    let x = task(&lab.acquire(0, Target::Own, &["x", "a", "b"]));
    let y = task(&lab.acquire(1, Target::Own, &["y", "b", "a"]));
    let ours = acquires(&lab.acquired(x, 0));
    assert_eq!(names(&ours), ["a", "b"]);
    // Both are being acquired, and the first of them is refused in its turn.
    let undo = releases(&lab.acquired(y, 0));
    assert_eq!(names(&undo), ["y"]);
    assert_eq!(lab.released(undo[0].0, FREED, 0), [replied(1, -16)]);
    assert_eq!(lab.acquired(ours[1].0, 0), []);
    assert_eq!(lab.acquired(ours[0].0, 0), [replied(0, 0)]);
}

#[test]
fn a_client_that_hangs_up_stops_everything_that_runs() {
    let (mut lab, _) = Lab::ready();
    let first = task(&lab.acquire(9, Target::Pid(100), &["a", "b", "c"]));
    let running: Vec<TaskId> = acquires(&lab.acquired(first, 0)).into_iter().map(|(task, _)| task).collect();
    assert_eq!(stopped(&lab.close(0)), running);
    assert_eq!(lab.failed(running[1], AcquireError::ClientGone, false, 0), []);
    let undo = releases(&lab.failed(running[0], AcquireError::ClientGone, false, 0));
    assert_eq!(names(&undo), ["a"]);
    assert_eq!(lab.released(undo[0].0, FREED, 0), [replied(9, -25), Action::Forget { conn: ConnId(0) }]);
}

#[test]
fn each_lockspace_waits_for_its_own_watchdog() {
    let mut lab = Lab::with_watchdog(true);
    lab.register(0, 100);
    lab.open(99);
    let mut spaces = Vec::new();
    for text in ["ls", "two", "three"] {
        let add = Command::AddLockspace { spec: ls_spec(text), io_timeout: 0, asynchronous: true };
        let [Action::WatchdogCheck { ls, .. }, ..] = lab.command(99, add)[..] else { panic!() };
        lab.quiet(Event::WatchdogChecked { ls, result: Ok(2) });
        lab.quiet(Event::JoinDone { ls, result: Ok(joined(GENERATION, lab.now)) });
        spaces.push(ls);
    }
    lab.tick();
    let arms = |actions: &[Action]| {
        let armed = |a: &Action| match a {
            Action::WatchdogArm { ls, .. } => Some(*ls),
            _ => None,
        };
        actions.iter().filter_map(armed).collect::<Vec<_>>()
    };
    assert_eq!(arms(&lab.acquire(0, Target::Own, &["ls:a", "two:b", "three:c"])), spaces[..1]);
    let first = task(&lab.quiet(Event::WatchdogArmed { ls: spaces[0], result: Ok(()) }));
    assert_eq!(arms(&lab.acquired(first, 0)), spaces[1..]);
    let third = task(&lab.quiet(Event::WatchdogArmed { ls: spaces[2], result: Ok(()) }));
    let refused = lab.quiet(Event::WatchdogArmed { ls: spaces[1], result: Err("no answer".to_owned()) });
    assert_eq!(refused, [Action::ClientGone { task: third }]);
    let undo = lab.failed(third, AcquireError::ClientGone, false, 0);
    assert_eq!(names(&releases(&undo)), ["a"]);
    let ended = lab.released(releases(&undo)[0].0, FREED, 0);
    assert!(ended.contains(&replied(0, -203)), "{ended:?}");
}

/// A request then takes its resources one after the other, as does a release; nothing waits for what others do.
#[test]
fn where_very_many_tasks_run_a_command_has_one_at_a_time() {
    let (mut lab, _) = Lab::ready();
    for resource in EIGHT {
        lab.hold(1, resource);
    }
    let many = u64::try_from(TASKS_MANY).unwrap();
    let mut busy = Vec::new();
    for n in 0..many {
        lab.register(200 + n, 200 + i32::try_from(n).unwrap());
        busy.push(task(&lab.acquire(200 + n, Target::Own, &[&format!("busy{n}")])));
    }
    let first = task(&lab.acquire(0, Target::Own, &["i", "j", "k"]));
    let second = task(&lab.acquired(first, 0));
    let all = Command::Release { target: Target::Own, what: ReleaseWhat::All };
    let mut released = releases(&lab.command(1, all));
    assert_eq!(released.len(), 1);
    // There is room again.
    for task in busy.drain(..10) {
        lab.acquired(task, 0);
    }
    released = releases(&lab.released(released[0].0, FREED, 0));
    assert_eq!(released.len(), 7);
    let third = task(&lab.acquired(second, 0));
    assert_eq!(lab.acquired(third, 0), [replied(0, 0)]);
}

/// They do nothing, and may be so for hours.
#[test]
fn tasks_whose_writes_may_still_land_are_not_under_way() {
    let (mut lab, _) = Lab::ready();
    for resource in EIGHT {
        lab.hold(1, resource);
    }
    for n in 0..u64::try_from(TASKS_MANY).unwrap() {
        lab.register(200 + n, 200 + i32::try_from(n).unwrap());
        let started = task(&lab.acquire(200 + n, Target::Own, &[&format!("hung{n}")]));
        lab.failed(started, live_owner(), true, 1);
    }
    let all = Command::Release { target: Target::Own, what: ReleaseWhat::All };
    assert_eq!(releases(&lab.command(1, all)).len(), EIGHT.len());
}

/// What the disk says of one resource, however often it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Free,
    /// Refused, unless it is its turn.
    FreeInTurn,
    Owned,
    Broken,
    NoDisk,
    /// Held by another process of this host.
    Here,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        8 => Just(Fate::Free),
        3 => Just(Fate::FreeInTurn),
        1 => Just(Fate::Owned),
        1 => Just(Fate::Broken),
        1 => Just(Fate::NoDisk),
        1 => Just(Fate::Here),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// In whatever order tasks end.
    #[test]
    fn the_outcome_is_that_of_one_after_the_other(
        fates in prop::collection::vec(fate(), 1..=8),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 64),
    ) {
        let (mut lab, _) = Lab::ready();
        let wanted = &EIGHT[..fates.len()];
        for (resource, fate) in wanted.iter().zip(&fates) {
            if *fate == Fate::Here {
                lab.hold(1, resource);
            }
        }
        let code = |fate: &Fate| match fate {
            Fate::Free | Fate::FreeInTurn => None,
            Fate::Owned => Some(-243),
            Fate::Broken => Some(-210),
            Fate::NoDisk => Some(-2),
            Fate::Here => Some(-17),
        };
        let expected = fates.iter().find_map(code).unwrap_or(0);
        let mut actions = lab.acquire(0, Target::Own, wanted);
        let mut running: Vec<(TaskId, String)> = Vec::new();
        let mut undoing: Vec<(TaskId, String)> = Vec::new();
        let mut acquired: Vec<usize> = Vec::new();
        let mut picks = picks.into_iter();
        loop {
            running.extend(acquires(&actions));
            undoing.extend(releases(&actions));
            prop_assert!(running.len().max(undoing.len()) <= SIDE_BY_SIDE_MAX);
            prop_assert!(running.is_empty() || undoing.is_empty(), "nothing is taken back while anything runs");
            if running.is_empty() && undoing.is_empty() {
                break;
            }
            let pick = picks.next().expect("few steps are enough");
            if running.is_empty() {
                let (task, _) = undoing.swap_remove(pick.index(undoing.len()));
                actions = lab.released(task, FREED, 0);
                continue;
            }
            let (task, name) = running.swap_remove(pick.index(running.len()));
            let at = wanted.iter().position(|w| *w == name).unwrap();
            let turn = (0..at).all(|before| acquired.contains(&before));
            actions = match fates[at] {
                Fate::FreeInTurn if !turn => lab.failed(task, live_owner(), false, 0),
                Fate::Free | Fate::FreeInTurn => {
                    acquired.push(at);
                    lab.acquired(task, 0)
                }
                Fate::Owned => lab.failed(task, live_owner(), false, 0),
                Fate::Broken => lab.failed(task, broken(), false, 0),
                Fate::NoDisk => lab.quiet(Event::StartFailed { task, code: -2 }),
                Fate::Here => unreachable!("it is held"),
            };
        }
        prop_assert_eq!(actions.last(), Some(&replied(0, expected)));
        let held: &[&str] = if expected == 0 { wanted } else { &[] };
        prop_assert_eq!(lab.tokens(0), held);
        let here = fates.iter().filter(|f| **f == Fate::Here).count();
        prop_assert_eq!(lab.m.resources().count(), held.len() + here, "nothing is left behind");
    }
}

/// A process may hold a lease in one lockspace while its acquire in another one hangs. If the first one fails, nobody is to wait for the
/// second: the watchdog stands for what is held.
#[test]
fn what_a_process_held_goes_with_it_while_its_acquire_hangs() {
    for process_first in [true, false] {
        let (mut lab, one) = Lab::ready();
        lab.join("two");
        lab.hold(0, "a");
        let hung = task(&lab.acquire(0, Target::Own, &["two:b"]));
        lab.quiet(Event::Corrupt { ls: one, code: -260, text: "another owner".to_owned() });
        let stop = Action::ClientGone { task: hung };
        if process_first {
            lab.pid_gone(0);
            assert!(lab.resource("a").is_some(), "a descendant may use it");
            assert_eq!(lab.close(0)[0], stop);
        } else {
            assert_eq!(lab.close(0), [stop]);
            assert!(lab.resource("a").is_some(), "its process may use it");
            lab.pid_gone(0);
        }
        // Nothing is written for it any more.
        assert_eq!(lab.resource("a"), None);
        lab.failed(hung, AcquireError::ClientGone, false, 0);
        assert_eq!(lab.m.resources().count(), 0);
        assert!(lab.m.conns().all(|(conn, _)| conn != ConnId(0)));
    }
    // In a lockspace that lives it is released.
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "a");
    let hung = task(&lab.acquire(0, Target::Own, &["b"]));
    let ends = lab.close(0);
    assert_eq!((stopped(&ends), names(&releases(&ends))), (vec![hung], vec!["a"]));
    lab.released(releases(&ends)[0].0, FREED, 0);
    assert_eq!(lab.failed(hung, AcquireError::ClientGone, false, 0), [Action::Forget { conn: ConnId(0) }]);
}
