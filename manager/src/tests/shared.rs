//! Shared resources: several tokens of this host on one, exclusive against shared, conversion (lease-algorithms.md 7.2, R6).

use super::lab::*;
use crate::*;
use sanlock_lease::machine::IoFailure;
use sanlock_lease::paxos::acquire::{AcquireOutcome, Mode};
use sanlock_lease::paxos::convert::ConvertOutcome;
use sanlock_lease::paxos::release::Released;
use sanlock_lease::paxos::{AcquireError, Held, ReleaseError};
use sanlock_lease::record::ModeBlock;

fn held_shared() -> Held {
    let mut held = held(GENERATION, 7);
    held.block.mode = ModeBlock::shared(GENERATION);
    held
}

fn ask(lab: &mut Lab, conn: u64, resource: &str, shared: bool) -> Vec<Action> {
    let mut wanted = request(resource);
    wanted.spec.shared = shared;
    let (target, flags, owner_name) = (Target::Own, AcquireFlags::default(), name("owner"));
    lab.command(conn, Command::Acquire { target, owner_name, resources: vec![wanted], flags })
}

/// The first shared hold of this host.
fn share(lab: &mut Lab, conn: u64, resource: &str) {
    let actions = ask(lab, conn, resource, true);
    assert!(
        matches!(&actions[..], [Action::StartAcquire { options, .. }] if options.mode == Mode::ShortHold)
    );
    let outcome = AcquireOutcome::Acquired(held_shared());
    let done = lab.quiet(Event::AcquireDone { task: task(&actions), outcome, value: None, outstanding: 0 });
    assert_eq!(done, [replied(conn, 0)]);
}

fn convert(lab: &mut Lab, conn: u64, resource: &str, shared: bool) -> Vec<Action> {
    let spec = request(resource).spec;
    let (lockspace, name) = (spec.lockspace, spec.name);
    lab.command(conn, Command::Convert { target: Target::Own, lockspace, name, shared, owner_nowait: false })
}

#[track_caller]
fn convert_task(actions: &[Action]) -> TaskId {
    match actions {
        [Action::StartConvert { task, .. }] => *task,
        other => panic!("{other:?}"),
    }
}

fn converted(
    lab: &mut Lab,
    task: TaskId,
    result: Result<(), AcquireError>,
    held: Held,
    (erase, outstanding): (bool, u32),
) -> Vec<Action> {
    let outcome = Box::new(ConvertOutcome { result, held, erase, value_written: false });
    lab.quiet(Event::ConvertDone { task, outcome, outstanding })
}

#[test]
fn processes_of_one_host_share_without_io_and_the_last_one_releases() {
    let (mut lab, _) = Lab::ready();
    share(&mut lab, 0, "r");
    for conn in [1, 2, 0] {
        assert_eq!(ask(&mut lab, conn, "r", true), [replied(conn, 0)]);
    }
    assert_eq!((lab.tokens(0), lab.tokens(1)), (vec!["r".to_owned(); 2], vec!["r".to_owned()]));
    // Each release gives up one token; of a process that ends, all.
    assert_eq!(lab.release(0, &["r"]), [replied(0, 0)]);
    assert_eq!(lab.tokens(0), ["r"]);
    assert_eq!(lab.close(1), [Action::Forget { conn: ConnId(1) }]);
    assert_eq!(lab.release(2, &["r"]), [replied(2, 0)]);
    let (task, which) = release_of(&lab.release(0, &["r"]));
    assert_eq!((which.as_str(), lab.list("r")), ("r", Some(ResourceList::Rem)));
    assert_eq!(ask(&mut lab, 2, "r", true), [replied(2, -11)], "being released");
    assert_eq!(lab.released(task, Ok(Released::ByFlag), 0), [replied(0, 0)]);
    assert_eq!(lab.resource("r"), None);
}

#[test]
fn two_names_of_one_release_give_up_two_tokens() {
    let (mut lab, _) = Lab::ready();
    share(&mut lab, 0, "r");
    ask(&mut lab, 0, "r", true);
    let (task, _) = release_of(&lab.release(0, &["r", "r"]));
    assert_eq!(lab.released(task, Ok(Released::ByFlag), 0), [replied(0, 0)]);
    assert_eq!(lab.resource("r"), None);
}

