//! Every limit of the bookkeeping, with its source.

/// Client connections at a time (socket-protocol.md 2.1: 1024 slots, two of them the daemon's own).
pub const CLIENTS_MAX: usize = 1022;
/// The first slot number a client can have (socket-protocol.md 2.1).
pub const FIRST_CLIENT_SLOT: u32 = 2;
/// Lockspaces in any state at a time. Their records in one `GET_LOCKSPACES` reply stay below the protocol's 1 MiB.
pub const LOCKSPACES_MAX: usize = 512;
/// Resources on any list at a time, hence also disk tasks at a time.
pub const RESOURCES_MAX: usize = 4096;
/// Leases one client may hold. The original has no limit; its largest known users hold a few hundred.
pub const TOKENS_PER_CLIENT_MAX: usize = 2048;
/// Renewals remembered per lockspace unless configured otherwise (socket-protocol.md 7.32).
pub const RENEWAL_HISTORY_DEFAULT: usize = 180;
/// Renewals remembered per lockspace at most.
pub const RENEWAL_HISTORY_MAX: usize = 10_000;
/// Generations remembered of lockspaces that were left.
pub const GENERATIONS_REMEMBERED_MAX: usize = 1024;
/// Bytes of the state string of `INQUIRE` per lease (socket-protocol.md 7.9).
pub const STATE_ITEM_BYTES_MAX: usize = 4399;
