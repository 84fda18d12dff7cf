//! Numbers in text, as leniently as C reads them and as strictly as an administrator would want.
//!
//! The lenient functions never fail except where the C function's caller can tell that there was no digit. The strict ones
//! accept digits and nothing else, but for blanks around them and a plus sign, as from `ps -o pid=` or `wc`.

use super::{TextError, excerpt};

/// The blanks that C skips before a number.
fn skip_blanks(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|b| !matches!(b, b' ' | b'\t'..=b'\r')).unwrap_or(text.len());
    &text[start..]
}

/// The sign and what follows it.
fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    match text.first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    }
}

/// The digits at the start of `text` in `base`: their number, saturated value, and whether it overflowed 64 bits.
fn digits(text: &[u8], base: u32) -> (usize, u64, bool) {
    let mut value = 0u64;
    let mut overflow = false;
    let mut count = 0;
    for &byte in text {
        let Some(digit) = char::from(byte).to_digit(base) else { break };
        match value.checked_mul(u64::from(base)).and_then(|v| v.checked_add(u64::from(digit))) {
            Some(next) => value = next,
            None => overflow = true,
        }
        count += 1;
    }
    (count, if overflow { u64::MAX } else { value }, overflow)
}

/// Routine A in 64 bits (command-line.md 1): decimal, blanks and sign allowed, stops at the first other byte, 0 without digits;
/// saturates at the ends of the signed range, and a negative number is returned as its two's complement.
#[must_use]
pub fn lenient_i64(text: &[u8]) -> u64 {
    let (negative, rest) = split_sign(skip_blanks(text));
    let (_, value, _) = digits(rest, 10);
    if negative { value.min(1 << 63).wrapping_neg() } else { value.min(i64::MAX.unsigned_abs()) }
}

/// A decimal offset of a resource string (disk-format.md 12.4): as C's `strtoull` in base 10, or `None` without a digit.
#[must_use]
pub fn lenient_offset(text: &[u8]) -> Option<u64> {
    let (negative, rest) = split_sign(skip_blanks(text));
    let (count, value, overflow) = digits(rest, 10);
    (count > 0).then(|| if negative && !overflow { value.wrapping_neg() } else { value })
}

/// Routine U64 (command-line.md 1): C's `strtoull` with base 0; `0x` is hexadecimal, a leading `0` octal, and text without
/// digits is 0.
#[must_use]
pub fn lenient_u64(text: &[u8]) -> u64 {
    let (negative, rest) = split_sign(skip_blanks(text));
    let (base, body) = radix(rest);
    let (_, value, overflow) = digits(body, base);
    if negative && !overflow { value.wrapping_neg() } else { value }
}

/// The base that a prefix announces, and the digits after it. `0x` without a digit behind it is the number 0.
fn radix(text: &[u8]) -> (u32, &[u8]) {
    match text {
        [b'0', b'x' | b'X', first, ..] if first.is_ascii_hexdigit() => (16, &text[2..]),
        [b'0', ..] => (8, text),
        _ => (10, text),
    }
}

/// What a number consists of, without what C passes over before it, and blanks behind it.
#[must_use]
pub fn bare(text: &[u8]) -> &[u8] {
    let text = skip_blanks(text).trim_ascii_end();
    match text {
        [b'+', body @ ..] if body.first().is_some_and(u8::is_ascii_digit) => body,
        _ => text,
    }
}

/// Decimal digits and nothing else.
///
/// # Errors
/// Anything but digits, or a value above 2^64 - 1; `field` names the number in the message.
pub fn strict_decimal(field: &'static str, text: &[u8]) -> Result<u64, TextError> {
    strict(field, text, bare(text), 10, "decimal digits")
}

/// A number with C's base prefixes (`0x10` is 16, `010` is 8) and nothing else.
///
/// # Errors
/// Anything but digits of that base, or a value above 2^64 - 1.
pub fn strict_prefixed(field: &'static str, text: &[u8]) -> Result<u64, TextError> {
    let (base, body) = radix(bare(text));
    strict(field, text, body, base, "a decimal, 0x… or 0… number")
}

