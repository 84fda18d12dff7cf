use super::*;
use proptest::prelude::*;

type Log = Vec<(u64, Action<u8>)>;

fn lockspace(t: u32) -> Lockspace {
    Lockspace {
        io_timeout: IoTimeout::new(t).unwrap(),
        grace_secs: GRACE_SECS_DEFAULT,
        hard_from: None,
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
    User {
        key,
        connection_open: true,
        process_alive: true,
        attempts: 0,
        last_attempt: None,
        hard: false,
        restrictions: Restrictions::default(),
        killpath: Killpath::None,
    }
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
        let mut actions = Vec::with_capacity(actions_max(users.len()));
        let room = actions.capacity();
        ls.progress = decide(now, &ls, &users, &mut actions);
        assert_eq!(actions.capacity(), room, "the list never has to grow");
        for action in actions {
            match action {
                Action::Attempt { user, means, hard, .. } => {
                    users.iter_mut().filter(|u| u.key == user).for_each(|u| u.attempted(now, means, hard));
                }
                Action::StopRenewals => ls.renewals = Renewals::Stopped { releasable: ls.corrupt.is_none() },
                Action::Release => ls.renewals = Renewals::ReleaseTried,
                _ => {}
            }
            log.push((now.secs(), action));
        }
        now = now.plus_millis(if ls.progress.stage == Stage::Alive { 1000 } else { 200 });
    }
    (log, ls)
}

fn once(now: MonoTime, ls: &Lockspace, users: &[User<u8>]) -> Vec<Action<u8>> {
    let mut actions = Vec::new();
    let _ = decide(now, ls, users, &mut actions);
    actions
}

fn seconds(log: &Log, which: impl Fn(&Action<u8>) -> bool) -> Vec<u64> {
    log.iter().filter(|(_, a)| which(a)).map(|(s, _)| *s).collect()
}

fn term(a: &Action<u8>) -> bool {
    matches!(a, Action::Attempt { means: Means::Signal(Signal::Term), .. })
}

fn sigkill(a: &Action<u8>) -> bool {
    matches!(a, Action::Attempt { means: Means::Signal(Signal::Kill), .. })
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
        assert!(log.iter().any(|(_, a)| matches!(a, Action::Attempt { attempt: 100, .. })));
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

    // What the child inherited is its parent's program's to stop, however long the parent has been gone.
    let mut parent = user(7);
    (parent.process_alive, parent.killpath) = (false, Killpath::Wanted);
    let mut gentle = lockspace(1);
    gentle.progress.stage = Stage::Killing;
    let program = Action::Attempt { user: 7, means: Means::Killpath, hard: false, attempt: 1 };
    assert_eq!(once(MonoTime::from_secs(9), &gentle, &[parent]), [program]);
    for (open, killpath, second) in
        [(true, Killpath::Run, 9), (true, Killpath::None, 9), (true, Killpath::Wanted, 48)]
    {
        (parent.connection_open, parent.killpath) = (open, killpath);
        assert_eq!(once(MonoTime::from_secs(second), &gentle, &[parent]), [], "{killpath:?} {second}");
    }

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
    let kill = |user| Action::Attempt { user, means: Means::Signal(Signal::Kill), hard: true, attempt: 1 };
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
    assert_eq!(once(MonoTime::from_secs(9), &ls, &[]), []);
    ls.renewals = Renewals::Stopped { releasable: false };
    assert_eq!(once(MonoTime::from_secs(9), &ls, &[]), [Action::Remove]);
    ls.renewals = Renewals::Stopped { releasable: true };
    ls.corrupt = Some(ReturnCode::RENEW_DIFF);
    assert_eq!(once(MonoTime::from_secs(9), &ls, &[]), [Action::Remove]);
}

#[test]
fn half_three_quarters_and_nine_tenths_of_the_time_are_told_once_each() {
    let (log, _) = run(lockspace(10), vec![user(7)], 80, |_, _, _| {});
    let told: Vec<_> = log
        .iter()
        .filter_map(|(s, a)| match a {
            Action::Notice { percent, age, left } => Some((*s, *percent, *age, *left)),
            _ => None,
        })
        .collect();
    assert_eq!(told, [(40, 50, 40, 40), (60, 75, 60, 20), (72, 90, 72, 8)]);
    // A renewal that succeeds begins it all anew; nothing is told of one that is only a little late.
    let (log, _) = run(lockspace(10), Vec::new(), 100, |now, ls, _| {
        if now.secs() >= 50 {
            ls.last_good = MonoTime::from_secs(50);
        }
    });
    assert_eq!(seconds(&log, |a| matches!(a, Action::Notice { percent: 50, .. })), [40, 90]);
    assert_eq!(seconds(&log, |a| matches!(a, Action::Notice { .. })).len(), 2);
}

