//! The lease has an owner: alive, failing, dead, reborn, gone (lease-algorithms.md 4.3, 4.4).

use super::disks::{disk, lab3, three};
use super::*;
use crate::machine::NoHosts;

/// Host 2 owns the lease with generation 1, at version 5; its delta lease says 900.
pub(super) fn owned_lab() -> Lab {
    lab(leader(5, owned_by(2, 1)))
}

fn secs_taken(lab: &Lab, done: &Finished<AcquireOutcome>) -> u64 {
    done.at.secs_since(lab.trace[0].at)
}

#[test]
fn an_owner_whose_timestamp_changed_since_the_last_scan_is_alive() {
    let mut lab = owned_lab();
    lab.hosts = seen(2, 1, 800, 980, 990);
    put_delta(&mut lab, 2, delta(2, 1, 905));
    let done = acquire_plain(&mut lab);
    let (error, code, retract) = failure(&done);
    assert_eq!((code, retract), (-243, false));
    let AcquireError::Live(info) = error else { panic!("{error}") };
    assert_eq!((info.host_id, info.generation, info.timestamp, info.lver), (2, 1, 500, 5));
    assert_eq!(lab.brief(), [(0, 1), (2, 1), (1, 1)]);
    assert_eq!(lab.trace[2].op.place, Place::Lockspace);
}

#[test]
fn an_owner_seen_to_change_by_the_last_scan_is_alive() {
    let mut lab = owned_lab();
    lab.hosts = seen(2, 1, 800, 990, 990);
    assert_eq!(code(&acquire_plain(&mut lab)), -243);
    assert_eq!(lab.brief().len(), 3);
}

/// Weakness W11: right after a join everybody's first record looks "changed".
#[test]
fn a_first_look_is_no_sign_of_life() {
    let mut lab = owned_lab();
    lab.hosts = seen(2, 1, 990, 990, 990);
    assert_eq!(code(&acquire(&mut lab, nowait())), -247);
}

#[test]
fn a_silent_owner_is_not_waited_for_if_the_caller_says_so() {
    // Known from the table: at once. Not known: after a second look, which comes soon.
    let rows = [(seen(2, 1, 800, 950, 990), 2), (Rc::new(NoHosts) as Rc<dyn HostView>, 14)];
    for (hosts, millis) in rows {
        let mut lab = owned_lab();
        lab.hosts = hosts;
        let done = acquire(&mut lab, nowait());
        assert_eq!(code(&done), -247);
        assert_eq!(done.at, lab.trace[0].at.plus_millis(millis));
        assert!(writes(&lab).is_empty());
    }
}

/// When each look at the owner's host_id lease began, in milliseconds since the first.
fn looks(lab: &Lab) -> Vec<u64> {
    let all: Vec<MonoTime> =
        lab.trace.iter().filter(|t| t.op.place == Place::Lockspace).map(|t| t.at).collect();
    all.iter().map(|at| at.millis() - all[0].millis()).collect()
}

/// As a rule a silent owner lives, and gives the lease up soon: the first looks come quickly, then one a second.
#[test]
fn looks_at_a_silent_owner_come_ever_later() {
    let mut lab = owned_lab();
    held(&acquire_plain(&mut lab));
    let looks = looks(&lab);
    let pauses: Vec<u64> = looks.windows(2).map(|w| w[1] - w[0]).collect();
    // Besides the pause a look takes a read of the leader and one of the host_id lease.
    assert_eq!(pauses[..7], [12, 22, 42, 82, 162, 322, 642]);
    assert!(pauses[7..].iter().all(|pause| *pause == 1002), "{pauses:?}");
    assert!(pauses.len() > 140);
}

/// A lease that passes between silent owners does not use an attempt's rounds up in a moment.
#[test]
fn an_attempt_that_starts_over_does_not_look_more_often_again() {
    let mut lab = owned_lab();
    for n in 1..=200 {
        let taken = leader(5 + n, owned_by(2 + n % 7, 1));
        lab.at(lab.now.plus_millis(5 + 500 * n), move |lab| put_leader(lab, taken));
    }
    let done = acquire_plain(&mut lab);
    assert_eq!(code(&done), -247);
    assert!(secs_taken(&lab, &done) > 60, "{}", secs_taken(&lab, &done));
}

