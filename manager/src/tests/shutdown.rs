use super::lab::*;
use crate::*;
use sanlock_lease::delta::JoinError;

#[test]
fn a_signal_ends_the_daemon_only_without_lockspaces() {
    let mut lab = Lab::new();
    assert_eq!(lab.event(Event::Signal), [Action::ShuttingDown, Action::Exit]);
    assert_eq!(lab.event(Event::Signal), [], "once");
}

#[test]
fn a_lockspace_in_any_state_makes_a_signal_be_ignored_and_nothing_is_aborted() {
    let mut lab = Lab::new();
    lab.open(9);
    let ls = lab.add("ls");
    let refused = |lab: &mut Lab| {
        assert_eq!(lab.event(Event::Signal), []);
        assert_eq!(lab.command(9, Command::Shutdown { force: false }), []);
        assert_eq!(lab.result(9, Command::ShutdownWait { force: false }), -16);
        assert!(!lab.m.is_shutting_down());
    };
    refused(&mut lab);
    lab.event(Event::JoinDone { ls, result: Ok(joined(GENERATION, lab.now)) });
    refused(&mut lab);
    lab.open(8);
    lab.remove(8, "ls");
    refused(&mut lab);
    assert_eq!(
        lab.quiet(Event::Left { ls, writes: LeaseWrites::Freed }),
        [replied(8, 0)],
        "forgotten, not deferred"
    );
}

#[test]
fn force_removes_every_lockspace_and_answers_every_waiter_at_the_end() {
    let (mut lab, ls) = Lab::ready();
    let joining = lab.add("new");
    lab.hold(0, "r");
    lab.open(7);
    lab.open(8);
    let kill = Action::Kill { conn: ConnId(0), pid: 100, signal: Signal::Kill };
    let actions = lab.command(7, Command::ShutdownWait { force: true });
    let gone = |ls| Action::Gone { ls };
    assert_eq!(actions, [Action::ShuttingDown, gone(joining), gone(ls), kill]);
    assert_eq!(lab.command(8, Command::ShutdownWait { force: true }), []);
    assert_eq!(
        lab.result(9, Command::AddLockspace { spec: ls_spec("x"), io_timeout: 0, asynchronous: true }),
        -1
    );
    assert_eq!(lab.acquire(1, Target::Own, &["s"]), [replied(1, -28)]);
    lab.event(Event::JoinDone { ls: joining, result: Err(JoinError::Stopped { freed: true }) });
    assert_eq!(lab.event(Event::Left { ls: joining, writes: LeaseWrites::Ended }), []);
    lab.pid_gone(0);
    // Resources are not released on disk: the host_id lease is.
    let actions = lab.close(0);
    assert_eq!(actions, [Action::Forget { conn: ConnId(0) }, Action::Leave { ls, release: true }]);
    let done = |conn| Action::Reply { conn: ConnId(conn), reply: Reply::ShutdownDone };
    assert_eq!(lab.quiet(Event::Left { ls, writes: LeaseWrites::Freed }), [done(7), done(8), Action::Exit]);
}

#[test]
fn without_lockspaces_a_waiter_is_answered_at_once() {
    let mut lab = Lab::new();
    lab.open(9);
    let done = Action::Reply { conn: ConnId(9), reply: Reply::ShutdownDone };
    let actions = lab.command(9, Command::ShutdownWait { force: false });
    assert_eq!(actions, [Action::ShuttingDown, done, Action::Exit]);
    // The front serves what had come before it ends.
    lab.open(8);
    let done = Action::Reply { conn: ConnId(8), reply: Reply::ShutdownDone };
    assert_eq!(lab.command(8, Command::ShutdownWait { force: false }), [done]);
}

/// A lockspace in which a write may still land is left by force; what the daemon does in the following `secs` seconds.
fn end_with_a_write_outstanding(watchdog: bool, secs: u64) -> (Lab, LockspaceId, TaskId, Vec<Action>) {
    let mut lab = Lab::with_watchdog(watchdog);
    lab.register(0, 100);
    lab.open(9);
    let add = Command::AddLockspace { spec: ls_spec("ls"), io_timeout: 0, asynchronous: false };
    lab.command(9, add);
    let (ls, _) = lab.m.lockspace_named(&name("ls")).unwrap();
    lab.quiet(Event::WatchdogChecked { ls, result: Ok(2) });
    lab.quiet(Event::JoinDone { ls, result: Ok(joined(GENERATION, lab.now)) });
    let mut begun = lab.acquire(0, Target::Own, &["r"]);
    if watchdog {
        begun = lab.quiet(Event::WatchdogArmed { ls, result: Ok(()) });
    }
    let task = task(&begun);
    assert_eq!(lab.failed(task, live_owner(), false, 1), [replied(0, -243)]);
    assert_eq!(
        lab.command(9, Command::Shutdown { force: true }),
        [Action::ShuttingDown, Action::Gone { ls }]
    );
    let mut actions: Vec<Action> = (0..secs).flat_map(|_| lab.tick()).collect();
    actions.retain(|action| !matches!(action, Action::WatchdogLive { .. }));
    (lab, ls, task, actions)
}

#[test]
fn without_a_watchdog_a_forced_end_gives_writes_two_minutes_and_keeps_the_host_id() {
    let (_, _, _, actions) = end_with_a_write_outstanding(false, DRAIN_SECS - 1);
    assert_eq!(actions, []);
    let (mut lab, ls, _, actions) = end_with_a_write_outstanding(false, DRAIN_SECS);
    assert_eq!(actions, [Action::Leave { ls, release: false }]);
    assert_eq!(lab.event(Event::Left { ls, writes: LeaseWrites::Ended }), [Action::Exit]);
}

#[test]
fn with_a_watchdog_a_forced_end_waits_for_writes_without_limit() {
    let (mut lab, ls, task, actions) = end_with_a_write_outstanding(true, 10 * DRAIN_SECS);
    assert_eq!(actions, []);
    assert_eq!(lab.settled(task), [Action::WatchdogDisarm { ls }, Action::Leave { ls, release: true }]);
    assert_eq!(lab.m.resources().count(), 0);
    assert_eq!(lab.quiet(Event::Left { ls, writes: LeaseWrites::Freed }), [Action::Exit]);
}

#[test]
fn commands_that_work_on_disks_are_waited_for_but_not_without_limit() {
    let mut lab = Lab::new();
    lab.open(9);
    lab.event(Event::JobBegun);
    lab.event(Event::JobBegun);
    assert_eq!(lab.command(9, Command::ShutdownWait { force: false }), [Action::ShuttingDown]);
    assert_eq!(lab.event(Event::JobDone), []);
    assert_eq!(lab.tick(), []);
    let done = Action::Reply { conn: ConnId(9), reply: Reply::ShutdownDone };
    assert_eq!(lab.event(Event::JobDone), [done, Action::Exit]);

    // No longer than a service manager waits, however long the io timeout.
    for (io_timeout, limit) in [(1, 4), (7, 28), (10, 30), (100, 30)] {
        let settings =
            Settings { io_timeout: IoTimeout::new(io_timeout).unwrap(), ..*Lab::new().m.settings() };
        let mut lab = Lab { m: Manager::new(settings), ..Lab::new() };
        lab.event(Event::JobBegun);
        assert_eq!(lab.event(Event::Signal), [Action::ShuttingDown]);
        for _ in 1..limit {
            assert_eq!(lab.tick(), [], "{io_timeout}");
        }
        assert_eq!(lab.tick(), [Action::Exit], "{io_timeout}");
        assert_eq!(lab.event(Event::JobDone), []);
    }
}
