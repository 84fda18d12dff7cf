//! Every kind of damage, made on recorded areas: found, named, and mended where that is safe.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod edges;
#[path = "../images/mod.rs"]
mod images;

use images::{expected, load};
use sanlock_lease::delta::{DeltaAcquire, DeltaConfig};
use sanlock_lease::fsck::{
    Finding, Fix, Gone, HEAD_BYTES, Kind, Level, LockspaceReport, Problem, check_against, check_disks,
    check_index, check_lockspace, check_resource, identify, mend,
};
use sanlock_lease::geometry::{Geometry, HostId, SectorSize};
use sanlock_lease::machine::Place;
use sanlock_lease::name::Name;
use sanlock_lease::paxos::acquire::{AcquireOptions, AcquireOutcome};
use sanlock_lease::paxos::{PaxosAcquire, PaxosConfig};
use sanlock_lease::record::{HostBlock, RawLeader, RindexEntry};
use sanlock_lease::rindex::IndexView;
use sanlock_lease::testing::Lab;
use sanlock_lease::timing::{IoTimeout, WatchdogFire};
use std::collections::BTreeMap;

const LS: &str = "v38-ls-512-1m-joined-1-2000";
const EX: &str = "v38-res-512-1m-ex";
const RX: &str = "v38-rindex-512-1m-3created-1deleted";
/// Where the recorded index lay on its disk.
const RX_BASE: u64 = 1 << 20;

fn host(id: u64) -> HostId {
    HostId::new(id).unwrap()
}

/// The leaders of an index's resource areas, as a caller reads them.
fn leases(image: &[u8], base: u64) -> BTreeMap<u32, RawLeader> {
    let Ok(view) = IndexView::read(image, base) else { return BTreeMap::new() };
    let leader = |slot| {
        let at = usize::try_from(view.area_offset(slot) - base).unwrap();
        Some((slot, RawLeader::from_sector(image.get(at..)?)))
    };
    (0..view.count()).filter_map(leader).collect()
}

/// Everything that is wrong with the area at the start of an image.
fn findings(image: &[u8], base: u64) -> (Kind, Geometry, Vec<Finding>) {
    let found = identify(&image[..HEAD_BYTES]).unwrap();
    let area = usize::try_from(found.geometry.align().bytes()).unwrap();
    let findings = match found.kind {
        Kind::Lockspace => check_lockspace(&image[..area], found.geometry, &BTreeMap::new()).findings,
        Kind::Resource => check_resource(&image[..area], found.geometry).findings,
        Kind::Index => {
            let lease = RawLeader::from_sector(&image[area..]);
            check_index(&image[..area], base, &lease, &leases(image, base)).findings
        }
    };
    (found.kind, found.geometry, findings)
}

fn base_of(name: &str) -> u64 {
    match name {
        "v38-rindex-4k-8m-formatted" => 8 << 20,
        name if name.contains("rindex") => RX_BASE,
        _ => 0,
    }
}

/// Mends everything that can be mended, and returns what is left.
fn mended(image: &[u8], base: u64) -> (Vec<u8>, Vec<Finding>) {
    let (kind, geometry, found) = findings(image, base);
    let fixes: Vec<Fix> = found.iter().filter_map(|f| f.fix).collect();
    let area = usize::try_from(geometry.align().bytes()).unwrap();
    let mut after = image.to_vec();
    for change in mend(&image[..area], base, kind, geometry, &fixes) {
        let at = usize::try_from(change.at).unwrap();
        assert_eq!(image[at..at + change.before.len()], change.before);
        after[at..at + change.after.len()].copy_from_slice(&change.after);
    }
    let left = findings(&after, base).2;
    (after, left)
}

#[test]
fn nothing_that_the_original_wrote_is_damage() {
    let mut areas = 0;
    for (name, _) in expected() {
        let image = load(&name);
        let (_, _, found) = findings(&image, base_of(&name));
        let damage: Vec<_> = found.iter().filter(|f| f.problem.level() == Level::Damage).collect();
        assert!(damage.is_empty(), "{name}: {damage:#?}");
        areas += 1;
    }
    assert!(areas > 60, "{areas}");
}

