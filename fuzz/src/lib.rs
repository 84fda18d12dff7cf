//! What is fuzzed, as plain functions: each takes any bytes and returns, or panics, which is a finding.
//!
//! [`TARGETS`] lists them. The thin programs for libFuzzer are a workspace of their own (`fuzz/cargo-fuzz`), so that ordinary builds
//! do not know of it; `tests/replay.rs` runs every target over its committed corpus and over mutations of it. `fuzz/run` fuzzes,
//! and docs/proof/fuzzing.md says what was found and how long was searched.
//!
//! Parsers that are private to a program are compiled in from the program's own source.
#![forbid(unsafe_code)]
#![expect(clippy::panic, reason = "a finding is a panic")]

pub mod data;
pub mod delta;
pub mod http;
pub mod paxos;
pub mod protocol;
pub mod records;
pub mod rindex;
pub mod scene;
pub mod session;
pub mod text;
pub mod wdmd;

/// The command line of `sanlock`.
#[path = "../../src/cli/mod.rs"]
#[allow(dead_code, unused_imports, reason = "only its parser is used here")]
mod cli;
/// The exit statuses that it names.
mod output {
    pub(crate) const SUCCESS: u8 = 0;
    pub(crate) const FAILURE: u8 = 1;
}
/// The files of `direct write_leader`.
#[path = "../../src/direct/fields.rs"]
mod fields;
/// The messages of the daemon's helper.
#[path = "../../daemon/src/helper/message.rs"]
#[allow(dead_code, reason = "nothing is received here")]
mod helper_message;
/// What `sanlock exporter` is asked.
#[path = "../../src/exporter/http.rs"]
#[allow(dead_code, reason = "only requests are read here")]
mod http_request;
/// The format that a request can ask for, and labels.
#[path = "../../src/exporter/page.rs"]
#[allow(dead_code, reason = "no page is written here")]
mod page;
/// The command line of wdmd.
#[path = "../../wdmd/src/cli.rs"]
mod wdmd_cli;

/// Between the structures of the socket and those of the manager.
#[path = "../../daemon/src/front/convert.rs"]
#[allow(dead_code, reason = "only what requests need")]
mod convert;

/// A target: its name and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets. Each has a directory of this name in `fuzz/corpus` and a program in `fuzz/cargo-fuzz`.
pub const TARGETS: &[Target] = &[
    ("records", records::records),
    ("delta", delta::delta),
    ("paxos", paxos::paxos),
    ("rindex", rindex::rindex),
    ("session", session::session),
    ("wdmd", wdmd::wdmd),
    ("requests", protocol::requests),
    ("replies", protocol::replies),
    ("states", protocol::states),
    ("addresses", text::addresses),
    ("configuration", text::configuration),
    ("command_line", text::command_line),
    ("fields", text::fields),
    ("helper", text::helper),
    ("http", http::http),
];

/// Runs one target.
///
/// # Panics
/// A finding; or there is no such target.
pub fn run(target: &str, data: &[u8]) {
    let found = TARGETS.iter().find(|(name, _)| *name == target);
    let (_, body) = found.unwrap_or_else(|| panic!("no target {target}"));
    body(data);
}
