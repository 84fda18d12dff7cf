//! Rule R9: a leader that was rolled back under the blocks.

use super::*;
use crate::limits::BALLOTS_MAX;

const RELEASED_BY_3: Owner = Owner { id: 3, generation: 1, timestamp: 0, writer: 3 };
/// As [`Lab::brief`] shows a read of the leader and all blocks of the area.
const ALL: (u64, i64) = (0, 2002);

/// Leader of version 1, given up by host 3.
fn rolled_back() -> Lab {
    lab(leader(1, RELEASED_BY_3))
}

fn leaders_written(lab: &Lab) -> Vec<(u64, u64, bool, u64, u64)> {
    let written = lab.trace.iter().filter_map(|t| t.written());
    written.filter_map(|c| if let Content::Leader(l) = c { Some(state(&l)) } else { None }).collect()
}

/// The value accepted for the version that is ahead is committed again; its owner is then examined as usual.
#[test]
fn the_owner_of_the_version_ahead_is_committed_again() {
    let mut lab = rolled_back();
    put_block(&mut lab, 2, block([4002, 4002, 2, 1, 700, 3]));
    let done = acquire_plain(&mut lab);
    assert!(matches!(failure(&done).0, AcquireError::Other(o) if (o.host_id, o.lver) == (2, 3)));
    assert_eq!((code(&done), failure(&done).2), (-245, false));
    assert_eq!(state(&leader_of(&lab)), (2, 1, true, 3, US));
    // Phase 1 for version 2; leader, everything once more; the ballot for version 3, whose number beats host 2's at once.
    let ours = (2, -1);
    assert_eq!(lab.brief(), [(0, 1), (2, 1), ours, (0, 10), (0, 1), ALL, ours, ALL, ours, ALL, (0, -1)]);
    put_delta(&mut lab, 2, delta(2, 1, 950));
    lab.hosts = seen(2, 1, 800, 990, 995);
    assert_eq!(code(&acquire(&mut lab, nowait())), -243, "it holds the lease");
    put_block(&mut lab, 2, released(block([4002, 4002, 2, 1, 700, 3])));
    assert_eq!(held(&acquire(&mut lab, nowait())).lver(), 4, "and has given it up by flag");
}

/// Nobody has got further than phase 1 for that version: it is ours as well as anybody's.
#[test]
fn a_version_ahead_without_a_value_is_proposed_for() {
    let mut lab = rolled_back();
    put_block(&mut lab, 2, block([4002, 0, 0, 0, 0, 3]));
    let held = held(&acquire_plain(&mut lab));
    assert_eq!((held.lver(), held.block.dblock.mbal.get()), (3, 6001));
    assert_eq!(state(&leader_of(&lab)), (US, 1, true, 3, US));
}

#[test]
fn our_own_block_ahead_of_the_leader_does_not_go_back() {
    let mut lab = rolled_back();
    let ours = released(block([4001, 4001, US, 1, 700, 3]));
    put_block(&mut lab, US, ours);
    let held = held(&acquire_plain(&mut lab));
    assert_eq!(held.lver(), 4, "version 3 is committed as what it was, and is followed by another");
    assert_eq!(leaders_written(&lab), [(US, 1, true, 3, US), (US, 1, true, 4, US)]);
    let versions: Vec<u64> = lab
        .trace
        .iter()
        .filter_map(|t| t.written())
        .filter_map(|c| if let Content::Block(b) = c { Some(fields(&b)[5]) } else { None })
        .collect();
    assert_eq!(versions, [3, 3, 4, 4]);
}

/// An owner that the stale leader names comes first, as always.
#[test]
fn the_owner_in_the_stale_leader_is_examined_before_our_own_block_counts() {
    let mut lab = lab(leader(1, owned_by(3, 1)));
    put_block(&mut lab, US, released(block([4001, 4001, US, 1, 700, 3])));
    put_delta(&mut lab, 3, delta(3, 1, 950));
    lab.hosts = seen(3, 1, 800, 990, 995);
    assert_eq!(code(&acquire(&mut lab, nowait())), -243);
    assert!(writes(&lab).is_empty());
}

