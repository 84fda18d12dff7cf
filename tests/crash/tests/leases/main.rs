//! Resource leases: the host that takes one, changes its mode or gives it up dies at every write of its own.
//!
//! `SANLOCK_CRASH_DEATHS=n`: so many hosts die one after the other, each at every write of its own. Unless set: two with the smallest
//! sizes on one disk, else one.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]

mod convert;
mod release;
mod take;

use sanlock_crash::disk::Disks;
use sanlock_crash::recover::{Case, Report};
use sanlock_crash::run::Recorder;
use sanlock_crash::torn::Write;
use sanlock_crash::world::{Hold, World};
use sanlock_lease::geometry::{AlignSize, Geometry, SectorSize};
use sanlock_lease::machine::{Action, IoFailure, Op};
use sanlock_lease::paxos::Held;
use sanlock_lease::paxos::acquire::AcquireOptions;

/// The host under test.
const US: u64 = 1;

/// The smallest and the largest sizes on one disk, and an odd and an even number of disks.
fn layouts() -> [(Geometry, usize); 4] {
    let small = Geometry::new(SectorSize::B4096, AlignSize::M1).unwrap();
    [(Geometry::B512_M1, 1), (Geometry::B4096_M8, 1), (small, 3), (small, 2)]
}

/// Hosts 1 to 4 have joined.
fn joined(geometry: Geometry, disks: usize) -> World {
    let mut world = World::new(geometry, disks);
    for id in 1..=4 {
        world.join(id);
    }
    world
}

/// Two hosts had the lease before, and one attempt failed.
fn used(geometry: Geometry, disks: usize) -> World {
    let mut world = joined(geometry, disks);
    for id in [2, US, 3] {
        let held = world.must_take(id, Hold::Exclusive);
        assert!(world.take(4, Hold::Exclusive, AcquireOptions::default()).is_err());
        world.release(id, held);
    }
    world
}

/// Host `id` held the lease, and is dead for long.
fn dead_holder(mut world: World, id: u64, hold: Hold) -> World {
    world.must_take(id, hold);
    world.die(id, world.now);
    world.pass(World::dead_secs());
    world.holds(id, Hold::Nothing, None);
    world
}

/// Host 1 has taken the lease exclusively, but host 2 wrote the leader in its name.
fn taken_through_another(mut world: World) -> (World, Held) {
    let (disks, mut writes) = (world.areas.resource.len(), 0);
    let mut other = Some(world.clone());
    let mut between = |op: &Op, on: &mut Disks| -> Option<IoFailure> {
        writes += usize::from(op.is_write());
        // Its value is accepted, and it is about to look whether that is so.
        if writes == 2 * disks && !op.is_write() {
            if let Some(mut other) = other.take() {
                std::mem::swap(&mut other.disks, on);
                assert!(other.take(2, Hold::Exclusive, AcquireOptions::default()).is_err());
                std::mem::swap(&mut other.disks, on);
            }
        }
        None
    };
    let mut machine = world.taking(US, Hold::Exclusive, AcquireOptions::default());
    let outcome = world.drive_with(US, &mut machine, None, Some(&mut between));
    let sanlock_lease::paxos::acquire::AcquireOutcome::Acquired(held) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(world.leader(0).write_id.get(), 2);
    world.holds(US, Hold::Exclusive, Some(held));
    (world, held)
}

/// A write as it would land.
fn as_write(world: &World, op: &Op) -> Write {
    let Action::Write { sector, content } = &op.action else { panic!("no write") };
    let mut bytes = vec![0; op.sector_size.slice_len()];
    content.encode(&mut bytes);
    let area = world.areas.at(op.place);
    Write { disk: area.disk, offset: area.offset + sector * u64::from(op.sector_size.bytes()), bytes }
}

/// Explores one operation and prints its line of the table. `points`: how often it submits writes.
#[track_caller]
fn explore(
    what: &str,
    before: &World,
    relies: Hold,
    points: usize,
    operation: impl Fn(&mut World, &mut Recorder),
) -> Report {
    explore_looking(what, before, relies, points, operation, |_, _| {})
}

#[track_caller]
fn explore_looking(
    what: &str,
    before: &World,
    relies: Hold,
    points: usize,
    operation: impl Fn(&mut World, &mut Recorder),
    look: impl Fn(&World, &str),
) -> Report {
    let disks = before.areas.resource.len();
    let deaths = std::env::var("SANLOCK_CRASH_DEATHS").ok().and_then(|n| n.parse().ok());
    let deaths = deaths.unwrap_or(if disks == 1 && before.geometry == Geometry::B512_M1 { 2 } else { 1 });
    let mut before = before.clone();
    before.holds(US, relies, before.hosts[&US].held);
    let report = Case { before: &before, actor: US, relies, deaths }.explore(operation, look);
    println!(
        "| {what} | {disks} | {} | {} | {} | {} | {} | {} |",
        before.geometry.sector().bytes(),
        report.writes,
        report.crashes,
        report.later,
        report.attempts,
        report.tries_max
    );
    assert_eq!(report.points, points, "{what}: submissions of writes");
    report
}
