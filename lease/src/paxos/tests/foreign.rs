//! Disks of several that have something else than this lease: named by mistake, replaced, or left behind by a rename.

use super::disks::{acquire3, block_on, disk, lab3, leader_on, three};
use super::*;
use crate::limits::LVB_SECTOR;
use crate::machine::Action;
use crate::paxos::acquire::Mode;
use crate::paxos::convert::PaxosConvert;
use crate::paxos::share::PaxosShare;
use crate::paxos::take::PaxosTake;

/// A leader under another resource's name.
pub(super) fn called(resource: &str, mut record: RawLeader) -> RawLeader {
    record.resource_name = name(resource).to_field();
    record.seal();
    record
}

/// Whether it is a look at a leader.
pub(super) fn reads_leader(op: &Op) -> bool {
    matches!(op.action, Action::Read { first: 0, count: 1 })
}

/// Every sector of an area that a lease uses.
pub(super) fn all_of(lab: &Lab, n: u8) -> Vec<Vec<u8>> {
    (0..2048).map(|sector| lab.disk.sector(disk(n), B512, sector)).collect()
}

/// Three disks, one of which has another resource's lease, with an owner and a block in our place; the lease of another lockspace; or
/// nothing.
fn labs() -> impl Iterator<Item = (Lab, u8, Vec<Vec<u8>>)> {
    let resource = called("other", leader(7, owned_by(2, 1)));
    let mut lockspace = leader(7, owned_by(2, 1));
    lockspace.space_name = name("other").to_field();
    lockspace.seal();
    let empty = RawLeader::zeroed();
    let all = [resource, lockspace, empty].into_iter().flat_map(|record| (0..3).map(move |n| (record, n)));
    all.map(|(record, n)| {
        let mut lab = lab3([leader(0, NOBODY); 3]);
        put(&mut lab, disk(n), 0, Content::Leader(record));
        if record.magic.get() != 0 {
            put(&mut lab, disk(n), 2, Content::Block(block([9000, 9000, 2, 1, 500, 8])));
        }
        let before = all_of(&lab, n);
        (lab, n, before)
    })
}

/// A disk named by mistake has another lease, perhaps with an owner: nothing is written there, whatever is done with this one.
#[test]
fn nothing_is_written_where_another_lease_or_none_lies() {
    for (mut lab, n, before) in labs() {
        let keeps = |lab: &Lab, what: &str| assert!(all_of(lab, n) == before, "disk {n}, {what}");
        let first = held(&acquire3(&mut lab));
        assert_eq!(first.lver(), 1, "what is said there counts for nothing");
        keeps(&lab, "acquire");
        let others = [(n + 1) % 3, (n + 2) % 3];
        assert!(others.iter().all(|n| leader_on(&lab, *n) == first.leader));

        let shared = lab.run_noisy(&mut PaxosConvert::to_shared(three(), first)).outcome;
        assert_eq!(shared.result, Ok(()));
        keeps(&lab, "to shared");
        let up = PaxosConvert::to_exclusive(three(), AcquireOptions::default(), shared.held);
        let again = lab.run_noisy(&mut up.clone()).outcome;
        assert_eq!(again.result, Ok(()));
        keeps(&lab, "to exclusive");
        let released = lab.run_noisy(&mut PaxosRelease::new(three(), again.held)).outcome;
        assert_eq!(released.result, Ok(Released::LeaderFreed));
        keeps(&lab, "release");

        let held = held(&acquire3(&mut lab));
        let retracted = lab.run_noisy(&mut PaxosRelease::retract(three(), Geometry::B512_M1)).outcome;
        assert_eq!(retracted.result, Ok(Released::LeaderFreed));
        assert!(others.iter().all(|n| block_on(&lab, *n, US).dblock.is_released()), "{held:?}");
        keeps(&lab, "retract");
    }
}

