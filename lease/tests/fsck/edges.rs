//! What is told of a damage, and what is none although it nearly looks like one.

use super::{EX, LS, RX, RX_BASE, block, entry, findings, host, leader, leases, report_of};
use crate::images::load;
use sanlock_lease::fsck::{
    Finding, Fix, IndexReport, Kind, LockspaceReport, Problem, ResourceReport, Silence, Verdict,
    check_against, check_index, check_resource, identify_within, is_behind, mend,
};
use sanlock_lease::geometry::Geometry;
use sanlock_lease::name::Name;
use sanlock_lease::record::{RawLeader, RequestRecord, RindexEntry};
use sanlock_lease::timing::{IoTimeout, MonoTime, WatchdogFire};

/// The two hosts that share it are 1 and 2000.
const SH: &str = "v38-res-512-1m-sh2";
const FLAG_NO_TIMEOUT: u32 = 0x02;
const FLAG_CAW: u32 = 0x08;

type Change = fn(&mut Vec<u8>);

/// An image that was changed.
fn changed(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut image = load(name);
    change(&mut image);
    image
}

/// What is wrong with the area at its start: problem, byte, and whether it can be mended.
fn wrong(image: &[u8], base: u64) -> Vec<(Problem, u64, bool)> {
    findings(image, base).2.iter().map(|f| (f.problem, f.spot.at, f.fix.is_some())).collect()
}

fn lockspace(change: impl FnOnce(&mut Vec<u8>)) -> LockspaceReport {
    report_of(&changed(LS, change))
}

fn resource(change: impl FnOnce(&mut Vec<u8>)) -> ResourceReport {
    check_resource(&changed(EX, change), Geometry::B512_M1)
}

fn index(change: impl FnOnce(&mut Vec<u8>)) -> IndexReport {
    let image = changed(RX, change);
    check_index(
        &image[..1 << 20],
        RX_BASE,
        &RawLeader::from_sector(&image[1 << 20..]),
        &leases(&image, RX_BASE),
    )
}

fn only(findings: &[Finding]) -> &Finding {
    let [finding] = findings else { panic!("one, not {findings:#?}") };
    finding
}

fn names(words: &[u8]) -> Name {
    Name::new(words).unwrap()
}

#[test]
fn what_lies_in_a_host_s_place_is_called_by_its_name() {
    let lease = |i: &mut Vec<u8>| i[1024..1536].copy_from_slice(&load(EX)[..512]);
    let cleared = |i: &mut Vec<u8>| i[1024..1536].copy_from_slice(&load("v38-res-512-1m-cleared")[..512]);
    let request = |i: &mut Vec<u8>| RequestRecord::none().encode(&mut i[1024..1536]);
    let header = |i: &mut Vec<u8>| i[1024..1536].copy_from_slice(&load(RX)[..512]);
    let cases: [(Change, &str, bool); 6] = [
        (|i| i[1024..1536].fill(0), "zeros", true),
        (lease, "a resource's lease", false),
        (cleared, "a cleared lease", false),
        (request, "a request record", false),
        (header, "a resource index", false),
        (|i| i[1024..1028].copy_from_slice(&[0x78, 0x56, 0x34, 0x12]), "magic 0x12345678", true),
    ];
    for (change, found, fixable) in cases {
        let report = lockspace(change);
        let finding = only(&report.findings);
        assert_eq!((finding.problem, finding.found.as_str()), (Problem::HostMagic, found));
        assert_eq!(finding.expected, "a host id record");
        assert_eq!(finding.fix.is_some(), fixable, "{found}: what is somebody's is not written over");
        assert!(!report.host(host(3)).unwrap().intact);
    }
    let report = lockspace(|i| leader(i, 1024, |l| l.version = 0x0009_0007.into()));
    assert_eq!(only(&report.findings).found, "version 9.7");
}

#[test]
fn hosts_are_those_that_were_ever_there_and_whose_record_is_damaged() {
    let ids = |report: &LockspaceReport| -> Vec<_> {
        report.hosts.iter().map(|h| (h.host.get(), h.intact)).collect()
    };
    assert_eq!(ids(&lockspace(|_| ())), [(1, true), (2000, true)]);
    // A wrong checksum, and a field that cannot be: neither is to be believed.
    let report = lockspace(|i| {
        i[1024 + 60] ^= 1;
        leader(i, 2048, |l| l.timestamp = 5.into());
    });
    assert_eq!(ids(&report), [(1, true), (3, false), (5, false), (2000, true)]);
}

