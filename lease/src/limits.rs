//! Every limit of the format and of this implementation, with its source.

/// Bytes of a lockspace, resource or host name (disk-format.md 13).
pub const NAME_BYTES: usize = 48;
/// Largest host id of any geometry (disk-format.md 2.1).
pub const HOSTS_MAX: u16 = 2000;
/// Disks of one resource (disk-format.md 13).
pub const DISKS_MAX: usize = 4;
/// Resources of one acquire or release request (disk-format.md 13).
pub const RESOURCES_PER_REQUEST_MAX: usize = 8;
/// Bytes of a path, with its terminating NUL (disk-format.md 13).
pub const PATH_BYTES: usize = 1024;
/// Largest io timeout that fits the 8 bits written to disk (disk-format.md 6.4).
pub const IO_TIMEOUT_SECONDS_MAX: u32 = 255;
/// Ballots of one acquire, after which the last code is returned (rule R10 of lease-algorithms.md 15.3).
pub const BALLOTS_MAX: u32 = 64;
/// Least pause after a lost ballot, in milliseconds, so that a slower program beside ours can end its own.
pub const BACKOFF_MIN_MS: u64 = 3;
/// I/O operations that one step may ask for: two on each disk.
pub const OPS_PER_STEP_MAX: usize = 2 * DISKS_MAX;
/// Bytes of the largest lease sector.
pub const SECTOR_BYTES_MAX: usize = 4096;
/// Sector number of the lock value block (disk-format.md 7.8).
pub const LVB_SECTOR: u64 = 2002;