/// With as many such disks nothing is decided, and nothing written at all.
#[test]
fn where_most_disks_have_something_else_there_is_no_lease() {
    for (empty, expected) in [([0, 1], -220), ([1, 2], -220)] {
        let mut lab = lab3([leader(0, NOBODY); 3]);
        for n in empty {
            put(&mut lab, disk(n), 0, Content::Leader(RawLeader::zeroed()));
        }
        assert_eq!(code(&acquire3(&mut lab)), expected);
        assert!(writes(&lab).is_empty());
    }
    let mut lab = lab3([RawLeader::zeroed(); 3]);
    assert_eq!(code(&acquire3(&mut lab)), -223);
    assert!(writes(&lab).is_empty());
}

/// A lease that is renamed in the middle of a ballot is none of ours any more.
#[test]
fn a_lease_renamed_during_a_ballot_is_said_to_be_another_one() {
    for round in 2..5 {
        let mut lab = lab3([leader(0, NOBODY); 3]);
        before_round(&mut lab, round, |lab| {
            for n in 0..3 {
                put(lab, disk(n), 0, Content::Leader(called("other", leader(0, NOBODY))));
            }
        });
        assert_eq!(code(&acquire3(&mut lab)), -227, "round {round}");
        assert!((0..3).all(|n| leader_on(&lab, n).resource_name == name("other").to_field()));
    }
}

/// A damaged leader of this lease, by contrast, is written again.
#[test]
fn a_damaged_leader_on_one_disk_is_made_good() {
    let mut lab = lab3([leader(0, NOBODY); 3]);
    let mut damaged = leader(0, NOBODY);
    damaged.checksum = 1.into();
    put(&mut lab, disk(1), 0, Content::Leader(damaged));
    let held = held(&acquire3(&mut lab));
    assert!((0..3).all(|n| leader_on(&lab, n) == held.leader));
}

/// Where a disk does not have the lease, a new name would leave it behind.
#[test]
fn a_lease_is_renamed_only_where_all_disks_have_it() {
    let renamed = |lab: &mut Lab, held| {
        let machine = PaxosRelease::new(three(), held).renamed(Some(name("new")));
        lab.run_noisy(&mut machine.clone()).outcome.result
    };
    let name_on = |lab: &Lab, n| leader_on(lab, n).resource_name;
    let mut lab = lab3([leader(0, NOBODY); 3]);
    let lease = held(&acquire3(&mut lab));
    assert_eq!(renamed(&mut lab, lease), Ok(Released::LeaderFreed));
    assert!((0..3).all(|n| name_on(&lab, n) == name("new").to_field()));

    for lost in 0..3 {
        let mut lab = lab3([leader(0, NOBODY); 3]);
        let lease = held(&acquire3(&mut lab));
        lab.disk.remove(disk(lost));
        let refused = renamed(&mut lab, lease);
        assert!(
            matches!(refused, Err(ReleaseError::NotRenamed { readable: 2, disks: 3, .. })),
            "{refused:?}"
        );
        assert_eq!(ReturnCode::from(&refused.unwrap_err()).0, -220);
        for n in (0..3).filter(|n| *n != lost) {
            assert_eq!((name_on(&lab, n), state(&leader_on(&lab, n)).2), (name("res").to_field(), false));
        }
    }
}

/// The value block is on the first disk alone: another lease's is not ours, neither to read nor to write.
#[test]
fn the_value_block_of_another_lease_is_none_of_ours() {
    for (mut lab, n, before) in labs() {
        let mut take = PaxosTake::new(three(), AcquireOptions::default(), 0, true);
        let taken = lab.run(&mut take).outcome;
        let AcquireOutcome::Acquired(held) = taken.outcome else { panic!("not acquired") };
        let expected = if n == 0 { Some(Err(IoFailure::NotOpen(19))) } else { Some(Ok(vec![0; 512].into())) };
        assert_eq!(taken.value, expected);
        let value = Some(vec![7; 512].into());
        let released = lab.run_noisy(&mut PaxosRelease::new(three(), held).with_value(value)).outcome;
        assert_eq!(released.value_written, n != 0);
        assert_eq!(released.result.is_ok(), n != 0, "{:?}", released.result);
        assert!(all_of(&lab, n) == before || n != 0);
        assert_eq!(lab.disk.sector(disk(0), B512, LVB_SECTOR)[0], if n == 0 { 0 } else { 7 });
    }
}

