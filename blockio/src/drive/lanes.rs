//! The engines of a driver, one for each path in use: which one an operation goes to, and what the driver's owner can do for them.
//!
//! A lane with work is never dropped; an engine without work is dropped after a while, or stays, as the owner wishes.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use sanlock_lease::machine::IoFailure;
use sanlock_lease::timing::MonoTime;

use super::buffers::Buffers;
use super::event::EngineFactory;
use super::lane::{Ended, Flight, LANES_MAX, Lane, Transfer};
use super::report::{RunId, Spare};
use super::room::{Room, SharedRoom};
use crate::disk::Disk;
use crate::engine::Completion;
use crate::errand::Errand;
use crate::error::EngineError;

/// See the module.
pub(super) struct Lanes {
    engines: EngineFactory,
    epoll: Epoll,
    lanes: Vec<Lane>,
    /// Engines only queue, and the owner asks for an errand after each turn, of which there is none after a call of this length.
    deferring: Option<Duration>,
    /// Whether engines stay when they have no work.
    keeping: bool,
    /// With whom it shares what a path may have in flight.
    room: Option<Arc<SharedRoom>>,
    scratch: Vec<Completion>,
}

impl Lanes {
    /// None yet; `engines` makes the engine of each.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] when no descriptor is to be had.
    pub(super) fn new(engines: EngineFactory) -> Result<Self, EngineError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|errno| {
            EngineError::Unavailable { engine: "any", call: "epoll_create1", errno: errno as i32 }
        })?;
        Ok(Self {
            engines,
            epoll,
            lanes: Vec::new(),
            deferring: None,
            keeping: false,
            room: None,
            scratch: Vec::new(),
        })
    }

    /// See [`super::Driver::share`].
    pub(super) fn share(&mut self, room: Arc<SharedRoom>) {
        self.room = Some(room);
    }

    /// See [`super::Driver::keep_engines`].
    pub(super) fn keep(&mut self) {
        self.keeping = true;
    }

    /// See [`super::Driver::defer`].
    pub(super) fn defer(&mut self, slow: Duration) {
        self.deferring = Some(slow);
        for lane in &mut self.lanes {
            lane.engine.defer(slow);
        }
    }

    /// Whether the owner carries operations out.
    pub(super) fn are_deferring(&self) -> bool {
        self.deferring.is_some()
    }

    /// See [`super::Driver::errand`].
    pub(super) fn errand(&mut self, spare: Spare) -> Option<Errand> {
        let mut busy = self.lanes.iter_mut().filter(|lane| lane.in_engine() > 0);
        if let (Spare::Alone, Some(lane), None) = (spare, busy.next(), busy.next()) {
            if lane.engine.is_one_call() {
                if let Some(errand) = lane.engine.errand() {
                    return Some(errand);
                }
            }
        }
        let mut errand = None;
        for lane in &mut self.lanes {
            if !lane.engine.start() {
                continue;
            }
            let only = match spare {
                // What is left waits for whoever comes here next, which is soon.
                Spare::LastResort | Spare::Alone => {
                    errand = errand.or_else(|| lane.last_resort(None));
                    continue;
                }
                Spare::Only(run) => Some(run),
                Spare::Nothing => None,
            };
            if only.is_some() && errand.is_none() {
                errand = lane.last_resort(only);
            }
            // Nothing is to happen after a call that may last for any time.
            lane.engine.refuse();
        }
        errand
    }

    /// Whether no operation is under way.
    pub(super) fn are_quiet(&self) -> bool {
        self.lanes.iter().all(|lane| lane.in_engine() == 0)
    }

    /// Whether engines stay without work.
    pub(super) fn are_keeping(&self) -> bool {
        self.keeping
    }

    /// Whether a machine waits for an operation, or one waits to begin: one that has not ended in time nobody waits for.
    pub(super) fn are_waited_for(&self) -> bool {
        self.lanes.iter().any(Lane::is_waited_for)
    }

    /// Becomes readable when operations of any engine have ended.
    pub(super) fn completion_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }

    /// The next time at which something is to be done here if no operation ends before.
    pub(super) fn next_wake(&self) -> Option<MonoTime> {
        let deadlines = self.lanes.iter().filter_map(Lane::next_deadline);
        let idle = self.lanes.iter().filter(|_| !self.keeping).filter_map(Lane::drop_at);
        let places = self.lanes.iter().filter_map(Lane::retry_at);
        deadlines.chain(idle).chain(places).min()
    }

    /// Takes what has ended or is overdue, and starts what has room now.
    pub(super) fn collect(
        &mut self,
        now: MonoTime,
        buffers: &mut Buffers,
        ended: &mut Vec<Ended>,
        overdue: &mut Vec<Flight>,
    ) {
        for lane in &mut self.lanes {
            lane.reap(now, &mut self.scratch, ended);
            lane.expire(now, buffers, ended, overdue);
            lane.refill(now, buffers);
        }
    }

    /// Takes back the writes of these machines that have not been handed to the kernel. `of` is in ascending order.
    pub(super) fn withdraw_writes(&mut self, of: &[RunId], buffers: &mut Buffers, ended: &mut Vec<Ended>) {
        let which = |flight: &Flight| flight.write && of.binary_search(&flight.run).is_ok();
        for lane in &mut self.lanes {
            lane.withdraw(&which, buffers, ended);
        }
    }

    /// Starts an operation, or queues it.
    ///
    /// # Errors
    /// It is not going to happen: too many wait for the path (`EAGAIN`), too many paths are in use (`EMFILE`), or there is no engine.
    pub(super) fn push(
        &mut self,
        flight: Flight,
        transfer: Transfer,
        buffers: &mut Buffers,
        now: MonoTime,
    ) -> Result<(), IoFailure> {
        let at = self.of(&transfer.disk, now)?;
        self.lanes.get_mut(at).ok_or(IoFailure::Os(libc::EINVAL))?.push(flight, transfer, buffers, now)
    }

    /// The lane of a disk's path on its device, with a new engine if there is none.
    fn of(&mut self, disk: &Arc<Disk>, now: MonoTime) -> Result<usize, IoFailure> {
        let is_there = |lane: &Lane| lane.device == disk.device() && *lane.path == *disk.path();
        if let Some(at) = self.lanes.iter().position(is_there) {
            return Ok(at);
        }
        if self.lanes.len() >= LANES_MAX {
            let idle = self.lanes.iter().position(Lane::is_idle).ok_or(IoFailure::Os(libc::EMFILE))?;
            self.drop_lane(idle);
        }
        let engine = (self.engines)().map_err(|error| match error {
            EngineError::Unavailable { errno, .. } => IoFailure::Os(errno),
            EngineError::Unknown { .. } => IoFailure::Os(libc::EINVAL),
        })?;
        self.epoll
            .add(engine.completion_fd(), EpollEvent::new(EpollFlags::EPOLLIN, 0))
            .map_err(|errno| IoFailure::Os(errno as i32))?;
        let of = |shared: &Arc<SharedRoom>| shared.of(&disk.shared_path(), disk.device());
        let room = self.room.as_ref().map_or_else(Room::whole, of);
        let mut lane = Lane::new(disk, engine, room, now);
        if let Some(slow) = self.deferring {
            lane.engine.defer(slow);
        }
        self.lanes.push(lane);
        Ok(self.lanes.len() - 1)
    }

    fn drop_lane(&mut self, at: usize) {
        let lane = self.lanes.swap_remove(at);
        // Explicitly: a thread of the engine may keep the descriptor open a moment longer.
        let _ = self.epoll.delete(lane.engine.completion_fd());
    }

    /// Drops engines that have had no work for long.
    pub(super) fn drop_idle(&mut self, now: MonoTime) {
        if self.keeping {
            return;
        }
        let mut at = 0;
        while let Some(lane) = self.lanes.get(at) {
            if lane.drop_at().is_some_and(|when| when <= now) {
                self.drop_lane(at);
            } else {
                at += 1;
            }
        }
    }
}
