//! CONVERT: the mode of a resource that is held (socket-protocol.md 7.26, lease-algorithms.md 6.5, 6.6, rule R6).

use crate::action::Action;
use crate::event::Target;
use crate::ids::{ConnId, ResourceId, TaskId};
use crate::state::{Op, OpKind, Resource, Work};
use crate::{Level, Manager, log, reply};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::name::Name;
use sanlock_lease::paxos::acquire::AcquireOptions;
use sanlock_lease::paxos::convert::ConvertOutcome;
use sanlock_lease::timing::MonoTime;

impl Manager {
    pub(crate) fn convert(
        &mut self,
        conn: ConnId,
        target: Target,
        names: (Name, Name),
        shared: bool,
        owner_nowait: bool,
        out: &mut Vec<Action>,
    ) {
        let target = match self.find_target(conn, target, false) {
            Ok(target) => target,
            Err(e) => return reply(out, conn, e.0),
        };
        let found = self.conns.get(&target).and_then(|c| {
            c.held().find(|id| self.resources.get(id).is_some_and(|r| r.spec.names() == names))
        });
        let started = match found {
            Some(id) => self.start_convert(id, shared, owner_nowait, out),
            None => Err(ReturnCode::ENOENT),
        };
        match started {
            Ok(task) => {
                let number = self.begin_op(conn, target, OpKind::Convert { task });
                if let Some(resource) = found.and_then(|id| self.resources.get_mut(&id)) {
                    resource.for_op = Some(number);
                }
            }
            Err(e) => reply(out, conn, e.0),
        }
    }

    fn start_convert(
        &mut self,
        id: ResourceId,
        shared: bool,
        owner_nowait: bool,
        out: &mut Vec<Action>,
    ) -> Result<TaskId, ReturnCode> {
        let task = TaskId(self.next_id());
        let resource = self.resources.get(&id).ok_or(ReturnCode::ENOENT)?;
        if resource.spec.shared == shared {
            return Err(ReturnCode::EALREADY);
        }
        let Work::Held { held, tokens } = &resource.work else { return Err(ReturnCode::EAGAIN) };
        // Other holders of this host count like those of other hosts (R6). A write that may still land has to land first (R3).
        if tokens.len() != 1 || resource.converting.is_some() || resource.unsettled.is_some() {
            return Err(ReturnCode::EAGAIN);
        }
        let config = self
            .task_config(resource)
            .filter(|_| self.in_usable_lockspace(resource))
            .ok_or(ReturnCode::ENOSPC)?;
        let (held, ls, disks) = (*held, resource.ls, resource.spec.disks.clone());
        let value = resource.unwritten_value().filter(|_| shared);
        let options = AcquireOptions { owner_nowait, ..AcquireOptions::default() };
        if let Some(resource) = self.resources.get_mut(&id) {
            resource.converting = Some(task);
        }
        self.tasks.insert(task, id);
        out.push(Action::StartConvert { task, ls, config, options, held, value, disks });
        Ok(task)
    }

    /// What conversions have left in leaders is taken back while the hold goes on: it keeps other hosts out. So does that of an orphan, behind
    /// which there may be no watchdog.
    pub(crate) fn erase_due(&mut self, now: MonoTime, out: &mut Vec<Action>) {
        let due = |r: &Resource| {
            r.waits_to_erase() && r.erase_due.0 <= now && r.converting.is_none() && r.unsettled.is_none()
        };
        let all: Vec<ResourceId> = self.resources.iter().filter(|(_, r)| due(r)).map(|(id, _)| *id).collect();
        for id in all {
            let of = |r: &Resource| (r.ls, r.is_granted(), self.in_usable_lockspace(r));
            let Some((ls, granted, usable)) = self.resources.get(&id).map(of) else { continue };
            if !usable || !(granted || self.require_watchdog_quietly(now, ls, out) == Ok(true)) {
                continue;
            }
            let task = TaskId(self.next_id());
            let Some(resource) = self.resources.get(&id) else { continue };
            let Work::Held { held, .. } = &resource.work else { continue };
            let Some(config) = self.task_config(resource) else { continue };
            let (held, ls, disks) = (*held, resource.ls, resource.spec.disks.clone());
            if let Some(resource) = self.resources.get_mut(&id) {
                resource.converting = Some(task);
                // Should it not even start.
                resource.erase_due.0 = now.plus_secs(2 * config.io_timeout.secs());
            }
            self.tasks.insert(task, id);
            out.push(Action::StartErase { task, ls, config, held, disks });
        }
    }

