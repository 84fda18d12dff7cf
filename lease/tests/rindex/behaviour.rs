//! What each command answers, writes, and refuses (disk-format.md 8, lease-algorithms.md 11).

use super::*;
use sanlock_lease::code::ReturnCode;
use sanlock_lease::record::PAXOS_CLEARED_MAGIC;

const MIB: u64 = 1 << 20;

#[track_caller]
fn refused(result: Result<Entry, RindexError>, code: i32) {
    let error = result.expect_err("is refused");
    assert_eq!(ReturnCode::from(&error).0, code, "{error}");
}

#[test]
fn create_lookup_delete_in_all_sizes() {
    for geometry in Geometry::ALL {
        let align = geometry.align().bytes();
        for base in [0, 3 * align] {
            let mut rig = Rig::formatted(geometry, base);
            let at = |slot: u64| base + (2 + slot) * align;
            assert_eq!(rig.run(lookup("", 0)), entry("", at(0)), "{geometry:?}");
            for (slot, resource) in [(0, "a"), (1, "b"), (2, "c")] {
                assert_eq!(rig.run(create(resource)), entry("", at(slot)), "the name is not repeated");
                assert_eq!(rig.run(lookup(resource, 0)), entry(resource, at(slot)));
                assert_eq!(rig.run(lookup("", at(slot))), entry(resource, at(slot)));
                assert_eq!(rig.run(lookup(resource, at(slot))), entry(resource, at(slot)));
            }
            assert_eq!(rig.leader(at(1)).num_hosts.get(), u64::from(geometry.max_hosts()));
            assert_eq!(rig.run(delete("b")), entry("", 0));
            assert_eq!(rig.leader(at(1)).magic.get(), PAXOS_CLEARED_MAGIC);
            assert_eq!(rig.names(), [(0, "a".to_owned()), (2, "c".to_owned())]);
            rig.assert_sound("after a delete");
            refused(rig.run(lookup("b", 0)), -2);
            assert_eq!(rig.run(lookup("", at(1))), entry("", at(1)), "an unused entry has an empty name");
            assert_eq!(rig.run(create("d")), entry("", at(1)), "the first free one");
            assert_eq!(rig.run(lookup("", 0)), entry("", at(3)));
            rig.assert_sound("at the end");
        }
    }
}

#[test]
fn num_hosts_is_written_into_the_lease() {
    let mut rig = Rig::usual();
    let command = RindexCommand::Create { name: name("r"), num_hosts: 8, seed: 0 };
    let offset = rig.run(command).unwrap().offset;
    assert_eq!(rig.leader(offset).num_hosts.get(), 8);
}

#[test]
fn the_order_of_transfers() {
    let mut rig = Rig::usual();
    rig.run(create("a")).unwrap();
    // Header, index, area, entry; the lease is taken and released by its own machines. The leader of a new area is taken away first
    // and put in place last, that of a cleared one changed first.
    let (base, area, whole) = (MIB, 3 * MIB, 1 << 20);
    let written = [(area, -512), (area, -whole), (area, -512), (base + 512, -512)];
    assert_eq!(rig.trace, [&[(base, 4096), (base, whole)][..], &written].concat());
    rig.trace.clear();
    rig.run(delete("a")).unwrap();
    assert_eq!(rig.trace, [(base, 4096), (base, whole), (base + 512, -512), (area, -512), (area, -whole)]);
    rig.trace.clear();
    rig.run(lookup("a", 0)).unwrap_err();
    assert_eq!(rig.trace, [(base, 4096), (2 * MIB, 4096), (base, whole)]);
}

