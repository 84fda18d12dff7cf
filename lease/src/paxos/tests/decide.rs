//! The decision after the first read (lease-algorithms.md 4.2), and everything that makes a lease unusable.

use super::*;
use crate::geometry::AlignSize;
use crate::paxos::share::PaxosShare;
use crate::verify::LeaderError;

#[test]
fn a_free_lease_is_taken_with_the_next_version() {
    let free = Owner { timestamp: 0, ..owned_by(3, 7) };
    let mut lab = lab(leader(41, free));
    assert_eq!(held(&acquire_plain(&mut lab)).lver(), 42);
    assert_eq!(state(&leader_of(&lab)), (1, 1, true, 42, 1));
}

#[test]
fn our_own_generation_and_an_older_one_need_no_look_at_a_delta_lease() {
    for (on_disk, ours) in [(5, 5), (4, 5), (1, 5)] {
        let mut lab = lab(leader(9, owned_by(US, on_disk)));
        let done =
            acquire_as(&mut lab, PaxosConfig { generation: ours, ..config(US) }, AcquireOptions::default());
        assert_eq!(held(&done).lver(), 10);
        assert_eq!(lab.brief(), [(0, 1), (2, 1), (2, -1), (0, 10), (2, -1), (0, 10), (0, -1)]);
        assert_eq!(state(&leader_of(&lab)), (1, ours, true, 10, 1));
    }
}

#[test]
fn a_newer_generation_of_ourselves_is_somebody_else() {
    let mut lab = lab(leader(9, owned_by(US, 2)));
    put_delta(&mut lab, US, delta(US, 2, 900));
    lab.after_secs(5, |lab| put_delta(lab, US, delta(US, 2, 905)));
    assert_eq!(code(&acquire_plain(&mut lab)), -243);
    assert!(writes(&lab).is_empty());
}

/// It has no next version that could be won, whoever it names: nothing is written, and nobody is waited for.
#[test]
fn a_lease_at_the_last_version_there_is_is_refused_at_once() {
    let free = |owner| Owner { timestamp: 0, ..owner };
    let rows = [
        // Silent owners: they would be waited for.
        (owned_by(2, 1), false),
        (owned_by(US, 2), false),
        // A free lease, and an earlier life of ours: there would be a ballot.
        (owned_by(US, 0), false),
        (free(owned_by(2, 1)), false),
        (free(owned_by(US, 1)), false),
        (NOBODY, false),
        // On disk we own it: that is to be taken back.
        (owned_by(US, 1), true),
    ];
    for (row, (owner, taken_back)) in rows.into_iter().enumerate() {
        for shared in [false, true] {
            let mut lab = lab(leader(u64::MAX, owner));
            let (began, options) = (lab.now, AcquireOptions::default());
            let done = if shared {
                lab.run_noisy(&mut PaxosShare::new(config(US), options, 8))
            } else {
                acquire_plain(&mut lab)
            };
            assert_eq!(failure(&done), (AcquireError::LastVersion, -229, taken_back), "row {row}");
            assert_eq!(done.at, began.plus_millis(1), "row {row}");
            assert_eq!(lab.brief(), [(0, 1), (2, 1)], "row {row}");
        }
    }
}

#[test]
fn the_last_version_there_is_can_be_held_and_released() {
    let mut lab = lab(leader(u64::MAX - 1, NOBODY));
    let held = held(&acquire_plain(&mut lab));
    assert_eq!(held.lver(), u64::MAX);
    assert_eq!(release(&mut lab, held).outcome.result, Ok(Released::LeaderFreed));
    assert_eq!(failure(&acquire_plain(&mut lab)).0, AcquireError::LastVersion);
}