#[test]
fn an_owner_that_gives_the_lease_up_while_we_wait_is_followed_at_once() {
    let mut lab = owned_lab();
    lab.at(lab.now.plus_millis(50), |lab| {
        put_leader(lab, leader(5, Owner { timestamp: 0, ..owned_by(2, 1) }))
    });
    let done = acquire_plain(&mut lab);
    assert_eq!(held(&done).lver(), 6);
    assert!(done.at < lab.trace[0].at.plus_millis(100), "{:?}", done.at);
}

/// Host 2, which has an io timeout of 20 s.
fn host_2_renews(lab: &mut Lab, timestamp: u64) {
    let mut record = delta(2, 1, timestamp);
    record.io_timeout = 20.into();
    record.seal();
    put_delta(lab, 2, record);
}

/// The time for which a silent owner was watched is none of contending, however the watch ends: a lease that is free is not refused because of it.
#[test]
fn a_lease_that_others_gave_up_after_a_long_watch_is_taken() {
    // Somebody else took it a moment earlier, and has given it up: the leader has moved. Or the owner was renewing, and its own block says so.
    for taken_in_between in [true, false] {
        let mut lab = free_lab();
        let config = PaxosConfig { io_timeout: IoTimeout::new(5).unwrap(), ..config(US) };
        before_round(&mut lab, READ_1, |lab| put_block(lab, 2, block([4002, 0, 0, 0, 0, 1])));
        // While we wait after the lost ballot host 2, which has an io timeout of 20 s, wins that version and the next one, and dies.
        before_round(&mut lab, READ_1 + 1, |lab| {
            put_block(lab, 2, block([6002, 6002, 2, 1, 500, 2]));
            put_leader(lab, leader(2, Owner { writer: 3, ..owned_by(2, 1) }));
            host_2_renews(lab, 900);
        });
        lab.after_secs(205, move |lab| {
            if taken_in_between {
                put_leader(lab, leader(3, Owner { timestamp: 0, ..owned_by(3, 1) }));
            } else {
                put_block(lab, 2, released(block([6002, 6002, 2, 1, 500, 2])));
                host_2_renews(lab, 901);
            }
        });
        let done = acquire_as(&mut lab, config, AcquireOptions::default());
        assert_eq!(held(&done).lver(), if taken_in_between { 4 } else { 3 });
    }
}

/// The same where a commit that one disk of three has ends the watch.
#[test]
fn a_watch_that_a_commit_on_one_disk_ends_is_none_of_contending() {
    let mut lab = lab3([leader(0, NOBODY); 3]);
    let config = PaxosConfig { io_timeout: IoTimeout::new(5).unwrap(), ..three() };
    let on_all = |lab: &mut Lab, sector: u64, content: Content| {
        (0..3).for_each(|n| put(lab, disk(n), sector, content.clone()));
    };
    before_round(&mut lab, READ_1, move |lab| on_all(lab, 3, Content::Block(block([4002, 0, 0, 0, 0, 1]))));
    before_round(&mut lab, READ_1 + 1, move |lab| {
        on_all(lab, 3, Content::Block(block([6002, 6002, 2, 1, 500, 2])));
        on_all(lab, 0, Content::Leader(leader(2, owned_by(2, 1))));
        host_2_renews(lab, 900);
    });
    // It gives the lease up, which two disks hear of, and somebody else's commit is on one of them.
    lab.after_secs(205, |lab| {
        for (n, lver, owner) in [(1, 2, 2), (2, 3, 3)] {
            let free = Owner { timestamp: 0, ..owned_by(owner, 1) };
            put(lab, disk(n), 0, Content::Leader(leader(lver, free)));
        }
    });
    let done = acquire_as(&mut lab, config, AcquireOptions::default());
    held(&done);
}

