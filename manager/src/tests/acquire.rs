use super::lab::*;
use crate::*;
use sanlock_lease::geometry::Geometry;
use sanlock_lease::machine::IoFailure;
use sanlock_lease::paxos::AcquireError;
use sanlock_lease::paxos::acquire::AcquireOutcome;

#[test]
fn a_resource_is_granted_once_acquired() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "r");
    assert_eq!(lab.tokens(0), ["r"]);
    assert_eq!(lab.list("r"), Some(ResourceList::Held));
    let [Action::Reply { reply: Reply::Held(held), .. }] =
        &lab.command(9, Command::Inquire { target: Target::Pid(100) })[..]
    else {
        panic!()
    };
    assert_eq!(held[0].lver, Some(7));
}

#[test]
fn the_task_gets_generation_host_and_timeout_of_the_lockspace() {
    let (mut lab, _) = Lab::ready();
    let mut wanted = request("r");
    wanted.num_hosts = Some(8);
    wanted.spec.lver = Some(3);
    let flags = AcquireFlags { owner_nowait: true, ..AcquireFlags::default() };
    let acquire =
        Command::Acquire { target: Target::Own, owner_name: name("me"), resources: vec![wanted], flags };
    let [Action::StartAcquire { config, options, .. }] = &lab.command(0, acquire)[..] else { panic!() };
    assert_eq!((config.generation, config.host.get(), config.io_timeout.secs()), (GENERATION, HOST, 1));
    assert_eq!((options.owner_nowait, options.lver, options.num_hosts), (true, Some(3), Some(8)));
    assert_eq!(lab.m.conns[&ConnId(0)].owner_name, Some(name("me")));
}

#[test]
fn one_failure_releases_what_was_acquired_before_in_order_and_is_the_result() {
    let (mut lab, _) = Lab::ready();
    let first = task(&lab.acquire(0, Target::Own, &["a", "b", "c"]));
    let others = acquires(&lab.acquired(first, 0));
    assert_eq!(lab.acquired(others[0].0, 0), []);
    let undo = releases(&lab.failed(others[1].0, live_owner(), false, 0));
    assert_eq!(undo.iter().map(|(_, which)| which.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(lab.resource("c"), None);
    // The undo's own failure is not the result.
    assert_eq!(lab.released(undo[0].0, timed_out(), 0), []);
    let released = Ok(sanlock_lease::paxos::release::Released::LeaderFreed);
    assert_eq!(lab.released(undo[1].0, released, 0), [replied(0, -243)]);
    assert_eq!(lab.tokens(0), [""; 0]);
    assert_eq!((lab.list("a"), lab.resource("b")), (Some(ResourceList::Rem), None));
}

#[test]
fn leases_of_earlier_commands_survive_a_failure() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "kept");
    let first = task(&lab.acquire(0, Target::Own, &["a"]));
    assert_eq!(lab.failed(first, live_owner(), false, 0), [replied(0, -243)]);
    assert_eq!(lab.tokens(0), ["kept"]);
}

#[test]
fn what_this_host_has_already_decides_first() {
    let (mut lab, _) = Lab::ready();
    let running = task(&lab.acquire(0, Target::Own, &["r"]));
    assert_eq!(lab.acquire(1, Target::Own, &["r"]), [replied(1, -16)], "being acquired");
    lab.acquired(running, 0);
    assert_eq!(lab.acquire(1, Target::Own, &["r"]), [replied(1, -17)], "held by another");
    assert_eq!(lab.acquire(0, Target::Own, &["r"]), [replied(0, -17)], "held by the caller");
    release_of(&lab.release(0, &["r"]));
    assert_eq!(lab.acquire(1, Target::Own, &["r"]), [replied(1, -11)], "being released");
}

#[test]
fn the_same_resource_twice_in_a_request_is_held_already() {
    // 3.8.5 answers -17 and releases the first.
    let (mut lab, _) = Lab::ready();
    let first = task(&lab.acquire(0, Target::Own, &["r", "r"]));
    let (undo, _) = release_of(&lab.acquired(first, 0));
    let released = Ok(sanlock_lease::paxos::release::Released::LeaderFreed);
    assert_eq!(lab.released(undo, released, 0), [replied(0, -17)]);
}

