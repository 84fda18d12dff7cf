//! What the rest of the daemon reports: how joins, renewals, machines, watchdog and storage end.

use sanlock_lease::delta::{Event as HostEvent, JoinError, Joined};
use sanlock_lease::geometry::{Geometry, HostId};
use sanlock_lease::machine::IoFailure;
use sanlock_lease::name::Name;
use sanlock_lease::paxos::acquire::AcquireOutcome;
use sanlock_lease::paxos::convert::ConvertOutcome;
use sanlock_lease::paxos::release::{ReleaseOutcome, Released};
use sanlock_lease::paxos::{AcquireError, Held, OwnerInfo, ReleaseError};
use sanlock_lease::record::{HostBlock, ModeBlock, RawLeader};
use sanlock_manager::{ConnId, Event, LeaseWrites, Request as Wish};
use sanlock_wire::RequestBody;

use super::world::{Index, Machine, World, nth};
use crate::convert;
use crate::data::Data;

fn held(generation: u64, lver: u64, shared: bool) -> Held {
    let mut leader = RawLeader::zeroed();
    leader.owner_id = 1.into();
    leader.owner_generation = generation.into();
    leader.lver = lver.into();
    let mode = if shared { ModeBlock::shared(generation) } else { ModeBlock::zeroed() };
    Held { leader, block: HostBlock { mode, ..HostBlock::zeroed() }, geometry: Geometry::B512_M1 }
}

impl World {
    pub(super) fn lockspace(&mut self, data: &mut Data<'_>) {
        let (pick, detail) = (data.below(8), data.byte());
        if let Some(ls) = nth(self.late.keys().copied(), pick).filter(|_| detail % 8 == 1) {
            self.late.remove(&ls);
            self.event(Event::LeaseSettled { ls });
        } else if let Some(ls) =
            nth(self.leaving.iter().copied(), pick).filter(|_| self.calm || detail % 2 == 0)
        {
            self.leaving.remove(&ls);
            self.joining.remove(&ls);
            self.joined.remove(&ls);
            let writes = match detail % 8 {
                2 => LeaseWrites::Outstanding,
                4 => LeaseWrites::Overtaken,
                6 => LeaseWrites::Freed,
                _ => LeaseWrites::Ended,
            };
            if writes == LeaseWrites::Outstanding {
                let spec = self
                    .m
                    .lockspaces()
                    .find(|(id, _)| *id == ls)
                    .map(|(_, lockspace)| lockspace.spec.clone());
                self.late.extend(spec.map(|spec| (ls, spec)));
            }
            self.event(Event::Left { ls, writes });
        } else if let Some(ls) = nth(self.joining.iter().copied(), pick) {
            self.joining.remove(&ls);
            let result = match detail {
                0..=199 => {
                    self.generation += 1;
                    self.joined.insert(ls, self.generation);
                    let mut leader = RawLeader::zeroed();
                    leader.owner_generation = self.generation.into();
                    Ok(Joined { geometry: Geometry::B512_M1, leader, last_good: self.now })
                }
                200..=219 => Err(JoinError::Stopped { freed: true }),
                220..=239 => Err(JoinError::Read(IoFailure::TimedOut)),
                _ => Err(JoinError::Busy { owner: Name::default(), generation: 3 }),
            };
            self.event(Event::JoinDone { ls, result });
        } else if let Some(ls) = nth(self.joined.keys().copied(), pick) {
            self.event(match detail {
                240..=255 => Event::Corrupt { ls, code: -260, text: String::new() },
                200..=239 => Event::RenewalFailed { ls, code: -202, text: String::new() },
                _ => Event::Renewed { ls, timestamp: self.now, read_ms: 1, write_ms: 1 },
            });
        }
    }

    /// A machine ends, in one of the ways it can.
    pub(super) fn machine(&mut self, data: &mut Data<'_>) {
        let Some(task) = nth(self.machines.keys().copied(), data.below(16)) else { return };
        let Some(machine) = self.machines.remove(&task) else { return };
        let (how, detail) = (data.byte(), data.byte());
        let outstanding = u32::from(detail % 4 == 3);
        if how == 255 {
            let code = i32::from(detail) - 300;
            return self.event(Event::StartFailed { task, code });
        }
        if outstanding > 0 {
            self.unsettled.insert(task);
        }
        match machine {
            Machine::Acquire { ls, generation, shared } => {
                let fail = |error, retract: bool| AcquireOutcome::Failed {
                    error,
                    retract: retract.then(|| held(generation, u64::from(detail), shared).block),
                    geometry: Geometry::B512_M1,
                };
                let info = OwnerInfo { host_id: 2, generation: 1, timestamp: 9, lver: 3, short_hold: false };
                let outcome = match how {
                    0..=159 => AcquireOutcome::Acquired(held(generation, u64::from(detail), shared)),
                    160..=199 => fail(AcquireError::Live(info), false),
                    200..=229 => fail(AcquireError::LeaderWrite(IoFailure::TimedOut), true),
                    _ => fail(AcquireError::LockspaceGone, how % 2 == 0),
                };
                let acquired = matches!(outcome, AcquireOutcome::Acquired(_));
                if let Some(key) = self.names.get(&task).filter(|_| acquired) {
                    self.owned.insert(*key, ls);
                }
                let value = match detail / 4 % 4 {
                    0 => None,
                    1 => Some(Err(IoFailure::Os(5))),
                    _ => Some(Ok(vec![0; 512].into())),
                };
                let value = value.filter(|_| acquired);
                self.event(Event::AcquireDone { task, outcome, value, outstanding });
            }
            Machine::Convert(before) => {
                let ok = how < 160;
                let shared = before.is_shared() != ok;
                let result = if ok { Ok(()) } else { Err(AcquireError::LockspaceGone) };
                let generation = before.leader.owner_generation.get();
                let held = held(generation, before.lver(), shared);
                let erase = detail % 3 == 0;
                let outcome = Box::new(ConvertOutcome { result, held, erase, value_written: false });
                self.event(Event::ConvertDone { task, outcome, outstanding });
            }
            Machine::Erase(before) => {
                let result = if how < 200 { Ok(()) } else { Err(AcquireError::LockspaceGone) };
                let erase = detail % 3 == 0;
                let outcome = Box::new(ConvertOutcome { result, held: *before, erase, value_written: false });
                self.event(Event::ConvertDone { task, outcome, outstanding });
            }
            Machine::Release { value } => {
                let result = match how {
                    0..=159 => Ok(Released::LeaderFreed),
                    160..=179 => Ok(Released::ByFlag),
                    180..=199 if value => Err(ReleaseError::Value(IoFailure::Os(5))),
                    180..=219 => Err(ReleaseError::LeaderWrite(IoFailure::TimedOut)),
                    220..=239 => Err(ReleaseError::LockspaceGone),
                    _ => Err(ReleaseError::Lver { expected: 1, found: 2 }),
                };
                let before = matches!(result, Err(ReleaseError::Value(_) | ReleaseError::LockspaceGone));
                let outcome = ReleaseOutcome { result, block_failure: None, value_written: value && !before };
                self.event(Event::ReleaseDone { task, outcome, outstanding });
            }
        }
    }

