//! Storage that does not answer harms nobody: writes on a frozen file system, everything on a FUSE file whose server is
//! silent. Every engine, real kernel hangs.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]

mod support;

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sanlock_blockio::{
    Access, AlignedBuf, BlockingIo, Disk, Engine, EngineKind, HugePages, IoErrorKind, IoRequest,
    MAX_IN_FLIGHT,
};
use support::fuse::{SilentFile, Waiting};
use support::{
    AT_ONCE, FrozenMount, blocked_threads, eventually, file_in, is_ready, missing, on_each, one, open,
    promptly, reap_within, threads_named,
};

/// A disk that works answers within this, on a busy machine too.
const HEALTHY: Duration = Duration::from_secs(60);
/// A call that takes this long leaves the next one to a thread.
const SLOW: Duration = Duration::from_millis(100);
/// How long a hang is observed.
const WATCHED: Duration = Duration::from_millis(500);

/// One test at a time: they count threads and measure time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whoever waits for a close waits for that close, and not for another one to begin to.
#[test]
fn two_who_wait_for_a_disk_to_be_closed_wait_for_the_same() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let disk = open(&file_in(dir.path(), "healthy", 1 << 20));
    let (one, other) = (Arc::clone(&disk), Arc::clone(&disk));
    let waits = thread::spawn(move || Disk::close_within(one, HEALTHY));
    // It still has its use of the disk, or waits for the others.
    eventually("the first one to wait", || Arc::strong_count(&disk) == 2);
    assert!(!Disk::close_within(other, WATCHED));
    assert!(!waits.is_finished());
    assert!(Disk::close_within(disk, HEALTHY));
    assert!(waits.join().unwrap());
}

fn filled(byte: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(4096);
    buf.fill(byte);
    buf
}

/// A file with allocated blocks, as `init` leaves a lease file: writes to it change no metadata.
fn written_file(dir: &Path, name: &str) -> Arc<Disk> {
    let path = dir.join(name);
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    open(&path)
}

fn write(engine: &mut dyn Engine, disk: &Arc<Disk>, offset: u64, byte: u8) {
    let request = IoRequest::write(Arc::clone(disk), offset, filled(byte));
    promptly(AT_ONCE, "submit", || engine.submit(request));
}

fn read(engine: &mut dyn Engine, disk: &Arc<Disk>, offset: u64) {
    let request = IoRequest::read(Arc::clone(disk), offset, AlignedBuf::zeroed(4096));
    promptly(AT_ONCE, "submit", || engine.submit(request));
}

/// Reads and writes on a disk that works are not delayed.
fn is_healthy(kind: EngineKind, disk: &Arc<Disk>) {
    let mut io = BlockingIo::new(kind).unwrap();
    promptly(HEALTHY, "I/O on another disk", || {
        for _ in 0..10 {
            io.write_all_at(disk, 4096, &[7; 4096], HEALTHY).unwrap();
            io.read_exact_at(disk, 4096, &mut [0; 4096], HEALTHY).unwrap();
        }
    });
}

fn nothing_completes(engine: &mut dyn Engine) {
    assert!(reap_within(engine, 1, WATCHED).is_empty());
    assert!(!is_ready(engine));
}

/// How many threads of an engine of this kind the kernel holds; for AIO it is the one that submits.
fn hanging(kind: EngineKind) -> usize {
    blocked_threads(match kind {
        EngineKind::IoUring => "iou-wrk",
        EngineKind::Aio => "sanlock-aio",
        EngineKind::Threads => "sanlock-threads",
    })
}

#[test]
fn a_frozen_file_system_delays_nobody_and_its_write_completes_late() {
    let _alone = alone();
    let Some(frozen) = FrozenMount::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let healthy = open(&file_in(dir.path(), "healthy", 1 << 20));
    let disk = written_file(&frozen.mount, "lease");
    on_each(|kind| {
        let mut engine = kind.create().unwrap();
        run_frozen(|| frozen_write(engine.as_mut(), &disk, &healthy, kind), &frozen);
        let done = one(engine.as_mut());
        done.result.unwrap();
        assert!(done.completed_at - done.submitted_at >= WATCHED);
        read(engine.as_mut(), &disk, 8192);
        assert!(one(engine.as_mut()).buf.iter().all(|&b| b == 9));
    });
}

fn run_frozen(body: impl FnOnce(), frozen: &FrozenMount) {
    frozen.freeze();
    body();
    frozen.thaw();
}

