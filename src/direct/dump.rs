//! `dump`: a table of the leases on storage (command-line.md 8.5).

use super::report::failed;
use super::scan::{Area, find_geometry};
use super::storage::Storage;
use crate::cli::command::DumpDetail;
use crate::json::Text;
use crate::output::{FAILURE, SUCCESS, note, print};
use crate::subject;
use sanlock_blockio::Access;
use sanlock_lease::geometry::Geometry;
use sanlock_lease::limits::SECTOR_BYTES_MAX;
use sanlock_lease::name::Name;
use sanlock_lease::record::{
    Bitmap, DELTA_MAGIC, HostBlock, RawLeader, RequestRecord, RindexEntry, RindexHeader,
};
use sanlock_lease::text::DiskSpec;
use sanlock_lease::text::strict::DumpRange;

/// The offset that areas are expected at a multiple of.
const OFFSET_UNIT: u64 = 1 << 20;
/// Places behind the end of the table that are looked at for further leases.
const AHEAD_MAX: u64 = 64;
/// Width of the lockspace column.
const LOCKSPACE_WIDTH: usize = 36;
/// Width of the resource column.
const RESOURCE_WIDTH: usize = 48;
/// Blanks before a shared holder, so that it stands under owner and generation.
const SHARED_INDENT: usize = 106;
/// Sectors before the first host's in a resource area: leader and request.
pub(super) const FIRST_HOST_SECTOR: usize = 2;

const ACTION: &str = "dump";

pub(super) fn dump(range: Option<&DumpRange>, detail: DumpDetail, geometry: Option<Geometry>) -> u8 {
    let Some(range) = range else {
        note(ACTION, "no path given, use dump PATH[:OFFSET[:SIZE]]");
        return FAILURE;
    };
    if range.disk.offset % OFFSET_UNIT != 0 {
        print(format!("WARNING: dump offset should be a multiple of {OFFSET_UNIT} bytes.\n"));
    }
    let mut storage = match Storage::open(&range.disk.path, Access::ReadOnly) {
        Ok(storage) => storage,
        Err(error) => {
            print([b"Device ", range.disk.path.as_slice(), b" not found.\n"].concat());
            return failed(ACTION, &subject::place(&range.disk), &error);
        }
    };
    let geometry = match geometry.map_or_else(
        || find_geometry(&mut storage, range.disk.offset, range.size),
        |geometry| Ok(Some(geometry)),
    ) {
        Ok(Some(geometry)) => geometry,
        Ok(None) => {
            print("Cannot find sector_size and align_size, set with -A and -Z.\n");
            note(
                ACTION,
                &format!(
                    "{}: no lease begins there or after it: check path and offset",
                    subject::place(&range.disk)
                ),
            );
            return FAILURE;
        }
        Err(error) => {
            print("Cannot find sector_size and align_size, set with -A and -Z.\n");
            return failed(ACTION, &subject::place(&range.disk), &error);
        }
    };
    print(heading(detail));
    dump_areas(&mut storage, range, detail, geometry)
}

fn heading(detail: DumpDetail) -> String {
    let request = if detail >= DumpDetail::Requests { "/req/mode" } else { "" };
    format!(
        "{:>8} {:>36} {:>48} {:>10} {:>4} {:>4} lver{request}\n",
        "offset", "lockspace", "resource", "timestamp", "own", "gen"
    )
}

