//! What lies on storage, as objects of docs/json.md: `read_leader`, `read`, `dump`.

use super::dump::{FIRST_HOST_SECTOR, tell_cut_short, tell_what_follows, whole_sectors};
use super::leader::{self, Found, Names};
use super::report::{Failure, failed};
use super::scan::{Area, find_geometry};
use super::storage::{Storage, StorageError};
use crate::cli::command::{DirectAction, ReadTarget};
use crate::cli::given::Sizes;
use crate::json::{Text, print_document, print_failure, print_failure_with};
use crate::output::SUCCESS;
use crate::subject;
use sanlock_blockio::Access;
use sanlock_lease::code::ReturnCode;
use sanlock_lease::geometry::Geometry;
use sanlock_lease::name::Name;
use sanlock_lease::record::{
    Bitmap, DELTA_MAGIC, HostBlock, RawLeader, RequestRecord, RindexEntry, RindexHeader,
};
use sanlock_lease::text::strict::DumpRange;
use sanlock_lease::verify::LeaderError;
use serde::Serialize;

/// Carries out an action that shows something; `None` for others.
pub(super) fn run(action: &DirectAction) -> Option<u8> {
    Some(match action {
        DirectAction::ReadLeader { target, sizes, .. } => record("read_leader", target, *sizes, Names::All),
        DirectAction::Read { target, sizes } => record("read", target, *sizes, Names::Given),
        DirectAction::Dump { range: Some(range), geometry, .. } => dump(range, *geometry),
        _ => return None,
    })
}

/// A record of a host id or the leader of a resource. Numbers that are hexadecimal in the text are text here too.
#[derive(Serialize)]
struct Record {
    record: Fields,
}

#[derive(Serialize)]
struct Fields {
    r#type: &'static str,
    magic: String,
    version: String,
    flags: String,
    sector_size: u32,
    num_hosts: u64,
    max_hosts: u64,
    owner_id: u64,
    owner_generation: u64,
    lease_version: u64,
    lockspace: Text,
    /// Of the resource, or of the host.
    name: Text,
    timestamp: u64,
    checksum: String,
    io_timeout_s: u16,
    /// Of a host id lease these are the number, generation and data of its event.
    write_id: u64,
    write_generation: u64,
    write_timestamp: u64,
}

impl Record {
    fn new(record: &RawLeader, r#type: &'static str) -> Self {
        let hex = |number: u32| format!("{number:#x}");
        Self {
            record: Fields {
                r#type,
                magic: hex(record.magic.get()),
                version: hex(record.version.get()),
                flags: hex(record.flags.get()),
                sector_size: record.sector_size.get(),
                num_hosts: record.num_hosts.get(),
                max_hosts: record.max_hosts.get(),
                owner_id: record.owner_id.get(),
                owner_generation: record.owner_generation.get(),
                lease_version: record.lver.get(),
                lockspace: name(&record.space_name),
                name: name(&record.resource_name),
                timestamp: record.timestamp.get(),
                checksum: hex(record.checksum.get()),
                io_timeout_s: record.io_timeout.get(),
                write_id: record.write_id.get(),
                write_generation: record.write_generation.get(),
                write_timestamp: record.write_timestamp.get(),
            },
        }
    }
}

fn name(field: &[u8; 48]) -> Text {
    Text::from(Name::from_field(field).as_bytes())
}

/// A record that is not the one asked for, or is damaged, is shown beside the failure.
fn record(command: &str, target: &ReadTarget, sizes: Sizes, names: Names) -> u8 {
    let Found { record, outcome } = leader::find(target, sizes, names);
    let r#type = if matches!(target, ReadTarget::Resource(_)) { "resource" } else { "lockspace" };
    let shown = Record::new(&record, r#type);
    match outcome {
        Ok(()) => {
            print_document(command, &shown);
            SUCCESS
        }
        Err(error) => {
            let (code, reason) = (error.code(), error.to_string());
            if record == RawLeader::zeroed() {
                print_failure(command, code, &reason);
            } else {
                print_failure_with(command, code, &reason, &shown);
            }
            failed(command, &target.subject(), &error)
        }
    }
}

#[derive(Serialize)]
struct Dump {
    path: Text,
    sector_size: u32,
    align_size: u64,
    areas: Vec<Dumped>,
}

/// One area with a lease, or an index.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Dumped {
    Lockspace {
        offset: u64,
        name: Text,
        hosts: Vec<DumpedHost>,
    },
    Resource {
        offset: u64,
        lockspace: Text,
        name: Text,
        lease_version: u64,
        owner_id: u64,
        owner_generation: u64,
        timestamp: u64,
        num_hosts: u64,
        request: Option<DumpedRequest>,
        shared: Vec<DumpedShared>,
        ballots: Vec<DumpedBallot>,
    },
    Rindex {
        offset: u64,
        lockspace: Text,
        flags: String,
        sector_size: u32,
        max_resources: u32,
        rindex_offset: u64,
        entries: Vec<DumpedEntry>,
    },
}

