//! `init`: formats a lockspace or a resource (command-line.md 8.1; disk-format.md 2.3, 6, 7.6).
//!
//! What was there is overwritten without a question, as in the original. The only trace is a line in syslog.

use super::report::{Failure, first_step, report};
use super::storage::{Storage, StorageError};
use crate::cli::command::InitTarget;
use crate::cli::given::Sizes;
use nix::syslog::{Facility, LogFlags, Severity, openlog, syslog};
use sanlock_blockio::Access;
use sanlock_lease::code::ReturnCode;
use sanlock_lease::format::{self, Lockspace, Resource, SizesError};
use sanlock_lease::geometry::{AlignSize, Geometry, SectorSize};
use sanlock_lease::text::{LockspaceSpec, ResourceSpec};
use sanlock_lease::timing::{IoTimeout, IoTimeoutError};
use sanlock_sys::clock::monotonic_seconds;
use sanlock_wire::{Command, code};

const ACTION: &str = "init";
/// Name under which changes are recorded in syslog.
const SYSLOG_IDENT: &std::ffi::CStr = c"sanlock-direct";

/// Why nothing, or not everything, was written.
#[derive(Debug, thiserror::Error)]
enum InitError {
    #[error("give a lockspace with its path (-s NAME:ID:PATH:OFFSET) or a resource (-r)")]
    NoTarget,
    #[error("the resource names no place")]
    NoDisk,
    #[error(transparent)]
    Sizes(#[from] SizesError),
    #[error(transparent)]
    IoTimeout(#[from] IoTimeoutError),
    #[error("{0}")]
    LockspaceOpen(StorageError),
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Failure for InitError {
    fn code(&self) -> i32 {
        match self {
            Self::NoTarget | Self::IoTimeout(_) | Self::Sizes(SizesError::BlockSize { .. }) => {
                ReturnCode::EINVAL.0
            }
            // Whatever the reason: lockspaces report a path that cannot be opened like this (disk-format.md 2.6).
            Self::NoDisk | Self::LockspaceOpen(_) => ReturnCode::ENODEV.0,
            Self::Sizes(SizesError::OnlyOne | SizesError::Pair(_)) => ReturnCode::GENERIC.0,
            Self::Storage(error) => error.code(),
        }
    }

    fn next(&self) -> Option<&'static str> {
        match self {
            Self::Sizes(_) => code::next_step(ReturnCode::GENERIC.0, Some(Command::WriteLockspace)),
            error => first_step(error.code()),
        }
    }
}

pub(super) fn init(target: &InitTarget, sizes: Sizes) -> u8 {
    let outcome = match target {
        InitTarget::Nothing => Err(InitError::NoTarget),
        InitTarget::Lockspace { spec, io_timeout } => init_lockspace(spec, *io_timeout, sizes),
        InitTarget::Resource { spec, num_hosts, clear } => init_resource(spec, *num_hosts, *clear, sizes),
    };
    report(ACTION, &target.subject(), &outcome)
}

/// Leaves a trace of what is about to be overwritten. Without a system log it is lost, as in the original.
pub(super) fn record(text: &[u8]) {
    use std::os::unix::ffi::OsStrExt;
    let _ = openlog(Some(SYSLOG_IDENT), LogFlags::LOG_PID, Facility::LOG_DAEMON);
    let _ = syslog(Severity::LOG_WARNING, std::ffi::OsStr::from_bytes(text));
}

/// The size flags of the library's structures, for the trace (disk-format.md 2.5).
fn size_flags(sizes: Sizes) -> u32 {
    let sector = match sizes.sector {
        None => 0,
        Some(SectorSize::B512) => 0x100,
        Some(SectorSize::B4096) => 0x200,
    };
    sector | sizes.align.map_or(0, AlignSize::flag)
}

fn choose(sizes: Sizes, storage: &Storage) -> Result<Geometry, SizesError> {
    format::choose_sizes(sizes.sector, sizes.align, storage.disk().logical_block_size())
}

fn init_lockspace(spec: &LockspaceSpec, io_timeout: u32, sizes: Sizes) -> Result<(), InitError> {
    let io_timeout = IoTimeout::new(io_timeout)?;
    let mut text = [b"init lockspace ", spec.name.as_bytes()].concat();
    text.extend_from_slice(format!(":{}:", spec.host_id).as_bytes());
    text.extend_from_slice(&spec.path);
    text.extend_from_slice(format!(":{} {:#x}", spec.offset, size_flags(sizes)).as_bytes());
    record(&text);
    let mut storage = Storage::open(&spec.path, Access::ReadWrite).map_err(InitError::LockspaceOpen)?;
    let lockspace = Lockspace { name: spec.name, geometry: choose(sizes, &storage)?, io_timeout };
    for bytes in lockspace.writes() {
        storage.format(spec.offset, &bytes)?;
    }
    Ok(())
}

fn init_resource(spec: &ResourceSpec, num_hosts: u32, clear: bool, sizes: Sizes) -> Result<(), InitError> {
    if spec.disks.is_empty() {
        return Err(InitError::NoDisk);
    }
    let text = spec.to_text().unwrap_or_default();
    record(&[b"init resource ", text.as_slice()].concat());
    for disk in &spec.disks {
        let mut storage = Storage::open(&disk.path, Access::ReadWrite)?;
        let geometry = choose(sizes, &storage)?;
        let resource = Resource {
            lockspace: spec.lockspace,
            name: spec.name,
            geometry,
            num_hosts: format::num_hosts(num_hosts, geometry),
            cleared_at: clear.then(monotonic_seconds),
        };
        for bytes in resource.writes(storage.disk().logical_block_size()) {
            storage.format(disk.offset, &bytes)?;
        }
    }
    Ok(())
}
