//! Many clients, each with a lease of its own: acquires and releases per second.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use sanlock_conformance::{Connection, Resource};

use super::Setting;
use crate::floor::Chain;
use crate::place::Place;
use crate::row::{Row, Unit};
use crate::site::{Site, join_all};

/// Clients at most.
const CLIENTS_MAX: usize = 64;
/// Areas of each program: the lockspace and a lease for each client.
const AREAS: u64 = 1 + CLIENTS_MAX as u64;
/// Rows, and the hosts that the leases are for.
const NAMES: [(&str, u32); 2] = [("acquires and releases", 2000), ("acquires and releases, 62 hosts", 62)];

/// Runs the measure.
#[must_use]
pub fn run(setting: &Setting) -> Vec<Row> {
    let Some(place) = setting.place(2 * AREAS + CLIENTS_MAX as u64) else { return Vec::new() };
    let sites = Site::both(&place, AREAS, 1);
    join_all(&sites, setting.io_timeout());
    let slow = place.kind().delay_ms() > 0;
    let mut rows = Vec::new();
    for (name, num_hosts) in NAMES {
        for site in &sites {
            for area in 1..AREAS {
                // 0 stands for as many as there is room for.
                site.format(&site.resource(area), if num_hosts == 2000 { 0 } else { num_hosts });
            }
        }
        for clients in [8, CLIENTS_MAX] {
            let row = measure(setting, &place, &sites, (name, num_hosts), clients);
            rows.push(match num_hosts {
                // Nothing is known about what a delayed device can do at a time.
                _ if slow => row.not_slower(),
                62 => row.ratio_wanted(3.0),
                _ => row.ratio_wanted(1.7).floor_wanted(0.85),
            });
        }
    }
    rows
}

fn measure(
    setting: &Setting,
    place: &Place,
    sites: &[Site; 2],
    (name, num_hosts): (&'static str, u32),
    clients: usize,
) -> Row {
    let length = setting.pick(Duration::from_millis(500), Duration::from_secs(2));
    let mut rates = [Vec::new(), Vec::new()];
    let mut raw = Vec::new();
    let mut connections = sites.each_ref().map(|site| clients_of(site, clients));
    // As many without a daemon as there are clients.
    let mut chains: Vec<Chain> =
        (2 * AREAS..).take(clients).map(|area| Chain::new(place, area, u64::from(num_hosts))).collect();
    for _ in 0..setting.pick(2, 5) {
        for (connections, rates) in connections.iter_mut().zip(&mut rates) {
            rates.push(rate(connections, length, |(connection, resource)| {
                assert_eq!(connection.acquire_one(resource), 0, "nobody else wants this lease");
                assert_eq!(connection.release_one(resource), 0, "release");
            }));
        }
        raw.push(rate(&mut chains, length, |chain| {
            chain.acquire();
            chain.release();
        }));
    }
    let [original, ours] = rates;
    let row = Row::new(name, Unit::PerSecond, original, ours).sized(clients as u64, "clients");
    if place.kind().delay_ms() > 0 { row } else { row.with_floor(raw) }
}

fn clients_of(site: &Site, clients: usize) -> Vec<(Connection, Resource)> {
    (1..).take(clients).map(|area| (site.registered(0), site.resource(area))).collect()
}

/// Lets everybody work side by side for `length`; how many operations per second all of them did together.
fn rate<T: Send>(workers: &mut [T], length: Duration, operation: impl Fn(&mut T) + Sync) -> f64 {
    let start = Barrier::new(workers.len());
    let (operation, start) = (&operation, &start);
    std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                scope.spawn(move || {
                    start.wait();
                    let begin = Instant::now();
                    let mut done = 0_u32;
                    while begin.elapsed() < length {
                        operation(worker);
                        done += 1;
                    }
                    f64::from(done) / begin.elapsed().as_secs_f64()
                })
            })
            .collect();
        // A thread that panicked has said why.
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panic!("a client failed"))).sum()
    })
}
