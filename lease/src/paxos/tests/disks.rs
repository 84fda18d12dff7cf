//! Several disks: the basic cases of a majority (lease-algorithms.md 4.8).

use super::foreign::called;
use super::*;
use crate::record::FLAG_SHORT_HOLD;

pub(super) fn three() -> PaxosConfig {
    PaxosConfig { disks: 3, ..config(US) }
}

pub(super) fn disk(n: u8) -> Place {
    Place::Resource(n)
}

pub(super) fn lab3(leaders: [RawLeader; 3]) -> Lab {
    let mut lab = free_lab();
    for (n, record) in (0..).zip(leaders) {
        lab.disk.add(disk(n), MIB);
        put(&mut lab, disk(n), 0, Content::Leader(record));
    }
    lab
}

fn free3() -> Lab {
    lab3([leader(0, NOBODY); 3])
}

pub(super) fn leader_on(lab: &Lab, n: u8) -> RawLeader {
    RawLeader::from_sector(&lab.disk.sector(disk(n), B512, 0))
}

pub(super) fn block_on(lab: &Lab, n: u8, id: u64) -> HostBlock {
    HostBlock::from_sector(&lab.disk.sector(disk(n), B512, id + 1))
}

pub(super) fn acquire3(lab: &mut Lab) -> Finished<AcquireOutcome> {
    acquire_as(lab, three(), AcquireOptions::default())
}

#[test]
fn all_disks_get_the_same_in_as_many_rounds_as_one_disk() {
    let mut lab = free3();
    let begin = lab.now;
    let done = acquire3(&mut lab);
    assert_eq!(held(&done).lver(), 1);
    // Leaders together with own blocks, then the five rounds of a ballot; three operations each.
    let at = |round: u64| lab.trace.iter().filter(|t| t.at == begin.plus_millis(round)).count();
    assert_eq!((0..7).map(at).collect::<Vec<_>>(), [6, 3, 3, 3, 3, 3, 0]);
    for n in 1..3 {
        assert_eq!(leader_on(&lab, n), leader_on(&lab, 0));
        assert_eq!(block_on(&lab, n, US), block_on(&lab, 0, US));
    }
    let released = lab.run_noisy(&mut PaxosRelease::new(three(), held(&done)));
    assert_eq!(released.outcome.result, Ok(Released::LeaderFreed));
    assert!((0..3).all(|n| !state(&leader_on(&lab, n)).2));
}

#[test]
fn any_one_of_three_disks_may_be_missing_and_no_two() {
    for missing in 0..3 {
        let mut lab = free3();
        lab.disk.remove(disk(missing));
        let done = acquire3(&mut lab);
        assert_eq!(held(&done).lver(), 1, "disk {missing}");
        let released = lab.run_noisy(&mut PaxosRelease::new(three(), held(&done)));
        assert_eq!(released.outcome.result, Ok(Released::LeaderFreed), "disk {missing}");
        lab.disk.remove(disk((missing + 1) % 3));
        let done = acquire3(&mut lab);
        assert_eq!(code(&done), -220, "only disk {}", (missing + 2) % 3);
        assert!(writes(&lab).is_empty());
    }
}

#[test]
fn exactly_half_is_no_majority() {
    for (disks, missing, ok) in [(2, 1, false), (4, 1, true), (4, 2, false)] {
        let mut lab = free3();
        lab.disk.add(disk(3), MIB);
        put(&mut lab, disk(3), 0, Content::Leader(leader(0, NOBODY)));
        for n in 0..missing {
            lab.disk.remove(disk(n));
        }
        let done = acquire_as(&mut lab, PaxosConfig { disks, ..config(US) }, AcquireOptions::default());
        assert_eq!(matches!(done.outcome, AcquireOutcome::Acquired(_)), ok, "{missing} of {disks} missing");
    }
}