#[test]
fn exclusive_and_shared_exclude_each_other_on_one_host() {
    let (mut lab, _) = Lab::ready();
    share(&mut lab, 0, "s");
    lab.hold(0, "x");
    for conn in [0, 1] {
        assert_eq!(ask(&mut lab, conn, "s", false), [replied(conn, -17)]);
        assert_eq!(ask(&mut lab, conn, "x", true), [replied(conn, -17)]);
    }
    // While the first one is still being acquired.
    ask(&mut lab, 0, "t", true);
    assert_eq!(ask(&mut lab, 1, "t", true), [replied(1, -16)]);
}

#[test]
fn an_undone_request_gives_only_its_own_token_up() {
    let (mut lab, _) = Lab::ready();
    share(&mut lab, 0, "s");
    let mut joins = request("s");
    joins.spec.shared = true;
    let resources = vec![joins, request("x")];
    let (target, flags, owner_name) = (Target::Own, AcquireFlags::default(), name("o"));
    let actions = lab.command(1, Command::Acquire { target, owner_name, resources, flags });
    assert_eq!(lab.failed(task(&actions), live_owner(), false, 0), [replied(1, -243)]);
    assert_eq!((lab.tokens(0), lab.tokens(1)), (vec!["s".to_owned()], Vec::new()));
    assert_eq!(lab.list("s"), Some(ResourceList::Held));
}

/// While the commit was under way this process stood still, or the lockspace ended: others may have the lease by now.
#[test]
fn nobody_becomes_exclusive_in_a_lockspace_that_is_not_valid_any_more() {
    let upgrade = |before: fn(&mut Lab, LockspaceId)| {
        let (mut lab, ls) = Lab::ready();
        share(&mut lab, 0, "r");
        let task = convert_task(&convert(&mut lab, 0, "r", false));
        before(&mut lab, ls);
        let done = converted(&mut lab, task, Ok(()), held(GENERATION, 8), (false, 0));
        assert_eq!(lab.list("r"), Some(ResourceList::Held));
        done
    };
    assert_eq!(upgrade(|lab, _| lab.now = lab.now.plus_secs(7)), [replied(0, 0)]);
    assert_eq!(upgrade(|lab, _| lab.now = lab.now.plus_secs(8)), [replied(0, -28)]);
    let lost = |lab: &mut Lab, ls| {
        lab.quiet(Event::Corrupt { ls, code: -260, text: String::new() });
    };
    assert_eq!(upgrade(lost), [replied(0, -28)]);
}

#[test]
fn only_the_holder_converts_and_only_to_the_other_mode() {
    let (mut lab, _) = Lab::ready();
    share(&mut lab, 0, "s");
    lab.hold(0, "x");
    assert_eq!(convert(&mut lab, 1, "s", false), [replied(1, -2)]);
    assert_eq!(convert(&mut lab, 0, "none", false), [replied(0, -2)]);
    assert_eq!(convert(&mut lab, 0, "s", true), [replied(0, -114)]);
    assert_eq!(convert(&mut lab, 0, "x", false), [replied(0, -114)]);
    // CE5: another local holder.
    ask(&mut lab, 1, "s", true);
    assert_eq!(convert(&mut lab, 0, "s", false), [replied(0, -11)]);
    assert_eq!(lab.release(1, &["s"]), [replied(1, 0)]);
    convert_task(&convert(&mut lab, 0, "s", false));
}

#[test]
fn a_conversion_may_be_told_not_to_wait() {
    for told in [false, true] {
        let (mut lab, _) = Lab::ready();
        share(&mut lab, 0, "r");
        let spec = request("r").spec;
        let (target, lockspace, name) = (Target::Own, spec.lockspace, spec.name);
        let command = Command::Convert { target, lockspace, name, shared: false, owner_nowait: told };
        let [Action::StartConvert { options, .. }] = &lab.command(0, command)[..] else { panic!() };
        assert_eq!(options.owner_nowait, told);
    }
}

#[test]
fn a_conversion_changes_mode_and_version_when_it_succeeds() {
    let (mut lab, _) = Lab::ready();
    share(&mut lab, 0, "r");
    let task = convert_task(&convert(&mut lab, 0, "r", false));
    assert_eq!(ask(&mut lab, 1, "r", true), [replied(1, -11)], "which mode it will be in is open");
    assert_eq!(converted(&mut lab, task, Ok(()), held(GENERATION, 9), (false, 0)), [replied(0, 0)]);
    let id = lab.resource("r").unwrap();
    let r = &lab.m.resources[&id];
    assert_eq!((r.spec.shared, r.lver, r.pid), (false, 9, 100));
    let task = convert_task(&convert(&mut lab, 0, "r", true));
    assert_eq!(converted(&mut lab, task, Ok(()), held_shared(), (false, 0)), [replied(0, 0)]);
    let r = &lab.m.resources[&id];
    assert_eq!((r.spec.shared, r.lver), (true, 0));
    assert_eq!(ask(&mut lab, 1, "r", true), [replied(1, 0)]);
}

