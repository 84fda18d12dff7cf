//! When a host may take its own delta lease back without waiting (rule R7 of lease-algorithms.md 15.3).
//!
//! A delta lease that is not free and carries our host name belongs to an earlier instance of this daemon that did not leave
//! cleanly. Its processes may still be running: taking the lease over raises the generation, upon which other hosts take the
//! old instance's resources at once. So that is allowed only when none of those processes can be alive.
//!
//! What an instance had running is in its *rejoin record* in the run directory, one for each joined lockspace. A process is in
//! the record, and the record on stable storage, before it gets its first lease.
//!
//! | Evidence | Rejoin | Because |
//! |---|---|---|
//! | no record | long wait | it may have been deleted, or the lease be another machine's with our name |
//! | unreadable | long wait | unknown processes |
//! | another machine, lockspace, host id | long wait | it says nothing about this lease |
//! | this machine, another boot | fast | nothing survives a reboot |
//! | this boot, a recorded process lives, or leases outlived their process, or writes may land late | long wait | somebody may still use the disk |
//! | this boot, none of that | fast | the old instance and all its users are gone |
//!
//! Fast also demands that the lease on disk carries the recorded generation (see [`crate::action::Rejoin`]): a larger one
//! belongs to an instance that the record does not know. A free lease needs none of this.

use sanlock_lease::name::Name;

/// One boot of one machine (`/proc/sys/kernel/random/boot_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BootId(pub [u8; 16]);

/// One machine (`/etc/machine-id`). All zero: unknown, which equals no machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MachineId(pub [u8; 16]);

/// A process, told apart from a later one with the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Process {
    /// Its pid.
    pub pid: i32,
    /// When it started, in clock ticks since boot; 0 if unknown, which then stands for every process with this pid.
    pub start_time: u64,
}

/// What one instance had in one lockspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejoinRecord {
    /// The boot it ran in.
    pub boot: BootId,
    /// The machine it ran on.
    pub machine: MachineId,
    /// The lockspace.
    pub lockspace: Name,
    /// Its host id there.
    pub host_id: u64,
    /// Its generation.
    pub generation: u64,
    /// The processes that hold leases in it, or are about to.
    pub processes: Vec<Process>,
    /// A process of the list is gone, but a descendant keeps its connection, and with it its leases: nobody knows its pid.
    pub outlived: bool,
    /// The lockspace was given up while writes of it could still land.
    pub writes_outstanding: bool,
}

/// What the daemon found in the run directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RejoinEvidence {
    /// No record.
    None,
    /// Something that is not a record.
    Unreadable,
    /// A record.
    Found {
        /// The record.
        record: RejoinRecord,
        /// Whether one of its processes lives: same pid and, where known, same start time.
        living: bool,
    },
}
