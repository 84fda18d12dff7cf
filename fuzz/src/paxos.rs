//! Resource leases: every machine on areas that hold anything, with a disk that does anything, while others write.

use sanlock_lease::geometry::{Geometry, HostId};
use sanlock_lease::limits::LVB_SECTOR;
use sanlock_lease::machine::{Action, Content, Op, Place};
use sanlock_lease::name::Name;
use sanlock_lease::paxos::acquire::{AcquireOptions, AcquireOutcome, Mode};
use sanlock_lease::paxos::release::Released;
use sanlock_lease::paxos::take::Taken;
use sanlock_lease::paxos::{
    Held, PaxosAcquire, PaxosConfig, PaxosConvert, PaxosRelease, PaxosShare, PaxosTake,
};
use sanlock_lease::record::{HostBlock, RawLeader};
use sanlock_lease::testing::Finished;
use sanlock_lease::timing::{IoTimeout, MonoTime};
use sanlock_lease::verify::{self, Expect, Purpose};
use std::sync::Arc;

use crate::data::Data;
use crate::scene::{Scene, lockspace, resource};

/// Machines one after the other.
const MACHINES_MAX: usize = 5;

/// What this host has of the lease.
#[derive(Clone, Copy, Debug)]
enum Hold {
    /// Nothing.
    Nothing,
    /// It may have something: only a retract may follow.
    Unknown(Geometry, Option<HostBlock>),
    /// The lease.
    Held(Held),
}

/// Takes, shares, converts, releases and retracts one resource.
///
/// * Every machine ends, within [`crate::scene::OPERATIONS_MAX`] operations.
/// * It writes our own block, the leader, the value block that it was given, and mode blocks of dead holders, and nothing else; all
///   that it writes is sealed, and a leader that it writes can be read by everybody.
/// * When it says that the lease is ours, the disks say so; when it says that the lease is free, they do not name us.
/// * It never says so while another host owns the lease, or holds it shared, that by the same disks may be alive.
pub fn paxos(data: &[u8]) {
    let mut data = Data::new(data);
    let mut scene = Scene::new(&mut data);
    scene.furnish(&mut data);
    let mut hold = Hold::Nothing;
    for _ in 0..MACHINES_MAX {
        scene.disturb(&mut data);
        hold = one(&mut scene, &mut data, hold);
        scene.calm();
        if !data.more() {
            break;
        }
    }
}

fn config(scene: &Scene) -> PaxosConfig {
    PaxosConfig {
        lockspace: lockspace(),
        resource: resource(),
        host: scene.host,
        generation: scene.generation,
        io_timeout: scene.io_timeout,
        fire: Scene::fire(),
        geometry: scene.outer,
        disks: scene.disks,
    }
}

fn options(data: &mut Data<'_>, mode: Mode) -> AcquireOptions {
    let odd = data.byte();
    AcquireOptions {
        owner_nowait: odd & 1 != 0,
        lver: (odd & 2 != 0).then(|| data.number()),
        num_hosts: (odd & 4 != 0).then(|| data.number()),
        seed: u64::from(odd),
        mode,
    }
}

/// What a machine may write.
#[derive(Clone, Debug, Default)]
struct May {
    value: bool,
    /// Mode blocks of others, as an exclusive acquire clears them.
    clear: bool,
    rename: Option<Name>,
}