/// A host id that was ever used.
#[derive(Serialize)]
struct DumpedHost {
    /// From where the record lies.
    host_id: u64,
    offset: u64,
    name: Text,
    owner_id: u64,
    owner_generation: u64,
    timestamp: u64,
    io_timeout_s: u16,
    /// Hosts that are to look for an event or a request.
    bitmap: Vec<u64>,
}

#[derive(Serialize)]
struct DumpedRequest {
    lease_version: u64,
    force_mode: u32,
}

#[derive(Serialize)]
struct DumpedShared {
    host_id: u64,
    generation: u64,
}

#[derive(Serialize)]
struct DumpedBallot {
    host_id: u64,
    mbal: u64,
    bal: u64,
    inp: u64,
    inp2: u64,
    inp3: u64,
    lease_version: u64,
    released: bool,
    checksum: String,
    valid: bool,
}

#[derive(Serialize)]
struct DumpedEntry {
    offset: u64,
    name: Text,
    resource_offset: u64,
}

/// No place where a dump could begin.
#[derive(Debug, thiserror::Error)]
enum DumpError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("no lease begins there or after it, whose sizes could be used: set them with -A and -Z")]
    NoLease,
}

impl Failure for DumpError {
    fn code(&self) -> i32 {
        match self {
            Self::Storage(error) => error.code(),
            Self::NoLease => ReturnCode::from(&LeaderError::Magic { expected: DELTA_MAGIC, found: 0 }).0,
        }
    }
}

fn dump(range: &DumpRange, geometry: Option<Geometry>) -> u8 {
    const COMMAND: &str = "dump";
    let failure = match dump_areas(range, geometry) {
        Ok((dump, None)) => {
            print_document(COMMAND, &dump);
            return SUCCESS;
        }
        // What was read before counts, as in the table.
        Ok((dump, Some(error))) => {
            print_failure_with(COMMAND, error.code(), &error.to_string(), &dump);
            error
        }
        Err(error) => {
            print_failure(COMMAND, error.code(), &error.to_string());
            error
        }
    };
    failed(COMMAND, &subject::place(&range.disk), &failure)
}

/// The same areas as the table has, and what ended it before its end.
fn dump_areas(range: &DumpRange, geometry: Option<Geometry>) -> Result<(Dump, Option<DumpError>), DumpError> {
    let mut storage = Storage::open(&range.disk.path, Access::ReadOnly)?;
    let geometry = match geometry {
        Some(geometry) => geometry,
        None => find_geometry(&mut storage, range.disk.offset, range.size)?.ok_or(DumpError::NoLease)?,
    };
    let align = geometry.align().bytes();
    let area_len = usize::try_from(align).map_err(|_| DumpError::NoLease)?;
    let mut dump = Dump {
        path: Text(range.disk.path.clone()),
        sector_size: geometry.sector().bytes(),
        align_size: align,
        areas: Vec::new(),
    };
    let size = range.size.and_then(|size| whole_sectors(size, geometry));
    let mut distance = 0u64;
    while size.is_none_or(|size| distance < size) {
        let Some(offset) = range.disk.offset.checked_add(distance) else { break };
        match storage.read(offset, area_len) {
            Ok(area) => match Area::of(&area) {
                Some(Area::Lockspace) => dump.areas.push(lockspace(&area, offset, geometry)),
                Some(Area::Resource) => dump.areas.push(resource(&area, offset, geometry)),
                Some(Area::Rindex) => dump.areas.push(rindex(&area, offset, geometry)),
                None if size.is_none() => {
                    tell_what_follows(&mut storage, &range.disk, offset);
                    break;
                }
                None => {}
            },
            Err(error) if error.is_beyond_end() => {
                tell_cut_short(&mut storage, &range.disk, offset, align);
                break;
            }
            Err(error) => return Ok((dump, Some(error.into()))),
        }
        distance = distance.saturating_add(align);
    }
    Ok((dump, None))
}

