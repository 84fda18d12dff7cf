//! What a path may have in flight. Drivers that work on the same paths have a part of it each, and the rest is for whoever comes first.
//!
//! Nobody is woken for what another driver gives back of the rest: who finds none left goes on when an operation of its own ends, and looks again now and then,
//! since its own may hang. With none in flight it can always have one, and one driver alone has more than half of everything.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::stat::Device;

/// Operations that one path has in its engines at a time; further ones wait.
pub const OPS_IN_FLIGHT_MAX: usize = 64;

/// Bytes of buffers in the engines of one path, above which operations wait; a single operation of each driver always runs. Small ones do not count, and do
/// not wait for it.
pub const BYTES_IN_FLIGHT_MAX: usize = 16 << 20;

/// Bytes of an operation that counts as one, but not by its bytes: a sector that is read or written, on which an acquire, a release or a commit depends, does
/// not wait behind looks through whole areas.
pub(super) const UNCOUNTED_BYTES_MAX: usize = 64 << 10;

/// Operations and the bytes of their buffers, up to a size.
#[derive(Debug)]
struct Part {
    operations_max: usize,
    bytes_max: usize,
    operations: usize,
    bytes: usize,
}

impl Part {
    /// One of so many equal parts of everything.
    fn one_of(parts: usize) -> Self {
        let (operations_max, bytes_max) = (OPS_IN_FLIGHT_MAX / parts, BYTES_IN_FLIGHT_MAX / parts);
        Self { operations_max, bytes_max, operations: 0, bytes: 0 }
    }

    /// Takes one operation in if there is room, or, `anyway`, if there is not.
    fn take(&mut self, len: usize, anyway: bool) -> bool {
        let bytes = self.bytes.saturating_add(counted(len));
        let fits = self.operations < self.operations_max && (is_small(len) || bytes <= self.bytes_max);
        if fits || anyway {
            self.operations += 1;
            self.bytes = bytes;
        }
        fits || anyway
    }

    fn give_back(&mut self, len: usize) {
        self.operations = self.operations.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(counted(len));
    }
}

/// Whether it waits for a place only, not for bytes.
pub(super) fn is_small(len: usize) -> bool {
    len <= UNCOUNTED_BYTES_MAX
}

fn counted(len: usize) -> usize {
    if is_small(len) { 0 } else { len }
}

/// What belongs to all drivers that work on one path.
#[derive(Debug)]
struct Common(Mutex<Part>);

impl Common {
    fn lock(&self) -> MutexGuard<'_, Part> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What several drivers that work on the same paths have together.
#[derive(Debug)]
pub struct SharedRoom {
    drivers: usize,
    /// Paths that some driver has an engine for.
    paths: Mutex<Vec<Known>>,
}

/// A path, and what device is there: after another mount at the same place what hangs is no longer in the way.
type Known = (Arc<Path>, Device, Weak<Common>);

impl SharedRoom {
    /// For so many drivers at most.
    #[must_use]
    pub fn new(drivers: usize) -> Self {
        Self { drivers: drivers.max(1), paths: Mutex::new(Vec::new()) }
    }

    /// One driver's room on a path: half of everything is divided, the other half is common.
    pub(super) fn of(&self, path: &Arc<Path>, device: Device) -> Room {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        paths.retain(|(.., common)| common.strong_count() > 0);
        let mut known = paths.iter().filter(|(known, there, _)| known == path && *there == device);
        let known = known.find_map(|(.., common)| common.upgrade());
        let common = known.unwrap_or_else(|| {
            let common = Arc::new(Common(Mutex::new(Part::one_of(2))));
            paths.push((Arc::clone(path), device, Arc::downgrade(&common)));
            common
        });
        Room { own: Part::one_of(2 * self.drivers), common: Some(common), large: 0 }
    }
}

/// Where an operation has its place, to be given back when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Within the driver's own part.
    Own,
    /// Of what is common.
    Common,
}

/// What one driver may have in the engine of a path.
#[derive(Debug)]
pub(super) struct Room {
    own: Part,
    common: Option<Arc<Common>>,
    /// Operations in flight that are not small, in either part.
    large: usize,
}

impl Room {
    /// Of a driver that shares its paths with no other.
    pub(super) fn whole() -> Self {
        Self { own: Part::one_of(1), common: None, large: 0 }
    }

    /// A place for an operation with a buffer of this length. `idle`: this driver has none in flight on the path, and may have one however large.
    pub(super) fn take(&mut self, len: usize, idle: bool) -> Option<Place> {
        let place = self.find(len, idle)?;
        self.large += usize::from(!is_small(len));
        Some(place)
    }

