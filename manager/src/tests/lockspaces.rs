use super::lab::*;
use crate::*;
use sanlock_lease::delta::JoinError;
use sanlock_lease::machine::IoFailure;
use sanlock_lease::paxos::release::Released;
use sanlock_lease::text::LockspaceSpec;

fn add(spec: LockspaceSpec) -> Command {
    Command::AddLockspace { spec, io_timeout: 0, asynchronous: false }
}

fn rem(text: &str, unused: bool) -> Command {
    Command::RemLockspace { spec: ls_spec(text), asynchronous: false, unused }
}

fn other_host() -> LockspaceSpec {
    LockspaceSpec { host_id: 2, ..ls_spec("ls") }
}

fn other_name() -> LockspaceSpec {
    LockspaceSpec { name: name("other"), ..ls_spec("ls") }
}

#[test]
fn the_codes_of_each_state() {
    let mut lab = Lab::new();
    lab.open(9);
    // Absent.
    assert_eq!((lab.inq("ls"), lab.result(9, rem("ls", false))), (-2, -2));
    // Adding.
    let ls = lab.add("ls");
    let codes = |lab: &mut Lab| {
        let mut add = |spec| lab.result(9, add(spec));
        (add(ls_spec("ls")), add(other_host()), add(other_name()), lab.inq("ls"))
    };
    assert_eq!(codes(&mut lab), (-115, -22, -22, -115));
    // Active.
    lab.register(0, 100);
    lab.event(Event::JoinDone { ls, result: Ok(joined(GENERATION, lab.now)) });
    assert_eq!(codes(&mut lab), (-17, -22, -22, 0));
    lab.hold(0, "r");
    assert_eq!(lab.result(9, rem("ls", true)), -16, "in use");
    // Users being killed: still active, and a second removal waits as well.
    lab.remove(9, "ls");
    lab.open(8);
    assert_eq!(lab.remove(8, "ls"), []);
    lab.open(7);
    let again = lab.command(7, Command::InqLockspace { spec: ls_spec("ls"), wait: false });
    assert_eq!(again, [replied(7, 0)]);
    // Removing.
    lab.pid_gone(0);
    assert_eq!(lab.close(0)[1..], [Action::Leave { ls, release: true }]);
    lab.open(6);
    for (command, code) in [(add(ls_spec("ls")), -11), (add(other_host()), -22), (rem("ls", false), -115)] {
        assert_eq!(lab.result(6, command), code);
    }
    let inq = Command::InqLockspace { spec: ls_spec("ls"), wait: false };
    assert_eq!(lab.result(6, inq), -115);
    assert_eq!(lab.quiet(Event::Left { ls, writes: LeaseWrites::Freed }), [replied(9, 0), replied(8, 0)]);
    assert_eq!(lab.inq("ls"), -2);
}

#[test]
fn what_cannot_be_joined_is_refused() {
    let mut lab = Lab::new();
    lab.open(9);
    let spec = |change: &dyn Fn(&mut LockspaceSpec)| {
        let mut spec = ls_spec("ls");
        change(&mut spec);
        spec
    };
    assert_eq!(lab.result(9, add(spec(&|s| s.name = name("")))), -22);
    assert_eq!(lab.result(9, add(spec(&|s| s.path.clear()))), -22);
    assert_eq!(lab.result(9, add(spec(&|s| s.host_id = 0))), -22);
    assert_eq!(lab.result(9, add(spec(&|s| s.host_id = 2001))), -231);
    let slow = Command::AddLockspace { spec: ls_spec("ls"), io_timeout: 256, asynchronous: false };
    assert_eq!(lab.result(9, slow), -22);
}

#[test]
fn the_io_timeout_is_the_one_asked_for_or_the_default() {
    let mut lab = Lab::new();
    lab.open(9);
    for (asked, used) in [(0, 1), (20, 20)] {
        let spec = ls_spec(&format!("ls{asked}"));
        let add = Command::AddLockspace { spec, io_timeout: asked, asynchronous: true };
        let [Action::Join { io_timeout, .. }, _] = &lab.command(9, add)[..] else { panic!() };
        assert_eq!(io_timeout.secs(), used);
    }
}

