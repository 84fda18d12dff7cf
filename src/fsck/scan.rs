//! Reading storage: which areas there are, and what is wrong with each.
//!
//! Hosts may be at work meanwhile, and an area is not read in one moment. So what is found is looked at a second time, and counts
//! only if it is there both times.

use super::overlap::{self, Before};
use crate::direct::report::Failure;
use crate::direct::storage::{Storage, StorageError};
use crate::json::Text;
use sanlock_blockio::{Access, Disk};
use sanlock_lease::fsck::{
    Finding, Found, HEAD_BYTES, IndexReport, Kind, Level, LockspaceReport, Problem, ResourceReport, Spot,
    check_index, check_lockspace, check_resource, identify, identify_within,
};
use sanlock_lease::geometry::{AlignSize, Geometry, HostId, SectorSize};
use sanlock_lease::name::Name;
use sanlock_lease::record::RawLeader;
use sanlock_lease::rindex::{IndexView, LEASE_NAME};
use sanlock_lease::text::{TextError, strict};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Distance of the places that are looked at.
const STEP: u64 = 1 << 20;
/// Of the largest area.
const AREA_STEPS_MAX: u64 = 8;
/// After so many places without anything the search ends: 1 GiB.
const EMPTY_MAX: u64 = 1024;
/// Where records of a lockspace are looked for whose first ones are lost, as by a partition table: bytes from the start of its area.
const FURTHER: [u64; 4] = [64 << 10, 256 << 10, 512 << 10, 768 << 10];
/// Between two looks at something odd: longer than a write that was under way takes, unless storage hangs.
const SECOND_LOOK: Duration = Duration::from_millis(200);

/// A stretch of storage to look at.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) path: Vec<u8>,
    pub(crate) offset: u64,
    /// Bytes; `None`: to the end.
    size: Option<u64>,
    /// Only the area at `offset`.
    only_area: bool,
}

impl Place {
    /// # Errors
    /// No path, or an offset or size that is not a number.
    pub(crate) fn parse(text: &[u8], only_area: bool) -> Result<Self, TextError> {
        let range = strict::dump_range(text)?;
        Ok(Self { path: range.disk.path, offset: range.disk.offset, size: range.size, only_area })
    }

    /// The path, to be shown.
    pub(crate) fn shown(&self) -> String {
        Text::from(self.path.as_slice()).plain()
    }

    pub(super) fn failed(&self, error: StorageError) -> Unusable {
        Unusable { object: format!("{}:{}", self.shown(), self.offset), error }
    }
}

/// Storage that cannot be looked at.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub(crate) struct Unusable {
    /// Path and offset.
    pub(crate) object: String,
    error: StorageError,
}

impl Failure for Unusable {
    fn code(&self) -> i32 {
        self.error.code()
    }

    fn next(&self) -> Option<&'static str> {
        self.error.next()
    }
}

/// What an area holds.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Lockspace(LockspaceReport),
    Resource(Box<ResourceReport>),
    Index(Box<IndexReport>),
}

/// An area of storage.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    /// Which place it was found in.
    pub(crate) place: usize,
    /// Bytes from the start of the storage.
    pub(crate) offset: u64,
    pub(crate) geometry: Geometry,
    pub(crate) body: Body,
    pub(crate) findings: Vec<Finding>,
    /// Why nothing in it is repaired, whoever is alive: it may not be what it seems.
    pub(super) doubt: Option<String>,
}

impl Area {
    pub(super) fn kind(&self) -> Kind {
        match self.body {
            Body::Lockspace(_) => Kind::Lockspace,
            Body::Resource(_) => Kind::Resource,
            Body::Index(_) => Kind::Index,
        }
    }

    /// The lockspace it is, or belongs to, where that can be told.
    pub(super) fn lockspace(&self) -> Option<Name> {
        match &self.body {
            Body::Lockspace(report) => Some(report.name),
            Body::Resource(report) => report.known.map(|k| k.lockspace),
            Body::Index(report) => report.view.as_ref().map(IndexView::lockspace),
        }
    }
}

