//! Places on disks, and which of them have bytes in common.
//!
//! How large an area is that is formatted only its disk tells, unless the command says it; so there is what it has at least and what it may have.

use sanlock_wire::types::Disk;

/// Bytes of the smallest area (disk-format.md 2).
pub(crate) const AREA_BYTES_MIN: u64 = 1 << 20;

/// Bytes of the largest area (disk-format.md 2).
const AREA_BYTES_MAX: u64 = 8 << 20;

/// A place that is written to: a path, and the area on it if nothing else is touched. Paths are compared as they are spelled: to ask the file
/// system could take for ever.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    pub(super) path: Vec<u8>,
    area: Option<Extent>,
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    offset: u64,
    /// Bytes that there are at least, and may be at most.
    least: u64,
    most: u64,
}

/// When two spots are the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overlap {
    /// They have bytes in common, however small their areas are.
    Certain,
    /// They may have, if the areas are as large as they can be, or are anywhere.
    Possible,
    /// They are on one disk.
    SameDisk,
}

impl Spot {
    /// The path of its disk, for people.
    pub(super) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }

    /// So many bytes from there.
    pub(crate) fn new(path: Vec<u8>, offset: u64, bytes: u64) -> Self {
        Self { path, area: Some(Extent { offset, least: bytes, most: bytes }) }
    }

    /// Areas behind one another, of this many bytes each if they are known, on a disk of a command; on an empty path if the disk's is none.
    ///
    /// Where there are several, they are taken for large ones in any case: the last one begins where nobody knows.
    pub(crate) fn areas(disk: &Disk, areas: u64, bytes: Option<u64>) -> Self {
        let path = disk.path.path().map_or_else(|_| Vec::new(), <[u8]>::to_vec);
        let most = areas * bytes.unwrap_or(AREA_BYTES_MAX);
        let least = if areas > 1 { most } else { bytes.unwrap_or(AREA_BYTES_MIN) };
        Self { path, area: Some(Extent { offset: disk.offset.get(), least, most }) }
    }

    /// Anywhere on it.
    pub(crate) fn anywhere(path: Vec<u8>) -> Self {
        Self { path, area: None }
    }

    pub(super) fn overlaps(&self, other: &Self, sure: Overlap) -> bool {
        let extents = self.area.zip(other.area);
        let areas = match sure {
            Overlap::SameDisk => true,
            Overlap::Certain => extents
                .is_some_and(|(one, other)| in_common(one.offset, one.least, other.offset, other.least)),
            Overlap::Possible => {
                extents.is_none_or(|(one, other)| in_common(one.offset, one.most, other.offset, other.most))
            }
        };
        areas && self.path == other.path
    }
}

/// Whether so many bytes from two offsets on have any in common.
pub(crate) fn in_common(one: u64, bytes: u64, other: u64, other_bytes: u64) -> bool {
    one < other.saturating_add(other_bytes) && other < one.saturating_add(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_are_not_known_are_taken_as_small_or_as_large() {
        let unknown = |offset: u64, areas| Spot::areas(&Disk::new(b"a", offset << 20).unwrap(), areas, None);
        let known = |path: &str, offset: u64, mib: u64| Spot::new(path.into(), offset << 20, mib << 20);
        let one = unknown(8, 1);
        for (other, certain, possible, same_disk) in [
            (unknown(8, 1), true, true, true),
            (unknown(9, 1), false, true, true),
            (unknown(1, 1), false, true, true),
            (unknown(0, 1), false, false, true),
            (unknown(7, 2), true, true, true),
            (unknown(0, 2), true, true, true),
            (unknown(16, 1), false, false, true),
            (known("a", 1, 2), false, false, true),
            (known("a", 7, 2), true, true, true),
            (known("b", 8, 1), false, false, false),
            (Spot::anywhere(b"a".to_vec()), false, true, true),
            (Spot::anywhere(b"b".to_vec()), false, false, false),
        ] {
            for (sure, expected) in
                [(Overlap::Certain, certain), (Overlap::Possible, possible), (Overlap::SameDisk, same_disk)]
            {
                assert_eq!(one.overlaps(&other, sure), expected, "{sure:?} {other:?}");
                assert_eq!(other.overlaps(&one, sure), expected, "{sure:?} {other:?}, turned round");
            }
        }
    }
}
