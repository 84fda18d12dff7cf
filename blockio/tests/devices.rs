//! What a block device gets to see, and what it answers.
#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]

mod support;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sanlock_blockio::drive::monotonic_now;
use sanlock_blockio::{AlignedBuf, Disk, Engine, EngineKind, IoErrorKind, IoRequest, MAX_IN_KERNEL, Op};
use support::{
    AT_ONCE, FrozenMount, LoopDevice, eventually, file_in, on_each, one, open, promptly, reap_within,
    threads_named,
};

const PATIENT: Duration = Duration::from_secs(60);

/// How long something is watched that must not happen.
const WATCHED: Duration = Duration::from_millis(300);

fn write(engine: &mut dyn Engine, disk: &Arc<Disk>, sector: u64, byte: u8) {
    let mut buf = AlignedBuf::zeroed(512);
    buf.fill(byte);
    engine.submit(IoRequest::write(Arc::clone(disk), sector * 512, buf));
}

/// Flushes that the device has completed, from its `stat` (Documentation/block/stat.rst of the kernel).
fn flushes(device: &Path) -> u64 {
    let name = device.file_name().unwrap().to_str().unwrap();
    let stat = fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
    stat.split_whitespace().nth(15).unwrap().parse().unwrap()
}

/// Writes that the device has been given and has not completed.
fn under_way(device: &Path) -> u64 {
    let name = device.file_name().unwrap().to_str().unwrap();
    let reads_and_writes = fs::read_to_string(format!("/sys/block/{name}/inflight")).unwrap();
    reads_and_writes.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Makes writes of one sector, one after the other: first by the caller where the engine lets it, then by the engine.
fn write_in_turn(kind: EngineKind, disk: &Arc<Disk>, count: u64) {
    let mut engine = kind.create().unwrap();
    for n in 0..count {
        write(engine.as_mut(), disk, n, 7);
        one(engine.as_mut()).result.unwrap();
    }
    engine.defer(PATIENT);
    for n in 0..count {
        write(engine.as_mut(), disk, n, 8);
        if let Some(errand) = engine.errand() {
            errand.run();
        }
        one(engine.as_mut()).result.unwrap();
    }
}

#[test]
fn a_device_is_the_same_by_each_of_its_nodes_and_a_file_by_each_of_its_names() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| file_in(dir.path(), name, 1 << 20));
    let [disk, other] = [&one, &two].map(|path| open(path));
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&one, &link).unwrap();
    assert!(disk.is_same_as(&open(&link)) && !disk.is_same_as(&other));
    let Some(device) = LoopDevice::over(&one, 512) else { return };
    let node = dir.path().join("node");
    let number = nix::sys::stat::stat(&device.path).unwrap().st_rdev;
    let mode = nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR;
    nix::sys::stat::mknod(&node, nix::sys::stat::SFlag::S_IFBLK, mode, number).unwrap();
    let device = open(&device.path);
    assert!(!device.is_same_as(&disk));
    match Disk::open(&node, sanlock_blockio::Access::ReadWrite) {
        Ok(node) => assert!(node.is_same_as(&device)),
        // A file system that is mounted with nodev.
        Err(error) => eprintln!("skipped: {error}"),
    }
}

#[test]
fn a_device_has_room_for_what_fits_and_a_file_for_all() {
    let dir = tempfile::tempdir().unwrap();
    let file = file_in(dir.path(), "file", 1 << 20);
    let Some(device) = LoopDevice::over(&file, 4096) else { return };
    let (file, device) = (open(&file), open(&device.path));
    let code = |disk: &Disk, offset: u64| disk.has_room(offset, 8192).map_err(|error| error.code());
    for (offset, expected) in [
        (0, Ok(())),
        ((1 << 20) - 8192, Ok(())),
        ((1 << 20) - 4096, Err(-90)),
        (1 << 20, Err(-28)),
        (!4095, Err(-28)),
        // The write says what is wrong with that.
        ((1 << 20) - 512, Ok(())),
    ] {
        assert_eq!(code(&device, offset), expected, "{offset}");
        assert_eq!(code(&file, offset), Ok(()), "{offset}");
    }
}