/// Everything that was found.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) areas: Vec<Area>,
    /// What else is worth saying.
    pub(crate) remarks: Vec<String>,
    /// One of the places has no area, or begins with something else and its leases belong to a lockspace that is nowhere.
    pub(super) nothing: bool,
    pub(super) begin_otherwise: Vec<Otherwise>,
}

/// A place that does not begin with an area, and has some behind it.
#[derive(Debug)]
pub(super) struct Otherwise {
    /// The numbers of those on its disk, its own last.
    same: Vec<usize>,
    /// Where it begins, and where the search ended.
    range: Range<u64>,
    /// The former, to be shown.
    pub(super) at: String,
    /// Whether there are but zeros.
    pub(super) blank: bool,
}

impl Otherwise {
    /// Whether this area lies in it.
    pub(super) fn has(&self, area: &Area) -> bool {
        self.same.contains(&area.place) && self.range.contains(&area.offset)
    }
}

impl Scan {
    /// Looks at all places.
    ///
    /// # Errors
    /// Storage that cannot be opened or read.
    pub(crate) fn of(places: &[Place]) -> Result<Self, Unusable> {
        let mut scan = Self::default();
        let mut disks: Vec<Arc<Disk>> = Vec::new();
        for (number, place) in places.iter().enumerate() {
            let mut storage = Storage::open(&place.path, Access::ReadOnly).map_err(|e| place.failed(e))?;
            let on_it = |n: &usize| disks.get(*n).is_some_and(|disk| disk.is_same_as(storage.disk()));
            let same: Vec<usize> = (0..number).filter(on_it).chain([number]).collect();
            disks.push(storage.shared_disk());
            scan.place(&same, place, &mut storage).map_err(|e| place.failed(e))?;
        }
        scan.lockspaces_again(places)?;
        scan.relate();
        scan.leave_alone(places);
        Ok(scan)
    }

    pub(crate) fn findings(&self) -> impl Iterator<Item = (&Area, &Finding)> {
        self.areas.iter().flat_map(|area| area.findings.iter().map(move |f| (area, f)))
    }

    pub(super) fn damaged(&self) -> bool {
        self.findings().any(|(_, f)| f.problem.level() == Level::Damage)
    }

    /// The lockspace of this name, by its number among the areas.
    pub(super) fn lockspace(&self, name: Name) -> Option<(usize, &LockspaceReport)> {
        self.areas.iter().enumerate().find_map(|(number, area)| match &area.body {
            Body::Lockspace(report) if report.name == name && report.intact > 0 => Some((number, report)),
            _ => None,
        })
    }

    /// Generations with which leases of this lockspace name its host ids.
    pub(super) fn claims(&self, lockspace: Name) -> Vec<(HostId, u64)> {
        let resources = self.areas.iter().filter_map(|area| match &area.body {
            Body::Resource(report) if report.known.is_some_and(|k| k.lockspace == lockspace) => Some(report),
            _ => None,
        });
        resources.flat_map(|report| report.claims.iter().copied()).collect()
    }