#[test]
fn the_leader_in_force_is_the_majoritys() {
    let (old, new) = (leader(4, NOBODY), leader(5, owned_by(2, 1)));
    for n in 0..3 {
        let mut leaders = [new; 3];
        leaders[n] = old;
        let mut lab = lab3(leaders);
        lab.hosts = seen(2, 1, 800, 990, 990);
        assert_eq!(code(&acquire3(&mut lab)), -243);
    }
}

/// A commit, or a release, that was cut short between two disks: half of them have it, which is no majority, and the other half is
/// none either.
#[test]
fn where_no_majority_agrees_the_highest_version_is_in_force() {
    let (old, new) = (leader(4, NOBODY), leader(5, owned_by(2, 1)));
    let two = PaxosConfig { disks: 2, ..config(US) };
    for leaders in [[old, new, new], [new, old, old]] {
        let mut lab = lab3(leaders);
        lab.hosts = seen(2, 1, 800, 990, 990);
        // Whoever it names lives: it owns the version, told or not.
        assert_eq!(code(&acquire_as(&mut lab, two, AcquireOptions::default())), -243);
        assert!(writes(&lab).is_empty());
        lab.hosts = seen(2, 1, 1, 2, 990);
        let done = acquire_as(&mut lab, two, AcquireOptions::default());
        assert_eq!(held(&done).lver(), 6);
        assert_eq!(leader_on(&lab, 0), leader_on(&lab, 1));
    }
    // Entering shared mode ends with a write that frees the leader and takes a flag away.
    let mut short = new;
    short.flags = (short.flags.get() | FLAG_SHORT_HOLD).into();
    short.seal();
    let mut lab = lab3([short, leader(5, Owner { timestamp: 0, ..owned_by(2, 1) }), new]);
    assert_eq!(held(&acquire_as(&mut lab, two, AcquireOptions::default())).lver(), 6);
    let mut lab = lab3([old, leader(6, NOBODY), new]);
    assert_eq!(held(&acquire3(&mut lab)).lver(), 7);
    // One version with two owners is damage.
    let mut lab = lab3([old, new, leader(5, owned_by(3, 1))]);
    assert_eq!(code(&acquire3(&mut lab)), -222);
}

/// The very value of an attempt, committed by another host on half of the disks only: the attempt goes on until a majority has it, whether
/// it sees that commit in its ballot or, the ballot being lost, when it looks at the leaders again.
#[test]
fn a_commit_of_our_value_on_half_of_the_disks_is_no_success() {
    let two = PaxosConfig { disks: 2, ..config(US) };
    for lost in [false, true] {
        let mut lab = lab3([leader(4, NOBODY); 3]);
        before_round(&mut lab, READ_2, move |lab| {
            let value = block_of(lab, US).dblock;
            let ours = Owner { id: US, generation: 1, timestamp: value.inp3.get(), writer: 2 };
            put(lab, disk(1), 0, Content::Leader(leader(5, ours)));
            if lost {
                put(lab, disk(0), 3, Content::Block(block([4002, 0, 0, 0, 0, 5])));
            }
        });
        let done = acquire_as(&mut lab, two, AcquireOptions::default());
        assert!(held(&done).lver() >= 5);
        assert_eq!(leader_on(&lab, 0), leader_on(&lab, 1));
        assert_eq!(leader_on(&lab, 0).lver.get(), held(&done).lver());
    }
}

/// What a failed commit left on half of the disks is taken back from there.
#[test]
fn half_a_commit_is_taken_back() {
    let two = PaxosConfig { disks: 2, ..config(US) };
    let mut lab = lab3([leader(4, NOBODY); 3]);
    lab.fates(|op| match op.action {
        crate::machine::Action::Write { sector: 0, .. } if op.place == disk(1) => {
            Fate::fail(IoFailure::Os(5))
        }
        _ => Fate::prompt(),
    });
    assert_eq!(failure(&acquire_as(&mut lab, two, AcquireOptions::default())).1, -5);
    lab.no_faults();
    let done = lab.run_noisy(&mut PaxosRelease::retract(two, Geometry::B512_M1));
    assert_eq!(done.outcome.result, Ok(Released::LeaderFreed));
    assert_eq!(leader_on(&lab, 0), leader_on(&lab, 1));
    assert!(!state(&leader_on(&lab, 0)).2);
}

