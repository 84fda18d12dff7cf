//! What is on the disks before a run: a lockspace on each, some resources, all free; and how they are named.

use crate::disk::{Area, SimDisk};
use sanlock_lease::geometry::{Geometry, HostId};
use sanlock_lease::limits::LVB_SECTOR;
use sanlock_lease::machine::Content;
use sanlock_lease::name::Name;
use sanlock_lease::paxos::PaxosConfig;
use sanlock_lease::record::{
    Bitmap, DELTA_MAGIC, DELTA_VERSION, HostBlock, PAXOS_MAGIC, PAXOS_VERSION, RawLeader,
};
use sanlock_lease::text::{DiskSpec, LockspaceSpec, ResourceSpec};
use sanlock_lease::timing::{IoTimeout, WatchdogFire};
use std::sync::LazyLock;

/// Sizes of everything in the simulator.
pub const GEOMETRY: Geometry = Geometry::B512_M1;

/// A name that is short enough by construction.
#[must_use]
pub fn name(text: &str) -> Name {
    let bytes = text.as_bytes();
    Name::new(&bytes[..bytes.len().min(48)]).unwrap_or_default()
}

/// Disks there may be, each with one lockspace of the same number.
pub const DISKS_MAX: u8 = 2;
/// Resources there may be on a disk.
pub const RESOURCES_MAX: u8 = 4;

/// The disk, and so the lockspace, of a resource.
#[must_use]
pub fn disk_of(resource: u8) -> u8 {
    resource / RESOURCES_MAX
}

/// The numbers of the resources when each of so many disks has so many of them.
pub fn resources(disks: u8, on_each: u8) -> impl Iterator<Item = u8> {
    (0..disks).flat_map(move |disk| (0..on_each).map(move |n| disk * RESOURCES_MAX + n))
}

/// The names of everything, made once: they are compared with every request.
struct Names {
    lockspaces: Vec<Name>,
    resources: Vec<Name>,
    paths: Vec<Vec<u8>>,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| Names {
    lockspaces: (0..DISKS_MAX).map(|disk| name(&format!("lockspace-{disk}"))).collect(),
    resources: (0..DISKS_MAX * RESOURCES_MAX).map(|number| name(&format!("resource-{number}"))).collect(),
    paths: (0..DISKS_MAX).map(|disk| format!("/disk-{disk}").into_bytes()).collect(),
});

/// A lockspace's name.
///
/// # Panics
/// There is no such disk.
#[must_use]
pub fn lockspace(disk: u8) -> Name {
    NAMES.lockspaces[usize::from(disk)]
}

fn path(disk: u8) -> &'static [u8] {
    &NAMES.paths[usize::from(disk)]
}

/// A lockspace as a client names it.
#[must_use]
pub fn lockspace_spec(disk: u8, host: HostId) -> LockspaceSpec {
    LockspaceSpec { name: lockspace(disk), host_id: host.get(), path: path(disk).to_vec(), offset: 0 }
}

/// The disk of a lockspace.
#[must_use]
pub fn disk_of_spec(spec: &LockspaceSpec) -> u8 {
    (0..DISKS_MAX).find(|disk| path(*disk) == spec.path).unwrap_or(0)
}

/// The disk of a lockspace of this name.
#[must_use]
pub fn disk_of_name(lockspace_name: Name) -> u8 {
    (0..DISKS_MAX).find(|disk| lockspace(*disk) == lockspace_name).unwrap_or(0)
}

/// A resource as a client names it.
#[must_use]
pub fn resource_spec(number: u8) -> ResourceSpec {
    let disk = disk_of(number);
    let offset = (1 + u64::from(number % RESOURCES_MAX)) * GEOMETRY.align().bytes();
    ResourceSpec {
        lockspace: lockspace(disk),
        name: resource(number),
        disks: vec![DiskSpec { path: path(disk).to_vec(), offset }],
        lver: None,
        shared: false,
    }
}