/// A first disk that could not be read when the lease was taken has a value that may be another lease's: why it could not be is told.
#[test]
fn a_value_block_beside_a_leader_that_was_not_read_is_not_read() {
    let fates = [(Fate::fail(IoFailure::Os(110)), IoFailure::Os(110)), (Fate::never(), IoFailure::TimedOut)];
    let modes = [Mode::Exclusive, Mode::ShortHold];
    for ((fate, expected), mode) in fates.into_iter().flat_map(|fate| modes.map(|mode| (fate, mode))) {
        let mut lab = lab3([leader(0, NOBODY); 3]);
        lab.fates(move |op| if op.place == disk(0) { fate } else { Fate::prompt() });
        let options = AcquireOptions { mode, ..AcquireOptions::default() };
        let taken = lab.run(&mut PaxosTake::new(three(), options, 0, true)).outcome;
        assert!(matches!(taken.outcome, AcquireOutcome::Acquired(_)));
        assert_eq!(taken.value, Some(Err(expected)));
        assert!(
            lab.trace
                .iter()
                .all(|t| t.op.place != disk(0)
                    || !matches!(t.op.action, Action::Read { first: LVB_SECTOR, .. }))
        );
    }
}

/// A disk that missed a rename keeps nobody from finding out that the lease has another name: neither who asks for it under the old one, nor
/// who has to give up what an attempt under the old one left.
#[test]
fn a_majority_with_another_name_is_what_the_lease_is_called() {
    for missed in 0..3 {
        let mut lab = lab3([leader(0, NOBODY); 3]);
        let lease = held(&acquire3(&mut lab));
        for n in (0..3).filter(|n| *n != missed) {
            let free = RawLeader { timestamp: 0.into(), ..lease.leader };
            put(&mut lab, disk(n), 0, Content::Leader(called("other", free)));
        }
        assert_eq!(code(&acquire3(&mut lab)), -227);
        assert!(!block_on(&lab, 0, US).dblock.is_released());
        let retracted = lab.run_noisy(&mut PaxosRelease::retract(three(), Geometry::B512_M1)).outcome;
        assert_eq!(retracted.result, Ok(Released::ByFlag));
        assert!((0..3).all(|n| block_on(&lab, n, US).dblock.is_released()), "disk {missed} missed it");
    }
}

/// That a further disk cannot be read does not make another lease this one under a new name: it stays somebody else's.
#[test]
fn nothing_is_written_to_another_lease_because_a_further_disk_cannot_be_read() {
    type GiveUp = fn(&mut Lab, Held) -> Result<Released, ReleaseError>;
    let release: GiveUp = |lab, held| lab.run_noisy(&mut PaxosRelease::new(three(), held)).outcome.result;
    let renamed: GiveUp = |lab, held| {
        let mut machine = PaxosRelease::new(three(), held).renamed(Some(name("new")));
        lab.run_noisy(&mut machine).outcome.result
    };
    let retract: GiveUp = |lab, held| {
        let machine = PaxosRelease::retract(three(), held.geometry).of_attempt(Some(held.block));
        lab.run_noisy(&mut machine.clone()).outcome.result
    };
    for give_up in [release, renamed, retract] {
        for (mut lab, n, before) in labs() {
            let held = held(&acquire3(&mut lab));
            for unreadable in (0..3).filter(|disk| *disk != n) {
                lab.fates(move |op| {
                    let fails = op.place == disk(unreadable) && !op.is_write();
                    if fails { Fate::fail(IoFailure::Os(5)) } else { Fate::prompt() }
                });
                let result = give_up(&mut lab, held);
                assert!(all_of(&lab, n) == before, "disk {n}, {unreadable} unreadable");
                assert!(result.is_err_and(|e| e.is_retryable()), "the disk may come back: {result:?}");
            }
            lab.no_faults();
            assert!(lab.run_noisy(&mut PaxosRelease::retract(three(), held.geometry)).outcome.result.is_ok());
            assert!((0..3).filter(|d| *d != n).all(|d| !state(&leader_on(&lab, d)).2), "given up in the end");
            assert!(all_of(&lab, n) == before);
        }
    }
}

