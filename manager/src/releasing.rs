//! RELEASE, the release of what a dead client held, and what has to be tried again (socket-protocol.md 7.8,
//! lease-algorithms.md 6.4, rule R3).

use crate::action::Action;
use crate::event::{ReleaseWhat, Target};
use crate::ids::{ConnId, ResourceId, TaskId};
use crate::state::{Op, OpKind, OpNumber, Resource, Work};
use crate::{Level, Manager, log, reply};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::paxos::PaxosConfig;
use sanlock_lease::paxos::release::ReleaseOutcome;
use sanlock_lease::timing::MonoTime;
use std::collections::VecDeque;

impl Manager {
    pub(crate) fn release(
        &mut self,
        now: MonoTime,
        conn: ConnId,
        target: Target,
        what: ReleaseWhat,
        out: &mut Vec<Action>,
    ) {
        let target = match self.find_target(conn, target, false) {
            Ok(target) => target,
            Err(e) => return reply(out, conn, e.0),
        };
        let held: Vec<ResourceId> = self.conns.get(&target).map(|c| c.held().collect()).unwrap_or_default();
        let mut result = 0;
        let mut left = VecDeque::new();
        match what {
            ReleaseWhat::All => left.extend(held),
            ReleaseWhat::Named(names) => {
                for (lockspace, name) in names {
                    let found = held.iter().copied().find(|id| {
                        !left.contains(id)
                            && self
                                .resources
                                .get(id)
                                .is_some_and(|r| r.spec.lockspace == lockspace && r.spec.name == name)
                    });
                    match found {
                        Some(id) => left.push_back(id),
                        None => result = ReturnCode::GENERIC.0,
                    }
                }
            }
        }
        if let Some(client) = self.conns.get_mut(&target) {
            for id in &left {
                client.drop_token(*id);
            }
        }
        let number = self.begin_op(conn, target, OpKind::Release { left, current: None, result });
        self.release_next(now, number, false, out);
    }

    /// Releases the next resource of a command, or ends it. `keep_result`: the result is the reason of an undo and stays.
    pub(crate) fn release_next(
        &mut self,
        now: MonoTime,
        number: OpNumber,
        keep_result: bool,
        out: &mut Vec<Action>,
    ) {
        loop {
            let Some(op) = self.ops.get_mut(&number) else { return };
            let OpKind::Release { left, current, result } = &mut op.kind else { return };
            let Some(id) = left.pop_front() else {
                let code = *result;
                return self.end_op(now, number, code, out);
            };
            *current = Some(id);
            // An undo keeps its reason: mark it by waiting without being told the outcome.
            if self.start_release(now, id, Some((number, keep_result)), out) {
                return;
            }
        }
    }

    fn task_config(&self, resource: &Resource) -> Option<PaxosConfig> {
        let ls = self.lockspaces.get(&resource.ls)?;
        let joined = ls.joined.as_ref()?;
        Some(PaxosConfig {
            lockspace: resource.spec.lockspace,
            resource: resource.spec.name,
            host: ls.host,
            generation: joined.generation(),
            io_timeout: ls.io_timeout,
            fire: self.settings.fire,
            geometry: joined.geometry,
            disks: u8::try_from(resource.spec.disks.len()).ok()?,
        })
    }

    /// Starts the release of a resource that nobody holds a token of any more. False if there was nothing to do on disk: in a
    /// dead lockspace the resource is dropped, the host_id lease speaks for it.
    pub(crate) fn start_release(
        &mut self,
        now: MonoTime,
        id: ResourceId,
        for_op: Option<(OpNumber, bool)>,
        out: &mut Vec<Action>,
    ) -> bool {
        let task = TaskId(self.next_id());
        let Some(resource) = self.resources.get(&id) else { return false };
        let alive = self.lockspaces.get(&resource.ls).is_some_and(crate::Lockspace::usable);
        let config = self.task_config(resource).filter(|_| alive);
        let (Work::Held { held, .. }, Some(config)) = (&resource.work, config) else {
            self.resources.remove(&id);
            return false;
        };
        let held = *held;
        let (ls, disks) = (resource.ls, resource.spec.disks.clone());
        let _ = now;
        if let Some(resource) = self.resources.get_mut(&id) {
            resource.work = Work::Releasing { task };
            resource.for_op = for_op.map(|(number, _)| number);
            resource.keep_result = for_op.is_some_and(|(_, keep)| keep);
            resource.attempts = 1;
        }
        self.tasks.insert(task, id);
        out.push(Action::StartRelease { task, ls, config, held, disks });
        true
    }

    /// Takes back what a task left: at once, or when its outstanding writes have landed.
    pub(crate) fn give_back(
        &mut self,
        now: MonoTime,
        id: ResourceId,
        task: TaskId,
        outstanding: u32,
        out: &mut Vec<Action>,
    ) {
        if outstanding > 0 {
            if let Some(resource) = self.resources.get_mut(&id) {
                resource.work = Work::Settling { task };
            }
        } else {
            self.start_retract(now, id, out);
        }
    }

