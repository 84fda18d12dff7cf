//! Numbers that an administrator gives, as other crates read them.

use sanlock_lease::text::number::bare;

/// A sign is followed by a number; what is left of two of them would pass for one where negative numbers are read.
#[test]
fn of_two_signs_none_is_taken_away() {
    for (text, number) in
        [("+5", "5"), (" +5 ", "5"), ("-5", "-5"), ("+-5", "+-5"), ("++5", "++5"), ("+", "+"), (" ", "")]
    {
        assert_eq!(bare(text.as_bytes()), number.as_bytes(), "{text:?}");
    }
}
