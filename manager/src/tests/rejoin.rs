use super::lab::*;
use crate::*;
use sanlock_lease::delta::Instance;
use sanlock_lease::timing::IoTimeout;

/// The records asked for, as (serial, pids, outlived).
fn records(actions: &[Action]) -> Vec<(u64, Vec<i32>, bool)> {
    let record = |a: &Action| match a {
        Action::SaveRejoin { serial, record, .. } => Some((*serial, record.pids.clone(), record.outlived)),
        _ => None,
    };
    actions.iter().filter_map(record).collect()
}

fn start(lab: &mut Lab, conn: u64, resource: &str) -> Vec<Action> {
    let task = task(&lab.acquire(conn, Target::Own, &[resource]));
    let outcome = sanlock_lease::paxos::acquire::AcquireOutcome::Acquired(held(GENERATION, 7));
    lab.event(Event::AcquireDone { task, outcome, value: None, outstanding: 0 })
}

#[test]
fn a_process_is_granted_nothing_before_it_is_in_the_record() {
    let (mut lab, ls) = Lab::ready();
    lab.saves = false;
    let actions = start(&mut lab, 0, "r");
    assert_eq!(records(&actions), [(2, vec![100], false)]);
    assert_eq!(actions.len(), 1);
    assert_eq!(lab.event(Event::RejoinSaved { ls, serial: 1 }), [], "the one of the join");
    assert_eq!(lab.tokens(0), [""; 0]);
    assert_eq!(lab.event(Event::RejoinSaved { ls, serial: 2 }), [replied(0, 0)]);
    // Once is enough.
    assert_eq!(start(&mut lab, 0, "s"), [replied(0, 0)]);
    assert_eq!(records(&start(&mut lab, 1, "t")), [(3, vec![100, 101], false)]);
}

#[test]
fn a_pid_that_is_used_again_is_another_process() {
    let (mut lab, _) = Lab::ready();
    start(&mut lab, 0, "r");
    lab.pid_gone(0);
    lab.close(0);
    lab.register(5, 100);
    assert_eq!(records(&start(&mut lab, 5, "s")), [(4, vec![100], false)], "with its own start time");
}

#[test]
fn the_record_says_that_unknown_processes_may_live_once_a_child_holds_the_connection() {
    let (mut lab, _) = Lab::ready();
    start(&mut lab, 0, "r");
    assert_eq!(records(&lab.event(Event::PidGone { conn: ConnId(0) })), [(3, vec![], true)]);
    assert_eq!(records(&start(&mut lab, 1, "s")), [(4, vec![101], true)], "as long as it does");
    lab.close(0);
    assert_eq!(records(&start(&mut lab, 2, "t")), [(5, vec![101, 102], false)]);
}

#[test]
fn a_process_that_dies_while_its_record_is_written_waits_for_the_next_one() {
    let (mut lab, ls) = Lab::ready();
    lab.saves = false;
    start(&mut lab, 0, "r");
    assert_eq!(records(&lab.event(Event::PidGone { conn: ConnId(0) })), [(3, vec![], true)]);
    assert_eq!(lab.event(Event::RejoinSaved { ls, serial: 2 }), []);
    assert_eq!(lab.event(Event::RejoinSaved { ls, serial: 3 }), [replied(0, 0)]);
}

#[test]
fn a_child_that_acquires_on_the_connection_of_a_dead_process_is_recorded() {
    let (mut lab, _) = Lab::ready();
    assert_eq!(lab.event(Event::PidGone { conn: ConnId(0) }), []);
    assert_eq!(records(&start(&mut lab, 0, "r")), [(2, vec![], true)]);
}

#[test]
fn a_client_that_hangs_up_while_the_record_is_written_gets_nothing() {
    let (mut lab, _) = Lab::ready();
    lab.saves = false;
    start(&mut lab, 0, "r");
    release_of(&lab.close(0));
}

#[test]
fn a_lockspace_that_dies_while_the_record_is_written_grants_nothing() {
    let (mut lab, ls) = Lab::ready();
    lab.saves = false;
    start(&mut lab, 0, "r");
    let actions = lab.remove(9, "ls");
    let end = [Action::Gone { ls }, Action::Leave { ls, release: true }, replied(0, -28)];
    assert_eq!(actions, end);
}