    /// Looks at one place. `same`: the numbers of those on its disk, whatever their paths, its own last. An area that two of them have is
    /// one area.
    fn place(&mut self, same: &[usize], place: &Place, storage: &mut Storage) -> Result<(), StorageError> {
        let Some(&number) = same.last() else { return Ok(()) };
        let end = storage.disk().size();
        let end = place.size.map_or(end, |size| end.min(place.offset.saturating_add(size)));
        let mut any = false;
        let (mut offset, mut empty) = (place.offset, 0);
        while offset < end && empty < EMPTY_MAX {
            let found = match identify(&head(storage, offset)?) {
                None => further(storage, offset)?,
                found => found,
            };
            let Some(found) = found else {
                if place.only_area {
                    break;
                }
                (offset, empty) = (offset + STEP, empty + 1);
                continue;
            };
            let first = !std::mem::replace(&mut any, true);
            let known = self.known(same, offset).map(|area| area.geometry);
            if first && offset > place.offset && !place.only_area {
                let (same, range) = (same.to_vec(), place.offset..end);
                let at = format!("{}:{}", place.shown(), place.offset);
                let blank = head(storage, place.offset)?.iter().all(|byte| *byte == 0);
                self.begin_otherwise.push(Otherwise { same, range, at, blank });
            }
            empty = 0;
            let geometry = known.map_or_else(|| sizes(storage, offset, found), Ok)?;
            if known.is_none() {
                let area = examine(storage, number, offset, found.kind, geometry)?;
                self.index_before(same, storage, &area)?;
                self.areas.push(area);
            }
            if place.only_area {
                break;
            }
            // A size that was only guessed may be too large, and hide what comes next.
            let certain = found.by_first || found.kind == Kind::Lockspace;
            offset += if certain { geometry.align().bytes() } else { STEP };
        }
        if !any {
            self.remarks.push(format!(
                "{}:{}: no lockspace, lease or index was found there; if there was one, its first records are lost",
                place.shown(),
                place.offset
            ));
            self.nothing = true;
        }
        if empty == EMPTY_MAX && offset < end {
            self.remarks.push(format!(
                "{}: no lease within {} MiB before offset {offset}, so the search ended there; give an offset beyond it to look further",
                place.shown(),
                EMPTY_MAX
            ));
        }
        Ok(())
    }

    /// The area at this offset, if one of these places has it.
    fn known(&self, same: &[usize], offset: u64) -> Option<&Area> {
        self.areas.iter().find(|area| area.offset == offset && same.contains(&area.place))
    }

    /// An internal lease of an index that has no index before it.
    fn index_before(
        &mut self,
        same: &[usize],
        storage: &mut Storage,
        area: &Area,
    ) -> Result<(), StorageError> {
        let Body::Resource(report) = &area.body else { return Ok(()) };
        let is_internal = report.known.is_some_and(|k| k.name.as_bytes() == LEASE_NAME);
        let align = area.geometry.align().bytes();
        let Some(before) = area.offset.checked_sub(align).filter(|_| is_internal) else { return Ok(()) };
        if self.known(same, before).is_none() {
            let index = examine(storage, area.place, before, Kind::Index, area.geometry)?;
            self.areas.push(index);
        }
        Ok(())
    }

    /// Lockspaces once more, after everything else: what a lease names of a host was in the lockspace by then, and which generations leases
    /// name is known.
    fn lockspaces_again(&mut self, places: &[Place]) -> Result<(), Unusable> {
        for number in 0..self.areas.len() {
            let Some(area) = self.areas.get(number).filter(|area| area.kind() == Kind::Lockspace) else {
                continue;
            };
            let Some((place, name)) = places.get(area.place).zip(area.lockspace()) else { continue };
            let claims = largest(&self.claims(name));
            let (offset, geometry) = (area.offset, area.geometry);
            let again = || -> Result<LockspaceReport, StorageError> {
                let mut storage = Storage::open(&place.path, Access::ReadOnly)?;
                Ok(check_lockspace(&read(&mut storage, offset, geometry)?, geometry, &claims))
            };
            let mut report = again().map_err(|e| place.failed(e))?;
            let now = std::mem::take(&mut report.findings);
            if let Some(area) = self.areas.get_mut(number) {
                // The same findings with better repairs; what came up only now is looked at next time.
                let same = |f: &Finding| now.iter().find(|n| (n.problem, n.spot) == (f.problem, f.spot));
                area.findings.retain(|f| f.problem == Problem::AreaShort || same(f).is_some());
                for finding in &mut area.findings {
                    finding.fix = same(finding).and_then(|n| n.fix);
                }
                area.body = Body::Lockspace(report);
            }
        }
        Ok(())
    }

