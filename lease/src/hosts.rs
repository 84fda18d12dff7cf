//! What this host has seen of the others (lease-algorithms.md 3).

use crate::timing::{IoTimeout, MonoTime};

/// The last seen state of one host's delta lease. All times are of our own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostSeen {
    /// When we first looked.
    pub first_check: MonoTime,
    /// When we last looked.
    pub last_check: MonoTime,
    /// When the record last differed from what was stored; the first look at a record that was ever used counts.
    pub last_live: Option<MonoTime>,
    /// `owner_id` last seen.
    pub owner_id: u64,
    /// `owner_generation` last seen.
    pub owner_generation: u64,
    /// `timestamp` last seen: the peer's clock, good for equality only.
    pub timestamp: u64,
    /// Its io timeout (ours if the record says 0).
    pub io_timeout: IoTimeout,
}