fn lockspace(area: &[u8], offset: u64, geometry: Geometry) -> Dumped {
    let sectors = area.chunks_exact(geometry.sector().slice_len()).take(usize::from(geometry.max_hosts()));
    let hosts = (1u64..).zip(sectors).filter_map(|(host_id, sector)| {
        let record = RawLeader::from_sector(sector);
        (record.magic.get() == DELTA_MAGIC && record.owner_id.get() != 0).then(|| DumpedHost {
            host_id,
            offset: offset + (host_id - 1) * u64::from(geometry.sector().bytes()),
            name: name(&record.resource_name),
            owner_id: record.owner_id.get(),
            owner_generation: record.owner_generation.get(),
            timestamp: record.timestamp.get(),
            io_timeout_s: record.io_timeout.get(),
            bitmap: Bitmap::from_sector(sector).hosts().map(|host| host.get()).collect(),
        })
    });
    Dumped::Lockspace { offset, name: name(&RawLeader::from_sector(area).space_name), hosts: hosts.collect() }
}

fn resource(area: &[u8], offset: u64, geometry: Geometry) -> Dumped {
    let mut sectors = area.chunks_exact(geometry.sector().slice_len());
    let leader = RawLeader::from_sector(sectors.next().unwrap_or_default());
    let asked = RequestRecord::from_sector(sectors.next().unwrap_or_default());
    // Never more hosts than the area holds, whatever the record says.
    let hosts = leader.num_hosts.get().min(u64::from(geometry.max_hosts()));
    let blocks = area.chunks_exact(geometry.sector().slice_len()).skip(FIRST_HOST_SECTOR);
    let (mut shared, mut ballots) = (Vec::new(), Vec::new());
    for (host_id, sector) in (1..=hosts).zip(blocks) {
        let HostBlock { dblock, mode } = HostBlock::from_sector(sector);
        if mode.is_shared() {
            shared.push(DumpedShared { host_id, generation: mode.generation.get() });
        }
        if !dblock.is_unused() {
            ballots.push(DumpedBallot {
                host_id,
                mbal: dblock.mbal.get(),
                bal: dblock.bal.get(),
                inp: dblock.inp.get(),
                inp2: dblock.inp2.get(),
                inp3: dblock.inp3.get(),
                lease_version: dblock.lver.get(),
                released: dblock.is_released(),
                checksum: format!("{:#x}", dblock.checksum.get()),
                valid: dblock.is_valid(),
            });
        }
    }
    let request = (asked.lver.get() != 0)
        .then(|| DumpedRequest { lease_version: asked.lver.get(), force_mode: asked.force_mode.get() });
    Dumped::Resource {
        offset,
        lockspace: name(&leader.space_name),
        name: name(&leader.resource_name),
        lease_version: leader.lver.get(),
        owner_id: leader.owner_id.get(),
        owner_generation: leader.owner_generation.get(),
        timestamp: leader.timestamp.get(),
        num_hosts: leader.num_hosts.get(),
        request,
        shared,
        ballots,
    }
}

fn rindex(area: &[u8], offset: u64, geometry: Geometry) -> Dumped {
    let header = RindexHeader::from_sector(area);
    let first = geometry.sector().slice_len();
    let entries =
        area.get(first..).unwrap_or_default().chunks_exact(RindexEntry::BYTES).map(RindexEntry::from_bytes);
    let places =
        (0u64..).map(|n| offset + u64::from(geometry.sector().bytes()) + n * RindexEntry::BYTES as u64);
    let entries = places.zip(entries).filter(|(_, entry)| !entry.is_free());
    Dumped::Rindex {
        offset,
        lockspace: name(&header.lockspace_name),
        flags: format!("{:#x}", header.flags.get()),
        sector_size: header.sector_size.get(),
        max_resources: header.max_resources.get(),
        rindex_offset: header.rx_offset.get(),
        entries: entries
            .map(|(offset, entry)| DumpedEntry {
                offset,
                name: name(&entry.name),
                resource_offset: entry.res_offset.get(),
            })
            .collect(),
    }
}