#[test]
fn a_record_of_3_x_whose_holder_may_be_silent_is_no_proof_of_death() {
    assert!(lockspace(|_| ()).by_silence);
    for flag in [FLAG_NO_TIMEOUT, FLAG_CAW] {
        assert!(!lockspace(|i| leader(i, 0, |l| l.flags = (l.flags.get() | flag).into())).by_silence);
    }
}

#[test]
fn who_holds_a_host_id_has_one_and_a_generation() {
    let of = |owner: u64, generation: u64, timestamp: u64, version: u32| {
        let report = lockspace(|i| {
            leader(i, 1024, |l| {
                l.owner_id = owner.into();
                l.owner_generation = generation.into();
                l.timestamp = timestamp.into();
                l.version = version.into();
            });
        });
        report.findings.iter().map(|f| f.problem).collect::<Vec<_>>()
    };
    let (v3, v4) = (0x0003_0004, 0x0004_0001);
    assert_eq!(of(3, 5, 9, v3), []);
    assert_eq!(of(3, 5, 0, v3), []);
    assert_eq!(of(3, 0, 0, v3), []);
    assert_eq!(of(3, 0, 9, v3), [Problem::HostState]);
    assert_eq!(of(0, 5, 9, v3), [Problem::HostState]);
    assert_eq!(of(3, 0, 9, v4), [], "later versions may");
    assert_eq!(of(0, 5, 9, v4), [Problem::HostState]);
}

#[test]
fn the_longest_io_timeout_is_one_byte_and_matters_while_it_is_used() {
    let of = |timestamp: u64, seconds: u16| {
        let report = lockspace(|i| {
            leader(i, 0, |l| {
                l.timestamp = timestamp.into();
                l.io_timeout = seconds.into();
            });
        });
        report.findings.iter().map(|f| f.problem).collect::<Vec<_>>()
    };
    assert_eq!(of(9, 255), []);
    assert_eq!(of(9, 256), [Problem::HostIoTimeout]);
    assert_eq!(of(0, 256), []);
}

#[test]
fn a_name_counts_where_it_is_held_and_believed() {
    let twice = |timestamp: u64, name: &[u8], damage: bool| {
        let report = lockspace(|i| {
            for (at, id) in [(512, 2_u64), (1024, 3)] {
                leader(i, at, |l| {
                    l.owner_id = id.into();
                    l.owner_generation = 1.into();
                    l.timestamp = timestamp.into();
                    l.resource_name = names(name).to_field();
                });
            }
            // A field that cannot be, and a right checksum.
            if damage {
                leader(i, 1024, |l| l.owner_id = 7.into());
            }
        });
        report.findings.iter().filter(|f| f.problem == Problem::HostNameTwice).count()
    };
    assert_eq!(twice(9, b"twin", false), 1);
    assert_eq!(twice(0, b"twin", false), 0);
    assert_eq!(twice(9, b"twin", true), 0);
    let unnamed = lockspace(|i| {
        for (at, id) in [(512, 2_u64), (1024, 3)] {
            leader(i, at, |l| {
                l.owner_id = id.into();
                l.owner_generation = 1.into();
                l.timestamp = 9.into();
                l.resource_name = [0; 48];
            });
        }
    });
    assert_eq!(unnamed.findings, []);
}

#[test]
fn what_lies_behind_the_records_is_told_with_its_sector() {
    let report = lockspace(|i| i[1_024_000 + 700] = 1);
    let finding = only(&report.findings);
    assert_eq!(
        (finding.problem, finding.spot.sector, finding.spot.at),
        (Problem::LockspaceTail, 2001, 1_024_700)
    );
}

#[test]
fn an_index_is_whole_with_its_two_entries() {
    let report = index(|_| ());
    assert_eq!((report.used, report.findings), (2, Vec::new()));
}

