//! The schedules of lease-algorithms.md 13.7, step by step, on the machines.
//!
//! Each is played twice: by reference peers, which shows that the schedule is the right one (two owners, or no way on), and by our
//! machines, which must not fall for it. A process holds a lease from its acquire's success on.
//!
//! | # | Here |
//! |---|---|
//! | CE1, CE2, CE3, CE8, CE9 | below |
//! | CE6 | below, as far as it is a matter of the host id lease: who vouches for the old processes is the manager's affair |
//! | CE4 | below; the simulator and the model checker find it by themselves too |
//! | CE5 | a matter of the manager: `tests/sabotage.rs` |
//! | CE7 | a matter of sizes: `tests/conformance`, value blocks, on both programs |
//!
//! Two further schedules were found by the simulator: a version chosen anew after its traces were erased, and a leader committed
//! by two hosts, the slower of which rolls it back.

use sanlock_lease::delta::{DeltaAcquire, DeltaConfig};
use sanlock_lease::geometry::Geometry;
use sanlock_lease::machine::{LockspaceNow, Machine};
use sanlock_lease::paxos::acquire::{AcquireOptions, AcquireOutcome};
use sanlock_lease::paxos::{AcquireError, Held, PaxosAcquire, PaxosConfig, PaxosRelease, PaxosShare};
use sanlock_lease::timing::{IoTimeout, WatchdogFire};
use sanlock_sim::layout::{self, host_id};
use sanlock_sim::reference::{ReferenceAcquire, ReferenceRelease, ReferenceShare};
use sanlock_sim::stage::{Actor, Stage};

const A: u64 = 1;
const B: u64 = 2;
const C: u64 = 3;
const LEADER: u64 = 0;

fn config(id: u64, generation: u64) -> PaxosConfig {
    layout::paxos_config(host_id(id), generation, 0, IoTimeout::DEFAULT, WatchdogFire::DEFAULT)
}

fn nowait() -> AcquireOptions {
    AcquireOptions { owner_nowait: true, ..AcquireOptions::default() }
}

fn ours(stage: &Stage, id: u64, generation: u64) -> Actor<PaxosAcquire> {
    stage.enter(PaxosAcquire::new(config(id, generation), nowait()), generation)
}

fn reference(stage: &Stage, id: u64, generation: u64) -> Actor<ReferenceAcquire> {
    stage.enter(ReferenceAcquire::new(config(id, generation), nowait()), generation)
}

fn held(outcome: &AcquireOutcome) -> Option<Held> {
    match outcome {
        AcquireOutcome::Acquired(held) => Some(*held),
        AcquireOutcome::Failed { .. } => None,
    }
}

fn error<M: Machine<Outcome = AcquireOutcome>>(stage: &mut Stage, mut actor: Actor<M>) -> AcquireError {
    match stage.to_end(&mut actor) {
        AcquireOutcome::Failed { error, .. } => *error,
        AcquireOutcome::Acquired(held) => panic!("acquired {held:?}"),
    }
}

fn acquire<M: Machine<Outcome = AcquireOutcome>>(stage: &mut Stage, mut actor: Actor<M>) -> Held {
    let outcome = *stage.to_end(&mut actor);
    held(&outcome).unwrap_or_else(|| panic!("{outcome:?}"))
}

fn release(stage: &mut Stage, id: u64, lease: Held) {
    let mut actor = stage.enter(PaxosRelease::new(config(id, 1), lease), 1);
    assert!(stage.to_end(&mut actor).result.is_ok());
}

fn block_sector(id: u64) -> u64 {
    host_id(id).block_sector()
}

#[test]
fn ce1_reference_a_late_leader_write_and_an_erased_block_make_two_owners() {
    let mut stage = Stage::new(3);
    let mut c = reference(&stage, C, 1);
    stage.up_to_write(&mut c, LEADER, 1);
    let late = stage.time_out(&mut c);
    let mut erase = stage.enter(ReferenceRelease::erase_all(config(C, 1)), 1);
    stage.to_end(&mut erase);
    let actor = reference(&stage, A, 1);
    let a = acquire(&mut stage, actor);
    stage.land(&late);
    let actor = reference(&stage, C, 1);
    let c = acquire(&mut stage, actor);
    assert_eq!((a.lver(), c.lver()), (1, 2), "A still holds, and C does too");
}

