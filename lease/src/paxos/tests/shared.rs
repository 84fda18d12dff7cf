//! Taking a resource shared, giving it back, and converting it (lease-algorithms.md 5.2, 5.3, 6.3, 6.5, 6.6, 16.3).

use super::*;
use crate::machine::Action;
use crate::paxos::convert::{ConvertOutcome, PaxosConvert};
use crate::paxos::share::PaxosShare;
use crate::record::FLAG_SHORT_HOLD;

const RETRIES: u32 = 8;

fn share(lab: &mut Lab, id: u64) -> Finished<AcquireOutcome> {
    lab.lockspace = LockspaceNow::Alive { generation: 1 };
    lab.trace.clear();
    lab.run_noisy(&mut PaxosShare::new(config(id), AcquireOptions::default(), RETRIES))
}

fn release_as(lab: &mut Lab, id: u64, held: Held) -> Finished<ReleaseOutcome> {
    lab.trace.clear();
    lab.run_noisy(&mut PaxosRelease::new(config(id), held))
}

fn to_exclusive(lab: &mut Lab, id: u64, held: Held) -> ConvertOutcome {
    lab.trace.clear();
    lab.run_noisy(&mut PaxosConvert::to_exclusive(config(id), AcquireOptions::default(), held)).outcome
}

fn to_shared(lab: &mut Lab, id: u64, held: Held) -> ConvertOutcome {
    lab.trace.clear();
    lab.run_noisy(&mut PaxosConvert::to_shared(config(id), held)).outcome
}

/// Mode, RELEASED, version of a host's block.
fn mode_of(lab: &Lab, id: u64) -> (bool, bool, u64) {
    let block = block_of(lab, id);
    (block.mode.is_shared(), block.dblock.is_released(), block.dblock.lver.get())
}

fn flags(lab: &Lab) -> u32 {
    leader_of(lab).flags.get()
}

fn convert_code(outcome: &ConvertOutcome) -> i32 {
    outcome.result.map_or_else(|e| ReturnCode::from(&e).0, |()| 0)
}

/// 16.3, first two hosts.
#[test]
fn two_hosts_share_and_let_go() {
    let mut lab = free_lab();
    let first = held(&share(&mut lab, 1));
    assert_eq!(
        lab.brief(),
        [(0, 1), (2, 1), (2, -1), (0, 10), (2, -1), (0, 10), (0, -1), (2, -1), (0, 1), (0, -1)]
    );
    let committed = lab.trace[6].written();
    assert!(matches!(committed, Some(Content::Leader(l)) if l.flags.get() == 0x10 | FLAG_SHORT_HOLD));
    assert!(first.is_shared());
    assert_eq!((mode_of(&lab, 1), block_of(&lab, 1)), ((true, true, 1), first.block));
    assert_eq!(block_of(&lab, 1).mode.generation.get(), 1);
    assert_eq!((state(&leader_of(&lab)), flags(&lab)), ((1, 1, false, 1, 1), 0x10));

    let second = held(&share(&mut lab, 2));
    assert_eq!((mode_of(&lab, 1), mode_of(&lab, 2)), ((true, true, 1), (true, true, 2)));
    assert_eq!(state(&leader_of(&lab)), (2, 1, false, 2, 2));

    // One write each; the leader is not touched.
    let before = leader_of(&lab);
    for (id, held) in [(1, first), (2, second)] {
        let done = release_as(&mut lab, id, held).outcome;
        assert_eq!(done.result, Ok(Released::ByFlag));
        assert_eq!(lab.brief(), [(id + 1, -1)]);
        assert_eq!(block_of(&lab, id), HostBlock { mode: ModeBlock::zeroed(), ..held.block });
    }
    assert_eq!(leader_of(&lab), before);
    held_lver(&acquire_plain(&mut lab), 3);
}

#[track_caller]
fn held_lver(done: &Finished<AcquireOutcome>, lver: u64) {
    assert_eq!(held(done).lver(), lver);
}

#[test]
fn an_exclusive_owner_refuses_a_sharer_at_once() {
    let mut lab = lab(leader(5, owned_by(2, 1)));
    lab.hosts = seen(2, 1, 800, 990, 990);
    assert_eq!(code(&share(&mut lab, 1)), -243);
    assert_eq!(lab.brief().len(), 3, "no retry");
}

