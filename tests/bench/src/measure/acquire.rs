//! One client: acquire and release of a free lease, shared and exclusive, converted, eight at a time, on four disks.

use std::time::{Duration, Instant};

use sanlock_conformance::{Connection, Resource};

use super::Setting;
use crate::floor::Chain;
use crate::place::Place;
use crate::row::{Row, Unit};
use crate::site::{Site, join_all};

/// Areas of each program: the lockspace, the single lease, eight leases, four disks.
const AREAS: u64 = 14;
const SINGLE: u64 = 1;
const EIGHT: std::ops::Range<u64> = 2..10;
const DISKS: [u64; 4] = [10, 11, 12, 13];

/// Operations of one program before it is the next one's turn.
const TURN: u32 = 10;

/// What one program's operations took, in microseconds.
#[derive(Default)]
struct Times {
    acquire: Vec<f64>,
    release: Vec<f64>,
    shared: Vec<f64>,
    shared_release: Vec<f64>,
    down: Vec<f64>,
    up: Vec<f64>,
    eight: Vec<f64>,
    eight_release: Vec<f64>,
    disks: Vec<f64>,
    disks_release: Vec<f64>,
}

/// Runs the measure.
#[must_use]
pub fn run(setting: &Setting) -> Vec<Row> {
    let Some(place) = setting.place(3 * AREAS) else { return Vec::new() };
    let sites = Site::both(&place, AREAS, 1);
    join_all(&sites, setting.io_timeout());
    let mut clients = sites.each_ref().map(Client::new);
    let mut raw = Raw::new(&place, 2 * AREAS);
    // Once for nothing: the first ballot of a lease meets blocks that were never used.
    for client in &mut clients {
        client.turn(1);
        client.times = Times::default();
    }
    for _ in 0..setting.pick(2, if place.kind().delay_ms() > 1 { 10 } else { 40 }) {
        for client in &mut clients {
            client.turn(TURN);
        }
        raw.turn(TURN);
    }
    let [original, ours] = clients.map(|client| client.times);
    rows(original, ours, raw.times, place.kind().delay_ms())
}

fn rows(original: Times, ours: Times, raw: RawTimes, delay_ms: u64) -> Vec<Row> {
    let slow = delay_ms > 0;
    let row = |name, original, ours| Row::new(name, Unit::Micros, original, ours);
    let RawTimes { acquire: raw_acquire, looking: raw_looking, release: raw_release } = raw;
    let looking = row("acquire, against raw that looks", original.acquire.clone(), ours.acquire.clone())
        .with_floor(raw_looking)
        .noting("raw, but the block of each host that was read is looked at, as in any acquire");
    let acquire = row("acquire", original.acquire, ours.acquire).with_floor(raw_acquire).noting(
        "above raw: four changes of threads, client, front, leases, front, client (docs/decisions/0017)",
    );
    let release = row("release", original.release, ours.release).with_floor(raw_release).noting(
        "the same three operations, the first two side by side (docs/decisions/0024); in the original the thread that has made them answers, one change of threads less",
    );
    let eight = row("acquire of 8 leases", original.eight, ours.eight);
    let disks = row("acquire, 4 disks", original.disks, ours.disks);
    vec![
        // Six operations that depend on each other in both: where each of them takes long there is nothing to gain.
        if slow {
            acquire.ratio_wanted(1.0).floor_wanted(1.15)
        } else {
            acquire.ratio_wanted(0.45).floor_wanted(1.15)
        },
        looking.not_slower(),
        if slow { release.not_slower() } else { release.ratio_wanted(0.8) },
        row("acquire shared", original.shared, ours.shared).not_slower(),
        row("release shared", original.shared_release, ours.shared_release).not_slower(),
        row("exclusive to shared", original.down, ours.down).not_slower().noting(
            "one write more: the mode block is on disk before the flag that may free the lease (docs/decisions/0012)",
        ),
        row("shared to exclusive", original.up, ours.up).not_slower(),
        if delay_ms >= 10 { eight.ratio_wanted(0.25) } else { eight.not_slower() }
            .noting("the first one alone, then seven side by side: as long as two (docs/decisions/0016)"),
        row("release of 8 leases", original.eight_release, ours.eight_release).not_slower(),
        if delay_ms >= 10 { disks.ratio_wanted(0.25) } else { disks.not_slower() },
        row("release, 4 disks", original.disks_release, ours.disks_release).not_slower(),
    ]
}

