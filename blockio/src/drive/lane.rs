//! One engine for one path, with what runs on it and what waits for it.
//!
//! A dead disk pins the operations on it for as long as it is silent. Everything that could run out by that is counted per
//! path: operations, bytes of buffers, places in the queue. So it delays operations on the same path only.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use sanlock_lease::geometry::SectorSize;
use sanlock_lease::machine::{Content, IoFailure, OpId};
use sanlock_lease::timing::MonoTime;

use super::buffers::Buffers;
use super::report::RunId;
use super::room::{Place, Room, is_small};
use crate::buffer::AlignedBuf;
use crate::calls::{CallPlace, RETRY_MS};
use crate::disk::Disk;
use crate::engine::{Completion, Engine, IoRequest, Ticket};
use crate::errand::Errand;
use crate::error::Op as Direction;
use crate::opens::Asker;
use crate::stat::Device;

/// Operations waiting for one path; further ones fail at once with `EAGAIN`.
pub const OPS_WAITING_MAX: usize = 4096;

/// Paths in use at a time, stuck ones included; operations on further ones fail with `EMFILE`.
pub const LANES_MAX: usize = 1024;

// As many paths as there are places for calls may hang, and others have to go on beside them.
const _: () = assert!(LANES_MAX >= 2 * Asker::Lease.calls_max());

/// How long an engine without work is kept, in milliseconds.
pub const IDLE_ENGINE_LINGER_MS: u64 = 5_000;

/// An operation on its way: what to tell whom when it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) run: RunId,
    pub(super) op: OpId,
    pub(super) deadline: MonoTime,
    /// Among whose calls it counts; `None`: it goes before all that are counted.
    pub(super) asker: Option<Asker>,
    pub(super) write: bool,
    pub(super) timed_out: bool,
    /// For how long, in milliseconds, it may be in doubt; 0: it may not.
    pub(super) doubt_ms: u64,
    /// Index of the first sector, and the sector size, for the view of a read.
    pub(super) first: u64,
    pub(super) size: SectorSize,
}

/// The transfer of an operation, before it has a buffer.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) disk: Arc<Disk>,
    pub(super) offset: u64,
    pub(super) len: usize,
    /// What to write; `None` for a read.
    pub(super) content: Option<Box<Content>>,
}

/// An operation that has ended, or was given up before it began.
pub(super) enum Ended {
    /// The engine reports it.
    Completed(Flight, Completion),
    /// It waited until its deadline, for a place among the calls that may be under way, for room on its path, for memory or for a thread, or was taken back
    /// before: it was never begun, and will not be.
    NeverStarted(Flight),
}

/// See the module.
pub(super) struct Lane {
    pub(super) path: Arc<Path>,
    /// What is there: another file system at the same path has a lane of its own.
    pub(super) device: Device,
    pub(super) engine: Box<dyn Engine>,
    flights: Vec<(Ticket, Flight, Place)>,
    waiting: VecDeque<(Flight, Transfer)>,
    room: Room,
    idle_since: MonoTime,
    /// When to look again for a place, for common room or for memory, for what waits.
    retry_at: Option<MonoTime>,
}

/// What an operation needs to begin.
struct Admitted {
    room: Place,
    call: Option<CallPlace>,
    buf: AlignedBuf,
}

/// Why an operation waits.
enum Waits {
    /// For another one of its path to end, of this driver or of another one.
    Room,
    /// For a place among the calls of its asker, which anybody may give back.
    Place,
    /// For memory, likewise.
    Memory,
}

impl Lane {
    pub(super) fn new(disk: &Disk, engine: Box<dyn Engine>, room: Room, now: MonoTime) -> Self {
        let (path, device) = (disk.shared_path(), disk.device());
        let (flights, waiting) = (Vec::new(), VecDeque::new());
        Self { path, device, engine, flights, waiting, room, idle_since: now, retry_at: None }
    }