/// Host 2, which lives, owns the lease on its way to shared mode.
fn passing(lab: &mut Lab) {
    lab.hosts = seen(2, 1, 800, 990, 990);
    let mut leader = leader(5, owned_by(2, 1));
    leader.flags = (0x10 | FLAG_SHORT_HOLD).into();
    leader.seal();
    put_leader(lab, leader);
}

#[test]
fn an_owner_passing_through_is_tried_again_as_often_as_allowed() {
    let mut lab = free_lab();
    passing(&mut lab);
    let started = lab.now;
    let done = share(&mut lab, 1);
    assert_eq!((code(&done), failure(&done).2), (-246, false));
    assert_eq!(lab.brief().len(), 3 * 9, "one try and eight retries");
    assert!(done.at.secs_since(started) <= 9);

    // It has passed after a second.
    let started = lab.now;
    lab.at(lab.now.plus_millis(1000), |lab| {
        put_leader(lab, leader(5, Owner { timestamp: 0, ..owned_by(2, 1) }))
    });
    held_lver(&share(&mut lab, 1), 6);
    assert!(lab.now.secs_since(started) >= 1);

    // Waiting ends when it is pointless.
    passing(&mut lab);
    let rows: [(Change, i32); 3] = [
        (|lab| lab.client_alive = false, -25),
        (|lab| lab.shutting_down = true, -1),
        (|lab| lab.lockspace = LockspaceNow::Gone, -28),
    ];
    for (change, expected) in rows {
        lab.at(lab.now.plus_millis(40), change);
        let started = lab.now;
        assert_eq!(code(&share(&mut lab, 1)), expected);
        assert!(lab.now.millis_since(started) <= 45 || lab.brief().len() <= 6);
        (lab.client_alive, lab.shutting_down) = (true, false);
    }
}

/// Those who came back at once would be in the owner's way again, and those who came back together in each other's.
#[test]
fn an_owner_passing_through_is_tried_again_after_one_millisecond_to_a_second() {
    let mut lab = free_lab();
    passing(&mut lab);
    let began = lab.now;
    let mut pause = |seed| {
        lab.now = began;
        let options = AcquireOptions { seed, ..AcquireOptions::default() };
        lab.trace.clear();
        lab.run(&mut PaxosShare::new(config(1), options, 1));
        let [.., last, again, _, _] = &lab.trace[..] else { panic!("one retry: {:?}", lab.brief()) };
        again.at.millis_since(last.at.plus_millis(1))
    };
    let pauses: Vec<u64> = (0..4000).map(&mut pause).collect();
    assert_eq!((pauses.iter().min(), pauses.iter().max()), (Some(&1), Some(&1000)));
}

/// Every operation of a shared acquire fails, is lost, or ends late: what is left is nobody's once it was taken back.
#[test]
fn every_failure_of_a_shared_acquire_can_be_taken_back() {
    for n in 0..10 {
        for fate in [Fate::fail(IoFailure::Os(5)), Fate::after(11_000), Fate::lands_unseen(5_000)] {
            let mut lab = free_lab();
            nth_op(&mut lab, n, fate);
            let mut machine = PaxosShare::new(config(1), AcquireOptions::default(), RETRIES);
            let done = lab.run_noisy(&mut machine);
            let (_, code, again) = failure(&done);
            assert!(code < 0, "operation {n}");
            lab.pass(&mut machine, 20);
            lab.no_faults();
            assert_eq!(again, n >= 4, "operation {n}");
            if again {
                retract(&mut lab).outcome.result.unwrap();
            }
            assert!(!mode_of(&lab, 1).0, "operation {n}");
            assert_eq!(leader_of(&lab).timestamp.get(), 0, "operation {n}");
        }
    }
}

