//! The disk: sectors by their number from its start. Those of zeros cost nothing.

use sanlock_lease::limits::SECTOR_BYTES_MAX;
use sanlock_lease::machine::Sectors;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Bytes of a sector.
pub(crate) const SECTOR: usize = 512;

const ZEROS: [u8; SECTOR_BYTES_MAX] = [0; SECTOR_BYTES_MAX];

/// Sectors in use, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk(BTreeMap<u64, Rc<[u8]>>);

impl Disk {
    /// Puts whole sectors in place from `first` on.
    pub(crate) fn land(&mut self, first: u64, bytes: &[u8]) {
        for (number, sector) in (first..).zip(bytes.chunks(SECTOR)) {
            if sector == &ZEROS[..SECTOR] {
                self.0.remove(&number);
            } else {
                self.0.insert(number, sector.into());
            }
        }
    }

    pub(crate) fn sector(&self, number: u64) -> &[u8] {
        self.0.get(&number).map_or(&ZEROS[..SECTOR], |bytes| bytes)
    }

    /// Adds what is in use of a range to what was read of it.
    pub(crate) fn sample(&self, first: u64, count: u64, into: &mut Disk) {
        for (number, bytes) in self.0.range(first..first + count) {
            into.0.insert(*number, Rc::clone(bytes));
        }
    }

    /// A range as bytes.
    pub(crate) fn bytes(&self, first: u64, count: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(count).unwrap() * SECTOR];
        for (number, sector) in self.0.range(first..first + count) {
            let at = usize::try_from(number - first).unwrap() * SECTOR;
            bytes[at..at + SECTOR].copy_from_slice(sector);
        }
        bytes
    }
}

/// What a read of an area brought. `base` is the area's first sector.
pub(crate) struct View<'a> {
    pub(crate) read: &'a Disk,
    pub(crate) base: u64,
    pub(crate) first: u64,
    pub(crate) count: u64,
}

impl Sectors for View<'_> {
    fn sector(&self, index: u64) -> Option<&[u8]> {
        (self.first..self.first + self.count).contains(&index).then(|| self.read.sector(self.base + index))
    }

    fn next_in_use(&self, from: u64) -> Option<u64> {
        let range = self.base + from.max(self.first)..self.base + self.first + self.count;
        (!range.is_empty()).then(|| self.read.0.range(range).next())?.map(|(number, _)| number - self.base)
    }
}
