use super::lab::*;
use crate::*;
use sanlock_lease::name::Name;

/// With lockspace "ls" joined behind a watchdog, and connections 0 to 2 registered.
fn ready() -> (Lab, LockspaceId) {
    let (mut lab, ls) = joining();
    assert_eq!(lab.quiet(Event::JoinDone { ls, result: Ok(joined(GENERATION, lab.now)) }), []);
    (lab, ls)
}

/// The same before the join is done.
fn joining() -> (Lab, LockspaceId) {
    let mut lab = Lab::with_watchdog(true);
    for (conn, pid) in [(0, 100), (1, 101), (2, 102)] {
        lab.register(conn, pid);
    }
    lab.open(9);
    let (ls, actions) = add(&mut lab);
    assert_eq!(actions, []);
    let join = checked(&mut lab, ls, Ok(2));
    assert!(matches!(&join[..], [Action::Join { .. }]), "{join:?}");
    (lab, ls)
}

/// Begins to add "ls" for connection 9, which waits for the result.
fn add(lab: &mut Lab) -> (LockspaceId, Vec<Action>) {
    let spec = ls_spec("ls");
    let mut actions = lab.command(9, Command::AddLockspace { spec, io_timeout: 0, asynchronous: true });
    let check = actions.iter().position(|a| matches!(a, Action::WatchdogCheck { .. })).expect("asks wdmd");
    let Action::WatchdogCheck { ls, fire } = actions.remove(check) else { unreachable!() };
    assert_eq!(fire, WatchdogFire::DEFAULT);
    actions.retain(|a| !matches!(a, Action::Reply { .. }));
    (ls, actions)
}

fn checked(lab: &mut Lab, ls: LockspaceId, result: Result<u32, &str>) -> Vec<Action> {
    lab.quiet(Event::WatchdogChecked { ls, result: result.map_err(str::to_owned) })
}

fn armed(lab: &mut Lab, ls: LockspaceId) -> Vec<Action> {
    lab.quiet(Event::WatchdogArmed { ls, result: Ok(()) })
}

#[track_caller]
fn arms(actions: &[Action]) -> (u64, u64) {
    match actions {
        [Action::WatchdogArm { name, renewal, expire, .. }] if name == "sanlock_ls:1" => (*renewal, *expire),
        other => panic!("{other:?}"),
    }
}

/// A whole acquire, the first of an idle lockspace.
fn hold(lab: &mut Lab, ls: LockspaceId) {
    arms(&lab.acquire(0, Target::Own, &["r"]));
    let started = armed(lab, ls);
    assert_eq!(lab.acquired(task(&started), 0), [replied(0, 0)]);
}

/// Of a name that is no text each byte would be three, and wdmd's message has no room for that: the lockspace could be joined, and never used.
#[test]
fn the_name_at_wdmd_fits_whatever_the_lockspace_is_called() {
    let spec = |name: &[u8]| LockspaceSpec { name: Name::new(name).unwrap(), ..ls_spec("ls") };
    let own = |name: &[u8]| crate::watchdog::wdmd_name(&spec(name));
    assert_eq!(own(b"ls"), "sanlock_ls:1");
    assert_eq!(own(&[b'x'; 48]), format!("sanlock_{}:1", "x".repeat(48)));
    // 8 bytes and 39 of three.
    assert_eq!(own(&[0xff; 48]), format!("sanlock_{}", "\u{fffd}".repeat(39)));
}

#[test]
fn nothing_is_written_before_the_watchdog_is_armed_and_it_is_disarmed_after_the_release() {
    let (mut lab, ls) = ready();
    let now = lab.now.secs();
    assert_eq!(arms(&lab.acquire(0, Target::Own, &["r"])), (now, now + 8));
    // Another request waits for the same.
    assert_eq!(lab.acquire(1, Target::Own, &["s"]), []);
    let started = armed(&mut lab, ls);
    let [Action::StartAcquire { task: r, .. }, Action::StartAcquire { task: s, .. }] = started[..] else {
        panic!("{started:?}")
    };
    assert_eq!(lab.acquired(r, 0), [replied(0, 0)]);
    assert_eq!(lab.acquired(s, 0), [replied(1, 0)]);
    // Armed already: a third one does not wait.
    let third = task(&lab.acquire(2, Target::Own, &["t"]));
    assert_eq!(lab.failed(third, live_owner(), false, 0), [replied(2, -243)]);
    assert_eq!(
        lab.tick(),
        [Action::WatchdogLive { ls, renewal: now + 1, expire: now + 9 }],
        "each good renewal moves the expiry"
    );
    let (release, _) = release_of(&lab.release(0, &["r"]));
    assert_eq!(lab.released(release, Ok(released()), 0), [replied(0, 0)]);
    let (release, _) = release_of(&lab.release(1, &["s"]));
    // Its write may still land: the watchdog stays.
    assert_eq!(lab.released(release, timed_out(), 1), [replied(1, -202)]);
    lab.tick();
    let retract = retract_of(&lab.settled(release));
    let end = lab.released(retract, Ok(released()), 0);
    assert_eq!(end, [Action::WatchdogDisarm { ls }]);
    assert_eq!(lab.tick(), [], "an idle lockspace has no expiry to move");
}

