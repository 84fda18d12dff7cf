//! Writes of formats, of commands on indexes, and of requests for leases, until they can land no more: nothing is formatted, and no lease taken, where
//! they may.
//!
//! A format that was answered with -202 is not over, nor is one that failed in a way that leaves open whether it is carried out
//! ([`IoFailure::leaves_doubt`](sanlock_lease::machine::IoFailure::leaves_doubt)). A later one that succeeded could be overwritten by it,
//! when somebody already holds a lease there; and a lease that is taken, or a lockspace that is joined, while its area is being formatted or still may be,
//! would be free for others beside its holder. Nor is what is formatted to get a request that was for what was there before: its owner would be asked,
//! or killed, for a version that it has never had.

mod spot;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::oneshot::{Io, ToolError};
use sanlock_blockio::AlignedBuf;
use spot::Overlap;
pub(crate) use spot::{AREA_BYTES_MIN, Spot, in_common};

/// Formats in doubt, of which there is about one for each disk. With more of them none is formatted at all until one is over.
const DOUBTS_MAX: usize = 1024;

/// What a command writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Formats areas.
    Format,
    /// Changes a resource index: its own place, and areas behind it. What keeps two of this kind apart is the lease of the index, or who asks for it
    /// without.
    Index,
    /// What is still to land of one, anywhere on its disk.
    IndexSettling,
    /// A request for a lease, or whatever else is begun with one, or with a lockspace: the same keeps them away.
    Request,
}

/// How far something is.
enum Stage {
    /// Somebody waits for it, or carries it out.
    UnderWay,
    /// It has a call under way, of which nobody is told any more; what ends in doubt may land for so long from then on. The call has its place among
    /// those of commands ([`sanlock_blockio::Asker::calls_max`]), so there are no more than these, of one device no more than half.
    Late(Io, Duration),
    /// It may land until then, as it is in these buffers.
    Doubtful(Instant, #[expect(dead_code, reason = "kept from others")] Vec<AlignedBuf>),
}

/// Something that is written, or may still be.
struct Writing {
    number: u64,
    kind: Kind,
    spots: Vec<Spot>,
    stage: Stage,
}

impl Writing {
    /// Whether it may still land.
    fn settle(&mut self, now: Instant) -> bool {
        if let Stage::Late(io, doubt) = &mut self.stage {
            if io.collect_late() > 0 {
                return true;
            }
            let Some(since) = io.in_doubt_since() else { return false };
            self.stage = Stage::Doubtful(since + *doubt, io.take_in_doubt());
        }
        !matches!(self.stage, Stage::Doubtful(until, _) if until <= now)
    }

    /// Where it keeps away from what somebody is about to begin; `None`: nowhere.
    fn keeps_away(&self, other: Kind) -> Option<Overlap> {
        match (other, self.kind, &self.stage) {
            (Kind::Request, Kind::Format, _) => Some(Overlap::Certain),
            // Two requests, or one and a lease, are kept apart by the lease's own rules, and an index's lease by the manager.
            (Kind::Request, ..) | (Kind::Index, Kind::Index, Stage::UnderWay) => None,
            // Neighbours may be formatted at one time.
            (_, Kind::Format | Kind::Index, Stage::UnderWay) => Some(Overlap::Certain),
            (_, Kind::Request, _) => Some(Overlap::Possible),
            // Its disk is the one that fails.
            (_, Kind::Format | Kind::Index | Kind::IndexSettling, _) => Some(Overlap::SameDisk),
        }
    }

    /// Why who comes to this place waits for it.
    fn blocks(&self, spot: &Spot, now: Instant) -> ToolError {
        let path = spot.shown();
        match self.doubtful_for(now) {
            None => ToolError::LateFormat { path },
            Some(secs) => ToolError::FormatInDoubt { path, secs },
        }
    }

