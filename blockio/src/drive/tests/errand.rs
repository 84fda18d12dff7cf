//! Operations that the driver's owner carries out.

use super::*;
use crate::engine::EngineKind;
use crate::errand::Errand;
use crate::offload::CLOSERS_OF_A_PATH;
use crate::queue::QueuedEngine;
use crate::queue::tests::without_threads;
use crate::threads::Threads;

/// A driver whose engines think of no call that it took too long, however busy the machine is.
fn driver() -> Driver<Script, u8> {
    let mut driver = Driver::new(EngineKind::Threads).unwrap();
    driver.defer(Duration::MAX);
    driver
}

/// Polls until the machine is done.
fn finish(driver: &mut Driver<Script, u8>, reports: &mut Reports) -> Vec<(u8, Vec<String>, u32)> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        driver.poll(monotonic_now, &AlwaysAlive, reports);
        let ended = done(reports);
        if !ended.is_empty() {
            return ended;
        }
        assert!(Instant::now() < end, "nothing ends");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_single_operation_is_the_owner_s() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let (mut driver, mut reports) = (driver(), Reports::new());
    start_writes(&mut driver, &disk, 1, &mut reports);
    let errand = driver.errand(Spare::Alone).unwrap();
    driver.poll(monotonic_now, &AlwaysAlive, &mut reports);
    assert!(reports.is_empty(), "nobody else does it");
    assert!(driver.errand(Spare::Alone).is_none() && !driver.is_quiet(), "it is given away once");
    errand.run();
    assert_eq!(finish(&mut driver, &mut reports), [(0, vec!["0: ok None".to_owned()], 0)]);
    assert!(driver.is_quiet());
}

/// Starts machines with one operation each, which is made of the machine's tag and the deadline.
fn start(
    driver: &mut Driver<Script, u8>,
    disk: &Arc<Disk>,
    machines: u8,
    op: impl Fn(u8, MonoTime) -> Op,
    reports: &mut Reports,
) {
    let now = monotonic_now();
    for tag in 0..machines {
        let machine = script(vec![op(tag, now.plus_secs(30))]);
        driver.start(now, machine, tag, areas(disk), &AlwaysAlive, reports).unwrap();
    }
}

fn start_writes(driver: &mut Driver<Script, u8>, disk: &Arc<Disk>, machines: u8, reports: &mut Reports) {
    start(driver, disk, machines, |tag, deadline| write(0, 3 + u64::from(tag), deadline), reports);
}

#[test]
fn two_operations_of_one_machine_that_are_made_together_are_the_owner_s() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let (mut driver, mut reports) = (driver(), Reports::new());
    start_writes(&mut driver, &disk, 1, &mut reports);
    driver.errand(Spare::Alone).unwrap().run();
    finish(&mut driver, &mut reports);
    let soon = monotonic_now().plus_secs(30);
    // The sector that was written is the second one's.
    let reads = vec![read(0, 0, 1, soon), read(1, 3, 1, soon)];
    let beside = vec![write(0, 5, soon), read(1, 3, 1, soon)];
    let writes = vec![write(0, 5, soon), write(1, 6, soon)];
    for (ops, second) in [(reads, "1: ok Some(3)"), (beside, "1: ok Some(3)"), (writes, "1: ok None")] {
        driver.start(soon, together(ops), 7, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
        let errand = driver.errand(Spare::Alone).unwrap();
        driver.poll(monotonic_now, &AlwaysAlive, &mut reports);
        assert!(reports.is_empty(), "nobody else does it");
        errand.run();
        let [(7, mut seen, 0)] = <[_; 1]>::try_from(finish(&mut driver, &mut reports)).unwrap() else {
            panic!("another one");
        };
        seen.sort();
        assert_eq!(seen, ["0: ok None", second]);
        assert!(driver.errand(Spare::Alone).is_none() && driver.is_quiet());
    }
    // Of two machines none is to wait for what the other one reads.
    start(&mut driver, &disk, 2, |tag, deadline| read(0, 3 * u64::from(tag), 1, deadline), &mut reports);
    assert!(driver.errand(Spare::Alone).is_none());
    while driver.running() > 0 {
        finish(&mut driver, &mut reports);
    }
}

#[test]
fn what_comes_while_the_owner_is_out_goes_to_a_thread() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let (mut driver, mut reports) = (driver(), Reports::new());
    start_writes(&mut driver, &disk, 1, &mut reports);
    let first = driver.errand(Spare::Alone).unwrap();
    // Somebody goes on in the place of who is out.
    start(&mut driver, &disk, 1, |_, deadline| read(1, 0, 1, deadline), &mut reports);
    assert!(driver.errand(Spare::Alone).is_none());
    assert_eq!(finish(&mut driver, &mut reports), [(0, vec!["1: ok None".to_owned()], 0)]);
    first.run();
    assert_eq!(finish(&mut driver, &mut reports), [(0, vec!["0: ok None".to_owned()], 0)]);
}

#[test]
fn two_large_operations_run_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let (mut driver, mut reports) = (driver(), Reports::new());
    start(&mut driver, &disk, 2, |_, deadline| read(0, 0, 100, deadline), &mut reports);
    assert!(driver.errand(Spare::Alone).is_none());
    while driver.running() > 0 {
        finish(&mut driver, &mut reports);
    }
}

