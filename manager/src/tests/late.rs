use super::lab::*;
use crate::*;
use sanlock_lease::delta::JoinError;
use sanlock_lease::machine::IoFailure;
use sanlock_lease::text::LockspaceSpec;

/// A join whose write hangs, given up.
fn failed_join(lab: &mut Lab) -> LockspaceId {
    lab.open(9);
    let ls = lab.add("ls");
    lab.quiet(Event::JoinDone { ls, result: Err(JoinError::Write(IoFailure::TimedOut)) });
    assert_eq!(lab.result(9, add(ls_spec("ls"))), -11, "its thread waits for the write");
    assert_eq!(lab.event(Event::Left { ls, writes: LeaseWrites::Outstanding }), []);
    assert_eq!(lab.inq("ls"), -2);
    ls
}

fn add(spec: LockspaceSpec) -> Command {
    Command::AddLockspace { spec, io_timeout: 0, asynchronous: true }
}

fn is_join(actions: &[Action]) -> bool {
    matches!(actions, [Action::Join { .. }, Action::Reply { .. }])
}

#[test]
fn a_host_id_is_not_joined_with_while_a_write_of_an_earlier_join_may_land() {
    let mut lab = Lab::new();
    let ls = failed_join(&mut lab);
    let same_disk = LockspaceSpec { name: name("other"), ..ls_spec("ls") };
    let same_name = LockspaceSpec { path: b"/by/another/path".to_vec(), ..ls_spec("ls") };
    for spec in [ls_spec("ls"), same_disk, same_name] {
        let mut out = Vec::new();
        let command = Event::Command { conn: ConnId(9), command: add(spec) };
        lab.m.handle(lab.now, command, &mut out);
        assert!(out.contains(&replied(9, -11)), "{out:?}");
        let told = |a: &Action| matches!(a, Action::Log { level: Level::Error, text, .. } if text.contains("may still land"));
        assert!(out.iter().any(told), "it is said why: {out:?}");
    }
    // Ticks change nothing: there is no limit.
    lab.now = lab.now.plus_secs(100_000);
    lab.quiet(Event::Tick);
    assert_eq!(lab.result(9, add(ls_spec("ls"))), -11);
    assert_eq!(lab.event(Event::LeaseSettled { ls }), []);
    assert!(is_join(&lab.command(9, add(ls_spec("ls")))));
}

#[test]
fn what_a_late_write_cannot_land_on_is_joined() {
    let mut lab = Lab::new();
    let ls = failed_join(&mut lab);
    let other_host = LockspaceSpec { host_id: 2, ..ls_spec("ls") };
    assert!(is_join(&lab.command(9, add(other_host))));
    assert!(is_join(&lab.command(9, add(ls_spec("two")))));
    // Whoever is to wait for the write can be joined already under another host id when it ends.
    assert_eq!(lab.event(Event::LeaseSettled { ls }), []);
    assert_eq!(lab.result(9, add(ls_spec("ls"))), -22);
}

#[test]
fn a_lockspace_that_was_joined_is_not_joined_again_while_its_last_write_may_land() {
    let (mut lab, ls) = Lab::ready();
    assert_eq!(lab.remove(9, "ls")[1..], [Action::Leave { ls, release: true }]);
    // The write that frees the lease hangs: landing later, it would offer the host id of a joined lockspace to others.
    assert_eq!(lab.quiet(Event::Left { ls, writes: LeaseWrites::Outstanding }), [replied(9, 0)]);
    assert_eq!(lab.result(9, add(ls_spec("ls"))), -11);
    lab.event(Event::LeaseSettled { ls });
    assert!(is_join(&lab.command(9, add(ls_spec("ls")))));
}

#[test]
fn a_thread_that_broke_off_leaves_its_late_write_known() {
    let (mut lab, ls) = Lab::ready();
    lab.quiet(Event::Left { ls, writes: LeaseWrites::Outstanding });
    assert_eq!(lab.inq("ls"), -2);
    assert_eq!(lab.result(9, add(ls_spec("ls"))), -11);
    lab.event(Event::LeaseSettled { ls });
    assert!(is_join(&lab.command(9, add(ls_spec("ls")))));
}

#[test]
fn a_late_write_keeps_no_daemon_from_its_end_and_counts_as_a_lockspace() {
    let mut lab = Lab::new();
    failed_join(&mut lab);
    let spec = |n: usize| ls_spec(&format!("more{n}"));
    for n in 1..LOCKSPACES_MAX {
        assert!(is_join(&lab.command(9, add(spec(n)))));
    }
    assert_eq!(lab.result(9, add(spec(LOCKSPACES_MAX))), -28);
    let mut lab = Lab::new();
    failed_join(&mut lab);
    assert_eq!(lab.event(Event::Signal), [Action::ShuttingDown, Action::Exit]);
}