#[test]
fn the_block_furthest_ahead_decides_the_version() {
    let mut lab = rolled_back();
    put_block(&mut lab, 2, released(block([4002, 4002, 2, 1, 700, 4])));
    put_block(&mut lab, 3, block([4003, 0, 0, 0, 0, 6]));
    put_block(&mut lab, 4, released(block([4004, 4004, 4, 1, 700, 5])));
    assert_eq!(held(&acquire_plain(&mut lab)).lver(), 6);
}

/// Host 3 names itself at version 3, host 4 has begun version 4.
pub(super) fn passed_over() -> Lab {
    let mut lab = rolled_back();
    put_block(&mut lab, 3, block([4003, 4003, 3, 1, 700, 3]));
    put_block(&mut lab, 4, block([6004, 0, 0, 0, 0, 4]));
    all_alive(&mut lab);
    lab
}

/// A living host that names itself in between, without a mark, may own that version: somebody has passed it over, as 5.1.1 does.
#[test]
fn a_living_host_that_may_own_a_version_in_between_stops_the_acquire() {
    let mut lab = passed_over();
    let done = acquire_plain(&mut lab);
    let (error, code, retract) = failure(&done);
    assert_eq!(error, AcquireError::Newer { host: host(3), generation: 1, lver: 3, ahead: 4, leader: 1 });
    assert_eq!((code, retract), (-212, false));
    assert_eq!(writes(&lab), [2], "phase 1 for version 2, before the blocks were seen");
    assert_eq!(leader_of(&lab).lver.get(), 1);
    assert!(error.to_string().contains("host id 3 generation 1"), "{error}");
}

/// Released, restarted, left, or silent for longer than the dead time: nobody is in the way.
#[test]
fn hosts_in_between_that_are_gone_stop_nobody() {
    let gone: [(&str, Change); 5] = [
        ("marked", |lab| put_block(lab, 3, released(block([4003, 4003, 3, 1, 700, 3])))),
        ("left", |lab| put_delta(lab, 3, delta(3, 1, 0))),
        ("restarted", |lab| put_delta(lab, 3, delta(3, 2, 900))),
        ("dead", |lab| lab.hosts = seen(3, 1, 800, 800, 995)),
        ("of another value", |lab| put_block(lab, 3, block([4003, 4003, 5, 1, 700, 3]))),
    ];
    for (what, change) in gone {
        let mut lab = passed_over();
        change(&mut lab);
        assert_eq!(held(&acquire_plain(&mut lab)).lver(), 4, "{what}");
    }
}

#[test]
fn a_damaged_host_id_lease_of_a_host_in_between_stops_the_acquire() {
    let mut lab = passed_over();
    let mut damaged = delta(3, 2, 900);
    damaged.owner_generation = 7.into();
    put_delta(&mut lab, 3, damaged);
    assert_eq!(code(&acquire_plain(&mut lab)), -229);
}

/// Two hosts that lost earlier ballots are in each other's way only once: who is refused takes back what its own block may claim.
#[test]
fn who_is_refused_takes_back_its_own_claim() {
    let mut lab = passed_over();
    put_block(&mut lab, US, block([4001, 4001, US, 1, 700, 3]));
    let done = acquire_plain(&mut lab);
    assert_eq!((code(&done), failure(&done).2), (-212, true));
    retract(&mut lab);
    assert!(block_of(&lab, US).dblock.is_released());
}

/// The version demanded is the stale leader's: others have owned the lease since.
#[test]
fn a_demanded_version_that_a_stale_leader_meets_is_refused() {
    let mut lab = rolled_back();
    put_block(&mut lab, 2, released(block([4002, 4002, 2, 1, 700, 5])));
    let done = acquire(&mut lab, AcquireOptions { lver: Some(1), ..AcquireOptions::default() });
    assert_eq!(failure(&done).0, AcquireError::Lver { expected: 1, found: 4 });
    assert!(!writes(&lab).contains(&0));
}