#[test]
fn a_write_is_flushed_before_it_is_over_and_only_once() {
    const COUNT: u64 = 20;
    let dir = tempfile::tempdir().unwrap();
    let file = file_in(dir.path(), "image", 1 << 20);
    let Some(device) = LoopDevice::over(&file, 512) else { return };
    let disk = open(&device.path);
    on_each(|kind| {
        let before = flushes(&device.path);
        write_in_turn(kind, &disk, COUNT);
        assert_eq!(flushes(&device.path) - before, 2 * COUNT, "{}", kind.name());
    });
}

#[test]
fn many_writes_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let file = file_in(dir.path(), "image", 1 << 20);
    let Some(device) = LoopDevice::over(&file, 512) else { return };
    let disk = open(&device.path);
    on_each(|kind| {
        let mut engines = [kind.create().unwrap(), kind.create().unwrap(), kind.create().unwrap()];
        for round in 0..5_u8 {
            for (first, engine) in (0_u64..).step_by(MAX_IN_KERNEL).zip(&mut engines) {
                for n in 0..MAX_IN_KERNEL as u64 {
                    write(engine.as_mut(), &disk, first + n, round + 1);
                }
            }
            for engine in &mut engines {
                let done = reap_within(engine.as_mut(), MAX_IN_KERNEL, PATIENT);
                assert_eq!(done.len(), MAX_IN_KERNEL);
                assert!(done.iter().all(|done| done.result.is_ok()));
            }
            let written = fs::read(&file).unwrap();
            assert!(written[..3 * MAX_IN_KERNEL * 512].iter().all(|&byte| byte == round + 1));
        }
    });
}

/// The write hangs: whoever made it waits, nobody else does, and when it ends it is a good write.
#[test]
fn a_write_to_a_device_that_hangs_completes_late() {
    let Some(frozen) = FrozenMount::new() else { return };
    let file = file_in(&frozen.mount, "image", 1 << 20);
    fs::write(&file, vec![1; 1 << 20]).unwrap();
    let Some(device) = LoopDevice::over(&file, 512) else { return };
    let disk = open(&device.path);
    let dir = tempfile::tempdir().unwrap();
    let healthy_file = file_in(dir.path(), "image", 1 << 20);
    let Some(healthy_device) = LoopDevice::over(&healthy_file, 512) else { return };
    let healthy = open(&healthy_device.path);
    on_each(|kind| {
        let mut engine = kind.create().unwrap();
        engine.defer(PATIENT);
        frozen.freeze();
        // More than there are contexts of AIO for.
        for n in 0..MAX_IN_KERNEL as u64 + 8 {
            write(engine.as_mut(), &disk, n, 5);
        }
        let caller = engine.errand().map(|errand| thread::spawn(|| errand.run()));
        engine.start();
        assert!(reap_within(engine.as_mut(), 1, WATCHED).is_empty());
        let mut other = kind.create().unwrap();
        write(other.as_mut(), &healthy, 0, 6);
        one(other.as_mut()).result.unwrap();
        frozen.thaw();
        let done = reap_within(engine.as_mut(), MAX_IN_KERNEL + 8, PATIENT);
        assert_eq!(done.len(), MAX_IN_KERNEL + 8);
        for done in done {
            done.result.unwrap();
        }
        if let Some(caller) = caller {
            caller.join().unwrap();
        }
        // Afterwards the device is used as before.
        write_in_turn(kind, &disk, 3);
    });
    drop(disk);
}

