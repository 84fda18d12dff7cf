//! Sparse disks in memory, and where on them the areas are.

use sanlock_lease::geometry::SectorSize;
use sanlock_lease::machine::{Place, Sectors};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Bytes that are written whole or not at all.
pub const BLOCK: usize = 512;

/// One disk. What was never written is zero and costs nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Disk {
    /// Its size in bytes.
    bytes: u64,
    /// By number; blocks of zeros are left out.
    blocks: BTreeMap<u64, Rc<[u8; BLOCK]>>,
}

impl Disk {
    /// A disk of this many bytes, all zero.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self { bytes, blocks: BTreeMap::new() }
    }

    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// One block; zeros beyond the end.
    #[must_use]
    pub fn block(&self, number: u64) -> [u8; BLOCK] {
        self.blocks.get(&number).map_or([0; BLOCK], |block| **block)
    }

    /// Replaces one block. Precondition: it lies on the disk.
    pub fn set_block(&mut self, number: u64, bytes: &[u8; BLOCK]) {
        assert!((number + 1) * BLOCK as u64 <= self.bytes, "block {number} is beyond the end of the disk");
        if bytes == &[0; BLOCK] {
            self.blocks.remove(&number);
        } else {
            self.blocks.insert(number, Rc::new(*bytes));
        }
    }

    /// Bytes from `offset` on, which is a multiple of the block size; `None` beyond the end.
    #[must_use]
    pub fn read(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        if offset.checked_add(len as u64)? > self.bytes {
            return None;
        }
        let first = offset / BLOCK as u64;
        let mut bytes = vec![0; len];
        for (number, block) in self.blocks.range(first..first + len.div_ceil(BLOCK) as u64) {
            let at = usize::try_from(number - first).unwrap() * BLOCK;
            let end = (at + BLOCK).min(len);
            bytes[at..end].copy_from_slice(&block[..end - at]);
        }
        Some(bytes)
    }

    /// Writes whole blocks.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (number, block) in blocks_of(offset, bytes) {
            self.set_block(number, block);
        }
    }

    fn view(&self, base: u64, size: SectorSize, first: u64, count: u64) -> Option<View> {
        let sector = u64::from(size.bytes());
        let from = base + first * sector;
        if from + count * sector > self.bytes {
            return None;
        }
        let per = sector / BLOCK as u64;
        let start = from / BLOCK as u64;
        let mut sectors: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for (number, block) in self.blocks.range(start..start + count * per) {
            let bytes =
                sectors.entry(first + (number - start) / per).or_insert_with(|| vec![0; size.slice_len()]);
            let at = usize::try_from((number - start) % per).unwrap() * BLOCK;
            bytes[at..at + BLOCK].copy_from_slice(&block[..]);
        }
        Some(View { first, count, zeros: vec![0; size.slice_len()], sectors })
    }
}

/// The blocks that a write consists of, with their numbers.
pub fn blocks_of(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8; BLOCK])> {
    assert!(offset % BLOCK as u64 == 0 && bytes.len() % BLOCK == 0, "no whole blocks");
    let blocks = bytes.chunks_exact(BLOCK).map(|block| block.try_into().unwrap());
    (offset / BLOCK as u64..).zip(blocks)
}

/// What a read returned.
#[derive(Debug)]
pub struct View {
    first: u64,
    count: u64,
    zeros: Vec<u8>,
    sectors: BTreeMap<u64, Vec<u8>>,
}

impl Sectors for View {
    fn sector(&self, index: u64) -> Option<&[u8]> {
        (self.first..self.first + self.count)
            .contains(&index)
            .then(|| self.sectors.get(&index).unwrap_or(&self.zeros).as_slice())
    }

    fn next_in_use(&self, from: u64) -> Option<u64> {
        self.sectors.range(from..).next().map(|(index, _)| *index)
    }
}

/// Where an area is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Which disk.
    pub disk: usize,
    /// Byte offset on it.
    pub offset: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// The areas that a machine works on.
#[derive(Clone, Debug, Default)]
pub struct Areas {
    /// The lockspace's.
    pub lockspace: Option<Area>,
    /// The resource's, one per disk.
    pub resource: Vec<Area>,
}

impl Areas {
    /// The area of a place. A machine that asks for another one is wrong.
    #[must_use]
    pub fn at(&self, place: Place) -> Area {
        match place {
            Place::Lockspace => self.lockspace.unwrap(),
            Place::Resource(disk) => self.resource[usize::from(disk)],
        }
    }
}

/// All disks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Disks(pub Vec<Disk>);

impl Disks {
    /// Sectors of an area, `None` beyond the end of the disk.
    #[must_use]
    pub fn view(&self, area: Area, size: SectorSize, first: u64, count: u64) -> Option<View> {
        self.0[area.disk].view(area.offset, size, first, count)
    }

    /// One sector of an area.
    #[must_use]
    pub fn sector(&self, area: Area, size: SectorSize, sector: u64) -> Vec<u8> {
        let offset = area.offset + sector * u64::from(size.bytes());
        self.0[area.disk].read(offset, size.slice_len()).unwrap()
    }

    /// Writes from a byte offset of an area on.
    pub fn write(&mut self, area: Area, offset: u64, bytes: &[u8]) {
        self.0[area.disk].write(area.offset + offset, bytes);
    }
}
