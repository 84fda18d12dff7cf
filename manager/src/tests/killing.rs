//! What processes wish for their end, what set_config holds back, and what the log says of it all.

use super::lab::*;
use crate::*;
use sanlock_lease::paxos::AcquireError;
use sanlock_lease::paxos::convert::ConvertOutcome;
use sanlock_lease::paxos::release::Released;

fn killpath(path: &str, arguments: &str, pid: bool) -> Command {
    let (path, arguments) = (path.as_bytes().to_vec(), arguments.as_bytes().to_vec());
    Command::Killpath { program: KillpathProgram { path, arguments }, pid }
}

fn run(conn: u64, words: &[&str]) -> Action {
    let pid = 100 + i32::try_from(conn).unwrap();
    let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    Action::RunKillpath { conn: ConnId(conn), pid, request: None, words }
}

fn signal(conn: u64, signal: Signal) -> Action {
    Action::Kill { conn: ConnId(conn), pid: 100 + i32::try_from(conn).unwrap(), signal }
}

/// The attempts of the next seconds, without anything else.
fn attempts(lab: &mut Lab, seconds: u64) -> Vec<Action> {
    let mut all: Vec<Action> = (0..seconds).flat_map(|_| lab.tick()).collect();
    all.retain(|a| {
        matches!(a, Action::Kill { .. } | Action::RunKillpath { .. } | Action::CancelKillpath { .. })
    });
    all
}

/// The error lines of one event.
fn lines(lab: &mut Lab, event: Event) -> Vec<(Level, String)> {
    let mut out = Vec::new();
    lab.m.handle(lab.now, event, &mut out);
    let line = |action| match action {
        Action::Log { level, text, .. } if level != Level::Debug => Some((level, text)),
        _ => None,
    };
    out.into_iter().filter_map(line).collect()
}

fn fail(lab: &mut Lab, ls: LockspaceId) -> Vec<Action> {
    lab.quiet(Event::Corrupt { ls, code: -260, text: "another owner".to_owned() })
}

fn config(setting: Option<Setting>) -> Command {
    Command::SetConfig { lockspace: name("ls"), setting }
}

#[test]
fn a_killpath_runs_instead_of_sigterm_and_once() {
    let (mut lab, ls) = Lab::ready();
    assert_eq!(lab.result(0, killpath("/p", r"a b\ c", true)), 0);
    assert_eq!(lab.result(1, killpath("/q", "", false)), 0);
    for (conn, resource) in [(0, "r"), (1, "s"), (2, "t")] {
        lab.hold(conn, resource);
    }
    let expected =
        [Action::Gone { ls }, run(0, &["/p", "a", "b c", "100"]), run(1, &["/q"]), signal(2, Signal::Term)];
    assert_eq!(fail(&mut lab, ls), expected);
    lab.renews = false;
    let gentle: Vec<_> = (0..47).map(|_| signal(2, Signal::Term)).collect();
    assert_eq!(attempts(&mut lab, 47), gentle);
    let hard: Vec<_> = (0..3).map(|conn| signal(conn, Signal::Kill)).collect();
    assert_eq!(attempts(&mut lab, 1), hard);
    let counts: Vec<u32> = lab.m.conns().take(3).map(|(_, c)| c.kill_count).collect();
    assert_eq!(counts, [49, 49, 49], "attempts without effect count");
}

/// It gets no signal, so what is said of it is all that tells why the host is going to be reset.
#[test]
fn a_failed_lockspace_that_a_descendant_of_an_ended_process_keeps_says_so() {
    let (mut lab, ls) = Lab::ready();
    lab.result(0, killpath("/p", "", false));
    lab.hold(0, "r");
    lab.pid_gone(0);
    let said = lines(&mut lab, Event::Corrupt { ls, code: -260, text: "another owner".to_owned() });
    let expected =
        "users to stop: pid 100 (owner) (ended; a process that it started holds its connection) by killpath";
    assert!(
        said.iter().any(|(level, line)| *level == Level::Durable && line.ends_with(expected)),
        "{said:?}"
    );
}