/// As a release has them. A disk that reads must not look like one that does not, so the read is told of when it has ended, whoever makes the call.
#[test]
fn a_read_beside_a_write_that_hangs_ends_in_time() {
    let Some(frozen) = FrozenMount::new() else { return };
    let file = file_in(&frozen.mount, "image", 1 << 20);
    fs::write(&file, vec![1; 1 << 20]).unwrap();
    let below = file_in(&frozen.mount, "below", 1 << 20);
    fs::write(&below, vec![1; 1 << 20]).unwrap();
    let Some(device) = LoopDevice::over(&below, 512) else { return };
    for path in [&file, &device.path] {
        let disk = open(path);
        for alone in [true, false] {
            let mut engine = EngineKind::Threads.create().unwrap();
            engine.defer(PATIENT);
            frozen.freeze();
            write(engine.as_mut(), &disk, 2, 5);
            engine.submit(IoRequest::read(Arc::clone(&disk), 0, AlignedBuf::zeroed(512)));
            assert!(engine.is_one_call());
            let caller = if alone { engine.errand() } else { None };
            let caller = caller.map(|errand| thread::spawn(|| errand.run()));
            if !alone {
                engine.start();
            }
            let mut done = Vec::new();
            eventually("it is read", || engine.reap(&mut done) > 0);
            let [read] = &done[..] else { panic!("{done:?}") };
            assert!(read.op == Op::Read && read.result.is_ok() && read.buf[0] == 1, "{read:?}");
            assert!(reap_within(engine.as_mut(), 1, WATCHED).is_empty(), "the write hangs");
            frozen.thaw();
            let written = one(engine.as_mut());
            assert!(written.op == Op::Write && written.result.is_ok(), "{written:?}");
            drop(written);
            if let Some(caller) = caller {
                caller.join().unwrap();
            }
            // Its place may be another one's before the write ends. (A loop device makes nothing behind a write that hangs.)
            if *path == device.path {
                continue;
            }
            frozen.freeze();
            write(engine.as_mut(), &disk, 2, 6);
            engine.submit(IoRequest::read(Arc::clone(&disk), 0, AlignedBuf::zeroed(512)));
            engine.start();
            eventually("it is read", || engine.reap(&mut done) > 0);
            write(engine.as_mut(), &disk, 3, 7);
            engine.submit(IoRequest::read(Arc::clone(&disk), 512, AlignedBuf::zeroed(512)));
            engine.start();
            eventually("another one is read", || engine.reap(&mut done) > 0);
            promptly(AT_ONCE, "drop", || drop(engine));
            done.clear();
            frozen.thaw();
            eventually("the writes are over", || Arc::strong_count(&disk) == 1);
            let written = fs::read(path).unwrap();
            assert_eq!([written[2 * 512], written[3 * 512]], [6, 7]);
        }
    }
}

/// Two writes at once to a file that is frozen until the time of both has passed: of each the offset, and whether it was made.
fn two_writes_whose_time_passes(frozen: &FrozenMount, disk: &Arc<Disk>) -> Vec<(u64, bool)> {
    let mut engine = EngineKind::Threads.create().unwrap();
    engine.defer(PATIENT);
    frozen.freeze();
    let until = Some(monotonic_now().plus_millis(300));
    for (sector, byte) in [(2, 8), (0, 9)] {
        let mut buf = AlignedBuf::zeroed(512);
        buf.fill(byte);
        engine.submit(IoRequest { until, ..IoRequest::write(Arc::clone(disk), sector * 512, buf) });
    }
    engine.start();
    let mut done = reap_within(engine.as_mut(), 1, WATCHED);
    let hang = done.is_empty();
    while Some(monotonic_now()) <= until {
        thread::sleep(AT_ONCE / 1000);
    }
    frozen.thaw();
    done.extend(reap_within(engine.as_mut(), 2 - done.len(), PATIENT));
    assert!(hang || done.iter().all(|done| done.result.is_err()), "both hang: {done:?}");
    done.iter().map(|done| (done.offset, done.result.is_ok())).collect()
}