fn one(scene: &mut Scene, data: &mut Data<'_>, hold: Hold) -> Hold {
    let config = config(scene);
    let from = scene.lab.trace.len();
    let before = Before::new(scene);
    let choice = data.byte();
    let (hold, may) = match hold {
        Hold::Nothing if choice % 8 == 7 => {
            // An acquire of an earlier life may have left something.
            let geometry = scene.inner;
            let mut machine = PaxosRelease::retract(config, geometry);
            (release(scene, &mut machine, geometry, None), May::default())
        }
        Hold::Nothing => match choice % 8 {
            0 | 1 => {
                let mut machine = PaxosAcquire::new(config, options(data, Mode::Exclusive));
                let end = scene.lab.run(&mut machine);
                (taken(scene, &before, &end, end.outcome), May { clear: true, ..May::default() })
            }
            2 => {
                let options = options(data, Mode::ShortHold);
                let mut machine = PaxosShare::new(config, options, u32::from(choice) / 8 % 4);
                let end = scene.lab.run(&mut machine);
                (taken(scene, &before, &end, end.outcome), May::default())
            }
            n => {
                let mode = if n % 2 == 0 { Mode::ShortHold } else { Mode::Exclusive };
                let mut machine = PaxosTake::new(config, options(data, mode), 2, choice >= 128);
                let end = scene.lab.run(&mut machine);
                check_value(scene, &end.outcome);
                (taken(scene, &before, &end, end.outcome.outcome), May { clear: true, ..May::default() })
            }
        },
        Hold::Unknown(geometry, attempt) => {
            let mut machine = PaxosRelease::retract(config, geometry).of_attempt(attempt);
            (release(scene, &mut machine, geometry, attempt), May::default())
        }
        Hold::Held(held) => held_one(scene, data, &before, held, choice),
    };
    scene.check_operations(from);
    for traced in scene.lab.trace.get(from..).unwrap_or_default() {
        check_write(scene, &traced.op, &may);
    }
    hold
}

fn held_one(scene: &mut Scene, data: &mut Data<'_>, before: &Before, held: Held, choice: u8) -> (Hold, May) {
    let config = config(scene);
    let value = (choice >= 128 && held.geometry.lvb_fits() && !held.is_shared())
        .then(|| Arc::from(vec![choice; held.geometry.sector().slice_len()]));
    let mut may = May { value: value.is_some(), ..May::default() };
    match choice % 4 {
        0 if held.is_shared() => {
            may.clear = true;
            let mut machine = PaxosConvert::to_exclusive(config, options(data, Mode::Upgrade), held);
            let end = scene.lab.run(&mut machine);
            if end.outcome.result.is_ok() {
                check_taken(scene, before, &end.outcome.held, end.at, false);
            }
            let unsure = end.outcome.erase || end.outstanding > 0;
            (if unsure { Hold::Unknown(held.geometry, None) } else { Hold::Held(end.outcome.held) }, may)
        }
        0 => {
            let mut machine = PaxosConvert::to_shared(config, held).with_value(value);
            let end = scene.lab.run(&mut machine);
            if end.outcome.result.is_ok() {
                assert!(end.outcome.held.is_shared());
                check_mode(scene, &end.outcome.held);
            }
            let unsure = end.outcome.erase || end.outstanding > 0;
            (if unsure { Hold::Unknown(held.geometry, None) } else { Hold::Held(end.outcome.held) }, may)
        }
        1 if held.is_shared() => {
            let mut machine = PaxosConvert::erase(config, held);
            let end = scene.lab.run(&mut machine);
            assert!(end.outcome.held.is_shared());
            (Hold::Held(end.outcome.held), may)
        }
        2 if !held.is_shared() => {
            let name = Name::new(b"renamed").unwrap_or_default();
            may.rename = Some(name);
            let mut machine = PaxosRelease::new(config, held).with_value(value).renamed(Some(name));
            release(scene, &mut machine, held.geometry, None);
            // Under its new name it is another resource.
            (Hold::Nothing, may)
        }
        _ => {
            let mut machine = PaxosRelease::new(config, held).with_value(value);
            (release(scene, &mut machine, held.geometry, None), may)
        }
    }
}

fn release(
    scene: &mut Scene,
    machine: &mut PaxosRelease,
    geometry: Geometry,
    attempt: Option<HostBlock>,
) -> Hold {
    let end = scene.lab.run(machine);
    if end.outcome.needs_retract() || end.outstanding > 0 {
        return Hold::Unknown(geometry, attempt);
    }
    if end.outcome.result == Ok(Released::LeaderFreed) && !scene.disturbed {
        let majority = |test: &dyn Fn(u8) -> bool| {
            (0..scene.disks).filter(|disk| test(*disk)).count() * 2 > usize::from(scene.disks)
        };
        assert!(
            majority(&|disk| scene.leader_on(disk, geometry.sector()).timestamp.get() == 0),
            "freed on a majority"
        );
    }
    Hold::Nothing
}

