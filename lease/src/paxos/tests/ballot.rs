//! The ballot: numbers, adopted values, commits by others, rules R1 and R4, bounds.

use super::*;
use crate::limits::{BACKOFF_MIN_MS, BALLOTS_MAX};

#[test]
fn a_larger_ballot_number_in_phase_1_is_jumped_over() {
    let mut lab = free_lab();
    put_block(&mut lab, 2, block([8002, 0, 0, 0, 0, 1]));
    let held = held(&acquire_plain(&mut lab));
    assert_eq!((held.lver(), held.block.dblock.mbal.get()), (1, 10_001));
    // Lost ballot: block, blocks; then the leader again, and the ballot that wins.
    assert_eq!(
        lab.brief(),
        [(0, 1), (2, 1), (2, -1), (0, 10), (0, 1), (2, -1), (0, 10), (2, -1), (0, 10), (0, -1)]
    );
}

#[test]
fn a_larger_ballot_number_in_phase_2_aborts_too() {
    let mut lab = free_lab();
    before_round(&mut lab, READ_2, |lab| put_block(lab, 3, block([4003, 0, 0, 0, 0, 1])));
    let held = held(&acquire_plain(&mut lab));
    assert_eq!((held.lver(), held.block.dblock.mbal.get()), (1, 6001));
    // It won with the value of its first ballot, found in its own block.
    assert_eq!(fields(&held.block), [6001, 6001, US, 1, 1000, 1]);
}

#[test]
fn ballot_numbers_are_congruent_to_the_host_id() {
    for (id, seen, expected) in [(1, 1999, 2001), (7, 2000, 4007), (8, 4001, 6008), (3, 4003, 6003)] {
        let mut lab = free_lab();
        put_block(&mut lab, 6, block([seen, 0, 0, 0, 0, 1]));
        let done = acquire_as(&mut lab, config(id), AcquireOptions::default());
        let mbal = held(&done).block.dblock.mbal.get();
        assert_eq!((mbal, mbal % 2000), (expected, id));
    }
}

#[test]
fn numbers_and_values_of_older_versions_do_not_matter() {
    let mut lab = lab(leader(4, NOBODY));
    put_block(&mut lab, 2, block([90_002, 90_002, 2, 1, 7, 4]));
    let held = held(&acquire_plain(&mut lab));
    assert_eq!(fields(&held.block), [1, 1, US, 1, 1000, 5]);
}

#[test]
fn blocks_beyond_num_hosts_are_not_looked_at() {
    let mut lab = free_lab();
    put_block(&mut lab, 9, block([8009, 8009, 9, 1, 5, 1]));
    held(&acquire_plain(&mut lab));
}

#[test]
fn a_block_without_a_ballot_or_without_a_host_is_no_value() {
    let mut lab = free_lab();
    put_block(&mut lab, 2, block([2, 0, 2, 1, 5, 1]));
    put_block(&mut lab, 3, block([3, 3, 0, 1, 5, 1]));
    assert_eq!(held(&acquire_plain(&mut lab)).leader.owner_id.get(), US);
}

#[test]
fn another_hosts_value_is_committed_in_its_name() {
    let mut lab = free_lab();
    put_block(&mut lab, 2, block([2, 2, 2, 1, 777, 1]));
    put_block(&mut lab, 3, block([2003, 0, 0, 0, 0, 1]));
    let done = acquire_plain(&mut lab);
    let (error, code, retract) = failure(&done);
    assert_eq!((code, retract), (-245, false));
    assert!(matches!(error, AcquireError::Other(info) if (info.host_id, info.lver) == (2, 1)));
    let now = leader_of(&lab);
    assert_eq!(state(&now), (2, 1, true, 1, US));
    assert_eq!((now.timestamp.get(), now.write_generation.get()), (777, 1));
    assert_eq!(fields(&block_of(&lab, US)), [4001, 4001, 2, 1, 777, 1]);
}

/// Its owner may have entered shared mode by the time the commit lands: beyond a smaller number its mode block would be seen by
/// nobody.
#[test]
fn another_hosts_value_keeps_the_number_of_hosts() {
    let mut lab = free_lab();
    let before = leader_of(&lab).num_hosts.get();
    put_block(&mut lab, 2, block([2, 2, 2, 1, 777, 1]));
    let done = acquire(&mut lab, AcquireOptions { num_hosts: Some(3), ..AcquireOptions::default() });
    assert!(matches!(failure(&done).0, AcquireError::Other(_)));
    let now = leader_of(&lab);
    assert_eq!((state(&now), now.num_hosts.get()), ((2, 1, true, 1, US), before));
}

