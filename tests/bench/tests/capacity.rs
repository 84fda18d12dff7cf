//! The computed load is what the machines of the daemon ask for, and the page of the guide has the tables that are computed.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

/// The daemon's own choice of what comes next.
#[path = "../../../daemon/src/lockspace/next.rs"]
mod next;

use next::{Next, next};
use sanlock_bench::capacity::{Cycle, LeaseCost, Sizes, acquire, cycle, release, times};
use sanlock_bench::page;
use sanlock_lease::delta::{DeltaAcquire, DeltaConfig, HostScan, Renewal};
use sanlock_lease::format::{Lockspace, Resource};
use sanlock_lease::geometry::{AlignSize, Geometry, HostId, SectorSize};
use sanlock_lease::machine::{Action, Place};
use sanlock_lease::name::Name;
use sanlock_lease::paxos::PaxosConfig;
use sanlock_lease::paxos::acquire::{AcquireOptions, AcquireOutcome, PaxosAcquire};
use sanlock_lease::paxos::release::PaxosRelease;
use sanlock_lease::record::RawLeader;
use sanlock_lease::testing::{Fate, Lab, Traced};
use sanlock_lease::timing::{IoTimeout, WatchdogFire};
use std::path::Path;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn geometry(sizes: Sizes) -> Geometry {
    let sector = SectorSize::from_bytes(u32::try_from(sizes.sector).unwrap()).unwrap();
    Geometry::new(sector, AlignSize::from_bytes(sizes.align_mib << 20).unwrap()).unwrap()
}

fn config(t: u64) -> DeltaConfig {
    DeltaConfig {
        lockspace: name("ls"),
        host: HostId::new(1).unwrap(),
        host_name: name("host1"),
        io_timeout: IoTimeout::new(u32::try_from(t).unwrap()).unwrap(),
        fire: WatchdogFire::DEFAULT,
    }
}

/// A lockspace in which the host ids 2 to `used` had an owner once, on a disk that answers after `after_ms`.
fn lab(t: u64, used: u64, sizes: Sizes, after_ms: u64) -> Lab {
    let geometry = geometry(sizes);
    let format = Lockspace { name: name("ls"), geometry, io_timeout: config(t).io_timeout };
    let mut area = format.area();
    let first = format.first_sector();
    area[..first.len()].copy_from_slice(&first);
    let mut lab = Lab::new();
    lab.disk.add(Place::Lockspace, geometry.align().bytes());
    assert!(lab.disk.write(Place::Lockspace, geometry.sector(), 0, &area));
    for id in 2..=used {
        lab.disk.edit(Place::Lockspace, geometry.sector(), id - 1, |sector| {
            let mut leader = RawLeader::from_sector(sector);
            leader.owner_id = id.into();
            leader.owner_generation = 1.into();
            leader.resource_name = name(&format!("host{id}")).to_field();
            leader.seal();
            leader.encode(None, sector);
        });
    }
    lab.fates(move |_| Fate::after(after_ms));
    lab
}

/// Reads, bytes read, writes, bytes written.
fn sum(trace: &[Traced]) -> [u64; 4] {
    let mut sum = [0; 4];
    for traced in trace {
        let sector = u64::from(traced.op.sector_size.bytes());
        let (at, count) = match traced.op.action {
            Action::Read { count, .. } => (0, count),
            Action::Write { .. } => (2, 1),
        };
        sum[at] += 1;
        sum[at + 1] += count * sector;
    }
    sum
}

/// What the renewals and looks of a joined host come to within `seconds`, after as many for it to find its rhythm: as the thread of a
/// lockspace drives them.
fn driven(t: u64, used: u64, sizes: Sizes, after_ms: u64, seconds: u64) -> [u64; 4] {
    let mut lab = lab(t, used, sizes, after_ms);
    let joined = lab.run(&mut DeltaAcquire::new(config(t), None)).outcome.unwrap();
    let mut renewal = Renewal::new(config(t), &joined);
    let mut scan = HostScan::new(&config(t), joined.geometry);
    let mut look = |lab: &mut Lab| {
        lab.turn_of(1);
        lab.rerun(&mut scan);
        scan.due()
    };
    let mut due = look(&mut lab);
    let begin = lab.now.plus_secs(seconds);
    let end = begin.plus_secs(seconds);
    loop {
        match next(lab.now, Some(renewal.due()), due) {
            Next::Renew => {
                lab.turn_of(2);
                lab.rerun(&mut renewal);
                assert_eq!(renewal.last_good().secs(), lab.now.secs(), "renewals succeed");
                due = look(&mut lab);
            }
            Next::Look => due = look(&mut lab),
            Next::Wait(until) if until.unwrap() >= end => break,
            Next::Wait(until) => lab.now = until.unwrap(),
        }
    }
    let within: Vec<_> =
        lab.trace.into_iter().filter(|traced| begin <= traced.at && traced.at < end).collect();
    sum(&within)
}

fn expected(cycle: Cycle, times: u64) -> [u64; 4] {
    [cycle.reads, cycle.read_bytes, cycle.writes, cycle.written_bytes].map(|number| number * times)
}

