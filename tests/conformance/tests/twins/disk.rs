//! What is on the disks of a host, without times and ballot numbers.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of an area.
const AREA: usize = 1 << 20;
const SECTOR: usize = 512;
/// Values of a ballot with their checksum.
const BALLOT_LEN: usize = 52;
/// Magic numbers of first sectors (disk-format.md 5, 7.7, 8.1).
const DELTA: u32 = 0x1221_2010;
const PAXOS: u32 = 0x0615_2010;
const CLEARED: u32 = 0x1128_2016;
/// The files of a host.
const FILES: [&str; 3] = ["leases", "more", "large"];
/// Of the sector of a value block in each area (disk-format.md 7.8).
const VALUE: usize = 2002;

/// Names of the leases behind an index, as its rebuild finds them.
pub(crate) fn lease_names(dir: &Path, areas: std::ops::Range<u64>) -> Vec<String> {
    let image = Image::open(&dir.join("leases"));
    let areas = areas.map(|area| Area::at(&image, usize::try_from(area).unwrap_or(usize::MAX)));
    areas.filter(|area| area.magic() == PAXOS).map(|area| area.name(RESOURCE_NAME)).collect()
}

/// Whether an area of this lease has the mark of a shared holder that is none any more: its host id was given up, or used anew, since.
pub(crate) fn has_left_shared(dir: &Path, lockspace: &str, resource: &str) -> bool {
    let images: Vec<Image> = FILES.iter().map(|name| Image::open(&dir.join(name))).collect();
    let firsts = || images.iter().flat_map(|image| (0..image.areas).map(move |area| Area::at(image, area)));
    let record_of = |host_id: usize| {
        firsts()
            .find(|area| area.magic() == DELTA && area.name(SPACE_NAME) == lockspace)
            .map(|area| area.sector(host_id - 1))
    };
    let is_over = |host_id: usize, generation: u64| {
        record_of(host_id).is_none_or(|record| u64_at(&record, 40) > generation || u64_at(&record, 152) == 0)
    };
    firsts()
        .filter(|area| area.magic() == PAXOS)
        .filter(|area| area.name(SPACE_NAME) == lockspace && area.name(RESOURCE_NAME) == resource)
        .any(|area| {
            (1..=HOSTS_LOOKED_AT).any(|host_id| {
                let block = area.sector(host_id + 1);
                block[128] & 1 != 0 && is_over(host_id, u64_at(&block, 136))
            })
        })
}

/// Host ids that the twins have, and some more.
const HOSTS_LOOKED_AT: usize = 16;
/// Where names begin in the first sector of an area.
const SPACE_NAME: usize = 56;
const RESOURCE_NAME: usize = 104;

/// An area, by its first sector.
struct Area<'a> {
    image: &'a Image,
    begin: usize,
    first: Vec<u8>,
}

impl<'a> Area<'a> {
    fn at(image: &'a Image, area: usize) -> Self {
        let begin = area * AREA;
        Self { image, begin, first: image.read(begin, SECTOR) }
    }

    fn magic(&self) -> u32 {
        u32_at(&self.first, 0)
    }

    fn name(&self, at: usize) -> String {
        String::from_utf8_lossy(&self.first[at..at + 48]).trim_end_matches('\0').to_owned()
    }

    /// What counts of a sector.
    fn sector(&self, number: usize) -> Vec<u8> {
        let size = if u32_at(&self.first, 12) == 4096 { 4096 } else { SECTOR };
        self.image.read(self.begin + number * size, SECTOR)
    }
}

/// Area of the index's internal lease.
const INDEX_LEASE: usize = 11;

/// How much is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Where host 1 and its neighbours write.
    Usual,
    /// Everything.
    All,
}

/// The first difference between the files of the two hosts.
pub(crate) fn difference(reference: &Path, ours: &Path, depth: Depth) -> Option<(String, String)> {
    FILES.into_iter().find_map(|name| {
        let (theirs, mine) = (Image::open(&reference.join(name)), Image::open(&ours.join(name)));
        if theirs.areas != mine.areas {
            let areas = |image: &Image| format!("{name}: {} areas", image.areas);
            return Some((areas(&theirs), areas(&mine)));
        }
        (0..theirs.areas).find_map(|area| {
            // Which commands on an index take its internal lease differs (docs/differences.md: an update does), and so do its versions.
            let internal = name == "leases" && area == INDEX_LEASE;
            let found = if internal { None } else { area_difference(&theirs, &mine, area, depth) };
            let (sector, theirs, mine) = found?;
            let place = format!("{name}, area {area}, sector {sector}");
            Some((format!("{place}: {theirs}"), format!("{place}: {mine}")))
        })
    })
}