/// Its renewal may be many seconds away. What it wrote itself since we looked says the same.
#[test]
fn an_owner_that_takes_the_lease_again_while_we_wait_is_alive() {
    for later in [6, 9] {
        let mut lab = owned_lab();
        lab.hosts = seen(2, 1, 800, 950, 990);
        lab.after_secs(1, move |lab| put_leader(lab, leader(later, owned_by(2, 1))));
        let done = acquire_plain(&mut lab);
        let (error, code, retract) = failure(&done);
        assert_eq!((code, retract), (-243, false));
        let AcquireError::Live(info) = error else { panic!("{error}") };
        assert_eq!((info.host_id, info.generation, info.timestamp, info.lver), (2, 1, 500, later));
        assert!(secs_taken(&lab, &done) <= 2);
        assert!(writes(&lab).is_empty());
    }
}

/// What lands late of a dead owner refuses one attempt, not the next.
#[test]
fn a_late_write_of_a_dead_owner_does_not_keep_its_lease_for_ever() {
    let mut lab = owned_lab();
    lab.hosts = seen(2, 1, 800, 950, 990);
    lab.after_secs(1, |lab| put_leader(lab, leader(6, owned_by(2, 1))));
    assert_eq!(code(&acquire_plain(&mut lab)), -243);
    assert_eq!(held(&acquire_plain(&mut lab)).lver(), 7);
}

/// Everything else that changes is looked at anew: it may be dead, or have given the lease up.
#[test]
fn other_changes_of_a_watched_leader_are_no_sign_of_life() {
    let ours = owned_by(2, 1);
    let rows = [
        // Brought to the disk by another host, perhaps after the owner's death.
        leader(6, Owner { writer: 3, ..ours }),
        // The lease of an earlier or a later life.
        leader(6, owned_by(2, 0)),
        // Taken and given up again.
        leader(6, Owner { timestamp: 0, ..ours }),
        // Rolled back.
        leader(4, ours),
        // The same version.
        leader(5, Owner { timestamp: 501, ..ours }),
        // Another owner.
        leader(6, owned_by(3, 1)),
    ];
    for (row, changed) in rows.into_iter().enumerate() {
        let mut lab = owned_lab();
        lab.hosts = seen(2, 1, 800, 950, 990);
        lab.after_secs(1, move |lab| put_leader(lab, changed));
        let done = acquire_plain(&mut lab);
        assert_eq!(held(&done).lver(), changed.lver.get() + 1, "row {row}");
    }
}

#[test]
fn an_owner_that_renews_while_we_wait_is_alive() {
    let mut lab = owned_lab();
    lab.after_secs(15, |lab| put_delta(lab, 2, delta(2, 1, 915)));
    let done = acquire_plain(&mut lab);
    assert_eq!(code(&done), -243);
    assert!((15..=17).contains(&secs_taken(&lab, &done)));
}

#[test]
fn a_dead_owner_is_waited_for_and_then_replaced() {
    let mut lab = owned_lab();
    let done = acquire_plain(&mut lab);
    assert_eq!(held(&done).lver(), 6);
    // More than 8T + F = 140 whole seconds since the first look, polled once a second.
    assert!((141..=143).contains(&secs_taken(&lab, &done)), "{}", secs_taken(&lab, &done));
    // Each poll is one delta sector and one leader sector.
    let brief = lab.brief();
    assert_eq!(brief[..7], [(0, 1), (2, 1), (1, 1), (0, 1), (1, 1), (0, 1), (1, 1)]);
    // The leader is read again before the ballot.
    assert_eq!(brief[brief.len() - 7..], [(1, 1), (0, 1), (2, -1), (0, 10), (2, -1), (0, 10), (0, -1)]);
}

#[test]
fn an_owner_known_to_be_dead_is_not_waited_for() {
    let mut lab = owned_lab();
    lab.hosts = seen(2, 1, 500, 859, 990);
    let done = acquire(&mut lab, nowait());
    assert_eq!(held(&done).lver(), 6);
    assert_eq!(lab.brief(), [(0, 1), (2, 1), (1, 1), (0, 1), (2, -1), (0, 10), (2, -1), (0, 10), (0, -1)]);

    // 140 seconds are not *more* than 140.
    let mut lab = owned_lab();
    lab.hosts = seen(2, 1, 500, 860, 990);
    assert_eq!(code(&acquire(&mut lab, nowait())), -247);
}

