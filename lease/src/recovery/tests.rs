use super::*;
use proptest::prelude::*;

type Log = Vec<(u64, Action<u8>)>;

fn lockspace(t: u32) -> Lockspace {
    Lockspace {
        io_timeout: IoTimeout::new(t).unwrap(),
        grace_secs: GRACE_SECS_DEFAULT,
        last_good: MonoTime::from_secs(0),
        corrupt: None,
        removal: false,
        held: false,
        writes_outstanding: false,
        renewals: Renewals::Running,
        progress: Progress::default(),
    }
}

fn user(key: u8) -> User<u8> {
    User { key, connection_open: true, process_alive: true, attempts: 0, last_attempt: None }
}

/// Does what a daemon would, from second 0 to `end`; `world` is what happens besides.
fn run(
    mut ls: Lockspace,
    mut users: Vec<User<u8>>,
    end: u64,
    mut world: impl FnMut(MonoTime, &mut Lockspace, &mut Vec<User<u8>>),
) -> (Log, Lockspace) {
    let (mut log, mut now) = (Vec::new(), MonoTime::from_millis(10));
    while now.secs() < end {
        world(now, &mut ls, &mut users);
        let decision = decide(now, &ls, &users);
        ls.progress = decision.progress;
        for action in decision.actions {
            match action {
                Action::Signal { user, .. } => {
                    users.iter_mut().filter(|u| u.key == user).for_each(|u| u.signalled(now));
                }
                Action::StopRenewals => ls.renewals = Renewals::Stopped { releasable: ls.corrupt.is_none() },
                Action::Release => ls.renewals = Renewals::ReleaseTried,
                _ => {}
            }
            log.push((now.secs(), action));
        }
        now = now.plus_millis(ls.progress.stage.check_ms());
    }
    (log, ls)
}

fn seconds(log: &Log, which: impl Fn(&Action<u8>) -> bool) -> Vec<u64> {
    log.iter().filter(|(_, a)| which(a)).map(|(s, _)| *s).collect()
}

fn term(a: &Action<u8>) -> bool {
    matches!(a, Action::Signal { signal: Signal::Term, .. })
}

fn sigkill(a: &Action<u8>) -> bool {
    matches!(a, Action::Signal { signal: Signal::Kill, .. })
}

#[test]
fn the_timeline_of_dead_storage() {
    // lease-algorithms.md 10.4, last good renewal at 0: T, warnings, failed, SIGTERM, SIGKILL from, attempts used up.
    let rows =
        [(10, 60..80, 80, 80..120, 120, 179), (5, 30..40, 40, 40..80, 80, 139), (1, 6..8, 8, 8..48, 48, 107)];
    for (t, warnings, failed, gentle, hard, used_up) in rows {
        let (log, ls) = run(lockspace(t), vec![user(7)], used_up + 1, |_, _, _| {});
        let warned = seconds(&log, |a| matches!(a, Action::Warn { .. }));
        assert_eq!(warned, warnings.collect::<Vec<_>>(), "T={t}");
        assert_eq!(seconds(&log, |a| *a == Action::Fail(Reason::Age(failed))), [failed], "T={t}");
        assert_eq!(seconds(&log, term), gentle.collect::<Vec<_>>(), "T={t}");
        assert_eq!(seconds(&log, sigkill), (hard..=used_up).collect::<Vec<_>>(), "T={t}");
        assert!(log.iter().any(|(_, a)| matches!(a, Action::Signal { attempt: 100, .. })));
        assert_eq!(ls.progress.stage, Stage::Killing);
    }
}

#[test]
fn after_a_hundred_attempts_killing_goes_on_slowly() {
    let (log, _) = run(lockspace(1), vec![user(7)], 200, |_, _, _| {});
    assert_eq!(seconds(&log, |a| *a == Action::Stuck { users: 1 }), [107]);
    let late: Vec<_> = seconds(&log, sigkill).into_iter().filter(|s| *s > 107).collect();
    assert_eq!(late, [117, 127, 137, 147, 157, 167, 177, 187, 197]);
}