/// A shared hold is nothing without its mode block: the leader stays this host's until it is taken back.
#[test]
fn a_short_hold_whose_mode_block_fails_frees_no_leader() {
    let mut lab = free_lab();
    lab.fates(|op| match &op.action {
        Action::Write { content: Content::Block(block), .. } if block.mode.is_shared() => {
            Fate::fail(IoFailure::Os(11))
        }
        _ => Fate::prompt(),
    });
    let (found, _, again) = failure(&share(&mut lab, 1));
    assert_eq!((found, again), (AcquireError::Share(ReleaseError::DblockWrite(IoFailure::Os(11))), true));
    assert!(leader_of(&lab).timestamp.get() != 0 && !mode_of(&lab, 1).0);
    lab.no_faults();
    retract(&mut lab).outcome.result.unwrap();
    assert_eq!(leader_of(&lab).timestamp.get(), 0);
}

/// The host stops after each of its writes. Others are kept out until it is dead, and then get in.
#[test]
fn a_crash_after_each_write_of_a_shared_acquire() {
    for writes_done in 1..=5 {
        let mut lab = free_lab();
        let mut writes = 0;
        lab.fates(move |op: &Op| {
            writes += usize::from(op.is_write());
            if op.is_write() && writes > writes_done { Fate::never() } else { Fate::prompt() }
        });
        lab.run_noisy(&mut PaxosShare::new(config(1), AcquireOptions::default(), 0));
        lab.no_faults();
        let started = lab.now;
        let mut won = None;
        for _ in 0..4 {
            if lab.now.secs_since(started) > 100 {
                lab.hosts = seen(1, 1, 100, 200, 990);
            }
            match acquire_as(&mut lab, config(4), AcquireOptions::default()).outcome {
                AcquireOutcome::Acquired(held) => {
                    won = Some(held);
                    break;
                }
                AcquireOutcome::Failed {
                    error: AcquireError::Shared { .. } | AcquireError::Other(_),
                    ..
                } => {
                    lab.now = lab.now.plus_secs(150);
                }
                AcquireOutcome::Failed { error, .. } => panic!("{error}"),
            }
        }
        assert!(won.is_some(), "after {writes_done} writes");
        assert!(!mode_of(&lab, 1).0, "after {writes_done} writes");
        if writes_done >= 3 {
            assert!(lab.now.secs_since(started) > 140, "not before it is dead");
        }
    }
}

#[test]
fn a_refused_conversion_leaves_the_shared_hold() {
    let mut lab = free_lab();
    let ours = held(&share(&mut lab, 1));
    held(&share(&mut lab, 2));
    all_alive(&mut lab);
    let before = leader_of(&lab);
    let outcome = to_exclusive(&mut lab, 1, ours);
    assert_eq!((convert_code(&outcome), outcome.erase), (-11, false));
    assert!(outcome.held.is_shared());
    assert_eq!(writes(&lab), [2], "our ballot number, with the mode block");
    assert_eq!((block_of(&lab, 1), leader_of(&lab)), (outcome.held.block, before));
    assert!(mode_of(&lab, 1).0);
    release_as(&mut lab, 1, outcome.held).outcome.result.unwrap();
    assert_eq!(mode_of(&lab, 1), (false, true, 3));
}

#[test]
fn the_only_holder_becomes_exclusive_and_shared_again() {
    let mut lab = free_lab();
    let ours = held(&share(&mut lab, 1));
    let up = to_exclusive(&mut lab, 1, ours);
    assert_eq!((convert_code(&up), up.held.is_shared(), up.held.lver()), (0, false, 2));
    assert_eq!(lab.brief(), [(0, 1), (2, 1), (2, -1), (0, 10), (2, -1), (0, 10), (0, -1), (2, -1)]);
    for traced in &lab.trace[..7] {
        if let Some(Content::Block(block)) = traced.written() {
            assert!(block.mode.is_shared(), "the shared hold is never interrupted");
        }
    }
    assert_eq!((mode_of(&lab, 1), state(&leader_of(&lab))), ((false, false, 2), (1, 1, true, 2, 1)));

    let down = to_shared(&mut lab, 1, up.held);
    assert_eq!((convert_code(&down), down.held.is_shared(), down.erase), (0, true, false));
    assert_eq!(lab.brief(), [(2, -1), (0, 1), (2, -1), (0, -1)], "the mode block is on disk before the flag");
    assert_eq!((mode_of(&lab, 1), state(&leader_of(&lab))), ((true, true, 2), (1, 1, false, 2, 1)));
    held(&share(&mut lab, 2));
}