    pub(crate) fn convert_done(
        &mut self,
        now: MonoTime,
        task: TaskId,
        outcome: ConvertOutcome,
        outstanding: u32,
        out: &mut Vec<Action>,
    ) {
        let Some(id) = self.task_done(task, outstanding) else { return };
        let Some(resource) = self.resources.get_mut(&id) else { return };
        if resource.converting != Some(task) {
            return;
        }
        let ConvertOutcome { result, held, erase, value_written } = outcome;
        if value_written {
            self.value_written(id, false, out);
        }
        let Some(resource) = self.resources.get_mut(&id) else { return };
        if let Work::Held { held: ours, .. } = &mut resource.work {
            *ours = held;
        }
        if matches!(resource.work, Work::Settling { task: t } if t == task) {
            // Given up meanwhile: whatever is left is taken back, from what was last written.
            resource.converting = None;
            (resource.hold, resource.attempt) = (Some(held.block), Some(held.block));
            return self.give_back(id, task, outstanding, out);
        }
        resource.geometry = held.geometry;
        resource.spec.shared = held.is_shared();
        // The process that it had may not be the one that holds it when it is exclusive again.
        resource.manner = resource.manner.take().filter(|_| !held.is_shared());
        // A command waits for what a client asked for, and nobody for what takes an earlier conversion back.
        let (was_to_erase, takes_back) = (resource.erase, resource.for_op.is_none());
        // Exclusive, the leader is what we committed; a success leaves nothing older behind.
        resource.erase = held.is_shared() && (erase || (result.is_err() && resource.erase));
        resource.unsettled = (outstanding > 0).then_some(task);
        if resource.erase && (takes_back || !was_to_erase) {
            // After T, then every 2T, as for a release that fails (lease-algorithms.md 6.4). A conversion that is refused meanwhile puts nothing off.
            let t = self.lockspaces.get(&resource.ls).map_or(1, |ls| ls.io_timeout.secs());
            let tried = resource.erase_due.1;
            resource.erase_due = (now.plus_secs(if tried == 0 { t } else { 2 * t }), tried.saturating_add(1));
        } else if !resource.erase {
            resource.erase_due = (now, 0);
        }
        if result.is_ok() {
            resource.lver = if held.is_shared() { 0 } else { held.lver() };
            // The last exclusive owner stays known while the lease is shared.
            let owner = resource.tokens().first().map(|t| t.conn).filter(|_| !held.is_shared());
            let pid = owner.and_then(|c| self.conns.get(&c)).and_then(|c| c.pid);
            if let Some((resource, pid)) = self.resources.get_mut(&id).zip(pid) {
                resource.pid = pid;
            }
        }
        let Some(resource) = self.resources.get(&id) else { return };
        let code = match &result {
            // As with an acquire: nobody is told of a new right for which the host id does not stand any more (rule R10).
            Ok(()) if !held.is_shared() && !self.still_valid(now, resource) => ReturnCode::ENOSPC.0,
            Ok(()) => 0,
            Err(e) => {
                let code = ReturnCode::from(e).0;
                let text =
                    format!("convert {}:{}: {e} ({code})", resource.spec.lockspace, resource.spec.name);
                log(
                    out,
                    if e.is_contention() { Level::Debug } else { Level::Error },
                    Some(resource.ls),
                    text,
                );
                code
            }
        };
        self.convert_ended(id, code, out);
        if !takes_back {
            // Its process may convert again before the next tick, and before every other one.
            self.erase_due(now, out);
        }
    }

    /// A conversion is over, or could not begin.
    pub(crate) fn convert_ended(&mut self, id: ResourceId, code: i32, out: &mut Vec<Action>) {
        let Some(resource) = self.resources.get_mut(&id) else { return };
        resource.converting = None;
        let Resource { for_op: number, .. } = resource;
        let Some(number) = number.take() else { return };
        if let Some(Op { kind: OpKind::Convert { .. }, .. }) = self.ops.get(&number) {
            self.end_op(number, code, out);
        }
    }
}
