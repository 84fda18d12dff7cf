use super::*;
use crate::code::ReturnCode;
use crate::delta::renew::{Event, RenewFailure, RenewOutcome, Renewal, Renewed};
use crate::delta::{DeltaRelease, LeaveError};
use crate::machine::{Content, IoFailure};
use crate::record::Bitmap;
use crate::testing::{Fate, Noisy};
use proptest::prelude::*;

/// A joined lockspace and its renewals, with an empty trace.
fn joined() -> (Lab, Renewal) {
    let mut lab = lab();
    let joined = join(&mut lab);
    lab.trace.clear();
    let mut renewal = Renewal::new(config(), &joined);
    lab.another_machine();
    // Makes the lab deliver between the runs, as the first `run` would.
    assert!(lab.pass(&mut renewal, 0).is_none());
    (lab, renewal)
}

fn attempt(lab: &mut Lab, renewal: &mut Renewal) -> RenewOutcome {
    lab.now = lab.now.max(renewal.due());
    lab.rerun(&mut Noisy(renewal)).outcome
}

fn renewed(outcome: RenewOutcome) -> Renewed {
    match outcome {
        RenewOutcome::Renewed(r) => r,
        other => panic!("{other:?}"),
    }
}

fn corrupt_code(outcome: RenewOutcome) -> i32 {
    match outcome {
        RenewOutcome::Corrupt(c) => ReturnCode::from(&c).0,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_renewal_reads_and_writes_our_sector_and_nothing_else() {
    let (mut lab, mut renewal) = joined();
    let mut bitmap = Bitmap::default();
    bitmap.set(host(9));
    renewal.set_outgoing(Event { generation: 4, event: 7, data: 99 }, bitmap);
    let before = renewal.last_good();
    assert_eq!(renewal.due(), secs(before.secs() + 2));
    let good = renewed(attempt(&mut lab, &mut renewal));
    assert_eq!(lab.brief(), [(0, 1), (0, -1)]);
    let limit = lab.trace[1].op.deadline.millis_since(lab.trace[1].at);
    assert_eq!(limit, 68_000, "8T + F");
    assert_eq!(good.last_good, lab.trace[1].at, "taken before the write");
    assert_eq!((renewal.last_good(), good.late_read, good.late_write), (good.last_good, false, false));
    assert_eq!((good.read_ms, good.write_ms, good.foreign_io_timeout), (1, 1, None));
    let on_disk = record(&lab, 1);
    assert_eq!(on_disk.timestamp.get(), good.last_good.secs());
    let event = (on_disk.write_id.get(), on_disk.write_generation.get(), on_disk.write_timestamp.get());
    assert_eq!(event, (4, 7, 99));
    let sector = lab.disk.sector(Place::Lockspace, SectorSize::B512, 0);
    assert_eq!(Bitmap::from_sector(&sector).hosts().collect::<Vec<_>>(), [host(9)]);

    // Set back, it is gone from the next record.
    renewal.set_outgoing(Event::default(), Bitmap::default());
    renewed(attempt(&mut lab, &mut renewal));
    assert_eq!(record(&lab, 1).write_generation.get(), 0);
}

#[test]
fn many_renewals_in_a_row_are_2t_apart() {
    let (mut lab, mut renewal) = joined();
    for _ in 0..50 {
        let before = renewal.last_good();
        let good = renewed(attempt(&mut lab, &mut renewal));
        assert_eq!(good.last_good.secs_since(before), 2);
    }
}

#[test]
fn contents_that_are_not_ours_are_the_end() {
    type Case = (fn(&mut Lab), i32);
    let cases: [Case; 12] = [
        (|lab| edit(lab, 1, |l| l.magic = 0.into()), -223),
        (|lab| edit(lab, 1, |l| l.version = 0x0005_0000.into()), -224),
        (|lab| edit(lab, 1, |l| l.sector_size = 4096.into()), -225),
        (|lab| edit(lab, 1, |l| l.space_name = name("x").to_field()), -226),
        (|lab| lab.disk.edit(Place::Lockspace, SectorSize::B512, 0, |s| s[168] ^= 1), -229),
        (|lab| edit(lab, 1, |l| l.owner_id = 2.into()), -260),
        (|lab| edit(lab, 1, |l| l.owner_generation = 2.into()), -260),
        (|lab| edit(lab, 1, |l| l.resource_name = name("beta").to_field()), -260),
        (|lab| edit(lab, 1, |l| l.resource_name[47] = b'x'), -260),
        (|lab| edit(lab, 1, |l| l.timestamp = 0.into()), -261),
        (|lab| edit(lab, 1, |l| l.write_id = 5.into()), -261),
        (|lab| edit(lab, 1, |l| l.flags = 0x18.into()), -261),
    ];
    for (i, (damage, code)) in cases.into_iter().enumerate() {
        let (mut lab, mut renewal) = joined();
        renewed(attempt(&mut lab, &mut renewal));
        damage(&mut lab);
        let there = record(&lab, 1);
        let outcome = attempt(&mut lab, &mut renewal);
        assert_eq!(corrupt_code(outcome), code, "case {i}");
        // For good, without any further I/O, even if the contents were right again (W12).
        edit(&mut lab, 1, |l| *l = there);
        let done = lab.trace.len();
        assert_eq!(attempt(&mut lab, &mut renewal), outcome);
        assert_eq!(lab.trace.len(), done);
        assert!(renewal.release().is_none());
        assert!(renewal.corrupt().is_some());
    }
}

#[test]
fn after_a_failed_read_the_record_must_still_be_the_one_we_wrote() {
    // Stricter than the reference, which skips this comparison after any failure.
    let (mut lab, mut renewal) = joined();
    lab.fates(|_| Fate::fail(IoFailure::Os(5)));
    let outcome = attempt(&mut lab, &mut renewal);
    assert_eq!(outcome, RenewOutcome::Failed(RenewFailure::Read(IoFailure::Os(5))));
    assert!(renewal.release().is_none(), "not after a failed renewal");
    assert_eq!(renewal.due(), lab.now.plus_millis(500));
    lab.no_faults();
    edit(&mut lab, 1, |l| l.timestamp = 1.into());
    assert_eq!(corrupt_code(attempt(&mut lab, &mut renewal)), -261);
}

#[test]
fn after_a_failed_write_either_record_is_accepted_but_no_other_owner() {
    for landed in [false, true] {
        let (mut lab, mut renewal) = joined();
        lab.fates(move |op| match op.is_write() {
            true => Fate { lands_ms: landed.then_some(1), ..Fate::fail(IoFailure::Os(5)) },
            false => Fate::prompt(),
        });
        let before = renewal.last_good();
        let outcome = attempt(&mut lab, &mut renewal);
        assert_eq!(outcome, RenewOutcome::Failed(RenewFailure::Write(IoFailure::Os(5))));
        assert_eq!(renewal.last_good(), before, "a failed write is no renewal");
        lab.no_faults();
        renewed(attempt(&mut lab, &mut renewal));
        assert!(renewal.last_good() > before);
    }
    let (mut lab, mut renewal) = joined();
    lab.fates(|op| if op.is_write() { Fate::fail(IoFailure::Os(5)) } else { Fate::prompt() });
    attempt(&mut lab, &mut renewal);
    lab.no_faults();
    edit(&mut lab, 1, held_by("beta", 1, 2, 9));
    assert_eq!(corrupt_code(attempt(&mut lab, &mut renewal)), -260);
}

#[test]
fn a_late_read_is_used_when_it_completes_during_the_extension() {
    let (mut lab, mut renewal) = joined();
    lab.fates(|op| if op.is_write() { Fate::prompt() } else { Fate::after(2000) });
    let outcome = attempt(&mut lab, &mut renewal);
    assert_eq!(outcome, RenewOutcome::Failed(RenewFailure::Read(IoFailure::TimedOut)));
    let good = renewed(attempt(&mut lab, &mut renewal));
    assert!(good.late_read);
    assert_eq!(good.read_ms, 2000);
    assert_eq!(lab.brief(), [(0, 1), (0, -1)], "no second read");
}

#[test]
fn a_late_read_that_completes_in_the_pause_is_used_at_once() {
    let (mut lab, mut renewal) = joined();
    lab.fates(|op| if op.is_write() { Fate::prompt() } else { Fate::after(1200) });
    attempt(&mut lab, &mut renewal);
    lab.pass(&mut renewal, 1);
    let good = renewed(attempt(&mut lab, &mut renewal));
    assert_eq!((good.late_read, good.read_ms), (true, 1200));
    assert_eq!(lab.brief(), [(0, 1), (0, -1)]);
}

#[test]
fn a_read_that_stays_away_is_given_up_after_the_extension() {
    let (mut lab, mut renewal) = joined();
    let mut reads = 0;
    lab.fates(move |op| {
        reads += u32::from(!op.is_write());
        if reads == 1 { Fate::never() } else { Fate::prompt() }
    });
    let start = {
        attempt(&mut lab, &mut renewal);
        lab.now
    };
    let good = renewed(attempt(&mut lab, &mut renewal));
    assert!(!good.late_read);
    // Pause 0.5 s, extension 1 s, then a read anew (lease-algorithms.md 2.5).
    assert_eq!(lab.trace[1].at.millis_since(start), 1500);

    // Configured 0 means half a second.
    let (mut lab, mut renewal) = joined();
    renewal.set_read_extend_secs(0);
    lab.fates(|_| Fate::never());
    attempt(&mut lab, &mut renewal);
    let failed = lab.now;
    attempt(&mut lab, &mut renewal);
    assert_eq!(lab.trace[1].at.millis_since(failed), 1000);
}

#[test]
fn data_from_before_a_standstill_are_not_written_upon() {
    let (mut lab, mut renewal) = joined();
    lab.fates(|op| if op.is_write() { Fate::prompt() } else { Fate::after(1200) });
    attempt(&mut lab, &mut renewal);
    lab.pass(&mut renewal, 100); // the read completed, then this program stood still
    edit(&mut lab, 1, held_by("beta", 1, 2, 9));
    lab.no_faults();
    assert_eq!(corrupt_code(attempt(&mut lab, &mut renewal)), -260);
    assert!(lab.trace.iter().all(|t| !t.op.is_write()));
}

#[test]
fn a_slow_write_is_waited_for_and_counts_from_when_it_was_submitted() {
    let (mut lab, mut renewal) = joined();
    lab.fates(|op| if op.is_write() { Fate::after(30_000) } else { Fate::prompt() });
    let good = renewed(attempt(&mut lab, &mut renewal));
    assert_eq!(good.write_ms, 30_000);
    assert_eq!(lab.now.secs_since(good.last_good), 30);
    assert_eq!(record(&lab, 1).timestamp.get(), good.last_good.secs());
}

#[test]
fn while_a_write_is_outstanding_no_second_one_is_issued() {
    let (mut lab, mut renewal) = joined();
    let mut writes = 0;
    lab.fates(move |op| {
        writes += u32::from(op.is_write());
        if op.is_write() && writes == 1 { Fate::after(100_000) } else { Fate::prompt() }
    });
    let before = renewal.last_good();
    let outcome = attempt(&mut lab, &mut renewal);
    assert_eq!(outcome, RenewOutcome::Failed(RenewFailure::Write(IoFailure::TimedOut)));
    assert!(renewal.write_outstanding() && renewal.release().is_none());
    let submitted = lab.trace[1].at;

    for _ in 0..10 {
        let outcome = attempt(&mut lab, &mut renewal);
        assert_eq!(outcome, RenewOutcome::Failed(RenewFailure::WriteOutstanding));
    }
    assert_eq!(lab.trace.iter().filter(|t| t.op.is_write()).count(), 1);
    assert_eq!(renewal.last_good(), before);

    // It completes between attempts: a renewal, of the time it carries.
    let late = lab.pass(&mut renewal, 60).unwrap();
    let good = renewed(late.outcome);
    assert!(good.late_write);
    assert_eq!((good.last_good, renewal.last_good(), late.outstanding), (submitted, submitted, 0));
    assert_eq!(record(&lab, 1).timestamp.get(), submitted.secs());
    // And the next attempt knows exactly what is on disk.
    renewed(attempt(&mut lab, &mut renewal));
}

#[test]
fn a_write_that_completes_late_during_an_attempt_makes_it_read_anew() {
    let (mut lab, mut renewal) = joined();
    let mut ops = 0;
    lab.fates(move |op| {
        ops += 1;
        match (ops, op.is_write()) {
            (2, true) => Fate::after(68_700),       // lands 0.2 s into the read below
            (3, false) => Fate::after(900).stale(), // which shows the old record
            _ => Fate::prompt(),
        }
    });
    attempt(&mut lab, &mut renewal);
    let submitted = lab.trace[1].at;
    let good = renewed(attempt(&mut lab, &mut renewal));
    assert_eq!(lab.brief()[2..], [(0, 1), (0, 1), (0, -1)], "read, read anew, write");
    assert!(good.last_good > submitted);
    assert!(!good.late_write);
}

#[test]
fn a_foreign_host_seen_while_our_write_is_outstanding_ends_everything() {
    let (mut lab, mut renewal) = joined();
    lab.fates(|op| if op.is_write() { Fate::after(100_000) } else { Fate::prompt() });
    attempt(&mut lab, &mut renewal);
    edit(&mut lab, 1, held_by("beta", 1, 2, 9));
    assert_eq!(corrupt_code(attempt(&mut lab, &mut renewal)), -260);
    let before = renewal.last_good();
    assert!(lab.pass(&mut renewal, 100).is_none(), "the late write is no renewal any more");
    assert_eq!(renewal.last_good(), before);
    assert!(!renewal.write_outstanding());
}

/// Found by the simulator: a renewal of machine A hung for so long that machine B, configured with the same host id, took it; then it
/// landed over B's record. A found its own record, did not wait, and took the generation that B had.
#[test]
fn a_write_that_ended_when_others_might_have_the_lease_makes_our_record_no_proof() {
    for (ends_after_ms, outstanding, sole) in
        [(60_000, false, true), (69_000, true, false), (100_000, true, false)]
    {
        let (mut lab, mut renewal) = joined();
        let end = renewal.last_good().plus_secs(68); // 8T + F
        assert_eq!(renewal.sole_if_ended_before(), None);
        lab.fates(move |op| if op.is_write() { Fate::after(ends_after_ms) } else { Fate::prompt() });
        attempt(&mut lab, &mut renewal);
        assert_eq!(renewal.sole_if_ended_before(), outstanding.then_some(end), "{ends_after_ms} ms");
        lab.pass(&mut renewal, 110);
        assert_eq!(renewal.sole_if_ended_before().is_none(), sole, "{ends_after_ms} ms");
    }
}

#[test]
fn another_io_timeout_on_disk_is_told_and_replaced() {
    let (mut lab, mut renewal) = joined();
    lab.fates(|op| if op.is_write() { Fate::fail(IoFailure::Os(5)) } else { Fate::prompt() });
    attempt(&mut lab, &mut renewal); // so that the record is not compared
    lab.no_faults();
    edit(&mut lab, 1, |l| l.io_timeout = 20.into());
    assert_eq!(renewed(attempt(&mut lab, &mut renewal)).foreign_io_timeout, Some(20));
    assert_eq!(record(&lab, 1).io_timeout.get(), 1);
}

#[test]
fn release_frees_the_record_and_changes_nothing_else() {
    let (mut lab, mut renewal) = joined();
    let mut bitmap = Bitmap::default();
    bitmap.set(host(9));
    renewal.set_outgoing(Event { generation: 4, event: 7, data: 99 }, bitmap);
    renewed(attempt(&mut lab, &mut renewal));
    let before = record(&lab, 1);
    let finished = lab.run_noisy(&mut renewal.release().unwrap());
    assert_eq!((finished.outcome, finished.outstanding), (Ok(()), 0));
    let mut expected = before;
    expected.timestamp = 0.into();
    expected.seal();
    assert_eq!(record(&lab, 1), expected);
    let sector = lab.disk.sector(Place::Lockspace, SectorSize::B512, 0);
    assert_eq!(Bitmap::from_sector(&sector), Bitmap::default(), "bitmap zero");
}

#[test]
fn release_destroys_no_claim_of_another_host() {
    let (mut lab, renewal) = joined();
    let mut release = renewal.release().unwrap();
    edit(&mut lab, 1, held_by("beta", 1, 2, 9));
    assert_eq!(lab.run_noisy(&mut release).outcome, Err(LeaveError::Changed));
    assert!(lab.trace.iter().all(|t| !t.op.is_write()));

    // Too old to be sure that nobody is about to take it.
    let (mut lab, renewal) = joined();
    let mut release = renewal.release().unwrap();
    lab.now = lab.now.plus_secs(8);
    assert!(matches!(lab.run_noisy(&mut release).outcome, Err(LeaveError::TooOld { .. })));
    assert!(lab.trace.is_empty());
}

#[test]
fn a_release_that_times_out_is_reported_outstanding() {
    let (mut lab, renewal) = joined();
    let mut release: DeltaRelease = renewal.release().unwrap();
    lab.fates(|op| if op.is_write() { Fate::never() } else { Fate::prompt() });
    let finished = lab.run_noisy(&mut release);
    assert_eq!(finished.outcome, Err(LeaveError::Write(IoFailure::TimedOut)));
    assert_eq!(finished.outstanding, 1);
}

#[test]
fn every_record_written_has_the_right_checksum() {
    let (mut lab, mut renewal) = joined();
    renewed(attempt(&mut lab, &mut renewal));
    lab.run_noisy(&mut renewal.release().unwrap()).outcome.unwrap();
    for written in lab.trace.iter().filter_map(crate::testing::Traced::written) {
        let Content::Delta { leader, .. } = written else { panic!("{written:?}") };
        assert_eq!(leader.checksum.get(), leader.computed_checksum());
    }
}

/// An attempt that finds a read of the one before, which came late and is `age` milliseconds old by now.
fn attempt_after_a_late_read(lab: &mut Lab, renewal: &mut Renewal, age: u64) -> Renewed {
    lab.fates(|op| if op.is_write() { Fate::prompt() } else { Fate::after(1200) });
    attempt(lab, renewal);
    let submitted = lab.trace[0].at;
    lab.pass(renewal, 1);
    lab.no_faults();
    lab.now = submitted.plus_millis(age);
    renewed(attempt(lab, renewal))
}

#[test]
fn a_late_read_is_used_as_long_as_an_undisturbed_attempt_can_take_and_2t_more() {
    for (age, reads) in [(4500, 1), (4501, 2)] {
        let (mut lab, mut renewal) = joined();
        let good = attempt_after_a_late_read(&mut lab, &mut renewal, age);
        // 3T, the extension of T, and the pause: 4.5 s.
        assert_eq!(good.late_read, reads == 1, "{age} ms");
        assert_eq!(lab.trace.iter().filter(|t| !t.op.is_write()).count(), reads, "{age} ms");
    }
}

#[test]
fn the_extension_can_be_configured_in_seconds() {
    let (mut lab, mut renewal) = joined();
    renewal.set_read_extend_secs(3);
    lab.fates(|_| Fate::never());
    attempt(&mut lab, &mut renewal);
    let failed = lab.now;
    attempt(&mut lab, &mut renewal);
    assert_eq!(lab.trace[1].at.millis_since(failed), 3500, "after the pause");
}

#[test]
fn however_long_the_extension_a_read_that_is_lost_does_not_cost_the_lockspace() {
    for extend in [3, 4, 5, 6, 60, 3600, u32::MAX] {
        let (mut lab, mut renewal) = joined();
        renewal.set_read_extend_secs(extend);
        let mut reads = 0;
        lab.fates(move |op| {
            reads += u32::from(!op.is_write());
            if reads == 1 { Fate::never() } else { Fate::prompt() }
        });
        let before = renewal.last_good();
        attempt(&mut lab, &mut renewal);
        let good = renewed(attempt(&mut lab, &mut renewal));
        assert!(!good.late_read);
        // Wanted at 2T, given up at 3T, and waited for 3T after the pause; the lockspace fails at 8T.
        let age = good.last_good.millis_since(before);
        assert!((6_500..6_600).contains(&age), "extension of {extend} s: {age} ms");
    }
}

#[test]
fn however_long_the_extension_data_that_others_may_have_changed_are_not_written_upon() {
    // 3T, 3T of extension, and the pause.
    for (age, late) in [(6_500, true), (6_501, false), (68_000, false)] {
        let (mut lab, mut renewal) = joined();
        renewal.set_read_extend_secs(3600);
        let good = attempt_after_a_late_read(&mut lab, &mut renewal, age);
        assert_eq!(good.late_read, late, "{age} ms");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever is configured, however slow the reads, and wherever the program stands still.
    #[test]
    fn no_write_relies_on_data_as_old_as_others_wait(
        extend in prop_oneof![0..10_u32, any::<u32>()],
        reads_ms in proptest::collection::vec(1..90_000_u64, 8),
        standstills_ms in proptest::collection::vec(prop_oneof![Just(0), 0..100_000_u64], 8),
    ) {
        let (mut lab, mut renewal) = joined();
        renewal.set_read_extend_secs(extend);
        let mut times = reads_ms.into_iter().cycle();
        lab.fates(move |op| match op.is_write() {
            true => Fate::prompt(),
            false => Fate::after(times.next().unwrap_or(1)),
        });
        for standstill in standstills_ms {
            lab.now = lab.now.plus_millis(standstill);
            let RenewOutcome::Renewed(good) = attempt(&mut lab, &mut renewal) else { continue };
            let reads = lab.trace.iter().rev().filter(|t| !t.op.is_write());
            let oldest = reads.map(|t| good.last_good.millis_since(t.at)).find(|age| *age >= good.read_ms);
            prop_assert!(oldest.is_some_and(|age| age <= 6_500), "{oldest:?} {good:?}");
        }
    }
}

#[test]
fn a_renewal_knows_its_generation() {
    let mut lab = lab();
    edit(&mut lab, 1, |l| l.owner_generation = 6.into());
    let joined = join(&mut lab);
    assert_eq!(Renewal::new(config(), &joined).generation(), 7);
}

#[test]
fn nothing_is_released_while_an_attempt_runs() {
    use crate::machine::{Env, Input, LockspaceNow, Machine, NoHosts};
    let (lab, mut renewal) = joined();
    assert!(renewal.release().is_some());
    let lockspace = LockspaceNow::Alive { generation: 1 };
    let env = Env { lockspace, client_alive: true, shutting_down: false, hosts: &NoHosts };
    let _ = renewal.step(lab.now, &env, Input::Start);
    assert!(renewal.release().is_none());
}

#[test]
fn what_counts_as_a_timeout_in_the_history() {
    let failures = [
        (RenewFailure::Read(IoFailure::TimedOut), true),
        (RenewFailure::Write(IoFailure::TimedOut), true),
        (RenewFailure::WriteOutstanding, true),
        (RenewFailure::Read(IoFailure::Os(5)), false),
        (RenewFailure::Write(IoFailure::Short), false),
    ];
    for (failure, timeout) in failures {
        assert_eq!(failure.is_timeout(), timeout, "{failure}");
    }
}

#[test]
fn a_release_whose_read_times_out_writes_nothing_and_is_not_started_twice() {
    let (mut lab, renewal) = joined();
    let mut release = renewal.release().unwrap();
    lab.fates(|_| Fate::never());
    let finished = lab.run_noisy(&mut release);
    assert_eq!(finished.outcome, Err(LeaveError::Read(IoFailure::TimedOut)));
    assert_eq!((finished.outstanding, lab.trace.len()), (0, 1));
    assert_eq!(lab.run(&mut release).outcome, Err(LeaveError::Driver));
}
