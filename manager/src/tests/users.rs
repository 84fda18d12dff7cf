use super::lab::*;
use crate::*;

/// The signals of each second, from the second after the last renewal on, as (second, conn, signal).
fn signals(lab: &mut Lab, seconds: u64) -> Vec<(u64, u64, Signal)> {
    let start = lab.now;
    let mut all = Vec::new();
    for _ in 0..seconds {
        for action in lab.tick() {
            if let Action::Kill { conn, signal, .. } = action {
                all.push((lab.now.secs_since(start), conn.0, signal));
            }
        }
    }
    all
}

#[test]
fn a_failed_lockspace_terminates_its_users_for_forty_seconds_and_kills_them_then() {
    let (mut lab, ls) = Lab::ready();
    lab.hold(0, "r");
    lab.renews = false;
    assert_eq!(signals(&mut lab, 7), []);
    assert_eq!(lab.inq("ls"), 0);
    lab.now = lab.now.plus_secs(1);
    let kill = |signal| Action::Kill { conn: ConnId(0), pid: 100, signal };
    assert_eq!(lab.quiet(Event::Tick), [Action::Gone { ls }, kill(Signal::Term)]);
    assert_eq!(lab.quiet(Event::Tick), [], "not twice a second");
    let expected: Vec<_> = (9..48).map(|s| (s - 8, 0, Signal::Term)).collect();
    assert_eq!(signals(&mut lab, 39), expected);
    assert_eq!(signals(&mut lab, 3), [(1, 0, Signal::Kill), (2, 0, Signal::Kill), (3, 0, Signal::Kill)]);
    assert_eq!(lab.inq("ls"), 0, "still joined while its users live");
    // The connection alone is not the end of the process.
    assert_eq!(lab.close(0), []);
    assert_eq!(signals(&mut lab, 1), [(1, 0, Signal::Kill)]);
    let end = [Action::Forget { conn: ConnId(0) }, Action::Leave { ls, release: false }];
    assert_eq!(lab.pid_gone(0), end);
}

#[test]
fn nor_is_the_process_alone_the_end_of_its_children() {
    let (mut lab, ls) = Lab::ready();
    lab.hold(0, "r");
    lab.remove(9, "ls");
    lab.pid_gone(0);
    assert_eq!(signals(&mut lab, 30), [], "nobody is there to be signalled");
    let end = [Action::Forget { conn: ConnId(0) }, Action::Leave { ls, release: true }];
    assert_eq!(lab.close(0), end);
}

#[test]
fn renewals_that_succeed_again_save_no_failed_lockspace() {
    let (mut lab, ls) = Lab::ready();
    lab.hold(0, "r");
    lab.renews = false;
    signals(&mut lab, 8);
    lab.renews = true;
    assert!(signals(&mut lab, 60).iter().all(|(_, _, s)| *s == Signal::Term), "but lengthen the gentle time");
    assert_eq!(lab.acquire(1, Target::Own, &["x"]), [replied(1, -28)]);
    lab.pid_gone(0);
    let end = lab.close(0);
    assert_eq!(end[1..], [Action::Leave { ls, release: true }], "but others need not wait for it");
}

#[test]
fn a_removed_lockspace_kills_its_users_at_once() {
    let (mut lab, ls) = Lab::ready();
    lab.hold(0, "r");
    let kill = Action::Kill { conn: ConnId(0), pid: 100, signal: Signal::Kill };
    assert_eq!(lab.remove(9, "ls"), [Action::Gone { ls }, kill]);
    assert_eq!(signals(&mut lab, 2), [(1, 0, Signal::Kill), (2, 0, Signal::Kill)]);
}

#[test]
fn the_removal_of_a_failed_lockspace_ends_the_gentle_time() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "r");
    lab.renews = false;
    signals(&mut lab, 8);
    lab.remove(9, "ls");
    assert_eq!(signals(&mut lab, 1), [(1, 0, Signal::Kill)]);
}

#[test]
fn a_corrupt_lease_fails_the_lockspace_at_once() {
    let (mut lab, ls) = Lab::ready();
    lab.hold(0, "r");
    let actions = lab.quiet(Event::Corrupt { ls, code: -260, text: "not ours".to_owned() });
    let kill = Action::Kill { conn: ConnId(0), pid: 100, signal: Signal::Term };
    assert_eq!(actions, [Action::Gone { ls }, kill]);
    lab.pid_gone(0);
    assert_eq!(lab.close(0)[1..], [Action::Leave { ls, release: false }]);
}

#[test]
fn a_client_that_gives_everything_up_in_time_is_left_alone() {
    let (mut lab, ls) = Lab::ready();
    lab.hold(0, "r");
    lab.hold(1, "s");
    lab.renews = false;
    signals(&mut lab, 8);
    assert_eq!(lab.acquire(0, Target::Own, &[]), [replied(0, -16)], "being killed");
    assert_eq!(lab.release(0, &["r"]), [replied(0, 0)]);
    assert_eq!(signals(&mut lab, 1), [(1, 1, Signal::Term)]);
    assert_eq!(lab.acquire(0, Target::Own, &[]), [replied(0, 0)]);
    let last = lab.release(1, &["s"]);
    assert_eq!(last, [replied(1, 0), Action::Leave { ls, release: false }]);
}

#[test]
fn only_users_of_the_failed_lockspace_are_killed() {
    let (mut lab, ls) = Lab::ready();
    lab.join("two");
    lab.hold(0, "r");
    lab.hold(1, "two:s");
    lab.event(Event::Corrupt { ls, code: -260, text: String::new() });
    assert!(signals(&mut lab, 3).iter().all(|(_, conn, _)| *conn == 0));
}

#[test]
fn a_closed_connection_gives_back_what_it_holds_in_healthy_lockspaces() {
    let (mut lab, _) = Lab::ready();
    lab.join("two");
    lab.hold(0, "r");
    lab.hold(0, "two:s");
    lab.remove(9, "ls");
    assert_eq!(release_of(&lab.close(0)).1, "s");
    assert_eq!(lab.tokens(0), ["r"], "in the dead one it is a user until its process is gone");
}

#[test]
fn a_process_that_survives_a_hundred_signals_gets_one_in_ten_seconds() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "r");
    lab.remove(9, "ls");
    assert_eq!(signals(&mut lab, 98).len(), 98);
    assert_eq!(lab.m.lockspaces().next().unwrap().1.killing, 1);
    assert_eq!(signals(&mut lab, 101).len(), 11);
    assert_eq!(lab.m.lockspaces().next().unwrap().1.killing, 2);
}

#[test]
fn a_failed_lockspace_waits_for_writes_too() {
    let (mut lab, ls) = Lab::ready();
    lab.hold(0, "r");
    let (task, _) = release_of(&lab.release(0, &["r"]));
    lab.released(task, timed_out(), 1);
    lab.renews = false;
    signals(&mut lab, 20);
    assert_eq!(lab.settled(task), [Action::Leave { ls, release: false }]);
}
