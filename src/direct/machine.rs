//! Step machines of the lease code, driven to their end by this process alone.

use super::report::Failure;
use super::storage::{Storage, StorageError};
use crate::output::note;
use sanlock_blockio::EngineKind;
use sanlock_blockio::drive::{Area, Areas, Finished, run_blocking};
use sanlock_lease::machine::{Env, LockspaceNow, Machine, NoHosts};

/// Runs `machine` to its end. Nobody watches the host id it acts for: the one who gave the command vouches for it, and for its
/// `generation`. Writes that did not end in time are told as a note on `action`.
///
/// # Errors
/// There is no I/O engine.
pub(super) fn drive<M: Machine>(
    action: &str,
    machine: M,
    areas: Areas,
    generation: u64,
) -> Result<Finished<M::Outcome>, StorageError> {
    let env = Env {
        lockspace: LockspaceNow::Alive { generation },
        client_alive: true,
        shutting_down: false,
        hosts: &NoHosts,
    };
    let finished = run_blocking(EngineKind::probe()?, machine, areas, |_| env)?;
    if finished.outstanding > 0 {
        let writes = finished.outstanding;
        note(action, &format!("{writes} write(s) did not end in time and may still happen at any time"));
    }
    Ok(finished)
}

/// The area at `offset` of an open disk, or of one that could not be opened.
pub(super) fn area(storage: &Result<Storage, StorageError>, offset: u64) -> Area {
    let disk = match storage {
        Ok(storage) => Ok(storage.shared_disk()),
        Err(error) => Err(error.code().saturating_neg()),
    };
    Area { disk, offset }
}
