//! The memory of transfers: what is kept of it, and what happens for want of it.

use super::*;
use crate::buffer::AlignedBuf;
use crate::calls::RETRY_MS;
use crate::opens::Asker;

/// A machine with enough for sectors, and for nothing larger.
fn scarce(len: usize) -> Option<AlignedBuf> {
    (len <= 4096).then(|| AlignedBuf::zeroed(len))
}

#[test]
fn what_finds_no_memory_waits_for_it_and_smaller_transfers_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let fake = Fake::default();
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    driver.buffers.allocate = scarce;
    driver.count_as(Some(Asker::Lease));
    let mut reports = Reports::new();
    for (tag, op) in [read(0, 0, 2048, T0.plus_secs(9)), write(0, 5, T0.plus_secs(9))].into_iter().enumerate()
    {
        let tag = u8::try_from(tag).unwrap();
        driver.start(T0, script(vec![op]), tag, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    }
    let again = T0.plus_millis(RETRY_MS);
    assert_eq!(driver.next_wake(), Some(again), "nobody tells of memory that is free");
    driver.poll(|| again, &AlwaysAlive, &mut reports);
    assert_eq!(fake.held(), 1, "the write of a sector");
    fake.complete(disk.path());
    driver.poll(|| again, &AlwaysAlive, &mut reports);
    assert_eq!(done(&mut reports), [(1, vec!["0: ok None".to_owned()], 0)]);

    driver.buffers.allocate = AlignedBuf::try_zeroed;
    driver.poll(|| again.plus_millis(RETRY_MS), &AlwaysAlive, &mut reports);
    assert_eq!(fake.held(), 1, "the read of an area");
    fake.complete(disk.path());
    driver.poll(|| again.plus_millis(RETRY_MS), &AlwaysAlive, &mut reports);
    assert_eq!(done(&mut reports).len(), 1);
}

#[test]
fn what_finds_none_until_its_deadline_was_never_begun() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let fake = Fake::default();
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    driver.buffers.allocate = |_| None;
    let mut reports = Reports::new();
    let machine = script(vec![write(0, 5, T0.plus_secs(1))]);
    driver.start(T0, machine, 7, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    driver.poll(|| T0.plus_millis(999), &AlwaysAlive, &mut reports);
    assert!(done(&mut reports).is_empty());
    driver.poll(|| T0.plus_secs(1), &AlwaysAlive, &mut reports);
    assert_eq!(done(&mut reports), [(7, vec!["0: TimedOut".to_owned()], 0)], "and nothing of it may land");
    assert!(driver.is_quiet() && fake.held() == 0);
}

#[test]
fn buffers_are_kept_for_the_next_transfer_but_not_without_limit() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let fake = Fake::default();
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    let mut reports = Reports::new();
    let mut addresses = Vec::new();
    for _ in 0..3 {
        for tag in 0..10 {
            let machine = script(vec![read(0, 0, if tag < 5 { 2048 } else { 1 }, T0.plus_secs(9))]);
            driver.start(T0, machine, tag, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
        }
        addresses.push(fake.0.lock().unwrap().requests[0].2.buf.as_ptr());
        for _ in 0..10 {
            fake.complete(disk.path());
        }
        driver.poll(|| T0, &AlwaysAlive, &mut reports);
        assert_eq!(driver.buffers_kept(), 2048 * 512 + 5 * 512);
    }
    assert_eq!(addresses[1], addresses[2]);
}
