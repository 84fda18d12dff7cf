use super::*;
use crate::code::ReturnCode;
use crate::delta::{Instance, JoinError, JoinOutcome};
use crate::geometry::AlignSize;
use crate::machine::{IoFailure, LockspaceNow};
use crate::testing::{Fate, Finished};
use crate::verify::LeaderError;

fn run(lab: &mut Lab) -> Finished<JoinOutcome> {
    lab.run_noisy(&mut DeltaAcquire::new(config(), None))
}

fn instance(generation: u64, io_timeout: u32) -> Option<Instance> {
    (generation > 0).then(|| Instance { generation, io_timeout: timeout(io_timeout) })
}

fn code(outcome: &JoinOutcome) -> ReturnCode {
    ReturnCode::from(outcome.as_ref().unwrap_err())
}

#[test]
fn a_free_lease_takes_the_short_delay_and_the_specified_io() {
    let mut lab = lab();
    let start = lab.now;
    let joined = run(&mut lab).outcome.unwrap();
    // Sizes, own sector, write, and after 2T the check (lease-algorithms.md 16.1).
    assert_eq!(lab.brief(), [(0, 8), (0, 1), (0, -1), (0, 1)]);
    assert_eq!(lab.trace[3].at.millis_since(lab.trace[2].at), 2001);
    assert!(lab.now.millis_since(start) < 2100);
    assert_eq!(joined.generation(), 1);
    assert_eq!(joined.last_good, lab.trace[2].at);
    assert_eq!(record(&lab, 1), joined.leader);
    assert_eq!(joined.leader.timestamp.get(), joined.last_good.secs());
    assert_eq!(joined.leader.resource_name, name("alpha").to_field());
    assert_eq!(joined.leader.owner_id.get(), 1);
}

#[test]
fn the_record_keeps_what_the_join_does_not_know() {
    let mut lab = lab();
    edit(&mut lab, 1, |l| {
        l.version = 0x0003_0009.into();
        l.flags = 0xff00_0017.into();
        l.unused1 = 77.into();
        l.unused2 = 5.into();
        l.write_id = 1.into();
        l.write_generation = 2.into();
        l.write_timestamp = 3.into();
        l.owner_generation = 41.into();
    });
    let before = record(&lab, 1);
    let leader = run(&mut lab).outcome.unwrap().leader;
    assert_eq!((leader.version, leader.flags), (before.version, before.flags));
    assert_eq!((leader.unused1, leader.unused2), (before.unused1, before.unused2));
    assert_eq!((leader.write_id, leader.write_generation), (before.write_id, before.write_generation));
    assert_eq!(leader.owner_generation.get(), 42);
}

#[test]
fn the_sizes_on_disk_rule_and_every_pair_can_be_joined() {
    for geometry in Geometry::ALL {
        let mut lab = lab_with(geometry, 1);
        let config = DeltaConfig { host: host(u64::from(geometry.max_hosts())), ..config() };
        let joined = lab.run_noisy(&mut DeltaAcquire::new(config, None)).outcome.unwrap();
        assert_eq!(joined.geometry, geometry);
        let sector = lab.disk.sector(Place::Lockspace, geometry.sector(), config.host.delta_sector());
        assert_eq!(RawLeader::from_sector(&sector), joined.leader);
        let config = DeltaConfig { host: HostId::new(config.host.get() + 1).unwrap_or(host(2000)), ..config };
        if config.host.get() > u64::from(geometry.max_hosts()) {
            let refused = lab.run(&mut DeltaAcquire::new(config, None)).outcome;
            assert_eq!(code(&refused), ReturnCode::ADDLS_INVALID_HOSTID);
        }
    }
}