#[test]
fn a_header_of_another_kind_is_no_index() {
    let report = index(|i| i[..4].copy_from_slice(&[0x78, 0x56, 0x34, 0x12]));
    let finding = only(&report.findings);
    assert_eq!((finding.problem, finding.spot.at), (Problem::IndexMagic, 0));
    assert_eq!((finding.found.as_str(), finding.expected.as_str()), ("magic 0x12345678", "a resource index"));
    assert!(report.view.is_none());
}

#[test]
fn an_internal_lease_that_is_gone_is_told_with_its_place_on_the_disk() {
    let report = index(|i| i[1 << 20..(1 << 20) + 512].fill(0));
    let finding = only(&report.findings);
    assert_eq!(finding.problem, Problem::IndexLease);
    assert_eq!(finding.what, format!("the internal lease at offset {}", RX_BASE + (1 << 20)));
}

#[test]
fn an_entry_without_a_name_is_no_twin() {
    let nameless = |i: &mut Vec<u8>, slot| entry(i, slot, |e| e.name = [0; 48]);
    let both = changed(RX, |i| [0, 2].into_iter().for_each(|slot| nameless(i, slot)));
    assert!(wrong(&both, RX_BASE).iter().all(|(problem, ..)| *problem != Problem::EntryTwice));
    let image = changed(RX, |i| nameless(i, 2));
    assert_eq!(
        wrong(&image, RX_BASE),
        [(Problem::EntryFields, 648, false), (Problem::EntryName, 656, true)],
        "an empty name, while the lease has one"
    );
}

#[test]
fn an_entry_is_told_with_its_sector() {
    let report = index(|i| entry(i, 8, |e| e.name[0] = b'x'));
    let sectors: Vec<_> = report.findings.iter().map(|f| f.spot.sector).collect();
    assert!(!sectors.is_empty() && sectors.iter().all(|sector| *sector == 2), "{sectors:?}");
}

#[test]
fn no_name_is_entered_twice() {
    // The first entry has lost its name, and another one has it.
    let image = changed(RX, |i| {
        entry(i, 0, |e| e.name = names(b"lost").to_field());
        entry(i, 2, |e| e.name = names(b"resA").to_field());
    });
    assert_eq!(wrong(&image, RX_BASE), [(Problem::EntryName, 528, false), (Problem::EntryName, 656, true)]);
}

#[test]
fn of_two_areas_of_one_name_without_entries_one_is_entered() {
    let image = changed(RX, |i| {
        leader(i, 4 << 20, |l| l.resource_name = names(b"resA").to_field());
        [0, 2].into_iter().for_each(|slot| entry(i, slot, |e| *e = RindexEntry::from_bytes(&[0; 64])));
    });
    assert_eq!(
        wrong(&image, RX_BASE),
        [(Problem::EntryMissing, 512, true), (Problem::EntryMissing, 640, false)]
    );
}

#[test]
fn sizes_of_an_index_are_those_of_its_lease() {
    let report = index(|i| i[12..16].copy_from_slice(&4096_u32.to_le_bytes()));
    let sizes = report.findings.iter().find(|finding| finding.problem == Problem::IndexSizes).unwrap();
    assert_eq!((sizes.spot.sector, sizes.spot.at), (0, 12));
    assert!(sizes.expected.starts_with("512/1M") && sizes.fix.is_none(), "{sizes:?}");
    // What is found by such sizes is not to be changed: here the second entry seems to be missing, and the others to be elsewhere.
    assert!(report.findings.len() > 1 && report.findings.iter().all(|finding| finding.fix.is_none()));
}

#[test]
fn an_offset_is_mended_where_the_lease_is_the_one_that_is_entered() {
    let offset = |i: &mut Vec<u8>| entry(i, 0, |e| e.res_offset = (9 << 20).into());
    let own = changed(RX, offset);
    assert_eq!(wrong(&own, RX_BASE), [(Problem::EntryOffset, 512, true)]);
    let renamed = changed(RX, |i| {
        offset(i);
        entry(i, 0, |e| e.name = names(b"other").to_field());
    });
    assert_eq!(
        wrong(&renamed, RX_BASE),
        [(Problem::EntryOffset, 512, false), (Problem::EntryName, 528, true)]
    );
    let foreign = changed(RX, |i| {
        offset(i);
        leader(i, 2 << 20, |l| l.space_name[0] = b'G');
    });
    assert_eq!(
        wrong(&foreign, RX_BASE),
        [(Problem::EntryOffset, 512, false), (Problem::EntryLockspace, 528, false)]
    );
}

