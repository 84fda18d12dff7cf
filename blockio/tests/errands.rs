//! Calls that whoever wants an operation makes itself: the engine of ordinary reads and writes.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sanlock_blockio::{Access, AlignedBuf, Completion, Disk, Engine, EngineKind, IoErrorKind, IoRequest, Op};
use support::{LoopDevice, file_in, open};

/// What is between two reads that one call may as well read.
const GAP_MAX: u64 = 64 << 10;

/// A disk of which every byte is the number of its sector, and an engine that waits to be asked.
fn numbered(dir: &Path) -> (Arc<Disk>, Box<dyn Engine>) {
    let path = file_in(dir, "disk", 0);
    let bytes: Vec<u8> = (0..512_u32).flat_map(|sector| [sector.to_le_bytes()[0]; 512]).collect();
    std::fs::write(&path, bytes).unwrap();
    (open(&path), engine())
}

/// One that waits to be asked, however long calls take on a busy machine.
fn engine() -> Box<dyn Engine> {
    let mut engine = EngineKind::Threads.create().unwrap();
    engine.defer(Duration::MAX);
    engine
}

fn read(engine: &mut dyn Engine, disk: &Arc<Disk>, sector: u64, len: usize) {
    engine.submit(IoRequest::read(Arc::clone(disk), sector * 512, AlignedBuf::zeroed(len)));
}

/// What has ended, by its place on the disk.
fn reap(engine: &mut dyn Engine) -> Vec<Completion> {
    let mut done = Vec::new();
    engine.reap(&mut done);
    done.sort_by_key(|done| done.offset);
    done
}

#[track_caller]
fn assert_numbered(done: &Completion) {
    done.result.as_ref().unwrap();
    for (at, &byte) in done.buf[..done.len].iter().enumerate() {
        let sector = done.offset / 512 + at as u64 / 512;
        assert_eq!(byte, sector.to_le_bytes()[0], "byte {at} of the read at {}", done.offset);
    }
}

#[test]
fn one_call_makes_two_reads_that_are_close_together() {
    let dir = tempfile::tempdir().unwrap();
    // Side by side, a sector between them, a large one first, and as far from each other as may be.
    for (first, len, second) in [(0, 512, 1), (0, 512, 2), (4, 4096, 50), (9, 512, 10 + GAP_MAX / 512)] {
        let (disk, mut engine) = numbered(dir.path());
        read(engine.as_mut(), &disk, first, len);
        assert!(engine.is_one_call());
        read(engine.as_mut(), &disk, second, 512);
        assert!(engine.is_one_call());
        let errand = engine.errand().unwrap();
        assert!(!engine.is_one_call(), "it has been given away");
        assert!(engine.errand().is_none() && reap(engine.as_mut()).is_empty());
        errand.run();
        let done = reap(engine.as_mut());
        assert_eq!([done[0].offset, done[1].offset], [first * 512, second * 512]);
        done.iter().for_each(assert_numbered);
        assert_eq!(engine.in_flight(), 0);
    }
}

#[test]
fn each_of_two_reads_has_its_own_result() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, mut engine) = numbered(dir.path());
    // The disk has 512 sectors.
    read(engine.as_mut(), &disk, 510, 512);
    read(engine.as_mut(), &disk, 512, 512);
    engine.errand().unwrap().run();
    let done = reap(engine.as_mut());
    assert_numbered(&done[0]);
    assert_eq!(done[1].result.as_ref().unwrap_err().kind, IoErrorKind::Short { got: 0 });
}

/// A file of zeros, and block devices of both sector sizes.
fn file_and_devices(dir: &Path) -> (Vec<PathBuf>, Vec<LoopDevice>) {
    let zeros = |name| {
        let path = file_in(dir, name, 0);
        std::fs::write(&path, [0; 64 << 10]).unwrap();
        path
    };
    let devices = [("512", 512), ("4096", 4096)];
    let devices: Vec<_> =
        devices.iter().filter_map(|(name, size)| LoopDevice::over(&zeros(name), *size)).collect();
    let paths = [zeros("file")].into_iter().chain(devices.iter().map(|device| device.path.clone()));
    (paths.collect(), devices)
}