#[test]
fn what_is_wrong_with_the_area_is_told_by_code_and_nothing_is_written() {
    type Case = (fn(&mut Lab), i32);
    let cases: [Case; 13] = [
        (|lab| edit(lab, 1, |l| l.magic = 0.into()), -223),
        (|lab| edit(lab, 1, |l| l.version = 0x0004_0000.into()), -224),
        (|lab| edit(lab, 1, |l| l.version = 0x0005_0000.into()), -224),
        (|lab| edit(lab, 1, |l| l.sector_size = 1024.into()), -225),
        (|lab| edit(lab, 1, |l| l.flags = 0x80.into()), -230),
        (|lab| edit(lab, 1, |l| l.space_name = name("other").to_field()), -226),
        (|lab| edit(lab, 1, |l| l.flags = 0x18.into()), -283),
        (|lab| edit(lab, 1, |l| l.owner_generation = u64::MAX.into()), -229),
        (|lab| lab.disk.edit(Place::Lockspace, SectorSize::B512, 0, |s| s[57] ^= 1), -226),
        (|lab| lab.disk.edit(Place::Lockspace, SectorSize::B512, 0, |s| s[140] ^= 1), -229),
        (|lab| lab.disk.remove(Place::Lockspace), -19),
        (|lab| lab.fates(|_| Fate::fail(IoFailure::Os(5))), -5),
        (|lab| lab.fates(|_| Fate::never()), -202),
    ];
    for (i, (prepare, expected)) in cases.into_iter().enumerate() {
        let mut lab = lab();
        prepare(&mut lab);
        let finished = run(&mut lab);
        assert_eq!(code(&finished.outcome).0, expected, "case {i}: {:?}", finished.outcome);
        assert_eq!(finished.outstanding, 0);
        assert!(lab.trace.iter().all(|t| !t.op.is_write()), "case {i}");
    }
}

#[test]
fn wrong_sizes_in_the_first_record_do_not_lead_to_another_hosts_sector() {
    // disk-format.md 15, 9: the original joins host 17's record here.
    let mut lab = lab();
    edit(&mut lab, 1, |l| {
        l.sector_size = 4096.into();
        l.flags = 0x10.into();
    });
    let finished = lab.run(&mut DeltaAcquire::new(DeltaConfig { host: host(3), ..config() }, None));
    assert_eq!(finished.outcome, Err(JoinError::Leader(LeaderError::SectorSize { found: 512 })));
}

/// One bit of the first record's flags, and hosts from 251 on would not be there for who joins.
#[test]
fn a_wrong_align_size_in_the_first_record_is_noticed_by_the_own_one() {
    let joined = |id: u64, flags: u32| {
        let mut lab = lab_with(Geometry::new(SectorSize::B4096, AlignSize::M8).unwrap(), 1);
        lab.disk.edit(Place::Lockspace, SectorSize::B4096, host(id).delta_sector(), |sector| {
            let mut leader = RawLeader::from_sector(sector);
            leader.flags = flags.into();
            leader.seal();
            leader.encode(None, sector);
        });
        lab.run(&mut DeltaAcquire::new(DeltaConfig { host: host(3), ..config() }, None)).outcome
    };
    let (found, first) = (AlignSize::M8, AlignSize::M1);
    assert_eq!(joined(1, 0x90), Err(JoinError::Leader(LeaderError::OtherAlign { found, first })));
    // A record that says nothing of it is of any size.
    assert!(joined(3, 0).is_ok() && joined(1, 0).is_ok());
}

#[test]
fn our_own_name_is_taken_over_at_once_only_when_vouched_for_with_its_generation() {
    for (fast, at_least) in [(Some(3), 2), (None, 70), (Some(2), 70), (Some(4), 70)] {
        let mut lab = lab();
        edit(&mut lab, 1, held_by("alpha", 1, 3, 500));
        let start = lab.now;
        let joined = lab.run(&mut DeltaAcquire::new(config(), fast)).outcome.unwrap();
        assert_eq!(joined.generation(), 4);
        let took = lab.now.secs_since(start);
        assert!((at_least..at_least + 3).contains(&took), "{took}");
    }
}

/// Found by the simulator: a renewal of generation 1 landed long after generation 3 had been joined. Joining with 2 then, this host
/// seemed to be alive as the owner of what generation 3 had held, for ever.
#[test]
fn a_generation_known_to_have_been_used_is_not_used_again() {
    for (remembered, next) in [(0, 2), (1, 2), (3, 4)] {
        let mut lab = lab();
        edit(&mut lab, 1, held_by("alpha", 1, 1, 500));
        let mut join = DeltaAcquire::new(config(), None).remembering(instance(remembered, 1));
        assert_eq!(lab.run(&mut join).outcome.unwrap().generation(), next);
    }
}

