//! One damaged byte anywhere in a lease area: the specified error, or a byte that the format does not check.
//!
//! The tables below say which bytes those are, and why nothing can be told from them. Everything else is found, and what is
//! found is never acted upon: the machines of joining and acquiring refuse it without a write to the damaged sector.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod images;

use images::load;
use sanlock_lease::code::ReturnCode;
use sanlock_lease::delta::{DeltaAcquire, DeltaConfig};
use sanlock_lease::geometry::{Geometry, HostId, SectorSize};
use sanlock_lease::machine::Place;
use sanlock_lease::name::Name;
use sanlock_lease::paxos::acquire::{AcquireOptions, AcquireOutcome};
use sanlock_lease::paxos::{PaxosAcquire, PaxosConfig};
use sanlock_lease::record::{HostBlock, RawLeader};
use sanlock_lease::testing::Lab;
use sanlock_lease::timing::{IoTimeout, WatchdogFire};
use sanlock_lease::verify::{self, Expect, Purpose};
use std::ops::Range;

/// Not covered by a leader's checksum: `unused2`, `io_timeout`, `write_id`, `write_generation`, `write_timestamp`.
const LEADER_UNSUMMED: Range<usize> = 172..200;
/// Reserved, the bitmap of a delta lease (which only asks hosts to look), and the rest of a large sector.
const LEADER_REST: Range<usize> = 200..4096;
/// Not covered by a dblock's checksum: its `flags`.
const DBLOCK_FLAGS: Range<usize> = 52..56;
/// Padding, then the mode block, which has no checksum, then padding.
const DBLOCK_REST: Range<usize> = 56..4096;
/// Where the mode block's flags are: SHARED is the lowest bit.
const DBLOCK_MODE: usize = 128;
/// `inp2` and `inp3` of a block that was never used: five fields of zeros decide, and these are not among them.
const UNUSED_DBLOCK_IGNORED: Range<usize> = 24..40;
/// The request record has no checksum, and neither acquire nor release reads it.
const REQUEST_SECTOR: usize = 1;

const MASKS: [u8; 3] = [0x01, 0x80, 0xff];

fn name(s: &str) -> Name {
    Name::new(s.as_bytes()).unwrap()
}

fn host(id: u64) -> HostId {
    HostId::new(id).unwrap()
}

/// Bytes of a name field that count: up to and with its first NUL.
fn name_bytes(at: usize, name: &str) -> Range<usize> {
    at..at + (name.len() + 1).min(48)
}

fn code(result: Result<(), ReturnCode>) -> i32 {
    result.err().unwrap_or(ReturnCode::OK).0
}

/// What verification says to a damaged byte of a delta record.
fn delta_code(at: usize) -> i32 {
    match at {
        0..4 => -223,
        6..8 => -224,
        _ if name_bytes(56, "golden-ls").contains(&at) => -226,
        _ if LEADER_UNSUMMED.contains(&at) || LEADER_REST.contains(&at) => 0,
        _ => -229,
    }
}

fn delta_says(sector: &[u8]) -> i32 {
    let record = RawLeader::from_sector(sector);
    code(verify::delta(&record, Some(&name("golden-ls")), Purpose::Use).map_err(|e| ReturnCode::from(&e)))
}

#[test]
fn every_byte_of_every_delta_record_in_use_and_one_of_every_other() {
    for (file, used) in [
        ("v38-ls-512-1m-init", vec![]),
        ("v38-ls-512-1m-joined-1-2000", vec![1, 2000]),
        ("v38-ls-512-1m-event", vec![1, 2000]),
        ("v38-ls-4k-8m-joined-3", vec![3]),
        ("v38-ls-4k-1m-init", vec![1]),
    ] {
        let image = load(file);
        let geometry = verify::sizes(&RawLeader::from_sector(&image)).unwrap();
        let size = geometry.sector().slice_len();
        for id in 1..=u64::from(geometry.max_hosts()) {
            let index = host(id).index();
            let mut sector = image[index * size..(index + 1) * size].to_vec();
            assert_eq!(delta_says(&sector), 0, "{file}");
            let all = 0..size;
            let one = index * 37 % size;
            let places = if used.contains(&id) { all } else { one..one + 1 };
            for at in places {
                for mask in MASKS {
                    sector[at] ^= mask;
                    assert_eq!(
                        delta_says(&sector),
                        delta_code(at),
                        "{file}, host {id}, byte {at} ^ {mask:#x}"
                    );
                    sector[at] ^= mask;
                }
            }
        }
    }
}

