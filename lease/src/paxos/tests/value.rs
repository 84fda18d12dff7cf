//! Value blocks and renaming (lease-algorithms.md 6.2, 6.6, 7.4; disk-format.md 7.8; rule R8).

use super::*;
use crate::limits::LVB_SECTOR;
use crate::paxos::acquire::Mode;
use crate::paxos::convert::PaxosConvert;
use crate::paxos::take::{PaxosTake, Taken, ValueRead};
use std::sync::Arc;

const VALUE: (u64, i64) = (LVB_SECTOR, -1);

fn take(lab: &mut Lab, mode: Mode) -> Finished<Taken> {
    lab.trace.clear();
    lab.run(&mut PaxosTake::new(config(US), AcquireOptions { mode, ..AcquireOptions::default() }, 8, true))
}

fn sector(fill: u8) -> Arc<[u8]> {
    vec![fill; 512].into()
}

fn on_disk(lab: &Lab) -> Vec<u8> {
    lab.disk.sector(DISK, B512, LVB_SECTOR)
}

fn put_value(lab: &mut Lab, fill: u8) {
    put(lab, DISK, LVB_SECTOR, Content::Value(sector(fill)));
}

/// A free resource on three disks.
fn three_disks() -> (PaxosConfig, Lab) {
    let mut lab = free_lab();
    for disk in (0..3).map(Place::Resource) {
        lab.disk.add(disk, MIB);
        put(&mut lab, disk, 0, Content::Leader(leader(0, NOBODY)));
    }
    (PaxosConfig { disks: 3, ..config(US) }, lab)
}

fn taken(lab: &mut Lab, mode: Mode) -> (Held, Option<ValueRead>) {
    let done = take(lab, mode);
    match done.outcome.outcome {
        AcquireOutcome::Acquired(held) => (held, done.outcome.value),
        AcquireOutcome::Failed { error, .. } => panic!("{error}"),
    }
}

/// A lab in which the lease is ours, with nothing traced yet.
fn owned() -> (Lab, Held) {
    let mut lab = free_lab();
    let (held, _) = taken(&mut lab, Mode::Exclusive);
    lab.trace.clear();
    (lab, held)
}

#[test]
fn the_value_is_read_when_the_lease_is_ours_in_either_mode() {
    for mode in [Mode::Exclusive, Mode::ShortHold] {
        let mut lab = free_lab();
        put_value(&mut lab, 7);
        let (held, value) = taken(&mut lab, mode);
        assert_eq!(value, Some(Ok(sector(7))), "{mode:?}");
        assert_eq!(held.is_shared(), mode == Mode::ShortHold);
        assert_eq!(lab.brief().last(), Some(&(LVB_SECTOR, 1)), "after everything else");
    }
}

#[test]
fn a_value_that_cannot_be_read_costs_nobody_the_lease() {
    for fate in [Fate::fail(IoFailure::Os(5)), Fate::never()] {
        let mut lab = free_lab();
        lab.fates(move |op: &Op| match op.action {
            crate::machine::Action::Read { first: LVB_SECTOR, .. } => fate,
            _ => Fate::prompt(),
        });
        let (_, value) = taken(&mut lab, Mode::Exclusive);
        assert!(matches!(value, Some(Err(_))), "{value:?}");
    }
}

#[test]
fn a_refused_acquire_reads_no_value() {
    let mut lab = lab(leader(3, owned_by(2, 1)));
    lab.hosts = seen(2, 1, 800, 990, 995);
    let done = lab.run(&mut PaxosTake::new(config(US), nowait(), 8, true));
    assert!(matches!(done.outcome.outcome, AcquireOutcome::Failed { .. }));
    assert_eq!(done.outcome.value, None);
    assert!(lab.brief().iter().all(|(at, _)| *at != LVB_SECTOR));
}

