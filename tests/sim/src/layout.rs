//! What is on the disks before a run: a lockspace on each, some resources, all free; and how they are named.

use crate::disk::{Area, SimDisk};
use sanlock_lease::geometry::{Geometry, HostId};
use sanlock_lease::limits::LVB_SECTOR;
use sanlock_lease::machine::Content;
use sanlock_lease::name::Name;
use sanlock_lease::paxos::PaxosConfig;
use sanlock_lease::record::{
    Bitmap, DELTA_MAGIC, DELTA_VERSION, HostBlock, PAXOS_MAGIC, PAXOS_VERSION, RawLeader, RequestRecord,
};
use sanlock_lease::text::{DiskSpec, LockspaceSpec, ResourceSpec};
use sanlock_lease::timing::{IoTimeout, WatchdogFire};
use std::sync::LazyLock;

/// Sizes of everything, unless a run has others.
pub const GEOMETRY: Geometry = Geometry::B512_M1;
/// Where the request for a resource lies.
pub const REQUEST_SECTOR: u64 = 1;

/// A name that is short enough by construction.
#[must_use]
pub fn name(text: &str) -> Name {
    let bytes = text.as_bytes();
    Name::new(&bytes[..bytes.len().min(48)]).unwrap_or_default()
}

/// Disks there may be. The first ones have a lockspace each, of the same number.
pub const DISKS_MAX: u8 = 4;
/// Lockspaces there may be.
pub const LOCKSPACES_MAX: u8 = 2;
/// Resources there may be in a lockspace.
pub const RESOURCES_MAX: u8 = 4;

/// The disk of a leg of a resource: its lockspace's, and the ones after that. So every disk but the first ones may have legs of
/// several lockspaces' resources.
#[must_use]
pub fn leg_disk(resource: u8, leg: u8) -> u8 {
    (disk_of(resource) + leg) % DISKS_MAX
}

/// The first disk of a resource, which is its lockspace's.
#[must_use]
pub fn disk_of(resource: u8) -> u8 {
    resource / RESOURCES_MAX
}

/// The lease whose place is named for that of this one by mistake: of the same lockspace, on the same disk. If there is no such lease its place
/// is empty.
#[must_use]
pub fn beside(resource: u8) -> u8 {
    resource ^ 1
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
    (0..LOCKSPACES_MAX).find(|disk| path(*disk) == spec.path).unwrap_or(0)
}

/// The disk of a lockspace of this name.
#[must_use]
pub fn disk_of_name(lockspace_name: Name) -> u8 {
    (0..LOCKSPACES_MAX).find(|disk| lockspace(*disk) == lockspace_name).unwrap_or(0)
}

/// A resource as a client names it, on so many disks with areas of these sizes.
#[must_use]
pub fn resource_spec(number: u8, legs: u8, geometry: Geometry) -> ResourceSpec {
    let place = |leg: u8| {
        let area = 1 + u64::from(leg * RESOURCES_MAX + number % RESOURCES_MAX);
        DiskSpec { path: path(leg_disk(number, leg)).to_vec(), offset: area * geometry.align().bytes() }
    };
    ResourceSpec {
        lockspace: lockspace(disk_of(number)),
        name: resource(number),
        disks: (0..legs).map(place).collect(),
        lver: None,
        shared: false,
    }
}

/// The resource that has a leg at a place.
#[must_use]
pub fn resource_at(place: &DiskSpec, geometry: Geometry) -> Option<u8> {
    let disk = (0..DISKS_MAX).find(|disk| path(*disk) == place.path)?;
    let area = u8::try_from(place.offset / geometry.align().bytes()).ok()?.checked_sub(1)?;
    let (leg, number) = (area / RESOURCES_MAX, area % RESOURCES_MAX);
    Some((disk + DISKS_MAX - leg % DISKS_MAX) % DISKS_MAX * RESOURCES_MAX + number)
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
    free_leader_of(number, num_hosts, GEOMETRY)
}

/// The same in an area of these sizes.
#[must_use]
pub fn free_leader_of(number: u8, num_hosts: u64, geometry: Geometry) -> RawLeader {
    let mut leader = RawLeader::zeroed();
    leader.magic = PAXOS_MAGIC.into();
    leader.version = PAXOS_VERSION.into();
    leader.flags = geometry.align().flag().into();
    leader.sector_size = geometry.sector().bytes().into();
    leader.num_hosts = num_hosts.into();
    leader.max_hosts = u64::from(geometry.max_hosts()).into();
    leader.space_name = lockspace(disk_of(number)).to_field();
    leader.resource_name = resource(number).to_field();
    leader.seal();
    leader
}

/// A free record of a lockspace.
#[must_use]
pub fn free_delta(disk: u8) -> RawLeader {
    free_delta_of(disk, GEOMETRY)
}

/// The same in an area of these sizes.
#[must_use]
pub fn free_delta_of(disk: u8, geometry: Geometry) -> RawLeader {
    let mut delta = RawLeader::zeroed();
    delta.magic = DELTA_MAGIC.into();
    delta.version = DELTA_VERSION.into();
    delta.flags = geometry.align().flag().into();
    delta.sector_size = geometry.sector().bytes().into();
    delta.max_hosts = 1.into();
    delta.space_name = lockspace(disk).to_field();
    delta.seal();
    delta
}