    /// Writes land, records are saved, operations on indexes end.
    pub(super) fn settle(&mut self, data: &mut Data<'_>) {
        let pick = data.below(8);
        if !self.saves.is_empty() && data.one_in(2) {
            let (ls, serial) = self.saves.remove(0);
            return self.event(Event::RejoinSaved { ls, serial });
        }
        if let Some(task) = nth(self.indexes.keys().copied(), pick) {
            let Some(index) = self.indexes.get(&task).copied() else { return };
            if !index.answered {
                self.answered_storage(index.conn);
            }
            if data.one_in(3) && !index.answered {
                self.indexes.insert(task, Index { answered: true, ..index });
                return self.event(Event::IndexSettling { task });
            }
            self.indexes.remove(&task);
            return self.event(Event::IndexDone { task });
        }
        if let Some(task) = nth(self.unsettled.iter().copied(), pick) {
            // Not before the machine has ended.
            if !self.machines.contains_key(&task) {
                self.unsettled.remove(&task);
                self.event(Event::Settled { task });
            }
        }
    }

    pub(super) fn watch(&mut self, data: &mut Data<'_>) {
        let (pick, detail) = (data.below(8), data.byte());
        if let Some(ls) = nth(self.checks.iter().copied(), pick) {
            self.checks.remove(&ls);
            let result = match detail {
                250..=255 => Err("no answer".to_owned()),
                // Too long for an io timeout of 1.
                240..=249 => Ok(6),
                _ => Ok(2),
            };
            self.event(Event::WatchdogChecked { ls, result });
        } else if let Some(ls) = nth(self.arms.iter().copied(), pick) {
            self.arms.remove(&ls);
            let result = if detail >= 220 { Err("no answer".to_owned()) } else { Ok(()) };
            if result.is_ok() {
                self.armed.insert(ls);
            }
            self.event(Event::WatchdogArmed { ls, result });
        } else if let Some(ls) =
            nth(self.armed.iter().copied(), pick).filter(|_| (230..250).contains(&detail))
        {
            self.event(Event::WatchdogStatus { ls, protects: detail % 2 == 0 });
        } else if let Some(ls) = nth(self.armed.iter().copied(), pick).filter(|_| detail >= 250) {
            self.armed.remove(&ls);
            self.lost.insert(ls);
            self.event(Event::WatchdogLost { ls, text: String::new() });
        }
    }

    /// Requests are found, or other hosts show events.
    pub(super) fn others(&mut self, data: &mut Data<'_>) {
        let pick = data.below(8);
        if let Some(ls) = nth(self.looking.keys().copied(), pick) {
            let leases = self.looking.remove(&ls).unwrap_or_default();
            let found = leases.into_iter().filter(|_| !data.one_in(5));
            let found: Vec<Wish> = found.map(|resource| Wish { resource, lver: 0, force_mode: 0 }).collect();
            for wish in found {
                let request = Wish { lver: data.number(), force_mode: u32::from(data.byte() % 4), ..wish };
                self.event(Event::RequestFound { request });
            }
            self.event(Event::RequestsLooked { ls });
        } else if let Some(ls) = nth(self.joined.keys().copied(), pick) {
            let event = HostEvent { generation: data.number(), event: data.number(), data: 2 };
            let Some(from) = HostId::new(data.number()) else { return };
            self.event(Event::Noticed { ls, from, generation: data.number(), event });
        }
    }

    /// A thread that worked on storage answers.
    pub(super) fn storage(&mut self, data: &mut Data<'_>) {
        let Some(conn) = nth(self.storage.iter().copied(), data.below(8)) else { return };
        self.storage.remove(&conn);
        let Some(request) = self.answered(conn) else { return };
        if let (RequestBody::Request(spec), true) = (&request.body, data.one_in(2)) {
            let lockspace = convert::lease_name(&spec.resource().lockspace_name);
            self.event(Event::Requested { lockspace, owner: data.number() });
        }
    }

    fn answered_storage(&mut self, conn: ConnId) {
        // Its client may be gone and forgotten by now.
        if self.open.contains_key(&conn) || self.closed.contains_key(&conn) {
            let _request = self.answered(conn);
        }
    }
}