/// What a value machine brought is what is on disk 0.
fn check_value(scene: &Scene, taken: &Taken) {
    if let (AcquireOutcome::Acquired(held), Some(Ok(value)), false) =
        (&taken.outcome, &taken.value, scene.disturbed)
    {
        let on_disk = scene.lab.disk.sector(Place::Resource(0), held.geometry.sector(), LVB_SECTOR);
        assert_eq!(&**value, on_disk.as_slice());
    }
}

fn taken<O>(scene: &Scene, before: &Before, end: &Finished<O>, outcome: AcquireOutcome) -> Hold {
    match outcome {
        AcquireOutcome::Acquired(held) => {
            assert_eq!(
                (held.leader.owner_id.get(), held.leader.owner_generation.get()),
                (scene.host.get(), scene.generation)
            );
            if held.is_shared() {
                check_mode(scene, &held);
            }
            check_taken(scene, before, &held, end.at, held.is_shared());
            if end.outstanding > 0 { Hold::Unknown(held.geometry, None) } else { Hold::Held(held) }
        }
        AcquireOutcome::Failed { error, retract, geometry } => {
            drop(error.to_string());
            let left = retract.is_some() || end.outstanding > 0;
            if left { Hold::Unknown(geometry, retract) } else { Hold::Nothing }
        }
    }
}

/// Our shared hold is on a majority of the disks.
fn check_mode(scene: &Scene, held: &Held) {
    if scene.disturbed {
        return;
    }
    let ours = |block: HostBlock| block.mode.is_shared() && block.mode.generation.get() == scene.generation;
    let size = held.geometry.sector();
    let count = (0..scene.disks).filter(|disk| ours(scene.block_on(*disk, size, scene.host))).count();
    assert!(count * 2 > usize::from(scene.disks), "shared on {count} of {} disks", scene.disks);
}

/// What was on the disks before a machine ran.
struct Before {
    at: MonoTime,
    leader: Option<(RawLeader, Geometry)>,
    blocks: Vec<(HostId, HostBlock, RawLeader)>,
}

impl Before {
    /// For the rules of a single disk, which need no majority to be told apart.
    fn new(scene: &Scene) -> Self {
        let at = scene.lab.now;
        let size = scene.inner.sector();
        let leader = scene.leader_on(0, size);
        let expect =
            Expect { lockspace: Some(lockspace()), resource: Some(resource()), host_id: Some(scene.host) };
        let leader = verify::paxos(&leader, &expect, Purpose::Use).ok().map(|geometry| (leader, geometry));
        let Some((record, _)) = leader.filter(|(_, geometry)| scene.disks == 1 && *geometry == scene.inner)
        else {
            return Self { at, leader: None, blocks: Vec::new() };
        };
        let mut blocks = Vec::new();
        let used = scene.lab.disk.view(Place::Resource(0), size, 0, 2 + record.num_hosts.get());
        let mut next = 2;
        while let Some(sector) =
            used.as_ref().and_then(|view| sanlock_lease::machine::Sectors::next_in_use(view, next))
        {
            next = sector + 1;
            let Some(host) = HostId::new(sector - 1).filter(|host| host.get() <= record.num_hosts.get())
            else {
                continue;
            };
            blocks.push((host, scene.block_on(0, size, host), scene.delta_of(host)));
        }
        Self { at, leader, blocks }
    }
}

/// The disks say that the lease is ours, and nobody who may be alive stood in the way.
fn check_taken(scene: &Scene, before: &Before, held: &Held, at: MonoTime, shared: bool) {
    if scene.disturbed {
        return;
    }
    let size = held.geometry.sector();
    if !shared {
        let ours = |disk: u8| scene.leader_on(disk, size) == held.leader;
        let count = (0..scene.disks).filter(|disk| ours(*disk)).count();
        assert!(count * 2 > usize::from(scene.disks), "ours on {count} of {} disks: {held:?}", scene.disks);
    }
    let Some((leader, _)) = before.leader else { return };
    assert!(held.leader.lver > leader.lver, "a version of its own");
    let owner = leader.owner_id.get();
    if leader.timestamp.get() != 0 && owner != scene.host.get() {
        let Some(host) = HostId::new(owner) else {
            panic!("an impossible owner was passed over: {leader:?}")
        };
        let generation = leader.owner_generation.get();
        assert!(
            gave_up(before, &leader) || gone(scene, before, host, generation, at),
            "{leader:?} may be alive"
        );
    }
    if !shared {
        for (host, block, _) in
            before.blocks.iter().filter(|(host, block, _)| *host != scene.host && block.mode.is_shared())
        {
            assert!(
                gone(scene, before, *host, block.mode.generation.get(), at),
                "{host} holds it shared: {block:?}"
            );
        }
    }
}

