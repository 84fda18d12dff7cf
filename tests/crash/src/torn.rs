//! What a write may leave behind when its host dies.

use crate::disk::{BLOCK, Disks, blocks_of};

/// Changed blocks up to which every subset of them is tried.
const SUBSETS_MAX: usize = 6;
/// Of more blocks, these many places at each end and spread between are where a tear is tried.
const PLACES: usize = 8;
/// And these many subsets without any order.
const MIXED: u64 = 6;

/// A write that was submitted.
#[derive(Clone, Debug)]
pub struct Write {
    /// Which disk.
    pub disk: usize,
    /// Byte offset on it.
    pub offset: u64,
    /// What.
    pub bytes: Vec<u8>,
}

impl Write {
    /// Lands as a whole.
    pub fn apply(&self, disks: &mut Disks) {
        disks.0[self.disk].write(self.offset, &self.bytes);
    }
}

/// The disks after `write` was stopped: not begun, each way in which it may be torn, done. Of what changes nothing there is one.
///
/// Up to six changed blocks every subset of them; beyond that the first ones, the last ones, all but one, only one, and some without
/// order.
#[must_use]
pub fn outcomes(disks: &Disks, write: &Write) -> Vec<Disks> {
    let old = &disks.0[write.disk];
    let changed: Vec<(u64, &[u8; BLOCK])> = blocks_of(write.offset, &write.bytes)
        .filter(|(number, block)| old.block(*number) != **block)
        .collect();
    let landed = |takes: &dyn Fn(usize) -> bool| {
        let mut disks = disks.clone();
        for (_, (number, block)) in changed.iter().enumerate().filter(|(i, _)| takes(*i)) {
            disks.0[write.disk].set_block(*number, block);
        }
        disks
    };
    let count = changed.len();
    if count <= SUBSETS_MAX {
        return (0..1_u32 << count).map(|set| landed(&|i| set >> i & 1 == 1)).collect();
    }
    let mut places: Vec<usize> = (0..PLACES).flat_map(|i| [i, count - 1 - i, count * i / PLACES]).collect();
    places.retain(|place| *place < count);
    places.sort_unstable();
    places.dedup();
    let mut all = vec![landed(&|_| false), landed(&|_| true)];
    for place in places {
        all.push(landed(&|i| i < place));
        all.push(landed(&|i| i > place));
        all.push(landed(&|i| i == place));
        all.push(landed(&|i| i != place));
    }
    for seed in 0..MIXED {
        all.push(landed(&|i| mixed(seed, i as u64)));
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Every combination of what becomes of several writes in flight at once.
#[must_use]
pub fn combinations(disks: &Disks, writes: &[Write]) -> Vec<Disks> {
    let mut all = vec![disks.clone()];
    for write in writes {
        all = all.iter().flat_map(|disks| outcomes(disks, write)).collect();
        all.sort_unstable();
        all.dedup();
    }
    all
}

/// A coin for each block, the same in every run (SplitMix64).
fn mixed(seed: u64, block: u64) -> bool {
    let mut z = (seed << 32 | block).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;

    fn write(blocks: usize) -> Write {
        Write { disk: 0, offset: 512, bytes: vec![7; blocks * BLOCK] }
    }

    #[test]
    fn a_block_lands_or_does_not_and_few_blocks_in_every_way() {
        let disks = Disks(vec![Disk::new(1 << 20)]);
        for (blocks, expected) in [(1, 2), (2, 4), (6, 64)] {
            assert_eq!(outcomes(&disks, &write(blocks)).len(), expected);
        }
        // Writing what is there already changes nothing.
        let mut done = disks.clone();
        write(6).apply(&mut done);
        assert_eq!(outcomes(&done, &write(6)).len(), 1);
        assert_eq!(combinations(&disks, &[write(1), Write { offset: 4096, ..write(2) }]).len(), 8);
    }

    #[test]
    fn many_blocks_are_torn_at_both_ends_and_between() {
        let disks = Disks(vec![Disk::new(2 << 20)]);
        let all = outcomes(&disks, &write(2048));
        assert!(all.len() > 80, "{}", all.len());
        let firsts = all.iter().filter(|d| d.0[0].block(1) != [0; BLOCK]).count();
        assert!(firsts > 20 && firsts < all.len() - 20, "{firsts} of {}", all.len());
    }
}
