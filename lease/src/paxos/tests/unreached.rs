//! Hosts that the looks of renewals do not reach, as an acquire meets them: dead ones are in nobody's way for ever.

use super::holders::{free_at_5, sharing};
use super::*;
use crate::machine::{Action, NoHosts};
use crate::paxos::convert::PaxosConvert;
use crate::paxos::share::PaxosShare;

/// Host 2 renewed once after the last look that reached it, 150 s ago. It shares the lease, which is free at version 5.
fn unreached() -> Lab {
    let mut lab = lab(free_at_5());
    put_block(&mut lab, 2, sharing(1));
    put_delta(&mut lab, 2, delta(2, 1, 910));
    lab.hosts = seen(2, 1, 500, 850, 850);
    lab
}

fn secs_of(lab: &mut Lab, options: AcquireOptions) -> (Finished<AcquireOutcome>, u64) {
    let began = lab.now;
    let done = acquire(lab, options);
    (done, lab.now.secs_since(began))
}

#[test]
fn a_dead_holder_is_in_the_way_for_as_long_as_its_own_silence_takes() {
    for hosts in [seen(2, 1, 500, 850, 850), Rc::new(NoHosts) as Rc<dyn HostView>] {
        let mut lab = unreached();
        lab.hosts = hosts;
        let (done, took) = secs_of(&mut lab, AcquireOptions::default());
        assert_eq!(held(&done).lver(), 6);
        assert!((141..150).contains(&took), "{took} s");
        assert!(!block_of(&lab, 2).mode.is_shared());
    }
}

/// Of 80 s and more without a look nothing is known; before that the table counts, as it does for everybody else.
#[test]
fn a_look_that_is_not_old_decides() {
    for (last_check, code_found) in [(920, -11), (918, 0)] {
        let mut lab = unreached();
        lab.hosts = seen(2, 1, 500, 850, last_check);
        let done = acquire_plain(&mut lab);
        assert_eq!(
            if code_found == 0 { i32::from(held(&done).lver() != 6) } else { code(&done) },
            code_found
        );
    }
}

#[test]
fn a_holder_that_renews_keeps_the_lease() {
    let mut lab = unreached();
    lab.after_secs(30, |lab| put_delta(lab, 2, delta(2, 1, 930)));
    let (done, took) = secs_of(&mut lab, AcquireOptions::default());
    assert_eq!(failure(&done), (AcquireError::Shared { host: host(2), generation: 1 }, -11, false));
    assert!((30..35).contains(&took), "{took} s");
    assert_eq!(writes(&lab), [2], "our ballot number");
}

#[test]
fn who_does_not_want_to_wait_is_refused_at_once() {
    let mut lab = unreached();
    let (done, took) = secs_of(&mut lab, nowait());
    assert_eq!((code(&done), took), (-11, 0));
}

/// Its hold goes on, and other processes of this host may want to share it.
#[test]
fn who_wants_to_have_it_alone_that_he_shares_is_refused_at_once() {
    let mut lab = unreached();
    let mut share = PaxosShare::new(config(US), AcquireOptions::default(), 0);
    let ours = held(&lab.run_noisy(&mut share));
    let began = lab.now;
    let mut machine = PaxosConvert::to_exclusive(config(US), AcquireOptions::default(), ours);
    let outcome = lab.run_noisy(&mut machine).outcome;
    assert_eq!(outcome.result.map_err(|e| ReturnCode::from(&e).0), Err(-11));
    assert_eq!((outcome.held.is_shared(), lab.now.secs_since(began)), (true, 0));
}

/// They are watched at the same time.
#[test]
fn several_dead_holders_take_no_longer_than_one() {
    let mut lab = unreached();
    for id in [4, 8] {
        put_block(&mut lab, id, HostBlock { mode: ModeBlock::shared(1), ..HostBlock::zeroed() });
    }
    let (done, took) = secs_of(&mut lab, AcquireOptions::default());
    assert_eq!(held(&done).lver(), 6);
    assert!((141..150).contains(&took), "{took} s");
    for id in [2, 4, 8] {
        assert!(!block_of(&lab, id).mode.is_shared(), "host {id}");
    }
}