#[test]
fn a_refused_conversion_keeps_the_shared_hold_with_its_newest_block() {
    let (mut lab, _) = Lab::ready();
    share(&mut lab, 0, "r");
    let task = convert_task(&convert(&mut lab, 0, "r", false));
    let mut newest = held_shared();
    newest.block.dblock.mbal = 4001.into();
    assert_eq!(converted(&mut lab, task, Err(live_owner()), newest, (false, 0)), [replied(0, -243)]);
    assert_eq!(lab.tokens(0), ["r"]);
    let release = lab.release(0, &["r"]);
    assert!(matches!(&release[..], [Action::StartRelease { held, .. }] if *held == newest));
}

#[test]
fn what_a_conversion_left_open_is_looked_at_by_the_release() {
    let (mut lab, _) = Lab::ready();
    share(&mut lab, 0, "r");
    let task = convert_task(&convert(&mut lab, 0, "r", false));
    let failed = Err(AcquireError::DblockWrite(IoFailure::Os(5)));
    assert_eq!(converted(&mut lab, task, failed, held_shared(), (true, 0)), [replied(0, -211)]);
    let retract = retract_of(&lab.release(0, &["r"]));
    let failed = Err(ReleaseError::Io(IoFailure::TimedOut));
    assert_eq!(lab.released(retract, failed, 0), [replied(0, -202)]);
    let again = retract_of(&lab.tick());
    assert_eq!(lab.released(again, Ok(Released::LeaderFreed), 0), []);
    assert_eq!(lab.resource("r"), None);
}

#[test]
fn nothing_is_begun_while_a_write_of_a_conversion_may_land() {
    let (mut lab, _) = Lab::ready();
    share(&mut lab, 0, "r");
    let task = convert_task(&convert(&mut lab, 0, "r", false));
    let failed = Err(AcquireError::LeaderWrite(IoFailure::TimedOut));
    assert_eq!(converted(&mut lab, task, failed, held_shared(), (true, 1)), [replied(0, -202)]);
    assert_eq!(convert(&mut lab, 0, "r", false), [replied(0, -11)]);
    assert_eq!(lab.release(0, &["r"]), [replied(0, -202)]);
    assert_eq!(lab.list("r"), Some(ResourceList::Rem));
    retract_of(&lab.settled(task));
}

#[test]
fn a_client_that_hangs_up_during_a_conversion_is_told_and_released() {
    let (mut lab, _) = Lab::ready();
    share(&mut lab, 0, "r");
    let task = convert_task(&convert(&mut lab, 0, "r", false));
    assert_eq!(lab.close(0), [Action::ClientGone { task }]);
    let actions = converted(&mut lab, task, Ok(()), held(GENERATION, 9), (false, 0));
    assert!(matches!(actions[..], [Action::StartRelease { .. }, Action::Forget { .. }]), "{actions:?}");
}

#[test]
fn a_conversion_that_cannot_begin_changes_nothing() {
    let (mut lab, _) = Lab::ready();
    share(&mut lab, 0, "r");
    let task = convert_task(&convert(&mut lab, 0, "r", false));
    assert_eq!(lab.quiet(Event::StartFailed { task, code: -2 }), [replied(0, -2)]);
    assert_eq!(convert(&mut lab, 0, "r", true), [replied(0, -114)]);
    lab.release(0, &["r"]);
}

/// In a dead lockspace the resource stays until the last of its holders is gone.
#[test]
fn a_dead_lockspace_keeps_every_holder_as_a_user() {
    let (mut lab, ls) = Lab::ready();
    share(&mut lab, 0, "r");
    ask(&mut lab, 1, "r", true);
    lab.event(Event::Corrupt { ls, code: -260, text: String::new() });
    lab.tick();
    lab.pid_gone(0);
    lab.close(0);
    assert_eq!((lab.list("r"), lab.tokens(1)), (Some(ResourceList::Held), vec!["r".to_owned()]));
    lab.pid_gone(1);
    lab.close(1);
    assert_eq!(lab.resource("r"), None);
}