/// It changes nothing; but what it answers is where others go, so the lease must agree with the header, or be gone.
#[test]
fn a_lookup_takes_no_lease_and_looks_whether_there_is_one_that_says_otherwise() {
    let mut rig = Rig::usual();
    rig.run(create("a")).unwrap();
    for (command, expected) in
        [(lookup("a", 0), entry("a", 3 * MIB)), (lookup("", 3 * MIB), entry("a", 3 * MIB))]
    {
        rig.trace.clear();
        assert_eq!(rig.run_as(None, command), expected);
        assert_eq!(rig.trace, [(MIB, 4096), (2 * MIB, 4096), (MIB, 1 << 20)]);
    }
    rig.lab.disk.edit(Place::Resource(0), SectorSize::B512, 0, |sector| sector.fill(0));
    assert_eq!(rig.run_as(None, lookup("a", 0)), entry("a", 3 * MIB));
}

#[test]
fn update_sets_and_clears_one_entry_and_leaves_the_area_alone() {
    let mut rig = Rig::usual();
    let member = Some(rig.member(1, 1));
    for with in [member, None] {
        let add = RindexCommand::Add { name: name("x"), offset: 5 * MIB, seed: 0 };
        assert_eq!(rig.run_as(with, add), entry("x", 5 * MIB));
        assert_eq!(rig.names(), [(2, "x".to_owned())]);
        let again = RindexCommand::Add { name: name("y"), offset: 5 * MIB, seed: 0 };
        assert_eq!(rig.run_as(with, again), entry("y", 5 * MIB), "whatever it held is replaced");
        let remove = RindexCommand::Remove { offset: 5 * MIB, seed: 0 };
        assert_eq!(rig.run_as(with, remove), entry("", 0));
        assert_eq!(rig.names(), []);
        assert_eq!(rig.bytes(5 * MIB, 4096), [0; 4096]);
    }
    refused(rig.run(RindexCommand::Add { name: name(""), offset: 5 * MIB, seed: 0 }), -22);
    refused(rig.run(RindexCommand::Add { name: name("x"), offset: 0, seed: 0 }), -22);
    refused(rig.run(RindexCommand::Remove { offset: 0, seed: 0 }), -22);
}

#[test]
fn a_name_is_made_once() {
    let mut rig = Rig::usual();
    rig.run(create("a")).unwrap();
    let before = rig.entries();
    refused(rig.run(create("a")), -17);
    assert_eq!(rig.entries(), before);
    // Without a name there is nothing to find a second one by.
    rig.run(create("")).unwrap();
    rig.run(create("")).unwrap();
    assert_eq!(rig.entries().len(), 3);
    refused(rig.run(delete("")), -2);
    assert_eq!(rig.run(lookup("", 4 * MIB)), entry("", 4 * MIB));
}

#[test]
fn a_full_index_refuses() {
    let mut rig = Rig::new(Geometry::B512_M1, MIB);
    let format = RindexCommand::Format { geometry: Geometry::B512_M1, max_resources: 2 };
    rig.run_as(None, format).unwrap();
    rig.run(create("a")).unwrap();
    rig.run(create("b")).unwrap();
    let full = |result: Result<Entry, RindexError>| {
        assert_eq!(result, Err(RindexError::Full(2)));
        refused(result, -2);
    };
    full(rig.run(create("c")));
    full(rig.run(lookup("", 0)));
}

#[test]
fn max_resources_has_a_default_and_a_limit() {
    for (asked, expected) in [(0, 4096), (1, 1), (16_000, 16_000), (16_001, 16_000), (u32::MAX, 16_000)] {
        let mut rig = Rig::new(Geometry::B512_M1, 0);
        let format = RindexCommand::Format { geometry: Geometry::B512_M1, max_resources: asked };
        rig.run_as(None, format).unwrap();
        let header = RindexHeader::from_sector(&rig.bytes(0, 512));
        assert_eq!(header.max_resources.get(), expected);
    }
}

