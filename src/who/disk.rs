//! What the disks say: a resource's lease, the records of a lockspace's hosts, and where leases are.

use super::WhoError;
use super::judge::{Age, Later, Seen, Silence};
use crate::direct::{Area, Storage, StorageError};
use sanlock_blockio::Access;
use sanlock_lease::fsck::{self, HEAD_BYTES, Kind};
use sanlock_lease::geometry::{Geometry, HostId};
use sanlock_lease::limits::SECTOR_BYTES_MAX;
use sanlock_lease::name::Name;
use sanlock_lease::record::{PAXOS_MAGIC, RawLeader, RindexHeader};
use sanlock_lease::text::DiskSpec;
use sanlock_lease::timing::IoTimeout;
use sanlock_lease::verify::{self, LeaderError, Purpose};
use std::time::{Duration, Instant};

/// Distance of the places where a lease is looked for.
const STEP: u64 = 1 << 20;
/// Places that are looked at: of 8 GiB, in some seconds, or in half a minute where each read takes some milliseconds.
const STEPS_MAX: u64 = 8192;
/// Between two looks at the hosts' records.
const POLL: Duration = Duration::from_millis(500);
/// Between two looks at a record that is bad: longer than a write that was under way takes, unless storage hangs.
const SECOND_LOOK: Duration = Duration::from_millis(200);
/// Leader and request, before the hosts' blocks.
const SECTORS_BEFORE_BLOCKS: u64 = 2;

/// What begins at a place.
pub(super) enum Found {
    /// A lockspace of this name.
    Lockspace(Name),
    /// A resource: lockspace and name.
    Resource(Name, Name),
}

/// What begins there.
///
/// # Errors
/// Nothing that hosts could hold, or the disk cannot be read.
pub(super) fn identify(place: &DiskSpec) -> Result<Found, WhoError> {
    let mut storage = Storage::open(&place.path, Access::ReadOnly)?;
    let sector = storage.read(place.offset, SECTOR_BYTES_MAX)?;
    let leader = RawLeader::from_sector(&sector);
    let space = Name::from_field(&leader.space_name);
    match Area::of(&sector) {
        Some(Area::Lockspace) => Ok(Found::Lockspace(space)),
        Some(Area::Resource) => Ok(Found::Resource(space, Name::from_field(&leader.resource_name))),
        Some(Area::Rindex) => {
            let header = RindexHeader::from_sector(&sector);
            let lockspace = Name::from_field(&header.lockspace_name).to_string();
            let lease = Area::Rindex
                .geometry(&sector)
                .map_or(place.offset, |sizes| place.offset + sizes.align().bytes());
            Err(WhoError::Index { lockspace, lease })
        }
        None => Err(WhoError::NoLease),
    }
}

/// Whether these are known to be the same place. The daemon may have its path by a link, or by another name of the device.
pub(super) fn is_same_place(known: &DiskSpec, asked: &DiskSpec) -> bool {
    same_place(known, asked) == Some(true)
}

/// Whether these are known to be different places.
pub(super) fn is_other_place(known: &DiskSpec, asked: &DiskSpec) -> bool {
    same_place(known, asked) == Some(false)
}

/// `None`: one of them cannot be opened, or the path that the daemon knows leads elsewhere from its working directory.
fn same_place(known: &DiskSpec, asked: &DiskSpec) -> Option<bool> {
    if known.offset != asked.offset {
        return Some(false);
    }
    if known.path == asked.path {
        return Some(true);
    }
    if !known.path.starts_with(b"/") {
        return None;
    }
    let open = |place: &DiskSpec| Storage::open(&place.path, Access::ReadOnly).ok();
    let (known, asked) = (open(known)?, open(asked)?);
    Some(known.disk().is_same_as(asked.disk()))
}

/// What a search on a disk came to.
pub(super) enum Search {
    Found(DiskSpec),
    /// It does not begin at any place of the disk from the first one on.
    Nowhere,
    /// It begins at none of so many places; the rest of the disk was not looked at.
    NotIn {
        places: u64,
    },
}

impl Search {
    /// Where it is, if it was found.
    pub(super) fn found(self) -> Option<DiskSpec> {
        match self {
            Self::Found(place) => Some(place),
            Self::Nowhere | Self::NotIn { .. } => None,
        }
    }
}

/// Looks for a lease on `path`, from `start` on in steps of a MiB.
///
/// # Errors
/// The disk cannot be opened or read.
pub(super) fn search(
    path: &[u8],
    start: u64,
    wanted: impl Fn(Area, &RawLeader) -> bool,
) -> Result<Search, StorageError> {
    let mut storage = Storage::open(path, Access::ReadOnly)?;
    for step in 0..STEPS_MAX {
        let offset = start.saturating_add(step * STEP);
        let sector = match storage.read(offset, SECTOR_BYTES_MAX) {
            Ok(sector) => sector,
            Err(error) if error.is_beyond_end() => return Ok(Search::Nowhere),
            Err(error) => return Err(error),
        };
        if Area::of(&sector).is_some_and(|area| wanted(area, &RawLeader::from_sector(&sector))) {
            return Ok(Search::Found(DiskSpec { path: path.to_vec(), offset }));
        }
    }
    Ok(Search::NotIn { places: STEPS_MAX })
}