#[test]
fn a_join_is_answered_at_its_end_and_so_are_those_who_wait_for_it() {
    let mut lab = Lab::new();
    for conn in 0..4 {
        lab.open(conn);
    }
    let [Action::Join { ls, .. }] = lab.command(0, add(ls_spec("ls")))[..] else { panic!() };
    let inq = |wait| Command::InqLockspace { spec: LockspaceSpec { host_id: 0, ..ls_spec("ls") }, wait };
    assert_eq!(lab.command(1, inq(true)), []);
    assert_eq!(lab.result(2, inq(false)), -115);
    assert_eq!(lab.command(3, inq(true)), []);
    lab.close(3);
    let answers = lab.quiet(Event::JoinDone { ls, result: Ok(joined(GENERATION, lab.now)) });
    assert_eq!(answers, [replied(0, 0), replied(1, 0)]);
    assert_eq!(lab.result(1, inq(true)), 0);
}

#[test]
fn a_failed_join_is_answered_with_its_reason_and_waiters_when_it_is_gone() {
    let mut lab = Lab::new();
    lab.open(0);
    lab.open(1);
    let [Action::Join { ls, .. }] = lab.command(0, add(ls_spec("ls")))[..] else { panic!() };
    lab.command(1, Command::InqLockspace { spec: ls_spec("ls"), wait: true });
    let result = Err(JoinError::Read(IoFailure::NotOpen(2)));
    let answers = lab.quiet(Event::JoinDone { ls, result });
    assert_eq!(answers, [replied(0, -19), Action::Leave { ls, release: false }]);
    assert_eq!(lab.quiet(Event::Left { ls, writes: LeaseWrites::Ended }), [replied(1, -2)]);
    lab.add("ls");
}

#[test]
fn a_removal_during_the_join_stops_it() {
    let mut lab = Lab::new();
    lab.open(0);
    lab.open(1);
    let [Action::Join { ls, .. }] = lab.command(0, add(ls_spec("ls")))[..] else { panic!() };
    assert_eq!(lab.remove(1, "ls"), [Action::Gone { ls }]);
    let result = Err(JoinError::Stopped { freed: true });
    let answers = lab.quiet(Event::JoinDone { ls, result });
    assert_eq!(answers, [replied(0, -201), Action::Leave { ls, release: false }]);
    assert_eq!(lab.quiet(Event::Left { ls, writes: LeaseWrites::Ended }), [replied(1, 0)]);
}

#[test]
fn a_removal_at_the_last_moment_gives_the_fresh_lease_back() {
    let mut lab = Lab::new();
    lab.open(0);
    lab.open(1);
    let [Action::Join { ls, .. }] = lab.command(0, add(ls_spec("ls")))[..] else { panic!() };
    lab.remove(1, "ls");
    let answers = lab.event(Event::JoinDone { ls, result: Ok(joined(GENERATION, lab.now)) });
    assert_eq!(answers, [Action::Leave { ls, release: true }, replied(0, -1)]);
    assert_eq!(lab.tick(), []);
    assert_eq!(lab.quiet(Event::Left { ls, writes: LeaseWrites::Ended }), [replied(1, 0)]);
}

#[test]
fn an_unused_lockspace_goes_at_once() {
    let (mut lab, ls) = Lab::ready();
    lab.open(50);
    let command = Command::RemLockspace { spec: ls_spec("ls"), asynchronous: true, unused: true };
    let actions = lab.event(Event::Command { conn: ConnId(50), command });
    assert_eq!(actions, [replied(50, 0), Action::Gone { ls }, Action::Leave { ls, release: true }]);
    // Its record counts as long as its host id is not free.
    let drop = Action::DropRejoin { spec: ls_spec("ls") };
    assert_eq!(lab.event(Event::Left { ls, writes: LeaseWrites::Freed }), [drop]);
}

#[test]
fn a_resource_being_released_counts_as_used() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "r");
    let (task, _) = release_of(&lab.release(0, &["r"]));
    assert_eq!(lab.result(9, rem("ls", true)), -16);
    lab.released(task, timed_out(), 0);
    assert_eq!(lab.result(9, rem("ls", true)), -16);
}

