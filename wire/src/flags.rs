//! Flag values of requests and structures (socket-protocol.md 4.1, 12.6).
//!
//! Unknown bits of `cmd_flags` are ignored by the daemon (7); read them with `from_bits_truncate` or `from_bits_retain`.

use bitflags::bitflags;

bitflags! {
    /// `flags` of a resource, `SANLK_RES_*`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct ResourceFlags: u32 {
        /// `lver` is given: the version on disk must equal it.
        const LVER = 0x1;
        /// `data32` is the lease's new number of hosts.
        const NUM_HOSTS = 0x2;
        /// Shared mode.
        const SHARED = 0x4;
        /// Becomes an orphan, not released, when its process ends.
        const PERSISTENT = 0x8;
        /// Lease areas of 1 MiB.
        const ALIGN1M = 0x10;
        /// Lease areas of 2 MiB.
        const ALIGN2M = 0x20;
        /// Lease areas of 4 MiB.
        const ALIGN4M = 0x40;
        /// Lease areas of 8 MiB.
        const ALIGN8M = 0x80;
        /// Sectors of 512 bytes.
        const SECTOR512 = 0x100;
        /// Sectors of 4096 bytes.
        const SECTOR4K = 0x200;
    }

    /// `flags` of a lockspace, `SANLK_LSF_*`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct LockspaceFlags: u32 {
        /// Being added (in GET_LOCKSPACES).
        const ADD = 0x1;
        /// Being removed (in GET_LOCKSPACES).
        const REM = 0x2;
        /// Lease areas of 1 MiB.
        const ALIGN1M = 0x10;
        /// Lease areas of 2 MiB.
        const ALIGN2M = 0x20;
        /// Lease areas of 4 MiB.
        const ALIGN4M = 0x40;
        /// Lease areas of 8 MiB.
        const ALIGN8M = 0x80;
        /// Sectors of 512 bytes.
        const SECTOR512 = 0x100;
        /// Sectors of 4096 bytes.
        const SECTOR4K = 0x200;
    }

    /// `flags` of a resource index, `SANLK_RIF_*`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct RindexFlags: u32 {
        /// Lease areas of 1 MiB.
        const ALIGN1M = 0x10;
        /// Lease areas of 2 MiB.
        const ALIGN2M = 0x20;
        /// Lease areas of 4 MiB.
        const ALIGN4M = 0x40;
        /// Lease areas of 8 MiB.
        const ALIGN8M = 0x80;
        /// Sectors of 512 bytes.
        const SECTOR512 = 0x100;
        /// Sectors of 4096 bytes.
        const SECTOR4K = 0x200;
    }

    /// Flags of ADD_LOCKSPACE.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct AddFlags: u32 {
        /// Answer at once, join in the background.
        const ASYNC = 0x1;
    }

    /// Flags of REM_LOCKSPACE.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct RemFlags: u32 {
        /// Answer at once, leave in the background.
        const ASYNC = 0x1;
        /// Refuse while a lease of the lockspace is in use on this host.
        const UNUSED = 0x2;
    }

    /// Flags of INQ_LOCKSPACE.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct InqFlags: u32 {
        /// Answer only when the lockspace is neither being added nor removed.
        const WAIT = 0x1;
    }

    /// Flags of WRITE_RESOURCE.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct WriteFlags: u32 {
        /// Write the "cleared" magic: the area then holds no lease.
        const CLEAR = 0x1;
    }

    /// Flags of RESTRICT.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct RestrictFlags: u32 {
        /// Ignore every later message of this connection.
        const ALL = 0x1;
        /// Never SIGKILL this process.
        const SIGKILL = 0x2;
        /// Never SIGTERM this process.
        const SIGTERM = 0x4;
    }

    /// Flags of KILLPATH.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct KillpathFlags: u32 {
        /// Append the pid to the arguments.
        const PID = 0x1;
    }

    /// Flags of ACQUIRE.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct AcquireFlags: u32 {
        /// Read the lock value block with the lease.
        const LVB = 0x1;
        /// Adopt an orphan if there is one.
        const ORPHAN = 0x2;
        /// Only adopt an orphan.
        const ORPHAN_ONLY = 0x4;
        /// Do not wait for a dead owner's time to run out.
        const OWNER_NOWAIT = 0x8;
    }

    /// Flags of RELEASE, tested in the order ALL, ORPHAN, RENAME (7.8).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct ReleaseFlags: u32 {
        /// Every lease of the target.
        const ALL = 0x1;
        /// Give the lease another name while releasing it.
        const RENAME = 0x2;
        /// Orphans of a lockspace.
        const ORPHAN = 0x4;
    }

    /// Flags of CONVERT.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct ConvertFlags: u32 {
        /// Do not wait for a dead owner's time to run out.
        const OWNER_NOWAIT = 0x8;
    }

    /// Flags of REQUEST.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct RequestFlags: u32 {
        /// Request the version after the one on disk.
        const NEXT_LVER = 0x1;
    }

    /// Flags of SET_EVENT.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct SetEventFlags: u32 {
        /// Use the host's current generation.
        const CUR_GENERATION = 0x1;
        /// Take the host's bit back.
        const CLEAR_HOSTID = 0x2;
        /// Take the event back.
        const CLEAR_EVENT = 0x4;
        /// Replace an event that is still being shown.
        const REPLACE_EVENT = 0x8;
        /// To all hosts.
        const ALL_HOSTS = 0x10;
    }

    /// Flags of the resource index commands.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct RindexCmdFlags: u32 {
        /// The lockspace need not be joined.
        const NO_LOCKSPACE = 0x1;
        /// UPDATE_RINDEX: add the entry.
        const UPDATE_ADD = 0x10000;
        /// UPDATE_RINDEX: remove the entry.
        const UPDATE_REM = 0x20000;
    }

    /// Result of comparing a resource's owners with the hosts of its lockspace, `SANLK_TRF_*` (11.5).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct TestResourceFlags: u32 {
        /// An owner may still be alive.
        const FAIL = 0x1;
    }
}