#[test]
fn the_failed_lockspace_ends_when_its_users_are_gone_both_ways() {
    // The process dies at its first signal, a child keeps the connection until 12, then the connection closes.
    let (log, ls) = run(lockspace(1), vec![user(7)], 20, |now, _, users| {
        users[0].process_alive = users[0].attempts == 0;
        users[0].connection_open = now.secs() < 12;
    });
    assert_eq!(seconds(&log, term), [8], "nobody is signalled whose process is gone");
    assert_eq!(seconds(&log, |a| *a == Action::StopRenewals), [12]);
    assert_eq!(ls.progress.stage, Stage::Removed);

    // A closed connection alone does not count: the process may still be writing.
    let (log, ls) = run(lockspace(1), vec![user(7)], 20, |_, _, users| users[0].connection_open = false);
    assert!(seconds(&log, |a| *a == Action::StopRenewals).is_empty());
    assert_eq!(seconds(&log, term), (8..20).collect::<Vec<_>>());
    assert_eq!(ls.progress.stage, Stage::Killing);
}

#[test]
fn removal_kills_at_once_and_releases() {
    let mut ls = lockspace(10);
    ls.removal = true;
    let (log, ls) = run(ls, vec![user(7), user(8)], 3, |now, _, users| {
        if now.millis() > 500 {
            for user in users {
                (user.process_alive, user.connection_open) = (false, false);
            }
        }
    });
    let actions: Vec<_> = log.iter().map(|(_, a)| *a).collect();
    let kill = |user| Action::Signal { user, signal: Signal::Kill, attempt: 1 };
    let expected = [
        Action::Fail(Reason::Removal),
        kill(7),
        kill(8),
        Action::StopRenewals,
        Action::Release,
        Action::Remove,
    ];
    assert_eq!(actions, expected);
    assert_eq!(ls.progress.stage, Stage::Removed);
}

#[test]
fn corruption_fails_at_once_with_the_grace_of_the_last_good_renewal_and_without_release() {
    for code in [ReturnCode::RENEW_OWNER, ReturnCode::RENEW_DIFF, ReturnCode::LEADER_CHECKSUM] {
        let (log, ls) = run(lockspace(1), vec![user(7)], 60, |now, ls, users| {
            ls.corrupt = (now.secs() >= 3).then_some(code);
            if now.secs() >= 50 {
                (users[0].process_alive, users[0].connection_open) = (false, false);
            }
        });
        assert_eq!(seconds(&log, |a| *a == Action::Fail(Reason::Corrupt(code))), [3]);
        assert_eq!(seconds(&log, term), (3..48).collect::<Vec<_>>(), "8T + grace");
        assert_eq!(seconds(&log, sigkill), [48, 49]);
        assert!(seconds(&log, |a| *a == Action::Release).is_empty());
        assert_eq!(ls.progress.stage, Stage::Removed);
    }
}

#[test]
fn a_renewal_that_succeeds_again_revives_nothing_but_lengthens_the_grace() {
    let (log, ls) = run(lockspace(1), vec![user(7)], 60, |now, ls, _| {
        if now.secs() >= 10 {
            ls.last_good = MonoTime::from_secs(10);
        }
    });
    assert_eq!(ls.progress.stage, Stage::Killing);
    assert_eq!(seconds(&log, term), (8..58).collect::<Vec<_>>());
    assert_eq!(seconds(&log, sigkill), [58, 59]);
}

#[test]
fn removal_of_a_lockspace_that_already_failed_ends_the_gentle_time() {
    let (log, _) = run(lockspace(1), vec![user(7)], 12, |now, ls, _| ls.removal = now.secs() >= 10);
    assert_eq!((seconds(&log, term), seconds(&log, sigkill)), (vec![8, 9], vec![10, 11]));
    assert_eq!(seconds(&log, |a| matches!(a, Action::Fail(_))).len(), 1);
}