#[test]
fn offsets_that_are_no_area_of_the_index_are_refused_before_anything_is_touched() {
    let mut rig = Rig::usual();
    let last = rig.area(4095);
    for offset in [1, 512, MIB, 2 * MIB, 3 * MIB + 512, last + MIB, u64::MAX, u64::MAX << 20] {
        for command in [
            lookup("", offset),
            lookup("a", offset),
            RindexCommand::Add { name: name("a"), offset, seed: 0 },
            RindexCommand::Remove { offset, seed: 0 },
        ] {
            rig.trace.clear();
            refused(rig.run(command), -277);
            assert_eq!(rig.trace.len(), 1, "only the header was read");
        }
    }
    assert_eq!(rig.run(lookup("", last)), entry("", last));
    // A delete goes by the name; of an offset only the alignment counts.
    rig.run(create("a")).unwrap();
    let delete = |offset| RindexCommand::Delete { name: name("a"), offset, seed: 0 };
    refused(rig.run(delete(3 * MIB + 1)), -277);
    assert_eq!(rig.run(delete(9 * MIB)), entry("", 0));
}

#[test]
fn name_and_offset_must_belong_together() {
    let mut rig = Rig::usual();
    rig.run(create("a")).unwrap();
    let differs = |found| RindexError::Differs { found, offset: 3 * MIB };
    assert_eq!(rig.run(lookup("b", 3 * MIB)), Err(differs(name("a"))));
    refused(rig.run(lookup("b", 3 * MIB)), -278);
    refused(rig.run(lookup("b", 4 * MIB)), -278);
    // With one of the two, or both as they are, the other is found.
    for found in [lookup("a", 0), lookup("", 3 * MIB), lookup("a", 3 * MIB)] {
        assert_eq!(rig.run(found), entry("a", 3 * MIB), "{found:?}");
    }
}

#[test]
fn headers_that_are_not_ours() {
    let mut rig = Rig::usual();
    let sector = rig.bytes(MIB, 512);
    let wrong = |change: fn(&mut RindexHeader)| {
        let mut header = RindexHeader::from_sector(&sector);
        change(&mut header);
        let mut bytes = vec![0; 512];
        header.encode(&mut bytes);
        bytes
    };
    for (bytes, code) in [
        (vec![0; 512], -274),
        (wrong(|h| h.version = 0x0002_0000.into()), -275),
        (wrong(|h| h.lockspace_name = name("other").to_field()), -276),
        (wrong(|h| h.rx_offset = 0.into()), -277),
        (wrong(|h| h.sector_size = 1024.into()), -22),
        (wrong(|h| h.flags = 2.into()), -22),
        (wrong(|h| h.flags = 0.into()), -22),
    ] {
        rig.lab.disk.write(Place::Resource(1), SectorSize::B512, 0, &bytes);
        for command in [lookup("", 0), create("a"), delete("a"), RindexCommand::Rebuild { seed: 0 }] {
            refused(rig.run(command), code);
        }
    }
    // Another minor version, and the maximum when no number is stated.
    let lenient = wrong(|h| {
        h.version = 0x0001_ffff.into();
        h.max_resources = 0.into();
    });
    rig.lab.disk.write(Place::Resource(1), SectorSize::B512, 0, &lenient);
    let last = rig.area(15_999);
    assert_eq!(rig.run(lookup("", last)), entry("", last));
}

#[test]
fn an_index_beyond_all_offsets_is_refused() {
    let rig = Rig::usual();
    let config = RindexConfig { offset: u64::MAX - MIB, ..rig.config() };
    let format = RindexCommand::Format { geometry: Geometry::B512_M1, max_resources: 0 };
    let mut operation = RindexOperation::new(config, format);
    assert_eq!(rig.step(&mut operation, Answer::Start), Want::Done);
    refused(operation.result().unwrap(), -22);
}

#[test]
fn rebuild_finds_what_lies_in_the_areas_up_to_the_end_of_the_disk() {
    for with_lease in [true, false] {
        let mut rig = Rig::usual();
        let member = with_lease.then(|| rig.member(1, 1));
        for resource in ["a", "b", "c"] {
            rig.run(create(resource)).unwrap();
        }
        rig.run(delete("b")).unwrap();
        let expected = rig.names();
        // Lost entries, and one that points to nothing.
        rig.run(RindexCommand::Remove { offset: rig.area(0), seed: 0 }).unwrap();
        rig.run(RindexCommand::Add { name: name("x"), offset: rig.area(5), seed: 0 }).unwrap();
        rig.trace.clear();
        assert_eq!(rig.run_as(member, RindexCommand::Rebuild { seed: 0 }), entry("", 0));
        assert_eq!(rig.names(), expected);
        rig.assert_sound("after a rebuild");
        // Header, index, eight areas, the end of the disk, the index; who does not take the internal lease looks whether it is there.
        assert_eq!(rig.trace.len(), if with_lease { 12 } else { 13 });
        assert_eq!(rig.trace.last(), Some(&(MIB, -(1 << 20))));
    }
}