fn lab(lockspace: &[u8], resource: Option<&[u8]>) -> Lab {
    let mut lab = Lab::new();
    for (place, image) in [(Place::Lockspace, Some(lockspace)), (Place::Resource(0), resource)] {
        if let Some(image) = image {
            lab.disk.add(place, image.len() as u64);
            lab.disk.write(place, SectorSize::B512, 0, image);
        }
    }
    lab
}

/// What a join of this host comes to.
fn join(lab: &mut Lab, id: u64) -> i32 {
    let config = DeltaConfig {
        lockspace: name("golden-ls"),
        host: host(id),
        host_name: name("gamma"),
        io_timeout: IoTimeout::new(1).unwrap(),
        fire: WatchdogFire::DEFAULT,
    };
    let outcome = lab.run(&mut DeltaAcquire::new(config, None)).outcome;
    code(outcome.map(|_| ()).map_err(|e| ReturnCode::from(&e)))
}

#[test]
fn a_join_refuses_a_damaged_record_without_writing() {
    let image = load("v38-ls-512-1m-released");
    // Record 1 also states the sizes, which are looked at first; without checksum, so a wrong size is called by its name.
    let first = |at: usize, mask: u8| match at {
        8 => match Geometry::new(SectorSize::B512, align(0x10 ^ u32::from(mask))) {
            Ok(_) => -229,
            Err(_) => -230,
        },
        12..16 => -225,
        _ => delta_code(at),
    };
    for at in 0..512 {
        for mask in MASKS {
            for id in [1, 2, 2000] {
                let mut lab = lab(&image, None);
                lab.disk.edit(Place::Lockspace, SectorSize::B512, id - 1, |s| s[at] ^= mask);
                let expected = if id == 1 { first(at, mask) } else { delta_code(at) };
                assert_eq!(join(&mut lab, id), expected, "host {id}, byte {at} ^ {mask:#x}");
                let wrote = lab.trace.iter().any(|t| t.op.is_write());
                assert_eq!(wrote, expected == 0, "host {id}, byte {at} ^ {mask:#x}");
            }
        }
    }
}

fn align(flags: u32) -> sanlock_lease::geometry::AlignSize {
    sanlock_lease::geometry::AlignSize::from_flags(flags).unwrap_or(sanlock_lease::geometry::AlignSize::M1)
}

/// What a damaged byte in the first sector of a resource comes to, for host 2.
fn leader_code(at: usize, num_hosts_below_ours: bool) -> i32 {
    match at {
        0..4 => -223,
        6..8 => -224,
        _ if name_bytes(56, "golden-ls").contains(&at) => -226,
        _ if name_bytes(104, "res-ex").contains(&at) => -227,
        16..24 if num_hosts_below_ours => -228,
        _ if LEADER_UNSUMMED.contains(&at) || LEADER_REST.contains(&at) => 0,
        _ => -229,
    }
}

fn block_code(at: usize, unused: bool) -> i32 {
    let ignored = unused && UNUSED_DBLOCK_IGNORED.contains(&at);
    if DBLOCK_FLAGS.contains(&at) || DBLOCK_REST.contains(&at) || ignored { 0 } else { -214 }
}

