//! What every engine does on storage that works.

mod support;

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use sanlock_blockio::{
    Access, AlignedBuf, Asker, BlockingIo, Disk, DiskKind, EngineKind, IoErrorKind, IoRequest, MAX_IN_FLIGHT,
    Op, OpenError, Ticket,
};
use support::{AT_ONCE, LoopDevice, file_in, is_ready, missing, on_each, one, open, promptly, reap_within};

const PATIENT: Duration = Duration::from_secs(60);

fn filled(len: usize, byte: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(len);
    buf.fill(byte);
    buf
}

#[test]
fn what_is_written_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(&file_in(dir.path(), "disk", 1 << 20));
    on_each(|kind| {
        let mut engine = kind.create().unwrap();
        assert_eq!(engine.kind(), kind);
        assert_eq!(engine.in_flight(), 0);
        assert!(!is_ready(engine.as_ref()));
        for (sector, byte) in [(0, 1), (7, 2), (2047, 3)] {
            let write = engine.submit(IoRequest::write(Arc::clone(&disk), sector * 512, filled(512, byte)));
            assert_eq!(engine.in_flight(), 1);
            let done = one(engine.as_mut());
            assert_eq!((done.ticket, done.op, done.offset, done.len), (write, Op::Write, sector * 512, 512));
            done.result.unwrap();
            assert!(done.completed_at >= done.submitted_at);

            let read =
                engine.submit(IoRequest::read(Arc::clone(&disk), sector * 512, AlignedBuf::zeroed(512)));
            assert_ne!(read, write);
            let done = one(engine.as_mut());
            done.result.unwrap();
            assert!(done.buf.iter().all(|&b| b == byte));
        }
        assert_eq!(engine.in_flight(), 0);
    });
}

#[test]
fn a_transfer_uses_the_start_of_a_larger_buffer() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(&file_in(dir.path(), "disk", 8192));
    on_each(|kind| {
        let mut engine = kind.create().unwrap();
        engine.submit(IoRequest {
            op: Op::Write,
            disk: Arc::clone(&disk),
            offset: 512,
            len: 512,
            buf: filled(4096, 9),
            place: None,
            of: 0,
            until: None,
        });
        one(engine.as_mut()).result.unwrap();
        engine.submit(IoRequest::read(Arc::clone(&disk), 0, AlignedBuf::zeroed(4096)));
        let done = one(engine.as_mut());
        let nines: Vec<usize> = (0..4096).filter(|&at| done.buf[at] == 9).collect();
        assert_eq!(nines, (512..1024).collect::<Vec<_>>());
    });
}

#[test]
fn a_whole_lockspace_in_one_transfer() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(&file_in(dir.path(), "disk", 8 << 20));
    on_each(|kind| {
        let mut io = BlockingIo::new(kind).unwrap();
        let data: Vec<u8> = (0..8 << 20).map(|at: u32| at.to_le_bytes()[1] ^ at.to_le_bytes()[2]).collect();
        io.write_all_at(&disk, 0, &data, PATIENT).unwrap();
        let mut back = vec![0; 8 << 20];
        io.read_exact_at(&disk, 0, &mut back, PATIENT).unwrap();
        assert!(back == data);
        assert_eq!(io.outstanding(), 0);
    });
}

#[test]
fn errors_carry_number_path_and_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = file_in(dir.path(), "disk", 4096);
    let disk = open(&path);
    on_each(|kind| {
        let mut io = BlockingIo::new(kind).unwrap();
        let mut sector = [0; 512];

        let misaligned = io.read_exact_at(&disk, 100, &mut sector, PATIENT).unwrap_err();
        assert_eq!(misaligned.kind, IoErrorKind::Os(libc::EINVAL));
        assert_eq!(misaligned.code(), -22);
        assert_eq!((&*misaligned.path, misaligned.offset, misaligned.len), (path.as_path(), 100, 512));
        assert_eq!(io.write_all_at(&disk, 100, &sector, PATIENT).unwrap_err().code(), -22);

        let beyond = io.read_exact_at(&disk, 1 << 20, &mut sector, PATIENT).unwrap_err();
        assert_eq!(beyond.kind, IoErrorKind::Short { got: 0 });
        assert_eq!(beyond.code(), -90);
        let mut crossing = [0; 1024];
        let across = io.read_exact_at(&disk, 3584, &mut crossing, PATIENT).unwrap_err();
        assert_eq!((across.kind, across.code()), (IoErrorKind::Short { got: 512 }, -90));

        assert_eq!(io.read_exact_at(&disk, 0, &mut [], PATIENT).unwrap_err().code(), -22);
        assert_eq!(io.read_exact_at(&disk, 0, &mut sector, Duration::ZERO).unwrap_err().code(), -22);
        assert_eq!(io.read_exact_at(&disk, u64::MAX, &mut sector, PATIENT).unwrap_err().code(), -22);
        io.read_exact_at(&disk, 0, &mut sector, PATIENT).unwrap();
    });
}