/// With 4096-byte sectors and smaller areas the place of the value lies in a neighbour's lease (W7).
#[test]
fn there_is_no_value_where_the_area_has_no_room_for_one() {
    for align in [1, 2, 4, 8] {
        let geometry =
            Geometry::new(SectorSize::B4096, crate::geometry::AlignSize::from_bytes(align * MIB).unwrap())
                .unwrap();
        let mut lab = Lab::new();
        lab.disk.add(Place::Lockspace, geometry.align().bytes());
        lab.disk.add(DISK, geometry.align().bytes());
        let mut record = leader(0, NOBODY);
        record.sector_size = 4096.into();
        record.max_hosts = u64::from(geometry.max_hosts()).into();
        record.flags = geometry.align().flag().into();
        record.seal();
        let mut bytes = vec![0; 4096];
        Content::Leader(record).encode(&mut bytes);
        assert!(lab.disk.write(DISK, SectorSize::B4096, 0, &bytes));
        let config = PaxosConfig { geometry, ..config(US) };
        let done = lab.run(&mut PaxosTake::new(config, AcquireOptions::default(), 8, true));
        assert!(matches!(done.outcome.outcome, AcquireOutcome::Acquired(_)), "{align}");
        assert_eq!(done.outcome.value.is_some(), align == 8, "{align} MiB");
    }
}

#[test]
fn a_release_writes_the_value_first_and_the_next_owner_reads_it() {
    let (mut lab, held) = owned();
    let done = lab.run(&mut PaxosRelease::new(config(US), held).with_value(Some(sector(9))));
    assert_eq!(done.outcome.result, Ok(Released::LeaderFreed));
    assert!(done.outcome.value_written);
    assert_eq!(lab.brief(), [VALUE, (2, -1), (0, 1), (0, -1)]);
    let (_, value) = taken(&mut lab, Mode::Exclusive);
    assert_eq!(value, Some(Ok(sector(9))));
}

#[test]
fn nothing_is_given_up_while_the_value_is_not_on_disk() {
    for (fate, outstanding) in [(Fate::fail(IoFailure::Os(5)), 0), (Fate::never(), 1)] {
        let mut lab = free_lab();
        let (held, _) = taken(&mut lab, Mode::Exclusive);
        let before = (leader_of(&lab), block_of(&lab, US));
        let release = || PaxosRelease::new(config(US), held).with_value(Some(sector(9)));
        let retract = || PaxosRelease::retract(config(US), held.geometry).with_value(Some(sector(9)));
        for mut machine in [release(), retract()] {
            lab.trace.clear();
            nth_write(&mut lab, 0, fate);
            let done = lab.run(&mut machine);
            assert!(matches!(done.outcome.result, Err(ReleaseError::Value(_))), "{done:?}");
            assert!(done.outcome.needs_retract() && !done.outcome.value_written);
            assert_eq!((done.outstanding, lab.brief()), (outstanding, vec![VALUE]));
            assert_eq!((leader_of(&lab), block_of(&lab, US)), before);
        }
        // The next attempt finds the lease as it was.
        let mut lab = free_lab();
        let (held, _) = taken(&mut lab, Mode::Exclusive);
        nth_write(&mut lab, 0, Fate::fail(IoFailure::Os(5)));
        lab.run(&mut PaxosRelease::new(config(US), held).with_value(Some(sector(9))));
        lab.no_faults();
        let done = lab.run(&mut PaxosRelease::retract(config(US), held.geometry).with_value(Some(sector(9))));
        assert_eq!(done.outcome.result, Ok(Released::LeaderFreed));
        assert_eq!(on_disk(&lab), vec![9; 512]);
    }
}