/// The resource at a place.
#[must_use]
pub fn resource_at(place: &DiskSpec) -> Option<u8> {
    let disk = (0..DISKS_MAX).find(|disk| path(*disk) == place.path)?;
    let number = u8::try_from(place.offset / GEOMETRY.align().bytes()).ok()?.checked_sub(1)?;
    Some(disk * RESOURCES_MAX + number)
}

/// The resource of these names.
#[must_use]
pub fn resource_named(lockspace: Name, name: Name) -> Option<u8> {
    (0..DISKS_MAX * RESOURCES_MAX).find(|n| resource(*n) == name && self::lockspace(disk_of(*n)) == lockspace)
}

/// A resource's name.
///
/// # Panics
/// There is no such resource.
#[must_use]
pub fn resource(number: u8) -> Name {
    NAMES.resources[usize::from(number)]
}

/// The other name a resource may get.
#[must_use]
pub fn other_name(number: u8) -> Name {
    name(&format!("renamed-{number}"))
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
    fire: WatchdogFire,
) -> PaxosConfig {
    PaxosConfig {
        lockspace: lockspace(disk_of(resource_number)),
        resource: resource(resource_number),
        host,
        generation,
        io_timeout,
        fire,
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
    leader.space_name = lockspace(disk_of(number)).to_field();
    leader.resource_name = resource(number).to_field();
    leader.seal();
    leader
}

/// A free record of a lockspace.
#[must_use]
pub fn free_delta(disk: u8) -> RawLeader {
    let mut delta = RawLeader::zeroed();
    delta.magic = DELTA_MAGIC.into();
    delta.version = DELTA_VERSION.into();
    delta.flags = GEOMETRY.align().flag().into();
    delta.sector_size = GEOMETRY.sector().bytes().into();
    delta.max_hosts = 1.into();
    delta.space_name = lockspace(disk).to_field();
    delta.seal();
    delta
}

/// Disks with a formatted lockspace of some hosts and this many resources on each.
#[must_use]
pub fn formatted(hosts: u64, disks: u8, on_each: u8, num_hosts: u64) -> SimDisk {
    let mut disk = SimDisk::new(GEOMETRY.sector());
    for number in 0..disks {
        for id in 1..=hosts {
            let content = Content::Delta { leader: free_delta(number), bitmap: Bitmap::default() };
            disk.land(Area::Lockspace(number), host_id(id).delta_sector(), &content);
        }
    }
    for number in resources(disks, on_each) {
        disk.land(Area::Resource(number), 0, &Content::Leader(free_leader(number, num_hosts)));
    }
    disk
}

/// The leader of a resource as it lies on the disk.
#[must_use]
pub fn leader_on(disk: &SimDisk, number: u8) -> RawLeader {
    RawLeader::from_sector(disk.sector(Area::Resource(number), 0))
}

/// The leader of a resource that those who read the disk now go by.
#[must_use]
pub fn leader_in_force(disk: &SimDisk, number: u8) -> Option<RawLeader> {
    Some(leader_on(disk, number))
}

/// The value block of a resource as it lies on the disk.
#[must_use]
pub fn value_on(disk: &SimDisk, number: u8) -> &[u8] {
    disk.sector(Area::Resource(number), LVB_SECTOR)
}

/// A host's block of a resource as it lies on the disk.
#[must_use]
pub fn block_on(disk: &SimDisk, number: u8, host: HostId) -> HostBlock {
    HostBlock::from_sector(disk.sector(Area::Resource(number), host.block_sector()))
}

/// Whose block a sector of a resource is.
#[must_use]
pub fn block_owner(sector: u64) -> Option<HostId> {
    let host = HostId::new(sector.checked_sub(1)?)?;
    (host.block_sector() == sector).then_some(host)
}

/// A host's delta lease as it lies on the disk.
#[must_use]
pub fn delta_on(disk: &SimDisk, number: u8, host: HostId) -> RawLeader {
    RawLeader::from_sector(disk.sector(Area::Lockspace(number), host.delta_sector()))
}
