//! Every recorded area of sanlock 3.8.5 and 5.1.1: parsed, verified, compared field by field with an independent decoding, and
//! encoded again to the same bytes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod images;

use images::{expected, load};
use sanlock_lease::format::{Lockspace, Resource};
use sanlock_lease::geometry::{Geometry, HostId, SectorSize};
use sanlock_lease::limits::LVB_SECTOR;
use sanlock_lease::name::Name;
use sanlock_lease::record::{Bitmap, HostBlock, RawLeader, RequestRecord, RindexEntry, RindexHeader};
use sanlock_lease::timing::IoTimeout;
use sanlock_lease::verify::{self, Expect, LeaderError, Purpose};
use serde_json::{Value, json};

/// Bytes of a request record and of a host's sector in which the reference leaves memory contents (disk-format.md 3, rule 6).
const REQUEST_PADDING: &[(usize, usize)] = &[(20, 24)];
const BLOCK_PADDING: &[(usize, usize)] = &[(56, 128), (132, 136), (144, 4096)];

fn text(field: &[u8; 48]) -> String {
    String::from_utf8(Name::from_field(field).as_bytes().to_vec()).unwrap()
}

fn leader_json(l: &RawLeader) -> Value {
    json!({
        "magic": format!("{:#010x}", l.magic.get()),
        "version": format!("{:#010x}", l.version.get()),
        "flags": format!("{:#x}", l.flags.get()),
        "sector_size": l.sector_size.get(),
        "num_hosts": l.num_hosts.get(),
        "max_hosts": l.max_hosts.get(),
        "owner_id": l.owner_id.get(),
        "owner_generation": l.owner_generation.get(),
        "lver": l.lver.get(),
        "space_name": text(&l.space_name),
        "resource_name": text(&l.resource_name),
        "timestamp": l.timestamp.get(),
        "unused1": l.unused1.get(),
        "checksum": format!("{:#010x}", l.checksum.get()),
        "checksum_ok": l.checksum.get() == l.computed_checksum(),
        "unused2": l.unused2.get(),
        "io_timeout": l.io_timeout.get(),
        "write_id": l.write_id.get(),
        "write_generation": l.write_generation.get(),
        "write_timestamp": l.write_timestamp.get(),
    })
}

fn block_json(b: &HostBlock) -> Value {
    json!({
        "mbal": b.dblock.mbal.get(),
        "bal": b.dblock.bal.get(),
        "inp": b.dblock.inp.get(),
        "inp2": b.dblock.inp2.get(),
        "inp3": b.dblock.inp3.get(),
        "lver": b.dblock.lver.get(),
        "checksum": format!("{:#010x}", b.dblock.checksum.get()),
        // No sum is asked of a block that was never used.
        "checksum_ok": (!b.dblock.is_unused()).then_some(b.dblock.is_valid()),
        "flags": format!("{:#x}", b.dblock.flags.get()),
        "mode_flags": format!("{:#x}", b.mode.flags.get()),
        "mode_generation": b.mode.generation.get(),
    })
}

/// The same bytes, but for what the original does not initialise.
fn assert_same(encoded: &[u8], recorded: &[u8], padding: &[(usize, usize)], what: &str) {
    let mut recorded = recorded.to_vec();
    for (start, end) in padding {
        let end = (*end).min(recorded.len());
        recorded[*start..end].fill(0);
    }
    assert!(encoded == recorded, "{what}: encoded differently");
}

fn assert_zero(bytes: &[u8], what: &str) {
    assert!(bytes.iter().all(|b| *b == 0), "{what}: not zero");
}

fn major(record: &RawLeader) -> u32 {
    record.version.get() >> 16
}

/// What joining or acquiring says to a record that reading accepts, by its version alone.
fn assert_use(result: Result<(), LeaderError>, record: &RawLeader, usable: u32, what: &str) {
    if major(record) == usable {
        assert_eq!(result, Ok(()), "{what}");
    } else {
        let found = record.version.get();
        assert_eq!(result, Err(LeaderError::Version { expected: usable, found }), "{what}");
    }
}

