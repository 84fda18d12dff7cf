//! Client library of the sanlock socket protocol.
//!
//! *What it does.* [`Client`] sends one command per connection and waits for its answer, as the C library does
//! (socket-protocol.md 11.3). [`Registered`] is a connection that represents this process: leases acquired on it live
//! until its last copy is closed (2.5). *What it does not do.* It keeps no state between calls, starts no threads, has
//! no timeouts but the one that [`Client::within`] sets, and touches no storage itself.
//!
//! Thread safety: `Client` can be shared freely. `Registered` carries one command at a time, which `&mut self` enforces.
//!
//! ```no_run
//! use sanlock_client::{Client, wire::{Disk, Name, Resource, ResourceSpec, flags::AcquireFlags}};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let resource = Resource::new(Name::new("LS1")?, Name::new("R1")?);
//! let spec = ResourceSpec::new(resource, vec![Disk::new("/dev/vg/leases", 1 << 20)?])?;
//! let mut process = Client::new().register()?;
//! process.acquire(AcquireFlags::empty(), &[spec], None)?;
//! // … the lease is held until `process` and all its copies are closed …
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod arrived;
mod client;
mod connection;
mod error;
mod looked;
mod owners;
mod registered;
mod renewals;

pub use arrived::Arrived;
pub use client::{Client, DEFAULT_RUN_DIR, DaemonVersion, RUN_DIR_VARIABLE, SOCKET_NAME};
pub use connection::SOCKET_PATH_MAX;
pub use error::ClientError;
pub use looked::state_as_looked_at;
pub use owners::{OwnersError, test_resource_owners};
pub use registered::{Inquiry, Registered};
pub use renewals::Renewal;
pub use sanlock_wire as wire;