/// The release of an earlier instance that landed late, over the lease of the instance that owns: it says nothing of that one,
/// which sees it at its next renewal and stops its processes first.
#[test]
fn a_free_host_id_of_an_older_generation_frees_no_lease() {
    let mut lab = lab(leader(5, owned_by(2, 3)));
    put_delta(&mut lab, 2, delta(2, 2, 0));
    assert_eq!(code(&acquire(&mut lab, nowait())), -247);
    lab.no_faults();
    let started = lab.now;
    let done = acquire_plain(&mut lab);
    assert_eq!(held(&done).lver(), 6);
    assert!(done.at.secs_since(started) > 140, "it is waited for like any silent owner");
}

/// What an earlier instance wrote lands late, over what the owner has written since our last look at it, and says the very timestamp that
/// we saw then: it is no sign that nothing was written in between.
#[test]
fn a_record_of_an_earlier_instance_with_the_same_timestamp_is_a_change() {
    for (id, generation) in [(2, 2), (3, 3)] {
        let mut lab = lab(leader(5, owned_by(2, 3)));
        lab.hosts = seen(2, 3, 500, 930, 990);
        put_delta(&mut lab, 2, delta(id, generation, 900));
        assert_eq!(code(&acquire_plain(&mut lab)), -243, "host id {id}, generation {generation}");

        // Looks at the hosts do not reach it: it is watched from now on.
        let mut lab = lab_of_stale(3);
        put_delta(&mut lab, 2, delta(id, generation, 900));
        let done = acquire_plain(&mut lab);
        assert_eq!(held(&done).lver(), 6);
        assert!(secs_taken(&lab, &done) > 140, "host id {id}, generation {generation}");
    }
    // And where it lands while the owner is watched.
    let mut lab = lab(leader(5, owned_by(2, 3)));
    put_delta(&mut lab, 2, delta(2, 3, 900));
    lab.after_secs(60, |lab| put_delta(lab, 2, delta(2, 2, 900)));
    let done = acquire_plain(&mut lab);
    assert!(code(&done) == -243 && secs_taken(&lab, &done) < 62);
}

/// Host 2 owns the lease, and was last looked at too long ago.
fn lab_of_stale(generation: u64) -> Lab {
    let mut lab = lab(leader(5, owned_by(2, generation)));
    lab.hosts = seen(2, generation, 300, 500, 500);
    lab
}

/// Our looks have not reached the owner for long: that it had renewed when they last did, or has since, does not make it alive for ever.
#[test]
fn an_old_table_entry_is_no_sign_of_life() {
    // The record is as it was: silent since then, which is long enough.
    let mut lab = owned_lab();
    lab.hosts = seen(2, 1, 300, 500, 500);
    assert_eq!(held(&acquire(&mut lab, nowait())).lver(), 6);
    // It is another one: silent since now.
    for renews in [false, true] {
        let mut lab = owned_lab();
        lab.hosts = seen(2, 1, 300, 500, 500);
        put_delta(&mut lab, 2, delta(2, 1, 905));
        if renews {
            lab.after_secs(15, |lab| put_delta(lab, 2, delta(2, 1, 915)));
        }
        let done = acquire_plain(&mut lab);
        let secs = secs_taken(&lab, &done);
        match renews {
            false => assert!(held(&done).lver() == 6 && secs > 140, "{secs}"),
            true => assert!(code(&done) == -243 && secs < 20, "{secs}"),
        }
    }
    // Looks may be missed for as long as our renewals may.
    for (last, expected) in [(920, -243), (919, -247)] {
        let mut lab = owned_lab();
        lab.hosts = seen(2, 1, 300, 900, last);
        put_delta(&mut lab, 2, delta(2, 1, 905));
        assert_eq!(code(&acquire(&mut lab, nowait())), expected, "{last}");
    }
}

