use super::*;
use crate::buffer::BUFFER_ALIGN;
use std::thread;

/// A stock with an area, or `None` with a message where the kernel's settings forbid huge pages, which they must not in CI.
pub(crate) fn stock() -> Option<Arc<HugePages>> {
    let stock = match HugePages::start(|text| eprintln!("{text}")) {
        Ok(stock) => stock,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "required in CI: {error}");
            eprintln!("SKIPPED: {error}");
            return None;
        }
    };
    stock.prepare();
    assert!(wait_for(|| !stock.shared.lock().shelves.is_empty()), "no huge page was made");
    Some(stock)
}

/// Waits, not for ever.
fn wait_for(mut reached: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        if reached() {
            return true;
        }
        thread::sleep(Duration::from_millis(2));
    }
    false
}

fn start_of(buf: &AlignedBuf) -> usize {
    buf.as_raw() as usize
}

#[test]
fn pieces_are_aligned_whole_and_apart() {
    let Some(stock) = stock() else { return };
    let mut bufs: Vec<AlignedBuf> = (0_u8..4)
        .filter_map(|number| {
            let mut buf = stock.take(512 << 10)?;
            buf.fill(number + 1);
            Some(buf)
        })
        .collect();
    assert_eq!(bufs.len(), 4, "an area of 2 MiB holds four of 512 KiB");
    for (buf, number) in bufs.iter().zip(1_u8..) {
        assert_eq!((buf.len(), start_of(buf) % BUFFER_ALIGN), (512 << 10, 0));
        assert!(buf.is_huge() && buf.iter().all(|&byte| byte == number));
    }
    assert!(stock.take(HUGE_BUFFER_MIN).is_none(), "all of the area is out");
    let freed = bufs.pop().map(|buf| start_of(&buf));
    assert_eq!(stock.take(HUGE_BUFFER_MIN).map(|buf| start_of(&buf)), freed);
}

#[test]
fn an_empty_stock_makes_more_up_to_its_limit_and_then_gives_none() {
    let Some(stock) = stock() else { return };
    let mut bufs = Vec::new();
    let filled = wait_for(|| {
        bufs.extend(stock.take(MAX_IO_LEN));
        bufs.len() == HUGE_MEMORY_MAX / MAX_IO_LEN || stock.bytes() + MAX_IO_LEN > HUGE_MEMORY_MAX
    });
    assert!(filled, "{} bytes in {} buffers", stock.bytes(), bufs.len());
    assert!(!bufs.is_empty() && bufs.iter().all(|buf| buf.len() == MAX_IO_LEN));
    // The first area, of one page, is there, too: nothing that fits is left.
    bufs.extend(stock.take(PAGE));
    for _ in 0..50 {
        assert!(stock.take(MAX_IO_LEN).is_none());
        assert!(stock.bytes() <= HUGE_MEMORY_MAX);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_too_small_or_too_large_does_not_come_from_the_stock() {
    let Some(stock) = stock() else { return };
    for len in [0, 512, 4096, HUGE_BUFFER_MIN - 512, MAX_IO_LEN + 512] {
        assert!(stock.take(len).is_none(), "{len}");
    }
    assert_eq!(stock.bytes(), PAGE, "nothing was made for them");
}

#[test]
fn an_idle_area_is_given_back_and_one_in_use_is_not() {
    let Some(stock) = stock() else { return };
    let buf = stock.take(1 << 20);
    assert!(buf.is_some());
    let later = Instant::now() + IDLE;
    assert!(stock.shared.lock().idle(later).is_none(), "a piece of it is out");
    drop(buf);
    assert!(stock.shared.lock().idle(Instant::now()).is_none(), "too early");
    assert!(stock.shared.lock().idle(Instant::now() + IDLE).is_some());
    assert_eq!(stock.bytes(), 0);
}

#[test]
fn a_buffer_outlives_the_stock() {
    let Some(stock) = stock() else { return };
    let Some(mut buf) = stock.take(1 << 20) else { panic!("the area is empty") };
    let shared = Arc::clone(&stock.shared);
    drop(stock);
    assert!(wait_for(|| Arc::strong_count(&shared) == 2), "the thread does not end");
    buf.fill(7);
    assert!(buf.iter().all(|&byte| byte == 7));
    drop(buf);
    assert_eq!(shared.lock().shelves.iter().map(|shelf| shelf.used).sum::<u128>(), 0);
}

#[test]
fn twenty_five_threads_never_get_the_same_memory() {
    let Some(stock) = stock() else { return };
    let threads: Vec<_> = (0_u8..25)
        .map(|number| {
            let stock = Arc::clone(&stock);
            thread::spawn(move || {
                let mut huge = 0;
                for round in 0..200_usize {
                    let len = HUGE_BUFFER_MIN << ((round + usize::from(number)) % 6);
                    let Some(mut buf) = stock.take(len) else {
                        thread::yield_now();
                        continue;
                    };
                    // Ends and middle: where another's buffer would overlap.
                    let marks = [0, len / 2, len - 1];
                    marks.iter().for_each(|&at| buf[at] = number);
                    thread::yield_now();
                    assert!(marks.iter().all(|&at| buf[at] == number), "somebody else wrote");
                    huge += 1;
                }
                huge
            })
        })
        .collect();
    let huge: usize = threads.into_iter().map(|thread| thread.join().unwrap_or_default()).sum();
    assert!(huge > 0, "nobody got anything");
    assert!(stock.bytes() <= HUGE_MEMORY_MAX);
    assert!(stock.shared.lock().shelves.iter().all(|shelf| shelf.used == 0), "all came back");
}

#[test]
fn runs_lie_inside_apart_and_at_multiples_of_their_size() {
    assert_eq!(free_run(0, 32, 16), Some((0, 0xffff)));
    assert_eq!(free_run(1, 32, 16), Some((16, 0xffff_0000)));
    assert_eq!(free_run(0x1_0001, 32, 16), None);
    assert_eq!(free_run(0b101, 32, 1), Some((1, 0b10)));
    assert_eq!(free_run(0, 128, 128), Some((0, u128::MAX)));
    assert_eq!(free_run(1 << 127, 128, 128), None);
    assert_eq!(free_run(0, 32, 33), None);
    assert_eq!(free_run(0, 128, 129), None);
}

#[test]
fn the_kernels_settings_decide() {
    const ON: Option<&str> = Some("always [madvise] never\n");
    const NEVER: Option<&str> = Some("always madvise [never]\n");
    assert_eq!(verdict(ON, Some("always [inherit] madvise never\n"), Some("2097152\n")), Ok(()));
    assert_eq!(verdict(ON, None, None), Ok(()), "an older kernel");
    assert!(
        matches!(verdict(NEVER, None, None), Err(NoHugePages::Off(text)) if text.contains("/enabled is never"))
    );
    assert!(matches!(verdict(ON, NEVER, None), Err(NoHugePages::Off(text)) if text.contains("2048kB")));
    assert!(matches!(verdict(None, None, None), Err(NoHugePages::Off(_))));
    assert_eq!(verdict(ON, None, Some("536870912\n")), Err(NoHugePages::Size { found: 536_870_912 }));
}

#[test]
fn the_areas_are_in_huge_pages() {
    let Some(_stock) = stock() else { return };
    let text = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = text.lines().find(|line| line.starts_with("AnonHugePages:")).unwrap_or_default();
    let kib: usize = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0);
    assert!(kib >= PAGE >> 10, "{line}");
}