#[test]
fn ce1_ours_the_value_stays_and_the_lease_is_taken_back_by_flag() {
    let mut stage = Stage::new(3);
    let mut c = ours(&stage, C, 1);
    stage.up_to_write(&mut c, LEADER, 1);
    let late = stage.time_out(&mut c);
    // R3: -202, one write outstanding: C starts nothing before it has settled.
    assert!(matches!(
        c.done,
        Some((AcquireOutcome::Failed { error: AcquireError::LeaderWrite(_), retract: Some(_), .. }, 1))
    ));
    // Meanwhile A finds C's value, our A as well as a reference's.
    let actor = ours(&stage, A, 1);
    assert!(matches!(error(&mut stage, actor), AcquireError::Other(info) if info.host_id == C));
    let actor = reference(&stage, A, 1);
    assert!(matches!(error(&mut stage, actor), AcquireError::Live(info) if info.host_id == C));
    stage.land(&late);
    stage.completed_late(&mut c, &late);
    let mut retract = stage.enter(PaxosRelease::retract(config(C, 1), Geometry::B512_M1), 1);
    assert!(stage.to_end(&mut retract).result.is_ok());
    let actor = ours(&stage, A, 1);
    let a = acquire(&mut stage, actor);
    assert_eq!(a.lver(), 2);
    // C again: A is alive.
    let actor = ours(&stage, C, 1);
    assert!(matches!(error(&mut stage, actor), AcquireError::Live(info) if info.host_id == A));
}

/// The same with the write landing after A has gone on: A (ours) had committed C's value and read C's flag.
#[test]
fn ce1_ours_the_late_write_rolls_the_leader_back_by_one_version_only() {
    let mut stage = Stage::new(3);
    let mut c = ours(&stage, C, 1);
    stage.up_to_write(&mut c, block_sector(C), 2);
    stage.one(&mut c); // phase 2 is on disk
    // A commits C's value after its time; the write hangs.
    let mut a = ours(&stage, A, 1);
    stage.up_to_write(&mut a, LEADER, 1);
    let late = stage.time_out(&mut a);
    // C's own commit comes through, C releases, B acquires the next version.
    // C's ballot gives way to A's larger number; its next one carries the same value.
    let lease = acquire(&mut stage, c);
    release(&mut stage, C, lease);
    let actor = ours(&stage, B, 1);
    let b = acquire(&mut stage, actor);
    assert_eq!((lease.lver(), b.lver()), (1, 2));
    stage.land(&late);
    assert_eq!(layout::leader_on(&stage.disk, 0, 0).lver.get(), 1, "rolled back under B");
    // Everybody else finds B's value in B's block.
    let actor = ours(&stage, C, 1);
    assert!(matches!(error(&mut stage, actor), AcquireError::Other(info) if info.host_id == B));
    let actor = reference(&stage, C, 1);
    assert!(matches!(error(&mut stage, actor), AcquireError::Live(info) if info.host_id == B));
    // B's release goes by flag, and C can have it.
    release(&mut stage, B, b);
    let actor = ours(&stage, C, 1);
    assert_eq!(acquire(&mut stage, actor).lver(), 3);
}

/// CE2: B copied the value of C's former generation.
fn ce2_stage() -> Stage {
    let mut stage = Stage::new(3);
    let mut c = ours(&stage, C, 1);
    stage.up_to_write(&mut c, block_sector(C), 2);
    stage.one(&mut c);
    let mut b = reference(&stage, B, 1);
    stage.up_to_write(&mut b, LEADER, 1);
    // Both hosts are reset before either leader write lands; C is back with the next generation.
    stage.join(C, 2);
    stage
}

#[test]
fn ce2_reference_an_older_generation_counts_as_success() {
    let mut stage = ce2_stage();
    let actor = reference(&stage, C, 2);
    let c = acquire(&mut stage, actor);
    assert_eq!(c.leader.owner_generation.get(), 1, "success with a generation that is over");
    let actor = reference(&stage, A, 1);
    let a = acquire(&mut stage, actor);
    assert_eq!((c.lver(), a.lver()), (1, 2), "so A takes the lease while C holds it");
}