#[test]
fn the_host_id_is_kept_while_something_may_act_in_its_name() {
    for which in 0..2 {
        let mut ls = lockspace(1);
        ls.removal = true;
        let (log, _) = run(ls, Vec::new(), 10, |now, ls, _| match which {
            0 => ls.held = now.secs() < 5,
            _ => ls.writes_outstanding = now.secs() < 5,
        });
        assert_eq!(seconds(&log, |a| *a == Action::StopRenewals), [5]);
    }
}

#[test]
fn without_a_good_last_renewal_the_lease_is_left_as_it_is() {
    let mut ls = lockspace(1);
    ls.progress.stage = Stage::Stopping;
    ls.renewals = Renewals::Running;
    assert_eq!(decide::<u8>(MonoTime::from_secs(9), &ls, &[]).actions, []);
    ls.renewals = Renewals::Stopped { releasable: false };
    assert_eq!(decide::<u8>(MonoTime::from_secs(9), &ls, &[]).actions, [Action::Remove]);
    ls.renewals = Renewals::Stopped { releasable: true };
    ls.corrupt = Some(ReturnCode::RENEW_DIFF);
    assert_eq!(decide::<u8>(MonoTime::from_secs(9), &ls, &[]).actions, [Action::Remove]);
}

proptest! {
    #[test]
    fn at_no_time_is_an_old_lease_trusted_or_a_user_forgotten(
        t in 1..20_u32,
        grace in 0..60_u64,
        good in 0..300_u64,
        now_ms in 300_000..900_000_u64,
        corrupt: bool,
        removal: bool,
        held: bool,
        late: bool,
        stage in prop_oneof![Just(Stage::Alive), Just(Stage::Killing)],
        people in prop::collection::vec((any::<bool>(), any::<bool>(), 0..130_u32, 0..900_u64), 0..5),
    ) {
        let now = MonoTime::from_millis(now_ms);
        let ls = Lockspace {
            grace_secs: grace,
            last_good: MonoTime::from_secs(300 + good),
            corrupt: corrupt.then_some(ReturnCode::RENEW_DIFF),
            removal,
            held,
            writes_outstanding: late,
            progress: Progress { stage, ..Progress::default() },
            ..lockspace(t)
        };
        let users: Vec<_> = people.iter().zip(0_u8..).map(|((open, alive, attempts, last), key)| User {
            key,
            connection_open: *open,
            process_alive: *alive,
            attempts: *attempts,
            last_attempt: (*attempts > 0).then_some(MonoTime::from_secs(*last)),
        }).collect();
        let decision = decide(now, &ls, &users);
        prop_assert_eq!(&decision, &decide(now, &ls, &users), "a function of its arguments");

        let age = now.secs_since(ls.last_good);
        let must_end = corrupt || removal || age >= 8 * u64::from(t);
        let ends = decision.progress.stage != Stage::Alive;
        prop_assert_eq!(ends, must_end || stage == Stage::Killing);
        let all_gone = users.iter().all(|u| !u.connection_open && !u.process_alive);
        let stops = decision.actions.contains(&Action::StopRenewals);
        prop_assert_eq!(stops, ends && all_gone && !held && !late);
        for action in &decision.actions {
            if let Action::Signal { user, signal, .. } = action {
                let user = users[usize::from(*user)];
                prop_assert!(user.process_alive);
                prop_assert!(user.last_attempt.is_none_or(|l| now.secs_since(l) >= 1));
                let hard = removal || age >= 8 * u64::from(t) + grace;
                prop_assert_eq!(*signal == Signal::Kill, hard);
            }
        }
        let due = |u: &User<u8>| u.process_alive && u.attempts < 100
            && u.last_attempt.is_none_or(|l| now.secs() > l.secs());
        let signalled = decision.actions.iter().filter(|a| matches!(a, Action::Signal { .. })).count();
        if ends && !stops {
            prop_assert!(signalled >= users.iter().filter(|u| due(u)).count());
        } else {
            prop_assert_eq!(signalled, 0);
        }
    }
}
