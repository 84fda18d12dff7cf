//! From raw records to records that algorithms accept: the checks, in the specified order (disk-format.md 9).

use crate::geometry::{AlignSize, Geometry, GeometryError, HostId, SectorSize};
use crate::name::Name;
use crate::record::{DELTA_MAGIC, Dblock, FLAG_CAW, PAXOS_CLEARED_MAGIC, PAXOS_MAGIC, RawLeader};

/// What is wrong with a leader record. The first check that fails decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LeaderError {
    /// No lease there: never initialised, overwritten, or another kind of lease.
    #[error("no lease at this place: magic {found:#010x}, expected {expected:#010x}")]
    Magic {
        /// The magic the caller looks for.
        expected: u32,
        /// The magic on disk.
        found: u32,
    },
    /// A resource that was cleared and must be initialised again.
    #[error("the lease was cleared and must be initialised again")]
    Cleared,
    /// A version this program does not use.
    #[error("lease version {}.{} is not supported here, expected major {expected}", found >> 16, found & 0xffff)]
    Version {
        /// The major version expected (for reading: the lowest one accepted).
        expected: u32,
        /// The version on disk.
        found: u32,
    },
    /// The lease belongs to another lockspace.
    #[error("the lease belongs to lockspace {found:?}, expected {expected:?}")]
    Lockspace {
        /// The name expected.
        expected: Name,
        /// The name on disk.
        found: Name,
    },
    /// The lease belongs to another resource.
    #[error("the lease belongs to resource {found:?}, expected {expected:?}")]
    Resource {
        /// The name expected.
        expected: Name,
        /// The name on disk.
        found: Name,
    },
    /// `num_hosts` excludes this host, or exceeds what the area can hold.
    #[error("num_hosts {found} of the lease is not between this host's id {host_id} and {max}")]
    NumHosts {
        /// `num_hosts` on disk.
        found: u64,
        /// Our host id; 0 when only reading.
        host_id: u64,
        /// The largest number the sizes allow.
        max: u64,
    },
    /// The record is damaged.
    #[error("leader checksum is {found:#010x}, computed {expected:#010x}: the record is damaged")]
    Checksum {
        /// The sum of the bytes.
        expected: u32,
        /// The sum on disk.
        found: u32,
    },
    /// The record says a sector size that does not exist, or not the one it was read with.
    #[error("sector size {found} of the lease is not usable here")]
    SectorSize {
        /// The size on disk.
        found: u32,
    },
    /// A lease that was formatted anew, under its own name: host ids have other places in it now.
    #[error("the lease has sectors of {found} bytes, it had {expected}: it was formatted meanwhile")]
    OtherSectors {
        /// The size it had.
        expected: u32,
        /// The size on disk.
        found: u32,
    },
    /// A record of a lockspace says another align size than the first one, from which everybody takes the sizes.
    #[error(
        "the host id record is of a lockspace with areas of {} MiB, the first record of one with {} MiB: one of the two is damaged ('sanlock fsck')",
        found.mib(), first.mib()
    )]
    OtherAlign {
        /// What this record says.
        found: AlignSize,
        /// What the first one says.
        first: AlignSize,
    },
    /// The record combines sizes that do not go together.
    #[error(transparent)]
    Sizes(GeometryError),
    /// The owner named is no possible host.
    #[error("the lease names owner host id {found}, which does not exist here (1 to {max})")]
    Owner {
        /// `owner_id` on disk.
        found: u64,
        /// The largest host id.
        max: u64,
    },
    /// The record may only be changed by compare-and-write, which this program does not do.
    #[error("the lease requires compare-and-write, which is not supported")]
    CompareAndWrite,
}

impl LeaderError {
    /// Whether something else than the lease that was looked for lies there, or nothing that this program may change.
    #[must_use]
    pub fn is_of_another(&self) -> bool {
        match self {
            Self::Magic { .. }
            | Self::Cleared
            | Self::Version { .. }
            | Self::Lockspace { .. }
            | Self::Resource { .. }
            | Self::OtherSectors { .. }
            | Self::CompareAndWrite => true,
            Self::NumHosts { .. }
            | Self::Checksum { .. }
            | Self::SectorSize { .. }
            | Self::OtherAlign { .. }
            | Self::Sizes(_)
            | Self::Owner { .. } => false,
        }
    }
}

/// Who reads, which decides the versions accepted (disk-format.md 10.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Only to show: majors 3 to 5 of delta leases, 6 and 7 of resources.
    Read,
    /// To join or acquire: delta major 3, paxos major 6.
    Use,
}

fn check_version(
    record: &RawLeader,
    read: std::ops::RangeInclusive<u32>,
    purpose: Purpose,
) -> Result<(), LeaderError> {
    let found = record.version.get();
    let expected = *read.start();
    let accepted = match purpose {
        Purpose::Read => read.contains(&(found >> 16)),
        Purpose::Use => found >> 16 == expected,
    };
    if accepted { Ok(()) } else { Err(LeaderError::Version { expected, found }) }
}

fn check_checksum(record: &RawLeader) -> Result<(), LeaderError> {
    let (expected, found) = (record.computed_checksum(), record.checksum.get());
    if expected == found { Ok(()) } else { Err(LeaderError::Checksum { expected, found }) }
}

