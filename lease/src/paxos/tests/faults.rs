//! I/O errors, timeouts, late completions, and the end of the attempt's right to write (rules R3, R10).

use super::*;
use crate::machine::Op;

/// Operations of an uncontended acquire, in order of submission.
const OPS: usize = 7;
const OP_LEADER: usize = 0;
const OP_OWN: usize = 1;
const OP_WRITE_1: usize = 2;
const OP_READ_1: usize = 3;
const OP_WRITE_2: usize = 4;
const OP_READ_2: usize = 5;
const OP_COMMIT: usize = 6;

#[test]
fn an_error_of_any_operation_ends_the_acquire_with_its_code() {
    let rows = [
        (OP_LEADER, -5, false),
        (OP_OWN, -5, false),
        (OP_WRITE_1, -211, false),
        (OP_READ_1, -210, false),
        (OP_WRITE_2, -211, true),
        (OP_READ_2, -210, true),
        (OP_COMMIT, -5, true),
    ];
    for (op, expected, retract) in rows {
        let mut lab = free_lab();
        nth_op(&mut lab, op, Fate::fail(IoFailure::Os(5)));
        let done = acquire_plain(&mut lab);
        assert_eq!(
            (code(&done), failure(&done).2, done.outstanding),
            (expected, retract, 0),
            "operation {op}"
        );
        assert_eq!(lab.trace.len(), (op + 1).max(2), "nothing follows operation {op}");
    }
}

#[test]
fn a_timeout_of_any_operation_ends_the_acquire_and_writes_stay_outstanding() {
    let rows = [
        (OP_LEADER, -202, false, 0),
        (OP_OWN, -202, false, 0),
        (OP_WRITE_1, -211, false, 1),
        (OP_READ_1, -210, false, 0),
        (OP_WRITE_2, -211, true, 1),
        (OP_READ_2, -210, true, 0),
        (OP_COMMIT, -202, true, 1),
    ];
    for (op, expected, retract, outstanding) in rows {
        let mut lab = free_lab();
        nth_op(&mut lab, op, Fate::never());
        let done = acquire_plain(&mut lab);
        assert_eq!(
            (code(&done), failure(&done).2, done.outstanding),
            (expected, retract, outstanding),
            "operation {op}"
        );
        assert_eq!(done.at.secs_since(MonoTime::from_secs(1000)), 10, "operation {op}");
        assert_eq!(lab.trace.len(), (op + 1).max(2), "nothing follows operation {op}");
    }
}

#[test]
fn a_short_transfer_is_an_error_of_its_own() {
    let mut lab = free_lab();
    nth_op(&mut lab, OP_LEADER, Fate::fail(IoFailure::Short));
    assert_eq!(code(&acquire_plain(&mut lab)), -90);
}

#[test]
fn a_resource_disk_that_is_not_open_is_an_error() {
    let mut lab = free_lab();
    lab.disk.remove(DISK);
    assert_eq!(code(&acquire_plain(&mut lab)), -19);
}

#[test]
fn slow_operations_within_their_limit_change_nothing() {
    let mut lab = free_lab();
    lab.fates(|_| Fate::after(9_900));
    let done = acquire_plain(&mut lab);
    assert_eq!(held(&done).lver(), 1);
    assert_eq!(done.at, MonoTime::from_millis(1_000_000 + 6 * 9_900));
}

/// What is held is the leader as it was sent. One made up again at the end of a write that outlived a second would differ from the
/// disk, and the release would be refused.
#[test]
fn a_lease_whose_leader_write_took_long_can_be_released() {
    let mut lab = free_lab();
    nth_op(&mut lab, OP_COMMIT, Fate::after(2_500));
    let done = acquire_plain(&mut lab);
    let held = held(&done);
    let sent = leader_of(&lab);
    assert_eq!(held.leader, sent);
    let released = lab.run(&mut PaxosRelease::new(config(US), held));
    assert_eq!(released.outcome.result, Ok(crate::paxos::release::Released::LeaderFreed));
}

#[test]
fn an_error_in_a_lost_second_ballot_still_asks_for_a_retract() {
    let mut lab = free_lab();
    before_round(&mut lab, READ_2, |lab| put_block(lab, 3, block([4003, 0, 0, 0, 0, 1])));
    // Operations 6 and 7: the leader again, and our second phase 1.
    nth_op(&mut lab, 7, Fate::fail(IoFailure::Os(5)));
    let done = acquire_plain(&mut lab);
    assert_eq!((code(&done), failure(&done).2), (-211, true));
}

#[test]
fn the_loss_of_the_version_makes_a_retract_needless() {
    let mut lab = free_lab();
    before_round(&mut lab, READ_2, |lab| {
        put_block(lab, 3, block([4003, 4003, 3, 1, 980, 1]));
        put_leader(lab, leader(1, owned_by(3, 1)));
    });
    let done = acquire_plain(&mut lab);
    assert_eq!((code(&done), failure(&done).2), (-244, false));
}

