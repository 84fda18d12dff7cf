//! The checksum of leader records and dblocks (disk-format.md 4).
//!
//! CRC-32C (Castagnoli, reflected) with the register preset to `0xFFFF_FFFE` and *no* final inversion; an ordinary CRC-32C call
//! gives another number. The sum is taken over the little-endian bytes as they lie on disk.

use crc::{Algorithm, Crc, Table};

/// The Rocksoft parameters. `init` is given unreflected there, so `0xFFFF_FFFE` appears bit-reversed.
const SANLOCK: Algorithm<u32> = Algorithm {
    width: 32,
    poly: 0x1EDC_6F41,
    init: 0x7FFF_FFFF,
    refin: true,
    refout: true,
    xorout: 0,
    check: 0xE8C7_BB34,
    residue: 0,
};

static CRC: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&SANLOCK);

/// The sanlock checksum of `bytes`.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    CRC.checksum(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers_of_the_specification() {
        let ramp: Vec<u8> = (0..32).collect();
        let cases: [(&[u8], u32); 8] = [
            (b"", 0xffff_fffe),
            (b"123456789", 0xe8c7_bb34),
            (b"a", 0xcc44_3fcc),
            (&[0], 0x5fe9_2fad),
            (&[0; 32], 0x48c8_199e),
            (&[0xff; 32], 0xa0f1_8477),
            (&[0; 48], 0xcb5a_d842),
            (&[0; 168], 0x7e11_fbd1),
        ];
        for (bytes, sum) in cases {
            assert_eq!(checksum(bytes), sum, "{bytes:02x?}");
        }
        assert_eq!(checksum(&ramp), 0x8484_567a);
    }

    #[test]
    fn agrees_with_a_stock_crc32c_started_at_one() {
        let bytes: Vec<u8> = (0..4096u32).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect();
        for len in (0..4096).step_by(37) {
            assert_eq!(checksum(&bytes[..len]), !crc32c::crc32c_append(1, &bytes[..len]));
        }
    }
}
