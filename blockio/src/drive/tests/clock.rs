//! Which time it is when a machine is told of something.

use std::cell::Cell;

use super::*;

/// Reads once; the outcome is the time that it was told with.
struct ReadsOnce(Op);

impl Machine for ReadsOnce {
    type Outcome = MonoTime;

    fn step(&mut self, now: MonoTime, _: &Env<'_>, input: Input<'_>) -> Step<MonoTime> {
        match input {
            Input::Start => Step::Io(std::iter::once(self.0.clone()).collect()),
            Input::Completed { .. } => Step::Done { outcome: now, outstanding: 0 },
            _ => Step::Pending,
        }
    }
}

/// The process stands still after it has looked at the clock, and the read sees what another host has written meanwhile.
#[test]
fn what_a_read_has_seen_is_never_later_than_the_time_that_goes_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let fake = Fake::default();
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    let mut reports: Vec<Report<u8, MonoTime>> = Vec::new();
    let machine = ReadsOnce(read(0, 0, 1, T0.plus_secs(10)));
    driver.start(T0, machine, 0, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    let (stood_still, later) = (Cell::new(false), T0.plus_secs(15));
    let clock = || {
        if stood_still.replace(true) {
            return later;
        }
        fake.complete(disk.path());
        T0
    };
    driver.poll(clock, &AlwaysAlive, &mut reports);
    assert!(matches!(reports[..], [Report::Done { outcome, .. }] if outcome == later), "{reports:?}");
}