/// Descriptors of this process that are open on `path`.
fn open_on(path: &Path) -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    entries
        .filter(|entry| std::fs::read_link(entry.as_ref().unwrap().path()).is_ok_and(|to| to == path))
        .count()
}

#[test]
fn the_owner_closes_the_disk_of_a_machine_that_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    let (mut driver, mut reports) = (driver(), Reports::new());
    let mut run_one = |driver: &mut Driver<Script, u8>, name: &str| {
        start_writes(driver, &disk(dir.path(), name), 1, &mut reports);
        driver.errand(Spare::Alone).unwrap().run();
        finish(driver, &mut reports);
    };
    let mut closes = Vec::new();
    for count in 1..=CLOSERS_OF_A_PATH {
        run_one(&mut driver, "d");
        closes.push(driver.close(true).unwrap());
        assert_eq!(open_on(&path), count, "until it is carried out");
        assert!(driver.close(true).is_none());
    }

    // While those are not over others of that path wait; those of another path do not.
    run_one(&mut driver, "d");
    assert!(driver.close(true).is_none());
    assert_eq!(open_on(&path), CLOSERS_OF_A_PATH + 1);
    run_one(&mut driver, "e");
    driver.close(true).unwrap().run();
    assert_eq!(open_on(&dir.path().join("e")), 0);
    // Another thread closes then, and always for an owner who cannot leave.
    let closed_elsewhere = |left| {
        let end = Instant::now() + Duration::from_secs(20);
        while open_on(&path) > left {
            assert!(Instant::now() < end, "it stays open");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    closes.pop().unwrap().run();
    closed_elsewhere(CLOSERS_OF_A_PATH - 1);
    closes.into_iter().for_each(Errand::run);
    assert_eq!(open_on(&path), 0);
    run_one(&mut driver, "d");
    assert!(driver.close(false).is_none());
    closed_elsewhere(0);
}

#[test]
fn several_operations_and_those_of_an_owner_who_cannot_leave_go_to_threads() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    for (machines, spare) in [(2, Spare::Alone), (1, Spare::LastResort), (1, Spare::Nothing)] {
        let (mut driver, mut reports) = (driver(), Reports::new());
        start_writes(&mut driver, &disk, machines, &mut reports);
        assert!(driver.errand(spare).is_none());
        while driver.running() > 0 {
            let ended = finish(&mut driver, &mut reports);
            assert!(ended.iter().all(|(_, seen, _)| seen == &["0: ok None"]));
        }
        assert!(driver.running() == 0 && driver.is_quiet());
    }
}

/// A driver that gets no threads, after whose calls the owner never makes one of its own accord.
fn lonely_driver() -> Driver<Script, u8> {
    let engine = || Ok(Box::new(without_threads(QueuedEngine::new(Threads::new)?)) as Box<dyn Engine>);
    let mut driver = Driver::with_engines(Box::new(engine)).unwrap();
    driver.defer(Duration::ZERO);
    driver
}

#[test]
fn without_a_thread_to_be_had_the_owner_carries_out_what_it_can_be_spared_for() {
    let dir = tempfile::tempdir().unwrap();
    let disks = [disk(dir.path(), "d"), disk(dir.path(), "e")];
    let refused = || vec![format!("0: {:?}", IoFailure::Os(libc::EAGAIN))];
    for spare in [Spare::Alone, Spare::LastResort] {
        let (mut driver, mut reports) = (lonely_driver(), Reports::new());
        for disk in &disks {
            start_writes(&mut driver, disk, 2, &mut reports);
        }
        let mut ended = 0;
        for _ in 0..4 {
            driver.errand(spare).unwrap().run();
            driver.poll(monotonic_now, &AlwaysAlive, &mut reports);
            let now = done(&mut reports);
            assert!(now.iter().all(|(_, seen, _)| seen == &["0: ok None"]), "{now:?}");
            ended += now.len();
        }
        assert_eq!(ended, 4);
        assert!(driver.errand(spare).is_none() && driver.is_quiet());
    }

    let (mut driver, mut reports) = (lonely_driver(), Reports::new());
    start_writes(&mut driver, &disks[0], 1, &mut reports);
    assert!(driver.errand(Spare::Nothing).is_none());
    assert_eq!(finish(&mut driver, &mut reports), [(0, refused(), 0)]);

    // Only what is worth it: the last of these.
    let now = monotonic_now();
    let mut run = RunId(0);
    for tag in 0..3 {
        let machine = script(vec![write(0, 3 + u64::from(tag), now.plus_secs(30))]);
        run = driver.start(now, machine, tag, areas(&disks[0]), &AlwaysAlive, &mut reports).unwrap();
    }
    driver.errand(Spare::Only(run)).unwrap().run();
    driver.poll(monotonic_now, &AlwaysAlive, &mut reports);
    let mut ended = done(&mut reports);
    ended.sort();
    assert_eq!(ended, [(0, refused(), 0), (1, refused(), 0), (2, vec!["0: ok None".to_owned()], 0)]);
    assert!(driver.errand(Spare::Only(run)).is_none() && driver.is_quiet());
}
