//! A host's sector in a resource area: dblock at 0, mode block at 128 (disk-format.md 7.4, 7.5).
//!
//! Both share the sector, so whoever writes one rewrites the other: they travel together as a [`HostBlock`].

use crate::checksum::checksum;
use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Dblock flag: this host has given the lease up, whatever the leader says.
pub const DBLOCK_RELEASED: u32 = 0x1;
/// Mode block flag: this host holds the lease shared.
pub const MODE_SHARED: u32 = 0x1;
const MODE_OFFSET: usize = 128;

/// A host's ballot record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable, Debug)]
#[repr(C)]
pub struct Dblock {
    /// Highest ballot this host started for `lver`; congruent to its host id modulo `max_hosts`.
    pub mbal: U64,
    /// Ballot in which the value was accepted; 0 if none was.
    pub bal: U64,
    /// Value: host id of the proposed owner.
    pub inp: U64,
    /// Value: its generation.
    pub inp2: U64,
    /// Value: its timestamp.
    pub inp3: U64,
    /// The lease version this ballot is for.
    pub lver: U64,
    /// Sum of the bytes before it.
    pub checksum: U32,
    /// [`DBLOCK_RELEASED`]; not covered by the checksum.
    pub flags: U32,
}

const _: () = assert!(size_of::<Dblock>() == 56);
const _: () = assert!(offset_of!(Dblock, checksum) == 48);

impl Dblock {
    /// "Never took part".
    #[must_use]
    pub fn zeroed() -> Self {
        FromZeros::new_zeroed()
    }

    /// The checksum its first 48 bytes should carry.
    #[must_use]
    pub fn computed_checksum(&self) -> u32 {
        checksum(&self.as_bytes()[..offset_of!(Self, checksum)])
    }

    /// Stores the right checksum.
    pub fn seal(&mut self) {
        self.checksum = self.computed_checksum().into();
    }

    /// Whether it means "never took part": the five fields the format names are 0; `inp2`, `inp3` and `flags` may be anything.
    #[must_use]
    pub fn is_unused(&self) -> bool {
        self.checksum.get() == 0
            && self.mbal.get() == 0
            && self.bal.get() == 0
            && self.inp.get() == 0
            && self.lver.get() == 0
    }

    /// Whether it may be believed: unused, or with the right checksum.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.is_unused() || self.checksum.get() == self.computed_checksum()
    }

    /// Whether this says more of what its host has of the version than the other one, as found on different disks.
    ///
    /// A value is accepted only after a majority has the ballot's number, so the value of the largest ballot is the last one, and what a
    /// host holds. Its flag is set once the host has let go, for ever. A number alone comes last: a ballot that got no further says
    /// nothing, and a disk may have kept it from before a value that it missed.
    #[must_use]
    pub fn written_after(&self, other: &Self) -> bool {
        let order = |b: &Self| (b.lver.get(), b.bal.get(), b.is_released(), b.mbal.get());
        order(self) > order(other)
    }

    /// Whether [`DBLOCK_RELEASED`] is set.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.flags.get() & DBLOCK_RELEASED != 0
    }
}

/// A host's shared hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable, Debug)]
#[repr(C)]
pub struct ModeBlock {
    /// [`MODE_SHARED`].
    pub flags: U32,
    /// Written as zero, ignored when read: the original leaves memory contents here.
    pub padding: U32,
    /// The host's generation when it took the lease shared.
    pub generation: U64,
}

const _: () = assert!(size_of::<ModeBlock>() == 16);

impl ModeBlock {
    /// Not shared.
    #[must_use]
    pub fn zeroed() -> Self {
        FromZeros::new_zeroed()
    }

    /// A shared hold of this generation.
    #[must_use]
    pub fn shared(generation: u64) -> Self {
        Self { flags: MODE_SHARED.into(), padding: 0.into(), generation: generation.into() }
    }

    /// Whether [`MODE_SHARED`] is set.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.flags.get() & MODE_SHARED != 0
    }
}

/// The contents of one host's sector.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HostBlock {
    /// Its ballot record.
    pub dblock: Dblock,
    /// Its shared hold.
    pub mode: ModeBlock,
}

