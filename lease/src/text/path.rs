//! Paths inside strings: escaping and unescaping as the C library does it (disk-format.md 12.2, 12.3).
//!
//! The two are *not* inverse for a path that contains a backslash: export leaves an escaped byte escaped, import drops every
//! backslash. Programs depend on both, so neither is mended here.

use super::c_str;

/// The escaped form of a path: a backslash before every blank and colon that has none yet.
///
/// `dst_bytes` is the size of the C buffer including its NUL. What no longer fits is cut silently, never inside an escape.
/// A trailing backslash counts as an escape and needs the room of one.
#[must_use]
pub fn export(path: &[u8], dst_bytes: usize) -> Vec<u8> {
    let room = dst_bytes.saturating_sub(1);
    let mut escaped = Vec::new();
    let mut rest = c_str(path);
    while let Some((&first, after)) = rest.split_first() {
        let (unit, needed): (&[u8], usize) = match first {
            b'\\' => (&rest[..rest.len().min(2)], 2),
            b' ' | b':' => (&[b'\\', first], 2),
            _ => (&rest[..1], 1),
        };
        if escaped.len() + needed > room {
            break;
        }
        escaped.extend_from_slice(unit);
        rest = if first == b'\\' { after.get(1..).unwrap_or_default() } else { after };
    }
    escaped
}

/// What importing a path gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The bytes stored, without NUL.
    pub path: Vec<u8>,
    /// Whether the terminating NUL fitted; if not, `path` fills the whole buffer and is cut.
    pub terminated: bool,
}

impl Imported {
    /// The number the C function returns: the length, or 0 when the NUL did not fit.
    #[must_use]
    pub fn returned(&self) -> usize {
        if self.terminated { self.path.len() } else { 0 }
    }
}

/// The plain form of a path: every backslash dropped, so that `\\` disappears altogether.
///
/// `dst_bytes` is the size of the C buffer including its NUL.
#[must_use]
pub fn import(path: &[u8], dst_bytes: usize) -> Imported {
    let mut plain: Vec<u8> = c_str(path).iter().copied().filter(|&b| b != b'\\').collect();
    let terminated = plain.len() < dst_bytes;
    plain.truncate(dst_bytes);
    Imported { path: plain, terminated }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn export_table() {
        // The table of disk-format.md 12.2, and the edges of a backslash at the end.
        for (src, dst_bytes, dst) in [
            ("/a:b", 64, r"/a\:b"),
            ("/a b", 64, r"/a\ b"),
            (r"/a\:b", 64, r"/a\:b"),
            (r"/a\\b", 64, r"/a\\b"),
            (r"/a\", 64, r"/a\"),
            ("/a:b", 6, r"/a\:b"),
            ("/a:b", 5, r"/a\:"),
            ("/a:b", 4, "/a"),
            ("/ab", 4, "/ab"),
            ("/ab", 3, "/a"),
            ("", 64, ""),
            (r"/a\", 5, r"/a\"),
            (r"/a\", 4, "/a"),
            ("/a", 1, ""),
            ("/a", 0, ""),
            ("/a:b c", 12, r"/a\:b\ c"),
        ] {
            let out = export(src.as_bytes(), dst_bytes);
            assert_eq!(String::from_utf8_lossy(&out), dst, "{src:?} into {dst_bytes}");
        }
    }

    #[test]
    fn import_table() {
        // The table of disk-format.md 12.3.
        for (src, dst_bytes, dst, returned) in [
            (r"/dev/a\:b", 64, "/dev/a:b", 8),
            (r"/dev/a\\b", 64, "/dev/ab", 7),
            (r"/dev/a\", 64, "/dev/a", 6),
            ("/ab", 4, "/ab", 3),
            ("/ab", 3, "/ab", 0),
            ("", 64, "", 0),
        ] {
            let out = import(src.as_bytes(), dst_bytes);
            assert_eq!(String::from_utf8_lossy(&out.path), dst, "{src:?} into {dst_bytes}");
            assert_eq!(out.returned(), returned, "{src:?} into {dst_bytes}");
        }
        assert!(!import(b"/ab", 3).terminated);
        assert!(import(b"", 1).terminated);
    }

    proptest! {
        #[test]
        fn import_undoes_export_of_a_path_without_backslash(path in "[ -\\[\\]-~]{0,200}") {
            let escaped = export(path.as_bytes(), 1024);
            let plain = import(&escaped, 1024);
            prop_assert_eq!(plain.path, path.as_bytes());
        }

        #[test]
        fn export_stays_inside_its_buffer(path: Vec<u8>, dst_bytes in 0usize..300) {
            prop_assert!(export(&path, dst_bytes).len() <= dst_bytes.saturating_sub(1));
            prop_assert!(import(&path, dst_bytes).path.len() <= dst_bytes);
        }

        #[test]
        fn exporting_twice_changes_nothing(path in "[ -~]{0,200}") {
            let once = export(path.as_bytes(), 1024);
            prop_assert_eq!(export(&once, 1024), once);
        }
    }
}
