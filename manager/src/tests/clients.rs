use super::lab::*;
use crate::*;

fn inquire(pid: i32) -> Command {
    Command::Inquire { target: Target::Pid(pid) }
}

#[test]
fn targets_are_checked_in_order() {
    let (mut lab, _) = Lab::ready();
    assert_eq!(lab.result(9, inquire(555)), -3, "nobody has that pid");
    assert_eq!(lab.result(9, Command::Inquire { target: Target::Own }), -16, "not registered");
    lab.register(5, 0);
    assert_eq!(lab.result(5, Command::Inquire { target: Target::Own }), -16, "in another pid namespace");
    let refused = |acquire| Command::Refused { target: Target::Pid(100), acquire, code: -90 };
    assert_eq!(lab.result(9, refused(true)), -90);
    lab.m.conns.get_mut(&ConnId(0)).unwrap().kill_count = 1;
    assert_eq!(lab.result(9, refused(true)), -16, "being killed");
    assert_eq!(lab.result(9, refused(false)), -90, "which may still release and inquire");
}

#[test]
fn a_pid_names_its_lowest_slot() {
    let (mut lab, _) = Lab::ready();
    lab.register(7, 100);
    lab.hold(7, "seven");
    let empty = Action::Reply { conn: ConnId(9), reply: Reply::Held(vec![]) };
    assert_eq!(lab.command(9, inquire(100)), [empty]);
}

/// A descendant of the process that had the pid before may keep its connection, in a lower slot and for long.
#[test]
fn a_pid_names_its_living_process_before_one_that_is_known_to_be_gone() {
    let (mut lab, _) = Lab::ready();
    lab.pid_gone(0);
    lab.register(5, 100);
    let actions = lab.acquire(9, Target::Pid(100), &["r"]);
    assert_eq!(lab.acquired(task(&actions), 0), [replied(9, 0)]);
    assert_eq!((lab.tokens(0), lab.tokens(5)), (vec![], vec!["r".to_owned()]));
}

#[test]
fn a_busy_target_is_refused_to_everybody() {
    let (mut lab, _) = Lab::ready();
    let first = task(&lab.acquire(9, Target::Pid(100), &["a"]));
    assert!(lab.m.conns[&ConnId(0)].is_busy());
    assert_eq!(lab.acquire(1, Target::Pid(100), &["b"]), [replied(1, -16)]);
    assert_eq!(lab.result(1, inquire(100)), -16);
    let release = Command::Release { target: Target::Pid(100), what: ReleaseWhat::All };
    assert_eq!(lab.result(1, release), -16);
    // The requester's own leases are not concerned.
    task(&lab.acquire(2, Target::Own, &["b"]));
    lab.acquired(first, 0);
    assert!(!lab.m.conns[&ConnId(0)].is_busy());
}

#[test]
fn registering_again_changes_nothing() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "r");
    assert_eq!(lab.command(0, Command::Register { pid: 777 }), []);
    assert_eq!((lab.tokens(0), lab.m.conns[&ConnId(0)].pid), (vec!["r".to_owned()], Some(100)));
}

#[test]
fn a_restricted_connection_is_muted_until_another_says_otherwise() {
    let (mut lab, _) = Lab::ready();
    assert_eq!(lab.result(0, Command::Restrict { flags: 6 }), 0);
    assert!(!lab.m.is_muted(ConnId(0)));
    assert_eq!(lab.result(0, Command::Restrict { flags: 1 }), 0);
    assert!(lab.m.is_muted(ConnId(0)) && !lab.m.is_muted(ConnId(1)));
}

#[test]
fn a_closed_connection_gives_everything_back_and_is_forgotten_at_once() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "a");
    lab.hold(0, "b");
    let actions = lab.close(0);
    let [first, second, Action::Forget { conn: ConnId(0) }] = &actions[..] else { panic!("{actions:?}") };
    let (first, a) = release_of(std::slice::from_ref(first));
    assert_eq!((a.as_str(), release_of(std::slice::from_ref(second)).1.as_str()), ("a", "b"));
    let released = Ok(sanlock_lease::paxos::release::Released::LeaderFreed);
    assert_eq!(lab.released(first, released, 0), []);
}

#[test]
fn a_dead_process_whose_child_holds_the_connection_keeps_its_leases() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "a");
    assert_eq!(lab.pid_gone(0), []);
    for _ in 0..100 {
        assert_eq!(lab.tick(), []);
    }
    assert_eq!(lab.tokens(0), ["a"]);
    assert_eq!(lab.close(0).len(), 2, "released and forgotten");
}

#[test]
fn places_of_released_leases_are_used_again() {
    let (mut lab, _) = Lab::ready();
    for r in ["a", "b", "c"] {
        lab.hold(0, r);
    }
    lab.release(0, &["a"]);
    let task = lab.m.tasks.keys().next().copied().unwrap();
    lab.released(task, Ok(sanlock_lease::paxos::release::Released::LeaderFreed), 0);
    lab.hold(0, "d");
    assert_eq!(lab.tokens(0), ["d", "b", "c"]);
}