impl HostBlock {
    /// A sector of zeros.
    #[must_use]
    pub fn zeroed() -> Self {
        Self { dblock: Dblock::zeroed(), mode: ModeBlock::zeroed() }
    }

    /// Decodes a host's sector.
    #[must_use]
    pub fn from_sector(sector: &[u8]) -> Self {
        Self { dblock: super::prefix(sector), mode: super::prefix(sector.get(MODE_OFFSET..).unwrap_or(&[])) }
    }

    /// Whether a sector says nothing: what [`HostBlock::from_sector`] looks at is zero.
    #[must_use]
    pub fn is_blank(sector: &[u8]) -> bool {
        let dblock = sector.first_chunk::<{ size_of::<Dblock>() }>();
        let mode =
            sector.get(MODE_OFFSET..).and_then(|rest| rest.first_chunk::<{ size_of::<ModeBlock>() }>());
        dblock.zip(mode).is_some_and(|(dblock, mode)| any_bit(dblock) | any_bit(mode) == 0)
    }

    /// Writes a whole sector, zeros in all padding.
    pub fn encode(&self, sector: &mut [u8]) {
        sector.fill(0);
        sector[..size_of::<Dblock>()].copy_from_slice(self.dblock.as_bytes());
        let mode = ModeBlock { padding: 0.into(), ..self.mode };
        sector[MODE_OFFSET..MODE_OFFSET + size_of::<ModeBlock>()].copy_from_slice(mode.as_bytes());
    }
}

/// All bytes in one word, without a branch for each: an acquire asks this of four thousand blocks, and comparing with arrays of zeros takes twice as long.
#[inline]
fn any_bit<const N: usize>(bytes: &[u8; N]) -> u64 {
    const { assert!(N % 8 == 0, "whole words") };
    let word = |chunk: &[u8]| chunk.try_into().map_or(u64::MAX, u64::from_ne_bytes);
    bytes.chunks_exact(8).map(word).fold(0, |all, word| all | word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is decoded, and nothing else, decides.
    #[test]
    fn a_blank_sector_is_one_that_decodes_to_zeros() {
        for at in 0..512 {
            let mut sector = [0; 512];
            assert!(HostBlock::is_blank(&sector));
            sector[at] = 1;
            assert_eq!(
                HostBlock::is_blank(&sector),
                HostBlock::from_sector(&sector) == HostBlock::zeroed(),
                "{at}"
            );
            // The same once more, in another word, takes nothing away.
            for other in [0, 8, MODE_OFFSET, MODE_OFFSET + 8].map(|word| word + at % 8) {
                let mut sector = [0; 512];
                (sector[at], sector[other]) = (1, 1);
                assert!(!HostBlock::is_blank(&sector), "{at} {other}");
            }
        }
    }

    #[test]
    fn of_two_copies_of_a_block_the_later_one_is_known() {
        let block = |lver: u64, mbal: u64, bal: u64, released: bool| {
            let mut block = Dblock::zeroed();
            (block.lver, block.mbal, block.bal) = (lver.into(), mbal.into(), bal.into());
            block.flags = if released { DBLOCK_RELEASED } else { 0 }.into();
            block
        };
        // In the order in which a host writes them.
        let written = [
            block(4, 2001, 2001, true),
            block(5, 1, 0, false),
            block(5, 1, 1, false),
            block(5, 2001, 1, false),
            block(5, 2001, 2001, false),
            block(5, 2001, 2001, true),
        ];
        for (a, earlier) in written.iter().enumerate() {
            for (b, later) in written.iter().enumerate() {
                assert_eq!(later.written_after(earlier), b > a, "{a} {b}");
            }
        }
    }

    #[test]
    fn every_byte_of_a_block_s_sector_is_written() {
        // Whatever was in the buffer before: bytes that carry nothing are zero (W38).
        let block = HostBlock { dblock: Dblock::zeroed(), mode: ModeBlock::shared(0x0102_0304_0506_0708) };
        for length in [512, 4096] {
            let mut sector = vec![0xff; length];
            block.encode(&mut sector);
            let set: Vec<usize> = (0..length).filter(|at| sector[*at] != 0).collect();
            assert_eq!(set, [128, 136, 137, 138, 139, 140, 141, 142, 143]);
        }
    }
}
