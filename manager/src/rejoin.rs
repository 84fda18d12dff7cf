//! When a daemon that finds its own host name on a host_id lease may take it at once (rule R7).
//!
//! The lease's name says that *this machine* held it. Whether processes of that earlier daemon still run, only this machine can
//! know: each joined lockspace has a record in the run directory with the processes that hold tokens, on stable storage before
//! the first of them is granted one.
//!
//! Within one boot that proves nothing to another daemon: writes of the one that died may still be on their way. Only the daemon
//! that saw its writes and processes end itself knows that they have; to any other one only a reboot proves it.

use sanlock_lease::delta::Instance;
use sanlock_lease::text::LockspaceSpec;

/// A process, safe against pid reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// Its pid.
    pub pid: i32,
    /// Its start time in clock ticks since boot (`/proc/PID/stat`); 0 if it could not be read.
    pub start: u64,
}

/// What the run directory says of one joined lockspace, and where it is. Boot id and start times are filled in by the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejoinRecord {
    /// The lockspace, our host id in it, and its place: another one may have the same name, and be as many generations old.
    pub spec: LockspaceSpec,
    /// The generation it is held with, and the io timeout that others judge us by.
    pub instance: Instance,
    /// Processes that were granted a token in it.
    pub pids: Vec<i32>,
    /// Whether something may still act on what was held although every process listed is gone: a descendant that keeps the
    /// connection of a dead process open, or a write that may still land. Nothing then proves the end of this instance but a
    /// reboot.
    pub outlived: bool,
}

/// What was found when a lockspace is joined anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejoinEvidence {
    /// There is no record.
    None,
    /// There is one that cannot be read, or is for another lockspace or host id.
    Unusable,
    /// It tells of an instance, and nothing of what became of it: that was in another place, or it may be damaged.
    NoProof {
        /// The instance recorded.
        instance: Instance,
    },
    /// It is of an earlier boot: no process can have survived.
    OtherBoot {
        /// The instance recorded.
        instance: Instance,
    },
    /// It is of this boot.
    ThisBoot {
        /// The instance recorded.
        instance: Instance,
        /// Whether it was written by this very daemon.
        own: bool,
        /// Whether a process of it still runs, or may, or the record says [`RejoinRecord::outlived`].
        alive: bool,
    },
}

/// The generation that may be taken over without the long wait: the one whose processes are proved to be gone. A lease on disk
/// with another generation belongs to another instance, of which the record says nothing.
///
/// No record is no proof: an earlier daemon may have used another run directory. In doubt the wait is the answer.
#[must_use]
pub fn fast_rejoin(evidence: RejoinEvidence) -> Option<u64> {
    match evidence {
        RejoinEvidence::OtherBoot { instance }
        | RejoinEvidence::ThisBoot { instance, own: true, alive: false } => Some(instance.generation),
        RejoinEvidence::ThisBoot { .. } | RejoinEvidence::NoProof { .. } => None,
        RejoinEvidence::None | RejoinEvidence::Unusable => None,
    }
}

/// The instance that this machine is known to have been, if there is one: the generation of the next one is to be larger, and unless nothing
/// can be left of it, it is to be waited for by its io timeout, whatever the disk says.
#[must_use]
pub fn remembered(evidence: RejoinEvidence) -> Option<Instance> {
    match evidence {
        RejoinEvidence::NoProof { instance }
        | RejoinEvidence::OtherBoot { instance }
        | RejoinEvidence::ThisBoot { instance, .. } => Some(instance),
        RejoinEvidence::None | RejoinEvidence::Unusable => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanlock_lease::timing::IoTimeout;

    fn instance(generation: u64) -> Instance {
        Instance { generation, io_timeout: IoTimeout::DEFAULT }
    }

    #[test]
    fn only_proof_that_nothing_survived_allows_a_fast_rejoin() {
        assert_eq!(fast_rejoin(RejoinEvidence::OtherBoot { instance: instance(3) }), Some(3));
        let this_boot =
            |own, alive| fast_rejoin(RejoinEvidence::ThisBoot { instance: instance(3), own, alive });
        assert_eq!(this_boot(true, false), Some(3));
        assert_eq!(this_boot(true, true), None);
        assert_eq!(this_boot(false, false), None, "a write of the daemon that died may still land");
        assert_eq!(fast_rejoin(RejoinEvidence::NoProof { instance: instance(3) }), None);
        assert_eq!(fast_rejoin(RejoinEvidence::None), None);
        assert_eq!(fast_rejoin(RejoinEvidence::Unusable), None);
    }

    #[test]
    fn every_record_tells_an_instance() {
        let other_boot = RejoinEvidence::OtherBoot { instance: instance(3) };
        assert_eq!(remembered(other_boot), Some(instance(3)));
        let this_boot = RejoinEvidence::ThisBoot { instance: instance(4), own: false, alive: true };
        assert_eq!(remembered(this_boot), Some(instance(4)));
        assert_eq!(remembered(RejoinEvidence::NoProof { instance: instance(5) }), Some(instance(5)));
        assert_eq!(remembered(RejoinEvidence::Unusable), None);
    }
}