fn frozen_write(engine: &mut dyn Engine, disk: &Arc<Disk>, healthy: &Arc<Disk>, kind: EngineKind) {
    write(engine, disk, 8192, 9);
    nothing_completes(engine);
    assert_eq!(engine.in_flight(), 1);
    // Not vacuous: the kernel does hold a thread of ours.
    eventually("the write hangs", || hanging(kind) == 1);
    is_healthy(kind, healthy);
    // Reads and opens on the frozen file system go on, through the engine that has the stuck write.
    read(engine, disk, 0);
    let done = one(engine);
    done.result.unwrap();
    assert!(done.buf.iter().all(|&b| b == 1));
    promptly(HEALTHY, "open", || drop(Disk::open(disk.path(), Access::ReadWrite).unwrap()));
    // So do other disks through it.
    write(engine, healthy, 0, 3);
    one(engine).result.unwrap();
    assert_eq!(engine.in_flight(), 1);
}

#[test]
fn a_blocking_write_times_out_and_stays_outstanding() {
    let _alone = alone();
    let Some(frozen) = FrozenMount::new() else { return };
    let disk = written_file(&frozen.mount, "lease");
    on_each(|kind| {
        let mut io = BlockingIo::new(kind).unwrap();
        run_frozen(
            || {
                let start = Instant::now();
                let error = io.write_all_at(&disk, 0, &[5; 512], WATCHED).unwrap_err();
                assert_eq!((error.kind, error.code()), (IoErrorKind::TimedOut, -202));
                assert!((WATCHED..WATCHED + HEALTHY).contains(&start.elapsed()), "{:?}", start.elapsed());
                assert_eq!(io.outstanding(), 1);
                // The stuck write does not keep the façade from reading.
                io.read_exact_at(&disk, 4096, &mut [0; 512], HEALTHY).unwrap();
            },
            &frozen,
        );
        eventually("the late write is collected", || fs::read(disk.path()).unwrap()[0] == 5);
        let end = Instant::now() + HEALTHY;
        while io.collect_late() > 0 {
            assert!(Instant::now() < end);
            thread::sleep(Duration::from_millis(5));
        }
    });
}

#[test]
fn more_stuck_writes_than_anything_has_room_for() {
    let _alone = alone();
    let Some(frozen) = FrozenMount::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let healthy = open(&file_in(dir.path(), "healthy", 1 << 20));
    let disk = written_file(&frozen.mount, "lease");
    on_each(|kind| {
        let mut engine = kind.create().unwrap();
        run_frozen(
            || {
                for n in 0..MAX_IN_FLIGHT as u64 {
                    write(engine.as_mut(), &disk, n * 4096, 2);
                }
                nothing_completes(engine.as_mut());
                write(engine.as_mut(), &disk, 0, 2);
                assert_eq!(one(engine.as_mut()).result.unwrap_err().code(), -libc::EAGAIN);
                assert_eq!(engine.in_flight(), MAX_IN_FLIGHT);
                is_healthy(kind, &healthy);
            },
            &frozen,
        );
        let done = reap_within(engine.as_mut(), MAX_IN_FLIGHT, HEALTHY);
        assert_eq!(done.len(), MAX_IN_FLIGHT);
        for done in done {
            done.result.unwrap();
        }
        assert_eq!(engine.in_flight(), 0);
    });
}

#[test]
fn dropping_an_engine_with_a_stuck_write_returns_and_its_thread_cleans_up_later() {
    let _alone = alone();
    let Some(frozen) = FrozenMount::new() else { return };
    let disk = written_file(&frozen.mount, "lease");
    on_each(|kind| {
        let name = format!("sanlock-{}", kind.name());
        eventually("threads of earlier engines end", || threads_named(&name) == 0);
        run_frozen(
            || {
                let mut engine = kind.create().unwrap();
                write(engine.as_mut(), &disk, 0, 8);
                // What has not begun when an engine is dropped never begins.
                eventually("the write hangs", || hanging(kind) == 1);
                nothing_completes(engine.as_mut());
                promptly(AT_ONCE, "drop", || drop(engine));
                assert!(threads_named(&name) > 0, "the stuck write's memory has an owner");
                assert!(Arc::strong_count(&disk) > 1, "and its disk stays open");
            },
            &frozen,
        );
        eventually("the owner ends", || threads_named(&name) == 0);
        assert_eq!(Arc::strong_count(&disk), 1);
        // The write landed after its engine was gone.
        assert_eq!(fs::read(disk.path()).unwrap()[0], 8);
        fs::write(disk.path(), vec![1; 1 << 20]).unwrap();
    });
}

#[test]
fn a_queued_write_of_a_dropped_engine_never_happens() {
    let _alone = alone();
    let Some(frozen) = FrozenMount::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let healthy = written_file(dir.path(), "healthy");
    let disk = written_file(&frozen.mount, "lease");
    on_each(|kind| {
        run_frozen(
            || {
                let mut engine = kind.create().unwrap();
                for n in 0..MAX_IN_FLIGHT as u64 - 1 {
                    write(engine.as_mut(), &disk, n * 4096, 2);
                }
                write(engine.as_mut(), &healthy, 0, 0xee); // behind them all, on a disk that works
                nothing_completes(engine.as_mut());
                promptly(AT_ONCE, "drop", || drop(engine));
                assert_eq!(Arc::strong_count(&healthy), 1, "given up at once");
            },
            &frozen,
        );
        eventually("the stuck writes end", || Arc::strong_count(&disk) == 1);
        assert_eq!(fs::read(healthy.path()).unwrap()[0], 1);
    });
}