/// A host beyond the stale leader's `num_hosts` is found, and stays in sight of hosts that read no further.
#[test]
fn hosts_beyond_the_stale_number_of_hosts_are_seen() {
    let mut lab = rolled_back();
    put_block(&mut lab, 2, released(block([4002, 4002, 2, 1, 700, 3])));
    put_block(&mut lab, 12, block([6012, 6012, 12, 1, 700, 4]));
    let done = acquire_plain(&mut lab);
    assert!(matches!(failure(&done).0, AcquireError::Other(o) if (o.host_id, o.lver) == (12, 4)));
    assert_eq!(leader_of(&lab).num_hosts.get(), 12);
}

/// What the leader's own version was decided with says nothing of the versions after it.
#[test]
fn the_owner_of_the_leaders_own_version_need_not_be_examined_again() {
    let ended = |with: bool| {
        let mut lab = rolled_back();
        let version = leader_of(&lab).lver.get();
        put_block(&mut lab, 2, released(block([4002, 4002, 2, 1, 700, 5])));
        if with {
            put_block(&mut lab, 3, block([2003, 2003, 3, 1, 700, version]));
        }
        let done = acquire_plain(&mut lab);
        (code(&done), state(&leader_of(&lab)), lab.trace.len())
    };
    assert_eq!(ended(true), ended(false));
}

/// A shared holder is seen whatever the leader says.
#[test]
fn a_shared_holder_of_the_version_ahead_keeps_the_lease() {
    let mut lab = rolled_back();
    let mut shared = released(block([4002, 4002, 2, 1, 700, 3]));
    shared.mode = ModeBlock::shared(1);
    put_block(&mut lab, 2, shared);
    let done = acquire(&mut lab, nowait());
    assert_eq!(failure(&done).0, AcquireError::Shared { host: host(2), generation: 1 });
    assert_eq!(block_of(&lab, 2), shared);
    assert!(!writes(&lab).contains(&0));
}

/// Met in phase 2, after our value was written: the way is the same, and our value of the older version means nothing any more.
#[test]
fn a_block_ahead_met_in_phase_2() {
    let mut lab = lab(leader(1, NOBODY));
    before_round(&mut lab, READ_2, |lab| put_block(lab, 2, block([4002, 4002, 2, 1, 700, 4])));
    let done = acquire_plain(&mut lab);
    assert_eq!((code(&done), state(&leader_of(&lab))), (-245, (2, 1, true, 4, US)));
}

/// Whoever is on the way to the same version by the ordinary way meets us in the same ballot.
#[test]
fn a_ballot_lost_during_a_repair_is_tried_again_for_the_same_version() {
    let mut lab = rolled_back();
    put_block(&mut lab, 2, block([4002, 0, 0, 0, 0, 3]));
    // Leader and own block; phase 1 for version 2; leader, everything; phase 1 for version 3: then host 2 raises its number.
    before_round(&mut lab, 7, |lab| put_block(lab, 2, block([8002, 0, 0, 0, 0, 3])));
    let held = held(&acquire_plain(&mut lab));
    assert_eq!((held.lver(), held.block.dblock.mbal.get()), (3, 10_001));
}

/// A leader that has moved on costs a round, and so does a repair: whoever never finds the end of it gives up.
#[test]
fn a_repair_is_one_of_the_rounds_that_an_acquire_may_have() {
    let rounds = u64::from(BALLOTS_MAX);
    for (moves, repaired) in [(rounds - 2, true), (rounds - 1, false)] {
        let mut lab = rolled_back();
        put_block(&mut lab, US, block([4001, 0, 0, 0, 0, 500]));
        // Each time between the first look at the leader and the second one.
        for k in 1..=moves {
            before_round(&mut lab, 2 * k, move |lab| put_leader(lab, leader(k + 1, RELEASED_BY_3)));
        }
        let done = acquire_plain(&mut lab);
        if repaired {
            assert_eq!(held(&done).lver(), 500);
        } else {
            assert_eq!(code(&done), -213);
            assert!(writes(&lab).is_empty());
        }
    }
}

