//! `write_leader`: changes fields of one record (command-line.md 8.7).
//!
//! For experts who repair a lease that nobody uses. Nothing is compared but what is needed to find the record: that it is damaged,
//! or belongs to somebody else, may be what is to be repaired. Only the record is changed. What else its sector holds, and the
//! ballot blocks after it, stay: they carry values that must not be forgotten (R1).

use super::fields::{self, Edits, FieldError};
use super::host_id::{NoSuchHost, host};
use super::init::record as trace;
use super::leader::{Found, ReadError, lockspace_sector_size};
use super::report::{Failure, SHOWN_IN_HELP, first_step, report};
use super::storage::Storage;
use crate::cli::command::{ReadTarget, WriteLeader};
use crate::output::{FAILURE, failure, note, print};
use sanlock_blockio::Access;
use sanlock_lease::code::ReturnCode;
use sanlock_lease::geometry::SectorSize;
use sanlock_lease::limits::SECTOR_BYTES_MAX;
use sanlock_lease::name::Name;
use sanlock_lease::record::RawLeader;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

const ACTION: &str = "write_leader";
/// Bytes of the file of values that are read; all fields together need some hundred.
const FILE_BYTES_MAX: u64 = 1 << 16;
/// EFAULT, which the original reports when no file is given.
const EFAULT: i32 = 14;

/// Why a record was not written.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    HostId(#[from] NoSuchHost),
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error(
        "sector_size is {0}, and neither 512 nor 4096: there is no lease, or its sector_size has to be set as well"
    )]
    SectorSize(u32),
}

impl Failure for WriteError {
    fn code(&self) -> i32 {
        match self {
            Self::Read(error) => error.code(),
            Self::HostId(_) | Self::Field(_) | Self::SectorSize(_) => ReturnCode::EINVAL.0,
        }
    }

    fn next(&self) -> Option<&'static str> {
        match self {
            Self::Read(error) => error.next(),
            Self::HostId(_) => Some(SHOWN_IN_HELP),
            Self::Field(_) => Some("write values as 'sanlock direct read_leader' prints them"),
            Self::SectorSize(_) => first_step(ReturnCode::LEADER_MAGIC.0),
        }
    }
}

/// A sector that begins with a record, and where it came from.
struct Place {
    storage: Storage,
    offset: u64,
    sector: Vec<u8>,
}

pub(super) fn write_leader(args: &WriteLeader) -> u8 {
    let file = match read_file(args.file.as_deref()) {
        Ok(file) => file,
        Err(errno) => {
            let path = args.file.as_deref().unwrap_or(b"(null)");
            print([format!("open error {errno} ").as_bytes(), path, b"\n"].concat());
            match &args.file {
                None => note(ACTION, "give the file with the values: -F FILE"),
                Some(path) => {
                    let file = format!("file of values {}", String::from_utf8_lossy(path));
                    let reason = std::io::Error::from_raw_os_error(errno).to_string();
                    let next = Some("check that the file exists and can be read");
                    failure(ACTION, &file, &reason, errno.saturating_neg(), next);
                }
            }
            return FAILURE;
        }
    };
    trace(&trace_text(&args.target));
    let resource = matches!(args.target, ReadTarget::Resource(_));
    let outcome = change(args, &file, resource);
    let status = report(ACTION, &args.target.subject(), &outcome);
    if let Ok(record) = outcome {
        print(fields::text(&record, resource));
    }
    status
}

/// Reads the file of values.
///
/// # Errors
/// The errno, positive.
fn read_file(path: Option<&[u8]>) -> Result<Vec<u8>, i32> {
    let path = OsStr::from_bytes(path.ok_or(EFAULT)?);
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
    Ok(bytes)
}

fn trace_text(target: &ReadTarget) -> Vec<u8> {
    match target {
        ReadTarget::Nothing => b"write_leader".to_vec(),
        ReadTarget::Lockspace(spec) => {
            let mut text = [b"write_leader lockspace ", spec.name.as_bytes()].concat();
            text.extend_from_slice(format!(":{}:", spec.host_id).as_bytes());
            text.extend_from_slice(&spec.path);
            text.extend_from_slice(format!(":{}", spec.offset).as_bytes());
            text
        }
        ReadTarget::Resource(spec) => {
            [b"write_leader resource ", spec.to_text().unwrap_or_default().as_slice()].concat()
        }
    }
}