#[test]
fn a_lockspace_left_without_users_is_recorded_as_such_unless_a_write_may_outlive_it() {
    for (outstanding, outlived) in [(0, false), (1, true)] {
        let (mut lab, ls) = Lab::ready();
        lab.hold(0, "r");
        lab.hold(1, "s");
        let (task, _) = release_of(&lab.release(1, &["s"]));
        lab.released(task, timed_out(), outstanding);
        lab.pid_gone(0);
        lab.event(Event::Corrupt { ls, code: -260, text: String::new() });
        let mut actions = lab.event(Event::ConnClosed { conn: ConnId(0) });
        for _ in 0..DRAIN_SECS {
            lab.now = lab.now.plus_secs(1);
            actions.extend(lab.event(Event::Tick));
        }
        let [(_, pids, found)] = &records(&actions)[..] else { panic!("{actions:?}") };
        assert_eq!((pids.as_slice(), *found), (&[][..], outlived));
        assert_eq!(actions.last(), Some(&Action::Leave { ls, release: false }));
    }
}

/// With a write outstanding, and left without a watchdog: the serial of the record that says so, and what was asked for with it.
fn leaving_with_a_write(lab: &mut Lab) -> (u64, Vec<Action>) {
    lab.hold(0, "r");
    let (task, _) = release_of(&lab.release(0, &["r"]));
    lab.released(task, timed_out(), 1);
    lab.remove(9, "ls");
    lab.saves = false;
    let mut actions = Vec::new();
    for _ in 0..DRAIN_SECS {
        lab.now = lab.now.plus_secs(1);
        actions.extend(lab.event(Event::Tick));
    }
    let [(serial, _, true)] = records(&actions)[..] else { panic!("{actions:?}") };
    actions.retain(|a| !matches!(a, Action::SaveRejoin { .. } | Action::RunOnFail { .. }));
    (serial, actions)
}

/// Renewals end at once, whatever the run directory does: others are to take over what is not used any more. Only the next join waits.
#[test]
fn a_lockspace_is_forgotten_once_the_record_of_what_may_outlive_it_is_written() {
    let add = || Command::AddLockspace { spec: ls_spec("ls"), io_timeout: 0, asynchronous: true };
    for thread_first in [true, false] {
        let (mut lab, ls) = Lab::ready();
        let (serial, actions) = leaving_with_a_write(&mut lab);
        assert_eq!(actions, [Action::Leave { ls, release: false }]);
        assert_eq!(lab.event(Event::RejoinSaved { ls, serial: serial - 1 }), []);
        assert_eq!(lab.result(9, add()), -11, "whoever joins next would believe the record before");
        let (saved, left) =
            (Event::RejoinSaved { ls, serial }, Event::Left { ls, writes: LeaseWrites::Ended });
        let [first, second] = if thread_first { [left, saved.clone()] } else { [saved.clone(), left] };
        assert_eq!(lab.event(first), []);
        assert_eq!(lab.inq("ls"), -115);
        assert_eq!(lab.event(second), [replied(9, 0)]);
        assert_eq!(lab.event(saved), [], "once");
        assert_eq!(lab.inq("ls"), -2);
    }
}

#[test]
fn a_lockspace_whose_own_writes_did_not_end_in_time_is_there_until_the_record_says_so() {
    for writes in [LeaseWrites::Overtaken, LeaseWrites::Outstanding] {
        let (mut lab, ls) = Lab::ready();
        let (first, _) = leaving_with_a_write(&mut lab);
        let actions = lab.event(Event::Left { ls, writes });
        let [(serial, _, true)] = records(&actions)[..] else { panic!("{actions:?}") };
        assert_eq!(lab.event(Event::RejoinSaved { ls, serial: first }), []);
        assert_eq!(lab.inq("ls"), -115);
        assert_eq!(lab.event(Event::RejoinSaved { ls, serial }), [replied(9, 0)]);
        assert_eq!(lab.inq("ls"), -2);
    }
}