#[test]
fn a_killpath_is_run_once_and_has_the_whole_grace_to_work() {
    let mut with = user(7);
    with.killpath = Killpath::Wanted;
    let (log, _) = run(lockspace(1), vec![with], 50, |_, _, _| {});
    let means = |wanted| seconds(&log, |a| matches!(a, Action::Attempt { means, .. } if *means == wanted));
    assert_eq!(means(Means::Killpath), [8]);
    assert_eq!(means(Means::Patience), (9..48).collect::<Vec<_>>());
    assert_eq!(means(Means::Signal(Signal::Term)), [0; 0]);
    assert_eq!(means(Means::Signal(Signal::Kill)), [48, 49]);
    assert!(log.iter().any(|(s, a)| *s == 48 && matches!(a, Action::Attempt { attempt: 41, .. })));
}

#[test]
fn without_grace_no_killpath_is_run() {
    let mut with = user(7);
    with.killpath = Killpath::Wanted;
    let mut ls = lockspace(1);
    ls.grace_secs = 0;
    let (log, _) = run(ls, vec![with], 10, |_, _, _| {});
    assert_eq!(seconds(&log, sigkill), [8, 9]);
    // A lease lost right after a renewal leaves a gentle time even then, which is a signal's.
    let (log, _) = run(ls, vec![with], 10, |now, ls, _| {
        ls.corrupt = (now.secs() >= 5).then_some(ReturnCode::RENEW_DIFF);
    });
    assert_eq!((seconds(&log, term), seconds(&log, sigkill)), (vec![5, 6, 7], vec![8, 9]));
}

#[test]
fn restrictions_replace_signals() {
    let signals = |kill, term_| {
        let mut restricted = user(7);
        restricted.restrictions = Restrictions { kill, term: term_ };
        let (log, _) = run(lockspace(1), vec![restricted], 50, |_, _, _| {});
        (seconds(&log, term), seconds(&log, sigkill))
    };
    let all: Vec<u64> = (8..50).collect();
    assert_eq!(signals(false, false), ((8..48).collect(), vec![48, 49]));
    assert_eq!(signals(true, false), (all.clone(), vec![]));
    assert_eq!(signals(false, true), (vec![], all.clone()));
    assert_eq!(signals(true, true), (vec![], all), "somebody has to end it");
}

#[test]
fn a_gentle_lockspace_never_delays_the_end_that_another_demands() {
    // One process in two lockspaces: "gentle" fails at 8 and always comes first, "hard" is removed at 10.
    let (mut gentle, mut hard) = (lockspace(1), lockspace(10));
    let mut both = vec![user(7)];
    let mut kills = Vec::new();
    let mut now = MonoTime::from_millis(10);
    while now.secs() < 15 {
        hard.removal = now.secs() >= 10;
        for ls in [&mut gentle, &mut hard] {
            let mut actions = Vec::new();
            ls.progress = decide(now, ls, &both, &mut actions);
            for action in actions {
                if let Action::Attempt { means, hard, .. } = action {
                    both[0].attempted(now, means, hard);
                    if means == Means::Signal(Signal::Kill) {
                        kills.push(now.secs());
                    }
                }
            }
        }
        now = now.plus_millis(200);
    }
    kills.dedup();
    assert_eq!(kills, [10, 11, 12, 13, 14]);
}

