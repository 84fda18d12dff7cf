//! An index in memory: its header, verified, and the bytes of its area.

use super::{Entry, RindexError};
use crate::geometry::{AlignSize, Geometry, SectorSize};
use crate::name::Name;
use crate::record::{PAXOS_MAGIC, RINDEX_MAGIC, RINDEX_VERSION, RawLeader, RindexEntry, RindexHeader};

/// Entries of an index whose number was not given.
pub const MAX_RESOURCES_DEFAULT: u32 = 4096;

/// The header of a new index.
#[must_use]
pub fn header(lockspace: Name, offset: u64, geometry: Geometry, max_resources: u32) -> RindexHeader {
    let count = if max_resources == 0 { MAX_RESOURCES_DEFAULT } else { max_resources };
    RindexHeader {
        magic: RINDEX_MAGIC.into(),
        version: RINDEX_VERSION.into(),
        // The header's align bits are those of a leader, four places lower.
        flags: (geometry.align().flag() >> 4).into(),
        sector_size: geometry.sector().bytes().into(),
        max_resources: count.min(geometry.rindex_entries_max()).into(),
        unused: 0.into(),
        rx_offset: offset.into(),
        lockspace_name: lockspace.to_field(),
    }
}

/// The places that follow from a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Layout {
    /// Offset of the index.
    base: u64,
    pub(super) geometry: Geometry,
    /// Entries in use for searching.
    pub(super) count: u32,
}

impl Layout {
    /// Of an index that is being formatted.
    ///
    /// # Errors
    /// Its areas would lie beyond what offsets can say.
    pub(super) fn new(base: u64, geometry: Geometry, max_resources: u32) -> Result<Self, RindexError> {
        let most = geometry.rindex_entries_max();
        let count = if max_resources == 0 { most } else { max_resources.min(most) };
        let bytes = geometry.align().bytes() * (2 + u64::from(most));
        // Checked once for the largest index, so that no offset computed from it can overflow.
        base.checked_add(bytes).ok_or(RindexError::Beyond { offset: base })?;
        Ok(Self { base, geometry, count })
    }

    /// Checks a header (disk-format.md 8.3, in its order).
    ///
    /// # Errors
    /// It is not that of a usable index of this lockspace at this place.
    pub(super) fn of(header: &RindexHeader, lockspace: Name, base: u64) -> Result<Self, RindexError> {
        let (magic, version) = (header.magic.get(), header.version.get());
        if magic != RINDEX_MAGIC {
            return Err(RindexError::Magic { found: magic });
        }
        if version >> 16 != RINDEX_VERSION >> 16 {
            return Err(RindexError::Version { found: version });
        }
        let found = Name::from_field(&header.lockspace_name);
        if found != lockspace {
            return Err(RindexError::Lockspace { found, expected: lockspace });
        }
        if header.rx_offset.get() != base {
            return Err(RindexError::Place { found: header.rx_offset.get(), expected: base });
        }
        let (sector, flags) = (header.sector_size.get(), header.flags.get());
        let geometry = SectorSize::from_bytes(sector)
            .zip(AlignSize::from_flags((flags & 0xf) << 4))
            .and_then(|(sector, align)| Geometry::new(sector, align).ok())
            .ok_or(RindexError::Sizes { sector, flags })?;
        Self::new(base, geometry, header.max_resources.get())
    }

    /// Bytes of one area.
    pub(super) fn area_len(&self) -> usize {
        usize::try_from(self.geometry.align().bytes()).unwrap_or(usize::MAX)
    }

    /// Offset of the index.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// Offset of the internal lease.
    pub(super) fn lease(&self) -> u64 {
        self.base + self.geometry.align().bytes()
    }

    /// Offset of the resource area of an entry.
    pub(super) fn area(&self, slot: u32) -> u64 {
        self.base + self.geometry.align().bytes() * (2 + u64::from(slot))
    }

    /// The entry of a resource area.
    ///
    /// # Errors
    /// No area of this index begins there.
    pub(super) fn slot(&self, offset: u64) -> Result<u32, RindexError> {
        let align = self.geometry.align().bytes();
        offset
            .checked_sub(self.area(0))
            .filter(|_| offset % align == 0)
            .filter(|from_first| from_first % align == 0)
            .and_then(|from_first| u32::try_from(from_first / align).ok())
            .filter(|slot| *slot < self.count)
            .ok_or(RindexError::EntryOffset { offset, first: self.area(0), align, count: self.count })
    }

    /// An offset that is only to be a multiple of the align size.
    ///
    /// # Errors
    /// It is not.
    pub(super) fn check_alignment(&self, offset: u64) -> Result<(), RindexError> {
        let align = self.geometry.align().bytes();
        if offset % align == 0 {
            return Ok(());
        }
        Err(RindexError::EntryOffset { offset, first: self.area(0), align, count: self.count })
    }

    /// Where an entry begins in the index area. At most the area's length, which fits memory.
    fn position(&self, slot: u32) -> usize {
        let slot = usize::try_from(slot).unwrap_or(usize::MAX);
        self.geometry.sector().slice_len() + slot.saturating_mul(RindexEntry::BYTES)
    }
}

/// The entries of an index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Index {
    layout: Layout,
    /// The whole index area.
    area: Vec<u8>,
}

