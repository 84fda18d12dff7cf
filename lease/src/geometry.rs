//! Sizes and positions (disk-format.md 2): only legal combinations can be constructed.

use crate::limits::{HOSTS_MAX, LVB_SECTOR};
use std::fmt;

/// Size of a lease sector in bytes; may differ from the device's block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SectorSize {
    /// 512 bytes.
    B512,
    /// 4096 bytes.
    B4096,
}

impl SectorSize {
    /// The sector size of this many bytes.
    #[must_use]
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        match bytes {
            512 => Some(Self::B512),
            4096 => Some(Self::B4096),
            _ => None,
        }
    }

    /// In bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        match self {
            Self::B512 => 512,
            Self::B4096 => 4096,
        }
    }

    /// In bytes, as a slice length.
    #[must_use]
    pub fn slice_len(self) -> usize {
        match self {
            Self::B512 => 512,
            Self::B4096 => 4096,
        }
    }
}

/// Size of an area: one lockspace, one resource lease, or one half of a resource index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AlignSize {
    /// 1 MiB.
    M1,
    /// 2 MiB.
    M2,
    /// 4 MiB.
    M4,
    /// 8 MiB.
    M8,
}

/// The align bits in the `flags` of a leader record and of the API structures (disk-format.md 2.5).
pub const ALIGN_FLAGS: u32 = 0xf0;

impl AlignSize {
    /// All sizes, smallest first.
    pub const ALL: [Self; 4] = [Self::M1, Self::M2, Self::M4, Self::M8];

    /// The align size of this many bytes.
    #[must_use]
    pub fn from_bytes(bytes: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.bytes() == bytes)
    }

    /// In bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.mib() << 20
    }

    /// In MiB.
    #[must_use]
    pub fn mib(self) -> u64 {
        match self {
            Self::M1 => 1,
            Self::M2 => 2,
            Self::M4 => 4,
            Self::M8 => 8,
        }
    }

    /// Its bit in the leader's `flags`.
    #[must_use]
    pub fn flag(self) -> u32 {
        match self {
            Self::M1 => 0x10,
            Self::M2 => 0x20,
            Self::M4 => 0x40,
            Self::M8 => 0x80,
        }
    }

    /// The lowest align bit set in `flags`.
    #[must_use]
    pub fn from_flags(flags: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|a| flags & a.flag() != 0)
    }
}

/// A legal pair of sector and align size, from which everything else follows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Geometry {
    sector: SectorSize,
    align: AlignSize,
}

/// A pair that disk-format.md 2.1 does not list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "sector size {sector} with align size {align} is not one of 512/1M, 4096/1M, 4096/2M, 4096/4M, 4096/8M"
)]
#[derive(Hash)]
pub struct GeometryError {
    /// The sector size found, in bytes.
    pub sector: u32,
    /// The align size found, in bytes.
    pub align: u64,
}

impl Geometry {
    /// 512-byte sectors, 1 MiB areas: the default for files.
    pub const B512_M1: Self = Self { sector: SectorSize::B512, align: AlignSize::M1 };
    /// 4096-byte sectors, 8 MiB areas: the default for devices with 4096-byte blocks.
    pub const B4096_M8: Self = Self { sector: SectorSize::B4096, align: AlignSize::M8 };
    /// All legal pairs.
    pub const ALL: [Self; 5] = [
        Self::B512_M1,
        Self { sector: SectorSize::B4096, align: AlignSize::M1 },
        Self { sector: SectorSize::B4096, align: AlignSize::M2 },
        Self { sector: SectorSize::B4096, align: AlignSize::M4 },
        Self::B4096_M8,
    ];

    /// The pair, if it is legal.
    ///
    /// # Errors
    /// The pair is not in the table of disk-format.md 2.1.
    pub fn new(sector: SectorSize, align: AlignSize) -> Result<Self, GeometryError> {
        let pair = Self { sector, align };
        if Self::ALL.contains(&pair) {
            Ok(pair)
        } else {
            Err(GeometryError { sector: sector.bytes(), align: align.bytes() })
        }
    }

    /// The default pair of a sector size (disk-format.md 2.3): 1 MiB for 512, 8 MiB for 4096.
    #[must_use]
    pub fn default_for(sector: SectorSize) -> Self {
        match sector {
            SectorSize::B512 => Self::B512_M1,
            SectorSize::B4096 => Self::B4096_M8,
        }
    }

    /// The sector size.
    #[must_use]
    pub fn sector(self) -> SectorSize {
        self.sector
    }

    /// The align size.
    #[must_use]
    pub fn align(self) -> AlignSize {
        self.align
    }