#[test]
fn requests_that_cannot_be_are_refused_before_anything_is_touched() {
    let (mut lab, _) = Lab::ready();
    let mut try_one = |change: &dyn Fn(&mut Vec<ResourceRequest>, &mut AcquireFlags)| {
        let (mut resources, mut flags) = (vec![request("a"), request("b")], AcquireFlags::default());
        change(&mut resources, &mut flags);
        lab.result(0, Command::Acquire { target: Target::Own, owner_name: name("n"), resources, flags })
    };
    assert_eq!(try_one(&|r, _| *r = vec![request("a"); 9]), -7);
    assert_eq!(try_one(&|r, _| r[1].spec.disks.clear()), -34);
    assert_eq!(try_one(&|r, _| r[1].spec.disks = vec![r[0].spec.disks[0].clone(); 5]), -34);
    assert_eq!(try_one(&|r, _| r[1].spec.lockspace = name("absent")), -28);
    assert_eq!(try_one(&|_, f| f.orphan = OrphanUse::Only), -2);
    assert_eq!(try_one(&|r, _| r.clear()), 0, "nothing is legal");
    assert_eq!(lab.m.resources().count(), 0);
}

#[test]
fn the_owner_name_is_taken_over_as_far_as_the_message_is_read() {
    let (mut lab, _) = Lab::ready();
    let mut named = |resources: Vec<ResourceRequest>, owner: &str| {
        let (owner_name, flags) = (name(owner), AcquireFlags::default());
        lab.command(0, Command::Acquire { target: Target::Own, owner_name, resources, flags });
        lab.m.conns[&ConnId(0)].owner_name.unwrap().to_string()
    };
    assert_eq!(named(vec![request("a"); 9], "nine"), "100");
    let mut bare = request("a");
    bare.spec.disks.clear();
    assert_eq!(named(vec![bare], "bare"), "100");
    assert_eq!(named(vec![request("absent:a")], "absent"), "absent");
    assert_eq!(named(vec![], ""), "");
}

#[test]
fn a_client_has_so_many_tokens_at_most() {
    let (mut lab, _) = Lab::ready();
    let id = lab.hold(0, "r");
    lab.m.conns.get_mut(&ConnId(0)).unwrap().tokens.resize(TOKENS_MAX, Some(id));
    let mut out = Vec::new();
    let command = Command::Acquire {
        target: Target::Own,
        owner_name: name("n"),
        resources: vec![request("s")],
        flags: AcquireFlags::default(),
    };
    lab.m.handle(lab.now, Event::Command { conn: ConnId(0), command }, &mut out);
    assert_eq!(out, [replied(0, -7)]);
}

#[test]
fn a_lockspace_that_is_joining_removed_or_failed_gives_nothing() {
    let (mut lab, _) = Lab::ready();
    lab.add("new");
    assert_eq!(lab.acquire(0, Target::Own, &["new:r"]), [replied(0, -28)]);
    lab.hold(1, "r");
    lab.remove(9, "ls");
    assert_eq!(lab.acquire(0, Target::Own, &["s"]), [replied(0, -28)]);
}