#[test]
fn the_value_of_the_highest_ballot_is_adopted() {
    let mut lab = free_lab();
    put_block(&mut lab, 2, block([4002, 2, 2, 1, 777, 1]));
    put_block(&mut lab, 3, block([2003, 2003, 4, 6, 888, 1]));
    let done = acquire_plain(&mut lab);
    assert!(
        matches!(failure(&done).0, AcquireError::Other(info) if info.host_id == 4 && info.generation == 6)
    );
}

/// The leader may have been rolled back to an older, smaller number of hosts: nobody adopts a value before all blocks were looked at.
#[test]
fn a_value_accepted_later_by_a_host_beyond_num_hosts_is_the_one_that_is_adopted() {
    let mut lab = free_lab();
    put_block(&mut lab, 2, block([2, 2, 2, 1, 777, 1]));
    put_block(&mut lab, 12, block([2012, 2012, 5, 6, 888, 1]));
    let done = acquire_plain(&mut lab);
    assert!(matches!(failure(&done).0, AcquireError::Other(o) if (o.host_id, o.generation) == (5, 6)));
    assert_eq!(
        lab.brief().iter().filter(|brief| **brief == (0, 2002)).count(),
        3,
        "looked at, then a ballot that looks at all"
    );
}

/// The same where our own number is larger than the hidden one: then nothing but the second look keeps us from another value.
#[test]
fn a_hidden_value_is_found_whose_ballot_ours_does_not_lose_to() {
    let mut lab = free_lab();
    put_block(&mut lab, US, block([4001, 0, 0, 0, 0, 1]));
    put_block(&mut lab, 2, block([2, 2, 2, 1, 777, 1]));
    put_block(&mut lab, 12, block([2012, 2012, 5, 6, 888, 1]));
    let done = acquire_plain(&mut lab);
    assert!(matches!(failure(&done).0, AcquireError::Other(o) if (o.host_id, o.generation) == (5, 6)));
    assert_eq!(fields(&block_of(&lab, US)), [6001, 6001, 5, 6, 888, 1]);
}

/// Only a value that names this very life of ours can make us the owner later.
#[test]
fn a_value_of_another_host_or_of_a_former_life_leaves_nothing_to_be_taken_back() {
    for (value, expected) in
        [([2, 2, 2, 1, 777, 1], false), ([2, 2, US, 3, 777, 1], false), ([2, 2, US, 1, 777, 1], true)]
    {
        let mut lab = free_lab();
        put_block(&mut lab, US, block([4001, 0, 0, 0, 0, 1]));
        put_block(&mut lab, 2, block(value));
        nth_write(&mut lab, 1, Fate::fail(IoFailure::Os(5)));
        let (_, code, retract) = failure(&acquire_plain(&mut lab));
        assert_eq!((code, retract), (-211, expected), "{value:?}");
    }
}

#[test]
fn where_all_blocks_are_looked_at_anyway_adopting_reads_nothing_more() {
    let mut record = leader(0, NOBODY);
    record.num_hosts = 2000.into();
    record.seal();
    let mut lab = lab(record);
    put_block(&mut lab, US, block([1, 0, 0, 0, 0, 1]));
    put_block(&mut lab, 2, block([2, 2, 2, 1, 777, 1]));
    acquire_plain(&mut lab);
    // One look in each phase.
    assert_eq!(lab.brief().iter().filter(|brief| **brief == (0, 2002)).count(), 2);
}

#[test]
fn the_largest_host_of_the_area_may_be_committed() {
    for (id, refused) in [(2000, false), (2001, true)] {
        let mut lab = free_lab();
        put_block(&mut lab, 2, block([2, 2, id, 1, 777, 1]));
        let error = failure(&acquire_plain(&mut lab)).0;
        assert_eq!(matches!(error, AcquireError::Leader(_)), refused, "{error}");
        assert_eq!(leader_of(&lab).owner_id.get(), if refused { 0 } else { id });
    }
}

#[test]
fn short_hold_stays_with_another_hosts_value_and_goes_with_ours() {
    let mut record = leader(0, NOBODY);
    record.flags = 0x11.into();
    record.seal();
    let mut lab1 = lab(record);
    held(&acquire_plain(&mut lab1));
    assert_eq!(leader_of(&lab1).flags.get(), 0x10);
    let mut lab2 = lab(record);
    put_block(&mut lab2, 2, block([2, 2, 2, 1, 777, 1]));
    put_block(&mut lab2, US, block([1, 0, 0, 0, 0, 1]));
    assert!(matches!(failure(&acquire_plain(&mut lab2)).0, AcquireError::Other(info) if info.short_hold));
    assert_eq!(leader_of(&lab2).flags.get(), 0x11);
}