    /// Nothing is repaired in areas that may not be what they seem.
    fn leave_alone(&mut self, places: &[Place]) {
        for area in &mut self.areas {
            let Some(doubt) = &area.doubt else { continue };
            let path = places.get(area.place).map(Place::shown).unwrap_or_default();
            let mut repairable = false;
            for finding in &mut area.findings {
                repairable |= finding.fix.take().is_some();
            }
            if repairable || area.findings.iter().any(|f| f.problem.level() == Level::Damage) {
                self.remarks
                    .push(format!("{path}:{}: nothing is repaired in this area: {doubt}", area.offset));
            }
        }
    }
}

/// For each host id the largest generation.
pub(super) fn largest(claims: &[(HostId, u64)]) -> BTreeMap<HostId, u64> {
    let mut largest = BTreeMap::new();
    for (host, generation) in claims {
        let most: &mut u64 = largest.entry(*host).or_default();
        *most = (*most).max(*generation);
    }
    largest
}

/// The start of an area, shorter at the end of the storage.
fn head(storage: &mut Storage, offset: u64) -> Result<Vec<u8>, StorageError> {
    up_to(storage, offset, HEAD_BYTES)
}

/// A lockspace whose first records are lost.
fn further(storage: &mut Storage, offset: u64) -> Result<Option<Found>, StorageError> {
    for at in FURTHER {
        let records = head(storage, offset.saturating_add(at))?;
        if let Some(geometry) = identify_within(&records) {
            return Ok(Some(Found { kind: Kind::Lockspace, geometry, by_first: false }));
        }
    }
    Ok(None)
}

/// At most `len` bytes: what there is of them, in whole blocks.
fn up_to(storage: &mut Storage, offset: u64, len: usize) -> Result<Vec<u8>, StorageError> {
    let block = u64::from(storage.disk().logical_block_size());
    let left = storage.disk().size().saturating_sub(offset) / block * block;
    let len = usize::try_from(left).unwrap_or(usize::MAX).min(len);
    if len == 0 { Ok(Vec::new()) } else { storage.read(offset, len) }
}

/// A whole area, as far as it goes.
pub(crate) fn read(storage: &mut Storage, offset: u64, geometry: Geometry) -> Result<Vec<u8>, StorageError> {
    up_to(storage, offset, usize::try_from(geometry.align().bytes()).unwrap_or(usize::MAX))
}

/// The sizes of an area. Those of a lease whose leader does not say them end where the next area begins.
fn sizes(storage: &mut Storage, offset: u64, found: Found) -> Result<Geometry, StorageError> {
    if found.by_first || found.kind != Kind::Resource || found.geometry.sector() != SectorSize::B4096 {
        return Ok(found.geometry);
    }
    for align in AlignSize::ALL {
        let next = identify(&head(storage, offset.saturating_add(align.bytes()))?);
        if next.is_some_and(|next| next.geometry.align() == align) {
            return Ok(Geometry::new(SectorSize::B4096, align).unwrap_or(found.geometry));
        }
    }
    Ok(found.geometry)
}

/// Reads an area and checks it, twice if anything is odd.
fn examine(
    storage: &mut Storage,
    place: usize,
    offset: u64,
    kind: Kind,
    geometry: Geometry,
) -> Result<Area, StorageError> {
    let mut area = look(storage, place, offset, kind, geometry)?;
    if !area.findings.is_empty() {
        std::thread::sleep(SECOND_LOOK);
        let again = look(storage, place, offset, kind, geometry)?;
        let findings = again.findings.iter().filter(|f| area.findings.contains(f)).cloned().collect();
        area = Area { findings, ..again };
    }
    Ok(area)
}