/// An offset or size on a disk: decimal bytes, or decimal MiB with the suffix `M` (disk-format.md 12.8).
///
/// # Errors
/// Anything else, or a value above 2^64 - 1 bytes.
pub fn strict_bytes(field: &'static str, text: &[u8]) -> Result<u64, TextError> {
    const MIB: u64 = 1 << 20;
    let (body, unit) = match bare(text) {
        [body @ .., b'M'] => (body, MIB),
        body => (body, 1),
    };
    let number = strict(field, text, body, 10, "decimal bytes, or decimal MiB followed by M")?;
    number.checked_mul(unit).ok_or_else(|| TextError::Range { field, text: excerpt(text) })
}

fn strict(
    field: &'static str,
    text: &[u8],
    body: &[u8],
    base: u32,
    expected: &'static str,
) -> Result<u64, TextError> {
    let (count, value, overflow) = digits(body, base);
    if count == 0 || count != body.len() {
        return Err(TextError::Number { field, text: excerpt(text), expected });
    }
    if overflow {
        return Err(TextError::Range { field, text: excerpt(text) });
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routine_a_reads_what_it_can() {
        for (text, value) in [
            ("", 0),
            ("abc", 0),
            ("12abc", 12),
            (" \t12", 12),
            ("+4", 4),
            ("- 4", 0),
            ("-1", u64::MAX),
            ("0x10", 0),
            ("99999999999999999999", 9_223_372_036_854_775_807),
            ("-99999999999999999999", 1 << 63),
        ] {
            assert_eq!(lenient_i64(text.as_bytes()), value, "{text:?}");
        }
    }

    #[test]
    fn offsets_need_a_digit() {
        for (text, value) in [
            ("12abc", Some(12)),
            ("0x10", Some(0)),
            (" 12", Some(12)),
            ("+5", Some(5)),
            ("-5", Some(5u64.wrapping_neg())),
            ("- 5", None),
            ("abc", None),
            ("", None),
            ("99999999999999999999", Some(u64::MAX)),
            ("-99999999999999999999", Some(u64::MAX)),
        ] {
            assert_eq!(lenient_offset(text.as_bytes()), value, "{text:?}");
        }
    }

    #[test]
    fn versions_take_base_prefixes() {
        for (text, value) in [
            ("5", 5),
            ("0x10", 16),
            ("0X1f", 31),
            ("010", 8),
            ("099", 0),
            ("0x", 0),
            ("0xg", 0),
            ("S", 0),
            ("", 0),
            (" 7", 7),
            ("-1", u64::MAX),
        ] {
            assert_eq!(lenient_u64(text.as_bytes()), value, "{text:?}");
        }
    }

    #[test]
    fn strict_numbers_take_digits_only() {
        assert_eq!(strict_decimal("n", b"18446744073709551615").unwrap(), u64::MAX);
        // As a shell hands on what other programs print.
        for one in ["1", " 1", "\t 1", "1 ", "1\n", "+1", " +1 "] {
            assert_eq!(strict_decimal("n", one.as_bytes()).unwrap(), 1, "{one:?}");
            assert_eq!(strict_prefixed("n", one.as_bytes()).unwrap(), 1, "{one:?}");
        }
        for bad in ["", " ", "+", "-1", "++1", "+-1", "+ 1", "1 1", "0x10", "12abc", "1M"] {
            assert!(matches!(strict_decimal("n", bad.as_bytes()), Err(TextError::Number { .. })), "{bad:?}");
        }
        assert!(matches!(strict_decimal("n", b"18446744073709551616"), Err(TextError::Range { .. })));
        assert_eq!(strict_prefixed("n", b"0x10").unwrap(), 16);
        assert_eq!(strict_prefixed("n", b"010").unwrap(), 8);
        for bad in ["0x", "08", "sh", "EX", "1f"] {
            assert!(strict_prefixed("n", bad.as_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_suffix_m_counts_mib() {
        for (text, value) in
            [("0", 0), ("1M", 1 << 20), (" +16M ", 16 << 20), ("1024M", 1 << 30), (" 4096", 4096)]
        {
            assert_eq!(strict_bytes("offset", text.as_bytes()).unwrap(), value, "{text:?}");
        }
        for bad in ["M", "1m", "1MM", "3Mxyz", "0x1M", "1 M", "-1M"] {
            assert!(
                matches!(strict_bytes("offset", bad.as_bytes()), Err(TextError::Number { .. })),
                "{bad:?}"
            );
        }
        assert!(matches!(strict_bytes("offset", b"18446744073709551615M"), Err(TextError::Range { .. })));
    }
}
