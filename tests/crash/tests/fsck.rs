//! Repairs of `sanlock fsck`, cut short at any write: what is left has no other damage than before, can be used, and repaired again it
//! is what it would have been.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]

use sanlock_crash::disk::{Area, BLOCK, Disk};
use sanlock_crash::run::Recorder;
use sanlock_crash::torn::Write;
use sanlock_crash::world::{Hold, World, host_id, name, nowait};
use sanlock_lease::delta::DeltaRelease;
use sanlock_lease::format::Resource;
use sanlock_lease::fsck::{
    Finding, Fix, Gone, Kind, Problem, check_against, check_index, check_lockspace, check_resource, mend,
};
use sanlock_lease::geometry::{AlignSize, Geometry, HostId, SectorSize};
use sanlock_lease::paxos::acquire::AcquireOptions;
use sanlock_lease::record::{HostBlock, MODE_SHARED, RawLeader, RindexEntry};
use sanlock_lease::rindex::{IndexView, LEASE_NAME, header};
use sanlock_lease::timing::MonoTime;
use std::collections::{BTreeMap, BTreeSet};

/// Slots of the index whose areas exist.
const SLOTS: u32 = 12;
/// Bytes of an entry.
const ENTRY: usize = 64;

/// What a damage does to the disks.
type Damage = (&'static str, fn(&mut Scene));

/// A lockspace and a lease that four hosts have used and left, and an index with leases, on a disk of its own.
#[derive(Clone)]
struct Scene {
    world: World,
    index: Area,
}

impl Scene {
    fn new(geometry: Geometry) -> Self {
        let mut world = World::new(geometry, 1);
        for id in 1..=4 {
            world.join(id);
        }
        for id in [2, 1, 3, 4] {
            let held = world.must_take(id, Hold::Exclusive);
            world.release(id, held);
        }
        let held = world.must_take(2, Hold::Shared);
        world.release(2, held);
        for id in 1..=4 {
            leave(&mut world, id);
        }
        let bytes = geometry.align().bytes();
        world.disks.0.push(Disk::new(bytes * u64::from(2 + SLOTS)));
        let mut scene = Self { world, index: Area { disk: 1, offset: 0, bytes } };
        let mut first = vec![0; geometry.sector().slice_len()];
        header(name("ls"), 0, geometry, 0).encode(&mut first);
        scene.world.disks.write(scene.index, 0, &first);
        scene.lease(0, std::str::from_utf8(LEASE_NAME).unwrap(), None);
        for slot in 0..SLOTS - 1 {
            let resource = format!("r{slot}");
            scene.lease(1 + u64::from(slot), &resource, None);
            scene.entry(|view| view.set(slot, name(&resource)));
        }
        scene
    }

    fn geometry(&self) -> Geometry {
        self.world.geometry
    }

    /// Writes a lease into the index's areas: 0 is the internal one, then the slots.
    fn lease(&mut self, number: u64, resource: &str, cleared_at: Option<u64>) {
        let geometry = self.geometry();
        let resource =
            Resource { lockspace: name("ls"), name: name(resource), geometry, num_hosts: 8, cleared_at };
        let area = Area { offset: (1 + number) * self.index.bytes, ..self.index };
        self.world.disks.write(area, 0, &resource.area());
    }

    fn entry(&mut self, change: impl FnOnce(&mut IndexView)) {
        let mut view = IndexView::read(&self.bytes(self.index), 0).unwrap();
        change(&mut view);
        self.world.disks.write(self.index, 0, view.bytes());
    }

    fn lockspace(&self) -> Area {
        self.world.areas.lockspace.unwrap()
    }

    fn resource(&self) -> Area {
        self.world.areas.resource[0]
    }

    fn bytes(&self, area: Area) -> Vec<u8> {
        self.world.disks.0[area.disk].read(area.offset, usize::try_from(area.bytes).unwrap()).unwrap()
    }

    /// Changes one sector of an area.
    fn sector(&mut self, area: Area, sector: u64, change: impl FnOnce(&mut [u8])) {
        let size = self.geometry().sector();
        let mut bytes = self.world.disks.sector(area, size, sector);
        change(&mut bytes);
        self.world.disks.write(area, sector * u64::from(size.bytes()), &bytes);
    }

    /// Changes a record that has a checksum, and gives it the right one.
    fn leader(&mut self, area: Area, sector: u64, change: impl FnOnce(&mut RawLeader)) {
        self.sector(area, sector, |bytes| {
            let mut record = RawLeader::from_sector(bytes);
            change(&mut record);
            record.seal();
            record.overlay(bytes);
        });
    }

    fn block(&mut self, id: u64, change: impl FnOnce(&mut HostBlock)) {
        let area = self.resource();
        self.sector(area, host_id(id).block_sector(), |bytes| {
            let mut block = HostBlock::from_sector(bytes);
            change(&mut block);
            block.dblock.seal();
            block.encode(bytes);
        });
    }

    /// The areas in the order in which they are repaired: the lockspace last, by which it is told who is alive.
    fn areas(&self) -> [(Kind, Area); 3] {
        [(Kind::Resource, self.resource()), (Kind::Index, self.index), (Kind::Lockspace, self.lockspace())]
    }

    /// What is found in each of the areas.
    fn findings(&self) -> Vec<(Kind, Area, Vec<Finding>)> {
        let geometry = self.geometry();
        let resource = check_resource(&self.bytes(self.resource()), geometry);
        let mut claims: BTreeMap<HostId, u64> = BTreeMap::new();
        for (host, generation) in &resource.claims {
            let most = claims.entry(*host).or_default();
            *most = (*most).max(*generation);
        }
        let lockspace = check_lockspace(&self.bytes(self.lockspace()), geometry, &claims);
        let areas = self.areas().into_iter().map(|(kind, area)| {
            let found = match kind {
                Kind::Lockspace => lockspace.findings.clone(),
                Kind::Resource => {
                    let against = check_against(&resource, &lockspace);
                    resource.findings.iter().cloned().chain(against).collect()
                }
                Kind::Index => {
                    let leader = |number: u64| {
                        let area = Area { offset: number * area.bytes, ..area };
                        RawLeader::from_sector(&self.world.disks.sector(area, geometry.sector(), 0))
                    };
                    let leases = (0..SLOTS).map(|slot| (slot, leader(2 + u64::from(slot)))).collect();
                    check_index(&self.bytes(area), 0, &leader(1), &leases).findings
                }
            };
            (kind, area, found)
        });
        areas.collect()
    }

    /// The writes of a repair, in order.
    fn repair(&self) -> Vec<Write> {
        let of = |(kind, area, found): (Kind, Area, Vec<Finding>)| {
            let fixes: Vec<Fix> = found.iter().filter_map(|f| f.fix).collect();
            let changes = mend(&self.bytes(area), area.offset, kind, self.geometry(), &fixes);
            changes.into_iter().map(move |change| Write {
                disk: area.disk,
                offset: area.offset + change.at,
                bytes: change.after,
            })
        };
        self.findings().into_iter().flat_map(of).collect()
    }

    fn repaired(&self) -> Self {
        let mut scene = self.clone();
        self.repair().iter().for_each(|write| write.apply(&mut scene.world.disks));
        scene
    }

    fn spots(&self) -> BTreeSet<(Problem, u64)> {
        let all = self.findings().into_iter().flat_map(|(_, area, found)| {
            found.into_iter().map(move |f| (f.problem, (area.disk as u64) << 40 | (area.offset + f.spot.at)))
        });
        all.collect()
    }
}

fn leave(world: &mut World, id: u64) {
    let joined = world.hosts[&id].joined;
    let config = World::delta_config(id);
    let mut machine = DeltaRelease::new(config, joined.geometry, joined.leader, joined.last_good);
    world.drive(id, &mut machine, None).unwrap();
    world.hosts.remove(&id);
}

/// Everything that can be mended, each in a place of its own, so that any of them go together. Two of the entries share their block, and
/// two their sector, in an index with sectors of 4096 bytes.
const DAMAGES: &[Damage] = &[
    ("a host id's record is gone", |s| {
        let area = s.lockspace();
        s.sector(area, host_id(3).delta_sector(), |bytes| bytes.fill(0));
    }),
    ("the record of a host id that leases name is gone", |s| {
        let area = s.lockspace();
        s.sector(area, host_id(2).delta_sector(), |bytes| bytes[..512].fill(0x55));
    }),
    ("a host id's record has a wrong checksum", |s| {
        let area = s.lockspace();
        s.sector(area, host_id(7).delta_sector(), |bytes| bytes[56] ^= 1);
    }),
    ("a host id's record is another's", |s| {
        let area = s.lockspace();
        s.leader(area, host_id(6).delta_sector(), |record| {
            record.owner_id = 4.into();
            record.owner_generation = 1.into();
        });
    }),
    ("a request that cannot be", |s| {
        let area = s.resource();
        s.sector(area, 1, |bytes| bytes[0] ^= 1);
    }),
    ("a ballot with a wrong checksum", |s| {
        let area = s.resource();
        s.sector(area, host_id(1).block_sector(), |bytes| bytes[16] ^= 2);
    }),
    ("a ballot of another host", |s| s.block(3, |block| block.dblock.mbal = 4.into())),
    ("a ballot ahead of the leader", |s| {
        s.block(4, |block| block.dblock.lver = 20.into());
    }),
    ("a leader with too many hosts", |s| {
        let area = s.resource();
        s.leader(area, 0, |leader| leader.num_hosts = 5000.into());
    }),
    ("a leader with another stride", |s| {
        let area = s.resource();
        s.leader(area, 0, |leader| leader.max_hosts = 7.into());
    }),
    ("an owner that cannot be", |s| {
        let area = s.resource();
        s.leader(area, 0, |leader| {
            leader.owner_id = 0.into();
            leader.timestamp = 9.into();
        });
    }),
    ("a shared hold without a generation", |s| s.block(5, |block| block.mode.flags = MODE_SHARED.into())),
    ("an entry is missing", |s| s.entry(|view| view.clear(1))),
    ("an entry has another name", |s| s.entry(|view| view.set(2, name("other")))),
    ("an entry of a lease that was cleared", |s| s.lease(1 + 9, "r9", Some(7))),
    ("another entry is missing", |s| s.entry(|view| view.clear(10))),
];

fn damaged(geometry: Geometry, damages: &[&Damage]) -> Scene {
    let mut scene = Scene::new(geometry);
    damages.iter().for_each(|(_, damage)| damage(&mut scene));
    scene
}

fn sizes() -> [Geometry; 3] {
    let small = Geometry::new(SectorSize::B4096, AlignSize::M1).unwrap();
    [Geometry::B512_M1, small, Geometry::B4096_M8]
}

/// Nothing changes but what was found, and what the records beside it in its sector say stays.
fn only_what_was_found_changes(before: &Scene, after: &Scene, what: &str) {
    let size = before.geometry().sector().slice_len();
    let claims = check_resource(&before.bytes(before.resource()), before.geometry()).claims;
    for (kind, area, found) in before.findings() {
        let fixes: Vec<&Finding> = found.iter().filter(|f| f.fix.is_some()).collect();
        let (old, new) = (before.bytes(area), after.bytes(area));
        let changed = old.chunks(size).zip(new.chunks(size)).enumerate().filter(|(_, (old, new))| old != new);
        for (sector, (old, new)) in changed {
            let sector = sector as u64;
            let here: Vec<&&Finding> = fixes
                .iter()
                .filter(|f| f.spot.sector == sector || (sector == 0 && f.problem == Problem::BallotAhead))
                .collect();
            assert!(!here.is_empty(), "{what}: {kind:?}: sector {sector} changes");
            match kind {
                Kind::Index => {
                    let entries = old.chunks(ENTRY).zip(new.chunks(ENTRY)).enumerate();
                    for (number, _) in entries.filter(|(_, (old, new))| old != new) {
                        let at = sector * size as u64 + (number * ENTRY) as u64;
                        let named = here.iter().any(|f| f.spot.at / ENTRY as u64 * ENTRY as u64 == at);
                        assert!(named, "{what}: the entry at {at} changes");
                    }
                }
                Kind::Resource if sector == 0 => {
                    let (old, new) = (RawLeader::from_sector(old), RawLeader::from_sector(new));
                    assert!(new.lver.get() >= old.lver.get(), "{what}: the version goes back");
                    let names = |leader: &RawLeader| (leader.space_name, leader.resource_name);
                    assert_eq!(names(&old), names(&new), "{what}");
                }
                Kind::Resource if sector > 1 => {
                    let (old, new) = (HostBlock::from_sector(old), HostBlock::from_sector(new));
                    let is =
                        |wanted: fn(&Fix) -> bool| here.iter().filter_map(|f| f.fix).any(|fix| wanted(&fix));
                    assert!(is(|fix| matches!(fix, Fix::Ballot(_))) || old.dblock == new.dblock, "{what}");
                    assert!(is(|fix| matches!(fix, Fix::Mode(_))) || old.mode == new.mode, "{what}");
                }
                Kind::Resource => {}
                Kind::Lockspace => {
                    let record = RawLeader::from_sector(new);
                    assert_eq!(record.timestamp.get(), 0, "{what}: sector {sector} is not free");
                    let generations = claims.iter().filter(|(host, _)| host.delta_sector() == sector);
                    let known = generations.map(|(_, generation)| *generation).max().unwrap_or(0);
                    assert!(record.owner_generation.get() >= known, "{what}: a generation is forgotten");
                }
            }
        }
    }
}

/// A host joins what an interrupted repair left, and takes the leases that it may take; it never gets a version that there was before.
/// Afterwards it leaves, and the repair is made all the same.
fn is_used(mut scene: Scene, trail: &str) {
    let lver = |scene: &Scene| scene.world.leader(0).lver.get();
    let before = lver(&scene);
    scene.world.join(8);
    let taken = scene.world.take(8, Hold::Exclusive, AcquireOptions::default());
    // Somebody silent may have been waited for, longer than a host may go without a renewal.
    scene.world.pass(0);
    if let Ok(held) = taken {
        assert!(held.lver() > before, "{trail}: version {} after {before}", held.lver());
        scene.world.release(8, held);
    }
    leave(&mut scene.world, 8);
    let repaired = scene.repaired();
    let left: Vec<Finding> = repaired.findings().into_iter().flat_map(|(.., found)| found).collect();
    assert!(left.iter().all(|f| f.fix.is_none()), "{trail}, used and repaired: {left:#?}");
    assert!(lver(&repaired) >= lver(&scene), "{trail}: the version goes back");
    can_be_taken(repaired, &format!("{trail}, used and repaired"));
}

/// By one host in turn after the other.
fn can_be_taken(mut scene: Scene, trail: &str) {
    let hosts = [5, 2, 3];
    hosts.iter().for_each(|id| scene.world.join(*id));
    let mut last = scene.world.leader(0).lver.get();
    for id in hosts {
        let held = scene.world.take(id, Hold::Exclusive, AcquireOptions::default());
        let held = held.unwrap_or_else(|e| panic!("{trail}: host {id} is refused: {e}"));
        assert!(held.lver() > last, "{trail}: version {} after {last}", held.lver());
        last = held.lver();
        for other in hosts.into_iter().filter(|other| *other != id) {
            let also = scene.world.clone().take(other, Hold::Shared, nowait());
            assert!(also.is_err(), "{trail}: host {other} has it beside host {id}");
        }
        scene.world.release(id, held);
    }
}

/// Cuts the repair of these damages short everywhere; returns the number of writes and of different states.
fn explore(geometry: Geometry, damages: &[&Damage]) -> (usize, usize) {
    let names: Vec<&str> = damages.iter().map(|(name, _)| *name).collect();
    let what = format!("{geometry:?}: {}", names.join(", "));
    let before = damaged(geometry, damages);
    let (found, writes) = (before.spots(), before.repair());
    assert!(!writes.is_empty(), "{what}: nothing is repaired");
    let mut recorder = Recorder::default();
    let mut disks = before.world.disks.clone();
    for write in &writes {
        recorder.submitted(&disks, std::slice::from_ref(write), MonoTime::default());
        write.apply(&mut disks);
    }
    let mut end = before.clone();
    end.world.disks = disks;
    let left: Vec<Finding> = end.findings().into_iter().flat_map(|(.., found)| found).collect();
    assert!(left.iter().all(|f| f.fix.is_none()), "{what}: {left:#?}");
    only_what_was_found_changes(&before, &end, &what);
    for (number, crash) in recorder.crashes.iter().enumerate() {
        let trail = format!("{what}; state {number}, died at write {} of {}", crash.point, writes.len());
        let mut scene = before.clone();
        scene.world.disks.clone_from(&crash.disks);
        let other: Vec<_> = scene.spots().difference(&found).copied().collect();
        assert_eq!(other, [], "{trail}: new damage");
        assert!(scene.repaired().world.disks == end.world.disks, "{trail}: repaired again");
        is_used(scene, &trail);
    }
    can_be_taken(end, &what);
    (writes.len(), recorder.crashes.len())
}

#[test]
fn a_repair_that_is_cut_short_is_ended_by_the_next_one() {
    let (mut writes, mut states) = (0, 0);
    for geometry in sizes() {
        let all: Vec<&Damage> = DAMAGES.iter().collect();
        let mut sets: Vec<Vec<&Damage>> = DAMAGES.iter().map(|damage| vec![damage]).collect();
        sets.push(all);
        for set in sets {
            let (some, more) = explore(geometry, &set);
            (writes, states) = (writes + some, states + more);
        }
    }
    println!("repairs: {writes} writes, {states} states");
    assert!(states > 3 * 2 * DAMAGES.len(), "{states}");
}

/// What the scenes stand for: every repair there is, and who has to be gone for it.
#[test]
fn every_repair_is_among_them() {
    let scene = damaged(Geometry::B512_M1, &DAMAGES.iter().collect::<Vec<_>>());
    let fixes: Vec<Fix> = scene
        .findings()
        .into_iter()
        .flat_map(|(.., found)| found.into_iter().filter_map(|f| f.fix))
        .collect();
    let has = |wanted: fn(&Fix) -> bool| assert!(fixes.iter().any(wanted), "{fixes:#?}");
    has(|fix| matches!(fix, Fix::FreeHost { generation: 0, .. }));
    has(|fix| matches!(fix, Fix::FreeHost { generation: 1.., .. }));
    has(|fix| matches!(fix, Fix::LeaderNumHosts));
    has(|fix| matches!(fix, Fix::LeaderMaxHosts));
    has(|fix| matches!(fix, Fix::LeaderFree));
    has(|fix| matches!(fix, Fix::LeaderForward { .. }));
    has(|fix| matches!(fix, Fix::Request));
    has(|fix| matches!(fix, Fix::Ballot(_)));
    has(|fix| matches!(fix, Fix::Mode(_)));
    has(|fix| matches!(fix, Fix::Enter { .. }));
    has(|fix| matches!(fix, Fix::Remove { .. }));
    assert!(fixes.iter().all(|fix| (fix.gone() == Gone::Everybody) != matches!(fix, Fix::FreeHost { .. })));
    const { assert!(BLOCK.is_multiple_of(ENTRY) && size_of::<RindexEntry>() == ENTRY) };
}