#[test]
fn ce2_ours_an_older_generation_is_committed_and_the_next_version_taken() {
    let mut stage = ce2_stage();
    let actor = ours(&stage, C, 2);
    let c = acquire(&mut stage, actor);
    assert_eq!((c.lver(), c.leader.owner_generation.get()), (2, 2));
    for actor in [ours(&stage, A, 1), ours(&stage, B, 1)] {
        assert!(matches!(error(&mut stage, actor), AcquireError::Live(info) if info.host_id == C));
    }
    let actor = reference(&stage, A, 1);
    assert!(matches!(error(&mut stage, actor), AcquireError::Live(info) if info.host_id == C));
}

/// CE3: the reference repeats a release while its first leader write still hangs.
fn ce3_stage() -> (Stage, Held) {
    let mut stage = Stage::new(3);
    let actor = reference(&stage, C, 1);
    let c = acquire(&mut stage, actor);
    let mut first = stage.enter(ReferenceRelease::new(config(C, 1), c), 1);
    stage.up_to_write(&mut first, LEADER, 1);
    let late = stage.time_out(&mut first);
    let mut again = stage.enter(ReferenceRelease::new(config(C, 1), c), 1);
    assert!(stage.to_end(&mut again).result.is_ok());
    let actor = ours(&stage, A, 1);
    let second = acquire(&mut stage, actor);
    release(&mut stage, A, second);
    let actor = ours(&stage, A, 1);
    let third = acquire(&mut stage, actor);
    assert_eq!(third.lver(), 3);
    stage.land(&late);
    (stage, third)
}

#[test]
fn ce3_reference_goes_on_for_ever() {
    let (mut stage, _) = ce3_stage();
    let mut b = reference(&stage, B, 1);
    stage.steps(&mut b, 5_000);
    assert!(b.done.is_none());
    assert!(b.written.len() > 500, "ballot after ballot");
}

#[test]
fn ce3_ours_brings_the_version_in_use_back() {
    let (mut stage, third) = ce3_stage();
    let b = ours(&stage, B, 1);
    assert!(matches!(error(&mut stage, b), AcquireError::Other(o) if (o.host_id, o.lver) == (A, 3)));
    let leader = layout::leader_on(&stage.disk, 0, 0);
    assert_eq!((leader.owner_id.get(), leader.lver.get(), leader.write_id.get()), (A, 3, B));
    // A reference peer finds its way out of its ballots with it, too; and A's own release goes by flag.
    let mut peer = reference(&stage, B, 1);
    assert!(matches!(
        stage.to_end(&mut peer),
        AcquireOutcome::Failed { error: AcquireError::Live(o), .. } if o.host_id == A
    ));
    release(&mut stage, A, third);
    assert!(layout::block_on(&stage.disk, 0, 0, host_id(A)).dblock.is_released());
    let actor = reference(&stage, B, 1);
    assert_eq!(acquire(&mut stage, actor).lver(), 4);
}

/// CE3 as far as it is our own doing: we do not repeat a release before its write has settled, and then there is nothing left to do.
#[test]
fn ce3_ours_a_repeated_release_cannot_roll_the_leader_back() {
    let mut stage = Stage::new(3);
    let actor = ours(&stage, C, 1);
    let c = acquire(&mut stage, actor);
    let mut first = stage.enter(PaxosRelease::new(config(C, 1), c), 1);
    stage.up_to_write(&mut first, LEADER, 1);
    let late = stage.time_out(&mut first);
    assert!(matches!(first.done, Some((_, 1))));
    let actor = ours(&stage, A, 1);
    assert!(matches!(error(&mut stage, actor), AcquireError::Live(_)), "C wrote the leader: still C's");
    stage.land(&late);
    let mut again = stage.enter(PaxosRelease::retract(config(C, 1), Geometry::B512_M1), 1);
    assert!(stage.to_end(&mut again).result.is_ok());
    assert!(again.written.is_empty());
}

/// CE4: D (here C) has left, which A's table knows. C comes back under the same name and shares the lease; A has not looked since.
fn ce4_stage() -> (Stage, Held) {
    let mut stage = Stage::new(3);
    stage.leave(C, 1);
    stage.last_look();
    stage.join(C, 2);
    let actor = stage.enter(ReferenceShare::new(config(C, 2), nowait()), 2);
    let shared = acquire(&mut stage, actor);
    assert_eq!(layout::block_on(&stage.disk, 0, 0, host_id(C)).mode, shared.block.mode);
    assert_eq!(layout::leader_on(&stage.disk, 0, 0).timestamp.get(), 0);
    (stage, shared)
}