#[test]
fn of_leaders_that_differ_in_the_timestamp_alone_the_free_one_is_in_force() {
    let free = leader(5, Owner { timestamp: 0, ..owned_by(2, 1) });
    for n in 0..3 {
        let mut leaders = [leader(5, owned_by(2, 1)); 3];
        leaders[n] = free;
        let mut lab = lab3(leaders);
        assert_eq!(held(&acquire3(&mut lab)).lver(), 6);
    }
}

/// R1 over several disks: a value that lies on one disk only is found, on whichever.
#[test]
fn a_value_on_a_single_disk_binds() {
    for n in 0..3 {
        let mut lab = free3();
        put(&mut lab, disk(n), 3, Content::Block(block([2, 2, 2, 1, 777, 1])));
        // Phase 1 of the first ballot meets the larger number, of the second the value.
        assert_eq!(code(&acquire3(&mut lab)), -245, "disk {n}");
        assert_eq!(state(&leader_on(&lab, 0)), (2, 1, true, 1, US));

        let mut lab = free3();
        put(&mut lab, disk(n), 2, Content::Block(released(block([1, 1, US, 1, 777, 1]))));
        assert_eq!(held(&acquire3(&mut lab)).lver(), 2, "disk {n}");
    }
}

/// A write that hangs on one disk: the majority goes on without it, and that disk gets no further write.
#[test]
fn a_disk_with_an_outstanding_write_gets_no_other() {
    for late in 0..3 {
        let mut lab = free3();
        lab.fates(
            move |op| if op.is_write() && op.place == disk(late) { Fate::never() } else { Fate::prompt() },
        );
        let done = acquire3(&mut lab);
        held(&done);
        assert_eq!(done.outstanding, 1);
        let to_late = lab.trace.iter().filter(|t| t.op.is_write() && t.op.place == disk(late)).count();
        assert_eq!(to_late, 1, "disk {late}");
    }
}

#[test]
fn writes_need_a_majority() {
    for (writes_before, expected, retract) in [(0, -211, false), (3, -211, true), (6, -202, true)] {
        let mut lab = free3();
        let mut count = 0;
        lab.fates(move |op| {
            count += u32::from(op.is_write());
            // From this round on, only disk 0 takes writes.
            if op.is_write() && count > writes_before && op.place != disk(0) {
                Fate::never()
            } else {
                Fate::prompt()
            }
        });
        let done = acquire3(&mut lab);
        assert_eq!((code(&done), failure(&done).2, done.outstanding), (expected, retract, 2));
    }
}

#[test]
fn a_commit_on_a_minority_is_taken_back() {
    let mut lab = free3();
    let mut count = 0;
    lab.fates(move |op| {
        count += u32::from(op.is_write());
        if op.is_write() && count > 6 && op.place != disk(0) {
            Fate::fail(IoFailure::Os(5))
        } else {
            Fate::prompt()
        }
    });
    let done = acquire3(&mut lab);
    assert_eq!((code(&done), failure(&done).2, done.outstanding), (-5, true, 0));
    lab.no_faults();
    let done = lab.run_noisy(&mut PaxosRelease::retract(three(), Geometry::B512_M1));
    assert!(done.outcome.result.is_ok());
    // Another host, on the two other disks.
    lab.disk.remove(disk(0));
    let other = PaxosConfig { host: host(2), ..three() };
    lab.hosts = seen(US, 1, 800, 990, 990);
    let first = acquire_as(&mut lab, other, AcquireOptions::default());
    // It finds our value, commits us, and reads our flag the next time.
    assert_eq!(code(&first), -245);
    let second = acquire_as(&mut lab, other, AcquireOptions::default());
    assert!(matches!(second.outcome, AcquireOutcome::Acquired(h) if h.lver() == 2));
}