/// Magic and version of a delta record, as looked at when the sizes of a lockspace are found (disk-format.md 2.4).
///
/// # Errors
/// [`LeaderError::Magic`], [`LeaderError::Version`].
pub fn delta_magic_version(record: &RawLeader, purpose: Purpose) -> Result<(), LeaderError> {
    let found = record.magic.get();
    if found != DELTA_MAGIC {
        return Err(LeaderError::Magic { expected: DELTA_MAGIC, found });
    }
    check_version(record, 3..=5, purpose)
}

/// All checks of a delta record (disk-format.md 9.1). `lockspace` `None` skips the name.
///
/// # Errors
/// In this order: magic, version, lockspace name, checksum; then, for [`Purpose::Use`], compare-and-write.
pub fn delta(record: &RawLeader, lockspace: Option<&Name>, purpose: Purpose) -> Result<(), LeaderError> {
    delta_magic_version(record, purpose)?;
    check_name(record, lockspace)?;
    check_checksum(record)?;
    check_caw(record, purpose)
}

pub(crate) fn check_name(record: &RawLeader, lockspace: Option<&Name>) -> Result<(), LeaderError> {
    match lockspace {
        Some(expected) if !expected.matches(&record.space_name) => {
            Err(LeaderError::Lockspace { expected: *expected, found: Name::from_field(&record.space_name) })
        }
        _ => Ok(()),
    }
}

fn check_caw(record: &RawLeader, purpose: Purpose) -> Result<(), LeaderError> {
    if purpose == Purpose::Use && record.flags.get() & FLAG_CAW != 0 {
        return Err(LeaderError::CompareAndWrite);
    }
    Ok(())
}

/// What a reader of a resource's leader expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Expect {
    /// Lockspace name; `None` skips the check.
    pub lockspace: Option<Name>,
    /// Resource name; `None` skips the check.
    pub resource: Option<Name>,
    /// Our host id; `None` when only reading.
    pub host_id: Option<HostId>,
}

/// All checks of a resource's leader (disk-format.md 9.3), and its sizes. Sizes are compared before any block is looked at,
/// because with wrong ones another record is taken for a block (disk-format.md 2.4).
///
/// # Errors
/// In this order: magic, version, lockspace, resource, `num_hosts` below our host id, checksum; then compare-and-write, sector
/// size, pair of sizes, `num_hosts` above what the sizes hold, an owner that cannot exist.
pub fn paxos(record: &RawLeader, expect: &Expect, purpose: Purpose) -> Result<Geometry, LeaderError> {
    let found = record.magic.get();
    if found == PAXOS_CLEARED_MAGIC {
        return Err(LeaderError::Cleared);
    }
    if found != PAXOS_MAGIC {
        return Err(LeaderError::Magic { expected: PAXOS_MAGIC, found });
    }
    check_version(record, 6..=7, purpose)?;
    check_name(record, expect.lockspace.as_ref())?;
    if let Some(expected) = expect.resource {
        if !expected.matches(&record.resource_name) {
            return Err(LeaderError::Resource { expected, found: Name::from_field(&record.resource_name) });
        }
    }
    let num_hosts = record.num_hosts.get();
    let host_id = expect.host_id.map_or(0, HostId::get);
    if num_hosts < host_id {
        return Err(LeaderError::NumHosts { found: num_hosts, host_id, max: num_hosts });
    }
    check_checksum(record)?;
    check_caw(record, purpose)?;
    let geometry = sizes(record)?;
    let max = u64::from(geometry.max_hosts());
    if num_hosts > max {
        return Err(LeaderError::NumHosts { found: num_hosts, host_id, max });
    }
    let owner = record.owner_id.get();
    if owner > max || (owner == 0 && record.timestamp.get() != 0) {
        return Err(LeaderError::Owner { found: owner, max });
    }
    Ok(geometry)
}

/// The sizes a leader states (disk-format.md 2.4): without an align flag 512 means 1 MiB and 4096 means 8 MiB.
///
/// # Errors
/// [`LeaderError::SectorSize`], [`LeaderError::Sizes`].
pub fn sizes(record: &RawLeader) -> Result<Geometry, LeaderError> {
    let found = record.sector_size.get();
    let sector = SectorSize::from_bytes(found).ok_or(LeaderError::SectorSize { found })?;
    match AlignSize::from_flags(record.flags.get()) {
        Some(align) => Geometry::new(sector, align).map_err(LeaderError::Sizes),
        None => Ok(Geometry::default_for(sector)),
    }
}

/// A damaged dblock: one of them makes the whole lease unusable (disk-format.md 9.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the ballot record of {host} is damaged: checksum {found:#010x}, computed {expected:#010x}")]
pub struct DblockError {
    /// Whose block it is.
    pub host: HostId,
    /// The sum of the bytes.
    pub expected: u32,
    /// The sum on disk.
    pub found: u32,
}

/// Checks a dblock.
///
/// # Errors
/// The checksum differs and the block is not "never used".
pub fn dblock(block: &Dblock, host: HostId) -> Result<(), DblockError> {
    if block.is_valid() {
        Ok(())
    } else {
        Err(DblockError { host, expected: block.computed_checksum(), found: block.checksum.get() })
    }
}
