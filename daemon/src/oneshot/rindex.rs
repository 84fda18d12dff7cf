//! The commands on a resource index that need no lockspace, and what all of them share (socket-protocol.md 7.33).

use super::sizes::Hints;
use super::{Io, ToolError, no_memory, room};
use sanlock_blockio::{Disk, Op};
use sanlock_lease::machine::{Env, IoFailure, LockspaceNow, NoHosts};
use sanlock_lease::name::Name;
use sanlock_lease::rindex::{
    Answer, Entry, Limit, RindexCommand, RindexConfig, RindexError, RindexOperation, Want,
};
use sanlock_lease::timing::{MonoTime, WatchdogFire};
use sanlock_sys::clock::boottime_seconds;
use sanlock_wire::flags::RindexCmdFlags;
use sanlock_wire::name as wire;
use sanlock_wire::types::{Rentry, Rindex};
use std::sync::Arc;

/// As often as there may be an area of an index in memory at a time: as read or made, as kept, as written, and in its transfer.
const AREAS: usize = 4;

/// Formats an index and its lease, which lies behind it. What was there is lost. Nothing is written unless both fit on the device.
///
/// # Errors
/// The errno of opening the disk. -1: sizes that do not go together. -22: an index so far up that its areas have no offsets. I/O:
/// -202 no answer in time (the write may still happen), -90 or -28 beyond the end of a device, or the errno.
pub fn format_rindex(io: &mut Io, request: &Rindex) -> Result<(), ToolError> {
    let disk = io.open_resource(&request.disk)?;
    let geometry = Hints::from_flags(request.flags.get()).to_format(&disk)?;
    let offset = request.disk.offset.get();
    let area = geometry.align().bytes();
    let len = usize::try_from(area).unwrap_or(usize::MAX);
    for begin in [offset, offset.saturating_add(area)] {
        disk.has_room(begin, len)?;
    }
    room(len.saturating_mul(AREAS)).ok_or_else(|| no_memory(&disk, Op::Write, offset, len))?;
    let command = RindexCommand::Format { geometry, max_resources: request.max_resources.get() };
    run(io, &disk, request, command).map(drop)
}

/// Looks up a name, an offset, whether the two belong together, or the first free area.
///
/// # Errors
/// The errno of opening the disk. -274 to -277: no index, or not this one. -2: no such name, or no free area. -277: no such area.
/// -278: the area has another name. I/O as in [`format_rindex`].
pub fn lookup_rindex(io: &mut Io, request: &Rindex, entry: &Rentry) -> Result<Rentry, ToolError> {
    let disk = io.open_resource(&request.disk)?;
    run(io, &disk, request, lookup_command(entry)).map(to_wire)
}

/// Sets or clears the entry of an area, without the lease of the index: nobody else may be changing it.
///
/// # Errors
/// As [`lookup_rindex`]. -22: no offset, or no name to be set, or neither is asked for; of an index that cannot be used its own error comes
/// before the last of these.
pub fn update_rindex(
    io: &mut Io,
    request: &Rindex,
    entry: &Rentry,
    flags: RindexCmdFlags,
) -> Result<Rentry, ToolError> {
    let disk = io.open_resource(&request.disk)?;
    let command = update_command(entry, flags, 0).map_err(|error| index_first(io, &disk, request, error))?;
    run(io, &disk, request, command).map(to_wire)
}

/// Makes the entries anew from what lies in the areas, without the lease of the index: nobody else may be changing it.
///
/// # Errors
/// As [`lookup_rindex`].
pub fn rebuild_rindex(io: &mut Io, request: &Rindex) -> Result<(), ToolError> {
    let disk = io.open_resource(&request.disk)?;
    run(io, &disk, request, RindexCommand::Rebuild { seed: 0 }).map(drop)
}

/// What LOOKUP_RINDEX asks for.
pub(crate) fn lookup_command(entry: &Rentry) -> RindexCommand {
    RindexCommand::Lookup { name: Name::from_field(entry.name.as_raw()), offset: entry.offset.get() }
}

