//! Orphans: what becomes of a lease whose process ended, and who may have it (lease-algorithms.md 7.2, 7.3, 9.4).

use super::lab::*;
use crate::*;
use sanlock_lease::delta::Event as HostEvent;
use sanlock_lease::geometry::{Geometry, HostId};
use sanlock_lease::name::Name;
use sanlock_lease::paxos::acquire::AcquireOutcome;
use sanlock_lease::paxos::convert::ConvertOutcome;
use sanlock_lease::paxos::release::Released;
use sanlock_lease::record::ModeBlock;

fn asking(resource: &str, shared: bool) -> ResourceRequest {
    let mut wanted = request(resource);
    wanted.spec.shared = shared;
    wanted
}

fn ask(lab: &mut Lab, conn: u64, resources: Vec<ResourceRequest>, orphan: OrphanUse) -> Vec<Action> {
    let flags = AcquireFlags { orphan, ..AcquireFlags::default() };
    lab.command(conn, Command::Acquire { target: Target::Own, owner_name: name("owner"), resources, flags })
}

/// A persistent lease, and the end of its process.
fn orphan(lab: &mut Lab, conn: u64, resource: &str, shared: bool) {
    persistent(lab, conn, resource, shared);
    lab.close(conn);
    assert_eq!(lab.list(resource), Some(ResourceList::Orphan));
}

fn persistent(lab: &mut Lab, conn: u64, resource: &str, shared: bool) {
    let wanted = ResourceRequest { persistent: true, ..asking(resource, shared) };
    let actions = ask(lab, conn, vec![wanted], OrphanUse::Refuse);
    let mut held = held(GENERATION, 7);
    if shared {
        held.block.mode = ModeBlock::shared(GENERATION);
    }
    let outcome = AcquireOutcome::Acquired(held);
    let done = lab.quiet(Event::AcquireDone { task: task(&actions), outcome, value: None, outstanding: 0 });
    assert_eq!(done, [replied(conn, 0)]);
}

fn release_orphans(lab: &mut Lab, conn: u64, name: Option<Name>) -> Vec<Action> {
    let what = ReleaseWhat::Orphans { lockspace: super::lab::name("ls"), name };
    lab.command(conn, Command::Release { target: Target::Own, what })
}

#[test]
fn a_persistent_lease_outlives_its_process_without_io_and_another_one_does_not() {
    let (mut lab, _) = Lab::ready();
    persistent(&mut lab, 0, "kept", false);
    lab.hold(0, "gone");
    let (_, which) = release_of(&lab.close(0)[..1]);
    assert_eq!(which, "gone");
    assert_eq!(lab.list("kept"), Some(ResourceList::Orphan));
    let id = lab.resource("kept").unwrap();
    assert_eq!(lab.m.resources[&id].pid, 100, "STATUS shows the last owner");
}

#[test]
fn an_orphan_is_in_the_way_unless_it_is_asked_for_in_its_mode() {
    let (mut lab, _) = Lab::ready();
    orphan(&mut lab, 0, "r", false);
    for (shared, orphan) in [
        (false, OrphanUse::Refuse),
        (true, OrphanUse::Refuse),
        (true, OrphanUse::Adopt),
        (true, OrphanUse::Only),
    ] {
        assert_eq!(
            ask(&mut lab, 1, vec![asking("r", shared)], orphan),
            [replied(1, -117)],
            "{shared} {orphan:?}"
        );
    }
    assert_eq!(ask(&mut lab, 1, vec![asking("r", false)], OrphanUse::Adopt), [replied(1, 0)]);
    assert_eq!((lab.list("r"), lab.tokens(1)), (Some(ResourceList::Held), vec!["r".to_owned()]));
    // The adopter did not ask for a persistent lease.
    let (_, which) = release_of(&lab.close(1)[..1]);
    assert_eq!(which, "r");
}