/// The header has no checksum. Whoever went by it would write over leases, or over what lies behind.
#[test]
fn an_index_whose_lease_contradicts_its_header_is_not_changed() {
    let damaged = |geometry: Geometry, sector: u32, align_flag: u32| {
        let mut rig = Rig::formatted(geometry, 8 * MIB);
        for resource in ["a", "b"] {
            rig.run(create(resource)).unwrap();
        }
        let mut header = rig.bytes(rig.base, 512);
        let mut record = RindexHeader::from_sector(&header);
        (record.sector_size, record.flags) = (sector.into(), align_flag.into());
        record.encode(&mut header);
        rig.lab.disk.write(Place::Resource(1), SectorSize::B512, 0, &header);
        rig.trace.clear();
        rig
    };
    // Larger areas, smaller areas, and sectors of another size in areas of the same size.
    let b4096 = |align| Geometry::new(SectorSize::B4096, align).unwrap();
    let cases = [
        (b4096(AlignSize::M1), 4096, 2),
        (b4096(AlignSize::M1), 4096, 8),
        (b4096(AlignSize::M2), 4096, 1),
        (b4096(AlignSize::M8), 4096, 1),
        (b4096(AlignSize::M1), 512, 1),
        (Geometry::B512_M1, 4096, 1),
    ];
    for (geometry, sector, align_flag) in cases {
        let align = u64::from(align_flag) * MIB;
        for command in [
            RindexCommand::Rebuild { seed: 0 },
            RindexCommand::Add { name: name("c"), offset: 8 * MIB + 2 * align, seed: 0 },
            RindexCommand::Remove { offset: 8 * MIB + 2 * align, seed: 0 },
        ] {
            let mut rig = damaged(geometry, sector, align_flag);
            let case = format!("{geometry:?} as {sector}/{align_flag}M, {command:?}");
            let error = rig.run_as(None, command).unwrap_err();
            assert!(error.to_string().contains(&format!("written for {geometry:?}")), "{case}: {error}");
            refused(Err(error), -22);
            assert!(rig.trace.iter().all(|(_, len)| *len > 0), "{case} writes: {:?}", rig.trace);
        }
        let mut rig = damaged(geometry, sector, align_flag);
        for by_name in [lookup("a", 0), lookup("", 0)] {
            refused(rig.run(by_name), -22);
        }
    }
    // The lease is where the header says, so that who takes it has it: with other sectors.
    for (geometry, sector) in [(b4096(AlignSize::M1), 512), (Geometry::B512_M1, 4096)] {
        for command in [
            create("c"),
            delete("a"),
            RindexCommand::Add { name: name("c"), offset: 10 * MIB, seed: 0 },
            RindexCommand::Remove { offset: 10 * MIB, seed: 0 },
            RindexCommand::Rebuild { seed: 0 },
        ] {
            let mut rig = damaged(geometry, sector, 1);
            let member = rig.member(1, 1);
            refused(rig.run_as(Some(member), command), -22);
            assert!(rig.trace.iter().all(|(_, len)| *len > 0), "{command:?} writes: {:?}", rig.trace);
            assert_eq!(rig.leader(9 * MIB).timestamp.get(), 0, "{command:?} keeps the lease");
        }
    }
}