/// What UPDATE_RINDEX asks for; of both flags the removal counts.
///
/// # Errors
/// Neither flag.
pub(crate) fn update_command(
    entry: &Rentry,
    flags: RindexCmdFlags,
    seed: u64,
) -> Result<RindexCommand, ToolError> {
    let (name, offset) = (Name::from_field(entry.name.as_raw()), entry.offset.get());
    if flags.contains(RindexCmdFlags::UPDATE_REM) {
        Ok(RindexCommand::Remove { offset, seed })
    } else if flags.contains(RindexCmdFlags::UPDATE_ADD) {
        Ok(RindexCommand::Add { name, offset, seed })
    } else {
        Err(RindexError::Missing("what to do with the entry").into())
    }
}

/// The error of a command that does not say what to do: `error`, unless the index cannot be used, which is found out first.
pub(crate) fn index_first(io: &mut Io, disk: &Arc<Disk>, request: &Rindex, error: ToolError) -> ToolError {
    // Any look at it does.
    let look = RindexCommand::Lookup { name: Name::default(), offset: 0 };
    match run(io, disk, request, look) {
        Ok(_) | Err(ToolError::Rindex(RindexError::NoSuchName(_) | RindexError::Full(_))) => error,
        Err(unusable) => unusable,
    }
}

/// Where the index is, for a host that is no member of its lockspace.
pub(crate) fn config(request: &Rindex) -> RindexConfig {
    RindexConfig {
        lockspace: Name::from_field(request.lockspace_name.as_raw()),
        offset: request.disk.offset.get(),
        member: None,
        fire: WatchdogFire::DEFAULT,
    }
}

/// An entry as a client gets it.
pub(crate) fn to_wire(entry: Entry) -> Rentry {
    Rentry::new(wire::Name::from_raw(entry.name.to_field()), entry.offset)
}

/// The entry that goes with a failure: the one found, where another was asked for.
#[must_use]
pub fn entry_of_failure(error: &ToolError) -> Rentry {
    match error {
        ToolError::Rindex(RindexError::Differs { found, offset }) => {
            to_wire(Entry { name: *found, offset: *offset })
        }
        _ => Rentry::new(wire::Name::EMPTY, 0),
    }
}

/// Does one transfer of an operation and gives the operation its result. `may_write`: whether a write may still begin when there is a place
/// for it.
///
/// # Errors
/// Gives back what is no transfer.
pub(crate) fn transfer(
    io: &mut Io,
    disk: &Arc<Disk>,
    want: Want,
    may_write: impl Fn() -> bool,
    answer: impl FnOnce(Answer<'_>) -> Want,
) -> Result<Want, Want> {
    match want {
        // What is read is kept, changed and written back. Where there is no memory for that the daemon would end.
        Want::Read { len, .. } if room(len.saturating_mul(AREAS)).is_none() => {
            Ok(answer(Answer::Read(Err(IoFailure::Os(libc::ENOMEM)))))
        }
        Want::Read { offset, len } => {
            let result = io.read(disk, offset, len).map_err(|error| failure(&error));
            Ok(answer(Answer::Read(result.as_deref().map_err(|failure| *failure))))
        }
        Want::Write { offset, bytes, limit } => {
            let limit = match limit {
                Limit::IoTimeout => io.limits.io_timeout,
                Limit::Init => io.limits.write_init,
            };
            let result = io.engine.write_all_at_while(disk, offset, &bytes, limit, may_write);
            Ok(answer(Answer::Written(result.map_err(|error| error.kind.failure()))))
        }
        other => Err(other),
    }
}

fn failure(error: &ToolError) -> IoFailure {
    match error {
        ToolError::Io(error) => error.kind.failure(),
        _ => IoFailure::Os(libc::EIO),
    }
}

/// Runs an operation that takes no lease.
fn run(io: &mut Io, disk: &Arc<Disk>, request: &Rindex, command: RindexCommand) -> Result<Entry, ToolError> {
    let (offset, block) = (request.disk.offset.get(), disk.logical_block_size());
    if offset % u64::from(block) != 0 {
        return Err(ToolError::Unaligned { offset, block });
    }
    let mut operation = RindexOperation::new(config(request), command);
    let env =
        Env { lockspace: LockspaceNow::Gone, client_alive: true, shutting_down: false, hosts: &NoHosts };
    let now = || MonoTime::from_secs(boottime_seconds());
    let mut want = operation.step(now(), &env, Answer::Start);
    // Without a lease everything else it may want follows the result: writes that may still land are left to the caller.
    while let Ok(next) = transfer(io, disk, want, || true, |answer| operation.step(now(), &env, answer)) {
        want = next;
    }
    operation.result().unwrap_or(Err(RindexError::Driver)).map_err(ToolError::from)
}