#[test]
fn only_an_orphan_will_do_where_that_is_asked() {
    let (mut lab, _) = Lab::ready();
    assert_eq!(ask(&mut lab, 1, vec![asking("r", false)], OrphanUse::Only), [replied(1, -2)]);
    orphan(&mut lab, 0, "r", true);
    assert_eq!(ask(&mut lab, 1, vec![asking("r", true)], OrphanUse::Only), [replied(1, 0)]);
    // Held shared it can be joined as ever.
    assert_eq!(ask(&mut lab, 2, vec![asking("r", true)], OrphanUse::Refuse), [replied(2, 0)]);
}

#[test]
fn a_request_that_fails_leaves_the_orphan_it_would_have_adopted() {
    let (mut lab, _) = Lab::ready();
    orphan(&mut lab, 0, "r", false);
    let both = vec![asking("r", false), asking("other", false)];
    let actions = ask(&mut lab, 1, both, OrphanUse::Adopt);
    assert_eq!(lab.list("r"), Some(ResourceList::Add));
    assert_eq!(ask(&mut lab, 2, vec![asking("r", false)], OrphanUse::Adopt), [replied(2, -16)]);
    assert_eq!(lab.failed(task(&actions), live_owner(), false, 0), [replied(1, -243)]);
    assert_eq!(
        lab.list("r"),
        Some(ResourceList::Orphan),
        "nothing is released that the request did not take"
    );
    assert_eq!(lab.tokens(1), Vec::<String>::new());
}

#[test]
fn orphans_are_released_by_name_or_all_and_counted() {
    let (mut lab, _) = Lab::ready();
    persistent(&mut lab, 0, "a", false);
    persistent(&mut lab, 0, "b", true);
    persistent(&mut lab, 0, "c", false);
    lab.close(0);
    assert_eq!(release_orphans(&mut lab, 1, Some(name("absent"))), [replied(1, 0)]);
    let one = release_orphans(&mut lab, 1, Some(name("b")));
    let (first, which) = release_of(&one[..1]);
    assert_eq!((which.as_str(), &one[1..]), ("b", &[replied(1, 1)][..]));
    assert_eq!(lab.released(first, Ok(Released::ByFlag), 0), []);
    let all = release_orphans(&mut lab, 1, None);
    assert_eq!((all.len(), all.last()), (3, Some(&replied(1, 2))));
    assert_eq!(release_orphans(&mut lab, 1, None), [replied(1, 0)], "they are being released already");
    // A release that fails is tried again like any other.
    let (second, _) = release_of(&all[..1]);
    assert_eq!(lab.released(second, timed_out(), 0), []);
    retract_of(&lab.tick());
    // Only a registered process may ask.
    assert_eq!(release_orphans(&mut lab, 9, None), [replied(9, -16)]);
}

#[test]
fn orphans_hold_no_lockspace_back_and_end_with_it() {
    let (mut lab, ls) = Lab::ready();
    orphan(&mut lab, 0, "r", false);
    let actions = lab.remove(9, "ls");
    assert_eq!(actions, [Action::Gone { ls }, Action::Leave { ls, release: true }]);
    assert_eq!(lab.resource("r"), None);
}

fn used_by_orphans(lab: &mut Lab, on: bool) -> Vec<Action> {
    let setting = Some(Setting::UsedByOrphans(on));
    lab.command(9, Command::SetConfig { lockspace: name("ls"), setting })
}

#[test]
fn orphans_that_count_hold_a_lockspace_back_until_they_are_released() {
    let (mut lab, ls) = Lab::ready();
    orphan(&mut lab, 0, "r", false);
    assert_eq!(used_by_orphans(&mut lab, true), [replied(9, 0)]);
    assert_eq!(lab.remove(9, "ls"), [Action::Gone { ls }]);
    assert_eq!(lab.tick(), []);
    assert_eq!(ask(&mut lab, 1, vec![asking("r", false)], OrphanUse::Adopt), [replied(1, -28)]);
    // In a dead lockspace nothing is written: the host_id lease speaks for it.
    let released = release_orphans(&mut lab, 1, None);
    assert_eq!(released, [replied(1, 1), Action::Leave { ls, release: true }]);
}