/// Our ballot is aborted after phase 2; meanwhile another host adopts our value and commits it: success, without a write.
#[test]
fn our_value_committed_by_another_host_is_success() {
    let mut lab = free_lab();
    before_round(&mut lab, READ_2, |lab| {
        put_block(lab, 3, block([2003, 2003, US, 1, 1000, 1]));
        let ours = Owner { id: US, generation: 1, timestamp: 1000, writer: 3 };
        put_leader(lab, leader(1, ours));
    });
    let done = acquire_plain(&mut lab);
    let held = held(&done);
    assert_eq!(state(&held.leader), (US, 1, true, 1, 3));
    assert_eq!(lab.brief().last(), Some(&(0, 10)), "no write after the leader was read");
    // What is remembered for the release is the block as it lies on disk.
    assert_eq!(held.block, block_of(&lab, US));

    let done = release(&mut lab, held);
    assert_eq!(done.outcome.result, Ok(Released::ByFlag));
    assert_eq!(lab.brief(), [(2, -1), (0, 1)], "another host wrote the leader: the flag is the release");
    assert!(block_of(&lab, US).dblock.is_released());
}

#[test]
fn a_version_won_by_another_host_is_lost_even_if_already_free_again() {
    for timestamp in [600, 0] {
        let mut lab = free_lab();
        before_round(&mut lab, READ_1, |lab| put_block(lab, 3, block([2003, 0, 0, 0, 0, 1])));
        before_round(&mut lab, READ_1 + 1, move |lab| {
            put_leader(lab, leader(1, Owner { timestamp, ..owned_by(3, 1) }));
        });
        let done = acquire_plain(&mut lab);
        assert_eq!((code(&done), failure(&done).2), (-244, false));
    }
}

/// The leader is read along with the blocks: a version that is decided is not written again, however the blocks look by now.
/// The original erases its block when it cleans up, so nothing else may tell.
#[test]
fn a_leader_that_reached_our_version_during_the_ballot_decides() {
    for (round, written) in [(READ_1, 1), (READ_2, 2)] {
        for timestamp in [600, 0] {
            let mut lab = free_lab();
            before_round(&mut lab, round, move |lab| {
                put_leader(lab, leader(1, Owner { timestamp, ..owned_by(3, 1) }));
            });
            let done = acquire_plain(&mut lab);
            assert_eq!((code(&done), failure(&done).2, writes(&lab).len()), (-244, false, written));
            assert_eq!(leader_of(&lab).owner_id.get(), 3);
        }
        let mut lab = free_lab();
        before_round(&mut lab, round, |lab| {
            put_leader(lab, leader(2, Owner { timestamp: 0, ..owned_by(3, 1) }));
        });
        assert_eq!(held(&acquire_plain(&mut lab)).lver(), 3);
    }
}

#[test]
fn a_leader_destroyed_during_the_ballot_stops_it() {
    for round in [READ_1, READ_2] {
        let mut lab = free_lab();
        before_round(&mut lab, round, |lab| {
            let mut record = leader(0, NOBODY);
            record.magic = 0x1128_2016.into();
            put_leader(lab, record);
        });
        assert_eq!(code(&acquire_plain(&mut lab)), -223);
        assert!(!writes(&lab).contains(&0));
    }
}

#[test]
fn a_version_further_on_starts_the_acquire_again() {
    let mut lab = free_lab();
    before_round(&mut lab, READ_1, |lab| put_block(lab, 3, block([2003, 0, 0, 0, 0, 1])));
    before_round(&mut lab, READ_1 + 1, |lab| {
        put_leader(lab, leader(2, Owner { timestamp: 0, ..owned_by(3, 1) }));
        put_block(lab, 3, released(block([4003, 4003, 3, 1, 990, 2])));
    });
    assert_eq!(held(&acquire_plain(&mut lab)).lver(), 3);
}

/// R1: a retry carries the value of the ballot before; only `mbal` changes in phase 1.
#[test]
fn a_retry_keeps_the_value_in_phase_1() {
    let mut lab = free_lab();
    before_round(&mut lab, READ_2, |lab| put_block(lab, 3, block([4003, 0, 0, 0, 0, 1])));
    acquire_plain(&mut lab);
    let blocks: Vec<_> = lab
        .trace
        .iter()
        .filter_map(|t| t.written())
        .filter_map(|c| if let Content::Block(b) = c { Some(fields(&b)) } else { None })
        .collect();
    assert_eq!(
        blocks,
        [[1, 0, 0, 0, 0, 1], [1, 1, US, 1, 1000, 1], [6001, 1, US, 1, 1000, 1], [6001, 6001, US, 1, 1000, 1]]
    );
}

