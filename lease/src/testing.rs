//! A disk in memory and a driver with a virtual clock: runs one machine to its end, with chosen faults.
//!
//! Built for tests only (feature `testing`). Nothing here draws random numbers or looks at a clock, so a run depends on its
//! arguments alone.
//!
//! ```
//! use sanlock_lease::geometry::SectorSize;
//! use sanlock_lease::machine::Place;
//! use sanlock_lease::testing::{Fate, Lab};
//! let mut lab = Lab::new();
//! lab.disk.add(Place::Lockspace, 1 << 20);
//! lab.disk.write(Place::Lockspace, SectorSize::B512, 0, &[1; 512]);
//! lab.fates(|op| if op.is_write() { Fate::never() } else { Fate::prompt() });
//! ```

mod disk;
mod lab;
mod noisy;

pub use disk::{SparseView, TestDisk};
pub use lab::{Fate, Finished, Lab, Traced};
pub use noisy::Noisy;