fn erase_task(actions: &[Action]) -> TaskId {
    match actions {
        [Action::StartErase { task, .. }] => *task,
        other => panic!("{other:?}"),
    }
}

/// "r" held by connection 0, converted to shared, with a leader that could not be freed.
fn half_converted() -> Lab {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "r");
    let task = convert_task(&convert(&mut lab, 0, "r", true));
    assert_eq!(converted(&mut lab, task, Ok(()), held_shared(), (true, 0)), [replied(0, 0)]);
    lab
}

#[test]
fn what_a_conversion_left_is_taken_back_while_the_hold_goes_on() {
    let mut lab = half_converted();
    assert_eq!(lab.quiet(Event::Tick), [], "not at once");
    let first = erase_task(&lab.tick());
    assert_eq!(ask(&mut lab, 1, "r", true), [replied(1, -11)], "for a moment");
    assert_eq!(converted(&mut lab, first, Ok(()), held_shared(), (true, 0)), []);
    assert_eq!(ask(&mut lab, 1, "r", true), [replied(1, 0)]);
    assert_eq!(lab.tick(), []);
    // A write of it that may still land is waited for.
    let second = erase_task(&lab.tick());
    assert_eq!(converted(&mut lab, second, Ok(()), held_shared(), (true, 1)), []);
    for _ in 0..5 {
        assert_eq!(lab.tick(), []);
    }
    assert_eq!(lab.settled(second), []);
    let third = erase_task(&lab.tick());
    assert_eq!(converted(&mut lab, third, Ok(()), held_shared(), (false, 0)), []);
    for _ in 0..5 {
        assert_eq!(lab.tick(), [], "done");
    }
    assert_eq!(lab.release(1, &["r"]), [replied(1, 0)]);
    release_of(&lab.release(0, &["r"]));
}

/// While the leader names this host, which holds the lease shared, others cannot share it.
#[test]
fn a_process_that_converts_again_and_again_does_not_keep_that_from_being_taken_back() {
    let mut lab = half_converted();
    let mut begun = lab.now;
    for attempt in 0..3 {
        let erase = loop {
            let task = convert_task(&convert(&mut lab, 0, "r", false));
            let refused = converted(&mut lab, task, Err(live_owner()), held_shared(), (true, 0));
            assert_eq!(refused, [replied(0, -243)]);
            assert!(lab.now.secs_since(begun) < 3, "attempt {attempt} does not begin");
            let actions = lab.tick();
            if !actions.is_empty() {
                break erase_task(&actions);
            }
        };
        begun = lab.now;
        assert_eq!(converted(&mut lab, erase, Ok(()), held_shared(), (true, 0)), []);
        assert_eq!(lab.quiet(Event::Tick), [], "not at once");
    }
}

/// Not even without a pause, so that every tick comes while a conversion runs.
#[test]
fn what_is_due_to_be_taken_back_is_when_a_conversion_ends() {
    let mut lab = half_converted();
    for second in 0..3 {
        let task = convert_task(&convert(&mut lab, 0, "r", false));
        assert_eq!(lab.tick(), [], "a conversion runs");
        let ended = converted(&mut lab, task, Err(live_owner()), held_shared(), (true, 0));
        assert_eq!(ended[0], replied(0, -243));
        if ended.len() > 1 {
            erase_task(&ended[1..]);
            return;
        }
        assert!(second < 2, "it is not begun");
    }
}

#[test]
fn a_hold_that_is_given_up_meanwhile_is_taken_back_after_it() {
    for (outstanding, start_fails) in [(0, false), (1, false), (0, true)] {
        let mut lab = half_converted();
        let task = erase_task(&lab.tick());
        assert_eq!(lab.release(0, &["r"]), [replied(0, 0)]);
        assert_eq!(lab.list("r"), Some(ResourceList::Rem));
        let mut actions = if start_fails {
            lab.quiet(Event::StartFailed { task, code: -5 })
        } else {
            converted(&mut lab, task, Ok(()), held_shared(), (true, outstanding))
        };
        if outstanding > 0 {
            assert_eq!(actions, []);
            actions = lab.settled(task);
        }
        let retract = retract_of(&actions);
        assert_eq!(lab.released(retract, Ok(Released::ByFlag), 0), []);
        assert_eq!(lab.resource("r"), None);
    }
}

