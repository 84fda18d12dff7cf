//! Host ids: the host dies while it joins, renews or leaves.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]

use sanlock_crash::recover::{Case, Report};
use sanlock_crash::run::Recorder;
use sanlock_crash::world::{Hold, World};
use sanlock_lease::delta::{DeltaAcquire, DeltaRelease, RenewOutcome, Renewal};
use sanlock_lease::geometry::Geometry;

const US: u64 = 1;

fn joined(geometry: Geometry) -> World {
    let mut world = World::new(geometry, 1);
    for id in 2..=4 {
        world.join(id);
    }
    world
}

fn explore(
    what: &str,
    before: &World,
    relies: Hold,
    writes: usize,
    operation: impl Fn(&mut World, &mut Recorder),
) -> Report {
    let report = Case { before, actor: US, relies, deaths: 2 }.explore(operation, |_, _| {});
    println!(
        "| {what} | 1 | {} | {} | {} | {} | {} | {} |",
        before.geometry.sector().bytes(),
        report.writes,
        report.crashes,
        report.later,
        report.attempts,
        report.tries_max
    );
    assert_eq!((report.points, report.writes), (writes, writes), "{what}");
    report
}

fn joins(world: &mut World, recorder: &mut Recorder) {
    world.drive(US, &mut DeltaAcquire::new(World::delta_config(US), None), Some(recorder)).unwrap();
}

#[test]
fn joining() {
    for geometry in [Geometry::B512_M1, Geometry::B4096_M8] {
        let world = joined(geometry);
        explore("join, never used", &world, Hold::Nothing, 1, joins);
        let mut left = world.clone();
        left.join(US);
        leave(&mut left, None);
        explore("join, left before", &left, Hold::Nothing, 1, joins);
        // An earlier life of it is long dead, and left the lease owned.
        for hold in [Hold::Nothing, Hold::Exclusive, Hold::Shared] {
            let mut died = world.clone();
            died.join(US);
            if hold != Hold::Nothing {
                died.must_take(US, hold);
            }
            died.die(US, died.now);
            died.pass(World::dead_secs());
            died.holds(US, Hold::Nothing, None);
            explore(&format!("join after a crash that held {hold:?}"), &died, Hold::Nothing, 1, joins);
        }
    }
}

#[test]
fn renewing() {
    for geometry in [Geometry::B512_M1, Geometry::B4096_M8] {
        for hold in [Hold::Nothing, Hold::Exclusive, Hold::Shared] {
            let mut world = joined(geometry);
            world.join(US);
            if hold != Hold::Nothing {
                world.must_take(US, hold);
            }
            world.pass(20);
            explore(&format!("renew, holding {hold:?}"), &world, hold, 3, |world, recorder| {
                let mut renewal = Renewal::new(World::delta_config(US), &world.hosts[&US].joined);
                for _ in 0..3 {
                    world.now = world.now.plus_secs(20);
                    let outcome = world.drive(US, &mut renewal, Some(recorder));
                    assert!(matches!(outcome, RenewOutcome::Renewed(_)), "{outcome:?}");
                }
            });
        }
    }
}

#[test]
fn leaving() {
    for geometry in [Geometry::B512_M1, Geometry::B4096_M8] {
        let mut world = joined(geometry);
        world.join(US);
        explore("leave", &world, Hold::Nothing, 1, |world, recorder| leave(world, Some(recorder)));
        // The lease itself was given up before, or was left to those who find its owner gone.
        world.must_take(US, Hold::Exclusive);
        world.holds(US, Hold::Nothing, None);
        explore("leave, owning a lease on disk", &world, Hold::Nothing, 1, |world, recorder| {
            leave(world, Some(recorder));
        });
    }
}

fn leave(world: &mut World, recorder: Option<&mut Recorder>) {
    let joined = world.hosts[&US].joined;
    let config = World::delta_config(US);
    let mut machine = DeltaRelease::new(config, joined.geometry, joined.leader, joined.last_good);
    world.drive(US, &mut machine, recorder).unwrap();
    world.die(US, world.now);
}
