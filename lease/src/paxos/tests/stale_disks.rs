//! Several disks that say different things: what each has missed, kept or got from another host.

use super::disks::{acquire3, block_on, disk, lab3, leader_on, three};
use super::*;

/// Two hosts committed one value, each on another disk. Which of the two disks answers first must not look like a change: silence is
/// counted from the first look on.
#[test]
fn of_leaders_in_one_state_the_same_counts_whichever_comes_first() {
    let by = |writer| leader(5, Owner { writer, ..owned_by(2, 1) });
    let mut lab = lab3([by(3), by(4), by(3)]);
    lab.disk.remove(disk(2));
    let mut turn = 0;
    // The disks take turns in being the slower one.
    lab.fates(move |op| {
        turn += u32::from(op.place == disk(0));
        Fate::after(if op.place == disk(u8::from(turn % 2 == 0)) { 2 } else { 1 })
    });
    let began = lab.now;
    let done = acquire3(&mut lab);
    assert_eq!(held(&done).lver(), 6);
    let dead = IoTimeout::DEFAULT.host_dead_secs(WatchdogFire::DEFAULT);
    assert!(done.at.secs_since(began) <= dead + 5, "{:?}", done.at);
}

/// A disk that alone took the blocks of two failed attempts, was away while the lease was taken, and is back for the release: its ballot
/// number is larger, and yet older.
#[test]
fn a_release_is_not_kept_from_a_lease_by_a_disk_with_a_larger_ballot_number_from_before() {
    for n in 0..3 {
        let mut lab = lab3([leader(1, owned_by(US, 1)); 3]);
        for other in 0..3 {
            let copy =
                if other == n { block([6001, 0, 0, 0, 0, 1]) } else { block([4001, 4001, US, 1, 500, 1]) };
            put(&mut lab, disk(other), 2, Content::Block(copy));
        }
        let again = PaxosRelease::retract(three(), Geometry::B512_M1)
            .of_hold(Some(block([4001, 4001, US, 1, 500, 1])));
        assert_eq!(lab.run(&mut again.clone()).outcome.result, Ok(Released::LeaderFreed), "disk {n}");
        for other in 0..3 {
            let copy = block_on(&lab, other, US);
            assert_eq!((fields(&copy), copy.dblock.is_released()), ([6001, 4001, US, 1, 500, 1], true));
        }
        // What began later is another matter, even if it has got to this disk only.
        put(&mut lab, disk(n), 2, Content::Block(block([8001, 0, 0, 0, 0, 2])));
        assert_eq!(lab.run(&mut again.clone()).outcome.result, Ok(Released::NothingToDo), "disk {n}");
    }
}

fn counting(hosts: u64, mut leader: RawLeader) -> RawLeader {
    leader.num_hosts = hosts.into();
    leader.seal();
    leader
}

/// Hosts that read blocks up to different numbers would not see each other's: if any disk names more hosts, all blocks are read.
#[test]
fn where_disks_count_different_hosts_everybody_is_looked_at() {
    let (old, older) = (leader(5, NOBODY), leader(4, NOBODY));
    let named = block([4012, 4012, 12, 1, 700, 7]);
    for (leaders, next) in [
        // The newest names more, or fewer; a majority names fewer.
        ([older, old, counting(12, leader(6, NOBODY))], 7),
        ([counting(12, older), counting(12, old), leader(6, NOBODY)], 7),
        ([old, old, counting(12, older)], 6),
    ] {
        let mut lab = lab3(leaders);
        let mut value = named;
        value.dblock.lver = next.into();
        value.dblock.seal();
        put(&mut lab, disk(1), 13, Content::Block(value));
        let done = acquire3(&mut lab);
        assert!(matches!(failure(&done).0, AcquireError::Other(o) if (o.host_id, o.lver) == (12, next)));
        assert!((0..3).all(|n| state(&leader_on(&lab, n)) == (12, 1, true, next, US)));
        assert!((0..3).all(|n| leader_on(&lab, n).num_hosts.get() >= 12));
    }
}

/// The newest of several leaders is what a ballot builds on, and the last version of all cannot be built on: it would be decided twice.
#[test]
fn the_last_version_there_is_is_not_won_again_where_disks_disagree() {
    for n in 0..3 {
        let mut leaders = [leader(3, NOBODY), leader(4, NOBODY), leader(5, NOBODY)];
        leaders[n] = leader(u64::MAX, Owner { timestamp: 0, ..owned_by(2, 1) });
        let mut lab = lab3(leaders);
        assert_eq!(failure(&acquire3(&mut lab)).0, AcquireError::LastVersion, "disk {n}");
        assert!(writes(&lab).is_empty(), "disk {n}");
    }
}

/// The owner asked for more hosts; another host that committed its value did not, and got to one of two disks only.
#[test]
fn an_owner_can_release_where_a_helper_counted_other_hosts() {
    let two = PaxosConfig { disks: 2, ..config(US) };
    let mine = counting(16, leader(5, owned_by(US, 1)));
    let named = leader(5, Owner { writer: 3, ..owned_by(US, 1) });
    let held_block = block([1, 1, US, 1, 500, 5]);
    for leaders in [[mine, named, named], [named, mine, mine]] {
        let mut lab = lab3(leaders);
        (0..2).for_each(|n| put(&mut lab, disk(n), 2, Content::Block(held_block)));
        let lease = Held { leader: mine, block: held_block, geometry: Geometry::B512_M1 };
        lab.hosts = seen(US, 1, 800, 990, 990);
        let other = PaxosConfig { host: host(2), ..two };
        assert_eq!(code(&acquire_as(&mut lab, other, AcquireOptions::default())), -243);
        assert_eq!(lab.run(&mut PaxosRelease::new(two, lease)).outcome.result, Ok(Released::LeaderFreed));
        assert_eq!(held(&acquire_as(&mut lab, other, AcquireOptions::default())).lver(), 6);
    }
}