/// A disk whose leader cannot be read may have another lease: nothing is written there, and its blocks say nothing, before its leader is read.
#[test]
fn nothing_is_written_to_a_disk_that_was_not_seen_to_have_the_lease() {
    let leader_of = |op: &Op, n: u8| op.place == disk(n) && reads_leader(op);
    for (mut lab, n, before) in labs() {
        for unreadable in 0..3 {
            let fails = move |op: &Op| leader_of(op, n) || leader_of(op, unreadable);
            let keeps = |lab: &Lab, what: &str| {
                assert!(all_of(lab, n) == before, "disk {n}, {unreadable} unreadable, {what}");
            };
            let held_first = held(&acquire3(&mut lab));
            lab.fates(move |op| if fails(op) { Fate::fail(IoFailure::Os(5)) } else { Fate::prompt() });
            let beside = acquire3(&mut lab);
            keeps(&lab, "acquire");
            assert_eq!(
                matches!(beside.outcome, AcquireOutcome::Acquired(_)),
                unreadable == n,
                "two disks are a majority"
            );
            let converted = lab.run_noisy(&mut PaxosConvert::to_shared(three(), held_first)).outcome;
            keeps(&lab, "to shared");
            lab.run_noisy(&mut PaxosConvert::erase(three(), converted.held));
            keeps(&lab, "erase");
            lab.run_noisy(&mut PaxosRelease::new(three(), converted.held));
            keeps(&lab, "release");
            lab.run_noisy(&mut PaxosRelease::retract(three(), Geometry::B512_M1));
            keeps(&lab, "retract");
            lab.no_faults();
            lab.run_noisy(&mut PaxosRelease::retract(three(), Geometry::B512_M1));
            keeps(&lab, "retract, well again");
        }
    }
}

/// The blocks on a disk whose leader could not be read say nothing either, of an owner or of whoever shares the lease: they may be another
/// lease's, where that host has let go.
#[test]
fn the_blocks_of_a_disk_that_was_not_seen_to_have_the_lease_say_nothing() {
    for n in 0..3 {
        // Host 3 committed version 5 in the name of host 2, which lives.
        let mut lab = lab3([leader(5, Owner { writer: 3, ..owned_by(2, 1) }); 3]);
        lab.hosts = seen(2, 1, 800, 990, 990);
        put(&mut lab, disk(n), 0, Content::Leader(called("other", leader(9, NOBODY))));
        put(&mut lab, disk(n), 3, Content::Block(released(block([9002, 9002, 2, 1, 700, 9]))));
        lab.fates(move |op| {
            if op.place == disk(n) && reads_leader(op) {
                Fate::fail(IoFailure::Os(5))
            } else {
                Fate::prompt()
            }
        });
        assert_eq!(code(&acquire3(&mut lab)), -243, "disk {n}");
    }
}

