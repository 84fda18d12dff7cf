//! What lockspaces and leases cost their storage, computed: operations and bytes per second from the io timeout T, the host ids in use,
//! the lockspaces and the sizes.
//!
//! An idle lockspace costs the same rhythm on each host that has joined it: every 2T the own record is read and written, and a look
//! at the others follows; every 4T - 1 s a look is at the whole area (docs/decisions/0015-unused-host-ids.md). `tests/capacity.rs` holds
//! all of this against the step machines that the daemon drives.

/// Bytes of an area that one read of a look takes at most.
const PIECE_BYTES: u64 = 256 * 1024;
/// Host ids that were ever used are read in groups of so many.
const GROUP: u64 = 16;
/// The leader and the request record, in front of the blocks of a lease.
const SECTORS_BEFORE_BLOCKS: u64 = 2;

/// Sizes of areas, of which there are five legal pairs (disk-format.md 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of a sector.
    pub sector: u64,
    /// MiB of an area.
    pub align_mib: u64,
    /// The largest host id.
    pub max_hosts: u64,
}

impl Sizes {
    /// 512-byte sectors, areas of 1 MiB.
    pub const B512_M1: Self = Self { sector: 512, align_mib: 1, max_hosts: 2000 };
    /// 4096-byte sectors, areas of 8 MiB.
    pub const B4096_M8: Self = Self { sector: 4096, align_mib: 8, max_hosts: 2000 };
    /// All legal pairs.
    pub const ALL: [Self; 5] = [
        Self::B512_M1,
        Self { sector: 4096, align_mib: 1, max_hosts: 250 },
        Self { sector: 4096, align_mib: 2, max_hosts: 500 },
        Self { sector: 4096, align_mib: 4, max_hosts: 1000 },
        Self::B4096_M8,
    ];

    fn piece_hosts(self) -> u64 {
        PIECE_BYTES / self.sector
    }

    /// Whether a look at the host ids 1 to `used` is one at the whole area.
    fn all_in_use(self, used: u64) -> bool {
        used.next_multiple_of(GROUP) >= self.max_hosts
    }

    /// A look at the whole area.
    fn whole_look(self) -> Reads {
        Reads { operations: self.max_hosts.div_ceil(self.piece_hosts()), bytes: self.max_hosts * self.sector }
    }

    /// A look at the host ids 1 to `used`.
    fn look_in_use(self, used: u64) -> Reads {
        Reads {
            operations: used.div_ceil(self.piece_hosts()),
            bytes: used.next_multiple_of(GROUP).min(self.max_hosts) * self.sector,
        }
    }
}

/// Reads, with their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reads {
    operations: u64,
    bytes: u64,
}

/// What one host does in one lockspace while nothing happens, from one moment to the next at which everything comes round again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// Its length.
    pub seconds: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes of these.
    pub read_bytes: u64,
    /// Writes, which are the renewals.
    pub writes: u64,
    /// Bytes of these.
    pub written_bytes: u64,
}

/// One host, one lockspace, an io timeout of `t` seconds, the host ids 1 to `used` ever used. Reads and writes count as taking no time.
///
/// Each look at the whole area begins 4T - 1 s after the one before, and so a second earlier within the rhythm of 2T. The one that would be due a
/// second after a renewal goes with that renewal. So it all repeats after 2T - 1 such looks, 4T - 3 renewals later: one of
/// these has the whole look for its own, the others look at what is in use.
#[must_use]
pub fn cycle(t: u64, used: u64, sizes: Sizes) -> Cycle {
    let in_use = sizes.look_in_use(used);
    let whole = sizes.whole_look();
    let (renewals, wholes) = if t == 1 || sizes.all_in_use(used) { (1, 1) } else { (4 * t - 3, 2 * t - 1) };
    let partial = renewals - 1;
    Cycle {
        seconds: 2 * t * renewals,
        reads: renewals + partial * in_use.operations + wholes * whole.operations,
        read_bytes: renewals * sizes.sector + partial * in_use.bytes + wholes * whole.bytes,
        writes: renewals,
        written_bytes: renewals * sizes.sector,
    }
}

/// Load, per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Reads.
    pub reads: f64,
    /// Writes.
    pub writes: f64,
    /// Bytes read.
    pub read_bytes: f64,
    /// Bytes written.
    pub written_bytes: f64,
}

/// What `hosts` hosts, with the ids 1 to `hosts`, all in `lockspaces` lockspaces, put on the array that these share.
#[must_use]
pub fn array_load(t: u64, hosts: u64, lockspaces: u64, sizes: Sizes) -> Load {
    let cycle = cycle(t, hosts, sizes);
    let per_second = |number: u64| (hosts * lockspaces * number) as f64 / cycle.seconds as f64;
    Load {
        reads: per_second(cycle.reads),
        writes: per_second(cycle.writes),
        read_bytes: per_second(cycle.read_bytes),
        written_bytes: per_second(cycle.written_bytes),
    }
}

/// Reads and writes of one acquire of a free lease, or of one release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseCost {
    /// Reads.
    pub reads: u64,
    /// Bytes of these.
    pub read_bytes: u64,
    /// Writes of one sector each.
    pub writes: u64,
}

/// An acquire that nobody disturbs: leader and own block, then twice a block written and all blocks read, then the leader written.
#[must_use]
pub fn acquire(num_hosts: u64, sizes: Sizes) -> LeaseCost {
    let blocks = (num_hosts + SECTORS_BEFORE_BLOCKS) * sizes.sector;
    LeaseCost { reads: 4, read_bytes: 2 * sizes.sector + 2 * blocks, writes: 3 }
}

/// A release: the block written, the leader read and written.
#[must_use]
pub fn release(sizes: Sizes) -> LeaseCost {
    LeaseCost { reads: 1, read_bytes: sizes.sector, writes: 2 }
}

/// What follows from the two timeouts, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// From one renewal to the next.
    pub renewal: u64,
    /// Waited by a join with a host id that is free, or was left cleanly.
    pub join: u64,
    /// An outage of the storage that is borne whenever it begins.
    pub borne: u64,
    /// After so long without renewal the lockspace has failed.
    pub failed: u64,
    /// After longer than this without renewal others may have the leases.
    pub taken_over: u64,
    /// Waited by a join over another host that died, at most.
    pub join_over_dead: u64,
}

/// The times for io timeout and fire timeout.
#[must_use]
pub fn times(t: u64, fire: u64) -> Times {
    Times {
        renewal: 2 * t,
        join: 2 * t,
        borne: 6 * t,
        failed: 8 * t,
        taken_over: 8 * t + fire,
        join_over_dead: 10 * t + fire,
    }
}
