//! Formatting, over whatever was there: cut short at any write, and torn anywhere, what is left is what was there, nothing, or all.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]

use sanlock_crash::disk::{Area, Areas, Disk, Disks};
use sanlock_crash::run::Recorder;
use sanlock_crash::torn::Write;
use sanlock_crash::world::{Hold, NUM_HOSTS, World, host_id, name};
use sanlock_lease::delta::{DeltaAcquire, DeltaConfig, JoinError};
use sanlock_lease::format::{Lockspace, Resource, order};
use sanlock_lease::geometry::{AlignSize, Geometry};
use sanlock_lease::paxos::AcquireError;
use sanlock_lease::paxos::acquire::AcquireOptions;
use sanlock_lease::record::RawLeader;
use sanlock_lease::timing::{IoTimeout, MonoTime};
use sanlock_lease::verify::{self, Expect, LeaderError, Purpose};

/// What an area is before it is formatted, with a name.
fn old_contents(geometry: Geometry) -> Vec<(&'static str, Vec<u8>)> {
    let len = usize::try_from(geometry.align().bytes()).unwrap();
    let noise = (0..len as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56).to_le_bytes()[0] | 1);
    let mut used = World::new(geometry, 1);
    for id in 1..=4 {
        used.join(id);
    }
    let lockspace = area_of(&used.disks, used.areas.lockspace.unwrap());
    for id in [2, 1, 3, 4] {
        let held = used.must_take(id, Hold::Exclusive);
        assert!(used.take(id % 4 + 1, Hold::Exclusive, AcquireOptions::default()).is_err());
        used.release(id, held);
    }
    used.must_take(2, Hold::Shared);
    let resource = area_of(&used.disks, used.areas.resource[0]);
    let mut all = vec![("zeros", vec![0; len]), ("a used lease", resource)];
    if geometry.align() == AlignSize::M1 {
        // Where every block differs it takes long.
        all.extend([("noise", noise.collect()), ("a lockspace", lockspace)]);
    }
    all
}

fn area_of(disks: &Disks, area: Area) -> Vec<u8> {
    disks.0[area.disk].read(area.offset, usize::try_from(area.bytes).unwrap()).unwrap()
}

fn disk_of(bytes: &[u8]) -> Disks {
    let mut disk = Disk::new(bytes.len() as u64);
    disk.write(0, bytes);
    Disks(vec![disk])
}

/// What a leader is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    Nothing,
    Cleared,
    Lease,
}

/// Cuts `writes` short everywhere. Each state is the old one, reads as `between`, or is the one at the end; done again, all of them
/// end the same. Returns the number of states.
fn cut_everywhere(
    what: &str,
    old: &[u8],
    writes: &[Vec<u8>],
    between: Reads,
    reads: impl Fn(&[u8]) -> Reads,
) -> usize {
    let begin = disk_of(old);
    let mut disks = begin.clone();
    let mut recorder = Recorder::default();
    let submitted = |bytes: &Vec<u8>| Write { disk: 0, offset: 0, bytes: bytes.clone() };
    for bytes in writes {
        recorder.submitted(&disks, &[submitted(bytes)], MonoTime::default());
        submitted(bytes).apply(&mut disks);
    }
    let end = disks;
    for (number, crash) in recorder.crashes.iter().enumerate() {
        let found = area_of(&crash.disks, whole(old.len()));
        let state = reads(&found);
        // Of a first sector of several blocks the last ones may be gone before the first one is.
        let untouched = crash.point == 1 && found[..512] == old[..512];
        assert!(
            untouched || crash.disks == end || state == between,
            "{what}: state {number}, died at write {}: {state:?}",
            crash.point
        );
        let mut again = crash.disks.clone();
        writes.iter().for_each(|bytes| submitted(bytes).apply(&mut again));
        assert!(again == end, "{what}: done again after state {number}");
    }
    recorder.crashes.len()
}

fn whole(len: usize) -> Area {
    Area { disk: 0, offset: 0, bytes: len as u64 }
}

#[test]
fn a_resource_is_not_there_until_it_is_complete() {
    let mut states = 0;
    for geometry in Geometry::ALL {
        let resource =
            Resource { lockspace: name("ls"), name: name("res"), geometry, num_hosts: 8, cleared_at: None };
        let reads = |area: &[u8]| match paxos(area) {
            Ok(_) => Reads::Lease,
            Err(LeaderError::Magic { .. }) => Reads::Nothing,
            Err(e) => panic!("neither a lease nor none: {e}"),
        };
        for (before, old) in old_contents(geometry) {
            let what = format!("{geometry:?} over {before}");
            states += cut_everywhere(&what, &old, &resource.writes(512), Reads::Nothing, reads);
            let cleared = Resource { cleared_at: Some(77), ..resource };
            let reads = |area: &[u8]| match paxos(area) {
                Ok(_) => Reads::Lease,
                Err(LeaderError::Cleared) => Reads::Cleared,
                Err(_) => Reads::Nothing,
            };
            states += cut_everywhere(&what, &old, &cleared.writes(512), Reads::Cleared, reads);
        }
    }
    println!("resource formatted or cleared: {states} states");
    assert!(states > 1000, "{states}");
}