/// A file.
struct Image {
    file: File,
    areas: usize,
}

impl Image {
    fn open(path: &Path) -> Self {
        let open = || {
            let file = File::open(path)?;
            let areas = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX) / AREA;
            Ok(Self { file, areas })
        };
        open().unwrap_or_else(|error: std::io::Error| panic!("{}: {error}", path.display()))
    }

    fn read(&self, at: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let read = self.file.read_exact_at(&mut bytes, at as u64);
        read.unwrap_or_else(|error| panic!("{length} bytes at {at}: {error}"));
        bytes
    }
}

fn area_difference(
    theirs: &Image,
    mine: &Image,
    area: usize,
    depth: Depth,
) -> Option<(usize, String, String)> {
    let parts = match depth {
        Depth::Usual => [0..4 * 4096, VALUE * SECTOR..(VALUE + 1) * SECTOR],
        Depth::All => [0..AREA / 2, AREA / 2..AREA],
    };
    parts.iter().find_map(|part| {
        let read = |image: &Image| image.read(area * AREA + part.start, part.len());
        let (theirs_there, mine_there) = (read(theirs), read(mine));
        if theirs_there == mine_there {
            return None;
        }
        let first = theirs.read(area * AREA, SECTOR);
        let magic = u32_at(&first, 0);
        let known = matches!(magic, DELTA | PAXOS | CLEARED);
        let size = if known && u32_at(&first, 12) == 4096 { 4096 } else { SECTOR };
        let sectors = theirs_there.chunks(size).zip(mine_there.chunks(size)).enumerate();
        sectors.filter(|(_, (theirs, mine))| theirs != mine).find_map(|(n, (theirs, mine))| {
            let sector = part.start / size + n;
            let (theirs, mut mine) = (known_part(magic, sector, theirs), known_part(magic, sector, mine));
            let block = matches!(magic, PAXOS | CLEARED) && sector > 1 && sector != VALUE;
            if block && theirs[..BALLOT_LEN].iter().all(|byte| *byte == 0) {
                // Forgotten by the original, which clears the block of a dead shared holder, and its own after a refusal (W1, W43).
                mine[..BALLOT_LEN].fill(0);
            }
            (theirs != mine).then(|| (sector, shown(&theirs, &mine), shown(&mine, &theirs)))
        })
    })
}

/// A sector with everything that may differ set to whether there is anything.
fn known_part(magic: u32, sector: usize, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut only_whether = |range: std::ops::Range<usize>| {
        let some = bytes[range.clone()].iter().any(|byte| *byte != 0);
        bytes[range].fill(u8::from(some));
    };
    match (magic, sector) {
        (DELTA, _) => {
            only_whether(152..160);
            only_whether(168..172);
        }
        (PAXOS | CLEARED, 0) => {
            only_whether(152..160);
            only_whether(168..172);
            only_whether(192..200);
        }
        // Padding.
        (PAXOS | CLEARED, 1) => bytes[20..24].fill(0),
        (PAXOS | CLEARED, VALUE) => {}
        (PAXOS | CLEARED, _) => {
            // Ballots, and what carries nothing (W38).
            only_whether(0..8);
            only_whether(8..16);
            only_whether(32..40);
            only_whether(48..52);
            bytes[56..128].fill(0);
            bytes[132..136].fill(0);
            bytes[144..].fill(0);
        }
        _ => {}
    }
    bytes
}

/// The bytes around the first that differs.
fn shown(bytes: &[u8], other: &[u8]) -> String {
    let differing: Vec<String> = bytes
        .iter()
        .zip(other)
        .enumerate()
        .filter(|(_, (a, b))| a != b)
        .take(24)
        .map(|(at, (byte, _))| format!("{at}={byte:#x}"))
        .collect();
    differing.join(" ")
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}