#[test]
fn a_table_entry_of_another_generation_says_nothing() {
    let mut lab = owned_lab();
    lab.hosts = seen(2, 0, 500, 600, 990);
    let done = acquire_plain(&mut lab);
    held(&done);
    assert!(secs_taken(&lab, &done) > 140);
}

/// The time of silence counts from when the timestamp was *seen*: the owner may have renewed while a slow first look was under
/// way, and lives for 8T + F from then on.
#[test]
fn a_slow_first_look_does_not_shorten_the_wait() {
    let mut lab = owned_lab();
    lab.fates({
        let mut looks = 0;
        move |op| {
            looks += u32::from(op.place == Place::Lockspace);
            if op.place == Place::Lockspace && looks == 1 { Fate::after(9_000) } else { Fate::prompt() }
        }
    });
    // The owner's last renewal, half a second before the look returns.
    lab.at(MonoTime::from_millis(1_008_500), |lab| put_delta(lab, 2, delta(2, 1, 908)));
    let done = acquire_plain(&mut lab);
    held(&done);
    assert!(done.at > MonoTime::from_millis(1_008_500 + 140_000), "{:?}", done.at);
}

/// Nor does a slow look at its end: what it brings is as old as its beginning. Our io timeout is so much longer than the owner's that
/// the owner would seem dead by the end of a single look.
#[test]
fn a_slow_look_is_no_silence() {
    let mut lab = owned_lab();
    let renewed = |timestamp| {
        let mut record = delta(2, 1, timestamp);
        record.io_timeout = 1.into();
        record.seal();
        record
    };
    put_delta(&mut lab, 2, renewed(900));
    let [first_check, last_live, last_check] = [800, 998, 999].map(MonoTime::from_secs);
    let io_timeout = IoTimeout::new(1).unwrap();
    let (owner_id, owner_generation) = (2, 1);
    let entry = HostSeen {
        first_check,
        last_check,
        last_live: Some(last_live),
        owner_id,
        owner_generation,
        timestamp: 900,
        io_timeout,
        newest_generation: owner_generation,
    };
    lab.hosts = Rc::new(Seen(2, entry));
    lab.fates({
        let mut looks = 0;
        move |op| {
            looks += u32::from(op.place == Place::Lockspace);
            let slow = op.place == Place::Lockspace && looks == 1;
            if slow { Fate::after(75_000).stale() } else { Fate::prompt() }
        }
    });
    lab.at(MonoTime::from_secs(1_001), move |lab| put_delta(lab, 2, renewed(905)));
    let ours = PaxosConfig { io_timeout: IoTimeout::new(80).unwrap(), ..config(US) };
    assert_eq!(code(&acquire_as(&mut lab, ours, AcquireOptions::default())), -243);
    assert!(writes(&lab).is_empty());
}

/// Waiting for a silent owner is no contending: after it there is as much time for ballots as before.
#[test]
fn an_owner_that_was_waited_for_long_is_replaced_after_a_lost_ballot_too() {
    let mut lab = free_lab();
    let lver = leader_of(&lab).lver.get();
    let mut record = delta(2, 1, 900);
    record.io_timeout = 255.into();
    record.seal();
    put_delta(&mut lab, 2, record);
    // Host 2 wins the ballot that we lose, and the next one, and dies.
    before_round(&mut lab, READ_1, move |lab| put_block(lab, 2, block([8002, 0, 0, 0, 0, lver + 1])));
    before_round(&mut lab, READ_1 + 1, move |lab| {
        put_block(lab, 2, block([10_002, 10_002, 2, 1, 990, lver + 2]));
        put_leader(lab, leader(lver + 2, owned_by(2, 1)));
    });
    let done = acquire_plain(&mut lab);
    assert_eq!(held(&done).lver(), lver + 3);
    assert!(secs_taken(&lab, &done) > 8 * 255);
}

