//! The input of a fuzzer, read as a sequence of choices.
//!
//! Every byte string is a valid sequence: whoever reads beyond its end gets zeros, and [`Data::more`] says when to stop. Numbers are
//! packed so that the interesting ones cost one byte, which keeps inputs small and mutations meaningful.

/// A cursor over the input.
#[derive(Clone, Debug)]
pub struct Data<'a> {
    rest: &'a [u8],
}

impl<'a> Data<'a> {
    /// All of it.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether anything is left.
    #[must_use]
    pub const fn more(&self) -> bool {
        !self.rest.is_empty()
    }

    /// What is left.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// At most `len` bytes.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (now, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        now
    }

    /// One byte.
    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// A number below `bound` (0 for a bound of 0), from one byte.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()).checked_rem(bound).unwrap_or(0)
    }

    /// One of these; they must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        let at = self.below(choices.len());
        choices.get(at).copied()
    }

    /// Yes, once in `n` bytes.
    pub fn one_in(&mut self, n: u8) -> bool {
        self.byte() % n.max(1) == n.max(1) - 1
    }

    /// A number: 0 to 223 in one byte, else the edges of the types, or eight bytes as they are.
    pub fn number(&mut self) -> u64 {
        const EDGES: [u64; 24] = [
            u64::MAX,
            u64::MAX - 1,
            1 << 63,
            (1 << 63) - 1,
            1 << 32,
            (1 << 32) - 1,
            1 << 31,
            (1 << 31) - 1,
            1 << 16,
            (1 << 16) - 1,
            2000,
            2001,
            1999,
            4000,
            4001,
            256,
            255,
            512,
            4096,
            1 << 20,
            1 << 23,
            1000,
            1100,
            250,
        ];
        match self.byte() {
            small @ 0..=223 => small.into(),
            edge @ 224..=247 => EDGES.get(usize::from(edge - 224)).copied().unwrap_or(0),
            248..=251 => u64::from(self.word16()),
            252..=255 => self.word64(),
        }
    }

    /// The low half of a number.
    pub fn number32(&mut self) -> u32 {
        u32::try_from(self.number() & u64::from(u32::MAX)).unwrap_or(0)
    }

    /// Two bytes, little-endian.
    pub fn word16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Eight bytes, little-endian.
    pub fn word64(&mut self) -> u64 {
        let mut word = [0; 8];
        let now = self.bytes(8);
        for (to, from) in word.iter_mut().zip(now) {
            *to = *from;
        }
        u64::from_le_bytes(word)
    }

    /// A piece whose length is in one byte before it.
    pub fn piece(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte());
        self.bytes(len)
    }
}