#[test]
fn a_persistent_lease_of_a_process_that_was_killed_counts_as_well() {
    let (mut lab, ls) = Lab::ready();
    persistent(&mut lab, 0, "r", false);
    used_by_orphans(&mut lab, true);
    let killed = lab.remove(9, "ls");
    assert!(matches!(&killed[..], [Action::Gone { .. }, Action::Kill { pid: 100, .. }]), "{killed:?}");
    lab.close(0);
    assert_eq!(lab.pid_gone(0), [Action::Forget { conn: ConnId(0) }]);
    assert_eq!((lab.list("r"), lab.tick()), (Some(ResourceList::Orphan), vec![]));
    assert_eq!(used_by_orphans(&mut lab, false), [replied(9, 0), Action::Leave { ls, release: true }]);
}

/// With a watchdog, lockspace "ls" joined, and connection 0 registered.
fn watched() -> (Lab, LockspaceId) {
    let mut lab = Lab::with_watchdog(true);
    lab.register(0, 100);
    lab.open(9);
    let spec = ls_spec("ls");
    let actions = lab.command(9, Command::AddLockspace { spec, io_timeout: 0, asynchronous: true });
    let Some(Action::WatchdogCheck { ls, .. }) = actions.first().cloned() else { panic!("{actions:?}") };
    lab.quiet(Event::WatchdogChecked { ls, result: Ok(2) });
    lab.quiet(Event::JoinDone { ls, result: Ok(joined(GENERATION, lab.now)) });
    (lab, ls)
}

/// And an orphan "r" in it, behind which no watchdog stands.
fn watched_orphan() -> (Lab, LockspaceId) {
    let (mut lab, ls) = watched();
    let wanted = ResourceRequest { persistent: true, ..asking("r", false) };
    ask(&mut lab, 0, vec![wanted], OrphanUse::Refuse);
    let started = lab.quiet(Event::WatchdogArmed { ls, result: Ok(()) });
    lab.acquired(task(&started), 0);
    lab.close(0);
    (lab, ls)
}

/// An orphan is a hold, too. What a conversion has left keeps other hosts out, whoever adopts it and when.
#[test]
fn what_a_conversion_left_is_taken_back_under_an_orphan() {
    for (mut lab, ls) in [Lab::ready(), watched()] {
        let watchdog = lab.m.lockspaces().any(|(_, l)| l.watch != Watch::Off);
        let wanted = ResourceRequest { persistent: true, ..asking("r", false) };
        let mut actions = ask(&mut lab, 0, vec![wanted], OrphanUse::Refuse);
        if watchdog {
            actions = lab.quiet(Event::WatchdogArmed { ls, result: Ok(()) });
        }
        assert_eq!(lab.acquired(task(&actions), 0), [replied(0, 0)]);
        let (lockspace, name) = (name("ls"), name("r"));
        let convert =
            Command::Convert { target: Target::Own, lockspace, name, shared: true, owner_nowait: false };
        let actions = lab.command(0, convert);
        let [Action::StartConvert { task: down, .. }] = actions[..] else { panic!("{actions:?}") };
        let done = |lab: &mut Lab, task, erase| {
            let mut held = held(GENERATION, 7);
            held.block.mode = ModeBlock::shared(GENERATION);
            let outcome = Box::new(ConvertOutcome { result: Ok(()), held, erase, value_written: false });
            lab.quiet(Event::ConvertDone { task, outcome, outstanding: 0 })
        };
        assert_eq!(done(&mut lab, down, true), [replied(0, 0)]);
        assert_eq!(lab.close(0), [Action::Forget { conn: ConnId(0) }], "the watchdog stays");
        assert_eq!(lab.list("r"), Some(ResourceList::Orphan));
        let erase = |lab: &mut Lab| {
            assert!(lab.m.quiet_until().is_none());
            lab.tick().into_iter().find_map(|action| match action {
                Action::StartErase { task, .. } => Some(task),
                _ => None,
            })
        };
        let first = erase(&mut lab).expect("begins");
        assert_eq!(done(&mut lab, first, true), []);
        assert_eq!(erase(&mut lab), None, "not with every tick");
        let second = erase(&mut lab).expect("begins again");
        let idle = if watchdog { vec![Action::WatchdogDisarm { ls }] } else { Vec::new() };
        assert_eq!(done(&mut lab, second, false), idle, "nothing depends on it any more");
        lab.tick();
        assert!(lab.m.quiet_until().is_some());
    }
}