/// Prints area after area. Storage that ends is no error, storage that cannot be read is one: the original hides both.
fn dump_areas(storage: &mut Storage, range: &DumpRange, detail: DumpDetail, geometry: Geometry) -> u8 {
    let align = geometry.align().bytes();
    let Ok(area_len) = usize::try_from(align) else { return FAILURE };
    let size = range.size.and_then(|size| whole_sectors(size, geometry));
    let mut distance = 0u64;
    while size.is_none_or(|size| distance < size) {
        let Some(offset) = range.disk.offset.checked_add(distance) else { break };
        match storage.read(offset, area_len) {
            Ok(area) => match Area::of(&area) {
                Some(kind) => print(rows(kind, &area, offset, detail, geometry)),
                None if size.is_none() => {
                    tell_what_follows(storage, &range.disk, offset);
                    break;
                }
                None => {}
            },
            Err(error) if error.is_beyond_end() => {
                tell_cut_short(storage, &range.disk, offset, align);
                break;
            }
            Err(error) => {
                return failed(ACTION, &subject::place(&range.disk), &error);
            }
        }
        distance = distance.saturating_add(align);
    }
    SUCCESS
}

/// Says so where the table ends, as the original's does, though leases follow: behind one that was cleared, or is damaged.
pub(super) fn tell_what_follows(storage: &mut Storage, disk: &DiskSpec, offset: u64) {
    for step in 1..AHEAD_MAX {
        let next = offset.saturating_add(step * OFFSET_UNIT);
        // Where the storage ends, or cannot be read, nothing is known to follow.
        let Ok(sector) = storage.read(next, SECTOR_BYTES_MAX) else { return };
        if Area::of(&sector).is_some() {
            let path = Text::from(disk.path.as_slice()).plain();
            let there = subject::place_argument(&DiskSpec { path: disk.path.clone(), offset: next });
            let whole = subject::path_argument(&disk.path);
            return note(
                ACTION,
                &format!(
                    "{path}: the table ends at offset {offset}, where no lease begins, and others follow: 'sanlock direct dump {there}' shows \
                     them, 'sanlock fsck {whole}' all"
                ),
            );
        }
    }
}

/// Says so where the storage ends within an area that holds something: the table ends there, as the original's does.
pub(super) fn tell_cut_short(storage: &mut Storage, disk: &DiskSpec, offset: u64, align: u64) {
    let left = storage.disk().size().saturating_sub(offset);
    let Ok(head) = storage.read(offset, SECTOR_BYTES_MAX) else { return };
    if left < align && Area::of(&head).is_some() {
        let path = subject::place(&DiskSpec { path: disk.path.clone(), offset });
        note(
            ACTION,
            &format!(
                "{path}: the area at {offset} ends after {left} of {align} bytes, and is not shown; see 'sanlock fsck'"
            ),
        );
    }
}

/// What a size given counts as (observed): whole sectors, and less than one as none given.
pub(super) fn whole_sectors(size: u64, geometry: Geometry) -> Option<u64> {
    let sector = u64::from(geometry.sector().bytes());
    Some(size - size % sector).filter(|&size| size > 0)
}

fn rows(kind: Area, area: &[u8], offset: u64, detail: DumpDetail, geometry: Geometry) -> Vec<u8> {
    let mut table = Table { out: Vec::new(), detail };
    match kind {
        Area::Lockspace => table.lockspace(area, offset, geometry),
        Area::Resource => table.resource(area, offset, geometry),
        Area::Rindex => table.rindex(area, offset, geometry),
    }
    table.out
}

struct Table {
    out: Vec<u8>,
    detail: DumpDetail,
}

impl Table {
    /// Appends `text`, right-aligned like C's `%*s`: by bytes, never cut.
    fn right_aligned(&mut self, text: &[u8], width: usize) {
        self.out.resize(self.out.len() + width.saturating_sub(text.len()), b' ');
        self.out.extend_from_slice(text);
    }

