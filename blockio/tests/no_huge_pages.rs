//! A process that may not have huge pages. The only test of its program: what it forbids holds for the whole process.

mod support;

use std::sync::mpsc;
use std::time::Duration;

use sanlock_blockio::HugePages;
use support::missing;

#[test]
fn where_the_kernel_gives_ordinary_pages_there_is_no_stock_and_one_note() {
    // SAFETY: takes numbers; forbids this process huge pages.
    let forbidden = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    assert_eq!(forbidden, 0, "{}", std::io::Error::last_os_error());
    let (notes, heard) = mpsc::channel();
    let stock = match HugePages::start(move |text| notes.send(text.to_owned()).unwrap_or_default()) {
        Ok(stock) => stock,
        Err(error) => return missing(&format!("this machine has none at all: {error}")),
    };
    assert!(stock.take(1 << 20).is_none());
    let note = heard.recv_timeout(Duration::from_secs(20)).unwrap_or_default();
    assert!(note.contains("ordinary memory is used"), "{note:?}");
    for _ in 0..20 {
        stock.prepare();
        assert!(stock.take(1 << 20).is_none());
        assert_eq!(stock.bytes(), 0, "what was made of ordinary pages was given back");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(stock);
    assert!(heard.recv_timeout(Duration::from_secs(20)).is_err(), "said once");
}