#[test]
fn one_unreadable_or_foreign_disk_does_not_decide() {
    for n in 0..3 {
        let mut lab = free3();
        let foreign = called("other", leader(0, NOBODY));
        put(&mut lab, disk(n), 0, Content::Leader(foreign));
        held(&acquire3(&mut lab));
    }
}

/// As after a late write that took a disk back to before the lease was renamed, while another disk is lost.
#[test]
fn who_finds_too_few_disks_is_told_what_is_wrong_with_another_one() {
    let mut lab = free3();
    let renamed = called("other", leader(0, NOBODY));
    put(&mut lab, disk(0), 0, Content::Leader(renamed));
    lab.disk.remove(disk(2));
    let AcquireOutcome::Failed { error, .. } = acquire3(&mut lab).outcome else { panic!("acquired") };
    let wrong = "the lease belongs to resource \"other\", expected \"res\"";
    assert_eq!(
        error.to_string(),
        format!("the leader could be read on 1 of 3 disks only; on another one: {wrong}")
    );
}

/// The owner's last write counts, not the first disk: a block that a disk missed says nothing of the release that it missed.
#[test]
fn an_owner_has_released_if_its_latest_block_says_so_on_whichever_disk() {
    let missed = block([2, 0, 0, 0, 0, 5]);
    let latest = released(block([2, 2, 2, 1, 500, 5]));
    for n in 0..3 {
        let mut lab = lab3([leader(5, Owner { writer: 3, ..owned_by(2, 1) }); 3]);
        lab.hosts = seen(2, 1, 800, 990, 990);
        for other in 0..3 {
            put(&mut lab, disk(other), 3, Content::Block(if other == n { missed } else { latest }));
        }
        assert_eq!(held(&acquire3(&mut lab)).lver(), 6, "disk {n}");
    }
    // And the other way round: of a ballot that went on after a flag for another value the flag is over.
    let older = released(block([2, 2, 2, 1, 400, 5]));
    let newer = block([2002, 2002, 2, 1, 500, 5]);
    for n in 0..3 {
        let mut lab = lab3([leader(5, Owner { writer: 3, ..owned_by(2, 1) }); 3]);
        lab.hosts = seen(2, 1, 800, 990, 990);
        for other in 0..3 {
            put(&mut lab, disk(other), 3, Content::Block(if other == n { older } else { newer }));
        }
        assert_eq!(code(&acquire3(&mut lab)), -243, "disk {n}");
    }
}

/// Three releases were slow, each on another disk: the last owner saw an older leader, free, on a majority, and left its flag alone.
#[test]
fn where_no_majority_agrees_the_owners_flag_counts_though_it_wrote_the_leader_itself() {
    let leaders = [leader(5, owned_by(2, 1)), leader(4, NOBODY), leader(3, NOBODY)];
    for (mark, expected) in [(true, Ok(6)), (false, Err(-243))] {
        let mut lab = lab3(leaders);
        lab.hosts = seen(2, 1, 800, 990, 990);
        let own = block([2, 2, 2, 1, 500, 5]);
        for n in 0..3 {
            put(&mut lab, disk(n), 3, Content::Block(if mark { released(own) } else { own }));
        }
        let done = acquire3(&mut lab);
        match expected {
            Ok(lver) => assert_eq!(held(&done).lver(), lver),
            Err(number) => assert_eq!(code(&done), number),
        }
    }
}

