//! Writes of formats and of requests for leases that may still land: nothing is formatted over them before they have.
//!
//! A format that was answered with -202 is not over, nor is one that failed in a way that leaves open whether it is carried out
//! ([`IoFailure::leaves_doubt`](sanlock_lease::machine::IoFailure::leaves_doubt)). A later one that succeeded could be overwritten by it,
//! when somebody already holds a lease there. Nor is what is formatted to get a request that was for what was there before: its owner would be asked,
//! or killed, for a version that it has never had.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sanlock_wire::types::Disk;

use crate::oneshot::{Io, ToolError};

/// Bytes of the largest area (disk-format.md 2).
const AREA_BYTES_MAX: u64 = 8 << 20;

/// Disks with a format in doubt. With more of them none is formatted at all until one is over.
const DOUBTS_MAX: usize = 1024;

/// A place that is written to: a path, and the byte offset of the area on it if nothing else is touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    path: Vec<u8>,
    area: Option<u64>,
}

impl Spot {
    /// The areas that begin there; an empty path for one that is none.
    pub(crate) fn areas(disks: &[Disk]) -> Vec<Self> {
        let path = |disk: &Disk| disk.path.path().map_or_else(|_| Vec::new(), <[u8]>::to_vec);
        disks.iter().map(|disk| Self { path: path(disk), area: Some(disk.offset.get()) }).collect()
    }

    /// Anywhere on it.
    pub(super) fn anywhere(path: Vec<u8>) -> Self {
        Self { path, area: None }
    }