#[test]
fn ce4_reference_clears_the_mode_block_of_a_living_sharer() {
    let (mut stage, _) = ce4_stage();
    let actor = reference(&stage, A, 1);
    let a = acquire(&mut stage, actor);
    assert_eq!(a.lver(), 2, "A holds the lease alone while C shares it");
    assert!(!layout::block_on(&stage.disk, 0, 0, host_id(C)).mode.is_shared());
}

#[test]
fn ce4_a_peer_that_looks_at_the_host_id_lease_does_not() {
    let (mut stage, shared) = ce4_stage();
    let careful = ReferenceAcquire::new(config(A, 1), nowait()).careful();
    let actor = stage.enter(careful, 1);
    assert!(matches!(error(&mut stage, actor), AcquireError::Shared { host, .. } if host == host_id(C)));
    assert_eq!(layout::block_on(&stage.disk, 0, 0, host_id(C)).mode, shared.block.mode);
}

#[test]
fn ce4_ours_refuses_and_leaves_the_mode_block() {
    let (mut stage, shared) = ce4_stage();
    let mut a = ours(&stage, A, 1);
    let outcome = *stage.to_end(&mut a);
    let refused =
        |e: &AcquireError| matches!(e, AcquireError::Shared { host, generation: 2 } if *host == host_id(C));
    assert!(matches!(&outcome, AcquireOutcome::Failed { error, retract: None, .. } if refused(error)));
    assert_eq!(a.written, [block_sector(A)], "phase 1 alone");
    assert_eq!(layout::block_on(&stage.disk, 0, 0, host_id(C)).mode, shared.block.mode);
    // C leaves for good without a release: the lease is A's, and of C's block only the mode is gone.
    let dblock = layout::block_on(&stage.disk, 0, 0, host_id(C)).dblock;
    stage.leave(C, 2);
    let actor = ours(&stage, A, 1);
    acquire(&mut stage, actor);
    let cleared = layout::block_on(&stage.disk, 0, 0, host_id(C));
    assert!(!cleared.mode.is_shared() && cleared.dblock == dblock);
}

/// The same stage with C and B sharing as ours do: A waits for both.
#[test]
fn ce4_ours_two_sharers_of_which_one_came_back() {
    let (mut stage, _) = ce4_stage();
    let actor = stage.enter(PaxosShare::new(config(B, 1), nowait(), 8), 1);
    acquire(&mut stage, actor);
    let actor = ours(&stage, A, 1);
    assert!(matches!(error(&mut stage, actor), AcquireError::Shared { host, .. } if host == host_id(B)));
    stage.leave(B, 1);
    let actor = ours(&stage, A, 1);
    assert!(matches!(error(&mut stage, actor), AcquireError::Shared { host, .. } if host == host_id(C)));
    assert!(layout::block_on(&stage.disk, 0, 0, host_id(C)).mode.is_shared());
}

/// CE6: the daemon crashed, its processes live; the same host name alone is no reason to skip the long wait.
#[test]
fn ce6_the_same_host_name_alone_does_not_skip_the_long_wait() {
    let config = DeltaConfig {
        lockspace: layout::lockspace(0),
        host: host_id(C),
        host_name: layout::name("machine-3"),
        io_timeout: IoTimeout::DEFAULT,
        fire: WatchdogFire::DEFAULT,
    };
    for (vouched_for, long) in [(None, true), (Some(1), false), (Some(7), true)] {
        let mut stage = Stage::new(3);
        let begin = stage.now;
        let mut join = stage.enter(DeltaAcquire::new(config, vouched_for), 1);
        assert!(stage.to_end(&mut join).is_ok());
        assert_eq!(stage.now.secs_since(begin) > 140, long, "{vouched_for:?}");
    }
}

/// CE8, CE9: what follows the n-th write of an acquire when its lockspace was joined anew, or failed.
fn after_the_nth_write<M: Machine<Outcome = AcquireOutcome>>(
    stage: &mut Stage,
    actor: &mut Actor<M>,
    n: usize,
    lockspace: LockspaceNow,
) -> usize {
    while actor.written.len() < n {
        stage.one(actor);
    }
    actor.lockspace = lockspace;
    stage.to_end(actor);
    actor.written.len() - n
}

