//! Asking the owner of a lease for it, and looking whether somebody asks, as in `daemon/src/oneshot/request.rs`: one transfer after the
//! other, each with a time limit, and what follows from the records is decided by production code ([`Wish`]).

use crate::layout::{self, REQUEST_SECTOR};
use sanlock_lease::geometry::SectorSize;
use sanlock_lease::machine::{Action, Content, Env, Input, Machine, Op, OpId, Place, Step, View};
use sanlock_lease::name::Name;
use sanlock_lease::record::{RawLeader, RequestRecord, Wish};
use sanlock_lease::timing::{IoTimeout, MonoTime};
use sanlock_lease::verify::{self, Expect, Purpose};
use std::sync::Arc;

/// What it came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// What somebody asks for: version and force mode.
    Found(u64, u32),
    /// The request for this version is on every disk; whom it concerns, unless it only takes one back.
    Written(u64, Option<u64>),
    /// Nobody owns the lease.
    Free,
    /// Why not.
    Refused(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Leader,
    /// Reading the record of this leg.
    Reading(u8),
    /// Writing it.
    Writing(u8),
}

/// One request, or one look at the request for a lease.
#[derive(Clone, Debug)]
pub struct Asking {
    /// What is asked for; `None`: it only looks.
    wish: Option<Wish>,
    lockspace: Name,
    name: Name,
    legs: u8,
    io_timeout: IoTimeout,
    size: SectorSize,
    phase: Phase,
    version: u64,
    owner: Option<u64>,
    records: Vec<RequestRecord>,
    last_op: u32,
}

impl Asking {
    /// For the lease of this number, known by this name, on so many disks.
    #[must_use]
    pub fn new(
        wish: Option<Wish>,
        resource: u8,
        name: Name,
        legs: u8,
        io_timeout: IoTimeout,
        size: SectorSize,
    ) -> Self {
        let asks = wish.is_some_and(|wish| !wish.clears());
        Self {
            wish,
            lockspace: layout::lockspace(layout::disk_of(resource)),
            name,
            legs,
            io_timeout,
            size,
            phase: if asks { Phase::Leader } else { Phase::Reading(0) },
            version: 0,
            owner: None,
            records: Vec::new(),
            last_op: 0,
        }
    }

    /// The transfer that is due.
    fn transfer(&mut self, now: MonoTime) -> Step<Answer> {
        let size = self.size;
        let (leg, action) = match self.phase {
            Phase::Leader => (0, Action::Read { first: 0, count: 1 }),
            Phase::Reading(leg) => (leg, Action::Read { first: REQUEST_SECTOR, count: 1 }),
            Phase::Writing(leg) => {
                let mut bytes = vec![0; size.slice_len()];
                if let Some(record) = self.records.get(usize::from(leg)) {
                    record.encode(&mut bytes);
                }
                let content = Content::Value(Arc::from(bytes));
                (leg, Action::Write { sector: REQUEST_SECTOR, content })
            }
        };
        self.last_op += 1;
        let deadline = now.plus_millis(self.io_timeout.millis());
        let place = Place::Resource(leg);
        let op = Op { id: OpId(self.last_op), place, sector_size: size, action, deadline, doubt_ms: 0 };
        Step::Io([op].into_iter().collect())
    }

    /// Takes in what a transfer brought. The answer, if that was the last one.
    fn take(&mut self, view: View<'_>) -> Result<Option<Answer>, String> {
        match self.phase {
            Phase::Leader => {
                let Some(wish) = self.wish else { return Err("nothing to ask for".to_owned()) };
                let leader = RawLeader::from_sector(view.sector(0).unwrap_or_default());
                let (lockspace, resource) = (Some(self.lockspace), Some(self.name));
                let expect = Expect { lockspace, resource, host_id: None };
                verify::paxos(&leader, &expect, Purpose::Use).map_err(|e| e.to_string())?;
                let Some(version) = wish.version(&leader).map_err(|e| e.to_string())? else {
                    return Ok(Some(Answer::Free));
                };
                (self.version, self.owner) = (version, Some(leader.owner_id.get()));
                self.phase = Phase::Reading(0);
            }
            Phase::Reading(leg) => {
                let found = RequestRecord::from_sector(view.sector(REQUEST_SECTOR).unwrap_or_default());
                let Some(wish) = self.wish else {
                    found.check().map_err(|e| e.to_string())?;
                    return Ok(Some(Answer::Found(found.lver.get(), found.force_mode.get())));
                };
                self.records.push(wish.record(self.version, &found).map_err(|e| e.to_string())?);
                // Every disk is looked at before the first one is written.
                self.phase = if leg + 1 < self.legs { Phase::Reading(leg + 1) } else { Phase::Writing(0) };
            }
            Phase::Writing(leg) if leg + 1 < self.legs => self.phase = Phase::Writing(leg + 1),
            Phase::Writing(_) => return Ok(Some(Answer::Written(self.version, self.owner))),
        }
        Ok(None)
    }
}

impl Machine for Asking {
    type Outcome = Answer;

    fn step(&mut self, now: MonoTime, _: &Env<'_>, input: Input<'_>) -> Step<Answer> {
        let ended = match input {
            Input::Start => return self.transfer(now),
            Input::Completed { op, result } if op == OpId(self.last_op) => {
                result.map_err(|e| e.to_string()).and_then(|view| self.take(view))
            }
            Input::TimedOut { op } if op == OpId(self.last_op) => {
                let outstanding = u32::from(matches!(self.phase, Phase::Writing(_)));
                let outcome = Answer::Refused("not complete within the io timeout".to_owned());
                return Step::Done { outcome, outstanding };
            }
            _ => return Step::Pending,
        };
        match ended {
            Ok(None) => self.transfer(now),
            Ok(Some(outcome)) => Step::Done { outcome, outstanding: 0 },
            Err(why) => Step::Done { outcome: Answer::Refused(why), outstanding: 0 },
        }
    }
}