/// A write of an earlier join of which nobody knows whether it will land: the generation in it is not used, whatever lies on disk by then, and
/// there is no instance to wait for.
#[test]
fn a_generation_that_was_claimed_in_doubt_is_not_used() {
    for (timestamp, claimed, next) in [(0, 0, 2), (0, 1, 2), (0, 2, 3), (0, 5, 6), (500, 2, 3)] {
        let mut lab = lab();
        edit(&mut lab, 1, held_by("alpha", 1, 1, timestamp));
        let start = lab.now;
        let mut join = DeltaAcquire::new(config(), None).remembering(instance(1, 1)).above(claimed);
        assert_eq!(lab.run(&mut join).outcome.unwrap().generation(), next);
        let write = lab.trace.iter().find(|t| t.op.is_write()).unwrap();
        assert_eq!(write.at.secs_since(start) > 0, timestamp != 0, "{claimed}");
    }
    let mut lab = lab();
    let outcome = lab.run(&mut DeltaAcquire::new(config(), None).above(u64::MAX)).outcome;
    assert_eq!(outcome, Err(JoinError::Generation { found: u64::MAX }));
}

/// What is written must be on record before, and the wait for somebody else is not made twice for that.
#[test]
fn a_generation_that_is_not_recorded_is_not_written() {
    for (timestamp, limit, refused) in
        [(0, 0, true), (0, 1, true), (0, 2, false), (500, 1, true), (500, 2, false)]
    {
        let mut lab = lab();
        edit(&mut lab, 1, held_by("alpha", 1, 1, timestamp));
        let start = lab.now;
        let outcome = lab.run(&mut DeltaAcquire::new(config(), None).recorded_up_to(limit)).outcome;
        if refused {
            let latest = instance(1, 1).unwrap();
            assert_eq!(outcome, Err(JoinError::Unrecorded { generation: 2, latest }));
            assert_eq!(code(&outcome), ReturnCode::GENERIC);
            assert_eq!(lab.now.secs_since(start), 0);
            assert!(lab.trace.iter().all(|t| !t.op.is_write()));
        } else {
            assert_eq!(outcome.unwrap().generation(), 2);
        }
    }
    // Somebody else has come and gone meanwhile.
    let mut lab = lab();
    edit(&mut lab, 1, held_by("beta", 1, 1, 500));
    lab.after_secs(5, |lab| edit(lab, 1, held_by("gamma", 1, 2, 0)));
    let outcome = lab.run(&mut DeltaAcquire::new(config(), None).recorded_up_to(2)).outcome;
    let latest = instance(2, 1).unwrap();
    assert_eq!(outcome, Err(JoinError::Unrecorded { generation: 3, latest }));
    assert!(lab.trace.iter().all(|t| !t.op.is_write()));
    // What it knows of and what it has seen are remembered together, so that an older release that lands before the next attempt is no end of them.
    for (remembered, io_timeout, latest) in [(5, 3, (5, 3)), (2, 3, (2, 3)), (2, 1, (2, 1)), (1, 3, (2, 1))] {
        let mut lab = lab_with(Geometry::B512_M1, 1);
        edit(&mut lab, 1, held_by("beta", 1, 2, 500));
        let join = DeltaAcquire::new(config(), None).remembering(instance(remembered, io_timeout));
        let outcome = lab.run(&mut join.recorded_up_to(1)).outcome;
        let latest = instance(latest.0, latest.1).unwrap();
        assert_eq!(outcome, Err(JoinError::Unrecorded { generation: latest.generation + 1, latest }));
    }
}

/// The release of generation 3 landed when generation 5 had been joined. Of that one it says nothing: without a proof that nothing is left
/// of it the join waits until it must be over.
#[test]
fn a_release_older_than_the_generation_that_is_remembered_frees_nothing() {
    for (remembered, fast, waits) in [(3, None, false), (5, None, true), (5, Some(5), false)] {
        let mut lab = lab();
        edit(&mut lab, 1, held_by("alpha", 1, 3, 0));
        let start = lab.now;
        let mut join = DeltaAcquire::new(config(), fast).remembering(instance(remembered, 1));
        assert_eq!(lab.run(&mut join).outcome.unwrap().generation(), remembered + 1);
        let write = lab.trace.iter().find(|t| t.op.is_write()).unwrap();
        assert_eq!(write.at.millis_since(start) > 69_000, waits, "{remembered}, {fast:?}");
    }
}

/// The same, where it lands while the later instance is being waited for.
#[test]
fn a_release_older_than_the_generation_that_was_seen_begins_the_wait_anew() {
    for (freed, waits) in [(5, false), (6, false), (4, true)] {
        let mut lab = lab();
        edit(&mut lab, 1, held_by("alpha", 1, 5, 500));
        let landed = lab.now.plus_secs(30);
        lab.at(landed, move |lab| edit(lab, 1, held_by("alpha", 1, freed, 0)));
        let mut join = DeltaAcquire::new(config(), None);
        assert_eq!(lab.run(&mut join).outcome.unwrap().generation(), freed.max(5) + 1);
        let write = lab.trace.iter().find(|t| t.op.is_write()).unwrap();
        assert_eq!(write.at.millis_since(landed) > 69_000, waits, "{freed}");
    }
}

