//! Exhaustive model checking of the lease's step machines.
//!
//! The very machines that the daemon runs ([`sanlock_lease::paxos`]) are taken through *every* order of events, up to a limit
//! on how many faults there are: two or three hosts acquire and release one resource on one disk or three, and the checker decides when
//! each operation takes effect, which one fails or times out, when a late write lands, which host crashes, is known to be dead,
//! or comes back; and which host has looked at the others how long ago, with [`Settings::stale_tables`].
//!
//! # What an action is
//!
//! One sector access (or one read) of one host, together with everything that host does until it needs the next one. What this
//! leaves out makes no difference: a read returns what lies on the disk at one moment between submission and completion (at
//! one moment for every sector, with [`Settings::torn_reads`]), and a host that is told later does nothing in between; a write that has landed but whose completion is not yet seen is the same
//! as one that both landed and is followed by a slow host.
//!
//! # Several disks
//!
//! Every operation takes effect on its disk at a moment of its own, in any order, fails, or is late. The machine is told of all that it
//! started side by side when the last has ended, in a fixed order: until then it does nothing but take results in, which is asserted at
//! every step; `told_backwards` is there to show that the order makes no difference. An operation over a lost path fails at once, for it
//! touches no disk.
//!
//! # What is assumed of the surroundings (lease-algorithms.md 13.2)
//!
//! Sector writes are atomic (A1, A2). A host is known to be dead only after its watchdog has ended its processes (A3 to A5), and by
//! then its writes in flight have landed or never will (A6). A7, which the original relies on, is *not* assumed: a timed-out write
//! of a living host lands at any later time.
//!
//! # What is not modelled
//!
//! Several processes of one host (the simulator has them), damaged sectors. Joining and renewing have a model of their own: [`delta`].

pub mod calm;
pub mod checks;
pub mod delta;
pub mod disk;
pub mod expect;
pub mod explore;
pub mod host;
pub mod narrate;
pub mod operations;
pub mod settings;
pub mod sharing;
pub mod surroundings;
pub mod turn;
pub mod world;

pub use checks::Property;
pub use explore::{Limits, Report, Violation, explore};
pub use settings::{Budget, Kind, Plan, Settings, Twist};
pub use world::World;

/// Hosts the resource has room for (`num_hosts`).
pub const HOSTS: usize = 3;
/// Disks the resource may lie on.
pub const DISKS: usize = 3;

/// The number of the next entry of a table.
fn number_of(len: usize) -> u32 {
    match u32::try_from(len) {
        Ok(number) => number,
        Err(_) => panic!("more than 2^32 entries in a table"),
    }
}