/// One look at an area.
pub(super) fn look(
    storage: &mut Storage,
    place: usize,
    offset: u64,
    kind: Kind,
    geometry: Geometry,
) -> Result<Area, StorageError> {
    let bytes = read(storage, offset, geometry)?;
    let (body, mut findings) = match kind {
        Kind::Lockspace => {
            let mut report = check_lockspace(&bytes, geometry, &BTreeMap::new());
            let findings = std::mem::take(&mut report.findings);
            (Body::Lockspace(report), findings)
        }
        Kind::Resource => {
            let mut report = check_resource(&bytes, geometry);
            let findings = std::mem::take(&mut report.findings);
            (Body::Resource(Box::new(report)), findings)
        }
        Kind::Index => {
            let lease = head(storage, offset.saturating_add(geometry.align().bytes()))?;
            let leases = leases(storage, &bytes, offset)?;
            let mut report = check_index(&bytes, offset, &RawLeader::from_sector(&lease), &leases);
            let findings = std::mem::take(&mut report.findings);
            (Body::Index(Box::new(report)), findings)
        }
    };
    if (bytes.len() as u64) < geometry.align().bytes() {
        // Nothing is wrong with what is not there, nor to be repaired in it.
        findings.retain(|f| f.spot.at < bytes.len() as u64);
        findings.push(Finding {
            problem: Problem::AreaShort,
            spot: Spot { sector: 0, at: bytes.len() as u64 },
            what: "the area".to_owned(),
            found: format!("the end of the storage after {} bytes", bytes.len()),
            expected: format!("{} bytes", geometry.align().bytes()),
            fix: None,
        });
    }
    let mut area = Area { place, offset, geometry, body, findings, doubt: None };
    let before = Before {
        sector: if kind == Kind::Lockspace {
            sector_before(storage, offset, geometry.sector())
        } else {
            None
        },
        reaches_in: reaches_in(storage, offset),
    };
    area.doubt = overlap::doubt(&bytes, &before, kind, geometry, offset, area.lockspace());
    Ok(area)
}

/// Where an area begins before this offset that reaches beyond it.
fn reaches_in(storage: &mut Storage, offset: u64) -> Option<u64> {
    (1..AREA_STEPS_MAX).find_map(|steps| {
        let start = offset.checked_sub(steps * STEP)?;
        // What cannot be read says nothing.
        let head = head(storage, start).ok()?;
        let found = identify(&head)?;
        if !found.by_first || found.geometry.align().bytes() <= steps * STEP {
            return None;
        }
        // A lockspace looks everywhere as if it began there.
        let name = Name::from_field(&RawLeader::from_sector(&head).space_name);
        let inside = found.kind == Kind::Lockspace
            && sector_before(storage, start, found.geometry.sector())
                .is_some_and(|before| overlap::is_record_of(&before, Some(name)));
        (!inside).then_some(start)
    })
}

/// The sector in front of an area, if there is one that can be read.
fn sector_before(storage: &mut Storage, offset: u64, sector: SectorSize) -> Option<Vec<u8>> {
    let len = sector.bytes().max(storage.disk().logical_block_size());
    let mut bytes = storage.read(offset.checked_sub(len.into())?, usize::try_from(len).ok()?).ok()?;
    Some(bytes.split_off(bytes.len().checked_sub(sector.slice_len())?))
}

/// The leaders in the resource areas of an index, as far as the storage goes.
fn leases(storage: &mut Storage, index: &[u8], base: u64) -> Result<BTreeMap<u32, RawLeader>, StorageError> {
    let mut leases = BTreeMap::new();
    let Ok(view) = IndexView::read(index, base) else { return Ok(leases) };
    for slot in 0..view.count() {
        let sector = up_to(storage, view.area_offset(slot), view.geometry().sector().slice_len())?;
        if sector.is_empty() {
            break;
        }
        leases.insert(slot, RawLeader::from_sector(&sector));
    }
    Ok(leases)
}
