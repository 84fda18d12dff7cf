//! Reading one record of a lockspace, and formatting a lockspace (socket-protocol.md 7.17, 7.19).

use super::sizes::{Hints, with_sizes_of};
use super::{Io, ToolError, fits, room_for_format};
use sanlock_blockio::Disk;
use sanlock_lease::format;
use sanlock_lease::geometry::{HostId, SectorSize};
use sanlock_lease::limits::{HOSTS_MAX, SECTOR_BYTES_MAX};
use sanlock_lease::name::Name;
use sanlock_lease::record::RawLeader;
use sanlock_lease::timing::IoTimeout;
use sanlock_lease::verify::{self, LeaderError, Purpose};
use sanlock_wire::name as wire;
use sanlock_wire::types::Lockspace;
use std::sync::Arc;

/// Reads the record of one host id (0 means 1) and returns the lockspace with name, host id and size flags as on disk, and
/// the record's io timeout in seconds. An empty name matches every lockspace.
///
/// A sector flag saves the read that finds the sizes. It is only believed if the record found with it says the same.
///
/// # Errors
/// -19: no path, or not to be opened. -223: no record there, or no such host id. -226, -224, -229: another lockspace, unknown
/// version, damaged. -22: the sizes are unknown. I/O: -90 beyond the end, -202 no answer in time, or the errno.
pub fn read_lockspace(io: &mut Io, request: &Lockspace) -> Result<(Lockspace, u32), ToolError> {
    let disk = io.open_device(&request.host_id_disk)?;
    let host_id = request.host_id.get().max(1);
    let host = HostId::new(host_id).ok_or(ToolError::HostId { found: host_id, max: HOSTS_MAX });
    let record = match (Hints::from_flags(request.flags.get()).sector, &host) {
        (Some(sector), Ok(host)) => read_hinted(io, &disk, request, *host, sector)?,
        _ => None,
    };
    let record = match record {
        Some(record) => record,
        None => read_by_first_record(io, &disk, request, host?)?,
    };

    let max = verify::sizes(&record).map_or(HOSTS_MAX, sanlock_lease::geometry::Geometry::max_hosts);
    if host_id > u64::from(max) {
        return Err(ToolError::HostId { found: host_id, max });
    }
    let name = Name::from_field(request.name.as_raw());
    verify::delta(&record, (!name.is_empty()).then_some(&name), Purpose::Read)?;

    let mut found = *request;
    found.name = wire::Name::from_raw(Name::from_field(&record.space_name).to_field());
    found.host_id = host_id.into();
    found.flags = with_sizes_of(request.flags.get(), &record).into();
    Ok((found, record.io_timeout.get().into()))
}

/// The host's record if the hint is right: a record of a lockspace that states the sector size it was read with. With a wrong
/// one, another host's record may stand in its place, which states the other size.
fn read_hinted(
    io: &mut Io,
    disk: &Arc<Disk>,
    request: &Lockspace,
    host: HostId,
    sector: SectorSize,
) -> Result<Option<RawLeader>, ToolError> {
    match read_record(io, disk, request, host, sector) {
        Ok(record) => {
            let plausible = verify::delta_magic_version(&record, Purpose::Read).is_ok()
                && record.sector_size.get() == sector.bytes();
            Ok(plausible.then_some(record))
        }
        // Storage that does not answer will not answer the next read either.
        Err(ToolError::Io(error)) if error.kind.is_timeout() => Err(error.into()),
        Err(_) => Ok(None),
    }
}

/// The host's record, found by the sizes that host id 1's record states (disk-format.md 2.4).
fn read_by_first_record(
    io: &mut Io,
    disk: &Arc<Disk>,
    request: &Lockspace,
    host: HostId,
) -> Result<RawLeader, ToolError> {
    let offset = request.host_id_disk.offset.get();
    let first = RawLeader::from_sector(&io.read(disk, offset, SECTOR_BYTES_MAX)?);
    verify::delta_magic_version(&first, Purpose::Read)?;
    let found = first.sector_size.get();
    let sector =
        SectorSize::from_bytes(found).ok_or(ToolError::UnknownSizes(LeaderError::SectorSize { found }))?;
    if host.delta_sector() == 0 {
        return Ok(first);
    }
    read_record(io, disk, request, host, sector)
}

fn read_record(
    io: &mut Io,
    disk: &Arc<Disk>,
    request: &Lockspace,
    host: HostId,
    sector: SectorSize,
) -> Result<RawLeader, ToolError> {
    let start = request.host_id_disk.offset.get();
    let offset = start
        .checked_add(host.delta_sector() * u64::from(sector.bytes()))
        .ok_or(ToolError::Offset { offset: start })?;
    Ok(RawLeader::from_sector(&io.read(disk, offset, sector.slice_len())?))
}

/// Whether there is a lockspace that could be joined, looked at like a join does before it comes to the host id (lease-algorithms.md 2.2).
///
/// # Errors
/// -19: no path, or not to be opened. -223, -224, -225, -230: no lockspace, one of an unknown version, or of unknown sizes. I/O: -22 from a
/// place that cannot be read at, -90 beyond the end, -202 no answer in time, or the errno.
pub fn look_for_lockspace(io: &mut Io, request: &Lockspace) -> Result<(), ToolError> {
    let disk = io.open_device(&request.host_id_disk)?;
    let offset = request.host_id_disk.offset.get();
    let first = RawLeader::from_sector(&io.read(&disk, offset, SECTOR_BYTES_MAX)?);
    verify::delta_magic_version(&first, Purpose::Use)?;
    verify::sizes(&first)?;
    Ok(())
}

/// Formats a lockspace for hosts of this io timeout in seconds, 0 for the default. What was there is lost, whoever uses it.
///
/// Nothing is written unless the area fits on the device. Several writes, the last of which makes the first record valid (disk-format.md 6.3). After a failure of any of them nobody can join;
/// after -202 the write may still happen at any time.
///
/// # Errors
/// -19: no path, or not to be opened. -1: sizes that do not go together. -22: an io timeout above 255, or sectors that the
/// storage cannot write; then nothing was written. I/O: -202 no answer in time, -90 or -28 beyond the end of a device, or the errno.
pub fn write_lockspace(io: &mut Io, request: &Lockspace, io_timeout: u32) -> Result<(), ToolError> {
    let disk = io.open_device(&request.host_id_disk)?;
    let geometry = Hints::from_flags(request.flags.get()).to_format(&disk)?;
    let io_timeout = if io_timeout == 0 { IoTimeout::DEFAULT } else { IoTimeout::new(io_timeout)? };
    let (sector, block) = (geometry.sector().bytes(), disk.logical_block_size());
    if sector < block {
        // Writes of a single record would be refused.
        return Err(ToolError::SectorBelowBlock { sector, block });
    }
    let name = Name::from_field(request.name.as_raw());
    let lockspace = format::Lockspace { name, geometry, io_timeout };
    let offset = request.host_id_disk.offset.get();
    room_for_format(&disk, offset, geometry)?;
    let writes = lockspace.writes();
    fits(&disk, offset, &writes)?;
    writes.iter().try_for_each(|bytes| io.write(&disk, offset, bytes))
}
