//! Releases of leases whose path leads nowhere.

use super::lab::{
    Lab, acquires, held, live_owner, name, release_of, releases, replied, request, task as task_of, timed_out,
};
use crate::*;
use sanlock_lease::machine::IoFailure;
use sanlock_lease::paxos::AcquireError;
use sanlock_lease::paxos::release::Released;
use sanlock_lease::record::HostBlock;

/// The io timeout of the lockspaces here.
const T: u64 = 1;

/// Host 1 gave the lease up twice, and found no disk: the next attempt is due.
fn gone() -> Lab {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "a");
    let (task, _) = release_of(&lab.release(0, &["a"]));
    assert_eq!(lab.quiet(Event::StartFailed { task, code: -2 }), [replied(0, -2)]);
    lab
}

/// An attempt to give it up that begins with these actions, and the hold that it is about.
fn attempt(actions: &[Action]) -> Option<(TaskId, Option<HostBlock>)> {
    actions.iter().find_map(|action| match action {
        Action::StartRetract { task, hold, .. } => Some((*task, *hold)),
        _ => None,
    })
}

/// The next one.
fn next_attempt(lab: &mut Lab) -> (TaskId, Option<HostBlock>) {
    (0..=2 * T).find_map(|_| attempt(&lab.tick())).expect("it is tried again")
}

/// As `virt-sanlock-cleanup` of libvirt has it: a program that holds the lease deletes its file.
#[test]
fn a_lease_whose_file_is_gone_is_tried_for_a_while_and_in_nobodys_way() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "a");
    let (task, _) = release_of(&lab.release(0, &["a"]));
    assert_eq!(lab.quiet(Event::StartFailed { task, code: -2 }), [replied(0, -2)]);
    let begun = lab.now;
    let mut attempts = 0;
    while lab.list("a").is_some() {
        assert!(lab.now.secs_since(begun) <= 8 * T + 2 * T, "{attempts} attempts");
        let actions = lab.tick();
        if let [Action::StartRetract { task, .. }] = actions[..] {
            attempts += 1;
            lab.quiet(Event::StartFailed { task, code: -2 });
        }
    }
    assert!(lab.now.secs_since(begun) >= 8 * T && attempts > 3, "{attempts} attempts, {:?}", lab.now);

    // Whoever makes it anew gets it.
    lab.hold(0, "b");
    let (task, _) = release_of(&lab.release(0, &["b"]));
    assert_eq!(lab.acquire(1, Target::Own, &["b"]), [replied(1, -11)], "being given up just now");
    lab.quiet(Event::StartFailed { task, code: -2 });
    let again = task_of(&lab.acquire(1, Target::Own, &["b"]));
    assert_eq!(lab.list("b"), Some(ResourceList::Add));
    assert_eq!(lab.acquired(again, 0), [replied(1, 0)]);
    (0..20).for_each(|_| assert_eq!(lab.tick(), [], "nothing is left of the release"));
}

#[test]
fn a_disk_that_is_there_again_or_fails_otherwise_is_tried_without_limit() {
    let (mut lab, _) = Lab::ready();
    lab.hold(0, "a");
    let (mut task, _) = release_of(&lab.release(0, &["a"]));
    for attempt in 0..40 {
        // Gone for most of the time, but never for eight io timeouts. One whose paths are down is not gone.
        match attempt % 4 {
            0 => drop(lab.quiet(Event::StartFailed { task, code: -6 })),
            1 => drop(lab.released(task, timed_out(), 0)),
            _ => drop(lab.quiet(Event::StartFailed { task, code: -2 })),
        }
        let found = (0..=2 * T).find_map(|_| match lab.tick()[..] {
            [Action::StartRetract { task, .. }] => Some(task),
            _ => None,
        });
        task = found.unwrap_or_else(|| panic!("attempt {attempt} was the last one"));
    }
}

/// The volume was away for a moment, and the lease on it is this host's for all others.
#[test]
fn an_acquire_that_comes_to_nothing_gives_the_release_its_place_back() {
    let ends: [fn(&mut Lab, TaskId) -> Vec<Action>; 3] = [
        // Its disk is still not there; it cannot be read; another version is wanted.
        |lab, task| lab.quiet(Event::StartFailed { task, code: -2 }),
        |lab, task| lab.failed(task, AcquireError::Io(IoFailure::TimedOut), false, 0),
        |lab, task| lab.failed(task, AcquireError::Lver { expected: 3, found: 4 }, false, 0),
    ];
    for (n, end) in ends.into_iter().enumerate() {
        let mut lab = gone();
        let task = task_of(&lab.acquire(1, Target::Own, &["a"]));
        let told = end(&mut lab, task);
        assert!(
            told.iter().any(|told| matches!(told, Action::Reply { conn: ConnId(1), .. })),
            "{n}: {told:?}"
        );
        assert_eq!(lab.list("a"), Some(ResourceList::Rem), "{n}");
        assert_eq!(attempt(&told).expect("it was due").1, Some(held(1, 7).block), "{n}: the same hold");
    }
}

