//! Crash consistency: every operation is stopped at every one of its writes, what is on disk then is checked, and recovered from.
//!
//! A [`Run`](run::Run) drives a production step machine over sparse disks in memory, and keeps the disks as they would be had the
//! host died at each moment: everything completed is there, and of the writes in flight any subset, each of them whole, not at all or
//! torn ([`torn`]). A [`World`](world::World) is a lockspace with its hosts; [`recover`] says what has to hold for such disks: nobody
//! gets what somebody may still use, and once the dead are known to be dead everybody gets everything, in a bounded number of tries,
//! while those who recover may die at every write of theirs too.
//!
//! # Fault model
//!
//! * A host stops at any moment: its daemon is killed, or its power fails. Of its writes in flight each lands or does not.
//! * Blocks of 512 bytes are written whole or not at all. A write of several blocks may leave any of them old and others new,
//!   whatever the order. That includes the sectors of 4096 bytes.
//! * What has completed stays: lease storage is opened `O_DIRECT|O_SYNC`, so a write completes once it would survive a power failure
//!   of the storage.
//! * What a dead host had in flight lands at the moment of its death or never. That it lands later is the simulator's business
//!   (`tests/sim`).
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "tests fail by panicking, in their helpers too"
)]

pub mod disk;
pub mod recover;
pub mod run;
pub mod torn;
pub mod world;
