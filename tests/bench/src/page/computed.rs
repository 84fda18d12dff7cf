//! Tables that follow from the formulas of [`crate::capacity`].

use super::markdown;
use crate::capacity::{Sizes, acquire, array_load, release, times};

/// Io timeouts that the tables compare, in seconds.
const TIMEOUTS: [u64; 6] = [2, 5, 10, 15, 20, 30];
const TIMEOUT_DEFAULT: u64 = 10;
const FIRE_DEFAULT: u64 = 60;
/// Hosts in use that the tables compare.
const HOSTS: [u64; 7] = [1, 8, 32, 100, 250, 1000, 2000];
/// Lockspaces likewise.
const SPACES: [u64; 4] = [1, 8, 40, 200];
/// What is behind a table of io timeouts: hosts and lockspaces.
const SITES: [(u64, u64); 4] = [(8, 1), (32, 8), (100, 40), (2000, 200)];

/// The table of that name.
pub(super) fn table(name: &str) -> Result<String, String> {
    match name {
        "times" => Ok(timeouts()),
        "host" => Ok(host()),
        "array 512" => Ok(array(Sizes::B512_M1)),
        "array 4096" => Ok(array(Sizes::B4096_M8)),
        "array by io timeout" => Ok(by_timeout()),
        "lease" => Ok(lease()),
        "space" => Ok(space()),
        _ => Err(format!("no computed table {name:?}")),
    }
}

fn timeouts() -> String {
    let head = ["T", "renewal, join", "outage always borne", "failed", "take-over", "join over a dead host"];
    let row = |t| {
        let times = times(t, FIRE_DEFAULT);
        let cells = [t, times.renewal, times.borne, times.failed, times.taken_over, times.join_over_dead];
        cells.map(|cell| cell.to_string()).to_vec()
    };
    markdown(&head, TIMEOUTS.map(row))
}

fn host() -> String {
    let head = ["T", "Writes/s", "Reads/s, 512", "KiB/s read, 512", "Reads/s, 4096", "KiB/s read, 4096"];
    let row = |t| {
        // The load of eight hosts, of which each does an eighth.
        let load = |sizes| array_load(t, 8, 1, sizes);
        let (small, large) = (load(Sizes::B512_M1), load(Sizes::B4096_M8));
        let mut cells = vec![t.to_string(), number(small.writes / 8.0)];
        for load in [small, large] {
            cells.extend([number(load.reads / 8.0), number(load.read_bytes / 8.0 / 1024.0)]);
        }
        cells
    };
    markdown(&head, TIMEOUTS.map(row))
}

fn array(sizes: Sizes) -> String {
    let head = ["Hosts", "Lockspaces", "Reads/s", "Writes/s", "Read per second", "Written per second"];
    let all = HOSTS.into_iter().flat_map(|hosts| SPACES.map(|spaces| (hosts, spaces)));
    markdown(
        &head,
        all.map(|(hosts, spaces)| {
            let load = array_load(TIMEOUT_DEFAULT, hosts, spaces, sizes);
            vec![
                hosts.to_string(),
                spaces.to_string(),
                number(load.reads),
                number(load.writes),
                bytes(load.read_bytes),
                bytes(load.written_bytes),
            ]
        }),
    )
}

fn by_timeout() -> String {
    let head =
        ["T", "Hosts", "Lockspaces", "Reads/s", "Writes/s", "Read per second, 512", "Read per second, 4096"];
    let all = SITES.into_iter().flat_map(|site| TIMEOUTS.map(|t| (t, site)));
    markdown(
        &head,
        all.map(|(t, (hosts, spaces))| {
            let load = array_load(t, hosts, spaces, Sizes::B512_M1);
            let large = array_load(t, hosts, spaces, Sizes::B4096_M8);
            vec![
                t.to_string(),
                hosts.to_string(),
                spaces.to_string(),
                number(load.reads),
                number(load.writes),
                bytes(load.read_bytes),
                bytes(large.read_bytes),
            ]
        }),
    )
}

fn lease() -> String {
    let head =
        ["num_hosts", "acquire: reads", "writes", "read, 512", "read, 4096", "release: reads", "writes"];
    let row = |num_hosts| {
        let (small, large) = (acquire(num_hosts, Sizes::B512_M1), acquire(num_hosts, Sizes::B4096_M8));
        let release = release(Sizes::B512_M1);
        vec![
            num_hosts.to_string(),
            small.reads.to_string(),
            small.writes.to_string(),
            bytes(small.read_bytes as f64),
            bytes(large.read_bytes as f64),
            release.reads.to_string(),
            release.writes.to_string(),
        ]
    };
    markdown(&head, [8, 32, 62, 250, 1000, 2000].map(row))
}

fn space() -> String {
    let head = [
        "Sector",
        "Area",
        "Largest host id",
        "A lockspace and 100 leases",
        "200 lockspaces, 100 leases each",
    ];
    let row = |sizes: Sizes| {
        let mib = |areas: u64| format!("{} MiB", areas * sizes.align_mib);
        let (sector, hosts) = (sizes.sector.to_string(), sizes.max_hosts.to_string());
        vec![sector, mib(1), hosts, mib(101), mib(200 * 101)]
    };
    markdown(&head, Sizes::ALL.map(row))
}

/// Three digits that matter, all of a whole number.
fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

fn bytes(value: f64) -> String {
    let (kib, mib) = (value / 1024.0, value / 1024.0 / 1024.0);
    if mib >= 1024.0 {
        format!("{} GiB", number(mib / 1024.0))
    } else if mib >= 1.0 {
        format!("{} MiB", number(mib))
    } else {
        format!("{} KiB", number(kib))
    }
}