#[test]
fn names_match_exactly_but_host_id_zero_matches_any() {
    let (mut lab, _) = Lab::ready();
    for (change, code) in [
        (&(|s: &mut LockspaceSpec| s.host_id = 0) as &dyn Fn(&mut LockspaceSpec), 0),
        (&|s| s.host_id = 2, -2),
        (&|s| s.offset = 512, -2),
        (&|s| s.path.push(b'/'), -2),
    ] {
        let mut spec = ls_spec("ls");
        change(&mut spec);
        assert_eq!(lab.result(9, Command::InqLockspace { spec, wait: false }), code);
    }
}

#[test]
fn a_removal_waits_for_releases_and_their_writes() {
    let (mut lab, ls) = Lab::ready();
    lab.hold(0, "r");
    let (task, _) = release_of(&lab.release(0, &["r"]));
    assert_eq!(lab.remove(9, "ls"), [Action::Gone { ls }]);
    assert_eq!(lab.released(task, timed_out(), 1), [replied(0, -202)]);
    assert_eq!(lab.tick(), []);
    assert_eq!(lab.settled(task), [Action::Leave { ls, release: true }]);
}

#[test]
fn a_removal_gives_writes_two_minutes_and_then_keeps_the_host_id() {
    let (mut lab, ls) = Lab::ready();
    lab.hold(0, "r");
    let (task, _) = release_of(&lab.release(0, &["r"]));
    lab.released(task, timed_out(), 1);
    lab.remove(9, "ls");
    for _ in 0..DRAIN_SECS - 1 {
        assert_eq!(lab.tick(), []);
    }
    assert_eq!(lab.tick(), [Action::Leave { ls, release: false }]);
}

#[test]
fn a_removal_after_a_failed_renewal_keeps_the_host_id() {
    let (mut lab, ls) = Lab::ready();
    let failed = Event::RenewalFailed { ls, code: -202, text: "slow".to_owned() };
    assert_eq!(lab.quiet(failed), []);
    assert_eq!(lab.remove(9, "ls"), [Action::Gone { ls }, Action::Leave { ls, release: false }]);
}

#[test]
fn releases_waiting_to_be_repeated_do_not_hold_a_removal() {
    let (mut lab, ls) = Lab::ready();
    lab.hold(0, "r");
    let (task, _) = release_of(&lab.release(0, &["r"]));
    lab.released(task, timed_out(), 0);
    assert_eq!(lab.remove(9, "ls"), [Action::Gone { ls }, Action::Leave { ls, release: true }]);
    assert_eq!(lab.m.resources().count(), 0);
}

#[test]
fn the_history_remembers_so_many_renewals_and_counts_failures_after_each() {
    let (mut lab, ls) = Lab::ready();
    for _ in 0..5 {
        lab.tick();
    }
    for code in [-202, -202, -5] {
        lab.event(Event::RenewalFailed { ls, code, text: String::new() });
    }
    let (_, lockspace) = lab.m.lockspace_named(&name("ls")).unwrap();
    assert_eq!(lockspace.history.len(), 3);
    let last = lockspace.history.back().unwrap();
    assert_eq!((last.timestamp, last.next_timeouts, last.next_errors), (1005, 2, 1));
}

#[test]
fn a_lockspace_whose_thread_breaks_off_ends_with_its_users() {
    let (mut lab, ls) = Lab::ready();
    lab.renews = false;
    lab.hold(0, "r");
    let [Action::Gone { .. }, Action::Kill { signal: Signal::Term, .. }] =
        lab.quiet(Event::Left { ls, writes: LeaseWrites::Ended })[..]
    else {
        panic!()
    };
    assert_eq!(lab.tokens(0), ["r"]);
    lab.pid_gone(0);
    assert_eq!(lab.close(0), [Action::Forget { conn: ConnId(0) }], "nobody is left to be told to leave");
    assert_eq!(lab.inq("ls"), -2);
}

#[test]
fn there_are_so_many_lockspaces_and_waiters_at_most() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "r");
    for n in 0..WAITERS_MAX as u64 {
        lab.open(1000 + n);
        lab.command(1000 + n, rem("ls", false));
    }
    lab.open(900);
    assert_eq!(lab.result(900, rem("ls", false)), -16);
    for n in 1..LOCKSPACES_MAX {
        lab.add(&format!("n{n}"));
    }
    assert_eq!(lab.result(900, add(ls_spec("toomany"))), -28);
    let released = Ok(Released::LeaderFreed);
    assert_eq!(lab.released(TaskId(0), released, 0), [], "an unknown task is nobody's");
}