fn paxos(area: &[u8]) -> Result<Geometry, LeaderError> {
    let expect = Expect { lockspace: Some(name("ls")), resource: Some(name("res")), host_id: None };
    verify::paxos(&RawLeader::from_sector(area), &expect, Purpose::Use)
}

/// No host joins, by whatever host id, before the last write; then every one can.
#[test]
fn a_lockspace_is_not_there_until_it_is_complete() {
    let mut states = 0;
    for geometry in Geometry::ALL {
        let lockspace = Lockspace { name: name("new"), geometry, io_timeout: IoTimeout::DEFAULT };
        let reads = |area: &[u8]| {
            let joins: Vec<_> =
                [1, 2, 8, 9, u64::from(geometry.max_hosts())].map(|id| join(area, id)).into_iter().collect();
            if joins.iter().all(Result::is_ok) {
                return Reads::Lease;
            }
            for join in joins {
                assert!(matches!(join, Err(JoinError::Leader(LeaderError::Magic { .. }))), "{join:?}");
            }
            Reads::Nothing
        };
        for (before, old) in old_contents(geometry) {
            if before == "a lockspace" {
                // What is found of the old one is judged by its name.
                let names = |area: &[u8]| match RawLeader::from_sector(area).magic.get() {
                    0 => Reads::Nothing,
                    _ => Reads::Lease,
                };
                states +=
                    cut_everywhere("over a lockspace", &old, &lockspace.writes(), Reads::Nothing, names);
                continue;
            }
            let what = format!("{geometry:?} over {before}");
            states += cut_everywhere(&what, &old, &lockspace.writes(), Reads::Nothing, reads);
        }
    }
    println!("lockspace formatted: {states} states");
    assert!(states > 400, "{states}");
}

fn join(area: &[u8], id: u64) -> Result<(), JoinError> {
    let mut world = World::new(Geometry::B512_M1, 1);
    world.disks = disk_of(area);
    world.areas = Areas { lockspace: Some(whole(area.len())), resource: Vec::new() };
    let config = DeltaConfig { lockspace: name("new"), host: host_id(id), ..World::delta_config(1) };
    world.drive(id, &mut DeltaAcquire::new(config, None), None).map(drop)
}

/// A resource of several disks is the old one, as long as a majority has it, or none, or the new one once a majority has that: at no
/// moment a mixture.
#[test]
fn a_resource_of_several_disks_is_there_once_a_majority_has_it() {
    let geometry = Geometry::B512_M1;
    for (disks, majority) in [(2, 2), (3, 2), (4, 3)] {
        for (used, renamed) in [(false, true), (true, true), (true, false)] {
            let mut world = World::new(geometry, disks);
            for id in 1..=3 {
                world.join(id);
            }
            if used {
                for id in [1, 2] {
                    let held = world.must_take(id, Hold::Exclusive);
                    world.release(id, held);
                }
            }
            // Another lease was here, or none, or one of the same name.
            world.resource = if renamed { name("new") } else { world.resource };
            let resource = Resource {
                lockspace: name("ls"),
                name: world.resource,
                geometry,
                num_hosts: NUM_HOSTS,
                cleared_at: None,
            };
            let writes = resource.writes(512);
            let order = order(&vec![writes.len(); disks]);
            for (at, (disk, number)) in order.iter().enumerate() {
                let done = |which: usize| order[..at].iter().filter(|(_, n)| *n == which).count();
                let (gone, have) = (done(0), done(writes.len() - 1));
                let taken = world.clone().take(3, Hold::Exclusive, AcquireOptions::default());
                match taken {
                    Ok(held) if have >= majority => assert_eq!(held.lver(), 1),
                    Ok(held) => assert!(!renamed && disks - gone >= majority && held.lver() == 3),
                    Err(AcquireError::Leader(_) | AcquireError::LeaderRead { .. }) => {
                        assert!(have < majority)
                    }
                    Err(e) => panic!("{disks} disks, at write {number} of disk {disk}: {e}"),
                }
                world.disks.write(world.areas.resource[*disk], 0, &writes[*number]);
            }
            world.must_take(3, Hold::Exclusive);
        }
    }
}
