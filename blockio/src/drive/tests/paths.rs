//! What a path has: its engine, and the room for what is in flight.

use super::*;

/// Paths; each costs two descriptors.
const MANY: usize = 270;

#[test]
fn a_silent_disk_delays_nobody_on_another_path() {
    let dir = tempfile::tempdir().unwrap();
    let (dead, live) = (disk(dir.path(), "dead"), disk(dir.path(), "live"));
    let fake = Fake::default();
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    let mut reports = Reports::new();
    let end = T0.plus_secs(1);
    let more_than_fit = u8::try_from(OPS_IN_FLIGHT_MAX + 10).unwrap();
    for tag in 0..more_than_fit {
        let machine = script(vec![read(0, 0, 1, end)]);
        driver.start(T0, machine, tag, areas(&dead), &AlwaysAlive, &mut reports).unwrap();
    }
    assert_eq!(fake.held(), OPS_IN_FLIGHT_MAX);
    driver
        .start(T0, script(vec![read(0, 0, 1, end)]), 200, areas(&live), &AlwaysAlive, &mut reports)
        .unwrap();
    fake.complete(live.path());
    driver.poll(|| T0.plus_millis(1), &AlwaysAlive, &mut reports);
    assert_eq!(done(&mut reports), [(200, vec!["0: ok None".to_owned()], 0)]);

    // Those that waited never began, so they have failed for certain; those in the engine have timed out.
    driver.poll(|| end, &AlwaysAlive, &mut reports);
    let ends = done(&mut reports);
    let failed = ends.iter().filter(|(_, seen, _)| seen == &["0: TimedOut"]).count();
    let overdue = ends.iter().filter(|(_, seen, _)| seen == &["0: timed out"]).count();
    assert_eq!((failed, overdue), (10, OPS_IN_FLIGHT_MAX));
}

/// After `umount -l` and a new mount the path leads elsewhere, while reads of what was there still hang.
#[test]
fn what_hangs_delays_nobody_on_another_device_at_the_same_path() {
    let dir = tempfile::tempdir().unwrap();
    let old = disk(dir.path(), "d");
    let new = disk(dir.path(), "d");
    let new = Arc::new(Arc::into_inner(new).unwrap().kept_on((4711, 0)));
    let fake = Fake::default();
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    driver.share(Arc::new(SharedRoom::new(1)));
    let mut reports = Reports::new();
    for tag in 0..u8::try_from(OPS_IN_FLIGHT_MAX + 1).unwrap() {
        let machine = script(vec![read(0, 0, 1, T0.plus_secs(1))]);
        driver.start(T0, machine, tag, areas(&old), &AlwaysAlive, &mut reports).unwrap();
    }
    let held = fake.held();
    assert!(held <= OPS_IN_FLIGHT_MAX);
    let machine = script(vec![read(0, 0, 1, T0.plus_secs(1))]);
    driver.start(T0, machine, 200, areas(&new), &AlwaysAlive, &mut reports).unwrap();
    assert_eq!((fake.held(), driver.engines()), (held + 1, 2));
}

/// Two of eight drivers that work on the same paths.
fn two_of_eight(fake: &Fake) -> [Driver<Script, u8>; 2] {
    let shared = Arc::new(SharedRoom::new(8));
    [0, 1].map(|_| {
        let mut driver = Driver::with_engines(fake.factory()).unwrap();
        driver.share(Arc::clone(&shared));
        driver
    })
}