#[test]
fn every_byte_of_a_resource_in_use_and_one_of_every_unused_sector() {
    for file in ["v38-res-512-1m-ex", "v38-res-512-1m-ex-released", "v38-res-512-1m-ex-second-owner"] {
        let image = load(file);
        let expect = Expect {
            lockspace: Some(name("golden-ls")),
            resource: Some(name("res-ex")),
            host_id: HostId::new(2000),
        };
        let mut leader = image[..512].to_vec();
        for at in 0..512 {
            for mask in MASKS {
                leader[at] ^= mask;
                let record = RawLeader::from_sector(&leader);
                let says = verify::paxos(&record, &expect, Purpose::Use);
                let below = record.num_hosts.get() < 2000;
                let says = code(says.map(|_| ()).map_err(|e| ReturnCode::from(&e)));
                assert_eq!(says, leader_code(at, below), "{file}, leader byte {at} ^ {mask:#x}");
                leader[at] ^= mask;
            }
        }
        for id in 1..=2000 {
            let at = usize::try_from(host(id).block_sector()).unwrap() * 512;
            let mut sector = image[at..at + 512].to_vec();
            let unused = sector.iter().all(|b| *b == 0);
            let one = host(id).index() * 37 % 512;
            for at in if unused { one..one + 1 } else { 0..512 } {
                for mask in MASKS {
                    sector[at] ^= mask;
                    let block = HostBlock::from_sector(&sector);
                    let says = verify::dblock(&block.dblock, host(id)).map_err(|e| ReturnCode::from(&e));
                    assert_eq!(
                        code(says),
                        block_code(at, unused),
                        "{file}, host {id}, byte {at} ^ {mask:#x}"
                    );
                    sector[at] ^= mask;
                }
            }
        }
    }
}

/// What an acquire by host 2 comes to, a host that never touched this resource.
fn acquire(lab: &mut Lab) -> i32 {
    let config = PaxosConfig {
        lockspace: name("golden-ls"),
        resource: name("res-ex"),
        host: host(2),
        generation: 1,
        io_timeout: IoTimeout::new(1).unwrap(),
        fire: WatchdogFire::DEFAULT,
        geometry: Geometry::B512_M1,
        disks: 1,
    };
    let options = AcquireOptions {
        owner_nowait: true,
        lver: None,
        num_hosts: None,
        seed: 1,
        ..AcquireOptions::default()
    };
    match lab.run(&mut PaxosAcquire::new(config, options)).outcome {
        AcquireOutcome::Acquired(_) => 0,
        AcquireOutcome::Failed { error, .. } => ReturnCode::from(&error).0,
    }
}

fn acquire_damaged(lockspace: &[u8], resource: &[u8], sector: u64, at: usize, mask: u8) -> (i32, Lab) {
    let mut lab = lab(lockspace, Some(resource));
    lab.disk.edit(Place::Resource(0), SectorSize::B512, sector, |s| s[at] ^= mask);
    let code = acquire(&mut lab);
    (code, lab)
}

#[test]
fn an_acquire_refuses_damage_wherever_it_is_checked() {
    let lockspace = load("v38-ls-512-1m-released");
    let resource = load("v38-res-512-1m-ex-released");
    for at in 0..512 {
        for mask in MASKS {
            // The leader: nothing is written at all.
            let (says, lab) = acquire_damaged(&lockspace, &resource, 0, at, mask);
            assert_eq!(says, leader_code(at, false), "leader byte {at} ^ {mask:#x}");
            assert_eq!(lab.trace.iter().any(|t| t.op.is_write()), says == 0, "leader byte {at} ^ {mask:#x}");

            // A foreign block in use: found after our first block write, before anything is proposed.
            let (says, lab) = acquire_damaged(&lockspace, &resource, 2, at, mask);
            // A shared hold of a host id that nobody holds: cleared. With generation 0 it is no hold of anybody's in any case.
            let expected = block_code(at, false);
            assert_eq!(says, expected, "block byte {at} ^ {mask:#x}");
            let leader_written = lab.trace.iter().any(|t| t.brief() == (0, -1));
            assert_eq!(leader_written, says == 0, "block byte {at} ^ {mask:#x}");

            // The request record.
            let (says, _) = acquire_damaged(&lockspace, &resource, REQUEST_SECTOR as u64, at, mask);
            assert_eq!(says, 0, "request byte {at} ^ {mask:#x}");
        }
    }
    for sector in 2..2048_u64 {
        let at = usize::try_from(sector).unwrap() * 37 % 512;
        let (says, _) = acquire_damaged(&lockspace, &resource, sector, at, 0x01);
        // Beyond host 2000 lie the lock value block and sectors of no use.
        let expected = match sector {
            2 => block_code(at, false),
            // A shared hold of a host id that was never taken: nothing is known of it yet.
            3..=2001 if at == DBLOCK_MODE => -11,
            3..=2001 => block_code(at, true),
            _ => 0,
        };
        assert_eq!(says, expected, "sector {sector}, byte {at}");
    }
}