/// Each time is a thread, a question to wdmd and a line in the log.
#[test]
fn wdmd_that_refuses_is_not_asked_every_second_for_an_orphan_that_is_to_be_released() {
    let (mut lab, ls) = watched_orphan();
    lab.register(1, 101);
    let asks = |actions: &[Action]| actions.iter().any(|a| matches!(a, Action::WatchdogArm { .. }));
    let mut asked = usize::from(asks(&release_orphans(&mut lab, 1, None)));
    for _ in 0..60 {
        lab.quiet(Event::WatchdogArmed { ls, result: Err("no".to_owned()) });
        asked += usize::from(asks(&lab.tick()));
    }
    assert!((15..=31).contains(&asked), "{asked} times in a minute, with an io timeout of a second");
    lab.quiet(Event::WatchdogArmed { ls, result: Err("no".to_owned()) });
    assert!((0..5).any(|_| asks(&lab.tick())));
    lab.quiet(Event::WatchdogArmed { ls, result: Ok(()) });
    assert!((0..2).any(|_| lab.tick().iter().any(|a| matches!(a, Action::StartRetract { .. }))));
}

#[test]
fn an_orphan_that_does_not_count_needs_no_watchdog_and_one_that_does_has_it_before_the_answer() {
    let (mut lab, ls) = watched();
    let wanted = ResourceRequest { persistent: true, ..asking("r", false) };
    let armed = ask(&mut lab, 0, vec![wanted], OrphanUse::Refuse);
    assert!(matches!(&armed[..], [Action::WatchdogArm { .. }]), "{armed:?}");
    let started = lab.quiet(Event::WatchdogArmed { ls, result: Ok(()) });
    assert_eq!(lab.acquired(task(&started), 0), [replied(0, 0)]);
    assert_eq!(lab.close(0), [Action::Forget { conn: ConnId(0) }, Action::WatchdogDisarm { ls }]);

    // It counts from now on, so first something has to stand behind it.
    let armed = used_by_orphans(&mut lab, true);
    assert!(matches!(&armed[..], [Action::WatchdogArm { .. }]), "{armed:?}");
    assert!(!lab.m.lockspaces[&ls].used_by_orphans);
    assert_eq!(lab.quiet(Event::WatchdogArmed { ls, result: Ok(()) }), [replied(9, 0)]);
    assert_eq!(used_by_orphans(&mut lab, false), [replied(9, 0), Action::WatchdogDisarm { ls }]);

    // So it is when it is released.
    lab.register(2, 102);
    let armed = release_orphans(&mut lab, 2, Some(name("r")));
    assert!(
        matches!(&armed[..], [Action::WatchdogArm { .. }, answered] if *answered == replied(2, 1)),
        "{armed:?}"
    );
    assert_eq!(lab.tick().iter().filter(|a| matches!(a, Action::StartRetract { .. })).count(), 0);
    lab.quiet(Event::WatchdogArmed { ls, result: Ok(()) });
    let started = lab.tick();
    let Some(Action::StartRetract { task, hold, .. }) = started.last() else { panic!("{started:?}") };
    assert_eq!(*hold, Some(held(GENERATION, 1).block), "by its block the lease is told from a newer one");
    assert_eq!(lab.released(*task, Ok(Released::LeaderFreed), 0), [Action::WatchdogDisarm { ls }]);
}