#[test]
fn a_request_that_cannot_start_completes_like_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(&file_in(dir.path(), "disk", 4096));
    on_each(|kind| {
        let mut engine = kind.create().unwrap();
        let bad = IoRequest { len: 1024, ..IoRequest::read(Arc::clone(&disk), 0, filled(512, 5)) };
        let ticket = engine.submit(bad);
        assert_eq!(engine.in_flight(), 1);
        assert!(is_ready(engine.as_ref()));
        let done = one(engine.as_mut());
        assert_eq!((done.ticket, done.result.unwrap_err().code()), (ticket, -22));
        assert!(done.buf.iter().all(|&b| b == 5), "the buffer comes back");
        assert_eq!(engine.in_flight(), 0);
        assert!(!is_ready(engine.as_ref()));
    });
}

#[test]
fn a_read_only_disk_refuses_writes() {
    let dir = tempfile::tempdir().unwrap();
    let path = file_in(dir.path(), "disk", 4096);
    let disk = Disk::open(&path, Access::ReadOnly).unwrap();
    on_each(|kind| {
        let mut io = BlockingIo::new(kind).unwrap();
        io.read_exact_at(&disk, 0, &mut [0; 512], PATIENT).unwrap();
        assert_eq!(io.write_all_at(&disk, 0, &[0; 512], PATIENT).unwrap_err().code(), -9);
    });
}

#[test]
fn more_operations_than_the_kernel_gets_at_once_all_complete() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(&file_in(dir.path(), "disk", 1 << 20));
    on_each(|kind| {
        let mut engine = kind.create().unwrap();
        for round in 0..20_u8 {
            let tickets: Vec<Ticket> = (0..MAX_IN_FLIGHT as u64)
                .map(|n| engine.submit(IoRequest::write(Arc::clone(&disk), n * 512, filled(512, round))))
                .collect();
            let mut done = reap_within(engine.as_mut(), tickets.len(), PATIENT);
            done.sort_by_key(|done| done.ticket);
            assert_eq!(done.iter().map(|done| done.ticket).collect::<Vec<_>>(), tickets);
            for one in done {
                one.result.unwrap();
            }
        }
        assert_eq!(engine.in_flight(), 0);
    });
}

#[test]
fn loop_devices_of_both_sector_sizes() {
    for sector in [512_u32, 4096] {
        let dir = tempfile::tempdir().unwrap();
        let file = file_in(dir.path(), "image", 4 << 20);
        let Some(device) = LoopDevice::over(&file, sector) else { return };
        let disk = open(&device.path);
        assert_eq!(disk.kind(), DiskKind::Block);
        assert_eq!((disk.logical_block_size(), disk.size()), (sector, 4 << 20));
        assert!(disk.physical_block_size() >= sector);
        on_each(|kind| {
            let mut io = BlockingIo::new(kind).unwrap();
            let data = vec![kind.name().as_bytes()[0]; sector as usize];
            let mut back = vec![0; sector as usize];
            io.write_all_at(&disk, 3 * u64::from(sector), &data, PATIENT).unwrap();
            io.read_exact_at(&disk, 3 * u64::from(sector), &mut back, PATIENT).unwrap();
            assert_eq!(back, data);
            let half = u64::from(sector) / 2;
            assert_eq!(io.read_exact_at(&disk, half, &mut back, PATIENT).unwrap_err().code(), -22);
            // An area that crosses the end, and one beyond it (disk-format.md 2.6).
            let mut two = vec![0; 2 * sector as usize];
            let last = (4 << 20) - u64::from(sector);
            assert_eq!(io.read_exact_at(&disk, last, &mut two, PATIENT).unwrap_err().code(), -90);
            assert_eq!(io.write_all_at(&disk, last, &two, PATIENT).unwrap_err().code(), -90);
            assert_eq!(io.read_exact_at(&disk, 4 << 20, &mut two, PATIENT).unwrap_err().code(), -90);
            assert_eq!(io.write_all_at(&disk, 4 << 20, &two, PATIENT).unwrap_err().code(), -28);
            if sector == 4096 {
                assert_eq!(io.write_all_at(&disk, 0, &[0; 512], PATIENT).unwrap_err().code(), -22);
            }
        });
    }
}

