//! When a daemon that finds its own host name on a host_id lease may take it at once (rule R7).
//!
//! The lease's name says that *this machine* held it. Whether processes of that earlier daemon still run, only this machine can
//! know: each joined lockspace has a record in the run directory with the processes that hold tokens, on stable storage before
//! the first of them is granted one.

use sanlock_lease::name::Name;

/// A process, safe against pid reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// Its pid.
    pub pid: i32,
    /// Its start time in clock ticks since boot (`/proc/PID/stat`); 0 if it could not be read.
    pub start: u64,
}

/// What the run directory says of one joined lockspace. Boot id and start times are filled in by the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejoinRecord {
    /// The lockspace.
    pub lockspace: Name,
    /// Our host id in it.
    pub host_id: u64,
    /// The generation it is held with.
    pub generation: u64,
    /// Processes that were granted a token in it.
    pub pids: Vec<i32>,
}

/// What was found when a lockspace is joined anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejoinEvidence {
    /// There is no record.
    None,
    /// There is one that cannot be read, or is for another lockspace or host id.
    Unusable,
    /// It is of an earlier boot: no process can have survived.
    OtherBoot,
    /// It is of this boot.
    ThisBoot {
        /// Whether a process of it still runs, or may.
        alive: bool,
    },
}

/// Whether the long wait may be left out. Only with proof that no process of the earlier instance is left.
///
/// No record is no proof: an earlier daemon may have used another run directory. In doubt the wait is the answer.
#[must_use]
pub fn fast_rejoin(evidence: RejoinEvidence) -> bool {
    matches!(evidence, RejoinEvidence::OtherBoot | RejoinEvidence::ThisBoot { alive: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_proof_that_nothing_survived_allows_a_fast_rejoin() {
        assert!(fast_rejoin(RejoinEvidence::OtherBoot));
        assert!(fast_rejoin(RejoinEvidence::ThisBoot { alive: false }));
        assert!(!fast_rejoin(RejoinEvidence::ThisBoot { alive: true }));
        assert!(!fast_rejoin(RejoinEvidence::None));
        assert!(!fast_rejoin(RejoinEvidence::Unusable));
    }
}