    fn text(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    /// The columns that host id leases and resources share.
    fn leader(&mut self, leader: &RawLeader, offset: u64) {
        self.text(&format!("{offset:08} "));
        self.right_aligned(Name::from_field(&leader.space_name).as_bytes(), LOCKSPACE_WIDTH);
        self.text(" ");
        self.right_aligned(Name::from_field(&leader.resource_name).as_bytes(), RESOURCE_WIDTH);
        self.text(&format!(
            " {:010} {:04} {:04}",
            leader.timestamp.get(),
            leader.owner_id.get(),
            leader.owner_generation.get()
        ));
    }

    /// A row for each host id that was ever used.
    fn lockspace(&mut self, area: &[u8], offset: u64, geometry: Geometry) {
        let sectors =
            area.chunks_exact(geometry.sector().slice_len()).take(usize::from(geometry.max_hosts()));
        let mut place = offset;
        for sector in sectors {
            let leader = RawLeader::from_sector(sector);
            if leader.magic.get() == DELTA_MAGIC && leader.owner_id.get() != 0 {
                self.leader(&leader, place);
                if self.detail >= DumpDetail::Requests {
                    for host in Bitmap::from_sector(sector).hosts() {
                        self.text(&format!(" {}", host.get()));
                    }
                }
                self.text("\n");
            }
            place += u64::from(geometry.sector().bytes());
        }
    }

    fn resource(&mut self, area: &[u8], offset: u64, geometry: Geometry) {
        let mut sectors = area.chunks_exact(geometry.sector().slice_len());
        let leader = RawLeader::from_sector(sectors.next().unwrap_or_default());
        let request = RequestRecord::from_sector(sectors.next().unwrap_or_default());
        self.leader(&leader, offset);
        self.text(&format!(" {}", leader.lver));
        if self.detail >= DumpDetail::Requests {
            self.text(&format!("/{}/{}", request.lver, request.force_mode));
        }
        self.text("\n");
        // Never more hosts than the area holds, whatever the record says.
        let hosts = leader.num_hosts.get().min(u64::from(geometry.max_hosts()));
        let blocks = area.chunks_exact(geometry.sector().slice_len()).skip(FIRST_HOST_SECTOR);
        for (slot, sector) in (0..hosts).zip(blocks) {
            self.host_block(slot, &HostBlock::from_sector(sector));
        }
    }

    fn host_block(&mut self, slot: u64, block: &HostBlock) {
        let dblock = &block.dblock;
        if self.detail >= DumpDetail::Ballots && !dblock.is_unused() {
            self.text(&format!(
                "dblock[{slot:04}] mbal {} bal {} inp {} inp2 {} inp3 {} lver {} sum {:x}\n",
                dblock.mbal,
                dblock.bal,
                dblock.inp,
                dblock.inp2,
                dblock.inp3,
                dblock.lver,
                dblock.checksum.get()
            ));
        }
        if block.mode.is_shared() {
            self.right_aligned(b"", SHARED_INDENT);
            self.text(&format!("{:04} {:04} SH\n", slot + 1, block.mode.generation.get()));
        }
    }

    fn rindex(&mut self, area: &[u8], offset: u64, geometry: Geometry) {
        let header = RindexHeader::from_sector(area);
        let name = Name::from_field(&header.lockspace_name);
        self.text(&format!("{offset:08} "));
        self.right_aligned(name.as_bytes(), LOCKSPACE_WIDTH);
        self.text(&format!(
            " rindex_header {:#x} {} {} {}\n",
            header.flags.get(),
            header.sector_size,
            header.max_resources,
            header.rx_offset
        ));
        if self.detail < DumpDetail::Requests {
            return;
        }
        let entries =
            area.get(geometry.sector().slice_len()..).unwrap_or_default().chunks_exact(RindexEntry::BYTES);
        let mut place = offset + u64::from(geometry.sector().bytes());
        for entry in entries.map(RindexEntry::from_bytes) {
            if !entry.is_free() {
                self.text(&format!("{place:08} "));
                self.right_aligned(name.as_bytes(), LOCKSPACE_WIDTH);
                self.text(" rentry ");
                self.out.extend_from_slice(Name::from_field(&entry.name).as_bytes());
                self.text(&format!(" {}\n", entry.res_offset));
            }
            place += RindexEntry::BYTES as u64;
        }
    }
}
