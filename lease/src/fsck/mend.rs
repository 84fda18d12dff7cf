//! Carrying out fixes on an area in memory: which sectors change, from what to what.

use super::lockspace::{free_record, is_majority, template};
use super::resource::REQUEST_SECTOR;
use super::{Fix, Kind};
use crate::geometry::{Geometry, HostId};
use crate::limits::SECTOR_BYTES_MAX;
use crate::record::{Dblock, HostBlock, ModeBlock, RawLeader, RequestRecord};
use crate::rindex::IndexView;

/// A sector that is to be rewritten.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mended {
    /// Bytes from the start of the area.
    pub at: u64,
    /// What stands there.
    pub before: Vec<u8>,
    /// What shall stand there.
    pub after: Vec<u8>,
}

/// The sectors that these fixes of one area change. `base`: byte offset of the area on its disk. A fix that does not go with the area
/// changes nothing.
#[must_use]
pub fn mend(area: &[u8], base: u64, kind: Kind, geometry: Geometry, fixes: &[Fix]) -> Vec<Mended> {
    let mut after = area.to_vec();
    for fix in fixes {
        match kind {
            Kind::Lockspace => mend_host(&mut after, geometry, *fix),
            Kind::Resource => mend_resource(&mut after, geometry, *fix),
            Kind::Index => mend_index(&mut after, base, *fix),
        }
    }
    let size = geometry.sector().slice_len();
    let pairs = area.chunks_exact(size).zip(after.chunks_exact(size)).enumerate();
    pairs
        .filter(|(_, (before, after))| before != after)
        .map(|(n, (before, after))| Mended {
            at: geometry.offset_of(n as u64),
            before: before.to_vec(),
            after: after.to_vec(),
        })
        .collect()
}

fn sector_mut(area: &mut [u8], geometry: Geometry, sector: u64) -> Option<&mut [u8]> {
    let size = geometry.sector().slice_len();
    debug_assert!(size <= SECTOR_BYTES_MAX, "a sector");
    let from = usize::try_from(geometry.offset_of(sector)).ok()?;
    area.get_mut(from..from.checked_add(size)?)
}

fn mend_host(area: &mut [u8], geometry: Geometry, fix: Fix) {
    let Fix::FreeHost { host, generation } = fix else { return };
    let Some((_, record, intact)) = template(area, geometry) else { return };
    if !is_majority(intact, geometry) {
        return;
    }
    if let Some(sector) = sector_mut(area, geometry, host.delta_sector()) {
        free_record(&record, host, generation).encode(None, sector);
    }
}

fn mend_resource(area: &mut [u8], geometry: Geometry, fix: Fix) {
    match fix {
        Fix::LeaderNumHosts => {
            leader(area, |record| record.num_hosts = u64::from(geometry.max_hosts()).into())
        }
        Fix::LeaderMaxHosts => {
            leader(area, |record| record.max_hosts = u64::from(geometry.max_hosts()).into())
        }
        Fix::LeaderFree => leader(area, freed),
        // Nobody's: the disks of one resource have different owners of before, and of one version there is one.
        Fix::LeaderForward { lver } => leader(area, |record| {
            record.lver = lver.into();
            freed(record);
        }),
        Fix::Request => {
            if let Some(sector) = sector_mut(area, geometry, REQUEST_SECTOR) {
                RequestRecord::none().encode(sector);
            }
        }
        Fix::Ballot(host) => block(area, geometry, host, |block| block.dblock = Dblock::zeroed()),
        Fix::Mode(host) => block(area, geometry, host, |block| block.mode = ModeBlock::zeroed()),
        Fix::FreeHost { .. } | Fix::Enter { .. } | Fix::Remove { .. } => {}
    }
}

fn freed(record: &mut RawLeader) {
    record.owner_id = 0.into();
    record.owner_generation = 0.into();
    record.timestamp = 0.into();
}

/// Changes a leader whose checksum is right.
fn leader(area: &mut [u8], change: impl FnOnce(&mut RawLeader)) {
    let mut record = RawLeader::from_sector(area);
    if record.computed_checksum() != record.checksum.get() || area.len() < size_of::<RawLeader>() {
        return;
    }
    change(&mut record);
    record.seal();
    record.overlay(area);
}

fn block(area: &mut [u8], geometry: Geometry, host: HostId, change: impl FnOnce(&mut HostBlock)) {
    if let Some(sector) = sector_mut(area, geometry, host.block_sector()) {
        let mut block = HostBlock::from_sector(sector);
        change(&mut block);
        block.encode(sector);
    }
}

fn mend_index(area: &mut Vec<u8>, base: u64, fix: Fix) {
    let Ok(mut view) = IndexView::read(area, base) else { return };
    match fix {
        Fix::Enter { slot, name } => view.set(slot, name),
        Fix::Remove { slot } => view.clear(slot),
        _ => return,
    }
    area.clear();
    area.extend_from_slice(view.bytes());
}
