//! Asking the owner of a lease for it, and looking whether somebody asks (lease-algorithms.md 8.1, 8.2; disk-format.md 7.3).

use super::resource::{names, open_all, open_first};
use super::{Io, ToolError};
use sanlock_lease::geometry::SectorSize;
use sanlock_lease::record::{REQUEST_MAGIC, REQUEST_VERSION, RawLeader, RequestRecord};
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
    let mut wanted = request.resource().lver.get();
    let clear = wanted == 0 && force_mode == 0;
    let mut sector = sector;
    let mut owner = None;
    if !clear {
        let leader = RawLeader::from_sector(&io.read(first.0, first.1.offset.get(), sector.slice_len())?);
        let (lockspace, resource) = names(request.resource());
        let expect = Expect { lockspace: Some(lockspace), resource: Some(resource), host_id: None };
        sector = verify::paxos(&leader, &expect, Purpose::Use)?.sector();
        if leader.timestamp.get() == 0 {
            return Ok(None);
        }
        let held = leader.lver.get();
        if next_lver && wanted == 0 {
            wanted = held.saturating_add(1);
        }
        if held >= wanted {
            return Err(ToolError::RequestOld { wanted, held });
        }
        owner = Some(leader.owner_id.get());
    }
    // Every disk is looked at before the first one is written.
    let mut records = Vec::new();
    for (disk, place) in disks.iter().zip(request.disks()) {
        let offset = place
            .offset
            .get()
            .checked_add(u64::from(sector.bytes()))
            .ok_or(ToolError::Offset { offset: place.offset.get() })?;
        let record = RequestRecord::from_sector(&io.read(disk, offset, sector.slice_len())?);
        check(&record)?;
        let found = record.lver.get();
        if !clear && found > wanted {
            return Err(ToolError::RequestLver { wanted, found });
        }
        records.push((disk, offset, record));
    }
    let mut bytes = vec![0; sector.slice_len()];
    for (disk, offset, record) in records {
        RequestRecord { lver: wanted.into(), force_mode: force_mode.into(), ..record }.encode(&mut bytes);
        io.write(disk, offset, &bytes)?;
    }
    Ok(owner)
}

/// The version asked for and the force mode, as the first disk has them.
///
/// # Errors
/// As [`write_request`] where they concern opening and the record itself.
pub fn read_request(
    io: &mut Io,
    resource: &ResourceSpec,
    sector: SectorSize,
) -> Result<(u64, u32), ToolError> {
    let (disk, offset) = open_first(io, resource)?;
    let offset = offset.checked_add(u64::from(sector.bytes())).ok_or(ToolError::Offset { offset })?;
    let record = RequestRecord::from_sector(&io.read(&disk, offset, sector.slice_len())?);
    check(&record)?;
    Ok((record.lver.get(), record.force_mode.get()))
}

fn check(record: &RequestRecord) -> Result<(), ToolError> {
    let (magic, version) = (record.magic.get(), record.version.get());
    if magic != REQUEST_MAGIC {
        return Err(ToolError::RequestMagic { found: magic });
    }
    if version >> 16 != REQUEST_VERSION >> 16 {
        return Err(ToolError::RequestVersion { found: version });
    }
    Ok(())
}