/// Its program may know what holds the connection; a signal would reach nobody, or somebody else.
#[test]
fn of_a_process_that_has_ended_and_left_its_connection_to_another_the_program_is_run_once() {
    for with_pid in [false, true] {
        let (mut lab, ls) = Lab::ready();
        lab.result(0, killpath("/p", "", with_pid));
        lab.hold(0, "r");
        lab.pid_gone(0);
        let expected = if with_pid { vec![] } else { vec![run(0, &["/p"])] };
        assert_eq!(fail(&mut lab, ls)[1..], expected, "a pid that may be another process's is told nobody");
        for second in 2..60 {
            assert_eq!(attempts(&mut lab, second), [], "{second}");
        }
        let left = lab.close(0);
        assert!(left.iter().any(|action| matches!(action, Action::Leave { .. })), "{left:?}");
    }
}

/// It may still wait for the helper.
#[test]
fn a_program_that_is_told_the_pid_is_called_off_when_its_process_ends_and_another_has_the_connection() {
    for with_pid in [false, true] {
        let (mut lab, ls) = Lab::ready();
        lab.result(0, killpath("/p", "", with_pid));
        lab.hold(0, "r");
        fail(&mut lab, ls);
        let called_off = lab.quiet(Event::PidGone { conn: ConnId(0) });
        assert_eq!(called_off.contains(&Action::CancelKillpath { conn: ConnId(0) }), with_pid);
        // It has come to nothing; what is left is nobody's to stop.
        lab.quiet(Event::KillpathLost { conn: ConnId(0), request: None });
        let again = if with_pid { vec![] } else { vec![run(0, &["/p"])] };
        assert_eq!(attempts(&mut lab, 3), again);
    }
}

#[test]
fn a_killpath_that_could_not_be_ordered_is_ordered_again() {
    let (mut lab, ls) = Lab::ready();
    lab.result(0, killpath("/p", "", false));
    lab.hold(0, "r");
    assert_eq!(fail(&mut lab, ls)[1..], [run(0, &["/p"])]);
    assert_eq!(attempts(&mut lab, 2), []);
    assert_eq!(lab.quiet(Event::KillpathLost { conn: ConnId(0), request: None }), [], "not twice a second");
    assert_eq!(attempts(&mut lab, 3), [run(0, &["/p"])]);
}

#[test]
fn who_gives_everything_up_has_its_program_called_off_and_may_get_it_another_time() {
    let (mut lab, ls) = Lab::ready();
    lab.join("two");
    lab.result(0, killpath("/p", "", false));
    lab.hold(0, "r");
    fail(&mut lab, ls);
    let released = lab.release(0, &["r"]);
    assert_eq!(released[..2], [Action::CancelKillpath { conn: ConnId(0) }, replied(0, 0)]);
    lab.hold(0, "two:s");
    let (two, _) = lab.m.lockspace_named(&name("two")).unwrap();
    assert_eq!(fail(&mut lab, two)[1..], [run(0, &["/p"])]);
}

/// Whoever has given up what was in the failed lockspace is as free as before in the others, and asked as gently when they fail.
#[test]
fn what_is_held_in_another_lockspace_does_not_prolong_the_end_of_one() {
    let (mut lab, ls) = Lab::ready();
    let two = lab.join("two");
    lab.result(0, killpath("/p", "", false));
    lab.hold(0, "r");
    lab.hold(0, "two:s");
    assert_eq!(fail(&mut lab, ls)[1..], [run(0, &["/p"])]);
    assert_eq!(lab.acquire(0, Target::Own, &["two:t"]), [replied(0, -16)], "not while it is being stopped");
    let released = lab.release(0, &["r"]);
    assert_eq!(released[..2], [Action::CancelKillpath { conn: ConnId(0) }, replied(0, 0)]);
    lab.hold(0, "two:t");
    assert_eq!(fail(&mut lab, two)[1..], [run(0, &["/p"])]);
}