#[test]
fn a_demanded_version_must_be_on_disk() {
    for (demand, ok) in [(None, true), (Some(0), true), (Some(7), true), (Some(6), false), (Some(8), false)] {
        let mut lab = lab(leader(7, NOBODY));
        let done = acquire(&mut lab, AcquireOptions { lver: demand, ..AcquireOptions::default() });
        if ok {
            assert_eq!(held(&done).lver(), 8);
        } else {
            let expected = demand.unwrap();
            assert_eq!(failure(&done), (AcquireError::Lver { expected, found: 7 }, -240, false));
            assert!(writes(&lab).is_empty());
        }
    }
}

/// A lease that is ours on the disk, and of which no process of ours has any other version either, is given up.
#[test]
fn a_demand_that_a_lost_release_does_not_meet_has_it_taken_back() {
    for (owner, retract) in [(owned_by(US, 1), true), (owned_by(US, 0), false), (owned_by(2, 1), false)] {
        let mut lab = lab(leader(7, owner));
        let done = acquire(&mut lab, AcquireOptions { lver: Some(5), ..AcquireOptions::default() });
        assert_eq!(failure(&done), (AcquireError::Lver { expected: 5, found: 7 }, -240, retract));
        assert!(writes(&lab).is_empty());
    }
}

/// Another host had the lease between our first look and our ballot: then the version demanded is gone, however often the
/// acquire starts over.
#[test]
fn a_demanded_version_that_others_use_up_meanwhile_is_refused() {
    let mut lab = lab(leader(7, NOBODY));
    before_round(&mut lab, READ_1, |lab| {
        put_block(lab, 2, block([4002, 4002, 2, 1, 990, 8]));
    });
    // While we wait after the lost ballot, host 2 wins 8, and 9 as well.
    before_round(&mut lab, READ_1 + 1, |lab| {
        put_block(lab, 2, released(block([6002, 6002, 2, 1, 991, 9])));
        put_leader(lab, leader(9, Owner { timestamp: 0, ..owned_by(2, 1) }));
    });
    let done = acquire(&mut lab, AcquireOptions { lver: Some(7), ..AcquireOptions::default() });
    assert_eq!(failure(&done), (AcquireError::Lver { expected: 7, found: 9 }, -240, false));
}

/// An older value of ours that has to be committed first may have been owned: by a process of this host that gave it up since, and of which
/// a commit of the version before has landed only now; or by the host that had this id before. The version demanded is not the last one then.
#[test]
fn a_demanded_version_is_refused_after_an_older_value_of_ours() {
    // Our generation is 1. Who committed the value was we ourselves, or another host in our name while we looked.
    let rows = [(1, None, true), (0, None, false), (1, Some(2), true), (0, Some(2), false)];
    for (generation, by_another, retract) in rows {
        let mut lab = lab(leader(7, NOBODY));
        put_block(&mut lab, US, released(block([2001, 2001, US, generation, 950, 8])));
        if let Some(writer) = by_another {
            let committed = leader(8, Owner { id: US, generation, timestamp: 950, writer });
            before_round(&mut lab, READ_1, move |lab| put_leader(lab, committed));
        }
        let done = acquire(&mut lab, AcquireOptions { lver: Some(7), ..AcquireOptions::default() });
        assert_eq!(
            failure(&done),
            (AcquireError::Lver { expected: 7, found: 8 }, -240, retract),
            "{generation} {by_another:?}"
        );
    }
}

/// Decision 0019: a host that builds on an older leader may take part by the larger number.
#[test]
fn num_hosts_is_raised_by_an_acquire_that_says_so_and_never_lowered() {
    let mut lab = free_lab();
    assert_eq!(leader_of(&lab).num_hosts.get(), 8);
    for (asked, expected) in [(3, 8), (0, 8), (20, 20), (19, 20), (0, 20), (2000, 2000)] {
        let ours =
            held(&acquire(&mut lab, AcquireOptions { num_hosts: Some(asked), ..AcquireOptions::default() }));
        assert_eq!((ours.leader.num_hosts.get(), leader_of(&lab).num_hosts.get()), (expected, expected));
    }
}

