//! Hosts that appear on a host id that was never used and ask for attention at once (docs/decisions/0015-unused-host-ids.md).

use sanlock_lease::machine::Content;
use sanlock_lease::record::Bitmap;
use sanlock_lease::timing::{IoTimeout, WatchdogFire};
use sanlock_sim::disk::Area;
use sanlock_sim::layout::{self, host_id};
use sanlock_sim::sabotage::Sabotage;
use sanlock_sim::settings::Settings;
use sanlock_sim::world::World;

const SECOND: u64 = 1_000_000;
/// Strangers in one run, each later in the watcher's rhythm than the one before.
const STRANGERS: u64 = 60;
/// The step between them: two looks that are 4T - 1 apart are hit at every quarter of a second or closer, over the run.
const STEP: u64 = 137_000;
/// More lines of the log than one stranger's time has.
const LINES: usize = 20_000;

/// One host of ours that has the disk to itself, without any trouble.
fn watcher(io: u32, seed: u64) -> World {
    let settings = Settings {
        ours: 1,
        io_timeout: IoTimeout::new(io).unwrap_or(IoTimeout::DEFAULT),
        // An io timeout of 1 s is refused beside a watchdog of 60 s.
        fire: WatchdogFire::new(if io == 1 { 10 } else { 60 }).unwrap_or(WatchdogFire::DEFAULT),
        hold_ms: 20_000,
        stormy_secs: 100_000,
        ..Settings::quiet()
    };
    World::new(settings, seed, true)
}

/// The stranger's record with this timestamp lands, with or without the watcher's bit.
fn lands(world: &mut World, id: u64, io: u32, timestamp: u64, bit: bool) {
    let mut leader = layout::free_delta(0);
    leader.owner_id = id.into();
    leader.owner_generation = 1.into();
    leader.resource_name = layout::name(&format!("stranger-{id}")).to_field();
    leader.timestamp = timestamp.into();
    leader.io_timeout = IoTimeout::new(io).unwrap_or(IoTimeout::DEFAULT).to_disk().into();
    leader.seal();
    let mut bitmap = Bitmap::default();
    if bit {
        bitmap.set(host_id(1));
    }
    world.disk.land(Area::Lockspace(0), host_id(id).delta_sector(), &Content::Delta { leader, bitmap });
}

/// Of strangers that come one after the other: how many were not noticed.
///
/// Each is there from its first renewal on, which carries the bit already, and shows it for as short a time as a host does that sets it
/// for 6T: set just before a renewal that it came too late for, it appears 2T later and goes with the renewal at 6T.
fn overlooked(world: &mut World, io: u32) -> Vec<u64> {
    let interval = 2 * u64::from(io) * SECOND;
    // Long joined, and all of the area was looked at.
    world.run_to(20 * interval + 30 * SECOND);
    let (renewed, now) = world.renewal(0, 0);
    assert!(now - renewed <= interval / SECOND + 1, "T {io}: the watcher has not joined");
    let mut overlooked = Vec::new();
    for n in 1..=STRANGERS {
        // Beyond all that is in use, and in no group of sectors with it.
        let id = 32 * n;
        let from = world.now;
        lands(world, id, io, 500, true);
        world.run_to(from + interval);
        lands(world, id, io, 500 + interval / SECOND, true);
        world.run_to(from + 2 * interval);
        lands(world, id, io, 500 + 2 * interval / SECOND, false);
        world.run_to(from + 4 * interval + STEP);
        let told = format!("from: {:?},", host_id(id));
        let log = world.log_tail(LINES);
        if !log.iter().any(|line| line.contains("front: Noticed") && line.contains(&told)) {
            overlooked.push(id);
        }
    }
    overlooked
}

#[test]
fn a_bit_set_for_6t_is_noticed_whoever_sets_it_and_whenever() {
    for io in [1, 2, 5, 10, 20] {
        for seed in 1..=2 {
            let missed = overlooked(&mut watcher(io, seed), io);
            assert_eq!(missed, [0; 0], "T {io} seed {seed}: host ids");
        }
    }
}

/// The strangers are quick enough to be overlooked by whoever looks less often.
#[test]
fn looks_that_are_too_far_apart_overlook_some() {
    for io in [1, 10] {
        let mut world = watcher(io, 1).with(Sabotage::LooksSeldom, "nothing");
        let missed = overlooked(&mut world, io);
        assert!(missed.len() as u64 > STRANGERS / 10, "T {io}: {missed:?}");
    }
}
