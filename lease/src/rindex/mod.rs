//! The resource index: which resource lies in which area behind it (disk-format.md 8, lease-algorithms.md 11).
//!
//! ```text
//! B            B + A          B + 2A       B + 3A
//! | index area | rindex_lease | resource 0 | resource 1 | ...      A: align size; entry i says who is in resource area i
//! ```
//!
//! # Rules, and what each protects
//!
//! * An entry is written only after the area it points to has been initialised, and cleared before that area is: whatever write
//!   is the last one of a host that dies, the index never points to an area that is no lease.
//! * Entries are changed only with the internal lease held, wherever there is a host id to hold it with: an entry's sector is
//!   written from a copy, so two hosts that change it at once would lose one of the entries, and the area of a lost entry is
//!   the next one to be initialised for somebody else.
//! * A write that timed out may still land (rule R3). The internal lease is kept until it has, however long that takes: an old
//!   copy of a sector must not land on what the next holder wrote.
//! * The lockspace is looked at before every write (rule R10).
//! * Without the internal lease nothing is written unless the lease agrees with the sizes in the header, or cannot be found: the header
//!   has no checksum, and all places follow from it.
//!
//! An operation is a step machine one level above those of [`crate::machine`]: it asks for whole transfers, and for whole runs of
//! [`PaxosAcquire`] and [`PaxosRelease`] on the internal lease, one at a time ([`Want`]), and is told how each ended ([`Answer`]).

mod error;
mod index;
mod lease;
mod operation;
mod rebuild;
mod sizes;

pub use error::RindexError;
pub use index::{IndexView, MAX_RESOURCES_DEFAULT, header};
pub use lease::{LeaseMachine, LeaseOutcome};
pub use operation::RindexOperation;

use crate::geometry::{Geometry, HostId};
use crate::machine::IoFailure;
use crate::name::Name;
use crate::paxos::acquire::AcquireOutcome;
use crate::paxos::release::ReleaseOutcome;
use crate::paxos::{PaxosAcquire, PaxosRelease};
use crate::timing::{IoTimeout, MonoTime, WatchdogFire};

/// Name of the internal lease.
pub const LEASE_NAME: &[u8] = b"rindex_lease";

/// What is to be done. Offsets are bytes from the start of the disk; 0 and an empty name mean "not given".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RindexCommand {
    /// Write an empty index and its internal lease, whatever was there.
    Format {
        /// Its sizes.
        geometry: Geometry,
        /// Number of entries; 0 for the default, cut to what the sizes hold.
        max_resources: u32,
    },
    /// Initialise the first free area as a lease of this name.
    Create {
        /// Name of the resource.
        name: Name,
        /// Highest host id that may use it; 0 for as many as fit.
        num_hosts: u32,
        /// Seed of the delays between ballots for the internal lease.
        seed: u64,
    },
    /// Take an entry out and clear its area. Found by the name alone.
    Delete {
        /// Name of the resource.
        name: Name,
        /// Only checked for its alignment.
        offset: u64,
        /// As in `Create`.
        seed: u64,
    },
    /// Which area has the name, which name the area, do they belong together, or which area is the first free one.
    Lookup {
        /// Name of the resource.
        name: Name,
        /// Offset of its area.
        offset: u64,
    },
    /// Enter a resource whose area was initialised in another way; whatever the entry held is replaced.
    Add {
        /// Name of the resource.
        name: Name,
        /// Offset of its area.
        offset: u64,
        /// As in `Create`.
        seed: u64,
    },
    /// Clear an entry and leave its area alone.
    Remove {
        /// Offset of the area.
        offset: u64,
        /// As in `Create`.
        seed: u64,
    },
    /// Make the entries anew from what lies in the areas.
    Rebuild {
        /// As in `Create`.
        seed: u64,
    },
}

impl RindexCommand {
    /// Whether it takes the internal lease if there is a host id to take it with.
    #[must_use]
    pub fn takes_lease(&self) -> bool {
        !matches!(self, Self::Format { .. } | Self::Lookup { .. })
    }

    /// Whether it makes no sense without a lockspace that is joined.
    #[must_use]
    pub fn needs_lockspace(&self) -> bool {
        matches!(self, Self::Create { .. } | Self::Delete { .. })
    }

    fn seed(&self) -> u64 {
        match self {
            Self::Format { .. } | Self::Lookup { .. } => 0,
            Self::Create { seed, .. }
            | Self::Delete { seed, .. }
            | Self::Add { seed, .. }
            | Self::Remove { seed, .. }
            | Self::Rebuild { seed } => *seed,
        }
    }
}

/// Where the index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RindexConfig {
    /// The lockspace its leases belong to.
    pub lockspace: Name,
    /// Byte offset of the index on its disk.
    pub offset: u64,
    /// What this host is in the lockspace; `None` works without the internal lease.
    pub member: Option<Member>,
    /// The watchdog fire timeout of every host.
    pub fire: WatchdogFire,
}

/// This host in the lockspace of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// Our host id.
    pub host: HostId,
    /// The generation we hold it with.
    pub generation: u64,
    /// Sizes of the lockspace.
    pub geometry: Geometry,
    /// Limit of each of our operations.
    pub io_timeout: IoTimeout,
}

/// An entry as a client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Entry {
    /// Name of the resource, empty if none.
    pub name: Name,
    /// Byte offset of its area, 0 if none.
    pub offset: u64,
}

/// How long a transfer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// One io timeout.
    IoTimeout,
    /// The limit of formatting an area.
    Init,
}

/// What an operation wants next. Byte offsets count from the start of the disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Want {
    /// Read.
    Read {
        /// From where.
        offset: u64,
        /// Number of bytes.
        len: usize,
    },
    /// Write.
    Write {
        /// Where to.
        offset: u64,
        /// What.
        bytes: Vec<u8>,
        /// Its limit.
        limit: Limit,
    },
    /// Run this machine on the internal lease.
    Acquire {
        /// The machine.
        machine: Box<PaxosAcquire>,
        /// Start of the lease.
        offset: u64,
    },
    /// Run this machine on the internal lease.
    Release {
        /// The machine.
        machine: Box<PaxosRelease>,
        /// Start of the lease.
        offset: u64,
    },
    /// Wait until no write of this operation may land any more, those of its machines included, however long that takes and whatever
    /// becomes of the lockspace. One that has ended in doubt ([`IoFailure::leaves_doubt`]), late or not, may land for
    /// [`crate::timing::IoTimeout::doubt_ms`] from then on. The result is known and the client need not wait along.
    Settle,
    /// Wait until this time, or until the lockspace is gone. The result is known and the client need not wait along.
    Pause(MonoTime),
    /// Finished.
    Done,
}

/// How what was wanted ended.
#[derive(Debug)]
pub enum Answer<'a> {
    /// Begin.
    Start,
    /// A read.
    Read(Result<&'a [u8], IoFailure>),
    /// A write. After [`IoFailure::TimedOut`], and after what leaves doubt, it may still land.
    Written(Result<(), IoFailure>),
    /// An acquire, and how many of its writes may still land.
    Acquired(AcquireOutcome, u32),
    /// A release, likewise.
    Released(ReleaseOutcome, u32),
    /// No write may land any more.
    Settled,
    /// The pause is over.
    Resumed,
}