/// Sets a field of a record that has a checksum, and makes that right again.
fn leader(image: &mut [u8], at: usize, change: impl FnOnce(&mut RawLeader)) {
    let mut record = RawLeader::from_sector(&image[at..]);
    change(&mut record);
    record.seal();
    record.overlay(&mut image[at..at + 512]);
}

fn block(image: &mut [u8], id: u64, change: impl FnOnce(&mut HostBlock)) {
    let at = usize::try_from(host(id).block_sector()).unwrap() * 512;
    let mut block = HostBlock::from_sector(&image[at..at + 512]);
    change(&mut block);
    if block.dblock.mbal.get() != 0 {
        block.dblock.seal();
    }
    block.encode(&mut image[at..at + 512]);
}

fn entry(image: &mut [u8], slot: usize, change: impl FnOnce(&mut RindexEntry)) {
    let at = 512 + 64 * slot;
    let mut entry = RindexEntry::from_bytes(&image[at..]);
    change(&mut entry);
    image[at..at + 64].copy_from_slice(&entry.to_bytes());
}

type Damage = (Problem, &'static str, u64, bool, fn(&mut Vec<u8>));

/// What is found, in which area, at which of its bytes, whether it can be mended, and how it came about.
const DAMAGES: &[Damage] = &[
    (Problem::HostMagic, LS, 0, true, |i| i[0] ^= 0xff),
    (Problem::HostMagic, LS, 1024, true, |i| i[1024..1536].fill(0)),
    (Problem::HostMagic, LS, 1024, false, |i| i[1024..1536].copy_from_slice(&load(EX)[..512])),
    (Problem::HostVersion, LS, 1028, true, |i| i[1030] = 9),
    (Problem::HostVersion, LS, 1028, false, |i| leader(i, 1024, |l| l.version = 0x0009_0000.into())),
    (Problem::HostLockspace, LS, 1024 + 56, false, |i| leader(i, 1024, |l| l.space_name[0] = b'x')),
    (Problem::HostChecksum, LS, 1024 + 168, true, |i| i[1024 + 56] = b'x'),
    (Problem::HostChecksum, LS, 168, true, |i| i[40] ^= 4),
    (Problem::HostSizes, LS, 12, true, |i| {
        leader(i, 0, |l| {
            l.sector_size = 4096.into();
            l.flags = 0x80.into();
        });
    }),
    (Problem::HostCaw, LS, 1024 + 8, false, |i| leader(i, 1024, |l| l.flags = 0x18.into())),
    (Problem::HostOwner, LS, 1024 + 32, true, |i| i.copy_within(0..512, 1024)),
    (Problem::HostState, LS, 1024 + 32, true, |i| leader(i, 1024, |l| l.timestamp = 5.into())),
    (Problem::HostIoTimeout, LS, 174, false, |i| leader(i, 0, |l| l.io_timeout = 300.into())),
    (Problem::HostGeneration, LS, 1024 + 40, true, |i| {
        leader(i, 1024, |l| l.owner_generation = u64::MAX.into());
    }),
    (Problem::HostNameTwice, LS, 512 + 104, false, |i| {
        i.copy_within(0..512, 512);
        leader(i, 512, |l| l.owner_id = 2.into());
    }),
    (Problem::LockspaceTail, LS, 1_024_000, false, |i| i[1_024_000] = 1),
    (Problem::LeaderMagic, EX, 0, false, |i| i[1] ^= 0xff),
    (Problem::LeaderMagic, EX, 0, false, |i| i[..512].fill(0)),
    (Problem::LeaderVersion, EX, 4, false, |i| leader(i, 0, |l| l.version = 0x0003_0004.into())),
    (Problem::LeaderChecksum, EX, 168, false, |i| i[48] ^= 1),
    (Problem::LeaderSizes, EX, 12, false, |i| leader(i, 0, |l| l.sector_size = 1024.into())),
    (Problem::LeaderNumHosts, EX, 16, true, |i| leader(i, 0, |l| l.num_hosts = 5000.into())),
    (Problem::LeaderNumHosts, EX, 16, true, |i| leader(i, 0, |l| l.num_hosts = 0.into())),
    (Problem::LeaderMaxHosts, EX, 24, true, |i| leader(i, 0, |l| l.max_hosts = 250.into())),
    (Problem::LeaderOwner, EX, 32, true, |i| leader(i, 0, |l| l.owner_id = 2001.into())),
    (Problem::LeaderOwner, EX, 32, true, |i| leader(i, 0, |l| l.owner_id = 0.into())),
    (Problem::LeaderLast, EX, 48, false, |i| leader(i, 0, |l| l.lver = u64::MAX.into())),
    (Problem::LeaderCleared, "v38-res-512-1m-cleared", 0, false, |_| ()),
    (Problem::LeaderCaw, "v51caw-res-512-1m-ex", 8, false, |_| ()),
    (Problem::RequestMagic, EX, 512, true, |i| i[512] ^= 1),
    (Problem::RequestVersion, EX, 516, true, |i| i[518] = 2),
    (Problem::RequestMode, EX, 528, true, |i| i[528] = 0x80),
    (Problem::BallotChecksum, EX, 1024 + 48, true, |i| i[1024 + 16] ^= 2),
    (Problem::BallotChecksum, EX, 3 * 512 + 48, true, |i| i[3 * 512..4 * 512].fill(0xa5)),
    (Problem::BallotNumber, EX, 1024, true, |i| block(i, 1, |b| b.dblock.mbal = 2.into())),
    (Problem::BallotOrder, EX, 1032, true, |i| block(i, 1, |b| b.dblock.bal = 2001.into())),
    (Problem::BallotValue, EX, 1040, true, |i| block(i, 1, |b| b.dblock.inp = 2001.into())),
    (Problem::BallotValue, EX, 1040, true, |i| block(i, 1, |b| b.dblock.inp = 0.into())),
    (Problem::BallotAhead, EX, 1024 + 40, true, |i| block(i, 1, |b| b.dblock.lver = 4.into())),
    (Problem::BallotHidden, "v38-res-512-1m-sh2", 2001 * 512, false, |i| {
        leader(i, 0, |l| l.num_hosts = 8.into())
    }),
    (Problem::ModeFlags, EX, 1024 + 128, true, |i| i[1024 + 131] = 0x40),
    (Problem::ModeHold, "v38-res-512-1m-sh2", 1024 + 136, true, |i| i[1024 + 128] = 0),
    (Problem::ModeHold, "v38-res-512-1m-sh2", 1024 + 136, true, |i| i[1024 + 136] = 0),
    (Problem::IndexVersion, RX, 4, false, |i| i[6] = 9),
    (Problem::IndexPlace, RX, 24, false, |i| i[26] = 0x20),
    (Problem::IndexSizes, RX, 8, false, |i| i[8] = 3 << 2),
    (Problem::IndexLockspace, RX, 32, false, |i| i[32] = b'G'),
    (Problem::IndexLease, RX, 0, false, |i| i[1 << 20..(1 << 20) + 512].fill(0)),
    (Problem::EntryOffset, RX, 512, true, |i| entry(i, 0, |e| e.res_offset = (9 << 20).into())),
    (Problem::EntryDangling, RX, 512 + 16, false, |i| i[2 << 20..(2 << 20) + 512].fill(0)),
    (Problem::EntryCleared, RX, 576 + 16, true, |i| {
        entry(i, 1, |e| {
            e.res_offset = (4 << 20).into();
            e.name[..4].copy_from_slice(b"resB");
        });
    }),
    (Problem::EntryName, RX, 512 + 16, true, |i| entry(i, 0, |e| e.name[0] = b'R')),
    (Problem::EntryMissing, RX, 512, true, |i| i[512..576].fill(0)),
    (Problem::EntryMissing, RX, 512, false, |i| {
        i[512..576].fill(0);
        i[(2 << 20) + 48] ^= 1;
    }),
    (Problem::EntryTwice, RX, 640 + 16, false, |i| {
        entry(i, 2, |e| e.name[3] = b'A');
        leader(i, 4 << 20, |l| l.resource_name[3] = b'A');
    }),
    (Problem::EntryLockspace, RX, 512 + 16, false, |i| leader(i, 2 << 20, |l| l.space_name[0] = b'G')),
    (Problem::EntryFields, RX, 512 + 8, false, |i| entry(i, 0, |e| e.flags = 1.into())),
];

#[test]
fn every_damage_is_found_and_named_at_its_place() {
    for (number, (problem, name, at, fixable, damage)) in DAMAGES.iter().enumerate() {
        let mut image = load(name);
        damage(&mut image);
        let (_, _, found) = findings(&image, base_of(name));
        let hit = found.iter().find(|f| f.problem == *problem);
        let hit = hit.unwrap_or_else(|| panic!("damage {number} of {name}, {problem:?}: {found:#?}"));
        assert_eq!((hit.spot.at, hit.fix.is_some()), (*at, *fixable), "damage {number}: {hit:#?}");
        assert!(!hit.found.is_empty() && hit.found != hit.expected, "damage {number}: {hit:#?}");
    }
    let kinds: std::collections::BTreeSet<_> = DAMAGES.iter().map(|(problem, ..)| *problem).collect();
    // The others are seen by whoever reads the storage, or between several areas: below, and in the command's tests.
    let elsewhere = [
        Problem::AreaShort,
        Problem::OwnerUnknown,
        Problem::SharedUnknown,
        Problem::SizesDiffer,
        Problem::ResourceTwice,
        Problem::IndexMagic,
        Problem::DisksContradict,
        Problem::DisksDiffer,
        Problem::DisksBehind,
    ];
    for problem in Problem::ALL {
        assert!(kinds.contains(problem) != elsewhere.contains(problem), "{problem:?}");
    }
}

#[test]
fn what_was_mended_is_not_found_again_and_nothing_else_changes() {
    for (number, (problem, name, _, fixable, damage)) in DAMAGES.iter().enumerate() {
        let mut image = load(name);
        damage(&mut image);
        let (after, left) = mended(&image, base_of(name));
        assert!(left.iter().all(|f| f.fix.is_none()), "damage {number}, {problem:?}: {left:#?}");
        if *fixable {
            assert!(left.iter().all(|f| f.problem != *problem), "damage {number}, {problem:?}: {left:#?}");
            let changed = after.chunks(512).zip(image.chunks(512)).filter(|(a, b)| a != b).count();
            assert_eq!(changed, 1, "damage {number}, {problem:?}");
        } else {
            assert!(after == image, "damage {number}, {problem:?}");
        }
    }
}

#[test]
fn only_the_record_of_a_host_id_can_be_mended_beside_living_hosts() {
    for (problem, name, _, _, damage) in DAMAGES {
        let mut image = load(name);
        damage(&mut image);
        for fix in findings(&image, base_of(name)).2.iter().filter_map(|f| f.fix) {
            match fix {
                Fix::FreeHost { host, .. } => assert_eq!(fix.gone(), Gone::Host(host), "{problem:?}"),
                _ => assert_eq!(fix.gone(), Gone::Everybody, "{problem:?}"),
            }
        }
    }
}

#[test]
fn a_mended_record_forgets_no_generation_that_is_known() {
    let claims = BTreeMap::from([(host(3), 9), (host(1), 4)]);
    let mut image = load(LS);
    image[1024..1536].fill(0);
    // The generation of host 1 reads 5 now, and its checksum is wrong.
    image[40] = 5;
    let report = check_lockspace(&image, Geometry::B512_M1, &claims);
    let fixes: Vec<_> = report.findings.iter().filter_map(|f| f.fix).collect();
    let expected = [(1, 5), (3, 9)].map(|(id, generation)| Fix::FreeHost { host: host(id), generation });
    assert_eq!(fixes, expected);
    for change in mend(&image, 0, Kind::Lockspace, Geometry::B512_M1, &fixes) {
        let at = usize::try_from(change.at).unwrap();
        image[at..at + 512].copy_from_slice(&change.after);
    }
    let report = check_lockspace(&image, Geometry::B512_M1, &claims);
    assert_eq!(report.findings, []);
    let of = |id| *report.host(host(id)).unwrap();
    assert_eq!((of(1).generation, of(1).timestamp, of(1).name), (5, 0, Name::default()));
    assert_eq!((of(3).generation, of(3).timestamp, of(3).intact), (9, 0, true));
}

#[test]
fn where_most_records_are_gone_none_is_made_up() {
    let mut image = load(LS);
    image[..1001 * 512].fill(0);
    image[..512].copy_from_slice(&load(LS)[..512]);
    let report = check_lockspace(&image, Geometry::B512_M1, &BTreeMap::new());
    assert_eq!(report.findings.len(), 1000);
    assert!(report.findings.iter().all(|f| f.fix.is_none()));
}

#[test]
fn a_leader_keeps_its_version_or_gets_a_later_one() {
    for (problem, name, _, fixable, damage) in DAMAGES {
        let mut image = load(name);
        damage(&mut image);
        if *fixable && name.contains("-res-") {
            let (before, after) =
                (RawLeader::from_sector(&image), RawLeader::from_sector(&mended(&image, 0).0));
            assert!(after.lver.get() >= before.lver.get(), "{problem:?}");
            let is_free = after.timestamp.get() == 0;
            assert!(is_free || after.owner_id == before.owner_id, "{problem:?}");
        }
    }
}

/// What an acquire of this resource by host `id`, generation 1, comes to.
fn acquire(lab: &mut Lab, resource: Name, id: u64) -> AcquireOutcome {
    let config = PaxosConfig {
        lockspace: Name::new(b"golden-ls").unwrap(),
        resource,
        host: host(id),
        generation: 1,
        io_timeout: IoTimeout::new(1).unwrap(),
        fire: WatchdogFire::DEFAULT,
        geometry: Geometry::B512_M1,
        disks: 1,
    };
    let options = AcquireOptions { owner_nowait: true, seed: id, ..AcquireOptions::default() };
    lab.run(&mut PaxosAcquire::new(config, options)).outcome
}

#[test]
fn a_mended_lease_is_to_be_had_by_one_host() {
    // Everybody has left, which is what mending a lease asks for.
    let lockspace = load("v38-ls-512-1m-released");
    let mut tried = 0;
    for (problem, name, _, fixable, damage) in DAMAGES {
        if !fixable || !name.starts_with("v38-res-") {
            continue;
        }
        let mut image = load(name);
        damage(&mut image);
        let (mended, _) = mended(&image, 0);
        let mut lab = Lab::new();
        for (place, image) in [(Place::Lockspace, &lockspace), (Place::Resource(0), &mended)] {
            lab.disk.add(place, image.len() as u64);
            lab.disk.write(place, SectorSize::B512, 0, image);
        }
        let join = DeltaConfig {
            lockspace: Name::new(b"golden-ls").unwrap(),
            host: host(5),
            host_name: Name::new(b"five").unwrap(),
            io_timeout: IoTimeout::new(1).unwrap(),
            fire: WatchdogFire::DEFAULT,
        };
        assert!(lab.run(&mut DeltaAcquire::new(join, None)).outcome.is_ok(), "{problem:?}");
        let resource = Name::from_field(&RawLeader::from_sector(&mended).resource_name);
        let before = RawLeader::from_sector(&mended).lver.get();
        match acquire(&mut lab, resource, 5) {
            AcquireOutcome::Acquired(held) => assert!(held.lver() > before, "{problem:?}"),
            AcquireOutcome::Failed { error, .. } => panic!("{problem:?}: {error}"),
        }
        let second = acquire(&mut lab, resource, 6);
        assert!(matches!(second, AcquireOutcome::Failed { .. }), "{problem:?}: a second owner: {second:?}");
        tried += 1;
    }
    assert!(tried > 15, "{tried}");
}

#[test]
fn a_shared_hold_outlives_the_repair_of_the_ballot_beside_it() {
    let mut image = load("v38-res-512-1m-sh2");
    image[1024] ^= 0xff;
    let (after, left) = mended(&image, 0);
    assert_eq!(left, []);
    let block = HostBlock::from_sector(&after[1024..]);
    assert!(block.dblock.is_unused() && block.mode.is_shared());
}

fn report_of(lockspace: &[u8]) -> LockspaceReport {
    check_lockspace(lockspace, identify(lockspace).unwrap().geometry, &BTreeMap::new())
}

fn against(resource: &[u8], lockspace: &[u8]) -> Vec<Problem> {
    let report = check_resource(resource, identify(resource).unwrap().geometry);
    check_against(&report, &report_of(lockspace)).iter().map(|f| f.problem).collect()
}

#[test]
fn resources_are_judged_by_the_lockspace_they_belong_to() {
    let (held, shared, lockspace) = (load(EX), load("v38-res-512-1m-sh2"), load(LS));
    assert_eq!(against(&held, &lockspace), []);
    assert_eq!(against(&shared, &lockspace), []);
    // The lockspace was formatted anew under its leases.
    let fresh = load("v38-ls-512-1m-init");
    assert_eq!(against(&held, &fresh), [Problem::OwnerUnknown]);
    assert_eq!(against(&shared, &fresh), [Problem::SharedUnknown; 2]);
    // A free lease says nothing any more.
    assert_eq!(against(&load("v38-res-512-1m-ex-released"), &fresh), []);
    // A damaged record is no proof of anything.
    let mut damaged = lockspace.clone();
    damaged[0] ^= 1;
    assert_eq!(against(&held, &damaged), []);
    assert_eq!(against(&load("v38-res-4k-8m-init"), &lockspace), [Problem::SizesDiffer]);
}

#[test]
fn the_disks_of_a_resource_are_compared() {
    let check = |image: &[u8]| check_resource(image, Geometry::B512_M1);
    let problems = |a: &[u8], b: &[u8]| -> Vec<_> {
        check_disks(&[&check(a), &check(b)]).into_iter().map(|(disk, f)| (disk, f.problem)).collect()
    };
    let (held, free) = (load(EX), load("v38-res-512-1m-ex-released"));
    assert_eq!(problems(&held, &held), []);
    let mut older = held.clone();
    leader(&mut older, 0, |l| l.lver = 0.into());
    assert_eq!(problems(&older, &held), [(0, Problem::DisksBehind)]);
    assert_eq!(problems(&held, &older), [(1, Problem::DisksBehind)]);
    let mut other = held.clone();
    leader(&mut other, 0, |l| l.owner_id = 2.into());
    assert_eq!(problems(&held, &other), [(1, Problem::DisksContradict)]);
    let mut foreign = free.clone();
    leader(&mut foreign, 0, |l| l.space_name[0] = b'x');
    assert_eq!(problems(&free, &foreign), [(1, Problem::DisksDiffer)]);
}

#[test]
fn silence_proves_death_in_lockspaces_of_3_x_only() {
    for (name, _) in expected().into_iter().filter(|(name, _)| name.contains("-ls-")) {
        let image = load(&name);
        let of_3_x = name.starts_with("v38-") || name.ends_with("init-v3.4");
        assert_eq!(report_of(&image).by_silence, of_3_x, "{name}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]

    #[test]
    fn whatever_lies_there_is_survived_and_what_was_mended_stays_so(
        which in 0..4usize,
        pokes in proptest::collection::vec((0..6_usize, 0..4096_usize, proptest::num::u8::ANY), 1..12),
    ) {
        let name = [LS, EX, "v38-res-512-1m-sh2", RX][which];
        let mut image = load(name);
        for (chunk, at, value) in pokes {
            // The start of the area, some way into it, and the areas behind it.
            let base = [0, 4096, 1_022_976, 1 << 20, 2 << 20, 3 << 20][chunk];
            if let Some(byte) = image.get_mut(base + at) {
                *byte = value;
            }
        }
        if identify(&image[..HEAD_BYTES]).is_some_and(|found| found.geometry == Geometry::B512_M1) {
            let (after, left) = mended(&image, base_of(name));
            proptest::prop_assert!(left.iter().all(|f| f.fix.is_none()), "{left:#?}");
            proptest::prop_assert!(mended(&after, base_of(name)).0 == after);
        }
    }
}

#[test]
fn areas_are_known_by_their_first_or_second_sector() {
    for (name, kind) in [(LS, Kind::Lockspace), (EX, Kind::Resource), ("v38-ls-4k-4m-init", Kind::Lockspace)]
    {
        let mut image = load(name);
        let whole = identify(&image).unwrap();
        assert_eq!((whole.kind, whole.by_first), (kind, true), "{name}");
        let first = whole.geometry.sector().slice_len();
        image[..first].fill(0);
        let second = identify(&image).unwrap();
        assert_eq!((second.kind, second.geometry, second.by_first), (kind, whole.geometry, false), "{name}");
    }
    assert_eq!(identify(&[0; HEAD_BYTES]), None);
    assert_eq!(identify(&[0xff; HEAD_BYTES]), None);
    assert_eq!(identify(b""), None);
}
