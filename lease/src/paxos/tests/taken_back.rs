//! Holds that a slow commit has taken back to another name, on several disks, and what is not to be taken for them.

use super::disks::{acquire3, block_on, disk, lab3, leader_on, three};
use super::foreign::{all_of, called, reads_leader};
use super::*;
use crate::limits::LVB_SECTOR;
use crate::machine::Action;
use crate::paxos::convert::PaxosConvert;
use crate::paxos::share::PaxosShare;

/// Another lease of this host, acquired at the same second, has an equal block. Its leader is of this host's writing.
#[test]
fn another_lease_with_an_equal_block_is_not_taken_for_what_is_held() {
    let rows = [(US, 1, 1, false), (US, 7, 1, true), (2, 1, 1, true), (2, 1, 0, true), (2, 1, 2, false)];
    for (write_id, write_generation, lver, given_up) in rows {
        let mut lab = lab3([leader(0, NOBODY); 3]);
        let held = held(&acquire3(&mut lab));
        let equal = RawLeader {
            write_id: write_id.into(),
            write_generation: write_generation.into(),
            lver: lver.into(),
            ..held.leader
        };
        for n in 0..3 {
            put(&mut lab, disk(n), 0, Content::Leader(called("other", equal)));
        }
        lab.trace.clear();
        // Of what an attempt before this may have given up another host may be the next owner, and have named it.
        for (again, expected) in [(false, given_up), (true, given_up || write_id != US)] {
            let mut machine = match again {
                false => PaxosRelease::new(three(), held),
                true => PaxosRelease::retract(three(), held.geometry).of_hold(Some(held.block)),
            };
            lab.trace.clear();
            let outcome = lab.run_noisy(&mut machine).outcome;
            let released = outcome.result.map_err(|e| ReturnCode::from(&e).0);
            assert_eq!(released, if expected { Ok(Released::ByFlag) } else { Err(-227) }, "{again}");
            assert!(expected || writes(&lab).is_empty());
        }
    }
}

/// A slow commit may have taken it back to the name it had before, on a majority, in our name or over it: but for the flag and the number of the
/// last ballot our block is as we wrote it. It is given up, and nothing is written where other leases lie, also when it is tried again.
#[test]
fn a_hold_that_a_slow_commit_took_back_to_another_name_is_given_up() {
    type Change = fn(&mut RawLeader, &mut Dblock);
    let rows: [(Change, bool); 9] = [
        (|_, _| {}, true),
        (|l, _| (l.owner_id, l.lver) = (3.into(), 0.into()), true),
        (|_, b| b.mbal = (b.mbal.get() + 2000).into(), true),
        (|_, b| b.lver = (b.lver.get() + 1).into(), false),
        (|_, b| b.bal = (b.bal.get() + 1).into(), false),
        (|_, b| b.inp = (b.inp.get() + 1).into(), false),
        (|_, b| b.inp2 = (b.inp2.get() + 1).into(), false),
        (|_, b| b.inp3 = (b.inp3.get() + 1).into(), false),
        (|_, b| *b = Dblock::zeroed(), false),
    ];
    let value: std::sync::Arc<[u8]> = vec![7; 512].into();
    for (row, (change, given_up)) in rows.into_iter().enumerate() {
        for (case, with_other) in (0..4).flat_map(|case| [(case, 2), (case, 3)]) {
            let mut lab = lab3([leader(0, NOBODY); 3]);
            let held = held(&acquire3(&mut lab));
            let (mut slow, mut block) = (RawLeader { write_id: 2.into(), ..held.leader }, held.block);
            change(&mut slow, &mut block.dblock);
            if !block.dblock.is_unused() {
                block.dblock.seal();
            }
            // With a majority on which it is, the last disk may have any other lease of that name.
            for n in 0..with_other {
                put(&mut lab, disk(n), 0, Content::Leader(called("other", slow)));
                put(&mut lab, disk(n), 2, Content::Block(if n < 2 { block } else { HostBlock::zeroed() }));
            }
            lab.trace.clear();
            let mut machine = match case {
                0 => PaxosRelease::new(three(), held),
                1 => PaxosRelease::new(three(), held).renamed(Some(name("third"))),
                2 => PaxosRelease::new(three(), held).with_value(Some(value.clone())),
                _ => PaxosRelease::retract(three(), held.geometry)
                    .of_hold(Some(held.block))
                    .with_value(Some(value.clone())),
            };
            let done = lab.run_noisy(&mut machine).outcome;
            // A number that is larger than ours on all disks is of another ballot to the further attempts.
            let what = format!("row {row}, case {case}, {with_other} disks: {:?}", done.result);
            let marked = [0, 1, 2].map(|n| block_on(&lab, n, US).dblock.is_released());
            assert_eq!(marked, [given_up, given_up, given_up && with_other == 2], "{what}");
            assert_eq!(done.result.is_ok(), given_up && case != 1, "{what}");
            assert_eq!(done.needs_retract(), !given_up && with_other == 2, "{what}");
            assert_eq!(done.value_written, given_up && case > 1, "{what}");
            let others =
                |op: &Op| op.is_write() && !matches!(op.action, Action::Write { sector: 2 | LVB_SECTOR, .. });
            assert!(lab.trace.iter().all(|t| !others(&t.op)), "{what}: no leader");
        }
    }
}

