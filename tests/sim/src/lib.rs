//! A deterministic simulator: many hosts, one faulty disk, drifting clocks, and the production lease machines.
//!
//! A [`World`] runs from a seed: the same seed and settings give the same run, event for event. [`Checks`] watches the
//! properties of lease-algorithms.md 13.6 from outside. The hosts around the machines (what starts an acquire, what follows a
//! timeout, when a watchdog resets) are small models of the manager's rules: see [`host`], [`daemon`], [`resources`].
//!
//! What the disk may do is stated in [`disk`]; what a host may suffer in [`chaos`].
//!
//! [`World`]: world::World
//! [`Checks`]: checks::Checks
#![forbid(unsafe_code)]

pub mod chaos;
pub mod checks;
pub mod clock;
pub mod daemon;
pub mod dice;
pub mod disk;
pub mod faults;
pub mod host;
pub mod layout;
pub mod reference;
pub mod resources;
pub mod settings;
pub mod stage;
pub mod work;
pub mod world;
