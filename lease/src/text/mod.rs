//! Lockspaces, resources and places as text: the strings of the command line, of the library and of `inquire`.
//!
//! Two readings exist side by side, because they serve different callers:
//!
//! * [`library`] reproduces the string functions of the C library to the byte, result numbers included (disk-format.md 12.2 to
//!   12.7). It accepts `12abc` as 12 and cuts long names. Programs linked to the library depend on that.
//! * [`strict`] is what an administrator's argument goes through (disk-format.md 12.8, command-line.md 4). Where the lenient
//!   reading would turn a slip into offset 0, and an `init` into the loss of whatever begins there, it is an error with the text
//!   that was seen; the `M` suffix works in every offset and beside escaped colons (command-line.md 18.1 #1 to #4, #19).
//!
//! Everything here works on bytes: names and paths are byte strings, not necessarily UTF-8. An embedded NUL ends a string, as
//! it does in C.

pub mod library;
pub mod number;
pub mod path;
mod spec;
pub mod strict;

pub use spec::{DiskSpec, LockspaceFields, LockspaceSpec, RentrySpec, ResourceSpec, RindexSpec};

use crate::limits::{DISKS_MAX, PATH_BYTES};
use crate::name::NameError;

/// Bytes of a path without its terminating NUL.
pub const PATH_LEN_MAX: usize = PATH_BYTES - 1;
/// Bytes of one resource string, with its terminating NUL (disk-format.md 12.5).
pub const RESOURCE_STRING_BYTES: usize = 4400;

/// Why a string is not a lockspace, a resource or a place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// A resource string shorter than three bytes.
    #[error("a resource string of {found} bytes is too short, expected LOCKSPACE:RESOURCE:PATH:OFFSET")]
    TooShort {
        /// Bytes found.
        found: usize,
    },
    /// A number of fields that cannot be a resource: one, or three.
    #[error("{found} fields, expected LOCKSPACE:RESOURCE:PATH:OFFSET[:PATH:OFFSET…][:LVER|:SH]")]
    Fields {
        /// Fields found.
        found: usize,
    },
    /// More disks than a lease can have.
    #[error("{found} disks, at most {DISKS_MAX} are allowed")]
    TooManyDisks {
        /// Disks found.
        found: usize,
    },
    /// The last byte is a backslash, which escapes nothing.
    #[error("the string ends in a backslash that escapes nothing")]
    TrailingBackslash,
    /// A name that no lease can carry.
    #[error("{field}: {source}")]
    Name {
        /// What was being named.
        field: &'static str,
        /// What is wrong with it.
        source: NameError,
    },
    /// A field that must have something in it.
    #[error("{field} is empty")]
    Empty {
        /// What the field means.
        field: &'static str,
    },
    /// A path, or another field after the names, that does not fit the protocol.
    #[error("{field} has {found} bytes, at most {PATH_LEN_MAX} are allowed")]
    Length {
        /// What the field means.
        field: &'static str,
        /// Bytes found.
        found: usize,
    },
    /// Text where a number was expected.
    #[error("{field} {text:?} is {}, expected {expected}", wrong_number(text))]
    Number {
        /// What the number means.
        field: &'static str,
        /// The text found, lossily decoded and cut to a readable length.
        text: String,
        /// What would have been accepted.
        expected: &'static str,
    },
    /// A number that does not fit 64 bits.
    #[error("{field} {text:?} does not fit 64 bits")]
    Range {
        /// What the number means.
        field: &'static str,
        /// The text found.
        text: String,
    },
    /// A resource that does not fit its text form.
    #[error("a resource string of {found} bytes, at most {} are allowed", RESOURCE_STRING_BYTES - 1)]
    TooLong {
        /// Bytes it would have.
        found: usize,
    },
}

impl TextError {
    /// The number that the C library returns for this error when parsing (disk-format.md 12.4).
    #[must_use]
    pub fn code(&self) -> i32 {
        match self {
            Self::TooShort { .. } => -6,
            Self::TooManyDisks { .. } => -2,
            Self::TooLong { .. } => -22,
            Self::Fields { .. }
            | Self::TrailingBackslash
            | Self::Name { .. }
            | Self::Empty { .. }
            | Self::Length { .. }
            | Self::Number { .. }
            | Self::Range { .. } => -1,
        }
    }
}

/// What is wrong with text that stands for no number here.
fn wrong_number(text: &str) -> &'static str {
    let after_sign = text.strip_prefix('-').unwrap_or_default();
    if after_sign.starts_with(|first: char| first.is_ascii_digit()) { "negative" } else { "not a number" }
}

/// The bytes before the first NUL: what a C function would see.
pub(crate) fn c_str(bytes: &[u8]) -> &[u8] {
    bytes.split(|&b| b == 0).next().unwrap_or_default()
}

/// A piece of text for a message: decoded lossily and short enough to read.
pub(crate) fn excerpt(text: &[u8]) -> String {
    const EXCERPT_BYTES: usize = 64;
    match text.get(..EXCERPT_BYTES) {
        Some(start) if text.len() > EXCERPT_BYTES => format!("{}…", String::from_utf8_lossy(start)),
        _ => String::from_utf8_lossy(text).into_owned(),
    }
}

/// Splits at the first `max - 1` colons that no backslash escapes; the last part keeps what follows, colons included.
///
/// Backslashes stay in the parts. A backslash takes the byte after it along, so in `a\\:b` the colon is a separator.
pub(crate) fn split_unescaped(text: &[u8], max: usize) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut at = 0;
    while at < text.len() && parts.len() + 1 < max {
        match text[at] {
            b'\\' => at += 2,
            b':' => {
                parts.push(&text[start..at]);
                at += 1;
                start = at;
            }
            _ => at += 1,
        }
    }
    parts.push(text.get(start..).unwrap_or_default());
    parts
}

/// Removes one level of backslashes: each makes the byte after it literal.
///
/// # Errors
/// The text ends in a backslash that escapes nothing.
pub(crate) fn unescape(text: &[u8]) -> Result<Vec<u8>, TextError> {
    let mut plain = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => *bytes.next().ok_or(TextError::TrailingBackslash)?,
            _ => byte,
        });
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_only_at_colons_that_are_not_escaped() {
        assert_eq!(split_unescaped(br"a\:b:c\\:d:e", 9), [&br"a\:b"[..], br"c\\", b"d", b"e"]);
        assert_eq!(split_unescaped(b"a:b:c:d", 3), [&b"a"[..], b"b", b"c:d"]);
        assert_eq!(split_unescaped(b"", 4), [&b""[..]]);
        assert_eq!(split_unescaped(br"a:\", 4), [&b"a"[..], br"\"]);
    }

    #[test]
    fn unescape_drops_one_level() {
        assert_eq!(unescape(br"/p\\x\:y\ z").unwrap(), br"/p\x:y z");
        assert_eq!(unescape(br"/p\"), Err(TextError::TrailingBackslash));
    }

    #[test]
    fn excerpts_are_short() {
        assert_eq!(excerpt(b"12abc"), "12abc");
        assert_eq!(excerpt(&[b'x'; 64]).chars().count(), 64);
        assert_eq!(excerpt(&[b'x'; 5000]).chars().count(), 65);
    }
}
