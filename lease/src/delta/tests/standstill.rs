//! Joins of a program that stands still: whatever it read, or wrote, it may learn of an hour later.

use super::drive::{Hand, taken};
use super::*;
use crate::delta::{JoinError, JoinOutcome};
use crate::machine::{Action, Input, NoSectors, Op, Step};
use crate::testing::SparseView;

const HOUR: u64 = 3600;

/// What a read finds now.
fn sampled(hand: &Hand, op: &Op) -> SparseView {
    let Action::Read { first, count } = op.action else { panic!("no read: {op:?}") };
    hand.lab.disk.view(op.place, op.sector_size, first, count).unwrap()
}

/// Another machine with our host id takes it, with the generation that we would have, and lives.
fn beta_takes_it(hand: &mut Hand, generation: u64) {
    let now = hand.lab.now.secs();
    edit(&mut hand.lab, 1, held_by("beta", 1, generation, now));
}

/// Lets time pass and operations end as they should, to the end of the join.
fn to_the_end(hand: &mut Hand, step: Step<JoinOutcome>) -> JoinOutcome {
    to_the_end_with(hand, step, |_| ())
}

/// The same; something happens at the end of each wait.
fn to_the_end_with(hand: &mut Hand, mut step: Step<JoinOutcome>, waited: impl Fn(&mut Lab)) -> JoinOutcome {
    for _ in 0..200 {
        match step {
            Step::Io(ops) => step = hand.complete(&ops[0]),
            Step::Wait(until) => {
                hand.lab.now = until;
                waited(&mut hand.lab);
                step = hand.give(Input::Tick);
            }
            Step::Done { outcome, .. } => return outcome,
            Step::Pending => panic!("nothing is running"),
        }
    }
    panic!("it does not end");
}

/// The other host renews.
fn beta_lives(lab: &mut Lab) {
    let now = lab.now.secs();
    edit(lab, 1, |leader| leader.timestamp = now.into());
}

/// Every read on which a write or the end of a join relies: the own sector, a look, the last look, the check after the settling time.
#[test]
fn what_was_read_before_a_standstill_is_read_again() {
    let free_again = |hand: &mut Hand| edit(&mut hand.lab, 1, |leader| leader.timestamp = 0.into());
    for (number, lab, before) in [
        (2, lab as fn() -> Lab, None),
        (3, taken, Some(&free_again as &dyn Fn(&mut Hand))),
        (71, taken, None),
        (4, lab, None),
    ] {
        let mut hand = Hand::new(lab());
        let op = hand.until_op(number);
        if let Some(before) = before {
            before(&mut hand);
        }
        let old = sampled(&hand, &op);
        hand.lab.now = hand.lab.now.plus_secs(HOUR);
        let generation = record(&hand.lab, 1).owner_generation.get() + u64::from(number != 4);
        beta_takes_it(&mut hand, generation);
        let step = hand.give(Input::Completed { op: op.id, result: Ok(&old) });
        assert!(!matches!(&step, Step::Io(ops) if ops[0].is_write()), "operation {number} writes");
        let outcome = to_the_end_with(&mut hand, step, beta_lives);
        assert!(
            matches!(outcome, Err(JoinError::Busy { .. } | JoinError::Lost { .. })),
            "{number}: {outcome:?}"
        );
        assert_eq!(record(&hand.lab, 1).resource_name, name("beta").to_field());
    }
}

/// A competitor looks 2T after its own write: ours must be there by then, or its join has succeeded.
#[test]
fn a_write_that_is_seen_to_end_after_the_settling_time_is_no_join() {
    for (late_ms, joins) in [(0, true), (1_899, true), (1_900, false), (HOUR * 1000, false)] {
        let mut hand = Hand::new(lab());
        let op = hand.until_op(3);
        assert!(op.is_write());
        hand.lab.now = hand.lab.now.plus_millis(late_ms);
        let step = hand.complete(&op);
        let outcome = to_the_end(&mut hand, step);
        assert_eq!(outcome.is_ok(), joins, "{late_ms} ms: {outcome:?}");
        if !joins {
            assert_eq!(outcome, Err(JoinError::StoodStill { ms: late_ms }));
            // Whoever reads "free" there would believe that nobody uses leases of this generation. The other host may.
            assert_ne!(record(&hand.lab, 1).timestamp.get(), 0, "{late_ms} ms: freed");
        }
    }
}

/// The read counts, not the moment at which its result was looked at.
#[test]
fn the_time_of_a_write_counts_from_the_read_that_it_relies_on() {
    for (read_ms, write_ms, joins) in [(1000, 899, true), (1000, 900, false), (900, 1000, false)] {
        let mut hand = Hand::new(lab());
        let op = hand.until_op(2);
        hand.lab.now = hand.lab.now.plus_millis(read_ms);
        let Step::Io(ops) = hand.complete(&op) else { panic!("no write") };
        assert!(ops[0].is_write());
        hand.lab.now = hand.lab.now.plus_millis(write_ms);
        let step = hand.complete(&ops[0]);
        let outcome = to_the_end(&mut hand, step);
        assert_eq!(outcome.is_ok(), joins, "{read_ms}, {write_ms}: {outcome:?}");
    }
}

