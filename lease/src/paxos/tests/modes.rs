//! Entering and leaving shared mode and converting, with several disks, writes that hang, and lost versions.

use super::disks::{block_on, disk, lab3, three};
use super::*;
use crate::machine::Action;
use crate::paxos::acquire::Mode;
use crate::paxos::convert::PaxosConvert;
use crate::paxos::share::PaxosShare;
use crate::paxos::take::PaxosTake;

fn free3() -> Lab {
    lab3([leader(0, NOBODY); 3])
}

fn hangs_on(lab: &mut Lab, n: u8) {
    lab.fates(move |op| if op.is_write() && op.place == disk(n) { Fate::never() } else { Fate::prompt() });
}

fn share_one(lab: &mut Lab) -> Held {
    held(&lab.run_noisy(&mut PaxosShare::new(config(US), AcquireOptions::default(), 0)))
}

/// A disk to which a write of the acquire hangs gets no mode block of the shared hold either: the order of the two would be undefined.
#[test]
fn entering_shared_mode_leaves_a_disk_alone_to_which_a_write_hangs() {
    let mut lab = free3();
    let mut machine = PaxosShare::new(three(), AcquireOptions::default(), 0);
    assert!(held(&lab.run_noisy(&mut machine)).is_shared());
    assert_eq!(machine.outstanding(), 0);
    for hung in 0..3 {
        let mut lab = free3();
        hangs_on(&mut lab, hung);
        let mut machine = PaxosShare::new(three(), AcquireOptions::default(), 0);
        let done = lab.run_noisy(&mut machine);
        assert!(held(&done).is_shared());
        assert_eq!((done.outstanding, machine.outstanding()), (1, 1));
        let to_hung = lab.trace.iter().filter(|t| t.op.is_write() && t.op.place == disk(hung)).count();
        assert_eq!(to_hung, 1, "disk {hung}");
    }
}

/// Others look for the flag of a hold whose leader somebody has committed in its name, on a majority of the disks, and nobody would write it before
/// the hold ends: an announced hold without it is none.
#[test]
fn a_shared_hold_without_its_mark_on_a_majority_is_refused_and_taken_back() {
    for failing in 0..4_u8 {
        let mut lab = free3();
        lab.fates(move |op| {
            let marks = matches!(&op.action, Action::Write { content: Content::Block(block), .. }
                if block.dblock.is_released() && block.mode.is_shared());
            let on = (0..failing).any(|n| op.place == disk(n));
            if marks && on { Fate::fail(IoFailure::Os(11)) } else { Fate::prompt() }
        });
        let done = lab.run_noisy(&mut PaxosShare::new(three(), AcquireOptions::default(), 8));
        if failing < 2 {
            assert!(held(&done).is_shared(), "{failing}");
            continue;
        }
        let error = AcquireError::Share(ReleaseError::DblockWrite(IoFailure::Os(11)));
        let (found, _, retract) = failure(&done);
        assert_eq!((found, retract, done.outstanding), (error, true, 0), "{failing}");
        lab.no_faults();
        lab.run_noisy(&mut PaxosRelease::retract(three(), Geometry::B512_M1)).outcome.result.unwrap();
        for n in 0..3 {
            let block = block_on(&lab, n, US);
            assert!(block.dblock.is_released() && !block.mode.is_shared(), "{failing} {n}");
        }
    }
}

/// Who lost the version tries again, but not while a write may still land: a further attempt would not know of it (R3).
#[test]
fn a_lost_version_is_tried_again_unless_a_write_is_outstanding() {
    for hung in [false, true] {
        let mut lab = free3();
        // Host 2 came back: what it owns by this value is free for the taking once it is committed.
        put_delta(&mut lab, 2, delta(2, 2, 950));
        for n in 0..3 {
            put(&mut lab, disk(n), 2, Content::Block(block([4001, 0, 0, 0, 0, 1])));
            put(&mut lab, disk(n), 3, Content::Block(block([2, 2, 2, 1, 777, 1])));
        }
        if hung {
            hangs_on(&mut lab, 1);
        }
        let done = lab.run_noisy(&mut PaxosShare::new(three(), AcquireOptions::default(), 8));
        if hung {
            assert_eq!((code(&done), failure(&done).2, done.outstanding), (-245, false, 1));
        } else {
            let held = held(&done);
            assert_eq!((held.lver(), held.is_shared(), done.outstanding), (2, true, 0));
        }
    }
}

#[test]
fn a_take_waits_as_the_machine_below_it_does() {
    for mode in [Mode::Exclusive, Mode::ShortHold] {
        let mut lab = lab(leader(5, owned_by(2, 1)));
        let options = AcquireOptions { mode, ..AcquireOptions::default() };
        let done = lab.run(&mut PaxosTake::new(config(US), options, 0, false));
        assert!(
            matches!(done.outcome.outcome, AcquireOutcome::Acquired(held) if held.lver() == 6),
            "{mode:?}: {:?}",
            done.outcome
        );
        assert!(done.at.secs_since(MonoTime::from_secs(1000)) >= 140, "{mode:?}");
    }
}

