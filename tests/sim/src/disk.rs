//! The shared disks.
//!
//! # Fault model
//!
//! * A sector is written whole or not at all; nothing is ever lost or changed after it landed.
//! * A read returns, for every sector, some value that was on the disk between its submission and its completion; the sectors
//!   of one read are looked at at up to three different moments, so a large read is no snapshot.
//! * An operation takes from a fraction of a millisecond up to its limit, or longer: then its submitter is told of the timeout,
//!   and the write lands at any later time (its completion is seen then, or never), or never.
//! * An operation may fail with an error, in time or after its limit. With an error that leaves doubt (`lease/src/doubt.rs`) a write has
//!   landed before that is reported, lands within 8T + F after that, by its host's clock, or never lands. What is refused does not land; of a
//!   short transfer the sector has landed before, or never does.
//! * A host may lose its path: operations hang until the path is back, or fail at once, or wait behind others until their limit and are never begun.
//! * When a host is reset, each of its writes in flight lands at that moment or never.
//!
//! The reference peers ([`crate::reference`]) are granted more, because they rely on it: none of *their* writes lands after it
//! was reported as failed.

use crate::table::Table;
use sanlock_lease::geometry::{Geometry, HostId, SectorSize};
use sanlock_lease::limits::SECTOR_BYTES_MAX;
use sanlock_lease::machine::{Content, Sectors};
use sanlock_lease::record::{HostBlock, ModeBlock};
use std::rc::Rc;

/// An area of a disk. The areas of all disks are kept together: what makes them different disks is that a host can lose its
/// way to one of them alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Area {
    /// A lockspace, by number, which is also the number of its disk.
    Lockspace(u8),
    /// A resource, by number, and one of the disks it lies on, from 0; see [`crate::layout::leg_disk`].
    Resource(u8, u8),
}

impl Area {
    /// The lockspace it belongs to.
    #[must_use]
    pub fn lockspace(self) -> u8 {
        match self {
            Self::Lockspace(number) => number,
            Self::Resource(number, _) => crate::layout::disk_of(number),
        }
    }

    /// Its number among all areas.
    fn number(self) -> usize {
        let each = 1 + usize::from(crate::layout::DISKS_MAX);
        match self {
            Self::Lockspace(number) => usize::from(number) * each,
            Self::Resource(number, leg) => usize::from(number) * each + 1 + usize::from(leg),
        }
    }

    /// The disk it is on.
    #[must_use]
    pub fn disk(self) -> u8 {
        match self {
            Self::Lockspace(disk) => disk,
            Self::Resource(number, leg) => crate::layout::leg_disk(number, leg),
        }
    }
}

/// The sectors of an area that were ever written.
pub(crate) type Written = Table<u64, Rc<[u8]>>;

const ZEROS: [u8; SECTOR_BYTES_MAX] = [0; SECTOR_BYTES_MAX];

/// All areas; sectors never written are zero and cost nothing.
#[derive(Clone, Debug)]
pub struct SimDisk {
    geometry: Geometry,
    legs: u8,
    /// By number ([`Area::number`]); nothing was ever written into those that have none.
    areas: Vec<Option<Written>>,
}

impl SimDisk {
    /// Disks of zeros, with resources on so many of them each.
    #[must_use]
    pub fn new(geometry: Geometry, legs: u8) -> Self {
        Self { geometry, legs, areas: Vec::new() }
    }

    /// Disks that each resource lies on.
    #[must_use]
    pub fn legs(&self) -> u8 {
        self.legs
    }

    /// How many of them are a majority.
    #[must_use]
    pub fn majority(&self) -> u32 {
        u32::from(self.legs) / 2 + 1
    }

    /// The sectors of an area that were ever written.
    pub(crate) fn area(&self, area: Area) -> Option<&Written> {
        self.areas.get(area.number())?.as_ref()
    }

    fn area_mut(&mut self, area: Area) -> &mut Written {
        let number = area.number();
        if number >= self.areas.len() {
            self.areas.resize(number + 1, None);
        }
        self.areas[number].get_or_insert_default()
    }

    /// Puts a whole area back as it once was.
    pub(crate) fn restore(&mut self, area: Area, sectors: Written) {
        *self.area_mut(area) = sectors;
    }

    /// The sizes of its areas.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Its sector size.
    #[must_use]
    pub fn sector_size(&self) -> SectorSize {
        self.geometry.sector()
    }

    /// Puts a sector on the disk.
    pub fn land(&mut self, area: Area, sector: u64, content: &Content) {
        let size = self.sector_size().slice_len();
        let sectors = self.area_mut(area);
        // What nobody has read or copied is written over where it is.
        if let Some(bytes) = sectors.get_mut(&sector).and_then(Rc::get_mut) {
            return content.encode(bytes);
        }
        let mut bytes: Rc<[u8]> = Rc::from(&ZEROS[..size]);
        if let Some(fresh) = Rc::get_mut(&mut bytes) {
            content.encode(fresh);
        }
        sectors.insert(sector, bytes);
    }

    /// Puts bytes on the disk, as many as a sector has.
    pub(crate) fn land_bytes(&mut self, area: Area, sector: u64, bytes: &[u8]) {
        let sectors = self.area_mut(area);
        if bytes.iter().all(|byte| *byte == 0) {
            sectors.remove(&sector);
        } else {
            sectors.insert(sector, bytes.into());
        }
    }