/// Found by the simulator: a disk did not answer when the value was written, and has our block as that ballot began. Another one that has the value
/// is gone for good.
#[test]
fn a_disk_that_missed_the_value_of_the_hold_counts_beside_one_that_has_it() {
    type Change = fn(&mut Dblock);
    // What the disk has that missed it, and whether the other one has the value.
    let rows: [(Change, bool, i32); 6] = [
        (|_| {}, true, 0),
        (|b| b.flags = crate::record::DBLOCK_RELEASED.into(), true, 0),
        (|b| b.mbal = (b.mbal.get() + 2000).into(), true, -220),
        (|b| b.lver = (b.lver.get() - 1).into(), true, -220),
        (|b| *b = Dblock::zeroed(), true, -220),
        (|_| {}, false, -220),
    ];
    for (row, (change, has_value, expected)) in rows.into_iter().enumerate() {
        for (again, first) in [(false, 0), (true, 0), (true, 1)] {
            let mut lab = lab3([leader(0, NOBODY); 3]);
            let held = held(&acquire3(&mut lab));
            let mut missed = held.block;
            let d = &mut missed.dblock;
            (d.bal, d.inp, d.inp2, d.inp3) = (0.into(), 0.into(), 0.into(), 0.into());
            let without = missed;
            change(&mut missed.dblock);
            for block in [&mut missed.dblock].into_iter().filter(|block| !block.is_unused()) {
                block.seal();
            }
            for (n, block) in
                [(first, missed), (1 - first, if has_value { held.block } else { sealed(without) })]
            {
                let slow = RawLeader { write_id: 2.into(), ..held.leader };
                put(&mut lab, disk(n), 0, Content::Leader(called("other", slow)));
                put(&mut lab, disk(n), 2, Content::Block(block));
            }
            lab.fates(|op| if op.place == disk(2) { Fate::fail(IoFailure::Os(5)) } else { Fate::prompt() });
            lab.trace.clear();
            let mut machine = match again {
                false => PaxosRelease::new(three(), held),
                true => PaxosRelease::retract(three(), held.geometry).of_hold(Some(held.block)),
            };
            let done = lab.run_noisy(&mut machine).outcome;
            assert_eq!(done.result.map_or_else(|e| ReturnCode::from(&e).0, |_| 0), expected, "row {row}");
            for n in [0, 1] {
                let marked = same_as(&block_on(&lab, n, US), &held.block);
                assert!(expected != 0 || marked, "row {row}: disk {n}");
            }
            assert!(expected == 0 || writes(&lab).is_empty(), "row {row}");
        }
    }
}

/// Such a block is also what a refused acquire leaves, in any lease: the last disk, or the first, is another one's of that very name.
#[test]
fn a_block_as_a_ballot_begins_in_another_lease_is_not_taken_for_one_that_missed_the_value() {
    for (foreign, again) in [(2, false), (0, false), (2, true), (0, true)] {
        let mut lab = lab3([leader(0, NOBODY); 3]);
        let held = held(&acquire3(&mut lab));
        let slow = RawLeader { write_id: 2.into(), ..held.leader };
        put(&mut lab, disk(1), 0, Content::Leader(called("other", slow)));
        put(&mut lab, disk(foreign), 0, Content::Leader(called("other", leader(1, owned_by(4, 1)))));
        let hold = held.block.dblock;
        let begun = block([hold.mbal.get(), 0, 0, 0, 0, hold.lver.get()]);
        put(&mut lab, disk(foreign), 2, Content::Block(begun));
        let before = all_of(&lab, foreign);
        let value: std::sync::Arc<[u8]> = vec![7; 512].into();
        let mut machine = match again {
            false => PaxosRelease::new(three(), held),
            true => PaxosRelease::retract(three(), held.geometry).of_hold(Some(held.block)),
        }
        .with_value(Some(value));
        let done = lab.run_noisy(&mut machine).outcome;
        assert!(all_of(&lab, foreign) == before, "{foreign} {again}: {:?}", done.result);
    }
}

