//! A host dies with a lease: when another host has it.
//!
//! Nothing can be known before the survivor has been looking for 8T + F seconds at a host id lease that does not change
//! (lease-algorithms.md 4.3). What comes after that moment is the program's own.

use std::thread;

use sanlock_conformance::dead_owner::{Abandoned, DEAD_AFTER_SECONDS, TAKE_OVER_LIMIT, abandon, registered};
use sanlock_conformance::raw::cmd;
use sanlock_conformance::storage::LOCKSPACE;
use sanlock_conformance::{Lockspace, Program, Storage};

use super::Setting;
use crate::machine::monotonic_seconds;
use crate::row::{Row, Unit};

/// How much later than at the earliest moment the lease may be granted.
const LATE_SECONDS: f64 = 1.5;
/// Pause before an acquire that was refused because the owner seems to live is tried again.
const RETRY: std::time::Duration = std::time::Duration::from_millis(50);

/// When the lease was granted.
struct Granted {
    /// Seconds after the earliest moment.
    late: f64,
    /// Seconds after the last renewal of the owner.
    after_renewal: f64,
}

/// Runs the measure: all runs side by side, because they mostly wait.
#[must_use]
pub fn run(setting: &Setting) -> Vec<Row> {
    let runs = setting.pick(1, 4);
    let results = [Program::Reference, Program::Ours].map(|program| {
        // A daemon dies with the thread that started it, so each run has one.
        (0..runs).map(|_| thread::spawn(move || take_over(program))).collect::<Vec<_>>()
    });
    let [original, ours] = results.map(|threads| {
        let granted = threads.into_iter().map(|t| t.join().unwrap_or_else(|_| panic!("a run failed")));
        granted.collect::<Vec<Granted>>()
    });
    let row = |name, of: fn(&Granted) -> f64| {
        Row::new(name, Unit::Seconds, original.iter().map(of).collect(), ours.iter().map(of).collect())
    };
    vec![
        row("take-over after the earliest moment", |granted| granted.late).ours_wanted(LATE_SECONDS),
        row("take-over after the last renewal", |granted| granted.after_renewal).not_slower(),
    ]
}

fn take_over(program: Program) -> Granted {
    let abandoned = abandon(Storage::file(), program, program, 1);
    let Abandoned { scene, last_renewal, killed } = &abandoned;
    let mut waiter = registered(scene.host(0));
    waiter.set_limit(TAKE_OVER_LIMIT);
    let granted = loop {
        match waiter.acquire_one(&scene.storage().resource(1)) {
            0 => break monotonic_seconds(),
            -243 if killed.elapsed() < TAKE_OVER_LIMIT => thread::sleep(RETRY),
            other => panic!("{}: waiting for a dead owner gave {other}", program.word()),
        }
    };
    // The survivor's own record of when it saw the owner's last sign of life.
    let lockspace = Lockspace::new(LOCKSPACE, 1, "", 0).encode();
    let (_, hosts) = scene.host(0).connect().records(cmd::HOST_STATUS, 0, &lockspace);
    let owner = hosts.iter().find(|record| record.data32 == 2);
    let last_live: Option<f64> = owner.and_then(|record| record.get("last_live")?.parse().ok());
    let last_live = last_live.unwrap_or_else(|| panic!("{}: the owner is not in {hosts:?}", program.word()));
    let dead_after = DEAD_AFTER_SECONDS as f64;
    Granted { late: granted - (last_live + dead_after), after_renewal: granted - *last_renewal as f64 }
}