#[test]
fn the_formula_is_what_the_machines_of_the_daemon_do() {
    for t in [1, 2, 3, 5, 10] {
        for (used, sizes) in [
            (8, Sizes::B512_M1),
            (8, Sizes::B4096_M8),
            (40, Sizes::B4096_M8),
            // The first pieces are in use as a whole, the last one is not.
            (600, Sizes::B512_M1),
            (130, Sizes::ALL[1]),
            (2000, Sizes::B512_M1),
        ] {
            let cycle = cycle(t, used, sizes);
            // Whatever moment of it the count begins with, three whole cycles are three whole cycles.
            let driven = driven(t, used, sizes, 0, 3 * cycle.seconds);
            assert_eq!(driven, expected(cycle, 3), "T = {t}, {used} host ids in use, {sizes:?}");
        }
    }
}

/// The pieces of an area are asked for one after the other, so on a disk that takes its time some of them come to be due just too late for the look
/// that takes the others: they get a look of their own, which reads once more what is in use. And a look that waits for its renewal's write
/// begins that much later. So: some more small reads, hardly more bytes.
#[test]
fn a_disk_that_takes_its_time_changes_little() {
    for (t, after_ms, sizes) in [
        (2, 1, Sizes::B512_M1),
        (5, 5, Sizes::B512_M1),
        (10, 1, Sizes::B512_M1),
        (10, 50, Sizes::B512_M1),
        (10, 1, Sizes::B4096_M8),
    ] {
        let cycle = cycle(t, 8, sizes);
        let [reads, read_bytes, writes, _] = driven(t, 8, sizes, after_ms, 20 * cycle.seconds);
        let percent = |got: u64, each: u64| got as f64 / (20 * each) as f64 * 100.0 - 100.0;
        let (reads, bytes) = (percent(reads, cycle.reads), percent(read_bytes, cycle.read_bytes));
        let off = format!("T = {t}, {after_ms} ms, {sizes:?}: reads {reads:+.1} %, bytes {bytes:+.1} %");
        assert!(reads.abs() <= 15.0 && bytes.abs() <= 4.0, "{off}");
        assert!(writes.abs_diff(20 * cycle.writes) <= 1, "{off}; {writes} writes");
    }
}

#[test]
fn leases_cost_what_their_machines_ask_for() {
    for (num_hosts, sizes) in [(8, Sizes::B512_M1), (2000, Sizes::B512_M1), (62, Sizes::B4096_M8)] {
        let geometry = geometry(sizes);
        let format = Resource {
            lockspace: name("ls"),
            name: name("res"),
            geometry,
            num_hosts: u16::try_from(num_hosts).unwrap(),
            cleared_at: None,
        };
        let mut lab = Lab::new();
        let disk = Place::Resource(0);
        lab.disk.add(disk, geometry.align().bytes());
        assert!(lab.disk.write(disk, geometry.sector(), 0, &format.area()));
        let config = PaxosConfig {
            lockspace: name("ls"),
            resource: name("res"),
            host: HostId::new(1).unwrap(),
            generation: 1,
            io_timeout: IoTimeout::DEFAULT,
            fire: WatchdogFire::DEFAULT,
            geometry,
            disks: 1,
        };
        let taken = lab.run(&mut PaxosAcquire::new(config, AcquireOptions::default())).outcome;
        assert_eq!(cost(&mut lab), acquire(num_hosts, sizes), "{num_hosts} {sizes:?}");
        let AcquireOutcome::Acquired(held) = taken else { panic!("{taken:?}") };
        assert!(lab.run(&mut PaxosRelease::new(config, held)).outcome.result.is_ok());
        assert_eq!(cost(&mut lab), release(sizes), "{num_hosts} {sizes:?}");
    }
}

fn cost(lab: &mut Lab) -> LeaseCost {
    let [reads, read_bytes, writes, _] = sum(&lab.trace);
    lab.trace.clear();
    LeaseCost { reads, read_bytes, writes }
}

#[test]
fn sizes_and_times_are_those_of_the_daemon() {
    assert_eq!(Sizes::ALL.map(geometry), Geometry::ALL);
    assert_eq!(Sizes::ALL.map(|sizes| sizes.max_hosts), Geometry::ALL.map(|g| u64::from(g.max_hosts())));
    for t in [1, 2, 5, 10, 15, 20, 30, 255] {
        let (ours, theirs) = (times(t, WatchdogFire::DEFAULT.secs()), config(t).io_timeout);
        assert_eq!(ours.renewal, theirs.renewal_secs());
        assert_eq!(ours.join, theirs.delta_short_delay_secs());
        assert_eq!(ours.failed, theirs.renewal_fail_secs());
        assert_eq!(ours.borne, theirs.renewal_fail_secs() - theirs.renewal_secs());
        assert_eq!(ours.taken_over, theirs.host_dead_secs(WatchdogFire::DEFAULT));
        assert_eq!(ours.join_over_dead, ours.taken_over + theirs.delta_short_delay_secs());
    }
}

#[test]
fn the_page_has_the_tables_that_are_computed() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = std::fs::read_to_string(docs.join("guide/capacity.md")).unwrap();
    assert!(page.contains("<!-- computed: ") && page.contains("<!-- measured: "), "the page has tables");
    // Before there is a run, the measured tables say what fills them.
    let run = docs.join("bench/main.json");
    let run = run.exists().then(|| serde_json::from_str(&std::fs::read_to_string(run).unwrap()).unwrap());
    let renewed = page::renewed(&page, run.as_ref()).unwrap();
    let from = if run.is_some() { " --from docs/bench/main.json" } else { "" };
    assert!(page == renewed, "cargo run --release -p sanlock-bench -- --page docs/guide/capacity.md{from}");
}
