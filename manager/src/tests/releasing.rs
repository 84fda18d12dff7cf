use super::lab::{Lab, held, release_of, releases, replied, retract_of, task as task_of, timed_out};
use crate::side::SIDE_BY_SIDE_MAX;
use crate::*;
use sanlock_lease::machine::IoFailure;
use sanlock_lease::paxos::release::Released;
use sanlock_lease::paxos::{AcquireError, ReleaseError};

const FREED: Result<Released, ReleaseError> = Ok(Released::LeaderFreed);

#[test]
fn named_leases_are_released_in_order_and_an_unknown_name_is_the_result() {
    let (mut lab, _) = Lab::ready();
    for r in ["a", "b", "c"] {
        lab.hold(0, r);
    }
    let both = releases(&lab.release(0, &["c", "unknown", "a"]));
    assert_eq!(both.iter().map(|(_, which)| which.as_str()).collect::<Vec<_>>(), ["c", "a"]);
    assert_eq!(lab.tokens(0), ["b"]);
    assert_eq!(lab.released(both[0].0, FREED, 0), []);
    assert_eq!(lab.released(both[1].0, FREED, 0), [replied(0, -1)]);
    assert_eq!(lab.release(0, &[]), [replied(0, 0)]);
    assert_eq!(lab.release(0, &["a"]), [replied(0, -1)]);
}

#[test]
fn the_last_failure_is_the_result() {
    let (mut lab, _) = Lab::ready();
    for n in 0..20 {
        lab.hold(0, &format!("r{n}"));
    }
    let all = Command::Release { target: Target::Own, what: ReleaseWhat::All };
    let mut actions = lab.command(0, all);
    let mut running = releases(&actions);
    assert_eq!(running.len(), SIDE_BY_SIDE_MAX);
    let mut ended = Vec::new();
    // The youngest first: what counts is the order of the request.
    while let Some((task, which)) = running.pop() {
        let result = match which.as_str() {
            "r3" => timed_out(),
            "r7" => Err(ReleaseError::Lver { expected: 1, found: 2 }),
            _ => FREED,
        };
        ended.push(which);
        actions = lab.released(task, result, 0);
        running.extend(releases(&actions));
        assert!(running.len() <= SIDE_BY_SIDE_MAX);
    }
    assert!(ended.iter().position(|r| r == "r7") < ended.iter().position(|r| r == "r3"));
    assert_eq!(ended.len(), 20);
    assert_eq!(actions, [replied(0, -250)]);
    assert_eq!(lab.m.resources().count(), 1, "what timed out is tried again, what is not ours is not");
}

#[test]
fn a_release_that_times_out_is_repeated_when_its_write_has_ended_then_after_t_then_every_2t() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "a");
    let (mut task, _) = release_of(&lab.release(0, &["a"]));
    assert_eq!(lab.released(task, timed_out(), 1), [replied(0, -202)]);
    assert_eq!(lab.tokens(0), [""; 0]);
    let mut waits = Vec::new();
    for _ in 0..4 {
        for _ in 0..50 {
            assert_eq!(lab.tick(), [], "nothing starts while a write is outstanding");
            assert_eq!(lab.acquire(0, Target::Own, &["a"]), [replied(0, -11)]);
        }
        let mut actions = lab.settled(task);
        let mut seconds = 0;
        while actions.is_empty() && seconds < 60 {
            seconds += 1;
            actions = lab.tick();
        }
        waits.push(seconds);
        task = retract_of(&actions);
        assert_eq!(lab.released(task, timed_out(), 1), [], "nobody is told twice");
    }
    assert_eq!(waits, [0, 1, 2, 2]);
    lab.settled(task);
    lab.tick();
    let retract = retract_of(&lab.tick());
    assert_eq!(lab.released(retract, FREED, 0), []);
    assert_eq!(lab.resource("a"), None);
}

#[test]
fn a_release_that_fails_without_a_write_is_repeated_too() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "a");
    let (task, _) = release_of(&lab.release(0, &["a"]));
    assert_eq!(
        lab.released(task, Err(ReleaseError::LeaderRead { readable: 0, disks: 1, other: None }), 0).len(),
        1
    );
    let retract = retract_of(&lab.tick());
    assert_eq!(lab.released(retract, Err(ReleaseError::Lver { expected: 1, found: 2 }), 0), []);
    assert_eq!(lab.resource("a"), None, "not ours any more");
}

#[test]
fn a_release_that_could_not_mark_the_block_succeeds_and_the_mark_follows() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "a");
    let (task, _) = release_of(&lab.release(0, &["a"]));
    assert_eq!(lab.released_without_mark(task), [replied(0, 0)]);
    let retract = retract_of(&lab.tick());
    assert_eq!(lab.released(retract, Ok(Released::ByFlag), 0), [], "nobody is told twice");
    assert_eq!(lab.resource("a"), None);
}

#[test]
fn a_release_that_succeeded_but_left_a_write_is_looked_at_again() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "a");
    let (task, _) = release_of(&lab.release(0, &["a"]));
    assert_eq!(lab.released(task, FREED, 1), [replied(0, 0)]);
    assert_eq!(lab.acquire(0, Target::Own, &["a"]), [replied(0, -11)]);
    let retract = retract_of(&lab.settled(task));
    lab.released(retract, Ok(Released::NothingToDo), 0);
    assert_eq!(lab.resource("a"), None);
}