/// A process has a shared lease twice, and dies while it gives one of the two up behind a release that hangs: the other one leaves an orphan.
#[test]
fn a_token_that_is_given_up_in_its_turn_is_not_taken_for_the_last_one() {
    let (mut lab, _) = Lab::ready();
    lab.join("two");
    for n in 0..8 {
        lab.hold(0, &format!("two:r{n}"));
    }
    persistent(&mut lab, 0, "s", true);
    let again = ResourceRequest { persistent: true, ..asking("s", true) };
    assert_eq!(ask(&mut lab, 0, vec![again], OrphanUse::Refuse), [replied(0, 0)]);
    let mut names: Vec<_> = (0..8).map(|n| (name("two"), name(&format!("r{n}")))).collect();
    names.push((name("ls"), name("s")));
    let release = Command::Release { target: Target::Own, what: ReleaseWhat::Named(names) };
    let running = releases(&lab.command(0, release));
    assert_eq!(running.len(), 8);
    lab.pid_gone(0);
    assert_eq!(releases(&lab.close(0)), []);
    for (task, _) in running {
        assert_eq!(releases(&lab.released(task, Ok(Released::LeaderFreed), 0)), []);
    }
    assert_eq!(lab.list("s"), Some(ResourceList::Orphan));
}

/// Likewise where another process joins while the first one waits for its turn to give the lease up.
#[test]
fn who_joins_a_lease_that_waits_to_be_given_up_is_its_last_holder() {
    let (mut lab, _) = Lab::ready();
    lab.join("two");
    for n in 0..8 {
        lab.hold(0, &format!("two:r{n}"));
    }
    persistent(&mut lab, 0, "s", true);
    let all = Command::Release { target: Target::Own, what: ReleaseWhat::All };
    assert_eq!(releases(&lab.command(0, all)).len(), 8);
    let joins = ResourceRequest { persistent: true, ..asking("s", true) };
    assert_eq!(ask(&mut lab, 1, vec![joins], OrphanUse::Refuse), [replied(1, 0)]);
    lab.close(1);
    assert_eq!(lab.list("s"), Some(ResourceList::Orphan));
}

#[test]
fn an_orphan_is_adopted_with_the_watchdog_behind_it() {
    let (mut lab, ls) = watched_orphan();

    lab.register(1, 101);
    let armed = ask(&mut lab, 1, vec![asking("r", false)], OrphanUse::Adopt);
    assert!(matches!(&armed[..], [Action::WatchdogArm { .. }]), "{armed:?}");
    assert_eq!(lab.tokens(1), Vec::<String>::new());
    assert_eq!(lab.quiet(Event::WatchdogArmed { ls, result: Ok(()) }), [replied(1, 0)]);
    assert_eq!(lab.tokens(1), ["r"]);
}

/// A holder whose request fails has never held it, so it changes nothing for the one that did.
#[test]
fn a_failed_join_does_not_cost_the_lease_that_its_holder_wanted_to_persist() {
    let (mut lab, _) = Lab::ready();
    persistent(&mut lab, 0, "s", true);
    // The second resource of the request keeps the first one's token waiting.
    let waiting = ask(&mut lab, 1, vec![asking("s", true), asking("x", false)], OrphanUse::Refuse);
    let x = task(&waiting);
    assert_eq!(lab.close(0), [Action::Forget { conn: ConnId(0) }]);
    let failed = lab.failed(x, live_owner(), false, 0);
    assert_eq!(failed, [replied(1, -243)], "nothing is released");
    assert_eq!(lab.list("s"), Some(ResourceList::Orphan));
}

/// Once somebody who was about to share it has got it, it is his, and not what the last holder left any more. He did not want it to persist.
#[test]
fn what_a_holder_left_to_persist_is_whoevers_who_joins_it() {
    let ends: [fn(&mut Lab); 2] = [
        |lab| assert_eq!(lab.release(1, &["s"]), [replied(1, 0)]),
        |lab| {
            let (_, which) = release_of(&lab.close(1)[..1]);
            assert_eq!(which, "x", "nothing else is released");
        },
    ];
    for end in ends {
        let (mut lab, _) = Lab::ready();
        persistent(&mut lab, 0, "s", true);
        let mut joins = |conn, other| {
            let both = vec![asking("s", true), asking(other, true)];
            task(&ask(&mut lab, conn, both, OrphanUse::Refuse))
        };
        let (x, y) = (joins(1, "x"), joins(2, "y"));
        assert_eq!(lab.close(0), [Action::Forget { conn: ConnId(0) }]);
        assert_eq!(lab.acquired(x, 0), [replied(1, 0)]);
        end(&mut lab);
        assert_eq!(lab.list("s"), Some(ResourceList::Add), "somebody still waits for it");
        let failed = lab.failed(y, live_owner(), false, 0);
        let started = releases(&failed);
        assert_eq!(started.iter().map(|(_, which)| which.as_str()).collect::<Vec<_>>(), ["s"], "{failed:?}");
    }
}

