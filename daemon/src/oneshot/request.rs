//! Asking the owner of a lease for it, and looking whether somebody asks (lease-algorithms.md 8.1, 8.2; disk-format.md 7.3).

use super::resource::{names, open_most};
use super::{Io, ToolError};
use sanlock_blockio::Disk;
use sanlock_lease::geometry::{Geometry, SectorSize};
use sanlock_lease::record::{RawLeader, RequestRecord, Wish};
use sanlock_lease::verify::{self, Expect, Purpose};
use sanlock_wire::types::ResourceSpec;
use std::sync::Arc;

/// Writes the request record on every disk that has the resource and a place for it. Of several disks a majority must have it, and nothing is written to one
/// that has another lease: its owner would be told, or killed, for a request that is not for him (decision 20). The version
/// asked for is the resource's `lver`. Returns the host that is to be told, unless nobody owns the lease: then nothing is written. With
/// `lver` and `force_mode` 0 the record is cleared, whoever owns the lease, and on a single disk whatever its leader says. `sector` is the lockspace's.
///
/// # Errors
/// -34: no disk. The errno of opening one. The codes of a leader that is none, damaged, or another lease's; of several disks -220. -270, -271: no request
/// record there, or of an unknown version. -272: the lease has that version already. -273: a later one was asked for. I/O.
pub fn write_request(
    io: &mut Io,
    request: &ResourceSpec,
    sector: SectorSize,
    force_mode: u32,
    next_lver: bool,
) -> Result<Option<u64>, ToolError> {
    let disks = open_most(io, request)?;
    let wish = Wish { lver: request.resource().lver.get(), force_mode, next: next_lver };
    let number = request.disks().len();
    let mut sector = sector;
    let (mut version, mut owner) = (0, None);
    let mut places: Vec<_> = disks.iter().map(|(disk, offset)| (disk, *offset)).collect();
    if places.is_empty() {
        return Err(ToolError::NoDisks);
    }
    if number > 1 || !wish.clears() {
        let (mut found, mut other) = (Vec::new(), None);
        for place in places {
            match leader_of(io, request, place, sector) {
                Ok((leader, geometry)) => found.push((place, leader, geometry)),
                Err(error) => other = other.or(Some(error)),
            }
        }
        if let Some(error) = other.filter(|_| found.len() <= number / 2) {
            let few = ToolError::FewDisks { ours: found.len(), disks: number, other: error.to_string() };
            return Err(if number > 1 { few } else { error });
        }
        let Some((leader, geometry)) = found
            .iter()
            .max_by_key(|(_, leader, _)| leader.lver.get())
            .map(|(_, leader, geometry)| (*leader, *geometry))
        else {
            return Err(ToolError::NoDisks);
        };
        sector = geometry.sector();
        places = found.into_iter().filter(|(_, _, of)| *of == geometry).map(|(place, ..)| place).collect();
        if !wish.clears() {
            let Some(wanted) = wish.version(&leader)? else { return Ok(None) };
            (version, owner) = (wanted, Some(leader.owner_id.get()));
        }
    }
    // Every disk is looked at before the first one is written.
    let mut records = Vec::new();
    for (disk, offset) in places {
        let place = offset.checked_add(u64::from(sector.bytes())).ok_or(ToolError::Offset { offset })?;
        let found = io.read(disk, place, sector.slice_len());
        let record = found.and_then(|bytes| Ok(wish.record(version, &RequestRecord::from_sector(&bytes))?));
        match record {
            Ok(record) => records.push((disk, place, record)),
            // Whoever owns the lease reads the first one that he can.
            Err(error) if records.is_empty() => return Err(error),
            Err(_) => {}
        }
    }
    let mut bytes = vec![0; sector.slice_len()];
    for (at, (disk, place, record)) in records.iter().enumerate() {
        record.encode(&mut bytes);
        match io.write(disk, *place, &bytes) {
            Err(error) if at == 0 => return Err(error),
            _ => {}
        }
    }
    Ok(owner)
}

/// The leader of the resource in this place, and its sizes.
fn leader_of(
    io: &mut Io,
    request: &ResourceSpec,
    (disk, offset): (&Arc<Disk>, u64),
    sector: SectorSize,
) -> Result<(RawLeader, Geometry), ToolError> {
    let leader = RawLeader::from_sector(&io.read(disk, offset, sector.slice_len())?);
    let geometry = verify::paxos(&leader, &expected(request), Purpose::Use)?;
    Ok((leader, geometry))
}

fn expected(request: &ResourceSpec) -> Expect {
    let (lockspace, resource) = names(request.resource());
    Expect { lockspace: Some(lockspace), resource: Some(resource), host_id: None }
}

/// The version asked for and the force mode, as the first disk that can be opened has them. Those behind it are not opened. Of several disks one that has
/// another lease does not count: what is asked there is asked of others.
///
/// # Errors
/// As [`write_request`] where they concern opening and the record itself.
pub fn read_request(
    io: &mut Io,
    resource: &ResourceSpec,
    sector: SectorSize,
) -> Result<(u64, u32), ToolError> {
    let found = first_request(io, resource, sector);
    // One thread looks at many leases, and the next disk may be silent for long.
    io.let_go();
    found
}

fn first_request(io: &mut Io, resource: &ResourceSpec, sector: SectorSize) -> Result<(u64, u32), ToolError> {
    let several = resource.disks().len() > 1;
    let mut first = None;
    for place in resource.disks() {
        let offset = place.offset.get();
        let found = io.open_resource(place).and_then(|disk| {
            let bytes = io.read(&disk, offset, 2 * sector.slice_len())?;
            let leader = RawLeader::from_sector(&bytes);
            match verify::paxos(&leader, &expected(resource), Purpose::Use) {
                Err(error) if several && error.is_of_another() => Err(error.into()),
                _ => Ok(RequestRecord::from_sector(bytes.get(sector.slice_len()..).unwrap_or_default())),
            }
        });
        match found {
            Ok(record) => {
                record.check()?;
                return Ok((record.lver.get(), record.force_mode.get()));
            }
            // Opened, and not to be read: nothing is known.
            Err(error @ ToolError::Io(_)) => return Err(error),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or(ToolError::NoDisks))
}
