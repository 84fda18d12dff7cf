//! The delta machines against a disk in memory.

mod acquire;
mod doubt;
mod drive;
mod race;
mod renew;
mod scan;
mod seldom;
mod spots;
mod standstill;

use super::{DeltaAcquire, DeltaConfig, Joined};
use crate::format::Lockspace;
use crate::geometry::{Geometry, HostId, SectorSize};
use crate::machine::Place;
use crate::name::Name;
use crate::record::RawLeader;
use crate::testing::Lab;
use crate::timing::{IoTimeout, MonoTime, WatchdogFire};

fn name(s: &str) -> Name {
    Name::new(s.as_bytes()).unwrap()
}

fn host(id: u64) -> HostId {
    HostId::new(id).unwrap()
}

fn timeout(secs: u32) -> IoTimeout {
    IoTimeout::new(secs).unwrap()
}

/// Host 1, "alpha", with an io timeout of one second.
fn config() -> DeltaConfig {
    DeltaConfig {
        lockspace: name("ls"),
        host: host(1),
        host_name: name("alpha"),
        io_timeout: timeout(1),
        fire: WatchdogFire::DEFAULT,
    }
}

/// A lab with a formatted lockspace.
fn lab_with(geometry: Geometry, io_timeout: u32) -> Lab {
    let mut lab = Lab::new();
    let format = Lockspace { name: name("ls"), geometry, io_timeout: timeout(io_timeout) };
    let mut area = format.area();
    let first = format.first_sector();
    area[..first.len()].copy_from_slice(&first);
    lab.disk.add(Place::Lockspace, geometry.align().bytes());
    assert!(lab.disk.write(Place::Lockspace, geometry.sector(), 0, &area));
    lab
}

fn lab() -> Lab {
    lab_with(Geometry::B512_M1, 1)
}

fn record(lab: &Lab, id: u64) -> RawLeader {
    RawLeader::from_sector(&lab.disk.sector(Place::Lockspace, SectorSize::B512, host(id).delta_sector()))
}

/// Changes a host's record and seals it again; the bitmap stays.
fn edit(lab: &mut Lab, id: u64, change: impl FnOnce(&mut RawLeader)) {
    let mut leader = record(lab, id);
    change(&mut leader);
    leader.seal();
    lab.disk.edit(Place::Lockspace, SectorSize::B512, host(id).delta_sector(), |sector| {
        let bitmap = crate::record::Bitmap::from_sector(sector);
        leader.encode(Some(&bitmap), sector);
    });
}

/// Somebody else's claim.
fn held_by(owner: &str, id: u64, generation: u64, timestamp: u64) -> impl FnOnce(&mut RawLeader) + use<> {
    let owner = name(owner);
    move |leader| {
        leader.owner_id = id.into();
        leader.owner_generation = generation.into();
        leader.resource_name = owner.to_field();
        leader.timestamp = timestamp.into();
    }
}

fn join(lab: &mut Lab) -> Joined {
    lab.run(&mut DeltaAcquire::new(config(), None)).outcome.unwrap()
}

fn secs(s: u64) -> MonoTime {
    MonoTime::from_secs(s)
}
