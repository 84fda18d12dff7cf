//! Names (48 bytes, perhaps without NUL) and paths (1024 bytes, NUL required): socket-protocol.md 4.

use core::fmt;
use core::hash::{Hash, Hasher};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::limits::{NAME_LEN, PATH_LEN};

/// A lockspace, resource, host or owner name as it stands in a structure.
///
/// All 48 bytes may be used, without a NUL. Two names are equal when their bytes up to the first NUL are; what follows a
/// NUL is kept as received but means nothing.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(transparent)]
pub struct Name([u8; NAME_LEN]);

/// Why bytes cannot be a [`Name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// More than 48 bytes.
    #[error("name has {len} bytes, at most {NAME_LEN} are possible")]
    TooLong {
        /// Bytes given.
        len: usize,
    },
    /// A NUL inside: the name would be cut there.
    #[error("name has a NUL at byte {at}")]
    Nul {
        /// Position of the first NUL.
        at: usize,
    },
}

impl Name {
    /// The empty name.
    pub const EMPTY: Self = Self([0; NAME_LEN]);

    /// A name of exactly these bytes, NUL-padded.
    ///
    /// # Errors
    /// [`NameError::TooLong`] above 48 bytes, [`NameError::Nul`] when a NUL is among them.
    pub fn new(name: impl AsRef<[u8]>) -> Result<Self, NameError> {
        let name = name.as_ref();
        if let Some(at) = name.iter().position(|&b| b == 0) {
            return Err(NameError::Nul { at });
        }
        let mut raw = [0; NAME_LEN];
        match raw.get_mut(..name.len()) {
            Some(dst) => dst.copy_from_slice(name),
            None => return Err(NameError::TooLong { len: name.len() }),
        }
        Ok(Self(raw))
    }

    /// A name of the bytes up to the first NUL, cut to 48, as the C library makes one of a string (11.4).
    #[must_use]
    pub fn truncated(name: impl AsRef<[u8]>) -> Self {
        let mut raw = [0; NAME_LEN];
        for (dst, &src) in raw.iter_mut().zip(name.as_ref().iter().take_while(|&&b| b != 0)) {
            *dst = src;
        }
        Self(raw)
    }

    /// The 48 bytes as they are, also what follows a NUL.
    #[must_use]
    pub const fn from_raw(raw: [u8; NAME_LEN]) -> Self {
        Self(raw)
    }

    /// All 48 bytes.
    #[must_use]
    pub const fn as_raw(&self) -> &[u8; NAME_LEN] {
        &self.0
    }

    /// The name: up to the first NUL, at most 48 bytes.
    #[must_use]
    pub fn name_bytes(&self) -> &[u8] {
        self.0.split(|&b| b == 0).next().unwrap_or(&[])
    }

    /// Whether the name is empty (its first byte is NUL).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.name_bytes().is_empty()
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.name_bytes() == other.name_bytes()
    }
}
impl Eq for Name {}
impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name_bytes().hash(state);
    }
}
impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Name {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.name_bytes().cmp(other.name_bytes())
    }
}
impl Default for Name {
    fn default() -> Self {
        Self::EMPTY
    }
}
impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.name_bytes().escape_ascii())
    }
}
/// The name for people and logs; bytes that are not UTF-8 are replaced.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&String::from_utf8_lossy(self.name_bytes()))
    }
}

/// A path as it stands in a structure: 1024 bytes that should contain a NUL.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(transparent)]
pub struct DiskPath([u8; PATH_LEN]);

/// Why bytes cannot be a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The 1024 bytes hold no NUL (the original would read on; the daemon answers -EINVAL).
    #[error("path of {PATH_LEN} bytes has no terminating NUL")]
    Unterminated,
    /// More than 1023 bytes.
    #[error("path has {len} bytes, at most {} are possible", PATH_LEN - 1)]
    TooLong {
        /// Bytes given.
        len: usize,
    },
    /// A NUL inside: the path would be cut there.
    #[error("path has a NUL at byte {at}")]
    Nul {
        /// Position of the first NUL.
        at: usize,
    },
}

impl DiskPath {
    /// The empty path.
    pub const EMPTY: Self = Self([0; PATH_LEN]);

    /// A path of exactly these bytes.
    ///
    /// # Errors
    /// [`PathError::TooLong`] above 1023 bytes, [`PathError::Nul`] when a NUL is among them.
    pub fn new(path: impl AsRef<[u8]>) -> Result<Self, PathError> {
        let path = path.as_ref();
        if let Some(at) = path.iter().position(|&b| b == 0) {
            return Err(PathError::Nul { at });
        }
        if path.len() >= PATH_LEN {
            return Err(PathError::TooLong { len: path.len() });
        }
        let mut raw = [0; PATH_LEN];
        for (dst, &src) in raw.iter_mut().zip(path) {
            *dst = src;
        }
        Ok(Self(raw))
    }

