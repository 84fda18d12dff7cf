//! All chance in a run comes from one seed.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::ops::{Deref, DerefMut};

/// A seeded source of random decisions.
#[derive(Clone, Debug)]
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// Every run with this seed throws the same.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// The same seed, but other throws.
    #[must_use]
    fn stream(seed: u64, number: u64) -> Self {
        let mut stream = ChaCha8Rng::seed_from_u64(seed);
        stream.set_stream(number);
        Self(stream)
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high);
        low + self.any() % (high - low + 1)
    }

    /// A number from `-below` to `above`.
    pub fn around(&mut self, below: u64, above: u64) -> i64 {
        let signed = |n| i64::try_from(n).unwrap_or(i64::MAX);
        signed(self.between(0, below.saturating_add(above))) - signed(below)
    }

    /// True this many times out of a thousand.
    pub fn per_mille(&mut self, chance: u64) -> bool {
        self.any() % 1000 < chance
    }

    /// A number from `low` to `high` whose *magnitude* is evenly distributed: small ones are as likely as large ones.
    pub fn spread(&mut self, low: u64, high: u64) -> u64 {
        let (mut low, mut high) = (low.max(1), high.max(1));
        while low <= high / 4 {
            if self.per_mille(500) {
                low *= 2;
            } else {
                high /= 2;
            }
        }
        self.between(low, high.max(low))
    }
}

/// Sources of chance for different things, all of one seed. What one of them gives does not depend on how often another was asked.
#[derive(Clone, Debug)]
pub struct Streams {
    all: Vec<Dice>,
    used: usize,
}

impl Streams {
    /// So many of them. The first is in use.
    ///
    /// # Panics
    /// None at all.
    #[must_use]
    pub fn new(seed: u64, count: usize) -> Self {
        assert!(count > 0, "no stream");
        Self { all: (0..count as u64).map(|number| Dice::stream(seed, number)).collect(), used: 0 }
    }

    /// Takes this one into use. Returns the one that was.
    ///
    /// # Panics
    /// There are not so many.
    pub fn turn_to(&mut self, number: usize) -> usize {
        assert!(number < self.all.len(), "no stream {number}");
        std::mem::replace(&mut self.used, number)
    }
}

impl Deref for Streams {
    type Target = Dice;

    fn deref(&self) -> &Dice {
        &self.all[self.used]
    }
}

impl DerefMut for Streams {
    fn deref_mut(&mut self) -> &mut Dice {
        &mut self.all[self.used]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_gives_the_same_whatever_the_others_were_asked() {
        let throws = |ask_others: bool| {
            let mut streams = Streams::new(7, 3);
            (0..20)
                .map(|_| {
                    if ask_others {
                        streams.turn_to(2);
                        streams.any();
                    }
                    streams.turn_to(1);
                    streams.any()
                })
                .collect::<Vec<u64>>()
        };
        assert_eq!(throws(false), throws(true));
        let mut first = Streams::new(7, 3);
        assert_eq!(first.any(), Dice::new(7).any());
        assert_ne!(throws(false)[0], Dice::new(7).any());
    }
}