fn released() -> sanlock_lease::paxos::release::Released {
    sanlock_lease::paxos::release::Released::LeaderFreed
}

#[test]
fn without_a_usable_watchdog_there_is_no_lockspace() {
    let mut lab = Lab::with_watchdog(true);
    lab.open(9);
    let spec = ls_spec("ls");
    let ask = |lab: &mut Lab| {
        let spec = spec.clone();
        match &lab.command(9, Command::AddLockspace { spec, io_timeout: 0, asynchronous: false })[..] {
            [Action::WatchdogCheck { ls, .. }] => *ls,
            other => panic!("{other:?}"),
        }
    };
    let ls = ask(&mut lab);
    assert_eq!(checked(&mut lab, ls, Err("no daemon")), [replied(9, -203)]);
    // Tested every 6 s, it could not see an io timeout of 1 s renew in time (rule R11).
    let ls = ask(&mut lab);
    assert_eq!(checked(&mut lab, ls, Ok(6)), [replied(9, -22)]);
    let ls = ask(&mut lab);
    assert!(matches!(checked(&mut lab, ls, Ok(5))[..], [Action::Join { .. }]), "it is only warned about");
    // Removed while wdmd is asked: whoever wanted it hears that it was stopped, as with a join that was under way.
    let mut lab = Lab::with_watchdog(true);
    lab.open(9);
    let ls = ask(&mut lab);
    lab.open(8);
    assert_eq!(lab.remove(8, "ls"), [Action::Gone { ls }]);
    assert_eq!(checked(&mut lab, ls, Ok(2)), [replied(8, 0), replied(9, -201)]);
    // And nothing was begun that would have to be left.
    let mut lab = Lab::with_watchdog(true);
    lab.open(9);
    let (ls, _) = add(&mut lab);
    assert_eq!(lab.remove(9, "ls"), [Action::Gone { ls }]);
    assert_eq!(checked(&mut lab, ls, Ok(2)), [replied(9, 0)]);
    assert_eq!(lab.m.lockspaces().count(), 0);
}

#[test]
fn a_watchdog_that_cannot_be_armed_refuses_the_acquire_and_may_be_tried_again() {
    let (mut lab, ls) = ready();
    arms(&lab.acquire(0, Target::Own, &["r"]));
    let refused = lab.quiet(Event::WatchdogArmed { ls, result: Err("busy".to_owned()) });
    assert_eq!(refused, [replied(0, -203)]);
    hold(&mut lab, ls);
}

#[test]
fn a_lockspace_whose_renewals_fail_is_not_armed() {
    let (mut lab, ls) = ready();
    let failure = Event::RenewalFailed { ls, code: -202, text: "slow".to_owned() };
    lab.quiet(failure.clone());
    assert_eq!(lab.acquire(0, Target::Own, &["r"]), [replied(0, -203)]);
    lab.tick();
    hold(&mut lab, ls);
    // One that is armed may go on: other leases depend on it anyway.
    lab.quiet(failure);
    let started = lab.acquire(1, Target::Own, &["s"]);
    assert!(matches!(started[..], [Action::StartAcquire { .. }]), "{started:?}");
}

