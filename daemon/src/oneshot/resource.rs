//! Reading a resource and its owners, and formatting a resource (socket-protocol.md 7.18, 7.20, 7.23).

use super::sizes::{Hints, with_sizes_of};
use super::{Io, ToolError, fits, room_for_format};
use sanlock_blockio::Disk;
use sanlock_lease::format;
use sanlock_lease::geometry::{AlignSize, Geometry, HostId, SectorSize};
use sanlock_lease::limits::SECTOR_BYTES_MAX;
use sanlock_lease::name::Name;
use sanlock_lease::record::{HostBlock, RawLeader};
use sanlock_lease::verify::{self, Expect, LeaderError, Purpose};
use sanlock_sys::clock::boottime_seconds;
use sanlock_wire::flags::{ResourceFlags, WriteFlags};
use sanlock_wire::name as wire;
use sanlock_wire::types::{Host, Resource, ResourceSpec};
use std::sync::Arc;

/// All disks of a resource, in order; they must all be there.
fn open_all(io: &Io, spec: &ResourceSpec) -> Result<Vec<Arc<Disk>>, ToolError> {
    spec.disks().iter().map(|disk| io.open_resource(disk)).collect()
}

/// The disks of a resource that can be opened, in order, and the offset of the lease on each. A majority must be there, as for the lease
/// itself (lease-algorithms.md 4.8); without one the first that is not says why.
pub(super) fn open_most(io: &Io, spec: &ResourceSpec) -> Result<Vec<(Arc<Disk>, u64)>, ToolError> {
    let (mut there, mut missing) = (Vec::new(), None);
    for disk in spec.disks() {
        match io.open_resource(disk) {
            Ok(opened) => there.push((opened, disk.offset.get())),
            Err(error) => missing = missing.or(Some(error)),
        }
    }
    match missing {
        Some(error) if there.len() <= spec.disks().len() / 2 => Err(error),
        _ => Ok(there),
    }
}

/// The first disk that is there, which alone is read, and the offset of the lease on it.
pub(super) fn open_first(io: &Io, spec: &ResourceSpec) -> Result<(Arc<Disk>, u64), ToolError> {
    open_most(io, spec)?.into_iter().next().ok_or(ToolError::NoDisks)
}

