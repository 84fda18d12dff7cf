//! Release and retract (lease-algorithms.md 6.2, rules R2 and R3).

use super::disks::{acquire3, disk, lab3, leader_on, three};
use super::foreign::called;
use super::*;
use crate::machine::Action;
use crate::verify::LeaderError;

fn held_lab() -> (Lab, Held) {
    let mut lab = free_lab();
    let held = held(&acquire_plain(&mut lab));
    lab.no_faults();
    (lab, held)
}

fn result(finished: &Finished<ReleaseOutcome>) -> Result<Released, i32> {
    finished.outcome.result.map_err(|e| ReturnCode::from(&e).0)
}

#[test]
fn a_released_lease_can_be_taken_by_another_host() {
    let (mut lab, held) = held_lab();
    assert_eq!(result(&release(&mut lab, held)), Ok(Released::LeaderFreed));
    let done = acquire_as(&mut lab, config(2), AcquireOptions::default());
    assert!(matches!(done.outcome, AcquireOutcome::Acquired(h) if h.lver() == 2));
}

#[test]
fn only_a_leader_that_still_says_what_we_wrote_is_freed() {
    type Change = fn(&mut RawLeader);
    let rows: [(Change, Result<Released, i32>); 7] = [
        (|l| l.write_id = 3.into(), Ok(Released::ByFlag)),
        (|l| l.lver = 2.into(), Err(-250)),
        (|l| l.timestamp = 0.into(), Err(-251)),
        (|l| l.owner_id = 3.into(), Err(-251)),
        (|l| l.owner_generation = 2.into(), Err(-251)),
        (|l| l.unused1 = 2.into(), Err(-251)),
        (|l| l.write_timestamp = 2.into(), Err(-251)),
    ];
    for (row, (change, expected)) in rows.into_iter().enumerate() {
        let (mut lab, held) = held_lab();
        let mut record = leader_of(&lab);
        change(&mut record);
        record.seal();
        put_leader(&mut lab, record);
        assert_eq!(result(&release(&mut lab, held)), expected, "row {row}");
        assert_eq!(leader_of(&lab), record, "row {row}");
        assert!(block_of(&lab, US).dblock.is_released(), "row {row}");
        assert_eq!(writes(&lab), [2], "row {row}");
    }
}

#[test]
fn a_damaged_leader_is_not_freed() {
    let (mut lab, held) = held_lab();
    let mut record = leader_of(&lab);
    record.lver = 7.into();
    put_leader(&mut lab, record);
    lab.trace.clear();
    assert!(matches!(
        release(&mut lab, held).outcome.result,
        Err(ReleaseError::Leader(LeaderError::Checksum { .. }))
    ));
    assert_eq!(lab.brief(), [(2, -1), (0, 1)], "marked once");
}

#[test]
fn a_failed_block_write_is_noted_but_the_leader_is_freed() {
    let (mut lab, held) = held_lab();
    nth_write(&mut lab, 0, Fate::fail(IoFailure::Os(5)));
    let done = release(&mut lab, held);
    assert_eq!(result(&done), Ok(Released::LeaderFreed));
    assert_eq!(done.outcome.block_failure, Some(IoFailure::Os(5)));
    assert!(!state(&leader_of(&lab)).2);
    assert!(done.outcome.needs_retract(), "the mark is still to be written");
    lab.no_faults();
    let done = retract(&mut lab);
    assert_eq!((result(&done), done.outcome.needs_retract()), (Ok(Released::ByFlag), false));
    assert!(block_of(&lab, US).dblock.is_released());
}