/// What is given up where a majority may have the lease: marked on the disks that are seen to have it, damaged or not.
#[test]
fn the_disks_that_have_the_lease_are_marked_beside_others() {
    let other = called("other", leader(7, owned_by(2, 1)));
    let mut damaged = leader(1, owned_by(US, 1));
    damaged.checksum = 1.into();
    for (second, readable) in [(damaged, true), (leader(1, owned_by(US, 1)), false)] {
        let mut lab = lab3([leader(0, NOBODY); 3]);
        let held = held(&acquire3(&mut lab));
        put(&mut lab, disk(1), 0, Content::Leader(second));
        put(&mut lab, disk(2), 0, Content::Leader(other));
        lab.fates(move |op| {
            if op.place == disk(1) && !readable { Fate::fail(IoFailure::Os(5)) } else { Fate::prompt() }
        });
        let result = lab.run_noisy(&mut PaxosRelease::new(three(), held)).outcome.result;
        assert!(result.is_err_and(|e| e.is_retryable()), "{result:?}");
        let marked = [0, 1, 2].map(|n| block_on(&lab, n, US).dblock.is_released());
        assert_eq!(marked, [true, readable, false]);
        // No disk can be read but the other lease's: this one may be there all the same.
        lab.fates(|op| if op.place == disk(2) { Fate::prompt() } else { Fate::fail(IoFailure::Os(5)) });
        let result = lab.run_noisy(&mut PaxosRelease::retract(three(), held.geometry)).outcome.result;
        assert!(result.is_err_and(|e| e.is_retryable()), "{result:?}");
    }
}

/// Where a majority has one other name and not our block as it was, it is somebody else's: the release ends with that if no disk has the lease
/// any more, and is tried again while one has it. Nothing is written there, however often it is tried.
#[test]
fn a_lease_that_is_held_was_not_renamed() {
    for (with_other, expected) in [(2, -220), (3, -227)] {
        let mut lab = lab3([leader(0, NOBODY); 3]);
        let held = held(&acquire3(&mut lab));
        for n in 0..with_other {
            put(&mut lab, disk(n), 0, Content::Leader(called("other", leader(7, owned_by(2, 1)))));
            put(&mut lab, disk(n), 2, Content::Block(HostBlock::zeroed()));
        }
        lab.trace.clear();
        let value: std::sync::Arc<[u8]> = vec![7; 512].into();
        let given_up = [
            PaxosRelease::new(three(), held),
            PaxosRelease::new(three(), held).with_value(Some(value.clone())),
            // Their further attempts.
            PaxosRelease::retract(three(), held.geometry).of_hold(Some(held.block)),
            PaxosRelease::retract(three(), held.geometry)
                .of_hold(Some(held.block))
                .with_value(Some(value.clone())),
            PaxosRelease::retract(three(), held.geometry).with_value(Some(value)),
        ];
        for machine in given_up {
            let outcome = lab.run_noisy(&mut machine.clone()).outcome;
            assert_eq!(outcome.needs_retract(), with_other == 2, "{:?}", outcome.result);
            assert_eq!(outcome.result.map_err(|e| ReturnCode::from(&e).0), Err(expected));
        }
        assert!(writes(&lab).is_empty());
        lab.trace.clear();
        lab.run_noisy(&mut PaxosConvert::to_shared(three(), held));
        assert!(
            lab.trace.iter().all(|t| reads_leader(&t.op)),
            "what goes on being held is not looked for: {:?}",
            lab.trace
        );
    }
}

/// A new name that reached one disk of two: the further attempts find the lease under either.
#[test]
fn what_a_rename_cut_short_left_is_marked_on_both_disks() {
    let two = PaxosConfig { disks: 2, ..config(US) };
    let mut lab = lab3([leader(0, NOBODY); 3]);
    let held = held(&acquire_as(&mut lab, two, AcquireOptions::default()));
    lab.fates(|op| {
        let leader = matches!(op.action, Action::Write { sector: 0, .. });
        if leader && op.place == disk(1) { Fate::fail(IoFailure::Os(5)) } else { Fate::prompt() }
    });
    let machine = PaxosRelease::new(two, held).renamed(Some(name("new")));
    assert!(lab.run_noisy(&mut machine.clone()).outcome.needs_retract());
    assert!((0..2).all(|n| !block_on(&lab, n, US).dblock.is_released()));
    lab.no_faults();
    let machine = PaxosRelease::retract(two, held.geometry).renamed(Some(name("new")));
    lab.run_noisy(&mut machine.clone());
    assert!((0..2).all(|n| block_on(&lab, n, US).dblock.is_released()));
}