/// R1 across attempts: the value of an attempt given up by flag is read back and kept, with its flag. It is committed, but it
/// is not this attempt's success: other hosts may have seen the flag and gone on.
#[test]
fn a_value_given_up_by_flag_is_kept_and_not_taken_for_success() {
    let mut lab = free_lab();
    let old = released(block([2001, 2001, US, 1, 950, 1]));
    put_block(&mut lab, US, old);
    let done = acquire_plain(&mut lab);
    assert_eq!(held(&done).lver(), 2);
    let written: Vec<_> = lab.trace.iter().filter_map(|t| t.written()).collect();
    assert_eq!(written[0], Content::Block(released(block([4001, 2001, US, 1, 950, 1]))));
    assert_eq!(written[1], Content::Block(released(block([4001, 4001, US, 1, 950, 1]))));
    let Content::Leader(first) = written[2] else { panic!() };
    assert_eq!((state(&first), first.timestamp.get()), ((US, 1, true, 1, US), 950));
    assert_eq!(written[3], Content::Block(released(block([6001, 0, 0, 0, 0, 2]))));
    assert_eq!(written[4], Content::Block(block([6001, 6001, US, 1, 1000, 2])));
    assert_eq!(state(&leader_of(&lab)), (US, 1, true, 2, US));
}

/// R4, CE2: the ballot chooses us, but an older generation. It is committed, then the next version is tried.
#[test]
fn an_older_generation_of_ours_is_not_success() {
    let mut lab = free_lab();
    put_block(&mut lab, 2, block([2002, 2002, US, 1, 950, 1]));
    let done = acquire_as(&mut lab, PaxosConfig { generation: 2, ..config(US) }, AcquireOptions::default());
    let held = held(&done);
    assert_eq!((held.lver(), held.leader.owner_generation.get()), (2, 2));
    let leaders: Vec<_> = lab
        .trace
        .iter()
        .filter_map(|t| t.written())
        .filter_map(|c| if let Content::Leader(l) = c { Some(state(&l)) } else { None })
        .collect();
    assert_eq!(leaders, [(US, 1, true, 1, US), (US, 2, true, 2, US)]);
}

/// An older value of ours that another host has committed meanwhile.
#[test]
fn an_older_value_of_ours_committed_by_another_host_is_not_success_either() {
    let mut lab = free_lab();
    put_block(&mut lab, US, released(block([1, 1, US, 1, 950, 1])));
    put_block(&mut lab, 3, block([2003, 0, 0, 0, 0, 1]));
    before_round(&mut lab, READ_1 + 1, |lab| {
        put_block(lab, 3, block([4003, 4003, US, 1, 950, 1]));
        let old = Owner { id: US, generation: 1, timestamp: 950, writer: 3 };
        put_leader(lab, leader(1, old));
    });
    let held = held(&acquire_plain(&mut lab));
    assert_eq!((held.lver(), held.leader.timestamp.get()), (2, 1000));
}

#[test]
fn a_damaged_block_met_in_a_ballot_stops_it() {
    for (round, expect_retract) in [(READ_1, false), (READ_2, true)] {
        let mut lab = free_lab();
        before_round(&mut lab, round, |lab| {
            let mut damaged = block([2, 2, 2, 1, 5, 1]);
            damaged.dblock.inp2 = 2.into();
            put_block(lab, 2, damaged);
        });
        let done = acquire_plain(&mut lab);
        let (error, code, retract) = failure(&done);
        assert!(matches!(error, AcquireError::Dblock(e) if e.host == host(2)));
        assert_eq!((code, retract), (-214, expect_retract));
        assert!(!writes(&lab).contains(&0));
    }
}

/// A value that names a host that cannot exist would make the leader unreadable for everybody once committed.
#[test]
fn a_value_that_names_no_possible_host_is_bad_contents() {
    for inp in [2001, u64::MAX] {
        let mut lab = free_lab();
        put_block(&mut lab, 2, block([2, 2, inp, 1, 5, 1]));
        let done = acquire_plain(&mut lab);
        assert_eq!((code(&done), failure(&done).2), (-229, false), "{inp}");
        assert!(!writes(&lab).contains(&0));
    }
}

