//! The schedules in which the original grants one exclusive lease to two hosts (lease-algorithms.md 13.7), replayed on the machines.
//!
//! CE1, CE2 and CE3 are here; CE8 and CE9 (the lockspace changes or fails during an acquire) are in `faults`, CE6 (rejoin over
//! surviving processes) with the delta leases and the rejoin records. CE4, CE5 and CE7 concern shared mode and lock value blocks,
//! which do not exist yet.

use super::*;

const A: u64 = 1;
const B: u64 = 2;
const C: u64 = 3;

fn try_as(lab: &mut Lab, id: u64) -> Finished<AcquireOutcome> {
    acquire_as(lab, config(id), nowait())
}

/// Everybody is seen renewing: the table's timestamp differs from the one on disk.
fn all_alive(lab: &mut Lab) {
    for id in 1..=NUM_HOSTS {
        put_delta(lab, id, delta(id, 1, 950));
    }
}

fn see(lab: &mut Lab, id: u64) {
    lab.hosts = seen(id, 1, 800, 990, 995);
}

/// C's leader write hangs, A acquires, C's write lands late. With the value kept in C's block and the lease given up by flag, at no
/// time do two hosts hold the lease.
#[test]
fn ce1_a_late_leader_write_makes_nobody_owner_a_second_time() {
    let mut lab = free_lab();
    all_alive(&mut lab);
    nth_write(&mut lab, 2, Fate::never());
    let c = try_as(&mut lab, C);
    assert_eq!((code(&c), c.outstanding), (-202, 1), "outstanding, so C starts nothing new");
    let late_leader = {
        let mut leader =
            leader(1, Owner { id: C, generation: 1, timestamp: fields(&block_of(&lab, C))[4], writer: C });
        leader.seal();
        leader
    };
    lab.fates(|_| Fate::prompt());

    // A finds C's value in C's block, and commits it: A owns nothing.
    assert_eq!(code(&try_as(&mut lab, A)), -245);
    assert_eq!(state(&leader_of(&lab)), (C, 1, true, 1, A));
    see(&mut lab, C);
    assert_eq!(code(&try_as(&mut lab, A)), -243, "C lives and has not given it up");

    // C's write lands after all; now C may settle: it takes back what it cannot know to be its own.
    put_leader(&mut lab, late_leader);
    let c = lab.run(&mut PaxosRelease::retract(config(C), Geometry::B512_M1));
    assert_eq!(c.outcome.result, Ok(crate::paxos::release::Released::LeaderFreed));
    assert_eq!(held(&try_as(&mut lab, A)).lver(), 2);
    see(&mut lab, A);
    assert_eq!(code(&try_as(&mut lab, B)), -243);
    assert_eq!(code(&try_as(&mut lab, C)), -243);
}

/// C is another instance (generation 2) when it meets a copied value of its former life: that is no success.
#[test]
fn ce2_a_value_of_an_earlier_generation_is_no_success() {
    let mut lab = free_lab();
    // B copied C's value of generation 1 in a ballot for version 1.
    put_block(&mut lab, B, block([B, B, C, 1, 700, 1]));
    put_delta(&mut lab, C, delta(C, 2, 950));
    let c = acquire_as(&mut lab, PaxosConfig { generation: 2, ..config(C) }, nowait());
    let lease = held(&c);
    assert_eq!(
        (lease.lver(), lease.leader.owner_generation.get()),
        (2, 2),
        "version 1 belongs to the former life"
    );
    assert_eq!(state(&leader_of(&lab)), (C, 2, true, 2, C));
    see(&mut lab, C);
    lab.hosts = seen(C, 2, 800, 990, 995);
    put_delta(&mut lab, C, delta(C, 2, 960));
    assert_eq!(code(&try_as(&mut lab, A)), -243, "and the others see a living owner");
}

/// A free leader of version 1 lands over version 3, which A holds: the next acquire brings version 3 back, and A keeps it until it
/// lets go.
#[test]
fn ce3_a_leader_rolled_back_under_its_owner_is_repaired() {
    let mut lab = free_lab();
    all_alive(&mut lab);
    for _ in 0..2 {
        let lease = held(&try_as(&mut lab, A));
        assert!(release_as(&mut lab, A, lease));
    }
    let lease = held(&try_as(&mut lab, A));
    assert_eq!(lease.lver(), 3);
    put_leader(&mut lab, leader(1, Owner { id: C, generation: 1, timestamp: 0, writer: C }));
    assert_eq!(code(&try_as(&mut lab, B)), -245);
    assert_eq!(state(&leader_of(&lab)), (A, 1, true, 3, B));
    see(&mut lab, A);
    assert_eq!(code(&try_as(&mut lab, B)), -243, "A lives and has not let go");
    assert!(release_as(&mut lab, A, lease), "by flag");
    assert_eq!(held(&try_as(&mut lab, C)).lver(), 4);
}

fn release_as(lab: &mut Lab, id: u64, lease: Held) -> bool {
    lab.lockspace = LockspaceNow::Alive { generation: 1 };
    lab.run(&mut PaxosRelease::new(config(id), lease)).outcome.result.is_ok()
}
