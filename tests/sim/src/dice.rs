//! All chance in a run comes from one seed.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A seeded source of random decisions.
#[derive(Clone, Debug)]
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// Every run with this seed throws the same.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        debug_assert!(low <= high);
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
        while high / low >= 4 {
            if self.per_mille(500) {
                low *= 2;
            } else {
                high /= 2;
            }
        }
        self.between(low, high.max(low))
    }
}