fn sealed(mut block: HostBlock) -> HostBlock {
    block.dblock.seal();
    block
}

/// The value of the hold, given up.
fn same_as(block: &HostBlock, hold: &HostBlock) -> bool {
    fields(block) == fields(hold) && block.dblock.is_released()
}

/// Whether they are this lease cannot be told while too many of our blocks cannot be read: the release is tried again, and writes nothing
/// unless it is.
#[test]
fn a_hold_under_another_name_whose_blocks_cannot_be_read_is_tried_again() {
    for (unread, ours, expected) in [(2, true, -5), (1, true, 0), (2, false, -5), (1, false, -227)] {
        let mut lab = lab3([leader(0, NOBODY); 3]);
        let held = held(&acquire3(&mut lab));
        for n in 0..3 {
            let slow = RawLeader { write_id: 2.into(), ..held.leader };
            put(&mut lab, disk(n), 0, Content::Leader(called("other", slow)));
            if !ours {
                let of_other = block([2001, 2001, US, 1, 1005, 1]);
                put(&mut lab, disk(n), 2, Content::Block(of_other));
            }
        }
        lab.fates(move |op| match (op.place, &op.action) {
            (Place::Resource(n), Action::Read { first: 2, .. }) if n >= 3 - unread => {
                Fate::fail(IoFailure::Os(5))
            }
            _ => Fate::prompt(),
        });
        lab.trace.clear();
        let done = lab.run_noisy(&mut PaxosRelease::new(three(), held)).outcome;
        assert_eq!(done.result.map_or_else(|e| ReturnCode::from(&e).0, |_| 0), expected);
        assert_eq!(done.needs_retract(), expected == -5);
        assert_eq!(writes(&lab).is_empty(), expected != 0);
        lab.no_faults();
        let again = PaxosRelease::retract(three(), held.geometry).of_hold(Some(held.block));
        let done = lab.run_noisy(&mut again.clone()).outcome;
        assert_eq!(done.result.is_ok(), ours, "{:?}", done.result);
        assert!((0..3).all(|n| block_on(&lab, n, US).dblock.is_released() == ours));
    }
}

/// A disk whose leader shows another lease is not waited for, whatever our block there is.
#[test]
fn a_block_under_a_leader_of_another_lease_is_not_waited_for() {
    let mut lab = lab3([leader(0, NOBODY); 3]);
    let held = held(&acquire3(&mut lab));
    for n in 0..3 {
        let writer = if n == 1 { US } else { 2 };
        let other = RawLeader { write_id: writer.into(), ..held.leader };
        put(&mut lab, disk(n), 0, Content::Leader(called("other", other)));
    }
    put(&mut lab, disk(2), 2, Content::Block(HostBlock::zeroed()));
    lab.fates(|op| match (op.place, &op.action) {
        (Place::Resource(1), Action::Read { first: 2, .. }) => Fate::fail(IoFailure::Os(5)),
        _ => Fate::prompt(),
    });
    let done = lab.run_noisy(&mut PaxosRelease::new(three(), held)).outcome;
    assert_eq!(done.result.map_err(|e| ReturnCode::from(&e).0), Err(-227));
}

/// The disk with the value block has the lease, as far as anybody knows: that our block there could not be read is why the value is not written,
/// not that somebody else's lease is there.
#[test]
fn a_value_waits_for_a_first_disk_whose_block_cannot_be_read() {
    let mut lab = lab3([leader(0, NOBODY); 3]);
    let held = held(&acquire3(&mut lab));
    for n in 0..3 {
        let slow = RawLeader { write_id: 2.into(), ..held.leader };
        put(&mut lab, disk(n), 0, Content::Leader(called("other", slow)));
    }
    for failure in [IoFailure::Os(11), IoFailure::TimedOut] {
        lab.fates(move |op| match (op.place, &op.action) {
            (Place::Resource(0), Action::Read { first: 2, .. }) => Fate::fail(failure),
            _ => Fate::prompt(),
        });
        lab.trace.clear();
        let value: std::sync::Arc<[u8]> = vec![7; 512].into();
        let machine = PaxosRelease::new(three(), held).with_value(Some(value));
        let done = lab.run_noisy(&mut machine.clone()).outcome;
        let expected =
            if failure.may_still_land() { ReleaseError::Io(failure) } else { ReleaseError::Value(failure) };
        assert_eq!(done.result, Err(expected));
        assert!(writes(&lab).is_empty() && done.needs_retract());
    }
}