#[test]
fn a_conversion_over_a_dead_holder_clears_it() {
    let mut lab = free_lab();
    let ours = held(&share(&mut lab, 1));
    held(&share(&mut lab, 2));
    put_delta(&mut lab, 2, delta(2, 1, 0));
    let up = to_exclusive(&mut lab, 1, ours);
    assert_eq!(convert_code(&up), 0);
    assert_eq!((mode_of(&lab, 1).0, mode_of(&lab, 2)), (false, (false, true, 2)));
}

/// Every operation of an upgrade meets a failure. The shared hold stands, and the final release leaves nothing behind.
#[test]
fn every_failure_of_an_upgrade_leaves_the_shared_hold() {
    for n in 0..8 {
        for fate in [Fate::fail(IoFailure::Os(5)), Fate::after(11_000), Fate::lands_unseen(5_000)] {
            let mut lab = free_lab();
            let ours = held(&share(&mut lab, 1));
            nth_op(&mut lab, n, fate);
            let mut machine = PaxosConvert::to_exclusive(config(1), AcquireOptions::default(), ours);
            let done = lab.run_noisy(&mut machine);
            let outcome = done.outcome;
            let won = n == 7;
            assert_eq!(outcome.result.is_ok(), won, "operation {n}");
            assert_eq!(outcome.held.is_shared(), !won, "operation {n}");
            lab.pass(&mut machine, 20);
            lab.no_faults();
            if !won {
                assert!(mode_of(&lab, 1).0, "operation {n}: the mode block stays");
                assert!(code(&acquire_as(&mut lab, config(4), nowait())) < 0, "operation {n}");
            }
            let released = if outcome.erase || done.outstanding > 0 {
                retract(&mut lab).outcome.result
            } else {
                release_as(&mut lab, 1, outcome.held).outcome.result
            };
            released.unwrap();
            assert!(!mode_of(&lab, 1).0, "operation {n}");
            assert_eq!(leader_of(&lab).timestamp.get(), 0, "operation {n}");
        }
    }
}

#[test]
fn a_downgrade_whose_mode_block_fails_changes_nothing() {
    let mut lab = free_lab();
    let ours = held(&acquire_plain(&mut lab));
    nth_op(&mut lab, 0, Fate::fail(IoFailure::Os(5)));
    let outcome = to_shared(&mut lab, 1, ours);
    assert_eq!((convert_code(&outcome), outcome.held, outcome.erase), (-5, ours, false));
    assert_eq!(lab.brief(), [(2, -1), (0, 1)], "the leader is not touched");
}

/// Where another host wrote the leader in our name the flag alone frees the lease: a downgrade that fails must not have written it,
/// whether or not its write landed.
#[test]
fn a_downgrade_that_fails_has_given_nothing_up() {
    let lands_with_an_error = Fate { lands_ms: Some(1), ..Fate::fail(IoFailure::Os(5)) };
    for (fate, dies) in [(lands_with_an_error, false), (Fate::lands_unseen(30_000), true)] {
        let mut lab = free_lab();
        let ours = held(&acquire_plain(&mut lab));
        let mut leader = leader_of(&lab);
        leader.write_id = 2.into();
        leader.seal();
        put_leader(&mut lab, leader);
        nth_op(&mut lab, 0, fate);
        if dies {
            lab.after_secs(15, |lab| lab.lockspace = LockspaceNow::Gone);
        }
        let mut machine = PaxosConvert::to_shared(config(1), ours);
        let outcome = lab.run_noisy(&mut machine).outcome;
        assert!(outcome.result.is_err() && !outcome.held.is_shared());
        lab.pass(&mut machine, 60);
        assert_eq!(mode_of(&lab, 1), (true, false, 1), "no flag");
        lab.lockspace = LockspaceNow::Alive { generation: 1 };
        lab.no_faults();
        put_delta(&mut lab, 1, delta(1, 1, 1200));
        assert!(code(&acquire_as(&mut lab, config(4), nowait())) < 0, "the lease is ours alone");
    }
}

