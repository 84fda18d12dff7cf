//! What is on the disk before a run: one lockspace, some resources, all free.

use crate::disk::{Area, SimDisk};
use sanlock_lease::geometry::{Geometry, HostId};
use sanlock_lease::machine::Content;
use sanlock_lease::name::Name;
use sanlock_lease::paxos::PaxosConfig;
use sanlock_lease::record::{
    Bitmap, DELTA_MAGIC, DELTA_VERSION, HostBlock, PAXOS_MAGIC, PAXOS_VERSION, RawLeader,
};
use sanlock_lease::timing::{IoTimeout, WatchdogFire};

/// Sizes of everything in the simulator.
pub const GEOMETRY: Geometry = Geometry::B512_M1;

/// A name that is short enough by construction.
#[must_use]
pub fn name(text: &str) -> Name {
    let bytes = text.as_bytes();
    Name::new(&bytes[..bytes.len().min(48)]).unwrap_or_default()
}

/// The lockspace's name.
#[must_use]
pub fn lockspace() -> Name {
    name("lockspace")
}

/// A resource's name.
#[must_use]
pub fn resource(number: u8) -> Name {
    name(&format!("resource-{number}"))
}

/// A host id, which in the simulator is always a legal one.
///
/// # Panics
/// It is not between 1 and 2000.
#[must_use]
pub fn host_id(id: u64) -> HostId {
    match HostId::new(id) {
        Some(host) => host,
        None => panic!("no host id: {id}"),
    }
}

/// Who works on which resource.
#[must_use]
pub fn paxos_config(
    host: HostId,
    generation: u64,
    resource_number: u8,
    io_timeout: IoTimeout,
) -> PaxosConfig {
    PaxosConfig {
        lockspace: lockspace(),
        resource: resource(resource_number),
        host,
        generation,
        io_timeout,
        fire: WatchdogFire::DEFAULT,
        geometry: GEOMETRY,
        disks: 1,
    }
}

/// A free leader of a resource.
#[must_use]
pub fn free_leader(number: u8, num_hosts: u64) -> RawLeader {
    let mut leader = RawLeader::zeroed();
    leader.magic = PAXOS_MAGIC.into();
    leader.version = PAXOS_VERSION.into();
    leader.flags = GEOMETRY.align().flag().into();
    leader.sector_size = GEOMETRY.sector().bytes().into();
    leader.num_hosts = num_hosts.into();
    leader.max_hosts = u64::from(GEOMETRY.max_hosts()).into();
    leader.space_name = lockspace().to_field();
    leader.resource_name = resource(number).to_field();
    leader.seal();
    leader
}

/// A free record of the lockspace.
#[must_use]
pub fn free_delta() -> RawLeader {
    let mut delta = RawLeader::zeroed();
    delta.magic = DELTA_MAGIC.into();
    delta.version = DELTA_VERSION.into();
    delta.flags = GEOMETRY.align().flag().into();
    delta.sector_size = GEOMETRY.sector().bytes().into();
    delta.max_hosts = 1.into();
    delta.space_name = lockspace().to_field();
    delta.seal();
    delta
}

/// A disk with a formatted lockspace of some hosts and this many resources.
#[must_use]
pub fn formatted(hosts: u64, resources: u8, num_hosts: u64) -> SimDisk {
    let mut disk = SimDisk::new(GEOMETRY.sector());
    for id in 1..=hosts {
        let content = Content::Delta { leader: free_delta(), bitmap: Bitmap::default() };
        disk.land(Area::Lockspace, host_id(id).delta_sector(), &content);
    }
    for number in 0..resources {
        disk.land(Area::Resource(number), 0, &Content::Leader(free_leader(number, num_hosts)));
    }
    disk
}

/// The leader of a resource as it lies on the disk.
#[must_use]
pub fn leader_on(disk: &SimDisk, number: u8) -> RawLeader {
    RawLeader::from_sector(disk.sector(Area::Resource(number), 0))
}

/// A host's block of a resource as it lies on the disk.
#[must_use]
pub fn block_on(disk: &SimDisk, number: u8, host: HostId) -> HostBlock {
    HostBlock::from_sector(disk.sector(Area::Resource(number), host.block_sector()))
}

/// A host's delta lease as it lies on the disk.
#[must_use]
pub fn delta_on(disk: &SimDisk, host: HostId) -> RawLeader {
    RawLeader::from_sector(disk.sector(Area::Lockspace, host.delta_sector()))
}