/// What the log says of orphans when this happens.
fn said_of_orphans(lab: &mut Lab, event: Event) -> Vec<String> {
    let mut out = Vec::new();
    lab.m.handle(lab.now, event, &mut out);
    let lines =
        out.into_iter().filter_map(|a| if let Action::Log { text, .. } = a { Some(text) } else { None });
    lines.filter(|text| text.contains("orphan")).collect()
}

/// Its resource has a token all the while, of a request that may fail: then nothing more is said.
#[test]
fn a_lease_is_said_to_be_an_orphan_also_while_somebody_is_about_to_share_it() {
    let (mut lab, _) = Lab::ready();
    persistent(&mut lab, 0, "s", true);
    let x = task(&ask(&mut lab, 1, vec![asking("s", true), asking("x", false)], OrphanUse::Refuse));
    let closed = Event::ConnClosed { conn: ConnId(0) };
    assert_eq!(said_of_orphans(&mut lab, closed), ["ls:s is an orphan now"]);
    let outcome = AcquireOutcome::Failed { error: live_owner(), retract: None, geometry: Geometry::B512_M1 };
    let failed = Event::AcquireDone { task: x, outcome, value: None, outstanding: 0 };
    assert_eq!(said_of_orphans(&mut lab, failed), [""; 0]);
    assert_eq!(lab.list("s"), Some(ResourceList::Orphan));
}

/// The same in a lockspace that has failed: it is one only where orphans count, and then the lockspace does not end.
#[test]
fn what_is_left_in_a_failed_lockspace_is_an_orphan_only_if_it_counts_whoever_is_about_to_share_it() {
    for counts in [false, true] {
        let (mut lab, ls) = Lab::ready();
        lab.join("two");
        persistent(&mut lab, 0, "s", true);
        if counts {
            used_by_orphans(&mut lab, true);
        }
        task(&ask(&mut lab, 1, vec![asking("s", true), asking("two:x", false)], OrphanUse::Refuse));
        lab.quiet(Event::Corrupt { ls, code: -260, text: String::new() });
        lab.pid_gone(0);
        let said = said_of_orphans(&mut lab, Event::ConnClosed { conn: ConnId(0) });
        let (line, list) = if counts {
            (vec!["ls:s is an orphan now"], LockspaceList::Spaces)
        } else {
            (vec![], LockspaceList::Rem)
        };
        assert_eq!((said, lab.m.lockspaces[&ls].list), (line.into_iter().map(str::to_owned).collect(), list));
    }
}

/// The further request is not granted any more, so it costs nothing of what was: not even while the client that made both is the same.
#[test]
fn a_persistent_lease_outlives_its_process_also_while_it_asks_for_it_once_more() {
    let (mut lab, _) = Lab::ready();
    persistent(&mut lab, 0, "s", true);
    let waiting = ask(&mut lab, 0, vec![asking("s", true), asking("x", false)], OrphanUse::Refuse);
    let x = task(&waiting);
    assert_eq!(lab.close(0), [Action::ClientGone { task: x }]);
    let failed = lab.failed(x, live_owner(), false, 0);
    assert_eq!(failed, [Action::Forget { conn: ConnId(0) }], "nothing is released");
    assert_eq!(lab.list("s"), Some(ResourceList::Orphan));
}

#[test]
fn what_a_dead_client_held_does_not_keep_a_failed_lockspace() {
    let (mut lab, ls) = Lab::ready();
    lab.join("two");
    let actions = ask(&mut lab, 0, vec![asking("s", true)], OrphanUse::Refuse);
    let mut held = held(GENERATION, 7);
    held.block.mode = ModeBlock::shared(GENERATION);
    let outcome = AcquireOutcome::Acquired(held);
    lab.quiet(Event::AcquireDone { task: task(&actions), outcome, value: None, outstanding: 0 });
    task(&ask(&mut lab, 0, vec![asking("s", true), asking("two:x", false)], OrphanUse::Refuse));
    lab.pid_gone(0);
    lab.close(0);
    let actions = lab.quiet(Event::Corrupt { ls, code: -260, text: String::new() });
    assert_eq!(actions, [Action::Gone { ls }, Action::Leave { ls, release: false }]);
}