/// Found by the model checker. Host 3's ballot found our value; its commit lands after we have freed the leader, but could not
/// mark our block. Only the mark tells the others that we have let go.
#[test]
fn a_slow_commit_of_our_value_over_the_freed_leader_is_answered_by_the_mark() {
    let (mut lab, held) = held_lab();
    let mut commit = held.leader;
    commit.write_id = 3.into();
    commit.seal();
    nth_write(&mut lab, 0, Fate::fail(IoFailure::Os(5)));
    let done = release(&mut lab, held);
    put_leader(&mut lab, commit);
    lab.no_faults();
    put_delta(&mut lab, US, delta(US, 1, 950));
    lab.hosts = seen(US, 1, 800, 990, 995);
    assert_eq!(
        code(&acquire_as(&mut lab, config(2), nowait())),
        -243,
        "we are alive, and look like the owner"
    );
    lab.lockspace = LockspaceNow::Alive { generation: 1 };
    assert!(done.outcome.needs_retract());
    assert_eq!(result(&retract(&mut lab)), Ok(Released::ByFlag));
    let done = acquire_as(&mut lab, config(2), nowait());
    assert!(matches!(done.outcome, AcquireOutcome::Acquired(h) if h.lver() == 2));
}

#[test]
fn a_failed_block_write_is_an_error_where_the_flag_is_the_release() {
    let (mut lab, held) = held_lab();
    let mut record = leader_of(&lab);
    record.write_id = 3.into();
    record.seal();
    put_leader(&mut lab, record);
    nth_write(&mut lab, 0, Fate::fail(IoFailure::Os(5)));
    let done = release(&mut lab, held);
    assert_eq!(result(&done), Err(-5));
    assert!(done.outcome.result.unwrap_err().is_retryable());
}

/// R3: no second write to a disk on which one is outstanding, so the leader is left alone too.
#[test]
fn nothing_is_written_after_a_block_write_that_hangs() {
    let (mut lab, held) = held_lab();
    nth_write(&mut lab, 0, Fate::never());
    let done = release(&mut lab, held);
    assert_eq!((result(&done), done.outstanding), (Err(-202), 1));
    assert!(done.outcome.result.unwrap_err().is_retryable());
    assert_eq!(writes(&lab), [2]);
}

#[test]
fn errors_of_the_leader_step() {
    for (op, fate, expected, outstanding) in [
        (1, Fate::fail(IoFailure::Os(5)), -5, 0),
        (1, Fate::never(), -202, 0),
        (2, Fate::fail(IoFailure::Os(5)), -5, 0),
        (2, Fate::never(), -202, 1),
    ] {
        let (mut lab, held) = held_lab();
        nth_op(&mut lab, op, fate);
        let done = release(&mut lab, held);
        assert_eq!((result(&done), done.outstanding), (Err(expected), outstanding));
        assert!(done.outcome.result.unwrap_err().is_retryable());
        lab.no_faults();
        assert_eq!(result(&retract(&mut lab)), Ok(Released::LeaderFreed), "the further attempt");
    }
}

/// CE3: the leader write of a release hangs. The further attempt follows after it has landed, finds the lease free, and
/// writes nothing.
#[test]
fn a_further_attempt_after_a_late_release_writes_nothing() {
    let (mut lab, held) = held_lab();
    nth_op(&mut lab, 2, Fate::lands_unseen(15_000));
    let mut machine = PaxosRelease::new(config(US), held);
    assert_eq!(lab.run(&mut machine).outstanding, 1);
    lab.pass(&mut machine, 20);
    lab.no_faults();
    assert_eq!(result(&retract(&mut lab)), Ok(Released::NothingToDo));
    assert_eq!(lab.brief(), [(2, 1), (0, 1), (0, 1)]);
}

#[test]
fn a_late_completion_is_only_noted() {
    let (mut lab, held) = held_lab();
    nth_op(&mut lab, 2, Fate::after(15_000));
    let mut machine = PaxosRelease::new(config(US), held);
    assert_eq!(machine.outstanding(), 0);
    assert_eq!(lab.run(&mut machine).outstanding, 1);
    assert_eq!(machine.outstanding(), 1);
    assert!(lab.pass(&mut machine, 20).is_none());
    assert_eq!(machine.outstanding(), 0);
}

