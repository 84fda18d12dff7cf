//! Questions that need no disk: status and get_hosts with many lockspaces, and how many requests a daemon answers.

use std::time::{Duration, Instant};

use sanlock_conformance::Connection;
use sanlock_conformance::raw::cmd;

use super::{Setting, join};
use crate::row::{Row, Unit};
use crate::site::Site;

/// Why two rows are now above and now below what is wanted.
const SYSTEM_CALLS: &str =
    "a connection, a request and its end are nearly the same system calls in both, and nearly all of it";
/// Connections that virtual machines keep open, one each.
const KEPT: u64 = 200;
/// Asks before it is the next program's turn.
const TURN: u32 = 20;

/// What one program's answers took.
#[derive(Default)]
struct Times {
    status: Vec<f64>,
    hosts: Vec<f64>,
    version: Vec<f64>,
    inquire: Vec<f64>,
    connect: Vec<f64>,
    beside_kept: Vec<f64>,
}

/// Runs the measure.
#[must_use]
pub fn run(setting: &Setting) -> Vec<Row> {
    let spaces = setting.pick(8, 40);
    let Some(place) = setting.place(2 * spaces) else { return Vec::new() };
    let sites = Site::both(&place, spaces, 1);
    for site in &sites {
        site.format_lockspaces(0..spaces, 1);
        let _ = join::join(site, spaces);
    }
    // get_hosts knows nothing before the first look at the other hosts.
    std::thread::sleep(Duration::from_secs(4));
    let mut times = [Times::default(), Times::default()];
    let length = setting.pick(Duration::from_millis(200), Duration::from_secs(1));
    for _ in 0..setting.pick(2, 10) {
        for (site, times) in sites.iter().zip(&mut times) {
            turn(site, times, spaces, length);
        }
    }
    let [original, ours] = times;
    let micros = |name, original, ours| Row::new(name, Unit::Micros, original, ours).not_slower();
    let rate = |name, original, ours| Row::new(name, Unit::PerSecond, original, ours).not_slower();
    vec![
        micros("status", original.status, ours.status).sized(spaces, "lockspaces"),
        micros("get_hosts", original.hosts, ours.hosts).sized(spaces, "lockspaces").noting(SYSTEM_CALLS),
        rate("VERSION, one connection", original.version, ours.version),
        rate("INQUIRE, one connection", original.inquire, ours.inquire),
        rate("VERSION, a connection each", original.connect, ours.connect).noting(SYSTEM_CALLS),
        rate("VERSION, a connection each", original.beside_kept, ours.beside_kept)
            .sized(KEPT, "others kept open"),
    ]
}

fn turn(site: &Site, times: &mut Times, spaces: u64, length: Duration) {
    for n in 0..TURN {
        let begin = Instant::now();
        let (header, records) = site.connect(0).records(cmd::STATUS, 0, &[]);
        times.status.push(begin.elapsed().as_secs_f64() * 1e6);
        let lockspaces = records.iter().filter(|record| record.kind == 3).count();
        assert_eq!((header.result(), lockspaces as u64), (0, spaces), "status");
        let begin = Instant::now();
        let (result, _) = site.connect(0).get_hosts(&format!("BENCH{}", u64::from(n) % spaces), 0);
        times.hosts.push(begin.elapsed().as_secs_f64() * 1e6);
        assert_eq!(result, 0, "get_hosts");
    }
    let mut connection = site.connect(0);
    times.version.push(rate(length, || ask_version(&mut connection)));
    let mut connection = site.registered(0);
    times.inquire.push(rate(length, || assert_eq!(connection.inquire(None).result, 0, "inquire")));
    times.connect.push(rate(length, || ask_version(&mut site.connect(0))));
    let kept: Vec<Connection> = (0..KEPT).map(|_| site.registered(0)).collect();
    times.beside_kept.push(rate(length, || ask_version(&mut site.connect(0))));
    drop(kept);
}

fn ask_version(connection: &mut Connection) {
    let answer = connection.version();
    assert!(answer.is_ok(), "version: {answer:?}");
}

/// How often per second something can be done.
fn rate(length: Duration, mut operation: impl FnMut()) -> f64 {
    let begin = Instant::now();
    let mut done = 0_u32;
    while begin.elapsed() < length {
        operation();
        done += 1;
    }
    f64::from(done) / begin.elapsed().as_secs_f64()
}