/// Host 3 asked for 16 hosts with version 3, host 12 has owned version 4 since. A commit of version 3 by host 2, in host 3's name and with
/// the number of before, has landed only now: host 12 is found all the same, and stays in sight.
#[test]
fn an_owner_beyond_an_older_number_of_hosts_is_found() {
    let by_2 = Owner { id: 3, generation: 1, timestamp: 500, writer: 2 };
    let by_3 = Owner { timestamp: 0, ..owned_by(3, 1) };
    for (what, stale) in [("one in another's name", leader(3, by_2)), ("one version older", leader(2, by_3))]
    {
        let mut lab = lab(stale);
        put_block(&mut lab, 3, released(block([4003, 4003, 3, 1, 500, 3])));
        put_block(&mut lab, 12, block([6012, 6012, 12, 1, 700, 4]));
        put_delta(&mut lab, 3, delta(3, 1, 950));
        lab.hosts = seen(3, 1, 800, 990, 995);
        let done = acquire(&mut lab, nowait());
        assert!(
            matches!(failure(&done).0, AcquireError::Other(o) if (o.host_id, o.lver) == (12, 4)),
            "{what}"
        );
        assert_eq!(leader_of(&lab).num_hosts.get(), 12, "{what}");
    }
}

/// The same with a host that holds the lease shared.
#[test]
fn a_shared_holder_beyond_an_older_number_of_hosts_is_found() {
    let mut lab = lab(leader(3, Owner { id: 3, generation: 1, timestamp: 500, writer: 2 }));
    put_block(&mut lab, 3, released(block([4003, 4003, 3, 1, 500, 3])));
    let mut shared = released(block([6012, 6012, 12, 1, 700, 4]));
    shared.mode = ModeBlock::shared(1);
    put_block(&mut lab, 12, shared);
    put_delta(&mut lab, 3, delta(3, 1, 950));
    put_delta(&mut lab, 12, delta(12, 1, 950));
    lab.hosts = seen(3, 1, 800, 990, 995);
    let done = acquire(&mut lab, nowait());
    assert_eq!(failure(&done).0, AcquireError::Shared { host: host(12), generation: 1 });
}

/// Host 1 is on its way to version 6 and looks at three hosts, to which the lease was narrowed. The leader is rolled back to version 4 and
/// eight hosts: host 5 comes back to life, finds host 1's block ahead, has begun a larger ballot for version 6 (R9), and has read that
/// host 1 has no value yet. One of the two must see the other.
#[test]
fn a_host_beyond_a_narrowed_number_of_hosts_is_seen_after_a_roll_back() {
    for round in [READ_1, WRITE_2] {
        let mut lab = free_lab();
        let mut narrow = leader(5, Owner { timestamp: 0, ..owned_by(2, 1) });
        narrow.num_hosts = 3.into();
        narrow.seal();
        put_leader(&mut lab, narrow);
        before_round(&mut lab, round, |lab| {
            put_leader(lab, leader(4, Owner { timestamp: 0, ..owned_by(3, 1) }));
            put_block(lab, 5, block([2005, 0, 0, 0, 0, 6]));
        });
        let held = held(&acquire_plain(&mut lab));
        assert_eq!((held.lver(), held.block.dblock.mbal.get()), (6, 4001), "before round {round}");
        assert_eq!(leader_of(&lab).num_hosts.get(), 8, "before round {round}");
    }
}

#[test]
fn num_hosts_may_not_exclude_ourselves_or_exceed_the_area() {
    for num_hosts in [3, 2001] {
        let mut lab = free_lab();
        let options = AcquireOptions { num_hosts: Some(num_hosts), ..AcquireOptions::default() };
        let done = acquire_as(&mut lab, config(4), options);
        assert_eq!(
            failure(&done),
            (AcquireError::NumHosts { found: num_hosts, min: 4, max: 2000 }, -22, false)
        );
        assert!(writes(&lab).is_empty());
    }
}