/// Its lease in the lockspace that failed needs no disk, the one in the other does, and hangs: the program is not to be started any more.
#[test]
fn who_gives_up_what_has_failed_is_left_alone_while_the_rest_is_released() {
    let (mut lab, ls) = Lab::ready();
    lab.join("two");
    lab.result(0, killpath("/p", "", false));
    lab.hold(0, "r");
    lab.hold(0, "two:s");
    assert_eq!(fail(&mut lab, ls)[1..], [run(0, &["/p"])]);
    let all = Command::Release { target: Target::Own, what: ReleaseWhat::All };
    let actions = lab.command(0, all);
    assert!(actions.contains(&Action::CancelKillpath { conn: ConnId(0) }), "{actions:?}");
    let (task, _) = releases(&actions).remove(0);
    assert_eq!(lab.released(task, Ok(Released::LeaderFreed), 0), [replied(0, 0)]);
}

/// A release of eight leases on storage that hangs, of which a ninth in another lockspace waits for its turn.
#[test]
fn a_lease_that_waits_for_its_turn_to_be_released_keeps_no_failed_lockspace() {
    let (mut lab, ls) = Lab::ready();
    lab.join("two");
    for n in 0..8 {
        lab.hold(0, &format!("two:r{n}"));
    }
    lab.hold(0, "a");
    let all = Command::Release { target: Target::Own, what: ReleaseWhat::All };
    assert_eq!(releases(&lab.command(0, all)).len(), 8);
    let actions = fail(&mut lab, ls);
    assert!(actions.contains(&Action::Leave { ls, release: false }), "{actions:?}");
    assert_eq!(lab.list("a"), None);
}

/// The same while it waits for its turn behind a release that begins when the lockspace has failed.
#[test]
fn of_a_lockspace_that_has_failed_nothing_waits_for_its_turn() {
    let (mut lab, ls) = Lab::ready();
    lab.join("two");
    for n in 0..9 {
        lab.hold(0, &format!("two:r{n}"));
    }
    lab.hold(0, "a");
    fail(&mut lab, ls);
    let all = Command::Release { target: Target::Own, what: ReleaseWhat::All };
    let actions = lab.command(0, all);
    assert_eq!(releases(&actions).len(), 8);
    assert!(actions.contains(&Action::Leave { ls, release: false }), "{actions:?}");
}

/// A process that is killed while its release, or its conversion, hangs on another lockspace's disk.
#[test]
fn what_a_dead_process_held_goes_while_its_command_hangs_elsewhere() {
    for convert in [false, true] {
        let (mut lab, ls) = Lab::ready();
        lab.join("two");
        lab.hold(0, "a");
        lab.hold(0, "two:r");
        lab.hold(0, "two:s");
        let command = if convert {
            let (lockspace, name) = (name("two"), name("r"));
            Command::Convert { target: Target::Own, lockspace, name, shared: true, owner_nowait: false }
        } else {
            Command::Release { target: Target::Own, what: ReleaseWhat::Named(vec![(name("two"), name("r"))]) }
        };
        let started = lab.command(0, command);
        let [Action::StartConvert { task: running, .. } | Action::StartRelease { task: running, .. }] =
            started[..]
        else {
            panic!("{started:?}")
        };
        fail(&mut lab, ls);
        lab.pid_gone(0);
        let actions = lab.close(0);
        assert!(actions.contains(&Action::Leave { ls, release: false }), "{convert}: {actions:?}");
        assert_eq!(releases(&actions).iter().map(|(_, which)| which.as_str()).collect::<Vec<_>>(), ["s"]);
        assert_eq!(lab.list("two:r"), Some(if convert { ResourceList::Held } else { ResourceList::Rem }));
        let ended = if convert {
            let held = held(GENERATION, 1);
            let result = Err(AcquireError::ClientGone);
            let outcome = Box::new(ConvertOutcome { result, held, erase: false, value_written: false });
            lab.quiet(Event::ConvertDone { task: running, outcome, outstanding: 0 })
        } else {
            lab.released(running, Ok(Released::LeaderFreed), 0)
        };
        assert!(ended.contains(&Action::Forget { conn: ConnId(0) }), "{convert}: {ended:?}");
        assert_eq!(releases(&ended).len(), usize::from(convert), "{ended:?}");
    }
}

