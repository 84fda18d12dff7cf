//! Hosts contend for one lease: how long it is nobody's between two owners, and who gets how much of it.

use std::time::{Duration, Instant};

use sanlock_conformance::dice::Dice;
use sanlock_conformance::{Connection, Resource, fair};

use super::Setting;
use crate::row::{Row, Unit};
use crate::site::{Site, join_all};

/// Hosts at most.
const HOSTS_MAX: usize = 8;
/// Areas of each program.
const AREAS: u64 = 2;
/// Longest pause after a refusal and after a release, and longest hold, exclusive.
const PAUSE_MS: u64 = 20;
/// Refusals that contention causes (socket-protocol.md 7.7).
const REFUSALS: [i32; 6] = [-11, -16, -17, -243, -244, -245];
/// The part of its fair share that each host must get, in percent.
const LEAST_SHARE: f64 = 50.0;

/// One ownership.
#[derive(Clone, Copy)]
struct Hold {
    host: usize,
    granted: Instant,
    released: Instant,
}

/// What all hosts of one program came to.
#[derive(Default)]
struct Fight {
    /// Milliseconds from a release reply to the acquire reply of another host.
    gaps: Vec<f64>,
    /// The smallest part of a fair share that a host got in any round, in percent.
    least: Option<f64>,
    /// Times the lease was granted, per second.
    rate: Vec<f64>,
}

/// Runs the measure.
#[must_use]
pub fn run(setting: &Setting) -> Vec<Row> {
    let Some(place) = setting.place(2 * AREAS) else { return Vec::new() };
    let sites = Site::both(&place, AREAS, HOSTS_MAX);
    join_all(&sites, setting.io_timeout());
    for site in &sites {
        site.format(&site.resource(1), 0);
    }
    // Until every host has seen every other: before that a lease of a host not yet seen is waited for.
    std::thread::sleep(Duration::from_secs(u64::from(4 * setting.io_timeout())));
    let slow = place.kind().delay_ms() > 0;
    let mut rows = Vec::new();
    for hosts in [2, 4, HOSTS_MAX] {
        let [original, ours] = fights(setting, &sites, hosts);
        let size = hosts as u64;
        let gap = Row::new("hand-over", Unit::Millis, original.gaps, ours.gaps).sized(size, "hosts");
        // Behind a delay the operations of a ballot, not the pauses between ballots, are most of a hand-over.
        rows.push(if slow { gap.not_slower() } else { gap.p99_wanted(0.1) });
        let [least_original, least_ours] = [original.least, ours.least].map(Vec::from_iter);
        let least = Row::new("least share of a host", Unit::Percent, least_original, least_ours);
        rows.push(least.sized(size, "hosts").ours_wanted(LEAST_SHARE));
        let rate = Row::new("hand-overs", Unit::PerSecond, original.rate, ours.rate);
        rows.push(rate.sized(size, "hosts").not_slower());
    }
    rows
}

fn fights(setting: &Setting, sites: &[Site; 2], hosts: usize) -> [Fight; 2] {
    let length = Duration::from_secs(setting.pick(3, 15));
    let mut results = [Fight::default(), Fight::default()];
    for round in 0..setting.pick(1, 2) {
        for (site, result) in sites.iter().zip(&mut results) {
            let resource = site.resource(1);
            let clients: Vec<Connection> = (0..hosts).map(|index| site.registered(index)).collect();
            let holds = fight(clients, &resource, length, round);
            let counts: Vec<u64> = holds.iter().map(|holds| holds.len() as u64).collect();
            let total: u64 = counts.iter().sum();
            assert!(total > 0, "{}: the lease was granted to nobody", site.program.word());
            let least = fair::shares(&counts).into_iter().min().unwrap_or(0);
            let least = f64::from(u32::try_from(least).unwrap_or(u32::MAX));
            result.least = Some(result.least.map_or(least, |before| before.min(least)));
            result.rate.push(f64::from(u32::try_from(total).unwrap_or(u32::MAX)) / length.as_secs_f64());
            result.gaps.extend(gaps(holds.into_iter().flatten().collect()));
        }
    }
    results
}

/// Each client takes the lease as often as it can; who held it when.
fn fight(clients: Vec<Connection>, resource: &Resource, length: Duration, seed: u64) -> Vec<Vec<Hold>> {
    let end = Instant::now() + length;
    std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .into_iter()
            .enumerate()
            .map(|(index, client)| {
                let dice = Dice::new(&format!("host {index}"), seed);
                scope.spawn(move || contend(index, client, resource, end, dice))
            })
            .collect();
        // A thread that panicked has said why.
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| panic!("a contender failed")))
            .collect()
    })
}

fn contend(
    host: usize,
    mut client: Connection,
    resource: &Resource,
    end: Instant,
    mut dice: Dice,
) -> Vec<Hold> {
    let mut holds = Vec::new();
    while Instant::now() < end {
        let result = client.acquire_one(resource);
        if result == 0 {
            let granted = Instant::now();
            dice.pause(PAUSE_MS);
            assert_eq!(client.release_one(resource), 0, "release");
            holds.push(Hold { host, granted, released: Instant::now() });
        } else {
            assert!(REFUSALS.contains(&result), "an acquire gave {result}");
        }
        dice.pause(PAUSE_MS);
    }
    holds
}

/// Milliseconds between one host's hold and the next one's; of two in a row by one host the pause of its client is the most. A release reply that is read later than the next owner's reply counts as 0.
fn gaps(mut holds: Vec<Hold>) -> Vec<f64> {
    holds.sort_by_key(|hold| hold.granted);
    holds
        .windows(2)
        .filter(|pair| pair[0].host != pair[1].host)
        .map(|pair| pair[1].granted.saturating_duration_since(pair[0].released).as_secs_f64() * 1e3)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_the_time_between_two_owners() {
        let zero = Instant::now();
        let hold = |host, granted, released| Hold {
            host,
            granted: zero + Duration::from_millis(granted),
            released: zero + Duration::from_millis(released),
        };
        let found = gaps(vec![hold(0, 50, 60), hold(0, 0, 10), hold(1, 20, 51), hold(0, 90, 95)]);
        assert_eq!(found, [10.0, 0.0]);
    }
}
