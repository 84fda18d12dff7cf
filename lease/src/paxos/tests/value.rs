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

fn taken(lab: &mut Lab, mode: Mode) -> (Held, Option<ValueRead>) {
    let done = take(lab, mode);
    match done.outcome.outcome {
        AcquireOutcome::Acquired(held) => (held, done.outcome.value),
        AcquireOutcome::Failed { error, .. } => panic!("{error}"),
    }
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
    let mut lab = free_lab();
    let (held, _) = taken(&mut lab, Mode::Exclusive);
    lab.trace.clear();
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

#[test]
fn no_value_is_written_without_the_lockspace() {
    let mut lab = free_lab();
    let (held, _) = taken(&mut lab, Mode::Exclusive);
    lab.trace.clear();
    lab.lockspace = LockspaceNow::Gone;
    let done = lab.run(&mut PaxosRelease::new(config(US), held).with_value(Some(sector(9))));
    assert_eq!((done.outcome.result, lab.brief()), (Err(ReleaseError::LockspaceGone), vec![]));
    assert!(!done.outcome.value_written);
}

#[test]
fn a_conversion_to_shared_writes_the_value_before_anybody_can_share() {
    let mut lab = free_lab();
    let (held, _) = taken(&mut lab, Mode::Exclusive);
    lab.trace.clear();
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
    let mut lab = free_lab();
    let (held, _) = taken(&mut lab, Mode::Exclusive);
    lab.trace.clear();
    let done = lab.run(&mut PaxosRelease::new(config(US), held).with_value(Some(vec![1; 4096].into())));
    assert_eq!((done.outcome.result, lab.brief()), (Err(ReleaseError::Driver), vec![]));
}

#[test]
fn a_release_renames_the_lease_in_the_write_that_frees_it() {
    let mut lab = free_lab();
    let held = held(&acquire_plain(&mut lab));
    lab.trace.clear();
    let done = lab.run(&mut PaxosRelease::new(config(US), held).renamed(Some(name("other"))));
    assert_eq!(done.outcome.result, Ok(Released::LeaderFreed));
    assert_eq!(lab.brief(), [(2, -1), (0, 1), (0, -1)]);
    let now = leader_of(&lab);
    assert!(name("other").matches(&now.resource_name));
    assert_eq!(now.timestamp.get(), 0);
    assert_eq!(code(&acquire_as(&mut lab, config(2), AcquireOptions::default())), -227);
    let config = PaxosConfig { resource: name("other"), ..config(2) };
    let done = acquire_as(&mut lab, config, AcquireOptions::default());
    assert!(matches!(done.outcome, AcquireOutcome::Acquired(h) if h.lver() == 2));
}

/// Where another host wrote the leader in our name, it is not ours to change.
#[test]
fn a_foreign_leader_keeps_its_name() {
    let mut lab = free_lab();
    let held = held(&acquire_plain(&mut lab));
    let mut record = leader_of(&lab);
    record.write_id = 3.into();
    record.seal();
    put_leader(&mut lab, record);
    let done = lab.run(&mut PaxosRelease::new(config(US), held).renamed(Some(name("other"))));
    assert_eq!(done.outcome.result, Ok(Released::ByFlag));
    assert_eq!(leader_of(&lab), record);
}