/// Where no internal lease says otherwise the header is believed: then nothing but a rebuild without a lockspace is left to try.
#[test]
fn an_index_whose_lease_is_gone_is_rebuilt_without_it() {
    let mut rig = Rig::usual();
    rig.run(create("a")).unwrap();
    rig.run(RindexCommand::Remove { offset: rig.area(0), seed: 0 }).unwrap();
    rig.lab.disk.edit(Place::Resource(0), SectorSize::B512, 0, |sector| sector.fill(0));
    rig.trace.clear();
    rig.run_as(None, RindexCommand::Rebuild { seed: 0 }).unwrap();
    assert_eq!(rig.names(), [(0, "a".to_owned())]);
    // A lease that cannot be read says nothing either.
    rig.trace.clear();
    rig.fault = Some((1, IoFailure::Os(5)));
    rig.run_as(None, RindexCommand::Rebuild { seed: 0 }).unwrap();
}

/// A host that dies while it deletes leaves the area of a resource that may be created again elsewhere.
#[test]
fn of_two_areas_of_one_name_a_rebuild_keeps_the_one_that_was_entered() {
    let remove =
        |rig: &mut Rig, slot| rig.run(RindexCommand::Remove { offset: rig.area(slot), seed: 0 }).unwrap();
    let rebuilt = |rig: &mut Rig| {
        let before = rig.names();
        rig.run(RindexCommand::Rebuild { seed: 0 }).unwrap();
        assert_eq!(rig.names(), before);
        rig.assert_sound("after a rebuild");
    };
    // What is left over lies behind the resource.
    let mut rig = Rig::usual();
    for resource in ["b", "a"] {
        rig.run(create(resource)).unwrap();
    }
    remove(&mut rig, 1);
    rig.run(delete("b")).unwrap();
    rig.run(create("a")).unwrap();
    assert_eq!(rig.names(), [(0, "a".to_owned())]);
    rebuilt(&mut rig);
    // Before it.
    let mut rig = Rig::usual();
    rig.run(create("a")).unwrap();
    rig.run(RindexCommand::Add { name: name("x"), offset: rig.area(0), seed: 0 }).unwrap();
    rig.run(create("a")).unwrap();
    remove(&mut rig, 0);
    assert_eq!(rig.names(), [(1, "a".to_owned())]);
    rebuilt(&mut rig);
    // Where the index does not say, neither is given away.
    remove(&mut rig, 1);
    rig.run(RindexCommand::Rebuild { seed: 0 }).unwrap();
    assert_eq!(rig.names(), [(0, "a".to_owned()), (1, "a".to_owned())]);
    // Nor where it has both.
    rig.run(RindexCommand::Rebuild { seed: 0 }).unwrap();
    assert_eq!(rig.names().len(), 2);
}

/// Of more than two as well, and the one that was entered may be the last of them.
#[test]
fn of_three_areas_of_one_name_a_rebuild_keeps_the_one_that_was_entered() {
    let mut rig = Rig::usual();
    for (slot, other) in [(0, "x"), (1, "y")] {
        rig.run(create("a")).unwrap();
        rig.run(RindexCommand::Add { name: name(other), offset: rig.area(slot), seed: 0 }).unwrap();
    }
    rig.run(create("a")).unwrap();
    for slot in [0, 1] {
        rig.run(RindexCommand::Remove { offset: rig.area(slot), seed: 0 }).unwrap();
    }
    assert_eq!(rig.names(), [(2, "a".to_owned())]);
    rig.run(RindexCommand::Rebuild { seed: 0 }).unwrap();
    assert_eq!(rig.names(), [(2, "a".to_owned())]);
}

/// A lease that was renamed to what another entry is called keeps its entry, and its name does not lead elsewhere.
#[test]
fn an_area_with_an_entry_is_not_given_away_for_its_name() {
    let mut rig = Rig::usual();
    rig.run(create("b")).unwrap();
    rig.run(RindexCommand::Add { name: name("a"), offset: rig.area(0), seed: 0 }).unwrap();
    rig.run(create("c")).unwrap();
    rig.run(create("b")).unwrap();
    let expected = [(0, "a".to_owned()), (1, "c".to_owned()), (2, "b".to_owned())];
    assert_eq!(rig.names(), expected);
    rig.run(RindexCommand::Rebuild { seed: 0 }).unwrap();
    assert_eq!(rig.names(), expected);
    assert_eq!(rig.run(lookup("b", 0)).unwrap().offset, rig.area(2));
}