/// The record may be of an earlier instance, brought back by a renewal that landed late, whose io timeout says nothing of the later one.
#[test]
fn an_instance_no_older_than_the_record_is_waited_for_by_its_own_io_timeout() {
    let cases =
        [(3, 500, 2, 77), (3, 0, 2, 0), (4, 500, 2, 77), (4, 0, 2, 77), (2, 500, 2, 69), (4, 500, 1, 69)];
    for (generation, timestamp, io_timeout, at_least) in cases {
        let mut lab = lab();
        edit(&mut lab, 1, held_by("alpha", 1, 3, timestamp));
        let start = lab.now;
        let mut join = DeltaAcquire::new(config(), None).remembering(instance(generation, io_timeout));
        assert_eq!(lab.run(&mut join).outcome.unwrap().generation(), generation.max(3) + 1);
        let write = lab.trace.iter().find(|t| t.op.is_write()).unwrap();
        let waited = write.at.millis_since(start) / 1000;
        assert_eq!(waited, at_least, "{generation}, {timestamp}, {io_timeout}");
    }
}

/// Of the two that may be hidden, the one that was remembered and the one that was seen, the later one counts, and the earlier one unless it must be over.
#[test]
fn what_is_remembered_and_what_was_seen_decide_how_long_an_older_release_is_not_believed() {
    let cases = [(4, 3, 1, 69), (5, 3, 1, 85), (5, 1, 3, 85), (6, 3, 1, 85), (6, 1, 1, 69), (6, 1, 3, 85)];
    for (remembered, io_timeout, found, at_least) in cases {
        let mut lab = lab();
        edit(&mut lab, 1, held_by("alpha", 1, 5, 500));
        edit(&mut lab, 1, |l| l.io_timeout = found.into());
        let landed = lab.now.plus_secs(30);
        lab.at(landed, |lab| {
            edit(lab, 1, held_by("alpha", 1, 4, 0));
            edit(lab, 1, |l| l.io_timeout = 1.into());
        });
        let mut join = DeltaAcquire::new(config(), None).remembering(instance(remembered, io_timeout));
        assert_eq!(lab.run(&mut join).outcome.unwrap().generation(), remembered.max(5) + 1);
        let write = lab.trace.iter().find(|t| t.op.is_write()).unwrap();
        let waited = write.at.millis_since(landed) / 1000;
        assert_eq!(waited, at_least, "{remembered}, {io_timeout}, {found}");
    }
}

/// A look that was never started, because too much else waited for that disk, is over: the next one is made.
#[test]
fn a_look_that_was_never_started_is_no_reason_not_to_look_again() {
    let mut lab = lab();
    edit(&mut lab, 1, held_by("beta", 1, 3, 500));
    let mut reads = 0;
    lab.fates(move |_| {
        reads += 1;
        if reads == 4 { Fate::fail(IoFailure::TimedOut) } else { Fate::prompt() }
    });
    let freed = lab.now.plus_secs(20);
    lab.at(freed, |lab| edit(lab, 1, held_by("beta", 1, 3, 0)));
    assert_eq!(run(&mut lab).outcome.unwrap().generation(), 4);
    let write = lab.trace.iter().find(|t| t.op.is_write()).unwrap();
    assert!(write.at.millis_since(freed) < 2_000, "seen by the next look");
}

#[test]
fn a_silent_owner_is_waited_for_longer_than_its_watchdog() {
    let mut lab = lab();
    edit(&mut lab, 1, held_by("beta", 1, 3, 500));
    let start = lab.now;
    assert_eq!(run(&mut lab).outcome.unwrap().generation(), 4);
    let write = lab.trace.iter().find(|t| t.op.is_write()).unwrap();
    assert!(write.at.millis_since(start) > 69_000, "more than 8T + F after the first look");
    // A look every second, and nothing else.
    let looks = lab.trace.iter().filter(|t| t.brief() == (0, 1)).count();
    assert!((69..=72).contains(&looks), "{looks}");
}