/// While the leader names us nobody else can share; taken back, they can, and our hold has not moved.
#[test]
fn what_a_downgrade_left_can_be_erased_under_the_hold() {
    let mut lab = free_lab();
    let ours = held(&acquire_plain(&mut lab));
    nth_op(&mut lab, 3, Fate::fail(IoFailure::Os(5)));
    let down = to_shared(&mut lab, 1, ours);
    assert_eq!((convert_code(&down), down.erase, leader_of(&lab).timestamp.get() != 0), (0, true, true));
    lab.no_faults();
    lab.hosts = seen(1, 1, 800, 990, 990);
    assert_eq!(code(&share(&mut lab, 2)), -243);
    let erased = lab.run_noisy(&mut PaxosConvert::erase(config(1), down.held)).outcome;
    assert_eq!((erased.result, erased.erase, erased.held.is_shared()), (Ok(()), false, true));
    assert_eq!((mode_of(&lab, 1), leader_of(&lab).timestamp.get()), ((true, true, 1), 0));
    held(&share(&mut lab, 2));
    assert!(code(&acquire_as(&mut lab, config(4), nowait())) < 0, "our hold stands");
}

#[test]
fn a_downgrade_whose_flag_fails_is_one_that_still_has_to_erase() {
    let mut lab = free_lab();
    let ours = held(&acquire_plain(&mut lab));
    nth_op(&mut lab, 2, Fate::fail(IoFailure::Os(5)));
    let outcome = to_shared(&mut lab, 1, ours);
    assert_eq!((convert_code(&outcome), outcome.held.is_shared(), outcome.erase), (0, true, true));
    assert_eq!((mode_of(&lab, 1), leader_of(&lab).timestamp.get()), ((true, false, 1), 0));
}

/// The mode block may land at any time: until it has, no answer.
#[test]
fn a_downgrade_waits_for_its_mode_block() {
    let mut lab = free_lab();
    let ours = held(&acquire_plain(&mut lab));
    nth_op(&mut lab, 0, Fate::after(35_000));
    let started = lab.now;
    let outcome = to_shared(&mut lab, 1, ours);
    assert_eq!((convert_code(&outcome), outcome.held.is_shared()), (0, true));
    assert!(lab.now.secs_since(started) >= 35);
    assert_eq!(leader_of(&lab).timestamp.get(), 0);

    // Unless the lockspace dies first, or the client.
    let rows: [Change; 2] = [|lab| lab.lockspace = LockspaceNow::Gone, |lab| lab.client_alive = false];
    for change in rows {
        let mut lab = free_lab();
        let ours = held(&acquire_plain(&mut lab));
        nth_op(&mut lab, 0, Fate::never());
        lab.after_secs(20, change);
        lab.trace.clear();
        let done = lab.run_noisy(&mut PaxosConvert::to_shared(config(1), ours));
        assert_eq!((convert_code(&done.outcome), done.outstanding, done.outcome.held), (-202, 1, ours));
    }
}

/// Once the mode block is there others may share the lease, so the answer is that it is shared.
#[test]
fn a_downgrade_whose_leader_fails_is_shared_all_the_same() {
    let (fails, late) = (Fate::fail(IoFailure::Os(5)), Fate::after(11_000));
    let rows: [(&[usize], Fate, u32); 7] = [
        (&[2], fails, 0),
        (&[3], fails, 0),
        (&[2, 3], fails, 0),
        (&[2], late, 1),
        (&[3], late, 1),
        (&[2, 3], late, 2),
        // The leader could not be read beside the mode block: it is beside the mark, and written after it.
        (&[1, 4], fails, 0),
    ];
    for (which, fate, outstanding) in rows {
        let mut lab = free_lab();
        let ours = held(&acquire_plain(&mut lab));
        let mut ops = 0..;
        lab.fates(
            move |_| if ops.next().is_some_and(|n| which.contains(&n)) { fate } else { Fate::prompt() },
        );
        let mut machine = PaxosConvert::to_shared(config(1), ours);
        let done = lab.run_noisy(&mut machine);
        assert_eq!((convert_code(&done.outcome), done.outcome.held.is_shared()), (0, true), "{which:?}");
        assert_eq!((done.outcome.erase, done.outstanding), (true, outstanding), "{which:?}");
        lab.pass(&mut machine, 20);
        lab.no_faults();
        retract(&mut lab).outcome.result.unwrap();
        assert_eq!((mode_of(&lab, 1).0, leader_of(&lab).timestamp.get()), (false, 0));
    }
}

