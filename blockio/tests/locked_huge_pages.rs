//! A process that locks all memory it maps. The only test of its program: the lock holds for the whole process.

use std::time::Duration;

use nix::sys::mman::{MlockAllFlags, mlockall};
use sanlock_blockio::HugePages;

/// A figure of this process in KiB.
fn kib(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

#[test]
fn in_a_process_that_locks_everything_the_stock_is_of_huge_pages_and_locked() {
    if let Err(error) = mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE) {
        return eprintln!("this process may not lock its memory: {error}");
    }
    let stock = match HugePages::start(|text| eprintln!("{text}")) {
        Ok(stock) => stock,
        Err(error) => return eprintln!("{error}"),
    };
    stock.lock();
    let (huge, locked) = (kib("smaps_rollup", "AnonHugePages:"), kib("smaps_rollup", "Locked:"));
    stock.prepare();
    for _ in 0..2_000 {
        if stock.bytes() > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    if stock.bytes() == 0 {
        return eprintln!("no huge pages, or too little memory may be locked");
    }
    assert!(kib("smaps_rollup", "AnonHugePages:") >= huge + 2048, "ordinary pages");
    assert!(kib("smaps_rollup", "Locked:") >= locked + 2048, "not locked");
    assert!(stock.take(1 << 20).is_some_and(|buf| buf.is_huge()));
}