/// R10 for releases: no write in the name of a lockspace that is gone. A dead client or a shutdown stops no release.
#[test]
fn a_release_writes_only_while_the_lockspace_lives() {
    let (mut lab, held) = held_lab();
    before_round(&mut lab, 1, |lab| lab.lockspace = LockspaceNow::Gone);
    let done = release(&mut lab, held);
    assert_eq!((result(&done), writes(&lab).len()), (Err(-28), 1));

    let (mut lab, held) = held_lab();
    lab.lockspace = LockspaceNow::Alive { generation: 2 };
    assert_eq!((result(&release(&mut lab, held)), lab.trace.len()), (Err(-28), 0));

    let (mut lab, held) = held_lab();
    lab.client_alive = false;
    lab.shutting_down = true;
    assert_eq!(result(&release(&mut lab, held)), Ok(Released::LeaderFreed));
}

/// One wait less, and yet the leader says free only once the flag can be read by whoever finds a commit of our value over it.
#[test]
fn the_leader_is_read_beside_the_mark_and_written_after_it() {
    let (mut lab, held) = held_lab();
    let begin = lab.now;
    nth_write(&mut lab, 0, Fate::after(700));
    assert_eq!(result(&release(&mut lab, held)), Ok(Released::LeaderFreed));
    let when: Vec<_> = lab.trace.iter().map(|t| (t.brief(), t.at.millis_since(begin))).collect();
    assert_eq!(when, [((2, -1), 0), ((0, 1), 0), ((0, -1), 700)]);

    // Likewise where it is the reading that takes long.
    let (mut lab, held) = held_lab();
    let begin = lab.now;
    nth_op(&mut lab, 1, Fate::after(700));
    assert_eq!(result(&release(&mut lab, held)), Ok(Released::LeaderFreed));
    assert_eq!(lab.trace.last().map(|t| (t.brief(), t.at.millis_since(begin))), Some(((0, -1), 700)));
}

/// Where it is not known that the mark is on disk, the leader that was read beside it may be a whole io timeout old.
#[test]
fn what_was_read_beside_a_mark_that_failed_is_read_again() {
    let failed = Fate { after_ms: Some(9_000), ..Fate::fail(IoFailure::Os(5)) };
    for fate in [failed, Fate::never()] {
        let (mut lab, held) = held_lab();
        nth_write(&mut lab, 0, fate);
        let mut commit = held.leader;
        commit.write_id = 3.into();
        commit.seal();
        lab.after_secs(5, move |lab| put_leader(lab, commit));
        let done = release(&mut lab, held);
        assert!(matches!(done.outcome.result, Err(ReleaseError::DblockWrite(_))), "{:?}", done.outcome);
        assert_eq!(lab.brief(), [(2, -1), (0, 1), (0, 1)]);
        assert_eq!(leader_of(&lab), commit, "it is not ours to write");
    }
}

/// Another host commits our value late, after we have released: its record says "owned by us", our flag says otherwise.
#[test]
fn a_release_survives_a_late_commit_by_another_host() {
    let (mut lab, held) = held_lab();
    release(&mut lab, held);
    let ours = Owner { id: US, generation: 1, timestamp: 1000, writer: 3 };
    put_leader(&mut lab, leader(1, ours));
    lab.hosts = seen(US, 1, 800, 990, 990);
    let done = acquire_as(&mut lab, config(2), AcquireOptions::default());
    assert!(matches!(done.outcome, AcquireOutcome::Acquired(h) if h.lver() == 2));
}

#[test]
fn a_retract_reads_the_block_then_flags_it_then_frees_the_leader() {
    let (mut lab, held) = held_lab();
    assert_eq!(result(&retract(&mut lab)), Ok(Released::LeaderFreed));
    assert_eq!(lab.brief(), [(2, 1), (0, 1), (2, -1), (0, 1), (0, -1)]);
    assert_eq!(block_of(&lab, US), released(held.block));
}