/// Somebody else has repaired the leader while our ballot for the version ahead was under way.
#[test]
fn a_repair_by_another_host_ends_ours() {
    let mut lab = rolled_back();
    put_block(&mut lab, 2, block([4002, 4002, 2, 1, 700, 3]));
    let repaired = Owner { id: 2, generation: 1, timestamp: 700, writer: 4 };
    before_round(&mut lab, 7, move |lab| put_leader(lab, leader(3, repaired)));
    let done = acquire_plain(&mut lab);
    assert!(matches!(failure(&done), (AcquireError::Owned(o), -244, false) if o.host_id == 2));
    assert!(!writes(&lab).contains(&0));
}

/// Only a slow look: the leader has caught up when it is read again.
#[test]
fn a_block_ahead_of_a_leader_that_has_moved_on_starts_the_acquire_again() {
    let mut lab = lab(leader(1, NOBODY));
    before_round(&mut lab, READ_1, |lab| {
        put_block(lab, 2, released(block([4002, 4002, 2, 1, 700, 3])));
        put_leader(lab, leader(3, Owner { timestamp: 0, ..owned_by(2, 1) }));
    });
    assert_eq!(held(&acquire_plain(&mut lab)).lver(), 4);
}

/// A host that has no host id in our lockspace, whose sectors are larger than the resource's, is in the way whatever it is; the last one
/// inside is looked at.
#[test]
fn a_claim_beyond_the_lockspace_is_in_the_way_and_the_last_one_inside_is_judged() {
    for (id, stops) in [(250, false), (251, true), (252, true)] {
        let mut lab = rolled_back();
        let geometry = wide_lockspace(&mut lab);
        put_block(&mut lab, id, block([4000 + id, 4000 + id, id, 1, 700, 3]));
        put_block(&mut lab, 4, block([6004, 0, 0, 0, 0, 4]));
        let done = acquire_as(&mut lab, PaxosConfig { geometry, ..config(US) }, AcquireOptions::default());
        if stops {
            assert!(matches!(failure(&done).0, AcquireError::Newer { host, .. } if host.get() == id), "{id}");
        } else {
            assert_eq!(held(&done).lver(), 4, "{id}");
        }
    }
}

/// A block that carries another host's value, or none, claims no version for its own host.
#[test]
fn who_carries_no_value_of_its_own_is_not_in_the_way() {
    for fields in [[4003, 4003, 2, 1, 700, 3], [4003, 0, 0, 0, 0, 3], [4003, 0, 3, 1, 700, 3]] {
        let mut lab = passed_over();
        put_block(&mut lab, 3, block(fields));
        assert_eq!(held(&acquire_plain(&mut lab)).lver(), 4, "{fields:?}");
    }
}

/// The first ballot for the version ahead is above every number seen there, whichever host's block comes first.
#[test]
fn a_repair_begins_above_all_ballots_of_the_version_ahead() {
    for numbers in [[6003, 4004], [4003, 6004]] {
        let mut lab = rolled_back();
        put_block(&mut lab, 3, block([numbers[0], 0, 0, 0, 0, 4]));
        put_block(&mut lab, 4, block([numbers[1], 0, 0, 0, 0, 4]));
        assert_eq!(held(&acquire_plain(&mut lab)).lver(), 4);
        assert_eq!(
            writes(&lab),
            [2, 2, 2, 0],
            "{numbers:?}: one ballot for version 2, which is not to be had, one for 4"
        );
        assert_eq!(block_of(&lab, US).dblock.mbal.get(), 8001, "{numbers:?}");
    }
}
