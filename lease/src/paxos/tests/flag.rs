//! The owner lives: whether its own block says that it has let go, under a leader that another host wrote in its name (lease-algorithms.md 4.4).

use super::owner::owned_lab;
use super::*;

/// The leader was written by host 3 in the name of host 2.
fn committed_by_another() -> Lab {
    let mut lab = lab(leader(5, Owner { writer: 3, ..owned_by(2, 1) }));
    lab.hosts = seen(2, 1, 800, 990, 990);
    lab
}

#[test]
fn a_live_owner_of_a_leader_written_by_another_host_is_asked_by_flag() {
    let mut lab = committed_by_another();
    put_block(&mut lab, 2, block([2002, 2002, 2, 1, 500, 5]));
    assert_eq!(code(&acquire_plain(&mut lab)), -243);
    assert_eq!(lab.brief(), [(0, 1), (2, 1), (1, 1), (3, 1)]);

    put_block(&mut lab, 2, released(block([2002, 2002, 2, 1, 500, 5])));
    assert_eq!(held(&acquire_plain(&mut lab)).lver(), 6);
    assert_eq!(
        lab.brief(),
        [(0, 1), (2, 1), (1, 1), (3, 1), (0, 1), (2, -1), (0, 2002), (2, -1), (0, 2002), (0, -1)]
    );
}

#[test]
fn the_flag_means_nothing_where_the_owner_wrote_the_leader_itself() {
    let mut lab = owned_lab();
    lab.hosts = seen(2, 1, 800, 990, 990);
    put_block(&mut lab, 2, released(block([2002, 2002, 2, 1, 500, 5])));
    assert_eq!(code(&acquire_plain(&mut lab)), -243);
}

#[test]
fn the_flag_of_an_older_version_is_not_about_this_one() {
    let mut lab = committed_by_another();
    put_block(&mut lab, 2, released(block([2002, 2002, 2, 1, 400, 4])));
    assert_eq!(code(&acquire_plain(&mut lab)), -243);
}

/// The original erases its block when it cleans up; RELEASED is all it leaves.
#[test]
fn an_erased_block_of_the_original_counts_as_released() {
    let mut lab = committed_by_another();
    let mut erased = released(HostBlock::zeroed());
    erased.dblock.checksum = 0xcb5a_d842.into();
    put_block(&mut lab, 2, erased);
    assert_eq!(held(&acquire_plain(&mut lab)).lver(), 6);
}

/// An owner takes part in a later version only when it has given this one up, so its block need not say RELEASED (any more).
#[test]
fn an_owner_whose_block_is_at_a_later_version_has_given_this_one_up() {
    let mut lab = committed_by_another();
    put_block(&mut lab, 2, block([4002, 0, 0, 0, 0, 6]));
    // It is in the middle of its ballot: its number is larger than our first one.
    let held = held(&acquire_plain(&mut lab));
    assert_eq!((held.lver(), held.block.dblock.mbal.get()), (6, 6001));
}

#[test]
fn a_damaged_block_of_the_owner_is_reported() {
    let mut lab = committed_by_another();
    let mut damaged = released(block([2002, 2002, 2, 1, 500, 5]));
    damaged.dblock.inp3 = 501.into();
    put_block(&mut lab, 2, damaged);
    let done = acquire_plain(&mut lab);
    assert_eq!(code(&done), -214);
    assert!(matches!(failure(&done).0, AcquireError::Dblock(e) if e.host == host(2)));
}