/// Neither is lost, nor told of before it has ended, whoever makes the call; others go on meanwhile.
#[test]
fn two_writes_at_once_that_hang_both_end_afterwards() {
    let Some(frozen) = FrozenMount::new() else { return };
    let file = file_in(&frozen.mount, "image", 1 << 20);
    fs::write(&file, vec![1; 1 << 20]).unwrap();
    let below = file_in(&frozen.mount, "below", 1 << 20);
    fs::write(&below, vec![1; 1 << 20]).unwrap();
    let Some(device) = LoopDevice::over(&below, 512) else { return };
    let elsewhere = tempfile::tempdir().unwrap();
    let healthy = open(&file_in(elsewhere.path(), "healthy", 1 << 20));
    for path in [&file, &device.path] {
        let disk = open(path);
        for alone in [true, false] {
            let mut engine = EngineKind::Threads.create().unwrap();
            engine.defer(PATIENT);
            frozen.freeze();
            write(engine.as_mut(), &disk, 2, 5);
            write(engine.as_mut(), &disk, 0, 6);
            assert!(engine.is_one_call());
            let caller = if alone { engine.errand() } else { None };
            let caller = caller.map(|errand| thread::spawn(|| errand.run()));
            if !alone {
                engine.start();
            }
            assert!(reap_within(engine.as_mut(), 1, WATCHED).is_empty(), "both hang");
            let mut other = EngineKind::Threads.create().unwrap();
            write(other.as_mut(), &healthy, 0, 6);
            one(other.as_mut()).result.unwrap();
            frozen.thaw();
            let done = reap_within(engine.as_mut(), 2, PATIENT);
            assert!(done.len() == 2 && done.iter().all(|done| done.result.is_ok()), "{done:?}");
            drop(done);
            if let Some(caller) = caller {
                caller.join().unwrap();
            }
            let written = fs::read(path).unwrap();
            assert_eq!([written[0], written[2 * 512]], [6, 5]);
        }
    }
    // Handing the second one over hangs, and the first one's time passes meanwhile: it does not begin.
    let disk = open(&file);
    let ok: Vec<_> = (0..5)
        .map(|_| two_writes_whose_time_passes(&frozen, &disk))
        // A busy machine may come for neither of them in time.
        .find(|ok| ok.iter().any(|(_, ok)| *ok))
        .expect("neither began, five times");
    assert!(ok.len() == 2 && ok.contains(&(2 * 512, false)) && ok.contains(&(0, true)), "{ok:?}");
    let written = fs::read(&file).unwrap();
    assert_eq!([written[0], written[2 * 512]], [9, 5]);
}

#[test]
fn dropping_an_engine_whose_write_hangs_returns_at_once() {
    let Some(frozen) = FrozenMount::new() else { return };
    let file = file_in(&frozen.mount, "image", 1 << 20);
    fs::write(&file, vec![1; 1 << 20]).unwrap();
    let Some(device) = LoopDevice::over(&file, 512) else { return };
    on_each(|kind| {
        let disk = open(&device.path);
        let mut engine = kind.create().unwrap();
        frozen.freeze();
        write(engine.as_mut(), &disk, 9, 3);
        // What has not begun when an engine is dropped never begins.
        eventually("the write hangs", || under_way(&device.path) == 1);
        assert!(reap_within(engine.as_mut(), 1, WATCHED).is_empty());
        promptly(AT_ONCE, "drop", || drop(engine));
        assert_eq!(Arc::strong_count(&disk), 2, "the write still has it");
        frozen.thaw();
        eventually("the write is over", || Arc::strong_count(&disk) == 1);
        let written = fs::read(&device.path).unwrap();
        assert!(written[9 * 512..10 * 512].iter().all(|&byte| byte == 3));
        let name = format!("sanlock-{}", kind.name());
        eventually("threads end", || threads_named(&name) <= 20);
    });
}

/// A device that refuses a write: the file behind it has no room.
#[test]
fn a_write_that_the_device_refuses_is_an_error() {
    let Some(mount) = FrozenMount::new() else { return };
    let file = file_in(&mount.mount, "image", 64 << 20);
    let Some(device) = LoopDevice::over(&file, 512) else { return };
    let disk = open(&device.path);
    // In one piece, and what is left in blocks of their own.
    let full = fs::write(mount.mount.join("fill"), vec![1; 64 << 20]).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
    assert!((0..5000).any(|n| fs::write(mount.mount.join(format!("fill{n}")), [1]).is_err()));
    on_each(|kind| {
        let mut engine = kind.create().unwrap();
        write(engine.as_mut(), &disk, 1000, 3);
        let Err(error) = one(engine.as_mut()).result else { panic!("{} wrote it", kind.name()) };
        assert!(matches!(error.kind, IoErrorKind::Os(libc::EIO | libc::ENOSPC)), "{error}");
    });
}