/// Which of the two writes failed is told apart: the release has done what the other one did.
#[test]
fn the_mark_and_the_free_leader_of_a_downgrade_fail_apart() {
    let failure = IoFailure::Os(5);
    for (n, result, block_failure) in [
        (2, Ok(Released::LeaderFreed), Some(failure)),
        (3, Err(ReleaseError::LeaderWrite(failure)), None),
        (4, Ok(Released::LeaderFreed), None),
    ] {
        let mut lab = free_lab();
        let ours = held(&acquire_plain(&mut lab));
        nth_op(&mut lab, n, Fate::fail(failure));
        let done = lab.run_noisy(&mut PaxosRelease::to_shared(config(1), ours).patiently()).outcome;
        assert_eq!((done.result, done.block_failure), (result, block_failure));
    }
}

/// What was read beside the announcement counts only if both ended in time: the leader is read again beside the mark otherwise.
#[test]
fn a_downgrade_reads_the_leader_again_if_it_was_not_read_beside_the_mode_block() {
    let rows = [(1, Fate::fail(IoFailure::Os(5))), (1, Fate::after(11_000)), (0, Fate::after(35_000))];
    for (n, fate) in rows {
        let mut lab = free_lab();
        let ours = held(&acquire_plain(&mut lab));
        nth_op(&mut lab, n, fate);
        lab.trace.clear();
        let done = lab.run_noisy(&mut PaxosConvert::to_shared(config(1), ours));
        assert_eq!((convert_code(&done.outcome), done.outcome.erase, done.outstanding), (0, false, 0), "{n}");
        assert_eq!(lab.brief(), [(2, -1), (0, 1), (2, -1), (0, 1), (0, -1)], "{n}");
        assert_eq!((mode_of(&lab, 1), leader_of(&lab).timestamp.get()), ((true, true, 1), 0), "{n}");
    }
}

/// A leader that somebody else wrote in our name is left alone, and so is one that is not ours any more.
#[test]
fn a_downgrade_leaves_a_leader_alone_that_is_not_of_its_writing() {
    let rows: [(Change, bool); 2] = [(write_id_2, false), (next_version, true)];
    for (change, erase) in rows {
        let mut lab = free_lab();
        let ours = held(&acquire_plain(&mut lab));
        change(&mut lab);
        let before = leader_of(&lab);
        let outcome = to_shared(&mut lab, 1, ours);
        assert_eq!((convert_code(&outcome), outcome.held.is_shared(), outcome.erase), (0, true, erase));
        assert_eq!(lab.brief(), [(2, -1), (0, 1), (2, -1), (0, 1)]);
        assert_eq!((mode_of(&lab, 1), leader_of(&lab)), ((true, true, 1), before));
    }
}

fn write_id_2(lab: &mut Lab) {
    let mut leader = leader_of(lab);
    leader.write_id = 2.into();
    leader.seal();
    put_leader(lab, leader);
}

fn next_version(lab: &mut Lab) {
    let mut leader = leader_of(lab);
    leader.lver = (leader.lver.get() + 1).into();
    leader.seal();
    put_leader(lab, leader);
}

/// The lockspace dies between the two steps: the hold is shared by its mode block, and nothing else was written.
#[test]
fn a_downgrade_marks_and_frees_nothing_once_its_lockspace_is_gone() {
    let mut lab = free_lab();
    let ours = held(&acquire_plain(&mut lab));
    nth_op(&mut lab, 0, Fate::after(5_000));
    lab.after_secs(3, |lab| lab.lockspace = LockspaceNow::Gone);
    let outcome = to_shared(&mut lab, 1, ours);
    assert_eq!((convert_code(&outcome), outcome.held.is_shared(), outcome.erase), (0, true, true));
    assert_eq!(lab.brief(), [(2, -1), (0, 1)]);
}