#[test]
fn a_thread_that_submitted_a_stuck_write_can_end() {
    let _alone = alone();
    let Some(frozen) = FrozenMount::new() else { return };
    let disk = written_file(&frozen.mount, "lease");
    on_each(|kind| {
        let mut engine = kind.create().unwrap();
        run_frozen(
            || {
                let submitter = thread::scope(|scope| {
                    let (engine, disk) = (engine.as_mut(), &disk);
                    let thread = scope.spawn(move || {
                        write(engine, disk, 0, 4);
                        nothing_completes(engine);
                    });
                    thread::sleep(2 * WATCHED);
                    promptly(HEALTHY, "join", || thread.join())
                });
                submitter.unwrap();
            },
            &frozen,
        );
        one(engine.as_mut()).result.unwrap();
    });
}

#[test]
fn a_silent_server_delays_nobody_and_its_read_completes_late() {
    let _alone = alone();
    let Some(file) = SilentFile::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let healthy = open(&file_in(dir.path(), "healthy", 1 << 20));
    let disk = open(&file.path);
    on_each(|kind| {
        let mut engine = kind.create().unwrap();
        write(engine.as_mut(), &disk, 8192, 9);
        one(engine.as_mut()).result.unwrap();
        let mut io = BlockingIo::new(kind).unwrap();

        file.fall_silent();
        read(engine.as_mut(), &disk, 8192);
        write(engine.as_mut(), &disk, 4096, 6);
        eventually("the read reaches the server", || file.waiting(Waiting::Read) == 1);
        eventually("the write reaches the server", || file.waiting(Waiting::Write) == 1);
        nothing_completes(engine.as_mut());
        is_healthy(kind, &healthy);
        write(engine.as_mut(), &healthy, 0, 3);
        one(engine.as_mut()).result.unwrap();
        assert_eq!(engine.in_flight(), 2);
        let error = io.read_exact_at(&disk, 0, &mut [0; 512], WATCHED).unwrap_err();
        assert_eq!(error.code(), -202);
        file.resume();

        let mut done = reap_within(engine.as_mut(), 2, HEALTHY);
        assert_eq!(done.len(), 2);
        done.sort_by_key(|done| done.ticket);
        for done in &done {
            assert_eq!(done.result, Ok(()));
            assert!(done.completed_at - done.submitted_at >= WATCHED);
        }
        assert!(done[0].buf.iter().all(|&b| b == 9), "the late read is a good read");
        // A late completion of the façade, of zeros, is not taken for the next operation's.
        let mut next = [0; 512];
        io.read_exact_at(&disk, 8192, &mut next, HEALTHY).unwrap();
        assert_eq!(next, [9; 512]);
        // It may end after the next one: no order is promised.
        eventually("the late read is over", || io.collect_late() == 0);
    });
}

#[test]
fn dropping_everything_of_a_silent_file_returns_at_once() {
    let _alone = alone();
    let Some(file) = SilentFile::new() else { return };
    on_each(|kind| {
        let name = format!("sanlock-{}", kind.name());
        eventually("threads of earlier engines end", || threads_named(&name) == 0);
        let disk = open(&file.path);
        let mut engine = kind.create().unwrap();
        let mut io = BlockingIo::new(kind).unwrap();
        file.fall_silent();
        read(engine.as_mut(), &disk, 0);
        assert_eq!(io.write_all_at(&disk, 0, &[1; 512], WATCHED).unwrap_err().code(), -202);
        let hang = || (file.waiting(Waiting::Read), file.waiting(Waiting::Write)) == (1, 1);
        eventually("both reach the server", hang);
        promptly(AT_ONCE, "drop", || drop((engine, io, disk)));
        assert!(threads_named(&name) > 0);
        file.resume();
        eventually("the owners end", || threads_named(&name) == 0);
    });
}