/// Told to stop, such a join frees nothing either.
#[test]
fn a_late_write_is_not_freed_when_the_join_is_stopped() {
    let mut hand = Hand::new(lab());
    let op = hand.until_op(3);
    hand.stop = true;
    hand.lab.now = hand.lab.now.plus_millis(1_900);
    let step = hand.complete(&op);
    assert_eq!(hand.finish(step), (Err(JoinError::Stopped { freed: false }), 0));
    assert_ne!(record(&hand.lab, 1).timestamp.get(), 0);
}

/// A join that is to stop frees the lease by what it reads then: after 8T somebody may have waited for our death.
#[test]
fn a_stopped_join_frees_nothing_by_what_it_read_before_a_standstill() {
    for (still, freed) in [(1, true), (3, true), (HOUR, false)] {
        let mut hand = Hand::new(lab());
        let op = hand.until_op(4);
        hand.stop = true;
        let Step::Io(ops) = hand.give(Input::Tick) else { panic!("{op:?}: no read") };
        let old = sampled(&hand, &ops[0]);
        hand.lab.now = hand.lab.now.plus_secs(still);
        if !freed {
            beta_takes_it(&mut hand, 2);
        }
        let step = hand.give(Input::Completed { op: ops[0].id, result: Ok(&old) });
        let (outcome, _) = hand.finish(step);
        assert_eq!(outcome, Err(JoinError::Stopped { freed }), "{still} s");
        assert_eq!(record(&hand.lab, 1).timestamp.get() == 0, freed, "{still} s");
    }
}

/// Our record is still there, but others may be about to take the id from a host that has been silent for 8T.
#[test]
fn a_join_that_slept_through_its_settling_time_is_none() {
    for (still, joins) in [(2, true), (7, true), (8, false), (HOUR, false)] {
        let mut hand = Hand::new(lab());
        let op = hand.until_op(3);
        let written = hand.lab.now;
        assert!(matches!(hand.complete(&op), Step::Wait(_)));
        hand.lab.now = written.plus_secs(still);
        let step = hand.give(Input::Tick);
        let outcome = to_the_end(&mut hand, step);
        assert_eq!(outcome.is_ok(), joins, "{still} s: {outcome:?}");
        assert_ne!(record(&hand.lab, 1).timestamp.get(), 0);
    }
}

/// With another host's long io timeout on disk the record is renewed on the way: such a write must not come later than 8T after the one
/// before it.
#[test]
fn a_renewal_while_settling_that_comes_late_is_no_join() {
    for (late, joins) in [(0, true), (5, true), (6, false), (HOUR, false)] {
        let mut hand = Hand::new(lab_with(Geometry::B512_M1, 10));
        // Sizes, own sector, the write; after 2T the check and this write, which has 6T left.
        let write = hand.until_op(5);
        assert!(write.is_write());
        hand.lab.now = hand.lab.now.plus_secs(late);
        let step = hand.complete(&write);
        let outcome = to_the_end(&mut hand, step);
        assert_eq!(outcome.is_ok(), joins, "{late} s: {outcome:?}");
        assert_ne!(record(&hand.lab, 1).timestamp.get(), 0, "{late} s: freed");
    }
}

/// One standstill after the other: it ends all the same.
#[test]
fn a_program_that_stands_still_all_the_time_gives_up() {
    let mut hand = Hand::new(lab());
    let mut step = Step::Io(std::iter::once(hand.until_op(2)).collect());
    for reads in 0..20 {
        let Step::Io(ops) = &step else {
            assert!(
                matches!(step, Step::Done { outcome: Err(JoinError::StoodStill { .. }), .. }),
                "{step:?}"
            );
            assert_eq!(reads, 9);
            return;
        };
        let (op, old) = (ops[0].clone(), sampled(&hand, &ops[0]));
        hand.lab.now = hand.lab.now.plus_secs(2);
        step = hand.give(Input::Completed { op: op.id, result: Ok(&old) });
    }
    panic!("it reads for ever");
}

/// A look of which nothing is heard for so long that it is told late ends nothing, and a write is told once.
#[test]
fn operations_of_before_are_not_taken_for_those_of_now() {
    let mut hand = Hand::new(lab());
    let op = hand.until_op(2);
    let old = sampled(&hand, &op);
    hand.lab.now = hand.lab.now.plus_secs(HOUR);
    let Step::Io(again) = hand.give(Input::Completed { op: op.id, result: Ok(&old) }) else {
        panic!("no read")
    };
    assert_eq!(hand.give(Input::Completed { op: op.id, result: Ok(&old) }), Step::Pending);
    assert_eq!(hand.give(Input::CompletedLate { op: op.id, result: Ok(&NoSectors) }), Step::Pending);
    let step = hand.complete(&again[0]);
    assert!(to_the_end(&mut hand, step).is_ok());
}