#[test]
fn in_a_dead_lockspace_a_release_writes_nothing_and_succeeds() {
    let (mut lab, ls) = Lab::ready();
    lab.hold(0, "a");
    lab.hold(0, "b");
    let (task, _) = release_of(&lab.release(0, &["a"]));
    assert_eq!(lab.remove(9, "ls")[0], Action::Gone { ls });
    // The one that runs sees it.
    assert_eq!(lab.released(task, Err(ReleaseError::LockspaceGone), 0), [replied(0, 0)]);
    assert_eq!(lab.release(0, &["b"]), [replied(0, 0), Action::Leave { ls, release: true }]);
    assert_eq!(lab.m.resources().count(), 0);
}

#[test]
fn a_release_whose_writes_were_taken_back_with_its_lockspace_succeeds_and_one_that_may_land_does_not() {
    let late = IoFailure::TimedOut;
    for error in [ReleaseError::Io(late), ReleaseError::LeaderWrite(late), ReleaseError::DblockWrite(late)] {
        for (outstanding, code) in [(0, 0), (1, -202)] {
            let (mut lab, _) = Lab::ready();
            lab.hold(0, "a");
            let (task, _) = release_of(&lab.release(0, &["a"]));
            lab.remove(9, "ls");
            assert_eq!(lab.released(task, Err(error), outstanding)[0], replied(0, code), "{error}");
        }
    }
}

#[test]
fn a_release_that_saw_a_lockspace_too_old_for_a_moment_is_repeated() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "a");
    let (task, _) = release_of(&lab.release(0, &["a"]));
    assert_eq!(lab.released(task, Err(ReleaseError::LockspaceGone), 0), [replied(0, -28)]);
    assert_eq!(lab.list("a"), Some(ResourceList::Rem));
    retract_of(&lab.tick());
}

#[test]
fn a_write_that_outlives_its_lockspace_blocks_the_resource_in_the_next_life() {
    let (mut lab, ls) = Lab::ready();
    lab.hold(0, "a");
    let (task, _) = release_of(&lab.release(0, &["a"]));
    lab.released(task, timed_out(), 1);
    lab.remove(9, "ls");
    let last: Vec<Action> = (0..DRAIN_SECS).flat_map(|_| lab.tick()).collect();
    assert_eq!(last, [Action::Leave { ls, release: false }]);
    assert_eq!(lab.event(Event::Left { ls, writes: LeaseWrites::Ended }), [replied(9, 0)]);
    lab.join("ls");
    assert_eq!(lab.acquire(1, Target::Own, &["a"]), [replied(1, -11)]);
    assert_eq!(lab.settled(task), [], "what it left is of an older generation");
    task_of(&lab.acquire(1, Target::Own, &["a"]));
}

#[test]
fn a_lease_given_back_by_a_closed_connection_is_tried_until_it_is_free() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "a");
    let actions = lab.close(0);
    let task = task_of(&actions[..1]);
    assert_eq!(lab.released(task, timed_out(), 0), []);
    let retract = retract_of(&lab.tick());
    assert_eq!(lab.quiet(Event::StartFailed { task: retract, code: -5 }), []);
    assert_eq!(lab.list("a"), Some(ResourceList::Rem));
    retract_of(&lab.tick());
}

#[test]
fn what_an_acquire_wrote_last_goes_with_every_attempt_to_take_it_back() {
    for outstanding in [0, 1] {
        let (mut lab, _) = Lab::ready();
        let task = task_of(&lab.acquire(0, Target::Own, &["a"]));
        let error = AcquireError::LeaderWrite(IoFailure::Os(5));
        let mut actions = lab.failed(task, error, true, outstanding);
        if outstanding > 0 {
            actions = lab.settled(task);
        }
        for _ in 0..3 {
            let retract = actions.iter().find_map(|action| match action {
                Action::StartRetract { task, attempt, .. } => Some((*task, *attempt)),
                _ => None,
            });
            let Some((task, attempt)) = retract else { panic!("{actions:?}") };
            assert_eq!(attempt, Some(held(1, 1).block));
            assert_eq!(lab.released(task, timed_out(), 0), []);
            actions = (0..20).map(|_| lab.tick()).find(|actions| !actions.is_empty()).unwrap_or_default();
        }
    }
}

/// By this block it is known where what was held lies, whatever it is called by then, and what has come after it.
#[test]
fn the_block_of_the_hold_goes_with_every_attempt_to_give_it_up() {
    let (mut lab, _) = Lab::ready();
    let task = task_of(&lab.acquire(0, Target::Own, &["a"]));
    lab.acquired(task, 0);
    let (release, _) = release_of(&lab.release(0, &["a"]));
    lab.released(release, timed_out(), 0);
    for _ in 0..3 {
        let retract = |action: &Action| match action {
            Action::StartRetract { task, hold, .. } => Some((*task, *hold)),
            _ => None,
        };
        let found = (0..20).find_map(|_| lab.tick().iter().find_map(retract));
        let Some((task, hold)) = found else { panic!("not tried again") };
        assert_eq!(hold, Some(held(1, 7).block));
        lab.released(task, timed_out(), 0);
    }
}