/// Whoever has just looked at the leaders does not look at them once more before it goes on.
#[test]
fn leaders_are_not_looked_at_twice() {
    let mut lab = lab3([leader(0, NOBODY); 3]);
    let options = AcquireOptions { mode: Mode::ShortHold, ..AcquireOptions::default() };
    lab.run(&mut PaxosShare::new(three(), options, 0));
    let looks = lab.trace.iter().filter(|t| reads_leader(&t.op)).count();
    assert_eq!(looks, 6, "at the beginning, and before the leader is freed");
}

/// A conversion that fails because other leases lie on its disks leaves no mark and no shared hold in them.
#[test]
fn a_conversion_does_not_enter_a_shared_hold_in_other_leases() {
    let records = |names: [&str; 3]| names.map(|other| called(other, leader(7, owned_by(2, 1))));
    let cases = [records(["other"; 3]), records(["one", "two", "three"]), [RawLeader::zeroed(); 3]];
    for (records, round, disks) in
        cases.iter().flat_map(|r| (1..6).flat_map(move |round| [3, 5, 6, 7_u32].map(|d| (*r, round, d))))
    {
        let mut lab = lab3([leader(0, NOBODY); 3]);
        let exclusive = held(&acquire3(&mut lab));
        let shared = lab.run_noisy(&mut PaxosConvert::to_shared(three(), exclusive)).outcome.held;
        let changed = move |n: &u8| disks & (1 << n) != 0;
        before_round(&mut lab, round, move |lab| {
            for n in (0..3).filter(changed) {
                put(lab, disk(n), 0, Content::Leader(records[usize::from(n)]));
                put(lab, disk(n), 2, Content::Block(block([9000, 9000, 2, 1, 500, 8])));
            }
        });
        let options = AcquireOptions::default();
        let up = lab.run_noisy(&mut PaxosConvert::to_exclusive(three(), options, shared)).outcome;
        assert!(up.result.is_err() || round == 5, "round {round}");
        lab.run_noisy(&mut PaxosConvert::erase(three(), up.held));
        // Ballot writes that were under way when the lease went may lie there; a mark or a shared hold may not.
        for n in (0..3).filter(changed) {
            let ours = block_on(&lab, n, US);
            let entered = ours.mode.is_shared() && ours.dblock.is_released();
            assert!(!entered, "round {round}, disks {disks:b}, disk {n}: {ours:?}");
        }
    }
}

/// Only another lease is told of instead of what went wrong with the other disks.
#[test]
fn a_damaged_leader_is_not_why_a_ballot_cannot_be_read() {
    let mut lab = lab3([leader(0, NOBODY); 3]);
    lab.fates(|op| match op.action {
        Action::Read { count, .. } if count > 1 && op.place != disk(0) => Fate::fail(IoFailure::Os(5)),
        _ => Fate::prompt(),
    });
    before_round(&mut lab, 2, |lab| {
        let mut damaged = leader(0, NOBODY);
        damaged.checksum = 1.into();
        put(lab, disk(0), 0, Content::Leader(damaged));
    });
    assert_eq!(failure(&acquire3(&mut lab)).0, AcquireError::DblockRead(IoFailure::Os(5)));
}

/// A disk that has the lease again by the time its owner has been waited for takes part.
#[test]
fn a_disk_that_has_the_lease_again_takes_part_again() {
    for n in 0..3 {
        let owned = leader(5, owned_by(2, 1));
        let mut lab = lab3([owned; 3]);
        put_delta(&mut lab, 2, delta(2, 1, 900));
        put(&mut lab, disk(n), 0, Content::Leader(RawLeader::zeroed()));
        lab.after_secs(30, move |lab| put(lab, disk(n), 0, Content::Leader(owned)));
        let held = held(&acquire3(&mut lab));
        assert_eq!(held.lver(), 6);
        assert!((0..3).all(|n| leader_on(&lab, n) == held.leader), "disk {n}");
    }
}