/// Writes the ballot record of a host as it is, with its checksum.
fn ballot(image: &mut [u8], id: u64, [mbal, bal, inp, lver]: [u64; 4]) {
    block(image, id, |b| {
        b.dblock.mbal = mbal.into();
        b.dblock.bal = bal.into();
        b.dblock.inp = inp.into();
        b.dblock.inp2 = 1.into();
        b.dblock.lver = lver.into();
        b.dblock.seal();
    });
}

#[test]
fn ballots_that_can_be_and_that_cannot() {
    let of = |numbers| {
        let report = resource(|i| ballot(i, 3, numbers));
        report.findings.iter().map(|f| f.problem).collect::<Vec<_>>()
    };
    // Of zeros with a checksum; begun; accepted, its own value and another host's.
    for numbers in [[0, 0, 0, 0], [2003, 0, 0, 1], [2003, 2003, 3, 1], [4003, 2003, 1, 1]] {
        assert_eq!(of(numbers), [], "{numbers:?}");
    }
    for numbers in [[0, 0, 0, 1], [2, 0, 0, 0], [2, 0, 0, 1], [0, 3, 3, 1]] {
        assert_eq!(of(numbers), [Problem::BallotNumber], "{numbers:?}");
    }
    for numbers in [[2003, 4003, 3, 1], [4003, 2, 3, 1]] {
        assert_eq!(of(numbers), [Problem::BallotOrder], "{numbers:?}");
    }
}

#[test]
fn the_newest_ballot_is_that_of_the_first_valid_record_that_is_furthest() {
    let report = resource(|i| {
        ballot(i, 3, [2003, 0, 0, 7]);
        ballot(i, 4, [2004, 0, 0, 9]);
        ballot(i, 5, [2005, 0, 0, 8]);
        ballot(i, 6, [2006, 0, 0, 9]);
        ballot(i, 7, [2007, 0, 0, 50]);
        let at = usize::try_from(host(7).block_sector()).unwrap() * 512;
        i[at + 16] ^= 1;
    });
    let ahead: Vec<_> = report.findings.iter().filter(|f| f.problem == Problem::BallotAhead).collect();
    let [ahead] = ahead[..] else { panic!("{ahead:#?}") };
    assert_eq!(
        (ahead.spot.sector, ahead.fix),
        (host(4).block_sector(), Some(Fix::LeaderForward { lver: 10 }))
    );
}

#[test]
fn a_leader_is_brought_forward_to_what_somebody_may_have_counted_up_to() {
    let of = |lver: u64| {
        let report = resource(|i| {
            leader(i, 0, |l| l.lver = 5.into());
            ballot(i, 3, [2003, 0, 0, lver]);
        });
        let ahead = report.findings.iter().find(|f| f.problem == Problem::BallotAhead);
        ahead.map(|f| f.fix)
    };
    assert_eq!(of(6), None, "the next version is being acquired");
    assert_eq!(of(7), Some(Some(Fix::LeaderForward { lver: 8 })));
    let most = 5 + (1 << 32);
    assert_eq!(of(most - 1), Some(Some(Fix::LeaderForward { lver: most })));
    assert_eq!(of(most), Some(None));
    assert_eq!(of(u64::MAX), Some(None));
    // A leader that counts further than any ballot is as it should be.
    assert_eq!(of(1), None);
}

#[test]
fn beyond_the_leader_s_hosts_only_what_is_current_is_hidden() {
    let of = |numbers: [u64; 4], released: bool| {
        let report = resource(|i| {
            leader(i, 0, |l| {
                l.num_hosts = 8.into();
                l.lver = 5.into();
            });
            ballot(i, 9, numbers);
            if released {
                block(i, 9, |b| {
                    b.dblock.flags = 1.into();
                    b.dblock.seal();
                });
            }
            ballot(i, 8, [2008, 0, 0, 5]);
        });
        report.findings.iter().any(|f| f.problem == Problem::BallotHidden)
    };
    assert!(of([2009, 0, 0, 5], false) && of([2009, 0, 0, 6], false));
    assert!(!of([2009, 0, 0, 4], false), "of an older version");
    assert!(!of([2009, 0, 0, 5], true), "given back");
    assert!(!of([2009, 0, 0, 4], true));
}