/// Of several disks none that answers may have it: whatever takes a failed conversion back is told what that one wrote last.
#[test]
fn what_a_failed_conversion_wrote_last_is_passed_to_what_takes_it_back() {
    let mut newest = held_shared();
    newest.block.dblock.mbal = 4001.into();
    let failed = || Err(AcquireError::DblockWrite(IoFailure::Os(5)));
    let begun = || {
        let (mut lab, _) = Lab::ready();
        share(&mut lab, 0, "r");
        let task = convert_task(&convert(&mut lab, 0, "r", false));
        (lab, task)
    };
    let passed = |lab: &mut Lab, actions: Vec<Action>, what: &str| {
        let attempt_of = |actions: &[Action]| match actions.first() {
            Some(Action::StartRetract { attempt, .. }) => *attempt,
            other => panic!("{what}: {other:?}"),
        };
        assert_eq!(attempt_of(&actions), Some(newest.block), "{what}");
        lab.released(retract_of(&actions[..1]), Err(ReleaseError::Io(IoFailure::TimedOut)), 0);
        assert_eq!(attempt_of(&lab.tick()), Some(newest.block), "{what}, tried again");
    };
    let (mut lab, task) = begun();
    converted(&mut lab, task, failed(), newest, (true, 0));
    let released = lab.release(0, &["r"]);
    passed(&mut lab, released, "released after it");

    let (mut lab, task) = begun();
    converted(&mut lab, task, failed(), newest, (true, 1));
    assert_eq!(lab.release(0, &["r"]), [replied(0, -202)]);
    let settled = lab.settled(task);
    passed(&mut lab, settled, "released while a write of it may land");

    let (mut lab, task) = begun();
    lab.close(0);
    let ended = converted(&mut lab, task, failed(), newest, (true, 0));
    passed(&mut lab, ended, "its client gone meanwhile");

    // Beside what takes an earlier one back, which could not even begin.
    let (mut lab, task) = begun();
    converted(&mut lab, task, failed(), newest, (true, 0));
    let erase = loop {
        if let [Action::StartErase { task, .. }] = &lab.tick()[..] {
            break *task;
        }
    };
    assert_eq!(lab.release(0, &["r"]), [replied(0, 0)]);
    let ended = lab.quiet(Event::StartFailed { task: erase, code: -5 });
    passed(&mut lab, ended, "released while it is taken back");
}

#[test]
fn a_lockspace_that_ends_waits_for_what_is_being_taken_back() {
    let mut lab = half_converted();
    let task = erase_task(&lab.tick());
    lab.remove(9, "ls");
    lab.close(0);
    let gone = lab.pid_gone(0);
    assert!(!gone.iter().any(|a| matches!(a, Action::Leave { .. })), "{gone:?}");
    let end = converted(&mut lab, task, Ok(()), held_shared(), (false, 0));
    assert!(end.iter().any(|a| matches!(a, Action::Leave { release: true, .. })), "{end:?}");
}

/// W42: the reference records nobody for a lease that was acquired shared, and signals process 0.
#[test]
fn a_converted_lease_is_its_converters() {
    let (mut lab, ls) = Lab::ready();
    share(&mut lab, 0, "r");
    let resource = lab.resource("r").unwrap();
    let wanted = || vec![Request { resource, lver: 20, force_mode: 1 }];
    assert_eq!(lab.looked(ls, wanted()), [], "held shared: nobody is asked");
    let task = convert_task(&convert(&mut lab, 0, "r", false));
    assert_eq!(converted(&mut lab, task, Ok(()), held(GENERATION, 9), (false, 0)), [replied(0, 0)]);
    let kill = Action::Kill { conn: ConnId(0), pid: 100, signal: Signal::Kill };
    assert_eq!(lab.looked(ls, wanted()), [kill]);
}

#[test]
fn what_is_being_acquired_shows_for_whom_also_if_shared() {
    let (mut lab, _) = Lab::ready();
    ask(&mut lab, 1, "s", true);
    ask(&mut lab, 0, "r", false);
    let takers: Vec<_> = lab.m.resources().map(|(_, resource)| lab.m.taker(resource)).collect();
    assert_eq!(takers, [Some(100), Some(101)]);
    let flags: Vec<u32> = lab.m.resources().map(|(id, resource)| lab.m.flags(id, resource)).collect();
    assert_eq!(flags, [0, 1]);
}