    fn find(&mut self, len: usize, idle: bool) -> Option<Place> {
        if self.own.take(len, false) {
            return Some(Place::Own);
        }
        if self.common.as_ref().is_some_and(|common| common.lock().take(len, false)) {
            return Some(Place::Common);
        }
        (idle && self.own.take(len, true)).then_some(Place::Own)
    }

    /// Whether an operation that is not small is in flight.
    pub(super) fn has_large(&self) -> bool {
        self.large > 0
    }

    /// Whether another driver may give back what this one waits for.
    pub(super) fn is_shared(&self) -> bool {
        self.common.is_some()
    }

    /// An operation with a buffer of this length has ended.
    pub(super) fn give_back(&mut self, place: Place, len: usize) {
        self.large = self.large.saturating_sub(usize::from(!is_small(len)));
        match (place, &self.common) {
            (Place::Common, Some(common)) => common.lock().give_back(len),
            (Place::Own | Place::Common, _) => self.own.give_back(len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;
    const HERE: Device = (8, 1);

    fn path(name: &str) -> Arc<Path> {
        Arc::from(Path::new(name))
    }

    #[test]
    fn one_alone_has_its_part_and_all_that_is_common() {
        let shared = SharedRoom::new(8);
        let (mut first, mut second) = (shared.of(&path("a"), HERE), shared.of(&path("a"), HERE));
        let taken: Vec<Place> = std::iter::from_fn(|| first.take(MIB, false)).collect();
        assert_eq!(taken.len(), 9);
        assert_eq!(taken[..2], [Place::Own, Place::Common]);
        // The other one has its part all the same, and another path is another matter.
        assert_eq!(second.take(MIB, true), Some(Place::Own));
        assert_eq!(second.take(MIB, false), None);
        assert_eq!(shared.of(&path("b"), HERE).take(8 * MIB, false), Some(Place::Common));
        assert_eq!(shared.of(&path("a"), (8, 2)).take(8 * MIB, false), Some(Place::Common));
        // What the first one gives back is the second one's to take.
        first.give_back(taken[5], MIB);
        assert_eq!(second.take(MIB, false), Some(Place::Common));
        assert_eq!(first.take(MIB, false), None);
        first.give_back(taken[0], MIB);
        assert_eq!((second.take(MIB, false), first.take(MIB, false)), (None, Some(Place::Own)));
    }

    #[test]
    fn together_they_have_no_more_than_one() {
        for drivers in [1, 2, 3, 8] {
            let shared = SharedRoom::new(drivers);
            let mut rooms: Vec<Room> = (0..drivers).map(|_| shared.of(&path("a"), HERE)).collect();
            let small: usize =
                rooms.iter_mut().map(|room| std::iter::from_fn(|| room.take(512, false)).count()).sum();
            assert!((OPS_IN_FLIGHT_MAX - drivers..=OPS_IN_FLIGHT_MAX).contains(&small), "{small}");
        }
        let mut whole = Room::whole();
        assert_eq!(std::iter::from_fn(|| whole.take(MIB, false)).count(), BYTES_IN_FLIGHT_MAX / MIB);
    }

    #[test]
    fn a_single_operation_always_runs_however_large_and_nothing_beside_it_in_the_part() {
        let shared = SharedRoom::new(8);
        let (mut hog, mut room) = (shared.of(&path("a"), HERE), shared.of(&path("a"), HERE));
        assert_eq!(hog.take(8 * MIB, true), Some(Place::Common));
        assert_eq!(room.take(8 * MIB, false), None);
        assert_eq!(room.take(8 * MIB, true), Some(Place::Own));
        assert_eq!(room.take(UNCOUNTED_BYTES_MAX + 512, false), None);
        // But what is small: until there are no operations left either.
        let small: Vec<Place> = std::iter::from_fn(|| room.take(UNCOUNTED_BYTES_MAX, false)).collect();
        assert_eq!(small.len(), OPS_IN_FLIGHT_MAX / 16 - 1 + OPS_IN_FLIGHT_MAX / 2 - 1);
        for place in small {
            room.give_back(place, UNCOUNTED_BYTES_MAX);
        }
        room.give_back(Place::Own, 8 * MIB);
        assert_eq!(room.take(MIB, false), Some(Place::Own));
    }

    #[test]
    fn a_path_that_nobody_works_on_any_more_is_forgotten_with_what_was_taken() {
        let shared = SharedRoom::new(2);
        let mut room = shared.of(&path("a"), HERE);
        while room.take(MIB, false).is_some() {}
        drop(room);
        assert_eq!(shared.of(&path("a"), HERE).take(8 * MIB, false), Some(Place::Common));
        assert_eq!(shared.paths.lock().unwrap().len(), 1);
    }
}
