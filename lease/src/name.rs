//! Names of lockspaces, resources and hosts: byte strings of at most 48 bytes (disk-format.md 1).

use crate::limits::NAME_BYTES;
use std::fmt;

/// A name without its padding. Equality is the format's: up to the first NUL, at most 48 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// NUL from the first NUL on, always.
    bytes: [u8; NAME_BYTES],
}

/// Why bytes are not a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// More than 48 bytes were given.
    #[error("name has {found} bytes, at most {NAME_BYTES} are allowed")]
    TooLong {
        /// The number of bytes given.
        found: usize,
    },
    /// A NUL byte inside the name, which the format cannot express.
    #[error("name contains a NUL byte at position {at}")]
    Nul {
        /// Its position.
        at: usize,
    },
}

impl Default for Name {
    fn default() -> Self {
        Self { bytes: [0; NAME_BYTES] }
    }
}

impl Name {
    /// A name of these bytes; an empty name is allowed (it is a wildcard in some requests).
    ///
    /// # Errors
    /// More than 48 bytes, or a NUL byte among them.
    pub fn new(name: &[u8]) -> Result<Self, NameError> {
        if name.len() > NAME_BYTES {
            return Err(NameError::TooLong { found: name.len() });
        }
        if let Some(at) = name.iter().position(|&b| b == 0) {
            return Err(NameError::Nul { at });
        }
        let mut bytes = [0; NAME_BYTES];
        bytes[..name.len()].copy_from_slice(name);
        Ok(Self { bytes })
    }

    /// The name in a 48-byte field: what follows its first NUL carries no meaning and is dropped.
    #[must_use]
    pub fn from_field(field: &[u8; NAME_BYTES]) -> Self {
        let mut bytes = *field;
        let len = bytes.iter().position(|&b| b == 0).unwrap_or(NAME_BYTES);
        bytes[len..].fill(0);
        Self { bytes }
    }

    /// The bytes of the name, without padding.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        let len = self.bytes.iter().position(|&b| b == 0).unwrap_or(NAME_BYTES);
        &self.bytes[..len]
    }

    /// The 48-byte field, padded with NUL (no terminator if all 48 bytes are used).
    #[must_use]
    pub fn to_field(&self) -> [u8; NAME_BYTES] {
        self.bytes
    }

    /// Whether the name has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes[0] == 0
    }

    /// Whether `field` holds this name.
    #[must_use]
    pub fn matches(&self, field: &[u8; NAME_BYTES]) -> bool {
        *self == Self::from_field(field)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_after_the_first_nul_carry_no_meaning() {
        let mut field = [0u8; 48];
        field[..5].copy_from_slice(b"ab\0cd");
        let name = Name::from_field(&field);
        assert_eq!(name.as_bytes(), b"ab");
        assert_eq!(name, Name::new(b"ab").unwrap());
        assert!(name.matches(&field));
    }

    #[test]
    fn all_48_bytes_may_be_used_and_no_more() {
        let name = Name::new(&[b'x'; 48]).unwrap();
        assert_eq!(name.as_bytes().len(), 48);
        assert_eq!(Name::new(&[b'x'; 49]), Err(NameError::TooLong { found: 49 }));
        assert_eq!(Name::new(b"a\0b"), Err(NameError::Nul { at: 1 }));
    }

    /// What is on disk may be anything, and failures are told with the names that were found.
    #[test]
    fn a_name_is_shown_between_quotes_whatever_its_bytes() {
        let shown = |bytes: &[u8]| format!("{:?}", Name::new(bytes).unwrap());
        assert_eq!(shown(b"ls"), r#""ls""#);
        assert_eq!(shown(b""), r#""""#);
        assert_eq!(shown(b"a\"\n\xff"), "\"a\\\"\\n\u{fffd}\"");
    }
}