/// Formatted meanwhile, it may be the next owner's: neither its value nor what else lies there is ours to write.
#[test]
fn the_value_of_a_hold_that_is_over_is_not_written() {
    let (_, held) = owned();
    let again = || {
        PaxosRelease::retract(config(US), held.geometry).of_hold(Some(held.block)).with_value(Some(sector(9)))
    };
    let mut later = held.block;
    later.dblock.mbal = 4001.into();
    later.dblock.bal = 4001.into();
    later.dblock.lver = 2.into();
    later.dblock.seal();
    for block in [HostBlock::zeroed(), released(block([1, 1, 2, 1, 7, 1])), later] {
        let mut lab = lab(leader(1, owned_by(2, 1)));
        put_block(&mut lab, US, block);
        put_value(&mut lab, 7);
        let done = lab.run(&mut again());
        assert!(done.outcome.result.is_ok() && !done.outcome.value_written, "{:?}", done.outcome);
        assert_eq!(on_disk(&lab), vec![7; 512], "{block:?}");
    }
    // A hold without a value in its block, as after a conversion to exclusive that was refused, is known by the ballot.
    let bare = |mbal, lver| block([mbal, 0, 0, 0, 0, lver]);
    for (found, written) in [(bare(2001, 2), true), (bare(1, 2), false), (bare(2001, 1), false)] {
        let mut lab = lab(leader(1, owned_by(2, 1)));
        put_block(&mut lab, US, found);
        let machine = PaxosRelease::retract(config(US), held.geometry).of_hold(Some(bare(2001, 2)));
        let done = lab.run(&mut machine.with_value(Some(sector(9))));
        assert_eq!(done.outcome.value_written, written, "{found:?}");
    }
    // Where it cannot be told, it is tried again.
    let (mut lab, _) = owned();
    nth_op(&mut lab, 0, Fate::fail(IoFailure::Os(5)));
    let done = lab.run(&mut again());
    assert!(done.outcome.needs_retract() && !done.outcome.value_written, "{:?}", done.outcome);
    lab.no_faults();
    let done = lab.run(&mut again());
    assert!(done.outcome.value_written && done.outcome.result == Ok(Released::LeaderFreed));
    assert_eq!(on_disk(&lab), vec![9; 512]);
}

#[test]
fn no_value_is_written_without_the_lockspace() {
    let (mut lab, held) = owned();
    lab.lockspace = LockspaceNow::Gone;
    let done = lab.run(&mut PaxosRelease::new(config(US), held).with_value(Some(sector(9))));
    assert_eq!((done.outcome.result, lab.brief()), (Err(ReleaseError::LockspaceGone), vec![]));
    assert!(!done.outcome.value_written);
}

#[test]
fn a_conversion_to_shared_writes_the_value_before_anybody_can_share() {
    let (mut lab, held) = owned();
    nth_write(&mut lab, 0, Fate::fail(IoFailure::Os(5)));
    let mut machine = PaxosConvert::to_shared(config(US), held).with_value(Some(sector(9)));
    let done = lab.run(&mut machine).outcome;
    assert!(matches!(done.result, Err(AcquireError::Share(ReleaseError::Value(_)))), "{done:?}");
    assert_eq!((done.held, done.value_written, lab.brief()), (held, false, vec![VALUE]));

    lab.no_faults();
    lab.trace.clear();
    let mut machine = PaxosConvert::to_shared(config(US), held).with_value(Some(sector(9)));
    let done = lab.run(&mut machine).outcome;
    assert_eq!((done.result, done.value_written, lab.brief()[0]), (Ok(()), true, VALUE));
    assert!(done.held.is_shared());
    assert_eq!(on_disk(&lab), vec![9; 512]);
}

#[test]
fn a_value_of_another_size_is_not_written() {
    let (mut lab, held) = owned();
    let done = lab.run(&mut PaxosRelease::new(config(US), held).with_value(Some(vec![1; 4096].into())));
    assert_eq!((done.outcome.result, lab.brief()), (Err(ReleaseError::Driver), vec![]));
}

fn rename(lab: &mut Lab, held: Held) -> Finished<ReleaseOutcome> {
    lab.trace.clear();
    lab.run(&mut PaxosRelease::new(config(US), held).renamed(Some(name("other"))))
}

fn retract_renamed(lab: &mut Lab, config: PaxosConfig, first: Held) -> Finished<ReleaseOutcome> {
    lab.trace.clear();
    let machine = PaxosRelease::retract(config, first.geometry).of_hold(Some(first.block));
    lab.run(&mut machine.renamed(Some(name("other"))))
}

/// The configuration under the new name.
fn renamed(id: u64) -> PaxosConfig {
    PaxosConfig { resource: name("other"), ..config(id) }
}

