//! Random choices that a seed repeats.

use std::thread;
use std::time::Duration;

/// A sequence of random numbers (xorshift64*).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// A different sequence for every text and seed, the same in every run.
    #[must_use]
    pub fn new(text: &str, seed: u64) -> Self {
        // FNV-1a; `| 1`: the generator must not start with zero.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325 ^ seed, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(hash | 1)
    }

    /// A number below `limit`.
    ///
    /// # Panics
    /// When `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % limit
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `things`.
    ///
    /// # Panics
    /// When there are none.
    pub fn one_of<T: Copy>(&mut self, things: &[T]) -> T {
        let index = usize::try_from(self.below(things.len() as u64)).unwrap_or(0);
        things[index]
    }

    /// Sleeps for less than `limit_ms`, in steps of a microsecond.
    pub fn pause(&mut self, limit_ms: u64) {
        thread::sleep(Duration::from_micros(self.below(limit_ms * 1000)));
    }
}