/// Renewals succeed again and again and stretch the gentle time. A process that is still there after a hundred attempts, or whose
/// killpath program did not get anywhere in that time, is ended by force.
#[test]
fn a_gentle_time_that_renewals_stretch_ends_after_a_hundred_attempts() {
    let with_program = User { killpath: Killpath::Wanted, ..user(8) };
    for stubborn in [user(7), with_program] {
        let (log, _) = run(lockspace(1), vec![stubborn], 160, |now, ls, _| {
            if now.secs() > 8 {
                ls.last_good = MonoTime::from_secs(now.secs());
            }
        });
        assert_eq!(seconds(&log, sigkill), [107, 117, 127, 137, 147, 157]);
    }
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
            hard_from: None,
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
            hard: *last % 2 == 0,
            restrictions: Restrictions { kill: last % 3 == 0, term: last % 5 == 0 },
            killpath: [Killpath::None, Killpath::Wanted, Killpath::Run][usize::from(key) % 3],
        }).collect();
        let mut actions = Vec::with_capacity(actions_max(users.len()));
        let room = actions.capacity();
        let progress = decide(now, &ls, &users, &mut actions);
        prop_assert_eq!(actions.capacity(), room);
        prop_assert_eq!(&actions, &once(now, &ls, &users), "a function of its arguments");

        let age = now.secs_since(ls.last_good);
        let must_end = corrupt || removal || age >= 8 * u64::from(t);
        let ends = progress.stage != Stage::Alive;
        prop_assert_eq!(ends, must_end || stage == Stage::Killing);
        let all_gone = users.iter().all(|u| !u.connection_open && !u.process_alive);
        let stops = actions.contains(&Action::StopRenewals);
        prop_assert_eq!(stops, ends && all_gone && !held && !late);
        for action in &actions {
            if let Action::Attempt { user, means, hard, .. } = action {
                let user = users[usize::from(*user)];
                let is_left = user.connection_open && *means == Means::Killpath;
                prop_assert!(user.process_alive || is_left);
                let enough = user.attempts >= KILL_ATTEMPTS_MAX;
                let due = removal || age >= 8 * u64::from(t) + grace || enough;
                prop_assert_eq!(*hard, due);
                let escalates = *hard && !user.hard;
                prop_assert!(escalates || user.last_attempt.is_none_or(|l| now.secs() > l.secs()));
                let both = user.restrictions.kill && user.restrictions.term;
                match means {
                    Means::Signal(Signal::Kill) => prop_assert!(both || !user.restrictions.kill),
                    Means::Signal(Signal::Term) => prop_assert!(!user.restrictions.term),
                    Means::Killpath => {
                        prop_assert!(!hard && grace > 0 && user.killpath == Killpath::Wanted)
                    }
                    Means::Patience => prop_assert!(!hard && user.killpath == Killpath::Run),
                }
            }
        }
        // At most one attempt in 10 s is skipped, and only of a process that had a hundred and SIGKILL among them.
        let due = |u: &User<u8>| u.process_alive
            && ((removal || age >= 8 * u64::from(t) + grace) && !u.hard
                || (u.attempts < 100 && u.last_attempt.is_none_or(|l| now.secs() > l.secs())));
        let signalled = actions.iter().filter(|a| matches!(a, Action::Attempt { .. })).count();
        if ends && !stops {
            prop_assert!(signalled >= users.iter().filter(|u| due(u)).count());
        } else {
            prop_assert_eq!(signalled, 0);
        }
    }
}

#[test]
fn a_warning_says_how_old_the_last_renewal_is_and_how_long_is_left() {
    let ls = lockspace(10);
    for (age, left) in [(60, 20), (79, 1)] {
        let actions = once(MonoTime::from_secs(age), &ls, &[user(7)]);
        assert!(actions.contains(&Action::Warn { age, left }), "{actions:?}");
    }
    assert!(!once(MonoTime::from_secs(59), &ls, &[user(7)]).iter().any(|a| matches!(a, Action::Warn { .. })));
}

/// The watchdog may fire sooner than usual: from then on killing is not gentle, and not before.
#[test]
fn gentle_killing_ends_in_any_case_when_the_watchdog_is_near() {
    let mut ls = lockspace(10);
    ls.progress.stage = Stage::Killing;
    ls.hard_from = Some(MonoTime::from_millis(85_500));
    for (now, expected) in [(85_499, Signal::Term), (85_500, Signal::Kill), (85_501, Signal::Kill)] {
        let actions = once(MonoTime::from_millis(now), &ls, &[user(7)]);
        let means = Means::Signal(expected);
        let hard = expected == Signal::Kill;
        assert_eq!(actions, [Action::Attempt { user: 7, means, hard, attempt: 1 }], "{now} ms");
    }
}
