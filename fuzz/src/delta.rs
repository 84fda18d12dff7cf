//! Lockspaces: joining, renewing, leaving and watching the others, on an area that holds anything.

use sanlock_lease::delta::{
    DeltaAcquire, DeltaConfig, Event, HostScan, Instance, Joined, RenewOutcome, Renewal,
};
use sanlock_lease::machine::{Action, Content, Op, Place};
use sanlock_lease::name::Name;
use sanlock_lease::record::{Bitmap, RawLeader};
use sanlock_lease::timing::IoTimeout;
use sanlock_lease::verify::{self, Purpose};

use crate::data::Data;
use crate::scene::{Scene, lockspace};

/// Renewals of one input.
const RENEWALS_MAX: usize = 12;
/// Operations of one scan: an area in pieces.
const SCAN_OPERATIONS_MAX: usize = 128;
/// Operations of one renewal.
const RENEWAL_OPERATIONS_MAX: usize = 2;

/// Joins, renews, leaves.
///
/// * Every machine ends within its operations, and writes nothing but our own sector, sealed and in our name.
/// * A join succeeds only if our record is on the disk, with a generation that no record before it and no memory had; and, unless
///   the lease was free or ours as the caller vouches, not before its owner is dead by its own io timeout.
/// * A renewal succeeds only if its time is on the disk. After anything that we did not write nothing is written any more.
/// * The host table has an entry for no host but those of the area.
pub fn delta(data: &[u8]) {
    let mut data = Data::new(data);
    let mut scene = Scene::new(&mut data);
    scene.furnish(&mut data);
    let name = [&b"us"[..], b"them", b""][data.below(3)];
    let config = DeltaConfig {
        lockspace: lockspace(),
        host: scene.host,
        host_name: Name::new(name).unwrap_or_default(),
        io_timeout: scene.io_timeout,
        fire: Scene::fire(),
    };
    let mut watcher = HostScan::new(&config, scene.outer);
    scene.disturb(&mut data);
    scan(&mut scene, &mut watcher);
    scene.calm();
    scene.disturb(&mut data);
    if let Some(joined) = join(&mut scene, &mut data, config) {
        scene.calm();
        renew(&mut scene, &mut data, config, &joined);
    }
    scene.calm();
    scan(&mut scene, &mut watcher);
}

fn scan(scene: &mut Scene, watcher: &mut HostScan) {
    let from = scene.lab.trace.len();
    let end = scene.lab.run(watcher);
    let trace = scene.lab.trace.get(from..).unwrap_or_default();
    assert!(trace.len() <= SCAN_OPERATIONS_MAX && trace.iter().all(|traced| !traced.op.is_write()));
    scene.check_operations(from);
    let hosts = usize::from(scene.outer.max_hosts());
    assert!(end.outcome.news.len() <= 4 * hosts && end.outstanding == 0);
    let now = scene.lab.now;
    for status in watcher.table().list(now) {
        assert!(status.host.get() <= hosts as u64 && status.seen.first_check <= status.seen.last_check);
        assert!(status.seen.last_live.is_none_or(|live| live <= now));
    }
}

fn join(scene: &mut Scene, data: &mut Data<'_>, config: DeltaConfig) -> Option<Joined> {
    let before = scene.delta_of(scene.host);
    let begun = scene.lab.now;
    let vouched = data.one_in(3).then(|| data.number());
    let remembered = if data.one_in(3) { data.number() } else { 0 };
    let earlier = Instance { generation: remembered, io_timeout: config.io_timeout };
    let mut machine = DeltaAcquire::new(config, vouched).remembering(Some(earlier));
    let from = scene.lab.trace.len();
    let end = scene.lab.run(&mut machine);
    check_writes(scene, from, &config);
    let joined = match end.outcome {
        Ok(joined) => joined,
        Err(error) => {
            drop(error.to_string());
            return None;
        }
    };
    assert!(joined.generation() > remembered && joined.last_good <= end.at);
    assert_eq!(joined.leader.timestamp.get(), joined.last_good.secs());
    if !scene.disturbed {
        assert_eq!(scene.delta_of(scene.host), joined.leader, "our record is on the disk");
        let found = before.owner_generation.get();
        assert!(joined.generation() > found);
        let ours = vouched == Some(found) && config.host_name.matches(&before.resource_name);
        if before.timestamp.get() != 0 && !ours {
            let owner = IoTimeout::from_disk(before.io_timeout.get(), config.io_timeout);
            let waited = end.at.secs_since(begun);
            assert!(
                waited >= owner.host_dead_secs(config.fire),
                "took a lease that may be alive after {waited} s"
            );
        }
    }
    Some(joined)
}