fn lockspace(file: &str, image: &[u8], facts: &Value) {
    let first = RawLeader::from_sector(image);
    let geometry = verify::sizes(&first).unwrap();
    let size = geometry.sector().slice_len();
    assert_eq!(json!(geometry.max_hosts()), facts["max_hosts"], "{file}");
    assert_eq!(geometry.align().bytes(), image.len() as u64, "{file}");
    let name = Name::from_field(&first.space_name);
    let mut encoded = vec![0xaa; size];
    for (index, sector) in image.chunks_exact(size).enumerate() {
        let what = format!("{file}, sector {index}");
        let Some(host) = HostId::from_index(index).filter(|h| h.get() <= u64::from(geometry.max_hosts()))
        else {
            assert_zero(sector, &what);
            continue;
        };
        let (record, bitmap) = (RawLeader::from_sector(sector), Bitmap::from_sector(sector));
        let mut seen = leader_json(&record);
        match facts["used_records"].get(host.to_string()) {
            Some(used) => {
                let hosts: Vec<_> = bitmap.hosts().map(HostId::get).collect();
                seen["bitmap_host_ids"] = json!(hosts);
                assert_eq!(&seen, used, "{what}");
            }
            None => {
                assert_eq!(seen, facts["never_used_record"], "{what}");
                assert_eq!(bitmap, Bitmap::default(), "{what}");
            }
        }
        assert_eq!(verify::delta(&record, Some(&name), Purpose::Read), Ok(()), "{what}");
        assert_use(verify::delta(&record, Some(&name), Purpose::Use), &record, 3, &what);
        record.encode(Some(&bitmap), &mut encoded);
        assert_same(&encoded, sector, &[], &what);
    }
    if major(&first) == 3 && file.contains("-init") {
        let io_timeout = IoTimeout::new(first.io_timeout.get().into()).unwrap();
        let format = Lockspace { name, geometry, io_timeout };
        let mut area = format.area();
        area[..size].copy_from_slice(&format.first_sector());
        assert!(area == image, "{file}: formatted differently");
    }
}

fn resource(file: &str, image: &[u8], facts: &Value) {
    let leader = RawLeader::from_sector(image);
    assert_eq!(leader_json(&leader), facts["leader"], "{file}");
    let geometry = verify::sizes(&leader).unwrap();
    let size = geometry.sector().slice_len();
    assert_eq!(geometry.align().bytes(), image.len() as u64, "{file}");
    let (lockspace, resource) =
        (Name::from_field(&leader.space_name), Name::from_field(&leader.resource_name));
    let expect = Expect { lockspace: Some(lockspace), resource: Some(resource), host_id: None };
    let cleared = facts["leader"]["magic"] == "0x11282016";
    let read = verify::paxos(&leader, &expect, Purpose::Read);
    let used = verify::paxos(&leader, &expect, Purpose::Use);
    if cleared {
        assert_eq!((read, used), (Err(LeaderError::Cleared), Err(LeaderError::Cleared)), "{file}");
    } else {
        assert_eq!(read, Ok(geometry), "{file}");
        assert_use(used.map(|_| ()), &leader, 6, file);
        let last = Expect { host_id: HostId::new(u64::from(geometry.max_hosts())), ..expect };
        let found = leader.num_hosts.get();
        match verify::paxos(&leader, &last, Purpose::Read) {
            Ok(_) => assert_eq!(found, u64::from(geometry.max_hosts()), "{file}"),
            Err(e) => assert!(matches!(e, LeaderError::NumHosts { .. }) && found == 8, "{file}: {e}"),
        }
    }
    let (blocks, mut blocks_seen) = (facts["dblocks"].as_object().unwrap(), 0);
    let mut encoded = vec![0xaa; size];
    for (index, sector) in image.chunks_exact(size).enumerate() {
        let what = format!("{file}, sector {index}");
        let host = index.checked_sub(2).and_then(HostId::from_index);
        let block = host.and_then(|h| blocks.get(&h.to_string()));
        match (index, block) {
            (0, _) => {
                leader.encode(None, &mut encoded);
                assert_same(&encoded, sector, &[], &what);
            }
            (1, _) => {
                let request = RequestRecord::from_sector(sector);
                let seen = json!({
                    "magic": format!("{:#010x}", request.magic.get()),
                    "version": format!("{:#010x}", request.version.get()),
                    "lver": request.lver.get(),
                    "force_mode": request.force_mode.get(),
                });
                assert_eq!(seen, facts["request"], "{what}");
                request.encode(&mut encoded);
                assert_same(&encoded, sector, REQUEST_PADDING, &what);
            }
            (_, Some(expected)) => {
                let block = HostBlock::from_sector(sector);
                assert_eq!(&block_json(&block), expected, "{what}");
                assert_eq!(verify::dblock(&block.dblock, host.unwrap()), Ok(()), "{what}");
                block.encode(&mut encoded);
                assert_same(&encoded, sector, BLOCK_PADDING, &what);
                blocks_seen += 1;
            }
            (i, None) if i as u64 == LVB_SECTOR && facts.get("lvb").is_some() => {
                let lvb = facts["lvb"].as_str().unwrap().as_bytes();
                assert_eq!(&sector[..lvb.len()], lvb, "{what}");
                assert_zero(&sector[lvb.len()..], &what);
            }
            (_, None) => assert_zero(sector, &what),
        }
    }
    assert_eq!(blocks_seen, blocks.len(), "{file}");

    let unused = blocks.is_empty() && leader.owner_id.get() == 0;
    if major(&leader) == 6 && unused {
        let format = Resource {
            lockspace,
            name: resource,
            geometry,
            num_hosts: u16::try_from(leader.num_hosts.get()).unwrap(),
            cleared_at: cleared.then_some(leader.write_timestamp.get()),
        };
        assert_same(&format.area()[..2 * size], &image[..2 * size], &[(size + 20, size + 24)], file);
        assert!(format.area()[2 * size..] == image[2 * size..], "{file}: formatted differently");
    }
}