#[test]
fn a_lockspace_whose_renewal_is_late_is_not_armed() {
    // The attempt began at 2 s, its read may take until 3 s: then its write hangs, and nobody has heard of it yet.
    let (mut lab, ls) = ready();
    lab.now = lab.now.plus_secs(2);
    arms(&lab.acquire(0, Target::Own, &["r"]));
    let started = task(&armed(&mut lab, ls));
    assert_eq!(
        lab.failed(started, live_owner(), false, 0),
        [replied(0, -243), Action::WatchdogDisarm { ls }]
    );
    lab.now = lab.now.plus_secs(1);
    assert_eq!(lab.acquire(0, Target::Own, &["r"]), [replied(0, -203)]);
    assert_eq!(lab.command(0, set_used(true)), [replied(0, -203)]);
    // It ends after all.
    lab.tick();
    hold(&mut lab, ls);
    // While something depends on the lockspace anyway, more may be acquired.
    lab.now = lab.now.plus_secs(4);
    let started = lab.acquire(1, Target::Own, &["s"]);
    assert!(matches!(started[..], [Action::StartAcquire { .. }]), "{started:?}");
}

/// While a join settles by a longer io timeout than ours it renews only if more than 4T are left. Its first renewal after that follows at once.
#[test]
fn a_lockspace_that_has_just_joined_is_armed_however_old_its_record_is() {
    for (later_ms, granted) in [(0, true), (900, true), (1000, false)] {
        let (mut lab, ls) = joining();
        let joined = joined(GENERATION, lab.now);
        lab.now = lab.now.plus_secs(4);
        assert_eq!(lab.quiet(Event::JoinDone { ls, result: Ok(joined) }), []);
        lab.now = lab.now.plus_millis(later_ms);
        let said = lab.acquire(0, Target::Own, &["r"]);
        if granted {
            arms(&said);
        } else {
            assert_eq!(said, [replied(0, -203)], "{later_ms} ms later");
        }
    }
}

#[test]
fn a_watchdog_that_is_armed_too_late_is_disarmed_before_anything_begins() {
    for (secs, failed) in [(3, false), (1, true)] {
        let (mut lab, ls) = ready();
        arms(&lab.acquire(0, Target::Own, &["r"]));
        assert_eq!(lab.command(1, set_used(true)), []);
        lab.now = lab.now.plus_secs(secs);
        if failed {
            lab.quiet(Event::RenewalFailed { ls, code: -202, text: "slow".to_owned() });
        }
        let end = [Action::WatchdogDisarm { ls }, replied(1, -203), replied(0, -203)];
        assert_eq!(armed(&mut lab, ls), end);
        lab.tick();
        hold(&mut lab, ls);
    }
}

#[test]
fn a_client_that_hangs_up_while_the_watchdog_is_armed_leaves_nothing() {
    let (mut lab, ls) = ready();
    arms(&lab.acquire(0, Target::Own, &["r"]));
    assert_eq!(lab.close(0), []);
    assert_eq!(armed(&mut lab, ls), [Action::Forget { conn: ConnId(0) }, Action::WatchdogDisarm { ls }]);
}

#[test]
fn the_end_of_wdmd_fails_what_it_watched_over_and_nothing_else() {
    let (mut lab, ls) = ready();
    assert_eq!(lab.quiet(Event::WatchdogLost { ls, text: "gone".to_owned() }), [], "idle: it had no expiry");
    hold(&mut lab, ls);
    let actions = lab.quiet(Event::WatchdogLost { ls, text: "gone".to_owned() });
    let kill = Action::Kill { conn: ConnId(0), pid: 100, signal: Signal::Term };
    assert_eq!(actions, [Action::Gone { ls }, kill]);
    assert_eq!(lab.acquire(1, Target::Own, &["s"]), [replied(1, -28)]);
    lab.pid_gone(0);
    let end = [Action::Forget { conn: ConnId(0) }, Action::Leave { ls, release: false }];
    assert_eq!(lab.close(0), end);
}

/// What is held stays, for renewals go on; nothing new begins that nobody would end.
#[test]
fn nothing_is_acquired_while_the_device_does_not_work() {
    let (mut lab, ls) = ready();
    let status = |protects| Event::WatchdogStatus { ls, protects };
    assert_eq!(lab.quiet(status(false)), [], "idle: whoever arms it next is told");
    hold(&mut lab, ls);
    assert_eq!(lab.quiet(status(false)), []);
    assert_eq!(lab.acquire(1, Target::Own, &["s"]), [replied(1, -203)]);
    assert_eq!(lab.tokens(0).len(), 1);
    let renewed = Event::Renewed { ls, timestamp: lab.now, read_ms: 1, write_ms: 1 };
    assert!(matches!(lab.quiet(renewed)[..], [Action::WatchdogLive { .. }]));
    // It works again.
    assert_eq!(lab.quiet(status(true)), []);
    let (task, _) = release_of(&lab.release(0, &["r"]));
    lab.quiet(status(false));
    // A new expiry is confirmed by a device that works.
    let released = lab.released(task, Ok(sanlock_lease::paxos::release::Released::LeaderFreed), 0);
    assert!(released.contains(&Action::WatchdogDisarm { ls }), "{released:?}");
    arms(&lab.acquire(1, Target::Own, &["s"]));
    armed(&mut lab, ls);
    assert_ne!(lab.acquire(2, Target::Own, &["t"]), [replied(2, -203)]);
}

