//! `read_leader` and `read`: one record, verified and shown (command-line.md 8.3, 8.4; disk-format.md 2.4, 9).

use super::fields;
use super::report::{Failure, SHOWN_IN_HELP, report, step_beside_read_leader};
use super::storage::{Storage, StorageError};
use crate::cli::command::ReadTarget;
use crate::cli::given::Sizes;
use crate::output::print;
use sanlock_blockio::Access;
use sanlock_lease::code::ReturnCode;
use sanlock_lease::geometry::SectorSize;
use sanlock_lease::limits::{PATH_BYTES, SECTOR_BYTES_MAX};
use sanlock_lease::name::Name;
use sanlock_lease::record::{DELTA_MAGIC, PAXOS_MAGIC, RawLeader};
use sanlock_lease::text::{DiskSpec, LockspaceSpec, ResourceSpec, path};
use sanlock_lease::verify::{self, Expect, LeaderError, Purpose};

/// Why there is no verified record.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// Neither a lockspace with a path nor a resource with a disk was given.
    #[error("give a lockspace with its path (-s NAME:ID:PATH:OFFSET) or a resource with its place (-r)")]
    NoTarget,
    /// A host id that cannot exist.
    #[error("host_id 0 does not exist, give the one whose lease is to be read")]
    NoHost,
    /// The storage of a lockspace cannot be opened.
    #[error("{0}")]
    LockspaceOpen(StorageError),
    /// The storage cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Where a lockspace was to begin is no lease of any kind, so the sizes are not known.
    #[error("{0}")]
    NoSizes(LeaderError),
    /// A record was read that is not the one expected.
    #[error(transparent)]
    Leader(#[from] LeaderError),
}

impl Failure for ReadError {
    fn code(&self) -> i32 {
        match self {
            Self::NoTarget | Self::NoSizes(_) => ReturnCode::GENERIC.0,
            Self::NoHost => ReturnCode::EINVAL.0,
            // Whatever the reason: lockspaces report a path that cannot be opened like this (disk-format.md 2.6).
            Self::LockspaceOpen(_) => ReturnCode::ENODEV.0,
            Self::Storage(error) => error.code(),
            Self::Leader(error) => ReturnCode::from(error).0,
        }
    }

    fn next(&self) -> Option<&'static str> {
        match self {
            Self::NoTarget | Self::NoHost => Some(SHOWN_IN_HELP),
            Self::LockspaceOpen(error) | Self::Storage(error) => error.next(),
            Self::NoSizes(error) | Self::Leader(error) => step_beside_read_leader(ReturnCode::from(error).0),
        }
    }
}

/// Whether what was read begins no lease, neither of a lockspace nor of a resource: the original then finds no sizes, and says no more
/// than -1.
fn is_no_lease(error: &LeaderError) -> bool {
    matches!(error, LeaderError::Magic { found, .. } if *found != DELTA_MAGIC && *found != PAXOS_MAGIC)
}

/// A record as far as it could be read, and what is wrong with it.
pub(super) struct Found {
    /// Zeros when nothing was read.
    pub(super) record: RawLeader,
    /// Whether it is the one asked for.
    pub(super) outcome: Result<(), ReadError>,
}

impl From<ReadError> for Found {
    fn from(error: ReadError) -> Self {
        Self { record: RawLeader::zeroed(), outcome: Err(error) }
    }
}

/// The record that is asked for.
pub(super) fn find(target: &ReadTarget, sizes: Sizes, names: Names) -> Found {
    match target {
        ReadTarget::Nothing => ReadError::NoTarget.into(),
        ReadTarget::Lockspace(spec) => find_delta(spec, sizes, names),
        ReadTarget::Resource(spec) => match spec.disks.first() {
            None => ReadError::NoTarget.into(),
            Some(disk) => find_paxos(spec, disk, names),
        },
    }
}

/// Which names are compared with the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// All, even empty ones.
    All,
    /// Those that were given; others are filled in from disk.
    Given,
}

impl Names {
    fn expected(self, name: Name) -> Option<Name> {
        (self == Self::All || !name.is_empty()).then_some(name)
    }
}