#[test]
fn a_leader_that_is_not_what_it_should_be_stops_the_acquire_before_any_write() {
    type Change = fn(&mut RawLeader);
    let rows: [(Change, i32); 12] = [
        (|l| l.magic = 0.into(), -223),
        (|l| l.magic = DELTA_MAGIC.into(), -223),
        (|l| l.magic = 0x1128_2016.into(), -223),
        (|l| l.version = 0x0005_0004.into(), -224),
        (|l| l.version = 0x0007_0000.into(), -224),
        (|l| l.space_name = name("other").to_field(), -226),
        (|l| l.resource_name = name("other").to_field(), -227),
        (|l| l.num_hosts = 0.into(), -228),
        (|l| l.num_hosts = 2001.into(), -228),
        (|l| l.flags = 0x18.into(), -283),
        (|l| l.sector_size = 1024.into(), -225),
        (|l| l.owner_id = 2001.into(), -229),
    ];
    for (row, (change, expected)) in rows.into_iter().enumerate() {
        let mut record = leader(3, NOBODY);
        change(&mut record);
        record.seal();
        let mut lab = lab(record);
        let done = acquire_plain(&mut lab);
        assert_eq!((code(&done), failure(&done).2), (expected, false), "row {row}");
        assert!(writes(&lab).is_empty(), "row {row}");
    }
}

#[test]
fn an_owner_that_cannot_exist_is_bad_contents() {
    let mut lab = lab(leader(3, Owner { id: 0, ..owned_by(1, 1) }));
    assert_eq!(code(&acquire_plain(&mut lab)), -229);
}

#[test]
fn a_wrong_checksum_is_found() {
    let mut record = leader(3, NOBODY);
    record.owner_id = 5.into();
    let mut lab = lab(record);
    let done = acquire_plain(&mut lab);
    assert!(matches!(failure(&done).0, AcquireError::Leader(LeaderError::Checksum { .. })));
    assert_eq!(code(&done), -229);
}

#[test]
fn num_hosts_below_our_id_is_refused() {
    let done = acquire_as(&mut free_lab(), config(9), AcquireOptions::default());
    assert_eq!(code(&done), -228);
}

#[test]
fn our_own_damaged_block_stops_the_acquire_before_any_write() {
    let mut lab = free_lab();
    let mut damaged = block([2001, 0, 0, 0, 0, 1]);
    damaged.dblock.checksum = 5.into();
    put_block(&mut lab, US, damaged);
    let done = acquire_plain(&mut lab);
    assert_eq!(code(&done), -214);
    assert!(matches!(failure(&done).0, AcquireError::Dblock(e) if e.host == host(US)));
    assert!(writes(&lab).is_empty());
}

#[test]
fn bytes_of_an_unused_block_that_carry_no_meaning_do_not_matter() {
    let mut lab = free_lab();
    for id in [US, 2] {
        let mut unused = HostBlock::zeroed();
        unused.dblock.inp2 = 3.into();
        unused.dblock.inp3 = 4.into();
        unused.dblock.flags = 0xff.into();
        put_block(&mut lab, id, unused);
    }
    held(&acquire_plain(&mut lab));
}

