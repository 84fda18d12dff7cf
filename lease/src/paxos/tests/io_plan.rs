//! The read plan: which sectors, in which order, with which bytes.

use super::*;

/// The worked example of disk-format.md 7.10, byte for byte.
const GOLDEN_LEADER: &[(usize, &str)] = &[
    (0x00, "10201506040006001000000000020000"),
    (0x10, "d007000000000000d007000000000000"),
    (0x20, "01000000000000000100000000000000"),
    (0x30, "0100000000000000676f6c64656e2d6c"),
    (0x40, "73"),
    (0x68, "7265732d6578"),
    (0x98, "cf11000000000000"),
    (0xa8, "77a29581"),
    (0xb0, "01000000000000000100000000000000"),
    (0xc0, "cf11000000000000"),
];
const GOLDEN_BLOCK: &[(usize, &str)] = &[
    (0x00, "01000000000000000100000000000000"),
    (0x10, "01000000000000000100000000000000"),
    (0x20, "cf110000000000000100000000000000"),
    (0x30, "03a0de7200000000"),
];

fn bytes(parts: &[(usize, &str)]) -> Vec<u8> {
    let mut sector = vec![0; 512];
    for (at, hex) in parts {
        for (i, pair) in hex.as_bytes().chunks(2).enumerate() {
            sector[at + i] = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        }
    }
    sector
}

fn golden_lab() -> (Lab, PaxosConfig) {
    let mut record = leader(0, NOBODY);
    record.num_hosts = 2000.into();
    record.space_name = name("golden-ls").to_field();
    record.resource_name = name("res-ex").to_field();
    record.seal();
    let mut lab = lab(record);
    lab.now = MonoTime::from_secs(4559);
    (lab, PaxosConfig { lockspace: name("golden-ls"), resource: name("res-ex"), ..config(1) })
}

#[test]
fn an_acquired_lease_has_the_bytes_of_the_worked_example() {
    let (mut lab, config) = golden_lab();
    held(&acquire_as(&mut lab, config, AcquireOptions::default()));
    assert_eq!(lab.disk.sector(DISK, B512, 0), bytes(GOLDEN_LEADER));
    assert_eq!(lab.disk.sector(DISK, B512, 2), bytes(GOLDEN_BLOCK));
}

#[test]
fn a_released_lease_differs_in_the_flag_and_the_timestamps() {
    let (mut lab, config) = golden_lab();
    let held = held(&acquire_as(&mut lab, config, AcquireOptions::default()));
    lab.now = MonoTime::from_secs(4563);
    let done = lab.run(&mut PaxosRelease::new(config, held));
    assert_eq!(done.outcome.result, Ok(Released::LeaderFreed));

    let mut block = bytes(GOLDEN_BLOCK);
    block[0x34] = 1;
    assert_eq!(lab.disk.sector(DISK, B512, 2), block);
    let mut leader = bytes(GOLDEN_LEADER);
    leader[0x98..0xa0].fill(0);
    let sum = crate::checksum::checksum(&leader[..0xa8]);
    leader[0xa8..0xac].copy_from_slice(&sum.to_le_bytes());
    leader[0xc0..0xc2].copy_from_slice(&4563u16.to_le_bytes());
    assert_eq!(lab.disk.sector(DISK, B512, 0), leader);
}

#[test]
fn an_uncontended_acquire_is_six_rounds_and_a_release_three() {
    let (mut lab, config) = golden_lab();
    let done = acquire_as(&mut lab, config, AcquireOptions::default());
    assert_eq!(lab.brief(), [(0, 1), (2, 1), (2, -1), (0, 2002), (2, -1), (0, 2002), (0, -1)]);
    assert_eq!((done.outstanding, done.at), (0, MonoTime::from_millis(4_559_006)));

    lab.trace.clear();
    lab.run(&mut PaxosRelease::new(config, held(&done)));
    assert_eq!(lab.brief(), [(2, -1), (0, 1), (0, -1)]);
}

#[test]
fn only_num_hosts_blocks_are_read() {
    let mut lab = free_lab();
    held(&acquire_as(&mut lab, config(5), AcquireOptions::default()));
    assert_eq!(lab.brief(), [(0, 1), (6, 1), (6, -1), (0, 10), (6, -1), (0, 10), (0, -1)]);
}

#[test]
fn every_operation_is_limited_by_our_io_timeout() {
    let mut lab = free_lab();
    let config = PaxosConfig { io_timeout: IoTimeout::new(3).unwrap(), ..config(US) };
    acquire_as(&mut lab, config, AcquireOptions::default());
    assert!(lab.trace.iter().all(|t| t.op.deadline == t.at.plus_secs(3)));
}

#[test]
fn phase_1_promises_and_phase_2_accepts() {
    let mut lab = free_lab();
    acquire_plain(&mut lab);
    let contents: Vec<_> = lab.trace.iter().filter_map(|t| t.written()).collect();
    assert_eq!(contents[0], Content::Block(block([1, 0, 0, 0, 0, 1])));
    assert_eq!(contents[1], Content::Block(block([1, 1, 1, 1, 1000, 1])));
}

#[test]
fn ballot_numbers_rise_by_max_hosts_from_one_version_to_the_next() {
    let mut lab = free_lab();
    for lver in 1..=3 {
        let held = held(&acquire_plain(&mut lab));
        assert_eq!((held.lver(), held.block.dblock.mbal.get()), (lver, 2000 * (lver - 1) + 1));
        release(&mut lab, held);
    }
}

#[test]
fn the_largest_host_id_starts_with_max_hosts() {
    let mut record = leader(0, NOBODY);
    record.num_hosts = 2000.into();
    record.seal();
    let mut lab = lab(record);
    for mbal in [2000, 6000] {
        let done = acquire_as(&mut lab, config(2000), AcquireOptions::default());
        assert_eq!(held(&done).block.dblock.mbal.get(), mbal);
        lab.run(&mut PaxosRelease::new(config(2000), held(&done)));
    }
}

#[test]
fn an_owner_is_never_written_with_timestamp_0() {
    let mut lab = free_lab();
    lab.now = MonoTime::from_millis(10);
    assert_eq!(held(&acquire_plain(&mut lab)).leader.timestamp.get(), 1);
}

#[test]
fn unknown_fields_of_the_leader_stay() {
    let mut record = leader(4, NOBODY);
    record.version = 0x0006_0009.into();
    record.flags = 0x1_0010.into();
    record.unused1 = 77.into();
    record.unused2 = 88.into();
    record.seal();
    let mut lab = lab(record);
    acquire_plain(&mut lab);
    let now = leader_of(&lab);
    assert_eq!(
        (now.version.get(), now.flags.get(), now.unused1.get(), now.unused2.get(), now.lver.get()),
        (0x0006_0009, 0x1_0010, 77, 88, 5)
    );
    assert_eq!(now.checksum.get(), now.computed_checksum());
}