/// The attempt that begins then is in the way of another one of the acquire, whose result it would be.
#[test]
fn an_acquire_beside_others_has_its_own_result_though_the_release_goes_on_in_its_place() {
    let mut lab = gone();
    let first = task_of(&lab.acquire(1, Target::Own, &["w", "x", "a"]));
    let begun = acquires(&lab.acquired(first, 0));
    let task = |wanted: &str| begun.iter().find(|(_, name)| name == wanted).map(|(task, _)| *task).unwrap();
    assert!(attempt(&lab.failed(task("a"), live_owner(), false, 0)).is_some());
    let mut told = lab.acquired(task("x"), 0);
    for (task, _) in releases(&told) {
        told.extend(lab.released(task, Ok(Released::LeaderFreed), 0));
    }
    let is_reply = |told: &&Action| matches!(told, Action::Reply { conn: ConnId(1), .. });
    let results: Vec<&Action> = told.iter().filter(is_reply).collect();
    assert_eq!(results, [&replied(1, -243)]);
}

/// Its time has not come yet when the acquire ends.
#[test]
fn a_release_that_gets_its_place_back_early_waits_for_its_time() {
    let mut lab = gone();
    let (task, _) = next_attempt(&mut lab);
    lab.quiet(Event::StartFailed { task, code: -2 });
    let task = task_of(&lab.acquire(1, Target::Own, &["a"]));
    let told = lab.quiet(Event::StartFailed { task, code: -2 });
    assert!(matches!(told[..], [Action::Reply { conn: ConnId(1), .. }]), "{told:?}");
    assert_eq!(lab.list("a"), Some(ResourceList::Rem));
    assert_eq!(next_attempt(&mut lab).1, Some(held(1, 7).block));
}

/// Each acquire takes longer than a tick to find nothing there, and the next one comes at once.
#[test]
fn a_release_is_tried_although_every_tick_meets_an_acquire_in_its_place() {
    let mut lab = gone();
    let (begun, mut attempts) = (lab.now, 0);
    while lab.list("a").is_some() {
        assert!(lab.now.secs_since(begun) <= 10 * T, "{attempts} attempts");
        let asked = lab.acquire(1, Target::Own, &["a"]);
        assert_eq!(attempt(&lab.tick()), None, "the acquire is in its place");
        let told = lab.quiet(Event::StartFailed { task: task_of(&asked), code: -2 });
        if let Some((task, _)) = attempt(&told) {
            attempts += 1;
            lab.quiet(Event::StartFailed { task, code: -2 });
        }
    }
    assert!(lab.now.secs_since(begun) >= 8 * T && attempts > 3, "{attempts} attempts");
}

/// Whoever asks again and again for a lease that is gone does not keep its release from being tried, nor from being dropped in the end.
#[test]
fn a_release_is_tried_in_its_own_time_however_often_somebody_asks_for_the_lease() {
    let mut lab = gone();
    let (begun, mut attempts) = (lab.now, 0);
    for _ in 0..12 * T {
        let mut told = Vec::new();
        for action in lab.acquire(1, Target::Own, &["a"]) {
            if let Action::StartAcquire { task, .. } = action {
                told.extend(lab.quiet(Event::StartFailed { task, code: -2 }));
            }
        }
        for told in [told, lab.tick()] {
            if let Some((task, _)) = attempt(&told) {
                attempts += 1;
                lab.quiet(Event::StartFailed { task, code: -2 });
            }
        }
        if lab.list("a").is_none() {
            break;
        }
    }
    assert_eq!(lab.list("a"), None, "{attempts} attempts");
    let waited = lab.now.secs_since(begun);
    assert!((8 * T..=10 * T).contains(&waited), "{attempts} attempts in {waited} s");
}

#[test]
fn a_release_whose_lockspace_ended_meanwhile_has_no_place_to_come_back_to() {
    let mut lab = gone();
    let task = task_of(&lab.acquire(1, Target::Own, &["a"]));
    lab.remove(9, "ls");
    lab.quiet(Event::StartFailed { task, code: -2 });
    assert_eq!(lab.list("a"), None);
}

#[test]
fn an_acquire_that_left_something_takes_back_all_that_is_this_host_s() {
    let mut lab = gone();
    let task = task_of(&lab.acquire(1, Target::Own, &["a"]));
    let actions = lab.failed(task, AcquireError::LeaderWrite(IoFailure::TimedOut), true, 0);
    assert!(actions.contains(&replied(1, -202)), "{actions:?}");
    let retract = actions.iter().find_map(|action| match action {
        Action::StartRetract { hold, attempt, .. } => Some((*hold, *attempt)),
        _ => None,
    });
    assert_eq!(retract, Some((None, Some(held(1, 1).block))));
}

#[test]
fn who_asks_for_something_else_waits_for_the_release() {
    // An orphan, of which there is none; another place, or another name, for it.
    let only = AcquireFlags { orphan: OrphanUse::Only, ..AcquireFlags::default() };
    let mut elsewhere = request("a");
    elsewhere.spec.disks[0].offset += 1 << 20;
    let mut renamed = request("b");
    renamed.spec.disks = request("a").spec.disks;
    for (flags, resource) in
        [(only, request("a")), (AcquireFlags::default(), elsewhere), (AcquireFlags::default(), renamed)]
    {
        let mut lab = gone();
        let resources = vec![resource];
        let command = Command::Acquire { target: Target::Own, owner_name: name("owner"), resources, flags };
        assert_eq!(lab.command(1, command), [replied(1, -11)]);
        assert_eq!(next_attempt(&mut lab).1, Some(held(1, 7).block));
    }
}