/// Giving up needs no more protection than holding does.
#[test]
fn what_is_given_up_goes_on_although_the_device_does_not_work() {
    let (mut lab, ls) = ready();
    hold(&mut lab, ls);
    lab.quiet(Event::WatchdogStatus { ls, protects: false });
    let (task, _) = release_of(&lab.release(0, &["r"]));
    assert_eq!(lab.released_without_mark(task), [replied(0, 0)]);
    let all: Vec<_> = (0..5).flat_map(|_| lab.tick()).collect();
    assert!(all.iter().any(|a| matches!(a, Action::StartRetract { .. })), "{all:?}");
}

/// An orphan is held by this host already: adopting it and releasing it change no more than its process.
#[test]
fn orphans_are_adopted_and_released_although_the_device_does_not_work() {
    let (mut lab, ls) = ready();
    hold(&mut lab, ls);
    let acquire = |lab: &mut Lab, conn, request, orphan| {
        let flags = AcquireFlags { orphan, ..AcquireFlags::default() };
        let resources = vec![request];
        lab.command(conn, Command::Acquire { target: Target::Own, owner_name: name("vm"), resources, flags })
    };
    for orphan in ["o", "p"] {
        let request = ResourceRequest { persistent: true, ..request(orphan) };
        let started = acquire(&mut lab, 1, request, OrphanUse::Refuse);
        assert_eq!(lab.acquired(task(&started), 0), [replied(1, 0)]);
    }
    lab.pid_gone(1);
    lab.close(1);
    lab.quiet(Event::WatchdogStatus { ls, protects: false });
    assert_eq!(acquire(&mut lab, 2, request("o"), OrphanUse::Only), [replied(2, 0)]);
    let what = ReleaseWhat::Orphans { lockspace: super::lab::name("ls"), name: None };
    let released = lab.command(2, Command::Release { target: Target::Own, what });
    let all: Vec<_> = released.into_iter().chain(lab.tick()).collect();
    assert!(all.contains(&replied(2, 1)), "{all:?}");
    assert!(
        all.iter().any(|a| matches!(a, Action::StartRelease { .. } | Action::StartRetract { .. })),
        "{all:?}"
    );
}

#[test]
fn a_removed_lockspace_is_disarmed_before_it_is_left() {
    let (mut lab, ls) = ready();
    hold(&mut lab, ls);
    lab.remove(9, "ls");
    lab.close(0);
    let end = lab.pid_gone(0);
    let expected = [
        Action::Forget { conn: ConnId(0) },
        Action::WatchdogDisarm { ls },
        Action::Leave { ls, release: true },
    ];
    assert_eq!(end, expected);
}

#[test]
fn a_request_that_waits_for_the_watchdog_ends_with_its_lockspace() {
    let (mut lab, ls) = ready();
    arms(&lab.acquire(0, Target::Own, &["r"]));
    let end = lab.remove(9, "ls");
    let expected = [
        Action::Gone { ls },
        Action::WatchdogDisarm { ls },
        replied(0, -28),
        Action::Leave { ls, release: true },
    ];
    assert_eq!(end, expected);
    assert_eq!(armed(&mut lab, ls), [], "an answer that comes late means nothing");
}

#[test]
fn a_lockspace_that_somebody_is_about_to_use_is_not_unused() {
    let remove_unused = || Command::RemLockspace { spec: ls_spec("ls"), asynchronous: false, unused: true };
    let (mut lab, ls) = ready();
    arms(&lab.acquire(0, Target::Own, &["r"]));
    assert_eq!(lab.command(9, remove_unused()), [replied(9, -16)]);
    let started = task(&armed(&mut lab, ls));
    assert_eq!(lab.acquired(started, 0).last(), Some(&replied(0, 0)));

    let (mut lab, ls) = ready();
    arms(&lab.command(0, set_used(true)));
    assert_eq!(lab.command(9, remove_unused()), [replied(9, -16)]);
    assert_eq!(armed(&mut lab, ls), [replied(0, 0)]);
}

