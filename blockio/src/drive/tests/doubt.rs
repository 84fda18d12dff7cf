//! Writes that end with an error which leaves it open whether they take effect.

use super::*;

const EIO: IoErrorKind = IoErrorKind::Os(libc::EIO);

/// A driver over engines that do as they are told, with a machine that does this, and its disk.
fn started(ops: Vec<Op>) -> (tempfile::TempDir, Fake, Driver<Script, u8>, Arc<Disk>, Reports) {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let fake = Fake::default();
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    let mut reports = Vec::new();
    driver.start(T0, script(ops), 7, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    (dir, fake, driver, disk, reports)
}

/// It goes on at once, and what it wrote is outstanding until the doubt is over: whoever drives it hears of that then, and not before.
#[test]
fn a_write_in_doubt_is_outstanding_until_that_is_over() {
    let deadline = T0.plus_secs(10);
    let (_dir, fake, mut driver, disk, mut reports) = started(vec![write(0, 3, deadline)]);
    fake.end(disk.path(), Err(EIO));
    let failed = T0.plus_secs(2);
    driver.poll(|| failed, &AlwaysAlive, &mut reports);
    assert_eq!(done(&mut reports), [(7, vec!["0: in doubt, Os(5)".to_owned()], 1)]);
    assert_eq!((driver.running(), driver.unsettled()), (0, 1));
    let end = failed.plus_millis(DOUBT_MS);
    // The engine without work has gone by then.
    driver.poll(|| failed.plus_secs(30), &AlwaysAlive, &mut reports);
    assert_eq!(driver.next_wake(), Some(end));
    driver.poll(|| MonoTime::from_millis(end.millis() - 1), &AlwaysAlive, &mut reports);
    assert_eq!((reports.len(), driver.unsettled()), (0, 1));
    driver.poll(|| end, &AlwaysAlive, &mut reports);
    assert!(matches!(reports[..], [Report::Settled { .. }]), "{reports:?}");
    assert_eq!(driver.unsettled(), 0);
}

/// A network stack may send from our pages once more: what is in them then is what lands. The next transfers have other memory.
#[test]
fn the_buffer_of_a_write_in_doubt_is_left_alone_until_that_is_over() {
    let late = T0.plus_secs(500);
    let ops = vec![write(0, 3, late), write(1, 3, late), read(2, 3, 1, late), write(3, 3, late)];
    let (_dir, fake, mut driver, disk, mut reports) = started(ops);
    let buffer = |fake: &Fake| fake.0.lock().unwrap().requests[0].2.buf.as_ptr() as usize;
    let doubtful = buffer(&fake);
    fake.end(disk.path(), Err(EIO));
    driver.poll(|| T0, &AlwaysAlive, &mut reports);
    let mut others = Vec::new();
    for now in [T0, T0.plus_millis(DOUBT_MS - 1)] {
        others.push(buffer(&fake));
        fake.complete(disk.path());
        driver.poll(|| now, &AlwaysAlive, &mut reports);
    }
    assert!(!others.contains(&doubtful));
    // After the end of the doubt it is one of those that are there to be used.
    let kept = driver.buffers_kept();
    driver.poll(|| T0.plus_millis(DOUBT_MS), &AlwaysAlive, &mut reports);
    assert_eq!(driver.buffers_kept(), kept + 512);
}

/// A machine that is still there is told, in this order.
#[test]
fn a_machine_hears_of_the_doubt_and_of_its_end() {
    let deadline = T0.plus_secs(10);
    let late = T0.plus_secs(200);
    let (_dir, fake, mut driver, disk, mut reports) =
        started(vec![write(0, 3, deadline), read(1, 0, 1, late)]);
    fake.end(disk.path(), Err(EIO));
    driver.poll(|| T0, &AlwaysAlive, &mut reports);
    driver.poll(|| T0.plus_millis(DOUBT_MS), &AlwaysAlive, &mut reports);
    fake.complete(disk.path());
    driver.poll(|| T0.plus_secs(100), &AlwaysAlive, &mut reports);
    let seen = ["0: in doubt, Os(5)", "0: late Os(5)", "1: ok None"].map(str::to_owned).to_vec();
    assert_eq!(done(&mut reports), [(7, seen, 0)]);
}

/// One that had timed out is in doubt from its end on, as well.
#[test]
fn a_write_that_timed_out_and_then_failed_is_in_doubt_too() {
    let deadline = T0.plus_secs(10);
    let (_dir, fake, mut driver, disk, mut reports) = started(vec![write(0, 3, deadline)]);
    driver.poll(|| deadline, &AlwaysAlive, &mut reports);
    assert_eq!(done(&mut reports), [(7, vec!["0: timed out".to_owned()], 1)]);
    fake.end(disk.path(), Err(EIO));
    let failed = T0.plus_secs(30);
    driver.poll(|| failed, &AlwaysAlive, &mut reports);
    assert_eq!((reports.len(), driver.unsettled()), (0, 1));
    driver.poll(|| failed.plus_millis(DOUBT_MS), &AlwaysAlive, &mut reports);
    assert!(matches!(reports[..], [Report::Settled { .. }]), "{reports:?}");
}

/// What was refused, what was too short, what nobody minds, and reads: over at once.
#[test]
fn other_failures_are_ends() {
    let deadline = T0.plus_secs(10);
    let unminded = Op { doubt_ms: 0, ..write(0, 3, deadline) };
    for (op, kind, seen) in [
        (write(0, 3, deadline), IoErrorKind::Os(libc::ENOSPC), "0: Os(28)"),
        (write(0, 3, deadline), IoErrorKind::Os(libc::EROFS), "0: Os(30)"),
        (write(0, 3, deadline), IoErrorKind::Short { got: 0 }, "0: Short"),
        (unminded, EIO, "0: Os(5)"),
        (read(0, 3, 1, deadline), EIO, "0: Os(5)"),
    ] {
        let (_dir, fake, mut driver, disk, mut reports) = started(vec![op]);
        fake.end(disk.path(), Err(kind));
        driver.poll(|| T0, &AlwaysAlive, &mut reports);
        assert_eq!(done(&mut reports), [(7, vec![seen.to_owned()], 0)]);
        assert_eq!(driver.unsettled(), 0, "{kind:?}");
    }
}
