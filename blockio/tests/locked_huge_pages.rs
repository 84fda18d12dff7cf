//! A process that locks all memory it maps. The only test of its program: the lock holds for the whole process.

mod support;

use std::sync::mpsc;
use std::time::Duration;

use nix::sys::mman::{MlockAllFlags, mlockall};
use sanlock_blockio::HugePages;
use support::missing;

/// A figure of this process in KiB.
fn kib(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

#[test]
fn in_a_process_that_locks_everything_the_stock_is_of_huge_pages_and_locked() {
    if let Err(error) = mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE) {
        return missing(&format!("this process may not lock its memory: {error}"));
    }
    let (notes, heard) = mpsc::channel();
    let stock = match HugePages::start(move |text| notes.send(text.to_owned()).unwrap_or_default()) {
        Ok(stock) => stock,
        Err(error) => return missing(&error.to_string()),
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
        let note = heard.try_recv().unwrap_or_default();
        // A call that the kernel refused: more memory would be locked than may be.
        assert!(note.contains("failed with errno"), "no huge page was made: {note:?}");
        return missing(&note);
    }
    assert!(kib("smaps_rollup", "AnonHugePages:") >= huge + 2048, "ordinary pages");
    assert!(kib("smaps_rollup", "Locked:") >= locked + 2048, "not locked");
    assert!(stock.take(1 << 20).is_some_and(|buf| buf.is_huge()));
}
