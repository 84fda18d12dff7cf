//! Asking the owner of a lease for it, and looking whether somebody asks (lease-algorithms.md 8.1, 8.2; disk-format.md 7.3).

use super::resource::{names, open_all};
use super::{Io, ToolError};
use sanlock_lease::geometry::SectorSize;
use sanlock_lease::record::{RawLeader, RequestRecord, Wish};
use sanlock_lease::verify::{self, Expect, Purpose};
use sanlock_wire::types::ResourceSpec;

/// Writes the request record on every disk of a resource; the version asked for is the resource's `lver`. Returns the host that
/// is to be told, unless nobody owns the lease: then nothing is written. With `lver` and `force_mode` 0 the record is cleared,
/// whoever owns the lease. `sector` is the lockspace's.
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
    let disks = open_all(io, request)?;
    let first = disks.first().zip(request.disks().first()).ok_or(ToolError::NoDisks)?;
    let wish = Wish { lver: request.resource().lver.get(), force_mode, next: next_lver };
    let mut sector = sector;
    let (mut version, mut owner) = (0, None);
    if !wish.clears() {
        let leader = RawLeader::from_sector(&io.read(first.0, first.1.offset.get(), sector.slice_len())?);
        let (lockspace, resource) = names(request.resource());
        let expect = Expect { lockspace: Some(lockspace), resource: Some(resource), host_id: None };
        sector = verify::paxos(&leader, &expect, Purpose::Use)?.sector();
        let Some(wanted) = wish.version(&leader)? else { return Ok(None) };
        (version, owner) = (wanted, Some(leader.owner_id.get()));
    }
    // Every disk is looked at before the first one is written.
    let mut records = Vec::new();
    for (disk, place) in disks.iter().zip(request.disks()) {
        let offset = place
            .offset
            .get()
            .checked_add(u64::from(sector.bytes()))
            .ok_or(ToolError::Offset { offset: place.offset.get() })?;
        let found = RequestRecord::from_sector(&io.read(disk, offset, sector.slice_len())?);
        records.push((disk, offset, wish.record(version, &found)?));
    }
    let mut bytes = vec![0; sector.slice_len()];
    for (disk, offset, record) in records {
        record.encode(&mut bytes);
        io.write(disk, offset, &bytes)?;
    }
    Ok(owner)
}

/// The version asked for and the force mode, as the first disk has them. The others are not opened.
///
/// # Errors
/// As [`write_request`] where they concern opening and the record itself.
pub fn read_request(
    io: &mut Io,
    resource: &ResourceSpec,
    sector: SectorSize,
) -> Result<(u64, u32), ToolError> {
    let first = resource.disks().first().ok_or(ToolError::NoDisks)?;
    let (disk, offset) = (io.open_resource(first)?, first.offset.get());
    let offset = offset.checked_add(u64::from(sector.bytes())).ok_or(ToolError::Offset { offset })?;
    let record = RequestRecord::from_sector(&io.read(&disk, offset, sector.slice_len())?);
    record.check()?;
    Ok((record.lver.get(), record.force_mode.get()))
}