#[test]
fn an_empty_killpath_is_none_and_a_plain_connection_has_none() {
    let (mut lab, ls) = Lab::ready();
    assert_eq!(lab.result(9, killpath("/p", "", false)), -16);
    assert_eq!(lab.result(0, killpath("/p", "", true)), 0);
    assert_eq!(lab.result(0, killpath("", "a", false)), 0);
    lab.hold(0, "r");
    assert_eq!(fail(&mut lab, ls)[1..], [signal(0, Signal::Term)]);
    let (_, client) = lab.m.conns().next().unwrap();
    assert!(client.killpath_pid, "the wish for the pid stays");
}

#[test]
fn restrictions_are_those_of_the_moment() {
    let (mut lab, ls) = Lab::ready();
    for (conn, flags) in [(0, 0x2), (1, 0x4), (2, 0x6)] {
        assert_eq!(lab.result(conn, Command::Restrict { flags }), 0);
        lab.hold(conn, ["r", "s", "t"][usize::try_from(conn).unwrap()]);
    }
    let first = [signal(0, Signal::Term), signal(1, Signal::Kill), signal(2, Signal::Kill)];
    assert_eq!(fail(&mut lab, ls)[1..], first);
    lab.result(1, Command::Restrict { flags: 0 });
    assert_eq!(attempts(&mut lab, 1)[1], signal(1, Signal::Term));
    lab.remove(9, "ls");
    let removal = [signal(0, Signal::Term), signal(1, Signal::Kill), signal(2, Signal::Kill)];
    assert_eq!(attempts(&mut lab, 1), removal);
}

#[test]
fn what_set_config_answers() {
    let mut lab = Lab::new();
    lab.open(0);
    let used = |on| config(Some(Setting::Used(on)));
    assert_eq!(lab.result(0, used(true)), -2);
    let ls = lab.add("ls");
    assert_eq!(lab.result(0, used(true)), -2, "not while it is being added");
    lab.quiet(Event::JoinDone { ls, result: Ok(joined(GENERATION, lab.now)) });
    assert_eq!(lab.result(0, config(None)), -22);
    assert_eq!(lab.result(0, used(true)), 0);
    assert_eq!(lab.result(0, config(Some(Setting::UsedByOrphans(true)))), 0);
    lab.open(1);
    lab.remove(1, "ls");
    assert_eq!(lab.result(0, used(true)), -28);
    assert_eq!(lab.result(0, config(Some(Setting::UsedByOrphans(false)))), 0);
    assert_eq!(lab.command(0, used(false)), [replied(0, 0), Action::Leave { ls, release: true }]);
    assert_eq!(lab.result(0, used(false)), -2, "not while it is leaving");
}

#[test]
fn used_holds_a_failed_lockspace_and_a_shutdown_back() {
    let (mut lab, ls) = Lab::ready();
    assert_eq!(lab.result(0, config(Some(Setting::Used(true)))), 0);
    lab.renews = false;
    assert_eq!((0..9).flat_map(|_| lab.tick()).collect::<Vec<_>>(), [Action::Gone { ls }]);
    assert_eq!(lab.command(1, Command::Shutdown { force: true }), [Action::ShuttingDown]);
    assert_eq!((0..200).flat_map(|_| lab.tick()).collect::<Vec<_>>(), []);
    let freed = lab.command(0, config(Some(Setting::Used(false))));
    assert_eq!(freed, [replied(0, 0), Action::Leave { ls, release: false }]);
}

