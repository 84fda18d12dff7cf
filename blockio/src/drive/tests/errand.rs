//! Operations that the driver's owner carries out.

use super::*;
use crate::engine::EngineKind;

fn driver() -> Driver<Script, u8> {
    let mut driver = Driver::new(EngineKind::Threads).unwrap();
    driver.defer();
    driver
}

/// Polls until the machine is done.
fn finish(driver: &mut Driver<Script, u8>, reports: &mut Reports) -> Vec<(u8, Vec<String>, u32)> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        driver.poll(monotonic_now(), &AlwaysAlive, reports);
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
    let now = monotonic_now();
    let machine = script(vec![write(0, 3, now.plus_secs(30))]);
    driver.start(now, machine, 0, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    let errand = driver.errand(true).unwrap();
    driver.poll(now, &AlwaysAlive, &mut reports);
    assert!(reports.is_empty(), "nobody else does it");
    assert!(driver.errand(true).is_none() && !driver.is_quiet(), "it is given away once");
    errand.run();
    assert_eq!(finish(&mut driver, &mut reports), [(0, vec!["0: ok None".to_owned()], 0)]);
    assert!(driver.is_quiet());
}

#[test]
fn several_operations_and_those_of_an_owner_who_cannot_leave_go_to_threads() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    for (machines, alone) in [(2, true), (1, false)] {
        let (mut driver, mut reports) = (driver(), Reports::new());
        let now = monotonic_now();
        for tag in 0..machines {
            let machine = script(vec![write(0, 3 + u64::from(tag), now.plus_secs(30))]);
            driver.start(now, machine, tag, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
        }
        assert!(driver.errand(alone).is_none());
        for _ in 0..machines {
            let ended = finish(&mut driver, &mut reports);
            assert!(ended.iter().all(|(_, seen, _)| seen == &["0: ok None"]));
            if driver.running() == 0 {
                break;
            }
        }
        assert!(driver.running() == 0 && driver.is_quiet());
    }
}
