//! The internal lease: who holds it, when it is given back, and what happens when the disk or the lockspace fails.

use super::*;
use sanlock_lease::code::ReturnCode;
use sanlock_lease::paxos::acquire::AcquireOutcome;
use sanlock_lease::paxos::release::{ReleaseOutcome, Released};
use sanlock_lease::record::{DBLOCK_RELEASED, Dblock, HostBlock, ModeBlock};
use sanlock_lease::timing::MonoTime;
use std::collections::BTreeSet;

fn changes() -> [RindexCommand; 5] {
    changes_with(0)
}

fn changes_with(seed: u64) -> [RindexCommand; 5] {
    [
        RindexCommand::Create { name: name("new"), num_hosts: 0, seed },
        RindexCommand::Delete { name: name("a"), offset: 0, seed },
        RindexCommand::Add { name: name("x"), offset: 6 << 20, seed },
        RindexCommand::Remove { offset: 3 << 20, seed },
        RindexCommand::Rebuild { seed },
    ]
}

fn with_a() -> Rig {
    let mut rig = Rig::usual();
    rig.run(create("a")).unwrap();
    rig.trace.clear();
    rig
}

fn lease(rig: &Rig) -> RawLeader {
    rig.leader(2 << 20)
}

fn code(result: Result<Entry, RindexError>) -> i32 {
    result.map_or_else(|e| ReturnCode::from(&e).0, |_| 0)
}

#[test]
fn every_change_takes_it_and_gives_it_back() {
    for command in changes() {
        let mut rig = with_a();
        let before = lease(&rig).lver.get();
        rig.run(command).unwrap();
        let after = lease(&rig);
        assert_eq!(after.lver.get(), before + 1, "{command:?}");
        assert_eq!((after.owner_id.get(), after.timestamp.get()), (1, 0));
        // Whoever wrote the leader in our name would know it as given back.
        let block = HostBlock::from_sector(&rig.bytes((2 << 20) + 1024, 512));
        assert_eq!(block.dblock.flags.get() & DBLOCK_RELEASED, DBLOCK_RELEASED, "{command:?}");
    }
    let mut rig = with_a();
    let before = lease(&rig);
    rig.run(lookup("a", 0)).unwrap();
    assert_eq!(lease(&rig), before, "a lookup takes nothing");
}

#[test]
fn a_failed_change_gives_it_back_too() {
    let mut rig = with_a();
    for (command, expected) in [(create("a"), -17), (delete("none"), -2)] {
        assert_eq!(code(rig.run(command)), expected);
        assert_eq!(lease(&rig).timestamp.get(), 0);
    }
}

#[test]
fn held_by_a_live_host_it_refuses_at_once_and_writes_nothing() {
    let mut rig = with_a();
    // Host 2 is cut off with the lease in its hands, and lives on.
    rig.host_lives(2, 1);
    let member = Some(rig.member(2, 1));
    rig.writes_left.set(3);
    assert_eq!(rig.drive(member, create("b")), None);
    assert_eq!(lease(&rig).owner_id.get(), 2);
    assert_ne!(lease(&rig).timestamp.get(), 0);
    rig.writes_left.set(u32::MAX);
    let held = rig.lab.disk.clone();
    for command in changes() {
        rig.trace.clear();
        let started = rig.lab.now;
        let result = code(rig.run(command));
        assert!(matches!(result, -243 | -247), "{command:?}: {result}");
        assert!(rig.lab.now.secs_since(started) < 5, "it does not wait");
        assert_eq!(rig.trace.len(), 1, "only the header was read");
        assert_eq!(rig.lab.disk, held);
    }
    assert_eq!(code(rig.run(lookup("a", 0))), 0);
}

#[test]
fn in_a_lockspace_that_is_gone_nothing_is_written() {
    for command in changes() {
        let mut rig = with_a();
        for now in [LockspaceNow::Gone, LockspaceNow::Alive { generation: 2 }] {
            rig.lockspace(now);
            let before = rig.lab.disk.clone();
            assert_eq!(code(rig.run(command)), -28, "{command:?}");
            assert_eq!(rig.lab.disk, before);
        }
    }
}

/// A member's create, carried out until it wants this.
fn up_to(rig: &mut Rig, wanted: impl Fn(&Want) -> bool) -> (RindexOperation, Want) {
    let config = RindexConfig { member: Some(rig.member(1, 1)), ..rig.config() };
    let mut operation = RindexOperation::new(config, create("b"));
    let mut want = rig.step(&mut operation, Answer::Start);
    while !wanted(&want) {
        want = rig.carry_out(&mut operation, want).unwrap();
    }
    (operation, want)
}

