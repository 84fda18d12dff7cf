//! Actions on storage, without a daemon and so without anybody's protection (command-line.md 8).
//!
//! Reading opens the storage read-only, so that looking at a lease needs no write permission and wakes no device manager.

mod dump;
mod fields;
mod host_id;
mod index;
mod init;
mod json;
mod leader;
mod machine;
mod neighbours;
mod next_free;
pub(crate) mod report;
mod resource;
mod scan;
pub(crate) mod storage;
mod write_leader;

pub(crate) use report::{Failure, failed};
pub(crate) use scan::Area;
pub(crate) use storage::{Storage, StorageError};

use crate::cli::command::DirectAction;
use crate::progress::Signs;
use sanlock_lease::record::RawLeader;
use sanlock_lease::text::LockspaceSpec;

/// Carries out an action and returns the exit status. `json`: what is shown is printed as an object, by the actions that can.
/// `signs`: how it says what it waits for.
pub(crate) fn run(action: DirectAction, json: bool, signs: Signs) -> u8 {
    if json {
        if let Some(status) = json::run(&action) {
            return status;
        }
    }
    match action {
        DirectAction::Init { target, sizes } => init::init(&target, sizes, signs),
        DirectAction::ReadLeader { target, sizes, resource } => leader::read_leader(&target, sizes, resource),
        DirectAction::Read { target, sizes } => leader::read(&target, sizes),
        DirectAction::WriteLeader(args) => write_leader::write_leader(&args),
        DirectAction::Acquire(args) => resource::acquire(&args, signs),
        DirectAction::Release(args) => resource::release(&args),
        DirectAction::AcquireId(args) => host_id::acquire_id(&args, signs),
        DirectAction::RenewId(args) => host_id::renew_id(&args),
        DirectAction::ReleaseId(args) => host_id::release_id(&args),
        DirectAction::Dump { range, detail, geometry } => dump::dump(range.as_ref(), detail, geometry),
        DirectAction::Index { action, args } => index::index(action, &args),
        DirectAction::NextFree { start, geometry } => next_free::next_free(start.as_ref(), geometry),
    }
}

/// The record of a host id as it is, if it can be read and is one of that lockspace.
pub(crate) fn host_id_record(spec: &LockspaceSpec) -> Option<RawLeader> {
    let found = leader::find_delta(spec, crate::cli::given::Sizes::default(), leader::Names::Given);
    found.outcome.ok().map(|()| found.record)
}
