//! The original sanlock 3.8.5 and ours measured side by side: the same work, on the same device, in turns, in the same run.
//!
//! Every measure is a module of [`measure`] and gives [`Row`]s; a row has the figures of both programs, where it makes sense
//! those of the same chain of reads and writes without any daemon ([`floor`]), and the targets it has to meet. [`table`],
//! [`json`] and [`plot`] show them. The daemons are started and talked to by the harness of the conformance suite.
//!
//! Figures are only worth something on a machine that does nothing else: the load before each measure is recorded with it.

pub mod capacity;
pub mod figures;
pub mod floor;
pub mod json;
pub mod machine;
pub mod measure;
pub mod page;
pub mod place;
pub mod plot;
pub mod row;
pub mod site;
pub mod table;

pub use figures::Figures;
pub use measure::{Measure, Setting};
pub use place::{Place, PlaceKind};
pub use row::{Row, Unit};