#[test]
fn writes_that_may_still_land_keep_the_watchdog_armed_without_limit() {
    let (mut lab, ls) = ready();
    arms(&lab.acquire(0, Target::Own, &["r"]));
    let started = task(&armed(&mut lab, ls));
    lab.failed(started, live_owner(), true, 1);
    lab.remove(9, "ls");
    for _ in 0..300 {
        let all = lab.tick();
        assert!(all.iter().all(|a| matches!(a, Action::WatchdogLive { .. })), "{all:?}");
    }
    let end = [Action::WatchdogDisarm { ls }, Action::Leave { ls, release: true }];
    assert_eq!(lab.settled(started), end);
}

fn set_used(on: bool) -> Command {
    Command::SetConfig { lockspace: name("ls"), setting: Some(Setting::Used(on)) }
}

#[test]
fn what_used_stands_for_has_a_watchdog_before_the_answer() {
    let (mut lab, ls) = ready();
    arms(&lab.command(0, set_used(true)));
    assert_eq!(lab.command(1, set_used(true)), [], "both wait for the same");
    assert_eq!(armed(&mut lab, ls), [replied(0, 0), replied(1, 0)]);
    let now = lab.now.secs() + 1;
    assert_eq!(lab.tick(), [Action::WatchdogLive { ls, renewal: now, expire: now + 8 }]);
    assert_eq!(lab.command(0, set_used(false)), [replied(0, 0), Action::WatchdogDisarm { ls }]);
    // One that cannot be armed is not used, and neither is one that nobody waits for any more.
    arms(&lab.command(0, set_used(true)));
    let refused = lab.quiet(Event::WatchdogArmed { ls, result: Err("busy".to_owned()) });
    assert_eq!(refused, [replied(0, -203)]);
    arms(&lab.command(0, set_used(true)));
    lab.close(0);
    assert_eq!(armed(&mut lab, ls), [Action::WatchdogDisarm { ls }]);
    // What plain clients asked for goes on without them, and does not become more however many there are.
    for _ in 0..2 * WAITERS_MAX as u64 {
        lab.open(20);
        lab.command(20, set_used(true));
        lab.close(20);
    }
    assert_eq!(lab.command(1, set_used(true)), []);
    assert_eq!(armed(&mut lab, ls), [replied(1, 0)]);
    assert_eq!(lab.command(1, set_used(false)), [replied(1, 0), Action::WatchdogDisarm { ls }]);
    lab.open(20);
    arms(&lab.command(20, set_used(true)));
    lab.close(20);
    assert_eq!(armed(&mut lab, ls), []);
    assert_eq!(lab.command(1, set_used(false)), [replied(1, 0), Action::WatchdogDisarm { ls }]);
    // Nor one that ends meanwhile.
    arms(&lab.command(1, set_used(true)));
    let end = lab.remove(9, "ls");
    assert!(end.contains(&replied(1, -28)), "{end:?}");
}

/// The last word counts, though the one before it still waits for wdmd when its client is gone. One that waits for its answer still gets what it asked for.
#[test]
fn what_is_said_to_be_used_no_more_is_not_used_when_the_watchdog_comes() {
    let (mut lab, ls) = ready();
    lab.open(20);
    arms(&lab.command(20, set_used(true)));
    lab.close(20);
    assert_eq!(lab.command(1, set_used(false)), [replied(1, 0)]);
    assert_eq!(armed(&mut lab, ls), [Action::WatchdogDisarm { ls }]);
    let used = |lab: &Lab| lab.m.lockspaces().any(|(id, l)| id == ls && l.used);
    assert!(!used(&lab));
    arms(&lab.command(0, set_used(true)));
    assert_eq!(lab.command(1, set_used(false)), [replied(1, 0)]);
    assert_eq!(armed(&mut lab, ls), [replied(0, 0)]);
    assert!(used(&lab));
}

#[test]
fn after_the_loss_of_wdmd_little_time_is_left_to_end_gently() {
    let (mut lab, ls) = ready();
    hold(&mut lab, ls);
    lab.quiet(Event::WatchdogLost { ls, text: "gone".to_owned() });
    let mut kills = Vec::new();
    for second in 1..8 {
        for action in lab.tick() {
            if let Action::Kill { signal: Signal::Kill, .. } = action {
                kills.push(second);
            }
        }
    }
    assert_eq!(kills, [5, 6, 7], "the device fires after a quarter of the 60 s at the earliest");
}
