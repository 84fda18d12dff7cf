//! `init`: formats a lockspace or a resource (command-line.md 8.1; disk-format.md 2.3, 6, 7.6).
//!
//! What was there is overwritten without a question, as in the original. The only trace is a line in syslog.

use super::neighbours::remarks;
use super::report::{Failure, SHOWN_IN_HELP, first_step, report};
use super::storage::{FORMAT_TIMEOUT, Storage, StorageError};
use crate::cli::command::InitTarget;
use crate::cli::given::Sizes;
use crate::json::Text;
use crate::output::note;
use crate::progress::{Signs, left, passed_since, show};
use nix::syslog::{Facility, LogFlags, Severity, openlog, syslog};
use sanlock_blockio::Access;
use sanlock_lease::code::ReturnCode;
use sanlock_lease::format::{self, Lockspace, Resource, SizesError};
use sanlock_lease::geometry::{AlignSize, Geometry, SectorSize};
use sanlock_lease::text::{LockspaceSpec, ResourceSpec};
use sanlock_lease::timing::{IoTimeout, IoTimeoutError};
use sanlock_sys::clock::boottime_seconds;
use sanlock_wire::{Command, code};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

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
            Self::NoTarget | Self::NoDisk => Some(SHOWN_IN_HELP),
            Self::LockspaceOpen(error) | Self::Storage(error) => error.next(),
            error => first_step(error.code()),
        }
    }
}

pub(super) fn init(target: &InitTarget, sizes: Sizes, signs: Signs) -> u8 {
    let step = Arc::new(Mutex::new(Step::default()));
    let told = Arc::clone(&step);
    let tell = move |passed: Duration| told.lock().unwrap_or_else(PoisonError::into_inner).tell(passed);
    let outcome = show(signs, ACTION, tell, || match target {
        InitTarget::Nothing => Err(InitError::NoTarget),
        InitTarget::Lockspace { spec, io_timeout } => init_lockspace(spec, *io_timeout, sizes, &step),
        InitTarget::Resource { spec, num_hosts, clear } => {
            init_resource(spec, *num_hosts, *clear, sizes, &step)
        }
    });
    report(ACTION, &target.subject(), &outcome)
}

/// Which write is waited for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Step {
    /// Where; empty before the first one.
    place: String,
    /// From 1 on.
    number: usize,
    of: usize,
    bytes: usize,
    begun: Option<Instant>,
}

impl Step {
    fn tell(&self, passed: Duration) -> String {
        let Some(begun) = self.begun else { return passed_since("opening", passed.as_secs()) };
        let Self { place, number, of, bytes, .. } = self;
        let what = format!("at most, for write {number} of {of} at {place} ({bytes} bytes)");
        left(&what, FORMAT_TIMEOUT.as_secs(), begun.elapsed().as_secs())
    }
}

/// Writes one after the other, and says which.
fn format_at(
    storage: &mut Storage,
    disk: (&[u8], u64),
    writes: &[Vec<u8>],
    step: &Mutex<Step>,
) -> Result<(), StorageError> {
    (0..writes.len()).try_for_each(|number| write_at(storage, disk, writes, number, step))
}

/// The one of this number, if there is one.
fn write_at(
    storage: &mut Storage,
    (path, offset): (&[u8], u64),
    writes: &[Vec<u8>],
    number: usize,
    step: &Mutex<Step>,
) -> Result<(), StorageError> {
    let Some(bytes) = writes.get(number) else { return Ok(()) };
    *step.lock().unwrap_or_else(PoisonError::into_inner) = Step {
        place: format!("{}:{offset}", String::from_utf8_lossy(path)),
        number: number + 1,
        of: writes.len(),
        bytes: bytes.len(),
        begun: Some(Instant::now()),
    };
    storage.format(offset, bytes)
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

/// Says what the area has in common with others. It is formatted all the same, as by the original.
fn warn(storage: &mut Storage, (path, offset): (&[u8], u64), geometry: Geometry) {
    for remark in remarks(storage, offset, geometry) {
        note(ACTION, &format!("WARNING: {}: {remark}", Text::from(path).plain()));
    }
}

fn init_lockspace(
    spec: &LockspaceSpec,
    io_timeout: u32,
    sizes: Sizes,
    step: &Mutex<Step>,
) -> Result<(), InitError> {
    let io_timeout = IoTimeout::new(io_timeout)?;
    let mut text = [b"init lockspace ", spec.name.as_bytes()].concat();
    text.extend_from_slice(format!(":{}:", spec.host_id).as_bytes());
    text.extend_from_slice(&spec.path);
    text.extend_from_slice(format!(":{} {:#x}", spec.offset, size_flags(sizes)).as_bytes());
    record(&text);
    let mut storage = Storage::open(&spec.path, Access::ReadWrite).map_err(InitError::LockspaceOpen)?;
    let lockspace = Lockspace { name: spec.name, geometry: choose(sizes, &storage)?, io_timeout };
    let writes = lockspace.writes();
    storage.has_room(spec.offset, &writes)?;
    warn(&mut storage, (&spec.path, spec.offset), lockspace.geometry);
    format_at(&mut storage, (&spec.path, spec.offset), &writes, step)?;
    Ok(())
}

fn init_resource(
    spec: &ResourceSpec,
    num_hosts: u32,
    clear: bool,
    sizes: Sizes,
    step: &Mutex<Step>,
) -> Result<(), InitError> {
    if spec.disks.is_empty() {
        return Err(InitError::NoDisk);
    }
    let text = spec.to_text().unwrap_or_default();
    record(&[b"init resource ", text.as_slice()].concat());
    let mut disks = Vec::new();
    for disk in &spec.disks {
        let storage = Storage::open(&disk.path, Access::ReadWrite)?;
        let geometry = choose(sizes, &storage)?;
        let resource = Resource {
            lockspace: spec.lockspace,
            name: spec.name,
            geometry,
            num_hosts: format::num_hosts(num_hosts, geometry),
            cleared_at: clear.then(boottime_seconds),
        };
        let writes = resource.writes(storage.disk().logical_block_size());
        disks.push((storage, disk, writes, geometry));
    }
    // The first write destroys what is there, on whichever disk.
    disks.iter().try_for_each(|(storage, disk, writes, _)| storage.has_room(disk.offset, writes))?;
    for (storage, disk, _, geometry) in &mut disks {
        warn(storage, (&disk.path, disk.offset), *geometry);
    }
    let counts: Vec<usize> = disks.iter().map(|(_, _, writes, _)| writes.len()).collect();
    for (disk, number) in format::order(&counts) {
        if let Some((storage, place, writes, _)) = disks.get_mut(disk) {
            write_at(storage, (&place.path, place.offset), writes, number, step)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_write_that_is_waited_for_is_named() {
        let waited = Duration::from_secs(9);
        assert_eq!(Step::default().tell(waited), "9 s so far: opening");
        let step = Step {
            place: "/dev/x:0".to_owned(),
            number: 2,
            of: 3,
            bytes: 8 << 20,
            begun: Instant::now().checked_sub(Duration::from_secs(5)),
        };
        let expected = "55 s left: at most, for write 2 of 3 at /dev/x:0 (8388608 bytes)";
        assert_eq!(step.tell(waited), expected);
    }
}