fn renew(scene: &mut Scene, data: &mut Data<'_>, config: DeltaConfig, joined: &Joined) {
    let mut machine = Renewal::new(config, joined);
    if data.one_in(4) {
        machine.set_read_extend_secs(data.byte().into());
    }
    let mut corrupt = false;
    let mut last = joined.leader.timestamp.get();
    for round in 0..RENEWALS_MAX {
        scene.disturb(data);
        if data.one_in(4) {
            let event = Event { generation: data.number(), event: data.number(), data: data.number() };
            machine.set_outgoing(event, Bitmap::default());
        }
        let from = scene.lab.trace.len();
        let good = machine.last_good();
        let end = if round == 0 { scene.lab.run(&mut machine) } else { scene.lab.rerun(&mut machine) };
        let trace = scene.lab.trace.get(from..).unwrap_or_default();
        assert!(trace.len() <= RENEWAL_OPERATIONS_MAX);
        assert!(!corrupt || trace.is_empty(), "nothing is written to a lease that is not ours");
        check_writes(scene, from, &config);
        for timestamp in trace.iter().filter_map(|traced| timestamp_of(&traced.op)) {
            assert!(timestamp > last, "no two renewals carry one timestamp");
            last = timestamp;
        }
        match end.outcome {
            RenewOutcome::Renewed(renewed) => {
                assert!(!corrupt && renewed.last_good <= end.at && renewed.last_good >= good);
                assert_eq!(renewed.last_good, machine.last_good());
                if !scene.disturbed {
                    let on_disk = scene.delta_of(scene.host);
                    assert!(on_disk.timestamp.get() >= renewed.last_good.secs(), "its time is on the disk");
                    assert_eq!(on_disk.owner_generation.get(), joined.generation());
                }
            }
            RenewOutcome::Failed(failure) => {
                drop(failure.to_string());
                assert!(machine.last_good() >= good);
            }
            RenewOutcome::Corrupt(_) => {
                corrupt = true;
                assert!(machine.corrupt().is_some() && machine.release().is_none());
            }
        }
        let pause = data.below(64) as u64;
        scene.lab.pass(&mut machine, pause);
        if !data.more() {
            break;
        }
    }
    leave(scene, data, config, &machine);
}

/// The timestamp that a write of a host id lease carries.
fn timestamp_of(op: &Op) -> Option<u64> {
    match &op.action {
        Action::Write { content: Content::Delta { leader, .. }, .. } => Some(leader.timestamp.get()),
        _ => None,
    }
}

fn leave(scene: &mut Scene, data: &mut Data<'_>, config: DeltaConfig, machine: &Renewal) {
    let Some(mut release) = machine.release() else { return };
    assert!(!machine.write_outstanding() && machine.corrupt().is_none());
    scene.calm();
    scene.disturb(data);
    let from = scene.lab.trace.len();
    let end = scene.lab.run(&mut release);
    assert!(scene.lab.trace.len() - from <= 2);
    check_writes(scene, from, &config);
    if end.outcome.is_ok() && !scene.disturbed {
        assert_eq!(scene.delta_of(scene.host).timestamp.get(), 0, "the lease is free");
    }
}

fn check_writes(scene: &Scene, from: usize, config: &DeltaConfig) {
    scene.check_operations(from);
    for traced in scene.lab.trace.get(from..).unwrap_or_default() {
        let op = &traced.op;
        assert_eq!(op.place, Place::Lockspace, "{op:?}");
        if let Action::Write { sector, content } = &op.action {
            assert_eq!(*sector, config.host.delta_sector(), "{op:?}");
            let Content::Delta { leader, .. } = content else { panic!("no delta lease: {op:?}") };
            check_record(leader, config);
        }
    }
}

fn check_record(leader: &RawLeader, config: &DeltaConfig) {
    verify::delta(leader, Some(&config.lockspace), Purpose::Use)
        .unwrap_or_else(|error| panic!("{error}: {leader:?}"));
    assert_eq!(leader.owner_id.get(), config.host.get(), "{leader:?}");
    assert!(config.host_name.matches(&leader.resource_name), "{leader:?}");
}