    /// Starts an operation, or queues it. `Err` when the queue is full.
    pub(super) fn push(
        &mut self,
        flight: Flight,
        transfer: Transfer,
        buffers: &mut Buffers,
        now: MonoTime,
    ) -> Result<(), IoFailure> {
        // What is not counted waits for nothing that waits for a place, and what is small for nothing that waits for room.
        let passes = is_small(transfer.len) && self.waiting.iter().all(|(_, other)| !is_small(other.len));
        if flight.asker.is_none() || passes || self.waiting.is_empty() {
            let idle = self.is_idle_for(transfer.len);
            match Self::admit(&mut self.room, idle, &flight, &transfer, buffers) {
                Ok(admitted) => {
                    self.submit(flight, transfer, admitted);
                    return Ok(());
                }
                Err(Waits::Place | Waits::Memory) => self.retry_at = Some(now.plus_millis(RETRY_MS)),
                Err(Waits::Room) => self.look_for_room(now),
            }
        }
        if self.waiting.len() >= OPS_WAITING_MAX {
            return Err(IoFailure::Os(libc::EAGAIN));
        }
        self.waiting.push_back((flight, transfer));
        Ok(())
    }

    /// Whether nothing is in flight that one of this length has to wait for: a large one only waits for large ones, since small ones may follow
    /// each other without an end.
    fn is_idle_for(&self, len: usize) -> bool {
        if is_small(len) { self.flights.is_empty() } else { !self.room.has_large() }
    }

    /// Takes what an operation needs to begin: all of it, or nothing.
    fn admit(
        room: &mut Room,
        idle: bool,
        flight: &Flight,
        transfer: &Transfer,
        buffers: &mut Buffers,
    ) -> Result<Admitted, Waits> {
        let own = room.take(transfer.len, idle).ok_or(Waits::Room)?;
        let call = match flight.asker {
            None => Ok(None),
            Some(asker) => CallPlace::take(asker, &transfer.disk).map(Some).ok_or(Waits::Place),
        };
        let both = call.and_then(|call| Ok((call, buffers.take(transfer.len).ok_or(Waits::Memory)?)));
        match both {
            Ok((call, buf)) => Ok(Admitted { room: own, call, buf }),
            Err(why) => {
                room.give_back(own, transfer.len);
                Err(why)
            }
        }
    }

    fn submit(&mut self, flight: Flight, transfer: Transfer, admitted: Admitted) {
        let Transfer { disk, offset, len, content } = transfer;
        let Admitted { room, call: place, mut buf } = admitted;
        let op = match content {
            Some(content) => {
                // Machines write one whole sector, and encoding fills all of it.
                content.encode(buf.get_mut(..len).unwrap_or_default());
                Direction::Write
            }
            None => Direction::Read,
        };
        let (of, until) = (flight.run.0, Some(flight.deadline));
        let ticket = self.engine.submit(IoRequest { op, disk, offset, len, buf, place, of, until });
        self.flights.push((ticket, flight, room));
    }

    /// What waits for room goes on when an operation of this lane ends, or when another driver has given back what is common.
    fn look_for_room(&mut self, now: MonoTime) {
        if self.room.is_shared() {
            self.retry_at = Some(now.plus_millis(RETRY_MS));
        }
    }

    /// Moves waiting operations into the engine as far as there is room.
    pub(super) fn refill(&mut self, now: MonoTime, buffers: &mut Buffers) {
        self.retry_at = None;
        let (mut places_are_out, mut bytes_are_out) = (false, false);
        let mut at = 0;
        while let Some((flight, transfer)) = self.waiting.get(at) {
            // Once one has found no place, the others that are counted would find none either. Of memory there may be enough for a smaller one.
            if (places_are_out && flight.asker.is_some()) || (bytes_are_out && !is_small(transfer.len)) {
                at += 1;
                continue;
            }
            let (small, idle) = (is_small(transfer.len), self.is_idle_for(transfer.len));
            match Self::admit(&mut self.room, idle, flight, transfer, buffers) {
                Ok(admitted) => {
                    if let Some((flight, transfer)) = self.waiting.remove(at) {
                        self.submit(flight, transfer, admitted);
                    }
                }
                Err(why @ (Waits::Place | Waits::Memory)) => {
                    places_are_out |= matches!(why, Waits::Place);
                    self.retry_at = Some(now.plus_millis(RETRY_MS));
                    at += 1;
                }
                // A smaller one of the large ones does not pass it: it would never have its turn.
                Err(Waits::Room) => {
                    self.look_for_room(now);
                    if small {
                        return;
                    }
                    bytes_are_out = true;
                    at += 1;
                }
            }
        }
    }