/// What waits to be given up once more is nobody's lease for those who format its place meanwhile.
#[test]
fn a_retract_writes_nothing_where_something_else_lies_by_now() {
    let kinds: [fn(&mut RawLeader); 6] = [
        // Under its own name, too.
        |leader| (leader.sector_size, leader.num_hosts) = (4096.into(), 250.into()),
        |leader| leader.resource_name = name("other").to_field(),
        |leader| leader.space_name = name("other").to_field(),
        |leader| leader.magic = 0.into(),
        |leader| leader.magic = crate::record::PAXOS_CLEARED_MAGIC.into(),
        |leader| leader.version = 0x0007_0000.into(),
    ];
    for kind in kinds {
        let (mut lab, held) = held_lab();
        let mut other = leader(3, owned_by(2, 1));
        kind(&mut other);
        other.seal();
        put_leader(&mut lab, other);
        // This host shares that one, and our mode block is of that hold.
        let mut sharing = block([1, 1, US, 1, 50, 3]);
        sharing.mode = ModeBlock::shared(1);
        put_block(&mut lab, US, sharing);
        let retract = || PaxosRelease::retract(config(US), held.geometry);
        // As those of an acquire that is a little older.
        let known = block([8001, 8001, US, 1, 900, 50]);
        let machines = [retract().of_hold(Some(known)), retract().of_attempt(Some(known)), retract()];
        let renamed = other.resource_name == name("other").to_field();
        for mut machine in machines.into_iter().take(if renamed { 2 } else { 3 }) {
            lab.trace.clear();
            let done = lab.run(&mut machine);
            assert!(!done.outcome.needs_retract() && done.outcome.result.is_err(), "{done:?}");
            assert_eq!((writes(&lab).len(), block_of(&lab, US)), (0, sharing));
        }
    }
}

/// It may be this lease: renamed by its next owner, say, or with a leader that is damaged for the moment.
#[test]
fn a_retract_marks_its_block_under_another_name_and_beside_a_damaged_leader() {
    let kinds: [fn(&mut RawLeader); 2] =
        [|leader| leader.resource_name = name("other").to_field(), |leader| leader.lver = 77.into()];
    for (at, kind) in kinds.into_iter().enumerate() {
        let (mut lab, held) = held_lab();
        let mut other = leader_of(&lab);
        kind(&mut other);
        if at == 0 {
            other.seal();
        }
        put_leader(&mut lab, other);
        retract(&mut lab);
        assert_eq!(block_of(&lab, US), released(held.block), "{other:?}");
    }
}

/// Nothing is known of it then: it is tried again.
#[test]
fn a_retract_whose_block_cannot_be_read_is_not_over_because_of_another_name() {
    let (mut lab, held) = held_lab();
    let mut renamed = leader_of(&lab);
    renamed.resource_name = name("other").to_field();
    renamed.seal();
    put_leader(&mut lab, renamed);
    let again = || PaxosRelease::retract(config(US), held.geometry).of_hold(Some(held.block));
    nth_op(&mut lab, 0, Fate::fail(IoFailure::Os(5)));
    let done = lab.run(&mut again());
    assert!(done.outcome.needs_retract(), "{:?}", done.outcome);
    lab.no_faults();
    lab.run(&mut again());
    assert_eq!(block_of(&lab, US), released(held.block));
}

/// A single disk that does not have the block of an attempt never had it, and nobody has seen it.
#[test]
fn a_block_that_never_came_to_be_on_a_single_disk_is_not_marked() {
    let left = block([2001, 2001, US, 1, 900, 50]);
    for there in [HostBlock::zeroed(), released(block([1, 1, US, 1, 500, 40]))] {
        let mut lab = lab(leader(1, owned_by(2, 1)));
        put_block(&mut lab, US, there);
        let done = lab.run(&mut PaxosRelease::retract(config(US), Geometry::B512_M1).of_attempt(Some(left)));
        assert_eq!(done.outcome.result, Ok(Released::NothingToDo));
        assert!(writes(&lab).is_empty(), "{there:?}");
    }
}