/// Nobody knows otherwise why it cannot be added again, and why a shutdown waits.
#[test]
fn a_record_that_is_not_written_is_told_of_once() {
    let (mut lab, ls) = Lab::ready();
    let (serial, _) = leaving_with_a_write(&mut lab);
    let mut told = Vec::new();
    for _ in 0..4 {
        lab.now = lab.now.plus_secs(1);
        let mut out = Vec::new();
        lab.m.handle(lab.now, Event::Tick, &mut out);
        let tells = |a: &&Action| matches!(a, Action::Log { text, .. } if text.contains("run directory"));
        told.push(out.iter().filter(tells).count());
    }
    assert_eq!(told, [1, 0, 0, 0]);
    lab.event(Event::Left { ls, writes: LeaseWrites::Ended });
    assert_eq!(lab.event(Event::RejoinSaved { ls, serial }), [replied(9, 0)]);
}

#[test]
fn a_thread_that_broke_off_vouches_for_nothing() {
    let (mut lab, ls) = Lab::ready();
    lab.saves = false;
    let actions = lab.event(Event::Left { ls, writes: LeaseWrites::Ended });
    let [(serial, _, outlived)] = records(&actions)[..] else { panic!("{actions:?}") };
    assert!(outlived, "nobody waited for its last write of the host_id lease");
    assert_eq!(lab.inq("ls"), -115);
    lab.event(Event::RejoinSaved { ls, serial });
    assert_eq!(lab.inq("ls"), -2);
}

/// The paths went down just before: the next join knows that nobody is left, and waits 2T.
#[test]
fn of_a_host_id_that_could_not_be_freed_the_record_says_that_nobody_is_left() {
    let (mut lab, ls) = Lab::ready();
    lab.saves = false;
    let removed = lab.remove(9, "ls");
    assert!(matches!(removed[..], [.., Action::Leave { release: true, .. }]), "{removed:?}");
    assert!(!removed.iter().any(|action| matches!(action, Action::DropRejoin { .. })), "{removed:?}");
    let actions = lab.event(Event::Left { ls, writes: LeaseWrites::Ended });
    let [(serial, ref pids, false)] = records(&actions)[..] else { panic!("{actions:?}") };
    assert!(pids.is_empty() && actions.len() == 1, "{actions:?}");
    assert_eq!(lab.event(Event::RejoinSaved { ls, serial }), [replied(9, 0)]);
    assert_eq!(lab.inq("ls"), -2);
}

#[test]
fn what_a_thread_adds_about_its_writes_comes_behind_all_that_was_recorded_before() {
    for writes in [LeaseWrites::Overtaken, LeaseWrites::Outstanding] {
        let (mut lab, ls) = Lab::ready();
        lab.saves = false;
        // The record of a process, still to be written when the lockspace is left.
        let earlier = records(&start(&mut lab, 0, "r"));
        assert!(matches!(earlier[..], [(_, _, false)]), "{earlier:?}");
        lab.pid_gone(0);
        let (release, _) = release_of(&lab.close(0));
        lab.released(release, Ok(sanlock_lease::paxos::release::Released::LeaderFreed), 0);
        let rem = Command::RemLockspace { spec: ls_spec("ls"), asynchronous: false, unused: false };
        let left = lab.event(Event::Command { conn: ConnId(9), command: rem });
        assert!(matches!(left[..], [.., Action::Leave { release: true, .. }]));
        let actions = lab.event(Event::Left { ls, writes });
        let [(serial, _, true)] = records(&actions)[..] else { panic!("{actions:?}") };
        // What was noted for the time after a reboot would vouch for what the disk shows once that write has landed over another host's.
        let dropped = matches!(actions[0], Action::DropRejoin { .. });
        assert!(dropped && actions.len() == 2, "nobody may join before it is written: {actions:?}");
        for (earlier, _, _) in earlier {
            assert_eq!(lab.event(Event::RejoinSaved { ls, serial: earlier }), []);
        }
        assert_eq!(lab.event(Event::RejoinSaved { ls, serial }), [replied(9, 0)]);
        assert_eq!(lab.inq("ls"), -2);
    }
}

#[test]
fn the_record_names_lockspace_host_place_and_generation() {
    let mut lab = Lab::new();
    let ls = lab.add("ls");
    let actions = lab.event(Event::JoinDone { ls, result: Ok(joined(GENERATION, lab.now)) });
    let record = RejoinRecord {
        spec: ls_spec("ls"),
        instance: Instance { generation: GENERATION, io_timeout: IoTimeout::new(1).unwrap() },
        pids: vec![],
        outlived: false,
    };
    assert_eq!(actions, [Action::SaveRejoin { ls, serial: 1, record }]);
}