#[test]
fn sharing_with_fewer_hosts_than_share_already_hides_none() {
    let mut lab = free_lab();
    held(&share(&mut lab, 5));
    for (asked, expected) in [(4, 8), (9, 9)] {
        let options = AcquireOptions { num_hosts: Some(asked), ..AcquireOptions::default() };
        held(&lab.run_noisy(&mut PaxosShare::new(config(1), options, 0)));
        assert_eq!(leader_of(&lab).num_hosts.get(), expected);
    }
}

/// A version or a number of hosts is asked for by an acquire; a conversion keeps the lease that is held.
#[test]
fn a_conversion_to_exclusive_asks_for_no_version_and_no_number_of_hosts() {
    for num_hosts in [3, 9, 2001] {
        let mut lab = free_lab();
        let ours = held(&share(&mut lab, 1));
        let options =
            AcquireOptions { lver: Some(77), num_hosts: Some(num_hosts), ..AcquireOptions::default() };
        let done = lab.run_noisy(&mut PaxosConvert::to_exclusive(config(1), options, ours)).outcome;
        assert_eq!(convert_code(&done), 0, "{num_hosts}");
        assert_eq!(leader_of(&lab).num_hosts.get(), 8, "{num_hosts}");
    }
}

/// A conversion that fails after it has entered the ballot leaves the host sharing, by its block on the disk and as it is held.
#[test]
fn a_conversion_that_fails_is_still_the_shared_lease() {
    let mut lab = free_lab();
    let ours = held(&share(&mut lab, 1));
    held(&share(&mut lab, 2));
    lab.hosts = seen(2, 1, 800, 990, 990);
    let done = to_exclusive(&mut lab, 1, ours);
    assert_ne!(convert_code(&done), 0);
    assert!(done.held.is_shared() && mode_of(&lab, 1).0);
    assert_eq!(done.held.block, block_of(&lab, 1));
}

#[test]
fn a_leader_committed_by_another_is_left_to_the_flag() {
    let mut lab = free_lab();
    // Host 3 commits our value between our second read and our own commit: the commit is ours all the same, so let host 3's
    // leader land after it.
    before_round(&mut lab, COMMIT + 1, |lab| {
        let mut leader = leader_of(lab);
        leader.write_id = 3.into();
        put_leader(lab, leader);
    });
    let ours = held(&share(&mut lab, 1));
    assert!(ours.is_shared());
    assert_eq!((mode_of(&lab, 1), state(&leader_of(&lab))), ((true, true, 1), (1, 1, true, 1, 3)));
    // Others see the flag: they may share, and are told of us when they want it alone.
    lab.hosts = seen(1, 1, 800, 990, 990);
    held(&share(&mut lab, 2));
    let done = acquire_as(&mut lab, config(4), AcquireOptions::default());
    assert_eq!(code(&done), -11);
}

/// As after a release that its daemon gave up, because the disk was away: this host has it on disk, and no process of it does.
#[test]
fn what_this_host_never_gave_back_it_can_take_again_in_either_mode() {
    for (first, second) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut lab = free_lab();
        let take = |lab: &mut Lab, shared: bool| {
            if shared { held(&share(lab, 1)) } else { held(&acquire_plain(lab)) }
        };
        let lost = take(&mut lab, first);
        let again = take(&mut lab, second);
        assert!(again.lver() > lost.lver(), "{first} {second}");
        assert_eq!(again.is_shared(), second);
        assert_eq!(mode_of(&lab, 1).0, second, "{first} {second}: the earlier mode is not left");
        // Others see this hold, and nothing else once it is given back.
        lab.trace.clear();
        lab.hosts = seen(1, 1, 800, 990, 990);
        let other = share(&mut lab, 2).outcome;
        assert_eq!(matches!(other, AcquireOutcome::Acquired(_)), second, "{first} {second}: {other:?}");
        if let AcquireOutcome::Acquired(theirs) = other {
            release_as(&mut lab, 2, theirs);
        }
        release_as(&mut lab, 1, again);
        let next = lab.run_noisy(&mut PaxosAcquire::new(config(2), AcquireOptions::default())).outcome;
        assert!(matches!(next, AcquireOutcome::Acquired(_)), "{first} {second}: {next:?}");
    }
}
