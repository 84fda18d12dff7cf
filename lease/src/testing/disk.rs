//! Sparse areas in memory.

use crate::geometry::SectorSize;
use crate::limits::SECTOR_BYTES_MAX;
use crate::machine::{Place, Sectors};
use std::collections::BTreeMap;

const UNIT: usize = 512;
const ZEROS: [u8; SECTOR_BYTES_MAX] = [0; SECTOR_BYTES_MAX];

/// Areas by place; what was never written is zero and costs nothing. Any sector size may be used on any area, as on a disk.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TestDisk {
    areas: BTreeMap<(u8, u8), Area>,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct Area {
    bytes: u64,
    units: BTreeMap<u64, [u8; UNIT]>,
}

fn key(place: Place) -> (u8, u8) {
    match place {
        Place::Lockspace => (0, 0),
        Place::Resource(disk) => (1, disk),
    }
}

impl TestDisk {
    /// No areas.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An area of zeros; replaces the one that was there.
    pub fn add(&mut self, place: Place, bytes: u64) {
        self.areas.insert(key(place), Area { bytes, units: BTreeMap::new() });
    }

    /// Takes an area away: every operation on it fails with ENODEV.
    pub fn remove(&mut self, place: Place) {
        self.areas.remove(&key(place));
    }

    /// Whether there is such an area.
    #[must_use]
    pub fn has(&self, place: Place) -> bool {
        self.areas.contains_key(&key(place))
    }

    /// Writes bytes from the beginning of a sector on. Bytes beyond the area's end are dropped; returns whether all fitted.
    pub fn write(&mut self, place: Place, size: SectorSize, sector: u64, bytes: &[u8]) -> bool {
        let Some(area) = self.areas.get_mut(&key(place)) else { return false };
        let first = sector * u64::from(size.bytes()) / 512;
        let mut all = true;
        for (i, chunk) in bytes.chunks(UNIT).enumerate() {
            let unit = first + i as u64;
            if (unit + 1) * 512 > area.bytes {
                all = false;
                break;
            }
            let mut data = area.units.get(&unit).copied().unwrap_or([0; UNIT]);
            data[..chunk.len()].copy_from_slice(chunk);
            if data == [0; UNIT] {
                area.units.remove(&unit);
            } else {
                area.units.insert(unit, data);
            }
        }
        all
    }

    /// One sector's bytes; zeros outside the area.
    #[must_use]
    pub fn sector(&self, place: Place, size: SectorSize, sector: u64) -> Vec<u8> {
        let mut bytes = vec![0; size.slice_len()];
        if let Some(area) = self.areas.get(&key(place)) {
            let first = sector * u64::from(size.bytes()) / 512;
            for (i, chunk) in bytes.chunks_mut(UNIT).enumerate() {
                if let Some(unit) = area.units.get(&(first + i as u64)) {
                    chunk.copy_from_slice(unit);
                }
            }
        }
        bytes
    }

    /// Changes one sector through a function.
    pub fn edit(&mut self, place: Place, size: SectorSize, sector: u64, change: impl FnOnce(&mut [u8])) {
        let mut bytes = self.sector(place, size, sector);
        change(&mut bytes);
        self.write(place, size, sector, &bytes);
    }

    /// Whether there is such an area, and `count` sectors from `first` on are inside it.
    #[must_use]
    pub fn fits(&self, place: Place, size: SectorSize, first: u64, count: u64) -> bool {
        let bytes = first.checked_add(count).and_then(|end| end.checked_mul(u64::from(size.bytes())));
        self.areas.get(&key(place)).zip(bytes).is_some_and(|(area, bytes)| bytes <= area.bytes)
    }

    /// A read of `count` sectors: `None` when it reaches beyond the end or there is no such area.
    #[must_use]
    pub fn view(&self, place: Place, size: SectorSize, first: u64, count: u64) -> Option<SparseView> {
        let area = self.areas.get(&key(place)).filter(|_| self.fits(place, size, first, count))?;
        let end = first + count;
        let per = u64::from(size.bytes()) / 512;
        let mut sectors: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for (unit, data) in area.units.range(first * per..end * per) {
            let sector = sectors.entry(unit / per).or_insert_with(|| vec![0; size.slice_len()]);
            let at = usize::try_from(unit % per).unwrap_or(0) * UNIT;
            sector[at..at + UNIT].copy_from_slice(data);
        }
        Some(SparseView { first, count, size, sectors })
    }
}

/// What a read returned: the sectors that hold something, zeros elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SparseView {
    first: u64,
    count: u64,
    size: SectorSize,
    sectors: BTreeMap<u64, Vec<u8>>,
}

impl Sectors for SparseView {
    fn sector(&self, index: u64) -> Option<&[u8]> {
        if index < self.first || index >= self.first + self.count {
            return None;
        }
        Some(self.sectors.get(&index).map_or(&ZEROS[..self.size.slice_len()], Vec::as_slice))
    }

    fn next_in_use(&self, from: u64) -> Option<u64> {
        self.sectors.range(from..).next().map(|(index, _)| *index)
    }
}