#[test]
fn a_retract_leaves_other_owners_alone() {
    let rows = [
        Owner { timestamp: 0, ..owned_by(US, 1) },
        owned_by(2, 1),
        owned_by(US, 2),
        Owner { writer: 2, ..owned_by(US, 1) },
    ];
    for owner in rows {
        let mut lab = lab(leader(5, owner));
        let before = leader_of(&lab);
        assert!(result(&retract(&mut lab)).is_ok());
        assert_eq!(leader_of(&lab), before);
    }
}

/// The last ballot got no further than phase 1; but a value of ours was committed for the version
/// before. Without the flag everybody would be refused until we come again.
#[test]
fn a_retract_after_a_bare_phase_1_still_gives_an_older_version_up() {
    let ours = Owner { id: US, generation: 1, timestamp: 950, writer: 3 };
    let mut lab = lab(leader(1, ours));
    put_block(&mut lab, US, released(block([1, 1, US, 1, 950, 1])));
    before_round(&mut lab, READ_1, |lab| lab.client_alive = false);
    let done = acquire_plain(&mut lab);
    assert_eq!((code(&done), failure(&done).2), (-25, true));
    assert_eq!(block_of(&lab, US), released(block([2001, 0, 0, 0, 0, 2])));
    // As the original, and who was interrupted with several disks, leaves it.
    put_block(&mut lab, US, block([2001, 0, 0, 0, 0, 2]));

    assert_eq!(result(&retract(&mut lab)), Ok(Released::ByFlag));
    assert_eq!(block_of(&lab, US), released(block([2001, 0, 0, 0, 0, 2])));
    // A reader that knows only the flag (the original) sees it, and so do we.
    lab.client_alive = true;
    lab.hosts = seen(US, 1, 800, 990, 990);
    let done = acquire_as(&mut lab, config(2), AcquireOptions::default());
    assert!(matches!(done.outcome, AcquireOutcome::Acquired(h) if h.lver() == 2));
}

#[test]
fn a_retract_with_nothing_on_disk_writes_nothing() {
    let mut lab = free_lab();
    assert_eq!(result(&retract(&mut lab)), Ok(Released::NothingToDo));
    assert!(writes(&lab).is_empty());
}

#[test]
fn errors_of_a_retract() {
    let damaged = |lab: &mut Lab| {
        let mut damaged = block([1, 1, US, 1, 5, 1]);
        damaged.dblock.inp3 = 6.into();
        put_block(lab, US, damaged);
    };
    let mut lab = free_lab();
    damaged(&mut lab);
    assert_eq!(result(&retract(&mut lab)), Err(-214));
    assert!(!retract(&mut lab).outcome.result.unwrap_err().is_retryable());

    for (op, fate, expected, outstanding) in [
        (0, Fate::fail(IoFailure::Os(5)), -5, 0),
        (0, Fate::never(), -202, 0),
        (2, Fate::never(), -202, 1),
        (3, Fate::never(), -202, 0),
        (4, Fate::never(), -202, 1),
    ] {
        let (mut lab, _) = held_lab();
        nth_op(&mut lab, op, fate);
        let done = retract(&mut lab);
        assert_eq!((result(&done), done.outstanding), (Err(expected), outstanding), "operation {op}");
    }
}