#[test]
fn a_name_is_not_entered_twice() {
    let mut rig = Rig::usual();
    for resource in ["a", "b"] {
        rig.run(create(resource)).unwrap();
    }
    let add = |slot: u64, resource, rig: &Rig| RindexCommand::Add {
        name: name(resource),
        offset: rig.area(slot),
        seed: 0,
    };
    let (elsewhere, same) = (add(1, "a", &rig), add(0, "a", &rig));
    refused(rig.run(elsewhere), -17);
    assert_eq!(rig.names(), [(0, "a".to_owned()), (1, "b".to_owned())]);
    rig.run(same).unwrap();
}

#[test]
fn a_rebuild_gives_nothing_away_that_it_cannot_read() {
    let mut rig = Rig::usual();
    rig.run(create("a")).unwrap();
    rig.run(create("b")).unwrap();
    // Nor is it, without its magic, if it had an entry.
    rig.lab.disk.edit(Place::Resource(2), SectorSize::B512, 0, |sector| sector[0] ^= 1);
    rig.run(RindexCommand::Rebuild { seed: 0 }).unwrap();
    assert_eq!(rig.names(), [(0, "a".to_owned()), (1, "b".to_owned())]);
    rig.lab.disk.edit(Place::Resource(2), SectorSize::B512, 0, |sector| sector[0] ^= 1);
    // A lease that is damaged, or of another lockspace, is in use all the same.
    rig.lab.disk.edit(Place::Resource(2), SectorSize::B512, 0, |sector| sector[100] ^= 1);
    rig.trace.clear();
    rig.run(RindexCommand::Rebuild { seed: 0 }).unwrap();
    assert_eq!(rig.names().iter().map(|(slot, _)| *slot).collect::<Vec<_>>(), [0, 1]);
    // The third transfer reads the first area.
    let before = rig.entries();
    rig.trace.clear();
    rig.fault = Some((2, IoFailure::Os(5)));
    refused(rig.run(RindexCommand::Rebuild { seed: 0 }), -5);
    assert_eq!(rig.entries(), before);
}

#[test]
fn without_a_lockspace_nothing_is_created_or_deleted() {
    let mut rig = Rig::usual();
    for command in [create("a"), delete("a")] {
        refused(rig.run_as(None, command), -2);
    }
    assert_eq!(rig.trace, []);
}

#[test]
fn driven_against_the_rules_it_ends() {
    let rig = Rig::usual();
    let mut operation = RindexOperation::new(rig.config(), lookup("", 0));
    assert_eq!(rig.step(&mut operation, Answer::Settled), Want::Done);
    refused(operation.result().unwrap(), -1);
    assert_eq!(rig.step(&mut operation, Answer::Start), Want::Done);
}

/// Offsets of 3.8.5 are wrong from entry 2048 (1 MiB), 1024, 512 and 256 (8 MiB) on: it computes them in 32 bits.
#[test]
fn entries_beyond_32_bits_are_found() {
    for geometry in Geometry::ALL {
        let align = geometry.align().bytes();
        let mut rig = Rig::formatted(geometry, MIB * 8);
        let at = |slot: u64| MIB * 8 + (2 + slot) * align;
        for slot in [255, 256, 511, 512, 1023, 1024, 2047, 2048, 4095] {
            let resource = format!("r{slot}");
            let add = RindexCommand::Add { name: name(&resource), offset: at(slot), seed: 0 };
            assert_eq!(rig.run(add), entry(&resource, at(slot)), "{geometry:?}");
            assert_eq!(rig.run(lookup(&resource, 0)), entry(&resource, at(slot)), "{geometry:?}");
            assert_eq!(rig.run(lookup("", at(slot))), entry(&resource, at(slot)), "{geometry:?}");
        }
    }
}
