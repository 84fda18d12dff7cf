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

/// Parts of a measurement, each about a renewal interval long. Where the host takes the processor away for a while, the guest counts that to whoever
/// was at work: in the part in which that happens, and not in the median of all.
const PARTS: usize = 4;

/// What one program came to.
struct Cost {
    /// In each part.
    cpu_us: Vec<f64>,
    read_kib: f64,
    switches: f64,
    resident_kib: f64,
    family_kib: f64,
}

/// With how many lockspaces, which io timeout, and for how long a measurement goes on.
#[derive(Clone, Copy)]
struct Load {
    spaces: u64,
    hosts: usize,
    io_timeout: u32,
    /// Four intervals of the default: not everything has to be read at every renewal.
    seconds: f64,
}

/// Runs the measure.
#[must_use]
pub fn run(setting: &Setting) -> Vec<Row> {
    let (io_timeout, seconds) = setting.pick((2, 15.0), (10, 82.0));
    let load = |spaces, hosts| Load { spaces, hosts, io_timeout, seconds };
    let mut loads = vec![load(1, 1), load(8, 1)];
    if !setting.quick {
        // The original joins eight at a time: with the default two hundred would take ten minutes.
        loads.extend([load(40, 1), Load { io_timeout: 2, ..load(200, 1) }]);
    }
    let mut rows: Vec<Row> =
        loads.into_iter().filter_map(|load| Some(all_rows(costs(setting, load)?, load))).flatten().collect();
    if let Some([original, ours]) = costs(setting, load(1, HOSTS_IN_USE)) {
        let row =
            Row::new("KiB read per renewal", Unit::Kibibytes, vec![original.read_kib], vec![ours.read_kib]);
        let row = row.sized(HOSTS_IN_USE as u64, "hosts in use").ratio_wanted(0.55);
        rows.push(row.noting(io_timeout_note(io_timeout)));
    }
    rows
}

fn io_timeout_note(io_timeout: u32) -> String {
    match io_timeout {
        10 => String::new(),
        _ => format!(
            "io timeout {io_timeout} s: the shorter it is, the less weigh the two wake-ups a second that the original has for each lockspace"
        ),
    }
}

fn all_rows([original, ours]: [Cost; 2], load: Load) -> Vec<Row> {
    let of_parts = |name, unit, original, ours| {
        let row = Row::new(name, unit, original, ours).sized(load.spaces, "lockspaces");
        row.noting(io_timeout_note(load.io_timeout))
    };
    let row = |name, unit, of: fn(&Cost) -> f64| of_parts(name, unit, vec![of(&original)], vec![of(&ours)]);
    let resident = row("resident memory", Unit::Kibibytes, |cost| cost.resident_kib);
    let family = row("memory with its helpers", Unit::Kibibytes, |cost| cost.family_kib);
    vec![
        of_parts("processor time per renewal", Unit::Micros, original.cpu_us.clone(), ours.cpu_us.clone())
            .ratio_wanted(0.5),
        row("KiB read per renewal", Unit::Kibibytes, |cost| cost.read_kib).not_slower(),
        row("context switches per renewal", Unit::Count, |cost| cost.switches).not_slower(),
        if load.spaces == 40 { resident.ratio_wanted(0.25) } else { resident.not_slower() },
        family.not_slower(),
    ]
}

/// Joins the lockspaces with the hosts of each program and looks on for a while; what the first host of each came to.
fn costs(setting: &Setting, load: Load) -> Option<[Cost; 2]> {
    let Load { spaces, hosts, io_timeout, seconds } = load;
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
    let mut parts = vec![before];
    for part in 1..=PARTS {
        while monotonic_seconds() < begin + seconds * part as f64 / PARTS as f64 {
            std::thread::sleep(LOOK_PAUSE);
            switches.iter_mut().for_each(Switches::look);
        }
        parts.push(pids.map(Used::of));
    }
    let end = monotonic_seconds();
    let after = parts[PARTS];
    let renewals = sites.each_ref().map(|site| renewals(site, spaces, begin, end));
    let cost = |index: usize| {
        let used = after[index].since(before[index]);
        let each = |total: f64| total / renewals[index];
        let in_part = |pair: &[[Used; 2]]| {
            let used = pair[1][index].since(pair[0][index]);
            each(used.cpu.as_secs_f64() * 1e6) * PARTS as f64
        };
        Cost {
            cpu_us: parts.windows(2).map(in_part).collect(),
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