/// The next owner may have named it while the leaders are about to be read: a majority says so, and one disk that cannot be read does not matter.
#[test]
fn a_majority_under_another_name_is_enough_to_end() {
    let mut lab = lab3([leader(0, NOBODY); 3]);
    let held = held(&acquire3(&mut lab));
    let mut looks = 0;
    lab.fates(move |op| {
        looks += u32::from(reads_leader(op));
        if looks > 3 && op.place == disk(0) { Fate::fail(IoFailure::Os(5)) } else { Fate::prompt() }
    });
    before_round(&mut lab, 3, move |lab| {
        for n in 1..3 {
            put(lab, disk(n), 0, Content::Leader(called("other", leader(2, owned_by(2, 1)))));
        }
    });
    let done = lab.run_noisy(&mut PaxosRelease::new(three(), held)).outcome;
    assert_eq!((done.result, done.needs_retract()), (Ok(Released::ByFlag), false));
}

/// One disk under another name says nothing of those that cannot be read: they may have a leader of ours, which is to be freed.
#[test]
fn a_leader_is_freed_though_one_disk_has_another_name_while_the_others_cannot_be_read() {
    for rename in [None, Some(name("third"))] {
        let mut lab = lab3([leader(0, NOBODY); 3]);
        let held = held(&acquire3(&mut lab));
        let taken_back = called("other", RawLeader { write_id: 2.into(), ..held.leader });
        // After the probe: with a new name the leaders are what is read next, otherwise our blocks are written before.
        let mut looks = 0;
        lab.fates(move |op| {
            looks += u32::from(reads_leader(op));
            if looks > 3 && op.place != disk(0) { Fate::fail(IoFailure::Os(5)) } else { Fate::prompt() }
        });
        before_round(&mut lab, if rename.is_some() { 2 } else { 3 }, move |lab| {
            put(lab, disk(0), 0, Content::Leader(taken_back));
        });
        let done = lab.run_noisy(&mut PaxosRelease::new(three(), held).renamed(rename)).outcome;
        assert_eq!(done.result.map_err(|e| ReturnCode::from(&e).0), Err(-220), "{rename:?}");
        assert!(done.needs_retract());
        lab.no_faults();
        let again = PaxosRelease::retract(three(), held.geometry).of_hold(Some(held.block));
        assert_eq!(lab.run_noisy(&mut again.clone()).outcome.result, Ok(Released::LeaderFreed));
        assert!([1, 2].into_iter().all(|n| leader_on(&lab, n).timestamp.get() == 0));
    }
}

/// A shared hold is given up likewise: it is in our block.
#[test]
fn a_shared_hold_under_another_name_is_given_up() {
    for other_lease in [false, true] {
        let mut lab = lab3([leader(0, NOBODY); 3]);
        let machine = PaxosShare::new(three(), AcquireOptions::default(), 0);
        let shared = held(&lab.run_noisy(&mut machine.clone()));
        assert!(shared.is_shared());
        for n in 0..3 {
            let slow = RawLeader { write_id: 2.into(), ..leader_on(&lab, n) };
            put(&mut lab, disk(n), 0, Content::Leader(called("other", slow)));
            if other_lease {
                put(&mut lab, disk(n), 2, Content::Block(HostBlock::zeroed()));
            }
        }
        lab.trace.clear();
        let done = lab.run_noisy(&mut PaxosRelease::new(three(), shared)).outcome;
        let expected = if other_lease { Err(-227) } else { Ok(Released::ByFlag) };
        assert_eq!(done.result.map_err(|e| ReturnCode::from(&e).0), expected);
        assert_eq!(lab.trace.iter().filter(|t| t.op.is_write()).count(), if other_lease { 0 } else { 3 });
        assert!((0..3).all(|n| !block_on(&lab, n, US).mode.is_shared()));
    }
}