/// One that is known to be alive ends the acquire before anybody is waited for, whoever comes first.
#[test]
fn a_living_holder_refuses_at_once_beside_one_that_nothing_is_known_of() {
    for (unknown, alive) in [(2, 7), (7, 2)] {
        let mut lab = unreached();
        put_block(&mut lab, 7, HostBlock { mode: ModeBlock::shared(1), ..HostBlock::zeroed() });
        put_delta(&mut lab, 2, delta(2, 1, 900));
        lab.hosts = seen(alive, 1, 500, 990, 990);
        let (done, took) = secs_of(&mut lab, AcquireOptions::default());
        assert_eq!(failure(&done).0, AcquireError::Shared { host: host(alive), generation: 1 }, "{unknown}");
        assert_eq!(took, 0);
    }
}

/// The host that owns the lease, shares it, and stands in the way of a repair, is silent but once.
#[test]
fn who_is_watched_for_several_things_is_watched_once() {
    let mut lab = lab(leader(5, owned_by(2, 1)));
    put_block(&mut lab, 2, HostBlock { mode: ModeBlock::shared(1), ..block([2002, 2002, 2, 1, 400, 5]) });
    put_delta(&mut lab, 2, delta(2, 1, 910));
    lab.hosts = seen(2, 1, 500, 850, 850);
    let (done, took) = secs_of(&mut lab, AcquireOptions::default());
    assert_eq!(held(&done).lver(), 6);
    assert!((141..150).contains(&took), "{took} s");
    assert!(!block_of(&lab, 2).mode.is_shared());

    // Who does not want to wait is told of the owner.
    put_leader(&mut lab, leader(7, owned_by(2, 1)));
    let (done, took) = secs_of(&mut lab, nowait());
    assert_eq!((code(&done), took), (-247, 0));
}

/// It is found alive, has given the lease up by then, and taken it twice again: what is waited for from then on is its silence after that.
#[test]
fn an_owner_that_is_watched_again_was_silent_only_since_it_renewed() {
    let mut lab = lab(RawLeader { write_id: 5.into(), ..leader(5, owned_by(2, 1)) });
    put_delta(&mut lab, 2, delta(2, 1, 910));
    put_block(&mut lab, 2, released(block([2002, 2002, 2, 1, 400, 5])));
    lab.hosts = Rc::new(NoHosts);
    lab.after_secs(100, |lab| {
        put_delta(lab, 2, delta(2, 1, 1000));
        // Between our look at the flag and the one at the leader.
        lab.at(lab.now.plus_secs(1), |lab| put_leader(lab, leader(7, owned_by(2, 1))));
    });
    lab.fates(|op| match (op.place, &op.action) {
        (Place::Resource(_), Action::Read { first: 3, count: 1 }) => Fate::after(3_000),
        _ => Fate::prompt(),
    });
    let (done, took) = secs_of(&mut lab, AcquireOptions::default());
    assert_eq!(held(&done).lver(), 8);
    assert!((241..255).contains(&took), "{took} s");
}

/// What the table finds in the end is what we have seen all the while: no sign of life.
#[test]
fn a_look_that_reaches_a_watched_host_at_last_ends_no_watch() {
    let mut lab = unreached();
    lab.after_secs(130, |lab| {
        is_reached(lab, 910);
    });
    let (done, took) = secs_of(&mut lab, AcquireOptions::default());
    assert_eq!(held(&done).lver(), 6);
    assert!((141..150).contains(&took), "{took} s");

    // A first look is news.
    let mut lab = unreached();
    lab.hosts = Rc::new(NoHosts);
    lab.after_secs(5, |lab| {
        is_reached(lab, 910);
    });
    let (done, took) = secs_of(&mut lab, AcquireOptions::default());
    assert_eq!(code(&done), -11);
    assert!((5..8).contains(&took), "{took} s");

    // And so is a renewal.
    let mut lab = unreached();
    lab.after_secs(100, |lab| {
        put_delta(lab, 2, delta(2, 1, 990));
        is_reached(lab, 990);
    });
    let (done, took) = secs_of(&mut lab, AcquireOptions::default());
    assert_eq!(code(&done), -11);
    assert!((100..105).contains(&took), "{took} s");
}

/// A look has just found this timestamp in host 2's record, another one than before.
fn is_reached(lab: &mut Lab, timestamp: u64) {
    let now = lab.now.secs();
    let entry = seen(2, 1, 500, now, now).seen(host(2));
    let entry = entry.unwrap_or_else(|| panic!("it is there"));
    lab.hosts = Rc::new(Seen(2, HostSeen { timestamp, ..entry }));
}