    /// One sector.
    #[must_use]
    pub fn sector(&self, area: Area, sector: u64) -> &[u8] {
        let bytes = self.area(area).and_then(|a| a.get(&sector));
        bytes.map_or(&ZEROS[..self.sector_size().slice_len()], |b| b)
    }

    /// Adds the sectors in use of a range to a read's result.
    pub fn sample(&self, area: Area, first: u64, count: u64, into: &mut SimView) {
        if let Some(sectors) = self.area(area) {
            for (index, bytes) in sectors.from(first).take_while(|(index, _)| **index < first + count) {
                into.sectors.insert(*index, Rc::clone(bytes));
            }
        }
    }

    /// The end of what is in use of a range: all sectors from there on are zero.
    #[must_use]
    pub fn used_until(&self, area: Area, first: u64, count: u64) -> u64 {
        let last = self.area(area).and_then(|a| a.iter().rev().find(|(i, _)| **i < first + count));
        last.map_or(first, |(index, _)| first.max(index + 1))
    }

    /// A read of a range at this very moment.
    #[must_use]
    pub fn view(&self, area: Area, first: u64, count: u64) -> SimView {
        let mut view = SimView::new(self.sector_size(), first, count);
        self.sample(area, first, count, &mut view);
        view
    }
}

/// The result of a read.
#[derive(Clone, Debug)]
pub struct SimView {
    first: u64,
    count: u64,
    size: SectorSize,
    sectors: Written,
}

impl SimView {
    /// Sabotage: the same without the mode blocks of others.
    pub(crate) fn without_modes(&mut self, own: HostId) {
        let others: Vec<u64> =
            self.sectors.keys().copied().filter(|s| *s > 1 && *s != own.block_sector()).collect();
        for sector in others {
            let Some(bytes) = self.sectors.get(&sector) else { continue };
            let block = HostBlock { mode: ModeBlock::zeroed(), ..HostBlock::from_sector(bytes) };
            self.replace(sector, &Content::Block(block));
        }
    }

    /// Sabotage: another content of a sector that was read.
    pub(crate) fn replace(&mut self, sector: u64, content: &Content) {
        if self.sectors.contains_key(&sector) {
            let mut bytes = vec![0; self.size.slice_len()];
            content.encode(&mut bytes);
            self.sectors.insert(sector, bytes.into());
        }
    }

    /// A read of nothing but zeros.
    #[must_use]
    pub fn new(size: SectorSize, first: u64, count: u64) -> Self {
        Self { first, count, size, sectors: Table::new() }
    }

    /// The same for a range, with room for what will be found.
    pub(crate) fn with_room(size: SectorSize, (first, count): (u64, u64), mut room: Written) -> Self {
        room.clear();
        Self { first, count, size, sectors: room }
    }

    /// Forgets what was found.
    pub(crate) fn clear(&mut self) {
        self.sectors.clear();
    }

    /// Forgets what was found, and gives away the room that it took.
    pub(crate) fn take_room(&mut self) -> Written {
        std::mem::take(&mut self.sectors)
    }
}

impl Sectors for SimView {
    fn sector(&self, index: u64) -> Option<&[u8]> {
        if index < self.first || index >= self.first + self.count {
            return None;
        }
        Some(self.sectors.get(&index).map_or(&ZEROS[..self.size.slice_len()], |b| b))
    }

    fn next_in_use(&self, from: u64) -> Option<u64> {
        self.sectors.from(from).next().map(|(index, _)| *index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{DISKS_MAX, GEOMETRY, LOCKSPACES_MAX, RESOURCES_MAX};
    use std::collections::BTreeSet;

    #[test]
    fn every_area_has_a_number_of_its_own() {
        let resources = (0..DISKS_MAX * RESOURCES_MAX)
            .flat_map(|number| (0..DISKS_MAX).map(move |leg| Area::Resource(number, leg)));
        let all: Vec<Area> = (0..LOCKSPACES_MAX).map(Area::Lockspace).chain(resources).collect();
        let numbers: BTreeSet<usize> = all.iter().map(|area| area.number()).collect();
        assert_eq!(numbers.len(), all.len());
    }

    #[test]
    fn what_was_read_or_copied_stays_when_its_sector_is_written_again() {
        let area = Area::Resource(1, 0);
        let mut disk = SimDisk::new(GEOMETRY, 1);
        let value = |byte: u8| Content::Value(vec![byte; 512].into());
        let first = |sector: &[u8]| sector.first().copied();
        disk.land(area, 7, &value(1));
        disk.land(area, 7, &value(2));
        let (view, copy) = (disk.view(area, 0, 10), disk.clone());
        disk.land(area, 7, &value(3));
        assert_eq!(view.sector(7).and_then(first), Some(2));
        assert_eq!(first(copy.sector(area, 7)), Some(2));
        assert_eq!(first(disk.sector(area, 7)), Some(3));
        disk.land(area, 7, &Content::Value([9].into()));
        assert_eq!(disk.sector(area, 7)[..2], [9, 0]);
    }
}