/// Found by the simulator: after a refused conversion there is no value in the block, by which the hold could be told from another lease's, and
/// nothing may be marked. Others have renamed the lease on two disks. The third, which has an old leader, will never be one of two under the old
/// name. A majority of the disks that has our block as it was left says so; without one the other disks may come back.
#[test]
fn a_hold_without_a_value_is_over_where_a_majority_has_its_block_and_another_name() {
    // Of each disk, whether it has the block.
    for (blocks, over) in [
        ([true, true, true], true),
        ([true, false, true], true),
        ([true, true, false], true),
        ([false, false, true], false),
        ([true, false, false], false),
    ] {
        let mut lab = lab3([leader(0, NOBODY); 3]);
        let share = |lab: &mut Lab, id| {
            let config = PaxosConfig { host: host(id), ..three() };
            held(&lab.run_noisy(&mut PaxosShare::new(config, AcquireOptions::default(), 0)))
        };
        let ours = share(&mut lab, US);
        share(&mut lab, 2);
        all_alive(&mut lab);
        let mut refused = PaxosConvert::to_exclusive(three(), AcquireOptions::default(), ours);
        let refused = lab.run_noisy(&mut refused).outcome.held;
        assert!(refused.is_shared() && refused.block.dblock.bal.get() == 0);
        for n in [0, 1] {
            let later = leader(5, owned_by(2, 1));
            put(&mut lab, disk(n), 0, Content::Leader(called("other", later)));
        }
        for (n, has) in (0..3).zip(blocks) {
            if !has {
                put(&mut lab, disk(n), 2, Content::Block(HostBlock::zeroed()));
            }
        }
        let first = PaxosRelease::new(three(), refused);
        let again = PaxosRelease::retract(three(), refused.geometry).of_hold(Some(refused.block));
        // Beside a hold that nobody has tried to give up there is no later version: only then the other disks are another lease's.
        for (mut machine, over) in [(first, false), (again, over)] {
            lab.trace.clear();
            let done = lab.run_noisy(&mut machine).outcome;
            let expected = if over { -227 } else { -220 };
            assert_eq!(done.result.map_err(|e| ReturnCode::from(&e).0), Err(expected), "{blocks:?}");
            assert_eq!(done.needs_retract(), !over);
            assert!(writes(&lab).is_empty());
        }
        // Another lease of this host may have such a block: its leader is of this host's writing, or the block has a value.
        let (leader_0, block_0) = (leader_on(&lab, 0), block_on(&lab, 0, US));
        let again = || PaxosRelease::retract(three(), refused.geometry).of_hold(Some(refused.block));
        let written = RawLeader { write_id: US.into(), write_generation: 1.into(), ..leader_0 };
        put(&mut lab, disk(0), 0, Content::Leader(called("other", written)));
        put(&mut lab, disk(1), 0, Content::Leader(called("other", written)));
        assert!(lab.run_noisy(&mut again()).outcome.needs_retract(), "{blocks:?}");
        for n in [0, 1] {
            put(&mut lab, disk(n), 0, Content::Leader(leader_0));
            let mut block = block_on(&lab, n, US);
            block.dblock.bal = block.dblock.mbal;
            put(&mut lab, disk(n), 2, Content::Block(block));
        }
        assert!(lab.run_noisy(&mut again()).outcome.needs_retract(), "{blocks:?}");
        put(&mut lab, disk(0), 2, Content::Block(block_0));
        // One that cannot be read may be one of them, and is none that is known.
        lab.fates(|op| if op.place == disk(0) { Fate::fail(IoFailure::Os(5)) } else { Fate::prompt() });
        let done = lab.run_noisy(&mut PaxosRelease::new(three(), refused)).outcome;
        assert!(done.needs_retract(), "{blocks:?}");
    }
}

/// A disk that has missed it still has the lease under its name, and our block: it counts.
#[test]
fn a_disk_under_the_own_name_counts_as_one_with_our_block() {
    let mut lab = lab3([leader(0, NOBODY); 3]);
    let held = held(&acquire3(&mut lab));
    for n in [1, 2] {
        let slow = RawLeader { write_id: 2.into(), ..held.leader };
        put(&mut lab, disk(n), 0, Content::Leader(called("other", slow)));
    }
    put(&mut lab, disk(2), 2, Content::Block(HostBlock::zeroed()));
    let done = lab.run_noisy(&mut PaxosRelease::new(three(), held)).outcome;
    assert_eq!(done.result, Ok(Released::ByFlag));
    assert_eq!([0, 1, 2].map(|n| block_on(&lab, n, US).dblock.is_released()), [true, true, false]);
}