/// What is done with a lease ends, whenever the lease goes from its disks, and whatever else makes it begin again.
#[test]
fn everything_ends_when_the_lease_goes_from_the_disks() {
    let other = called("other", leader(7, owned_by(2, 1)));
    let changes = [RawLeader::zeroed(), other, leader(9, owned_by(3, 1))];
    let cases = (1..=10).flat_map(|round| (1..8_u32).map(move |disks| (round, disks)));
    for ((round, disks), (change, ahead)) in cases.flat_map(|case| {
        changes.iter().flat_map(move |change| [false, true].map(move |ahead| (case, (*change, ahead))))
    }) {
        let begin = |held_first: bool| {
            let mut lab = lab3([leader(0, NOBODY); 3]);
            let owned = held_first.then(|| held(&acquire3(&mut lab)));
            (lab, owned)
        };
        let goes = |lab: &mut Lab| {
            before_round(lab, round, move |lab| {
                for n in (0..3).filter(|n| disks & (1 << n) != 0) {
                    put(lab, disk(n), 0, Content::Leader(change));
                }
                if ahead {
                    let block = block([90_002, 0, 0, 0, 0, 2]);
                    (0..3).for_each(|n| put(lab, disk(n), 3, Content::Block(block)));
                }
            });
        };
        let options = AcquireOptions::default();
        let (mut lab, _) = begin(false);
        goes(&mut lab);
        let taken = lab.run(&mut PaxosTake::new(three(), options, 2, true)).outcome.outcome;
        if let AcquireOutcome::Failed { retract, geometry, .. } = taken {
            lab.run_noisy(&mut PaxosRelease::retract(three(), geometry).of_attempt(retract));
        }
        let (mut lab, _) = begin(false);
        goes(&mut lab);
        let share = AcquireOptions { mode: Mode::ShortHold, ..options };
        lab.run_noisy(&mut PaxosShare::new(three(), share, 2));

        let (mut lab, owned) = begin(true);
        goes(&mut lab);
        let renamed = PaxosRelease::new(three(), owned.unwrap()).renamed(Some(name("another")));
        lab.run_noisy(&mut renamed.clone());

        let (mut lab, owned) = begin(true);
        goes(&mut lab);
        let down = lab.run_noisy(&mut PaxosConvert::to_shared(three(), owned.unwrap())).outcome;
        goes(&mut lab);
        let up = lab.run_noisy(&mut PaxosConvert::to_exclusive(three(), options, down.held)).outcome;
        assert!(up.held.is_shared() || up.result.is_ok() || down.result.is_err(), "round {round}, {disks:b}");
        if up.held.is_shared() {
            goes(&mut lab);
            lab.run_noisy(&mut PaxosConvert::erase(three(), up.held));
            lab.run_noisy(&mut PaxosRelease::new(three(), up.held));
        }
    }
}

/// A single disk whose leader cannot be read may have another lease by now: nothing is written there before it is read.
#[test]
fn nothing_is_taken_back_where_the_leader_cannot_be_read() {
    for (failure, after_ms) in [(IoFailure::Os(5), 0), (IoFailure::TimedOut, 11_000)] {
        let mut lab = free_lab();
        let held = held(&acquire_plain(&mut lab));
        lab.trace.clear();
        lab.fates(move |op| match (reads_leader(op), failure) {
            (true, IoFailure::TimedOut) => Fate::after(after_ms),
            (true, failure) => Fate::fail(failure),
            (false, _) => Fate::prompt(),
        });
        let mut machine = PaxosRelease::retract(config(US), held.geometry).of_attempt(Some(held.block));
        let outcome = lab.run(&mut machine).outcome;
        assert_eq!(outcome.result, Err(ReleaseError::Io(failure)));
        assert!(outcome.needs_retract(), "it is tried again");
        assert_eq!(writes(&lab), []);
        lab.no_faults();
        assert_eq!(retract(&mut lab).outcome.result, Ok(Released::LeaderFreed));
        assert!(block_of(&lab, US).dblock.is_released());
    }
}