#[test]
fn a_target_that_hangs_up_meanwhile_loses_everything_and_the_answer_is_enotty() {
    let (mut lab, _) = Lab::ready();
    let first = task(&lab.acquire(9, Target::Pid(100), &["a", "b"]));
    let second = task(&lab.acquired(first, 0));
    assert_eq!(lab.close(0), [Action::ClientGone { task: second }]);
    assert_eq!(lab.acquire(1, Target::Pid(100), &[]), [replied(1, -16)]);
    // It was too late to stop.
    let undo = releases(&lab.acquired(second, 0));
    assert_eq!(undo.iter().map(|(_, which)| which.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let released = Ok(sanlock_lease::paxos::release::Released::LeaderFreed);
    assert_eq!(lab.released(undo[1].0, released, 0), []);
    assert_eq!(lab.released(undo[0].0, released, 0), [replied(9, -25), Action::Forget { conn: ConnId(0) }]);
    assert_eq!(lab.m.resources().count(), 0);
}

#[test]
fn an_acquire_stopped_because_its_client_is_gone_keeps_its_own_code() {
    let (mut lab, _) = Lab::ready();
    let first = task(&lab.acquire(9, Target::Pid(100), &["a"]));
    lab.close(0);
    let actions = lab.failed(first, live_owner(), false, 0);
    assert_eq!(actions, [replied(9, -243), Action::Forget { conn: ConnId(0) }]);
}

#[test]
fn a_requester_that_hangs_up_loses_only_the_answer() {
    let (mut lab, _) = Lab::ready();
    let first = task(&lab.acquire(9, Target::Pid(100), &["a"]));
    assert_eq!(lab.close(9), [Action::Forget { conn: ConnId(9) }]);
    assert_eq!(lab.acquired(first, 0), []);
    assert_eq!(lab.tokens(0), ["a"]);
}

#[test]
fn nothing_is_granted_in_a_lockspace_that_died_meanwhile() {
    let (mut lab, ls) = Lab::ready();
    let first = task(&lab.acquire(0, Target::Own, &["a"]));
    assert_eq!(lab.remove(9, "ls"), [Action::Gone { ls }], "the acquire is waited for");
    // Nothing may be written: it is dropped.
    let actions = lab.acquired(first, 0);
    assert_eq!(actions, [replied(0, -28), Action::Leave { ls, release: true }]);
    assert_eq!((lab.tokens(0), lab.resource("a")), (vec![], None));
}

#[test]
fn nothing_is_granted_with_another_generation_than_it_was_acquired_with() {
    let (mut lab, _) = Lab::ready();
    let first = task(&lab.acquire(0, Target::Own, &["a"]));
    let outcome = AcquireOutcome::Acquired(held(GENERATION - 1, 7));
    let (undo, _) =
        release_of(&lab.quiet(Event::AcquireDone { task: first, outcome, value: None, outstanding: 0 }));
    assert_eq!(lab.released(undo, timed_out(), 0), [replied(0, -28)]);
}

#[test]
fn nothing_is_granted_after_standing_still_even_before_the_tick() {
    let (mut lab, _) = Lab::ready();
    let first = task(&lab.acquire(0, Target::Own, &["a"]));
    lab.now = lab.now.plus_secs(8);
    release_of(&lab.acquired(first, 0));
    assert_eq!(lab.tokens(0), [""; 0]);
}

#[test]
fn a_lockspace_that_dies_drops_what_is_not_granted_yet_and_spares_the_process() {
    let (mut lab, ls) = Lab::ready();
    lab.join("two");
    let first = task(&lab.acquire(0, Target::Own, &["a", "two:b"]));
    let second = task(&lab.acquired(first, 0));
    // The second one may wait for long; "ls" does not wait for it, and nobody is killed.
    assert_eq!(lab.remove(9, "ls"), [Action::Gone { ls }, Action::Leave { ls, release: true }]);
    assert_eq!(lab.tick(), []);
    let (undo, which) = release_of(&lab.acquired(second, 0));
    assert_eq!(which, "b");
    assert_eq!(lab.released(undo, timed_out(), 0), [replied(0, -28)]);
}

#[test]
fn a_failed_acquire_that_may_have_left_something_is_taken_back() {
    let (mut lab, _) = Lab::ready();
    let first = task(&lab.acquire(0, Target::Own, &["a"]));
    let actions = lab.failed(first, AcquireError::DblockRead(IoFailure::Os(5)), true, 0);
    let retract = retract_of(&actions[..1]);
    assert_eq!(actions[1..], [replied(0, -210)], "the client does not wait for it");
    assert_eq!(lab.acquire(0, Target::Own, &["a"]), [replied(0, -11)]);
    let released = Ok(sanlock_lease::paxos::release::Released::ByFlag);
    assert_eq!(lab.released(retract, released, 0), []);
    task(&lab.acquire(0, Target::Own, &["a"]));
}

#[test]
fn a_failed_acquire_with_outstanding_writes_is_taken_back_only_after_they_landed() {
    let (mut lab, _) = Lab::ready();
    let first = task(&lab.acquire(0, Target::Own, &["a"]));
    let error = AcquireError::LeaderWrite(IoFailure::TimedOut);
    assert_eq!(lab.failed(first, error, true, 1), [replied(0, -202)]);
    for _ in 0..100 {
        assert_eq!(lab.tick(), [], "nothing starts meanwhile");
        assert_eq!(lab.acquire(0, Target::Own, &["a"]), [replied(0, -11)]);
    }
    retract_of(&lab.settled(first));
}

#[test]
fn a_lease_acquired_with_a_lagging_disk_is_granted_and_not_released_before_that_disk_settled() {
    let (mut lab, _) = Lab::ready();
    let first = task(&lab.acquire(0, Target::Own, &["a"]));
    assert_eq!(lab.acquired(first, 1), [replied(0, 0)]);
    assert_eq!(lab.release(0, &["a"]), [replied(0, -202)]);
    assert_eq!(lab.tokens(0), [""; 0]);
    assert_eq!(lab.tick(), []);
    assert_eq!(lab.acquire(0, Target::Own, &["a"]), [replied(0, -11)]);
    retract_of(&lab.settled(first));
    // Had it settled before, the release would have been an ordinary one.
    let second = task(&lab.acquire(1, Target::Own, &["b"]));
    lab.acquired(second, 1);
    assert_eq!(lab.settled(second), []);
    release_of(&lab.release(1, &["b"]));
}

#[test]
fn a_lagging_disk_keeps_the_host_id() {
    let (mut lab, ls) = Lab::ready();
    let first = task(&lab.acquire(0, Target::Own, &["a"]));
    lab.acquired(first, 1);
    lab.remove(9, "ls");
    lab.pid_gone(0);
    assert_eq!(lab.close(0), [Action::Forget { conn: ConnId(0) }]);
    assert_eq!(lab.tick(), []);
    assert_eq!(lab.settled(first), [Action::Leave { ls, release: true }]);
}

#[test]
fn disks_that_cannot_be_opened_are_the_result() {
    let (mut lab, _) = Lab::ready();
    let first = task(&lab.acquire(0, Target::Own, &["a", "b"]));
    let second = task(&lab.acquired(first, 0));
    let (undo, _) = release_of(&lab.quiet(Event::StartFailed { task: second, code: -2 }));
    assert_eq!(lab.quiet(Event::StartFailed { task: undo, code: -13 }), [replied(0, -2)]);
    assert_eq!(lab.list("a"), Some(ResourceList::Rem));
    retract_of(&lab.tick());
}

#[test]
fn losing_to_another_host_is_an_error_in_the_log_if_that_is_asked_for() {
    for (quiet, expected) in [(true, Level::Debug), (false, Level::Error)] {
        let (mut lab, _) = Lab::ready();
        lab.m.settings.quiet_fail = quiet;
        let mut level = |error: AcquireError| {
            let task = task(&lab.acquire(0, Target::Own, &["a"]));
            let outcome = AcquireOutcome::Failed { error, retract: None, geometry: Geometry::B512_M1 };
            let mut out = Vec::new();
            lab.m.handle(
                lab.now,
                Event::AcquireDone { task, outcome, value: None, outstanding: 0 },
                &mut out,
            );
            out.iter().find_map(|action| match action {
                Action::Log { level, text, .. } if text.starts_with("acquire") => Some(*level),
                _ => None,
            })
        };
        assert_eq!(level(live_owner()), Some(expected));
        assert_eq!(level(AcquireError::ClientGone), Some(Level::Debug), "nobody else's doing");
        assert_eq!(level(AcquireError::DblockRead(IoFailure::Os(5))), Some(Level::Error));
    }
}