#[test]
fn a_release_renames_the_lease_in_the_write_that_frees_it() {
    let mut lab = free_lab();
    let held = held(&acquire_plain(&mut lab));
    let done = rename(&mut lab, held);
    assert_eq!(done.outcome.result, Ok(Released::LeaderFreed));
    assert_eq!(lab.brief(), [(0, 1), (0, -1), (2, -1)], "the leader first");
    let now = leader_of(&lab);
    assert!(name("other").matches(&now.resource_name));
    assert_eq!(now.timestamp.get(), 0);
    assert!(block_of(&lab, US).dblock.is_released());
    assert_eq!(code(&acquire_as(&mut lab, config(2), AcquireOptions::default())), -227);
    let done = acquire_as(&mut lab, renamed(2), AcquireOptions::default());
    assert!(matches!(done.outcome, AcquireOutcome::Acquired(h) if h.lver() == 2));
}

/// Another host has committed the lease in our name. Nobody else may write the leader before we let go, so the name is not lost.
#[test]
fn a_lease_that_another_host_committed_for_us_is_renamed_as_well() {
    let mut lab = free_lab();
    let held = held(&acquire_plain(&mut lab));
    let mut record = leader_of(&lab);
    record.write_id = 3.into();
    record.seal();
    put_leader(&mut lab, record);
    let done = rename(&mut lab, held);
    assert_eq!(done.outcome.result, Ok(Released::LeaderFreed));
    let now = leader_of(&lab);
    assert!(name("other").matches(&now.resource_name));
    assert_eq!(state(&now), (1, 1, false, 1, US));
    // That commit lands once more, from a host that was slow: the flag says that we have let go.
    put_leader(&mut lab, record);
    assert!(block_of(&lab, US).dblock.is_released());
    lab.hosts = seen(US, 1, 800, 990, 995);
    put_delta(&mut lab, US, delta(US, 1, 950));
    let done = acquire_as(&mut lab, config(2), nowait());
    assert!(matches!(done.outcome, AcquireOutcome::Acquired(h) if h.lver() == 2));
}

#[test]
fn a_leader_that_does_not_name_us_is_not_renamed_but_our_block_is_marked() {
    type Change = fn(&mut RawLeader);
    let rows: [(Change, i32); 4] = [
        (|l| l.owner_id = 3.into(), -251),
        (|l| l.lver = 2.into(), -250),
        (|l| l.timestamp = 0.into(), -251),
        (|l| (l.write_id, l.owner_generation) = (3.into(), 7.into()), -251),
    ];
    for (row, (change, expected)) in rows.into_iter().enumerate() {
        let mut lab = free_lab();
        let held = held(&acquire_plain(&mut lab));
        let mut record = leader_of(&lab);
        change(&mut record);
        record.seal();
        put_leader(&mut lab, record);
        let done = rename(&mut lab, held);
        assert_eq!(done.outcome.result.map_err(|e| ReturnCode::from(&e).0), Err(expected), "row {row}");
        assert_eq!((leader_of(&lab), block_of(&lab, US).dblock.is_released()), (record, true), "row {row}");
    }
}

/// A commit in our name by a host that was slow has taken the lease back to the name it had before. It cannot be renamed under ours, but
/// is given up: whoever looks for it under that name finds an owner that has let go.
#[test]
fn a_lease_that_a_slow_commit_took_back_to_another_name_is_not_renamed_but_our_block_is_marked() {
    for (slow, expected) in [(true, -227), (false, -229)] {
        let mut lab = free_lab();
        let held = held(&acquire_plain(&mut lab));
        let mut record = leader_of(&lab);
        if slow {
            (record.write_id, record.resource_name) = (3.into(), name("other").to_field());
            record.seal();
        } else {
            // Nor is a lease held for ever whose leader is damaged.
            record.checksum = (record.checksum.get() ^ 1).into();
        }
        put_leader(&mut lab, record);
        lab.trace.clear();
        let machine = PaxosRelease::new(config(US), held).renamed(Some(name("third")));
        let done = lab.run(&mut machine.clone());
        assert_eq!(done.outcome.result.map_err(|e| ReturnCode::from(&e).0), Err(expected));
        assert_eq!(lab.brief(), [(0, 1), (2, -1)]);
        assert_eq!((leader_of(&lab), block_of(&lab, US).dblock.is_released()), (record, true));
        assert!(!done.outcome.needs_retract());
        if slow {
            lab.hosts = seen(US, 1, 800, 990, 995);
            put_delta(&mut lab, US, delta(US, 1, 950));
            let next = acquire_as(&mut lab, renamed(2), nowait());
            assert!(matches!(next.outcome, AcquireOutcome::Acquired(h) if h.lver() == 2));
        }
    }
}

