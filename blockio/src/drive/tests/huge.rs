//! Where the memory of transfers comes from when there is a stock of huge pages.

use super::*;
use crate::huge::tests::stock;

const SECTORS: u64 = (128 << 10) / 512;

/// Whether the request that waits longest reads or writes through a huge page, and where.
fn oldest(fake: &Fake) -> (bool, usize) {
    let state = fake.0.lock().unwrap();
    let buf = &state.requests[0].2.buf;
    (buf.is_huge(), buf.as_ptr() as usize)
}

#[test]
fn large_buffers_come_from_the_stock_and_others_do_not() {
    let Some(stock) = stock() else { return };
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let fake = Fake::default();
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    driver.use_huge_pages(stock);
    let mut reports = Reports::new();
    let mut places = Vec::new();
    for count in [SECTORS, 1, SECTORS, SECTORS] {
        let machine = script(vec![read(0, 0, count, T0.plus_secs(9))]);
        driver.start(T0, machine, 0, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
        let (huge, place) = oldest(&fake);
        assert_eq!(huge, count == SECTORS, "{count} sectors");
        if huge {
            places.push(place);
        }
        fake.complete(disk.path());
        driver.poll(|| T0, &AlwaysAlive, &mut reports);
    }
    assert!(places.iter().all(|place| *place == places[0]), "it goes back and is taken again: {places:x?}");
}

#[test]
fn memory_of_an_overdue_read_is_nobody_elses_until_it_has_ended_and_without_stock_ordinary_memory_does() {
    let Some(stock) = stock() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (slow, good) = (disk(dir.path(), "slow"), disk(dir.path(), "good"));
    let fake = Fake::default();
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    driver.use_huge_pages(Arc::clone(&stock));
    let mut reports = Reports::new();
    let late = script(vec![read(0, 0, SECTORS, T0.plus_secs(1))]);
    driver.start(T0, late, 0, areas(&slow), &AlwaysAlive, &mut reports).unwrap();
    let (huge, pinned) = oldest(&fake);
    assert!(huge);
    driver.poll(|| T0.plus_secs(2), &AlwaysAlive, &mut reports);
    assert!(fake.held() == 1, "overdue, and with the kernel");

    // All the rest of the area is out: what follows is served all the same, elsewhere.
    let rest: Vec<_> = std::iter::from_fn(|| stock.take(128 << 10)).take(15).collect();
    assert_eq!(rest.len(), 15);
    assert!(rest.iter().all(|buf| buf.as_ptr() as usize != pinned));
    let now = T0.plus_secs(2);
    let machine = script(vec![read(0, 0, (1 << 20) / 512, now.plus_secs(9))]);
    driver.start(now, machine, 1, areas(&good), &AlwaysAlive, &mut reports).unwrap();
    assert_eq!(fake.held(), 2);
    assert_ne!(fake.0.lock().unwrap().requests[1].2.buf.as_ptr() as usize, pinned);
    drop(rest);

    // The driver goes, the operation does not: its memory stays away from everybody.
    drop((driver, stock));
    let state = fake.0.lock().unwrap();
    assert!(state.requests[0].2.buf.is_huge() && state.requests[0].2.buf.iter().all(|&byte| byte == 0));
}