/// Reads the leader and returns the resource with names, lease version and size flags as on disk; other fields as asked. An
/// empty name matches every name; wrong size flags are corrected.
///
/// # Errors
/// -34: no disk. The errno of opening one. -223, -224, -226, -227, -229: no lease, unknown version, another lockspace or
/// resource, damaged. -228: more hosts than the sizes allow. I/O: -90 beyond the end, -202 no answer in time, or the errno.
pub fn read_resource(io: &mut Io, request: &ResourceSpec) -> Result<Resource, ToolError> {
    let (disk, offset) = open_first(io, request)?;
    let asked = *request.resource();
    let len = match Hints::from_flags(asked.flags.get()).sector {
        // A block is the least that can be read; the leader comes first in it.
        Some(SectorSize::B512) if disk.logical_block_size() <= 512 => SectorSize::B512.slice_len(),
        _ => SECTOR_BYTES_MAX,
    };
    let leader = RawLeader::from_sector(&io.read(&disk, offset, len)?);

    let (lockspace, name) = names(&asked);
    let expect = Expect {
        lockspace: (!lockspace.is_empty()).then_some(lockspace),
        resource: (!name.is_empty()).then_some(name),
        host_id: None,
    };
    match verify::paxos(&leader, &expect, Purpose::Read) {
        // Sizes are the last thing checked of what is shown here: a lease that says none is shown without (disk-format.md 2.4).
        Ok(_) | Err(LeaderError::SectorSize { .. } | LeaderError::Sizes(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let mut found = asked;
    found.lockspace_name = wire_name(&leader.space_name);
    found.name = wire_name(&leader.resource_name);
    found.lver = leader.lver.get().into();
    found.flags = with_sizes_of(asked.flags.get(), &leader).into();
    Ok(found)
}

/// Reads a whole lease and returns the resource with its lease version, `SHARED` set if it was asked with or anybody holds it shared,
/// and its holders: the exclusive owner with its timestamp, if there is one, then those that hold it shared, with timestamp 0. Whether
/// they are alive is not looked at.
///
/// # Errors
/// As [`read_resource`], with these differences: both names must be those on disk. -22: size flags that contradict the lease, or
/// a lease that states no usable sizes (so does an area never formatted). -228 with more hosts than the sizes allow: nothing
/// beyond the area is looked at.
pub fn read_resource_owners(io: &mut Io, request: &ResourceSpec) -> Result<(Resource, Vec<Host>), ToolError> {
    let (disk, offset) = open_first(io, request)?;
    let asked = *request.resource();
    let hints = Hints::from_flags(asked.flags.get());
    let assumed = hints.align.unwrap_or(AlignSize::M1);
    let mut area = io.read(&disk, offset, area_len(assumed))?;
    let sizes = verify::sizes(&RawLeader::from_sector(&area)).map_err(ToolError::UnknownSizes)?;
    hints.check(sizes)?;
    if sizes.align() != assumed {
        area = io.read(&disk, offset, area_len(sizes.align()))?;
    }

    let leader = RawLeader::from_sector(&area);
    let (lockspace, resource) = names(&asked);
    let expect = Expect { lockspace: Some(lockspace), resource: Some(resource), host_id: None };
    if verify::paxos(&leader, &expect, Purpose::Read)? != sizes {
        return Err(ToolError::Changed);
    }
    let (hosts, shared) = holders(&leader, &area, sizes);
    let mut found = asked;
    found.lver = leader.lver.get().into();
    let mut flags = ResourceFlags::from_bits_retain(asked.flags.get());
    if shared {
        flags.insert(ResourceFlags::SHARED);
    }
    found.flags = flags.bits().into();
    Ok((found, hosts))
}

/// Who holds a lease, and whether anybody holds it shared. `num_hosts` of the leader was verified to fit the sizes.
fn holders(leader: &RawLeader, area: &[u8], sizes: Geometry) -> (Vec<Host>, bool) {
    let (owner, timestamp) = (leader.owner_id.get(), leader.timestamp.get());
    let mut hosts = Vec::new();
    if timestamp != 0 {
        hosts.push(host(owner, leader.owner_generation.get(), timestamp));
    }
    let mut shared = false;
    let sectors = area.chunks_exact(sizes.sector().slice_len());
    let ids = (0..).map_while(HostId::from_index);
    for (id, sector) in ids.zip(sectors.skip(2)).take_while(|(id, _)| id.get() <= leader.num_hosts.get()) {
        let mode = HostBlock::from_sector(sector).mode;
        if !mode.is_shared() {
            continue;
        }
        shared = true;
        if timestamp == 0 || id.get() != owner {
            hosts.push(host(id.get(), mode.generation.get(), 0));
        }
    }
    (hosts, shared)
}

fn host(id: u64, generation: u64, timestamp: u64) -> Host {
    Host {
        host_id: id.into(),
        generation: generation.into(),
        timestamp: timestamp.into(),
        io_timeout: 0.into(),
        flags: 0.into(),
    }
}

/// Formats a resource on all its disks. `num_hosts` is the request's `data` as it came: 0, and what the sizes cannot hold,
/// mean as many as fit. What was there is lost, whoever holds it.
///
/// Nothing is written unless all disks could be opened, and it fits on all of them; then they are written in turns, up to the first failure ([`format::order`]).
///
/// # Errors
/// -34: no disk. The errno of opening one. -1: sizes that do not go together. -22: a negative number, or disks that cannot have
/// the same sizes. I/O: -202 no answer in time (the write may still happen), -90 or -28 beyond the end of a device, or the errno.
pub fn write_resource(
    io: &mut Io,
    request: &ResourceSpec,
    num_hosts: u32,
    flags: WriteFlags,
) -> Result<(), ToolError> {
    let disks = open_all(io, request)?;
    let first = disks.first().ok_or(ToolError::NoDisks)?;
    let hints = Hints::from_flags(request.resource().flags.get());
    let geometry = hints.to_format(first)?;
    let block = first.logical_block_size();
    if let Some(other) = disks.iter().map(|disk| disk.logical_block_size()).find(|&other| other != block) {
        if hints.sector.is_none() {
            return Err(ToolError::MixedBlocks { first: block, other });
        }
    }
    if num_hosts > i32::MAX.unsigned_abs() {
        return Err(ToolError::NumHosts { found: i32::from_ne_bytes(num_hosts.to_ne_bytes()) });
    }
    let (lockspace, name) = names(request.resource());
    let resource = format::Resource {
        lockspace,
        name,
        geometry,
        num_hosts: format::num_hosts(num_hosts, geometry),
        cleared_at: flags.contains(WriteFlags::CLEAR).then(boottime_seconds),
    };
    let offset = request.disks().first().map_or(0, |disk| disk.offset.get());
    room_for_format(first, offset, geometry)?;
    let writes = resource.writes(block);
    for (disk, place) in disks.iter().zip(request.disks()) {
        fits(disk, place.offset.get(), &writes)?;
    }
    for (disk, number) in format::order(&vec![writes.len(); disks.len()]) {
        if let (Some(on), Some(place)) = (disks.get(disk), request.disks().get(disk)) {
            writes.get(number).map_or(Ok(()), |bytes| io.write(on, place.offset.get(), bytes))?;
        }
    }
    Ok(())
}

pub(super) fn names(resource: &Resource) -> (Name, Name) {
    (Name::from_field(resource.lockspace_name.as_raw()), Name::from_field(resource.name.as_raw()))
}

/// A name on disk; what follows its NUL stays there.
fn wire_name(field: &[u8; 48]) -> wire::Name {
    wire::Name::from_raw(Name::from_field(field).to_field())
}

/// At most 8 MiB.
fn area_len(align: AlignSize) -> usize {
    usize::try_from(align.bytes()).unwrap_or(usize::MAX)
}