/// As after an acquire or a conversion: STATUS shows the last exclusive owner.
#[test]
fn an_orphan_that_was_adopted_shows_the_adopter_when_it_is_one_again() {
    let (mut lab, _) = Lab::ready();
    orphan(&mut lab, 0, "r", false);
    let wanted = ResourceRequest { persistent: true, ..asking("r", false) };
    assert_eq!(ask(&mut lab, 1, vec![wanted], OrphanUse::Adopt), [replied(1, 0)]);
    lab.close(1);
    let id = lab.resource("r").unwrap();
    assert_eq!((lab.list("r"), lab.m.resources[&id].pid), (Some(ResourceList::Orphan), 101));
}

/// Orphans whose release waits for the watchdog while renewals fail: the reason is worth a line, not one for each of them at every
/// tick.
#[test]
fn orphans_whose_release_waits_for_a_renewal_do_not_fill_the_log() {
    let (mut lab, ls) = watched();
    for resource in ["a", "b", "c"] {
        let wanted = ResourceRequest { persistent: true, ..asking(resource, false) };
        let mut started = ask(&mut lab, 0, vec![wanted], OrphanUse::Refuse);
        if matches!(&started[..], [Action::WatchdogArm { .. }]) {
            started = lab.quiet(Event::WatchdogArmed { ls, result: Ok(()) });
        }
        lab.acquired(task(&started), 0);
    }
    lab.close(0);
    lab.quiet(Event::RenewalFailed { ls, code: -202, text: "slow".into() });
    lab.register(2, 102);
    assert_eq!(release_orphans(&mut lab, 2, None), [replied(2, 3)]);
    let mut lines = 0;
    for _ in 0..4 {
        lab.now = lab.now.plus_secs(1);
        let mut out = Vec::new();
        lab.m.handle(lab.now, Event::Tick, &mut out);
        lines += out.iter().filter(|a| matches!(a, Action::Log { level: Level::Error, .. })).count();
    }
    assert!(lines <= 4, "{lines} lines in 4 ticks");
}

/// The process that adopts a lease has it in the same version, and was told nothing. The next look is because of a bit that stood for
/// longer, so what was acted upon before would be left alone.
#[test]
fn a_request_that_stands_is_told_to_whoever_adopts_the_lease() {
    let (mut lab, ls) = Lab::ready();
    persistent(&mut lab, 0, "r", false);
    let resource = lab.resource("r").unwrap();
    let bit = || Event::Noticed {
        ls,
        from: HostId::new(2).unwrap(),
        generation: 6,
        event: HostEvent { generation: 3, event: 0, data: 9 },
    };
    let looks = |actions: &[Action]| actions.iter().any(|a| matches!(a, Action::LookForRequests { .. }));
    let looked = |lab: &mut Lab| lab.looked(ls, vec![Request { resource, lver: 8, force_mode: 2 }]);
    let again = |lab: &mut Lab| {
        assert!(!looks(&lab.quiet(bit())), "not so soon");
        assert!((0..12).any(|_| looks(&lab.tick())));
        looked(lab)
    };
    let term = |conn, pid| Action::Kill { conn: ConnId(conn), pid, signal: Signal::Term };
    assert!(looks(&lab.quiet(bit())));
    assert_eq!(looked(&mut lab), [term(0, 100)]);
    assert_eq!(again(&mut lab), [], "it has been told");
    lab.close(0);
    assert_eq!(ask(&mut lab, 1, vec![asking("r", false)], OrphanUse::Adopt), [replied(1, 0)]);
    assert_eq!(again(&mut lab), [term(1, 101)]);
    assert_eq!(again(&mut lab), [], "so has this one");
}