/// As a release does: its block, and the leader beside it, which lies before it. On a file and on block devices.
#[test]
fn one_call_makes_a_write_and_a_read_of_something_else() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, _devices) = file_and_devices(dir.path());
    for (n, path) in (1..).zip(paths) {
        let disk = open(&path);
        let size = disk.logical_block_size() as usize;
        // Before it, behind it, and so often that a place among those for such calls that was not given back would be missed.
        for (round, (write, read)) in (0..40_u8).zip([(2, 0), (3, 4), (1, 0), (5, 6)].into_iter().cycle()) {
            let mut engine = engine();
            let mut buf = AlignedBuf::zeroed(size);
            buf.fill(n * 50 + round);
            let at = |sector: usize| (sector * size) as u64;
            engine.submit(IoRequest::write(Arc::clone(&disk), at(write), buf));
            assert!(engine.is_one_call());
            engine.submit(IoRequest::read(Arc::clone(&disk), at(read), AlignedBuf::zeroed(size)));
            assert!(engine.is_one_call());
            if round % 2 == 0 {
                engine.errand().unwrap().run();
            } else {
                engine.start();
            }
            let mut done = Vec::new();
            support::eventually("both have ended", || {
                done.extend(reap(engine.as_mut()));
                done.len() == 2
            });
            assert!(done.iter().all(|done| done.result.is_ok()), "{done:?}");
            let seen = done.iter().find(|done| done.op == Op::Read).unwrap();
            assert_eq!((seen.offset, seen.buf[0]), (at(read), 0), "what nobody has written");
            engine.submit(IoRequest::read(Arc::clone(&disk), at(write), AlignedBuf::zeroed(size)));
            engine.errand().unwrap().run();
            assert!(reap(engine.as_mut())[0].buf[..size].iter().all(|byte| *byte == n * 50 + round));
        }
    }
}

/// As who goes over to a shared hold does: its block, and the leader.
#[test]
fn one_call_makes_two_writes() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, _devices) = file_and_devices(dir.path());
    for path in paths {
        let disk = open(&path);
        let size = disk.logical_block_size() as usize;
        for (round, sectors) in (1..41_u8).zip([[2, 0], [3, 4], [1, 0], [5, 6]].into_iter().cycle()) {
            let mut engine = engine();
            let at = |sector: usize| (sector * size) as u64;
            for (sector, byte) in sectors.into_iter().zip([round, 100 + round]) {
                let mut buf = AlignedBuf::zeroed(size);
                buf.fill(byte);
                engine.submit(IoRequest::write(Arc::clone(&disk), at(sector), buf));
                assert!(engine.is_one_call());
            }
            if round % 2 == 0 {
                engine.errand().unwrap().run();
            } else {
                engine.start();
            }
            let mut done = Vec::new();
            support::eventually("both have ended", || {
                done.extend(reap(engine.as_mut()));
                done.len() == 2
            });
            assert!(done.iter().all(|done| done.op == Op::Write && done.result.is_ok()), "{done:?}");
            for (sector, byte) in sectors.into_iter().zip([round, 100 + round]) {
                engine.submit(IoRequest::read(Arc::clone(&disk), at(sector), AlignedBuf::zeroed(size)));
                engine.errand().unwrap().run();
                assert!(reap(engine.as_mut())[0].buf[..size].iter().all(|found| *found == byte));
            }
        }
    }
}

#[test]
fn of_two_writes_each_has_its_own_result() {
    let dir = tempfile::tempdir().unwrap();
    // A device ends where it ends; a file would grow.
    let path = file_in(dir.path(), "device", 0);
    std::fs::write(&path, [0; 64 << 10]).unwrap();
    let Some(device) = LoopDevice::over(&path, 512) else { return };
    let disk = open(&device.path);
    for (first, second) in [(0, 64 << 10), (64 << 10, 0)] {
        let mut engine = engine();
        for at in [first, second] {
            engine.submit(IoRequest::write(Arc::clone(&disk), at, AlignedBuf::zeroed(512)));
        }
        assert!(engine.is_one_call());
        engine.errand().unwrap().run();
        let done = reap(engine.as_mut());
        let ok: Vec<_> = done.iter().map(|done| (done.offset, done.result.is_ok())).collect();
        assert!(ok.len() == 2 && ok.contains(&(0, true)) && ok.contains(&(64 << 10, false)), "{done:?}");
    }
}