#[test]
fn both_waits_go_by_the_io_timeout_on_disk() {
    let mut lab = lab();
    let config = DeltaConfig { io_timeout: timeout(3), ..config() };
    let start = lab.now;
    let joined = lab.run_noisy(&mut DeltaAcquire::new(config, None)).outcome.unwrap();
    assert_eq!(lab.now.secs_since(start), 2, "2 s, not 6");
    assert_eq!(joined.leader.io_timeout.get(), 3);

    // 0 means ours.
    edit(&mut lab, 1, |l| {
        l.timestamp = 0.into();
        l.io_timeout = 0.into();
    });
    let start = lab.now;
    lab.run(&mut DeltaAcquire::new(config, None)).outcome.unwrap();
    assert_eq!(lab.now.secs_since(start), 6);
}

#[test]
fn a_settling_time_longer_than_our_own_life_is_bridged_by_renewals() {
    // Formatted for 10 s, joined with 1 s: 20 s of settling, while our lease counts as failed after 8.
    let mut lab = lab_with(Geometry::B512_M1, 10);
    let start = lab.now;
    let joined = run(&mut lab).outcome.unwrap();
    assert!(lab.now.secs_since(start) >= 20);
    assert!(lab.now.secs_since(joined.last_good) <= 4);
    assert_eq!(record(&lab, 1), joined.leader);
    let writes: Vec<_> = lab.trace.iter().filter(|t| t.op.is_write()).map(|t| t.at).collect();
    assert!(writes.windows(2).all(|w| w[1].millis_since(w[0]) <= 3000), "{writes:?}");
    assert_eq!(joined.generation(), 1);
}

#[test]
fn a_live_owner_is_noticed_within_a_second_of_its_renewal() {
    let mut lab = lab();
    edit(&mut lab, 1, held_by("beta", 1, 3, 500));
    lab.after_secs(20, |lab| edit(lab, 1, |l| l.timestamp = 520.into()));
    let start = lab.now;
    let finished = run(&mut lab);
    assert_eq!(finished.outcome, Err(JoinError::Busy { owner: name("beta"), generation: 3 }));
    assert_eq!(code(&finished.outcome), ReturnCode::HOSTID_BUSY);
    assert!(lab.now.millis_since(start) <= 21_010);
    assert!(lab.trace.iter().all(|t| !t.op.is_write()));
}

#[test]
fn a_lease_that_becomes_free_is_taken_at_once() {
    let mut lab = lab();
    edit(&mut lab, 1, held_by("beta", 1, 3, 500));
    lab.after_secs(20, |lab| edit(lab, 1, |l| l.timestamp = 0.into()));
    let start = lab.now;
    assert_eq!(run(&mut lab).outcome.unwrap().generation(), 4);
    assert!(lab.now.secs_since(start) <= 24);
}

#[test]
fn failed_looks_neither_end_the_wait_nor_shorten_it() {
    let mut lab = lab();
    edit(&mut lab, 1, held_by("beta", 1, 3, 500));
    let mut n = 0;
    lab.fates(move |_| {
        n += 1;
        match n {
            3..=20 => Fate::fail(IoFailure::Os(5)),
            21 => Fate::after(30_000),
            _ => Fate::prompt(),
        }
    });
    let start = lab.now;
    run(&mut lab).outcome.unwrap();
    let write = lab.trace.iter().find(|t| t.op.is_write()).unwrap();
    assert!(write.at.millis_since(start) > 69_000);
    // While one look hangs no further one is started.
    let hung = lab.trace[20].at;
    let gap = lab.trace[21].at.millis_since(hung);
    assert!((30_000..32_000).contains(&gap), "{gap}");
}

#[test]
fn the_last_look_must_succeed() {
    let mut lab = lab();
    edit(&mut lab, 1, held_by("beta", 1, 3, 500));
    lab.after_secs(60, |lab| lab.fates(|_| Fate::never()));
    let finished = run(&mut lab);
    assert_eq!(code(&finished.outcome), ReturnCode::AIO_TIMEOUT);
    assert!(lab.trace.iter().all(|t| !t.op.is_write()));
}

#[test]
fn of_two_that_saw_the_lease_free_the_last_writer_wins() {
    let mut lab = lab();
    lab.after_secs(1, |lab| edit(lab, 1, held_by("beta", 1, 1, 7000)));
    let finished = run(&mut lab);
    assert_eq!(finished.outcome, Err(JoinError::Lost { owner: name("beta"), generation: 1 }));
    assert_eq!(code(&finished.outcome), ReturnCode::HOSTID_BUSY);
    assert_eq!(record(&lab, 1).timestamp.get(), 7000, "the winner's record is left alone");
}