/// Whatever was read before the watch is read anew after it.
#[test]
fn a_lease_that_is_taken_meanwhile_is_not_taken_twice() {
    let mut lab = unreached();
    lab.after_secs(50, |lab| {
        put_leader(lab, leader(6, owned_by(5, 1)));
        put_block(lab, 5, block([4005, 4005, 5, 1, 1050, 6]));
    });
    lab.after_secs(140, |lab| put_delta(lab, 5, delta(5, 1, 1140)));
    lab.after_secs(160, |lab| put_delta(lab, 5, delta(5, 1, 1160)));
    let done = acquire_plain(&mut lab);
    assert_eq!(code(&done), -243);
    assert_eq!(state(&leader_of(&lab)), state(&leader(6, owned_by(5, 1))));
    assert!(!writes(&lab).contains(&0));
}

#[test]
fn nobody_is_waited_for_once_the_client_or_the_lockspace_is_gone() {
    let gone: [(Change, i32); 2] =
        [(|lab| lab.client_alive = false, -25), (|lab| lab.lockspace = LockspaceNow::Gone, -28)];
    for (change, expected) in gone {
        let mut lab = unreached();
        lab.after_secs(20, change);
        let (done, took) = secs_of(&mut lab, AcquireOptions::default());
        assert_eq!(code(&done), expected);
        assert!((20..25).contains(&took), "{took} s");
    }
}

/// A holder with an io timeout of 100 s is waited for longer than an acquire may contend.
#[test]
fn the_time_of_a_watch_is_none_of_contending() {
    let mut lab = unreached();
    let mut slow = delta(2, 1, 910);
    slow.io_timeout = 100.into();
    slow.seal();
    put_delta(&mut lab, 2, slow);
    let (done, took) = secs_of(&mut lab, AcquireOptions::default());
    assert_eq!(held(&done).lver(), 6);
    assert!((861..870).contains(&took), "{took} s");
}

/// A host entered shared mode before our ballot was decided, and shows only after it: the version is ours, and is kept while it is watched.
#[test]
fn a_holder_that_shows_late_is_watched_while_the_lease_is_ours() {
    let mut lab = unreached();
    put_block(&mut lab, 2, HostBlock::zeroed());
    before_round(&mut lab, READ_2, |lab| put_block(lab, 2, sharing(1)));
    let (done, took) = secs_of(&mut lab, AcquireOptions::default());
    assert_eq!(held(&done).lver(), 6);
    assert!((141..150).contains(&took), "{took} s");
    assert!(!block_of(&lab, 2).mode.is_shared());
    assert_eq!(writes(&lab).iter().filter(|sector| **sector == 0).count(), 1, "one version");
}

/// Host 3, which may own a version in between, renewed once after the last look that reached it.
fn passed_over() -> Lab {
    let mut lab = repair::passed_over();
    put_delta(&mut lab, 3, delta(3, 1, 910));
    lab.hosts = seen(3, 1, 500, 850, 850);
    lab
}

#[test]
fn a_dead_host_in_between_is_in_the_way_of_a_repair_for_as_long_as_its_own_silence_takes() {
    let mut lab = passed_over();
    let (done, took) = secs_of(&mut lab, AcquireOptions::default());
    assert_eq!(held(&done).lver(), 4);
    assert!((141..150).contains(&took), "{took} s");
    assert!(lab.trace.len() < 200, "{} operations", lab.trace.len());
}

/// However many there are, and whoever comes first.
#[test]
fn each_host_in_between_is_judged() {
    for (left, alive) in [(3, 6), (6, 3)] {
        let mut lab = passed_over();
        put_block(&mut lab, 6, block([4006, 4006, 6, 1, 700, 3]));
        put_delta(&mut lab, left, delta(left, 1, 0));
        put_delta(&mut lab, alive, delta(alive, 1, 900));
        lab.hosts = seen(alive, 1, 500, 990, 990);
        let done = acquire_plain(&mut lab);
        assert!(matches!(failure(&done).0, AcquireError::Newer { host: found, .. } if found == host(alive)));
    }
}

#[test]
fn a_host_in_between_that_renews_stops_the_acquire() {
    let mut lab = passed_over();
    lab.after_secs(30, |lab| put_delta(lab, 3, delta(3, 1, 930)));
    let (done, took) = secs_of(&mut lab, AcquireOptions::default());
    assert_eq!(code(&done), -212);
    assert!((30..35).contains(&took), "{took} s");
    let mut lab = passed_over();
    let (done, took) = secs_of(&mut lab, nowait());
    assert_eq!((code(&done), took), (-212, 0));
}