#[test]
fn the_log_says_who_will_be_stopped_when_and_why() {
    let (mut lab, ls) = Lab::ready();
    lab.result(0, killpath("/p", "", false));
    lab.hold(0, "r");
    lab.hold(1, "s");
    lab.result(2, config(Some(Setting::Used(true))));
    lab.renews = false;
    let start = lab.now;
    let mut log = Vec::new();
    for half in 1..=16 {
        lab.now = start.plus_millis(500 * half);
        if half == 6 {
            let text = "read timed out".to_owned();
            lines(&mut lab, Event::RenewalFailed { ls, code: -202, text });
        }
        for (level, line) in lines(&mut lab, Event::Tick) {
            log.push((half, level, line));
        }
    }
    let find =
        |part: &str| log.iter().find(|(.., line)| line.contains(part)).unwrap_or_else(|| panic!("{part}"));
    let (half, _, text) = find("50%");
    assert_eq!(*half, 8);
    let users =
        "users to stop: pid 100 (owner) by killpath, pid 101 (owner), and what set_config USED stands for";
    for part in ["stopped in 4 s", "read timed out (-202)", "read/write ms: 0/0", users] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!((find("75%").0, find("90%").0), (12, 15));
    let warnings: Vec<&str> =
        log.iter().map(|(.., l)| l.as_str()).filter(|l| l.contains("warning")).collect();
    let last = start.secs();
    let expected = [6, 7].map(|age| format!("check_our_lease warning {age} last_success {last}"));
    assert_eq!(warnings, expected, "once a second");
    let end: Vec<(Level, &str)> =
        log.iter().filter(|(h, ..)| *h == 16).map(|(_, l, t)| (*l, t.as_str())).collect();
    let why = format!("no renewal of ls since {last}, read timed out (-202)");
    let expected = [
        "check_our_lease failed 8".to_owned(),
        format!("{why}; {users}"),
        "kill 100 sig 100 count 1".to_owned(),
        format!("pid 100 (owner) gets its killpath program: {why}"),
        "kill 101 sig 15 count 1".to_owned(),
        format!("pid 101 (owner) gets SIGTERM: {why}"),
    ];
    assert_eq!(end, expected.each_ref().map(|line| (Level::Durable, line.as_str())));
    let command = Command::RemLockspace { spec: ls_spec("ls"), asynchronous: true, unused: false };
    let lines = lines(&mut lab, Event::Command { conn: ConnId(9), command });
    let kill = ("kill 101 sig 9 count 2", "its time to end gently is over");
    assert!(
        lines.iter().any(|(_, l)| l == kill.0) && lines.iter().any(|(_, l)| l.contains(kill.1)),
        "{lines:?}"
    );
}

#[test]
fn a_lockspace_is_late_from_3t_after_its_last_renewal_and_no_longer_after_the_next() {
    let (mut lab, ls) = Lab::ready();
    lab.tick();
    assert!(!lab.m.is_late(lab.now));
    lab.renews = false;
    let (last, t) =
        lab.m.lockspaces().map(|(_, l)| (l.last_good.unwrap(), l.io_timeout.secs())).next().unwrap();
    assert!(!lab.m.is_late(last.plus_secs(3 * t - 1)));
    assert!(lab.m.is_late(last.plus_secs(3 * t)));
    let now = last.plus_secs(3 * t + 1);
    lab.now = now;
    lab.event(Event::Renewed { ls, timestamp: now, read_ms: 1, write_ms: 1 });
    assert!(!lab.m.is_late(now));
}

#[test]
fn a_lockspace_that_was_late_is_quiet_again_after_the_next_renewal() {
    let (mut lab, ls) = Lab::ready();
    lab.tick();
    let t = lab.m.lockspaces().map(|(_, l)| l.io_timeout.secs()).next().unwrap();
    let good = lab.now;
    assert_eq!(lab.m.quiet_until(), Some(MonoTime::from_secs(good.secs() + 3 * t)));
    lab.renews = false;
    // It is warned about from 6T on.
    for second in 1..=7 * t {
        lab.now = good.plus_secs(second);
        lab.event(Event::Tick);
    }
    assert_eq!(lab.m.quiet_until(), None);
    let now = lab.now;
    lab.event(Event::Renewed { ls, timestamp: now, read_ms: 1, write_ms: 1 });
    lab.event(Event::Tick);
    assert_eq!(lab.m.quiet_until(), Some(MonoTime::from_secs(now.secs() + 3 * t)));
}