#[test]
fn opening_says_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let absent = dir.path().join("absent");
    let error = Disk::open(&absent, Access::ReadWrite).unwrap_err();
    assert_eq!((error.errno(), error.code(), error.path()), (libc::ENOENT, -2, absent.as_path()));
    assert!(error.to_string().contains("absent"), "{error}");
    assert_eq!(
        Disk::open(dir.path(), Access::ReadWrite).unwrap_err(),
        OpenError::Directory { path: dir.path().to_owned() }
    );
    let null = std::path::Path::new("/dev/null");
    assert_eq!(
        Disk::open(null, Access::ReadWrite).unwrap_err(),
        OpenError::NotADisk { path: null.to_owned() }
    );
}

#[test]
fn a_disk_is_opened_for_direct_synchronous_io() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(&file_in(dir.path(), "disk", 12_288));
    assert_eq!((disk.kind(), disk.logical_block_size(), disk.size()), (DiskKind::File, 512, 12_288));
    use std::os::fd::AsFd;
    // SAFETY: F_GETFL and F_GETFD only read flags.
    let (status, descriptor) = unsafe {
        (
            libc::fcntl(disk.as_fd().as_raw_fd(), libc::F_GETFL),
            libc::fcntl(disk.as_fd().as_raw_fd(), libc::F_GETFD),
        )
    };
    let wanted = libc::O_RDWR | libc::O_DIRECT | libc::O_SYNC;
    assert_eq!(status & (wanted | libc::O_NONBLOCK), wanted);
    assert_ne!(descriptor & libc::FD_CLOEXEC, 0);
}

#[test]
fn opening_in_the_background() {
    let dir = tempfile::tempdir().unwrap();
    let path = file_in(dir.path(), "disk", 4096);
    assert_eq!(Disk::open_timeout(&path, Access::ReadWrite, Asker::Command, PATIENT).unwrap().size(), 4096);
    let absent = dir.path().join("absent");
    assert_eq!(
        Disk::open_timeout(&absent, Access::ReadWrite, Asker::Command, PATIENT).unwrap_err().code(),
        -2
    );
    let mut pending = Disk::open_in_background(&path, Access::ReadOnly, Asker::Command).unwrap();
    let end = std::time::Instant::now() + PATIENT;
    let disk = loop {
        if let Some(result) = pending.take() {
            break result.unwrap();
        }
        assert!(std::time::Instant::now() < end);
        std::thread::sleep(Duration::from_millis(1));
    };
    assert_eq!(disk.access(), Access::ReadOnly);
    assert!(pending.take().is_none());
}

#[test]
fn descriptors_are_closed_when_disks_are_dropped() {
    let open_files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let dir = tempfile::tempdir().unwrap();
    let path = file_in(dir.path(), "disk", 4096);
    let before = open_files();
    for _ in 0..300 {
        drop(open(&path));
        std::thread::sleep(Duration::from_micros(100));
    }
    // Other tests of this program have descriptors of their own.
    let end = std::time::Instant::now() + PATIENT;
    while open_files() > before + 150 {
        assert!(std::time::Instant::now() < end, "{} descriptors, {before} before", open_files());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_idle_engine_is_dropped_at_once_and_leaves_no_thread() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(&file_in(dir.path(), "disk", 4096));
    on_each(|kind| {
        let engines: Vec<_> = (0..50)
            .map(|_| {
                let mut engine = kind.create().unwrap();
                engine.submit(IoRequest::read(Arc::clone(&disk), 0, AlignedBuf::zeroed(512)));
                one(engine.as_mut()).result.unwrap();
                engine
            })
            .collect();
        // All of them: one that waits for a second, as for a thread that looks now and then, is seen.
        promptly(AT_ONCE, "dropping engines", || drop(engines));
        // Other tests of this program run engines of their own.
        let name = format!("sanlock-{}", kind.name());
        support::eventually("threads end", || support::threads_named(&name) <= 20);
    });
}

#[test]
fn the_variable_names_an_engine() {
    assert_eq!("io_uring".parse::<EngineKind>().unwrap(), EngineKind::IoUring);
    assert_eq!("aio".parse::<EngineKind>().unwrap(), EngineKind::Aio);
    let unknown = "posix".parse::<EngineKind>().unwrap_err();
    assert_eq!(unknown.to_string(), "SANLOCK_IO_ENGINE=posix: expected io_uring, aio or threads");
    match EngineKind::probe() {
        Ok(kind) => kind.check().unwrap(),
        Err(error) => missing(&error.to_string()),
    }
}

#[test]
fn an_operation_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(&file_in(dir.path(), "disk", 4096));
    on_each(|kind| {
        let mut engine = kind.create().unwrap();
        let start = std::time::Instant::now();
        engine.submit(IoRequest::read(Arc::clone(&disk), 0, AlignedBuf::zeroed(512)));
        let done = one(engine.as_mut());
        let times = [start, done.submitted_at, done.completed_at, std::time::Instant::now()];
        assert!(times.is_sorted(), "{times:?}");
    });
}