    /// The 1024 bytes as they are.
    #[must_use]
    pub const fn from_raw(raw: [u8; PATH_LEN]) -> Self {
        Self(raw)
    }

    /// All 1024 bytes.
    #[must_use]
    pub const fn as_raw(&self) -> &[u8; PATH_LEN] {
        &self.0
    }

    /// The path: the bytes before the NUL, perhaps none.
    ///
    /// # Errors
    /// [`PathError::Unterminated`] when there is no NUL (15, defect 17).
    pub fn path(&self) -> Result<&[u8], PathError> {
        match self.0.iter().position(|&b| b == 0) {
            Some(end) => Ok(self.0.get(..end).unwrap_or(&[])),
            None => Err(PathError::Unterminated),
        }
    }

    /// Whether the path is empty (its first byte is NUL).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.first() == Some(&0)
    }
}

impl Default for DiskPath {
    fn default() -> Self {
        Self::EMPTY
    }
}
impl fmt::Debug for DiskPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path() {
            Ok(path) => write!(f, "\"{}\"", path.escape_ascii()),
            Err(_) => f.write_str("<unterminated path>"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_fill_all_48_bytes() {
        let full = [b'x'; 48];
        let name = Name::new(full).unwrap();
        assert_eq!(name.name_bytes(), &full);
        assert_eq!(Name::new([b'x'; 49]), Err(NameError::TooLong { len: 49 }));
        assert_eq!(Name::truncated([b'x'; 60]), name);
        assert_eq!(Name::new("a\0b"), Err(NameError::Nul { at: 1 }));
        assert_eq!(Name::truncated("a\0b"), Name::new("a").unwrap());
    }

    #[test]
    fn bytes_after_the_nul_do_not_count() {
        let mut raw = [0u8; 48];
        raw[..3].copy_from_slice(b"LS1");
        raw[10] = 7;
        let stale = Name::from_raw(raw);
        assert_eq!(stale, Name::new("LS1").unwrap());
        assert_eq!(stale.as_raw()[10], 7);
        assert!(Name::from_raw([0; 48]).is_empty());
    }

    #[test]
    fn names_are_told_apart_by_their_bytes() {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let hash = |name: &Name| {
            let mut hasher = DefaultHasher::new();
            name.hash(&mut hasher);
            hasher.finish()
        };
        let (a, b) = (Name::truncated("a"), Name::truncated("b"));
        let mut stale = *a.as_raw();
        stale[47] = 9;
        let stale = Name::from_raw(stale);
        assert_ne!(a, b);
        assert!(a < b);
        assert!(b > a);
        assert_eq!(hash(&a), hash(&stale));
        assert_ne!(hash(&a), hash(&b));
        assert!(!a.is_empty());
    }

    #[test]
    fn names_and_paths_are_printed_up_to_their_nul() {
        let odd = Name::truncated(b"a\n\xff");
        assert_eq!((format!("{odd:?}"), format!("{odd}")), (r#""a\n\xff""#.into(), "a\n\u{fffd}".into()));
        assert_eq!(format!("{:>4}|", Name::truncated("ab")), "  ab|");
        assert_eq!(format!("{:?}", DiskPath::new("/dev/x").unwrap()), r#""/dev/x""#);
        assert_eq!(format!("{:?}", DiskPath::from_raw([b'p'; 1024])), "<unterminated path>");
    }

    #[test]
    fn a_path_keeps_its_1024_bytes() {
        let mut raw = [0; 1024];
        raw[..2].copy_from_slice(b"/p");
        raw[1023] = 9;
        let path = DiskPath::from_raw(raw);
        assert_eq!((path.as_raw(), path.path()), (&raw, Ok(b"/p".as_slice())));
        assert!(!path.is_empty());
    }

    #[test]
    fn a_path_needs_its_nul() {
        assert_eq!(DiskPath::from_raw([b'p'; 1024]).path(), Err(PathError::Unterminated));
        assert_eq!(DiskPath::new([b'p'; 1023]).unwrap().path().unwrap().len(), 1023);
        assert_eq!(DiskPath::new([b'p'; 1024]), Err(PathError::TooLong { len: 1024 }));
        assert!(DiskPath::new("").unwrap().is_empty());
    }
}