    fn start_retract(&mut self, now: MonoTime, id: ResourceId, out: &mut Vec<Action>) {
        let task = TaskId(self.next_id());
        let Some(resource) = self.resources.get(&id) else { return };
        let alive = self.lockspaces.get(&resource.ls).is_some_and(crate::Lockspace::usable);
        let Some(config) = self.task_config(resource).filter(|_| alive) else {
            self.resources.remove(&id);
            return;
        };
        let (ls, disks, geometry) = (resource.ls, resource.spec.disks.clone(), resource.geometry);
        let _ = now;
        if let Some(resource) = self.resources.get_mut(&id) {
            resource.work = Work::Releasing { task };
            resource.attempts += 1;
        }
        self.tasks.insert(task, id);
        out.push(Action::StartRetract { task, ls, config, geometry, disks });
    }

    pub(crate) fn release_done(
        &mut self,
        now: MonoTime,
        task: TaskId,
        outcome: ReleaseOutcome,
        outstanding: u32,
        out: &mut Vec<Action>,
    ) {
        let Some(id) = self.tasks.get(&task).copied() else { return };
        if outstanding == 0 {
            self.tasks.remove(&task);
        }
        let Some(resource) = self.resources.get_mut(&id) else { return };
        if !matches!(resource.work, Work::Releasing { task: t } if t == task) {
            return;
        }
        let ended = match &outcome.result {
            Ok(_) => Ok(()),
            Err(e) => {
                let code = ReturnCode::from(e).0;
                let text =
                    format!("release {}:{}: {e} ({code})", resource.spec.lockspace, resource.spec.name);
                log(out, Level::Error, Some(resource.ls), text);
                Err((code, e.is_retryable()))
            }
        };
        if outstanding > 0 {
            // The client is answered now; the resource stays until every write has landed.
            resource.work = Work::Settling { task };
            self.answer_release(now, id, ended.err().map_or(0, |(code, _)| code), out);
            return;
        }
        self.release_ended(now, id, ended, out);
    }

    /// A release attempt with nothing outstanding has ended. `Err((code, retryable))`.
    pub(crate) fn release_ended(
        &mut self,
        now: MonoTime,
        id: ResourceId,
        ended: Result<(), (i32, bool)>,
        out: &mut Vec<Action>,
    ) {
        let code = ended.err().map_or(0, |(code, _)| code);
        match ended {
            Err((_, true)) => self.retry_later(now, id),
            Ok(()) | Err((_, false)) => {
                let number = self.resources.get(&id).and_then(|r| r.for_op.map(|n| (n, r.keep_result)));
                self.resources.remove(&id);
                if let Some((number, keep)) = number {
                    self.released_for(now, number, code, keep, out);
                }
                return;
            }
        }
        self.answer_release(now, id, code, out);
    }

    /// The command that waits for this release goes on; what is left to do is done without it.
    fn answer_release(&mut self, now: MonoTime, id: ResourceId, code: i32, out: &mut Vec<Action>) {
        let Some(resource) = self.resources.get_mut(&id) else { return };
        let keep = resource.keep_result;
        if let Some(number) = resource.for_op.take() {
            self.released_for(now, number, code, keep, out);
        }
    }

    fn released_for(
        &mut self,
        now: MonoTime,
        number: OpNumber,
        code: i32,
        keep: bool,
        out: &mut Vec<Action>,
    ) {
        if let Some(Op { kind: OpKind::Release { result, current, .. }, .. }) = self.ops.get_mut(&number) {
            *current = None;
            if code != 0 && !keep {
                *result = code;
            }
        }
        self.release_next(now, number, keep, out);
    }

    /// The next attempt: at once, then after T, then every 2T (lease-algorithms.md 6.4).
    fn retry_later(&mut self, now: MonoTime, id: ResourceId) {
        let Some(resource) = self.resources.get_mut(&id) else { return };
        let t = self.lockspaces.get(&resource.ls).map_or(1, |ls| ls.io_timeout.secs());
        let wait = match resource.attempts {
            0 | 1 => 0,
            2 => t,
            _ => 2 * t,
        };
        resource.work = Work::Retry { at: now.plus_secs(wait) };
    }

    pub(crate) fn settled(&mut self, now: MonoTime, task: TaskId, out: &mut Vec<Action>) {
        let Some(id) = self.tasks.remove(&task) else { return };
        let settling = self
            .resources
            .get(&id)
            .is_some_and(|r| matches!(r.work, Work::Settling { task: t } if t == task));
        if settling {
            // What landed is unknown: look, and take back what is ours.
            self.start_retract(now, id, out);
        }
    }

    pub(crate) fn retry_releases(&mut self, now: MonoTime, out: &mut Vec<Action>) {
        let due: Vec<ResourceId> = self
            .resources
            .iter()
            .filter(|(_, r)| matches!(r.work, Work::Retry { at } if at <= now))
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            self.start_retract(now, id, out);
        }
    }
}
