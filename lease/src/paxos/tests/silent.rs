//! A disk of several that does not answer: it is waited for once, and nothing is written that might land at any later time.

use super::disks::{acquire3, disk, lab3, leader_on, three};
use super::foreign::called;
use super::*;
use crate::machine::Action;

/// Milliseconds.
const T: u64 = 10_000;

fn free3() -> Lab {
    lab3([leader(0, NOBODY); 3])
}

/// From now on this disk answers nothing.
fn falls_silent(lab: &mut Lab, silent: u8) {
    lab.fates(move |op| if op.place == disk(silent) { Fate::never() } else { Fate::prompt() });
}

fn took(lab: &Lab, since: crate::timing::MonoTime) -> u64 {
    lab.now.millis_since(since)
}

#[test]
fn a_lease_is_taken_and_given_back_beside_a_silent_disk() {
    for silent in 0..3 {
        let mut lab = free3();
        falls_silent(&mut lab, silent);
        let begin = lab.now;
        let done = acquire3(&mut lab);
        assert_eq!((held(&done).lver(), done.outstanding), (1, 0), "disk {silent}");
        assert!((T..T + 100).contains(&took(&lab, begin)), "{} ms", took(&lab, begin));

        let begin = lab.now;
        let released = lab.run_noisy(&mut PaxosRelease::new(three(), held(&done)));
        assert_eq!((released.outcome.result, released.outstanding), (Ok(Released::LeaderFreed), 0));
        assert!((T..T + 100).contains(&took(&lab, begin)), "{} ms", took(&lab, begin));
        assert!(lab.trace.iter().all(|t| !t.op.is_write() || t.op.place != disk(silent)));
        for n in (0..3).filter(|n| *n != silent) {
            assert_eq!(leader_on(&lab, n).timestamp.get(), 0, "disk {n}");
        }
    }
}

/// What hangs may come back, and then it is as good as the others.
#[test]
fn a_disk_that_answers_late_is_written_again() {
    let mut lab = free3();
    // Its first reads are late by less than the round of another disk's, which is slow.
    let mut reads = 0;
    lab.fates(move |op| match op.place {
        place if place == disk(2) => {
            reads += 1;
            if reads <= 2 { Fate::after(T + 10) } else { Fate::prompt() }
        }
        place if place == disk(1) => Fate::after(50),
        _ => Fate::prompt(),
    });
    let done = acquire3(&mut lab);
    assert_eq!((held(&done).lver(), done.outstanding), (1, 0));
    assert_eq!(leader_on(&lab, 2), leader_on(&lab, 0), "what was written after it had answered is there too");
    let writes_to = |n| lab.trace.iter().filter(|t| t.op.is_write() && t.op.place == disk(n)).count();
    assert_eq!((writes_to(0), writes_to(2)), (3, 2), "all but the first one");
}

/// Without a majority beside it, it is all that is left to hope for, if it has been seen to have the lease.
#[test]
fn a_silent_disk_is_tried_where_there_is_no_majority_without_it() {
    for seen_before in [false, true] {
        let mut lab = free3();
        let two = PaxosConfig { disks: 2, ..config(US) };
        let done = acquire_as(&mut lab, two, AcquireOptions::default());
        assert_eq!(held(&done).lver(), 1);
        lab.trace.clear();
        if seen_before {
            before_round(&mut lab, FIRST_READ, |lab| falls_silent(lab, 1));
        } else {
            falls_silent(&mut lab, 1);
        }
        let released = lab.run_noisy(&mut PaxosRelease::new(two, held(&done)));
        assert!(released.outcome.needs_retract(), "{:?}", released.outcome);
        assert_eq!(released.outstanding, u32::from(seen_before));
        let on_it: Vec<_> =
            lab.trace.iter().filter(|t| t.op.place == disk(1)).map(|t| t.op.is_write()).collect();
        // What is known to have the lease is asked again, although a write to it has not ended.
        assert_eq!(on_it, if seen_before { vec![false, true, false] } else { vec![false, false] });
    }
}

/// What it says counts for nothing, so nobody waits for it to say it.
#[test]
fn a_disk_with_another_lease_or_none_is_not_waited_for_once_that_is_known() {
    let other = called("other", leader(7, owned_by(2, 1)));
    for (record, n) in [other, RawLeader::zeroed()].into_iter().flat_map(|r| (0..3).map(move |n| (r, n))) {
        let mut lab = free3();
        put(&mut lab, disk(n), 0, Content::Leader(record));
        before_round(&mut lab, FIRST_READ, move |lab| falls_silent(lab, n));
        let begin = lab.now;
        let done = acquire3(&mut lab);
        assert_eq!((held(&done).lver(), done.outstanding), (1, 0), "disk {n}");
        assert!(took(&lab, begin) < 100, "disk {n}, {} ms", took(&lab, begin));
    }
}

/// What hangs may still land, and with it the whole commit: that is what has to be told, not how another disk refused the leader.
#[test]
fn a_commit_that_fails_beside_a_write_that_hangs_is_told_as_a_timeout() {
    for hung in 0..3 {
        let mut lab = free3();
        let refuses = disk((hung + 1) % 3);
        lab.fates(move |op| match op.action {
            Action::Write { .. } if op.place == disk(hung) => Fate::never(),
            Action::Write { sector: 0, .. } if op.place == refuses => Fate::fail(IoFailure::Os(5)),
            _ => Fate::prompt(),
        });
        let done = acquire3(&mut lab);
        assert_eq!(failure(&done).0, AcquireError::LeaderWrite(IoFailure::TimedOut), "disk {hung}");
        assert_eq!((code(&done), done.outstanding), (-202, 1), "disk {hung}");
    }
}
