//! What joined lockspaces cost while nothing happens: processor time, bytes read, context switches, memory.

use std::time::Duration;

use sanlock_conformance::raw::cmd;

use super::Setting;
use crate::machine::{Switches, Used, family_kib, monotonic_seconds, resident_kib};
use crate::row::{Row, Unit};
use crate::site::Site;

/// Hosts in the lockspace whose bytes are counted with several hosts in use.
const HOSTS_IN_USE: usize = 8;

/// Pause between two looks at the threads: those that end in between take what they did since the last look along.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// What one program came to.
struct Cost {
    cpu_us: f64,
    read_kib: f64,
    switches: f64,
    resident_kib: f64,
    family_kib: f64,
}

/// Runs the measure.
#[must_use]
pub fn run(setting: &Setting) -> Vec<Row> {
    let sizes = setting.pick(vec![1, 8], vec![1, 8, 40, 200]);
    let mut rows: Vec<Row> = sizes
        .into_iter()
        .filter_map(|spaces| costs(setting, spaces, 1).map(|costs| all_rows(costs, spaces)))
        .flatten()
        .collect();
    if let Some([original, ours]) = costs(setting, 1, HOSTS_IN_USE) {
        let row =
            Row::new("KiB read per renewal", Unit::Kibibytes, vec![original.read_kib], vec![ours.read_kib]);
        rows.push(row.sized(HOSTS_IN_USE as u64, "hosts in use").ratio_wanted(0.55));
    }
    rows
}

fn all_rows([original, ours]: [Cost; 2], spaces: u64) -> Vec<Row> {
    let row = |name, unit, of: fn(&Cost) -> f64| {
        Row::new(name, unit, vec![of(&original)], vec![of(&ours)]).sized(spaces, "lockspaces")
    };
    let resident = row("resident memory", Unit::Kibibytes, |cost| cost.resident_kib);
    vec![
        row("processor time per renewal", Unit::Micros, |cost| cost.cpu_us).ratio_wanted(0.5),
        row("KiB read per renewal", Unit::Kibibytes, |cost| cost.read_kib).not_slower(),
        row("context switches per renewal", Unit::Count, |cost| cost.switches).not_slower(),
        if spaces == 40 { resident.ratio_wanted(0.25) } else { resident.not_slower() },
        row("memory with its helpers", Unit::Kibibytes, |cost| cost.family_kib).not_slower(),
    ]
}

/// Joins `spaces` lockspaces with `hosts` hosts of each program and looks on for a while; what the first host of each came to.
fn costs(setting: &Setting, spaces: u64, hosts: usize) -> Option<[Cost; 2]> {
    let io_timeout = setting.pick(1, 2);
    let place = setting.place(2 * spaces)?;
    let sites = Site::both(&place, spaces, hosts);
    for site in &sites {
        site.format_lockspaces(0..spaces, io_timeout);
        (0..spaces).for_each(|area| site.begin_join(area, io_timeout));
    }
    for site in &sites {
        (0..spaces).for_each(|area| site.wait_joined(area));
    }
    // Both at the same time: what is counted is counted for each process by itself.
    std::thread::sleep(Duration::from_secs(u64::from(3 * io_timeout)));
    let pids = sites.each_ref().map(|site| site.hosts[0].pid());
    let before = pids.map(Used::of);
    let begin = monotonic_seconds();
    let mut switches = pids.map(Switches::of);
    let length = setting.pick(8.0, 40.0);
    while monotonic_seconds() < begin + length {
        std::thread::sleep(LOOK_PAUSE);
        switches.iter_mut().for_each(Switches::look);
    }
    let end = monotonic_seconds();
    let after = pids.map(Used::of);
    let renewals = sites.each_ref().map(|site| renewals(site, spaces, begin, end));
    let cost = |index: usize| {
        let used = after[index].since(before[index]);
        let each = |total: f64| total / renewals[index];
        Cost {
            cpu_us: each(used.cpu.as_secs_f64() * 1e6),
            read_kib: each(used.read_bytes as f64 / 1024.0),
            switches: each(switches[index].total() as f64),
            resident_kib: resident_kib(pids[index]) as f64,
            family_kib: family_kib(pids[index]) as f64,
        }
    };
    Some([cost(0), cost(1)])
}

/// How many renewals of all lockspaces fell between two moments, by the history that the daemon keeps.
fn renewals(site: &Site, spaces: u64, begin: f64, end: f64) -> f64 {
    let count = |area| {
        let (header, records) = site.connect(0).records(cmd::RENEWAL, 0, &site.lockspace(area, 1).encode());
        assert_eq!(header.result(), 0, "{}: renewals of lockspace {area}", site.program.word());
        let times = records.iter().filter_map(|record| record.get("timestamp")?.parse::<f64>().ok());
        // Timestamps are cut to seconds.
        times.filter(|time| begin <= time + 0.5 && time + 0.5 < end).count() as f64
    };
    let all: f64 = (0..spaces).map(count).sum();
    assert!(all > 0.0, "{}: no renewal within {:.0} s", site.program.word(), end - begin);
    all
}
