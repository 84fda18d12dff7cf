//! Reading the command line: arguments become a [`Command`], nothing is done yet.
//!
//! [`tokenizer`] knows the odd option grammar of the original, [`parse`] what the options of each action mean, [`command`] has
//! the values that come out, [`help`] the text of `sanlock help`. All of it works on bytes and touches neither a daemon nor a disk, so argument vectors can be tested
//! by the table.

pub(crate) mod command;
pub(crate) mod doctor;
pub(crate) mod exporter;
pub(crate) mod given;
pub(crate) mod help;
mod parse;
mod tokenizer;
pub(crate) mod top;
pub(crate) mod who;

pub(crate) use command::Command;
pub(crate) use parse::{Parsed, parse};

use crate::output::FAILURE;

/// Why the command line is not carried out.
///
/// What the original prints about it goes to stdout, where its users look for it; explanations of our own go to stderr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UsageError {
    /// For stdout, with its newlines.
    pub(crate) stdout: Vec<u8>,
    /// For stderr, with its newlines.
    pub(crate) stderr: Vec<u8>,
    /// Exit status: 1, but for a text that was asked for.
    pub(crate) status: u8,
}

impl UsageError {
    /// A message of the original's, for stdout.
    pub(crate) fn like_original(stdout: impl Into<Vec<u8>>) -> Self {
        Self { stdout: stdout.into(), stderr: Vec::new(), status: FAILURE }
    }

    /// A message of our own, for stderr; without newline.
    pub(crate) fn explain(text: &str) -> Self {
        Self::like_original(Vec::new()).and_explain(text)
    }

    /// Adds a message of our own, for stderr; without newline.
    pub(crate) fn and_explain(mut self, text: &str) -> Self {
        self.stderr.extend_from_slice(format!("sanlock: {text}\n").as_bytes());
        self
    }
}