    /// For how many seconds it may land although it has ended.
    fn doubtful_for(&self, now: Instant) -> Option<u64> {
        match self.stage {
            Stage::Doubtful(until, _) => Some(until.saturating_duration_since(now).as_secs() + 1),
            Stage::UnderWay | Stage::Late(..) => None,
        }
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Late(Mutex<State>);

#[derive(Default)]
struct State {
    writings: Vec<Writing>,
    last: u64,
}

impl State {
    /// Keeps only what may still land.
    fn settle(&mut self, now: Instant) {
        self.writings.retain_mut(|writing| writing.settle(now));
    }

    /// Its number.
    fn begin(&mut self, kind: Kind, spots: Vec<Spot>) -> u64 {
        self.last += 1;
        self.writings.push(Writing { number: self.last, kind, spots, stage: Stage::UnderWay });
        self.last
    }

    /// Why this has to wait, if it has: for any but its own number.
    fn blocks(&mut self, own: Option<u64>, kind: Kind, spots: &[Spot]) -> Option<ToolError> {
        let now = Instant::now();
        self.settle(now);
        let others = || self.writings.iter().filter(|writing| Some(writing.number) != own);
        let meets = |writing: &Writing| {
            let sure = writing.keeps_away(kind)?;
            spots.iter().find(|spot| writing.spots.iter().any(|other| spot.overlaps(other, sure)))
        };
        let met = others().find_map(|writing| Some((writing, meets(writing)?)));
        if let Some((writing, spot)) = met {
            return Some(writing.blocks(spot, now));
        }
        let doubtful = |writing: &&Writing| {
            matches!((writing.kind, &writing.stage), (Kind::Format, Stage::Doubtful(..)))
        };
        let first = others().find(doubtful)?;
        let full = kind == Kind::Format && others().filter(doubtful).count() > DOUBTS_MAX;
        full.then(|| first.spots.first().map(|spot| first.blocks(spot, now))).flatten()
    }
}

impl Late {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what can land no more, and lets go of its disks. Never waits.
    pub(crate) fn settle(&self) {
        self.lock().settle(Instant::now());
    }

    /// Whether there is a write that has not ended.
    pub(crate) fn is_writing(&self) -> bool {
        let mut late = self.lock();
        late.settle(Instant::now());
        late.writings.iter().any(|writing| !matches!(writing.stage, Stage::Doubtful(..)))
    }

    /// The disks that a command has written to in doubt, and the seconds until that is over.
    pub(crate) fn in_doubt(&self) -> Vec<(String, u64)> {
        let (now, mut late) = (Instant::now(), self.lock());
        late.settle(now);
        let each =
            late.writings.iter().filter_map(|writing| Some((writing.doubtful_for(now)?, &writing.spots)));
        each.flat_map(|(secs, spots)| spots.iter().map(move |spot| (spot.shown(), secs))).collect()
    }

    /// Why nothing is begun with a lease in these areas, or a lockspace not joined, if there is a reason.
    pub(crate) fn keeps_from_taking(&self, spots: impl FnOnce() -> Vec<Spot>) -> Option<ToolError> {
        let mut late = self.lock();
        // Nearly always.
        if late.writings.is_empty() {
            return None;
        }
        late.blocks(None, Kind::Request, &spots())
    }

    /// Something is going to be written there. It is under way from now on, until [`Place::keep`] or the end of what is returned.
    ///
    /// # Errors
    /// It has to wait for something that is written there, or may still be.
    pub(crate) fn enter(self: &Arc<Self>, kind: Kind, spots: Vec<Spot>) -> Result<Place, ToolError> {
        let mut late = self.lock();
        match late.blocks(None, kind, &spots) {
            Some(blocked) => Err(blocked),
            None => Ok(Place { late: Arc::clone(self), number: late.begin(kind, spots) }),
        }
    }

    /// The same of something that is written whatever else is.
    pub(super) fn begin(self: &Arc<Self>, kind: Kind, spots: Vec<Spot>) -> Place {
        Place { late: Arc::clone(self), number: self.lock().begin(kind, spots) }
    }
}

/// Something that is under way.
pub(crate) struct Place {
    late: Arc<Late>,
    number: u64,
}

impl Place {
    /// Why it has to wait, if something that had begun before has turned out to be in its way.
    pub(super) fn blocked(&self) -> Option<ToolError> {
        let mut late = self.late.lock();
        let own = late.writings.iter().find(|writing| writing.number == self.number)?;
        let (kind, spots) = (own.kind, own.spots.clone());
        late.blocks(Some(self.number), kind, &spots)
    }

    /// It is over, but for what it may have left behind: what ended in doubt may land for so long from then on.
    pub(crate) fn keep(self, io: Io, doubt: Duration) {
        let mut late = self.late.lock();
        if let Some(own) = late.writings.iter_mut().find(|writing| writing.number == self.number) {
            own.stage = Stage::Late(io, doubt);
        }
        late.settle(Instant::now());
    }
}

impl Drop for Place {
    /// Nothing was written, or nothing of it can land any more.
    fn drop(&mut self) {
        let under_way = |writing: &Writing| matches!(writing.stage, Stage::UnderWay);
        self.late.lock().writings.retain(|writing| writing.number != self.number || !under_way(writing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanlock_wire::types::Disk;

    const AREA: u64 = 32 << 20;
    const DOUBT: Duration = Duration::from_secs(600);

    fn spot(path: &str, area: u64) -> Spot {
        Spot::areas(&Disk::new(path.as_bytes(), area).unwrap(), 1, None)
    }

    fn anywhere(path: &str) -> Spot {
        Spot::anywhere(path.into())
    }

    fn io() -> Io {
        Io::new(sanlock_blockio::EngineKind::Threads, crate::oneshot::Limits::default()).unwrap()
    }

    #[test]
    fn a_place_is_formatted_by_one_at_a_time() {
        let late = Arc::new(Late::default());
        let format = |spots: &[Spot]| late.enter(Kind::Format, spots.to_vec());
        let spots = [spot("a", 0), spot("b", 0)];
        let first = format(&spots).unwrap();
        assert!(matches!(format(&[spot("b", 0)]), Err(ToolError::LateFormat { .. })));
        let neighbour = format(&[spot("b", 1 << 20)]).unwrap();
        // Indexes see to it by their lease, and an index is not formatted meanwhile.
        let index = || vec![anywhere("b"), spot("b", 4 << 20)];
        let indexes = [(); 2].map(|()| late.enter(Kind::Index, index()).unwrap());
        assert!(format(&[spot("b", 4 << 20)]).is_err());
        assert!(
            late.enter(Kind::Request, spots.to_vec()).is_err(),
            "it would be for what is going to be formatted"
        );
        assert!(first.blocked().is_none(), "not by itself, nor by what it allows");
        first.keep(io(), DOUBT);
        drop((neighbour, indexes));
        assert!(late.lock().writings.is_empty());
        // One that was not begun after all.
        drop(format(&spots).unwrap());
        format(&spots).unwrap();
    }

    #[test]
    fn nothing_is_taken_where_a_format_may_land() {
        let late = Arc::new(Late::default());
        let kept = |area| late.keeps_from_taking(|| vec![spot("c", area), spot("a", area)]).is_some();
        let format = late.enter(Kind::Format, vec![spot("a", AREA)]).unwrap();
        assert!(kept(AREA));
        // Other leases on its disk are not refused because of it, nor for an index or for a request.
        for area in [AREA - AREA_BYTES_MIN, AREA + AREA_BYTES_MIN] {
            assert!(!kept(area));
        }
        drop(format);
        let _index = late.begin(Kind::IndexSettling, vec![anywhere("a")]);
        assert!(late.enter(Kind::Index, vec![anywhere("a")]).is_err());
        let _request = late.enter(Kind::Request, vec![spot("a", AREA)]).unwrap();
        assert!(!kept(AREA));
    }

    #[test]
    fn a_format_waits_for_a_request_in_its_area_and_nothing_else_does() {
        let late = Arc::new(Late::default());
        let small = |path: &str, area| Spot::new(path.into(), area, AREA_BYTES_MIN);
        let request = late.enter(Kind::Request, vec![small("a", AREA), small("b", 0)]).unwrap();
        let blocked =
            |kind, spot: Spot| matches!(late.enter(kind, vec![spot]), Err(ToolError::LateFormat { .. }));
        // The lease, one that would end behind it, and whatever an operation on an index may format.
        for spot in [spot("a", AREA), spot("a", AREA - (7 << 20)), spot("b", 0)] {
            assert!(blocked(Kind::Format, spot.clone()), "{spot:?}");
        }
        assert!(blocked(Kind::Index, anywhere("a")));
        for spot in [spot("a", AREA - (8 << 20)), spot("a", AREA + AREA_BYTES_MIN), spot("c", AREA)] {
            assert!(!blocked(Kind::Format, spot.clone()), "{spot:?}");
        }
        assert!(!blocked(Kind::Request, spot("a", AREA)));
        // It has ended, and left nothing behind.
        request.keep(io(), DOUBT);
        assert!(late.lock().writings.is_empty());
    }
}
