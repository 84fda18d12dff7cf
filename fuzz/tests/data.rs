//! How inputs are read.

use sanlock_fuzz::data::Data;

#[test]
fn beyond_the_end_everything_is_zero() {
    let mut data = Data::new(&[7, 252, 1]);
    assert_eq!((data.byte(), data.number(), data.more()), (7, 1, false));
    assert_eq!((data.byte(), data.number(), data.below(0), data.piece()), (0, 0, 0, &[][..]));
    assert!(!data.one_in(2) && data.one_in(1));
}

#[test]
fn edges_and_pieces() {
    let mut data = Data::new(&[223, 224, 247, 2, b'a', b'b', b'c']);
    assert_eq!((data.number(), data.number(), data.number()), (223, u64::MAX, 250));
    assert_eq!((data.piece(), data.rest()), (&b"ab"[..], &b"c"[..]));
}