    /// Largest host id, and the stride of ballot numbers.
    #[must_use]
    pub fn max_hosts(self) -> u16 {
        match (self.sector, self.align) {
            (SectorSize::B512, _) | (SectorSize::B4096, AlignSize::M8) => HOSTS_MAX,
            (SectorSize::B4096, AlignSize::M1) => 250,
            (SectorSize::B4096, AlignSize::M2) => 500,
            (SectorSize::B4096, AlignSize::M4) => 1000,
        }
    }

    /// Sectors of one area.
    #[must_use]
    pub fn sectors(self) -> u64 {
        self.align.bytes() / u64::from(self.sector.bytes())
    }

    /// Largest number of resource index entries (disk-format.md 2.1).
    #[must_use]
    pub fn rindex_entries_max(self) -> u32 {
        match self.align {
            AlignSize::M1 => 16_000,
            AlignSize::M2 => 32_000,
            AlignSize::M4 => 64_000,
            AlignSize::M8 => 128_000,
        }
    }

    /// Whether the lock value block's sector lies inside the lease's own area (rule R8). Where it does not, writing it would
    /// destroy a neighbouring lease.
    #[must_use]
    pub fn lvb_fits(self) -> bool {
        LVB_SECTOR < self.sectors()
    }

    /// Byte offset of a sector from the start of its area.
    #[must_use]
    pub fn offset_of(self, sector: u64) -> u64 {
        sector * u64::from(self.sector.bytes())
    }
}

impl fmt::Debug for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}M", self.sector.bytes(), self.align.mib())
    }
}

/// A host's number in a lockspace: 1 up to 2000, and up to the geometry's `max_hosts` where it is used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostId(u16);

impl HostId {
    /// The host id of this number, if it is between 1 and 2000.
    #[must_use]
    pub fn new(id: u64) -> Option<Self> {
        let id = u16::try_from(id).ok()?;
        (1..=HOSTS_MAX).contains(&id).then_some(Self(id))
    }

    /// As the 64-bit number of the records.
    #[must_use]
    pub fn get(self) -> u64 {
        u64::from(self.0)
    }

    /// Zero-based position in a table of hosts.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0) - 1
    }

    /// The host of a zero-based position.
    #[must_use]
    pub fn from_index(index: usize) -> Option<Self> {
        Self::new(u64::try_from(index).ok()? + 1)
    }

    /// Sector of its delta lease in a lockspace area (disk-format.md 6.1).
    #[must_use]
    pub fn delta_sector(self) -> u64 {
        self.get() - 1
    }

    /// Its sector in a resource area (disk-format.md 7.1).
    #[must_use]
    pub fn block_sector(self) -> u64 {
        self.get() + 1
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {}", self.0)
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_legal_pairs() {
        let rows: Vec<_> = Geometry::ALL
            .into_iter()
            .map(|g| {
                (g.sector().bytes(), g.align().mib(), g.max_hosts(), g.sectors(), g.rindex_entries_max())
            })
            .collect();
        assert_eq!(
            rows,
            [
                (512, 1, 2000, 2048, 16_000),
                (4096, 1, 250, 256, 16_000),
                (4096, 2, 500, 512, 32_000),
                (4096, 4, 1000, 1024, 64_000),
                (4096, 8, 2000, 2048, 128_000),
            ]
        );
        for align in [AlignSize::M2, AlignSize::M4, AlignSize::M8] {
            assert!(Geometry::new(SectorSize::B512, align).is_err());
        }
    }

    #[test]
    fn positions_are_counted_in_sectors_of_the_geometry() {
        assert_eq!([0, 1, 2001].map(|sector| Geometry::B512_M1.offset_of(sector)), [0, 512, 1_024_512]);
        assert_eq!([0, 1, 2001].map(|sector| Geometry::B4096_M8.offset_of(sector)), [0, 4096, 8_196_096]);
    }

    #[test]
    fn sizes_and_hosts_are_shown_in_failures() {
        assert_eq!(format!("{:?} {:?}", Geometry::B512_M1, Geometry::B4096_M8), "512/1M 4096/8M");
        assert_eq!(format!("{:?} {}", HostId::new(7).unwrap(), HostId::new(7).unwrap()), "host 7 7");
    }

    #[test]
    fn every_host_block_lies_inside_the_area() {
        for g in Geometry::ALL {
            let last = HostId::new(u64::from(g.max_hosts())).unwrap();
            assert!(last.block_sector() < g.sectors());
            assert!(last.delta_sector() < g.sectors());
        }
    }

    #[test]
    fn the_lock_value_block_fits_only_where_2003_sectors_do() {
        let fits: Vec<_> = Geometry::ALL.into_iter().map(Geometry::lvb_fits).collect();
        assert_eq!(fits, [true, false, false, false, true]);
    }

    #[test]
    fn host_ids_are_1_to_2000() {
        assert!(HostId::new(0).is_none());
        assert!(HostId::new(2001).is_none());
        assert!(HostId::new(u64::MAX).is_none());
        assert_eq!(HostId::new(2000).unwrap().block_sector(), 2001);
    }
}