fn against(resource: &ResourceReport, lockspace: &LockspaceReport) -> Vec<(Problem, u64, String)> {
    let all = check_against(resource, lockspace);
    all.into_iter().map(|f| (f.problem, f.spot.at, f.expected)).collect()
}

#[test]
fn an_owner_is_held_against_the_last_generation_that_can_be_believed() {
    let generation = |g: u64| resource(|i| leader(i, 0, |l| l.owner_generation = g.into()));
    let joined = |g: u64| lockspace(|i| leader(i, 0, |l| l.owner_generation = g.into()));
    for (owner, last) in [(4, 5), (5, 5)] {
        assert_eq!(against(&generation(owner), &joined(last)), []);
    }
    let expected = "at most 5, with which the host id was last joined".to_owned();
    assert_eq!(against(&generation(6), &joined(5)), [(Problem::OwnerUnknown, 40, expected)]);
    let damaged = lockspace(|i| i[60] ^= 1);
    assert_eq!(against(&generation(6), &damaged), [], "a damaged record is no proof");
    let never = "none: the host id was never joined".to_owned();
    let other = resource(|i| leader(i, 0, |l| l.owner_id = 7.into()));
    assert_eq!(against(&other, &joined(5)), [(Problem::OwnerUnknown, 40, never)]);
    // A lockspace of other sizes has fewer host ids.
    let small = report_of(&load("v38-ls-4k-1m-init"));
    let found = against(&resource(|i| leader(i, 0, |l| l.owner_id = 300.into())), &small);
    assert_eq!(found[1], (Problem::OwnerUnknown, 40, "a host id up to 250".to_owned()));
}

#[test]
fn a_shared_hold_that_nobody_can_have_is_told_with_its_byte() {
    let shared = check_resource(&load(SH), Geometry::B512_M1);
    let found = against(&shared, &report_of(&load("v38-ls-512-1m-init")));
    let at: Vec<_> = found.iter().map(|(problem, at, _)| (*problem, *at)).collect();
    assert_eq!(at, [(Problem::SharedUnknown, 1024 + 136), (Problem::SharedUnknown, 2001 * 512 + 136)]);
}

#[test]
fn a_leader_that_cannot_be_believed_is_not_touched() {
    let image = changed(EX, |i| i[48] ^= 1);
    assert_eq!(mend(&image, 0, Kind::Resource, Geometry::B512_M1, &[Fix::LeaderFree]), []);
    // Nor one of which the end is missing.
    let mut cut = RawLeader::zeroed();
    cut.seal();
    let mut bytes = vec![0; 512];
    cut.overlay(&mut bytes);
    for len in [0, 199] {
        assert_eq!(mend(&bytes[..len], 0, Kind::Resource, Geometry::B512_M1, &[Fix::LeaderFree]), []);
    }
}

#[test]
fn every_fix_says_what_it_does() {
    let all = [
        (
            Fix::FreeHost { host: host(3), generation: 9 },
            "host id 3 becomes free, its next generation is above 9",
        ),
        (Fix::LeaderNumHosts, "the number of hosts becomes what the sizes hold"),
        (Fix::LeaderMaxHosts, "the ballot stride becomes that of the sizes"),
        (Fix::LeaderFree, "the lease becomes free, its version stays"),
        (Fix::LeaderForward { lver: 7 }, "the lease becomes free, with version 7"),
        (Fix::Request, "there is no request any more"),
        (Fix::Ballot(host(3)), "the ballot record of host id 3 is forgotten"),
        (Fix::Mode(host(3)), "host id 3 does not hold the lease shared any more"),
        (Fix::Enter { slot: 1, name: names(b"resA") }, "the lease is entered as \"resA\""),
        (Fix::Remove { slot: 1 }, "the entry is removed"),
    ];
    for (fix, text) in all {
        assert_eq!(fix.text(), text);
    }
}