    /// Whether what is formatted there may reach the area of the other one.
    fn reaches(&self, other: &Self) -> bool {
        let beyond = |area: u64| {
            other.area.is_some_and(|at| !(area..area.saturating_add(AREA_BYTES_MAX)).contains(&at))
        };
        self.path == other.path && !self.area.is_some_and(beyond)
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Late(Mutex<State>);

#[derive(Default)]
struct State {
    /// What formats left behind. Each has a call under way that has its place among those of commands
    /// ([`sanlock_blockio::Asker::calls_max`]), so there are no more than these, of one device no more than half, and formats elsewhere go on.
    formats: Vec<Format>,
    /// Until when what has ended may land, and on which disk.
    doubts: Vec<(Vec<u8>, Instant)>,
    /// Disks of commands on resource indexes that see to their late writes themselves.
    indexes: Vec<Vec<u8>>,
    /// Where formats are under way.
    running: Vec<Spot>,
    /// Of which some are under way, and of others writes.
    requests: Vec<Request>,
    last_request: u64,
}

/// A request for a lease that is being written.
struct Request {
    number: u64,
    spots: Vec<Spot>,
    state: Requesting,
}

/// How far it is.
enum Requesting {
    /// Somebody is writing it.
    Writing,
    /// Nobody waits for it any more; what ends in doubt may land for so long from then on.
    Late(Io, Duration),
    /// It may land until then.
    Doubtful(Instant),
}

impl Request {
    /// Whether it may still land.
    fn settle(&mut self, now: Instant) -> bool {
        if let Requesting::Late(io, doubt) = &mut self.state {
            if io.collect_late() > 0 {
                return true;
            }
            let Some(since) = io.in_doubt_since() else { return false };
            self.state = Requesting::Doubtful(since + *doubt);
        }
        !matches!(self.state, Requesting::Doubtful(until) if until <= now)
    }

    /// Why a format waits for it.
    fn blocks(&self, spot: &Spot, now: Instant) -> ToolError {
        let path = shown(&spot.path);
        match self.state {
            Requesting::Writing | Requesting::Late(..) => ToolError::LateFormat { path },
            Requesting::Doubtful(until) => {
                ToolError::FormatInDoubt { path, secs: until.saturating_duration_since(now).as_secs() + 1 }
            }
        }
    }
}

/// A format with a write that has not ended.
struct Format {
    paths: Vec<Vec<u8>>,
    io: Io,
    doubt: Duration,
}

impl State {
    /// Keeps only what may still land.
    fn settle(&mut self, now: Instant) {
        let doubts = &mut self.doubts;
        self.formats.retain_mut(|format| {
            let outstanding = format.io.collect_late() > 0;
            if !outstanding {
                begin_doubt(doubts, format);
            }
            outstanding
        });
        doubts.retain(|(_, until)| *until > now);
        self.requests.retain_mut(|request| request.settle(now));
    }

    /// A format is not under way any more.
    fn leave(&mut self, spots: &[Spot]) {
        for spot in spots {
            if let Some(at) = self.running.iter().position(|running| running == spot) {
                self.running.swap_remove(at);
            }
        }
    }

    /// See [`Late::blocks`].
    fn blocks(&mut self, spots: &[Spot]) -> Option<ToolError> {
        let now = Instant::now();
        self.settle(now);
        if let Some(blocked) = self.format_at(spots, now) {
            return Some(blocked);
        }
        let in_the_way = |spot: &Spot| {
            let reached = |request: &&Request| request.spots.iter().any(|other| spot.reaches(other));
            self.requests.iter().find(reached)
        };
        let (spot, request) = spots.iter().find_map(|spot| Some((spot, in_the_way(spot)?)))?;
        Some(request.blocks(spot, now))
    }

    /// A format that is under way in one of these places, or of which something may still land on one of these disks.
    fn format_at(&self, spots: &[Spot], now: Instant) -> Option<ToolError> {
        // A second one of the same place, while the client of the first has given it up: what lands last would be what is there.
        if let Some(spot) = spots.iter().find(|spot| self.running.contains(spot)) {
            return Some(ToolError::LateFormat { path: shown(&spot.path) });
        }
        let outstanding = |spot: &&Spot| {
            self.indexes.contains(&spot.path)
                || self.formats.iter().any(|format| format.paths.contains(&spot.path))
        };
        if let Some(spot) = spots.iter().find(outstanding) {
            return Some(ToolError::LateFormat { path: shown(&spot.path) });
        }
        let full = !spots.is_empty() && self.doubts.len() > DOUBTS_MAX;
        let of_these = |path: &Vec<u8>| spots.iter().any(|spot| spot.path == *path);
        let (path, until) = self.doubts.iter().find(|(path, _)| full || of_these(path))?;
        Some(ToolError::FormatInDoubt { path: shown(path), secs: (*until - now).as_secs() + 1 })
    }
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// Nothing of it is outstanding any more, but perhaps in doubt.
fn begin_doubt(doubts: &mut Vec<(Vec<u8>, Instant)>, format: &mut Format) {
    let Some(since) = format.io.in_doubt_since() else { return };
    let until = since + format.doubt;
    for path in format.paths.drain(..) {
        match doubts.iter_mut().find(|(of, _)| *of == path) {
            Some((_, known)) => *known = until.max(*known),
            None => doubts.push((path, until)),
        }
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

    /// Why a format of these has to wait, if it has; otherwise it is under way from now on, until [`Late::keep`].
    pub(super) fn enter(&self, spots: &[Spot]) -> Result<(), ToolError> {
        let mut late = self.lock();
        if let Some(blocked) = late.blocks(spots) {
            return Err(blocked);
        }
        late.running.extend(spots.iter().filter(|spot| spot.area.is_some()).cloned());
        Ok(())
    }

    /// Why a command that writes there has to wait, if it has.
    pub(super) fn blocks(&self, spots: &[Spot]) -> Option<ToolError> {
        self.lock().blocks(spots)
    }

    /// Keeps what a format may have left behind: what ended in doubt may land for so long from then on.
    pub(super) fn keep(&self, spots: Vec<Spot>, io: Io, doubt: Duration) {
        let mut late = self.lock();
        late.leave(&spots);
        late.formats.push(Format { paths: spots.into_iter().map(|spot| spot.path).collect(), io, doubt });
        late.settle(Instant::now());
    }

    /// A request for a lease begins, which will be written in these areas. Its number.
    ///
    /// # Errors
    /// A format is under way there, or may still land: what the request is for is going to be something else.
    pub(crate) fn begin_request(&self, spots: Vec<Spot>) -> Result<u64, ToolError> {
        let mut late = self.lock();
        let now = Instant::now();
        late.settle(now);
        if let Some(blocked) = late.format_at(&spots, now) {
            return Err(blocked);
        }
        late.last_request += 1;
        let number = late.last_request;
        late.requests.push(Request { number, spots, state: Requesting::Writing });
        Ok(number)
    }

    /// Nobody waits for it any more.
    pub(crate) fn end_request(&self, number: u64, io: Io, doubt: Duration) {
        let mut late = self.lock();
        if let Some(request) = late.requests.iter_mut().find(|request| request.number == number) {
            request.state = Requesting::Late(io, doubt);
        }
        late.settle(Instant::now());
    }

    /// Writes of a command on an index may land on this disk until [`Late::end`].
    pub(super) fn begin(&self, path: Vec<u8>) {
        self.lock().indexes.push(path);
    }

    /// They no longer may.
    pub(super) fn end(&self, path: &[u8]) {
        let mut late = self.lock();
        if let Some(at) = late.indexes.iter().position(|late| late == path) {
            late.indexes.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(path: &str, area: u64) -> Spot {
        Spot { path: path.into(), area: Some(area) }
    }

    fn io() -> Io {
        Io::new(sanlock_blockio::EngineKind::Threads, crate::oneshot::Limits::default()).unwrap()
    }

    #[test]
    fn a_place_is_formatted_by_one_at_a_time() {
        let late = Late::default();
        let spots = vec![spot("a", 0), spot("b", 0)];
        late.enter(&spots).unwrap();
        assert!(matches!(late.enter(&[spot("b", 0)]), Err(ToolError::LateFormat { .. })));
        late.enter(&[spot("b", 1 << 20)]).unwrap();
        // Indexes see to it by their lease.
        for _ in 0..2 {
            late.enter(&[Spot::anywhere("b".into())]).unwrap();
        }
        assert!(late.begin_request(spots.clone()).is_err(), "it would be for what is formatted");
        late.keep(spots.clone(), io(), Duration::from_secs(600));
        late.enter(&spots).unwrap();
    }

    #[test]
    fn a_format_waits_for_a_request_in_its_area_and_nothing_else_does() {
        const AREA: u64 = 32 << 20;
        let late = Late::default();
        let number = late.begin_request(vec![spot("a", AREA), spot("b", 0)]).unwrap();
        let blocked = |spot: Spot| matches!(late.blocks(&[spot]), Some(ToolError::LateFormat { .. }));
        // The lease, one that would end behind it, and whatever an operation on an index may format.
        for spot in [spot("a", AREA), spot("a", AREA - AREA_BYTES_MAX + 1), spot("b", 0)] {
            assert!(blocked(spot.clone()), "{spot:?}");
        }
        assert!(blocked(Spot::anywhere("a".into())));
        for spot in [spot("a", AREA - AREA_BYTES_MAX), spot("a", AREA + 1), spot("c", AREA)] {
            assert!(!blocked(spot.clone()), "{spot:?}");
        }
        // It has ended, and left nothing behind.
        late.end_request(number, io(), Duration::from_secs(600));
        assert!(late.blocks(&[spot("a", AREA), spot("b", 0)]).is_none());
        assert!(late.lock().requests.is_empty());
    }
}