/// Under that name it is held anew by this host, by a later version: our block is that hold's by now.
#[test]
fn a_rename_does_not_mark_the_block_of_a_newer_hold_under_another_name() {
    for (write_generation, marked) in [(1, false), (7, true)] {
        let mut lab = free_lab();
        let held = held(&acquire_plain(&mut lab));
        let mut record =
            RawLeader { lver: 2.into(), write_generation: write_generation.into(), ..leader_of(&lab) };
        record.resource_name = name("other").to_field();
        record.seal();
        put_leader(&mut lab, record);
        let machine = PaxosRelease::new(config(US), held).renamed(Some(name("third")));
        let done = lab.run(&mut machine.clone());
        assert_eq!(done.outcome.result.map_err(|e| ReturnCode::from(&e).0), Err(-227));
        assert_eq!((leader_of(&lab), block_of(&lab, US).dblock.is_released()), (record, marked));
    }
}

#[test]
fn a_rename_whose_leader_cannot_be_written_gives_nothing_up() {
    let mut lab = free_lab();
    let first = held(&acquire_plain(&mut lab));
    let before = (leader_of(&lab), block_of(&lab, US));
    nth_write(&mut lab, 0, Fate::fail(IoFailure::Os(5)));
    let done = rename(&mut lab, first);
    assert_eq!(done.outcome.result, Err(ReleaseError::LeaderWrite(IoFailure::Os(5))));
    assert_eq!((leader_of(&lab), block_of(&lab, US)), before);
    lab.no_faults();
    let done = retract_renamed(&mut lab, config(US), first);
    assert_eq!(done.outcome.result, Ok(Released::LeaderFreed));
    assert!(name("res").matches(&leader_of(&lab).resource_name), "what is tried again renames nothing");
}

/// Whoever owned it after us may have renamed it before our release looked at the leader.
#[test]
fn a_lease_that_was_renamed_by_its_next_owner_was_released_by_the_flag() {
    let mut lab = free_lab();
    let held = held(&acquire_plain(&mut lab));
    let mut record = leader_of(&lab);
    record.write_id = 3.into();
    record.lver = 2.into();
    record.resource_name = name("other").to_field();
    record.seal();
    put_leader(&mut lab, record);
    assert_eq!(release(&mut lab, held).outcome.result, Ok(Released::ByFlag));
    assert_eq!(leader_of(&lab), record);
}

/// The leader is freed and renamed, our block could not be marked: the mark is to follow. Meanwhile the lease is to be had under
/// its new name, by this host too: what follows must not touch a hold under it.
#[test]
fn what_a_renaming_release_left_to_do_does_not_undo_a_hold_under_the_new_name() {
    for mode in [Mode::ShortHold, Mode::Exclusive] {
        let mut lab = free_lab();
        let first = held(&acquire_plain(&mut lab));
        nth_write(&mut lab, 1, Fate::fail(IoFailure::Os(5)));
        let done = rename(&mut lab, first);
        assert_eq!(done.outcome.result, Ok(Released::LeaderFreed));
        assert!(done.outcome.needs_retract());
        lab.no_faults();

        let options = AcquireOptions { mode, ..AcquireOptions::default() };
        let taken = lab.run(&mut PaxosTake::new(renamed(US), options, 8, false)).outcome.outcome;
        assert!(matches!(taken, AcquireOutcome::Acquired(_)), "{mode:?}: {taken:?}");
        let before = (leader_of(&lab), block_of(&lab, US));
        let done = retract_renamed(&mut lab, config(US), first);
        assert_eq!(done.outcome.result, Ok(Released::NothingToDo));
        assert_eq!((leader_of(&lab), block_of(&lab, US)), before, "{mode:?}");

        lab.hosts = seen(US, 1, 800, 990, 995);
        let other = acquire_as(&mut lab, renamed(2), nowait());
        assert!(!matches!(other.outcome, AcquireOutcome::Acquired(_)), "{mode:?}: two hosts");
    }
}