#[test]
fn the_owners_io_timeout_counts_not_ours() {
    for (theirs, dead_secs) in [(20, 220), (1, 140)] {
        // With a shorter one of theirs and no table entry, ours is the safe guess.
        let mut lab = owned_lab();
        let mut record = delta(2, 1, 900);
        record.io_timeout = theirs.into();
        record.seal();
        put_delta(&mut lab, 2, record);
        let done = acquire_plain(&mut lab);
        held(&done);
        let secs = secs_taken(&lab, &done);
        assert!((dead_secs + 1..=dead_secs + 3).contains(&secs), "{theirs}: {secs}");
    }
}

#[test]
fn a_reborn_or_departed_owner_is_gone_at_once() {
    let free = delta(2, 1, 0);
    let reborn = delta(2, 2, 950);
    for record in [free, reborn] {
        let mut lab = owned_lab();
        lab.hosts = seen(2, 1, 800, 990, 990);
        put_delta(&mut lab, 2, record);
        let done = acquire(&mut lab, nowait());
        assert_eq!(held(&done).lver(), 6);
        assert_eq!(lab.brief()[2..4], [(1, 1), (0, 1)], "delta lease, then the leader once more");
    }
}

/// A lockspace that is formatted while its hosts are at work, or a record that was written to the wrong place, says nothing of an owner,
/// which stops what uses its leases only when it has found out.
#[test]
fn a_record_of_another_host_id_or_of_none_is_a_silent_owner() {
    for record in [delta(0, 0, 0), delta(0, 0, 900), delta(3, 1, 950), delta(3, 1, 0), delta(3, 7, 950)] {
        // Our table still has the owner, silent for long: what is there now has come since.
        if record.timestamp.get() != 900 {
            let mut lab = owned_lab();
            lab.hosts = seen(2, 1, 500, 600, 990);
            put_delta(&mut lab, 2, record);
            assert_eq!(code(&acquire(&mut lab, nowait())), -243, "{record:?}");
        }
        let mut lab = owned_lab();
        put_delta(&mut lab, 2, record);
        assert_eq!(code(&acquire(&mut lab, nowait())), -247, "{record:?}");
        let mut lab = owned_lab();
        put_delta(&mut lab, 2, record);
        let done = acquire_plain(&mut lab);
        assert_eq!(held(&done).lver(), 6);
        assert!((141..=143).contains(&secs_taken(&lab, &done)), "{record:?}");
    }
}

/// A renewal of generation 2, which ran with a short io timeout, has landed over the record of generation 3, which runs with another
/// one. Where that was seen it counts; otherwise it may be any.
#[test]
fn an_owner_behind_the_record_of_an_earlier_instance_has_an_io_timeout_of_its_own() {
    let mut record = delta(2, 2, 900);
    record.io_timeout = 1.into();
    record.seal();
    let entry = |newest_generation, secs| {
        let Some(entry) = seen(2, 2, 500, 600, 990).seen(host(2)) else { panic!("it is there") };
        HostSeen { newest_generation, io_timeout: IoTimeout::new(secs).unwrap(), ..entry }
    };
    let all = [
        (Some(entry(3, 20)), 220),
        (Some(entry(2, 20)), 8 * 255 + 60),
        (None, 8 * 255 + 60),
        // What is known is of another instance: ours is the least.
        (Some(entry(4, 1)), 140),
    ];
    for (seen, dead_secs) in all {
        let mut lab = lab(leader(5, owned_by(2, 3)));
        put_delta(&mut lab, 2, record);
        if let Some(entry) = seen {
            lab.hosts = Rc::new(Seen(2, entry));
        }
        let done = acquire_plain(&mut lab);
        held(&done);
        let secs = secs_taken(&lab, &done);
        assert!((dead_secs + 1..=dead_secs + 3).contains(&secs), "{dead_secs}: {secs}");
    }
}

