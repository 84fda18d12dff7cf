//! Writes that end with an error which does not exclude that they have an effect later: R3 without assumption A7 of
//! lease-algorithms.md 13.2.

use super::disks::{acquire3, disk, lab3, three};
use super::*;
use crate::machine::{Input, NoSectors, OpId, View};
use crate::paxos::ops::{For, Ops};

/// 8T + F in milliseconds.
const DOUBT: u64 = 140_000;
const EIO: IoFailure = IoFailure::Os(5);

#[test]
fn writes_may_be_in_doubt_for_the_dead_time_and_reads_never() {
    let mut lab = free_lab();
    let lease = held(&acquire_plain(&mut lab));
    lab.run(&mut PaxosRelease::new(config(US), lease)).outcome.result.unwrap();
    for traced in &lab.trace {
        let expected = if traced.op.is_write() { DOUBT } else { 0 };
        assert_eq!(traced.op.doubt_ms, expected, "{:?}", traced.op);
    }
}

/// The storage says that the leader write failed, and carries it out after all, up to the end of the doubt.
#[test]
fn a_leader_write_in_doubt_is_outstanding_and_is_taken_back_once_it_has_settled() {
    for lands_ms in [Some(1), Some(50_000), Some(DOUBT), None] {
        let mut lab = free_lab();
        nth_op(&mut lab, 6, Fate::in_doubt(EIO, lands_ms));
        let mut machine = PaxosAcquire::new(config(US), AcquireOptions::default());
        let done = lab.run(&mut machine);
        assert_eq!((code(&done), failure(&done).2, done.outstanding), (-5, true, 1), "{lands_ms:?}");
        let failed = lab.now;
        assert!(lab.pass(&mut machine, DOUBT / 1000 - 1).is_none());
        assert_eq!(machine.outstanding(), 1);
        assert!(lab.pass(&mut machine, 2).is_none(), "it is only noted");
        assert_eq!(machine.outstanding(), 0);
        assert_eq!(state(&leader_of(&lab)).2, lands_ms.is_some());

        lab.no_faults();
        let taken_back = retract(&mut lab);
        let expected = if lands_ms.is_some() { Released::LeaderFreed } else { Released::ByFlag };
        assert_eq!(taken_back.outcome.result, Ok(expected));
        assert!(lab.now > failed.plus_millis(DOUBT));
    }
}

/// Of several disks the others decide; the one in doubt gets no further write, which it might carry out first.
#[test]
fn a_disk_with_a_write_in_doubt_gets_no_other() {
    let mut lab = lab3([leader(0, NOBODY); 3]);
    lab.fates(
        |op| if op.is_write() && op.place == disk(2) { Fate::in_doubt(EIO, None) } else { Fate::prompt() },
    );
    let done = acquire3(&mut lab);
    assert_eq!((held(&done).lver(), done.outstanding), (1, 1));
    let writes = lab.trace.iter().filter(|t| t.op.is_write() && t.op.place == disk(2)).count();
    assert_eq!(writes, 1);
}

/// A disk of several that is broken for good leaves nothing in doubt: it is not written to.
#[test]
fn a_disk_that_cannot_be_read_is_not_written() {
    let mut lab = lab3([leader(0, NOBODY); 3]);
    lab.fates(|op| match op.is_write() {
        _ if op.place != disk(1) => Fate::prompt(),
        true => Fate::in_doubt(EIO, None),
        false => Fate::fail(EIO),
    });
    let done = acquire3(&mut lab);
    assert_eq!((held(&done).lver(), done.outstanding), (1, 0));
    let released = lab.run_noisy(&mut PaxosRelease::new(three(), held(&done)));
    assert_eq!((released.outcome.result, released.outstanding), (Ok(Released::LeaderFreed), 0));
    assert!(lab.trace.iter().all(|t| !t.op.is_write() || t.op.place != disk(1)));
}

/// Once it answers again.
#[test]
fn a_disk_that_can_be_read_again_is_written_again() {
    let mut ops = Ops::of(&three());
    let mut number = 0;
    let mut read_all = |ops: &mut Ops, fails: Option<u8>| {
        for disk in 0..3 {
            ops.read(disk, SectorSize::B512, 0, 1, MonoTime::default(), For::Leader);
        }
        ops.take_batch();
        for disk in 0..3 {
            let result = if fails == Some(disk) { Err(EIO) } else { Ok(&NoSectors as View<'_>) };
            ops.absorb(Input::Completed { op: OpId(number), result });
            number += 1;
        }
    };
    for failing in 0..3 {
        read_all(&mut ops, Some(failing));
        assert_eq!([0, 1, 2].map(|disk| ops.skips(disk)), [0, 1, 2].map(|disk| disk == failing));
        read_all(&mut ops, None);
        assert!(![0, 1, 2].into_iter().any(|disk| ops.skips(disk)));
    }
}