/// Somebody else wrote the leader in the owner's name, and the owner's own block says that it let go.
fn gave_up(before: &Before, leader: &RawLeader) -> bool {
    let owner = before.blocks.iter().find(|(host, ..)| host.get() == leader.owner_id.get());
    let block = owner.map_or_else(HostBlock::zeroed, |(_, block, _)| *block).dblock;
    let lver = block.lver.get();
    leader.write_id != leader.owner_id
        && (lver > leader.lver.get() || (block.is_released() && (lver == leader.lver.get() || lver == 0)))
}

/// By its delta lease, which nobody changed meanwhile, the instance of the host is gone, or silent for longer than the watchdog allows.
fn gone(scene: &Scene, before: &Before, host: HostId, generation: u64, at: MonoTime) -> bool {
    let delta = scene.delta_of(host);
    let on_disk = delta.owner_generation.get();
    let its_own = delta.owner_id.get() == host.get();
    if its_own && (on_disk > generation || (delta.timestamp.get() == 0 && on_disk == generation)) {
        return true;
    }
    // Or it has seen that instance with the time that is on the disk. Only a free record is like that, with 0: the instance had given up.
    let seen = scene.seen.get(&host.get()).filter(|seen| {
        let same = seen.owner_id == delta.owner_id.get() && seen.owner_generation == on_disk;
        let instance = seen.owner_id == host.get() && seen.owner_generation == generation;
        (same || (instance && seen.timestamp == 0)) && seen.timestamp == delta.timestamp.get()
    });
    let since = seen.map_or(before.at, |seen| seen.last_live.unwrap_or(seen.first_check)).min(before.at);
    let newest = scene.seen.get(&host.get()).map_or(0, |seen| seen.newest_generation);
    let unknown = delta.owner_id.get() != 0 && on_disk < generation && newest < generation;
    let field = if unknown { u16::from(u8::MAX) } else { delta.io_timeout.get() };
    let io_timeout = IoTimeout::from_disk(field, scene.io_timeout);
    at.secs_since(since) >= io_timeout.host_dead_secs(Scene::fire())
}

fn check_write(scene: &Scene, op: &Op, may: &May) {
    let Action::Write { sector, content } = &op.action else { return };
    assert!(matches!(op.place, Place::Resource(_)), "a resource's machine writes no delta lease: {op:?}");
    match content {
        Content::Leader(leader) => {
            assert_eq!(*sector, 0, "{op:?}");
            let resource = match may.rename {
                Some(name) if name.matches(&leader.resource_name) => name,
                _ => resource(),
            };
            let expect =
                Expect { lockspace: Some(lockspace()), resource: Some(resource), host_id: Some(scene.host) };
            let geometry = verify::paxos(leader, &expect, Purpose::Use)
                .unwrap_or_else(|error| panic!("{error}: {op:?}"));
            assert_eq!(geometry.sector(), op.sector_size, "{op:?}");
            assert_eq!(leader.write_id.get(), scene.host.get(), "{op:?}");
        }
        Content::Block(_) if *sector == scene.host.block_sector() => {}
        Content::Block(block) => {
            assert!(may.clear && !block.mode.is_shared(), "another host's block: {op:?}");
            let size = op.sector_size;
            let Place::Resource(disk) = op.place else { return };
            let Some(host) = sector.checked_sub(1).and_then(HostId::new) else { panic!("no block: {op:?}") };
            if !scene.disturbed {
                assert_eq!(scene.block_on(disk, size, host).dblock, block.dblock, "its ballot stays: {op:?}");
            }
        }
        Content::Value(_) => {
            assert!(may.value && *sector == LVB_SECTOR && op.place == Place::Resource(0), "{op:?}")
        }
        Content::Delta { .. } => panic!("a delta lease: {op:?}"),
    }
}