/// Where its record says none any more that is ours, or a longer one with which the table has seen it.
#[test]
fn an_owner_is_judged_by_its_own_io_timeout() {
    for (on_disk, known, dead_secs) in [(0, 1, 140), (0, 20, 220), (1, 1, 68)] {
        let mut record = delta(2, 3, 900);
        record.io_timeout = on_disk.into();
        record.seal();
        let Some(entry) = seen(2, 3, 500, 970, 990).seen(host(2)) else { panic!("it is there") };
        let entry = HostSeen { io_timeout: IoTimeout::new(known).unwrap(), timestamp: 900, ..entry };
        let mut lab = lab(leader(5, owned_by(2, 3)));
        put_delta(&mut lab, 2, record);
        lab.hosts = Rc::new(Seen(2, entry));
        let done = acquire_plain(&mut lab);
        held(&done);
        let silent = lab.now.secs_since(MonoTime::from_secs(970));
        assert!((dead_secs..=dead_secs + 3).contains(&silent), "{on_disk}, {known}: {silent}");
    }
}

#[test]
fn an_older_generation_on_the_delta_lease_is_the_same_owner() {
    let mut lab = lab(leader(5, owned_by(2, 3)));
    put_delta(&mut lab, 2, delta(2, 2, 900));
    assert_eq!(code(&acquire(&mut lab, nowait())), -247);
}

#[test]
fn a_damaged_delta_lease_is_no_dead_owner() {
    type Damage = fn(&mut RawLeader);
    let rows: [(Damage, i32); 4] = [
        (|d| d.magic = 0.into(), -223),
        (|d| d.version = 0x0005_0000.into(), -224),
        (|d| d.space_name = name("other").to_field(), -226),
        (|d| d.owner_generation = 9.into(), -229),
    ];
    for (row, (change, expected)) in rows.into_iter().enumerate() {
        let mut lab = owned_lab();
        let mut record = delta(2, 1, 900);
        change(&mut record);
        if row < 3 {
            record.seal();
        }
        put_delta(&mut lab, 2, record);
        assert_eq!(code(&acquire_plain(&mut lab)), expected, "row {row}");
        assert!(writes(&lab).is_empty());
    }
}

#[test]
fn a_delta_lease_that_cannot_be_read_is_no_dead_owner() {
    for (fate, expected) in [(Fate::fail(IoFailure::Os(5)), -5), (Fate::never(), -202)] {
        let mut lab = owned_lab();
        nth_op(&mut lab, 2, fate);
        assert_eq!(code(&acquire_plain(&mut lab)), expected);
    }
}

#[test]
fn a_leader_that_changes_while_we_wait_is_decided_anew() {
    let mut lab = owned_lab();
    lab.after_secs(30, |lab| put_leader(lab, leader(5, Owner { timestamp: 0, ..owned_by(2, 1) })));
    let done = acquire_plain(&mut lab);
    assert_eq!(held(&done).lver(), 6);
    assert!(secs_taken(&lab, &done) <= 32);

    // A new owner has a time of silence of its own.
    let mut lab = owned_lab();
    lab.after_secs(130, |lab| put_leader(lab, leader(6, owned_by(3, 1))));
    let done = acquire_plain(&mut lab);
    assert_eq!(held(&done).lver(), 7);
    assert!(secs_taken(&lab, &done) > 130 + 140);
}

#[test]
fn a_dead_owner_taken_by_another_host_meanwhile_is_lost() {
    let mut lab = owned_lab();
    lab.hosts = seen(2, 1, 500, 859, 990);
    // Rounds: first read, delta lease, leader.
    before_round(&mut lab, 3, |lab| put_leader(lab, leader(6, owned_by(3, 1))));
    let done = acquire_plain(&mut lab);
    assert_eq!((code(&done), failure(&done).2), (-244, false));
    assert!(writes(&lab).is_empty());
}

#[test]
fn waiting_ends_when_it_is_pointless() {
    let rows: [(Change, i32); 4] = [
        (|lab| lab.client_alive = false, -25),
        (|lab| lab.shutting_down = true, -1),
        (|lab| lab.lockspace = LockspaceNow::Gone, -28),
        (|lab| lab.lockspace = LockspaceNow::Alive { generation: 2 }, -28),
    ];
    for (change, expected) in rows {
        let mut lab = owned_lab();
        lab.after_secs(20, change);
        let done = acquire_plain(&mut lab);
        assert_eq!(code(&done), expected);
        assert_eq!(secs_taken(&lab, &done), 20, "at once, not at the next poll");
    }
}