#[test]
fn of_a_write_and_a_read_each_has_its_own_result() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, mut engine) = numbered(dir.path());
    // The disk has 512 sectors.
    engine.submit(IoRequest::write(Arc::clone(&disk), 0, AlignedBuf::zeroed(512)));
    read(engine.as_mut(), &disk, 512, 512);
    engine.errand().unwrap().run();
    let done = reap(engine.as_mut());
    assert!(done[0].result.is_ok());
    assert_eq!(done[1].result.as_ref().unwrap_err().kind, IoErrorKind::Short { got: 0 });

    let read_only = Arc::new(Disk::open(disk.path(), Access::ReadOnly).unwrap());
    engine.submit(IoRequest::write(Arc::clone(&read_only), 0, AlignedBuf::zeroed(512)));
    read(engine.as_mut(), &read_only, 7, 512);
    engine.errand().unwrap().run();
    let done = reap(engine.as_mut());
    assert_eq!(done[0].result.as_ref().unwrap_err().kind, IoErrorKind::Os(libc::EBADF));
    assert_numbered(&done[1]);
}

/// Where other paths have calls to make as well, threads make these.
#[test]
fn two_reads_that_are_close_together_have_their_results_from_a_thread_too() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, mut engine) = numbered(dir.path());
    // The disk has 512 sectors.
    for (first, second) in [(0, 2), (510, 512)] {
        read(engine.as_mut(), &disk, first, 512);
        read(engine.as_mut(), &disk, second, 512);
        engine.start();
        let mut done = Vec::new();
        support::eventually("both are read", || {
            done.extend(reap(engine.as_mut()));
            done.len() == 2
        });
        done.sort_by_key(|done: &Completion| done.offset);
        assert_numbered(&done[0]);
        match second {
            512 => assert_eq!(done[1].result.as_ref().unwrap_err().kind, IoErrorKind::Short { got: 0 }),
            _ => assert_numbered(&done[1]),
        }
    }
}

#[test]
fn other_operations_are_a_call_each() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, _) = numbered(dir.path());
    let again = open(disk.path());
    let write = |sector: u64| {
        let request = IoRequest::write(Arc::clone(&disk), sector * 512, AlignedBuf::zeroed(512));
        assert_eq!(request.op, Op::Write);
        request
    };
    let reads = |disk: &Arc<Disk>, sector: u64, len| {
        IoRequest::read(Arc::clone(disk), sector * 512, AlignedBuf::zeroed(len))
    };
    let pairs = [
        ("two writes of the same", [write(4), write(4)]),
        ("two writes of two machines", [IoRequest { of: 1, ..write(4) }, write(3)]),
        ("a read and a write", [reads(&disk, 3, 512), write(4)]),
        ("a write and a read of the same", [write(4), reads(&disk, 4, 512)]),
        ("a write and a read beyond its beginning", [write(5), reads(&disk, 4, 1024)]),
        ("a write and a read that is too large", [write(0), reads(&disk, 1, 128 << 10)]),
        ("a write and a read by descriptors of their own", [write(0), reads(&again, 1, 512)]),
        ("a write and a read of two machines", [IoRequest { of: 1, ..write(4) }, reads(&disk, 3, 512)]),
        ("reads of two machines", [reads(&disk, 3, 512), IoRequest { of: 1, ..reads(&disk, 4, 512) }]),
        ("too far from each other", [reads(&disk, 0, 512), reads(&disk, 2 + GAP_MAX / 512, 512)]),
        ("too large", [reads(&disk, 0, 512), reads(&disk, 1, 128 << 10)]),
        ("the other way round", [reads(&disk, 9, 512), reads(&disk, 8, 512)]),
        ("by descriptors of their own", [reads(&disk, 8, 512), reads(&again, 9, 512)]),
    ];
    for (what, requests) in pairs {
        let mut engine = engine();
        for request in requests {
            engine.submit(request);
        }
        assert!(!engine.is_one_call(), "{what}");
        for errand in [engine.errand().unwrap(), engine.errand().unwrap()] {
            errand.run();
            let done = reap(engine.as_mut());
            assert!(done.len() == 1 && done[0].result.is_ok(), "{what}");
        }
    }
    let mut engine = engine();
    for sector in 10..13 {
        read(engine.as_mut(), &disk, sector, 512);
    }
    assert!(!engine.is_one_call(), "three reads");
}

/// Where the kernel keeps nothing of an operation that has ended, nobody has to stay for it.
#[test]
fn an_engine_of_threads_has_none_while_it_has_nothing_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, mut engine) = numbered(dir.path());
    for _ in 0..2 {
        read(engine.as_mut(), &disk, 0, 512);
        engine.start();
        let mut done = reap(engine.as_mut());
        support::eventually("it is read", || {
            done.extend(reap(engine.as_mut()));
            !done.is_empty()
        });
        assert_numbered(&done[0]);
        support::eventually("threads end", || support::threads_named("sanlock-threads") == 0);
    }
}