/// Disks with a formatted lockspace of some hosts and this many resources of each, on so many disks.
#[must_use]
pub fn formatted(
    hosts: u64,
    disks: u8,
    on_each: u8,
    legs: u8,
    num_hosts: u64,
    geometry: Geometry,
) -> SimDisk {
    let mut disk = SimDisk::new(geometry, legs);
    for number in 0..disks {
        for id in 1..=hosts {
            let content =
                Content::Delta { leader: free_delta_of(number, geometry), bitmap: Bitmap::default() };
            disk.land(Area::Lockspace(number), host_id(id).delta_sector(), &content);
        }
    }
    for number in resources(disks, on_each) {
        for leg in 0..legs {
            let leader = free_leader_of(number, num_hosts, geometry);
            disk.land(Area::Resource(number, leg), 0, &Content::Leader(leader));
        }
    }
    disk
}

/// Puts the record of no request where requests for these resources go.
pub fn format_requests(disk: &mut SimDisk, resources: impl Iterator<Item = u8>) {
    let mut bytes = vec![0; disk.sector_size().slice_len()];
    RequestRecord::none().encode(&mut bytes);
    let content = Content::Value(bytes.into());
    let legs = disk.legs();
    for (number, leg) in resources.flat_map(|number| (0..legs).map(move |leg| (number, leg))) {
        disk.land(Area::Resource(number, leg), REQUEST_SECTOR, &content);
    }
}

/// The request for a resource as it lies on the first of its disks, where it is looked for.
#[must_use]
pub fn request_on(disk: &SimDisk, number: u8) -> RequestRecord {
    RequestRecord::from_sector(disk.sector(Area::Resource(number, 0), REQUEST_SECTOR))
}

/// The leader of a resource as it lies on one of its disks.
#[must_use]
pub fn leader_on(disk: &SimDisk, number: u8, leg: u8) -> RawLeader {
    RawLeader::from_sector(disk.sector(Area::Resource(number, leg), 0))
}

/// The leader of a resource that whoever can read all of its disks goes by: what a majority of them agrees on up to the timestamp, and
/// if they differ in that alone, the free one. `None` if no majority agrees.
#[must_use]
pub fn leader_in_force(disk: &SimDisk, number: u8) -> Option<RawLeader> {
    let all: Vec<RawLeader> = (0..disk.legs()).map(|leg| leader_on(disk, number, leg)).collect();
    agreed(&all, disk)
}

/// The one of these that a majority of all disks has.
fn agreed(all: &[RawLeader], disk: &SimDisk) -> Option<RawLeader> {
    let by_majority = |l: &&RawLeader| {
        let same = all.iter().filter(|other| other.same_state(l)).count();
        u32::try_from(same).is_ok_and(|same| same >= disk.majority())
    };
    let mut in_force = all.iter().filter(by_majority);
    let first = in_force.next()?;
    let free = |l: &&RawLeader| l.timestamp.get() == 0;
    Some(if free(&first) { *first } else { *in_force.find(free).unwrap_or(first) })
}

/// The leader that whoever looks at all disks of a resource goes by: the newest, if no majority agrees.
#[must_use]
pub fn leader_gone_by(disk: &SimDisk, number: u8) -> Option<RawLeader> {
    gone_by((0..disk.legs()).map(|leg| leader_on(disk, number, leg)).collect(), disk)
}

/// The name of a resource that whoever looks at its disks takes for the present one; nobody can look at a dead one.
#[must_use]
pub fn name_on(disk: &SimDisk, number: u8, dead: Option<u8>) -> Name {
    let living = (0..disk.legs()).filter(|leg| Some(leg_disk(number, *leg)) != dead);
    let leaders = living.map(|leg| leader_on(disk, number, leg));
    // One that is being formatted has none.
    let leader = gone_by(leaders.filter(|leader| leader.magic.get() == PAXOS_MAGIC).collect(), disk);
    leader.map_or_else(|| resource(number), |leader| Name::from_field(&leader.resource_name))
}

fn gone_by(all: Vec<RawLeader>, disk: &SimDisk) -> Option<RawLeader> {
    agreed(&all, disk).or_else(|| all.into_iter().max_by_key(|l| (l.lver.get(), l.timestamp.get() == 0)))
}

/// The value block of a resource as it lies on the first of its disks, the only one that has it.
#[must_use]
pub fn value_on(disk: &SimDisk, number: u8) -> &[u8] {
    disk.sector(Area::Resource(number, 0), LVB_SECTOR)
}

/// A host's block of a resource as it lies on one of its disks.
#[must_use]
pub fn block_on(disk: &SimDisk, number: u8, leg: u8, host: HostId) -> HostBlock {
    HostBlock::from_sector(disk.sector(Area::Resource(number, leg), host.block_sector()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use sanlock_lease::machine::Content;

    /// Whoever wants a lease goes by the disks it can read: the newest name may be on one that is dead.
    #[test]
    fn the_name_is_that_of_the_newest_leader_on_a_disk_that_can_be_read() {
        let mut disk = SimDisk::new(GEOMETRY, 3);
        let (old, new) = (resource(0), other_name(0));
        for (leg, lver, name) in [(0, 166, old), (1, 167, new), (2, 164, old)] {
            let (magic, resource_name) = (PAXOS_MAGIC.into(), name.to_field());
            let leader = RawLeader { magic, lver: lver.into(), resource_name, ..RawLeader::zeroed() };
            disk.land(Area::Resource(0, leg), 0, &Content::Leader(leader));
        }
        assert_eq!(name_on(&disk, 0, None), new);
        assert_eq!(name_on(&disk, 0, Some(leg_disk(0, 1))), old);
        assert_eq!(name_on(&disk, 0, Some(leg_disk(0, 0))), new);
    }
}