#[test]
fn a_lockspace_that_goes_between_two_writes_stops_the_second() {
    // Gone, or joined anew meanwhile: the lease is that of a former life.
    for now in [LockspaceNow::Gone, LockspaceNow::Alive { generation: 2 }] {
        let mut rig = with_a();
        let (mut operation, mut want) = up_to(&mut rig, |want| matches!(want, Want::Write { .. }));
        rig.lockspace(now);
        while want != Want::Done {
            assert!(
                !matches!(want, Want::Pause(_)),
                "a release in a lockspace that is gone is not tried again"
            );
            want = rig.carry_out(&mut operation, want).unwrap();
        }
        assert_eq!(code(operation.result().unwrap()), -28, "{now:?}");
        assert_eq!(rig.names(), [(0, "a".to_owned())], "the entry was not written");
        assert_ne!(lease(&rig).timestamp.get(), 0, "nor was the lease released");
    }
}

/// The lockspace may lie on another disk, and end while the index's cannot be read: nothing would ever be written again, and the lockspace
/// would wait for this operation.
#[test]
fn a_release_that_cannot_read_is_not_tried_again_once_the_lockspace_is_gone() {
    for gone_at in [false, true] {
        let mut rig = with_a();
        let (mut operation, mut want) = up_to(&mut rig, |want| matches!(want, Want::Release { .. }));
        rig.lab.fates(|_| Fate::fail(IoFailure::Os(5)));
        // Before the pause, or in it.
        while !matches!(want, Want::Settle) {
            want = rig.carry_out(&mut operation, want).unwrap();
        }
        if gone_at {
            want = rig.carry_out(&mut operation, want).unwrap();
            assert!(matches!(want, Want::Pause(_)), "{want:?}");
        }
        rig.lockspace(LockspaceNow::Gone);
        assert_eq!(rig.carry_out(&mut operation, want), Some(Want::Done));
    }
}

#[test]
fn a_transfer_that_fails_ends_the_operation_and_the_lease_is_given_back() {
    // Header, index, area, entry.
    let (error, full) = (IoFailure::Os(5), IoFailure::Os(28));
    for (at, failed, expected) in [(0, error, -5), (1, error, -5), (2, full, -28), (3, full, -28)] {
        let mut rig = with_a();
        rig.fault = Some((at, failed));
        assert_eq!(code(rig.run(create("b"))), expected);
        rig.assert_sound("after a failure");
        assert_eq!(rig.names(), [(0, "a".to_owned())]);
        assert_eq!(lease(&rig).timestamp.get(), 0);
        assert_eq!((rig.settled, rig.paused), (0, 0));
    }
}

/// An entry that lands after another host has changed the index would undo that. Whoever settles waits for what is in doubt too, whatever
/// becomes of the lockspace meanwhile.
#[test]
fn a_write_that_may_still_land_is_settled_before_the_lease_is_given_back() {
    for (at, failure) in [2, 3].into_iter().flat_map(|at| [(at, IoFailure::TimedOut), (at, IoFailure::Os(5))])
    {
        for gone in [false, true] {
            let mut rig = with_a();
            rig.fault = Some((at, failure));
            let config = RindexConfig { member: Some(rig.member(1, 1)), ..rig.config() };
            let mut operation = RindexOperation::new(config, create("b"));
            let mut want = rig.step(&mut operation, Answer::Start);
            while want != Want::Done {
                if want == Want::Settle && gone {
                    rig.lockspace(LockspaceNow::Gone);
                }
                if matches!(want, Want::Release { .. }) {
                    assert_eq!(rig.settled, 1, "released while a write may still land");
                }
                want = rig.carry_out(&mut operation, want).unwrap();
            }
            assert_eq!((rig.settled, rig.paused), (1, 0));
            assert_eq!(
                code(operation.result().unwrap()),
                if failure == IoFailure::TimedOut { -202 } else { -5 }
            );
            assert_eq!(lease(&rig).timestamp.get() == 0, !gone);
            // The entry is never written after an area that may not be there.
            assert_eq!(rig.trace.len(), at + 1);
        }
    }
}

/// Without the lease too: who formats something in the way of it has to wait.
#[test]
fn a_format_that_failed_in_doubt_is_settled() {
    for (failure, settled) in [(IoFailure::Os(5), 1), (IoFailure::TimedOut, 1), (IoFailure::Os(28), 0)] {
        let mut rig = Rig::new(Geometry::B512_M1, 1 << 20);
        rig.fault = Some((1, failure));
        let format = RindexCommand::Format { geometry: Geometry::B512_M1, max_resources: 0 };
        assert_eq!(
            rig.run_as(None, format).unwrap_err(),
            RindexError::Io { what: "writing the index", failure }
        );
        assert_eq!((rig.settled, rig.paused), (settled, 0), "{failure:?}");
    }
}

#[test]
fn an_acquire_that_timed_out_is_taken_back_once_nothing_may_land() {
    for stuck in 0..3 {
        let mut rig = with_a();
        let writes = Cell::new(0);
        rig.lab.fates(move |op| {
            if !op.is_write() {
                return Fate::prompt();
            }
            writes.set(writes.get() + 1);
            if writes.get() == stuck + 1 { Fate::lands_unseen(50_000) } else { Fate::prompt() }
        });
        assert!(code(rig.run(create("b"))) < 0, "write {stuck} of the acquire is stuck");
        assert!(rig.settled > 0, "write {stuck}");
        assert_eq!(lease(&rig).timestamp.get(), 0, "write {stuck}");
        rig.lab.no_faults();
        assert_eq!(code(rig.run(create("b"))), 0, "write {stuck}");
    }
}

