//! What the holders write into lock value blocks: a number, and bytes that depend on it in every part of the sector.

/// The bytes of value `number`, `length` of them (a multiple of 8).
#[must_use]
pub fn bytes_of(number: u64, length: usize) -> Vec<u8> {
    (0..length as u64 / 8).flat_map(|place| word(number, place).to_le_bytes()).collect()
}

/// The number in `bytes`: 0 for a block that was never written.
///
/// # Errors
/// Not one value: the first place, counted in words of 8 bytes, that does not belong to what the first word says.
pub fn number_in(bytes: &[u8]) -> Result<u64, usize> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(0);
    }
    let words = bytes.chunks_exact(8).map(|chunk| {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    let number = words.clone().next().unwrap_or_default() ^ SALT;
    match (0..).zip(words).position(|(place, found)| found != word(number, place)) {
        None => Ok(number),
        Some(place) => Err(place),
    }
}

/// No word of a value is 0, and none is that of another value at the same place.
const SALT: u64 = 0x9e37_79b9_7f4a_7c15;

fn word(number: u64, place: u64) -> u64 {
    number ^ SALT.wrapping_mul(2 * place + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_two_halves_is_noticed() {
        for length in [512, 4096] {
            let (old, new) = (bytes_of(7, length), bytes_of(8, length));
            assert_eq!(
                (number_in(&old), number_in(&new), number_in(&vec![0; length])),
                (Ok(7), Ok(8), Ok(0))
            );
            for at in [8, 64, length / 2, length - 8] {
                let torn: Vec<u8> = new[..at].iter().chain(&old[at..]).copied().collect();
                assert_eq!(number_in(&torn), Err(at / 8));
                let cut: Vec<u8> = new[..at].iter().copied().chain(vec![0; length - at]).collect();
                assert_eq!(number_in(&cut), Err(at / 8));
            }
        }
    }
}