#[test]
fn stopped_during_the_long_wait_nothing_was_written() {
    for shutdown in [false, true] {
        let mut lab = lab();
        edit(&mut lab, 1, held_by("beta", 1, 3, 500));
        lab.after_secs(5, move |lab| match shutdown {
            true => lab.shutting_down = true,
            false => lab.lockspace = LockspaceNow::Gone,
        });
        let start = lab.now;
        let finished = run(&mut lab);
        assert_eq!(finished.outcome, Err(JoinError::Stopped { freed: true }));
        assert_eq!(code(&finished.outcome), ReturnCode::ERROR);
        assert_eq!(lab.now.secs_since(start), 5);
        assert!(lab.trace.iter().all(|t| !t.op.is_write()));
    }
}

#[test]
fn stopped_during_the_short_delay_the_lease_is_free_again() {
    let mut lab = lab();
    lab.after_secs(1, |lab| lab.lockspace = LockspaceNow::Gone);
    let finished = run(&mut lab);
    assert_eq!(finished.outcome, Err(JoinError::Stopped { freed: true }));
    assert_eq!(record(&lab, 1).timestamp.get(), 0);
    assert_eq!(record(&lab, 1).owner_generation.get(), 1);
    // The next join has nothing to wait for.
    lab.lockspace = LockspaceNow::Alive { generation: 0 };
    let start = lab.now;
    assert_eq!(run(&mut lab).outcome.unwrap().generation(), 2);
    assert!(lab.now.secs_since(start) <= 3);
}

#[test]
fn stopped_while_the_write_is_running_it_is_freed_when_the_write_is_done() {
    let mut lab = lab();
    lab.fates(|op| if op.is_write() { Fate::after(900) } else { Fate::prompt() });
    lab.at(lab.now.plus_millis(500), |lab| lab.shutting_down = true);
    assert_eq!(run(&mut lab).outcome, Err(JoinError::Stopped { freed: true }));
    assert_eq!(record(&lab, 1).timestamp.get(), 0);
}

#[test]
fn freeing_again_never_destroys_another_hosts_claim() {
    let mut lab = lab();
    lab.after_secs(1, |lab| {
        edit(lab, 1, held_by("beta", 1, 1, 7000));
        lab.lockspace = LockspaceNow::Gone;
    });
    assert_eq!(run(&mut lab).outcome, Err(JoinError::Stopped { freed: true }));
    assert_eq!(record(&lab, 1).timestamp.get(), 7000);
}

#[test]
fn a_write_that_times_out_ends_the_join_and_is_reported_outstanding() {
    let mut lab = lab();
    lab.fates(|op| if op.is_write() { Fate::after(5000) } else { Fate::prompt() });
    let mut machine = DeltaAcquire::new(config(), None);
    let finished = lab.run(&mut machine);
    assert_eq!(finished.outcome, Err(JoinError::Write(IoFailure::TimedOut)));
    assert_eq!(finished.outstanding, 1);
    assert_eq!(record(&lab, 1).timestamp.get(), 0);
    lab.pass(&mut machine, 10);
    assert_ne!(
        record(&lab, 1).timestamp.get(),
        0,
        "it landed late: the lease stays owned until somebody waits"
    );
}

#[test]
fn in_the_first_second_of_the_clock_nothing_is_written() {
    let mut lab = lab();
    lab.now = MonoTime::from_millis(10);
    let joined = run(&mut lab).outcome.unwrap();
    assert_eq!(joined.leader.timestamp.get(), 1, "0 would mean free");
}

#[test]
fn a_host_name_fills_its_field_with_zeros() {
    let full = Name::new(&[b'n'; 48]).unwrap();
    let mut lab = lab();
    let joined =
        lab.run(&mut DeltaAcquire::new(DeltaConfig { host_name: full, ..config() }, None)).outcome.unwrap();
    assert_eq!(joined.leader.resource_name, [b'n'; 48], "all 48 bytes");
    edit(&mut lab, 1, |l| l.timestamp = 0.into());
    let joined = run(&mut lab).outcome.unwrap();
    assert_eq!(joined.leader.resource_name, name("alpha").to_field(), "nothing of the longer name is left");
    assert_eq!(joined.leader.resource_name[5..], [0; 43]);
}
