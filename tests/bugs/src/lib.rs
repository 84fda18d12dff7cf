//! Hand-made protocol bugs: patches of product code, each a single plausible mistake, and what catches them.
//!
//! `patches/NN-name.patch` is a unified diff under a header that says in words what is broken, which property that breaks and which
//! catcher is expected. The program (`cargo run -p sanlock-bugs`) takes each patch in turn: it copies the committed tree, applies the
//! patch, builds the simulator and the model checker, and runs the catchers within fixed budgets until one of them fails. What came of
//! it goes into `results.txt`; docs/proof/bugs.md shows that as a table. The tests of this crate see to it that every patch still
//! applies, and that the table speaks of exactly these patches.
//!
//! Nothing of the product is linked here: it is what the bugs are in.
#![forbid(unsafe_code)]

pub mod catchers;
pub mod patch;
pub mod table;
pub mod tree;

use std::path::{Path, PathBuf};

/// This crate's directory in the source tree.
#[must_use]
pub fn home() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The root of the source tree.
#[must_use]
pub fn root() -> PathBuf {
    home().ancestors().nth(2).map(Path::to_path_buf).unwrap_or_default()
}

/// What the runner writes.
#[must_use]
pub fn results_path() -> PathBuf {
    home().join("results.txt")
}

/// The page with the table.
#[must_use]
pub fn page_path() -> PathBuf {
    root().join("docs/proof/bugs.md")
}