/// The record of a host id, found by the sector size that the first record states.
pub(super) fn find_delta(spec: &LockspaceSpec, sizes: Sizes, names: Names) -> Found {
    if spec.host_id == 0 {
        return ReadError::NoHost.into();
    }
    let mut storage = match Storage::open(&spec.path, Access::ReadOnly) {
        Ok(storage) => storage,
        Err(error) => return ReadError::LockspaceOpen(error).into(),
    };
    let sector = match sizes.sector {
        Some(sector) => sector,
        None => match lockspace_sector_size(&mut storage, spec.offset) {
            Ok(sector) => sector,
            Err(found) => return named_by_original(*found, names),
        },
    };
    let offset = spec.offset.saturating_add((spec.host_id - 1).saturating_mul(u64::from(sector.bytes())));
    let bytes = match storage.read(offset, sector.slice_len()) {
        Ok(bytes) => bytes,
        Err(error) => return ReadError::from(error).into(),
    };
    let record = RawLeader::from_sector(&bytes);
    let outcome = verify::delta(&record, names.expected(spec.name).as_ref(), Purpose::Read);
    Found { record, outcome: outcome.map_err(ReadError::from) }
}

/// The failure with the number that the original gives it; `read`, which is an action of 5.x, keeps -223.
fn named_by_original(found: Found, names: Names) -> Found {
    match found.outcome {
        Err(ReadError::Leader(error)) if names == Names::All && is_no_lease(&error) => {
            Found { outcome: Err(ReadError::NoSizes(error)), ..found }
        }
        _ => found,
    }
}

/// The sector size that the first record states, of which only the magic is looked at: damage to it keeps nobody from another host's.
pub(super) fn lockspace_sector_size(storage: &mut Storage, offset: u64) -> Result<SectorSize, Box<Found>> {
    let first =
        storage.read(offset, SECTOR_BYTES_MAX).map_err(|error| Box::new(ReadError::from(error).into()))?;
    let record = RawLeader::from_sector(&first);
    let sector = match (record.magic.get(), record.sector_size.get()) {
        (DELTA_MAGIC, found) => SectorSize::from_bytes(found).ok_or(LeaderError::SectorSize { found }),
        (found, _) => Err(LeaderError::Magic { expected: DELTA_MAGIC, found }),
    };
    sector.map_err(|error| Box::new(Found { record, outcome: Err(error.into()) }))
}

fn find_paxos(spec: &ResourceSpec, disk: &DiskSpec, names: Names) -> Found {
    let bytes = Storage::open(&disk.path, Access::ReadOnly)
        .and_then(|mut storage| storage.read(disk.offset, SECTOR_BYTES_MAX));
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(error) => return ReadError::from(error).into(),
    };
    let record = RawLeader::from_sector(&bytes);
    let expect = Expect {
        lockspace: names.expected(spec.lockspace),
        resource: names.expected(spec.name),
        host_id: None,
    };
    let outcome = verify::paxos(&record, &expect, Purpose::Read);
    Found { record, outcome: outcome.map(drop).map_err(ReadError::from) }
}

/// `resource`: whether the fields have the names of a resource's (command-line.md 8.3).
pub(super) fn read_leader(target: &ReadTarget, sizes: Sizes, resource: bool) -> u8 {
    let found = find(target, sizes, Names::All);
    let status = report("read_leader", &target.subject(), &found.outcome);
    print(fields::text(&found.record, resource));
    status
}

pub(super) fn read(target: &ReadTarget, sizes: Sizes) -> u8 {
    let found = find(target, sizes, Names::Given);
    let status = report("read", &target.subject(), &found.outcome);
    if found.outcome.is_ok() {
        print(line(target, &found.record));
    }
    status
}

/// The lockspace or resource in one line, with the names on disk.
fn line(target: &ReadTarget, record: &RawLeader) -> Vec<u8> {
    let space = Name::from_field(&record.space_name);
    match target {
        ReadTarget::Nothing => Vec::new(),
        ReadTarget::Lockspace(spec) => {
            let id = format!(":{}:", spec.host_id);
            let offset = format!(":{}\n", spec.offset);
            [b"s ", space.as_bytes(), id.as_bytes(), &spec.path, offset.as_bytes()].concat()
        }
        ReadTarget::Resource(spec) => {
            let name = Name::from_field(&record.resource_name);
            let mut out = [b"r ", space.as_bytes(), b":", name.as_bytes()].concat();
            for disk in &spec.disks {
                out.push(b':');
                out.extend_from_slice(&path::export(&disk.path, PATH_BYTES));
                out.extend_from_slice(format!(":{}", disk.offset).as_bytes());
            }
            out.extend_from_slice(format!(":{}\n", record.lver).as_bytes());
            out
        }
    }
}