#[test]
fn exhausted_ballot_numbers_are_an_error_not_an_overflow() {
    let mut lab = free_lab();
    put_block(&mut lab, 2, block([u64::MAX - 5, 0, 0, 0, 0, 1]));
    assert_eq!(code(&acquire_plain(&mut lab)), -213);
}

#[test]
fn a_shared_holder_refuses_the_acquire() {
    let mut lab = free_lab();
    let mut shared = released(block([2, 2, 2, 1, 5, 0]));
    shared.mode.flags = MODE_SHARED.into();
    shared.mode.generation = 4.into();
    put_block(&mut lab, 2, shared);
    all_alive(&mut lab);
    let done = acquire_plain(&mut lab);
    assert_eq!(failure(&done), (AcquireError::Shared { host: host(2), generation: 4 }, -11, false));
    assert!(!writes(&lab).contains(&0));
}

/// Somebody always has a larger number: 64 ballots, then the last code.
#[test]
fn lost_ballots_are_bounded() {
    let mut lab = free_lab();
    // During each of our writes host 2 raises its number above anything we could have written.
    for k in 0..700 {
        let mbal = (k + 2) * 2_000_000 + 2;
        lab.at(lab.now.plus_millis(100 * k), move |lab| put_block(lab, 2, block([mbal, 0, 0, 0, 0, 1])));
    }
    lab.fates(|op| if op.is_write() { Fate::after(250) } else { Fate::prompt() });
    let done = acquire_plain(&mut lab);
    assert_eq!((code(&done), failure(&done).2), (-213, false));
    let ballots = writes(&lab).len();
    assert_eq!(ballots, usize::try_from(BALLOTS_MAX).unwrap());
    assert!(writes(&lab).iter().all(|sector| *sector == 2));
}

/// Slow storage: twice the dead time since the first ballot, then the last code.
#[test]
fn lost_ballots_are_bounded_in_time_too() {
    let mut lab = free_lab();
    for k in 0..200 {
        let mbal = (k + 2) * 2_000_000 + 2;
        lab.at(lab.now.plus_secs(4 * k), move |lab| put_block(lab, 2, block([mbal, 0, 0, 0, 0, 1])));
    }
    lab.fates(|op| if op.is_write() { Fate::after(9_500) } else { Fate::prompt() });
    let started = lab.now;
    let done = acquire_plain(&mut lab);
    assert_eq!(code(&done), -213);
    let secs = done.at.secs_since(started);
    assert!((280..=300).contains(&secs), "{secs}");
}

/// A process that stood still after a lost ballot goes on, or gives up because its time is over.
#[test]
fn another_ballot_may_begin_until_twice_the_dead_time_is_over() {
    for (secs, begins) in [(280, true), (281, false)] {
        let mut lab = free_lab();
        put_block(&mut lab, 2, block([8002, 0, 0, 0, 0, 1]));
        before_round(&mut lab, READ_1 + 1, move |lab| lab.now = lab.now.plus_secs(secs));
        let done = acquire_plain(&mut lab);
        if begins {
            assert_eq!(held(&done).lver(), 1);
        } else {
            assert_eq!(code(&done), -213);
            assert_eq!(writes(&lab), [2], "that of the ballot that was lost");
        }
    }
}

#[test]
fn the_delay_after_a_lost_ballot_suits_the_storage() {
    let mut delays = Vec::new();
    for seed in 0..50 {
        let mut lab = free_lab();
        put_block(&mut lab, 2, block([8002, 0, 0, 0, 0, 1]));
        let done = acquire(&mut lab, AcquireOptions { seed, ..AcquireOptions::default() });
        held(&done);
        // First read 1 ms, lost ballot 2 ms, leader 1 ms, ballot and commit 5 ms.
        delays.push(done.at.millis_since(MonoTime::from_secs(1000)) - 9);
    }
    // Where ballots take next to no time, whoever won is given some: hosts of the original need it. And those that lost to each other
    // are spread over four times as much.
    let (least, most) = (delays.iter().min(), delays.iter().max());
    assert_eq!((least, most), (Some(&BACKOFF_MIN_MS), Some(&(5 * BACKOFF_MIN_MS - 1))), "{delays:?}");
}

#[test]
fn a_machine_is_a_value() {
    let run = || {
        let mut lab = free_lab();
        put_block(&mut lab, 2, block([8002, 0, 0, 0, 0, 1]));
        let mut machine =
            PaxosAcquire::new(config(US), AcquireOptions { seed: 3, ..AcquireOptions::default() });
        let done = lab.run(&mut machine);
        (machine, done, lab.trace)
    };
    assert_eq!(run(), run());
}
