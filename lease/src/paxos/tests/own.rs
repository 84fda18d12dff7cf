//! Our own block as several disks show it, and what counts of writes and leaders that differ.

use super::*;
use crate::paxos::Value;
use crate::paxos::ops::{Tally, Unusable, Verdict, Votes};
use crate::paxos::own::OwnBlock;

const OURS: Value = Value { host: US, generation: 1, timestamp: 777 };

fn merged(blocks: &[HostBlock]) -> OwnBlock {
    let mut own = OwnBlock::default();
    for block in blocks {
        own.merge(&block.dblock);
    }
    own
}

#[test]
fn a_value_has_a_ballot_and_a_host() {
    assert_eq!(merged(&[block([1, 1, US, 1, 777, 5])]).value, Some(OURS));
    // A promise, an erased value, and a host without a ballot are none.
    for fields in [[1, 0, 0, 0, 0, 5], [1, 1, 0, 1, 777, 5], [1, 0, US, 1, 777, 5]] {
        assert_eq!(merged(&[block(fields)]).value, None, "{fields:?}");
    }
}

#[test]
fn a_flag_stays_with_its_version_and_value() {
    let value = [2001, 1, US, 1, 777, 5];
    let (plain, marked) = (block(value), released(block(value)));
    assert!(!merged(&[plain, plain]).released);
    assert!(merged(&[plain, marked]).released);
    assert!(merged(&[marked, plain]).released);
    // The same value proposed for a later version, and another value of this one, are not given up.
    let later = block([2001, 1, US, 1, 777, 6]);
    let other = block([2001, 2001, US, 1, 778, 5]);
    for newest in [later, other] {
        for pair in [[marked, newest], [newest, marked]] {
            let own = merged(&pair);
            assert_eq!((own.released, own.lver), (false, newest.dblock.lver.get()), "{pair:?}");
        }
    }
}

#[test]
fn accepting_a_value_again_keeps_a_flag_and_makes_none() {
    let other = Value { timestamp: 778, ..OURS };
    for (first, second, expected) in [
        (block([1, 1, US, 1, 777, 5]), OURS, false),
        (released(block([1, 1, US, 1, 777, 5])), OURS, true),
        (released(block([1, 1, US, 1, 777, 5])), other, false),
        (block([1, 1, US, 1, 777, 5]), other, false),
    ] {
        let mut own = merged(&[first]);
        own.phase1(5, 2001, true);
        let written = own.phase2(second);
        assert_eq!(written.dblock.is_released(), expected, "{first:?} {second:?}");
        assert_eq!(fields(&written), [2001, 2001, US, 1, second.timestamp, 5]);
    }
}

#[test]
fn a_ballot_for_a_new_version_keeps_the_flag_of_the_old_one_on_a_single_disk_until_a_value_is_accepted() {
    for single in [true, false] {
        let mut own = merged(&[released(block([1, 1, US, 1, 777, 5]))]);
        let bare = own.phase1(6, 2001, single);
        assert_eq!((bare.dblock.is_released(), fields(&bare)), (single, [2001, 0, 0, 0, 0, 6]));
        assert_eq!(own.phase1(7, 4001, single).dblock.is_released(), single);
        // Not even of the value that it was set for: of that version it was given up, of this one it is not.
        assert!(!own.phase2(OURS).dblock.is_released());
    }
    let mut own = merged(&[block([1, 1, US, 1, 777, 5])]);
    assert!(!own.phase1(6, 2001, true).dblock.is_released());
    // Nor is it known what a flag without a value was set for, as a retract leaves it of a ballot that got no further.
    for single in [true, false] {
        let mut own = merged(&[released(block([2001, 0, 0, 0, 0, 6]))]);
        assert_eq!(own.phase1(6, 4001, single).dblock.is_released(), single);
    }
}

/// It leaves something in flight; what else went wrong does not.
#[test]
fn of_several_failures_a_timeout_is_the_one_that_is_told() {
    let (late, other) = (Err(IoFailure::TimedOut), Err(IoFailure::Os(5)));
    for results in [[late, other], [other, late]] {
        let mut tally = Tally::default();
        for result in results {
            tally.count::<()>(&result);
        }
        assert_eq!((tally.ok, tally.failure), (0, Some(IoFailure::TimedOut)));
    }
}

/// From 10 on it is because of what was read.
#[derive(Clone, Copy, Debug)]
struct Number(u8);

impl Unusable for Number {
    fn is_record(&self) -> bool {
        self.0 >= 10
    }

    fn is_name(&self) -> bool {
        false
    }
}

#[test]
fn where_nothing_can_be_read_the_first_error_is_told_and_where_something_can_how_much() {
    let verdict = |disks: u8, votes: &[Result<RawLeader, Number>]| {
        let mut all: Votes<Number> = Votes::default();
        votes.iter().for_each(|vote| all.put(*vote));
        match all.verdict(disks, u32::from(disks) / 2 + 1, |_| false) {
            Verdict::Failed(Number(error)) => (Some(error), None),
            Verdict::TooFew(readable, other) => (other.map(|n| n.0), Some(readable)),
            Verdict::Leader(_) | Verdict::Newest(_) | Verdict::Differ => (None, None),
        }
    };
    let err = |n| Err(Number(n));
    assert_eq!(verdict(1, &[err(1)]), (Some(1), None));
    assert_eq!(verdict(3, &[err(1), err(2), err(3)]), (Some(1), None));
    let ok = || Ok(leader(5, NOBODY));
    assert_eq!(verdict(3, &[ok(), err(2), err(3)]), (Some(2), Some(1)));
    assert_eq!(verdict(3, &[ok(), err(2), err(13)]), (Some(13), Some(1)), "what was read tells more");
    assert_eq!(verdict(3, &[err(2), ok()]), (Some(2), Some(1)));
    assert_eq!(verdict(3, &[ok(), ok(), err(3)]), (None, None));
}

/// Too few disks with our block: how many answer is what matters, and it is told as such.
#[test]
fn our_own_block_must_be_read_from_a_majority() {
    for (bad, expected) in [(1, None), (2, Some(AcquireError::DblockRead(IoFailure::Os(5))))] {
        let mut lab = super::disks::lab3([leader(0, NOBODY); 3]);
        let mut reads = 0;
        lab.fates(move |op| {
            let own = matches!(op.action, crate::machine::Action::Read { first: 2, count: 1 });
            reads += u32::from(own);
            if own && reads <= bad { Fate::fail(IoFailure::Os(5)) } else { Fate::prompt() }
        });
        let done = super::disks::acquire3(&mut lab);
        match expected {
            None => assert_eq!(held(&done).lver(), 1),
            Some(error) => {
                assert_eq!(failure(&done).0, error);
                assert!(writes(&lab).is_empty());
            }
        }
    }
}
