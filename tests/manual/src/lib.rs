//! Reads help texts ([`help`]) and manual pages ([`page`]), so that tests can compare them with each other, and writes shell completions
//! from them ([`complete`]).
//!
//! The help text is what everything else is held against: it is what the programs print. A page has one item for each command, action
//! or option in it. `man/README.md` says how to add a command.
#![forbid(unsafe_code)]

pub mod complete;
pub mod help;
pub mod json;
pub mod page;

use std::path::{Path, PathBuf};
use std::process::Command;

/// A path in the repository.
#[must_use]
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Whether a program is installed. The test that asks is skipped where it is not.
///
/// # Panics
///
/// When it is missing under `CI`: there a skipped test would go unnoticed.
#[must_use]
pub fn has(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&paths).any(|dir| dir.join(program).is_file()) {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "{program} is missing, and CI must not skip");
    eprintln!("skipped: {program} is missing");
    false
}

/// What a program prints to stdout.
///
/// # Panics
///
/// When it cannot be started, or prints something that is not UTF-8.
#[must_use]
pub fn stdout_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program} {arguments:?}: {error}"));
    String::from_utf8(output.stdout).unwrap_or_else(|_| panic!("{program} {arguments:?}: not UTF-8"))
}

/// What the tools that read manual pages have to say about one: nothing, if it is well.
///
/// # Panics
///
/// When a tool cannot be started.
#[must_use]
pub fn complaints(page: &Path) -> String {
    let mut text = String::new();
    for (tool, arguments) in [
        ("mandoc", &["-T", "lint", "-W", "warning"][..]),
        ("man", &["--warnings", "-E", "UTF-8", "-Tutf8", "-Z", "-l"]),
    ] {
        if !has(tool) {
            continue;
        }
        let output = Command::new(tool).args(arguments).arg(page).env("LC_ALL", "C.UTF-8").output();
        let output = output.unwrap_or_else(|error| panic!("{tool}: {error}"));
        if tool == "mandoc" {
            text.push_str(&String::from_utf8_lossy(&output.stdout));
        }
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        if !output.status.success() && text.is_empty() {
            text.push_str(&format!("{tool}: {}\n", output.status));
        }
    }
    text
}