/// A flag that reached one disk only stays with its value: the process has let go.
#[test]
fn a_flag_of_ours_on_a_single_disk_is_kept() {
    let value = block([1, 1, US, 1, 777, 2]);
    // Accepted again in a later ballot that did not see the flag.
    let again = block([2001, 2001, US, 1, 777, 2]);
    for n in 0..3 {
        for rest in [value, again] {
            let mut lab = lab3([leader(1, Owner { timestamp: 0, ..owned_by(2, 1) }); 3]);
            for other in 0..3 {
                let content = if other == n { released(value) } else { rest };
                put(&mut lab, disk(other), 2, Content::Block(content));
            }
            let mut count = 0;
            // After phase 1 nothing is written any more.
            lab.fates(move |op| {
                count += u32::from(op.is_write());
                if op.is_write() && count > 3 { Fate::fail(IoFailure::Os(5)) } else { Fate::prompt() }
            });
            acquire3(&mut lab);
            for other in 0..3 {
                assert!(block_on(&lab, other, US).dblock.is_released(), "disk {n}, then {other}");
            }
        }
    }
}

/// A retract marks every disk it can reach, also where one of them is marked already.
#[test]
fn a_retract_marks_the_disks_that_an_earlier_one_missed() {
    for n in 0..3 {
        let mut lab = lab3([leader(2, Owner { writer: 3, ..owned_by(US, 1) }); 3]);
        let value = block([1, 1, US, 1, 500, 2]);
        for other in 0..3 {
            let content = if other == n { released(value) } else { value };
            put(&mut lab, disk(other), 2, Content::Block(content));
        }
        let done = lab.run_noisy(&mut PaxosRelease::retract(three(), Geometry::B512_M1));
        assert_eq!(done.outcome.result, Ok(Released::ByFlag), "disk {n}");
        assert!((0..3).all(|other| block_on(&lab, other, US).dblock.is_released()), "disk {n}");
    }
}

/// A disk that a failed ballot of ours reached alone keeps its larger number when the retract marks it.
#[test]
fn a_retract_takes_no_disk_back_to_an_older_ballot() {
    for n in 0..3 {
        let mut lab = free3();
        for other in 0..3 {
            let mbal = if other == n { 1 } else { 2001 };
            put(&mut lab, disk(other), 2, Content::Block(block([mbal, 0, 0, 0, 0, 1])));
        }
        let done = lab.run_noisy(&mut PaxosRelease::retract(three(), Geometry::B512_M1));
        assert!(done.outcome.result.is_ok());
        for other in 0..3 {
            let block = block_on(&lab, other, US).dblock;
            assert_eq!((block.mbal.get(), block.is_released(), block.is_valid()), (2001, true, true), "{n}");
        }
    }
}

/// The owner and a host that found its value both wrote the leader, each to be seen on some of the disks. Whoever releases frees it
/// if one of those it reads is its own; whoever acquires looks for the flag if one of those it reads is not the owner's.
#[test]
fn a_leader_that_two_hosts_wrote_is_released_for_everybody() {
    let (mine, named) = (leader(1, owned_by(US, 1)), leader(1, Owner { writer: 2, ..owned_by(US, 1) }));
    let held_block = block([1, 1, US, 1, 500, 1]);
    let lease = Held { leader: mine, block: held_block, geometry: Geometry::B512_M1 };
    for written in [[mine, named, mine], [mine, named, named], [named, mine, named]] {
        for missing in 0..3 {
            let mut lab = lab3(written);
            (0..3).for_each(|n| put(&mut lab, disk(n), 2, Content::Block(held_block)));
            let lost = move |op: &Op| op.place == disk(missing);
            lab.fates(move |op| if lost(op) { Fate::fail(IoFailure::Os(5)) } else { Fate::prompt() });
            let done = lab.run_noisy(&mut PaxosRelease::new(three(), lease));
            assert!(done.outcome.result.is_ok());
            lab.no_faults();
            let other = PaxosConfig { host: host(3), ..three() };
            lab.hosts = seen(US, 1, 800, 990, 990);
            let next = acquire_as(&mut lab, other, AcquireOptions::default());
            assert!(
                matches!(next.outcome, AcquireOutcome::Acquired(h) if h.lver() == 2),
                "{written:?} without {missing}: {:?}",
                next.outcome
            );
        }
    }
}