/// `data` of SET_CONFIG: exactly one of these, not a combination (7.31).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ConfigCommand {
    /// Keep a failed or removed lockspace until UNUSED.
    Used = 1,
    /// Take [`ConfigCommand::Used`] back.
    Unused = 2,
    /// Keep a failed or removed lockspace while it has orphans.
    UsedByOrphans = 4,
    /// Take [`ConfigCommand::UsedByOrphans`] back.
    UnusedByOrphans = 8,
}

impl ConfigCommand {
    /// The command with this number.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Used),
            2 => Some(Self::Unused),
            4 => Some(Self::UsedByOrphans),
            8 => Some(Self::UnusedByOrphans),
            _ => None,
        }
    }
}

impl From<ConfigCommand> for u32 {
    fn from(command: ConfigCommand) -> Self {
        command as Self
    }
}

/// `data` of REQUEST (7.11): what the holder's daemon shall do. Other numbers are stored and ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ForceMode {
    /// With a lease version of 0: take the request back.
    None = 0,
    /// SIGKILL.
    Force = 1,
    /// Killpath, else SIGTERM.
    Graceful = 2,
}

/// Mask of the host state in `flags` of a [`Host`](crate::types::Host).
pub const HOST_STATE_MASK: u32 = 0xF;

/// What is known about another host (low four bits of `Host::flags`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum HostState {
    /// Seen too short to tell.
    Unknown = 1,
    /// No owner.
    Free = 2,
    /// Renews its lease.
    Live = 3,
    /// Has not renewed for a while; may still run.
    Fail = 4,
    /// Has not renewed for so long that its watchdog has reset it.
    Dead = 5,
}

impl HostState {
    /// The state in these `Host::flags`, `None` for other numbers.
    #[must_use]
    pub const fn from_flags(flags: u32) -> Option<Self> {
        match flags & HOST_STATE_MASK {
            1 => Some(Self::Unknown),
            2 => Some(Self::Free),
            3 => Some(Self::Live),
            4 => Some(Self::Fail),
            5 => Some(Self::Dead),
            _ => None,
        }
    }

    /// The word that `gets -h` prints.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Free => "FREE",
            Self::Live => "LIVE",
            Self::Fail => "FAIL",
            Self::Dead => "DEAD",
        }
    }
}