impl Index {
    /// Without entries.
    pub(super) fn empty(layout: Layout, header: &RindexHeader) -> Self {
        let mut area = vec![0; layout.area_len()];
        if let Some(sector) = area.get_mut(..layout.geometry.sector().slice_len()) {
            header.encode(sector);
        }
        Self { layout, area }
    }

    /// As read.
    ///
    /// # Errors
    /// Its header is not, or no longer, that of `layout`.
    pub(super) fn read(area: &[u8], layout: Layout, lockspace: Name) -> Result<Self, RindexError> {
        if Layout::of(&RindexHeader::from_sector(area), lockspace, layout.base)? != layout {
            return Err(RindexError::Changed);
        }
        Ok(Self { layout, area: area.to_vec() })
    }

    /// The same header without entries.
    pub(super) fn without_entries(&self) -> Self {
        let mut area = self.area.clone();
        area.get_mut(self.layout.geometry.sector().slice_len()..).unwrap_or_default().fill(0);
        Self { layout: self.layout, area }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.area
    }

    pub(super) fn entry(&self, slot: u32) -> RindexEntry {
        let at = self.layout.position(slot);
        RindexEntry::from_bytes(self.area.get(at..).unwrap_or_default())
    }

    pub(super) fn name(&self, slot: u32) -> Name {
        Name::from_field(&self.entry(slot).name)
    }

    /// The first entry of this name. Entries without a name are found by their offsets only.
    pub(super) fn find(&self, name: Name) -> Option<u32> {
        if name.is_empty() {
            return None;
        }
        (0..self.layout.count).find(|slot| !self.entry(*slot).is_free() && self.name(*slot) == name)
    }

    pub(super) fn slots(&self) -> core::ops::Range<u32> {
        0..self.layout.count
    }

    pub(super) fn first_free(&self) -> Option<u32> {
        (0..self.layout.count).find(|slot| self.entry(*slot).is_free())
    }

    /// Replaces an entry.
    pub(super) fn set(&mut self, slot: u32, name: Name) {
        let entry = RindexEntry {
            res_offset: self.layout.area(slot).into(),
            flags: 0.into(),
            unused: 0.into(),
            name: name.to_field(),
        };
        self.put(slot, entry.to_bytes());
    }

    pub(super) fn clear(&mut self, slot: u32) {
        self.put(slot, [0; RindexEntry::BYTES]);
    }

    fn put(&mut self, slot: u32, bytes: [u8; RindexEntry::BYTES]) {
        let at = self.layout.position(slot);
        if let Some(place) = self.area.get_mut(at..at + RindexEntry::BYTES) {
            place.copy_from_slice(&bytes);
        }
    }

    /// The sector that holds an entry, and its byte offset on the disk.
    pub(super) fn sector_of(&self, slot: u32) -> (u64, Vec<u8>) {
        let size = self.layout.geometry.sector().slice_len();
        let at = self.layout.position(slot) / size * size;
        let bytes = self.area.get(at..at + size).unwrap_or_default().to_vec();
        (self.layout.base + at as u64, bytes)
    }

    /// What a client is told of an entry.
    pub(super) fn shown(&self, slot: u32) -> Entry {
        Entry { name: self.name(slot), offset: self.layout.area(slot) }
    }
}

/// An index as it was read, for those who look at it as a whole: its header is that of a usable index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexView {
    index: Index,
    lockspace: Name,
}

impl IndexView {
    /// An index read at byte `base` of its disk, whatever its lockspace.
    ///
    /// # Errors
    /// Its header is not that of a usable index at this place.
    pub fn read(area: &[u8], base: u64) -> Result<Self, RindexError> {
        let header = RindexHeader::from_sector(area);
        let lockspace = Name::from_field(&header.lockspace_name);
        let layout = Layout::of(&header, lockspace, base)?;
        Ok(Self { index: Index { layout, area: area.to_vec() }, lockspace })
    }

    /// The lockspace of its leases.
    #[must_use]
    pub fn lockspace(&self) -> Name {
        self.lockspace
    }

    /// Its sizes.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.index.layout.geometry
    }

    /// Number of entries.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.index.layout.count
    }

    /// Byte offset of the internal lease on its disk.
    #[must_use]
    pub fn lease_offset(&self) -> u64 {
        self.index.layout.lease()
    }

    /// Byte offset of an entry's area on its disk.
    #[must_use]
    pub fn area_offset(&self, slot: u32) -> u64 {
        self.index.layout.area(slot)
    }

    /// Bytes from the start of the index to an entry.
    #[must_use]
    pub fn entry_position(&self, slot: u32) -> u64 {
        self.index.layout.position(slot) as u64
    }

    /// An entry; a free one beyond the end.
    #[must_use]
    pub fn entry(&self, slot: u32) -> RindexEntry {
        self.index.entry(slot)
    }

    /// Enters the lease of an entry's area under this name.
    pub fn set(&mut self, slot: u32, name: Name) {
        self.index.set(slot, name);
    }

    /// Clears an entry.
    pub fn clear(&mut self, slot: u32) {
        self.index.clear(slot);
    }

    /// The whole index area.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.index.bytes()
    }
}

/// The resource that lies in an area, as its first sector says. Nothing but the magic is looked at: what is no usable lease any
/// more may still be somebody's, and an area without an entry is the next one to be initialised.
pub(super) fn resource_in(sector: &[u8]) -> Option<Name> {
    let leader = RawLeader::from_sector(sector);
    (leader.magic.get() == PAXOS_MAGIC).then(|| Name::from_field(&leader.resource_name))
}