#[test]
fn ce8_ce9_reference_goes_on_writing_without_its_host_id() {
    for lockspace in [LockspaceNow::Gone, LockspaceNow::Alive { generation: 2 }] {
        let mut stage = Stage::new(3);
        let mut c = reference(&stage, C, 1);
        assert_eq!(after_the_nth_write(&mut stage, &mut c, 1, lockspace), 2);
        assert!(matches!(c.done, Some((AcquireOutcome::Acquired(_), 0))));
    }
}

#[test]
fn ce8_ce9_ours_writes_nothing_more() {
    for lockspace in [LockspaceNow::Gone, LockspaceNow::Alive { generation: 2 }] {
        for n in 0..=2 {
            let mut stage = Stage::new(3);
            let mut c = ours(&stage, C, 1);
            assert_eq!(after_the_nth_write(&mut stage, &mut c, n, lockspace), 0, "after write {n}");
            let gone = |error: &AcquireError| *error == AcquireError::LockspaceGone;
            assert!(matches!(&c.done, Some((AcquireOutcome::Failed { error, .. }, 0)) if gone(error)));
        }
    }
}

#[test]
fn ce8_ours_a_wait_for_a_dead_owner_ends_with_its_lockspace() {
    let mut stage = Stage::new(3);
    let actor = ours(&stage, A, 1);
    acquire(&mut stage, actor);
    stage.silent_secs = 50;
    let begin = stage.now;
    let mut c = stage.enter(PaxosAcquire::new(config(C, 1), AcquireOptions::default()), 1);
    stage.steps(&mut c, 60);
    assert!(c.done.is_none() && stage.now.secs_since(begin) > 5, "it waits");
    c.lockspace = LockspaceNow::Alive { generation: 2 };
    let outcome = *stage.to_end(&mut c);
    assert!(matches!(outcome, AcquireOutcome::Failed { error: AcquireError::LockspaceGone, .. }));
    assert!(c.written.is_empty());
}

/// Found by the simulator. B looks at the leader (version 0, free) and then is slow. C, a reference peer, acquires version 1,
/// releases it, and erases its block while cleaning up after a failed ballot for version 2. No block tells of version 1 any more.
fn erased_traces() -> (Stage, Actor<PaxosAcquire>) {
    let mut stage = Stage::new(3);
    let mut b = ours(&stage, B, 1);
    stage.up_to_write(&mut b, block_sector(B), 1);
    let actor = reference(&stage, C, 1);
    let lease = acquire(&mut stage, actor);
    let mut free = stage.enter(ReferenceRelease::new(config(C, 1), lease), 1);
    stage.to_end(&mut free);
    let mut failed = reference(&stage, C, 1);
    stage.up_to_write(&mut failed, block_sector(C), 2);
    stage.one(&mut failed);
    let mut erase = stage.enter(ReferenceRelease::erase_all(config(C, 1)), 1);
    stage.to_end(&mut erase);
    (stage, b)
}

#[test]
fn a_version_whose_traces_were_erased_is_not_chosen_anew() {
    let (mut stage, b) = erased_traces();
    assert!(matches!(error(&mut stage, b), AcquireError::Owned(info) if (info.host_id, info.lver) == (C, 1)));
    let actor = ours(&stage, B, 1);
    assert_eq!(acquire(&mut stage, actor).lver(), 2);
}

/// Found by the simulator: a ballot finds C's value while C commits it. Whoever commits it a second time, and slowly, rolls the
/// leader back under all later versions. Ours leaves the commit to C.
#[test]
fn another_hosts_commit_is_not_made_a_second_time() {
    let mut stage = Stage::new(3);
    let mut c = ours(&stage, C, 1);
    stage.up_to_write(&mut c, LEADER, 1); // chosen, about to be committed
    let mut a = ours(&stage, A, 1);
    stage.up_to_write(&mut a, block_sector(A), 1);
    stage.steps(&mut a, 3); // phase 1 is written, the blocks are read
    stage.to_end(&mut c);
    let outcome = *stage.to_end(&mut a);
    let owned = |error: &AcquireError| matches!(error, AcquireError::Owned(info) if info.host_id == C);
    assert!(matches!(&outcome, AcquireOutcome::Failed { error, .. } if owned(error)));
    assert_eq!(a.written, [block_sector(A)]);
}
