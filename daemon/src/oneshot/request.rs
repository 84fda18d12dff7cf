//! Asking the owner of a lease for it, and looking whether somebody asks (lease-algorithms.md 8.1, 8.2; disk-format.md 7.3).

use super::resource::{names, open_most};
use super::{Io, ToolError};
use sanlock_lease::geometry::SectorSize;
use sanlock_lease::record::{RawLeader, RequestRecord, Wish};
use sanlock_lease::verify::{self, Expect, Purpose};
use sanlock_wire::types::ResourceSpec;

/// Writes the request record on every disk of a resource that is there and has a place for it; a majority must be there. The version
/// asked for is the resource's `lver`. Returns the host that is to be told, unless nobody owns the lease: then nothing is written. With
/// `lver` and `force_mode` 0 the record is cleared, whoever owns the lease. `sector` is the lockspace's.
///
/// # Errors
/// -34: no disk. The errno of opening one. The codes of a leader that is none, damaged, or another lease's. -270, -271: no request
/// record there, or of an unknown version. -272: the lease has that version already. -273: a later one was asked for. I/O.
pub fn write_request(
    io: &mut Io,
    request: &ResourceSpec,
    sector: SectorSize,
    force_mode: u32,
    next_lver: bool,
) -> Result<Option<u64>, ToolError> {
    let disks = open_most(io, request)?;
    let (first, offset) = disks.first().ok_or(ToolError::NoDisks)?;
    let wish = Wish { lver: request.resource().lver.get(), force_mode, next: next_lver };
    let mut sector = sector;
    let (mut version, mut owner) = (0, None);
    if !wish.clears() {
        let leader = RawLeader::from_sector(&io.read(first, *offset, sector.slice_len())?);
        let (lockspace, resource) = names(request.resource());
        let expect = Expect { lockspace: Some(lockspace), resource: Some(resource), host_id: None };
        sector = verify::paxos(&leader, &expect, Purpose::Use)?.sector();
        let Some(wanted) = wish.version(&leader)? else { return Ok(None) };
        (version, owner) = (wanted, Some(leader.owner_id.get()));
    }
    // Every disk is looked at before the first one is written.
    let mut records = Vec::new();
    for (disk, offset) in &disks {
        let place =
            offset.checked_add(u64::from(sector.bytes())).ok_or(ToolError::Offset { offset: *offset })?;
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

/// The version asked for and the force mode, as the first disk that can be opened has them. Those behind it are not opened.
///
/// # Errors
/// As [`write_request`] where they concern opening and the record itself.
pub fn read_request(
    io: &mut Io,
    resource: &ResourceSpec,
    sector: SectorSize,
) -> Result<(u64, u32), ToolError> {
    let mut disks =
        resource.disks().iter().map(|place| io.open_resource(place).map(|disk| (disk, place.offset.get())));
    let first = disks.next().ok_or(ToolError::NoDisks)?;
    let (disk, offset) = first.or_else(|error| disks.find_map(Result::ok).ok_or(error))?;
    let offset = offset.checked_add(u64::from(sector.bytes())).ok_or(ToolError::Offset { offset })?;
    let record = RequestRecord::from_sector(&io.read(&disk, offset, sector.slice_len())?);
    record.check()?;
    Ok((record.lver.get(), record.force_mode.get()))
}