/// Whatever small ones are always in flight.
#[test]
fn a_look_beside_sectors_without_an_end_has_its_turn() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let fake = Fake::default();
    let mut drivers = two_of_eight(&fake);
    let mut reports = Reports::new();
    let look = || script(vec![read(0, 0, 8 << 11, T0.plus_secs(9))]);
    drivers[0].start(T0, look(), 0, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    let sector = || script(vec![write(0, 5, T0.plus_secs(9))]);
    drivers[1].start(T0, sector(), 1, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    drivers[1].start(T0, look(), 2, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    assert_eq!(fake.held(), 3, "the common part is the other one's");
    drivers[1].start(T0, look(), 3, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    assert_eq!(fake.held(), 3, "one large one at a time");
}

/// There are places for calls on more paths than these, and each may hang.
#[test]
fn however_many_paths_hang_another_one_has_an_engine() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    let mut reports = Reports::new();
    for n in 0..MANY {
        let disk = disk(dir.path(), &n.to_string());
        let machine = script(vec![read(0, 0, 1, T0.plus_secs(1))]);
        driver.start(T0, machine, 0, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    }
    assert_eq!(fake.held(), MANY);
    assert_eq!(done(&mut reports), []);
    assert!(driver.is_waited_for());
    driver.poll(|| T0.plus_secs(1), &AlwaysAlive, &mut reports);
    assert_eq!(done(&mut reports).len(), MANY);
    // They hang on, and nobody waits for them.
    assert!(!driver.is_waited_for() && !driver.is_quiet());
}

#[test]
fn a_write_that_waited_in_vain_never_happens() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let fake = Fake::default();
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    let mut reports = Reports::new();
    for tag in 0..u8::try_from(OPS_IN_FLIGHT_MAX).unwrap() {
        let machine = script(vec![read(0, 0, 1, T0.plus_secs(60))]);
        driver.start(T0, machine, tag, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    }
    let machine = script(vec![write(0, 5, T0.plus_secs(1))]);
    driver.start(T0, machine, 255, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    driver.poll(|| T0.plus_secs(1), &AlwaysAlive, &mut reports);
    assert_eq!(done(&mut reports), [(255, vec!["0: TimedOut".to_owned()], 0)]);
    for _ in 0..OPS_IN_FLIGHT_MAX {
        fake.complete(disk.path());
    }
    driver.poll(|| T0.plus_secs(2), &AlwaysAlive, &mut reports);
    assert_eq!(done(&mut reports).len(), OPS_IN_FLIGHT_MAX);
    let state = fake.0.lock().unwrap();
    assert!(state.requests.iter().all(|(_, _, request)| request.op == Direction::Read));
}

#[test]
fn buffers_of_large_reads_are_bounded_per_path() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let fake = Fake::default();
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    let mut reports = Reports::new();
    for tag in 0..5 {
        let machine = script(vec![read(0, 0, 8 << 11, T0.plus_secs(9))]); // 8 MiB
        driver.start(T0, machine, tag, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    }
    assert_eq!(fake.held(), BYTES_IN_FLIGHT_MAX / (8 << 20));
    for held in [2, 2, 2, 1, 0] {
        fake.complete(disk.path());
        driver.poll(|| T0.plus_secs(1), &AlwaysAlive, &mut reports);
        assert_eq!(fake.held(), held);
    }
    assert_eq!(done(&mut reports).len(), 5);
}

/// Releases and commits are one sector: behind the looks of many acquires they would wait until those have failed.
#[test]
fn a_sector_waits_behind_no_look_through_an_area() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let fake = Fake::default();
    let [mut first, mut second] = two_of_eight(&fake);
    let mut reports = Reports::new();
    let look = || script(vec![read(0, 0, 8 << 11, T0.plus_secs(9)), read(0, 0, 8 << 11, T0.plus_secs(9))]);
    for driver in [&mut first, &mut second] {
        for tag in 0..4 {
            driver.start(T0, look(), tag, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
        }
    }
    // The common part is the first one's, and its own the second one's.
    assert_eq!(fake.held(), 2);
    let machine = script(vec![write(0, 5, T0.plus_secs(9)), write(0, 6, T0.plus_secs(9))]);
    second.start(T0, machine, 9, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    assert_eq!(fake.held(), 3);
    let writes = || {
        let state = fake.0.lock().unwrap();
        state.requests.iter().filter(|(_, _, request)| request.op == Direction::Write).count()
    };
    assert_eq!(writes(), 1);
    // Others wait only when there is no operation left.
    let small = OPS_IN_FLIGHT_MAX / 16 - 1 + OPS_IN_FLIGHT_MAX / 2 - 1;
    for _ in 0..small + 2 {
        let machine = script(vec![write(0, 7, T0.plus_secs(9))]);
        second.start(T0, machine, 7, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    }
    assert_eq!(writes(), small);
    // A look that ends lets the next one begin, which has waited for longer than they.
    fake.complete(disk.path());
    first.poll(|| T0.plus_secs(1), &AlwaysAlive, &mut reports);
    assert_eq!((fake.held(), writes()), (2 + small, small));
}

#[test]
fn drivers_that_share_a_path_have_a_part_of_that_each_and_one_operation_always() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    // Of 16 MiB two are this driver's, and eight for whoever comes first.
    for (sectors, held) in [(8 << 11, 1), (4 << 11, 2), (2 << 11, 5), (1 << 11, 5)] {
        let fake = Fake::default();
        let mut driver = Driver::with_engines(fake.factory()).unwrap();
        driver.share(Arc::new(SharedRoom::new(4)));
        let mut reports = Reports::new();
        for tag in 0..5 {
            let machine = script(vec![read(0, 0, sectors, T0.plus_secs(9))]);
            driver.start(T0, machine, tag, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
        }
        assert_eq!(fake.held(), held, "{sectors} sectors");
    }
    let fake = Fake::default();
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    driver.share(Arc::new(SharedRoom::new(4)));
    let mut reports = Reports::new();
    for tag in 0..50 {
        let machine = script(vec![read(0, 0, 1, T0.plus_secs(9))]);
        driver.start(T0, machine, tag, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    }
    assert_eq!(fake.held(), OPS_IN_FLIGHT_MAX / 2 + OPS_IN_FLIGHT_MAX / 8);
}

#[test]
fn an_engine_is_shared_by_a_path_and_dropped_when_idle() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let fake = Fake::default();
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    let mut reports = Reports::new();
    for tag in 0..2 {
        driver
            .start(
                T0,
                script(vec![read(0, 0, 1, T0.plus_secs(9))]),
                tag,
                areas(&disk),
                &AlwaysAlive,
                &mut reports,
            )
            .unwrap();
        fake.complete(disk.path());
        driver.poll(|| T0, &AlwaysAlive, &mut reports);
    }
    assert_eq!(fake.0.lock().unwrap().created, 1);
    let end = T0.plus_millis(IDLE_ENGINE_LINGER_MS);
    assert_eq!(driver.next_wake(), Some(end));
    driver.poll(|| end, &AlwaysAlive, &mut reports);
    assert_eq!((driver.engines(), fake.0.lock().unwrap().dropped), (0, 1));
    assert_eq!(driver.next_wake(), None);
}

#[test]
fn an_engine_stays_if_the_owner_wishes() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let fake = Fake::default();
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    driver.keep_engines();
    let mut reports = Reports::new();
    let machine = script(vec![read(0, 0, 1, T0.plus_secs(1))]);
    driver.start(T0, machine, 0, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    fake.complete(disk.path());
    driver.poll(|| T0, &AlwaysAlive, &mut reports);
    assert_eq!(driver.next_wake(), None);
    driver.poll(|| T0.plus_millis(IDLE_ENGINE_LINGER_MS), &AlwaysAlive, &mut reports);
    assert_eq!((driver.engines(), fake.0.lock().unwrap().dropped), (1, 0));
}

#[test]
fn an_engine_that_cannot_be_had_is_a_failure_of_the_operation() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let none: EngineFactory =
        Box::new(|| Err(EngineError::Unavailable { engine: "aio", call: "io_setup", errno: libc::EAGAIN }));
    let mut driver = Driver::with_engines(none).unwrap();
    let mut reports = Reports::new();
    let machine = script(vec![read(0, 0, 1, T0.plus_secs(1)), write(1, 0, T0.plus_secs(1))]);
    driver.start(T0, machine, 1, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    let seen = ["0: Os(11)", "1: Os(11)"].map(str::to_owned).to_vec();
    assert_eq!(done(&mut reports), [(1, seen, 0)]);
}

/// Its own operations hang, and what is common is taken for a moment only.
#[test]
fn who_waits_for_common_room_looks_again() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let room = Arc::new(SharedRoom::new(8));
    let (ours, theirs) = (Fake::default(), Fake::default());
    let mut driver = Driver::with_engines(ours.factory()).unwrap();
    let mut other = Driver::with_engines(theirs.factory()).unwrap();
    driver.share(Arc::clone(&room));
    other.share(room);
    let mut reports = Reports::new();
    let now = T0.plus_secs(1);
    for tag in 0..4 {
        let hangs = script(vec![read(0, 0, 1, now)]);
        driver.start(T0, hangs, tag, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    }
    driver.poll(|| now, &AlwaysAlive, &mut reports);
    let common = u8::try_from(OPS_IN_FLIGHT_MAX / 2 + OPS_IN_FLIGHT_MAX / 16).unwrap();
    for tag in 0..common {
        let machine = script(vec![read(0, 0, 1, T0.plus_secs(10))]);
        other.start(T0, machine, tag, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    }
    assert_eq!(theirs.held(), usize::from(common));
    let late = now.plus_secs(10);
    driver
        .start(now, script(vec![read(0, 0, 1, late)]), 9, areas(&disk), &AlwaysAlive, &mut reports)
        .unwrap();
    assert_eq!(ours.held(), 4, "it waits");
    for _ in 0..common {
        theirs.complete(disk.path());
    }
    other.poll(|| now, &AlwaysAlive, &mut reports);
    let again = driver.next_wake().unwrap();
    assert!(again < now.plus_secs(1), "{again:?}");
    driver.poll(|| again, &AlwaysAlive, &mut reports);
    assert_eq!(ours.held(), 5);
}