/// Brought forward it is nobody's: the disks of one lease may have had different owners.
#[test]
fn a_leader_that_is_brought_forward_has_no_owner() {
    let image = changed(EX, |i| ballot(i, 3, [2003, 0, 0, 7]));
    let before = RawLeader::from_sector(&image);
    assert!(before.timestamp.get() != 0 && before.owner_id.get() != 0);
    let changes = mend(&image, 0, Kind::Resource, Geometry::B512_M1, &[Fix::LeaderForward { lver: 8 }]);
    let [change] = &changes[..] else { panic!("{changes:?}") };
    let after = RawLeader::from_sector(&change.after);
    let owner = (after.owner_id.get(), after.owner_generation.get(), after.timestamp.get());
    assert_eq!((owner, after.lver.get(), after.num_hosts), ((0, 0, 0), 8, before.num_hosts));
    assert_eq!(after.computed_checksum(), after.checksum.get());
}

/// To which leader ballots go is told by the newest one of all disks.
#[test]
fn a_disk_is_behind_whose_ballots_go_with_a_leader_on_another_one() {
    let report = resource(|i| {
        leader(i, 0, |l| l.lver = 5.into());
        ballot(i, 3, [2003, 0, 0, 9]);
        ballot(i, 4, [2004, 0, 0, 7]);
    });
    assert_eq!(report.furthest, 9);
    let found: Vec<bool> = [5, 7, 8, 9, u64::MAX].map(|newest| is_behind(&report, newest)).to_vec();
    assert_eq!(found, [false, false, true, true, true]);
    // The largest version there is has none after it.
    let last = |lver: u64| {
        let report = resource(|i| {
            leader(i, 0, |l| l.lver = (u64::MAX - 9).into());
            ballot(i, 3, [2003, 0, 0, lver]);
        });
        report.findings.iter().find(|f| f.problem == Problem::BallotAhead).map(|f| f.fix)
    };
    assert_eq!(last(u64::MAX - 2), Some(Some(Fix::LeaderForward { lver: u64::MAX - 1 })));
    assert_eq!(last(u64::MAX - 1), Some(None));
    assert_eq!(last(u64::MAX), Some(None));
}

#[test]
fn a_lockspace_is_known_by_any_record_that_is_right() {
    for (image, geometry) in [(LS, Geometry::B512_M1), ("v38-ls-4k-8m-init", Geometry::B4096_M8)] {
        let image = load(image);
        for from in [8192, 64 << 10] {
            assert_eq!(identify_within(&image[from..from + 8192]), Some(geometry), "{from}");
        }
    }
    let records = load(LS)[8192..16384].to_vec();
    let mut damaged = records.clone();
    damaged.chunks_mut(512).for_each(|record| record[40] ^= 1);
    assert_eq!(identify_within(&damaged), None, "no checksum is right");
    damaged[15 * 512..].copy_from_slice(&records[15 * 512..]);
    assert_eq!(identify_within(&damaged), Some(Geometry::B512_M1), "one is");
    for other in [load(EX)[..8192].to_vec(), vec![0; 8192], Vec::new()] {
        assert_eq!(identify_within(&other), None);
    }
}

#[test]
fn what_a_repair_writes_itself_is_no_sign_of_life() {
    let mut area = load("v38-ls-512-1m-released");
    let who = [3, 4].map(|id| sanlock_lease::fsck::Gone::Host(host(id)));
    let name = Name::from_field(&RawLeader::from_sector(&area).space_name);
    let (begin, unknown) = (MonoTime::from_secs(1000), IoTimeout::new(255).unwrap());
    let watch = (Geometry::B512_M1, name);
    let mut silence = Silence::new(begin, &area, watch, &who, &[], unknown, WatchdogFire::DEFAULT);
    leader(&mut area, 1024, |l| l.owner_generation = 9.into());
    assert_eq!(silence.look(begin, &area), Verdict::Alive(host(3)));
    silence.rewritten(host(3), &area[1024..1536]);
    assert_eq!(silence.look(begin, &area), Verdict::Gone);
    leader(&mut area, 1536, |l| l.owner_generation = 9.into());
    assert_eq!(silence.look(begin, &area), Verdict::Alive(host(4)), "of that one alone");
}