/// A conversion that ends before it has read our block says of it what it said before.
#[test]
fn a_conversion_that_reads_nothing_changes_nothing() {
    let mut lab = free_lab();
    let ours = share_one(&mut lab);
    lab.fates(|_| Fate::fail(IoFailure::Os(5)));
    let done = lab.run_noisy(&mut PaxosConvert::to_exclusive(config(US), AcquireOptions::default(), ours));
    assert!(done.outcome.result.is_err());
    assert_eq!((done.outcome.held, done.outcome.erase), (ours, false));
}

/// What a failed conversion left is taken back at once, but not beside a write that may still land.
#[test]
fn a_failed_conversion_begins_nothing_beside_a_write_that_hangs() {
    for (fate, erase, outstanding) in [(Fate::fail(IoFailure::Os(5)), false, 0), (Fate::never(), true, 1)] {
        let mut lab = free_lab();
        let ours = share_one(&mut lab);
        nth_write(&mut lab, 1, fate);
        lab.trace.clear();
        let mut machine = PaxosConvert::to_exclusive(config(US), AcquireOptions::default(), ours);
        let done = lab.run_noisy(&mut machine);
        assert!(done.outcome.result.is_err() && done.outcome.held.is_shared());
        assert_eq!((done.outcome.erase, done.outstanding), (erase, outstanding));
        let after = lab.trace.iter().rposition(|t| t.op.is_write()).map(|at| lab.trace.len() - 1 - at);
        if outstanding > 0 {
            assert_eq!((writes(&lab).len(), after), (2, Some(0)), "nothing follows the write that hangs");
        } else {
            assert!(block_of(&lab, US).dblock.is_released(), "taken back");
            assert!(done.outcome.held.block.dblock.is_released(), "and known to be");
        }
    }
}

/// A value of ours that was given up already is adopted again, and that fails: the mark stays in what is told of our block.
#[test]
fn a_mark_that_was_there_before_is_there_after_a_failed_conversion() {
    let mut lab = free_lab();
    let mut ours = share_one(&mut lab);
    let mut block = released(block([4001, 4001, US, 1, 777, 2]));
    block.mode = ModeBlock::shared(1);
    put_block(&mut lab, US, block);
    ours.block = block;
    nth_write(&mut lab, 1, Fate::fail(IoFailure::Os(5)));
    let done = lab.run_noisy(&mut PaxosConvert::to_exclusive(config(US), AcquireOptions::default(), ours));
    assert!(done.outcome.result.is_err());
    assert!(done.outcome.held.block.dblock.is_released() && block_of(&lab, US).dblock.is_released());
}

/// The mode block is to go from every disk: the conversion ends when each has answered or timed out, and tells of the one that has not.
#[test]
fn a_conversion_to_exclusive_ends_with_the_last_disk() {
    for (slow, outstanding) in [(Fate::after(7_000), 0), (Fate::never(), 1)] {
        for n in 0..3 {
            let mut lab = free3();
            let ours = held(&lab.run_noisy(&mut PaxosShare::new(three(), AcquireOptions::default(), 0)));
            lab.fates(move |op| match op.action {
                crate::machine::Action::Write { content: Content::Block(ref block), .. }
                    if op.place == disk(n) && !block.mode.is_shared() =>
                {
                    slow
                }
                _ => Fate::prompt(),
            });
            let done =
                lab.run_noisy(&mut PaxosConvert::to_exclusive(three(), AcquireOptions::default(), ours));
            assert_eq!(done.outcome.result, Ok(()));
            assert_eq!(done.outstanding, outstanding, "disk {n}");
            for other in 0..3 {
                let shared = block_on(&lab, other, US).mode.is_shared();
                assert_eq!(shared, other == n && outstanding > 0, "disk {other}");
            }
        }
    }
}

#[test]
fn taking_back_what_is_not_there_writes_nothing() {
    let mut lab = free_lab();
    let ours = share_one(&mut lab);
    let before = block_of(&lab, US);
    lab.trace.clear();
    let done = lab.run_noisy(&mut PaxosConvert::erase(config(US), ours));
    assert_eq!((done.outcome.result, done.outcome.erase), (Ok(()), false));
    assert_eq!((writes(&lab), block_of(&lab, US)), (vec![], before));
    // A shared hold of a former life is not this one.
    let mut old = before;
    old.mode = ModeBlock::shared(9);
    put_block(&mut lab, US, old);
    lab.trace.clear();
    lab.run_noisy(&mut PaxosConvert::erase(config(US), ours));
    assert_eq!((writes(&lab), block_of(&lab, US)), (vec![2], before));
}