/// The lease of a resource on one of its disks: leader, request, and the blocks of all hosts.
///
/// # Errors
/// The disk cannot be opened or read.
pub(super) fn read_lease(disk: &DiskSpec) -> Result<Vec<u8>, StorageError> {
    let mut storage = Storage::open(&disk.path, Access::ReadOnly)?;
    let first = storage.read(disk.offset, SECTOR_BYTES_MAX)?;
    let leader = RawLeader::from_sector(&first);
    let sizes = verify::sizes(&leader).ok().filter(|_| leader.magic.get() == PAXOS_MAGIC);
    let Some(geometry) = sizes else { return Ok(first) };
    let hosts = leader.num_hosts.get().min(u64::from(geometry.max_hosts()));
    let bytes = (SECTORS_BEFORE_BLOCKS + hosts) * u64::from(geometry.sector().bytes());
    let bytes = usize::try_from(bytes.next_multiple_of(SECTOR_BYTES_MAX as u64)).unwrap_or(SECTOR_BYTES_MAX);
    storage.read(disk.offset, bytes)
}

/// The hosts of a lockspace as their records say, watched for a while.
pub(super) struct Hosts {
    /// Who was asked for, or all with a record that was ever used.
    pub(super) seen: Vec<(HostId, Seen)>,
    /// How long they were watched.
    pub(super) watched: Duration,
}

/// A record, and what became of it.
struct Record {
    host: HostId,
    first: RawLeader,
    last: RawLeader,
    changed: Option<Instant>,
}

impl Record {
    fn is_held(&self) -> bool {
        self.last.timestamp.get() != 0
    }

    /// `end`: when the look that found it had ended.
    fn look(&mut self, found: &RawLeader, end: Instant) {
        let differs = found.owner_id != self.last.owner_id
            || found.owner_generation != self.last.owner_generation
            || found.timestamp != self.last.timestamp;
        if differs {
            self.last = *found;
            self.changed = Some(end);
        }
    }

    fn io_timeout(&self) -> IoTimeout {
        IoTimeout::from_disk(self.first.io_timeout.get(), IoTimeout::DEFAULT)
    }

    fn seen(&self, now: Instant, start: Instant) -> Seen {
        let since = |from: Instant| now.saturating_duration_since(from).as_secs();
        Seen {
            name: Name::from_field(&self.last.resource_name).as_bytes().to_vec(),
            generation: self.last.owner_generation.get(),
            timestamp: self.last.timestamp.get(),
            io_timeout: self.io_timeout(),
            silence: self.changed.map_or(Silence::Glimpsed(since(start)), |at| {
                let secs = since(at);
                Silence::Since(Age { secs, confirmed: secs })
            }),
            later: later(&self.last),
        }
    }
}

/// The flags of lockspaces of version 4 on; in earlier ones these bits mean nothing (disk-format.md 11.1).
fn later(record: &RawLeader) -> Later {
    let flags = if record.version.get() >> 16 >= 4 { record.flags.get() } else { 0 };
    Later { no_timeout: flags & 0x2 != 0, declared_dead: flags & 0x4 != 0 }
}

/// What was found at the place of a host's record.
type Looked = Result<(HostId, RawLeader), (HostId, LeaderError)>;

/// The records of a lockspace on its disk.
struct Space {
    storage: Storage,
    offset: u64,
    geometry: Geometry,
    name: Name,
}

impl Space {
    fn open(place: &DiskSpec, name: Name) -> Result<Self, WhoError> {
        let mut storage = Storage::open(&place.path, Access::ReadOnly)?;
        let first = RawLeader::from_sector(&storage.read(place.offset, SECTOR_BYTES_MAX)?);
        let geometry = match verify::delta(&first, None, Purpose::Read).and_then(|()| verify::sizes(&first)) {
            Ok(_) if !name.matches(&first.space_name) => {
                let found = Name::from_field(&first.space_name);
                return Err(LeaderError::Lockspace { expected: name, found }.into());
            }
            Ok(geometry) => geometry,
            // The record of host id 1 is damaged. What it should say of the area the next one says.
            Err(error) => {
                let head = storage.read(place.offset, HEAD_BYTES)?;
                let found = fsck::identify(&head).filter(|found| found.kind == Kind::Lockspace);
                found.ok_or(error)?.geometry
            }
        };
        Ok(Self { storage, offset: place.offset, geometry, name })
    }

    /// All host ids that it has room for.
    fn all(&self) -> Option<(HostId, HostId)> {
        Some((HostId::new(1)?, HostId::new(self.geometry.max_hosts().into())?))
    }