/// The next owner renamed the lease. That its old name is gone says that our flag released it: if our flag is there.
#[test]
fn under_another_name_a_lease_is_released_by_a_flag_that_is_on_disk() {
    for (fate, expected) in
        [(Fate::prompt(), Ok(Released::ByFlag)), (Fate::fail(IoFailure::Os(5)), Err(-227))]
    {
        let (mut lab, held) = held_lab();
        let mut record = leader_of(&lab);
        record.resource_name = name("other").to_field();
        record.seal();
        put_leader(&mut lab, record);
        nth_write(&mut lab, 0, fate);
        assert_eq!(result(&release(&mut lab, held)), expected);
        assert_eq!(leader_of(&lab), record);
    }
}

/// What a release under the old name left to do is no business of the lease under its new one, even if that is ours.
#[test]
fn a_retract_leaves_a_lease_alone_that_has_its_new_name() {
    let (mut lab, _) = held_lab();
    let mut record = leader_of(&lab);
    record.resource_name = name("other").to_field();
    record.seal();
    put_leader(&mut lab, record);
    let machine = PaxosRelease::retract(config(US), Geometry::B512_M1).renamed(Some(name("other")));
    lab.trace.clear();
    assert!(result(&lab.run_noisy(&mut machine.clone())).is_ok());
    assert_eq!(leader_of(&lab), record);
}

/// The disk is swapped, or somebody else's, since the first look at it: what lies there is not written over.
#[test]
fn a_disk_that_is_lost_to_another_lease_during_a_release_is_left_alone() {
    let others = [RawLeader::zeroed(), called("other", leader(7, owned_by(2, 1)))];
    for (n, other) in (0..3).flat_map(|n| others.map(|other| (n, other))) {
        let mut lab = lab3([leader(0, NOBODY); 3]);
        let held = held(&acquire3(&mut lab));
        // The first look and the mark came before.
        before_round(&mut lab, 3, move |lab| put(lab, disk(n), 0, Content::Leader(other)));
        let done = lab.run_noisy(&mut PaxosRelease::new(three(), held));
        assert_eq!(result(&done), Ok(Released::LeaderFreed), "disk {n}");
        assert_eq!(leader_on(&lab, n), other, "disk {n}");
        assert!((0..3).filter(|d| *d != n).all(|d| !state(&leader_on(&lab, d)).2), "disk {n}");
    }
}

/// The others may come back, and then the lease is still held, with nothing given up: neither by a mark nor by a value that the next
/// owner would read.
#[test]
fn nothing_is_given_up_while_too_few_disks_have_the_lease() {
    for (kept, readable) in (0..3).flat_map(|kept| [true, false].map(|readable| (kept, readable))) {
        let mut lab = lab3([leader(0, NOBODY); 3]);
        let held = held(&acquire3(&mut lab));
        let away = [(kept + 1) % 3, (kept + 2) % 3];
        put(&mut lab, disk(away[0]), 0, Content::Leader(RawLeader::zeroed()));
        put(&mut lab, disk(away[1]), 0, Content::Leader(called("other", leader(7, owned_by(2, 1)))));
        lab.fates(move |op| match op.action {
            Action::Read { .. } if op.place == disk(kept) && !readable => Fate::fail(IoFailure::Os(5)),
            _ => Fate::prompt(),
        });
        lab.trace.clear();
        let value = Some(vec![7; 512].into());
        for machine in [
            PaxosRelease::new(three(), held),
            PaxosRelease::new(three(), held).with_value(value),
            PaxosRelease::retract(three(), held.geometry),
        ] {
            let done = lab.run_noisy(&mut machine.clone());
            assert_eq!(result(&done), Err(-220), "disk {kept}");
            assert!(done.outcome.needs_retract() && !done.outcome.value_written, "disk {kept}");
        }
        assert!(writes(&lab).is_empty(), "disk {kept}: {:?}", lab.brief());

        lab.no_faults();
        away.iter().for_each(|n| put(&mut lab, disk(*n), 0, Content::Leader(held.leader)));
        let done = lab.run_noisy(&mut PaxosRelease::new(three(), held));
        assert_eq!(result(&done), Ok(Released::LeaderFreed), "disk {kept}");
    }
}