/// R3, the way of a leader write that hangs: -202, outstanding; when it has settled, a retract takes the lease back.
#[test]
fn a_late_leader_write_is_taken_back_after_it_has_landed() {
    for (fate, landed) in [
        (Fate { after_ms: Some(30_000), lands_ms: Some(20_000), ..Fate::never() }, true),
        (Fate { after_ms: Some(30_000), failure: Some(IoFailure::Os(5)), ..Fate::never() }, false),
    ] {
        let mut lab = free_lab();
        nth_op(&mut lab, OP_COMMIT, fate);
        let mut machine = PaxosAcquire::new(config(US), AcquireOptions::default());
        let done = lab.run(&mut machine);
        assert_eq!((code(&done), done.outstanding), (-202, 1));
        assert_eq!(leader_of(&lab).lver.get(), 0);
        assert!(lab.pass(&mut machine, 60).is_none(), "the late completion is only noted");
        assert_eq!(state(&leader_of(&lab)).2, landed);

        lab.no_faults();
        let done = retract(&mut lab);
        let expected = if landed { Released::LeaderFreed } else { Released::ByFlag };
        assert_eq!(done.outcome.result, Ok(expected));
        assert!(!state(&leader_of(&lab)).2);
        assert!(block_of(&lab, US).dblock.is_released());
        assert_eq!(fields(&block_of(&lab, US)), [1, 1, US, 1, 1000, 1], "by flag, not by erasing");
    }
}

#[test]
fn late_completions_of_reads_are_ignored() {
    let mut lab = free_lab();
    nth_op(&mut lab, OP_READ_1, Fate::after(15_000));
    let mut machine = PaxosAcquire::new(config(US), AcquireOptions::default());
    let done = lab.run(&mut machine);
    assert_eq!((code(&done), done.outstanding), (-210, 0));
    assert!(lab.pass(&mut machine, 60).is_none());
}

/// R10: what happens before the n-th write keeps it from being submitted.
#[test]
fn nothing_is_written_once_the_attempt_is_unwanted_or_forbidden() {
    let changes: [(Change, i32); 4] = [
        (|lab| lab.client_alive = false, -25),
        (|lab| lab.shutting_down = true, -1),
        (|lab| lab.lockspace = LockspaceNow::Gone, -28),
        (|lab| lab.lockspace = LockspaceNow::Alive { generation: 2 }, -28),
    ];
    // Round before whose end it happens, writes submitted until then, whether a value of ours is on disk.
    let moments = [
        (FIRST_READ, 0, false),
        (WRITE_1, 1, false),
        (READ_1, 1, false),
        (WRITE_2, 2, true),
        (READ_2, 2, true),
    ];
    for (change, expected) in changes {
        for (round, written, retract) in moments {
            let mut lab = free_lab();
            before_round(&mut lab, round, change);
            let done = acquire_plain(&mut lab);
            assert_eq!((code(&done), failure(&done).2), (expected, retract), "round {round}");
            assert_eq!(writes(&lab).len(), written, "round {round}");
        }
    }
}

#[test]
fn an_attempt_that_is_forbidden_from_the_start_does_nothing() {
    let mut lab = free_lab();
    let done = lab.run(&mut PaxosAcquire::new(PaxosConfig { generation: 2, ..config(US) }, nowait()));
    assert_eq!((code(&done), lab.trace.len()), (-28, 0));
}

/// A write under way when the lockspace fails: its completion is seen, and nothing follows. The manager compares the
/// generation once more before it hands out the lease.
#[test]
fn a_commit_under_way_when_the_lockspace_fails_is_reported_as_it_is() {
    let mut lab = free_lab();
    before_round(&mut lab, COMMIT, |lab| lab.lockspace = LockspaceNow::Gone);
    held(&acquire_plain(&mut lab));
}

#[test]
fn a_backoff_ends_at_once_when_it_is_pointless() {
    let mut lab = free_lab();
    // A slow ballot makes the delay long enough to hit.
    lab.fates(|op: &Op| if op.is_write() { Fate::after(900) } else { Fate::prompt() });
    put_block(&mut lab, 2, block([8002, 0, 0, 0, 0, 1]));
    lab.at(MonoTime::from_millis(1_000_903), |lab| lab.client_alive = false);
    let done = acquire_plain(&mut lab);
    assert_eq!((code(&done), done.at.millis()), (-25, 1_000_903));
    assert_eq!(writes(&lab).len(), 1);
}

#[test]
fn every_operation_is_accounted_for() {
    let mut lab = free_lab();
    held(&acquire_plain(&mut lab));
    assert_eq!(lab.trace.len(), OPS);
}
