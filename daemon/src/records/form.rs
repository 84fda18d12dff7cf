//! The form of records: lines of a key and a value, the last of them the checksum of all before it.
//!
//! A record decides whether the end of an earlier instance is waited for, and which generation is not used again. One in which a single bit is
//! wrong is none: a boot that never was would pass for a reboot (docs/decisions/0026).

use std::fmt::Write as _;

use sanlock_lease::checksum::checksum;

/// Key of the last line.
const CHECKSUM: &str = "checksum";
/// Bytes of the last line: key, space, eight hexadecimal digits, end of line.
const CHECKSUM_LINE_BYTES: usize = CHECKSUM.len() + 10;

/// These lines, with their checksum behind them.
pub(super) fn seal(mut lines: String) -> String {
    let sum = checksum(lines.as_bytes());
    // A string takes everything.
    let _ = writeln!(lines, "{CHECKSUM} {sum:08x}");
    lines
}

/// The lines before the checksum, if that is exactly as it should be.
pub(super) fn unseal(text: &str) -> Option<&str> {
    let lines = text.get(..text.len().checked_sub(CHECKSUM_LINE_BYTES)?)?;
    (seal(lines.to_owned()) == text).then_some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_is_read_and_nothing_else() {
        for lines in ["", "a b\n", "a b\nno end of line"] {
            let sealed = seal(lines.to_owned());
            assert_eq!(unseal(&sealed), Some(lines));
            for cut in 0..sealed.len() {
                assert_eq!(unseal(&sealed[..cut]), None, "{sealed:?} cut at {cut}");
            }
            assert_eq!(unseal(&sealed.to_uppercase()), None);
            assert_eq!(unseal(&format!("{sealed}\n")), None);
        }
        assert_eq!(unseal("ääääääääää"), None);
    }
}