    /// Takes what the engine has finished.
    pub(super) fn reap(&mut self, now: MonoTime, scratch: &mut Vec<Completion>, out: &mut Vec<Ended>) {
        self.engine.reap(scratch);
        for done in scratch.drain(..) {
            if let Some(at) = self.flights.iter().position(|(ticket, ..)| *ticket == done.ticket) {
                let (_, flight, place) = self.flights.swap_remove(at);
                self.room.give_back(place, done.len);
                out.push(Ended::Completed(flight, done));
            }
        }
        if !self.is_idle() {
            self.idle_since = now;
        }
    }

    /// Gives up what waited in vain, and marks and lists what is overdue.
    pub(super) fn expire(
        &mut self,
        now: MonoTime,
        buffers: &mut Buffers,
        never_started: &mut Vec<Ended>,
        overdue: &mut Vec<Flight>,
    ) {
        let late = |flight: &Flight| !flight.timed_out && flight.deadline <= now;
        self.withdraw(&late, buffers, never_started);
        for (_, flight, _) in self.flights.iter_mut().filter(|(_, flight, _)| late(flight)) {
            flight.timed_out = true;
            overdue.push(*flight);
        }
    }

    /// Takes back what is to be taken back and has not been handed to the kernel.
    pub(super) fn withdraw(
        &mut self,
        which: &dyn Fn(&Flight) -> bool,
        buffers: &mut Buffers,
        never_started: &mut Vec<Ended>,
    ) {
        self.waiting.retain(|(flight, _)| {
            let taken = which(flight);
            if taken {
                never_started.push(Ended::NeverStarted(*flight));
            }
            !taken
        });
        let mut at = 0;
        while let Some((ticket, flight, _)) = self.flights.get(at) {
            let request = if which(flight) { self.engine.withdraw(*ticket) } else { None };
            let Some(request) = request else {
                at += 1;
                continue;
            };
            let (_, flight, place) = self.flights.swap_remove(at);
            self.room.give_back(place, request.len);
            buffers.give(request.buf);
            never_started.push(Ended::NeverStarted(flight));
        }
    }

    /// The earliest deadline that has not been reported.
    pub(super) fn next_deadline(&self) -> Option<MonoTime> {
        let running =
            self.flights.iter().map(|(_, f, _)| f).filter(|f| !f.timed_out).map(|f| f.deadline).min();
        let waiting = self.waiting.iter().map(|(f, _)| f.deadline).min();
        match (running, waiting) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// An operation that the engine has no thread for, of this run if only that is wanted, for the caller to carry out.
    pub(super) fn last_resort(&mut self, only: Option<RunId>) -> Option<Errand> {
        let flights = &self.flights;
        let wanted = |ticket| {
            only.is_none_or(|run| {
                flights.iter().any(|(known, flight, _)| *known == ticket && flight.run == run)
            })
        };
        self.engine.last_resort(&wanted)
    }

    /// When to look again for places and memory, if operations wait for any.
    pub(super) fn retry_at(&self) -> Option<MonoTime> {
        self.retry_at.filter(|_| !self.waiting.is_empty())
    }

    /// Operations in the engine.
    pub(super) fn in_engine(&self) -> usize {
        self.flights.len()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.flights.is_empty() && self.waiting.is_empty()
    }

    /// Whether something is under way, or waits, that a machine waits for.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty() || self.flights.iter().any(|(_, flight, _)| !flight.timed_out)
    }

    /// When it has been without work long enough to be dropped; `None` while it works.
    pub(super) fn drop_at(&self) -> Option<MonoTime> {
        self.is_idle().then(|| self.idle_since.plus_millis(IDLE_ENGINE_LINGER_MS))
    }
}