#[test]
fn a_mark_that_is_still_to_be_written_is_written_under_the_new_name() {
    let mut lab = free_lab();
    let first = held(&acquire_plain(&mut lab));
    nth_write(&mut lab, 1, Fate::fail(IoFailure::Os(5)));
    rename(&mut lab, first);
    lab.no_faults();
    let freed = leader_of(&lab);
    let done = retract_renamed(&mut lab, config(US), first);
    assert_eq!((done.outcome.result, done.outcome.needs_retract()), (Ok(Released::ByFlag), false));
    assert_eq!((leader_of(&lab), block_of(&lab, US).dblock.is_released()), (freed, true));
}

/// Two of three leaders have the new name and say free, the third write failed: nothing is left that a retry could do.
#[test]
fn a_renaming_release_that_got_to_most_disks_late_is_not_retried_for_ever() {
    let (three, mut lab) = three_disks();
    let first = held(&acquire_as(&mut lab, three, AcquireOptions::default()));
    // The leader: prompt on disk 0, late on disk 1, refused on disk 2.
    lab.fates(|op: &Op| match (op.place, &op.action) {
        (Place::Resource(1), crate::machine::Action::Write { sector: 0, .. }) => Fate::after(15_000),
        (Place::Resource(2), crate::machine::Action::Write { sector: 0, .. }) => Fate::fail(IoFailure::Os(5)),
        _ => Fate::prompt(),
    });
    let done = lab.run(&mut PaxosRelease::new(three, first).renamed(Some(name("other"))));
    assert!(matches!(done.outcome.result, Err(ReleaseError::LeaderWrite(_))), "{done:?}");
    assert_eq!(done.outstanding, 1);
    lab.land_all();
    lab.no_faults();
    let on = |lab: &Lab, n| RawLeader::from_sector(&lab.disk.sector(Place::Resource(n), B512, 0));
    assert!((0..2).all(|n| name("other").matches(&on(&lab, n).resource_name)), "it is renamed");

    let again = retract_renamed(&mut lab, three, first);
    assert!(again.outcome.result.is_ok() && !again.outcome.needs_retract(), "{:?}", again.outcome.result);
}

/// Writes of the acquire that are late while the value block is read belong to the acquire: one that ends meanwhile is not
/// outstanding any more, one that does not is.
#[test]
fn late_writes_of_the_acquire_are_counted_while_the_value_is_read() {
    for (late_ms, outstanding) in [(12_000, 0), (600_000, 1)] {
        let (three, mut lab) = three_disks();
        put_value(&mut lab, 7);
        lab.fates(move |op: &Op| match (op.place, &op.action) {
            (Place::Resource(2), crate::machine::Action::Write { sector: 0, .. }) => Fate::after(late_ms),
            (_, crate::machine::Action::Read { first: LVB_SECTOR, .. }) => Fate::after(5_000),
            _ => Fate::prompt(),
        });
        let done = lab.run(&mut PaxosTake::new(three, AcquireOptions::default(), 8, true));
        assert!(matches!(done.outcome.outcome, AcquireOutcome::Acquired(_)), "{done:?}");
        assert_eq!(done.outcome.value, Some(Ok(sector(7))));
        assert_eq!(done.outstanding, outstanding, "{late_ms} ms");
    }
}

/// The value block of several disks is on the first one: without it the lease is to be had, with an error in place of the value.
#[test]
fn without_the_first_disk_there_is_a_lease_and_no_value() {
    let (three, mut lab) = three_disks();
    lab.disk.remove(Place::Resource(0));
    let done = lab.run(&mut PaxosTake::new(three, AcquireOptions::default(), 8, true));
    let AcquireOutcome::Acquired(held) = done.outcome.outcome else { panic!("{done:?}") };
    assert!(matches!(done.outcome.value, Some(Err(_))), "{done:?}");
    let done = lab.run(&mut PaxosRelease::new(three, held).with_value(Some(sector(9))));
    assert!(matches!(done.outcome.result, Err(ReleaseError::Value(_))), "{done:?}");
    assert_eq!((done.outstanding, done.outcome.value_written), (0, false));
    // Given up on the value, the lease is free.
    let done = lab.run(&mut PaxosRelease::retract(three, held.geometry));
    assert_eq!(done.outcome.result, Ok(Released::LeaderFreed));
}