    /// The first and the last of these host ids that exist; of all, if there are none.
    fn span(&self, wanted: &[HostId]) -> Option<(HostId, HostId)> {
        let (first, last) = self.all()?;
        let exist = wanted.iter().copied().filter(|host| *host <= last);
        Some((exist.clone().min().unwrap_or(first), exist.max().unwrap_or(last)))
    }

    /// The records of host ids `first` to `last`: those that are good, and what is wrong with the others.
    fn read(&mut self, first: HostId, last: HostId) -> Result<Vec<Looked>, StorageError> {
        let bytes = self.geometry.sector().slice_len();
        let from = self.offset.saturating_add(self.geometry.offset_of(first.delta_sector()));
        let count = last.index().saturating_sub(first.index()) + 1;
        let sectors = self.storage.read(from, count * bytes)?;
        let ids = (first.index()..).map_while(HostId::from_index);
        let looked = ids.zip(sectors.chunks_exact(bytes)).map(|(host, sector)| {
            let record = RawLeader::from_sector(sector);
            match verify::delta(&record, Some(&self.name), Purpose::Read) {
                Ok(()) => Ok((host, record)),
                Err(error) => Err((host, error)),
            }
        });
        Ok(looked.collect())
    }

    fn good(&mut self, first: HostId, last: HostId) -> Result<Vec<(HostId, RawLeader)>, StorageError> {
        Ok(self.read(first, last)?.into_iter().filter_map(Looked::ok).collect())
    }

    fn bad(&mut self, first: HostId, last: HostId) -> Result<Vec<(HostId, LeaderError)>, StorageError> {
        Ok(self.read(first, last)?.into_iter().filter_map(Looked::err).collect())
    }
}

/// Which of these hosts (of all, if empty) have a record on the disk that no host can use, and what is wrong with it.
///
/// # Errors
/// No such lockspace there, or its disk cannot be read.
pub(super) fn damaged_hosts(
    place: &DiskSpec,
    name: Name,
    wanted: &[HostId],
) -> Result<Vec<(HostId, LeaderError)>, WhoError> {
    let mut space = Space::open(place, name)?;
    let (first, last) = space.span(wanted).ok_or(WhoError::NoLease)?;
    let is_wanted = |host: HostId| wanted.is_empty() || wanted.contains(&host);
    let mut bad = space.bad(first, last)?;
    bad.retain(|(host, _)| is_wanted(*host));
    if !bad.is_empty() {
        // A write that was under way may be seen in part.
        std::thread::sleep(SECOND_LOOK);
        let again = space.bad(first, last)?;
        bad.retain(|(host, _)| again.iter().any(|(other, _)| other == host));
    }
    Ok(bad)
}

/// Looks at the records of `wanted` (all, if empty), and watches those that are in use until each has changed, or for `watch` (three
/// times the largest io timeout, within which every living host renews at least once).
///
/// # Errors
/// No such lockspace there, or its disk cannot be read.
pub(super) fn watch_hosts(
    place: &DiskSpec,
    name: Name,
    wanted: &[HostId],
    watch: Option<Duration>,
    mut waiting: impl FnMut(Duration),
) -> Result<Hosts, WhoError> {
    let mut space = Space::open(place, name)?;
    let (first, last) = space.span(wanted).ok_or(WhoError::NoLease)?;
    let mut found = space.good(first, last)?;
    // A member is who has used its record. That of somebody who holds a lease may have been formatted anew since.
    found.retain(
        |(host, record)| {
            if wanted.is_empty() { record.owner_id.get() != 0 } else { wanted.contains(host) }
        },
    );
    // A silence begins at the end of the look that found the record, and lasts to the beginning of the one that found it unchanged:
    // what is written during a look may be seen or not.
    let start = Instant::now();
    let mut records: Vec<Record> = found
        .into_iter()
        .map(|(host, record)| Record { host, first: record, last: record, changed: None })
        .collect();
    let held = |records: &[Record]| {
        let ids = records.iter().filter(|record| record.is_held()).map(|record| record.host);
        ids.clone().min().zip(ids.max())
    };
    let slowest = records.iter().filter(|record| record.is_held()).map(Record::io_timeout).max();
    let limit = watch.unwrap_or(Duration::from_secs(3 * slowest.map_or(0, IoTimeout::secs)));
    let mut now = start;
    // Only the stretch of those in use is read again and again.
    while let Some((first, last)) = held(&records) {
        let settled = records.iter().filter(|record| record.is_held()).all(|record| record.changed.is_some());
        if settled || now.saturating_duration_since(start) >= limit {
            break;
        }
        waiting(limit.saturating_sub(now.saturating_duration_since(start)));
        std::thread::sleep(POLL);
        now = Instant::now();
        let found = space.good(first, last)?;
        let end = Instant::now();
        for (host, found) in found {
            if let Some(record) = records.iter_mut().find(|record| record.host == host) {
                record.look(&found, end);
            }
        }
    }
    let seen = records.iter().map(|record| (record.host, record.seen(now, start))).collect();
    Ok(Hosts { seen, watched: now.saturating_duration_since(start) })
}