/// Reads the record, changes it and writes it back; gives what was written.
fn change(args: &WriteLeader, file: &[u8], resource: bool) -> Result<RawLeader, WriteError> {
    let edits = Edits::read(file, resource)?;
    let place = find(args, edits.sector_size());
    let mut record =
        place.as_ref().map_or(RawLeader::zeroed(), |place| RawLeader::from_sector(&place.sector));
    if place.is_ok() {
        warn_of_other_names(&args.target, &record);
    }
    edits.apply(&mut record);
    let generated = record.computed_checksum();
    print(&edits.ignored);
    match edits.checksum.filter(|_| args.keep_checksum) {
        Some(given) => {
            print(format!("warning: using specified checksum {given:x} (generated is {generated:x})\n"));
            record.checksum = given.into();
        }
        None => {
            print(format!("use new generated checksum {generated:x}\n"));
            record.checksum = generated.into();
        }
    }
    let Place { mut storage, offset, mut sector } = place?;
    let size = record.sector_size.get();
    if SectorSize::from_bytes(size).is_none() {
        return Err(WriteError::SectorSize(size));
    }
    record.overlay(&mut sector);
    storage.write(offset, &sector).map_err(ReadError::Storage)?;
    Ok(record)
}

/// Opens the storage and reads the sector. Of a resource with several disks that is the first one. `set`: the sector size that the record is
/// to state, which says where a host's record lies if the first one does not.
fn find(args: &WriteLeader, set: Option<SectorSize>) -> Result<Place, WriteError> {
    match &args.target {
        ReadTarget::Nothing => Err(ReadError::NoTarget.into()),
        ReadTarget::Lockspace(spec) => {
            if spec.host_id == 0 {
                return Err(ReadError::NoHost.into());
            }
            let host = host(spec.host_id)?;
            let mut storage =
                Storage::open(&spec.path, Access::ReadWrite).map_err(ReadError::LockspaceOpen)?;
            let size = match args.sizes.sector {
                Some(size) => size,
                None => lockspace_sector_size(&mut storage, spec.offset)
                    .or_else(|found| stated_sector_size(*found, set))?,
            };
            let offset = spec.offset.saturating_add(host.delta_sector() * u64::from(size.bytes()));
            Place::read(storage, offset, Some(size))
        }
        ReadTarget::Resource(spec) => {
            let disk = spec.disks.first().ok_or(ReadError::NoTarget)?;
            if spec.disks.len() > 1 {
                note(ACTION, "only the first disk's record is written, the others have to be changed alike");
            }
            let storage = Storage::open(&disk.path, Access::ReadWrite).map_err(ReadError::Storage)?;
            Place::read(storage, disk.offset, None)
        }
    }
}

/// The sector size that a first record states although it is not one of a lockspace, else the one that is to be set.
fn stated_sector_size(found: Found, set: Option<SectorSize>) -> Result<SectorSize, WriteError> {
    let size = found.record.sector_size.get();
    match (SectorSize::from_bytes(size), found.outcome) {
        (Some(size), _) => Ok(size),
        (None, Err(ReadError::Leader(_)) | Ok(())) => set.ok_or(WriteError::SectorSize(size)),
        (None, Err(error)) => Err(error.into()),
    }
}

impl Place {
    /// Reads one sector: of this size, or else the least that the storage can write.
    fn read(mut storage: Storage, offset: u64, size: Option<SectorSize>) -> Result<Self, WriteError> {
        let block = usize::try_from(storage.disk().logical_block_size()).unwrap_or(SECTOR_BYTES_MAX);
        let len = size.map_or(block, SectorSize::slice_len);
        let sector = storage.read(offset, len).map_err(ReadError::Storage)?;
        Ok(Self { storage, offset, sector })
    }
}

/// Another lease than the one named may be hit by a slip in the offset.
fn warn_of_other_names(target: &ReadTarget, record: &RawLeader) {
    let (lockspace, resource) = match target {
        ReadTarget::Nothing => return,
        ReadTarget::Lockspace(spec) => (&spec.name, None),
        ReadTarget::Resource(spec) => (&spec.lockspace, Some(&spec.name)),
    };
    let other = |name: &Name, field: &[u8; 48]| !name.matches(field);
    if other(lockspace, &record.space_name) {
        note(ACTION, &owner_text("lockspace", &record.space_name));
    }
    if resource.is_some_and(|name| other(name, &record.resource_name)) {
        note(ACTION, &owner_text("resource", &record.resource_name));
    }
}

/// `kind`: lockspace or resource.
fn owner_text(kind: &str, field: &[u8; 48]) -> String {
    match Name::from_field(field) {
        name if name.is_empty() => format!("the record names no {kind}"),
        name => format!("the record is one of {kind} {name}"),
    }
}