#[test]
fn a_release_that_is_not_answered_is_tried_until_it_is() {
    let mut rig = with_a();
    let writes = Cell::new(0);
    rig.lab.fates(move |op| {
        if !op.is_write() {
            return Fate::prompt();
        }
        writes.set(writes.get() + 1);
        // Three writes take the lease; the first attempts to give it back end in nothing.
        if (4..8).contains(&writes.get()) { Fate::never() } else { Fate::prompt() }
    });
    assert_eq!(code(rig.run(create("b"))), 0, "what was asked for is done");
    assert!(rig.paused > 0);
    assert_eq!(lease(&rig).timestamp.get(), 0);
}

/// The leader is free then; but where another host is about to commit our value once more, only the mark says that we have let go.
#[test]
fn a_release_whose_mark_failed_is_tried_until_it_is_there() {
    let mut rig = with_a();
    let writes = Cell::new(0);
    rig.lab.fates(move |op| {
        writes.set(writes.get() + u32::from(op.is_write()));
        // Three writes take the lease; the fourth is the mark.
        if op.is_write() && writes.get() == 4 { Fate::fail(IoFailure::Os(28)) } else { Fate::prompt() }
    });
    assert_eq!(code(rig.run(create("b"))), 0);
    assert_eq!(lease(&rig).timestamp.get(), 0);
    let block = HostBlock::from_sector(&rig.bytes((2 << 20) + 1024, 512));
    assert_eq!(block.dblock.flags.get() & DBLOCK_RELEASED, DBLOCK_RELEASED);
}

/// Whatever the release came to: who formats something in the way of a write that may still land has to wait for it.
#[test]
fn a_release_that_left_a_write_in_flight_is_settled_before_the_end() {
    for outstanding in [0, 1, 2] {
        let mut rig = with_a();
        let (mut operation, _) = up_to(&mut rig, |want| matches!(want, Want::Release { .. }));
        let outcome =
            ReleaseOutcome { result: Ok(Released::LeaderFreed), block_failure: None, value_written: false };
        let want = rig.step(&mut operation, Answer::Released(outcome, outstanding));
        if outstanding == 0 {
            assert_eq!(want, Want::Done);
        } else {
            assert_eq!(want, Want::Settle, "{outstanding}");
            assert_eq!(rig.step(&mut operation, Answer::Settled), Want::Done);
        }
    }
}

/// The first ballot for the internal lease will be lost to host 3, and takes long.
fn before_a_lost_ballot() -> Rig {
    let mut rig = with_a();
    let mut dblock = Dblock::zeroed();
    (dblock.mbal, dblock.lver) = (20_003.into(), (lease(&rig).lver.get() + 1).into());
    dblock.seal();
    let mut sector = [0; 512];
    HostBlock { dblock, mode: ModeBlock::zeroed() }.encode(&mut sector);
    let area = rig.place(2 << 20).0;
    rig.lab.disk.write(area, SectorSize::B512, 4, &sector);
    rig.lab.fates(|_| Fate::after(300));
    rig
}

/// How long an operation that begins at `start` takes to get the lease; the disk is left as it was.
fn time_to_the_lease(rig: &mut Rig, start: MonoTime, command: RindexCommand) -> u64 {
    let before = rig.lab.disk.clone();
    rig.lab.now = start;
    let config = RindexConfig { member: Some(rig.member(1, 1)), ..rig.config() };
    let mut operation = RindexOperation::new(config, command);
    let want = rig.step(&mut operation, Answer::Start);
    let Some(Want::Acquire { mut machine, .. }) = rig.carry_out(&mut operation, want) else {
        panic!("it does not take the lease")
    };
    let began = rig.lab.now;
    let done = rig.lab.run(machine.as_mut());
    assert!(matches!(done.outcome, AcquireOutcome::Acquired(_)), "{:?}", done.outcome);
    rig.lab.disk = before;
    done.at.millis_since(began)
}

/// Hosts that change the index at one moment and wait equally long after each ballot would go on losing to each other.
#[test]
fn after_a_lost_ballot_each_seed_and_each_moment_has_a_delay_of_its_own() {
    let mut rig = before_a_lost_ballot();
    let start = MonoTime::from_secs(5000);
    // Seed and time are combined when the header was read; no bit of the seed may be lost in that.
    let combined = start.plus_millis(1).millis();
    let seeds = [0, 1, combined, !combined];
    for at in 0..changes().len() {
        let mut time = |start, seed| time_to_the_lease(&mut rig, start, changes_with(seed)[at]);
        let times = seeds.map(|seed| time(start, seed));
        assert_eq!(BTreeSet::from(times).len(), times.len(), "{:?}: {times:?}", changes()[at]);
        let times = [0, 1, 2, 3].map(|secs| time(start.plus_secs(secs), 7));
        assert_eq!(BTreeSet::from(times).len(), times.len(), "{:?}: {times:?}", changes()[at]);
    }
}