/// A 4096/8M resource in a 512/1M lockspace: the leader's sizes are adopted before any block is looked at. What lies at the
/// place of a block in the wrong size would be taken for a damaged one.
#[test]
fn the_leaders_sizes_are_adopted_before_blocks_are_looked_at() {
    let size = SectorSize::B4096;
    let mut lab = free_lab();
    lab.disk.add(DISK, 8 * MIB);
    let mut record = leader(6, NOBODY);
    record.flags = 0x80.into();
    record.sector_size = 4096.into();
    record.seal();
    let mut sector = [0; 4096];
    Content::Leader(record).encode(&mut sector);
    sector[1024..1080].fill(0xee); // where host 1's block would be with 512-byte sectors
    lab.disk.write(DISK, size, 0, &sector);

    let done = acquire_plain(&mut lab);
    let held = held(&done);
    assert_eq!(held.geometry, Geometry::new(size, AlignSize::M8).unwrap());
    assert_eq!(lab.brief(), [(0, 1), (2, 1), (2, 1), (2, -1), (0, 10), (2, -1), (0, 10), (0, -1)]);
    let sizes: Vec<_> = lab.trace.iter().map(|t| t.op.sector_size).collect();
    assert_eq!(sizes[..2], [B512; 2]);
    assert!(sizes[2..].iter().all(|s| *s == size));
    assert_eq!(RawLeader::from_sector(&lab.disk.sector(DISK, size, 0)).lver.get(), 7);
    assert_eq!(HostBlock::from_sector(&lab.disk.sector(DISK, size, 2)).dblock.lver.get(), 7);

    lab.trace.clear();
    let done = lab.run(&mut PaxosRelease::new(config(US), held));
    assert_eq!(done.outcome.result, Ok(Released::LeaderFreed));
    assert!(lab.trace.iter().all(|t| t.op.sector_size == size));
}

/// The other way round, at the end of the device: a read with the lockspace's larger sectors ends beyond it.
#[test]
fn a_small_resource_at_the_end_of_the_device_works_in_a_lockspace_of_large_sectors() {
    let mut lab = free_lab();
    lab.disk.add(DISK, MIB);
    put_leader(&mut lab, leader(0, NOBODY));
    let geometry = Geometry::new(SectorSize::B4096, AlignSize::M8).unwrap();
    let mut record = leader(0, NOBODY);
    record.num_hosts = 2000.into();
    record.seal();
    put_leader(&mut lab, record);
    let done = acquire_as(&mut lab, PaxosConfig { geometry, ..config(1000) }, AcquireOptions::default());
    assert_eq!(held(&done).geometry, Geometry::B512_M1);
}

/// The stride of ballot numbers follows from the resource's sizes, not the lockspace's.
#[test]
fn the_ballot_stride_is_the_resources() {
    let mut lab = free_lab();
    lab.disk.add(DISK, MIB);
    let mut record = leader(6, NOBODY);
    record.sector_size = 4096.into();
    record.max_hosts = 250.into();
    record.seal();
    let mut sector = [0; 4096];
    Content::Leader(record).encode(&mut sector);
    lab.disk.write(DISK, SectorSize::B4096, 0, &sector);
    let mut sector = [0; 4096];
    Content::Block(block([251, 251, 1, 1, 5, 6])).encode(&mut sector);
    lab.disk.write(DISK, SectorSize::B4096, 2, &sector);
    assert_eq!(held(&acquire_plain(&mut lab)).block.dblock.mbal.get(), 501);
}

/// What everyday use brings is told as such; the rest somebody has to look after.
#[test]
fn contention_is_told_from_faults() {
    let shared = AcquireError::Shared { host: host(2), generation: 1 };
    for error in [shared, AcquireError::Ballot { seen: 1 }, AcquireError::ClientGone] {
        assert!(error.is_contention(), "{error}");
    }
    for error in [
        AcquireError::Driver,
        AcquireError::Io(IoFailure::Short),
        AcquireError::Lver { expected: 1, found: 2 },
    ] {
        assert!(!error.is_contention(), "{error}");
    }
}

/// The published first numbers of SplitMix64 with the seeds 0 and 1234567.
#[test]
fn what_keeps_contenders_apart_is_splitmix64() {
    let numbers = |mut seed: u64| [(); 3].map(|()| crate::paxos::random(&mut seed));
    assert_eq!(numbers(0), [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
    assert_eq!(
        numbers(1_234_567),
        [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
    );
}

#[test]
fn a_held_lease_knows_its_ballot() {
    let mut lab = free_lab();
    put_block(&mut lab, 2, block([8002, 0, 0, 0, 0, 1]));
    assert_eq!(held(&acquire_plain(&mut lab)).ballot(), 10_001);
}