struct Client {
    connection: Connection,
    single: Resource,
    eight: Vec<Resource>,
    disks: Resource,
    times: Times,
}

impl Client {
    fn new(site: &Site) -> Self {
        let single = site.resource(SINGLE);
        let eight: Vec<Resource> = EIGHT.map(|area| site.resource(area)).collect();
        let disks = site.resource_on(&DISKS);
        for resource in eight.iter().chain([&single, &disks]) {
            site.format(resource, 0);
        }
        Self { connection: site.registered(0), single, eight, disks, times: Times::default() }
    }

    /// `count` operations of every kind.
    fn turn(&mut self, count: u32) {
        for _ in 0..count {
            let single = std::slice::from_ref(&self.single);
            let disks = std::slice::from_ref(&self.disks);
            let shared = self.single.clone().shared();
            let (c, t) = (&mut self.connection, &mut self.times);
            timed(&mut t.acquire, || c.acquire(single, 0, None));
            timed(&mut t.release, || c.release(single, 0, None));
            timed(&mut t.shared, || c.acquire_one(&shared));
            timed(&mut t.shared_release, || c.release_one(&shared));
            timed(&mut Vec::new(), || c.acquire(single, 0, None));
            timed(&mut t.down, || c.convert(&shared));
            timed(&mut t.up, || c.convert(&self.single));
            timed(&mut Vec::new(), || c.release(single, 0, None));
            timed(&mut t.eight, || c.acquire(&self.eight, 0, None));
            timed(&mut t.eight_release, || c.release(&self.eight, 0, None));
            timed(&mut t.disks, || c.acquire(disks, 0, None));
            timed(&mut t.disks_release, || c.release(disks, 0, None));
        }
    }
}

/// The reads and writes of a client's turn without a daemon, side by side where ours are. Of the single lease it is told how long they took; the
/// others are there so that these find the caches of the host, of the disk and of whoever is in between as a client's do: who reads
/// one MiB again and again into the same memory reads it faster than any lock manager that has other leases too.
struct Raw {
    single: Chain,
    /// The same lease; looks at what it reads.
    looking: Chain,
    eight: Vec<Chain>,
    disks: Vec<Chain>,
    times: RawTimes,
}

/// What the single lease's operations took, in microseconds.
#[derive(Default)]
struct RawTimes {
    acquire: Vec<f64>,
    looking: Vec<f64>,
    release: Vec<f64>,
}

impl Raw {
    /// On areas from `first` on, as many as a client has.
    fn new(place: &Place, first: u64) -> Self {
        let chains = |areas: &[u64]| areas.iter().map(|area| Chain::new(place, first + area, 2000)).collect();
        Self {
            single: Chain::new(place, first + SINGLE, 2000),
            looking: Chain::new(place, first + SINGLE, 2000).looking(),
            eight: chains(&Vec::from_iter(EIGHT)),
            disks: chains(&DISKS),
            times: RawTimes::default(),
        }
    }

    fn turn(&mut self, count: u32) {
        for _ in 0..count {
            self.times.acquire.push(micros(self.single.acquire()));
            self.times.release.push(micros(self.single.release()));
            // The shared one, and the one that is converted.
            self.single.acquire();
            self.single.release();
            self.times.looking.push(micros(self.looking.acquire()));
            self.looking.release();
            if let Some((first, others)) = self.eight.split_first_mut() {
                for step in [Chain::acquire, Chain::release] {
                    step(first);
                    side_by_side(others, step);
                }
            }
            for step in [Chain::acquire, Chain::release] {
                side_by_side(&mut self.disks, step);
            }
        }
    }
}

fn side_by_side(chains: &mut [Chain], step: fn(&mut Chain) -> Duration) {
    std::thread::scope(|scope| {
        for chain in chains {
            scope.spawn(move || step(chain));
        }
    });
}

fn timed(times: &mut Vec<f64>, operation: impl FnOnce() -> i32) {
    let begin = Instant::now();
    let result = operation();
    times.push(micros(begin.elapsed()));
    assert_eq!(result, 0, "nothing stands in the way of this operation");
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