/// R9 over several disks: a leader that was rolled back on a majority. A copy of a block on one disk is enough to be ahead.
#[test]
fn a_leader_rolled_back_on_a_majority_is_repaired_on_all() {
    let stale = leader(1, Owner { timestamp: 0, ..owned_by(3, 1) });
    for behind in 0..3 {
        let mut leaders = [stale; 3];
        leaders[usize::from(behind)] = leader(3, owned_by(2, 1));
        let mut lab = lab3(leaders);
        put(&mut lab, disk(behind), 3, Content::Block(block([4002, 4002, 2, 1, 500, 3])));
        let done = acquire3(&mut lab);
        assert!(matches!(failure(&done).0, AcquireError::Other(o) if (o.host_id, o.lver) == (2, 3)));
        assert!((0..3).all(|n| state(&leader_on(&lab, n)) == (2, 1, true, 3, US)), "disk {behind}");
    }
}

/// A mark on one disk is enough to show that a host in between has let go; an older copy of its block says nothing.
#[test]
fn of_a_host_in_between_the_newest_copy_and_any_mark_count() {
    let claim = block([4003, 4003, 3, 1, 700, 3]);
    let newer = block([6003, 0, 0, 0, 0, 4]);
    for (what, copies, expected) in [
        ("nowhere marked", [claim, claim, claim], -212),
        ("marked on one", [claim, released(claim), claim], 0),
        ("gone on to the next version on one", [claim, claim, newer], 0),
    ] {
        let mut lab = lab3([leader(1, Owner { timestamp: 0, ..owned_by(5, 1) }); 3]);
        for (n, copy) in (0..).zip(copies) {
            put(&mut lab, disk(n), 4, Content::Block(copy));
        }
        put(&mut lab, disk(1), 5, Content::Block(block([6004, 0, 0, 0, 0, 4])));
        all_alive(&mut lab);
        let done = acquire3(&mut lab);
        let found = if expected == 0 { i32::from(held(&done).lver() != 4) } else { code(&done) };
        assert_eq!(found, expected, "{what}");
    }
}

/// A retract that read disks of different age writes the block back. Its ballot number must not fall: the same number used twice, with
/// another value each time, makes two owners.
#[test]
fn a_retract_keeps_the_largest_ballot_number_of_all_disks() {
    for stale in 0..3 {
        let mut lab = free3();
        for n in 0..3 {
            let mbal = if n == stale { 2001 } else { 4001 };
            put(&mut lab, disk(n), 2, Content::Block(block([mbal, 0, 0, 0, 0, 1])));
        }
        let done = lab.run_noisy(&mut PaxosRelease::retract(three(), Geometry::B512_M1));
        assert!(done.outcome.result.is_ok());
        for n in 0..3 {
            let found = block_on(&lab, n, US);
            assert_eq!(fields(&found), [4001, 0, 0, 0, 0, 1], "disk {n}, {stale} was stale");
            assert!(found.dblock.is_valid() && found.dblock.is_released());
        }
    }
}

/// The owner gave an earlier value of the same version up and won it with another one; a disk that missed this still shows the mark, and
/// is the only one that answers when its record is asked for.
#[test]
fn a_mark_on_a_minority_takes_no_lease_from_its_owner() {
    for stale in 0..3 {
        let mut lab = lab3([leader(5, Owner { writer: 3, ..owned_by(2, 1) }); 3]);
        for n in 0..3 {
            let earlier = released(block([2, 2, 2, 1, 400, 5]));
            let now = block([4002, 4002, 2, 1, 500, 5]);
            put(&mut lab, disk(n), 3, Content::Block(if n == stale { earlier } else { now }));
        }
        lab.hosts = seen(2, 1, 800, 990, 990);
        lab.fates(move |op| match op.action {
            crate::machine::Action::Read { first: 3, count: 1 } if op.place != disk(stale) => {
                Fate::fail(IoFailure::Os(5))
            }
            _ => Fate::prompt(),
        });
        assert_eq!(code(&acquire3(&mut lab)), -5, "disk {stale}");
    }
}