#[test]
fn a_huge_page_with_a_stuck_read_outlives_its_stock() {
    let _alone = alone();
    let Some(file) = SilentFile::new() else { return };
    on_each(|kind| {
        let name = format!("sanlock-{}", kind.name());
        eventually("threads of earlier engines end", || threads_named(&name) == 0);
        let stock = match HugePages::start(|text| eprintln!("{text}")) {
            Ok(stock) => stock,
            Err(error) => return missing(&error.to_string()),
        };
        stock.prepare();
        let end = Instant::now() + HEALTHY;
        let buf = loop {
            match stock.take(512 << 10) {
                Some(buf) => break buf,
                None if Instant::now() < end => thread::sleep(Duration::from_millis(1)),
                None => panic!("no huge page was made"),
            }
        };
        let disk = open(&file.path);
        let mut engine = kind.create().unwrap();
        file.fall_silent();
        let request = IoRequest::read(Arc::clone(&disk), 0, buf);
        promptly(AT_ONCE, "submit", || engine.submit(request));
        eventually("the read reaches the server", || file.waiting(Waiting::Read) > 0);
        nothing_completes(engine.as_mut());
        promptly(AT_ONCE, "drop", || drop((engine, disk, stock)));
        eventually("the thread of the stock ends", || threads_named("sanlock-memory") == 0);
        // The kernel writes into the page now: if it had been unmapped or given away, this process or another buffer would suffer.
        file.resume();
        eventually("the owners end", || threads_named(&name) == 0);
    });
}

#[test]
fn an_errand_that_hangs_is_nobody_else_s_trouble_and_outlives_its_engine() {
    let _alone = alone();
    let Some(file) = SilentFile::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let healthy = open(&file_in(dir.path(), "healthy", 1 << 20));
    for with_threads in [false, true] {
        let name = "sanlock-threads";
        eventually("threads of earlier engines end", || threads_named(name) == 0);
        let disk = open(&file.path);
        let mut engine = EngineKind::Threads.create().unwrap();
        engine.defer(SLOW);
        if with_threads {
            read(engine.as_mut(), &healthy, 0);
            engine.start();
            one(engine.as_mut()).result.unwrap();
        }
        file.fall_silent();
        read(engine.as_mut(), &disk, 0);
        let errand = engine.errand().unwrap();
        assert!(engine.errand().is_none(), "it is given once");
        let out = thread::spawn(|| errand.run());
        eventually("it hangs", || file.waiting(Waiting::Read) == 1);
        nothing_completes(engine.as_mut());
        // What comes now is for threads, also on the disk that hangs.
        read(engine.as_mut(), &healthy, 4096);
        engine.start();
        one(engine.as_mut()).result.unwrap();
        promptly(AT_ONCE, "drop", || drop(engine));
        assert!(Arc::strong_count(&disk) > 1, "the disk stays open");
        file.resume();
        out.join().unwrap();
        eventually("all is freed", || Arc::strong_count(&disk) == 1 && threads_named(name) == 0);
    }
    // After a call that took long the next one is for a thread; after a quick one it is the caller's again.
    let disk = open(&file.path);
    let mut engine = EngineKind::Threads.create().unwrap();
    engine.defer(SLOW);
    file.fall_silent();
    read(engine.as_mut(), &disk, 0);
    let errand = engine.errand().unwrap();
    let out = thread::spawn(|| errand.run());
    eventually("it hangs", || file.waiting(Waiting::Read) == 1);
    nothing_completes(engine.as_mut());
    file.resume();
    out.join().unwrap();
    one(engine.as_mut()).result.unwrap();
    let end = Instant::now() + HEALTHY;
    read(engine.as_mut(), &healthy, 0);
    assert!(engine.errand().is_none());
    loop {
        engine.start();
        one(engine.as_mut()).result.unwrap();
        read(engine.as_mut(), &healthy, 0);
        if let Some(errand) = engine.errand() {
            errand.run();
            break one(engine.as_mut()).result.unwrap();
        }
        assert!(Instant::now() < end, "a disk in memory never takes so long");
    }
}

#[test]
fn a_hanging_close_blocks_a_background_thread_only() {
    let _alone = alone();
    let Some(file) = SilentFile::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let healthy = file_in(dir.path(), "healthy", 1 << 20);
    let disk = open(&file.path);
    file.fall_silent();
    promptly(AT_ONCE, "drop", || drop(disk));
    eventually("the close waits for the server", || file.waiting(Waiting::Close) == 1);
    // Other disks still close.
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    for _ in 0..100 {
        drop(open(&healthy));
    }
    eventually("other disks are closed", || descriptors() <= before);
    file.resume();
}

#[test]
fn forty_engines_take_little_memory() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let disk = open(&file_in(dir.path(), "disk", 1 << 20));
    let resident_kb = || {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    on_each(|kind| {
        let before = resident_kb();
        let mut engines: Vec<_> = (0..40).map(|_| kind.create().unwrap()).collect();
        for engine in &mut engines {
            write(engine.as_mut(), &disk, 0, 1);
        }
        for engine in &mut engines {
            one(engine.as_mut()).result.unwrap();
        }
        let used = resident_kb().saturating_sub(before);
        assert!(used < 8 * 1024, "40 engines of {} take {used} kB", kind.name());
    });
}