fn rindex(file: &str, image: &[u8], facts: &Value) {
    let header = RindexHeader::from_sector(image);
    let seen = json!({
        "magic": format!("{:#010x}", header.magic.get()),
        "version": format!("{:#010x}", header.version.get()),
        "flags": format!("{:#x}", header.flags.get()),
        "sector_size": header.sector_size.get(),
        "max_resources": header.max_resources.get(),
        "unused": header.unused.get(),
        "rx_offset": header.rx_offset.get(),
        "lockspace_name": text(&header.lockspace_name),
    });
    assert_eq!(seen, facts["header"], "{file}");
    let size = SectorSize::from_bytes(header.sector_size.get()).unwrap().slice_len();
    let internal = &facts["internal_lease"];
    let align = usize::from(header.flags.get() == 8) * 7 + 1;
    let area = align << 20;
    let mut encoded = vec![0xaa; size];
    header.encode(&mut encoded);
    assert_same(&encoded, &image[..size], &[], file);

    let mut entries = 0;
    for (slot, bytes) in image[size..area].chunks_exact(RindexEntry::BYTES).enumerate() {
        let entry = RindexEntry::from_bytes(bytes);
        match facts["entries"].get(slot.to_string()) {
            Some(expected) => {
                let seen = json!({
                    "res_offset": entry.res_offset.get(),
                    "flags": entry.flags.get(),
                    "name": text(&entry.name),
                });
                assert_eq!(&seen, expected, "{file}, entry {slot}");
                assert!(!entry.is_free());
                entries += 1;
            }
            None => assert!(entry.is_free(), "{file}, entry {slot}"),
        }
        assert_eq!(entry.to_bytes(), bytes, "{file}, entry {slot}");
    }
    assert_eq!(entries, facts["entries"].as_object().unwrap().len(), "{file}");
    resource(&format!("{file}, its own lease"), &image[area..2 * area], internal);
    let resources = facts["resources"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (i, facts) in resources.iter().enumerate() {
        let at = (2 + i) * area;
        resource(&format!("{file}, resource {i}"), &image[at..at + area], facts);
    }
    assert_eq!(image.len(), (2 + resources.len()) * area, "{file}");
}

#[test]
fn every_recorded_area_is_understood_to_the_last_byte() {
    let files = expected();
    let mut kinds = [0; 3];
    for (file, facts) in &files {
        let image = load(file);
        assert_eq!(json!(image.len()), facts["size"], "{file}");
        match facts["type"].as_str() {
            Some("lockspace") => {
                lockspace(file, &image, facts);
                kinds[0] += 1;
            }
            Some("resource") => {
                resource(file, &image, facts);
                kinds[1] += 1;
            }
            Some("rindex") => {
                rindex(file, &image, facts);
                kinds[2] += 1;
            }
            other => panic!("{file}: {other:?}"),
        }
    }
    assert_eq!(kinds, [31, 42, 3], "recorded files are missing");
}

#[test]
fn all_five_pairs_of_sizes_are_among_the_recorded_areas() {
    let mut found: Vec<_> = expected()
        .iter()
        .filter(|(_, facts)| facts["type"] != "rindex")
        .map(|(file, _)| verify::sizes(&RawLeader::from_sector(&load(file))).unwrap())
        .collect();
    found.sort();
    found.dedup();
    let mut all = Geometry::ALL;
    all.sort();
    assert_eq!(found, all);
}
