//! Mutation testing of `lease/` and `wire/`, made cheap.
//!
//! cargo-mutants finds the places and says what to put there. Building the package once for each of three thousand mutants would
//! take half a day, so they are built together: each function gets a copy of its body for each of its mutants, and a number from the
//! environment chooses one at run time ([`weave`]). What can't be chosen at run time (constants, functions that constants call) is built
//! one by one. For each mutant only those tests run that enter its function.
//!
//! The outcome is a record in the repository ([`record`]): figures for each source file, and each surviving mutant with the reason
//! why no test can notice it. An ordinary test holds the record against the code.

pub mod judge;
pub mod mutant;
pub mod record;
pub mod source;
pub mod tree;
pub mod weave;
pub mod workshop;

/// Directory, package. Their sources are what is mutated.
pub const PACKAGES: [(&str, &str); 2] = [("wire", "sanlock-wire"), ("lease", "sanlock-lease")];

/// Left out: a disk in memory for tests, which is no part of any program.
pub const LEFT_OUT: [&str; 2] = ["lease/src/testing/", "lease/src/testing.rs"];

/// Whether mutants of this file (path from the repository's root) are judged: product code of [`PACKAGES`], no test module.
#[must_use]
pub fn is_judged(file: &str) -> bool {
    let product = PACKAGES.iter().any(|(directory, _)| {
        file.strip_prefix(directory).is_some_and(|rest| rest.starts_with("/src/") && rest.ends_with(".rs"))
    });
    let test = file.contains("/tests/") || file.ends_with("/tests.rs");
    product && !test && !LEFT_OUT.iter().any(|left_out| file.starts_with(left_out))
}
